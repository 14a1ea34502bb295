//! The state of a Function for the thread that calls it.
//!
//! Under a GIL a Function has one state. Without one, a call takes a state for its thread and returns it at its end, so calls of
//! several threads neither wait for each other nor share anything: if all states are in use there is a new one, for which the body is
//! traced again. Calls one after the other always take the first state, whatever their threads, and a function that calls itself
//! keeps the state of the outer call. A function from a file cannot be traced again: its calls wait for its state.
//!
//! Promises: a state is used by one thread at a time. No call that runs Python code waits here.
#![allow(unsafe_code)]

use pyo3::prelude::*;

use super::object::FunctionObject;
use super::state::FunctionState;

#[cfg(not(Py_GIL_DISABLED))]
mod held {
    use pyo3::ffi;

    use super::{Bound, FunctionObject, FunctionState, PyAny};

    /// The only state.
    pub type States = FunctionState;

    /// The states of a new Function.
    pub fn of(state: FunctionState) -> States {
        state
    }

    /// The state of a function, for the duration of one expression that runs no Python code.
    ///
    /// # Safety
    /// `function` is a living Function; the GIL is held; no other reference into its state is in use.
    #[inline(always)]
    pub unsafe fn state_of<'a>(function: *mut FunctionObject) -> Option<&'a mut FunctionState> {
        // SAFETY: by the contract of this function.
        unsafe { (*function).state.as_mut() }
    }

    /// Calls `f` with every state.
    pub fn each(states: &States, mut f: impl FnMut(&FunctionState)) {
        f(states);
    }

    /// A call of a function by this thread.
    pub struct InUse;

    impl InUse {
        /// Begins it.
        #[inline(always)]
        pub fn of(_function: &Bound<'_, PyAny>) -> Self {
            InUse
        }

        /// The same.
        ///
        /// # Safety
        /// None here; elsewhere a living Function on an attached thread.
        #[inline(always)]
        pub unsafe fn of_object(_function: *mut ffi::PyObject) -> Self {
            InUse
        }
    }

