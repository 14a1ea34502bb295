//! `Parameters.freeze` and `unfreeze`, which take the arguments of an optimiser.

use burtorch_core::Slice;
use pyo3::prelude::*;
use pyo3::types::PyList;

use super::trainable::Trainable;
use crate::convert::errors::IntoPython;
use crate::params::{PyParameters, numbers_of, with_params};

impl PyParameters {
    /// The slices named by names, pairs (start, stop), or arguments of an optimiser.
    fn slices_of(slf: &Bound<'_, Self>, what: &Bound<'_, PyAny>) -> PyResult<Vec<Slice>> {
        if let Some(ranges) = numbers_of(slf, what)? {
            let all = slf.get().all(what.py())?;
            return Ok(ranges.into_iter().filter_map(|r| all.slice(r.start as usize, r.end as usize)).collect());
        }
        let Ok(items) = what.cast::<PyList>() else {
            return match slf.get().place_of(what)? {
                Some(slice) => Ok(vec![slice]),
                None => Trainable::slices_of(what),
            };
        };
        let (mut slices, others) = (Vec::new(), PyList::empty(what.py()));
        for item in items {
            match slf.get().place_of(&item)? {
                Some(slice) => slices.push(slice),
                None => others.append(item)?,
            }
        }
        if slices.is_empty() || !others.is_empty() {
            slices.extend(Trainable::slices_of(&others)?);
        }
        Ok(slices)
    }
}

#[pymethods]
impl PyParameters {
    /// Freeze numbers: no gradient, no gradient memory, no work.
    ///
    /// Args:
    ///     what: the name of a tensor, a pair (start, stop) or a range of positions in the flat arrays, a Tensor, a layer, a
    ///         model, or a list of them; or ascending indices into the flat arrays, a mask with one bool per parameter, or a Subset.
    ///
    /// Raises KeyError for an unknown name, ValueError for a range outside, for Tensors of other Parameters, or for no
    /// numbers, TypeError for other arguments. Then nothing has changed.
    fn freeze(slf: &Bound<'_, Self>, what: &Bound<'_, PyAny>) -> PyResult<()> {
        let slices = Self::slices_of(slf, what)?;
        slf.get().with(slf.py(), |params| with_params!(params, p => p.freeze_all(&slices)))?.or_raise(slf.py())
    }

    /// Make numbers trainable again; `what` as in `freeze`.
    fn unfreeze(slf: &Bound<'_, Self>, what: &Bound<'_, PyAny>) -> PyResult<()> {
        let slices = Self::slices_of(slf, what)?;
        slf.get().with(slf.py(), |params| with_params!(params, p => p.unfreeze_all(&slices)))?.or_raise(slf.py())
    }
}
