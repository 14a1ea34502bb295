//! Loops and branches over Arrays: their bodies are traced like those of transforms, and the core's instruction is appended.
//!
//! Promises: captures of outer traces become operands, in the order of first use; a carry keeps its structure,
//! shape and dtype; a refused operation appends nothing that is used. Knows nothing of derivatives.

use std::cell::Cell;
use std::sync::Arc;

use burtorch_core::array::{ArrayBuilder, ArrayOp, ArrayProgram, Dims, Element, ScanOptions, Shared, Type, ValueId};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyTuple};

use super::containers::Nest;
use super::transform::{Arguments, Child, Transform, present, traced_child};
use crate::array::append::append_to;
use crate::array::array::PyArray;
use crate::array::trace::Source;
use crate::convert::errors::{IntoPython, derived};
use crate::convert::gc::{HoldsObjects, Visitor};
use crate::convert::numbers::number_of;
use crate::convert::refusals::{error_here, not_in_a_trace};

/// The kind of a loop or branch, besides its function.
#[derive(Debug)]
pub enum Control {
    /// The arguments are the first carry and the slices.
    Scan(ScanOptions),
    /// The argument is the first carry.
    While { condition: Py<PyAny>, most: Option<usize> },
    /// From an integer to another one, which is excluded; the argument is the first carry.
    Fori(i64, i64),
    /// The arguments are those of both functions; before them the predicate, if it is not known.
    Cond { no: Py<PyAny>, known: Option<bool> },
}

impl HoldsObjects for Control {
    fn visit(&self, visit: &mut Visitor<'_>) {
        if let Control::While { condition: other, .. } | Control::Cond { no: other, .. } = self {
            visit(other);
        }
    }
}

/// The name of a type in messages.
fn words(ty: &Type) -> String {
    format!("{} of shape {}", format!("{:?}", ty.element).to_lowercase(), ty.dims)
}

/// A bool as NumPy's.
pub fn mask<'py>(x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    x.py().import("numpy")?.getattr("bool_")?.call1((x,))
}

/// The result of a body, with Python ints as floats, like arguments, except for carries of integers and bools.
pub(super) fn adapted<'py>(result: &Bound<'py, PyAny>, carries: &[Type]) -> PyResult<Bound<'py, PyAny>> {
    let py = result.py();
    let mut leaves = Vec::new();
    let nest = Nest::of(result, &mut leaves)?;
    for (k, leaf) in leaves.iter_mut().enumerate() {
        let element = carries.get(k).map(|ty| ty.element);
        if leaf.is_instance_of::<PyBool>() && element == Some(Element::Mask) {
            *leaf = mask(leaf)?;
        } else if leaf.is_instance_of::<PyInt>() && element != Some(Element::Int) {
            *leaf = PyFloat::new(py, leaf.extract()?).into_any();
        }
    }
    nest.build(py, &mut leaves.into_iter())
}

/// The Arrays of outer traces that follow the first `n` arguments of bodies, each once.
fn captures_of<'py>(children: &[&Child<'py>], n: usize) -> Vec<Bound<'py, PyAny>> {
    let mut all: Vec<Bound<'py, PyAny>> = Vec::new();
    for capture in children.iter().flat_map(|child| &child.operands[n..]) {
        if position(&all, capture).is_none() {
            all.push(capture.clone());
        }
    }
    all
}

fn position(all: &[Bound<'_, PyAny>], capture: &Bound<'_, PyAny>) -> Option<usize> {
    let Ok(capture) = capture.cast::<PyArray>() else { return None };
    all.iter().position(|known| known.cast::<PyArray>().is_ok_and(|known| known.get().is_same(capture)))
}

/// A body's program for the core: with captures before its own `n` arguments, and calls expanded.
fn arranged(child: &Child<'_>, n: usize, captures: &[Bound<'_, PyAny>]) -> burtorch_core::Result<ArrayProgram> {
    let mut b = ArrayBuilder::new(child.program.dtype())?;
    let input = |b: &mut ArrayBuilder, ty: Type| b.input(&ty.dims, ty.element);
    let mut first = Vec::with_capacity(captures.len());
    for capture in captures.iter().filter_map(|capture| capture.cast::<PyArray>().ok()) {
        first.push(input(&mut b, capture.get().type_of())?);
    }
    let mut arguments = Vec::with_capacity(child.operands.len());
    for &ty in &child.program.input_types()[..n] {
        arguments.push(input(&mut b, ty)?);
    }
    arguments.extend(child.operands[n..].iter().filter_map(|capture| Some(first[position(captures, capture)?])));
    let results = b.push_all(ArrayOp::Call(Shared(Arc::new(child.program.clone()))), &arguments)?;
    b.finish(&results)?.without_calls()
}

