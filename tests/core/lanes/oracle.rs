//! Batches in lanes: every width and batch size against single samples; bits; other points and other memory.

use burtorch_core::nn::{Activation, CharMlp, CharMlpShape, Input, Label, Mlp};
use burtorch_core::{Batch, Error, Init, LaneFloat, LaneModel, Lanes, Oracle, Overrides, Parameters, Total};

use crate::support::{Float, Numbers, on_every_level};

const SMALL: CharMlpShape = CharMlpShape { vocab: 7, context: 3, embedding: 5, hidden: 6 };

fn tokens(n: usize, below: u64, seed: u64) -> Vec<u32> {
    let mut numbers = Numbers::new(seed);
    (0..n).map(|_| (numbers.next_bits() % below) as u32).collect()
}

/// Whether numbers agree within `n` roundings, relative to the largest.
#[track_caller]
fn assert_near<E: Float + burtorch_core::Float>(found: &[E], expected: &[E], n: f64, what: &str) {
    let scale = expected.iter().fold(0.0, |top: f64, &x| top.max(x.to_f64().abs()));
    for (k, (&a, &b)) in found.iter().zip(expected).enumerate() {
        let close = (a.to_f64() - b.to_f64()).abs() <= n * E::UNIT * scale.max(1e-3);
        assert!(close, "{what}, entry {k}: {a:?} instead of {b:?}");
    }
}

/// Loss, gradient and losses of a batch with this many lanes.
fn run<E: LaneFloat, M: LaneModel<E>>(
    lanes: Lanes,
    model: &M,
    params: &mut Parameters<'_, E>,
    batch: Batch<'_, E>,
) -> (f64, Vec<E>, Vec<E>) {
    let mut oracle = Oracle::with_lanes(Total::Mean, lanes).unwrap();
    // Existing gradients must not matter, except frozen ones.
    params.for_each_trainable(|_| {});
    let frozen = params.frozen().to_vec();
    for (k, g) in params.grads_mut().iter_mut().enumerate() {
        if !frozen.iter().any(|r| r.contains(&(k as u32))) {
            *g = E::from_f64(f64::NAN);
        }
    }
    let mut losses = vec![E::from_f64(0.0); batch.len()];
    let loss = oracle.gradient_and_losses(model, params, batch, &mut losses, None).unwrap();
    let again = oracle.loss(model, params, batch, None).unwrap();
    assert_eq!(loss.to_bits(), again.to_bits());
    (loss, params.grads().to_vec(), losses)
}

fn every_width_and_size<E: LaneFloat + Float>(widths: [usize; 4]) {
    let _turn = crate::support::level_stays();
    for frozen in [None, Some(0..35), Some(40..55), Some(8..9), Some(131..140)] {
        let mut params = Parameters::<E>::new(2);
        let model = CharMlp::new(&mut params, SMALL, None).unwrap();
        params.tensor(&[10], None, Init::Constant(1.0), true).unwrap();
        if let Some(frozen) = frozen.clone() {
            params.freeze(params.slice(frozen).unwrap()).unwrap();
        }
        for n in (1..=21).chain([31, 32, 33, 63, 64, 65, 100, 130, 150]) {
            let (x, y) = (tokens(3 * n, 7, n as u64), tokens(n, 7, 99 + n as u64));
            let batch = Batch::new(Input::Tokens(&x), Label::Classes(&y), n).unwrap();
            let (loss, grads, losses) = run(Lanes::Of(1), &model, &mut params, batch);
            for lanes in widths.into_iter().map(Lanes::Of).chain([Lanes::Auto]) {
                let (loss_too, grads_too, losses_too) = run(lanes, &model, &mut params, batch);
                let what = format!("{lanes:?}, {n} samples, frozen {frozen:?}");
                assert!((loss - loss_too).abs() <= 64.0 * E::UNIT * loss, "{what}: {loss_too} instead of {loss}");
                assert_near(&grads_too, &grads, 64.0, &what);
                assert_near(&losses_too, &losses, 64.0, &what);
            }
        }
    }
}

#[test]
fn every_width_gives_the_gradient_of_single_samples() {
    every_width_and_size::<f32>([1, 4, 8, 16]);
    every_width_and_size::<f64>([1, 2, 4, 8]);
}

