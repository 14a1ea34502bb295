//! Linear algebra with NumPy's names, as methods of the builder.
//!
//! Promises: the first axes of an operand are a batch of matrices; batches broadcast; a singular matrix gives the infinities
//! and NaNs of IEEE 754, which [`Plan::singular`](super::Plan::singular) reports. Does not know derivatives.

use super::build::ArrayBuilder;
use super::dims::{Dims, bad};
use super::instr::{ArrayOp, Element, Reduce, Slice, Solve, ValueId, View};
use crate::error::Result;
use crate::kernels::Triangle;
use crate::ops::Op;

/// The batch and the last two extents.
fn split(dims: Dims) -> Result<(Dims, [usize; 2])> {
    match *dims {
        [ref batch @ .., m, n] => Ok((Dims::new(batch)?, [m, n])),
        _ => Err(bad("matrix", "an array of shape (.., m, n)".into(), dims.to_string())),
    }
}

impl ArrayBuilder {
    fn float_of(&mut self, x: ValueId) -> Result<ValueId> {
        self.check(x)?;
        self.convert(x, Element::Float)
    }

    /// Diagonals: `(.., n, n)` to `(.., n)`.
    fn diagonals(&mut self, x: ValueId) -> Result<ValueId> {
        let (batch, [n, _]) = split(self.dims(x))?;
        let flat = self.view(x, View::Reshape(Dims::new(&[&batch[..], &[n * n]].concat())?))?;
        let mut slices: Vec<_> = batch.iter().map(|&extent| Slice::all(extent)).collect();
        slices.push(Slice { start: 0, step: n as isize + 1, count: n });
        self.view(flat, View::Slice(slices.into()))
    }

    /// Matrices and right sides with one batch, and whether the right side was a vector.
    fn system(&mut self, a: ValueId, b: ValueId) -> Result<(ValueId, ValueId, bool)> {
        let (a, b) = (self.float_of(a)?, self.float_of(b)?);
        let is_vector = self.dims(b).rank() == 1;
        let b = if is_vector { self.reshape(b, &[self.dims(b)[0], 1])? } else { b };
        let ((batch_a, last_a), (batch_b, last_b)) = (split(self.dims(a))?, split(self.dims(b))?);
        if last_a[0] != last_b[0] {
            let expected = format!("an array of {} rows, like the matrix", last_a[0]);
            return Err(bad("right side", expected, self.dims(b).to_string()));
        }
        let batch = batch_a.broadcast(&batch_b)?;
        let a = self.broadcast_to(a, Dims::new(&[&batch[..], &last_a].concat())?)?;
        let b = self.broadcast_to(b, Dims::new(&[&batch[..], &last_b].concat())?)?;
        Ok((a, b, is_vector))
    }

    fn as_given(&mut self, x: ValueId, is_vector: bool) -> Result<ValueId> {
        let dims = self.dims(x);
        if is_vector { self.reshape(x, &dims[..dims.rank() - 1]) } else { Ok(x) }
    }

    /// The solution of `a x = b` by LU factorisation with partial pivoting. `b` is a vector, or matrices `(.., n, m)`.
    ///
    /// ```
    /// use burtorch_core::DType;
    /// use burtorch_core::array::{Argument, ArrayBuilder, Element, Plan};
    /// let mut b = ArrayBuilder::new(DType::Float64)?;
    /// let (a, y) = (b.input(&[2, 2], Element::Float)?, b.input(&[2], Element::Float)?);
    /// let x = b.solve(a, y)?;
    /// let mut plan = Plan::<f64>::new(&b.finish(&[x])?)?;
    /// plan.run(&[Argument::Float(&[0.0, 2.0, 4.0, 0.0]), Argument::Float(&[6.0, 4.0])], &[])?;
    /// assert_eq!(plan.floats(0)?, [1.0, 3.0]);
    /// assert!(plan.singular().is_none());
    /// plan.run(&[Argument::Float(&[0.0, 0.0, 4.0, 0.0]), Argument::Float(&[6.0, 4.0])], &[])?;
    /// assert_eq!(plan.singular(), Some("solve"));
    /// # Ok::<(), burtorch_core::Error>(())
    /// ```
    pub fn solve(&mut self, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.whole(|builder| {
            // A matrix that the batch repeats is factored once.
            let alone = builder.float_of(a)?;
            let factors = builder.push_all(ArrayOp::Lu, &[alone])?;
            let (a, sides, is_vector) = builder.system(a, b)?;
            let dims = builder.dims(a);
            let packed = builder.broadcast_to(factors[0], dims)?;
            let permutation = builder.broadcast_to(factors[1], Dims::new(&dims[..dims.rank() - 1])?)?;
            let x = builder.push(ArrayOp::LuSolve(Solve::default()), &[a, packed, permutation, sides])?;
            builder.as_given(x, is_vector)
        })
    }

