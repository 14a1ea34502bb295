//! Softmax, its logarithm, log-sum-exp, norm, max and min of many: against their expansion into scalar nodes, over every
//! form of operands, in lanes, after compaction and recomputation.

use burtorch_core::simd::{F32x8, F64x4};
use burtorch_core::{Float, Graph, Init, NodeId, Op, Operands, Parameters, Range, Scalar, Tensor, View};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const BLOCKS: [Op; 2] = [Op::Softmax, Op::LogSoftmax];
const REDUCTIONS: [Op; 4] = [Op::LogSumExp, Op::Norm2, Op::ReduceMax, Op::ReduceMin];

struct Scene {
    graph: Graph<'static, f64>,
    params: Parameters<'static, f64>,
    w: Tensor,
    x: Range,
}

fn scene(seed: u64, spread: f64) -> Scene {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut params = Parameters::new(seed);
    let w = params.tensor(&[6], None, Init::Uniform(-spread, spread), true).unwrap();
    let mut graph = Graph::new();
    let numbers: Vec<f64> = (0..rng.random_range(1..40)).map(|_| rng.random_range(-spread..spread)).collect();
    let x = graph.vector(&numbers).unwrap();
    Scene { graph, params, w, x }
}

/// Operands in each form; also as ids if they are nodes of the graph.
fn forms(scene: &mut Scene) -> Vec<(Vec<View>, Vec<NodeId>)> {
    let ids: Vec<NodeId> = scene.x.nodes().collect();
    let run = (vec![View::from(scene.x)], ids.clone());
    let backwards: Vec<NodeId> = ids.iter().rev().copied().chain([ids[0]]).collect();
    let list = (backwards.iter().map(|&node| View::from(node)).collect(), backwards);
    let slice = scene.w.slice().slice(1, 4).unwrap();
    let nodes: Vec<NodeId> = (0..3).map(|k| scene.graph.parameter(&scene.params, slice, k).unwrap()).collect();
    let mixed = (vec![View::from(scene.x), slice.into(), View::from(ids[0])], [&ids[..], &nodes, &ids[..1]].concat());
    vec![run, list, mixed]
}

/// The expansion of `op` into scalar nodes, by definition.
fn expand(graph: &mut Graph<'static, f64>, op: Op, x: &[NodeId]) -> Vec<NodeId> {
    let top = x.iter().map(|&x| graph.value(x).unwrap()).fold(f64::NEG_INFINITY, f64::max);
    let mut powers = Vec::new();
    for &x in x {
        let shifted = graph.add_constant(x, -top).unwrap();
        powers.push(graph.unary_op(Op::Exp, shifted).unwrap());
    }
    let total = graph.reduce(Op::ReduceSum, Operands::List(&powers), &[]).unwrap();
    let log = graph.unary_op(Op::Log, total).unwrap();
    let log = graph.add_constant(log, top).unwrap();
    match op {
        Op::Softmax => powers.iter().map(|&p| graph.binary_op(Op::Div, p, total).unwrap()).collect(),
        Op::LogSoftmax => x.iter().map(|&x| graph.binary_op(Op::Sub, x, log).unwrap()).collect(),
        Op::LogSumExp => vec![log],
        Op::Norm2 => {
            let squares = graph.reduce(Op::ReduceSumOfSquares, Operands::List(x), &[]).unwrap();
            vec![graph.unary_op(Op::Sqrt, squares).unwrap()]
        }
        _ => {
            let op = if op == Op::ReduceMax { Op::Max } else { Op::Min };
            vec![x[1..].iter().fold(x[0], |a, &b| graph.binary_op(op, a, b).unwrap())]
        }
    }
}

/// Values and gradients of a weighted sum of the outputs.
fn weighted(scene: &mut Scene, outputs: &[NodeId]) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let values = outputs.iter().map(|&y| scene.graph.value(y).unwrap()).collect();
    let mut terms = Vec::new();
    // Some outputs are omitted: they must not contribute.
    for (k, &y) in outputs.iter().enumerate().filter(|(k, _)| k % 3 != 1) {
        terms.push(scene.graph.with_constant::<burtorch_core::ops::MulByConstant>(y, (k as f64).cos()).unwrap());
    }
    let root = scene.graph.reduce(Op::ReduceSum, Operands::List(&terms), &[]).unwrap();
    scene.graph.zero_grad();
    scene.params.zero_grad();
    scene.graph.backward_with(root, 1.0, &mut [scene.params.gradients()]).unwrap();
    let grads = scene.x.nodes().map(|x| scene.graph.grad(x).unwrap()).collect();
    (values, grads, scene.params.grads().to_vec())
}

