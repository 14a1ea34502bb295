//! Reading arguments: numbers from containers of numbers, and operands from Values, Vectors and numbers.
#![allow(unsafe_code)]

use burtorch_core::{Mark, NodeId, Range, View};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use super::{PyVector, views};
use crate::convert::buffer::type_name;
use crate::convert::errors::{IntoPython, if_any};
use crate::convert::numbers::{float_buffer, is_text, number_of};
use crate::convert::signals::ask_at;
use crate::graph::cell::{AnyGraph, Cell, settle};
use crate::graph::critical_section::Held;
use crate::graph::parameters::{attach, parameter_nodes};
use crate::graph::{LONG, PyGraph};
use crate::node::branch_reads::is_foreign;
use crate::node::value::{self};
use crate::params::{PyParameters, PyTensor};

/// All numbers of a buffer of floats, or of a (nested) sequence of numbers, in row-major order.
pub fn numbers(object: &Bound<'_, PyAny>) -> PyResult<Vec<f64>> {
    if let Some(x) = number_of(object)? {
        return Ok(vec![x]);
    }
    if let Some(numbers) = float_buffer(object)? {
        return Ok(numbers);
    }
    let mut all = Vec::new();
    for operand in Operand::read_all(object)? {
        match operand {
            Operand::Numbers(numbers) => all.extend(numbers),
            Operand::Value(_) | Operand::Vector(_) | Operand::Tensor(_) => {
                let message = "expected real numbers, found a Value, Vector or Tensor; join them with concat()";
                return Err(PyTypeError::new_err(message));
            }
        }
    }
    Ok(all)
}

/// Nested sequences deeper than this are refused.
pub const DEEPEST: usize = 32;

/// One operand, or a run of them.
pub enum Operand {
    /// A Value; it is alive and on the graph, but its node number may change until it is read.
    Value(Py<PyAny>),
    /// A Vector.
    Vector(Py<PyVector>),
    /// Part of a `Parameters`.
    Tensor(Py<PyTensor>),
    /// Numbers, which become constants.
    Numbers(Vec<f64>),
}

impl Operand {
    /// Reads a Value, a Vector or a number.
    pub fn read_one(object: &Bound<'_, PyAny>) -> PyResult<Option<Operand>> {
        if let Ok(vector) = object.cast::<PyVector>() {
            return Ok(Some(Operand::Vector(vector.clone().unbind())));
        }
        if let Ok(tensor) = object.cast::<PyTensor>() {
            return Ok(Some(Operand::Tensor(tensor.clone().unbind())));
        }
        if let Ok(parameter) = object.cast::<crate::node::parameter::PyParameter>() {
            return Self::read_one(&crate::node::parameter::value_of(parameter)?);
        }
        // SAFETY: a living object under the GIL.
        if unsafe { value::is_value(object.as_ptr()) } {
            return Ok(Some(Operand::Value(object.clone().unbind())));
        }
        Ok(number_of(object)?.map(|x| Operand::Numbers(vec![x])))
    }

    /// Reads a Value, Vector or number, or a (nested) sequence that may mix them; neighbouring numbers are one
    /// operand. The sequence is read once.
    pub fn read_all(object: &Bound<'_, PyAny>) -> PyResult<Vec<Operand>> {
        let mut all = Vec::new();
        Self::collect(object, &mut all, 0)?;
        Ok(all)
    }

    fn collect(object: &Bound<'_, PyAny>, all: &mut Vec<Operand>, depth: usize) -> PyResult<()> {
        if let Some(operand) = Self::read_one(object)? {
            Self::join(all, operand);
            return Ok(());
        }
        if let Some(numbers) = float_buffer(object)? {
            Self::join(all, Operand::Numbers(numbers));
            return Ok(());
        }
        let items = if is_text(object) || depth > DEEPEST { None } else { if_any(object.py(), object.try_iter())? };
        let Some(items) = items else {
            let found = type_name(object);
            let hint = if found == "Array" { "; primitives and this function have no rule for Arrays" } else { "" };
            let message = format!("expected Values, Vectors, real numbers or a sequence of them, found {found}{hint}");
            return Err(PyTypeError::new_err(message));
        };
        for (k, item) in items.enumerate() {
            ask_at(object.py(), k)?;
            Self::collect(&item?, all, depth + 1)?;
        }
        Ok(())
    }

    /// Appends an operand; numbers join the numbers before them.
    fn join(all: &mut Vec<Operand>, operand: Operand) {
        match (all.last_mut(), operand) {
            (Some(Operand::Numbers(before)), Operand::Numbers(numbers)) => before.extend(numbers),
            (_, operand) => all.push(operand),
        }
    }

