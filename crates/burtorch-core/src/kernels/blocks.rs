//! The kernels of block ops for each scalar type: [`BlockMath`]. The plain loops are in [`naive`].
//!
//! Promises: only builders of block ops need this trait; f32, f64 and lanes of them implement it. Does not know ops.

use std::ops::Range;

use super::by_outputs::{Part, by_outputs};
use super::slices::SliceKernels;
use super::weight_pieces::{bias_grad_part_by, weight_grad_ones_by, weight_grad_parts_by};
use super::{Mode, OneWeight, TokenMath, WeightParts, Working};
use crate::simd::slices;
use crate::sync::stop::Pace;

/// The kernels of block ops, per scalar type. Graphs of other types have elementwise and reduction blocks only.
pub trait BlockMath: TokenMath {
    /// The kernels over whole slices, looked up by type in code for all scalar types.
    const SLICES: SliceKernels<Self>;

    /// Workspace of a dense layer, in scalars per thread.
    fn affine_workspace_len(_n_in: usize, _n_out: usize) -> usize {
        0
    }

    /// `y = W x + b`, with `w` by rows. `working` holds [`BlockMath::affine_workspace_len`] scalars for each thread.
    fn affine_forward(
        w: &[Self::Elem],
        bias: Option<&[Self::Elem]>,
        x: &[Self],
        y: &mut [Self],
        _working: Working<'_, Self>,
    ) {
        naive::affine_forward(w, bias, x, y);
    }

    /// `dx += W^T dy`. No entry is `-0.0` afterwards; an entry of `-0.0`, the mark of "not reached", counts as 0.
    fn affine_input_grad_add(w: &[Self::Elem], dy: &[Self], dx: &mut [Self], _working: Working<'_, Self>) {
        naive::affine_input_grad_add(w, dy, dx);
    }

    /// As [`BlockMath::affine_input_grad_add`] for these columns, which are distinct, and for others if that is faster.
    fn affine_input_grad_columns(
        w: &[Self::Elem],
        dy: &[Self],
        _columns: &[u32],
        dx: &mut [Self],
        working: Working<'_, Self>,
    ) {
        Self::affine_input_grad_add(w, dy, dx, working);
    }

    /// `dx = W^T dy`, regardless of the content of dx: the same bits as adding to "not reached".
    fn affine_input_grad_set(w: &[Self::Elem], dy: &[Self], dx: &mut [Self], working: Working<'_, Self>) {
        dx.fill(Self::UNREACHED);
        Self::affine_input_grad_add(w, dy, dx, working);
    }

    /// `dw = sum dy x^T` and `db = sum dy`, or the same added, over all samples of all groups: `dy[g]` belongs to
    /// `x[g]`, in the order of samples. `working` holds at least `PANEL` scalars per group.
    fn affine_weight_grad(
        dy: &[&[Self]],
        x: &[&[Self]],
        dw: &mut [Self::Elem],
        db: Option<&mut [Self::Elem]>,
        mode: Mode,
        _working: Working<'_, Self>,
    ) {
        naive::affine_weight_grad(dy, x, dw, db, mode);
    }

    /// The requested parts of `sum dy x^T`, with the same bits as the whole, set or added, in memory for all weights or
    /// only for the requested ones. Operands as above.
    fn affine_weight_grad_parts(
        dy: &[&[Self]],
        x: &[&[Self]],
        parts: &WeightParts<'_>,
        out: &mut [Self::Elem],
        mode: Mode,
        panel: &mut [Self],
    ) {
        let kernels = (Self::affine_weight_grad as _, Self::affine_weight_grad_ones as _);
        weight_grad_parts_by::<Self>(kernels, (dy, x), parts, (out, mode), panel);
    }

    /// The same for single weights.
    fn affine_weight_grad_ones(
        dy: &[&[Self]],
        x: &[&[Self]],
        weights: &[OneWeight],
        out: &mut [Self::Elem],
        mode: Mode,
    ) {
        let panel = &mut [Self::UNREACHED; PANEL];
        weight_grad_ones_by::<Self>(Self::affine_weight_grad, (dy, x), weights, (out, mode), panel);
    }

    /// Adds `sum dy` for the outputs of a range, with the same bits as the whole. Operands as above.
    fn affine_bias_grad_part(dy: &[&[Self]], outputs: Range<usize>, out: &mut [Self::Elem], panel: &mut [Self]) {
        bias_grad_part_by(Self::affine_weight_grad, dy, outputs, out, panel);
    }

