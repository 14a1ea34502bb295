//! Observes the calls of a body while it is traced: a profile hook receives every Python function and every C function.
//!
//! Promises: an earlier profiler is still called, and is restored afterwards. A function is searched before it runs for the
//! first time, so a change that it makes itself counts as a change. Frames of libraries whose results depend only on their
//! arguments are skipped.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyFunction;

use super::attributes::{is_of_a_library, is_standard};
use super::modules_not_followed::{asked, is_answer, is_dropped, is_machinery, module_of};
use super::search::{Search, reads_fields};
use super::unwatched::{self, Kind};
use crate::convert::entry::entered;
use crate::convert::errors::is_final;
use crate::convert::refusals::{begin_tracing, end_tracing, outside_tracing};
use crate::convert::signals::quietly;

/// Whether the function of a frame can be read, and not only its code.
pub const SEES_FUNCTIONS: bool = cfg!(all(Py_3_11, not(PyPy), not(GraalPy), target_pointer_width = "64"));

/// One tracing that is under way.
pub struct Observer {
    search: *mut Search,
    /// Code objects already seen, and frames of libraries.
    codes: HashSet<usize>,
    /// Definitions of C functions already seen, for those whose caller matters.
    called: HashSet<(usize, usize)>,
    /// Code of the standard library that reads attributes of its arguments.
    readers: HashSet<usize>,
    /// Frames whose results may be answers, the innermost last, with their names.
    asked: Vec<(usize, String)>,
    /// Seen objects are kept alive, so that nothing takes their address.
    kept: Vec<Py<PyAny>>,
    /// Whether the body writes something.
    pub writes: bool,
}

/// The earlier profiler.
#[derive(Clone, Copy)]
struct Before {
    function: Option<ffi::Py_tracefunc>,
    object: *mut ffi::PyObject,
}

thread_local! {
    /// The traces of this thread, the innermost last.
    static OBSERVERS: RefCell<Vec<*mut Observer>> = const { RefCell::new(Vec::new()) };
    /// Whether the hook is in place.
    static IS_INSTALLED: Cell<bool> = const { Cell::new(false) };
    static BEFORE: Cell<Before> = const { Cell::new(Before { function: None, object: ptr::null_mut() }) };
}

/// The profiler of this thread, if its place in the thread's state is known.
fn installed() -> Option<Before> {
    #[cfg(all(Py_3_11, not(Py_3_12), not(PyPy), not(GraalPy), target_pointer_width = "64"))]
    {
        // The function is the ninth word of the state in 3.11, and its object the eleventh.
        // SAFETY: the state of this thread, which runs Python code, so it is living.
        unsafe {
            let state = ffi::PyThreadState_Get().cast::<*mut ffi::PyObject>();
            let function = *state.add(8);
            let function = std::mem::transmute::<*mut ffi::PyObject, Option<ffi::Py_tracefunc>>(function);
            Some(Before { function, object: *state.add(10) })
        }
    }
    #[cfg(not(all(Py_3_11, not(Py_3_12), not(PyPy), not(GraalPy), target_pointer_width = "64")))]
    None
}

/// The hook as an address.
fn hook_address() -> usize {
    hook as *const () as usize
}

/// Runs `f` and reports its calls to `search`; returns whether the body wrote something.
pub fn observed<T>(py: Python<'_>, search: &mut Search, f: impl FnOnce() -> T) -> (T, bool) {
    let mut observer = Observer {
        search,
        codes: HashSet::new(),
        called: HashSet::new(),
        readers: HashSet::new(),
        asked: Vec::new(),
        kept: Vec::new(),
        writes: false,
    };
    OBSERVERS.with_borrow_mut(|all| all.push(&raw mut observer));
    begin_tracing();
    let is_first = !IS_INSTALLED.replace(true);
    let mut before = Err(());
    // The earlier profiler is restored even if an allocation failed.
    let collects = is_first && set_collecting(py, false);
    let result = catch_unwind(AssertUnwindSafe(|| {
        before = if is_first { install(py) } else { Ok(None) };
        if before.is_err() {
            let text = "runs under a profiler that hides it from other profilers, so its calls are not watched";
            // SAFETY: the caller's, which nothing else uses meanwhile.
            unsafe { (*observer.search).note(Kind::Hidden, text.into()) };
        }
        f()
    }));
    end_tracing();
    OBSERVERS.with_borrow_mut(|all| all.pop());
    if is_first {
        IS_INSTALLED.set(false);
        if let Ok(before) = before {
            restore(py, before);
        }
    }
    if collects {
        set_collecting(py, true);
    }
    (result.unwrap_or_else(|panic| resume_unwind(panic)), observer.writes)
}

