//! `FiniteSum` for Python.

use std::sync::Arc;

use burtorch_core::opt::{FiniteSum, Linear, Loss, Regulariser, Rows, Samples, Softmax, Terms, Workspace};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use super::callable::{Callable, CallableTerms};
use super::read::{indices, not_a_row, numbers, row, rows_of, shape_text};
use crate::convert::arguments::Count;
use crate::convert::arrays::{Array, Kind, filled};
use crate::convert::errors::to_python;
use crate::convert::gc::{HoldsObjects, Visitor, collected};
use crate::convert::numbers::{argument_number, optional_number};
use crate::convert::signals::asked;
use crate::convert::stop::{PyStop, until, watched};

/// f(x) = (1/n) sum f_i(x): values and gradients of chosen samples.
///
/// Args:
///     function: `function(x, indices)` returns the mean value of these samples at the array x, and its gradient.
///     n: samples.
///     d: numbers of a point.
///     l2: adds l2/2 |x|^2 to each term.
///     nonconvex: adds nonconvex * sum x_j^2/(1 + x_j^2) to each term, and 2 * nonconvex to its smoothness constant.
///
/// `logistic_regression`, `least_squares`, `robust_regression` and `softmax_regression` create sums whose terms are computed in
/// Rust. A Python function is called once per batch, or once per sample if samples have their own weights, and holds the
/// GIL.
///
/// Raises:
///     ValueError: no samples, no variables, or a factor that is negative or not finite.
///
/// Example:
///     >>> import burtorch as bt
///     >>> import numpy as np
///     >>> points = np.array([1.0, 2.0, 6.0])
///     >>> f = bt.opt.FiniteSum(lambda x, S: (((x - points[S]) ** 2).mean() / 2, [(x - points[S]).mean()]), n=3, d=1)
///     >>> f.loss([3.0]), f.grad([0.0]), f.grad([0.0], [2])
///     (2.3333333333333335, array([-3.]), array([-6.]))
#[pyclass(frozen, name = "FiniteSum", module = "burtorch.opt")]
pub struct PyFiniteSum {
    sum: Arc<FiniteSum>,
    callable: Option<Arc<Callable>>,
    /// The joined sums.
    children: Vec<Py<PyFiniteSum>>,
    kind: String,
    classes: Option<usize>,
}
collected!(PyFiniteSum: callable, children);

impl HoldsObjects for Arc<Callable> {
    fn visit(&self, visit: &mut Visitor<'_>) {
        (**self).visit(visit);
    }
}

impl PyFiniteSum {
    fn of_terms(
        py: Python<'_>,
        terms: burtorch_core::Result<Box<dyn Terms>>,
        regulariser: Regulariser,
        callable: Option<Arc<Callable>>,
        kind: &str,
    ) -> PyResult<Self> {
        let sum = terms.and_then(|terms| FiniteSum::new(terms, regulariser)).map_err(|error| to_python(py, error))?;
        Ok(PyFiniteSum { sum: Arc::new(sum), callable, children: Vec::new(), kind: kind.into(), classes: None })
    }

    /// The sum.
    pub fn sum(&self) -> &Arc<FiniteSum> {
        &self.sum
    }

    /// The joined sums.
    pub fn children(&self) -> &[Py<PyFiniteSum>] {
        &self.children
    }

    /// The Python function that computes it.
    pub fn function(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.callable.as_ref().map(|callable| callable.function(py))
    }

    /// Whether a Python function computes it.
    pub fn is_callable(&self) -> bool {
        self.callable.is_some() || self.children.iter().any(|child| child.get().callable.is_some())
    }

    /// The features of samples, if all terms have them; one entry per joined sum.
    fn rows(&self) -> Option<Vec<&Rows>> {
        if self.children.is_empty() {
            return self.sum.rows().map(|rows| vec![rows]);
        }
        self.children.iter().map(|child| child.get().sum.rows()).collect()
    }

