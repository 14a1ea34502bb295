//! Functions of arrays in files: arguments, results and programs, with the numbers of the Parameters that they read.
//!
//! Promises: a file contains no code and no classes; its parts are consistent or refused with a reason. A function from a file is
//! a body that appends its program to the trace of the call, so derivatives, batches and other functions use it like any
//! other.

use burtorch_core::array::{ArrayOp, ArrayProgram, Dims, Element, Type};
use burtorch_core::io::{self, Contents, Reader, Writer};
use burtorch_core::{DType, Error, Parameters};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use super::array_path::{ArrayPath, ArrayVariant, Parts, Signature};
use super::containers::Nest;
use crate::array::append::{append_call, innermost, parameters_at};
use crate::array::arguments::Given;
use crate::array::guard::truth;
use crate::convert::arrays::Kind;
use crate::convert::errors::{IntoPython, derived, to_python};
use crate::convert::refusals::not_in_a_trace;
use crate::convert::signals::{asked, text_of};
use crate::params::{AnyParameters, PyParameter, PyParameters, with_params};

/// The largest nesting of containers in a file.
const DEEPEST: usize = 32;

const ELEMENTS: [Element; 4] = [Element::Float, Element::Int, Element::Mask, Element::Sparse];
const KINDS: [Kind; 3] = [Kind::F16, Kind::F32, Kind::F64];

/// A path: its numbers, the Parameters that it reads as `P`, its constants, and its program.
type Path<P> = (Vec<u64>, Vec<P>, Vec<f64>, ArrayProgram);

/// A variant as numbers, which can be written without Python.
pub struct Written {
    numbers: Vec<u64>,
    keys: Vec<String>,
    paths: Vec<Path<Vec<u8>>>,
}

fn place<T: PartialEq>(all: &[T], x: &T) -> u64 {
    all.iter().position(|known| known == x).unwrap_or(all.len() - 1) as u64
}

fn write_nest(py: Python<'_>, nest: &Nest, numbers: &mut Vec<u64>, keys: &mut Vec<String>) -> PyResult<()> {
    let code = match nest {
        Nest::Leaf => 0,
        Nest::None => 1,
        Nest::Sequence { class: Some(class), .. } => {
            let name = text_of(class.bind(py));
            let message =
                format!("a file cannot contain classes, such as {name} of a named tuple; use tuples or dicts");
            return Err(PyTypeError::new_err(message));
        }
        Nest::Sequence { is_tuple: false, .. } => 2,
        Nest::Sequence { .. } => 3,
        Nest::Dict { keys: own, .. } => {
            for key in own {
                let key = text_of(key.bind(py));
                if key.contains('\n') {
                    return Err(PyTypeError::new_err("dict keys with line breaks cannot be saved"));
                }
                keys.push(key);
            }
            4
        }
    };
    numbers.push(code);
    if code > 1 {
        numbers.push(nest.items().len() as u64);
        nest.items().iter().try_for_each(|item| write_nest(py, item, numbers, keys))?;
    }
    Ok(())
}

/// The float types of arguments whose arrays of floats all have this one.
fn usual_kinds(types: &[Type], kind: Kind) -> impl Iterator<Item = Option<Kind>> {
    let has_one = |ty: &Type| matches!(ty.element, Element::Float | Element::Sparse) && ty.dims.rank() > 0;
    types.iter().map(move |ty| has_one(ty).then_some(kind))
}

/// Float types, unless they are the usual ones.
fn write_kinds(
    numbers: &mut Vec<u64>,
    usual: impl Iterator<Item = Option<Kind>>,
    kinds: impl Iterator<Item = Option<Kind>> + Clone,
) {
    if !usual.eq(kinds.clone()) {
        numbers.extend(kinds.map(|kind| kind.map_or(KINDS.len() as u64, |kind| place(&KINDS, &kind))));
    }
}

