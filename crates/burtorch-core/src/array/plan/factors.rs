//! Factorisations and linear systems, matrix by matrix.
//!
//! Promises: the kernels' bits; columns of right sides that are unreached adjoints stay unreached. Does not know
//! derivatives.

use super::super::instr::{ArrayOp, Element, Solve, Type};
use super::math::ArrayFloat;
use super::memory::{Bank, room};
use super::place::Source;
use super::single::Operand;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::kernels::{Triangle, cholesky, factor_workspace_len, lu, qr, solve_triangular};
use crate::simd::Real;

/// What is computed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Lu,
    Cholesky,
    Qr,
    TriSolve(Solve),
    LuSolve(Solve),
}

impl Kind {
    /// The kind of an instruction, if it is one of these.
    pub(super) fn new(op: &ArrayOp) -> Option<Self> {
        match *op {
            ArrayOp::Lu => Some(Kind::Lu),
            ArrayOp::Cholesky => Some(Kind::Cholesky),
            ArrayOp::Qr => Some(Kind::Qr),
            ArrayOp::TriSolve(solve) => Some(Kind::TriSolve(solve)),
            ArrayOp::LuSolve(solve) => Some(Kind::LuSolve(solve)),
            _ => None,
        }
    }
}

/// A step of one of these, ready to run.
#[derive(Debug)]
pub(super) struct Factors<E> {
    kind: Kind,
    /// Operands, whose numbers lie side by side.
    of: Vec<Operand>,
    /// Buffers of the results.
    to: Vec<usize>,
    batch: usize,
    /// Rows and columns of the first operand, and of the last.
    extents: [usize; 2],
    sides: [usize; 2],
    workspace: Vec<E>,
    /// Whether columns of a right side have a reached element.
    reached: Vec<bool>,
}

impl<E: ArrayFloat> Factors<E> {
    pub(super) fn new(kind: Kind, of: Vec<Operand>, to: Vec<(usize, Type)>) -> Result<Self> {
        let last = |x: &Operand| {
            let dims = x.place.dims;
            [dims[dims.rank() - 2], dims[dims.rank() - 1]]
        };
        let dims = of[0].place.dims;
        let (extents, sides) = (last(&of[0]), last(&of[of.len() - 1]));
        let batch = dims[..dims.rank() - 2].iter().product();
        let copy = if matches!(kind, Kind::Qr | Kind::LuSolve(_)) { sides[0] * sides[1] } else { 0 };
        let len = factor_workspace_len::<E>(extents[0].max(sides[0]), extents[1].max(sides[1])) + copy;
        debug_assert!(to.iter().all(|(_, ty)| ty.element != Element::Mask));
        let to = to.into_iter().map(|(buffer, _)| buffer).collect();
        Ok(Factors { kind, of, to, batch, extents, sides, workspace: room(len)?, reached: room(sides[1])? })
    }

