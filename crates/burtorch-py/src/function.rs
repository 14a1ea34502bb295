//! Models written in Python: any callable that maps one sample to a loss.
//!
//! The callable is called once for each group of samples, on a graph whose nodes carry one sample in each lane: what it
//! computes with are lane Values and Vectors, so the same code serves one sample and sixteen. Promises the memory of one
//! group, whatever the batch; when the callable fails the gradient is 0 and its exception is raised.

use burtorch_core::simd::{F32x4, F32x8, F32x16, F64x2, F64x4, F64x8};
use burtorch_core::{DType, Error, Float, Graph, Lanes, Range, Scalar};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::blocks::PySymbols;
use crate::buffer::{Dims, holds_integers, read_numbers, read_symbols};
use crate::cell::{AnyGraph, with_graph};
use crate::errors::IntoPython;
use crate::graph::{PyGraph, enter, leave, node_of};
use crate::parameters::with_gradients;
use crate::params::{PyParameters, with_params};
use crate::vector::{PyVector, wrap};

/// A callable and the graphs it builds on, one for each number of lanes that was needed.
pub struct Function {
    call: Py<PyAny>,
    params: Py<PyParameters>,
    lanes: Lanes,
    graphs: [Option<Py<PyGraph>>; 4],
}

/// What a batch holds for the model: whole numbers or real ones, so many for each sample.
struct Side {
    symbols: Vec<u32>,
    numbers: Vec<f64>,
    whole: bool,
    n: usize,
    /// Numbers of a sample; `None` where samples are single numbers.
    width: Option<usize>,
}

impl Side {
    fn read(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Self> {
        let (mut symbols, mut numbers) = (Vec::new(), Vec::new());
        let whole = holds_integers(object)?;
        let dims: Dims =
            if whole { read_symbols(object, &mut symbols, what)? } else { read_numbers(object, &mut numbers, what)? };
        let (n, width) = match (dims.row(), dims.matrix()) {
            (Some(n), _) => (n, None),
            (_, Some((n, width))) => (n, Some(width)),
            _ => (0, None),
        };
        if n == 0 || width == Some(0) {
            return Err(PyValueError::new_err(format!("{what} are empty; give at least one sample")));
        }
        Ok(Side { symbols, numbers, whole, n, width })
    }

    /// Samples `first..first + n` in `lanes` lanes, the last one again where there are fewer, as the model takes them.
    fn group<'py>(
        &self,
        graph: &Bound<'py, PyGraph>,
        first: usize,
        n: usize,
        lanes: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = graph.py();
        let width = self.width.unwrap_or(1);
        let at = |lane: usize| (first + lane.min(n - 1)) * width..(first + lane.min(n - 1) + 1) * width;
        if self.whole {
            let numbers = (0..lanes).flat_map(|lane| &self.symbols[at(lane)]).copied().collect();
            return Ok(Bound::new(py, PySymbols::new(numbers, lanes))?.into_any());
        }
        let range = graph.get().with(py, |cell| {
            with_graph!(&mut cell.graph, g => constants(g, (0..lanes).flat_map(|lane| &self.numbers[at(lane)])))
                .or_raise(py)
        })?;
        match self.width {
            None => wrap(graph, range.first()),
            Some(_) => Ok(PyVector::of_runs(graph, &[range])?.into_bound(py).into_any()),
        }
    }
}

fn constants<'a, S: Scalar>(
    graph: &mut Graph<'static, S>,
    numbers: impl Iterator<Item = &'a f64>,
) -> burtorch_core::Result<Range> {
    let numbers: Vec<S::Elem> = numbers.map(|&x| S::Elem::from_f64(x)).collect();
    graph.constants_of_lanes(&numbers)
}

/// What a pass over a batch is to do besides computing the losses.
pub enum Pass {
    /// Nothing.
    Losses,
    /// Overwrite the gradients with those of this much times the sum of the losses.
    Gradient(f64),
}

impl Function {
    /// A callable over these parameters; refuses lanes that their dtype has not.
    pub fn new(call: &Bound<'_, PyAny>, params: Py<PyParameters>, lanes: Lanes) -> PyResult<Self> {
        let py = call.py();
        match params.get().dtype_of() {
            DType::Float32 => lanes.check::<f32>().or_raise(py)?,
            DType::Float64 => lanes.check::<f64>().or_raise(py)?,
            _ => return Err(PyTypeError::new_err("oracles compute in float32 and float64")),
        }
        Ok(Function { call: call.clone().unbind(), params, lanes, graphs: [None, None, None, None] })
    }

