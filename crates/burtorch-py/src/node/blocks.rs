//! Block ops as Python functions: dense layers, rows of tables and softmax cross-entropy over Vectors.
//!
//! Promises: each is one block of the graph whatever its size; an error leaves the graph unchanged. Numbers are computed in
//! the core.

use burtorch_core::nn::Activation;
use burtorch_core::{Range, Tensor, View};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::array::{self, functions::any_array, functions::evaluated_on_numbers};
use crate::convert::arguments::activation_named;
use crate::convert::errors::{IntoPython, if_any, numpy};
use crate::graph::cell::{AnyGraph, Cell};
use crate::graph::parameters::{attach, with_values};
use crate::graph::{PyGraph, current_graph};
use crate::node::token_ids::token_ids_for;
use crate::node::vector::tokens::check_inputs;
use crate::node::vector::{Operand, PyVector, all_views, appended, atomically, common_owner, n_scalars, read_by, wrap};
use crate::params::{PyParameters, PyTensor};

/// Rows of a matrix of parameters, concatenated: embeddings.
///
/// Args:
///     table: a tensor of shape (rows, width), an Array or an array.
///     rows: an Array of integers, and then the result is an Array; an array of them beside an array; or TokenIds, an int, or a sequence of ints; on a graph of lanes TokenIds give each lane its own rows.
///
/// Returns a Vector of `len(rows) * width` scalars, one block on the current graph. Costs a copy; the backward pass touches only
/// these rows.
///
/// Raises:
///     IndexError: a row index is out of range.
///     ValueError: no rows. TypeError: a graph whose dtype differs from the parameters', or is neither float32 nor float64.
///
/// Example:
///     >>> import burtorch as bt
///     >>> table = bt.Parameters(dtype="float64").tensor((3, 2), init=1.0)
///     >>> x = bt.gather(table, [2, 0, 2])
///     >>> x.sum().backward()
///     >>> len(x), list(table.grads)
///     (6, [1.0, 1.0, 0.0, 0.0, 2.0, 2.0])
#[pyfunction(name = "gather")]
fn gather_function<'py>(table: &Bound<'py, PyAny>, rows: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if any_array(&[table.clone(), rows.clone()]) {
        return array::functions::gather(table, rows);
    }
    if let Some(found) = evaluated_on_numbers(&[table, rows], |of| array::functions::gather(&of[0], &of[1]))? {
        return Ok(found);
    }
    gather(table.cast()?, rows)
}

/// The same for a table of parameters on a graph.
pub fn gather<'py>(table: &Bound<'py, PyTensor>, rows: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = rows.py();
    let owner = current_graph(py)?.into_bound(py).cast_into::<PyGraph>()?;
    let indices = token_ids_for(&owner, rows, "rows")?;
    let tensor: Tensor = table.get().tensor();
    let range = appended(
        &owner,
        indices.len(),
        |cell| {
            cell.need_kernels("gather")?;
            attach(py, cell, [table.get().owner()])
        },
        |graph, parameters, ()| {
            with_values(py, parameters, |given| graph.blocks()?.gather(given, tensor, &indices))?.or_raise(py)
        },
    )?;
    range.made(|range| Ok(PyVector::of_runs(&owner, &[range])?.into_bound(py).into_any()))
}

/// `f(W x + b)` for a matrix of parameters and a Vector: a dense layer as one block, and one more for f.
///
/// Args:
///     weight: a tensor of shape (n_out, n_in); with arrays or Arrays, rows of `x` give rows of results.
///     x: a Vector, or a sequence of Values and Vectors (concatenated without a copy), n_in scalars in all.
///     bias: a tensor of n_out numbers, or None.
///     activation: f: None or "identity", "tanh", "relu", "sigmoid".
///
/// Returns a Vector of n_out scalars. Costs 2 n_in n_out operations per lane, and twice that in the backward pass.
///
/// Raises:
///     ValueError: lengths differ, or an unknown activation. TypeError: a graph whose dtype differs from the parameters', or
///     is neither float32 nor float64. GraphMismatchError: operands belong to different graphs.
///
/// Example:
///     >>> import burtorch as bt
///     >>> params = bt.Parameters(dtype="float64")
///     >>> w, b = params.tensor((2, 3), init=1.0), params.tensor(2, init=0.5)
///     >>> list(bt.affine(w, bt.current_graph().vector([1.0, 2.0, 3.0]), b).data)
///     [6.5, 6.5]
#[pyfunction]
#[pyo3(signature = (weight, x, bias=None, activation=None))]
fn affine<'py>(
    weight: &Bound<'py, PyAny>,
    x: &Bound<'py, PyAny>,
    bias: Option<&Bound<'py, PyAny>>,
    activation: Option<&str>,
) -> PyResult<Bound<'py, PyAny>> {
    let activation = activation_named(x.py(), activation)?;
    if any_array(&[weight.clone(), x.clone()]) || bias.is_some_and(|bias| any_array(std::slice::from_ref(bias))) {
        return array::functions::affine(weight, x, bias, activation);
    }
    let operands: Vec<_> = [weight, x].into_iter().chain(bias).collect();
    let of_arrays = |of: &[Bound<'py, PyAny>]| array::functions::affine(&of[0], &of[1], of.get(2), activation);
    if let Some(found) = evaluated_on_numbers(&operands, of_arrays)? {
        return Ok(found);
    }
    let bias = bias.map(|bias| bias.cast::<PyTensor>()).transpose()?;
    affine_of(weight.cast()?, x, bias, activation)
}

