//! Long work on programs ends early when it is asked to, at whichever question, and gives the same bits the next time.

use std::cell::Cell;

use burtorch_core::program::derive::Jacobian;
use burtorch_core::program::sparse::{Hessian, SparseJacobian};
use burtorch_core::program::sparsity::{hessian_pattern, jacobian_pattern};
use burtorch_core::program::{Build, Recording, Replay, Seeds, passes};
use burtorch_core::viz::Options;
use burtorch_core::{Error, Graph, NodeId, Op, Program, Result, interrupt};

thread_local! {
    static QUESTIONS_LEFT: Cell<usize> = const { Cell::new(0) };
}

fn is_over() -> bool {
    let left = QUESTIONS_LEFT.get();
    QUESTIONS_LEFT.set(left.saturating_sub(1));
    left == 0
}

/// Interrupts the work at its first check, its second, fourth, ..., and compares its later results.
fn works_on<T: PartialEq>(name: &str, mut work: impl FnMut() -> Result<T>) {
    let wanted = work().unwrap();
    let mut questions = 0;
    loop {
        QUESTIONS_LEFT.set(questions);
        match interrupt::asking(is_over, &mut work) {
            Err(Error::Interrupted) => {}
            Ok(found) => {
                assert!(found == wanted, "{name}");
                break;
            }
            Err(error) => panic!("{name}: {error}"),
        }
        assert!(work().unwrap() == wanted, "{name} after an interrupt at question {questions}");
        questions = 2 * questions + 1;
    }
    assert!(questions > 0, "{name} asks nothing");
}

/// Repeated sums of products around a ring: `n` inputs, two nodes for each per round.
fn ring(n: usize, rounds: usize) -> (Graph<'static, f64>, Recording) {
    let mut graph = Graph::new();
    let inputs: Vec<NodeId> = (0..n).map(|k| graph.leaf(0.5 + k as f64 / n as f64).unwrap()).collect();
    let mut sum = inputs[0];
    for _ in 0..rounds {
        for k in 0..n {
            let product = graph.binary_op(Op::PRODUCT, inputs[k], inputs[(k + 1) % n]).unwrap();
            sum = graph.binary_op(Op::SUM, sum, product).unwrap();
        }
    }
    let recording = Recording { n_differentiated: n, inputs, outputs: vec![sum], ..Recording::default() };
    (graph, recording)
}

fn bits(all: &[f64]) -> Vec<u64> {
    all.iter().map(|x| x.to_bits()).collect()
}

/// Inputs of a [`ring`].
fn point(n: usize) -> Vec<f64> {
    (0..n).map(|k| 0.25 + k as f64 / n as f64).collect()
}

#[test]
fn programs_are_made_and_drawn() {
    let (graph, recording) = ring(50, 4000);
    works_on("recording", || recording.program(&graph).map(|program| program.nodes().len()));
    let program = recording.program(&graph).unwrap();
    works_on("shared", || passes::shared(&program).map(|program| program.nodes().len()));
    works_on("chained", || passes::chained(&program).map(|program| program.nodes().len()));
    works_on("dot", || program.dot());
    works_on("picture", || {
        let picture = graph.picture(&recording.outputs, &[], &Options { max_parts: 20_000 })?;
        Ok((picture.to_dot()?, picture.to_svg()?, picture.to_html("page")?))
    });
    works_on("sinks", || graph.sinks());
}

#[test]
fn replays_and_their_plans() {
    let (graph, recording) = ring(50, 4000);
    let program = recording.program(&graph).unwrap();
    let x = point(50);
    works_on("replays", || {
        // The third run uses bundles if they are faster.
        let mut replay = Replay::<f64, 1>::new(&program, Build::Reverse(Seeds::One(0)))?;
        let mut all = Vec::new();
        for _ in 0..3 {
            replay.inputs_mut().copy_from_slice(&x);
            replay.values();
            replay.reverse_one();
            interrupt::check()?;
            all.push(replay.output(0, 0).to_bits());
            all.extend((0..50).map(|k| replay.gradient(k, 0).to_bits()));
        }
        Ok(all)
    });
    let mut kept = Replay::<f64, 1>::new(&program, Build::Reverse(Seeds::One(0))).unwrap();
    works_on("one replay", || {
        kept.inputs_mut().copy_from_slice(&x);
        kept.values();
        kept.reverse_one();
        interrupt::check()?;
        Ok((kept.output(0, 0).to_bits(), kept.gradient(7, 0).to_bits()))
    });
}

#[test]
fn derivatives_and_patterns() {
    let n = 120;
    let (graph, recording) = ring(n, 40);
    let program = recording.program(&graph).unwrap();
    let x = point(n);
    let mut hessian = Hessian::new(&program).unwrap();
    works_on("hessian", || {
        let mut to = vec![0.0; n * n];
        hessian.dense(&program, &x, &mut to)?;
        Ok(bits(&to))
    });
    works_on("sparse hessian", || hessian.sparse(&program, &x).map(|(_, data)| bits(data)));
    works_on("recording a sparse hessian", || hessian.record(&program));
    works_on("hessian_pattern", || hessian_pattern(&program));
    let outputs: Vec<NodeId> = (0..4096).map(|k| NodeId::from_index((n + k) as u32)).collect();
    let program: Program = Recording { outputs, ..recording }.program(&graph).unwrap();
    for mut jacobian in [Jacobian::forward(&program).unwrap(), Jacobian::reverse(&program).unwrap()] {
        works_on("jacobian", || {
            let mut to = vec![0.0; 4096 * n];
            jacobian.run(&x, &mut to)?;
            Ok(bits(&to))
        });
    }
    works_on("jacobian_pattern", || jacobian_pattern(&program));
    works_on("sparse jacobian", || {
        let mut jacobian = SparseJacobian::new(&program)?;
        jacobian.entries(&program, &x).map(|(_, data)| bits(data))
    });
    let pattern = jacobian_pattern(&program).unwrap();
    works_on("colours", || pattern.colours(n));
}

#[test]
fn long_code_gives_the_numbers_of_the_graph_at_every_run() {
    let (mut graph, recording) = ring(50, 4000);
    let program = recording.program(&graph).unwrap();
    for (input, x) in recording.inputs.iter().zip(point(50)) {
        graph.set_value(*input, x).unwrap();
    }
    let root = recording.outputs[0];
    graph.recompute(root, &[]).unwrap();
    graph.backward(root).unwrap();
    let gradient: Vec<f64> = recording.inputs.iter().map(|&x| graph.grad(x).unwrap()).collect();
    let mut replay = Replay::<f64, 1>::new(&program, Build::Reverse(Seeds::One(0))).unwrap();
    for run in 0..4 {
        replay.inputs_mut().copy_from_slice(&point(50));
        replay.values();
        replay.reverse_one();
        assert_eq!(replay.output(0, 0).to_bits(), graph.value(root).unwrap().to_bits(), "run {run}");
        let found: Vec<f64> = (0..50).map(|k| replay.gradient(k, 0)).collect();
        assert_eq!(bits(&found), bits(&gradient), "run {run}");
    }
}
