//! The sets of the results of an instruction, given those of its operands.
//!
//! Promises: no entry is missing. Knows numbers only where they are integers, masks or constants. Does not know programs within
//! instructions.

use std::rc::Rc;

use super::super::activity::moves;
use super::super::dims::Dims;
use super::super::instr::{ArrayInstr, ArrayOp, ArrayProgram, Cumulate, Data, Dot, Element, Reduce, SparseKind, Type};
use super::super::plan::{compare_integers, integer_row};
use super::places::{groups, of_slices, of_view};
use super::sets::Sets;
use crate::error::Result;

/// What is known of a value.
#[derive(Clone, Default)]
pub(super) struct Known {
    /// The set of each number; `None` if all are empty.
    pub(super) sets: Option<Rc<[u32]>>,
    /// Integers, or 0 and 1 for false and true; for constant floats whether they differ from 0.
    pub(super) numbers: Option<Rc<[i64]>>,
}

impl Known {
    pub(super) fn of_sets(sets: Vec<u32>) -> Self {
        let sets = sets.iter().any(|&set| set != 0).then(|| sets.into());
        Known { sets, numbers: None }
    }

    fn of_numbers(numbers: impl Iterator<Item = i64>) -> Self {
        Known { sets: None, numbers: Some(numbers.collect()) }
    }

    /// The numbers at these places.
    pub(super) fn at(&self, places: &[usize]) -> Self {
        let sets = self.sets.as_ref().map(|sets| places.iter().map(|&k| sets[k]).collect());
        let numbers = self.numbers.as_ref().map(|numbers| places.iter().map(|&k| numbers[k]).collect());
        Known { sets, numbers }
    }

    pub(super) fn set(&self, k: usize) -> u32 {
        self.sets.as_ref().map_or(0, |sets| sets[k])
    }
}

/// An instruction's operands, and what is known of them.
pub(super) struct Operands<'a> {
    pub(super) program: &'a ArrayProgram,
    pub(super) instr: &'a ArrayInstr,
    pub(super) known: Vec<Known>,
}

impl Operands<'_> {
    fn ty(&self, k: usize) -> Type {
        self.program.type_of(self.instr.operands[k])
    }

    fn dims(&self, k: usize) -> Dims {
        self.ty(k).dims
    }

    fn numbers(&self, k: usize) -> Option<&[i64]> {
        self.known[k].numbers.as_deref().filter(|_| self.ty(k).element != Element::Float)
    }

    /// The sets of an operand with which the result moves.
    fn sets(&self, k: usize) -> Option<&[u32]> {
        self.known[k].sets.as_deref().filter(|_| moves(&self.instr.op, k))
    }

    /// All its sets.
    fn all(&self, k: usize) -> Vec<u32> {
        self.sets(k).map_or_else(Vec::new, <[u32]>::to_vec)
    }
}

