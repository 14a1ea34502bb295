//! The reference engine: values and gradients by definition, one node at a time, in f128. No tape order, no shortcuts.
//!
//! A value is computed from its operands' values. A gradient is the sum over the users of a node of their gradients times
//! partials, computed from what those gradients were found to be: where every node's is right, all of them are, by
//! induction from the root. Formulas are those of the op table's documentation, errors its bounds; elementary functions are those
//! of f128, which share nothing with those of f64 and, unlike the standard library's, are there without glibc.

use burtorch_core::{Op, RowMath};
use std::f128::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, PI};

use super::allowed::{Allowed, LEAST, UNIT};

/// What a node computes from its operands.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// An op with one output.
    Op(Op),
    /// Number k of a softmax.
    Probability(usize),
    /// Cross-entropy against this class.
    Loss(usize),
}

#[derive(Clone, Debug)]
pub struct Node {
    pub kind: Kind,
    pub operands: Vec<usize>,
    pub value: f64,
}

fn largest(x: &[f128]) -> f128 {
    x.iter().copied().fold(-f128::INFINITY, f128::max)
}

fn size(x: &[f128]) -> f128 {
    x.iter().map(|x| x.abs()).fold(0.0, f128::max)
}

fn softmax(x: &[f128]) -> (f128, Vec<f128>) {
    let top = largest(x);
    let total: f128 = x.iter().map(|x| RowMath::exp(x - top)).fold(0.0, |a, b| a + b);
    (top + RowMath::log(total), x.iter().map(|x| RowMath::exp(x - top) / total).collect())
}

fn sum(x: impl Iterator<Item = f128>) -> f128 {
    x.fold(0.0, |total, x| total + x)
}

fn mean(x: &[f128]) -> f128 {
    // Exact for equal numbers, as SEMANTICS requires.
    if x.iter().all(|v| *v == x[0]) { x[0] } else { sum(x.iter().copied()) / x.len() as f128 }
}

/// The normal distribution function and its density.
fn normal(x: f128) -> (f128, f128) {
    (RowMath::erfc(-x * FRAC_1_SQRT_2) / 2.0, RowMath::exp(-x * x / 2.0) / RowMath::sqrt(2.0 * PI))
}

/// The value of a node over `x` that is not a sum, and the size of cancelling terms.
fn value(kind: Kind, x: &[f128]) -> (f128, f128) {
    let n = x.len() as f128;
    let op = match kind {
        Kind::Op(op) => op,
        // The error grows with the exponent.
        Kind::Probability(k) => {
            let p = softmax(x).1[k];
            return (p, p * 2.0 * size(x));
        }
        Kind::Loss(class) => return (softmax(x).0 - x[class], 2.0 * size(x) + n),
    };
    let y = match op {
        Op::Relu if x[0] <= 0.0 => 0.0,
        Op::Relu => x[0],
        Op::Tanh => RowMath::tanh(x[0]),
        Op::Exp => RowMath::exp(x[0]),
        Op::NegLog => -RowMath::log(x[0]),
        Op::Log => RowMath::log(x[0]),
        Op::Sigmoid => 1.0 / (1.0 + RowMath::exp(-x[0])),
        Op::Inv => 1.0 / x[0],
        Op::Sqr => x[0] * x[0],
        Op::Pow3 => x[0] * x[0] * x[0],
        Op::Sqrt => RowMath::sqrt(x[0]),
        Op::InvSqrt => 1.0 / RowMath::sqrt(x[0]),
        Op::Neg => -x[0],
        Op::Abs => x[0].abs(),
        Op::Sin => RowMath::sin(x[0]),
        Op::Cos => RowMath::cos(x[0]),
        Op::Expm1 => RowMath::expm1(x[0]),
        Op::Tan => RowMath::tan(x[0]),
        Op::Log1p => RowMath::log1p(x[0]),
        Op::Softplus => x[0].max(0.0) + RowMath::log1p(RowMath::exp(-x[0].abs())),
        Op::Erf => RowMath::erf(x[0]),
        Op::Gelu if x[0] == -f128::INFINITY => 0.0,
        Op::Gelu => x[0] * normal(x[0]).0,
        Op::Pow | Op::PowConstant => RowMath::pow(x[0], x[1]),
        Op::Atan2 => RowMath::atan2(x[0], x[1]),
        Op::ReduceMax => largest(x),
        Op::ReduceMin => x.iter().copied().fold(f128::INFINITY, f128::min),
        Op::LogSumExp => return (softmax(x).0, size(x) + n),
        Op::Norm2 => RowMath::sqrt(sum(x.iter().map(|x| x * x))),
        Op::Add | Op::AddConstant => x[0] + x[1],
        Op::Sub => x[0] - x[1],
        Op::Mul | Op::MulByConstant => x[0] * x[1],
        Op::Div | Op::DivByConstant => x[0] / x[1],
        Op::Mean => (x[0] + x[1]) / 2.0,
        Op::NegativeMean => -(x[0] + x[1]) / 2.0,
        Op::MeanSquares => (x[0] * x[0] + x[1] * x[1]) / 2.0,
        Op::Max if x[0].is_nan() || x[0] > x[1] => x[0],
        Op::Max => x[1],
        Op::Min if x[0].is_nan() || x[0] < x[1] => x[0],
        Op::Min => x[1],
        Op::ReduceMul => product(x.iter()),
        _ => unreachable!("{op:?} is not in the reference engine"),
    };
    (y, 0.0)
}