    /// Removes the traces of the states that other calls have used.
    #[inline(always)]
    pub fn forget_others(_function: &Bound<'_, PyAny>) {}

    /// Makes the calls of other threads wait: there is no second state.
    #[inline(always)]
    pub fn keep_single(_function: &Bound<'_, PyAny>) {}
}

#[cfg(Py_GIL_DISABLED)]
mod held {
    use std::cell::RefCell;
    use std::ptr;
    use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

    use pyo3::ffi;
    use pyo3::prelude::*;

    use super::{FunctionObject, FunctionState};
    use crate::trace::object_type::is_function;

    /// All states of a Function.
    pub struct States {
        inner: Mutex<Inner>,
        returned: Condvar,
    }

    struct Inner {
        /// From boxes; the first one is taken first.
        all: Vec<State>,
        is_single: bool,
        /// Whether all calls use arrays, from the beginning.
        uses_arrays: bool,
        /// How often all traces were forgotten.
        n_forgotten: u64,
    }

    struct State {
        at: *mut FunctionState,
        is_in_use: bool,
        n_forgotten: u64,
    }

    // SAFETY: a state is used by the thread that has taken it.
    unsafe impl Send for Inner {}

    impl States {
        fn lock(&self) -> MutexGuard<'_, Inner> {
            self.inner.lock().unwrap_or_else(PoisonError::into_inner)
        }

        /// A state that no other thread uses.
        fn take(&self, py: Python<'_>) -> *mut FunctionState {
            let mut inner = self.lock();
            if inner.is_single && inner.all[0].is_in_use {
                drop(inner);
                // Only a call that runs no Python code is waited for.
                return Taken(
                    py.detach(|| {
                        let is_in_use = |inner: &mut Inner| inner.all[0].is_in_use;
                        let inner = self.returned.wait_while(self.lock(), is_in_use);
                        Taken(inner.unwrap_or_else(PoisonError::into_inner).take_first())
                    })
                    .0,
                )
                .0;
            }
            if let Some(free) = inner.all.iter_mut().find(|state| !state.is_in_use) {
                free.is_in_use = true;
                return free.at;
            }
            // No Python code runs while the list is locked.
            // SAFETY: what a new state needs is never written after the function is made.
            let mut state = Box::new(unsafe { (*inner.all[0].at).another(py) });
            state.uses_arrays = inner.uses_arrays;
            let state = Box::into_raw(state);
            let n_forgotten = inner.n_forgotten;
            inner.all.push(State { at: state, is_in_use: true, n_forgotten });
            state
        }

        /// Returns a state.
        fn give_back(&self, state: *mut FunctionState) {
            let mut inner = self.lock();
            let n_forgotten = inner.n_forgotten;
            let mut forgotten = None;
            if let Some(known) = inner.all.iter_mut().find(|known| known.at == state) {
                if known.n_forgotten != n_forgotten {
                    known.n_forgotten = n_forgotten;
                    // SAFETY: taken by this thread until now.
                    forgotten = Some(unsafe { (*state).forget() });
                }
                known.is_in_use = false;
            }
            drop(inner);
            self.returned.notify_one();
            // Dropped objects may run Python code.
            drop(forgotten);
        }
    }

    impl Inner {
        fn take_first(&mut self) -> *mut FunctionState {
            self.all[0].is_in_use = true;
            self.all[0].at
        }
    }

    impl Drop for States {
        fn drop(&mut self) {
            for state in self.lock().all.drain(..) {
                // SAFETY: from a box, and no call is left.
                drop(unsafe { Box::from_raw(state.at) });
            }
        }
    }

    /// A state on its way between threads.
    struct Taken(*mut FunctionState);

    // SAFETY: no other thread uses the state.
    unsafe impl Send for Taken {}

    /// The states of a new Function.
    pub fn of(state: FunctionState) -> States {
        let uses_arrays = state.uses_arrays;
        let first = State { at: Box::into_raw(Box::new(state)), is_in_use: false, n_forgotten: 0 };
        let inner = Inner { all: vec![first], is_single: false, uses_arrays, n_forgotten: 0 };
        States { inner: Mutex::new(inner), returned: Condvar::new() }
    }

    /// A state that this thread has taken.
    struct Mine {
        function: *mut FunctionObject,
        state: *mut FunctionState,
        n_calls: usize,
    }

    thread_local! {
        /// The innermost call last.
        static MINE: RefCell<Vec<Mine>> = const { RefCell::new(Vec::new()) };
    }

    /// The state that this thread has taken of a function, for the duration of one expression that runs no Python code.
    ///
    /// # Safety
    /// `function` is a living Function that this thread calls; no other reference into its state is in use.
    pub unsafe fn state_of<'a>(function: *mut FunctionObject) -> Option<&'a mut FunctionState> {
        MINE.with_borrow(|all| {
            // SAFETY: by the contract of this function; a state lives while its function does.
            all.iter().rev().find(|mine| mine.function == function).map(|mine| unsafe { &mut *mine.state })
        })
    }

    /// Calls `f` with every state, while all threads stand still.
    pub fn each(states: &States, mut f: impl FnMut(&FunctionState)) {
        if let Ok(inner) = states.inner.try_lock() {
            // SAFETY: states live until they are dropped with this list.
            inner.all.iter().for_each(|state| f(unsafe { &*state.at }));
        }
    }

    /// A call of a function by this thread, until it is dropped; it keeps the function alive.
    pub struct InUse(Option<Py<PyAny>>);

    impl InUse {
        /// Begins it. Other objects have no state.
        pub fn of(function: &Bound<'_, PyAny>) -> Self {
            if !is_function(function) {
                return InUse(None);
            }
            let object = function.as_ptr().cast::<FunctionObject>();
            // SAFETY: a living Function; its states live while it does.
            let Some(states) = (unsafe { (*object).state.as_ref() }) else { return InUse(None) };
            let is_mine = MINE.with_borrow_mut(|all| {
                let mine = all.iter_mut().rev().find(|mine| mine.function == object);
                mine.map(|mine| mine.n_calls += 1).is_some()
            });
            if !is_mine {
                let state = states.take(function.py());
                MINE.with_borrow_mut(|all| all.push(Mine { function: object, state, n_calls: 1 }));
            }
            InUse(Some(function.clone().unbind()))
        }

        /// The same.
        ///
        /// # Safety
        /// A living Function on an attached thread.
        pub unsafe fn of_object(function: *mut ffi::PyObject) -> Self {
            // SAFETY: by the contract of this function.
            Self::of(&unsafe { Bound::from_borrowed_ptr(Python::assume_attached(), function) })
        }
    }

    /// Ends a call of this thread; returns the state if it was the outermost one.
    fn end_call(function: *mut FunctionObject) -> Option<*mut FunctionState> {
        let end = |all: &RefCell<Vec<Mine>>| {
            let mut all = all.try_borrow_mut().ok()?;
            let at = all.iter().rposition(|mine| mine.function == function)?;
            let mine = all.get_mut(at)?;
            mine.n_calls -= 1;
            (mine.n_calls == 0).then(|| all.swap_remove(at).state)
        };
        MINE.try_with(end).ok().flatten()
    }

    impl Drop for InUse {
        fn drop(&mut self) {
            let Some(function) = self.0.take() else { return };
            let object = function.as_ptr().cast::<FunctionObject>();
            // SAFETY: a living Function.
            if let (Some(state), Some(states)) = (end_call(object), unsafe { (*object).state.as_ref() }) {
                states.give_back(state);
            }
            // SAFETY: calls end on attached threads.
            drop(function.into_bound(unsafe { Python::assume_attached() }));
        }
    }

    fn states_of<'a>(function: &'a Bound<'_, PyAny>) -> Option<&'a States> {
        // SAFETY: callers pass a living Function.
        unsafe { (*function.as_ptr().cast::<FunctionObject>()).state.as_ref() }
    }

    /// Removes the traces of the states that other calls have used; of those in use, when they are returned.
    pub fn forget_others(function: &Bound<'_, PyAny>) {
        let Some(states) = states_of(function) else { return };
        let mut forgotten = Vec::new();
        let mut inner = states.lock();
        inner.n_forgotten += 1;
        let n_forgotten = inner.n_forgotten;
        for state in inner.all.iter_mut().filter(|state| !state.is_in_use) {
            state.n_forgotten = n_forgotten;
            // SAFETY: no thread uses it while the list is locked.
            forgotten.push(unsafe { (*state.at).forget() });
        }
        // This call's own, which its caller has emptied.
        // SAFETY: a living Function that this thread calls.
        let own = unsafe { state_of(function.as_ptr().cast()) }.map_or(ptr::null_mut(), |state| &raw mut *state);
        inner.all.iter_mut().filter(|state| state.at == own).for_each(|state| state.n_forgotten = n_forgotten);
        drop(inner);
        drop(forgotten);
    }

    /// Makes the calls of other threads wait: there is no second state.
    pub fn keep_single(function: &Bound<'_, PyAny>) {
        if let Some(states) = states_of(function) {
            states.lock().is_single = true;
        }
    }
}

pub use held::{InUse, States, each, forget_others, keep_single, of, state_of};

impl FunctionState {
    /// Nothing traced yet, for the same body and options.
    #[cfg(Py_GIL_DISABLED)]
    fn another(&self, py: Python<'_>) -> Self {
        FunctionState::named(self.body.clone_ref(py), self.name.clone(), self.options)
    }

    /// Removes everything that was traced.
    pub fn forget(&mut self) -> impl Sized + use<> {
        (self.take(), std::mem::take(&mut self.derived))
    }
}
