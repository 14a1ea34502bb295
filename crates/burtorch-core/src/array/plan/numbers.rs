//! A chain over single numbers: loads, operations, stores.
//!
//! Promises: every number has its own slot, so that chains can follow each other in one piece of code. Does not know
//! loops.

use std::collections::{HashMap, HashSet};

use super::super::instr::Element;
use super::chain::Stream;
use super::fused::{Item, Operation};
use super::math::ArrayFloat;
use super::memory::{Bank, room};
use super::place::{Place, Source};
use super::scalars::Code;
use super::single::Operand;
use super::work::{Arg, Work};
use crate::error::{Error, Result};
use crate::interrupt;

/// Operations that take a millisecond or more to make ready.
const MANY: usize = 1 << 11;

/// A number that is read: from where, to which slot.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Load {
    source: Source,
    offset: usize,
    slot: usize,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Numbers<E> {
    loads: Vec<Load>,
    operations: Vec<Operation>,
    /// Slots and the buffers that get their numbers.
    stores: Vec<(usize, usize)>,
    code: Code<E>,
    slots: Vec<E>,
}

impl<E: ArrayFloat> Numbers<E> {
    /// Of the work of a chain over shapes of one number, whose results are `blocks` blocks.
    pub(super) fn new(work: Vec<(usize, Work)>, streams: &[Stream], blocks: usize) -> Result<Self> {
        let slot = |arg: Arg| match arg {
            // The work has not been moved into buffers.
            Arg::Block(k) | Arg::Buffer(k) => k,
            Arg::Stream(k) => blocks + k,
        };
        let (mut operations, mut stores, mut loads) = (Vec::new(), Vec::new(), Vec::new());
        let read = |stream: usize, slot: usize| {
            let Stream { source, walk } = streams[stream];
            Load { source, offset: walk.offset(), slot }
        };
        for (_, work) in work {
            match work {
                Work::Compute { op, to, of } => {
                    operations.push(Operation { op, of: of.map(slot), to });
                }
                Work::Gather { stream, to } => loads.push(read(stream, to)),
                Work::Store { of, buffer } => stores.push((slot(of), buffer)),
                // Chains with anything else run over blocks.
                _ => {}
            }
        }
        loads.extend((0..streams.len()).map(|k| read(k, blocks + k)));
        if operations.len() >= MANY && interrupt::is_over() {
            return Err(Error::Interrupted);
        }
        let slots = room(blocks + streams.len())?;
        let kept: Vec<_> = stores.iter().map(|(slot, _)| *slot).collect();
        let work: Vec<_> = operations.iter().copied().map(Item::Operation).collect();
        Ok(Numbers { loads, code: Code::new(&work, &kept, None), operations, stores, slots })
    }

    /// One number from a place to a buffer.
    pub(super) fn copied(from: Place, buffer: usize) -> Result<Self> {
        let load = Load { source: from.source, offset: from.offset, slot: 0 };
        let slots = room(1)?;
        Ok(Numbers {
            loads: vec![load],
            operations: vec![],
            stores: vec![(0, buffer)],
            code: Code::new(&[], &[], None),
            slots,
        })
    }

    /// Runs it.
    pub(super) fn run<'a>(&mut self, bank: &mut Bank<E>, given: &impl Fn(Source) -> &'a [E]) -> Result<()> {
        for load in &self.loads {
            self.slots[load.slot] = bank.read(load.source, given)[load.offset];
        }
        self.code.run(&mut self.slots)?;
        for &(slot, buffer) in &self.stores {
            bank.buffers[buffer][0] = self.slots[slot];
        }
        Ok(())
    }
}

impl<E: ArrayFloat> Numbers<E> {
    /// What it reads.
    pub(super) fn sources(&self) -> impl Iterator<Item = Source> {
        self.loads.iter().map(|load| load.source)
    }

    /// The buffers that it writes.
    pub(super) fn written(&self) -> impl Iterator<Item = usize> {
        self.stores.iter().map(|(_, buffer)| *buffer)
    }

    /// Runs it in a room; `first` says where sources begin.
    pub(super) fn run_in(&mut self, room: &mut [E], first: impl Fn(Source) -> usize) -> Result<()> {
        for load in &self.loads {
            self.slots[load.slot] = room[first(load.source) + load.offset];
        }
        self.code.run(&mut self.slots)?;
        for &(slot, buffer) in &self.stores {
            room[first(Source::Buffer(buffer))] = self.slots[slot];
        }
        Ok(())
    }
}

