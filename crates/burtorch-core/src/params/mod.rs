//! Parameters: trainable numbers that outlive the tape, as two flat contiguous arrays, value and gradient.
//!
//! Promises: the arrays never move while they are exported; index k of the gradients belongs to index k of the
//! values; a frozen range costs no gradient memory (its pages are released) and no work; unused names cost nothing.
//! Does not know graphs.

mod block;
mod bounds;
mod finite;
mod first_write;
mod freezing;
mod gradients;
mod in_flight;
mod init;
mod names;
pub(crate) mod overrides;
mod restore;
mod selection;
mod skipped;
mod stage;
mod tensor;
mod wanted;

pub use finite::NonFiniteParameter;
pub(crate) use first_write::Written;
pub use gradients::Gradients;
pub(crate) use gradients::{Values, apart};
pub(crate) use in_flight::{Emission, InFlight, emissions};
pub use init::Init;
pub(crate) use restore::Restored;
pub use selection::Selection;
pub(crate) use skipped::Skipped;
pub use tensor::{Shape, Slice, Tensor};
pub use wanted::WantedSet;

use std::marker::PhantomData;
use std::ops::Range;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::error::{Error, Result};
use crate::interrupt;
use crate::scalar::Float;
use crate::sync::unique_id;
pub(crate) use block::Block;
use bounds::Bounds;
use freezing::for_each_gap;
use names::Names;

/// Bytes of address space reserved by default for values, and for gradients; only touched pages use memory. They grow
/// when more numbers are appended. If the system refuses this much, only the needed size is reserved.
const RESERVED: usize = 1 << 25;

/// Flat trainable numbers and their gradients.
///
/// ```
/// use burtorch_core::{Graph, Init, Parameters, View};
/// let mut params = Parameters::<f64>::new(0);
/// let w = params.tensor(&[3], None, Init::Constant(2.0), true).unwrap();
/// let mut graph = Graph::<f64>::new();
/// let x = graph.vector(&[1.0, 2.0, 3.0]).unwrap();
/// let y = graph.inner_product(x.into(), (&[View::from(w.slice())][..]).into(), None, &[&params]).unwrap();
/// graph.backward_with(y, 1.0, &mut [params.gradients()]).unwrap();
/// assert_eq!(graph.value(y), Ok(12.0));
/// assert_eq!(params.grads(), &[1.0, 2.0, 3.0]);
/// ```
#[derive(Debug)]
pub struct Parameters<'m, E: Float> {
    id: u64,
    values: Block<E>,
    grads: Block<E>,
    n: usize,
    /// The largest number of parameters.
    limit: usize,
    /// Frozen ranges: ascending, apart from each other.
    frozen: Vec<Range<u32>>,
    names: Names,
    bounds: Bounds,
    rng: ChaCha8Rng,
    /// Arrays held by other owners; while there are any the memory does not move.
    n_exports: usize,
    /// Where the next tensor begins, in [`Parameters::again`].
    again: Option<usize>,
    memory: PhantomData<&'m mut [E]>,
}

impl<E: Float> Parameters<'static, E> {
    /// No parameters yet; `seed` decides all random initial values.
    pub fn new(seed: u64) -> Self {
        Self::over(Block::empty(), Block::empty(), seed)
    }

    /// As [`Parameters::new`], with address space for `capacity` numbers. Pages are used only when touched.
    pub fn with_capacity(seed: u64, capacity: usize) -> Result<Self> {
        let mut params = Self::new(seed);
        params.values.grow(capacity, 0)?;
        params.grads.grow(capacity, 0)?;
        Ok(params)
    }

    /// Parameters in memory whose lifetime the compiler cannot see.
    ///
    /// # Safety
    /// Both ranges are aligned for `E`, initialised, valid for reads and writes, disjoint, and not accessed otherwise
    /// while a reference to them obtained from here lives, until the parameters are dropped.
    #[allow(unsafe_code)]
    pub unsafe fn in_memory(values: std::ptr::NonNull<[E]>, grads: std::ptr::NonNull<[E]>, seed: u64) -> Self {
        // SAFETY: by the contract of this function.
        unsafe { Self::over(Block::foreign(values), Block::foreign(grads), seed) }
    }
}

impl<'m, E: Float> Parameters<'m, E> {
    fn over(values: Block<E>, grads: Block<E>, seed: u64) -> Self {
        Parameters {
            id: unique_id(),
            values,
            grads,
            n: 0,
            limit: usize::MAX,
            frozen: Vec::new(),
            names: Names::none(),
            bounds: Bounds::new(),
            rng: ChaCha8Rng::seed_from_u64(seed),
            n_exports: 0,
            again: None,
            memory: PhantomData,
        }
    }

    /// Parameters in the caller's memory: as many as the shorter of the two slices. Tensors are laid out in sequence.
    #[allow(unsafe_code)]
    pub fn in_buffers(values: &'m mut [E], grads: &'m mut [E], seed: u64) -> Self {
        // SAFETY: both slices are borrowed exclusively for 'm, which the type carries.
        let params = unsafe { Self::over(Block::foreign(values.into()), Block::foreign(grads.into()), seed) };
        Parameters { bounds: Bounds::none(), ..params }
    }