    /// The loss of each sample, and their gradient if asked for.
    pub fn run(
        &mut self,
        contexts: &Bound<'_, PyAny>,
        targets: &Bound<'_, PyAny>,
        pass: impl FnOnce(usize) -> Pass,
    ) -> PyResult<Vec<f64>> {
        let py = contexts.py();
        let (x, y) = (Side::read(contexts, "contexts")?, Side::read(targets, "targets")?);
        if x.n != y.n {
            return Err(PyValueError::new_err(format!("{} contexts but {} targets", x.n, y.n)));
        }
        let pass = pass(x.n);
        let zero = |params: &PyParameters| params.with(py, |p| with_params!(p, p => p.zero_grad()));
        if matches!(pass, Pass::Gradient(_)) {
            zero(self.params.get())?;
        }
        let done = self.groups(py, &x, &y, &pass);
        if done.is_err() && matches!(pass, Pass::Gradient(_)) {
            zero(self.params.get())?;
        }
        done
    }

    fn groups(&mut self, py: Python<'_>, x: &Side, y: &Side, pass: &Pass) -> PyResult<Vec<f64>> {
        let mut losses = Vec::with_capacity(x.n);
        while losses.len() < x.n {
            py.check_signals()?;
            let left = x.n - losses.len();
            let (lanes, _) = match self.params.get().dtype_of() {
                DType::Float32 => self.lanes.next::<f32>(left, false),
                _ => self.lanes.next::<f64>(left, false),
            };
            self.group(py, x, y, pass, lanes, left.min(lanes), &mut losses)?;
        }
        Ok(losses)
    }

    #[allow(clippy::too_many_arguments, reason = "a group of a pass over two sides of a batch")]
    fn group(
        &mut self,
        py: Python<'_>,
        x: &Side,
        y: &Side,
        pass: &Pass,
        lanes: usize,
        n: usize,
        losses: &mut Vec<f64>,
    ) -> PyResult<()> {
        let graph = self.graph(py, lanes)?;
        let first = losses.len();
        graph.get().with(py, |cell| {
            with_graph!(&mut cell.graph, g => g.clear()).or_raise(py)?;
            cell.after_rewind();
            Ok(())
        })?;
        enter(&graph)?;
        let called = x
            .group(&graph, first, n, lanes)
            .and_then(|x| Ok((x, y.group(&graph, first, n, lanes)?)))
            .and_then(|(x, y)| self.call.bind(py).call1((x, y)));
        leave(&graph)?;
        let loss = node_of(py, &graph, &called?)?;
        graph.get().with(py, |cell| {
            let parameters = &cell.parameters;
            with_graph!(&mut cell.graph, g => {
                let found = g.value(loss).or_raise(py)?;
                losses.extend((0..n).map(|lane| found.lane(lane).to_f64()));
                let Pass::Gradient(seed) = pass else {
                    return Ok(());
                };
                with_gradients(py, parameters, |gradients| g.backward_with(loss, seeds(found, *seed, n), gradients))?
                    .or_raise(py)
            })
        })
    }

    /// The graph for so many lanes.
    fn graph<'py>(&mut self, py: Python<'py>, lanes: usize) -> PyResult<Bound<'py, PyGraph>> {
        let single = self.params.get().dtype_of() == DType::Float32;
        let place = if lanes == 1 {
            0
        } else if single {
            lanes.ilog2() as usize - 1
        } else {
            lanes.ilog2() as usize
        };
        let slot = self.graphs.get_mut(place).ok_or(Error::MissingParameters).or_raise(py)?;
        if let Some(graph) = slot {
            return Ok(graph.bind(py).clone());
        }
        let new = match (single, lanes) {
            (true, 1) => AnyGraph::F32(Graph::new()),
            (true, 4) => AnyGraph::F32x4(Graph::<F32x4>::new()),
            (true, 8) => AnyGraph::F32x8(Graph::<F32x8>::new()),
            (true, _) => AnyGraph::F32x16(Graph::<F32x16>::new()),
            (false, 1) => AnyGraph::F64(Graph::new()),
            (false, 2) => AnyGraph::F64x2(Graph::<F64x2>::new()),
            (false, 4) => AnyGraph::F64x4(Graph::<F64x4>::new()),
            (false, _) => AnyGraph::F64x8(Graph::<F64x8>::new()),
        };
        let graph = Bound::new(py, PyGraph::around(new, false))?;
        *slot = Some(graph.clone().unbind());
        Ok(graph)
    }
}

/// `seed` in the lanes that are in use, 0 in those that repeat a sample.
fn seeds<S: Scalar>(_like: S, seed: f64, n: usize) -> S {
    let seed = S::Elem::from_f64(seed);
    (0..n).fold(S::lit(0.0), |seeds, lane| seeds.with_lane(lane, seed))
}
