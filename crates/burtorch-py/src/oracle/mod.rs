//! `Oracle` for Python: batches in, losses and gradients out.
//!
//! Promises: a batch is read and checked before anything is written; one call at a time. The engine is a built-in model
//! (`builtin`) or a callable (`callable`).

mod builtin;
mod call;
mod callable;
mod contexts;
mod engine;
mod groups;
mod kernel_parameters;
mod parts;
mod rows;
mod samples;
mod stream;
mod subsets;
mod traced;

use burtorch_core::oracle::OracleMemory;
use burtorch_core::sync::Stop;
use burtorch_core::{DType, Lanes, Total};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::compress::{PyCompressor, PyDraw};
use crate::convert::arguments::Count;
use crate::convert::buffer::{CallerMemory, read_numbers, type_name};
use crate::convert::errors::{if_any, instead};
use crate::convert::exclusive::Guarded;
use crate::convert::gc::collected;
use crate::convert::numbers::{argument_number, optional_number};
use crate::convert::numbers::{as_numpy, has_dtype};
use crate::convert::signals::repr_of;
use crate::convert::stop::{PyStop, stopped, until, watched, within};
use crate::nn::model_of;
use crate::params::{PyParameters, params_of};
use builtin::BuiltinEngine;
use call::{Asked, OnStop};
use callable::CallableEngine;
use engine::{Engine, Loss, Want};

/// Loss and gradient of a model over batches.
///
/// Samples are computed a few at a time, in the memory of at most 64 of them.
///
/// Args:
///     model: a CharMLP, a GPT, an MLP or a Linear; or any callable `model(x, y)` that maps one sample to a loss. A callable
///         runs once for each shape of a batch if it can be traced with Arrays; otherwise once for each group of samples, on
///         Values and Vectors that hold one number per lane: `x` and `y` are then TokenIds if the batch contains integers, a
///         Value if samples are single numbers, else a Vector.
///         Without targets it is called as `model(x)`.
///     params: the Parameters that a callable reads, unless it has them as `.params`.
///     reduction: "mean" (default) or "sum" of the losses of a batch.
///     lanes: the number of samples computed at once: "auto" (default; by batch size and dtype, never by CPU), or 1, 4, 8
///         or 16 of float32, 1, 2, 4 or 8 of float64. Results of different widths agree within rounding.
///     loss: "cross_entropy" (softmax of the outputs; the default for integer labels and for CharMLP) or "mse" (mean
///         of squared differences; the default for float labels otherwise). With a callable, such as a Module, it is the loss
///         of its outputs `model(x)`; without one the callable returns the loss of a sample itself.
///     threads: the number of threads for the gradient of a batch of more than 64 samples (16 for models that process one
///         sample at a time): the same bits for any number. Each needs the memory of a chunk and of one gradient, and two of
///         them that of one more gradient. For built-in models only: a callable runs on the calling thread.
///
/// `oracle(contexts, targets)` returns the loss and the gradient, a FlatArray over `params.grads` that the next call
/// **overwrites**. `contexts` has shape (b, n_in): integers for a CharMLP, numbers otherwise; `targets` has shape (b,)
/// for classes, (b, n_out) for probabilities or numbers. For a GPT both have shape (b, n), the tokens and the symbol
/// after each, with n at most its context, and the loss of a sample is the mean over its tokens. Both may be buffers of
/// any width (NumPy, array.array, memoryview), also strided ones, or nested sequences. Each call costs one forward and one
/// backward pass per sample; gradients add samples in one fixed order, so they have the same bits on every run and every CPU
/// with fused multiply-add. `oracle(x, y, at=point)` evaluates at another flat point without changing the values (a callable
/// finds the point in `params.values` while it runs, which costs a copy of them). `out=` takes writable memory of
/// the parameters' dtype for the gradient, which is then returned instead, and `params.grads` does not change.
///
/// `oracle(x, y, wanted=S)` computes only some numbers of the gradient, and returns them in a new array, in the order of the
/// parameters, with the bits of the whole gradient; `params.grads` does not change. S is a set prepared by `subset`, or an
/// argument of it. The backward pass ends below the last number of S, and dense layers compute only the rows and weights of S.
/// `out=` takes memory for the numbers of S, or for all parameters: then numbers outside S are 0 or their gradients.
/// For a callable the whole gradient is computed.
///
/// `oracle(x, y, stop=token, deadline=seconds, on_stop=...)` ends when another thread sets the token (`bt.Stop()`) or after that
/// time, before the next block op or sample, and within large ones. on_stop: "raise" (a StoppedError; the gradient is 0),
/// "discard" (returns None; the gradient is 0), "leave" (returns None; the gradient is unspecified), or "partial": (loss, gradient, n), means over the first n samples, which are
/// complete; a backward pass that has begun is then completed; the samples of a callable's batch finish all or none.
/// `reweight=p` divides the contribution of the finished samples to the whole batch by the probability that a sample finishes,
/// for built-in models.
///
/// `oracle(x, y, compress=c, draw=...)` returns the loss and a Message: `c.compress` of the gradient with the same draw, bit by
/// bit. RandK, RandSeqK and PermK choose coordinates first, and only these are computed. `params.grads` does not change.
///
/// `oracle(x, y, random_backward=p, draw=Draw(seed, round))` returns (loss, gradient, variance): weight gradients of dense layers
/// include each input, of each sample and token, with probability p and divide it by p. The mean over draws is the gradient; all
/// else is exact, and p = 1 gives the bits of the gradient. `variance` is E|g - E g|^2, by its formula. For built-in models only.
///
/// Raises:
///     TypeError, ValueError: data of another type or shape.
///     IndexError: a token or class out of range. These errors change nothing.
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
    engine: Guarded<Box<dyn Engine>>,
    params: Py<PyParameters>,
    /// What it was made of.
    model: Py<PyAny>,
    loss: Option<String>,
    total: Total,
    lanes: Lanes,
    threads: usize,
    /// The name of the model in messages.
    of: String,
}
collected!(PyOracle: engine, params, model);

