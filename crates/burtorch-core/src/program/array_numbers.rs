//! Instructions of array programs as a name and numbers, and back.
//!
//! Promises: ops are stored by name, so that the order of the op table may change; every number is checked as far as the type
//! rules of instructions do not. Does not know files.

use std::sync::Arc;

use crate::array::{
    Apart, ArrayOp, ArrayProgram, Axes, Comparison, Cumulate, Data, Dims, Dot, Element, Length, Loop, OverRows, Reduce,
    Row, Rows, Shared, Slice, Solve, SparseDot, SparseKind, Type, View,
};
use crate::error::{Error, Result};
use crate::kernels::Triangle;
use crate::ops::{Function, Op};

const ELEMENTS: [Element; 4] = [Element::Float, Element::Int, Element::Mask, Element::Sparse];
const COMPARISONS: [Comparison; 5] =
    [Comparison::Less, Comparison::LessEqual, Comparison::Equal, Comparison::IsNan, Comparison::IsUnreached];
const REDUCTIONS: [Reduce; 6] = [Reduce::Sum, Reduce::Prod, Reduce::Max, Reduce::Min, Reduce::LogSumExp, Reduce::Norm2];
const CUMULATIONS: [Cumulate; 2] = [Cumulate::Sum, Cumulate::Recurrence];
const SPARSE: [SparseKind; 4] = [SparseKind::Times, SparseKind::Each, SparseKind::Outer, SparseKind::Total];
const OVER_ROWS: [OverRows; 3] = [OverRows::Each, OverRows::Sum, OverRows::Mean];
const FLAGS: [bool; 2] = [false, true];

/// Above the steps and lengths of any array.
const LARGEST: u64 = 1 << 60;

/// The numbers of instructions, in order.
#[derive(Debug, Default)]
pub(super) struct Numbers(pub(super) Vec<u64>);

impl Numbers {
    fn count(&mut self, n: usize) {
        self.0.push(n as u64);
    }

    fn one_of<T: PartialEq>(&mut self, all: &[T], x: &T) {
        self.count(all.iter().position(|known| known == x).unwrap_or(all.len()));
    }

    fn list(&mut self, all: &[usize]) {
        self.count(all.len());
        all.iter().for_each(|&n| self.count(n));
    }

    fn slices(&mut self, all: &[Slice]) {
        self.count(all.len());
        for slice in all {
            self.0.extend([slice.start as u64, slice.step as u64, slice.count as u64]);
        }
    }

    fn axes(&mut self, axes: Axes) {
        self.list(&axes.iter().collect::<Vec<_>>());
    }

    fn solve(&mut self, solve: &Solve) {
        let Triangle { upper, transposed, unit } = solve.triangle;
        self.0.extend([upper, transposed, unit, solve.adjoint].map(u64::from));
    }

