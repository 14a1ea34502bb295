//! Guards of a replay: the comparisons of the recording, repeated at new inputs.
//!
//! Promises: for a single point no node after a failed guard is computed; for rows every lane with a failed guard is reported.
//! Does not know the consequences.

use super::carrier::Carrier;
use super::replay::{Question, Replay};

impl<S: Carrier, const W: usize> Replay<S, W> {
    /// Whether the guard has the recorded outcome in lane `lane` of scalar `k`.
    #[inline(always)]
    fn agrees(&self, question: &Question, k: usize, lane: usize) -> bool {
        let number = |slot: u32| self.values[slot as usize * W + k].lane(lane);
        question.comparison.holds(number(question.a), number(question.b)) == question.answer
    }

    /// Computes values until a guard has another outcome than recorded: `Err` with the number of that guard, or with
    /// the number of guards if a primitive failed. Checks the first lane of the first scalar; meant for one number per
    /// slot.
    #[inline(always)]
    pub fn checked_values(&mut self) -> std::result::Result<(), usize> {
        if self.questions.is_empty() && self.lists.calls.is_empty() {
            self.values();
            return Ok(());
        }
        self.values_and_guards()
    }

    #[inline(never)]
    fn values_and_guards(&mut self) -> std::result::Result<(), usize> {
        let mut piece = 0;
        self.lists.calls.failed.fill(false);
        for k in 0..self.questions.len() {
            let question = self.questions[k];
            piece = self.run_forward_on(piece, question.before);
            if !self.agrees(&question, 0, 0) {
                return Err(k);
            }
        }
        self.run_forward_on(piece, usize::MAX);
        if self.lists.calls.failed.contains(&true) { Err(self.questions.len()) } else { Ok(()) }
    }

    /// Computes all values and calls `disagrees` with every lane (of `W * S::LANES`) on which some guard answers
    /// otherwise.
    pub fn values_with_mask(&mut self, mut disagrees: impl FnMut(usize)) {
        self.lists.calls.failed.fill(false);
        self.values();
        for (at, _) in self.lists.calls.failed.iter().enumerate().filter(|(_, failed)| **failed) {
            disagrees(at);
        }
        for k in 0..W {
            for lane in 0..S::LANES {
                if !self.questions.iter().all(|question| self.agrees(question, k, lane)) {
                    disagrees(k * S::LANES + lane);
                }
            }
        }
    }

    /// Whether there are guards, or primitives that may fail.
    pub fn has_guards(&self) -> bool {
        !self.questions.is_empty() || !self.lists.calls.is_empty()
    }
}
