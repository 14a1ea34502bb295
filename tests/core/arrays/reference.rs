//! The reference: each instruction, number by number, with indices written out.

use burtorch_core::array::{
    ArrayOp, ArrayProgram, Axes, Comparison, Cumulate, Data, Dims, Element, Length, Loop, Reduce, Row, Slice, View,
};
use burtorch_core::ops::{Reduction, row_partial, row_value};
use burtorch_core::{Op, Scalar};

/// An array; masks are 1 and 0, integers are exact.
#[derive(Clone, Debug)]
pub struct Array {
    pub dims: Dims,
    pub data: Vec<f64>,
}

/// All positions of a shape in C order.
pub fn positions(dims: &Dims) -> Vec<Vec<usize>> {
    let mut all = vec![vec![]];
    for &extent in dims.iter() {
        all = all.into_iter().flat_map(|p| (0..extent).map(move |k| [&p[..], &[k]].concat())).collect();
    }
    all
}

impl Array {
    pub fn new(dims: Dims, data: Vec<f64>) -> Self {
        assert_eq!(dims.size(), data.len());
        Array { dims, data }
    }

    fn place(&self, at: &[usize]) -> usize {
        assert_eq!(at.len(), self.dims.rank());
        at.iter().zip(self.dims.iter()).fold(0, |k, (&i, &n)| k * n + i)
    }

    fn at(&self, at: &[usize]) -> f64 {
        self.data[self.place(at)]
    }

    fn filled(dims: Dims, of: impl Fn(&[usize]) -> f64) -> Self {
        Array { dims, data: positions(&dims).iter().map(|p| of(p)).collect() }
    }
}

fn unreached(x: f64) -> bool {
    x.is_unreached()
}

fn contribution(g: f64, c: f64) -> f64 {
    if unreached(g) { g } else { c + 0.0 }
}

fn accumulate(sum: &mut f64, c: f64) {
    if !unreached(c) {
        *sum += c + 0.0;
    }
}

fn kept(at: &[usize], axes: Axes) -> Vec<usize> {
    at.iter().enumerate().filter(|(k, _)| !axes.has(*k)).map(|(_, &i)| i).collect()
}

/// The positions of the elements of an array along some axes, for each position of the result.
fn rows(of: &Array, axes: Axes, result: &Dims) -> Vec<Vec<usize>> {
    let mut rows = vec![Vec::new(); result.size()];
    let reduced = Array::new(*result, (0..result.size()).map(|k| k as f64).collect());
    for p in positions(&of.dims) {
        rows[reduced.at(&kept(&p, axes)) as usize].push(of.place(&p));
    }
    rows
}

fn eager(kind: Reduce) -> Reduction {
    Reduction::new(match kind {
        Reduce::Sum => Op::ReduceSum,
        Reduce::Prod => Op::ReduceMul,
        Reduce::Max => Op::ReduceMax,
        Reduce::Min => Op::ReduceMin,
        Reduce::LogSumExp => Op::LogSumExp,
        Reduce::Norm2 => Op::Norm2,
    })
    .unwrap()
}

fn sliced(slices: &[Slice], at: &[usize]) -> Vec<usize> {
    at.iter().zip(slices).map(|(&i, s)| (s.start as isize + s.step * i as isize) as usize).collect()
}

fn index(i: f64, n: usize) -> usize {
    (if i < 0.0 { i + n as f64 } else { i }) as usize
}

/// The position in the table that a position of the result of `Take` reads.
fn taken(at: &[usize], indices: &Array, axis: usize, batch: usize, n: usize) -> Vec<usize> {
    let m = indices.dims.rank() - batch;
    let of_index = [&at[..batch], &at[axis..axis + m]].concat();
    [&at[..axis], &[index(indices.at(&of_index), n)], &at[axis + m..]].concat()
}

fn of_values(of: &[&Array]) -> Vec<Array> {
    of.iter().map(|&x| x.clone()).collect()
}

