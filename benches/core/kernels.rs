//! The speed of kernels at the shapes of the character MLP and of the GPT, at the best level of this CPU.
//!
//! "elem/s" of dense layers and attention are floating-point operations per second; of the others, numbers per second.
//! `cargo bench -p burtorch-core --bench kernels -- affine` runs a part. Each kernel's answer is checked by
//! tests/core/kernels.rs; here only that the outputs are finite.
#![allow(missing_docs, reason = "criterion_group declares a public function")]

use burtorch_core::kernels::{
    Adam, BLOCK_LANES, Finish, KernelFloat, Matrix, MatrixMut, Mode, Start, Working, adam_update,
    affine_block_workspace_len, affine_forward, affine_forward_block, affine_forward_lanes, affine_input_grad,
    affine_input_grad_block, affine_input_grad_lanes, affine_sgd_update, affine_weight_grad, affine_weight_grad_block,
    affine_weight_grad_lanes, attention_probs_len, causal_attention_backward, causal_attention_forward,
    gather_rows_lanes, layer_norm_forward_lanes, layer_norm_input_grad_lanes, layer_norm_weight_grad_lanes, product,
    product_workspace_len, relu_backward, scatter_add_rows_lanes, sgd_update, softmax_cross_entropy_backward_lanes,
    softmax_cross_entropy_forward, softmax_cross_entropy_forward_lanes, tanh_backward, tanh_forward,
    weight_grad_scratch_len,
};
use burtorch_core::simd::level;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;

/// Hidden sizes of the character MLP: 1024 inputs -> e -> 27 tokens.
const HIDDEN: [usize; 7] = [4, 16, 32, 64, 128, 512, 1024];
/// Dense layers of the GPT: (inputs, outputs).
const GPT: [(usize, usize); 5] = [(24, 72), (24, 24), (24, 96), (96, 24), (24, 65)];

fn numbers<E: KernelFloat>(n: usize) -> Vec<E> {
    (0..n).map(|i| E::of((i * 7919 % 1000) as f64 / 1000.0 - 0.5)).collect()
}

fn measure(c: &mut Criterion, group: &str, name: &str, amount: usize, mut run: impl FnMut()) {
    let mut group = c.benchmark_group(format!("{group} ({})", level().name()));
    group.throughput(Throughput::Elements(amount as u64));
    group.bench_function(name, |b| b.iter(&mut run));
    group.finish();
}

/// Forward, input gradient and weight gradient of `groups` lane groups.
fn lanes<E: KernelFloat, const L: usize>(c: &mut Criterion, n_in: usize, n_out: usize, groups: usize) {
    let group = format!("affine {n_in}->{n_out}, {groups} x {L} lanes of {} bytes", size_of::<E>());
    let (w, bias) = (numbers::<E>(n_in * n_out), numbers::<E>(n_out));
    let (x, dy) = (numbers::<E>(n_in * L), numbers::<E>(n_out * L));
    let (mut y, mut dx, mut dw) = (dy.clone(), x.clone(), w.clone());
    let mut scratch = numbers::<E>(weight_grad_scratch_len(n_in, groups * L));
    let flops = 2 * n_in * n_out * L;
    measure(c, &group, "forward", flops, || {
        affine_forward_lanes::<E, L>(black_box(&w), Some(&bias), black_box(&x), &mut y);
    });
    measure(c, &group, "input gradient", flops, || {
        affine_input_grad_lanes::<E, L>(black_box(&w), black_box(&dy), &mut dx);
    });
    let (x_groups, dy_groups) = (vec![x.clone(); groups], vec![dy.clone(); groups]);
    let xs: Vec<&[E]> = x_groups.iter().map(Vec::as_slice).collect();
    let dys: Vec<&[E]> = dy_groups.iter().map(Vec::as_slice).collect();
    let mut db = bias.clone();
    measure(c, &group, "weight gradient", flops * groups, || {
        let (dys, xs) = (black_box(&dys), black_box(&xs));
        let db = Some(&mut db[..]);
        affine_weight_grad_lanes::<E, L>(dys, xs, &mut dw, db, Mode::Set, &mut scratch);
    });
    let finite = |x: &[E]| x.iter().all(|&x| x * E::default() == E::default());
    assert!(finite(&y) && finite(&dx) && finite(&dw) && finite(&db));
}

