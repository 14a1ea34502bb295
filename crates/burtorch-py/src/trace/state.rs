//! The stored traces of a function: one variant per shape of arguments, one path per sequence of guard results.
//!
//! Promises: a replay is used only if none of its constants has changed and every guard gives the traced result. The number of
//! variants and of paths is bounded; the least recently used one is dropped first.

use burtorch_core::program::derive::{Against, Along, HessianAlong, Jacobian};
use burtorch_core::program::sparse::{Hessian, SparseJacobian};
use burtorch_core::program::{Build, Carrier, Replay, Seeds};
use burtorch_core::{DType, Float, Program};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::array_path::ArrayVariant;
use super::audit::Audit;
use super::gradients::BySome;
use super::invalidate::Watch;
use super::primitive::PyPrimitive;
use super::pytree::Tree;
use super::search::Unwatched;
use super::transform::Derived;
use crate::convert::errors::IntoPython;
use crate::convert::gc::{HoldsObjects, Visitor};
use crate::convert::signals::asked;
use crate::graph::LONG;
use crate::node::parameter::PyParameter;

/// The options of a function.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The element type.
    pub dtype: DType,
    /// Whether the caller chose it; if not, the Parameters in a body with arrays decide.
    pub has_dtype: bool,
    /// Whether sums may be reordered.
    pub fast: bool,
    /// Paths kept per variant.
    pub max_paths: usize,
    /// Variants kept.
    pub max_variants: usize,
    /// The largest number of nodes of a trace.
    pub max_nodes: u32,
    /// Whether unwatched sources are audited.
    pub audit: bool,
    /// Whether warnings about them, and about many shapes, are off.
    pub is_quiet: bool,
}

/// A replay of one number per slot, in the function's element type.
pub enum Scalars {
    /// float64
    F64(Box<Replay<f64, 1>>),
    /// float32
    F32(Box<Replay<f32, 1>>),
}

/// Runs an expression on the replay of either type.
macro_rules! with_scalars {
    ($any:expr, $replay:ident => $body:expr) => {
        match $any {
            $crate::trace::state::Scalars::F64($replay) => $body,
            $crate::trace::state::Scalars::F32($replay) => $body,
        }
    };
}
pub(crate) use with_scalars;

/// One path through the function.
pub struct Path {
    /// The program, after the passes.
    pub program: Program,
    /// Ready to run.
    pub replay: Scalars,
    /// The traced result of each guard.
    answers: Vec<bool>,
    /// The shape of the results.
    pub results: Tree,
    /// The numbers of its trace; none for a path from a file.
    pub numbers: Vec<f64>,
    /// The parameters among the inputs, after the arguments.
    pub parameters: Vec<Py<PyParameter>>,
    /// The primitives that the program calls: the program has weak references to them.
    pub primitives: Vec<Py<PyPrimitive>>,
    /// Built on first use.
    pub along: Option<Along>,
    /// See `along`.
    pub against: Option<Against>,
    /// See `along`.
    pub hessian_along: Option<HessianAlong>,
    /// See `along`.
    pub hessian: Option<Hessian>,
    /// See `along`.
    pub jacobian: Option<Jacobian>,
    /// See `along`.
    pub sparse_jacobian: Option<SparseJacobian>,
    /// See `along`; gradients by some of the arguments, the most recently used one first.
    pub by_some: Vec<BySome>,
    /// See `along`; for rows, without and with gradients.
    pub batches: [Option<super::map::AnyBatch>; 2],
}

/// What a path is asked to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs<'a> {
    /// Nothing.
    Program,
    /// Its values.
    Values,
    /// Its values for the gradient by the wanted numbers of the arguments.
    Gradient(&'a [bool]),
}

/// Tries a replay at `numbers`; returns the number of the first guard that differs.
fn attempt<E: Float + Carrier>(
    replay: &mut Replay<E, 1>,
    numbers: &[f64],
    parameters: &[Py<PyParameter>],
) -> Result<(), usize> {
    let inputs = replay.inputs_mut();
    for (slot, &x) in inputs.iter_mut().zip(numbers) {
        *slot = E::from_f64(x);
    }
    for (slot, parameter) in inputs[numbers.len()..].iter_mut().zip(parameters) {
        *slot = E::from_f64(parameter.get().number());
    }
    replay.checked_values()
}

impl Scalars {
    /// A program that is ready to run.
    pub fn new(program: &Program, build: Build) -> burtorch_core::Result<Self> {
        Ok(match program.dtype() {
            DType::Float32 => Scalars::F32(Box::new(Replay::new(program, build)?)),
            _ => Scalars::F64(Box::new(Replay::new(program, build)?)),
        })
    }
}

impl Path {
    /// Plans the program now, rather than at its second run.
    pub fn plan(&mut self) -> burtorch_core::Result<()> {
        asked(|| {
            with_scalars!(&mut self.replay, replay => replay.plan());
            burtorch_core::interrupt::check()
        })
    }

