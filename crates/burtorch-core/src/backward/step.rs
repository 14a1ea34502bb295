//! One step of a sweep: the contributions of a single node to its operands.
//!
//! Promises: adds to the gradients of operands, even where a sweep would start from zero; nothing else changes.

use crate::error::Result;
use crate::graph::{BlockHeader, Graph, NodeId, Sweep};
use crate::memory::list_for;
use crate::ops::{Arity, Op};
use crate::params::Gradients;
use crate::scalar::Scalar;

impl<S: Scalar> Graph<'_, S> {
    /// Adds what `node` contributes, by its present gradient, to the gradients of its operands and of the parameters it
    /// reads, which must be among `params`. Of a block, this is what one output contributes. Once for each node below a root
    /// whose gradient is 1, in reverse building order, these steps are a sweep.
    ///
    /// Linear in the operands, and in the block where `node` is an output of one. On an error nothing has changed.
    pub fn backward_step(&mut self, node: NodeId, params: &mut [Gradients<'_, S::Elem>]) -> Result<()> {
        self.check_exists(node)?;
        let places = self.place_stores(params)?;
        if self.columns.op(node.0) == Op::Leaf || self.columns.adjoint(node.0).is_unreached() {
            return Ok(());
        }
        let outputs = self.outputs_beside(node.0);
        let mut n = outputs.len();
        self.for_each_operand(node, |run| n += run.nodes().map_or(0, |range| range.len()));
        let mut touched = list_for(n, "adjoints of operands")?;
        touched.extend(outputs.filter(|&output| output != node.0));
        self.for_each_operand(node, |run| {
            touched.extend(run.nodes().into_iter().flat_map(|range| range.indices()).map(|k| k as u32))
        });
        touched.sort_unstable();
        touched.dedup();
        let mut before = list_for(touched.len(), "adjoints of operands")?;
        for &operand in &touched {
            before.push(self.columns.adjoint(operand));
            self.columns.set_adjoint(operand, S::UNREACHED);
        }
        let low = touched.first().map_or(node.0, |&lowest| lowest.min(node.0));
        let end = touched.last().map_or(node.0, |&highest| highest.max(node.0)) + 1;
        self.add_dirty(low..end);
        let room = (self.extra.as_slice(), self.scratch.as_mut_slice(), self.n_threads);
        let mut sweep = Sweep::below(node.0, self.columns.split_for_sweep(), room, (params, &places));
        sweep.descend(node.0 + 1, node.0);
        self.dirty.0 = self.dirty.0.min(sweep.low);
        for (&operand, before) in touched.iter().zip(before) {
            let contributed = self.columns.adjoint(operand);
            let is_leaf = self.columns.op(operand) == Op::Leaf;
            self.columns.set_adjoint(operand, before);
            match contributed.is_unreached() {
                true => {}
                false if is_leaf => {
                    let grad = &mut self.leaves.grads_mut()[self.columns.operands(operand)[0] as usize];
                    *grad = *grad + contributed;
                }
                false => self.columns.set_adjoint(operand, before + contributed),
            }
        }
        Ok(())
    }

    /// The outputs of the block that has `node` among them; none of any other node.
    fn outputs_beside(&self, node: u32) -> std::ops::Range<u32> {
        let Some(tail) = self.block_tail(node).filter(|&tail| self.columns.op(tail).info().arity == Arity::Block)
        else {
            return 0..0;
        };
        BlockHeader::read(self.extra.as_slice(), self.columns.operands(tail)[0]).first..tail + 1
    }
}
