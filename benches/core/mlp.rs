//! One step of the paper's character model, gradient oracle and gradient descent, on one core in FP32.
//!
//! Answers are checked before anything is timed: the loss of a step's batch must fall.

use burtorch_core::nn::{Activation, CharMlp, CharMlpShape, Input, Label, sized};
use burtorch_core::{Batch, Graph, Op, Operands, Oracle, Parameters, Sgd, View};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};

fn symbols(n: usize) -> Vec<u32> {
    (0..n as u32).map(|k| k.wrapping_mul(2_654_435_761) >> 16).map(|k| k % 27).collect()
}

fn steps(c: &mut Criterion) {
    let mut group = c.benchmark_group("char mlp step");
    for hidden in [4, 64, 512, 1024] {
        for n in [1, 64] {
            let mut params = Parameters::<f32>::new(0);
            let shape = CharMlpShape { hidden, ..CharMlpShape::default() };
            let model = CharMlp::new(&mut params, shape, None).expect("room for a model");
            let (x, y) = (symbols(16 * n), symbols(n));
            let batch = Batch::new(Input::Tokens(&x), Label::Classes(&y), n).expect("a batch");
            let (mut oracle, mut sgd) = (Oracle::new(), Sgd::new(1e-3).expect("a rate"));
            let first = oracle.loss(&model, &params, batch, None).expect("a loss");
            let mut step = || {
                let loss = oracle.gradient(&model, &mut params, batch, None).expect("a gradient");
                sgd.step(&mut params).expect("a step");
                loss
            };
            assert_eq!(step(), first);
            assert!(step() < first);
            group.bench_function(BenchmarkId::new(format!("e={hidden}"), n), |bench| bench.iter(&mut step));
            {
                let mut step = || oracle.step(&model, &mut params, batch, 1e-3, None).expect("a step");
                assert!(step() < first);
                group.bench_function(BenchmarkId::new(format!("e={hidden} in one sweep"), n), |bench| {
                    bench.iter(&mut step)
                });
            }
        }
    }
}

/// One layer of 64 inputs and 64 outputs on one sample, forward and backward, with and without sizes in the type.
fn sizes_in_the_type(c: &mut Criterion) {
    let mut group = c.benchmark_group("dense layer 64 -> 64");
    let mut params = Parameters::<f32>::new(0);
    let layer = sized::Linear::<f32, 64, 64>::new(&mut params, true, Activation::Tanh, None).expect("room for a layer");
    let mut graph = Graph::new();
    for in_the_type in [true, false] {
        let name = if in_the_type { "sizes in the type" } else { "sizes at run time" };
        group.bench_function(name, |bench| {
            bench.iter(|| {
                graph.clear().expect("a graph");
                let x = sized::Run::leaves(&mut graph, [0.5; 64]).expect("room");
                let y = match in_the_type {
                    true => layer.apply(&mut graph, &params, x).expect("room").range(),
                    false => {
                        let x = std::iter::once(View::Nodes(x.range()));
                        layer.dynamic().apply(&mut graph, &params, x).expect("room")
                    }
                };
                let root = graph.reduce(Op::ReduceSum, Operands::Run(y), &[]).expect("room");
                graph.backward_with(root, 1.0, &mut [params.gradients()]).expect("a sweep");
            });
        });
    }
}

/// The lower limit given by memory for the weights of e = 1024 on one sample: 4 MB, from the third-level cache if the
/// second-level cache is smaller. A step must read them twice, because the input gradient depends on all outputs, and
/// write them once.
fn four_megabytes(c: &mut Criterion) {
    use burtorch_core::kernels::{affine_forward, affine_input_grad_sgd_update, affine_sgd_update, sum};
    let mut group = c.benchmark_group("4 MB of weights");
    let mut params = Parameters::<f32>::new(0);
    // The same kind of memory as a model: mapped, in large pages if available.
    let w = params.tensor(&[1024, 1024], None, burtorch_core::Init::Glorot, true).expect("room").slice();
    assert_eq!(w.len(), 1 << 20);
    let (x, dy) = (vec![0.5f32; 1024], vec![1e-3f32; 1024]);
    let (mut y, mut dx) = (vec![0f32; 1024], vec![0f32; 1024]);
    let w = params.values_mut();
    group.bench_function("read", |bench| bench.iter(|| sum(w)));
    group.bench_function("read and written", |bench| bench.iter(|| affine_sgd_update(1e-9, &dy, &x, w, None)));
    group.bench_function("product, then back and step", |bench| {
        bench.iter(|| {
            affine_forward(w, None, &x, &mut y);
            affine_input_grad_sgd_update(1e-9, &dy, &x, w, &mut dx);
        });
    });
}

criterion_group!(benches, steps, sizes_in_the_type, four_megabytes);
criterion_main!(benches);