/// The products whose sum, divided by a divisor, is the value of an n-ary op.
fn summands(kind: Kind, x: &[f128]) -> Option<(Vec<[f128; 2]>, f128)> {
    let (n, half, m) = (x.len() as f128, x.len() / 2, mean(x));
    let each = |f: &dyn Fn(f128) -> [f128; 2]| x.iter().map(|&x| f(x)).collect();
    let inner = || (0..half).map(|k| [x[k], x[k + half]]);
    let Kind::Op(op) = kind else { return None };
    Some(match op {
        Op::ReduceSum => (each(&|x| [x, 1.0]), 1.0),
        Op::ReduceSub => (x.iter().enumerate().map(|(k, &x)| [x, if k == 0 { 1.0 } else { -1.0 }]).collect(), 1.0),
        Op::ReduceMean => (each(&|x| [x, 1.0]), n),
        Op::ReduceNegativeMean => (each(&|x| [x, 1.0]), -n),
        Op::AddSquares | Op::ReduceSumOfSquares => (each(&|x| [x, x]), 1.0),
        Op::ReduceMeanSquares => (each(&|x| [x, x]), n),
        Op::VarianceBiased => (each(&|x| [x - m, x - m]), n),
        Op::Variance => (each(&|x| [x - m, x - m]), n - 1.0),
        Op::InnerProduct => (inner().collect(), 1.0),
        Op::InnerProductWithBias => (inner().chain([[x[2 * half], 1.0]]).collect(), 1.0),
        _ => return None,
    })
}

/// What the value of a node over `x` may be: within 4 ULP, or as many places of what cancels as there are operands.
pub fn allowed_value(kind: Kind, x: &[f64]) -> Allowed {
    let x: Vec<f128> = x.iter().map(|&x| x.into()).collect();
    let places = (4.0 + 2.0 * x.len() as f128) * UNIT;
    let exactly = |x| Allowed::about(x, 0.0);
    let Some((summands, divisor)) = summands(kind, &x) else {
        let (y, cancelled) = value(kind, &x);
        return Allowed::about(y, 8.0 * y.abs() * UNIT + places * (y.abs() + cancelled) + error_below(y));
    };
    let total = summands.iter().fold(Allowed::ZERO, |sum, [a, b]| sum.plus(exactly(*a).times(exactly(*b))));
    let magnitude = sum(summands.iter().map(|[a, b]| (a * b).abs()));
    // A rounded mean shifts all deviations by some units of the numbers, except for their sum.
    let is_variance = matches!(kind, Kind::Op(Op::Variance | Op::VarianceBiased)) && magnitude > 0.0;
    let shift = if is_variance { (x.len() as f128 * size(&x)) * (x.len() as f128 * size(&x)) * UNIT } else { 0.0 };
    let error = (places * (magnitude + shift) / divisor).abs();
    total.times(Allowed::about(1.0 / divisor, UNIT * (1.0 / divisor).abs())).widened(error)
}

