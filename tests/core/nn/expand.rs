//! Block ops written out as scalar nodes: the specification.

use burtorch_core::ops::{self, Op};
use burtorch_core::{Graph, NodeId, Operands, Parameters, Range, Slice, View};

/// One node per scalar of a view.
pub fn nodes_of(graph: &mut Graph<'_, f64>, params: &Parameters<'_, f64>, view: View) -> Vec<NodeId> {
    match view {
        View::Nodes(range) => range.nodes().collect(),
        View::Parameters(slice) => (0..slice.len()).map(|k| graph.parameter(params, slice, k).unwrap()).collect(),
    }
}

/// `W x + b`, one inner product per output.
pub fn affine(
    graph: &mut Graph<'_, f64>,
    params: &Parameters<'_, f64>,
    x: &[View],
    w: Slice,
    bias: Option<Slice>,
) -> Range {
    let x: Vec<NodeId> = x.iter().flat_map(|&view| nodes_of(graph, params, view)).collect();
    let w = nodes_of(graph, params, w.into());
    let bias = bias.map(|b| nodes_of(graph, params, b.into()));
    let outputs: Vec<NodeId> = w
        .chunks(x.len())
        .enumerate()
        .map(|(o, row)| {
            let products: Vec<NodeId> =
                x.iter().zip(row).map(|(&x, &w)| graph.binary::<ops::Mul>(x, w).unwrap()).collect();
            let mut total = products[0];
            for &product in &products[1..] {
                total = graph.binary::<ops::Add>(total, product).unwrap();
            }
            match &bias {
                Some(bias) => graph.binary::<ops::Add>(total, bias[o]).unwrap(),
                None => total,
            }
        })
        .collect();
    contiguous(graph, &outputs)
}

/// Copies of nodes in a row: `x + 0`.
pub fn contiguous(graph: &mut Graph<'_, f64>, nodes: &[NodeId]) -> Range {
    let zero = graph.constant(0.0).unwrap();
    let copies: Vec<NodeId> = nodes.iter().map(|&x| graph.binary::<ops::Add>(x, zero).unwrap()).collect();
    Range::new(copies[0], copies.len() as u32)
}

/// A unary op on each node.
pub fn map(graph: &mut Graph<'_, f64>, op: Op, x: Range) -> Range {
    let outputs: Vec<NodeId> = x.nodes().map(|x| graph.unary_op(op, x).unwrap()).collect();
    Range::new(outputs[0], outputs.len() as u32)
}

/// `sum_k t_k (log(sum exp z) - z_k)` without any shift.
pub fn cross_entropy(graph: &mut Graph<'_, f64>, logits: Range, targets: &[f64]) -> NodeId {
    let exps = map(graph, Op::Exp, logits);
    let total = graph.reduce(Op::ReduceSum, Operands::Run(exps), &[]).unwrap();
    let log = graph.unary::<ops::Log>(total).unwrap();
    let mut loss = graph.constant(0.0).unwrap();
    for (z, &t) in logits.nodes().zip(targets) {
        let difference = graph.binary::<ops::Sub>(log, z).unwrap();
        let term = graph.with_constant::<ops::MulByConstant>(difference, t).unwrap();
        loss = graph.binary::<ops::Add>(loss, term).unwrap();
    }
    loss
}

/// Whether two numbers agree within `1e-12` of their size, or are both infinite or both NaN alike.
#[track_caller]
pub fn assert_close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (k, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        let close = found == expected
            || (found.is_nan() && expected.is_nan())
            || (found - expected).abs() <= 1e-12 * expected.abs().max(1.0);
        assert!(close, "entry {k}: {found} instead of {expected}");
    }
}
