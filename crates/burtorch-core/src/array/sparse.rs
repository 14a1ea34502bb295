//! Products with sparse rows: types, builder methods, derivatives, batches.
//!
//! Promises: they are linear in the array, and the derivative of each kind is another kind; sparse rows have no derivative. Does
//! not know how rows are stored.

use super::batch::Batch;
use super::build::ArrayBuilder;
use super::dims::{Dims, bad};
use super::instr::{ArrayOp, Element, SparseDot, SparseKind, ValueId, View};
use crate::error::Result;

impl SparseDot {
    /// The shape of the product.
    pub(super) fn dims(&self, s: &Dims, y: &Dims) -> Result<Dims> {
        let found = match (self.kind, &s[..], &y[..]) {
            (SparseKind::Times, &[k], &[l, n]) if k == l => Some(vec![n]),
            (SparseKind::Times, &[m, k], &[l, n]) if k == l => Some(vec![m, n]),
            (SparseKind::Each, &[m, k], &[o, l, n]) if k == l && m == o => Some(vec![m, n]),
            (SparseKind::Outer, &[k], &[n]) => Some(vec![k, n]),
            (SparseKind::Outer, &[m, k], &[o, n]) if m == o => Some(vec![m, k, n]),
            (SparseKind::Total, &[m, k], &[o, n]) if m == o => Some(vec![k, n]),
            _ => None,
        };
        match found {
            Some(extents) => Dims::new(&extents),
            None => {
                let expected = "sparse rows and an array whose extents agree".into();
                Err(bad("operands of a product", expected, format!("{s} and {y}")))
            }
        }
    }
}

impl ArrayBuilder {
    /// The matrix product where one of the operands holds sparse rows.
    pub(super) fn sparse_product(&mut self, x: ValueId, y: ValueId) -> Result<ValueId> {
        let is_left = self.type_of(x).element == Element::Sparse;
        let (s, v) = if is_left { (x, y) } else { (y, x) };
        let v = if self.type_of(v).element == Element::Sparse { v } else { self.convert(v, Element::Float)? };
        let kind = |kind| ArrayOp::Sparse(SparseDot { kind, adjoint: false });
        let (rows, other) = (self.dims(s), self.dims(v));
        match (is_left || rows.rank() == 1, &other[..]) {
            // On the left, or a row alone.
            (true, &[k]) => {
                let column = self.view(v, View::Reshape(Dims::new(&[k, 1])?))?;
                let product = self.push(kind(SparseKind::Times), &[s, column])?;
                self.view(product, View::Reshape(Dims::new(&rows[..rows.rank() - 1])?))
            }
            (true, &[_, _]) => {
                let v = if is_left { v } else { self.view(v, View::Permute([1, 0].into()))? };
                self.push(kind(SparseKind::Times), &[s, v])
            }
            (false, &[m]) => {
                let column = self.view(v, View::Reshape(Dims::new(&[m, 1])?))?;
                let product = self.push(kind(SparseKind::Total), &[s, column])?;
                self.view(product, View::Reshape(Dims::new(&rows[1..])?))
            }
            (false, &[_, _]) => {
                let v = self.view(v, View::Permute([1, 0].into()))?;
                let product = self.push(kind(SparseKind::Total), &[s, v])?;
                self.view(product, View::Permute([1, 0].into()))
            }
            _ => {
                let expected = "sparse rows and a vector or a matrix".into();
                Err(bad("operands of a product", expected, format!("{rows} and {other}")))
            }
        }
    }

    /// A product of sparse rows and an adjoint or a tangent.
    pub(super) fn adjoint_sparse(&mut self, kind: SparseKind, s: ValueId, g: ValueId) -> Result<ValueId> {
        let adjoint = self.so_far().may_be_unreached(g);
        let product = self.push(ArrayOp::Sparse(SparseDot { kind, adjoint }), &[s, g])?;
        if adjoint { Ok(product) } else { self.reached(product) }
    }

    /// What a product contributes to its array.
    pub(super) fn sparse_back(&mut self, kind: SparseKind, s: ValueId, g: ValueId) -> Result<ValueId> {
        let is_row = self.dims(s).rank() == 1;
        let back = match kind {
            SparseKind::Times if is_row => SparseKind::Outer,
            SparseKind::Times => SparseKind::Total,
            SparseKind::Each => SparseKind::Outer,
            SparseKind::Outer if is_row => SparseKind::Times,
            SparseKind::Outer => SparseKind::Each,
            SparseKind::Total => SparseKind::Times,
        };
        self.adjoint_sparse(back, s, g)
    }
}

impl Batch {
    /// The product for all rows, of sparse rows of this shape each.
    pub(super) fn sparse_of_rows(&mut self, dot: SparseDot, of: &[(ValueId, bool)], dims: Dims) -> Result<ValueId> {
        let (s, y) = (of[0].0, of[1]);
        if !of[0].1 {
            return self.shared_sparse(dot, s, y.0);
        }
        if dims.rank() != 1 {
            return Err(bad("sparse rows of a batch", "one row for each of its rows".into(), format!("{dims}")));
        }
        let kind = match dot.kind {
            SparseKind::Times if y.1 => SparseKind::Each,
            kind => kind,
        };
        let y = if kind == SparseKind::Outer { self.with_rows(y)? } else { y.0 };
        self.b.push(ArrayOp::Sparse(SparseDot { kind, ..dot }), &[s, y])
    }

    /// Shared sparse rows meet all arrays beside each other.
    fn shared_sparse(&mut self, dot: SparseDot, s: ValueId, y: ValueId) -> Result<ValueId> {
        let rank = self.b.dims(y).rank();
        let to_last = (1..rank - 1).chain([0, rank - 1]).collect();
        let y = self.b.view(y, View::Permute(to_last))?;
        let dims = self.b.dims(y);
        let beside = [&dims[..rank - 2], &[dims[rank - 2] * dims[rank - 1]]].concat();
        let y = self.b.view(y, View::Reshape(Dims::new(&beside)?))?;
        let product = self.b.push(ArrayOp::Sparse(dot), &[s, y])?;
        let found = self.b.dims(product);
        let apart = [&found[..found.rank() - 1], &[dims[rank - 2], dims[rank - 1]]].concat();
        let product = self.b.view(product, View::Reshape(Dims::new(&apart)?))?;
        self.rows_first(product, apart.len() - 2)
    }
}
