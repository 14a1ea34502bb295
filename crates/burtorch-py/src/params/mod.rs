//! `Parameters` for Python, and their `tensor`s: flat numbers and gradients, in burtorch's memory or the caller's.
//!
//! Promises: one call at a time uses the parameters, a second one raises `BusyError`; arrays share the memory, which does
//! not move while any of them is held.
#![allow(unsafe_code)]

mod number;
mod subset;
mod tensor;

use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use burtorch_core::{DType, Error, Float, Init, Parameters, Slice};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyRange, PyRangeMethods, PyTuple, PyType};

use crate::convert::arguments::{Count, DtypeName, sizes};
use crate::convert::buffer::{CallerMemory, FlatArray, Shared, type_name};
use crate::convert::errors::{IntoPython, if_any, instead};
use crate::convert::exclusive::{Entered, Guarded, Looking};
use crate::convert::gc::collected;
use crate::convert::numbers::real;
use crate::convert::signals::asked;

pub use burtorch_core::erased::AnyParameters;
pub use number::PyParameter;
pub use subset::{PySubset, numbers_of, zeros};
pub use tensor::PyTensor;

/// Evaluates an expression with the parameters inside an [`AnyParameters`].
macro_rules! with_params {
    ($any:expr, $params:ident => $body:expr) => {
        match $any {
            $crate::params::AnyParameters::F32($params) => $body,
            $crate::params::AnyParameters::F64($params) => $body,
            $crate::params::AnyParameters::F16($params) => $body,
            $crate::params::AnyParameters::BF16($params) => $body,
            $crate::params::AnyParameters::F128($params) => $body,
        }
    };
}
pub(crate) use with_params;

/// The same for features of float32 and float64 only: models and block ops. See [`PyParameters::need_kernels`].
macro_rules! with_kernels {
    ($any:expr, $params:ident => $body:expr) => {
        match $any {
            $crate::params::AnyParameters::F32($params) => $body,
            $crate::params::AnyParameters::F64($params) => $body,
            _ => Err($crate::params::mismatch()),
        }
    };
}
pub(crate) use with_kernels;

/// Trainable numbers and their gradients, as two flat arrays that every model and graph shares.
///
/// Args:
///     dtype: "float32" (default), "float64", "float16", "bfloat16" or "float128". Scalar ops support all of them; models,
///         oracles and optimisers the first two.
///     seed: determines all random initial values.
///     capacity: numbers to reserve address space for (32 MiB of values by default); pages are used only when touched.
///         More numbers are possible as long as no array holds the memory, which can then move.
///     values, grads: caller memory (NumPy, shared or mapped memory, array.array ...) to use instead of our own:
///         writable, contiguous, of `dtype`, not overlapping. It is kept alive. Tensors are placed in it one after
///         another, and initialise it.
///
/// Raises:
///     ValueError: unknown dtype, memory that cannot be used, or one of `values` and `grads` without the other.
///     BusyError: another Graph or other Parameters use the memory of `values` or `grads`, or a part of it.
///     MemoryError: no address space for the capacity.
///
/// A tensor costs two numbers per entry, one if it is frozen.
///
/// Example:
///     >>> import burtorch as bt
///     >>> params = bt.Parameters(dtype="float64", seed=1)
///     >>> w = params.tensor((2, 3), name="w", init=0.5)
///     >>> w.shape, params.n, params.values[0]
///     ((2, 3), 6, 0.5)
#[pyclass(frozen, name = "Parameters", module = "burtorch", weakref)]
pub struct PyParameters {
    content: Guarded<AnyParameters>,
    dtype: DType,
    /// Arrays alive over this memory: it does not move while there are any.
    pub shared: Shared,
    /// Declared after the fields that point into it, so dropped after them.
    _memory: Option<[CallerMemory; 2]>,
}
collected!(PyParameters: _memory);

/// Parameters whose memory does not move until this guard is dropped.
struct Held<'a>(&'a mut AnyParameters);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        with_params!(self.0, p => p.release());
    }
}

