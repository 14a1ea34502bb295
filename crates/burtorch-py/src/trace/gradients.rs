//! `f.grad` and `f.value_and_grad` with numbers: by all arguments, or by some, for which the reverse pass computes only
//! what these need.
//!
//! Promises: a gradient by some arguments has the bits of the full gradient. Knows no arrays.

use std::ops::Range;

use burtorch_core::Float;
use burtorch_core::Program;
use burtorch_core::program::passes::differentiated_by;
use burtorch_core::program::{Build, Seeds};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use super::arguments::Arguments;
use super::array_gradients::by_some;
use super::calls::{with_path, with_path_by};
use super::into_arrays::{Out, call_into, filled as written};
use super::object::Call;
use super::pytree::Tree;
use super::state::{Path, Scalars, with_scalars};
use super::transform::Argnums;
use crate::convert::arrays::{Kind, filled};
use crate::convert::buffer::type_name;
use crate::convert::errors::derived;
use crate::convert::sets::{listed, range_in};

/// The number of argument choices whose code a path keeps.
const MOST_KEPT: usize = 8;

/// A path's program for the gradient by some of the arguments' numbers.
pub struct BySome {
    wanted: Vec<bool>,
    /// For each input, the number of the path's input.
    inputs: Vec<u32>,
    replay: Scalars,
}

impl BySome {
    fn new(program: &Program, wanted: &[bool]) -> burtorch_core::Result<Self> {
        let (program, inputs) = differentiated_by(program, wanted)?;
        let build = if program.outputs().len() == 1 { Build::Reverse(Seeds::One(0)) } else { Build::Values };
        Ok(BySome { wanted: wanted.to_vec(), inputs, replay: Scalars::new(&program, build)? })
    }

    /// Computes the values at `numbers` with the program for the wanted ones, which then becomes the path's first; returns the
    /// number of the first guard that disagrees.
    pub fn attempt(path: &mut Path, wanted: &[bool], numbers: &[f64]) -> burtorch_core::Result<Result<(), usize>> {
        let known = path.by_some.iter().position(|by| by.wanted == wanted);
        let at = match known {
            Some(at) => at,
            None => {
                let new = BySome::new(&path.program, wanted)?;
                path.by_some.truncate(MOST_KEPT - 1);
                path.by_some.push(new);
                path.by_some.len() - 1
            }
        };
        path.by_some[..=at].rotate_right(1);
        let all = path.inputs(numbers);
        let BySome { inputs, replay, .. } = &mut path.by_some[0];
        Ok(with_scalars!(replay, replay => {
            for (slot, &k) in replay.inputs_mut().iter_mut().zip(&*inputs) {
                *slot = Float::from_f64(all[k as usize]);
            }
            replay.checked_values()
        }))
    }

    /// The value of the only output and its wanted gradient, after an attempt.
    fn value_and_gradient(&mut self) -> (f64, Vec<f64>) {
        let n = self.wanted.iter().filter(|&&is_wanted| is_wanted).count();
        with_scalars!(&mut self.replay, replay => {
            replay.reverse_one();
            (replay.output(0, 0).to_f64(), (0..n).map(|k| replay.gradient(k, 0).to_f64()).collect())
        })
    }

    /// Bytes of compiled code.
    pub fn bytes(&self) -> usize {
        self.inputs.len() * 5 + with_scalars!(&self.replay, replay => replay.bytes())
    }
}

/// The value of the only output, and the wanted numbers of its gradient, concatenated; all by default.
fn value_and_gradient(
    call: &Call<'_>,
    arguments: &Arguments<'_>,
    wanted: Option<&[bool]>,
    method: &str,
) -> PyResult<(f64, Vec<f64>)> {
    let py = call.py();
    let found = match wanted.filter(|wanted| !wanted.iter().all(|&is_wanted| is_wanted)) {
        None => with_path(call, arguments, |path| match path.results {
            Tree::Number => Ok((path.values()[0], path.gradient())),
            _ => Err(path.results.text(py)),
        })?,
        Some(wanted) => {
            with_path_by(call, arguments, wanted, |path| match (&path.results, path.by_some.first_mut()) {
                (Tree::Number, Some(by)) => Ok(by.value_and_gradient()),
                _ => Err(path.results.text(py)),
            })?
        }
    };
    found.map_err(|shape| {
        let name = call.with(|state| state.name.clone()).unwrap_or_default();
        let message = format!(
            "{method}() needs a function that returns one Value; {name} returned {shape}; use jacobian() or vjp()"
        );
        derived(py, "TraceError", message)
    })
}

/// The variables of a gradient: arguments, with their containers, or numbers of them.
struct Chosen<'py> {
    by: Argnums,
    wanted: Option<Bound<'py, PyAny>>,
}

impl<'py> Chosen<'py> {
    fn of(call: &mut Call<'py>) -> PyResult<Self> {
        let (argnums, wanted) = (call.take("argnums"), call.take("wanted").filter(|wanted| !wanted.is_none()));
        if wanted.is_some() && argnums.as_ref().is_some_and(|argnums| !argnums.is_none()) {
            return Err(PyValueError::new_err(
                "argnums selects arguments, wanted selects numbers; pass only one of them",
            ));
        }
        Ok(Chosen { by: Argnums::of(argnums.filter(|which| !which.is_none()).as_ref())?, wanted })
    }

