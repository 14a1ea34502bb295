//! Transforms: functions of functions, such as gradients. Called with Arrays of a trace they trace their function in
//! a nested trace, transform its program, and append a call of it.
//!
//! Promises: captures of outer traces become arguments of the program, so a derivative is by its own arguments
//! only, however transforms are nested. A transform is the body of a Function, which finds its constants, keeps its programs
//! and runs them. Knows no numbers.

use burtorch_core::array::{ArrayProgram, Element, OverRows, Type, Variable};
use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyTuple};

use super::arguments::{hold_values, without_values};
use super::array_path::Returned;
use super::containers::Nest;
use super::control::Control;
use super::pytree::{described, holds_values, is_of_graph};
use super::transform_rules::checkpoint;
use crate::array::append::{append_call, innermost};
use crate::array::arguments::Given;
use crate::array::array::PyArray;
use crate::array::trace::{Active, ArrayTrace, Source, current};
use crate::convert::arrays::Kind;
use crate::convert::errors::{derived, if_any, instead};
use crate::convert::gc::{HoldsObjects, Visitor, collected};
use crate::convert::refusals::{is_tracing, needs_arrays, not_in_a_trace};
use crate::convert::signals::quietly;

/// The arguments of a derivative.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argnums {
    /// All with floats.
    All,
    /// One argument.
    One(isize),
    /// Several, for a tuple.
    Many(Vec<isize>),
}

impl Argnums {
    /// Reads an int or a sequence of them; all for None.
    pub fn of(which: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let Some(which) = which else { return Ok(Argnums::All) };
        let message = "argnums must be the number of an argument, or a sequence of such numbers";
        if which.is_instance_of::<PyBool>() {
            return Err(PyTypeError::new_err(format!("{message}, found a bool")));
        }
        if let Some(k) = if_any(which.py(), which.extract::<isize>())? {
            return Ok(Argnums::One(k));
        }
        let many = which.extract::<Vec<isize>>();
        many.map(Argnums::Many).map_err(|error| instead(which.py(), error, PyTypeError::new_err(message)))
    }

    /// Arguments, and the directions behind them: one for each selected argument.
    pub fn with_directions<'a, 'py>(
        &self,
        method: &str,
        positional: &'a [Bound<'py, PyAny>],
    ) -> PyResult<[&'a [Bound<'py, PyAny>]; 2]> {
        let n = positional.len();
        let directions = match self {
            Argnums::All => n / 2,
            Argnums::One(_) => 1,
            Argnums::Many(all) => all.len(),
        };
        if n == 0 || directions == 0 || 2 * directions > n || *self == Argnums::All && !n.is_multiple_of(2) {
            let behind = if *self == Argnums::All { "as many directions" } else { "a direction for each of argnums" };
            let message = format!("{method}() takes the arguments followed by {behind}, found {n} in total");
            return Err(PyTypeError::new_err(message));
        }
        let (arguments, directions) = positional.split_at(n - directions);
        Ok([arguments, directions])
    }

    /// The selected arguments, of `n`.
    pub fn among(&self, n: usize) -> PyResult<Vec<usize>> {
        let at = |&k: &isize| {
            let place = if k < 0 { k + n as isize } else { k };
            usize::try_from(place).ok().filter(|&place| place < n).ok_or_else(|| {
                PyIndexError::new_err(format!("argnums {k} is out of range: the function was given {n} arguments"))
            })
        };
        match self {
            Argnums::All => Ok((0..n).collect()),
            Argnums::One(k) => Ok(vec![at(k)?]),
            Argnums::Many(all) => all.iter().map(at).collect(),
        }
    }
}

/// The effect of a transform.
#[derive(Debug)]
pub enum Rule {
    /// The gradient, with the value or without.
    Grad { with_value: bool },
    /// The Jacobian.
    Jacobian,
    /// The entries of the Jacobian that may differ from 0, or only where they are.
    Sparse { is_pattern: bool },
    /// The result and its derivative along tangents, which follow the arguments; or only the derivative.
    Jvp { with_value: bool },
    /// The result and its vector-Jacobian product with weights of the result, the last argument.
    Vjp,
    /// All rows at once.
    Vmap { in_axes: Py<PyAny>, out_axes: Py<PyAny>, reduce: Option<OverRows> },
    /// The value and the gradient by Parameters.
    ParamGrad,
    /// A loop or a choice.
    Control(Control),
    /// The same function, of which reverse mode keeps only the arguments.
    Checkpoint,
}

