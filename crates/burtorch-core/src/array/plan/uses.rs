//! How often the steps of a plan read and write each buffer.
//!
//! Does not know what they compute.

use super::super::instr::Element;
use super::math::{ArrayFloat, arity};
use super::place::Source;
use super::work::{Arg, Work};
use super::{Plan, Step};

/// How often the steps of a plan, and who runs it, read and write each buffer of floats.
pub(super) fn uses<E: ArrayFloat>(plan: &Plan<E>) -> Vec<[usize; 2]> {
    let mut uses = vec![[0; 2]; plan.floats.buffers.len()];
    let mut read = |source: Source| {
        if let Source::Buffer(k) = source {
            uses[k][0] += 1;
        }
    };
    let mut written = Vec::new();
    for step in &plan.steps {
        match step {
            Step::Chain(chain) => {
                chain.streams.iter().for_each(|stream| read(stream.source));
                for work in &chain.work {
                    match *work {
                        Work::Keep { buffer, op, of } => {
                            // Read again by the chain itself.
                            of[..arity(op)].iter().for_each(|of| read_back(*of, &mut read));
                            written.push(buffer);
                        }
                        Work::Compute { op, of, .. } => of[..arity(op)].iter().for_each(|of| read_back(*of, &mut read)),
                        Work::Twins { of, to, .. } => {
                            read_back(of, &mut read);
                            written.extend(
                                to.iter().filter_map(|to| if let Arg::Buffer(k) = to { Some(*k) } else { None }),
                            );
                        }
                        Work::Shares { of, .. } => of.iter().for_each(|of| read_back(*of, &mut read)),
                        Work::Store { of, buffer } | Work::Reduce { of, buffer, .. } => {
                            read_back(of, &mut read);
                            written.push(buffer);
                        }
                        _ => {}
                    }
                }
            }
            Step::Numbers(numbers) => {
                numbers.sources().for_each(&mut read);
                written.extend(numbers.written());
            }
            Step::Alone(alone) => {
                let floats = alone.operands().iter().filter(|operand| operand.element != Element::Int);
                floats.for_each(|operand| read(operand.place.source));
                written.extend((!alone.is_of_ints()).then_some(alone.to()));
            }
            _ => {}
        }
    }
    let arguments = plan.arguments.iter().zip(&plan.inputs).filter(|(_, ty)| ty.element != Element::Int);
    written.extend(arguments.map(|(&buffer, _)| buffer));
    for (buffer, _) in plan.outputs.iter().filter(|(_, ty)| ty.element != Element::Int) {
        read(Source::Buffer(*buffer));
    }
    written.into_iter().for_each(|k| uses[k][1] += 1);
    uses
}

/// Of an operand that a chain has written into a buffer.
fn read_back(of: Arg, read: &mut impl FnMut(Source)) {
    if let Arg::Buffer(k) = of {
        read(Source::Buffer(k));
    }
}
