//! Compressed sparse rows, and their products with dense vectors.
//!
//! Promises: a product is two sums, of even and of odd places, on every CPU. Columns are checked once, when rows are made, and
//! not at each use: that takes a quarter of the instructions of a product.
#![allow(unsafe_code)]

/// Row i has `values[starts[i]..starts[i + 1]]` in the columns of the same places, all of which are below d.
#[derive(Clone, Debug)]
pub struct SparseRows {
    starts: Vec<usize>,
    columns: Vec<u32>,
    values: Vec<f64>,
    d: usize,
}

impl SparseRows {
    /// `None` unless columns and values are as many, and all columns are below `d`.
    pub fn new(starts: Vec<usize>, columns: Vec<u32>, values: Vec<f64>, d: usize) -> Option<Self> {
        let is_right = columns.len() == values.len() && columns.iter().all(|&c| (c as usize) < d);
        is_right.then_some(SparseRows { starts, columns, values, d })
    }

    /// Columns and values of row `i`.
    #[inline]
    pub fn row(&self, i: usize) -> (&[u32], &[f64]) {
        let at = self.starts[i]..self.starts[i + 1];
        (&self.columns[at.clone()], &self.values[at])
    }

    /// The inner product of row `i` with `x`.
    #[inline]
    pub fn dot(&self, i: usize, x: &[f64]) -> f64 {
        assert!(x.len() >= self.d);
        let (columns, values) = self.row(i);
        // SAFETY: columns are below d, as `new` has checked, and x has at least d numbers.
        let at = |c: u32| unsafe { *x.get_unchecked(c as usize) };
        // Two sums, so that an addition does not wait for the one before.
        let ((pairs, last), (value_pairs, last_value)) = (columns.as_chunks::<2>(), values.as_chunks::<2>());
        let (mut even, mut odd) = (0.0, 0.0);
        for (c, v) in pairs.iter().zip(value_pairs) {
            even += v[0] * at(c[0]);
            odd += v[1] * at(c[1]);
        }
        for (&c, &v) in last.iter().zip(last_value) {
            even += v * at(c);
        }
        even + odd
    }

    /// `out += a * row i`.
    #[inline]
    pub fn add(&self, i: usize, a: f64, out: &mut [f64]) {
        assert!(out.len() >= self.d);
        let (columns, values) = self.row(i);
        let mut one = |c: u32, v: f64| {
            // SAFETY: as above, of `out`.
            let to = unsafe { out.get_unchecked_mut(c as usize) };
            *to += a * v;
        };
        let ((pairs, last), (value_pairs, last_value)) = (columns.as_chunks::<2>(), values.as_chunks::<2>());
        for (c, v) in pairs.iter().zip(value_pairs) {
            one(c[0], v[0]);
            one(c[1], v[1]);
        }
        last.iter().zip(last_value).for_each(|(&c, &v)| one(c, v));
    }
}
