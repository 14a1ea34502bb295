//! Elementary functions: special values, one result for numbers, lanes and levels.

use crate::support::level_stays as levels;
use burtorch_core::simd::{Elementary, Level, Real, available_levels, force_level, slices};
use burtorch_core::simd::{F32x4, F32x8, F32x16, F64x2, F64x4, F64x8};

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e3779b97f4a7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58476d1ce4e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d049bb133111eb);
        z ^ (z >> 31)
    }

    /// Numbers of every kind: random bits, moderate, tiny.
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
        /// Scalars, lanes of every width, and every level agree bit for bit.
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

one_result!(one_result_exponential, exp(), expm1(), log(), log1p(), softplus(), pow(y));
one_result!(one_result_activations, tanh(), sigmoid(), relu(), gelu(), erf());
one_result!(one_result_trigonometric, sin(), cos(), tan(), atan2(y));
one_result!(one_result_derivatives, tanh_grad(y), sigmoid_grad(), tan_grad(), erf_grad(), gelu_grad(), normal_pdf());

/// Slices of any length give the same results as scalars, including the tail.
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
        check!(exp expm1 log log1p softplus tanh sigmoid relu gelu erf sin cos tan
            sigmoid_grad tan_grad erf_grad gelu_grad normal_pdf);
    }
}

#[test]
#[should_panic(expected = "differ in length")]
fn slices_of_unequal_length_are_refused() {
    slices::exp(&[1.0, 2.0], &mut [0.0]);
}

/// A level that the CPU lacks is refused and changes nothing.
#[test]
fn forcing_a_level_the_cpu_lacks_changes_nothing() {
    let _turn = levels();
    let lacking = [Level::Baseline, Level::Neon, Level::Avx2, Level::Avx512];
    for level in lacking.into_iter().filter(|l| !available_levels().contains(l)) {
        assert!(!force_level(Some(level)));
    }
}

/// The guaranteed bounds, in units in the last place, for both types.
macro_rules! with_bounds {
    ($then:ident) => {
        $then! {
            exp 1.0, expm1 1.0, log 1.0, log1p 1.0, softplus 2.0, tanh 3.0, sigmoid 3.0, sigmoid_grad 4.0,
            sin 1.0, cos 1.0, tan 2.0, tan_grad 2.0, erf 1.0, erf_grad 2.0, normal_pdf 2.0, gelu 4.0, gelu_grad 2.0
        }
    };
}

/// The distance of `got` from `high + low` in units in the last place of an f64.
fn ulps(high: f64, low: f64, got: f64) -> f64 {
    if !got.is_finite() {
        return f64::INFINITY;
    }
    let exponent = (((high.to_bits() >> 52) & 0x7ff) as i32 - 1023).max(-1022);
    // In two steps, for units below the smallest normal number.
    (((got - high) - low) * 2f64.powi(52)).abs() / 2f64.powi(exponent)
}

/// Every f64 function meets its bound at the arguments of math_reference.txt, computed with 300 bits by mpmath.
#[test]
fn f64_results_are_within_their_bounds() {
    let mut seen = 0;
    for line in include_str!("math_reference.txt").lines() {
        let (name, numbers) = line.split_once(' ').unwrap();
        let numbers: Vec<f64> =
            numbers.split(' ').map(|s| f64::from_bits(u64::from_str_radix(s, 16).unwrap())).collect();
        let [x, y, high, low] = numbers[..] else { panic!("{line}") };
        macro_rules! value {
            ($($f:ident $bound:literal),*) => {
                match name {
                    $(stringify!($f) => (Elementary::$f(x), $bound),)*
                    "pow" => (Elementary::pow(x, y), 1.0),
                    "atan2" => (Elementary::atan2(x, y), 2.0),
                    _ => panic!("{line}"),
                }
            };
        }
        let (got, bound) = with_bounds!(value);
        let error = ulps(high, low, got);
        assert!(error < bound, "{name}({x:e}, {y:e}) = {got:e}, not {high:e}: {error} ULP");
        seen += 1;
    }
    assert!(seen > 1900);
}

/// The distance of `got` from `exact` in units in the last place of an f32; infinity stands for 2^128.
fn ulps_f32(exact: f64, got: f32) -> f64 {
    if exact.is_nan() || got.is_nan() {
        return if exact.is_nan() && got.is_nan() { 0.0 } else { f64::INFINITY };
    }
    let top = 2f64.powi(128);
    if got.is_infinite() && exact.abs() >= top {
        return if exact.signum() == f64::from(got.signum()) { 0.0 } else { f64::INFINITY };
    }
    let exponent = (((exact.to_bits() >> 52) & 0x7ff) as i32 - 1023).clamp(-126, 127);
    let got = if got.is_infinite() { top.copysign(got as f64) } else { got as f64 };
    (exact - got).abs() * 2f64.powi(23 - exponent)
}

