//! Oracles: the mean of single gradients, overwriting, training, the same bits, refusals.

use burtorch_core::nn::{Activation, CharMlp, CharMlpShape, Input, Label, Linear, Mlp, Model};
use burtorch_core::{Batch, Error, Graph, Init, Oracle, Parameters, Sgd, Total, View};

use super::expand::{self, assert_close};

const SMALL: CharMlpShape = CharMlpShape { vocab: 7, context: 3, embedding: 5, hidden: 6 };

fn tokens(n: usize, below: u32) -> Vec<u32> {
    let mut state = 12345u64;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as u32
    };
    (0..n).map(|_| next() % below).collect()
}

fn char_batch<'a>(x: &'a [u32], y: &'a [u32]) -> Batch<'a, f64> {
    Batch::new(Input::Tokens(x), Label::Classes(y), y.len()).unwrap()
}

#[cfg(feature = "labels")]
#[test]
fn the_models_have_the_parameters_of_the_paper() {
    for (hidden, n) in [(4, 5_963), (64, 69_083), (512, 540_379), (1024, 1_079_003)] {
        let mut params = Parameters::<f32>::new(0);
        let shape = CharMlpShape { hidden, ..CharMlpShape::default() };
        let model = CharMlp::new(&mut params, shape, Some("m")).unwrap();
        assert_eq!((model.n_parameters(), params.len()), (n, n));
        let order: Vec<_> = ["embedding", "hidden.weight", "hidden.bias", "output.weight", "output.bias"]
            .iter()
            .map(|part| params.named(&format!("m.{part}")).unwrap().slice().range().start)
            .collect();
        assert!(order.is_sorted());
        assert_eq!(order[0], 0);
    }
}

#[test]
fn char_mlp_equals_its_expansion_into_scalars() {
    let mut params = Parameters::<f64>::new(1);
    let model = CharMlp::new(&mut params, SMALL, None).unwrap();
    let (x, y) = ([2, 6, 2], [4]);
    let loss = Oracle::new().gradient(&model, &mut params, char_batch(&x, &y), None).unwrap();
    let found = params.grads().to_vec();

    params.zero_grad();
    let mut graph = Graph::new();
    let rows: Vec<View> = x.iter().map(|&t| model.embedding().row(t as usize).unwrap().into()).collect();
    let layer = |graph: &mut Graph<'_, f64>, x: &[View], layer: Linear| {
        expand::affine(graph, &params, x, layer.weight().slice(), layer.bias().map(|b| b.slice()))
    };
    let hidden = layer(&mut graph, &rows, model.hidden());
    let hidden = expand::map(&mut graph, burtorch_core::Op::Tanh, hidden);
    let logits = layer(&mut graph, &[hidden.into()], model.output());
    let mut target = [0.0; 7];
    target[4] = 1.0;
    let root = expand::cross_entropy(&mut graph, logits, &target);
    let expected = graph.value(root).unwrap();
    graph.backward_with(root, 1.0, &mut [params.gradients()]).unwrap();
    assert_close(&[loss], &[expected]);
    assert_close(&found, params.grads());
}

#[test]
fn a_batch_is_the_mean_of_its_samples() {
    let mut params = Parameters::<f64>::new(2);
    let model = CharMlp::new(&mut params, SMALL, None).unwrap();
    // Frozen parts, and a tensor that the model does not read.
    params.tensor(&[10], None, Init::Constant(1.0), true).unwrap();
    params.freeze(model.embedding().row(1).unwrap()).unwrap();
    params.freeze(model.hidden().weight().slice().slice(3, 40).unwrap()).unwrap();
    let (x, y) = (tokens(9 * 3, 5), tokens(9, 7));
    let mut oracle = Oracle::new();
    let (mut mean_loss, mut mean) = (0.0, vec![0.0; params.len()]);
    for k in 0..9 {
        let sample = char_batch(&x[3 * k..3 * k + 3], &y[k..k + 1]);
        mean_loss += oracle.gradient(&model, &mut params, sample, None).unwrap() / 9.0;
        mean.iter_mut().zip(params.grads()).for_each(|(m, g)| *m += g / 9.0);
    }
    // Existing gradients are overwritten; only those of frozen numbers stay.
    for range in [0..5, 10..20, 175..params.len()] {
        params.grads_mut()[range].fill(f64::NAN);
    }
    let loss = oracle.gradient(&model, &mut params, char_batch(&x, &y), None).unwrap();
    assert_close(&[loss], &[mean_loss]);
    assert_close(params.grads(), &mean);
    assert_close(&[oracle.loss(&model, &params, char_batch(&x, &y), None).unwrap()], &[loss]);
    let mut losses = [0.0; 9];
    oracle.losses(&model, &params, char_batch(&x, &y), &mut losses, None).unwrap();
    assert_close(&[losses.iter().sum::<f64>() / 9.0], &[loss]);

    let mut sum = Oracle::with_total(Total::Sum);
    let total = sum.gradient(&model, &mut params, char_batch(&x, &y), None).unwrap();
    assert_close(&[total / 9.0], &[loss]);
    assert_close(&params.grads().iter().map(|g| g / 9.0).collect::<Vec<_>>(), &mean);
}

