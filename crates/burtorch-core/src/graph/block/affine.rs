//! Dense layers as blocks: a matrix of parameters times a concatenation of views, plus a bias.
//!
//! Promises: weight gradients of several groups of samples may be deferred to one pass over the weights. Does not know
//! activations.

use super::super::check::{Check, Checked};
use super::super::deferred::DenseLayer;
use super::super::operands::{Encoded, OperandRun, StoreValues};
use super::super::sweep::Sweep;
use super::super::{Graph, Range, View};
use super::append::Fill;
use super::op::{BlockOp, Loaded, Wanted};
use super::record::{BlockHeader, Field, Layout};
use crate::error::{Error, Result};
use crate::kernels::{BlockMath, Working};
use crate::ops::Op;
use crate::params::{Parameters, Slice};

/// A matrix of parameters times a concatenation of views, plus a bias.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AffineRecord {
    pub(crate) header: BlockHeader,
    pub(crate) x: Encoded,
    pub(crate) n_in: u32,
    pub(crate) w_slot: u32,
    pub(crate) w_start: u32,
    /// Slot of the bias plus one, 0 for none.
    pub(crate) bias_source: u32,
    pub(crate) bias_start: u32,
}

impl AffineRecord {
    const LEN: usize = 9;
    const LAYOUT: Layout =
        Layout { len: Self::LEN, fields: &[Field::Node(0), Field::Operands(2), Field::Slot(5), Field::Source(7)] };

    pub(crate) fn read(extra: &[u32], at: u32) -> Self {
        let r = &extra[at as usize..at as usize + Self::LEN];
        AffineRecord {
            header: BlockHeader::read(extra, at),
            x: Encoded(r[2], r[3]),
            n_in: r[4],
            w_slot: r[5],
            w_start: r[6],
            bias_source: r[7],
            bias_start: r[8],
        }
    }

    fn write(self) -> [u32; Self::LEN] {
        [
            self.header.first,
            self.header.n_out,
            self.x.0,
            self.x.1,
            self.n_in,
            self.w_slot,
            self.w_start,
            self.bias_source,
            self.bias_start,
        ]
    }

    pub(super) fn layer(&self) -> DenseLayer {
        DenseLayer {
            n_in: self.n_in,
            n_out: self.header.n_out,
            w_slot: self.w_slot,
            w_start: self.w_start,
            bias_source: self.bias_source,
            bias_start: self.bias_start,
        }
    }

    /// The range of the weights among the values of their slot.
    pub(super) fn weights(&self) -> std::ops::Range<usize> {
        self.layer().weights()
    }

    /// The slot and the range of the bias.
    pub(super) fn bias(&self) -> Option<(usize, std::ops::Range<usize>)> {
        self.layer().bias()
    }

    /// Calls `f` with each run of operands: inputs, weights, and biases if any.
    #[inline(always)]
    pub(crate) fn for_each_run(&self, extra: &[u32], mut f: impl FnMut(OperandRun)) {
        self.x.for_each_run(extra, &mut f);
        f(OperandRun { source: self.w_slot + 1, start: self.w_start, len: self.weights().len() as u32 });
        if self.bias_source > 0 {
            f(OperandRun { source: self.bias_source, start: self.bias_start, len: self.header.n_out });
        }
    }
}

pub(super) struct Affine;

impl<S: BlockMath> BlockOp<S> for Affine {
    const OP: Op = Op::Affine;

    /// Operands: inputs, weights, and biases if any. The op has no parameters of its own.
    fn shape(operands: &[usize], _own: &[usize]) -> Result<usize> {
        let (n_in, weights) = (operands[0], operands[1]);
        if n_in == 0 || weights == 0 {
            return Err(Error::EmptyReduction { op: Op::Affine.name() });
        }
        if !weights.is_multiple_of(n_in) {
            return Err(Error::LengthMismatch {
                op: "affine (inputs and columns of the weights)",
                left: n_in,
                right: weights,
            });
        }
        let n_out = weights / n_in;
        match operands.get(2) {
            Some(&bias) if bias != n_out => {
                Err(Error::LengthMismatch { op: "affine (outputs and biases)", left: n_out, right: bias })
            }
            _ => Ok(n_out),
        }
    }

    fn layout(_extra: &[u32], _at: u32, _lanes: usize) -> Layout {
        AffineRecord::LAYOUT
    }

    fn for_each_operand(extra: &[u32], at: u32, f: &mut dyn FnMut(OperandRun)) {
        AffineRecord::read(extra, at).for_each_run(extra, f);
    }

    fn cost(extra: &[u32], at: u32) -> u64 {
        2 * AffineRecord::read(extra, at).weights().len() as u64
    }

