//! Unary ops over ranges.
//!
//! Promises the values and gradients of one node each. Does not know the meaning of the numbers.

use super::super::check::{Check, Checked};
use super::super::operands::{OperandRun, StoreValues};
use super::super::sweep::Sweep;
use super::super::{Graph, Range};
use super::append::Fill;
use super::op::{BlockOp, Loaded, Wanted};
use super::record::{BlockHeader, Field, Layout, nodes};
use crate::error::{Error, Result};
use crate::interrupt::{self, pieces_of};
use crate::ops::{Arity, Op, forward_unary, map_forward, map_pull};
use crate::scalar::Scalar;
use crate::sync::stop::Pace;

/// Numbers between two checks for an early end: some tens of microseconds of a slow function.
const PIECE: usize = 1 << 13;

/// The weight of one derivative in a `Pace`.
const DERIVATIVE: usize = 32;

/// A unary op over a range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapRecord {
    pub(crate) header: BlockHeader,
    pub(crate) op: Op,
    pub(crate) x: Range,
}

impl MapRecord {
    pub(crate) fn read(extra: &[u32], at: u32) -> Self {
        let header = BlockHeader::read(extra, at);
        let op = crate::ops::OP_INFO[extra[at as usize + 2] as usize].op;
        MapRecord { header, op, x: Range { start: extra[at as usize + 3], len: header.n_out } }
    }
}

pub(super) struct Map;

impl<S: Scalar> BlockOp<S> for Map {
    const OP: Op = Op::Map;

    fn shape(operands: &[usize], _own: &[usize]) -> Result<usize> {
        match operands {
            &[n] if n > 0 => Ok(n),
            _ => Err(Error::EmptyReduction { op: "map" }),
        }
    }

    fn layout(_extra: &[u32], _at: u32, _lanes: usize) -> Layout {
        Layout { len: 4, fields: &[Field::Node(0), Field::Op(2), Field::Node(3)] }
    }

    fn for_each_operand(extra: &[u32], at: u32, f: &mut dyn FnMut(OperandRun)) {
        f(nodes(MapRecord::read(extra, at).x));
    }

    fn cost(extra: &[u32], at: u32) -> u64 {
        u64::from(extra[at as usize + 1])
    }

    fn evaluate(graph: &mut Graph<'_, S>, at: u32, _stores: &StoreValues<'_, S::Elem>) {
        graph.evaluate_map(MapRecord::read(graph.extra.as_slice(), at));
    }

    fn pull(sweep: &mut Sweep<'_, '_, S>, at: u32, top: u32, wanted: Wanted) {
        if !wanted.operand(0) {
            return;
        }
        let record = MapRecord::read(sweep.extra, at);
        let first = record.header.first;
        let n = (top + 1 - first) as usize;
        let x = &sweep.recorded.values[record.x.indices()][..n];
        let y = &sweep.recorded.values[first as usize..][..n];
        // Inputs lie below outputs, so their adjoints can be written while those of the outputs are read.
        let (below, outputs) = sweep.adjoints.split_at_mut((first - sweep.base) as usize);
        let inputs = &mut below[(record.x.start - sweep.base) as usize..][..n];
        let (size, mut pace) = (nodes_of::<S>(PIECE), Pace::new());
        for (k, inputs) in inputs.chunks_mut(size).enumerate() {
            if !pace.goes_on(DERIVATIVE * inputs.len() * S::LANES) {
                break;
            }
            let piece = k * size..k * size + inputs.len();
            map_pull(record.op, &outputs[piece.clone()], &x[piece.clone()], &y[piece], inputs);
        }
        sweep.low = sweep.low.min(record.x.start);
    }

    fn check(loaded: Loaded<'_>, check: &mut Check<'_>) -> Checked {
        let (record, op) = (loaded.record, loaded.inner);
        if op.info().arity != Arity::Unary {
            return Err(format!("maps {}, expected a unary op", op.name()));
        }
        check.run(record[3], record[1], record[0])
    }
}

/// The number of nodes that hold this many numbers, at least one.
fn nodes_of<S: Scalar>(numbers: usize) -> usize {
    (numbers / S::LANES).max(1)
}

impl<S: Scalar> Graph<'_, S> {
    /// Appends the unary `op` over a range as one block. Same values and gradients as one node each.
    pub fn map(&mut self, op: Op, x: Range) -> Result<Range> {
        self.check_range(x)?;
        if forward_unary(op, S::lit(0.0)).is_none() {
            return Err(Error::BadArgument { what: "the op", expected: "a unary op".into(), found: op.name().into() });
        }
        <Map as BlockOp<S>>::shape(&[x.len()], &[])?;
        self.atomically(|graph| {
            let n = graph.room_for(x.len())?;
            let record = MapRecord { header: BlockHeader { first: graph.columns.len(), n_out: n }, op, x };
            let outputs = graph.push_block(Op::Map, n, &[record.header.first, n, op as u32, x.start], Fill::WRITTEN)?;
            graph.evaluate_map(record);
            interrupt::check()?;
            Ok(graph.finish_block(outputs))
        })
    }

    fn evaluate_map(&mut self, record: MapRecord) {
        let (nodes, outputs) = self.columns.values_mut().split_at_mut(record.header.first as usize);
        let x = &nodes[record.x.indices()];
        for piece in pieces_of(record.header.n_out as usize, nodes_of::<S>(PIECE)) {
            map_forward(record.op, &x[piece.clone()], &mut outputs[piece]);
        }
    }
}
