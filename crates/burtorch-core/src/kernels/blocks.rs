//! Which kernel a block op runs for each scalar type: [`BlockMath`], with the plain loops as its default.
//!
//! Promises: a type without kernels of its own still computes every block op, slowly. Knows opcodes of unary ops.

use super::{Mode, TokenMath};
use crate::ops::Op;
use crate::scalar::{Scalar, bf16, f16};
use crate::simd::{Simd, slices};

/// What block ops compute, per scalar type. The default methods are the plain loops; types with kernels override them.
pub trait BlockMath: TokenMath {
    /// `sum x_i y_i` over slices of equal length, at least one, in one fixed order.
    #[inline]
    fn dot(x: &[Self], y: &[Self]) -> Self
    where
        Self: Scalar,
    {
        naive::dot(x, y)
    }

    /// `y = W x + b`, with `w` by rows.
    fn affine_forward(w: &[Self::Elem], bias: Option<&[Self::Elem]>, x: &[Self], y: &mut [Self])
    where
        Self: Scalar,
    {
        naive::affine_forward(w, bias, x, y);
    }

    /// `dx = W^T dy`, overwriting.
    fn affine_input_grad(w: &[Self::Elem], dy: &[Self], dx: &mut [Self])
    where
        Self: Scalar,
    {
        naive::affine_input_grad(w, dy, dx);
    }

    /// `dw = dy x^T` or `dw += dy x^T`, summed over lanes.
    fn affine_weight_grad(dy: &[Self], x: &[Self], dw: &mut [Self::Elem], mode: Mode)
    where
        Self: Scalar,
    {
        if mode == Mode::Set {
            dw.fill(Self::Elem::lit(0.0));
        }
        naive::affine_weight_grad(dy, x, dw);
    }

    /// `dx = W^T dy`, where asked for, and then `W -= lr dy x^T`, summed over lanes.
    fn affine_descend(lr: Self::Elem, dy: &[Self], x: &[Self], w: &mut [Self::Elem], dx: Option<&mut [Self]>)
    where
        Self: Scalar,
    {
        if let Some(dx) = dx {
            naive::affine_input_grad(w, dy, dx);
        }
        for (&dy, row) in dy.iter().zip(w.chunks_exact_mut(x.len())) {
            for (w, &x) in row.iter_mut().zip(x) {
                *w = *w - lr * (dy * x).sum_lanes();
            }
        }
    }

    /// `x -= lr g`, with g summed over lanes.
    fn descend(lr: Self::Elem, g: &[Self], x: &mut [Self::Elem])
    where
        Self: Scalar,
    {
        for (x, g) in x.iter_mut().zip(g) {
            *x = *x - lr * g.sum_lanes();
        }
    }

    /// Softmax of `z` into `p`; returns `log(sum exp z)`.
    fn softmax(z: &[Self], p: &mut [Self]) -> Self
    where
        Self: Scalar,
    {
        naive::softmax(z, p)
    }

    /// `y_i = op(x_i)`.
    fn map_forward(op: Op, x: &[Self], y: &mut [Self])
    where
        Self: Scalar,
    {
        naive::map_forward(op, x, y);
    }

    /// Adds what each reached `g_i` contributes to `x_i` to `dx_i`.
    fn map_pull(op: Op, g: &[Self], x: &[Self], y: &[Self], dx: &mut [Self])
    where
        Self: Scalar,
    {
        naive::map_pull(op, g, x, y, dx);
    }
}

/// Types that run the plain loops.
macro_rules! plain {
    ($($t:ty)*) => { $( impl BlockMath for $t {} impl TokenMath for $t {} )* };
}
plain!(Simd<f32, 4> Simd<f32, 8> Simd<f32, 16> Simd<f64, 2> Simd<f64, 4> Simd<f64, 8> f16 bf16 f128);

