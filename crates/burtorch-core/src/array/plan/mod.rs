//! A program compiled for fixed shapes.
//!
//! Promises: after its creation a plan allocates nothing, but for results that were taken out; a refused run gives no results; results remain until the next
//! run. Does not know derivatives.

mod argument;
mod math;
mod memory;
mod place;

mod chained;
mod draft;
mod in_place;
mod reducer;

mod recomputed;

mod actions;
mod chain;
mod fused;
mod scalars;
mod schedule;
mod shared;
mod work;

mod numbers;

mod compile;

mod fold;

mod concat;
mod dot;
mod factors;
mod indexed;
mod integers;
mod single;
mod sorted;

mod direct_results;
mod inner;
mod invariant;
mod jumps;
#[cfg(target_arch = "x86_64")]
mod native;
mod never_unreached;
mod number_loop;
mod peephole;
mod signs;

mod control;

mod choice;

mod blocks_once;
mod columns_of_rows;
mod rows;
mod sparse;

mod flat;
mod flatten;
mod uses;

mod body;
mod entry;
mod gradients_in_parts;
mod moved_out;
mod steps;

use super::columns::in_columns;
use super::dims::{Dims, bad};
use super::instr::{ArrayOp, ArrayProgram, Data, Element, Type};
use super::lower::lowered;
use crate::error::Result;
use crate::interrupt;
use crate::memory::list_for;
use crate::scalar::DType;
use crate::simd::Real;
pub use argument::{Argument, Csr, Places};
use chain::{BLOCK, Chain};
use choice::Choice;
use control::LoopStep;
use draft::{Carried, Drafts, Kept};
pub use entry::PlanEntries;
use factors::Factors;
use gradients_in_parts::Passing;
pub use gradients_in_parts::{PassingPlan, TakePart};
use inner::Pass;
pub(super) use integers::{compare as compare_integers, row as integer_row};
pub use math::ArrayFloat;
pub(crate) use math::compute_formula;
use memory::{Bank, assigned, bank, room};
pub use moved_out::Floats;
pub(super) use moved_out::Run;
use numbers::Numbers;
use place::Source;
use rows::RowsStep;
use single::{Alone, own_numbers};
use sparse::SparseStep;
use steps::steps;

#[derive(Debug)]
enum Step<E> {
    Chain(Box<Chain<E>>),
    Numbers(Numbers<E>),
    Alone(Box<Alone<E>>),
    Factors(Box<Factors<E>>),
    Loop(Box<LoopStep<E>>),
    Choice(Box<Choice<E>>),
    Rows(Box<RowsStep<E>>),
    Sparse(Box<SparseStep>),
    Mask { input: usize, to: usize },
}

/// Numbers that are read from parameters: of which, and up to where.
#[derive(Clone, Copy, Debug)]
struct Parameter {
    set: usize,
    end: usize,
}

/// An [`ArrayProgram`] made ready: memory assigned, views resolved, elementwise instructions fused.
///
/// Making it costs time proportional to the number of instructions, and the memory of the values that live at one time.
#[derive(Debug)]
pub struct Plan<E> {
    inputs: Vec<Type>,
    parameters: Vec<Parameter>,
    steps: Vec<Step<E>>,
    floats: Bank<E>,
    ints: Bank<i64>,
    blocks: Vec<Vec<E>>,
    /// Buffers of arguments, of a body.
    arguments: Vec<usize>,
    outputs: Vec<(usize, Type)>,
    /// Of a body, results whose buffers are no argument's and no other result's.
    own: Vec<bool>,
    /// Results that are passed on, each after the step that makes it final.
    finals: Vec<(usize, usize)>,
    has_run: bool,
    singular: Option<&'static str>,
}

impl<E: ArrayFloat> Plan<E> {
    /// Makes a program ready.
    pub fn new(program: &ArrayProgram) -> Result<Self> {
        Self::ready(&Self::lowered(program)?, None, None)
    }

    /// A program in the form from which steps are made.
    fn lowered(program: &ArrayProgram) -> Result<ArrayProgram> {
        if program.dtype() != E::DTYPE {
            return Err(bad("numbers of a plan", program.dtype().name().into(), E::DTYPE.name().into()));
        }
        in_columns(fold::folded::<E>(lowered(program)?)?)
    }

