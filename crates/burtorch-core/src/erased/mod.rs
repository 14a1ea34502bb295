//! Graphs, parameters and numbers of any scalar type behind one interface, for callers that learn the type at run time.
//!
//! Promises: the same nodes, numbers and errors as the generic interface; each scalar type is compiled here once, so that a
//! crate that uses this one compiles none of them again. A call costs an indirect jump. Numbers are passed as
//! [`AnyNumber`] or as slices of `f64`, which represent every number of a type except float128 exactly.

/// Declares a trait, and implements it for graphs, from one list.
macro_rules! of_any_scalar {
    (
        $(#[$doc:meta])* $name:ident: $($bound:path),*;
        $( $(#[$attribute:meta])* fn $method:ident($($arguments:tt)*) $(-> $result:ty)? $body:block )*
    ) => {
        $(#[$doc])*
        pub trait $name: $($bound +)* {
            $( $(#[$attribute])* fn $method($($arguments)*) $(-> $result)?; )*
        }

        impl<S: $crate::erased::growable::Growable> $name for $crate::graph::Graph<'static, S> {
            $( $(#[$attribute])* fn $method($($arguments)*) $(-> $result)? $body )*
        }
    };
}

mod append;
mod blocks;
mod graph;
mod growable;
mod make;
mod models;
mod nodes;
mod number;
mod params;

pub use append::ErasedAppend;
pub use blocks::ErasedBlocks;
pub use graph::{ErasedGraph, Seed, erased_f32, erased_f32_mut, erased_f64, erased_f64_mut};
pub use make::{Room, bytes_for, load_graph, make_graph, scalar_type_of};
pub use models::ErasedModels;
pub use nodes::{ErasedNodes, Found};
pub use number::{AnyNumber, AnyNumbers, ScalarType};
pub use params::{AnyNumbersMut, AnyParameters, Erasable, GradientTarget};