#[test]
fn an_mlp_takes_every_kind_of_label_in_lanes() {
    let _turn = crate::support::level_stays();
    for activation in Activation::ALL {
        let mut params = Parameters::<f64>::new(11);
        let model = Mlp::new(&mut params, &[3, 9, 4, 2], true, activation, None).unwrap();
        for n in [1, 2, 3, 5, 8, 13, 64, 70] {
            let x = Numbers::new(1).take::<f64>(3 * n);
            let numbers = Numbers::new(2).take::<f64>(2 * n);
            let classes = tokens(n, 2, 3);
            for label in [Label::Classes(&classes), Label::Probabilities(&numbers), Label::Numbers(&numbers)] {
                let batch = Batch::new(Input::Numbers(&x), label, n).unwrap();
                let (loss, grads, _) = run(Lanes::Of(1), &model, &mut params, batch);
                for lanes in [Lanes::Of(2), Lanes::Of(4), Lanes::Of(8), Lanes::Auto] {
                    let (loss_too, grads_too, _) = run(lanes, &model, &mut params, batch);
                    assert!((loss - loss_too).abs() <= 1e-13 * (1.0 + loss.abs()));
                    assert_near(&grads_too, &grads, 64.0, &format!("{activation:?}, {lanes:?}, {n} samples"));
                }
            }
        }
    }
}

#[test]
fn a_batch_has_the_same_bits_on_every_level() {
    let mut params = Parameters::<f32>::new(5);
    let model = CharMlp::new(&mut params, CharMlpShape { hidden: 33, ..CharMlpShape::default() }, None).unwrap();
    for n in [1, 3, 7, 16, 23, 64, 75] {
        let (x, y) = (tokens(16 * n, 27, 1), tokens(n, 27, 2));
        let params = std::cell::RefCell::new(&mut params);
        on_every_level(
            || {
                let batch = Batch::new(Input::Tokens(&x), Label::Classes(&y), n).unwrap();
                let mut params = params.borrow_mut();
                let loss = Oracle::new().gradient(&model, &mut params, batch, None).unwrap();
                [&[loss as f32][..], params.grads()].concat()
            },
            |found| assert!(found.iter().all(|x| x.is_finite())),
        );
    }
}

#[test]
fn a_gradient_at_overrides_leaves_the_parameters_unchanged() {
    let _turn = crate::support::level_stays();
    let mut params = Parameters::<f64>::new(2);
    let model = CharMlp::new(&mut params, SMALL, None).unwrap();
    params.freeze(params.slice(3..8).unwrap()).unwrap();
    let (x, y) = (tokens(27, 7, 1), tokens(9, 7, 2));
    let batch = Batch::new(Input::Tokens(&x), Label::Classes(&y), 9).unwrap();
    let point: Vec<f64> = params.values().iter().map(|v| v + 0.25).collect();
    let mut oracle = Oracle::new();
    let here = oracle.gradient(&model, &mut params, batch, None).unwrap();
    let (values, grads) = (params.values().to_vec(), params.grads().to_vec());
    let mut out = vec![f64::NAN; params.len()];
    let elsewhere = Overrides { at: Some(&point), out: Some(&mut out) };
    let there = oracle.gradient_elsewhere(&model, &mut params, batch, elsewhere, None).unwrap();
    assert_eq!((params.values(), params.grads()), (&values[..], &grads[..]));
    params.values_mut().copy_from_slice(&point);
    assert_eq!(oracle.gradient(&model, &mut params, batch, None).unwrap(), there);
    assert_eq!(params.grads(), out);
    assert_ne!(here, there);
    let short = Overrides { at: Some(&point[1..]), out: None };
    let refused = oracle.gradient_elsewhere(&model, &mut params, batch, short, None);
    assert!(matches!(refused, Err(Error::LengthMismatch { .. })));
    assert_eq!(params.grads(), out);
}

#[test]
fn unsupported_widths_are_refused() {
    for n in [0, 2, 3, 32, 64] {
        assert!(matches!(Oracle::<f32>::with_lanes(Total::Sum, Lanes::Of(n)), Err(Error::BadArgument { .. })));
    }
    assert!(Oracle::<f64>::with_lanes(Total::Sum, Lanes::Of(2)).is_ok());
    assert!(Oracle::<f64>::with_lanes(Total::Sum, Lanes::Of(16)).is_err());
}

#[test]
fn memory_is_that_of_a_block_whatever_the_batch() {
    let mut params = Parameters::<f32>::new(2);
    let model = CharMlp::new(&mut params, SMALL, None).unwrap();
    let mut after = |n: usize| {
        let (x, y) = (tokens(3 * n, 7, 1), tokens(n, 7, 2));
        let batch = Batch::new(Input::Tokens(&x), Label::Classes(&y), n).unwrap();
        let mut oracle = Oracle::new();
        assert_eq!(oracle.memory().activations, 0);
        oracle.gradient(&model, &mut params, batch, None).unwrap();
        oracle.memory()
    };
    // The second block is the first with a predecessor, which a graph records in a log of fixed size.
    let (block, two, many) = (after(64), after(128), after(6400));
    assert_eq!(two.activations, many.activations);
    assert!(two.activations <= block.activations + 1024);
    assert!(many.adjoints <= block.adjoints + 4 * params.len() + 4 * 64);
    assert!(block.adjoints >= 4 * 64 * (15 + 2 * 6 + 7));
}
