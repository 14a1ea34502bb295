//! Graphs in the checkpoint format: what was saved comes back and goes on alike; other structures, forged structures and bad
//! numbers are refused, and what is accepted can be swept.

use burtorch_core::io::{Contents, Loaded, Nodes, Stored};
use burtorch_core::kernels::BlockMath;
use burtorch_core::simd::F32x8;
use burtorch_core::{CrossEntropyTarget, Error, Graph, Init, NodeId, Op, Operands, Parameters, Scalar, View};
use proptest::prelude::*;

use super::{damage, forged};

/// A graph with operands of every kind and every kind of block, and its last node.
pub fn rich<S: BlockMath>(params: &mut Parameters<'_, S::Elem>) -> (Graph<'static, S>, NodeId) {
    let w = params.tensor(&[3, 5], Some("w"), Init::Glorot, true).unwrap();
    let b = params.tensor(&[3], Some("bias"), Init::Constant(0.25), true).unwrap();
    let frozen = params.tensor(&[2], None, Init::Constant(1.5), false).unwrap();
    let params = &*params;
    let mut graph = Graph::<S>::new();
    let x = graph.vector(&[0.5, -1.25, 2.0, 0.75].map(S::lit)).unwrap();
    let c = graph.with_constant::<burtorch_core::ops::MulByConstant>(x.first(), S::lit(3.0)).unwrap();
    let p = graph.parameter(params, frozen.slice(), 1).unwrap();
    let q = graph.parameter(params, w.slice(), 2).unwrap();
    let views = [View::from(x), View::from(c)];
    let hidden = graph.affine(&[params], &views, w.slice(), Some(b.slice())).unwrap();
    let act = graph.map(Op::Tanh, hidden).unwrap();
    let list = [act.get(2).unwrap(), x.first(), x.first(), p];
    let product = graph.reduce(Op::ReduceMul, Operands::List(&list), &[]).unwrap();
    let mean = graph.reduce(Op::ReduceMean, x.into(), &[]).unwrap();
    let mixed = [View::from(act), View::from(frozen.slice())];
    let inner =
        graph.inner_product(Operands::Views(&mixed), Operands::List(&[c, q, product, mean, p]), Some(q), &[params]);
    let (m, s) = graph.reduce_mean_and_mean_squares(act).unwrap();
    let by_class = graph.softmax_cross_entropy(act, CrossEntropyTarget::Classes(&[1])).unwrap();
    let by_weight = graph.softmax_cross_entropy(hidden, CrossEntropyTarget::Probabilities(act)).unwrap();
    let last = [inner.unwrap(), m, s, by_class, by_weight, mean, product];
    let total = graph.reduce(Op::ReduceSum, Operands::List(&last), &[]).unwrap();
    let root = graph.unary_op(Op::Exp, total).unwrap();
    (graph, root)
}

/// Builds a graph over these parameters, and names its last node.
pub type Build<S> = fn(&mut Parameters<'_, <S as Scalar>::Elem>) -> (Graph<'static, S>, NodeId);

pub fn bits<S: BlockMath<Elem: Stored>>(graph: &Graph<'_, S>) -> Vec<u8> {
    let range = graph.nodes_between(0, graph.len() as u32 - 1).unwrap();
    graph.to_raw(Nodes::Run(range), Contents::Both).unwrap()
}

