//! Errors in units in the last place of the exact result.

use burtorch_core::{DType, Float};

/// Bits of the significand, and the exponent of the smallest subnormal.
fn format(dtype: DType) -> (i32, i32) {
    match dtype {
        DType::Float64 => (53, -1074),
        DType::Float32 => (24, -149),
        DType::Float16 => (11, -24),
        DType::BFloat16 => (8, -133),
        DType::Float128 => (113, -16494),
    }
}

/// 2^n.
fn power_of_two(n: i32) -> f128 {
    if n >= -16382 { f128::from_bits(((n + 16383) as u128) << 112) } else { f128::from_bits(1 << (n + 16494)) }
}

/// How far `found` is from `exact`, in the places of `E` at `exact`; infinite where one is a NaN and the other is not.
pub fn error<E: Float>(found: E, exact: f128) -> f64 {
    error_of(found, exact, 0.0)
}

/// The same, where a result below `of` may be as far off as that.
pub fn error_of<E: Float>(found: E, exact: f128, of: f64) -> f64 {
    let nearest = E::from_f128(exact);
    if found.to_f128() == nearest.to_f128() && !exact.is_finite() || found.to_f128().is_nan() && exact.is_nan() {
        return 0.0;
    }
    if found.to_f128().is_nan() || exact.is_nan() || exact.is_infinite() {
        return f64::INFINITY;
    }
    let (bits, least) = format(E::DTYPE);
    let stored = ((exact.abs().max(of.into()).to_bits() >> 112) as i32).max(1);
    let place = power_of_two((stored - 16383 - (bits - 1)).max(least));
    if found.to_f128().is_infinite() {
        // Infinity is correct if rounding gives infinity; otherwise its error is that of the next number after the
        // largest.
        let overflows = nearest.to_f128() == found.to_f128();
        let same_side = found.to_f128().is_sign_positive() == exact.is_sign_positive();
        let largest = f64::from(bits).exp2();
        return if overflows {
            0.0
        } else if same_side {
            largest
        } else {
            f64::INFINITY
        };
    }
    ((found.to_f128() - exact).abs() / place) as f64
}

#[test]
fn the_metric_is_right_at_known_places() {
    assert_eq!(error(1.0_f64, 1.0), 0.0);
    assert_eq!(error(1.0_f64 + f64::EPSILON, 1.0), 1.0);
    assert_eq!(error(f32::EPSILON.to_bits() as f32, f32::EPSILON.to_bits().into()), 0.0);
    assert_eq!(error(5e-324_f64, 0.0), 1.0);
    assert_eq!(error(0.0_f64, 5e-324_f64.into()), 1.0);
    assert_eq!(error(f64::NAN, f128::NAN), 0.0);
    assert_eq!(error(f64::NAN, 1.0), f64::INFINITY);
    assert_eq!(error(f64::INFINITY, 1e400), 0.0);
    assert_eq!(error(f64::INFINITY, f128::INFINITY), 0.0);
    assert_eq!(error(f64::NEG_INFINITY, f128::INFINITY), f64::INFINITY);
    assert!(error(f64::MAX, 1e400) > 1e15);
    assert!(error(f64::INFINITY, 1.0) > 1e15);
    assert_eq!(error(3.0_f128, 3.0), 0.0);
}
