//! The type rules of instructions: shape and element of results, given those of operands.
//!
//! Promises: the rule is also the check: an accepted instruction can run. Does not know how.

use super::control::infer_cond;
use super::dims::{Axes, Dims, bad};
use super::instr::{
    Apart, ArrayOp, ArrayProgram, Comparison, Cumulate, Data, Dot, Element, Loop, Reduce, Slice, Type, ValueId, View,
};
use crate::error::Result;

fn same_dims(of: &[Type]) -> Result<Dims> {
    match of.iter().find(|t| t.dims != of[0].dims) {
        Some(other) => Err(bad("operand shapes", format!("equal to {}", of[0].dims), other.dims.to_string())),
        None => Ok(of[0].dims),
    }
}

fn elements(of: &[Type], wanted: &[Element]) -> Result<()> {
    for (t, wanted) in of.iter().zip(wanted) {
        if t.element != *wanted {
            return Err(bad("operand", format!("an array of {wanted:?}"), format!("one of {:?}", t.element)));
        }
    }
    Ok(())
}

fn in_rank(axis: usize, dims: &Dims) -> Result<usize> {
    dims.axis(axis as isize)
}

impl View {
    /// The shape of the result.
    pub(super) fn dims(&self, of: &Dims) -> Result<Dims> {
        match self {
            View::Reshape(to) if to.size() == of.size() => Ok(*to),
            View::Reshape(to) => Err(bad("new shape", format!("one of {} elements", of.size()), to.to_string())),
            View::Broadcast(to) if of.broadcast(to)? == *to => Ok(*to),
            View::Broadcast(to) => Err(bad("new shape", format!("one that {of} broadcasts to"), to.to_string())),
            View::Permute(axes) => {
                let named = axes.iter().fold(0u32, |set, &axis| set | 1 << axis.min(31));
                if axes.len() != of.rank() || named != (1u32 << of.rank()) - 1 {
                    let expected = format!("each axis of {of} once");
                    return Err(bad("axes", expected, format!("{axes:?}")));
                }
                Dims::new(&axes.iter().map(|&axis| of[axis]).collect::<Vec<_>>())
            }
            View::Slice(slices) => sliced(slices, of),
        }
    }
}

fn sliced(slices: &[Slice], of: &Dims) -> Result<Dims> {
    if slices.len() != of.rank() || slices.iter().zip(of.iter()).any(|(slice, &extent)| !slice.fits(extent)) {
        return Err(bad("slices", format!("one for each axis of {of}, inside of it"), format!("{slices:?}")));
    }
    Dims::new(&slices.iter().map(|slice| slice.count).collect::<Vec<_>>())
}

fn taken(axis: usize, batch: usize, table: &Dims, indices: &Dims) -> Result<Dims> {
    if in_rank(axis, table)? < batch || indices.rank() < batch || indices[..batch] != table[..batch] {
        let expected = format!("one with the first {batch} axes of {table}");
        return Err(bad("index shape", expected, indices.to_string()));
    }
    Dims::new(&[&table[..axis], &indices[batch..], &table[axis + 1..]].concat())
}

/// The batch, rows and columns of matrices.
fn matrices(dims: &Dims) -> Result<(Dims, [usize; 2])> {
    match **dims {
        [ref batch @ .., m, n] => Ok((Dims::new(batch)?, [m, n])),
        _ => Err(bad("matrix", "an array of shape (.., m, n)".into(), dims.to_string())),
    }
}

/// The batch and the rows of square matrices.
fn square(dims: &Dims) -> Result<(Dims, usize)> {
    match matrices(dims) {
        Ok((batch, [m, n])) if m == n => Ok((batch, n)),
        _ => Err(bad("matrix", "an array of shape (.., n, n)".into(), dims.to_string())),
    }
}

fn right_sides(of: &Dims, sides: &Dims) -> Result<()> {
    let (batch, n) = square(of)?;
    match matrices(sides) {
        Ok((sides, [rows, _])) if rows == n && sides == batch => Ok(()),
        _ => Err(bad("right sides", format!("of shape (.., n, m) for matrices {of}"), sides.to_string())),
    }
}

