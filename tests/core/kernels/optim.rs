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
    let (lr, eps, decay): (f64, f64, f64) = (0.01, 1e-8, 0.1);
    let (c1, c2) = (1.0 - beta1.powi(t), 1.0 - beta2.powi(t));
    let (added, kept) = if decoupled { (0.0, 1.0 - lr * decay) } else { (decay, 1.0) };
    let step = Adam {
        rate: E::of(lr / c1),
        first: [beta1, 1.0 - beta1].map(E::of),
        second: [beta2, 1.0 - beta2].map(E::of),
        correction: E::of(c2),
        eps: E::of(eps),
        added: E::of(added),
        kept: E::of(kept),
    };
    steps::<E>(
        |g, m, v, x| adam_update(&step, g, m, v, x),
        |[g, m, v, x], [first, second, out]| {
            let [rate, c2, added, kept]: [f64; 4] = [step.rate, step.correction, step.added, step.kept].map(Into::into);
            let [[b1, s1], [b2, s2]]: [[f64; 2]; 2] = [step.first, step.second].map(|shares| shares.map(Into::into));
            let g = g + added * x;
            let (m, v) = (b1 * m + s1 * g, b2 * v + s2 * g * g);
            near(first, m, 4.0, 8.0, "first moment");
            near(second, v, 5.0, 8.0, "second moment");
            let kept = x * kept;
            // The relative error of a small second moment is large; that of the step is bounded by the step.
            let change = rate * m / ((v / c2).sqrt() + eps);
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
