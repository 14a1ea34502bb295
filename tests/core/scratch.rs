//! Sweeps whose adjoints are in memory of the caller: the same numbers, from several threads at once on one graph.

use burtorch_core::kernels::BlockMath;
use burtorch_core::simd::F64x4;
use burtorch_core::{CrossEntropyTarget, Error, Graph, Init, NodeId, Op, Operands, Parameters, Range, View};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A graph with blocks, lists, views and parameters, and each of its nodes as a possible root.
fn build<S: BlockMath<Elem = f64>>(seed: u64) -> (Graph<'static, S>, Parameters<'static, f64>) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut params = Parameters::new(seed);
    let w = params.tensor(&[3, 4], None, Init::Glorot, true).unwrap();
    let frozen = params.tensor(&[3], None, Init::Glorot, false).unwrap();
    let mut graph = Graph::<S>::new();
    for _ in 0..6 {
        graph.vector(&[S::lit(rng.random_range(-1.0..1.0)); 5]).unwrap();
        let n = graph.len() as u32;
        let mut any = |len: u32| Range::new(NodeId::from_index(rng.random_range(0..=n - len)), len);
        let (x, y, z) = (any(2), any(1), any(4));
        let views = [View::from(x), w.row(1).unwrap().slice(0, 1).unwrap().into(), y.into()];
        graph.affine(&[&params], &views, w.slice(), Some(frozen.slice())).unwrap();
        graph.map(Op::Tanh, z).unwrap();
        graph.softmax_cross_entropy(z, CrossEntropyTarget::Classes(&[2])).unwrap();
        graph.reduce_mean_and_mean_squares(x).unwrap();
        let list = [x.first(), y.first(), x.first()];
        let product = graph.reduce(Op::ReduceMul, Operands::List(&list), &[]).unwrap();
        let rows = [View::from(w.row(2).unwrap())];
        graph.inner_product(z.into(), Operands::Views(&rows), Some(product), &[&params]).unwrap();
        graph.parameter(&params, frozen.slice(), 1).unwrap();
        graph.binary_op(Op::Mul, product, y.first()).unwrap();
    }
    (graph, params)
}

fn scratch_equals_graph<S: BlockMath<Elem = f64>>() {
    for seed in 0..20 {
        let (mut graph, mut params) = build::<S>(seed);
        for root in (0..graph.len() as u32).map(NodeId::from_index) {
            let n = graph.scratch_len(root).unwrap();
            // The old content of the scratch must not matter.
            let mut scratch = vec![S::lit(f64::NAN); n];
            let mut grads = vec![0.0; params.len()];
            let into = params.gradients_into(&mut grads).unwrap();
            let adjoints = graph.backward_with_scratch(root, S::lit(0.7), &mut scratch, &mut [into]).unwrap();
            graph.zero_grad();
            params.zero_grad();
            graph.backward_with(root, S::lit(0.7), &mut [params.gradients()]).unwrap();
            assert_eq!(grads, params.grads());
            for node in (0..graph.len() as u32).map(NodeId::from_index) {
                assert_eq!(Ok(adjoints.get(node)), graph.grad(node), "node {node:?} of root {root:?}");
            }
        }
    }
}

#[test]
fn a_sweep_into_scratch_equals_one_into_the_graph() {
    scratch_equals_graph::<f64>();
}

#[test]
fn a_sweep_of_lanes_into_scratch_equals_one_into_the_graph() {
    scratch_equals_graph::<F64x4>();
}

#[test]
fn too_little_scratch_is_refused_before_anything_is_written() {
    let (graph, mut params) = build::<f64>(1);
    let root = NodeId::from_index(graph.len() as u32 - 1);
    let need = graph.scratch_len(root).unwrap();
    for have in [0, 1, need / 2, need - 1] {
        let mut scratch = vec![7.5; have];
        let refused = graph.backward_with_scratch(root, 1.0, &mut scratch, &mut [params.gradients()]);
        assert_eq!(refused.err(), Some(Error::BufferTooSmall { what: "scratch for this root", need, have }));
        assert!(scratch.iter().all(|&x| x == 7.5) && params.grads().iter().all(|&g| g == 0.0));
    }
    let mut scratch = vec![7.5; need + 100];
    assert!(graph.backward_with_scratch(root, 1.0, &mut scratch, &mut []).is_err(), "parameters are missing");
    assert!(scratch.iter().all(|&x| x == 7.5));
    graph.backward_with_scratch(root, 1.0, &mut scratch, &mut [params.gradients()]).unwrap();
    assert!(scratch[need..].iter().all(|&x| x == 7.5), "only what was asked for is used");
}

#[test]
fn two_threads_sweep_one_frozen_graph() {
    let (graph, params) = build::<f64>(3);
    let (graph, params) = (&graph, &params);
    let roots: Vec<NodeId> = (0..graph.len() as u32).map(NodeId::from_index).collect();
    let sweep_all = || {
        let mut scratch = vec![0.0; roots.iter().map(|&r| graph.scratch_len(r).unwrap()).max().unwrap()];
        let mut grads = vec![0.0; params.len()];
        let mut bits = Vec::new();
        for _ in 0..50 {
            for &root in &roots {
                let into = params.gradients_into(&mut grads).unwrap();
                let adjoints = graph.backward_with_scratch(root, 1.0, &mut scratch, &mut [into]).unwrap();
                bits.extend((0..=root.index()).map(|k| adjoints.get(NodeId::from_index(k)).to_bits()));
            }
        }
        bits.extend(grads.iter().map(|g| g.to_bits()));
        bits
    };
    let alone = sweep_all();
    std::thread::scope(|scope| {
        let (one, two) = (scope.spawn(sweep_all), scope.spawn(sweep_all));
        assert!(one.join().unwrap() == alone && two.join().unwrap() == alone);
    });
}

#[test]
fn the_scratch_follows_the_span_of_the_root() {
    let mut graph = Graph::<f64>::new();
    for k in 0..10_000 {
        graph.leaf(f64::from(k)).unwrap();
    }
    let x = graph.leaf(2.0).unwrap();
    let y = graph.unary_op(Op::Exp, x).unwrap();
    let z = graph.binary_op(Op::Mul, x, y).unwrap();
    assert_eq!(graph.scratch_len(z), Ok(3));
    let reaching_back = graph.binary_op(Op::Add, z, NodeId::from_index(9_000)).unwrap();
    assert_eq!(graph.scratch_len(reaching_back), Ok(1004));
    let mut scratch = [0.0; 3];
    let adjoints = graph.backward_with_scratch(z, 1.0, &mut scratch, &mut []).unwrap();
    assert_eq!(adjoints.get(x), 3.0 * 2.0f64.exp());
    assert_eq!(adjoints.get(NodeId::from_index(0)), 0.0);
    assert_eq!(adjoints.get(reaching_back), 0.0);
}
