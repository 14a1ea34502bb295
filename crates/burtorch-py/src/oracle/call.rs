//! The ways to call an oracle: for the whole gradient, for some numbers of it, until a token is set, or compressed.

use burtorch_core::draw::Purpose;
use burtorch_core::oracle::Until;
use burtorch_core::sync::Stop;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::PyOracle;
use super::engine::{Want, WantRandom, WantUntil};
use crate::compress::{AnyLargest, PyCompressor, PyDraw, PyMessage};
use crate::convert::arguments::Count;
use crate::convert::arrays::Array;
use crate::convert::buffer::CallerMemory;
use crate::convert::errors::{IntoPython, derived};
use crate::params::{PySubset, zeros};

/// The result of a call that ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnStop {
    Raise,
    Discard,
    Leave,
    Partial,
}

impl OnStop {
    pub fn named(name: &str) -> PyResult<Self> {
        match name {
            "raise" => Ok(OnStop::Raise),
            "discard" => Ok(OnStop::Discard),
            "leave" => Ok(OnStop::Leave),
            "partial" => Ok(OnStop::Partial),
            found => Err(PyValueError::new_err(format!(
                "on_stop must be \"raise\", \"discard\", \"leave\" or \"partial\", found {found:?}"
            ))),
        }
    }
}

/// A batch, and the point of its gradient.
#[derive(Clone, Copy)]
pub struct Asked<'a, 'py> {
    pub batch: (&'a Bound<'py, PyAny>, &'a Bound<'py, PyAny>),
    pub at: Option<&'a Bound<'py, PyAny>>,
    pub out: Option<&'a Bound<'py, PyAny>>,
    pub wanted: Option<&'a Bound<'py, PyAny>>,
}

