//! Exponentials, logarithms, trigonometric functions, powers and roots of f128.
//!
//! Promises: within 1 unit in the last place everywhere, mostly the nearest number; zeros, infinities and NaN as in C. Each is
//! computed in 192 bits and rounded once. Uses a mathematical library only for approximations of 50 bits that are then improved.

use super::wide_exact::{floor, round_ties_even};
use super::wide_long::Long;
use super::wide_two_over_pi::TWO_OVER_PI;

/// ln 2.
const LN_2: Long = Long::constant(0, [0xb172_17f7_d1cf_79ab, 0xc9e3_b398_03f2_f6af, 0x40f3_4326_7298_b62e]);
/// ln 10.
const LN_10: Long = Long::constant(2, [0x935d_8ddd_aaa8_ac16, 0xea56_d62b_82d3_0a28, 0xe28f_ecf9_da5d_f90f]);
/// 1 / ln 2.
const LOG2_E: Long = Long::constant(1, [0xb8aa_3b29_5c17_f0bb, 0xbe87_fed0_691d_3e88, 0xeb57_7aa8_dd69_5a59]);
/// 1 / ln 10.
const LOG10_E: Long = Long::constant(-1, [0xde5b_d8a9_3728_7195, 0x355b_aaaf_ad33_dc32, 0x3ee3_4602_45c9_a202]);
/// pi / 2.
const FRAC_PI_2: Long = Long::constant(1, [0xc90f_daa2_2168_c234, 0xc4c6_628b_80dc_1cd1, 0x2902_4e08_8a67_cc74]);
const HALF: Long = Long::ONE.scaled(-1);
const THIRD: Long = Long::inverse(3);

/// 1/n! for n up to 43.
static INVERSE_FACTORIALS: [Long; 44] = {
    let mut all = [Long::ONE; 44];
    let mut n = 1;
    while n < all.len() {
        all[n] = all[n - 1].times(Long::inverse(n as u64));
        n += 1;
    }
    all
};

/// e^x. Not inlined, like each function below: it is long, and most functions call it.
#[inline(never)]
#[optimize(size)]
pub(super) fn long_exp(x: Long) -> Long {
    if x.power() > 20 {
        return Long::ONE.scaled(if x.is_negative() { -100_000 } else { 100_000 });
    }
    let n = (x.to_f64() * std::f64::consts::LOG2_E).round_ties_even();
    let rest = x - LN_2 * Long::from_f64(n);
    let halvings = (rest.power() + 9).max(0);
    let rest = rest.scaled(-halvings);
    let mut power = INVERSE_FACTORIALS[..17].iter().rev().fold(Long::ZERO, |sum, &term| sum * rest + term);
    for _ in 0..halvings {
        power = power * power;
    }
    power.scaled(n as i32)
}

/// e^x - 1.
fn long_expm1(x: Long) -> Long {
    if x.power() > -40 {
        return long_exp(x) - Long::ONE;
    }
    INVERSE_FACTORIALS[1..7].iter().rev().fold(Long::ZERO, |sum, &term| sum * x + term) * x
}

/// The logarithm of a number above 0.
#[inline(never)]
#[optimize(size)]
pub(super) fn long_log(x: Long) -> Long {
    let size = x.scaled(-x.power());
    let power = x.power() - i32::from(size.to_f64() < std::f64::consts::FRAC_1_SQRT_2);
    let size = x.scaled(-power);
    let near = Long::from_f64(size.to_f64().ln());
    LN_2 * Long::from_integer(power.into()) + (near + near_log1p(size * long_exp(-near) - Long::ONE))
}

/// log(1 + x) for |x| below 2^-50.
fn near_log1p(x: Long) -> Long {
    x - x * x * (HALF - x * THIRD)
}

/// log(1 + x) for x above -1.
fn long_log1p(x: Long) -> Long {
    if x.power() < -70 { near_log1p(x) } else { long_log(Long::ONE + x) }
}

/// x times the sum of `(-1)^n x^2n / (2n + 1)!`, and the sum of `(-1)^n x^2n / (2n)!`; |x| is below 1.
#[inline(never)]
#[optimize(size)]
pub(super) fn long_sin_cos(x: Long) -> (Long, Long) {
    let square = -(x * x);
    let sum = |first: usize| {
        let terms = INVERSE_FACTORIALS[first..].iter().step_by(2);
        terms.rev().fold(Long::ZERO, |sum, &term| sum * square + term)
    };
    (x * sum(1), sum(0))
}