impl PyParameters {
    /// Python Parameters around core ones.
    pub fn around(params: AnyParameters) -> Self {
        let dtype = params.dtype();
        let content = Guarded::new(params, "these Parameters");
        PyParameters { content, dtype, shared: Shared::default(), _memory: None }
    }

    /// The element type.
    pub fn dtype_of(&self) -> DType {
        self.dtype
    }

    /// Refuses types without block ops.
    pub fn need_kernels(&self) -> PyResult<()> {
        if matches!(self.dtype, DType::Float32 | DType::Float64) {
            return Ok(());
        }
        let found = self.dtype.name();
        Err(PyTypeError::new_err(format!(
            "models, oracles and optimisers take float32 and float64 Parameters, found {found}; scalar ops take all"
        )))
    }

    /// Exclusive access until the guard is dropped.
    pub fn enter(&self, py: Python<'_>) -> PyResult<Entered<'_, AnyParameters>> {
        self.content.enter(py)
    }

    /// Read access until the guard is dropped; others may read at the same time.
    pub fn look(&self, py: Python<'_>) -> PyResult<Looking<'_, AnyParameters>> {
        self.content.look(py)
    }

    /// Runs `f` with exclusive access.
    pub fn with<R>(&self, py: Python<'_>, f: impl FnOnce(&mut AnyParameters) -> R) -> PyResult<R> {
        self.content.with(py, f)
    }

    /// Runs `f`, which may append tensors, with the memory fixed in place while arrays of it are alive.
    pub fn append<R>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut AnyParameters) -> burtorch_core::Result<R>,
    ) -> PyResult<R> {
        let held = self.shared.n_arrays.load(Ordering::Acquire) > 0;
        self.content
            .with(py, |params| {
                if !held {
                    return f(params);
                }
                with_params!(params, p => p.export());
                let held = Held(params);
                f(held.0)
            })?
            .or_raise(py)
    }

