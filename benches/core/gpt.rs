//! One gradient of the GPT of the paper: loss and gradient of batches of 1, 8 and 64 samples, on one core in FP32.
//!
//! Answers are checked before anything is timed: the loss of a step's batch must fall.

use burtorch_core::nn::{Gpt, GptShape, Input, Label};
use burtorch_core::{Batch, Oracle, Parameters, Sgd};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};

fn symbols(n: usize) -> Vec<u32> {
    (0..n as u32).map(|k| k.wrapping_mul(2_654_435_761) >> 16).map(|k| k % 65).collect()
}

fn gradients(c: &mut Criterion) {
    let mut group = c.benchmark_group("gpt gradient");
    for n in [1, 8, 64] {
        let mut params = Parameters::<f32>::new(0);
        let model = Gpt::new(&mut params, GptShape::default(), None).expect("room for a model");
        let (x, y) = (symbols(8 * n), symbols(8 * n + 1));
        let batch = Batch::new(Input::Tokens(&x), Label::Classes(&y[1..]), n).expect("a batch");
        let (mut oracle, mut sgd) = (Oracle::new(), Sgd::new(1e-2).expect("a rate"));
        let mut gradient =
            |params: &mut Parameters<'_, f32>| oracle.gradient(&model, params, batch, None).expect("a gradient");
        let first = gradient(&mut params);
        sgd.step(&mut params).expect("a step");
        assert!(gradient(&mut params) < first);
        group.bench_function(BenchmarkId::new("one", n), |bench| bench.iter(|| gradient(&mut params)));
    }
    group.finish();
}

criterion_group!(benches, gradients);
criterion_main!(benches);
