//! `Oracle` for Python: batches in, losses and gradients out.
//!
//! Promises: a batch is read and checked before anything is written; long calls release the interpreter lock and can be
//! interrupted.

use burtorch_core::kernels::{sgd_update, sum_squares};
use burtorch_core::nn::{Gpt, Input, Label};
use burtorch_core::oracle::Interrupted;
use burtorch_core::{Batch, DType, Elsewhere, Error, Float, LaneFloat, LaneModel, Lanes, Oracle, Parameters, Total};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyMemoryView, PySlice};

use crate::buffer::{CallerMemory, Dims, holds_integers, read_numbers, read_symbols};
use crate::errors::{IntoPython, to_python};
use crate::function::{Function, Pass};
use crate::guarded::Guarded;
use crate::nn::{AnyModel, model_of};
use crate::params::{AnyParameters, PyParameters, mismatch, params_of, with_params};
use crate::poll::Poll;

/// Runs an expression on parameters of a type that oracles compute in.
macro_rules! with_kernel_params {
    ($any:expr, $params:ident => $body:expr) => {
        match $any {
            AnyParameters::F32($params) => $body,
            AnyParameters::F64($params) => $body,
            _ => {}
        }
    };
}
/// Parameters times samples above which a call releases the interpreter lock: about 50 microseconds of work.
const RELEASE_ABOVE: usize = 1 << 18;

/// Loss and gradient of batches, computed a few samples at a time in the memory of at most 64.
///
/// Args:
///     model: a CharMLP, a GPT, an MLP or a Linear; or any callable `model(x, y)` that maps one sample to a loss, a Value. It
///         is called once for each group of samples, and Values and Vectors then hold one number in each lane. `x` and `y` are
///         Symbols where the batch holds integers, a Value where samples are single numbers, else a Vector.
///     params: the Parameters that such a callable reads, unless it has them as `.params`.
///     reduction: "mean" (default) or "sum" of the losses of a batch.
///     lanes: how many samples are computed at once: "auto" (default; by batch size and dtype, never by CPU), or 1, 4, 8
///         or 16 of float32, 1, 2, 4 or 8 of float64. Other widths give the same numbers within rounding.
///     loss: "cross_entropy" (softmax of the outputs; the default for integer labels and for CharMLP) or "mse" (mean
///         of squared differences; the default for float labels otherwise).
///     threads: how many threads compute the gradient of a batch of more than 64 samples (16 for models that go one sample
///         at a time): the same bits for any number. Each costs the memory of a chunk and of one gradient.
///
/// `oracle(contexts, targets)` gives the loss and the gradient, a FlatArray over `params.grads` that the next call
/// **overwrites**. `contexts` has shape (b, n_in): integers for a CharMLP, numbers otherwise; `targets` has shape (b,)
/// for classes, (b, n_out) for probabilities or numbers; for a GPT both have shape (b, n), the tokens and the symbol
/// after each, n of them up to its context, and the loss of a sample is the mean over its tokens. Both may be buffers of
/// any width (NumPy, array.array, memoryview), also strided ones, or nested sequences. Each call costs one pass forward and one back per sample;
/// gradients add samples in one fixed order, so they have the same bits on every run and every CPU with fused multiply-add.
/// `oracle(x, y, at=point)` evaluates at another flat point and leaves the values alone; `out=` takes writable memory of
/// the parameters' dtype for the gradient, which is then returned instead, and `params.grads` stays as it is.
///
/// Raises:
///     TypeError, ValueError: data of another type or shape.
///     IndexError: a token or class out of range. In all cases nothing is changed.
///     BusyError: the parameters are in use by another thread.
///     KeyboardInterrupt: Ctrl-C; the gradient is 0 then.
///
/// Example:
///     >>> import burtorch as bt
///     >>> params = bt.Parameters(dtype="float64")
///     >>> model = bt.nn.Linear(params, 2, 1, bias=False)
///     >>> params.values[:] = [1.0, 2.0]
///     >>> oracle = bt.Oracle(model)
///     >>> loss, grad = oracle([[1.0, 1.0], [0.0, 1.0]], [[0.0], [2.0]])
///     >>> loss, list(grad)
///     (4.5, [3.0, 3.0])
#[pyclass(frozen, name = "Oracle", module = "burtorch")]
pub struct PyOracle {
    /// None where the model is a function of Python.
    model: Option<AnyModel>,
    function: Option<Guarded<Function>>,
    params: Py<PyParameters>,
    state: Guarded<State>,
    loss: Option<Loss>,
    total: Total,
    lanes: Lanes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    CrossEntropy,
    Mse,
}

