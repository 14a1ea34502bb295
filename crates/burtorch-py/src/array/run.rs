//! Plans of array programs with the memory of a call: conversion buffers for arguments of other types.
//!
//! Promises: a call makes no heap allocation in the core, and here only for lists of arguments; after any failure the plan can be
//! run again. Does not know the use of the results.

use std::time::{Duration, Instant};

use burtorch_core::array::{Argument, ArrayFloat, ArrayProgram, Csr, Data, Element, Places, Plan, PlanEntries, Type};
use burtorch_core::{DType, Float};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use super::arguments::Given;
use super::large_results::Spares;
use crate::convert::arrays::{Array, InPlace, Kind, copied, of_integers};
use crate::convert::errors::IntoPython;
use crate::convert::refusals::error_here;
use crate::convert::signals::asked;
use crate::convert::threads::detached;
use crate::params::{AnyParameters, PyParameter, PyParameters};

/// A float type of programs.
pub trait Number: ArrayFloat + PlanEntries + Float + InPlace {
    /// The numbers of Parameters of this type.
    fn values(params: &AnyParameters) -> Option<&[Self]>;
    /// The floats of result `k` of a runner of this type.
    fn floats(runner: &AnyRunner, k: usize) -> Option<&[Self]>;
}

impl Number for f64 {
    fn values(params: &AnyParameters) -> Option<&[f64]> {
        if let AnyParameters::F64(params) = params { Some(params.values()) } else { None }
    }
    fn floats(runner: &AnyRunner, k: usize) -> Option<&[f64]> {
        if let AnyRunner::F64(runner) = runner { runner.plan.floats(k).ok() } else { None }
    }
}

impl Number for f32 {
    fn values(params: &AnyParameters) -> Option<&[f32]> {
        if let AnyParameters::F32(params) = params { Some(params.values()) } else { None }
    }
    fn floats(runner: &AnyRunner, k: usize) -> Option<&[f32]> {
        if let AnyRunner::F32(runner) = runner { runner.plan.floats(k).ok() } else { None }
    }
}

/// Converted numbers of an argument.
struct Room<E> {
    floats: Vec<E>,
    ints: Vec<i64>,
    masks: Vec<bool>,
    starts: Vec<i64>,
}

/// Inputs of a program besides its arguments.
#[derive(Clone, Copy)]
pub struct Read<'a> {
    /// Parameters, by number.
    pub sets: &'a [Py<PyParameters>],
    /// Numbers, the last inputs.
    pub numbers: &'a [Py<PyParameter>],
}

/// Converted numbers of all arguments of a program.
pub struct Rooms<E>(Vec<Room<E>>);

/// A plan and its buffers.
pub struct Runner<E> {
    plan: Plan<E>,
    rooms: Rooms<E>,
    spares: Spares<E>,
    /// Whether the last run was long enough to release the GIL; before the first one, whether it may be.
    is_long: bool,
    /// Whether runs are timed for that.
    is_timed: bool,
}

/// A run of this time and more releases the GIL the next time, which costs less than a microsecond.
const LONG: Duration = Duration::from_micros(100);
/// Bytes of a plan whose runs may take that long, and of one whose first run is expected to.
const TIMED: usize = 1 << 14;
const LARGE: usize = 1 << 20;

/// Bytes of a result that is not copied out of the plan.
const HANDED: usize = 1 << 17;

/// A plan of either float type.
pub enum AnyRunner {
    /// float64
    F64(Box<Runner<f64>>),
    /// float32
    F32(Box<Runner<f32>>),
}

/// Evaluates an expression on the runner, whatever its type.
macro_rules! with_runner {
    ($any:expr, $runner:ident => $body:expr) => {
        match $any {
            AnyRunner::F64($runner) => $body,
            AnyRunner::F32($runner) => $body,
        }
    };
}

fn wrong_dtype(params: &PyParameters, dtype: DType) -> PyErr {
    let (found, dtype) = (params.dtype_of().name(), dtype.name());
    PyTypeError::new_err(format!(
        "a function of {dtype} takes tensors of {dtype} Parameters, found {found}; give bt.function dtype={found:?}"
    ))
}

impl<E: Number> Runner<E> {
    fn new(program: &ArrayProgram) -> burtorch_core::Result<Self> {
        let plan = E::plan(program)?;
        let (bytes, loops) = (plan.bytes(), plan.loops());
        let rooms = Rooms::new(program);
        let spares = Spares::new(program.outputs().len());
        Ok(Runner { plan, rooms, spares, is_long: loops || bytes >= LARGE, is_timed: loops || bytes >= TIMED })
    }