/// `program` with its only result as a mask.
fn as_mask(program: &ArrayProgram) -> burtorch_core::Result<ArrayProgram> {
    let mut b = ArrayBuilder::new(program.dtype())?;
    let mut arguments = Vec::new();
    for ty in program.input_types() {
        arguments.push(b.input(&ty.dims, ty.element)?);
    }
    let results = b.push_all(ArrayOp::Call(Shared(Arc::new(program.clone()))), &arguments)?;
    let mask = b.convert(results[0], Element::Mask)?;
    b.finish(&[mask])?.without_calls()
}

/// An instruction in the current trace; `build` receives the values of captures and of the other operands, which have these types.
fn appended<'py>(
    py: Python<'py>,
    captures: &[Bound<'py, PyAny>],
    (operands, types): (&[Bound<'py, PyAny>], &[Type]),
    build: impl FnOnce(&mut ArrayBuilder, &[ValueId], &[ValueId]) -> burtorch_core::Result<Vec<ValueId>>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let all = [captures, operands].concat();
    let Some(trace) = present(py, &all) else { return Err(not_in_a_trace(py, "this")) };
    let results = append_to(&trace, &all, |b, values| {
        let (captures, operands) = values.split_at(captures.len());
        let mut operands = operands.to_vec();
        for (value, ty) in operands.iter_mut().zip(types) {
            *value = b.convert(*value, ty.element)?;
            *value = b.broadcast_to(*value, ty.dims)?;
        }
        build(b, captures, &operands)
    })?;
    let results = results.ok_or_else(|| error_here(py, "this argument has no numbers"))?;
    Ok(results.into_iter().map(Bound::into_any).collect())
}

impl Transform {
    /// The results of the loop or branch, in the current trace.
    pub fn control<'py>(
        &self,
        py: Python<'py>,
        positional: &[Bound<'py, PyAny>],
        control: &Control,
    ) -> PyResult<Bound<'py, PyAny>> {
        match control {
            Control::Scan(options) => self.scan(py, positional, *options),
            Control::While { condition, most } => self.while_loop(py, positional, condition.bind(py), *most),
            Control::Fori(first, end) => self.fori_loop(py, positional, (*first, *end)),
            Control::Cond { no, known } => self.cond(py, positional, no.bind(py), *known),
        }
    }

    /// Traces a body; `carries` are the required types of its first results, and `order` puts their dicts in order.
    fn body<'py>(
        &self,
        py: Python<'py>,
        function: &Bound<'py, PyAny>,
        arguments: &Arguments<'py>,
        types: &[Type],
        carries: &[Type],
        order: impl Fn(Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Child<'py>> {
        traced_child(py, &self.text(py), arguments, types, Source::Body(types.len()), |given| {
            adapted(&order(function.call1(given)?)?, carries)
        })
    }

    /// Refuses a body that changes the type of the carry.
    fn check_carry(&self, py: Python<'_>, given: (&Nest, &[Type]), found: (&Nest, &[Type])) -> PyResult<()> {
        if !found.0.same(py, given.0) {
            let message = format!(
                "{} needs a body that returns the carry with its structure unchanged: the same lists, tuples and \
                 dicts",
                self.text(py)
            );
            return Err(derived(py, "TraceError", message));
        }
        for (k, (given_type, found_type)) in given.1.iter().zip(found.1).enumerate() {
            if given_type != found_type {
                let message = format!(
                    "{} needs a body that keeps the shape and dtype of the carry: carry{} is {} and becomes {}",
                    self.text(py),
                    given.0.place(py, k),
                    words(given_type),
                    words(found_type)
                );
                return Err(derived(py, "TraceError", message));
            }
        }
        Ok(())
    }

    fn scan<'py>(
        &self,
        py: Python<'py>,
        positional: &[Bound<'py, PyAny>],
        mut options: ScanOptions,
    ) -> PyResult<Bound<'py, PyAny>> {
        let arguments = Arguments::of(py, self.name, positional)?;
        let n = arguments.nests[0].len();
        let mut types = arguments.types.clone();
        for (k, ty) in types.iter_mut().enumerate().skip(n) {
            let place = || format!("xs{}", arguments.nests[1].place(py, k - n));
            let Some((&extent, rest)) = ty.dims.split_first() else {
                return Err(PyValueError::new_err(format!(
                    "scan() needs arrays with a first axis, {} has none",
                    place()
                )));
            };
            if *options.length.get_or_insert(extent) != extent {
                let length = options.length.unwrap_or(0);
                let message = format!("scan() takes {length} steps and {} has {extent} along its first axis", place());
                return Err(PyValueError::new_err(message));
            }
            *ty = Type { dims: Dims::new(rest).or_raise(py)?, ..*ty };
        }
        if options.length.is_none() {
            return Err(PyValueError::new_err("scan() needs arrays xs, or length="));
        }
        let ordered = |found: Bound<'py, PyAny>| match found.cast_exact::<PyTuple>().ok().filter(|pair| pair.len() == 2)
        {
            Some(pair) => {
                let carry = arguments.nests[0].ordered(&pair.get_item(0)?)?;
                Ok((carry, pair.get_item(1)?).into_pyobject(py)?.into_any())
            }
            None => Ok(found),
        };
        let child = self.body(py, self.function.bind(py), &arguments, &types, &types[..n], ordered)?;
        let (carry, stacked) = match (&child.nest, child.nest.items()) {
            (Nest::Sequence { is_tuple: true, .. }, [carry, stacked]) => (carry, stacked),
            _ => {
                let message = format!("{} needs a body that returns a tuple (carry, step result)", self.text(py));
                return Err(derived(py, "TraceError", message));
            }
        };
        let found = child.program.output_types();
        self.check_carry(py, (&arguments.nests[0], &types[..n]), (carry, &found))?;
        let captures = captures_of(&[&child], types.len());
        let body = arranged(&child, types.len(), &captures).or_raise(py)?;
        let results = appended(py, &captures, (&arguments.leaves, &arguments.types), |b, captures, operands| {
            b.scan(body, captures, &operands[..n], &operands[n..], options)
        })?;
        let mut results = results.into_iter();
        let carry = carry.build(py, &mut results)?;
        Ok((carry, stacked.build(py, &mut results)?).into_pyobject(py)?.into_any())
    }

    fn while_loop<'py>(
        &self,
        py: Python<'py>,
        positional: &[Bound<'py, PyAny>],
        condition: &Bound<'py, PyAny>,
        most: Option<usize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let arguments = Arguments::of(py, self.name, positional)?;
        let types = &arguments.types;
        let n = types.len();
        let is_known = Cell::new(false);
        let asked = traced_child(py, &self.text(py), &arguments, types, Source::Body(n), |given| {
            let result = condition.call1(given)?;
            // Python's or NumPy's.
            is_known.set(result.extract::<bool>().is_ok());
            Ok(result)
        })?;
        let of_condition = asked.program.output_types();
        let is_mask = of_condition.first().is_some_and(|ty| ty.dims.rank() == 0 && ty.element == Element::Mask);
        if !matches!(asked.nest, Nest::Leaf) || !is_mask && !is_known.get() {
            let found = match (&asked.nest, of_condition.first()) {
                (Nest::Leaf, Some(ty)) => words(ty),
                _ => "no Array, or several".into(),
            };
            let message =
                format!("{} needs a condition that returns one bool of shape (), found {found}", self.text(py));
            return Err(derived(py, "TraceError", message));
        }
        let child = self
            .body(py, self.function.bind(py), &arguments, types, types, |carry| arguments.nests[0].ordered(&carry))?;
        self.check_carry(py, (&arguments.nests[0], types), (&child.nest, &child.program.output_types()))?;
        let captures = captures_of(&[&asked, &child], n);
        let condition = arranged(&asked, n, &captures).and_then(|program| as_mask(&program)).or_raise(py)?;
        let body = arranged(&child, n, &captures).or_raise(py)?;
        let results = appended(py, &captures, (&arguments.leaves, types), |b, captures, operands| {
            b.while_loop(condition, body, captures, operands, most)
        })?;
        child.nest.build(py, &mut results.into_iter())
    }

    fn fori_loop<'py>(
        &self,
        py: Python<'py>,
        positional: &[Bound<'py, PyAny>],
        (first, end): (i64, i64),
    ) -> PyResult<Bound<'py, PyAny>> {
        let number = first.into_pyobject(py)?.into_any();
        let arguments = Arguments::of(py, self.name, &[&[number], positional].concat())?;
        let mut types = arguments.types.clone();
        types[0] = Type { dims: Dims::SCALAR, element: Element::Int };
        let child = self.body(py, self.function.bind(py), &arguments, &types, &types[1..], |carry| {
            arguments.nests[1].ordered(&carry)
        })?;
        self.check_carry(py, (&arguments.nests[1], &types[1..]), (&child.nest, &child.program.output_types()))?;
        let captures = captures_of(&[&child], types.len());
        let body = arranged(&child, types.len(), &captures).or_raise(py)?;
        let results = appended(py, &captures, (&arguments.leaves[1..], &types[1..]), |b, captures, operands| {
            b.fori_loop((first, end), body, captures, operands)
        })?;
        child.nest.build(py, &mut results.into_iter())
    }

    fn cond<'py>(
        &self,
        py: Python<'py>,
        positional: &[Bound<'py, PyAny>],
        no: &Bound<'py, PyAny>,
        known: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (predicate, positional) = positional.split_at(usize::from(known.is_none()));
        let arguments = Arguments::of(py, self.name, positional)?;
        let types = &arguments.types;
        let n = types.len();
        let yes = self.body(py, self.function.bind(py), &arguments, types, &[], Ok)?;
        let no = self.body(py, no, &arguments, types, &yes.program.output_types(), |found| yes.nest.ordered(&found))?;
        let (found, other) = (yes.program.output_types(), no.program.output_types());
        if !yes.nest.same(py, &no.nest) || found != other {
            let differ = found.iter().zip(&other).find(|(x, y)| x != y);
            let differ = differ.map_or("other containers".into(), |(x, y)| format!("{} and {}", words(x), words(y)));
            let message =
                format!("{} needs two functions that return the same shapes and dtypes, found {differ}", self.text(py));
            return Err(derived(py, "TraceError", message));
        }
        let captures = captures_of(&[&yes, &no], n);
        let branches = arranged(&yes, n, &captures).and_then(|yes| Ok((yes, arranged(&no, n, &captures)?)));
        let (of_yes, of_no) = branches.or_raise(py)?;
        let operands = [predicate, &arguments.leaves[..]].concat();
        let all = match predicate {
            [] => types.clone(),
            _ => [&[Type { dims: Dims::SCALAR, element: Element::Mask }], &types[..]].concat(),
        };
        let results = appended(py, &captures, (&operands, &all), |b, captures, operands| {
            let (predicate, operands) = match known {
                Some(known) => (b.push(ArrayOp::Integer(known.into()), &[])?, operands),
                None => (operands[0], &operands[1..]),
            };
            b.cond(predicate, of_yes, of_no, &[captures, operands].concat())
        })?;
        yes.nest.build(py, &mut results.into_iter())
    }
}

/// A predicate: its outcome if it is known; an Array must be one bool.
pub fn known_predicate(predicate: &Bound<'_, PyAny>) -> PyResult<Option<bool>> {
    if let Ok(array) = predicate.cast::<PyArray>() {
        let ty = array.get().type_of();
        if ty.dims.rank() == 0 {
            return Ok(None);
        }
        return Err(PyTypeError::new_err(format!("cond() needs a predicate that is one bool, found {}", words(&ty))));
    }
    if let Ok(known) = predicate.cast::<PyBool>() {
        return Ok(Some(known.is_true()));
    }
    let found = predicate.get_type();
    match predicate.extract::<bool>() {
        // NumPy's.
        Ok(known) => Ok(Some(known)),
        Err(_) => match number_of(predicate)? {
            Some(number) if number.is_nan() => Err(PyValueError::new_err("the predicate of cond() is NaN")),
            Some(number) => Ok(Some(number != 0.0)),
            None => Err(PyTypeError::new_err(format!(
                "cond() needs a predicate that is one bool, found {}",
                found.name()?.to_string_lossy()
            ))),
        },
    }
}