fn close(found: &[f64], wanted: &[f64]) -> bool {
    found.len() == wanted.len() && found.iter().zip(wanted).all(|(f, w)| (f - w).abs() <= 1e-12 * (1.0 + w.abs()))
}

fn build(scene: &mut Scene, op: Op, views: &[View]) -> Vec<NodeId> {
    if BLOCKS.contains(&op) {
        return scene.graph.softmax(op, Operands::Views(views), &[&scene.params]).unwrap().nodes().collect();
    }
    vec![scene.graph.reduce(op, Operands::Views(views), &[&scene.params]).unwrap()]
}

#[test]
fn values_and_gradients_equal_those_of_scalar_nodes() {
    for seed in 0..200 {
        for op in BLOCKS.into_iter().chain(REDUCTIONS) {
            let mut scene = scene(seed, if seed % 2 == 0 { 3.0 } else { 30.0 });
            for (views, ids) in forms(&mut scene) {
                // A repeated node ties with itself: its shares differ from those of a chain of pairs.
                let is_extreme = matches!(op, Op::ReduceMax | Op::ReduceMin);
                let views = if is_extreme { vec![scene.x.into()] } else { views };
                let ids = if is_extreme { scene.x.nodes().collect() } else { ids };
                let outputs = build(&mut scene, op, &views);
                let found = weighted(&mut scene, &outputs);
                let wanted = expand(&mut scene.graph, op, &ids);
                let wanted = weighted(&mut scene, &wanted);
                assert!(close(&found.0, &wanted.0), "{op:?} {seed}: {:?} instead of {:?}", found.0, wanted.0);
                assert!(close(&found.1, &wanted.1), "{op:?} {seed}: {:?} instead of {:?}", found.1, wanted.1);
                assert!(close(&found.2, &wanted.2), "{op:?} {seed}: {:?} instead of {:?}", found.2, wanted.2);
            }
        }
    }
}

#[test]
fn softmax_at_the_edges() {
    const INF: f64 = f64::INFINITY;
    let rows: &[(&[f64], &[f64])] = &[
        (&[5.0], &[1.0]),
        (&[1e308, -1e308], &[1.0, 0.0]),
        (&[-INF, 0.0], &[0.0, 1.0]),
        (&[INF, 0.0], &[1.0, 0.0]),
        (&[INF, INF, 0.0], &[0.5, 0.5, 0.0]),
        (&[-INF, -INF], &[0.5, 0.5]),
        (&[-1000.0, -1000.0, -1000.0, -1000.0], &[0.25; 4]),
    ];
    for (x, wanted) in rows {
        for op in BLOCKS {
            let mut graph = Graph::<f64>::new();
            let leaves = graph.vector(x).unwrap();
            let y = graph.softmax(op, leaves.into(), &[]).unwrap();
            for (node, &p) in y.nodes().zip(*wanted) {
                let wanted = if op == Op::Softmax { p } else { p.ln() };
                let found = graph.value(node).unwrap();
                assert!(found == wanted || (found - wanted).abs() < 1e-15, "{op:?} {x:?}: {found}, not {wanted}");
            }
            graph.backward(y.first()).unwrap();
            assert!(leaves.nodes().all(|x| graph.grad(x).unwrap().is_finite()), "{op:?} {x:?}");
        }
    }
    for op in BLOCKS {
        let mut graph = Graph::<f64>::new();
        let leaves = graph.vector(&[0.0, f64::NAN, INF]).unwrap();
        let y = graph.softmax(op, leaves.into(), &[]).unwrap();
        assert!(y.nodes().all(|y| graph.value(y).unwrap().is_nan()));
        graph.backward(y.first()).unwrap();
        assert!(leaves.nodes().all(|x| graph.grad(x).unwrap().is_nan()));
    }
    // A term far below 1 is not lost.
    let mut graph = Graph::<f64>::new();
    let leaves = graph.vector(&[0.0, -40.0]).unwrap();
    let y = graph.softmax(Op::LogSoftmax, leaves.into(), &[]).unwrap();
    let loss = -graph.value(y.first()).unwrap();
    assert!((loss / 4.248354255291589e-18 - 1.0).abs() < 1e-15, "{loss}");
}

#[test]
fn misuse_changes_nothing() {
    let mut graph = Graph::<f64>::new();
    let x = graph.vector(&[1.0, 2.0]).unwrap();
    assert!(graph.softmax(Op::Tanh, x.into(), &[]).is_err());
    assert!(graph.softmax(Op::Softmax, Operands::List(&[]), &[]).is_err());
    assert!(graph.softmax(Op::Softmax, Range::new(x.first(), 3).into(), &[]).is_err());
    let mut other = Parameters::<f64>::new(0);
    let w = other.tensor(&[2], None, Init::Constant(0.0), true).unwrap();
    assert!(graph.softmax(Op::Softmax, Operands::Views(&[w.slice().into()]), &[]).is_err());
    assert_eq!((graph.len(), graph.memory().operand_lists), (2, 0));
    let mut full = Graph::<f64>::fixed(3).unwrap();
    let x = full.vector(&[1.0, 2.0]).unwrap();
    assert!(full.softmax(Op::Softmax, x.into(), &[]).is_err());
    assert_eq!(full.len(), 2);
}