    fn run(&mut self, py: Python<'_>, given: &[Given<'_>], read: Read<'_>) -> PyResult<()> {
        let Runner { plan, rooms, spares, is_long, is_timed } = self;
        E::give(plan, &mut |n| spares.find(n)).or_raise(py)?;
        if !*is_timed {
            return rooms.filled(py, given, read, false, |arguments, parameters| {
                asked(|| E::run(plan, arguments, parameters)).or_raise(py)
            });
        }
        // Another thread could change indices after they have been checked: dense ones are copied.
        let releases = *is_long && !given.iter().any(|given| matches!(given, Given::Sparse(..)));
        rooms.filled(py, given, read, releases, |arguments, parameters| {
            let began = Instant::now();
            let mut run = || asked(|| E::run(plan, arguments, parameters));
            let done = if releases { detached(py, run) } else { run() };
            *is_long = began.elapsed() >= LONG;
            done.or_raise(py)
        })
    }

    fn result<'py>(&mut self, py: Python<'py>, k: usize, kind: Kind) -> PyResult<Bound<'py, PyAny>> {
        let Some(ty) = self.plan.outputs().nth(k) else { return Ok(py.None().into_bound(py)) };
        let is_handed = ty.element == Element::Float && kind == E::KIND && ty.dims.size() * size_of::<E>() >= HANDED;
        if is_handed && let Some(numbers) = E::take(&mut self.plan, k).or_raise(py)? {
            return self.spares.array(py, &ty.dims, numbers);
        }
        if ty.element == Element::Int {
            let numbers = self.plan.ints(k).or_raise(py)?;
            return match (ty.dims.rank(), numbers) {
                (0, [x]) => Ok(x.into_pyobject(py)?.into_any()),
                _ => of_integers(py, &ty.dims, numbers),
            };
        }
        let numbers = self.plan.floats(k).or_raise(py)?;
        match (ty.dims.rank(), numbers, ty.element) {
            (0, [x], Element::Mask) => Ok((x.to_f64() != 0.0).into_pyobject(py)?.to_owned().into_any()),
            (0, [x], _) => Ok(x.to_f64().into_pyobject(py)?.into_any()),
            (_, _, Element::Mask) => copied(py, &ty.dims, Kind::F64, numbers)?.call_method1("astype", ("bool",)),
            _ => copied(py, &ty.dims, kind, numbers),
        }
    }
}

impl<E: Number> Rooms<E> {
    /// For the inputs of a program.
    pub fn new(program: &ArrayProgram) -> Self {
        let room = |_| Room { floats: Vec::new(), ints: Vec::new(), masks: Vec::new(), starts: Vec::new() };
        Rooms(program.inputs().iter().map(room).collect())
    }

