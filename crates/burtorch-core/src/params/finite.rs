//! Numbers that are not finite among values and gradients.

use super::Parameters;
use crate::scalar::Float;

/// The first number of some [`Parameters`] that is NaN or infinite.
#[derive(Clone, Debug, PartialEq)]
pub struct NonFiniteParameter<E> {
    /// Whether it is a gradient, else a value.
    pub in_gradient: bool,
    /// Its place in the flat arrays.
    pub place: usize,
    /// The name of its tensor, if that has one.
    pub name: Option<String>,
    /// The number.
    pub number: E,
}

impl<E: Float> Parameters<'_, E> {
    /// The first value that is not finite, else the first such gradient. Costs a pass over both.
    ///
    /// ```
    /// let mut params = burtorch_core::Parameters::<f64>::new(0);
    /// params.tensor(&[3], Some("w"), burtorch_core::Init::Constant(1.0), true).unwrap();
    /// assert!(params.find_nonfinite().is_none());
    /// params.values_mut()[2] = f64::NAN;
    /// let found = params.find_nonfinite().unwrap();
    /// assert_eq!((found.in_gradient, found.place, found.name.as_deref()), (false, 2, Some("w")));
    /// ```
    pub fn find_nonfinite(&self) -> Option<NonFiniteParameter<E>> {
        [(false, self.values()), (true, self.grads())].into_iter().find_map(|(in_gradient, numbers)| {
            let place = numbers.iter().position(|x| !x.all_finite())?;
            let mut names = self.names();
            let name = names.find(|(_, tensor)| tensor.slice().range().contains(&place));
            let name = name.map(|(name, _)| name.to_string());
            Some(NonFiniteParameter { in_gradient, place, name, number: numbers[place] })
        })
    }
}
