//! The sweep through softmax cross-entropies.

use super::super::sweep::Sweep;
use crate::graph::CrossEntropyRecord;
use crate::scalar::Scalar;

impl<S: Scalar> Sweep<'_, '_, S> {
    pub(super) fn cross_entropy(&mut self, record: CrossEntropyRecord, top: u32) {
        let n = record.logits.len();
        let first = record.header.first;
        let probabilities = &self.recorded.values[first as usize..first as usize + n];
        let (below, outputs) = self.adjoints.split_at_mut((first - self.base) as usize);
        let logits = &mut below[(record.logits.start - self.base) as usize..][..n];
        self.low = self.low.min(record.logits.start);
        if top == first + n as u32 {
            let g = outputs[n];
            if record.by_probabilities {
                let targets = &self.recorded.values[record.target as usize..record.target as usize + n];
                S::soft_cross_entropy_pull(g, probabilities, targets, logits);
            } else {
                S::cross_entropy_pull(g, probabilities, record.classes(self.extra, S::LANES), logits);
            }
        }
        let on_probabilities = &outputs[..n.min((top + 1 - first) as usize)];
        if on_probabilities.iter().any(|a| !a.is_unreached()) {
            let reached = || on_probabilities.iter().zip(probabilities).filter(|(a, _)| !a.is_unreached());
            let weighted = reached().fold(S::lit(0.0), |sum, (&a, &p)| sum + a * p);
            for (k, (logit, &p)) in logits.iter_mut().zip(probabilities).enumerate() {
                let own = on_probabilities.get(k).filter(|a| !a.is_unreached()).copied().unwrap_or(S::lit(0.0));
                *logit = *logit + (p * (own - weighted) + S::lit(0.0));
            }
        }
    }
}
