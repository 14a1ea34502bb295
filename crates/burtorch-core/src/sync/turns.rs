//! Something that numbered tasks get hold of in the order of their numbers, whoever is ready first.
//!
//! Promises: no task waits for one that has given up or panicked. A task may wait only for lower numbers, so tasks that
//! are begun in order, by any number of threads, never wait for one another in a circle.

use super::primitives::{Condvar, Mutex, MutexGuard};

/// What the tasks take turns with.
#[derive(Debug)]
pub struct Turns<T> {
    state: Mutex<State<T>>,
    /// Told when another task's turn has come, or none will any more.
    came: Condvar,
}

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
    /// Turns for tasks from number `first` on.
    pub fn new(content: T, first: usize) -> Self {
        Turns { state: Mutex::new(State { content, next: first, has_ended: false }), came: Condvar::new() }
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
    /// Waits for the turn and calls `f`, which says whether there is to be another one; does nothing where turns have ended.
    pub fn take(mut self, f: impl FnOnce(&mut T) -> bool) {
        let mut state = self.turns.lock();
        while state.next != self.number && !state.has_ended {
            state = self.turns.came.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        if !state.has_ended {
            state.has_ended = !f(&mut state.content);
            state.next += 1;
        }
        drop(state);
        self.is_taken = true;
        self.turns.came.notify_all();
    }
}

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        if !self.is_taken {
            self.turns.lock().has_ended = true;
            self.turns.came.notify_all();
        }
    }
}
