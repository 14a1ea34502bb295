//! A chain of elementwise instructions and reductions over one shape, run block by block.
//!
//! The simple algorithm: for each instruction, for each number, compute. Departures:
//! 1. Numbers are processed in blocks that stay in the first-level cache, and all instructions run on a block before the
//!    next: a value that only the chain reads is never written to memory.
//! 2. An instruction is expanded to the operations of its row's formula, so one set of kernels serves values and
//!    derivatives of any order.
//! 3. Contiguous operands are read in place; a repeated number fills its block once per run; all others are gathered into a
//!    block.
//!
//! Promises: the bits of each operation on one number. Does not know the steps around it.

use super::columns_of_rows::Turned;
use super::math::{ArrayFloat, BlockOp, arity, compute};
use super::memory::Bank;
use super::place::{Source, Walk};
use super::reducer::Reducer;
use super::work::{Arg, Work};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::kernels;

/// Numbers in a block: 4 KB of f64.
pub(super) const BLOCK: usize = 512;

/// An operand from memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    pub(super) source: Source,
    pub(super) walk: Walk,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Chain<E> {
    /// Numbers of the shape, and of a block.
    pub(super) size: usize,
    pub(super) block: usize,
    pub(super) streams: Vec<Stream>,
    /// Blocks that hold one number throughout: the stream and the block.
    pub(super) repeated: Vec<(usize, usize)>,
    /// Rows of streams that are columns in memory.
    pub(super) turned: Vec<Turned<E>>,
    pub(super) work: Vec<Work>,
    pub(super) reducers: Vec<Reducer<E>>,
    /// Places in short arrays, for each number of the shape.
    pub(super) places: Vec<Vec<u32>>,
    /// What short arrays hold before anything is added: from a stream to a buffer.
    pub(super) sums: Vec<(usize, usize)>,
    /// How many blocks it needs.
    pub(super) blocks: usize,
}