/// The first result of an instruction without programs within; further ones have the same sets, or none.
pub(super) fn result(sets: &mut Sets, of: &Operands<'_>) -> Result<Known> {
    let ty = of.program.type_of(of.instr.result);
    let n = ty.dims.size();
    sets.work(8 + n)?;
    match &of.instr.op {
        ArrayOp::Integer(number) => Ok(Known::of_numbers([*number].into_iter())),
        ArrayOp::Const(_, data) => Ok(match &*data.0 {
            Data::Int(all) => Known::of_numbers(all.iter().copied()),
            Data::Mask(all) => Known::of_numbers(all.iter().map(|&x| x.into())),
            Data::F64(all) => Known::of_numbers(all.iter().map(|&x| (x != 0.0).into())),
            Data::F32(all) => Known::of_numbers(all.iter().map(|&x| (x != 0.0).into())),
        }),
        ArrayOp::View(view) => Ok(match of_view(view, &ty.dims, &of.dims(0)) {
            Some(places) => of.known[0].at(&places),
            None => of.known[0].clone(),
        }),
        ArrayOp::Copy | ArrayOp::Adjoint | ArrayOp::After => Ok(of.known[0].clone()),
        ArrayOp::Concat(axis) => Ok(concatenated(of, *axis)),
        ArrayOp::Take { axis, batch } => taken(sets, of, *axis, *batch),
        ArrayOp::ScatterAdd { axis, batch } => scattered(sets, of, (*axis, *batch), false),
        ArrayOp::ScatterSet { axis, batch } => scattered(sets, of, (*axis, *batch), true),
        ArrayOp::AccumulateAt(slices) => {
            let mut to = of.sets(0).map_or_else(|| vec![0; n], <[u32]>::to_vec);
            for (k, place) in of_slices(slices, &ty.dims).into_iter().enumerate() {
                to[place] = sets.union(to[place], of.known[1].set(k))?;
            }
            Ok(Known::of_sets(to))
        }
        op if op.is_elementwise() => elementwise(sets, of, n),
        &ArrayOp::Reduce(_, axes) => {
            let (group, n) = groups(&of.dims(0), axes);
            Ok(Known::of_sets(grouped(sets, of, 0, &group, n)?))
        }
        &ArrayOp::ReducePull(kind, axes) => {
            let (group, n) = groups(&of.dims(1), axes);
            let bends = !matches!(kind, Reduce::Sum | Reduce::Max | Reduce::Min);
            let mut by_group = if bends { grouped(sets, of, 1, &group, n)? } else { vec![0; n] };
            for (k, set) in by_group.iter_mut().enumerate() {
                *set = sets.union(*set, of.known[0].set(k))?;
            }
            Ok(Known::of_sets(group.iter().map(|&k| by_group[k]).collect()))
        }
        &ArrayOp::Cumulate { kind, axis, reverse } => cumulated(sets, of, kind, axis, reverse),
        ArrayOp::Dot(dot) => product(sets, of, dot),
        ArrayOp::Sparse(dot) => {
            let (all, width) = (of.all(1), ty.dims.last().copied().unwrap_or(1).max(1));
            // Every row may read every row; columns stay apart.
            let by_column = !matches!(dot.kind, SparseKind::Each);
            let mut columns = vec![0; width];
            for (c, column) in columns.iter_mut().enumerate() {
                let here = all.iter().enumerate().filter(|(k, _)| !by_column || k % width == c);
                *column = sets.union_of(here.map(|(_, &set)| set).collect())?;
            }
            Ok(Known::of_sets((0..n).map(|k| columns[k % width]).collect()))
        }
        ArrayOp::Lu | ArrayOp::Cholesky | ArrayOp::Qr => {
            let size = matrix(&of.dims(0));
            let mut by_matrix = of.all(0);
            for all in by_matrix.chunks_mut(size.max(1)) {
                let set = sets.union_of(all.to_vec())?;
                all.fill(set);
            }
            Ok(Known::of_sets(by_matrix))
        }
        ArrayOp::TriSolve(_) | ArrayOp::LuSolve(_) => solved(sets, of),
        _ => Ok(Known::default()),
    }
}

/// The size of the last two axes.
fn matrix(dims: &Dims) -> usize {
    dims.iter().rev().take(2).product()
}

fn elementwise(sets: &mut Sets, of: &Operands<'_>, n: usize) -> Result<Known> {
    let ty = of.program.type_of(of.instr.result);
    if ty.element != Element::Float {
        return Ok(Known { sets: None, numbers: computed(of, n) });
    }
    let moving: Vec<_> = (0..of.known.len()).filter(|&k| of.sets(k).is_some()).collect();
    let mask = of.numbers(0).filter(|_| of.instr.op == ArrayOp::Select);
    let mut to = vec![0; n];
    for k in moving {
        for (at, set) in to.iter_mut().enumerate() {
            if mask.is_none_or(|mask| (mask[at] == 0) == (k == 2)) {
                *set = sets.union(*set, of.known[k].set(at))?;
            }
        }
    }
    Ok(Known::of_sets(to))
}

/// Integers or a mask, if they follow from known ones.
fn computed(of: &Operands<'_>, n: usize) -> Option<Rc<[i64]>> {
    let x = of.numbers(0)?;
    let y = if of.known.len() > 1 { of.numbers(1)? } else { x };
    let each = |f: &dyn Fn(i64, i64) -> i64| Some((0..n).map(|k| f(x[k], y[k])).collect());
    match &of.instr.op {
        ArrayOp::Row(row) if row.of_integers() => {
            let mut to = vec![0; n];
            integer_row(*row, &[x.to_vec(), y.to_vec()], &mut to);
            Some(to.into())
        }
        ArrayOp::Compare(comparison) => each(&|x, y| compare_integers(*comparison, x, y).into()),
        ArrayOp::Convert(Element::Int) => each(&|x, _| x),
        ArrayOp::Convert(Element::Mask) => each(&|x, _| (x != 0).into()),
        ArrayOp::Select => {
            let z = of.numbers(2)?;
            Some((0..n).map(|k| if x[k] != 0 { y[k] } else { z[k] }).collect())
        }
        _ => None,
    }
}

