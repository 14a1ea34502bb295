//! Gradient clipping.

use super::Selection;
use crate::error::{Error, Result};
use crate::kernels::{KernelFloat, sum_squares};
use crate::params::Parameters;
use crate::scalar::Float;

/// Scales the gradient so that its Euclidean norm is at most `max_norm`; returns the norm before.
///
/// As PyTorch's `clip_grad_norm_`: the factor is `max_norm / (norm + 1e-6)` if that is below 1. A norm that is not
/// finite makes every gradient 0 or NaN, by the formula, unless `max_norm` is infinite, which only measures. Costs a pass, a
/// second one if it scales, and two if squares would overflow or underflow.
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
    if max_norm.is_nan() || max_norm < 0.0 {
        let (expected, found) = ("at least 0".into(), max_norm.to_string());
        return Err(Error::BadArgument { what: "the greatest norm", expected, found });
    }
    let norm = norm_of(params, numbers);
    if max_norm == f64::INFINITY {
        return Ok(norm);
    }
    let factor = max_norm / (norm + 1e-6);
    if factor < 1.0 || factor.is_nan() {
        params.scale_grads(numbers, E::lit(factor));
    }
    Ok(norm)
}

/// The norm of the selected gradients, scaled by the largest of them where squares may have overflowed or lost digits to
/// underflow.
fn norm_of<E: Float + KernelFloat>(params: &mut Parameters<'_, E>, numbers: &Selection) -> f64 {
    let mut squares = 0.0;
    params.for_each_selected_mut(numbers, |_, _, g| squares += sum_squares(g).to_f64());
    let safe = if size_of::<E>() == size_of::<f32>() { 1e-30..1e37 } else { 1e-280..1e300 };
    if squares.is_nan() || safe.contains(&squares) {
        return squares.sqrt();
    }
    let mut largest = 0.0_f64;
    params.for_each_selected_mut(numbers, |_, _, g| {
        largest = g.iter().fold(largest, |largest, g| largest.max(g.to_f64().abs()));
    });
    if largest == 0.0 || !largest.is_finite() {
        return largest;
    }
    let mut shares = 0.0;
    params.for_each_selected_mut(numbers, |_, _, g| {
        shares = g.iter().fold(shares, |shares, g| shares + (g.to_f64() / largest).powi(2));
    });
    largest * shares.sqrt()
}