    /// Runs work on it without the GIL.
    pub fn detached<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce() -> burtorch_core::Result<T> + Send,
    ) -> PyResult<T> {
        let done = crate::convert::threads::detached(py, || asked(work));
        done.map_err(|error| self.raised().unwrap_or_else(|| to_python(py, error)))
    }

    fn raised(&self) -> Option<PyErr> {
        let own = self.callable.iter();
        own.chain(self.children.iter().filter_map(|child| child.get().callable.as_ref())).find_map(|one| one.raised())
    }

    /// A point of the right length.
    pub fn point(&self, x: &Bound<'_, PyAny>, what: &str) -> PyResult<Vec<f64>> {
        row(x, what, Some(self.sum.d()))
    }

    /// The selected samples, or all.
    fn chosen(&self, of: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<u32>> {
        let Some(of) = of else { return Ok(self.sum.all().to_vec()) };
        let chosen = indices(of, "samples")?;
        self.sum.check(&chosen).map_err(|error| to_python(of.py(), error))?;
        Ok(chosen)
    }
}

/// Weights, one per sample.
fn weights_of(weights: Option<&Bound<'_, PyAny>>, n: usize) -> PyResult<Option<Vec<f64>>> {
    weights.map(|weights| row(weights, "weights", Some(n))).transpose()
}

#[pymethods]
impl PyFiniteSum {
    #[new]
    #[pyo3(signature = (function, n, d, *, l2=0.0, nonconvex=0.0))]
    fn new(
        function: &Bound<'_, PyAny>,
        n: Count,
        d: Count,
        #[pyo3(from_py_with = argument_number)] l2: f64,
        #[pyo3(from_py_with = argument_number)] nonconvex: f64,
    ) -> PyResult<Self> {
        let py = function.py();
        let (n, d) = (n.positive("n")?, d.positive("d")?);
        if !function.is_callable() {
            return Err(PyTypeError::new_err("function must be callable: function(x, indices)"));
        }
        let callable = Callable::new(function.clone().unbind(), n, d);
        let terms = Box::new(CallableTerms(callable.clone()));
        Self::of_terms(py, Ok(terms), Regulariser { l2, nonconvex }, Some(callable), "function")
    }

    /// A linear model: features, labels, and "logistic", "squares" or "robust".
    #[staticmethod]
    fn _linear(
        features: &Bound<'_, PyAny>,
        labels: &Bound<'_, PyAny>,
        loss: &str,
        l2: f64,
        #[pyo3(from_py_with = argument_number)] nonconvex: f64,
    ) -> PyResult<Self> {
        let kind = match loss {
            "logistic" => Loss::Logistic,
            "squares" => Loss::Squares,
            _ => Loss::Robust,
        };
        let (rows, labels) = (rows_of(features)?, numbers(labels, "labels")?);
        let terms = rows.and_then(|rows| Ok(Box::new(Linear::new(rows, labels, kind)?) as Box<dyn Terms>));
        Self::of_terms(features.py(), terms, Regulariser { l2, nonconvex }, None, loss)
    }

    /// Softmax regression: features, a class for each sample, and how many classes.
    #[staticmethod]
    fn _softmax(
        features: &Bound<'_, PyAny>,
        labels: &Bound<'_, PyAny>,
        classes: usize,
        l2: f64,
        #[pyo3(from_py_with = argument_number)] nonconvex: f64,
    ) -> PyResult<Self> {
        let (rows, labels) = (rows_of(features)?, indices(labels, "labels")?);
        let terms = rows.and_then(|rows| Ok(Box::new(Softmax::new(rows, labels, classes)?) as Box<dyn Terms>));
        let made = Self::of_terms(features.py(), terms, Regulariser { l2, nonconvex }, None, "softmax")?;
        Ok(PyFiniteSum { classes: Some(classes), ..made })
    }

    /// The number of samples.
    #[getter]
    fn n(&self) -> usize {
        self.sum.n()
    }

    /// Numbers of a point.
    #[getter]
    fn d(&self) -> usize {
        self.sum.d()
    }

    /// One sum from several, in order.
    #[staticmethod]
    fn _joined(py: Python<'_>, children: Vec<Py<PyFiniteSum>>) -> PyResult<Self> {
        let sums = children.iter().map(|child| child.get().sum.clone()).collect();
        let sum = FiniteSum::joined(sums).map_err(|error| to_python(py, error))?;
        let first = children[0].get();
        let is_same = |child: &Py<PyFiniteSum>| {
            let child = child.get();
            child.kind == first.kind
                && child.classes == first.classes
                && child.sum.regulariser() == first.sum.regulariser()
        };
        let is_one = children.iter().all(is_same);
        let kind = if is_one { first.kind.clone() } else { "clients".into() };
        let classes = first.classes.filter(|_| is_one);
        Ok(PyFiniteSum { sum: Arc::new(sum), callable: None, children, kind, classes })
    }