impl Written {
    /// The written content of a variant.
    pub fn of(py: Python<'_>, variant: &ArrayVariant, uses_arrays: bool) -> PyResult<Self> {
        let Signature { nest, types, kinds } = &variant.signature;
        let kind = variant.signature.kind();
        let mut numbers = vec![u64::from(uses_arrays), place(&KINDS, &kind), variant.paths.len() as u64];
        let mut keys = Vec::new();
        write_nest(py, nest, &mut numbers, &mut keys)?;
        for ty in types {
            numbers.extend([place(&ELEMENTS, &ty.element), ty.dims.rank() as u64]);
            numbers.extend(ty.dims.iter().map(|&n| n as u64));
        }
        write_kinds(&mut numbers, usual_kinds(types, kind), kinds.iter().copied());
        let mut paths = Vec::with_capacity(variant.paths.len());
        for path in &variant.paths {
            let Parts { program, answers, results, kinds, sets, numbers: read } = path.parts();
            let kind = kinds.first().copied().unwrap_or(kind);
            let mut own = vec![place(&KINDS, &kind), sets.len() as u64, answers.len() as u64];
            own.extend(answers.iter().map(|&answer| u64::from(answer)));
            write_nest(py, results, &mut own, &mut keys)?;
            write_kinds(&mut own, kinds.iter().map(|_| Some(kind)), kinds.iter().map(|&own| Some(own)));
            let bytes = |set: &Py<PyParameters>| {
                let written = |params: &mut AnyParameters| with_params!(params, p => p.to_bytes(Contents::Values));
                set.get().with(py, |params| asked(|| written(params)))?.or_raise(py)
            };
            let sets = sets.iter().map(bytes).collect::<PyResult<Vec<_>>>()?;
            let read = read.iter().map(|number| number.get().number()).collect();
            paths.push((own, sets, read, program.clone()));
        }
        Ok(Written { numbers, keys, paths })
    }

    /// Appends its sections.
    pub fn write(&self, writer: &mut Writer) -> burtorch_core::Result<()> {
        writer.section(*b"AFUN", &self.numbers)?;
        writer.text(*b"AKEY", &self.keys.join("\n"))?;
        for (numbers, sets, read, program) in &self.paths {
            writer.section(*b"APTH", numbers)?;
            sets.iter().try_for_each(|set| writer.section(*b"ASET", set))?;
            writer.section(*b"APAR", read)?;
            program.write(writer)?;
        }
        Ok(())
    }
}

/// The content of a file of functions of arrays, before Python objects are made.
pub struct Content {
    numbers: Vec<u64>,
    keys: String,
    paths: Vec<Path<AnyParameters>>,
}

impl Content {
    /// Reads the sections, if the next one is theirs.
    pub fn read(reader: &mut Reader<'_>) -> burtorch_core::Result<Option<Self>> {
        if !reader.next_is(*b"AFUN") {
            return Ok(None);
        }
        let numbers = reader.section::<u64>(*b"AFUN")?.to_vec()?;
        let keys = reader.text(*b"AKEY")?.to_string();
        let mut paths = Vec::new();
        // Each path takes bytes, so a wrong count ends with a missing section.
        for _ in 0..numbers.get(2).copied().unwrap_or(0) {
            let own = reader.section::<u64>(*b"APTH")?.to_vec()?;
            let mut sets = Vec::new();
            for _ in 0..own.get(1).copied().unwrap_or(0) {
                let bytes = reader.section::<u8>(*b"ASET")?.to_vec()?;
                sets.push(match Reader::open(&bytes, io::Kind::PARAMETERS)?.header().dtype {
                    Some(DType::Float64) => AnyParameters::F64(Parameters::from_bytes(&bytes)?),
                    _ => AnyParameters::F32(Parameters::from_bytes(&bytes)?),
                });
            }
            let read = reader.section::<f64>(*b"APAR")?.to_vec()?;
            paths.push((own, sets, read, ArrayProgram::read(reader)?));
        }
        Ok(Some(Content { numbers, keys, paths }))
    }

