//! Traced functions in the core: a large random graph at a point, and the paper's two small graphs over rows.
//!
//! Answers are checked against the eager graph, bit for bit, before anything is timed. The random graph has 10,000
//! operations as that of `burtorch bench function`: softplus, sums and products of four (each times a constant) and
//! softmaxes of four, with equal odds, on results drawn evenly from the 60 before.

use burtorch_core::ops::MulByConstant;
use burtorch_core::program::batch::{Batch, Rows, Sink, Source};
use burtorch_core::program::{Build, Recording, Replay, Seeds};
use burtorch_core::simd::F64x8;
use burtorch_core::{Graph, NodeId, Op, Operands, Program};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};

const N_INPUTS: usize = 20;
const N_OPS: usize = 10_000;

/// A random generator with the same results in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % n
    }
}

/// The kinds of ops in the random graph; a single kind shows its cost.
#[derive(Clone, Copy)]
enum Kinds {
    All,
    One(usize),
}

fn random_graph(graph: &mut Graph<'static, f64>, kinds: Kinds) -> (Vec<NodeId>, NodeId) {
    let mut dice = Dice(1);
    let x: Vec<NodeId> = (0..N_INPUTS).map(|k| graph.leaf(0.01 * k as f64).expect("room")).collect();
    let mut nodes = x.clone();
    let mut n = 0;
    while n < N_OPS {
        let kind = dice.below(4);
        let kind = if let Kinds::One(only) = kinds { only } else { kind };
        let low = nodes.len().saturating_sub(60);
        let found: Vec<NodeId> = (0..4).map(|_| nodes[low + dice.below(nodes.len() - low)]).collect();
        let (result, scale) = match kind {
            0 => (graph.unary_op(Op::Softplus, found[0]), 0.5),
            1 => (graph.reduce(Op::ReduceSum, Operands::List(&found), &[]), 0.25),
            2 => (graph.reduce(Op::ReduceMul, Operands::List(&found), &[]), 0.5),
            _ => {
                let es: Vec<NodeId> = found.iter().map(|&x| graph.unary_op(Op::Exp, x).expect("room")).collect();
                let sum = graph.reduce(Op::ReduceSum, Operands::List(&es), &[]).expect("room");
                nodes.extend(es.iter().map(|&e| graph.binary_op(Op::Div, e, sum).expect("room")));
                n += 9;
                continue;
            }
        };
        nodes.push(graph.with_constant::<MulByConstant>(result.expect("room"), scale).expect("room"));
        n += 2;
    }
    let root = graph.reduce(Op::ReduceSum, Operands::List(&nodes[N_INPUTS..]), &[]).expect("room");
    (x, root)
}

fn large(c: &mut Criterion) {
    let mut group = c.benchmark_group("random graph");
    let cases = [
        ("all", Kinds::All),
        ("softplus", Kinds::One(0)),
        ("sums", Kinds::One(1)),
        ("products", Kinds::One(2)),
        ("softmaxes", Kinds::One(3)),
    ];
    for (name, kinds) in cases {
        let mut graph = Graph::<f64>::new();
        let (x, root) = random_graph(&mut graph, kinds);
        let recording =
            Recording { n_differentiated: N_INPUTS, inputs: x.clone(), outputs: vec![root], ..Recording::default() };
        let program = recording.program(&graph).expect("a program");
        group.throughput(Throughput::Elements(program.nodes().len() as u64));
        let mut values = Replay::<f64, 1>::new(&program, Build::Values).expect("a replay");
        let mut both = Replay::<f64, 1>::new(&program, Build::Reverse(Seeds::One(0))).expect("a replay");
        graph.backward(root).expect("a gradient");
        for _ in 0..4 {
            for replay in [&mut values, &mut both] {
                replay.inputs_mut().iter_mut().zip(0..).for_each(|(slot, k)| *slot = 0.01 * f64::from(k));
                replay.values();
                assert_eq!(replay.output(0, 0), graph.value(root).expect("its value"));
            }
            both.reverse_one();
            for (k, &x) in x.iter().enumerate() {
                assert_eq!(both.gradient(k, 0), graph.grad(x).expect("its gradient"));
            }
        }
        println!("{name}: {} nodes, {} instructions", program.nodes().len(), both.n_instructions());
        group.bench_function(format!("{name}, value"), |bench| bench.iter(|| values.values()));
        group.bench_function(format!("{name}, value and gradient"), |bench| {
            bench.iter(|| {
                both.values();
                both.reverse_one();
            });
        });
    }
    group.finish();
}

/// Rows of two numbers, and memory for their results.
struct Table(Vec<f64>);

impl Source<f64> for Table {
    fn read(&self, input: usize, rows: Rows<'_>, to: &mut [f64]) {
        for (k, to) in to.iter_mut().enumerate().take(rows.len()) {
            *to = self.0[2 * rows.get(k) + input];
        }
    }
}

/// A sink that only sums its inputs.
struct Nowhere;

impl Sink<f64> for Nowhere {
    fn value(&self, _output: usize, _rows: Rows<'_>, from: &[f64]) {
        std::hint::black_box(from);
    }
    fn gradient(&self, _input: usize, _rows: Rows<'_>, from: &[f64]) {
        std::hint::black_box(from);
    }
}

fn tiny() -> Program {
    let mut graph = Graph::<f64>::new();
    let x = vec![graph.leaf(-41.0).expect("room"), graph.leaf(2.0).expect("room")];
    let c = graph.binary_op(Op::Add, x[0], x[1]).expect("room");
    let ab = graph.binary_op(Op::Mul, x[0], x[1]).expect("room");
    let b3 = graph.unary_op(Op::Pow3, x[1]).expect("room");
    let d = graph.binary_op(Op::Add, ab, b3).expect("room");
    let e = graph.binary_op(Op::Sub, c, d).expect("room");
    let f = graph.unary_op(Op::Sqr, e).expect("room");
    let g = graph.with_constant::<MulByConstant>(f, 0.5).expect("room");
    let recording = Recording { n_differentiated: 2, inputs: x, outputs: vec![g], ..Recording::default() };
    recording.program(&graph).expect("a program")
}

fn rows(c: &mut Criterion) {
    let mut group = c.benchmark_group("rows");
    let n = 100_000;
    let table = Table((0..2 * n).map(|k| if k % 2 == 0 { -41.0 } else { 2.0 } + 1e-6 * k as f64).collect());
    group.throughput(Throughput::Elements(n as u64));
    let program = tiny();
    let mut batch = Batch::<F64x8, 8>::new(&program, true).expect("a batch");
    let mut left = Vec::new();
    group.bench_function("tiny", |bench| {
        bench.iter_batched(
            || (),
            |()| batch.run(Rows::Run { first: 0, len: n }, &table, &Nowhere, &mut left),
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

criterion_group!(benches, large, rows);
criterion_main!(benches);
