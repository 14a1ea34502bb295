//! Scalar types beyond float64 and float32: how Python names them, gives numbers to them and gets numbers back.
//!
//! Promises: half numbers are Python floats; lanes are one float per lane, as a tuple; float128 is a `Decimal` that reads
//! back to the same number. What Python gives is read before a graph is touched, as reading may run Python code.
#![allow(unsafe_code)]

use burtorch_core::scalar::{f128_from_decimal, f128_to_decimal};
use burtorch_core::{DType, Float, Graph, NodeId, Result, Scalar};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyFloat, PyInt, PyString, PyTuple};

use crate::cell::{AnyGraph, with_graph};
use crate::errors::IntoPython;
use crate::graph::PyGraph;
use crate::value::{self, Number};
use crate::vector::{Symbol, wrap};

/// The type of a graph's scalars: what a lane is, and how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScalarType {
    /// The type of one lane.
    pub elem: DType,
    /// Lanes per node.
    pub lanes: usize,
}

impl ScalarType {
    /// What a graph of `S` holds.
    pub const fn of<S: Scalar>() -> Self {
        ScalarType { elem: S::Elem::DTYPE, lanes: S::LANES }
    }

    /// As in `Graph(dtype=...)`.
    pub const fn name(self) -> &'static str {
        match (self.elem, self.lanes) {
            (DType::Float32, 4) => "float32x4",
            (DType::Float32, 8) => "float32x8",
            (DType::Float32, 16) => "float32x16",
            (DType::Float32, 64) => "float32x64",
            (DType::Float64, 2) => "float64x2",
            (DType::Float64, 4) => "float64x4",
            (DType::Float64, 8) => "float64x8",
            (elem, _) => elem.name(),
        }
    }

    /// The type called `name`.
    pub fn named(name: &str) -> PyResult<Self> {
        let plain = DType::ALL.map(|elem| ScalarType { elem, lanes: 1 });
        let f32s = [4, 8, 16].map(|lanes| ScalarType { elem: DType::Float32, lanes });
        let f64s = [2, 4, 8].map(|lanes| ScalarType { elem: DType::Float64, lanes });
        plain.into_iter().chain(f32s).chain(f64s).find(|t| t.name() == name).ok_or_else(|| {
            PyValueError::new_err(format!(
                "dtype must be \"float64\", \"float32\", \"float16\", \"bfloat16\", \"float128\", \"float32x4\", \
                 \"float32x8\", \"float32x16\", \"float64x2\", \"float64x4\" or \"float64x8\", found {name:?}"
            ))
        })
    }

    /// Whether a number of this type is less, or no more, than a Python float holds.
    pub const fn fits_float(self) -> bool {
        self.lanes == 1 && !matches!(self.elem, DType::Float128)
    }
}

/// A number as Python gave it.
#[derive(Clone, Debug)]
pub enum Given {
    /// One number, for all lanes.
    All(f64),
    /// One number per lane.
    Lanes(Vec<f64>),
    /// With all the digits of a float128.
    Wide(f128),
}

impl Given {
    /// Reads a number for a graph of this type; `None` if it is nothing of the kind.
    pub fn read(object: &Bound<'_, PyAny>, into: ScalarType) -> PyResult<Option<Given>> {
        if into.elem == DType::Float128
            && let Some(x) = wide_number(object)?
        {
            return Ok(Some(Given::Wide(x)));
        }
        // SAFETY: a living object under the interpreter lock.
        match unsafe { value::number(object.as_ptr()) } {
            Number::Is(x) => return Ok(Some(Given::All(x))),
            Number::Failed => return Err(PyErr::fetch(object.py())),
            Number::IsNot if into.lanes == 1 || is_text(object) || object.try_iter().is_err() => return Ok(None),
            Number::IsNot => {}
        }
        let numbers = crate::vector::numbers(object)?;
        if numbers.len() == into.lanes {
            return Ok(Some(Given::Lanes(numbers)));
        }
        let (n, name, found) = (into.lanes, into.name(), numbers.len());
        Err(PyValueError::new_err(format!("a {name} node takes one number, or {n}, one per lane; found {found}")))
    }

