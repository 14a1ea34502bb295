//! Results of numbered tasks, added in the order of the numbers, whichever is finished first.
//!
//! An early task leaves its result, if there is space for it, and continues; the task whose turn is before adds it later.
//! Promises: one thread at a time adds; no task waits for one that has stopped or panicked. A task may wait only for lower
//! numbers, so tasks that are started in order, by any number of threads, never wait for one another in a circle.

use super::primitives::{
    AtomicBool, AtomicUsize, Condvar, Mutex, MutexGuard, Ordering, SPINS, YIELDS, pause, yield_now,
};

/// The accumulated result, and the next task.
#[derive(Debug)]
pub struct OrderedReduction<T, R> {
    state: Mutex<Results<T, R>>,
    /// Notified when another task is next, when there is room, or at the end.
    came: Condvar,
    /// The next task, or `ENDED`, for tasks that spin before they sleep. Relaxed, like the next field: the lock
    /// decides.
    shown: AtomicUsize,
    /// Whether there may be room for a result.
    has_room: AtomicBool,
    /// The number of spins: waking up takes as long as a small task.
    looks: u32,
    /// Adds the result of a task; returns whether to continue.
    add: fn(&mut T, usize, &mut R) -> bool,
}

/// Marks the end of all tasks.
const ENDED: usize = usize::MAX;

/// Room for results that are early.
#[derive(Debug)]
pub struct EarlyResults<R> {
    /// Exchanged for a result that is early.
    pub spares: Vec<R>,
    /// Early results and their numbers; has room for as many as there are spares.
    pub early: Vec<(usize, R)>,
}

impl<R> Default for EarlyResults<R> {
    fn default() -> Self {
        EarlyResults { spares: Vec::new(), early: Vec::new() }
    }
}

#[derive(Debug)]
struct Results<T, R> {
    /// The accumulated result, while no task is adding to it.
    content: Option<T>,
    /// The next task.
    next: usize,
    /// Whether the reduction has ended.
    has_ended: bool,
    room: EarlyResults<R>,
}

impl<T, R> Results<T, R> {
    /// The result of the next task, if it is buffered.
    fn take_early(&mut self) -> Option<R> {
        let at = self.room.early.iter().position(|&(number, _)| number == self.next && !self.has_ended)?;
        Some(self.room.early.swap_remove(at).1)
    }
}

/// A task's claim to its turn. Dropped without [`Turn::hand_over`], it ends the turns of all that wait.
#[derive(Debug)]
pub struct Turn<'a, T, R> {
    turns: &'a OrderedReduction<T, R>,
    number: usize,
    is_over: bool,
}

impl<T, R> OrderedReduction<T, R> {
    /// An ordered reduction of tasks from number `first` on. Whether threads look for their turn before they sleep: if each has a core.
    pub fn new(
        content: T,
        first: usize,
        looks: bool,
        room: EarlyResults<R>,
        add: fn(&mut T, usize, &mut R) -> bool,
    ) -> Self {
        OrderedReduction {
            has_room: AtomicBool::new(!room.spares.is_empty()),
            state: Mutex::new(Results { content: Some(content), next: first, has_ended: false, room }),
            came: Condvar::new(),
            shown: AtomicUsize::new(first),
            looks: if looks { SPINS + YIELDS } else { 0 },
            add,
        }
    }

    /// Announces task `number`, which is begun.
    pub fn claim(&self, number: usize) -> Turn<'_, T, R> {
        Turn { turns: self, number, is_over: false }
    }

    /// The result after all tasks, unless one panicked while it was adding.
    pub fn into_parts(self) -> (Option<T>, EarlyResults<R>) {
        let Results { content, mut room, .. } =
            self.state.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        // If the reduction ended early, buffered results become spares.
        let EarlyResults { spares, early } = &mut room;
        spares.extend(early.drain(..).map(|(_, result)| result));
        (content, room)
    }

    fn lock(&self) -> MutexGuard<'_, Results<T, R>> {
        // No code panics while it holds the lock.
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Notifies all waiting tasks of a change.
    fn show(&self, state: MutexGuard<'_, Results<T, R>>) {
        let shown = if state.has_ended { ENDED } else { state.next };
        self.has_room.store(!state.room.spares.is_empty(), Ordering::Relaxed);
        self.shown.store(shown, Ordering::Relaxed);
        drop(state);
        self.came.notify_all();
    }
}

impl<T, R> Turn<'_, T, R> {
    /// Spins until this task may be next, or there may be room, or for a millisecond or two.
    fn look(&self) {
        for k in 0..self.turns.looks {
            let shown = self.turns.shown.load(Ordering::Relaxed);
            if shown == self.number || shown == ENDED || self.turns.has_room.load(Ordering::Relaxed) {
                return;
            }
            if k < SPINS {
                pause();
            } else {
                yield_now();
            }
        }
    }

    /// Waits for the task's turn and returns the accumulated result; or buffers the task's result, or has ended, and
    /// returns `None`.
    fn reach(&self, result: &mut R) -> Option<T> {
        self.look();
        let mut state = self.turns.lock();
        loop {
            if state.has_ended {
                return None;
            }
            if state.next == self.number {
                return state.content.take();
            }
            if let Some(spare) = state.room.spares.pop() {
                state.room.early.push((self.number, std::mem::replace(result, spare)));
                self.turns.has_room.store(!state.room.spares.is_empty(), Ordering::Relaxed);
                return None;
            }
            state = self.turns.came.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    /// Adds the result when it is its turn, then the buffered results that come next. `result` may hold a spare
    /// afterwards; nothing happens after the end.
    pub fn hand_over(mut self, result: &mut R) {
        if let Some(mut content) = self.reach(result) {
            let mut goes_on = (self.turns.add)(&mut content, self.number, result);
            let mut state = self.turns.lock();
            loop {
                state.has_ended |= !goes_on;
                state.next += 1;
                let Some(mut early) = state.take_early() else { break };
                let number = state.next;
                self.turns.show(state);
                goes_on = (self.turns.add)(&mut content, number, &mut early);
                state = self.turns.lock();
                state.room.spares.push(early);
            }
            state.content = Some(content);
            self.turns.show(state);
        }
        self.is_over = true;
    }
}

impl<T, R> Drop for Turn<'_, T, R> {
    fn drop(&mut self) {
        if !self.is_over {
            let mut state = self.turns.lock();
            state.has_ended = true;
            self.turns.show(state);
        }
    }
}
