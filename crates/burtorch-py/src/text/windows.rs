//! Running text for Python: training windows, and text generation by a GPT.

use burtorch_core::text::{Sampling, TextWindows, continue_text};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use super::zeros;
use crate::convert::arguments::sizes;
use crate::convert::buffer::TokenIdArray;
use crate::convert::errors::{IntoPython, to_python};
use crate::convert::exclusive::Guarded;
use crate::convert::numbers::argument_number;
use crate::convert::signals::{Poll, asked};
use crate::nn::gpt::PyGpt;
use crate::params::with_kernels;

/// A text as windows of consecutive symbols and the symbols one position later; its last part held out.
///
/// Args:
///     text: characters; their set, ascending, is the vocabulary.
///     context: the number of symbols in a window.
///     holdout: the share at the end that is held out, at least 0 and below 1.
///     seed: determines all batches.
///
/// Two bytes of memory per character.
///
/// Raises:
///     ValueError: a text that is too short for the context, or numbers out of range.
///
/// Example:
///     >>> import burtorch as bt
///     >>> data = bt.text.TextWindows("to be or not to be", context=4, holdout=0.0)
///     >>> data.vocabulary, data.n_train
///     (' benort', 4)
///     >>> x, y = data.train(0, 1)
///     >>> x.tolist(), y.tolist()
///     ([[6, 4, 0, 1]], [[4, 0, 1, 2]])
#[pyclass(frozen, name = "TextWindows", module = "burtorch.text")]
pub struct PyTextWindows {
    windows: Guarded<TextWindows>,
    vocabulary: String,
    context: usize,
    holdout: f64,
    seed: u64,
    n_train: usize,
    n_held_out: usize,
}

#[pymethods]
impl PyTextWindows {
    #[new]
    #[pyo3(signature = (text, context=8, holdout=0.1, seed=0))]
    fn new(
        py: Python<'_>,
        text: &str,
        #[pyo3(from_py_with = sizes::context)] context: usize,
        #[pyo3(from_py_with = argument_number)] holdout: f64,
        #[pyo3(from_py_with = sizes::seed)] seed: u64,
    ) -> PyResult<Self> {
        let windows = py.detach(|| asked(|| TextWindows::new(text, context, holdout, seed))).or_raise(py)?;
        Ok(PyTextWindows {
            vocabulary: windows.symbols().iter().collect(),
            n_train: windows.n_train(),
            n_held_out: windows.n_held_out(),
            windows: Guarded::new(windows, "these windows"),
            context,
            holdout,
            seed,
        })
    }

    /// The symbols as one string: character k is symbol k.
    #[getter]
    fn vocabulary(&self) -> &str {
        &self.vocabulary
    }

    /// The number of symbols in a window.
    #[getter]
    fn context(&self) -> usize {
        self.context
    }

    /// The number of non-overlapping training windows; batches are drawn from all positions.
    #[getter]
    fn n_train(&self) -> usize {
        self.n_train
    }

    /// The number of non-overlapping held-out windows.
    #[getter]
    fn n_heldout(&self) -> usize {
        self.n_held_out
    }

