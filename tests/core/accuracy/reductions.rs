//! How exact ops of many operands are: values against their bounds, partials in ULP, beside f128 formulas by definition.

use burtorch_core::{Float, Graph, Op, Range, RowMath};

use super::points::Random;
use super::ulp::error;

/// Sets of operands per op and type.
const N_SETS: usize = 800;

/// What was measured: the largest error of a value as a share of its bound and in ULP, and of a partial in ULP.
pub struct Measured {
    pub share: f64,
    pub value: f64,
    pub partial: f64,
}

/// An op by definition.
struct Exact {
    value: f128,
    partials: Vec<f128>,
    /// The sum of the magnitudes of the terms.
    magnitude: f128,
}

fn sum(x: impl Iterator<Item = f128>) -> f128 {
    x.fold(0.0, |total, x| total + x)
}

fn exact(op: Op, x: &[f128]) -> Exact {
    let (n, half) = (x.len() as f128, x.len() / 2);
    let by = |f: &dyn Fn(f128) -> f128| x.iter().map(|&x| f(x)).collect::<Vec<f128>>();
    let (total, sizes, squares) =
        (sum(x.iter().copied()), sum(x.iter().map(|x| x.abs())), sum(x.iter().map(|x| x * x)));
    let m = total / n;
    let scatter = sum(x.iter().map(|x| (x - m) * (x - m)));
    let top = x.iter().copied().fold(-f128::INFINITY, f128::max);
    let least = x.iter().copied().fold(f128::INFINITY, f128::min);
    let exponentials = sum(x.iter().map(|x| RowMath::exp(x - top)));
    let log = RowMath::log(exponentials);
    let inner = || (0..half).map(|k| x[k] * x[k + half]);
    let others = |k: usize| x.iter().enumerate().filter(|&(j, _)| j != k).fold(1.0, |p: f128, (_, x)| p * x);
    let product = x.iter().fold(1.0, |p: f128, x| p * x);
    let mut swapped: Vec<f128> = x[half..2 * half].iter().chain(&x[..half]).copied().collect();
    swapped.extend((x.len() % 2 == 1).then_some(1.0));
    let share =
        |peak: f128| by(&|v| if v == peak { 1.0 / x.iter().filter(|&&w| w == peak).count() as f128 } else { 0.0 });
    let (value, partials, magnitude) = match op {
        Op::ReduceSum => (total, by(&|_| 1.0), sizes),
        Op::ReduceSub => {
            let sign = |k: usize| if k == 0 { 1.0 } else { -1.0 };
            (2.0 * x[0] - total, (0..x.len()).map(sign).collect(), sizes)
        }
        Op::ReduceMul => (product, (0..x.len()).map(others).collect(), product.abs()),
        Op::ReduceMean => (m, by(&|_| 1.0 / n), sizes / n),
        Op::ReduceNegativeMean => (-m, by(&|_| -1.0 / n), sizes / n),
        Op::ReduceSumOfSquares => (squares, by(&|x| 2.0 * x), squares),
        Op::ReduceMeanSquares => (squares / n, by(&|x| 2.0 * x / n), squares / n),
        Op::VarianceBiased => (scatter / n, by(&|x| 2.0 * (x - m) / n), scatter / n),
        Op::Variance => (scatter / (n - 1.0), by(&|x| 2.0 * (x - m) / (n - 1.0)), scatter / (n - 1.0)),
        Op::ReduceMax => (top, share(top), top.abs()),
        Op::ReduceMin => (least, share(least), least.abs()),
        Op::LogSumExp => (top + log, by(&|x| RowMath::exp(x - top) / exponentials), top.abs() + log),
        Op::Norm2 => (RowMath::sqrt(squares), by(&|x| x / RowMath::sqrt(squares)), RowMath::sqrt(squares)),
        Op::InnerProduct => (sum(inner()), swapped, sum(inner().map(f128::abs))),
        Op::InnerProductWithBias => {
            let bias = x[2 * half];
            (sum(inner()) + bias, swapped, sum(inner().map(f128::abs)) + bias.abs())
        }
        _ => unreachable!("{op:?} has no definition here"),
    };
    Exact { value, partials, magnitude }
}