/// Switches the garbage collector on or off; returns whether it was on. Code that it runs (destructors, `gc.callbacks`) does
/// not belong to a body that happens to run then.
fn set_collecting(py: Python<'_>, on: bool) -> bool {
    let switch = || {
        let gc = py.import("gc")?;
        let was_on = gc.call_method0("isenabled")?.extract::<bool>()?;
        gc.call_method0(if on { "enable" } else { "disable" })?;
        Ok(was_on)
    };
    quietly(py, switch).unwrap_or(false)
}

/// Runs `f` unobserved: callbacks of replays are not constants.
pub fn unobserved<T>(f: impl FnOnce() -> T) -> T {
    let observers = OBSERVERS.take();
    let result = catch_unwind(AssertUnwindSafe(|| outside_tracing(f)));
    OBSERVERS.set(observers);
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

/// Installs the hook before the present profiler; returns that one, kept alive, or an error if it could not be called.
fn install(py: Python<'_>) -> Result<Option<Py<PyAny>>, ()> {
    let object = quietly(py, || py.import("sys")?.call_method0("getprofile")).filter(|object| !object.is_none());
    let before = match (installed(), &object) {
        (Some(before), _) => before,
        // A profiler written in C, whose place is not known.
        (None, Some(object)) if !object.is_callable() => return Err(()),
        // Through its Python object.
        (None, Some(object)) => Before { function: Some(call_python), object: object.as_ptr() },
        (None, None) => Before { function: None, object: ptr::null_mut() },
    };
    BEFORE.set(before);
    // SAFETY: under the GIL.
    unsafe { ffi::PyEval_SetProfile(Some(hook), ptr::null_mut()) };
    Ok(object.map(Bound::unbind))
}

/// Restores the earlier profiler, unless the body has installed another one.
fn restore(py: Python<'_>, object: Option<Py<PyAny>>) {
    let before = BEFORE.replace(Before { function: None, object: ptr::null_mut() });
    let is_ours = match installed() {
        Some(now) => now.function.map_or(0, |f| f as usize) == hook_address(),
        // Python does not show a hook that is written in C.
        None => quietly(py, || py.import("sys")?.call_method0("getprofile")).is_none_or(|shown| shown.is_none()),
    };
    if !is_ours {
        return;
    }
    if installed().is_some() {
        // SAFETY: under the GIL; the function and its object are the earlier ones, and they are kept alive.
        unsafe { ffi::PyEval_SetProfile(before.function, before.object) };
        return;
    }
    let object = object.unwrap_or_else(|| py.None());
    quietly(py, || py.import("sys")?.call_method1("setprofile", (object,)));
}

/// Calls a profiler written in Python.
unsafe extern "C" fn call_python(
    object: *mut ffi::PyObject,
    frame: *mut ffi::PyFrameObject,
    what: c_int,
    argument: *mut ffi::PyObject,
) -> c_int {
    // SAFETY: the interpreter passes living objects under its lock.
    entered(|py| unsafe {
        let event = match what {
            ffi::PyTrace_CALL => "call",
            ffi::PyTrace_RETURN => "return",
            ffi::PyTrace_C_CALL => "c_call",
            ffi::PyTrace_C_EXCEPTION => "c_exception",
            ffi::PyTrace_C_RETURN => "c_return",
            _ => return 0,
        };
        let frame = Bound::from_borrowed_ptr(py, frame.cast());
        let argument = Bound::from_borrowed_ptr_or_opt(py, argument);
        match Bound::from_borrowed_ptr(py, object).call1((frame, event, argument)) {
            Ok(_) => 0,
            Err(error) => {
                error.restore(py);
                -1
            }
        }
    })
}

unsafe extern "C" fn hook(
    _: *mut ffi::PyObject,
    frame: *mut ffi::PyFrameObject,
    what: c_int,
    argument: *mut ffi::PyObject,
) -> c_int {
    // SAFETY: the interpreter passes living objects under its lock, and runs no other hook meanwhile; the observers and
    // their searches are on the stack of this thread, below.
    entered(|py| unsafe {
        if matches!(what, ffi::PyTrace_CALL | ffi::PyTrace_C_CALL | ffi::PyTrace_RETURN) {
            let frame = Bound::from_borrowed_ptr(py, frame.cast());
            let mut interrupt = None;
            OBSERVERS.with_borrow(|all| {
                for &observer in all {
                    let observer = &mut *observer;
                    let seen = match what {
                        ffi::PyTrace_CALL => observer.python_call(&frame),
                        ffi::PyTrace_C_CALL => observer.c_call(&frame, &Bound::from_borrowed_ptr(py, argument)),
                        _ => {
                            observer.returned(&frame, Bound::from_borrowed_ptr_or_opt(py, argument));
                            Ok(())
                        }
                    };
                    match seen {
                        Ok(()) => {}
                        Err(error) if is_final(py, &error) => interrupt = Some(error),
                        // An object that cannot be searched is not watched.
                        Err(error) => {
                            let text = format!("runs code that a replay cannot watch: {error}");
                            (*observer.search).note(Kind::Hidden, text);
                        }
                    }
                }
            });
            if let Some(error) = interrupt {
                error.restore(py);
                return -1;
            }
        }
        let before = BEFORE.get();
        before.function.map_or(0, |function| function(before.object, frame, what, argument))
    })
}

/// The function of a frame, if its place in the frame is known.
fn function_of<'py>(frame: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    #[cfg(all(Py_3_11, not(PyPy), not(GraalPy), target_pointer_width = "64"))]
    {
        // In 3.11 the frame's record starts with the function; from 3.12 on it is the third word, and from 3.14 on the two
        // lowest bits of that word give the kind of reference count.
        let place = if cfg!(Py_3_12) { 2 } else { 0 };
        let tag = if cfg!(Py_3_14) { 3 } else { 0 };
        // SAFETY: a living frame that is being entered: its record follows the head and the frame before.
        unsafe {
            let record = *frame.as_ptr().add(1).cast::<*mut *mut ffi::PyObject>().add(1);
            let function = (*record.add(place)).map_addr(|at| at & !tag);
            let function = Bound::from_borrowed_ptr_or_opt(frame.py(), function)?;
            function.is_instance_of::<PyFunction>().then_some(function)
        }
    }
    #[cfg(not(all(Py_3_11, not(PyPy), not(GraalPy), target_pointer_width = "64")))]
    {
        let _ = frame;
        None
    }
}

