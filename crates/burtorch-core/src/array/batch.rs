//! A program over many rows at once: `vmap`.
//!
//! Takes the instructions in order and gives each value that depends on a row a new first axis. Promises: row k of a result is
//! the result for row k, bit for bit unless a vector times a shared matrix becomes a product of matrices, which has its own
//! order; values that do not depend on a row are computed once. Does not know derivatives: those of a batch, and the
//! batch of a derivative, are compositions.

use std::cell::Cell;

use super::build::ArrayBuilder;
use super::dims::{Dims, bad};
use super::instr::{ArrayInstr, ArrayOp, ArrayProgram, Dot, Slice, Type, ValueId, View};
use crate::error::Result;
use crate::scalar::DType;

/// A program for many rows, under construction.
pub(super) struct Batch {
    pub(super) b: ArrayBuilder,
    pub(super) rows: usize,
    /// In a branch that some rows do not take: which rows do. An index of the others may name no element.
    pub(super) taking: Option<ValueId>,
    /// Whether a loop takes other numbers of steps for some rows.
    pub(super) ends_apart: Cell<bool>,
}

impl Batch {
    pub(super) fn new(dtype: DType, rows: usize) -> Result<Batch> {
        Ok(Batch { b: ArrayBuilder::new(dtype)?, rows, taking: None, ends_apart: Cell::new(false) })
    }

    /// All instructions, with these arguments: each with whether it has rows. What each value is.
    pub(super) fn run(&mut self, program: &ArrayProgram, inputs: &[(ValueId, bool)]) -> Result<Vec<(ValueId, bool)>> {
        let mut new = vec![(ValueId(0), false); program.n_values()];
        for (v, &input) in program.inputs().iter().zip(inputs) {
            new[v.at()] = input;
        }
        for (at, instr) in program.instrs().iter().enumerate() {
            if matches!(instr.op, ArrayOp::Input(_)) {
                continue;
            }
            let mut of: Vec<_> = instr.operands.iter().map(|v| new[v.at()]).collect();
            let is_by_index =
                matches!(instr.op, ArrayOp::Take { .. } | ArrayOp::ScatterAdd { .. } | ArrayOp::ScatterSet { .. });
            if let Some(taking) = self.taking.filter(|_| is_by_index) {
                of[1] = self.index_where(taking, of[1])?;
            }
            let has_rows = of.iter().any(|(_, has_rows)| *has_rows);
            let alone = || of.iter().map(|(v, _)| *v).collect::<Vec<_>>();
            let results = match &instr.op {
                ArrayOp::Loop(l) if has_rows => self.loop_of_rows(l, &of)?,
                ArrayOp::Cond { yes, no } if has_rows => self.cond_of_rows([&yes.0, &no.0], &of)?,
                ArrayOp::Rows(rows) if has_rows => {
                    let whole = rows.of(rows.rows)?;
                    let new = self.run(&whole, &of)?;
                    let results = whole.outputs().iter().map(|v| new[v.at()]).zip(&rows.results);
                    results
                        .map(|((v, led), over)| Ok((self.total(v, *over, rows.rows)?, led)))
                        .collect::<Result<_>>()?
                }
                ArrayOp::Apart(apart) if has_rows => self.apart_of_rows(apart, &of)?,
                ArrayOp::After => vec![(self.b.push(ArrayOp::After, &alone())?, of[0].1)],
                // Many matrices at once are what these take anyway.
                ArrayOp::Lu | ArrayOp::Qr => {
                    self.b.push_all(instr.op.clone(), &alone())?.into_iter().map(|v| (v, has_rows)).collect()
                }
                _ if has_rows => vec![(self.instr(program, instr, &of)?, true)],
                op => self.b.push_all(op.clone(), &alone())?.into_iter().map(|v| (v, false)).collect(),
            };
            for (v, now) in program.results(at).zip(results) {
                new[v.at()] = now;
            }
        }
        Ok(new)
    }

    /// An index that names the first element where a row is not meant, whose results nothing reads.
    fn index_where(&mut self, mask: ValueId, index: (ValueId, bool)) -> Result<(ValueId, bool)> {
        if matches!(self.b.so_far().instr_of(index.0).op, ArrayOp::Const(..) | ArrayOp::Integer(_)) {
            return Ok(index);
        }
        let index = self.with_rows(index)?;
        let dims = self.b.dims(index);
        let mask = self.wide(mask, dims)?;
        let zero = self.b.push(ArrayOp::Integer(0), &[])?;
        let zero = self.b.broadcast_to(zero, dims)?;
        Ok((self.b.push(ArrayOp::Select, &[mask, index, zero])?, true))
    }

