//! The operands of a Value: `operands`, and micrograd's names for it.
//!
//! Promises: one node is one object while a Value of it is alive, so code that draws by `id()` is right; in a branch a
//! frozen node is the Value of its own graph. Objects are found by reading the handles that are new since the last call, so
//! making Values costs nothing more, and traversing a graph is linear.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::c_void;

use burtorch_core::NodeId;
use burtorch_core::ops::{Arity, Op};
use pyo3::IntoPyObjectExt;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PySet, PyTuple, PyWeakrefReference};

use super::check::{checked, checked_for_sweep};
use super::object::{ValueObject, cell_of, graph_of, new_object, object_of};
use crate::convert::critical_section::{living, locked};
use crate::convert::entry::{attached, raise_python};
use crate::convert::errors::IntoPython;
use crate::graph::PyGraph;
use crate::graph::branches::trunk_of;
use crate::graph::parameters::with_gradients;
use crate::node::critical_section::slot;

/// `.operands`
pub unsafe extern "C" fn get_operands(value: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: a living Value under the GIL.
    unsafe {
        slot(&[value], || {
            computed(value, |py, value| Ok(PyTuple::new(py, objects(py, value, |_, nodes| nodes)?)?.into_any()))
        })
    }
}

/// `._prev`
pub unsafe extern "C" fn get_prev(value: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // micrograd's exponents are not nodes.
    let without_exponent = |op: Op, mut nodes: Vec<NodeId>| {
        nodes.truncate(if op == Op::PowConstant { 1 } else { nodes.len() });
        nodes
    };
    // SAFETY: as above.
    unsafe {
        slot(&[value], || {
            computed(value, |py, value| Ok(PySet::new(py, objects(py, value, without_exponent)?)?.into_any()))
        })
    }
}

/// `._op`
pub unsafe extern "C" fn get_symbol(value: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: as above; the reference into the graph ends before an object is made.
    unsafe {
        slot(&[value], || {
            computed(value, |py, value| {
                let Some((cell, node)) = checked(value) else { return Err(PyErr::fetch(py)) };
                let graph = &cell.graph;
                let symbol = graph.computed_by(node).map(|op| match (op, graph.operands(node).as_slice()) {
                    (Op::PowConstant, &[_, c]) => graph.float(c).map(|c| format!("**{c}")),
                    _ => Ok(symbol(op).to_string()),
                });
                symbol.flatten().or_raise(py)?.into_bound_py_any(py)
            })
        })
    }
}

/// `v._backward()`
pub unsafe extern "C" fn backward_step(value: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: as above; the graph is that of the Value, and nothing here runs Python code.
    unsafe {
        slot(&[value], || {
            computed(value, |py, value| {
                let Some((cell, node)) = checked_for_sweep(value) else { return Err(PyErr::fetch(py)) };
                cell.not_in_a_branch(py, "_backward()")?;
                let (parameters, graph) = (&cell.parameters, &mut cell.graph);
                with_gradients(py, parameters, |all| graph.backward_step(node, all))?.or_raise(py)?;
                Ok(py.None().into_bound(py))
            })
        })
    }
}

/// An attribute of a Value.
fn computed(
    value: *mut ffi::PyObject,
    f: impl for<'py> FnOnce(Python<'py>, *mut ValueObject) -> PyResult<Bound<'py, PyAny>>,
) -> *mut ffi::PyObject {
    attached(|py| f(py, value.cast()).map_or_else(raise_python, |found| found.into_ptr()))
}

/// micrograd's name of an op; others have the symbol of their operator, or their own name.
fn symbol(op: Op) -> &'static str {
    let info = op.info();
    match info.like.unwrap_or(op) {
        Op::Add => "+",
        Op::Sub => "-",
        Op::Mul => "*",
        Op::Div => "/",
        Op::FloorDivide => "//",
        Op::Remainder => "%",
        Op::Pow => "**",
        Op::Sqr => "**2",
        Op::Pow3 => "**3",
        Op::Inv => "**-1",
        Op::Relu => "ReLU",
        _ if info.arity == Arity::Nullary => "",
        _ => info.name,
    }
}

/// The objects of the operands selected by `choose`, in order.
///
/// # Safety
/// `value` is a living Value; the GIL is held.
unsafe fn objects<'py>(
    py: Python<'py>,
    value: *mut ValueObject,
    choose: impl Fn(Op, Vec<NodeId>) -> Vec<NodeId>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    loop {
        // SAFETY: by the contract of this function.
        if let Some(found) = unsafe { objects_now(py, value, &choose) }? {
            return Ok(found);
        }
    }
}

