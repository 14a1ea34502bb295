//! Primitives with Arrays: the function is traced, and its rules are traced when a derivative needs them.
//!
//! Promises: results of a rule have the right structure, shapes and dtypes, or an error names the primitive; rules
//! use only their arguments. A rule is traced where the derivative is taken, so its sources are watched like those of a body. Knows
//! nothing of Values.

use std::cell::Cell;
use std::sync::OnceLock;

use burtorch_core::DType;
use burtorch_core::array::{ArrayProgram, Element, Rules, Type};
use pyo3::exceptions::{PyReferenceError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyInt, PyList, PyTuple, PyWeakrefMethods, PyWeakrefReference};

use super::containers::Nest;
use super::control::adapted;
use super::primitive::{PyPrimitive, no_derivative};
use super::transform::{Arguments, present, traced_child};
use crate::array::append::{append_apart, append_to};
use crate::array::array::PyArray;
use crate::array::array_trial;
use crate::array::trace::{Active, Source, current};
use crate::convert::buffer::type_name;
use crate::convert::errors::derived;
use crate::convert::refusals::not_in_a_trace;
use crate::convert::signals::failed;
use crate::params::{PyParameter, PyTensor};

thread_local! {
    /// Whether a rule is being traced in this thread.
    static IN_RULE: Cell<bool> = const { Cell::new(false) };
}

/// Whether a call uses Arrays: some are among the arguments, or there are parameters in a trace with Arrays.
pub fn is_meant(args: &Bound<'_, PyTuple>) -> PyResult<bool> {
    let is_traced = current(args.py()).is_some();
    let mut leaves = Vec::new();
    Nest::of(args, &mut leaves)?;
    Ok(leaves.iter().any(|x| {
        x.is_instance_of::<PyArray>()
            || is_traced && (x.is_instance_of::<PyTensor>() || x.is_instance_of::<PyParameter>())
    }))
}

/// A primitive called with Arrays.
pub fn call<'py>(primitive: &Bound<'py, PyPrimitive>, args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let py = primitive.py();
    array_trial::refuse(py)?;
    let name = primitive.get().name(py);
    let arguments = Arguments::of(py, &name, &args.iter().collect::<Vec<_>>())?;
    let Some(trace) = present(py, &arguments.leaves) else { return Err(not_in_a_trace(py, "this")) };
    let n = arguments.leaves.len();
    let source = Source::Operands(arguments.leaves.iter().map(|leaf| leaf.clone().unbind()).collect(), vec![false; n]);
    let function = primitive.getattr(pyo3::intern!(py, "__wrapped__"))?;
    let child =
        traced_child(py, &name, &arguments, &arguments.types, source, |given| adapted(&function.call1(given)?, &[]))?;
    if child.operands.len() > n || !child.program.sets().is_empty() {
        return Err(uses_others(py, &name));
    }
    if child.nest.len() == 0 {
        let message = format!("the primitive {name} returned no numbers; return an Array or several");
        return Err(derived(py, "TraceError", message));
    }
    let rules = TracedRules {
        primitive: PyWeakrefReference::new(primitive)?.unbind(),
        key: primitive.as_ptr() as usize,
        name,
        dtype: child.program.dtype(),
        result: child.nest.copy(py),
        results: child.program.output_types(),
        nests: arguments.nests,
        types: arguments.types,
        reverse: OnceLock::new(),
        forward: OnceLock::new(),
    };
    // Arrays of a graph are differentiated later, outside a trace.
    if !trace.get().keep(py, primitive.clone().into_any().unbind()) && !IN_RULE.get() {
        rules.prepare(py, primitive.get())?;
    }
    let results = append_apart(&trace, &child.program, &child.operands, Some(Box::new(rules)))?;
    child.nest.build(py, &mut results.into_iter().map(Bound::into_any))
}

fn uses_others(py: Python<'_>, name: &str) -> PyErr {
    let message = format!(
        "the primitive {name} captures an Array or Parameters, which its rules cannot differentiate; pass it as an argument"
    );
    derived(py, "TraceError", message)
}

/// The target of a part of a rule's result.
#[derive(Clone, Copy)]
enum For {
    Argument(usize),
    Result,
}

impl std::fmt::Display for For {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            For::Argument(k) => write!(f, "argument {k}"),
            For::Result => f.write_str("the result"),
        }
    }
}

/// The rules of a primitive for arguments of these types.
#[derive(Debug)]
struct TracedRules {
    primitive: Py<PyWeakrefReference>,
    key: usize,
    name: String,
    dtype: DType,
    /// Containers and types of the result.
    result: Nest,
    results: Vec<Type>,
    /// Those of the arguments.
    nests: Vec<Nest>,
    types: Vec<Type>,
    reverse: OnceLock<Option<ArrayProgram>>,
    forward: OnceLock<Option<ArrayProgram>>,
}