impl ArrayOp {
    /// Whether each number of the result depends only on the numbers at its place in the operands.
    pub(super) fn is_elementwise(&self) -> bool {
        matches!(
            self,
            ArrayOp::Row(_)
                | ArrayOp::Pull(..)
                | ArrayOp::Compare(_)
                | ArrayOp::Select
                | ArrayOp::Convert(_)
                | ArrayOp::Accumulate
                | ArrayOp::MulAdd { .. }
        )
    }

    /// The types of the results, given those of the operands.
    pub(super) fn infer(&self, of: &[Type]) -> Result<Vec<Type>> {
        use Element::{Float, Int, Mask};
        let arity = self.arity(of.len());
        if of.len() != arity {
            return Err(bad("operands", arity.to_string(), of.len().to_string()));
        }
        let holds_sparse = of.iter().any(|t| t.element == Element::Sparse);
        if holds_sparse && !matches!(self, ArrayOp::Sparse(_) | ArrayOp::Call(_) | ArrayOp::Rows(_)) {
            let found = "sparse rows, which can only multiply arrays".into();
            return Err(bad("operand", "an array of numbers".into(), found));
        }
        let float = |dims| Ok(vec![Type::float(dims)]);
        match self {
            ArrayOp::Input(ty) => Ok(vec![*ty]),
            ArrayOp::Param { dims, .. } | ArrayOp::Unreached(dims) => float(*dims),
            ArrayOp::Literal(_) => float(Dims::SCALAR),
            ArrayOp::Integer(_) => Ok(vec![Type { dims: Dims::SCALAR, element: Int }]),
            ArrayOp::Const(dims, data) => {
                if data.0.len() != dims.size() {
                    return Err(bad("numbers of a constant", dims.size().to_string(), data.0.len().to_string()));
                }
                let element = match *data.0 {
                    Data::Int(_) => Int,
                    Data::Mask(_) => Mask,
                    _ => Float,
                };
                Ok(vec![Type { dims: *dims, element }])
            }
            ArrayOp::Row(row) => {
                let all_int = of.iter().all(|t| t.element == Int) && row.of_integers();
                let element = if all_int { Int } else { Float };
                elements(of, &[element; 2])?;
                Ok(vec![Type { dims: same_dims(of)?, element }])
            }
            ArrayOp::Pull(row, k) => {
                elements(of, &[Float; 4])?;
                if usize::from(*k) >= row.arity() {
                    return Err(bad("operand of a partial", format!("less than {}", row.arity()), k.to_string()));
                }
                float(same_dims(of)?)
            }
            ArrayOp::Compare(_) => {
                elements(of, &[if arity == 2 && of[0].element == Int { Int } else { Float }; 2])?;
                Ok(vec![Type { dims: same_dims(of)?, element: Mask }])
            }
            ArrayOp::Select => {
                elements(of, &[Mask, of[1].element, of[1].element])?;
                Ok(vec![Type { dims: same_dims(of)?, element: of[1].element }])
            }
            ArrayOp::Convert(Element::Sparse) | ArrayOp::Loop(Loop { checkpoint: Some(0), .. }) => {
                Err(bad("instruction", "one that means something".into(), self.name()))
            }
            ArrayOp::Convert(element) => Ok(vec![Type { dims: of[0].dims, element: *element }]),
            ArrayOp::Reduce(kind, axes) => {
                let element = if of[0].element == Int && kind.of_integers() { Int } else { Float };
                elements(of, &[element])?;
                axes.iter().try_for_each(|axis| in_rank(axis, &of[0].dims).map(drop))?;
                let n: usize = axes.iter().map(|axis| of[0].dims[axis]).product();
                let dims = of[0].dims.reduced(*axes, false);
                if n == 0 && !matches!(kind, Reduce::Sum | Reduce::Prod) && dims.size() > 0 {
                    return Err(crate::Error::EmptyReduction { op: kind.name() });
                }
                Ok(vec![Type { dims, element }])
            }
            ArrayOp::ReducePull(_, axes) => {
                elements(of, &[Float; 3])?;
                axes.iter().try_for_each(|axis| in_rank(axis, &of[1].dims).map(drop))?;
                let reduced = Type::float(of[1].dims.reduced(*axes, false));
                same_dims(&[reduced, of[0], of[2]])?;
                Ok(vec![of[1]])
            }
            ArrayOp::ArgExtreme { axis, .. } => {
                elements(of, &[if of[0].element == Int { Int } else { Float }])?;
                let dims = of[0].dims.reduced(Axes::of(&of[0].dims, Some(&[*axis as isize]))?, false);
                if of[0].dims[*axis] == 0 && dims.size() > 0 {
                    return Err(crate::Error::EmptyReduction { op: "argmax" });
                }
                Ok(vec![Type { dims, element: Int }])
            }
            ArrayOp::ArgSort => {
                elements(of, &[if of[0].element == Int { Int } else { Float }])?;
                in_rank(of[0].dims.rank().saturating_sub(1), &of[0].dims)?;
                Ok(vec![Type { dims: of[0].dims, element: Int }])
            }
            ArrayOp::Search { .. } => {
                elements(of, &[if of[0].element == Int { Int } else { Float }; 2])?;
                let [rows, others] = [of[0].dims.split_last(), of[1].dims.split_last()];
                match rows.zip(others) {
                    Some(((_, rows), (_, others))) if rows == others => {}
                    _ => return Err(bad("rows to search", of[0].dims.to_string(), of[1].dims.to_string())),
                }
                Ok(vec![Type { dims: of[1].dims, element: Int }])
            }
            ArrayOp::Cumulate { axis, .. } => {
                let element = if of[0].element == Int { Int } else { Float };
                elements(of, &[element; 2])?;
                in_rank(*axis, &of[0].dims)?;
                Ok(vec![Type { dims: same_dims(of)?, element }])
            }
            ArrayOp::Dot(dot) => {
                elements(of, &[Float; 2])?;
                float(dot.dims(&of[0].dims, &of[1].dims)?)
            }
            ArrayOp::Sparse(dot) => {
                elements(of, &[Element::Sparse, Float])?;
                float(dot.dims(&of[0].dims, &of[1].dims)?)
            }
            ArrayOp::View(view) => Ok(vec![Type { dims: view.dims(&of[0].dims)?, element: of[0].element }]),
            ArrayOp::Copy => Ok(vec![of[0]]),
            ArrayOp::Concat(axis) => {
                in_rank(*axis, &of[0].dims)?;
                elements(of, &vec![of[0].element; of.len()])?;
                let mut total = 0;
                for t in of {
                    in_rank(*axis, &t.dims)?;
                    same_dims(&[of[0], Type { dims: t.dims.with(*axis, of[0].dims[*axis])?, ..*t }])?;
                    total += t.dims[*axis];
                }
                Ok(vec![Type { dims: of[0].dims.with(*axis, total)?, ..of[0] }])
            }
            ArrayOp::Take { axis, batch } => {
                elements(&of[1..], &[Int])?;
                Ok(vec![Type { dims: taken(*axis, *batch, &of[0].dims, &of[1].dims)?, ..of[0] }])
            }
            ArrayOp::ScatterAdd { axis, batch } => {
                let element = if of[0].element == Int { Int } else { Float };
                elements(of, &[element, Int, element])?;
                same_dims(&[Type { dims: taken(*axis, *batch, &of[0].dims, &of[1].dims)?, element }, of[2]])?;
                Ok(vec![of[0]])
            }
            ArrayOp::ScatterSet { axis, batch } => {
                elements(of, &[of[0].element, Int, of[0].element])?;
                same_dims(&[Type { dims: taken(*axis, *batch, &of[0].dims, &of[1].dims)?, ..of[2] }, of[2]])?;
                Ok(vec![of[0]])
            }
            ArrayOp::MulAdd { .. } => {
                elements(of, &[Float; 3])?;
                float(same_dims(of)?)
            }
            ArrayOp::Accumulate => {
                elements(of, &[Float; 2])?;
                float(same_dims(of)?)
            }
            ArrayOp::AccumulateAt(slices) => {
                elements(of, &[Float; 2])?;
                same_dims(&[Type::float(sliced(slices, &of[0].dims)?), of[1]])?;
                Ok(vec![of[0]])
            }
            ArrayOp::Adjoint => {
                elements(of, &[Float])?;
                Ok(of.to_vec())
            }
            ArrayOp::Lu => {
                elements(of, &[Float])?;
                let (batch, n) = square(&of[0].dims)?;
                let permutation = Type { dims: Dims::new(&[&batch[..], &[n]].concat())?, element: Int };
                Ok(vec![of[0], permutation, Type::float(batch)])
            }
            ArrayOp::Cholesky => {
                elements(of, &[Float])?;
                square(&of[0].dims)?;
                Ok(of.to_vec())
            }
            ArrayOp::Qr => {
                elements(of, &[Float])?;
                let (batch, [m, n]) = matrices(&of[0].dims)?;
                if m < n {
                    return Err(bad(
                        "matrix to factor",
                        "one with as many rows as columns".into(),
                        of[0].dims.to_string(),
                    ));
                }
                Ok(vec![of[0], Type::float(Dims::new(&[&batch[..], &[n, n]].concat())?)])
            }
            ArrayOp::TriSolve(_) => {
                elements(of, &[Float; 2])?;
                right_sides(&of[0].dims, &of[1].dims)?;
                Ok(vec![of[1]])
            }
            ArrayOp::LuSolve(_) => {
                elements(of, &[Float, Float, Int, Float])?;
                let (batch, n) = square(&of[0].dims)?;
                let permutation = Type { dims: Dims::new(&[&batch[..], &[n]].concat())?, element: Int };
                same_dims(&of[..2])?;
                same_dims(&[permutation, of[2]])?;
                right_sides(&of[0].dims, &of[3].dims)?;
                Ok(vec![of[3]])
            }
            ArrayOp::After => Ok(vec![of[0]]),
            ArrayOp::Call(program) | ArrayOp::Apart(Apart { body: program, .. }) => {
                let inputs = program.0.input_types();
                for (found, expected) in of.iter().zip(&inputs) {
                    if found != expected {
                        return Err(bad("argument", format!("{expected:?}"), format!("{found:?}")));
                    }
                }
                Ok(program.0.output_types())
            }
            ArrayOp::Loop(of_loop) => of_loop.infer(of),
            ArrayOp::Rows(rows) => rows.infer(of),
            ArrayOp::Cond { yes, no } => infer_cond(&yes.0, &no.0, of),
        }
    }

