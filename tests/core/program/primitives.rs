//! An op that this crate defines and the core has never heard of: eager, replayed, over rows, along directions, in files.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use burtorch_core::program::batch::{Batch, Rows, Sink, Source};
use burtorch_core::program::derive::{Along, HessianAlong, Jacobian};
use burtorch_core::program::primitive::{self, Called, Failed, Primitive};
use burtorch_core::program::{Build, Recording, Replay, Seeds};
use burtorch_core::simd::F64x8;
use burtorch_core::{Error, Graph, NodeId, Op, Program};

/// x^2 y + sin(x), which fails for negative y and counts its calls.
struct Wave {
    calls: AtomicUsize,
    own_tangent: bool,
}

impl Wave {
    fn new(own_tangent: bool) -> Arc<Self> {
        Arc::new(Wave { calls: AtomicUsize::new(0), own_tangent })
    }
}

impl Primitive for Wave {
    fn name(&self) -> &str {
        "wave"
    }

    fn value(&self, x: &[f64]) -> Result<f64, Failed> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if x[1] < 0.0 { Err(Failed) } else { Ok(x[0] * x[0] * x[1] + x[0].sin()) }
    }

    fn partials(&self, x: &[f64], _y: f64, partials: &mut [f64]) -> Result<(), Failed> {
        (partials[0], partials[1]) = (2.0 * x[0] * x[1] + x[0].cos(), x[0] * x[0]);
        Ok(())
    }

    fn tangent(&self, x: &[f64], _y: f64, d: &[f64]) -> Option<Result<f64, Failed>> {
        self.own_tangent.then(|| Ok((2.0 * x[0] * x[1] + x[0].cos()) * d[0] + x[0] * x[0] * d[1]))
    }
}

/// tanh(wave(x, y)) * x, at a point; the program, and the eager value and gradient.
fn recorded(wave: Arc<Wave>, at: [f64; 2]) -> (Program, f64, [f64; 2]) {
    let mut graph = Graph::<f64>::new();
    let inputs: Vec<NodeId> = at.iter().map(|&x| graph.leaf(x).unwrap()).collect();
    let mut calls = Vec::new();
    let wave: Arc<dyn Primitive> = wave;
    let z = primitive::append(&wave, &mut graph, &inputs, Some(&mut calls)).unwrap();
    let t = graph.unary_op(Op::Tanh, z).unwrap();
    let root = graph.binary_op(Op::Mul, t, inputs[0]).unwrap();
    graph.backward(root).unwrap();
    let eager = (graph.value(root).unwrap(), [graph.grad(inputs[0]).unwrap(), graph.grad(inputs[1]).unwrap()]);
    let recording = Recording { n_differentiated: 2, inputs, outputs: vec![root], calls, ..Recording::default() };
    (recording.program(&graph).unwrap(), eager.0, eager.1)
}

fn by_hand([x, y]: [f64; 2]) -> (f64, [f64; 2]) {
    let z = x * x * y + x.sin();
    let (t, s) = (z.tanh(), 1.0 - z.tanh().powi(2));
    (t * x, [t + x * s * (2.0 * x * y + x.cos()), x * s * x * x])
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-13 * a.abs().max(b.abs()).max(1.0)
}

const POINTS: [[f64; 2]; 4] = [[0.3, 0.7], [-1.1, 0.2], [0.9, 1.4], [0.0, 0.0]];

#[test]
fn eager_and_replayed_values_and_gradients_are_equal_and_right() {
    let (program, _, _) = recorded(Wave::new(false), POINTS[0]);
    let mut replay = Replay::<f64, 1>::new(&program, Build::Reverse(Seeds::One(0))).unwrap();
    assert!(program.to_string().contains("%0 = wave x0 x1"), "{program}");
    for point in POINTS {
        let (_, value, gradient) = recorded(Wave::new(false), point);
        replay.inputs_mut().copy_from_slice(&point);
        replay.checked_values().unwrap();
        replay.reverse_one();
        assert_eq!((replay.output(0, 0), [replay.gradient(0, 0), replay.gradient(1, 0)]), (value, gradient));
        let (expected, partials) = by_hand(point);
        assert!(close(value, expected) && (0..2).all(|k| close(gradient[k], partials[k])), "{point:?}");
    }
}

#[test]
fn directions_and_jacobians_agree_with_gradients() {
    for own_tangent in [false, true] {
        let (program, _, _) = recorded(Wave::new(own_tangent), POINTS[0]);
        let (mut along, mut jacobian) = (Along::new(&program).unwrap(), Jacobian::new(&program).unwrap());
        for point in POINTS {
            let (_, partials) = by_hand(point);
            let (mut value, mut tangent, mut row) = ([0.0], [0.0], [0.0; 2]);
            along.run(&point, &[0.5, -2.0], &mut value, &mut tangent);
            assert!(close(tangent[0], 0.5 * partials[0] - 2.0 * partials[1]), "{point:?}: {tangent:?}");
            assert!(jacobian.run(&point, &mut row).unwrap());
            assert!((0..2).all(|k| close(row[k], partials[k])), "{point:?}: {row:?}");
        }
    }
}