    /// Appends the numbers of an instruction; returns its name. `program` gives the index of an inner program.
    pub(super) fn write(&mut self, op: &ArrayOp, mut program: impl FnMut(&Shared<ArrayProgram>) -> usize) -> String {
        let plain = |name: &str| name.to_string();
        match op {
            ArrayOp::Input(ty) => {
                self.one_of(&ELEMENTS, &ty.element);
                self.list(&ty.dims);
                plain("input")
            }
            ArrayOp::Param { set, start, dims } => {
                self.0.extend([u64::from(*set), *start as u64]);
                self.list(dims);
                plain("parameters")
            }
            ArrayOp::Literal(bits) => {
                self.0.push(*bits);
                plain("number")
            }
            ArrayOp::Integer(x) => {
                self.0.push(*x as u64);
                plain("integer")
            }
            ArrayOp::Const(dims, _) => {
                self.list(dims);
                plain("constant")
            }
            ArrayOp::Unreached(dims) => {
                self.list(dims);
                plain("unreached")
            }
            ArrayOp::Row(row) => format!("row {}", row.name()),
            ArrayOp::Pull(row, k) => {
                self.count(usize::from(*k));
                format!("pull {}", row.name())
            }
            ArrayOp::Compare(comparison) => {
                self.one_of(&COMPARISONS, comparison);
                plain("compare")
            }
            ArrayOp::Select => plain("select"),
            ArrayOp::Convert(element) => {
                self.one_of(&ELEMENTS, element);
                plain("convert")
            }
            ArrayOp::Reduce(kind, axes) | ArrayOp::ReducePull(kind, axes) => {
                self.one_of(&REDUCTIONS, kind);
                self.axes(*axes);
                plain(if matches!(op, ArrayOp::Reduce(..)) { "reduce" } else { "reduce pull" })
            }
            ArrayOp::ArgExtreme { axis, largest } => {
                self.0.extend([*axis as u64, u64::from(*largest)]);
                plain("argument")
            }
            ArrayOp::ArgSort => plain("argsort"),
            ArrayOp::Search { right } => {
                self.0.push(u64::from(*right));
                plain("search")
            }
            ArrayOp::Cumulate { kind, axis, reverse } => {
                self.one_of(&CUMULATIONS, kind);
                self.0.extend([*axis as u64, u64::from(*reverse)]);
                plain("cumulate")
            }
            ArrayOp::Dot(dot) => {
                let [[a, b], [c, d]] = [dot.transposed, dot.adjoint];
                self.0.extend([a, b, c, d].map(u64::from));
                plain("product")
            }
            ArrayOp::Sparse(dot) => {
                self.one_of(&SPARSE, &dot.kind);
                self.0.push(u64::from(dot.adjoint));
                plain("sparse product")
            }
            ArrayOp::View(View::Reshape(dims)) => {
                self.list(dims);
                plain("reshape")
            }
            ArrayOp::View(View::Permute(axes)) => {
                self.list(axes);
                plain("transpose")
            }
            ArrayOp::View(View::Slice(slices)) => {
                self.slices(slices);
                plain("slice")
            }
            ArrayOp::View(View::Broadcast(dims)) => {
                self.list(dims);
                plain("broadcast")
            }
            ArrayOp::Copy => plain("copy"),
            ArrayOp::Concat(axis) => {
                self.count(*axis);
                plain("concatenate")
            }
            ArrayOp::Take { axis, batch }
            | ArrayOp::ScatterAdd { axis, batch }
            | ArrayOp::ScatterSet { axis, batch } => {
                self.0.extend([*axis as u64, *batch as u64]);
                plain(match op {
                    ArrayOp::Take { .. } => "take",
                    ArrayOp::ScatterAdd { .. } => "scatter",
                    _ => "scatter set",
                })
            }
            ArrayOp::Accumulate => plain("accumulate"),
            // Only plans contain it; stored programs do not.
            ArrayOp::MulAdd { .. } => plain("multiply add"),
            ArrayOp::AccumulateAt(slices) => {
                self.slices(slices);
                plain("accumulate at")
            }
            ArrayOp::Adjoint => plain("adjoint"),
            ArrayOp::After => plain("after"),
            ArrayOp::Lu => plain("lu"),
            ArrayOp::Cholesky => plain("cholesky"),
            ArrayOp::Qr => plain("qr"),
            ArrayOp::TriSolve(solve) => {
                self.solve(solve);
                plain("triangular solve")
            }
            ArrayOp::LuSolve(solve) => {
                self.solve(solve);
                plain("lu solve")
            }
            ArrayOp::Call(of) => {
                self.count(program(of));
                plain("call")
            }
            ArrayOp::Apart(of) => {
                self.count(program(&of.body));
                plain("apart")
            }
            ArrayOp::Loop(of) => {
                self.count(program(&of.body));
                match &of.length {
                    Length::Fixed(n) => self.0.extend([0, *n as u64, 0]),
                    Length::Counted => self.0.extend([1, 0, 0]),
                    Length::While { condition, most } => {
                        let most = most.map_or(u64::MAX, |most| most as u64);
                        let condition = program(condition) as u64;
                        self.0.extend([2, condition, most]);
                    }
                }
                self.0.push(u64::from(of.reverse));
                self.list(&[of.captures, of.carries, of.checkpoint.unwrap_or(0)]);
                plain("loop")
            }
            ArrayOp::Rows(of) => {
                self.count(program(&of.body));
                self.count(of.rows);
                self.list(&of.mapped.iter().map(|&is_mapped| usize::from(is_mapped)).collect::<Vec<_>>());
                self.count(of.results.len());
                of.results.iter().for_each(|over| self.one_of(&OVER_ROWS, over));
                plain("rows")
            }
            ArrayOp::Cond { yes, no } => {
                let both = [program(yes), program(no)];
                both.into_iter().for_each(|k| self.count(k));
                plain("choice")
            }
        }
    }
}

