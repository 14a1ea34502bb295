//! What an expression written with operators gives: values, gradients, and what repeated sweeps do to them.

mod derived;
#[cfg(feature = "labels")]
mod labels;

use burtorch_core::{Eager, Graph, NodeId, Op, Operands, Value};

type Expression = for<'t> fn(&'t Eager<'_, f64>, f64, f64) -> [Value<'t, f64>; 3];

/// Figure 1 of the paper.
fn tiny<'t>(t: &'t Eager<'_, f64>, a: f64, b: f64) -> [Value<'t, f64>; 3] {
    let (a, b) = (t.leaf(a), t.leaf(b));
    let c = a + b;
    let d = a * b + b.pow3();
    let e = c - d;
    [e.sqr() / 2.0, a, b]
}

/// The expression of micrograd's README.
fn small<'t>(t: &'t Eager<'_, f64>, a: f64, b: f64) -> [Value<'t, f64>; 3] {
    let (a, b) = (t.leaf(a), t.leaf(b));
    let mut c = a + b;
    let mut d = a * b + b.powc(3.0);
    c = c + (c + 1.0);
    c = c + ((1.0 + c) + (-a));
    d = d + (d * 2.0 + (b + a).relu());
    d = d + (3.0 * d + (b - a).relu());
    let e = c - d;
    let f = e.powc(2.0);
    [f / 2.0 + 10.0 / f, a, b]
}

fn assert_close(found: f64, wanted: f64) {
    assert!((found - wanted).abs() <= 1e-12 * wanted.abs(), "{found} instead of {wanted}");
}

fn check(expression: Expression, at: (f64, f64), wanted: [f64; 3]) {
    let mut graph = Graph::new();
    let t = graph.eager();
    let [g, a, b] = expression(&t, at.0, at.1);
    assert_eq!((a.grad(), b.grad(), g.grad()), (0.0, 0.0, 0.0), "gradients before any sweep");
    g.backward();
    for (found, wanted) in [g.data(), a.grad(), b.grad()].into_iter().zip(wanted) {
        assert_close(found, wanted);
    }
    assert_eq!(g.grad(), 1.0);
}

#[test]
fn the_tiny_graph_of_the_paper() {
    check(tiny, (-41.0, 2.0), [612.5, -35.0, 1050.0]);
}

#[test]
fn the_small_graph_of_micrograd() {
    check(small, (-4.0, 2.0), [24.70408163265306, 138.83381924198252, 645.5772594752186]);
}

#[test]
fn handles_stay_usable_after_a_sweep() {
    let mut graph = Graph::<f64>::new();
    let t = graph.eager();
    let (x, y) = (t.leaf(3.0), t.leaf(4.0));
    let z = x * y;
    z.backward();
    let w = z * x;
    assert_eq!((z.data(), w.data()), (12.0, 36.0));
    w.backward();
    // d(x^2 y)/dx = 2xy = 24 on top of 4; d/dy = x^2 = 9 on top of 3.
    assert_eq!((x.grad(), y.grad(), z.grad()), (28.0, 12.0, 3.0));
}

/// Mistake of earlier engines: a marker that overflows on the 8th sweep.
#[test]
fn the_eighth_sweep_is_as_right_as_the_first() {
    let mut graph = Graph::<f64>::new();
    let t = graph.eager();
    let [g, a, b] = tiny(&t, -41.0, 2.0);
    for sweep in 1..=300 {
        g.backward();
        let times = f64::from(sweep);
        assert_eq!((a.grad(), b.grad()), (-35.0 * times, 1050.0 * times), "after {sweep} sweeps");
        assert_eq!(g.grad(), 1.0);
    }
}

/// Mistake of earlier engines: a second root that skips shared nodes.
#[test]
fn two_roots_that_share_a_subgraph_each_get_all_of_it() {
    let mut graph = Graph::<f64>::new();
    let t = graph.eager();
    let x = t.leaf(3.0);
    let shared = x.sqr();
    let (first, second) = (shared * 2.0, shared * 5.0);
    first.backward();
    assert_eq!((x.grad(), shared.grad()), (12.0, 2.0));
    second.backward();
    assert_eq!((x.grad(), shared.grad(), first.grad()), (12.0 + 30.0, 5.0, 0.0));
}

