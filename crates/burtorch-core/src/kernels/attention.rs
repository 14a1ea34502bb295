//! Causal attention of several heads, tokens along lanes.
//!
//! Tokens are in groups of `L`: token t is lane `t % L` of group `t / L`, and a group of q, k, v or the output is
//! `width x L`; head h has features `h * d..(h + 1) * d` with `d = width / heads`. Scores are scaled by `1 / sqrt(d)`.
//! Promises: a token neither reads nor gives a gradient to a later one, not even a NaN. So padding goes after the
//! last token: it needs only an output adjoint of 0. The caller provides the workspace.
//! Does not know the layers around it.

use super::Mode;
use super::elementwise::plus_change;
use super::float::{KernelFloat, Pack};
use super::lanes::transposed;
use super::levels::{Target, leveled};
use crate::simd::{Real, array_of, math};
use crate::sync::stop::Pace;

/// How many probabilities the forward pass leaves for the backward pass: `L x L` for each head, query group and key group
/// not after it.
pub const fn attention_probs_len<const L: usize>(heads: usize, groups: usize) -> usize {
    groups * (groups + 1) / 2 * heads * L * L
}

leveled! {
    /// `out = softmax(q k^T / sqrt(d)) v` for each head, over the tokens not after the query's.
    pub fn causal_attention_forward<E, const L>(
        heads: usize,
        width: usize,
        q: &[E],
        k: &[E],
        v: &[E],
        probs: &mut [E],
        out: &mut [E],
    ) = forward_at;

    /// The gradients of q, k and v, set or added, from the adjoint of `out` and the stored results of the forward pass.
    pub fn causal_attention_backward<E, const L>(
        heads: usize,
        width: usize,
        q: &[E],
        k: &[E],
        v: &[E],
        probs: &[E],
        out: &[E],
        out_grad: &[E],
        q_grad: &mut [E],
        k_grad: &mut [E],
        v_grad: &mut [E],
        mode: Mode,
    ) = backward_at;
}

/// The sizes of a call, and the offsets of its parts.
#[derive(Clone, Copy)]
struct Shape {
    heads: usize,
    width: usize,
    groups: usize,
    /// Features per head.
    d: usize,
}

impl Shape {
    #[inline(always)]
    fn new<E, const L: usize>(heads: usize, width: usize, parts: &[&[E]], probs: &[E]) -> Self {
        assert!(heads > 0 && width.is_multiple_of(heads) && width > 0, "heads must share the width");
        let groups = parts[0].len() / (width * L);
        assert!(
            parts.iter().all(|part| part.len() == groups * width * L),
            "q, k, v and the output must be groups of width x L"
        );
        assert_eq!(probs.len(), attention_probs_len::<L>(heads, groups), "one probability per pair");
        Self { heads, width, groups, d: width / heads }
    }

    /// The offset of head `h` of group `g` in q, k, v or the output.
    #[inline(always)]
    fn head<const L: usize>(self, g: usize, h: usize) -> usize {
        (g * self.width + h * self.d) * L
    }

    /// The offset of the probabilities of head `h` and query group `g`, ordered by key group.
    #[inline(always)]
    fn block<const L: usize>(self, g: usize, h: usize) -> usize {
        (g * (g + 1) / 2 * self.heads + h * (g + 1)) * L * L
    }

    #[inline(always)]
    fn scale<V: Pack>(self) -> V {
        V::of(1.0) / V::of(self.d as f64).sqrt()
    }
}

/// The lanes covered by row r of a block of L x L pairs of tokens.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pairs {
    /// Every lane: the block lies below the diagonal.
    All,
    /// Rows are keys, lanes are queries: lanes from r on.
    KeyRows,
    /// Rows are queries, lanes are keys: lanes up to r.
    QueryRows,
}

/// `yes` in the lanes that row `r` covers, `no` elsewhere.
#[inline(always)]
fn covered<E: KernelFloat, const L: usize>(pairs: Pairs, r: usize, yes: E::V<L>, no: E::V<L>) -> E::V<L> {
    let lanes: [E; L] = array_of(|l| E::of(l as f64));
    let (lane, row) = (E::V::<L>::read_or(&lanes, E::default()), E::V::<L>::of(r as f64));
    match pairs {
        Pairs::All => yes,
        Pairs::KeyRows => E::V::<L>::select(lane.is_ge(row), yes, no),
        Pairs::QueryRows => E::V::<L>::select(lane.is_le(row), yes, no),
    }
}

