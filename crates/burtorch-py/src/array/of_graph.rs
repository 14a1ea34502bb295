//! Features of Arrays of a graph: numbers, gradients, backward passes, and creation.
//!
//! Promises: numbers are copied; a traced Array is a `TraceError`. Does not know how operations are evaluated.

use burtorch_core::array::{Data, Dims, Element, Handle};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyList, PyTuple};

use super::array::PyArray;
use super::eager::{current_graph, floats, home_of};
use super::functions::array_stack;
use super::graph_values::{is_of_values, lifted};
use super::guard;
use super::methods::of;
use super::numpy::NO_NUMBERS;
use super::operands::{Operand, is_read, listed, refuse_values};
use super::trace::{self, Eager};
use crate::convert::arrays::{Array, Kind, copied, of_integers};
use crate::convert::buffer::type_name;
use crate::convert::errors::{IntoPython, numpy};
use crate::convert::numbers::{as_numpy, has_dtype};
use crate::convert::refusals::{error_here, is_tracing, needs_arrays, refuse_reading};
use crate::convert::stop::{PyStop, until, watched};
use crate::graph::{PyGraph, wants_no_grad};

/// An Array of a graph, and its owner.
fn eager<'a>(array: &'a Bound<'_, PyArray>, what: &str) -> PyResult<(&'a Eager, &'a Handle)> {
    let py = array.py();
    match (array.get().trace(py).get().eager(), array.get().handle()) {
        (Some(eager), Some(handle)) => {
            eager.check(py, handle)?;
            refuse_reading(what)?;
            Ok((eager, handle))
        }
        _ => Err(error_here(py, NO_NUMBERS)),
    }
}

/// Whether the only number of an Array of a graph is not 0.
pub(super) fn numbers_hold(array: &Bound<'_, PyArray>) -> bool {
    array.get().handle().is_some_and(|handle| match &*handle.data() {
        Data::F64(x) => x.iter().any(|&x| x != 0.0),
        Data::F32(x) => x.iter().any(|&x| x != 0.0),
        Data::Int(x) => x.iter().any(|&x| x != 0),
        Data::Mask(x) => x.contains(&true),
    })
}

/// As an array of NumPy.
pub(super) fn to_numpy<'py>(py: Python<'py>, data: &Data, dims: &Dims) -> PyResult<Bound<'py, PyAny>> {
    if dims.rank() == 0 {
        let one = Dims::new(&[1]).or_raise(py)?;
        return to_numpy(py, data, &one)?.call_method1("reshape", (PyTuple::empty(py),));
    }
    match data {
        Data::F64(x) => copied(py, dims, Kind::F64, x),
        Data::F32(x) => copied(py, dims, Kind::F32, x),
        Data::Int(x) => of_integers(py, dims, x),
        Data::Mask(x) => {
            let integers: Vec<_> = x.iter().map(|&x| i64::from(x)).collect();
            of_integers(py, dims, &integers)?.call_method1("astype", ("bool",))
        }
    }
}

/// A number if there are no axes.
fn number_or_array<'py>(numbers: Bound<'py, PyAny>, dims: &Dims) -> PyResult<Bound<'py, PyAny>> {
    if dims.rank() == 0 { numbers.call_method0("item") } else { Ok(numbers) }
}

/// A copy of the numbers of an Array of a graph, or of integers or a mask in a trace that runs once, as an array of NumPy.
pub(super) fn numbers_of<'py>(array: &Bound<'py, PyArray>) -> PyResult<Bound<'py, PyAny>> {
    if let Some(numbers) = guard::known_once(array)? {
        return Ok(numbers);
    }
    let (_, handle) = eager(array, ".data of an Array")?;
    to_numpy(array.py(), &handle.data(), &handle.type_of().dims)
}

