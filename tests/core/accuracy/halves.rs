//! Half numbers: every op at every one of the 65,536 arguments is the f32 result, rounded once.

use burtorch_core::ops::Arity;
use burtorch_core::{Float, Scalar, bf16, f16};

use super::sweep::{at, elementwise_ops};

fn rounded_once<H: Scalar<Elem = H, Compute = f32> + Float>(all: impl Iterator<Item = H> + Clone) {
    // Second operands of binary ops: few, but with every kind of exponent.
    let partners = [0.0, -0.0, 1.0, -2.5, 0.1, 3e4, -6e-8, f64::INFINITY, f64::NAN].map(H::from_f64);
    for op in elementwise_ops() {
        let partners = if op.info().arity == Arity::Unary { &partners[..1] } else { &partners[..] };
        for &y in partners {
            for x in all.clone().step_by(if partners.len() > 1 { 7 } else { 1 }) {
                let half = at(op, x, y);
                // A partial reads the rounded value.
                let value = at(op, x.widen(), y.widen())[0];
                assert!(same(half[0], H::narrow(value)), "{} at {x:?}, {y:?}", op.name());
                let wide = partials(op, x.widen(), y.widen(), half[0].widen());
                for (k, &partial) in wide.iter().enumerate() {
                    assert!(same(half[k + 1], H::narrow(partial)), "{} partial {k} at {x:?}, {y:?}", op.name());
                }
            }
        }
    }
}

fn same<H: Float>(a: H, b: H) -> bool {
    let (a, b) = (a.to_f64(), b.to_f64());
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

fn partials(op: burtorch_core::Op, x: f32, y: f32, value: f32) -> Vec<f32> {
    use burtorch_core::ops::{pull_binary, pull_unary};
    match op.info().arity {
        Arity::Unary => vec![pull_unary(op, 1.0, x, value).unwrap()],
        Arity::WithConstant => vec![pull_binary(op, 1.0, x, y, value).unwrap().0],
        _ => {
            let (dx, dy) = pull_binary(op, 1.0, x, y, value).unwrap();
            vec![dx, dy]
        }
    }
}

#[test]
fn f16_is_f32_rounded_once() {
    rounded_once((0..=u16::MAX).map(f16::from_bits));
}

#[test]
fn bf16_is_f32_rounded_once() {
    rounded_once((0..=u16::MAX).map(bf16::from_bits));
}

/// A double is rounded to a half number once: halfway cases are decided by bits that f32 does not have.
#[test]
fn doubles_are_rounded_once() {
    let tiny = f64::EPSILON;
    for (x, wanted) in [(2049.0, 2048.0), (2049.0 * (1.0 + tiny), 2050.0), (2051.0 * (1.0 - tiny), 2050.0)] {
        assert_eq!(<f16 as Float>::from_f64(x).to_f64(), wanted);
        assert_eq!(<f16 as Float>::from_f128(f128::from(x)).to_f64(), wanted);
    }
    for (x, wanted) in [(257.0, 256.0), (257.0 * (1.0 + tiny), 258.0), (-259.0 * (1.0 - tiny), -258.0)] {
        assert_eq!(<bf16 as Float>::from_f64(x).to_f64(), wanted);
    }
    let just_above = 2049.0_f128 + 1e-25;
    assert_eq!(<f16 as Float>::from_f128(just_above).to_f64(), 2050.0);
    assert_eq!(<f16 as Float>::from_f64(65519.999).to_f64(), 65504.0);
    assert_eq!(<f16 as Float>::from_f64(65520.0).to_f64(), f64::INFINITY);
    assert_eq!(<f16 as Float>::from_f64(-1e300).to_f64(), f64::NEG_INFINITY);
    assert_eq!(<bf16 as Float>::from_f64(1e-320).to_f64(), 0.0);
    assert!(<f16 as Float>::from_f64(f64::NAN).to_f64().is_nan());
}
