//! Built-in models in an oracle: reading a batch, and computing with it.
//!
//! Promises: a batch is read and checked before anything is written; long calls release the GIL and can be
//! interrupted.

use burtorch_core::array::Floats;
use burtorch_core::erased::ErasedModels;
use burtorch_core::kernels::sum_squares;
use burtorch_core::nn::{Gpt, Input, Label};
use burtorch_core::oracle::{Interrupted, OracleMemory};
use burtorch_core::{Batch, DType, Error, LaneFloat, LaneModel, Lanes, Oracle, Overrides, Parameters, Total};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::contexts::{contexts_of, in_place, is_in_place, shares_memory};
use super::engine::{Engine, Loss, Want, WantRandom, WantSample, WantStream, WantUntil, check_apart};
use crate::compress::Fill;
use crate::convert::arrays::{Array, Kind, filled, of_integers};
use crate::convert::buffer::{CallerMemory, Dims, FlatArray, read_either, read_numbers, read_token_ids};
use crate::convert::errors::{IntoPython, numpy, to_python};
use crate::convert::gc::{HoldsObjects, Visitor};
use crate::convert::signals::Poll;
use crate::nn::AnyModel;
use crate::params::{AnyParameters, PyParameters, mismatch};

/// Parameters times samples above which a call releases the GIL: about 50 microseconds of work.
const RELEASE_ABOVE: usize = 1 << 18;

/// A model, and memory reused by calls.
pub struct BuiltinEngine {
    model: AnyModel,
    params: Py<PyParameters>,
    loss: Option<Loss>,
    state: Buffers,
    read: Option<Read>,
    /// The shape of batches with the overhead of their calls.
    overhead: ((usize, usize), Option<f64>),
}

struct Buffers {
    run: AnyRun,
    x: Vec<u32>,
    y: Vec<u32>,
    x_numbers: Vec<f64>,
    y_numbers: Vec<f64>,
    /// Contexts that are read where they are, in the parameters' dtype, in place of `x_numbers`.
    in_place: Option<Py<PyAny>>,
}

enum AnyRun {
    F32(Run<f32>),
    F64(Run<f64>),
}

struct Run<E: LaneFloat> {
    oracle: Oracle<E>,
    x: Vec<E>,
    y: Vec<E>,
}

impl<E: LaneFloat> Run<E> {
    fn new(total: Total, lanes: Lanes, threads: usize) -> burtorch_core::Result<Self> {
        let mut oracle = Oracle::with_lanes(total, lanes)?;
        oracle.set_threads(threads)?;
        Ok(Run { oracle, x: Vec::new(), y: Vec::new() })
    }
}

/// The current batch.
#[derive(Clone, Copy)]
struct Read {
    n: usize,
    /// Whether labels are classes, probabilities or numbers.
    label: ReadLabel,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadLabel {
    Classes,
    Probabilities,
    Numbers,
}

/// The request for one sample or a whole batch.
enum Request<'a> {
    All(Want<'a>),
    Sample(usize, WantSample<'a>),
}

impl Request<'_> {
    /// Memory of the caller that is written to.
    fn outs(&self) -> impl Iterator<Item = &CallerMemory> {
        let out = match self {
            Request::All(Want::Some(_, out, ..)) => Some(out),
            Request::All(
                Want::Gradient(_, out, _)
                | Want::Stream(WantStream { out, .. })
                | Want::Until(WantUntil { out, .. })
                | Want::Random(WantRandom { out, .. }),
            )
            | Request::Sample(_, WantSample::Gradient(out) | WantSample::Row(out)) => out.as_ref(),
            _ => None,
        };
        out.into_iter()
    }
}

impl HoldsObjects for BuiltinEngine {
    fn visit(&self, visit: &mut Visitor<'_>) {
        self.params.visit(visit);
        self.state.in_place.visit(visit);
    }
}

impl BuiltinEngine {
    /// A model and its parameters.
    pub fn new(
        py: Python<'_>,
        model: AnyModel,
        params: Py<PyParameters>,
        loss: Option<Loss>,
        (total, lanes, threads): (Total, Lanes, usize),
    ) -> PyResult<Self> {
        let run = match params.get().dtype_of() {
            DType::Float32 => AnyRun::F32(Run::new(total, lanes, threads).or_raise(py)?),
            _ => AnyRun::F64(Run::new(total, lanes, threads).or_raise(py)?),
        };
        let state =
            Buffers { run, x: Vec::new(), y: Vec::new(), x_numbers: Vec::new(), y_numbers: Vec::new(), in_place: None };
        Ok(BuiltinEngine { model, params, loss, state, read: None, overhead: ((0, 0), None) })
    }

