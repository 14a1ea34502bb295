//! Oracles on several threads: the bits of one, for any number, and errors that leave zeros.

use burtorch_core::nn::{CharMlp, CharMlpShape, Gpt, GptShape, Input, Label};
use burtorch_core::{Batch, Error, LaneFloat, LaneModel, Oracle, Parameters, Total};

fn draw(n: usize, below: u32, seed: u32) -> Vec<u32> {
    let mut state = seed;
    (0..n)
        .map(|_| {
            state = state.wrapping_mul(1664525).wrapping_add(1013904223);
            (state >> 16) % below
        })
        .collect()
}

/// Loss and gradient of a batch on `n` threads, as bits.
fn bits<E: LaneFloat, M: LaneModel<E>>(
    model: &M,
    params: &mut Parameters<'static, E>,
    batch: Batch<'_, E>,
    n: usize,
) -> (u64, Vec<u64>) {
    let mut oracle = Oracle::with_total(Total::Mean);
    oracle.set_threads(n).unwrap();
    params.grads_mut().fill(E::lit(7.0));
    // The second call reuses memory.
    let mut losses = vec![E::lit(0.0); batch.len()];
    oracle.gradient_and_losses(model, params, batch, &mut losses, None).unwrap();
    let loss = oracle.gradient(model, params, batch, None).unwrap();
    let sum: f64 = losses.iter().map(|loss| loss.to_f64()).sum();
    assert_eq!(loss, sum / batch.len() as f64);
    (loss.to_bits(), params.grads().iter().map(|g| g.to_f64().to_bits()).collect())
}

fn same_for_all<E: LaneFloat, M: LaneModel<E>>(model: &M, params: &mut Parameters<'static, E>, batch: Batch<'_, E>) {
    let wanted = bits(model, params, batch, 1);
    for n in [2, 3, 8, 64, 100] {
        assert!(bits(model, params, batch, n) == wanted, "{n} threads differ for {} samples", batch.len());
    }
}

#[test]
fn an_mlp_in_lanes_has_the_same_bits_on_any_number_of_threads() {
    let mut params = Parameters::<f32>::new(3);
    let shape = CharMlpShape { vocab: 27, context: 4, embedding: 8, hidden: 16 };
    let model = CharMlp::new(&mut params, shape, None).unwrap();
    for n in [1, 64, 65, 200, 321] {
        let (x, y) = (draw(4 * n, 27, 1), draw(n, 27, 2));
        let batch = Batch::new(Input::Tokens(&x), Label::Classes(&y), n).unwrap();
        same_for_all(&model, &mut params, batch);
    }
    params.freeze(params.slice(10..40).unwrap()).unwrap();
    let (x, y) = (draw(4 * 130, 27, 1), draw(130, 27, 2));
    same_for_all(&model, &mut params, Batch::new(Input::Tokens(&x), Label::Classes(&y), 130).unwrap());
}

fn wide<E: LaneFloat>() {
    let shape = CharMlpShape { vocab: 27, context: 16, embedding: 40, hidden: 430 };
    let mut params = Parameters::<E>::new(3);
    let model = CharMlp::new(&mut params, shape, None).unwrap();
    let values = params.values().to_vec();
    for n in [1, 7, 64, 130] {
        let (x, y) = (draw(16 * n, 27, 1), draw(n, 27, 2));
        let batch = Batch::new(Input::Tokens(&x), Label::Classes(&y), n).unwrap();
        same_for_all(&model, &mut params, batch);
        let mut step = |n_threads| {
            let mut oracle = Oracle::with_total(Total::Mean);
            oracle.set_threads(n_threads).unwrap();
            params.values_mut().copy_from_slice(&values);
            let loss = oracle.step(&model, &mut params, batch, 0.5, None).unwrap();
            (loss.to_bits(), params.values().iter().map(|v| v.to_f64().to_bits()).collect::<Vec<_>>())
        };
        let wanted = step(1);
        for n_threads in [2, 3, 8] {
            assert!(step(n_threads) == wanted, "{n_threads} threads take another step on {n} samples");
        }
    }
}

