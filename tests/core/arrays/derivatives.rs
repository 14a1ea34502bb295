//! Derivatives: every op of the table to order three, reductions at ties and infinities, elements that are not chosen,
//! parameters, and composition.

use burtorch_core::array::{
    Argument, ArrayBuilder, ArrayOp, ArrayProgram, Data, Dims, Element, Plan, Reduce, Row, Shared, Slice, ValueId,
    Variable,
};
use burtorch_core::ops::{Arity, OP_INFO, forward_binary, forward_unary, pull_binary, pull_unary};
use burtorch_core::{DType, Dual, Op};
use std::sync::Arc;

const X: &[Variable] = &[Variable::Input(0)];

/// A program of one array argument.
fn of_array(extents: &[usize], build: impl FnOnce(&mut ArrayBuilder, ValueId) -> ValueId) -> ArrayProgram {
    let mut b = ArrayBuilder::new(DType::Float64).unwrap();
    let x = b.input(extents, Element::Float).unwrap();
    let y = build(&mut b, x);
    let y = b.reduce(Reduce::Sum, y, None, false).unwrap();
    b.finish(&[y]).unwrap()
}

fn run(program: &ArrayProgram, arguments: &[&[f64]]) -> Vec<Vec<f64>> {
    let mut plan = Plan::<f64>::new(program).unwrap();
    let arguments: Vec<_> = arguments.iter().map(|x| Argument::Float(x)).collect();
    plan.run(&arguments, &[]).unwrap();
    (0..plan.outputs().len()).map(|k| plan.floats(k).unwrap().to_vec()).collect()
}

fn bits(x: &[f64]) -> Vec<u64> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// The sum of the first result, as a program to differentiate again.
fn summed(program: &ArrayProgram) -> ArrayProgram {
    let mut b = ArrayBuilder::new(DType::Float64).unwrap();
    let inputs: Vec<_> = program.input_types().iter().map(|ty| b.input(&ty.dims, ty.element).unwrap()).collect();
    let all = b.push_all(ArrayOp::Call(Shared(Arc::new(program.clone()))), &inputs).unwrap();
    let y = b.reduce(Reduce::Sum, all[0], None, false).unwrap();
    b.finish(&[y]).unwrap()
}

/// Points of an op's domain, including its ends.
fn points(op: Op) -> Vec<f64> {
    let (low, high) = op.info().domain;
    (0..23).map(|k| low + (high - low) * (f64::from(k) + 0.37) / 23.7).collect()
}

fn elementwise() -> impl Iterator<Item = Op> {
    OP_INFO.iter().map(|row| row.op).filter(|&op| Row::new(op).is_some())
}

fn is_near(x: f64, y: f64, tolerance: f64) -> bool {
    x == y || x.is_nan() && y.is_nan() || (x - y).abs() <= tolerance * (1.0 + x.abs().max(y.abs()))
}

#[test]
fn every_op_has_the_values_and_first_derivatives_of_its_row() {
    for op in elementwise() {
        let special = [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -1.5, 1e-310, 1e300];
        let xs: Vec<f64> = points(op).into_iter().chain(special).collect();
        let arity = Row::new(op).unwrap().arity();
        let ys: Vec<f64> = xs.iter().rev().copied().collect();
        let mut b = ArrayBuilder::new(DType::Float64).unwrap();
        let x = b.input(&[xs.len()], Element::Float).unwrap();
        let y = b.input(&[xs.len()], Element::Float).unwrap();
        let z = b.row(op, &[x, y][..arity]).unwrap();
        let program = b.finish(&[z]).unwrap();
        let results =
            run(&program.vjp(&[Variable::Input(0), Variable::Input(1)]).unwrap(), &[&xs, &ys, &vec![0.7; xs.len()]]);
        for k in 0..xs.len() {
            let (x, y) = (xs[k], ys[k]);
            let (z, dx, dy) = if arity == 1 {
                let z = forward_unary(op, x).unwrap();
                (z, pull_unary(op, 0.7, x, z).unwrap(), 0.0)
            } else {
                let z = forward_binary(op, x, y).unwrap();
                let (dx, dy) = pull_binary(op, 0.7, x, y, z).unwrap();
                (z, dx, if op.info().arity == Arity::Binary { dy } else { 0.0 })
            };
            let found = [results[0][k], results[1][k], results[2][k]];
            let same = |a: f64, b: f64| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
            let expected = [z, dx + 0.0, dy + 0.0];
            assert!((0..3).all(|i| same(found[i], expected[i])), "{op:?} of {x}, {y}: {found:?}, {expected:?}");
        }
    }
}