#[test]
fn the_same_bits_twice_and_from_another_oracle() {
    let mut params = Parameters::<f32>::new(5);
    let model = CharMlp::new(&mut params, CharMlpShape::default(), None).unwrap();
    let (x, y) = (tokens(16 * 8, 27), tokens(8, 27));
    let batch = Batch::new(Input::Tokens(&x), Label::Classes(&y), 8).unwrap();
    let mut bits = Vec::new();
    let mut oracle = Oracle::new();
    for fresh in [false, false, true] {
        if fresh {
            oracle = Oracle::new();
        }
        let loss = oracle.gradient(&model, &mut params, batch, None).unwrap();
        let grads: Vec<u32> = params.grads().iter().map(|g| g.to_bits()).collect();
        bits.push((loss.to_bits(), grads));
    }
    assert!(bits[0] == bits[1] && bits[0] == bits[2]);
}

#[test]
fn overwriting_has_the_bits_of_zeroing_and_adding() {
    let mut params = Parameters::<f32>::new(5);
    let model = CharMlp::new(&mut params, CharMlpShape::default(), None).unwrap();
    let (x, y) = (tokens(16 * 3, 27), tokens(3, 27));
    let batch = Batch::new(Input::Tokens(&x), Label::Classes(&y), 3).unwrap();
    Oracle::new().gradient(&model, &mut params, batch, None).unwrap();
    let found: Vec<u32> = params.grads().iter().map(|g| g.to_bits()).collect();
    params.zero_grad();
    let mut graph = Graph::<f32>::new();
    for k in 0..3 {
        graph.clear().unwrap();
        let (x, y) = (Input::Tokens(&x[16 * k..16 * k + 16]), Label::Classes(&y[k..k + 1]));
        let loss = model.loss(&mut graph, &params, x, y).unwrap();
        graph.backward_with(loss, 1.0 / 3.0, &mut [params.gradients()]).unwrap();
    }
    assert_eq!(found, params.grads().iter().map(|g| g.to_bits()).collect::<Vec<_>>());
}

#[test]
fn a_step_during_the_sweep_is_a_gradient_and_a_step() {
    for frozen in [None, Some(0..27 * 64), Some(30..40), Some(2000..3000), Some(60_000..69_083)] {
        for n in [1, 2, 7, 16, 30, 64] {
            let make = || {
                let mut params = Parameters::<f32>::new(5);
                let model = CharMlp::new(&mut params, CharMlpShape::default(), None).unwrap();
                if let Some(frozen) = frozen.clone() {
                    params.freeze(params.slice(frozen).unwrap()).unwrap();
                }
                (params, model)
            };
            let ((mut apart, model), (mut during, model_during)) = (make(), make());
            let (x, y) = (tokens(16 * n, 27), tokens(n, 27));
            let batch = Batch::new(Input::Tokens(&x), Label::Classes(&y), n).unwrap();
            let (mut oracle, mut sgd) = (Oracle::new(), Sgd::new(0.05).unwrap());
            for _ in 0..5 {
                let loss = oracle.gradient(&model, &mut apart, batch, None).unwrap();
                sgd.step(&mut apart).unwrap();
                let same = oracle.step(&model_during, &mut during, batch, 0.05, None).unwrap();
                assert!((loss - same).abs() <= 1e-5 * loss, "{loss} and {same}");
            }
            // A backward pass rounds an embedding at each use: some 40 times per step in a batch of 64.
            let bound = if n < 16 { 1e-6 } else { 4e-6 };
            for (a, b) in apart.values().iter().zip(during.values()) {
                assert!((a - b).abs() <= bound, "{a} and {b}");
            }
            assert!(oracle.step(&model, &mut apart, batch, f64::NAN, None).is_err());
        }
    }
}

