//! Elementary functions of whole slices, in the widest vectors; the tail takes the same path, so it has the same bits.
//!
//! The functions here choose the level; those in [`inline`] are the same loops, always inlined, for kernels that are
//! already compiled for one.
#![allow(unsafe_code)]

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use super::Level;
use super::elementary::{self, Formula, number_otherwise};
use super::for_each_function;
use super::{Real, Simd, level};

/// A float that slices hold: `f32` or `f64`.
pub trait Element: Real<Elem = Self> {
    /// The vector used for slices of this type.
    type Vector: Real<Elem = Self>;
}

impl Element for f32 {
    type Vector = Simd<f32, 16>;
}

impl Element for f64 {
    type Vector = Simd<f64, 8>;
}

#[inline(always)]
fn map<F: Formula<1>, E: Element>(x: &[E], y: &mut [E]) {
    assert_eq!(x.len(), y.len(), "x and y differ in length: pass slices of equal length");
    let lanes = E::Vector::LANES;
    let tail = x.len() / lanes * lanes;
    for (x, y) in x.chunks_exact(lanes).zip(y.chunks_exact_mut(lanes)) {
        F::at([E::Vector::load(x)]).store(y);
    }
    if tail < x.len() {
        let mut last = [E::default(); 16];
        last[..x.len() - tail].copy_from_slice(&x[tail..]);
        F::at([E::Vector::load(&last)]).store(&mut last);
        y[tail..].copy_from_slice(&last[..x.len() - tail]);
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")]
fn map_avx512<F: Formula<1>, E: Element>(x: &[E], y: &mut [E]) {
    map::<F, E>(x, y);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn map_avx2<F: Formula<1>, E: Element>(x: &[E], y: &mut [E]) {
    map::<F, E>(x, y);
}

/// Without fused multiply-add in the CPU: number by number, with the same bits.
fn one_by_one<F: Formula<1>, E: Element>(x: &[E], y: &mut [E]) {
    assert_eq!(x.len(), y.len(), "x and y differ in length: pass slices of equal length");
    for (y, &x) in y.iter_mut().zip(x) {
        *y = number_otherwise::<F, E, 1>([x]);
    }
}

#[inline(always)]
fn map_at_level<F: Formula<1>, E: Element>(x: &[E], y: &mut [E]) {
    match level() {
        // SAFETY: level() returns only levels whose features this CPU has.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { map_avx512::<F, E>(x, y) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { map_avx2::<F, E>(x, y) },
        #[cfg(target_arch = "aarch64")]
        Level::Neon => map::<F, E>(x, y),
        _ => one_by_one::<F, E>(x, y),
    }
}

macro_rules! sliced {
    (
        op { $($(#[$doc:meta])* $name:ident $formula:ident { $($body:tt)* })* }
        op2 { $($binary:tt)* }
        exact { $($exact:tt)* }
        helper { $($(#[$hdoc:meta])* $hname:ident $hformula:ident { $($hbody:tt)* })* }
        helper2 { $($helper2:tt)* }
        slice { $($(#[$sdoc:meta])* $sname:ident $sformula:ident {})* }
    ) => {
        sliced! { $($(#[$doc])* $name $formula)* $($(#[$hdoc])* $hname $hformula)* $($(#[$sdoc])* $sname $sformula)* }
    };
    ($($(#[$doc:meta])* $name:ident $formula:ident)*) => {
        $(
            $(#[$doc])*
            /// `y[i]` from `x[i]`; panics if the lengths differ.
            pub fn $name<E: Element>(x: &[E], y: &mut [E]) {
                map_at_level::<elementary::$formula, E>(x, y);
            }
        )*

        /// The same loops without the choice of level, always inlined.
        pub mod inline {
            use super::Element;

            $(
                $(#[$doc])*
                /// `y[i]` from `x[i]`; panics if the lengths differ.
                #[inline(always)]
                pub fn $name<E: Element>(x: &[E], y: &mut [E]) {
                    super::map::<super::elementary::$formula, E>(x, y);
                }
            )*
        }
    };
}

for_each_function!(sliced);
