//! Dense layers as blocks: a matrix of parameters times a concatenation of views, plus a bias.
//!
//! Promises what the module above promises. Knows nothing of activations.

use super::super::operands::{Encoded, OperandRun, StoreValues};
use super::super::structure::{Check, Checked};
use super::super::{Graph, Range, View};
use super::{BlockHeader, Field, Layout};
use crate::error::{Error, Result};
use crate::ops::Op;
use crate::params::{Parameters, Slice};
use crate::scalar::Scalar;

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
    pub(super) const LAYOUT: Layout =
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

    /// See [`Check::block`].
    pub(super) fn check(record: &[u32], n_in: u64, check: &mut Check<'_>) -> Checked {
        let record = Self::read(record, 0);
        if u64::from(record.n_in) != n_in {
            return Err(format!("has {n_in} inputs, its record says {}", record.n_in));
        }
        let n_out = u64::from(record.header.n_out);
        check.parameters(record.w_slot, u64::from(record.w_start), n_in * n_out)?;
        if record.bias_source > 0 {
            check.parameters(record.bias_source - 1, u64::from(record.bias_start), n_out)?;
        }
        check.temporaries(2 * n_in as usize + n_out as usize);
        Ok(())
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

    /// Stands where there is no record yet.
    pub(crate) const NONE: Self = AffineRecord {
        header: BlockHeader { first: 0, n_out: 0 },
        x: Encoded(0, 0),
        n_in: 0,
        w_slot: 0,
        w_start: 0,
        bias_source: 0,
        bias_start: 0,
    };

    /// Whether both are the same layer, of other inputs.
    pub(crate) fn same_parameters(&self, other: &Self) -> bool {
        let parameters = |r: &Self| (r.w_slot, r.w_start, r.n_in, r.header.n_out, r.bias_source, r.bias_start);
        parameters(self) == parameters(other)
    }

    pub(super) fn for_each_operand(&self, extra: &[u32], mut f: impl FnMut(OperandRun)) {
        self.x.for_each_run(extra, &mut f);
        let weights = self.weights();
        f(OperandRun { source: self.w_slot + 1, start: weights.start as u32, len: weights.len() as u32 });
        if let Some((slot, range)) = self.bias() {
            f(OperandRun { source: slot as u32 + 1, start: range.start as u32, len: range.len() as u32 });
        }
    }

    /// The weights among the values of its slot.
    pub(crate) fn weights(&self) -> std::ops::Range<usize> {
        let start = self.w_start as usize;
        start..start + self.header.n_out as usize * self.n_in as usize
    }

    /// Slot and place of the bias.
    pub(crate) fn bias(&self) -> Option<(usize, std::ops::Range<usize>)> {
        let start = self.bias_start as usize;
        (self.bias_source > 0).then(|| (self.bias_source as usize - 1, start..start + self.header.n_out as usize))
    }
}

impl<S: Scalar> Graph<'_, S> {
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

    /// As [`Graph::affine`], for views that need not be in one place.
    pub(crate) fn affine_of(
        &mut self,
        params: &[&Parameters<'_, S::Elem>],
        x: impl Iterator<Item = View> + Clone,
        w: Slice,
        bias: Option<Slice>,
    ) -> Result<Range> {
        let n_in: usize = x.clone().map(|view| view.len()).sum();
        if n_in == 0 || w.is_empty() {
            return Err(Error::EmptyReduction { op: Op::Affine.name() });
        }
        if !w.len().is_multiple_of(n_in) {
            return Err(Error::LengthMismatch {
                op: "affine (inputs and columns of the weights)",
                left: n_in,
                right: w.len(),
            });
        }
        let n_out = w.len() / n_in;
        if let Some(b) = bias
            && b.len() != n_out
        {
            return Err(Error::LengthMismatch { op: "affine (outputs and biases)", left: n_out, right: b.len() });
        }
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
        self.reserve_scratch(2 * n_in + n_out)?;
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
        let outputs = self.push_block(Op::Affine, n_out32, &record.write())?;
        let stores = self.store_values(params);
        self.evaluate_affine(record, &stores);
        Ok(self.finish_block(outputs))
    }

    pub(crate) fn evaluate_affine(&mut self, record: AffineRecord, stores: &StoreValues<'_, S::Elem>) {
        let first = record.header.first as usize;
        let (nodes, outputs) = self.columns.values_mut().split_at_mut(first);
        let gathered = &mut self.scratch.as_mut_slice()[..record.n_in as usize];
        let x = match record.x.contiguous() {
            Some(run) => &nodes[run.indices()],
            None => {
                record.x.gather(self.extra.as_slice(), nodes, stores, gathered);
                gathered
            }
        };
        let bias = record.bias().map(|(slot, at)| &stores[slot][at]);
        let weights = &stores[record.w_slot as usize][record.weights()];
        S::affine_forward(weights, bias, x, &mut outputs[..record.header.n_out as usize]);
    }
}