    /// `dx = W^T dy`, if requested, and then `W -= lr dy x^T` and `b -= lr dy`, summed over lanes. `working` holds at
    /// least `PANEL` scalars and, if `dx` is requested, as many as above.
    fn affine_descend(
        lr: Self::Elem,
        dy: &[Self],
        x: &[Self],
        w: &mut [Self::Elem],
        bias: Option<&mut [Self::Elem]>,
        dx: Option<&mut [Self]>,
        _working: Working<'_, Self>,
    ) {
        if let Some(bias) = bias {
            (Self::SLICES.descend)(lr, dy, bias);
        }
        if let Some(dx) = dx {
            dx.fill(Self::UNREACHED);
            naive::affine_input_grad_add(w, dy, dx);
        }
        for (&dy, row) in dy.iter().zip(w.chunks_exact_mut(x.len())) {
            for (w, &x) in row.iter_mut().zip(x) {
                *w = *w - lr * (dy * x).sum_lanes();
            }
        }
    }

    /// The cross-entropy of the softmax of `z`, which goes to `p`, with the class of each lane: `log(sum exp z) - z[c]`.
    fn cross_entropy(z: &[Self], classes: &[u32], p: &mut [Self]) -> Self {
        naive::cross_entropy(z, classes, p)
    }

    /// Writes the softmax of `z` to `p`, as the cross-entropies do: for gradients without losses.
    fn probabilities(z: &[Self], p: &mut [Self]) {
        naive::softmax(z, p);
    }

    /// Adds `g (p - onehot(class))` to `dz`.
    fn cross_entropy_pull(g: Self, p: &[Self], classes: &[u32], dz: &mut [Self]) {
        naive::cross_entropy_pull(g, p, classes, dz);
    }

    /// The cross-entropy with a vector of probabilities, `sum t (log(sum exp z) - z)`.
    fn soft_cross_entropy(z: &[Self], t: &[Self], p: &mut [Self]) -> Self {
        naive::soft_cross_entropy(z, t, p)
    }

    /// Adds `g (p sum(t) - t)` to `dz`.
    fn soft_cross_entropy_pull(g: Self, p: &[Self], t: &[Self], dz: &mut [Self]) {
        naive::soft_cross_entropy_pull(g, p, t, dz);
    }

    /// Adds `factor` times the adjoints of the rows to the gradients of the table.
    fn scatter_add(factor: Self::Elem, grad: &[Self], indices: &[u32], table_grad: &mut [Self::Elem]) {
        naive::scatter_add(factor, grad, indices, table_grad);
    }
}

impl<S: BlockMath> SliceKernels<S> {
    pub(super) const KERNELS: Self = S::SLICES;
}

/// The largest number of inputs that a weight gradient transposes at once: [`BlockMath::affine_weight_grad`] needs a
/// workspace of this many scalars per group.
pub const PANEL: usize = 64;

