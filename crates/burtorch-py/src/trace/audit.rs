//! Audits: if a body reads unwatched sources, it is traced again beside its traces, and compared.
//!
//! In words: the first audit is at the second call, and the next ones whenever the number of calls has doubled, unless
//! that would take more than 5 ms and one percent of the time spent in calls; then it waits for the next doubling.
//!
//! Promises: an audit never runs a body that reads files, draws random numbers, writes, or changes its own inputs.
//! A difference replaces all traces and is reported.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use burtorch_core::Program;
use pyo3::prelude::*;

use super::arguments::Arguments;
use super::calls::{add, record_beside};
use super::keywords;
use super::object::Call;
use super::record::Traced;
use super::search::Unwatched;
use super::state::{FunctionState, Options, Path};
use crate::convert::errors::{derived, warning};

/// The time limit of all audits, besides one percent of the time spent in calls.
const FREE: Duration = Duration::from_millis(5);
/// The time of a call besides its replay.
const CALL: Duration = Duration::from_nanos(100);

/// Whether functions are audited at all.
static WANTED: AtomicBool = AtomicBool::new(true);

/// The schedule of a function's audits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Audit {
    /// Whether a source is unwatched.
    is_planned: bool,
    /// The reason why audits are never made although a source is unwatched.
    is_refused: bool,
    /// The number of the call of the last audit; the trace was the first.
    calls: u64,
    /// The number of the last call at which an audit agreed.
    agreed: u64,
    /// The time of tracing.
    takes: Duration,
    /// The total time of audits.
    spent: Duration,
    /// The total time of calls.
    in_calls: Duration,
}

impl Audit {
    /// The schedule after a trace of this duration; whether it reads unwatched sources, and may run again.
    pub fn plan(&mut self, options: &Options, reads: bool, may_run_again: bool, took: Duration) {
        self.is_refused |= reads && !may_run_again;
        self.is_planned = reads && options.audit && !self.is_refused;
        self.takes = took;
        (self.calls, self.agreed) = (1, 1);
    }

    /// Calls until the next audit.
    pub fn next(&self) -> Option<u64> {
        self.is_planned.then(|| self.calls.saturating_sub(1))
    }

    /// Whether there is time for an audit now, at a call of this duration.
    fn has_time(&mut self, a_call: Duration) -> bool {
        let new = u32::try_from(self.calls).unwrap_or(u32::MAX);
        self.in_calls = self.in_calls.saturating_add(a_call.saturating_mul(new));
        self.calls = self.calls.saturating_mul(2);
        self.spent + self.takes <= FREE + self.in_calls / 100
    }
}

/// Reports the unwatched sources of a trace, each once.
pub fn say_unwatched(call: &Call<'_>, unwatched: &[Unwatched]) -> PyResult<()> {
    let (name, news) = call.with(|state| {
        let news: Vec<_> = unwatched.iter().filter(|found| !state.unwatched.contains(found)).cloned().collect();
        state.unwatched.extend(news.iter().cloned());
        (state.name.clone(), if state.options.is_quiet { Vec::new() } else { news })
    })?;
    for found in news {
        let message = format!(
            "{name} {}: a replay uses the value found at the trace; pass it as an argument, make it a bt.parameter, or \
             call forget() after a change",
            found.text
        );
        warning(call.py(), "StaleRiskWarning", message)?;
    }
    Ok(())
}

/// Whether an audit is due at this call; counts it.
pub fn is_due(call: &Call<'_>) -> PyResult<bool> {
    call.with(|state| {
        let due = state.watch.audit_in == Some(0);
        if let Some(left) = &mut state.watch.audit_in {
            *left = left.saturating_sub(1);
        }
        due
    })
}

/// Audits the path that is right at these arguments, which is the first of the state; returns whether it was right.
pub fn at_call(call: &Call<'_>, arguments: &Arguments<'_>) -> PyResult<bool> {
    let has_time = has_time(call, |state| {
        let path = state.variants.first_mut().and_then(|variant| variant.paths.first_mut());
        // Primitives run Python code, which must not happen while the state is in use.
        if let Some(path) = path.filter(|path| !path.program.calls_primitives()) {
            let _ = path.attempt(&arguments.numbers);
        }
    })?;
    Ok(!has_time || compare(call, arguments)?)
}

/// Whether there is time for an audit at a call that repeats `attempt`.
pub fn has_time(call: &Call<'_>, attempt: impl FnOnce(&mut FunctionState)) -> PyResult<bool> {
    call.with(|state| {
        let started = Instant::now();
        attempt(state);
        let has_time = state.audit.has_time(started.elapsed() + CALL) && WANTED.load(Ordering::Relaxed);
        state.watch.audit_in = state.audit.next();
        has_time
    })
}

/// Makes a second trace and compares it with the first path of the state; returns whether they agree.
fn compare(call: &Call<'_>, arguments: &Arguments<'_>) -> PyResult<bool> {
    compared(
        call,
        || record_beside(call, arguments),
        |state, now| difference(state.variants.first()?.paths.first()?, now),
        |traced, took| add(call, arguments, traced, took),
    )
}

