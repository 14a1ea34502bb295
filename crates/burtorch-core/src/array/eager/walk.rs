//! Traversal of nodes from the last to the first.
//!
//! Promises: each node is visited once, after all that read it; adjoints are added in the order of the reverse pass of the whole
//! program. Adds to no gradient.

use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use super::super::dims::Dims;
use super::super::instr::Data;
use super::super::plan::Floats;
use super::super::reverse::Variable;
use super::kernel::Kernel;
use super::node::{Adjoint, GONE, Node, Operand};
use super::split::{Begun, Kept};
use crate::error::Result;

/// A node that is left to be visited: the last one first.
pub(super) struct Left(pub(super) Arc<Node>);

impl PartialEq for Left {
    fn eq(&self, other: &Self) -> bool {
        self.0.order == other.0.order
    }
}
impl Eq for Left {}
impl PartialOrd for Left {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Left {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.order.cmp(&other.0.order)
    }
}

/// A place among parameters.
pub(super) type Place = (u32, usize, Dims);

/// A walk backwards.
pub(super) struct Walk {
    pub(super) number: u64,
    pub(super) left: BinaryHeap<Left>,
    pub(super) of_parameters: HashMap<Place, Option<Adjoint>>,
    /// Places of parameters in the order in which they were met.
    pub(super) order: Vec<Place>,
}

impl Walk {
    /// Has a node visited, once.
    pub(super) fn reach(&mut self, node: &Arc<Node>) {
        let mut state = node.state();
        if state.sweep == self.number {
            return;
        }
        state.sweep = self.number;
        let before = std::mem::take(&mut state.adjoints);
        state.adjoints.resize_with(node.types.len(), || None);
        drop(state);
        drop(before);
        self.left.push(Left(node.clone()));
    }

    /// Adds what a node contributes to its operands.
    pub(super) fn pull(&mut self, node: &Node, kernel: &Kernel, parameters: &[Floats<'_>]) -> Result<()> {
        let (values, mut seeds) = {
            let mut state = node.state();
            (state.values.clone(), std::mem::take(&mut state.adjoints))
        };
        // Operands before themselves: their adjoints so far are out of them while more is added.
        let mut so_far = Vec::with_capacity(kernel.by().len());
        for by in kernel.by() {
            so_far.push(match *by {
                Variable::Input(k) => match &node.operands[k] {
                    Operand::Node(operand, result) => {
                        self.reach(operand);
                        operand.state().adjoints[*result].take()
                    }
                    Operand::Data(_) => None,
                },
                Variable::Param(k) => kernel.parameter(k).and_then(|(set, start, ty)| {
                    let key = (set, start, ty.dims);
                    let order = &mut self.order;
                    let known = self.of_parameters.entry(key).or_insert_with(|| {
                        order.push(key);
                        None
                    });
                    known.take()
                }),
            });
        }
        let state = |adjoint: &Option<Adjoint>| adjoint.as_ref().map(|adjoint| adjoint.may_be_unreached);
        let begun = Begun { results: seeds.iter().map(state).collect(), variables: so_far.iter().map(state).collect() };
        let Some(back) = kernel.back(begun)? else { return Ok(()) };
        let held = kernel.kept.iter().map(|kept| match *kept {
            Kept::Operand(k) => match &node.operands[k] {
                Operand::Node(operand, result) => operand.state().values.get(*result).cloned(),
                Operand::Data(_) => None,
            },
            _ => None,
        });
        let held: Vec<_> = held.collect();
        let mut arguments: Vec<&Data> = Vec::with_capacity(back.reads.len() + seeds.len() + so_far.len());
        for &k in &back.reads {
            arguments.push(match (kernel.kept[k], &held[k]) {
                (_, Some(held)) => held,
                (Kept::Operand(k), None) => match &node.operands[k] {
                    Operand::Data(data) => data,
                    Operand::Node(..) => &GONE,
                },
                (Kept::Result(k), None) => values.get(k).map_or(&GONE, |data| data),
                (Kept::Saved(k), None) => node.saved.get(k).unwrap_or(&GONE),
            });
        }
        arguments.extend(seeds.iter().chain(&so_far).flatten().map(|adjoint| &adjoint.data));
        let found = back.ready.run(&arguments, parameters, |run| {
            (0..back.gives.iter().flatten().count()).map(|k| run.take(k)).collect::<Result<Vec<_>>>()
        })?;
        let mut found = found.into_iter();
        for ((by, gives), before) in kernel.by().iter().zip(&back.gives).zip(so_far) {
            let adjoint = match gives {
                Some(may_be_unreached) => {
                    found.next().map(|data| Adjoint { data, may_be_unreached: *may_be_unreached })
                }
                None => before,
            };
            match (*by, adjoint) {
                (Variable::Input(k), adjoint) => {
                    if let Operand::Node(operand, result) = &node.operands[k] {
                        operand.state().adjoints[*result] = adjoint;
                    }
                }
                (Variable::Param(k), Some(adjoint)) => {
                    if let Some((set, start, ty)) = kernel.parameter(k) {
                        self.of_parameters.insert((set, start, ty.dims), Some(adjoint));
                    }
                }
                (Variable::Param(_), None) => {}
            }
        }
        if !node.is_held() {
            seeds = Vec::new();
        }
        node.state().adjoints = seeds;
        Ok(())
    }
}
