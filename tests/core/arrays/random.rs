//! Random programs: plans against the reference, forward against reverse mode, orders one to three.

use burtorch_core::array::{
    Argument, ArrayBuilder, ArrayProgram, Dims, Element, Plan, Reduce, Slice, Type, ValueId, Variable,
};
use burtorch_core::{DType, Op};

use super::reference::{self, Array};

/// A generator of small numbers.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) % n.max(1) as u64) as usize
    }

    pub fn number(&mut self) -> f64 {
        self.below(4001) as f64 / 1000.0 - 2.0
    }
}

const UNARY: &[Op] =
    &[Op::Tanh, Op::Sin, Op::Exp, Op::Sqr, Op::Neg, Op::Sigmoid, Op::Relu, Op::Softplus, Op::Abs, Op::Erf];
const BINARY: &[Op] = &[Op::Add, Op::Sub, Op::Mul, Op::Max, Op::Min, Op::AddSquares, Op::Logaddexp];
const REDUCTIONS: &[Reduce] = &[Reduce::Sum, Reduce::Prod, Reduce::Max, Reduce::Min, Reduce::LogSumExp, Reduce::Norm2];

fn dims(dice: &mut Dice) -> Vec<usize> {
    let rank = dice.below(4);
    let extents = [1, 2, 3, 1, 4, 17, 2, 0, 5];
    // Rarely an empty axis, or one long enough for eight running sums.
    let most = if dice.below(6) == 0 { extents.len() } else { 5 };
    (0..rank).map(|_| extents[dice.below(most)]).collect()
}

/// Adds a value computed from existing ones; `None` if the random operands do not fit.
fn grow(b: &mut ArrayBuilder, values: &[ValueId], indices: ValueId, dice: &mut Dice) -> Option<ValueId> {
    let x = values[dice.below(values.len())];
    let y = values[dice.below(values.len())];
    let extents = b.type_of(x).dims.to_vec();
    let axis = dice.below(extents.len().max(1));
    match dice.below(14) {
        0..3 => b.row(UNARY[dice.below(UNARY.len())], &[x]).ok(),
        3..6 => b.row(BINARY[dice.below(BINARY.len())], &[x, y]).ok(),
        6 => {
            let mask = b.less(x, y).ok()?;
            let (x, y) = if dice.below(2) == 0 { (x, y) } else { (y, x) };
            b.where_(mask, x, y).ok()
        }
        7 => {
            let all: Vec<isize> = (0..extents.len() as isize).filter(|_| dice.below(2) == 0).collect();
            let axes = (dice.below(3) > 0).then_some(&all[..]);
            b.reduce(REDUCTIONS[dice.below(REDUCTIONS.len())], x, axes, dice.below(2) == 0).ok()
        }
        8 => {
            let mut axes: Vec<_> = (0..extents.len()).collect();
            axes.rotate_left(axis);
            if axes.len() > 1 && dice.below(2) == 0 {
                axes.swap(0, 1);
            }
            b.transpose(x, &axes).ok()
        }
        9 => {
            let slices: Vec<_> = extents.iter().map(|&n| slice(n, dice)).collect();
            b.slice(x, &slices).ok()
        }
        10 => {
            let size: usize = extents.iter().product();
            let shapes = [vec![size], vec![1, size], vec![size, 1], extents.iter().rev().copied().collect()];
            b.reshape(x, &shapes[dice.below(4)]).ok()
        }
        11 => b.concatenate(&[x, y, x], axis as isize).ok(),
        12 => {
            if dice.below(3) > 0 {
                return b.matmul(x, y).ok();
            }
            // Indices are 0 or 1.
            if extents.get(axis).is_some_and(|&n| n > 1) { b.take(x, indices, axis as isize).ok() } else { None }
        }
        _ => {
            if extents.is_empty() {
                return None;
            }
            if dice.below(2) == 0 { b.cumsum(x, axis as isize).ok() } else { b.cumprod(x, axis as isize).ok() }
        }
    }
}

fn slice(n: usize, dice: &mut Dice) -> Slice {
    if n == 0 || dice.below(3) == 0 {
        return Slice::all(n);
    }
    let (start, back) = (dice.below(n), dice.below(2) == 0);
    let room = if back { start + 1 } else { n - start };
    let step = 1 + dice.below(2);
    Slice { start, step: if back { -(step as isize) } else { step as isize }, count: room.div_ceil(step) }
}