/// The remainder of a finite number modulo pi/2: the quotient modulo 4, and a remainder of at most pi/4.
#[inline(never)]
#[optimize(size)]
fn reduced(x: f128) -> (u32, Long) {
    const LIMBS: usize = 7;
    let long = Long::new(x);
    if long.power() < 0 {
        return (0, long);
    }
    // x| is an integer of 113 bits times 2^exponent. Bits of 2/pi whose product with it is a multiple of 4 are skipped.
    let exponent = long.power() - 113;
    let integer = x.to_bits() & ((1 << 112) - 1) | 1 << 112;
    let first = (exponent - 2 + 128) as usize;
    let (limb, bits) = (first / 64, (first % 64) as u32);
    let window = |k: usize| {
        let (high, low) = (TWO_OVER_PI[limb + k], TWO_OVER_PI[limb + k + 1]);
        high << bits | low.checked_shr(64 - bits).unwrap_or(0)
    };
    let mut product = [0_u64; LIMBS];
    for (shift, factor) in [(0, integer as u64), (1, (integer >> 64) as u64)] {
        let mut carry = 0;
        for k in (shift..LIMBS).rev() {
            let sum = u128::from(window(k)) * u128::from(factor) + u128::from(product[k - shift]) + carry;
            product[k - shift] = sum as u64;
            carry = sum >> 64;
        }
    }
    // Two integer bits.
    let mut quadrant = (product[0] >> 62) as u32;
    let mut fraction: [u64; LIMBS] =
        std::array::from_fn(|k| product[k] << 2 | product.get(k + 1).map_or(0, |next| next >> 62));
    let beyond_half = fraction[0] >> 63 == 1;
    if beyond_half {
        quadrant += 1;
        let mut carry = true;
        for limb in fraction.iter_mut().rev() {
            (*limb, carry) = (!*limb).overflowing_add(carry.into());
        }
    }
    let zeros = fraction.iter().take_while(|&&limb| limb == 0).count();
    let leading: [u64; 4] = std::array::from_fn(|k| fraction.get(zeros + k).copied().unwrap_or(0));
    let power = -64 * zeros as i32;
    let high = Long::normalised(beyond_half, power, [leading[0], leading[1], leading[2]]);
    let rest = high + Long::normalised(beyond_half, power - 192, [leading[3], 0, 0]);
    let rest = rest * FRAC_PI_2;
    if x < 0.0 { (quadrant.wrapping_neg() % 4, -rest) } else { (quadrant % 4, rest) }
}

/// The angle of a point in the first quadrant, (0, 0) excluded.
#[inline(never)]
#[optimize(size)]
fn angle(y: Long, x: Long) -> Long {
    if (x - y).is_negative() {
        return FRAC_PI_2 - angle(x, y);
    }
    let near = Long::from_f64(y.over(x).to_f64().atan());
    let (sin, cos) = long_sin_cos(near);
    let tangent = (y * cos - x * sin).over(x * cos + y * sin);
    near + (tangent - tangent * tangent * tangent * THIRD)
}

/// sqrt((1 - x)(1 + x)) for |x| up to 1.
fn other_side(x: f128) -> Long {
    let x = Long::new(x);
    ((Long::ONE - x) * (Long::ONE + x)).sqrt()
}

pub(super) fn exp(x: f128) -> f128 {
    if x.is_nan() { x } else { long_exp(bounded(x)).round() }
}

pub(super) fn exp_m1(x: f128) -> f128 {
    if x.is_nan() || x == 0.0 { x } else { long_expm1(bounded(x)).round() }
}

pub(super) fn exp2(x: f128) -> f128 {
    if x.is_nan() {
        return x;
    }
    let n = round_ties_even(x.clamp(-20000.0, 20000.0));
    long_exp(Long::new(x.clamp(-20000.0, 20000.0) - n) * LN_2).scaled(n as i32).round()
}

pub(super) fn exp10(x: f128) -> f128 {
    if x.is_nan() { x } else { long_exp(bounded(x) * LN_10).round() }
}

/// Clamps numbers for functions that tend to 0 or infinity: far numbers give the same result as infinities.
fn bounded(x: f128) -> Long {
    Long::new(x.clamp(-50000.0, 50000.0))
}

/// A logarithm, computed by `of` for numbers above 0.
fn logarithm(x: f128, of: impl Fn(Long) -> Long) -> f128 {
    if x == 0.0 {
        f128::NEG_INFINITY
    } else if x < 0.0 {
        f128::NAN
    } else if x.is_finite() {
        of(Long::new(x)).round()
    } else {
        x
    }
}

pub(super) fn ln(x: f128) -> f128 {
    logarithm(x, long_log)
}

pub(super) fn log2(x: f128) -> f128 {
    logarithm(x, |x| long_log(x) * LOG2_E)
}

pub(super) fn log10(x: f128) -> f128 {
    logarithm(x, |x| long_log(x) * LOG10_E)
}

pub(super) fn ln_1p(x: f128) -> f128 {
    if x > -1.0 && x.is_finite() && x != 0.0 {
        long_log1p(Long::new(x)).round()
    } else if x == -1.0 {
        f128::NEG_INFINITY
    } else if x < -1.0 {
        f128::NAN
    } else {
        x
    }
}

pub(super) fn sinh(x: f128) -> f128 {
    if x.is_nan() || x == 0.0 {
        return x;
    }
    let less = long_expm1(bounded(x.abs()));
    ((less + less.over(Long::ONE + less)) * HALF).round().copysign(x)
}