    /// The same, or a TypeError that says what was expected.
    pub fn expect(object: &Bound<'_, PyAny>, into: ScalarType) -> PyResult<Given> {
        match Self::read(object, into)? {
            Some(given) => Ok(given),
            None => {
                let found = object.get_type().name()?;
                Err(PyTypeError::new_err(format!("expected a number for a {} node, found {found}", into.name())))
            }
        }
    }

    /// The numbers for the nodes of a vector: an iterable with one entry per node.
    pub fn read_many(object: &Bound<'_, PyAny>, into: ScalarType) -> PyResult<Vec<Given>> {
        if is_text(object) {
            return Err(PyTypeError::new_err("expected a sequence of numbers, found text"));
        }
        object.try_iter()?.map(|item| Self::expect(&item?, into)).collect()
    }

    /// As a scalar of a graph.
    pub fn scalar<S: Scalar>(&self) -> S {
        match self {
            Given::All(x) => S::lit(*x),
            Given::Wide(x) => S::splat(S::Elem::from_f128(*x)),
            Given::Lanes(lanes) => {
                let each = lanes.iter().take(S::LANES).enumerate();
                each.fold(S::lit(0.0), |scalar, (k, &x)| scalar.with_lane(k, S::Elem::from_f64(x)))
            }
        }
    }
}

fn is_text(object: &Bound<'_, PyAny>) -> bool {
    object.is_instance_of::<PyString>() || object.is_instance_of::<PyBytes>()
}

/// What a float128 can take with more digits than a float has: text, a Decimal, an int.
fn wide_number(object: &Bound<'_, PyAny>) -> PyResult<Option<f128>> {
    let is_decimal = || object.is_instance(&object.py().import("decimal")?.getattr("Decimal")?);
    if object.is_instance_of::<PyFloat>() {
        return Ok(None);
    }
    let is_given_as_text = object.is_instance_of::<PyString>();
    if !is_given_as_text && !object.is_instance_of::<PyInt>() && !is_decimal()? {
        return Ok(None);
    }
    // Python limits the digits of an int that it turns into text; hexadecimal has no such limit, but these are rare.
    let text = object.str()?.to_string();
    let text = if object.is_instance_of::<pyo3::types::PyBool>() {
        if object.is_truthy()? { "1".into() } else { "0".into() }
    } else {
        text
    };
    match f128_from_decimal(&text) {
        Some(x) => Ok(Some(x)),
        None => Err(PyValueError::new_err(format!("cannot read {text:?} as a decimal number"))),
    }
}

/// The number, or numbers, of a scalar, out of its graph: what Python gets of it is made when no reference into the graph
/// exists any more.
pub enum Taken {
    /// One float.
    Float(f64),
    /// A float for each lane.
    Lanes(Vec<f64>),
    /// A number that takes a Decimal.
    Wide(f128),
}

impl Taken {
    /// Takes a scalar.
    pub fn from<S: Scalar>(x: S) -> Self {
        if S::LANES > 1 {
            Taken::Lanes((0..S::LANES).map(|k| x.lane(k).to_f64()).collect())
        } else if S::Elem::DTYPE == DType::Float128 {
            Taken::Wide(x.lane(0).to_f128())
        } else {
            Taken::Float(x.lane(0).to_f64())
        }
    }

    /// The data, or the gradient, of a node.
    pub fn of(graph: &AnyGraph, node: NodeId, of_grad: bool) -> Result<Self> {
        with_graph!(graph, g => if of_grad { g.grad(node) } else { g.value(node) }.map(Self::from))
    }

    /// A float, a tuple of floats, or a Decimal.
    pub fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        Ok(match self {
            Taken::Float(x) => PyFloat::new(py, x).into_any(),
            Taken::Lanes(all) => PyTuple::new(py, all)?.into_any(),
            Taken::Wide(x) => decimal(py, x)?,
        })
    }
}

