//! `f.map` and `f.map_value_and_grad`: a traced function over rows, in lanes, without the GIL.
//!
//! Promises: a row's result does not depend on other rows, on threads or on where rows lie in memory. Rows for which a guard
//! fails are tried on the other paths, and traced if none fits.
#![allow(unsafe_code)]

use burtorch_core::program::batch::{Batch, Rows};
use burtorch_core::simd::{F32x16, F64x8};
use burtorch_core::{DType, Error, Program, interrupt};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::arguments::Arguments;
use super::calls::with_path;
use super::columns::{Column, Table, columns};
use super::into_arrays::{Out, call_into, refuse_overlap};
use super::object::Call;
use super::one_array_of_rows::{by_columns, joined, of_rows};
use super::pytree::Tree;
use super::transform::Argnums;
use crate::array::arguments::is_sparse;
use crate::array::array::PyArray;
use crate::convert::arguments::Count;
use crate::convert::arrays::{Array, Kind, empty};
use crate::convert::errors::{IntoPython, derived};
use crate::convert::signals::asked;
use crate::convert::stop::{until, watched_by};
use crate::params::PyTensor;

/// Programs with more slots than this run on blocks of one vector, so that the slots stay in the cache.
const LARGE: usize = 512;

/// A program that is ready to run over rows.
#[derive(Clone)]
pub enum AnyBatch {
    /// float64, 64 rows at a time.
    F64(Batch<F64x8, 8>),
    /// float64, 8 rows at a time.
    LargeF64(Batch<F64x8, 1>),
    /// float32
    F32(Batch<F32x16, 4>),
}

impl AnyBatch {
    fn new(program: &Program, with_gradient: bool) -> burtorch_core::Result<Self> {
        Ok(match program.dtype() {
            DType::Float32 => AnyBatch::F32(Batch::new(program, with_gradient)?),
            _ if program.n_slots() > LARGE => AnyBatch::LargeF64(Batch::new(program, with_gradient)?),
            _ => AnyBatch::F64(Batch::new(program, with_gradient)?),
        })
    }

    fn is_current(&self) -> bool {
        match self {
            AnyBatch::F64(batch) => batch.is_current(),
            AnyBatch::LargeF64(batch) => batch.is_current(),
            AnyBatch::F32(batch) => batch.is_current(),
        }
    }

    /// Returns the remaining rows, unless Ctrl-C was pressed.
    fn run(&mut self, threads: usize, rows: Rows<'_>, table: &Table) -> burtorch_core::Result<Vec<usize>> {
        let mut left = Vec::new();
        // Signal handlers run only on the calling thread; other threads do not check.
        let stop = || interrupt::is_over();
        asked(|| {
            let is_whole = match self {
                AnyBatch::F64(batch) => batch.run_on(threads, rows, table, table, &mut left, &stop),
                AnyBatch::LargeF64(batch) => batch.run_on(threads, rows, table, table, &mut left, &stop),
                AnyBatch::F32(batch) => batch.run_on(threads, rows, table, table, &mut left, &stop),
            };
            if is_whole { Ok(()) } else { Err(Error::Interrupted) }
        })?;
        Ok(left)
    }
}

/// The batch of a call: arrays by rows, the shape of one row's arguments.
struct Batched<'py> {
    arrays: Vec<Array>,
    /// Shapes of gradients: one per argument, or one for all where rows are the arguments.
    shapes: Vec<Vec<usize>>,
    kinds: Vec<Kind>,
    columns: Vec<Column>,
    tree: Tree,
    n_rows: usize,
    call: Call<'py>,
}