    /// The next `size` random training windows, with replacement: two arrays of shape (size, context).
    ///
    /// The seed of the data determines the sequence of batches. With a sampling rule of `burtorch.opt`, such as
    /// `Nice(8)`, instead of a size, the batch is the one that it draws in this round among the `n_train` non-overlapping
    /// windows, a function of `seed` and `round` only. Raises ValueError for a size of 0, and for a rule
    /// that does not fit or draws no window.
    #[pyo3(signature = (size, *, seed=0, round=0))]
    fn batch(
        &self,
        size: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = sizes::seed)] seed: u64,
        #[pyo3(from_py_with = sizes::round)] round: u64,
    ) -> PyResult<(TokenIdArray, TokenIdArray)> {
        let py = size.py();
        let n_train = self.n_train;
        let Some(chosen) = crate::opt::drawn(size, n_train, seed, round)? else {
            return self.read(py, sizes::size(size)?, |windows, x, y| windows.batch(x, y));
        };
        self.read(py, chosen.len(), |windows, x, y| {
            let context = windows.context();
            let rows = x.chunks_exact_mut(context).zip(y.chunks_exact_mut(context));
            chosen.iter().zip(rows).try_for_each(|(&i, (x, y))| windows.train(i as usize, x, y))
        })
    }

    /// Training windows `start` to `stop`. Raises ValueError outside `0..n_train`.
    fn train(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = sizes::start)] start: usize,
        #[pyo3(from_py_with = sizes::stop)] stop: usize,
    ) -> PyResult<(TokenIdArray, TokenIdArray)> {
        self.read(py, stop.saturating_sub(start), |windows, x, y| windows.train(start, x, y))
    }

    /// Held-out windows `start` to `stop`. Raises ValueError outside `0..n_heldout`.
    fn heldout(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = sizes::start)] start: usize,
        #[pyo3(from_py_with = sizes::stop)] stop: usize,
    ) -> PyResult<(TokenIdArray, TokenIdArray)> {
        self.read(py, stop.saturating_sub(start), |windows, x, y| windows.held_out(start, x, y))
    }

    /// The state of the batches, in the checkpoint format, with a fingerprint of the data.
    fn save_state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.windows.with(py, |windows| asked(|| windows.to_bytes()))?.or_raise(py)?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Continue with the batches that followed save_state.
    ///
    /// Raises FormatError for a damaged state, or one of another text, context or hold-out; then nothing has changed.
    fn load_state(&self, py: Python<'_>, state: &[u8]) -> PyResult<()> {
        self.windows.with(py, |windows| asked(|| windows.load_bytes(state)))?.or_raise(py)
    }

    /// The arguments that make it again, and the state of its batches.
    fn __reduce__<'py>(
        slf: &Bound<'py, Self>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>, Bound<'py, PyBytes>)> {
        let (py, this) = (slf.py(), slf.get());
        let parts = this.windows.with(py, |windows| asked(|| Ok((windows.text()?, windows.to_bytes()?))))?;
        let (text, state) = parts.or_raise(py)?;
        let arguments = (text, this.context, this.holdout, this.seed).into_pyobject(py)?;
        Ok((slf.get_type().into_any(), arguments, PyBytes::new(py, &state)))
    }

    fn __setstate__(&self, py: Python<'_>, state: &[u8]) -> PyResult<()> {
        self.load_state(py, state)
    }

    fn __repr__(&self) -> String {
        format!("TextWindows(n_train={}, n_heldout={}, context={})", self.n_train, self.n_held_out, self.context)
    }
}

impl PyTextWindows {
    fn read(
        &self,
        py: Python<'_>,
        n: usize,
        read: impl FnOnce(&mut TextWindows, &mut [u32], &mut [u32]) -> burtorch_core::Result<()>,
    ) -> PyResult<(TokenIdArray, TokenIdArray)> {
        if n == 0 {
            return Err(PyValueError::new_err("a batch needs at least one window"));
        }
        let len = n.saturating_mul(self.context);
        let (mut x, mut y) = (zeros(len)?, zeros(len)?);
        self.windows.with(py, |windows| asked(|| read(windows, &mut x, &mut y)))?.or_raise(py)?;
        Ok((TokenIdArray::rows(x, self.context), TokenIdArray::rows(y, self.context)))
    }
}

/// `prompt` and `n` more characters, each drawn from a GPT's distribution given the previous `context` characters.
///
/// Args:
///     model: a GPT.
///     vocabulary: its symbols as one string, ascending, such as `TextWindows.vocabulary`.
///     n: the number of characters.
///     prompt: the beginning of the text, at least one character of the vocabulary.
///     seed: determines all characters.
///     temperature: a divisor of the logits; near 0 only the likeliest symbol is chosen, at 0 always.
///
/// Raises:
///     ValueError: a vocabulary whose size differs from the model's, an empty prompt or one with unknown symbols, a
///         negative temperature.
///
/// Example:
///     >>> import burtorch as bt
///     >>> model = bt.nn.GPT(bt.Parameters(), vocab=3, context=4, layers=1, heads=1, width=4)
///     >>> len(bt.text.continue_text(model, "abc", 10, prompt="ab"))
///     12
#[pyfunction(name = "continue_text")]
#[pyo3(signature = (model, vocabulary, n, prompt="\n", seed=0, temperature=1.0))]
fn continue_from(
    model: &Bound<'_, PyGpt>,
    vocabulary: &str,
    #[pyo3(from_py_with = sizes::n)] n: usize,
    prompt: &str,
    #[pyo3(from_py_with = sizes::seed)] seed: u64,
    #[pyo3(from_py_with = argument_number)] temperature: f64,
) -> PyResult<String> {
    let py = model.py();
    let symbols: Vec<char> = vocabulary.chars().collect();
    let sampling = Sampling { seed, temperature, prompt, ..Sampling::default() };
    let model = model.get();
    let mut poll = Poll::new();
    let text = model.params.get().with(py, |params| {
        let mut stop = || poll.stop();
        with_kernels!(params, p => continue_text(&model.model, p, &symbols, n, sampling, Some(&mut stop)))
    })?;
    text.map_err(|error| poll.raised().unwrap_or_else(|| to_python(py, error)))
}

/// Adds class and function to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyTextWindows>()?;
    m.add_function(wrap_pyfunction!(continue_from, m)?)
}
