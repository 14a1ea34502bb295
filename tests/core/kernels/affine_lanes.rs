//! A dense layer on groups of lanes: against plain loops, and against other ways of grouping the same samples.

use crate::support::{Float, Numbers, Sum, level_stays, on_every_level};
use burtorch_core::kernels::{
    Mode, Working, affine_block_workspace_len, affine_forward_block, affine_forward_lanes, affine_input_grad_add_lanes,
    affine_input_grad_block, affine_input_grad_lanes, affine_sgd_update_block, affine_sgd_update_lanes,
    affine_weight_grad, affine_weight_grad_block, affine_weight_grad_lanes, sgd_update, weight_grad_scratch_len,
};

const SHAPES: [(usize, usize); 13] = [
    (397, 401),
    (0, 3),
    (3, 0),
    (1, 1),
    (2, 5),
    (7, 4),
    (5, 17),
    (27, 16),
    (6, 24),
    (11, 33),
    (9, 64),
    (13, 71),
    (19, 148),
];

/// `n` elements in every lane of every group.
fn groups<E: Float, const L: usize>(numbers: &mut Numbers, n: usize, groups: usize) -> Vec<Vec<E>> {
    (0..groups).map(|_| numbers.take(n * L)).collect()
}

fn slices<E>(groups: &[Vec<E>]) -> Vec<&[E]> {
    groups.iter().map(Vec::as_slice).collect()
}

fn forward_and_input_grad<E: Float, const L: usize>() {
    for (n_out, n_in) in SHAPES {
        let mut numbers = Numbers::new((n_out * 1000 + n_in) as u64);
        let (w, bias) = (numbers.take::<E>(n_out * n_in), numbers.take::<E>(n_out));
        let (x, dy) = (numbers.take::<E>(n_in * L), numbers.take::<E>(n_out * L));
        let y_exact = |o: usize, l: usize| Sum::of((0..n_in).map(|i| w[o * n_in + i].into() * x[i * L + l].into()));
        let dx_exact = |i: usize, l: usize| Sum::of((0..n_out).map(|o| w[o * n_in + i].into() * dy[o * L + l].into()));
        for bias in [None, Some(&bias[..])] {
            on_every_level(
                || {
                    let mut y = vec![E::of(9.0); n_out * L];
                    affine_forward_lanes::<E, L>(&w, bias, &x, &mut y);
                    y
                },
                |y| {
                    for k in 0..n_out * L {
                        let exact = y_exact(k / L, k % L);
                        let bias = bias.map_or(0.0, |b| b[k / L].into());
                        exact.plus(bias).check(y[k], "forward");
                    }
                },
            );
        }
        on_every_level(
            || {
                let (mut set, mut add) = (vec![E::of(9.0); n_in * L], x.clone());
                affine_input_grad_lanes::<E, L>(&w, &dy, &mut set);
                affine_input_grad_add_lanes::<E, L>(&w, &dy, &mut add);
                set.extend(add);
                set
            },
            |dx| {
                let (set, add) = dx.split_at(n_in * L);
                for k in 0..n_in * L {
                    let exact = dx_exact(k / L, k % L);
                    exact.check(set[k], "dx =");
                    exact.plus(x[k].into()).check(add[k], "dx +=");
                    assert_ne!(set[k].bits(), (-E::default()).bits());
                }
            },
        );
    }
}

