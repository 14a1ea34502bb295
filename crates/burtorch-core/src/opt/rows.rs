//! The features of samples as rows: dense, or compressed sparse rows (CSR).
//!
//! Promises: stored numbers are finite and in range, checked once; products have one fixed order. Does not know losses.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::kernels::{self, SparseRows};
use crate::params::Block;

/// Features of samples, a row for each.
#[derive(Clone, Debug)]
pub struct Rows {
    layout: Layout,
    n: usize,
    d: usize,
}

#[derive(Clone, Debug)]
enum Layout {
    Dense(Numbers),
    Sparse(SparseRows<f64>),
}

/// The numbers of dense rows.
#[derive(Clone, Debug)]
enum Numbers {
    List(Vec<f64>),
    /// Many numbers, in large pages if available: most accesses to random rows would otherwise miss the address cache.
    Pages(Arc<Block<f64>>, usize),
}

/// The size from which large pages are requested: 32 MB.
const LARGE: usize = 1 << 22;

impl Numbers {
    fn new(values: Vec<f64>) -> Result<Self> {
        if values.len() < LARGE {
            return Ok(Numbers::List(values));
        }
        let mut block = Block::empty();
        block.grow(values.len(), 0)?;
        block.prefer_large_pages(0..values.len());
        block.slice_mut(values.len()).copy_from_slice(&values);
        Ok(Numbers::Pages(Arc::new(block), values.len()))
    }
}

impl std::ops::Deref for Numbers {
    type Target = [f64];

    #[inline]
    fn deref(&self) -> &[f64] {
        match self {
            Numbers::List(values) => values,
            Numbers::Pages(block, n) => block.slice(*n),
        }
    }
}

fn refused(what: &'static str, expected: &str, found: String) -> Error {
    Error::BadArgument { what, expected: expected.into(), found }
}

pub(super) fn check_finite(numbers: &[f64], what: &'static str) -> Result<()> {
    match numbers.iter().position(|x| !x.is_finite()) {
        Some(k) => Err(refused(what, "finite", format!("{} at place {k}", numbers[k]))),
        None => Ok(()),
    }
}

impl Rows {
    /// Dense rows of `d` numbers, in sequence.
    pub fn dense(values: Vec<f64>, d: usize) -> Result<Self> {
        if d == 0 || values.is_empty() || !values.len().is_multiple_of(d) {
            let found = format!("{} numbers in rows of {d}", values.len());
            return Err(refused("features", "at least one row and one column", found));
        }
        check_finite(&values, "features")?;
        Ok(Rows { n: values.len() / d, d, layout: Layout::Dense(Numbers::new(values)?) })
    }

    /// Row i has `values[starts[i]..starts[i + 1]]` in the columns of the same places, which ascend.
    pub fn sparse(starts: Vec<usize>, columns: Vec<u32>, values: Vec<f64>, d: usize) -> Result<Self> {
        let n = starts.len().saturating_sub(1);
        let is_whole = starts.first() == Some(&0) && starts.is_sorted() && starts.last() == Some(&values.len());
        if n == 0 || d == 0 || !is_whole || columns.len() != values.len() {
            let found = format!("{} starts, {} columns, {} values", starts.len(), columns.len(), values.len());
            return Err(refused("sparse rows", "at least one row whose starts ascend from 0 to the end", found));
        }
        check_finite(&values, "features")?;
        for (i, ends) in starts.windows(2).enumerate() {
            let row = &columns[ends[0]..ends[1]];
            if !row.is_sorted_by(|a, b| a < b) || row.last().is_some_and(|&last| last as usize >= d) {
                return Err(refused("columns of sparse rows", "ascending and below d", format!("others in row {i}")));
            }
        }
        let bad = || refused("columns of sparse rows", "below d", "others".into());
        Ok(Rows { n, d, layout: Layout::Sparse(SparseRows::new(starts, columns, values, d).ok_or_else(bad)?) })
    }

    /// Rows.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Columns.
    pub fn d(&self) -> usize {
        self.d
    }

