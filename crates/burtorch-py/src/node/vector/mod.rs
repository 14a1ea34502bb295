//! `Vector`: runs of nodes of one graph, and the functions that take many operands.
//!
//! Promises: one Python call per vector op; slices and concatenations are views and copy nothing; an error leaves the
//! graph unchanged. Numbers are computed in the core.
#![allow(unsafe_code)]

mod arguments;
mod elementwise;
mod functions;
mod home;
mod joined;
mod methods;
mod numpy;
mod operators;
mod plain;
mod quick;
mod sequence;
pub mod tokens;

use std::cell::UnsafeCell;

use burtorch_core::erased::{AnyNumber, ScalarType};
use burtorch_core::graph::UNEVALUATED;
use burtorch_core::{NodeId, Op, Range, Slice, View};
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::convert::buffer::FlatArray;
use crate::convert::errors::IntoPython;
use crate::convert::numbers::{self, number_of};
use crate::convert::signals::ask_at;
use crate::graph::PyGraph;
use crate::graph::cell::Cell;
use crate::graph::critical_section::locked_graph;
use crate::graph::handle::{self, Handle};
use crate::graph::parameters::parameter_nodes;
use crate::node::numbers as of_node;
use crate::node::value;
use crate::params::PyTensor;

pub use arguments::{
    New, Operand, all_nodes, all_views, appended, atomically, common_owner, n_scalars, numbers, read_by,
};
pub use elementwise::{Symbol, binary_function, binary_with_arrays, constant_function, unary_function, with_axis};
pub use functions::{reduction_function, register_functions};
use home::Home;
pub use numpy::{NUMBER_ALONE, array_function, array_ufunc, read_dims};

/// Contiguous scalars of a graph, or a concatenation of such runs.
///
/// Made from leaves by this class and by Graph.vector(), and by slicing, operators, op functions and concat(). Indexing gives a
/// Value, slicing a view; operators are elementwise and broadcast a Value or number. In a sequence with Values, Vectors
/// and numbers, a Vector means its elements.
///
/// Args:
///     data: a sequence, buffer or array of real numbers, flattened in row-major order.
///     graph: the Graph to append to; the current one by default.
///
/// Raises:
///     TypeError: data are not real numbers.
///     ValueError: no data, lengths differ, or a reduction is over no elements.
///     StaleValueError: its nodes were removed by a rewind or a clear.
///     GraphMismatchError: the operands belong to different graphs.
///
/// One Python call per operation, which costs one node and a few nanoseconds per element; slices copy nothing.
///
/// Example:
///     >>> import burtorch as bt
///     >>> x = bt.Vector([1.0, 2.0, 3.0])
///     >>> y = (x * x).sum()
///     >>> y.backward()
///     >>> y.data, list(x.grad)
///     (14.0, [2.0, 4.0, 6.0])
#[pyclass(frozen, name = "Vector", module = "burtorch", weakref, sequence)]
pub struct PyVector {
    /// The graph; another one once a branch is joined.
    owner: Home,
    /// In the list of live handles from construction to drop; their addresses are stable, as the box never moves.
    runs: Box<[UnsafeCell<Handle>]>,
}

// SAFETY: the handles are only touched under the GIL, like the graph they belong to.
unsafe impl Sync for PyVector {}

#[pymethods]
impl PyVector {
    fn __traverse__(&self, visit: pyo3::PyVisit<'_>) -> Result<(), pyo3::PyTraverseError> {
        crate::convert::gc::traverse(&self.owner, visit)
    }
}

impl Drop for PyVector {
    fn drop(&mut self) {
        // SAFETY: a Python object dies on an attached thread.
        let py = unsafe { Python::assume_attached() };
        self.at_home(py, |home| {
            // SAFETY: its graph is still alive, as it is owned, and its lock is held.
            let cell = unsafe { value::cell_of(home.as_ptr()) };
            crate::graph::forget(cell, std::ptr::from_ref(self) as usize);
            for run in &self.runs {
                // SAFETY: the handle is valid until this box goes, and in a list since it was made.
                unsafe { handle::unlink(run.get()) }
            }
        });
    }
}

impl PyVector {
    pub(super) fn home(&self) -> &Py<PyGraph> {
        self.owner.get()
    }

    /// Runs `f` with the graph, while no other thread uses it.
    #[inline(always)]
    pub(super) fn at_home<'py, R>(&self, py: Python<'py>, f: impl FnOnce(&Bound<'py, PyGraph>) -> R) -> R {
        self.owner.locked(py, f)
    }

