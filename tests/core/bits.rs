//! The bits of gradients do not depend on the machine: one set for every level with fused multiply-add.
//!
//! With `BURTORCH_BITS` in the environment the numbers go to that file, for `make cross`, which compares machines. No
//! number that goes in comes from the mathematical library of a platform.

use crate::random::{Dice, Kind, recorded};
use crate::support::{Float, Numbers, level_stays};
use burtorch_core::nn::{CharMlp, CharMlpShape, Gpt, GptShape, Input, Label};
use burtorch_core::program::{Build, Carrier, Replay, Seeds};
use burtorch_core::simd::{available_levels, force_level};
use burtorch_core::{Batch, LaneFloat, LaneModel, Oracle, Parameters};

/// A name, and the numbers computed.
type Found = (String, Vec<f64>);

/// Fills weights with small numbers.
fn fill<E: Float + LaneFloat>(params: &mut Parameters<'_, E>) {
    let mut numbers = Numbers::new(7);
    params.values_mut().iter_mut().for_each(|x| *x = E::from_f64(numbers.next::<f64>() * 0.25));
}

/// The loss of three samples and its gradient.
fn trained<E: Float + LaneFloat, M: LaneModel<E>>(
    name: &str,
    model: &M,
    mut params: Parameters<'_, E>,
    batch: Batch<'_, E>,
) -> Found {
    fill(&mut params);
    let loss = Oracle::new().gradient(model, &mut params, batch, None).unwrap();
    let numbers = std::iter::once(loss).chain(params.grads().iter().map(|&g| g.into())).collect();
    (format!("{name} {}", std::any::type_name::<E>()), numbers)
}

fn models<E: Float + LaneFloat>() -> [Found; 2] {
    let x: Vec<u32> = (0..48).map(|k| (k * 31 + k / 8) % 27).collect();
    let y: Vec<u32> = (0..24).map(|k| (k * 17 + 5) % 27).collect();
    let mut params = Parameters::<E>::new(0);
    let gpt = Gpt::new(&mut params, GptShape::default(), None).unwrap();
    let batch = Batch::new(Input::Tokens(&x[..24]), Label::Classes(&y), 3).unwrap();
    let gpt = trained("GPT", &gpt, params, batch);
    let mut params = Parameters::<E>::new(0);
    let mlp = CharMlp::new(&mut params, CharMlpShape::default(), None).unwrap();
    let batch = Batch::new(Input::Tokens(&x), Label::Classes(&y[..3]), 3).unwrap();
    [gpt, trained("CharMLP", &mlp, params, batch)]
}

/// The value and the gradient of a random function, traced and replayed.
fn program<S: Carrier + burtorch_core::Float>(seed: u64) -> Found {
    let mut dice = Dice::new(seed + 1_000_000);
    let (n, n_ops) = (1 + dice.below(5), 1 + dice.below(60));
    let at: Vec<f64> = (0..n).map(|_| dice.between(-2.0, 2.0)).collect();
    let program = recorded::<S>(&at, seed, n_ops, Kind::Any);
    let mut replay = Replay::<S, 1>::new(&program, Build::Reverse(Seeds::One(0))).unwrap();
    replay.inputs_mut().iter_mut().zip(&at).for_each(|(slot, &x)| *slot = S::lit(x));
    replay.values();
    replay.reverse_one();
    let grads = (0..n).map(|k| replay.gradient(k, 0).to_f64());
    let numbers = std::iter::once(replay.output(0, 0).to_f64()).chain(grads).collect();
    (format!("program {seed} {}", std::any::type_name::<S>()), numbers)
}

/// Lines of text, each a name and bits; all NaNs count as equal.
fn lines() -> Vec<String> {
    let programs = (0..200).flat_map(|seed| [program::<f64>(seed), program::<f32>(seed)]);
    let all = models::<f64>().into_iter().chain(models::<f32>()).chain(programs);
    let bits = |x: &f64| format!(" {:x}", if x.is_nan() { f64::NAN } else { *x }.to_bits());
    all.map(|(name, numbers)| name + &numbers.iter().map(bits).collect::<String>()).collect()
}

#[test]
fn gradients_have_the_same_bits_at_every_level_that_fuses() {
    let _turn = level_stays();
    let mut first = None;
    for &level in available_levels().iter().filter(|level| level.has_fma()) {
        assert!(force_level(Some(level)));
        let found = lines();
        let expected = first.get_or_insert_with(|| found.clone());
        for (found, expected) in found.iter().zip(expected) {
            let name: String = expected.chars().take(20).collect();
            assert!(found == expected, "{name}: {} differs from the first level", level.name());
        }
    }
    force_level(None);
    if let (Some(path), Some(found)) = (std::env::var_os("BURTORCH_BITS"), first) {
        std::fs::write(path, found.join("\n")).unwrap();
    }
}