fn is_float(ty: &Type) -> bool {
    ty.element == Element::Float
}

/// The first argument of a rule: adjoints of the result, or a tuple of tangents of the arguments.
#[derive(Clone, Copy)]
enum Seeds<'a> {
    One(&'a Nest),
    Tuple(&'a [Nest]),
}

/// A part of a rule's result, with its target and type; None means no contribution.
type Returned<'py> = (For, Type, Option<Bound<'py, PyAny>>);

/// The parts of an object, as those of `nest`: none for None, which may replace all of them.
fn taken_apart<'py>(nest: &Nest, object: &Bound<'py, PyAny>) -> Option<Vec<Option<Bound<'py, PyAny>>>> {
    if object.is_none() {
        return Some((0..nest.len()).map(|_| None).collect());
    }
    let found: Vec<_> = match nest {
        Nest::Leaf => return Some(vec![Some(object.clone())]),
        Nest::None => return None,
        Nest::Sequence { .. } => match (object.cast::<PyTuple>(), object.cast::<PyList>()) {
            (Ok(tuple), _) => tuple.iter().collect(),
            (_, Ok(list)) => list.iter().collect(),
            _ => return None,
        },
        Nest::Dict { keys, .. } => {
            let dict = object.cast::<PyDict>().ok().filter(|dict| dict.len() == keys.len())?;
            keys.iter().map(|key| dict.get_item(key).ok().flatten()).collect::<Option<_>>()?
        }
    };
    let items = nest.items();
    let parts = items.iter().zip(&found).map(|(item, x)| taken_apart(item, x)).collect::<Option<Vec<_>>>()?;
    (found.len() == items.len()).then(|| parts.into_iter().flatten().collect())
}

impl TracedRules {
    /// Traces the rules now.
    fn prepare(&self, py: Python<'_>, primitive: &PyPrimitive) -> PyResult<()> {
        let [vjp, jvp] = primitive.rules(py);
        if let Some(rule) = vjp {
            let _ = self.reverse.set(Some(self.reverse_of(&rule)?));
        }
        if let Some(rule) = jvp {
            let _ = self.forward.set(Some(self.forward_of(&rule)?));
        }
        Ok(())
    }

    /// The program of a rule, which takes `seeds` of these types first, then results and arguments; `returned` splits its
    /// result.
    fn traced<'py>(
        &self,
        rule: &Bound<'py, PyAny>,
        (seeds, types): (Seeds<'_>, &[Type]),
        returned: impl FnOnce(&Bound<'py, PyAny>) -> PyResult<Vec<Returned<'py>>>,
    ) -> PyResult<ArrayProgram> {
        let py = rule.py();
        let floats: Vec<_> = types.iter().filter(|ty| is_float(ty)).copied().collect();
        let n = floats.len() + self.results.len() + self.types.len();
        let active = Active::begin(current(py), py, &self.name, self.dtype, Source::Rule(n))?;
        let inputs = |types: &[Type]| -> PyResult<_> {
            let inputs = types.iter().map(|&ty| Ok(active.input(ty)?.into_any())).collect::<PyResult<Vec<_>>>()?;
            Ok(inputs.into_iter())
        };
        let mut given = inputs(&floats)?;
        let none = py.None().into_bound(py);
        let mut given =
            types.iter().map(|ty| is_float(ty).then(|| given.next()).flatten().unwrap_or_else(|| none.clone()));
        let mut arguments = vec![match seeds {
            Seeds::One(nest) => nest.build(py, &mut given)?,
            Seeds::Tuple(nests) => {
                let all = nests.iter().map(|nest| nest.build(py, &mut given)).collect::<PyResult<Vec<_>>>()?;
                PyTuple::new(py, all)?.into_any()
            }
        }];
        arguments.push(self.result.build(py, &mut inputs(&self.results)?)?);
        let mut leaves = inputs(&self.types)?;
        for nest in &self.nests {
            arguments.push(nest.build(py, &mut leaves)?);
        }
        let before = IN_RULE.replace(true);
        let called = rule.call1(PyTuple::new(py, arguments)?);
        IN_RULE.set(before);
        let parts = returned(&called?)?.into_iter().filter(|(_, ty, _)| is_float(ty));
        let values = parts.map(|(part, ty, object)| self.value_of(&active, part, ty, object));
        let values = values.collect::<PyResult<Vec<_>>>()?;
        let is_outermost = active.trace().get().outer().is_none();
        let ended = active.finish(&values)?;
        if !ended.captures.is_empty() || !ended.program.sets().is_empty() || is_outermost && !ended.numbers.is_empty() {
            return Err(uses_others(py, &self.name));
        }
        Ok(ended.program)
    }

    /// A part of a rule's result, which must have this type.
    fn value_of<'py>(
        &self,
        active: &Active<'py>,
        part: For,
        ty: Type,
        object: Option<Bound<'py, PyAny>>,
    ) -> PyResult<burtorch_core::array::ValueId> {
        let py = active.trace().py();
        let name = &self.name;
        let Some(mut object) = object else {
            let message = format!(
                "the derivative of {name} returned None for {part}; return an Array of shape {}, of zeros where there is no \
                 contribution",
                ty.dims
            );
            return Err(PyTypeError::new_err(message));
        };
        if object.is_instance_of::<PyInt>() {
            object = PyFloat::new(py, object.extract()?).into_any();
        }
        let made = append_to(active.trace(), std::slice::from_ref(&object), |_, values| Ok(values.to_vec()))?;
        let Some([array]) = made.as_deref() else {
            let found = type_name(&object);
            let message = format!("the derivative of {name} returned {found} for {part}; return Arrays or numbers");
            return Err(PyTypeError::new_err(message));
        };
        let found = array.get().type_of();
        if found.dims != ty.dims {
            let message =
                format!("the derivative of {name} returned shape {} for {part} of shape {}", found.dims, ty.dims);
            return Err(PyValueError::new_err(message));
        }
        if found.element != ty.element {
            let message = format!("the derivative of {name} returned no floats for {part}, which contains floats");
            return Err(PyTypeError::new_err(message));
        }
        array.get().value(py)
    }