    /// Makes the nodes those of another graph: that of a joined branch.
    pub fn set_owner(&self, owner: Py<PyGraph>) {
        self.owner.set(owner);
    }

    /// The addresses of its handles.
    pub fn handles(&self) -> impl Iterator<Item = *mut Handle> {
        self.runs.iter().map(UnsafeCell::get)
    }

    /// A vector of these runs of `owner`, which exist now.
    pub fn of_runs(owner: &Bound<'_, PyGraph>, runs: &[Range]) -> PyResult<Py<PyVector>> {
        // SAFETY: a living graph.
        unsafe { locked_graph(owner.as_ptr(), || Self::of_runs_locked(owner, runs)) }
    }

    fn of_runs_locked(owner: &Bound<'_, PyGraph>, runs: &[Range]) -> PyResult<Py<PyVector>> {
        let py = owner.py();
        let vector = owner.get().look(py, |cell| {
            let epoch = cell.graph.epoch();
            let handle = |r: &Range| UnsafeCell::new(Handle::of_run(*r, epoch));
            let vector = PyVector {
                owner: Home::new(owner.clone().unbind()),
                runs: runs.iter().filter(|run| !run.is_empty()).map(handle).collect(),
            };
            for run in &vector.runs {
                // SAFETY: the box keeps the handle in place until drop, which removes it.
                unsafe { cell.handles.add(run.get()) };
            }
            Ok(vector)
        })?;
        let vector = Py::new(py, vector)?;
        crate::graph::remember(owner, std::ptr::from_ref(vector.get()) as usize);
        Ok(vector)
    }

    /// New leaves with these values.
    pub fn leaves(owner: &Bound<'_, PyGraph>, data: &[f64]) -> PyResult<Py<PyVector>> {
        if data.is_empty() {
            return Err(PyValueError::new_err("a Vector needs at least one number"));
        }
        let range = atomically(owner, |cell| cell.graph.leaves(data).or_raise(owner.py()))?;
        range.made(|range| Self::of_runs(owner, &[range]))
    }

    /// New leaves of a graph whose numbers are wider than floats.
    pub fn special_leaves(owner: &Bound<'_, PyGraph>, data: &[AnyNumber]) -> PyResult<Py<PyVector>> {
        if data.is_empty() {
            return Err(PyValueError::new_err("a Vector needs at least one number"));
        }
        let range = atomically(owner, |cell| cell.graph.leaves_of(data).or_raise(owner.py()))?;
        range.made(|range| Self::of_runs(owner, &[range]))
    }

