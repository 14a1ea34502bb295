//! The sweep through block ops.
//!
//! A block is taken once, when the first of its outputs that is reached is met from above; then every contribution to
//! any of its outputs has been made, as users of a block come after all of it. Outputs that nobody reached contribute
//! nothing, not even zero times infinity.

use super::Values;
use super::sweep::Sweep;
use crate::graph::{AffineRecord, BlockHeader, CrossEntropyRecord, Encoded, MapRecord, OperandRun};
use crate::ops::Op;
use crate::scalar::Scalar;

impl<S: Scalar> Sweep<'_, '_, S> {
    /// Takes the block of which `node` is an output; returns its first output.
    #[inline(never)]
    pub(super) fn block(&mut self, node: u32) -> u32 {
        let mut tail = node as usize;
        while self.recorded.ops[tail] == Op::Part {
            tail += 1;
        }
        let record = self.recorded.operands[tail][0];
        // Outputs above `node` are unreached, or this block would have been met there.
        let header = BlockHeader::read(self.extra, record);
        if self.skip_zero_adjoints {
            let outputs = self.place(header.first, node);
            for adjoint in self.adjoints[outputs].iter_mut().filter(|a| a.all_zero()) {
                *adjoint = S::UNREACHED;
            }
        }
        match self.recorded.ops[tail] {
            Op::Affine => self.affine(AffineRecord::read(self.extra, record), node),
            Op::Map => self.map(MapRecord::read(self.extra, record), node),
            Op::CrossEntropy => self.cross_entropy(CrossEntropyRecord::read(self.extra, record), node),
            _ => self.mean_and_mean_squares(record, node),
        }
        header.first
    }

    /// Where the adjoints of nodes `first..=last` are.
    fn place(&self, first: u32, last: u32) -> std::ops::Range<usize> {
        (first - self.base) as usize..(last + 1 - self.base) as usize
    }

    fn affine(&mut self, record: AffineRecord, top: u32) {
        let (n_in, n_out) = (record.n_in as usize, record.header.n_out as usize);
        let scratch = std::mem::take(&mut self.scratch);
        let (gathered, rest) = scratch.split_at_mut(n_in);
        let (dx, rest) = rest.split_at_mut(n_in);
        let dy = &mut rest[..n_out];
        let n_met = (top + 1 - record.header.first) as usize;
        dy[..n_met].copy_from_slice(&self.adjoints[self.place(record.header.first, top)]);
        dy[n_met..].fill(S::UNREACHED);
        let x = match record.x.contiguous() {
            Some(run) => &self.recorded.values[run.indices()],
            None => self.gather(record.x, gathered),
        };
        let all_reached = n_met == n_out && dy.iter().fold(true, |all, dy| all & !dy.is_unreached());
        let input_grad = self.affine_matrix(record, dy, x, dx, all_reached);
        if let Some((slot, at)) = record.bias() {
            self.affine_bias(slot as u32, at, dy, all_reached);
        }
        if input_grad {
            self.scatter(record.x, dx);
        }
        self.scratch = scratch;
    }

    /// What the inputs receive goes to `dx`, if they receive anything; what the weights receive, to them.
    fn affine_matrix(&mut self, record: AffineRecord, dy: &[S], x: &[S], dx: &mut [S], all_reached: bool) -> bool {
        let (weights, n_in) = (record.weights(), x.len());
        let wanted = self.wants_gradient(record.x);
        let store = &mut self.params[self.places[record.w_slot as usize] as usize];
        let whole = all_reached && store.all_trainable(weights.clone());
        if let (true, Values::Stepped(values, lr)) = (whole, &mut store.values) {
            S::affine_descend(*lr, dy, x, &mut values[weights], wanted.then_some(dx));
            return wanted;
        }
        if wanted {
            let weights = &store.values()[weights.clone()];
            if all_reached {
                S::affine_input_grad(weights, dy, dx);
            } else {
                dx.fill(S::lit(0.0));
                for (&dy, row) in dy.iter().zip(weights.chunks_exact(n_in)).filter(|(dy, _)| !dy.is_unreached()) {
                    for (dx, &w) in dx.iter_mut().zip(row) {
                        *dx = *dx + S::splat(w) * dy;
                    }
                }
            }
        }
        if whole {
            let mode = store.mode(weights.clone());
            S::affine_weight_grad(dy, x, &mut store.grads[weights], mode);
        } else if store.any_trainable(weights.clone()) {
            for (o, &dy) in dy.iter().enumerate().filter(|(_, dy)| !dy.is_unreached()) {
                self.affine_row(record.w_slot, weights.start + o * n_in, dy, x);
            }
        }
        wanted
    }

    /// Whether some of the operands can receive a gradient now.
    fn wants_gradient(&self, operands: Encoded) -> bool {
        let store = |slot: u32| &self.params[self.places[slot as usize] as usize];
        let mut wants = false;
        operands.for_each_run(self.extra, |run| {
            wants = wants
                || match run.source {
                    0 => run.range().any(|node| match (self.recorded.ops[node], self.recorded.operands[node]) {
                        (Op::Constant, _) => false,
                        (Op::Param | Op::FrozenParam, [index, slot]) => store(slot).is_trainable(index as usize),
                        _ => true,
                    }),
                    source => store(source - 1).any_trainable(run.range()),
                };
        });
        wants
    }

