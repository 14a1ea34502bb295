//! The effect of each transform on the program of its function: gradients, Jacobians, directions, weights, rows.
//!
//! Promises: structures of arguments and results as in JAX; auxiliary results come from a separate call, and common parts
//! are computed once. Does not know how the program was traced.

use burtorch_core::array::{ArrayProgram, Element, OverRows, Type, Variable};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::axes::axes_of;
use super::containers::Nest;
use super::derivative_programs::{batched, jacobian, parameter_gradient, row_types, sparse_entries, totalled};
use super::transform::{Arguments, Child, Rule, Transform, present};
use crate::array::append::append_apart;
use crate::array::array::PyArray;
use crate::array::trace::around_loops;
use crate::convert::errors::{IntoPython, derived};
use crate::convert::refusals::not_in_a_trace;
use crate::convert::signals::asked;

/// A transformed program, with Python errors, interruptible.
fn transformed(py: Python<'_>, make: impl FnOnce() -> burtorch_core::Result<ArrayProgram>) -> PyResult<ArrayProgram> {
    asked(make).or_raise(py)
}

fn pair<'py>(x: Bound<'py, PyAny>, y: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    Ok(PyTuple::new(x.py(), [x.clone(), y])?.into_any())
}

/// The body as one instruction, which reverse mode recomputes.
pub fn checkpoint<'py>(py: Python<'py>, child: &Child<'py>) -> PyResult<Bound<'py, PyAny>> {
    let Some(trace) = present(py, &child.operands) else { return Err(not_in_a_trace(py, "this")) };
    let found = append_apart(&trace, &child.program, &child.operands, None)?;
    child.built(py, &child.nest, 0, &mut found.into_iter())
}

