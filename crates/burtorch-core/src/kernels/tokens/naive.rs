//! The plain loops: one output at a time, reached ones only.

use super::{AffinePull, AttentionPull, AttentionShape, LayerNormPull, TOKEN_LANES, emptied};
use crate::scalar::Scalar;

const L: usize = TOKEN_LANES;

/// Adds a contribution to an adjoint; the sum is never the adjoint "not reached".
#[inline(always)]
fn give<S: Scalar>(to: &mut S, contribution: S) {
    *to = *to + (contribution + S::lit(0.0));
}

/// See [`super::TokenMath::pass_on`].
pub fn pass_on<S: Scalar>(g: &[S], to: &mut [S]) {
    for (to, &g) in to.iter_mut().zip(g).filter(|(_, g)| !g.is_unreached()) {
        give(to, g);
    }
}

/// See [`super::TokenMath::token_affine`].
pub fn affine<S: Scalar>(n_in: usize, w: &[S::Elem], bias: Option<&[S::Elem]>, relu: bool, x: &[S], y: &mut [S]) {
    let n_out = w.len() / n_in;
    for (x, y) in x.chunks_exact(n_in * L).zip(y.chunks_exact_mut(n_out * L)) {
        for (o, (y, row)) in y.chunks_exact_mut(L).zip(w.chunks_exact(n_in)).enumerate() {
            for (t, y) in y.iter_mut().enumerate() {
                let start = bias.map_or(S::lit(0.0), |b| S::splat(b[o]));
                let sum = row.iter().enumerate().fold(start, |sum, (i, &w)| sum + S::splat(w) * x[i * L + t]);
                *y = if relu { positive_part(sum) } else { sum };
            }
        }
    }
}

fn positive_part<S: Scalar>(x: S) -> S {
    let zero = S::lit(0.0);
    S::select(zero.less(x), x, S::select(x.nan_mask(), x, zero))
}

/// See [`super::TokenMath::token_affine_pull`].
pub fn affine_pull<S: Scalar>(pull: AffinePull<'_, S>) {
    let AffinePull { n_in, w, relu, dy, y, x, mut dx, dw, db, .. } = pull;
    let (mut dw, mut db) = (emptied(dw), emptied(db));
    let n_out = w.len() / n_in;
    for (k, &d) in dy.iter().enumerate().filter(|(_, d)| !d.is_unreached()) {
        let (g, o, t) = (k / (n_out * L), k / L % n_out, k % L);
        let d =
            if relu { S::select(S::lit(0.0).less(y[k]), d, S::select(y[k].nan_mask(), y[k], S::lit(0.0))) } else { d };
        for i in 0..n_in {
            let at = (g * n_in + i) * L + t;
            if let Some(dx) = &mut dx {
                give(&mut dx[at], S::splat(w[o * n_in + i]) * d);
            }
            if let Some(dw) = &mut dw {
                dw[o * n_in + i] = dw[o * n_in + i] + (d * x[at]).sum_lanes();
            }
        }
        if let Some(db) = &mut db {
            db[o] = db[o] + d.sum_lanes();
        }
    }
}

/// See [`super::TokenMath::token_layer_norm`].
pub fn layer_norm<S: Scalar>(x: &[S], gain: &[S::Elem], bias: &[S::Elem], eps: f64, y: &mut [S], stats: &mut [S]) {
    let n = gain.len();
    let count = S::lit(n as f64);
    for ((x, y), stats) in x.chunks_exact(n * L).zip(y.chunks_exact_mut(n * L)).zip(stats.chunks_exact_mut(2 * L)) {
        for t in 0..L {
            let mean = (0..n).fold(S::lit(0.0), |sum, i| sum + x[i * L + t]) / count;
            let squares = (0..n).fold(S::lit(0.0), |sum, i| {
                let off = x[i * L + t] - mean;
                sum + off * off
            });
            let scale = S::lit(1.0) / (squares / count + S::lit(eps)).sqrt();
            for i in 0..n {
                y[i * L + t] = (x[i * L + t] - mean) * scale * S::splat(gain[i]) + S::splat(bias[i]);
            }
            (stats[t], stats[L + t]) = (mean, scale);
        }
    }
}

/// See [`super::TokenMath::token_layer_norm_pull`].
pub fn layer_norm_pull<S: Scalar>(pull: LayerNormPull<'_, S>) {
    let LayerNormPull { gain, dy, x, stats, mut dx, dgain, dbias, .. } = pull;
    let (mut dgain, mut dbias) = (emptied(dgain), emptied(dbias));
    let n = gain.len();
    let count = S::lit(n as f64);
    for group in 0..dy.len() / (n * L) {
        for t in 0..L {
            let at = |i: usize| (group * n + i) * L + t;
            let reached = || (0..n).filter(|&i| !dy[at(i)].is_unreached());
            let (mean, scale) = (stats[group * 2 * L + t], stats[(group * 2 + 1) * L + t]);
            let unit = |i: usize| (x[at(i)] - mean) * scale;
            for i in reached() {
                if let Some(dgain) = &mut dgain {
                    dgain[i] = dgain[i] + (dy[at(i)] * unit(i)).sum_lanes();
                }
                if let Some(dbias) = &mut dbias {
                    dbias[i] = dbias[i] + dy[at(i)].sum_lanes();
                }
            }
            let (Some(dx), Some(_)) = (&mut dx, reached().next()) else { continue };
            let part = |i: usize| S::splat(gain[i]) * dy[at(i)];
            let level = reached().fold(S::lit(0.0), |sum, i| sum + part(i)) / count;
            let slope = reached().fold(S::lit(0.0), |sum, i| sum + part(i) * unit(i)) / count;
            for i in 0..n {
                let own = if dy[at(i)].is_unreached() { S::lit(0.0) } else { part(i) };
                give(&mut dx[at(i)], (own - level - unit(i) * slope) * scale);
            }
        }
    }
}

