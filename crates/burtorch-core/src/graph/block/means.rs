//! Mean and mean of squares of a range, as one block with two outputs.

use super::super::check::{Check, Checked};
use super::super::operands::{OperandRun, StoreValues};
use super::super::sweep::Sweep;
use super::super::{Graph, NodeId, Range};
use super::append::Fill;
use super::op::{BlockOp, Loaded, Wanted};
use super::record::{Field, Layout, nodes};
use crate::error::{Error, Result};
use crate::ops::{Op, Reduction};
use crate::scalar::Scalar;

/// The first output, and the operands.
fn operands(extra: &[u32], at: u32) -> (u32, Range) {
    let at = at as usize;
    (extra[at], Range { start: extra[at + 2], len: extra[at + 3] })
}

pub(super) struct Means;

impl<S: Scalar> BlockOp<S> for Means {
    const OP: Op = Op::MeanAndMeanSquares;

    fn shape(operands: &[usize], _own: &[usize]) -> Result<usize> {
        match operands {
            &[n] if n > 0 => Ok(2),
            _ => Err(Error::EmptyReduction { op: Op::MeanAndMeanSquares.name() }),
        }
    }

    fn layout(_extra: &[u32], _at: u32, _lanes: usize) -> Layout {
        Layout { len: 4, fields: &[Field::Node(0), Field::Node(2)] }
    }

    fn for_each_operand(extra: &[u32], at: u32, f: &mut dyn FnMut(OperandRun)) {
        f(nodes(operands(extra, at).1));
    }

    fn cost(extra: &[u32], at: u32) -> u64 {
        3 * u64::from(operands(extra, at).1.len)
    }

    fn evaluate(graph: &mut Graph<'_, S>, at: u32, _stores: &StoreValues<'_, S::Elem>) {
        let (first, x) = operands(graph.extra.as_slice(), at);
        graph.evaluate_means(first, x);
    }

    fn pull(sweep: &mut Sweep<'_, '_, S>, at: u32, top: u32, _wanted: Wanted) {
        let (first, x) = operands(sweep.extra, at);
        let n = S::lit(f64::from(x.len));
        let on_mean = sweep.adjoints[(first - sweep.base) as usize];
        let on_squares = if top > first { sweep.adjoints[(top - sweep.base) as usize] } else { S::UNREACHED };
        for node in x.start..x.start + x.len {
            if !on_mean.is_unreached() {
                sweep.add(node, on_mean / n);
            }
            if !on_squares.is_unreached() {
                let share = sweep.recorded.values[node as usize] / n;
                sweep.add(node, on_squares * (share + share));
            }
        }
    }

    fn check(loaded: Loaded<'_>, check: &mut Check<'_>) -> Checked {
        let record = loaded.record;
        if record[1] != 2 {
            return Err(format!("has {} outputs, expected 2", record[1]));
        }
        check.run(record[2], record[3], record[0])
    }
}

impl<S: Scalar> Graph<'_, S> {
    /// Appends mean and mean of squares of a run as one block and returns the two nodes.
    pub fn reduce_mean_and_mean_squares(&mut self, x: Range) -> Result<(NodeId, NodeId)> {
        self.check_range(x)?;
        <Means as BlockOp<S>>::shape(&[x.len()], &[])?;
        let outputs = self.atomically(|graph| {
            graph.room_for(2)?;
            let first = graph.columns.len();
            let outputs = graph.push_block(Op::MeanAndMeanSquares, 2, &[first, 2, x.start, x.len], Fill::ZEROED)?;
            graph.evaluate_means(first, x);
            Ok(graph.finish_block(outputs))
        })?;
        Ok((NodeId(outputs.start), NodeId(outputs.start + 1)))
    }

    fn evaluate_means(&mut self, first: u32, x: Range) {
        let forward = |op, xs: &[S]| Reduction::new(op).map_or(S::lit(f64::NAN), |r| r.forward(xs));
        let xs = &self.columns.values()[x.indices()];
        let (mean, squares) = (forward(Op::AVERAGE, xs), forward(Op::MEAN_SQUARE, xs));
        self.columns.set_value(first, mean);
        self.columns.set_value(first + 1, squares);
    }
}