/// What calls reuse.
struct State {
    run: AnyRun,
    x: Vec<u32>,
    y: Vec<u32>,
    x_numbers: Vec<f64>,
    y_numbers: Vec<f64>,
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

/// What has been read of a batch.
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

/// What a call computes.
enum Want<'a> {
    /// At a point, into memory, and whether the loss may be left out.
    Gradient(Option<CallerMemory>, Option<CallerMemory>, bool),
    Loss,
    Losses(&'a mut Vec<f64>),
    Step(f64),
    Norms(&'a mut Vec<f64>),
    /// Loss and gradient of one sample.
    Sample(usize, Option<CallerMemory>),
}

#[pymethods]
impl PyOracle {
    #[new]
    #[pyo3(signature = (model, reduction="mean", loss=None, *, params=None, lanes=None, threads=1))]
    fn new(
        model: &Bound<'_, PyAny>,
        reduction: &str,
        loss: Option<&str>,
        params: Option<&Bound<'_, PyAny>>,
        lanes: Option<&Bound<'_, PyAny>>,
        threads: usize,
    ) -> PyResult<Self> {
        let py = model.py();
        let lanes = lanes_of(lanes)?;
        let (model, function, params) = match model_of(model) {
            Ok((built, own)) => (Some(built), None, own),
            Err(_) if model.is_callable() && !model.is_instance_of::<PyOracle>() => {
                let params = params_of(params.unwrap_or(model))?;
                if loss.is_some() || threads != 1 {
                    return Err(PyValueError::new_err("loss and threads are for the models of burtorch.nn"));
                }
                let function = Function::new(model, params.clone_ref(py), lanes)?;
                (None, Some(Guarded::new(function, "this Oracle")), params)
            }
            Err(error) => return Err(error),
        };
        let total = match reduction {
            "mean" => Total::Mean,
            "sum" => Total::Sum,
            _ => {
                return Err(PyValueError::new_err(format!(
                    "reduction must be \"mean\" or \"sum\", found {reduction:?}"
                )));
            }
        };
        let loss = match loss {
            None => None,
            Some("cross_entropy") => Some(Loss::CrossEntropy),
            Some("mse") => Some(Loss::Mse),
            Some(found) => {
                return Err(PyValueError::new_err(format!(
                    "loss must be \"cross_entropy\" or \"mse\", found {found:?}"
                )));
            }
        };
        params.get().need_kernels()?;
        let run = match params.get().dtype_of() {
            DType::Float32 => AnyRun::F32(Run::new(total, lanes, threads).or_raise(py)?),
            _ => AnyRun::F64(Run::new(total, lanes, threads).or_raise(py)?),
        };
        let state = State { run, x: Vec::new(), y: Vec::new(), x_numbers: Vec::new(), y_numbers: Vec::new() };
        Ok(PyOracle { model, function, params, state: Guarded::new(state, "this Oracle"), loss, total, lanes })
    }

    /// The loss of a batch, and its gradient as a FlatArray over all parameters that the next call overwrites.
    #[pyo3(signature = (contexts, targets, at=None, out=None))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        contexts: &Bound<'py, PyAny>,
        targets: &Bound<'py, PyAny>,
        at: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<(f64, Bound<'py, PyAny>)> {
        let want = Want::Gradient(self.point(at)?, self.memory(out, "out")?, false);
        let loss = self.run(py, contexts, targets, want)?;
        Ok((loss, self.written_to(py, out)?))
    }

    /// The gradient of a batch alone, as `oracle(...)` gives it.
    ///
    /// The loss itself is not computed (but for the models of functions, and of tokens, where it comes with the rest): this
    /// saves a logarithm, or a sum of squares, a sample, and a tuple a call. The gradient has the same bits.
    #[pyo3(signature = (contexts, targets, at=None, out=None))]
    fn grad<'py>(
        &self,
        py: Python<'py>,
        contexts: &Bound<'py, PyAny>,
        targets: &Bound<'py, PyAny>,
        at: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let want = Want::Gradient(self.point(at)?, self.memory(out, "out")?, true);
        self.run(py, contexts, targets, want)?;
        self.written_to(py, out)
    }

    /// Calls `visit(k, loss, grad)` for each sample: its number, its loss, and its own gradient.
    ///
    /// The gradient is a FlatArray over `params.grads`, overwritten for the next sample; an exception ends the pass. Costs
    /// one pass forward and one back per sample, and the memory of one gradient. The oracle cannot be used within `visit`
    /// (BusyError).
    ///
    /// Example:
    ///     >>> import burtorch as bt
    ///     >>> params = bt.Parameters(dtype="float64")
    ///     >>> oracle = bt.Oracle(bt.nn.Linear(params, 1, 1, bias=False))
    ///     >>> params.values[:] = [1.0]
    ///     >>> oracle.per_sample([[1.0], [2.0]], [[0.0], [0.0]], lambda k, loss, grad: print(k, loss, list(grad)))
    ///     0 1.0 [2.0]
    ///     1 4.0 [8.0]
    fn per_sample(
        &self,
        py: Python<'_>,
        contexts: &Bound<'_, PyAny>,
        targets: &Bound<'_, PyAny>,
        visit: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.state.with(py, |state| {
            let read = self.read(state, contexts, targets)?;
            for k in 0..read.n {
                let loss = self.run_read(py, state, read, Want::Sample(k, None))?;
                visit.call1((k, loss, PyParameters::grads_array(self.params.bind(py))?))?;
            }
            Ok(())
        })?
    }

    /// The gradient of each sample, as the rows of a memoryview of shape (b, n) in the parameters' dtype.
    ///
    /// `numpy.asarray` of it copies nothing. Takes b times the memory of a gradient; `per_sample` takes one.
    fn per_sample_grads<'py>(
        &self,
        py: Python<'py>,
        contexts: &Bound<'py, PyAny>,
        targets: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.state.with(py, |state| {
            let read = self.read(state, contexts, targets)?;
            let d = self.params.get().with(py, |params| with_params!(params, p => p.len()))?;
            let (format, size) = if self.params.get().dtype_of() == DType::Float32 { ("f", 4) } else { ("d", 8) };
            let bytes = read.n.saturating_mul(d).saturating_mul(size);
            if bytes > isize::MAX as usize {
                return Err(to_python(py, Error::OutOfMemory { bytes, what: "the gradients of all samples" }));
            }
            let memory = PyByteArray::new_with(py, bytes, |_| Ok(()))?;
            let memory = PyMemoryView::from(memory.as_any())?;
            let flat = memory.call_method1("cast", (format,))?;
            for k in 0..read.n {
                let row = flat.get_item(PySlice::new(py, (k * d) as isize, (k * d + d) as isize, 1))?;
                let row = self.memory(Some(&row), "a row")?;
                self.run_read(py, state, read, Want::Sample(k, row))?;
            }
            memory.call_method1("cast", (format, (read.n, d)))
        })?
    }