    /// The current batch.
    fn read(&self) -> PyResult<Read> {
        self.read.ok_or_else(|| PyValueError::new_err("no batch was given yet; give contexts and targets"))
    }

    fn part(&mut self, py: Python<'_>, part: Request<'_>) -> PyResult<f64> {
        let read = self.read()?;
        let BuiltinEngine { model, params, state, .. } = self;
        let work = model.n_parameters().saturating_mul(read.n);
        // The receiver of a part may wait for the GIL; costs are measured.
        let takes_turns = matches!(part, Request::All(Want::Stream(_) | Want::Cost(..)));
        let mut poll = Poll::new();
        let held = state.in_place.as_ref().map(|x| contexts_of(x.bind(py), params, read.n)).transpose()?;
        let result = params.get().with(py, |params| {
            let held = held.as_ref().map(in_place);
            let go = || compute_any(model, state, params, read, held, part, &mut || poll.stop());
            if work > RELEASE_ABOVE || takes_turns { crate::convert::threads::detached(py, go) } else { go() }
        })?;
        match (poll.raised(), result) {
            (Some(raised), _) => Err(raised),
            (None, Ok(loss)) => Ok(loss),
            (None, Err(error)) => Err(to_python(py, error)),
        }
    }

    /// Reads a batch into the state and checks its shape.
    fn read_batch(&mut self, x: &Bound<'_, PyAny>, y: &Bound<'_, PyAny>) -> PyResult<Read> {
        let BuiltinEngine { model, state, .. } = self;
        let (n_in, n_out, x_dims) = match model {
            AnyModel::Tokens(model) => return read_tokens(model, state, x, y),
            AnyModel::Chars(model) => {
                let shape = model.shape();
                (shape.context, shape.vocab, read_token_ids(x, &mut state.x, "contexts")?)
            }
            AnyModel::Dense(model) => {
                state.in_place = None;
                let dims = match Array::of(x).filter(|array| is_in_place(array, &self.params)).map(|array| array.dims())
                {
                    Some(Some(dims)) => {
                        state.x_numbers.clear();
                        state.in_place = Some(x.clone().unbind());
                        dims
                    }
                    _ => read_numbers(x, &mut state.x_numbers, "contexts")?,
                };
                (model.n_in(), model.n_out(), dims)
            }
        };
        let n = match x_dims.matrix() {
            Some((0, _)) => return Err(PyValueError::new_err("contexts are empty; give at least one sample")),
            Some((n, width)) if width == n_in => n,
            _ if x_dims.row() == Some(0) => {
                return Err(PyValueError::new_err("contexts are empty; give at least one sample"));
            }
            _ => {
                return Err(PyValueError::new_err(format!(
                    "contexts must have shape (b, {n_in}), found {}",
                    x_dims.text()
                )));
            }
        };
        let refuse = |expected: String, found: Dims| {
            Err(PyValueError::new_err(format!("targets must have shape {expected} here, found {}", found.text())))
        };
        let (whole, dims) = match self.loss {
            Some(Loss::Mse) => (false, read_numbers(y, &mut state.y_numbers, "targets")?),
            _ => read_either(y, &mut state.y, &mut state.y_numbers, "targets")?,
        };
        if whole {
            if dims.row() == Some(n) {
                return Ok(Read { n, label: ReadLabel::Classes });
            }
            return refuse(format!("({n},)"), dims);
        }
        if dims.matrix() != Some((n, n_out)) && !(n_out == 1 && dims.row() == Some(n)) {
            return refuse(format!("({n}, {n_out})"), dims);
        }
        let by_default = if matches!(self.model, AnyModel::Chars(_)) { Loss::CrossEntropy } else { Loss::Mse };
        let label = match self.loss.unwrap_or(by_default) {
            Loss::CrossEntropy => ReadLabel::Probabilities,
            Loss::Mse => ReadLabel::Numbers,
        };
        Ok(Read { n, label })
    }
}

impl Engine for BuiltinEngine {
    fn begin(&mut self, x: &Bound<'_, PyAny>, y: &Bound<'_, PyAny>) -> PyResult<usize> {
        self.read = None;
        let read = self.read_batch(x, y)?;
        self.read = Some(read);
        Ok(read.n)
    }

