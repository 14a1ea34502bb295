//! The sweep in its variants: into the graph, into the caller's memory, interruptible.
//!
//! Promises: one pass in reverse building order, no recursion, no allocation; cost follows the span between the root
//! and the lowest node it reaches; leaves and parameters accumulate, all other adjoints are of this sweep alone.

mod descend;
mod floor;
mod overwrite;
mod scalars;
mod step;
mod stream;

use std::ops::Range;

use crate::error::{Error, Result};
use crate::graph::{Deferred, Graph, InputSampler, MAX_GROUPS, NodeId, PerSlot, Sweep, Topology};
use crate::kernels::BlockMath;
use crate::ops::{Arity, Op};
use crate::params::Gradients;
use crate::scalar::Scalar;
use crate::sync::stop;
use scalars::{Descent, sweep_scalars};
pub(crate) use stream::{Consume, Stream};

/// How a sweep is to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepOptions {
    /// Pass over nodes whose adjoint is exactly zero (in every lane), so that `0 * inf` below them never happens. Off by
    /// default.
    pub skip_zero_adjoints: bool,
    /// Leave the gradients of leaves as they are: those of parameters alone are asked for.
    pub skip_leaves: bool,
}

/// Adjoints in memory of the caller, as [`Graph::backward_with_scratch`] leaves them.
#[derive(Debug)]
pub struct Adjoints<'s, S> {
    base: u32,
    adjoints: &'s [S],
}

impl<S: Scalar> Adjoints<'_, S> {
    /// The gradient of the root with respect to a node: 0 if no path joins them.
    pub fn get(&self, node: NodeId) -> S {
        let at = node.0.checked_sub(self.base).and_then(|k| self.adjoints.get(k as usize));
        at.filter(|a| !a.is_unreached()).copied().unwrap_or(S::lit(0.0))
    }
}

