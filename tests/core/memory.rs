//! Graphs whose memory is given once, and ends of the index space: what fits, what is refused, what a refusal leaves.

use std::mem::MaybeUninit;

use burtorch_core::simd::{F32x16, F64x8};
use burtorch_core::{
    Capacity, CrossEntropyTarget, Error, Graph, Init, NodeId, Op, Operands, Parameters, RowMath, Scalar, View,
    bytes_needed,
};

/// Builds with `step` until the graph is full; returns the error.
fn fill<S: Scalar>(graph: &mut Graph<'_, S>, step: impl Fn(&mut Graph<'_, S>) -> Result<(), Error>) -> Error {
    loop {
        if let Err(error) = step(graph) {
            return error;
        }
    }
}

/// A chain of `n` nodes from one leaf, and its gradient.
fn chain_of<S: Scalar<Elem: Into<f64>>>(graph: &mut Graph<'_, S>, n: u32) -> f64 {
    let x = graph.leaf(S::lit(1.0)).unwrap();
    let root = (1..n).fold(x, |y, _| graph.unary_op(Op::Neg, y).unwrap());
    graph.backward(root).unwrap();
    graph.grad(x).unwrap().lane(S::LANES - 1).into()
}

#[test]
fn a_fixed_graph_holds_exactly_what_it_was_made_for() {
    for n in [1u32, 2, 7, 64, 1000] {
        let mut graph = Graph::<f64>::fixed(n).unwrap();
        assert!(graph.is_fixed() && graph.capacity() == n as usize);
        assert_eq!(chain_of(&mut graph, n), if n % 2 == 1 { 1.0 } else { -1.0 });
        let last = NodeId::from_index(n - 1);
        let full = Error::GraphFull { column: "nodes", need: n as usize + 1, have: n as usize };
        let (values, grad) = (graph.values().to_vec(), graph.grad(last));
        assert_eq!(graph.unary_op(Op::Exp, last), Err(full));
        assert!(graph.leaf(2.0).is_err() && graph.constant(2.0).is_err() && graph.vector(&[1.0]).is_err());
        assert_eq!((graph.values(), graph.grad(last), graph.len()), (&values[..], grad, n as usize));
        // A full graph is usable: backward passes, and building after a rewind.
        graph.clear().unwrap();
        assert_eq!(chain_of(&mut graph, n).abs(), 1.0);
        // All nodes may be leaves.
        graph.clear().unwrap();
        graph.vector(&vec![0.5; n as usize]).unwrap();
    }
}

#[test]
fn a_reduction_and_an_inner_product_of_ranges_fit_with_their_operands() {
    for n in [3u32, 10, 100, 1000] {
        let mut graph = Graph::<f32>::fixed(n).unwrap();
        let v = graph.vector(&vec![2.0; n as usize - 2]).unwrap();
        let product = graph.inner_product(v.into(), v.into(), None, &[]).unwrap();
        let sum = graph.reduce(Op::ReduceSum, v.into(), &[]).unwrap();
        graph.backward(product).unwrap();
        graph.backward(sum).unwrap();
        assert_eq!(graph.grad(v.first()), Ok(5.0));
    }
}

#[test]
fn every_column_says_when_it_is_full_and_nothing_changes() {
    let room = Capacity { nodes: 100, leaves: 3, operand_lists: 7, temporaries: 6, rewinds: 1 };
    let mut graph = Graph::<f64>::fixed(room).unwrap();
    let v = graph.vector(&[1.0, 2.0, 4.0]).unwrap();
    let list = [v.get(2).unwrap(), v.first(), v.first()];
    let product = graph.reduce(Op::ReduceMul, Operands::List(&list), &[]).unwrap();
    let picture = |graph: &Graph<'_, f64>| (graph.values().to_vec(), graph.memory(), graph.stores().to_vec());
    let before = picture(&graph);
    assert_eq!(graph.leaf(1.0), Err(Error::GraphFull { column: "leaves", need: 4, have: 3 }));
    assert!(matches!(graph.vector(&[1.0, 1.0]), Err(Error::GraphFull { column: "leaves", .. })));
    let more = [list[0], list[1], list[0], list[1], list[0]];
    let refused = graph.reduce(Op::ReduceSum, Operands::List(&more), &[]);
    assert_eq!(refused, Err(Error::GraphFull { column: "operand lists", need: 8, have: 7 }));
    let refused = graph.reduce(Op::ReduceSum, Operands::List(&more[..4]), &[]);
    assert_eq!(refused, Err(Error::GraphFull { column: "temporaries", need: 8, have: 6 }));
    assert!(graph.inner_product(Operands::List(&list), v.into(), Some(product), &[]).is_err());
    assert!(
        graph.map(Op::Exp, v).is_ok() && graph.softmax_cross_entropy(v, CrossEntropyTarget::Classes(&[0])).is_err()
    );
    let mark = graph.mark();
    graph.constants(&[0.0; 90]).unwrap();
    assert!(matches!(graph.map(Op::Exp, v), Err(Error::GraphFull { .. })));
    graph.rewind(mark).unwrap();
    // A second rewind to more nodes would need a separate log entry.
    graph.constant(0.0).unwrap();
    let higher = graph.mark();
    graph.constant(0.0).unwrap();
    assert_eq!(graph.rewind(higher), Err(Error::GraphFull { column: "rewinds", need: 2, have: 1 }));
    assert_eq!(graph.len(), before.0.len() + 5);
    graph.rewind(mark).unwrap();
    assert_eq!(graph.values()[..4], before.0);
    assert_eq!((graph.memory().leaves, graph.memory().nodes), (before.1.leaves, 7));
    graph.backward(product).unwrap();
    assert_eq!([0, 1, 2].map(|k| graph.grad(v.get(k).unwrap()).unwrap()), [8.0, 0.0, 1.0]);
}

