//! Softmax and its logarithm as blocks: one output per operand.
//!
//! Promises, as all blocks: values are computed on appending, an error changes nothing, rewinding past a record costs
//! nothing. The arithmetic is in `ops/max_shifted.rs`.

use super::super::Operands;
use super::super::check::{Check, Checked};
use super::super::operands::{Encoded, OperandRun, StoreValues};
use super::super::sweep::Sweep;
use super::super::{Graph, Range};
use super::append::Fill;
use super::op::{BlockOp, Loaded, Wanted};
use super::record::{BlockHeader, Field, Layout};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::ops::{Op, softmax_forward, softmax_pull};
use crate::params::Parameters;
use crate::scalar::Scalar;

/// A softmax, or its logarithm, over operands.
#[derive(Clone, Copy, Debug)]
struct SoftmaxRecord {
    header: BlockHeader,
    x: Encoded,
}

impl SoftmaxRecord {
    fn read(extra: &[u32], at: u32) -> Self {
        let x = Encoded(extra[at as usize + 2], extra[at as usize + 3]);
        SoftmaxRecord { header: BlockHeader::read(extra, at), x }
    }
}

/// `exp(x_i) / sum exp(x)`.
pub(super) struct Softmax;

/// Its logarithm.
pub(super) struct LogSoftmax;

macro_rules! softmaxes {
    ($($name:ident)*) => { $(
        impl<S: Scalar> BlockOp<S> for $name {
            const OP: Op = Op::$name;

            fn shape(operands: &[usize], _own: &[usize]) -> Result<usize> {
                match operands.iter().sum() {
                    0 => Err(Error::EmptyReduction { op: Op::$name.name() }),
                    n => Ok(n),
                }
            }

            fn layout(_extra: &[u32], _at: u32, _lanes: usize) -> Layout {
                Layout { len: 4, fields: &[Field::Node(0), Field::Operands(2)] }
            }

            fn for_each_operand(extra: &[u32], at: u32, f: &mut dyn FnMut(OperandRun)) {
                SoftmaxRecord::read(extra, at).x.for_each_run(extra, f);
            }

            fn cost(extra: &[u32], at: u32) -> u64 {
                4 * u64::from(extra[at as usize + 1])
            }

            fn evaluate(graph: &mut Graph<'_, S>, at: u32, stores: &StoreValues<'_, S::Elem>) {
                graph.evaluate_softmax(Op::$name, SoftmaxRecord::read(graph.extra.as_slice(), at), stores);
            }

            fn pull(sweep: &mut Sweep<'_, '_, S>, at: u32, top: u32, _wanted: Wanted) {
                sweep.softmax(Op::$name, SoftmaxRecord::read(sweep.extra, at), top);
            }

            fn check(loaded: Loaded<'_>, check: &mut Check<'_>) -> Checked {
                let (n_out, n_in) = (loaded.record[1], loaded.n_in);
                if u64::from(n_out) != n_in {
                    return Err(format!("has {n_in} operands and {n_out} outputs, expected as many"));
                }
                check.temporaries(2 * n_in as usize);
                Ok(())
            }
        }
    )* };
}
softmaxes!(Softmax LogSoftmax);

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
            let outputs = graph.push_block(op, n, &[header.first, n, x.0, x.1], Fill::ZEROED)?;
            let stores = graph.store_values(params)?;
            graph.evaluate_softmax(op, SoftmaxRecord { header, x }, &stores);
            interrupt::check()?;
            Ok(graph.finish_block(outputs))
        })
    }

    fn evaluate_softmax(&mut self, op: Op, record: SoftmaxRecord, stores: &StoreValues<'_, S::Elem>) {
        let n = record.header.n_out as usize;
        let (nodes, outputs) = self.columns.values_mut().split_at_mut(record.header.first as usize);
        let (gathered, room) = self.scratch.as_mut_slice()[..2 * n].split_at_mut(n);
        let x = match record.x.contiguous() {
            Some(run) => &nodes[run.indices()],
            None => {
                record.x.gather(self.extra.as_slice(), nodes, |slot| stores[slot], gathered);
                gathered
            }
        };
        softmax_forward(op, x, room, &mut outputs[..n]);
    }
}

impl<S: Scalar> Sweep<'_, '_, S> {
    /// Propagates the adjoints of outputs up to `top` to the operands.
    fn softmax(&mut self, op: Op, record: SoftmaxRecord, top: u32) {
        let (first, n) = (record.header.first as usize, record.header.n_out as usize);
        let scratch = std::mem::take(&mut self.scratch);
        let contributions = &mut scratch[..n];
        let adjoints = &self.adjoints[self.place(record.header.first, top)];
        softmax_pull(op, adjoints, &self.recorded.values[first..first + n], contributions);
        self.scatter(record.x, contributions);
        self.scratch = scratch;
    }
}
