//! Arguments of runs.
//!
//! Knows nothing of plans.

/// An argument of a run: numbers in C order.
#[derive(Clone, Copy, Debug)]
pub enum Argument<'a, E> {
    /// Floats.
    Float(&'a [E]),
    /// Integers.
    Int(&'a [i64]),
    /// A mask.
    Mask(&'a [bool]),
    /// Sparse rows.
    Sparse(Csr<'a, E>),
}

/// Sparse rows in three arrays: numbers, their columns, and where each row starts and the last one ends.
#[derive(Clone, Copy, Debug)]
pub struct Csr<'a, E> {
    /// The numbers of all rows.
    pub numbers: &'a [E],
    /// Their places.
    pub places: Places<'a>,
}

/// Columns of numbers, and starts of rows among them.
#[derive(Clone, Copy, Debug)]
pub enum Places<'a> {
    /// In 32 bits.
    I32(&'a [i32], &'a [i32]),
    /// In 64 bits.
    I64(&'a [i64], &'a [i64]),
}

impl<E> Csr<'_, E> {
    /// How many rows.
    pub(super) fn rows(&self) -> usize {
        let starts = match self.places {
            Places::I32(_, starts) => starts.len(),
            Places::I64(_, starts) => starts.len(),
        };
        starts.saturating_sub(1)
    }

    /// Some of the rows.
    pub(super) fn part(self, start: usize, n: usize) -> Self {
        let places = match self.places {
            Places::I32(columns, starts) => Places::I32(columns, &starts[start..=start + n]),
            Places::I64(columns, starts) => Places::I64(columns, &starts[start..=start + n]),
        };
        Csr { places, ..self }
    }
}
