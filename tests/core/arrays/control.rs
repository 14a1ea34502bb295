//! `while` loops, choices, checkpoints, nested and empty loops, and refusals.

use burtorch_core::array::{
    Argument, ArrayBuilder, ArrayProgram, Checkpoint, Comparison, Dims, Element, Plan, Reduce, ScanOptions, ValueId,
    Variable,
};
use burtorch_core::{Error, Op, interrupt};

use super::loops::{all_inputs, builder, run};
use super::random::{Dice, both_ways, number_of, same_bits};
use super::reference::Array;

/// Newton's method for the square root of each number, until the largest change is below a millionth.
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
    // x, and its derivatives with respect to a.
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
    // A longer run after a shorter one, and vice versa.
    let mut plan = Plan::<f64>::new(&f).unwrap();
    for a in [1.0, 1e6, 4.0] {
        plan.run(&[Argument::Float(&[a]), Argument::Float(&[1.0])], &[]).unwrap();
        assert!((plan.floats(0).unwrap()[0] - a.sqrt()).abs() < 1e-3);
        let bytes = plan.bytes();
        plan.run(&[Argument::Float(&[a]), Argument::Float(&[1.0])], &[]).unwrap();
        assert_eq!(plan.bytes(), bytes);
    }
}

/// `log x` for positive x, otherwise `x * c`.
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
    // At 0 the logarithm, and its partial, would be infinite.
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
    // Scalars, which compile to one piece of code, and arrays.
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
    // An endless loop ends on request, or after its largest number of steps.
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
