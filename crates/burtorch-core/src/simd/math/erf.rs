//! The error function, the normal distribution and gelu, with their derivatives.
//!
//! Tails are e^(-x^2/2) times a slowly varying factor, a polynomial in t = (x - K) / (x + K), which maps 0..inf to
//! -1..1. The exponential gets x^2 in two parts, and the power of 2 is applied last: subnormal results round once.

use super::exp::{exp_short, exp_sum_split, scale};
use super::poly::{fast_two_sum, poly, two_sum};
use crate::simd::Real;

/// The first two coefficients of erf(x)/x - 1 in x^2 for |x| <= 1.
const ERF_HEAD: [f64; 2] = [0.12837916709551256, -0.376126389031834];

/// The other coefficients; error 2^-56.
const ERF: [f64; 10] = [
    0.11283791670940539,
    -0.026866170642651357,
    0.005223977602999799,
    -0.0008548325802072785,
    0.00012055290266904442,
    -1.4924656067430042e-05,
    1.6446509815676799e-06,
    -1.6202000913852927e-07,
    1.3693932447685318e-08,
    -7.750167556386129e-10,
];

/// All coefficients for results in f32; error 2^-34.8.
const ERF_SHORT: [f64; 8] = [
    0.12837916706313693,
    -0.37612638483600136,
    0.1128378274384999,
    -0.026865445619994967,
    0.005221074301461342,
    -0.0008484702971888844,
    0.00011270482681444145,
    -9.679959342594978e-06,
];

/// (1 + 2x) e^(x^2) erfc(x) in (x - 2) / (x + 2), x from 0.8 to 6; erfc to 2^-59 absolute.
const ERFC: [f64; 14] = [
    1.276978381552529,
    -0.0927638265857352,
    -0.1660303976155509,
    0.16405128002597336,
    -0.0542200010088008,
    -0.008034014394028366,
    0.008722659191717528,
    0.0012713362548937986,
    -0.0014569879641835315,
    -0.00045500032763696286,
    0.00020650800185440305,
    0.00015840133424526183,
    2.0395330113777412e-05,
    -8.15053751919259e-06,
];

/// The same for results in f32; erfc to 2^-38.7.
const ERFC_SHORT: [f64; 8] = [
    1.276978381731663,
    -0.0927638409590708,
    -0.16603075267289447,
    0.1640496800590103,
    -0.05420580182850555,
    -0.00786303502494561,
    0.009437036772338994,
    0.0027425582511101314,
];

/// (1 + 1.5x) e^(x^2/2) Phi(-x) in (x - 5) / (x + 5), x from 0 to 39; error 2^-54.6.
const TAIL: [f64; 25] = [
    0.6538140922875535,
    -0.0655996451190074,
    -0.011488853304049989,
    0.055445467209891394,
    -0.06352924059192847,
    0.0485123951097721,
    -0.02725130836973682,
    0.010972423176926866,
    -0.002623884002676874,
    -5.5451038403744304e-05,
    0.00030371581215604806,
    -8.089166823730757e-05,
    -1.8170205022796402e-05,
    1.4222229141598959e-05,
    2.4300176922342877e-07,
    -2.073163454805073e-06,
    1.337546928588222e-07,
    2.921223406323701e-07,
    -1.4060474063825923e-08,
    -1.9806519880923174e-08,
    -3.913608505029013e-09,
    -1.5005138720535123e-08,
    -2.4620300094249795e-09,
    6.344254171288404e-09,
    2.444920812524353e-09,
];

/// The same in (x - 4) / (x + 4) for results in f32; error 2^-32.7.
const TAIL_SHORT: [f64; 13] = [
    0.660874489107533,
    -0.059856353907741786,
    -0.041190174690301166,
    0.07875419737833499,
    -0.06372918463603687,
    0.031150796032948614,
    -0.007757034933271764,
    -0.0007508386929456701,
    0.001134188294870761,
    -0.00011148661407922959,
    -0.00014121371392441061,
    2.0525841701006654e-05,
    1.5770559910187062e-05,
];