    /// The inverses of square matrices.
    pub fn inv(&mut self, a: ValueId) -> Result<ValueId> {
        self.whole(|b| {
            let a = b.float_of(a)?;
            split(b.dims(a))?;
            let eye = b.eye(b.dims(a))?;
            b.solve(a, eye)
        })
    }

    /// Entries `(i, j)` of matrices of n columns whose rows lie one after another: `(.., m n)` to `(..)`.
    fn entries(&mut self, flat: ValueId, n: usize, [i, j]: [usize; 2]) -> Result<ValueId> {
        let dims = self.dims(flat);
        let (batch, _) = dims.split_at(dims.rank() - 1);
        let mut slices: Vec<_> = batch.iter().map(|&extent| Slice::all(extent)).collect();
        slices.push(Slice { start: i * n + j, step: 1, count: 1 });
        let entry = self.view(flat, View::Slice(slices.into()))?;
        self.view(entry, View::Reshape(Dims::new(batch)?))
    }

    /// The minor of rows `i` and `i + 1` and of two columns.
    fn minor(&mut self, flat: ValueId, n: usize, i: usize, [j, k]: [usize; 2]) -> Result<ValueId> {
        let mut product = |j, k| {
            let (x, y) = (self.entries(flat, n, [i, j])?, self.entries(flat, n, [i + 1, k])?);
            self.row(Op::Mul, &[x, y])
        };
        let (down, up) = (product(j, k)?, product(k, j)?);
        self.row(Op::Sub, &[down, up])
    }

    /// Determinants of square matrices: up to three rows by their formulas, whose derivatives exist for singular matrices
    /// too, larger ones by LU factorisation, whose derivatives at a singular matrix are NaN.
    pub fn det(&mut self, a: ValueId) -> Result<ValueId> {
        self.whole(|b| {
            let a = b.float_of(a)?;
            let (batch, [m, n]) = split(b.dims(a))?;
            if m == n && (1..=3).contains(&n) {
                let flat = b.view(a, View::Reshape(Dims::new(&[&batch[..], &[n * n]].concat())?))?;
                return match n {
                    1 => b.entries(flat, 1, [0, 0]),
                    2 => b.minor(flat, 2, 0, [0, 1]),
                    _ => {
                        let mut term = |j, columns| {
                            let (x, minor) = (b.entries(flat, 3, [0, j])?, b.minor(flat, 3, 1, columns)?);
                            b.row(Op::Mul, &[x, minor])
                        };
                        let (first, second, third) = (term(0, [1, 2])?, term(1, [0, 2])?, term(2, [0, 1])?);
                        let difference = b.row(Op::Sub, &[first, second])?;
                        b.row(Op::Add, &[difference, third])
                    }
                };
            }
            let factors = b.push_all(ArrayOp::Lu, &[a])?;
            let diagonals = b.diagonals(factors[0])?;
            let product = b.reduce(Reduce::Prod, diagonals, Some(&[-1]), false)?;
            b.row(Op::Mul, &[factors[2], product])
        })
    }

