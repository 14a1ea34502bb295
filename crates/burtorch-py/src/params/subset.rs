//! Sets of parameters for partial gradients: their Python forms, and prepared sets.
//!
//! Promises: indices are checked and copied, so later changes of an array do not change a set.

use std::ops::Range;

use burtorch_core::DType;
use burtorch_core::memory::filled;
use burtorch_core::params::WantedSet;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};

use super::{PyParameters, PyTensor, with_params};
use crate::convert::arrays::of_integers;
use crate::convert::buffer::{FlatArray, type_name};
use crate::convert::errors::IntoPython;
use crate::convert::gc::collected;
use crate::convert::sets::{listed, range_in};

/// A prepared set of parameters for partial gradients. Made by `Oracle.subset` and `Parameters.subset`.
///
/// It is sorted, checked and planned once, so calls with it cost no more than their computation. It is valid only for the
/// Parameters as they were; after new tensors, `freeze` or `unfreeze` a call with it is a ValueError. `len(s)` is the
/// number of its parameters, `s.indices` an array of their positions in the flat arrays, in the order of results.
///
/// Example:
///     >>> import burtorch as bt
///     >>> params = bt.Parameters(dtype="float64")
///     >>> w, b = params.tensor((2, 3), name="w"), params.tensor(2, name="b")
///     >>> s = params.subset(["b", range(1, 3)])
///     >>> len(s), s.indices.tolist()
///     (4, [1, 2, 6, 7])
#[pyclass(frozen, name = "Subset", module = "burtorch")]
pub struct PySubset {
    params: Py<PyParameters>,
    set: WantedSet,
}
collected!(PySubset: params);

impl PySubset {
    /// The set itself.
    pub fn set(&self) -> &WantedSet {
        &self.set
    }

    /// The owner of its numbers.
    pub fn owner(&self) -> &Py<PyParameters> {
        &self.params
    }

    /// The set of at least one parameter named by an argument that determines its Parameters, or by numbers of these parameters
    /// if there are no others.
    pub fn of_any<'py>(what: &Bound<'py, PyAny>, read: &[Bound<'py, PyParameters>]) -> PyResult<Bound<'py, PySubset>> {
        let subset = Self::any(what, read)?;
        if subset.get().set.is_empty() {
            return Err(PyValueError::new_err("wanted names no parameters; name at least one"));
        }
        Ok(subset)
    }

    fn any<'py>(what: &Bound<'py, PyAny>, read: &[Bound<'py, PyParameters>]) -> PyResult<Bound<'py, PySubset>> {
        if let Ok(subset) = what.cast::<PySubset>() {
            return Self::of(subset.get().params.bind(what.py()), what);
        }
        let first = what.cast::<PyList>().ok().and_then(|items| items.iter().next());
        if let Ok(tensor) = first.as_ref().unwrap_or(what).cast::<PyTensor>() {
            return Self::of(tensor.get().owner().bind(what.py()), what);
        }
        match read {
            [only] => Self::of(only, what),
            _ => Err(PyValueError::new_err(format!(
                "the graph reads {} Parameters; use a Subset of one of them, from Parameters.subset",
                read.len()
            ))),
        }
    }

    fn check_owner(&self, params: &Bound<'_, PyParameters>) -> PyResult<()> {
        if self.params.is(params) {
            return Ok(());
        }
        Err(PyValueError::new_err("the subset belongs to other Parameters; prepare one of these"))
    }

    /// As [`PySubset::of`], if the computation with the set checks that it still fits.
    pub fn unchecked<'py>(
        params: &Bound<'py, PyParameters>,
        what: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PySubset>> {
        match what.cast::<PySubset>() {
            Ok(subset) => subset.get().check_owner(params).map(|()| subset.clone()),
            Err(_) => Self::of_ranges(params, ranges_of(params, what)?),
        }
    }

    /// The set named by an argument: a prepared one, or one read by [`ranges_of`].
    pub fn of<'py>(params: &Bound<'py, PyParameters>, what: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PySubset>> {
        let py = params.py();
        let subset = Self::unchecked(params, what)?;
        let checked = params.get().with(py, |any| with_params!(any, p => subset.get().set.check(p)))?;
        checked.or_raise(py).map(|()| subset)
    }

    /// A set of ranges.
    pub fn of_ranges<'py>(
        params: &Bound<'py, PyParameters>,
        ranges: Vec<Range<u32>>,
    ) -> PyResult<Bound<'py, PySubset>> {
        let py = params.py();
        let set = params.get().with(py, |any| with_params!(any, p => WantedSet::of(p, ranges)))?.or_raise(py)?;
        Bound::new(py, PySubset { params: params.clone().unbind(), set })
    }
}

/// A new array of `n` zeros of a dtype with kernels.
pub fn zeros<'py>(py: Python<'py>, dtype: DType, n: usize) -> PyResult<Bound<'py, PyAny>> {
    let array = match dtype {
        DType::Float32 => FlatArray::copied(&filled(0.0_f32, n, "a gradient").or_raise(py)?),
        _ => FlatArray::copied(&filled(0.0_f64, n, "a gradient").or_raise(py)?),
    };
    Ok(Bound::new(py, array)?.into_any())
}

