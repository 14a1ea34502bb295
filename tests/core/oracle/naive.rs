//! The oracle: values and gradients by definition, one node at a time, by recursion. No tape order, no shortcuts.

use burtorch_core::Op;

/// What a node computes from its operands.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// An op of one output.
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

fn softmax(x: &[f64]) -> (f64, Vec<f64>) {
    let top = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = x.iter().map(|x| (x - top).exp()).sum();
    (top + total.ln(), x.iter().map(|x| (x - top).exp() / total).collect())
}

fn variance(x: &[f64]) -> (f64, f64) {
    let mean = x.iter().sum::<f64>() / x.len() as f64;
    (mean, x.iter().map(|x| (x - mean) * (x - mean)).sum())
}

/// The error function by a series without cancellation.
fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= 2.0 * x * x / f64::from(2 * n + 1);
        sum += term;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

/// The normal distribution and its density.
fn normal(x: f64) -> (f64, f64) {
    let density = (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    ((1.0 + erf(x / std::f64::consts::SQRT_2)) / 2.0, density)
}

fn norm(x: &[f64]) -> f64 {
    let top = x.iter().map(|x| x.abs()).fold(0.0, f64::max);
    if top == 0.0 { 0.0 } else { top * x.iter().map(|x| x / top).map(|x| x * x).sum::<f64>().sqrt() }
}

/// The value of a node over `x`.
pub fn value(kind: Kind, x: &[f64]) -> f64 {
    let (n, half) = (x.len() as f64, x.len() / 2);
    let squares = || x.iter().map(|x| x * x).sum::<f64>();
    let op = match kind {
        Kind::Op(op) => op,
        Kind::Probability(k) => return softmax(x).1[k],
        Kind::Loss(class) => return softmax(x).0 - x[class],
    };
    match op {
        Op::Relu => {
            if x[0] <= 0.0 {
                0.0
            } else {
                x[0]
            }
        }
        Op::Tanh => x[0].tanh(),
        Op::Exp => x[0].exp(),
        Op::NegLog => -x[0].ln(),
        Op::Log => x[0].ln(),
        Op::Sigmoid => 1.0 / (1.0 + (-x[0]).exp()),
        Op::Inv => 1.0 / x[0],
        Op::Sqr => x[0] * x[0],
        Op::Pow3 => x[0] * x[0] * x[0],
        Op::Sqrt => x[0].sqrt(),
        Op::InvSqrt => 1.0 / x[0].sqrt(),
        Op::Neg => -x[0],
        Op::Abs => x[0].abs(),
        Op::Sin => x[0].sin(),
        Op::Cos => x[0].cos(),
        Op::Expm1 => x[0].exp_m1(),
        Op::Tan => x[0].tan(),
        Op::Log1p => x[0].ln_1p(),
        Op::Softplus => x[0].max(0.0) + (-x[0].abs()).exp().ln_1p(),
        Op::Erf => erf(x[0]),
        Op::Gelu if x[0] == f64::NEG_INFINITY => 0.0,
        Op::Gelu => x[0] * normal(x[0]).0,
        Op::Pow | Op::PowConstant => x[0].powf(x[1]),
        Op::Atan2 => x[0].atan2(x[1]),
        Op::ReduceMax => x.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        Op::ReduceMin => x.iter().copied().fold(f64::INFINITY, f64::min),
        Op::LogSumExp => softmax(x).0,
        Op::Norm2 => norm(x),
        Op::Add | Op::AddConstant => x[0] + x[1],
        Op::Sub => x[0] - x[1],
        Op::Mul | Op::MulByConstant => x[0] * x[1],
        Op::Div | Op::DivByConstant => x[0] / x[1],
        Op::Mean => (x[0] + x[1]) / 2.0,
        Op::NegativeMean => -(x[0] + x[1]) / 2.0,
        Op::AddSquares | Op::ReduceSumOfSquares => squares(),
        Op::MeanSquares | Op::ReduceMeanSquares => squares() / n,
        Op::Max => {
            if x[0].is_nan() || x[0] > x[1] {
                x[0]
            } else {
                x[1]
            }
        }
        Op::Min => {
            if x[0].is_nan() || x[0] < x[1] {
                x[0]
            } else {
                x[1]
            }
        }
        Op::ReduceSum => x.iter().sum(),
        Op::ReduceSub => x[0] - x[1..].iter().sum::<f64>(),
        Op::ReduceMul => x.iter().product(),
        Op::ReduceMean => x.iter().sum::<f64>() / n,
        Op::ReduceNegativeMean => -x.iter().sum::<f64>() / n,
        Op::VarianceBiased => variance(x).1 / n,
        Op::Variance => variance(x).1 / (n - 1.0),
        Op::InnerProduct => (0..half).map(|k| x[k] * x[k + half]).sum(),
        Op::InnerProductWithBias => (0..half).map(|k| x[k] * x[k + half]).sum::<f64>() + x[2 * half],
        _ => unreachable!("{op:?} is not in the oracle"),
    }
}

/// The partials of a node by its operands; operands beyond them are constants to it.
pub fn partials(kind: Kind, x: &[f64], y: f64) -> Vec<f64> {
    let (n, half) = (x.len() as f64, x.len() / 2);
    let nan_below_zero = |partial: f64| if x[0] < 0.0 { f64::NAN } else { partial };
    let share = |a: f64, b: f64| {
        if a > b {
            1.0
        } else if a == b {
            0.5
        } else if a < b {
            0.0
        } else {
            f64::NAN
        }
    };
    let by = |f: &dyn Fn(f64) -> f64| x.iter().map(|&x| f(x)).collect();
    let op = match kind {
        Kind::Op(op) => op,
        Kind::Probability(k) => {
            let p = softmax(x).1;
            return (0..x.len()).map(|j| p[k] * (f64::from(u8::from(j == k)) - p[j])).collect();
        }
        Kind::Loss(class) => {
            let p = softmax(x).1;
            return (0..x.len()).map(|j| p[j] - f64::from(u8::from(j == class))).collect();
        }
    };
    match op {
        Op::Leaf | Op::Constant => vec![],
        Op::Relu => vec![if x[0] > 0.0 {
            1.0
        } else if x[0] <= 0.0 {
            0.0
        } else {
            f64::NAN
        }],
        Op::Tanh => vec![4.0 * (-2.0 * x[0].abs()).exp() / (1.0 + (-2.0 * x[0].abs()).exp()).powi(2)],
        Op::Exp => vec![y],
        Op::NegLog => vec![nan_below_zero(-1.0 / x[0])],
        Op::Log => vec![nan_below_zero(1.0 / x[0])],
        Op::Sigmoid => vec![(-x[0].abs()).exp() / (1.0 + (-x[0].abs()).exp()).powi(2)],
        Op::Inv => vec![-(y * y)],
        Op::Sqr => vec![2.0 * x[0]],
        Op::Pow3 => vec![3.0 * (x[0] * x[0])],
        Op::Sqrt => vec![0.5 / y],
        Op::InvSqrt => vec![-0.5 * y / x[0]],
        Op::Neg => vec![-1.0],
        Op::Abs => vec![if x[0] > 0.0 {
            1.0
        } else if x[0] < 0.0 {
            -1.0
        } else {
            x[0]
        }],
        Op::Sin => vec![x[0].cos()],
        Op::Cos => vec![-x[0].sin()],
        Op::Expm1 => vec![x[0].exp()],
        Op::Tan => vec![1.0 / x[0].cos().powi(2)],
        Op::Log1p => vec![if x[0] < -1.0 { f64::NAN } else { 1.0 / (1.0 + x[0]) }],
        Op::Softplus => vec![if x[0] < 0.0 { x[0].exp() / (1.0 + x[0].exp()) } else { 1.0 / (1.0 + (-x[0]).exp()) }],
        Op::Erf => vec![std::f64::consts::FRAC_2_SQRT_PI * (-x[0] * x[0]).exp()],
        Op::Gelu if x[0].is_infinite() => vec![if x[0] > 0.0 { 1.0 } else { 0.0 }],
        Op::Gelu => vec![normal(x[0]).0 + x[0] * normal(x[0]).1],
        Op::Pow => vec![power_slope(x[0], x[1]), y * x[0].ln()],
        Op::PowConstant => vec![power_slope(x[0], x[1])],
        Op::Atan2 => {
            let square = x[0] * x[0] + x[1] * x[1];
            vec![x[1] / square, -x[0] / square]
        }
        Op::ReduceMax | Op::ReduceMin => {
            let ties = x.iter().filter(|&&x| x == y).count() as f64;
            by(&|x| if x == y { 1.0 / ties } else { 0.0 })
        }
        Op::LogSumExp => softmax(x).1,
        Op::Norm2 => by(&|v| if y == 0.0 { 0.0 } else { v / y }),
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
        Op::ReduceMul => (0..x.len()).map(|k| x[..k].iter().chain(&x[k + 1..]).product()).collect(),
        Op::ReduceMean => vec![1.0 / n; x.len()],
        Op::ReduceNegativeMean => vec![-1.0 / n; x.len()],
        Op::AddSquares | Op::ReduceSumOfSquares => by(&|x| 2.0 * x),
        Op::MeanSquares | Op::ReduceMeanSquares => by(&|x| 2.0 * x / n),
        Op::VarianceBiased => by(&|v| 2.0 * (v - variance(x).0) / n),
        Op::Variance => by(&|v| 2.0 * (v - variance(x).0) / (n - 1.0)),
        Op::InnerProduct => x[half..].iter().chain(&x[..half]).copied().collect(),
        Op::InnerProductWithBias => x[half..2 * half].iter().chain(&x[..half]).copied().chain([1.0]).collect(),
        _ => unreachable!("{op:?} is not in the oracle"),
    }
}

/// y x^(y-1); 0 where y is 0.
fn power_slope(x: f64, y: f64) -> f64 {
    if y == 0.0 { 0.0 } else { y * x.powf(y - 1.0) }
}

/// Adds to `order` what `node` is computed from, then the node.
fn visit(nodes: &[Node], node: usize, seen: &mut [bool], order: &mut Vec<usize>) {
    if !std::mem::replace(&mut seen[node], true) {
        for &operand in &nodes[node].operands[..edges(nodes, node).len()] {
            visit(nodes, operand, seen, order);
        }
        order.push(node);
    }
}

fn edges(nodes: &[Node], node: usize) -> Vec<f64> {
    let x: Vec<f64> = nodes[node].operands.iter().map(|&k| nodes[k].value).collect();
    partials(nodes[node].kind, &x, nodes[node].value)
}

/// The size of what cancels in the partials of a node, to which their rounding errors are relative.
fn cancelled(nodes: &[Node], node: usize) -> f64 {
    match nodes[node].kind {
        Kind::Loss(_) | Kind::Probability(_) | Kind::Op(Op::Gelu) => 1.0,
        Kind::Op(Op::Variance | Op::VarianceBiased) => {
            nodes[node].operands.iter().map(|&k| nodes[k].value.abs()).fold(0.0, f64::max)
        }
        _ => 0.0,
    }
}

/// For each node that a path joins to the root, the gradient and the sum of the magnitudes that went into it.
pub fn gradients(nodes: &[Node], root: usize, seed: f64) -> Vec<Option<(f64, f64)>> {
    let (mut seen, mut order) = (vec![false; nodes.len()], Vec::new());
    visit(nodes, root, &mut seen, &mut order);
    let mut grads: Vec<Option<(f64, f64)>> = seen.iter().map(|&s| s.then_some((0.0, 0.0))).collect();
    grads[root] = Some((seed, seed.abs()));
    for &node in order.iter().rev() {
        let (g, size) = grads[node].unwrap();
        for (&operand, partial) in nodes[node].operands.iter().zip(edges(nodes, node)) {
            let (to, to_size) = grads[operand].as_mut().unwrap();
            // What a mask switches off is not multiplied.
            let off = match nodes[node].kind {
                Kind::Op(Op::Relu | Op::Abs | Op::Max | Op::Min | Op::ReduceMax | Op::ReduceMin) => partial == 0.0,
                // At the origin, the minimum-norm subgradient.
                Kind::Op(Op::Norm2) => nodes[node].value == 0.0,
                _ => false,
            };
            *to += if off { 0.0 } else { g * partial };
            *to_size += if off { 0.0 } else { size * partial.abs().max(cancelled(nodes, node)) };
        }
    }
    grads
}
