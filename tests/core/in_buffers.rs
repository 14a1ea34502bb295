//! Graphs and parameters in memory of the caller make no heap call, and a growing graph makes none after its first pass.

use std::mem::MaybeUninit;

use burtorch_core::{CrossEntropyTarget, Error, Graph, Init, Op, Operands, Parameters, Slice, View, bytes_needed};

use crate::heap::calls;

fn without_heap<T>(f: impl FnOnce() -> T) -> T {
    let before = calls();
    let result = f();
    assert_eq!(calls() - before, 0, "heap calls where none was promised");
    result
}

/// One step of all kinds of building and backward passes: scalars, lists, views, blocks, parameters. Returns the
/// gradient of the first leaf.
fn step(
    graph: &mut Graph<'_, f32>,
    params: &mut Parameters<'_, f32>,
    w: Slice,
    scratch: &mut [f32],
) -> Result<f32, Error> {
    let x = graph.vector(&[0.5, -1.0])?;
    let [weights, row] = [w.slice(0, 6), w.slice(1, 5)].map(|part| part.expect("eight numbers"));
    let hidden = graph.affine(&[params], &[View::from(x)], weights, None)?;
    let active = graph.map(Op::Tanh, hidden)?;
    let loss = graph.softmax_cross_entropy(active, CrossEntropyTarget::Classes(&[1]))?;
    let p = graph.parameter(params, w, 7)?;
    let (mean, squares) = graph.reduce_mean_and_mean_squares(active)?;
    let list = [loss, p, mean, squares, x.first(), x.first()];
    let product = graph.reduce(Op::ReduceMul, Operands::List(&list), &[])?;
    let views = [View::from(row), product.into(), x.into()];
    let variance = graph.reduce(Op::Variance, Operands::Views(&views), &[params])?;
    let dot = graph.inner_product(active.into(), Operands::List(&list[..3]), Some(variance), &[])?;
    let root = graph.pow_constant(dot, 4.0)?;
    let root = graph.div_constant(root, 3.0)?;
    graph.backward_with(root, 1.0, &mut [params.gradients()])?;
    let adjoints = graph.backward_with_scratch(root, 1.0, scratch, &mut [params.gradients()])?;
    let (found, same) = (graph.grad(x.first())?, adjoints.get(x.first()));
    assert!(found == same || (found.is_nan() && same.is_nan()));
    Ok(found)
}

#[test]
fn graphs_and_parameters_in_buffers_make_no_heap_call() {
    let mut memory = vec![MaybeUninit::<u8>::uninit(); bytes_needed::<f32>(200).unwrap()];
    let (mut values, mut grads, mut scratch) = ([0.0f32; 8], [0.0f32; 8], [0.0f32; 300]);
    let expected = {
        let mut params = Parameters::<f32>::new(3);
        let w = params.tensor(&[2, 4], None, Init::Normal(0.0, 1.0), true).unwrap().slice();
        let mut graph = Graph::<f32>::new();
        let grad = step(&mut graph, &mut params, w, &mut scratch).unwrap();
        (grad, params.grads().to_vec())
    };
    assert!(expected.0.is_finite() && expected.0 != 0.0);
    without_heap(|| {
        let mut params = Parameters::<f32>::in_buffers(&mut values, &mut grads, 3);
        let w = params.tensor(&[2, 4], None, Init::Normal(0.0, 1.0), true).unwrap().slice();
        let mut graph = Graph::<f32>::in_buffers(&mut memory, 200).unwrap();
        let start = graph.mark();
        for _ in 0..100 {
            params.zero_grad();
            graph.rewind(start).unwrap();
            let grad = step(&mut graph, &mut params, w, &mut scratch).unwrap();
            assert!(grad == expected.0 && params.grads() == expected.1);
            let mark = graph.mark();
            graph.set_no_grad(true);
            step(&mut graph, &mut params, w, &mut scratch).unwrap();
            graph.set_no_grad(false);
            graph.rewind(mark).unwrap();
            graph.zero_grad();
        }
        // A full graph returns an error and does not allocate.
        while graph.leaf(1.0).is_ok() {}
        assert!(matches!(step(&mut graph, &mut params, w, &mut scratch), Err(Error::GraphFull { .. })));
        graph.clear().unwrap();
        step(&mut graph, &mut params, w, &mut scratch).unwrap();
    });
}

#[test]
fn a_growing_graph_makes_no_heap_call_after_its_first_pass() {
    let mut params = Parameters::<f32>::new(3);
    let w = params.tensor(&[2, 4], None, Init::Normal(0.0, 1.0), true).unwrap().slice();
    let mut graph = Graph::<f32>::new();
    let mut scratch = [0.0; 300];
    let base = graph.leaf(2.0).unwrap();
    let start = graph.mark();
    let mut pass = |graph: &mut Graph<'_, f32>| {
        for _ in 0..50 {
            step(graph, &mut params, w, &mut scratch).unwrap();
        }
        let root = graph.map(Op::Exp, burtorch_core::Range::new(base, 3)).unwrap();
        graph.recompute(root.first(), &[&params]).unwrap();
        let marks = &mut [start];
        graph.compact(|live| live(root), marks, |_| {}).unwrap();
        graph.rewind(marks[0]).unwrap();
        graph.clear().unwrap();
        graph.leaf(2.0).unwrap();
    };
    pass(&mut graph);
    let again = graph.mark();
    without_heap(|| {
        for _ in 0..5 {
            for _ in 0..50 {
                step(&mut graph, &mut params, w, &mut scratch).unwrap();
            }
            let root = graph.map(Op::Exp, burtorch_core::Range::new(base, 3)).unwrap();
            graph.recompute(root.first(), &[&params]).unwrap();
            graph.rewind(again).unwrap();
        }
    });
}