    /// Refuses tensors that would exceed `n` numbers in all, until the limit is changed: a model that a file describes is
    /// made no larger than the file.
    pub fn set_limit(&mut self, n: Option<usize>) {
        self.limit = n.unwrap_or(usize::MAX);
    }

    /// The identity in this process.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Numbers in all tensors.
    pub fn len(&self) -> usize {
        self.n
    }

    /// Whether there are no tensors.
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// Numbers that are not frozen.
    pub fn n_trainable(&self) -> usize {
        self.n - self.frozen.iter().map(|r| r.len()).sum::<usize>()
    }

    /// All values.
    #[inline(always)]
    pub fn values(&self) -> &[E] {
        self.values.slice(self.n)
    }

    /// All values, to be overwritten.
    #[inline(always)]
    pub fn values_mut(&mut self) -> &mut [E] {
        self.values.slice_mut(self.n)
    }

    /// All gradients; those of frozen numbers are 0.
    #[inline(always)]
    pub fn grads(&self) -> &[E] {
        self.grads.slice(self.n)
    }

    /// All gradients, to be overwritten.
    #[inline(always)]
    pub fn grads_mut(&mut self) -> &mut [E] {
        self.grads.slice_mut(self.n)
    }

    /// Values to read and gradients to write.
    #[inline(always)]
    pub fn split(&mut self) -> (&[E], &mut [E]) {
        (self.values.slice(self.n), self.grads.slice_mut(self.n))
    }

    #[inline(always)]
    pub(crate) fn split_for_sweep(&mut self) -> (&[E], &mut [E], &[Range<u32>]) {
        (self.values.slice(self.n), self.grads.slice_mut(self.n), &self.frozen)
    }

    #[inline(always)]
    pub(crate) fn split_for_descent(&mut self) -> (&mut [E], &[Range<u32>]) {
        (self.values.slice_mut(self.n), &self.frozen)
    }

    /// Values to write and gradients to read: what an optimiser needs.
    #[inline(always)]
    pub fn split_for_step(&mut self) -> (&mut [E], &[E]) {
        (self.values.slice_mut(self.n), self.grads.slice(self.n))
    }

    /// Appends a tensor. A name, if given, must be unique; without the feature `labels` names are ignored.
    pub fn tensor(&mut self, dims: &[usize], name: Option<&str>, init: Init, trainable: bool) -> Result<Tensor> {
        let shape = Shape::new(dims)?;
        if let Some(start) = self.again {
            let slice = self.slice(start..start.saturating_add(shape.n()))?;
            self.again = Some(slice.range().end);
            return Ok(Tensor { slice, shape });
        }
        let named = name.map(|name| self.names.prepare(name)).transpose()?;
        init.check()?;
        let end = self.n + shape.n();
        if end > u32::MAX as usize {
            return Err(Error::IndexExhausted { limit: u32::MAX });
        }
        if end > self.limit {
            return Err(Error::ParametersFull { capacity: self.limit });
        }
        self.bounds.prepare()?;
        if !trainable {
            self.frozen.try_reserve(1).map_err(|_| out_of_memory::<Range<u32>>(1))?;
        }
        self.make_room(end)?;
        let tensor = Tensor { slice: Slice { store: self.id, start: self.n as u32, len: shape.n() as u32 }, shape };
        self.n = end;
        let range = tensor.slice.range();
        self.values.prefer_large_pages(range.clone());
        self.grads.prefer_large_pages(range.clone());
        let before = self.rng.clone();
        init.fill(&mut self.values.slice_mut(end)[range.clone()], shape, &mut self.rng);
        if let Err(error) = interrupt::check() {
            (self.n, self.rng) = (range.start, before);
            return Err(error);
        }
        if trainable {
            // The caller's memory may hold anything; our own is zero, and stays untouched.
            if self.grads.is_foreign() {
                self.grads.slice_mut(end)[range].fill(E::lit(0.0));
            }
        } else {
            self.freeze(tensor.slice)?;
        }
        self.bounds.add(tensor.slice.range());
        if let Some(name) = named {
            self.names.insert(name, tensor);
        }
        Ok(tensor)
    }

    fn make_room(&mut self, end: usize) -> Result<()> {
        let have = self.values.capacity().min(self.grads.capacity());
        if end <= have {
            return Ok(());
        }
        if self.values.is_foreign() || self.grads.is_foreign() {
            return Err(Error::BufferTooSmall { what: "parameters in buffers", need: end, have });
        }
        // An array without numbers is unaffected.
        if self.n_exports > 0 && self.n > 0 {
            return Err(Error::ParametersFull { capacity: have });
        }
        let wanted = end.max(2 * have);
        let mut grow = |capacity| {
            self.values.grow(capacity, self.n)?;
            self.grads.grow(capacity, self.n)
        };
        grow(wanted.max(RESERVED / size_of::<E>())).or_else(|_| grow(end))
    }

