//! A graph as plain numbers: taken apart to be stored, checked when it comes back, and put together.
//!
//! Promises: what is put together is what building could have made: every operand below its node, every list where its
//! node says, each once and in order. The sweep reads without bounds checks on the strength of that. Ops are told by
//! names, as their numbers differ between versions. Knows nothing of files.

use super::block::{Field, is_over_tokens};
use super::operands::{Encoded, InnerOperands};
use super::{Graph, MAX_STORES};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::ops::{Arity, OP_INFO, Op};
use crate::scalar::Scalar;

/// What is wrong with a node: completes "node k ...".
pub(crate) type Fault = String;
/// The result of a check.
pub(crate) type Checked<T = ()> = std::result::Result<T, Fault>;

/// The structure of a graph in the numbers that are stored.
#[derive(Debug)]
pub(crate) struct Structure {
    /// The ops that occur. A stored op is a place in this list.
    pub(crate) names: Vec<Op>,
    /// The operand lists, with stored ops.
    pub(crate) extra: Vec<u32>,
    places: [u8; OP_INFO.len()],
}

impl Structure {
    /// The stored number of an op that occurs.
    pub(crate) fn place(&self, op: Op) -> u8 {
        self.places[op as usize]
    }

    /// Whether there are blocks over tokens.
    pub(crate) fn is_over_tokens(&self) -> bool {
        self.names.iter().any(|&op| is_over_tokens(op))
    }
}

impl<S: Scalar> Graph<'_, S> {
    /// Takes the structure apart, with the ops that occur in this order. Fails for a branch that reads its frozen graph.
    pub(crate) fn structure(&self, order: impl Iterator<Item = Op>) -> Result<Structure> {
        let mut used = [false; OP_INFO.len()];
        let mut extra = Vec::new();
        let bytes = 4 * self.extra.len();
        extra
            .try_reserve_exact(self.extra.len())
            .map_err(|_| Error::OutOfMemory { bytes, what: "a graph's structure" })?;
        extra.extend_from_slice(self.extra.as_slice());
        let all = || self.columns.ops().iter().zip(self.columns.all_operands());
        for (k, (&op, &[at, _])) in all().enumerate() {
            interrupt::ask_at(k)?;
            used[op as usize] = true;
            if op == Op::Imported {
                let (expected, found) = ("whole: join its branches first".into(), "a branch of another graph".into());
                return Err(Error::BadArgument { what: "the graph", expected, found });
            }
            if op.info().arity == Arity::Block {
                self.for_each_inner_op(op, at, |k| used[extra[k] as usize] = true);
            }
        }
        let names: Vec<Op> = order.filter(|&op| used[op as usize]).collect();
        // No op of a file has the number that stands for "not among them".
        let mut places = [u8::MAX; OP_INFO.len()];
        names.iter().enumerate().for_each(|(place, &op)| places[op as usize] = place as u8);
        for (&op, &[at, _]) in all() {
            if op.info().arity == Arity::Block {
                self.for_each_inner_op(op, at, |k| extra[k] = u32::from(places[extra[k] as usize]));
            }
        }
        Ok(Structure { names, extra, places })
    }

    /// Calls `f` with each place of the operand lists where a block's record holds an op.
    fn for_each_inner_op(&self, op: Op, at: u32, mut f: impl FnMut(usize)) {
        for field in Self::block_layout(self.extra.as_slice(), op, at).fields {
            if let &Field::Op(k) = field {
                f(at as usize + k);
            }
        }
    }

    /// Opcodes and operands, by node; parts of blocks have none.
    pub(crate) fn nodes_as_numbers(&self) -> (&[Op], impl Fn(usize) -> [u32; 2]) {
        let (ops, operands) = (self.columns.ops(), self.columns.all_operands());
        (ops, move |node| if ops[node] == Op::Part { [0, 0] } else { operands[node] })
    }
}

/// Checks node after node.
#[derive(Debug)]
pub(crate) struct Check<'a> {
    /// Stored ops by their number.
    names: &'a [Op],
    /// The operand lists; stored ops are translated as their nodes are checked.
    pub(super) extra: &'a mut [u32],
    /// Lanes per scalar.
    pub(super) lanes: usize,
    n_stores: usize,
    /// The first of the operand lists' numbers that no node has claimed yet.
    next: usize,
    /// Parts met since the last node that is none.
    pub(super) n_parts: u32,
    /// Constants met one after another up to here, or up to the parts that follow them.
    pub(super) n_constants: u32,
    n_leaves: u32,
    extents: [u64; MAX_STORES],
    temporaries: usize,
}

/// What a structure needs besides its nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    /// For each slot, how many parameters are read.
    pub(crate) extents: [u64; MAX_STORES],
    /// How many leaves there are.
    n_leaves: u32,
    temporaries: usize,
}

impl<'a> Check<'a> {
    pub(crate) fn new(names: &'a [Op], extra: &'a mut [u32], lanes: usize, n_stores: usize) -> Self {
        let extents = [0; MAX_STORES];
        let (n_parts, n_constants, n_leaves) = (0, 0, 0);
        Check { names, extra, lanes, n_stores, next: 0, n_parts, n_constants, n_leaves, extents, temporaries: 0 }
    }

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

