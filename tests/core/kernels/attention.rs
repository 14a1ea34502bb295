//! Causal attention against plain loops, and what a later token may not touch.

use crate::support::{Float, Numbers, level_stays, near, on_every_level};
use burtorch_core::kernels::{Mode, attention_probs_len, causal_attention_backward, causal_attention_forward};

/// (heads, width, groups)
const SHAPES: [(usize, usize, usize); 5] = [(6, 24, 1), (1, 3, 1), (2, 10, 2), (3, 3, 3), (4, 64, 1)];

/// The index of feature f of token t.
fn at<const L: usize>(width: usize, f: usize, t: usize) -> usize {
    (t / L * width + f) * L + t % L
}

struct Exact {
    out: Vec<f64>,
    /// The gradients of q, k and v.
    grads: [Vec<f64>; 3],
}

fn exact<E: Float, const L: usize>((heads, width, groups): (usize, usize, usize), [q, k, v, dout]: [&[E]; 4]) -> Exact {
    let (tokens, d) = (groups * L, width / heads);
    let get = |x: &[E], f: usize, t: usize| -> f64 { x[at::<L>(width, f, t)].into() };
    let scale = 1.0 / (d as f64).sqrt();
    let zeros = || vec![0.0; width * tokens];
    let (mut out, [mut dq, mut dk, mut dv]) = (zeros(), [zeros(), zeros(), zeros()]);
    for h in 0..heads {
        let features = h * d..(h + 1) * d;
        for t in 0..tokens {
            let score =
                |s: usize| -> f64 { scale * features.clone().map(|f| get(q, f, t) * get(k, f, s)).sum::<f64>() };
            let e: Vec<f64> = (0..=t).map(|s| score(s).exp()).collect();
            let total: f64 = e.iter().sum();
            let p: Vec<f64> = e.iter().map(|e| e / total).collect();
            let dp: Vec<f64> =
                (0..=t).map(|s| features.clone().map(|f| get(dout, f, t) * get(v, f, s)).sum()).collect();
            let mean: f64 = (0..=t).map(|s| p[s] * dp[s]).sum();
            for s in 0..=t {
                let ds = p[s] * (dp[s] - mean) * scale;
                for f in features.clone() {
                    out[at::<L>(width, f, t)] += p[s] * get(v, f, s);
                    dv[at::<L>(width, f, s)] += p[s] * get(dout, f, t);
                    dq[at::<L>(width, f, t)] += ds * get(k, f, s);
                    dk[at::<L>(width, f, s)] += ds * get(q, f, t);
                }
            }
        }
    }
    Exact { out, grads: [dq, dk, dv] }
}

/// The output, then the gradients of q, k and v.
fn run<E: Float, const L: usize>(
    (heads, width, groups): (usize, usize, usize),
    [q, k, v, dout]: [&[E]; 4],
    before: &[E],
    mode: Mode,
) -> Vec<E> {
    let mut probs = vec![E::of(9.0); attention_probs_len::<L>(heads, groups)];
    let mut out = vec![E::of(9.0); q.len()];
    causal_attention_forward::<E, L>(heads, width, q, k, v, &mut probs, &mut out);
    let (mut dq, mut dk, mut dv) = (before.to_vec(), before.to_vec(), before.to_vec());
    causal_attention_backward::<E, L>(heads, width, q, k, v, &probs, &out, dout, &mut dq, &mut dk, &mut dv, mode);
    [out, dq, dk, dv].concat()
}

fn attention<E: Float, const L: usize>() {
    for shape in SHAPES {
        let (_, width, groups) = shape;
        let n = width * groups * L;
        let mut numbers = Numbers::new(n as u64);
        let data: [Vec<E>; 5] = std::array::from_fn(|_| numbers.take(n));
        let inputs = [&data[0][..], &data[1], &data[2], &data[3]];
        let exact = exact::<E, L>(shape, inputs);
        for (mode, keep) in [(Mode::Set, 0.0), (Mode::Add, 1.0)] {
            on_every_level(
                || run::<E, L>(shape, inputs, &data[4], mode),
                |out| {
                    let tolerance = 64.0 + n as f64;
                    for i in 0..n {
                        near(out[i], exact.out[i], 2.0, tolerance, "attention");
                        for (part, grad) in exact.grads.iter().enumerate() {
                            let expected = grad[i] + keep * data[4][i].into();
                            let actual = out[(part + 1) * n + i];
                            near(actual, expected, 4.0, tolerance, "attention gradient");
                        }
                    }
                },
            );
        }
    }
}

#[test]
fn attention_matches() {
    attention::<f32, 8>();
    attention::<f32, 16>();
    attention::<f64, 4>();
}

#[test]
fn later_tokens_touch_nothing() {
    let _turn = level_stays();
    const SHAPE: (usize, usize, usize) = (2, 6, 2);
    let n = 6 * 2 * 8;
    let mut numbers = Numbers::new(1);
    let mut data: [Vec<f32>; 4] = std::array::from_fn(|_| numbers.take(n));
    let run = |data: &[Vec<f32>; 4]| {
        let inputs = [&data[0][..], &data[1], &data[2], &data[3]];
        run::<f32, 8>(SHAPE, inputs, &vec![0.0; n], Mode::Set)
    };
    // Tokens 11 to 15 are padding: their outputs have no adjoint.
    let padding = || (11..16).flat_map(|t| (0..6).map(move |f| at::<8>(6, f, t)));
    padding().for_each(|i| data[3][i] = 0.0);
    let clean = run(&data);
    for x in &mut data[..3] {
        padding().for_each(|i| x[i] = 1e3);
    }
    let padded = run(&data);
    for part in 0..4 {
        for t in 0..11 {
            for f in 0..6 {
                let i = part * n + at::<8>(6, f, t);
                assert_eq!(clean[i].to_bits(), padded[i].to_bits(), "token {t}");
            }
        }
    }
    for x in &mut data[..3] {
        padding().for_each(|i| x[i] = f32::NAN);
    }
    let out = run(&data);
    assert!((0..11).all(|t| out[at::<8>(6, 3, t)].to_bits() == clean[at::<8>(6, 3, t)].to_bits()));
}
