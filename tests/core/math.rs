//! Elementary functions: special values, one result for numbers, lanes and levels.

use burtorch_core::simd::{Elementary, Level, Real, available_levels, force_level, slices};
use burtorch_core::simd::{F32x4, F32x8, F32x16, F64x2, F64x4, F64x8};
use std::sync::{Mutex, MutexGuard};

/// Levels are global, so tests that force one take turns with those that read results at the default one.
static LEVELS: Mutex<()> = Mutex::new(());

fn levels() -> MutexGuard<'static, ()> {
    LEVELS.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e3779b97f4a7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58476d1ce4e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d049bb133111eb);
        z ^ (z >> 31)
    }

    /// Every regime: any bits, moderate numbers, tiny ones.
    fn double(&mut self) -> f64 {
        let unit = (self.next() >> 11) as f64 * 2f64.powi(-53);
        let sign = if self.next() & 1 == 0 { 1.0 } else { -1.0 };
        match self.next() % 4 {
            0 => f64::from_bits(self.next()),
            1 => sign * 4.0 * unit,
            2 => sign * 800.0 * unit,
            _ => sign * (80.0 * unit - 70.0).exp2(),
        }
    }

    fn single(&mut self) -> f32 {
        if self.next().is_multiple_of(4) { f32::from_bits(self.next() as u32) } else { self.double() as f32 }
    }
}

const SPECIAL: [f64; 26] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    2.0,
    -2.0,
    3.0,
    -3.0,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
    f64::MIN_POSITIVE,
    -f64::MIN_POSITIVE,
    5e-324,
    -5e-324,
    f64::MAX,
    f64::MIN,
    1e-45,
    -1e-45,
    1e22,
    -1e22,
    709.79,
    -745.2,
    88.7,
];

fn doubles(n: usize, seed: u64) -> Vec<f64> {
    let mut r = Random(seed);
    SPECIAL.into_iter().chain(std::iter::repeat_with(move || r.double())).take(n).collect()
}

fn singles(n: usize, seed: u64) -> Vec<f32> {
    let mut r = Random(seed);
    SPECIAL.into_iter().map(|x| x as f32).chain(std::iter::repeat_with(move || r.single())).take(n).collect()
}

/// The bits, with one pattern for every NaN.
fn bits<E: Real + Into<f64>>(x: E) -> u64 {
    let x: f64 = x.into();
    if x.is_nan() { 1 } else { x.to_bits() }
}

/// Evaluates `f` in vectors of type `V`, with a tail of zeros.
fn in_lanes<V: Real>(x: &[V::Elem], y: &[V::Elem], f: impl Fn(V, V) -> V) -> Vec<V::Elem> {
    let mut all = Vec::new();
    for (x, y) in x.chunks_exact(V::LANES).zip(y.chunks_exact(V::LANES)) {
        let z = f(V::load(x), V::load(y));
        all.extend((0..V::LANES).map(|i| z.lane(i)));
    }
    all
}

fn same<E: Real + Into<f64>>(what: &str, x: &[E], y: &[E], a: &[E], b: &[E]) {
    for (i, (&p, &q)) in a.iter().zip(b).enumerate() {
        assert!(bits(p) == bits(q), "{what} at {:?}, {:?}: {p:?} and {q:?}", x[i], y[i]);
    }
}

macro_rules! one_result {
    ($test:ident, $($name:ident ($($y:ident)?)),*) => {
        /// Numbers, lanes of every width and every level agree to the last bit.
        #[test]
        fn $test() {
            let _turn = levels();
            let n = 4096;
            let (x, y) = (doubles(n, 1), { let mut y = doubles(n, 2); y.rotate_left(5); y });
            let (s, t) = (singles(n, 3), { let mut t = singles(n, 4); t.rotate_left(5); t });
            $({
                let name = stringify!($name);
                let reference = in_lanes::<f64>(&x, &y, |x, _y| Elementary::$name(x $(, { let $y = _y; $y })?));
                let reference_f32 = in_lanes::<f32>(&s, &t, |x, _y| Elementary::$name(x $(, { let $y = _y; $y })?));
                for &level in available_levels() {
                    assert!(force_level(Some(level)));
                    macro_rules! lanes {
                        ($v:ty, $a:expr, $b:expr, $expected:expr) => {
                            let got = in_lanes::<$v>($a, $b, |x, _y| Elementary::$name(x $(, { let $y = _y; $y })?));
                            same(&format!("{name} {level:?} {}", stringify!($v)), $a, $b, $expected, &got);
                        };
                    }
                    lanes!(f64, &x, &y, &reference);
                    lanes!(F64x2, &x, &y, &reference);
                    lanes!(F64x4, &x, &y, &reference);
                    lanes!(F64x8, &x, &y, &reference);
                    lanes!(f32, &s, &t, &reference_f32);
                    lanes!(F32x4, &s, &t, &reference_f32);
                    lanes!(F32x8, &s, &t, &reference_f32);
                    lanes!(F32x16, &s, &t, &reference_f32);
                }
                force_level(None);
            })*
        }
    };
}

one_result!(numbers_lanes_and_levels_agree_exp, exp(), expm1(), log(), tanh(), sigmoid(), relu());
one_result!(numbers_lanes_and_levels_agree_grads, sigmoid_grad(), tanh_grad(y));

/// Slices of any length give what single numbers give, tail included.
#[test]
fn slices_agree_with_numbers() {
    let _turn = levels();
    for n in [0, 1, 7, 8, 9, 15, 16, 17, 33, 100] {
        let (x, s) = (doubles(n, 5), singles(n, 6));
        let (mut y, mut t) = (vec![0.0; n], vec![0.0; n]);
        macro_rules! check {
            ($($name:ident)*) => {$(
                slices::$name(&x, &mut y);
                slices::$name(&s, &mut t);
                same(stringify!($name), &x, &x, &in_lanes::<f64>(&x, &x, |x, _| Elementary::$name(x)), &y);
                same(stringify!($name), &s, &s, &in_lanes::<f32>(&s, &s, |x, _| Elementary::$name(x)), &t);
                slices::inline::$name(&x, &mut y);
                same(stringify!($name), &x, &x, &in_lanes::<f64>(&x, &x, |x, _| Elementary::$name(x)), &y);
            )*};
        }
        check!(exp expm1 log tanh sigmoid sigmoid_grad relu);
    }
}

#[test]
#[should_panic(expected = "differ in length")]
fn slices_of_unequal_length_are_refused() {
    slices::exp(&[1.0, 2.0], &mut [0.0]);
}

/// A level the CPU lacks is refused and changes nothing.
#[test]
fn forcing_a_level_the_cpu_lacks_changes_nothing() {
    let _turn = levels();
    let lacking = [Level::Baseline, Level::Neon, Level::Avx2, Level::Avx512];
    for level in lacking.into_iter().filter(|l| !available_levels().contains(l)) {
        assert!(!force_level(Some(level)));
    }
}