/// Floats for an Array of this shape: of that shape, or one number for all elements if that is allowed.
fn floats_for(array: &Bound<'_, PyArray>, object: &Bound<'_, PyAny>, spread: bool) -> PyResult<Data> {
    let (dims, dtype) = (array.get().type_of().dims, array.get().trace(array.py()).get().dtype());
    let found = match Operand::of(&without_lists(object)?, dtype)? {
        Some(Operand::Number(x, _)) if spread || dims.size() == 1 => {
            return Ok(floats(vec![x; dims.size()], dtype));
        }
        Some(Operand::Number(..)) => Dims::SCALAR,
        Some(Operand::Data(found, data, _)) if found == dims => match data {
            Data::Int(x) => return Ok(floats(x.into_iter().map(|k| k as f64).collect(), dtype)),
            Data::Mask(x) => return Ok(floats(x.into_iter().map(|x| f64::from(u8::from(x))).collect(), dtype)),
            data => return Ok(data),
        },
        Some(Operand::Data(found, ..)) => found,
        _ => {
            let message = format!("expected a number or an array of numbers, found {}", type_name(object));
            return Err(PyTypeError::new_err(message));
        }
    };
    Err(PyValueError::new_err(format!("expected an array of shape {dims}, found one of shape {found}")))
}

#[pymethods]
impl PyArray {
    /// The numbers of an Array of a graph: a copy, or a Python number if there are no axes.
    ///
    /// Assigning replaces them; numbers computed from them before do not change. A TraceError for a traced Array.
    #[getter]
    fn data<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        number_or_array(numbers_of(slf)?, &slf.get().type_of().dims)
    }

    #[setter]
    fn set_data(slf: &Bound<'_, Self>, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let (eager, handle) = eager(slf, ".data of an Array")?;
        if slf.get().type_of().element != Element::Float {
            return Err(PyTypeError::new_err(".data of an Array of integers or of a mask cannot be assigned"));
        }
        let data = floats_for(slf, data, false)?;
        let _in_use = eager.alone(slf.py())?;
        eager.tape.set_data(handle, data);
        Ok(())
    }

    /// The gradient, with the shape of the Array: for an input, the sum over all backward passes; for a result, the gradient of
    /// the last pass, 0 if it was not reached. The gradient of an input can be assigned.
    #[getter]
    fn grad<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let (eager, handle) = eager(slf, ".grad of an Array")?;
        let grad = eager.tape.grad(handle).or_raise(slf.py())?;
        let dims = handle.type_of().dims;
        number_or_array(to_numpy(slf.py(), &grad, &dims)?, &dims)
    }

    #[setter]
    fn set_grad(slf: &Bound<'_, Self>, grad: &Bound<'_, PyAny>) -> PyResult<()> {
        let (eager, handle) = eager(slf, ".grad of an Array")?;
        if !handle.is_leaf() {
            return Err(PyTypeError::new_err(
                "only the gradient of an Array that graph.array() made from floats can be assigned",
            ));
        }
        let grad = floats_for(slf, grad, true)?;
        let _in_use = eager.alone(slf.py())?;
        eager.tape.set_grad(handle, Some(grad));
        Ok(())
    }

    /// Add to the gradients of the Arrays and Parameters that this one depends on.
    ///
    /// Args:
    ///     seed: the adjoint of this Array, of its shape; 1 for an Array of one number.
    ///
    /// Raises:
    ///     ValueError: seed has another shape, or is missing for several numbers.
    ///     StaleValueError: the Array was removed by a rewind.
    ///     TraceError: a traced Array has no numbers; use bt.grad.
    ///
    /// An interrupted pass adds nothing; nor does one that `stop` (a Stop) or `deadline` (seconds from now) ends early, which is a
    /// StoppedError.
    ///
    /// Example:
    ///     >>> import burtorch as bt
    ///     >>> x = bt.array([[1.0, 2.0], [3.0, 4.0]])
    ///     >>> (x @ x).sum().backward()
    ///     >>> x.grad
    ///     array([[ 7., 11.],
    ///            [ 9., 13.]])
    #[pyo3(signature = (seed=None, *, stop=None, deadline=None))]
    fn backward(
        slf: &Bound<'_, Self>,
        seed: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyStop>>,
        deadline: Option<f64>,
    ) -> PyResult<()> {
        let (py, stop) = (slf.py(), watched(stop, deadline)?);
        let (eager, handle) = eager(slf, "backward()")?;
        let dims = handle.type_of().dims;
        if handle.type_of().element != Element::Float {
            return Err(PyTypeError::new_err("backward() needs an Array of floats"));
        }
        let seed = match seed {
            Some(seed) => floats_for(slf, seed, false)?,
            None if dims.size() == 1 => floats(vec![1.0], eager.tape.dtype()),
            None => {
                let message = format!(
                    "backward() of an Array of shape {dims} needs seed=, an array of that shape; or reduce it, as x.sum() does"
                );
                return Err(PyValueError::new_err(message));
            }
        };
        if !handle.moves() {
            return Ok(());
        }
        until(py, stop, || eager.backward(py, handle, seed))
    }
}

