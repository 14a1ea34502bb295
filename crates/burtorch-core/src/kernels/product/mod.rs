//! The product of two matrices, `C = A B`, for f32 and f64: single or many of one shape, operands with any strides.
//!
//! Promises: every element of C is ONE chain of multiply-adds, `c = a[i][p] * b[p][j] + c` for p = 0, 1, 2, ..., from the value
//! of [`Start`], each with one rounding if the CPU fuses. So the bits do not depend on shapes of other dimensions, strides,
//! tiles, blocks, threads or (with fused multiply-add) the CPU level. No heap allocation: the caller provides the workspace,
//! see [`product_workspace_len`]. Does not know layers, arrays or graphs.
//!
//! ```
//! use burtorch_core::kernels::{Finish, Matrix, MatrixMut, Start, product, product_workspace_len};
//! // C = A Bᵀ, with A 2 x 3 and B 2 x 3, both by rows.
//! let (a, b) = ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0, 0.0, 1.0, 0.0, 1.0, 0.0]);
//! let mut c = [0.0; 4];
//! let mut workspace = vec![0.0; product_workspace_len::<f64>(2, 2, 3)];
//! let (a, b) = (Matrix::by_rows(&a, 2, 3), Matrix::by_rows(&b, 2, 3).transposed());
//! product(Start::Number(0.0), a, b, MatrixMut::by_rows(&mut c, 2, 2), Finish::AsIs, &mut workspace);
//! assert_eq!(c, [4.0, 2.0, 10.0, 5.0]);
//! ```

mod blocks;
mod pack;
mod plan;
mod small;
mod tile;

use super::float::KernelFloat;
use super::levels::leveled;
use crate::sync;
use blocks::all;
use plan::Job;

pub(super) use plan::WORTH_A_THREAD;
pub use plan::workspace_len as product_workspace_len;

/// A matrix to read, or one matrix after another: element `(i, j)` is `data[start + i * row_step + j * column_step]`.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a, E> {
    data: &'a [E],
    shape: Shape,
}

/// A matrix to write, or several in sequence.
#[derive(Debug)]
pub struct MatrixMut<'a, E> {
    data: &'a mut [E],
    shape: Shape,
    count: usize,
}

/// The layout of a matrix.
#[derive(Clone, Copy, Debug)]
struct Shape {
    start: usize,
    rows: usize,
    columns: usize,
    row_step: isize,
    column_step: isize,
    /// The step from one matrix to the next.
    next: isize,
}

impl Shape {
    fn by_rows(rows: usize, columns: usize) -> Self {
        Self { start: 0, rows, columns, row_step: columns as isize, column_step: 1, next: 0 }
    }

    fn transposed(self) -> Self {
        let Self { rows, columns, row_step, column_step, .. } = self;
        Self { rows: columns, columns: rows, row_step: column_step, column_step: row_step, ..self }
    }

    /// Panics unless all elements of `count` matrices lie within `len` numbers.
    fn check(&self, count: usize, len: usize) {
        if self.rows == 0 || self.columns == 0 || count == 0 {
            return;
        }
        let (mut low, mut high) = (self.start as i128, self.start as i128);
        let dimensions = [(self.rows, self.row_step), (self.columns, self.column_step), (count, self.next)];
        for (n, step) in dimensions {
            let far = (n - 1) as i128 * step as i128;
            low += far.min(0);
            high += far.max(0);
        }
        assert!(low >= 0 && high < len as i128, "a matrix must lie in its data");
    }

    /// Panics if two elements of `count` matrices may have the same address.
    fn check_apart(&self, count: usize) {
        let mut dimensions = [(self.row_step, self.rows), (self.column_step, self.columns), (self.next, count)]
            .map(|(step, n)| if n > 1 { (step.unsigned_abs(), n - 1) } else { (usize::MAX, 0) });
        dimensions.sort_unstable();
        let mut below = 0_u128;
        for (step, times) in dimensions {
            assert!(step as u128 > below, "elements of a result must not share places");
            below += step as u128 * times as u128;
        }
    }
}

impl<'a, E> Matrix<'a, E> {
    /// A matrix whose rows follow each other.
    pub fn by_rows(data: &'a [E], rows: usize, columns: usize) -> Self {
        Self { data, shape: Shape::by_rows(rows, columns) }
    }

    /// A matrix of any strides, which may be 0 or negative.
    pub fn strided(
        data: &'a [E],
        start: usize,
        rows: usize,
        columns: usize,
        row_step: isize,
        column_step: isize,
    ) -> Self {
        Self { data, shape: Shape { start, rows, columns, row_step, column_step, next: 0 } }
    }

    /// Rows become columns. Costs nothing.
    pub fn transposed(self) -> Self {
        Self { shape: self.shape.transposed(), ..self }
    }

    /// The first of many matrices, each `next` numbers after the one before; 0 repeats this one. C says how many.
    pub fn stacked(mut self, next: isize) -> Self {
        self.shape.next = next;
        self
    }
}