/// One number per node: lanes run along the inner dimension.
macro_rules! one_sample {
    ($($t:ty)*) => { $(
        impl BlockMath for $t {
            const SLICES: SliceKernels<Self> = SliceKernels {
                dot: super::dot,
                descend: super::sgd_update,
                add: super::tokens::add,
                pass_on: super::tokens::pass_on,
                gather: super::gather_rows,
                tanh: slices::tanh,
                sigmoid: slices::sigmoid,
                exp: slices::exp,
                relu: slices::relu,
                tanh_pull: |x, y, g, dx| super::tanh_backward(x, y, g, dx, Mode::Add),
                sigmoid_pull: |x, _, g, dx| super::sigmoid_backward(x, g, dx, Mode::Add),
                relu_pull: |x, _, g, dx| super::relu_backward(x, g, dx, Mode::Add),
            };

            fn affine_forward(
                w: &[$t],
                bias: Option<&[$t]>,
                x: &[Self],
                y: &mut [Self],
                working: Working<'_, Self>,
            ) {
                if working.n_threads == 1 {
                    return super::affine_forward(w, bias, x, y);
                }
                let (n_in, n_out, threads) = (x.len(), y.len(), (working.n_threads, w.len() * Pace::FROM_MEMORY));
                by_outputs(threads, n_out, y, None, (&mut [], 0), &|Part { outputs: Range { start, end }, rows, .. }| {
                    super::affine_forward(&w[start * n_in..end * n_in], bias.map(|bias| &bias[start..end]), x, rows);
                });
            }

            fn affine_input_grad_add(w: &[$t], dy: &[Self], dx: &mut [Self], _working: Working<'_, Self>) {
                super::affine_input_grad_add(w, dy, dx);
            }

            fn affine_input_grad_columns(
                w: &[$t],
                dy: &[Self],
                columns: &[u32],
                dx: &mut [Self],
                _working: Working<'_, Self>,
            ) {
                super::affine_input_grad_columns(w, dy, columns, dx);
            }

            fn affine_weight_grad(
                dy: &[&[Self]],
                x: &[&[Self]],
                dw: &mut [$t],
                mut db: Option<&mut [$t]>,
                mut mode: Mode,
                working: Working<'_, Self>,
            ) {
                for (dy, x) in dy.iter().zip(x) {
                    let db = db.as_deref_mut();
                    if working.n_threads == 1 {
                        super::affine_weight_grad(dy, x, dw, db, mode);
                    } else {
                        let threads = (working.n_threads, dw.len() * Pace::FROM_MEMORY);
                        by_outputs(threads, dy.len(), dw, db, (&mut [], 0), &|part| {
                            super::affine_weight_grad(&dy[part.outputs], x, part.rows, part.bias, mode);
                        });
                    }
                    mode = Mode::Add;
                }
            }

            fn affine_weight_grad_parts(
                dy: &[&[Self]],
                x: &[&[Self]],
                parts: &WeightParts<'_>,
                out: &mut [$t],
                mut mode: Mode,
                _panel: &mut [Self],
            ) {
                for (dy, x) in dy.iter().zip(x) {
                    super::affine_weight_grad_parts(dy, x, parts, out, mode);
                    mode = Mode::Add;
                }
            }

            fn affine_descend(
                lr: $t,
                dy: &[Self],
                x: &[Self],
                w: &mut [$t],
                bias: Option<&mut [$t]>,
                dx: Option<&mut [Self]>,
                _working: Working<'_, Self>,
            ) {
                if let Some(bias) = bias {
                    super::sgd_update(lr, dy, bias);
                }
                match dx {
                    Some(dx) => super::affine_input_grad_sgd_update(lr, dy, x, w, dx),
                    None => super::affine_sgd_update(lr, dy, x, w, None),
                }
            }

            fn cross_entropy(z: &[Self], classes: &[u32], p: &mut [Self]) -> Self {
                let loss = super::softmax_cross_entropy_forward(z, classes[0], p);
                if loss.is_finite() { loss } else { naive::cross_entropy(z, classes, p) }
            }

            fn probabilities(z: &[Self], p: &mut [Self]) {
                if !super::softmax_forward(z, p).is_finite() {
                    naive::softmax(z, p);
                }
            }

            fn cross_entropy_pull(g: Self, p: &[Self], classes: &[u32], dz: &mut [Self]) {
                super::softmax_cross_entropy_backward(g, p, classes[0], dz, Mode::Add);
            }

            fn soft_cross_entropy(z: &[Self], t: &[Self], p: &mut [Self]) -> Self {
                let loss = super::softmax_cross_entropy_soft_forward(z, t, p);
                if loss.is_finite() { loss } else { naive::soft_cross_entropy(z, t, p) }
            }

            fn soft_cross_entropy_pull(g: Self, p: &[Self], t: &[Self], dz: &mut [Self]) {
                super::softmax_cross_entropy_soft_backward(g, p, t, dz, Mode::Add);
            }

            fn scatter_add(factor: $t, grad: &[Self], indices: &[u32], table_grad: &mut [$t]) {
                super::scatter_add_rows(factor, grad, indices, table_grad);
            }
        }
    )* };
}
one_sample!(f32 f64);

/// The plain loops.
pub mod naive {
    use super::Mode;
    use crate::scalar::{Float, RowMath, Scalar};

    /// See [`super::BlockMath::affine_forward`].
    pub fn affine_forward<S: Scalar>(w: &[S::Elem], bias: Option<&[S::Elem]>, x: &[S], y: &mut [S]) {
        for (o, (y, row)) in y.iter_mut().zip(w.chunks_exact(x.len())).enumerate() {
            let mut total = S::lit(0.0);
            for (&w, &x) in row.iter().zip(x) {
                total = total + S::splat(w) * x;
            }
            *y = bias.map_or(total, |b| total + S::splat(b[o]));
        }
    }

    /// See [`super::BlockMath::affine_input_grad_add`].
    pub fn affine_input_grad_add<S: Scalar>(w: &[S::Elem], dy: &[S], dx: &mut [S]) {
        let n_in = dx.len();
        for (&dy, row) in dy.iter().zip(w.chunks_exact(n_in)) {
            for (dx, &w) in dx.iter_mut().zip(row) {
                *dx = *dx + (S::splat(w) * dy + S::lit(0.0));
            }
        }
    }

