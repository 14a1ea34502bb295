//! A dense layer on groups of 8 tokens of f32, two inputs of a token side by side: against plain loops, and against the
//! kernels that take one input at a time.

use crate::support::{Numbers, Sum, level_stays, on_every_level};
use burtorch_core::kernels::tokens::AffinePull;
use burtorch_core::kernels::{TokenMath, affine_input_grad_add_lanes};

const L: usize = 8;
const GROUPS: usize = 2;
const INPUTS: [usize; 12] = [1, 2, 3, 5, 8, 9, 16, 23, 24, 25, 31, 50];
const OUTPUTS: [usize; 9] = [1, 2, 3, 4, 5, 12, 13, 19, 65];

fn each_shape(mut f: impl FnMut(usize, usize, Numbers)) {
    for n_in in INPUTS {
        for n_out in OUTPUTS {
            f(n_in, n_out, Numbers::new((n_in * 100 + n_out) as u64));
        }
    }
}

#[test]
fn outputs_are_sums_over_even_and_odd_inputs() {
    each_shape(|n_in, n_out, mut numbers| {
        let (w, b) = (numbers.take::<f32>(n_out * n_in), numbers.take::<f32>(n_out));
        let x = numbers.take::<f32>(GROUPS * n_in * L);
        for (bias, relu) in [(None, false), (Some(&b[..]), false), (Some(&b[..]), true)] {
            on_every_level(
                || {
                    let mut y = vec![9.0; GROUPS * n_out * L];
                    let mut scratch = vec![7.0; AffinePull::<f32>::scratch_len(GROUPS * L, n_in, n_out)];
                    f32::token_affine(n_in, &w, bias, relu, &x, &mut y, &mut scratch);
                    y
                },
                |y| {
                    for (k, &y) in y.iter().enumerate() {
                        let (g, o, t) = (k / (n_out * L), k / L % n_out, k % L);
                        let product = |i: usize| f64::from(w[o * n_in + i]) * f64::from(x[(g * n_in + i) * L + t]);
                        let sum = Sum::of((0..n_in).map(product)).plus(bias.map_or(0.0, |b| b[o].into()));
                        Sum { value: if relu { sum.value.max(0.0) } else { sum.value }, ..sum }.check(y, "forward");
                    }
                },
            );
        }
    });
}

/// Added to existing numbers.
fn input_grad(n_in: usize, w: &[f32], dy: &[f32], before: &[f32]) -> Vec<f32> {
    let n_out = w.len() / n_in;
    let mut dx = before.to_vec();
    let mut scratch = vec![0.0; AffinePull::<f32>::scratch_len(L, n_in, n_out)];
    f32::token_affine_pull(AffinePull {
        n_in,
        w,
        relu: false,
        dy,
        y: &vec![1.0; dy.len()],
        x: before,
        dx: Some(&mut dx),
        dw: None,
        db: None,
        scratch: &mut scratch,
    });
    dx
}

#[test]
fn input_gradients_have_the_bits_of_one_input_at_a_time() {
    each_shape(|n_in, n_out, mut numbers| {
        let w = numbers.take::<f32>(n_out * n_in);
        // Adding +0.0 removes the mark of "not reached", which would take another code path.
        let dy: Vec<f32> = numbers.take::<f32>(n_out * L).iter().map(|g| g + 0.0).collect();
        let before = numbers.take::<f32>(n_in * L);
        on_every_level(
            || input_grad(n_in, &w, &dy, &before),
            |dx| {
                for (k, &dx) in dx.iter().enumerate() {
                    let product = |o: usize| f64::from(w[o * n_in + k / L]) * f64::from(dy[o * L + k % L]);
                    Sum::of((0..n_out).map(product)).plus(before[k].into()).check(dx, "dx +=");
                }
            },
        );
        let _level = level_stays();
        let mut expected = before.clone();
        affine_input_grad_add_lanes::<f32, L>(&w, &dy, &mut expected);
        let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&input_grad(n_in, &w, &dy, &before)), bits(&expected), "{n_in} -> {n_out}");
    });
}