/// Mistake of earlier engines: an unused branch that poisons a gradient with NaN.
#[test]
fn an_unused_branch_has_no_effect() {
    let mut graph = Graph::<f64>::new();
    let t = graph.eager();
    let x = t.leaf(0.0);
    let unused = x.log();
    let z = x * 2.0;
    let later = x.inv_sqrt() * unused;
    z.backward();
    assert_eq!(x.grad(), 2.0);
    assert_eq!((unused.grad(), later.grad()), (0.0, 0.0));
}

#[test]
fn on_a_path_zero_times_infinity_is_nan() {
    let mut graph = Graph::<f64>::new();
    let t = graph.eager();
    let x = t.leaf(0.0);
    (x.log() * 0.0).backward();
    assert!(x.grad().is_nan());
}

#[test]
fn a_leaf_swept_twice_has_exactly_twice_the_gradient() {
    let mut graph = Graph::<f64>::new();
    let t = graph.eager();
    let x = t.leaf(0.1);
    let y = (x.exp() + x.tanh() * x + x * 1e17 - x * 3.3).sigmoid() * x;
    y.backward();
    let once = x.grad();
    y.backward();
    assert_eq!(x.grad(), 2.0 * once);
    t.zero_grad();
    assert_eq!((x.grad(), y.grad()), (0.0, 0.0));
    y.backward();
    assert_eq!(x.grad(), once);
}

#[test]
fn an_unreached_leaf_receives_exactly_zero() {
    let mut graph = Graph::<f64>::new();
    let t = graph.eager();
    let (x, y) = (t.leaf(1.0), t.leaf(f64::INFINITY));
    let _unused = y * 0.0;
    x.exp().backward();
    assert_eq!(y.grad().to_bits(), 0.0f64.to_bits());
    assert_eq!(x.grad(), x.exp().data());
}

#[test]
fn an_intermediate_gradient_is_of_the_last_sweep_only() {
    let mut graph = Graph::<f64>::new();
    let t = graph.eager();
    let x = t.leaf(2.0);
    let low = x * 3.0;
    let high = low * 4.0;
    high.backward();
    assert_eq!((low.grad(), high.grad()), (4.0, 1.0));
    low.backward();
    assert_eq!((low.grad(), high.grad(), x.grad()), (1.0, 0.0, 15.0));
}

#[test]
fn an_operand_may_be_repeated() {
    let mut graph = Graph::<f64>::new();
    let t = graph.eager();
    let x = t.leaf(3.0);
    (x * x).backward();
    assert_eq!(x.grad(), 6.0);
    (x - x).backward();
    (x / x).backward();
    assert_eq!(x.grad(), 6.0);
    (x + x).backward();
    assert_eq!(x.grad(), 8.0);
    t.reduce(Op::ReduceMul, Operands::List(&[x.id(), x.id(), x.id()])).backward();
    assert_eq!(x.grad(), 8.0 + 27.0);
    t.inner_product(Operands::List(&[x.id(), x.id()]), Operands::List(&[x.id(), x.id()]), Some(x)).backward();
    assert_eq!(x.grad(), 8.0 + 27.0 + 13.0);
}

/// Mistake of earlier engines: a counter of eight bits.
#[test]
fn more_than_256_handles_to_one_node() {
    let mut graph = Graph::<f64>::new();
    let t = graph.eager();
    let x = t.leaf(1.5);
    let handles = vec![x; 1000];
    let total = handles.iter().fold(t.constant(0.0), |sum, &h| sum + h);
    total.backward();
    assert_eq!((total.data(), x.grad()), (1500.0, 1000.0));
    assert!(handles.iter().all(|h| h.grad() == 1000.0 && h.id() == x.id()));
}

/// Mistake of earlier engines: a handle read across growth.
#[test]
fn a_handle_survives_growth() {
    let mut graph = Graph::<f64>::new();
    let t = graph.eager();
    let x = t.leaf(0.25);
    let y = x * 2.0;
    let before = t.len();
    let mut last = y;
    while t.len() < before + 100_000 {
        last += x;
    }
    last.backward();
    assert_eq!((x.data(), y.data()), (0.25, 0.5));
    assert_eq!((y.grad(), x.grad()), (1.0, 100_002.0));
}

