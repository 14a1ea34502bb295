//! Loops and choices: rolled against unrolled to the last bit, against the reference, derivatives of higher order, batches,
//! checkpoints, refusals.

use burtorch_core::array::{
    Argument, ArrayBuilder, ArrayOp, ArrayProgram, Checkpoint, Comparison, Dims, Element, Plan, Reduce, ScanOptions,
    Shared, ValueId, Variable,
};
use burtorch_core::{DType, Error, Op, interrupt};
use std::sync::Arc;

use super::random::{Dice, both_ways, check, number_of, planned, same_bits};
use super::reference::Array;

fn builder() -> ArrayBuilder {
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

/// `v` as a number of this shape, or its sum.
fn fitted(b: &mut ArrayBuilder, v: ValueId, shape: &[usize]) -> ValueId {
    if b.type_of(v).dims[..] == *shape { v } else { b.reduce(Reduce::Sum, v, None, false).unwrap() }
}

/// Every operation depends on a carry or on a slice: others would be done once in the unrolled program.
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
        let (x, mut y) = (moving[dice.below(moving.len())], all[dice.below(all.len())]);
        if !moving.contains(&y) && b.type_of(x) != b.type_of(y) {
            // It would be broadcast, once for all steps: by the unrolled program within its first step.
            y = x;
        }
        let z = match dice.below(8) {
            0..3 => b.row(UNARY[dice.below(UNARY.len())], &[x]).ok(),
            3..6 => b.row(BINARY[dice.below(BINARY.len())], &[x, y]).ok(),
            // A vector would be reshaped for the product as it is for a stack, once for both.
            6 if [x, y].iter().all(|&v| b.type_of(v).dims.rank() == 2) => b.matmul(x, y).ok(),
            _ => {
                let zero = b.literal(0.1).unwrap();
                let mask = b.less(zero, x).unwrap();
                b.where_(mask, x, y).ok()
            }
        };
        if let Some(z) = z.filter(|&z| SHAPES.contains(&&b.type_of(z).dims[..])) {
            moving.push(z);
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

/// The same steps, each a call.
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

/// A number that a loop computes, both ways; arguments are used beside the loop too.
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
            // No body has this one, which would be done once for both.
            let v = b.row(Op::Erf, &[v]).unwrap();
            let v = b.reduce(Reduce::Sum, v, None, false).unwrap();
            total = b.row(Op::Add, &[total, v]).unwrap();
        }
        b.finish(&[total]).unwrap()
    };
    Case { rolled: build(true), flat: build(false), arguments }
}