/// Row r: `sum over features f of a[f][r] * b[f]`, where a and b are `d x L`.
///
/// # Safety
/// `a` and `b` hold `d * L` numbers from their offsets on.
#[inline(always)]
unsafe fn products<E: KernelFloat, T: Target, const L: usize>(
    d: usize,
    (a, a_at): (&[E], usize),
    (b, b_at): (&[E], usize),
) -> [E::V<L>; L] {
    debug_assert!(a_at + d * L <= a.len() && b_at + d * L <= b.len());
    let mut rows = [E::V::<L>::of(0.0); L];
    for f in 0..d {
        // SAFETY: `f < d` and `r < L`, as the caller promises.
        unsafe {
            let b = E::V::<L>::read(b, b_at + f * L);
            for r in 0..L {
                let a = E::V::splat(*a.get_unchecked(a_at + f * L + r));
                rows[r] = T::mul_add(a, b, rows[r]);
            }
        }
    }
    rows
}

/// `to[f] += sum over rows r of rows[r] * c[f][r]`, in the lanes that row r covers.
///
/// # Safety
/// `c` and `to` hold `d * L` numbers from their offsets on.
#[inline(always)]
unsafe fn accumulate<E: KernelFloat, T: Target, const L: usize>(
    d: usize,
    pairs: Pairs,
    rows: &[E::V<L>; L],
    (c, c_at): (&[E], usize),
    (to, to_at): (&mut [E], usize),
) {
    debug_assert!(c_at + d * L <= c.len() && to_at + d * L <= to.len());
    for f in 0..d {
        // SAFETY: `f < d` and `r < L`, as the caller promises.
        unsafe {
            let before = E::V::<L>::read(to, to_at + f * L);
            let mut sum = E::V::<L>::of(0.0);
            for r in 0..L {
                let c = E::V::splat(*c.get_unchecked(c_at + f * L + r));
                sum = covered::<E, L>(pairs, r, T::mul_add(rows[r], c, sum), sum);
            }
            plus_change(before, sum).write(to, to_at + f * L);
        }
    }
}

/// Simply: for each head and query, scores against all keys up to the query, their softmax, and the values weighted by
/// it. Departures:
/// 1. A vector holds L queries and a row one key, so there is no sum over lanes.
/// 2. The shifted scores of all heads are contiguous, so that the widest vectors compute their exponentials; they
///    become the probabilities that the backward pass reads.
#[inline(always)]
fn forward_at<E: KernelFloat, T: Target, const L: usize>(
    heads: usize,
    width: usize,
    q: &[E],
    k: &[E],
    v: &[E],
    probs: &mut [E],
    out: &mut [E],
) {
    let shape = Shape::new::<E, L>(heads, width, &[q, k, v, out], probs);
    out.fill(-E::default());
    let mut pace = Pace::new();
    for g in 0..shape.groups {
        // SAFETY: `Shape::new` checked all lengths against the numbers of groups and heads.
        unsafe {
            for h in 0..heads {
                if !pace.goes_on(2 * (g + 1) * L * L * shape.d) {
                    return;
                }
                shifted_scores::<E, T, L>(shape, g, h, q, k, probs);
            }
            let mut at = shape.block::<L>(g, 0);
            while at < shape.block::<L>(g + 1, 0) {
                exp_block::<E, L>(probs, at);
                at += L * L;
            }
            for h in 0..heads {
                mix_values::<E, T, L>(shape, g, h, v, probs, out);
            }
        }
    }
}

/// Writes `q k^T / sqrt(d)` minus its maximum over keys, and -inf for keys after the query.
///
/// # Safety
/// `g` and `h` are a group and a head of `shape`, and all lengths fit it.
#[inline(always)]
unsafe fn shifted_scores<E: KernelFloat, T: Target, const L: usize>(
    shape: Shape,
    g: usize,
    h: usize,
    q: &[E],
    k: &[E],
    probs: &mut [E],
) {
    let queries = shape.head::<L>(g, h);
    let block = shape.block::<L>(g, h);
    let lowest = E::V::<L>::of(f64::NEG_INFINITY);
    let mut max = lowest;
    for key_group in 0..=g {
        let keys = shape.head::<L>(key_group, h);
        let pairs = if key_group == g { Pairs::KeyRows } else { Pairs::All };
        // SAFETY: key groups are at most `g`, so all blocks lie within the lengths the caller vouches for.
        unsafe {
            let scores = products::<E, T, L>(shape.d, (k, keys), (q, queries));
            for r in 0..L {
                let score = covered::<E, L>(pairs, r, scores[r] * shape.scale(), lowest);
                score.write(probs, block + (key_group * L + r) * L);
                max = max.greater_of(score);
            }
        }
    }
    for row in 0..(g + 1) * L {
        // SAFETY: the rows were written above.
        unsafe { (E::V::<L>::read(probs, block + row * L) - max).write(probs, block + row * L) }
    }
}