#[test]
fn training_reduces_the_loss() {
    let mut params = Parameters::<f32>::new(7);
    let model = CharMlp::new(&mut params, CharMlpShape::default(), None).unwrap();
    let (x, y) = (tokens(16 * 32, 27), tokens(32, 27));
    let batch = Batch::new(Input::Tokens(&x), Label::Classes(&y), 32).unwrap();
    let (mut oracle, mut sgd) = (Oracle::new(), Sgd::new(0.1).unwrap());
    let first = oracle.loss(&model, &params, batch, None).unwrap();
    for _ in 0..60 {
        oracle.gradient(&model, &mut params, batch, None).unwrap();
        sgd.step(&mut params).unwrap();
    }
    let last = oracle.loss(&model, &params, batch, None).unwrap();
    assert!(first > 2.5 && last < 0.3, "{first} to {last}");
}

#[test]
fn an_mlp_takes_classes_probabilities_and_numbers() {
    for activation in Activation::ALL {
        let mut params = Parameters::<f64>::new(11);
        let model = Mlp::new(&mut params, &[3, 4, 2], true, activation, Some("mlp")).unwrap();
        assert_eq!((model.n_parameters(), params.names().count()), (26, 4));
        let x = [0.1, -0.4, 1.0, 0.7, 0.2, -0.9];
        let input = Input::Numbers(&x[..]);
        for (y, n) in [
            (Label::Classes(&[1, 0]), 2),
            (Label::Probabilities(&[0.0, 1.0, 1.0, 0.0]), 2),
            (Label::Numbers(&[0.3, -0.2, 0.5, 0.1]), 2),
        ] {
            let batch = Batch::new(input, y, n).unwrap();
            let mut oracle = Oracle::new();
            oracle.gradient(&model, &mut params, batch, None).unwrap();
            let grads = params.grads().to_vec();
            for (k, &grad) in grads.iter().enumerate() {
                let at = params.values()[k];
                let mut loss = |value: f64, params: &mut Parameters<'_, f64>| {
                    params.values_mut()[k] = value;
                    oracle.loss(&model, params, batch, None).unwrap()
                };
                let h = 1e-6;
                let slope = (loss(at + h, &mut params) - loss(at - h, &mut params)) / (2.0 * h);
                params.values_mut()[k] = at;
                assert!((slope - grad).abs() < 1e-7, "{activation:?} {y:?} {k}: {} instead of {slope}", grad);
            }
        }
    }
}

#[test]
fn unsupported_samples_are_refused_before_anything_is_written() {
    let mut params = Parameters::<f64>::new(0);
    let model = CharMlp::new(&mut params, SMALL, None).unwrap();
    params.grads_mut().fill(3.0);
    let mut oracle = Oracle::new();
    let mut refused = |x: &[u32], y: &[u32]| {
        let batch = Batch::new(Input::Tokens(x), Label::Classes(y), 2).unwrap();
        oracle.gradient(&model, &mut params, batch, None).unwrap_err()
    };
    assert!(matches!(refused(&[0, 1, 2, 3, 4, 7], &[0, 0]), Error::OutOfRange { found: 7, max: 6, .. }));
    assert!(matches!(refused(&[0, 1, 2, 3, 4, 5], &[0, 9]), Error::OutOfRange { found: 9, .. }));
    assert!(matches!(refused(&[0, 1, 2, 3], &[0, 1]), Error::BadArgument { .. }));
    assert!(matches!(refused(&[0, 1, 2, 3, 4, 5], &[0, 1, 2, 3]), Error::BadArgument { .. }));
    let numbers = Batch::new(Input::Numbers(&[0.0; 6]), Label::Classes(&[0, 1]), 2).unwrap();
    assert!(oracle.gradient(&model, &mut params, numbers, None).is_err());
    let mut other = Parameters::<f64>::new(0);
    let of_other = CharMlp::new(&mut other, SMALL, None).unwrap();
    let batch = char_batch(&[0, 1, 2], &[0]);
    assert_eq!(oracle.gradient(&of_other, &mut params, batch, None), Err(Error::MissingParameters));
    assert!(params.grads().iter().all(|&g| g == 3.0));
    assert!(Batch::<f64>::new(Input::Tokens(&[]), Label::Classes(&[]), 0).is_err());
    assert!(Batch::<f64>::new(Input::Tokens(&[1, 2, 3]), Label::Classes(&[0, 1]), 2).is_err());
}

