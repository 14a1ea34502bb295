//! Restored parameters: after a failed build, and from a file.

use std::ops::Range;

use rand_chacha::ChaCha8Rng;

use super::Parameters;
use super::names::Names;
use super::tensor::{Shape, Slice, Tensor};
use crate::error::Result;
use crate::memory::{copied, list_for};
use crate::scalar::Float;

impl<E: Float> Parameters<'_, E> {
    /// Runs `build`; when it fails, or memory is refused to it, forgets the tensors it appended and the random numbers it drew.
    pub fn all_or_nothing<T>(&mut self, build: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let (n, rng) = (self.n, self.rng.clone());
        let frozen = copied(&self.frozen, "the list of frozen parameters")?;
        let mut undo = Undo { params: self, n, rng, frozen, is_done: false };
        let built = build(undo.params)?;
        undo.is_done = true;
        Ok(built)
    }

    /// Runs `build` so that its tensors are existing numbers, one tensor after the other from `start` on, as when they were
    /// appended. Values, names and what is frozen stay.
    ///
    /// ```
    /// use burtorch_core::Parameters;
    /// use burtorch_core::io::Contents;
    /// use burtorch_core::nn::{Activation, Linear};
    /// let mut params = Parameters::<f32>::new(0);
    /// let layer = Linear::new(&mut params, 2, 3, true, Activation::Tanh, None)?;
    /// let mut copy = Parameters::<f32>::from_bytes(&params.to_bytes(Contents::Values)?)?;
    /// let again = copy.again(0, |p| Linear::new(p, 2, 3, true, Activation::Tanh, None))?;
    /// assert_eq!(copy.len(), 9);
    /// assert_eq!(copy.values_of(again.weight().slice())?, params.values_of(layer.weight().slice())?);
    /// # Ok::<(), burtorch_core::Error>(())
    /// ```
    pub fn again<T>(&mut self, start: usize, build: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let outer = self.again.replace(start);
        build(Again { params: self, outer }.params)
    }

    /// The generator of further random initial values.
    pub(crate) fn rng(&self) -> &ChaCha8Rng {
        &self.rng
    }

    /// Restores saved parameters into empty ones; values are still 0.
    pub(crate) fn restore(&mut self, saved: Restored) -> Result<()> {
        debug_assert!(self.is_empty() && saved.n <= u32::MAX as usize);
        self.make_room(saved.n)?;
        self.n = saved.n;
        let tensor = |(name, start, shape): (String, u32, Shape)| {
            (name, Tensor { slice: Slice { store: self.id, start, len: shape.n() as u32 }, shape })
        };
        self.names = Names::sorted(saved.names.into_iter().map(tensor));
        let mut named: Vec<Range<usize>> = list_for(self.names.iter().count(), "the tensors of parameters")?;
        named.extend(self.names.iter().map(|(_, tensor)| tensor.slice.range()));
        named.sort_unstable_by_key(|range| range.start);
        for range in named {
            self.bounds.prepare()?;
            self.bounds.add(range);
        }
        self.frozen = saved.frozen;
        self.rng = saved.rng;
        Ok(())
    }
}

/// The state that `all_or_nothing` restores on failure.
struct Undo<'a, 'm, E: Float> {
    params: &'a mut Parameters<'m, E>,
    n: usize,
    rng: ChaCha8Rng,
    frozen: Vec<Range<u32>>,
    is_done: bool,
}

impl<E: Float> Drop for Undo<'_, '_, E> {
    fn drop(&mut self) {
        if !self.is_done {
            self.params.n = self.n;
            std::mem::swap(&mut self.params.rng, &mut self.rng);
            std::mem::swap(&mut self.params.frozen, &mut self.frozen);
            self.params.names.keep_below(self.n);
            self.params.bounds.keep_below(self.n);
        }
    }
}

/// Parameters whose next tensors are existing numbers; as before when dropped.
struct Again<'a, 'm, E: Float> {
    params: &'a mut Parameters<'m, E>,
    outer: Option<usize>,
}

impl<E: Float> Drop for Again<'_, '_, E> {
    fn drop(&mut self) {
        self.params.again = self.outer;
    }
}

/// The saved state of parameters except their numbers; checked by the reader.
#[derive(Debug)]
pub(crate) struct Restored {
    /// The number of parameters.
    pub(crate) n: usize,
    /// Name, first place and shape of each named tensor, by ascending name.
    pub(crate) names: Vec<(String, u32, Shape)>,
    /// Frozen ranges, ascending and disjoint.
    pub(crate) frozen: Vec<Range<u32>>,
    /// The generator of further random initial values.
    pub(crate) rng: ChaCha8Rng,
}
