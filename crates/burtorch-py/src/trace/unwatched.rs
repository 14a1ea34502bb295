//! Sources that a replay cannot compare: C functions and objects, with reasons.
//!
//! Promises: a function is unwatched unless it is known to depend only on its arguments. Does not know how functions
//! are observed.
#![allow(unsafe_code)]

use crate::convert::signals::quietly;
use std::ffi::CStr;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyModule, PyType};

use super::attributes::{class_names, is_standard, top};

/// The classification of a source that a body reads or calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It depends on its arguments, or on watched sources.
    Pure,
    /// It writes, and returns no number to the body.
    Output,
    /// It may return another number at each call.
    Hidden,
    /// As `Hidden`, and running the body again has side effects.
    Files,
    /// As `Files`.
    Random,
    /// As `Hidden`: two runs always differ.
    Clock,
    /// As `Files`: an iterator.
    Advanced,
    /// It tests an abstract class, which other classes can be registered with.
    Abstract,
}

impl Kind {
    /// Whether the body may be run again to compare results.
    pub fn may_run_again(self) -> bool {
        matches!(self, Kind::Pure | Kind::Hidden)
    }

    /// The message about `name`; `None` if there is none.
    pub fn text(self, name: &str) -> Option<String> {
        Some(match self {
            Kind::Pure | Kind::Output | Kind::Abstract => return None,
            Kind::Hidden => format!("reads {name}, which a replay cannot watch"),
            Kind::Files => format!("reads external data by {name}"),
            Kind::Random => format!("draws random numbers by {name}"),
            Kind::Clock => format!("reads the clock by {name}"),
            Kind::Advanced => format!("reads {name}, which every run of the body advances"),
        })
    }
}

/// Functions of a module of the standard library that is written in C.
fn of_standard_module(module: &str, function: &str) -> Kind {
    match (module, function) {
        ("builtins", "open" | "input" | "breakpoint") => Kind::Files,
        ("builtins", "print") => Kind::Output,
        ("_abc", "_abc_instancecheck" | "_abc_subclasscheck") => Kind::Abstract,
        ("time", "sleep" | "struct_time" | "mktime" | "strptime" | "gmtime") => Kind::Pure,
        ("time", _) => Kind::Clock,
        ("random" | "_random" | "secrets" | "uuid" | "_uuid", _) => Kind::Random,
        ("posix" | "nt", "fspath") => Kind::Pure,
        // Only texts of paths: `os.path.normpath` and, from CPython 3.12 and 3.13 on, `splitroot`.
        ("posix" | "nt", "_path_normpath" | "_path_splitroot" | "_path_splitroot_ex") => Kind::Pure,
        ("posix" | "nt", "write") => Kind::Output,
        ("posix" | "nt", "urandom" | "getrandom") => Kind::Random,
        ("posix" | "nt" | "pwd" | "grp" | "io" | "_io" | "socket" | "_socket" | "select" | "mmap" | "fcntl", _)
        | ("_sqlite3" | "sqlite3" | "_ssl" | "termios" | "_winapi" | "winreg" | "dbm" | "_gdbm" | "subprocess", _) => {
            Kind::Files
        }
        ("sys", "intern" | "getsizeof" | "exc_info" | "_getframe" | "audit" | "getdefaultencoding" | "exit")
        | ("sys", "getfilesystemencoding" | "getfilesystemencodeerrors" | "is_finalizing" | "getprofile")
        | ("sys", "setprofile" | "settrace" | "_getframemodulename") => Kind::Pure,
        ("gc", "collect" | "enable" | "disable" | "isenabled") => Kind::Pure,
        ("_thread", "get_ident" | "get_native_id" | "_count") => Kind::Hidden,
        ("_thread", "start_new_thread" | "start_joinable_thread") => Kind::Output,
        // All attributes of an object.
        ("_pickle", "dump" | "dumps") => Kind::Hidden,
        ("sys" | "gc" | "_ctypes" | "ctypes" | "resource" | "_locale" | "tracemalloc" | "_tracemalloc", _) => {
            Kind::Hidden
        }
        _ => Kind::Pure,
    }
}

/// Methods of C classes of the standard library.
fn of_standard_class(module: &str, class: &str, function: &str) -> Kind {
    match (module, class, function) {
        ("_io" | "io", "StringIO" | "BytesIO", "write" | "writelines" | "flush" | "close") => Kind::Output,
        ("_io" | "io", "StringIO" | "BytesIO", "getvalue") => Kind::Hidden,
        ("_io" | "io", "StringIO" | "BytesIO", _) => Kind::Advanced,
        ("_io" | "io", _, "write" | "writelines" | "flush" | "close" | "isatty" | "fileno") => Kind::Output,
        ("datetime", _, "now" | "utcnow" | "today") => Kind::Clock,
        // Results of a wait or a queue depend on others.
        ("_queue" | "_asyncio", ..) => Kind::Advanced,
        ("_thread", _, "locked" | "acquire" | "acquire_lock" | "locked_lock" | "_is_owned") => Kind::Hidden,
        ("_thread", ..) => Kind::Pure,
        ("_io" | "io" | "_random" | "socket" | "_socket" | "select" | "mmap" | "sqlite3" | "_sqlite3", ..) => {
            of_standard_module(module, function)
        }
        _ => Kind::Pure,
    }
}

/// Whether a module belongs to NumPy's random number generators.
pub fn is_random_of_numpy(module: &str) -> bool {
    module == "numpy.random" || module.starts_with("numpy.random.")
}

