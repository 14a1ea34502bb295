//! dot, sum, sum of squares, axpy, descend (which rounds each operation, as the test does).

use crate::support::{Float, LENGTHS, Numbers, Sum, on_every_level, wide};
use burtorch_core::kernels::{axpy, descend, dot, sum, sum_squares};

fn reductions<E: Float>() {
    for n in LENGTHS {
        let mut numbers = Numbers::new(n as u64);
        let (x, y) = (numbers.take::<E>(n), numbers.take::<E>(n));
        let (xw, yw) = (wide(&x), wide(&y));
        on_every_level(
            || vec![dot(&x, &y), sum(&x), sum_squares(&x)],
            |out| {
                Sum::of((0..n).map(|i| xw[i] * yw[i])).check(out[0], "dot");
                Sum::of(xw.iter().copied()).check(out[1], "sum");
                Sum::of(xw.iter().map(|x| x * x)).check(out[2], "sum of squares");
            },
        );
    }
}

fn axpy_adds<E: Float>() {
    for n in LENGTHS {
        let mut numbers = Numbers::new(n as u64);
        let (a, x, y) = (numbers.next::<E>(), numbers.take::<E>(n), numbers.take::<E>(n));
        on_every_level(
            || {
                let (mut sum, mut down) = (y.clone(), x.clone());
                axpy(a, &x, &mut sum);
                descend(a, &x, &y, &mut down);
                [sum, down].concat()
            },
            |out| {
                for i in 0..n {
                    Sum::of([y[i].into(), a.into() * x[i].into()]).check(out[i], "axpy");
                    let product: f64 = E::of(a.into() * x[i].into()).into();
                    assert_eq!(out[n + i].bits(), E::of(y[i].into() - product).bits());
                }
            },
        );
    }
}

#[test]
fn reductions_f32() {
    reductions::<f32>();
}

#[test]
fn reductions_f64() {
    reductions::<f64>();
}

#[test]
fn axpy_adds_f32() {
    axpy_adds::<f32>();
}

#[test]
fn axpy_adds_f64() {
    axpy_adds::<f64>();
}

#[test]
fn sums_keep_the_sign_of_zero() {
    assert_eq!(sum(&[-0.0_f32; 5]).to_bits(), (-0.0_f32).to_bits());
    assert_eq!(sum(&[-0.0_f64, 0.0]).to_bits(), 0.0_f64.to_bits());
    assert_eq!(dot(&[-0.0_f32; 17], &[1.0; 17]).to_bits(), (-0.0_f32).to_bits());
}

#[test]
#[should_panic = "differ in length"]
fn unequal_lengths_are_refused() {
    dot(&[1.0_f32, 2.0], &[1.0]);
}