    /// All numbers of dense rows, in sequence; those of sparse rows are in [`Rows::parts`].
    pub fn numbers(&self) -> Option<&[f64]> {
        if let Layout::Dense(values) = &self.layout { Some(values) } else { None }
    }

    /// Starts, columns and values of sparse rows, as in [`Rows::sparse`].
    pub fn parts(&self) -> Option<(&[usize], &[u32], &[f64])> {
        if let Layout::Sparse(rows) = &self.layout { Some(rows.parts()) } else { None }
    }

    /// The sum of the squares of row `i`.
    pub fn square(&self, i: usize) -> f64 {
        let row = match &self.layout {
            Layout::Dense(values) => &values[i * self.d..][..self.d],
            Layout::Sparse(rows) => rows.row(i).1,
        };
        kernels::sum_squares(row) + 0.0
    }

    /// The inner product of row `i` with `x`.
    #[inline]
    pub fn dot(&self, i: usize, x: &[f64]) -> f64 {
        match &self.layout {
            Layout::Dense(values) => kernels::dot(&values[i * self.d..][..self.d], x) + 0.0,
            Layout::Sparse(rows) => {
                let mut product = [0.0];
                kernels::dots_of_sparse_rows(rows, &[i as u32], x, &mut product);
                product[0]
            }
        }
    }

    /// `out += a * row i`.
    #[inline]
    pub fn add(&self, i: usize, a: f64, out: &mut [f64]) {
        match &self.layout {
            Layout::Dense(values) => kernels::axpy(a, &values[i * self.d..][..self.d], out),
            Layout::Sparse(rows) => kernels::add_sparse_rows(rows, &[i as u32], &[a], out),
        }
    }

    /// Prefetches the first of these rows for [`Rows::products`].
    pub(super) fn ask_for(&self, rows: &[u32]) {
        if let Layout::Dense(values) = &self.layout {
            kernels::ask_for_rows(values, rows, self.d);
        }
    }

    /// Prefetches the first of these rows, which are read after other work.
    pub(super) fn ask_for_next(&self, rows: &[u32]) {
        match &self.layout {
            Layout::Dense(values) => kernels::ask_for_next_rows(values, rows, self.d),
            Layout::Sparse(all) => all.ask_for_next(rows),
        }
    }

    /// Sets `to[k]` to the inner product of row `rows[k]` with `x`. Entries of `rows` beyond the length of `to` are
    /// prefetched.
    pub(super) fn products(&self, rows: &[u32], x: &[f64], to: &mut [f64]) {
        match &self.layout {
            Layout::Dense(values) => {
                kernels::dots_of_rows(values, rows, x, to);
                // An empty sum is -0.0.
                to.iter_mut().for_each(|z| *z += 0.0);
            }
            Layout::Sparse(all) => kernels::dots_of_sparse_rows(all, rows, x, to),
        }
    }

    /// [`Rows::products`] with two points.
    pub(super) fn products_at_two(&self, rows: &[u32], [x, y]: [&[f64]; 2], to: &mut [f64], to_y: &mut [f64]) {
        match &self.layout {
            Layout::Dense(values) => {
                kernels::dots_of_rows_at_two(values, rows, x, y, to, to_y);
                to.iter_mut().chain(to_y).for_each(|z| *z += 0.0);
            }
            Layout::Sparse(all) => kernels::dots_of_sparse_rows_at_two(all, rows, x, y, to, to_y),
        }
    }

    /// Adds `a[k]` times row `rows[k]` to `out`, in order.
    pub(super) fn add_all(&self, rows: &[u32], a: &[f64], out: &mut [f64]) {
        match &self.layout {
            Layout::Dense(values) => kernels::add_rows(values, rows, a, out),
            Layout::Sparse(all) => kernels::add_sparse_rows(all, rows, a, out),
        }
    }

    /// The number of rows that stay in the first-level cache between two reads: 8 to 64, for the sake of vectors.
    pub(super) fn group(&self) -> usize {
        const NEAR: usize = 1 << 14;
        match &self.layout {
            Layout::Dense(_) => (NEAR / 8 / self.d).clamp(8, 64) / 8 * 8,
            Layout::Sparse(_) => 64,
        }
    }
}