/// (Phi(x) - 1/2) / x in x^2 for |x| <= 0.77; error 2^-55.0.
pub(super) const CENTRE: [f64; 9] = [
    0.39894228040143265,
    -0.06649038006689925,
    0.0099735570098093,
    -0.0011873282121593377,
    0.00011543466279542317,
    -9.444550937075325e-06,
    6.657045554933737e-07,
    -4.083504073852999e-08,
    1.956179522984579e-09,
];

/// (Phi(x) + x phi(x) - 1/2) / x in x^2 for |x| <= 0.4; error 2^-54.2.
const GRAD_CENTRE: [f64; 8] = [
    0.7978845608028654,
    -0.26596152026764963,
    0.059841342062781175,
    -0.009498625814456471,
    0.0011543484134879335,
    -0.00011334925514097215,
    9.380286415333912e-06,
    -7.448540027782268e-07,
];

/// e^(x^2/2) (Phi(-x) - x phi(x)) / (ROOT - x) in (x - 5) / (x + 5), x from 0 to 40; error 2^-54.7.
const GRAD: [f64; 25] = [
    0.45143549526340543,
    -0.08979658026980383,
    0.060487813553863554,
    -0.035535121469147564,
    0.017807831557314757,
    -0.007334310929103668,
    0.0023021837136228142,
    -0.00044053062683993425,
    -1.519565572832081e-05,
    4.064704773687619e-05,
    -9.201992803805765e-06,
    -1.993378779854275e-06,
    1.3637558104910906e-06,
    2.4731593792757434e-08,
    -1.7869108044991623e-07,
    1.6244906551715781e-09,
    3.880692493211891e-08,
    1.993290756130509e-08,
    -1.9350630690058595e-08,
    -2.8122476097113877e-08,
    6.40737617384425e-09,
    2.0200565499136032e-08,
    2.5790213920359486e-09,
    -6.17648115888384e-09,
    -2.250999749804104e-09,
];

/// The first coefficients of the derivative of that polynomial.
const GRAD_SLOPE: [f64; 7] =
    [GRAD[1], 2.0 * GRAD[2], 3.0 * GRAD[3], 4.0 * GRAD[4], 5.0 * GRAD[5], 6.0 * GRAD[6], 7.0 * GRAD[7]];

/// The same for results in f32; error 2^-35.5.
const GRAD_SHORT: [f64; 13] = [
    0.4514354952527024,
    -0.08979658018912452,
    0.06048781473741042,
    -0.03553512429865783,
    0.017807809944811924,
    -0.007334284367828519,
    0.002302332225828542,
    -0.0004406276055458048,
    -1.5677276125311996e-05,
    4.078931888202915e-05,
    -8.422172511092344e-06,
    -2.0458703038852135e-06,
    7.694187788725158e-07,
];

/// The zero of the derivative of gelu, negated, in two parts.
const ROOT: [f64; 2] = [0.7517915246935645, -1.4956759177009883e-17];

/// 2 / sqrt(pi).
const ERF_SLOPE: [f64; 2] = [std::f64::consts::FRAC_2_SQRT_PI, 1.533545961316588e-17];

/// 1 / sqrt(2 pi).
const PDF_PEAK: [f64; 2] = [0.3989422804014327, -2.49232720227773e-17];

/// (factor + rest) e^(-x^2 / divisor) with the power of 2 applied last; `divisor` is 1 or 2, and x^2 must be finite.
#[inline(always)]
fn gauss<W: Real, const SHORT: bool>(x: W, divisor: f64, factor: W, rest: W) -> W {
    let square = x * x;
    let sign = W::of(-1.0 / divisor);
    if SHORT {
        return factor * exp_short(sign * square);
    }
    let (high, low, n) = exp_sum_split(sign * square, sign * x.mul_add(x, -square));
    scale(high.mul_add(factor, low.mul_add(factor, high * rest)), n)
}

/// |x|, at most `most`; NaN stays.
#[inline(always)]
pub(super) fn size_up_to<W: Real>(x: W, most: f64) -> W {
    let size = x.abs();
    W::select(size.is_gt(W::of(most)), W::of(most), size)
}

