//! `Program` for Python: a traced program to inspect.

use std::fmt::Write;

use burtorch_core::array::ArrayProgram;
use burtorch_core::{Error, Program};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::primitive::PyPrimitive;
use crate::convert::errors::IntoPython;
use crate::convert::gc::collected;
use crate::convert::signals::asked;

/// The program of a traced function: a list of operations. str() is a listing.
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
    program: Content,
    /// The primitives that it calls, which it refers to weakly.
    primitives: Vec<Py<PyPrimitive>>,
}
collected!(PyProgram: primitives);

/// Operations on numbers, or on arrays.
enum Content {
    Numbers(Program),
    /// And how many of its results are guards.
    Arrays(ArrayProgram, usize),
}

impl PyProgram {
    /// For a program of the core.
    pub fn new(program: Program, primitives: Vec<Py<PyPrimitive>>) -> Self {
        PyProgram { program: Content::Numbers(program), primitives }
    }

    /// For a program over arrays, whose last results are guards.
    pub fn of_arrays(program: ArrayProgram, n_guards: usize) -> Self {
        PyProgram { program: Content::Arrays(program, n_guards), primitives: Vec::new() }
    }
}

#[pymethods]
impl PyProgram {
    fn __str__(&self, py: Python<'_>) -> PyResult<String> {
        let text = || match &self.program {
            Content::Numbers(program) => {
                let mut text = String::new();
                write!(text, "{program}").map_err(|_| Error::Interrupted)?;
                Ok(text)
            }
            Content::Arrays(program, n_guards) => program.listing(*n_guards),
        };
        py.detach(|| asked(text)).or_raise(py)
    }

    fn __repr__(&self) -> String {
        let (n, m) = (self.n_inputs(), self.n_outputs());
        format!("<Program of {} operations, {n} inputs, {m} outputs>", self.__len__())
    }

    fn __len__(&self) -> usize {
        match &self.program {
            Content::Numbers(program) => program.nodes().len(),
            Content::Arrays(program, _) => program.instrs().len() - program.inputs().len(),
        }
    }

    fn __bool__(&self) -> bool {
        true
    }

    /// The number of occurrences of each op, by name.
    #[getter]
    fn op_counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let table = PyDict::new(py);
        match &self.program {
            Content::Numbers(program) => {
                for (name, n) in program.op_counts() {
                    table.set_item(name, n)?;
                }
            }
            Content::Arrays(program, _) => {
                for instr in program.instrs() {
                    let name = instr.op.name();
                    let n = table.get_item(&name)?.map_or(Ok(0), |n| n.extract::<usize>())?;
                    table.set_item(name, n + 1)?;
                }
            }
        }
        Ok(table)
    }

    /// The number of inputs, including parameters.
    #[getter]
    fn n_inputs(&self) -> usize {
        match &self.program {
            Content::Numbers(program) => program.n_inputs(),
            Content::Arrays(program, _) => program.inputs().len() + program.params().len(),
        }
    }

    /// The number of outputs.
    #[getter]
    fn n_outputs(&self) -> usize {
        match &self.program {
            Content::Numbers(program) => program.outputs().len(),
            Content::Arrays(program, n_guards) => program.outputs().len() - n_guards,
        }
    }

    /// The number of guards: comparisons that every call checks.
    #[getter]
    fn n_guards(&self) -> usize {
        match &self.program {
            Content::Numbers(program) => program.guards().len(),
            Content::Arrays(_, n_guards) => *n_guards,
        }
    }

    /// The element type, "float64" or "float32".
    #[getter]
    fn dtype(&self) -> &'static str {
        match &self.program {
            Content::Numbers(program) => program.dtype().name(),
            Content::Arrays(program, _) => program.dtype().name(),
        }
    }

    /// Memory of the program in bytes, without the slots of its replays.
    #[getter]
    fn nbytes(&self) -> usize {
        match &self.program {
            Content::Numbers(program) => program.bytes(),
            Content::Arrays(program, _) => program.bytes(),
        }
    }

    /// The program in the DOT language of Graphviz.
    fn dot(&self, py: Python<'_>) -> PyResult<String> {
        match &self.program {
            Content::Numbers(program) => py.detach(|| asked(|| program.dot())).or_raise(py),
            Content::Arrays(..) => Err(not_of_arrays("dot()")),
        }
    }
}

fn not_of_arrays(what: &str) -> PyErr {
    PyTypeError::new_err(format!("{what} is for programs of numbers; str(program) lists an array program"))
}

/// Adds the class to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyProgram>()
}
