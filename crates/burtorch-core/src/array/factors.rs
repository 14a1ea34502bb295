//! Derivatives of factorisations and of linear systems, as programs.
//!
//! Formulas: LU and triangular systems as in Giles 2008, "Collected matrix derivative results for forward and reverse mode
//! algorithmic differentiation"; Cholesky as in Murray 2016, "Differentiation of the Cholesky decomposition"; QR as in Walter
//! and Lehmann 2018, "Algorithmic differentiation of linear algebra functions". Promises: a matrix whose result is unreached
//! receives an unreached adjoint. Does not know the order of a derivative's instructions.

use std::sync::Arc;

use super::build::ArrayBuilder;
use super::dims::Dims;
use super::instr::{ArrayInstr, ArrayOp, Data, Shared, Solve, ValueId, View};
use crate::error::Result;
use crate::kernels::Triangle;
use crate::scalar::DType;

/// Part of a square matrix.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    StrictLower,
    Lower,
    Upper,
}

impl Part {
    fn has(self, i: usize, j: usize) -> bool {
        match self {
            Part::StrictLower => i > j,
            Part::Lower => i >= j,
            Part::Upper => i <= j,
        }
    }
}

const UPPER: Triangle = Triangle { upper: true, transposed: false, unit: false };
const LOWER: Triangle = Triangle { upper: false, transposed: false, unit: false };
const UNIT_LOWER: Triangle = Triangle { upper: false, transposed: false, unit: true };

fn transpose(triangle: Triangle) -> Triangle {
    Triangle { transposed: !triangle.transposed, ..triangle }
}

impl ArrayBuilder {
    /// A matrix of constants over the last two axes, repeated over the others.
    fn matrix_of(&mut self, dims: Dims, of: impl Fn(usize, usize) -> f64) -> Result<ValueId> {
        let [.., m, n] = *dims else { return self.literal(of(0, 0)) };
        let numbers = (0..m * n).map(|at| of(at / n, at % n));
        let data = match self.so_far().dtype() {
            DType::Float32 => Data::F32(numbers.map(|x| x as f32).collect()),
            _ => Data::F64(numbers.collect()),
        };
        let matrix = self.push(ArrayOp::Const(Dims::new(&[m, n])?, Shared(Arc::new(data))), &[])?;
        self.broadcast_to(matrix, dims)
    }

    /// `yes` in a part of matrices, otherwise `no`.
    fn in_part(&mut self, part: Part, yes: ValueId, no: ValueId) -> Result<ValueId> {
        let dims = self.dims(yes);
        let [.., m, n] = *dims else { return Ok(yes) };
        let mask = Data::Mask((0..m * n).map(|at| part.has(at / n, at % n)).collect());
        let mask = self.push(ArrayOp::Const(Dims::new(&[m, n])?, Shared(Arc::new(mask))), &[])?;
        let mask = self.broadcast_to(mask, dims)?;
        self.push(ArrayOp::Select, &[mask, yes, no])
    }

    /// Part of an adjoint; the rest is unreached.
    fn part_of(&mut self, part: Part, g: ValueId) -> Result<ValueId> {
        let unreached = self.push(ArrayOp::Unreached(self.dims(g)), &[])?;
        self.in_part(part, g, unreached)
    }

    /// Part of a matrix, with other numbers elsewhere.
    fn filled_part(&mut self, part: Part, x: ValueId, elsewhere: impl Fn(usize, usize) -> f64) -> Result<ValueId> {
        let others = self.matrix_of(self.dims(x), elsewhere)?;
        self.in_part(part, x, others)
    }

    /// Transposed matrices.
    pub(super) fn turned(&mut self, x: ValueId) -> Result<ValueId> {
        let rank = self.dims(x).rank();
        let axes = (0..rank - 2).chain([rank - 1, rank - 2]).collect();
        self.view(x, View::Permute(axes))
    }

    /// Identity matrices.
    pub(super) fn eye(&mut self, dims: Dims) -> Result<ValueId> {
        self.matrix_of(dims, |i, j| f64::from(u8::from(i == j)))
    }

    /// The factors in `packed`: `L` with its diagonal, and `U`.
    fn unpacked(&mut self, packed: ValueId) -> Result<[ValueId; 2]> {
        let eye = self.eye(self.dims(packed))?;
        let l = self.in_part(Part::StrictLower, packed, eye)?;
        let u = self.filled_part(Part::Upper, packed, |_, _| 0.0)?;
        Ok([l, u])
    }

    /// `T^-1 x`, for a triangle of `a`, with x an adjoint or a tangent.
    fn tri_solved(&mut self, triangle: Triangle, a: ValueId, x: ValueId) -> Result<ValueId> {
        let adjoint = self.so_far().may_be_unreached(x);
        let x = self.push(ArrayOp::TriSolve(Solve { triangle, adjoint }), &[a, x])?;
        if adjoint { Ok(x) } else { self.reached(x) }
    }

