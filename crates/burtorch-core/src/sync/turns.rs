//! Something that numbered tasks get hold of in the order of their numbers, whoever is ready first.
//!
//! Promises: no task waits for one that has given up or panicked. A task may wait only for lower numbers, so tasks that
//! are begun in order, by any number of threads, never wait for one another in a circle.

use super::primitives::{AtomicUsize, Condvar, Mutex, MutexGuard, Ordering, SPINS, YIELDS, pause, yield_now};

/// What the tasks take turns with.
#[derive(Debug)]
pub struct Turns<T> {
    state: Mutex<State<T>>,
    /// Told when another task's turn has come, or none will any more.
    came: Condvar,
    /// Whose turn it is, or `ENDED`, for those who look before they sleep. Relaxed: the lock decides.
    shown: AtomicUsize,
    /// How often they look: waking up takes as long as a small task.
    looks: u32,
}

/// Stands for the end of all turns.
const ENDED: usize = usize::MAX;

#[derive(Debug)]
struct State<T> {
    content: T,
    /// Whose turn it is.
    next: usize,
    /// Whether no more turns are given.
    has_ended: bool,
}

/// A task's claim to its turn. Dropped without [`Turn::take`], it ends the turns of all that wait.
#[derive(Debug)]
pub struct Turn<'a, T> {
    turns: &'a Turns<T>,
    number: usize,
    is_taken: bool,
}

impl<T> Turns<T> {
    /// Turns for tasks from number `first` on. Whether threads look for their turn before they sleep: if each has a core.
    pub fn new(content: T, first: usize, looks: bool) -> Self {
        Turns {
            state: Mutex::new(State { content, next: first, has_ended: false }),
            came: Condvar::new(),
            shown: AtomicUsize::new(first),
            looks: if looks { SPINS + YIELDS } else { 0 },
        }
    }

    /// Announces task `number`, which is begun.
    pub fn claim(&self, number: usize) -> Turn<'_, T> {
        Turn { turns: self, number, is_taken: false }
    }

    /// What is left when all tasks are done.
    pub fn into_content(self) -> T {
        self.state.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()).content
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // A task that panicked in its turn has ended the turns when its claim is dropped.
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl<T> Turn<'_, T> {
    /// Returns when it seems to be the turn, or after a millisecond or two.
    fn look(&self) {
        for k in 0..self.turns.looks {
            let shown = self.turns.shown.load(Ordering::Relaxed);
            if shown == self.number || shown == ENDED {
                return;
            }
            if k < SPINS {
                pause();
            } else {
                yield_now();
            }
        }
    }

    /// Waits for the turn and calls `f`, which says whether there is to be another one; does nothing where turns have ended.
    pub fn take(mut self, f: impl FnOnce(&mut T) -> bool) {
        self.look();
        let mut state = self.turns.lock();
        while state.next != self.number && !state.has_ended {
            state = self.turns.came.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        if !state.has_ended {
            state.has_ended = !f(&mut state.content);
            state.next += 1;
        }
        let shown = if state.has_ended { ENDED } else { state.next };
        drop(state);
        self.turns.shown.store(shown, Ordering::Relaxed);
        self.is_taken = true;
        self.turns.came.notify_all();
    }
}

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        if !self.is_taken {
            self.turns.lock().has_ended = true;
            self.turns.shown.store(ENDED, Ordering::Relaxed);
            self.turns.came.notify_all();
        }
    }
}
