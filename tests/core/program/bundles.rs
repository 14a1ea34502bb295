//! Bundles of equal ops against the same program node by node: values, gradients and tangents, bit for bit.

use burtorch_core::ops::{Arity, OP_INFO};
use burtorch_core::program::{Build, Recording, Replay, Seeds};
use burtorch_core::{Graph, NodeId, Op, Operands, Program};

use super::random::{Dice, Kind, recorded, same};

/// Inputs of the random programs in this file.
const N: usize = 20;

/// A wide random program: every op of the table on earlier nodes, multiples of results, and explicit softmaxes.
fn wide(seed: u64, n_ops: usize, n_outputs: usize) -> (Program, Vec<f64>) {
    let mut dice = Dice::new(seed);
    let x: Vec<f64> = (0..N).map(|_| dice.between(-2.0, 2.0)).collect();
    let mut graph = Graph::<f64>::new();
    let inputs: Vec<NodeId> = x.iter().map(|&x| graph.leaf(x).unwrap()).collect();
    let mut nodes = inputs.clone();
    // Some nodes that do not depend on inputs.
    nodes.push(graph.constant(1.5).unwrap());
    let parameter = nodes[3];
    let rows: Vec<_> = OP_INFO.iter().filter(|row| !matches!(row.arity, Arity::Nullary | Arity::Block)).collect();
    while nodes.len() < n_ops {
        let most = if dice.below(6) == 0 { 30 } else { 5 };
        let n = 1 + dice.below(most);
        let picked: Vec<NodeId> = (0..n).map(|_| nodes[dice.below(nodes.len())]).collect();
        let (a, b) = (picked[0], picked[n - 1]);
        let op = rows[dice.below(rows.len())].op;
        let node = match op.info().arity {
            _ if dice.below(6) == 0 => {
                softmax(&mut graph, &picked, &mut nodes);
                continue;
            }
            Arity::Unary => graph.unary_op(op, a).unwrap(),
            Arity::Binary => graph.binary_op(op, a, b).unwrap(),
            Arity::WithConstant => match op {
                Op::AddConstant => graph.add_constant(a, dice.between(-3.0, 3.0)).unwrap(),
                Op::DivByConstant => graph.div_constant(a, dice.between(1.0, 3.0)).unwrap(),
                _ => graph.pow_constant(a, dice.between(-3.0, 3.0)).unwrap(),
            },
            Arity::Reduction => graph.reduce(op, Operands::List(&picked), &[]).unwrap(),
            _ => {
                let bias = (op == Op::InnerProductWithBias).then_some(b);
                graph.inner_product(Operands::List(&picked), Operands::List(&picked), bias, &[]).unwrap()
            }
        };
        if dice.below(2) == 0 {
            nodes.push(graph.with_constant::<burtorch_core::ops::MulByConstant>(node, 0.5).unwrap());
        } else {
            nodes.push(node);
        }
    }
    let mut outputs: Vec<NodeId> = (1..n_outputs).map(|k| nodes[N + dice.below(nodes.len() - N - k)]).collect();
    let all: Vec<NodeId> = nodes.iter().copied().filter(|_| dice.below(4) > 0).collect();
    outputs.push(graph.reduce(Op::ReduceSum, Operands::List(&all), &[]).unwrap());
    assert_eq!(parameter, inputs[3]);
    let recording = Recording { n_differentiated: N - 1, inputs, outputs, ..Recording::default() };
    (recording.program(&graph).unwrap(), x)
}

fn softmax(graph: &mut Graph<'static, f64>, picked: &[NodeId], nodes: &mut Vec<NodeId>) {
    let exps: Vec<NodeId> = picked.iter().map(|&x| graph.unary_op(Op::Exp, x).unwrap()).collect();
    let sum = graph.reduce(Op::ReduceSum, Operands::List(&exps), &[]).unwrap();
    for e in exps {
        nodes.push(graph.binary_op(Op::Div, e, sum).unwrap());
    }
}