    /// Checks that `len` nodes from `start` lie below `limit`, at least one.
    pub(super) fn run(&self, start: u32, len: u32, limit: u32) -> Checked {
        if len > 0 && u64::from(start) + u64::from(len) <= u64::from(limit) {
            return Ok(());
        }
        Err(format!("reads {len} nodes from {start}, expected at least one, all below {limit}"))
    }

    /// Notes that `len` parameters of a slot are read from `start`.
    pub(super) fn parameters(&mut self, slot: u32, start: u64, len: u64) -> Checked {
        if slot as usize >= self.n_stores {
            return Err(format!("reads parameters number {slot} of {}", self.n_stores));
        }
        let extent = &mut self.extents[slot as usize];
        *extent = (*extent).max(start + len);
        Ok(())
    }

    /// Notes a need of temporaries.
    pub(super) fn temporaries(&mut self, n: usize) {
        self.temporaries = self.temporaries.max(n);
    }

    /// Checks operands that lie below `limit`, at least one, and their list, which is the next. Returns how many.
    pub(super) fn operands(&mut self, operands: Encoded, limit: u32) -> Checked<u64> {
        let mut n = 0u64;
        if !operands.is_known() {
            return Err("lists its operands in an unknown way".into());
        }
        if operands.contiguous().is_none() {
            self.record(operands.0, operands.stored_len())?;
        }
        let mut fault = None;
        let (extra, mut extents) = (&*self.extra, self.extents);
        operands.for_each_run(extra, |run| {
            n += u64::from(run.len);
            let found = match run.parameters() {
                None => self.run(run.start, run.len, limit),
                Some((slot, ..)) if slot >= self.n_stores => {
                    Err(format!("reads parameters number {slot} of {}", self.n_stores))
                }
                Some((slot, start, len)) => {
                    extents[slot] = extents[slot].max(start as u64 + len as u64);
                    Ok(())
                }
            };
            fault = fault.take().or(found.err());
        });
        self.extents = extents;
        match fault {
            Some(fault) => Err(fault),
            None if n == 0 || n > u64::from(u32::MAX) => Err(format!("has {n} operands")),
            None => Ok(n),
        }
    }

    /// Checks that `len` numbers from `at` are there.
    pub(super) fn numbers(&self, at: u32, len: usize) -> Checked {
        if at as usize + len <= self.extra.len() {
            return Ok(());
        }
        Err(format!("has a list of {len} from {at}, the lists end at {}", self.extra.len()))
    }

    /// Claims `len` numbers from `at`, which must be the next: lists lie in the order of their nodes, without gaps.
    pub(super) fn record(&mut self, at: u32, len: usize) -> Checked<std::ops::Range<usize>> {
        self.numbers(at, len)?;
        if at as usize != self.next {
            return Err(format!("has a list from {at}, expected {}", self.next));
        }
        self.next += len;
        Ok(at as usize..at as usize + len)
    }

    /// Turns the stored op at a place of the lists into one of this version.
    pub(super) fn translate(&mut self, at: usize) -> Checked<Op> {
        let stored = self.extra[at];
        let op = self
            .names
            .get(stored as usize)
            .ok_or_else(|| format!("names op number {stored} of {}", self.names.len()))?;
        self.extra[at] = *op as u32;
        Ok(*op)
    }

    /// Checks that nothing is left over.
    pub(crate) fn finish(self) -> Checked<Needs> {
        if self.n_parts > 0 {
            return Err("is a part of a block that has no end".into());
        }
        if self.next != self.extra.len() {
            return Err(format!("leaves {} numbers of the lists to nobody", self.extra.len() - self.next));
        }
        Ok(Needs { extents: self.extents, n_leaves: self.n_leaves, temporaries: self.temporaries })
    }
}

/// Checks that what is not used is zero, so that one structure has one form.
fn zero(numbers: [u32; 2]) -> Checked {
    if numbers == [0, 0] { Ok(()) } else { Err(format!("has numbers {numbers:?} where zeros were expected")) }
}

/// The parts that a graph is put together from.
#[derive(Debug)]
pub(crate) struct Parts<'a> {
    /// By node, as checked.
    pub(crate) ops: &'a [Op],
    /// The operand lists, as the check left them.
    pub(crate) extra: &'a [u32],
    /// The identity of the parameters in each slot.
    pub(crate) stores: &'a [u64],
    /// What the check found.
    pub(crate) needs: Needs,
}

impl<S: Scalar> Graph<'_, S> {
    /// Fills an empty graph with parts that have passed a [`Check`], with these operands and values by node.
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
    pub(crate) fn restore_gradients(&mut self, leaves: impl Iterator<Item = S>, adjoints: impl Iterator<Item = S>) {
        self.leaves.grads_mut().iter_mut().zip(leaves).for_each(|(to, grad)| *to = grad);
        let all = self.columns.split_for_sweep().1;
        all.iter_mut().zip(adjoints).for_each(|(to, adjoint)| *to = adjoint);
        self.dirty = (0, self.columns.len());
    }
}