#[test]
fn a_failure_is_reported_and_leaves_the_graph_unchanged() {
    let mut graph = Graph::<f64>::new();
    let inputs = [graph.leaf(1.0).unwrap(), graph.leaf(-1.0).unwrap()];
    let wave: Arc<dyn Primitive> = Wave::new(false);
    assert!(matches!(primitive::append(&wave, &mut graph, &inputs, None), Err(Error::BadArgument { .. })));
    assert_eq!(graph.len(), 2);
    let (program, _, _) = recorded(Wave::new(false), POINTS[0]);
    let mut replay = Replay::<f64, 1>::new(&program, Build::Values).unwrap();
    replay.inputs_mut().copy_from_slice(&[1.0, -1.0]);
    assert_eq!(replay.checked_values(), Err(0));
    replay.inputs_mut().copy_from_slice(&[1.0, 1.0]);
    assert_eq!(replay.checked_values(), Ok(()));
}

#[test]
fn second_derivatives_are_refused() {
    let (program, _, _) = recorded(Wave::new(false), POINTS[0]);
    let error = HessianAlong::new(&program).unwrap_err().to_string();
    assert!(error.contains("a primitive has only first derivatives"), "{error}");
}

/// Points, and the destination of their results.
struct Table {
    points: Vec<[f64; 2]>,
    results: std::sync::Mutex<Vec<(f64, [f64; 2])>>,
}

impl Source<f64> for Table {
    fn read(&self, input: usize, rows: Rows<'_>, to: &mut [f64]) {
        (0..rows.len()).for_each(|k| to[k] = self.points[rows.get(k)][input]);
    }
}

impl Sink<f64> for Table {
    fn value(&self, _output: usize, rows: Rows<'_>, from: &[f64]) {
        let mut results = self.results.lock().unwrap();
        (0..rows.len()).for_each(|k| results[rows.get(k)].0 = from[k]);
    }

    fn gradient(&self, input: usize, rows: Rows<'_>, from: &[f64]) {
        let mut results = self.results.lock().unwrap();
        (0..rows.len()).for_each(|k| results[rows.get(k)].1[input] = from[k]);
    }
}

#[test]
fn rows_call_once_each_and_tell_failures() {
    let wave = Wave::new(false);
    let (program, _, _) = recorded(wave.clone(), POINTS[0]);
    let n = 5000;
    let mut points: Vec<[f64; 2]> = (0..n).map(|k| [0.001 * k as f64 - 2.0, 0.0003 * k as f64]).collect();
    for bad in [7, 4999] {
        points[bad][1] = -1.0;
    }
    for threads in [1, 3] {
        let table = Table { points: points.clone(), results: vec![(0.0, [0.0; 2]); n].into() };
        let mut batch = Batch::<F64x8, 4>::new(&program, true).unwrap();
        wave.calls.store(0, Ordering::Relaxed);
        let mut left = Vec::new();
        assert!(batch.run_on(threads, Rows::Run { first: 0, len: n }, &table, &table, &mut left, &|| false));
        assert_eq!((wave.calls.load(Ordering::Relaxed), left), (n, vec![7, 4999]));
        for (k, &(value, gradient)) in table.results.lock().unwrap().iter().enumerate() {
            let (expected, partials) = by_hand(points[k]);
            if points[k][1] >= 0.0 {
                assert!(close(value, expected) && (0..2).all(|j| close(gradient[j], partials[j])), "row {k}");
            }
        }
    }
}

#[test]
fn rows_stop_on_request() {
    let (program, _, _) = recorded(Wave::new(false), POINTS[0]);
    let n = 100_000;
    let table = Table { points: vec![[0.5, 0.5]; n], results: vec![(0.0, [0.0; 2]); n].into() };
    let asked = AtomicUsize::new(0);
    let stop = || asked.fetch_add(1, Ordering::Relaxed) == 3;
    for threads in [1, 2] {
        asked.store(0, Ordering::Relaxed);
        let mut batch = Batch::<F64x8, 4>::new(&program, false).unwrap();
        let mut left = Vec::new();
        assert!(!batch.run_on(threads, Rows::Run { first: 0, len: n }, &table, &table, &mut left, &stop));
        assert!(asked.load(Ordering::Relaxed) < 10);
    }
}

#[test]
fn passes_keep_primitives_and_files_find_them_by_name() {
    let wave = Wave::new(false);
    let (program, value, _) = recorded(wave.clone(), POINTS[0]);
    let fast = burtorch_core::program::passes::chained(&burtorch_core::program::passes::shared(&program).unwrap());
    assert_eq!(fast.unwrap().called(0), Some(&Called(wave.clone())));
    // All operands are covered by these checks.
    let (dtype, mut parts) = program.clone().into_parts();
    parts.calls.clear();
    assert!(Program::new(dtype, parts).is_err());
    let replayed = |program: &Program| {
        let mut replay = Replay::<f64, 1>::new(program, Build::Values).unwrap();
        replay.inputs_mut().copy_from_slice(&POINTS[0]);
        replay.checked_values().map(|()| replay.output(0, 0))
    };
    assert_eq!(replayed(&program), Ok(value));
    let kind = burtorch_core::io::Kind::PROGRAM;
    let header =
        burtorch_core::io::Header { dtype: Some(dtype), lanes: 1, count: 1, ..burtorch_core::io::Header::new(kind) };
    let mut writer = burtorch_core::io::Writer::new(header).unwrap();
    assert!(program.write(&mut writer).is_err(), "it is not registered");
    primitive::register(wave);
    let mut writer = burtorch_core::io::Writer::new(header).unwrap();
    program.write(&mut writer).unwrap();
    let bytes = writer.finish().unwrap();
    let mut reader = burtorch_core::io::Reader::open(&bytes, kind).unwrap();
    let again = Program::read(&mut reader).unwrap();
    assert_eq!((&again, replayed(&again)), (&program, Ok(value)));
}
