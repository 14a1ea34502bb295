//! What the kernel tests share: numbers to feed in, the error bound, and running one computation on every CPU level.

use burtorch_core::kernels::KernelFloat;
use burtorch_core::simd::{Level, available_levels, force_level};
use std::sync::{Mutex, MutexGuard};

/// Lengths around the virtual widths (8, 16), around four of them, and beyond.
pub const LENGTHS: [usize; 19] = [0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 33, 63, 64, 65, 131];

/// A kernel float that the tests can turn into f64 and bits.
pub trait Float: KernelFloat + Into<f64> {
    /// Half a unit in the last place of 1.
    const UNIT: f64;
    fn bits(self) -> u64;
}

impl Float for f32 {
    const UNIT: f64 = f32::EPSILON as f64 / 2.0;
    fn bits(self) -> u64 {
        u64::from(self.to_bits())
    }
}

impl Float for f64 {
    const UNIT: f64 = f64::EPSILON / 2.0;
    fn bits(self) -> u64 {
        self.to_bits()
    }
}

/// A reproducible stream of numbers in (-2, 2), with a signed zero now and then.
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next_bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn next<E: Float>(&mut self) -> E {
        let bits = self.next_bits();
        if bits.is_multiple_of(61) {
            return if bits & 64 == 0 { E::default() } else { -E::default() };
        }
        E::of((bits >> 11) as f64 / (1_u64 << 51) as f64 - 2.0)
    }

    pub fn take<E: Float>(&mut self, n: usize) -> Vec<E> {
        (0..n).map(|_| self.next()).collect()
    }
}

pub fn wide<E: Float>(x: &[E]) -> Vec<f64> {
    x.iter().map(|&x| x.into()).collect()
}

/// A sum in f64 together with what its error is measured by.
#[derive(Clone, Copy, Default)]
pub struct Sum {
    pub value: f64,
    pub abs: f64,
    pub terms: usize,
}

impl Sum {
    pub fn of(terms: impl IntoIterator<Item = f64>) -> Self {
        terms.into_iter().fold(Self::default(), Self::plus)
    }

    pub fn plus(self, term: f64) -> Self {
        Self { value: self.value + term, abs: self.abs + term.abs(), terms: self.terms + 1 }
    }

    /// Asserts that `actual` is within `n u sum |terms|` (the products' own rounding makes n of n - 1).
    #[track_caller]
    pub fn check<E: Float>(self, actual: E, what: &str) {
        // The f64 reference of a kernel is rounded as well, so the bound doubles.
        let slack = if E::UNIT < 1e-10 { 2.0 } else { 1.0 };
        let bound = slack * self.terms as f64 * E::UNIT * self.abs + f64::from(f32::MIN_POSITIVE);
        let actual: f64 = actual.into();
        assert!((actual - self.value).abs() <= bound, "{what}: {actual}, expected {} within {bound}", self.value);
    }
}

/// Asserts that `actual` is within `tolerance` units of `expected`, relative to `scale`.
#[track_caller]
pub fn near<E: Float>(actual: E, expected: f64, scale: f64, tolerance: f64, what: &str) {
    let actual: f64 = actual.into();
    let bound = tolerance * E::UNIT * scale.abs() + f64::from(f32::MIN_POSITIVE);
    assert!((actual - expected).abs() <= bound, "{what}: {actual}, expected {expected} within {bound}");
}

/// The level is global to the process: computations whose bits are compared take this lock.
static LEVEL_IN_USE: Mutex<()> = Mutex::new(());

/// Keeps the level as it is while the guard lives: for tests that compare the bits of two computations themselves.
pub fn level_stays() -> MutexGuard<'static, ()> {
    LEVEL_IN_USE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Runs `compute` twice on every level of this CPU: bits must agree between the two runs, and between all levels with
/// fused multiply-add. `check` sees the numbers of every level.
pub fn on_every_level<E: Float>(compute: impl Fn() -> Vec<E>, check: impl Fn(&[E])) {
    let _turn = level_stays();
    let mut fused: Option<(Level, Vec<u64>)> = None;
    for &level in available_levels() {
        assert!(force_level(Some(level)));
        let out = compute();
        let bits: Vec<u64> = out.iter().map(|x| x.bits()).collect();
        let again: Vec<u64> = compute().iter().map(|x| x.bits()).collect();
        assert_eq!(bits, again, "two runs differ at level {}", level.name());
        check(&out);
        if level.has_fma() {
            match &fused {
                None => fused = Some((level, bits)),
                Some((first, expected)) => {
                    assert_eq!(*expected, bits, "{} and {} differ", first.name(), level.name());
                }
            }
        }
    }
    force_level(None);
}