/// One array per argument, or one array whose rows are the arguments.
fn batched<'py>(call: Call<'py>, method: &str) -> PyResult<Batched<'py>> {
    if call.positional.is_empty() {
        return Err(PyTypeError::new_err(format!("{method}() takes an array whose rows are arguments")));
    }
    let arrays = call.positional.iter().map(Array::converted).collect::<PyResult<Vec<_>>>()?;
    let n_rows = arrays[0].shape().first().copied();
    let n_rows =
        n_rows.ok_or_else(|| PyValueError::new_err(format!("{method}() takes arrays of one or more dimensions")))?;
    if arrays.iter().any(|array| array.shape().first() != Some(&n_rows)) {
        return Err(PyValueError::new_err(format!("{method}() takes arrays with equally many rows")));
    }
    let spread = of_rows(&call, method)?.is_some();
    let (mut all, mut shapes, mut kinds, mut items) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for array in &arrays {
        let (columns, shape) = columns(array);
        let kind = array.kind.of_results();
        if spread {
            items.extend(columns.iter().map(|_| Tree::Number));
        } else if shape.is_empty() {
            items.push(Tree::Number);
        } else {
            items.push(Tree::Array { shape: shape.clone(), kind, is_numpy: true });
        }
        all.extend(columns);
        shapes.push(shape);
        kinds.push(kind);
    }
    if all.is_empty() {
        return Err(PyValueError::new_err(format!("{method}() takes rows of at least one number")));
    }
    let tree = Tree::Sequence { is_tuple: true, items };
    Ok(Batched { arrays, shapes, kinds, columns: all, tree, n_rows, call })
}

impl<'py> Batched<'py> {
    /// The arguments of one row.
    fn row(&self, row: usize) -> PyResult<Arguments<'py>> {
        let mut arguments = Arguments::numbers_only(&self.call, &[], "map")?;
        arguments.tree = self.tree.copy(self.call.py());
        arguments.numbers = vec![0.0; self.columns.len()];
        for (x, column) in arguments.numbers.iter_mut().zip(&self.columns) {
            // SAFETY: a row that every column has.
            unsafe { column.read(Rows::Run { first: row, len: 1 }, std::slice::from_mut(x)) }
        }
        Ok(arguments)
    }

    /// The type of values: the widest of the arguments.
    fn kind(&self) -> Kind {
        let width = |kind: &Kind| match kind {
            Kind::F16 => 0,
            Kind::F32 => 1,
            _ => 2,
        };
        self.kinds.iter().copied().max_by_key(width).unwrap_or(Kind::F64)
    }

    /// Evaluates all rows.
    fn run(&self, table: &mut Table, threads: usize, with_gradient: bool) -> PyResult<()> {
        let py = self.call.py();
        let n_outputs = table.values.len();
        // All rows remain at first: building a list of them would take as long as some of the work.
        let mut left: Option<Vec<usize>> = None;
        // Each round finishes at least its first row, so only a body that never returns makes this endless.
        while let Some(first) = left.as_ref().map_or(Some(0), |left| left.first().copied()) {
            crate::convert::entry::check_signals(py)?;
            let arguments = self.row(first)?;
            let ready = with_path(&self.call, &arguments, |path| {
                if path.program.outputs().len() != n_outputs {
                    return Ok(None);
                }
                let parameters = path.inputs(&[]);
                let place = &mut path.batches[usize::from(with_gradient)];
                if place.as_ref().is_none_or(|batch| !batch.is_current()) {
                    *place = Some(AnyBatch::new(&path.program, with_gradient)?);
                }
                Ok(place.clone().map(|batch| (batch, parameters)))
            })?
            .or_raise(py)?;
            let Some((mut batch, parameters)) = ready else {
                return Err(PyValueError::new_err(
                    "map() needs a function that returns equally many numbers on every row",
                ));
            };
            table.parameters = parameters;
            let all = Rows::Run { first: 0, len: self.n_rows };
            let rows = left.as_deref().map_or(all, Rows::List);
            let table = &*table;
            let next = crate::convert::threads::detached(py, || batch.run(threads, rows, table));
            let next = next.or_raise(py)?;
            if next.first() == Some(&first) {
                return Err(derived(
                    py,
                    "TraceError",
                    "the function gives different results at the same numbers".into(),
                ));
            }
            left = Some(next);
        }
        Ok(())
    }
}