/// The error of `y` from rounding to subnormal numbers; 0 if f64 represents everything.
fn error_below(y: f128) -> f128 {
    if f128::from(y as f64) == y { 0.0 } else { 8.0 * LEAST }
}

/// The partials of a node with respect to its operands; further operands are constants.
fn partials(kind: Kind, x: &[f128], y: f128) -> Vec<f128> {
    let (n, half) = (x.len() as f128, x.len() / 2);
    let nan_below = |edge: f128, partial: f128| if x[0] < edge { f128::NAN } else { partial };
    let share = |a: f128, b: f128| {
        if a > b {
            1.0
        } else if a == b {
            0.5
        } else if a < b {
            0.0
        } else {
            f128::NAN
        }
    };
    let by = |f: &dyn Fn(f128) -> f128| x.iter().map(|&x| f(x)).collect();
    let op = match kind {
        Kind::Op(op) => op,
        Kind::Probability(_) => unreachable!("a softmax is taken whole"),
        Kind::Loss(class) => {
            let p = softmax(x).1;
            return (0..x.len()).map(|j| p[j] - f128::from(u8::from(j == class))).collect();
        }
    };
    match op {
        Op::Leaf | Op::Constant => vec![],
        Op::Relu => vec![RowMath::floor(share(x[0], 0.0))],
        Op::Tanh => vec![1.0 / (RowMath::cosh(x[0]) * RowMath::cosh(x[0]))],
        Op::Exp => vec![y],
        Op::NegLog => vec![nan_below(0.0, -1.0 / x[0])],
        Op::Log => vec![nan_below(0.0, 1.0 / x[0])],
        Op::Sigmoid => vec![0.25 / (RowMath::cosh(x[0] / 2.0) * RowMath::cosh(x[0] / 2.0))],
        Op::Inv => vec![-(y * y)],
        Op::Sqr => vec![2.0 * x[0]],
        Op::Pow3 => vec![3.0 * (x[0] * x[0])],
        Op::Sqrt => vec![0.5 / y],
        Op::InvSqrt => vec![-0.5 * y / x[0]],
        Op::Neg => vec![-1.0],
        Op::Abs => vec![share(x[0], 0.0) - share(0.0, x[0])],
        Op::Sin => vec![RowMath::cos(x[0])],
        Op::Cos => vec![-RowMath::sin(x[0])],
        Op::Expm1 => vec![RowMath::exp(x[0])],
        Op::Tan => vec![1.0 / (RowMath::cos(x[0]) * RowMath::cos(x[0]))],
        Op::Log1p => vec![nan_below(-1.0, 1.0 / (1.0 + x[0]))],
        Op::Softplus => vec![1.0 / (1.0 + RowMath::exp(-x[0]))],
        Op::Erf => vec![FRAC_2_SQRT_PI * RowMath::exp(-x[0] * x[0])],
        Op::Gelu if x[0].is_infinite() => vec![share(x[0], 0.0)],
        Op::Gelu => vec![normal(x[0]).0 + x[0] * normal(x[0]).1],
        Op::Pow => vec![power_slope(x[0], x[1]), RowMath::pow(x[0], x[1]) * RowMath::log(x[0])],
        Op::PowConstant => vec![power_slope(x[0], x[1])],
        Op::Atan2 => {
            let square = x[0] * x[0] + x[1] * x[1];
            vec![x[1] / square, -x[0] / square]
        }
        Op::ReduceMax | Op::ReduceMin => {
            let ties = x.iter().filter(|&&x| x == y).count() as f128;
            by(&|x| if x == y { 1.0 / ties } else { 0.0 })
        }
        Op::LogSumExp => softmax(x).1,
        Op::Norm2 => {
            let length = value(kind, x).0;
            by(&|v| if y == 0.0 { 0.0 } else { v / length })
        }
        Op::Add => vec![1.0, 1.0],
        Op::Sub => vec![1.0, -1.0],
        Op::Mul => vec![x[1], x[0]],
        Op::Div => vec![1.0 / x[1], -y / x[1]],
        Op::Mean => vec![0.5, 0.5],
        Op::NegativeMean => vec![-0.5, -0.5],
        Op::Max => vec![share(x[0], x[1]), share(x[1], x[0])],
        Op::Min => vec![share(x[1], x[0]), share(x[0], x[1])],
        Op::AddConstant => vec![1.0],
        Op::MulByConstant => vec![x[1]],
        Op::DivByConstant => vec![1.0 / x[1]],
        Op::ReduceSum => vec![1.0; x.len()],
        Op::ReduceSub => (0..x.len()).map(|k| if k == 0 { 1.0 } else { -1.0 }).collect(),
        Op::ReduceMul => (0..x.len()).map(|k| others(x, k)).collect(),
        Op::ReduceMean => vec![1.0 / n; x.len()],
        Op::ReduceNegativeMean => vec![-1.0 / n; x.len()],
        Op::AddSquares | Op::ReduceSumOfSquares => by(&|x| 2.0 * x),
        Op::MeanSquares | Op::ReduceMeanSquares => by(&|x| 2.0 * x / n),
        Op::VarianceBiased | Op::Variance => {
            let (m, divisor) = (mean(x), if op == Op::Variance { n - 1.0 } else { n });
            by(&|v| 2.0 * (v - m) / divisor)
        }
        Op::InnerProduct => x[half..].iter().chain(&x[..half]).copied().collect(),
        Op::InnerProductWithBias => x[half..2 * half].iter().chain(&x[..half]).copied().chain([1.0]).collect(),
        _ => unreachable!("{op:?} is not in the reference engine"),
    }
}