fn set_directions(replay: &mut Replay<f64, 1>) {
    for (k, d) in replay.directions_mut().iter_mut().enumerate() {
        *d = 1.0 - 0.3 * k as f64;
    }
}

/// Runs both ways at two points; the second shows that no state is left from the first.
fn compare(program: &Program, x: &[f64], build: Build, what: &str) {
    let Some(mut bundled) = Replay::<f64, 1>::in_bundles(program, build).unwrap() else {
        assert!(program.outputs().len() > 1 || burtorch_core::simd::level() as u8 <= 2, "{what}: not in bundles");
        return;
    };
    let mut plain = Replay::<f64, 1>::node_by_node(program, build).unwrap();
    for shift in [0.0, 0.25] {
        for replay in [&mut bundled, &mut plain] {
            for (slot, x) in replay.inputs_mut().iter_mut().zip(x) {
                *slot = x + shift;
            }
            if build == Build::ValuesWithTangents {
                set_directions(replay);
            }
            replay.values();
        }
        for k in 0..plain.n_outputs() {
            assert!(same(bundled.output(k, 0), plain.output(k, 0)), "{what}: output {k}\n{program}");
        }
        match build {
            Build::Values => {}
            Build::Reverse(_) => {
                let seeds: Vec<f64> = (0..plain.n_outputs()).map(|k| 1.0 + k as f64).collect();
                bundled.reverse(&seeds);
                plain.reverse(&seeds);
                for k in 0..program.n_differentiated() {
                    let (a, b) = (bundled.gradient(k, 0), plain.gradient(k, 0));
                    assert!(same(a, b), "{what}: gradient {k} is {a:e}, not {b:e}\n{program}");
                }
            }
            Build::Tangent | Build::ValuesWithTangents => {
                let mut apart = Replay::<f64, 1>::node_by_node(program, Build::Tangent).unwrap();
                apart.inputs_mut().iter_mut().zip(x).for_each(|(slot, x)| *slot = x + shift);
                apart.values();
                set_directions(&mut apart);
                apart.tangents();
                for replay in [&mut bundled, &mut plain] {
                    if build == Build::Tangent {
                        set_directions(replay);
                        replay.tangents();
                    }
                    for k in 0..apart.n_outputs() {
                        let (a, b) = (replay.output_tangent(k, 0), apart.output_tangent(k, 0));
                        assert!(same(a, b), "{what}: tangent {k} is {a:e}, not {b:e}\n{program}");
                    }
                }
            }
        }
    }
}

#[test]
fn bundles_have_the_bits_of_single_nodes() {
    for seed in 0..150 {
        let (program, x) = wide(seed, 60 + 40 * (seed as usize % 8), 1 + seed as usize % 3);
        let last = program.outputs().len() - 1;
        let reverse = [Build::Reverse(Seeds::One(last)), Build::Reverse(Seeds::All)];
        for build in [Build::Values, reverse[0], reverse[1], Build::Tangent, Build::ValuesWithTangents] {
            compare(&program, &x, build, &format!("seed {seed}, {build:?}"));
        }
    }
}

#[test]
fn deep_programs_too() {
    for seed in 0..100 {
        let mut dice = Dice::new(seed + 9_000_000);
        let x: Vec<f64> = (0..5).map(|_| dice.between(-1.5, 1.5)).collect();
        for kind in [Kind::Any, Kind::Smooth] {
            let program = recorded::<f64>(&x, seed, 80, kind);
            compare(&program, &x, Build::Reverse(Seeds::One(0)), &format!("seed {seed}"));
        }
    }
}