/// erf x for |x| <= 1.
#[inline(always)]
pub(super) fn erf_small<W: Real, const SHORT: bool>(x: W) -> W {
    let square = x * x;
    if SHORT {
        return x.mul_add(poly(square, &ERF_SHORT), x);
    }
    // c0 + x^2 (c1 + x^2 rest), with the rounding errors of x^2 and of the bracket.
    let (c0, c1) = (W::of(ERF_HEAD[0]), W::of(ERF_HEAD[1]));
    let rest = poly(square, &ERF);
    let bracket = square.mul_add(rest, c1);
    let bracket_low = square.mul_add(rest, c1 - bracket);
    let square_low = x.mul_add(x, -square);
    let low = square.mul_add(bracket_low, bracket * square_low);
    x.mul_add(square.mul_add(bracket, c0) + low, x)
}

#[inline(always)]
fn erf_wide<W: Real, const SHORT: bool>(x: W) -> W {
    let size = size_up_to(x, 6.0);
    let small = erf_small::<W, SHORT>(x);

    let two = W::of(2.0);
    let t = (size - two) / (size + two);
    let factor = if SHORT { poly(t, &ERFC_SHORT) } else { poly(t, &ERFC) };
    let ratio = factor / two.mul_add(size, W::of(1.0));
    let erfc = gauss::<W, SHORT>(size, 1.0, ratio, W::of(0.0));
    W::select(size.is_lt(W::of(1.0)), small, (W::of(1.0) - erfc).copysign(x))
}

/// Phi(-size) times `weight`.
#[inline(always)]
fn tail<W: Real, const SHORT: bool>(size: W, weight: W) -> W {
    let (ratio, rest) = tail_ratio::<W, SHORT>(size, weight);
    gauss::<W, SHORT>(size, 2.0, ratio, rest)
}

/// Phi(-size - low) times `weight`: a first-order correction by the density.
#[inline(always)]
pub(super) fn tail_beside<W: Real>(size: W, low: W, weight: W) -> W {
    let (ratio, rest) = tail_ratio::<W, false>(size, weight);
    let (ratio, rest) = fast_two_sum(ratio, (-low).mul_add(weight * W::of(PDF_PEAK[0]), rest));
    gauss::<W, false>(size, 2.0, ratio, rest)
}

/// Phi(-size) times `weight`, over e^(-size^2/2), in two parts.
#[inline(always)]
fn tail_ratio<W: Real, const SHORT: bool>(size: W, weight: W) -> (W, W) {
    let centre = W::of(if SHORT { 4.0 } else { 5.0 });
    let t = (size - centre) / (size + centre);
    let factor = if SHORT { poly(t, &TAIL_SHORT) } else { poly(t, &TAIL) };
    let (over, slope, one) = (weight * factor, W::of(1.5), W::of(1.0));
    let under = slope.mul_add(size, one);
    let ratio = over / under;
    // The errors of the three roundings of the ratio.
    let over_low = weight.mul_add(factor, -over);
    let under_low = slope.mul_add(size, one - under);
    (ratio, ((-ratio).mul_add(under, over) + (-ratio).mul_add(under_low, over_low)) / under)
}

#[inline(always)]
fn gelu_wide<W: Real, const SHORT: bool>(x: W) -> W {
    let size = size_up_to(x, 40.0);
    // x Phi(x) is -|x| Phi(-|x|) on the left and x - x Phi(-x) on the right.
    let small = tail::<W, SHORT>(size, size);
    let y = W::select(x.is_gt(W::of(0.0)), x, W::of(0.0)) - small;
    let y = if SHORT {
        y
    } else {
        // Near 0 the tail is half of x, and its error is the whole error of the result: there x/2 + x (Phi(x) - 1/2).
        let near = x.mul_add(x * poly(x * x, &CENTRE), W::of(0.5) * x);
        W::select(size.is_lt(W::of(0.75)), near, y)
    };
    // Keeps the sign of x, also if the value is 0.
    y.copysign(x)
}

