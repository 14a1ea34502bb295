//! Random loops: rolled against unrolled to the last bit, against the reference, derivatives of higher order, batches.

use burtorch_core::array::{
    Argument, ArrayBuilder, ArrayOp, ArrayProgram, Checkpoint, Dims, Element, Plan, Reduce, ScanOptions, Shared,
    ValueId, Variable,
};
use burtorch_core::{DType, Op};
use std::sync::Arc;

use super::random::{Dice, both_ways, check, number_of, planned, same_bits};
use super::reference::Array;

pub fn builder() -> ArrayBuilder {
    ArrayBuilder::new(DType::Float64).unwrap()
}

const UNARY: &[Op] = &[Op::Tanh, Op::Sin, Op::Sigmoid, Op::Neg, Op::Softplus, Op::Abs, Op::Cos];
const BINARY: &[Op] = &[Op::Add, Op::Sub, Op::Mul, Op::Max, Op::Min, Op::Mul];
const SHAPES: [&[usize]; 3] = [&[], &[3], &[2, 2]];

/// A body, and the shapes of its captures, carries and slices.
struct Body {
    program: ArrayProgram,
    captures: Vec<Vec<usize>>,
    carries: Vec<Vec<usize>>,
    slices: Vec<Vec<usize>>,
}

/// `v` as a scalar of this shape, or its sum.
fn fitted(b: &mut ArrayBuilder, v: ValueId, shape: &[usize]) -> ValueId {
    if b.type_of(v).dims[..] == *shape { v } else { b.reduce(Reduce::Sum, v, None, false).unwrap() }
}

/// A random body; some operations read captures only.
fn body(dice: &mut Dice) -> Body {
    let mut b = builder();
    let shapes = |least: usize, dice: &mut Dice| -> Vec<Vec<usize>> {
        (0..least + dice.below(3)).map(|_| SHAPES[dice.below(3)].to_vec()).collect()
    };
    let (captures, carries, slices) = (shapes(0, dice), shapes(1, dice), shapes(0, dice));
    let mut inputs = |shapes: &[Vec<usize>]| -> Vec<ValueId> {
        shapes.iter().map(|shape| b.input(shape, Element::Float).unwrap()).collect()
    };
    let (c, h, x) = (inputs(&captures), inputs(&carries), inputs(&slices));
    let mut moving = [h.clone(), x].concat();
    let mut all = [c, moving.clone()].concat();
    for _ in 0..1 + dice.below(6) {
        let from = if dice.below(4) == 0 { &all } else { &moving };
        let (x, y) = (from[dice.below(from.len())], all[dice.below(all.len())]);
        let z = match dice.below(8) {
            0..3 => b.row(UNARY[dice.below(UNARY.len())], &[x]).ok(),
            3..6 => b.row(BINARY[dice.below(BINARY.len())], &[x, y]).ok(),
            // A vector would be reshaped for the product and for the stack in the same way, which the builder merges.
            6 if [x, y].iter().all(|&v| b.type_of(v).dims.rank() == 2) => b.matmul(x, y).ok(),
            _ => {
                let zero = b.literal(0.1).unwrap();
                let mask = b.less(zero, x).unwrap();
                b.where_(mask, x, y).ok()
            }
        };
        if let Some(z) = z.filter(|&z| SHAPES.contains(&&b.type_of(z).dims[..])) {
            if moving.contains(&x) || moving.contains(&y) {
                moving.push(z);
            }
            all.push(z);
        }
    }
    let mut outputs = Vec::new();
    for (&h, shape) in h.iter().zip(&carries) {
        let v = moving[dice.below(moving.len())];
        let v = fitted(&mut b, v, shape);
        let sum = b.row(Op::Add, &[h, v]).unwrap();
        outputs.push(b.row([Op::Tanh, Op::Sin][dice.below(2)], &[sum]).unwrap());
    }
    for _ in 0..dice.below(3) {
        let v = if dice.below(3) == 0 { outputs[dice.below(h.len())] } else { moving[dice.below(moving.len())] };
        if !outputs[h.len()..].contains(&v) {
            outputs.push(v);
        }
    }
    Body { program: b.finish(&outputs).unwrap(), captures, carries, slices }
}