    /// Builds with new tensors, or with existing numbers from `start` on, if given.
    pub fn placed<E: Float, T>(
        params: &mut Parameters<'static, E>,
        start: Option<usize>,
        build: impl FnOnce(&mut Parameters<'static, E>) -> burtorch_core::Result<T>,
    ) -> burtorch_core::Result<T> {
        match start {
            None => build(params),
            Some(start) => params.again(start, build),
        }
    }

    /// An array over the values or the gradients of a slice, or of everything.
    pub fn array(slf: &Bound<'_, Self>, slice: Option<Slice>, of_grads: bool) -> PyResult<FlatArray> {
        let this = slf.get();
        let (start, len) = this.with(slf.py(), |params| {
            with_params!(params, p => {
                let range = slice.map_or(0..p.len(), Slice::range);
                let numbers = if of_grads { p.grads_mut() } else { p.values_mut() };
                let span = numbers.as_ptr_range();
                this.shared.note(usize::from(of_grads), span.start as usize..span.end as usize);
                let part = numbers.get_mut(range).unwrap_or(&mut []);
                (NonNull::from(&mut *part).cast::<u8>(), part.len())
            })
        })?;
        Ok(FlatArray::counted(slf.clone().into_any().unbind(), &this.shared.n_arrays, start, len, this.dtype))
    }

    /// All gradients.
    pub fn grads_array(slf: &Bound<'_, Self>) -> PyResult<FlatArray> {
        Self::array(slf, None, true)
    }

    /// All numbers.
    pub fn all(&self, py: Python<'_>) -> PyResult<Slice> {
        self.with(py, |params| with_params!(params, p => p.slice(0..p.len())))?.or_raise(py)
    }

    /// The slice named by a name, a pair (start, stop) or a range without steps, if `what` is one.
    pub fn place_of(&self, what: &Bound<'_, PyAny>) -> PyResult<Option<Slice>> {
        let py = what.py();
        let slice = if let Ok(name) = what.extract::<String>() {
            self.with(py, |params| with_params!(params, p => p.named(&name).map(|tensor| tensor.slice())))
        } else if let Some((start, stop)) = ends(what)? {
            self.with(py, |params| with_params!(params, p => p.slice(start..stop)))
        } else {
            return Ok(None);
        };
        slice?.or_raise(py).map(Some)
    }
}

/// The ends of a pair, or of a range without steps.
fn ends(what: &Bound<'_, PyAny>) -> PyResult<Option<(usize, usize)>> {
    match what.cast::<PyRange>() {
        Ok(range) if range.step().is_ok_and(|step| step == 1) => {
            let ends = range.start().and_then(|start| Ok((start.try_into()?, range.stop()?.try_into()?)));
            if_any(what.py(), ends)
        }
        _ => if_any(what.py(), what.extract()),
    }
}

/// The dtype called `name`.
pub fn dtype_named(name: &str) -> PyResult<DType> {
    DType::ALL.into_iter().find(|dtype| dtype.name() == name).ok_or_else(|| {
        PyValueError::new_err(format!(
            "dtype must be \"float32\", \"float64\", \"float16\", \"bfloat16\" or \"float128\", found {name:?}; \
             graphs of lanes read float32 or float64 Parameters"
        ))
    })
}

/// The result of find_nonfinite(): kind, position, name and number.
type NonFinite = (&'static str, usize, Option<String>, f64);

#[pymethods]
impl PyParameters {
    #[new]
    #[pyo3(
        signature = (dtype=DtypeName::new("float32"), seed=0, capacity=None, values=None, grads=None),
        text_signature = "(dtype='float32', seed=0, capacity=None, values=None, grads=None)"
    )]
    fn new(
        py: Python<'_>,
        dtype: DtypeName,
        #[pyo3(from_py_with = sizes::seed)] seed: u64,
        capacity: Option<Count>,
        values: Option<&Bound<'_, PyAny>>,
        grads: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let dtype = dtype_named(dtype.name())?;
        let capacity = capacity.map(|n| n.within("capacity", 0..=usize::MAX)).transpose()?;
        let memory = match (values, grads) {
            (None, None) => None,
            (Some(values), Some(grads)) => {
                if capacity.is_some() {
                    return Err(PyValueError::new_err("give capacity, or values and grads, not both"));
                }
                let mut memory = [CallerMemory::of(values, dtype, "values")?, CallerMemory::of(grads, dtype, "grads")?];
                if memory[0].overlaps(&memory[1]) {
                    return Err(PyValueError::new_err("values and grads must be apart from each other"));
                }
                memory[0].claim(py, "values")?;
                memory[1].claim(py, "grads")?;
                Some(memory)
            }
            _ => return Err(PyValueError::new_err("values and grads are given together or not at all")),
        };
        macro_rules! make {
            ($variant:ident) => {
                AnyParameters::$variant(match (&memory, capacity) {
                    // SAFETY: checked above to be aligned, writable and disjoint; kept alive by the buffers stored with
                    // it. By the docstring, the owner does not write to it during a call.
                    (Some([values, grads]), _) => unsafe {
                        Parameters::in_memory(values.numbers(), grads.numbers(), seed)
                    },
                    (None, Some(capacity)) => Parameters::with_capacity(seed, capacity.max(1)).or_raise(py)?,
                    (None, None) => Parameters::new(seed),
                })
            };
        }
        let params = match dtype {
            DType::Float32 => make!(F32),
            DType::Float64 => make!(F64),
            DType::Float16 => make!(F16),
            DType::BFloat16 => make!(BF16),
            DType::Float128 => make!(F128),
        };
        Ok(PyParameters {
            content: Guarded::new(params, "these Parameters"),
            dtype,
            shared: Shared::default(),
            _memory: memory,
        })
    }

    /// Refuse tensors beyond `n` numbers in total; None removes the limit.
    fn _set_limit(&self, py: Python<'_>, n: Option<usize>) -> PyResult<()> {
        self.append(py, |params| {
            with_params!(params, p => p.set_limit(n));
            Ok(())
        })
    }