pub(super) fn cosh(x: f128) -> f128 {
    if x.is_nan() {
        return x;
    }
    let power = long_exp(bounded(x.abs()));
    ((power + power.reciprocal()) * HALF).round()
}

pub(super) fn tanh(x: f128) -> f128 {
    if x.is_nan() || x == 0.0 {
        return x;
    }
    let less = long_expm1(bounded(x.abs()).scaled(1));
    less.over(less + Long::ONE.scaled(1)).round().copysign(x)
}

pub(super) fn sin(x: f128) -> f128 {
    if x == 0.0 {
        return x;
    }
    if x.is_finite() { turned(x, 0).round() } else { f128::NAN }
}

pub(super) fn cos(x: f128) -> f128 {
    if x.is_finite() { turned(x, 1).round() } else { f128::NAN }
}

pub(super) fn tan(x: f128) -> f128 {
    if x == 0.0 || !x.is_finite() {
        return if x == 0.0 { x } else { f128::NAN };
    }
    let (quadrant, rest) = reduced(x);
    let (sin, cos) = long_sin_cos(rest);
    if quadrant.is_multiple_of(2) { sin.over(cos).round() } else { -cos.over(sin).round() }
}

/// The sine of x plus a number of right angles.
fn turned(x: f128, right_angles: u32) -> Long {
    let (quadrant, rest) = reduced(x);
    let quadrant = quadrant + right_angles;
    let (sin, cos) = long_sin_cos(rest);
    let size = if quadrant.is_multiple_of(2) { sin } else { cos };
    if quadrant % 4 < 2 { size } else { -size }
}

pub(super) fn asin(x: f128) -> f128 {
    if x.abs() <= 1.0 && x != 0.0 {
        angle(Long::new(x.abs()), other_side(x)).round().copysign(x)
    } else if x == 0.0 {
        x
    } else {
        f128::NAN
    }
}

pub(super) fn acos(x: f128) -> f128 {
    if x.abs() <= 1.0 { whole_angle(other_side(x), x).round() } else { f128::NAN }
}

/// The angle of a point in the upper half plane.
fn whole_angle(y: Long, x: f128) -> Long {
    let acute = angle(y, Long::new(x.abs()));
    if x.is_sign_negative() { FRAC_PI_2.scaled(1) - acute } else { acute }
}

pub(super) fn atan(x: f128) -> f128 {
    if x == 0.0 || x.is_nan() { x } else { atan2(x, 1.0) }
}

pub(super) fn atan2(y: f128, x: f128) -> f128 {
    if y.is_nan() || x.is_nan() {
        return f128::NAN;
    }
    let size = |z: f128, other: f128| match (z.is_infinite(), other.is_infinite()) {
        (true, _) => 1.0_f128.copysign(z),
        (false, true) => 0.0_f128.copysign(z),
        (false, false) => z,
    };
    let (y, x) = (size(y, x), size(x, y));
    if y == 0.0 && x.is_sign_positive() {
        return y;
    }
    let (height, width) = if y == 0.0 { (y, -1.0) } else { (y, x) };
    whole_angle(Long::new(height.abs()), width).round().copysign(y)
}

pub(super) fn powf(x: f128, y: f128) -> f128 {
    let is_special = |z: f128| z == 0.0 || !z.is_finite();
    let is_whole = floor(y) == y;
    if is_special(x) || is_special(y) || x.abs() == 1.0 || x < 0.0 && !is_whole {
        // Numbers of the same kind give the same result.
        let base = if is_special(x) || x.abs() == 1.0 {
            x as f64
        } else {
            (if x.abs() > 1.0 { 2.0 } else { 0.5_f64 }).copysign(x as f64)
        };
        let exponent = if is_special(y) {
            y as f64
        } else {
            (if !is_whole {
                0.5
            } else if is_odd(y) {
                1.0
            } else {
                2.0_f64
            })
            .copysign(y as f64)
        };
        return base.powf(exponent).into();
    }
    let size = long_exp(Long::new(y) * long_log(Long::new(x.abs()))).round();
    if x < 0.0 && is_odd(y) { -size } else { size }
}

/// Whether a whole number is odd.
fn is_odd(y: f128) -> bool {
    let half = y * 0.5;
    floor(half) != half
}

pub(super) fn cbrt(x: f128) -> f128 {
    if x == 0.0 || !x.is_finite() {
        return x;
    }
    let long = Long::new(x.abs());
    let thirds = long.power().div_euclid(3);
    let size = long.scaled(-3 * thirds);
    let mut root = Long::from_f64(size.to_f64().cbrt());
    for _ in 0..2 {
        let square = root * root;
        root = root - (root * square - size).over(square) * THIRD;
    }
    root.scaled(thirds).round().copysign(x)
}

pub(super) fn hypot(x: f128, y: f128) -> f128 {
    if x.is_infinite() || y.is_infinite() {
        return f128::INFINITY;
    }
    if x.is_nan() || y.is_nan() {
        return f128::NAN;
    }
    let (x, y) = (Long::new(x), Long::new(y));
    (x * x + y * y).sqrt().round()
}
