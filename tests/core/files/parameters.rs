//! Parameters, optimisers and data in the checkpoint format: training goes on bit for bit.

use burtorch_core::io::{Contents, OptimiserState};
use burtorch_core::text::WordContexts;
use burtorch_core::{Error, Init, Parameters, Sgd};

use super::{damage, forged};

fn sample() -> Parameters<'static, f32> {
    let mut params = Parameters::<f32>::new(3);
    params.tensor(&[4, 3], Some("w"), Init::He, true).unwrap();
    params.tensor(&[5], None, Init::Normal(0.0, 1.0), false).unwrap();
    let embedding = params.tensor(&[2, 2, 2, 1], Some("an embedding"), Init::Glorot, true).unwrap();
    params.freeze(embedding.slice().slice(0, 3).unwrap()).unwrap();
    let mut trainable = Vec::new();
    params.for_each_trainable(|range| trainable.extend(range));
    trainable.into_iter().for_each(|k| params.grads_mut()[k] = k as f32 * 0.5);
    params
}

#[test]
fn parameters_are_restored_with_names_shapes_freezing_and_seed() {
    let mut params = sample();
    let file = params.to_bytes(Contents::Both).unwrap();
    let mut copy = Parameters::<f32>::from_bytes(&file).unwrap();
    assert_eq!((copy.values(), copy.grads(), copy.frozen()), (params.values(), params.grads(), params.frozen()));
    assert_eq!(copy.named("w").unwrap().shape().dims(), [4, 3]);
    assert_eq!(copy.to_bytes(Contents::Both).unwrap(), file);
    for p in [&mut params, &mut copy] {
        p.tensor(&[7], Some("later"), Init::Normal(0.0, 1.0), true).unwrap();
    }
    assert_eq!(copy.values(), params.values());
    let empty = Parameters::<f64>::new(0).to_bytes(Contents::Values).unwrap();
    assert!(Parameters::<f64>::from_bytes(&empty).unwrap().is_empty());
}

#[test]
fn loading_into_parameters_changes_numbers_only() {
    let file = sample().to_bytes(Contents::Both).unwrap();
    let mut params = sample();
    params.values_mut().fill(0.0);
    let w = params.named("w").unwrap().slice();
    params.freeze(w).unwrap();
    params.load_bytes(&file).unwrap();
    assert_eq!(params.values(), sample().values());
    assert!(params.grads()[..12].iter().all(|&g| g == 0.0), "frozen gradients stay 0");
    assert_eq!(params.grads()[20..], sample().grads()[20..]);
    let mut other = Parameters::<f32>::new(3);
    other.tensor(&[3, 4], Some("w"), Init::He, true).unwrap();
    other.tensor(&[13], Some("an embedding"), Init::He, true).unwrap();
    let before = other.values().to_vec();
    let refused = other.load_bytes(&file).unwrap_err().to_string();
    assert!(refused.contains("starts tensor \"an embedding\""), "{refused}");
    assert_eq!(other.values(), before);
    assert!(matches!(Parameters::<f64>::from_bytes(&file), Err(Error::Format { .. })));
}

#[test]
fn damaged_and_forged_parameters_are_refused_or_harmless() {
    let file = sample().to_bytes(Contents::Both).unwrap();
    for seed in 0..20_000 {
        let damaged = damage(&file, seed);
        assert!(damaged == file || Parameters::<f32>::from_bytes(&damaged).is_err(), "{seed}");
    }
    for at in 0..file.len() - burtorch_core::io::HEADER_BYTES {
        for byte in [0, 1, 2, 12, 64, 255] {
            if let Ok(mut params) = Parameters::<f32>::from_bytes(&forged(&file, |payload| payload[at] = byte)) {
                params.zero_grad();
                params.tensor(&[2], None, Init::He, true).unwrap();
            }
        }
    }
}

#[test]
fn an_optimiser_continues_bit_for_bit() {
    for momentum in [0.0, 0.9] {
        let mut params = sample();
        let mut sgd = Sgd::with_momentum(0.1, momentum, false, 0.01).unwrap();
        (0..3).for_each(|_| sgd.step(&mut params).unwrap());
        let (kept, state) = (params.to_bytes(Contents::Both).unwrap(), sgd.to_bytes().unwrap());
        (0..3).for_each(|_| sgd.step(&mut params).unwrap());
        let mut again = Parameters::<f32>::from_bytes(&kept).unwrap();
        let mut resumed = Sgd::new(9.0).unwrap();
        resumed.load_bytes(&again, &state).unwrap();
        (0..3).for_each(|_| resumed.step(&mut again).unwrap());
        assert_eq!(again.values(), params.values());
        assert_eq!((resumed.lr(), resumed.momentum(), resumed.weight_decay()), (0.1, momentum, 0.01));
        if momentum > 0.0 {
            let mut other = Parameters::<f32>::new(0);
            other.tensor(&[3], None, Init::He, true).unwrap();
            assert!(matches!(resumed.load_bytes(&other, &state), Err(Error::Format { .. })));
        }
        assert!(OptimiserState::<f32>::from_bytes(&state, "adamw", [3, 1, 1], params.len()).is_err());
        assert!((0..state.len()).all(|n| resumed.load_bytes(&again, &state[..n]).is_err()));
    }
}

#[test]
fn batches_go_on_bit_for_bit_with_the_same_data_only() {
    let words = ["anna", "hanna", "nan"];
    let data = |words: &[&'static str], seed| WordContexts::new(words.iter().copied(), 3, 0.2, seed).unwrap();
    let draw = |data: &mut WordContexts| {
        let (mut x, mut y) = ([0; 12], [0; 4]);
        data.batch(&mut x, &mut y).unwrap();
        (x, y)
    };
    let mut first = data(&words, 1);
    draw(&mut first);
    let state = first.to_bytes().unwrap();
    let mut second = data(&words, 1);
    second.load_bytes(&state).unwrap();
    assert_eq!((draw(&mut second), draw(&mut second)), (draw(&mut first), draw(&mut first)));
    assert!(matches!(data(&words[..2], 1).load_bytes(&state), Err(Error::Format { .. })));
    assert!(matches!(data(&words, 2).load_bytes(&state), Err(Error::Format { .. })));
}
