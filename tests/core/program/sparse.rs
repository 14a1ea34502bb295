//! Sparse Hessians and Jacobians: by colours, recorded, and column by column, at ordinary and at special points.

use burtorch_core::program::Recording;
use burtorch_core::program::derive::{HessianColumns, Jacobian, row_alone};
use burtorch_core::program::sparse::{Hessian, SparseJacobian};
use burtorch_core::program::sparsity::{hessian_pattern, jacobian_pattern};
use burtorch_core::{Graph, NodeId, Operands, Program};

use super::random::{Dice, Kind, build, same};

const SPECIAL: [f64; 14] =
    [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -3.0, 1e-300, 1e300, -1e-8, 7.5, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];

/// Random functions of windows of three inputs each: their sum in the last output, the functions in the others. All
/// windows have the same function, or each its own.
fn windows(n: usize, seed: u64, kind: Kind, are_alike: bool) -> Program {
    let mut graph = Graph::<f64>::new();
    let inputs: Vec<NodeId> = (0..n).map(|k| graph.leaf(0.3 + 0.1 * k as f64).unwrap()).collect();
    let mut outputs: Vec<NodeId> = (0..n - 2)
        .map(|k| {
            let own = if are_alike { seed } else { seed * 1000 + k as u64 };
            build(&mut graph, &inputs[k..k + 3], own, 5, kind)
        })
        .collect();
    let sum = graph.reduce(burtorch_core::Op::ReduceSum, Operands::List(&outputs), &[]).unwrap();
    outputs.insert(0, sum);
    Recording { n_differentiated: n, inputs, outputs, ..Recording::default() }.program(&graph).unwrap()
}

/// The entries of the pattern of a Hessian, computed column by column.
fn hessian_alone(program: &Program, x: &[f64]) -> Vec<f64> {
    let n = x.len();
    let pattern = hessian_pattern(program).unwrap();
    let mut all = vec![0.0; n * n];
    let mut columns = HessianColumns::new(program).unwrap();
    for column in 0..n {
        let direction = |_: usize, j: usize| f64::from(u8::from(j == column));
        columns.run(x, 1, direction, |_, j, entry| all[j * n + column] = entry).unwrap();
    }
    (0..n)
        .flat_map(|row| pattern.row(row).iter().map(move |&c| (row, c as usize)))
        .map(|(r, c)| all[r * n + c])
        .collect()
}

/// The same for a Jacobian, where a non-finite row is computed separately.
fn jacobian_alone(program: &Program, x: &[f64]) -> Vec<f64> {
    let (n, m) = (x.len(), program.outputs().len());
    let pattern = jacobian_pattern(program).unwrap();
    let mut all = vec![0.0; n * m];
    Jacobian::forward(program).unwrap().run(x, &mut all).unwrap();
    for (row, entries) in all.chunks_exact_mut(n).enumerate() {
        if pattern.row(row).iter().any(|&c| !entries[c as usize].is_finite()) {
            row_alone(program, row, x, entries).unwrap();
        }
    }
    (0..m)
        .flat_map(|row| pattern.row(row).iter().map(move |&c| (row, c as usize)))
        .map(|(r, c)| all[r * n + c])
        .collect()
}

fn assert_same(found: &[f64], expected: &[f64], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (k, (a, b)) in found.iter().zip(expected).enumerate() {
        assert!(same(*a, *b), "{what}: entry {k} is {a:e}, expected {b:e}");
    }
}

#[test]
fn entries_have_the_bits_of_columns_alone() {
    let mut recorded = [0; 2];
    for seed in 0..400 {
        let mut dice = Dice::new(seed + 9_000_000);
        let n = 9 + dice.below(8);
        let kind = if seed % 3 == 0 { Kind::Smooth } else { Kind::Any };
        let program = windows(n, seed, kind, seed % 2 == 0);
        let mut hessian = Hessian::new(&program).unwrap();
        let mut jacobian = SparseJacobian::new(&program).unwrap();
        for round in 0..8 {
            if round == 4 {
                recorded[0] += usize::from(hessian.record(&program).unwrap());
                recorded[1] += usize::from(jacobian.record(&program).unwrap());
            }
            let mut x: Vec<f64> = (0..n).map(|_| dice.between(-1.5, 1.5)).collect();
            for _ in 0..round % 4 {
                x[dice.below(n)] = SPECIAL[dice.below(SPECIAL.len())];
            }
            let what = format!("seed {seed}, round {round}, x {x:?}\n{program}");
            let expected = hessian_alone(&program, &x);
            let (pattern, data) = hessian.sparse(&program, &x).unwrap();
            assert_same(data, &expected, &what);
            let mut spread = vec![0.0; n * n];
            for row in 0..n {
                for (at, &c) in (pattern.starts[row]..).zip(pattern.row(row)) {
                    spread[row * n + c as usize] = expected[at];
                }
            }
            let mut dense = vec![f64::NAN; n * n];
            hessian.dense(&program, &x, &mut dense).unwrap();
            assert_same(&dense, &spread, &what);
            assert_same(jacobian.entries(&program, &x).unwrap().1, &jacobian_alone(&program, &x), &what);
        }
    }
    assert!(recorded.iter().all(|&n| n > 40), "recorded {recorded:?} of 400");
}

#[test]
fn entries_are_recorded_after_some_runs_and_stay_the_same() {
    let n = 300;
    let mut graph = Graph::<f64>::new();
    let inputs: Vec<NodeId> = (0..n).map(|_| graph.leaf(0.5).unwrap()).collect();
    let mut total = graph.leaf(0.0).unwrap();
    for two in inputs.windows(2) {
        let square = graph.unary_op(burtorch_core::Op::Sqr, two[0]).unwrap();
        let apart = graph.binary_op(burtorch_core::Op::Sub, two[1], square).unwrap();
        let tanh = graph.unary_op(burtorch_core::Op::Tanh, apart).unwrap();
        total = graph.binary_op(burtorch_core::Op::Add, total, tanh).unwrap();
    }
    let recording = Recording { n_differentiated: n, inputs, outputs: vec![total], ..Recording::default() };
    let program = recording.program(&graph).unwrap();
    let mut hessian = Hessian::new(&program).unwrap();
    let x: Vec<f64> = (0..n).map(|k| (k as f64).sin()).collect();
    let expected = hessian_alone(&program, &x);
    let before = hessian.bytes();
    for run in 0..120 {
        assert_same(hessian.sparse(&program, &x).unwrap().1, &expected, &format!("run {run}"));
    }
    assert!(hessian.bytes() > 2 * before, "nothing was recorded");
}

#[test]
fn colours_without_savings_do_not_slow_dense_functions() {
    // Every pair of inputs interacts in every node.
    let n = 200;
    let mut graph = Graph::<f64>::new();
    let inputs: Vec<NodeId> = (0..n).map(|_| graph.leaf(0.01).unwrap()).collect();
    let mut at = inputs[0];
    for &x in &inputs {
        let sum = graph.binary_op(burtorch_core::Op::Add, at, x).unwrap();
        at = graph.unary_op(burtorch_core::Op::Tanh, sum).unwrap();
    }
    let recording = Recording { n_differentiated: n, inputs, outputs: vec![at], ..Recording::default() };
    let program = recording.program(&graph).unwrap();
    let x: Vec<f64> = (0..n).map(|k| 0.01 * (k as f64).cos()).collect();
    let mut dense = vec![0.0; n * n];
    Hessian::new(&program).unwrap().dense(&program, &x, &mut dense).unwrap();
    assert_same(&dense, &hessian_alone(&program, &x), "a chain");
}
