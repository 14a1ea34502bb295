//! Functions of many operands: reductions, inner products, concatenation, block ops.

use burtorch_core::{Op, Operands, Range, View};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::arguments::{Operand, atomically, common_owner, parameters_of};
use super::{PyVector, wrap};
use crate::cell::with_graph;
use crate::errors::IntoPython;
use crate::parameters::with_values;

/// A reduction over a Vector or a sequence of Values, Vectors and numbers.
pub fn reduce<'py>(op: Op, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    let operands = Operand::read_all(x)?;
    if operands.is_empty() {
        return Err(PyValueError::new_err(format!("{} of no values is undefined; give at least one", op.name())));
    }
    let owner = common_owner(py, &operands)?;
    let parameters = parameters_of(py, &operands);
    let node = atomically(&owner, &parameters, |cell| {
        let mut views = Vec::new();
        for operand in &operands {
            views.extend(operand.views(py, cell)?);
        }
        with_graph!(&mut cell.graph, g => {
            with_values(py, &parameters, |given| g.reduce(op, as_operands(&views), given))?.or_raise(py)
        })
    })?;
    wrap(&owner, node)
}

/// A single run is named by its ends, more by a list of views.
fn as_operands(views: &[View]) -> Operands<'_> {
    match views {
        [View::Nodes(range)] => Operands::Run(*range),
        _ => Operands::Views(views),
    }
}

/// `sum x_i w_i`, plus a bias.
pub fn inner_product<'py>(
    x: &Bound<'py, PyAny>,
    w: &Bound<'py, PyAny>,
    bias: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    let (xs, ws) = (operand_list(x)?, operand_list(w)?);
    let biases = bias.map(|b| Operand::read(b)).transpose()?;
    if biases.as_ref().is_some_and(|b| b.len() != 1) {
        return Err(PyValueError::new_err("the bias of an inner product is one Value or number"));
    }
    let (n_x, n_w) = (xs.len(), ws.len());
    let mut all: Vec<Operand> = xs.into_iter().chain(ws).collect();
    all.extend(biases);
    let owner = common_owner(py, &all)?;
    let parameters = parameters_of(py, &all);
    let node = atomically(&owner, &parameters, |cell| {
        let mut views: Vec<Vec<View>> = Vec::new();
        for operand in &all[..n_x + n_w] {
            views.push(operand.views(py, cell)?);
        }
        let join = |parts: &[Vec<View>]| parts.iter().flatten().copied().collect::<Vec<View>>();
        let (x, w) = (join(&views[..n_x]), join(&views[n_x..n_x + n_w]));
        // A bias is a node: a number of a tensor becomes one.
        let bias = match all.get(n_x + n_w) {
            Some(bias) => bias.nodes(py, cell)?.first().copied(),
            None => None,
        };
        with_graph!(&mut cell.graph, g => {
            with_values(py, &parameters, |given| g.inner_product(as_operands(&x), as_operands(&w), bias, given))?
                .or_raise(py)
        })
    })?;
    wrap(&owner, node)
}

/// A Vector is one operand, numbers are one run of constants, any other sequence is read item by item.
fn operand_list(x: &Bound<'_, PyAny>) -> PyResult<Vec<Operand>> {
    match Operand::read(x) {
        Ok(operand) => Ok(vec![operand]),
        Err(_) => Operand::read_all(x),
    }
}

/// mean, max or min of one sequence.
pub fn fold<'py>(op: Op, sequence: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    match op {
        Op::Mean => reduce(Op::ReduceMean, sequence),
        Op::NegativeMean => reduce(Op::ReduceNegativeMean, sequence),
        Op::Max | Op::Min => {
            let name = op.name();
            let mut items = sequence.try_iter()?;
            let empty = || PyValueError::new_err(format!("{name} of no values is undefined; give at least one"));
            let first = items.next().ok_or_else(empty)??;
            let function = sequence.py().import("burtorch._core")?.getattr(name)?;
            items.try_fold(first, |so_far, item| function.call1((so_far, item?)))
        }
        _ => Err(PyTypeError::new_err(format!("{}() takes two operands, found 1", op.name()))),
    }
}

