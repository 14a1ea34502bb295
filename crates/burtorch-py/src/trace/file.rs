//! Traced functions in files: `f.save`, `load_function`, pickling.
//!
//! Promises: a file contains shapes and programs but no code; a damaged one is refused with a reason. A function from a file
//! has no body: if no saved path is right it says so.

use std::path::PathBuf;

use burtorch_core::io::{Durability, Header, Kind as FileKind, Reader, Writer, read, save};
use burtorch_core::{Error, Program};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple};

use super::array_file::{Content, Made, Written};
use super::audit;
use super::object::Call;
use super::pytree::Tree;
use super::state::{Path, Variant};
use super::{array_calls, states, stored_forms};
use crate::array::functions::any_array;
use crate::convert::arrays::Kind;
use crate::convert::errors::{IntoPython, derived};
use crate::convert::signals::{asked, text_of};
use crate::node::parameter::PyParameter;

/// The largest nesting of shapes in a file.
const DEEPEST: usize = 32;

/// A shape as numbers: its kind, then its parts. Keys of dicts go to `keys`.
fn write_tree(py: Python<'_>, tree: &Tree, numbers: &mut Vec<u32>, keys: &mut Vec<String>) {
    match tree {
        Tree::Number => numbers.push(0),
        Tree::Array { shape, kind, is_numpy } => {
            let kind = match kind {
                Kind::F16 => 0,
                Kind::F32 => 1,
                _ => 2,
            };
            numbers.extend([1, kind, u32::from(*is_numpy), shape.len() as u32]);
            numbers.extend(shape.iter().map(|&n| u32::try_from(n).unwrap_or(u32::MAX)));
        }
        Tree::Sequence { is_tuple, items } => {
            numbers.extend([2, u32::from(*is_tuple), items.len() as u32]);
            items.iter().for_each(|item| write_tree(py, item, numbers, keys));
        }
        Tree::Dict { keys: own, items } => {
            numbers.extend([3, 0, items.len() as u32]);
            keys.extend(own.iter().map(|key| text_of(key.bind(py))));
            items.iter().for_each(|item| write_tree(py, item, numbers, keys));
        }
    }
}

/// Reads shapes back.
struct Shapes<'a> {
    numbers: std::slice::Iter<'a, u32>,
    keys: std::str::Split<'a, char>,
}

impl Shapes<'_> {
    fn next(&mut self) -> Option<u32> {
        self.numbers.next().copied()
    }

    /// `None` if the numbers do not describe a shape.
    fn tree(&mut self, py: Python<'_>, depth: usize) -> Option<Tree> {
        if depth > DEEPEST {
            return None;
        }
        match self.next()? {
            0 => Some(Tree::Number),
            1 => {
                let kind = *[Kind::F16, Kind::F32, Kind::F64].get(self.next()? as usize)?;
                let is_numpy = self.next()? != 0;
                let n = self.next()?;
                let shape = (0..n).map(|_| self.next().map(|n| n as usize)).collect::<Option<Vec<_>>>()?;
                shape.iter().try_fold(1_usize, |total, &n| total.checked_mul(n)).filter(|&n| n < 1 << 30)?;
                Some(Tree::Array { shape, kind, is_numpy })
            }
            code @ (2 | 3) => {
                let is_tuple = self.next()? != 0;
                let n = self.next()? as usize;
                if n > self.numbers.len() {
                    return None;
                }
                if code == 2 {
                    let items = (0..n).map(|_| self.tree(py, depth + 1)).collect::<Option<Vec<_>>>()?;
                    return Some(Tree::Sequence { is_tuple, items });
                }
                let key = |shapes: &mut Self| Some(PyString::new(py, shapes.keys.next()?).into_any().unbind());
                let keys = (0..n).map(|_| key(self)).collect::<Option<Vec<_>>>()?;
                let items = (0..n).map(|_| self.tree(py, depth + 1)).collect::<Option<Vec<_>>>()?;
                Some(Tree::Dict { keys, items })
            }
            _ => None,
        }
    }
}

