//! Words for Python: training contexts, and words from a model.

pub mod windows;

use burtorch_core::text::{self, Sampling, Vocabulary};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::convert::arguments::sizes;
use crate::convert::buffer::TokenIdArray;
use crate::convert::errors::{IntoPython, to_python};
use crate::convert::exclusive::Guarded;
use crate::convert::numbers::argument_number;
use crate::convert::signals::{Poll, asked, read_at_length};
use crate::nn::PyCharMlp;
use crate::params::with_kernels;

/// The end mark of a vocabulary.
const END: char = '\n';

/// All positions of a list of words: the preceding symbols and the symbol there; some held out.
///
/// A word of n characters has n + 1 positions, the last of which is its end mark, symbol 0, written "\n". A word is preceded
/// by end marks.
///
/// Args:
///     words: strings; empty ones are ignored.
///     context: the number of symbols before each position.
///     holdout: the share of positions that is held out, at least 0 and below 1.
///     seed: determines the held-out positions and all batches.
///
/// Two bytes of memory per symbol, whatever the context.
///
/// Raises:
///     ValueError: no words, a word with a line break, or numbers out of range.
///     TypeError: a word that is not a string.
///
/// Example:
///     >>> import burtorch as bt
///     >>> data = bt.text.WordContexts(["ab", "b"], context=2, holdout=0.0)
///     >>> data.vocabulary, data.n_train
///     ('\nab', 5)
///     >>> x, y = data.train(0, 3)
///     >>> x.tolist(), y.tolist()
///     ([[0, 0], [0, 1], [1, 2]], [1, 2, 0])
#[pyclass(frozen, name = "WordContexts", module = "burtorch.text")]
pub struct PyWordContexts {
    contexts: Guarded<text::WordContexts>,
    vocabulary: String,
    context: usize,
    holdout: f64,
    seed: u64,
    n_train: usize,
    n_held_out: usize,
}

/// A batch: contexts of shape (n, context) and token ids of shape (n,).
type Places = (TokenIdArray, TokenIdArray);

