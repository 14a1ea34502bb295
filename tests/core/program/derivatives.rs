//! Directions, Jacobians, Hessians and their patterns, against reverse passes and differences of them.

use burtorch_core::ops::{Arity, OP_INFO};
use burtorch_core::program::derive::{Along, HessianAlong, Jacobian, row_alone};
use burtorch_core::program::sparse::Hessian;
use burtorch_core::program::sparsity::{hessian_pattern, jacobian_pattern};
use burtorch_core::program::{Build, Recording, Replay, Seeds};
use burtorch_core::{Graph, NodeId, Operands, Program};

use super::random::{Dice, Kind, recorded};

fn gradient(program: &Program, x: &[f64]) -> Vec<f64> {
    let mut replay = Replay::<f64, 1>::new(program, Build::Reverse(Seeds::One(0))).unwrap();
    replay.inputs_mut().copy_from_slice(x);
    replay.values();
    replay.reverse_one();
    (0..x.len()).map(|k| replay.gradient(k, 0)).collect()
}

/// The derivative of a gradient along `v`, by Richardson's extrapolation of central differences.
fn difference(program: &Program, x: &[f64], v: &[f64], h: f64) -> Vec<f64> {
    let at = |t: f64| gradient(program, &x.iter().zip(v).map(|(x, v)| x + t * v).collect::<Vec<_>>());
    let central = |h: f64| -> Vec<f64> { at(h).iter().zip(at(-h)).map(|(a, b)| (a - b) / (2.0 * h)).collect() };
    central(h / 2.0).iter().zip(central(h)).map(|(a, b)| (4.0 * a - b) / 3.0).collect()
}

fn close(a: f64, b: f64, tolerance: f64, scale: f64) -> bool {
    (a - b).abs() <= tolerance * scale.max(1.0)
}

#[test]
fn directions_and_hessians_of_random_programs() {
    for seed in 0..200 {
        let mut dice = Dice::new(seed + 4_000_000);
        let n = 1 + dice.below(11);
        let x: Vec<f64> = (0..n).map(|_| dice.between(-1.0, 1.0)).collect();
        let v: Vec<f64> = (0..n).map(|_| dice.between(-1.0, 1.0)).collect();
        let program = recorded::<f64>(&x, seed, 25, Kind::Smooth);
        let reverse = gradient(&program, &x);
        let size = reverse.iter().fold(1.0_f64, |m, g| m.max(g.abs()));
        if size > 1e6 {
            continue;
        }
        let along: f64 = reverse.iter().zip(&v).map(|(g, v)| g * v).sum();
        let (mut value, mut tangent) = ([0.0], [0.0]);
        Along::new(&program).unwrap().run(&x, &v, &mut value, &mut tangent);
        assert!(close(along, tangent[0], 1e-10, size), "seed {seed}: {along}, {}\n{program}", tangent[0]);

        let (mut g, mut hv) = (vec![0.0; n], vec![0.0; n]);
        HessianAlong::new(&program).unwrap().run(&x, &v, &mut g, &mut hv);
        assert!(g.iter().zip(&reverse).all(|(a, b)| close(*a, *b, 1e-12, size)), "seed {seed}: {g:?} {reverse:?}");
        let expected = difference(&program, &x, &v, 1e-3);
        let bend = hv.iter().fold(size, |m, h| m.max(h.abs()));
        for k in 0..n {
            assert!(close(hv[k], expected[k], 2e-6, bend * size), "seed {seed}: {hv:?} {expected:?}\n{program}");
        }

        let mut h = vec![0.0; n * n];
        Hessian::new(&program).unwrap().dense(&program, &x, &mut h).unwrap();
        let pattern = hessian_pattern(&program).unwrap();
        for i in 0..n {
            let product: f64 = (0..n).map(|j| h[i * n + j] * v[j]).sum();
            assert!(close(product, hv[i], 1e-9, bend), "seed {seed}: row {i}");
            for j in 0..n {
                assert!(close(h[i * n + j], h[j * n + i], 1e-9, bend), "seed {seed}: not symmetric");
                assert!(
                    h[i * n + j] == 0.0 || pattern.row(i).contains(&(j as u32)),
                    "seed {seed}: ({i}, {j}) is {} and not in the pattern\n{program}",
                    h[i * n + j]
                );
            }
        }
    }
}

/// Several outputs of one random program.
fn with_outputs(x: &[f64], seed: u64, n_outputs: usize) -> Program {
    let mut graph = Graph::<f64>::new();
    let inputs: Vec<NodeId> = x.iter().map(|&x| graph.leaf(x).unwrap()).collect();
    let outputs = (0..n_outputs as u64)
        .map(|k| {
            let some = &inputs[(k as usize) % inputs.len()..];
            super::random::build(&mut graph, some, seed * 100 + k, 4, Kind::Smooth)
        })
        .collect();
    let recording = Recording { n_differentiated: inputs.len(), inputs, outputs, ..Recording::default() };
    recording.program(&graph).unwrap()
}