/// The same for a block of 64 lanes.
fn block<E: KernelFloat>(c: &mut Criterion, n_in: usize, n_out: usize) {
    let group = format!("affine {n_in}->{n_out}, a block of 64 lanes of {} bytes", size_of::<E>());
    let (w, bias) = (numbers::<E>(n_in * n_out), numbers::<E>(n_out));
    let (x, dy) = (numbers::<E>(n_in * BLOCK_LANES), numbers::<E>(n_out * BLOCK_LANES));
    let (mut y, mut dx, mut dw, mut db) = (dy.clone(), x.clone(), w.clone(), bias.clone());
    let mut memory = numbers::<E>(affine_block_workspace_len::<E>(n_in, n_out));
    let flops = 2 * n_in * n_out * BLOCK_LANES;
    measure(c, &group, "forward", flops, || {
        affine_forward_block(black_box(&w), Some(&bias), black_box(&x), &mut y, Working::alone(&mut memory));
    });
    measure(c, &group, "input gradient", flops, || {
        affine_input_grad_block(black_box(&w), black_box(&dy), &mut dx, Mode::Set, Working::alone(&mut memory));
    });
    measure(c, &group, "weight gradient", flops, || {
        let (dy, x, working) = (black_box(&dy), black_box(&x), Working::alone(&mut memory));
        affine_weight_grad_block(dy, x, &mut dw, Some(&mut db), Mode::Set, working);
    });
    let finite = |x: &[E]| x.iter().all(|&x| x * E::default() == E::default());
    assert!(finite(&y) && finite(&dx) && finite(&dw) && finite(&db));
}

fn one_sample(c: &mut Criterion, n_in: usize, n_out: usize) {
    let group = format!("affine {n_in}->{n_out}, one sample of f32");
    let (mut w, bias) = (numbers::<f32>(n_in * n_out), numbers::<f32>(n_out));
    let (x, dy) = (numbers::<f32>(n_in), numbers::<f32>(n_out));
    let (mut y, mut dx, mut dw) = (dy.clone(), x.clone(), w.clone());
    let flops = 2 * n_in * n_out;
    measure(c, &group, "forward", flops, || {
        affine_forward(black_box(&w), Some(&bias), black_box(&x), &mut y);
    });
    measure(c, &group, "input gradient", flops, || {
        affine_input_grad(black_box(&w), black_box(&dy), &mut dx);
    });
    measure(c, &group, "weight gradient", flops, || {
        affine_weight_grad(black_box(&dy), black_box(&x), &mut dw, None, Mode::Set);
    });
    measure(c, &group, "fused step", flops, || {
        affine_sgd_update(1e-9, black_box(&dy), black_box(&x), &mut w, None);
    });
}

/// `C = A B`, and the same with B transposed.
fn one_product<E: KernelFloat>(c: &mut Criterion, m: usize, n: usize, k: usize) {
    let group = format!("product {m} x {k} by {k} x {n}, {} bytes", size_of::<E>());
    let (a, b, mut to) = (numbers::<E>(m * k), numbers::<E>(k * n), numbers::<E>(m * n));
    let mut workspace = numbers::<E>(product_workspace_len::<E>(m, n, k));
    for (name, turned) in [("A B", false), ("A B'", true)] {
        measure(c, &group, name, 2 * m * n * k, || {
            let b = if turned { Matrix::by_rows(&b, n, k).transposed() } else { Matrix::by_rows(&b, k, n) };
            let (a, to) = (Matrix::by_rows(black_box(&a), m, k), MatrixMut::by_rows(&mut to, m, n));
            product(Start::Number(E::default()), a, b, to, Finish::AsIs, &mut workspace);
        });
        assert!(to.iter().all(|&x| x * E::default() == E::default()));
    }
}

fn products(c: &mut Criterion) {
    for n in [4, 8, 16, 32, 64, 128, 256, 512, 1024] {
        for [m, n, k] in [[n, n, n], [1, n, n], [n, 4, n], [n, n, 16]] {
            one_product::<f32>(c, m, n, k);
            one_product::<f64>(c, m, n, k);
        }
    }
}

fn dense(c: &mut Criterion) {
    for e in HIDDEN {
        lanes::<f32, 16>(c, 1024, e, 4);
        block::<f32>(c, 1024, e);
        block::<f64>(c, 1024, e);
        lanes::<f32, 16>(c, e, 27, 4);
        one_sample(c, 1024, e);
    }
    for (n_in, n_out) in GPT {
        lanes::<f32, 8>(c, n_in, n_out, 1);
    }
    lanes::<f64, 8>(c, 512, 512, 4);
}

