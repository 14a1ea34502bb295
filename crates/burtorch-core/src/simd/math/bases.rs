//! Logarithms and exponentials to the bases 2 and 10, and the cube root: the logarithm in two parts, times a constant.
//!
//! Integer powers are exact, because an error of 2^-60 is rounded away. f32 is computed in f64.

use super::double::{Pair, any_sum, pair, product};
use super::exp::{exp_sum_split_unclamped, scale};
use super::log::split;
use super::poly::fast_two_sum;
use super::pow::{log_of_size, log_pair};
use crate::simd::{Real, Truth};

const LOG2_E: [f64; 2] = [std::f64::consts::LOG2_E, 2.0355273740931033e-17];
const LOG10_E: [f64; 2] = [std::f64::consts::LOG10_E, 1.098319650216765e-17];
const LN_2: [f64; 2] = [std::f64::consts::LN_2, 2.3190468138462996e-17];
const LN_10: [f64; 2] = [std::f64::consts::LN_10, -2.1707562233822494e-16];
const THIRD: [f64; 2] = [0.3333333333333333, 1.850371707708594e-17];

/// A finite positive x, subnormal or not, as 2^n m with m from 1/sqrt(2) to sqrt(2).
#[inline(always)]
fn parts<W: Real<Elem = f64>>(x: W) -> (W, W) {
    let small = x.is_lt(W::of(f64::MIN_POSITIVE));
    let (n, m) = split(W::select(small, x * W::of(18014398509481984.0), x));
    (W::from_int(n) - W::select(small, W::of(54.0), W::of(0.0)), m)
}

/// The values of a logarithm at 0, infinity, negative numbers and NaN.
#[inline(always)]
fn at_edges<W: Real>(x: W, y: W) -> W {
    let (zero, infinity) = (W::of(0.0), W::of(f64::INFINITY));
    if (x.is_gt(zero) & x.is_lt(infinity)).all() {
        return y;
    }
    let y = W::select(x.is_eq(zero), -infinity, y);
    let y = W::select(x.is_eq(infinity), infinity, y);
    W::select(x.is_ge(zero), y, W::of(f64::NAN))
}

/// log x / log 2.
#[inline(always)]
pub fn log2<V: Real>(x: V) -> V {
    let wide = x.widen();
    let (n, m) = parts(wide);
    let (high, low) = any_sum((n, V::Wide::of(0.0)), product(log_pair(V::Wide::of(0.0), m), pair(LOG2_E)));
    V::narrow(at_edges(wide, high + low))
}

/// log x / log 10.
#[inline(always)]
pub fn log10<V: Real>(x: V) -> V {
    let wide = x.widen();
    let (n, m) = parts(wide);
    let near = product(log_pair(V::Wide::of(0.0), m), pair(LOG10_E));
    let (high, low) = any_sum(product((n, V::Wide::of(0.0)), product(pair(LN_2), pair(LOG10_E))), near);
    V::narrow(at_edges(wide, high + low))
}

/// `base^x`, given the logarithm of the base as a constant, for |x| up to `most`, beyond which it is 0 or infinite.
#[inline(always)]
fn power_of<V: Real>(x: V, most: f64, logarithm: [f64; 2]) -> V {
    let wide = x.widen();
    let most = V::Wide::of(most);
    let cut = V::Wide::select(wide.is_gt(most), most, wide);
    let cut = V::Wide::select(cut.is_lt(-most), -most, cut);
    let (exponent, rest) = product((cut, V::Wide::of(0.0)), pair(logarithm));
    let (high, low, n) = exp_sum_split_unclamped(exponent, rest);
    V::narrow(scale(high + low, n))
}

/// 2^x.
#[inline(always)]
pub fn exp2<V: Real>(x: V) -> V {
    power_of(x, 1100.0, LN_2)
}

/// 10^x.
#[inline(always)]
pub fn exp10<V: Real>(x: V) -> V {
    power_of(x, 340.0, LN_10)
}

/// The cube root, of negative numbers too.
#[inline(always)]
pub fn cbrt<V: Real>(x: V) -> V {
    let wide = x.widen();
    let third = log_of_size::<V::Wide, false>(wide);
    let (exponent, rest): Pair<V::Wide> = product(third, pair(THIRD));
    let (exponent, rest) = fast_two_sum(exponent, rest);
    let (high, low, n) = exp_sum_split_unclamped(exponent, rest);
    let root = scale(high + low, n).copysign(wide);
    let size = wide.abs();
    let plain = size.is_gt(V::Wide::of(0.0)) & size.is_lt(V::Wide::of(f64::INFINITY));
    V::narrow(V::Wide::select(plain, root, wide))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_and_roots_of_integers_are_exact() {
        for n in -300..=300_i32 {
            assert_eq!(exp2(f64::from(n)), 2f64.powi(n));
            assert_eq!(log2(2f64.powi(n)), f64::from(n));
        }
        for n in 0..=22_i32 {
            assert_eq!(exp10(f64::from(n)), 10f64.powi(n));
            assert_eq!(log10(10f64.powi(n)), f64::from(n));
        }
        for n in -1000..=1000_i32 {
            assert_eq!(cbrt(f64::from(n).powi(3)), f64::from(n));
        }
        assert_eq!(exp2(f64::from_bits(1)), 1.0);
        assert_eq!(exp2(-1074.0), f64::from_bits(1));
        assert_eq!(log2(f64::from_bits(1)), -1074.0);
    }
}