/// Exponentials of `L * L` numbers in place.
///
/// # Safety
/// `x` holds `L * L` numbers from `at` on.
#[inline(always)]
unsafe fn exp_block<E: KernelFloat, const L: usize>(x: &mut [E], at: usize) {
    debug_assert!((L * L).is_multiple_of(E::Vector::LANES));
    let mut j = at;
    while j < at + L * L {
        // SAFETY: a vector's width divides `L * L`, and the caller vouches for the block.
        unsafe { math::exp(E::Vector::read(x, j)).write(x, j) }
        j += E::Vector::LANES;
    }
}

/// Normalises exponentials to probabilities, and adds up the values weighted by them.
///
/// # Safety
/// As for [`shifted_scores`].
#[inline(always)]
unsafe fn mix_values<E: KernelFloat, T: Target, const L: usize>(
    shape: Shape,
    g: usize,
    h: usize,
    v: &[E],
    probs: &mut [E],
    out: &mut [E],
) {
    let block = shape.block::<L>(g, h);
    // SAFETY: as in `shifted_scores`.
    unsafe {
        let mut total = E::V::<L>::of(0.0);
        for row in 0..(g + 1) * L {
            total = total + E::V::read(probs, block + row * L);
        }
        let share = E::V::<L>::of(1.0) / total;
        for key_group in 0..=g {
            let mut rows = [share; L];
            for r in 0..L {
                let at = block + (key_group * L + r) * L;
                rows[r] = E::V::<L>::read(probs, at) * share;
                rows[r].write(probs, at);
            }
            let pairs = if key_group == g { Pairs::KeyRows } else { Pairs::All };
            let (values, queries) = (shape.head::<L>(key_group, h), shape.head::<L>(g, h));
            accumulate::<E, T, L>(shape.d, pairs, &rows, (v, values), (out, queries));
        }
    }
}

/// Simply, for each head: `dp = dout v^T`, `ds = p * (dp - sum p dp) / sqrt(d)`, `dq = ds k`, `dk = ds^T q`, `dv = p^T
/// dout`. Departures:
/// 1. `sum p dp` equals `sum over features of dout * out`: no second pass over keys, and no memory for dp.
/// 2. Blocks of L x L pairs are transposed in registers for dk and dv, whose lanes are keys.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "the operands of attention")]
fn backward_at<E: KernelFloat, T: Target, const L: usize>(
    heads: usize,
    width: usize,
    q: &[E],
    k: &[E],
    v: &[E],
    probs: &[E],
    out: &[E],
    out_grad: &[E],
    q_grad: &mut [E],
    k_grad: &mut [E],
    v_grad: &mut [E],
    mode: Mode,
) {
    let shape = Shape::new::<E, L>(heads, width, &[q, k, v, out, out_grad, q_grad, k_grad, v_grad], probs);
    if mode == Mode::Set {
        for grad in [&mut *q_grad, &mut *k_grad, &mut *v_grad] {
            grad.fill(E::default());
        }
    }
    let (d, mut pace) = (shape.d, Pace::new());
    for g in 0..shape.groups {
        for h in 0..heads {
            if !pace.goes_on(4 * (g + 1) * L * L * d) {
                return;
            }
            let queries = shape.head::<L>(g, h);
            // SAFETY: `Shape::new` checked all lengths against the numbers of groups and heads.
            unsafe {
                let mut mean = E::V::<L>::of(0.0);
                for f in 0..d {
                    let at = queries + f * L;
                    mean = T::mul_add(E::V::read(out_grad, at), E::V::read(out, at), mean);
                }
                for key_group in 0..=g {
                    let keys = shape.head::<L>(key_group, h);
                    let at = shape.block::<L>(g, h) + key_group * L * L;
                    let (down, across) =
                        if key_group == g { (Pairs::KeyRows, Pairs::QueryRows) } else { (Pairs::All, Pairs::All) };
                    let p: [E::V<L>; L] = array_of(|r| E::V::read(probs, at + r * L));
                    let dp = products::<E, T, L>(d, (v, keys), (out_grad, queries));
                    let ds: [E::V<L>; L] = array_of(|r| p[r] * (dp[r] - mean) * shape.scale());
                    accumulate::<E, T, L>(d, down, &ds, (k, keys), (q_grad, queries));
                    let ds = transposed(ds);
                    accumulate::<E, T, L>(d, across, &ds, (q, queries), (k_grad, keys));
                    let p = transposed(p);
                    accumulate::<E, T, L>(d, across, &p, (out_grad, queries), (v_grad, keys));
                }
            }
        }
    }
}