    /// A mask of rows for all numbers of the rows.
    pub(super) fn wide(&mut self, mask: ValueId, dims: Dims) -> Result<ValueId> {
        let mut extents = vec![1; dims.rank()];
        extents[0] = self.rows;
        let mask = self.b.view(mask, View::Reshape(Dims::new(&extents)?))?;
        self.b.broadcast_to(mask, dims)
    }

    pub(super) fn led(&self, dims: &[usize]) -> Result<Dims> {
        Dims::new(&[&[self.rows], dims].concat())
    }

    pub(super) fn input(&mut self, ty: Type, axis: usize) -> Result<ValueId> {
        if axis > ty.dims.rank() {
            return Err(bad("axis of rows", format!("at most {}", ty.dims.rank()), axis.to_string()));
        }
        let mut extents = ty.dims.to_vec();
        extents.insert(axis, self.rows);
        let x = self.b.push(ArrayOp::Input(Type { dims: Dims::new(&extents)?, ..ty }), &[])?;
        self.rows_first(x, axis)
    }

    pub(super) fn rows_first(&mut self, x: ValueId, axis: usize) -> Result<ValueId> {
        let rank = self.b.dims(x).rank();
        let axes: Vec<_> = [axis].into_iter().chain((0..rank).filter(|&k| k != axis)).collect();
        self.b.view(x, View::Permute(axes.into()))
    }

    /// The value with rows, repeated if it has none.
    pub(super) fn with_rows(&mut self, (v, has_rows): (ValueId, bool)) -> Result<ValueId> {
        if has_rows { Ok(v) } else { self.b.broadcast_to(v, self.led(&self.b.dims(v))?) }
    }

    fn instr(&mut self, program: &ArrayProgram, instr: &ArrayInstr, of: &[(ValueId, bool)]) -> Result<ValueId> {
        let dims = |k: usize| program.type_of(instr.operands[k]).dims;
        let shifted = |slices: &[Slice], rows| [Slice::all(rows)].iter().chain(slices).copied().collect();
        let op = match &instr.op {
            ArrayOp::Reduce(kind, axes) => ArrayOp::Reduce(*kind, axes.shifted()),
            ArrayOp::ReducePull(kind, axes) => ArrayOp::ReducePull(*kind, axes.shifted()),
            &ArrayOp::ArgExtreme { axis, largest } => ArrayOp::ArgExtreme { axis: axis + 1, largest },
            &ArrayOp::Cumulate { kind, axis, reverse } => ArrayOp::Cumulate { kind, axis: axis + 1, reverse },
            ArrayOp::Concat(axis) => ArrayOp::Concat(axis + 1),
            ArrayOp::AccumulateAt(slices) => ArrayOp::AccumulateAt(shifted(slices, self.rows)),
            // The same places in all rows need not be repeated.
            &ArrayOp::ScatterAdd { axis, batch: 0 } if !of[1].1 => {
                let (sum, c) = (self.with_rows(of[0])?, self.with_rows(of[2])?);
                return self.b.push(ArrayOp::ScatterAdd { axis: axis + 1, batch: 0 }, &[sum, of[1].0, c]);
            }
            &ArrayOp::ScatterSet { axis, batch: 0 } if !of[1].1 => {
                let (x, y) = (self.with_rows(of[0])?, self.with_rows(of[2])?);
                return self.b.push(ArrayOp::ScatterSet { axis: axis + 1, batch: 0 }, &[x, of[1].0, y]);
            }
            &ArrayOp::ScatterAdd { axis, batch } => ArrayOp::ScatterAdd { axis: axis + 1, batch: batch + 1 },
            &ArrayOp::ScatterSet { axis, batch } => ArrayOp::ScatterSet { axis: axis + 1, batch: batch + 1 },
            &ArrayOp::Take { axis, batch: 0 } if !of[1].1 => {
                return self.b.push(ArrayOp::Take { axis: axis + 1, batch: 0 }, &[of[0].0, of[1].0]);
            }
            &ArrayOp::Take { axis, batch: 0 } if !of[0].1 => {
                let taken = self.b.push(ArrayOp::Take { axis, batch: 0 }, &[of[0].0, of[1].0])?;
                return self.rows_first(taken, axis);
            }
            &ArrayOp::Take { axis, batch } => ArrayOp::Take { axis: axis + 1, batch: batch + 1 },
            // The same sorted row for all rows.
            ArrayOp::Search { .. } if !of[0].1 && dims(0).rank() == 1 => {
                let led = self.b.dims(of[1].0);
                let flat = self.b.view(of[1].0, View::Reshape(Dims::new(&[led.size()])?))?;
                let found = self.b.push(instr.op.clone(), &[of[0].0, flat])?;
                return self.b.view(found, View::Reshape(led));
            }
            ArrayOp::Dot(dot) => return self.dot(*dot, of, dims(0)),
            ArrayOp::View(view) => return self.view(view, of[0].0, dims(0)),
            ArrayOp::Sparse(dot) => return self.sparse_of_rows(*dot, of, dims(0)),
            ArrayOp::TriSolve(_) | ArrayOp::LuSolve(_)
                if dims(0).rank() == 2 && of.iter().rev().skip(1).all(|v| !v.1) =>
            {
                return self.shared_matrix(instr, of);
            }
            op => op.clone(),
        };
        let of = of.iter().map(|&v| self.with_rows(v)).collect::<Result<Vec<_>>>()?;
        self.b.push(op, &of)
    }

