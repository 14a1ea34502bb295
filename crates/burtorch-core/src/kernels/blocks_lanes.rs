//! Block ops on nodes that are vectors: one sample (or token) in each lane.
//!
//! Promises: as the kernels on lanes; a slice of vectors is a lane-major slice of numbers. Does not know
//! graphs.

use super::blocks::{BlockMath, PANEL, naive};
use super::slices::{SliceKernels, add_loop, descend_loop, dot_loop, pass_on_loop};
use super::weight_pieces::MAX_GROUPS;
use super::{Mode, OneWeight, TokenMath, Working};
use crate::scalar::Scalar;
use crate::simd::{Simd, array_of, slices};

/// A vector of numbers without padding.
///
/// # Safety
/// A value of the type consists of its `LANES` numbers of type `Elem` in order, and nothing else.
unsafe trait Flat: Scalar {}

/// The numbers in vectors, element by element.
#[inline(always)]
fn flat<S: Flat>(x: &[S]) -> &[S::Elem] {
    const { assert!(size_of::<S>() == S::LANES * size_of::<S::Elem>()) };
    // SAFETY: by the contract of the trait the memory holds this many numbers; vectors are aligned more strictly than
    // numbers.
    unsafe { std::slice::from_raw_parts(x.as_ptr().cast(), x.len() * S::LANES) }
}

/// As [`flat`], mutably.
#[inline(always)]
fn flat_mut<S: Flat>(x: &mut [S]) -> &mut [S::Elem] {
    const { assert!(size_of::<S>() == S::LANES * size_of::<S::Elem>()) };
    // SAFETY: as above, and any numbers form a valid vector.
    unsafe { std::slice::from_raw_parts_mut(x.as_mut_ptr().cast(), x.len() * S::LANES) }
}

/// The same workspace as numbers.
#[inline(always)]
fn flat_working<S: Flat>(working: Working<'_, S>) -> Working<'_, S::Elem> {
    Working { memory: flat_mut(working.memory), n_threads: working.n_threads }
}

/// Groups as slices of numbers.
#[inline(always)]
fn flat_groups<'a, S: Flat>(groups: &[&'a [S]]) -> [&'a [S::Elem]; MAX_GROUPS] {
    array_of(|g| groups.get(g).map_or(&[][..], |group| flat(group)))
}

/// A dense layer on a group of lanes.
macro_rules! narrow {
    ($t:ty, $l:literal) => {
        fn affine_forward(w: &[$t], bias: Option<&[$t]>, x: &[Self], y: &mut [Self], _working: Working<'_, Self>) {
            super::affine_forward_lanes::<$t, $l>(w, bias, flat(x), flat_mut(y));
        }

        fn affine_input_grad_add(w: &[$t], dy: &[Self], dx: &mut [Self], _working: Working<'_, Self>) {
            super::affine_input_grad_add_lanes::<$t, $l>(w, flat(dy), flat_mut(dx));
        }

        fn affine_input_grad_set(w: &[$t], dy: &[Self], dx: &mut [Self], _working: Working<'_, Self>) {
            super::affine_input_grad_lanes::<$t, $l>(w, flat(dy), flat_mut(dx));
        }

        fn affine_weight_grad(
            dy: &[&[Self]],
            x: &[&[Self]],
            dw: &mut [$t],
            mut db: Option<&mut [$t]>,
            mut mode: Mode,
            working: Working<'_, Self>,
        ) {
            for (dy, x) in dy.chunks(MAX_GROUPS).zip(x.chunks(MAX_GROUPS)) {
                let n = dy.len();
                let (dy, x, panel) = (flat_groups(dy), flat_groups(x), flat_mut(working.memory));
                let db = db.as_deref_mut();
                super::affine_weight_grad_lanes::<$t, $l>(&dy[..n], &x[..n], dw, db, mode, panel);
                mode = Mode::Add;
            }
        }

        fn affine_descend(
            lr: $t,
            dy: &[Self],
            x: &[Self],
            w: &mut [$t],
            bias: Option<&mut [$t]>,
            dx: Option<&mut [Self]>,
            working: Working<'_, Self>,
        ) {
            if let Some(dx) = dx {
                super::affine_input_grad_lanes::<$t, $l>(w, flat(dy), flat_mut(dx));
            }
            super::affine_sgd_update_lanes::<$t, $l>(lr, &[flat(dy)], &[flat(x)], w, bias, flat_mut(working.memory));
        }
    };
}

