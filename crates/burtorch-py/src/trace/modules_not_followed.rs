//! Modules whose functions are not followed, because they write, wait or warn, and what they answer to the body nevertheless.
//!
//! Promises: a result that the body drops is no answer. Does not know how calls are observed.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyModule};

use super::attributes::{class_names, is_installed, is_of_a_library, is_standard, top};

/// Modules of the standard library that write, wait or warn.
const MACHINERY: &[&str] = &[
    "logging",
    "warnings",
    "threading",
    "traceback",
    "linecache",
    "importlib",
    "zipimport",
    "typing",
    "abc",
    "inspect",
    "tokenize",
    "pdb",
    "bdb",
    "cProfile",
    "profile",
    "trace",
];

/// The same of installed packages.
const INSTALLED: &[&str] = &["_pytest", "pluggy", "pytest", "tqdm"];

/// Those that answer.
const ANSWER: &[&str] =
    &["logging", "warnings", "threading", "traceback", "linecache", "importlib", "typing", "inspect", "tokenize"];

/// Whether functions of a module are not followed.
pub fn is_machinery(py: Python<'_>, module: &str) -> bool {
    let top = top(module);
    MACHINERY.contains(&top) && is_standard(py, top) || INSTALLED.contains(&top) && is_installed(py, top)
}

/// The globals and the name of the module of a frame's function.
pub fn module_of<'py>(frame: &Bound<'py, PyAny>) -> PyResult<(Option<Bound<'py, PyDict>>, String)> {
    let globals = frame.getattr("f_globals")?.cast_into::<PyDict>().ok();
    let name = globals.as_ref().and_then(|globals| globals.get_item("__name__").ok().flatten());
    Ok((globals.clone(), name.and_then(|name| name.extract().ok()).unwrap_or_default()))
}

/// The name of a call whose result may be an answer: of a function of such a module, called by other code than that of
/// libraries, whose result depends on more than the arguments and is not dropped.
pub fn asked(frame: &Bound<'_, PyAny>, module: &str, code: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    let py = frame.py();
    if !ANSWER.contains(&top(module)) {
        return Ok(None);
    }
    let name: String = code.getattr("co_name")?.extract()?;
    let depends = match top(module) {
        "typing" => matches!(&*name, "get_type_hints" | "__instancecheck__" | "__subclasscheck__"),
        "inspect" => !name.starts_with("is"),
        _ => name != "__init__",
    };
    let caller = frame.getattr("f_back")?;
    if !depends || caller.is_none() || is_dropped(&caller)? {
        return Ok(None);
    }
    let (_, by) = module_of(&caller)?;
    if is_of_a_library(&by) || is_standard(py, &by) || is_machinery(py, &by) {
        return Ok(None);
    }
    Ok(Some(format!("{module}.{}()", code.getattr("co_qualname")?.extract::<String>()?)))
}

/// Whether a result is an answer: not that of a function that writes or warns, and not a module, a lock or a logger, whose
/// readers are noticed.
pub fn is_answer(name: &str, result: &Bound<'_, PyAny>) -> bool {
    let (module, _) = class_names(&result.get_type());
    let is_written = result.is_none() && matches!(top(name), "logging" | "warnings" | "importlib");
    !is_written && !result.is_instance_of::<PyModule>() && !matches!(&*module, "_thread" | "logging")
}

/// Whether code drops the result of the call that it makes.
pub fn is_dropped(frame: &Bound<'_, PyAny>) -> PyResult<bool> {
    static POP_TOP: PyOnceLock<u8> = PyOnceLock::new();
    let py = frame.py();
    let pop_top =
        POP_TOP.get_or_try_init(py, || py.import("opcode")?.getattr("opmap")?.get_item("POP_TOP")?.extract())?;
    let code = frame.getattr("f_code")?.getattr("co_code")?.cast_into::<PyBytes>()?;
    let at: usize = frame.getattr("f_lasti")?.extract::<isize>()?.try_into().unwrap_or(usize::MAX - 2);
    // Behind the inline caches of the call, which are zeros.
    let next = code.as_bytes().get(at + 2..).unwrap_or_default().chunks_exact(2).find(|pair| pair[0] != 0);
    Ok(next.is_some_and(|pair| pair[0] == *pop_top))
}
