//! Arguments of runs.
//!
//! Knows nothing of plans.

/// An argument of a run: numbers in C order.
#[derive(Clone, Copy, Debug)]
pub enum Argument<'a, E> {
    /// Floats.
    Float(&'a [E]),
    /// Integers.
    Int(&'a [i64]),
    /// A mask.
    Mask(&'a [bool]),
}
