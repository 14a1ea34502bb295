//! `ArrayTrace`: the program recorded while a function runs on Arrays.
//!
//! A trace has shapes and dtypes but no numbers. A trace that begins during another one of its thread is nested in
//! it: Arrays of outer traces become arguments of its program, in the order of first use (captures), so each
//! trace separates its own variables from those of others.
//!
//! Promises: no lock is held while Python code runs; a finished trace refuses all calls with a `TraceError`; in all
//! cases, the traces of a thread end in the reverse order of their beginning. Does not know how programs run.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burtorch_core::DType;
use burtorch_core::array::{ArrayBuilder, ArrayProgram, Data, Dims, Shared, Tape, Type, ValueId};
use burtorch_core::sync::Flag;
use pyo3::exceptions::PyRecursionError;
use pyo3::prelude::*;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};

use super::append::append_to;
use super::array::PyArray;
use crate::convert::arrays::Kind;
use crate::convert::errors::IntoPython;
use crate::convert::gc::{HoldsObjects, Visitor, collected};
use crate::convert::refusals::{error_here, is_tracing};
use crate::params::{PyParameter, PyParameters};

/// The largest nesting depth of traces: each takes some kilobytes of the stack.
const DEEPEST: usize = 64;

/// A constant and the object that its numbers come from.
pub(super) struct Known {
    pub(super) object: Py<PyAny>,
    pub(super) dims: Dims,
    pub(super) data: Shared<Data>,
    pub(super) value: ValueId,
}

/// The content of a trace.
pub struct Recording {
    /// The instructions.
    pub builder: ArrayBuilder,
    /// Arrays of outer traces, and the inputs that represent them.
    pub captures: Vec<(ValueId, Py<PyArray>)>,
    /// Parts of Parameters, each once: set, start, shape.
    pub(super) params: Vec<((u32, usize, Dims), ValueId)>,
    /// Constants read from objects.
    pub(super) known: Vec<Known>,
    /// Of an outermost trace: masks of shape () that the body evaluated, and their outcomes.
    pub guards: Vec<(ValueId, bool)>,
    /// Results computed by guards so far.
    pub(super) answered: Answered,
}

/// Results computed by guards, so that none is computed twice.
#[derive(Default)]
pub(super) struct Answered {
    /// Of an outermost trace: numbers, and their total count.
    pub(super) numbers: HashMap<ValueId, Shared<Data>>,
    pub(super) n_numbers: usize,
    /// Of a nested trace: the Arrays of the enclosing trace with the same numbers.
    pub(super) outside: HashMap<ValueId, Py<PyArray>>,
}

/// The source of the numbers that a guard needs.
pub enum Source {
    /// The arguments of the outermost trace.
    Numbers(Vec<Py<PyAny>>),
    /// The same of a program that runs once, at these.
    Once(Vec<Py<PyAny>>),
    /// The outcomes of an earlier trace at the same arguments.
    Answers(Vec<bool>),
    /// The arguments of a nested trace, and which of them have one more axis there.
    Operands(Vec<Py<PyAny>>, Vec<bool>),
    /// Arrays of a graph, which have numbers: nothing is recorded.
    Graph(Eager),
    /// None: this many arguments of a loop body or branch differ from step to step.
    Body(usize),
    /// None: this many arguments of a derivative rule, none of which is computed yet.
    Rule(usize),
}

impl HoldsObjects for Source {
    fn visit(&self, visit: &mut Visitor<'_>) {
        if let Source::Numbers(objects) | Source::Once(objects) | Source::Operands(objects, _) = self {
            objects.visit(visit);
        }
    }
}

/// The record of how Arrays of a graph were computed.
pub struct Eager {
    pub(super) tape: Arc<Tape>,
    /// Exclusive while gradients are added up or changed, shared while operations run.
    pub(super) in_use: Flag,
    /// The Parameters in use, by number, while they live.
    sets: Mutex<Vec<Py<PyWeakrefReference>>>,
}

impl Eager {
    fn weak_of(&self, py: Python<'_>, k: usize) -> Option<Py<PyWeakrefReference>> {
        Some(self.sets.lock().unwrap_or_else(PoisonError::into_inner).get(k)?.clone_ref(py))
    }

    /// The Parameters with this number, if they live.
    pub(super) fn set_of(&self, py: Python<'_>, k: usize) -> Option<Py<PyParameters>> {
        self.weak_of(py, k)?.bind(py).upgrade()?.cast_into().ok().map(Bound::unbind)
    }