#[pymethods]
impl PyWordContexts {
    #[new]
    #[pyo3(signature = (words, context=16, holdout=0.1, seed=0))]
    fn new(
        words: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = sizes::context)] context: usize,
        #[pyo3(from_py_with = argument_number)] holdout: f64,
        #[pyo3(from_py_with = sizes::seed)] seed: u64,
    ) -> PyResult<Self> {
        let py = words.py();
        if words.is_instance_of::<pyo3::types::PyString>() {
            return Err(PyTypeError::new_err("words must be a sequence of strings, not one string; use text.split()"));
        }
        let words = read_at_length(words.try_iter()?, |word| word.extract::<String>())?;
        if let Some(word) = words.iter().find(|word| word.contains(END)) {
            return Err(PyValueError::new_err(format!("a word cannot contain a line break, found {word:?}")));
        }
        if words.iter().all(String::is_empty) {
            let found = if words.is_empty() { "none" } else { "only empty ones" };
            return Err(PyValueError::new_err(format!("words must contain one that is not empty, found {found}")));
        }
        let of_words = || text::WordContexts::new(words.iter().map(String::as_str), context, holdout, seed);
        let contexts = py.detach(|| asked(of_words)).or_raise(py)?;
        let vocabulary = std::iter::once(&END).chain(contexts.vocabulary().symbols()).collect();
        let (n_train, n_held_out) = (contexts.n_train(), contexts.n_held_out());
        Ok(PyWordContexts {
            contexts: Guarded::new(contexts, "these contexts"),
            vocabulary,
            context,
            holdout,
            seed,
            n_train,
            n_held_out,
        })
    }

    /// The symbols as one string: character k is symbol k, "\n" first.
    #[getter]
    fn vocabulary(&self) -> &str {
        &self.vocabulary
    }

    /// The number of symbols before each position.
    #[getter]
    fn context(&self) -> usize {
        self.context
    }

    /// The number of training positions.
    #[getter]
    fn n_train(&self) -> usize {
        self.n_train
    }

    /// The number of held-out positions.
    #[getter]
    fn n_heldout(&self) -> usize {
        self.n_held_out
    }

    /// The next `size` random training positions, with replacement: contexts (size, context) and symbols (size,).
    ///
    /// The seed of the data determines the sequence of batches. With a sampling rule of `burtorch.opt`, such as
    /// `Reshuffle(64)`, instead of a size, the batch is the one that it draws in this round, a function of `seed`
    /// and `round` only. Raises ValueError for a size of 0, and for a rule that does not fit or draws no position.
    ///
    /// Example:
    ///     >>> import burtorch as bt
    ///     >>> data = bt.text.WordContexts(["ab", "b"], context=2, holdout=0.0)
    ///     >>> shuffled = bt.opt.Reshuffle(3)
    ///     >>> parts = [data.batch(shuffled, round=k)[1].tolist() for k in range(2)]
    ///     >>> sorted(parts[0] + parts[1]) == sorted(data.train(0, 5)[1].tolist())
    ///     True
    #[pyo3(signature = (size, *, seed=0, round=0))]
    fn batch(
        &self,
        size: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = sizes::seed)] seed: u64,
        #[pyo3(from_py_with = sizes::round)] round: u64,
    ) -> PyResult<Places> {
        let py = size.py();
        let Some(chosen) = crate::opt::drawn(size, self.n_train, seed, round)? else {
            return self.places(py, sizes::size(size)?, |contexts, x, y| contexts.batch(x, y));
        };
        let context = self.context;
        self.places(py, chosen.len(), |contexts, x, y| {
            let rows = x.chunks_exact_mut(context).zip(y.chunks_exact_mut(1));
            chosen.iter().zip(rows).try_for_each(|(&i, (x, y))| contexts.train(i as usize, x, y))
        })
    }

    /// Training positions `start` to `stop`, in a fixed order. Raises ValueError outside `0..n_train`.
    fn train(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = sizes::start)] start: usize,
        #[pyo3(from_py_with = sizes::stop)] stop: usize,
    ) -> PyResult<Places> {
        let n = length(start, stop, self.n_train)?;
        self.places(py, n, |contexts, x, y| contexts.train(start, x, y))
    }

    /// Held-out positions `start` to `stop`, in a fixed order. Raises ValueError outside `0..n_heldout`.
    fn heldout(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = sizes::start)] start: usize,
        #[pyo3(from_py_with = sizes::stop)] stop: usize,
    ) -> PyResult<Places> {
        let n = length(start, stop, self.n_held_out)?;
        self.places(py, n, |contexts, x, y| contexts.held_out(start, x, y))
    }

    /// The state of the batches, in the checkpoint format, with a fingerprint of the data.
    fn save_state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.contexts.with(py, |contexts| asked(|| contexts.to_bytes()))?.or_raise(py)?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Continue with the batches that followed save_state.
    ///
    /// Raises FormatError for a damaged state, or one of other words, another context or hold-out; then nothing has
    /// changed.
    fn load_state(&self, py: Python<'_>, state: &[u8]) -> PyResult<()> {
        self.contexts.with(py, |contexts| asked(|| contexts.load_bytes(state)))?.or_raise(py)
    }

    /// The arguments that make it again, and the state of its batches.
    fn __reduce__<'py>(
        slf: &Bound<'py, Self>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>, Bound<'py, PyBytes>)> {
        let (py, this) = (slf.py(), slf.get());
        let parts = this.contexts.with(py, |contexts| asked(|| Ok((contexts.words()?, contexts.to_bytes()?))))?;
        let (words, state) = parts.or_raise(py)?;
        let arguments = (words, this.context, this.holdout, this.seed).into_pyobject(py)?;
        Ok((slf.get_type().into_any(), arguments, PyBytes::new(py, &state)))
    }

    fn __setstate__(&self, py: Python<'_>, state: &[u8]) -> PyResult<()> {
        self.load_state(py, state)
    }

    fn __repr__(&self) -> String {
        format!("WordContexts(n_train={}, n_heldout={}, context={})", self.n_train, self.n_held_out, self.context)
    }
}