/// A program of two arguments with one number as its result, and those arguments.
pub fn program(dice: &mut Dice) -> (ArrayProgram, Vec<Array>) {
    let mut b = ArrayBuilder::new(DType::Float64).unwrap();
    let mut values = Vec::new();
    let mut arguments = Vec::new();
    for _ in 0..2 {
        let extents = dims(dice);
        let dims = Dims::new(&extents).unwrap();
        values.push(b.input(&extents, Element::Float).unwrap());
        arguments.push(Array::new(dims, (0..dims.size()).map(|_| dice.number()).collect()));
    }
    let indices = b.input(&[3], Element::Int).unwrap();
    arguments.push(Array::new(Dims::new(&[3]).unwrap(), vec![1.0, -1.0, 0.0]));
    for _ in 0..1 + dice.below(9) {
        if let Some(v) = grow(&mut b, &values, indices, dice)
            && b.type_of(v).dims.size() < 3000
        {
            values.push(v);
        }
    }
    let mut total = b.literal(0.25).unwrap();
    for &v in values.iter().rev().take(3) {
        // Bounded, so that sums of many numbers stay comparable.
        let bounded = b.row(Op::Tanh, &[v]).unwrap();
        let sum = b.reduce(Reduce::Sum, bounded, None, false).unwrap();
        total = b.row(Op::Add, &[total, sum]).unwrap();
    }
    (b.finish(&[total]).unwrap(), arguments)
}

/// The results of a plan.
pub fn planned(program: &ArrayProgram, arguments: &[Array]) -> Vec<Array> {
    let types = program.input_types();
    let ints: Vec<Vec<i64>> = arguments.iter().map(|x| x.data.iter().map(|&x| x as i64).collect()).collect();
    let given: Vec<_> = types
        .iter()
        .zip(arguments.iter().zip(&ints))
        .map(|(ty, (x, i))| if ty.element == Element::Int { Argument::Int(i) } else { Argument::Float(&x.data) })
        .collect();
    let mut plan = Plan::<f64>::new(program).unwrap();
    plan.run(&given, &[]).unwrap();
    let outputs: Vec<Type> = plan.outputs().collect();
    let first: Vec<Vec<f64>> = (0..outputs.len()).map(|k| plan.floats(k).unwrap().to_vec()).collect();
    // The second run must not depend on memory left by the first.
    plan.run(&given, &[]).unwrap();
    for (k, first) in first.iter().enumerate() {
        let second = plan.floats(k).unwrap();
        assert!(
            same_bits(first, second),
            "output {k} of the second run: {first:?}, {second:?}\n{program}\n{arguments:?}"
        );
    }
    first.into_iter().zip(outputs).map(|(x, ty)| Array::new(ty.dims, x)).collect()
}

pub fn same_bits(x: &[f64], y: &[f64]) -> bool {
    x.len() == y.len() && x.iter().zip(y).all(|(x, y)| x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan())
}

/// Whether all results are equal: bit for bit, or approximately with matrix products.
fn agree(program: &ArrayProgram, x: &[Array], y: &[Array]) -> bool {
    let is_near =
        |x: f64, y: f64| (x - y).abs() <= 1e-9 * (1.0 + x.abs().max(y.abs())) || x.is_nan() || y.is_nan() || x == y;
    let has_products = program.to_string().contains("matmul");
    x.len() == y.len()
        && x.iter().zip(y).all(|(x, y)| {
            same_bits(&x.data, &y.data) || has_products && x.data.iter().zip(&y.data).all(|(&x, &y)| is_near(x, y))
        })
}

pub fn check(program: &ArrayProgram, arguments: &[Array], what: &str) -> Vec<Array> {
    let (found, expected) = (planned(program, arguments), reference::run(program, arguments, &[]));
    assert!(agree(program, &found, &expected), "{what}\n{program}\n{arguments:?}\n{found:?}\n{expected:?}");
    found
}

const BOTH: &[Variable] = &[Variable::Input(0), Variable::Input(1)];

fn dot(x: &[Array], y: &[Array]) -> (f64, f64) {
    let pairs = || x.iter().zip(y).flat_map(|(x, y)| x.data.iter().zip(&y.data)).filter(|(_, y)| **y != 0.0);
    (pairs().map(|(x, y)| x * y).sum(), pairs().map(|(x, y)| (x * y).abs()).sum())
}