    /// The graph.
    pub fn owner<'py>(&self, py: Python<'py>) -> &Bound<'py, PyGraph> {
        self.home().bind(py)
    }

    /// Number of scalars.
    pub fn n(&self) -> usize {
        // SAFETY: the GIL is held, so no other thread changes the handles.
        self.runs.iter().map(|run| unsafe { (*run.get()).range().len() }).sum()
    }

    /// Runs `f`, which only reads, on the graph and its cell.
    fn look<'py, T>(
        &self,
        py: Python<'py>,
        f: impl FnOnce(&Bound<'py, PyGraph>, &mut Cell) -> PyResult<T>,
    ) -> PyResult<T> {
        self.at_home(py, |home| home.get().look(py, |cell| f(home, cell)))
    }

    /// Runs `f` on the cell of the graph, unless that is busy.
    fn change<T>(&self, py: Python<'_>, f: impl FnOnce(&mut Cell) -> PyResult<T>) -> PyResult<T> {
        self.at_home(py, |home| home.get().with(py, f))
    }

    /// The runs, checked.
    pub fn ranges(&self, py: Python<'_>) -> PyResult<Vec<Range>> {
        self.look(py, |_, cell| self.ranges_in(py, cell))
    }

    /// The runs, checked against the cell of this vector's graph.
    pub fn ranges_in(&self, py: Python<'_>, cell: &Cell) -> PyResult<Vec<Range>> {
        let checked = |run: &UnsafeCell<Handle>| {
            // SAFETY: the GIL is held, so no other thread changes the handles.
            let handle = unsafe { &mut *run.get() };
            let last = NodeId::from_index(handle.last());
            handle.epoch = cell.graph.check(last, handle.epoch).or_raise(py)?;
            Ok(handle.range())
        };
        self.runs.iter().map(checked).collect()
    }

    /// The number of its runs.
    pub fn n_runs(&self) -> usize {
        self.runs.len()
    }

    /// The graph, if this is one run of it and the graph can be appended to: it is not in use, and not a
    /// branch of another.
    pub fn plain_owner<'py>(&self, py: Python<'py>) -> Option<&Bound<'py, PyGraph>> {
        let is_plain = self.at_home(py, |home| {
            // SAFETY: the lock of the graph is held; it lives, as it is owned.
            let cell = unsafe { value::cell_of(home.as_ptr()) };
            self.runs.len() == 1 && !cell.is_busy() && cell.branching.is_none()
        });
        is_plain.then(|| self.owner(py))
    }

    /// The run of a single-run vector, checked against the cell of its graph.
    pub fn only_range(&self, py: Python<'_>, cell: &Cell) -> PyResult<Range> {
        let Some(run) = self.runs.first() else {
            return Err(PyValueError::new_err("a Vector needs at least one number"));
        };
        // SAFETY: the GIL is held, so no other thread changes the handles.
        let handle = unsafe { &mut *run.get() };
        let last = NodeId::from_index(handle.last());
        handle.epoch = cell.graph.check(last, handle.epoch).or_raise(py)?;
        Ok(handle.range())
    }

    /// Node `k` of `home`, its graph, checked.
    fn node_at(&self, home: &Bound<'_, PyGraph>, k: usize) -> PyResult<NodeId> {
        let py = home.py();
        let mut k = k;
        for run in &self.runs {
            // SAFETY: the GIL is held, so no other thread changes the handles.
            let handle = unsafe { &mut *run.get() };
            match k.checked_sub(handle.range().len()) {
                Some(rest) => k = rest,
                None => {
                    return home.get().look(py, |cell| {
                        let last = NodeId::from_index(handle.last());
                        handle.epoch = cell.graph.check(last, handle.epoch).or_raise(py)?;
                        Ok(NodeId::from_index(handle.start + k as u32))
                    });
                }
            }
        }
        Err(PyIndexError::new_err("Vector index out of range"))
    }

    /// Reads a number of each node.
    fn read(&self, py: Python<'_>, grads: bool) -> PyResult<Numbers> {
        self.home().get().not_traced(py, "reading .data or .grad")?;
        self.look(py, |_, cell| {
            let ranges = self.ranges_in(py, cell)?;
            if cell.graph.scalar_type().fits_float() {
                return cell.graph.floats(&ranges, grads).or_raise(py).map(Numbers::Floats);
            }
            let nodes = ranges.iter().flat_map(|range| range.nodes());
            let numbers = nodes.map(|node| cell.graph.number(node, grads));
            let numbers = numbers.collect::<burtorch_core::Result<Vec<_>>>().or_raise(py)?;
            if !cell.holds_samples {
                return Ok(Numbers::Special(numbers));
            }
            let common = numbers.into_iter().map(|number| match number {
                AnyNumber::Lanes(lanes) => value::samples::common(&lanes, "the numbers of a Vector"),
                number => Ok(number.scalar()),
            });
            common.collect::<PyResult<Vec<_>>>().map(Numbers::Floats)
        })
    }

    /// The numbers, or the gradients, for Python.
    fn array<'py>(&self, py: Python<'py>, of_grads: bool) -> PyResult<Bound<'py, PyAny>> {
        let array = self.look(py, |owner, cell| {
            let ranges = self.ranges_in(py, cell)?;
            if let [range] = ranges[..]
                && let Some(array) = crate::node::node_values::shared(owner, cell, range, of_grads)
            {
                return Ok(Some(array));
            }
            crate::node::node_values::copied(py, cell, &ranges, of_grads)
        })?;
        match (array, self) {
            (Some(array), _) => Ok(Bound::new(py, array)?.into_any()),
            (None, vector) => match vector.read(py, of_grads)? {
                Numbers::Special(numbers) => {
                    let objects = numbers.into_iter().enumerate().map(|(k, number)| {
                        ask_at(py, k)?;
                        numbers::into_python(py, number)
                    });
                    Ok(pyo3::types::PyTuple::new(py, objects.collect::<PyResult<Vec<_>>>()?)?.into_any())
                }
                Numbers::Floats(floats) => Ok(Bound::new(py, FlatArray::copied(&floats))?.into_any()),
            },
        }
    }

    /// Writes Python's numbers to the nodes of a graph whose numbers are wider than floats.
    fn write_special(&self, py: Python<'_>, data: &Bound<'_, PyAny>, into: ScalarType, grads: bool) -> PyResult<()> {
        let is_one = number_of(data)?.is_some();
        let data = if is_one { vec![of_node::expect(data, into)?] } else { of_node::read_many(data, into)? };
        if !is_one && data.len() != self.n() {
            return Err(wrong_count(self.n(), data.len()));
        }
        self.change(py, |cell| {
            let ranges = self.ranges_in(py, cell)?;
            let nodes = ranges.iter().flat_map(|r| (0..r.len()).filter_map(|k| r.get(k)));
            for (k, node) in nodes.enumerate() {
                cell.graph.set_number(node, &data[if is_one { 0 } else { k }], grads).or_raise(py)?;
            }
            Ok(())
        })
    }

    /// Writes a number to each node; a single number goes to all.
    fn write(&self, py: Python<'_>, data: &Bound<'_, PyAny>, grads: bool) -> PyResult<()> {
        self.home().get().not_traced(py, "assigning .data or .grad")?;
        let scalar_type = self.home().get().scalar_type(py)?;
        if !scalar_type.fits_float() {
            return self.write_special(py, data, scalar_type, grads);
        }
        let data = match number_of(data)? {
            Some(x) => vec![x; self.n()],
            None => numbers(data)?,
        };
        if data.len() != self.n() {
            return Err(wrong_count(self.n(), data.len()));
        }
        self.change(py, |cell| {
            let ranges = self.ranges_in(py, cell)?;
            let nodes = ranges.iter().flat_map(|r| (0..r.len()).filter_map(|k| r.get(k)));
            for (node, &x) in nodes.zip(&data) {
                cell.graph.set_number(node, &AnyNumber::One(x), grads).or_raise(py)?;
            }
            Ok(())
        })
    }
}

