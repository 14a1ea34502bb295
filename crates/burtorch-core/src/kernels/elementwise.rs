//! The backward passes of activations over ranges. The forward passes are [`crate::simd::slices`].
//!
//! Promises: the rules of SEMANTICS: the derivative of tanh is accurate where `1 - y^2` is not, relu selects instead of
//! multiplying, NaN inputs give NaN; and the same bits at every place of a slice.
//! Does not know layouts: a range is a range.

use super::Mode;
use super::float::{KernelFloat, Pack};
use super::levels::{Target, leveled};
use crate::simd::{Elementary, Real, math};

leveled! {
    /// `dx = dy * tanh'(x)`, or `dx += ..`, where `y = tanh(x)`.
    pub fn tanh_backward<E>(x: &[E], y: &[E], dy: &[E], dx: &mut [E], mode: Mode) = tanh_at;

    /// `dx = dy * sigmoid'(x)`, or `dx += ..`.
    pub fn sigmoid_backward<E>(x: &[E], dy: &[E], dx: &mut [E], mode: Mode) = sigmoid_at;

    /// `dx = dy` where `x > 0`, 0 where `x <= 0`, NaN where x is NaN; or `dx += ..`.
    pub fn relu_backward<E>(x: &[E], dy: &[E], dx: &mut [E], mode: Mode) = relu_at;
}

/// `name(x, y) => change` defines the body of a kernel that adds `change`, an expression over vectors named like the
/// input slices, to `dx`. The last vector is padded, so every element takes the same path.
macro_rules! backward {
    ($($name:ident($($arg:ident),*) => $change:expr;)*) => {$(
        #[inline(always)]
        fn $name<E: KernelFloat, T: Target>($($arg: &[E],)* dx: &mut [E], mode: Mode) {
            $(assert_eq!($arg.len(), dx.len(), "kernel operands differ in length");)*
            let width = E::Vector::LANES;
            let whole = dx.len() / width * width;
            let mut at = 0;
            while at < whole {
                // SAFETY: `at + width <= whole`, at most the length of every slice.
                unsafe {
                    $(let $arg = E::Vector::read($arg, at);)*
                    match mode {
                        Mode::Set => contribute::<E::Vector, true>(at, $change, dx),
                        Mode::Add => contribute::<E::Vector, false>(at, $change, dx),
                    }
                }
                at += width;
            }
            if at < dx.len() {
                $(let $arg = E::Vector::read_or(&$arg[at..], E::default());)*
                let before = match mode {
                    Mode::Set => -E::Vector::of(0.0),
                    Mode::Add => E::Vector::read_or(&dx[at..], E::default()),
                };
                plus_change(before, $change).write_some(&mut dx[at..]);
            }
        }
    )*};
}

backward! {
    tanh_at(x, y, dy) => dy * T::formula(|| math::tanh_grad(x, y), || Elementary::tanh_grad(x, y));
    sigmoid_at(x, dy) => dy * T::formula(|| math::sigmoid_grad(x), || Elementary::sigmoid_grad(x));
    relu_at(x, dy) => masked(x, dy);
}

/// `dy` where x is positive, x where it is NaN, otherwise 0.
#[inline(always)]
fn masked<V: Pack>(x: V, dy: V) -> V {
    let zero = V::of(0.0);
    V::select(x.is_gt(zero), dy, V::select(x.is_le(zero), zero, x))
}

/// An adjoint plus `change`. Adding +0.0 first keeps `-0.0`, the mark of "not reached", out of the result.
#[inline(always)]
pub(super) fn plus_change<V: Pack>(before: V, change: V) -> V {
    before + (change + V::of(0.0))
}

/// Sets `dx[j..]` to `change`, or adds to it.
///
/// # Safety
/// `j + V::LANES` is at most the length of `dx`.
#[inline(always)]
pub(super) unsafe fn contribute<V: Pack, const SET: bool>(j: usize, change: V, dx: &mut [V::Elem]) {
    // SAFETY: as the caller promises.
    unsafe {
        let before = if SET { -V::of(0.0) } else { V::read(dx, j) };
        plus_change(before, change).write(dx, j);
    }
}
