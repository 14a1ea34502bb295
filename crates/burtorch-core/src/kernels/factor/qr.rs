//! QR factorisation by Householder reflections.

use super::super::float::KernelFloat;
use super::super::levels::{Target, leveled};
use super::super::product::{Finish, Matrix, MatrixMut, Start, product};
use super::{BLOCK, add_multiple, block_work, mul_add};
use crate::sync::stop::Pace;

/// Factors the matrix `a` of `m` rows and `n <= m` columns: `q`, as large, has orthonormal columns, and `r`, of `n` rows, is upper
/// triangular. `a` is overwritten.
///
/// Simply: for each column, reflect it onto the first axis, and all columns after it by the same reflection; `Q` is all
/// reflections applied to the identity. Departure: reflections are taken [`BLOCK`] at once, as `I - V T Vᵀ` (Schreiber and
/// Van Loan 1989), which is applied by products.
pub fn qr<E: KernelFloat>(m: usize, n: usize, a: &mut [E], q: &mut [E], r: &mut [E], workspace: &mut [E]) {
    let zero = E::default();
    let (blocks, mut pace) = (n.div_ceil(BLOCK), Pace::new());
    // The factors of reflections are kept in the first column of `r` until the end.
    for first in (0..n).step_by(BLOCK) {
        let end = (first + BLOCK).min(n);
        if !pace.goes_on(2 * block_work(m - first)) {
            break;
        }
        let (scales, rest) = workspace.split_at_mut(BLOCK);
        reflections(m, n, a, first, end, scales, rest);
        for k in first..end {
            r[k * n] = scales[k - first];
        }
        let mut block = Block::new(m, n, first, end, a, scales, rest);
        block.apply(true, a, n, end, n - end);
    }
    q.fill(zero);
    for k in 0..n {
        q[k * n + k] = E::of(1.0);
    }
    for block in (0..blocks).rev() {
        let (first, end) = (block * BLOCK, (block * BLOCK + BLOCK).min(n));
        if !pace.goes_on(block_work(m - first)) {
            break;
        }
        let (scales, rest) = workspace.split_at_mut(BLOCK);
        for k in first..end {
            scales[k - first] = r[k * n];
        }
        let mut block = Block::new(m, n, first, end, a, scales, rest);
        block.apply(false, q, n, first, n - first);
    }
    for i in 0..n {
        r[i * n..i * n + i].fill(zero);
        r[i * n + i..(i + 1) * n].copy_from_slice(&a[i * n + i..(i + 1) * n]);
    }
}

/// Reflections `first..end` as `I - V T Vᵀ`, acting on the rows from `first` on.
struct Block<'w, E> {
    m: usize,
    first: usize,
    width: usize,
    v: &'w mut [E],
    t: &'w mut [E],
    part: &'w mut [E],
    product: &'w mut [E],
}

impl<'w, E: KernelFloat> Block<'w, E> {
    fn new(m: usize, n: usize, first: usize, end: usize, a: &[E], scales: &[E], workspace: &'w mut [E]) -> Self {
        let (width, rows) = (end - first, m - first);
        let (v, rest) = workspace.split_at_mut(rows * width);
        let (t, rest) = rest.split_at_mut(BLOCK * BLOCK);
        let (part, product) = rest.split_at_mut(2 * width * n);
        for i in 0..rows {
            for k in 0..width {
                v[i * width + k] = match i.cmp(&k) {
                    std::cmp::Ordering::Less => E::default(),
                    std::cmp::Ordering::Equal => E::of(1.0),
                    std::cmp::Ordering::Greater => a[(first + i) * n + first + k],
                };
            }
        }
        triangular_factor(rows, width, v, scales, t);
        Block { m, first, width, v, t, part, product }
    }

