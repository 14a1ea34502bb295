//! The sweep through softmax cross-entropies.

use super::super::sweep::Sweep;
use crate::graph::{CrossEntropyRecord, OperandRun};
use crate::scalar::Scalar;

impl<S: Scalar> Sweep<'_, '_, S> {
    pub(super) fn cross_entropy(&mut self, record: CrossEntropyRecord, top: u32) {
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
}
