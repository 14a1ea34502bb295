//! `TokenIds`: the integers of one sample, or of each sample of a group, in a model that Python code computes.
//!
//! Promises: Python code that uses an id as an integer gets that of every sample, or a ValueError that tells what to do.

use std::borrow::Cow;
use std::ops::Range;

use pyo3::basic::CompareOp;
use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PySlice;

use crate::convert::buffer::{read_token_ids, token_id};
use crate::convert::errors::numpy;
use crate::convert::numbers::{agreed, is_text, number_of};
use crate::graph::PyGraph;

/// The integers of one sample: token ids, or a class.
///
/// An Oracle passes them to a model if the batch contains integers. On a graph of lanes each lane has its own sample and
/// its own numbers, and a model uses them like those of one sample. `ids[k]` is number k, `ids[j:k]` several.
///
/// A single id is compared, hashed, used as an index and converted like an integer, where all samples agree; if they differ, that is a
/// ValueError.
///
/// Example:
///     >>> import burtorch as bt
///     >>> params = bt.Parameters(dtype="float64")
///     >>> table = params.tensor((3, 2), init=1.0)
///     >>> def model(ids, label):
///     ...     return bt.gather(table, ids[0:2]).sum()
///     >>> bt.Oracle(model, params=params).loss([[0, 1, 2]], [0])
///     4.0
#[pyclass(frozen, name = "TokenIds", module = "burtorch", sequence)]
pub struct PyTokenIds {
    /// All numbers of lane 0, then of lane 1, ...
    numbers: Vec<u32>,
    lanes: usize,
    /// Whether a sample has a row of them, and not a single one.
    is_row: bool,
}

impl PyTokenIds {
    /// Equally many numbers for each lane; all of lane 0, then of lane 1, ...
    pub fn new(numbers: Vec<u32>, lanes: usize, is_row: bool) -> Self {
        PyTokenIds { numbers, lanes, is_row }
    }

    fn n(&self) -> usize {
        self.numbers.len() / self.lanes
    }

    /// The numbers of one sample; `None` if there are several.
    pub fn single(&self) -> Option<&[u32]> {
        (self.lanes == 1).then_some(&self.numbers[..])
    }

    fn part(&self, range: Range<usize>, is_row: bool) -> Self {
        let n = self.n();
        let lane = |lane: usize| &self.numbers[lane * n + range.start..lane * n + range.end];
        PyTokenIds { numbers: (0..self.lanes).flat_map(lane).copied().collect(), lanes: self.lanes, is_row }
    }

    /// The id of each sample.
    fn each(&self, what: &str) -> PyResult<&[u32]> {
        if self.n() == 1 {
            return Ok(&self.numbers);
        }
        let n = self.n();
        Err(PyValueError::new_err(format!(
            "{what} is of one token id, found {n} of each sample; choose one, as in ids[0]"
        )))
    }

    /// The id that all samples have in common.
    fn common(&self, what: &str) -> PyResult<u32> {
        agreed(self.each(what)?.iter().map(|&id| Ok(id)), &format!("{what} of a token id"))
    }
}

#[pymethods]
impl PyTokenIds {
    fn __len__(&self) -> usize {
        self.n()
    }

    fn __getitem__(&self, index: &Bound<'_, PyAny>) -> PyResult<PyTokenIds> {
        let n = self.n() as isize;
        if let Ok(slice) = index.cast::<PySlice>() {
            let at = slice.indices(n)?;
            if at.step != 1 || at.start >= at.stop {
                return Err(PyValueError::new_err("a slice of TokenIds must have step 1 and not be empty"));
            }
            return Ok(self.part(at.start as usize..at.stop as usize, true));
        }
        let k: isize = index.extract()?;
        let at = if k < 0 { k + n } else { k };
        if !(0..n).contains(&at) {
            return Err(PyIndexError::new_err(format!("token id {k} of {n}")));
        }
        Ok(self.part(at as usize..at as usize + 1, false))
    }

    /// As integers are compared, sample by sample; text and None are not equal to any.
    fn __richcmp__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
        how: CompareOp,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        if other.is_none() || is_text(other) {
            return Ok(py.NotImplemented().into_bound(py));
        }
        let ids = slf.get().each("a comparison")?;
        let others = match other.cast::<PyTokenIds>() {
            Ok(others) => Some(others.get().each("a comparison")?),
            Err(_) => None,
        };
        let outcomes = ids.iter().enumerate().map(|(lane, id)| {
            let id = id.into_pyobject(py)?;
            match others {
                Some(others) => id.rich_compare(others.get(lane), how)?.is_truthy(),
                None => id.rich_compare(other, how)?.is_truthy(),
            }
        });
        Ok(agreed(outcomes, "a comparison of token ids")?.into_pyobject(py)?.to_owned().into_any())
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        if self.is_row {
            return Err(PyTypeError::new_err("a row of TokenIds is not hashable; use single ids"));
        }
        self.common("hash()")?.into_pyobject(py)?.hash()
    }

    fn __bool__(&self) -> PyResult<bool> {
        agreed(self.each("bool()")?.iter().map(|&id| Ok(id != 0)), "bool() of a token id")
    }

    fn __int__(&self) -> PyResult<u32> {
        self.common("int()")
    }

    fn __float__(&self) -> PyResult<f64> {
        self.common("float()").map(f64::from)
    }

    fn __index__(&self) -> PyResult<u32> {
        self.common("an index")
    }

    /// The ids as an array of NumPy: without axes for a single one.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if copy == Some(false) {
            return Err(PyValueError::new_err("an array of TokenIds is a copy; use copy=None or True"));
        }
        let lanes = self.numbers.chunks(self.n().max(1));
        let ids = agreed(lanes.map(|ids| Ok(ids.to_vec())), "an array of TokenIds")?;
        let ids = if self.is_row { ids.into_pyobject(py)? } else { ids[0].into_pyobject(py)?.into_any() };
        let numpy = numpy(py)?;
        match dtype {
            Some(dtype) => numpy.call_method1("array", (ids, dtype)),
            None => numpy.call_method1("array", (ids, "int64")),
        }
    }

    /// A single id as an integer, if all samples agree.
    fn __str__(&self) -> String {
        match self.common("str()") {
            Ok(id) if !self.is_row => id.to_string(),
            _ => self.__repr__(),
        }
    }

    fn __format__<'py>(&self, py: Python<'py>, spec: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.common("format()")?.into_pyobject(py)?.call_method1("__format__", (spec,))
    }

    fn __repr__(&self) -> String {
        let of = |lane: usize| format!("{:?}", &self.numbers[lane * self.n()..(lane + 1) * self.n()]);
        format!("<TokenIds {}>", (0..self.lanes).map(of).collect::<Vec<_>>().join(" "))
    }
}

/// Integers for each lane of a graph: TokenIds unchanged, other integers the same for all lanes.
pub fn token_ids_for<'a>(
    owner: &Bound<'_, PyGraph>,
    given: &'a Bound<'_, PyAny>,
    what: &str,
) -> PyResult<Cow<'a, [u32]>> {
    if let Ok(ids) = given.cast::<PyTokenIds>() {
        return Ok(ids.get().numbers.as_slice().into());
    }
    let mut numbers = Vec::new();
    match number_of(given)? {
        Some(_) => numbers.push(token_id(given, what)?),
        None => {
            read_token_ids(given, &mut numbers, what)?;
        }
    }
    let lanes = owner.get().scalar_type(owner.py())?.lanes;
    Ok(numbers.repeat(lanes).into())
}
