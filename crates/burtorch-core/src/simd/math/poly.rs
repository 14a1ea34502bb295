//! Polynomials and exact sums, shared by all families.

use crate::simd::Real;

/// `c[0] + c[1] x + c[2] x^2 + ...`, even and odd powers as two independent chains, which halves the latency of one.
#[inline(always)]
pub(super) fn poly<V: Real, const N: usize>(x: V, c: &[f64; N]) -> V {
    let square = x * x;
    let last = N - 1;
    let mut high = V::of(c[last]);
    let mut low = V::of(c[last - 1]);
    let mut i = last;
    while i >= 3 {
        high = high.mul_add(square, V::of(c[i - 2]));
        low = low.mul_add(square, V::of(c[i - 3]));
        i -= 2;
    }
    if i == 2 {
        // `high` is the even chain and ends with c[0]; `low` is the odd one.
        low.mul_add(x, high.mul_add(square, V::of(c[0])))
    } else {
        high.mul_add(x, low)
    }
}

/// `a + b` as the rounded sum and its exact error, where `|a| >= |b|` or `a` is 0.
#[inline(always)]
pub(super) fn fast_two_sum<V: Real>(a: V, b: V) -> (V, V) {
    let sum = a + b;
    (sum, b - (sum - a))
}

/// `a + b` as the rounded sum and its exact error, for any two finite numbers whose sum is finite.
#[inline(always)]
pub(super) fn two_sum<V: Real>(a: V, b: V) -> (V, V) {
    let sum = a + b;
    let back = sum - a;
    (sum, (a - (sum - back)) + (b - back))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polynomials_of_even_and_odd_degree() {
        assert_eq!(poly(2.0, &[1.0, 3.0]), 7.0);
        assert_eq!(poly(2.0, &[1.0, 3.0, 5.0]), 27.0);
        assert_eq!(poly(2.0, &[1.0, 3.0, 5.0, 7.0]), 83.0);
        assert_eq!(poly(2.0f32, &[1.0, 3.0, 5.0, 7.0, 9.0]), 227.0);
    }

    #[test]
    fn sums_keep_the_rounding_error() {
        assert_eq!(fast_two_sum(1.0, 2f64.powi(-60)), (1.0, 2f64.powi(-60)));
        assert_eq!(two_sum(2f64.powi(-60), 1.0), (1.0, 2f64.powi(-60)));
    }
}