    fn run(&mut self, py: Python<'_>, want: Want<'_>) -> PyResult<f64> {
        self.part(py, Request::All(want))
    }

    fn sample(&mut self, py: Python<'_>, k: usize, want: WantSample<'_>) -> PyResult<f64> {
        self.part(py, Request::Sample(k, want))
    }

    fn memory(&self) -> OracleMemory {
        let Buffers { run, x, y, x_numbers, y_numbers, .. } = &self.state;
        let (mut memory, converted) = match run {
            AnyRun::F32(run) => (run.oracle.memory(), 4 * (run.x.capacity() + run.y.capacity())),
            AnyRun::F64(run) => (run.oracle.memory(), 8 * (run.x.capacity() + run.y.capacity())),
        };
        let (whole, real) = (x.capacity() + y.capacity(), x_numbers.capacity() + y_numbers.capacity());
        memory.samples += 4 * whole + 8 * real + converted;
        memory
    }

    fn arrays<'py>(&self, py: Python<'py>) -> PyResult<[Bound<'py, PyAny>; 2]> {
        let (Read { n, label }, Buffers { x, y, x_numbers, y_numbers, .. }) = (self.read()?, &self.state);
        let integers = |of: &[u32], shape: &[usize]| {
            of_integers(py, shape, &of.iter().map(|&token| i64::from(token)).collect::<Vec<_>>())
        };
        let floats = |of: &[f64]| filled(py, &[n, of.len() / n], Kind::F64, of);
        let contexts = match &self.model {
            AnyModel::Dense(_) => match &self.state.in_place {
                Some(x) => numpy(py)?.call_method1("asarray", (x,))?,
                None => floats(x_numbers)?,
            },
            AnyModel::Tokens(_) | AnyModel::Chars(_) => integers(x, &[n, x.len() / n])?,
        };
        let targets = match (label, &self.model) {
            (ReadLabel::Classes, AnyModel::Tokens(_)) => integers(y, &[n, y.len() / n])?,
            (ReadLabel::Classes, _) => integers(y, &[n])?,
            (ReadLabel::Probabilities | ReadLabel::Numbers, _) => floats(y_numbers)?,
        };
        Ok([contexts, targets])
    }

    fn overhead(&mut self, measured: Option<f64>) -> Option<f64> {
        let shape = (self.read.map_or(0, |read| read.n), self.state.x.len());
        let known = measured.or(self.overhead.1.filter(|_| self.overhead.0 == shape));
        self.overhead = (shape, known);
        known
    }
}

fn compute_any(
    model: &AnyModel,
    state: &mut Buffers,
    params: &mut AnyParameters,
    read: Read,
    held: Option<Floats<'_>>,
    part: Request<'_>,
    stop: &mut (dyn FnMut() -> bool + Send),
) -> Result<f64, Error> {
    let Buffers { run, x, y, x_numbers, y_numbers, .. } = state;
    let read = Numbers { read, tokens: x, classes: y, x_numbers, y_numbers };
    match (run, params) {
        (AnyRun::F32(run), AnyParameters::F32(params)) => {
            let held = if let Some(Floats::F32(held)) = held { Some(held) } else { None };
            compute_as(model, run, params, (read, held), part, stop)
        }
        (AnyRun::F64(run), AnyParameters::F64(params)) => {
            let held = if let Some(Floats::F64(held)) = held { Some(held) } else { None };
            compute_as(model, run, params, (read, held), part, stop)
        }
        _ => Err(mismatch()),
    }
}

/// The numbers of a batch that have been read.
struct Numbers<'a> {
    read: Read,
    tokens: &'a [u32],
    classes: &'a [u32],
    x_numbers: &'a [f64],
    y_numbers: &'a [f64],
}