/// A dense layer on a block of 64 lanes.
macro_rules! block {
    ($t:ty, $l:literal) => {
        fn affine_workspace_len(n_in: usize, n_out: usize) -> usize {
            super::affine_block_workspace_len::<$t>(n_in, n_out).div_ceil($l).max(PANEL)
        }

        fn affine_forward(w: &[$t], bias: Option<&[$t]>, x: &[Self], y: &mut [Self], working: Working<'_, Self>) {
            super::affine_forward_block(w, bias, flat(x), flat_mut(y), flat_working(working));
        }

        fn affine_input_grad_add(w: &[$t], dy: &[Self], dx: &mut [Self], working: Working<'_, Self>) {
            super::affine_input_grad_block(w, flat(dy), flat_mut(dx), Mode::Add, flat_working(working));
        }

        fn affine_input_grad_set(w: &[$t], dy: &[Self], dx: &mut [Self], working: Working<'_, Self>) {
            super::affine_input_grad_block(w, flat(dy), flat_mut(dx), Mode::Set, flat_working(working));
        }

        fn affine_weight_grad(
            dy: &[&[Self]],
            x: &[&[Self]],
            dw: &mut [$t],
            mut db: Option<&mut [$t]>,
            mut mode: Mode,
            working: Working<'_, Self>,
        ) {
            let Working { memory, n_threads } = working;
            for (dy, x) in dy.iter().zip(x) {
                let (db, working) = (db.as_deref_mut(), Working { memory: flat_mut(memory), n_threads });
                super::affine_weight_grad_block(flat(dy), flat(x), dw, db, mode, working);
                mode = Mode::Add;
            }
        }

        fn affine_descend(
            lr: $t,
            dy: &[Self],
            x: &[Self],
            w: &mut [$t],
            bias: Option<&mut [$t]>,
            dx: Option<&mut [Self]>,
            working: Working<'_, Self>,
        ) {
            let Working { memory, n_threads } = working;
            if let Some(dx) = dx {
                Self::affine_input_grad_set(w, dy, dx, Working { memory: &mut *memory, n_threads });
            }
            let working = Working { memory: flat_mut(memory), n_threads };
            super::affine_sgd_update_block(lr, flat(dy), flat(x), w, bias, working);
        }
    };
}

macro_rules! lanes {
    ($($t:ty, $l:literal, $affine:ident;)*) => { $(
        // SAFETY: a vector of 2, 4, 8, 16 or 64 floats is those floats in order, without padding.
        unsafe impl Flat for Simd<$t, $l> {}

        impl TokenMath for Simd<$t, $l> {}

        impl BlockMath for Simd<$t, $l> {
            const SLICES: SliceKernels<Self> = SliceKernels {
                dot: dot_loop,
                descend: descend_loop,
                add: add_loop,
                pass_on: pass_on_loop,
                gather: |table, indices, out| super::gather_rows_lanes::<$t, $l>(table, indices, flat_mut(out)),
                tanh: |x, y| slices::tanh(flat(x), flat_mut(y)),
                sigmoid: |x, y| slices::sigmoid(flat(x), flat_mut(y)),
                exp: |x, y| slices::exp(flat(x), flat_mut(y)),
                relu: |x, y| slices::relu(flat(x), flat_mut(y)),
                tanh_pull: |x, y, g, dx| super::tanh_backward(flat(x), flat(y), flat(g), flat_mut(dx), Mode::Add),
                sigmoid_pull: |x, _, g, dx| super::sigmoid_backward(flat(x), flat(g), flat_mut(dx), Mode::Add),
                relu_pull: |x, _, g, dx| super::relu_backward(flat(x), flat(g), flat_mut(dx), Mode::Add),
            };

            $affine!($t, $l);

            fn affine_weight_grad_ones(
                dy: &[&[Self]],
                x: &[&[Self]],
                weights: &[OneWeight],
                out: &mut [$t],
                mut mode: Mode,
            ) {
                for (dy, x) in dy.chunks(MAX_GROUPS).zip(x.chunks(MAX_GROUPS)) {
                    let (n, dy, x) = (dy.len(), flat_groups(dy), flat_groups(x));
                    super::affine_weight_grad_ones_lanes::<$t, $l>(&dy[..n], &x[..n], weights, out, mode);
                    mode = Mode::Add;
                }
            }

            fn cross_entropy(z: &[Self], classes: &[u32], p: &mut [Self]) -> Self {
                let classes_of = array_of(|lane| classes[lane]);
                let loss = super::softmax_cross_entropy_forward_lanes::<$t, $l>(flat(z), &classes_of, flat_mut(p));
                let loss = Simd::from_array(loss);
                if loss.all_finite() { loss } else { naive::cross_entropy(z, classes, p) }
            }

            fn probabilities(z: &[Self], p: &mut [Self]) {
                if !Simd::from_array(super::softmax_forward_lanes::<$t, $l>(flat(z), flat_mut(p))).all_finite() {
                    naive::softmax(z, p);
                }
            }

            fn cross_entropy_pull(g: Self, p: &[Self], classes: &[u32], dz: &mut [Self]) {
                let classes = array_of(|lane| classes[lane]);
                let (g, p, dz) = (g.to_array(), flat(p), flat_mut(dz));
                super::softmax_cross_entropy_backward_lanes::<$t, $l>(&g, p, &classes, dz, Mode::Add);
            }

            fn soft_cross_entropy(z: &[Self], t: &[Self], p: &mut [Self]) -> Self {
                let loss = super::softmax_cross_entropy_soft_forward_lanes::<$t, $l>(flat(z), flat(t), flat_mut(p));
                let loss = Simd::from_array(loss);
                if loss.all_finite() { loss } else { naive::soft_cross_entropy(z, t, p) }
            }

            fn soft_cross_entropy_pull(g: Self, p: &[Self], t: &[Self], dz: &mut [Self]) {
                let (g, p, t, dz) = (g.to_array(), flat(p), flat(t), flat_mut(dz));
                super::softmax_cross_entropy_soft_backward_lanes::<$t, $l>(&g, p, t, dz, Mode::Add);
            }

            fn scatter_add(factor: $t, grad: &[Self], indices: &[u32], table_grad: &mut [$t]) {
                super::scatter_add_rows_lanes::<$t, $l>(factor, flat(grad), indices, table_grad);
            }
        }
    )* };
}
lanes! {
    f32, 4, narrow;
    f32, 8, narrow;
    f32, 16, narrow;
    f32, 64, block;
    f64, 2, narrow;
    f64, 4, narrow;
    f64, 8, narrow;
    f64, 64, block;
}