/// Every f32 function meets its bound against the f64 function, whose own error is negligible.
#[test]
fn f32_results_are_within_their_bounds() {
    let x = singles(100_000, 11);
    let mut y = singles(100_000, 12);
    y.rotate_left(7);
    for (&x, &y) in x.iter().zip(&y) {
        macro_rules! check {
            ($($f:ident $bound:literal),*) => {$(
                let error = ulps_f32(Elementary::$f(f64::from(x)), Elementary::$f(x));
                assert!(error < $bound, "{}({x:e}): {error} ULP", stringify!($f));
            )*};
        }
        with_bounds!(check);
        let (wide_x, wide_y) = (f64::from(x), f64::from(y));
        assert!(ulps_f32(Elementary::pow(wide_x, wide_y), Elementary::pow(x, y)) < 1.0, "pow({x:e}, {y:e})");
        assert!(ulps_f32(Elementary::atan2(wide_x, wide_y), Elementary::atan2(x, y)) < 2.0, "atan2({x:e}, {y:e})");
        let exact = Elementary::tanh_grad(wide_x, Elementary::tanh(wide_x));
        let error = ulps_f32(exact, Elementary::tanh_grad(x, Elementary::tanh(x)));
        assert!(error < 6.0, "tanh_grad({x:e}): {error} ULP");
    }
}

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

/// Values fixed by C99 Annex F, and those stated in the manual, in both types.
#[test]
fn special_values_of_one_argument() {
    macro_rules! check {
        ($($f:ident: $($x:expr => $y:expr),*;)*) => {$($(
            let (x, y): (f64, f64) = ($x, $y);
            assert_eq!(bits(Elementary::$f(x)), bits(y), "{}({x:?})", stringify!($f));
            assert_eq!(bits(Elementary::$f(x as f32)), bits(y as f32), "{}({x:?}) in f32", stringify!($f));
        )*)*};
    }
    check! {
        exp: 0.0 => 1.0, -0.0 => 1.0, INF => INF, -INF => 0.0, NAN => NAN, 1000.0 => INF, -1000.0 => 0.0;
        expm1: 0.0 => 0.0, -0.0 => -0.0, INF => INF, -INF => -1.0, NAN => NAN, 1000.0 => INF, -1000.0 => -1.0;
        log: 1.0 => 0.0, 0.0 => -INF, -0.0 => -INF, -1.0 => NAN, INF => INF, -INF => NAN, NAN => NAN;
        log1p: 0.0 => 0.0, -0.0 => -0.0, -1.0 => -INF, -2.0 => NAN, INF => INF, -INF => NAN, NAN => NAN;
        softplus: INF => INF, -INF => 0.0, NAN => NAN, 1000.0 => 1000.0, -1000.0 => 0.0;
        tanh: 0.0 => 0.0, -0.0 => -0.0, INF => 1.0, -INF => -1.0, NAN => NAN, 30.0 => 1.0;
        sigmoid: 0.0 => 0.5, -0.0 => 0.5, INF => 1.0, -INF => 0.0, NAN => NAN, -1000.0 => 0.0;
        sigmoid_grad: 0.0 => 0.25, INF => 0.0, -INF => 0.0, NAN => NAN, -1000.0 => 0.0;
        sin: 0.0 => 0.0, -0.0 => -0.0, INF => NAN, -INF => NAN, NAN => NAN;
        cos: 0.0 => 1.0, -0.0 => 1.0, INF => NAN, -INF => NAN, NAN => NAN;
        tan: 0.0 => 0.0, -0.0 => -0.0, INF => NAN, -INF => NAN, NAN => NAN;
        tan_grad: 0.0 => 1.0, -0.0 => 1.0, INF => NAN, NAN => NAN;
        erf: 0.0 => 0.0, -0.0 => -0.0, INF => 1.0, -INF => -1.0, NAN => NAN, 7.0 => 1.0;
        erf_grad: 0.0 => std::f64::consts::FRAC_2_SQRT_PI, INF => 0.0, -INF => 0.0, NAN => NAN;
        normal_pdf: 0.0 => 0.3989422804014327, INF => 0.0, -INF => 0.0, NAN => NAN;
        gelu: 0.0 => 0.0, -0.0 => -0.0, INF => INF, -INF => -0.0, NAN => NAN, 100.0 => 100.0, -100.0 => -0.0;
        gelu_grad: 0.0 => 0.5, -0.0 => 0.5, INF => 1.0, NAN => NAN, 100.0 => 1.0;
        relu: 0.0 => 0.0, -0.0 => 0.0, INF => INF, -INF => 0.0, NAN => NAN, 3.0 => 3.0, -3.0 => 0.0;
    }
    assert_eq!(Elementary::sin(1e22), -0.8522008497671888);
    assert_eq!(Elementary::gelu_grad(-INF), 0.0);
    // The numbers on both sides of the root and next to it.
    let beside_root = [
        (-0.7517915246935645, -6.453751729367753e-18),
        (-0.7517915246935646, -5.435920825481627e-17),
        (-0.7517915246935635, 4.2469535699966934e-16),
    ];
    for (x, slope) in beside_root {
        assert!((Elementary::gelu_grad(x) / slope - 1.0f64).abs() < 5e-16, "gelu_grad({x})");
    }
    let tail = Elementary::tanh_grad(20.0, Elementary::tanh(20.0));
    assert!((tail / 1.6993417021166355e-17 - 1.0).abs() < 1e-15, "{tail}");
}

