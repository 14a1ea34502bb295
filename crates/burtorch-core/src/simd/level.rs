//! The instruction level of this CPU, chosen once, and the override for tests.
//!
//! Contains one atomic byte. Promises: a level is only ever used on a CPU that supports it. Does not know
//! kernels.

use std::sync::atomic::{AtomicU8, Ordering};

/// A set of vector instructions for which kernels and elementary functions are compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Level {
    /// The baseline of the architecture (SSE2 on x86-64): no fused multiply-add.
    Baseline = 1,
    /// Advanced SIMD with fused multiply-add, on every aarch64 CPU.
    Neon = 2,
    /// AVX2 with FMA and POPCNT.
    Avx2 = 3,
    /// AVX-512 F, DQ, BW and VL, with FMA.
    Avx512 = 4,
}

impl Level {
    /// The level's name as `burtorch info` prints it.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Baseline => "baseline",
            Level::Neon => "neon",
            Level::Avx2 => "avx2+fma",
            Level::Avx512 => "avx512",
        }
    }

    /// Whether the level multiplies and adds with one rounding in hardware.
    pub const fn has_fma(self) -> bool {
        !matches!(self, Level::Baseline)
    }
}

/// The level in use; 0 means "not yet detected". Relaxed is enough: every value ever stored is
/// correct for this CPU, and no other memory is published through it.
static LEVEL: AtomicU8 = AtomicU8::new(0);

/// The level in use: the best this CPU has, unless [`force_level`] chose another.
#[inline(always)]
pub fn level() -> Level {
    match LEVEL.load(Ordering::Relaxed) {
        4 => Level::Avx512,
        3 => Level::Avx2,
        2 => Level::Neon,
        1 => Level::Baseline,
        _ => detect_and_store(),
    }
}

/// The level in use if it has vectors of its own, without a call: otherwise, or if not yet detected, `None`.
#[inline(always)]
pub(super) fn vector_level() -> Option<Level> {
    match LEVEL.load(Ordering::Relaxed) {
        4 => Some(Level::Avx512),
        3 => Some(Level::Avx2),
        _ => None,
    }
}

#[cold]
#[inline(never)]
fn detect_and_store() -> Level {
    let best = available_levels()[0];
    LEVEL.store(best as u8, Ordering::Relaxed);
    best
}

/// The levels this CPU can run, best first; the last one is always [`Level::Baseline`] or, on aarch64, [`Level::Neon`].
pub fn available_levels() -> &'static [Level] {
    #[cfg(target_arch = "x86_64")]
    {
        let avx2 =
            is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("popcnt");
        let avx512 = avx2
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl");
        if avx512 {
            return &[Level::Avx512, Level::Avx2, Level::Baseline];
        }
        if avx2 {
            return &[Level::Avx2, Level::Baseline];
        }
        &[Level::Baseline]
    }
    #[cfg(target_arch = "aarch64")]
    {
        &[Level::Neon]
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        &[Level::Baseline]
    }
}

/// Uses `wanted` from now on, in every thread; `None` restores the best level. Returns whether the CPU has it (if not,
/// nothing changes). Meant for tests and measurements.
pub fn force_level(wanted: Option<Level>) -> bool {
    let chosen = match wanted {
        None => available_levels()[0],
        Some(l) if available_levels().contains(&l) => l,
        Some(_) => return false,
    };
    LEVEL.store(chosen as u8, Ordering::Relaxed);
    true
}
