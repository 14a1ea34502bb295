//! Branches in places of their graph's own memory: rounds of branches on one graph, regular ones and such that prove every
//! expectation wrong, beside the same graphs built by one thread.

use burtorch_core::{Branch, Error, Graph, NodeId, Op, Range, View};
use proptest::prelude::*;

use super::joining::{Seen, seen};

const N_BRANCHES: usize = 4;

/// The special behaviour of one branch in a round.
#[derive(Clone, Copy, Debug)]
enum Turn {
    Longer,
    Shorter,
    /// Reads a frozen node.
    Reads,
    /// Builds something, clears it, and then builds.
    ClearsFirst,
    /// Runs a backward pass before it is joined.
    Sweeps,
    /// Has branches itself.
    Nests,
}

/// One round: the number of nodes before it, the special behaviour and its branch, and whether branches of the same
/// size are dropped first.
#[derive(Clone, Debug)]
struct Round {
    n_before: usize,
    turn: Option<(Turn, usize)>,
    drops: bool,
}

/// Enough nodes for several threads: scalars, blocks, lists and constants on its own leaves.
fn build(graph: &mut Graph<'static, f64>, n: usize, seed: usize) -> NodeId {
    let start: Vec<f64> = (0..600).map(|k| ((k * 7 + seed) % 100) as f64 / 50.0 - 1.0).collect();
    let mut run = graph.vector(&start).unwrap();
    let mut y = run.first();
    for k in 0..n {
        run = graph.map([Op::Tanh, Op::Sin, Op::Relu][k % 3], run).unwrap();
        let x = run.get(17 * k % 600).unwrap();
        y = graph.binary_op(Op::Mul, y, x).unwrap();
        y = graph.add_constant(y, 0.5).unwrap();
        let views = [View::from(y), View::Nodes(run.slice(3, 9).unwrap()), View::from(x)];
        y = graph.reduce(Op::ReduceMean, (&views[..]).into(), &[]).unwrap();
        y = graph.reduce(Op::ReduceSum, (&[y, x, y][..]).into(), &[]).unwrap();
    }
    let sum = graph.reduce(Op::ReduceSum, run.into(), &[]).unwrap();
    graph.binary_op(Op::Add, y, sum).unwrap()
}

/// Builds a branch of a round, or the same on the whole graph; `x` is its node for the frozen one.
fn build_one(graph: &mut Graph<'static, f64>, turn: Option<Turn>, seed: usize, x: Option<NodeId>) -> NodeId {
    let n = match turn {
        Some(Turn::Longer) => 13,
        Some(Turn::Shorter) => 7,
        _ => 8,
    };
    let root = build(graph, n, seed);
    match x {
        Some(x) => graph.binary_op(Op::Mul, root, x).unwrap(),
        None => root,
    }
}

fn build_branch(branch: &mut Branch<'_, 'static, f64>, turn: Option<Turn>, frozen: NodeId) -> NodeId {
    let seed = branch.number();
    let x = matches!(turn, Some(Turn::Reads)).then(|| branch.read(frozen).unwrap());
    match turn {
        Some(Turn::ClearsFirst) => {
            build(branch, 2, 99);
            branch.clear().unwrap();
        }
        Some(Turn::Nests) => {
            let mut inner = branch.branches(2).unwrap();
            let roots: Vec<_> =
                inner.iter_mut().map(|mut inner| (inner.number(), build(&mut inner, 5, seed))).collect();
            let joined = inner.join().unwrap();
            let [a, b] = [0, 1].map(|k| joined.node(k, roots[k].1).unwrap());
            return branch.binary_op(Op::Add, a, b).unwrap();
        }
        _ => {}
    }
    let root = build_one(branch, turn, seed, x);
    if matches!(turn, Some(Turn::Sweeps)) {
        branch.backward(root).unwrap();
    }
    root
}

/// The round on one thread, without branches.
fn plain(round: &Round) -> Seen {
    let mut graph = Graph::<f64>::new();
    let frozen = before(&mut graph, round);
    let roots: Vec<_> = (0..N_BRANCHES)
        .map(|k| match turn_of(round, k) {
            Some(Turn::Nests) => {
                let [a, b] = [0, 1].map(|_| build(&mut graph, 5, k));
                graph.binary_op(Op::Add, a, b).unwrap()
            }
            turn => build_one(&mut graph, turn, k, matches!(turn, Some(Turn::Reads)).then_some(frozen)),
        })
        .collect();
    finished(&mut graph, &roots)
}

fn before(graph: &mut Graph<'static, f64>, round: &Round) -> NodeId {
    let frozen = graph.leaf(0.75).unwrap();
    for _ in 0..round.n_before {
        graph.unary_op(Op::Cos, frozen).unwrap();
    }
    frozen
}

fn turn_of(round: &Round, branch: usize) -> Option<Turn> {
    round.turn.filter(|turn| turn.1 == branch).map(|turn| turn.0)
}

fn finished(graph: &mut Graph<'static, f64>, roots: &[NodeId]) -> Seen {
    graph.zero_grad();
    let sum = graph.reduce(Op::ReduceSum, roots.into(), &[]).unwrap();
    graph.backward(sum).unwrap();
    seen(graph)
}

