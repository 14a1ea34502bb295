//! Sparse derivatives: SciPy matrices of the entries that may differ from 0, and `argnums=`.
//!
//! Promises: rows and columns are the numbers of the chosen arguments, in the order of `argnums`; the pattern depends on the program
//! alone. Does not know how entries are computed.

use std::sync::Arc;

use burtorch_core::program::sparse::{Hessian, SparseJacobian};
use burtorch_core::program::sparsity::{Pattern, hessian_pattern, jacobian_pattern};
use pyo3::exceptions::{PyImportError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyTuple};

use super::arguments::Arguments;
use super::calls::with_program;
use super::derivatives::{ready, with_scalar};
use super::into_arrays::SparseOut;
use super::object::Call;
use super::pytree::Tree;
use super::transform::Argnums;
use super::transforms::call_derived;
use crate::convert::arrays::{Array, Kind, filled};
use crate::convert::errors::IntoPython;
use crate::convert::signals::asked;

/// Entries by row, of so many columns.
struct Entries {
    pattern: Arc<Pattern>,
    data: Vec<f64>,
    n: usize,
}

impl Entries {
    /// The columns of the chosen numbers, in their order, and the rows of these if rows are numbers as well.
    fn chosen(self, numbers: &[usize], are_rows: bool) -> Self {
        let mut places = vec![None; self.n];
        numbers.iter().enumerate().for_each(|(new, &old)| places[old] = Some(new as u32));
        let Pattern { starts, columns } = &*self.pattern;
        let rows = if are_rows { numbers.to_vec() } else { (0..starts.len() - 1).collect() };
        let (mut pattern, mut data) = (Pattern { starts: vec![0], columns: Vec::new() }, Vec::new());
        for row in rows {
            let entries = starts[row]..starts[row + 1];
            let kept = entries.filter_map(|at| Some((places[columns[at] as usize]?, self.data[at])));
            let mut kept: Vec<_> = kept.collect();
            kept.sort_by_key(|entry| entry.0);
            pattern.columns.extend(kept.iter().map(|entry| entry.0));
            data.extend(kept.iter().map(|entry| entry.1));
            pattern.starts.push(data.len());
        }
        Entries { pattern: Arc::new(pattern), data, n: numbers.len() }
    }

    /// Those of a function that is traced with Arrays.
    fn of_arrays(call: &Call<'_>, method: &'static str, by: Argnums) -> PyResult<Self> {
        let found = call_derived(call, method, by)?;
        let [entries, starts, columns, n]: [Bound<'_, PyAny>; 4] = found.extract()?;
        let data = Array::of(&entries).map_or_else(Vec::new, |array| array.floats());
        let integers = |of: &Bound<'_, PyAny>| Array::of(of).map_or_else(|| Ok(Vec::new()), |array| array.integers());
        let starts = integers(&starts)?.into_iter().map(|start| start as usize).collect();
        let columns = integers(&columns)?.into_iter().map(|column| column as u32).collect();
        let n = integers(&n)?.first().map_or(0, |&n| n as usize);
        Ok(Entries { pattern: Arc::new(Pattern { starts, columns }), data, n })
    }

    /// A scipy.sparse matrix in rows, or the caller's matrix with these entries.
    fn build<'py>(&self, py: Python<'py>, out: Option<SparseOut<'py>>) -> PyResult<Bound<'py, PyAny>> {
        match out {
            Some(out) => out.fill(&self.pattern, self.n, &self.data),
            None => matrix(py, &self.pattern, self.n, &self.data),
        }
    }
}

/// A scipy.sparse matrix in rows.
fn matrix<'py>(py: Python<'py>, pattern: &Pattern, n: usize, data: &[f64]) -> PyResult<Bound<'py, PyAny>> {
    let module = py.import("scipy.sparse").map_err(|error| {
        if !error.is_instance_of::<PyImportError>(py) {
            return error;
        }
        let new = PyImportError::new_err("sparse matrices need SciPy: pip install scipy");
        new.set_cause(py, Some(error));
        new
    })?;
    let entries = filled(py, &[data.len()], Kind::F64, data)?;
    let numpy = py.import("numpy")?;
    if i32::try_from(data.len()).is_err() {
        let message = format!("a sparse matrix has at most 2**31 - 1 entries, found {}", data.len());
        return Err(PyValueError::new_err(message));
    }
    let indices = |len: usize, of: &dyn Fn(usize) -> u32| {
        let bytes = PyByteArray::new_with(py, 4 * len, |bytes| {
            bytes.as_chunks_mut::<4>().0.iter_mut().enumerate().for_each(|(k, to)| *to = of(k).to_ne_bytes());
            Ok(())
        })?;
        numpy.call_method1("frombuffer", (bytes, "int32"))
    };
    let columns = indices(pattern.columns.len(), &|k| pattern.columns[k])?;
    let starts = indices(pattern.starts.len(), &|k| pattern.starts[k] as u32)?;
    let parts = PyTuple::new(py, [entries, columns, starts])?;
    module.call_method1("csr_matrix", (parts, (pattern.n_rows(), n)))
}

