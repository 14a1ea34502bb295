//! Callables as array programs: traced once for each shape of a batch, and run in blocks of samples.
//!
//! Promises: a callable that cannot be traced with Arrays, or fails there, runs sample by sample, which gives the error message;
//! one that works only so is not traced again. Arrays are read in place. Does not know lanes.

use std::ops::Range;

use burtorch_core::Total;
use burtorch_core::array::OverRows;
use burtorch_core::sync::Stop;
use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyList, PyMemoryView, PySlice, PyTuple};

use super::callable::{CallableEngine, Side};
use super::kernel_parameters::in_params;
use crate::array::arguments::is_sparse;
use crate::array::parts::TakeFloats;
use crate::array::run::Number;
use crate::convert::arrays::{Array, Kind};
use crate::convert::buffer::{CallerMemory, type_name};
use crate::convert::errors::{derived, if_any, is_final, numpy};
use crate::convert::gc::{HoldsObjects, Visitor};
use crate::convert::signals::{failed_twice, quietly, text_of};
use crate::params::PyParameters;
use crate::trace::array_calls::Running;
use crate::trace::array_path::ArrayPath;
use crate::trace::batches::{Batches, Of};

/// A callable's functions of batches, and the present batch.
#[derive(Default)]
pub struct Traced {
    batches: Option<Batches>,
    given: Option<[Py<PyAny>; 2]>,
    /// Whether the batch has also been read for lanes.
    is_read: bool,
    /// Why the program of this call failed.
    failed: Option<PyErr>,
    /// The gradients of some samples of the present batch.
    pub block: Option<Block>,
    /// Whether the callable has no program for those.
    pub has_no_blocks: bool,
}

/// The losses and gradients of samples from `first` on.
pub struct Block {
    pub first: usize,
    pub losses: Vec<f64>,
    pub gradients: CallerMemory,
}

impl HoldsObjects for Traced {
    fn visit(&self, visit: &mut Visitor<'_>) {
        self.batches.visit(visit);
        if let Some(given) = &self.given {
            given.iter().for_each(visit);
        }
    }
}

impl Traced {
    /// For a callable of one sample.
    pub fn new(call: &Bound<'_, PyAny>, total: Total) -> PyResult<Self> {
        let over = if total == Total::Mean { OverRows::Mean } else { OverRows::Sum };
        Ok(Traced { batches: Some(Batches::new(call, over)?), ..Traced::default() })
    }

    /// Takes a batch of two arrays without a copy, if it is one; returns its number of samples.
    pub fn take_arrays(&mut self, x: &Bound<'_, PyAny>, y: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
        (self.given, self.block) = (None, None);
        if self.batches.is_none() {
            return Ok(None);
        }
        let n = n_samples(x);
        // Beside contexts that are read as arrays only.
        let listed = match has_many_axes(x) && y.is_instance_of::<PyList>() {
            true => if_any(y.py(), numpy(y.py())?.call_method1("asarray", (y,)))?,
            false => None,
        };
        let y = listed.as_ref().unwrap_or(y);
        match [n, if y.is_none() { n } else { n_samples(y) }] {
            [Some(n), Some(m)] if n == m => {
                self.given = Some([x.clone().unbind(), y.clone().unbind()]);
                self.is_read = false;
                Ok(Some(n))
            }
            _ => Ok(None),
        }
    }

    /// Takes a batch that has been read.
    pub fn take_sides(&mut self, py: Python<'_>, sides: [&Side; 2]) -> PyResult<()> {
        if self.batches.is_some() {
            let [x, y] = sides.map(|side| side.array(py));
            self.given = Some([x?.unbind(), y?.unbind()]);
            self.is_read = true;
        }
        Ok(())
    }

    /// The number of samples of the given batch.
    pub fn n_given(&self, py: Python<'_>) -> Option<usize> {
        self.given.as_ref().and_then(|[x, _]| n_samples(x.bind(py)))
    }

    /// The given batch, if nothing has read it; it then counts as read.
    pub fn unread(&mut self) -> Option<[Py<PyAny>; 2]> {
        if std::mem::replace(&mut self.is_read, true) {
            return None;
        }
        Python::attach(|py| self.given.as_ref().map(|given| given.each_ref().map(|object| object.clone_ref(py))))
    }

    /// Puts some samples in the place of the given batch, which it returns; `None` without a program or a batch.
    pub fn replace_by(&mut self, py: Python<'_>, samples: Range<usize>) -> PyResult<Option<[Py<PyAny>; 2]>> {
        let (Some(_), Some([x, y])) = (&self.batches, &self.given) else { return Ok(None) };
        let only = PySlice::new(py, samples.start as isize, samples.end as isize, 1);
        let cut = |side: &Py<PyAny>| match side.is_none(py) {
            true => Ok(Some(py.None())),
            false => if_any(py, side.bind(py).get_item(&only)).map(|cut| cut.map(Bound::unbind)),
        };
        let (Some(x), Some(y)) = (cut(x)?, cut(y)?) else { return Ok(None) };
        Ok(self.given.replace([x, y]))
    }

