//! The largest numbers of a vector that arrives in parts, in any order.
//!
//! Promises: the choice of TopK from the whole vector, for any division into parts; memory of about 2 k numbers. Of equal
//! magnitudes the lowest index comes first, so the choice follows an order of all numbers, and the largest of each part are
//! enough.

use std::cmp::Reverse;

use super::message::{Message, Support};
use super::number::Number;
use super::top::not_a_number;
use crate::error::Result;
use crate::interrupt::ask_at;
use crate::memory::reserve_in;
use crate::simd::REACH;

const WHAT: &str = "the largest numbers of a vector";

/// Numbers that may be among the `k` largest.
#[derive(Clone, Debug)]
pub struct Largest<F> {
    k: usize,
    len: usize,
    /// The magnitude of the smallest of k numbers seen so far: a smaller number is not among the largest.
    least: u64,
    found: Vec<Found<F>>,
}

#[derive(Clone, Copy, Debug)]
struct Found<F> {
    magnitude: u64,
    index: u32,
    x: F,
}

impl<F: Number> Largest<F> {
    /// For a vector of length `len`, at least `k`.
    pub(super) fn new(k: usize, len: usize) -> Result<Self> {
        let mut new = Largest { k, len, least: 0, found: Vec::new() };
        let most = new.most().min(len + REACH);
        reserve_in(&mut new.found, most, WHAT)?;
        Ok(new)
    }

    /// The capacity.
    fn most(&self) -> usize {
        2 * self.k + 8 * REACH
    }

    /// Takes the numbers from `start` on.
    pub fn take(&mut self, start: usize, part: &[F]) -> Result<()> {
        let (chunks, rest) = part.as_chunks();
        for (c, chunk) in chunks.iter().enumerate() {
            ask_at(c)?;
            let mut reached = if self.least == 0 { u32::MAX } else { F::reach(chunk, self.least) };
            while reached != 0 {
                let j = reached.trailing_zeros() as usize;
                self.push(start + c * REACH + j, chunk[j]);
                reached &= reached - 1;
            }
            self.drop_small()?;
        }
        for (j, &x) in rest.iter().enumerate().filter(|(_, x)| x.magnitude() >= self.least) {
            self.found.push(Found { magnitude: x.magnitude(), index: (start + chunks.len() * REACH + j) as u32, x });
        }
        self.drop_small()
    }

    fn push(&mut self, index: usize, x: F) {
        self.found.push(Found { magnitude: x.magnitude(), index: index as u32, x });
    }

    /// Makes room: drops numbers that cannot be among the largest, if there are many.
    fn drop_small(&mut self) -> Result<()> {
        if self.found.len() + REACH > self.most() {
            self.keep_largest();
        }
        reserve_in(&mut self.found, REACH, WHAT)
    }

    fn keep_largest(&mut self) {
        if self.found.len() > self.k {
            self.found.select_nth_unstable_by_key(self.k - 1, |one| (Reverse(one.magnitude), one.index));
            self.found.truncate(self.k);
            self.least = self.found[self.k - 1].magnitude;
        }
    }

    /// Writes the result to `out`.
    pub(super) fn write_to(mut self, out: &mut Message<F>) -> Result<()> {
        self.keep_largest();
        self.found.sort_unstable_by_key(|one| one.index);
        if let Some(wrong) = self.found.iter().find(|one| one.magnitude > F::INFINITE) {
            return Err(not_a_number(wrong.index as usize));
        }
        out.indices.clear();
        reserve_in(&mut out.indices, self.found.len(), WHAT)?;
        out.indices.extend(self.found.iter().map(|one| one.index));
        out.begin(self.len, Support::Chosen, self.found.len())?;
        out.numbers.extend(self.found.iter().map(|one| one.x));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::top::{Candidates, Chosen, largest};
    use super::*;
    use crate::draw::{Draw, Purpose};

    #[test]
    fn parts_in_any_order_give_the_choice_from_the_whole_vector() {
        let mut draw = Draw::new(3, 0, 0, Purpose::Method);
        for case in 0..400 {
            let d = 1 + draw.below(700) as usize;
            let k = 1 + draw.below(d as u64) as usize;
            // Few different magnitudes, to create ties, zeros of both signs and infinities.
            let levels = [0.0, -0.0, 1.0, -1.0, 2.0, 1e-300, f64::INFINITY, -2.0, 3.5];
            let few = 1 + draw.below(levels.len() as u64);
            let mut next = || match case % 2 {
                0 => levels[draw.below(few) as usize],
                _ => draw.uniform() - 0.5,
            };
            let x: Vec<f64> = (0..d).map(|_| next()).collect();
            let (mut expected, mut largest_numbers) = (Vec::new(), Vec::new());
            let chosen = Chosen { indices: &mut expected, numbers: &mut largest_numbers };
            largest(&x, k, &mut Candidates::default(), chosen).unwrap();
            let mut parts = Vec::from_iter(std::iter::once(0..d));
            for _ in 0..draw.below(5) {
                let part = parts.swap_remove(draw.below(parts.len() as u64) as usize);
                let middle = part.start + draw.below(part.len() as u64 + 1) as usize;
                parts.extend([part.start..middle, middle..part.end]);
            }
            let mut running = Largest::new(k, d).unwrap();
            for part in parts {
                running.take(part.start, &x[part]).unwrap();
                assert!(running.found.capacity() <= 4 * (2 * k + 8 * REACH));
            }
            let mut message = Message::new();
            running.write_to(&mut message).unwrap();
            let found: Vec<u32> = message.entries().map(|(j, _)| j as u32).collect();
            assert_eq!(found, expected);
            assert!(message.entries().all(|(j, y)| y.to_bits() == x[j].to_bits()));
        }
    }

    #[test]
    fn a_nan_is_an_error() {
        let mut running = Largest::new(2, 40).unwrap();
        let mut part = [1.0f32; 20];
        part[3] = f32::NAN;
        running.take(20, &part).unwrap();
        running.take(0, &[2.0; 20]).unwrap();
        let error = running.write_to(&mut Message::new()).unwrap_err();
        assert!(error.to_string().contains("NaN at index 23"));
    }
}
