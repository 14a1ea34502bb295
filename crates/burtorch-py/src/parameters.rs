//! Parameters as the ops and sweeps of a graph take them.
//!
//! Promises: all parameters of one call are locked together and let go at its end; a graph keeps those alive that its
//! nodes read, and no others.

use burtorch_core::{Error, Float, Gradients, Parameters};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::cell::{Cell, with_graph};
use crate::errors::IntoPython;
use crate::params::{AnyParameters, PyParameters, with_params};

/// A float that parameters may hold.
pub trait Held: Float {
    /// The parameters inside, if they hold this type.
    fn of(any: &mut AnyParameters) -> Option<&mut Parameters<'static, Self>>;
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
        }
    };
}
held!(f32, F32);
held!(f64, F64);

/// Runs `f` with the parameters, which must be of the graph's dtype.
fn locked<E: Held, R>(
    py: Python<'_>,
    parameters: &[Py<PyParameters>],
    f: impl FnOnce(Vec<&mut Parameters<'static, E>>) -> R,
) -> PyResult<R> {
    let mut guards = parameters.iter().map(|p| p.get().enter(py)).collect::<PyResult<Vec<_>>>()?;
    let mut all = Vec::with_capacity(guards.len());
    for (guard, owner) in guards.iter_mut().zip(parameters) {
        let found = owner.get().dtype_of().name();
        all.push(E::of(guard).ok_or_else(|| {
            let wanted = E::DTYPE.name();
            PyTypeError::new_err(format!("a {wanted} graph cannot read {found} Parameters; make both of one dtype"))
        })?);
    }
    Ok(f(all))
}

/// Runs `f` with the gradients of the parameters that a graph reads.
pub fn with_gradients<E: Held, R>(
    py: Python<'_>,
    parameters: &[Py<PyParameters>],
    f: impl FnOnce(&mut [Gradients<'_, E>]) -> R,
) -> PyResult<R> {
    locked(py, parameters, |all: Vec<&mut Parameters<'static, E>>| {
        let mut gradients: Vec<Gradients<'_, E>> = all.into_iter().map(Parameters::gradients).collect();
        f(&mut gradients)
    })
}

/// Runs `f` with the parameters, to be read.
pub fn with_values<E: Held, R>(
    py: Python<'_>,
    parameters: &[Py<PyParameters>],
    f: impl FnOnce(&[&Parameters<'static, E>]) -> R,
) -> PyResult<R> {
    locked(py, parameters, |all: Vec<&mut Parameters<'static, E>>| {
        let all: Vec<&Parameters<'static, E>> = all.into_iter().map(|p| &*p).collect();
        f(&all)
    })
}

/// Keeps parameters alive that nodes of the graph read or are about to; forgets those that no node reads any more.
pub fn attach(py: Python<'_>, cell: &mut Cell, new: &[Py<PyParameters>]) -> PyResult<()> {
    let read = with_graph!(&cell.graph, g => g.stores().to_vec());
    let identity = |p: &Py<PyParameters>| p.get().with(py, |any| with_params!(any, p => p.id()));
    let mut kept = Vec::new();
    for old in std::mem::take(&mut cell.parameters) {
        if read.contains(&identity(&old)?) {
            kept.push(old);
        }
    }
    for p in new {
        if !kept.iter().any(|k| k.is(p)) {
            kept.push(p.clone_ref(py));
        }
    }
    cell.parameters = kept;
    if cell.parameters.len() > burtorch_core::graph::MAX_STORES {
        return Err(Error::TooManyParameters { max: burtorch_core::graph::MAX_STORES }).or_raise(py);
    }
    Ok(())
}