    /// The number of numbers in use.
    pub(super) fn n_sets(&self) -> usize {
        self.sets.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// The number of these Parameters.
    fn set(&self, py: Python<'_>, params: &Py<PyParameters>) -> PyResult<u32> {
        loop {
            let known = (0..self.n_sets()).find(|&k| self.set_of(py, k).is_some_and(|set| set.is(params)));
            if let Some(known) = known {
                return Ok(known as u32);
            }
            let dead = (0..self.n_sets()).find_map(|k| {
                let weak = self.weak_of(py, k)?;
                weak.bind(py).upgrade().is_none().then_some((k, weak))
            });
            let new = PyWeakrefReference::new(params.bind(py))?.unbind();
            let mut sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
            let Some((k, dead)) = dead else {
                sets.push(new);
                return Ok(sets.len() as u32 - 1);
            };
            // Another thread may have given the place away meanwhile.
            if let Some(place) = sets.get_mut(k).filter(|place| place.is(&dead)) {
                let _before = std::mem::replace(place, new);
                drop(sets);
                return Ok(k as u32);
            }
        }
    }
}

/// A finished trace, for the transforms.
pub struct Ended {
    /// Its program: arguments first, then captures.
    pub program: ArrayProgram,
    /// The Arrays of outer traces that follow its arguments.
    pub captures: Vec<Py<PyArray>>,
    /// The outcome of each guard; guards are the last results.
    pub answers: Vec<bool>,
    /// Of an outermost trace: the Parameters that the program reads.
    pub sets: Vec<Py<PyParameters>>,
    /// Of an outermost trace: the numbers that follow its arguments.
    pub numbers: Vec<Py<PyParameter>>,
}

impl HoldsObjects for Mutex<Option<Recording>> {
    fn visit(&self, visit: &mut Visitor<'_>) {
        let Ok(content) = self.try_lock() else { return };
        if let Some(recording) = &*content {
            recording.captures.iter().for_each(|(_, array)| array.visit(visit));
            recording.known.iter().for_each(|known| known.object.visit(visit));
            recording.answered.outside.values().for_each(|array| array.visit(visit));
        }
    }
}

impl<T> HoldsObjects for Mutex<Vec<Py<T>>> {
    fn visit(&self, visit: &mut Visitor<'_>) {
        if let Ok(sets) = self.try_lock() {
            sets.visit(visit);
        }
    }
}

/// The program recorded while a function runs on Arrays.
#[pyclass(frozen, name = "ArrayTrace", module = "burtorch")]
pub struct ArrayTrace {
    name: String,
    dtype: DType,
    /// The enclosing trace.
    outer: Option<Py<ArrayTrace>>,
    depth: usize,
    content: Mutex<Option<Recording>>,
    source: Source,
    /// Of the outermost trace: the Parameters that programs read, by number.
    sets: Mutex<Vec<Py<PyParameters>>>,
    /// Likewise: numbers that are read at every call, and the inputs that represent them.
    numbers: Mutex<Vec<(Py<PyParameter>, ValueId)>>,
    /// Likewise: primitives, which programs refer to weakly.
    primitives: Mutex<Vec<Py<PyAny>>>,
}
collected!(ArrayTrace: outer, content, source, sets, primitives);

thread_local! {
    /// The traces of this thread, the innermost last.
    static ACTIVE: RefCell<Vec<Py<ArrayTrace>>> = const { RefCell::new(Vec::new()) };
    static WANTED: Cell<Option<DType>> = const { Cell::new(None) };
}

/// The innermost trace of this thread.
pub fn current(py: Python<'_>) -> Option<Bound<'_, ArrayTrace>> {
    ACTIVE.with_borrow(|all| all.last().map(|trace| trace.bind(py).clone()))
}

/// The trace around all loops and branches whose bodies contain this one, or None.
pub fn around_loops<'py>(trace: &Bound<'py, ArrayTrace>) -> Option<Bound<'py, ArrayTrace>> {
    let (py, mut at, mut around) = (trace.py(), Some(trace.clone()), None);
    while let Some(inner) = at {
        at = inner.get().outer.as_ref().map(|outer| outer.bind(py).clone());
        if matches!(inner.get().source, Source::Body(_) | Source::Rule(_)) {
            around = at.clone();
        }
    }
    around
}