/// A graph in exactly the number of bytes needed, at every misalignment of the buffer.
fn in_exactly_enough<S: Scalar<Elem: Into<f64>>>(n: u32) {
    let need = bytes_needed::<S>(n).unwrap();
    let per_node = 1 + 8 + 2 * size_of::<S>() + (4 + size_of::<S>()) + 8 + size_of::<S>() + 4;
    assert!(need <= n as usize * per_node + 64 * 16 + 26 * size_of::<S>() + 256, "{need} bytes for {n} nodes");
    let mut memory = vec![MaybeUninit::<u8>::uninit(); need + 64];
    for shift in [0, 1, 3, 32, 63] {
        let mut graph = Graph::<S>::in_buffers(&mut memory[shift..shift + need], n).unwrap();
        assert!(graph.is_fixed());
        assert_eq!(chain_of(&mut graph, n).abs(), 1.0);
        assert!(matches!(graph.leaf(S::lit(0.0)), Err(Error::GraphFull { .. })));
    }
    let small = Graph::<S>::in_buffers(&mut memory[..need - 64], n);
    let have = need - 64;
    assert_eq!(small.err(), Some(Error::BufferTooSmall { what: "a graph in buffers (in bytes)", need, have }));
}

#[test]
fn a_graph_fits_in_the_bytes_it_asks_for() {
    for n in [1, 5, 100, 4096] {
        in_exactly_enough::<f32>(n);
        in_exactly_enough::<f64>(n);
        in_exactly_enough::<F32x16>(n);
        in_exactly_enough::<F64x8>(n);
    }
    assert!(Graph::<f64>::in_buffers(&mut [], 0).is_err());
    let huge = Capacity {
        nodes: u32::MAX,
        leaves: u32::MAX,
        operand_lists: u32::MAX,
        temporaries: u32::MAX,
        rewinds: u32::MAX,
    };
    assert!(Graph::<F64x8>::in_buffers(&mut [], huge).is_err());
    bytes_needed::<F64x8>(huge).unwrap();
}

#[test]
fn the_index_space_ends_with_an_error() {
    for limit in [0, 1, 10, 255, 256, 300, 1000] {
        let mut graph = Graph::<f32>::with_index_limit(limit);
        let exhausted = Error::IndexExhausted { limit };
        assert_eq!(fill(&mut graph, |g| g.leaf(1.0).map(drop)), exhausted);
        assert_eq!(graph.len(), limit as usize);
        if limit > 0 {
            let last = NodeId::from_index(limit - 1);
            assert_eq!(graph.unary_op(Op::Exp, last), Err(exhausted.clone()));
            let of_last: View = last.into();
            assert_eq!(graph.reduce(Op::ReduceSum, Operands::Views(&[of_last, of_last]), &[]), Err(exhausted));
            graph.backward(last).unwrap();
            assert_eq!((graph.grad(last), graph.memory().operand_lists), (Ok(1.0), 0));
            graph.clear().unwrap();
            graph.vector(&vec![0.0; limit as usize]).unwrap();
            assert!(graph.vector(&[0.0]).is_err());
        }
    }
}

#[test]
fn a_block_that_does_not_fit_leaves_nothing_behind() {
    let mut params = Parameters::<f64>::new(0);
    let w = params.tensor(&[40, 2], None, Init::Glorot, true).unwrap();
    let mut graph = Graph::<f64>::with_index_limit(45);
    let x = graph.vector(&[1.0, 2.0]).unwrap();
    graph.affine(&[&params], &[x.into()], w.slice(), None).unwrap();
    let before = (graph.len(), graph.memory(), graph.stores().len());
    assert_eq!(graph.affine(&[&params], &[x.into()], w.slice(), None), Err(Error::IndexExhausted { limit: 45 }));
    assert!(graph.map(Op::Exp, burtorch_core::Range::new(x.first(), 10)).is_err());
    assert_eq!((graph.len(), graph.memory(), graph.stores().len()), before);
}

#[test]
fn a_size_that_no_memory_has_is_an_error() {
    let mut graph = Graph::<F64x8>::new();
    assert!(matches!(Graph::<F64x8>::with_capacity(u32::MAX), Ok(_) | Err(Error::OutOfMemory { .. })));
    let x = graph.leaf(F64x8::lit(1.0)).unwrap();
    assert_eq!(graph.grad(x), Ok(F64x8::lit(0.0)));
}