    fn view(&mut self, view: &View, x: ValueId, dims: Dims) -> Result<ValueId> {
        let view = match view {
            View::Reshape(to) => View::Reshape(self.led(to)?),
            View::Permute(axes) => View::Permute([0].into_iter().chain(axes.iter().map(|axis| axis + 1)).collect()),
            View::Slice(slices) => View::Slice([Slice::all(self.rows)].iter().chain(slices).copied().collect()),
            View::Broadcast(to) => {
                let aligned = [vec![1; to.rank() - dims.rank()], dims.to_vec()].concat();
                let x = self.b.view(x, View::Reshape(self.led(&aligned)?))?;
                return self.b.broadcast_to(x, self.led(to)?);
            }
        };
        self.b.view(x, view)
    }

    /// A shared matrix multiplies all rows in one product.
    fn dot(&mut self, dot: Dot, of: &[(ValueId, bool)], dims: Dims) -> Result<ValueId> {
        let Dot { transposed, adjoint } = dot;
        if dims.rank() == 2 && !of[1].1 {
            let dot = Dot { transposed: [false, transposed[1]], adjoint };
            return self.shared_right(dot, of[0].0, transposed[0], of[1].0);
        }
        if dims.rank() == 2 && !of[0].1 {
            // Of transposed matrices in the other order.
            let dot = Dot { transposed: [false, !transposed[0]], adjoint: [adjoint[1], adjoint[0]] };
            let product = self.shared_right(dot, of[1].0, !transposed[1], of[0].0)?;
            return self.b.view(product, View::Permute([0, 2, 1].into()));
        }
        let operands = [self.with_rows(of[0])?, self.with_rows(of[1])?];
        self.b.push(ArrayOp::Dot(dot), &operands)
    }

    /// The product of matrices of rows, or of their transposes, with a shared one.
    fn shared_right(&mut self, dot: Dot, rows: ValueId, is_transposed: bool, matrix: ValueId) -> Result<ValueId> {
        let rows = if is_transposed { self.b.view(rows, View::Permute([0, 2, 1].into()))? } else { rows };
        let (m, k) = (self.b.dims(rows)[1], self.b.dims(rows)[2]);
        let rows = self.b.view(rows, View::Reshape(Dims::new(&[self.rows * m, k])?))?;
        let product = self.b.push(ArrayOp::Dot(dot), &[rows, matrix])?;
        let n = self.b.dims(product)[1];
        self.b.view(product, View::Reshape(self.led(&[m, n])?))
    }

    /// Right sides of all rows, side by side, are solved with a shared matrix at once.
    fn shared_matrix(&mut self, instr: &ArrayInstr, of: &[(ValueId, bool)]) -> Result<ValueId> {
        let sides = of[of.len() - 1].0;
        let [rows, n, m] = self.b.dims(sides)[..] else { return self.b.push(ArrayOp::Copy, &[sides]) };
        let sides = self.b.view(sides, View::Permute([1, 0, 2].into()))?;
        let sides = self.b.view(sides, View::Reshape(Dims::new(&[n, rows * m])?))?;
        let mut operands: Vec<_> = of.iter().map(|(v, _)| *v).collect();
        operands[of.len() - 1] = sides;
        let x = self.b.push(instr.op.clone(), &operands)?;
        let x = self.b.view(x, View::Reshape(Dims::new(&[n, rows, m])?))?;
        self.b.view(x, View::Permute([1, 0, 2].into()))
    }
}