    /// Runs a plan on these arguments, whose integers are copied if asked for, and on the current values of its other inputs.
    pub fn filled<T>(
        &mut self,
        py: Python<'_>,
        given: &[Given<'_>],
        read: Read<'_>,
        copies_integers: bool,
        run: impl FnOnce(&[Argument<'_, E>], &[&[E]]) -> PyResult<T>,
    ) -> PyResult<T> {
        let Read { sets, numbers } = read;
        let numbers: Vec<_> = numbers.iter().map(|number| Given::Number(number.get().number())).collect();
        for (room, given) in self.0.iter_mut().zip(given.iter().chain(&numbers)) {
            room.fill(given, copies_integers)?;
        }
        let read = sets.iter().map(|set| set.get().look(py)).collect::<PyResult<Vec<_>>>()?;
        let mut parameters = Vec::with_capacity(read.len());
        for (set, read) in sets.iter().zip(&read) {
            parameters.push(E::values(read).ok_or_else(|| wrong_dtype(set.get(), <E as Float>::DTYPE))?);
        }
        let mut tensors = Vec::new();
        for given in given {
            if let Given::Tensor(params, ..) = given {
                tensors.push((params.get(), params.get().look(py)?));
            }
        }
        let mut tensors = tensors.iter();
        let mut arguments = Vec::with_capacity(self.0.len());
        for (room, given) in self.0.iter().zip(given.iter().chain(&numbers)) {
            arguments.push(match given {
                Given::Tensor(_, start, ty) => {
                    let Some((params, read)) = tensors.next() else { continue };
                    let values = E::values(read).ok_or_else(|| wrong_dtype(params, <E as Float>::DTYPE))?;
                    Argument::Float(values.get(*start..start + ty.dims.size()).unwrap_or(&[]))
                }
                Given::Numbers(array, Type { element: Element::Float, .. }) => {
                    Argument::Float(array.in_place().unwrap_or(&room.floats))
                }
                Given::Numbers(array, Type { element: Element::Int, .. }) => {
                    Argument::Int(array.in_place().filter(|_| !copies_integers).unwrap_or(&room.ints))
                }
                Given::Numbers(..) => Argument::Mask(&room.masks),
                Given::Sparse([numbers, columns, starts], _) => Argument::Sparse(Csr {
                    numbers: numbers.in_place().unwrap_or(&room.floats),
                    places: match (columns.in_place(), starts.in_place()) {
                        (Some(columns), Some(starts)) => Places::I32(columns, starts),
                        _ => Places::I64(
                            columns.in_place().unwrap_or(&room.ints),
                            starts.in_place().unwrap_or(&room.starts),
                        ),
                    },
                }),
                Given::Integer(_) => Argument::Int(&room.ints),
                Given::Mask(_) => Argument::Mask(&room.masks),
                Given::Number(_) => Argument::Float(&room.floats),
                Given::Traced(_) => return Err(error_here(py, "an Array of a trace has no numbers")),
            });
        }
        run(&arguments, &parameters)
    }
}

impl<E: Number> Room<E> {
    fn fill(&mut self, given: &Given<'_>, copies_integers: bool) -> PyResult<()> {
        match given {
            Given::Number(x) => {
                self.floats.clear();
                self.floats.push(E::from_f64(*x));
            }
            Given::Integer(k) => {
                self.ints.clear();
                self.ints.push(*k);
            }
            Given::Mask(is_true) => {
                self.masks.clear();
                self.masks.push(*is_true);
            }
            Given::Numbers(array, Type { element: Element::Int, .. }) if copies_integers => {
                self.ints = array.integers()?;
            }
            Given::Numbers(array, ty) => self.fill_array(array, ty.element)?,
            Given::Sparse([numbers, columns, starts], _) => {
                self.fill_array(numbers, Element::Float)?;
                if columns.in_place::<i32>().is_none() || starts.in_place::<i32>().is_none() {
                    self.fill_array(columns, Element::Int)?;
                    if starts.in_place::<i64>().is_none() {
                        self.starts = starts.integers()?;
                    }
                }
            }
            Given::Tensor(..) | Given::Traced(_) => {}
        }
        Ok(())
    }

    fn fill_array(&mut self, array: &Array, element: Element) -> PyResult<()> {
        match element {
            Element::Float if array.in_place::<E>().is_none() => {
                self.floats.clear();
                match (array.in_place::<f64>(), array.in_place::<f32>()) {
                    (Some(numbers), _) => self.floats.extend(numbers.iter().map(|&x| E::from_f64(x))),
                    (_, Some(numbers)) => self.floats.extend(numbers.iter().map(|&x| E::from_f64(x.into()))),
                    _ => self.floats.extend(array.floats().into_iter().map(E::from_f64)),
                }
            }
            Element::Int if array.in_place::<i64>().is_none() => self.ints = array.integers()?,
            Element::Mask => {
                self.masks.clear();
                self.masks.extend(array.integers()?.iter().map(|&x| x != 0));
            }
            _ => {}
        }
        Ok(())
    }
}

impl AnyRunner {
    /// Plans a program. May be interrupted.
    pub fn new(py: Python<'_>, program: &ArrayProgram) -> PyResult<Self> {
        let made = asked(|| match program.dtype() {
            DType::Float32 => Ok(AnyRunner::F32(Box::new(Runner::new(program)?))),
            _ => Ok(AnyRunner::F64(Box::new(Runner::new(program)?))),
        });
        made.or_raise(py)
    }

    /// Runs the program on these arguments and on the current values of its other inputs.
    pub fn run(&mut self, py: Python<'_>, given: &[Given<'_>], read: Read<'_>) -> PyResult<()> {
        with_runner!(self, runner => runner.run(py, given, read))
    }

    /// Result `k` of the last run: a number for shape (), else a NumPy array, with floats of this type. It is asked for once.
    pub fn result<'py>(&mut self, py: Python<'py>, k: usize, kind: Kind) -> PyResult<Bound<'py, PyAny>> {
        with_runner!(self, runner => runner.result(py, k, kind))
    }

    /// Whether the mask that is result `k`, of shape (), is true.
    pub fn holds(&self, py: Python<'_>, k: usize) -> PyResult<bool> {
        with_runner!(self, runner => Ok(runner.plan.floats(k).or_raise(py)?.first().is_some_and(|x| x.to_f64() != 0.0)))
    }

    /// The numbers of result `k`.
    pub fn data(&self, py: Python<'_>, k: usize) -> PyResult<Data> {
        with_runner!(self, runner => runner.plan.data(k).or_raise(py))
    }

    /// Bytes of its buffers.
    pub fn bytes(&self) -> usize {
        with_runner!(self, runner => runner.plan.bytes() + runner.spares.bytes())
    }
}
