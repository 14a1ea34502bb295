//! Built-in models on every width of a float.
//!
//! Promises: other crates compile none of them. A coercion would compile a model again where it is made, also within a function so
//! short that the compiler moves it to its caller: so these are never inlined.

use crate::nn::{CharMlp, Gpt, Mlp};
use crate::oracle::{LaneFloat, LaneModel};

/// A float on whose lanes this crate compiles the built-in models.
pub trait ErasedModels: LaneFloat {
    /// A model of dense layers.
    fn of_mlp(model: &Mlp) -> &dyn LaneModel<Self>;

    /// A model of characters.
    fn of_char_mlp(model: &CharMlp) -> &dyn LaneModel<Self>;

    /// A transformer.
    fn of_gpt(model: &Gpt) -> &dyn LaneModel<Self>;
}

macro_rules! erased_models {
    ($($float:ident),*) => {$(
        impl ErasedModels for $float {
            #[inline(never)]
            fn of_mlp(model: &Mlp) -> &dyn LaneModel<Self> {
                model
            }

            #[inline(never)]
            fn of_char_mlp(model: &CharMlp) -> &dyn LaneModel<Self> {
                model
            }

            #[inline(never)]
            fn of_gpt(model: &Gpt) -> &dyn LaneModel<Self> {
                model
            }
        }
    )*};
}
erased_models!(f32, f64);