#[test]
fn second_derivatives_are_those_of_dual_numbers_and_third_ones_those_of_differences() {
    for op in elementwise().filter(|op| op.info().arity == Arity::Unary) {
        let xs = points(op);
        let first = of_array(&[xs.len()], |b, x| b.row(op, &[x]).unwrap()).gradient(X).unwrap();
        let second = summed(&first).gradient(X).unwrap();
        let found = run(&second, &[&xs]);
        for (&x, &found) in xs.iter().zip(&found[0]) {
            let dual = Dual::new(x, 1.0);
            let y = forward_unary(op, dual).unwrap();
            let expected = pull_unary(op, Dual::new(1.0, 0.0), dual, y).unwrap().d;
            assert!(is_near(found, expected, 1e-11), "{op:?} at {x}: {found}, {expected}");
        }
        let third = run(&summed(&second).gradient(X).unwrap(), &[&xs]);
        for (k, &found) in third[0].iter().enumerate() {
            let h = 1e-5 * (1.0 + xs[k].abs());
            let at = |x: f64| run(&second, &[&vec![x; xs.len()]])[0][0];
            let expected = (at(xs[k] + h) - at(xs[k] - h)) / (2.0 * h);
            assert!(is_near(found, expected, 1e-4), "{op:?} at {}: {found}, {expected}", xs[k]);
        }
    }
}

#[test]
fn second_derivatives_of_two_operands_are_those_of_dual_numbers() {
    for op in elementwise().filter(|op| op.info().arity == Arity::Binary) {
        let xs = points(op);
        let ys: Vec<f64> = xs.iter().rev().map(|x| x * 0.9 + 0.01).collect();
        let mut b = ArrayBuilder::new(DType::Float64).unwrap();
        let x = b.input(&[xs.len()], Element::Float).unwrap();
        let y = b.input(&[xs.len()], Element::Float).unwrap();
        let z = b.row(op, &[x, y]).unwrap();
        let z = b.reduce(Reduce::Sum, z, None, false).unwrap();
        let both = [Variable::Input(0), Variable::Input(1)];
        let first = b.finish(&[z]).unwrap().gradient(&both).unwrap();
        // Forward over reverse, in the directions (1, 0) and (0, 1).
        let second = first.jvp(&both).unwrap();
        let (one, zero) = (vec![1.0; xs.len()], vec![0.0; xs.len()]);
        for (dx, dy) in [(&one, &zero), (&zero, &one)] {
            let found = run(&second, &[&xs, &ys, dx, dy]);
            for k in 0..xs.len() {
                let (x, y) = (Dual::new(xs[k], dx[k]), Dual::new(ys[k], dy[k]));
                let z = forward_binary(op, x, y).unwrap();
                let (gx, gy) = pull_binary(op, Dual::new(1.0, 0.0), x, y, z).unwrap();
                let near = is_near(found[2][k], gx.d, 1e-11) && is_near(found[3][k], gy.d, 1e-11);
                assert!(near, "{op:?} at {}, {}: {:?}, {:?}", xs[k], ys[k], (found[2][k], found[3][k]), (gx.d, gy.d));
            }
        }
    }
}

#[test]
fn ties_share_and_losers_are_unreached() {
    let max = |kind| of_array(&[2, 3], move |b, x| b.reduce(kind, x, Some(&[1]), false).unwrap()).gradient(X).unwrap();
    assert_eq!(run(&max(Reduce::Max), &[&[1.0, 3.0, 3.0, -0.0, 0.0, -1.0]])[0], [0.0, 0.5, 0.5, 0.5, 0.5, 0.0]);
    assert_eq!(run(&max(Reduce::Min), &[&[1.0, 3.0, 1.0, 2.0, 5.0, 9.0]])[0], [0.5, 0.0, 0.5, 1.0, 0.0, 0.0]);
    // The logarithm that is not selected has an infinite partial, which must not propagate.
    let log = of_array(&[2], |b, x| {
        let y = b.row(Op::Log, &[x]).unwrap();
        b.reduce(Reduce::Max, y, None, false).unwrap()
    });
    assert_eq!(run(&log.gradient(X).unwrap(), &[&[0.0, 2.0]])[0], [0.0, 0.5]);
}

#[test]
fn unselected_elements_are_unreached() {
    let at = |start| [Slice { start, step: 1, count: 1 }];
    let first_log = of_array(&[2], |b, x| {
        let y = b.row(Op::Log, &[x]).unwrap();
        b.slice(y, &at(1)).unwrap()
    });
    let where_positive = of_array(&[2], |b, x| {
        let log = b.row(Op::Log, &[x]).unwrap();
        let zero = b.literal(0.0).unwrap();
        let mask = b.less(zero, x).unwrap();
        b.where_(mask, log, x).unwrap()
    });
    let taken = of_array(&[2], |b, x| {
        let y = b.row(Op::Log, &[x]).unwrap();
        let dims = Dims::new(&[2]).unwrap();
        let indices = b.push(ArrayOp::Const(dims, Shared(Arc::new(Data::Int(vec![1, -1])))), &[]).unwrap();
        b.take(y, indices, 0).unwrap()
    });
    for (program, expected) in [(&first_log, [0.0, 0.5]), (&where_positive, [1.0, 0.5]), (&taken, [0.0, 1.0])] {
        let first = program.gradient(X).unwrap();
        assert_eq!(run(&first, &[&[0.0, 2.0]])[0], expected);
        // Nor in the second derivative, nor with a zero tangent in forward mode.
        let second = run(&summed(&first).gradient(X).unwrap(), &[&[0.0, 2.0]]);
        assert_eq!(second[0][0], 0.0);
        assert_eq!(run(&program.jvp(X).unwrap(), &[&[0.0, 2.0], &[0.0, 1.0]])[1], [expected[1]]);
    }
}