    /// Makes a program ready to run.
    pub fn new(
        py: Python<'_>,
        program: Program,
        results: Tree,
        parameters: Vec<Py<PyParameter>>,
        primitives: Vec<Py<PyPrimitive>>,
    ) -> PyResult<Self> {
        let build = if program.outputs().len() == 1 { Build::Reverse(Seeds::One(0)) } else { Build::Values };
        let replay = asked(|| Scalars::new(&program, build)).or_raise(py)?;
        let answers = program.guards().iter().map(|guard| guard.answer).collect();
        Ok(Path {
            program,
            replay,
            answers,
            results,
            numbers: Vec::new(),
            parameters,
            primitives,
            along: None,
            against: None,
            hessian_along: None,
            hessian: None,
            jacobian: None,
            sparse_jacobian: None,
            by_some: Vec::new(),
            batches: [None, None],
        })
    }

    /// The traced result of each guard.
    pub fn answers(&self) -> Vec<bool> {
        self.answers.clone()
    }

    /// The same path, with these numbers as its trace.
    pub fn at(mut self, numbers: &[f64]) -> Self {
        self.numbers = numbers.to_vec();
        self
    }

    /// Computes the values at `numbers`, unless a guard differs.
    #[inline(always)]
    pub fn attempt(&mut self, numbers: &[f64]) -> Result<(), usize> {
        with_scalars!(&mut self.replay, replay => attempt(replay, numbers, &self.parameters))
    }

    /// Computes the needed results at `numbers`.
    fn attempt_for(&mut self, numbers: &[f64], needs: Needs<'_>) -> burtorch_core::Result<Result<(), usize>> {
        match needs {
            Needs::Gradient(wanted) => BySome::attempt(self, wanted, numbers),
            _ => Ok(self.attempt(numbers)),
        }
    }

    /// Bytes of the program and of its replays.
    pub fn bytes(&self) -> usize {
        let by_some: usize = self.by_some.iter().map(BySome::bytes).sum();
        let sparse = self.hessian.as_ref().map_or(0, Hessian::bytes)
            + self.sparse_jacobian.as_ref().map_or(0, SparseJacobian::bytes);
        self.program.bytes() + by_some + sparse + with_scalars!(&self.replay, replay => replay.bytes())
    }

    /// Whether running it may run Python code (primitives, signal handlers): then no reference into the state may be in use.
    pub fn takes_long(&self) -> bool {
        self.program.calls_primitives() || self.program.n_slots() > LONG
    }

    /// All inputs: these numbers and the parameters.
    pub fn inputs(&self, numbers: &[f64]) -> Vec<f64> {
        numbers.iter().copied().chain(self.parameters.iter().map(|p| p.get().number())).collect()
    }

    /// The values of the outputs after a successful attempt.
    pub fn values(&self) -> Vec<f64> {
        with_scalars!(&self.replay, r => (0..r.n_outputs()).map(|k| r.output(k, 0).to_f64()).collect())
    }

    /// The gradient of the only output after a successful attempt.
    pub fn gradient(&mut self) -> Vec<f64> {
        let n = self.program.n_differentiated();
        with_scalars!(&mut self.replay, replay => {
            replay.reverse_one();
            (0..n).map(|k| replay.gradient(k, 0).to_f64()).collect()
        })
    }
}

/// The paths for one shape of arguments.
pub struct Variant {
    /// Its own number.
    pub id: u64,
    /// The arguments, as a tuple.
    pub arguments: Tree,
    /// Keyword arguments.
    pub statics: Option<Py<PyDict>>,
    /// The most recently used one comes first.
    pub paths: Vec<Path>,
}

impl HoldsObjects for Path {
    fn visit(&self, visit: &mut Visitor<'_>) {
        self.results.visit(visit);
        self.parameters.visit(visit);
        self.primitives.visit(visit);
    }
}

impl HoldsObjects for Variant {
    fn visit(&self, visit: &mut Visitor<'_>) {
        self.arguments.visit(visit);
        self.statics.visit(visit);
        self.paths.visit(visit);
    }
}

impl Variant {
    /// Finds the path that is valid at `numbers`, moves it to the front, and leaves its values computed, unless they are not
    /// needed and there is no guard.
    pub fn select(&mut self, numbers: &[f64], stats: &mut Stats, needs: Needs<'_>) -> burtorch_core::Result<bool> {
        // The guard results here, as far as they are known.
        let mut actual: Vec<bool> = Vec::new();
        for k in 0..self.paths.len() {
            let path = &mut self.paths[k];
            if needs == Needs::Program && path.answers.is_empty() && !path.program.calls_primitives() {
                self.paths[..=k].rotate_right(1);
                return Ok(true);
            }
            let common = actual.len().min(path.answers.len());
            if path.answers[..common] != actual[..common] {
                continue;
            }
            match path.attempt_for(numbers, needs)? {
                Ok(()) => {
                    self.paths[..=k].rotate_right(1);
                    return Ok(true);
                }
                Err(guard) => {
                    stats.guard_misses += 1;
                    // Not a guard: a primitive has failed.
                    if (actual.len()..path.answers.len()).contains(&guard) {
                        actual = path.answers[..guard].to_vec();
                        actual.push(!path.answers[guard]);
                    }
                }
            }
        }
        Ok(false)
    }

