//! Passes: what keeps bits keeps them, what reorders sums stays within its bound.

use burtorch_core::program::{Build, Replay, Seeds, passes};
use burtorch_core::{Graph, NodeId, Program};

use super::random::{Dice, Kind, recorded};

fn run(program: &Program, x: &[f64]) -> (f64, Vec<f64>) {
    let mut replay = Replay::<f64, 1>::new(program, Build::Reverse(Seeds::One(0))).unwrap();
    replay.inputs_mut().copy_from_slice(x);
    replay.values();
    replay.reverse_one();
    (replay.output(0, 0), (0..x.len()).map(|k| replay.gradient(k, 0)).collect())
}

fn close(a: f64, b: f64, scale: f64) -> bool {
    (a - b).abs() <= 1e-12 * scale.max(a.abs()).max(b.abs()) || a.is_nan() && b.is_nan()
}

#[test]
fn fast_passes_stay_within_their_bound() {
    let mut shorter = 0;
    for seed in 0..400 {
        let mut dice = Dice::new(seed + 3_000_000);
        let x: Vec<f64> = (0..4).map(|_| dice.between(-1.5, 1.5)).collect();
        let program = recorded::<f64>(&x, seed, 40, Kind::Smooth);
        let fast = passes::chained(&passes::shared(&program).unwrap()).unwrap();
        shorter += usize::from(fast.nodes().len() < program.nodes().len());
        let ((value, grads), (other, other_grads)) = (run(&program, &x), run(&fast, &x));
        if value.abs() > 1e6 {
            continue;
        }
        let size = grads.iter().fold(1.0_f64, |m, g| m.max(g.abs())) * 1e3;
        assert!(close(value, other, 1.0), "seed {seed}: {value} became {other}\n{program}\n{fast}");
        for (a, b) in grads.iter().zip(&other_grads) {
            assert!(close(*a, *b, size), "seed {seed}: {a} became {b}\n{program}\n{fast}");
        }
    }
    assert!(shorter > 20, "the passes found something in {shorter} programs only");
}

#[test]
fn shared_slots_keep_every_bit_and_take_less_room() {
    let mut smaller = 0;
    for seed in 0..300 {
        let mut dice = Dice::new(seed + 4_000_000);
        let x: Vec<f64> = (0..4).map(|_| dice.between(-1.5, 1.5)).collect();
        for kind in [Kind::Any, Kind::Smooth] {
            let program = recorded::<f64>(&x, seed, 60, kind);
            let mut shared = Replay::<f64, 1>::node_by_node(&program, Build::Values).unwrap();
            let mut own = Replay::<f64, 1>::node_by_node(&program, Build::Reverse(Seeds::One(0))).unwrap();
            for shift in [0.0, 0.5] {
                for replay in [&mut shared, &mut own] {
                    replay.inputs_mut().iter_mut().zip(&x).for_each(|(slot, x)| *slot = x + shift);
                    replay.values();
                }
                let (a, b) = (shared.output(0, 0), own.output(0, 0));
                assert!(super::random::same(a, b), "seed {seed}: {a:e} became {b:e}\n{program}");
            }
            smaller += usize::from(shared.n_slots() < own.n_slots());
        }
    }
    assert!(smaller > 500, "fewer slots in {smaller} programs only");
}

#[test]
fn equal_ops_are_computed_once_and_chains_become_one_node() {
    let mut graph = Graph::<f64>::new();
    let x: Vec<NodeId> = (1..=4).map(|k| graph.leaf(f64::from(k)).unwrap()).collect();
    let mut total = graph.binary::<burtorch_core::ops::Mul>(x[0], x[1]).unwrap();
    for pair in [(1, 2), (2, 3), (3, 0)] {
        let product = graph.binary::<burtorch_core::ops::Mul>(x[pair.0], x[pair.1]).unwrap();
        total = graph.binary::<burtorch_core::ops::Add>(total, product).unwrap();
    }
    let recording = burtorch_core::program::Recording {
        inputs: x,
        n_differentiated: 4,
        outputs: vec![total],
        ..Default::default()
    };
    let program = recording.program(&graph).unwrap();
    let fast = passes::chained(&program).unwrap();
    assert_eq!(fast.op_counts(), [("inner_product", 1)]);
    assert_eq!(run(&fast, &[1.0, 2.0, 3.0, 4.0]), run(&program, &[1.0, 2.0, 3.0, 4.0]));

    let mut graph = Graph::<f64>::new();
    let x = graph.leaf(2.0).unwrap();
    let (a, b) =
        (graph.unary_op(burtorch_core::Op::Exp, x).unwrap(), graph.unary_op(burtorch_core::Op::Exp, x).unwrap());
    let root = graph.binary::<burtorch_core::ops::Mul>(a, b).unwrap();
    let recording = burtorch_core::program::Recording {
        inputs: vec![x],
        n_differentiated: 1,
        outputs: vec![root],
        ..Default::default()
    };
    let program = recording.program(&graph).unwrap();
    assert_eq!((program.nodes().len(), passes::shared(&program).unwrap().nodes().len()), (3, 2));
}

/// Node by node and in bundles; a chain that only other inputs need is skipped.
#[test]
fn gradients_by_some_inputs_keep_every_bit_and_cost_less() {
    let (mut all, mut some) = (0, 0);
    for seed in 0..300 {
        let mut dice = Dice::new(seed + 5_000_000);
        let x: Vec<f64> = (0..6).map(|_| dice.between(-1.5, 1.5)).collect();
        let program = recorded::<f64>(&x, seed, if seed % 3 == 0 { 300 } else { 40 }, Kind::Any);
        let wanted: Vec<bool> = x.iter().map(|_| dice.below(3) == 0).collect();
        let (by_some, inputs) = passes::differentiated_by(&program, &wanted).unwrap();
        let chosen: Vec<usize> = (0..x.len()).filter(|&k| wanted[k]).collect();
        assert_eq!(by_some.n_differentiated(), chosen.len());
        let (value, grads) = run(&program, &x);
        let build = Build::Reverse(Seeds::One(0));
        for mut replay in [Replay::node_by_node(&by_some, build).ok(), Replay::in_bundles(&by_some, build).unwrap()]
            .into_iter()
            .flatten()
        {
            for _ in 0..2 {
                let slots = Replay::<f64, 1>::inputs_mut(&mut replay);
                slots.iter_mut().zip(&inputs).for_each(|(slot, &k)| *slot = x[k as usize]);
                replay.values();
                replay.reverse_one();
            }
            assert!(super::random::same(value, replay.output(0, 0)), "seed {seed}");
            for (k, &input) in chosen.iter().enumerate() {
                let (a, b) = (grads[input], replay.gradient(k, 0));
                assert!(super::random::same(a, b), "seed {seed}, input {input}: {a:e} became {b:e}\n{program}");
            }
        }
        let n = |program| Replay::<f64, 1>::node_by_node(program, build).unwrap().n_instructions();
        assert!(n(&by_some) <= n(&program));
        (all, some) = (all + n(&program) - program.nodes().len(), some + n(&by_some) - program.nodes().len());
    }
    assert!(some < all, "{some} of {all} instructions of reverse passes are left");
    let (by_none, _) = passes::differentiated_by(&recorded::<f64>(&[1.0], 1, 20, Kind::Smooth), &[false]).unwrap();
    let mut replay = Replay::<f64, 1>::new(&by_none, Build::Reverse(Seeds::One(0))).unwrap();
    replay.values();
    replay.reverse_one();
    assert!(replay.raw_gradients().is_empty());
}