/// The product of all but number k: the product of earlier factors times that of later ones, which SEMANTICS specifies
/// instead of a quotient.
fn others(x: &[f128], k: usize) -> f128 {
    product(x[..k].iter()) * product(x[k + 1..].iter().rev())
}

/// A product in the order of its factors, as f64 computes it if a partial product is out of range.
fn product<'a>(factors: impl Iterator<Item = &'a f128>) -> f128 {
    let (mut exact, mut rounded, mut in_range) = (1.0, 1.0, true);
    for &x in factors {
        (exact, rounded) = (exact * x, rounded * x as f64);
        in_range &= rounded.is_normal() || exact == 0.0;
    }
    if in_range { exact } else { rounded.into() }
}

/// y x^(y-1); 0 if y is 0.
fn power_slope(x: f128, y: f128) -> f128 {
    if y == 0.0 { 0.0 } else { y * RowMath::pow(x, y - 1.0) }
}

/// The allowed error of a partial `p`: 8 ULP, more for many operands and for cancellation.
fn partial_error(kind: Kind, x: &[f128], p: f128) -> f128 {
    let n = x.len() as f128;
    let cancelled = match kind {
        // The error grows with the exponents.
        Kind::Loss(_) => 2.0 * size(x) + n,
        Kind::Op(Op::LogSumExp) => 2.0 * size(x) * p,
        Kind::Op(Op::Variance | Op::VarianceBiased) if x.iter().any(|v| *v != x[0]) => 2.0 * size(x),
        _ => 0.0,
    };
    let error = (16.0 * p.abs() + (4.0 + 2.0 * n) * (p.abs() + cancelled)) * UNIT + error_below(p);
    if error.is_finite() { error } else { 0.0 }
}

