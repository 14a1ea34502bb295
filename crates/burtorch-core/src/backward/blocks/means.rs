//! The sweep through mean and mean of squares.

use super::super::sweep::Sweep;
use crate::scalar::Scalar;

impl<S: Scalar> Sweep<'_, '_, S> {
    pub(super) fn mean_and_mean_squares(&mut self, record: u32, top: u32) {
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
                let share = x / n;
                self.add(node, on_squares * (share + share));
            }
        }
    }
}