/// The code of a frame.
fn code_of<'py>(frame: &Bound<'py, PyAny>) -> Bound<'py, PyAny> {
    // SAFETY: a living frame; the result is a reference of ours.
    unsafe { Bound::from_owned_ptr(frame.py(), ffi::PyFrame_GetCode(frame.as_ptr().cast()).cast()) }
}

/// The line of the body's own code that a frame runs for.
fn line(frame: &Bound<'_, PyAny>) -> String {
    let mut at = frame.clone();
    loop {
        let is_outside = module_of(&at).is_ok_and(|(_, name)| is_of_a_library(&name) || is_standard(at.py(), &name));
        match at.getattr("f_back") {
            Ok(next) if is_outside && !next.is_none() => at = next,
            _ => break,
        }
    }
    let place = || -> PyResult<String> {
        let file: String = at.getattr("f_code")?.getattr("co_filename")?.extract()?;
        Ok(format!("{file}:{}", at.getattr("f_lineno")?.extract::<u32>()?))
    };
    quietly(frame.py(), place).unwrap_or_else(|| "unknown line".into())
}

/// Whether machinery called the function of a frame, as `threading` notes its threads.
fn is_of_machinery(frame: &Bound<'_, PyAny>) -> PyResult<bool> {
    let caller = frame.getattr("f_back")?;
    Ok(!caller.is_none() && is_machinery(frame.py(), &module_of(&caller)?.1))
}

