//! Ops that other crates, and users, define: a function of numbers with its derivative.
//!
//! [`append`] evaluates a primitive on nodes of a graph and appends one node with its value and its partials, so a sweep runs
//! no code of the primitive. Added to a [`Recording`](super::Recording), the node becomes a call: a replay evaluates the
//! primitive at its own numbers, row by row in a batch. A primitive that is [`register`]ed is found by its name when a program
//! is loaded from a file.
//!
//! Promises: a primitive that fails leaves the graph unchanged, and makes a replay or a row report that it is not valid
//! there. First derivatives only. Does not know what a primitive computes.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::graph::{Graph, NodeId};
use crate::scalar::Float;

/// Why a primitive has no value or no derivative at some numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed;

/// A function of numbers that is differentiated by its own code. It must always compute the same from the same numbers.
///
/// ```
/// use std::sync::Arc;
/// use burtorch_core::program::primitive::{self, Failed, Primitive};
/// use burtorch_core::Graph;
///
/// struct Hypotenuse;
/// impl Primitive for Hypotenuse {
///     fn name(&self) -> &str {
///         "hypotenuse"
///     }
///     fn value(&self, x: &[f64]) -> Result<f64, Failed> {
///         Ok(x[0].hypot(x[1]))
///     }
///     fn partials(&self, x: &[f64], y: f64, partials: &mut [f64]) -> Result<(), Failed> {
///         (partials[0], partials[1]) = (x[0] / y, x[1] / y);
///         Ok(())
///     }
/// }
///
/// let mut graph = Graph::<f64>::new();
/// let (x, y) = (graph.leaf(3.0)?, graph.leaf(4.0)?);
/// let z = primitive::append(&(Arc::new(Hypotenuse) as Arc<dyn Primitive>), &mut graph, &[x, y], None)?;
/// graph.backward(z)?;
/// assert_eq!((graph.value(z)?, graph.grad(y)?), (5.0, 0.8));
/// # Ok::<(), burtorch_core::Error>(())
/// ```
pub trait Primitive: Send + Sync {
    /// The primitive's name in listings and files.
    fn name(&self) -> &str;

    /// The value at `x`.
    fn value(&self, x: &[f64]) -> std::result::Result<f64, Failed>;

    /// Writes the partial derivatives at `x`, where the value is `y`.
    fn partials(&self, x: &[f64], y: f64, partials: &mut [f64]) -> std::result::Result<(), Failed>;

    /// The derivative along `direction`, if it can be computed better than from partials.
    fn tangent(&self, x: &[f64], y: f64, direction: &[f64]) -> Option<std::result::Result<f64, Failed>> {
        let _ = (x, y, direction);
        None
    }
}

/// A primitive as programs hold it.
#[derive(Clone)]
pub struct Called(pub Arc<dyn Primitive>);

impl fmt::Debug for Called {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

impl PartialEq for Called {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Primitives by name.
static REGISTERED: Mutex<Vec<Called>> = Mutex::new(Vec::new());

/// Registers a primitive by its name, replacing an earlier one of the same name.
pub fn register(primitive: Arc<dyn Primitive>) {
    let mut all = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|known| known.0.name() != primitive.name());
    all.push(Called(primitive));
}

/// The primitive registered under a name.
pub fn registered(name: &str) -> Option<Arc<dyn Primitive>> {
    let all = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    all.iter().find(|known| known.0.name() == name).map(|known| known.0.clone())
}

/// The error for saving a program that calls the primitive of this name.
pub(super) fn not_saved(name: &str) -> Error {
    Error::BadArgument {
        what: "a program that is saved",
        expected: "free of primitives, or with registered ones: a file holds no code".into(),
        found: name.into(),
    }
}

/// Appends a primitive of `operands`. `calls`, of a recording, is told about the node.
///
/// Fails where the primitive does, without appending anything.
pub fn append<S: Float>(
    primitive: &Arc<dyn Primitive>,
    graph: &mut Graph<'_, S>,
    operands: &[NodeId],
    calls: Option<&mut Vec<(NodeId, Called)>>,
) -> Result<NodeId> {
    let x: Vec<f64> = operands.iter().map(|&x| graph.value(x).map(S::to_f64)).collect::<Result<_>>()?;
    let (y, partials) = evaluate(primitive.as_ref(), &x)?;
    append_evaluated(primitive, graph, operands, (y, &partials), calls)
}

/// The value and the partials of a primitive.
pub fn evaluate(primitive: &dyn Primitive, x: &[f64]) -> Result<(f64, Vec<f64>)> {
    let failed = |Failed| Error::BadArgument {
        what: "a primitive",
        expected: "a value and partials at its operands".into(),
        found: format!("none of {} at {x:?}", primitive.name()),
    };
    let mut partials = vec![0.0; x.len()];
    let y = primitive.value(x).map_err(failed)?;
    primitive.partials(x, y, &mut partials).map_err(failed)?;
    Ok((y, partials))
}

/// As [`append`], of a primitive that has been evaluated at the values of `operands`.
pub fn append_evaluated<S: Float>(
    primitive: &Arc<dyn Primitive>,
    graph: &mut Graph<'_, S>,
    operands: &[NodeId],
    (y, partials): (f64, &[f64]),
    calls: Option<&mut Vec<(NodeId, Called)>>,
) -> Result<NodeId> {
    let partials: Vec<S> = partials.iter().map(|&p| S::from_f64(p)).collect();
    let node = graph.linearised(operands, &partials, S::from_f64(y))?;
    if let Some(calls) = calls {
        calls.push((node, Called(primitive.clone())));
    }
    Ok(node)
}