pub fn comes_back<S: BlockMath<Elem: Stored>>(build: Build<S>) {
    let mut params = Parameters::<S::Elem>::new(7);
    let (mut graph, root) = build(&mut params);
    graph.backward_with(root, S::lit(1.0), &mut [params.gradients()]).unwrap();
    params.zero_grad();
    #[cfg(feature = "labels")]
    let labels = [(0, "x"), (4, "c \"quoted\"\n∇")];
    #[cfg(feature = "labels")]
    for (node, label) in labels {
        graph.set_label(NodeId::from_index(node), label).unwrap();
    }
    let file = graph.to_bytes(Contents::Both).unwrap();
    let mut copy = Loaded::<S>::from_bytes(&file, &[&params]).unwrap().graph;
    #[cfg(feature = "labels")]
    assert_eq!(copy.labels().map(|(node, label)| (node.index(), label)).collect::<Vec<_>>(), labels);
    assert_eq!(bits(&copy), bits(&graph));
    assert_eq!(copy.to_bytes(Contents::Both).unwrap(), file);
    // Both continue equally: an accumulating backward pass, a recomputation, a compaction, and building.
    let mut grads = Vec::new();
    for g in [&mut graph, &mut copy] {
        g.backward_with(root, S::lit(1.0), &mut [params.gradients()]).unwrap();
        grads.push(params.grads().iter().map(|x| x.sum_lanes()).collect::<Vec<_>>());
        params.zero_grad();
        g.set_value(NodeId::from_index(1), S::lit(0.125)).unwrap();
        g.recompute(root, &[&params]).unwrap();
        let live = burtorch_core::Range::new(root, 1);
        g.compact(|alive| alive(live), &mut [], |_| ()).unwrap();
        g.leaf(S::lit(9.0)).unwrap();
    }
    assert_eq!(grads[0], grads[1]);
    assert_eq!(bits(&copy), bits(&graph));
    assert_eq!(copy.to_bytes(Contents::Both).unwrap(), graph.to_bytes(Contents::Both).unwrap());
    // A compacted graph can be saved and loaded too.
    let again = graph.to_bytes(Contents::Values).unwrap();
    assert_eq!(bits(&Loaded::<S>::from_bytes(&again, &[&params]).unwrap().graph).len(), bits(&graph).len());
}

#[test]
fn a_restored_graph_continues_equally() {
    comes_back::<f64>(rich);
    comes_back::<f32>(rich);
    comes_back::<F32x8>(rich);
}

#[test]
fn loading_into_a_graph_of_equal_structure_overwrites_numbers_only() {
    let mut params = Parameters::<f64>::new(1);
    let (mut graph, root) = rich::<f64>(&mut params);
    graph.backward_with(root, 1.0, &mut [params.gradients()]).unwrap();
    let before = bits(&graph);
    let file = graph.to_bytes(Contents::Both).unwrap();
    let values_only = graph.to_bytes(Contents::Values).unwrap();
    graph.values_mut().fill(0.0);
    graph.zero_grad();
    let epoch = graph.epoch();
    graph.load_bytes(&values_only).unwrap();
    assert_eq!(bits(&graph)[..before.len() / 2], before[..before.len() / 2]);
    assert!(bits(&graph)[before.len() / 2..].iter().all(|&byte| byte == 0));
    graph.load_bytes(&file).unwrap();
    assert_eq!((bits(&graph), graph.epoch()), (before, epoch));
}

#[test]
fn another_structure_is_refused_and_nothing_changes() {
    let build = |changes: usize| {
        let mut g = Graph::<f64>::new();
        let x = g.leaf(2.0).unwrap();
        let y = if changes == 1 { g.constant(3.0) } else { g.leaf(3.0) }.unwrap();
        let (a, b) = if changes == 2 { (y, x) } else { (x, y) };
        let z = g.binary_op(if changes == 3 { Op::Add } else { Op::Sub }, a, b).unwrap();
        let list = if changes == 4 { [z, x, x] } else { [z, x, y] };
        g.reduce(Op::ReduceSum, Operands::List(&list), &[]).unwrap();
        let run = burtorch_core::Range::new(x, 2);
        g.map(if changes == 5 { Op::Exp } else { Op::Tanh }, run).unwrap();
        if changes == 6 {
            g.leaf(1.0).unwrap();
        }
        g
    };
    let file = build(0).to_bytes(Contents::Both).unwrap();
    for changes in 1..7 {
        let mut other = build(changes);
        let before = bits(&other);
        let refused = other.load_bytes(&file).unwrap_err();
        assert!(matches!(refused, Error::Format { .. }), "{changes}: {refused}");
        assert_eq!(bits(&other), before, "{changes}");
    }
    let mut same = build(0);
    same.values_mut().fill(1.0);
    same.load_bytes(&file).unwrap();
    assert_eq!(bits(&same), bits(&build(0)));
    let as_f32 = Loaded::<f32>::from_bytes(&file, &[]).unwrap_err().to_string();
    assert!(as_f32.contains("float64 numbers in 1 lanes, expected float32"), "{as_f32}");
}

