//! The program of a block of rows, and totals over its rows.
//!
//! A total is taken where it costs least. It goes before layouts, sums of adjoints and scatters, and the total of one
//! product for each row is a product over all rows. Promises: values within rounding of a sum over the first axis, in an order
//! that depends on shapes only; elements that no row reaches stay unreached. Does not know blocks.

use std::collections::HashMap;

use super::super::batch::Batch;
use super::super::dims::{Axes, Dims};
use super::super::expand::inlined;
use super::super::instr::{
    ArrayInstr, ArrayOp, ArrayProgram, Dot, Element, OverRows, Reduce, Rows, SparseDot, SparseKind, Type, ValueId, View,
};
use super::super::row::Row;
use super::sums::{Totals, begins_of_sums};
use super::types::led;
use crate::error::Result;
use crate::ops::Op;

impl Rows {
    /// The program of `rows` of the rows, with the sum of what is totalled.
    pub(in super::super) fn of(&self, rows: usize) -> Result<ArrayProgram> {
        let body = inlined(&self.body.0)?;
        let mut batch = Batch::new(body.dtype(), rows)?;
        let mut inputs = Vec::with_capacity(self.mapped.len());
        for (&ty, &is_mapped) in body.input_types().iter().zip(&self.mapped) {
            let ty = if is_mapped { led(rows, ty)? } else { ty };
            inputs.push((batch.b.push(ArrayOp::Input(ty), &[])?, is_mapped));
        }
        let new = batch.run(&body, &inputs)?;
        let mut outputs = Vec::with_capacity(self.results.len());
        for (v, over) in body.outputs().iter().zip(&self.results) {
            let result = batch.with_rows(new[v.at()])?;
            outputs.push(match over {
                OverRows::Each => result,
                OverRows::Sum | OverRows::Mean => Totals { batch: &mut batch, found: HashMap::new() }.of(result)?,
            });
        }
        batch.b.finish(&outputs)?.pruned()
    }
}

impl Batch {
    /// The result that rows are to give, of the sum over so many of them or all of them.
    pub(in super::super) fn total(&mut self, v: ValueId, over: OverRows, rows: usize) -> Result<ValueId> {
        if over != OverRows::Mean {
            return Ok(v);
        }
        let rows = self.b.literal(rows.max(1) as f64)?;
        let rows = self.b.broadcast_to(rows, self.b.dims(v))?;
        self.b.row(Op::Div, &[v, rows])
    }
}

