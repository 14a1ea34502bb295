//! Parameters as the ops and sweeps of a graph take them.
//!
//! Promises: all parameters of one call are locked together and let go at its end; a graph keeps those alive that its
//! nodes read, and no others.

use burtorch_core::{Error, Float, Gradients, NodeId, Parameters, Slice, bf16, f16};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::cell::{Cell, with_graph};
use crate::errors::IntoPython;
use crate::params::{AnyParameters, PyParameters, with_params};

/// A float that parameters may hold.
pub trait Held: Float {
    /// The parameters inside, if they hold this type.
    fn of(any: &mut AnyParameters) -> Option<&mut Parameters<'static, Self>>;

    /// The same, to be read.
    fn of_ref(any: &AnyParameters) -> Option<&Parameters<'static, Self>>;
}

macro_rules! held {
    ($t:ty, $variant:ident) => {
        impl Held for $t {
            fn of(any: &mut AnyParameters) -> Option<&mut Parameters<'static, $t>> {
                match any {
                    AnyParameters::$variant(params) => Some(params),
                    _ => None,
                }
            }

            fn of_ref(any: &AnyParameters) -> Option<&Parameters<'static, $t>> {
                match any {
                    AnyParameters::$variant(params) => Some(params),
                    _ => None,
                }
            }
        }
    };
}
held!(f32, F32);
held!(f64, F64);
held!(f16, F16);
held!(bf16, BF16);
held!(f128, F128);

