//! State of clients between rounds: a vector for each client of this process.
//!
//! Promises: a vector takes memory from the first round of its client on, and reads as the first point until then. Numbers are
//! `f64`, or `f32` in half of the bytes; they are rounded when stored and nowhere else.

use crate::compress::Message;
use crate::error::{Error, Result};
use crate::memory;
use crate::scalar::Float;
use crate::sync::Mutex;

/// A vector per client. Clients write their vectors concurrently when a method starts.
#[derive(Debug)]
pub(super) struct Kept<T> {
    /// Empty until the client takes part.
    rows: Vec<Mutex<Vec<T>>>,
    first: Vec<T>,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Kept { rows: Vec::new(), first: Vec::new() }
    }
}

/// Whether storing numbers in this type rounds them.
pub(super) fn is_rounded<T: Float>() -> bool {
    T::DTYPE != f64::DTYPE
}

const WHAT: &str = "the state of clients";

fn open<T>(row: &mut Mutex<Vec<T>>) -> &mut Vec<T> {
    row.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl<T: Float> Kept<T> {
    /// Vectors of `n` clients, each starting at this point.
    pub(super) fn new(n: usize, first: &[f64]) -> Result<Self> {
        let mut rows = memory::list_for(n, WHAT)?;
        rows.resize_with(n, || Mutex::new(Vec::new()));
        let mut start = memory::list_for(first.len(), WHAT)?;
        start.extend(first.iter().map(|&x| T::from_f64(x)));
        Ok(Kept { rows, first: start })
    }

    /// The number of clients.
    pub(super) fn n(&self) -> usize {
        self.rows.len()
    }

    /// Calls `with` for the vector of a client.
    pub(super) fn read<R>(&self, here: usize, with: impl FnOnce(&[T]) -> R) -> R {
        let row = self.rows[here].lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        with(if row.is_empty() { &self.first } else { &row })
    }

    /// Sets the vector of a client, and rounds `numbers` to the stored values.
    pub(super) fn put(&self, here: usize, numbers: &mut [f64]) -> Result<()> {
        let mut row = self.rows[here].lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        row.clear();
        memory::reserve_in(&mut row, numbers.len(), WHAT)?;
        row.extend(numbers.iter().map(|&x| T::from_f64(x)));
        numbers.iter_mut().zip(&*row).for_each(|(x, kept)| *x = kept.to_f64());
        Ok(())
    }

    /// Allocates the vector of a client for writing.
    pub(super) fn make(&self, here: usize) -> Result<()> {
        let mut row = self.rows[here].lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if row.is_empty() {
            memory::reserve_in(&mut row, self.first.len(), WHAT)?;
            row.extend_from_slice(&self.first);
        }
        Ok(())
    }

    /// The vector of a client, which must be allocated.
    pub(super) fn row(&mut self, here: usize) -> &mut [T] {
        open(&mut self.rows[here])
    }

    /// Swaps the vector of a client with that in another set of the same type.
    pub(super) fn swap(&mut self, here: usize, other: &mut Self) {
        std::mem::swap(open(&mut self.rows[here]), open(&mut other.rows[here]));
    }

    /// Adds `scale` times the message to the vector of a client.
    pub(super) fn add(&mut self, here: usize, scale: f64, message: &Message<f64>) {
        let row = self.row(here);
        message.entries().for_each(|(j, x)| row[j] = T::from_f64(row[j].to_f64() + scale * x));
    }

    /// A copy of all vectors.
    pub(super) fn copied(&self) -> Result<Self> {
        let mut new = Kept::new(self.rows.len(), &[])?;
        new.first = memory::copied(&self.first, WHAT)?;
        for (here, row) in new.rows.iter_mut().enumerate() {
            *open(row) = self.read(here, |own| memory::copied(own, WHAT))?;
        }
        Ok(new)
    }

    /// Replaces the message by the change that its client's vector will make: the vector is rounded, and the sum of
    /// messages must equal the sum of the clients' changes. Allocates the vector.
    pub(super) fn round(&self, here: usize, message: &mut Message<f64>) -> Result<()> {
        self.make(here)?;
        self.read(here, |row| {
            message.replace(|j, x| {
                let own = row[j].to_f64();
                T::from_f64(own + x).to_f64() - own
            });
        });
        Ok(())
    }
}

/// The vectors of all clients of this process as numbers.
pub trait Vectors {
    /// Whether the vectors are stored as `f32`.
    fn is_single(&self) -> bool;
    /// The total number of entries.
    fn len(&self) -> usize;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// All entries, client by client.
    fn numbers(&self) -> Result<Vec<f64>>;
    /// Allocates the vectors that these numbers change. Fails for a wrong length or numbers that would be rounded.
    fn prepare(&mut self, numbers: &[f64]) -> Result<()>;
    /// Sets all entries, after [`Vectors::prepare`].
    fn load(&mut self, numbers: &[f64]);
}

impl<T: Float> Vectors for Kept<T> {
    fn is_single(&self) -> bool {
        is_rounded::<T>()
    }

    fn len(&self) -> usize {
        self.rows.len() * self.first.len()
    }

    fn numbers(&self) -> Result<Vec<f64>> {
        let mut all = memory::list_for(self.len(), "a copy of the state of clients")?;
        (0..self.rows.len()).for_each(|here| self.read(here, |row| all.extend(row.iter().map(|x| x.to_f64()))));
        Ok(all)
    }

    fn prepare(&mut self, numbers: &[f64]) -> Result<()> {
        let bad = |expected: &str, found: String| Error::BadArgument { what: WHAT, expected: expected.into(), found };
        if numbers.len() != self.len() {
            return Err(bad(&format!("{} numbers", self.len()), numbers.len().to_string()));
        }
        let is_kept = |x: &f64| T::from_f64(*x).to_f64().to_bits() == x.to_bits();
        if let Some(x) = numbers.iter().find(|x| !x.is_nan() && !is_kept(x)) {
            return Err(bad("numbers of float32, as the method keeps them", x.to_string()));
        }
        for (here, new) in numbers.chunks_exact(self.first.len().max(1)).enumerate() {
            if new.iter().zip(&self.first).any(|(x, first)| x.to_bits() != first.to_f64().to_bits()) {
                self.make(here)?;
            }
        }
        Ok(())
    }

    fn load(&mut self, numbers: &[f64]) {
        for (here, new) in numbers.chunks_exact(self.first.len().max(1)).enumerate() {
            self.row(here).iter_mut().zip(new).for_each(|(x, &new)| *x = T::from_f64(new));
        }
    }
}
