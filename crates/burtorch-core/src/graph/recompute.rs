//! Re-evaluation of the nodes below a node, after `set_value` changed one of them.

use super::operands::{Encoded, InnerOperands, StoreValues};
use super::{Graph, NodeId};
use crate::error::{Error, Result};
use crate::graph::nary::inner_values;
use crate::interrupt::Work;
use crate::kernels::slices;
use crate::ops::{Arity, Op, Reduction, forward_binary, forward_unary};
use crate::params::Parameters;
use crate::scalar::Scalar;

impl<S: Scalar> Graph<'_, S> {
    /// Recomputes, in building order, every node that `root` depends on, from the present values of leaves and
    /// parameters. Linear in the number of nodes up to `root`; one bit of memory per node, kept for the next call. Checks now and
    /// then whether to end early; then some nodes have been recomputed and others not.
    pub fn recompute(&mut self, root: NodeId, params: &[&Parameters<'_, S::Elem>]) -> Result<()> {
        self.check_exists(root)?;
        let end = self.block_tail(root.0).unwrap_or(root.0) + 1;
        let stores = self.store_values(params)?;
        for (slot, &store) in self.stores().iter().enumerate() {
            if stores[slot].is_empty() && !params.iter().any(|p| p.id() == store) {
                return Err(Error::MissingParameters);
            }
        }
        let mut needed = std::mem::take(&mut self.reached);
        let computed = needed.reset(end as usize).and_then(|()| {
            needed.insert(root.0);
            self.mark_reachable(&mut needed)?;
            let mut work = Work::default();
            let mut goes_on = Ok(());
            needed.for_each(|node| {
                if goes_on.is_ok() {
                    goes_on = work.add(4);
                    self.evaluate(node, &stores);
                }
            });
            goes_on
        });
        self.reached = needed;
        computed
    }

    /// Computes one node repeatedly, to measure it. All parameters of the graph must be given.
    pub(crate) fn evaluate_often(&mut self, node: u32, times: u32, params: &[&Parameters<'_, S::Elem>]) {
        let Ok(stores) = self.store_values(params) else { return };
        (0..times).for_each(|_| self.evaluate(node, &stores));
    }

    /// Computes one node from its operands. A block is computed at its last node.
    fn evaluate(&mut self, node: u32, stores: &StoreValues<'_, S::Elem>) {
        let op = self.columns.op(node);
        let [a, b] = self.columns.operands(node);
        let value = match op.info().arity {
            Arity::Nullary => match op {
                Op::Param | Op::FrozenParam => Some(S::splat(stores[b as usize][a as usize])),
                _ => None,
            },
            Arity::Unary => forward_unary(op, self.columns.value(a)),
            Arity::Binary | Arity::WithConstant => forward_binary(op, self.columns.value(a), self.columns.value(b)),
            Arity::Reduction => Reduction::new(op).map(|r| self.reduced(r, Encoded(a, b), stores)),
            Arity::InnerProduct => Some(self.inner(op, a, stores)),
            Arity::Block => {
                self.evaluate_block(op, a, stores);
                None
            }
        };
        if let Some(value) = value {
            self.columns.set_value(node, value);
        }
    }

    pub(super) fn reduced(&mut self, op: Reduction, operands: Encoded, stores: &StoreValues<'_, S::Elem>) -> S {
        if let Some(run) = operands.contiguous() {
            return op.forward(&self.columns.values()[run.indices()]);
        }
        let n = operands.count(self.extra.as_slice());
        let xs = &mut self.scratch.as_mut_slice()[..n];
        operands.gather(self.extra.as_slice(), self.columns.values(), |slot| stores[slot], xs);
        op.forward(xs)
    }

    pub(super) fn inner(&mut self, op: Op, at: u32, stores: &StoreValues<'_, S::Elem>) -> S {
        let operands = InnerOperands::read(self.extra.as_slice(), at);
        if op == Op::Linearised {
            // The primitive's result, computed when the node was built.
            return self.columns.value(operands.bias);
        }
        let n = operands.x.count(self.extra.as_slice());
        let scratch = self.scratch.as_mut_slice();
        let (xs, ws) = inner_values(operands, n, self.extra.as_slice(), self.columns.values(), stores, scratch);
        match op {
            Op::InnerProductWithBias => slices::dot_and_bias(xs, ws, self.columns.value(operands.bias)),
            _ => slices::dot(xs, ws),
        }
    }
}
