//! Layer normalisation of lanes against plain loops.

use crate::support::{Float, Numbers, near, on_every_level};
use burtorch_core::kernels::{
    Mode, layer_norm_forward_lanes, layer_norm_input_grad_lanes, layer_norm_weight_grad_lanes,
};

const EPS: f64 = 1e-5;

/// One lane: the normalised input and 1 / sqrt(variance + eps).
fn normalised(x: &[f64]) -> (Vec<f64>, f64) {
    let n = x.len() as f64;
    let mean = x.iter().sum::<f64>() / n;
    let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
    let scale = 1.0 / (variance + EPS).sqrt();
    (x.iter().map(|x| (x - mean) * scale).collect(), scale)
}

fn layer_norm<E: Float, const L: usize>() {
    for n in [2, 3, 5, 8, 24, 31, 96] {
        let mut numbers = Numbers::new(n as u64);
        let (x, dy) = (numbers.take::<E>(n * L), numbers.take::<E>(n * L));
        let (gain, bias) = (numbers.take::<E>(n), numbers.take::<E>(n));
        let before = numbers.take::<E>(n * L);
        let compute = || {
            let (mut y, mut stats) = (vec![E::of(9.0); n * L], vec![E::of(9.0); 2 * L]);
            layer_norm_forward_lanes::<E, L>(&x, &gain, &bias, E::of(EPS), &mut y, &mut stats);
            let mut dx = before.clone();
            layer_norm_input_grad_lanes::<E, L>(&x, &stats, &gain, &dy, &mut dx, Mode::Add);
            let (mut dg, mut db) = (gain.clone(), bias.clone());
            layer_norm_weight_grad_lanes::<E, L>(&x, &stats, &dy, &mut dg, &mut db, Mode::Add);
            let mut set = vec![E::of(9.0); n * L];
            layer_norm_input_grad_lanes::<E, L>(&x, &stats, &gain, &dy, &mut set, Mode::Set);
            [y, dx, dg, db, set].concat()
        };
        on_every_level(compute, |out| {
            let (y, out) = out.split_at(n * L);
            let (dx, out) = out.split_at(n * L);
            let (dg, out) = out.split_at(n);
            let (db, set) = out.split_at(n);
            let mut exact_dg: Vec<f64> = gain.iter().map(|&g| g.into()).collect();
            let mut exact_db: Vec<f64> = bias.iter().map(|&b| b.into()).collect();
            for l in 0..L {
                let lane: Vec<f64> = (0..n).map(|i| x[i * L + l].into()).collect();
                let (unit, scale) = normalised(&lane);
                let a: Vec<f64> = (0..n).map(|i| gain[i].into() * dy[i * L + l].into()).collect();
                let level = a.iter().sum::<f64>() / n as f64;
                let slope = (0..n).map(|i| a[i] * unit[i]).sum::<f64>() / n as f64;
                for i in 0..n {
                    let k = i * L + l;
                    let exact_y = unit[i] * gain[i].into() + bias[i].into();
                    near(y[k], exact_y, 4.0 + scale, 16.0 + n as f64, "layer norm");
                    let exact = (a[i] - level - unit[i] * slope) * scale;
                    near(set[k], exact, 20.0 * scale, 16.0 + n as f64, "input gradient");
                    let exact = exact + before[k].into();
                    near(dx[k], exact, 20.0 * scale, 16.0 + n as f64, "input gradient added");
                    exact_dg[i] += unit[i] * dy[k].into();
                    exact_db[i] += dy[k].into();
                }
            }
            for i in 0..n {
                let tolerance = 16.0 + (n * L) as f64;
                near(dg[i], exact_dg[i], 4.0 * L as f64, tolerance, "gain gradient");
                near(db[i], exact_db[i], 4.0 * L as f64, tolerance, "bias gradient");
            }
        });
    }
}

#[test]
fn layer_norm_matches() {
    layer_norm::<f32, 8>();
    layer_norm::<f32, 16>();
    layer_norm::<f64, 4>();
}
