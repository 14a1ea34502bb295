//! Random loops and choices within the steps of a loop over few numbers, against the reference.

use std::sync::Arc;

use burtorch_core::array::{
    Argument, ArrayBuilder, ArrayOp, ArrayProgram, Dims, Element, Plan, Reduce, ScanOptions, Shared, ValueId,
};
use burtorch_core::{Error, Op, interrupt};

use super::loops::{all_inputs, builder, run};
use super::random::{Dice, check, number_of};
use super::reference::Array;

const SHAPES: [&[usize]; 3] = [&[], &[1], &[2]];

/// The inputs and outputs of a body: two carries, one of them a scalar, and a captured scalar.
struct Values {
    c: ValueId,
    x: ValueId,
    y: ValueId,
}

fn inputs(b: &mut ArrayBuilder, shape: &[usize]) -> Values {
    let mut input = |shape: &[usize]| b.input(shape, Element::Float).unwrap();
    Values { c: input(&[]), x: input(shape), y: input(&[]) }
}

/// Some operations on the values, then possibly a loop or a choice with random programs, `depth` deep.
fn work(b: &mut ArrayBuilder, mut v: Values, shape: &[usize], depth: usize, dice: &mut Dice) -> Values {
    for _ in 0..1 + dice.below(3) {
        let f = [Op::Sin, Op::Tanh, Op::Neg, Op::Sigmoid][dice.below(4)];
        let of = [Op::Add, Op::Sub, Op::Mul][dice.below(3)];
        if dice.below(2) == 0 {
            let other = [v.y, v.c][dice.below(2)];
            v.x = b.row(of, &[v.x, other]).unwrap();
            v.x = b.row(f, &[v.x]).unwrap();
        } else {
            let sum = b.reduce(Reduce::Sum, v.x, None, false).unwrap();
            v.y = b.row(of, &[sum, v.y]).unwrap();
            v.y = b.row(f, &[v.y]).unwrap();
        }
    }
    if depth == 0 {
        return v;
    }
    let program = |dice: &mut Dice| {
        let mut b = builder();
        let v = inputs(&mut b, shape);
        let v = work(&mut b, v, shape, depth - 1, dice);
        b.finish(&[v.x, v.y]).unwrap()
    };
    let results = match dice.below(4) {
        0 => {
            let options = ScanOptions { length: Some(dice.below(4)), ..ScanOptions::default() };
            b.scan(program(dice), &[v.c], &[v.x, v.y], &[], options).unwrap()
        }
        1 => {
            let most = (dice.below(3) == 0).then_some(2);
            let (condition, body) = counted(shape, program(dice), dice.below(4));
            let zero = b.literal(0.0).unwrap();
            b.while_loop(condition, body, &[v.c], &[v.x, v.y, zero], most).unwrap()[..2].to_vec()
        }
        _ => {
            let bound = b.literal(dice.number() * 0.3).unwrap();
            let predicate = b.less(v.y, bound).unwrap();
            let (yes, no) = (program(dice), program(dice));
            b.cond(predicate, yes, no, &[v.c, v.x, v.y]).unwrap()
        }
    };
    Values { x: results[0], y: results[1], ..v }
}

/// A condition and a body that also count steps: `steps` of them, or fewer if y is large.
fn counted(shape: &[usize], body: ArrayProgram, steps: usize) -> (ArrayProgram, ArrayProgram) {
    let mut b = builder();
    let (v, n) = (inputs(&mut b, shape), b.input(&[], Element::Float).unwrap());
    let size = b.row(Op::Abs, &[v.y]).unwrap();
    let sum = b.row(Op::Add, &[n, size]).unwrap();
    let most = b.literal(steps as f64).unwrap();
    let goes_on = b.less(sum, most).unwrap();
    let condition = b.finish(&[goes_on]).unwrap();
    let mut b = builder();
    let (v, n) = (inputs(&mut b, shape), b.input(&[], Element::Float).unwrap());
    let body = ArrayOp::Call(Shared(Arc::new(body)));
    let mut results = b.push_all(body, &[v.c, v.x, v.y]).unwrap();
    let one = b.literal(1.0).unwrap();
    results.push(b.row(Op::Add, &[n, one]).unwrap());
    (condition, b.finish(&results).unwrap())
}

/// A scalar computed by a loop with nested control flow.
fn nest(dice: &mut Dice) -> (ArrayProgram, Vec<Array>) {
    let shape = SHAPES[dice.below(3)];
    let mut body = builder();
    let v = inputs(&mut body, shape);
    let v = work(&mut body, v, shape, 1 + dice.below(3), dice);
    // The carries may be swapped, or only one of them may change.
    let y = if dice.below(4) == 0 { body.reduce(Reduce::Sum, v.x, None, false).unwrap() } else { v.y };
    let body = body.finish(&[v.x, y]).unwrap();
    let mut b = builder();
    let v = inputs(&mut b, shape);
    let options = ScanOptions { length: Some(1 + dice.below(5)), ..ScanOptions::default() };
    let results = b.scan(body, &[v.c], &[v.x, v.y], &[], options).unwrap();
    let sum = b.reduce(Reduce::Sum, results[0], None, false).unwrap();
    let total = b.row(Op::Add, &[sum, results[1]]).unwrap();
    let program = b.finish(&[total]).unwrap();
    let arguments = [&[][..], shape, &[]].map(|shape| {
        let dims = Dims::new(shape).unwrap();
        Array::new(dims, (0..dims.size()).map(|_| dice.number()).collect())
    });
    (program, arguments.to_vec())
}

#[test]
fn loops_and_choices_within_steps_agree_with_the_reference() {
    for round in 0..600 {
        let mut dice = Dice(round * 7919 + 11);
        let (program, arguments) = nest(&mut dice);
        let what = format!("nest {round}");
        check(&program, &arguments, &what);
        let gradient = program.value_and_gradient(&all_inputs(&program)).unwrap();
        check(&gradient, &arguments, &what);
        if round % 8 == 0 {
            let second = number_of(&program.gradient(&all_inputs(&program)).unwrap());
            check(&second.jvp(&all_inputs(&second)).unwrap(), &[&arguments[..], &arguments].concat(), &what);
        }
    }
}

#[test]
fn an_endless_loop_within_a_step_can_be_ended() {
    let mut condition = builder();
    let x = condition.input(&[], Element::Float).unwrap();
    let less = condition.literal(-1.0).unwrap();
    let goes_on = condition.less(less, x).unwrap();
    let condition = condition.finish(&[goes_on]).unwrap();
    let mut body = builder();
    let x = body.input(&[], Element::Float).unwrap();
    let next = body.row(Op::Abs, &[x]).unwrap();
    let body = body.finish(&[next]).unwrap();
    let mut step = builder();
    let x = step.input(&[], Element::Float).unwrap();
    let last = step.while_loop(condition, body, &[], &[x], None).unwrap()[0];
    let step = step.finish(&[last]).unwrap();
    let mut b = builder();
    let x = b.input(&[], Element::Float).unwrap();
    let options = ScanOptions { length: Some(2), ..ScanOptions::default() };
    let y = b.scan(step, &[], &[x], &[], options).unwrap()[0];
    let program = b.finish(&[y]).unwrap();
    assert_eq!(run(&program, &[&[-2.0]]), [[-2.0]]);
    let mut plan = Plan::<f64>::new(&program).unwrap();
    let arguments = [Argument::Float(&[1.0])];
    assert_eq!(interrupt::asking(|| true, || plan.run(&arguments, &[])), Err(Error::Interrupted));
}