    /// The variant, whether all calls use it, and a body that does the same in a trace.
    pub fn variant<'py>(self, py: Python<'py>, name: &str, id: u64) -> PyResult<Made<'py>> {
        let refuse = |reason: &str| to_python(py, Error::Format { offset: 0, reason: reason.into() });
        let mut keys = self.keys.split('\n');
        let mut numbers = Stream(self.numbers.iter());
        let arguments = (|| {
            let (uses_arrays, kind) = (numbers.next()? != 0, *KINDS.get(numbers.next()?)?);
            numbers.next()?;
            let nest = numbers.nest(py, &mut keys, 0)?;
            let types = (0..nest.len()).map(|_| numbers.type_of()).collect::<Option<Vec<_>>>()?;
            let is_tuple = matches!(&nest, Nest::Sequence { is_tuple: true, .. });
            let kinds = numbers.kinds(usual_kinds(&types, kind).collect())?;
            is_tuple.then_some((uses_arrays, Signature { nest, types, kinds }))
        })();
        let (uses_arrays, signature) = arguments.ok_or_else(|| refuse("the types of the arguments are damaged"))?;
        let mut paths = Vec::new();
        let mut saved = Vec::new();
        for (own, sets, read, program) in self.paths {
            let mut own = Stream(own.iter());
            let results = (|| {
                let kind = *KINDS.get(own.next()?)?;
                own.next()?;
                let answers =
                    (0..own.next()?).map(|_| own.next().map(|answer| answer != 0)).collect::<Option<Vec<_>>>()?;
                let nest = own.nest(py, &mut keys, 0)?;
                let kinds = own.kinds(vec![Some(kind); nest.len()])?;
                Some((kinds.into_iter().map(|own| own.unwrap_or(kind)).collect(), answers, nest))
            })();
            let (kinds, answers, nest) = results.ok_or_else(|| refuse("the results of a program are damaged"))?;
            let mut inputs = signature.types.clone();
            inputs.extend(read.iter().map(|_| Type::float(Dims::SCALAR)));
            let guard = Type { dims: Dims::SCALAR, element: Element::Mask };
            let outputs = program.output_types();
            let has_guards = outputs
                .len()
                .checked_sub(answers.len())
                .is_some_and(|n| n == nest.len() && n > 0 && outputs[n..].iter().all(|&ty| ty == guard));
            let has_sets = program.sets().iter().all(|&set| (set as usize) < sets.len());
            let is_own = |set: &AnyParameters| match program.dtype() {
                DType::Float32 => matches!(set, AnyParameters::F32(_)),
                _ => matches!(set, AnyParameters::F64(_)),
            };
            if program.input_types() != inputs || !has_guards || !has_sets || !sets.iter().all(is_own) {
                return Err(refuse("a program does not fit its arguments, results and Parameters"));
            }
            let sets =
                sets.into_iter().map(|set| Py::new(py, PyParameters::around(set))).collect::<PyResult<Vec<_>>>()?;
            let read = read.into_iter().map(|x| Py::new(py, PyParameter::of(x))).collect::<PyResult<Vec<_>>>()?;
            let results = nest.copy(py);
            let numbers = read.iter().map(|number| number.clone_ref(py)).collect();
            let own_sets = sets.iter().map(|set| set.clone_ref(py)).collect();
            saved.push(Saved { program: program.clone(), answers: answers.clone(), results, sets: own_sets, numbers });
            paths.push(ArrayPath::new(py, program, answers, nest, kinds, (sets, read))?);
        }
        let Some(first) = paths.first() else { return Err(refuse("a function without a path")) };
        let dtype = first.program.dtype();
        let body = body_of(py, name.to_string(), signature.copy(py), saved)?;
        Ok(Made {
            variant: ArrayVariant { id, signature, statics: None, is_trial: false, paths },
            uses_arrays,
            dtype,
            body,
        })
    }
}

/// A function of arrays from a file.
pub struct Made<'py> {
    pub variant: ArrayVariant,
    /// Whether all calls use it.
    pub uses_arrays: bool,
    pub dtype: DType,
    pub body: Bound<'py, PyAny>,
}

/// Numbers of a file, in order.
struct Stream<'a>(std::slice::Iter<'a, u64>);

