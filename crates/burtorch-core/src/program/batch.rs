//! One program over many rows of inputs, in lanes.
//!
//! In words: 64 rows at a time are transposed into the lanes of the input slots, each instruction serves all of them,
//! outputs are transposed back. Rows on which a guard answers otherwise than recorded are told to the caller, who has
//! another path for them or records one.
//!
//! Promises: a row's result depends on that row only, so not on the number of threads or on where blocks begin. Knows
//! rows by number; where they lie in memory is the caller's.

use super::node::Program;
use super::replay::{Build, Carrier, Replay, Seeds};
use crate::error::Result;
use crate::scalar::Scalar;

/// Rows by number.
#[derive(Clone, Copy, Debug)]
pub enum Rows<'a> {
    /// Consecutive ones.
    Run {
        /// The first.
        first: usize,
        /// How many.
        len: usize,
    },
    /// These.
    List(&'a [usize]),
}

impl<'a> Rows<'a> {
    /// How many.
    pub fn len(self) -> usize {
        match self {
            Rows::Run { len, .. } => len,
            Rows::List(rows) => rows.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Row `k` of these.
    pub fn get(self, k: usize) -> usize {
        match self {
            Rows::Run { first, .. } => first + k,
            Rows::List(rows) => rows[k],
        }
    }

    /// From the `from`th, at most `len` of them.
    pub fn part(self, from: usize, len: usize) -> Rows<'a> {
        match self {
            Rows::Run { first, len: all } => Rows::Run { first: first + from, len: len.min(all - from) },
            Rows::List(rows) => Rows::List(&rows[from..(from + len).min(rows.len())]),
        }
    }
}

/// Where inputs come from.
pub trait Source<E>: Sync {
    /// Writes input `input` of these rows to the first entries of `to`.
    fn read(&self, input: usize, rows: Rows<'_>, to: &mut [E]);
}

/// Where results go. Different rows may be written from different threads at once.
pub trait Sink<E>: Sync {
    /// Output `output` of these rows.
    fn value(&self, output: usize, rows: Rows<'_>, from: &[E]);
    /// The gradient with respect to input `input` of these rows.
    fn gradient(&self, input: usize, rows: Rows<'_>, from: &[E]);
}

/// A program that is ready to run over rows, `W * S::LANES` at a time.
#[derive(Clone, Debug)]
pub struct Batch<S: Scalar, const W: usize> {
    replay: Replay<S, W>,
    n_inputs: usize,
    n_differentiated: usize,
    with_gradient: bool,
}

impl<S: Carrier, const W: usize> Batch<S, W> {
    /// Rows that one instruction serves.
    pub const BLOCK: usize = W * S::LANES;

    /// Makes a program ready; gradients are those of its first output.
    pub fn new(program: &Program, with_gradient: bool) -> Result<Self> {
        let build = if with_gradient { Build::Reverse(Seeds::One(0)) } else { Build::Values };
        Ok(Batch {
            replay: Replay::new(program, build)?,
            n_inputs: program.n_inputs(),
            n_differentiated: program.n_differentiated(),
            with_gradient,
        })
    }

    /// Evaluates rows and appends to `left` those on which a guard disagrees; what the sink holds for them is void.
    pub fn run(
        &mut self,
        rows: Rows<'_>,
        source: &dyn Source<S::Elem>,
        sink: &dyn Sink<S::Elem>,
        left: &mut Vec<usize>,
    ) {
        let mut from = 0;
        while from < rows.len() {
            let block = rows.part(from, Self::BLOCK);
            self.run_block(block, source, sink, left);
            from += Self::BLOCK;
        }
    }

    fn run_block(
        &mut self,
        block: Rows<'_>,
        source: &dyn Source<S::Elem>,
        sink: &dyn Sink<S::Elem>,
        left: &mut Vec<usize>,
    ) {
        let n = block.len();
        for input in 0..self.n_inputs {
            source.read(input, block, self.replay.input_lanes_mut(input));
        }
        if self.replay.has_guards() {
            self.replay.values_with_mask(|lane| {
                if lane < n {
                    left.push(block.get(lane));
                }
            });
        } else {
            self.replay.values();
        }
        for output in 0..self.replay.n_outputs() {
            sink.value(output, block, &self.replay.output_lanes(output)[..n]);
        }
        if self.with_gradient {
            self.replay.reverse_one();
            for input in 0..self.n_differentiated {
                sink.gradient(input, block, &self.replay.gradient_lanes(input)[..n]);
            }
        }
    }

    /// As [`Batch::run`] on up to `threads` threads, each with a contiguous part of the rows. The rows left are in the
    /// order of a single thread.
    pub fn run_on(
        &mut self,
        threads: usize,
        rows: Rows<'_>,
        source: &dyn Source<S::Elem>,
        sink: &dyn Sink<S::Elem>,
        left: &mut Vec<usize>,
    ) {
        let n_blocks = rows.len().div_ceil(Self::BLOCK);
        let threads = threads.clamp(1, n_blocks.max(1));
        if threads == 1 {
            return self.run(rows, source, sink, left);
        }
        let share = n_blocks.div_ceil(threads) * Self::BLOCK;
        let mut others: Vec<Self> = (1..threads).map(|_| self.clone()).collect();
        std::thread::scope(|scope| {
            let mut running = Vec::new();
            for (k, batch) in others.iter_mut().enumerate() {
                let from = (k + 1) * share;
                if from < rows.len() {
                    let part = rows.part(from, share);
                    running.push(scope.spawn(move || {
                        let mut left = Vec::new();
                        batch.run(part, source, sink, &mut left);
                        left
                    }));
                }
            }
            self.run(rows.part(0, share), source, sink, left);
            for thread in running {
                if let Ok(more) = thread.join() {
                    left.extend(more);
                }
            }
        });
    }

    /// Whether it was made for the CPU level that is in use now.
    pub fn is_current(&self) -> bool {
        self.replay.is_current()
    }
}