#[test]
fn an_interruption_leaves_no_gradient() {
    let mut params = Parameters::<f64>::new(0);
    let model = CharMlp::new(&mut params, SMALL, None).unwrap();
    let before = params.values().to_vec();
    let (x, y) = (tokens(300, 7), tokens(100, 7));
    // Before the samples that do not fill a block of 64.
    let mut left = 3;
    let mut stop = || {
        left -= 1;
        left == 0
    };
    let mut oracle = Oracle::new();
    let result = oracle.gradient(&model, &mut params, char_batch(&x, &y), Some(&mut stop));
    assert_eq!(result, Err(Error::Interrupted));
    assert!(params.grads().iter().all(|&g| g == 0.0));
    assert_eq!(params.values(), before);
}

#[test]
fn losses_that_are_not_finite_are_results() {
    let mut params = Parameters::<f64>::new(0);
    let model = CharMlp::new(&mut params, SMALL, None).unwrap();
    let at = model.output().bias().unwrap().slice().range().start;
    params.values_mut()[at] = f64::NAN;
    let loss = Oracle::new().gradient(&model, &mut params, char_batch(&[0, 1, 2], &[0]), None).unwrap();
    assert!(loss.is_nan());
}

#[test]
fn a_model_that_does_not_fit_appends_nothing() {
    let (mut values, mut grads) = (vec![0.0; 50], vec![0.0; 50]);
    let mut params = Parameters::<f64>::in_buffers(&mut values, &mut grads, 0);
    assert!(CharMlp::new(&mut params, SMALL, Some("m")).is_err());
    assert_eq!((params.len(), params.names().count()), (0, 0));
    let first = Linear::new(&mut params, 2, 3, true, Activation::Relu, Some("l")).unwrap();
    let values = params.values().to_vec();
    assert!(Linear::new(&mut params, 2, 3, true, Activation::Relu, Some("l")).is_err());
    assert_eq!(params.len(), first.n_parameters());
    // The refused layer has not advanced the random generator.
    let mut again = Parameters::<f64>::new(0);
    Linear::new(&mut again, 2, 3, true, Activation::Relu, None).unwrap();
    assert_eq!(again.values(), values);
    let shapes = [CharMlpShape { vocab: 0, ..SMALL }, CharMlpShape { hidden: 0, ..SMALL }];
    assert!(shapes.iter().all(|&shape| CharMlp::new(&mut again, shape, None).is_err()));
    assert!(Mlp::new(&mut again, &[3], true, Activation::Tanh, None).is_err());
}

/// A gradient needs no value of the loss: the same bits for one sample, lanes, and chunks of a batch.
#[test]
fn a_gradient_without_the_loss_has_the_same_bits() {
    let mut params = Parameters::<f32>::new(3);
    let model = CharMlp::new(&mut params, SMALL, None).unwrap();
    let mut oracle = Oracle::new();
    for n in [1, 3, 16, 100, 700] {
        let (x, y) = (tokens(3 * n, 7), tokens(n, 7));
        let batch = Batch::new(Input::Tokens(&x), Label::Classes(&y), n).unwrap();
        oracle.skip_losses(false);
        let loss = oracle.gradient(&model, &mut params, batch, None).unwrap();
        let wanted = params.grads().to_vec();
        oracle.skip_losses(true);
        assert!(loss.is_finite() && oracle.gradient(&model, &mut params, batch, None).unwrap().is_nan());
        assert!(params.grads().iter().zip(&wanted).all(|(a, b)| a.to_bits() == b.to_bits()), "{n} samples");
        assert!(oracle.loss(&model, &params, batch, None).unwrap().is_finite(), "asked for, a loss is computed");
    }
    let mut params = Parameters::<f64>::new(4);
    let model = Mlp::new(&mut params, &[2, 3], true, Activation::Tanh, None).unwrap();
    let (x, y) = ([0.5, -1.0, 2.0, 0.25], [1.0, 0.0, -1.0, 0.5, 2.0, 1.5]);
    let batch = Batch::new(Input::Numbers(&x), Label::Numbers(&y), 2).unwrap();
    let mut oracle = Oracle::new();
    oracle.gradient(&model, &mut params, batch, None).unwrap();
    let wanted = params.grads().to_vec();
    oracle.skip_losses(true);
    assert!(oracle.gradient(&model, &mut params, batch, None).unwrap().is_nan());
    assert_eq!(params.grads(), wanted);
}