/// The same, unless nodes were renumbered meanwhile.
///
/// # Safety
/// As for `objects`.
unsafe fn objects_now<'py>(
    py: Python<'py>,
    value: *mut ValueObject,
    choose: &impl Fn(Op, Vec<NodeId>) -> Vec<NodeId>,
) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
    // SAFETY: by the contract of this function. References into cells end before Python code may run, which is where weak
    // references are made: memory for these may start the garbage collector. For a Value it never does.
    unsafe {
        let graphs: Vec<Bound<'py, PyGraph>> = std::iter::successors(Some(graph_of(py, value)), trunk_of).collect();
        graphs.iter().try_for_each(look_at_new_handles)?;
        let Some((cell, node)) = checked(value) else { return Err(PyErr::fetch(py)) };
        let nodes = choose(cell.graph.op(node).or_raise(py)?, cell.graph.operands(node));
        let mut made: HashMap<(*mut ffi::PyObject, NodeId), Bound<'py, PyAny>> = HashMap::new();
        let mut found = Vec::new();
        found.try_reserve_exact(nodes.len()).map_err(|_| no_memory(nodes.len())).or_raise(py)?;
        let epoch = cell.graph.epoch();
        for node in nodes {
            let (owner, node) = home(graph_of(py, value), node);
            let object = match alive(&owner, node) {
                Some(object) => object,
                None => match made.get(&(owner.as_ptr(), node)) {
                    Some(object) => object.clone(),
                    None => {
                        let object = Bound::from_owned_ptr_or_err(py, new_value(&owner, node))?;
                        made.insert((owner.as_ptr(), node), object.clone());
                        object
                    }
                },
            };
            found.push(object);
        }
        // Without a GIL another thread may have renumbered the nodes while this one waited for a lock.
        if checked(value).is_none_or(|(cell, _)| cell.graph.epoch() != epoch) {
            return if ffi::PyErr_Occurred().is_null() { Ok(None) } else { Err(PyErr::fetch(py)) };
        }
        for object in made.into_values() {
            let standing = stand(&object)?;
            // The garbage collector may have run code that read the same operands.
            if !standing.is(&object) {
                found.iter_mut().filter(|found| found.is(&object)).for_each(|found| *found = standing.clone());
            }
        }
        Ok(Some(found))
    }
}

/// A Value for a node, or null with an error set.
///
/// # Safety
/// The node exists.
unsafe fn new_value(owner: &Bound<'_, PyGraph>, node: NodeId) -> *mut ffi::PyObject {
    // SAFETY: a living graph, whose lock is held.
    locked(owner, || unsafe {
        let cell = cell_of(owner.as_ptr());
        let epoch = cell.graph.epoch();
        new_object(owner.as_ptr(), cell, node.index(), epoch)
    })
}

fn no_memory(n: usize) -> burtorch_core::Error {
    burtorch_core::Error::OutOfMemory { bytes: n.saturating_mul(size_of::<usize>()), what: "operands" }
}

/// The graph of a node, and the node there: a proxy of a branch represents a frozen one.
fn home(mut graph: Bound<'_, PyGraph>, mut node: NodeId) -> (Bound<'_, PyGraph>, NodeId) {
    let frozen_at = |graph: &Bound<'_, PyGraph>, node| {
        // SAFETY: a living graph, whose lock is held.
        locked(graph, || unsafe { cell_of(graph.as_ptr()) }.graph.proxied(node))
    };
    while let Some(frozen) = frozen_at(&graph, node)
        && let Some(trunk) = trunk_of(&graph)
    {
        (graph, node) = (trunk, frozen);
    }
    (graph, node)
}

/// The object of a node, if one is alive.
fn alive<'py>(graph: &Bound<'py, PyGraph>, node: NodeId) -> Option<Bound<'py, PyAny>> {
    // SAFETY: the lock of the graph is held; a weak reference of a graph's objects is one to a Value.
    locked(graph, || unsafe {
        let cell = cell_of(graph.as_ptr());
        let object = cell.objects.get(graph.py(), node.index())?;
        let value = object.as_ptr().cast::<ValueObject>();
        let is_it = (*value).owner == graph.as_ptr() && node_now(value) == Some(node);
        is_it.then_some(object)
    })
}

/// The node of a Value, if it still exists.
///
/// # Safety
/// A living Value; the GIL is held; no reference into its cell is in use.
unsafe fn node_now(value: *mut ValueObject) -> Option<NodeId> {
    // SAFETY: by the contract of this function.
    unsafe {
        let (cell, handle) = (cell_of((*value).owner), &(*value).handle);
        let node = NodeId::from_index(handle.start);
        let epoch = handle.epoch & !burtorch_core::graph::UNEVALUATED;
        cell.graph.check(node, epoch).is_ok().then_some(node)
    }
}

/// Makes a Value the object of its node, unless another one is alive. Returns the object. May run Python code.
fn stand<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let reference = PyWeakrefReference::new(object)?.unbind();
    let value = object.as_ptr().cast::<ValueObject>();
    // SAFETY: a living Value, which owns its graph.
    let graph = unsafe { graph_of(py, value) };
    // SAFETY: the lock of the graph is held.
    locked(&graph, || unsafe {
        let Some(node) = node_now(value).filter(|_| (*value).owner == graph.as_ptr()) else {
            return Ok(object.clone());
        };
        if let Some(standing) = alive(&graph, node) {
            return Ok(standing);
        }
        cell_of(graph.as_ptr()).objects.set(py, node.index(), reference);
        Ok(object.clone())
    })
}

/// Makes new Values the objects of their nodes, the oldest first. May run Python code.
fn look_at_new_handles(graph: &Bound<'_, PyGraph>) -> PyResult<()> {
    let py = graph.py();
    let mut values = Vec::new();
    let mut has_room = true;
    // SAFETY: the lock of the graph is held; the memory of a Value is there while its handle is in the list.
    locked(graph, || unsafe {
        let cell = cell_of(graph.as_ptr());
        cell.handles.for_each_unseen(|handle| {
            if handle.is_of_value()
                && handle.start != u32::MAX
                && has_room
                && let Some(value) = living(py, object_of(handle))
            {
                has_room = values.try_reserve(1).is_ok();
                if has_room {
                    values.push(value);
                }
            }
        });
        if has_room {
            cell.handles.set_seen();
        }
    });
    if !has_room {
        return Err(no_memory(values.len())).or_raise(py);
    }
    // Skipped handles are read the next time, with all others.
    let looked = values.iter().rev().try_for_each(|value| stand(value).map(drop));
    // SAFETY: as above.
    looked.inspect_err(|_| locked(graph, || unsafe { cell_of(graph.as_ptr()) }.handles.forget_seen()))
}