impl Transform {
    /// Auxiliary results, from a separate call; common parts are computed once.
    fn auxiliary<'py>(
        &self,
        py: Python<'py>,
        child: &Child<'py>,
        n: usize,
        nest: &Nest,
    ) -> PyResult<Bound<'py, PyAny>> {
        let found = child.call(py, child.program.selecting(n..n + nest.len()), &[])?;
        child.built(py, nest, n, &mut found.into_iter())
    }

    /// Refuses a result that is not a single float.
    fn need_number(&self, py: Python<'_>, child: &Child<'_>, nest: &Nest) -> PyResult<()> {
        let ty = child.program.output_types().first().copied();
        if matches!(nest, Nest::Leaf) && ty.is_some_and(|ty| ty.dims.rank() == 0 && ty.element == Element::Float) {
            return Ok(());
        }
        let found = match (nest, ty) {
            (Nest::Leaf, Some(ty)) => format!("an Array of {:?} of shape {}", ty.element, ty.dims).to_lowercase(),
            (Nest::None, _) => "None".into(),
            _ => "several".into(),
        };
        let message = format!(
            "{} needs a function that returns one float of shape (), found {found}; use jacobian or vjp",
            self.text(py)
        );
        Err(derived(py, "TraceError", message))
    }

    /// Refuses results that are not floats among the first `n`.
    fn need_floats(&self, py: Python<'_>, child: &Child<'_>, n: usize) -> PyResult<()> {
        if child.program.output_types()[..n].iter().all(|ty| ty.element == Element::Float) {
            return Ok(());
        }
        let message = format!("{} needs a function that returns floats, found integers or a mask", self.text(py));
        Err(derived(py, "TraceError", message))
    }

    pub fn grad<'py>(
        &self,
        py: Python<'py>,
        arguments: &Arguments<'py>,
        child: &Child<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (nest, auxiliary) = child.split(py, &self.text(py), self.has_aux)?;
        self.need_number(py, child, nest)?;
        let (by, chosen) = self.variables(py, arguments)?;
        let program = transformed(py, || child.program.selecting(0..1).value_and_gradient(&by))?;
        let mut found = child.call(py, program, &[])?.into_iter();
        let value = found.next().map_or_else(|| py.None().into_bound(py), Bound::into_any);
        let gradient = self.shaped(py, arguments, &chosen, &mut found)?;
        let auxiliary = auxiliary.map(|nest| self.auxiliary(py, child, 1, nest)).transpose()?;
        match (&self.rule, auxiliary) {
            (Rule::Grad { with_value: false }, None) => Ok(gradient),
            (Rule::Grad { with_value: false }, Some(auxiliary)) => pair(gradient, auxiliary),
            (_, None) => pair(value, gradient),
            (_, Some(auxiliary)) => pair(pair(value, auxiliary)?, gradient),
        }
    }

    pub fn param_grad<'py>(&self, py: Python<'py>, child: &Child<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.need_number(py, child, &child.nest)?;
        let Some(trace) = present(py, &child.operands) else { return Err(not_in_a_trace(py, "this")) };
        if around_loops(&trace).is_some() {
            let message = format!(
                "{} is not available in loop bodies, which take Parameters as arguments; use grad",
                self.text(py)
            );
            return Err(derived(py, "TraceError", message));
        }
        let sets = child.program.sets().into_iter().filter_map(|k| Some((k, trace.get().set_of(py, k as usize)?)));
        let sets = sets.map(|(k, set)| Ok((k, set.get().all(py)?.len()))).collect::<PyResult<Vec<_>>>()?;
        if sets.is_empty() {
            let message = format!("{} needs a function that reads Parameters; use grad for arguments", self.text(py));
            return Err(derived(py, "TraceError", message));
        }
        let program = transformed(py, || parameter_gradient(&child.program, &sets))?;
        let found = child.call(py, program, &[])?.into_iter().map(Bound::into_any).collect::<Vec<_>>();
        let (value, gradients) = (found[0].clone(), &found[1..]);
        match gradients {
            [one] => pair(value, one.clone()),
            all => pair(value, PyTuple::new(py, all)?.into_any()),
        }
    }

    pub fn jacobian<'py>(
        &self,
        py: Python<'py>,
        arguments: &Arguments<'py>,
        child: &Child<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (nest, auxiliary) = child.split(py, &self.text(py), self.has_aux)?;
        let (by, chosen) = self.variables(py, arguments)?;
        let n = nest.len();
        self.need_floats(py, child, n)?;
        let program = transformed(py, || jacobian(&child.program.selecting(0..n), &by))?;
        let mut found = child.call(py, program, &[])?.into_iter();
        let rows = (0..n).map(|_| self.shaped(py, arguments, &chosen, &mut found)).collect::<PyResult<Vec<_>>>()?;
        let jacobian = nest.build(py, &mut rows.into_iter())?;
        match auxiliary {
            Some(nest) => pair(jacobian, self.auxiliary(py, child, n, nest)?),
            None => Ok(jacobian),
        }
    }

    /// The entries of the Jacobian that may differ from 0, by rows, or ones in their place; where each row begins, the columns
    /// of the entries, and the number of columns.
    pub fn entries<'py>(
        &self,
        py: Python<'py>,
        arguments: &Arguments<'py>,
        child: &Child<'py>,
        is_pattern: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (by, _) = self.variables(py, arguments)?;
        let n = child.nest.len();
        self.need_floats(py, child, n)?;
        let program = transformed(py, || sparse_entries(&child.program.selecting(0..n), &by, is_pattern))?;
        let found = child.call(py, program, &[])?;
        Ok(PyTuple::new(py, found)?.into_any())
    }

    /// Refuses directions with other shapes than their arguments.
    fn check_alike(&self, py: Python<'_>, what: &str, types: &[Type], found: &[Type]) -> PyResult<()> {
        for (ty, found) in types.iter().zip(found) {
            if ty.element == Element::Float && ty.dims != found.dims {
                let message = format!(
                    "{} takes {what} with matching shapes, found {} for {}",
                    self.text(py),
                    found.dims,
                    ty.dims
                );
                return Err(PyValueError::new_err(message));
            }
        }
        Ok(())
    }

    pub fn jvp<'py>(
        &self,
        py: Python<'py>,
        positional: &[Bound<'py, PyAny>],
        named: Option<&Bound<'py, PyDict>>,
        with_value: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let [positional, along] = self.argnums.with_directions(self.name, positional)?;
        let arguments = Arguments::of(py, self.name, positional)?;
        let chosen = self.argnums.among(positional.len())?;
        let nests = || chosen.iter().map(|&k| &arguments.nests[k]);
        let ordered = nests().zip(along).map(|(nest, found)| nest.ordered(found));
        let directions = Arguments::of(py, self.name, &ordered.collect::<PyResult<Vec<_>>>()?)?;
        if !nests().zip(&directions.nests).all(|(x, y)| x.same(py, y)) {
            let message = format!("{} takes directions with the structure of the arguments", self.text(py));
            return Err(derived(py, "TraceError", message));
        }
        let moving: Vec<_> = chosen.iter().flat_map(|&k| arguments.leaves_of(k)).collect();
        let types: Vec<_> = moving.iter().map(|&leaf| arguments.types[leaf]).collect();
        self.check_alike(py, "directions", &types, &directions.types)?;
        let child = self.child(py, &arguments, &arguments.types, vec![false; arguments.leaves.len()], named)?;
        let (nest, auxiliary) = child.split(py, &self.text(py), self.has_aux)?;
        let floats = moving.iter().zip(&directions.leaves).filter(|(leaf, _)| arguments.is_float(**leaf));
        let (by, along): (Vec<_>, Vec<_>) =
            floats.map(|(&leaf, direction)| (Variable::Input(leaf), direction.clone())).unzip();
        let n = nest.len();
        let program = transformed(py, || child.program.selecting(0..n).jvp(&by))?;
        let mut found = child.call(py, program, &along)?;
        let mut changes = found.split_off(n).into_iter();
        let none = py.None().into_bound(py);
        let changes = found.iter().zip(&child.kinds).map(|(value, &kind)| match value.get().type_of().element {
            Element::Float => {
                changes.next().map_or(Ok(none.clone()), |change| Ok(PyArray::as_derivative(change, kind)?.into_any()))
            }
            _ => Ok(none.clone()),
        });
        let change = nest.build(py, &mut changes.collect::<PyResult<Vec<_>>>()?.into_iter())?;
        let auxiliary = auxiliary.map(|nest| self.auxiliary(py, &child, n, nest)).transpose()?;
        match (with_value, auxiliary) {
            (false, None) => Ok(change),
            (false, Some(auxiliary)) => pair(change, auxiliary),
            (true, None) => pair(child.built(py, nest, 0, &mut found.into_iter())?, change),
            (true, Some(auxiliary)) => {
                let value = child.built(py, nest, 0, &mut found.into_iter())?;
                Ok(PyTuple::new(py, [value, change, auxiliary])?.into_any())
            }
        }
    }

    pub fn vjp<'py>(
        &self,
        py: Python<'py>,
        positional: &[Bound<'py, PyAny>],
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Some((weights, positional)) = positional.split_last() else {
            return Err(PyTypeError::new_err(
                "vjp() takes the arguments followed by weights with the shape of the result",
            ));
        };
        let arguments = Arguments::of(py, self.name, positional)?;
        let child = self.child(py, &arguments, &arguments.types, vec![false; arguments.leaves.len()], named)?;
        let (nest, auxiliary) = child.split(py, &self.text(py), self.has_aux)?;
        let weights = Arguments::of(py, self.name, &[nest.ordered(weights)?])?;
        let (by, chosen) = self.variables(py, &arguments)?;
        let n = nest.len();
        let types = &child.program.output_types()[..n];
        if !nest.same(py, &weights.nests[0]) {
            let message = format!("{} takes weights with the structure of the result", self.text(py));
            return Err(derived(py, "TraceError", message));
        }
        self.check_alike(py, "weights", types, &weights.types)?;
        let seeds = weights.leaves.iter().zip(types).filter(|(_, ty)| ty.element == Element::Float);
        let seeds: Vec<_> = seeds.map(|(leaf, _)| leaf.clone()).collect();
        let program = transformed(py, || child.program.selecting(0..n).vjp(&by))?;
        let mut found = child.call(py, program, &seeds)?;
        let gradients = found.split_off(n);
        let gradient = self.shaped(py, &arguments, &chosen, &mut gradients.into_iter())?;
        let value = child.built(py, nest, 0, &mut found.into_iter())?;
        match auxiliary {
            None => pair(value, gradient),
            Some(nest) => {
                let auxiliary = self.auxiliary(py, &child, n, nest)?;
                Ok(PyTuple::new(py, [value, gradient, auxiliary])?.into_any())
            }
        }
    }

    pub fn vmap<'py>(
        &self,
        py: Python<'py>,
        positional: &[Bound<'py, PyAny>],
        named: Option<&Bound<'py, PyDict>>,
        (in_axes, out_axes): (&Bound<'py, PyAny>, &Bound<'py, PyAny>),
        reduce: Option<OverRows>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let arguments = Arguments::of(py, self.name, positional)?;
        let axes = axes_of(in_axes, &arguments.nests, "in_axes")?;
        for (axis, ty) in axes.iter().zip(&arguments.types) {
            let rank = ty.dims.rank() as isize;
            if let Some(axis) = axis.filter(|axis| rank > 0 && !(-rank..rank).contains(axis)) {
                let message = format!("in_axes {axis} is not an axis of an argument with {rank}");
                return Err(PyValueError::new_err(message));
            }
        }
        let (types, axes, rows) = row_types(&arguments.types, &axes).or_raise(py)?;
        let are_mapped: Vec<_> = axes.iter().map(Option::is_some).collect();
        let child = self.child(py, &arguments, &types, are_mapped.clone(), named)?;
        let of_captures = child.operands.len() - axes.len();
        let in_axes = axes.into_iter().chain(std::iter::repeat_n(None, of_captures)).collect::<Vec<_>>();
        if let Some(over) = reduce {
            let program = transformed(py, || totalled(&child.program, &in_axes, over, rows))?;
            let found = child.call(py, program, &[])?;
            return child.built(py, &child.nest, 0, &mut found.into_iter());
        }
        let out = axes_of(out_axes, std::slice::from_ref(&child.nest), "out_axes")?;
        let mapped: Vec<_> = (0..are_mapped.len()).filter(|&k| are_mapped[k]).collect();
        let reads = child.program.outputs_that_read(&mapped);
        let mut to = Vec::with_capacity(out.len());
        for ((axis, ty), reads) in out.iter().zip(child.program.output_types()).zip(reads) {
            let rank = ty.dims.rank() as isize + 1;
            to.push(match axis {
                Some(axis) if (-rank..rank).contains(axis) => Some(axis.rem_euclid(rank) as usize),
                Some(axis) => {
                    let message = format!("out_axes {axis} is not an axis of a result with {rank}");
                    return Err(PyValueError::new_err(message));
                }
                None if reads => {
                    let message =
                        "out_axes must not be None for a result that differs from row to row; give it an axis";
                    return Err(PyValueError::new_err(message));
                }
                None => None,
            });
        }
        let program = transformed(py, || batched(&child.program, &in_axes, &to, rows))?;
        let found = child.call(py, program, &[])?;
        child.built(py, &child.nest, 0, &mut found.into_iter())
    }
}