#[pymethods]
impl PyOracle {
    #[new]
    #[pyo3(
        signature = (model, reduction=Reduction(Total::Mean), loss=None, *, params=None, lanes=None, threads=None),
        text_signature = "(model, reduction='mean', loss=None, *, params=None, lanes=None, threads=1)"
    )]
    fn new(
        model: &Bound<'_, PyAny>,
        reduction: Reduction,
        loss: Option<&str>,
        params: Option<&Bound<'_, PyAny>>,
        lanes: Option<&Bound<'_, PyAny>>,
        threads: Option<Count>,
    ) -> PyResult<Self> {
        let py = model.py();
        let threads = threads.map_or(Ok(1), |n| n.positive("threads"))?;
        let lanes = lanes_of(lanes)?;
        let Reduction(total) = reduction;
        let of_outputs = loss;
        let loss = loss.map(loss_named).transpose()?;
        let (engine, params): (Box<dyn Engine>, _) = match model_of(model) {
            Ok((built, own)) => {
                if let Some(given) = params
                    && !params_of(given)?.is(&own)
                {
                    let message =
                        "params= must be the Parameters of the model, which a built-in model has: leave it out";
                    return Err(PyValueError::new_err(message));
                }
                let params = own;
                params.get().need_kernels()?;
                let built = BuiltinEngine::new(py, built, params.clone_ref(py), loss, (total, lanes, threads))?;
                (Box::new(built), params)
            }
            Err(_) if model.is_callable() && !model.is_instance_of::<PyOracle>() => {
                let params = params_of(params.unwrap_or(model))?;
                check_callable(threads)?;
                let model = &match of_outputs {
                    Some(name) => py.import("burtorch._losses")?.getattr("of_outputs")?.call1((model, name))?,
                    None => model.clone(),
                };
                let function = CallableEngine::new(model, params.clone_ref(py), lanes, total)?;
                (Box::new(function), params)
            }
            Err(error) => {
                let message = format!("expected a model or a callable model(x, y), found {}", type_name(model));
                return Err(instead(py, error, PyTypeError::new_err(message)));
            }
        };
        Ok(PyOracle {
            engine: Guarded::new(engine, "the buffers of this Oracle"),
            params,
            model: model.clone().unbind(),
            loss: of_outputs.map(str::to_string),
            total,
            lanes,
            threads,
            of: name_of(model)?,
        })
    }

    /// An oracle of the copied model, with the same settings and no batch.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let (py, this) = (slf.py(), slf.get());
        if this.model.bind(py).hasattr("__code__")? {
            let message = "an Oracle of a function cannot be copied, because the function refers to the original's tensors; \
                           make an Oracle of a module, or a new one of the copied parameters";
            return Err(PyTypeError::new_err(message));
        }
        let named = PyDict::new(py);
        named.set_item("reduction", this.reduction())?;
        named.set_item("loss", &this.loss)?;
        named.set_item("threads", this.threads)?;
        if let Lanes::Of(n) = this.lanes {
            named.set_item("lanes", n)?;
        }
        let is_built_in = model_of(this.model.bind(py)).is_ok();
        let params = (!is_built_in).then_some(&this.params);
        let arguments = (&this.model, params, named).into_pyobject(py)?;
        PyTuple::new(py, [py.import("burtorch._pickling")?.getattr("oracle")?, arguments.into_any()])
    }

    fn __repr__(&self) -> String {
        let reduction = self.reduction();
        let lanes = match self.lanes {
            Lanes::Auto => "\"auto\"".to_string(),
            Lanes::Of(n) => n.to_string(),
        };
        format!("<Oracle of {}, reduction=\"{reduction}\", lanes={lanes}, threads={}>", self.of, self.threads)
    }

    /// The loss of a batch, and its gradient as a FlatArray over all parameters that the next call overwrites.
    #[pyo3(
        signature = (contexts, targets=None, at=None, out=None, *, wanted=None, stop=None, deadline=None, on_stop="raise",
                     reweight=None, compress=None, draw=None, client=None, n_clients=None, random_backward=None)
    )]
    #[allow(clippy::too_many_arguments, reason = "keywords of Python")]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        contexts: &Bound<'py, PyAny>,
        targets: Option<&Bound<'py, PyAny>>,
        at: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
        wanted: Option<&Bound<'py, PyAny>>,
        stop: Option<&Bound<'py, PyStop>>,
        #[pyo3(from_py_with = optional_number)] deadline: Option<f64>,
        on_stop: &str,
        #[pyo3(from_py_with = optional_number)] reweight: Option<f64>,
        compress: Option<&Bound<'py, PyCompressor>>,
        draw: Option<&Bound<'py, PyDraw>>,
        client: Option<Count>,
        n_clients: Option<Count>,
        #[pyo3(from_py_with = optional_number)] random_backward: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let asked = Asked { batch: (contexts, &or_none(py, targets)), at, out, wanted };
        let stop = watched(stop, deadline)?;
        let on_stop = OnStop::named(on_stop)?;
        if reweight.is_some() && on_stop != OnStop::Partial {
            return Err(PyValueError::new_err("reweight is for on_stop=\"partial\""));
        }
        let is_plain = on_stop == OnStop::Raise && wanted.is_none();
        if let Some(p) = random_backward {
            if !is_plain || compress.is_some() || client.is_some() || n_clients.is_some() {
                let message = "random_backward can be combined only with at, out, draw, stop and deadline";
                return Err(PyValueError::new_err(message));
            }
            return within(py, stop, || self.at_random(py, asked, (p, draw)));
        }
        let Some(compressor) = compress else {
            if draw.is_some() || client.is_some() || n_clients.is_some() {
                return Err(PyValueError::new_err(
                    "draw, client and n_clients need compress=, a compressor; draw may also go with random_backward=",
                ));
            }
            return match stop {
                Some(stop) => self.until(py, asked, &stop, (on_stop, reweight)),
                None if on_stop == OnStop::Partial => self.until(py, asked, &Stop::new(), (on_stop, reweight)),
                None => Ok(self.gradient(py, asked, false)?.into_pyobject(py)?.into_any()),
            };
        };
        if !is_plain || out.is_some() {
            let message = "compress can be combined only with at, draw, client, n_clients, stop and deadline; a compressor chooses the coordinates itself";
            return Err(PyValueError::new_err(message));
        }
        until(py, stop, || self.compressed(py, asked, compressor.get(), (draw, client, n_clients)))
    }

    /// The gradient of a batch without the loss.
    ///
    /// The loss is not computed, except for callables and models of tokens, where it comes with the gradient. This
    /// saves a logarithm, or a sum of squares, per sample, and a tuple per call, which is little: 0 to 2 % of a call for a
    /// character model, whose exponentials the gradient needs as well, 7 % for one sample of a linear model with 9
    /// parameters. The gradient has the same bits.
    ///
    /// `stop=` and `deadline=` end it with a StoppedError, as they end a call; the gradient is 0 then.
    #[pyo3(signature = (contexts, targets=None, at=None, out=None, *, wanted=None, stop=None, deadline=None))]
    #[allow(clippy::too_many_arguments, reason = "keywords of Python")]
    fn grad<'py>(
        &self,
        py: Python<'py>,
        contexts: &Bound<'py, PyAny>,
        targets: Option<&Bound<'py, PyAny>>,
        at: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
        wanted: Option<&Bound<'py, PyAny>>,
        stop: Option<&Bound<'py, PyStop>>,
        #[pyo3(from_py_with = optional_number)] deadline: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let asked = Asked { batch: (contexts, &or_none(py, targets)), at, out, wanted };
        match watched(stop, deadline)? {
            Some(stop) => self.until(py, asked, &stop, (OnStop::Raise, None))?.get_item(1),
            None => Ok(self.gradient(py, asked, true)?.1),
        }
    }

    /// The number of samples computed at once: "auto" or a number.
    #[getter]
    fn lanes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self.lanes {
            Lanes::Auto => Ok("auto".into_pyobject(py)?.into_any()),
            Lanes::Of(n) => Ok(n.into_pyobject(py)?.into_any()),
        }
    }

    /// The loss of a batch. Gradients do not change. Costs one forward pass per sample. `stop=` and `deadline=` end it with a
    /// StoppedError.
    #[pyo3(signature = (contexts, targets=None, *, stop=None, deadline=None))]
    fn loss(
        &self,
        py: Python<'_>,
        contexts: &Bound<'_, PyAny>,
        targets: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyStop>>,
        #[pyo3(from_py_with = optional_number)] deadline: Option<f64>,
    ) -> PyResult<f64> {
        until(py, watched(stop, deadline)?, || self.run(py, contexts, &or_none(py, targets), Want::Loss))
    }

    /// One step of plain gradient descent on a batch, `values -= lr * gradient`; returns the loss before it.
    ///
    /// If the samples of a batch are computed together, or there is only one, the values change during the backward pass and no
    /// gradient is stored: half the memory traffic of `oracle(...)` and `SGD.step()`, and the same numbers within
    /// rounding. The content of `params.grads` afterwards is unspecified. Raises ValueError for a rate that is negative or not finite.
    ///
    /// `stop=token, deadline=seconds` end it with a StoppedError, as they end a call, as long as no value has changed; after that the
    /// step is completed.
    #[pyo3(signature = (contexts, targets, lr, *, stop=None, deadline=None))]
    fn step(
        &self,
        py: Python<'_>,
        contexts: &Bound<'_, PyAny>,
        targets: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = argument_number)] lr: f64,
        stop: Option<&Bound<'_, PyStop>>,
        #[pyo3(from_py_with = optional_number)] deadline: Option<f64>,
    ) -> PyResult<f64> {
        let (stop, mut has_stopped) = (watched(stop, deadline)?, false);
        let want = Want::Step(lr, stop.as_ref().map(|stop| (stop, &mut has_stopped)));
        let loss = self.run(py, contexts, targets, want)?;
        if has_stopped { Err(stopped(py)) } else { Ok(loss) }
    }

    /// Bytes kept between calls: "activations" (nodes without adjoints), "adjoints", "samples" (inputs and labels).
    ///
    /// They grow during the first calls with each batch size up to 64, and then stay constant.
    fn memory<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let OracleMemory { activations, adjoints, samples } = self.engine.with(py, |engine| engine.memory())?;
        let table = PyDict::new(py);
        table.set_item("activations", activations)?;
        table.set_item("adjoints", adjoints)?;
        table.set_item("samples", samples)?;
        Ok(table)
    }

    /// The Parameters that receive the gradient.
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

