//! Numbers of 192 bits, in which functions of f128 are computed before they are rounded once.
//!
//! Promises: sums, products, quotients and roots to a few units in the 192nd bit; exponents of 32 bits, so that intermediate
//! results may exceed the range of f128; conversion to f128 rounds to nearest, including subnormal results. Has no infinities
//! and no NaN: callers handle those. Does not know functions.

use std::ops::{Add, Mul, Neg, Sub};

const LIMBS: usize = 3;
const BITS: i32 = 64 * LIMBS as i32;

/// `±fraction / 2^192 * 2^power`. The highest bit of the fraction is set unless the number is 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Long {
    negative: bool,
    power: i32,
    /// The highest limb first.
    fraction: [u64; LIMBS],
}

impl Long {
    pub(super) const ZERO: Long = Long { negative: false, power: 0, fraction: [0; LIMBS] };
    pub(super) const ONE: Long = Long::constant(1, [1 << 63, 0, 0]);

    /// A positive constant; `fraction` has its highest bit set.
    pub(super) const fn constant(power: i32, fraction: [u64; LIMBS]) -> Long {
        Long { negative: false, power, fraction }
    }

    /// 1/n for n above 0.
    pub(super) const fn inverse(n: u64) -> Long {
        let bits = 64 - n.leading_zeros() as i32;
        if n.is_power_of_two() {
            return Long::constant(2 - bits, Long::ONE.fraction);
        }
        let mut fraction = [0; LIMBS];
        let mut rest = 1_u128 << (bits - 1);
        let mut k = 0;
        while k < LIMBS {
            let digit = rest << 64;
            fraction[k] = (digit / n as u128) as u64;
            rest = digit % n as u128;
            k += 1;
        }
        Long::constant(1 - bits, fraction)
    }

    pub(super) fn from_integer(n: i64) -> Long {
        Long::normalised(n < 0, 64, [n.unsigned_abs(), 0, 0])
    }

    /// From a finite number.
    pub(super) fn from_f64(x: f64) -> Long {
        Long::new(x.into())
    }

    /// From a finite number.
    pub(super) fn new(x: f128) -> Long {
        let bits = x.to_bits();
        let biased = (bits >> 112) as i32 & 0x7fff;
        let implicit = u128::from(biased > 0) << 112;
        let mantissa = (bits & ((1 << 112) - 1)) | implicit;
        let fraction = [(mantissa >> 64) as u64, mantissa as u64, 0];
        Long::normalised(x.is_sign_negative(), biased.max(1) - 16382 + 15, fraction)
    }

    /// Shifts out leading zeros.
    pub(super) fn normalised(negative: bool, power: i32, fraction: [u64; LIMBS]) -> Long {
        match fraction.iter().position(|&limb| limb != 0) {
            None => Long::ZERO,
            Some(limb) => {
                let shift = 64 * limb as i32 + fraction[limb].leading_zeros() as i32;
                Long { negative, power: power - shift, fraction: shifted_left(fraction, shift as u32) }
            }
        }
    }

    pub(super) const fn is_zero(self) -> bool {
        self.fraction[0] == 0
    }

    pub(super) const fn is_negative(self) -> bool {
        self.negative
    }

    /// The magnitude lies in `[2^(power - 1), 2^power)`.
    pub(super) const fn power(self) -> i32 {
        if self.is_zero() { i32::MIN / 2 } else { self.power }
    }

    /// Times 2^n.
    pub(super) const fn scaled(self, n: i32) -> Long {
        Long { power: self.power + n, ..self }
    }

    pub(super) const fn abs(self) -> Long {
        Long { negative: false, ..self }
    }

    /// The nearest f128, ties to even.
    pub(super) fn round(self) -> f128 {
        let sign = u128::from(self.negative) << 127;
        let exponent = self.power - 1;
        if self.is_zero() || exponent < -16382 - 114 {
            return f128::from_bits(sign);
        }
        if exponent > 16383 {
            return f128::INFINITY.copysign(f128::from_bits(sign));
        }
        let high = u128::from(self.fraction[0]) << 64 | u128::from(self.fraction[1]);
        let shift = 15 + (-16382 - exponent).max(0) as u32;
        let kept = high.checked_shr(shift).unwrap_or(0);
        let half = high >> (shift - 1).min(127) & u128::from(shift <= 128);
        let below = high & ((1 << (shift - 1).min(127)) - 1) != 0 || self.fraction[2] != 0 || shift > 128;
        let up = u128::from(half == 1 && (below || kept & 1 == 1));
        // The leading bit adds one to the exponent, as does a carry.
        f128::from_bits(sign | ((((exponent + 16382).max(0) as u128) << 112) + kept + up))
    }