/// The numbers of the chosen arguments.
fn numbers_of(tree: &Tree, by: &Argnums) -> PyResult<Vec<usize>> {
    let Tree::Sequence { items, .. } = tree else { return Ok((0..tree.len()).collect()) };
    let start = |k: usize| items[..k].iter().map(Tree::len).sum::<usize>();
    Ok(by.among(items.len())?.into_iter().flat_map(|k| start(k)..start(k) + items[k].len()).collect())
}

/// What a sparse derivative is of: whether second derivatives, and whether only their pattern.
#[derive(Clone, Copy)]
struct What {
    method: &'static str,
    is_hessian: bool,
    is_pattern: bool,
}

fn entries<'py>(mut call: Call<'py>, what: What) -> PyResult<Bound<'py, PyAny>> {
    let py = call.py();
    let out = if what.is_pattern { None } else { SparseOut::take(&mut call)? };
    let by = Argnums::of(call.take("argnums").as_ref())?;
    let mut chosen = by.among(call.positional.len())?;
    chosen.sort_unstable();
    if let Some(twice) = chosen.windows(2).find(|two| two[0] == two[1]) {
        let message = format!("argnums of {}() must name each argument once, found {} twice", what.method, twice[0]);
        return Err(PyValueError::new_err(message));
    }
    let Some(arguments) = Arguments::unless_arrays(&call, &call.positional, what.method)? else {
        return Entries::of_arrays(&call, what.method, by)?.build(py, out);
    };
    let n = arguments.numbers.len();
    let numbers = if by == Argnums::All { None } else { Some(numbers_of(&arguments.tree, &by)?) };
    let (pattern, data) = match (what.is_pattern, what.is_hessian) {
        (true, is_hessian) => {
            let program = match is_hessian {
                true => with_scalar(&call, &arguments, what.method, |path| Ok(path.program.clone()))?,
                false => with_program(&call, &arguments, |path| path.program.clone())?,
            };
            let pattern = if is_hessian { hessian_pattern } else { jacobian_pattern };
            let pattern = asked(|| pattern(&program)).or_raise(py)?;
            let ones = vec![1.0; pattern.columns.len()];
            (Arc::new(pattern), ones)
        }
        (false, true) => with_scalar(&call, &arguments, what.method, |path| {
            let x = path.inputs(&arguments.numbers);
            let hessian = ready(&mut path.hessian, || Hessian::new(&path.program))?;
            hessian.sparse(&path.program, &x).map(|(pattern, data)| (pattern.clone(), data.to_vec()))
        })?,
        (false, false) => with_program(&call, &arguments, |path| {
            let x = path.inputs(&arguments.numbers);
            let jacobian = ready(&mut path.sparse_jacobian, || SparseJacobian::new(&path.program))?;
            jacobian.entries(&path.program, &x).map(|(pattern, data)| (pattern.clone(), data.to_vec()))
        })?
        .or_raise(py)?,
    };
    let found = Entries { pattern, data, n };
    let found = match numbers {
        Some(numbers) => found.chosen(&numbers, what.is_hessian),
        None => found,
    };
    found.build(py, out)
}

/// `f.jacobian_sparsity(x, ..., argnums=None)`
pub fn jacobian_sparsity<'py>(call: Call<'py>) -> PyResult<Bound<'py, PyAny>> {
    entries(call, What { method: "jacobian_sparsity", is_hessian: false, is_pattern: true })
}

/// `f.hessian_sparsity(x, ..., argnums=None)`
pub fn hessian_sparsity<'py>(call: Call<'py>) -> PyResult<Bound<'py, PyAny>> {
    entries(call, What { method: "hessian_sparsity", is_hessian: true, is_pattern: true })
}

/// `f.sparse_jacobian(x, ..., argnums=None, out=None)`
pub fn sparse_jacobian<'py>(call: Call<'py>) -> PyResult<Bound<'py, PyAny>> {
    entries(call, What { method: "sparse_jacobian", is_hessian: false, is_pattern: false })
}

/// `f.sparse_hessian(x, ..., argnums=None, out=None)`
pub fn sparse_hessian<'py>(call: Call<'py>) -> PyResult<Bound<'py, PyAny>> {
    entries(call, What { method: "sparse_hessian", is_hessian: true, is_pattern: false })
}
