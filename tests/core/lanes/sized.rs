//! Layers with their sizes in the type have the bits of those without.

use burtorch_core::kernels::BlockMath;
use burtorch_core::nn::{Activation, Linear, sized};
use burtorch_core::simd::F32x16;
use burtorch_core::{Graph, Op, Operands, Parameters, Range, View};

/// The values of the outputs and the gradients of the parameters after two layers, built either way.
fn run<S: BlockMath>(in_the_type: bool) -> (Vec<S>, Vec<S::Elem>) {
    let _turn = crate::support::level_stays();
    let mut params = Parameters::<S::Elem>::new(3);
    let x: [S; 5] = std::array::from_fn(|k| S::lit(k as f64 * 0.25 - 0.5));
    let mut graph = Graph::<S>::new();
    let outputs: Range = if in_the_type {
        let first = sized::Linear::<S, 5, 7>::new(&mut params, true, Activation::Tanh, None).unwrap();
        let second = sized::Linear::<S, 7, 3>::new(&mut params, false, Activation::Relu, None).unwrap();
        assert_eq!((second.dynamic().n_in(), second.dynamic().n_out()), (7, 3));
        let x = sized::Run::leaves(&mut graph, x).unwrap();
        let hidden = first.apply(&mut graph, &params, x).unwrap();
        second.apply(&mut graph, &params, hidden).unwrap().range()
    } else {
        let first = Linear::new(&mut params, 5, 7, true, Activation::Tanh, None).unwrap();
        let second = Linear::new(&mut params, 7, 3, false, Activation::Relu, None).unwrap();
        let x = graph.vector(&x).unwrap();
        let hidden = first.apply(&mut graph, &params, std::iter::once(View::Nodes(x))).unwrap();
        second.apply(&mut graph, &params, std::iter::once(View::Nodes(hidden))).unwrap()
    };
    let root = graph.reduce(Op::ReduceSumOfSquares, Operands::Run(outputs), &[]).unwrap();
    graph.backward_with(root, S::lit(1.0), &mut [params.gradients()]).unwrap();
    let values = outputs.nodes().map(|node| graph.value(node).unwrap()).collect();
    (values, params.grads().to_vec())
}

#[test]
fn sizes_in_the_type_change_no_bit() {
    assert_eq!(run::<f64>(true), run::<f64>(false));
    assert_eq!(run::<F32x16>(true), run::<F32x16>(false));
    assert!(run::<f64>(true).1.iter().any(|&g| g != 0.0));
}

#[test]
fn a_run_of_another_length_is_none() {
    let mut graph = Graph::<f64>::new();
    let range = graph.vector(&[1.0, 2.0]).unwrap();
    assert!(sized::Run::<3>::of(range).is_none());
    assert_eq!(sized::Run::<2>::of(range).unwrap().range(), range);
    assert_eq!(sized::Run::constants(&mut graph, [1.0; 4]).unwrap().range().len(), 4);
}
