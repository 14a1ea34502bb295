//! Early end of long work on request, as by Ctrl-C.
//!
//! Long work is divided by [`pieces`], which calls the check given to [`asking`] before each piece but the first. Promises:
//! once the check returns true it is not called again, the remaining pieces are skipped, and `asking` returns an error whatever
//! the work returns, so that an incomplete result never passes for a complete one. Without a check, the token that the thread
//! watches decides ([`crate::sync::Stop`]); without both, a piece costs one comparison. State is per thread.

use std::cell::Cell;
use std::ops::Range;

use crate::error::{Error, Result};
use crate::sync::stop;

/// Numbers between two checks: some tens of microseconds to a millisecond of work.
pub const PIECE: usize = 1 << 16;

/// Bytes between two checks.
pub const BYTES: usize = 1 << 20;

#[derive(Clone, Copy)]
enum Question {
    /// Without a check.
    None,
    Ask(fn() -> bool),
    /// The check returned true.
    IsOver,
}

thread_local! {
    static QUESTION: Cell<Question> = const { Cell::new(Question::None) };
}

/// Restores the earlier check, also in a panic.
struct Back(Question);

impl Drop for Back {
    fn drop(&mut self) {
        QUESTION.set(self.0);
    }
}

/// Runs `work`, which ends early with [`Error::Interrupted`] when `is_over` returns true; `is_over` is called now and then on
/// this thread, at points where no visible state is incomplete.
///
/// ```
/// use burtorch_core::{Error, Graph, Op, interrupt};
/// let mut graph = Graph::<f64>::new();
/// let x = graph.vector(&vec![0.5; 1 << 20]).unwrap();
/// let tanh = interrupt::asking(|| true, || graph.map(Op::Tanh, x));
/// assert_eq!(tanh, Err(Error::Interrupted));
/// ```
pub fn asking<T>(is_over: fn() -> bool, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let _before = Back(QUESTION.replace(Question::Ask(is_over)));
    let done = work();
    check()?;
    done
}

/// Checks whether to end early.
pub fn is_over() -> bool {
    match QUESTION.get() {
        Question::None => stop::is_over(),
        Question::IsOver => true,
        Question::Ask(is_over) => {
            let answer = is_over();
            if answer {
                QUESTION.set(Question::IsOver);
            }
            answer
        }
    }
}

/// Runs work whose kernels check as well: an incomplete result is dropped, which [`check`] reports afterwards.
pub(crate) fn in_kernels<T>(work: impl FnOnce() -> T) -> T {
    stop::kernels_asking(is_over, work)
}

/// An error if the work must end, without a new check: called before a result is kept.
pub fn check() -> Result<()> {
    match QUESTION.get() {
        Question::IsOver => Err(Error::Interrupted),
        _ => stop::check(),
    }
}

/// Checks before every [`PIECE`] of a loop at position `k`.
#[inline]
pub fn ask_at(k: usize) -> Result<()> {
    if k.is_multiple_of(PIECE) && k > 0 && is_over() { Err(Error::Interrupted) } else { Ok(()) }
}

/// Counts work whose pieces differ in size, and checks after about every [`PIECE`] of it.
///
/// ```
/// use burtorch_core::{Error, Result, interrupt};
/// let rows = |rows: &[usize]| -> Result<usize> {
///     let mut work = interrupt::Work::default();
///     rows.iter().try_fold(0, |sum, &row| work.add(row).map(|()| sum + row))
/// };
/// assert_eq!(rows(&[1 << 15; 8]), Ok(1 << 18));
/// assert_eq!(interrupt::asking(|| true, || rows(&[1 << 15; 8])), Err(Error::Interrupted));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Work {
    done: usize,
}

impl Work {
    /// Counts `n` elementary operations, each of some nanoseconds; an error if the work must end.
    #[inline]
    pub fn add(&mut self, n: usize) -> Result<()> {
        self.done = self.done.saturating_add(n);
        if self.done < PIECE {
            return Ok(());
        }
        let is_over = is_over();
        // The next one fails too.
        self.done = if is_over { usize::MAX } else { 0 };
        if is_over { Err(Error::Interrupted) } else { Ok(()) }
    }
}

/// The numbers below `n` in ranges of [`PIECE`], the last one shorter; ends early when the work must end.
#[inline]
pub fn pieces(n: usize) -> Pieces {
    pieces_of(n, PIECE)
}

/// The same in ranges of `size`.
#[inline]
pub fn pieces_of(n: usize, size: usize) -> Pieces {
    Pieces { at: 0, n, size: size.max(1) }
}

/// See [`pieces`].
#[derive(Clone, Debug)]
pub struct Pieces {
    at: usize,
    n: usize,
    size: usize,
}

impl Iterator for Pieces {
    type Item = Range<usize>;

    #[inline]
    fn next(&mut self) -> Option<Range<usize>> {
        if self.at >= self.n || self.at > 0 && is_over() {
            return None;
        }
        let start = self.at;
        self.at = start + self.size.min(self.n - start);
        Some(start..self.at)
    }
}