/// The same steps, each as a call.
fn unrolled(b: &mut ArrayBuilder, body: &ArrayProgram, of: [&[ValueId]; 3], n: usize, reverse: bool) -> Vec<ValueId> {
    let [captures, carries, slices] = of;
    let mut carries = carries.to_vec();
    let callee = Shared(Arc::new(body.clone()));
    let mut stacks = vec![vec![None; n]; body.outputs().len() - carries.len()];
    for step in 0..n {
        let at = if reverse { n - 1 - step } else { step };
        let mut arguments = [captures, &carries].concat();
        arguments.extend(slices.iter().map(|&x| b.index(x, at).unwrap()));
        let results = b.push_all(ArrayOp::Call(callee.clone()), &arguments).unwrap();
        let (next, stacked) = results.split_at(carries.len());
        carries.copy_from_slice(next);
        for (stack, &y) in stacks.iter_mut().zip(stacked) {
            stack[at] = Some(y);
        }
    }
    for stack in stacks {
        let stack: Vec<_> = stack.into_iter().flatten().collect();
        carries.push(b.stack(&stack, 0).unwrap());
    }
    carries
}

struct Case {
    rolled: ArrayProgram,
    flat: ArrayProgram,
    arguments: Vec<Array>,
}

/// A scalar computed by a loop, both ways; arguments are also used outside the loop.
fn case(dice: &mut Dice) -> Case {
    let body = body(dice);
    let (n, reverse) = (1 + dice.below(6), dice.below(3) == 0);
    let checkpoint = [Checkpoint::None, Checkpoint::None, Checkpoint::Sqrt, Checkpoint::Every(2)][dice.below(4)];
    let (before, after) = (dice.below(3) == 0, dice.below(3) == 0);
    let mut shapes = [body.captures.clone(), body.carries.clone()].concat();
    shapes.extend(body.slices.iter().map(|shape| [&[n], &shape[..]].concat()));
    let arguments: Vec<_> = shapes
        .iter()
        .map(|shape| {
            let dims = Dims::new(shape).unwrap();
            Array::new(dims, (0..dims.size()).map(|_| dice.number()).collect())
        })
        .collect();
    let build = |is_rolled: bool| {
        let mut b = builder();
        let mut values: Vec<_> = shapes.iter().map(|shape| b.input(shape, Element::Float).unwrap()).collect();
        if before {
            values = values.iter().map(|&v| b.row(Op::Sin, &[v]).unwrap()).collect();
        }
        let (c, rest) = values.split_at(body.captures.len());
        let (h, x) = rest.split_at(body.carries.len());
        let mut results = if is_rolled {
            let options = ScanOptions { length: Some(n), reverse, checkpoint };
            b.scan(body.program.clone(), c, h, x, options).unwrap()
        } else {
            unrolled(&mut b, &body.program, [c, h, x], n, reverse)
        };
        if after {
            results.extend(&values);
        }
        let mut total = b.literal(0.0).unwrap();
        for v in results {
            // No body has this op, which would otherwise be merged with it.
            let v = b.row(Op::Erf, &[v]).unwrap();
            let v = b.reduce(Reduce::Sum, v, None, false).unwrap();
            total = b.row(Op::Add, &[total, v]).unwrap();
        }
        b.finish(&[total]).unwrap()
    };
    Case { rolled: build(true), flat: build(false), arguments }
}

pub fn all_inputs(program: &ArrayProgram) -> Vec<Variable> {
    (0..program.inputs().len()).map(Variable::Input).collect()
}

fn rounds(rounds: u64, from: u64) {
    for round in from..from + rounds {
        let mut dice = Dice(round.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 7);
        let Case { rolled, flat, arguments } = case(&mut dice);
        let by = all_inputs(&rolled);
        let (x, y) = (rolled.value_and_gradient(&by).unwrap(), flat.value_and_gradient(&by).unwrap());
        let (found, expected) = (planned(&x, &arguments), planned(&y, &arguments));
        for (k, (found, expected)) in found.iter().zip(&expected).enumerate() {
            assert!(
                same_bits(&found.data, &expected.data),
                "round {round}, result {k}: {found:?} {expected:?}\n{rolled}\n{x}\n{flat}"
            );
        }
        check(&x, &arguments, &format!("round {round}"));
        if round % 8 == 0 && by.len() >= 2 {
            let gradient = both_ways(&rolled, &arguments, &mut dice, &format!("first order, round {round}"));
            let second = number_of(&gradient);
            let gradient = both_ways(&second, &arguments, &mut dice, &format!("second order, round {round}"));
            if round % 64 == 0 {
                let third = number_of(&gradient);
                both_ways(&third, &arguments, &mut dice, &format!("third order, round {round}"));
            }
        }
    }
}