/// As [`affine`], with a known activation.
pub fn affine_of<'py>(
    weight: &Bound<'py, PyTensor>,
    x: &Bound<'py, PyAny>,
    bias: Option<&Bound<'py, PyTensor>>,
    activation: Activation,
) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    let (w, b) = (weight.get().slice(), bias.map(|b| b.get().slice()));
    let prepare = |cell: &mut Cell, inputs: &[Operand]| {
        cell.need_kernels("affine")?;
        let own = std::iter::once(weight).chain(bias).map(|tensor| tensor.get().owner());
        attach(py, cell, own.chain(read_by(inputs)))
    };
    let build = |graph: &mut AnyGraph, parameters: &[Py<PyParameters>], views: &[View]| {
        with_values(py, parameters, |given| graph.blocks()?.affine(given, views, w, b, activation))?.or_raise(py)
    };
    // A Vector of one run on a graph in its usual state needs no list.
    if let Ok(vector) = x.cast::<PyVector>()
        && let Some(owner) = vector.get().plain_owner(py)
    {
        let range = atomically(owner, |cell| {
            let inputs = vector.get().only_range(py, cell)?;
            check_inputs(weight.get(), inputs.len())?;
            prepare(cell, &[])?;
            let view = View::Nodes(inputs);
            build(&mut cell.graph, &cell.parameters, &[view])
        })?;
        return range.made(|range| Ok(PyVector::of_runs(owner, &[range])?.into_bound(py).into_any()));
    }
    let xs = Operand::read_all(x)?;
    let owner = common_owner(py, &xs)?;
    check_inputs(weight.get(), n_scalars(&xs))?;
    let range = appended(
        &owner,
        w.len(),
        |cell| {
            prepare(cell, &xs)?;
            all_views(py, cell, &xs)
        },
        |graph, parameters, views| build(graph, parameters, &views),
    )?;
    range.made(|range| Ok(PyVector::of_runs(&owner, &[range])?.into_bound(py).into_any()))
}

/// The cross-entropy of the softmax of `logits`, in nats: `log(sum(exp(z))) - z[target]`.
///
/// Args:
///     logits: a Vector of contiguous scalars, such as results of block ops; or an Array or an array, with classes along its last axis.
///     target: TokenIds of one number, an int, or a Vector of as many probabilities, which receive no gradient.
///
/// Returns a Value. Never overflows.
///
/// Raises:
///     IndexError: a class is out of range.
///     ValueError: logits that are a concatenation, or a wrong number of probabilities.
///     TypeError: a graph whose dtype is not float32 or float64, or lanes of them.
///
/// Example:
///     >>> import burtorch as bt
///     >>> z = bt.current_graph().vector([0.0, 0.0])
///     >>> loss = bt.softmax_cross_entropy(z, 1)
///     >>> loss.backward()
///     >>> round(loss.data, 6), list(z.grad)
///     (0.693147, [0.5, -0.5])
#[pyfunction]
fn softmax_cross_entropy<'py>(logits: &Bound<'py, PyAny>, target: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    use burtorch_core::CrossEntropyTarget;
    let py = logits.py();
    if any_array(&[logits.clone(), target.clone()]) {
        return array::functions::array_cross_entropy(logits.clone(), target.clone()).map(Bound::into_any);
    }
    let n_dims = if_any(py, super::vector::read_dims(logits))?.unwrap_or(0);
    if n_dims > 0 && !target.is_instance_of::<PyVector>() {
        // Plain numbers.
        let (core, target) = (py.import("burtorch._core")?, numpy(py)?.call_method1("asarray", (target,))?);
        let function = core.getattr("array_cross_entropy")?;
        return core.getattr("array_evaluated")?.call1((function, logits, target));
    }
    let Ok(logits) = logits.cast::<PyVector>() else {
        let found = crate::convert::buffer::type_name(logits);
        let message = format!(
            "softmax_cross_entropy() takes a Vector, an Array or a NumPy array as logits, found {found}; pass \
             np.asarray(logits), or bt.concat(logits) of Values"
        );
        return Err(PyTypeError::new_err(message));
    };
    let owner = logits.get().owner(py).clone();
    let probabilities = target.cast::<PyVector>().ok();
    if let Some(probabilities) = probabilities
        && !probabilities.get().owner(py).is(&owner)
    {
        return Err(burtorch_core::Error::GraphMismatch { what: "the target" }).or_raise(py);
    }
    if crate::convert::buffer::type_name(target) == "Value" {
        let message =
            "the class of softmax_cross_entropy() must be an integer of at least 0, found a Value: give integer labels";
        return Err(PyTypeError::new_err(message));
    }
    let classes = match probabilities {
        Some(_) => std::borrow::Cow::default(),
        None => token_ids_for(&owner, target, "target")?,
    };
    let node = atomically(&owner, |cell| {
        cell.need_kernels("softmax_cross_entropy")?;
        let one = |vector: &Bound<'_, PyVector>, cell: &crate::graph::cell::Cell| -> PyResult<Range> {
            match vector.get().n_runs() {
                1 => vector.get().only_range(py, cell),
                _ => {
                    Err(PyTypeError::new_err("logits and probabilities must each be one run of scalars, not a concat"))
                }
            }
        };
        let logits = one(logits, cell)?;
        let target = match probabilities {
            Some(vector) => CrossEntropyTarget::Probabilities(one(vector, cell)?),
            None => CrossEntropyTarget::Classes(&classes),
        };
        cell.graph.blocks().and_then(|blocks| blocks.softmax_cross_entropy(logits, target)).or_raise(py)
    })?;
    node.made(|node| wrap(&owner, node))
}

/// Adds the functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(gather_function, m)?)?;
    m.add_function(wrap_pyfunction!(affine, m)?)?;
    m.add_function(wrap_pyfunction!(softmax_cross_entropy, m)?)
}
