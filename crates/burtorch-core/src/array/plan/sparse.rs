//! Products with sparse rows.
//!
//! Promises: numbers of a row are added in their order, in four running sums if the array is a vector; rows are added in order.
//! Rows and columns are checked before they are used. Does not know plans.

use super::super::dims::{Dims, bad};
use super::super::instr::{SparseDot, SparseKind};
use super::argument::{Argument, Csr, Places};
use super::math::ArrayFloat;
use super::memory::Bank;
use super::place::Source;
use super::single::Operand;
use crate::error::Result;
use crate::kernels::{self, CheckedRows, SparsePlace};
use crate::simd::Real;

/// Refuses rows of another number, and arrays whose lengths disagree.
pub(super) fn check<E>(rows: &Csr<'_, E>, dims: &Dims) -> Result<()> {
    let expected = if dims.rank() == 1 { 1 } else { dims[0] };
    let n_columns = match rows.places {
        Places::I32(columns, _) => columns.len(),
        Places::I64(columns, _) => columns.len(),
    };
    if rows.rows() != expected || n_columns != rows.numbers.len() {
        let found = format!("{}, with {n_columns} columns of {} numbers", rows.rows(), rows.numbers.len());
        return Err(bad("sparse rows", format!("{expected}, with a column of each number"), found));
    }
    Ok(())
}

/// Rows with checked columns.
#[derive(Clone, Copy)]
enum Lists<'a, E> {
    I32(CheckedRows<'a, E, i32>),
    I64(CheckedRows<'a, E, i64>),
}

impl<'a, E: ArrayFloat> Lists<'a, E> {
    fn new(rows: &Csr<'a, E>, d: usize) -> Option<Self> {
        Some(match rows.places {
            Places::I32(columns, starts) => Lists::I32(CheckedRows::new(rows.numbers, columns, starts, d)?),
            Places::I64(columns, starts) => Lists::I64(CheckedRows::new(rows.numbers, columns, starts, d)?),
        })
    }
}

/// The last argument with checked columns, and its length.
pub(super) struct Checked<'a, E>(Option<(usize, usize, Lists<'a, E>)>);

impl<'a, E: ArrayFloat> Checked<'a, E> {
    pub(super) fn none() -> Self {
        Checked(None)
    }

    /// Checks an argument, unless it is the last checked one.
    fn rows(&mut self, input: usize, rows: &Csr<'a, E>, d: usize) -> Option<Lists<'a, E>> {
        if !matches!(self.0, Some((last, of, _)) if (last, of) == (input, d)) {
            self.0 = Some((input, d, Lists::new(rows, d)?));
        }
        self.0.map(|(_, _, rows)| rows)
    }
}

/// A product that is ready to run.
#[derive(Debug)]
pub(super) struct SparseStep {
    dot: SparseDot,
    /// Which argument holds the rows.
    input: usize,
    array: Operand,
    m: usize,
    k: usize,
    n: usize,
    to: usize,
}

impl SparseStep {
    pub(super) fn new(dot: SparseDot, of: &[Operand], to: usize) -> Result<Self> {
        let Source::Input(input) = of[0].place.source else {
            return Err(bad("sparse rows", "an argument".into(), "something else".into()));
        };
        let dims = &of[0].place.dims;
        let (m, k) = if dims.rank() == 1 { (1, dims[0]) } else { (dims[0], dims[1]) };
        let n = of[1].place.dims.last().copied().unwrap_or(1);
        Ok(SparseStep { dot, input, array: of[1], m, k, n, to })
    }