/// Mistake of earlier engines: negative-mean and mean-with-mean-squares gradients.
#[test]
fn negative_mean_and_mean_with_mean_squares() {
    let mut graph = Graph::<f64>::new();
    let (x, y) = (graph.leaf(3.0).unwrap(), graph.leaf(5.0).unwrap());
    let z = graph.binary_op(Op::NegativeMean, x, y).unwrap();
    graph.backward(z).unwrap();
    assert_eq!((graph.value(z), graph.grad(x), graph.grad(y)), (Ok(-4.0), Ok(-0.5), Ok(-0.5)));

    graph.clear().unwrap();
    let v = graph.vector(&[1.0, 2.0, 6.0]).unwrap();
    let (mean, squares) = graph.reduce_mean_and_mean_squares(v).unwrap();
    assert_eq!((graph.value(mean), graph.value(squares)), (Ok(3.0), Ok(41.0 / 3.0)));
    let grads = |graph: &Graph<'_, f64>| [0, 1, 2].map(|k| graph.grad(v.get(k).unwrap()).unwrap());
    graph.backward(mean).unwrap();
    assert_eq!(grads(&graph), [1.0 / 3.0; 3]);
    graph.zero_grad();
    graph.backward(squares).unwrap();
    assert_eq!(grads(&graph), [2.0 / 3.0, 4.0 / 3.0, 4.0]);
    graph.zero_grad();
    let both = graph.binary_op(Op::Mul, mean, squares).unwrap();
    graph.backward(both).unwrap();
    for (found, x) in grads(&graph).into_iter().zip([1.0, 2.0, 6.0]) {
        assert_close(found, 41.0 / 9.0 + 3.0 * 2.0 * x / 3.0);
    }
}

/// Mistake of earlier engines: sums of odd length.
#[test]
fn sums_of_every_length() {
    for n in 1..70u32 {
        let mut graph = Graph::<f64>::new();
        let xs: Vec<f64> = (1..=n).map(f64::from).collect();
        let v = graph.vector(&xs).unwrap();
        let ones = graph.vector(&vec![1.0; n as usize]).unwrap();
        let sum = graph.reduce(Op::ReduceSum, v.into(), &[]).unwrap();
        let dot = graph.inner_product(v.into(), ones.into(), None, &[]).unwrap();
        let wanted = f64::from(n * (n + 1) / 2);
        assert_eq!((graph.value(sum), graph.value(dot)), (Ok(wanted), Ok(wanted)));
        graph.backward(sum).unwrap();
        graph.backward(dot).unwrap();
        for (k, &x) in xs.iter().enumerate() {
            assert_eq!(graph.grad(v.get(k).unwrap()), Ok(2.0));
            assert_eq!(graph.grad(ones.get(k).unwrap()), Ok(x));
        }
    }
}

#[test]
fn detached_values_and_constants_receive_nothing() {
    let mut graph = Graph::<f64>::new();
    let t = graph.eager();
    let (x, c) = (t.leaf(3.0), t.constant(7.0));
    let still = (x * x).detach();
    (still * x + c).backward();
    assert_eq!((still.data(), x.grad()), (9.0, 9.0));
    let only_constants = c * c;
    only_constants.backward();
    assert_eq!(x.grad(), 9.0);
}

#[test]
fn nodes_built_under_no_grad_take_no_part() {
    let mut graph = Graph::<f64>::new();
    let x = graph.leaf(2.0).unwrap();
    assert!(!graph.set_no_grad(true));
    assert!(!graph.records_gradients());
    let leaf = graph.leaf(1.0).unwrap();
    let v = graph.vector(&[1.0, 2.0]).unwrap();
    let product = graph.binary_op(Op::Mul, x, leaf).unwrap();
    let sum = graph.reduce(Op::ReduceSum, Operands::List(&[product, x, leaf]), &[]).unwrap();
    let mapped = graph.map(Op::Tanh, v).unwrap();
    let loss = graph.softmax_cross_entropy(mapped, burtorch_core::CrossEntropyTarget::Classes(&[1])).unwrap();
    assert!(graph.set_no_grad(true));
    graph.set_no_grad(false);
    for node in [leaf, v.first(), product, sum, mapped.first(), loss] {
        assert_eq!(graph.op(node), Ok(Op::Constant));
    }
    assert_eq!(graph.memory().operand_lists, 0);
    let root = graph.binary_op(Op::Mul, sum, x).unwrap();
    graph.backward(root).unwrap();
    assert_eq!((graph.value(sum), graph.grad(x), graph.grad(leaf)), (Ok(5.0), Ok(5.0), Ok(0.0)));
}

