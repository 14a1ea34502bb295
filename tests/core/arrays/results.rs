//! Results that are taken out of plans with their memory, and the memory that later ones use.

use burtorch_core::array::{Argument, ArrayBuilder, ArrayProgram, Element, Plan};
use burtorch_core::{DType, Op};

/// `2 x`, `x`, `2 x` again, and the sum.
fn program() -> ArrayProgram {
    let mut b = ArrayBuilder::new(DType::Float64).unwrap();
    let x = b.input(&[4], Element::Float).unwrap();
    let y = b.row(Op::Add, &[x, x]).unwrap();
    let z = b.row(Op::Mul, &[x, y]).unwrap();
    let total = b.reduce(burtorch_core::array::Reduce::Sum, z, None, false).unwrap();
    b.finish(&[z, y, y, total]).unwrap()
}

#[test]
fn a_result_is_taken_once_and_later_runs_do_not_change_it() {
    let mut plan = Plan::<f64>::new(&program()).unwrap();
    assert!(plan.take(0).is_err(), "there was no run");
    plan.run(&[Argument::Float(&[1.0, 2.0, 3.0, 4.0])], &[]).unwrap();
    let first = plan.take(0).unwrap().unwrap();
    assert_eq!(first, [2.0, 8.0, 18.0, 32.0]);
    assert!(plan.take(0).is_err() && plan.floats(0).is_err() && plan.data(0).is_err());
    // Two results are one value.
    assert_eq!(plan.take(1), Ok(None));
    assert_eq!(plan.floats(2).unwrap(), [2.0, 4.0, 6.0, 8.0]);
    plan.run(&[Argument::Float(&[1.0; 4])], &[]).unwrap();
    assert_eq!(plan.floats(0).unwrap(), [2.0; 4]);
    assert_eq!(plan.floats(3).unwrap(), [8.0]);
    assert_eq!(first, [2.0, 8.0, 18.0, 32.0]);
}

#[test]
fn memory_that_is_given_serves_the_next_result() {
    let mut plan = Plan::<f64>::new(&program()).unwrap();
    let run = |plan: &mut Plan<f64>, x: f64| plan.run(&[Argument::Float(&[x; 4])], &[]).unwrap();
    run(&mut plan, 1.0);
    let first = plan.take(0).unwrap().unwrap();
    let start = first.as_ptr();
    let mut spare = Some(first);
    plan.give(|n| spare.take().filter(|numbers| numbers.len() == n)).unwrap();
    run(&mut plan, 3.0);
    let second = plan.take(0).unwrap().unwrap();
    assert_eq!((second.as_ptr(), &second[..]), (start, &[18.0; 4][..]));
    // Of another length it is not used.
    plan.give(|_| Some(vec![0.0; 3])).unwrap();
    run(&mut plan, 2.0);
    assert_eq!(plan.floats(0).unwrap(), [8.0; 4]);
    // Nothing is missing.
    plan.give(|_| unreachable!()).unwrap();
}

#[test]
fn sorted_rows_are_searched() {
    let search = |right: bool, sorted: &[f64], x: &[f64]| {
        let mut b = ArrayBuilder::new(DType::Float64).unwrap();
        let row = b.input(&[sorted.len()], Element::Float).unwrap();
        let keys = b.input(&[x.len()], Element::Float).unwrap();
        let found = b.search_sorted(row, keys, right).unwrap();
        let mut plan = Plan::<f64>::new(&b.finish(&[found]).unwrap()).unwrap();
        plan.run(&[Argument::Float(sorted), Argument::Float(x)], &[]).unwrap();
        plan.ints(0).unwrap().to_vec()
    };
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let sorted = [-inf, -1.0, -0.0, 0.0, 5e-324, 2.0, 2.0, inf, nan];
    let x = [-inf, -0.0, 0.0, 1.0, 2.0, inf, nan];
    assert_eq!(search(false, &sorted, &x), [0, 2, 2, 5, 5, 7, 8]);
    assert_eq!(search(true, &sorted, &x), [1, 4, 4, 5, 7, 8, 9]);
    assert_eq!(search(true, &[], &x), [0; 7]);
    assert!(search(true, &sorted, &[]).is_empty());
    let mut b = ArrayBuilder::new(DType::Float64).unwrap();
    let table = b.input(&[2, 3], Element::Float).unwrap();
    let keys = b.input(&[4], Element::Float).unwrap();
    assert!(b.search_sorted(table, keys, true).is_err());
}
