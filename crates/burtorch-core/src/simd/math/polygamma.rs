//! The derivatives of log gamma by recurrence and asymptotic series, for one number of f64 or f128.
//!
//! Promises: the first two are accurate except for the last few bits of a pair; higher ones less. Does not know lanes.

/// Bernoulli numbers B2, B4, ...
pub(crate) const BERNOULLI: [f128; 15] = [
    0.1666666666666666666666666666666666666667,
    -0.03333333333333333333333333333333333333333,
    0.02380952380952380952380952380952380952381,
    -0.03333333333333333333333333333333333333333,
    0.07575757575757575757575757575757575757576,
    -0.2531135531135531135531135531135531135531,
    1.166666666666666666666666666666666666667,
    -7.092156862745098039215686274509803921569,
    54.97117794486215538847117794486215538847,
    -529.1242424242424242424242424242424242424,
    6192.12318840579710144927536231884057971,
    -86580.25311355311355311355311355311355311,
    1425517.166666666666666666666666666666667,
    -27298231.06781609195402298850574712643678,
    601580873.9006423683843038681748359167714,
];

/// Defines `digamma_above_zero` and `nth_polygamma` for a float type, given its fused sum, floor and nearest integer,
/// the smallest argument and number of terms of the series, the logarithm in two parts, the cotangent of pi r for |r|
/// up to 1/2, and pi.
macro_rules! gamma_functions {
    ($t:ty, $mul_add:path, $floor:path, $nearest:path, $start:literal, $n_terms:literal, $log:path, $cot_of_pi:path, $pi:expr) => {
        /// A term of the asymptotic series.
        const fn bernoulli(k: usize) -> $t {
            crate::simd::math::polygamma::BERNOULLI[k] as $t
        }

        /// `a + b`, and its rounding error.
        #[inline(always)]
        fn exact_sum(a: $t, b: $t) -> ($t, $t) {
            let sum = a + b;
            let back = sum - a;
            (sum, (a - (sum - back)) + (b - back))
        }

        #[inline(always)]
        fn pair_sum(a: ($t, $t), b: ($t, $t)) -> ($t, $t) {
            let (high, low) = exact_sum(a.0, b.0);
            exact_sum(high, low + (a.1 + b.1))
        }

        /// 1 / (x + low) in two parts.
        #[inline(always)]
        fn inverse((x, low): ($t, $t)) -> ($t, $t) {
            let high = 1.0 / x;
            (high, ($mul_add(-high, x, 1.0) - high * low) * high)
        }

        /// The derivative of log gamma at `x + low`, above 0, in two parts.
        #[inline(always)]
        pub(super) fn digamma_above_zero(x: $t, low: $t) -> ($t, $t) {
            // psi(x) = psi(x + n) - sum of 1/(x + k).
            let (mut at, mut passed): (_, ($t, $t)) = ((x, low), (0.0, 0.0));
            while at.0 < $start {
                passed = pair_sum(passed, inverse(at));
                at = pair_sum(at, (1.0, 0.0));
            }
            let (over, over_low) = inverse(at);
            let square = over * over;
            let mut series: $t = 0.0;
            for k in (0..$n_terms).rev() {
                series = series * square + bernoulli(k) / (2 * k + 2) as $t;
            }
            let (log, log_low) = $log(at.0);
            let whole = pair_sum((log, log_low + at.1 * over), (-0.5 * over, -0.5 * over_low - series * square));
            pair_sum(whole, (-passed.0, -passed.1))
        }

        /// The `n`-th derivative of digamma, for `n` >= 1; NaN above 24.
        pub(super) fn nth_polygamma(n: usize, x: $t) -> $t {
            let sign = if n % 2 == 0 { -1.0 } else { 1.0 };
            if x.is_nan() || x == <$t>::NEG_INFINITY || n > 24 {
                return <$t>::NAN;
            }
            if x < 0.0 && x == $floor(x) {
                // All poles of odd order are positive on both sides.
                return if n % 2 == 1 { <$t>::INFINITY } else { <$t>::NAN };
            }
            let first: $t = (0..=n).fold(1.0, |p: $t, _| p / x);
            if !first.is_finite() {
                return sign * first;
            }
            if x < -1.0 {
                return -polygamma_above_zero(n, 1.0 - x) - cotangents(n, x);
            }
            sign * polygamma_above_zero(n, x)
        }

        /// The magnitude: n! times the sum of 1/(x + k)^(n + 1).
        fn polygamma_above_zero(n: usize, x: $t) -> $t {
            if x == <$t>::INFINITY {
                return 0.0;
            }
            let power = |x: $t, n: usize| (0..n).fold(1.0, |p: $t, _| p * x);
            // (n - 1)!
            let before = (1..n).fold(1.0, |p: $t, k| p * k as $t);
            let (mut at, mut passed): ($t, ($t, $t)) = (x, (0.0, 0.0));
            while at < $start + n as $t {
                passed = pair_sum(passed, (1.0 / power(at, n + 1), 0.0));
                at += 1.0;
            }
            let (over, square) = (1.0 / at, 1.0 / (at * at));
            // B_2k (2k + n - 1)! / (2k)! / x^2k, over (n - 1)!
            let (mut factor, mut series): ($t, $t) = (1.0, 1.0 + 0.5 * n as $t * over);
            for k in 0..$n_terms {
                let m = 2 * k + n;
                factor *= square * (m * (m + 1)) as $t / ((2 * k + 1) * (2 * k + 2)) as $t;
                series += bernoulli(k) * factor;
            }
            let tail = before * power(over, n) * series;
            let sum = before * n as $t;
            sum * passed.0 + (sum * passed.1 + tail)
        }

        /// The `n`-th derivative of pi cot(pi x): pi^(n + 1) times a polynomial in the cotangent, whose own derivative
        /// is -pi (1 + cot^2).
        fn cotangents(n: usize, x: $t) -> $t {
            let mut coefficients: [$t; 26] = [0.0; 26];
            coefficients[1] = 1.0;
            for degree in 1..=n {
                let mut next: [$t; 26] = [0.0; 26];
                for k in 1..=degree {
                    let c = -(k as $t) * coefficients[k];
                    next[k - 1] += c;
                    next[k + 1] += c;
                }
                coefficients = next;
            }
            let cot = $cot_of_pi(x - $nearest(x)).0;
            let value = coefficients[..n + 2].iter().rev().fold(0.0, |sum: $t, c| sum * cot + c);
            (0..=n).fold(value, |value, _| value * $pi)
        }
    };
}

pub(crate) use gamma_functions;
