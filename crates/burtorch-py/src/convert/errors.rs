//! The exception table: one Python class per kind of misuse, and the class for each core error.
//!
//! Promises: every core error becomes exactly one exception, with the core's message. Does not know values or graphs.

use burtorch_core::Error;
use pyo3::PyErrArguments;
use pyo3::create_exception;
use pyo3::exceptions::{
    PyException, PyFloatingPointError, PyIndexError, PyKeyError, PyMemoryError, PyModuleNotFoundError, PyOSError,
    PyRuntimeWarning, PyTypeError, PyValueError,
};
use pyo3::prelude::*;
use pyo3::types::{PyModule, PyTuple, PyType};

create_exception!(burtorch, BurtorchError, PyException, "The base class of all errors that burtorch defines.");

/// Classes that derive from a built-in exception as well as from `BurtorchError`, created when the module is loaded.
const DERIVED: &[(&str, Builtin, &str)] = &[
    ("StaleValueError", Builtin::Runtime, "The node of a Value, Vector or mark was removed by a rewind or a clear."),
    ("GraphMismatchError", Builtin::Value, "Values, marks or tensors of different graphs or Parameters were mixed."),
    ("GraphFullError", Builtin::Memory, "A fixed graph has no room left, or node ids are exhausted."),
    ("BusyError", Builtin::Runtime, "The graph or the parameters are in use by another call."),
    ("FormatError", Builtin::Value, "A file is damaged, or has another format or structure; nothing was loaded."),
    ("StoppedError", Builtin::Runtime, "A call ended early, because a Stop was set or a deadline passed."),
    ("TraceError", Builtin::Type, "A function cannot be traced as it is written."),
];

/// Warnings, all of them subclasses of `RuntimeWarning`.
const WARNINGS: &[(&str, &str)] = &[
    ("StaleRiskWarning", "A traced function reads a source that a replay cannot watch."),
    ("StaleFunctionWarning", "An audit found an outdated trace, and replaced it."),
];

#[derive(Clone, Copy)]
enum Builtin {
    Runtime,
    Value,
    Memory,
    Type,
}

impl Builtin {
    fn class<'py>(self, py: Python<'py>) -> Bound<'py, PyAny> {
        match self {
            Builtin::Runtime => py.get_type::<pyo3::exceptions::PyRuntimeError>(),
            Builtin::Value => py.get_type::<PyValueError>(),
            Builtin::Memory => py.get_type::<PyMemoryError>(),
            Builtin::Type => py.get_type::<PyTypeError>(),
        }
        .into_any()
    }
}

/// The derived classes, in the order of `DERIVED`, then of `WARNINGS`.
static CLASSES: pyo3::sync::PyOnceLock<Vec<Py<PyAny>>> = pyo3::sync::PyOnceLock::new();

fn classes(py: Python<'_>) -> PyResult<&Vec<Py<PyAny>>> {
    CLASSES.get_or_try_init(py, || {
        let type_ = py.get_type::<pyo3::types::PyType>();
        let errors = DERIVED.iter().map(|&(name, builtin, doc)| {
            (name, doc, vec![py.get_type::<BurtorchError>().into_any(), builtin.class(py)])
        });
        let warnings =
            WARNINGS.iter().map(|&(name, doc)| (name, doc, vec![py.get_type::<PyRuntimeWarning>().into_any()]));
        errors
            .chain(warnings)
            .map(|(name, doc, bases)| {
                let bases = PyTuple::new(py, bases)?;
                let namespace = pyo3::types::PyDict::new(py);
                namespace.set_item("__module__", "burtorch")?;
                namespace.set_item("__doc__", doc)?;
                Ok(type_.call1((name, bases, namespace))?.unbind())
            })
            .collect()
    })
}

/// Adds the exception classes to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("BurtorchError", m.py().get_type::<BurtorchError>())?;
    let names = DERIVED.iter().map(|class| class.0).chain(WARNINGS.iter().map(|class| class.0));
    for (name, class) in names.zip(classes(m.py())?) {
        m.add(name, class.bind(m.py()))?;
    }
    Ok(())
}

/// An exception of the derived class with this `name`. No Python object is created before the exception is raised, so it may
/// be called while a reference into a graph exists: creating one may run the garbage collector, and with it any code.
pub fn derived(py: Python<'_>, name: &str, message: String) -> PyErr {
    let class = classes(py).ok().and_then(|classes| DERIVED.iter().position(|d| d.0 == name).map(|k| &classes[k]));
    match class.map(|class| class.bind(py).cast::<PyType>()) {
        Some(Ok(class)) => PyErr::from_type(class.clone(), (message,)),
        _ => BurtorchError::new_err(message),
    }
}

/// Issues a warning of this name, at the current line of Python.
pub fn warning(py: Python<'_>, name: &str, message: String) -> PyResult<()> {
    let place = WARNINGS.iter().position(|class| class.0 == name).map(|k| DERIVED.len() + k);
    let class = place.map(|k| Ok::<_, PyErr>(classes(py)?[k].bind(py).clone())).transpose()?;
    let category = class.unwrap_or_else(|| py.get_type::<PyRuntimeWarning>().into_any());
    PyErr::warn(py, &category, &std::ffi::CString::new(message).unwrap_or_default(), 1)
}

