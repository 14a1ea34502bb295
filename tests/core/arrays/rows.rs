//! Totals over rows against rows one by one: random programs, their gradients both ways and of second order.

use burtorch_core::Op;
use burtorch_core::array::{Argument, ArrayProgram, Csr, Dims, Element, OverRows, Places, Plan, Reduce, Variable};

use super::random::{Dice, planned, program};
use super::reference::Array;

/// Checks that results differ substantially only if a separate row is not finite.
fn check(
    total: &ArrayProgram,
    one: &ArrayProgram,
    rows: usize,
    first: &[f64],
    rest: &[Array],
    is_mean: bool,
    what: &str,
) {
    let n = first.len() / rows;
    let mut extents = vec![rows];
    extents.extend_from_slice(&one.input_types()[0].dims);
    let all = Array::new(Dims::new(&extents).unwrap(), first.to_vec());
    let given: Vec<_> = [all].into_iter().chain(rest.iter().cloned()).collect();
    let found = planned(total, &given);
    let mut sums: Vec<Vec<f64>> = Vec::new();
    let mut sizes: Vec<Vec<f64>> = Vec::new();
    for row in 0..rows {
        let x = Array::new(one.input_types()[0].dims, first[row * n..(row + 1) * n].to_vec());
        let arguments: Vec<_> = [x].into_iter().chain(rest.iter().cloned()).collect();
        let each = planned(one, &arguments);
        sums.resize_with(each.len(), Vec::new);
        sizes.resize_with(each.len(), Vec::new);
        for (k, x) in each.iter().enumerate() {
            sums[k].resize(x.data.len(), 0.0);
            sizes[k].resize(x.data.len(), 0.0);
            for (i, x) in x.data.iter().enumerate() {
                sums[k][i] += x;
                sizes[k][i] += x.abs();
            }
        }
    }
    let share = if is_mean { rows as f64 } else { 1.0 };
    assert_eq!(found.len(), sums.len());
    for (k, found) in found.iter().enumerate() {
        for (i, &x) in found.data.iter().enumerate() {
            let (expected, size) = (sums[k][i] / share, sizes[k][i] / share);
            let is_near = (x - expected).abs() <= 1e-9 * (1.0 + size);
            assert!(is_near || !size.is_finite(), "{what}: result {k}, number {i}: {x} and {expected}\n{one}\n{total}");
        }
    }
}

#[test]
fn totals_are_sums_of_rows_and_so_are_their_gradients() {
    for round in 0..250 {
        let mut dice = Dice(9_000_000 + round * 7919);
        let (one, arguments) = program(&mut dice);
        let rows = [1, 3, 16, 37][dice.below(4)];
        let is_mean = dice.below(2) == 0;
        let over = if is_mean { OverRows::Mean } else { OverRows::Sum };
        let n = arguments[0].data.len();
        let first: Vec<f64> = (0..rows * n).map(|_| dice.number()).collect();
        let rest = &arguments[1..];
        let axes: Vec<_> = (0..one.inputs().len()).map(|k| (k == 0).then_some(0)).collect();
        let lift =
            |program: &ArrayProgram| program.over_rows(&axes, &vec![over; program.outputs().len()], rows).unwrap();
        let total = lift(&one);
        check(&total, &one, rows, &first, rest, is_mean, &format!("value, round {round}"));
        let by = [Variable::Input(1)];
        let gradient = one.value_and_gradient(&by).unwrap();
        check(
            &total.value_and_gradient(&by).unwrap(),
            &gradient,
            rows,
            &first,
            rest,
            is_mean,
            &format!("gradient of total, {round}"),
        );
        check(&lift(&gradient), &gradient, rows, &first, rest, is_mean, &format!("total of gradient, {round}"));
        let forward = one.jvp(&by).unwrap();
        let tangent = [rest, &[rest[0].clone()]].concat();
        check(&total.jvp(&by).unwrap(), &forward, rows, &first, &tangent, is_mean, &format!("tangent, {round}"));
        // Linear in the total: a second derivative of the total is the total of second derivatives.
        if gradient.instrs().len() < 300 && arguments[1].data.len() == 1 && rest[0].dims.rank() == 0 {
            let second = |p: &ArrayProgram| p.gradient(&by).unwrap().gradient(&by);
            if let (Ok(of_total), Ok(of_one)) = (second(&total), second(&one)) {
                check(&of_total, &of_one, rows, &first, rest, is_mean, &format!("second order, {round}"));
            }
        }
    }
}