    /// Adds what one row of weights receives.
    fn affine_row(&mut self, slot: u32, row: usize, dy: S, x: &[S]) {
        let range = row..row + x.len();
        let store = &mut self.params[self.places[slot as usize] as usize];
        if store.all_trainable(range.clone()) {
            if let Values::Stepped(values, lr) = &mut store.values {
                S::affine_descend(*lr, &[dy], x, &mut values[range], None);
            } else {
                let mode = store.mode(range.clone());
                S::affine_weight_grad(&[dy], x, &mut store.grads[range], mode);
            }
        } else if store.any_trainable(range.clone()) {
            for (index, &x) in range.zip(x) {
                self.add_parameter(slot, index, dy * x);
            }
        }
    }

    /// Adds what biases receive.
    fn affine_bias(&mut self, slot: u32, at: std::ops::Range<usize>, dy: &[S], all_reached: bool) {
        if all_reached {
            return self.add_parameters(slot, at.start, dy);
        }
        for (index, &dy) in at.zip(dy).filter(|(_, dy)| !dy.is_unreached()) {
            self.add_parameter(slot, index, dy);
        }
    }

    fn map(&mut self, record: MapRecord, top: u32) {
        let first = record.header.first;
        let n = (top + 1 - first) as usize;
        let x = &self.recorded.values[record.x.indices()][..n];
        let y = &self.recorded.values[first as usize..][..n];
        // Inputs lie below outputs, so their adjoints can be written while those of the outputs are read.
        let (below, outputs) = self.adjoints.split_at_mut((first - self.base) as usize);
        let inputs = &mut below[(record.x.start - self.base) as usize..][..n];
        S::map_pull(record.op, &outputs[..n], x, y, inputs);
        self.low = self.low.min(record.x.start);
    }

    fn cross_entropy(&mut self, record: CrossEntropyRecord, top: u32) {
        let n = record.logits.len();
        let first = record.header.first;
        let probabilities = &self.recorded.values[first as usize..first as usize + n];
        let scratch = std::mem::take(&mut self.scratch);
        let contributions = &mut scratch[..n];
        contributions.fill(S::UNREACHED);
        let loss_met = top == first + n as u32;
        if loss_met {
            let g = self.adjoints[(top - self.base) as usize];
            if record.by_probabilities {
                let targets = &self.recorded.values[record.target as usize..record.target as usize + n];
                let total = targets[1..].iter().fold(targets[0], |sum, &t| sum + t);
                for ((c, &p), &t) in contributions.iter_mut().zip(probabilities).zip(targets) {
                    *c = g * (p * total - t);
                }
            } else {
                for (c, &p) in contributions.iter_mut().zip(probabilities) {
                    *c = g * p;
                }
                for (lane, &class) in record.classes(self.extra, S::LANES).iter().enumerate() {
                    // p - 1 is exact where the probability is at least one half, and rounds once elsewhere.
                    let p = probabilities[class as usize].lane(lane);
                    let one = S::splat(p) - S::lit(1.0);
                    let c = (g * one).lane(lane);
                    contributions[class as usize] = contributions[class as usize].with_lane(lane, c);
                }
            }
        }
        let last = first + n as u32 - 1;
        let on_probabilities = &self.adjoints[self.place(first, last.min(top))];
        if on_probabilities.iter().any(|a| !a.is_unreached()) {
            let reached = || on_probabilities.iter().zip(probabilities).filter(|(a, _)| !a.is_unreached());
            let weighted = reached().fold(S::lit(0.0), |sum, (&a, &p)| sum + a * p);
            for (k, (c, &p)) in contributions.iter_mut().zip(probabilities).enumerate() {
                let own = on_probabilities.get(k).filter(|a| !a.is_unreached()).copied().unwrap_or(S::lit(0.0));
                *c = *c + p * (own - weighted);
            }
        }
        let run = OperandRun { source: 0, start: record.logits.start, len: record.logits.len };
        self.add_run(run, contributions);
        self.scratch = scratch;
    }

    fn mean_and_mean_squares(&mut self, record: u32, top: u32) {
        let [first, _, start, len] = [0, 1, 2, 3].map(|k| self.extra[record as usize + k]);
        let n = S::lit(f64::from(len));
        let on_mean = self.adjoints[(first - self.base) as usize];
        let on_squares = if top > first { self.adjoints[(top - self.base) as usize] } else { S::UNREACHED };
        for node in start..start + len {
            if !on_mean.is_unreached() {
                self.add(node, on_mean / n);
            }
            if !on_squares.is_unreached() {
                let x = self.recorded.values[node as usize];
                self.add(node, on_squares * ((x + x) / n));
            }
        }
    }
}
