//! What is not joined leaves no trace, and an error of joining appends nothing.

use burtorch_core::{Error, Graph, Init, NodeId, Op, Parameters};

use super::joining::seen;

fn small() -> (Graph<'static, f64>, NodeId) {
    let mut graph = Graph::new();
    let x = graph.leaf(1.5).unwrap();
    graph.unary_op(Op::Sqr, x).unwrap();
    (graph, x)
}

#[test]
fn branches_that_are_dropped_append_nothing() {
    let (mut graph, x) = small();
    let before = seen(&graph);
    {
        let mut branches = graph.branches(3).unwrap();
        for mut branch in branches.iter_mut() {
            let x = branch.read(x).unwrap();
            branch.unary_op(Op::Exp, x).unwrap();
        }
    }
    assert_eq!(seen(&graph), before);
    graph.leaf(1.0).unwrap();
}

#[test]
fn a_panic_in_one_branch_drops_all_of_them() {
    let (mut graph, x) = small();
    let before = seen(&graph);
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut branches = graph.branches(4).unwrap();
        std::thread::scope(|scope| {
            for mut branch in branches.iter_mut() {
                scope.spawn(move || {
                    let x = branch.read(x).unwrap();
                    branch.unary_op(Op::Exp, x).unwrap();
                    assert!(branch.number() != 2, "this branch fails");
                });
            }
        });
        branches.join().unwrap()
    }));
    assert!(caught.is_err());
    assert_eq!(seen(&graph), before);
}

#[test]
fn a_branch_that_is_cleared_appends_nothing_and_the_others_all() {
    let (mut graph, x) = small();
    let mut branches = graph.branches(3).unwrap();
    for mut branch in branches.iter_mut() {
        let x = branch.read(x).unwrap();
        branch.unary_op(Op::Exp, x).unwrap();
        if branch.number() == 1 {
            branch.clear().unwrap();
        }
    }
    branches.join().unwrap();
    assert_eq!(graph.len(), 4);
}

#[test]
fn no_branches_are_refused() {
    let (mut graph, _) = small();
    assert!(matches!(graph.branches(0), Err(Error::BadArgument { .. })));
}

#[test]
fn a_full_graph_takes_all_or_nothing() {
    let mut fixed = Graph::<f64>::fixed(8).unwrap();
    let mut limited = Graph::<f64>::with_index_limit(8);
    for graph in [&mut fixed, &mut limited] {
        let x = graph.leaf(2.0).unwrap();
        let before = seen(graph);
        let mut branches = graph.branches(2).unwrap();
        for mut branch in branches.iter_mut() {
            let mut y = branch.read(x).unwrap();
            for _ in 0..4 {
                y = branch.unary_op(Op::Neg, y).unwrap();
            }
        }
        let error = branches.join().unwrap_err();
        assert!(matches!(error, Error::GraphFull { .. } | Error::IndexExhausted { .. }), "{error}");
        assert_eq!(seen(graph), before);
        assert_eq!(graph.leaf(1.0).map(NodeId::index), Ok(1));
    }
}

#[test]
fn branches_that_read_many_parameters() {
    let (mut graph, _) = small();
    let stores: Vec<_> = (0..12)
        .map(|k| {
            let mut params = Parameters::<f64>::new(0);
            let w = params.tensor(&[1], None, Init::Constant((k % 4 + 1) as f64), true).unwrap().slice();
            (params, w)
        })
        .collect();
    let mut branches = graph.branches(2).unwrap();
    for mut branch in branches.iter_mut() {
        let k = branch.number();
        for (params, w) in &stores[6 * k..6 * k + 6] {
            branch.leaf(1.0).unwrap();
            branch.parameter(params, *w, 0).unwrap();
        }
    }
    let mut read = Vec::new();
    let joined = branches.join().unwrap();
    for k in 0..12u32 {
        read.push(joined.node(k as usize / 6, NodeId::from_index(2 * (k % 6) + 1)).unwrap());
    }
    let ids: Vec<_> = stores.iter().map(|(params, _)| params.id()).collect();
    assert_eq!(graph.stores(), ids);
    let root = graph.reduce(Op::ReduceMul, burtorch_core::Operands::List(&read), &[]).unwrap();
    let mut stores = stores;
    let mut gradients: Vec<_> = stores.iter_mut().map(|(params, _)| params.gradients()).collect();
    graph.backward_with(root, 1.0, &mut gradients).unwrap();
    assert!(stores.iter().enumerate().all(|(k, (params, _))| params.grads() == [24.0 / (k % 4 + 1) as f64 * 576.0]));
}

#[test]
fn a_frozen_node_that_does_not_exist_is_refused() {
    let (mut graph, _) = small();
    let mut branches = graph.branches(1).unwrap();
    let mut branch = branches.iter_mut().next().unwrap();
    assert_eq!(branch.read(NodeId::from_index(2)), Err(Error::NoSuchNode { index: 2, len: 2 }));
    assert_eq!(branch.len(), 0);
}

#[test]
fn a_branch_builds_constants_where_its_graph_does() {
    let (mut graph, x) = small();
    graph.set_no_grad(true);
    let mut branches = graph.branches(1).unwrap();
    let mut branch = branches.iter_mut().next().unwrap();
    let x = branch.read(x).unwrap();
    let y = branch.unary_op(Op::Exp, x).unwrap();
    assert_eq!(branch.op(y), Ok(Op::Constant));
    branches.join().unwrap();
    assert_eq!(graph.len(), 3);
}