fn weight_grad<E: Float, const L: usize>() {
    for (n_out, n_in) in SHAPES {
        for n_groups in [1, 3] {
            let mut numbers = Numbers::new((n_out * 1000 + n_in) as u64);
            let dy = groups::<E, L>(&mut numbers, n_out, n_groups);
            let x = groups::<E, L>(&mut numbers, n_in, n_groups);
            let before = numbers.take::<E>(n_out * n_in + n_out);
            let compute = |mode: Mode| {
                let mut dw = before.clone();
                let (w, b) = dw.split_at_mut(n_out * n_in);
                let scratch_len = weight_grad_scratch_len(n_in, n_groups * L);
                let mut scratch = vec![E::of(7.0); scratch_len];
                let (dy, x) = (slices(&dy), slices(&x));
                affine_weight_grad_lanes::<E, L>(&dy, &x, w, Some(b), mode, &mut scratch);
                dw
            };
            // The same samples one at a time, in order.
            let one_by_one = |mode: Mode| {
                let mut dw = before.clone();
                if mode == Mode::Set {
                    dw.fill(E::default());
                }
                let (w, b) = dw.split_at_mut(n_out * n_in);
                for (dy, x) in dy.iter().zip(&x) {
                    for l in 0..L {
                        let dy: Vec<E> = dy.iter().skip(l).step_by(L).copied().collect();
                        let x: Vec<E> = x.iter().skip(l).step_by(L).copied().collect();
                        affine_weight_grad(&dy, &x, w, Some(b), Mode::Add);
                    }
                }
                dw
            };
            let exact = |k: usize, keep: f64| {
                let (o, i) = (k / n_in.max(1), k % n_in.max(1));
                let sum = Sum::of([keep * before[k].into()]);
                (0..n_groups * L).fold(sum, |sum, s| {
                    let (g, l) = (s / L, s % L);
                    sum.plus(dy[g][o * L + l].into() * x[g][i * L + l].into())
                })
            };
            for (mode, keep) in [(Mode::Set, 0.0), (Mode::Add, 1.0)] {
                on_every_level(
                    || compute(mode),
                    |dw| {
                        for k in 0..n_out * n_in {
                            exact(k, keep).check(dw[k], "weight gradient");
                        }
                        for (dw, single) in dw.iter().zip(one_by_one(mode)) {
                            assert_eq!(dw.bits(), single.bits(), "grouping changes bits");
                        }
                    },
                );
            }
        }
    }
}

fn every_width<E: Float>() {
    forward_and_input_grad::<E, 4>();
    forward_and_input_grad::<E, 8>();
    forward_and_input_grad::<E, 16>();
    weight_grad::<E, 4>();
    weight_grad::<E, 8>();
    weight_grad::<E, 16>();
}

/// A step without a stored gradient has the same bits as a gradient and a step.
fn step<E: Float, const L: usize>() {
    for (n_out, n_in) in SHAPES {
        let mut numbers = Numbers::new((n_out * 1000 + n_in) as u64);
        let dy = groups::<E, L>(&mut numbers, n_out, 2);
        let x = groups::<E, L>(&mut numbers, n_in, 2);
        let before = numbers.take::<E>(n_out * n_in + n_out);
        let mut scratch = vec![E::of(7.0); weight_grad_scratch_len(n_in, 2 * L)];
        let _turn = level_stays();
        let (mut at_once, mut apart, mut grads) = (before.clone(), before.clone(), before.clone());
        let (w, b) = at_once.split_at_mut(n_out * n_in);
        affine_sgd_update_lanes::<E, L>(E::of(0.25), &slices(&dy), &slices(&x), w, Some(b), &mut scratch);
        let (w, b) = grads.split_at_mut(n_out * n_in);
        affine_weight_grad_lanes::<E, L>(&slices(&dy), &slices(&x), w, Some(b), Mode::Set, &mut scratch);
        sgd_update(E::of(0.25), &grads, &mut apart);
        assert_eq!(bits(&at_once), bits(&apart));
    }
}

/// Lanes `first..first + L` of a block of 64.
fn lanes_of_block<E: Float, const L: usize>(block: &[E], first: usize) -> Vec<E> {
    block.chunks(64).flat_map(|row| row[first..][..L].to_vec()).collect()
}

fn bits<E: Float>(x: &[E]) -> Vec<u64> {
    x.iter().map(|x| x.bits()).collect()
}

