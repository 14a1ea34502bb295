//! Optimiser steps.

use crate::support::{Float, LENGTHS, Numbers, Sum, near, on_every_level};
use burtorch_core::kernels::{Adam, Momentum, adam_update, sgd_decay_update, sgd_momentum_update, sgd_update};

/// Runs a step on numbers of each length; `check` gets (g, m, v, x) before and (m, v, x) after it.
fn steps<E: Float>(step: impl Fn(&[E], &mut [E], &mut [E], &mut [E]), check: impl Fn([f64; 4], [E; 3])) {
    for n in LENGTHS {
        let mut numbers = Numbers::new(n as u64);
        let [g, m, v, x]: [Vec<E>; 4] = std::array::from_fn(|_| numbers.take(n));
        let v: Vec<E> = v.into_iter().map(|v| v * v).collect();
        on_every_level(
            || {
                let (mut m, mut v, mut x) = (m.clone(), v.clone(), x.clone());
                step(&g, &mut m, &mut v, &mut x);
                [m, v, x].concat()
            },
            |out| {
                for i in 0..n {
                    let before = [g[i].into(), m[i].into(), v[i].into(), x[i].into()];
                    check(before, [out[i], out[n + i], out[2 * n + i]]);
                }
            },
        );
    }
}

fn sgd<E: Float>() {
    let (lr, decay, momentum) = (E::of(0.3), E::of(0.01), E::of(0.9));
    let (lr_w, decay_w, momentum_w): (f64, f64, f64) = (lr.into(), decay.into(), momentum.into());
    steps::<E>(
        |g, _, _, x| sgd_update(lr, g, x),
        |[g, _, _, x], [_, _, out]| Sum::of([x, -lr_w * g]).check(out, "sgd"),
    );
    steps::<E>(
        |g, _, _, x| sgd_decay_update(lr, decay, g, x),
        |[g, _, _, x], [_, _, out]| {
            Sum::of([x, -lr_w * g, -lr_w * decay_w * x]).check(out, "sgd with decay");
        },
    );
    let step = Momentum { lr, momentum, nesterov: false, weight_decay: decay };
    steps::<E>(
        |g, m, _, x| sgd_momentum_update(&step, g, m, x),
        |[g, m, _, x], [speed, _, out]| {
            Sum::of([momentum_w * m, g, decay_w * x]).check(speed, "velocity");
            let terms = [x, -lr_w * momentum_w * m, -lr_w * g, -lr_w * decay_w * x];
            Sum::of(terms).check(out, "sgd with momentum");
        },
    );
}

fn adam<E: Float>(decoupled: bool) {
    let (beta1, beta2, t) = (0.9_f64, 0.999_f64, 3);
    let [lr, b1, b2, eps, decay] = [0.01, beta1, beta2, 1e-8, 0.1].map(E::of);
    let (c1, c2) = (1.0 - beta1.powi(t), 1.0 - beta2.powi(t));
    let step = Adam {
        lr,
        beta1: b1,
        beta2: b2,
        eps,
        weight_decay: decay,
        decoupled,
        correction1: E::of(c1),
        correction2: E::of(c2),
    };
    steps::<E>(
        |g, m, v, x| adam_update(&step, g, m, v, x),
        |[g, m, v, x], [first, second, out]| {
            // 1 - beta2 in the kernel's type, which differs from that in f64.
            let [b1, b2, lr, decay]: [f64; 4] = [b1, b2, lr, decay].map(Into::into);
            let g = if decoupled { g } else { g + decay * x };
            let (m, v) = (b1 * m + (1.0 - b1) * g, b2 * v + (1.0 - b2) * g * g);
            near(first, m, 4.0, 8.0, "first moment");
            near(second, v, 5.0, 8.0, "second moment");
            let kept = if decoupled { x * (1.0 - lr * decay) } else { x };
            // The relative error of a small second moment is large; that of the step is bounded by the step.
            let change = lr / c1 * m / ((v / c2).sqrt() + 1e-8);
            near(out, kept - change, x.abs() + change.abs() * 4.0, 200.0, "adam");
        },
    );
}

#[test]
fn sgd_steps() {
    sgd::<f32>();
    sgd::<f64>();
}

#[test]
fn adam_steps() {
    adam::<f32>(false);
    adam::<f32>(true);
    adam::<f64>(false);
    adam::<f64>(true);
}
