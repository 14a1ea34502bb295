//! The error function, its complement, the normal distribution and the logarithm of gamma for f128.
//!
//! Promises: the error functions within 1 unit in the last place; log gamma too, except where its magnitude is below 2^-50:
//! there within 2^-160. Each is computed in 192 bits and rounded once.

use super::wide_elementary::{long_exp, long_log, long_sin_cos};
use super::wide_exact::round_ties_even;
use super::wide_long::Long;

/// 2 / sqrt(pi).
const TWO_OVER_ROOT_PI: Long = Long::constant(1, [0x906e_ba82_14db_688d, 0x71d4_8a7f_6bfe_c344, 0x1409_a0eb_ac3e_7517]);
/// 1 / sqrt(2).
const ROOT_HALF: Long = Long::constant(0, [0xb504_f333_f9de_6484, 0x597d_89b3_754a_be9f, 0x1d6f_60ba_893b_a84d]);
/// ln pi.
const LN_PI: Long = Long::constant(1, [0x9286_8247_3d0d_e85e, 0xafca_b635_421f_a4cc, 0x2f36_edf9_d9f9_3037]);
/// pi.
const PI: Long = Long::constant(2, [0xc90f_daa2_2168_c234, 0xc4c6_628b_80dc_1cd1, 0x2902_4e08_8a67_cc74]);
/// ln(2 pi) / 2.
const HALF_LN_TAU: Long = Long::constant(0, [0xeb3f_8e43_25f5_a534, 0x94bc_9001_4419_2023, 0xcfb0_8f8d_1345_8b4e]);

/// The coefficients of Stirling's series, as fractions: the Bernoulli number 2k over 2k(2k - 1).
const STIRLING: [(i64, u64); 17] = [
    (1, 12),
    (-1, 360),
    (1, 1260),
    (-1, 1680),
    (5, 5940),
    (-691, 360_360),
    (7, 1092),
    (-3617, 122_400),
    (43867, 244_188),
    (-174_611, 125_400),
    (854_513, 63_756),
    (-236_364_091, 1_506_960),
    (8_553_103, 3900),
    (-23_749_461_029, 657_720),
    (8_615_841_276_005, 12_460_140),
    (-7_709_321_041_217, 505_920),
    (2_577_687_858_367, 6732),
];
/// The smallest argument for which they suffice.
const STIRLING_FROM: f64 = 48.0;

/// Above this magnitude the complement is computed directly.
const TAIL_FROM: f64 = 4.0;

pub(super) fn erf(x: f128) -> f128 {
    if x.is_nan() || x == 0.0 {
        return x;
    }
    let size = Long::new(x.abs().min(200.0));
    let of_size = if size.to_f64() < TAIL_FROM { series(size) } else { Long::ONE - tail(size) };
    of_size.round().copysign(x)
}

pub(super) fn erfc(x: f128) -> f128 {
    if x.is_nan() { x } else { long_erfc(Long::new(x.clamp(-200.0, 200.0))).round() }
}

/// The normal distribution function at x.
pub(super) fn normal(x: f128) -> f128 {
    if x.is_nan() { x } else { long_erfc(-(Long::new(x.clamp(-300.0, 300.0)) * ROOT_HALF)).scaled(-1).round() }
}

/// e^(factor x^2), for a factor below 0.
pub(super) fn exp_of_square(x: f128, factor: f128) -> f128 {
    if x.is_nan() {
        return x;
    }
    let x = Long::new(x.clamp(-300.0, 300.0));
    long_exp(x * x * Long::new(factor)).round()
}

/// 1 - erf(x).
pub(super) fn long_erfc(x: Long) -> Long {
    let size = x.abs();
    match (size.to_f64() < TAIL_FROM, x.is_negative()) {
        (true, false) => Long::ONE - series(size),
        (true, true) => Long::ONE + series(size),
        (false, false) => tail(size),
        (false, true) => Long::ONE.scaled(1) - tail(size),
    }
}

/// `2/sqrt(pi) e^(-x^2)` times the sum of `2^n x^(2n + 1) / (1 * 3 * ... (2n + 1))`, whose terms are all positive.
#[inline(never)]
#[optimize(size)]
fn series(x: Long) -> Long {
    let double_square = (x * x).scaled(1);
    let (mut term, mut sum, mut n) = (x, x, 1);
    while !term.is_zero() && term.power() > sum.power() - 180 {
        n += 2;
        term = term * double_square * Long::inverse(n);
        sum = sum + term;
    }
    TWO_OVER_ROOT_PI * sum * long_exp(-double_square.scaled(-1))
}

/// The complement by its continued fraction, `e^(-x^2)/sqrt(pi) / (x + 1/2 / (x + 2/2 / (x + 3/2 / ...)))`, evaluated
/// from the front.
#[inline(never)]
#[optimize(size)]
fn tail(x: Long) -> Long {
    let n_terms = 10 + (320.0 / x.to_f64()) as i64;
    let (mut last, mut now) = ((Long::ZERO, Long::ONE), (Long::ONE, x));
    for n in 1..=n_terms {
        let factor = Long::from_integer(n).scaled(-1);
        (last, now) = (now, (x * now.0 + factor * last.0, x * now.1 + factor * last.1));
    }
    (TWO_OVER_ROOT_PI * now.0.over(now.1) * long_exp(-(x * x))).scaled(-1)
}

/// log |gamma(x)|.
pub(super) fn ln_gamma(x: f128) -> f128 {
    if !x.is_finite() {
        return x.abs();
    }
    if x > 0.0 {
        return if x == 1.0 || x == 2.0 { 0.0 } else { long_ln_gamma(Long::new(x)).round() };
    }
    let rest = x - round_ties_even(x);
    if rest == 0.0 {
        return f128::INFINITY;
    }
    let sin = long_sin_cos_of_pi(rest.abs());
    (LN_PI - long_log(sin) - long_ln_gamma(Long::ONE - Long::new(x))).round()
}

/// sin(pi x) for x between 0 and 1/2.
fn long_sin_cos_of_pi(x: f128) -> Long {
    if x <= 0.25 { long_sin_cos(PI * Long::new(x)).0 } else { long_sin_cos(PI * Long::new(0.5 - x)).1 }
}

/// For a number above 0: Stirling's series, after steps to where it is accurate.
#[inline(never)]
#[optimize(size)]
fn long_ln_gamma(mut x: Long) -> Long {
    let mut product = Long::ONE;
    while x.to_f64() < STIRLING_FROM {
        product = product * x;
        x = x + Long::ONE;
    }
    let inverse = x.reciprocal();
    let square = inverse * inverse;
    let terms = STIRLING
        .iter()
        .rev()
        .map(|&(numerator, denominator)| Long::from_integer(numerator) * Long::inverse(denominator));
    let series = terms.fold(Long::ZERO, |sum, term| sum * square + term) * inverse;
    (x - Long::ONE.scaled(-1)) * long_log(x) - x + HALF_LN_TAU + series - long_log(product)
}