/// The round with branches, on a graph that has had branches before. Whether they had reserved regions, and the
/// results.
fn branched(graph: &mut Graph<'static, f64>, round: &Round) -> (bool, Seen) {
    graph.clear().unwrap();
    if round.drops {
        let mut branches = graph.branches(N_BRANCHES).unwrap();
        branches.iter_mut().for_each(|mut branch| _ = build(&mut branch, 8, 5));
    }
    let frozen = before(graph, round);
    let mut branches = graph.branches(N_BRANCHES).unwrap();
    let had_places = branches.iter_mut().all(|branch| branch.is_empty() && branch.capacity() == usual_len());
    let own: Vec<NodeId> = std::thread::scope(|scope| {
        let threads = branches.iter_mut().map(|mut branch| {
            let turn = turn_of(round, branch.number());
            scope.spawn(move || build_branch(&mut branch, turn, frozen))
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let joined = branches.join_on(2).unwrap();
    let roots: Vec<_> = own.iter().enumerate().map(|(k, &node)| joined.node(k, node).unwrap()).collect();
    (had_places, finished(graph, &roots))
}

/// The number of nodes of a branch without special behaviour.
fn usual_len() -> usize {
    let mut graph = Graph::new();
    build_one(&mut graph, None, 0, None);
    graph.len()
}

fn rounds() -> impl Strategy<Value = Vec<Round>> {
    let turn = prop_oneof![
        Just(Turn::Longer),
        Just(Turn::Shorter),
        Just(Turn::Reads),
        Just(Turn::ClearsFirst),
        Just(Turn::Sweeps),
        Just(Turn::Nests),
    ];
    let turn = prop::option::weighted(0.4, (turn, 0..N_BRANCHES));
    let round = (0usize..50, turn, prop::bool::weighted(0.2));
    prop::collection::vec(round.prop_map(|(n_before, turn, drops)| Round { n_before, turn, drops }), 2..7)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(std::env::var("PROPTEST_CASES").map_or(40, |n| n.parse().unwrap())))]

    #[test]
    fn rounds_of_branches_give_the_graphs_of_one_thread(rounds in rounds()) {
        let mut graph = Graph::new();
        for round in &rounds {
            prop_assert!(branched(&mut graph, round).1 == plain(round), "{round:?} of {rounds:?}");
        }
    }
}

const USUAL: Round = Round { n_before: 3, turn: None, drops: false };

#[test]
fn regular_branches_have_reserved_regions_and_memory_for_one_graph() {
    let mut graph = Graph::new();
    let n_places = |graph: &mut _, round: &Round| {
        let (had_places, found) = branched(graph, round);
        assert!(found == plain(round), "{round:?}");
        had_places
    };
    assert!(!n_places(&mut graph, &USUAL), "nothing is known of the first");
    for _ in 0..3 {
        assert!(n_places(&mut graph, &USUAL), "as large as those before");
    }
    // Capacity doubles, so up to twice the need is reserved, without additional memory for the branches.
    assert!(graph.memory().reserved < 2 * 25 * 2 * graph.len(), "{:?}", graph.memory());
    let dropped = Round { drops: true, ..USUAL };
    assert!(n_places(&mut graph, &dropped), "dropped branches give their places back");
    for (turn, wants) in [(Turn::Longer, true), (Turn::Shorter, false), (Turn::Reads, false)] {
        assert_eq!(n_places(&mut graph, &Round { turn: Some((turn, 2)), ..USUAL }), wants, "{turn:?}");
    }
    assert!(!n_places(&mut graph, &USUAL), "two in a row are alike again after this one");
    assert!(n_places(&mut graph, &USUAL));
}

#[test]
fn an_unjoined_branch_keeps_its_reserved_region() {
    let mut graph = Graph::<f64>::new();
    for _ in 0..2 {
        branched(&mut graph, &USUAL);
    }
    graph.clear().unwrap();
    let mut left = graph.new_branches(N_BRANCHES).unwrap();
    let root = build(&mut left[1], 8, 1);
    let value = left[1].value(root).unwrap();
    // The graph moves away from regions that other branches hold.
    let (_, found) = branched(&mut graph, &USUAL);
    assert!(found == plain(&USUAL));
    assert_eq!(left[1].value(root), Ok(value));
    drop(graph);
    left[1].backward(root).unwrap();
    assert_eq!(left[1].value(root), Ok(value));
    let more = build(&mut left[1], 8, 1);
    assert_eq!(left[1].value(more), Ok(value), "it moves to grow");
}

#[test]
fn branches_in_places_are_refused_as_others_are() {
    let mut graph = Graph::<f64>::new();
    for _ in 0..2 {
        branched(&mut graph, &USUAL);
    }
    let mut branches = graph.branches(N_BRANCHES).unwrap();
    let mut branch = branches.iter_mut().next().unwrap();
    let far = Range::new(NodeId::from_index(u32::MAX - 1), 1);
    assert!(matches!(branch.read_range(far), Err(Error::NoSuchNode { .. })));
    assert!(matches!(branch.value(NodeId::from_index(0)), Err(Error::NoSuchNode { .. })), "not the node of its graph");
}