/// How many threads to use.
fn threads(call: &mut Call<'_>) -> PyResult<usize> {
    match call.take("threads") {
        None => Ok(1),
        Some(n) => n.extract::<Count>()?.positive("threads"),
    }
}

/// Arguments that share memory with results are copied, so that no result is read as an argument.
fn apart_from<'py>(batched: &mut Batched<'py>, results: &[&Array]) -> PyResult<()> {
    let mut copied = false;
    for (array, object) in batched.arrays.iter_mut().zip(&batched.call.positional) {
        if results.iter().any(|result| array.may_overlap(result)) {
            *array = Array::copy_of(object)?;
            copied = true;
        }
    }
    if copied {
        batched.columns = batched.arrays.iter().flat_map(|array| columns(array).0).collect();
    }
    Ok(())
}

/// An array for results: a new one, or the given one after a check of its shape.
fn results<'py>(
    py: Python<'py>,
    given: Option<Bound<'py, PyAny>>,
    shape: &[usize],
    kind: Kind,
) -> PyResult<(Bound<'py, PyAny>, Array)> {
    let is_given = given.is_some();
    let object = match given {
        Some(object) => object,
        None => empty(py, shape, kind)?,
    };
    let array = Array::writable(&object, "out")?;
    if is_given && array.shape() != shape {
        let message = format!("out must have the shape {shape:?}, found {:?}", array.shape());
        return Err(PyValueError::new_err(message));
    }
    Ok((object, array))
}

/// The results of `work`, unless `stop=` or `deadline=` end it early.
fn stoppable<'py>(
    mut call: Call<'py>,
    work: impl FnOnce(Call<'py>) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let (stop, deadline) = (call.take("stop"), call.take("deadline"));
    until(call.py(), watched_by(stop.as_ref(), deadline.as_ref())?, || work(call))
}

/// `f.map(X, ..., threads=1, out=None, stop=None, deadline=None)`
pub fn map<'py>(call: Call<'py>) -> PyResult<Bound<'py, PyAny>> {
    stoppable(call, values)
}

fn values<'py>(mut call: Call<'py>) -> PyResult<Bound<'py, PyAny>> {
    let py = call.py();
    let (threads, out) = (threads(&mut call)?, call.take("out"));
    if is_of_arrays(&call)? {
        return match of_rows(&call, "map")? {
            Some(n) => mapped_arrays(&by_columns(call, n)?, "map", out),
            None => mapped_arrays(&call, "map", out),
        };
    }
    let mut batched = batched(call, "map")?;
    if batched.n_rows == 0 {
        return Ok(results(py, out, &[0], batched.kind())?.0);
    }
    let (n_outputs, is_one) = with_path(&batched.call, &batched.row(0)?, |path| {
        (path.program.outputs().len(), matches!(path.results, Tree::Number))
    })?;
    let shape = if is_one { vec![batched.n_rows] } else { vec![batched.n_rows, n_outputs] };
    let (object, array) = results(py, out, &shape, batched.kind())?;
    refuse_overlap(py, &[&object], &[&array])?;
    apart_from(&mut batched, &[&array])?;
    let mut table = Table {
        inputs: batched.columns.clone(),
        parameters: Vec::new(),
        values: columns(&array).0,
        gradients: Vec::new(),
    };
    batched.run(&mut table, threads, false)?;
    Ok(object)
}

/// Whether rows of the arguments are arrays of several dimensions, sparse, or numbers of Parameters.
fn is_of_arrays(call: &Call<'_>) -> PyResult<bool> {
    if super::array_calls::is_meant(call)? {
        return Ok(true);
    }
    let is_one = |object: &Bound<'_, PyAny>| {
        let array = Array::of(object).filter(|array| array.shape().len() > 2);
        array.is_some() || object.is_instance_of::<PyArray>() || object.is_instance_of::<PyTensor>()
    };
    for object in &call.positional {
        if is_one(object) || is_sparse(object)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A method over rows of arrays: `vmap` over the first axis of all arguments.
fn mapped_arrays<'py>(
    call: &Call<'py>,
    method: &'static str,
    out: Option<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let out = out.filter(|out| !out.is_none()).map(|out| Out::of(&out)).transpose()?;
    call_into(call, method, Argnums::All, out, false)
}

