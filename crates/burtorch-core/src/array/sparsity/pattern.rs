//! Patterns of sparse matrices, and colours of columns.
//!
//! Promises: columns of one colour have no common row. Does not know what the entries are.

use crate::error::Result;
use crate::interrupt::Work;

/// Entries by row, ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Where each row begins, and where the last one ends.
    pub starts: Vec<usize>,
    /// The columns.
    pub columns: Vec<u32>,
}

/// Directions that cost little.
const FEW: usize = 64;

impl Pattern {
    /// The pattern with these rows.
    pub fn of_rows<'r>(rows: impl Iterator<Item = &'r [u32]>) -> Result<Self> {
        let mut work = Work::default();
        let mut pattern = Pattern { starts: vec![0], columns: Vec::new() };
        for row in rows {
            work.add(1 + row.len())?;
            pattern.columns.extend(row);
            pattern.starts.push(pattern.columns.len());
        }
        Ok(pattern)
    }

    /// The columns of a row.
    pub fn row(&self, k: usize) -> &[u32] {
        &self.columns[self.starts[k]..self.starts[k + 1]]
    }

    /// How many rows.
    pub fn n_rows(&self) -> usize {
        self.starts.len() - 1
    }

    /// The rows with so many entries that fewer directions are needed if each of them has one of its own than if columns are
    /// coloured for them too; sorted. A row needs as many colours as it has entries.
    pub fn long_rows(&self) -> Vec<usize> {
        let len = |row: usize| self.starts[row + 1] - self.starts[row];
        let mut by_length: Vec<usize> = (0..self.n_rows()).collect();
        by_length.sort_by_key(|&row| std::cmp::Reverse(len(row)));
        let longest = |k: usize| by_length.get(k).map_or(0, |&row| len(row));
        let (cost, k) = (0..=by_length.len()).map(|k| (k + longest(k), k)).min().unwrap_or_default();
        by_length.truncate(if longest(0) > FEW && cost <= longest(0) / 2 { k } else { 0 });
        by_length.sort_unstable();
        by_length
    }

    /// The pattern with the entries that are kept, given row and column. Interruptible.
    pub fn filtered(&self, keep: impl Fn(usize, usize) -> bool) -> Result<Self> {
        let mut work = Work::default();
        let mut left = Pattern { starts: vec![0], columns: Vec::new() };
        for row in 0..self.n_rows() {
            work.add(1 + self.row(row).len())?;
            left.columns.extend(self.row(row).iter().filter(|&&column| keep(row, column as usize)));
            left.starts.push(left.columns.len());
        }
        Ok(left)
    }

    /// A colour for each of `n` columns, such that no two columns of one row share one; greedy. Returns the colours and
    /// their number. Interruptible.
    pub fn colours(&self, n: usize) -> Result<(Vec<u32>, usize)> {
        let mut work = Work::default();
        let mut rows_of: Vec<Vec<u32>> = vec![Vec::new(); n];
        for k in 0..self.n_rows() {
            work.add(4 * self.row(k).len())?;
            for &c in self.row(k) {
                rows_of[c as usize].push(k as u32);
            }
        }
        let mut colours = vec![u32::MAX; n];
        let mut taken_by: Vec<u32> = Vec::new();
        for column in 0..n {
            work.add(taken_by.len())?;
            for &row in &rows_of[column] {
                work.add(self.row(row as usize).len())?;
                for &other in self.row(row as usize) {
                    if let Some(taken) = taken_by.get_mut(colours[other as usize] as usize) {
                        *taken = column as u32;
                    }
                }
            }
            let free = taken_by.iter().position(|&by| by != column as u32).unwrap_or(taken_by.len());
            if free == taken_by.len() {
                taken_by.push(u32::MAX);
            }
            colours[column] = free as u32;
        }
        Ok((colours, taken_by.len()))
    }
}