/// One number per node: lanes run along the inner dimension.
macro_rules! one_sample {
    ($($t:ty)*) => { $(
        impl BlockMath for $t {
            #[inline]
            fn dot(x: &[Self], y: &[Self]) -> Self {
                if x.len() < 16 { naive::dot(x, y) } else { super::dot(x, y) }
            }

            fn affine_forward(w: &[$t], bias: Option<&[$t]>, x: &[Self], y: &mut [Self]) {
                super::affine_forward(w, bias, x, y);
            }

            fn affine_input_grad(w: &[$t], dy: &[Self], dx: &mut [Self]) {
                super::affine_input_grad(w, dy, dx);
            }

            fn affine_weight_grad(dy: &[Self], x: &[Self], dw: &mut [$t], mode: Mode) {
                super::affine_weight_grad(dy, x, dw, None, mode);
            }

            fn affine_descend(lr: $t, dy: &[Self], x: &[Self], w: &mut [$t], dx: Option<&mut [Self]>) {
                match dx {
                    Some(dx) => super::affine_input_grad_sgd_update(lr, dy, x, w, dx),
                    None => super::affine_sgd_update(lr, dy, x, w, None),
                }
            }

            fn descend(lr: $t, g: &[Self], x: &mut [$t]) {
                super::sgd_update(lr, g, x);
            }

            fn map_forward(op: Op, x: &[Self], y: &mut [Self]) {
                match op {
                    Op::Tanh => slices::tanh(x, y),
                    Op::Sigmoid => slices::sigmoid(x, y),
                    Op::Exp => slices::exp(x, y),
                    Op::Relu => slices::relu(x, y),
                    _ => naive::map_forward(op, x, y),
                }
            }

            fn map_pull(op: Op, g: &[Self], x: &[Self], y: &[Self], dx: &mut [Self]) {
                // The kernels give to every input, so they are for outputs all of which were reached.
                let all_reached = g.iter().fold(true, |all, g| all & !g.is_unreached());
                match op {
                    Op::Tanh if all_reached => super::tanh_backward(x, y, g, dx, Mode::Add),
                    Op::Sigmoid if all_reached => super::sigmoid_backward(x, g, dx, Mode::Add),
                    Op::Relu if all_reached => super::relu_backward(x, g, dx, Mode::Add),
                    _ => naive::map_pull(op, g, x, y, dx),
                }
            }
        }
    )* };
}
one_sample!(f32 f64);

/// The plain loops.
pub mod naive {
    use crate::ops::{Op, forward_unary, pull_unary};
    use crate::scalar::{Float, Scalar};

    /// See [`super::BlockMath::map_forward`].
    pub fn map_forward<S: Scalar>(op: Op, x: &[S], y: &mut [S]) {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = forward_unary(op, x).unwrap_or(x);
        }
    }

    /// See [`super::BlockMath::map_pull`].
    pub fn map_pull<S: Scalar>(op: Op, g: &[S], x: &[S], y: &[S], dx: &mut [S]) {
        for (k, dx) in dx.iter_mut().enumerate() {
            if !g[k].is_unreached() {
                let contribution = pull_unary(op, g[k], x[k], y[k]).unwrap_or(g[k]);
                *dx = *dx + (contribution + S::lit(0.0));
            }
        }
    }

    /// See [`super::BlockMath::dot`].
    #[inline]
    pub fn dot<S: Scalar>(x: &[S], y: &[S]) -> S {
        let mut total = x[0].widen() * y[0].widen();
        for (x, y) in x[1..].iter().zip(&y[1..]) {
            total = total + x.widen() * y.widen();
        }
        S::narrow(total)
    }

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

    /// See [`super::BlockMath::affine_input_grad`].
    pub fn affine_input_grad<S: Scalar>(w: &[S::Elem], dy: &[S], dx: &mut [S]) {
        let n_in = dx.len();
        dx.fill(S::lit(0.0));
        for (&dy, row) in dy.iter().zip(w.chunks_exact(n_in)) {
            for (dx, &w) in dx.iter_mut().zip(row) {
                *dx = *dx + S::splat(w) * dy;
            }
        }
    }

    /// See [`super::BlockMath::affine_weight_grad`].
    pub fn affine_weight_grad<S: Scalar>(dy: &[S], x: &[S], dw: &mut [S::Elem]) {
        for (&dy, row) in dy.iter().zip(dw.chunks_exact_mut(x.len())) {
            for (dw, &x) in row.iter_mut().zip(x) {
                *dw = *dw + (dy * x).sum_lanes();
            }
        }
    }

    /// See [`super::BlockMath::softmax`].
    pub fn softmax<S: Scalar>(z: &[S], p: &mut [S]) -> S {
        let mut top = z[0];
        for &z in &z[1..] {
            top = S::select(top.less(z), z, S::select(z.nan_mask(), z, top));
        }
        // A maximum of +-inf would make inf - inf; without the shift the formula gives what the limit says.
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
