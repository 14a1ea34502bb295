//! Choices between two bodies, of which one runs.
//!
//! Does not know what bodies compute.

use super::super::instr::{Element, Type};
use super::control::write;
use super::direct_results::write_results;
use super::fused::Item;
use super::inner::Body;
use super::math::ArrayFloat;
use super::memory::Bank;
use super::numbers::{Slots, Straight};
use super::place::Source;
use super::single::Operand;
use crate::error::Result;

/// A choice that is ready to run.
#[derive(Debug)]
pub(super) struct Choice<E> {
    branches: [Box<dyn Body<E>>; 2],
    operands: Vec<Operand>,
    to: Vec<(usize, bool)>,
}

impl<E: ArrayFloat> Choice<E> {
    /// Of operands, the predicate first, with results of these types in these buffers.
    pub(super) fn new(
        branches: [Box<dyn Body<E>>; 2],
        operands: Vec<Operand>,
        to: Vec<usize>,
        types: Vec<Type>,
    ) -> Self {
        let to = to.into_iter().zip(types).map(|(buffer, ty)| (buffer, ty.element == Element::Int)).collect();
        Choice { branches, operands, to }
    }

    /// Runs one branch; what met a singular matrix.
    pub(super) fn run<'a>(
        &mut self,
        floats: &mut Bank<E>,
        ints: &mut Bank<i64>,
        given: &impl Fn(Source) -> &'a [E],
        given_ints: &impl Fn(Source) -> &'a [i64],
    ) -> Result<Option<&'static str>> {
        let predicate = &self.operands[0].place;
        let holds = floats.read(predicate.source, given)[predicate.offset] != E::default();
        let branch = &mut *self.branches[usize::from(!holds)];
        for (k, operand) in self.operands[1..].iter().enumerate() {
            write(branch, k, operand, floats, ints, given, given_ints);
        }
        let singular = branch.run()?;
        for (k, &(buffer, is_int)) in self.to.iter().enumerate() {
            if is_int {
                let from = branch.ints_out(k);
                ints.buffers[buffer][..from.len()].copy_from_slice(from);
            } else {
                let from = branch.floats_out(k);
                floats.buffers[buffer][..from.len()].copy_from_slice(from);
            }
        }
        Ok(singular)
    }

    /// Appends it to work on single numbers, if both branches and all operands are such.
    pub(super) fn append_to(&self, straight: &mut Straight<E>, bank: &Bank<E>, places: &mut Slots) -> Option<()> {
        let of = straight.slots_of(&self.operands, bank, places)?;
        let [predicate, arguments @ ..] = &of[..] else { return None };
        let to: Vec<_> = self.to.iter().map(|_| straight.slot(E::default())).collect();
        let mut branch = |branch: &dyn Body<E>| {
            let append = |straight: &mut Straight<E>| {
                let mut results = branch.append_to(straight, arguments)?;
                write_results(&mut straight.work, &mut results, &to);
                straight.moved(&results, &to);
                Some(())
            };
            Some(straight.apart(append)?.0)
        };
        let [yes, no] = &self.branches;
        let (yes, no) = (branch(&**yes)?, branch(&**no)?);
        straight.work.push(Item::Choice { of: *predicate, yes, no });
        for (&(buffer, is_int), slot) in self.to.iter().zip(to) {
            (!is_int).then_some(())?;
            places.insert((Source::Buffer(buffer), 0), slot);
        }
        Some(())
    }

    pub(super) fn bytes(&self) -> usize {
        self.branches.iter().map(|branch| branch.bytes()).sum()
    }
}