/// The number, or numbers, of a scalar for Python.
pub fn object_of<S: Scalar>(py: Python<'_>, x: S) -> PyResult<Bound<'_, PyAny>> {
    Taken::from(x).into_python(py)
}

/// A Decimal that reads back as `x`.
pub fn decimal(py: Python<'_>, x: f128) -> PyResult<Bound<'_, PyAny>> {
    py.import("decimal")?.getattr("Decimal")?.call1((f128_to_decimal(x),))
}

/// The data (or the gradient) of a node as a float; `None` where a float is too narrow for it.
#[inline(always)]
pub fn plain(graph: &AnyGraph, node: NodeId, of_grad: bool) -> Result<Option<f64>> {
    #[inline(always)]
    fn read<S: Scalar>(graph: &Graph<'static, S>, node: NodeId, of_grad: bool) -> Result<Option<f64>> {
        let x = if of_grad { graph.grad(node) } else { graph.value(node) };
        x.map(|x| Some(x.lane(0).to_f64()))
    }
    #[cold]
    #[inline(never)]
    fn others(graph: &AnyGraph, node: NodeId, of_grad: bool) -> Result<Option<f64>> {
        with_graph!(graph, g => if graph.scalar_type().fits_float() { read(g, node, of_grad) } else { Ok(None) })
    }
    match graph {
        AnyGraph::F64(g) => read(g, node, of_grad),
        AnyGraph::F32(g) => read(g, node, of_grad),
        _ => others(graph, node, of_grad),
    }
}

/// Overwrites the data (or the gradient) of a node.
pub fn assign(graph: &mut AnyGraph, node: NodeId, given: &Given, of_grad: bool) -> Result<()> {
    with_graph!(graph, g => {
        let x = given.scalar();
        if of_grad { g.set_grad(node, x) } else { g.set_value(node, x) }
    })
}

/// A leaf, or a constant, with this number.
pub fn leaf(graph: &mut AnyGraph, given: &Given, is_constant: bool) -> Result<(NodeId, u64)> {
    with_graph!(graph, g => {
        let x = given.scalar();
        let node = if is_constant { g.constant(x) } else { g.leaf(x) };
        node.map(|node| (node, g.epoch()))
    })
}

/// The error of asking lanes for one number.
pub fn refuse_lanes(scalar_type: ScalarType) -> PyErr {
    let (n, name) = (scalar_type.lanes, scalar_type.name());
    PyValueError::new_err(format!("a {name} Value holds {n} numbers, not one; use its .data, a tuple"))
}

/// The scalar type of a Value's graph.
///
/// # Safety
/// `value` is a living Value; the interpreter lock is held; no reference into its cell is in use.
pub unsafe fn type_of(value: *mut ffi::PyObject) -> ScalarType {
    // SAFETY: by the contract of this function.
    unsafe { value::cell_of((*value.cast::<value::ValueObject>()).owner).graph.scalar_type() }
}

/// An operator between a float128 Value and a Decimal: `None` if it is something else.
pub fn with_decimal<'py>(
    symbol: Symbol,
    a: &Bound<'py, PyAny>,
    b: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = a.py();
    for (x, c, constant_first) in [(a, b, false), (b, a, true)] {
        // SAFETY: living objects under the interpreter lock.
        let is_wide = unsafe { value::is_value(x.as_ptr()) && type_of(x.as_ptr()).elem == DType::Float128 };
        if !is_wide || is_text(c) {
            continue;
        }
        let Some(c) = wide_number(c)? else { continue };
        // SAFETY: a living Value owns its graph, which is a PyGraph.
        let owner: Bound<'py, PyGraph> = unsafe {
            Bound::from_borrowed_ptr(py, (*x.as_ptr().cast::<value::ValueObject>()).owner).cast_into_unchecked()
        };
        let operand = crate::vector::Operand::Value(x.clone().unbind());
        let node = crate::vector::atomically(&owner, |cell| {
            let (x, c) = (operand.runs(py, cell)?[0].first(), Given::Wide(c));
            with_graph!(&mut cell.graph, g => match constant_first {
                true => value::left(g, symbol, c.scalar(), x),
                false => value::right(g, symbol, x, c.scalar()),
            })
            .or_raise(py)
        })?;
        return wrap(&owner, node).map(Some);
    }
    Ok(None)
}
