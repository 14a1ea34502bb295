//! One program over many rows of inputs, in lanes.
//!
//! 64 rows at a time are transposed into the lanes of the input slots, each instruction computes all of them, and outputs are
//! transposed back. Rows for which a guard fails are reported to the caller, who replays another path or traces one.
//!
//! Promises: a row's result depends on that row only, so not on the number of threads or on block boundaries. Knows
//! rows by number; their memory belongs to the caller.

use super::build::{Build, Seeds};
use super::carrier::Carrier;
use super::node::Program;
use super::replay::Replay;
use crate::error::Result;
use crate::scalar::Scalar;
use crate::sync::{self, GuidedChunks, Mutex, MutexGuard};

/// Rows by number.
#[derive(Clone, Copy, Debug)]
pub enum Rows<'a> {
    /// Consecutive rows.
    Run {
        /// The first row.
        first: usize,
        /// The number of rows.
        len: usize,
    },
    /// Listed rows.
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
    /// Writes input `input` of these rows to the start of `to`.
    fn read(&self, input: usize, rows: Rows<'_>, to: &mut [E]);
    /// Reads this input and the next at once if that is cheaper; returns whether it did.
    fn read_two(&self, _input: usize, _rows: Rows<'_>, _to: [&mut [E]; 2]) -> bool {
        false
    }
}

