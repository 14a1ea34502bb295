//! Optimiser steps.

use crate::support::{Float, LENGTHS, Numbers, Sum, on_every_level};
use burtorch_core::kernels::sgd_update;

fn sgd<E: Float>() {
    for n in LENGTHS {
        let mut numbers = Numbers::new(n as u64);
        let (lr, g, x) = (E::of(0.3), numbers.take::<E>(n), numbers.take::<E>(n));
        on_every_level(
            || {
                let mut x = x.clone();
                sgd_update(lr, &g, &mut x);
                x
            },
            |out| {
                for i in 0..n {
                    Sum::of([x[i].into(), -lr.into() * g[i].into()]).check(out[i], "sgd");
                }
            },
        );
    }
}

#[test]
fn sgd_steps() {
    sgd::<f32>();
    sgd::<f64>();
}