    /// The plan of a lowered program, with arguments given at each run, or written into buffers.
    fn ready(program: &ArrayProgram, body: Option<Carried>, passing: Option<&Passing>) -> Result<Self> {
        match passing {
            Some(passing) if passing.has_order() => Self::prepared(&passing.ordered(program)?, body, Some(passing)),
            _ => Self::prepared(program, body, passing),
        }
    }

    /// The same in the order of the program.
    fn prepared(program: &ArrayProgram, body: Option<Carried>, passing: Option<&Passing>) -> Result<Self> {
        let mut drafts = Drafts::new(program, body)?;
        passing.iter().for_each(|passing| passing.shorten(&mut drafts));
        let (buffers, [floats, ints]) = assigned(&drafts.needs);
        let (steps, before) = steps(&mut drafts, &buffers, passing)?;
        let finals = passing.map_or_else(Vec::new, |passing| passing.finals(&drafts, &before));
        let n_blocks = steps.iter().map(|step| if let Step::Chain(chain) = step { chain.blocks } else { 0 }).max();
        let blocks = (0..n_blocks.unwrap_or(0)).map(|_| room(BLOCK)).collect::<Result<_>>()?;
        let of_floats = |kept: &Kept| match kept {
            Kept::Float(x) => Some(vec![<E as Real>::of(*x)]),
            Kept::Data(data) => own_numbers(&data.0),
            Kept::Int(_) => None,
        };
        let of_ints = |kept: &Kept| match kept {
            Kept::Int(x) => Some(vec![*x]),
            _ => None,
        };
        let parameters = program.params().iter().map(|&v| parameter(program, v)).collect();
        let outputs: Vec<_> =
            drafts.outputs.iter().zip(program.output_types()).map(|(&need, ty)| (buffers[need], ty)).collect();
        let inputs = program.input_types();
        let arguments: Vec<_> =
            if body.is_some() { program.inputs().iter().map(|v| buffers[v.at()]).collect() } else { Vec::new() };
        Ok(Plan {
            own: body::own(&outputs, &arguments, &inputs),
            inputs,
            parameters,
            floats: bank(&drafts.consts, (&floats, drafts.stacks.len()), of_floats)?,
            ints: bank(&drafts.consts, (&ints, drafts.stacks.len()), of_ints)?,
            steps,
            blocks,
            arguments,
            outputs,
            finals,
            has_run: false,
            singular: None,
        })
    }