    /// Whether this is one scalar, which elementwise ops broadcast.
    pub fn is_single(&self) -> bool {
        match self {
            Operand::Value(_) => true,
            Operand::Vector(_) | Operand::Tensor(_) => false,
            Operand::Numbers(numbers) => numbers.len() == 1,
        }
    }

    /// The number of scalars.
    pub fn len(&self) -> usize {
        match self {
            Operand::Value(_) => 1,
            Operand::Vector(vector) => vector.get().n(),
            Operand::Tensor(tensor) => tensor.get().slice().len(),
            Operand::Numbers(numbers) => numbers.len(),
        }
    }

    /// Its graph.
    pub fn owner<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyGraph>> {
        match self {
            // SAFETY: a living Value.
            Operand::Value(object) => Some(unsafe { value::graph_of(py, object.as_ptr().cast()) }),
            Operand::Vector(vector) => Some(vector.get().owner(py).clone()),
            Operand::Tensor(_) | Operand::Numbers(_) => None,
        }
    }

    /// Its nodes as views, appending constants for numbers.
    pub fn views(&self, py: Python<'_>, cell: &mut Cell) -> PyResult<Vec<View>> {
        // The graph of a Value of this one does not change while its lock is held.
        let owner = match self {
            // SAFETY: a living Value.
            Operand::Value(object) => unsafe { (*object.as_ptr().cast::<value::ValueObject>()).owner },
            Operand::Vector(vector) => vector.get().home().as_ptr(),
            Operand::Tensor(_) | Operand::Numbers(_) => std::ptr::null_mut(),
        };
        if !owner.is_null()
            && is_foreign(cell, owner)
            && let Some(owner) = self.owner(py)
        {
            // A frozen graph that this branch reads: its nodes and handles do not change.
            // SAFETY: `owner` is another graph than that of `cell`.
            let theirs = unsafe { value::cell_of(owner.as_ptr()) };
            let here = |view| match view {
                View::Nodes(range) => crate::node::branch_reads::import(py, cell, &owner, range).map(View::Nodes),
                view => Ok(view),
            };
            return self.own_views(py, theirs)?.into_iter().map(here).collect();
        }
        self.own_views(py, cell)
    }

    /// Its nodes at their current positions.
    fn own_views(&self, py: Python<'_>, cell: &mut Cell) -> PyResult<Vec<View>> {
        Ok(match self {
            Operand::Value(object) => {
                // SAFETY: a living Value of this cell's graph, as `common_owner` has checked.
                let handle = unsafe { &mut (*object.as_ptr().cast::<value::ValueObject>()).handle };
                let node = NodeId::from_index(handle.start);
                settle(&mut cell.graph, handle).or_raise(py)?;
                handle.epoch = cell.graph.check(node, handle.epoch).or_raise(py)?;
                vec![View::from(node)]
            }
            Operand::Vector(vector) => views(vector.get().ranges_in(py, cell)?),
            Operand::Tensor(tensor) => {
                attach(py, cell, [tensor.get().owner()])?;
                vec![View::Parameters(tensor.get().slice())]
            }
            Operand::Numbers(numbers) if numbers.is_empty() => Vec::new(),
            Operand::Numbers(numbers) => vec![View::Nodes(cell.graph.constants(numbers).or_raise(py)?)],
        })
    }

    /// Its nodes as runs; appends one node per number of a tensor.
    pub fn runs(&self, py: Python<'_>, cell: &mut Cell) -> PyResult<Vec<Range>> {
        if let Operand::Tensor(tensor) = self {
            let nodes = parameter_nodes(py, cell, tensor.get().owner(), tensor.get().slice())?;
            return Ok(nodes.first().map(|&first| Range::new(first, nodes.len() as u32)).into_iter().collect());
        }
        let ranges = self.views(py, cell)?.into_iter().filter_map(|view| match view {
            View::Nodes(range) => Some(range),
            View::Parameters(_) => None,
        });
        Ok(ranges.collect())
    }
}

/// The one graph of all operands: that of the Values and Vectors among them, or the current one if all are tensors.
pub fn common_owner<'py, 'a>(
    py: Python<'py>,
    operands: impl IntoIterator<Item = &'a Operand>,
) -> PyResult<Bound<'py, PyGraph>> {
    let mut reads_tensors = false;
    let mut owners = operands.into_iter().filter_map(|operand| {
        reads_tensors |= matches!(operand, Operand::Tensor(_));
        operand.owner(py)
    });
    let Some(first) = owners.next() else {
        if reads_tensors {
            return crate::graph::current_graph(py)?.into_bound(py).cast_into().map_err(PyErr::from);
        }
        return Err(PyTypeError::new_err("expected at least one Value, Vector or Tensor among the operands"));
    };
    let mut all = vec![first];
    owners.for_each(|owner| {
        if !all.iter().any(|other| other.is(&owner)) {
            all.push(owner);
        }
    });
    crate::node::branch_reads::common(py, &all)
}

