//! What is made of ops: in-place operators, clamp, variances, reductions by name, and gradients of reductions without values.

use burtorch_core::{Error, Graph, Init, NodeId, Op, Operands, Parameters, Unevaluated, View};

#[test]
fn in_place_operators_bind_the_handle_to_a_new_node() {
    let mut graph = Graph::<f64>::new();
    let t = graph.eager();
    let (x, y) = (t.leaf(6.0), t.leaf(3.0));
    let mut z = x;
    z += y;
    z -= 1.0;
    z *= y;
    z /= 2.0;
    z *= 4.0;
    z += 0.5;
    z -= x;
    z /= y;
    assert_eq!((x.data(), z.data()), (6.0, 42.5 / 3.0), "the old node keeps its value");
    z.backward();
    // ((x + y - 1) y 2 + 1/2 - x)/y
    assert!((x.grad() - (2.0 - 1.0 / 3.0)).abs() < 1e-15 && (y.grad() - (2.0 + 5.5 / 9.0)).abs() < 1e-15);
}

#[test]
fn clamp_passes_the_gradient_between_its_bounds() {
    let mut graph = Graph::<f32>::new();
    let t = graph.eager();
    for (x, y, dx) in [(-2.0, -1.0, 0.0), (-1.0, -1.0, 0.5), (0.25, 0.25, 1.0), (1.0, 1.0, 0.5), (7.0, 1.0, 0.0)] {
        let x = t.leaf(x);
        let clamped = x.clamp(-1.0, 1.0);
        clamped.backward();
        assert_eq!((clamped.data(), x.grad()), (y, dx));
    }
    assert!(t.leaf(f32::NAN).clamp(0.0, 1.0).data().is_nan());
    let (mut graph, mut n) = (Graph::<f64>::new(), 0);
    let x = graph.leaf(1.0).unwrap();
    for (low, high) in [(2.0, 1.0), (f64::NAN, 1.0), (0.0, f64::NAN)] {
        assert!(matches!(graph.clamp(x, low, high), Err(Error::BadArgument { .. })));
        n += graph.len();
    }
    assert_eq!(n, 3, "a refused clamp appends nothing");
}

#[test]
fn reductions_by_name_take_runs_views_and_lists() {
    let mut graph = Graph::<f64>::new();
    let t = graph.eager();
    let (x, y) = (t.vector(&[1e8, 1e8 + 1.0]), t.leaf(1e8 + 2.0));
    let ids: Vec<NodeId> = x.nodes().chain([y.id()]).collect();
    let views = [View::from(x), View::from(y.id())];
    let run = t.vector(&[1e8, 1e8 + 1.0, 1e8 + 2.0]);
    for variance in [t.variance(run), t.variance(&views[..]), t.variance(&ids[..])] {
        assert_eq!(variance.data(), 1.0, "two passes lose nothing");
    }
    assert_eq!(t.variance_biased(run).data(), 2.0 / 3.0);
    let (mean, squares) = t.reduce_mean_and_mean_squares(t.vector(&[1.0, 2.0, 3.0, 4.0]));
    (mean + squares).backward();
    assert_eq!((mean.data(), squares.data()), (2.5, 7.5));
    let sum = t.reduce_sum(&[mean.id(), squares.id()][..]);
    assert_eq!((sum.data(), t.reduce_mul(&views[1..]).data()), (10.0, 1e8 + 2.0));
}

/// All reductions and inner products: the gradient of a node without a value equals that of one with a value.
#[test]
fn a_reduction_may_wait_for_its_value() {
    let reductions = burtorch_core::ops::OP_INFO.iter().filter(|row| row.arity == burtorch_core::ops::Arity::Reduction);
    for op in reductions.map(|row| row.op) {
        let mut graph = Graph::<f64>::new();
        let x = graph.vector(&[0.5, -1.25, 2.0, 3.5]).unwrap();
        let ids: Vec<NodeId> = x.nodes().step_by(2).chain(x.nodes().skip(1)).collect();
        for operands in [Operands::Run(x), Operands::List(&ids), Operands::Views(&[x.into(), ids[2].into()])] {
            graph.zero_grad();
            let waits = graph.reduce_unevaluated(op, operands, &[]).unwrap();
            graph.backward_unevaluated(waits, 1.0).unwrap();
            let found: Vec<f64> = x.nodes().map(|node| graph.grad(node).unwrap()).collect();
            let node = graph.evaluate_now(waits).unwrap();
            let evaluated = graph.reduce(op, operands, &[]).unwrap();
            graph.zero_grad();
            graph.backward(evaluated).unwrap();
            let wanted: Vec<f64> = x.nodes().map(|node| graph.grad(node).unwrap()).collect();
            assert_eq!((found, graph.value(node)), (wanted, graph.value(evaluated)), "{}", op.name());
        }
    }
    let mut graph = Graph::<f64>::new();
    let (x, w) = (graph.vector(&[1.0, 2.0]).unwrap(), graph.vector(&[3.0, 4.0]).unwrap());
    let bias = graph.leaf(0.5).unwrap();
    let waits = graph.inner_product_unevaluated(x.into(), w.into(), Some(bias), &[]).unwrap();
    graph.backward_unevaluated(waits, 2.0).unwrap();
    assert_eq!((graph.grad(x.first()), graph.grad(bias)), (Ok(6.0), Ok(2.0)));
    let node = graph.evaluate_now(waits).unwrap();
    assert_eq!(graph.value(node), Ok(11.5));
}

#[test]
fn nodes_of_parameters_or_under_no_grad_are_evaluated_at_once() {
    let mut params = Parameters::<f64>::new(0);
    let w = params.tensor(&[2], None, Init::Constant(3.0), true).unwrap();
    let mut graph = Graph::<f64>::new();
    let x = graph.vector(&[1.0, 2.0]).unwrap();
    let views = [View::from(x), View::from(w.slice())];
    let sum = graph.reduce_unevaluated(Op::ReduceSum, (&views[..]).into(), &[&params]).unwrap();
    let product = graph.inner_product_unevaluated(x.into(), (&views[1..]).into(), None, &[&params]).unwrap();
    params.values_mut().fill(0.0);
    let value = |graph: &mut Graph<f64>, node: Unevaluated| {
        let node = graph.evaluate_now(node).unwrap();
        graph.value(node).unwrap()
    };
    assert_eq!((value(&mut graph, sum), value(&mut graph, product)), (9.0, 9.0));
    graph.set_no_grad(true);
    let sum = graph.reduce_unevaluated(Op::ReduceSum, x.into(), &[]).unwrap();
    assert_eq!(graph.value(NodeId::from_index(sum.index())), Ok(3.0));
}