/// Passes a batch on, with arrays of other libraries as NumPy's; returns the number of samples.
fn begin(engine: &mut dyn Engine, x: &Bound<'_, PyAny>, y: &Bound<'_, PyAny>) -> PyResult<usize> {
    let [x, y] = [x, y].map(|given| if has_dtype(given)? { as_numpy(given) } else { Ok(given.clone()) });
    engine.begin(&x?, &y?)
}

impl PyOracle {
    fn run(&self, py: Python<'_>, x: &Bound<'_, PyAny>, y: &Bound<'_, PyAny>, want: Want<'_>) -> PyResult<f64> {
        crate::convert::refusals::refuse_reading("the loss of an oracle")?;
        self.engine.with(py, |engine| {
            begin(engine.as_mut(), x, y)?;
            engine.run(py, want)
        })?
    }

    /// Memory of the caller in the parameters' dtype.
    fn memory_of(&self, object: Option<&Bound<'_, PyAny>>, what: &str) -> PyResult<Option<CallerMemory>> {
        object.map(|object| CallerMemory::of(object, self.params.get().dtype_of(), what)).transpose()
    }

    /// The memory with the gradient: the caller's, or the gradients of the parameters.
    fn written_to<'py>(&self, py: Python<'py>, out: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        match out {
            Some(out) => Ok(out.clone()),
            None => Ok(Bound::new(py, PyParameters::grads_array(self.params.bind(py))?)?.into_any()),
        }
    }

    /// A flat point: memory of the parameters' dtype without a copy, other points as a copy.
    fn point(&self, object: Option<&Bound<'_, PyAny>>) -> PyResult<Option<CallerMemory>> {
        let Some(object) = object else {
            return Ok(None);
        };
        if let Ok(memory) = self.memory_of(Some(object), "at") {
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
        self.memory_of(Some(&copy), "at")
    }
}