/// The innermost loop body or branch that is being traced inside this trace, or the trace itself: computations of a step
/// belong to the step, even if they read only Arrays of outer traces.
pub fn inside_body(trace: Bound<'_, ArrayTrace>) -> Bound<'_, ArrayTrace> {
    let (py, mut at, mut body) = (trace.py(), current(trace.py()), None);
    while let Some(inner) = at {
        if inner.is(&trace) {
            return body.unwrap_or(trace);
        }
        at = inner.get().outer.as_ref().map(|outer| outer.bind(py).clone());
        if body.is_none() && matches!(inner.get().source, Source::Body(_)) {
            body = Some(inner);
        }
    }
    trace
}

/// Refuses to write a number of a graph in a loop body or branch: it would be written once, and not in each step.
pub fn refuse_writing(py: Python<'_>, name: &str, of: &str) -> PyResult<()> {
    if !is_tracing() || current(py).is_none_or(|trace| around_loops(&trace).is_none()) {
        return Ok(());
    }
    let message = format!(
        "{name} of a {of} would be assigned once, when this body of a loop or branch is traced; return a carry instead"
    );
    Err(error_here(py, &message))
}

/// The float type of the Parameters that a body of this thread read last although its trace has another one; cleared when read.
pub fn wanted_dtype() -> Option<DType> {
    WANTED.take()
}

/// Records that a body read Parameters of this float type, which differs from that of its trace.
pub(super) fn want_dtype(dtype: DType) {
    WANTED.set(Some(dtype));
}

/// A trace in progress in this thread, until this is dropped.
pub struct Active<'py>(Bound<'py, ArrayTrace>);

impl<'py> Active<'py> {
    /// Begins a trace of the function `name`, inside `outer`: the innermost one of this thread, or Arrays of a graph.
    pub fn begin(
        outer: Option<Bound<'py, ArrayTrace>>,
        py: Python<'py>,
        name: &str,
        dtype: DType,
        source: Source,
    ) -> PyResult<Self> {
        let depth = outer.as_ref().map_or(0, |outer| outer.get().depth) + 1;
        if depth > DEEPEST {
            let message = format!("traced functions are nested {DEEPEST} deep; does {name} call itself?");
            return Err(PyRecursionError::new_err(message));
        }
        let recording = Recording {
            builder: ArrayBuilder::new(dtype).or_raise(py)?,
            captures: Vec::new(),
            params: Vec::new(),
            known: Vec::new(),
            guards: Vec::new(),
            answered: Answered::default(),
        };
        let trace = ArrayTrace {
            name: name.to_string(),
            dtype,
            depth,
            outer: outer.map(Bound::unbind),
            content: Mutex::new(Some(recording)),
            source,
            sets: Mutex::new(Vec::new()),
            numbers: Mutex::new(Vec::new()),
            primitives: Mutex::new(Vec::new()),
        };
        let trace = Bound::new(py, trace)?;
        ACTIVE.with_borrow_mut(|all| all.push(trace.clone().unbind()));
        Ok(Active(trace))
    }

    /// The trace.
    pub fn trace(&self) -> &Bound<'py, ArrayTrace> {
        &self.0
    }

    /// A new argument.
    pub fn input(&self, ty: Type) -> PyResult<Bound<'py, PyArray>> {
        self.argument(ty, None)
    }

    /// The same with the type that its floats have outside.
    pub fn argument(&self, ty: Type, kind: Option<Kind>) -> PyResult<Bound<'py, PyArray>> {
        let py = self.0.py();
        let mut content = self.0.get().lock();
        let Some(recording) = &mut *content else { return Err(self.0.get().ended(py)) };
        let value = recording.builder.input(&ty.dims, ty.element).or_raise(py)?;
        drop(content);
        PyArray::argument(&self.0, value, ty, kind)
    }

    /// Ends the trace with these results, which are values of it; its guards follow them.
    pub fn finish(self, results: &[ValueId]) -> PyResult<Ended> {
        let py = self.0.py();
        let Some(recording) = self.0.get().lock().take() else { return Err(self.0.get().ended(py)) };
        let guards = recording.guards.iter().map(|(value, _)| *value);
        let outputs: Vec<_> = results.iter().copied().chain(guards).collect();
        let program = recording.builder.finish(&outputs).or_raise(py)?;
        let captures = recording.captures.into_iter().map(|(_, array)| array).collect();
        let answers = recording.guards.into_iter().map(|(_, answer)| answer).collect();
        let numbers = self.0.get().numbers(py);
        Ok(Ended { program, captures, answers, sets: self.0.get().sets(py), numbers })
    }
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        let left = self.0.get().lock().take();
        let mut all = ACTIVE.take();
        let trace = all.iter().position(|trace| trace.is(&self.0)).map(|at| all.split_off(at));
        ACTIVE.set(all);
        // Dropping these may run Python code: nothing is borrowed here.
        drop((left, trace));
    }
}

impl ArrayTrace {
    /// The owner of the Arrays of a graph.
    pub(super) fn of_graph(tape: Arc<Tape>) -> Self {
        ArrayTrace {
            name: "a graph".into(),
            dtype: tape.dtype(),
            outer: None,
            depth: 0,
            content: Mutex::new(None),
            source: Source::Graph(Eager { tape, in_use: Flag::new(), sets: Mutex::default() }),
            sets: Mutex::new(Vec::new()),
            numbers: Mutex::new(Vec::new()),
            primitives: Mutex::new(Vec::new()),
        }
    }