/// The bytes of the variant used last, with all its paths.
fn to_bytes(call: &Call<'_>) -> PyResult<Vec<u8>> {
    let py = call.py();
    let name = call.with(|state| state.name.clone())?;
    // Only valid traces are written.
    let arrays = array_calls::first_variant(call)?;
    audit::refresh(call, &audit::recorded_at(call, true)?)?;
    array_calls::restore(call, arrays)?;
    stored_forms::complete(call)?;
    let arrays = call.with(|state| {
        let variant = state.arrays.first().filter(|variant| !variant.paths.is_empty());
        variant.map(|variant| Written::of(py, variant, state.uses_arrays)).transpose()
    })??;
    let parts = call.with(|state| {
        let variant = state.variants.first().filter(|variant| !variant.paths.is_empty())?;
        let mut numbers = Vec::new();
        let mut keys = Vec::new();
        write_tree(py, &variant.arguments, &mut numbers, &mut keys);
        let mut paths = Vec::new();
        for path in &variant.paths {
            write_tree(py, &path.results, &mut numbers, &mut keys);
            let parameters: Vec<f64> = path.parameters.iter().map(|p| p.get().number()).collect();
            paths.push((path.program.clone(), parameters));
        }
        Some((numbers, keys, paths))
    })?;
    if parts.is_none() && arrays.is_none() {
        return Err(derived(py, "TraceError", "nothing has been traced yet; call the function first".into()));
    }
    let (numbers, keys, paths) = parts.unwrap_or_default();
    if keys.iter().any(|key| key.contains('\n')) {
        return Err(PyTypeError::new_err("argument keys with line breaks cannot be saved"));
    }
    let write = || {
        let dtype = paths.first().map(|(program, _)| program.dtype());
        let header = Header { dtype, lanes: 1, count: paths.len() as u64, ..Header::new(FileKind::PROGRAM) };
        let mut writer = Writer::new(header)?;
        // Without the place of the definition, which is private.
        writer.text(*b"NAME", name.split(' ').next().unwrap_or(""))?;
        if !paths.is_empty() {
            writer.section(*b"TREE", &numbers)?;
            writer.text(*b"KEYS", &keys.join("\n"))?;
        }
        for (program, parameters) in &paths {
            writer.section(*b"PARA", parameters)?;
            program.write(&mut writer)?;
        }
        if let Some(arrays) = &arrays {
            arrays.write(&mut writer)?;
        }
        writer.finish()
    };
    asked(write).or_raise(py)
}

/// `f.save(path)`
pub fn save_to<'py>(call: Call<'py>) -> PyResult<Bound<'py, PyAny>> {
    let py = call.py();
    let [path] = &call.positional[..] else {
        return Err(PyTypeError::new_err("save() takes a path"));
    };
    let path: PathBuf = path.extract()?;
    let bytes = to_bytes(&call)?;
    py.detach(|| asked(|| save(&path, &bytes, Durability::Durable))).or_raise(py)?;
    Ok(py.None().into_bound(py))
}

/// The content of a file, before it becomes a function.
struct Read {
    name: String,
    shapes: Vec<u32>,
    keys: String,
    paths: Vec<(Vec<f64>, Program)>,
    arrays: Option<Content>,
}

fn from_bytes(bytes: &[u8]) -> burtorch_core::Result<Read> {
    let mut reader = Reader::open(bytes, FileKind::PROGRAM)?;
    let n_paths = reader.header().count;
    let name = reader.text(*b"NAME")?.to_string();
    let (mut shapes, mut keys) = (Vec::new(), String::new());
    if n_paths > 0 {
        shapes = reader.section::<u32>(*b"TREE")?.to_vec()?;
        keys = reader.text(*b"KEYS")?.to_string();
    }
    let mut paths = Vec::new();
    // Each path takes bytes, so a wrong count ends with a missing section.
    for _ in 0..n_paths {
        let parameters = reader.section::<f64>(*b"PARA")?.to_vec()?;
        paths.push((parameters, Program::read(&mut reader)?));
    }
    let arrays = Content::read(&mut reader)?;
    reader.finish()?;
    if paths.is_empty() && arrays.is_none() {
        return Err(Error::Format { offset: 0, reason: "a function without a path".into() });
    }
    Ok(Read { name, shapes, keys, paths, arrays })
}

/// The variant of functions of numbers in a file, if there is one.
fn variant_of(
    py: Python<'_>,
    shapes: &[u32],
    keys: &str,
    paths: Vec<(Vec<f64>, Program)>,
) -> PyResult<Option<Variant>> {
    if paths.is_empty() {
        return Ok(None);
    }
    let wrong = |reason: &str| -> PyErr {
        crate::convert::errors::to_python(py, Error::Format { offset: 0, reason: reason.to_string() })
    };
    let mut shapes = Shapes { numbers: shapes.iter(), keys: keys.split('\n') };
    let arguments = shapes.tree(py, 0).filter(|tree| matches!(tree, Tree::Sequence { is_tuple: true, .. }));
    let arguments = arguments.ok_or_else(|| wrong("the shape of the arguments is damaged"))?;
    let mut variant = Variant { id: super::calls::next_id(), arguments, statics: None, paths: Vec::new() };
    for (parameters, program) in paths {
        let results = shapes.tree(py, 0).ok_or_else(|| wrong("the shape of the results is damaged"))?;
        let (n, m) = (variant.arguments.len(), program.outputs().len());
        if program.n_differentiated() != n || program.n_inputs() != n + parameters.len() || results.len() != m {
            return Err(wrong("a program does not fit the shapes of arguments and results"));
        }
        let parameters = parameters.into_iter().map(|x| Py::new(py, PyParameter::of(x)));
        variant.paths.push(Path::new(py, program, results, parameters.collect::<PyResult<Vec<_>>>()?, Vec::new())?);
    }
    Ok(Some(variant))
}