impl Totals<'_> {
    /// The total of a value with rows.
    pub(super) fn of(&mut self, v: ValueId) -> Result<ValueId> {
        let mut open = vec![v];
        while let Some(&at) = open.last() {
            let instr = self.instr_of(at);
            let before = open.len();
            open.extend(self.terms(at, &instr).into_iter().filter(|term| !self.found.contains_key(term)));
            if open.len() == before {
                let total = self.total(at, &instr)?;
                self.found.insert(at, total);
                open.pop();
            }
        }
        Ok(self.found[&v])
    }

    fn instr_of(&self, v: ValueId) -> ArrayInstr {
        let so_far = self.batch.b.so_far();
        let at = so_far.instrs().partition_point(|instr| instr.result <= v) - 1;
        so_far.instrs()[at].clone()
    }

    fn dims(&self, v: ValueId) -> Dims {
        self.batch.b.dims(v)
    }

    fn without_rows(&self, v: ValueId) -> Result<Dims> {
        Dims::new(&self.dims(v)[1..])
    }

    /// Whether a value is the number 0, repeated.
    fn is_zero(&self, mut v: ValueId) -> bool {
        loop {
            let instr = self.instr_of(v);
            match instr.op {
                ArrayOp::View(_) => v = instr.operands[0],
                op => return op == ArrayOp::Literal(0f64.to_bits()),
            }
        }
    }

    /// Values of whose totals that of an instruction is made.
    fn terms(&self, v: ValueId, instr: &ArrayInstr) -> Vec<ValueId> {
        let of = &instr.operands;
        let rows = self.batch.rows;
        match &instr.op {
            _ if rows == 0 => vec![],
            ArrayOp::Accumulate => of.to_vec(),
            ArrayOp::Row(Row::Op(Op::AddConstant)) if self.is_zero(of[1]) => vec![of[0]],
            ArrayOp::View(View::Reshape(to)) if to[0] == rows && self.dims(of[0]).first() == Some(&rows) => vec![of[0]],
            ArrayOp::View(View::Permute(axes)) if axes[0] == 0 => vec![of[0]],
            ArrayOp::View(View::Broadcast(to)) if self.dims(of[0]).rank() == to.rank() => vec![of[0]],
            ArrayOp::AccumulateAt(slices) if slices[0].count == rows => of.to_vec(),
            ArrayOp::ScatterAdd { axis: 1, batch: 1 } => vec![of[0]],
            ArrayOp::Loop(of_loop) => begins_of_sums(of_loop, instr, v.at() - instr.result.at(), rows),
            _ => vec![],
        }
    }

    /// The total of a value, given those of its terms.
    fn total(&mut self, v: ValueId, instr: &ArrayInstr) -> Result<ValueId> {
        if let (ArrayOp::Loop(of), begins @ [_, ..]) = (&instr.op, &self.terms(v, instr)[..]) {
            let begins: Vec<_> = begins.iter().map(|begin| self.found[begin]).collect();
            return self.loop_total(v, instr, of, &begins);
        }
        let dims = self.without_rows(v)?;
        let terms: Vec<_> = self.terms(v, instr).iter().map(|term| self.found[term]).collect();
        let rank = self.dims(v).rank();
        let (of, b) = (&instr.operands, &mut self.batch.b);
        match (&instr.op, &terms[..]) {
            (ArrayOp::Accumulate, [_, _]) => b.push(ArrayOp::Accumulate, &terms),
            (ArrayOp::Row(_), &[total]) => b.reached(total),
            (ArrayOp::View(View::Reshape(_)), &[total]) => b.view(total, View::Reshape(dims)),
            (ArrayOp::View(View::Permute(axes)), &[total]) => {
                b.view(total, View::Permute(axes[1..].iter().map(|axis| axis - 1).collect()))
            }
            (ArrayOp::View(View::Broadcast(_)), &[total]) => b.view(total, View::Broadcast(dims)),
            (ArrayOp::AccumulateAt(slices), &[sum, c]) => b.push(ArrayOp::AccumulateAt(slices[1..].into()), &[sum, c]),
            (ArrayOp::ScatterAdd { .. }, &[sum]) => {
                let (indices, c) = (b.dims(of[1]), b.dims(of[2]));
                let n = indices.size();
                let flat = b.view(of[1], View::Reshape(Dims::new(&[n])?))?;
                let rest = &c[indices.rank()..];
                let c = b.view(of[2], View::Reshape(Dims::new(&[&[n], rest].concat())?))?;
                b.push(ArrayOp::ScatterAdd { axis: 0, batch: 0 }, &[sum, flat, c])
            }
            (ArrayOp::View(View::Broadcast(to)), []) if b.dims(of[0]).rank() < to.rank() && to[0] > 0 => {
                // The same for all rows.
                let same = b.view(of[0], View::Broadcast(dims))?;
                self.times_rows(same)
            }
            (ArrayOp::Sparse(dot), []) if dot.kind == SparseKind::Outer => {
                b.push(ArrayOp::Sparse(SparseDot { kind: SparseKind::Total, ..*dot }), of)
            }
            (ArrayOp::Dot(dot), []) if rank == 3 => self.product(*dot, of[0], of[1]),
            _ => b.push(ArrayOp::Reduce(Reduce::Sum, Axes::range(0, 1)), &[v]),
        }
    }

    fn times_rows(&mut self, v: ValueId) -> Result<ValueId> {
        let b = &mut self.batch.b;
        let Type { dims, element } = b.type_of(v);
        let rows = self.batch.rows;
        let rows = match element {
            Element::Int => b.push(ArrayOp::Integer(rows as i64), &[])?,
            _ => b.literal(rows as f64)?,
        };
        let rows = b.broadcast_to(rows, dims)?;
        if b.so_far().may_be_unreached(v) {
            b.adjoint_product(v, rows)
        } else {
            b.push(ArrayOp::Row(Row::Op(Op::Mul)), &[v, rows])
        }
    }

    /// The total of one product for each row: rows and inner extents are summed over together.
    fn product(&mut self, dot: Dot, x: ValueId, y: ValueId) -> Result<ValueId> {
        let b = &mut self.batch.b;
        let mut side = |v: ValueId, is_inner_last: bool| -> Result<ValueId> {
            let v = if is_inner_last { b.view(v, View::Permute([0, 2, 1].into()))? } else { v };
            let dims = b.dims(v);
            b.view(v, View::Reshape(Dims::new(&[dims[0] * dims[1], dims[2]])?))
        };
        let x = side(x, !dot.transposed[0])?;
        let y = side(y, dot.transposed[1])?;
        b.push(ArrayOp::Dot(Dot { transposed: [true, false], adjoint: dot.adjoint }), &[x, y])
    }
}
