//! Executable steps from drafts.
//!
//! Does not know the order of steps.

use super::super::instr::{ArrayOp, ArrayProgram, Element, Type};
use super::body::{body_of, condition_of, numbers_of};
use super::choice::Choice;
use super::compile::Compiled;
use super::control::LoopStep;
use super::draft::{Carried, Draft, Drafts};
use super::factors::{Factors, Kind};
use super::gradients_in_parts::Passing;
use super::inner::Body;
use super::numbers::Numbers;
use super::place::{Place, Source, Walk};
use super::rows::RowsStep;
use super::single::{Alone, Operand};
use super::sparse::SparseStep;
use super::{ArrayFloat, Plan, Step};
use crate::error::Result;
use crate::interrupt;

/// The steps of drafts whose results something reads, and for each draft the number of steps before it.
pub(super) fn steps<E: ArrayFloat>(
    drafts: &mut Drafts<'_>,
    buffers: &[usize],
    passing: Option<&Passing>,
) -> Result<(Vec<Step<E>>, Vec<usize>)> {
    let program = drafts.program;
    let mut steps = Vec::with_capacity(drafts.steps.len());
    let mut before = Vec::with_capacity(drafts.steps.len());
    for (at, draft) in drafts.steps.clone().into_iter().enumerate() {
        interrupt::ask_at(at * 32)?;
        before.push(steps.len());
        let placed = |mut place: Place, element| {
            if let Source::Buffer(need) = place.source {
                place.source = Source::Buffer(buffers[need]);
            }
            Operand { place, walk: Walk::new(&place), element }
        };
        steps.push(match draft {
            Draft::Mask { to, .. } | Draft::Copy { to, .. } if !drafts.needs[to].is_read => continue,
            Draft::Mask { input, to } => Step::Mask { input, to: buffers[to] },
            Draft::Copy { from, element: Element::Float | Element::Mask, to } if from.dims.size() == 1 => {
                Step::Numbers(Numbers::copied(placed(from, Element::Float).place, buffers[to])?)
            }
            Draft::Copy { from, element, to } => {
                let ty = Type { dims: from.dims, element };
                let alone = Alone::new(ArrayOp::Copy, vec![placed(from, element)], ty, buffers[to], false)?;
                Step::Alone(Box::new(alone))
            }
            Draft::Chain { dims, instrs } => match Compiled::new(drafts, buffers, at, dims.size(), &instrs)? {
                Compiled::Chain(chain) => Step::Chain(Box::new(chain)),
                Compiled::Numbers(numbers) => Step::Numbers(numbers),
            },
            Draft::Onto { at, to, of } => {
                let of = of.map(|place| placed(place, Element::Float));
                let (need, ty) = (&drafts.needs[to.at()], program.type_of(to));
                let op = program.instrs()[at].op.clone();
                let is_in_place = need.takes_over.is_some();
                Step::Alone(Box::new(Alone::new(op, of.to_vec(), ty, buffers[to.at()], is_in_place)?))
            }
            Draft::Alone { at, of } => {
                let instr = &program.instrs()[at];
                let element = |k: usize| instr.operands.get(k).map_or(Element::Float, |&v| program.type_of(v).element);
                let of: Vec<_> = of.iter().enumerate().map(|(k, &p)| placed(p, element(k))).collect();
                match &instr.op {
                    ArrayOp::Loop(l) => {
                        let (operands, stacks) = (&instr.operands, &drafts.stacks);
                        let to: Vec<_> =
                            program.results(at).map(|v| (v, buffers[v.at()], program.type_of(v))).collect();
                        let numbers = numbers_of(l)?;
                        let carried = Carried { captures: l.captures, carries: l.carries };
                        let arrays = || {
                            let condition = condition_of(l).map(|condition| body_of(condition, Carried::default()));
                            Ok((body_of(&l.body.0, carried)?, condition.transpose()?))
                        };
                        let step = LoopStep::new(l, numbers, arrays, operands, of, &to, stacks)?;
                        steps.push(Step::Loop(Box::new(step)));
                        continue;
                    }
                    ArrayOp::Cond { yes, no } => {
                        let to = program.results(at).map(|v| buffers[v.at()]).collect();
                        let branches = [body_of(&yes.0, Carried::default())?, body_of(&no.0, Carried::default())?];
                        steps.push(Step::Choice(Box::new(Choice::new(branches, of, to, yes.0.output_types()))));
                        continue;
                    }
                    ArrayOp::Rows(rows) => {
                        let to = program.results(at).map(|v| buffers[v.at()]).collect();
                        let block = |program: &ArrayProgram, passing: Option<&Passing>| -> Result<Box<dyn Body<E>>> {
                            Ok(Box::new(Plan::ready(program, None, passing)?))
                        };
                        let parts =
                            program.results(at).map(|v| passing.and_then(|passing| passing.output_of(program, v)));
                        steps.push(Step::Rows(Box::new(RowsStep::new(rows, of, to, parts.collect(), &block)?)));
                        continue;
                    }
                    _ => {}
                }
                if let Some(kind) = Kind::new(&instr.op) {
                    let to = program.results(at).map(|v| (buffers[v.at()], program.type_of(v))).collect();
                    steps.push(Step::Factors(Box::new(Factors::new(kind, of, to)?)));
                    continue;
                }
                if let ArrayOp::Sparse(dot) = &instr.op {
                    steps.push(Step::Sparse(Box::new(SparseStep::new(*dot, &of, buffers[instr.result.at()])?)));
                    continue;
                }
                let (v, ty) = (instr.result, program.type_of(instr.result));
                let need = &drafts.needs[v.at()];
                let (to, is_in_place) = (buffers[v.at()], need.takes_over.is_some());
                Step::Alone(Box::new(Alone::new(instr.op.clone(), of, ty, to, is_in_place)?.writing(need.len)))
            }
        });
    }
    Ok((steps, before))
}
