//! CPU levels as types, and the macro that compiles a kernel body once for each of them.
//!
//! Promises: code compiled for a level runs only on a CPU that supports it.
//! Does not know what kernels compute.

use super::float::{KernelFloat, Pack};

/// What a kernel may assume of the CPU for which it is compiled.
pub(crate) trait Target: Copy + 'static {
    /// Whether multiply-add has one rounding.
    const FUSED: bool;
    /// Bytes of all vector registers; determines how large a tile of sums fits.
    const REGISTER_FILE: usize;
    /// Whether a gather instruction for eight numbers is faster than eight loads.
    const GATHERS: bool;
    /// A vector of one register.
    type Register<E: KernelFloat>: Pack<Elem = E>;
    /// The vector for elementwise operations on slices: 64 bytes. Without masked instructions the rest of a slice is
    /// processed number by number, so there it is one register.
    type Each<E: KernelFloat>: Pack<Elem = E>;

    /// `a * b + c`, fused where the CPU can.
    #[inline(always)]
    fn mul_add<V: Pack>(a: V, b: V, c: V) -> V {
        if Self::FUSED { a.mul_add(b, c) } else { a * b + c }
    }

    /// A formula of [`crate::simd::math`], `inlined` into a kernel if the CPU has fused multiply-add. Otherwise each
    /// multiply-add is a call, and so the whole formula is `called`, which compiles it once.
    #[inline(always)]
    fn formula<V: Pack>(inlined: impl FnOnce() -> V, called: impl FnOnce() -> V) -> V {
        if Self::FUSED { inlined() } else { called() }
    }

    /// Whether `count` vectors of type `V` leave at least a quarter of the registers free.
    #[inline(always)]
    fn fits<V: Pack>(count: usize) -> bool {
        count * size_of::<V>() * 4 <= Self::REGISTER_FILE * 3
    }
}

macro_rules! targets {
    ($($(#[$doc:meta])* $name:ident { fused: $fused:literal, gathers: $gathers:literal, registers: $count:literal of $register:ident = $bytes:literal, each: $each:ident })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy)]
        #[allow(dead_code, reason = "each architecture uses its own levels")]
        pub(crate) struct $name;
        impl Target for $name {
            const FUSED: bool = $fused;
            const REGISTER_FILE: usize = $count * $bytes;
            const GATHERS: bool = $gathers;
            type Register<E: KernelFloat> = E::$register;
            type Each<E: KernelFloat> = E::$each;
        }
    )*};
}

targets! {
    /// The baseline of the architecture.
    Baseline { fused: false, gathers: false, registers: 16 of Bytes16 = 16, each: Bytes16 }
    /// Advanced SIMD on aarch64.
    Neon { fused: true, gathers: false, registers: 32 of Bytes16 = 16, each: Bytes64 }
    /// AVX2 with FMA.
    Avx2 { fused: true, gathers: false, registers: 16 of Bytes32 = 32, each: Bytes64 }
    /// AVX-512 F, DQ, BW, VL.
    Avx512 { fused: true, gathers: true, registers: 32 of Bytes64 = 64, each: Bytes64 }
}

/// Declares public kernels. `pub fn dot<E>(x: &[E]) -> E = dot_at;` defines `dot`, which selects the level in use and
/// calls `dot_at::<E, T>` (an `#[inline(always)]` function) compiled for that level's instructions as [`Target`] `T`.
macro_rules! leveled {
    ($(
        $(#[$doc:meta])*
        pub fn $name:ident<$e:ident $(, const $l:ident)?>($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? = $body:ident;
    )*) => {$(
        $(#[$doc])*
        #[allow(clippy::too_many_arguments, reason = "a kernel takes plain slices, one for each role")]
        pub fn $name<$e: $crate::kernels::KernelFloat $(, const $l: usize)?>($($arg: $ty),*) $(-> $ret)? {
            use $crate::kernels::levels;
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")]
            fn avx512<$e: $crate::kernels::KernelFloat $(, const $l: usize)?>($($arg: $ty),*) $(-> $ret)? {
                $body::<$e, levels::Avx512 $(, $l)?>($($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2<$e: $crate::kernels::KernelFloat $(, const $l: usize)?>($($arg: $ty),*) $(-> $ret)? {
                $body::<$e, levels::Avx2 $(, $l)?>($($arg),*)
            }
            // Not inlined, so that there is one copy.
            #[cfg(target_arch = "x86_64")]
            #[inline(never)]
            #[optimize(size)]
            fn baseline<$e: $crate::kernels::KernelFloat $(, const $l: usize)?>($($arg: $ty),*) $(-> $ret)? {
                $body::<$e, levels::Baseline $(, $l)?>($($arg),*)
            }
            match $crate::simd::level() {
                // SAFETY: `level` names only levels whose instructions this CPU has.
                #[cfg(target_arch = "x86_64")]
                $crate::simd::Level::Avx512 => unsafe { avx512::<$e $(, $l)?>($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                $crate::simd::Level::Avx2 => unsafe { avx2::<$e $(, $l)?>($($arg),*) },
                #[cfg(target_arch = "aarch64")]
                $crate::simd::Level::Neon => $body::<$e, levels::Neon $(, $l)?>($($arg),*),
                #[cfg(target_arch = "x86_64")]
                _ => baseline::<$e $(, $l)?>($($arg),*),
                #[cfg(not(target_arch = "x86_64"))]
                _ => $body::<$e, levels::Baseline $(, $l)?>($($arg),*),
            }
        }
    )*};
}

/// Runs `step::<V, ..>(j, ..)` over the positions `0..n`: whole vectors of the fixed virtual width, then of 8, of 4,
/// and single numbers. Only for steps whose result at a position does not depend on the width.
macro_rules! columns {
    ($e:ident, $n:expr, $step:ident[$($generic:tt)*]($($arg:expr),* $(,)?)) => {{
        use $crate::kernels::float::KernelFloat;
        use $crate::simd::{Real, slices::Element};
        let n: usize = $n;
        let mut j = 0;
        // SAFETY: each step covers `j..j + V::LANES`, which ends at or before `n`; the caller of this macro guarantees that
        // every slice the step touches has at least `n` elements.
        unsafe {
            while n - j >= <$e as Element>::Vector::LANES {
                $step::<<$e as Element>::Vector, $($generic)*>(j, $($arg),*);
                j += <$e as Element>::Vector::LANES;
            }
            while n - j >= 8 {
                $step::<<$e as KernelFloat>::V<8>, $($generic)*>(j, $($arg),*);
                j += 8;
            }
            while n - j >= 4 {
                $step::<<$e as KernelFloat>::V<4>, $($generic)*>(j, $($arg),*);
                j += 4;
            }
            while n - j >= 1 {
                $step::<<$e as KernelFloat>::V<1>, $($generic)*>(j, $($arg),*);
                j += 1;
            }
        }
    }};
}

pub(crate) use {columns, leveled};