    /// Signs of determinants and logarithms of their magnitudes: 0 and -inf for a singular matrix.
    pub fn slogdet(&mut self, a: ValueId) -> Result<[ValueId; 2]> {
        self.whole(|b| {
            let a = b.float_of(a)?;
            let factors = b.push_all(ArrayOp::Lu, &[a])?;
            let diagonals = b.diagonals(factors[0])?;
            let signs = b.row(Op::Sign, &[diagonals])?;
            let sign = b.reduce(Reduce::Prod, signs, Some(&[-1]), false)?;
            let sizes = b.row(Op::Abs, &[diagonals])?;
            let logs = b.row(Op::Log, &[sizes])?;
            Ok([b.row(Op::Mul, &[factors[2], sign])?, b.reduce(Reduce::Sum, logs, Some(&[-1]), false)?])
        })
    }

    /// Lower triangles `L` with `L Lᵀ = a`, for symmetric positive definite matrices. The mean of `a` and its transpose is taken, as
    /// JAX does, so that gradients are symmetric.
    pub fn cholesky(&mut self, a: ValueId) -> Result<ValueId> {
        self.whole(|b| {
            let a = b.float_of(a)?;
            split(b.dims(a))?;
            let turned = b.turned(a)?;
            let sum = b.row(Op::Add, &[a, turned])?;
            let mean = b.row_with(Op::MulByConstant, sum, 0.5)?;
            b.push(ArrayOp::Cholesky, &[mean])
        })
    }

    /// Reduced QR factors of matrices `(.., m, n)`: `Q` with min(m, n) orthonormal columns, and `R`.
    pub fn qr(&mut self, a: ValueId) -> Result<[ValueId; 2]> {
        self.whole(|b| {
            let a = b.float_of(a)?;
            let (batch, [m, n]) = split(b.dims(a))?;
            if m >= n {
                let factors = b.push_all(ArrayOp::Qr, &[a])?;
                return Ok([factors[0], factors[1]]);
            }
            // Q comes from the first columns; the others are turned by it.
            let columns = |start, count| {
                let mut slices: Vec<_> = batch.iter().chain([&m]).map(|&extent| Slice::all(extent)).collect();
                slices.push(Slice { start, step: 1, count });
                slices
            };
            let (left, right) = (b.slice(a, &columns(0, m))?, b.slice(a, &columns(m, n - m))?);
            let factors = b.push_all(ArrayOp::Qr, &[left])?;
            let turned = b.turned(factors[0])?;
            let right = b.matmul(turned, right)?;
            let r = b.concatenate(&[factors[1], right], -1)?;
            Ok([factors[0], r])
        })
    }

    /// The solution of a triangular system. `b` is a vector, or matrices `(.., n, m)`.
    pub fn triangular_solve(&mut self, triangle: Triangle, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.whole(|builder| {
            let (a, sides, is_vector) = builder.system(a, b)?;
            let x = builder.push(ArrayOp::TriSolve(Solve { triangle, adjoint: false }), &[a, sides])?;
            builder.as_given(x, is_vector)
        })
    }

    /// The x that minimises `|a x - b|`, by QR factorisation; the shortest one if `a` has more columns than
    /// rows. `a` must have full rank: otherwise results are not finite or meaningless.
    pub fn lstsq(&mut self, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.whole(|builder| {
            let (a, sides, is_vector) = builder.system(a, b)?;
            let (_, [m, n]) = split(builder.dims(a))?;
            let upper = Triangle { upper: true, ..Triangle::default() };
            let x = if m >= n {
                let factors = builder.push_all(ArrayOp::Qr, &[a])?;
                let turned = builder.turned(factors[0])?;
                let sides = builder.matmul(turned, sides)?;
                builder.triangular_solve(upper, factors[1], sides)?
            } else {
                let turned = builder.turned(a)?;
                let factors = builder.push_all(ArrayOp::Qr, &[turned])?;
                let x = builder.triangular_solve(Triangle { transposed: true, ..upper }, factors[1], sides)?;
                builder.matmul(factors[0], x)?
            };
            builder.as_given(x, is_vector)
        })
    }
}