#[pymethods]
impl PyGraph {
    /// An Array of this graph from numbers, nested lists of them, a NumPy array, an array of another library that supports
    /// DLPack, such as PyTorch's, or a tensor of Parameters, with the same shape.
    ///
    /// Operations on it are evaluated at once. Floats have gradients, those of a tensor go to its Parameters; integers and
    /// masks have none. It lives while an object refers to it or to a result that depends on it; rewind() and clear() make it
    /// stale.
    ///
    /// Raises:
    ///     TypeError: no numbers, or a graph that is fixed or whose dtype is neither float64 nor float32.
    ///
    /// Example:
    ///     >>> import burtorch as bt
    ///     >>> graph = bt.Graph()
    ///     >>> x = graph.array([1.0, 2.0])
    ///     >>> y = (x * x).sum()
    ///     >>> y.backward()
    ///     >>> y.data, x.grad
    ///     (5.0, array([2., 4.]))
    fn array<'py>(slf: &Bound<'py, Self>, data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArray>> {
        let py = slf.py();
        slf.get().not_traced(py, "array()")?;
        let home = home_of(slf)?;
        let Some(eager) = home.get().eager() else { return Err(error_here(py, NO_NUMBERS)) };
        let dtype = eager.tape.dtype();
        let plain = without_lists(data)?;
        let read = Operand::of(&plain, dtype)?;
        let records = eager.tape.records() && !wants_no_grad();
        let made = match read {
            Some(Operand::Number(x, _)) if data.is_instance_of::<PyBool>() => {
                eager.tape.leaf(Dims::SCALAR, Data::Mask(vec![x != 0.0]), records)
            }
            Some(Operand::Number(x, _)) => eager.tape.leaf(Dims::SCALAR, floats(vec![x], dtype), records),
            Some(Operand::Data(dims, numbers, _)) => eager.tape.leaf(dims, numbers, records),
            Some(operand) => {
                let made = eager.append(&home, vec![operand], &mut |_, of| Ok(of.to_vec()))?.pop();
                return made.ok_or_else(|| error_here(py, NO_NUMBERS));
            }
            None => {
                if let Some(array) = lifted(&home, data)? {
                    return Ok(array);
                }
                refuse_values(std::slice::from_ref(data))?;
                if has_dtype(&plain)? {
                    Array::converted(&plain)?;
                }
                let message = format!("expected numbers or an array of them, found {}", type_name(data));
                return Err(PyTypeError::new_err(message));
            }
        };
        PyArray::of_graph(&home, made.or_raise(py)?)
    }
}

fn is_list(data: &Bound<'_, PyAny>) -> bool {
    data.is_instance_of::<PyList>() || data.is_instance_of::<PyTuple>()
}

/// Lists nested deeper than this are left to NumPy, which refuses them.
const DEEPEST: usize = 64;