impl Observer {
    fn python_call(&mut self, frame: &Bound<'_, PyAny>) -> PyResult<()> {
        let code = code_of(frame);
        // SAFETY: the search outlives its observer.
        let search = unsafe { &mut *self.search };
        let function = function_of(frame);
        let is_new_code = self.codes.insert(code.as_ptr() as usize);
        if self.readers.contains(&(code.as_ptr() as usize)) {
            search.add_arguments(frame)?;
        }
        if !is_new_code && (search.is_inner(&code) || function.as_ref().is_none_or(|f| search.is_known(f))) {
            return Ok(());
        }
        self.kept.push(code.clone().unbind());
        let (globals, module) = module_of(frame)?;
        if is_of_a_library(&module) {
            return Ok(());
        }
        if is_machinery(frame.py(), &module) || module == "_weakrefset" && is_of_machinery(frame)? {
            let asked = asked(frame, &module, &code)?;
            self.asked.extend(asked.map(|name| (frame.as_ptr() as usize, name)));
            return Ok(());
        }
        if is_standard(frame.py(), &module) && reads_fields(&module, &code)? {
            self.readers.insert(code.as_ptr() as usize);
            search.add_arguments(frame)?;
        }
        match (function, globals) {
            (Some(function), _) if !search.is_inner(&code) => search.executed(&function),
            (function, Some(globals)) => {
                if function.is_none() && !search.is_inner(&code) && code.getattr("co_freevars")?.len()? > 0 {
                    let name: String = code.getattr("co_name")?.extract()?;
                    search.note(
                        Kind::Hidden,
                        format!("calls {name}(), whose closure a replay cannot watch ({})", line(frame)),
                    );
                }
                search.executed((code, globals).into_pyobject(frame.py())?.as_any())
            }
            _ => Ok(()),
        }
    }

    /// A frame that is being left, without a result if it raised.
    fn returned(&mut self, frame: &Bound<'_, PyAny>, result: Option<Bound<'_, PyAny>>) {
        let Some((_, name)) = self.asked.pop_if(|(at, _)| *at == frame.as_ptr() as usize) else { return };
        let Some(result) = result else { return };
        // SAFETY: the search outlives its observer.
        let search = unsafe { &mut *self.search };
        if !is_answer(&name, &result) {
            search.reach(&result);
        } else if let Some(text) = Kind::Hidden.text(&name) {
            search.note(Kind::Hidden, format!("{text} ({})", line(frame)));
        }
    }

    fn c_call(&mut self, frame: &Bound<'_, PyAny>, function: &Bound<'_, PyAny>) -> PyResult<()> {
        // SAFETY: a living function of C, whose definition is not freed.
        let definition = unsafe {
            if ffi::PyCFunction_Check(function.as_ptr()) == 0 {
                return Ok(());
            }
            (*function.as_ptr().cast::<ffi::PyCFunctionObject>()).m_ml as usize
        };
        // SAFETY: the search outlives its observer.
        unsafe { (*self.search).add_method(function) }?;
        // SAFETY: a method's class, and so what it does, may differ for one definition.
        let owner = unsafe {
            let owner = (*function.as_ptr().cast::<ffi::PyCFunctionObject>()).m_self;
            if owner.is_null() { 0 } else { ffi::Py_TYPE(owner) as usize }
        };
        if self.called.contains(&(definition, owner)) {
            return Ok(());
        }
        let (kind, name) = unwatched::of_called(function);
        if kind == Kind::Pure {
            self.called.insert((definition, owner));
            return Ok(());
        }
        // The state of a lock matters if code of the body reads it.
        let is_of_a_lock = name.starts_with("lock.") || name.starts_with("RLock.");
        let is_read = || -> PyResult<bool> {
            Ok(!(is_standard(frame.py(), &module_of(frame)?.1) || name.contains("acquire") && is_dropped(frame)?))
        };
        if is_of_a_lock && !is_read()? {
            return Ok(());
        }
        self.called.insert((definition, owner));
        if kind == Kind::Abstract {
            // SAFETY: as above.
            unsafe { (*self.search).watch_called(frame.py(), "_abc", "get_cache_token") };
            return Ok(());
        }
        let (_, module) = module_of(frame)?;
        if is_machinery(frame.py(), &module) {
            self.called.remove(&(definition, owner));
            self.writes = true;
            return Ok(());
        }
        self.kept.push(function.clone().unbind());
        match kind.text(&name) {
            None => self.writes = true,
            // SAFETY: as above.
            Some(text) => unsafe { (*self.search).note(kind, format!("{text} ({})", line(frame))) },
        }
        Ok(())
    }
}
