//! Random functions, built on any graph: every scalar op, reductions, inner products, maps, repeated operands.

use burtorch_core::ops::{Arity, OP_INFO};
use burtorch_core::program::Recording;
use burtorch_core::{Float, Graph, NodeId, Op, Operands, Program, Range};

/// A small generator with a fixed sequence per seed.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x1234_5678_9ABC_DEF1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// Uniform between the bounds.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Ops that keep numbers moderate and smooth, for differences; or all of them.
#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    Any,
    Smooth,
}

const SMOOTH: &[Op] = &[
    Op::Tanh,
    Op::Sigmoid,
    Op::Sin,
    Op::Cos,
    Op::Softplus,
    Op::Erf,
    Op::Gelu,
    Op::Add,
    Op::Sub,
    Op::Mul,
    Op::Mean,
    Op::MeanSquares,
    Op::NegativeMean,
    Op::MulByConstant,
    Op::AddConstant,
    Op::ReduceSum,
    Op::ReduceMul,
    Op::ReduceMean,
    Op::Variance,
    Op::VarianceBiased,
    Op::InnerProduct,
    Op::InnerProductWithBias,
    Op::ReduceSub,
    Op::ReduceMeanSquares,
];

/// Appends `n_ops` random ops on `inputs` and returns the last node.
pub fn build<S: Float>(
    graph: &mut Graph<'static, S>,
    inputs: &[NodeId],
    seed: u64,
    n_ops: usize,
    kind: Kind,
) -> NodeId {
    let mut dice = Dice::new(seed);
    let mut nodes = inputs.to_vec();
    let rows: Vec<_> = OP_INFO.iter().filter(|row| !matches!(row.arity, Arity::Nullary | Arity::Block)).collect();
    for _ in 0..n_ops {
        let op = match kind {
            Kind::Any => rows[dice.below(rows.len())].op,
            Kind::Smooth => SMOOTH[dice.below(SMOOTH.len())],
        };
        let pick = |dice: &mut Dice, nodes: &[NodeId]| {
            // Mostly recent nodes, so that chains are long.
            let reach = if dice.below(3) == 0 { nodes.len() } else { 4 };
            let back = dice.below(nodes.len().min(reach));
            nodes[nodes.len() - 1 - back]
        };
        let many = |dice: &mut Dice, nodes: &[NodeId], n: usize| (0..n).map(|_| pick(dice, nodes)).collect::<Vec<_>>();
        let node = match op.info().arity {
            Arity::Unary if dice.below(8) == 0 => {
                let at = dice.below(nodes.len());
                let range = Range::new(nodes[at], 1);
                graph.map(op, range).unwrap().first()
            }
            Arity::Unary => graph.unary_op(op, pick(&mut dice, &nodes)).unwrap(),
            Arity::Binary => graph.binary_op(op, pick(&mut dice, &nodes), pick(&mut dice, &nodes)).unwrap(),
            Arity::WithConstant => {
                let (x, c) = (pick(&mut dice, &nodes), S::lit(dice.between(-3.0, 3.0)));
                match op {
                    Op::MulByConstant => graph.with_constant::<burtorch_core::ops::MulByConstant>(x, c),
                    Op::DivByConstant => graph.div_constant(x, c),
                    Op::AddConstant => graph.add_constant(x, c),
                    _ => graph.pow_constant(x, c),
                }
                .unwrap()
            }
            Arity::Reduction => {
                // A variance of one number is NaN; long products are not moderate.
                let n = if kind == Kind::Any { 1 + dice.below(20) } else { 2 + dice.below(3) };
                let xs = many(&mut dice, &nodes, n);
                graph.reduce(op, Operands::List(&xs), &[]).unwrap()
            }
            _ => {
                let n = if kind == Kind::Any { 1 + dice.below(20) } else { 1 + dice.below(3) };
                let (xs, ws) = (many(&mut dice, &nodes, n), many(&mut dice, &nodes, n));
                let bias = (op == Op::InnerProductWithBias).then(|| pick(&mut dice, &nodes));
                graph.inner_product(Operands::List(&xs), Operands::List(&ws), bias, &[]).unwrap()
            }
        };
        nodes.push(node);
    }
    *nodes.last().unwrap()
}

/// A random function recorded at `x`.
pub fn recorded<S: Float>(x: &[f64], seed: u64, n_ops: usize, kind: Kind) -> Program {
    let mut graph = Graph::<S>::new();
    let inputs: Vec<NodeId> = x.iter().map(|&x| graph.leaf(S::lit(x)).unwrap()).collect();
    let root = build(&mut graph, &inputs, seed, n_ops, kind);
    let recording = Recording { n_differentiated: inputs.len(), inputs, outputs: vec![root], ..Recording::default() };
    recording.program(&graph).unwrap()
}

/// Its value and gradient at `x`, eagerly.
pub fn eager<S: Float>(x: &[f64], seed: u64, n_ops: usize, kind: Kind) -> (f64, Vec<f64>) {
    let mut graph = Graph::<S>::new();
    let inputs: Vec<NodeId> = x.iter().map(|&x| graph.leaf(S::lit(x)).unwrap()).collect();
    let root = build(&mut graph, &inputs, seed, n_ops, kind);
    graph.backward(root).unwrap();
    let grads = inputs.iter().map(|&k| graph.grad(k).unwrap().to_f64()).collect();
    (graph.value(root).unwrap().to_f64(), grads)
}

/// Equal bits, but that any NaN is as good as another.
pub fn same(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}