    pub(super) fn run<'a, 'r, E: ArrayFloat>(
        &self,
        floats: &mut Bank<E>,
        arguments: &[Argument<'r, E>],
        checked: &mut Checked<'r, E>,
        given: &impl Fn(Source) -> &'a [E],
    ) -> Result<()> {
        let Some(Argument::Sparse(rows)) = arguments.get(self.input) else {
            return Err(bad("argument", "sparse rows".into(), "an array".into()));
        };
        let mut to = std::mem::take(&mut floats.buffers[self.to]);
        let array = &floats.read(self.array.place.source, given)[self.array.place.offset..][..self.array.size()];
        let mut done = Ok(());
        if !self.of_vector(rows, checked, array, &mut to) {
            done = match rows.places {
                Places::I32(columns, starts) => self.product(rows.numbers, columns, starts, array, &mut to),
                Places::I64(columns, starts) => self.product(rows.numbers, columns, starts, array, &mut to),
            };
        }
        floats.buffers[self.to] = to;
        done
    }

    /// The product with a vector, or the sum of rows times its numbers; false for another product, or invalid rows.
    fn of_vector<'r, E: ArrayFloat>(
        &self,
        rows: &Csr<'r, E>,
        checked: &mut Checked<'r, E>,
        y: &[E],
        to: &mut [E],
    ) -> bool {
        let SparseDot { kind, adjoint, .. } = self.dot;
        let size = match kind {
            SparseKind::Times if self.n == 1 && !adjoint => self.m,
            SparseKind::Total if self.n == 1 && !(adjoint && y.iter().any(|g| g.is_unreached())) => self.k,
            _ => return false,
        };
        let Some(rows) = checked.rows(self.input, rows, self.k) else { return false };
        let to = &mut to[..size];
        match (kind, rows) {
            (SparseKind::Times, Lists::I32(rows)) => kernels::sparse_dots(&rows, y, to),
            (SparseKind::Times, Lists::I64(rows)) => kernels::sparse_dots(&rows, y, to),
            (_, rows) => {
                to.fill(if adjoint { E::UNREACHED } else { <E as Real>::of(0.0) });
                match rows {
                    Lists::I32(rows) => kernels::sparse_add(&rows, y, adjoint, to),
                    Lists::I64(rows) => kernels::sparse_add(&rows, y, adjoint, to),
                }
            }
        }
        true
    }

    fn product<E: ArrayFloat, I: SparsePlace + Into<i64>>(
        &self,
        numbers: &[E],
        columns: &[I],
        starts: &[I],
        y: &[E],
        to: &mut [E],
    ) -> Result<()> {
        let SparseStep { m, k, n, .. } = *self;
        let kind = self.dot.kind;
        let zero = <E as Real>::of(0.0);
        let is_adjoint = self.dot.adjoint;
        let size = match kind {
            SparseKind::Times | SparseKind::Each => m * n,
            SparseKind::Outer => m * k * n,
            SparseKind::Total => k * n,
        };
        let to = &mut to[..size];
        to.fill(if is_adjoint { E::UNREACHED } else { zero });
        let add = |to: &mut E, x: E, y: E| {
            if !is_adjoint {
                *to = *to + x * y;
            } else if !y.is_unreached() {
                *to = *to + (x * y + zero);
            }
        };
        let column = |c: I| -> Result<usize> {
            let c: i64 = c.into();
            if (c as u64) < k as u64 { Ok(c as usize) } else { Err(no_column(c, k)) }
        };
        for row in 0..m {
            let (start, end): (i64, i64) = (starts[row].into(), starts[row + 1].into());
            let range = start as usize..end as usize;
            let (Some(numbers), Some(columns)) = (numbers.get(range.clone()), columns.get(range)) else {
                let found = format!("row {row} from {start} to {end}");
                return Err(bad("starts of sparse rows", format!("in order, up to {}", numbers.len()), found));
            };
            for (&x, &c) in numbers.iter().zip(columns) {
                let c = column(c)?;
                let (at, from) = match kind {
                    SparseKind::Times => (row * n, c * n),
                    SparseKind::Each => (row * n, (row * k + c) * n),
                    SparseKind::Outer => ((row * k + c) * n, row * n),
                    SparseKind::Total => (c * n, row * n),
                };
                to[at..at + n].iter_mut().zip(&y[from..from + n]).for_each(|(to, &y)| add(to, x, y));
            }
        }
        Ok(())
    }
}

#[cold]
fn no_column(found: i64, columns: usize) -> crate::Error {
    bad("column of a sparse row", format!("less than {columns}"), found.to_string())
}
