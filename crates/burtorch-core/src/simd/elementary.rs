//! Elementary functions at the CPU's best level: [`Elementary`], one method per function.
//!
//! Each method reads the level once and calls the body in [`math`] compiled for it. Vectors are passed by
//! reference, so the calling convention does not depend on the level. Does not know the formulas.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use super::Level;
use super::for_each_function;
use super::{Real, array_of, level, level::vector_level, math};

/// A formula of one or two arguments that can be compiled for each level.
pub(super) trait Formula<const N: usize> {
    /// Whether one copy serves all vectors of a type.
    const RARE: bool;
    /// Evaluates it; inlined into a caller that has the level's features.
    fn at<V: Real>(x: [V; N]) -> V;
}

/// One number, for both vector levels: AVX-512 would only add slower selects (log takes 6.1 ns with it, 4.2 without).
/// Separate arguments, because the ABI passes arrays in integer registers: sin takes 2 ns more with an array. With one
/// argument, both are the same.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn number_avx2<F: Formula<N>, V: Real, const N: usize>(x: V, y: V) -> V {
    F::at(std::array::from_fn(|k| if k == 0 { x } else { y }))
}

/// Reads a vector in parts of 16 bytes, the size in which a caller compiled for any CPU has just written it. A CPU
/// forwards a store to a load that it covers; a wider load waits until the stores have retired, and so for every
/// earlier call: then exp takes 47 ns per call for 8 lanes, and 59 for 16.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn in_parts<V: Real>(x: &V) -> V {
    if !size_of::<V>().is_multiple_of(size_of::<Quarter>()) {
        return *x;
    }
    let mut whole = MaybeUninit::<V>::uninit();
    let (from, to) = (std::ptr::from_ref(x).cast::<Quarter>(), whole.as_mut_ptr().cast::<Quarter>());
    for k in 0..size_of::<V>() / size_of::<Quarter>() {
        // SAFETY: a vector is an array of numbers, parts are aligned no more strictly, and part k lies inside both.
        unsafe { to.add(k).write(from.add(k).read_volatile()) };
    }
    // SAFETY: all parts were written.
    unsafe { whole.assume_init() }
}

#[cfg(target_arch = "x86_64")]
type Quarter = super::Simd<f32, 4>;

/// `n` vectors of a formula.
///
/// # Safety
/// `n` vectors may be read from each of `x` and written to `y`.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn each_of<F: Formula<N>, V: Real, const N: usize>(x: [*const V; N], y: *mut V, n: usize) {
    debug_assert!(!y.is_null());
    for k in 0..n {
        // SAFETY: by the contract of this function.
        unsafe { y.add(k).write(F::at(array_of(|i| in_parts(&*x[i].add(k))))) };
    }
}

/// # Safety
/// As [`each_of`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn lanes_avx2<F: Formula<N>, V: Real, const N: usize>(x: [*const V; N], y: *mut V, n: usize) {
    debug_assert!(!y.is_null());
    // SAFETY: by the contract of this function.
    unsafe { each_of::<F, V, N>(x, y, n) }
}

/// # Safety
/// As [`each_of`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")]
unsafe fn lanes_avx512<F: Formula<N>, V: Real, const N: usize>(x: [*const V; N], y: *mut V, n: usize) {
    debug_assert!(!y.is_null());
    // SAFETY: by the contract of this function.
    unsafe { each_of::<F, V, N>(x, y, n) }
}

