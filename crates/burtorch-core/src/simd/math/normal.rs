//! The normal distribution and the complementary error function, each accurate in its small tail. f32 goes through f64.

use super::erf::{CENTRE, erf_small, size_up_to, tail_beside};
use super::poly::poly;
use crate::simd::Real;

/// sqrt(2) in two parts.
const ROOT_2: [f64; 2] = [std::f64::consts::SQRT_2, -9.667293313452913e-17];

/// 1 - erf(x).
#[inline(always)]
pub fn erfc<V: Real>(x: V) -> V {
    let wide = x.widen();
    let (one, two) = (V::Wide::of(1.0), V::Wide::of(2.0));
    // Twice the normal distribution at -sqrt(2) x, with a correction of the rounding.
    let size = size_up_to(wide, 28.0);
    let scaled = size * V::Wide::of(ROOT_2[0]);
    let rest = size.mul_add(V::Wide::of(ROOT_2[0]), -scaled) + size * V::Wide::of(ROOT_2[1]);
    let small = tail_beside(scaled, rest, two);
    let far = V::Wide::select(wide.is_lt(V::Wide::of(0.0)), two - small, small);
    let near = one - erf_small::<V::Wide, false>(wide);
    V::narrow(V::Wide::select(size.is_lt(V::Wide::of(0.625)), near, far))
}

/// The normal distribution: the integral of its density up to x.
#[inline(always)]
pub fn ndtr<V: Real>(x: V) -> V {
    let wide = x.widen();
    let one = V::Wide::of(1.0);
    let size = size_up_to(wide, 40.0);
    let small = tail_beside(size, V::Wide::of(0.0), one);
    let far = V::Wide::select(wide.is_gt(V::Wide::of(0.0)), one - small, small);
    let near = wide.mul_add(poly(wide * wide, &CENTRE), V::Wide::of(0.5));
    V::narrow(V::Wide::select(size.is_lt(V::Wide::of(0.75)), near, far))
}