    fn other_containers(&self, part: For) -> PyErr {
        PyValueError::new_err(format!(
            "the derivative of {} returned containers that differ from those of {part}",
            self.name
        ))
    }

    fn reverse_of(&self, rule: &Bound<'_, PyAny>) -> PyResult<ArrayProgram> {
        self.traced(rule, (Seeds::One(&self.result), &self.results), |result| {
            let parts = self.contributions(result);
            let n = self.nests.len();
            if parts.len() != n {
                return Err(PyValueError::new_err(format!(
                    "the derivative of {} returned {} contributions for {n} arguments",
                    self.name,
                    parts.len()
                )));
            }
            let (mut types, mut all) = (self.types.iter(), Vec::new());
            for (k, (nest, part)) in self.nests.iter().zip(&parts).enumerate() {
                let leaves = taken_apart(nest, part).ok_or_else(|| self.other_containers(For::Argument(k)))?;
                all.extend(leaves.into_iter().zip(&mut types).map(|(x, ty)| (For::Argument(k), *ty, x)));
            }
            Ok(all)
        })
    }

    /// The result of a rule for each argument. That of a single argument need not be in a tuple.
    fn contributions<'py>(&self, result: &Bound<'py, PyAny>) -> Vec<Bound<'py, PyAny>> {
        let listed: Vec<_> = match (result.cast::<PyTuple>(), result.cast::<PyList>()) {
            (Ok(tuple), _) => tuple.iter().collect(),
            (_, Ok(list)) => list.iter().collect(),
            _ => return vec![result.clone()],
        };
        match &self.nests[..] {
            [nest @ (Nest::Sequence { .. } | Nest::Dict { .. })] if taken_apart(nest, result).is_some() => {
                vec![result.clone()]
            }
            _ => listed,
        }
    }

    fn forward_of(&self, rule: &Bound<'_, PyAny>) -> PyResult<ArrayProgram> {
        self.traced(rule, (Seeds::Tuple(&self.nests), &self.types), |result| {
            let leaves = taken_apart(&self.result, result).ok_or_else(|| self.other_containers(For::Result))?;
            Ok(leaves.into_iter().zip(&self.results).map(|(x, ty)| (For::Result, *ty, x)).collect())
        })
    }

    /// The known rule of one direction, or a new trace of it.
    fn found(
        &self,
        known: &OnceLock<Option<ArrayProgram>>,
        which: usize,
        trace: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<ArrayProgram>,
    ) -> burtorch_core::Result<Option<ArrayProgram>> {
        if let Some(known) = known.get() {
            return Ok(known.clone());
        }
        let found = Python::attach(|py| {
            let gone = || PyReferenceError::new_err(format!("the primitive {} no longer exists", self.name));
            let primitive = self.primitive.bind(py).upgrade_as::<PyPrimitive>()?.ok_or_else(gone)?;
            let mut rules = primitive.get().rules(py);
            if rules.iter().all(Option::is_none) {
                return Err(no_derivative(&self.name));
            }
            rules[which].take().map(|rule| trace(&rule)).transpose()
        });
        let found = found.map_err(failed)?;
        Ok(known.get_or_init(|| found).clone())
    }
}

impl Rules for TracedRules {
    fn name(&self) -> &str {
        &self.name
    }

    fn key(&self) -> usize {
        self.key
    }

    fn reverse(&self) -> burtorch_core::Result<Option<ArrayProgram>> {
        self.found(&self.reverse, 0, |rule| self.reverse_of(rule))
    }

    fn forward(&self) -> burtorch_core::Result<Option<ArrayProgram>> {
        self.found(&self.forward, 1, |rule| self.forward_of(rule))
    }
}