    /// The joined sums.
    #[getter]
    fn _children(&self, py: Python<'_>) -> Vec<Py<PyFiniteSum>> {
        self.children.iter().map(|child| child.clone_ref(py)).collect()
    }

    /// "logistic", "squares", "robust", "softmax", "function", or "clients" for different kinds of clients.
    #[getter]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The number of classes of softmax regression; None for others.
    #[getter]
    pub fn classes(&self) -> Option<usize> {
        self.classes
    }

    /// The factor of half the squared norm in each term.
    #[getter]
    fn l2(&self) -> f64 {
        self.sum.regulariser().l2
    }

    /// The factor of the non-convex sum in each term.
    #[getter]
    fn nonconvex(&self) -> f64 {
        self.sum.regulariser().nonconvex
    }

    /// The features of samples as a new dense matrix, one row each; None if a Python function computes the terms.
    fn features<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(parts) = self.rows() else { return Ok(None) };
        let (n, d) = (self.sum.n(), parts.first().map_or(0, |rows| rows.d()));
        let mut all = vec![0.0; n * d];
        let places = parts.iter().flat_map(|rows| (0..rows.n()).map(move |i| (rows, i)));
        all.chunks_exact_mut(d).zip(places).for_each(|(row, (rows, i))| rows.add(i, 1.0, row));
        filled(py, &[n, d], Kind::F64, &all).map(Some)
    }

    /// The sum of squares of each row of the features.
    fn _row_squares<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(parts) = self.rows() else { return Ok(None) };
        let squares: Vec<f64> = parts.iter().flat_map(|rows| (0..rows.n()).map(|i| rows.square(i))).collect();
        filled(py, &[squares.len()], Kind::F64, &squares).map(Some)
    }

    /// The gradient of each of the samples (default: all) at x, one row of a new array each. `stop=` and `deadline=` as in `grad`.
    #[pyo3(signature = (x, samples=None, *, stop=None, deadline=None))]
    fn gradients<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        samples: Option<&Bound<'py, PyAny>>,
        stop: Option<&Bound<'_, PyStop>>,
        #[pyo3(from_py_with = optional_number)] deadline: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, chosen, d) = (x.py(), self.chosen(samples)?, self.sum.d());
        let x = self.point(x, "x")?;
        let mut all = vec![0.0; chosen.len() * d];
        let work = || {
            let mut workspace = Workspace::default();
            chosen.iter().zip(all.chunks_exact_mut(d)).try_for_each(|(i, row)| {
                self.sum.grad(&x, None, Samples::mean(std::slice::from_ref(i)), 1, &mut workspace, row)
            })
        };
        until(py, watched(stop, deadline)?, || self.detached(py, work))?;
        filled(py, &[chosen.len(), d], Kind::F64, &all)
    }

    /// The mean value of samples (default: all) at x; with weights, the weighted sum. `stop=` and `deadline=` as in `grad`.
    #[pyo3(signature = (x, samples=None, *, weights=None, threads=None, stop=None, deadline=None))]
    #[allow(clippy::too_many_arguments, reason = "one for each keyword of Python")]
    fn loss(
        &self,
        x: &Bound<'_, PyAny>,
        samples: Option<&Bound<'_, PyAny>>,
        weights: Option<&Bound<'_, PyAny>>,
        threads: Option<Count>,
        stop: Option<&Bound<'_, PyStop>>,
        #[pyo3(from_py_with = optional_number)] deadline: Option<f64>,
    ) -> PyResult<f64> {
        let threads = self.threads(threads)?;
        let (x_numbers, chosen) = (self.point(x, "x")?, self.chosen(samples)?);
        if chosen.is_empty() {
            return Err(to_python(x.py(), burtorch_core::Error::EmptyReduction { op: "the loss" }));
        }
        let weights = weights_of(weights, chosen.len())?;
        let work = || {
            let samples = samples_of(&chosen, weights.as_deref(), 1.0);
            self.sum.loss(&x_numbers, samples, threads, &mut Workspace::default())
        };
        until(x.py(), watched(stop, deadline)?, || self.detached(x.py(), work))
    }

    /// The gradient of `loss`, as a new array or in `out`.
    ///
    /// Args:
    ///     x: the point.
    ///     samples: indices, possibly repeated; default: all.
    ///     minus: a second point, whose gradient is subtracted in the same pass over the data.
    ///     weights: a factor for each sample, in place of the mean.
    ///     scale: a factor of the result.
    ///     out: an array of d floats to write to.
    ///     accumulate: whether to add to `out` instead.
    ///     threads: the result is the same for any number.
    ///     stop, deadline: a token and seconds from now that end the call with a StoppedError; `out` is unchanged then.
    ///
    /// Raises:
    ///     ValueError: shapes other than (d,) of points, (n,) of samples and that of their weights; IndexError: a sample that
    ///         does not exist.
    ///
    /// Example:
    ///     >>> import burtorch as bt
    ///     >>> f = bt.opt.least_squares([[1.0, 0.0], [0.0, 2.0]], [1.0, 4.0])
    ///     >>> f.grad([0.0, 0.0]), f.grad([1.0, 1.0], [1], minus=[0.0, 0.0])
    ///     (array([-0.5, -4. ]), array([0., 4.]))
    #[pyo3(signature = (x, samples=None, *, minus=None, weights=None, scale=1.0, out=None, accumulate=false, threads=None,
                        stop=None, deadline=None))]
    #[allow(clippy::too_many_arguments, reason = "one for each keyword of Python")]
    fn grad<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        samples: Option<&Bound<'py, PyAny>>,
        minus: Option<&Bound<'py, PyAny>>,
        weights: Option<&Bound<'py, PyAny>>,
        #[pyo3(from_py_with = argument_number)] scale: f64,
        out: Option<&Bound<'py, PyAny>>,
        accumulate: bool,
        threads: Option<Count>,
        stop: Option<&Bound<'_, PyStop>>,
        #[pyo3(from_py_with = optional_number)] deadline: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, threads) = (x.py(), self.threads(threads)?);
        let (x, chosen) = (self.point(x, "x")?, self.chosen(samples)?);
        let minus = minus.map(|minus| self.point(minus, "minus")).transpose()?;
        let weights = weights_of(weights, chosen.len())?;
        let to = out.map(|out| Array::writable(out, "out")).transpose()?;
        if let Some(wrong) = to.as_ref().filter(|to| *to.shape() != [x.len()]) {
            return Err(not_a_row("out", Some(x.len()), &shape_text(wrong.shape())));
        }
        let mut g = match &to {
            Some(to) if accumulate => to.floats(),
            _ => vec![0.0; x.len()],
        };
        let work = || {
            let samples = samples_of(&chosen, weights.as_deref(), scale);
            self.sum.grad(&x, minus.as_deref(), samples, threads, &mut Workspace::default(), &mut g)
        };
        until(py, watched(stop, deadline)?, || self.detached(py, work))?;
        match (out, to) {
            (Some(out), Some(to)) => {
                to.write(&g);
                Ok(out.clone())
            }
            _ => filled(py, &[g.len()], Kind::F64, &g),
        }
    }

    fn __repr__(&self) -> String {
        format!("<FiniteSum of n={} terms, d={}, {}>", self.sum.n(), self.sum.d(), self.kind)
    }
}

impl PyFiniteSum {
    /// How many threads; one for a function of Python.
    pub fn threads(&self, threads: Option<Count>) -> PyResult<usize> {
        let threads = threads.map_or(Ok(1), |n| n.positive("threads"))?;
        if threads > 1 && self.is_callable() {
            return Err(PyValueError::new_err("threads must be 1 for a Python function, which holds the GIL"));
        }
        Ok(threads)
    }
}

fn samples_of<'a>(indices: &'a [u32], weights: Option<&'a [f64]>, scale: f64) -> Samples<'a> {
    match weights {
        Some(_) => Samples { indices, weights, scale },
        None => Samples { scale: scale / indices.len().max(1) as f64, ..Samples::mean(indices) },
    }
}