    /// Puts a batch back.
    pub fn put_back(&mut self, given: [Py<PyAny>; 2]) {
        self.given = Some(given);
    }

    /// Ends a call, successful or not.
    pub fn end(&mut self, is_well: bool) {
        (self.given, self.block) = (None, None);
        if self.failed.take().is_some() && is_well {
            // The other way works: this one is not for the callable.
            self.batches = None;
        }
    }

    /// Forgets why a program failed that the call does not need.
    pub fn forget_failure(&mut self) {
        self.failed = None;
    }

    /// The error of a call that failed both ways: that of the program, if it is about the shape of the loss or an index; otherwise the
    /// later one, with that of the program as its cause if it says something else.
    pub fn clearer(&self, py: Python<'_>, error: PyErr) -> PyErr {
        match &self.failed {
            None => error,
            Some(failed)
                if failed.is_instance_of::<PyIndexError>(py)
                    || text_of(failed.value(py)).contains("needs a function that returns one float") =>
            {
                failed.clone_ref(py)
            }
            Some(failed) => failed_twice(py, failed, error),
        }
    }

    /// The failure of the program for contexts that only a program takes: sparse rows, and arrays with more than two axes.
    pub fn failed_alone(&self, py: Python<'_>, x: &Py<PyAny>) -> Option<PyErr> {
        let x = x.bind(py);
        let failed = self.failed.as_ref().filter(|_| has_many_axes(x) || n_sparse(x).is_some());
        failed.map(|failed| failed.clone_ref(py))
    }

    /// Bytes of buffers.
    pub fn bytes(&self) -> usize {
        Python::attach(|py| self.batches.as_ref().map_or(0, |batches| batches.bytes(py)))
    }

    /// The result of `take` on the results of a program; `None` without a program.
    pub(super) fn attempt<T>(
        &mut self,
        py: Python<'_>,
        of: Of,
        take: &mut dyn FnMut(&mut ArrayPath) -> PyResult<T>,
    ) -> PyResult<Option<T>> {
        self.attempt_by(py, of, &mut |path, given| path.run(py, given), take)
    }

    /// The same with another way to run the program.
    fn attempt_by<T>(
        &mut self,
        py: Python<'_>,
        of: Of,
        by: Running<'_>,
        take: &mut dyn FnMut(&mut ArrayPath) -> PyResult<T>,
    ) -> PyResult<Option<T>> {
        let (Some(batches), Some([x, y])) = (&self.batches, &self.given) else { return Ok(None) };
        match batches.call_by(of, [x.bind(py), y.bind(py)], by, take) {
            Ok(found) => Ok(Some(found)),
            Err(error) if is_final(py, &error) || Stop::ends_work() => Err(error),
            Err(error) => {
                self.failed = Some(error);
                Ok(None)
            }
        }
    }
}

/// The number of samples of an array with one sample per row.
fn n_samples(object: &Bound<'_, PyAny>) -> Option<usize> {
    let Some(array) = Array::of(object) else { return n_sparse(object) };
    let (1.., true) = (array.shape().len(), array.len() > 0) else { return None };
    let is_taken = !matches!(array.kind, Kind::Unsigned(1) | Kind::F16);
    is_taken.then(|| array.shape()[0])
}

/// Whether an array has more axes than those that are read sample by sample.
fn has_many_axes(array: &Bound<'_, PyAny>) -> bool {
    Array::of(array).is_some_and(|array| array.shape().len() > 2)
}

/// An array in a dtype that programs take, if it has another: bools and float16 are numbers.
fn converted<'py>(array: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let dtype = array.getattr("dtype")?;
    let (kind, size): (String, usize) = (dtype.getattr("kind")?.extract()?, dtype.getattr("itemsize")?.extract()?);
    let float64 = || "float64".into_pyobject(array.py()).map(Bound::into_any);
    let to = match (&*kind, size) {
        ("b", _) => float64()?,
        ("f", size) if size != 4 && size != 8 => float64()?,
        ("u", 1) => "uint32".into_pyobject(array.py())?.into_any(),
        _ if dtype.getattr("isnative")?.extract()? => return Ok(None),
        _ => dtype.call_method1("newbyteorder", ("=",))?,
    };
    array.call_method1("astype", (to,)).map(Some)
}

