//! Softmax and its logarithm as blocks: one output per operand.
//!
//! Promises: as all blocks: values when appended, an error changes nothing, rewinding past a record costs nothing. The
//! arithmetic is in `ops/peak.rs`.

use super::super::build::Operands;
use super::super::operands::{Encoded, OperandRun, StoreValues};
use super::super::structure::{Check, Checked};
use super::super::{Graph, Range};
use super::{BlockHeader, Field, Layout};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::ops::{Op, softmax_forward};
use crate::params::Parameters;
use crate::scalar::Scalar;

/// A softmax, or its logarithm, over operands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SoftmaxRecord {
    pub(crate) header: BlockHeader,
    pub(crate) x: Encoded,
}

impl SoftmaxRecord {
    pub(super) const LAYOUT: Layout = Layout { len: 4, fields: &[Field::Node(0), Field::Operands(2)] };

    pub(crate) fn read(extra: &[u32], at: u32) -> Self {
        let x = Encoded(extra[at as usize + 2], extra[at as usize + 3]);
        SoftmaxRecord { header: BlockHeader::read(extra, at), x }
    }

    /// See [`Check::block`].
    pub(super) fn check(record: &[u32], n_in: u64, check: &mut Check<'_>) -> Checked {
        if u64::from(record[1]) != n_in {
            return Err(format!("has {n_in} operands and {} outputs, expected as many", record[1]));
        }
        check.temporaries(2 * n_in as usize);
        Ok(())
    }

    pub(super) fn for_each_operand(&self, extra: &[u32], f: impl FnMut(OperandRun)) {
        self.x.for_each_run(extra, f);
    }
}

impl<S: Scalar> Graph<'_, S> {
    /// Appends `exp(x_i) / sum exp(x)` for [`Op::Softmax`], its logarithm for [`Op::LogSoftmax`], as one block with one
    /// output per operand. Shifted by the largest operand. The error of output i is at most
    /// `|max - x_i| / 2 + n + 3` ULP of the softmax.
    ///
    /// ```
    /// use burtorch_core::{Graph, Op};
    /// let mut graph = Graph::<f64>::new();
    /// let x = graph.vector(&[1000.0, 1000.0]).unwrap();
    /// let p = graph.softmax(Op::Softmax, x.into(), &[]).unwrap();
    /// assert_eq!(graph.value(p.first()).unwrap(), 0.5);
    /// ```
    pub fn softmax(&mut self, op: Op, x: Operands<'_>, params: &[&Parameters<'_, S::Elem>]) -> Result<Range> {
        if !matches!(op, Op::Softmax | Op::LogSoftmax) {
            let (expected, found) = ("softmax or log_softmax".into(), op.name().into());
            return Err(Error::BadArgument { what: "the op", expected, found });
        }
        if x.is_empty() {
            return Err(Error::EmptyReduction { op: op.name() });
        }
        self.atomically(|graph| {
            let n = graph.room_for(x.len())?;
            graph.reserve_scratch(2 * x.len())?;
            let x = graph.encode(x, params)?;
            let header = BlockHeader { first: graph.columns.len(), n_out: n };
            let outputs = graph.push_block(op, n, &[header.first, n, x.0, x.1])?;
            let stores = graph.store_values(params);
            graph.evaluate_softmax(op, SoftmaxRecord { header, x }, &stores);
            interrupt::check()?;
            Ok(graph.finish_block(outputs))
        })
    }

    pub(crate) fn evaluate_softmax(&mut self, op: Op, record: SoftmaxRecord, stores: &StoreValues<'_, S::Elem>) {
        let n = record.header.n_out as usize;
        let (nodes, outputs) = self.columns.values_mut().split_at_mut(record.header.first as usize);
        let (gathered, room) = self.scratch.as_mut_slice()[..2 * n].split_at_mut(n);
        let x = match record.x.contiguous() {
            Some(run) => &nodes[run.indices()],
            None => {
                record.x.gather(self.extra.as_slice(), nodes, stores, gathered);
                gathered
            }
        };
        softmax_forward(op, x, room, &mut outputs[..n]);
    }
}