/// Removes unreachable nodes if there are enough nodes to examine; before operands are read.
pub fn reclaim_if_due(py: Python<'_>, cell: &mut Cell) -> PyResult<()> {
    cell.collect_if_due().or_raise(py)
}

/// A Value for a node of `owner`.
pub fn wrap<'py>(owner: &Bound<'py, PyGraph>, node: NodeId) -> PyResult<Bound<'py, PyAny>> {
    owner.get().look(owner.py(), |cell| {
        let epoch = cell.graph.epoch();
        // SAFETY: `cell` is the cell of `owner`; a reference to the new object is ours.
        unsafe {
            let made = value::new_object(owner.as_ptr(), cell, node.index(), epoch);
            Bound::from_owned_ptr_or_err(owner.py(), made)
        }
    })
}

/// A Value for a node appended without a value, unless nothing is recorded: then it has one.
pub fn wrap_pending<'py>(owner: &Bound<'py, PyGraph>, node: NodeId) -> PyResult<Bound<'py, PyAny>> {
    owner.get().look(owner.py(), |cell| {
        let (epoch, records) = (cell.graph.epoch(), !matches!(cell.graph.op(node), Ok(Op::Constant)));
        cell.n_unevaluated += usize::from(records);
        let epoch = epoch | if records { UNEVALUATED } else { 0 };
        // SAFETY: `cell` is the cell of `owner`; a reference to the new object is ours.
        unsafe {
            let made = value::new_object(owner.as_ptr(), cell, node.index(), epoch);
            Bound::from_owned_ptr_or_err(owner.py(), made)
        }
    })
}

/// The numbers of a Vector.
enum Numbers {
    /// As floats.
    Floats(Vec<f64>),
    /// Of a graph of lanes, or of float128.
    Special(Vec<AnyNumber>),
}

fn wrong_count(expected: usize, found: usize) -> PyErr {
    PyValueError::new_err(format!("expected {expected} numbers, found {found}"))
}

/// A Value on the current graph that reads the one number of `slice`, which is part of `tensor`.
pub fn parameter_value<'py>(tensor: &Bound<'py, PyTensor>, slice: Slice) -> PyResult<Bound<'py, PyAny>> {
    let py = tensor.py();
    let owner: Bound<'py, PyGraph> = crate::graph::current_graph(py)?.into_bound(py).cast_into()?;
    let nodes = atomically(&owner, |cell| parameter_nodes(py, cell, tensor.get().owner(), slice))?;
    nodes.made(|nodes| match nodes.first() {
        Some(&node) => wrap(&owner, node),
        None => Err(PyIndexError::new_err("no such number")),
    })
}

/// The views of a vector.
fn views(ranges: Vec<Range>) -> Vec<View> {
    ranges.into_iter().map(View::Nodes).collect()
}

/// Adds the class and the n-ary functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyVector>()?;
    methods::register(m.py())?;
    register_functions(m)
}

/// The pointer of a result, or null with the error set.
fn finish(result: PyResult<Bound<'_, PyAny>>) -> *mut ffi::PyObject {
    match result {
        Ok(object) => object.into_ptr(),
        Err(error) => crate::convert::entry::raise_python(error),
    }
}