/// The change that a tangent makes, by forward mode and by reverse mode.
pub fn both_ways(program: &ArrayProgram, arguments: &[Array], dice: &mut Dice, what: &str) -> ArrayProgram {
    let gradient = program.gradient(BOTH).unwrap();
    let forward = program.jvp(BOTH).unwrap();
    let tangents: Vec<_> = arguments[..2]
        .iter()
        .map(|x| {
            Array::new(x.dims, x.data.iter().map(|_| if dice.below(4) == 0 { 0.0 } else { dice.number() }).collect())
        })
        .collect();
    let by_reverse = check(&gradient, arguments, what);
    let by_forward = check(&forward, &[arguments, &tangents].concat(), what);
    let (along, scale) = dot(&by_reverse, &tangents);
    let change = by_forward[1].data[0];
    let is_near = (along - change).abs() <= 1e-8 * (1.0 + scale);
    assert!(
        is_near || !along.is_finite() || !change.is_finite(),
        "{what}: {along} and {change}\n{program}\n{arguments:?}"
    );
    gradient
}

/// A number made of a gradient, to be differentiated again.
pub fn number_of(gradient: &ArrayProgram) -> ArrayProgram {
    let mut b = ArrayBuilder::new(DType::Float64).unwrap();
    let inputs: Vec<_> = gradient.input_types().iter().map(|ty| b.input(&ty.dims, ty.element).unwrap()).collect();
    let call = burtorch_core::array::ArrayOp::Call(burtorch_core::array::Shared(std::sync::Arc::new(gradient.clone())));
    let mut total = b.literal(0.0).unwrap();
    for v in b.push_all(call, &inputs).unwrap() {
        let bounded = b.row(Op::Tanh, &[v]).unwrap();
        let sum = b.reduce(Reduce::Sum, bounded, None, false).unwrap();
        total = b.row(Op::Add, &[total, sum]).unwrap();
    }
    b.finish(&[total]).unwrap()
}

/// Three rows at once, of the first argument along its first axis and of the second along its last.
fn batch(program: &ArrayProgram, arguments: &[Array], dice: &mut Dice, what: &str) {
    let last = arguments[1].dims.rank();
    let batched = program.batched(&[Some(0), Some(last), None], 3).unwrap();
    let many = |x: &Array, dice: &mut Dice| -> Vec<Array> {
        (0..3).map(|_| Array::new(x.dims, x.data.iter().map(|_| dice.number()).collect())).collect()
    };
    let (first, second) = (many(&arguments[0], dice), many(&arguments[1], dice));
    let all_first: Vec<f64> = first.iter().flat_map(|x| x.data.clone()).collect();
    let all_second: Vec<f64> = (0..second[0].data.len()).flat_map(|k| second.iter().map(move |x| x.data[k])).collect();
    let types = batched.input_types();
    let given = [Array::new(types[0].dims, all_first), Array::new(types[1].dims, all_second), arguments[2].clone()];
    let found = check(&batched, &given, what);
    for row in 0..3 {
        let expected = planned(program, &[first[row].clone(), second[row].clone(), arguments[2].clone()]);
        for (found, expected) in found.iter().zip(&expected) {
            let n = expected.data.len();
            let found = [Array::new(expected.dims, found.data[row * n..(row + 1) * n].to_vec())];
            assert!(agree(program, &found, std::slice::from_ref(expected)), "{what}: row {row}\n{program}\n{batched}");
        }
    }
}

fn rounds(rounds: u64, from: u64) {
    for round in from..from + rounds {
        let mut dice = Dice(round.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1);
        let (first, arguments) = program(&mut dice);
        check(&first, &arguments, &format!("values, round {round}"));
        let gradient = both_ways(&first, &arguments, &mut dice, &format!("first order, round {round}"));
        batch(&first, &arguments, &mut dice, &format!("batch, round {round}"));
        batch(&gradient, &arguments, &mut dice, &format!("batch of a gradient, round {round}"));
        let second = number_of(&gradient);
        let gradient = both_ways(&second, &arguments, &mut dice, &format!("second order, round {round}"));
        if round % 4 == 0 && gradient.instrs().len() < 500 {
            let third = number_of(&gradient);
            both_ways(&third, &arguments, &mut dice, &format!("third order, round {round}"));
        }
    }
}

#[test]
fn random_programs_have_the_values_and_derivatives_of_the_reference() {
    rounds(600, 0);
}

/// `make fuzz`, or `BURTORCH_ROUNDS=100000 cargo test --test engine arrays::random -- --ignored`.
#[test]
#[ignore = "long"]
fn many_random_programs() {
    let number = |name: &str, otherwise| std::env::var(name).map_or(otherwise, |n| n.parse().unwrap());
    rounds(number("BURTORCH_ROUNDS", 100_000), number("BURTORCH_FROM", 1_000_000));
}
