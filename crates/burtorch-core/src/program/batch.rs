//! One program over many rows of inputs, in lanes.
//!
//! In words: 64 rows at a time are transposed into the lanes of the input slots, each instruction serves all of them,
//! outputs are transposed back. Rows on which a guard answers otherwise than recorded are told to the caller, who has
//! another path for them or records one.
//!
//! Promises: a row's result depends on that row only, so not on the number of threads or on where blocks begin. Knows
//! rows by number; where they lie in memory is the caller's.

use std::sync::atomic::{AtomicBool, Ordering};

use super::carrier::{Build, Carrier, Seeds};
use super::node::Program;
use super::replay::Replay;
use crate::error::Result;
use crate::scalar::Scalar;
use crate::sync::{self, Mutex, MutexGuard};

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
    /// Does the same for this input and the next at once, if that is cheaper; returns whether it has.
    fn read_two(&self, _input: usize, _rows: Rows<'_>, _to: [&mut [E]; 2]) -> bool {
        false
    }
}

/// Where results go. Different rows may be written from different threads at once.
pub trait Sink<E>: Sync {
    /// Output `output` of these rows.
    fn value(&self, output: usize, rows: Rows<'_>, from: &[E]);
    /// The gradient with respect to input `input` of these rows.
    fn gradient(&self, input: usize, rows: Rows<'_>, from: &[E]);
    /// Does the same for this input and the next at once, if that is cheaper; returns whether it has.
    fn gradient_of_two(&self, _input: usize, _rows: Rows<'_>, _from: [&[E]; 2]) -> bool {
        false
    }
}

/// Rows between two questions whether to stop; a thread's share of them at a time.
const ROWS_PER_TASK: usize = 2048;

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
        self.replay.use_lanes(n);
        self.read(block, source);
        if self.replay.has_guards() {
            let before = left.len();
            self.replay.values_with_mask(|lane| {
                if lane < n {
                    left.push(block.get(lane));
                }
            });
            // In order, and each once, whatever was wrong there.
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
        let part = |k: usize| rows.part(k * ROWS_PER_TASK, ROWS_PER_TASK);
        let n_tasks = rows.len().div_ceil(ROWS_PER_TASK);
        let threads = threads.clamp(1, n_tasks.max(1));
        if threads == 1 {
            return (0..n_tasks).all(|k| {
                let goes_on = !stop();
                if goes_on {
                    self.run(part(k), source, sink, left);
                }
                goes_on
            });
        }
        let idle = Mutex::new((1..threads).map(|_| self.clone()).chain([self.clone()]).collect::<Vec<_>>());
        let found = Mutex::new(Vec::new());
        let stopped = AtomicBool::new(false);
        sync::run(threads, n_tasks, &|k| {
            // Relaxed: nothing else is published through the flag.
            if stopped.load(Ordering::Relaxed) || stop() {
                return stopped.store(true, Ordering::Relaxed);
            }
            let Some(mut batch) = lock(&idle).pop() else { return stopped.store(true, Ordering::Relaxed) };
            let mut left = Vec::new();
            batch.run(part(k), source, sink, &mut left);
            lock(&idle).push(batch);
            if !left.is_empty() {
                lock(&found).push((k, left));
            }
        });
        let mut found = found.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        found.sort_unstable_by_key(|task| task.0);
        left.extend(found.into_iter().flat_map(|task| task.1));
        !stopped.into_inner()
    }

    /// Whether it was made for the CPU level that is in use now.
    pub fn is_current(&self) -> bool {
        self.replay.is_current()
    }
}
