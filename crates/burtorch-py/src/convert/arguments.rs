//! Counts and dtypes as arguments: any other object is refused by one error that names the argument.

use std::ops::RangeInclusive;

use burtorch_core::nn::Activation;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::convert::errors::{IntoPython, if_any};
use crate::convert::signals::repr_of;

/// An integer argument. Anything but an integer is a TypeError before the call starts, which names the argument; a number out of
/// range is kept, to be refused by name.
pub struct Count(Result<usize, String>);

impl<'py> FromPyObject<'_, 'py> for Count {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        match object.extract::<usize>() {
            Ok(n) => Ok(Count(Ok(n))),
            Err(error) if error.is_instance_of::<PyOverflowError>(object.py()) => {
                Ok(Count(Err(object.str()?.to_string_lossy().into_owned())))
            }
            Err(error) => Err(error),
        }
    }
}

impl Count {
    /// The number, or a ValueError with the range of the argument `name`.
    pub fn within(&self, name: &str, range: RangeInclusive<usize>) -> PyResult<usize> {
        match &self.0 {
            Ok(n) if range.contains(n) => Ok(*n),
            found => {
                let is_large = found.as_ref().is_err_and(|found| !found.starts_with('-'));
                let found = found.as_ref().map_or_else(String::clone, usize::to_string);
                let expected = match (*range.start(), *range.end()) {
                    (least, usize::MAX) if is_large => format!("from {least} to 2**64 - 1"),
                    (least, usize::MAX) => format!("at least {least}"),
                    (least, most) => format!("from {least} to {most}"),
                };
                Err(PyValueError::new_err(format!("{name} must be {expected}, found {found}")))
            }
        }
    }

    /// A count of at least one.
    pub fn positive(&self, name: &str) -> PyResult<usize> {
        self.within(name, 1..=usize::MAX)
    }

    /// A seed, round or client of random draws.
    pub fn of_draws(&self, name: &str) -> PyResult<u64> {
        self.within(name, 0..=usize::MAX).map(|n| n as u64)
    }

    /// A number of nodes, which fits in 32 bits.
    pub fn of_nodes(&self, name: &str) -> PyResult<u32> {
        let n = self.within(name, 0..=u32::MAX as usize)?;
        Ok(u32::try_from(n).unwrap_or(u32::MAX))
    }
}

macro_rules! readers {
    ($least:literal: $($name:ident)*) => { $(
        pub fn $name(object: &Bound<'_, PyAny>) -> PyResult<usize> {
            object.extract::<Count>()?.within(stringify!($name), $least..=usize::MAX)
        }
    )* };
}

/// Readers of arguments with defaults, which a [`Count`] cannot have: a number that is too small is a ValueError that names the
/// argument.
pub mod sizes {
    use super::{Bound, Count, PyAny, PyAnyMethods, PyResult};

    readers! { 1: vocab context embedding hidden layers heads width expansion n_in n_out }
    readers! { 0: size start stop n warm_up }

    pub fn seed(object: &Bound<'_, PyAny>) -> PyResult<u64> {
        object.extract::<Count>()?.of_draws("seed")
    }

    pub fn round(object: &Bound<'_, PyAny>) -> PyResult<u64> {
        object.extract::<Count>()?.of_draws("round")
    }

    pub fn client(object: &Bound<'_, PyAny>) -> PyResult<u64> {
        object.extract::<Count>()?.of_draws("client")
    }
}

/// The name of a dtype; for anything else a TypeError lists the valid names.
pub struct DtypeName(String);

impl DtypeName {
    /// The name.
    pub fn new(name: &str) -> Self {
        DtypeName(name.to_string())
    }

    /// The given number.
    pub fn name(&self) -> &str {
        &self.0
    }
}

impl<'py> FromPyObject<'_, 'py> for DtypeName {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(name) = object.cast::<PyString>() {
            return Ok(DtypeName::new(name.to_str()?));
        }
        // The types and dtypes of NumPy have the same names.
        let named =
            |attribute| if_any(object.py(), object.getattr(attribute).and_then(|name| name.extract::<String>()));
        let known = |name: &String| burtorch_core::DType::ALL.iter().any(|dtype| dtype.name() == name);
        let own = match named("name")? {
            Some(name) => Some(name),
            None => named("__name__")?,
        };
        match own.filter(known) {
            Some(own) => Ok(DtypeName(own)),
            None => {
                let found = repr_of(&object)?;
                Err(PyTypeError::new_err(format!("a dtype must be a string, such as \"float32\", found {found}")))
            }
        }
    }
}

/// The activation by its Python name; None is the identity.
pub fn activation_named(py: Python<'_>, name: Option<&str>) -> PyResult<Activation> {
    name.map_or(Ok(Activation::Identity), |name| Activation::from_name(name).or_raise(py))
}
