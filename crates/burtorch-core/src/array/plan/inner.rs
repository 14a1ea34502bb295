//! The interface of nested programs: bodies of loops, branches of choices, blocks of rows.
//!
//! Does not know the instructions that contain them.

use std::fmt::Debug;

use super::argument::Argument;
use super::numbers::Straight;
use crate::error::Result;

/// A program that is run again and again on its own buffers. Masks are floats.
pub(super) trait Body<E>: Debug + Send + Sync {
    fn floats_in(&mut self, k: usize) -> &mut [E];
    fn ints_in(&mut self, k: usize) -> &mut [i64];
    fn floats_out(&self, k: usize) -> &[E];
    fn ints_out(&self, k: usize) -> &[i64];
    /// Makes a result an argument of the next run.
    fn pass_on(&mut self, from: usize, to: usize);
    /// Runs it; what met a singular matrix.
    fn run(&mut self) -> Result<Option<&'static str>>;
    /// Runs it on these arguments, if they are not written into buffers.
    fn run_on(&mut self, arguments: &[Argument<'_, E>]) -> Result<Option<&'static str>>;
    /// The same for a body that passes results on.
    fn run_passing(&mut self, arguments: &[Argument<'_, E>], _pass: &mut Pass<'_, E>) -> Result<Option<&'static str>> {
        self.run_on(arguments)
    }
    /// Appends its operations to others, if all are on single numbers, with its arguments in these slots: the slots of its
    /// results.
    fn append_to(&self, straight: &mut Straight<E>, arguments: &[usize]) -> Option<Vec<usize>>;
    /// About how many elementary operations a run takes.
    fn cost(&self) -> usize;
    fn bytes(&self) -> usize;
}

/// Receives the number of a result and its floats, as soon as they are final.
pub(super) type Pass<'a, E> = dyn FnMut(usize, &[E]) -> Result<()> + 'a;

/// A body and a condition.
pub(super) type Pair<E> = (Box<dyn Body<E>>, Option<Box<dyn Body<E>>>);
