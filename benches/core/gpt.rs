//! One gradient of the GPT of the paper: loss and gradient of batches of 1, 8 and 64 samples.

use std::hint::black_box;

use burtorch_core::nn::{Gpt, GptShape, Input, Label};
use burtorch_core::{Batch, Oracle, Parameters};
use criterion::{Criterion, Throughput};

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("gpt gradient");
    for n in [1, 8, 64] {
        let mut params = Parameters::<f32>::new(0);
        let Ok(model) = Gpt::new(&mut params, GptShape::default(), None) else { return };
        let x: Vec<u32> = (0..8 * n as u32).map(|k| (k * 31 + k / 8) % 65).collect();
        let y: Vec<u32> = (0..8 * n as u32).map(|k| (k * 17 + 5) % 65).collect();
        let mut oracle = Oracle::new();
        group.throughput(Throughput::Elements(n as u64));
        group.bench_function(format!("b={n}"), |bencher| {
            bencher.iter(|| {
                let batch = Batch::new(Input::Tokens(&x), Label::Classes(&y), n);
                let loss = batch.and_then(|batch| oracle.gradient(&model, &mut params, batch, None));
                black_box(loss)
            });
        });
    }
    group.finish();
    criterion.final_summary();
}