    /// Runs the program on these arguments and these parameters. Costs no heap call.
    ///
    /// Arguments of another number, element or length, parameters that are too short and indices outside of their axis are
    /// refused; then there are no results.
    pub fn run(&mut self, arguments: &[Argument<'_, E>], parameters: &[&[E]]) -> Result<()> {
        self.give(|_| None)?;
        self.run_with(arguments, parameters, None)
    }

    fn run_with(
        &mut self,
        arguments: &[Argument<'_, E>],
        parameters: &[&[E]],
        pass: Option<&mut Pass<'_, E>>,
    ) -> Result<()> {
        self.check(arguments, parameters)?;
        interrupt::in_kernels(|| self.run_steps(arguments, parameters, pass))
    }

    fn run_steps(
        &mut self,
        arguments: &[Argument<'_, E>],
        parameters: &[&[E]],
        mut pass: Option<&mut Pass<'_, E>>,
    ) -> Result<()> {
        self.has_run = false;
        self.singular = None;
        let Plan { parameters: from, steps, floats, ints, blocks, singular, outputs, finals, .. } = self;
        let given = |source| match source {
            Source::Input(k) => match arguments[k] {
                Argument::Float(x) => x,
                _ => &[],
            },
            Source::Param(k) => parameters[from[k].set],
            _ => &[],
        };
        let given_ints = |source| match source {
            Source::Input(k) => match arguments[k] {
                Argument::Int(x) => x,
                _ => &[],
            },
            _ => &[],
        };
        let mut checked = sparse::Checked::none();
        for (at, step) in steps.iter_mut().enumerate() {
            match step {
                Step::Chain(chain) => chain.run(floats, blocks, &given)?,
                Step::Numbers(numbers) => numbers.run(floats, &given)?,
                Step::Alone(alone) => alone.run(floats, ints, &given, &given_ints)?,
                Step::Factors(factors) => *singular = singular.or(factors.run(floats, ints, &given, &given_ints)?),
                Step::Loop(step) => *singular = singular.or(step.run(floats, ints, &given, &given_ints)?),
                Step::Choice(step) => *singular = singular.or(step.run(floats, ints, &given, &given_ints)?),
                Step::Rows(step) => {
                    let pass = pass.as_deref_mut();
                    *singular = singular.or(step.run(floats, ints, arguments, (&given, &given_ints), pass)?);
                }
                Step::Sparse(step) => step.run(floats, arguments, &mut checked, &given)?,
                Step::Mask { input, to } => {
                    if let Argument::Mask(mask) = arguments[*input] {
                        for (to, &holds) in floats.buffers[*to].iter_mut().zip(mask) {
                            *to = <E as Real>::of(f64::from(u8::from(holds)));
                        }
                    }
                }
            }
            if let Some(pass) = &mut pass {
                for &(_, k) in finals.iter().filter(|(step, _)| *step == at) {
                    let (buffer, ty) = outputs[k];
                    pass(k, &floats.buffers[buffer][..ty.dims.size()])?;
                }
            }
        }
        self.has_run = true;
        Ok(())
    }

    fn check(&self, arguments: &[Argument<'_, E>], parameters: &[&[E]]) -> Result<()> {
        if arguments.len() != self.inputs.len() {
            return Err(bad("arguments", self.inputs.len().to_string(), arguments.len().to_string()));
        }
        for (argument, ty) in arguments.iter().zip(&self.inputs) {
            let (element, len) = match argument {
                Argument::Float(x) => (Element::Float, x.len()),
                Argument::Int(x) => (Element::Int, x.len()),
                Argument::Mask(x) => (Element::Mask, x.len()),
                Argument::Sparse(_) if ty.element != Element::Sparse => (Element::Sparse, 0),
                Argument::Sparse(rows) => {
                    sparse::check(rows, &ty.dims)?;
                    continue;
                }
            };
            if element != ty.element || len != ty.dims.size() {
                let expected = format!("{} of {:?}", ty.dims.size(), ty.element);
                return Err(bad("numbers of an argument", expected, format!("{len} of {element:?}")));
            }
        }
        for Parameter { set, end } in &self.parameters {
            let have = parameters.get(*set).map_or(0, |x| x.len());
            if have < *end {
                return Err(bad("numbers of parameters", format!("at least {end}"), have.to_string()));
            }
        }
        Ok(())
    }

    /// The types of the results.
    pub fn outputs(&self) -> impl ExactSizeIterator<Item = Type> {
        self.outputs.iter().map(|(_, ty)| *ty)
    }

    fn output(&self, k: usize, elements: &[Element]) -> Result<(usize, Dims)> {
        match self.outputs.get(k) {
            Some((buffer, ty)) if elements.contains(&ty.element) && self.has_run && !self.is_out(k) => {
                Ok((*buffer, ty.dims))
            }
            _ if !self.has_run || self.is_out(k) => {
                Err(bad("results", "those of a run that ended well".into(), "none yet".into()))
            }
            Some((_, ty)) => Err(bad("element of a result", format!("{elements:?}"), format!("{:?}", ty.element))),
            None => Err(bad("result", format!("less than {}", self.outputs.len()), k.to_string())),
        }
    }

    /// The numbers of result `k`, in C order; a mask is 1 and 0.
    pub fn floats(&self, k: usize) -> Result<&[E]> {
        let (buffer, dims) = self.output(k, &[Element::Float, Element::Mask])?;
        Ok(&self.floats.buffers[buffer][..dims.size()])
    }

    /// Takes result `k` of floats out of the plan, with its memory, if no other value has it. The next run
    /// makes new memory in its place, unless [`give`](Self::give) has given some.
    pub fn take(&mut self, k: usize) -> Result<Option<Vec<E>>> {
        let (buffer, dims) = self.output(k, &[Element::Float])?;
        let numbers = &mut self.floats.buffers[buffer];
        let is_whole = self.own[k] && numbers.len() == dims.size();
        Ok(is_whole.then(|| std::mem::take(numbers)))
    }

    /// Puts memory, with any numbers, in the place of results that have been taken, or new one.
    pub fn give(&mut self, mut memory: impl FnMut(usize) -> Option<Vec<E>>) -> Result<()> {
        for k in 0..self.outputs.len() {
            if self.is_out(k) {
                let (buffer, ty) = self.outputs[k];
                let n = ty.dims.size();
                self.floats.buffers[buffer] =
                    memory(n).filter(|numbers| numbers.len() == n).map_or_else(|| room(n), Ok)?;
            }
        }
        Ok(())
    }

    /// Whether result `k` has been taken.
    fn is_out(&self, k: usize) -> bool {
        let Some((buffer, ty)) = self.outputs.get(k) else { return false };
        ty.element == Element::Float && ty.dims.size() > 0 && self.floats.buffers[*buffer].is_empty()
    }

    /// The integers of result `k`, in C order.
    pub fn ints(&self, k: usize) -> Result<&[i64]> {
        let (buffer, dims) = self.output(k, &[Element::Int])?;
        Ok(&self.ints.buffers[buffer][..dims.size()])
    }

    /// A copy of the numbers of result `k`.
    pub fn data(&self, k: usize) -> Result<Data> {
        let Some((_, Type { element, .. })) = self.outputs.get(k) else {
            return self.ints(k).map(|_| Data::Int(Vec::new()));
        };
        Ok(match element {
            Element::Int => Data::Int(list(self.ints(k)?, |&x| x)?),
            Element::Mask => Data::Mask(list(self.floats(k)?, |x| x.to_f64() != 0.0)?),
            Element::Float if E::DTYPE == DType::Float32 => Data::F32(list(self.floats(k)?, |x| x.to_f64() as f32)?),
            Element::Float | Element::Sparse => Data::F64(list(self.floats(k)?, |x| x.to_f64())?),
        })
    }

    /// What met a singular matrix in the last run, for callers that raise an error as NumPy does: `"solve"`, also of `inv`, for a
    /// matrix without an inverse, or `"cholesky"` for one that is not positive definite.
    pub fn singular(&self) -> Option<&'static str> {
        self.singular
    }

    /// Bytes of its buffers: the memory of the values that live at one time.
    pub fn bytes(&self) -> usize {
        let floats: usize = self.floats.buffers.iter().chain(&self.blocks).map(Vec::len).sum();
        let stacks: usize = self.floats.stacks.iter().map(Vec::capacity).sum();
        let ints: usize = self.ints.buffers.iter().map(Vec::len).sum();
        let int_stacks: usize = self.ints.stacks.iter().map(Vec::capacity).sum();
        let bodies = self.steps.iter().map(|step| match step {
            Step::Loop(step) => step.bytes(),
            Step::Choice(step) => step.bytes(),
            Step::Rows(step) => step.bytes(),
            _ => 0,
        });
        (floats + stacks) * size_of::<E>() + (ints + int_stacks) * 8 + bodies.sum::<usize>()
    }

    /// Whether a run's time depends on more than its buffers: it has loops or blocks of rows.
    pub fn loops(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Loop(_) | Step::Choice(_) | Step::Rows(_)))
    }

    /// How many steps a run has.
    pub fn n_steps(&self) -> usize {
        self.steps.len()
    }
}

fn list<T, U>(from: &[T], to: impl Fn(&T) -> U) -> Result<Vec<U>> {
    let mut list = list_for(from.len(), "numbers of a result")?;
    list.extend(from.iter().map(to));
    Ok(list)
}

fn parameter(program: &ArrayProgram, v: super::instr::ValueId) -> Parameter {
    match &program.instr_of(v).op {
        ArrayOp::Param { set, start, dims } => Parameter { set: *set as usize, end: start + dims.size() },
        _ => Parameter { set: 0, end: 0 },
    }
}