/// Where results go. Different rows may be written from different threads at once.
pub trait Sink<E>: Sync {
    /// Receives output `output` of these rows.
    fn value(&self, output: usize, rows: Rows<'_>, from: &[E]);
    /// Receives the gradient with respect to input `input` of these rows.
    fn gradient(&self, input: usize, rows: Rows<'_>, from: &[E]);
    /// Receives the gradients for this input and the next at once if that is cheaper; returns whether it did.
    fn gradient_of_two(&self, _input: usize, _rows: Rows<'_>, _from: [&[E]; 2]) -> bool {
        false
    }
}

/// Rows that a thread takes at a time, between two checks for a stop.
const ROWS_AT_ONCE: usize = 2048;

/// Numbers computed between two checks within a large program.
const NUMBERS_AT_ONCE: usize = 1 << 18;

/// The smallest chunk, used at the end so that threads finish together: a multiple of every block size.
const ROWS_AT_LEAST: usize = 256;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
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

    /// Prepares a program; gradients are those of its first output.
    pub fn new(program: &Program, with_gradient: bool) -> Result<Self> {
        let build = if with_gradient { Build::Reverse(Seeds::One(0)) } else { Build::Values };
        Ok(Batch {
            replay: Replay::new(program, build)?,
            n_inputs: program.n_inputs(),
            n_differentiated: program.n_differentiated(),
            with_gradient,
        })
    }

    /// Evaluates rows and appends those with a failed guard to `left`; the sink's content for them is undefined.
    pub fn run(
        &mut self,
        rows: Rows<'_>,
        source: &dyn Source<S::Elem>,
        sink: &dyn Sink<S::Elem>,
        left: &mut Vec<usize>,
    ) {
        self.run_until(rows, source, sink, left, &|| false);
    }

    /// As [`Batch::run`], until `stop` returns true; a large program calls it within a row as well.
    fn run_until(
        &mut self,
        rows: Rows<'_>,
        source: &dyn Source<S::Elem>,
        sink: &dyn Sink<S::Elem>,
        left: &mut Vec<usize>,
        stop: &dyn Fn() -> bool,
    ) {
        let mut from = 0;
        let (each, mut done) = (Self::BLOCK * self.replay.code_len(), 0);
        while from < rows.len() {
            done += each;
            if done > NUMBERS_AT_ONCE {
                done = 0;
                if stop() {
                    return;
                }
            }
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
        self.replay.use_lanes(n);
        self.read(block, source);
        if self.replay.has_guards() {
            let before = left.len();
            self.replay.values_with_mask(|lane| {
                if lane < n {
                    left.push(block.get(lane));
                }
            });
            // In order and once each, even if several guards failed.
            left[before..].sort_unstable();
            left.dedup();
        } else {
            self.replay.values();
        }
        for output in 0..self.replay.n_outputs() {
            sink.value(output, block, &self.replay.output_lanes(output)[..n]);
        }
        if self.with_gradient {
            self.replay.reverse_one();
            self.write_gradients(block, sink);
        }
    }

    fn read(&mut self, block: Rows<'_>, source: &dyn Source<S::Elem>) {
        let mut input = 0;
        while input < self.n_inputs {
            if input + 1 < self.n_inputs && source.read_two(input, block, self.replay.two_inputs_mut(input)) {
                input += 2;
                continue;
            }
            source.read(input, block, self.replay.input_lanes_mut(input));
            input += 1;
        }
    }

    fn write_gradients(&mut self, block: Rows<'_>, sink: &dyn Sink<S::Elem>) {
        let n = block.len();
        let mut input = 0;
        while input < self.n_differentiated {
            if input + 1 < self.n_differentiated {
                let [x, y] = self.replay.two_gradients(input);
                if sink.gradient_of_two(input, block, [&x[..n], &y[..n]]) {
                    input += 2;
                    continue;
                }
            }
            sink.gradient(input, block, &self.replay.gradient_lanes(input)[..n]);
            input += 1;
        }
    }

    /// As [`Batch::run`] on up to `threads` threads of the process's pool. `stop` is asked before every few thousand
    /// rows, on any of the threads; returns whether it never said yes. The rows left are in order.
    pub fn run_on(
        &mut self,
        threads: usize,
        rows: Rows<'_>,
        source: &dyn Source<S::Elem>,
        sink: &dyn Sink<S::Elem>,
        left: &mut Vec<usize>,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> bool {
        let threads = threads.clamp(1, rows.len().div_ceil(ROWS_AT_ONCE).max(1));
        let portions = GuidedChunks::new(rows.len(), threads, ROWS_AT_LEAST, ROWS_AT_ONCE);
        if threads == 1 {
            self.take_portions(&portions, rows, source, sink, stop, &mut |_, found| left.append(found));
            return !portions.is_stopped();
        }
        let found = Mutex::new(Vec::new());
        let original = &*self;
        sync::run(threads, threads, &|_| {
            if portions.is_over() {
                return;
            }
            // Cloned by the thread itself: allocations by one thread for several are adjacent, and threads that write
            // to the same cache line slow each other down.
            let mut batch = original.clone();
            let note = &mut |from, left: &mut _| lock(&found).push((from, std::mem::take(left)));
            batch.take_portions(&portions, rows, source, sink, stop, note);
        });
        let mut found = found.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        found.sort_unstable_by_key(|portion| portion.0);
        left.extend(found.into_iter().flat_map(|portion| portion.1));
        !portions.is_stopped()
    }

    /// Takes chunks until none is left or `stop` returns true. Passes the start of each chunk with remaining rows, and
    /// these rows, to `note`.
    fn take_portions(
        &mut self,
        portions: &GuidedChunks,
        rows: Rows<'_>,
        source: &dyn Source<S::Elem>,
        sink: &dyn Sink<S::Elem>,
        stop: &(dyn Fn() -> bool + Sync),
        note: &mut dyn FnMut(usize, &mut Vec<usize>),
    ) {
        let mut left = Vec::new();
        while let Some(portion) = portions.take() {
            if stop() {
                return portions.stop();
            }
            let is_over = || portions.is_stopped() || stop();
            self.run_until(rows.part(portion.start, portion.len()), source, sink, &mut left, &is_over);
            if stop() {
                return portions.stop();
            }
            if !left.is_empty() {
                note(portion.start, &mut left);
            }
        }
    }

    /// Whether it was made for the CPU level that is in use now.
    pub fn is_current(&self) -> bool {
        self.replay.is_current()
    }
}