    /// Append a tensor and return it.
    ///
    /// Args:
    ///     shape: an int, or up to four of them.
    ///     name: if given, unique among these Parameters.
    ///     init: a number, "glorot" (uniform; the default), "glorot_normal", "he", "he_normal", "fan_in" (PyTorch's for a
    ///         linear layer), "zeros", "ones", ("uniform", low, high) or ("normal", mean, deviation).
    ///     trainable: False for a frozen tensor, without gradient.
    ///
    /// Raises:
    ///     ValueError: an invalid shape or initialiser, a name in use, or full caller memory.
    ///     MemoryError: more numbers than the capacity while arrays keep the memory in place.
    ///
    /// Example:
    ///     >>> import burtorch as bt
    ///     >>> params = bt.Parameters()
    ///     >>> params.tensor(3, init=("uniform", -1, 1)).shape
    ///     (3,)
    #[pyo3(signature = (shape, name=None, init=None, trainable=true))]
    fn tensor(
        slf: &Bound<'_, Self>,
        shape: &Bound<'_, PyAny>,
        name: Option<&str>,
        init: Option<&Bound<'_, PyAny>>,
        trainable: bool,
    ) -> PyResult<PyTensor> {
        let py = slf.py();
        let dims = match if_any(py, shape.extract::<Count>())? {
            Some(n) => vec![n],
            None => shape.extract::<Vec<Count>>().map_err(|error| {
                instead(py, error, PyTypeError::new_err("shape must be an int or a sequence of them"))
            })?,
        };
        let dims = dims.iter().map(|n| n.positive("each number of shape")).collect::<PyResult<Vec<_>>>()?;
        let init = init.map_or(Ok(Init::Glorot), init_of)?;
        let (params, own_name) = (slf.get(), name.map(str::to_string));
        let tensor =
            params.append(slf.py(), |p| asked(|| with_params!(p, p => p.tensor(&dims, name, init, trainable))))?;
        Ok(PyTensor::new(slf.clone().unbind(), tensor, own_name))
    }

    /// The tensor called `name`. Raises KeyError if there is none.
    fn named(slf: &Bound<'_, Self>, name: &str) -> PyResult<PyTensor> {
        let py = slf.py();
        let tensor = slf.get().with(py, |params| with_params!(params, p => p.named(name)))?.or_raise(py)?;
        Ok(PyTensor::new(slf.clone().unbind(), tensor, Some(name.to_string())))
    }

    /// The names in use, in the order of their tensors.
    #[getter]
    fn names(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let mut names = self.with(py, |params| {
            with_params!(params, p => {
                p.names().map(|(name, tensor)| (tensor.slice().range().start, name.to_string())).collect::<Vec<_>>()
            })
        })?;
        names.sort();
        Ok(names.into_iter().map(|(_, name)| name).collect())
    }

    /// All values as a flat writable array that shares the memory.
    #[getter]
    fn values(slf: &Bound<'_, Self>) -> PyResult<FlatArray> {
        crate::convert::refusals::refuse_reading(".values of Parameters")?;
        Self::array(slf, None, false)
    }

    /// All gradients as a flat writable array that shares the memory. Those of frozen numbers are 0.
    #[getter]
    fn grads(slf: &Bound<'_, Self>) -> PyResult<FlatArray> {
        crate::convert::refusals::refuse_reading(".grads of Parameters")?;
        Self::grads_array(slf)
    }