impl<S: Scalar> Graph<'_, S> {
    /// Adds the gradient of `root` to its leaves. For graphs that read no parameters.
    #[inline]
    pub fn backward(&mut self, root: NodeId) -> Result<()> {
        self.backward_with(root, S::lit(1.0), &mut [])
    }

    /// Adds `seed` times the gradient of `root` to its leaves and to the parameters it reads, which must be among
    /// `params`. Intermediate nodes keep the adjoints of this sweep. On an error nothing has changed.
    #[inline]
    pub fn backward_with(&mut self, root: NodeId, seed: S, params: &mut [Gradients<'_, S::Elem>]) -> Result<()> {
        self.backward_polled(root, seed, params, SweepOptions::default(), None)
    }

    /// As [`Graph::backward_with`], with options, and with a question asked now and then: when `interrupted` says
    /// `true` the sweep ends with [`Error::Interrupted`] and no leaf has changed.
    #[inline]
    pub fn backward_polled(
        &mut self,
        root: NodeId,
        seed: S,
        params: &mut [Gradients<'_, S::Elem>],
        options: SweepOptions,
        interrupted: Option<&mut dyn FnMut() -> bool>,
    ) -> Result<()> {
        self.check_exists(root)?;
        let places = self.place_stores(params)?;
        if options.skip_zero_adjoints || interrupted.is_some() || params.iter().any(|store| store.prunes) {
            let fresh = match options.skip_zero_adjoints || interrupted.is_some() {
                true => {
                    self.reset_adjoints();
                    0..0
                }
                false => self.ready_adjoints(root.0),
            };
            let low = self.sweep_carefully(root.0, seed, params, &places, (options, fresh), interrupted)?;
            if !options.skip_leaves {
                self.commit_leaves(low, root.0);
            }
            return Ok(());
        }
        let fresh = self.ready_adjoints(root.0);
        let (recorded, adjoints) = self.columns.split_for_sweep();
        let (came, low) = sweep_scalars(recorded, adjoints, self.leaves.grads_mut(), root.0, seed);
        self.dirty = (low, root.0 + 1);
        match came {
            Descent::Met(node) => self.sweep_through_blocks(node, params, &places, fresh),
            Descent::Down(_) => Ok(()),
        }
    }

    /// Ends a sweep that came down to a node with many operands.
    #[inline(never)]
    fn sweep_through_blocks(
        &mut self,
        met: u32,
        params: &mut [Gradients<'_, S::Elem>],
        places: &[u32],
        fresh: Range<u32>,
    ) -> Result<()> {
        let (low, end) = self.dirty;
        // Until the span is known, in case a kernel panics.
        self.dirty = (0, end);
        let room = (self.extra.as_slice(), self.scratch.as_mut_slice(), self.n_threads);
        let leaf_grads = self.leaves.grads_mut();
        let columns = self.columns.split_for_sweep();
        let mut sweep = Sweep { leaf_grads, fresh, ..Sweep::below(low, columns, room, (params, places)) };
        sweep.finish(met);
        self.dirty = (sweep.low, end);
        if sweep.is_over || stop::has_ended() { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// A sweep with options, or one that may be interrupted, or leave out what is not asked for: returns the lowest node touched.
    /// Leaves are left alone, as it may not come to its end.
    #[inline(never)]
    fn sweep_carefully(
        &mut self,
        root: u32,
        seed: S,
        params: &mut [Gradients<'_, S::Elem>],
        places: &[u32],
        (options, fresh): (SweepOptions, Range<u32>),
        interrupted: Option<&mut dyn FnMut() -> bool>,
    ) -> Result<u32> {
        let lowest_leaf = self.leaves.nodes().first().filter(|_| !options.skip_leaves);
        let floor =
            floor::floor(self.topology(), params, places, root, 0).min(lowest_leaf.copied().unwrap_or(u32::MAX));
        // Until the span is known, in case `interrupted` panics.
        self.dirty = (0, root + 1);
        let room = (self.extra.as_slice(), self.scratch.as_mut_slice(), self.n_threads);
        let whole = Sweep::below(root, self.columns.split_for_sweep(), room, (params, places));
        let mut sweep = Sweep { skip_zero_adjoints: options.skip_zero_adjoints, fresh, floor, ..whole };
        let finished = sweep.run(root, seed, interrupted) && !sweep.is_over && !stop::has_ended();
        let low = sweep.low;
        self.dirty = (low, root + 1);
        if !finished {
            return Err(Error::Interrupted);
        }
        Ok(low)
    }

    /// Adds the adjoints of this sweep to the gradients of the leaves it reached.
    fn commit_leaves(&mut self, low: u32, root: u32) {
        let from = self.leaves.nodes().partition_point(|&leaf| leaf < low);
        for k in from..self.leaves.len() as usize {
            let leaf = self.leaves.nodes()[k];
            if leaf > root {
                break;
            }
            let adjoint = self.columns.adjoint(leaf);
            if !adjoint.is_unreached() {
                let grad = &mut self.leaves.grads_mut()[k];
                *grad = *grad + adjoint;
            }
        }
    }

    /// For each slot of the graph, where its parameters are in `params`.
    #[inline(always)]
    pub(super) fn place_stores(&self, params: &[Gradients<'_, S::Elem>]) -> Result<PerSlot<u32>> {
        let mut places = PerSlot::of(0, self.stores().len())?;
        for (slot, &store) in self.stores().iter().enumerate() {
            let place = params.iter().position(|p| p.store == store).ok_or(Error::MissingParameters)?;
            places[slot] = place as u32;
        }
        Ok(places)
    }

    /// Scalars of scratch that [`Graph::backward_with_scratch`] needs for this root: one per node between the root and
    /// the lowest node that it could reach, and the temporaries of block ops.
    pub fn scratch_len(&self, root: NodeId) -> Result<usize> {
        self.check_exists(root)?;
        Ok((root.0 + 1 - lowest_below(self.topology(), root.0)) as usize + self.scratch.len())
    }

    /// Computes `seed` times the gradient of `root` without changing the graph: all adjoints and temporaries are in
    /// `scratch` (see [`Graph::scratch_len`]). Several threads may do so at once on one graph, each with its own
    /// scratch and gradients. The paper's `backwardWithScratchStorage`.
    pub fn backward_with_scratch<'s>(
        &self,
        root: NodeId,
        seed: S,
        scratch: &'s mut [S],
        params: &mut [Gradients<'_, S::Elem>],
    ) -> Result<Adjoints<'s, S>> {
        self.check_exists(root)?;
        let base = lowest_below(self.topology(), root.0);
        let n_nodes = (root.0 + 1 - base) as usize;
        let need = n_nodes + self.scratch.len();
        if scratch.len() < need {
            return Err(Error::BufferTooSmall { what: "scratch for this root", need, have: scratch.len() });
        }
        let places = self.place_stores(params)?;
        let (adjoints, temporaries) = scratch[..need].split_at_mut(n_nodes);
        adjoints.fill(S::UNREACHED);
        let room = (self.extra.as_slice(), temporaries, self.n_threads);
        let whole = Sweep::below(root.0, (self.columns.recorded(), &mut *adjoints), room, (params, &places));
        let mut sweep = Sweep { base, floor: base, ..whole };
        sweep.run(root.0, seed, None);
        Ok(Adjoints { base, adjoints })
    }
}

/// A node at or below everything that `root` can reach, found without memory.
fn lowest_below(graph: Topology<'_>, root: u32) -> u32 {
    let mut low = root;
    let mut node = graph.block_tail(root).unwrap_or(root) + 1;
    while node > low {
        node -= 1;
        let op = graph.op(node);
        // The last output of a block speaks for the other parts.
        if op == Op::Part {
            continue;
        }
        if op.info().arity == Arity::Block {
            low = low.min(graph.extra[graph.operands[node as usize][0] as usize]);
        }
        graph.for_each_operand(node, |run| {
            if run.source == 0 {
                low = low.min(run.start);
            }
        });
    }
    low
}

impl<S: BlockMath> Graph<'_, S> {
    /// Adds the gradient of `sum seed_k root_k` to the leaves and to the parameters, in one sweep over all roots, which
    /// ascend. Weight gradients of dense layers wait in `deferred`, if it is given, so that all groups of samples share one pass
    /// over the weights. Gradients of the only `params` are handed on as they become final, if somebody takes them.
    /// Weight gradients of dense layers take the inputs that `sampler` chooses, if there is one.
    pub(crate) fn backward_many(
        &mut self,
        roots: &[(NodeId, S)],
        params: &mut [Gradients<'_, S::Elem>],
        mut deferred: Option<&mut Deferred<S>>,
        mut stream: Option<Stream<'_, '_, S::Elem>>,
        sampler: Option<&mut (dyn InputSampler<S> + '_)>,
    ) -> Result<()> {
        let Some(&(top, _)) = roots.last() else {
            return Ok(());
        };
        self.check_exists(top)?;
        debug_assert!(roots.is_sorted_by_key(|(root, _)| root.0));
        let places = self.place_stores(params)?;
        if let Some(deferred) = &mut deferred {
            deferred.prepare(floor::n_dense(self.topology(), top.0))?;
        }
        let fresh = self.ready_adjoints_of(roots);
        let topology = self.topology();
        let mut floors = [0; MAX_GROUPS];
        let mut bottom = 0;
        for (to, (root, _)) in floors.iter_mut().zip(roots) {
            *to = floor::floor(topology, params, &places, root.0, bottom);
            bottom = root.0 + 1;
        }
        // Nobody asks for what lies below, and the next sweep finds it dirty.
        let (fresh, stale) = if fresh.end <= floors[0] { (0..0, fresh) } else { (fresh, 0..0) };
        let room = (self.extra.as_slice(), self.scratch.as_mut_slice(), self.n_threads);
        let whole = Sweep::below(top.0, self.columns.split_for_sweep(), room, (params, &places));
        // A closure, so that the lifetime gets shorter.
        let sampler = sampler.map(|sampler| sampler as &mut dyn InputSampler<S>);
        let mut sweep = Sweep { deferred, sampler, fresh, ..whole };
        for &(root, seed) in roots {
            sweep.add(root.0, seed);
        }
        // No group reads nodes of another.
        for ((root, _), &floor) in roots.iter().zip(&floors).rev() {
            sweep.floor = floor;
            match stream.take_if(|_| root.0 == roots[0].0.0) {
                Some(stream) => {
                    sweep.descend_handing_on(root.0 + 1, stream, |sweep, range| sweep.add_deferred_in(0, range));
                }
                None => drop(sweep.descend(root.0 + 1, 0)),
            }
        }
        if !sweep.is_over {
            sweep.add_deferred();
        }
        let low = sweep.low;
        let is_over = sweep.is_over;
        self.dirty = (low, top.0 + 1);
        if !stale.is_empty() {
            self.add_dirty(stale);
        }
        if is_over || stop::has_ended() {
            return Err(Error::Interrupted);
        }
        self.commit_leaves(low, top.0);
        Ok(())
    }
}
