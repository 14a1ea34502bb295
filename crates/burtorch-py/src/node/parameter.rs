//! `bt.parameter(x)`: a number that traced functions read at every call.
//!
//! Promises: changing `.value` costs no trace; no gradient flows to it. Outside traces it is its number.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

use super::vector::wrap;
use crate::array::trace::current;
use crate::convert::numbers::number_of;
use crate::convert::refusals::{is_tracing, refuse_reading};
use crate::graph::{self, PyGraph};
pub use crate::params::PyParameter;

fn number(x: &Bound<'_, PyAny>) -> PyResult<f64> {
    number_of(x)?.ok_or_else(|| PyTypeError::new_err("a parameter holds a real number"))
}

/// The object that a parameter represents: a Value or an Array while a function is traced in this thread, else its number.
pub fn value_of<'py>(slf: &Bound<'py, PyParameter>) -> PyResult<Bound<'py, PyAny>> {
    let py = slf.py();
    let owner: Bound<'py, PyGraph> = graph::current_graph(py)?.into_bound(py).cast_into()?;
    let node = owner.get().if_traced(|cell, trace| {
        let known = trace.parameters.iter().find(|(parameter, _)| parameter.is(slf)).map(|(_, node)| *node);
        Ok(match known {
            Some(node) => node,
            None => {
                let made = cell.graph.append_number(&burtorch_core::erased::AnyNumber::One(slf.get().number()), false);
                let node = made.map_err(|error| crate::graph::trace::too_large(cell, error))?;
                trace.parameters.push((slf.clone().into_any().unbind(), node));
                node
            }
        })
    })?;
    let trace = match node {
        Some(node) => return wrap(&owner, node),
        None => current(py),
    };
    match trace {
        Some(trace) => Ok(trace.get().number(&trace, slf)?.into_any()),
        None => Ok(slf.get().number().into_pyobject(py)?.into_any()),
    }
}

/// An operator on the object that a parameter represents.
fn operate<'py>(operator: &str, x: &Bound<'py, PyAny>, y: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    x.py().import("operator")?.call_method1(operator, (x, y))
}

/// `divmod(x, y)`
fn divided<'py>(x: &Bound<'py, PyAny>, y: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    x.py().import("builtins")?.call_method1("divmod", (x, y))
}

#[pymethods]
impl PyParameter {
    #[new]
    fn new(x: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(PyParameter::of(number(x)?))
    }

    /// The number; assigning changes it for later calls of traced functions.
    #[getter(value)]
    fn get_value(&self) -> PyResult<f64> {
        refuse_reading(".value of a parameter")?;
        Ok(self.number())
    }

    #[setter(value)]
    fn set_value(&self, x: &Bound<'_, PyAny>) -> PyResult<()> {
        self.set(number(x)?);
        Ok(())
    }

    /// `copy.copy`, `copy.deepcopy` and `pickle`: another parameter with the same number.
    fn __copy__(&self) -> PyResult<Self> {
        self.get_value().map(PyParameter::of)
    }

    fn __deepcopy__(&self, memo: &Bound<'_, PyAny>) -> PyResult<Self> {
        let _ = memo;
        self.__copy__()
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyType>, (f64,))> {
        Ok((slf.get_type(), (slf.get().get_value()?,)))
    }

    fn __repr__(&self) -> String {
        if is_tracing() { "parameter(traced)".into() } else { format!("parameter({:?})", self.number()) }
    }

    fn __float__(slf: &Bound<'_, Self>) -> PyResult<f64> {
        value_of(slf)?.call_method0("__float__")?.extract()
    }

    fn __bool__(slf: &Bound<'_, Self>) -> PyResult<bool> {
        value_of(slf)?.is_truthy()
    }

    fn __hash__(slf: &Bound<'_, Self>) -> usize {
        slf.as_ptr() as usize >> 4
    }

    fn __richcmp__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
        how: pyo3::pyclass::CompareOp,
    ) -> PyResult<Bound<'py, PyAny>> {
        value_of(slf)?.rich_compare(other, how)
    }

    /// NumPy's functions apply to the object that a parameter represents.
    #[pyo3(signature = (function, method, *operands, **keywords))]
    fn __array_ufunc__<'py>(
        &self,
        function: &Bound<'py, PyAny>,
        method: &str,
        operands: &Bound<'py, PyTuple>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let operands = operands.iter().map(|x| x.cast::<PyParameter>().map_or_else(|_| Ok(x.clone()), value_of));
        let operands = PyTuple::new(function.py(), operands.collect::<PyResult<Vec<_>>>()?)?;
        function.getattr(method)?.call(operands, keywords)
    }

    fn __neg__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        value_of(slf)?.neg()
    }

    fn __pos__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        value_of(slf)?.pos()
    }

    fn __abs__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        value_of(slf)?.abs()
    }

    fn __divmod__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        divided(&value_of(slf)?, other)
    }

    fn __rdivmod__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        divided(other, &value_of(slf)?)
    }

    fn __pow__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
        _modulus: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        operate("pow", &value_of(slf)?, other)
    }

    fn __rpow__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
        _modulus: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        operate("pow", other, &value_of(slf)?)
    }
}

/// Operators of two operands, and their reflected forms with the parameter on the right.
macro_rules! operators {
    ($($name:ident $reflected:ident $operator:literal)*) => {
        #[allow(unsafe_op_in_unsafe_fn, reason = "what the attribute makes of names that are written here")]
        const _: () = {
            #[pymethods]
            impl PyParameter { $(
                fn $name<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
                    operate($operator, &value_of(slf)?, other)
                }

                fn $reflected<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
                    operate($operator, other, &value_of(slf)?)
                }
            )* }
        };
    };
}
operators! {
    __add__ __radd__ "add"
    __sub__ __rsub__ "sub"
    __mul__ __rmul__ "mul"
    __truediv__ __rtruediv__ "truediv"
    __floordiv__ __rfloordiv__ "floordiv"
    __mod__ __rmod__ "mod"
}

/// Adds the class to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyParameter>()
}
