//! Arrays of many short rows as one array for each number of a row.
//!
//! If a program works along short axes behind a long first one, as the batch of a small program does, each number of a row
//! becomes an array over all rows, a *column*. Known indices, slices, transposes, short sums and products of small matrices then
//! move no numbers, and unreached columns cost nothing. The new program is used if it moves and computes less, by an estimate.
//! Promises: the same results bit for bit, except for the rounding of products of matrices with unreached adjoints. Knows plans
//! only by their layout of views.

mod cost;
mod numbers;
mod seen;

use super::build::ArrayBuilder;
use super::dims::{Axes, Dims};
use super::instr::{ArrayInstr, ArrayOp, ArrayProgram, Data, Dot, Element, Reduce, Slice, Type, ValueId, View};
use super::row::Row;
use super::simplify::simplified;
use crate::error::Result;
use crate::kernels::slices;
use crate::ops::Op;
use cost::cost;
pub(super) use numbers::in_numbers;
use seen::{seen, unravelled};

/// Rows from which on columns are worth a call for each of them, and numbers of a row at most.
pub(super) const LONG: usize = 64;
const FEW: usize = 32;

/// Instructions of a program of columns, at most.
const MOST: usize = 4096;

/// The program with columns in place of short axes, where that is less work.
pub(super) fn in_columns(program: ArrayProgram) -> Result<ArrayProgram> {
    let Some(rows) = rows_of(&program) else { return Ok(program) };
    let mut columns = Columns {
        program: &program,
        rows,
        row: Dims::new(&[rows])?,
        few: FEW,
        b: ArrayBuilder::new(program.dtype())?,
        forms: vec![Form::default(); program.n_values()],
    };
    for at in 0..program.instrs().len() {
        columns.instr(at)?;
        if columns.b.so_far().instrs().len() > 8 * MOST {
            return Ok(program);
        }
    }
    let outputs = program.outputs().iter().map(|&v| columns.whole(v)).collect::<Result<Vec<_>>>()?;
    let new = simplified(&columns.b.finish(&outputs)?.cleaned()?)?.cleaned()?;
    Ok(if new.instrs().len() <= MOST && 5 * cost(&new) < 4 * cost(&program) { new } else { program })
}

/// The most frequent first extent of arrays with short axes behind it.
fn rows_of(program: &ArrayProgram) -> Option<usize> {
    let mut counts: Vec<(usize, usize)> = Vec::new();
    for instr in program.instrs() {
        let dims = program.type_of(instr.result).dims;
        let Some(&rows) = dims.first() else { continue };
        if rows >= LONG && (2..=FEW).contains(&(dims.size() / rows)) {
            match counts.iter_mut().find(|(n, _)| *n == rows) {
                Some((_, count)) => *count += 1,
                None => counts.push((rows, 1)),
            }
        }
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(rows, _)| rows)
}

/// An element of a constant.
#[derive(Clone, Copy, Debug)]
enum Known {
    Number(f64),
    Mask(bool),
}

impl PartialEq for Known {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Known::Number(x), Known::Number(y)) => x.to_bits() == y.to_bits(),
            (Known::Mask(x), Known::Mask(y)) => x == y,
            _ => false,
        }
    }
}

fn known_at(data: &Data, at: usize) -> Option<Known> {
    match data {
        Data::F64(x) => Some(Known::Number(x[at])),
        Data::F32(x) => Some(Known::Number(x[at].into())),
        Data::Mask(x) => Some(Known::Mask(x[at])),
        Data::Int(_) => None,
    }
}

/// What a value has become.
#[derive(Clone, Debug, Default)]
struct Form {
    whole: Option<ValueId>,
    columns: Option<Vec<ValueId>>,
}

struct Columns<'p> {
    program: &'p ArrayProgram,
    rows: usize,
    /// The shape of a column.
    row: Dims,
    /// Numbers of a row, at most.
    few: usize,
    b: ArrayBuilder,
    forms: Vec<Form>,
}

