//! `save` and `load` of models as safetensors, shared by all models.
//!
//! `burtorch._models` defines the metadata of a model; these methods call it.

use pyo3::prelude::*;

use crate::nn::gpt::PyGpt;
use crate::nn::{PyCharMlp, PyLinear, PyMlp};

fn models(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    py.import("burtorch._models")
}

/// Methods of models with token ids.
macro_rules! with_vocabulary {
    ($($Model:ident)*) => { $(
        #[pymethods]
        impl $Model {
            /// Save the model as a self-contained safetensors file, completely or not at all.
            ///
            /// Args:
            ///     path: the file. Any library that reads safetensors finds the tensors in it, by name.
            ///     vocabulary: the symbols of the tokens, saved with the model; `burtorch generate` needs them.
            ///
            /// Raises OSError if the system refuses; the old file remains. ValueError for a vocabulary
            /// that does not fit.
            #[pyo3(signature = (path, vocabulary=None))]
            fn save(slf: &Bound<'_, Self>, path: &Bound<'_, PyAny>, vocabulary: Option<&str>) -> PyResult<()> {
                models(slf.py())?.call_method1("save", (slf, path, vocabulary)).map(|_| ())
            }
        }
    )* };
}

/// Methods of models of numbers.
macro_rules! without_vocabulary {
    ($($Model:ident)*) => { $(
        #[pymethods]
        impl $Model {
            /// Save the model as a self-contained safetensors file, completely or not at all.
            ///
            /// Args:
            ///     path: the file. Any library that reads safetensors finds the weights and biases in it, by name.
            ///
            /// Raises OSError if the system refuses; the old file remains.
            fn save(slf: &Bound<'_, Self>, path: &Bound<'_, PyAny>) -> PyResult<()> {
                models(slf.py())?.call_method1("save", (slf, path)).map(|_| ())
            }
        }
    )* };
}

macro_rules! loads {
    ($($Model:ident)*) => { $(
        #[pymethods]
        impl $Model {
            /// Overwrite the values with those of a saved model of the same shape and dtype.
            ///
            /// Raises FormatError for any other file, OSError if the system refuses. Then nothing has changed.
            fn load(slf: &Bound<'_, Self>, path: &Bound<'_, PyAny>) -> PyResult<()> {
                models(slf.py())?.call_method1("load", (slf, path)).map(|_| ())
            }
        }
    )* };
}

with_vocabulary!(PyCharMlp PyGpt);
without_vocabulary!(PyMlp PyLinear);
loads!(PyCharMlp PyGpt PyMlp PyLinear);