/// `f.map_value_and_grad(X, ..., threads=1, out=None, stop=None, deadline=None)`
pub fn map_value_and_grad<'py>(call: Call<'py>) -> PyResult<Bound<'py, PyAny>> {
    stoppable(call, values_and_gradients)
}

fn values_and_gradients<'py>(mut call: Call<'py>) -> PyResult<Bound<'py, PyAny>> {
    let py = call.py();
    let (threads, out) = (threads(&mut call)?, call.take("out"));
    if is_of_arrays(&call)? {
        let name = "map_value_and_grad";
        return match of_rows(&call, name)? {
            Some(n) => {
                joined(&mapped_arrays(&by_columns(call, n)?, name, None)?, out.as_ref().filter(|out| !out.is_none()))
            }
            None => mapped_arrays(&call, name, out),
        };
    }
    let mut batched = batched(call, "map_value_and_grad")?;
    let n = batched.n_rows;
    let (out_values, out_gradients) = match out {
        None => (None, None),
        Some(out) => {
            let pair = out.extract::<(Bound<'py, PyAny>, Bound<'py, PyAny>)>();
            let (values, gradients) = pair.map_err(|_| {
                PyTypeError::new_err(
                    "out of map_value_and_grad() must be a pair: an array for values, arrays for gradients",
                )
            })?;
            (Some(values), Some(gradients))
        }
    };
    let (values, values_array) = results(py, out_values, &[n], batched.kind())?;
    let given: Vec<Option<Bound<'py, PyAny>>> = match out_gradients {
        None => batched.shapes.iter().map(|_| None).collect(),
        Some(one) if batched.shapes.len() == 1 => vec![Some(one)],
        Some(many) => many.extract::<Vec<Bound<'py, PyAny>>>()?.into_iter().map(Some).collect(),
    };
    if given.len() != batched.shapes.len() {
        return Err(PyValueError::new_err("out needs one array for the gradient of each argument"));
    }
    let mut objects = Vec::new();
    let mut arrays = Vec::new();
    for ((given, shape), &kind) in given.into_iter().zip(&batched.shapes).zip(&batched.kinds) {
        let shape: Vec<usize> = std::iter::once(n).chain(shape.iter().copied()).collect();
        let (object, array) = results(py, given, &shape, kind)?;
        objects.push(object);
        arrays.push(array);
    }
    let all: Vec<&Array> = std::iter::once(&values_array).chain(&arrays).collect();
    refuse_overlap(py, &std::iter::once(&values).chain(&objects).collect::<Vec<_>>(), &all)?;
    if n > 0 {
        apart_from(&mut batched, &all)?;
        let is_scalar = with_path(&batched.call, &batched.row(0)?, |path| matches!(path.results, Tree::Number))?;
        if !is_scalar {
            let name = batched.call.with(|state| state.name.clone())?;
            let message =
                format!("map_value_and_grad() needs a function that returns one Value; {name} returns several");
            return Err(derived(py, "TraceError", message));
        }
        let mut table = Table {
            inputs: batched.columns.clone(),
            parameters: Vec::new(),
            values: columns(&values_array).0,
            gradients: arrays.iter().flat_map(|array| columns(array).0).collect(),
        };
        batched.run(&mut table, threads, true)?;
    }
    drop(batched.arrays);
    let gradients = if objects.len() == 1 { objects.remove(0) } else { PyTuple::new(py, objects)?.into_any() };
    Ok((values, gradients).into_pyobject(py)?.into_any())
}