    /// Adds a new path.
    pub fn add(&mut self, path: Path, options: &Options, stats: &mut Stats) {
        self.paths.insert(0, path);
        while self.paths.len() > options.max_paths {
            self.paths.pop();
            stats.dropped += 1;
        }
    }
}

/// The counts of `f.stats()`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// Traces made.
    pub traced: u64,
    /// How often all traces were dropped because a constant had changed.
    pub invalidated: u64,
    /// Replays that a guard stopped.
    pub guard_misses: u64,
    /// Paths and variants dropped because of the limits.
    pub dropped: u64,
    /// Variants made so far.
    pub variants: u64,
}

/// Traces that are no longer valid, dropped when the state is no longer in use.
pub type Forgotten = (Vec<Variant>, Vec<ArrayVariant>, Watch, Vec<Py<PyAny>>);

/// The state of a traced function.
pub struct FunctionState {
    /// The Python function.
    pub body: Py<PyAny>,
    /// Its name and where it is defined.
    pub name: String,
    /// Its options.
    pub options: Options,
    /// The most recently used one comes first.
    pub variants: Vec<Variant>,
    /// Variants traced with arrays, in the same order.
    pub arrays: Vec<ArrayVariant>,
    /// Whether all calls use arrays: the body is a transform, or uses one.
    pub uses_arrays: bool,
    /// Whether the last call used arrays.
    pub is_of_arrays: bool,
    /// Whether the body could not be traced with arrays although arguments were long.
    pub needs_values: bool,
    /// Functions for derivatives of this one with arrays, by their options.
    pub derived: Vec<(Derived, Py<PyAny>)>,
    /// The constants of all traces.
    pub watch: Watch,
    /// The unwatched sources, as reported.
    pub unwatched: Vec<Unwatched>,
    /// Functions that ran while the body was traced.
    pub executed: Vec<Py<PyAny>>,
    /// When the next audit is due.
    pub audit: Audit,
    /// See there.
    pub stats: Stats,
    /// With this many floats as arguments, the first path of the first variant may be tried at once.
    pub quick: usize,
}

impl FunctionState {
    /// Nothing traced yet.
    pub fn new(body: &Bound<'_, PyAny>, options: Options) -> Self {
        Self::named(body.clone().unbind(), super::arguments::name_of(body), options)
    }

    /// The same for a body whose name is known. Runs no Python code.
    pub fn named(body: Py<PyAny>, name: String, options: Options) -> Self {
        FunctionState {
            name,
            body,
            options,
            variants: Vec::new(),
            arrays: Vec::new(),
            uses_arrays: false,
            is_of_arrays: false,
            needs_values: false,
            derived: Vec::new(),
            watch: Watch::default(),
            unwatched: Vec::new(),
            executed: Vec::new(),
            audit: Audit::default(),
            stats: Stats::default(),
            quick: usize::MAX,
        }
    }

    /// Whether calls with long arrays are tried with Arrays.
    pub fn takes_long_arrays(&self) -> bool {
        !self.uses_arrays && !self.needs_values
    }

    /// Drops all traces if one of their constants has changed. Returns them, to be dropped when the state is no longer in
    /// use.
    pub fn look(&mut self, py: Python<'_>) -> Option<Forgotten> {
        if self.watch.is_unchanged(py) {
            return None;
        }
        self.stats.invalidated += 1;
        Some(self.take())
    }

    /// Removes all traces and their watched values.
    pub fn take(&mut self) -> Forgotten {
        self.quick = usize::MAX;
        let executed = std::mem::take(&mut self.executed);
        let arrays = std::mem::take(&mut self.arrays);
        (std::mem::take(&mut self.variants), arrays, std::mem::take(&mut self.watch), executed)
    }

    /// The static arguments of all variants.
    pub fn statics(&self) -> impl Iterator<Item = &Py<PyDict>> {
        self.variants.iter().map(|v| &v.statics).chain(self.arrays.iter().map(|v| &v.statics)).flatten()
    }

    /// Records whether calls with floats may use the fast path.
    pub fn note_quick(&mut self) {
        self.quick = usize::MAX;
        let Some(variant) = self.variants.first() else { return };
        let Some(path) = variant.paths.first() else { return };
        if let Tree::Sequence { items, .. } = &variant.arguments
            && items.iter().all(|item| matches!(item, Tree::Number))
            && variant.statics.is_none()
            && matches!((&path.results, &path.replay), (Tree::Number, Scalars::F64(_)))
            && !items.is_empty()
            && !path.takes_long()
        {
            self.quick = items.len();
        }
    }
}
