//! Operands of operations on Arrays: Arrays, numbers, arrays of numbers, Parameters and their tensors.
//!
//! Promises: an array's numbers are copied once while they do not change. Reads no numbers of Arrays. Knows no operation.

use std::cell::RefCell;
use std::ops::Range;

use burtorch_core::DType;
use burtorch_core::array::{ArrayOp, Data, Dims, Element, Shared, ValueId};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt, PyList, PySlice, PyTuple};

use super::array::PyArray;
use super::trace::{ArrayTrace, Known, Recording, current, want_dtype};
use crate::convert::arrays::{Array, Kind};
use crate::convert::buffer::type_name;
use crate::convert::errors::{IntoPython, if_any};
use crate::convert::numbers::{as_numpy, has_dtype, number_of};
use crate::convert::refusals::{is_tracing, meet_values, needs_arrays};
use crate::params::{PyParameter, PyParameters, PyTensor};

/// An operand of an operation.
pub enum Operand<'py> {
    /// An Array of some trace.
    Array(Bound<'py, PyArray>),
    /// A number, and whether it is an integer that keeps integers integers.
    Number(f64, Option<i64>),
    /// An array of numbers, and its object.
    Data(Dims, Data, Bound<'py, PyAny>),
    /// Part of Parameters, by reference.
    Param(Py<PyParameters>, usize, Dims),
}

/// The numbers of a Python array, in the type of a program of this float type.
pub fn data_of(array: &Array, is_mask: bool, dtype: DType) -> PyResult<Data> {
    Ok(match array.kind {
        Kind::Unsigned(1) if is_mask => Data::Mask(array.floats().iter().map(|&x| x != 0.0).collect()),
        Kind::Signed(_) | Kind::Unsigned(_) => Data::Int(array.integers()?),
        _ if dtype == DType::Float32 => Data::F32(array.floats().iter().map(|&x| x as f32).collect()),
        _ => Data::F64(array.floats()),
    })
}

/// Whether this is a tensor of Parameters or one of their numbers.
pub(super) fn is_read(x: &Bound<'_, PyAny>) -> bool {
    x.is_instance_of::<PyTensor>() || x.is_instance_of::<PyParameter>()
}

/// Whether an object's dtype is bool.
pub(super) fn is_mask(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let dtype = object.getattr(pyo3::intern!(object.py(), "dtype"))?;
    dtype.getattr(pyo3::intern!(object.py(), "kind"))?.eq("b")
}

/// Lists within lists that are looked at.
const DEEPEST: usize = 32;

/// A list or tuple of plain numbers, or of rows of them, as an array of its shape; any other object unchanged.
pub fn listed<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let mut first = object.clone();
    for _ in 0..=DEEPEST {
        let next = match (first.cast_exact::<PyList>(), first.cast_exact::<PyTuple>()) {
            (Ok(list), _) => list.iter().next(),
            (_, Ok(tuple)) => tuple.iter().next(),
            _ => break,
        };
        let Some(next) = next else { return Ok(object.clone()) };
        first = next;
    }
    if first.is(object) || !(number_of(&first)?.is_some() || has_dtype(&first)?) {
        return Ok(object.clone());
    }
    let array = py.import("numpy").and_then(|numpy| numpy.call_method1("asarray", (object,)));
    match if_any(py, array)? {
        Some(array) if Array::of(&array).is_some() => Ok(array),
        _ => Ok(object.clone()),
    }
}

/// Numbers of Parameters, and the Array that stands for them.
type InPlace = (Py<PyParameters>, Range<usize>, Py<PyArray>);

thread_local! {
    /// While a model is called with other numbers; the last one counts.
    static GIVEN: RefCell<Vec<InPlace>> = const { RefCell::new(Vec::new()) };
}

/// The range of numbers that contains a tensor and that an Array stands for, and the Array.
fn given<'py>(tensor: &Bound<'py, PyTensor>) -> Option<(Range<usize>, Py<PyArray>)> {
    let (py, owner) = (tensor.py(), tensor.get().owner());
    GIVEN.with_borrow(|all| {
        let range = all.first().map(|_| tensor.get().slice().range())?;
        let holds = |of: &Range<usize>| of.start <= range.start && range.end <= of.end;
        let found = all.iter().rev().find(|(params, of, _)| params.is(owner) && holds(of))?;
        Some((found.1.clone(), found.2.clone_ref(py)))
    })
}

/// The Array that stands for a tensor or for more, if the object is one with such an Array.
pub(super) fn given_for<'py>(object: &Bound<'py, PyAny>) -> Option<Bound<'py, PyArray>> {
    let (_, array) = given(object.cast::<PyTensor>().ok()?)?;
    Some(array.into_bound(object.py()))
}