/// A derived function of a Function: a rule's name, and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Derived(pub &'static str, pub Argnums);

/// A transform of a function, as the body of a Function.
#[pyclass(frozen, name = "Transform", module = "burtorch")]
pub struct Transform {
    pub(super) name: &'static str,
    pub(super) rule: Rule,
    pub(super) function: Py<PyAny>,
    pub(super) argnums: Argnums,
    pub(super) has_aux: bool,
}
collected!(Transform: function, rule);

impl HoldsObjects for Rule {
    fn visit(&self, visit: &mut Visitor<'_>) {
        match self {
            Rule::Vmap { in_axes, out_axes, .. } => {
                visit(in_axes);
                visit(out_axes);
            }
            Rule::Control(control) => control.visit(visit),
            _ => {}
        }
    }
}

/// The arguments of a transform, taken apart.
pub struct Arguments<'py> {
    /// Containers of each.
    pub nests: Vec<Nest>,
    /// All their leaves.
    pub leaves: Vec<Bound<'py, PyAny>>,
    pub types: Vec<Type>,
    /// The float type of each argument that is an array of floats.
    pub kinds: Vec<Option<Kind>>,
}

impl<'py> Arguments<'py> {
    pub fn of(py: Python<'py>, name: &str, positional: &[Bound<'py, PyAny>]) -> PyResult<Self> {
        let mut leaves = Vec::new();
        let nests = positional.iter().map(|x| Nest::of(x, &mut leaves)).collect::<PyResult<Vec<_>>>()?;
        let mut types = Vec::with_capacity(leaves.len());
        let mut kinds = Vec::with_capacity(leaves.len());
        for leaf in &leaves {
            if is_of_graph(leaf) {
                return Err(needs_arrays(py, &format!("{name}()")));
            }
            match Given::of(leaf)? {
                Some(given) => {
                    types.push(given.type_of());
                    kinds.push(given.float_kind());
                }
                None if holds_values(leaf)? => return Err(needs_arrays(py, &format!("{name}()"))),
                None => {
                    let found = described(leaf)?;
                    let message =
                        format!("{name}() takes numbers and arrays, or lists, tuples and dicts of them, found {found}");
                    return Err(derived(py, "TraceError", message));
                }
            }
        }
        Ok(Arguments { nests, leaves, types, kinds })
    }

    /// The leaves of argument `k`.
    pub fn leaves_of(&self, k: usize) -> std::ops::Range<usize> {
        let start = self.nests[..k].iter().map(Nest::len).sum();
        start..start + self.nests[k].len()
    }

    pub fn is_float(&self, leaf: usize) -> bool {
        self.types[leaf].element == Element::Float
    }
}

/// A body's program in a nested trace.
pub struct Child<'py> {
    /// Its results are those of the body.
    pub program: ArrayProgram,
    /// Its inputs: the leaves of the arguments, then Arrays of outer traces.
    pub operands: Vec<Bound<'py, PyAny>>,
    /// Containers of the body's result.
    pub nest: Nest,
    /// The float types that derivatives among its leaves have.
    pub kinds: Vec<Option<Kind>>,
}

impl<'py> Child<'py> {
    /// Appends a call of a program with its arguments and `more`, in their trace.
    pub fn call(
        &self,
        py: Python<'py>,
        program: ArrayProgram,
        more: &[Bound<'py, PyAny>],
    ) -> PyResult<Vec<Bound<'py, PyArray>>> {
        let operands = [&self.operands, more].concat();
        let Some(trace) = innermost(py, &operands) else { return Err(not_in_a_trace(py, "this")) };
        append_call(&trace, program, &operands)
    }

    /// Arrays in containers of the body's result, of which they are the leaves from `first` on.
    pub fn built(
        &self,
        py: Python<'py>,
        nest: &Nest,
        first: usize,
        leaves: &mut dyn Iterator<Item = Bound<'py, PyArray>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let tagged =
            leaves.zip(&self.kinds[first..]).map(|(leaf, &kind)| Ok(PyArray::as_derivative(leaf, kind)?.into_any()));
        nest.build(py, &mut tagged.collect::<PyResult<Vec<_>>>()?.into_iter())
    }

