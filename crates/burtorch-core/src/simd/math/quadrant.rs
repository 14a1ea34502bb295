//! Argument reduction for sin, cos and tan: x = n pi/2 + r with |r| up to pi/4, r in two parts.
//!
//! Up to 2^20 by Cody and Waite's method with pi/2 in three parts; beyond it by Payne and Hanek's, one lane at a time,
//! for those lanes only: a lane's result never depends on its neighbours.

use super::poly::{fast_two_sum, two_sum};
use crate::simd::{Real, Truth};

/// pi/2 in three parts; n times the first is exact for n below 2^20.
const PIO2: [f64; 3] = [1.5707963267341256, 6.077100506506192e-11, 3.5215598651832e-27];

/// pi/2 in two parts.
const PIO2_PAIR: [f64; 2] = [std::f64::consts::FRAC_PI_2, 6.123233995736766e-17];

/// Up to this |x|, x is in quadrant 0.
pub(super) const NEAR: f64 = 0.785;

/// Between these |x| is in quadrant 1.
pub(super) const NEXT: [f64; 2] = [0.786, 2.356];

/// The magnitude from which the other method is used.
pub(super) const FAR: f64 = 1048576.0;

/// 64 zeros, then the first 1280 binary digits of 2/pi after the point.
const TWO_OVER_PI: [u64; 21] = [
    0,
    0xa2f9836e4e441529,
    0xfc2757d1f534ddc0,
    0xdb6295993c439041,
    0xfe5163abdebbc561,
    0xb7246e3a424dd2e0,
    0x06492eea09d1921c,
    0xfe1deb1cb129a73e,
    0xe88235f52ebb4484,
    0xe99c7026b45f7e41,
    0x3991d639835339f4,
    0x9c845f8bbdf9283b,
    0x1ff897ffde05980f,
    0xef2f118b5a0a6d1f,
    0x6d367ecf27cb09b7,
    0x4f463f669e5fea2d,
    0x7527bac7ebe5f17b,
    0x3d0739f78a5292ea,
    0x6bfb5fb11f8d5d08,
    0x56033046fc7b6bab,
    0xf0cfbc209af4361d,
];

/// x = (4 k + quadrant) pi/2 + r + low, for some integer k.
#[derive(Clone, Copy)]
pub(super) struct Reduced<W: Real> {
    /// An integer modulo 4.
    pub(super) quadrant: W,
    pub(super) r: W,
    pub(super) low: W,
}

/// Reduces any f64; infinities and NaN give NaN. `SHORT` is for results in f32: a low part of 0, and r accurate to
/// 2^-66.
#[inline(always)]
pub(super) fn reduce<W: Real<Elem = f64>, const SHORT: bool>(x: W) -> Reduced<W> {
    // A shortcut with the same result, for a small number whose sine is needed soon.
    if W::LANES == 1 && x.abs().is_le(W::of(NEAR)).all() {
        return Reduced { quadrant: W::of(0.0), r: x, low: W::of(0.0) };
    }
    let quadrant = nearest(x);
    let near = if SHORT {
        let first = (-quadrant).mul_add(W::of(PIO2[0]), x);
        Reduced { quadrant, r: (-quadrant).mul_add(W::of(PIO2[1]), first), low: W::of(0.0) }
    } else {
        let (second, r, low) = parts(x, quadrant);
        Reduced { quadrant, r, low: low - (r - second) }
    };
    if x.abs().is_le(W::of(FAR)).all() {
        return near;
    }
    let mut mixed = near;
    replace_far(&x, &mut mixed);
    mixed
}

/// The multiple of pi/2 nearest to x, for |x| up to [`FAR`].
#[inline(always)]
pub(super) fn nearest<W: Real<Elem = f64>>(x: W) -> W {
    (x * W::of(std::f64::consts::FRAC_2_PI)).round_to_int().0
}

/// x - n (P0 + P1 + P2) in two parts, and their intermediate sum: the first difference is exact, the second keeps both
/// errors.
#[inline(always)]
pub(super) fn parts<W: Real<Elem = f64>>(x: W, n: W) -> (W, W, W) {
    let first = (-n).mul_add(W::of(PIO2[0]), x);
    let product = n * W::of(PIO2[1]);
    let product_low = n.mul_add(W::of(PIO2[1]), -product);
    let (second, second_low) = two_sum(first, -product);
    let low = (-n).mul_add(W::of(PIO2[2]), second_low - product_low);
    (second, second + low, low)
}

/// Reduces the lanes beyond [`FAR`] by the other method; by reference, because it is compiled once for all levels.
#[cold]
#[inline(never)]
fn replace_far<W: Real<Elem = f64>>(x: &W, near: &mut Reduced<W>) {
    for i in 0..W::LANES {
        let x = x.lane(i);
        if x.abs() <= FAR {
            continue;
        }
        let far = reduce_far(x);
        near.quadrant = near.quadrant.with_lane(i, far.quadrant);
        near.r = near.r.with_lane(i, far.r);
        near.low = near.low.with_lane(i, far.low);
    }
}