fn all_inputs(program: &ArrayProgram) -> Vec<Variable> {
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

#[test]
fn rolled_loops_have_the_bits_of_unrolled_ones() {
    rounds(2000, 0);
}

/// `BURTORCH_ROUNDS=100000 cargo test --test engine arrays::loops -- --ignored`.
#[test]
#[ignore = "long"]
fn many_rolled_loops() {
    let number = |name: &str, otherwise| std::env::var(name).map_or(otherwise, |n| n.parse().unwrap());
    rounds(number("BURTORCH_ROUNDS", 100_000), number("BURTORCH_FROM", 1_000_000));
}

fn run(program: &ArrayProgram, arguments: &[&[f64]]) -> Vec<Vec<f64>> {
    let mut plan = Plan::<f64>::new(program).unwrap();
    let arguments: Vec<_> = arguments.iter().map(|x| Argument::Float(x)).collect();
    plan.run(&arguments, &[]).unwrap();
    (0..plan.outputs().len()).map(|k| plan.floats(k).unwrap().to_vec()).collect()
}

/// Newton's method for the square root of each number: as long as the largest change is above a millionth.
fn newton(extents: &[usize]) -> ArrayProgram {
    let mut body = builder();
    let (a, x) = (body.input(extents, Element::Float).unwrap(), body.input(extents, Element::Float).unwrap());
    let quotient = body.row(Op::Div, &[a, x]).unwrap();
    let sum = body.row(Op::Add, &[x, quotient]).unwrap();
    let next = body.row_with(Op::MulByConstant, sum, 0.5).unwrap();
    let body = body.finish(&[next]).unwrap();
    let mut condition = builder();
    let (a, x) = (condition.input(extents, Element::Float).unwrap(), condition.input(extents, Element::Float).unwrap());
    let square = condition.row(Op::Sqr, &[x]).unwrap();
    let error = condition.row(Op::Sub, &[square, a]).unwrap();
    let error = condition.row(Op::Abs, &[error]).unwrap();
    let error = condition.reduce(Reduce::Max, error, None, false).unwrap();
    let small = condition.literal(1e-6).unwrap();
    let goes_on = condition.less(small, error).unwrap();
    let condition = condition.finish(&[goes_on]).unwrap();
    let mut b = builder();
    let (a, x) = (b.input(extents, Element::Float).unwrap(), b.input(extents, Element::Float).unwrap());
    let results = b.while_loop(condition, body, &[a], &[x], None).unwrap();
    let sum = b.reduce(Reduce::Sum, results[0], None, false).unwrap();
    b.finish(&[sum]).unwrap()
}

#[test]
fn while_loops_have_derivatives_of_any_order() {
    let f = newton(&[]);
    let a = 2.0f64;
    let mut program = f.clone();
    // x, and its derivatives by a.
    let exact = [a.sqrt(), 0.5 / a.sqrt(), -0.25 * a.powf(-1.5), 0.375 * a.powf(-2.5)];
    for (order, exact) in exact.into_iter().enumerate() {
        let found = run(&program, &[&[a], &[1.0]])[0][0];
        assert!((found - exact).abs() < 1e-3, "order {order}: {found} {exact}");
        program = program.gradient(&[Variable::Input(0)]).unwrap();
    }
    for size in [1, 3] {
        let mut dice = Dice(5);
        let array = |x: Vec<f64>| Array::new(Dims::new(&[x.len()]).unwrap(), x);
        let arguments = [array(vec![2.0; size]), array((0..size).map(|k| 1.0 + k as f64).collect())];
        let first = both_ways(&newton(&[size]), &arguments, &mut dice, "while");
        let second = both_ways(&number_of(&first), &arguments, &mut dice, "while, second order");
        both_ways(&number_of(&second), &arguments, &mut dice, "while, third order");
    }
}

#[test]
fn rows_of_a_while_loop_are_done_one_by_one() {
    let f = newton(&[]).value_and_gradient(&[Variable::Input(0)]).unwrap();
    let many = f.batched(&[Some(0), None], 4).unwrap();
    let rows = [2.0, 1.0, 1e6, 0.25];
    let found = run(&many, &[&rows, &[1.0]]);
    for (k, &a) in rows.iter().enumerate() {
        let alone = run(&f, &[&[a], &[1.0]]);
        assert_eq!([found[0][k], found[1][k]], [alone[0][0], alone[1][0]], "row {k}");
    }
    // A longer run after a shorter one, and back.
    let mut plan = Plan::<f64>::new(&f).unwrap();
    for a in [1.0, 1e6, 4.0] {
        plan.run(&[Argument::Float(&[a]), Argument::Float(&[1.0])], &[]).unwrap();
        assert!((plan.floats(0).unwrap()[0] - a.sqrt()).abs() < 1e-3);
        let bytes = plan.bytes();
        plan.run(&[Argument::Float(&[a]), Argument::Float(&[1.0])], &[]).unwrap();
        assert_eq!(plan.bytes(), bytes);
    }
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
                let has_products = program.to_string().contains("Dot") || batched.to_string().contains("Dot");
                assert!(
                    is_same || has_products && part.iter().zip(&expected.data).all(is_near),
                    "round {round} {rolled}"
                );
            }
        }
    }
}