/// The polynomial of the derivative of gelu at `size`, in two parts for results in f64.
#[inline(always)]
fn grad_factor<W: Real, const SHORT: bool>(size: W) -> (W, W) {
    let centre = W::of(5.0);
    if SHORT {
        return (poly((size - centre) / (size + centre), &GRAD_SHORT), W::of(0.0));
    }
    // The errors of the three roundings of t, and their effect: the slope of the polynomial to a tenth.
    let (over, over_low) = two_sum(size, -centre);
    let (under, under_low) = two_sum(size, centre);
    let t = over / under;
    let t_low = ((-t).mul_add(under, over) + (-t).mul_add(under_low, over_low)) / under;
    let slope = poly(t, &GRAD_SLOPE);
    // c0 + t (c1 + ...), with the errors of the product and the sum.
    let [_, rest @ ..] = GRAD;
    let higher = poly(t, &rest);
    let product = t * higher;
    let product_low = t.mul_add(higher, -product);
    let (sum, sum_low) = fast_two_sum(W::of(GRAD[0]), product);
    (sum, sum_low + slope.mul_add(t_low, product_low))
}

#[inline(always)]
fn gelu_grad_wide<W: Real, const SHORT: bool>(x: W) -> W {
    let size = size_up_to(x, 40.0);
    let (factor, factor_low) = grad_factor::<W, SHORT>(size);
    // The root is factored out, so that nothing cancels near it; rounding errors are included.
    let (from_root, lost) = two_sum(W::of(ROOT[0]), -size);
    let (from_root, lost) = fast_two_sum(from_root, lost + W::of(ROOT[1]));
    let product = from_root * factor;
    let rest = from_root.mul_add(factor, -product) + lost.mul_add(factor, from_root * factor_low);
    let left = gauss::<W, SHORT>(size, 2.0, product, rest);
    let y = W::select(x.is_gt(W::of(0.0)), W::of(1.0) - left, left);
    if SHORT {
        return y;
    }
    // Near 0 the derivative is close to 1/2.
    let near = x.mul_add(poly(x * x, &GRAD_CENTRE), W::of(0.5));
    W::select(size.is_lt(W::of(0.25)), near, y)
}

/// c e^(-x^2 / divisor), the constant in two parts.
#[inline(always)]
fn bell<V: Real>(x: V, divisor: f64, c: [f64; 2]) -> V {
    let size = size_up_to(x.widen(), 40.0);
    let (peak, rest) = (V::Wide::of(c[0]), V::Wide::of(c[1]));
    V::narrow(if V::DOUBLE {
        gauss::<V::Wide, false>(size, divisor, peak, rest)
    } else {
        gauss::<V::Wide, true>(size, divisor, peak, rest)
    })
}

/// The error function, 2/sqrt(pi) times the integral of e^(-t^2) from 0 to x.
#[inline(always)]
pub fn erf<V: Real>(x: V) -> V {
    let wide = x.widen();
    V::narrow(if V::DOUBLE { erf_wide::<V::Wide, false>(wide) } else { erf_wide::<V::Wide, true>(wide) })
}

/// The derivative of erf: 2/sqrt(pi) e^(-x^2).
#[inline(always)]
pub fn erf_grad<V: Real>(x: V) -> V {
    bell(x, 1.0, ERF_SLOPE)
}

/// The density of the normal distribution: e^(-x^2/2) / sqrt(2 pi).
#[inline(always)]
pub fn normal_pdf<V: Real>(x: V) -> V {
    bell(x, 2.0, PDF_PEAK)
}

/// x Phi(x), where Phi is the normal distribution: not the tanh approximation.
#[inline(always)]
pub fn gelu<V: Real>(x: V) -> V {
    let wide = x.widen();
    V::narrow(if V::DOUBLE { gelu_wide::<V::Wide, false>(wide) } else { gelu_wide::<V::Wide, true>(wide) })
}

/// The derivative of gelu: Phi(x) + x phi(x).
#[inline(always)]
pub fn gelu_grad<V: Real>(x: V) -> V {
    let wide = x.widen();
    V::narrow(if V::DOUBLE { gelu_grad_wide::<V::Wide, false>(wide) } else { gelu_grad_wide::<V::Wide, true>(wide) })
}
