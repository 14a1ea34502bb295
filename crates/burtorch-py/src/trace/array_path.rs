//! Array paths of a traced function: planned programs for arguments of given shapes and types.
//!
//! Promises: a path is used only for arguments of its types, and only while its guards have the same outcomes. Numbers are read
//! when a path runs, never before, except for guards.

use std::ops::Range;

use burtorch_core::DType;
use burtorch_core::array::{ArrayProgram, Element, Type, ValueId};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::containers::Nest;
use super::observe::observed;
use super::search::Search;
use super::transform::{Argnums, Transform};
use crate::array::append::append_to;
use crate::array::arguments::Given;
use crate::array::array::PyArray;
use crate::array::array_trial::{constant, ended};
use crate::array::parts::{AnyParts, TakeFloats};
use crate::array::run::{AnyRunner, Number, Read};
use crate::array::trace::{Active, Ended, Source};
use crate::convert::arrays::{Array, Kind, write_all};
use crate::convert::buffer::type_name;
use crate::convert::errors::{derived, instead, is_final};
use crate::convert::gc::{HoldsObjects, Visitor};
use crate::params::{PyParameter, PyParameters};

/// The signature of a trace: containers and types of arguments.
#[derive(Debug)]
pub struct Signature {
    /// The tuple of arguments.
    pub nest: Nest,
    /// The types of its leaves.
    pub types: Vec<Type>,
    /// The float types of the leaves that are arrays of floats.
    pub kinds: Vec<Option<Kind>>,
}

impl Signature {
    /// Whether both are the same.
    pub fn same(&self, py: Python<'_>, other: &Signature) -> bool {
        self.types == other.types && self.kinds == other.kinds && self.nest.same(py, &other.nest)
    }

    /// A copy.
    pub fn copy(&self, py: Python<'_>) -> Signature {
        Signature { nest: self.nest.copy(py), types: self.types.clone(), kinds: self.kinds.clone() }
    }

    /// The float type of array results: the widest one among the arguments, as in NumPy; float64 if there is none.
    pub fn kind(&self) -> Kind {
        let place = |kind: &Kind| [Kind::F16, Kind::F32, Kind::F64].iter().position(|known| known == kind);
        self.kinds.iter().copied().flatten().max_by_key(place).unwrap_or(Kind::F64)
    }
}

/// One way through the function.
pub struct ArrayPath {
    /// Results, then guards.
    pub program: ArrayProgram,
    /// The planned program; `None` if it has only been run in parts, whose memory is smaller.
    runner: Option<AnyRunner>,
    /// The program of a value and a gradient, planned to pass the gradient on, once that has been asked for.
    parts: Option<Option<AnyParts>>,
    /// The outcome of each guard.
    pub answers: Vec<bool>,
    results: Nest,
    /// The float type of each result.
    kinds: Vec<Kind>,
    sets: Vec<Py<PyParameters>>,
    numbers: Vec<Py<PyParameter>>,
}

/// The paths for arguments of one signature.
pub struct ArrayVariant {
    /// A unique number.
    pub id: u64,
    /// Containers and types.
    pub signature: Signature,
    /// Keyword arguments.
    pub statics: Option<Py<PyDict>>,
    /// Whether it was traced in a trial, in place of Values.
    pub is_trial: bool,
    /// The last used path comes first.
    pub paths: Vec<ArrayPath>,
}

impl HoldsObjects for ArrayPath {
    fn visit(&self, visit: &mut Visitor<'_>) {
        self.results.visit(visit);
        self.sets.visit(visit);
        self.numbers.visit(visit);
    }
}

impl HoldsObjects for ArrayVariant {
    fn visit(&self, visit: &mut Visitor<'_>) {
        self.signature.nest.visit(visit);
        self.statics.visit(visit);
        self.paths.visit(visit);
    }
}

/// The result of a body, in terms of its trace.
pub struct Returned {
    /// Its containers.
    pub nest: Nest,
    /// Values of the trace.
    pub values: Vec<ValueId>,
    /// The float types that derivatives among them have.
    pub kinds: Vec<Option<Kind>>,
}