/// How many times u times the sum of magnitudes the value may be off, one for each rounding on the way of a term: n and so many
/// more, for n operands or pairs. Extremes are exact.
pub fn roundings(op: Op) -> Option<i8> {
    match op {
        Op::ReduceMax | Op::ReduceMin => None,
        Op::ReduceSum | Op::ReduceSub | Op::ReduceMul => Some(-1),
        Op::ReduceMean | Op::ReduceNegativeMean | Op::ReduceSumOfSquares | Op::InnerProduct => Some(0),
        Op::InnerProductWithBias | Op::ReduceMeanSquares | Op::Norm2 => Some(1),
        // The difference from the mean counts twice, and its square; or the exponential and the logarithm.
        _ => Some(3),
    }
}

/// Value and partials of the op over contiguous operands, computed by a graph.
fn found<E: Float>(op: Op, x: &[E]) -> (E, Vec<E>) {
    let mut graph = Graph::<E>::new();
    let all = graph.vector(x).unwrap();
    let half = x.len() / 2;
    let part = |from, to| -> Range { all.slice(from, to).unwrap() };
    let bias = (op == Op::InnerProductWithBias).then(|| all.nodes().last().unwrap());
    let node = match op {
        Op::InnerProduct | Op::InnerProductWithBias => {
            graph.inner_product(part(0, half).into(), part(half, 2 * half).into(), bias, &[]).unwrap()
        }
        _ => graph.reduce(op, all.into(), &[]).unwrap(),
    };
    graph.backward(node).unwrap();
    (graph.value(node).unwrap(), all.nodes().map(|node| graph.grad(node).unwrap()).collect())
}

/// Over sets of 2 to 41 operands (pairs, for inner products) from the op's interval. `places` is u of the type that adds.
pub fn measured<E: Float>(op: Op, places: f64) -> Measured {
    let mut random = Random::new(op);
    let mut worst = Measured { share: 0.0, value: 0.0, partial: 0.0 };
    for k in 0..N_SETS {
        let n = match op {
            Op::InnerProduct => 2 * (2 + k % 40),
            Op::InnerProductWithBias => 2 * (2 + k % 40) + 1,
            _ => 2 + k % 40,
        };
        let x: Vec<E> = (0..n).map(|_| random.inside()).collect();
        let (value, partials) = found(op, &x);
        let exact = exact(op, &x.iter().map(|x| x.to_f128()).collect::<Vec<_>>());
        let off = (value.to_f128() - exact.value).abs();
        let roundings = roundings(op).map_or(0.0, |more| (2 + k % 40) as f64 + f64::from(more));
        let bound = f128::from(roundings * places) * exact.magnitude;
        worst.share = worst.share.max(if off == 0.0 { 0.0 } else { (off / bound) as f64 });
        worst.value = worst.value.max(error(value, exact.value));
        for (found, exact) in partials.into_iter().zip(exact.partials) {
            worst.partial = worst.partial.max(error(found, exact));
        }
    }
    worst
}

pub fn ops() -> impl Iterator<Item = Op> {
    use burtorch_core::ops::{Arity, OP_INFO};
    let many = OP_INFO.iter().filter(|info| matches!(info.arity, Arity::Reduction | Arity::InnerProduct));
    many.map(|info| info.op).filter(|op| *op != Op::Linearised)
}

#[test]
fn values_of_many_operands_are_within_their_bounds() {
    for op in ops() {
        let [single, double] =
            [measured::<f32>(op, f64::from(f32::EPSILON) / 2.0), measured::<f64>(op, f64::EPSILON / 2.0)];
        assert!(single.share <= 1.0 && double.share <= 1.0, "{}: {} {}", op.name(), single.share, double.share);
    }
}

/// Results added in float32 are rounded once more, to a half number.
#[test]
fn half_values_of_many_operands_are_rounded_once() {
    for op in ops() {
        let cancels = matches!(op, Op::ReduceSub | Op::ReduceSum | Op::ReduceMean | Op::ReduceNegativeMean);
        let cancels = cancels || matches!(op, Op::InnerProduct | Op::InnerProductWithBias);
        // With cancellation, the result's units are smaller than those of the terms.
        let bound = if cancels { 4.0 } else { 0.51 };
        let worst = [measured::<burtorch_core::f16>(op, 1.0).value, measured::<burtorch_core::bf16>(op, 1.0).value];
        assert!(worst[0] <= bound && worst[1] <= bound, "{}: {worst:?}", op.name());
    }
}
