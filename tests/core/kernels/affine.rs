//! A dense layer on one sample.

use crate::support::{Float, Numbers, Sum, on_every_level};
use burtorch_core::kernels::{
    Mode, affine_forward, affine_input_grad, affine_input_grad_add, affine_input_grad_columns, affine_sgd_update,
    affine_weight_grad, dot, sgd_update,
};

const SHAPES: [(usize, usize); 11] =
    [(0, 3), (3, 0), (1, 1), (2, 5), (4, 7), (5, 16), (27, 4), (6, 33), (9, 64), (13, 70), (31, 131)];

struct Layer<E> {
    n_out: usize,
    n_in: usize,
    w: Vec<E>,
    bias: Vec<E>,
    x: Vec<E>,
    dy: Vec<E>,
}

fn layers<E: Float>() -> impl Iterator<Item = Layer<E>> {
    SHAPES.into_iter().map(|(n_out, n_in)| {
        let mut numbers = Numbers::new((n_out * 1000 + n_in) as u64);
        Layer {
            n_out,
            n_in,
            w: numbers.take(n_out * n_in),
            bias: numbers.take(n_out),
            x: numbers.take(n_in),
            dy: numbers.take(n_out),
        }
    })
}

fn forward<E: Float>() {
    for Layer { n_out, n_in, w, bias, x, .. } in layers::<E>() {
        let compute = |bias: Option<&[E]>| {
            let mut y = vec![E::of(9.0); n_out];
            affine_forward(&w, bias, &x, &mut y);
            y
        };
        let exact = |o: usize| Sum::of((0..n_in).map(|i| w[o * n_in + i].into() * x[i].into()));
        on_every_level(
            || compute(None),
            |y| {
                for o in 0..n_out {
                    exact(o).check(y[o], "forward");
                    assert_eq!(y[o].bits(), dot(&w[o * n_in..][..n_in], &x).bits());
                }
            },
        );
        on_every_level(
            || compute(Some(&bias)),
            |y| {
                for o in 0..n_out {
                    exact(o).plus(bias[o].into()).check(y[o], "forward with bias");
                    let dot = dot(&w[o * n_in..][..n_in], &x);
                    assert_eq!(y[o].bits(), (dot + bias[o]).bits());
                }
            },
        );
    }
}

fn input_grad<E: Float>() {
    for Layer { n_out, n_in, w, x, dy, .. } in layers::<E>() {
        let exact = |i: usize| Sum::of((0..n_out).map(|o| w[o * n_in + i].into() * dy[o].into()));
        on_every_level(
            || {
                let mut dx = vec![E::of(9.0); n_in];
                affine_input_grad(&w, &dy, &mut dx);
                dx
            },
            |dx| {
                for i in 0..n_in {
                    exact(i).check(dx[i], "input gradient");
                    assert_ne!(dx[i].bits(), (-E::default()).bits());
                }
            },
        );
        on_every_level(
            || {
                let mut dx = x.clone();
                affine_input_grad_add(&w, &dy, &mut dx);
                dx
            },
            |dx| (0..n_in).for_each(|i| exact(i).plus(x[i].into()).check(dx[i], "dx +=")),
        );
    }
}

/// Single columns have the same bits as the whole, and other columns are unchanged.
fn input_grad_columns<E: Float>() {
    for Layer { n_in, w, dy, .. } in layers::<E>() {
        for step in [1, 2, 3, 7, 50] {
            let columns: Vec<u32> = (0..n_in as u32).filter(|k| (k * 5 + 1) % step == 0).collect();
            let compute = || {
                let (mut some, mut all) = (vec![E::of(-0.0); n_in], vec![E::of(-0.0); n_in]);
                affine_input_grad_add(&w, &dy, &mut all);
                affine_input_grad_columns(&w, &dy, &columns, &mut some);
                all.iter_mut()
                    .enumerate()
                    .filter(|(k, _)| !columns.contains(&(*k as u32)))
                    .for_each(|(_, x)| *x = E::of(-0.0));
                some.extend(all);
                some
            };
            on_every_level(compute, |both| {
                let bits = |part: &[E]| part.iter().map(|&x| x.into().to_bits()).collect::<Vec<u64>>();
                assert_eq!(bits(&both[..n_in]), bits(&both[n_in..]));
            });
        }
    }
}

#[test]
fn single_columns_of_an_input_gradient_have_its_bits() {
    input_grad_columns::<f32>();
    input_grad_columns::<f64>();
}

fn weight_grad<E: Float>() {
    for Layer { n_out, n_in, w, bias, x, dy } in layers::<E>() {
        let compute = |mode: Mode| {
            let (mut dw, mut db) = (w.clone(), bias.clone());
            affine_weight_grad(&dy, &x, &mut dw, Some(&mut db), mode);
            dw.extend(db);
            dw
        };
        let check = |out: &[E], keep: f64| {
            for o in 0..n_out {
                for i in 0..n_in {
                    let k = o * n_in + i;
                    Sum::of([keep * w[k].into(), dy[o].into() * x[i].into()]).check(out[k], "dw");
                }
                let db = out[n_out * n_in + o];
                Sum::of([keep * bias[o].into(), dy[o].into()]).check(db, "db");
            }
        };
        on_every_level(|| compute(Mode::Set), |out| check(out, 0.0));
        on_every_level(|| compute(Mode::Add), |out| check(out, 1.0));
    }
}

fn fused_step<E: Float>() {
    let lr = E::of(0.37);
    for Layer { n_out, n_in, w, bias, x, dy } in layers::<E>() {
        let compute = || {
            let (mut w, mut bias) = (w.clone(), bias.clone());
            affine_sgd_update(lr, &dy, &x, &mut w, Some(&mut bias));
            w.extend(bias);
            w
        };
        let two_steps = || {
            let (mut dw, mut db) = (vec![lr; n_out * n_in], vec![lr; n_out]);
            affine_weight_grad(&dy, &x, &mut dw, Some(&mut db), Mode::Set);
            let (mut w, mut bias) = (w.clone(), bias.clone());
            sgd_update(lr, &dw, &mut w);
            sgd_update(lr, &db, &mut bias);
            w.extend(bias);
            w
        };
        on_every_level(compute, |fused| {
            let two: Vec<u64> = two_steps().iter().map(|x| x.bits()).collect();
            let fused: Vec<u64> = fused.iter().map(|x| x.bits()).collect();
            assert_eq!(fused, two);
        });
    }
}

#[test]
fn forward_is_dot_plus_bias() {
    forward::<f32>();
    forward::<f64>();
}

#[test]
fn input_grad_matches() {
    input_grad::<f32>();
    input_grad::<f64>();
}

#[test]
fn input_grad_is_never_the_unreached_mark() {
    let mut dx = [-0.0_f32];
    affine_input_grad_add(&[1e-30], &[-1e-30], &mut dx);
    assert_eq!(dx[0].to_bits(), 0.0_f32.to_bits());
}

#[test]
fn weight_grad_sets_and_adds() {
    weight_grad::<f32>();
    weight_grad::<f64>();
}

#[test]
fn fused_step_has_the_bits_of_gradient_then_step() {
    fused_step::<f32>();
    fused_step::<f64>();
}

#[test]
#[should_panic = "n_out x n_in"]
fn a_matrix_of_another_shape_is_refused() {
    affine_forward(&[1.0_f32; 5], None, &[1.0; 2], &mut [0.0; 2]);
}