#[test]
fn jacobians_by_rows_and_by_columns() {
    for seed in 0..100 {
        let mut dice = Dice::new(seed + 5_000_000);
        let (n, m) = (1 + dice.below(12), 1 + dice.below(12));
        let x: Vec<f64> = (0..n).map(|_| dice.between(-1.0, 1.0)).collect();
        let program = with_outputs(&x, seed, m);
        let mut forward = vec![0.0; n * m];
        let mut reverse = vec![0.0; n * m];
        assert!(Jacobian::forward(&program).unwrap().run(&x, &mut forward).unwrap());
        assert!(Jacobian::reverse(&program).unwrap().run(&x, &mut reverse).unwrap());
        let pattern = jacobian_pattern(&program).unwrap();
        let (colours, n_colours) = pattern.colours(n).unwrap();
        assert!(colours.iter().all(|&c| (c as usize) < n_colours));
        for i in 0..m {
            let mut alone = vec![0.0; n];
            row_alone(&program, i, &x, &mut alone).unwrap();
            for j in 0..n {
                let (a, b) = (forward[i * n + j], reverse[i * n + j]);
                assert!(close(a, b, 1e-10, a.abs()), "seed {seed}: {a} {b}");
                assert!(close(a, alone[j], 1e-10, a.abs()), "seed {seed}: {a} {}", alone[j]);
                assert!(a == 0.0 || pattern.row(i).contains(&(j as u32)), "seed {seed}: ({i}, {j})\n{program}");
            }
            let in_row: Vec<u32> = pattern.row(i).iter().map(|&c| colours[c as usize]).collect();
            let mut unique = in_row.clone();
            unique.sort_unstable();
            unique.dedup();
            assert_eq!(unique.len(), in_row.len(), "seed {seed}: two columns of row {i} share a colour");
        }
    }
}

#[test]
fn second_derivatives_of_every_op() {
    let mut tested = 0;
    for row in OP_INFO {
        let mut dice = Dice::new(row.op as u64 + 77);
        for _ in 0..40 {
            let (low, high) = (row.domain.0.max(-8.0), row.domain.1.min(8.0));
            let mut graph = Graph::<f64>::new();
            let inputs: Vec<NodeId> = (0..4).map(|_| graph.leaf(dice.between(low, high)).unwrap()).collect();
            let x: Vec<f64> = inputs.iter().map(|&k| graph.value(k).unwrap()).collect();
            let list = Operands::List(&inputs);
            let root = match row.arity {
                Arity::Unary => graph.unary_op(row.op, inputs[0]),
                Arity::Binary => graph.binary_op(row.op, inputs[0], inputs[1]),
                Arity::WithConstant => graph.with_constant_op(row.op, inputs[0], 1.7),
                Arity::Reduction => graph.reduce(row.op, list, &[]),
                Arity::InnerProduct => {
                    let bias = row.name.ends_with("bias").then_some(inputs[3]);
                    graph.inner_product(Operands::List(&inputs[..2]), Operands::List(&inputs[1..3]), bias, &[])
                }
                Arity::Nullary | Arity::Block => continue,
            };
            let recording =
                Recording { n_differentiated: 4, inputs, outputs: vec![root.unwrap()], ..Recording::default() };
            let program = recording.program(&graph).unwrap();
            let v = [0.7, -0.4, 0.3, 0.9];
            // A kink has no second derivative, so points keep more than the step away from it.
            if x.iter().any(|x| x.abs() < 0.02) || (x[0] - x[1]).abs() < 0.02 {
                continue;
            }
            let (mut g, mut hv) = ([0.0; 4], [0.0; 4]);
            HessianAlong::new(&program).unwrap().run(&x, &v, &mut g, &mut hv);
            // Near the end of a domain there may be a pole, so the step must be small relative to the distance.
            let (low, high) = row.domain;
            let nearest = x.iter().fold(f64::INFINITY, |d, x| d.min(x - low).min(high - x));
            let expected = difference(&program, &x, &v, (0.01 * nearest).clamp(1e-5, 2e-3));
            let scale = g.iter().chain(&hv).fold(1.0_f64, |m, h| m.max(h.abs()));
            for k in 0..4 {
                let (a, b) = (hv[k], expected[k]);
                assert!(close(a, b, 1e-5, scale), "{} at {x:?}: {hv:?}, by differences {expected:?}", row.name);
            }
            tested += 1;
        }
    }
    assert!(tested > 1000);
}

#[test]
fn patterns_are_found_on_the_rows_of_the_table() {
    // f = exp(x0 + x1) + x2 * x3 + x4: only pairs with a nonzero second derivative are in the pattern.
    let mut graph = Graph::<f64>::new();
    let x: Vec<NodeId> = (0..5).map(|k| graph.leaf(f64::from(k)).unwrap()).collect();
    let t = graph.binary::<burtorch_core::ops::Add>(x[0], x[1]).unwrap();
    let e = graph.unary_op(burtorch_core::Op::Exp, t).unwrap();
    let p = graph.binary::<burtorch_core::ops::Mul>(x[2], x[3]).unwrap();
    let s = graph.binary::<burtorch_core::ops::Add>(e, p).unwrap();
    let root = graph.binary::<burtorch_core::ops::Add>(s, x[4]).unwrap();
    let recording = Recording { n_differentiated: 5, inputs: x, outputs: vec![root], ..Recording::default() };
    let pattern = hessian_pattern(&recording.program(&graph).unwrap()).unwrap();
    let rows: Vec<&[u32]> = (0..5).map(|k| pattern.row(k)).collect();
    assert_eq!(rows, [&[0, 1][..], &[0, 1], &[3], &[2], &[]]);
}