/// Targets, or None where there are none.
fn or_none<'py>(py: Python<'py>, targets: Option<&Bound<'py, PyAny>>) -> Bound<'py, PyAny> {
    targets.map_or_else(|| py.None().into_bound(py), Bound::clone)
}

/// "mean" or "sum".
struct Reduction(Total);

impl<'py> FromPyObject<'_, 'py> for Reduction {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let must = "reduction must be \"mean\" or \"sum\", found";
        match object.extract::<&str>() {
            Ok("mean") => Ok(Reduction(Total::Mean)),
            Ok("sum") => Ok(Reduction(Total::Sum)),
            Ok(other) => Err(PyValueError::new_err(format!("{must} {other:?}"))),
            Err(_) if object.is_instance_of::<PyParameters>() => {
                Err(PyTypeError::new_err(format!("{must} Parameters; pass them as params=")))
            }
            Err(_) => Err(PyTypeError::new_err(format!("{must} {}", type_name(&object)))),
        }
    }
}

fn loss_named(name: &str) -> PyResult<Loss> {
    match name {
        "cross_entropy" => Ok(Loss::CrossEntropy),
        "mse" => Ok(Loss::Mse),
        found => Err(PyValueError::new_err(format!("loss must be \"cross_entropy\" or \"mse\", found {found:?}"))),
    }
}