    /// Applies the reflections in order, or the inverse of their product, to `count` columns of a matrix of `n`
    /// columns.
    fn apply(&mut self, inverse: bool, to: &mut [E], n: usize, column: usize, count: usize) {
        let (rows, width) = (self.m - self.first, self.width);
        if count == 0 {
            return;
        }
        let start = self.first * n + column;
        let (inner, outer) = self.part.split_at_mut(width * count);
        let v = Matrix::by_rows(self.v, rows, width);
        let x = Matrix::strided(to, start, rows, count, n as isize, 1);
        let zero = Start::Number(E::default());
        product(zero, v.transposed(), x, MatrixMut::by_rows(inner, width, count), Finish::AsIs, self.product);
        let t = Matrix::by_rows(self.t, width, width);
        let t = if inverse { t.transposed() } else { t };
        let outer = &mut outer[..width * count];
        let inner = Matrix::by_rows(inner, width, count);
        product(zero, t, inner, MatrixMut::by_rows(outer, width, count), Finish::AsIs, self.product);
        outer.iter_mut().for_each(|x| *x = -*x);
        let outer = Matrix::by_rows(outer, width, count);
        let x = MatrixMut::strided(to, start, rows, count, n as isize, 1);
        product(Start::Output, v, outer, x, Finish::AsIs, self.product);
    }
}

leveled! {
    /// Reflects columns `first..end` onto their axes: the vectors below the diagonal (1 on it), their factors in `scales`.
    pub fn reflections<E>(
        m: usize,
        n: usize,
        a: &mut [E],
        first: usize,
        end: usize,
        scales: &mut [E],
        sums: &mut [E],
    ) = reflections_at;
    /// The triangle `T` of reflections with vectors `v`, whose factors are `scales`.
    pub fn triangular_factor<E>(rows: usize, width: usize, v: &[E], scales: &[E], t: &mut [E]) = triangular_factor_at;
}

#[inline(always)]
fn reflections_at<E: KernelFloat, T: Target>(
    m: usize,
    n: usize,
    a: &mut [E],
    first: usize,
    end: usize,
    scales: &mut [E],
    sums: &mut [E],
) {
    let (zero, one) = (E::default(), E::of(1.0));
    for k in first..end {
        let head = a[k * n + k];
        let below = (k + 1..m).fold(zero, |top, i| if a[i * n + k].abs() > top { a[i * n + k].abs() } else { top });
        let is_nan = (k + 1..m).any(|i| a[i * n + k].partial_cmp(&zero).is_none());
        if below == zero && !is_nan {
            // Nothing to reflect.
            scales[k - first] = zero;
            continue;
        }
        let top = if head.abs() > below { head.abs() } else { below };
        let mut sum = (head / top) * (head / top);
        for i in k + 1..m {
            let x = a[i * n + k] / top;
            sum = mul_add::<E, T>(x, x, sum);
        }
        let length = top * sum.sqrt();
        let diagonal = if head > zero { -length } else { length };
        let distance = head - diagonal;
        scales[k - first] = -(distance / diagonal);
        a[k * n + k] = diagonal;
        let sums = &mut sums[..end - k - 1];
        sums.copy_from_slice(&a[k * n + k + 1..k * n + end]);
        for i in k + 1..m {
            let row = &mut a[i * n..i * n + end];
            row[k] = row[k] / distance;
            let (vector, rest) = row.split_at_mut(k + 1);
            add_multiple::<E, T>(vector[k], rest, sums);
        }
        let scale = scales[k - first];
        sums.iter_mut().for_each(|x| *x = *x * scale);
        for i in k..m {
            let row = &mut a[i * n..i * n + end];
            let (vector, rest) = row.split_at_mut(k + 1);
            let factor = if i == k { one } else { vector[k] };
            add_multiple::<E, T>(-factor, sums, rest);
        }
    }
}

#[inline(always)]
fn triangular_factor_at<E: KernelFloat, T: Target>(rows: usize, width: usize, v: &[E], scales: &[E], t: &mut [E]) {
    let zero = E::default();
    t[..width * width].fill(zero);
    for k in 0..width {
        // t[..k, k] = -scale T (Vᵀ v), with V the vectors before.
        let mut inner = [zero; BLOCK];
        for i in k..rows {
            let row = &v[i * width..(i + 1) * width];
            add_multiple::<E, T>(row[k], &row[..k], &mut inner[..k]);
        }
        for i in 0..k {
            let mut sum = zero;
            for j in i..k {
                sum = mul_add::<E, T>(t[i * width + j], inner[j], sum);
            }
            t[i * width + k] = -(scales[k] * sum);
        }
        t[k * width + k] = scales[k];
    }
}