    /// The number of parameters.
    #[getter]
    fn n(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, |params| with_params!(params, p => p.len()))
    }

    /// The number of parameters that are not frozen.
    #[getter]
    fn n_trainable(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, |params| with_params!(params, p => p.n_trainable()))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.n(py)
    }

    fn __bool__(&self) -> bool {
        true
    }

    /// "float32", "float64", "float16", "bfloat16" or "float128".
    #[getter]
    fn dtype(&self) -> &'static str {
        self.dtype.name()
    }

    /// Set all gradients to zero.
    fn zero_grad(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |params| with_params!(params, p => p.zero_grad()))
    }

    /// The first number that is NaN or infinite, or None if all are finite.
    ///
    /// Returns ("value" or "grad", its position in the flat array, the name of its tensor or None, the number). Values come
    /// before gradients. `nn.find_nonfinite(model)` gives the names of a model. Costs a pass over both.
    ///
    /// Example:
    ///     >>> import burtorch as bt
    ///     >>> params = bt.Parameters()
    ///     >>> w = params.tensor(3, name="w", init=1.0)
    ///     >>> params.values[2] = float("nan")
    ///     >>> params.find_nonfinite()
    ///     ('value', 2, 'w', nan)
    fn find_nonfinite(&self, py: Python<'_>) -> PyResult<Option<NonFinite>> {
        let found = self.with(py, |params| {
            with_params!(params, p => p.find_nonfinite().map(|f| (f.in_gradient, f.place, f.name, f.number.to_f64())))
        })?;
        let kind = |in_gradient| if in_gradient { "grad" } else { "value" };
        Ok(found.map(|(in_gradient, place, name, number)| (kind(in_gradient), place, name, number)))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!(
            "Parameters(n={}, n_trainable={}, dtype={:?})",
            self.n(py)?,
            self.n_trainable(py)?,
            self.dtype.name()
        ))
    }
}

/// The initialiser described by a number, a name, or a tuple.
fn init_of(init: &Bound<'_, PyAny>) -> PyResult<Init> {
    let unknown = || {
        PyValueError::new_err(
            "init must be a number, \"glorot\", \"glorot_normal\", \"he\", \"he_normal\", \"fan_in\", \"zeros\", \"ones\", \
             (\"uniform\", low, high) or (\"normal\", mean, deviation)",
        )
    };
    if let Ok(name) = init.extract::<String>() {
        return Init::from_name(&name).ok_or_else(unknown);
    }
    if init.is_instance_of::<PyTuple>() {
        let (name, a, b) =
            init.extract::<(String, f64, f64)>().map_err(|error| instead(init.py(), error, unknown()))?;
        return match name.as_str() {
            "uniform" => Ok(Init::Uniform(a, b)),
            "normal" => Ok(Init::Normal(a, b)),
            _ => Err(unknown()),
        };
    }
    let expected = "init must be a number, a name, or a tuple such as (\"normal\", 0.0, 0.1)";
    real(init, expected).map(Init::Constant)
}

/// The parameters named by an argument: Parameters, or those of a model.
pub fn params_of(object: &Bound<'_, PyAny>) -> PyResult<Py<PyParameters>> {
    if let Ok(params) = object.cast::<PyParameters>() {
        return Ok(params.clone().unbind());
    }
    let of_model = match object.getattr_opt("params")? {
        Some(params) => Some(params),
        // A plain class; its attributes are searched.
        None if !object.hasattr("__dict__")? => None,
        None => if_any(object.py(), object.py().import("burtorch._module")?.call_method1("home_of", (object,)))?,
    };
    match of_model.as_ref().map(|params| params.cast::<PyParameters>()) {
        Some(Ok(params)) => Ok(params.clone().unbind()),
        _ => Err(PyTypeError::new_err(format!(
            "expected Parameters, or a model with Parameters, found {}",
            type_name(object)
        ))),
    }
}

/// The core's error when two dtypes of one object differ, which cannot happen.
pub fn mismatch() -> Error {
    Error::MissingParameters
}

/// Adds the classes to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = m.py();
    let classes: [Bound<'_, PyType>; 5] = [
        py.get_type::<PyParameters>(),
        py.get_type::<PyTensor>(),
        py.get_type::<PySubset>(),
        py.get_type::<FlatArray>(),
        py.get_type::<crate::convert::buffer::TokenIdArray>(),
    ];
    classes.iter().try_for_each(|class| m.add(class.name()?, class))?;
    tensor::register(m)
}