/// The name of the model: the representation of a built-in model, the name or type of a callable.
fn name_of(model: &Bound<'_, PyAny>) -> PyResult<String> {
    if model_of(model).is_ok() {
        return repr_of(model);
    }
    let name = if_any(model.py(), model.getattr("__qualname__").and_then(|name| name.extract::<String>()))?;
    Ok(name.unwrap_or_else(|| type_name(model)))
}

/// Refuses a feature of built-in models.
fn check_callable(threads: usize) -> PyResult<()> {
    if threads != 1 {
        return Err(PyValueError::new_err(
            "threads must be 1 for a callable, which runs on the calling thread; use a model of burtorch.nn",
        ));
    }
    Ok(())
}

/// The lanes given by the argument.
fn lanes_of(lanes: Option<&Bound<'_, PyAny>>) -> PyResult<Lanes> {
    let Some(lanes) = lanes else {
        return Ok(Lanes::Auto);
    };
    if let Some(n) = if_any(lanes.py(), lanes.extract::<usize>())? {
        return Ok(Lanes::Of(n));
    }
    match lanes.extract::<String>().as_deref() {
        Ok("auto") => Ok(Lanes::Auto),
        _ => Err(PyValueError::new_err(format!("lanes must be \"auto\" or a number, found {}", repr_of(lanes)?))),
    }
}

/// Adds the class to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyOracle>()
}