/// Runs `f` with the parameters, which must be of the graph's dtype. A single one, the usual case, costs no memory.
fn locked<E: Held, R>(
    py: Python<'_>,
    parameters: &[Py<PyParameters>],
    f: impl FnOnce(&mut [&mut Parameters<'static, E>]) -> R,
) -> PyResult<R> {
    let wrong = |owner: &Py<PyParameters>| wrong_dtype(E::DTYPE.name(), owner.get().dtype_of().name());
    if let [only] = parameters {
        let mut guard = only.get().enter(py)?;
        return Ok(f(&mut [E::of(&mut guard).ok_or_else(|| wrong(only))?]));
    }
    let mut guards = parameters.iter().map(|p| p.get().enter(py)).collect::<PyResult<Vec<_>>>()?;
    let mut all = Vec::with_capacity(guards.len());
    for (guard, owner) in guards.iter_mut().zip(parameters) {
        all.push(E::of(guard).ok_or_else(|| wrong(owner))?);
    }
    Ok(f(&mut all))
}

/// Runs `f` with the gradients of the parameters that a graph reads.
pub fn with_gradients<E: Held, R>(
    py: Python<'_>,
    parameters: &[Py<PyParameters>],
    f: impl FnOnce(&mut [Gradients<'_, E>]) -> R,
) -> PyResult<R> {
    locked(py, parameters, |all: &mut [&mut Parameters<'static, E>]| match all {
        [only] => f(&mut [only.gradients()]),
        _ => f(&mut all.iter_mut().map(|params| params.gradients()).collect::<Vec<_>>()),
    })
}

/// As [`with_gradients`], where the sweep overwrites the gradients of `owner`, or `memory` of as many numbers instead of
/// them. They are 0 where no node reads `owner`.
pub fn with_gradients_anew<E: Held, R>(
    py: Python<'_>,
    parameters: &[Py<PyParameters>],
    (owner, memory): (&Py<PyParameters>, Option<&mut [E]>),
    f: impl FnOnce(&mut [Gradients<'_, E>]) -> R,
) -> PyResult<R> {
    if !parameters.iter().any(|p| p.is(owner)) {
        let all: Vec<Py<PyParameters>> = parameters.iter().chain([owner]).map(|p| p.clone_ref(py)).collect();
        return with_gradients_anew(py, &all, (owner, memory), f);
    }
    let place = parameters.iter().position(|p| p.is(owner)).unwrap_or(0);
    locked(py, parameters, |all: &mut [&mut Parameters<'static, E>]| {
        let (before, rest) = all.split_at_mut(place);
        let Some((target, after)) = rest.split_first_mut() else {
            return Err(Error::MissingParameters);
        };
        if before.is_empty() && after.is_empty() {
            return match memory {
                None => Ok(target.overwrite_gradients(|gradients| f(&mut [gradients]))),
                Some(memory) => target.overwrite_gradients_in(memory, |gradients| f(&mut [gradients])),
            };
        }
        let others: Vec<Gradients<'_, E>> = before.iter_mut().chain(after).map(|params| params.gradients()).collect();
        // A graph finds gradients by their parameters' identity, in any order.
        let together =
            |gradients: Gradients<'_, E>| f(&mut std::iter::once(gradients).chain(others).collect::<Vec<_>>());
        match memory {
            None => Ok(target.overwrite_gradients(together)),
            Some(memory) => target.overwrite_gradients_in(memory, together),
        }
    })?
    .or_raise(py)
}

/// As [`with_gradients`], where the gradients of one of the parameters are added to other memory, as long as they are.
pub fn with_gradients_in<E: Held, R>(
    py: Python<'_>,
    parameters: &[Py<PyParameters>],
    (owner, memory): (&Py<PyParameters>, &mut [E]),
    f: impl FnOnce(&mut [Gradients<'_, E>]) -> R,
) -> PyResult<R> {
    let place = parameters.iter().position(|p| p.is(owner));
    let mut memory = Some(memory);
    locked(py, parameters, |all: &mut [&mut Parameters<'static, E>]| {
        let mut gradients: Vec<Gradients<'_, E>> = Vec::with_capacity(all.len());
        for (k, params) in all.iter_mut().enumerate() {
            gradients.push(match memory.take_if(|_| place == Some(k)) {
                Some(memory) => (**params).gradients_into(memory).or_raise(py)?,
                None => params.gradients(),
            });
        }
        Ok(f(&mut gradients))
    })?
}

/// Runs `f` with the parameters, to be read: several threads may at the same time.
pub fn with_values<E: Held, R>(
    py: Python<'_>,
    parameters: &[Py<PyParameters>],
    f: impl FnOnce(&[&Parameters<'static, E>]) -> R,
) -> PyResult<R> {
    let wrong = |owner: &Py<PyParameters>| wrong_dtype(E::DTYPE.name(), owner.get().dtype_of().name());
    if let [only] = parameters {
        let guard = only.get().look(py)?;
        return Ok(f(&[E::of_ref(&guard).ok_or_else(|| wrong(only))?]));
    }
    let guards = parameters.iter().map(|p| p.get().look(py)).collect::<PyResult<Vec<_>>>()?;
    let mut all = Vec::with_capacity(guards.len());
    for (guard, owner) in guards.iter().zip(parameters) {
        all.push(E::of_ref(guard).ok_or_else(|| wrong(owner))?);
    }
    Ok(f(&all))
}

/// Keeps parameters alive that nodes of the graph are about to read, all of one call; forgets those that no node reads any more.
pub fn attach<'a, I>(py: Python<'_>, cell: &mut Cell, new: I) -> PyResult<()>
where
    I: IntoIterator<Item = &'a Py<PyParameters>, IntoIter: Clone>,
{
    let new = new.into_iter();
    let is_there = |cell: &Cell, new: &Py<PyParameters>| cell.parameters.iter().any(|p| p.is(new));
    if new.clone().all(|new| is_there(cell, new)) {
        return Ok(());
    }
    let wanted = cell.graph.scalar_type().elem.name();
    if let Some(found) = new.clone().map(|new| new.get().dtype_of().name()).find(|&found| found != wanted) {
        return Err(wrong_dtype(wanted, found));
    }
    let read = with_graph!(&cell.graph, g => g.stores().to_vec());
    let identity = |p: &Py<PyParameters>| p.get().look(py).map(|any| with_params!(&*any, p => p.id()));
    let identities = cell.parameters.iter().map(identity).collect::<PyResult<Vec<_>>>()?;
    let mut still_read = identities.iter().map(|id| read.contains(id));
    cell.parameters.retain(|old| still_read.next().unwrap_or(true) || new.clone().any(|new| new.is(old)));
    for new in new {
        if is_there(cell, new) {
            continue;
        }
        if cell.parameters.len() >= burtorch_core::graph::MAX_STORES {
            return Err(Error::TooManyParameters { max: burtorch_core::graph::MAX_STORES }).or_raise(py);
        }
        cell.parameters.push(new.clone_ref(py));
    }
    Ok(())
}

/// Appends a node for each number of a slice.
pub fn parameter_nodes(
    py: Python<'_>,
    cell: &mut Cell,
    owner: &Py<PyParameters>,
    slice: Slice,
) -> PyResult<Vec<NodeId>> {
    attach(py, cell, [owner])?;
    let parameters = std::slice::from_ref(owner);
    with_graph!(&mut cell.graph, g => with_values(py, parameters, |params| {
        let read = |k| params.first().ok_or(Error::MissingParameters).and_then(|p| g.parameter(p, slice, k));
        (0..slice.len()).map(read).collect::<Result<Vec<_>, _>>()
    })?.or_raise(py))
}

fn wrong_dtype(wanted: &str, found: &str) -> PyErr {
    PyTypeError::new_err(format!("a {wanted} graph cannot read {found} Parameters; make both of one dtype"))
}
