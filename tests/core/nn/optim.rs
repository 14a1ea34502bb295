//! Optimisers against their formulas, and seeded orders.

use burtorch_core::optim::Shuffle;
use burtorch_core::{Init, Parameters, Sgd};

use crate::expand::assert_close;

/// Parameters of 37 numbers, 5..20 of them frozen, with some gradients.
fn setting() -> Parameters<'static, f64> {
    let mut params = Parameters::new(1);
    let t = params.tensor(&[37], None, Init::Normal(0.0, 1.0), true).unwrap();
    params.freeze(t.slice().slice(5, 20).unwrap()).unwrap();
    set_grads(&mut params, 0);
    params
}

fn set_grads(params: &mut Parameters<'_, f64>, round: usize) {
    let frozen = 5..20;
    for (k, g) in params.grads_mut().iter_mut().enumerate() {
        *g = if frozen.contains(&k) { 0.0 } else { ((k * 7 + round * 3) % 11) as f64 - 5.0 };
    }
}

#[test]
fn sgd_with_all_its_options_follows_the_formula() {
    for (momentum, nesterov) in [(0.0, false), (0.9, false), (0.9, true)] {
        for decay in [0.0, 0.01] {
            let mut params = setting();
            let mut sgd = Sgd::with_momentum(0.1, momentum, nesterov, decay).unwrap();
            let mut x = params.values().to_vec();
            let mut v = vec![0.0; x.len()];
            for round in 0..4 {
                set_grads(&mut params, round);
                for k in (0..x.len()).filter(|k| !(5..20).contains(k)) {
                    let g = params.grads()[k] + decay * x[k];
                    v[k] = momentum * v[k] + g;
                    x[k] -= 0.1 * if nesterov { g + momentum * v[k] } else { v[k] };
                }
                sgd.step(&mut params).unwrap();
                assert_close(params.values(), &x);
            }
        }
    }
}

#[test]
fn rates_that_make_no_sense_are_refused() {
    for lr in [-0.1, f64::NAN, f64::INFINITY] {
        assert!(Sgd::<f32>::new(lr).is_err());
    }
    assert!(Sgd::<f32>::with_momentum(0.1, 1.0, false, 0.0).is_err());
    assert!(Sgd::<f32>::with_momentum(0.1, 0.0, true, 0.0).is_err());
    assert!(Sgd::<f32>::with_momentum(0.1, 0.0, false, -1.0).is_err());
    let mut sgd = Sgd::<f32>::new(0.1).unwrap();
    assert!(sgd.set_lr(f64::NAN).is_err());
    assert_eq!(sgd.lr(), 0.1);
}

#[test]
fn a_seed_gives_one_order_and_each_pass_another() {
    let (mut a, mut b) = (Shuffle::new(1000, 4), Shuffle::new(1000, 4));
    let first = a.next_pass().to_vec();
    assert_eq!(first, b.next_pass());
    assert_ne!(first, a.next_pass());
    assert_ne!(first, Shuffle::new(1000, 5).next_pass());
    let mut sorted = first;
    sorted.sort();
    assert!(sorted.iter().copied().eq(0..1000));
}
