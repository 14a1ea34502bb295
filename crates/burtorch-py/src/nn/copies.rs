//! Pickles and copies of models: `__new__` makes them over the numbers that a copy of the Parameters already has.

use burtorch_core::nn::{CharMlpShape, GptShape, Linear};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::gpt::PyGpt;
use super::{PyCharMlp, PyLinear, PyMlp};

/// The arguments of `__new__` after the Parameters and before the name.
trait MadeOf {
    fn made_of<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>>;
}

impl MadeOf for PyCharMlp {
    fn made_of<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let CharMlpShape { vocab, context, embedding, hidden } = self.model.shape();
        (vocab, context, embedding, hidden).into_pyobject(py)
    }
}

impl MadeOf for PyLinear {
    fn made_of<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let Self { model: layer, .. } = self;
        (layer.n_in(), layer.n_out(), layer.bias().is_some(), layer.activation().name()).into_pyobject(py)
    }
}

impl MadeOf for PyMlp {
    fn made_of<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let layers = self.model.layers();
        let sizes: Vec<usize> = std::iter::once(self.model.n_in()).chain(layers.iter().map(Linear::n_out)).collect();
        let activation = layers.first().map_or("identity", |layer| layer.activation().name());
        (sizes, activation, layers.iter().any(|layer| layer.bias().is_some())).into_pyobject(py)
    }
}

impl MadeOf for PyGpt {
    fn made_of<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let GptShape { vocab, context, layers, heads, width, expansion, eps, final_norm } = self.model.shape();
        (vocab, context, layers, heads, width, expansion, eps, final_norm).into_pyobject(py)
    }
}

macro_rules! copied {
    ($($Model:ident)*) => { $(
        #[pymethods]
        impl $Model {
            fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
                let start = PyDict::new(py);
                let first = self.model.named_tensors().first().map(|(_, first)| first.slice().range().start);
                start.set_item("_start", first)?;
                let (params, name) = (PyTuple::new(py, [&self.params])?, PyTuple::new(py, [&self.name])?);
                let all = params.as_sequence().concat(self.made_of(py)?.as_sequence())?.concat(name.as_sequence())?;
                Ok((all.cast_into()?, start))
            }
        }
    )* };
}
copied!(PyCharMlp PyLinear PyMlp PyGpt);