/// See [`super::TokenMath::token_attention`].
pub fn attention<S: Scalar>(shape: AttentionShape, [q, k, v]: [&[S]; 3], probs: &mut [S], out: &mut [S]) {
    probs.fill(S::lit(0.0));
    out.fill(S::lit(0.0));
    for (h, t) in shape.queries(q.len()) {
        let at = |f: usize, t: usize| shape.at(h, f, t);
        let score = |s: usize| {
            let dot = (0..shape.d()).fold(S::lit(0.0), |sum, f| sum + q[at(f, t)] * k[at(f, s)]);
            dot / S::lit(shape.d() as f64).sqrt()
        };
        let top = (1..=t).fold(score(0), |top, s| S::select(top.less(score(s)), score(s), top));
        let mut total = S::lit(0.0);
        for s in 0..=t {
            let e = (score(s) - top).exp();
            probs[shape.pair(h, t, s)] = e;
            total = total + e;
        }
        for s in 0..=t {
            let p = probs[shape.pair(h, t, s)] / total;
            probs[shape.pair(h, t, s)] = p;
            for f in 0..shape.d() {
                out[at(f, t)] = out[at(f, t)] + p * v[at(f, s)];
            }
        }
    }
}

/// See [`super::TokenMath::token_attention_pull`].
pub fn attention_pull<S: Scalar>(pull: AttentionPull<'_, S>) {
    let AttentionPull { shape, qkv: [q, k, v], probs, dout, grads, .. } = pull;
    grads.fill(S::UNREACHED);
    let len = q.len();
    let (dq, rest) = grads.split_at_mut(len);
    let (dk, dv) = rest.split_at_mut(len);
    for (h, t) in shape.queries(len) {
        let at = |f: usize, t: usize| shape.at(h, f, t);
        let reached = || (0..shape.d()).filter(|&f| !dout[at(f, t)].is_unreached());
        if reached().next().is_none() {
            continue;
        }
        let dp = |s: usize| reached().fold(S::lit(0.0), |sum, f| sum + dout[at(f, t)] * v[at(f, s)]);
        let mean = (0..=t).fold(S::lit(0.0), |sum, s| sum + probs[shape.pair(h, t, s)] * dp(s));
        for s in 0..=t {
            let p = probs[shape.pair(h, t, s)];
            let ds = p * (dp(s) - mean) / S::lit(shape.d() as f64).sqrt();
            for f in 0..shape.d() {
                give(&mut dq[at(f, t)], ds * k[at(f, s)]);
                give(&mut dk[at(f, s)], ds * q[at(f, t)]);
            }
            for f in reached() {
                give(&mut dv[at(f, s)], p * dout[at(f, t)]);
            }
        }
    }
}

/// See [`super::TokenMath::token_cross_entropy`].
pub fn cross_entropy<S: Scalar>(logits: &[S], n: usize, classes: &[u32], probs: &mut [S]) -> S {
    let groups = n.div_ceil(L);
    let width = logits.len() / (groups * L);
    probs.fill(S::lit(0.0));
    let mut sum = S::lit(0.0);
    for t in 0..n {
        let at = |c: usize| (t / L * width + c) * L + t % L;
        let top = (1..width).fold(logits[at(0)], |top, c| S::select(top.less(logits[at(c)]), logits[at(c)], top));
        // Without the shift if it would give inf - inf.
        let top = S::select(top.abs().less(S::lit(f64::INFINITY)), top, S::lit(0.0));
        let mut total = S::lit(0.0);
        for c in 0..width {
            probs[at(c)] = (logits[at(c)] - top).exp();
            total = total + probs[at(c)];
        }
        for c in 0..width {
            probs[at(c)] = probs[at(c)] / total;
        }
        let mut chosen = top;
        for (lane, classes) in classes.chunks_exact(n).enumerate() {
            chosen = chosen.with_lane(lane, logits[at(classes[t] as usize)].lane(lane));
        }
        sum = sum + (total.log() - (chosen - top));
    }
    sum
}

/// See [`super::TokenMath::token_cross_entropy_pull`].
pub fn cross_entropy_pull<S: Scalar>(g: S, n: usize, classes: &[u32], probs: &[S], dlogits: &mut [S]) {
    let width = probs.len() / (n.div_ceil(L) * L);
    for t in 0..n {
        for c in 0..width {
            let at = (t / L * width + c) * L + t % L;
            let mut p = probs[at];
            for (lane, classes) in classes.chunks_exact(n).enumerate() {
                if classes[t] as usize == c {
                    p = p.with_lane(lane, p.lane(lane) - <S::Elem as crate::scalar::RowMath>::lit(1.0));
                }
            }
            give(&mut dlogits[at], g * p);
        }
    }
}
