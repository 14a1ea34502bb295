//! Sparse matrices by rows.

use crate::error::{Error, Result};
use crate::interrupt::Work;
use crate::memory::{filled, list_for, reserve_in};

/// A sparse matrix: the entries of row k are those from `starts[k]` to `starts[k + 1]`, ascending by column.
#[derive(Clone, Debug, PartialEq)]
pub struct Csr {
    /// Where rows start, and where the last one ends.
    pub starts: Vec<usize>,
    /// Columns of the entries.
    pub columns: Vec<u32>,
    /// The entries.
    pub values: Vec<f64>,
    /// Columns of the matrix.
    pub n_columns: usize,
}

const WHAT: &str = "a sparse matrix";

impl Csr {
    /// One without rows.
    pub fn new(n_columns: usize) -> Result<Self> {
        let mut starts = list_for(1, WHAT)?;
        starts.push(0);
        Ok(Csr { starts, columns: Vec::new(), values: Vec::new(), n_columns })
    }

    /// Rows of the matrix.
    pub fn n_rows(&self) -> usize {
        self.starts.len() - 1
    }

    /// Appends an entry to the current row.
    #[inline]
    pub(super) fn push(&mut self, column: u32, value: f64) -> Result<()> {
        if self.columns.len() == self.columns.capacity() || self.values.len() == self.values.capacity() {
            reserve_in(&mut self.columns, 1, WHAT)?;
            reserve_in(&mut self.values, 1, WHAT)?;
        }
        self.columns.push(column);
        self.values.push(value);
        Ok(())
    }

    pub(super) fn end_row(&mut self) -> Result<()> {
        reserve_in(&mut self.starts, 1, WHAT)?;
        self.starts.push(self.values.len());
        Ok(())
    }

    /// All entries by rows, zeros included.
    pub fn dense(&self) -> Result<Vec<f64>> {
        let what = "a dense matrix";
        let n = self.n_rows().checked_mul(self.n_columns).ok_or(Error::OutOfMemory { bytes: usize::MAX, what })?;
        let mut dense = filled(0.0, n, what)?;
        let mut work = Work::default();
        for (row, bounds) in self.starts.windows(2).enumerate() {
            work.add(bounds[1] - bounds[0] + 1)?;
            for k in bounds[0]..bounds[1] {
                dense[row * self.n_columns + self.columns[k] as usize] = self.values[k];
            }
        }
        Ok(dense)
    }
}
