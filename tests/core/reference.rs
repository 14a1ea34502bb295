//! Random graphs against a naive recursive engine in f128: every value, and every gradient within rounding, with
//! infinities, NaN and "not reached"; and lanes against numbers, bit for bit.

mod allowed;
mod naive;

use burtorch_core::simd::{F32x8, F32x16, F32x64, F64x4, F64x8};
use burtorch_core::{
    CrossEntropyTarget, Float, Graph, Init, NodeId, Op, Operands, Parameters, Range, Scalar, Tensor, View,
};
use naive::{Kind, Node};
use proptest::prelude::any;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const UNARY: &[Op] = &[
    Op::Relu,
    Op::Tanh,
    Op::Exp,
    Op::NegLog,
    Op::Log,
    Op::Sigmoid,
    Op::Inv,
    Op::Sqr,
    Op::Pow3,
    Op::Sqrt,
    Op::InvSqrt,
    Op::Neg,
    Op::Abs,
    Op::Sin,
    Op::Cos,
    Op::Expm1,
    Op::Tan,
    Op::Log1p,
    Op::Softplus,
    Op::Erf,
    Op::Gelu,
];
const BINARY: &[Op] = &[
    Op::Add,
    Op::Sub,
    Op::Mul,
    Op::Div,
    Op::Mean,
    Op::AddSquares,
    Op::MeanSquares,
    Op::NegativeMean,
    Op::Max,
    Op::Min,
    Op::MulByConstant,
    Op::DivByConstant,
    Op::AddConstant,
];
const REDUCTIONS: &[Op] = &[
    Op::ReduceSum,
    Op::ReduceSub,
    Op::ReduceMul,
    Op::ReduceMean,
    Op::ReduceSumOfSquares,
    Op::ReduceMeanSquares,
    Op::ReduceNegativeMean,
    Op::VarianceBiased,
    Op::Variance,
];
/// Ops tested with operands of ordinary size: their values at infinities and zeros have separate tests.
const TAME_BINARY: &[Op] = &[Op::Pow, Op::PowConstant, Op::Atan2];
const TAME_REDUCTIONS: &[Op] = &[Op::ReduceMax, Op::ReduceMin, Op::LogSumExp, Op::Norm2];
const SPECIAL: &[f64] = &[0.0, -0.0, 1.0, -1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e-300, 1e300];

/// Parameters come first in the reference engine, then the nodes of the graph in order.
const N_PARAMS: usize = 12;

struct Both {
    graph: Graph<'static, f64>,
    params: Parameters<'static, f64>,
    w: Tensor,
    nodes: Vec<Node>,
    rng: ChaCha8Rng,
    /// The probability that a leaf is a special value.
    special: f64,
}

/// Operands in the form for the graph, with the reference engine's numbers.
enum Given {
    Run(Range),
    Views(Vec<View>),
    List(Vec<NodeId>),
}

impl Given {
    fn operands(&self) -> Operands<'_> {
        match self {
            Given::Run(range) => (*range).into(),
            Given::Views(views) => views[..].into(),
            Given::List(list) => list[..].into(),
        }
    }
}

fn ids(range: Range) -> impl Iterator<Item = usize> {
    let first = range.first().index() as usize + N_PARAMS;
    first..first + range.len()
}

impl Both {
    fn new(seed: u64) -> Self {
        let mut params = Parameters::new(seed);
        let w = params.tensor(&[4, 3], None, Init::Uniform(-1.5, 1.5), true).unwrap();
        let leaf = |&value: &f64| Node { kind: Kind::Op(Op::Leaf), operands: vec![], value };
        let nodes = params.values().iter().map(leaf).collect();
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let special = if rng.random_bool(0.3) { 0.15 } else { 0.0 };
        Both { graph: Graph::new(), params, w, nodes, rng, special }
    }

    /// Records the outputs that the graph appended, of these kinds over these operands, and checks the values.
    fn record(&mut self, kinds: &[Kind], operands: &[usize]) {
        assert_eq!(self.graph.len(), self.nodes.len() - N_PARAMS + kinds.len());
        let x: Vec<f64> = operands.iter().map(|&k| self.nodes[k].value).collect();
        for &kind in kinds {
            let value = self.graph.values()[self.nodes.len() - N_PARAMS];
            if !matches!(kind, Kind::Op(Op::Leaf | Op::Constant)) {
                check_value(kind, &x, value);
            }
            self.nodes.push(Node { kind, operands: operands.to_vec(), value });
        }
    }

