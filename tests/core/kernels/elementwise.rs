//! Backward passes of activations: values, special points, and the mark of "not reached".

use crate::support::{Float, LENGTHS, Numbers, near, on_every_level};
use burtorch_core::kernels::{
    Mode, relu_backward, relu_forward, sigmoid_backward, sigmoid_forward, tanh_backward, tanh_forward,
};

type Derivative = fn(f64) -> f64;

fn tanh_grad(x: f64) -> f64 {
    let e = (-2.0 * x.abs()).exp();
    4.0 * e / (1.0 + e).powi(2)
}

fn sigmoid_grad(x: f64) -> f64 {
    let e = (-x.abs()).exp();
    e / (1.0 + e).powi(2)
}

fn relu_grad(x: f64) -> f64 {
    f64::from(u8::from(x > 0.0))
}

/// Runs one activation forward and backward.
fn backward<E: Float>(which: usize, x: &[E], dy: &[E], dx: &mut [E], mode: Mode) {
    let mut y = vec![E::default(); x.len()];
    match which {
        0 => {
            tanh_forward(x, &mut y);
            tanh_backward(x, &y, dy, dx, mode);
        }
        1 => {
            sigmoid_forward(x, &mut y);
            sigmoid_backward(x, dy, dx, mode);
        }
        _ => {
            relu_forward(x, &mut y);
            relu_backward(x, dy, dx, mode);
        }
    }
}

fn derivatives<E: Float>() {
    let exact: [Derivative; 3] = [tanh_grad, sigmoid_grad, relu_grad];
    for (which, exact) in exact.into_iter().enumerate() {
        for n in LENGTHS {
            let mut numbers = Numbers::new(n as u64);
            let x: Vec<E> = numbers.take(n).into_iter().map(|x: E| x * E::of(4.0)).collect();
            let (dy, before) = (numbers.take::<E>(n), numbers.take::<E>(n));
            for (mode, keep) in [(Mode::Set, 0.0), (Mode::Add, 1.0)] {
                on_every_level(
                    || {
                        let mut dx = before.clone();
                        backward(which, &x, &dy, &mut dx, mode);
                        dx
                    },
                    |dx| {
                        for i in 0..n {
                            let part = dy[i].into() * exact(x[i].into());
                            let before = keep * before[i].into();
                            let scale = part.abs() + before.abs();
                            near(dx[i], before + part, scale, 20.0, "activation gradient");
                            assert_ne!(dx[i].bits(), (-E::default()).bits());
                        }
                    },
                );
            }
        }
    }
}

#[test]
fn derivatives_match() {
    derivatives::<f32>();
    derivatives::<f64>();
}

#[test]
fn edges() {
    let one = |which, x: f64, dy: f64| {
        let mut dx = [0.0];
        backward(which, &[x], &[dy], &mut dx, Mode::Set);
        dx[0]
    };
    let exact = tanh_grad(20.0);
    assert!((one(0, 20.0, 1.0) - exact).abs() < 1e-15 * exact, "tanh' at 20 is 1.7e-17, not 0");
    assert_eq!(one(1, -1000.0, 1.0), 0.0);
    for which in 0..3 {
        assert!(one(which, f64::NAN, 1.0).is_nan());
    }
    assert_eq!(one(2, 0.0, 1.0), 0.0);
    assert_eq!(one(2, -0.0, 1.0), 0.0);
    assert_eq!(one(2, -1.0, f64::INFINITY), 0.0, "relu selects");
    assert_eq!(one(2, 3.0, 2.0), 2.0);
}
