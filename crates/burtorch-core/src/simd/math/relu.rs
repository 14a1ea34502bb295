//! relu: exact; here so that slices have it like the other activations.

use crate::simd::Real;

/// x where it is positive, otherwise +0; NaN stays NaN.
#[inline(always)]
pub fn relu<V: Real>(x: V) -> V {
    V::select(x.is_le(V::of(0.0)), V::of(0.0), x)
}