impl Returned {
    /// Splits the result of a body: Arrays, numbers and arrays of numbers.
    pub fn of<'py>(active: &Active<'py>, name: &str, object: &Bound<'py, PyAny>) -> PyResult<Self> {
        let py = object.py();
        let mut leaves = Vec::new();
        let nest = Nest::of(object, &mut leaves)?;
        let mut values = Vec::with_capacity(leaves.len());
        for (k, leaf) in leaves.iter().enumerate() {
            let leaf = &constant(leaf)?;
            match append_to(active.trace(), std::slice::from_ref(leaf), |_, values| Ok(values.to_vec()))?.as_deref() {
                Some([array]) => values.push(array.get().value(py)?),
                _ => {
                    let (place, found) = (nest.place(py, k), type_name(leaf));
                    let message = format!(
                        "{name} returned {found}{}; return Arrays, or lists, tuples and dicts of them",
                        if place.is_empty() { String::new() } else { format!(" at {place}") }
                    );
                    return Err(derived(py, "TraceError", message));
                }
            }
        }
        let kind_of = |leaf: &Bound<'_, PyAny>| leaf.cast::<PyArray>().ok()?.get().kind_of_result();
        Ok(Returned { nest, values, kinds: leaves.iter().map(kind_of).collect() })
    }
}

/// Runs `body` on Arrays of these types and returns the path, and whether the body wrote something.
pub fn record_arrays(
    body: &Bound<'_, PyAny>,
    name: &str,
    dtype: DType,
    (signature, source): (&Signature, Source),
    statics: Option<&Bound<'_, PyDict>>,
    search: &mut Search,
) -> PyResult<(ArrayPath, bool)> {
    ended(body.py(), traced(body, name, dtype, (signature, source), statics, search))
}

fn traced(
    body: &Bound<'_, PyAny>,
    name: &str,
    dtype: DType,
    (signature, source): (&Signature, Source),
    statics: Option<&Bound<'_, PyDict>>,
    search: &mut Search,
) -> PyResult<(ArrayPath, bool)> {
    let py = body.py();
    let active = Active::begin(None, py, name, dtype, source)?;
    let inputs = signature.types.iter().zip(&signature.kinds);
    let inputs = inputs.map(|(&ty, &kind)| Ok(active.argument(ty, kind)?.into_any())).collect::<PyResult<Vec<_>>>()?;
    let arguments = signature.nest.build(py, &mut inputs.into_iter())?.cast_into::<PyTuple>()?;
    let (result, writes) = observed(py, search, || body.call(&arguments, statics));
    let Returned { nest, values, kinds } = Returned::of(&active, name, &result?)?;
    let wants_none = |of: &Bound<'_, Transform>| of.get().argnums == Argnums::Many(vec![]);
    if values.is_empty() && !body.cast::<Transform>().is_ok_and(wants_none) {
        return Err(derived(py, "TraceError", format!("{name} returned no numbers; return an Array or several")));
    }
    let Ended { program, answers, sets, numbers, captures } = active.finish(&values)?;
    if !captures.is_empty() {
        let message = "uses an Array of a graph, whose numbers would be fixed in the trace; pass it as an argument";
        return Err(derived(py, "TraceError", format!("{name} {message}")));
    }
    // Results of a float32 program are never widened.
    let widest = signature.kind();
    let kind = if dtype == DType::Float32 && widest == Kind::F64 { Kind::F32 } else { widest };
    let kinds = kinds.into_iter().map(|own| own.unwrap_or(kind)).collect();
    Ok((ArrayPath::new(py, program, answers, nest, kinds, (sets, numbers))?, writes))
}

/// The content of a path before planning.
pub struct Parts<'a> {
    pub program: &'a ArrayProgram,
    pub answers: &'a [bool],
    pub results: &'a Nest,
    pub kinds: &'a [Kind],
    pub sets: &'a [Py<PyParameters>],
    pub numbers: &'a [Py<PyParameter>],
}

impl ArrayPath {
    /// Plans a program: its results, then its guards with these outcomes, and its inputs besides arguments.
    pub fn new(
        py: Python<'_>,
        program: ArrayProgram,
        answers: Vec<bool>,
        results: Nest,
        kinds: Vec<Kind>,
        (sets, numbers): (Vec<Py<PyParameters>>, Vec<Py<PyParameter>>),
    ) -> PyResult<Self> {
        let runner = Some(AnyRunner::new(py, &program)?);
        Ok(ArrayPath { program, runner, parts: None, answers, results, kinds, sets, numbers })
    }