macro_rules! define_reductions {
    (
        nullary { $($nullary:tt)* } unary { $($unary:tt)* } binary { $($binary:tt)* } with_constant { $($constant:tt)* }
        reduction { $( #[doc = $rdoc:literal] $R:ident $rname:ident $rpaper:literal { $($rbody:tt)* } )* }
        $($rest:tt)*
    ) => {
        $(
            #[doc = concat!("The ", $rdoc, ", over a Vector or a sequence of Values, Vectors and numbers.\n\nRaises ValueError for no operands. Linear in their number.")]
            #[pyfunction]
            fn $rname<'py>(x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
                reduce(Op::$R, x)
            }
        )*

        fn add_reductions(m: &Bound<'_, PyModule>) -> PyResult<()> {
            $( m.add_function(wrap_pyfunction!($rname, m)?)?; )*
            Ok(())
        }
    };
}

burtorch_core::for_each_op!(define_reductions);

/// The inner product of two Vectors (or sequences) of equal length.
///
/// Raises ValueError for unequal or zero lengths.
#[pyfunction(name = "inner_product")]
fn inner_product_function<'py>(x: &Bound<'py, PyAny>, w: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    inner_product(x, w, None)
}

/// The inner product of two Vectors (or sequences) of equal length, plus a bias.
#[pyfunction]
fn inner_product_with_bias<'py>(
    x: &Bound<'py, PyAny>,
    w: &Bound<'py, PyAny>,
    bias: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    inner_product(x, w, Some(bias))
}

/// The mean and the mean of squares of a Vector or sequence, as two Values.
#[pyfunction]
fn reduce_mean_and_mean_squares<'py>(x: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let py = x.py();
    if let Ok(vector) = x.cast::<PyVector>() {
        let owner = vector.get().owner(py);
        let nodes = atomically(owner, &[], |cell| {
            let ranges = vector.get().ranges_in(py, cell)?;
            let [range] = ranges[..] else { return Ok(None) };
            with_graph!(&mut cell.graph, g => g.reduce_mean_and_mean_squares(range).map(Some).or_raise(py))
        })?;
        if let Some((mean, squares)) = nodes {
            return Ok((wrap(owner, mean)?, wrap(owner, squares)?));
        }
    }
    Ok((reduce(Op::ReduceMean, x)?, reduce(Op::ReduceMeanSquares, x)?))
}

/// Join Vectors and Values, one after another, without copying: concat(x, y) or concat([x, y]).
#[pyfunction]
#[pyo3(signature = (*parts))]
fn concat<'py>(parts: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let py = parts.py();
    let single = if parts.len() == 1 { Some(parts.get_item(0)?) } else { None };
    let operands = Operand::read_all(single.as_ref().unwrap_or(parts.as_any()))?;
    let owner = common_owner(py, &operands)?;
    let ranges = atomically(&owner, &parameters_of(py, &operands), |cell| {
        let mut ranges: Vec<Range> = Vec::new();
        for operand in &operands {
            match operand {
                Operand::Tensor(_) => {
                    let nodes = operand.nodes(py, cell)?;
                    ranges.extend(nodes.first().map(|&first| Range::new(first, nodes.len() as u32)));
                }
                _ => ranges.extend(operand.views(py, cell)?.into_iter().filter_map(|view| match view {
                    View::Nodes(range) => Some(range),
                    View::Parameters(_) => None,
                })),
            }
        }
        Ok(ranges)
    })?;
    Ok(PyVector::of_runs(&owner, &ranges)?.into_bound(py).into_any())
}

/// Adds the functions to the module.
pub fn register_functions(m: &Bound<'_, PyModule>) -> PyResult<()> {
    add_reductions(m)?;
    m.add_function(wrap_pyfunction!(inner_product_function, m)?)?;
    m.add_function(wrap_pyfunction!(inner_product_with_bias, m)?)?;
    m.add_function(wrap_pyfunction!(reduce_mean_and_mean_squares, m)?)?;
    m.add_function(wrap_pyfunction!(concat, m)?)
}