    /// `x T^-1`.
    fn tri_solved_right(&mut self, triangle: Triangle, a: ValueId, x: ValueId) -> Result<ValueId> {
        let x = self.turned(x)?;
        let x = self.tri_solved(transpose(triangle), a, x)?;
        self.turned(x)
    }

    /// The contribution of the adjoints of an instruction with several results to its operand.
    pub(super) fn factors_back(&mut self, instr: &ArrayInstr, gs: &[Option<ValueId>]) -> Result<Option<ValueId>> {
        let result = |k| ValueId(instr.result.0 + k);
        match (&instr.op, gs) {
            (ArrayOp::Lu, [Some(g), ..]) => self.lu_back([result(0), result(1)], *g).map(Some),
            (ArrayOp::Qr, [gq, gr]) => self.qr_back([result(0), result(1)], [*gq, *gr]),
            _ => Ok(None),
        }
    }

    /// `Pᵀ L^-T (tril(Lᵀ dL, -1) + triu(dU Uᵀ)) U^-T`.
    fn lu_back(&mut self, [packed, permutation]: [ValueId; 2], g: ValueId) -> Result<ValueId> {
        let [l, u] = self.unpacked(packed)?;
        let (gl, gu) = (self.part_of(Part::StrictLower, g)?, self.part_of(Part::Upper, g)?);
        let below = self.adjoint_dot([true, false], l, gl)?;
        let above = self.adjoint_dot([false, true], gu, u)?;
        let both = self.in_part(Part::StrictLower, below, above)?;
        let x = self.tri_solved(transpose(UNIT_LOWER), packed, both)?;
        let x = self.tri_solved_right(transpose(UPPER), packed, x)?;
        let (dims, batch) = (self.dims(x), self.dims(x).rank() - 2);
        let unreached = self.push(ArrayOp::Unreached(dims), &[])?;
        self.push(ArrayOp::ScatterAdd { axis: batch, batch }, &[unreached, permutation, x])
    }

    /// With `F = L^-1 P dA U^-1`: `L tril(F, -1)` and `triu(F) U`, packed.
    pub(super) fn lu_moved(&mut self, packed: ValueId, t: ValueId) -> Result<ValueId> {
        let permutation = ValueId(packed.0 + 1);
        let batch = self.dims(t).rank() - 2;
        let t = self.push(ArrayOp::Take { axis: batch, batch }, &[t, permutation])?;
        let f = self.tri_solved(UNIT_LOWER, packed, t)?;
        let f = self.tri_solved_right(UPPER, packed, f)?;
        let (below, above) = (self.part_of(Part::StrictLower, f)?, self.part_of(Part::Upper, f)?);
        let [l, u] = self.unpacked(packed)?;
        let dl = self.adjoint_dot([false, false], l, below)?;
        let du = self.adjoint_dot([false, false], above, u)?;
        self.in_part(Part::StrictLower, dl, du)
    }

    /// An adjoint's lower triangle, its diagonal halved.
    fn half_lower(&mut self, g: ValueId) -> Result<ValueId> {
        let halves = self.matrix_of(self.dims(g), |i, j| if i == j { 0.5 } else { 1.0 })?;
        let g = self.adjoint_product(g, halves)?;
        self.part_of(Part::Lower, g)
    }

    /// With `S = L^-T Φ(Lᵀ dL) L^-1`: the lower triangle of `S + Sᵀ`, its diagonal halved, since the operand's is all that is read.
    pub(super) fn cholesky_back(&mut self, l: ValueId, g: ValueId) -> Result<ValueId> {
        let g = self.part_of(Part::Lower, g)?;
        let s = self.adjoint_dot([true, false], l, g)?;
        let s = self.half_lower(s)?;
        let s = self.tri_solved(transpose(LOWER), l, s)?;
        let s = self.tri_solved_right(LOWER, l, s)?;
        let turned = self.turned(s)?;
        let s = self.push(ArrayOp::Accumulate, &[s, turned])?;
        self.half_lower(s)
    }

    /// `L Φ(L^-1 dA L^-T)`.
    pub(super) fn cholesky_moved(&mut self, l: ValueId, t: ValueId) -> Result<ValueId> {
        let (lower, below) = (self.part_of(Part::Lower, t)?, self.part_of(Part::StrictLower, t)?);
        let above = self.turned(below)?;
        let t = self.push(ArrayOp::Accumulate, &[lower, above])?;
        let t = self.tri_solved(LOWER, l, t)?;
        let t = self.tri_solved_right(transpose(LOWER), l, t)?;
        let t = self.half_lower(t)?;
        let t = self.adjoint_dot([false, false], l, t)?;
        self.part_of(Part::Lower, t)
    }

