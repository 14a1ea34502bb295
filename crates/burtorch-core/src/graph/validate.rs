//! A graph as plain numbers: converted for storage, checked on loading, and rebuilt.
//!
//! Promises: a rebuilt graph is one that building could have made: every operand below its node, every list at the place that
//! its node names, each once and in order. The sweep relies on that to read without bounds checks. Ops are identified by name,
//! because their numbers differ between versions. Does not know files.

use super::Graph;
use super::block::{for_each_inner_op, is_over_tokens};
use super::check::{Check, Checked, Needs};
use super::operands::{Encoded, InnerOperands};
use super::topology::Topology;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::ops::{Arity, OP_INFO, Op};
use crate::scalar::Scalar;

/// The structure of a graph as stored in a file.
#[derive(Debug)]
pub(crate) struct Structure {
    /// The ops in use. A stored op is an index in this list.
    pub(crate) names: Vec<Op>,
    /// The operand lists, with stored ops.
    pub(crate) extra: Vec<u32>,
    places: [u8; OP_INFO.len()],
}

impl Structure {
    /// The stored number of a used op.
    pub(crate) fn place(&self, op: Op) -> u8 {
        self.places[op as usize]
    }

    /// Whether there are blocks over tokens.
    pub(crate) fn is_over_tokens(&self) -> bool {
        self.names.iter().any(|&op| is_over_tokens(op))
    }
}

impl Topology<'_> {
    /// Converts the structure, with the used ops in this order. Fails for a branch that reads its frozen graph.
    pub(crate) fn structure(self, order: &mut dyn Iterator<Item = Op>) -> Result<Structure> {
        let mut used = [false; OP_INFO.len()];
        let mut extra = Vec::new();
        let bytes = 4 * self.extra.len();
        extra
            .try_reserve_exact(self.extra.len())
            .map_err(|_| Error::OutOfMemory { bytes, what: "a graph's structure" })?;
        extra.extend_from_slice(self.extra);
        let all = || self.ops.iter().zip(self.operands);
        for (k, (&op, &[at, _])) in all().enumerate() {
            interrupt::ask_at(k)?;
            used[op as usize] = true;
            if op == Op::Imported {
                let (expected, found) = ("whole: join its branches first".into(), "a branch of another graph".into());
                return Err(Error::BadArgument { what: "the graph", expected, found });
            }
            if op.info().arity == Arity::Block {
                for_each_inner_op(self.extra, op, at, self.lanes, &mut |k| used[extra[k] as usize] = true);
            }
        }
        let names: Vec<Op> = order.filter(|&op| used[op as usize]).collect();
        // No op of a file has the number that means "absent".
        let mut places = [u8::MAX; OP_INFO.len()];
        names.iter().enumerate().for_each(|(place, &op)| places[op as usize] = place as u8);
        for (&op, &[at, _]) in all() {
            if op.info().arity == Arity::Block {
                for_each_inner_op(self.extra, op, at, self.lanes, &mut |k| {
                    extra[k] = u32::from(places[extra[k] as usize])
                });
            }
        }
        Ok(Structure { names, extra, places })
    }
}

