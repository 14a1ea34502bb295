//! Labels of nodes: they follow their nodes, and are gone when these are.

use burtorch_core::{Error, Graph, NodeId, Op, Range};

#[test]
fn a_label_is_set_changed_found_and_removed() {
    let mut graph = Graph::<f64>::new();
    let (x, y) = (graph.leaf(1.0).unwrap(), graph.leaf(2.0).unwrap());
    graph.set_label(y, "y").unwrap();
    graph.set_label(x, "x").unwrap();
    graph.set_label(x, "weight").unwrap();
    assert_eq!((graph.label(x), graph.label(y)), (Some("weight"), Some("y")));
    assert_eq!((graph.labelled("weight"), graph.labelled("x")), (Some(x), None));
    graph.set_label(y, "weight").unwrap();
    assert_eq!(graph.labelled("weight"), Some(x), "the first of several");
    assert_eq!(graph.labels().collect::<Vec<_>>(), [(x, "weight"), (y, "weight")]);
    graph.set_label(x, "").unwrap();
    assert_eq!((graph.label(x), graph.labels().count()), (None, 1));
    let beyond = NodeId::from_index(7);
    assert!(matches!(graph.set_label(beyond, "z"), Err(Error::NoSuchNode { .. })));
    assert_eq!(graph.label(beyond), None);
}

#[test]
fn a_rewind_removes_the_labels_of_its_nodes() {
    let mut graph = Graph::<f64>::new();
    let kept = graph.leaf(1.0).unwrap();
    graph.set_label(kept, "kept").unwrap();
    let mark = graph.mark();
    for round in 0..1000 {
        let gone = graph.leaf(2.0).unwrap();
        assert_eq!(graph.label(gone), None, "round {round}: a new node in an old place has no label");
        graph.set_label(gone, "gone").unwrap();
        let root = graph.unary_op(Op::Sqr, gone).unwrap();
        graph.set_label(root, "root").unwrap();
        assert_eq!(graph.labels().count(), 3);
        graph.rewind(mark).unwrap();
        assert_eq!(graph.labels().collect::<Vec<_>>(), [(kept, "kept")]);
    }
}

#[test]
fn labels_follow_reclaim_and_joining() {
    let mut graph = Graph::<f64>::new();
    let nodes: Vec<NodeId> = (0..10).map(|k| graph.leaf(f64::from(k)).unwrap()).collect();
    nodes.iter().for_each(|&node| graph.set_label(node, &format!("n{}", node.index())).unwrap());
    let keep = |live: &mut dyn FnMut(Range)| [3, 7].iter().for_each(|&k| live(Range::new(nodes[k], 1)));
    graph.compact(keep, &mut [], |_| {}).unwrap();
    let at = |k| NodeId::from_index(k);
    assert_eq!(graph.labels().collect::<Vec<_>>(), [(at(0), "n3"), (at(1), "n7")]);
    let mut branches = graph.branches(2).unwrap();
    for (name, mut branch) in ["left", "right"].into_iter().zip(branches.iter_mut()) {
        let x = branch.read(at(1)).unwrap();
        let y = branch.unary_op(Op::Sqr, x).unwrap();
        branch.set_label(x, "another name of n7").unwrap();
        branch.set_label(y, name).unwrap();
    }
    branches.join().unwrap();
    assert_eq!(graph.label(at(1)), Some("n7"), "a node that has a label keeps it");
    let found: Vec<f64> = ["left", "right"].map(|l| graph.value(graph.labelled(l).unwrap()).unwrap()).into();
    assert_eq!(found, [49.0, 49.0]);
}