/// The Array, or its part, that stands for a tensor.
fn in_place_of<'py>(tensor: &Bound<'py, PyTensor>) -> PyResult<Option<Bound<'py, PyArray>>> {
    let (py, range) = (tensor.py(), tensor.get().slice().range());
    let Some((of, array)) = given(tensor) else { return Ok(None) };
    if of == range {
        return Ok(Some(array.into_bound(py)));
    }
    let flat = array.bind(py).call_method1("reshape", (-1,))?;
    let part =
        flat.get_item(PySlice::new(py, (range.start - of.start) as isize, (range.end - of.start) as isize, 1))?;
    let shape: Vec<_> = tensor.get().tensor().shape().dims().to_vec();
    Ok(Some(part.call_method1("reshape", (shape,))?.cast_into()?))
}

/// Whether a function is being traced with Arrays; a trace with Values is repeated with them, because of `what` if there is one.
#[pyfunction]
#[pyo3(signature = (what=None))]
pub fn array_is_traced(py: Python<'_>, what: Option<&str>) -> PyResult<bool> {
    match (current(py), what) {
        (None, Some(what)) if is_tracing() => Err(needs_arrays(py, what)),
        (found, _) => Ok(found.is_some()),
    }
}

/// Calls a function in which Arrays of a trace stand for tensors of the same shapes.
#[pyfunction]
pub fn array_in_place_of<'py>(
    tensors: Vec<Bound<'py, PyTensor>>,
    arrays: Vec<Bound<'py, PyArray>>,
    function: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    /// Takes the entries back, whatever happens.
    struct Given(usize);
    impl Drop for Given {
        fn drop(&mut self) {
            let take = |all: &RefCell<Vec<_>>| {
                let mut all = all.try_borrow_mut().ok()?;
                let first = self.0.min(all.len());
                Some(all.split_off(first))
            };
            // Dropped after the list is free again: that may run Python code.
            drop(GIVEN.try_with(take));
        }
    }
    let py = function.py();
    let _given = Given(GIVEN.with_borrow(Vec::len));
    for (tensor, array) in tensors.iter().zip(&arrays) {
        let found = (tensor.get().owner().clone_ref(py), tensor.get().slice().range(), array.clone().unbind());
        GIVEN.with_borrow_mut(|all| all.push(found));
    }
    function.call0()
}

impl<'py> Operand<'py> {
    /// The operand of an object; `None` if operations do not support it. `dtype` is that of the program.
    pub fn of(object: &Bound<'py, PyAny>, dtype: DType) -> PyResult<Option<Self>> {
        let py = object.py();
        if let Ok(array) = object.cast::<PyArray>() {
            return Ok(Some(Operand::Array(array.clone())));
        }
        if let Ok(tensor) = object.cast::<PyTensor>() {
            if let Some(array) = in_place_of(tensor)? {
                return Ok(Some(Operand::Array(array)));
            }
            let tensor = tensor.get();
            let extents: Vec<usize> = tensor.tensor().shape().dims().iter().map(|&n| n as usize).collect();
            let dims = Dims::new(&extents).or_raise(py)?;
            return Ok(Some(Operand::Param(tensor.owner().clone_ref(py), tensor.slice().range().start, dims)));
        }
        if let Ok(number) = object.cast::<PyParameter>() {
            return Ok(Some(match current(py) {
                Some(trace) => Operand::Array(trace.get().number(&trace, number)?),
                None => Operand::Number(number.get().number(), None),
            }));
        }
        if let Ok(params) = object.cast::<PyParameters>() {
            let n = params.get().all(py)?.len();
            return Ok(Some(Operand::Param(params.clone().unbind(), 0, Dims::new(&[n]).or_raise(py)?)));
        }
        if let Some(x) = number_of(object)? {
            let is_whole = match object.is_instance_of::<PyInt>() || object.is_instance_of::<PyFloat>() {
                true => object.is_instance_of::<PyInt>(),
                false if is_bool(object)? => {
                    return Ok(Some(Operand::Data(Dims::SCALAR, Data::Mask(vec![x != 0.0]), object.clone())));
                }
                false => is_integer(object)?,
            };
            let whole = if is_whole { if_any(py, object.extract())? } else { None };
            return Ok(Some(Operand::Number(x, whole)));
        }
        if !has_dtype(object)? {
            return Ok(None);
        }
        let object = &as_numpy(object)?;
        let Some(array) = if_any(py, Array::converted(object))? else { return Ok(None) };
        let dims = Dims::new(array.shape()).or_raise(py)?;
        Ok(Some(Operand::Data(dims, data_of(&array, is_mask(object)?, dtype)?, object.clone())))
    }