/// A carry of `n` numbers, `steps` steps and `functions` functions in each: the size that a step stacks for reverse
/// mode.
fn kept_for_reverse_mode(functions: usize, n: usize, steps: usize) -> usize {
    let mut body = builder();
    let mut h = body.input(&[n], Element::Float).unwrap();
    for _ in 0..functions {
        h = body.row(Op::Tanh, &[h]).unwrap();
    }
    let doubled = body.row(Op::Add, &[h, h]).unwrap();
    let body = body.finish(&[doubled]).unwrap();
    let mut b = builder();
    let start = b.input(&[n], Element::Float).unwrap();
    let options = ScanOptions { length: Some(steps), ..ScanOptions::default() };
    let last = b.scan(body, &[], &[start], &[], options).unwrap()[0];
    let total = b.reduce(Reduce::Sum, last, None, false).unwrap();
    let program = b.finish(&[total]).unwrap().value_and_gradient(&[Variable::Input(0)]).unwrap();
    let stacked = program.instrs().iter().find_map(|instr| match &instr.op {
        ArrayOp::Loop(of) if !of.reverse => Some(of.body.0.outputs().len() - of.carries),
        _ => None,
    });
    stacked.unwrap()
}

#[test]
fn reverse_mode_keeps_functions_of_a_step_within_its_bounds() {
    // The carry, and each function.
    assert_eq!(kept_for_reverse_mode(3, 2, 5), 4);
    assert_eq!(kept_for_reverse_mode(16, 2, 5), 17);
    assert_eq!(kept_for_reverse_mode(17, 2, 5), 1, "more than 16 times the carry");
    assert_eq!(kept_for_reverse_mode(8, 1 << 10, 1 << 10), 9);
    assert_eq!(kept_for_reverse_mode(8, 1 << 10, (1 << 10) + 1), 1, "more than 64 MB");
}

#[test]
fn rolled_loops_have_the_bits_of_unrolled_ones() {
    rounds(2000, 0);
}

/// `make fuzz`, or `BURTORCH_ROUNDS=100000 cargo test --test engine arrays::loops -- --ignored`.
#[test]
#[ignore = "long"]
fn many_rolled_loops() {
    let number = |name: &str, otherwise| std::env::var(name).map_or(otherwise, |n| n.parse().unwrap());
    rounds(number("BURTORCH_ROUNDS", 100_000), number("BURTORCH_FROM", 1_000_000));
}

pub fn run(program: &ArrayProgram, arguments: &[&[f64]]) -> Vec<Vec<f64>> {
    let mut plan = Plan::<f64>::new(program).unwrap();
    let arguments: Vec<_> = arguments.iter().map(|x| Argument::Float(x)).collect();
    plan.run(&arguments, &[]).unwrap();
    (0..plan.outputs().len()).map(|k| plan.floats(k).unwrap().to_vec()).collect()
}

#[test]
fn batches_of_scans_have_the_bits_of_single_ones() {
    for round in 0..200 {
        let mut dice = Dice(round * 7919 + 3);
        let Case { rolled, arguments, .. } = case(&mut dice);
        let program = rolled.value_and_gradient(&all_inputs(&rolled)).unwrap();
        let axes: Vec<_> = arguments.iter().map(|_| (dice.below(3) > 0).then_some(0)).collect();
        let batched = program.batched(&axes, 3).unwrap();
        let rows: Vec<Vec<Array>> = (0..3)
            .map(|row| {
                let mut fresh = |x: &Array| Array::new(x.dims, x.data.iter().map(|_| dice.number()).collect());
                let pairs = arguments.iter().zip(&axes);
                pairs.map(|(x, axis)| if axis.is_some() && row > 0 { fresh(x) } else { x.clone() }).collect()
            })
            .collect();
        let given: Vec<_> = (0..arguments.len())
            .map(|k| match axes[k] {
                Some(_) => {
                    let data = rows.iter().flat_map(|row| row[k].data.clone()).collect();
                    Array::new(Dims::new(&[&[3], &arguments[k].dims[..]].concat()).unwrap(), data)
                }
                None => arguments[k].clone(),
            })
            .collect();
        let found = planned(&batched, &given);
        for (row, arguments) in rows.iter().enumerate() {
            for (found, expected) in found.iter().zip(planned(&program, arguments)) {
                let part = &found.data[row * expected.data.len()..][..expected.data.len()];
                let is_near = |(x, y): (&f64, &f64)| x == y || (x - y).abs() <= 1e-12 * (1.0 + x.abs());
                let is_same = same_bits(part, &expected.data);
                let has_products = program.to_string().contains("matmul") || batched.to_string().contains("matmul");
                assert!(
                    is_same || has_products && part.iter().zip(&expected.data).all(is_near),
                    "round {round} {rolled}"
                );
            }
        }
    }
}