#[test]
fn invalid_arguments_are_errors() {
    let mut b = super::loops::builder();
    let x = b.input(&[2], Element::Float).unwrap();
    let program = b.finish(&[x]).unwrap();
    assert!(program.over_rows(&[], &[OverRows::Sum], 3).is_err());
    assert!(program.over_rows(&[Some(2)], &[OverRows::Sum], 3).is_err());
    assert!(program.over_rows(&[Some(1)], &[OverRows::Sum; 2], 3).is_err());
    assert!(program.over_rows(&[Some(1)], &[OverRows::Sum], 3).is_ok());
}

#[test]
fn sparse_rows_multiply_as_dense_ones_do() {
    let (m, k, n) = (37, 9, 3);
    let mut dice = Dice(77);
    let dense: Vec<f64> = (0..m * k).map(|_| if dice.below(3) == 0 { dice.number() } else { 0.0 }).collect();
    let (mut numbers, mut columns, mut starts) = (Vec::new(), Vec::new(), vec![0_i64]);
    for row in dense.chunks(k) {
        for (c, &x) in row.iter().enumerate().filter(|(_, x)| **x != 0.0) {
            numbers.push(x);
            columns.push(c as i64);
        }
        starts.push(numbers.len() as i64);
    }
    let w: Vec<f64> = (0..k * n).map(|_| dice.number()).collect();
    let t: Vec<f64> = (0..k * n).map(|_| dice.number()).collect();
    let one = |element| {
        let mut b = super::loops::builder();
        let (x, w) = (b.input(&[k], element).unwrap(), b.input(&[k, n], Element::Float).unwrap());
        let z = b.matmul(x, w).unwrap();
        let z = b.row(Op::Tanh, &[z]).unwrap();
        // An element that is not selected is unreached.
        let z = b.reduce(Reduce::Max, z, None, false).unwrap();
        b.finish(&[z]).unwrap()
    };
    let sparse = Argument::Sparse(Csr { numbers: &numbers, places: Places::I64(&columns, &starts) });
    let by = [Variable::Input(1)];
    let programs = |element| {
        let total = one(element).over_rows(&[Some(0), None], &[OverRows::Sum], m).unwrap();
        let each = one(element).gradient(&by).unwrap().batched(&[Some(0), None], m).unwrap();
        let hvp = total.gradient(&by).unwrap().jvp(&by).unwrap();
        [total.value_and_gradient(&by).unwrap(), total.jvp(&by).unwrap(), each, hvp]
    };
    for (of_sparse, of_dense) in programs(Element::Sparse).iter().zip(programs(Element::Float)) {
        let run = |program: &ArrayProgram, x| {
            let mut plan = Plan::<f64>::new(program).unwrap();
            let all = [x, Argument::Float(&w), Argument::Float(&t)];
            plan.run(&all[..program.inputs().len()], &[]).unwrap();
            (0..program.outputs().len()).flat_map(|k| plan.floats(k).unwrap().to_vec()).collect::<Vec<_>>()
        };
        let (found, expected) = (run(of_sparse, sparse), run(&of_dense, Argument::Float(&dense)));
        assert_eq!(found.len(), expected.len());
        assert!(found.iter().zip(&expected).all(|(x, y)| (x - y).abs() < 1e-10), "{of_sparse}");
    }
}