    fn evaluate(graph: &mut Graph<'_, S>, at: u32, stores: &StoreValues<'_, S::Elem>) {
        graph.evaluate_affine(AffineRecord::read(graph.extra.as_slice(), at), stores);
    }

    fn pull(sweep: &mut Sweep<'_, '_, S>, at: u32, top: u32, _wanted: Wanted) {
        sweep.affine(AffineRecord::read(sweep.extra, at), top);
    }

    fn check(loaded: Loaded<'_>, check: &mut Check<'_>) -> Checked {
        let (record, n_in) = (AffineRecord::read(loaded.record, 0), loaded.n_in);
        if u64::from(record.n_in) != n_in {
            return Err(format!("has {n_in} inputs, its record says {}", record.n_in));
        }
        let n_out = u64::from(record.header.n_out);
        check.parameters(record.w_slot, u64::from(record.w_start), n_in * n_out)?;
        if record.bias_source > 0 {
            check.parameters(record.bias_source - 1, u64::from(record.bias_start), n_out)?;
        }
        let (n_in, n_out) = (n_in as usize, n_out as usize);
        check.temporaries(2 * n_in + n_out + S::affine_workspace_len(n_in, n_out));
        Ok(())
    }
}

impl<S: BlockMath> Graph<'_, S> {
    /// Appends `W x + b` as one block: `x` is a concatenation of views with `n_in` scalars in all, `w` the `n_out x
    /// n_in` weights by rows, `bias` has `n_out` numbers. Returns the outputs. Costs `2 n_in n_out` operations a lane.
    pub fn affine(
        &mut self,
        params: &[&Parameters<'_, S::Elem>],
        x: &[View],
        w: Slice,
        bias: Option<Slice>,
    ) -> Result<Range> {
        self.affine_of(params, x.iter().copied(), w, bias)
    }

    /// As [`Graph::affine`], for views that need not be contiguous.
    pub(crate) fn affine_of(
        &mut self,
        params: &[&Parameters<'_, S::Elem>],
        x: impl Iterator<Item = View> + Clone,
        w: Slice,
        bias: Option<Slice>,
    ) -> Result<Range> {
        let n_in: usize = x.clone().map(|view| view.len()).sum();
        let lengths = [n_in, w.len(), bias.map_or(0, |b| b.len())];
        let n_out = <Affine as BlockOp<S>>::shape(&lengths[..2 + usize::from(bias.is_some())], &[])?;
        self.check_view(View::Parameters(w), params)?;
        if let Some(b) = bias {
            self.check_view(View::Parameters(b), params)?;
        }
        self.atomically(|graph| graph.push_affine(params, x, w, bias, n_in, n_out))
    }

    fn push_affine(
        &mut self,
        params: &[&Parameters<'_, S::Elem>],
        x: impl Iterator<Item = View> + Clone,
        w: Slice,
        bias: Option<Slice>,
        n_in: usize,
        n_out: usize,
    ) -> Result<Range> {
        let n_out32 = self.room_for(n_out)?;
        let working = self.n_threads as usize * S::affine_workspace_len(n_in, n_out);
        self.reserve_scratch(2 * n_in + n_out + working)?;
        let encoded = self.encode_views(x.clone(), params)?;
        let (bias_source, bias_start) = match bias {
            Some(b) => (self.slot_of(b.store)? + 1, b.start),
            None => (0, 0),
        };
        let record = AffineRecord {
            header: BlockHeader { first: self.columns.len(), n_out: n_out32 },
            x: encoded,
            n_in: n_in as u32,
            w_slot: self.slot_of(w.store)?,
            w_start: w.start,
            bias_source,
            bias_start,
        };
        let outputs = self.push_block(Op::Affine, n_out32, &record.write(), Fill::WRITTEN)?;
        let stores = self.store_values(params)?;
        self.evaluate_affine(record, &stores);
        Ok(self.finish_block(outputs))
    }

    fn evaluate_affine(&mut self, record: AffineRecord, stores: &StoreValues<'_, S::Elem>) {
        let first = record.header.first as usize;
        let (nodes, outputs) = self.columns.values_mut().split_at_mut(first);
        let (gathered, memory) = self.scratch.as_mut_slice().split_at_mut(record.n_in as usize);
        let working = Working { memory, n_threads: self.n_threads as usize };
        let x = match record.x.contiguous() {
            Some(run) => &nodes[run.indices()],
            None => {
                record.x.gather(self.extra.as_slice(), nodes, |slot| stores[slot], gathered);
                gathered
            }
        };
        let bias = record.bias().map(|(slot, at)| &stores[slot][at]);
        let weights = &stores[record.w_slot as usize][record.weights()];
        S::affine_forward(weights, bias, x, &mut outputs[..record.header.n_out as usize], working);
    }
}
