//! Unary ops over slices, forward and backward: by the kernels of the scalar type if it has them, otherwise one by one.
//!
//! Promises: the same values and contributions as one number at a time. Does not know graphs.

use super::{Op, forward_unary, pull_unary};
use crate::kernels::slices::slice_kernels;
use crate::scalar::Scalar;

/// `y_i = op(x_i)`.
pub(crate) fn map_forward<S: Scalar>(op: Op, x: &[S], y: &mut [S]) {
    if let Some(kernels) = slice_kernels::<S>() {
        match op {
            Op::Tanh => return (kernels.tanh)(x, y),
            Op::Sigmoid => return (kernels.sigmoid)(x, y),
            Op::Exp => return (kernels.exp)(x, y),
            Op::Relu => return (kernels.relu)(x, y),
            _ => {}
        }
    }
    for (y, &x) in y.iter_mut().zip(x) {
        *y = forward_unary(op, x).unwrap_or(x);
    }
}

/// Adds the contribution of each reached `g_i` to `dx_i`.
pub(crate) fn map_pull<S: Scalar>(op: Op, g: &[S], x: &[S], y: &[S], dx: &mut [S]) {
    // The kernels write to every input, so all outputs must be reached.
    if let Some(kernels) = slice_kernels::<S>()
        && g.iter().fold(true, |all, g| all & !g.is_unreached())
    {
        match op {
            Op::Tanh => return (kernels.tanh_pull)(x, y, g, dx),
            Op::Sigmoid => return (kernels.sigmoid_pull)(x, y, g, dx),
            Op::Relu => return (kernels.relu_pull)(x, y, g, dx),
            _ => {}
        }
    }
    for (k, dx) in dx.iter_mut().enumerate() {
        if !g[k].is_unreached() {
            let contribution = pull_unary(op, g[k], x[k], y[k]).unwrap_or(g[k]);
            *dx = *dx + (contribution + S::lit(0.0));
        }
    }
}