/// The union of the sets of an operand in each of `n` groups.
fn grouped(sets: &mut Sets, of: &Operands<'_>, k: usize, group: &[usize], n: usize) -> Result<Vec<u32>> {
    let mut members = vec![Vec::new(); n];
    if let Some(all) = of.sets(k) {
        all.iter().zip(group).filter(|(set, _)| **set != 0).for_each(|(&set, &to)| members[to].push(set));
    }
    members.into_iter().map(|all| sets.union_of(all)).collect()
}

fn concatenated(of: &Operands<'_>, axis: usize) -> Known {
    let inner = |k: usize| of.dims(k)[axis..].iter().product::<usize>();
    let outer: usize = of.dims(0)[..axis].iter().product();
    let places = || (0..outer).flat_map(|o| (0..of.known.len()).map(move |k| (o, k)));
    let ranges = || places().flat_map(|(o, k)| (o * inner(k)..(o + 1) * inner(k)).map(move |at| (k, at)));
    let is_moving = of.known.iter().any(|known| known.sets.is_some());
    let is_known = of.known.iter().all(|known| known.numbers.is_some());
    let number = |(k, at): (usize, usize)| of.known[k].numbers.as_ref().map_or(0, |numbers| numbers[at]);
    Known {
        sets: is_moving.then(|| ranges().map(|(k, at)| of.known[k].set(at)).collect()),
        numbers: is_known.then(|| ranges().map(number).collect()),
    }
}

/// Of a table and indices: the axis, what lies before and behind it, and the indices of each batch.
struct Gather<'a> {
    extent: usize,
    outer: usize,
    inner: usize,
    /// Indices for one place before the axis.
    count: usize,
    /// Places before the axis of one batch.
    shared: usize,
    indices: Option<&'a [i64]>,
}

impl<'a> Gather<'a> {
    fn of(of: &'a Operands<'_>, axis: usize, batch: usize) -> Self {
        let (table, indices) = (of.dims(0), of.dims(1));
        Gather {
            extent: table[axis],
            outer: table[..axis].iter().product(),
            inner: table[axis + 1..].iter().product(),
            count: indices[batch..].iter().product(),
            shared: table[batch..axis].iter().product::<usize>().max(1),
            indices: of.numbers(1),
        }
    }

    /// The place of index `j` on the axis for place `o` before it; `None` if unknown. An index outside is refused elsewhere.
    fn place(&self, o: usize, j: usize) -> Option<usize> {
        let at = self.indices?[o / self.shared * self.count + j];
        let extent = self.extent as i64;
        Some(if at < 0 { at + extent } else { at }.clamp(0, extent - 1) as usize)
    }
}

fn taken(sets: &mut Sets, of: &Operands<'_>, axis: usize, batch: usize) -> Result<Known> {
    let g = Gather::of(of, axis, batch);
    if g.extent == 0 || g.count == 0 {
        return Ok(Known::default());
    }
    if g.indices.is_some() {
        let mut places = Vec::with_capacity(g.outer * g.count * g.inner);
        for (o, j) in (0..g.outer).flat_map(|o| (0..g.count).map(move |j| (o, j))) {
            let from = (o * g.extent + g.place(o, j).unwrap_or(0)) * g.inner;
            places.extend(from..from + g.inner);
        }
        return Ok(of.known[0].at(&places));
    }
    let Some(all) = of.sets(0) else { return Ok(Known::default()) };
    let mut to = Vec::with_capacity(g.outer * g.count * g.inner);
    for o in 0..g.outer {
        let row =
            (0..g.inner).map(|i| sets.union_of((0..g.extent).map(|k| all[(o * g.extent + k) * g.inner + i]).collect()));
        let row = row.collect::<Result<Vec<_>>>()?;
        (0..g.count).for_each(|_| to.extend(&row));
    }
    Ok(Known::of_sets(to))
}

