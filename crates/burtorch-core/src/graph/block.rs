//! Block ops: one record that produces a range of nodes. The last node of the range is the op, the others are parts.
//!
//! Promises: a block's values equal those of its expansion into scalar nodes within the bound of its sums; a record is
//! plain numbers in the operand lists, so rewinding past it costs nothing. Parameters are read in place.

use super::operands::{Encoded, OperandRun, StoreValues};
use super::{Graph, NodeId, Range, View};
use crate::error::{Error, Result};
use crate::ops::{Op, Reduction, forward_unary};
use crate::params::{Parameters, Slice};
use crate::scalar::{Float, Scalar};

/// First output and number of outputs: how every record begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockHeader {
    pub(crate) first: u32,
    pub(crate) n_out: u32,
}

impl BlockHeader {
    pub(crate) fn read(extra: &[u32], at: u32) -> Self {
        BlockHeader { first: extra[at as usize], n_out: extra[at as usize + 1] }
    }
}

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
    pub(super) const LEN: usize = 9;

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

/// A unary op over a range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapRecord {
    pub(crate) header: BlockHeader,
    pub(crate) op: Op,
    pub(crate) x: Range,
}

impl MapRecord {
    pub(crate) fn read(extra: &[u32], at: u32) -> Self {
        let header = BlockHeader::read(extra, at);
        let op = crate::ops::OP_INFO[extra[at as usize + 2] as usize].op;
        MapRecord { header, op, x: Range { start: extra[at as usize + 3], len: header.n_out } }
    }
}

/// What a softmax cross-entropy compares with.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// One class for all lanes, or one per lane.
    Classes(&'a [u32]),
    /// Probabilities (or weights), one node per class; they receive no gradient.
    Probabilities(Range),
}

/// Softmax cross-entropy: outputs are the probabilities, then the loss.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CrossEntropyRecord {
    pub(crate) header: BlockHeader,
    pub(crate) logits: Range,
    /// Whether the target is a range of probabilities (at `target`) or classes (from `target` in the operand lists).
    pub(crate) by_probabilities: bool,
    pub(crate) target: u32,
}

impl CrossEntropyRecord {
    pub(crate) fn read(extra: &[u32], at: u32) -> Self {
        let r = &extra[at as usize..at as usize + 5];
        let header = BlockHeader::read(extra, at);
        let logits = Range { start: r[2], len: header.n_out - 1 };
        let by_probabilities = r[3] == 0;
        CrossEntropyRecord { header, logits, by_probabilities, target: if by_probabilities { r[4] } else { at + 4 } }
    }