    /// Runs it, and says whether a matrix was singular.
    pub(super) fn run<'a>(
        &mut self,
        floats: &mut Bank<E>,
        ints: &mut Bank<i64>,
        given: &impl Fn(Source) -> &'a [E],
        given_ints: &impl Fn(Source) -> &'a [i64],
    ) -> Result<Option<&'static str>> {
        let mut first = std::mem::take(&mut floats.buffers[self.to[0]]);
        let mut second = match self.kind {
            Kind::Lu => std::mem::take(&mut floats.buffers[self.to[2]]),
            Kind::Qr => std::mem::take(&mut floats.buffers[self.to[1]]),
            _ => Vec::new(),
        };
        let mut permutation = match self.kind {
            Kind::Lu => std::mem::take(&mut ints.buffers[self.to[1]]),
            _ => Vec::new(),
        };
        let mut singular = None;
        let mut done = Ok(());
        for at in 0..self.batch {
            if at > 0 && interrupt::is_over() {
                done = Err(Error::Interrupted);
                break;
            }
            let read = |k: usize| -> &[E] {
                let Operand { place, .. } = &self.of[k];
                let n: usize = place.dims[place.dims.rank() - 2..].iter().product();
                &floats.read(place.source, given)[place.offset + at * n..][..n]
            };
            let [m, n] = self.extents;
            let [_, sides] = self.sides;
            let room = &mut self.workspace;
            match self.kind {
                Kind::Lu => {
                    let a = &mut first[at * n * n..][..n * n];
                    a.copy_from_slice(read(0));
                    second[at] = lu(n, a, &mut permutation[at * n..][..n], room);
                }
                Kind::Cholesky => {
                    let a = &mut first[at * n * n..][..n * n];
                    a.copy_from_slice(read(0));
                    if !cholesky(n, a, room) {
                        singular = Some("cholesky");
                    }
                }
                Kind::Qr => {
                    let (a, room) = room.split_at_mut(m * n);
                    a.copy_from_slice(read(0));
                    qr(m, n, a, &mut first[at * m * n..][..m * n], &mut second[at * n * n..][..n * n], room);
                }
                Kind::TriSolve(solve) => {
                    let x = &mut first[at * n * sides..][..n * sides];
                    x.copy_from_slice(read(1));
                    let a = read(0);
                    solved_columns(solve, x, &mut self.reached, |x| {
                        solve_triangular(solve.triangle, n, sides, a, x, room);
                    });
                }
                Kind::LuSolve(solve) => {
                    let x = &mut first[at * n * sides..][..n * sides];
                    x.copy_from_slice(read(3));
                    let place = &self.of[2].place;
                    let rows = &ints.read(place.source, given_ints)[place.offset + at * n..][..n];
                    let packed = read(1);
                    if (0..n).any(|i| packed[i * n + i] == E::default()) {
                        singular = Some("solve");
                    }
                    solved_columns(solve, x, &mut self.reached, |x| {
                        lu_solve(solve.triangle.transposed, [n, sides], packed, rows, x, room);
                    });
                }
            }
        }
        floats.buffers[self.to[0]] = first;
        match self.kind {
            Kind::Lu => {
                floats.buffers[self.to[2]] = second;
                ints.buffers[self.to[1]] = permutation;
            }
            Kind::Qr => floats.buffers[self.to[1]] = second,
            _ => {}
        }
        done.map(|()| singular)
    }
}

/// Solves a system for all columns of its right side. Of an adjoint's, columns that nothing reaches stay as they are.
fn solved_columns<E: ArrayFloat>(solve: Solve, x: &mut [E], reached: &mut [bool], run: impl FnOnce(&mut [E])) {
    if !solve.adjoint {
        return run(x);
    }
    let zero = <E as Real>::of(0.0);
    reached.fill(false);
    for row in x.chunks_exact_mut(reached.len().max(1)) {
        for (x, is_reached) in row.iter_mut().zip(&mut *reached) {
            *is_reached |= !x.is_unreached();
            // Other elements of such a column are 0.
            *x = *x + zero;
        }
    }
    if reached.iter().any(|&is_reached| is_reached) {
        run(x);
    }
    for row in x.chunks_exact_mut(reached.len().max(1)) {
        for (x, is_reached) in row.iter_mut().zip(&*reached) {
            *x = if *is_reached { *x + zero } else { E::UNREACHED };
        }
    }
}

/// The solution of `P^-1 L U X = x`, or of the transposed system, in place.
fn lu_solve<E: ArrayFloat>(
    transposed: bool,
    [n, m]: [usize; 2],
    packed: &[E],
    rows: &[i64],
    x: &mut [E],
    workspace: &mut [E],
) {
    let lower = Triangle { upper: false, transposed, unit: true };
    let upper = Triangle { upper: true, transposed, unit: false };
    let (copy, room) = workspace.split_at_mut(n * m);
    if !transposed {
        copy.copy_from_slice(x);
        for (i, &row) in rows.iter().enumerate() {
            x[i * m..(i + 1) * m].copy_from_slice(&copy[row as usize * m..][..m]);
        }
        solve_triangular(lower, n, m, packed, x, room);
        return solve_triangular(upper, n, m, packed, x, room);
    }
    solve_triangular(upper, n, m, packed, x, room);
    solve_triangular(lower, n, m, packed, x, room);
    copy.copy_from_slice(x);
    for (i, &row) in rows.iter().enumerate() {
        x[row as usize * m..][..m].copy_from_slice(&copy[i * m..(i + 1) * m]);
    }
}