    /// The Euclidean norm of each sample's gradient, without storing more than one of them.
    fn per_sample_grad_norms(
        &self,
        py: Python<'_>,
        contexts: &Bound<'_, PyAny>,
        targets: &Bound<'_, PyAny>,
    ) -> PyResult<Vec<f64>> {
        let mut norms = Vec::new();
        self.run(py, contexts, targets, Want::Norms(&mut norms))?;
        Ok(norms)
    }

    /// How many samples are computed at once: "auto" or a number.
    #[getter]
    fn lanes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self.lanes {
            Lanes::Auto => Ok("auto".into_pyobject(py)?.into_any()),
            Lanes::Of(n) => Ok(n.into_pyobject(py)?.into_any()),
        }
    }

    /// The loss of a batch. Gradients stay as they are. Costs one pass forward per sample.
    fn loss(&self, py: Python<'_>, contexts: &Bound<'_, PyAny>, targets: &Bound<'_, PyAny>) -> PyResult<f64> {
        self.run(py, contexts, targets, Want::Loss)
    }

    /// The loss of each sample of a batch. Gradients stay as they are.
    fn losses(&self, py: Python<'_>, contexts: &Bound<'_, PyAny>, targets: &Bound<'_, PyAny>) -> PyResult<Vec<f64>> {
        let mut losses = Vec::new();
        self.run(py, contexts, targets, Want::Losses(&mut losses))?;
        Ok(losses)
    }

    /// One step of plain gradient descent on a batch, `values -= lr * gradient`; returns the loss before it.
    ///
    /// With one sample the values change during the sweep and no gradient is stored: half the memory traffic of
    /// `oracle(...)` and `SGD.step()`, and the same numbers within rounding. What is in `params.grads` afterwards is not
    /// specified. Raises ValueError for a rate that is negative or not finite.
    fn step(&self, py: Python<'_>, contexts: &Bound<'_, PyAny>, targets: &Bound<'_, PyAny>, lr: f64) -> PyResult<f64> {
        self.run(py, contexts, targets, Want::Step(lr))
    }

    /// Where the gradient goes.
    #[getter]
    fn params(&self, py: Python<'_>) -> Py<PyParameters> {
        self.params.clone_ref(py)
    }

    /// "mean" or "sum".
    #[getter]
    fn reduction(&self) -> &'static str {
        match self.total {
            Total::Mean => "mean",
            Total::Sum => "sum",
        }
    }
}