fn compute_as<E: ErasedModels + Fill>(
    model: &AnyModel,
    run: &mut Run<E>,
    params: &mut Parameters<'_, E>,
    (Numbers { read, tokens, classes, x_numbers, y_numbers }, held): (Numbers<'_>, Option<&[E]>),
    part: Request<'_>,
    stop: &mut (dyn FnMut() -> bool + Send),
) -> Result<f64, Error> {
    let Run { oracle, x, y } = run;
    let convert = |from: &[f64], to: &mut Vec<E>| {
        to.clear();
        to.extend(from.iter().map(|&x| E::from_f64(x)));
    };
    let label = match read.label {
        ReadLabel::Classes => Label::Classes(classes),
        label => {
            convert(y_numbers, y);
            if label == ReadLabel::Numbers { Label::Numbers(&y[..]) } else { Label::Probabilities(&y[..]) }
        }
    };
    let stop: &mut dyn FnMut() -> bool = stop;
    match model {
        AnyModel::Chars(model) => {
            let batch = Batch::new(Input::Tokens(tokens), label, read.n)?;
            compute(oracle, E::of_char_mlp(model), params, batch, part, Some(stop))
        }
        AnyModel::Tokens(model) => {
            let batch = Batch::new(Input::Tokens(tokens), label, read.n)?;
            compute(oracle, E::of_gpt(model), params, batch, part, Some(stop))
        }
        AnyModel::Dense(model) => {
            let shares = |held: &&[E]| {
                let [a, b] = [params.values(), params.grads()].map(|of| shares_memory(of, held));
                a || b || part.outs().any(|out| out.overlaps_numbers(held))
            };
            let numbers = match held {
                Some(held) if !shares(&held) => held,
                Some(held) => {
                    x.clear();
                    x.extend_from_slice(held);
                    x
                }
                None => {
                    convert(x_numbers, x);
                    x
                }
            };
            let batch = Batch::new(Input::Numbers(numbers), label, read.n)?;
            compute(oracle, E::of_mlp(model), params, batch, part, Some(stop))
        }
    }
}

/// Reads windows of tokens and the symbols after each of them.
fn read_tokens(model: &Gpt, state: &mut Buffers, x: &Bound<'_, PyAny>, y: &Bound<'_, PyAny>) -> PyResult<Read> {
    let (x_dims, y_dims) = (read_token_ids(x, &mut state.x, "contexts")?, read_token_ids(y, &mut state.y, "targets")?);
    let most = model.shape().context;
    match x_dims.matrix() {
        Some((0, _)) => Err(PyValueError::new_err("contexts are empty; give at least one sample")),
        Some((n, width)) if (1..=most).contains(&width) => match y_dims.matrix() == Some((n, width)) {
            true => Ok(Read { n, label: ReadLabel::Classes }),
            false => {
                let found = y_dims.text();
                Err(PyValueError::new_err(format!("targets must have shape ({n}, {width}) here, found {found}")))
            }
        },
        _ if x_dims.row() == Some(0) => Err(PyValueError::new_err("contexts are empty; give at least one sample")),
        _ => {
            let found = x_dims.text();
            Err(PyValueError::new_err(format!("contexts must have shape (b, 1..{most}), found {found}")))
        }
    }
}

fn compute<E: LaneFloat + Fill>(
    oracle: &mut Oracle<E>,
    model: &dyn LaneModel<E>,
    params: &mut Parameters<'_, E>,
    batch: Batch<'_, E>,
    part: Request<'_>,
    stop: Interrupted<'_>,
) -> Result<f64, Error> {
    let (batch, want) = match part {
        Request::All(want) => (batch, want),
        Request::Sample(k, want) => {
            let want = match want {
                WantSample::Gradient(out) | WantSample::Row(out) => Want::Gradient(None, out, false),
                WantSample::Largest(largest) => Want::Largest(None, largest),
            };
            (batch.sample(k).ok_or(Error::EmptyReduction { op: "the loss" })?, want)
        }
    };
    oracle.skip_losses(matches!(want, Want::Gradient(.., true) | Want::Some(.., true)));
    match want {
        Want::Some(wanted, mut out, at, _) => {
            check_apart(params, at.as_ref(), Some(&out))?;
            let at = at.as_ref().map(|at| at.slice());
            oracle.gradient_of_some(model, params, batch, at, (wanted, out.slice_mut()), stop)
        }
        Want::Gradient(None, None, _) => oracle.gradient(model, params, batch, stop),
        Want::Gradient(at, mut out, _) => {
            check_apart(params, at.as_ref(), out.as_ref())?;
            let elsewhere =
                Overrides { at: at.as_ref().map(|at| at.slice()), out: out.as_mut().map(|out| out.slice_mut()) };
            oracle.gradient_elsewhere(model, params, batch, elsewhere, stop)
        }
        Want::Stream(WantStream { at, mut out, keeps, take }) => {
            check_apart(params, at.as_ref(), out.as_ref())?;
            let at = at.as_ref().map(|at| at.slice());
            if !keeps {
                let emit = &mut |range, gradient: &[E]| take(range, Some(FlatArray::copied(gradient)));
                return oracle.gradient_passed_on(model, params, batch, at, emit, stop);
            }
            let elsewhere = Overrides { at, out: out.as_mut().map(|out| out.slice_mut()) };
            oracle.gradient_streamed(model, params, batch, elsewhere, &mut |range, _| take(range, None), stop)
        }
        Want::Largest(at, largest) => {
            check_apart(params, at.as_ref(), None)?;
            let Some(largest) = E::largest(largest) else { return Err(mismatch()) };
            let mut failed = None;
            let take = &mut |range: std::ops::Range<usize>, gradient: &[E]| {
                failed = largest.take(range.start, gradient).err();
                failed.is_none()
            };
            let at = at.as_ref().map(|at| at.slice());
            let done = oracle.gradient_passed_on(model, params, batch, at, take, stop);
            failed.map_or(done, Err)
        }
        Want::Until(WantUntil { wanted, at, mut out, until, n }) => {
            check_apart(params, at.as_ref(), out.as_ref())?;
            let elsewhere =
                Overrides { at: at.as_ref().map(|at| at.slice()), out: out.as_mut().map(|out| out.slice_mut()) };
            match oracle.gradient_until(model, params, batch, wanted, elsewhere, until, stop) {
                Ok(finished) => {
                    *n = Some(finished.n);
                    Ok(finished.loss)
                }
                // An exception of a signal handler is raised first. The token may have been cleared.
                Err(Error::Interrupted) => Ok(f64::NAN),
                Err(error) => Err(error),
            }
        }
        Want::Cost(wanted, cost) => {
            *cost = oracle.cost(model, params, batch, wanted, stop)?;
            Ok(0.0)
        }
        Want::Random(WantRandom { at, mut out, p, draw, variance }) => {
            check_apart(params, at.as_ref(), out.as_ref())?;
            let elsewhere =
                Overrides { at: at.as_ref().map(|at| at.slice()), out: out.as_mut().map(|out| out.slice_mut()) };
            let (loss, found) = oracle.gradient_at_random(model, params, batch, elsewhere, (p, &draw), stop)?;
            *variance = found;
            Ok(loss)
        }
        Want::Norms(norms) => {
            oracle.per_sample(model, params, batch, stop, &mut |_, _, params| {
                norms.push(sum_squares(params.grads()).to_f64().sqrt());
                Ok(())
            })?;
            Ok(0.0)
        }
        Want::Loss => oracle.loss(model, params, batch, stop),
        Want::Step(lr, None) => oracle.step(model, params, batch, lr, stop),
        Want::Step(lr, Some((token, has_stopped))) => match oracle.step_until(model, params, batch, lr, token, stop) {
            // As above.
            Err(Error::Interrupted) => {
                *has_stopped = true;
                Ok(f64::NAN)
            }
            done => done,
        },
        Want::Losses(losses) => {
            let mut found = vec![E::lit(0.0); batch.len()];
            oracle.losses(model, params, batch, &mut found, stop)?;
            losses.extend(found.iter().map(|loss| loss.to_f64()));
            Ok(0.0)
        }
    }
}
