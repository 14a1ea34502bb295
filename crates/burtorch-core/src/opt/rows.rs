//! The features of samples as rows: dense, or compressed sparse rows (CSR).
//!
//! Promises: what is kept is finite and in range, checked once; products take one fixed order. Knows no loss.

use crate::error::{Error, Result};
use crate::kernels;

/// Features of samples, a row for each.
#[derive(Clone, Debug)]
pub struct Rows {
    layout: Layout,
    n: usize,
    d: usize,
}

#[derive(Clone, Debug)]
enum Layout {
    Dense(Vec<f64>),
    Sparse { starts: Vec<usize>, columns: Vec<u32>, values: Vec<f64> },
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
    /// Dense rows of `d` numbers, one after the other.
    pub fn dense(values: Vec<f64>, d: usize) -> Result<Self> {
        if d == 0 || values.is_empty() || !values.len().is_multiple_of(d) {
            let found = format!("{} numbers in rows of {d}", values.len());
            return Err(refused("features", "at least one row and one column", found));
        }
        check_finite(&values, "features")?;
        Ok(Rows { n: values.len() / d, d, layout: Layout::Dense(values) })
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
        Ok(Rows { n, d, layout: Layout::Sparse { starts, columns, values } })
    }

    /// Rows.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Columns.
    pub fn d(&self) -> usize {
        self.d
    }

    /// The sum of the squares of row `i`.
    pub fn square(&self, i: usize) -> f64 {
        let row = match &self.layout {
            Layout::Dense(values) => &values[i * self.d..][..self.d],
            Layout::Sparse { starts, values, .. } => &values[starts[i]..starts[i + 1]],
        };
        kernels::sum_squares(row) + 0.0
    }

    /// The inner product of row `i` with `x`.
    #[inline]
    pub fn dot(&self, i: usize, x: &[f64]) -> f64 {
        match &self.layout {
            Layout::Dense(values) => kernels::dot(&values[i * self.d..][..self.d], x) + 0.0,
            Layout::Sparse { starts, columns, values } => {
                let at = starts[i]..starts[i + 1];
                // Two sums, so that an addition does not wait for the one before.
                let (columns, values) = (&columns[at.clone()], &values[at]);
                let (pairs, last) = columns.as_chunks::<2>();
                let (value_pairs, last_value) = values.as_chunks::<2>();
                let (mut even, mut odd) = (0.0, 0.0);
                for (c, v) in pairs.iter().zip(value_pairs) {
                    even += v[0] * x[c[0] as usize];
                    odd += v[1] * x[c[1] as usize];
                }
                for (&c, &v) in last.iter().zip(last_value) {
                    even += v * x[c as usize];
                }
                even + odd
            }
        }
    }

    /// The rows of samples that follow each other, where they are dense.
    pub(super) fn block(&self, indices: &[u32]) -> Option<&[f64]> {
        let Layout::Dense(values) = &self.layout else { return None };
        let first = *indices.first()? as usize;
        let is_block = indices.windows(2).all(|pair| pair[1] == pair[0] + 1);
        (is_block && indices.len() > 1).then(|| &values[first * self.d..][..indices.len() * self.d])
    }

    /// `out += a * row i`.
    #[inline]
    pub fn add(&self, i: usize, a: f64, out: &mut [f64]) {
        match &self.layout {
            Layout::Dense(values) => kernels::axpy(a, &values[i * self.d..][..self.d], out),
            Layout::Sparse { starts, columns, values } => {
                let at = starts[i]..starts[i + 1];
                for (&c, &v) in columns[at.clone()].iter().zip(&values[at]) {
                    out[c as usize] += a * v;
                }
            }
        }
    }
}