impl<'a, E> MatrixMut<'a, E> {
    /// A matrix whose rows follow each other.
    pub fn by_rows(data: &'a mut [E], rows: usize, columns: usize) -> Self {
        Self { data, shape: Shape::by_rows(rows, columns), count: 1 }
    }

    /// A matrix with any strides that keep its elements separate.
    pub fn strided(
        data: &'a mut [E],
        start: usize,
        rows: usize,
        columns: usize,
        row_step: isize,
        column_step: isize,
    ) -> Self {
        Self { data, shape: Shape { start, rows, columns, row_step, column_step, next: 0 }, count: 1 }
    }

    /// Rows become columns. Costs nothing.
    pub fn transposed(self) -> Self {
        Self { shape: self.shape.transposed(), ..self }
    }

    /// The first of `count` matrices, each `next` numbers after the one before.
    pub fn stacked(mut self, count: usize, next: isize) -> Self {
        self.shape.next = next;
        self.count = count;
        self
    }
}

/// Where the chain of each element of C starts.
#[derive(Clone, Copy, Debug)]
pub enum Start<'a, E> {
    /// Sums start at one number: `C = A B` starts at 0.
    Number(E),
    /// Sums start at C: `C += A B`.
    Output,
    /// Sums start at a number per row of C.
    Rows(&'a [E]),
    /// Sums start at a number per column of C.
    Columns(&'a [E]),
}

/// The operation on an element of C after the last term of its chain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Finish<E> {
    /// Stores sums unchanged.
    AsIs,
    /// Adds +0.0 first, so that no element is -0.0, the mark of "not reached".
    Reached,
    /// A step of gradient descent, `C -= lr A B`, without storing the product: of up to [`DESCEND_TERMS`] terms.
    Descend(E),
}

/// The terms of a product that ends with a step, at most.
pub const DESCEND_TERMS: usize = 128;

/// `C = A B`, or `C` of each pair of matrices. See the module. Costs `2 m n k` operations.
///
/// Panics if shapes differ, if a matrix exceeds its data, if elements of C overlap, or if `workspace` is shorter than
/// [`product_workspace_len`]; its content does not matter.
pub fn product<E: KernelFloat>(
    start: Start<'_, E>,
    a: Matrix<'_, E>,
    b: Matrix<'_, E>,
    c: MatrixMut<'_, E>,
    finish: Finish<E>,
    workspace: &mut [E],
) {
    product_on_threads(1, start, a, b, c, finish, workspace);
}

/// The same on up to `n_threads` threads ([`crate::sync::run`]), each of which computes some of the matrices, rows or columns
/// of C: the same bits. `workspace` holds [`product_workspace_len`] numbers for each thread.
pub fn product_on_threads<E: KernelFloat>(
    n_threads: usize,
    start: Start<'_, E>,
    a: Matrix<'_, E>,
    b: Matrix<'_, E>,
    c: MatrixMut<'_, E>,
    finish: Finish<E>,
    workspace: &mut [E],
) {
    let (m, n, k) = (c.shape.rows, c.shape.columns, a.shape.columns);
    assert!(
        a.shape.rows == m && b.shape.columns == n && b.shape.rows == k,
        "a product is of m x k and k x n into m x n"
    );
    a.shape.check(c.count, a.data.len());
    b.shape.check(c.count, b.data.len());
    c.shape.check(c.count, c.data.len());
    match start {
        Start::Rows(bias) => assert_eq!(bias.len(), m, "a bias must hold one number for each row"),
        Start::Columns(bias) => assert_eq!(bias.len(), n, "a bias must hold one number for each column"),
        Start::Number(_) | Start::Output => {}
    }
    assert!(
        !matches!(finish, Finish::Descend(_)) || k <= DESCEND_TERMS,
        "a product that ends with a step has at most 128 terms"
    );
    if m == 0 || n == 0 || c.count == 0 {
        return;
    }
    c.shape.check_apart(c.count);
    let job = Job::new(&a, &b, c, start, finish);
    let (len, pieces) = (product_workspace_len::<E>(m, n, k), job.pieces(n_threads));
    assert!(workspace.len() >= pieces * len, "a product needs a workspace for each thread");
    if pieces == 1 {
        return product_of(&job, workspace);
    }
    let shared = Shared { job, workspace: workspace.as_mut_ptr() };
    sync::run(pieces, pieces, &|index| {
        let shared = &shared;
        // SAFETY: the memory holds this many numbers, and each call uses its own part.
        let workspace = unsafe { std::slice::from_raw_parts_mut(shared.workspace.add(index * len), len) };
        product_of(&shared.job.piece(index, pieces), workspace);
    });
}

/// State shared by the threads of one product.
struct Shared<E> {
    job: Job<E>,
    workspace: *mut E,
}

// SAFETY: threads write disjoint pieces of C, whose elements do not overlap, and separate parts of the workspace.
unsafe impl<E: Sync> Sync for Shared<E> {}

leveled! {
    /// A product whose shapes were checked.
    #[doc(hidden)]
    pub fn product_of<E>(job: &Job<E>, workspace: &mut [E]) = all;
}