/// A batch without conversion, where programs take its dtype; lists of lists of lists become arrays. Integers with negative ones
/// among them, such as labels -1 and 1, are numbers and not indices, which would count from the end.
pub fn with_signs<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let numpy = || numpy(py);
    let is_list = object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>();
    // Anything but numbers is refused where it is read.
    let listed = || if_any(py, numpy()?.call_method1("asarray", (object,)));
    let listed = if is_list { listed()? } else { None };
    let array = Array::of(listed.as_ref().unwrap_or(object));
    let object = listed.as_ref().filter(|array| has_many_axes(array)).unwrap_or(object);
    let is_rare = array.as_ref().is_none_or(|array| matches!(array.kind, Kind::Unsigned(1) | Kind::F16));
    if is_rare && let Some(other) = if_any(py, converted(object))?.flatten() {
        return with_signs(&other);
    }
    let Some(array) = array else {
        if object.hasattr(pyo3::intern!(py, "tocsr"))? && !is_sparse(object)? {
            let found = type_name(object);
            let message = format!("sparse contexts are read in the CSR format, found {found}; pass x.tocsr()");
            return Err(PyTypeError::new_err(message));
        }
        return Ok(object.clone());
    };
    let is_below = match (array.kind, array.in_place::<i64>(), array.in_place::<i32>()) {
        (Kind::Signed(_), Some(all), _) => all.iter().any(|&k| k < 0),
        (Kind::Signed(_), _, Some(all)) => all.iter().any(|&k| k < 0),
        (Kind::Signed(_), ..) => array.integers()?.iter().any(|&k| k < 0),
        _ => false,
    };
    if is_below { numpy()?.call_method1("asarray", (object, "float64")) } else { Ok(object.clone()) }
}

/// The number of sparse rows of an object, if it has any.
fn n_sparse(object: &Bound<'_, PyAny>) -> Option<usize> {
    let shape = quietly(object.py(), || {
        if is_sparse(object)? { object.getattr("shape")?.extract::<(usize, usize)>().map(Some) } else { Ok(None) }
    });
    shape.flatten().map(|(n, _)| n).filter(|&n| n > 0)
}

impl Side {
    /// The numbers as an array.
    fn array<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if self.is_absent {
            return Ok(py.None().into_bound(py));
        }
        let (bytes, format): (Vec<u8>, _) = match self.whole {
            true => (self.symbols.iter().flat_map(|k| k.to_ne_bytes()).collect(), "I"),
            false => (self.numbers.iter().flat_map(|x| x.to_ne_bytes()).collect(), "d"),
        };
        let memory = PyMemoryView::from(&PyByteArray::new(py, &bytes))?;
        match self.width {
            None => memory.call_method1("cast", (format,)),
            Some(width) => memory.call_method1("cast", (format, (self.n, width))),
        }
    }
}

/// Refuses a program that reads other Parameters.
pub(super) fn need_only(params: &Py<PyParameters>, path: &ArrayPath, py: Python<'_>) -> PyResult<()> {
    match path.sets() {
        [set] if set.is(params) => Ok(()),
        _ => Err(derived(py, "TraceError", "the callable reads other Parameters".into())),
    }
}

impl CallableEngine {
    /// The loss of the batch, and its gradient, if the callable has a program.
    pub(super) fn traced_gradient(
        &mut self,
        py: Python<'_>,
        mut out: Option<&mut CallerMemory>,
    ) -> PyResult<Option<f64>> {
        let params = &self.params;
        self.traced.attempt(py, Of::Gradient, &mut |path| {
            need_only(params, path, py)?;
            in_params(params, py, |params| params.write(path, out.as_deref_mut()))
        })
    }

    /// The loss of the batch, with its gradient passed on while it is computed, and then the ranges that it has; `None` if the
    /// callable has no program that can. Frozen numbers have gradients too.
    pub(super) fn traced_parts(
        &mut self,
        py: Python<'_>,
        take: &mut TakeFloats<'_>,
    ) -> PyResult<Option<(f64, Vec<Range<usize>>)>> {
        let params = &self.params;
        let (mut loss, mut has_begun) = (None, false);
        let ran = self.traced.attempt_by(
            py,
            Of::Gradient,
            &mut |path, given| {
                need_only(params, path, py)?;
                if has_begun {
                    let message =
                        "the callable has changed since it was traced, and parts of the gradient have been passed on";
                    return Err(derived(py, "TraceError", message.into()));
                }
                loss = path.run_in_parts(py, given, &mut |range, part| {
                    has_begun = true;
                    // A short program may not ask by itself.
                    take(range, part) && !Stop::ends_work()
                })?;
                Ok(true)
            },
            &mut |path| Ok(path.ranges().to_vec()),
        )?;
        match (ran, self.traced.failed.take_if(|_| has_begun)) {
            (None, Some(error)) => Err(error),
            (ranges, _) => Ok(loss.zip(ranges)),
        }
    }

    /// The loss of the batch, or that of each sample, if the callable has a program.
    pub(super) fn traced_losses(&mut self, py: Python<'_>, of: Of) -> PyResult<Option<Vec<f64>>> {
        fn found<E: Number>(path: &ArrayPath) -> Option<Vec<f64>> {
            path.floats::<E>(0).map(|all| all.iter().map(|x| x.to_f64()).collect())
        }
        let rank = usize::from(of == Of::Each);
        let params = &self.params;
        self.traced.attempt(py, of, &mut |path| {
            if !path.sets().is_empty() {
                need_only(params, path, py)?;
            }
            let is_number = matches!(&path.program.output_types()[..], [ty] if ty.dims.rank() == rank);
            let losses = found::<f64>(path).or_else(|| found::<f32>(path)).filter(|_| is_number);
            losses.ok_or_else(|| derived(py, "TraceError", "the callable must return a number".into()))
        })
    }
}
