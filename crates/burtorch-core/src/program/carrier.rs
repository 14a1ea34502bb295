//! The number types of a replay's slots.
//!
//! Promises: every carrier has code for every op that its programs may contain, or returns an error. Does not know how it runs.

use super::build::Build;
use super::bundle::{self, Bundles};
use super::instr::Step;
use super::node::Program;
use super::steps;
use crate::ops::Dual;
use crate::ops::Op;
use crate::scalar::Scalar;
use crate::simd::{Level, Simd};

/// The type of a replay's slots; dual numbers compute values differently.
pub trait Carrier: Scalar {
    #[doc(hidden)]
    fn forward_step<const W: usize>(op: Op, level: Level) -> Option<StepOf<Self>>;
    /// Whether scalar programs may run in bundles.
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
