//! Unary ops over ranges.
//!
//! Promises the values and gradients of one node each. Knows nothing of what the numbers mean.

use super::super::structure::{Check, Checked};
use super::super::{Graph, OperandRun, Range};
use super::{BlockHeader, Field, Layout, nodes};
use crate::error::{Error, Result};
use crate::interrupt::{self, pieces};
use crate::ops::{Arity, Op, forward_unary};
use crate::scalar::Scalar;

/// A unary op over a range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapRecord {
    pub(crate) header: BlockHeader,
    pub(crate) op: Op,
    pub(crate) x: Range,
}

impl MapRecord {
    pub(super) const LAYOUT: Layout = Layout { len: 4, fields: &[Field::Node(0), Field::Op(2), Field::Node(3)] };

    pub(crate) fn read(extra: &[u32], at: u32) -> Self {
        let header = BlockHeader::read(extra, at);
        let op = crate::ops::OP_INFO[extra[at as usize + 2] as usize].op;
        MapRecord { header, op, x: Range { start: extra[at as usize + 3], len: header.n_out } }
    }

    /// See [`Check::block`].
    pub(super) fn check(record: &[u32], op: Op, check: &mut Check<'_>) -> Checked {
        if op.info().arity != Arity::Unary {
            return Err(format!("maps {}, expected a unary op", op.name()));
        }
        check.run(record[3], record[1], record[0])
    }

    pub(super) fn for_each_operand(&self, mut f: impl FnMut(OperandRun)) {
        f(nodes(self.x));
    }
}

impl<S: Scalar> Graph<'_, S> {
    /// Appends the unary `op` over a range as one block. Same values and gradients as one node each.
    pub fn map(&mut self, op: Op, x: Range) -> Result<Range> {
        self.check_range(x)?;
        if forward_unary(op, S::lit(0.0)).is_none() {
            return Err(Error::BadArgument { what: "the op", expected: "a unary op".into(), found: op.name().into() });
        }
        if x.is_empty() {
            return Err(Error::EmptyReduction { op: "map" });
        }
        self.atomically(|graph| {
            let n = graph.room_for(x.len())?;
            let record = MapRecord { header: BlockHeader { first: graph.columns.len(), n_out: n }, op, x };
            let outputs = graph.push_block(Op::Map, n, &[record.header.first, n, op as u32, x.start])?;
            graph.evaluate_map(record);
            interrupt::check()?;
            Ok(graph.finish_block(outputs))
        })
    }

    pub(crate) fn evaluate_map(&mut self, record: MapRecord) {
        let (nodes, outputs) = self.columns.values_mut().split_at_mut(record.header.first as usize);
        let x = &nodes[record.x.indices()];
        for piece in pieces(record.header.n_out as usize) {
            S::map_forward(record.op, &x[piece.clone()], &mut outputs[piece]);
        }
    }
}
