//! `concat` and `stack`.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use super::arguments::{Operand, all_runs, atomically, common_owner};
use super::elementwise::is_many;
use super::plain::{are_plain, or_plain};
use super::{PyVector, numpy};
use crate::array::array::PyArray;
use crate::array::functions::{self, any_array};
use crate::convert::refusals::{is_tracing, needs_arrays};
use crate::node::tensor_items::shaped;

/// Join Vectors, Values and numbers without copying: concat(x, y) or concat([x, y]).
///
/// Args:
///     parts: Vectors, Values, real numbers (which become constants) or sequences of them. For plain
///         numbers, the result is an array.
///
/// Returns:
///     A Vector of the nodes of its parts. Linear in the number of parts.
///
/// Raises:
///     TypeError: a part of another type.
///     GraphMismatchError: parts belong to different graphs.
///
/// Example:
///     >>> import burtorch as bt
///     >>> x, y = bt.current_graph().vector([1.0, 2.0]), bt.Value(3.0)
///     >>> z = bt.concat(x, y)
///     >>> z.sum().backward()
///     >>> list(z.data), y.grad
///     ([1.0, 2.0, 3.0], 1.0)
#[pyfunction]
#[pyo3(signature = (*parts))]
pub fn concat<'py>(parts: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let py = parts.py();
    let all = elements(parts)?;
    let all = all.iter().map(shaped).collect::<PyResult<Vec<_>>>()?;
    if any_array(&all) {
        return functions::array_concatenate(all, 0).map(Bound::into_any);
    }
    if !all.is_empty() && are_plain(all.iter().cloned(), 0)? {
        let numpy = py.import("numpy")?;
        let parts = all.iter().map(|x| numpy.call_method1("atleast_1d", (x,))).collect::<PyResult<Vec<_>>>()?;
        return numpy.call_method1("concatenate", (parts,));
    }
    or_plain(py, &parts.iter().collect::<Vec<_>>(), false, |x| join(py, &operands_of(x)?))
}

/// Arguments given one by one or as one list or tuple.
fn elements<'py>(given: &Bound<'py, PyTuple>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let first = given.iter().next();
    let sequence =
        first.filter(|x| given.len() == 1 && (x.is_instance_of::<PyList>() || x.is_instance_of::<PyTuple>()));
    match sequence {
        Some(sequence) => sequence.try_iter()?.collect(),
        None => Ok(given.iter().collect()),
    }
}

/// The operands of a function that takes them one by one or as one sequence.
fn operands_of(parts: &[Bound<'_, PyAny>]) -> PyResult<Vec<Operand>> {
    let parts = parts.iter().map(Operand::read_all).collect::<PyResult<Vec<_>>>()?;
    Ok(parts.into_iter().flatten().collect())
}

fn join<'py>(py: Python<'py>, operands: &[Operand]) -> PyResult<Bound<'py, PyAny>> {
    let owner = common_owner(py, operands)?;
    let ranges = atomically(&owner, |cell| all_runs(py, cell, operands))?;
    ranges.made(|ranges| Ok(PyVector::of_runs(&owner, &ranges)?.into_bound(py).into_any()))
}

/// Join Values and numbers to a Vector without copying: stack(a, b) or stack([a, b]).
///
/// Args:
///     values: Values and real numbers (which become constants), or one sequence of them. For plain numbers, an array; for
///         plain arrays, the result of numpy.stack.
///     axis: for arrays, where their new axis is.
///
/// Returns:
///     A Vector of these nodes. Linear in their number. Of Vectors, Tensors, lists and Arrays, an Array of their rows.
///
/// Raises:
///     TypeError: one of them has another type.
///     ValueError: rows of several lengths.
///     GraphMismatchError: they belong to different graphs.
///
/// Example:
///     >>> import burtorch as bt
///     >>> a, b = bt.Value(3.0), bt.Value(4.0)
///     >>> length = bt.stack(a, b).norm2()
///     >>> length.backward()
///     >>> length.data, a.grad, b.grad
///     (5.0, 0.6, 0.8)
#[pyfunction]
#[pyo3(signature = (*values, axis=0))]
pub fn stack<'py>(values: &Bound<'py, PyTuple>, axis: isize) -> PyResult<Bound<'py, PyAny>> {
    let py = values.py();
    let mut values = elements(values)?;
    if let [one] = &values[..]
        && (numpy::is_array(one) || one.is_instance_of::<PyArray>())
    {
        values = one.try_iter()?.collect::<PyResult<_>>()?;
    }
    if any_array(&values) {
        return functions::array_stack(values, axis).map(Bound::into_any);
    }
    let are_rows = |x: &Bound<'_, PyAny>| {
        numpy::is_array(x) || is_many(x) || x.is_instance_of::<PyList>() || x.is_instance_of::<PyTuple>()
    };
    if values.iter().any(are_rows) {
        return match are_plain(values.iter().cloned(), 0)? {
            true => py.import("numpy")?.call_method1("stack", (values, axis)),
            false if is_tracing() => Err(needs_arrays(py, "stack() of Vectors")),
            false => functions::array_stack(values, axis).map(Bound::into_any),
        };
    }
    if axis != 0 {
        return Err(PyTypeError::new_err("stack() takes axis= for arrays only"));
    }
    or_plain(py, &values, false, |x| join(py, &operands_of(x)?))
}
