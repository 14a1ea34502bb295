//! Correctly rounded operations of f128 that the compiler leaves to a library: roots, fused sums, remainders, whole numbers.
//!
//! Promises: the bits of the standard, from integers alone. Without glibc the compiler calls the functions of long double,
//! which has another format on x86-64: the result would be wrong without an error. Does not know other functions.

use std::cmp::Ordering;

use super::wide_long::Long;

/// Stored bits of the fraction.
const STORED: u32 = 112;
const IMPLICIT: u128 = 1 << STORED;

/// The magnitude of a finite number, as `fraction * 2^(exponent - 16495)` with a smallest exponent of 1.
fn parts(x: f128) -> (u128, i32) {
    let bits = x.abs().to_bits();
    let biased = (bits >> STORED) as i32;
    let fraction = bits & (IMPLICIT - 1);
    if biased == 0 { (fraction, 1) } else { (fraction | IMPLICIT, biased) }
}

/// `fraction * 2^(exponent - 16495)` for a fraction below 2^113 and an exponent of at least 1, exact.
fn joined(fraction: u128, exponent: i32) -> f128 {
    if fraction == 0 {
        return 0.0;
    }
    let shift = (fraction.leading_zeros() as i32 - 15).min(exponent - 1);
    f128::from_bits((((exponent - shift - 1) as u128) << STORED) + (fraction << shift))
}

/// x truncated, or the next integer if `up` says so, given how the fraction compares with 1/2 and whether the integer
/// is odd.
fn whole(x: f128, up: impl FnOnce(Ordering, bool) -> bool) -> f128 {
    let (fraction, exponent) = parts(x);
    let below = 16383 + STORED as i32 - exponent;
    if below <= 0 || fraction == 0 {
        return x;
    }
    let below = below.min(STORED as i32 + 2);
    let (kept, cut) = (fraction >> below, fraction & ((1 << below) - 1));
    if cut == 0 {
        return x;
    }
    let size = kept + u128::from(up(cut.cmp(&(1 << (below - 1))), kept % 2 == 1));
    // The compiler's own conversion from u128 misreads its argument on Windows, x86-64.
    joined(size, 16383 + STORED as i32).copysign(x)
}

/// The largest integer not above x.
pub(super) fn floor(x: f128) -> f128 {
    whole(x, |_, _| x < 0.0)
}

/// The smallest integer not below x.
pub(super) fn ceil(x: f128) -> f128 {
    whole(x, |_, _| x > 0.0)
}

/// The nearest integer, ties away from 0.
pub(super) fn round(x: f128) -> f128 {
    whole(x, |cut, _| cut.is_ge())
}

/// The nearest integer, ties to even.
pub(crate) fn round_ties_even(x: f128) -> f128 {
    whole(x, |cut, is_odd| cut.is_gt() || cut.is_eq() && is_odd)
}

pub(super) fn abs(x: f128) -> f128 {
    x.abs()
}

pub(super) fn sqrt(x: f128) -> f128 {
    if x.is_nan() || x == 0.0 || x == f128::INFINITY {
        return x;
    }
    if x < 0.0 {
        return f128::NAN;
    }
    let (fraction, exponent) = parts(x);
    let shift = fraction.leading_zeros() as i32 - 15;
    // x is radicand * 2^(2 half) with a radicand of 113 or 114 bits.
    let power = exponent - shift - 16495;
    let odd = power.rem_euclid(2);
    let (radicand, half) = (fraction << (shift + odd), (power - odd) / 2);
    // 64 bits of the root at once, and the others by hand: the root of radicand * 2^114 has 114 bits, one of which is
    // rounded.
    let mut root = (radicand << 14).isqrt();
    let mut rest = (radicand << 14) - root * root;
    for _ in 0..50 {
        let trial = root << 2 | 1;
        (root, rest) = (root << 1, rest << 2);
        if rest >= trial {
            (root, rest) = (root | 1, rest - trial);
        }
    }
    // A root is never halfway between two numbers.
    let nearest = (root >> 1) + (root & 1);
    f128::from_bits((((half - 56 + 16495 - 1) as u128) << STORED) + nearest)
}

/// The remainder of x / y, with the sign of x; NaN for y = 0 and for infinite x.
pub(super) fn rest(x: f128, y: f128) -> f128 {
    if x.is_nan() || y.is_nan() || x.is_infinite() || y == 0.0 {
        return f128::NAN;
    }
    if x.abs() < y.abs() {
        return x;
    }
    let ((mut left, from), (divisor, to)) = (parts(x), parts(y));
    left %= divisor;
    for _ in to..from {
        left <<= 1;
        left -= if left >= divisor { divisor } else { 0 };
    }
    joined(left, to).copysign(x)
}

/// 256 bits, the highest first.
type Bits = [u128; 2];

fn product(a: u128, b: u128) -> Bits {
    let low = u128::from(u64::MAX);
    let ((a1, a0), (b1, b0)) = ((a >> 64, a & low), (b >> 64, b & low));
    let middle = a1 * b0 + a0 * b1;
    let (last, carry) = (a0 * b0).overflowing_add(middle << 64);
    [a1 * b1 + (middle >> 64) + u128::from(carry), last]
}