/// A formula of a vector at a level, in parts if the vector is wider than those of slices: 64 lanes at once take four
/// times the code, and no less time.
///
/// # Safety
/// This CPU has the level, which is Avx2 or Avx512.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn part_by_part<F: Formula<N>, V: Real, const N: usize>(level: Level, x: &[V; N], y: &mut MaybeUninit<V>) {
    debug_assert!(matches!(level, Level::Avx2 | Level::Avx512));
    // SAFETY: by the contract of this function; a wider vector is an array of its parts, and aligned no less strictly.
    unsafe {
        if V::LANES > V::Part::LANES {
            let (n, y) = (V::LANES / V::Part::LANES, y.as_mut_ptr().cast::<V::Part>());
            let x = array_of(|i| std::ptr::from_ref(&x[i]).cast());
            if level == Level::Avx512 { lanes_avx512::<F, _, N>(x, y, n) } else { lanes_avx2::<F, _, N>(x, y, n) }
        } else {
            let (x, y) = (array_of(|i| &raw const x[i]), y.as_mut_ptr());
            if level == Level::Avx512 { lanes_avx512::<F, V, N>(x, y, 1) } else { lanes_avx2::<F, V, N>(x, y, 1) }
        }
    }
}

/// A rare formula of vectors of any width, computed in vectors of 32 bytes: each further width and level would be 0.3
/// to 3 KB of code.
///
/// # Safety
/// This CPU has AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn rare<F: Formula<N>, V: Real, const N: usize>(x: &[V; N], y: &mut MaybeUninit<V>) {
    debug_assert!(V::LANES > 1);
    if V::LANES >= V::Half::LANES {
        let x = array_of(|i| std::ptr::from_ref(&x[i]).cast::<V::Half>());
        // SAFETY: a wider vector is an array of narrower ones, and aligned no less strictly.
        unsafe { lanes_avx2::<F, V::Half, N>(x, y.as_mut_ptr().cast(), V::LANES / V::Half::LANES) };
        return;
    }
    let mut wide = [V::Half::default(); N];
    let mut result = V::Half::default();
    for (wide, x) in wide.iter_mut().zip(x) {
        // SAFETY: the wider vector starts with this one's lanes, and is aligned no less strictly.
        unsafe { std::ptr::from_mut(wide).cast::<V>().write(*x) };
    }
    // SAFETY: one vector lies there; the result starts with this one's lanes.
    unsafe {
        lanes_avx2::<F, V::Half, N>(array_of(|i| &raw const wide[i]), &raw mut result, 1);
        y.write((&raw const result).cast::<V>().read());
    }
}

/// Without a choice of vector instructions, or before they are detected. Not inlined, so that callers save no registers
/// for a call that is rarely made.
#[inline(never)]
pub(super) fn number_otherwise<F: Formula<N>, V: Real, const N: usize>(x: [V; N]) -> V {
    match level() {
        // SAFETY: level() returns only levels that this CPU has, and both of these have AVX2 and FMA.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 | Level::Avx2 => unsafe { number_avx2::<F, V, N>(x[0], x[N - 1]) },
        _ => F::at(x),
    }
}

/// A formula of a vector at a level.
///
/// # Safety
/// The level is Avx2 or Avx512, and this CPU has it.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn lanes_at<F: Formula<N>, V: Real, const N: usize>(level: Level, x: &[V; N], y: &mut MaybeUninit<V>) {
    debug_assert!(matches!(level, Level::Avx2 | Level::Avx512));
    // SAFETY: by the contract of this function; Avx512 has AVX2 and FMA.
    unsafe { if F::RARE { rare::<F, V, N>(x, y) } else { part_by_part::<F, V, N>(level, x, y) } }
}

/// As [`number_otherwise`], lane by lane if vector instructions are chosen at run time: the first call detects them,
/// and returns the same bits.
#[inline(always)]
fn lanes_otherwise<F: Formula<N>, V: Real, const N: usize>(x: &[V; N], y: &mut MaybeUninit<V>) {
    #[cfg(target_arch = "aarch64")]
    if level() == Level::Neon {
        y.write(F::at(*x));
        return;
    }
    let x = array_of(|i| std::ptr::from_ref(&x[i]).cast());
    // SAFETY: a vector is an array of its numbers.
    unsafe { one_by_one::<F, V::Elem, N>(x, y.as_mut_ptr().cast(), V::LANES) };
}