    /// The number of its operands; `found` if any number from one on is valid.
    fn arity(&self, found: usize) -> usize {
        match self {
            ArrayOp::Input(_) | ArrayOp::Param { .. } | ArrayOp::Literal(_) | ArrayOp::Integer(_) => 0,
            ArrayOp::Const(..) | ArrayOp::Unreached(_) => 0,
            ArrayOp::Row(row) => row.arity(),
            ArrayOp::Pull(row, _) => 2 + row.arity(),
            ArrayOp::Compare(Comparison::IsNan | Comparison::IsUnreached) => 1,
            ArrayOp::Compare(_) | ArrayOp::Dot(_) | ArrayOp::Sparse(_) | ArrayOp::Take { .. } => 2,
            ArrayOp::Accumulate | ArrayOp::AccumulateAt(_) | ArrayOp::TriSolve(_) | ArrayOp::Search { .. } => 2,
            ArrayOp::LuSolve(_) => 4,
            ArrayOp::Select | ArrayOp::ReducePull(..) | ArrayOp::MulAdd { .. } => 3,
            ArrayOp::ScatterAdd { .. } | ArrayOp::ScatterSet { .. } => 3,
            ArrayOp::Cumulate { kind: Cumulate::Recurrence, .. } => 2,
            ArrayOp::Concat(_) | ArrayOp::After => found.max(1),
            ArrayOp::Call(program) | ArrayOp::Apart(Apart { body: program, .. }) => program.0.inputs().len(),
            ArrayOp::Loop(of_loop) => of_loop.first() + of_loop.body.0.inputs().len(),
            ArrayOp::Cond { yes, .. } => 1 + yes.0.inputs().len(),
            ArrayOp::Rows(rows) => rows.body.0.inputs().len(),
            _ => 1,
        }
    }
}