/// Contributions to elements by index, or elements in place of those.
fn scattered(sets: &mut Sets, of: &Operands<'_>, (axis, batch): (usize, usize), replaces: bool) -> Result<Known> {
    let g = Gather::of(of, axis, batch);
    let mut to = of.sets(0).map_or_else(|| vec![0; of.dims(0).size()], <[u32]>::to_vec);
    if g.extent == 0 || of.sets(2).is_none() && !replaces {
        return Ok(Known::of_sets(to));
    }
    for (o, i) in (0..g.outer).flat_map(|o| (0..g.inner).map(move |i| (o, i))) {
        let at = |k: usize| (o * g.extent + k) * g.inner + i;
        let contribution = |j: usize| of.known[2].set((o * g.count + j) * g.inner + i);
        if g.indices.is_some() {
            for j in 0..g.count {
                let k = at(g.place(o, j).unwrap_or(0));
                to[k] = if replaces { contribution(j) } else { sets.union(to[k], contribution(j))? };
            }
        } else {
            let any = sets.union_of((0..g.count).map(contribution).collect())?;
            for k in 0..g.extent {
                to[at(k)] = sets.union(to[at(k)], any)?;
            }
        }
    }
    Ok(Known::of_sets(to))
}

fn cumulated(sets: &mut Sets, of: &Operands<'_>, kind: Cumulate, axis: usize, reverse: bool) -> Result<Known> {
    let dims = of.dims(0);
    let (extent, inner) = (dims[axis], dims[axis + 1..].iter().product::<usize>());
    let operands = if kind == Cumulate::Sum { 1 } else { 2 };
    let mut to = vec![0; dims.size()];
    for (o, i) in (0..dims[..axis].iter().product()).flat_map(|o: usize| (0..inner).map(move |i| (o, i))) {
        let mut running = 0;
        for k in 0..extent {
            let k = if reverse { extent - 1 - k } else { k };
            let at = (o * extent + k) * inner + i;
            for operand in 0..operands {
                running = sets.union(running, of.known[operand].set(at))?;
            }
            to[at] = running;
        }
    }
    Ok(Known::of_sets(to))
}

/// A product of matrices: a row meets a column where neither is known to be 0.
fn product(sets: &mut Sets, of: &Operands<'_>, dot: &Dot) -> Result<Known> {
    let (batch, [m, k, n]) = dot.extents(&of.dims(0), &of.dims(1))?;
    let x = |b: usize, i: usize, j: usize| b * m * k + if dot.transposed[0] { j * m + i } else { i * k + j };
    let y = |b: usize, j: usize, l: usize| b * k * n + if dot.transposed[1] { l * k + j } else { j * n + l };
    let zero = |operand: usize, at: usize| of.known[operand].numbers.as_ref().is_some_and(|all| all[at] == 0);
    let mut to = vec![0; batch.size() * m * n];
    for b in 0..batch.size() {
        let rows = (0..m).map(|i| sets.union_of((0..k).map(|j| of.known[0].set(x(b, i, j))).collect()));
        let rows = rows.collect::<Result<Vec<_>>>()?;
        let columns = (0..n).map(|l| sets.union_of((0..k).map(|j| of.known[1].set(y(b, j, l))).collect()));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let places = (0..m).flat_map(|i| (0..n).map(move |l| (i, l)));
        let is_known = [0, 1].map(|operand| of.known[operand].numbers.is_some());
        for (i, l) in places {
            to[b * m * n + i * n + l] = match is_known {
                [true, false] if columns[l] != 0 => {
                    let met = (0..k).filter(|&j| !zero(0, x(b, i, j)));
                    sets.union_of(met.map(|j| of.known[1].set(y(b, j, l))).collect())?
                }
                [false, true] if rows[i] != 0 => {
                    let met = (0..k).filter(|&j| !zero(1, y(b, j, l)));
                    sets.union_of(met.map(|j| of.known[0].set(x(b, i, j))).collect())?
                }
                _ => sets.union(rows[i], columns[l])?,
            };
        }
    }
    Ok(Known::of_sets(to))
}

/// Solutions: of the matrix, and of their column of the right sides.
fn solved(sets: &mut Sets, of: &Operands<'_>) -> Result<Known> {
    let last = of.known.len() - 1;
    let dims = of.dims(last);
    let (size, width) = (matrix(&dims), dims.last().copied().unwrap_or(1));
    let of_matrix = matrix(&of.dims(0));
    let (matrices, mut sides) = (of.all(0), vec![0; dims.size()]);
    for (b, side) in sides.chunks_mut(size.max(1)).enumerate() {
        let all = matrices.get(b * of_matrix..(b + 1) * of_matrix).unwrap_or_default();
        let by_matrix = sets.union_of(all.to_vec())?;
        let columns = (0..width).map(|c| {
            let column = (c..size).step_by(width).map(|k| of.known[last].set(b * size + k));
            sets.union_of(column.chain([by_matrix]).collect())
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        side.iter_mut().enumerate().for_each(|(k, set)| *set = columns[k % width]);
    }
    Ok(Known::of_sets(sides))
}