/// Makes a second trace with `record` and compares it with `difference`; returns whether they agree. If not, `add` replaces
/// all traces by the new one.
pub fn compared<P>(
    call: &Call<'_>,
    record: impl FnOnce() -> PyResult<Traced<P>>,
    difference: impl FnOnce(&FunctionState, &P) -> Option<String>,
    add: impl FnOnce(Traced<P>, Duration) -> PyResult<()>,
) -> PyResult<bool> {
    let started = Instant::now();
    let traced = record()?;
    let took = started.elapsed();
    let difference = call.with(|state| {
        state.audit.spent += took;
        let found = difference(state, &traced.path);
        if found.is_none() {
            state.audit.agreed = state.audit.calls;
        }
        found.map(|what| (what, state.audit.agreed, state.name.clone()))
    })?;
    let Some((what, since, name)) = difference else { return Ok(true) };
    drop(call.with(|state| {
        state.stats.invalidated += 1;
        state.take()
    })?);
    add(traced, took)?;
    let message = format!(
        "{name} was traced with values that have changed: {what}; results since call {} may be wrong, and it has been traced \
         again. Pass them as arguments, or make each a bt.parameter",
        since + 1
    );
    warning(call.py(), "StaleFunctionWarning", message)?;
    Ok(false)
}

/// The difference of two traces of one function; `None` if they agree in every bit.
fn difference(before: &Path, now: &Path) -> Option<String> {
    let parameters = |path: &Path| path.parameters.iter().map(|p| p.as_ptr() as usize).collect::<Vec<_>>();
    if parameters(before) != parameters(now) {
        return Some("it reads other parameters".into());
    }
    if format!("{:?}", before.results) != format!("{:?}", now.results) && before.results.len() != now.results.len() {
        return Some(format!("it returns {} numbers instead of {}", now.results.len(), before.results.len()));
    }
    of_programs(&before.program, &now.program)
}

fn of_programs(before: &Program, now: &Program) -> Option<String> {
    let ((_, a), (_, b)) = (before.clone().into_parts(), now.clone().into_parts());
    if a.nodes.len() != b.nodes.len() {
        return Some(format!("it has {} operations instead of {}", b.nodes.len(), a.nodes.len()));
    }
    if let Some((x, y)) = a.constants.iter().zip(&b.constants).find(|(x, y)| x.to_bits() != y.to_bits()) {
        return Some(format!("a constant is {y:?} instead of {x:?}"));
    }
    let is_same = a.constants.len() == b.constants.len()
        && a.nodes == b.nodes
        && a.lists == b.lists
        && a.outputs == b.outputs
        && a.guards == b.guards
        && a.calls == b.calls;
    (!is_same).then(|| "its operations differ".into())
}

/// The inputs of a new trace: for each path the arguments of its trace.
pub fn recorded_at<'py>(call: &Call<'py>, only_first: bool) -> PyResult<Vec<Arguments<'py>>> {
    let py = call.py();
    call.with(|state| {
        let variants = state.variants.iter().take(if only_first { 1 } else { usize::MAX });
        let paths = variants.flat_map(|v| v.paths.iter().rev().map(move |path| (v, path)));
        let traced = paths.filter(|(variant, path)| path.numbers.len() == variant.arguments.len());
        traced
            .map(|(variant, path)| Arguments {
                tree: variant.arguments.copy(py),
                numbers: path.numbers.clone(),
                statics: variant.statics.as_ref().map(|statics| statics.bind(py).clone()),
            })
            .collect()
    })
}

/// Traces changed variants again and audits those with unwatched sources, of the selected variants; returns whether all were right.
pub fn refresh(call: &Call<'_>, all: &[Arguments<'_>]) -> PyResult<bool> {
    let py = call.py();
    let forgotten = call.with(|state| state.look(py))?;
    let mut is_right = forgotten.is_none();
    drop(forgotten);
    let audits = call.with(|state| !state.unwatched.is_empty() && !state.audit.is_refused)?;
    for arguments in all {
        // Traces the body if no trace is left.
        super::calls::with_path(call, arguments, |_| ())?;
        is_right &= !audits || compare(call, arguments)?;
    }
    if audits {
        is_right &= super::array_calls::audit(call)?;
    }
    Ok(is_right)
}

/// `f.audit()`
pub fn audit<'py>(call: Call<'py>) -> PyResult<Bound<'py, PyAny>> {
    let py = call.py();
    keywords::check_none(&call)?;
    let refused = call.with(|state| {
        let of = state.unwatched.iter().find(|found| !found.kind.may_run_again());
        state.audit.is_refused.then(|| (state.name.clone(), of.map(|found| found.text.clone())))
    })?;
    if let Some((name, why)) = refused {
        let why = why.unwrap_or_else(|| "writes, or changes its own inputs".into());
        let message = format!("{name} cannot be audited, because running it again may have side effects: it {why}");
        return Err(derived(py, "TraceError", message));
    }
    let is_right = refresh(&call, &recorded_at(&call, false)?)?;
    Ok(is_right.into_pyobject(py)?.to_owned().into_any())
}

/// Settings for all of burtorch: `bt.config`.
///
/// Attributes:
///     audit: whether traced functions with unwatched sources are traced again from time to time, and
///         compared.
///
/// Example:
///     >>> import burtorch as bt
///     >>> bt.config.audit
///     True
#[pyclass(frozen, name = "Config", module = "burtorch")]
pub struct PyConfig;

#[pymethods]
impl PyConfig {
    #[getter]
    fn audit(&self) -> bool {
        WANTED.load(Ordering::Relaxed)
    }

    #[setter]
    fn set_audit(&self, wanted: bool) {
        WANTED.store(wanted, Ordering::Relaxed);
    }

    fn __repr__(&self) -> String {
        format!("config(audit={})", if self.audit() { "True" } else { "False" })
    }
}

/// Adds the settings to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyConfig>()?;
    m.add("config", Bound::new(m.py(), PyConfig)?)
}
