//! The keyword arguments of a method of a Function: options of the method, and static arguments of the body.
//!
//! Promises: an unknown keyword is refused by name with the nearest valid name, and the body does not run. A keyword that
//! looks like an option is never passed as a static argument to a body with `**kwargs`.

use crate::convert::signals::quietly;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use super::object::Call;

/// The keywords that a method accepts.
#[derive(Clone, Copy, Debug)]
pub struct Keywords {
    /// Its name; empty for a call of the function itself.
    pub method: &'static str,
    /// Its options.
    pub options: &'static [&'static str],
    /// Whether other keywords are static arguments of the body.
    pub are_passed_on: bool,
}

impl Keywords {
    /// For a call of the function itself.
    pub const CALL: Keywords = Keywords { method: "", options: &[], are_passed_on: true };
}

/// Options of all methods: a body with `**kwargs` may not have static arguments with these names when a method is called.
const OPTIONS: &[&str] = &["argnums", "wanted", "threads", "out", "stop", "deadline"];

/// The keywords that a body accepts.
#[derive(Default)]
struct Taken {
    names: Vec<String>,
    takes_any: bool,
}

/// The code of a Python function or method, and whether its first argument is given already.
fn code_of<'py>(body: &Bound<'py, PyAny>) -> Option<(Bound<'py, PyAny>, bool)> {
    let is_method = body.get_type().name().is_ok_and(|name| name == "method");
    let is_function = body.get_type().name().is_ok_and(|name| name == "function");
    (is_method || is_function)
        .then(|| quietly(body.py(), || body.getattr("__code__")).map(|code| (code, is_method)))
        .flatten()
}

fn taken(body: &Bound<'_, PyAny>) -> PyResult<Taken> {
    const TAKES_ANY: u32 = 8;
    if let Some((code, is_method)) = code_of(body) {
        let n = |name: &str| code.getattr(name)?.extract::<usize>();
        let skipped = n("co_posonlyargcount")?.max(usize::from(is_method));
        let end = n("co_argcount")? + n("co_kwonlyargcount")?;
        let names: Vec<String> = code.getattr("co_varnames")?.extract()?;
        let takes_any = code.getattr("co_flags")?.extract::<u32>()? & TAKES_ANY != 0;
        return Ok(Taken { names: names.into_iter().take(end).skip(skipped).collect(), takes_any });
    }
    let py = body.py();
    let signature = match py.import("inspect")?.call_method1("signature", (body,)) {
        Ok(signature) => signature,
        // A C callable without a signature.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {
            return Ok(Taken { takes_any: true, ..Taken::default() });
        }
        Err(error) if error.is_instance_of::<pyo3::exceptions::PyValueError>(py) => {
            return Ok(Taken { takes_any: true, ..Taken::default() });
        }
        Err(error) => return Err(error),
    };
    let mut taken = Taken::default();
    for parameter in signature.getattr("parameters")?.call_method0("values")?.try_iter()? {
        let parameter = parameter?;
        match parameter.getattr("kind")?.getattr("name")?.extract::<String>()?.as_str() {
            "VAR_KEYWORD" => taken.takes_any = true,
            "POSITIONAL_OR_KEYWORD" | "KEYWORD_ONLY" => taken.names.push(parameter.getattr("name")?.extract()?),
            _ => {}
        }
    }
    Ok(taken)
}

/// Refuses keywords that neither the method nor the body accepts.
pub fn check(call: &Call<'_>) -> PyResult<()> {
    if call.named.is_empty() {
        return Ok(());
    }
    let py = call.py();
    let Keywords { method, options, are_passed_on } = call.keywords;
    let taken = if are_passed_on {
        let body = call.with(|state| state.body.clone_ref(py))?;
        taken(body.bind(py))?
    } else {
        Taken::default()
    };
    for (name, _) in &call.named {
        let is_elsewhere = !method.is_empty() && OPTIONS.contains(&name.as_str());
        let is_free = taken.takes_any && !is_elsewhere && nearest(name, options.iter().copied(), 1).is_none();
        if taken.names.contains(name) || is_free {
            continue;
        }
        let what = match method {
            "" => call.with(|state| state.name.clone())?,
            _ if are_passed_on => format!("{method}() of {}", call.with(|state| state.name.clone())?),
            _ => format!("{method}()"),
        };
        return Err(unexpected(&what, name, options.iter().copied().chain(taken.names.iter().map(String::as_str))));
    }
    Ok(())
}

/// Refuses positional arguments of a method without any.
pub fn check_none(call: &Call<'_>) -> PyResult<()> {
    match call.positional.len() {
        0 => Ok(()),
        n => Err(PyTypeError::new_err(format!("{}() takes no arguments, found {n}", call.keywords.method))),
    }
}

/// The error for a keyword that `what` does not accept.
pub fn unexpected<'a>(what: &str, name: &str, allowed: impl Iterator<Item = &'a str> + Clone) -> PyErr {
    let hint = match nearest(name, allowed.clone(), 3) {
        Some(near) => format!("; did you mean '{near}'?"),
        None => match allowed.collect::<Vec<_>>()[..] {
            [] => "; it takes no keyword arguments".into(),
            ref all => format!("; it takes {}", all.join(", ")),
        },
    };
    PyTypeError::new_err(format!("{what} got an unexpected keyword argument '{name}'{hint}"))
}

/// The valid name within this edit distance of a misspelling, and within about a third of its length.
fn nearest<'a>(name: &str, allowed: impl Iterator<Item = &'a str>, most: usize) -> Option<&'a str> {
    let near = allowed.map(|other| (distance(name, other), name.chars().count().max(other.chars().count()), other));
    let near = near.filter(|&(distance, len, _)| distance < len && distance <= most.min(len.div_ceil(3)));
    near.min_by_key(|found| found.0).map(|found| found.2)
}

/// The edit distance: letters to insert, delete or replace.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
