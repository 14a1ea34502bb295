//! The sweep through dense layers.

use super::super::Values;
use super::super::sweep::Sweep;
use crate::graph::{AffineRecord, Encoded};
use crate::ops::Op;
use crate::scalar::Scalar;

impl<S: Scalar> Sweep<'_, '_, S> {
    pub(super) fn affine(&mut self, record: AffineRecord, top: u32) {
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
}