/// `new` in place of an exception raised by a call of Python itself; an interrupt, an exit or a MemoryError is never
/// replaced.
pub fn instead(py: Python<'_>, error: PyErr, new: PyErr) -> PyErr {
    if is_final(py, &error) { error } else { new }
}

/// Whether an exception is an interrupt, an exit or a MemoryError.
pub fn is_final(py: Python<'_>, error: &PyErr) -> bool {
    !error.is_instance_of::<PyException>(py) || error.is_instance_of::<PyMemoryError>(py)
}

/// The result of a call into Python, or nothing if it raised; interrupts, exits and MemoryErrors are passed on.
pub fn if_any<T>(py: Python<'_>, found: PyResult<T>) -> PyResult<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_final(py, &error) => Err(error),
        Err(_) => Ok(None),
    }
}

/// NumPy, which is an optional dependency: if it is missing, the error says how to install it.
pub fn numpy(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    py.import("numpy").map_err(|error| {
        let is_missing = error.is_instance_of::<PyModuleNotFoundError>(py)
            && error.value(py).getattr("name").and_then(|name| name.eq("numpy")).unwrap_or(false);
        if !is_missing {
            return error;
        }
        PyModuleNotFoundError::new_err("arrays need NumPy, which is not installed (pip install numpy)")
    })
}

/// The graph or parameters are in use.
pub fn busy(py: Python<'_>, what: &str) -> PyErr {
    derived(py, "BusyError", format!("{what} are in use by another call; wait until it has returned"))
}

/// The Python exception for a core error.
pub fn to_python(py: Python<'_>, error: Error) -> PyErr {
    let message = match error {
        // A handle that reclaim found stale has lost its number.
        Error::Stale { index: u32::MAX } => {
            "this node was removed from its graph by a rewind or a clear; build it again after the rewind".into()
        }
        // The core's message names Rust types.
        Error::GraphMismatch { what: what @ ("a value" | "the value") } => format!(
            "{what} belongs to another graph; use values of one graph in one expression, or start from its number with \
             Value(other.data, graph=...)"
        ),
        _ => error.to_string(),
    };
    match error {
        Error::Stale { .. } | Error::StaleMark { .. } => derived(py, "StaleValueError", message),
        Error::GraphMismatch { .. } => derived(py, "GraphMismatchError", message),
        Error::GraphFull { .. } | Error::IndexExhausted { .. } => derived(py, "GraphFullError", message),
        Error::OutOfMemory { .. } | Error::ParametersFull { .. } => PyMemoryError::new_err(message),
        Error::NoSuchNode { .. } => PyIndexError::new_err(message),
        Error::OutOfRange { .. } | Error::BadArgument { what: "index", .. } => PyIndexError::new_err(message),
        Error::NoSuchName { .. } => PyKeyError::new_err(message),
        Error::Format { offset, reason } => malformed(py, message, offset, reason),
        Error::System { code, path, .. } => system(code, path),
        Error::Diverged { .. } => PyFloatingPointError::new_err(message),
        Error::Interrupted => crate::convert::signals::interrupted(message),
        Error::EmptyReduction { .. }
        | Error::LengthMismatch { .. }
        | Error::BufferTooSmall { .. }
        | Error::BadArgument { .. }
        | Error::Broadcast { .. }
        | Error::MissingParameters
        | Error::Data { .. }
        | Error::NoSuchSymbol { .. }
        | Error::DuplicateName { .. } => PyValueError::new_err(message),
        _ => BurtorchError::new_err(message),
    }
}

/// A `FormatError` that carries its reason and offset.
fn malformed(py: Python<'_>, message: String, offset: u64, reason: String) -> PyErr {
    let error = derived(py, "FormatError", message);
    let value = error.value(py);
    // If attributes cannot be set, the message still has all details.
    let _ = value.setattr("offset", offset).and_then(|()| value.setattr("reason", reason));
    error
}

/// The `OSError` with this number, an instance of Python's subclass for it; as `derived`, created when it is raised.
/// Windows has different numbers, which Python converts.
fn system(code: i32, path: std::path::PathBuf) -> PyErr {
    struct Arguments(i32, std::path::PathBuf);
    impl PyErrArguments for Arguments {
        fn arguments(self, py: Python<'_>) -> Py<PyAny> {
            let path = self.1.into_os_string();
            if cfg!(windows) {
                let text = std::io::Error::from_raw_os_error(self.0).to_string();
                return PyErrArguments::arguments((0, text, path, self.0), py);
            }
            let text = py.import("os").and_then(|os| os.call_method1("strerror", (self.0,)));
            let text = text.and_then(|text| text.extract::<String>()).unwrap_or_else(|error| error.to_string());
            PyErrArguments::arguments((self.0, text, path), py)
        }
    }
    PyOSError::new_err(Arguments(code, path))
}

/// `?` on core results inside functions that return `PyResult`.
pub trait IntoPython<T> {
    /// The core's error as its Python exception.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> IntoPython<T> for burtorch_core::Result<T> {
    #[inline(always)]
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| to_python(py, error))
    }
}
