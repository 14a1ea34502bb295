//! Finding the first number that is not finite, passing over zero adjoints, setting gradients to zero, and stopping a
//! sweep half way.

use burtorch_core::simd::F32x4;
use burtorch_core::{Error, Graph, Init, NodeId, Op, Operands, Parameters, RowMath, Scalar, SweepOptions, View};

const SKIP: SweepOptions = SweepOptions { skip_zero_adjoints: true, skip_leaves: false };

#[test]
fn the_first_value_that_is_not_finite_is_found_with_its_inputs() {
    let mut graph = Graph::<f64>::new();
    let t = graph.eager();
    let (x, zero) = (t.leaf(2.0), t.leaf(0.0));
    let fine = x.exp() + zero;
    let bad = fine / zero;
    let _worse = bad - bad;
    let [x, zero, fine, bad] = [x, zero, fine, bad].map(|v| v.id());
    let found = graph.find_nonfinite().unwrap();
    assert_eq!((found.node, found.op, found.value, found.in_value), (bad, Op::Div, f64::INFINITY, true));
    let inputs: Vec<NodeId> = found.inputs.iter().map(|run| run.nodes().unwrap().first()).collect();
    assert_eq!(inputs, [fine, zero]);
    graph.set_value(bad, 1.0).unwrap();
    assert_eq!(graph.find_nonfinite().unwrap().op, Op::Sub.info().op);
    assert_ne!(x, fine);
}

#[test]
fn an_adjoint_that_is_not_finite_is_found_after_the_sweep() {
    let mut graph = Graph::<f64>::new();
    let x = graph.leaf(0.0).unwrap();
    let y = graph.unary_op(Op::Sqrt, x).unwrap();
    let unreached = graph.unary_op(Op::Sqrt, x).unwrap();
    assert_eq!(graph.find_nonfinite(), None);
    graph.backward(y).unwrap();
    let found = graph.find_nonfinite().unwrap();
    assert_eq!((found.node, found.adjoint, found.in_value), (x, f64::INFINITY, false));
    graph.zero_grad();
    assert_eq!(graph.find_nonfinite(), None);
    assert_eq!(graph.grad(unreached), Ok(0.0));
}

#[test]
fn one_lane_is_enough_to_be_found() {
    let mut graph = Graph::<F32x4>::new();
    let x = graph.leaf(F32x4::lit(1.0).with_lane(3, -4.0)).unwrap();
    let y = graph.unary_op(Op::Log, x).unwrap();
    assert_eq!(graph.find_nonfinite().unwrap().node, y);
}

