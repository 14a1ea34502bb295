//! The classes of compressors.

use burtorch_core::compress::{Count, Quantiser, Sparsifier};
use pyo3::PyClass;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyFloat;

use super::compressor::PyCompressor;
use crate::convert::arguments::Count as Integer;
use crate::convert::numbers::{argument_number, optional_number};
use crate::convert::signals::{repr_of, text_of};

type Made<T> = PyResult<PyClassInitializer<T>>;

fn made<T>(py: Python<'_>, class: T, sparsifier: Sparsifier, quantiser: Quantiser) -> Made<T>
where
    T: PyClass<BaseType = PyCompressor>,
{
    Ok(PyClassInitializer::from(PyCompressor::of(py, sparsifier, quantiser)?).add_subclass(class))
}

/// The value of `k` or `fraction`.
fn count(k: Option<&Bound<'_, PyAny>>, fraction: Option<f64>) -> PyResult<Count> {
    match (k, fraction) {
        (Some(k), None) if k.is_instance_of::<PyFloat>() => {
            let k = text_of(k);
            let message = format!("k must be an int, found {k}; fraction={k} sends a share of the coordinates");
            Err(PyTypeError::new_err(message))
        }
        (Some(k), None) => Ok(Count::Of(k.extract::<Integer>()?.positive("k")?)),
        (None, Some(share)) => Ok(Count::Fraction(share)),
        _ => Err(PyTypeError::new_err("give k, the number of coordinates to send, or fraction=, their share")),
    }
}

fn levels(levels: Integer) -> PyResult<u16> {
    Ok(u16::try_from(levels.within("levels", 1..=usize::from(u16::MAX))?).unwrap_or(u16::MAX))
}

/// Defines classes without constants.
macro_rules! plain {
    ($($(#[$doc:meta])* $class:ident $sparsifier:ident $quantiser:ident)*) => { $(
        $(#[$doc])*
        #[pyclass(frozen, extends = PyCompressor, module = "burtorch.compress")]
        pub struct $class;

        #[pymethods]
        impl $class {
            #[new]
            fn new(py: Python<'_>) -> Made<Self> {
                made(py, $class, Sparsifier::$sparsifier, Quantiser::$quantiser)
            }
        }
    )* };
}

/// Defines classes that send k coordinates or a fraction of them.
macro_rules! counted {
    ($($(#[$doc:meta])* $class:ident $sparsifier:ident)*) => { $(
        $(#[$doc])*
        #[pyclass(frozen, extends = PyCompressor, module = "burtorch.compress")]
        pub struct $class;

        #[pymethods]
        impl $class {
            #[new]
            #[pyo3(signature = (k=None, fraction=None))]
            fn new(py: Python<'_>, k: Option<&Bound<'_, PyAny>>, #[pyo3(from_py_with = optional_number)] fraction: Option<f64>) -> Made<Self> {
                made(py, $class, Sparsifier::$sparsifier(count(k, fraction)?), Quantiser::None)
            }
        }
    )* };
}

/// Defines classes that round to levels.
macro_rules! levelled {
    ($($(#[$doc:meta])* $class:ident $quantiser:ident)*) => { $(
        $(#[$doc])*
        #[pyclass(frozen, extends = PyCompressor, module = "burtorch.compress")]
        #[allow(clippy::upper_case_acronyms)] // the names of the field
        pub struct $class;

        #[pymethods]
        impl $class {
            #[new]
            fn new(py: Python<'_>, levels: Integer) -> Made<Self> {
                made(py, $class, Sparsifier::All, Quantiser::$quantiser(self::levels(levels)?))
            }
        }
    )* };
}

plain! {
    /// Sends the vector as it is: omega = 0, alpha = 1.
    Identity All None

    /// Sends the client's part of a random partition of the coordinates among `n_clients`, times `n_clients`.
    ///
    /// Unbiased with omega = n - 1; the mean of all clients has the variance constants A = B = 1 (Szlendak, Tyurin and Richtarik
    /// 2021). All clients share the partition, whichever client their draw has.
    ///
    /// Example:
    ///     >>> import burtorch as bt
    ///     >>> c, draw = bt.compress.PermK(), bt.compress.Draw(seed=0)
    ///     >>> parts = [c.compress([1.0] * 6, draw, client=i, n_clients=3) for i in range(3)]
    ///     >>> sum(part.decompress() for part in parts).tolist()
    ///     [3.0, 3.0, 3.0, 3.0, 3.0, 3.0]
    PermK PermK None

    /// Rounds each number to one of the two nearest powers of two, unbiased: omega = 1/8 (Horvath et al. 2019).
    ///
    /// 9 bits for a float32, 12 for a float64. Numbers below the least normal one go to it or to 0; ValueError for numbers above
    /// the largest power of two.
    Natural All Natural

    /// Rounds each number to 0 or plus or minus the largest magnitude, unbiased: omega = (sqrt(d) - 1)/2 (Wen et al. 2017).
    TernGrad All Ternary

    /// Sends the signs and the mean magnitude: alpha = 1/d (Karimireddy et al. 2019). A zero counts as positive.
    ScaledSign All Sign
}

counted! {
    /// Sends `k` random coordinates, or a `fraction` of all, times d/k: unbiased, omega = d/k - 1.
    ///
    /// Example:
    ///     >>> import burtorch as bt
    ///     >>> c = bt.compress.RandK(fraction=0.25)
    ///     >>> message = c.compress([1.0] * 8, bt.compress.Draw(seed=0))
    ///     >>> message.values.tolist(), c.omega(8)
    ///     ([4.0, 4.0], 3.0)
    RandK RandK

    /// Sends `k` neighbouring coordinates from a random one on, wrapping around, or a `fraction` of all, times d/k.
    ///
    /// Unbiased with omega = d/k - 1, as RandK, but reads contiguous memory (Burlachenko and Richtarik 2024).
    RandSeqK RandSeqK

    /// Sends the `k` coordinates of the largest magnitude, or a `fraction` of all: alpha = k/d.
    ///
    /// Of equal magnitudes the lowest indices are sent, infinities before all others; ValueError for a NaN.
    TopK TopK

    /// Sends at most `k` of the largest coordinates, or at most a `fraction`, such that E |C(x) - x|^2 = (1 - k/d) |x|^2 exactly.
    ///
    /// The least t coordinates that hold k/d of |x|^2, or t - 1 of them, as a draw decides (Burlachenko and Richtarik 2024).
    TopLEK TopLeK
}

levelled! {
    /// Rounds each number to one of the two nearest multiples of |x|/levels, unbiased: omega = min(d/s^2, sqrt(d)/s).
    ///
    /// Standard dithering in the Euclidean norm (Alistarh et al. 2017); 1 to 65535 levels.
    QSGD Dithering

    /// Rounds each number to one of the two nearest of the `levels` values 0, |x|, |x|/2, |x|/4, ..., unbiased.
    ///
    /// omega = 1/8 + b min(1, b) with b = sqrt(d) 2^(1 - levels) (Horvath et al. 2019); 1 to 100 levels.
    NaturalDithering NaturalDithering
}

/// Sends the vector, divided by `p`, with probability `p`, and otherwise nothing: unbiased, omega = 1/p - 1.
#[pyclass(frozen, extends = PyCompressor, module = "burtorch.compress")]
pub struct Bernoulli;

#[pymethods]
impl Bernoulli {
    #[new]
    fn new(py: Python<'_>, #[pyo3(from_py_with = argument_number)] p: f64) -> Made<Self> {
        made(py, Bernoulli, Sparsifier::Bernoulli(p), Quantiser::None)
    }
}

/// A sparsifier, then a quantiser of the numbers it keeps.
///
/// Args:
///     sparsifier: RandK, RandSeqK, PermK, TopK, TopLEK, Bernoulli or Identity.
///     quantiser: Natural, QSGD, NaturalDithering, TernGrad, ScaledSign or Identity.
///
/// For two unbiased ones 1 + omega is the product of both; for TopK or TopLEK and an unbiased one alpha = (k/d) (1 - omega),
/// if that is positive.
///
/// Example:
///     >>> import burtorch as bt
///     >>> c = bt.compress.Compose(bt.compress.RandK(2), bt.compress.Natural())
///     >>> c, c.omega(4)
///     (Compose(RandK(k=2), Natural()), 1.25)
#[pyclass(frozen, extends = PyCompressor, module = "burtorch.compress")]
pub struct Compose;

#[pymethods]
impl Compose {
    #[new]
    fn new(py: Python<'_>, sparsifier: &Bound<'_, PyCompressor>, quantiser: &Bound<'_, PyCompressor>) -> Made<Self> {
        let (first, second) = (sparsifier.get().compressor(), quantiser.get().compressor());
        if first.quantiser() == Quantiser::None && second.sparsifier() == Sparsifier::All {
            return made(py, Compose, first.sparsifier(), second.quantiser());
        }
        let found = format!("{} and {}", repr_of(sparsifier)?, repr_of(quantiser)?);
        Err(PyValueError::new_err(format!("Compose takes a sparsifier followed by a quantiser, found {found}")))
    }
}

/// Adds the classes to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Identity>()?;
    m.add_class::<RandK>()?;
    m.add_class::<RandSeqK>()?;
    m.add_class::<PermK>()?;
    m.add_class::<TopK>()?;
    m.add_class::<TopLEK>()?;
    m.add_class::<Natural>()?;
    m.add_class::<QSGD>()?;
    m.add_class::<NaturalDithering>()?;
    m.add_class::<TernGrad>()?;
    m.add_class::<ScaledSign>()?;
    m.add_class::<Bernoulli>()?;
    m.add_class::<Compose>()
}