/// A block of 64 lanes has the same bits as its groups, on any number of threads.
fn block_is_its_groups<E: Float, const L: usize>(n_threads: usize) {
    for (n_out, n_in) in [(130, 200), (200, 70), (200, 700), (3, 0), (1, 1), (27, 16), (9, 64), (193, 5)] {
        let mut numbers = Numbers::new((n_out * 1000 + n_in) as u64);
        let (w, bias) = (numbers.take::<E>(n_out * n_in), numbers.take::<E>(n_out));
        let (x, dy) = (numbers.take::<E>(n_in * 64), numbers.take::<E>(n_out * 64));
        let mut memory = vec![E::of(7.0); n_threads * affine_block_workspace_len::<E>(n_in, n_out)];
        for bias in [None, Some(&bias[..])] {
            let mut y = vec![E::of(9.0); n_out * 64];
            affine_forward_block(&w, bias, &x, &mut y, Working { memory: &mut memory, n_threads });
            for first in (0..64).step_by(L) {
                let mut part = vec![E::of(9.0); n_out * L];
                affine_forward_lanes::<E, L>(&w, bias, &lanes_of_block::<E, L>(&x, first), &mut part);
                assert_eq!(bits(&lanes_of_block::<E, L>(&y, first)), bits(&part));
            }
        }
        for mode in [Mode::Set, Mode::Add] {
            let mut dx = x.clone();
            affine_input_grad_block(&w, &dy, &mut dx, mode, Working { memory: &mut memory, n_threads });
            for first in (0..64).step_by(L) {
                let (mut part, dy) = (lanes_of_block::<E, L>(&x, first), lanes_of_block::<E, L>(&dy, first));
                match mode {
                    Mode::Set => affine_input_grad_lanes::<E, L>(&w, &dy, &mut part),
                    Mode::Add => affine_input_grad_add_lanes::<E, L>(&w, &dy, &mut part),
                }
                assert_eq!(bits(&lanes_of_block::<E, L>(&dx, first)), bits(&part));
            }
            let part = |block: &[E]| -> Vec<Vec<E>> {
                (0..64).step_by(L).map(|first| lanes_of_block::<E, L>(block, first)).collect()
            };
            let (dys, xs) = (part(&dy), part(&x));
            let (mut block, mut groups) = ((w.clone(), bias.clone()), (w.clone(), bias.clone()));
            let working = Working { memory: &mut memory, n_threads };
            affine_weight_grad_block(&dy, &x, &mut block.0, Some(&mut block.1), mode, working);
            let mut scratch = vec![E::of(7.0); weight_grad_scratch_len(n_in, 64)];
            let (dw, db) = (&mut groups.0, Some(&mut groups.1[..]));
            affine_weight_grad_lanes::<E, L>(&slices(&dys), &slices(&xs), dw, db, mode, &mut scratch);
            assert_eq!((bits(&block.0), bits(&block.1)), (bits(&groups.0), bits(&groups.1)));
        }
        let (mut block, mut alone) = ((w.clone(), bias.clone()), (w.clone(), bias.clone()));
        let working = Working { memory: &mut memory, n_threads };
        affine_sgd_update_block(E::of(0.25), &dy, &x, &mut block.0, Some(&mut block.1), working);
        let mut scratch = vec![E::of(7.0); weight_grad_scratch_len(n_in, 64)];
        let (w, b) = (&mut alone.0, Some(&mut alone.1[..]));
        affine_sgd_update_lanes::<E, 64>(E::of(0.25), &[&dy], &[&x], w, b, &mut scratch);
        assert_eq!((bits(&block.0), bits(&block.1)), (bits(&alone.0), bits(&alone.1)));
    }
}

#[test]
fn a_block_of_64_is_its_groups() {
    let compute = || {
        for n_threads in [1, 2, 8] {
            block_is_its_groups::<f32, 16>(n_threads);
            block_is_its_groups::<f64, 8>(n_threads);
        }
        Vec::<f32>::new()
    };
    on_every_level(compute, |_| {});
}

#[test]
fn lanes_f32() {
    every_width::<f32>();
    weight_grad::<f32, 64>();
    step::<f32, 16>();
    step::<f32, 64>();
    step::<f64, 4>();
}

#[test]
fn lanes_f64() {
    every_width::<f64>();
    weight_grad::<f64, 64>();
    step::<f64, 64>();
}

#[test]
#[should_panic = "equally many lane groups"]
fn unequal_groups_are_refused() {
    let x = [0.0_f32; 4];
    affine_weight_grad_lanes::<f32, 4>(&[&x], &[&x, &x], &mut [0.0], None, Mode::Set, &mut []);
}
