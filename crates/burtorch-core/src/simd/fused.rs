//! Fused multiply-adds by integer arithmetic, for the C library of mingw: its `fma` and `fmaf` round twice.
//!
//! The simple algorithm: multiply the mantissas, shift both terms to one exponent, add, and round once. Promises: the result of a
//! fused instruction, to the bit, except for the bits of NaN.
#![cfg_attr(all(windows, target_env = "gnu"), allow(unsafe_code))]

/// A finite number other than 0: its sign, and `mantissa * 2^exponent`.
#[derive(Clone, Copy)]
struct Term {
    is_negative: bool,
    mantissa: u128,
    exponent: i32,
}

/// Bits of the product of two mantissas, and how far it is moved up.
const PRODUCT: i32 = 106;
const UP: i32 = 20;

/// To the right, with a last bit that is set if any bit was lost.
fn right(x: u128, by: i32) -> u128 {
    match by {
        ..=0 => x,
        128.. => u128::from(x != 0),
        _ => x >> by | u128::from(x & ((1 << by) - 1) != 0),
    }
}

/// `x y + z` before rounding. None if that is 0.
fn sum(x: Term, y: Term, z: Term) -> Option<Term> {
    let mut product = (x.mantissa * y.mantissa) << UP;
    let mut exponent = x.exponent + y.exponent - UP;
    let mut addend = z.mantissa;
    let most = PRODUCT + UP - 53;
    let by = z.exponent - exponent;
    if by > most {
        product = right(product, by - most);
        exponent += by - most;
        addend <<= most;
    } else if by >= 0 {
        addend <<= by;
    } else {
        addend = right(addend, -by);
    }
    let is_negative = x.is_negative != y.is_negative;
    let (is_negative, mantissa) = match (is_negative == z.is_negative, product >= addend) {
        (true, _) => (is_negative, product + addend),
        (false, true) => (is_negative, product - addend),
        (false, false) => (z.is_negative, addend - product),
    };
    (mantissa != 0).then_some(Term { is_negative, mantissa, exponent })
}

macro_rules! fused {
    ($name:ident, $float:ty, $bits:ty) => {
        /// `x y + z`, rounded once.
        fn $name(x: $float, y: $float, z: $float) -> $float {
            const FRACTION: i32 = <$float>::MANTISSA_DIGITS as i32 - 1;
            const LEAST: i32 = <$float>::MIN_EXP - 1 - FRACTION;
            let term = |x: $float| {
                let bits = x.to_bits();
                let field = (bits & !(1 << (<$bits>::BITS - 1))) >> FRACTION;
                let fraction = bits & ((1 << FRACTION) - 1);
                let mantissa = if field == 0 { fraction } else { fraction | 1 << FRACTION };
                let exponent = LEAST + (field as i32).max(1) - 1;
                Term { is_negative: x.is_sign_negative(), mantissa: u128::from(mantissa), exponent }
            };
            // Not finite, or of one rounding at most.
            if !(x.is_finite() && y.is_finite()) || x == 0.0 || y == 0.0 {
                return x * y + z;
            }
            if !z.is_finite() {
                return z;
            }
            if z == 0.0 {
                return x * y;
            }
            // Subnormal numbers move up, so that all have as many bits.
            let normal = |t: Term| {
                let by = FRACTION + 1 - (128 - t.mantissa.leading_zeros() as i32);
                Term { mantissa: t.mantissa << by, exponent: t.exponent - by, ..t }
            };
            let Some(t) = sum(normal(term(x)), normal(term(y)), normal(term(z))) else { return 0.0 };
            let length = 128 - t.mantissa.leading_zeros() as i32;
            let by = (length - FRACTION - 1).max(LEAST - t.exponent);
            let kept = match by {
                ..=0 => t.mantissa << -by,
                1..128 => {
                    let (kept, rest, half) = (t.mantissa >> by, t.mantissa & ((1 << by) - 1), 1 << (by - 1));
                    kept + u128::from(rest > half || rest == half && kept & 1 == 1)
                }
                _ => u128::from(by == 128 && t.mantissa > 1 << 127),
            };
            // A mantissa that was rounded up to the next power of 2 adds 1 to the exponent.
            let field = if kept >> FRACTION == 0 { 0 } else { t.exponent + by - LEAST + 1 };
            let most = <$float>::INFINITY.to_bits();
            let bits = match field {
                0 => kept as $bits,
                _ if field > 2 * <$float>::MAX_EXP => most,
                _ => (((field as $bits) - 1 << FRACTION) + kept as $bits).min(most),
            };
            let y = <$float>::from_bits(bits);
            if t.is_negative { -y } else { y }
        }
    };
}

fused!(fused_f64, f64, u64);
fused!(fused_f32, f32, u32);

/// In place of the functions of the C library, which the compiler calls where no instruction is used.
#[cfg(all(windows, target_env = "gnu"))]
mod exported {
    // SAFETY: the signatures are those of C; nothing else of a program defines these names before that library.
    #[unsafe(no_mangle)]
    extern "C" fn fma(x: f64, y: f64, z: f64) -> f64 {
        super::fused_f64(x, y, z)
    }

    // SAFETY: as above.
    #[unsafe(no_mangle)]
    extern "C" fn fmaf(x: f32, y: f32, z: f32) -> f32 {
        super::fused_f32(x, y, z)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bits of numbers of all sizes, near each other half of the time, and special ones.
    fn bits(state: &mut u64, near: u64, fraction: u32) -> u64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let x = *state >> 3 ^ *state << 31;
        match *state >> 60 {
            0 => x & ((1 << fraction) - 1),
            1 => x & !((1 << (fraction - 4)) - 1),
            2 => near ^ 1 << (x % 64),
            3..9 => near ^ x & ((1 << (fraction + 3)) - 1),
            _ => x,
        }
    }

    #[test]
    fn all_numbers_have_the_bits_of_the_instruction() {
        let (mut state, special) = (1, [0.0, -0.0, 1.0, f64::MIN_POSITIVE, 5e-324, f64::MAX, f64::INFINITY, f64::NAN]);
        for _ in 0..400_000 {
            let near = bits(&mut state, 1023 << 52, 52);
            let all: [f64; 3] = std::array::from_fn(|_| f64::from_bits(bits(&mut state, near, 52)));
            let [x, y, mut z] = all;
            if state >> 61 == 0 {
                z = -(x * y);
            }
            let (found, expected) = (fused_f64(x, y, z), x.mul_add(y, z));
            assert!(found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan(), "{x:e} {y:e} {z:e}");
            let all: [f32; 3] = std::array::from_fn(|_| f32::from_bits(bits(&mut state, near >> 29, 23) as u32));
            let [x, y, mut z] = all;
            if state >> 61 == 0 {
                z = -(x * y);
            }
            let (found, expected) = (fused_f32(x, y, z), x.mul_add(y, z));
            assert!(found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan(), "{x:e} {y:e} {z:e}");
        }
        for x in special {
            for y in special {
                for z in special.into_iter().chain(special.map(|z| -z)) {
                    let (found, expected) = (fused_f64(x, y, z), x.mul_add(y, z));
                    assert!(
                        found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan(),
                        "{x} {y} {z}"
                    );
                }
            }
        }
    }
}
