//! The GPT of the paper: its layout, its gradient against recorded figures of PyTorch, and what it refuses.

use burtorch_core::nn::{Gpt, GptShape, Input, Label};
use burtorch_core::simd::{available_levels, force_level};
use burtorch_core::{Batch, LaneFloat, Oracle, Parameters};

/// Loss, Euclidean norm, sum of magnitudes and a weighted sum of the gradient, computed by PyTorch in float64 (script
/// `benches/python/reference_gpt.py`) for the weights and samples of [`setting`].
const LOSS: f64 = 5.079524732278501;
const SUMS: [f64; 3] = [15.654150872008012, 1474.983815767223, -0.0008211749894915243];
const ENTRIES: [(usize, f64); 12] = [
    (0, -0.01206360113840118),
    (100, 0.0),
    (1700, 0.023781472210330317),
    (1752, 0.00469820086441618),
    (1776, -0.017233280720943867),
    (1800, -0.0027938272922980543),
    (3500, 0.009711370707183097),
    (4200, -0.0010844382645103289),
    (8000, -0.036271650720601886),
    (30000, 0.00490288493285131),
    (44700, -0.14686176196834494),
    (46288, 0.013373726608629056),
];

/// The paper's model with weights `sin(0.37 k + 0.1)/4`, gains larger by one, and three samples.
fn setting<E: LaneFloat>() -> (Gpt, Parameters<'static, E>, Vec<u32>, Vec<u32>) {
    let mut params = Parameters::<E>::new(0);
    let model = Gpt::new(&mut params, GptShape::default(), None).unwrap();
    for (k, x) in params.values_mut().iter_mut().enumerate() {
        let in_block = (k.wrapping_sub(1752)) % 7152;
        let gain = (1752..44664).contains(&k) && (in_block < 24 || (2376..2400).contains(&in_block));
        *x = E::from_f64((k as f64 * 0.37 + 0.1).sin() * 0.25 + f64::from(u8::from(gain)));
    }
    let x = (0..24).map(|k| (k * 31 + k / 8) % 65).collect();
    let y = (0..24).map(|k| (k * 17 + 5) % 65).collect();
    (model, params, x, y)
}

fn gradient<E: LaneFloat>() -> (f64, Vec<f64>) {
    let (model, mut params, x, y) = setting::<E>();
    let batch = Batch::new(Input::Tokens(&x), Label::Classes(&y), 3).unwrap();
    let loss = Oracle::new().gradient(&model, &mut params, batch, None).unwrap();
    (loss, params.grads().iter().map(|g| g.to_f64()).collect())
}

fn check(loss: f64, grads: &[f64], tolerance: f64) {
    assert!((loss - LOSS).abs() <= tolerance * LOSS, "loss {loss}");
    let norm = grads.iter().map(|g| g * g).sum::<f64>().sqrt();
    let weighted: f64 = grads.iter().enumerate().map(|(k, g)| g * (k as f64 * 0.11).cos()).sum();
    let found = [norm, grads.iter().map(|g| g.abs()).sum(), weighted];
    for (found, expected) in found.iter().zip(SUMS) {
        assert!((found - expected).abs() <= tolerance * expected.abs().max(SUMS[0]), "{found} instead of {expected}");
    }
    for (k, expected) in ENTRIES {
        assert!((grads[k] - expected).abs() <= tolerance, "gradient {k}: {} instead of {expected}", grads[k]);
    }
}

#[test]
fn the_gradient_is_pytorchs_in_both_precisions() {
    let (loss, grads) = gradient::<f64>();
    check(loss, &grads, 1e-12);
    let (loss, grads) = gradient::<f32>();
    check(loss, &grads, 1e-5);
}

#[cfg(feature = "labels")]
#[test]
fn the_papers_configuration_has_46_289_parameters_in_the_stated_order() {
    let mut params = Parameters::<f32>::new(0);
    let model = Gpt::new(&mut params, GptShape::default(), Some("gpt")).unwrap();
    assert_eq!((model.n_parameters(), params.len()), (46_289, 46_289));
    let start = |name: &str| params.named(name).unwrap().slice().range().start;
    assert_eq!(start("gpt.tokens"), 0);
    assert_eq!(start("gpt.positions"), 1_560);
    assert_eq!(start("gpt.blocks.0.norm1.weight"), 1_752);
    assert_eq!(start("gpt.blocks.0.attention.query.weight"), 1_800);
    assert_eq!(start("gpt.blocks.0.attention.output.bias"), 4_104);
    assert_eq!(start("gpt.blocks.0.norm2.weight"), 4_128);
    assert_eq!(start("gpt.blocks.0.up.weight"), 4_176);
    assert_eq!(start("gpt.blocks.5.down.bias"), 44_640);
    assert_eq!(start("gpt.head.weight"), 44_664);
    assert_eq!(start("gpt.head.bias"), 46_224);
}

