//! What a replay runs on and what it is made for: the scalars that slots may hold, and what is to be computed.
//!
//! Promises: every carrier has code for every op that its programs may contain, or says so. Knows nothing of how it runs.

use super::bundle::{self, Bundles};
use super::node::Program;
use super::steps::{self, Step};
use crate::ops::Op;
use crate::scalar::{Dual, Scalar};
use crate::simd::{Level, Simd};

/// What a slot of a replay may hold: how its values are computed differs for dual numbers.
pub trait Carrier: Scalar {
    #[doc(hidden)]
    fn forward_step<const W: usize>(op: Op, level: Level) -> Option<StepOf<Self>>;
    /// Whether programs of single numbers may run in bundles.
    #[doc(hidden)]
    const IN_BUNDLES: bool = false;
    #[doc(hidden)]
    fn in_bundles(_program: &Program, _build: Build, _level: Level, _always: bool) -> Option<BundlesOf<Self>> {
        None
    }
}

/// Bundles, opaque outside of this module.
#[derive(Debug)]
pub struct BundlesOf<S>(pub(super) Bundles<S>);

/// A step, opaque outside of this module.
#[derive(Debug)]
pub struct StepOf<S>(pub(super) Step<S>);

macro_rules! carriers {
    ($($t:ty)*) => { $(
        impl Carrier for $t {
            fn forward_step<const W: usize>(op: Op, level: Level) -> Option<StepOf<Self>> {
                steps::forward::<$t, W>(op, level).map(StepOf)
            }
        }
    )* };
}
carriers!(f32 Simd<f64, 8> Simd<f32, 16>);

impl Carrier for f64 {
    const IN_BUNDLES: bool = true;
    fn forward_step<const W: usize>(op: Op, level: Level) -> Option<StepOf<Self>> {
        steps::forward::<f64, W>(op, level).map(StepOf)
    }
    fn in_bundles(program: &Program, build: Build, level: Level, always: bool) -> Option<BundlesOf<Self>> {
        bundle::bundles(program, build, level, always).map(BundlesOf)
    }
}

macro_rules! dual_carriers {
    ($($t:ty)*) => { $(
        impl Carrier for Dual<$t> {
            fn forward_step<const W: usize>(op: Op, level: Level) -> Option<StepOf<Self>> {
                steps::forward_dual::<$t, W>(op, level).map(StepOf)
            }
        }
    )* };
}
dual_carriers!(f32 f64 Simd<f64, 8>);

/// What a replay is to do besides computing values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// Nothing.
    Values,
    /// Gradients of a weighted sum of outputs.
    Reverse(Seeds),
    /// The derivative of all outputs along a direction.
    Tangent,
    /// The same at one go, each tangent beside its value: the directions are written before [`Replay::values`](super::Replay::values), which
    /// computes both. One wait for operands then serves both, but values alone cannot be computed.
    ValuesWithTangents,
}

impl Build {
    /// Whether there are tangents.
    pub(super) fn has_tangents(self) -> bool {
        matches!(self, Build::Tangent | Build::ValuesWithTangents)
    }
}

/// Which outputs a reverse pass starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seeds {
    /// One of them.
    One(usize),
    /// All of them.
    All,
}