/// The classification of a module's function, and its name in messages.
fn judge(py: Python<'_>, module: &str, class: Option<&str>, function: &str) -> Kind {
    if is_random_of_numpy(module) {
        return if function.starts_with("__") { Kind::Pure } else { Kind::Random };
    }
    match top(module) {
        "numpy" if matches!(function, "_get_extobj_dict" | "geterrobj") => Kind::Hidden,
        "burtorch" | "numpy" | "scipy" | "pandas" => Kind::Pure,
        first if is_standard(py, first) => match class {
            Some(class) => of_standard_class(module, class, function),
            None => of_standard_module(module, function),
        },
        _ => Kind::Hidden,
    }
}

/// The classification of a called C function, and its name in messages.
pub fn of_called(function: &Bound<'_, PyAny>) -> (Kind, String) {
    let py = function.py();
    // SAFETY: the caller passes a function of C; its definition has a name.
    let (name, owner) = unsafe {
        if ffi::PyCFunction_Check(function.as_ptr()) == 0 {
            return (Kind::Pure, String::new());
        }
        let object = function.as_ptr().cast::<ffi::PyCFunctionObject>();
        let name = CStr::from_ptr((*(*object).m_ml).ml_name).to_string_lossy().into_owned();
        (name, Bound::from_borrowed_ptr_or_opt(py, (*object).m_self))
    };
    let owner = owner.filter(|owner| !owner.is_none());
    let of_module = || {
        let module = quietly(py, || function.getattr("__module__")?.extract::<String>());
        module.unwrap_or_else(|| "builtins".into())
    };
    let (module, class) = match owner {
        None => (of_module(), None),
        Some(owner) if owner.is_instance_of::<PyModule>() => (of_module(), None),
        Some(owner) => {
            let kind = owner.cast::<PyType>().cloned().unwrap_or_else(|_| owner.get_type());
            // The class that has the method, so that a Python subclass is judged by its inheritance.
            let base = c_base(&kind);
            let (module, class) = class_names(&base);
            (module, Some(class))
        }
    };
    let kind = judge(py, &module, class.as_deref(), &name);
    let full = match class {
        Some(class) => format!("{class}.{name}"),
        None if module == "builtins" => name,
        None => format!("{}.{name}", module.trim_start_matches('_')),
    };
    (kind, full + "()")
}

/// The first base class of an object's class that is written in C.
pub fn c_base<'py>(kind: &Bound<'py, PyType>) -> Bound<'py, PyType> {
    let is_in_c = |class: &Bound<'py, PyAny>| {
        class.cast::<PyType>().is_ok_and(|class| !super::attributes::is_written_in_python(class))
    };
    let found = kind.mro().iter().find(is_in_c).and_then(|class| class.cast_into::<PyType>().ok());
    found.unwrap_or_else(|| kind.clone())
}

/// Objects of C classes.
pub enum Object {
    /// It never changes, or its readers are noticed when they are called.
    Known,
    /// It contains other objects, through which it changes.
    Holds,
    /// As these, but they cannot be watched.
    Unwatched(Kind),
}

/// The classification of an object by the C base class of its class.
pub fn of_object(object: &Bound<'_, PyAny>, base: &Bound<'_, PyType>) -> Object {
    let (module, class) = class_names(base);
    if is_random_of_numpy(&module) {
        let draws = matches!(class.as_str(), "Generator" | "RandomState");
        return if draws { Object::Unwatched(Kind::Random) } else { Object::Known };
    }
    if object.is_instance_of::<pyo3::exceptions::PyBaseException>() {
        return Object::Holds;
    }
    match (top(&module), class.as_str()) {
        (
            "builtins",
            "object" | "type" | "function" | "code" | "frame" | "ellipsis" | "NotImplementedType" | "range",
        ) => Object::Known,
        // Bound, wrapped or composed objects, which do not change themselves.
        ("builtins", "method" | "property" | "classmethod" | "staticmethod" | "slice" | "super" | "cell")
        | ("builtins", "mappingproxy" | "dict_keys" | "dict_values" | "dict_items")
        | ("functools" | "_functools", _)
        | ("collections" | "_collections" | "operator" | "_operator", _)
        | ("types", _) => Object::Holds,
        (
            "builtins",
            "generator" | "coroutine" | "async_generator" | "map" | "filter" | "zip" | "enumerate" | "reversed",
        )
        | ("itertools", _) => Object::Unwatched(Kind::Advanced),
        ("builtins", name) if name.ends_with("iterator") => Object::Unwatched(Kind::Advanced),
        ("_io" | "io", "StringIO" | "BytesIO") => Object::Known,
        // Its function and its rules.
        ("burtorch", "primitive") => Object::Holds,
        // They do not show the array that they read.
        ("numpy", "flatiter" | "nditer" | "broadcast") => Object::Unwatched(Kind::Advanced),
        ("numpy" | "burtorch", _) => Object::Known,
        ("_ctypes", _) if !super::attributes::has_referents(object) => Object::Unwatched(Kind::Hidden),
        // Its text, its attributes and its children.
        ("_elementtree" | "xml", _) => Object::Holds,
        (first, _) if is_standard(object.py(), first) => Object::Known,
        ("scipy" | "pandas", _) if super::attributes::has_referents(object) => Object::Holds,
        // Arrays of JAX are immutable. Other libraries have numbers in their own memory, as tensors do.
        ("jaxlib", "ArrayImpl") => Object::Known,
        _ => Object::Unwatched(Kind::Hidden),
    }
}