    /// See [`super::BlockMath::affine_weight_grad`].
    pub fn affine_weight_grad<S: Scalar>(
        dy: &[&[S]],
        x: &[&[S]],
        dw: &mut [S::Elem],
        mut db: Option<&mut [S::Elem]>,
        mode: Mode,
    ) {
        if mode == Mode::Set {
            dw.fill(S::Elem::lit(0.0));
            if let Some(db) = &mut db {
                db.fill(S::Elem::lit(0.0));
            }
        }
        for (dy, x) in dy.iter().zip(x) {
            for (&dy, row) in dy.iter().zip(dw.chunks_exact_mut(x.len())) {
                for (dw, &x) in row.iter_mut().zip(*x) {
                    *dw = *dw + (dy * x).sum_lanes();
                }
            }
            if let Some(db) = &mut db {
                for (db, dy) in db.iter_mut().zip(*dy) {
                    *db = *db + dy.sum_lanes();
                }
            }
        }
    }

    /// See [`super::BlockMath::cross_entropy`].
    pub fn cross_entropy<S: Scalar>(z: &[S], classes: &[u32], p: &mut [S]) -> S {
        let mut chosen = S::lit(0.0);
        for (lane, &class) in classes.iter().enumerate() {
            chosen = chosen.with_lane(lane, z[class as usize].lane(lane));
        }
        softmax(z, p) - chosen
    }

    /// See [`super::BlockMath::cross_entropy_pull`].
    pub fn cross_entropy_pull<S: Scalar>(g: S, p: &[S], classes: &[u32], dz: &mut [S]) {
        for (k, (dz, &p)) in dz.iter_mut().zip(p).enumerate() {
            let mut change = p;
            for (lane, _) in classes.iter().enumerate().filter(|&(_, &class)| class as usize == k) {
                // p - 1 is exact if the probability is at least one half, and rounds once otherwise.
                change = change.with_lane(lane, p.lane(lane) - S::Elem::lit(1.0));
            }
            *dz = *dz + (g * change + S::lit(0.0));
        }
    }

    /// See [`super::BlockMath::soft_cross_entropy`].
    pub fn soft_cross_entropy<S: Scalar>(z: &[S], t: &[S], p: &mut [S]) -> S {
        let log_sum = softmax(z, p);
        let mut total = t[0] * (log_sum - z[0]);
        for (&t, &z) in t[1..].iter().zip(&z[1..]) {
            total = total + t * (log_sum - z);
        }
        total
    }

    /// See [`super::BlockMath::soft_cross_entropy_pull`].
    pub fn soft_cross_entropy_pull<S: Scalar>(g: S, p: &[S], t: &[S], dz: &mut [S]) {
        let total = t[1..].iter().fold(t[0], |sum, &t| sum + t);
        for ((dz, &p), &t) in dz.iter_mut().zip(p).zip(t) {
            *dz = *dz + (g * (p * total - t) + S::lit(0.0));
        }
    }

    /// See [`super::BlockMath::scatter_add`].
    pub fn scatter_add<S: Scalar>(factor: S::Elem, grad: &[S], indices: &[u32], table_grad: &mut [S::Elem]) {
        let positions = indices.len() / S::LANES;
        let width = grad.len() / positions;
        for lane in 0..S::LANES {
            for (k, grad) in grad.iter().enumerate() {
                let row = indices[lane * positions + k / width] as usize;
                let at = &mut table_grad[row * width + k % width];
                *at = *at + factor * grad.lane(lane);
            }
        }
    }

    /// Softmax of `z` into `p`; returns `log(sum exp z)`.
    pub fn softmax<S: Scalar>(z: &[S], p: &mut [S]) -> S {
        let mut top = z[0];
        for &z in &z[1..] {
            top = S::select(top.less(z), z, S::select(z.nan_mask(), z, top));
        }
        // A maximum of +-inf would give inf - inf; without the shift the formula gives the limit.
        let shift = S::select(top.abs().less(S::splat(S::Elem::from_f64(f64::INFINITY))), top, S::lit(0.0));
        let mut total = S::lit(0.0);
        for (p, &z) in p.iter_mut().zip(z) {
            *p = (z - shift).exp();
            total = total + *p;
        }
        let inverse = S::lit(1.0) / total;
        for p in p.iter_mut() {
            *p = *p * inverse;
        }
        shift + total.log()
    }
}