impl PyOracle {
    /// The loss of a batch and its gradient, or the wanted numbers of it.
    pub(super) fn gradient<'py>(
        &self,
        py: Python<'py>,
        asked: Asked<'_, 'py>,
        skips_loss: bool,
    ) -> PyResult<(f64, Bound<'py, PyAny>)> {
        let Asked { batch: (x, y), at, out, wanted } = asked;
        let point = self.point(at)?;
        let Some(wanted) = wanted else {
            let want = Want::Gradient(point, self.memory_of(out, "out")?, skips_loss);
            return Ok((self.run(py, x, y, want)?, self.written_to(py, out)?));
        };
        let subset = PySubset::unchecked(self.params.bind(py), wanted)?;
        if subset.get().set().is_empty() {
            PySubset::of(self.params.bind(py), &subset)?;
            return self.of_none(py, asked);
        }
        let out = self.place_of(py, &subset, out)?;
        let memory = CallerMemory::of(&out, self.params.get().dtype_of(), "out")?;
        let want = Want::Some(subset.get().set(), memory, point, skips_loss);
        Ok((self.run(py, x, y, want)?, out))
    }

    /// An array for the gradients of a set.
    fn place_of<'py>(
        &self,
        py: Python<'py>,
        subset: &Bound<'py, PySubset>,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match out {
            Some(out) => Ok(out.clone()),
            None => zeros(py, self.params.get().dtype_of(), subset.get().set().len()),
        }
    }

    /// Whether memory for the gradient of the empty set has room for all parameters, instead of none.
    fn is_for_all(&self, py: Python<'_>, out: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
        let Some(out) = out else { return Ok(false) };
        let (found, d) = (Array::writable(out, "out")?.len(), self.params.bind(py).len()?);
        if found != 0 && found != d {
            return Err(PyValueError::new_err(format!("out must have 0 or {d} numbers, found {found}")));
        }
        Ok(found == d)
    }

    /// Memory for a whole gradient, and, from that, what is returned for the empty set: no numbers, or zeros.
    fn around_none<'py>(
        &self,
        py: Python<'py>,
        out: Option<&Bound<'py, PyAny>>,
        compute: impl FnOnce(&Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let dtype = self.params.get().dtype_of();
        let is_for_all = self.is_for_all(py, out)?;
        let none = match out {
            Some(out) => out.clone(),
            None => zeros(py, dtype, 0)?,
        };
        let all = if is_for_all { none.clone() } else { zeros(py, dtype, self.params.bind(py).len()?)? };
        let found = compute(&all)?;
        if is_for_all {
            Array::writable(&none, "out")?.fill(0.0);
        }
        Ok((found, none))
    }

    /// The loss of a batch and the gradient of the empty set.
    fn of_none<'py>(&self, py: Python<'py>, asked: Asked<'_, 'py>) -> PyResult<(f64, Bound<'py, PyAny>)> {
        let Asked { batch: (x, y), at, out, .. } = asked;
        if at.is_none() && out.is_none() {
            return Ok((self.run(py, x, y, Want::Loss)?, zeros(py, self.params.get().dtype_of(), 0)?));
        }
        let mut loss = 0.0;
        let (_, none) = self.around_none(py, out, |all| {
            let (found, gradient) = self.gradient(py, Asked { out: Some(all), wanted: None, ..asked }, false)?;
            loss = found;
            Ok(gradient)
        })?;
        Ok((loss, none))
    }

    /// The same until a token is set.
    fn of_none_until<'py>(
        &self,
        py: Python<'py>,
        asked: Asked<'_, 'py>,
        stop: &Stop,
        choices: (OnStop, Option<f64>),
    ) -> PyResult<Bound<'py, PyAny>> {
        let (found, none) = self.around_none(py, asked.out, |all| {
            self.until(py, Asked { out: Some(all), wanted: None, ..asked }, stop, choices)
        })?;
        let Ok(parts) = found.cast::<PyTuple>() else { return Ok(found) };
        let loss = parts.get_item(0)?;
        match parts.len() {
            3 => Ok((loss, none, parts.get_item(2)?).into_pyobject(py)?.into_any()),
            _ => Ok((loss, none).into_pyobject(py)?.into_any()),
        }
    }

    /// The same until a token is set: loss, gradient and number of samples of a partial result.
    pub(super) fn until<'py>(
        &self,
        py: Python<'py>,
        asked: Asked<'_, 'py>,
        stop: &Stop,
        (on_stop, probability): (OnStop, Option<f64>),
    ) -> PyResult<Bound<'py, PyAny>> {
        let Asked { batch: (x, y), at, out, wanted } = asked;
        let subset = wanted.map(|wanted| PySubset::unchecked(self.params.bind(py), wanted)).transpose()?;
        if let Some(none) = subset.as_ref().filter(|subset| subset.get().set().is_empty()) {
            PySubset::of(self.params.bind(py), none)?;
            return self.of_none_until(py, asked, stop, (on_stop, probability));
        }
        let at = self.point(at)?;
        let out = match &subset {
            Some(subset) => Some(self.place_of(py, subset, out)?),
            None => out.cloned(),
        };
        let mut n = None;
        let want = WantUntil {
            wanted: subset.as_ref().map(|subset| subset.get().set()),
            at,
            out: self.memory_of(out.as_ref(), "out")?,
            until: Until { stop, keeps: on_stop == OnStop::Partial, probability, leaves: on_stop == OnStop::Leave },
            n: &mut n,
        };
        let loss = self.run(py, x, y, Want::Until(want))?;
        match (n, on_stop) {
            (None, OnStop::Discard | OnStop::Leave) => Ok(py.None().into_bound(py)),
            (None, _) => Err(derived(
                py,
                "StoppedError",
                "the token was set, or the deadline passed, before the batch was finished; its gradient is 0".into(),
            )),
            (Some(n), OnStop::Partial) => {
                Ok((loss, self.written_to(py, out.as_ref())?, n).into_pyobject(py)?.into_any())
            }
            _ => Ok((loss, self.written_to(py, out.as_ref())?).into_pyobject(py)?.into_any()),
        }
    }

    /// The loss of a batch, a gradient whose layers sample inputs with probability `p`, and its variance.
    pub(super) fn at_random<'py>(
        &self,
        py: Python<'py>,
        asked: Asked<'_, 'py>,
        (p, draw): (f64, Option<&Bound<'py, PyDraw>>),
    ) -> PyResult<Bound<'py, PyAny>> {
        let Asked { batch: (x, y), at, out, .. } = asked;
        let Some(draw) = draw else {
            return Err(PyValueError::new_err(
                "random_backward needs draw=, a bt.compress.Draw with a seed and a round",
            ));
        };
        let mut variance = 0.0;
        let want = WantRandom {
            at: self.point(at)?,
            out: self.memory_of(out, "out")?,
            p,
            draw: draw.get().sequence_for(py, Purpose::Backward)?,
            variance: &mut variance,
        };
        let loss = self.run(py, x, y, Want::Random(want))?;
        Ok((loss, self.written_to(py, out)?, variance).into_pyobject(py)?.into_any())
    }

    /// The loss of a batch and its compressed gradient; if the sent coordinates are known before, only those are computed.
    pub(super) fn compressed<'py>(
        &self,
        py: Python<'py>,
        asked: Asked<'_, 'py>,
        compressor: &PyCompressor,
        (draw, client, n_clients): (Option<&Bound<'py, PyDraw>>, Option<Count>, Option<Count>),
    ) -> PyResult<Bound<'py, PyAny>> {
        let none = PyDraw::none();
        let (client, draw) = compressor.settings(draw, client, n_clients, &none)?;
        let message = Bound::new(py, PyMessage::new())?;
        let params = self.params.bind(py);
        let (dtype, d) = (self.params.get().dtype_of(), params.len()?);
        let mut loss = 0.0;
        let some = |indices: &[u32]| {
            let mut order: Vec<usize> = (0..indices.len()).collect();
            order.sort_by_key(|&k| indices[k]);
            let ranges = order.iter().map(|&k| indices[k]..indices[k] + 1).collect();
            let wanted = PySubset::of_ranges(params, ranges)?.into_any();
            let (found, grad) = self.gradient(py, Asked { wanted: Some(&wanted), ..asked }, false)?;
            loss = found;
            let mut numbers = vec![0.0; indices.len()];
            let sorted = Array::converted(&grad)?.floats();
            order.iter().zip(sorted).for_each(|(&k, g)| numbers[k] = g);
            Ok(numbers)
        };
        let compression = (compressor.compressor(), &mut draw.sequence(py)?, client);
        if message.get().fill_chosen(py, dtype, d, compression, some)? {
            return Ok((loss, message).into_pyobject(py)?.into_any());
        }
        if let Some(mut largest) = AnyLargest::of(compressor.compressor(), dtype, d).or_raise(py)? {
            let (at, (x, y)) = (self.point(asked.at)?, asked.batch);
            loss = self.run(py, x, y, Want::Largest(at, &mut largest))?;
            message.get().fill_largest(py, largest, compressor.compressor(), &mut draw.sequence(py)?)?;
        } else {
            let all = zeros(py, dtype, d)?;
            loss = self.gradient(py, Asked { out: Some(&all), ..asked }, false)?.0;
            let x = Array::converted(&all)?;
            message.get().fill(py, &x, compressor.compressor(), &mut draw.sequence(py)?, client)?;
        }
        Ok((loss, message).into_pyobject(py)?.into_any())
    }
}