impl Stream<'_> {
    fn next(&mut self) -> Option<usize> {
        usize::try_from(*self.0.next()?).ok()
    }

    fn type_of(&mut self) -> Option<Type> {
        let element = *ELEMENTS.get(self.next()?)?;
        let rank = self.next()?;
        let extents = (0..rank).map(|_| self.next()).collect::<Option<Vec<_>>>()?;
        Some(Type { dims: Dims::new(&extents).ok()?, element })
    }

    /// The float types at the end, the usual ones if there are none; `None` if the numbers describe something else.
    fn kinds(&mut self, usual: Vec<Option<Kind>>) -> Option<Vec<Option<Kind>>> {
        if self.0.as_slice().is_empty() {
            return Some(usual);
        }
        let kinds = usual.iter().map(|_| {
            let at = self.next().filter(|&at| at <= KINDS.len())?;
            Some(KINDS.get(at).copied())
        });
        let kinds = kinds.collect::<Option<Vec<_>>>()?;
        self.0.as_slice().is_empty().then_some(kinds)
    }

    /// `None` if the numbers do not describe containers.
    fn nest(&mut self, py: Python<'_>, keys: &mut std::str::Split<'_, char>, depth: usize) -> Option<Nest> {
        let code = self.next().filter(|_| depth <= DEEPEST)?;
        if code < 2 {
            return Some(if code == 0 { Nest::Leaf } else { Nest::None });
        }
        let n = self.next().filter(|&n| n <= self.0.len())?;
        let own = match code {
            4 => {
                (0..n).map(|_| Some(PyString::new(py, keys.next()?).into_any().unbind())).collect::<Option<Vec<_>>>()?
            }
            _ => Vec::new(),
        };
        let items = (0..n).map(|_| self.nest(py, keys, depth + 1)).collect::<Option<Vec<_>>>()?;
        match code {
            2 | 3 => Some(Nest::Sequence { is_tuple: code == 3, class: None, items }),
            4 => Some(Nest::Dict { keys: own, items }),
            _ => None,
        }
    }
}

/// A path of a function from a file, for traces.
struct Saved {
    program: ArrayProgram,
    answers: Vec<bool>,
    results: Nest,
    sets: Vec<Py<PyParameters>>,
    numbers: Vec<Py<PyParameter>>,
}

impl Saved {
    /// Appends the program to the trace of the leaves; `None` if its guards disagree.
    fn call<'py>(&self, py: Python<'py>, leaves: &[Bound<'py, PyAny>]) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(trace) = innermost(py, leaves) else { return Err(not_in_a_trace(py, "this")) };
        let numbers = self.numbers.iter().map(|number| number.bind(py).as_any().clone());
        let mut operands: Vec<_> = leaves.iter().cloned().chain(numbers).collect();
        let (program, params) = self.program.with_parameters_as_inputs().or_raise(py)?;
        for op in params {
            if let ArrayOp::Param { set, start, dims } = op
                && let Some(params) = self.sets.get(set as usize)
            {
                operands.push(parameters_at(&trace, params, start, dims)?.into_any());
            }
        }
        let mut found = append_call(&trace, program, &operands)?;
        let guards = found.split_off(self.results.len());
        for (guard, &answer) in guards.iter().zip(&self.answers) {
            if truth(guard)? != answer {
                return Ok(None);
            }
        }
        self.results.build(py, &mut found.into_iter().map(Bound::into_any)).map(Some)
    }
}

/// The body of a function from a file: for Arrays of the types that it was saved for.
fn body_of<'py>(py: Python<'py>, name: String, signature: Signature, paths: Vec<Saved>) -> PyResult<Bound<'py, PyAny>> {
    let body = move |positional: &Bound<'_, PyTuple>, named: Option<&Bound<'_, PyDict>>| -> PyResult<Py<PyAny>> {
        let py = positional.py();
        let mut leaves = Vec::new();
        let nest = Nest::of(positional.as_any(), &mut leaves)?;
        let mut types = Vec::with_capacity(leaves.len());
        for leaf in &leaves {
            types.extend(Given::of(leaf)?.map(|given| given.type_of()));
        }
        let is_known = types == signature.types && nest.same(py, &signature.nest);
        let dtypes = innermost(py, &leaves).map(|trace| trace.get().dtype());
        for path in paths.iter().filter(|_| is_known && named.is_none_or(|named| named.is_empty())) {
            let dtype = path.program.dtype();
            if dtypes != Some(dtype) {
                let dtype = dtype.name();
                let message =
                    format!("{name} was saved for {dtype}; call it in functions of {dtype}, with dtype={dtype:?}");
                return Err(PyTypeError::new_err(message));
            }
            if let Some(results) = path.call(py, &leaves)? {
                return Ok(results.unbind());
            }
        }
        Err(derived(py, "TraceError", super::file::no_trace(&name)))
    };
    Ok(pyo3::types::PyCFunction::new_closure(py, Some(c"loaded"), None, body)?.into_any())
}