/// Reads the numbers back.
pub(super) struct Read<'a> {
    pub(super) numbers: &'a [u64],
    /// The programs that instructions may refer to.
    pub(super) programs: &'a [Arc<ArrayProgram>],
}

fn wrong(what: &'static str, found: impl ToString) -> Error {
    Error::BadArgument { what, expected: "one of this version".into(), found: found.to_string() }
}

impl Read<'_> {
    fn number(&mut self) -> Result<u64> {
        let (&first, rest) = self.numbers.split_first().ok_or_else(|| wrong("number", "none left"))?;
        self.numbers = rest;
        Ok(first)
    }

    /// A count or an index.
    fn count(&mut self) -> Result<usize> {
        let n = self.number()?;
        usize::try_from(n).ok().filter(|_| n < LARGEST).ok_or_else(|| wrong("count", n))
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> Result<T> {
        let k = self.count()?;
        all.get(k).copied().ok_or_else(|| wrong("number", k))
    }

    fn flag(&mut self) -> Result<bool> {
        self.one_of(&FLAGS)
    }

    fn axis(&mut self) -> Result<usize> {
        let axis = self.count()?;
        if axis < Dims::MOST { Ok(axis) } else { Err(wrong("axis", axis)) }
    }

    /// A list whose elements take `each` numbers.
    fn list<T>(&mut self, each: usize, mut one: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let n = self.count()?;
        if n > self.numbers.len() / each {
            return Err(wrong("length of a list", n));
        }
        (0..n).map(|_| one(self)).collect()
    }

    fn dims(&mut self) -> Result<Dims> {
        Dims::new(&self.list(1, Self::count)?)
    }

    fn axes(&mut self) -> Result<Axes> {
        let axes = self.list(1, |read| Ok(read.axis()? as isize))?;
        Axes::of(&Dims::new(&[1; Dims::MOST])?, Some(&axes))
    }

    fn slices(&mut self) -> Result<Box<[Slice]>> {
        let slices = self.list(3, |read| {
            let (start, step, count) = (read.count()?, read.number()? as i64, read.count()?);
            if step.unsigned_abs() >= LARGEST {
                return Err(wrong("step", step));
            }
            // With at most one element the step is arbitrary.
            Ok(Slice { start, step: if count > 1 { step as isize } else { 1 }, count })
        });
        Ok(slices?.into())
    }

    fn solve(&mut self) -> Result<Solve> {
        let (upper, transposed, unit) = (self.flag()?, self.flag()?, self.flag()?);
        Ok(Solve { triangle: Triangle { upper, transposed, unit }, adjoint: self.flag()? })
    }

    fn program(&mut self) -> Result<Shared<ArrayProgram>> {
        let k = self.count()?;
        self.programs.get(k).cloned().map(Shared).ok_or_else(|| wrong("program", k))
    }

    fn a_loop(&mut self) -> Result<Loop> {
        let body = self.program()?;
        let length = match self.count()? {
            0 => {
                let n = self.count()?;
                self.number()?;
                Length::Fixed(n)
            }
            1 => {
                self.number()?;
                self.number()?;
                Length::Counted
            }
            2 => {
                let condition = self.program()?;
                let most = self.number()?;
                Length::While { condition, most: (most != u64::MAX).then_some(most as usize) }
            }
            kind => return Err(wrong("kind of loop", kind)),
        };
        let reverse = self.flag()?;
        let &[captures, carries, checkpoint] = &self.list(1, Self::count)?[..] else {
            return Err(wrong("loop", "one without captures and carries"));
        };
        let checkpoint = (checkpoint > 0).then_some(checkpoint);
        Ok(Loop { body, length, reverse, captures, carries, checkpoint })
    }

    /// The next instruction, which has this name; `data` gives the numbers of a constant.
    pub(super) fn instr(&mut self, name: &str, data: impl FnOnce() -> Result<Data>) -> Result<ArrayOp> {
        if let Some(row) = name.strip_prefix("row ") {
            return Ok(ArrayOp::Row(row_named(row)?));
        }
        if let Some(row) = name.strip_prefix("pull ") {
            return Ok(ArrayOp::Pull(row_named(row)?, self.one_of(&[0, 1])?));
        }
        Ok(match name {
            "input" => ArrayOp::Input(Type { element: self.one_of(&ELEMENTS)?, dims: self.dims()? }),
            "parameters" => {
                let set = self.number()?;
                let set = u32::try_from(set).map_err(|_| wrong("Parameters", set))?;
                ArrayOp::Param { set, start: self.count()?, dims: self.dims()? }
            }
            "number" => ArrayOp::Literal(self.number()?),
            "integer" => ArrayOp::Integer(self.number()? as i64),
            "constant" => ArrayOp::Const(self.dims()?, Shared(Arc::new(data()?))),
            "unreached" => ArrayOp::Unreached(self.dims()?),
            "compare" => ArrayOp::Compare(self.one_of(&COMPARISONS)?),
            "select" => ArrayOp::Select,
            "convert" => ArrayOp::Convert(self.one_of(&ELEMENTS)?),
            "reduce" => ArrayOp::Reduce(self.one_of(&REDUCTIONS)?, self.axes()?),
            "reduce pull" => ArrayOp::ReducePull(self.one_of(&REDUCTIONS)?, self.axes()?),
            "argument" => ArrayOp::ArgExtreme { axis: self.axis()?, largest: self.flag()? },
            "argsort" => ArrayOp::ArgSort,
            "search" => ArrayOp::Search { right: self.flag()? },
            "cumulate" => {
                ArrayOp::Cumulate { kind: self.one_of(&CUMULATIONS)?, axis: self.axis()?, reverse: self.flag()? }
            }
            "product" => {
                let [a, b, c, d] = [self.flag()?, self.flag()?, self.flag()?, self.flag()?];
                ArrayOp::Dot(Dot { transposed: [a, b], adjoint: [c, d] })
            }
            "sparse product" => ArrayOp::Sparse(SparseDot { kind: self.one_of(&SPARSE)?, adjoint: self.flag()? }),
            "reshape" => ArrayOp::View(View::Reshape(self.dims()?)),
            "transpose" => ArrayOp::View(View::Permute(self.list(1, Self::axis)?.into())),
            "slice" => ArrayOp::View(View::Slice(self.slices()?)),
            "broadcast" => ArrayOp::View(View::Broadcast(self.dims()?)),
            "copy" => ArrayOp::Copy,
            "concatenate" => ArrayOp::Concat(self.axis()?),
            "take" => ArrayOp::Take { axis: self.axis()?, batch: self.axis()? },
            "scatter" => ArrayOp::ScatterAdd { axis: self.axis()?, batch: self.axis()? },
            "scatter set" => ArrayOp::ScatterSet { axis: self.axis()?, batch: self.axis()? },
            "accumulate" => ArrayOp::Accumulate,
            "accumulate at" => ArrayOp::AccumulateAt(self.slices()?),
            "adjoint" => ArrayOp::Adjoint,
            "after" => ArrayOp::After,
            "lu" => ArrayOp::Lu,
            "cholesky" => ArrayOp::Cholesky,
            "qr" => ArrayOp::Qr,
            "triangular solve" => ArrayOp::TriSolve(self.solve()?),
            "lu solve" => ArrayOp::LuSolve(self.solve()?),
            "call" => ArrayOp::Call(self.program()?),
            "apart" => ArrayOp::Apart(Apart { body: self.program()?, rules: None }),
            "loop" => ArrayOp::Loop(self.a_loop()?),
            "rows" => {
                let (body, rows) = (self.program()?, self.count()?);
                let mapped = self.list(1, Self::flag)?.into();
                ArrayOp::Rows(Rows {
                    body,
                    rows,
                    mapped,
                    results: self.list(1, |read| read.one_of(&OVER_ROWS))?.into(),
                })
            }
            "choice" => ArrayOp::Cond { yes: self.program()?, no: self.program()? },
            name => return Err(wrong("operation", name)),
        })
    }
}

fn row_named(name: &str) -> Result<Row> {
    let helper = || Function::ALL.iter().find(|function| function.name() == name).copied().map(Row::from);
    Op::from_name(name).and_then(Row::new).or_else(helper).ok_or_else(|| wrong("elementwise operation", name))
}