#[test]
fn a_graph_that_reads_parameters_requires_them() {
    let mut params = Parameters::<f64>::new(1);
    let (graph, _) = rich::<f64>(&mut params);
    let file = graph.to_bytes(Contents::Values).unwrap();
    assert!(matches!(Loaded::<f64>::from_bytes(&file, &[]), Err(Error::BadArgument { .. })));
    assert!(matches!(Loaded::<f64>::from_bytes(&file, &[&params, &params]), Err(Error::BadArgument { .. })));
    let mut short = Parameters::<f64>::new(1);
    short.tensor(&[19], None, Init::Glorot, true).unwrap();
    assert!(matches!(Loaded::<f64>::from_bytes(&file, &[&short]), Err(Error::BadArgument { .. })));
}

#[test]
fn a_range_alone_is_loaded_where_it_came_from() {
    let mut graph = Graph::<f64>::new();
    graph.vector(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
    let y = graph.unary_op(Op::Sqr, NodeId::from_index(2)).unwrap();
    graph.backward(y).unwrap();
    let range = graph.nodes_between(1, 3).unwrap();
    let before = bits(&graph);
    for contents in [Contents::Values, Contents::Gradients, Contents::Both] {
        let file = graph.range_to_bytes(range, contents).unwrap();
        let mut other = Graph::<f64>::new();
        other.vector(&[0.0; 3]).unwrap();
        assert!(matches!(other.load_bytes(&file), Err(Error::Format { .. })));
        graph.values_mut()[1..4].fill(9.0);
        graph.zero_grad();
        graph.load_bytes(&file).unwrap();
        let half = before.len() / 2;
        assert_eq!(bits(&graph)[..half] == before[..half], contents.has_values());
        assert_eq!(graph.grad(NodeId::from_index(2)) == Ok(6.0), contents.has_gradients());
        graph.values_mut()[1..4].copy_from_slice(&[2.0, 3.0, 4.0]);
        graph.set_grad(NodeId::from_index(2), 6.0).unwrap();
    }
}

/// Loads a file that may be forged; what is accepted must bear all that is done with graphs.
pub fn survives(file: &[u8], params: &mut Parameters<'static, f64>) -> bool {
    let Ok(Loaded { mut graph, .. }) = Loaded::<f64>::from_bytes(file, &[params]) else { return false };
    let root = NodeId::from_index(graph.len() as u32 - 1);
    graph.backward_with(root, 1.0, &mut [params.gradients()]).unwrap();
    graph.recompute(root, &[params]).unwrap();
    let _ = graph.find_nonfinite();
    graph.compact(|alive| alive(burtorch_core::Range::new(root, 1)), &mut [], |_| ()).unwrap();
    graph.to_bytes(Contents::Both).unwrap();
    true
}

#[test]
fn a_hundred_thousand_mutations_are_refused() {
    let mut params = Parameters::<f64>::new(1);
    let (graph, _) = rich::<f64>(&mut params);
    let file = graph.to_bytes(Contents::Both).unwrap();
    let refused = (0..100_000u64).filter(|&seed| {
        let damaged = damage(&file, seed);
        damaged == file || matches!(Loaded::<f64>::from_bytes(&damaged, &[&params]), Err(Error::Format { .. }))
    });
    assert_eq!(refused.count(), 100_000);
}

#[test]
fn forged_structures_are_refused_or_harmless() {
    let mut params = Parameters::<f64>::new(1);
    let (graph, _) = rich::<f64>(&mut params);
    let file = graph.to_bytes(Contents::Both).unwrap();
    assert!(survives(&file, &mut params));
    // Every byte of the structure is set to values that indices and opcodes may be confused with.
    let mut accepted = 0;
    for at in 0..file.len() - burtorch_core::io::HEADER_BYTES {
        for byte in [0, 1, 2, 7, 20, 64, 128, 255] {
            accepted += u32::from(survives(&forged(&file, |payload| payload[at] = byte), &mut params));
        }
    }
    assert!(accepted > 100, "{accepted}");
}

proptest! {
    #[test]
    fn forged_numbers_are_refused_or_harmless(changes in prop::collection::vec((any::<u16>(), any::<u32>()), 1..4)) {
        let mut params = Parameters::<f64>::new(1);
        let (graph, _) = rich::<f64>(&mut params);
        let file = graph.to_bytes(Contents::Both).unwrap();
        survives(&forged(&file, |payload| {
            for &(at, number) in &changes {
                let words = payload.len() / 4;
                let at = at as usize % words * 4;
                payload[at..at + 4].copy_from_slice(&(number % 64).to_le_bytes());
            }
        }), &mut params);
    }
}