#[test]
fn an_unreached_row_of_a_product_has_no_effect() {
    let program = of_array(&[2, 2], |b, x| {
        let y = b.matmul(x, x).unwrap();
        b.slice(y, &[Slice { start: 0, step: 1, count: 1 }]).unwrap()
    });
    // Row 0 of the product reads row 0 and, through it, both rows.
    let found = run(&program.gradient(X).unwrap(), &[&[1.0, 0.0, 2.0, f64::INFINITY]]);
    assert_eq!(found[0][1], f64::INFINITY);
    let program = of_array(&[2, 2], |b, x| {
        let log = b.row(Op::Log, &[x]).unwrap();
        let one = b.literal(1.0).unwrap();
        let ones = b.broadcast_to(one, Dims::new(&[2, 2]).unwrap()).unwrap();
        let y = b.matmul(log, ones).unwrap();
        b.slice(y, &[Slice { start: 1, step: 1, count: 1 }]).unwrap()
    });
    assert_eq!(run(&program.gradient(X).unwrap(), &[&[0.0, 0.0, 1.0, 4.0]])[0], [0.0, 0.0, 2.0, 0.5]);
}

#[test]
fn parameters_are_read_at_every_call_and_have_gradients() {
    let mut b = ArrayBuilder::new(DType::Float64).unwrap();
    let x = b.input(&[3], Element::Float).unwrap();
    let w = b.param(0, 1, &[2, 3]).unwrap();
    let bias = b.param(0, 7, &[2]).unwrap();
    let y = b.matmul(w, x).unwrap();
    let y = b.row(Op::Add, &[y, bias]).unwrap();
    let y = b.row(Op::Sqr, &[y]).unwrap();
    let y = b.reduce(Reduce::Sum, y, None, false).unwrap();
    let program = b.finish(&[y]).unwrap();
    let by = [Variable::Param(0), Variable::Param(1), Variable::Input(0)];
    let mut plan = Plan::<f64>::new(&program.value_and_gradient(&by).unwrap()).unwrap();
    let mut numbers: Vec<f64> = (0..9).map(f64::from).collect();
    let x = [1.0, 0.0, -1.0];
    plan.run(&[Argument::Float(&x)], &[&numbers]).unwrap();
    // w x + bias is (1 - 3 + 7, 4 - 6 + 8).
    assert_eq!(plan.floats(0).unwrap(), [25.0 + 36.0]);
    assert_eq!(plan.floats(1).unwrap(), [10.0, 0.0, -10.0, 12.0, 0.0, -12.0]);
    assert_eq!(plan.floats(2).unwrap(), [10.0, 12.0]);
    assert_eq!(plan.floats(3).unwrap(), [58.0, 80.0, 102.0]);
    numbers[7] = 0.0;
    plan.run(&[Argument::Float(&x)], &[&numbers]).unwrap();
    assert_eq!(plan.floats(2).unwrap(), [-4.0, 12.0]);
    assert!(plan.run(&[Argument::Float(&x)], &[&numbers[..8]]).is_err());
}

#[test]
fn a_hessian_is_symmetric_in_both_modes() {
    let n = 5;
    let x: Vec<f64> = (0..n).map(|k| 0.3 + 0.4 * k as f64).collect();
    for kind in [Reduce::Prod, Reduce::LogSumExp, Reduce::Norm2] {
        let f = of_array(&[n], |b, x| {
            let y = b.row(Op::Sqr, &[x]).unwrap();
            b.reduce(kind, y, None, false).unwrap()
        });
        let gradient = f.gradient(X).unwrap();
        let (forward, reverse) = (gradient.jvp(X).unwrap(), gradient.vjp(X).unwrap());
        for k in 0..n {
            let unit: Vec<f64> = (0..n).map(|i| f64::from(u8::from(i == k))).collect();
            let (row, column) = (run(&forward, &[&x, &unit]), run(&reverse, &[&x, &unit]));
            assert!(row[1].iter().zip(&column[1]).all(|(a, b)| is_near(*a, *b, 1e-13)), "{kind:?}");
        }
    }
}

#[test]
fn cleaning_changes_no_bit() {
    let program = of_array(&[7], |b, x| {
        let y = b.row(Op::Exp, &[x]).unwrap();
        b.softmax(y, 0).unwrap()
    });
    let second = summed(&program.gradient(X).unwrap()).gradient(X).unwrap();
    let x: Vec<f64> = (0..7).map(|k| 0.1 * f64::from(k)).collect();
    let cleaned = second.cleaned().unwrap();
    assert!(cleaned.instrs().len() <= second.instrs().len());
    assert_eq!(bits(&run(&second, &[&x])[0]), bits(&run(&cleaned, &[&x])[0]));
}