/// `log x` where x is positive, else `x * c`.
fn choice() -> ArrayProgram {
    let branch = |build: fn(&mut ArrayBuilder, ValueId, ValueId) -> ValueId| {
        let mut b = builder();
        let (x, c) = (b.input(&[], Element::Float).unwrap(), b.input(&[], Element::Float).unwrap());
        let y = build(&mut b, x, c);
        b.finish(&[y]).unwrap()
    };
    let (yes, no) =
        (branch(|b, x, _| b.row(Op::Log, &[x]).unwrap()), branch(|b, x, c| b.row(Op::Mul, &[x, c]).unwrap()));
    let mut b = builder();
    let (x, c) = (b.input(&[], Element::Float).unwrap(), b.input(&[], Element::Float).unwrap());
    let zero = b.literal(0.0).unwrap();
    let positive = b.less(zero, x).unwrap();
    let y = b.cond(positive, yes, no, &[x, c]).unwrap()[0];
    let y = b.row(Op::Sqr, &[y]).unwrap();
    b.finish(&[y]).unwrap()
}

#[test]
fn choices_compute_one_branch_and_have_derivatives() {
    let f = choice();
    let by = all_inputs(&f);
    let first = f.value_and_gradient(&by).unwrap();
    assert_eq!(run(&first, &[&[2.0], &[3.0]]), [[2f64.ln() * 2f64.ln()], [2.0 * 2f64.ln() / 2.0], [0.0]]);
    assert_eq!(run(&first, &[&[-2.0], &[3.0]]), [[36.0], [-36.0], [24.0]]);
    let many = first.batched(&[Some(0), None], 3).unwrap();
    // At 0 the logarithm would be infinite, and so would its partial.
    let found = run(&many, &[&[0.0, 1.0, -1.0], &[3.0]]);
    assert_eq!(found, [[0.0, 0.0, 9.0], [0.0, 0.0, -18.0], [0.0, 0.0, 6.0]]);
    for x in [0.7, -0.3] {
        let mut dice = Dice(9);
        let arguments = [x, 1.5].map(|x| Array::new(Dims::SCALAR, vec![x]));
        let first = both_ways(&f, &arguments, &mut dice, "cond");
        let second = both_ways(&number_of(&first), &arguments, &mut dice, "cond, second order");
        both_ways(&number_of(&second), &arguments, &mut dice, "cond, third order");
    }
}

#[test]
fn checkpoints_bound_memory_and_change_no_bit() {
    let n = 10_000;
    let width = 16;
    let program = |checkpoint| {
        let mut body = builder();
        let h = body.input(&[width], Element::Float).unwrap();
        let next = body.row(Op::Sin, &[h]).unwrap();
        let body = body.finish(&[next]).unwrap();
        let mut b = builder();
        let h = b.input(&[width], Element::Float).unwrap();
        let options = ScanOptions { length: Some(n), checkpoint, ..ScanOptions::default() };
        let last = b.scan(body, &[], &[h], &[], options).unwrap()[0];
        let sum = b.reduce(Reduce::Sum, last, None, false).unwrap();
        b.finish(&[sum]).unwrap().gradient(&[Variable::Input(0)]).unwrap()
    };
    let x: Vec<f64> = (0..width).map(|k| k as f64 / 7.0).collect();
    let mut plans =
        [Checkpoint::None, Checkpoint::Sqrt, Checkpoint::Every(7)].map(|c| Plan::<f64>::new(&program(c)).unwrap());
    let bytes = plans.each_ref().map(Plan::bytes);
    assert!(bytes[0] >= n * width * 8 && bytes[1] * 20 < bytes[0] && bytes[2] * 4 < bytes[0], "{bytes:?}");
    let found = plans.each_mut().map(|plan| {
        plan.run(&[Argument::Float(&x)], &[]).unwrap();
        plan.floats(0).unwrap().to_vec()
    });
    assert!(same_bits(&found[0], &found[1]) && same_bits(&found[0], &found[2]));
}