/// Payne and Hanek: multiplies the significand of x by the 192 digits of 2/pi that determine x 2/pi modulo 4.
///
/// The product is exact modulo 4 except for the omitted digits, which are below 2^-136; the fraction is never below
/// 2^-63, so 70 bits of r are correct.
fn reduce_far(x: f64) -> Reduced<f64> {
    if !x.is_finite() {
        return Reduced { quadrant: 0.0, r: f64::NAN, low: f64::NAN };
    }
    let bits = x.to_bits();
    let significand = (bits & ((1 << 52) - 1)) | (1 << 52);
    let exponent = ((bits >> 52) & 0x7ff) as usize;
    // x| = significand 2^e with e = exponent - 1075; digits of 2/pi up to place e - 2 give only multiples of 4.
    let [top, middle, bottom] = digits(exponent + 62 - 1075);
    let low = u128::from(significand) * u128::from(bottom);
    let mid = u128::from(significand) * u128::from(middle) + (low >> 64);
    let high = significand.wrapping_mul(top).wrapping_add((mid >> 64) as u64);

    let quadrant = high >> 62;
    // The fraction in units of 2^-128 (190 bits are known; 64 of them are dropped after normalisation).
    let mut words = [(high << 2) | ((mid as u64) >> 62), ((mid as u64) << 2) | ((low as u64) >> 62), (low as u64) << 2];
    let above_half = words[0] >> 63 == 1;
    if above_half {
        negate(&mut words);
    }
    let (r, low) = times_half_pi(words);
    let sign = if (x < 0.0) != above_half { -1.0 } else { 1.0 };
    let turned = if above_half { quadrant + 1 } else { quadrant } as f64;
    Reduced { quadrant: if x < 0.0 { -turned } else { turned }, r: sign * r, low: sign * low }
}

/// 192 digits of [`TWO_OVER_PI`] from place `start`, most significant word first.
fn digits(start: usize) -> [u64; 3] {
    let (word, shift) = (start / 64, start % 64);
    std::array::from_fn(|i| {
        let pair = (u128::from(TWO_OVER_PI[word + i]) << 64) | u128::from(TWO_OVER_PI[word + i + 1]);
        ((pair << shift) >> 64) as u64
    })
}

/// 1 - fraction, in two's complement.
fn negate(words: &mut [u64; 3]) {
    let (low, carry) = (!words[2]).overflowing_add(1);
    let (mid, carry) = (!words[1]).overflowing_add(carry as u64);
    *words = [(!words[0]).wrapping_add(carry as u64), mid, low];
}

/// A fraction of 192 bits times pi/2, in two parts.
fn times_half_pi(words: [u64; 3]) -> (f64, f64) {
    // At most 63 leading zeros for any f64: 128 significant bits are left.
    let zeros = words[0].leading_zeros().min(63);
    let wide = (u128::from(words[0]) << 64) | u128::from(words[1]);
    let wide = (wide << zeros) | (u128::from(words[2]) >> (64 - zeros));
    // Two exact pieces of 53 bits; 2^-53 and 2^-106 place them before the common shift.
    let scale = f64::from_bits(u64::from(1023 - zeros) << 52);
    let high = (wide >> 75) as f64 * 2f64.powi(-53) * scale;
    let low = ((wide >> 22) as u64 & ((1 << 53) - 1)) as f64 * 2f64.powi(-106) * scale;
    let r = high * PIO2_PAIR[0];
    let rest = high.mul_add(PIO2_PAIR[0], -r);
    let rest = rest + high.mul_add(PIO2_PAIR[1], low * PIO2_PAIR[0]);
    fast_two_sum(r, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both methods give the same quadrant, and the same r to the last place, where both apply.
    #[test]
    fn near_and_far_reduction_agree() {
        let mut x = 2.0f64;
        while x < FAR {
            for x in [x, -x] {
                let (near, far) = (reduce::<f64, false>(x), reduce_far(x));
                assert_eq!((near.quadrant - far.quadrant).rem_euclid(4.0), 0.0, "{x}");
                let difference = (near.r - far.r) + (near.low - far.low);
                assert!(difference.abs() <= near.r.abs() * 2f64.powi(-60), "{x}: {difference:e} of {:e}", near.r);
            }
            x *= 1.0007;
        }
    }

    /// The double nearest to a multiple of pi/2 leaves a remainder of 2^-60 of it, accurate to the last place.
    #[test]
    fn the_worst_argument_keeps_its_digits() {
        let x = 6381956970095103.0 * 2f64.powi(797);
        let Reduced { quadrant, r, low } = reduce::<f64, false>(x);
        assert_eq!(quadrant.rem_euclid(4.0), 1.0);
        assert_eq!(r, 4.687_165_924_254_628e-19);
        assert!(low.abs() <= r.abs() * 2f64.powi(-53));
    }
}
