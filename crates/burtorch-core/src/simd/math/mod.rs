//! Elementary functions as formulas over [`Real`](super::Real): one body for a number and for every lane of a vector.
//!
//! Holds generic functions that are always inlined, one file per family, for use inside kernels that are compiled
//! for an instruction level (`#[target_feature]`). Elsewhere call [`Elementary`](super::Elementary) or
//! [`slices`](super::slices), which choose the level. Promises C99 Annex F results at special points, subnormals kept,
//! the bounds of docs/math-accuracy.md, and the same bits for a number, in each lane and at every level: every fused
//! multiply-add is explicit. Without the instruction it is emulated, with the same bits and several times slower.

mod double;
mod poly;

mod exp;
mod log;
mod tanh;

mod atan;
mod erf;
mod pow;
mod quadrant;
mod trig;

mod relu;
pub(crate) mod remainder;

mod bases;
mod gamma;
mod hyperbolic;
mod hypot;
mod normal;
pub(crate) mod polygamma;

pub use atan::*;
pub use bases::*;
pub use erf::{erf, erf_grad, gelu, gelu_grad, normal_pdf};
pub use exp::{exp, expm1};
pub use gamma::*;
pub use hyperbolic::*;
pub use hypot::*;
pub use log::{log, log1p, softplus};
pub use normal::*;
pub use pow::{pow, pow_dx, pow_dy};
pub use relu::relu;
pub use remainder::{floor_divide, remainder};
pub use tanh::{sigmoid, sigmoid_and_grad, sigmoid_grad, softplus_and_sigmoid, tanh, tanh_grad};
pub use trig::{cos, sin, sin_and_cos, tan, tan_and_grad, tan_grad};