#[test]
fn writing_a_value_changes_that_node_only() {
    let mut graph = Graph::<f64>::new();
    let t = graph.eager();
    let x = t.leaf(3.0);
    let y = x.sqr();
    let z = y * 2.0;
    x.set_data(5.0);
    assert_eq!((x.data(), y.data(), z.data()), (5.0, 9.0, 18.0));
    z.backward();
    assert_eq!(x.grad(), 20.0);
}

#[test]
fn recompute_follows_new_values() {
    let mut graph = Graph::<f64>::new();
    let v = graph.vector(&[1.0, 2.0, 3.0, 4.0]).unwrap();
    let list: Vec<NodeId> = [3, 0, 2].map(|k| v.get(k).unwrap()).to_vec();
    let product = graph.reduce(Op::ReduceMul, Operands::List(&list), &[]).unwrap();
    let dot = graph.inner_product(v.into(), v.into(), Some(product), &[]).unwrap();
    let mapped = graph.map(Op::Sqr, v).unwrap();
    let (mean, squares) = graph.reduce_mean_and_mean_squares(mapped).unwrap();
    let loss = graph.softmax_cross_entropy(mapped, burtorch_core::CrossEntropyTarget::Classes(&[2])).unwrap();
    let unrelated = graph.unary_op(Op::Exp, v.first()).unwrap();
    let roots = [product, dot, mean, squares, loss];
    let first: Vec<f64> = roots.iter().map(|&r| graph.value(r).unwrap()).collect();
    for (k, x) in [2.0, 3.0, 5.0, 7.0].into_iter().enumerate() {
        graph.set_value(v.get(k).unwrap(), x).unwrap();
    }
    assert_eq!(graph.value(product), Ok(first[0]));
    for root in roots {
        graph.recompute(root, &[]).unwrap();
    }
    assert_eq!(graph.value(product), Ok(70.0));
    assert_eq!(graph.value(dot), Ok(4.0 + 9.0 + 25.0 + 49.0 + 70.0));
    assert_eq!(graph.value(mean), Ok(87.0 / 4.0));
    assert_eq!(graph.value(squares), Ok(f64::from(16 + 81 + 625 + 2401) / 4.0));
    assert_close(graph.value(loss).unwrap(), 24.0 + (1.0f64 + (-24.0f64).exp()).ln());
    assert_eq!(graph.value(unrelated), Ok(1.0f64.exp()));
    for (k, x) in [1.0, 2.0, 3.0, 4.0].into_iter().enumerate() {
        graph.set_value(v.get(k).unwrap(), x).unwrap();
    }
    // From an output in the middle of a block, the whole block is evaluated again.
    graph.recompute(mapped.get(1).unwrap(), &[]).unwrap();
    assert_eq!(graph.value(mapped.get(3).unwrap()), Ok(16.0));
    roots.iter().for_each(|&r| graph.recompute(r, &[]).unwrap());
    assert_eq!(roots.map(|r| graph.value(r).unwrap()).to_vec(), first);
}

#[test]
#[should_panic(expected = "belongs to another graph")]
fn operators_refuse_a_value_of_another_graph() {
    let (mut one, mut two) = (Graph::<f64>::new(), Graph::<f64>::new());
    let (s, t) = (one.eager(), two.eager());
    let _ = mix(&s, &t);
}

fn mix<'t>(s: &'t Eager<'_, f64>, t: &'t Eager<'_, f64>) -> Value<'t, f64> {
    s.leaf(1.0) + t.leaf(2.0)
}

#[test]
#[should_panic(expected = "was removed from its graph")]
fn operators_refuse_a_value_that_was_rewound() {
    let mut graph = Graph::<f64>::new();
    let t = graph.eager();
    let mark = t.mark();
    let x = t.leaf(1.0);
    t.rewind(mark).unwrap();
    let y = t.leaf(2.0);
    let _ = x + y;
}
