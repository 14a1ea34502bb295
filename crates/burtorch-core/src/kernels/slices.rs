//! Operations over whole slices of any scalar type: by kernels if the type has them, otherwise by plain loops.
//!
//! Promises: the kernels of a type are found by the type itself, so that a scalar need not know kernels; with
//! optimisation the compiler resolves the search. Does not know ops.

pub(super) use super::tokens::naive::pass_on as pass_on_loop;
use crate::scalar::Scalar;

/// One input and one output of equal lengths.
pub type Map<S> = fn(&[S], &mut [S]);

/// Adds the contributions of the outputs' adjoints to the inputs': inputs, outputs, adjoints of outputs, adjoints of
/// inputs.
pub type MapPull<S> = fn(&[S], &[S], &[S], &mut [S]);

/// The kernels over slices that a scalar type has.
#[derive(Debug)]
pub struct SliceKernels<S: Scalar> {
    /// The inner product of at least one pair, in one fixed order.
    pub dot: fn(&[S], &[S]) -> S,
    /// `x -= lr g`, with g summed over lanes.
    pub descend: fn(S::Elem, &[S], &mut [S::Elem]),
    /// `z = x + y`.
    pub add: fn(&[S], &[S], &mut [S]),
    /// Adds every reached adjoint to the one at its place.
    pub pass_on: Map<S>,
    /// Rows of a table, in sequence. The indices are all positions of lane 0, then of 1, ...
    pub gather: fn(&[S::Elem], &[u32], &mut [S]),
    /// Hyperbolic tangents.
    pub tanh: Map<S>,
    /// `1/(1 + e^-x)`.
    pub sigmoid: Map<S>,
    /// `e^x`.
    pub exp: Map<S>,
    /// `max(x, 0)`.
    pub relu: Map<S>,
    /// The reverse pass of `tanh`, for outputs all of which were reached.
    pub tanh_pull: MapPull<S>,
    /// The reverse pass of `sigmoid`, likewise.
    pub sigmoid_pull: MapPull<S>,
    /// The reverse pass of `relu`, likewise.
    pub relu_pull: MapPull<S>,
}

/// The table `$table<S>` of the scalar type `S`, if it has kernels: each such type has a static `$table::<T>::KERNELS`.
macro_rules! table_of_type {
    ($table:ident, $s:ident) => {
        $crate::kernels::slices::table_of_type!($table, $s:
            f32, $crate::simd::F32x4, $crate::simd::F32x8, $crate::simd::F32x16, $crate::simd::F32x64,
            f64, $crate::simd::F64x2, $crate::simd::F64x4, $crate::simd::F64x8,
            $crate::simd::F64x64)
    };
    ($table:ident, $s:ident: $($t:ty),*) => {{
        let mut found: Option<&'static $table<$s>> = None;
        $( if std::any::TypeId::of::<$s>() == std::any::TypeId::of::<$t>() {
            static TABLE: $table<$t> = <$table<$t>>::KERNELS;
            found = (&TABLE as &dyn std::any::Any).downcast_ref();
        } )*
        found
    }};
}
pub(crate) use table_of_type;

/// The kernels of a scalar type, if it has any.
#[inline(always)]
pub fn slice_kernels<S: Scalar>() -> Option<&'static SliceKernels<S>> {
    table_of_type!(SliceKernels, S)
}

/// Below this length, successive multiplications are faster than a kernel.
pub(crate) const SHORT: usize = 16;

/// `sum x_i y_i` over slices of equal length, at least one, in one fixed order; half numbers are rounded once.
#[inline]
pub fn dot<S: Scalar>(x: &[S], y: &[S]) -> S {
    match slice_kernels::<S>() {
        Some(kernels) if x.len() >= SHORT => (kernels.dot)(x, y),
        _ => dot_loop(x, y),
    }
}

/// The same and a bias: one more term, added last.
#[inline]
pub fn dot_and_bias<S: Scalar>(x: &[S], y: &[S], bias: S) -> S {
    match slice_kernels::<S>() {
        Some(kernels) if x.len() >= SHORT => (kernels.dot)(x, y) + bias,
        _ => S::narrow(wide_dot(x, y) + bias.widen()),
    }
}

/// `x -= lr g`, with g summed over lanes.
pub fn descend<S: Scalar>(lr: S::Elem, g: &[S], x: &mut [S::Elem]) {
    slice_kernels::<S>().map_or(descend_loop as _, |kernels| kernels.descend)(lr, g, x)
}

/// `z = x + y`.
pub fn add<S: Scalar>(x: &[S], y: &[S], z: &mut [S]) {
    slice_kernels::<S>().map_or(add_loop as _, |kernels| kernels.add)(x, y, z)
}

/// Adds every reached `g` to the adjoint at its place.
pub fn pass_on<S: Scalar>(g: &[S], to: &mut [S]) {
    slice_kernels::<S>().map_or(pass_on_loop as _, |kernels| kernels.pass_on)(g, to)
}

/// The rows `indices` of `table`, in sequence. `indices` holds all positions of lane 0, then of 1, ...
pub fn gather<S: Scalar>(table: &[S::Elem], indices: &[u32], out: &mut [S]) {
    slice_kernels::<S>().map_or(gather_loop as _, |kernels| kernels.gather)(table, indices, out)
}

fn gather_loop<S: Scalar>(table: &[S::Elem], indices: &[u32], out: &mut [S]) {
    let positions = indices.len() / S::LANES;
    let width = out.len() / positions;
    for (k, out) in out.iter_mut().enumerate() {
        for lane in 0..S::LANES {
            let row = indices[lane * positions + k / width] as usize;
            *out = out.with_lane(lane, table[row * width + k % width]);
        }
    }
}

#[inline]
pub(super) fn dot_loop<S: Scalar>(x: &[S], y: &[S]) -> S {
    S::narrow(wide_dot(x, y))
}

#[inline]
fn wide_dot<S: Scalar>(x: &[S], y: &[S]) -> S::Compute {
    let mut total = x[0].widen() * y[0].widen();
    for (x, y) in x[1..].iter().zip(&y[1..]) {
        total = total + x.widen() * y.widen();
    }
    total
}

pub(super) fn descend_loop<S: Scalar>(lr: S::Elem, g: &[S], x: &mut [S::Elem]) {
    for (x, g) in x.iter_mut().zip(g) {
        *x = *x - lr * g.sum_lanes();
    }
}

pub(super) fn add_loop<S: Scalar>(x: &[S], y: &[S], z: &mut [S]) {
    for ((z, &x), &y) in z.iter_mut().zip(x).zip(y) {
        *z = x + y;
    }
}