#[test]
fn loops_nest() {
    // Sums over j < 3 of sin(h + c x[j]), within a loop over i.
    let mut inner = builder();
    let [c, h, sum, x] = [(); 4].map(|()| inner.input(&[], Element::Float).unwrap());
    let term = inner.row(Op::Mul, &[c, x]).unwrap();
    let term = inner.row(Op::Add, &[h, term]).unwrap();
    let term = inner.row(Op::Sin, &[term]).unwrap();
    let sum = inner.row(Op::Add, &[sum, term]).unwrap();
    let inner = inner.finish(&[sum]).unwrap();
    let mut outer = builder();
    let (c, x) = (outer.input(&[], Element::Float).unwrap(), outer.input(&[3], Element::Float).unwrap());
    let (h, zero) = (outer.input(&[], Element::Float).unwrap(), outer.literal(0.0).unwrap());
    let sum = outer.scan(inner, &[c, h], &[zero], &[x], ScanOptions::default()).unwrap()[0];
    let next = outer.row(Op::Mul, &[sum, c]).unwrap();
    let outer = outer.finish(&[next]).unwrap();
    let mut b = builder();
    let (x, h) = (b.input(&[3], Element::Float).unwrap(), b.input(&[], Element::Float).unwrap());
    let c = b.reduce(Reduce::Norm2, x, None, false).unwrap();
    let options = ScanOptions { length: Some(4), ..ScanOptions::default() };
    let y = b.scan(outer, &[c, x], &[h], &[], options).unwrap()[0];
    let f = b.finish(&[y]).unwrap();
    let mut dice = Dice(1);
    let arguments = [Array::new(Dims::new(&[3]).unwrap(), vec![0.1, 0.4, -0.2]), Array::new(Dims::SCALAR, vec![0.3])];
    let first = both_ways(&f, &arguments, &mut dice, "nested");
    let second = both_ways(&number_of(&first), &arguments, &mut dice, "nested, second order");
    both_ways(&number_of(&second), &arguments, &mut dice, "nested, third order");
}

#[test]
fn empty_loops_pass_on_their_carries_and_integers_count() {
    let mut body = builder();
    let (i, h) = (body.input(&[], Element::Int).unwrap(), body.input(&[], Element::Float).unwrap());
    let next = body.row(Op::Add, &[h, i]).unwrap();
    let body = body.finish(&[next]).unwrap();
    for (range, sum) in [((0, 0), 0.0), ((2, 5), 9.0), ((5, 2), 0.0), ((-2, 1), -3.0)] {
        let mut b = builder();
        let h = b.input(&[], Element::Float).unwrap();
        let y = b.fori_loop(range, body.clone(), &[], &[h]).unwrap()[0];
        let program = b.finish(&[y]).unwrap().value_and_gradient(&[Variable::Input(0)]).unwrap();
        assert_eq!(run(&program, &[&[10.0]]), [[10.0 + sum], [1.0]]);
    }
}

#[test]
fn carries_change_places() {
    // Of numbers in one piece of code, and of arrays.
    for extents in [&[][..], &[2]] {
        let mut body = builder();
        let [a, b, c] = [(); 3].map(|()| body.input(extents, Element::Float).unwrap());
        let sum = body.row(Op::Add, &[a, b]).unwrap();
        let body = body.finish(&[b, sum, c, b, a]).unwrap();
        let mut b = builder();
        let inputs = [(); 3].map(|()| b.input(extents, Element::Float).unwrap());
        let options = ScanOptions { length: Some(7), ..ScanOptions::default() };
        let results = b.scan(body, &[], &inputs, &[], options).unwrap();
        let ends = results[..3].iter().map(|&v| b.reduce(Reduce::Sum, v, None, false).unwrap()).collect::<Vec<_>>();
        let program = b.finish(&[&ends[..], &results[3..]].concat()).unwrap();
        let n = extents.iter().product::<usize>() as f64;
        let ones = vec![1.0; n as usize];
        let found = run(&program, &[&ones, &ones, &ones]);
        assert_eq!([found[0][0], found[1][0], found[2][0]], [21.0 * n, 34.0 * n, n]);
        let column = |x: &[f64]| x.iter().step_by(n as usize).copied().collect::<Vec<_>>();
        assert_eq!(column(&found[3]), [1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0]);
        assert_eq!(column(&found[4]), [1.0, 1.0, 2.0, 3.0, 5.0, 8.0, 13.0]);
        let gradient = program.selecting([1].into_iter()).gradient(&all_inputs(&program)).unwrap();
        let found = run(&gradient, &[&ones, &ones, &ones]);
        assert_eq!([found[0][0], found[1][0], found[2][0]], [13.0, 21.0, 0.0]);
    }
}

