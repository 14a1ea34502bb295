//! Rows of a table as a block: values and gradients against reading each number by itself, and all that a graph does
//! with its blocks.

use burtorch_core::kernels::BlockMath;
use burtorch_core::ops::{self, Op};
use burtorch_core::simd::{F32x16, F64x2, F64x4};
use burtorch_core::{Error, Graph, Init, NodeId, Operands, Parameters, RowMath, Scalar, Tensor};

use crate::support::Numbers;

fn table<E: burtorch_core::Float>(rows: usize, width: usize) -> (Parameters<'static, E>, Tensor) {
    let mut params = Parameters::new(4);
    params.tensor(&[3], None, Init::Constant(1.0), true).unwrap();
    let table = params.tensor(&[rows, width], None, Init::Normal(0.0, 1.0), true).unwrap();
    (params, table)
}

fn indices(n: usize, below: usize) -> Vec<u32> {
    let mut numbers = Numbers::new(8);
    (0..n).map(|_| (numbers.next_bits() % below as u64) as u32).collect()
}

/// The sum of squares of gathered rows: its gradient is twice the row, times the number of uses.
fn check<S: BlockMath>(rows: usize, width: usize, positions: usize, frozen: Option<std::ops::Range<usize>>) {
    let _turn = crate::support::level_stays();
    let (mut params, table) = table::<S::Elem>(rows, width);
    if let Some(range) = &frozen {
        params.freeze(params.slice(range.clone()).unwrap()).unwrap();
    }
    let indices = indices(positions * S::LANES, rows);
    let mut graph = Graph::<S>::new();
    let gathered = graph.gather(&params, table, &indices).unwrap();
    assert_eq!(gathered.len(), positions * width);
    let start = table.slice().range().start;
    let values = params.values().to_vec();
    for (k, node) in gathered.nodes().enumerate() {
        for lane in 0..S::LANES {
            let row = indices[lane * positions + k / width] as usize;
            assert_eq!(graph.value(node).unwrap().lane(lane), values[start + row * width + k % width]);
        }
    }
    let root = graph.reduce(Op::ReduceSumOfSquares, Operands::Run(gathered), &[]).unwrap();
    graph.backward_with(root, S::lit(1.0), &mut [params.gradients()]).unwrap();
    for (k, &grad) in params.grads().iter().enumerate() {
        let times = match k.checked_sub(start) {
            Some(at) if params.is_trainable(k) => indices.iter().filter(|&&i| i as usize == at / width).count(),
            _ => 0,
        };
        let expected = S::Elem::lit(2.0 * times as f64) * values[k];
        let error = (grad.lane(0) - expected).abs();
        assert!(error <= S::Elem::lit(1e-5) * (S::Elem::lit(1.0) + expected.abs()), "{k}: {grad:?} not {expected:?}");
    }
}

#[test]
fn gathered_rows_and_their_gradients() {
    for (rows, width, positions) in [(1, 1, 1), (4, 3, 2), (5, 16, 3), (50, 7, 2), (3, 33, 5)] {
        check::<f64>(rows, width, positions, None);
        check::<F64x2>(rows, width, positions, None);
        check::<F64x4>(rows, width, positions, None);
        check::<F32x16>(rows, width, positions, None);
    }
    check::<F64x4>(5, 3, 2, Some(3..18));
    check::<F64x4>(5, 3, 2, Some(7..9));
    check::<f64>(5, 3, 2, Some(7..9));
}

#[test]
fn a_part_of_the_rows_reached_is_a_part_of_the_gradient() {
    let (mut params, table) = table::<f64>(4, 3);
    let mut graph = Graph::<F64x2>::new();
    let rows = graph.gather(&params, table, &[2, 0, 2, 3]).unwrap();
    // Only the second number of the first row is used: from row 2 in both lanes.
    let root = graph.unary::<ops::Sqr>(rows.get(1).unwrap()).unwrap();
    graph.backward_with(root, F64x2::lit(1.0), &mut [params.gradients()]).unwrap();
    let at = 3 + 2 * 3 + 1;
    for (k, &g) in params.grads().iter().enumerate() {
        assert_eq!(g, if k == at { 4.0 * params.values()[at] } else { 0.0 });
    }
}

#[test]
fn a_graph_recomputes_renumbers_and_forgets_gathered_rows() {
    let (mut params, table) = table::<f64>(4, 3);
    let mut graph = Graph::<F64x2>::new();
    graph.vector(&[F64x2::lit(1.0); 5]).unwrap();
    let rows = graph.gather(&params, table, &[1, 0, 2, 3]).unwrap();
    let root = graph.reduce(Op::ReduceSum, Operands::Run(rows), &[]).unwrap();
    params.values_mut()[3..].fill(2.0);
    graph.recompute(root, &[&params]).unwrap();
    assert_eq!(graph.value(root).unwrap(), F64x2::lit(12.0));
    let mut moved = root;
    graph
        .compact(
            |live| live(burtorch_core::Range::new(root, 1)),
            &mut [],
            |new| moved = NodeId::from_index(new.index(root.index())),
        )
        .unwrap();
    assert_eq!(graph.len(), 7);
    graph.backward_with(moved, F64x2::lit(1.0), &mut [params.gradients()]).unwrap();
    assert_eq!(params.grads()[3..], [1.0; 12]);
    graph.set_no_grad(true);
    let constants = graph.gather(&params, table, &[1, 0, 2, 3]).unwrap();
    assert!(constants.nodes().all(|node| graph.op(node) == Ok(Op::Constant)));
}

#[test]
fn invalid_rows_are_refused_and_nothing_is_appended() {
    let (params, rows) = table::<f64>(4, 3);
    let (other, _) = table::<f64>(4, 3);
    let mut graph = Graph::<F64x2>::new();
    assert!(matches!(graph.gather(&params, rows, &[1, 4]), Err(Error::OutOfRange { found: 4, max: 3, .. })));
    assert!(matches!(graph.gather(&params, rows, &[1, 2, 3]), Err(Error::LengthMismatch { .. })));
    assert!(matches!(graph.gather(&params, rows, &[]), Err(Error::EmptyReduction { .. })));
    assert!(matches!(graph.gather(&other, rows, &[1, 2]), Err(Error::GraphMismatch { .. })));
    assert!(matches!(graph.constants_of_lanes(&[1.0; 3]), Err(Error::LengthMismatch { .. })));
    assert!(graph.is_empty());
}