/// The results of a loop. A stack is an array with the steps as its first axis.
fn run_loop(of: &Loop, operands: &[Array]) -> Vec<Array> {
    let (mut length, mut operands) = (usize::MAX, operands);
    match &of.length {
        Length::Fixed(n) => length = *n,
        Length::Counted => {
            length = operands[0].dims.first().map_or(operands[0].data.first().map_or(0.0, |x| *x) as usize, |n| *n);
            operands = &operands[1..];
        }
        Length::While { most, .. } => length = most.unwrap_or(length),
    }
    let (captures, rest) = operands.split_at(of.captures);
    let (carries, slices) = rest.split_at(of.carries);
    let mut carries = carries.to_vec();
    let types = of.body.0.output_types();
    let mut stacks: Vec<Vec<Array>> = vec![Vec::new(); types.len() - of.carries];
    let mut step = 0;
    while step < length {
        let before = [captures, &carries].concat();
        if let Length::While { condition, .. } = &of.length
            && run(&condition.0, &before, &[])[0].data[0] == 0.0
        {
            break;
        }
        let at = if of.reverse { length - 1 - step } else { step };
        let mut arguments = before;
        for x in slices {
            let dims = Dims::new(&x.dims[1..]).unwrap();
            arguments.push(Array::new(dims, x.data[at * dims.size()..(at + 1) * dims.size()].to_vec()));
        }
        let mut results = run(&of.body.0, &arguments, &[]);
        let stacked = results.split_off(of.carries);
        carries = results;
        stacked.into_iter().zip(&mut stacks).for_each(|(y, stack)| stack.push(y));
        step += 1;
    }
    let mut results = carries;
    for (mut stack, ty) in stacks.into_iter().zip(&types[of.carries..]) {
        if of.reverse {
            stack.reverse();
        }
        let dims = Dims::new(&[&[step], &ty.dims[..]].concat()).unwrap();
        results.push(Array::new(dims, stack.into_iter().flat_map(|x| x.data).collect()));
    }
    if matches!(of.length, Length::While { .. }) {
        results.push(Array::new(Dims::SCALAR, vec![step as f64]));
    }
    results
}