#[test]
fn wrong_bodies_are_refused_and_change_nothing() {
    let of = |shapes: &[&[usize]], build: fn(&mut ArrayBuilder, &[ValueId]) -> Vec<ValueId>| {
        let mut b = builder();
        let inputs: Vec<_> = shapes.iter().map(|shape| b.input(shape, Element::Float).unwrap()).collect();
        let outputs = build(&mut b, &inputs);
        b.finish(&outputs).unwrap()
    };
    let next = of(&[&[]], |b, v| vec![b.row(Op::Sin, v).unwrap()]);
    let wide = of(&[&[]], |b, v| vec![b.broadcast_to(v[0], Dims::new(&[2]).unwrap()).unwrap()]);
    let reads = of(&[&[]], |b, v| {
        let p = b.param(0, 0, &[]).unwrap();
        vec![b.row(Op::Add, &[v[0], p]).unwrap()]
    });
    let true_ = of(&[&[]], |b, v| vec![b.compare(Comparison::Equal, &[v[0], v[0]]).unwrap()]);
    let mut b = builder();
    let (x, xs) = (b.input(&[], Element::Float).unwrap(), b.input(&[3], Element::Float).unwrap());
    let n = b.row(Op::Neg, &[x]).unwrap().index();
    let length = |n| ScanOptions { length: Some(n), ..ScanOptions::default() };
    let refused = [
        b.scan(next.clone(), &[], &[x], &[], ScanOptions::default()),
        b.scan(wide.clone(), &[], &[x], &[], length(2)),
        b.scan(reads, &[], &[x], &[], length(2)),
        b.scan(next.clone(), &[], &[xs], &[], length(2)),
        b.scan(next.clone(), &[], &[x], &[xs], length(2)),
        b.scan(next.clone(), &[], &[x], &[x], length(2)),
        b.scan(next.clone(), &[x], &[x], &[], length(2)),
        b.scan(next.clone(), &[], &[x], &[], ScanOptions { checkpoint: Checkpoint::Every(0), ..length(2) }),
        b.while_loop(next.clone(), next.clone(), &[], &[x], None),
        b.while_loop(true_.clone(), wide.clone(), &[], &[x], None),
        b.cond(x, next.clone(), wide, &[x]),
        b.cond(xs, next.clone(), next.clone(), &[x]),
    ];
    for refused in refused {
        assert!(refused.unwrap_err().to_string().contains("found"));
    }
    assert_eq!(b.row(Op::Neg, &[x]).unwrap().index(), n + 1);
    // A loop that never ends does when somebody asks for it, or after as many steps as it may take.
    let endless = b.while_loop(true_.clone(), next.clone(), &[], &[x], None).unwrap();
    let bounded = b.while_loop(true_, next, &[], &[x], Some(5)).unwrap();
    let endless = Plan::<f64>::new(&b.finish(&endless).unwrap().selecting([0].into_iter()));
    let error = interrupt::asking(
        || true,
        || endless.unwrap().run(&[Argument::Float(&[0.5]), Argument::Float(&[0.0; 3])], &[]),
    );
    assert_eq!(error, Err(Error::Interrupted));
    let _ = bounded;
}
