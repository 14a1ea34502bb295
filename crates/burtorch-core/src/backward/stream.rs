//! Sweeps that hand gradients on while they descend.
//!
//! Promises: a range is handed on when the last node that reads some of it has been taken; it has the bits of a sweep that hands on
//! nothing. Knows nothing of what becomes of it.

use std::ops::Range;

use crate::error::Result;
use crate::graph::{BlockHeader, Graph, Sweep};
use crate::kernels::BlockMath;
use crate::memory::list_for;
use crate::ops::Arity;
use crate::params::{Emission, emissions};
use crate::sync::stop;

/// Is told of a range of parameters and its gradient, and may change that; `false` ends the sweep.
pub(crate) type Consume<'a, E> = dyn FnMut(Range<usize>, &mut [E]) -> bool + 'a;

/// In which order gradients are handed on, and to whom.
pub(crate) struct Stream<'a, 'c, E> {
    pub(crate) order: &'a [Emission],
    pub(crate) consume: &'a mut Consume<'c, E>,
}

impl<S: BlockMath> Graph<'_, S> {
    /// The order in which gradients become final of the `n` parameters that the graph reads, of which `tensors` are.
    pub(crate) fn emissions(&self, tensors: &[Range<u32>], n: usize) -> Result<Vec<Emission>> {
        let topology = self.topology();
        let mut n_reads = 0;
        let mut reads = Vec::new();
        // Counted first, then listed.
        for is_listed in [false, true] {
            let mut node = self.len() as u32;
            while node > 0 {
                node -= 1;
                let is_block = topology.op(node).info().arity == Arity::Block;
                let first = match is_block {
                    true => BlockHeader::read(topology.extra, topology.operands[node as usize][0]).first,
                    false => node,
                };
                topology.for_each_operand(node, |run| {
                    if run.source > 0 && is_listed {
                        let range = run.start..run.start + run.len;
                        reads.push(Emission { range, readers: (i64::from(node), i64::from(first)) });
                    } else if run.source > 0 {
                        n_reads += 1;
                    }
                });
                node = first;
            }
            if !is_listed {
                reads = list_for(n_reads, "the order of gradients")?;
            }
        }
        emissions(reads, tensors, n)
    }
}

impl<S: BlockMath> Sweep<'_, '_, S> {
    /// Takes the nodes below `end`, and hands each range on as soon as it is final.
    pub(super) fn descend_handing_on(&mut self, mut end: u32, stream: Stream<'_, '_, S::Elem>) {
        for Emission { range, readers } in stream.order {
            let reader = readers.1.max(0) as u32;
            if end > reader.max(self.floor) {
                end = self.descend(end, reader);
            }
            let range = range.start as usize..range.end as usize;
            self.add_deferred_in(0, &range);
            if self.is_over || stop::has_ended() || !self.params[0].emit(range, stream.consume) {
                self.is_over = true;
                return;
            }
        }
    }
}
