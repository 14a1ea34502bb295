//! Optimisers against their formulas, and seeded orders.

use burtorch_core::optim::{Adam, AdamRates, Course, Schedule, Shuffle, clip_grad_norm};
use burtorch_core::{Init, Parameters, Sgd};

use super::expand::assert_close;

/// Parameters of 37 numbers, of which 5..20 are frozen, with some gradients.
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

/// Five numbers after five steps with gradients `0.3 (((7 k + 3 t) mod 11) - 5)`.
fn five_steps(mut step: impl FnMut(&mut Parameters<'_, f64>)) -> Vec<f64> {
    let mut params = Parameters::<f64>::new(0);
    params.tensor(&[5], None, Init::Constant(0.0), true).unwrap();
    params.values_mut().copy_from_slice(&[1.0, -2.0, 0.5, 3.0, 0.0]);
    for t in 0..5 {
        for (k, g) in params.grads_mut().iter_mut().enumerate() {
            *g = (((k * 7 + t * 3) % 11) as f64 - 5.0) * 0.3;
        }
        step(&mut params);
    }
    params.values().to_vec()
}

/// Reference figures from PyTorch 2.13 in float64.
#[test]
fn steps_are_pytorchs() {
    let sgd = |momentum, nesterov, decay| {
        let mut sgd = Sgd::with_momentum(0.1, momentum, nesterov, decay).unwrap();
        five_steps(|params| sgd.step(params).unwrap())
    };
    let adam = |rates: AdamRates| {
        let mut adam = Adam::new(AdamRates { lr: 0.1, ..rates }).unwrap();
        five_steps(|params| adam.step(params).unwrap())
    };
    let plain = AdamRates::default();
    assert_close(&sgd(0.0, false, 0.0), &[1.18, -2.21, 0.56, 3.0, -0.06]);
    assert_close(
        &sgd(0.0, false, 0.2),
        &[1.0723355408000004, -2.0079264832, 0.511418728, 2.7199144464, -0.05596608480000001],
    );
    assert_close(
        &sgd(0.9, false, 0.2),
        &[1.3241903168000002, -2.0661839872, 0.44185628800000004, 1.9583444544000002, -0.19152574080000004],
    );
    assert_close(
        &sgd(0.9, true, 0.2),
        &[1.3310998104141922, -2.056322497857568, 0.4611978657359199, 1.8452861563875358, -0.21136949094235202],
    );
    assert_close(
        &adam(plain),
        &[1.279622806687568, -2.2968430333552723, 0.6081274055921185, 2.8366420811452744, -0.19939162696786933],
    );
    assert_close(
        &adam(AdamRates { betas: (0.8, 0.95), eps: 1e-6, weight_decay: 0.2, ..plain }),
        &[1.1869600693765037, -2.1432282029610445, 0.5428573376385839, 2.691401976147311, -0.1787686589375936],
    );
    assert_close(
        &adam(AdamRates { weight_decay: 0.2, decoupled: true, ..plain }),
        &[1.168191442695765, -2.089584371712249, 0.5523690525925178, 2.558627895677198, -0.18637287200819283],
    );
    let mut sgd = Sgd::new(0.1).unwrap();
    let clipped = five_steps(|params| {
        clip_grad_norm(params, 1.5).unwrap();
        sgd.step(params).unwrap();
    });
    let expected =
        [1.1032701086129184, -2.131428078840366, 0.539056656345102, 2.9947297816325094, -0.025156795922714498];
    assert_close(&clipped, &expected);
}

#[test]
fn schedules_are_pytorchs() {
    let rates = |course| (0..8).map(|k| Schedule::new(0.3, 0, course).unwrap().rate(k)).collect::<Vec<_>>();
    assert_close(
        &rates(Course::Cosine { total: 7, last: 0.02 }),
        &[
            0.3,
            0.28613564150633863,
            0.24728857226022263,
            0.19115293075388395,
            0.12884706924611597,
            0.0727114277397773,
            0.03386435849366133,
            0.02,
        ],
    );
    let steps = Course::Steps { every: 3, factor: 0.4 };
    assert_close(&rates(steps), &[0.3, 0.3, 0.3, 0.12, 0.12, 0.12, 0.048, 0.048]);
    let schedule = Schedule::new(0.3, 3, Course::Cosine { total: 4, last: 0.0 }).unwrap();
    assert_close(&[schedule.rate(0), schedule.rate(2), schedule.rate(3), schedule.rate(100)], &[0.1, 0.3, 0.3, 0.0]);
    assert!(Schedule::new(f64::NAN, 0, Course::Constant).is_err());
    assert!(Schedule::new(0.1, 0, Course::Cosine { total: 0, last: 0.0 }).is_err());
}

#[test]
fn adam_leaves_frozen_numbers_and_goes_on_from_its_saved_state() {
    let mut params = setting();
    let before = params.values().to_vec();
    let mut adam = Adam::new(AdamRates { weight_decay: 0.1, decoupled: true, ..AdamRates::default() }).unwrap();
    adam.step(&mut params).unwrap();
    assert_eq!(params.values()[5..20], before[5..20]);
    assert!((0..5).chain(20..37).all(|k| params.values()[k] != before[k]));
    let saved = adam.to_bytes().unwrap();
    let after_one = params.values().to_vec();
    adam.step(&mut params).unwrap();
    let after_two = params.values().to_vec();
    params.values_mut().copy_from_slice(&after_one);
    let mut other = Adam::new(AdamRates::default()).unwrap();
    other.load_bytes(&params, &saved).unwrap();
    other.step(&mut params).unwrap();
    assert_eq!(params.values(), after_two);
    assert!(Adam::<f64>::new(AdamRates { betas: (1.0, 0.9), ..AdamRates::default() }).is_err());
    assert!(Adam::<f64>::new(AdamRates { lr: -1.0, ..AdamRates::default() }).is_err());
}