/// Work of many chains in one piece, every number in a slot of its own.
#[derive(Clone, Debug)]
pub(super) struct Straight<E> {
    pub(super) work: Vec<Item>,
    /// What slots hold at first: constants.
    pub(super) slots: Vec<E>,
    /// The slot that counts steps of loops, if there are any.
    pub(super) left: Option<usize>,
}

/// The slots of what lies in buffers, and of constants.
pub(super) type Slots = HashMap<(Source, usize), usize>;

impl<E: ArrayFloat> Straight<E> {
    pub(super) fn new() -> Self {
        Straight { work: Vec::new(), slots: Vec::new(), left: None }
    }

    /// A slot that holds this number at first.
    pub(super) fn slot(&mut self, number: E) -> usize {
        self.slots.push(number);
        self.slots.len() - 1
    }

    /// The slot of a number that lies somewhere; `None` where that is not known.
    pub(super) fn slot_of(&mut self, place: (Source, usize), bank: &Bank<E>, places: &mut Slots) -> Option<usize> {
        if let (Source::Const(_), None) = (place.0, places.get(&place)) {
            let slot = self.slot(bank.read(place.0, &|_| &[])[place.1]);
            places.insert(place, slot);
        }
        places.get(&place).copied()
    }

    /// The slots of operands of one number each.
    pub(super) fn slots_of(&mut self, operands: &[Operand], bank: &Bank<E>, places: &mut Slots) -> Option<Vec<usize>> {
        let is_number = |operand: &Operand| operand.size() == 1 && operand.element != Element::Int;
        let slot = |operand: &Operand| {
            let place = (operand.place.source, operand.place.offset);
            is_number(operand).then(|| self.slot_of(place, bank, places)).flatten()
        };
        operands.iter().map(slot).collect()
    }

    /// What `append` appends, apart from the rest.
    pub(super) fn apart<T>(&mut self, append: impl FnOnce(&mut Self) -> Option<T>) -> Option<(Vec<Item>, T)> {
        let before = std::mem::take(&mut self.work);
        let result = append(self);
        Some((std::mem::replace(&mut self.work, before), result?))
    }

    /// Moves numbers from slots to others, of which some may be among the first: each before the move that overwrites it.
    pub(super) fn moved(&mut self, from: &[usize], to: &[usize]) {
        let moves = from.iter().copied().zip(to.iter().copied());
        let mut left: Vec<_> = moves.filter(|(from, to)| from != to).collect();
        while let Some(&(_, first)) = left.first() {
            let read: HashSet<_> = left.iter().map(|(from, _)| *from).collect();
            let (blocked, free): (Vec<_>, Vec<_>) = left.iter().copied().partition(|(_, to)| read.contains(to));
            self.work.extend(free.iter().map(|&(from, to)| Item::Move { from, to }));
            left = blocked;
            if free.is_empty() {
                // Numbers that change places.
                let kept = self.copy(first);
                left.iter_mut().filter(|(from, _)| *from == first).for_each(|(from, _)| *from = kept);
            }
        }
    }

    fn copy(&mut self, from: usize) -> usize {
        let to = self.slot(E::default());
        self.work.push(Item::Move { from, to });
        to
    }

    /// Appends a chain. `places` knows the slots of buffers, whose numbers are those of the work before; `None` if it reads
    /// anything else.
    pub(super) fn append(&mut self, chain: &Numbers<E>, bank: &Bank<E>, places: &mut Slots) -> Option<()> {
        let mut new: HashMap<usize, usize> = HashMap::new();
        for load in &chain.loads {
            new.insert(load.slot, self.slot_of((load.source, load.offset), bank, places)?);
        }
        for operation in &chain.operations {
            let mut of = [0; 3];
            for (of, k) in of.iter_mut().zip(&operation.of[..operation.arity()]) {
                *of = new[k];
            }
            let to = self.slot(E::default());
            self.work.push(Item::Operation(Operation { op: operation.op, of, to }));
            new.insert(operation.to, to);
        }
        for (slot, buffer) in &chain.stores {
            places.insert((Source::Buffer(*buffer), 0), new[slot]);
        }
        Some(())
    }
}
