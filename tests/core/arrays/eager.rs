//! Arrays beside the eager graph: the same bits for scalar expressions and for reductions.

use burtorch_core::array::{Argument, ArrayBuilder, Element, Plan, Reduce, Variable};
use burtorch_core::{DType, Graph, Op};

#[test]
fn a_scalar_expression_has_the_bits_of_the_eager_sweep() {
    // Used four times: contributions are added from the last use to the first, each addition rounded.
    let (x, w) = (0.1, 0.7);
    let mut b = ArrayBuilder::new(DType::Float64).unwrap();
    let v = b.input(&[], Element::Float).unwrap();
    let s = b.row(Op::Sin, &[v]).unwrap();
    let t = b.row_with(Op::MulByConstant, v, w).unwrap();
    let p = b.row(Op::Mul, &[s, t]).unwrap();
    let q = b.row(Op::Div, &[p, v]).unwrap();
    let y = b.row(Op::Tanh, &[q]).unwrap();
    let program = b.finish(&[y]).unwrap();

    let mut graph = Graph::<f64>::new();
    let leaf = graph.leaf(x).unwrap();
    let s = graph.unary_op(Op::Sin, leaf).unwrap();
    let t = graph.with_constant_op(Op::MulByConstant, leaf, w).unwrap();
    let p = graph.binary_op(Op::Mul, s, t).unwrap();
    let q = graph.binary_op(Op::Div, p, leaf).unwrap();
    let y = graph.unary_op(Op::Tanh, q).unwrap();
    graph.backward(y).unwrap();

    let mut plan = Plan::<f64>::new(&program.value_and_gradient(&[Variable::Input(0)]).unwrap()).unwrap();
    plan.run(&[Argument::Float(&[x])], &[]).unwrap();
    assert_eq!(plan.floats(0).unwrap()[0].to_bits(), graph.value(y).unwrap().to_bits());
    assert_eq!(plan.floats(1).unwrap()[0].to_bits(), graph.grad(leaf).unwrap().to_bits());
}

#[test]
fn reductions_have_the_bits_of_the_eager_graph() {
    let kinds = [
        (Reduce::Sum, Op::ReduceSum),
        (Reduce::Prod, Op::ReduceMul),
        (Reduce::Max, Op::ReduceMax),
        (Reduce::Min, Op::ReduceMin),
        (Reduce::LogSumExp, Op::LogSumExp),
        (Reduce::Norm2, Op::Norm2),
    ];
    for n in [1, 2, 15, 16, 17, 100, 511, 512, 513, 3000] {
        for (kind, op) in kinds {
            let xs: Vec<f64> = (0..n).map(|k| ((k * 7919 % 1009) as f64 - 500.0) / 311.0).collect();
            let mut b = ArrayBuilder::new(DType::Float64).unwrap();
            let v = b.input(&[n], Element::Float).unwrap();
            let y = b.reduce(kind, v, None, false).unwrap();
            let program = b.finish(&[y]).unwrap();
            let mut plan = Plan::<f64>::new(&program.value_and_gradient(&[Variable::Input(0)]).unwrap()).unwrap();
            plan.run(&[Argument::Float(&xs)], &[]).unwrap();

            let mut graph = Graph::<f64>::new();
            let x = graph.vector(&xs).unwrap();
            let y = graph.reduce(op, x.into(), &[]).unwrap();
            graph.backward(y).unwrap();
            assert_eq!(plan.floats(0).unwrap()[0].to_bits(), graph.value(y).unwrap().to_bits(), "{op:?} of {n}");
            for (k, g) in plan.floats(1).unwrap().iter().enumerate() {
                let leaf = x.get(k).unwrap();
                assert_eq!(g.to_bits(), graph.grad(leaf).unwrap().to_bits(), "{op:?} of {n}, number {k}");
            }
        }
    }
}