    fn any(&mut self) -> NodeId {
        let n = self.graph.len();
        // Mostly near nodes, for depth; sometimes far ones, for sharing.
        let back = if self.rng.random_bool(0.5) { 8.min(n) } else { n };
        NodeId::from_index((n - 1 - self.rng.random_range(0..back)) as u32)
    }

    fn any_run(&mut self, longest: usize) -> Range {
        let n = self.graph.len();
        let len = self.rng.random_range(1..=longest.min(n));
        Range::new(NodeId::from_index(self.rng.random_range(0..=n - len) as u32), len as u32)
    }

    /// `n` operands in one of the forms, or a random number of operands if `n` is 0.
    fn given(&mut self, n: usize) -> (Given, Vec<usize>) {
        let form = self.rng.random_range(0..3);
        if form == 0 {
            let run = self.any_run(20);
            if n == 0 || run.len() == n {
                return (Given::Run(run), ids(run).collect());
            }
        }
        if form == 1 && n == 0 {
            let (mut views, mut numbers) = (Vec::new(), Vec::new());
            for _ in 0..self.rng.random_range(1..4) {
                if self.rng.random_bool(0.3) {
                    let from = self.rng.random_range(0..N_PARAMS);
                    let to = self.rng.random_range(from..N_PARAMS) + 1;
                    views.push(View::from(self.w.slice().slice(from, to).unwrap()));
                    numbers.extend(from..to);
                } else {
                    let run = self.any_run(6);
                    views.push(View::from(run));
                    numbers.extend(ids(run));
                }
            }
            return (Given::Views(views), numbers);
        }
        let n = if n == 0 { self.rng.random_range(1..=20) } else { n };
        let list: Vec<NodeId> = (0..n).map(|_| self.any()).collect();
        let numbers = list.iter().map(|x| x.index() as usize + N_PARAMS).collect();
        (Given::List(list), numbers)
    }

    fn leaf(&mut self) {
        let special = self.special;
        let x = if self.rng.random_bool(special) {
            *SPECIAL.choose(&mut self.rng).unwrap()
        } else {
            self.rng.random_range(-2.0..2.0)
        };
        match self.rng.random_range(0..10) {
            0 => {
                self.graph.constant(x).unwrap();
                self.record(&[Kind::Op(Op::Constant)], &[]);
            }
            1 => {
                let k = self.rng.random_range(0..N_PARAMS);
                self.graph.parameter(&self.params, self.w.slice(), k).unwrap();
                // As a sum of one number.
                self.record(&[Kind::Op(Op::ReduceSum)], &[k]);
            }
            _ => {
                self.graph.leaf(x).unwrap();
                self.record(&[Kind::Op(Op::Leaf)], &[]);
            }
        }
    }

    fn step(&mut self) {
        match self.rng.random_range(0..20) {
            _ if self.graph.is_empty() => self.leaf(),
            0..4 => self.leaf(),
            4..8 => {
                let (op, x) = (*UNARY.choose(&mut self.rng).unwrap(), self.any());
                self.graph.unary_op(op, x).unwrap();
                self.record(&[Kind::Op(op)], &[x.index() as usize + N_PARAMS]);
            }
            8..14 => {
                let (mut op, x, y) = (*BINARY.choose(&mut self.rng).unwrap(), self.any(), self.any());
                let [a, b] = [x, y].map(|node| self.graph.value(node).unwrap());
                if (1e-3..1e3).contains(&a) && b.abs() < 30.0 && self.rng.random_bool(0.3) {
                    op = *TAME_BINARY.choose(&mut self.rng).unwrap();
                }
                self.graph.binary_op(op, x, y).unwrap();
                self.record(&[Kind::Op(op)], &[x, y].map(|x| x.index() as usize + N_PARAMS));
            }
            14..16 => {
                let mut op = *REDUCTIONS.choose(&mut self.rng).unwrap();
                let (given, numbers) = self.given(0);
                if numbers.iter().all(|&k| self.nodes[k].value.abs() < 1e3) && self.rng.random_bool(0.4) {
                    op = *TAME_REDUCTIONS.choose(&mut self.rng).unwrap();
                }
                self.graph.reduce(op, given.operands(), &[&self.params]).unwrap();
                self.record(&[Kind::Op(op)], &numbers);
            }
            16 => self.inner_product(),
            17 => self.affine(),
            18 => {
                let (op, run) = (*UNARY.choose(&mut self.rng).unwrap(), self.any_run(9));
                self.graph.map(op, run).unwrap();
                for k in ids(run) {
                    self.push_part(Kind::Op(op), &[k]);
                }
            }
            _ => self.block(),
        }
    }

