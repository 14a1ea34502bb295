//! One step of the paper's character model, gradient oracle and gradient descent, on one core in FP32.
//!
//! Answers are checked before anything is timed: the loss of a step's batch must fall.

use burtorch_core::nn::{CharMlp, CharMlpShape, Input, Label};
use burtorch_core::{Batch, Oracle, Parameters, Sgd};
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
            if n == 1 {
                let mut step = || oracle.step(&model, &mut params, batch, 1e-3, None).expect("a step");
                assert!(step() < first);
                group.bench_function(BenchmarkId::new(format!("e={hidden} in one sweep"), n), |bench| {
                    bench.iter(&mut step)
                });
            }
        }
    }
}

criterion_group!(benches, steps);
criterion_main!(benches);