impl PyWordContexts {
    fn places(
        &self,
        py: Python<'_>,
        n: usize,
        read: impl FnOnce(&mut text::WordContexts, &mut [u32], &mut [u32]) -> burtorch_core::Result<()>,
    ) -> PyResult<Places> {
        if n == 0 {
            return Err(PyValueError::new_err("a batch needs at least one position"));
        }
        let n_symbols = n.saturating_mul(self.context);
        let (mut x, mut y) = (zeros(n_symbols)?, zeros(n)?);
        self.contexts.with(py, |contexts| asked(|| read(contexts, &mut x, &mut y)))?.or_raise(py)?;
        Ok((TokenIdArray::rows(x, self.context), TokenIdArray::row(y)))
    }
}

fn zeros(n: usize) -> PyResult<Vec<u32>> {
    let mut symbols = Vec::new();
    symbols
        .try_reserve_exact(n)
        .map_err(|_| pyo3::exceptions::PyMemoryError::new_err(format!("no memory for {n} symbols; take fewer")))?;
    symbols.resize(n, 0);
    Ok(symbols)
}

fn length(start: usize, stop: usize, have: usize) -> PyResult<usize> {
    if start < stop && stop <= have {
        return Ok(stop - start);
    }
    Err(PyValueError::new_err(format!("positions must satisfy start < stop <= {have}, found {start} and {stop}")))
}

/// Sample words from a character model, symbol by symbol until the end mark, at most 100 characters.
///
/// Args:
///     model: a CharMLP.
///     vocabulary: its symbols as one string, "\n" first, the others ascending, such as `WordContexts.vocabulary`.
///     n: the number of words.
///     seed: determines all words.
///     temperature: a divisor of the logits; near 0 only the likeliest symbol is chosen, at 0 always.
///     prompt: the beginning of every word.
///
/// Raises:
///     ValueError: a vocabulary whose size differs from the model's, a prompt with unknown symbols, a negative temperature.
///
/// Example:
///     >>> import burtorch as bt
///     >>> model = bt.nn.CharMLP(bt.Parameters(), vocab=3, context=4, embedding=2, hidden=4)
///     >>> words = bt.text.sample(model, "\nab", 2, prompt="a")
///     >>> [word[0] for word in words]
///     ['a', 'a']
#[pyfunction]
#[pyo3(signature = (model, vocabulary, n, seed=0, temperature=1.0, prompt=""))]
fn sample(
    model: &Bound<'_, PyCharMlp>,
    vocabulary: &str,
    #[pyo3(from_py_with = sizes::n)] n: usize,
    #[pyo3(from_py_with = sizes::seed)] seed: u64,
    #[pyo3(from_py_with = argument_number)] temperature: f64,
    prompt: &str,
) -> PyResult<Vec<String>> {
    let py = model.py();
    let mut symbols = vocabulary.chars();
    if symbols.next() != Some(END) {
        return Err(PyValueError::new_err("a vocabulary begins with the end mark \"\\n\""));
    }
    let vocabulary = Vocabulary::of_symbols(symbols.collect()).or_raise(py)?;
    let sampling = Sampling { seed, temperature, prompt, ..Sampling::default() };
    let model = model.get();
    let mut poll = Poll::new();
    let words = model.params.get().with(py, |params| {
        let mut stop = || poll.stop();
        with_kernels!(params, p => text::sample(&model.model, p, &vocabulary, n, sampling, Some(&mut stop)))
    })?;
    words.map_err(|error| poll.raised().unwrap_or_else(|| to_python(py, error)))
}

/// Adds the classes to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyWordContexts>()?;
    m.add_function(wrap_pyfunction!(sample, m)?)
}