impl Check<'_> {
    /// Checks the next node.
    pub(crate) fn node(&mut self, node: u32, op: Op, [a, b]: [u32; 2]) -> Checked {
        let arity = op.info().arity;
        if op == Op::Part {
            self.n_parts += 1;
            return zero([a, b]);
        }
        if self.n_parts > 0 && arity != Arity::Block {
            return Err(format!("is {}, expected the end of the block before it", op.name()));
        }
        let checked = self.whole_node(node, op, [a, b]);
        self.n_constants = if op == Op::Constant { self.n_constants + 1 } else { 0 };
        checked
    }

    fn whole_node(&mut self, node: u32, op: Op, [a, b]: [u32; 2]) -> Checked {
        match op.info().arity {
            Arity::Nullary => self.nullary(op, [a, b]),
            Arity::Unary => self.run(a, 1, node).and_then(|()| zero([b, 0])),
            Arity::Binary | Arity::WithConstant => self.run(a, 1, node).and_then(|()| self.run(b, 1, node)),
            Arity::Reduction => {
                let operands = Encoded(a, b);
                let n = self.operands(operands, node)? as usize;
                self.temporaries(if operands.contiguous().is_some() { n } else { 2 * n });
                Ok(())
            }
            Arity::InnerProduct => self.inner_product(node, op, a).and_then(|()| zero([b, 0])),
            Arity::Block => {
                self.block(node, op, a)?;
                self.n_parts = 0;
                zero([b, 0])
            }
        }
    }

    fn nullary(&mut self, op: Op, [a, b]: [u32; 2]) -> Checked {
        match op {
            Op::Leaf if a == self.n_leaves => {
                self.n_leaves += 1;
                zero([b, 0])
            }
            Op::Leaf => Err(format!("is leaf {a}, expected leaf {}", self.n_leaves)),
            Op::Constant => zero([a, b]),
            Op::Param | Op::FrozenParam => self.parameters(b, u64::from(a), 1),
            _ => Err(format!("is an op that this version of burtorch does not load: {}", op.name())),
        }
    }

    fn inner_product(&mut self, node: u32, op: Op, at: u32) -> Checked {
        const LEN: usize = 5;
        self.numbers(at, LEN)?;
        let inner = InnerOperands::read(self.extra, at);
        let (n, m) = (self.operands(inner.x, node)?, self.operands(inner.w, node)?);
        self.record(at, LEN)?;
        if n != m {
            return Err(format!("multiplies {n} operands by {m}"));
        }
        let in_place = inner.x.contiguous().is_some() && inner.w.contiguous().is_some();
        self.temporaries(if in_place { n as usize } else { 2 * n as usize });
        if op != Op::InnerProduct { self.run(inner.bias, 1, node) } else { zero([inner.bias, 0]) }
    }
}

/// Checks that unused fields are zero, so that a structure has one encoding.
fn zero(numbers: [u32; 2]) -> Checked {
    if numbers == [0, 0] { Ok(()) } else { Err(format!("has numbers {numbers:?} where zeros were expected")) }
}

/// The data from which a graph is rebuilt.
#[derive(Debug)]
pub(crate) struct Parts<'a> {
    /// By node, checked.
    pub(crate) ops: &'a [Op],
    /// The operand lists after the check.
    pub(crate) extra: &'a [u32],
    /// The identity of the parameters in each slot.
    pub(crate) stores: &'a [u64],
    /// The results of the check.
    pub(crate) needs: Needs,
}

impl<S: Scalar> Graph<'_, S> {
    /// Fills an empty graph with data that passed a [`Check`], with these operands and values by node.
    pub(crate) fn with_parts(
        mut self,
        parts: Parts<'_>,
        operands: impl Iterator<Item = [u32; 2]>,
        values: impl Iterator<Item = S>,
    ) -> Result<Self> {
        let graph = &mut self;
        graph.room_for(parts.ops.len())?;
        graph.leaves.reserve(parts.needs.n_leaves as usize)?;
        graph.extra.reserve(parts.extra.len())?;
        graph.reserve_scratch(parts.needs.temporaries)?;
        for &store in parts.stores {
            graph.slot_of(store)?;
        }
        parts.extra.iter().for_each(|&number| graph.extra.push_reserved(number));
        for (k, ((&op, [a, b]), value)) in parts.ops.iter().zip(operands).zip(values).enumerate() {
            interrupt::ask_at(k)?;
            match op {
                Op::Leaf => drop(graph.leaf(value)?),
                _ => drop(graph.columns.push(op, a, b, value)?),
            }
        }
        Ok(self)
    }
}

impl<S: Scalar> Graph<'_, S> {
    /// Overwrites all gradients: those of leaves, then adjoints by node with -0.0 for "not reached".
    #[optimize(size)]
    pub(crate) fn restore_gradients(&mut self, leaves: impl Iterator<Item = S>, adjoints: impl Iterator<Item = S>) {
        self.leaves.grads_mut().iter_mut().zip(leaves).for_each(|(to, grad)| *to = grad);
        let all = self.columns.split_for_sweep().1;
        all.iter_mut().zip(adjoints).for_each(|(to, adjoint)| *to = adjoint);
        self.dirty = (0, self.columns.len());
    }
}
