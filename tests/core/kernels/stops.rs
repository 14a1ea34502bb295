//! Kernels ask within whether work is to end early, and leave it to their callers to find out.

use burtorch_core::kernels::{
    self, BLOCK_LANES, Finish, Matrix, MatrixMut, Mode, Start, WeightParts, Working, affine_block_workspace_len,
    attention_probs_len, product_on_threads, product_workspace_len, weight_grad_scratch_len,
};
use burtorch_core::sync::Stop;
use burtorch_core::{Error, interrupt};

use crate::support::level_stays;

/// Distinct numbers.
fn numbers<E: From<f32>>(n: usize) -> Vec<E> {
    (0..n).map(|k| E::from((k % 97) as f32 * 0.01 - 0.3)).collect()
}

/// For a kernel whose work exceeds the time between two checks: with a watch it computes the same bits; with the token
/// set it ends early.
fn check<E: Clone + PartialEq + std::fmt::Debug>(name: &str, before: &[E], kernel: impl Fn(&mut [E])) {
    let _turn = level_stays();
    let (mut alone, mut watched) = (before.to_vec(), before.to_vec());
    kernel(&mut alone);
    let stop = Stop::new();
    assert_eq!(stop.watched(|| kernel(&mut watched)), Ok(()), "{name}");
    assert_eq!(watched, alone, "{name}");
    stop.set();
    assert_eq!(stop.watched(|| kernel(&mut before.to_vec())), Err(Error::Interrupted), "{name}");
}

const IN: usize = 260;
const OUT: usize = 270;

#[test]
fn dense_layers_end_within() {
    let (w, x, dy) = (numbers::<f32>(IN * OUT), numbers::<f32>(IN), numbers::<f32>(OUT));
    check("forward", &numbers::<f32>(OUT), |y| kernels::affine_forward(&w, None, &x, y));
    check("input gradient", &numbers::<f32>(IN), |dx| kernels::affine_input_grad(&w, &dy, dx));
    check("weight gradient", &w, |dw| kernels::affine_weight_grad(&dy, &x, dw, None, Mode::Add));
    let skipped: Vec<_> = (0..(IN * OUT) as u32 / 100).map(|k| 100 * k..100 * k + 1).collect();
    let parts = WeightParts { weights: 0..IN * OUT, skipped: &skipped };
    check("parts of a weight gradient", &w, |dw| kernels::affine_weight_grad_parts(&dy, &x, &parts, dw, Mode::Add));
    let skipped: Vec<_> = (0..(IN * OUT) as u32 / 2).map(|k| 2 * k..2 * k + 1).collect();
    let parts = WeightParts { weights: 0..IN * OUT, skipped: &skipped };
    check("single weights", &w, |dw| kernels::affine_weight_grad_parts(&dy, &x, &parts, dw, Mode::Add));
    let (w, dy, columns) = (numbers::<f32>(64 * 2048), numbers::<f32>(2048), Vec::from_iter(0..64));
    let dx = numbers::<f32>(64);
    check("columns of an input gradient", &dx, |dx| kernels::affine_input_grad_columns(&w, &dy, &columns, dx));
}

#[test]
fn rows_of_tables_end_within() {
    const L: usize = 16;
    let (table, rows) = (numbers::<f32>(27 * 64), numbers::<f32>(40 * L * 64));
    let indices: Vec<u32> = (0..40 * L as u32).map(|k| k % 27).collect();
    check("rows", &rows, |out| kernels::gather_rows(&table, &indices, out));
    check("rows, added", &table, |table| kernels::scatter_add_rows(1.0, &rows, &indices, table));
    check("rows in lanes", &rows, |out| kernels::gather_rows_lanes::<f32, L>(&table, &indices, out));
    check("rows in lanes, added", &table, |table| {
        kernels::scatter_add_rows_lanes::<f32, L>(1.0, &rows, &indices, table)
    });
}