/// Appends with `build`, which may fail half way; its nodes are then removed.
pub fn atomically<'a, 'py, T>(
    owner: &'a Bound<'py, PyGraph>,
    build: impl FnOnce(&mut Cell) -> PyResult<T>,
) -> PyResult<New<'a, 'py, T>> {
    let py = owner.py();
    let mut undo = Undo { owner, before: None, _held: Held::of(owner) };
    let what = owner.get().with(py, |cell| {
        super::reclaim_if_due(py, cell)?;
        undo.before = Some(cell.graph.mark());
        build(cell)
    })?;
    Ok(New { undo, what })
}

/// As `atomically`, for work on `n` scalars in two parts: `prepare` reads operands, `build` appends their nodes
/// and may release the GIL, with `unlocked`, if they are many.
pub fn appended<'a, 'py, P, T>(
    owner: &'a Bound<'py, PyGraph>,
    n: usize,
    prepare: impl FnOnce(&mut Cell) -> PyResult<P>,
    build: impl FnOnce(&mut AnyGraph, &[Py<PyParameters>], P) -> PyResult<T>,
) -> PyResult<New<'a, 'py, T>> {
    let py = owner.py();
    if n < LONG {
        return atomically(owner, |cell| {
            let prepared = prepare(cell)?;
            build(&mut cell.graph, &cell.parameters, prepared)
        });
    }
    let New { undo, what: prepared } = atomically(owner, prepare)?;
    let what = owner.get().released(py, |graph, parameters| build(graph, parameters, prepared))?;
    Ok(New { undo, what })
}

/// Appended nodes until Python objects exist for them.
#[must_use = "what was appended goes with this"]
pub struct New<'a, 'py, T> {
    undo: Undo<'a, 'py>,
    what: T,
}

impl<T> New<'_, '_, T> {
    /// Makes the objects. If that fails, the nodes are removed.
    pub fn made<R>(self, make: impl FnOnce(T) -> PyResult<R>) -> PyResult<R> {
        let New { mut undo, what } = self;
        let made = make(what)?;
        undo.before = None;
        Ok(made)
    }
}

/// Removes, when it is dropped, nodes appended after the mark: after an error, and after a refused allocation.
struct Undo<'a, 'py> {
    owner: &'a Bound<'py, PyGraph>,
    before: Option<Mark>,
    /// Until there are objects for the nodes, no other thread appends or removes any.
    _held: Held,
}

impl Drop for Undo<'_, '_> {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            self.owner.get().take_back(before);
        }
    }
}

/// The number of scalars in these operands.
pub fn n_scalars(operands: &[Operand]) -> usize {
    operands.iter().map(Operand::len).sum()
}

/// The nodes of all operands in a row, as runs.
pub fn all_runs(py: Python<'_>, cell: &mut Cell, operands: &[Operand]) -> PyResult<Vec<Range>> {
    let mut all = Vec::with_capacity(operands.len());
    for operand in operands {
        all.extend(operand.runs(py, cell)?);
    }
    Ok(all)
}

/// The nodes of all operands in a row, one by one.
pub fn all_nodes(py: Python<'_>, cell: &mut Cell, operands: &[Operand]) -> PyResult<Vec<NodeId>> {
    let runs = all_runs(py, cell, operands)?;
    let mut all = Vec::with_capacity(runs.iter().map(|run| run.len()).sum());
    all.extend(runs.iter().flat_map(|run| run.nodes()));
    Ok(all)
}

/// The parameters read by operands.
pub fn read_by<'a>(
    operands: impl IntoIterator<Item = &'a Operand, IntoIter: Clone>,
) -> impl Iterator<Item = &'a Py<PyParameters>> + Clone {
    operands.into_iter().filter_map(|operand| match operand {
        Operand::Tensor(tensor) => Some(tensor.get().owner()),
        _ => None,
    })
}

/// The views of all operands in a row.
pub fn all_views(py: Python<'_>, cell: &mut Cell, operands: &[Operand]) -> PyResult<Vec<View>> {
    attach(py, cell, read_by(operands))?;
    let mut all = Vec::with_capacity(operands.len());
    for operand in operands {
        all.extend(operand.views(py, cell)?);
    }
    Ok(all)
}