impl PyOracle {
    fn run(&self, py: Python<'_>, x: &Bound<'_, PyAny>, y: &Bound<'_, PyAny>, want: Want<'_>) -> PyResult<f64> {
        if let Some(function) = &self.function {
            return self.run_function(function, x, y, want);
        }
        self.state.with(py, |state| {
            let read = self.read(state, x, y)?;
            self.run_read(py, state, read, want)
        })?
    }

    fn run_read(&self, py: Python<'_>, state: &mut State, read: Read, want: Want<'_>) -> PyResult<f64> {
        let mut poll = Poll::new();
        let result = self.params.get().with(py, |params| {
            let go = || self.compute(state, params, read, want, &mut || poll.stop());
            if self.n_parameters().saturating_mul(read.n) > RELEASE_ABOVE { py.detach(go) } else { go() }
        })?;
        match result {
            Ok(loss) => Ok(loss),
            Err(error) => Err(poll.raised().unwrap_or_else(|| to_python(py, error))),
        }
    }

    /// Memory of the caller in the parameters' dtype.
    fn memory(&self, object: Option<&Bound<'_, PyAny>>, what: &str) -> PyResult<Option<CallerMemory>> {
        object.map(|object| CallerMemory::of(object, self.params.get().dtype_of(), what)).transpose()
    }