    /// Whether each number of the arguments is selected; `None` for all.
    fn flags(&self, tree: &Tree) -> PyResult<Option<Vec<bool>>> {
        let Some(what) = &self.wanted else {
            return if self.by == Argnums::All { Ok(None) } else { wanted(tree, &self.by).map(Some) };
        };
        let mut flags = vec![false; tree.len()];
        ranges(flags.len(), what)?.into_iter().flatten().for_each(|k| flags[k as usize] = true);
        Ok(Some(flags))
    }

    /// The returned gradient.
    fn shaped(&self, py: Python<'py>, tree: &Tree, gradient: &[f64]) -> PyResult<Bound<'py, PyAny>> {
        match self.wanted {
            Some(_) => filled(py, &[gradient.len()], Kind::F64, gradient),
            None => shaped(py, tree, gradient, &self.by),
        }
    }
}

/// The wanted numbers of `n`.
fn ranges(n: usize, what: &Bound<'_, PyAny>) -> PyResult<Vec<Range<u32>>> {
    if what.cast::<PyList>().is_ok_and(|items| items.is_empty()) {
        return Ok(Vec::new());
    }
    if let Some(ranges) = listed(n, "numbers", what)? {
        return Ok(ranges);
    }
    range_in(n, what)?.map(|range| vec![range]).ok_or_else(|| {
        let found = type_name(what);
        PyTypeError::new_err(format!("wanted must be a range, sorted indices or a mask of bools, found {found}"))
    })
}

/// Whether each of `n` arguments is selected.
fn flags(chosen: &[usize], n: usize) -> Vec<bool> {
    let mut flags = vec![false; n];
    chosen.iter().for_each(|&k| flags[k] = true);
    flags
}

/// Whether each number of the arguments belongs to a selected one.
fn wanted(tree: &Tree, by: &Argnums) -> PyResult<Vec<bool>> {
    let Tree::Sequence { items, .. } = tree else { return Ok(vec![true; tree.len()]) };
    let chosen = flags(&by.among(items.len())?, items.len());
    Ok(items.iter().zip(chosen).flat_map(|(item, is_chosen)| std::iter::repeat_n(is_chosen, item.len())).collect())
}

/// The gradient in the shape of the arguments of `by`, from its concatenated numbers: of the only one, or a tuple.
pub fn shaped<'py>(py: Python<'py>, tree: &Tree, gradient: &[f64], by: &Argnums) -> PyResult<Bound<'py, PyAny>> {
    let mut rest = gradient;
    let items = match tree {
        Tree::Sequence { items, .. } => &items[..],
        _ => std::slice::from_ref(tree),
    };
    if let ([only], Argnums::All) = (items, by) {
        return only.build(py, &mut rest);
    }
    let chosen = by.among(items.len())?;
    let is_chosen = flags(&chosen, items.len());
    let mut built = Vec::with_capacity(items.len());
    for (item, is_chosen) in items.iter().zip(is_chosen) {
        built.push(if is_chosen { Some(item.build(py, &mut rest)?) } else { None });
    }
    let mut all = chosen.into_iter().filter_map(|k| built[k].clone());
    match (by, items.len()) {
        (Argnums::One(_), _) | (Argnums::All, 1) => Ok(all.next().unwrap_or_else(|| py.None().into_bound(py))),
        _ => Ok(PyTuple::new(py, all.collect::<Vec<_>>())?.into_any()),
    }
}

/// Value and gradient, or, if arguments are arrays, the result of the array method of that name.
fn either<'py>(
    mut call: Call<'py>,
    method: &'static str,
    build: impl FnOnce(Python<'py>, f64, Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = call.py();
    let (chosen, out) = (Chosen::of(&mut call)?, Out::take(&mut call)?);
    let Some(arguments) = Arguments::unless_arrays(&call, &call.positional, method)? else {
        let is_pair = method == "value_and_grad";
        return match &chosen.wanted {
            Some(what) => by_some(&call, method, |n| ranges(n, what), (out, is_pair)),
            None => call_into(&call, method, chosen.by, out, is_pair),
        };
    };
    let wanted = chosen.flags(&arguments.tree)?;
    let (value, gradient) = value_and_gradient(&call, &arguments, wanted.as_deref(), method)?;
    build(py, value, written(chosen.shaped(py, &arguments.tree, &gradient)?, out)?)
}

/// `f.value_and_grad(x, ..., argnums=None, wanted=None)` in full.
pub fn value_and_grad(call: Call<'_>) -> PyResult<Bound<'_, PyAny>> {
    either(call, "value_and_grad", |py, value, gradient| Ok((value, gradient).into_pyobject(py)?.into_any()))
}

/// `f.grad(x, ..., argnums=None, wanted=None)` in full.
pub fn grad(call: Call<'_>) -> PyResult<Bound<'_, PyAny>> {
    either(call, "grad", |_, _, gradient| Ok(gradient))
}