/// The smallest numbers pass unchanged through functions that are x near 0, and subnormal results are kept.
#[test]
fn subnormals_are_kept() {
    for x in [5e-324, -5e-324, 1e-310, -1e-310, f64::MIN_POSITIVE, 3e-308] {
        assert_eq!(Elementary::expm1(x), x);
        assert_eq!(Elementary::log1p(x), x);
        assert_eq!(Elementary::tanh(x), x);
        assert_eq!(Elementary::sin(x), x);
        assert_eq!(Elementary::tan(x), x);
        assert_eq!(Elementary::atan2(x, 1.0), x);
        assert_eq!(Elementary::pow(x, 1.0), x);
    }
    for x in [1e-45f32, -1e-45, 1e-40, f32::MIN_POSITIVE] {
        assert_eq!(Elementary::expm1(x), x);
        assert_eq!(Elementary::log1p(x), x);
        assert_eq!(Elementary::tanh(x), x);
        assert_eq!(Elementary::sin(x), x);
        assert_eq!(Elementary::tan(x), x);
        assert_eq!(Elementary::atan2(x, 1.0), x);
        assert_eq!(Elementary::pow(x, 1.0), x);
    }
    assert_eq!(Elementary::exp(-745.0), 5e-324);
    assert_eq!(Elementary::exp(-103.0f32), 1e-45);
    assert_eq!(Elementary::log(5e-324), -744.4400719213812);
    assert_eq!(Elementary::log(1e-45f32), -103.27893);
    assert_eq!(Elementary::sigmoid(-745.0), 5e-324);
}

/// The list of C99 F.10.4.4, in both types.
#[test]
fn special_values_of_pow() {
    let rows = [
        (0.0, -3.0, INF),
        (-0.0, -3.0, -INF),
        (0.0, -2.5, INF),
        (-0.0, -2.0, INF),
        (0.0, -INF, INF),
        (-0.0, -INF, INF),
        (0.0, 3.0, 0.0),
        (-0.0, 3.0, -0.0),
        (0.0, 2.5, 0.0),
        (-0.0, 2.0, 0.0),
        (-0.0, 0.5, 0.0),
        (-1.0, INF, 1.0),
        (-1.0, -INF, 1.0),
        (1.0, NAN, 1.0),
        (1.0, INF, 1.0),
        (NAN, 0.0, 1.0),
        (0.0, 0.0, 1.0),
        (INF, -0.0, 1.0),
        (-2.0, 0.5, NAN),
        (-2.0, 3.0, -8.0),
        (-2.0, 2.0, 4.0),
        (-2.0, -1.0, -0.5),
        (0.5, -INF, INF),
        (2.0, -INF, 0.0),
        (0.5, INF, 0.0),
        (2.0, INF, INF),
        (-2.0, INF, INF),
        (-INF, -3.0, -0.0),
        (-INF, -2.0, 0.0),
        (-INF, -0.5, 0.0),
        (-INF, 3.0, -INF),
        (-INF, 2.0, INF),
        (-INF, 0.5, INF),
        (INF, -0.5, 0.0),
        (INF, 0.5, INF),
        (NAN, 1.0, NAN),
        (2.0, NAN, NAN),
        (-1.0, 16777216.0, 1.0),
        (-1.0, 16777215.0, -1.0),
        (10.0, 400.0, INF),
        (10.0, -400.0, 0.0),
        (-10.0, 401.0, -INF),
        (-10.0, -401.0, -0.0),
        (2.0, 0.5, std::f64::consts::SQRT_2),
    ];
    for (x, y, z) in rows {
        assert_eq!(bits(Elementary::pow(x, y)), bits(z), "pow({x:?}, {y:?})");
        assert_eq!(bits(Elementary::pow(x as f32, y as f32)), bits(z as f32), "pow({x:?}, {y:?}) in f32");
    }
    assert_eq!(Elementary::pow(-1.0, 9007199254740991.0), -1.0);
    assert_eq!(Elementary::pow(-1.0, 9007199254740992.0), 1.0);
    assert_eq!(bits(Elementary::pow(-1.0, 2251799813685249.5)), bits(NAN));
}