    /// Where a gradient was written: the caller's memory, or the gradients of the parameters.
    fn written_to<'py>(&self, py: Python<'py>, out: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        match out {
            Some(out) => Ok(out.clone()),
            None => Ok(Bound::new(py, PyParameters::grads_array(self.params.bind(py))?)?.into_any()),
        }
    }

    /// A flat point: memory of the parameters' dtype as it is, anything else as a copy.
    fn point(&self, object: Option<&Bound<'_, PyAny>>) -> PyResult<Option<CallerMemory>> {
        let Some(object) = object else {
            return Ok(None);
        };
        if let Ok(memory) = self.memory(Some(object), "at") {
            return Ok(memory);
        }
        let py = object.py();
        let mut numbers = Vec::new();
        let dims = read_numbers(object, &mut numbers, "at")?;
        if dims.row().is_none() {
            return Err(PyValueError::new_err(format!("at must have one dimension, found shape {}", dims.text())));
        }
        let format = if self.params.get().dtype_of() == DType::Float32 { "f" } else { "d" };
        let copy = py.import("array")?.getattr("array")?.call1((format, numbers))?;
        self.memory(Some(&copy), "at")
    }

    /// The model, where it is one of burtorch's.
    fn built(&self) -> Result<&AnyModel, Error> {
        self.model.as_ref().ok_or(Error::MissingParameters)
    }

    /// As [`PyOracle::run`], for a function of Python.
    fn run_function(
        &self,
        function: &Guarded<Function>,
        x: &Bound<'_, PyAny>,
        y: &Bound<'_, PyAny>,
        want: Want<'_>,
    ) -> PyResult<f64> {
        let py = x.py();
        let pass = |n: usize| match self.total {
            Total::Mean => Pass::Gradient(1.0 / n as f64),
            Total::Sum => Pass::Gradient(1.0),
        };
        let of = |losses: &[f64]| {
            let sum: f64 = losses.iter().sum();
            if self.total == Total::Mean { sum / losses.len() as f64 } else { sum }
        };
        function.with(py, |function| match want {
            Want::Loss => Ok(of(&function.run(x, y, |_| Pass::Losses)?)),
            Want::Losses(losses) => {
                *losses = function.run(x, y, |_| Pass::Losses)?;
                Ok(0.0)
            }
            Want::Gradient(None, None, _) => Ok(of(&function.run(x, y, pass)?)),
            Want::Step(lr) => {
                if !(lr.is_finite() && lr >= 0.0) {
                    let (expected, found) = ("finite and at least 0".into(), lr.to_string());
                    return Err(Error::BadArgument { what: "the learning rate", expected, found }).or_raise(py);
                }
                let loss = of(&function.run(x, y, pass)?);
                self.params.get().with(py, |params| {
                    with_kernel_params!(params, p => p.for_each_trainable_mut(|_, x, g| sgd_update(Float::from_f64(lr), g, x)));
                })?;
                Ok(loss)
            }
            _ => Err(PyTypeError::new_err(
                "at, out and gradients of single samples are for the models of burtorch.nn; set params.values instead",
            )),
        })?
    }

    fn n_parameters(&self) -> usize {
        match &self.model {
            None => 0,
            Some(AnyModel::Chars(model)) => model.n_parameters(),
            Some(AnyModel::Dense(model)) => model.n_parameters(),
            Some(AnyModel::Tokens(model)) => model.n_parameters(),
        }
    }

    /// Reads a batch into the state and checks its shape.
    fn read(&self, state: &mut State, x: &Bound<'_, PyAny>, y: &Bound<'_, PyAny>) -> PyResult<Read> {
        let (n_in, n_out, x_dims) = match self.built().or_raise(x.py())? {
            AnyModel::Tokens(model) => return read_tokens(model, state, x, y),
            AnyModel::Chars(model) => {
                let shape = model.shape();
                (shape.context, shape.vocab, read_symbols(x, &mut state.x, "contexts")?)
            }
            AnyModel::Dense(model) => (model.n_in(), model.n_out(), read_numbers(x, &mut state.x_numbers, "contexts")?),
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
        if self.loss != Some(Loss::Mse) && holds_integers(y)? {
            let dims = read_symbols(y, &mut state.y, "targets")?;
            if dims.row() == Some(n) {
                return Ok(Read { n, label: ReadLabel::Classes });
            }
            return refuse(format!("({n},)"), dims);
        }
        let dims = read_numbers(y, &mut state.y_numbers, "targets")?;
        if dims.matrix() != Some((n, n_out)) && !(n_out == 1 && dims.row() == Some(n)) {
            return refuse(format!("({n}, {n_out})"), dims);
        }
        let by_default = if matches!(self.model, Some(AnyModel::Chars(_))) { Loss::CrossEntropy } else { Loss::Mse };
        let label = match self.loss.unwrap_or(by_default) {
            Loss::CrossEntropy => ReadLabel::Probabilities,
            Loss::Mse => ReadLabel::Numbers,
        };
        Ok(Read { n, label })
    }

    fn compute(
        &self,
        state: &mut State,
        params: &mut AnyParameters,
        read: Read,
        want: Want<'_>,
        stop: &mut (dyn FnMut() -> bool + Send),
    ) -> Result<f64, Error> {
        let State { run, x, y, x_numbers, y_numbers } = state;
        let read = (read, &x[..], &y[..], &x_numbers[..], &y_numbers[..]);
        match (run, params) {
            (AnyRun::F32(run), AnyParameters::F32(params)) => self.compute_as(run, params, read, want, stop),
            (AnyRun::F64(run), AnyParameters::F64(params)) => self.compute_as(run, params, read, want, stop),
            _ => Err(mismatch()),
        }
    }

    fn compute_as<E: LaneFloat>(
        &self,
        run: &mut Run<E>,
        params: &mut Parameters<'_, E>,
        (read, tokens, classes, x_numbers, y_numbers): (Read, &[u32], &[u32], &[f64], &[f64]),
        want: Want<'_>,
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
        match self.built()? {
            AnyModel::Chars(model) => {
                let batch = Batch::new(Input::Tokens(tokens), label, read.n)?;
                compute(oracle, model, params, batch, want, Some(stop))
            }
            AnyModel::Tokens(model) => {
                let batch = Batch::new(Input::Tokens(tokens), label, read.n)?;
                compute(oracle, model, params, batch, want, Some(stop))
            }
            AnyModel::Dense(model) => {
                convert(x_numbers, x);
                let batch = Batch::new(Input::Numbers(&x[..]), label, read.n)?;
                compute(oracle, model, params, batch, want, Some(stop))
            }
        }
    }
}