fn left(bits: Bits, n: u32) -> Bits {
    match n {
        0 => bits,
        1..128 => [bits[0] << n | bits[1] >> (128 - n), bits[1] << n],
        _ => [bits[1].checked_shl(n - 128).unwrap_or(0), 0],
    }
}

/// Shifts right, with the last bit set if any bit was lost.
fn right(bits: Bits, n: u32) -> Bits {
    let shifted = match n {
        0 => bits,
        1..128 => [bits[0] >> n, bits[1] >> n | bits[0] << (128 - n)],
        _ => [0, bits[0].checked_shr(n - 128).unwrap_or(0)],
    };
    let is_whole = n < 256 && left(shifted, n) == bits;
    [shifted[0], shifted[1] | u128::from(!is_whole)]
}

/// Shifts the highest bit to the second place, and returns the change of the power.
fn normalised(bits: Bits) -> (Bits, i32) {
    let zeros = if bits[0] == 0 { 128 + bits[1].leading_zeros() } else { bits[0].leading_zeros() };
    if zeros == 0 { (right(bits, 1), -1) } else { (left(bits, zeros - 1), zeros as i32 - 1) }
}

/// a b + c, rounded once.
pub(crate) fn mul_add(a: f128, b: f128, c: f128) -> f128 {
    if !a.is_finite() || !b.is_finite() || a == 0.0 || b == 0.0 {
        return a * b + c;
    }
    if !c.is_finite() || c == 0.0 {
        return if c == 0.0 { a * b } else { c };
    }
    let ((fa, ea), (fb, eb), (fc, ec)) = (parts(a), parts(b), parts(c));
    // Each is bits / 2^256 * 2^power.
    let (times, less) = normalised(product(fa, fb));
    let times = (times, ea + eb - 2 * 16495 + 256 - less, a.is_sign_negative() != b.is_sign_negative());
    let (added, less) = normalised([0, fc]);
    let added = (added, ec - 16495 + 256 - less, c.is_sign_negative());
    let (large, small) = if (times.1, times.0) < (added.1, added.0) { (added, times) } else { (times, added) };
    let shifted = right(small.0, (large.1 - small.1).min(256) as u32);
    let [high, low] = large.0;
    let sum = if large.2 == small.2 {
        let (low, carry) = low.overflowing_add(shifted[1]);
        [high + shifted[0] + u128::from(carry), low]
    } else {
        let (low, borrow) = low.overflowing_sub(shifted[1]);
        [high - shifted[0] - u128::from(borrow), low]
    };
    if sum == [0, 0] {
        return 0.0;
    }
    let (sum, less) = normalised(sum);
    // Of the last limb, only whether it is 0 matters.
    let limbs = [(sum[0] >> 64) as u64, sum[0] as u64, (sum[1] >> 64) as u64 | u64::from(sum[1] as u64 != 0)];
    Long::normalised(large.2, large.1 - less, limbs).round()
}

// The compiler's f128 functions have glibc's names, so the tests run only there.
#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::*;

    /// A number of any kind; numbers near 1, the smallest, the largest, and those with few bits occur more often.
    fn number(next: &mut impl FnMut() -> u64) -> f128 {
        const SPECIAL: [f128; 8] = [0.0, -0.0, 1.0, -0.5, 2.5, f128::INFINITY, f128::NAN, f128::MAX];
        let (choice, random) = (next(), u128::from(next()) << 64 | u128::from(next()));
        let exponent = match choice % 8 {
            0 => return SPECIAL[(choice >> 8) as usize % 8],
            1 => random >> 112 & 0x7fff,
            2 => random >> 112 & 0x7f,
            3 => 32766 - (random >> 112 & 0x7f),
            _ => 16383 - 60 + (random >> 112 & 0x7f),
        };
        let fraction = match choice >> 16 & 3 {
            0 => 0,
            1 => IMPLICIT - 1,
            2 => random << 60 & (IMPLICIT - 1),
            _ => random & (IMPLICIT - 1),
        };
        f128::from_bits((random & 1 << 127) | exponent << STORED | fraction)
    }

    #[test]
    fn the_bits_are_those_of_the_compiler() {
        let mut state = 88_172_645_463_325_252_u64;
        let mut next = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.wrapping_mul(0x9e37_79b9_7f4a_7c15)
        };
        for round_number in 0..20_000 {
            let [x, y, z] = std::array::from_fn(|_| number(&mut next));
            // Nearly complete cancellation, too.
            let product = f128::from_bits((x * y).to_bits() ^ u128::from(next() % 4));
            let added = if round_number % 4 == 0 { -product } else { z };
            for (name, found, wanted) in [
                ("floor", floor(x), x.floor()),
                ("ceil", ceil(x), x.ceil()),
                ("round", round(x), x.round()),
                ("round_ties_even", round_ties_even(x), x.round_ties_even()),
                ("sqrt", sqrt(x), x.sqrt()),
                ("rest", rest(x, y), x % y),
                ("mul_add", mul_add(x, y, added), x.mul_add(y, added)),
            ] {
                let same = found.to_bits() == wanted.to_bits() || found.is_nan() && wanted.is_nan();
                assert!(same, "{name} of {x:?}, {y:?}, {added:?}: {found:?}, not {wanted:?}");
            }
        }
    }
}