impl Dot {
    /// The extents of the batch, and m, k and n.
    pub(super) fn extents(&self, x: &Dims, y: &Dims) -> Result<(Dims, [usize; 3])> {
        let wrong = || bad("operand shapes of a product", "(.., m, k) and (.., k, n)".into(), format!("{x} and {y}"));
        if x.rank() < 2 || x.rank() != y.rank() {
            return Err(wrong());
        }
        let batch = x.rank() - 2;
        let last = |dims: &Dims, flipped: bool| {
            let (rows, columns) = (dims[batch], dims[batch + 1]);
            if flipped { (columns, rows) } else { (rows, columns) }
        };
        let ((m, k), (k_too, n)) = (last(x, self.transposed[0]), last(y, self.transposed[1]));
        if k != k_too || x[..batch] != y[..batch] {
            return Err(wrong());
        }
        Ok((Dims::new(&x[..batch])?, [m, k, n]))
    }

    fn dims(&self, x: &Dims, y: &Dims) -> Result<Dims> {
        let (batch, [m, _, n]) = self.extents(x, y)?;
        Dims::new(&[&batch, &[m, n][..]].concat())
    }
}

impl ArrayProgram {
    /// Whether an element of a result may be unreached, given the operands.
    pub(super) fn propagates(&self, op: &ArrayOp, operands: &[ValueId], k: usize) -> bool {
        let any = |of: &[ValueId]| of.iter().any(|&v| self.may_be_unreached(v));
        match op {
            ArrayOp::Unreached(_) | ArrayOp::Adjoint | ArrayOp::ReducePull(Reduce::Max | Reduce::Min, _) => true,
            ArrayOp::TriSolve(solve) | ArrayOp::LuSolve(solve) => solve.adjoint,
            ArrayOp::Select | ArrayOp::Concat(_) | ArrayOp::ScatterSet { .. } => any(operands),
            ArrayOp::Dot(dot) => dot.adjoint != [false; 2],
            ArrayOp::Sparse(dot) => dot.adjoint,
            ArrayOp::MulAdd { of_adjoint } => {
                *of_adjoint && self.may_be_unreached(operands[0]) && self.may_be_unreached(operands[2])
            }
            ArrayOp::Accumulate => operands.iter().all(|&v| self.may_be_unreached(v)),
            ArrayOp::View(_) | ArrayOp::Copy | ArrayOp::Take { .. } | ArrayOp::Pull(..) => any(&operands[..1]),
            ArrayOp::ReducePull(..) | ArrayOp::Reduce(Reduce::Sum, _) => any(&operands[..1]),
            ArrayOp::Cumulate { kind: Cumulate::Sum, .. } => any(&operands[..1]),
            ArrayOp::AccumulateAt(_) | ArrayOp::ScatterAdd { .. } => any(&operands[..1]),
            ArrayOp::After => any(&operands[..1]),
            ArrayOp::Call(program) | ArrayOp::Apart(Apart { body: program, .. }) => {
                program.0.may_be_unreached(program.0.outputs[k])
            }
            ArrayOp::Rows(rows) => rows.body.0.may_be_unreached(rows.body.0.outputs[k]),
            ArrayOp::Loop(of_loop) => {
                let body = &of_loop.body.0;
                let carry = operands.get(of_loop.first() + of_loop.captures + k).filter(|_| k < of_loop.carries);
                let passes = carry.is_some_and(|&v| self.may_be_unreached(v));
                passes || body.outputs.get(k).is_some_and(|&v| body.may_be_unreached(v))
            }
            ArrayOp::Cond { yes, no } => [yes, no].iter().any(|p| p.0.may_be_unreached(p.0.outputs[k])),
            _ => false,
        }
    }
}