/// The parameters denoted by names, Tensors, layers, ranges, pairs (start, stop), sorted indices, a mask, or a list of these.
fn ranges_of(params: &Bound<'_, PyParameters>, what: &Bound<'_, PyAny>) -> PyResult<Vec<Range<u32>>> {
    if let Some(ranges) = numbers_of(params, what)? {
        return Ok(ranges);
    }
    let is_pair =
        || what.cast::<PyTuple>().is_ok_and(|items| items.iter().all(|item| !item.is_instance_of::<PyTensor>()));
    let mut ranges = Vec::new();
    match what.is_instance_of::<PyList>() || what.is_instance_of::<PyTuple>() && !is_pair() {
        true => what.try_iter()?.try_for_each(|item| add_ranges(params, &item?, &mut ranges))?,
        false => add_ranges(params, what, &mut ranges)?,
    }
    Ok(ranges)
}

/// Adds the ranges of a name, a Tensor, a range or a pair; of the tensors of a layer or model, or of an iterator.
fn add_ranges(params: &Bound<'_, PyParameters>, what: &Bound<'_, PyAny>, ranges: &mut Vec<Range<u32>>) -> PyResult<()> {
    if let Some(range) = range_of(params, what)? {
        ranges.push(range);
        return Ok(());
    }
    let is_model = !(what.is_instance_of::<PyList>() || what.is_instance_of::<PyTuple>() || what.hasattr("dtype")?);
    let tensors = match is_model {
        true if what.hasattr("__next__")? => what.clone(),
        true => what.py().import("burtorch._module")?.call_method1("tensors_of", (what,))?,
        false => return Err(unknown(what)),
    };
    let before = ranges.len();
    for tensor in tensors.try_iter()? {
        let tensor = tensor?;
        ranges.push(range_of(params, &tensor)?.ok_or_else(|| unknown(&tensor))?);
    }
    if ranges.len() == before { Err(unknown(what)) } else { Ok(()) }
}

/// The parameters of a prepared set, of sorted indices, or of a mask, if the argument is one.
pub fn numbers_of(params: &Bound<'_, PyParameters>, what: &Bound<'_, PyAny>) -> PyResult<Option<Vec<Range<u32>>>> {
    if let Ok(subset) = what.cast::<PySubset>() {
        subset.get().check_owner(params)?;
        return Ok(Some(subset.get().set.ranges().to_vec()));
    }
    listed(params.len()?, "parameters", what)
}

fn unknown(what: &Bound<'_, PyAny>) -> PyErr {
    PyTypeError::new_err(format!(
        "wanted must be names, Tensors, layers, ranges, pairs (start, stop), sorted indices, a mask of bools, or a Subset, found {}",
        type_name(what)
    ))
}

/// The range of a name, a Tensor, a range or a pair, if the argument is one.
fn range_of(params: &Bound<'_, PyParameters>, what: &Bound<'_, PyAny>) -> PyResult<Option<Range<u32>>> {
    if let Ok(tensor) = what.cast::<PyTensor>() {
        if !tensor.get().owner().is(params) {
            return Err(PyValueError::new_err("wanted names a Tensor of other Parameters"));
        }
        let range = tensor.get().slice().range();
        return Ok(Some(range.start as u32..range.end as u32));
    }
    if let Some(range) = range_in(params.len()?, what)? {
        return Ok(Some(range));
    }
    if !(what.is_instance_of::<PyString>() || what.is_instance_of::<PyTuple>()) {
        return Ok(None);
    }
    let slice = params.get().place_of(what)?;
    Ok(slice.map(|slice| slice.range()).map(|range| range.start as u32..range.end as u32))
}

#[pymethods]
impl PySubset {
    fn __len__(&self) -> usize {
        self.set.len()
    }

    /// The positions of its parameters in the flat arrays, ascending: a NumPy array of integers.
    #[getter]
    fn indices<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let indices: Vec<i64> = self.set.ranges().iter().cloned().flatten().map(i64::from).collect();
        of_integers(py, &[indices.len()], &indices)
    }

    /// The owner of its numbers.
    #[getter]
    fn params(&self, py: Python<'_>) -> Py<PyParameters> {
        self.params.clone_ref(py)
    }

    /// The same numbers of the copied Parameters.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let subset = py.get_type::<PyParameters>().getattr("subset")?;
        let arguments = (&self.params, self.indices(py)?).into_pyobject(py)?;
        PyTuple::new(py, [subset, arguments.into_any()])
    }

    fn __repr__(&self) -> String {
        format!("<Subset of {} parameters in {} ranges>", self.set.len(), self.set.ranges().len())
    }
}

#[pymethods]
impl PyParameters {
    /// Prepare a set of parameters for partial gradients.
    ///
    /// Args:
    ///     wanted: the name of a tensor, a Tensor, a layer or model, a `range`, a pair (start, stop), or a list of these; ascending indices
    ///         into the flat arrays (a list or an integer array); or a mask with one bool per parameter.
    ///
    /// The set may be empty. Costs a pass over the argument. Raises KeyError, IndexError, ValueError or TypeError for other
    /// arguments.
    fn subset<'py>(slf: &Bound<'py, Self>, wanted: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PySubset>> {
        PySubset::of(slf, wanted)
    }
}
