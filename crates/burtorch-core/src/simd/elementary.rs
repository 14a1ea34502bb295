//! Elementary functions at the CPU's best level: [`Elementary`], one method per function.
//!
//! Each method reads the level once and calls the body in [`math`] compiled for it. Vectors cross that call by
//! reference, so their calling convention does not depend on the level. Knows nothing of the formulas themselves.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

#[cfg(target_arch = "x86_64")]
use super::Level;
use super::formulas::formulas;
use super::{Real, level, level::vector_level, math};

/// A formula of one to two arguments that can be compiled for each level.
pub(super) trait Formula<V, const N: usize> {
    /// Evaluates it; inlined into a caller that has the level's features.
    fn at(x: [V; N]) -> V;
}

/// One number at both vector levels: AVX-512 adds nothing to it but slower selects (log takes 6.1 ns with it, 4.2 without).
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn number_avx2<F: Formula<V, N>, V: Real, const N: usize>(x: [V; N]) -> V {
    F::at(x)
}

/// A vector, read in the parts of 16 bytes in which a caller compiled for any CPU has just written it. A CPU hands a store
/// on to a load that it covers; a wider load waits until the stores have retired, and so for every call before this one:
/// exp of 8 lanes takes 47 ns a call then, of 16 lanes 59.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn in_parts<V: Real>(x: &V) -> V {
    if !size_of::<V>().is_multiple_of(size_of::<Part>()) {
        return *x;
    }
    let mut whole = MaybeUninit::<V>::uninit();
    let (from, to) = (std::ptr::from_ref(x).cast::<Part>(), whole.as_mut_ptr().cast::<Part>());
    for k in 0..size_of::<V>() / size_of::<Part>() {
        // SAFETY: a vector is its numbers and nothing else, parts are aligned no more strictly, and part k lies inside both.
        unsafe { to.add(k).write(from.add(k).read_volatile()) };
    }
    // SAFETY: all parts were written.
    unsafe { whole.assume_init() }
}

#[cfg(target_arch = "x86_64")]
type Part = super::Simd<f32, 4>;

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn lanes_avx2<F: Formula<V, N>, V: Real, const N: usize>(x: &[V; N], y: &mut MaybeUninit<V>) {
    y.write(F::at(x.each_ref().map(|x| in_parts(x))));
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")]
fn lanes_avx512<F: Formula<V, N>, V: Real, const N: usize>(x: &[V; N], y: &mut MaybeUninit<V>) {
    y.write(F::at(x.each_ref().map(|x| in_parts(x))));
}

/// Without vector instructions to choose between, or before they are detected. Out of line, so that callers keep nothing
/// across a call that is hardly ever made.
#[inline(never)]
fn number_otherwise<F: Formula<V, N>, V: Real, const N: usize>(x: [V; N]) -> V {
    match level() {
        // SAFETY: level() returns only levels that this CPU has, and both of these have AVX2 and FMA.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 | Level::Avx2 => unsafe { number_avx2::<F, V, N>(x) },
        _ => F::at(x),
    }
}

/// As [`number_otherwise`].
#[inline(never)]
fn lanes_otherwise<F: Formula<V, N>, V: Real, const N: usize>(x: &[V; N], y: &mut MaybeUninit<V>) {
    match level() {
        // SAFETY: level() returns only levels whose features this CPU has.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { lanes_avx512::<F, V, N>(x, y) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { lanes_avx2::<F, V, N>(x, y) },
        _ => drop(y.write(F::at(*x))),
    }
}

/// Evaluates a formula at the level in use.
#[inline(always)]
fn call<F: Formula<V, N>, V: Real, const N: usize>(x: [V; N]) -> V {
    if V::LANES == 1 {
        return match vector_level() {
            // SAFETY: a level is only ever in use on a CPU that has it, and both of these have AVX2 and FMA.
            #[cfg(target_arch = "x86_64")]
            Some(_) => unsafe { number_avx2::<F, V, N>(x) },
            _ => number_otherwise::<F, V, N>(x),
        };
    }
    let mut y = MaybeUninit::uninit();
    match vector_level() {
        // SAFETY: a level is only ever in use on a CPU that has its features.
        #[cfg(target_arch = "x86_64")]
        Some(Level::Avx512) => unsafe { lanes_avx512::<F, V, N>(&x, &mut y) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Some(_) => unsafe { lanes_avx2::<F, V, N>(&x, &mut y) },
        _ => lanes_otherwise::<F, V, N>(&x, &mut y),
    }
    // SAFETY: each of the three has written it.
    unsafe { y.assume_init() }
}

macro_rules! elementary {
    (
        unary { $($(#[$doc:meta])* $name:ident $formula:ident ($x:ident))* }
        binary { $($(#[$doc2:meta])* $name2:ident $formula2:ident ($x2:ident, $y2:ident))* }
    ) => {
        $(
            pub(super) struct $formula;

            impl<V: Real> Formula<V, 1> for $formula {
                #[inline(always)]
                fn at([$x]: [V; 1]) -> V {
                    math::$name($x)
                }
            }
        )*
        $(
            struct $formula2;

            impl<V: Real> Formula<V, 2> for $formula2 {
                #[inline(always)]
                fn at([$x2, $y2]: [V; 2]) -> V {
                    math::$name2($x2, $y2)
                }
            }
        )*

        /// Elementary functions of a number or of each lane of a vector, at the CPU's best level.
        ///
        /// The same bits in a number, in each lane of any width and at every level. Bounds are in units in the last
        /// place over the whole range; special values follow C99 Annex F. On plain `f64`, `f32` (and, where
        /// `StdFloat` is imported, vectors) write `Elementary::exp(x)`: there the method `x.exp()` is the standard
        /// library's.
        pub trait Elementary: Real {
            $($(#[$doc])* fn $name(self) -> Self;)*
            $($(#[$doc2])* fn $name2(self, $y2: Self) -> Self;)*
        }

        impl<V: Real> Elementary for V {
            $(
                #[inline(always)]
                fn $name(self) -> Self {
                    call::<$formula, V, 1>([self])
                }
            )*
            $(
                #[inline(always)]
                fn $name2(self, $y2: Self) -> Self {
                    call::<$formula2, V, 2>([self, $y2])
                }
            )*
        }
    };
}

formulas!(elementary);