    /// The class of each lane.
    pub(crate) fn classes<'a>(&self, extra: &'a [u32], lanes: usize) -> &'a [u32] {
        &extra[self.target as usize..self.target as usize + lanes]
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

    /// Appends the unary `op` over a range as one block. Same values and gradients as one node each.
    pub fn map(&mut self, op: Op, x: Range) -> Result<Range> {
        self.check_range(x)?;
        if forward_unary(op, S::lit(0.0)).is_none() {
            return Err(Error::BadArgument { what: "the op", expected: "a unary op".into(), found: op.name().into() });
        }
        if x.is_empty() {
            return Err(Error::EmptyReduction { op: "map" });
        }
        self.atomically(|graph| {
            let n = graph.room_for(x.len())?;
            let record = MapRecord { header: BlockHeader { first: graph.columns.len(), n_out: n }, op, x };
            let outputs = graph.push_block(Op::Map, n, &[record.header.first, n, op as u32, x.start])?;
            graph.evaluate_map(record);
            Ok(graph.finish_block(outputs))
        })
    }

    pub(crate) fn evaluate_map(&mut self, record: MapRecord) {
        let (nodes, outputs) = self.columns.values_mut().split_at_mut(record.header.first as usize);
        S::map_forward(record.op, &nodes[record.x.indices()], &mut outputs[..record.header.n_out as usize]);
    }

    /// Appends the softmax cross-entropy of `logits`: `log(sum exp z) - z[class]`, or
    /// `sum_k t_k (log(sum exp z) - z_k)` for probabilities. Returns the loss; the probabilities are the nodes before it.
    pub fn softmax_cross_entropy(&mut self, logits: Range, target: Target<'_>) -> Result<NodeId> {
        self.check_range(logits)?;
        if logits.is_empty() {
            return Err(Error::EmptyReduction { op: Op::CrossEntropy.name() });
        }
        match target {
            Target::Classes(classes) => {
                if classes.len() != 1 && classes.len() != S::LANES {
                    return Err(Error::LengthMismatch {
                        op: "softmax_cross_entropy (lanes and classes)",
                        left: S::LANES,
                        right: classes.len(),
                    });
                }
                for &class in classes {
                    if class >= logits.len {
                        return Err(Error::OutOfRange {
                            what: "class",
                            found: u64::from(class),
                            max: u64::from(logits.len) - 1,
                        });
                    }
                }
            }
            Target::Probabilities(range) => {
                self.check_range(range)?;
                if range.len != logits.len {
                    return Err(Error::LengthMismatch {
                        op: "softmax_cross_entropy (logits and probabilities)",
                        left: logits.len(),
                        right: range.len(),
                    });
                }
            }
        }
        let loss = self.atomically(|graph| graph.push_cross_entropy(logits, target))?;
        Ok(NodeId(loss.start + loss.len - 1))
    }

    fn push_cross_entropy(&mut self, logits: Range, target: Target<'_>) -> Result<Range> {
        let n = self.room_for(logits.len() + 1)?;
        self.reserve_scratch(logits.len())?;
        let first = self.columns.len();
        let at = self.extra.len() as u32;
        let outputs = match target {
            Target::Probabilities(range) => {
                self.push_block(Op::CrossEntropy, n, &[first, n, logits.start, 0, range.start])?
            }
            Target::Classes(classes) => {
                self.extra.reserve(4 + S::LANES)?;
                let outputs = self.push_block(Op::CrossEntropy, n, &[first, n, logits.start, 1])?;
                for lane in 0..S::LANES {
                    self.extra.push_reserved(classes[lane % classes.len()]);
                }
                outputs
            }
        };
        self.evaluate_cross_entropy(CrossEntropyRecord::read(self.extra.as_slice(), at));
        Ok(self.finish_block(outputs))
    }

    pub(crate) fn evaluate_cross_entropy(&mut self, record: CrossEntropyRecord) {
        let (nodes, outputs) = self.columns.values_mut().split_at_mut(record.header.first as usize);
        let n = record.logits.len();
        let logits = &nodes[record.logits.indices()];
        let (probabilities, loss) = outputs[..n + 1].split_at_mut(n);
        let log_sum = S::softmax(logits, probabilities);
        loss[0] = if record.by_probabilities {
            let targets = &nodes[record.target as usize..record.target as usize + n];
            let mut total = targets[0] * (log_sum - logits[0]);
            for (&t, &z) in targets[1..].iter().zip(&logits[1..]) {
                total = total + t * (log_sum - z);
            }
            total
        } else {
            let mut chosen = S::lit(0.0);
            for (lane, &class) in record.classes(self.extra.as_slice(), S::LANES).iter().enumerate() {
                chosen = chosen.with_lane(lane, logits[class as usize].lane(lane));
            }
            log_sum - chosen
        };
    }

    /// Appends mean and mean of squares of a run as one block and returns the two nodes.
    pub fn reduce_mean_and_mean_squares(&mut self, x: Range) -> Result<(NodeId, NodeId)> {
        self.check_range(x)?;
        if x.is_empty() {
            return Err(Error::EmptyReduction { op: Op::MeanAndMeanSquares.name() });
        }
        let outputs = self.atomically(|graph| {
            graph.room_for(2)?;
            let first = graph.columns.len();
            let outputs = graph.push_block(Op::MeanAndMeanSquares, 2, &[first, 2, x.start, x.len])?;
            graph.evaluate_means(first, x);
            Ok(graph.finish_block(outputs))
        })?;
        Ok((NodeId(outputs.start), NodeId(outputs.start + 1)))
    }

    pub(crate) fn evaluate_means(&mut self, first: u32, x: Range) {
        let forward = |op, xs: &[S]| Reduction::new(op).map_or(S::lit(f64::NAN), |r| r.forward(xs));
        let xs = &self.columns.values()[x.indices()];
        let (mean, squares) = (forward(Op::ReduceMean, xs), forward(Op::ReduceMeanSquares, xs));
        self.columns.set_value(first, mean);
        self.columns.set_value(first + 1, squares);
    }

    /// Appends the nodes and the record of a block; values are still to be computed.
    fn push_block(&mut self, op: Op, n_out: u32, record: &[u32]) -> Result<Range> {
        self.extra.reserve(record.len())?;
        let at = self.extra.len() as u32;
        for &number in record {
            self.extra.push_reserved(number);
        }
        let start = self.columns.push_many_reserved(Op::Part, n_out);
        self.columns.set_node(start + n_out - 1, op, at, 0);
        Ok(Range { start, len: n_out })
    }

    /// Under `no_grad`, turns the outputs into constants.
    fn finish_block(&mut self, outputs: Range) -> Range {
        if self.no_grad {
            for node in outputs.start..outputs.start + outputs.len {
                self.columns.set_node(node, Op::Constant, 0, 0);
            }
        }
        outputs
    }

    pub(crate) fn for_each_block_operand(&self, op: Op, at: u32, mut f: impl FnMut(OperandRun)) {
        let extra = self.extra.as_slice();
        let nodes = |range: Range| OperandRun { source: 0, start: range.start, len: range.len };
        match op {
            Op::Affine => {
                let record = AffineRecord::read(extra, at);
                record.x.for_each_run(extra, &mut f);
                let weights = record.weights();
                f(OperandRun { source: record.w_slot + 1, start: weights.start as u32, len: weights.len() as u32 });
                if let Some((slot, range)) = record.bias() {
                    f(OperandRun { source: slot as u32 + 1, start: range.start as u32, len: range.len() as u32 });
                }
            }
            Op::Map => f(nodes(MapRecord::read(extra, at).x)),
            Op::CrossEntropy => {
                let record = CrossEntropyRecord::read(extra, at);
                f(nodes(record.logits));
                if record.by_probabilities {
                    f(nodes(Range { start: record.target, len: record.logits.len }));
                }
            }
            _ => f(nodes(Range { start: extra[at as usize + 2], len: extra[at as usize + 3] })),
        }
    }
}

/// Block ops are for the element types that have kernels.
pub const fn has_kernels<E: Float>() -> bool {
    matches!(E::DTYPE, crate::scalar::DType::Float32 | crate::scalar::DType::Float64)
}