    fn inner_product(&mut self) {
        let (x, mut numbers) = self.given(0);
        let (w, others) = self.given(numbers.len());
        numbers.extend(others);
        let bias = self.rng.random_bool(0.5).then(|| self.any());
        self.graph.inner_product(x.operands(), w.operands(), bias, &[&self.params]).unwrap();
        numbers.extend(bias.map(|b| b.index() as usize + N_PARAMS));
        let op = if bias.is_some() { Op::InnerProductWithBias } else { Op::InnerProduct };
        self.record(&[Kind::Op(op)], &numbers);
    }

    /// Rows 0 and 1 of the parameters times three inputs, with the last two parameters as a bias.
    fn affine(&mut self) {
        let (one, two) = (self.any(), self.any_run(1));
        let w = self.w.slice();
        let from = self.rng.random_range(0..N_PARAMS);
        let views = [View::from(one), w.slice(from, from + 1).unwrap().into(), two.into()];
        let x = [one.index() as usize + N_PARAMS, from, two.first().index() as usize + N_PARAMS];
        let bias = self.rng.random_bool(0.5);
        let bias_slice = bias.then(|| w.slice(10, 12).unwrap());
        self.graph.affine(&[&self.params], &views, w.slice(0, 6).unwrap(), bias_slice).unwrap();
        for row in 0..2 {
            let mut numbers = x.to_vec();
            numbers.extend(3 * row..3 * row + 3);
            if bias {
                numbers.push(10 + row);
            }
            let op = if bias { Op::InnerProductWithBias } else { Op::InnerProduct };
            self.push_part(Kind::Op(op), &numbers);
        }
    }

    fn block(&mut self) {
        let run = self.any_run(7);
        let numbers: Vec<usize> = ids(run).collect();
        let tame = numbers.iter().all(|&k| self.nodes[k].value.abs() < 1e3);
        if tame && self.rng.random_bool(0.7) {
            let class = self.rng.random_range(0..run.len());
            self.graph.softmax_cross_entropy(run, CrossEntropyTarget::Classes(&[class as u32])).unwrap();
            for k in 0..run.len() {
                self.push_part(Kind::Probability(k), &numbers);
            }
            self.push_part(Kind::Loss(class), &numbers);
        } else {
            self.graph.reduce_mean_and_mean_squares(run).unwrap();
            self.push_part(Kind::Op(Op::ReduceMean), &numbers);
            self.push_part(Kind::Op(Op::ReduceMeanSquares), &numbers);
        }
    }

    /// As `record`, for one output of a block that is already in the graph.
    fn push_part(&mut self, kind: Kind, operands: &[usize]) {
        let value = self.graph.values()[self.nodes.len() - N_PARAMS];
        let x: Vec<f64> = operands.iter().map(|&k| self.nodes[k].value).collect();
        check_value(kind, &x, value);
        self.nodes.push(Node { kind, operands: operands.to_vec(), value });
    }

    /// Returns the number of compared gradients that are neither 0, infinite nor NaN.
    fn check_sweep(&mut self, root: NodeId, seed: f64) -> usize {
        let at = root.index() as usize + N_PARAMS;
        self.graph.zero_grad();
        self.params.zero_grad();
        self.graph.backward_with(root, seed, &mut [self.params.gradients()]).unwrap();
        let of_node = |k: usize| self.graph.grad(NodeId::from_index(k as u32)).unwrap();
        let found: Vec<f64> = self.params.grads().iter().copied().chain((0..self.graph.len()).map(of_node)).collect();
        let allowed = naive::gradients(&self.nodes, at, seed, &found);
        let mut n_telling = 0;
        for (k, (&found, allowed)) in found.iter().zip(&allowed).enumerate() {
            match allowed {
                _ if matches!(self.nodes[k].kind, Kind::Op(Op::Constant)) => {}
                None => assert_eq!(found.to_bits(), 0, "node {k} is not reached"),
                Some(allowed) => {
                    let is_right = allowed.contains(found);
                    assert!(is_right, "{found:e} instead of {allowed:?}: node {k} of root {at} in {:?}", self.nodes);
                    n_telling += usize::from(found.is_normal());
                }
            }
        }
        n_telling
    }
}

fn check_value(kind: Kind, x: &[f64], value: f64) {
    let allowed = naive::allowed_value(kind, x);
    assert!(allowed.contains(value), "{kind:?} of {x:?} is {value:e} instead of {allowed:?}");
}