    /// The content before planning.
    pub fn parts(&self) -> Parts<'_> {
        let ArrayPath { program, answers, results, kinds, sets, numbers, .. } = self;
        Parts { program, answers, results, kinds, sets, numbers }
    }

    /// Runs the program; returns whether every guard had the same outcome. Python code may run.
    pub fn run(&mut self, py: Python<'_>, given: &[Given<'_>]) -> PyResult<bool> {
        let runner = match &mut self.runner {
            Some(runner) => runner,
            None => self.runner.insert(AnyRunner::new(py, &self.program)?),
        };
        let ran = runner.run(py, given, Read { sets: &self.sets, numbers: &self.numbers });
        let n = self.results.len();
        if self.answers.is_empty() {
            return ran.map(|()| true);
        }
        if let Err(error) = ran {
            if is_final(py, &error) {
                return Err(error);
            }
            // The failure may lie after a guard that disagrees.
            let guards = self.program.selecting(n..n + self.answers.len());
            let mut alone = AnyRunner::new(py, &guards)?;
            if let Err(of_guards) = alone.run(py, given, Read { sets: &self.sets, numbers: &self.numbers }) {
                return Err(instead(py, of_guards, error));
            }
            return if self.agrees(py, &alone, 0)? { Err(error) } else { Ok(false) };
        }
        self.runner.as_ref().map_or(Ok(true), |runner| self.agrees(py, runner, n))
    }

    /// Passes the gradient on while it is computed; returns the value. `None`
    /// where that is not possible: the gradient is not put together of parts, or there are guards, which are known at the end only.
    pub fn run_in_parts(
        &mut self,
        py: Python<'_>,
        given: &[Given<'_>],
        take: &mut TakeFloats<'_>,
    ) -> PyResult<Option<f64>> {
        if !self.answers.is_empty() {
            return Ok(None);
        }
        if self.parts.is_none() {
            let parts = self.parts.insert(AnyParts::new(py, &self.program)?);
            if parts.is_some() {
                self.runner = None;
            }
        }
        let Some(Some(parts)) = &mut self.parts else { return Ok(None) };
        parts.run(py, given, Read { sets: &self.sets, numbers: &self.numbers }, take).map(Some)
    }

    /// The ranges that are passed on, in ascending order, once parts have been.
    pub fn ranges(&self) -> &[Range<usize>] {
        self.parts.iter().flatten().next().map_or(&[], AnyParts::ranges)
    }

    fn agrees(&self, py: Python<'_>, runner: &AnyRunner, first: usize) -> PyResult<bool> {
        for (k, &answer) in self.answers.iter().enumerate() {
            if runner.holds(py, first + k)? != answer {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The results of the last run.
    pub fn results<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let mut leaves = Vec::with_capacity(self.kinds.len());
        if let Some(runner) = &mut self.runner {
            for (k, &kind) in self.kinds.iter().enumerate() {
                leaves.push(runner.result(py, k, kind)?);
            }
        }
        self.results.build(py, &mut leaves.into_iter())
    }

    /// Whether result `k` is an array of floats.
    pub fn is_float(&self, k: usize) -> bool {
        self.program.output_types().get(k).is_some_and(|ty| ty.element == Element::Float)
    }

    /// Writes result `k` of the last run, which contains floats, to an array of the same length.
    pub fn write(&self, k: usize, to: &Array) {
        match (self.floats::<f64>(k), self.floats::<f32>(k)) {
            (Some(numbers), _) => write_all(to, numbers),
            (_, Some(numbers)) => write_all(to, numbers),
            _ => {}
        }
    }

    /// The floats of leaf `k` of the results of the last run, if they are of this type.
    pub fn floats<E: Number>(&self, k: usize) -> Option<&[E]> {
        E::floats(self.runner.as_ref()?, k)
    }

    /// The Parameters that the program reads.
    pub fn sets(&self) -> &[Py<PyParameters>] {
        &self.sets
    }

    /// Whether it reads numbers besides its arguments, which may change from call to call.
    pub fn reads_state(&self) -> bool {
        !(self.sets.is_empty() && self.numbers.is_empty())
    }

    /// Bytes of its buffers.
    pub fn bytes(&self) -> usize {
        self.runner.as_ref().map_or(0, AnyRunner::bytes)
            + self.parts.iter().flatten().map(AnyParts::bytes).sum::<usize>()
    }

    /// The difference of two traces of one function; `None` if they agree.
    pub fn difference(&self, now: &ArrayPath) -> Option<String> {
        let sets = |path: &ArrayPath| path.sets.iter().map(|set| set.as_ptr() as usize).collect::<Vec<_>>();
        let (before, after) = (self.program.instrs().len(), now.program.instrs().len());
        if sets(self) != sets(now) {
            return Some("it reads other Parameters".into());
        }
        let numbers = |path: &ArrayPath| path.numbers.iter().map(|number| number.as_ptr() as usize).collect::<Vec<_>>();
        if numbers(self) != numbers(now) {
            return Some("it reads other numbers".into());
        }
        if before != after {
            return Some(format!("it has {after} operations instead of {before}"));
        }
        let is_same = self.program.is_same(&now.program) && self.answers == now.answers;
        (!is_same).then(|| "its operations or its constants differ".into())
    }
}