#[test]
fn compaction_recomputation_and_no_grad_keep_them() {
    for op in BLOCKS {
        let mut scene = scene(3, 3.0);
        let waste = scene.graph.vector(&[0.0; 700]).unwrap();
        let more = scene.graph.vector(&[0.5, -0.5]).unwrap();
        let views = [View::from(scene.x), more.into(), scene.w.slice().into()];
        let mut y = scene.graph.softmax(op, Operands::Views(&views), &[&scene.params]).unwrap();
        let before: Vec<f64> = y.nodes().map(|y| scene.graph.value(y).unwrap()).collect();
        let mut live = [scene.x, more, y];
        let was = live;
        let left = scene
            .graph
            .compact(
                |keep| was.iter().for_each(|&range| keep(range)),
                &mut [],
                |new| {
                    for range in &mut live {
                        *range = Range::new(NodeId::from_index(new.index(range.first().index())), range.len() as u32);
                    }
                },
            )
            .unwrap();
        assert_eq!(left, scene.x.len() + 2 + y.len(), "{} of waste", waste.len());
        y = live[2];
        scene.graph.set_value(live[0].first(), 9.0).unwrap();
        scene.graph.recompute(y.first(), &[&scene.params]).unwrap();
        assert_ne!(scene.graph.value(y.first()).unwrap(), before[0]);
        let outputs: Vec<NodeId> = y.nodes().collect();
        scene.x = live[0];
        let grads = weighted(&mut scene, &outputs).1;
        let n = scene.graph.scratch_len(outputs[0]).unwrap();
        let mut scratch = vec![f64::NAN; n];
        let mut into = vec![0.0; scene.params.len()];
        let gradients = scene.params.gradients_into(&mut into).unwrap();
        scene.graph.backward_with_scratch(outputs[0], 1.0, &mut scratch, &mut [gradients]).unwrap();
        assert!(grads.iter().chain(&into).all(|g| g.is_finite()) && into.iter().any(|&g| g != 0.0));
        let bytes = scene.graph.memory().operand_lists;
        scene.graph.set_no_grad(true);
        let y = scene.graph.softmax(op, Operands::Views(&[live[1].into(), scene.w.slice().into()]), &[&scene.params]);
        assert_eq!(scene.graph.op(y.unwrap().first()), Ok(Op::Constant));
        assert_eq!(scene.graph.memory().operand_lists, bytes);
    }
}

fn lanes_equal_numbers<S: Scalar>() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let special = [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e300, -1e-300, 700.0];
    for round in 0..100 {
        let n = rng.random_range(1..25);
        let mut xs = vec![S::lit(0.0); n];
        for x in &mut xs {
            for lane in 0..S::LANES {
                let is_special = rng.random_bool(0.1);
                let number = if is_special { special[rng.random_range(0..8)] } else { rng.random_range(-9.0..9.0) };
                *x = x.with_lane(lane, S::Elem::from_f64(number));
            }
        }
        for op in BLOCKS.into_iter().chain(REDUCTIONS) {
            let wide = run(op, &xs);
            for lane in 0..S::LANES {
                let narrow = run(op, &xs.iter().map(|x| x.lane(lane)).collect::<Vec<_>>());
                for (w, n) in wide.iter().zip(&narrow) {
                    let (w, n) = (w.lane(lane).to_f64(), n.to_f64());
                    assert!(w.to_bits() == n.to_bits() || w.is_nan() && n.is_nan(), "{round} {op:?} {lane}: {w} {n}");
                }
            }
        }
    }
}

/// Returns all values and gradients.
fn run<S: Scalar>(op: Op, xs: &[S]) -> Vec<S> {
    let mut graph = Graph::<S>::new();
    let x = graph.vector(xs).unwrap();
    let last = match op {
        Op::Softmax | Op::LogSoftmax => graph.softmax(op, x.into(), &[]).unwrap().nodes().last().unwrap(),
        _ => graph.reduce(op, x.into(), &[]).unwrap(),
    };
    graph.backward(last).unwrap();
    let grads = x.nodes().map(|x| graph.grad(x).unwrap());
    graph.values().iter().copied().chain(grads).collect()
}

#[test]
fn every_lane_has_the_bits_of_a_number() {
    lanes_equal_numbers::<F64x4>();
    lanes_equal_numbers::<F32x8>();
}