/// The list of C99 F.10.1.4, in both types.
#[test]
fn special_values_of_atan2() {
    use std::f64::consts::{FRAC_PI_2, FRAC_PI_4, PI};
    let rows = [
        (0.0, 0.0, 0.0),
        (-0.0, 0.0, -0.0),
        (0.0, -0.0, PI),
        (-0.0, -0.0, -PI),
        (0.0, 1.0, 0.0),
        (-0.0, 1.0, -0.0),
        (0.0, -1.0, PI),
        (-0.0, -1.0, -PI),
        (1.0, 0.0, FRAC_PI_2),
        (-1.0, -0.0, -FRAC_PI_2),
        (1.0, 1.0, FRAC_PI_4),
        (1.0, -1.0, 3.0 * FRAC_PI_4),
        (1.0, INF, 0.0),
        (-1.0, INF, -0.0),
        (1.0, -INF, PI),
        (-1.0, -INF, -PI),
        (INF, 1.0, FRAC_PI_2),
        (-INF, -1.0, -FRAC_PI_2),
        (INF, INF, FRAC_PI_4),
        (-INF, INF, -FRAC_PI_4),
        (INF, -INF, 3.0 * FRAC_PI_4),
        (-INF, -INF, -3.0 * FRAC_PI_4),
        (NAN, 1.0, NAN),
        (1.0, NAN, NAN),
        (0.0, NAN, NAN),
        (INF, NAN, NAN),
    ];
    for (y, x, angle) in rows {
        assert_eq!(bits(Elementary::atan2(y, x)), bits(angle), "atan2({y:?}, {x:?})");
        let (y, x, angle) = (y as f32, x as f32, angle as f32);
        assert_eq!(bits(Elementary::atan2(y, x)), bits(angle), "atan2({y:?}, {x:?}) in f32");
    }
}

/// If all lanes are moderate, clamping and double scaling are skipped; the bits are those of the general path.
#[test]
fn exponentials_next_to_extreme_ones_keep_their_bits() {
    let mut random = Random(7);
    for k in 0..20_000 {
        let x = 1400.0 * ((random.next() >> 11) as f64 * 2f64.powi(-53)) - 700.0;
        let calm = <F64x4 as Real>::splat(x);
        let mixed = calm.with_lane(k % 3, if k % 2 == 0 { 1e3 } else { -INF });
        for f in [Elementary::exp, Elementary::softplus, Elementary::sigmoid] as [fn(F64x4) -> F64x4; 3] {
            assert_eq!(bits(f(calm).lane(3)), bits(f(mixed).lane(3)), "{x}");
        }
        let x = (x / 8.0) as f32;
        let calm = <F32x4 as Real>::splat(x);
        let mixed = calm.with_lane(k % 3, 1e3);
        for f in [Elementary::exp, Elementary::softplus, Elementary::sigmoid] as [fn(F32x4) -> F32x4; 3] {
            assert_eq!(bits(f(calm).lane(3)), bits(f(mixed).lane(3)), "{x}");
        }
    }
}

/// A huge argument takes a separate path in its own lane without changing its neighbours.
#[test]
fn a_huge_argument_does_not_disturb_its_neighbours() {
    let calm = <F64x8 as Real>::splat(1.25);
    let mixed = calm.with_lane(3, 1e22).with_lane(5, INF);
    let (calm, mixed) = (Elementary::sin(calm), Elementary::sin(mixed));
    for i in [0, 1, 2, 4, 6, 7] {
        assert_eq!(bits(calm.lane(i)), bits(mixed.lane(i)));
    }
    assert_eq!(mixed.lane(3), -0.8522008497671888);
    assert!(mixed.lane(5).is_nan());
}