fn transformer(c: &mut Criterion) {
    const L: usize = 8;
    let n = 24 * L;
    let [q, k, v, dout] = std::array::from_fn(|_| numbers::<f32>(n));
    let mut probs = numbers(attention_probs_len::<L>(6, 1));
    let [mut out, mut dq, mut dk, mut dv] = std::array::from_fn(|_| numbers::<f32>(n));
    let name = "attention, 6 heads of 4, 8 tokens of f32";
    measure(c, name, "forward", 4 * n * L, || {
        causal_attention_forward::<f32, L>(6, 24, black_box(&q), &k, &v, &mut probs, &mut out);
    });
    measure(c, name, "backward", 8 * n * L, || {
        let (q, dout) = (black_box(&q), black_box(&dout));
        causal_attention_backward::<f32, L>(6, 24, q, &k, &v, &probs, &out, dout, &mut dq, &mut dk, &mut dv, Mode::Set);
    });
    let (gain, bias, mut stats) = (numbers(24), numbers(24), numbers(2 * L));
    let (mut dg, mut db) = (gain.clone(), bias.clone());
    let name = "layer norm, 24 x 8 of f32";
    measure(c, name, "forward", n, || {
        layer_norm_forward_lanes::<f32, L>(black_box(&q), &gain, &bias, 1e-5, &mut out, &mut stats);
    });
    measure(c, name, "input gradient", n, || {
        let dy = black_box(&dout);
        layer_norm_input_grad_lanes::<f32, L>(&q, &stats, &gain, dy, &mut dq, Mode::Set);
    });
    measure(c, name, "weight gradient", n, || {
        let dy = black_box(&dout);
        layer_norm_weight_grad_lanes::<f32, L>(&q, &stats, dy, &mut dg, &mut db, Mode::Set);
    });
}

fn softmax(c: &mut Criterion) {
    for n in [27, 65] {
        let z = numbers::<f32>(n * 16);
        let (mut probs, mut dz) = (z.clone(), z.clone());
        let name = format!("softmax cross-entropy, {n} classes of f32");
        measure(c, &name, "one sample forward", n, || {
            black_box(softmax_cross_entropy_forward(black_box(&z[..n]), 3, &mut probs[..n]));
        });
        measure(c, &name, "16 lanes forward", n * 16, || {
            black_box(softmax_cross_entropy_forward_lanes(black_box(&z), &[3; 16], &mut probs));
        });
        measure(c, &name, "16 lanes backward", n * 16, || {
            let (g, probs) = (black_box(&[0.1; 16]), black_box(&probs));
            softmax_cross_entropy_backward_lanes(g, probs, &[3; 16], &mut dz, Mode::Set);
        });
    }
}

fn ranges(c: &mut Criterion) {
    let n = 1024 * 16;
    let (x, dy) = (numbers::<f32>(n), numbers::<f32>(n));
    let (mut y, mut dx) = (x.clone(), x.clone());
    measure(c, "elementwise f32", "tanh forward", n, || tanh_forward(black_box(&x), &mut y));
    measure(c, "elementwise f32", "tanh backward", n, || {
        tanh_backward(black_box(&x), &y, black_box(&dy), &mut dx, Mode::Set);
    });
    measure(c, "elementwise f32", "relu backward", n, || {
        relu_backward(black_box(&x), black_box(&dy), &mut dx, Mode::Set);
    });
    let (table, mut table_grad) = (numbers::<f32>(27 * 64), numbers::<f32>(27 * 64));
    let indices: Vec<u32> = (0..256).map(|i| i * 7 % 27).collect();
    let name = "embedding, 16 rows of 64, 16 lanes of f32";
    measure(c, name, "gather", n, || {
        gather_rows_lanes::<f32, 16>(black_box(&table), &indices, &mut y);
    });
    measure(c, name, "scatter", n, || {
        let grad = black_box(&dy);
        scatter_add_rows_lanes::<f32, 16>(1.0, grad, &indices, &mut table_grad);
    });
    let n = 1_079_003;
    let (g, mut x) = (numbers::<f32>(n), numbers::<f32>(n));
    let (mut m, mut v) = (vec![0.0; n], vec![0.0; n]);
    measure(c, "optimiser step f32", "sgd", n, || sgd_update(1e-9, black_box(&g), &mut x));
    let step = Adam {
        rate: 1e-8,
        first: [0.9, 0.1],
        second: [0.999, 0.001],
        correction: 0.001,
        eps: 1e-8,
        added: 0.0,
        kept: 1.0,
    };
    measure(c, "optimiser step f32", "adam", n, || {
        adam_update(&step, black_box(&g), &mut m, &mut v, &mut x);
    });
}

criterion_group! {
    name = kernels;
    config = Criterion::default()
        .sample_size(30)
        .warm_up_time(std::time::Duration::from_millis(200))
        .measurement_time(std::time::Duration::from_millis(600));
    targets = products, dense, transformer, softmax, ranges
}
criterion_main!(kernels);