impl Columns<'_> {
    fn is_split(&self, ty: Type) -> bool {
        matches!(ty.element, Element::Float | Element::Mask)
            && ty.dims.first() == Some(&self.rows)
            && (1..=self.few).contains(&(ty.dims.size() / self.rows))
    }

    fn instr(&mut self, at: usize) -> Result<()> {
        let program = self.program;
        let instr = &program.instrs()[at];
        let is_one = program.results(at).count() == 1;
        if is_one
            && self.is_split(program.type_of(instr.result))
            && let Some(columns) = self.columns_of(instr)?
        {
            self.forms[instr.result.at()].columns = Some(columns);
            // Another look at what is whole is whole as well.
            if let (ArrayOp::View(view), Some(of)) = (&instr.op, instr.operands.first())
                && let Some(whole) = self.forms[of.at()].whole
            {
                self.forms[instr.result.at()].whole = Some(self.b.view(whole, view.clone())?);
            }
            return Ok(());
        }
        let operands = instr.operands.iter().map(|&v| self.whole(v)).collect::<Result<Vec<_>>>()?;
        for (v, now) in program.results(at).zip(self.b.push_all(instr.op.clone(), &operands)?) {
            self.forms[v.at()].whole = Some(now);
        }
        Ok(())
    }

    /// The value as one array.
    fn whole(&mut self, v: ValueId) -> Result<ValueId> {
        let form = &self.forms[v.at()];
        if let Some(whole) = form.whole {
            return Ok(whole);
        }
        let columns = form.columns.clone().unwrap_or_default();
        let upright = Dims::new(&[self.rows, 1])?;
        let parts = columns.iter().map(|&c| self.b.view(c, View::Reshape(upright))).collect::<Result<Vec<_>>>()?;
        let joined = match parts[..] {
            [only] => only,
            _ => self.b.push(ArrayOp::Concat(1), &parts)?,
        };
        let whole = self.b.view(joined, View::Reshape(self.program.type_of(v).dims))?;
        self.forms[v.at()].whole = Some(whole);
        Ok(whole)
    }

    /// The columns of a value that has rows.
    fn split(&mut self, v: ValueId) -> Result<Vec<ValueId>> {
        if let Some(columns) = &self.forms[v.at()].columns {
            return Ok(columns.clone());
        }
        let n = self.program.type_of(v).dims.size() / self.rows;
        let data = match &self.program.instr_of(v).op {
            ArrayOp::Const(_, data) => Some(data.0.clone()),
            _ => None,
        };
        let whole = self.whole(v)?;
        let flat = self.b.view(whole, View::Reshape(Dims::new(&[self.rows, n])?))?;
        let columns = (0..n)
            .map(|k| {
                let known = data.as_ref().and_then(|data| {
                    let first = known_at(data, k)?;
                    (1..self.rows).all(|row| known_at(data, row * n + k) == Some(first)).then_some(first)
                });
                if let Some(known) = known {
                    return self.of_known(known);
                }
                let slices = [Slice::all(self.rows), Slice { start: k, step: 1, count: 1 }];
                let column = self.b.view(flat, View::Slice(slices.into()))?;
                self.b.view(column, View::Reshape(self.row))
            })
            .collect::<Result<Vec<_>>>()?;
        self.forms[v.at()].columns = Some(columns.clone());
        Ok(columns)
    }

    /// One number of a value, the `at`-th in C order, in every row.
    fn repeated(&mut self, mut v: ValueId, mut at: usize) -> Result<ValueId> {
        let program = self.program;
        let mut instr = program.instr_of(v);
        while let ArrayOp::View(_) | ArrayOp::Adjoint = &instr.op {
            let from = program.type_of(instr.operands[0]).dims;
            if let ArrayOp::View(view) = &instr.op {
                at = seen(view, program.type_of(v).dims, from, at);
            }
            v = instr.operands[0];
            instr = program.instr_of(v);
        }
        let known = match &instr.op {
            ArrayOp::Literal(bits) => Some(Known::Number(f64::from_bits(*bits))),
            ArrayOp::Unreached(_) => Some(Known::Number(-0.0)),
            ArrayOp::Const(_, data) => known_at(&data.0, at),
            _ => None,
        };
        if let Some(known) = known {
            return self.of_known(known);
        }
        let whole = self.whole(v)?;
        let place = unravelled(program.type_of(v).dims, at);
        let slices: Vec<_> = place.map(|start| Slice { start, step: 1, count: 1 }).collect();
        let part = self.b.view(whole, View::Slice(slices.into()))?;
        let number = self.b.view(part, View::Reshape(Dims::SCALAR))?;
        self.b.broadcast_to(number, self.row)
    }

    /// A column of one number.
    fn of_known(&mut self, known: Known) -> Result<ValueId> {
        let one = match known {
            Known::Number(x) if x.to_bits() == (-0f64).to_bits() => return self.unreached(),
            Known::Number(x) => self.b.literal(x)?,
            Known::Mask(holds) => self.b.mask(holds)?,
        };
        self.b.broadcast_to(one, self.row)
    }

    fn unreached(&mut self) -> Result<ValueId> {
        self.b.push(ArrayOp::Unreached(self.row), &[])
    }

    /// The columns that an instruction gives, if it can be taken apart.
    fn columns_of(&mut self, instr: &ArrayInstr) -> Result<Option<Vec<ValueId>>> {
        let program = self.program;
        let ty = |v: ValueId| program.type_of(v);
        let dims = ty(instr.result).dims;
        let n = dims.size() / self.rows;
        let of = &instr.operands;
        let all_split = of.iter().all(|&v| self.is_split(ty(v)));
        let op = &instr.op;
        Ok(match op {
            op if op.is_elementwise() && all_split => {
                let operands = of.iter().map(|&v| self.split(v)).collect::<Result<Vec<_>>>()?;
                let column = |k: usize, b: &mut ArrayBuilder| {
                    let of: Vec<_> = operands.iter().map(|columns| columns[k]).collect();
                    b.push(op.clone(), &of)
                };
                Some((0..n).map(|k| column(k, &mut self.b)).collect::<Result<_>>()?)
            }
            ArrayOp::Unreached(_) => Some(vec![self.unreached()?; n]),
            ArrayOp::Adjoint | ArrayOp::Copy if all_split => Some(self.split(of[0])?),
            ArrayOp::View(view) => self.view(view, of[0], dims)?,
            &ArrayOp::Concat(axis) if axis > 0 && all_split => {
                let operands = of.iter().map(|&v| self.split(v)).collect::<Result<Vec<_>>>()?;
                let outer: usize = dims[1..axis].iter().product();
                let mut columns = Vec::with_capacity(n);
                for o in 0..outer {
                    for part in &operands {
                        let width = part.len() / outer.max(1);
                        columns.extend_from_slice(&part[o * width..(o + 1) * width]);
                    }
                }
                Some(columns)
            }
            &ArrayOp::Reduce(kind, axes) if self.is_split(ty(of[0])) && ty(of[0]).element == Element::Float => {
                self.reduced(kind, axes, of[0])?
            }
            &ArrayOp::Take { axis, batch: 0 } if axis > 0 && self.is_split(ty(of[0])) => {
                let Some(places) = places(program, of[1], ty(of[0]).dims, axis) else { return Ok(None) };
                let columns = self.split(of[0])?;
                Some(places.into_iter().map(|k| columns[k]).collect())
            }
            &ArrayOp::ScatterAdd { axis, batch: 0 } if axis > 0 && self.is_split(ty(of[2])) => {
                let Some(places) = places(program, of[1], dims, axis) else { return Ok(None) };
                let (mut sums, c) = (self.split(of[0])?, self.split(of[2])?);
                for (&k, &c) in places.iter().zip(&c) {
                    sums[k] = self.b.push(ArrayOp::Accumulate, &[sums[k], c])?;
                }
                Some(sums)
            }
            ArrayOp::AccumulateAt(slices) if all_split && slices[0] == Slice::all(self.rows) => {
                let view = View::Slice(slices.clone());
                let part = ty(of[1]).dims;
                let (mut sums, c) = (self.split(of[0])?, self.split(of[1])?);
                for (k, &c) in c.iter().enumerate() {
                    let at = seen(&view, part, dims, k);
                    sums[at] = self.b.push(ArrayOp::Accumulate, &[sums[at], c])?;
                }
                Some(sums)
            }
            ArrayOp::Dot(dot) if all_split => self.dot(*dot, of, dims)?,
            _ => None,
        })
    }

    fn view(&mut self, view: &View, of: ValueId, dims: Dims) -> Result<Option<Vec<ValueId>>> {
        let ty = self.program.type_of(of);
        let from = ty.dims;
        let n = dims.size() / self.rows;
        let keeps_rows = match view {
            View::Reshape(_) => true,
            View::Permute(axes) => axes[0] == 0,
            View::Slice(slices) => slices[0] == Slice::all(self.rows),
            View::Broadcast(_) => from.rank() == dims.rank(),
        };
        if keeps_rows && self.is_split(ty) {
            let columns = self.split(of)?;
            return Ok(Some((0..n).map(|k| columns[seen(view, dims, from, k)]).collect()));
        }
        let is_shared = matches!(view, View::Broadcast(_)) && (from.rank() < dims.rank() || from[0] == 1);
        if !is_shared || ty.element == Element::Int {
            return Ok(None);
        }
        (0..n).map(|k| self.repeated(of, seen(view, dims, from, k))).collect::<Result<_>>().map(Some)
    }

    /// Reductions in the order that they have over arrays: sums and extremes of sixteen or more from eight running results.
    fn reduced(&mut self, kind: Reduce, axes: Axes, of: ValueId) -> Result<Option<Vec<ValueId>>> {
        let op = match kind {
            Reduce::Sum => ArrayOp::Accumulate,
            Reduce::Prod => ArrayOp::Row(Row::Op(Op::Mul)),
            Reduce::Max => ArrayOp::Row(Row::Op(Op::Max)),
            Reduce::Min => ArrayOp::Row(Row::Op(Op::Min)),
            _ => return Ok(None),
        };
        let dims = self.program.type_of(of).dims;
        if axes.has(0) || dims.size() == 0 {
            return Ok(None);
        }
        let columns = self.split(of)?;
        let kept = dims.reduced(axes, true);
        let mut rows: Vec<Vec<ValueId>> = vec![Vec::new(); kept.size() / self.rows];
        for (k, &column) in columns.iter().enumerate() {
            rows[seen(&View::Broadcast(dims), dims, kept, k)].push(column);
        }
        let mut results = Vec::with_capacity(rows.len());
        for row in rows {
            let phases = if row.len() >= 16 && kind != Reduce::Prod { 8 } else { 1 };
            let mut running = row[..phases].to_vec();
            for (k, &x) in row.iter().enumerate().skip(phases) {
                running[k % phases] = self.b.push(op.clone(), &[running[k % phases], x])?;
            }
            if phases == 8 {
                for (from, into) in [(4, 0), (6, 2), (2, 0), (5, 1), (7, 3), (3, 1), (1, 0)] {
                    running[into] = self.b.push(op.clone(), &[running[into], running[from]])?;
                }
            }
            results.push(running[0]);
        }
        Ok(Some(results))
    }

    /// Products of small matrices whose results are sums from the first term to the last.
    fn dot(&mut self, dot: Dot, of: &[ValueId], dims: Dims) -> Result<Option<Vec<ValueId>>> {
        let [of_x, of_y] = [of[0], of[1]].map(|v| self.program.type_of(v).dims);
        let (batch, [m, k, n]) = dot.extents(&of_x, &of_y)?;
        let is_vector = m == 1 || n == 1;
        let is_short = (1..if is_vector { slices::SHORT } else { self.few }).contains(&k);
        if batch.rank() == 0 || !is_short || dot.adjoint == [true; 2] {
            return Ok(None);
        }
        // Of two matrices every term is added with one rounding, to this at first.
        let start = match (is_vector || k == 1, dot.adjoint) {
            (true, _) => None,
            (_, [false, false]) => Some(self.b.literal(0.0)?),
            _ => Some(self.b.literal(-0.0)?),
        };
        let start = start.map(|x| self.b.broadcast_to(x, self.row)).transpose()?;
        let (x, y) = (self.split(of[0])?, self.split(of[1])?);
        let mut results = Vec::with_capacity(dims.size() / self.rows);
        for at in 0..batch.size() / self.rows {
            for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
                let mut total = start;
                for p in 0..k {
                    let x = x[at * m * k + if dot.transposed[0] { p * m + i } else { i * k + p }];
                    let y = y[at * k * n + if dot.transposed[1] { j * k + p } else { p * n + j }];
                    if let (Some(sum), true) = (total, start.is_some()) {
                        let of_adjoint = dot.adjoint != [false; 2];
                        let (g, factor) = if dot.adjoint[1] { (y, x) } else { (x, y) };
                        total = Some(self.b.push(ArrayOp::MulAdd { of_adjoint }, &[g, factor, sum])?);
                        continue;
                    }
                    let term = match dot.adjoint {
                        [false, false] => self.b.push(ArrayOp::Row(Row::Op(Op::Mul)), &[x, y])?,
                        [true, _] => self.b.pull(Row::Op(Op::Mul), 0, x, &[y, y], y)?,
                        _ => self.b.pull(Row::Op(Op::Mul), 0, y, &[x, x], x)?,
                    };
                    total = Some(match total {
                        Some(total) => self.b.push(ArrayOp::Accumulate, &[total, term])?,
                        None => term,
                    });
                }
                let Some(total) = total else { return Ok(None) };
                // A product of two matrices begins with 0.
                let is_sum = dot.adjoint == [false; 2] && !is_vector && k == 1;
                results.push(if is_sum { self.b.reached(total)? } else { total });
            }
        }
        Ok(Some(results))
    }
}

/// For each number of a row of [`ArrayOp::Take`] which number of a row of the table it is, if all indices are known to be inside.
fn places(program: &ArrayProgram, indices: ValueId, table: Dims, axis: usize) -> Option<Vec<usize>> {
    let numbers = program.known_indices(indices, table[axis])?;
    let outer: usize = table[1..axis].iter().product();
    let inner: usize = table[axis + 1..].iter().product();
    let row = |o: usize, i: usize| (o * table[axis] + i) * inner;
    let all = (0..outer).flat_map(|o| numbers.iter().map(move |&i| row(o, i)));
    Some(all.flat_map(|start| start..start + inner).collect())
}