/// The error of a function from a file for arguments without a trace.
pub fn no_trace(name: &str) -> String {
    format!(
        "{name} was loaded from a file, which has no trace for this: arguments of another shape, static \
         arguments, Values, or comparisons that answer otherwise; call it there and save it again"
    )
}

/// What a function of numbers from a file says to a transform, or to a trace of Arrays.
fn no_arrays(name: &str) -> String {
    format!(
        "{name} was loaded from a file that holds a program over single numbers, and takes no Arrays: those of a transform such as \
         bt.grad or bt.vmap, or of several dimensions; use its methods grad, jacobian, hvp and map, or apply the transform before \
         saving"
    )
}

/// The body of a function of numbers that came from a file.
fn no_body<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    let name = name.to_string();
    let body = move |given: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| -> PyResult<()> {
        let message = if any_array(&given.iter().collect::<Vec<_>>()) { no_arrays(&name) } else { no_trace(&name) };
        Err(derived(given.py(), "TraceError", message))
    };
    Ok(pyo3::types::PyCFunction::new_closure(py, Some(c"loaded"), None, body)?.into_any())
}

/// A function from the bytes of a file.
#[pyfunction]
pub fn function_from_bytes<'py>(py: Python<'py>, bytes: &Bound<'py, PyBytes>) -> PyResult<Bound<'py, PyAny>> {
    let Read { name, shapes, keys, paths, arrays } = asked(|| from_bytes(bytes.as_bytes())).or_raise(py)?;
    let variant = variant_of(py, &shapes, &keys, paths)?;
    let made = arrays.map(|arrays| arrays.variant(py, &name, super::calls::next_id())).transpose()?;
    let class = py.import("burtorch._core")?.getattr("Function")?;
    let body = match &made {
        Some(made) => made.body.clone(),
        None => no_body(py, &name)?,
    };
    let function = class.call1((body,))?;
    let call = Call::of(function.clone());
    call.with(|state| {
        state.name = name;
        state.variants.extend(variant);
        if let Some(Made { variant, uses_arrays, dtype, .. }) = made {
            state.arrays.push(variant);
            state.uses_arrays = uses_arrays;
            (state.options.dtype, state.options.has_dtype) = (dtype, true);
        }
        state.note_quick();
    })?;
    states::keep_single(&function);
    Ok(function)
}

/// A traced function from a file written by Function.save().
///
/// Args:
///     path: the file.
///
/// Returns:
///     A Function with the saved paths for one shape of arguments; it has no body, so it
///     traces nothing more.
///
/// Raises:
///     FormatError: the file is damaged, or has other content; none of it is run.
///     OSError: the file cannot be read.
///
/// Example:
///     >>> import os, tempfile
///     >>> import burtorch as bt
///     >>> f = bt.trace(lambda x, y: x * y, 1.0, 2.0)
///     >>> path = os.path.join(tempfile.mkdtemp(), "f.bt")
///     >>> f.save(path)
///     >>> bt.load_function(path).value_and_grad(3.0, 4.0)
///     (12.0, (4.0, 3.0))
#[pyfunction]
#[pyo3(signature = (path, /))]
fn load_function(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyAny>> {
    let bytes = py.detach(|| asked(|| read(&path))).or_raise(py)?;
    function_from_bytes(py, &PyBytes::new(py, &bytes))
}

/// `f.__reduce__()`: pickled as its traces.
pub fn reduce<'py>(call: Call<'py>) -> PyResult<Bound<'py, PyAny>> {
    let py = call.py();
    let bytes = PyBytes::new(py, &to_bytes(&call)?);
    let make = py.import("burtorch._core")?.getattr("function_from_bytes")?;
    Ok((make, (bytes,)).into_pyobject(py)?.into_any())
}

/// Adds the functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(function_from_bytes, m)?)?;
    m.add_function(wrap_pyfunction!(load_function, m)?)
}