/// Lane by lane: without fused multiply-add in the CPU each of them is a call, and one copy of the formula serves all
/// widths.
///
/// # Safety
/// `n` numbers may be read from each of `x` and written to `y`.
#[inline(never)]
unsafe fn one_by_one<F: Formula<N>, E: Real, const N: usize>(x: [*const E; N], y: *mut E, n: usize) {
    debug_assert!(!y.is_null());
    for k in 0..n {
        // SAFETY: by the contract of this function.
        unsafe { y.add(k).write(number_otherwise::<F, E, N>(array_of(|i| *x[i].add(k)))) };
    }
}

/// Evaluates a formula at the level in use.
#[inline(always)]
fn call<F: Formula<N>, V: Real, const N: usize>(x: [V; N]) -> V {
    if V::LANES == 1 {
        return match vector_level() {
            // SAFETY: a level is only in use on a CPU that has it, and both of these have AVX2 and FMA.
            #[cfg(target_arch = "x86_64")]
            Some(_) => unsafe { number_avx2::<F, V, N>(x[0], x[N - 1]) },
            _ => number_otherwise::<F, V, N>(x),
        };
    }
    let mut y = MaybeUninit::uninit();
    match vector_level() {
        // SAFETY: a level is only in use on a CPU that has its features.
        #[cfg(target_arch = "x86_64")]
        Some(level) => unsafe { lanes_at::<F, V, N>(level, &x, &mut y) },
        _ => lanes_otherwise::<F, V, N>(&x, &mut y),
    }
    // SAFETY: each of the three branches has written it.
    unsafe { y.assume_init() }
}

/// Whether a row of the list marks its function as rare.
macro_rules! is_rare {
    (rare $($rest:tt)*) => {
        true
    };
    ($($rest:tt)*) => {
        false
    };
}
pub(crate) use is_rare;

macro_rules! elementary {
    (
        op { $($(#[$doc:meta])* $name:ident $formula:ident { $($body:tt)* })* }
        op2 { $($(#[$doc2:meta])* $name2:ident $formula2:ident { $($body2:tt)* })* }
        exact { $($exact:tt)* }
        helper { $($(#[$hdoc:meta])* $hname:ident $hformula:ident { $($hbody:tt)* })* }
        helper2 { $($(#[$hdoc2:meta])* $hname2:ident $hformula2:ident { $($hbody2:tt)* })* }
        slice { $($(#[$sdoc:meta])* $sname:ident $sformula:ident {})* }
    ) => {
        elementary! {
            unary {
                $($(#[$doc])* $name $formula { $($body)* })*
                $($(#[$hdoc])* $hname $hformula { $($hbody)* })*
                $($(#[$sdoc])* $sname $sformula {})*
            }
            binary {
                $($(#[$doc2])* $name2 $formula2 { $($body2)* })*
                $($(#[$hdoc2])* $hname2 $hformula2 { $($hbody2)* })*
            }
        }
    };
    (
        unary { $($(#[$doc:meta])* $name:ident $formula:ident { $($body:tt)* })* }
        binary { $($(#[$doc2:meta])* $name2:ident $formula2:ident { $($body2:tt)* })* }
    ) => {
        $(
            pub(super) struct $formula;

            impl Formula<1> for $formula {
                const RARE: bool = is_rare!($($body)*);

                #[inline(always)]
                fn at<V: Real>([x]: [V; 1]) -> V {
                    math::$name(x)
                }
            }
        )*
        $(
            struct $formula2;

            impl Formula<2> for $formula2 {
                const RARE: bool = is_rare!($($body2)*);

                #[inline(always)]
                fn at<V: Real>([x, y]: [V; 2]) -> V {
                    math::$name2(x, y)
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
            $($(#[$doc2])* fn $name2(self, y: Self) -> Self;)*
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
                fn $name2(self, y: Self) -> Self {
                    call::<$formula2, V, 2>([self, y])
                }
            )*
        }
    };
}

for_each_function!(elementary);
