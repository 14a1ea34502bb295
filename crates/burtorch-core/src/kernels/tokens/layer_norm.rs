//! Layer normalisation over tokens: the kernels for 8 lanes, group by group, as in `affine`.

use super::lanes::{Reach, blank_unreached, pass_on_reached, reach};
use super::{LayerNormPull, TOKEN_LANES, emptied, naive};
use crate::kernels::{
    KernelFloat, Mode, layer_norm_forward_lanes, layer_norm_input_grad_lanes, layer_norm_weight_grad_lanes,
};
use crate::scalar::Scalar;

const L: usize = TOKEN_LANES;

pub(super) fn forward<E: KernelFloat>(x: &[E], gain: &[E], bias: &[E], eps: E, y: &mut [E], stats: &mut [E]) {
    let len = gain.len() * L;
    for ((x, y), stats) in x.chunks_exact(len).zip(y.chunks_exact_mut(len)).zip(stats.chunks_exact_mut(2 * L)) {
        layer_norm_forward_lanes::<E, L>(x, gain, bias, eps, y, stats);
    }
}

pub(super) fn pull<E: KernelFloat + Scalar<Elem = E>>(pull: LayerNormPull<'_, E>) {
    let LayerNormPull { gain, dy, x, stats, mut dx, mut dgain, mut dbias, scratch } = pull;
    let len = gain.len() * L;
    for (g, dy) in dy.chunks_exact(len).enumerate() {
        let group = LayerNormPull {
            gain,
            dy,
            x: &x[g * len..][..len],
            stats: &stats[g * 2 * L..][..2 * L],
            dx: dx.as_deref_mut().map(|dx| &mut dx[g * len..][..len]),
            dgain: dgain.as_mut().map(|(to, mode)| (&mut **to, std::mem::replace(mode, Mode::Add))),
            dbias: dbias.as_mut().map(|(to, mode)| (&mut **to, std::mem::replace(mode, Mode::Add))),
            scratch: &mut *scratch,
        };
        match reach(dy) {
            Reach::Everything => pull_whole(group),
            Reach::WholeTokens => pull_blanked(group),
            Reach::Some => naive::layer_norm_pull(group),
        }
    }
}

fn pull_whole<E: KernelFloat + Scalar<Elem = E>>(pull: LayerNormPull<'_, E>) {
    let LayerNormPull { gain, dy, x, stats, dx, dgain, dbias, scratch } = pull;
    if let Some(dx) = dx {
        layer_norm_input_grad_lanes::<E, L>(x, stats, gain, dy, dx, Mode::Add);
    }
    match (dgain, dbias) {
        (Some((dgain, mode)), Some((dbias, same))) if mode == same => {
            layer_norm_weight_grad_lanes::<E, L>(x, stats, dy, dgain, dbias, mode);
        }
        (None, None) => {}
        (dgain, dbias) => {
            // The kernel computes both; an unwanted one goes to the scratch.
            let (mut dgain, mut dbias) = (emptied(dgain), emptied(dbias));
            let (other, rest) = scratch.split_at_mut(gain.len());
            let (to_gain, to_bias) = match (&mut dgain, &mut dbias) {
                (Some(dgain), Some(dbias)) => (&mut **dgain, &mut **dbias),
                (Some(dgain), None) => (&mut **dgain, other),
                (None, Some(dbias)) => (other, &mut **dbias),
                (None, None) => (other, &mut rest[..gain.len()]),
            };
            layer_norm_weight_grad_lanes::<E, L>(x, stats, dy, to_gain, to_bias, Mode::Add);
        }
    }
}

fn pull_blanked<E: KernelFloat + Scalar<Elem = E>>(pull: LayerNormPull<'_, E>) {
    let LayerNormPull { gain, dy, x, stats, dx, dgain, dbias, scratch } = pull;
    let (dy_blanked, rest) = scratch.split_at_mut(dy.len());
    let (x_blanked, dx_here) = rest.split_at_mut(x.len());
    let dx_here = &mut dx_here[..x.len()];
    dy_blanked.copy_from_slice(dy);
    x_blanked.copy_from_slice(x);
    let mut stats_blanked = [E::default(); 2 * L];
    stats_blanked.copy_from_slice(stats);
    for to in [&mut *dy_blanked, x_blanked, &mut stats_blanked] {
        blank_unreached(dy, to);
    }
    let blanked = LayerNormPull {
        gain,
        dy: dy_blanked,
        x: x_blanked,
        stats: &stats_blanked,
        dx: None,
        dgain,
        dbias,
        scratch: &mut *dx_here,
    };
    pull_whole(blanked);
    if let Some(dx) = dx {
        layer_norm_input_grad_lanes::<E, L>(x_blanked, &stats_blanked, gain, dy_blanked, dx_here, Mode::Set);
        pass_on_reached(dy, dx_here, dx);
    }
}
