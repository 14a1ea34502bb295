//! `Program` for Python: what a function traced, to be read.

use std::fmt::Write;

use burtorch_core::{Error, Program};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::primitive::PyPrimitive;
use crate::convert::errors::IntoPython;
use crate::convert::gc::collected;
use crate::convert::signals::asked;

/// What a function traced: a list of operations. str() is a listing.
///
/// Read from Function.program; it never changes.
///
/// Example:
///     >>> import burtorch as bt
///     >>> @bt.function
///     ... def f(x, y):
///     ...     return (x * y).exp() + 1.0
///     >>> f(0.5, 2.0)
///     3.718281828459045
///     >>> print(f.program)
///     program(x0..x1: float64)
///       %0 = mul x0 x1
///       %1 = exp %0
///       %2 = add_constant %1 1.0
///       return %2
///     >>> f.program.op_counts
///     {'exp': 1, 'mul': 1, 'add_constant': 1}
#[pyclass(frozen, name = "Program", module = "burtorch", weakref)]
pub struct PyProgram {
    program: Program,
    /// Those that it calls, which it knows by weak references.
    primitives: Vec<Py<PyPrimitive>>,
}
collected!(PyProgram: primitives);

impl PyProgram {
    /// For a program of the core.
    pub fn new(program: Program, primitives: Vec<Py<PyPrimitive>>) -> Self {
        PyProgram { program, primitives }
    }
}

#[pymethods]
impl PyProgram {
    fn __str__(&self, py: Python<'_>) -> PyResult<String> {
        let mut text = String::new();
        py.detach(|| asked(|| write!(text, "{}", self.program).map_err(|_| Error::Interrupted))).or_raise(py)?;
        Ok(text)
    }

    fn __repr__(&self) -> String {
        let (n, m) = (self.program.n_inputs(), self.program.outputs().len());
        format!("<Program of {} operations, {n} inputs, {m} outputs>", self.program.nodes().len())
    }

    fn __len__(&self) -> usize {
        self.program.nodes().len()
    }

    fn __bool__(&self) -> bool {
        true
    }

    /// How often each op occurs, by name.
    #[getter]
    fn op_counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let table = PyDict::new(py);
        for (name, n) in self.program.op_counts() {
            table.set_item(name, n)?;
        }
        Ok(table)
    }

    /// The number of inputs, those of parameters included.
    #[getter]
    fn n_inputs(&self) -> usize {
        self.program.n_inputs()
    }

    /// The number of outputs.
    #[getter]
    fn n_outputs(&self) -> usize {
        self.program.outputs().len()
    }

    /// The number of guards: comparisons whose answer the program takes for granted and each call checks.
    #[getter]
    fn n_guards(&self) -> usize {
        self.program.guards().len()
    }

    /// The element type, "float64" or "float32".
    #[getter]
    fn dtype(&self) -> &'static str {
        self.program.dtype().name()
    }

    /// Memory of the program in bytes, without the slots of its replays.
    #[getter]
    fn nbytes(&self) -> usize {
        self.program.bytes()
    }

    /// The program in the DOT language of Graphviz.
    fn dot(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| asked(|| self.program.dot())).or_raise(py)
    }
}

/// Adds the class to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyProgram>()
}