/// Whether a nested list contains such an object.
fn contains(data: &Bound<'_, PyAny>, depth: usize, is_one: &dyn Fn(&Bound<'_, PyAny>) -> bool) -> PyResult<bool> {
    if !is_list(data) || depth > DEEPEST {
        return Ok(is_one(data));
    }
    for item in data.try_iter()? {
        if contains(&item?, depth + 1, is_one)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_array(x: &Bound<'_, PyAny>) -> bool {
    x.is_instance_of::<PyArray>()
}

/// Whether a nested list contains Arrays, Values or numbers of Parameters.
fn holds_arrays(data: &Bound<'_, PyAny>) -> PyResult<bool> {
    contains(data, 0, &|x| is_array(x) || is_read(x) || is_of_values(x))
}

/// Whether an object is a list or tuple that contains such, at any depth.
pub fn of_lists(data: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(is_list(data) && holds_arrays(data)?)
}

/// A list or tuple as an array, or as an Array if it contains some; other objects unchanged. For functions, as lists take no operators.
pub fn without_rows<'py>(x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if of_lists(x)? { stacked(x) } else { listed(x) }
}

/// A list or tuple that begins with an Array, or, if it has rows, with any number that has a gradient: as one Array.
pub fn with_rows<'py>(x: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    if !is_list(x) {
        return Ok(None);
    }
    let Some(first) = x.try_iter()?.next().transpose()? else { return Ok(None) };
    let has_rows = is_array(&first) || is_list(&first) && holds_arrays(x)?;
    if has_rows { without_rows(x).map(Some) } else { Ok(None) }
}

/// A nested list that contains Arrays as one Array, with their gradients.
pub fn stacked<'py>(data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let parts =
        data.try_iter()?.map(|item| item.and_then(|item| if is_list(&item) { stacked(&item) } else { Ok(item) }));
    let parts = parts.collect::<PyResult<Vec<_>>>()?;
    Ok(array_stack(parts, 0)?.into_any())
}

/// Lists, tuples, buffers and arrays of other libraries as a NumPy array, or as an Array if they contain Arrays.
fn without_lists<'py>(data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if of_lists(data)? {
        return stacked(data);
    }
    let is_list = is_list(data);
    let has_dtype = !data.is_instance_of::<PyArray>() && has_dtype(data)?;
    if has_dtype {
        return as_numpy(data);
    }
    let is_other = data.is_instance_of::<PyBytes>() || data.is_instance_of::<PyArray>();
    if is_list || !is_other && Array::of(data).is_some_and(|array| !array.shape().is_empty()) {
        return numpy(data.py())?.call_method1("asarray", (data,));
    }
    Ok(data.clone())
}

/// The Array that an object is, or the one that a list with Arrays in it makes; during a trace with Arrays, numbers as well, as what
/// they are combined with may change. None for other objects.
pub fn array_among<'py>(x: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    if is_array(x) {
        return Ok(Some(x.clone()));
    }
    if trace::current(x.py()).is_some() || contains(x, 0, &is_array)? {
        return Ok(Some(of(&without_lists(x)?, |_, x| Ok(x))?.into_any()));
    }
    Ok(None)
}

/// An Array of the current graph: the same as current_graph().array(data). In a function traced with Arrays, an Array of the trace.
///
/// Example:
///     >>> import burtorch as bt
///     >>> with bt.Graph():
///     ...     x = bt.array([[1.0, 2.0], [3.0, 4.0]])
///     >>> (x.T + 1).data
///     array([[2., 4.],
///            [3., 5.]])
#[pyfunction]
fn array<'py>(py: Python<'py>, data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArray>> {
    if trace::current(py).is_some() {
        return of(&without_lists(data)?, |_, x| Ok(x));
    }
    if is_tracing() {
        return Err(needs_arrays(py, "array()"));
    }
    PyGraph::array(&current_graph(py)?, data)
}

/// Adds the function to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(array, m)?)
}
