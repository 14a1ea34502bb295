//! The scalar types of erased graphs.

use super::blocks::ErasedBlocks;
use super::params::Erasable;
use crate::graph::Graph;
use crate::scalar::{Scalar, bf16, f16};
use crate::simd::{F32x4, F32x8, F32x16, F32x64, F64x2, F64x4, F64x8};

/// A scalar type with erased graphs.
pub trait Growable: Scalar<Elem: Erasable> {
    /// The block ops of a graph, if this type has them.
    fn blocks<'a>(graph: &'a mut Graph<'static, Self>) -> Option<&'a mut dyn ErasedBlocks>;
}

macro_rules! growable {
    ($($t:ty)*, $graph:ident => $blocks:expr) => { $(
        impl Growable for $t {
            fn blocks<'a>($graph: &'a mut Graph<'static, Self>) -> Option<&'a mut dyn ErasedBlocks> {
                $blocks
            }
        }
    )* };
}
growable!(f32 f64 F32x4 F32x8 F32x16 F32x64 F64x2 F64x4 F64x8, graph => Some(graph));
growable!(f16 bf16 f128, _graph => None);