/// Two backward passes of a graph of about `n` nodes; a smaller `n` with the same seed gives the start of the same
/// graph. Returns the number of informative gradients.
fn check_graph(seed: u64, n: usize) -> usize {
    let mut both = Both::new(seed);
    while both.graph.len() < n {
        both.step();
    }
    let last = NodeId::from_index(both.graph.len() as u32 - 1);
    let n_telling = both.check_sweep(last, 1.0);
    let root = both.any();
    n_telling + both.check_sweep(root, -0.5)
}

/// 2,000 graphs, equal in every run; or as many random ones as `PROPTEST_CASES` says. A failure shrinks to the smallest
/// failing graph.
#[test]
fn two_thousand_random_graphs_agree_with_the_reference_engine() {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok());
    let cases = asked.unwrap_or(2000);
    let n_telling = std::cell::Cell::new(0);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let mut runner = match asked {
        Some(_) => TestRunner::new(config),
        None => TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha)),
    };
    let checked = runner.run(&(any::<u64>(), 1..=200_usize), |(seed, n)| {
        n_telling.set(n_telling.get() + check_graph(seed, n));
        Ok(())
    });
    checked.unwrap_or_else(|failure| panic!("{failure}"));
    let n_telling = n_telling.get();
    assert!(n_telling > 15 * cases as usize, "{n_telling} gradients in {cases} graphs are too few");
}

/// One elementwise graph for any scalar: ops by number, operands by number.
fn elementwise<S: Scalar>(steps: &[(Option<Op>, usize, usize)], leaves: &[S]) -> (Vec<S>, Vec<S>) {
    let mut graph = Graph::<S>::new();
    let mut values = leaves.iter();
    for &(op, x, y) in steps {
        let (x, y) = (NodeId::from_index(x as u32), NodeId::from_index(y as u32));
        match op {
            None => graph.leaf(*values.next().unwrap()).unwrap(),
            Some(op) => graph.unary_op(op, x).or_else(|_| graph.binary_op(op, x, y)).unwrap(),
        };
    }
    graph.backward(NodeId::from_index(graph.len() as u32 - 1)).unwrap();
    let grads = (0..graph.len()).map(|k| graph.grad(NodeId::from_index(k as u32)).unwrap()).collect();
    (graph.values().to_vec(), grads)
}

fn lanes_equal_numbers<S: Scalar>(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let n = rng.random_range(2..60usize);
        let mut steps = Vec::new();
        for k in 0..n {
            let more = [Op::Log1p, Op::Softplus, Op::Pow, Op::PowConstant];
            let op = match rng.random_range(0..10) {
                _ if k == 0 => None,
                0..3 => None,
                3..6 => UNARY.choose(&mut rng).copied(),
                6..9 => BINARY.choose(&mut rng).copied(),
                _ => more.choose(&mut rng).copied(),
            };
            let mut near = || rng.random_range(k.saturating_sub(10)..k.max(1));
            steps.push((op, near(), near()));
        }
        let n_leaves = steps.iter().filter(|s| s.0.is_none()).count();
        let mut leaves = vec![S::lit(0.0); n_leaves];
        for leaf in &mut leaves {
            for k in 0..S::LANES {
                let special = rng.random_bool(0.05);
                let x = if special { *SPECIAL.choose(&mut rng).unwrap() } else { rng.random_range(-3.0..3.0) };
                *leaf = leaf.with_lane(k, S::Elem::from_f64(x));
            }
        }
        let (values, grads) = elementwise(&steps, &leaves);
        for lane in 0..S::LANES {
            let of_lane: Vec<S::Elem> = leaves.iter().map(|l| l.lane(lane)).collect();
            let (wanted_values, wanted_grads) = elementwise(&steps, &of_lane);
            for (k, step) in steps.iter().enumerate() {
                let pairs = [(values[k], wanted_values[k]), (grads[k], wanted_grads[k])];
                for (found, wanted) in pairs.map(|(f, w)| (f.lane(lane).to_f64(), w.to_f64())) {
                    let same = found.to_bits() == wanted.to_bits() || (found.is_nan() && wanted.is_nan());
                    assert!(same, "seed {seed}, lane {lane}, node {k} {step:?}: {found} instead of {wanted}");
                }
            }
        }
    }
}

#[test]
fn every_lane_has_the_bits_of_a_number() {
    lanes_equal_numbers::<F32x8>(0..200);
    lanes_equal_numbers::<F32x16>(200..300);
    lanes_equal_numbers::<F32x64>(600..650);
    lanes_equal_numbers::<F64x4>(300..500);
    lanes_equal_numbers::<F64x8>(500..600);
}
