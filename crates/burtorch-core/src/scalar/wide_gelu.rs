//! The derivative of gelu for f128, its only function with two terms that cancel.
//!
//! Promises: 2 ULP everywhere, including the root. On the left, down to -3.125, a Taylor series about the nearest of 13
//! points whose values are constants in two parts; beyond, the two terms with the rounding error of the larger; on the
//! right 1 minus the left. Does not know the sweep.

use super::wide_elementary::exp;
use super::wide_exact::{mul_add, round};
use super::wide_special::normal;

/// The centres of the series are the multiples of -1/4, except the root instead of -3/4, in two parts.
const ROOT: [f128; 2] = [-0.7517915246935644574579049467795240002896, -3.937488853287022847803309245231039418041e-35];
const SPACING: f128 = 0.25;

/// At each centre: the derivative of gelu and its derivative, each in two parts, and the normal density.
#[rustfmt::skip]
const CENTRES: [[f128; 5]; 13] = [
    [0.5, 0.0, 0.7978845608028653558798921198687637478613, -1.090960901039164866737570000086267553325e-35, 0.3989422804014326779399460599343818739307],
    [0.3046266451163639740238397701450785748102, 1.813552960834914078545263876817508804343e-35, 0.7491694763055203384486248966226294143136, 1.092100441371593272897794499559961661030e-35, 0.3866681168028492069412257530955506701117],
    [0.1325048753438371574749551685934034455618, -1.200056091062088231025579893316930184336e-35, 0.6161143218375240861056907727939058616085, 3.133450332942166518451483399631799944264e-35, 0.3520653267642994777746804415965176695965],
    [0.0, 0.0, 0.4314939923140469197865071696292649445140, -1.338680382333758148815960950244271004224e-35, 0.3007325998969752907401878203058494159663],
    [-0.08331547058768629838306273856759857266359, -4.642998160005093153701770245313721151616e-36, 0.2419707245191433497978301929355606428790, 1.194964832299435815945118805211918340121e-35, 0.2419707245191433497978301929355606428790],
    [-0.1226615830694221235500329326923101451270, 5.684993334806764499845062960150979266176e-36, 0.07990897485769708343358199385131983786494, 5.136422303002895311500569001552883911993e-36, 0.1826490853890219049910445573744453436913],
    [-0.1274691922299795254166552959522261564153, -8.375711325146869547362112508898981450416e-37, -0.03237939891647293190352488948868537069866, -2.097301964514537491693292288946981625449e-36, 0.1295175956658917276140995579547414827946],
    [-0.1109261510825780598366641572689215480690, -2.100192274403693002542537949597756452758e-36, -0.09166965125316848408364877220098495610544, -2.423498495214308151323172765489158313881e-36, 0.08627731882651151443166943265975054833889],
    [-0.08523180107819689670084576365489372035082, -5.657030252518404913937818317846379326162e-36, -0.1079819330263761039011284008214271603076, -3.172032047557784480778231433730548382960e-36, 0.05399096651318805195056420041071358015380],
    [-0.05918974397520698228451676201083298611938, -1.850564906178065487902037299687034476279e-36, -0.09720268374673146073388594367272637774766, 1.519565502478282215511416498650472627693e-36, 0.03173965183566741574984030813803310490325],
    [-0.03761108590814520823841770084267924239736, -1.846027062224851356317713933910794339969e-36, -0.07449527709766628378917286920868148998153, -1.149656484474553163225115110729966368896e-36, 0.01752830049356853736215832216674858711712],
    [-0.02202753364432083836335665311607375947166, -1.380150226362894399616599001568311639141e-36, -0.05058294141510023103343022975278520024169, 8.871738482518400071469480951345229308301e-37, 0.009093562501591052770054872764545653739351],
    [-0.01194564720418392700015524332076805596600, -3.856725096947362646952885844328458362206e-37, -0.03102293888356605022921646887284707890676, 2.045798483362173238069720724001248158826e-37, 0.004431848411938007175602352696121011487342],
];