    pub(super) fn to_f64(self) -> f64 {
        self.round() as f64
    }

    pub(super) const fn times(self, other: Long) -> Long {
        let (a, b) = (self.fraction, other.fraction);
        let mut product = [0_u64; 2 * LIMBS];
        let mut i = LIMBS;
        while i > 0 {
            i -= 1;
            let mut carry = 0_u128;
            let mut j = LIMBS;
            while j > 0 {
                j -= 1;
                let sum = a[i] as u128 * b[j] as u128 + product[i + j + 1] as u128 + carry;
                product[i + j + 1] = sum as u64;
                carry = sum >> 64;
            }
            product[i] = carry as u64;
        }
        let [first, second, third, fourth, ..] = product;
        if first == 0 {
            return Long::ZERO;
        }
        let negative = self.negative != other.negative;
        let power = self.power + other.power;
        if first >> 63 == 1 {
            return Long { negative, power, fraction: [first, second, third] };
        }
        let fraction = [first << 1 | second >> 63, second << 1 | third >> 63, third << 1 | fourth >> 63];
        Long { negative, power: power - 1, fraction }
    }

    /// The reciprocal of a nonzero number.
    pub(super) fn reciprocal(self) -> Long {
        let size = self.scaled(-self.power);
        let near = Long::new(1.0 / size.round());
        (near + near * (Long::ONE - size * near)).scaled(-self.power)
    }

    /// The quotient; `divisor` is not 0.
    pub(super) fn over(self, divisor: Long) -> Long {
        self * divisor.reciprocal()
    }

    /// The square root of a nonnegative number.
    pub(super) fn sqrt(self) -> Long {
        if self.is_zero() {
            return self;
        }
        let even = self.power & !1;
        let size = self.scaled(-even);
        let guess = f128::from(size.to_f64().sqrt());
        let near = 0.5 * (guess + size.round() / guess);
        let rest = (size - Long::new(near) * Long::new(near)).round();
        (Long::new(near) + Long::new(rest / (2.0 * near))).scaled(even / 2)
    }

    /// Whether this magnitude is below the other's.
    fn is_smaller(self, other: Long) -> bool {
        (self.power(), self.fraction) < (other.power(), other.fraction)
    }
}

/// Shifts bits towards the highest limb; bits shifted out are 0.
fn shifted_left(fraction: [u64; LIMBS], shift: u32) -> [u64; LIMBS] {
    let (limbs, bits) = ((shift / 64) as usize, shift % 64);
    let limb = |k: usize| fraction.get(k + limbs).copied().unwrap_or(0);
    std::array::from_fn(|k| limb(k) << bits | limb(k + 1).checked_shr(64 - bits).unwrap_or(0))
}

fn shifted_right(fraction: [u64; LIMBS], shift: u32) -> [u64; LIMBS] {
    let (limbs, bits) = ((shift / 64) as usize, shift % 64);
    let limb = |k: usize| k.checked_sub(limbs).map_or(0, |k| fraction[k]);
    let above = |k: usize| k.checked_sub(1).map_or(0, limb);
    std::array::from_fn(|k| limb(k) >> bits | above(k).checked_shl(64 - bits).unwrap_or(0))
}

impl Add for Long {
    type Output = Long;

    fn add(self, other: Long) -> Long {
        let (large, small) = if self.is_smaller(other) { (other, self) } else { (self, other) };
        let distance = large.power() - small.power();
        if distance >= BITS {
            return large;
        }
        let added = shifted_right(small.fraction, distance as u32);
        let mut sum = [0; LIMBS];
        let mut carry = false;
        for k in (0..LIMBS).rev() {
            (sum[k], carry) = if large.negative == small.negative {
                let (sum, over) = large.fraction[k].overflowing_add(added[k]);
                let (sum, again) = sum.overflowing_add(carry.into());
                (sum, over || again)
            } else {
                let (rest, under) = large.fraction[k].overflowing_sub(added[k]);
                let (rest, again) = rest.overflowing_sub(carry.into());
                (rest, under || again)
            };
        }
        if !carry {
            return Long::normalised(large.negative, large.power, sum);
        }
        let mut fraction = shifted_right(sum, 1);
        fraction[0] |= 1 << 63;
        Long { negative: large.negative, power: large.power + 1, fraction }
    }
}

impl Sub for Long {
    type Output = Long;

    fn sub(self, other: Long) -> Long {
        self + -other
    }
}

impl Neg for Long {
    type Output = Long;

    fn neg(self) -> Long {
        Long { negative: !self.negative, ..self }
    }
}

impl Mul for Long {
    type Output = Long;

    fn mul(self, other: Long) -> Long {
        self.times(other)
    }
}