#[test]
fn layers_that_threads_share_have_the_same_bits_and_take_the_same_steps() {
    wide::<f32>();
    wide::<f64>();
}

#[test]
fn a_gpt_has_the_same_bits_on_any_number_of_threads() {
    let mut params = Parameters::<f32>::new(3);
    let model = Gpt::new(&mut params, GptShape { layers: 2, ..GptShape::default() }, None).unwrap();
    for n in [16, 17, 18, 64, 65, 70] {
        let (x, y) = (draw(8 * n, 65, 1), draw(8 * n, 65, 2));
        same_for_all(&model, &mut params, Batch::new(Input::Tokens(&x), Label::Classes(&y), n).unwrap());
    }
}

#[test]
fn chunks_add_up_to_the_gradient_of_the_batch() {
    let mut params = Parameters::<f64>::new(3);
    let model = Gpt::new(&mut params, GptShape { layers: 1, ..GptShape::default() }, None).unwrap();
    let (x, y) = (draw(8 * 64, 65, 1), draw(8 * 64, 65, 2));
    let mut sum = vec![0.0; params.len()];
    let (mut one, mut all) = (Oracle::with_total(Total::Sum), Oracle::with_total(Total::Sum));
    all.set_threads(2).unwrap();
    let mut singly = Vec::new();
    for n in 1..=64 {
        let last = |all: &[u32]| all[8 * n - 8..8 * n].to_vec();
        let (x_last, y_last) = (last(&x), last(&y));
        let batch = Batch::new(Input::Tokens(&x_last), Label::Classes(&y_last), 1).unwrap();
        singly.push(one.gradient(&model, &mut params, batch, None).unwrap());
        sum.iter_mut().zip(params.grads()).for_each(|(s, g)| *s += g);
        let batch = Batch::new(Input::Tokens(&x[..8 * n]), Label::Classes(&y[..8 * n]), n).unwrap();
        let mut losses = vec![0.0; n];
        all.gradient_and_losses(&model, &mut params, batch, &mut losses, None).unwrap();
        let numbers = params.grads().iter().zip(&sum).chain(losses.iter().zip(&singly));
        for (found, wanted) in numbers {
            assert!((found - wanted).abs() <= 1e-12 * (1.0 + wanted.abs()), "{n}: {found} instead of {wanted}");
        }
    }
}

#[test]
fn an_interrupted_batch_leaves_zeros_and_the_next_one_is_right() {
    let mut params = Parameters::<f32>::new(3);
    let model = Gpt::new(&mut params, GptShape { layers: 1, ..GptShape::default() }, None).unwrap();
    let (x, y) = (draw(8 * 100, 65, 1), draw(8 * 100, 65, 2));
    let batch = Batch::new(Input::Tokens(&x), Label::Classes(&y), 100).unwrap();
    let wanted = bits(&model, &mut params, batch, 2);
    // The first job of an oracle takes one of the eight chunks per thread, so there is a check before it and one after
    // it.
    for when in 1..=2 {
        let mut oracle = Oracle::new();
        oracle.set_threads(2).unwrap();
        let mut asked = 0;
        let mut stop = || {
            asked += 1;
            asked == when
        };
        assert_eq!(oracle.gradient(&model, &mut params, batch, Some(&mut stop)), Err(Error::Interrupted));
        assert!(params.grads().iter().all(|&g| g == 0.0));
        oracle.gradient(&model, &mut params, batch, None).unwrap();
        assert!(params.grads().iter().map(|&g| f64::from(g).to_bits()).eq(wanted.1.iter().copied()));
    }
    let mut oracle = Oracle::<f32>::new();
    oracle.set_threads(2).unwrap();
    assert!(matches!(oracle.set_threads(0), Err(Error::BadArgument { .. })));
    assert_eq!(oracle.threads(), 2);
}