/// Terms after the first: the last is below 2^-116 of the sum.
const N_TERMS: usize = 40;

/// 1/sqrt(2 pi) in two parts.
const PEAK: [f128; 2] = [0.3989422804014326779399460599343818739307, -5.454804505195824333687850000431337766625e-36];
/// 512 ln 2 in two parts.
const LIFT: [f128; 2] = [354.8913564466919984216228461865864064428, -3.588167410969387603667282948491072617073e-33];
/// 2^-512.
const DROP: f128 = 7.458340731200206743290965315462933837376e-155;

/// The derivative of x Phi(x).
pub(super) fn gelu_grad(x: f128) -> f128 {
    if x.is_nan() {
        return x;
    }
    let left = left_of_zero(x.abs());
    if x > 0.0 { 1.0 - left } else { left }
}

/// The value at -a, for a >= 0.
fn left_of_zero(a: f128) -> f128 {
    if a > 160.0 {
        return -0.0;
    }
    let nearest = round(a / SPACING) as usize;
    if nearest < CENTRES.len() { near(a, nearest) } else { tail(a) }
}

/// The series about a point c: with h the distance from it, the derivative's change is phi(c) times the integral of
/// (2 - (c + t)^2) e^(-c t - t^2/2) for t from 0 to h. The exponential's coefficients follow from its differential equation.
#[inline(never)]
#[optimize(size)]
fn near(a: f128, nearest: usize) -> f128 {
    let [value, value_low, slope, slope_low, density] = CENTRES[nearest];
    let [c, c_low] = if nearest == 3 { ROOT } else { [-SPACING * nearest as f128, 0.0] };
    let (far, far_low) = two_sum(-a, -c);
    let (h, h_low) = two_sum(far, far_low - c_low);
    let (mut last, mut now) = (0.0_f128, 1.0_f128);
    let mut weights = [0.0_f128; N_TERMS];
    for (n, weight) in weights.iter_mut().enumerate() {
        let before = last;
        (last, now) = (now, (-c * now - last) / (n + 1) as f128);
        *weight = ((2.0 - c * c) * now - 2.0 * c * last - before) / (n + 2) as f128;
    }
    // Small terms first; the first-order term, which may cancel the value, keeps its rounding error.
    let curve = weights.iter().rev().fold(0.0_f128, |sum, &weight| sum * h + weight) * (h * h);
    let first = slope * h;
    let first_low = mul_add(slope, h, -first) + (slope_low * h + slope * h_low);
    let (sum, lost) = two_sum(value, first);
    sum + (mul_add(density, curve, first_low + value_low) + lost)
}

/// Phi(-a) - a phi(a), with the density in two parts; in the far tail it is scaled up so that it stays normal until it
/// is multiplied.
#[inline(never)]
#[optimize(size)]
fn tail(a: f128) -> f128 {
    let square = a * a;
    let (lift, drop) = if a > 100.0 { (LIFT, DROP) } else { ([0.0; 2], 1.0) };
    let (exponent, lost) = two_sum(-0.5 * square, lift[0]);
    let rest = lost + lift[1] - 0.5 * mul_add(a, a, -square);
    let power = exp(exponent);
    let density = PEAK[0] * power;
    let density_low = mul_add(PEAK[0], power, -density) + power * mul_add(PEAK[0], rest, PEAK[1]);
    let product = a * density;
    let product_low = mul_add(a, density, -product) + a * density_low;
    let (sum, lost) = two_sum(normal(-a), -(product * drop));
    sum + (lost - product_low * drop)
}

/// `a + b` as the rounded sum and its exact error.
fn two_sum(a: f128, b: f128) -> (f128, f128) {
    let sum = a + b;
    let back = sum - a;
    (sum, (a - (sum - back)) + (b - back))
}