/// Reads windows of tokens and the symbols after each of them.
fn read_tokens(model: &Gpt, state: &mut State, x: &Bound<'_, PyAny>, y: &Bound<'_, PyAny>) -> PyResult<Read> {
    let (x_dims, y_dims) = (read_symbols(x, &mut state.x, "contexts")?, read_symbols(y, &mut state.y, "targets")?);
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

fn compute<E: LaneFloat, M: LaneModel<E>>(
    oracle: &mut Oracle<E>,
    model: &M,
    params: &mut Parameters<'_, E>,
    batch: Batch<'_, E>,
    want: Want<'_>,
    stop: Interrupted<'_>,
) -> Result<f64, Error> {
    oracle.skip_losses(matches!(want, Want::Gradient(.., true)));
    match want {
        Want::Gradient(None, None, _) => oracle.gradient(model, params, batch, stop),
        Want::Gradient(at, mut out, _) => {
            let shares = |memory: &CallerMemory| {
                memory.overlaps_numbers(params.values()) || memory.overlaps_numbers(params.grads())
            };
            let taken = out.as_ref().is_some_and(|out| shares(out) || at.as_ref().is_some_and(|at| at.overlaps(out)));
            if taken || at.as_ref().is_some_and(|at| at.overlaps_numbers(params.grads())) {
                return Err(Error::BadArgument {
                    what: "memory for an oracle",
                    expected: "memory apart from the gradients and, for out, from the values and the point".into(),
                    found: "memory that overlaps".into(),
                });
            }
            let elsewhere =
                Elsewhere { at: at.as_ref().map(|at| at.slice()), out: out.as_mut().map(|out| out.slice_mut()) };
            oracle.gradient_elsewhere(model, params, batch, elsewhere, stop)
        }
        Want::Sample(k, mut out) => {
            let sample = batch.sample(k).ok_or(Error::EmptyReduction { op: "the loss" })?;
            let elsewhere = Elsewhere { at: None, out: out.as_mut().map(|out| out.slice_mut()) };
            oracle.gradient_elsewhere(model, params, sample, elsewhere, stop)
        }
        Want::Norms(norms) => {
            oracle.per_sample(model, params, batch, stop, &mut |_, _, params| {
                norms.push(sum_squares(params.grads()).to_f64().sqrt());
                Ok(())
            })?;
            Ok(0.0)
        }
        Want::Loss => oracle.loss(model, params, batch, stop),
        Want::Step(lr) => oracle.step(model, params, batch, lr, stop),
        Want::Losses(losses) => {
            let mut found = vec![E::lit(0.0); batch.len()];
            oracle.losses(model, params, batch, &mut found, stop)?;
            losses.extend(found.iter().map(|loss| loss.to_f64()));
            Ok(0.0)
        }
    }
}

/// The lanes that Python asks for.
fn lanes_of(lanes: Option<&Bound<'_, PyAny>>) -> PyResult<Lanes> {
    let Some(lanes) = lanes else {
        return Ok(Lanes::Auto);
    };
    if let Ok(n) = lanes.extract::<usize>() {
        return Ok(Lanes::Of(n));
    }
    match lanes.extract::<String>().as_deref() {
        Ok("auto") => Ok(Lanes::Auto),
        _ => Err(PyValueError::new_err(format!("lanes must be \"auto\" or a number, found {}", lanes.repr()?))),
    }
}

/// Adds the class to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyOracle>()
}