    /// Whether it is a graph that records what gradients need.
    pub fn records(&self) -> bool {
        self.eager().is_some_and(|eager| eager.tape.records())
    }

    /// The record of how its Arrays were computed, if they are those of a graph.
    pub(super) fn eager(&self) -> Option<&Eager> {
        if let Source::Graph(eager) = &self.source { Some(eager) } else { None }
    }

    /// The float type of the program.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The nesting depth of the trace, from 1; 0 for Arrays of a graph.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// The enclosing trace.
    pub fn outer(&self) -> Option<&Py<ArrayTrace>> {
        self.outer.as_ref()
    }

    /// Keeps a primitive as long as the outermost trace; returns whether there is one, and not a graph around all.
    pub fn keep(&self, py: Python<'_>, primitive: Py<PyAny>) -> bool {
        match &self.outer {
            Some(outer) => outer.bind(py).get().keep(py, primitive),
            None if self.depth == 0 => false,
            None => {
                let mut all = self.primitives.lock().unwrap_or_else(PoisonError::into_inner);
                if !all.iter().any(|known| known.is(&primitive)) {
                    all.push(primitive);
                }
                true
            }
        }
    }

    /// The source of the numbers for guards.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// The content; None if the trace has ended. No Python code may run while the guard lives.
    pub fn lock(&self) -> MutexGuard<'_, Option<Recording>> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reason why a finished trace refuses.
    pub fn ended(&self, py: Python<'_>) -> PyErr {
        let message =
            format!("this Array was kept from the trace of {}, which is over; return it from the function", self.name);
        error_here(py, &message)
    }

    /// The number of these Parameters among those that the outermost trace reads.
    pub(super) fn set(&self, py: Python<'_>, params: &Py<PyParameters>) -> PyResult<u32> {
        if let Source::Graph(eager) = &self.source {
            return eager.set(py, params);
        }
        if let Some(outer) = &self.outer {
            return outer.bind(py).get().set(py, params);
        }
        let mut sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        let known = sets.iter().position(|set| set.is(params));
        Ok(known.unwrap_or_else(|| {
            sets.push(params.clone_ref(py));
            sets.len() - 1
        }) as u32)
    }

    /// The Parameters with this number.
    pub fn set_of(&self, py: Python<'_>, k: usize) -> Option<Py<PyParameters>> {
        match (&self.source, &self.outer) {
            (Source::Graph(eager), _) => eager.set_of(py, k),
            (_, Some(outer)) => outer.bind(py).get().set_of(py, k),
            _ => self.sets(py).get(k).map(|set| set.clone_ref(py)),
        }
    }

    /// A number that is read at every call, as an Array of the outermost trace, `trace` being this one.
    pub fn number<'py>(
        &self,
        trace: &Bound<'py, ArrayTrace>,
        number: &Bound<'py, PyParameter>,
    ) -> PyResult<Bound<'py, PyArray>> {
        let py = trace.py();
        if let Some(outer) = &self.outer {
            return outer.bind(py).get().number(outer.bind(py), number);
        }
        if self.eager().is_some() {
            // Arrays of a graph use its current number.
            let now = number.get().number().into_pyobject(py)?.into_any();
            let made = append_to(trace, &[now], |_, values| Ok(values.to_vec()))?;
            return made.into_iter().flatten().next().ok_or_else(|| self.ended(py));
        }
        let ty = Type::float(Dims::SCALAR);
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let known = numbers.iter().find(|(known, _)| known.is(number)).map(|(_, value)| *value);
        let value = match known {
            Some(value) => value,
            None => {
                let mut content = self.lock();
                let Some(recording) = &mut *content else { return Err(self.ended(py)) };
                let value = recording.builder.input(&ty.dims, ty.element).or_raise(py)?;
                numbers.push((number.clone().unbind(), value));
                value
            }
        };
        drop(numbers);
        PyArray::new(trace, value, ty)
    }

    /// The numbers that the outermost trace reads at every call.
    pub fn numbers(&self, py: Python<'_>) -> Vec<Py<PyParameter>> {
        if let Some(outer) = &self.outer {
            return outer.bind(py).get().numbers(py);
        }
        let numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        numbers.iter().map(|(number, _)| number.clone_ref(py)).collect()
    }

    /// The Parameters that programs of the outermost trace read, by number.
    pub fn sets(&self, py: Python<'_>) -> Vec<Py<PyParameters>> {
        if let Some(outer) = &self.outer {
            return outer.bind(py).get().sets(py);
        }
        let sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        sets.iter().map(|set| set.clone_ref(py)).collect()
    }
}
