//! The number of a `bt.parameter`.
//!
//! Promises: atomic reads and writes from any thread.

use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::prelude::*;

/// A number that may change without new traces.
///
/// A function that captures a plain number takes it for constant and is traced again when it changes; a parameter
/// is read at every call. It receives no gradient: for that, make it an argument. Outside traced functions it acts
/// as its number.
///
/// Args:
///     x: the number, a float.
///
/// Raises:
///     TypeError: x is not a real number.
///
/// Costs a few nanoseconds per call of a function that uses it.
///
/// Example:
///     >>> import burtorch as bt
///     >>> rate = bt.parameter(2.0)
///     >>> @bt.function
///     ... def f(x):
///     ...     return rate * x * x
///     >>> f(3.0)
///     18.0
///     >>> rate.value = 10.0
///     >>> f(3.0), f.stats()["traced"]
///     (90.0, 1)
#[pyclass(frozen, name = "parameter", module = "burtorch", weakref)]
pub struct PyParameter {
    bits: AtomicU64,
}

impl PyParameter {
    /// A parameter with this number.
    pub fn of(x: f64) -> Self {
        PyParameter { bits: AtomicU64::new(x.to_bits()) }
    }

    /// The number.
    #[inline(always)]
    pub fn number(&self) -> f64 {
        f64::from_bits(self.bits.load(Ordering::Relaxed))
    }

    /// Changes the number.
    pub fn set(&self, x: f64) {
        self.bits.store(x.to_bits(), Ordering::Relaxed);
    }
}
