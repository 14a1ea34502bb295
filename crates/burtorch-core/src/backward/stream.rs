//! Sweeps that return gradients in parts.
//!
//! Promises: a range is returned when the last node that reads a part of it has been taken; it has the bits of an ordinary
//! sweep. Does not know the receiver.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::graph::{BlockHeader, Graph, NodeId, Sweep};
use crate::memory::list_for;
use crate::ops::Arity;
use crate::params::{Emission, InFlight, Parameters, Written, emissions};
use crate::scalar::Scalar;
use crate::sync::stop;

/// Is told of a range of parameters and its gradient, and may change that; `false` ends the sweep.
pub(crate) type Consume<'a, E> = dyn FnMut(Range<usize>, &mut [E]) -> bool + 'a;

/// In which order gradients are handed on, and to whom.
pub(crate) struct Stream<'a, 'c, E> {
    pub(crate) order: &'a [Emission],
    pub(crate) consume: &'a mut Consume<'c, E>,
}

impl<S: Scalar> Graph<'_, S> {
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

    /// Hands the gradient of `seed` times `root` by `params`, the only ones that the graph reads, to `take`, a tensor after the other
    /// as they become final, and leaves it nowhere; frozen numbers are no exception. `false` ends the sweep. Gradients of leaves
    /// stay as they are. Memory is that of the tensors in flight.
    ///
    /// ```
    /// use burtorch_core::{Graph, Init, Op, Parameters};
    /// let mut params = Parameters::<f64>::new(0);
    /// let [v, w] = [1.5, 2.0].map(|x| params.tensor(&[2], None, Init::Constant(x), true).unwrap());
    /// let mut graph = Graph::<f64>::new();
    /// let v = graph.parameter(&params, v.slice(), 0).unwrap();
    /// let w = graph.parameter(&params, w.slice(), 1).unwrap();
    /// let y = graph.binary_op(Op::Mul, v, w).unwrap();
    /// let mut parts = Vec::new();
    /// let take = &mut |range, gradient: &mut [f64]| {
    ///     parts.push((range, gradient.to_vec()));
    ///     true
    /// };
    /// graph.backward_passed_on(y, 1.0, &params, take).unwrap();
    /// assert_eq!(parts, [(2..4, vec![0.0, 1.5]), (0..2, vec![2.0, 0.0])]);
    /// ```
    pub fn backward_passed_on(
        &mut self,
        root: NodeId,
        seed: S,
        params: &Parameters<'_, S::Elem>,
        mut take: impl FnMut(Range<usize>, &mut [S::Elem]) -> bool,
    ) -> Result<()> {
        self.check_exists(root)?;
        let mut tensors = list_for(params.tensors_downwards().count(), "the order of gradients")?;
        tensors.extend(params.tensors_downwards().map(|range| range.start as u32..range.end as u32));
        tensors.reverse();
        let order = self.emissions(&tensors, params.len())?;
        let (mut in_flight, mut written) = (InFlight::new(), Written::new());
        in_flight.place(&order)?;
        let (memory, lie) = in_flight.split();
        let mut gradients = [params.gradients_apart(memory, lie, &mut written)];
        let places = self.place_stores(&gradients)?;
        self.reset_adjoints();
        self.dirty = (0, root.0 + 1);
        let room = (self.extra.as_slice(), self.scratch.as_mut_slice(), self.n_threads);
        let mut sweep = Sweep::below(root.0, self.columns.split_for_sweep(), room, (&mut gradients, &places));
        sweep.add(root.0, seed);
        sweep.descend_handing_on(root.0 + 1, Stream { order: &order, consume: &mut take }, |_, _| {});
        let is_over = sweep.is_over || stop::has_ended();
        self.dirty = (sweep.low, root.0 + 1);
        if is_over { Err(Error::Interrupted) } else { Ok(()) }
    }
}

impl<S: Scalar> Sweep<'_, '_, S> {
    /// Takes the nodes below `end`, and hands each range on as soon as it is final; `complete` adds what waits for it.
    pub(super) fn descend_handing_on(
        &mut self,
        mut end: u32,
        stream: Stream<'_, '_, S::Elem>,
        complete: impl Fn(&mut Self, &Range<usize>),
    ) {
        for Emission { range, readers } in stream.order {
            let reader = readers.1.max(0) as u32;
            if end > reader.max(self.floor) {
                end = self.descend(end, reader);
            }
            let range = range.start as usize..range.end as usize;
            complete(self, &range);
            if self.is_over || stop::has_ended() || !self.params[0].emit(range, stream.consume) {
                self.is_over = true;
                return;
            }
        }
    }
}
