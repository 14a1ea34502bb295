//! Gradient clipping.

use super::{Selection, check_rate};
use crate::error::Result;
use crate::kernels::{KernelFloat, sum_squares};
use crate::params::Parameters;
use crate::scalar::Float;

/// Scales the gradient so that its Euclidean norm is at most `max_norm`; returns the norm before.
///
/// As PyTorch's `clip_grad_norm_`: the factor is `max_norm / (norm + 1e-6)` if that is below 1. A norm that is not
/// finite makes every gradient 0 or NaN, by the formula. Costs a pass, and a second one if it scales.
///
/// ```
/// use burtorch_core::{Init, Parameters, optim::clip_grad_norm};
/// let mut params = Parameters::<f64>::new(0);
/// params.tensor(&[2], None, Init::Constant(0.0), true).unwrap();
/// params.grads_mut().copy_from_slice(&[3.0, 4.0]);
/// assert_eq!(clip_grad_norm(&mut params, 10.0), Ok(5.0));
/// assert_eq!(clip_grad_norm(&mut params, 1.0), Ok(5.0));
/// assert!((params.grads()[1] - 0.8).abs() < 1e-6);
/// ```
pub fn clip_grad_norm<E: Float + KernelFloat>(params: &mut Parameters<'_, E>, max_norm: f64) -> Result<f64> {
    clip_grad_norm_of(params, &Selection::ALL, max_norm)
}

/// As [`clip_grad_norm`], for the gradient of the selected numbers alone.
pub fn clip_grad_norm_of<E: Float + KernelFloat>(
    params: &mut Parameters<'_, E>,
    numbers: &Selection,
    max_norm: f64,
) -> Result<f64> {
    check_rate("the greatest norm", max_norm)?;
    let mut squares = 0.0;
    params.for_each_selected_mut(numbers, |_, _, g| squares += sum_squares(g).to_f64());
    let norm = squares.sqrt();
    let factor = max_norm / (norm + 1e-6);
    if factor < 1.0 || factor.is_nan() {
        params.scale_grads(numbers, E::lit(factor));
    }
    Ok(norm)
}