    /// The tensor called `name`.
    pub fn named(&self, name: &str) -> Result<Tensor> {
        self.names.find(name).ok_or_else(|| Error::NoSuchName { name: name.to_string() })
    }

    /// Names and tensors, by name.
    pub fn names(&self) -> impl Iterator<Item = (&str, Tensor)> {
        self.names.iter()
    }

    /// All numbers, tensor by tensor, from last to first; consecutive single numbers form one range. Of parameters
    /// loaded from a file, only named tensors are known.
    ///
    /// ```
    /// use burtorch_core::{Init, Parameters};
    /// let mut params = Parameters::<f32>::new(0);
    /// for dims in [&[2, 3][..], &[1], &[1], &[4]] {
    ///     params.tensor(dims, None, Init::Constant(0.0), true).unwrap();
    /// }
    /// assert_eq!(params.tensors_downwards().collect::<Vec<_>>(), [8..12, 6..8, 0..6]);
    /// ```
    pub fn tensors_downwards(&self) -> impl Iterator<Item = Range<usize>> {
        self.bounds.downwards(self.n)
    }

    /// The values of a slice.
    pub fn values_of(&self, slice: Slice) -> Result<&[E]> {
        self.check_slice(slice)?;
        Ok(&self.values()[slice.range()])
    }

    /// The gradients of a slice.
    pub fn grads_of(&self, slice: Slice) -> Result<&[E]> {
        self.check_slice(slice)?;
        Ok(&self.grads()[slice.range()])
    }

    /// The numbers of a range as a slice, if they exist.
    pub fn slice(&self, range: Range<usize>) -> Result<Slice> {
        if range.start <= range.end && range.end <= self.n {
            return Ok(Slice { store: self.id, start: range.start as u32, len: (range.end - range.start) as u32 });
        }
        Err(Error::BadArgument {
            what: "a range of parameters",
            expected: format!("start <= stop <= {}", self.n),
            found: format!("{}..{}", range.start, range.end),
        })
    }

    /// Whether the slice belongs here.
    pub fn check_slice(&self, slice: Slice) -> Result<()> {
        if slice.store == self.id && slice.range().end <= self.n {
            Ok(())
        } else {
            Err(Error::GraphMismatch { what: "the tensor" })
        }
    }

    /// Sets all gradients to zero.
    pub fn zero_grad(&mut self) {
        self.zero_grad_of(&Selection::ALL);
    }

    /// Sets the selected gradients to zero.
    pub fn zero_grad_of(&mut self, numbers: &Selection) {
        let grads = self.grads.slice_mut(self.n);
        numbers.for_each_gap(&self.frozen, self.n, |_, range| grads[range].fill(E::lit(0.0)));
    }

    /// Multiplies the selected gradients by `factor`. Those of frozen numbers stay 0, in memory that is not touched.
    pub fn scale_grads(&mut self, numbers: &Selection, factor: E) {
        let grads = self.grads.slice_mut(self.n);
        numbers.for_each_gap(&self.frozen, self.n, |_, range| grads[range].iter_mut().for_each(|g| *g = *g * factor));
    }

    /// Calls `f` with each range of numbers that are not frozen, in order.
    pub fn for_each_trainable(&self, f: impl FnMut(Range<usize>)) {
        for_each_gap(&self.frozen, self.n, f);
    }

    /// Calls `f` with each range of numbers that are not frozen, their values, and their gradients, in order.
    pub fn for_each_trainable_mut(&mut self, f: impl FnMut(Range<usize>, &mut [E], &[E])) {
        self.for_each_selected_mut(&Selection::ALL, f);
    }

    /// As [`Parameters::for_each_trainable_mut`], of selected numbers, with their places among those and not in the flat
    /// arrays.
    pub fn for_each_selected_mut(&mut self, numbers: &Selection, mut f: impl FnMut(Range<usize>, &mut [E], &[E])) {
        let (values, grads) = (self.values.slice_mut(self.n), self.grads.slice(self.n));
        numbers.for_each_gap(&self.frozen, self.n, |places, range| {
            f(places, &mut values[range.clone()], &grads[range]);
        });
    }

    /// Counts an array with another owner: until [`Parameters::release`] the memory does not move.
    pub fn export(&mut self) {
        self.n_exports += 1;
    }

    /// Forgets one array that was held.
    pub fn release(&mut self) {
        self.n_exports = self.n_exports.saturating_sub(1);
    }

    /// Bytes of values and of gradients that are in use.
    pub fn bytes(&self) -> (usize, usize) {
        (self.n * size_of::<E>(), self.n_trainable() * size_of::<E>())
    }
}

fn out_of_memory<T>(n: usize) -> Error {
    Error::OutOfMemory { bytes: n * size_of::<T>(), what: "the list of names and frozen parameters" }
}