    /// The Array, if it is one.
    pub fn array(&self) -> Option<&Bound<'py, PyArray>> {
        match self {
            Operand::Array(array) => Some(array),
            _ => None,
        }
    }

    /// Its value in `trace`, whose content is `recording`. `with_integers` if all Arrays beside it contain integers.
    pub(super) fn value(
        self,
        py: Python<'py>,
        trace: &Bound<'py, ArrayTrace>,
        recording: &mut Recording,
        with_integers: bool,
    ) -> PyResult<ValueId> {
        let b = &mut recording.builder;
        match self {
            Operand::Array(array) if array.get().trace(py).is(trace) => array.get().value(py),
            Operand::Array(array) => recording.capture(py, &array),
            Operand::Number(_, Some(k)) if with_integers => b.push(ArrayOp::Integer(k), &[]).or_raise(py),
            Operand::Number(x, _) => b.literal(x).or_raise(py),
            Operand::Data(dims, data, object) => recording.constant(py, dims, data, object),
            Operand::Param(params, start, dims) => {
                check_dtype(&params, trace.get().dtype())?;
                let set = trace.get().set(py, &params)?;
                recording.param(py, set, start, dims)
            }
        }
    }
}

/// A TypeError with advice if one of these is a Value or a Vector, which operations on Arrays do not support.
pub(super) fn refuse_values(operands: &[Bound<'_, PyAny>]) -> PyResult<()> {
    let found = operands.iter().map(type_name).find(|name| matches!(name.as_str(), "Value" | "Vector"));
    let Some(found) = found else { return Ok(()) };
    meet_values();
    Err(PyTypeError::new_err(format!(
        "a {found} does not mix with Arrays of another graph, nor with those of a function that is being traced; use \
         bt.array(v), an Array with its gradient, made before the call, or v.data, the numbers without a gradient"
    )))
}

/// Whether a number is a NumPy bool.
pub(super) fn is_bool(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(has_dtype(object)? && is_mask(object)?)
}

pub(super) fn is_integer(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let kind = object.getattr(pyo3::intern!(object.py(), "dtype"))?.getattr(pyo3::intern!(object.py(), "kind"))?;
    Ok(kind.eq("i")? || kind.eq("u")?)
}

/// Refuses Parameters of another dtype.
pub(super) fn check_dtype(params: &Py<PyParameters>, dtype: DType) -> PyResult<()> {
    let found = params.get().dtype_of();
    if found == dtype {
        return Ok(());
    }
    if matches!(found, DType::Float32 | DType::Float64) {
        want_dtype(found);
    }
    let (found, dtype) = (found.name(), dtype.name());
    Err(PyTypeError::new_err(format!(
        "a function of {dtype} reads Parameters of {found}; give bt.function dtype={found:?}, or make Parameters of {dtype}"
    )))
}

impl Recording {
    /// The argument that represents an Array of an outer trace.
    fn capture(&mut self, py: Python<'_>, array: &Bound<'_, PyArray>) -> PyResult<ValueId> {
        if let Some((value, _)) = self.captures.iter().find(|(_, other)| other.get().is_same(array)) {
            return Ok(*value);
        }
        let ty = array.get().type_of();
        let value = self.builder.input(&ty.dims, ty.element).or_raise(py)?;
        self.captures.push((value, array.clone().unbind()));
        Ok(value)
    }

    fn constant(&mut self, py: Python<'_>, dims: Dims, data: Data, object: Bound<'_, PyAny>) -> PyResult<ValueId> {
        let is_same = |known: &&Known| known.object.is(&object) && known.dims == dims && *known.data.0 == data;
        if let Some(known) = self.known.iter().find(is_same) {
            return Ok(known.value);
        }
        let data = Shared(std::sync::Arc::new(data));
        let value = self.builder.push(ArrayOp::Const(dims, data.clone()), &[]).or_raise(py)?;
        self.known.push(Known { object: object.unbind(), dims, data, value });
        Ok(value)
    }

    fn param(&mut self, py: Python<'_>, set: u32, start: usize, dims: Dims) -> PyResult<ValueId> {
        let key = (set, start, dims);
        if let Some((_, value)) = self.params.iter().find(|(known, _)| *known == key) {
            return Ok(*value);
        }
        let value = self.builder.param(set, start, &dims).or_raise(py)?;
        self.params.push((key, value));
        Ok(value)
    }
}

/// Whether all Arrays among the operands contain integers or masks.
pub(super) fn are_integers(operands: &[Operand<'_>]) -> bool {
    let mut arrays = operands.iter().filter_map(Operand::array);
    arrays.all(|array| array.get().type_of().element != Element::Float)
}