#[test]
fn softmaxes_and_multiples_are_taken_whole() {
    let mut graph = Graph::<f64>::new();
    let x: Vec<NodeId> = (0..3).map(|k| graph.leaf(f64::from(k)).unwrap()).collect();
    let mut nodes = Vec::new();
    softmax(&mut graph, &x, &mut nodes);
    let product = graph.reduce(Op::ReduceMul, Operands::List(&nodes), &[]).unwrap();
    let root = graph.with_constant::<burtorch_core::ops::MulByConstant>(product, 2.0).unwrap();
    let recording = Recording { n_differentiated: 3, inputs: x, outputs: vec![root], ..Recording::default() };
    let program = recording.program(&graph).unwrap();
    let bundled = Replay::<f64, 1>::in_bundles(&program, Build::Reverse(Seeds::One(0))).unwrap();
    // Two bundles forward; two backward, and the gradients.
    if let Some(bundled) = bundled {
        assert_eq!((program.nodes().len(), bundled.n_instructions()), (9, 5));
    }
}

#[test]
fn softmaxes_of_every_width_share_vectors() {
    for n in 1..=8 {
        let mut graph = Graph::<f64>::new();
        let x: Vec<NodeId> = (0..N).map(|k| graph.leaf(0.3 * k as f64 - 2.0).unwrap()).collect();
        let mut nodes = Vec::new();
        for first in 0..10 {
            softmax(&mut graph, &x[first..first + n], &mut nodes);
        }
        for first in 0..3 {
            let picked = nodes[first..first + n].to_vec();
            softmax(&mut graph, &picked, &mut nodes);
        }
        let weighted: Vec<NodeId> = nodes
            .iter()
            .enumerate()
            .map(|(k, &y)| graph.with_constant::<burtorch_core::ops::MulByConstant>(y, 0.1 * k as f64).unwrap())
            .collect();
        let root = graph.reduce(Op::ReduceSum, Operands::List(&weighted), &[]).unwrap();
        let recording = Recording { n_differentiated: N, inputs: x, outputs: vec![root], ..Recording::default() };
        let program = recording.program(&graph).unwrap();
        let at: Vec<f64> = (0..N).map(|k| 0.2 * k as f64 - 1.5).collect();
        for build in [Build::Reverse(Seeds::One(0)), Build::Tangent, Build::ValuesWithTangents] {
            compare(&program, &at, build, &format!("softmaxes of {n}, {build:?}"));
        }
    }
}

#[test]
fn a_large_program_is_planned_when_it_runs_again_and_keeps_every_bit() {
    let (program, x) = wide(5, 900, 1);
    for build in [Build::Values, Build::Reverse(Seeds::One(0)), Build::Tangent, Build::ValuesWithTangents] {
        let mut planned = Replay::<f64, 1>::new(&program, build).unwrap();
        let mut plain = Replay::<f64, 1>::node_by_node(&program, build).unwrap();
        for round in 0..4 {
            for replay in [&mut planned, &mut plain] {
                replay.inputs_mut().iter_mut().zip(&x).for_each(|(slot, x)| *slot = x + 0.1 * f64::from(round));
                if matches!(build, Build::Tangent | Build::ValuesWithTangents) {
                    replay.directions_mut().iter_mut().zip(&x).for_each(|(d, x)| *d = 1.0 - x);
                }
                replay.values();
                match build {
                    Build::Values | Build::ValuesWithTangents => {}
                    Build::Reverse(_) => replay.reverse_one(),
                    Build::Tangent => replay.tangents(),
                }
            }
            assert!(same(planned.output(0, 0), plain.output(0, 0)), "{build:?}, round {round}");
            if matches!(build, Build::Tangent | Build::ValuesWithTangents) {
                assert!(same(planned.output_tangent(0, 0), plain.output_tangent(0, 0)), "round {round}");
            } else if build != Build::Values {
                for k in 0..program.n_differentiated() {
                    assert!(same(planned.gradient(k, 0), plain.gradient(k, 0)), "gradient {k}, round {round}");
                }
            }
        }
        if burtorch_core::simd::level() as u8 > 2 {
            assert!(3 * planned.n_instructions() < 2 * plain.n_instructions(), "{build:?} was not planned");
        }
    }
}
