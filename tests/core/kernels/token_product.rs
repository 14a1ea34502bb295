//! A dense layer over many tokens, which is computed by products of matrices: against plain sums, and against its groups one
//! by one.

use crate::support::{Float, Numbers, Sum, on_every_level};
use burtorch_core::kernels::tokens::AffinePull;
use burtorch_core::kernels::{Mode, TokenMath};
use burtorch_core::scalar::Scalar;

const L: usize = 8;
const SHAPES: [(usize, usize, usize); 4] = [(4, 64, 64), (5, 67, 63), (7, 33, 130), (9, 129, 32)];

fn forward<E: Float + TokenMath + Scalar<Elem = E>>() {
    for (groups, n_in, n_out) in SHAPES {
        let mut numbers = Numbers::new((n_in * 100 + n_out) as u64);
        let (w, b) = (numbers.take::<E>(n_out * n_in), numbers.take::<E>(n_out));
        let x = numbers.take::<E>(groups * n_in * L);
        for (bias, relu) in [(None, false), (Some(&b[..]), false), (Some(&b[..]), true)] {
            on_every_level(
                || {
                    let mut y = vec![E::of(9.0); groups * n_out * L];
                    let mut scratch = vec![E::of(7.0); AffinePull::<E>::scratch_len(groups * L, n_in, n_out)];
                    E::token_affine(n_in, &w, bias, relu, &x, &mut y, &mut scratch);
                    y
                },
                |y| {
                    for (k, &y) in y.iter().enumerate() {
                        let (g, o, t) = (k / (n_out * L), k / L % n_out, k % L);
                        let product = |i: usize| w[o * n_in + i].into() * x[(g * n_in + i) * L + t].into();
                        let sum = Sum::of((0..n_in).map(product)).plus(bias.map_or(0.0, |b| b[o].into()));
                        Sum { value: if relu { sum.value.max(0.0) } else { sum.value }, ..sum }.check(y, "forward");
                    }
                },
            );
        }
    }
}

/// The contributions of some groups to `(dx, dw, db)`.
fn pull<E: Float + TokenMath + Scalar<Elem = E>>(
    (n_in, w): (usize, &[E]),
    [dy, y, x]: [&[E]; 3],
    (dx, dw, db): (&mut [E], &mut [E], &mut [E]),
    (relu, mode): (bool, Mode),
) {
    let mut scratch = vec![E::of(7.0); AffinePull::<E>::scratch_len(x.len() / n_in, n_in, w.len() / n_in)];
    let (dx, dw, db) = (Some(dx), Some((dw, mode)), Some((db, mode)));
    E::token_affine_pull(AffinePull { n_in, w, relu, dy, y, x, dx, dw, db, scratch: &mut scratch });
}

fn pulls<E: Float + TokenMath + Scalar<Elem = E>>() {
    for (groups, n_in, n_out) in SHAPES {
        let mut numbers = Numbers::new((n_in * 100 + n_out) as u64);
        let (w, y) = (numbers.take::<E>(n_out * n_in), numbers.take::<E>(groups * n_out * L));
        let x = numbers.take::<E>(groups * n_in * L);
        let whole: Vec<E> = numbers.take::<E>(groups * n_out * L).iter().map(|&g| g + E::of(0.0)).collect();
        let before = (numbers.take::<E>(x.len()), numbers.take::<E>(w.len()), numbers.take::<E>(n_out));
        // Three padding tokens at the end, which are unreached.
        let mut padded = whole.clone();
        for row in padded[(groups - 1) * n_out * L..].chunks_mut(L) {
            row[L - 3..].fill(E::of(-0.0));
        }
        for (dy, relu, mode) in [(&whole, false, Mode::Set), (&whole, true, Mode::Add), (&padded, false, Mode::Add)] {
            let all = || {
                let (mut dx, mut dw, mut db) = before.clone();
                pull((n_in, &w), [dy, &y, &x], (&mut dx, &mut dw, &mut db), (relu, mode));
                [dx, dw, db].concat()
            };
            let one_by_one = || {
                let (mut dx, mut dw, mut db) = before.clone();
                for g in 0..groups {
                    let (inputs, outputs) = (g * n_in * L..(g + 1) * n_in * L, g * n_out * L..(g + 1) * n_out * L);
                    let of_group = [&dy[outputs.clone()], &y[outputs], &x[inputs.clone()]];
                    let mode = if g == 0 { mode } else { Mode::Add };
                    pull((n_in, &w), of_group, (&mut dx[inputs], &mut dw, &mut db), (relu, mode));
                }
                [dx, dw, db].concat()
            };
            let bits = |x: Vec<E>| x.iter().map(|x| x.bits()).collect::<Vec<_>>();
            on_every_level(
                || {
                    assert_eq!(bits(all()), bits(one_by_one()), "{groups} groups, {n_in} -> {n_out}");
                    all()
                },
                |_| {},
            );
        }
    }
}

#[test]
fn f32_tokens() {
    forward::<f32>();
    pulls::<f32>();
}

#[test]
fn f64_tokens() {
    forward::<f64>();
    pulls::<f64>();
}