impl<E: ArrayFloat> Chain<E> {
    /// Runs it. `given` finds arguments and parameters, `bank` everything else.
    pub(super) fn run<'a>(
        &mut self,
        bank: &mut Bank<E>,
        blocks: &mut [Vec<E>],
        given: &impl Fn(Source) -> &'a [E],
    ) -> Result<()> {
        let first = self.size.min(self.block);
        self.turned.iter_mut().for_each(Turned::begin);
        for &(stream, to) in &self.repeated {
            let Stream { source, walk } = self.streams[stream];
            // Of no numbers there is none to repeat.
            let number = bank.read(source, given).get(walk.offset()).copied().unwrap_or_default();
            blocks[to][..first].fill(number);
        }
        for work in &self.work {
            if let Work::Reduce { reducer, buffer, .. } = *work {
                self.reducers[reducer].begin(&mut bank.buffers[buffer]);
            }
        }
        for &(stream, buffer) in &self.sums {
            let mut room = std::mem::take(&mut bank.buffers[buffer]);
            let Stream { source, walk } = &self.streams[stream];
            walk.gather(bank.read(*source, given), 0, &mut room[..walk.len()]);
            bank.buffers[buffer] = room;
        }
        let mut start = 0;
        while start < self.size {
            let n = self.block.min(self.size - start);
            for work in &self.work {
                match *work {
                    Work::Compute { op, to, of } => {
                        let mut room = std::mem::take(&mut blocks[to]);
                        let read = |arg| numbers(arg, &self.streams, blocks, bank, given, start..start + n);
                        computed(op, of, read, &mut room[..n]);
                        blocks[to] = room;
                    }
                    Work::Keep { op, buffer, of } => {
                        let mut room = std::mem::take(&mut bank.buffers[buffer]);
                        let read = |arg| numbers(arg, &self.streams, blocks, bank, given, start..start + n);
                        computed(op, of, read, &mut room[start..start + n]);
                        bank.buffers[buffer] = room;
                    }
                    Work::Twins { twins, of, to, .. } => {
                        let rooms = to.map(|to| match to {
                            Arg::Buffer(k) => std::mem::take(&mut bank.buffers[k]),
                            Arg::Block(k) => std::mem::take(&mut blocks[k]),
                            Arg::Stream(_) => Vec::new(),
                        });
                        let [mut y, mut z] = rooms;
                        let first = to.map(|to| if let Arg::Buffer(_) = to { start } else { 0 });
                        let x = numbers(of, &self.streams, blocks, bank, given, start..start + n);
                        twins.map(x, &mut y[first[0]..][..n], &mut z[first[1]..][..n]);
                        for (to, room) in to.into_iter().zip([y, z]) {
                            match to {
                                Arg::Buffer(k) => bank.buffers[k] = room,
                                Arg::Block(k) => blocks[k] = room,
                                Arg::Stream(_) => {}
                            }
                        }
                    }
                    Work::Gather { stream, to } => {
                        let Stream { source, walk } = &self.streams[stream];
                        let (from, to) = (bank.read(*source, given), &mut blocks[to][..n]);
                        match self.turned.iter_mut().find(|turned| turned.stream == stream) {
                            Some(turned) => turned.gather(walk, from, start, self.size, to),
                            None => walk.gather(from, start, to),
                        }
                    }
                    Work::GatherRows { stream, row, to } => {
                        let Stream { source, walk } = &self.streams[stream];
                        walk.gather(bank.read(*source, given), start / row, &mut blocks[to][..n / row]);
                    }
                    Work::Lookup { stream, places, to } => {
                        let from = bank.read(self.streams[stream].source, given);
                        let places = &self.places[places][start..start + n];
                        blocks[to].iter_mut().zip(places).for_each(|(to, &at)| *to = from[at as usize]);
                    }
                    Work::Shares { of, row, to } => {
                        let mut room = std::mem::take(&mut blocks[to]);
                        let [g, y] = [of[0], of[2]].map(|arg| {
                            numbers(arg, &self.streams, blocks, bank, given, start / row..(start + n) / row)
                        });
                        let x = numbers(of[1], &self.streams, blocks, bank, given, start..start + n);
                        kernels::shares_of_extremes(g, x, y, &mut room[..n]);
                        blocks[to] = room;
                    }
                    Work::Scatter { of, places, buffer } => {
                        let mut room = std::mem::take(&mut bank.buffers[buffer]);
                        let from = numbers(of, &self.streams, blocks, bank, given, start..start + n);
                        let places = &self.places[places][start..start + n];
                        places.iter().zip(from).for_each(|(&at, &x)| room[at as usize] = room[at as usize] + x);
                        bank.buffers[buffer] = room;
                    }
                    Work::Store { of, buffer } => {
                        let mut room = std::mem::take(&mut bank.buffers[buffer]);
                        let from = numbers(of, &self.streams, blocks, bank, given, start..start + n);
                        room[start..start + n].copy_from_slice(from);
                        bank.buffers[buffer] = room;
                    }
                    Work::Spread { of, buffer, first, step } => {
                        let mut room = std::mem::take(&mut bank.buffers[buffer]);
                        let from = numbers(of, &self.streams, blocks, bank, given, start..start + n);
                        let rows = room[start * step..(start + n) * step].chunks_exact_mut(step);
                        rows.zip(from).for_each(|(row, &x)| row[first] = x);
                        bank.buffers[buffer] = room;
                    }
                    Work::Reduce { of, reducer, buffer } => {
                        let mut room = std::mem::take(&mut bank.buffers[buffer]);
                        let from = numbers(of, &self.streams, blocks, bank, given, start..start + n);
                        self.reducers[reducer].take(from, &mut room);
                        bank.buffers[buffer] = room;
                    }
                }
            }
            start += n;
            if start.is_multiple_of(64 * self.block) && interrupt::is_over() {
                return Err(Error::Interrupted);
            }
        }
        Ok(())
    }
}

/// Computes numbers from those that `read` finds.
fn computed<'b, E: ArrayFloat>(op: BlockOp, of: [Arg; 3], read: impl Fn(Arg) -> &'b [E], to: &mut [E]) {
    let none: &[E] = &[];
    let operands = match arity(op) {
        1 => [read(of[0]), none, none],
        2 => [read(of[0]), read(of[1]), none],
        _ => of.map(read),
    };
    compute(op, operands, to);
}

/// The numbers of a block, of a stream whose numbers lie side by side, or of a buffer.
fn numbers<'a, 'b, E: ArrayFloat>(
    arg: Arg,
    streams: &[Stream],
    blocks: &'b [Vec<E>],
    bank: &'b Bank<E>,
    given: &impl Fn(Source) -> &'a [E],
    at: std::ops::Range<usize>,
) -> &'b [E]
where
    'a: 'b,
{
    match arg {
        Arg::Block(k) => &blocks[k][..at.len()],
        Arg::Buffer(k) => &bank.buffers[k][at],
        Arg::Stream(k) => {
            let Stream { source, walk } = &streams[k];
            &bank.read(*source, given)[walk.offset() + at.start..walk.offset() + at.end]
        }
    }
}