#[test]
fn every_number_is_configurable_and_shapes_that_make_no_sense_are_refused() {
    let shape =
        GptShape { vocab: 11, context: 19, layers: 2, heads: 2, width: 10, expansion: 3, eps: 1e-6, final_norm: true };
    let mut params = Parameters::<f64>::new(0);
    let model = Gpt::new(&mut params, shape, Some("g")).unwrap();
    let block = 2 * 20 + 4 * 100 + 10 + 2 * 300 + 30 + 10;
    assert_eq!(model.n_parameters(), 11 * 10 + 19 * 10 + 2 * block + 20 + 11 * 10 + 11);
    let (x, y): (Vec<u32>, Vec<u32>) = ((0..13).map(|k| k * 3 % 11).collect(), (0..13).map(|k| k * 5 % 11).collect());
    // A gradient agrees with differences of the loss.
    let mut oracle = Oracle::new();
    let batch = Batch::new(Input::Tokens(&x), Label::Classes(&y), 1).unwrap();
    oracle.gradient(&model, &mut params, batch, None).unwrap();
    let grads = params.grads().to_vec();
    for k in (0..params.len()).step_by(97) {
        let before = params.values()[k];
        let mut at = |h: f64| {
            params.values_mut()[k] = before + h;
            oracle.loss(&model, &params, batch, None).unwrap()
        };
        let slope = (at(1e-5) - at(-1e-5)) / 2e-5;
        params.values_mut()[k] = before;
        assert!((slope - grads[k]).abs() < 1e-7, "gradient {k}: {} instead of {slope}", grads[k]);
    }
    for wrong in [
        GptShape { vocab: 0, ..shape },
        GptShape { layers: 0, ..shape },
        GptShape { heads: 3, ..shape },
        GptShape { heads: 0, ..shape },
        GptShape { eps: f64::NAN, ..shape },
        GptShape { expansion: usize::MAX, ..shape },
    ] {
        let before = params.len();
        assert!(Gpt::new(&mut params, wrong, None).is_err());
        assert_eq!(params.len(), before);
    }
}

#[test]
fn invalid_samples_are_refused_before_anything_is_written() {
    let (model, mut params, x, y) = setting::<f32>();
    params.grads_mut().fill(7.0);
    let mut oracle = Oracle::new();
    let mut refused = |x: &[u32], y: &[u32], n: usize| {
        let batch = Batch::new(Input::Tokens(x), Label::Classes(y), n).unwrap();
        assert!(oracle.gradient(&model, &mut params, batch, None).is_err());
        assert!(params.grads().iter().all(|&g| g == 7.0));
    };
    let mut unknown = x.clone();
    unknown[23] = 65;
    refused(&unknown, &y, 3);
    refused(&x, &unknown, 3);
    refused(&x, &y[..3], 3);
    refused(&x, &y, 1);
}

#[test]
fn a_frozen_embedding_receives_nothing_and_the_rest_the_same() {
    let (model, mut params, x, y) = setting::<f32>();
    let batch = Batch::new(Input::Tokens(&x), Label::Classes(&y), 3).unwrap();
    let mut oracle = Oracle::new();
    oracle.gradient(&model, &mut params, batch, None).unwrap();
    let all = params.grads().to_vec();
    for frozen in [model.tokens(), model.positions()] {
        params.freeze(frozen.slice()).unwrap();
        oracle.gradient(&model, &mut params, batch, None).unwrap();
        let rest = model.positions().slice().range().end;
        assert!(params.grads()[frozen.slice().range()].iter().all(|&g| g == 0.0));
        assert_eq!(params.grads()[rest..], all[rest..]);
    }
}

#[test]
fn batches_have_the_same_bits_on_every_run_and_level_with_fused_arithmetic() {
    let _turn = crate::support::level_stays();
    let bits = |(loss, grads): (f64, Vec<f64>)| (loss.to_bits(), grads.iter().map(|g| g.to_bits()).collect::<Vec<_>>());
    let mut found = Vec::new();
    for at in available_levels().iter().filter(|at| at.has_fma()) {
        assert!(force_level(Some(*at)));
        found.push(bits(gradient::<f32>()));
        found.push(bits(gradient::<f32>()));
    }
    force_level(None);
    assert!(found.windows(2).all(|pair| pair[0] == pair[1]));
}