#[test]
fn dense_layers_of_lanes_end_within() {
    const L: usize = 16;
    let (w, x, dy) = (numbers::<f32>(IN * OUT), numbers::<f32>(IN * L), numbers::<f32>(OUT * L));
    check("forward", &dy, |y| kernels::affine_forward_lanes::<f32, L>(&w, None, &x, y));
    check("input gradient", &x, |dx| kernels::affine_input_grad_lanes::<f32, L>(&w, &dy, dx));
    check("input gradient, added", &x, |dx| kernels::affine_input_grad_add_lanes::<f32, L>(&w, &dy, dx));
    check("weight gradient", &w, |dw| {
        let mut scratch = vec![0.0; weight_grad_scratch_len(IN, L)];
        kernels::affine_weight_grad_lanes::<f32, L>(&[&dy], &[&x], dw, None, Mode::Set, &mut scratch);
    });
    // Weights larger than the second-level cache take another code path.
    let (n_in, n_out) = (512, 516);
    let (w, dy) = (numbers::<f32>(n_in * n_out), numbers::<f32>(n_out * L));
    let dx = numbers::<f32>(n_in * L);
    check("input gradient by rows", &dx, |dx| kernels::affine_input_grad_lanes::<f32, L>(&w, &dy, dx));
}

fn blocks<E: kernels::KernelFloat + From<f32> + Default + PartialEq + std::fmt::Debug>(n_threads: usize) {
    const L: usize = BLOCK_LANES;
    let (w, x, dy) = (numbers::<E>(IN * OUT), numbers::<E>(IN * L), numbers::<E>(OUT * L));
    let memory = || vec![E::default(); n_threads * affine_block_workspace_len::<E>(IN, OUT)];
    check("forward", &dy, |y| {
        kernels::affine_forward_block(&w, None, &x, y, Working { memory: &mut memory(), n_threads });
    });
    for mode in [Mode::Set, Mode::Add] {
        check("input gradient", &x, |dx| {
            kernels::affine_input_grad_block(&w, &dy, dx, mode, Working { memory: &mut memory(), n_threads });
        });
        check("weight gradient", &w, |dw| {
            let working = Working { memory: &mut memory(), n_threads };
            kernels::affine_weight_grad_block(&dy, &x, dw, None, mode, working);
        });
    }
}

#[test]
fn blocks_of_samples_end_within() {
    for n_threads in [1, 2] {
        blocks::<f32>(n_threads);
        blocks::<f64>(n_threads);
    }
}

#[test]
fn products_and_attention_end_within() {
    for (m, n, k) in [(128, 128, 128), (2, 1100, 1100), (1100, 1, 1100)] {
        let (a, b) = (numbers::<f64>(m * k), numbers::<f64>(k * n));
        for n_threads in [1, 2] {
            check("product", &numbers::<f64>(m * n), |c| {
                let mut workspace = vec![0.0; n_threads * product_workspace_len::<f64>(m, n, k)];
                let (a, b, c) = (Matrix::by_rows(&a, m, k), Matrix::by_rows(&b, k, n), MatrixMut::by_rows(c, m, n));
                product_on_threads(n_threads, Start::Output, a, b, c, Finish::AsIs, &mut workspace);
            });
        }
    }
    const L: usize = 8;
    let (heads, width, groups) = (2, 32, 40);
    let [q, k, v] = [(); 3].map(|()| numbers::<f32>(groups * width * L));
    check("attention", &q, |out| {
        let mut probs = vec![0.0; attention_probs_len::<L>(heads, groups)];
        kernels::causal_attention_forward::<f32, L>(heads, width, &q, &k, &v, &mut probs, out);
    });
    let mut probs = vec![0.0; attention_probs_len::<L>(heads, groups)];
    let mut out = q.clone();
    kernels::causal_attention_forward::<f32, L>(heads, width, &q, &k, &v, &mut probs, &mut out);
    check("attention's gradient", &q, |dq| {
        let (mut dk, mut dv) = (k.clone(), v.clone());
        kernels::causal_attention_backward::<f32, L>(
            heads,
            width,
            &q,
            &k,
            &v,
            &probs,
            &out,
            &out,
            dq,
            &mut dk,
            &mut dv,
            Mode::Set,
        );
    });
}

/// The incomplete output of a kernel is never treated as complete, even if the token is cleared at once.
#[test]
fn a_thread_that_has_seen_a_set_token_stays_stopped() {
    let (w, x) = (numbers::<f32>(IN * OUT), numbers::<f32>(IN));
    let stop = Stop::new();
    let ended = stop.watched(|| {
        stop.set();
        kernels::affine_forward(&w, None, &x, &mut [0.0; OUT]);
        stop.clear();
        interrupt::is_over()
    });
    assert_eq!(ended, Err(Error::Interrupted));
    assert_eq!(stop.watched(interrupt::is_over), Ok(false));
    assert!(!interrupt::is_over());
}