    /// The containers of the first result, and those of the rest, which is auxiliary.
    pub fn split(&self, py: Python<'py>, name: &str, has_aux: bool) -> PyResult<(&Nest, Option<&Nest>)> {
        match &self.nest {
            nest if !has_aux => Ok((nest, None)),
            Nest::Sequence { is_tuple: true, items, .. } if items.len() == 2 => Ok((&items[0], Some(&items[1]))),
            _ => {
                let message =
                    format!("{name} with has_aux=True needs a function that returns a tuple (result, auxiliary data)");
                Err(derived(py, "TraceError", message))
            }
        }
    }
}

/// The current trace, or the graph of Arrays among these.
pub fn present<'py>(py: Python<'py>, operands: &[Bound<'py, PyAny>]) -> Option<Bound<'py, ArrayTrace>> {
    current(py).or_else(|| innermost(py, operands))
}

/// Traces `call` with arguments of these types, in a trace nested in the current one.
pub fn traced_child<'py>(
    py: Python<'py>,
    name: &str,
    arguments: &Arguments<'py>,
    types: &[Type],
    source: Source,
    call: impl FnOnce(Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Child<'py>> {
    let Some(outer) = present(py, &arguments.leaves) else { return Err(not_in_a_trace(py, "this")) };
    let dtype = outer.get().dtype();
    let active = Active::begin(Some(outer), py, name, dtype, source)?;
    let mut inputs = Vec::with_capacity(types.len());
    for (&ty, &kind) in types.iter().zip(&arguments.kinds) {
        inputs.push(active.argument(ty, kind)?.into_any());
    }
    let mut inputs = inputs.into_iter();
    let given = arguments.nests.iter().map(|nest| nest.build(py, &mut inputs)).collect::<PyResult<Vec<_>>>()?;
    let result = call(PyTuple::new(py, given)?)?;
    let Returned { nest, values, kinds } = Returned::of(&active, name, &result)?;
    let ended = active.finish(&values)?;
    let captures = ended.captures.into_iter().map(|array| array.into_bound(py).into_any());
    let operands = arguments.leaves.iter().cloned().chain(captures).collect();
    Ok(Child { program: ended.program, operands, nest, kinds })
}

impl Transform {
    /// A transform of `function`.
    pub fn new(name: &'static str, rule: Rule, function: Py<PyAny>, argnums: Argnums, has_aux: bool) -> Self {
        Transform { name, rule, function, argnums, has_aux }
    }

    /// The transformed function.
    pub fn function(&self) -> &Py<PyAny> {
        &self.function
    }

    pub fn text(&self, py: Python<'_>) -> String {
        let function = self.function.bind(py);
        // Those of a gradient name its function.
        let is_of_gradient = matches!(self.name, "hessian" | "hvp" | "sparse_hessian" | "hessian_sparsity");
        let of =
            function.cast::<Transform>().ok().filter(|_| is_of_gradient).map(|inner| inner.get().function.bind(py));
        let name =
            quietly(py, || Ok(of.unwrap_or(function).getattr("__qualname__")?.str()?.to_string_lossy().into_owned()));
        format!("{}({})", self.name, name.unwrap_or_else(|| "function".into()))
    }

    /// Traces the function for arguments of these types, in a trace nested in the current one.
    pub fn child<'py>(
        &self,
        py: Python<'py>,
        arguments: &Arguments<'py>,
        types: &[Type],
        are_mapped: Vec<bool>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Child<'py>> {
        let source = Source::Operands(arguments.leaves.iter().map(|leaf| leaf.clone().unbind()).collect(), are_mapped);
        traced_child(py, &self.text(py), arguments, types, source, |given| self.function.bind(py).call(given, named))
    }

    /// The transformed function at these arguments, in the current trace.
    pub fn apply<'py>(
        &self,
        py: Python<'py>,
        positional: &[Bound<'py, PyAny>],
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let of_values = || Ok::<_, PyErr>(!is_tracing() && current(py).is_none() && hold_values(positional)?);
        match &self.rule {
            Rule::Control(control) => return self.control(py, positional, control),
            // A graph of Values keeps all of them.
            Rule::Checkpoint if of_values()? => {
                return self.function.bind(py).call(PyTuple::new(py, positional)?, named);
            }
            _ if of_values()? => return self.apply(py, &without_values(py, positional)?, named),
            _ => {}
        }
        match &self.rule {
            Rule::Jvp { with_value } => return self.jvp(py, positional, named, *with_value),
            Rule::Vjp => return self.vjp(py, positional, named),
            Rule::Vmap { in_axes, out_axes, reduce } => {
                return self.vmap(py, positional, named, (in_axes.bind(py), out_axes.bind(py)), *reduce);
            }
            Rule::Control(_)
            | Rule::Grad { .. }
            | Rule::Jacobian
            | Rule::Sparse { .. }
            | Rule::ParamGrad
            | Rule::Checkpoint => {}
        }
        let arguments = Arguments::of(py, self.name, positional)?;
        match self.rule {
            Rule::ParamGrad => drop(self.argnums.among(positional.len())?),
            Rule::Checkpoint => {}
            _ => drop(self.variables(py, &arguments)?),
        }
        let child = self.child(py, &arguments, &arguments.types, vec![false; arguments.leaves.len()], named)?;
        match self.rule {
            Rule::Jacobian => self.jacobian(py, &arguments, &child),
            Rule::Sparse { is_pattern } => self.entries(py, &arguments, &child, is_pattern),
            Rule::ParamGrad => self.param_grad(py, &child),
            Rule::Checkpoint => checkpoint(py, &child),
            _ => self.grad(py, &arguments, &child),
        }
    }

    /// The variables of a derivative, and for each leaf of a chosen argument which of them it is.
    pub fn variables(&self, py: Python<'_>, arguments: &Arguments<'_>) -> PyResult<(Vec<Variable>, Vec<usize>)> {
        let chosen = self.argnums.among(arguments.nests.len())?;
        let mut by = Vec::new();
        for &k in &chosen {
            for leaf in arguments.leaves_of(k) {
                match self.argnums {
                    _ if arguments.is_float(leaf) => by.push(Variable::Input(leaf)),
                    Argnums::All => {}
                    _ => {
                        let message = format!(
                            "{} needs float arguments, but argument {k} contains integers{}; leave it out of argnums=, or \
                             pass floats",
                            self.text(py),
                            arguments.nests[k].place(py, leaf - arguments.leaves_of(k).start)
                        );
                        return Err(PyTypeError::new_err(message));
                    }
                }
            }
        }
        if by.is_empty() && self.argnums != Argnums::Many(Vec::new()) {
            return Err(PyTypeError::new_err(format!(
                "{} has no float argument: integers have no gradient; pass floats, such as x.astype(float)",
                self.text(py)
            )));
        }
        Ok((by, chosen))
    }

    /// Arrays for the chosen arguments, in their containers: that of the only one, or a tuple; None for integers.
    pub fn shaped<'py>(
        &self,
        py: Python<'py>,
        arguments: &Arguments<'py>,
        chosen: &[usize],
        found: &mut dyn Iterator<Item = Bound<'py, PyArray>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let none = py.None().into_bound(py);
        let mut all = Vec::with_capacity(chosen.len());
        for &k in chosen {
            let leaves = arguments.leaves_of(k).map(|leaf| match arguments.is_float(leaf) {
                true => found.next().map_or(Ok(none.clone()), |gradient| {
                    Ok(PyArray::as_derivative(gradient, arguments.kinds[leaf])?.into_any())
                }),
                false => Ok(none.clone()),
            });
            let leaves = leaves.collect::<PyResult<Vec<_>>>()?;
            all.push(arguments.nests[k].build(py, &mut leaves.into_iter())?);
        }
        match self.argnums {
            Argnums::One(_) => Ok(all.swap_remove(0)),
            Argnums::All if all.len() == 1 => Ok(all.swap_remove(0)),
            _ => Ok(PyTuple::new(py, all)?.into_any()),
        }
    }
}

#[pymethods]
impl Transform {
    /// Its function at these arguments, transformed.
    #[pyo3(signature = (*positional, **named))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        positional: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.apply(py, &positional.iter().collect::<Vec<_>>(), named)
    }

    /// The transformed function.
    #[getter]
    fn __wrapped__(&self, py: Python<'_>) -> Py<PyAny> {
        self.function.clone_ref(py)
    }

    /// Such as "grad(loss)".
    #[getter]
    fn __qualname__(&self, py: Python<'_>) -> String {
        self.text(py)
    }

    /// As `__qualname__`.
    #[getter]
    fn __name__(&self, py: Python<'_>) -> String {
        self.text(py)
    }

    /// The code of the transformed function.
    #[getter]
    fn __code__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let function = self.function.bind(py);
        match if_any(py, function.getattr("__code__"))? {
            Some(code) => Ok(code),
            None => function.getattr("__wrapped__")?.getattr("__code__"),
        }
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!("<{}>", self.text(py))
    }
}
