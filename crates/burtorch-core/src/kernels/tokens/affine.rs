//! A dense layer over tokens: products of matrices for many tokens and weights, otherwise the kernels for 8 lanes, group by
//! group.
//!
//! Promises: a group all of whose outputs were reached uses the kernels; one with whole tokens unreached
//! (padding, for example) uses them with those tokens blanked; any other runs the plain loops.

use super::lanes::{Reach, all_reached, blank_unreached, pass_on_reached, reach};
use super::{AffinePull, TOKEN_LANES, emptied, naive, paired, product};
use crate::kernels::{
    KernelFloat, Mode, affine_forward_lanes, affine_input_grad_add_lanes, affine_weight_grad_lanes, relu_backward,
};
use crate::scalar::Scalar;

const L: usize = TOKEN_LANES;

/// Whether a group of tokens fills half a vector of the fixed virtual width.
const fn fills_half<E: KernelFloat>() -> bool {
    <E::Vector as crate::simd::Real>::LANES == 2 * L
}

pub(super) fn forward<E: KernelFloat>(
    n_in: usize,
    w: &[E],
    bias: Option<&[E]>,
    x: &[E],
    y: &mut [E],
    scratch: &mut [E],
) {
    let n_out = w.len() / n_in;
    if product::is_product(x.len() / n_in / L, n_in, n_out) {
        return product::forward(n_in, w, bias, x, y, scratch);
    }
    for (x, y) in x.chunks_exact(n_in * L).zip(y.chunks_exact_mut(n_out * L)) {
        if fills_half::<E>() {
            paired::token_forward::<E, L>(w, bias, x, y);
        } else {
            affine_forward_lanes::<E, L>(w, bias, x, y);
        }
    }
}

pub(super) fn pull<E: KernelFloat + Scalar<Elem = E>>(pull: AffinePull<'_, E>) {
    let AffinePull { n_in, w, relu, dy, y, x, mut dx, dw, db, scratch } = pull;
    let n_out = w.len() / n_in;
    let (mut dw, mut db) = (dw, db);
    // Leading groups whose outputs were all reached; padding is in the last group.
    let n_whole = dy.chunks_exact(n_out * L).take_while(|dy| all_reached(dy)).count();
    let first = if product::is_product(n_whole, n_in, n_out) { n_whole } else { 0 };
    if first > 0 {
        let (inputs, outputs) = (..first * n_in * L, ..first * n_out * L);
        let (cut, scratch) = scratch.split_at_mut(if relu { outputs.end } else { 0 });
        if relu {
            relu_backward(&y[outputs], &dy[outputs], cut, Mode::Set);
        }
        product::pull(product::Pull {
            n_in,
            w,
            dy: if relu { cut } else { &dy[outputs] },
            x: &x[inputs],
            dx: dx.as_deref_mut().map(|dx| &mut dx[inputs]),
            dw: dw.as_mut().map(|(dw, mode)| (&mut **dw, std::mem::replace(mode, Mode::Add))),
            db: db.as_mut().map(|(db, mode)| (&mut **db, std::mem::replace(mode, Mode::Add))),
            scratch,
        });
    }
    for (g, dy) in dy.chunks_exact(n_out * L).enumerate().skip(first) {
        let (inputs, outputs) = (g * n_in * L..(g + 1) * n_in * L, g * n_out * L..(g + 1) * n_out * L);
        let group = AffinePull {
            n_in,
            w,
            relu,
            dy,
            y: &y[outputs],
            x: &x[inputs.clone()],
            dx: dx.as_deref_mut().map(|dx| &mut dx[inputs]),
            dw: dw.as_mut().map(|(dw, mode)| (&mut **dw, std::mem::replace(mode, Mode::Add))),
            db: db.as_mut().map(|(db, mode)| (&mut **db, std::mem::replace(mode, Mode::Add))),
            scratch: &mut *scratch,
        };
        match reach(dy) {
            Reach::Everything => pull_whole(group),
            Reach::WholeTokens => pull_blanked(group),
            Reach::Some => naive::affine_pull(group),
        }
    }
}

/// A group whose outputs were all reached.
fn pull_whole<E: KernelFloat + Scalar<Elem = E>>(pull: AffinePull<'_, E>) {
    let AffinePull { w, relu, dy, y, x, dx, dw, db, scratch, .. } = pull;
    let (cut, scratch) = scratch.split_at_mut(if relu { dy.len() } else { 0 });
    let dy = if relu {
        relu_backward(y, dy, cut, Mode::Set);
        cut
    } else {
        dy
    };
    if let Some(dx) = dx {
        if fills_half::<E>() {
            paired::token_input_grad_add::<E, L>(w, dy, dx);
        } else {
            affine_input_grad_add_lanes::<E, L>(w, dy, dx);
        }
    }
    match (dw, db) {
        (Some((dw, mode)), Some((db, same))) if mode == same => {
            affine_weight_grad_lanes::<E, L>(&[dy], &[x], dw, Some(db), mode, scratch);
        }
        (dw, db) => {
            if let Some((dw, mode)) = dw {
                affine_weight_grad_lanes::<E, L>(&[dy], &[x], dw, None, mode, scratch);
            }
            if let Some(db) = emptied(db) {
                for (db, dy) in db.iter_mut().zip(dy.chunks_exact(L)) {
                    *db = dy.iter().fold(*db, |sum, &dy| sum + dy);
                }
            }
        }
    }
}

/// A group in which some tokens were reached in every output and the others in none: the latter count as 0 times 0.
fn pull_blanked<E: KernelFloat + Scalar<Elem = E>>(pull: AffinePull<'_, E>) {
    let AffinePull { n_in, w, relu, dy, y, x, dx, dw, db, scratch } = pull;
    let (dy_blanked, rest) = scratch.split_at_mut(dy.len());
    let (x_blanked, rest) = rest.split_at_mut(x.len());
    let (dx_here, rest) = rest.split_at_mut(x.len());
    if relu {
        relu_backward(y, dy, dy_blanked, Mode::Set);
    } else {
        dy_blanked.copy_from_slice(dy);
    }
    x_blanked.copy_from_slice(x);
    blank_unreached(dy, dy_blanked);
    blank_unreached(dy, x_blanked);
    dx_here.fill(E::UNREACHED);
    pull_whole(AffinePull {
        n_in,
        w,
        relu: false,
        dy: dy_blanked,
        y,
        x: x_blanked,
        dx: dx.is_some().then_some(&mut *dx_here),
        dw,
        db,
        scratch: rest,
    });
    if let Some(dx) = dx {
        pass_on_reached(dy, dx_here, dx);
    }
}