/// The results of a program.
pub fn run(program: &ArrayProgram, arguments: &[Array], parameters: &[Vec<f64>]) -> Vec<Array> {
    let mut values: Vec<Array> = Vec::new();
    let mut arguments = arguments.iter();
    for instr in program.instrs() {
        let of: Vec<&Array> = instr.operands.iter().map(|v| &values[v.index()]).collect();
        let ty = program.type_of(instr.result);
        let each = |f: &dyn Fn(usize) -> f64| Array::new(ty.dims, (0..ty.dims.size()).map(f).collect());
        let result = match &instr.op {
            ArrayOp::Input(_) => arguments.next().unwrap().clone(),
            ArrayOp::Param { set, start, dims } => {
                Array::new(*dims, parameters[*set as usize][*start..start + dims.size()].to_vec())
            }
            ArrayOp::Literal(bits) => Array::new(ty.dims, vec![f64::from_bits(*bits)]),
            ArrayOp::Integer(x) => Array::new(ty.dims, vec![*x as f64]),
            ArrayOp::Const(dims, data) => Array::new(
                *dims,
                match &*data.0 {
                    Data::F64(x) => x.clone(),
                    Data::F32(x) => x.iter().map(|&x| x.into()).collect(),
                    Data::Int(x) => x.iter().map(|&x| x as f64).collect(),
                    Data::Mask(x) => x.iter().map(|&x| f64::from(u8::from(x))).collect(),
                },
            ),
            ArrayOp::Unreached(dims) => Array::filled(*dims, |_| -0.0),
            ArrayOp::Row(row) => each(&|k| {
                let (x, y) = (of[0].data[k], of[of.len() - 1].data[k]);
                match row {
                    Row::Op(op) => row_value(*op, x, y).unwrap(),
                    Row::Helper(f) => f.value(x, y),
                }
            }),
            ArrayOp::Pull(row, to) => each(&|k| {
                let x = |i: usize| of[i].data[k];
                let (g, z, to) = (x(0), x(of.len() - 1), usize::from(*to));
                let c = match row {
                    Row::Op(op) => row_partial(*op, to, g, x(1), x(2), z),
                    Row::Helper(f) => f.partial(to, g, x(1), x(2), z),
                };
                contribution(g, c.unwrap())
            }),
            ArrayOp::Compare(comparison) => each(&|k| {
                let (x, y) = (of[0].data[k], of[of.len() - 1].data[k]);
                f64::from(u8::from(match comparison {
                    Comparison::Less => x < y,
                    Comparison::LessEqual => x <= y,
                    Comparison::Equal => x == y,
                    Comparison::IsNan => x.is_nan(),
                    Comparison::IsUnreached => unreached(x),
                }))
            }),
            ArrayOp::Select => each(&|k| if of[0].data[k] != 0.0 { of[1].data[k] } else { of[2].data[k] }),
            ArrayOp::Convert(element) => each(&|k| match element {
                Element::Float | Element::Sparse => of[0].data[k],
                Element::Int => of[0].data[k].trunc(),
                Element::Mask => f64::from(u8::from(of[0].data[k] != 0.0)),
            }),
            ArrayOp::Reduce(kind, axes) => {
                let rows = rows(of[0], *axes, &ty.dims);
                each(&|k| {
                    let row: Vec<_> = rows[k].iter().map(|&at| of[0].data[at]).collect();
                    match (row.is_empty(), kind) {
                        (true, Reduce::Prod) => 1.0,
                        (true, _) => 0.0,
                        _ => eager(*kind).forward(&row),
                    }
                })
            }
            ArrayOp::ReducePull(kind, axes) => {
                let mut result = of[1].clone();
                for (k, row) in rows(of[1], *axes, &of[0].dims).iter().enumerate() {
                    let xs: Vec<_> = row.iter().map(|&at| of[1].data[at]).collect();
                    let mut out = vec![0.0; xs.len()];
                    let (g, y) = (of[0].data[k], of[2].data[k]);
                    if !xs.is_empty() {
                        eager(*kind).pull(g, &xs, &mut out);
                    }
                    let is_chosen = |x: f64| !matches!(kind, Reduce::Max | Reduce::Min) || x == y || y.is_nan();
                    for ((&at, c), x) in row.iter().zip(out).zip(xs) {
                        result.data[at] = if is_chosen(x) { contribution(g, c) } else { -0.0 };
                    }
                }
                result
            }
            ArrayOp::ArgExtreme { axis, largest } => {
                let axes = Axes::of(&of[0].dims, Some(&[*axis as isize])).unwrap();
                let rows = rows(of[0], axes, &ty.dims);
                each(&|k| {
                    let row: Vec<_> = rows[k].iter().map(|&at| of[0].data[at]).collect();
                    let nan = row.iter().position(|x| x.is_nan());
                    let sign = if *largest { 1.0 } else { -1.0 };
                    let best = row.iter().fold(f64::NEG_INFINITY, |best, x| best.max(sign * x));
                    nan.unwrap_or_else(|| row.iter().position(|x| sign * x == best).unwrap()) as f64
                })
            }
            ArrayOp::Cumulate { kind, axis, reverse } => {
                let axes = Axes::of(&of[0].dims, Some(&[*axis as isize])).unwrap();
                let mut result = of[0].clone();
                for mut row in rows(of[0], axes, &of[0].dims.reduced(axes, false)) {
                    if *reverse {
                        row.reverse();
                    }
                    let mut before = None;
                    for at in row {
                        let x = of[of.len() - 1].data[at];
                        let now = match (before, kind) {
                            (None, _) => x,
                            (Some(h), Cumulate::Sum) => h + x,
                            (Some(h), Cumulate::Recurrence) => of[0].data[at] * h + x,
                        };
                        result.data[at] = now;
                        before = Some(now);
                    }
                }
                result
            }
            ArrayOp::Dot(dot) => {
                let last = |p: &[usize], i: usize, j: usize, flipped: bool| {
                    let batch = &p[..p.len() - 2];
                    if flipped { [batch, &[j, i]].concat() } else { [batch, &[i, j]].concat() }
                };
                let rank = of[0].dims.rank();
                let inner = of[0].dims[if dot.transposed[0] { rank - 2 } else { rank - 1 }];
                let is_adjoint = dot.adjoint != [false; 2];
                Array::filled(ty.dims, |p| {
                    let mut total = if is_adjoint { -0.0 } else { 0.0 };
                    for k in 0..inner {
                        let x = of[0].at(&last(p, p[rank - 2], k, dot.transposed[0]));
                        let y = of[1].at(&last(p, k, p[rank - 1], dot.transposed[1]));
                        if !(dot.adjoint[0] && unreached(x) || dot.adjoint[1] && unreached(y)) {
                            total += x * y + 0.0;
                        }
                    }
                    total
                })
            }
            ArrayOp::View(view) => {
                let x = of[0];
                let skip = ty.dims.rank().saturating_sub(x.dims.rank());
                match view {
                    View::Reshape(_) => Array::new(ty.dims, x.data.clone()),
                    View::Permute(axes) => Array::filled(ty.dims, |p| {
                        let mut at = vec![0; p.len()];
                        axes.iter().zip(p).for_each(|(&axis, &i)| at[axis] = i);
                        x.at(&at)
                    }),
                    View::Slice(slices) => Array::filled(ty.dims, |p| x.at(&sliced(slices, p))),
                    View::Broadcast(_) => Array::filled(ty.dims, |p| {
                        let at: Vec<_> =
                            p[skip..].iter().zip(x.dims.iter()).map(|(&i, &n)| if n == 1 { 0 } else { i }).collect();
                        x.at(&at)
                    }),
                }
            }
            ArrayOp::Copy | ArrayOp::Adjoint => of[0].clone(),
            ArrayOp::Concat(axis) => {
                let mut start = 0;
                let mut result = Array::filled(ty.dims, |_| f64::NAN);
                for x in &of {
                    for p in positions(&x.dims) {
                        let mut to = p.clone();
                        to[*axis] += start;
                        let to = result.place(&to);
                        result.data[to] = x.at(&p);
                    }
                    start += x.dims[*axis];
                }
                result
            }
            &ArrayOp::Take { axis, batch } => {
                Array::filled(ty.dims, |p| of[0].at(&taken(p, of[1], axis, batch, of[0].dims[axis])))
            }
            &ArrayOp::ScatterAdd { axis, batch } => {
                let mut result = of[0].clone();
                for p in positions(&of[2].dims) {
                    let to = result.place(&taken(&p, of[1], axis, batch, ty.dims[axis]));
                    accumulate(&mut result.data[to], of[2].at(&p));
                }
                result
            }
            &ArrayOp::ScatterSet { axis, batch } => {
                let mut result = of[0].clone();
                for p in positions(&of[2].dims) {
                    let to = result.place(&taken(&p, of[1], axis, batch, ty.dims[axis]));
                    result.data[to] = of[2].at(&p);
                }
                result
            }
            ArrayOp::Accumulate => each(&|k| {
                let mut sum = of[0].data[k];
                accumulate(&mut sum, of[1].data[k]);
                sum
            }),
            ArrayOp::AccumulateAt(slices) => {
                let mut result = of[0].clone();
                for p in positions(&of[1].dims) {
                    let to = result.place(&sliced(slices, &p));
                    accumulate(&mut result.data[to], of[1].at(&p));
                }
                result
            }
            ArrayOp::Call(callee) => {
                let arguments: Vec<_> = of.iter().map(|&x| x.clone()).collect();
                values.extend(run(&callee.0, &arguments, parameters));
                continue;
            }
            ArrayOp::Loop(l) => {
                values.extend(run_loop(l, &of_values(&of)));
                continue;
            }
            ArrayOp::Cond { yes, no } => {
                let branch = if of[0].data[0] != 0.0 { yes } else { no };
                values.extend(run(&branch.0, &of_values(&of[1..]), &[]));
                continue;
            }
            op => unreachable!("{op:?} has tests of its own"),
        };
        assert_eq!(result.dims, ty.dims);
        values.push(result);
    }
    program.outputs().iter().map(|v| values[v.index()].clone()).collect()
}