    /// With `M = R dRᵀ - dQᵀ Q`: `(dQ + Q (tril(M) + tril(M, -1)ᵀ)) R^-T`.
    fn qr_back(&mut self, [q, r]: [ValueId; 2], [gq, gr]: [Option<ValueId>; 2]) -> Result<Option<ValueId>> {
        let by_r = match gr {
            Some(gr) => {
                let gr = self.part_of(Part::Upper, gr)?;
                Some(self.adjoint_dot([false, true], r, gr)?)
            }
            None => None,
        };
        let by_q = match gq {
            Some(gq) => {
                let m = self.adjoint_dot([true, false], gq, q)?;
                Some(self.adjoint_negative(m)?)
            }
            None => None,
        };
        let Some(m) = self.sum_of(by_r, by_q)? else { return Ok(None) };
        let (lower, below) = (self.part_of(Part::Lower, m)?, self.part_of(Part::StrictLower, m)?);
        let above = self.turned(below)?;
        let m = self.push(ArrayOp::Accumulate, &[lower, above])?;
        let m = self.adjoint_dot([false, false], q, m)?;
        let m = match gq {
            Some(gq) => self.push(ArrayOp::Accumulate, &[gq, m])?,
            None => m,
        };
        self.tri_solved_right(transpose(UPPER), r, m).map(Some)
    }

    /// With `C = dA R^-1`, `E = Qᵀ C` and `W = triu(E) + tril(E, -1)ᵀ`: `C - Q W` and `W R`.
    pub(super) fn qr_moved(&mut self, q: ValueId, t: ValueId) -> Result<[ValueId; 2]> {
        let r = ValueId(q.0 + 1);
        let c = self.tri_solved_right(UPPER, r, t)?;
        let e = self.adjoint_dot([true, false], q, c)?;
        let (upper, below) = (self.part_of(Part::Upper, e)?, self.part_of(Part::StrictLower, e)?);
        let above = self.turned(below)?;
        let w = self.push(ArrayOp::Accumulate, &[upper, above])?;
        let back = self.adjoint_dot([false, false], q, w)?;
        let back = self.adjoint_negative(back)?;
        let dq = self.push(ArrayOp::Accumulate, &[c, back])?;
        let dr = self.adjoint_dot([false, false], w, r)?;
        Ok([dq, self.part_of(Part::Upper, dr)?])
    }

    /// The solution of the system of an instruction, or of the transposed one, for another right side.
    fn solved(&mut self, instr: &ArrayInstr, transposed: bool, x: ValueId) -> Result<ValueId> {
        let adjoint = self.so_far().may_be_unreached(x);
        let mut operands = instr.operands.to_vec();
        let last = operands.len() - 1;
        operands[last] = x;
        let of = |solve: Solve| Solve {
            triangle: if transposed { transpose(solve.triangle) } else { solve.triangle },
            adjoint,
        };
        let op = match instr.op {
            ArrayOp::TriSolve(solve) => ArrayOp::TriSolve(of(solve)),
            ArrayOp::LuSolve(solve) => ArrayOp::LuSolve(of(solve)),
            ref op => op.clone(),
        };
        let x = self.push(op, &operands)?;
        if adjoint { Ok(x) } else { self.reached(x) }
    }

    /// The part of an adjoint or a tangent of the matrix that a system reads.
    fn read_by(&mut self, instr: &ArrayInstr, x: ValueId) -> Result<ValueId> {
        let ArrayOp::TriSolve(Solve { triangle, .. }) = instr.op else { return Ok(x) };
        match (triangle.upper, triangle.unit) {
            (false, false) => self.part_of(Part::Lower, x),
            (false, true) => self.part_of(Part::StrictLower, x),
            (true, false) => self.part_of(Part::Upper, x),
            (true, true) => {
                let below = self.turned(x)?;
                let below = self.part_of(Part::StrictLower, below)?;
                self.turned(below)
            }
        }
    }

    /// To the right sides `A^-T g`, and to the matrix minus that times the solution.
    pub(super) fn solve_back(&mut self, instr: &ArrayInstr, k: usize, g: ValueId) -> Result<ValueId> {
        let (ArrayOp::TriSolve(solve) | ArrayOp::LuSolve(solve)) = instr.op else { return Ok(g) };
        let side = self.solved(instr, true, g)?;
        if k > 0 {
            return Ok(side);
        }
        let x = instr.result;
        let c = if solve.triangle.transposed {
            self.adjoint_dot([false, true], x, side)?
        } else {
            self.adjoint_dot([false, true], side, x)?
        };
        let c = self.adjoint_negative(c)?;
        self.read_by(instr, c)
    }

    /// `A^-1 (dB - dA X)`.
    pub(super) fn solve_moved(
        &mut self,
        instr: &ArrayInstr,
        by_matrix: Option<ValueId>,
        by_side: Option<ValueId>,
    ) -> Result<Option<ValueId>> {
        let (ArrayOp::TriSolve(solve) | ArrayOp::LuSolve(solve)) = instr.op else { return Ok(None) };
        let by_matrix = match by_matrix {
            Some(t) => {
                let t = self.read_by(instr, t)?;
                let t = self.adjoint_dot([solve.triangle.transposed, false], t, instr.result)?;
                Some(self.adjoint_negative(t)?)
            }
            None => None,
        };
        let Some(total) = self.sum_of(by_side, by_matrix)? else { return Ok(None) };
        self.solved(instr, false, total).map(Some)
    }
}
