//! Softmax with cross-entropy, on one sample and on lanes.

use crate::support::{Float, Numbers, level_stays, near, on_every_level, wide};
use burtorch_core::kernels::{
    Mode, softmax_cross_entropy_backward as backward, softmax_cross_entropy_backward_lanes as backward_lanes,
    softmax_cross_entropy_forward as forward, softmax_cross_entropy_forward_lanes as forward_lanes,
    softmax_cross_entropy_soft_backward as soft_backward,
    softmax_cross_entropy_soft_backward_lanes as soft_backward_lanes,
    softmax_cross_entropy_soft_forward as soft_forward, softmax_cross_entropy_soft_forward_lanes as soft_forward_lanes,
};

const SIZES: [usize; 8] = [1, 2, 7, 16, 27, 33, 65, 100];

fn softmax(z: &[f64]) -> (Vec<f64>, f64) {
    let max = z.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = z.iter().map(|z| (z - max).exp()).sum();
    let p = z.iter().map(|z| (z - max).exp() / total).collect();
    (p, max + total.ln())
}

/// Loss, then probabilities, then gradients, of the class target and of the target vector.
struct Expected {
    loss: [f64; 2],
    probs: Vec<f64>,
    grads: [Vec<f64>; 2],
}

fn expected(z: &[f64], class: usize, t: &[f64], g: f64) -> Expected {
    let (probs, lse) = softmax(z);
    let total: f64 = t.iter().sum();
    let hard = |k: usize| g * (probs[k] - f64::from(u8::from(k == class)));
    let soft = |k: usize| g * (probs[k] * total - t[k]);
    let grads = [(0..z.len()).map(hard).collect(), (0..z.len()).map(soft).collect()];
    let soft_loss = z.iter().zip(t).map(|(z, t)| t * (lse - z)).sum();
    Expected { loss: [lse - z[class], soft_loss], probs, grads }
}

impl Expected {
    /// `out`: hard loss, soft loss, probabilities, hard gradient, soft gradient added to `before`.
    fn check<E: Float>(&self, out: &[E], before: &[f64]) {
        let n = self.probs.len();
        // Each step adds one or two roundings: sums of n terms, the shift, the exponential.
        let tolerance = n as f64 + 40.0;
        near(out[0], self.loss[0], 10.0 + self.loss[0].abs(), tolerance, "loss");
        near(out[1], self.loss[1], n as f64 * 10.0, tolerance, "soft loss");
        for k in 0..n {
            near(out[2 + k], self.probs[k], self.probs[k], tolerance, "probability");
            near(out[2 + n + k], self.grads[0][k], 2.0, tolerance, "gradient");
            let soft = before[k] + self.grads[1][k];
            near(out[2 + 2 * n + k], soft, 4.0 + 2.0 * n as f64, tolerance, "soft gradient");
        }
    }
}

fn one_sample<E: Float>() {
    for n in SIZES {
        let mut numbers = Numbers::new(n as u64);
        let z: Vec<E> = numbers.take(n).into_iter().map(|z: E| z * E::of(5.0)).collect();
        let (class, g) = ((n * 2 / 3) as u32, E::of(0.7));
        let (t, before) = (numbers.take::<E>(n), numbers.take::<E>(n));
        let exact = expected(&wide(&z), class as usize, &wide(&t), 0.7_f64);
        on_every_level(
            || {
                let mut probs = vec![E::of(9.0); n];
                let (mut hard, mut soft) = (vec![E::of(9.0); n], before.clone());
                let losses = [forward(&z, class, &mut probs), soft_forward(&z, &t, &mut probs)];
                backward(g, &probs, class, &mut hard, Mode::Set);
                soft_backward(g, &probs, &t, &mut soft, Mode::Add);
                [&losses[..], &probs, &hard, &soft].concat()
            },
            |out| exact.check(out, &wide(&before)),
        );
    }
}

fn lanes<E: Float, const L: usize>() {
    for n in SIZES {
        let mut numbers = Numbers::new(n as u64);
        let z: Vec<E> = numbers.take(n * L).into_iter().map(|z: E| z * E::of(5.0)).collect();
        let classes: [u32; L] = std::array::from_fn(|l| ((l * 5 + 1) % n) as u32);
        let (t, before) = (numbers.take::<E>(n * L), numbers.take::<E>(n * L));
        let g: [E; L] = std::array::from_fn(|l| E::of(if l == 1 { 0.0 } else { 0.7 }));
        let lane = |x: &[E], l: usize| -> Vec<E> { x.iter().skip(l).step_by(L).copied().collect() };
        on_every_level(
            || {
                let mut probs = vec![E::of(9.0); n * L];
                let (mut hard, mut soft) = (vec![E::of(9.0); n * L], before.clone());
                let hard_loss = forward_lanes::<E, L>(&z, &classes, &mut probs);
                let soft_loss = soft_forward_lanes::<E, L>(&z, &t, &mut probs);
                backward_lanes::<E, L>(&g, &probs, &classes, &mut hard, Mode::Set);
                soft_backward_lanes::<E, L>(&g, &probs, &t, &mut soft, Mode::Add);
                [&hard_loss[..], &soft_loss, &probs, &hard, &soft].concat()
            },
            |out| {
                for l in 0..L {
                    let (z, t) = (wide(&lane(&z, l)), wide(&lane(&t, l)));
                    let exact = expected(&z, classes[l] as usize, &t, g[l].into());
                    exact.check(&lane(out, l), &wide(&lane(&before, l)));
                }
            },
        );
    }
}

#[test]
fn one_sample_matches() {
    one_sample::<f32>();
    one_sample::<f64>();
}

#[test]
fn lanes_match() {
    lanes::<f32, 4>();
    lanes::<f32, 8>();
    lanes::<f32, 16>();
    lanes::<f64, 8>();
}

#[test]
fn adding_continues_the_gradient() {
    let _turn = level_stays();
    let (mut probs, mut once, mut twice) = ([0.0_f64; 3], [0.0; 3], [0.0; 3]);
    forward(&[1.0, 2.0, -1.0], 2, &mut probs);
    backward(1.0, &probs, 2, &mut once, Mode::Set);
    backward(1.0, &probs, 2, &mut twice, Mode::Add);
    backward(1.0, &probs, 2, &mut twice, Mode::Add);
    assert_eq!(twice, once.map(|g| 2.0 * g));
}

#[test]
fn large_logits_do_not_overflow() {
    for shift in [1e4_f32, -1e4] {
        let mut probs = [0.0; 3];
        let loss = forward(&[shift, shift, shift], 1, &mut probs);
        assert!((loss - 3.0_f32.ln()).abs() < 1e-6);
        let mut probs = [0.0; 12];
        let losses = forward_lanes::<f32, 4>(&[shift; 12], &[0, 1, 2, 0], &mut probs);
        assert!(losses.iter().all(|loss| (loss - 3.0_f32.ln()).abs() < 1e-6));
    }
    let mut probs = [0.0_f32; 2];
    assert!(forward(&[f32::NAN, 0.0], 1, &mut probs).is_nan());
}