/// The gradient of a leaf at 0 whose inverse is multiplied by zero, for all kinds of nodes.
fn switched_off(build: impl Fn(&mut Graph<'static, f64>, NodeId, NodeId) -> NodeId, options: SweepOptions) -> f64 {
    let mut graph = Graph::<f64>::new();
    let x = graph.leaf(0.0).unwrap();
    let y = graph.unary_op(Op::Sqrt, x).unwrap();
    let zero = graph.constant(0.0).unwrap();
    let root = build(&mut graph, y, zero);
    graph.backward_polled(root, 1.0, &mut [], options, None).unwrap();
    graph.grad(x).unwrap()
}

#[test]
fn zero_adjoints_are_passed_over_on_request() {
    let product = |g: &mut Graph<'static, f64>, y, zero| g.binary_op(Op::Mul, y, zero).unwrap();
    let list = |g: &mut Graph<'static, f64>, y, zero| g.reduce(Op::ReduceMul, Operands::List(&[y, zero]), &[]).unwrap();
    assert!(switched_off(product, SweepOptions::default()).is_nan());
    assert!(switched_off(list, SweepOptions::default()).is_nan());
    assert_eq!(switched_off(product, SKIP), 0.0);
    assert_eq!(switched_off(list, SKIP), 0.0);
}

/// Two outputs of a block, one with an adjoint of zero: that one is skipped, wherever it is.
#[test]
fn zero_adjoints_of_block_outputs_are_passed_over_on_request() {
    for zero_at in [0, 1] {
        let mut graph = Graph::<f64>::new();
        let mut at = [4.0, 4.0];
        at[zero_at] = 0.0;
        let v = graph.vector(&at).unwrap();
        let roots = graph.map(Op::Sqrt, v).unwrap();
        let mut weights = [1.0, 1.0];
        weights[zero_at] = 0.0;
        let w = graph.constants(&weights).unwrap();
        let dot = graph.inner_product(roots.into(), w.into(), None, &[]).unwrap();
        graph.backward(dot).unwrap();
        assert!(graph.grad(v.get(zero_at).unwrap()).unwrap().is_nan());
        graph.zero_grad();
        graph.backward_polled(dot, 1.0, &mut [], SKIP, None).unwrap();
        assert_eq!(graph.grad(v.get(zero_at).unwrap()), Ok(0.0));
        assert_eq!(graph.grad(v.get(1 - zero_at).unwrap()), Ok(0.25));
    }
    let mut params = Parameters::<f64>::new(0);
    let w = params.tensor(&[2, 1], None, Init::Constant(f64::INFINITY.min(1e308)), true).unwrap();
    params.values_mut()[0] = f64::INFINITY;
    let mut graph = Graph::<f64>::new();
    let x = graph.leaf(1.0).unwrap();
    let y = graph.affine(&[&params], &[View::from(x)], w.slice(), None).unwrap();
    let off = graph.constants(&[0.0, 1.0]).unwrap();
    let dot = graph.inner_product(y.into(), off.into(), None, &[]).unwrap();
    graph.backward_polled(dot, 1.0, &mut [params.gradients()], SKIP, None).unwrap();
    assert_eq!((graph.grad(x), params.grads()), (Ok(1e308), &[0.0, 1.0][..]));
}

#[test]
fn gradients_set_to_zero_or_to_a_number_count_from_there() {
    let mut graph = Graph::<f64>::new();
    let x = graph.leaf(3.0).unwrap();
    let y = graph.unary_op(Op::Sqr, x).unwrap();
    graph.backward(y).unwrap();
    graph.set_grad(x, 100.0).unwrap();
    graph.set_grad(y, 5.0).unwrap();
    assert_eq!((graph.grad(x), graph.grad(y)), (Ok(100.0), Ok(5.0)));
    graph.backward(y).unwrap();
    assert_eq!((graph.grad(x), graph.grad(y)), (Ok(106.0), Ok(1.0)));
    graph.zero_grad();
    assert_eq!((graph.grad(x), graph.grad(y)), (Ok(0.0), Ok(0.0)));
    // An adjoint written far from the last dirty span is reset by the next backward pass too.
    let far = graph.unary_op(Op::Exp, x).unwrap();
    graph.set_grad(far, 7.0).unwrap();
    graph.backward(y).unwrap();
    assert_eq!((graph.grad(far), graph.grad(x)), (Ok(0.0), Ok(6.0)));
}

fn chain(n: usize) -> (Graph<'static, f64>, NodeId, NodeId) {
    let mut graph = Graph::new();
    let x = graph.leaf(1.0).unwrap();
    let root = (0..n).fold(x, |y, _| graph.unary_op(Op::Neg, y).unwrap());
    (graph, x, root)
}

#[test]
fn an_interrupted_sweep_changes_no_leaf() {
    let (mut graph, x, root) = chain(100_000);
    for stop_at in [1, 2, 7] {
        let mut asked = 0;
        let mut stop = || {
            asked += 1;
            asked == stop_at
        };
        let stopped = graph.backward_polled(root, 1.0, &mut [], SweepOptions::default(), Some(&mut stop));
        assert_eq!((stopped, asked), (Err(Error::Interrupted), stop_at));
        assert_eq!(graph.grad(x), Ok(0.0));
    }
    let mut asked = 0;
    let mut count = || {
        asked += 1;
        false
    };
    graph.backward_polled(root, 1.0, &mut [], SweepOptions::default(), Some(&mut count)).unwrap();
    assert_eq!(graph.grad(x), Ok(1.0));
    assert!((12..=14).contains(&asked), "asked {asked} times in 100,000 nodes");
}

#[test]
fn a_sweep_ended_by_a_panic_leaves_no_trace_in_the_next() {
    let (mut graph, x, root) = chain(50_000);
    let mut asked = 0;
    let mut stop = || {
        asked += 1;
        assert!(asked < 3, "enough");
        false
    };
    let swept = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        graph.backward_polled(root, 1.0, &mut [], SweepOptions::default(), Some(&mut stop))
    }));
    assert!(swept.is_err());
    let half_way = NodeId::from_index(30_000);
    graph.backward(half_way).unwrap();
    assert_eq!((graph.grad(x), graph.grad(root), graph.grad(half_way)), (Ok(1.0), Ok(0.0), Ok(1.0)));
}