/// Adds the dependencies of `node` to `order`, then the node.
fn visit(nodes: &[Node], node: usize, seen: &mut [bool], order: &mut Vec<usize>) {
    if !std::mem::replace(&mut seen[node], true) {
        for &operand in &nodes[node].operands[..n_partials(&nodes[node])] {
            visit(nodes, operand, seen, order);
        }
        order.push(node);
    }
}

fn n_partials(node: &Node) -> usize {
    match node.kind {
        Kind::Op(Op::AddConstant | Op::MulByConstant | Op::DivByConstant | Op::PowConstant) => 1,
        _ => node.operands.len(),
    }
}

/// For each node that a path joins to the root, what its gradient may be, where users have the gradients `found`.
pub fn gradients(nodes: &[Node], root: usize, seed: f64, found: &[f64]) -> Vec<Option<Allowed>> {
    let (mut seen, mut order) = (vec![false; nodes.len()], Vec::new());
    visit(nodes, root, &mut seen, &mut order);
    let mut sums: Vec<Option<(Allowed, f128)>> = seen.iter().map(|&s| s.then_some((Allowed::ZERO, 0.0))).collect();
    sums[root] = Some((Allowed::about(seed.into(), 0.0), 0.0));
    let mut n_terms = vec![0.0; nodes.len()];
    for &node in order.iter().rev() {
        for (operand, term) in terms(nodes, node, &seen, found) {
            let (sum, magnitudes) = sums[operand].as_mut().unwrap();
            (*sum, *magnitudes) = (sum.plus(term), *magnitudes + term.magnitude());
            n_terms[operand] += 1.0;
        }
    }
    // The sum in any order.
    let any_order = |(sum, n): (Option<(Allowed, f128)>, f128)| sum.map(|(sum, all)| sum.widened(n * UNIT * all));
    sums.into_iter().zip(n_terms).map(any_order).collect()
}

/// The contributions of a node to its operands.
fn terms(nodes: &[Node], node: usize, seen: &[bool], found: &[f64]) -> Vec<(usize, Allowed)> {
    let Node { kind, operands, value } = &nodes[node];
    let x: Vec<f128> = operands.iter().map(|&k| nodes[k].value.into()).collect();
    if let Kind::Probability(k) = *kind {
        // The first reached output of a softmax represents the block.
        let block = node - k..node - k + operands.len();
        let speaks = block.clone().find(|&k| seen[k]) == Some(node);
        return if speaks { softmax_terms(operands, &x, &seen[block.clone()], &found[block]) } else { vec![] };
    }
    let g = Allowed::about(found[node].into(), 0.0);
    let term = |(&operand, p): (&usize, f128)| {
        // A masked operand is not multiplied; nor is any operand of a norm at the origin.
        let masks = matches!(kind, Kind::Op(Op::Relu | Op::Abs | Op::Max | Op::Min | Op::ReduceMax | Op::ReduceMin));
        let off = masks && p == 0.0 || matches!(kind, Kind::Op(Op::Norm2)) && *value == 0.0;
        (!off).then(|| (operand, g.times(Allowed::about(p, partial_error(*kind, &x, p)))))
    };
    operands.iter().zip(partials(*kind, &x, (*value).into())).filter_map(term).collect()
}

/// p_i (g_i - sum of g_j p_j) over the reached g.
fn softmax_terms(operands: &[usize], x: &[f128], seen: &[bool], found: &[f64]) -> Vec<(usize, Allowed)> {
    let places = (4.0 * size(x) + 4.0 * x.len() as f128 + 16.0) * UNIT;
    let p: Vec<Allowed> = softmax(x).1.iter().map(|&p| Allowed::about(p, p * places + error_below(p))).collect();
    let g = |k: usize| if seen[k] { Allowed::about(found[k].into(), 0.0) } else { Allowed::ZERO };
    let reached = (0..x.len()).filter(|&k| seen[k]);
    let weighted = reached.fold(Allowed::ZERO, |sum, k| sum.plus(g(k).times(p[k])));
    (0..x.len()).map(|k| (operands[k], p[k].times(g(k).minus(weighted)))).collect()
}
