//! Values and gradients of block ops equal those of their expansion.

use burtorch_core::ops::{self, Op};
use burtorch_core::{CrossEntropyTarget, Graph, Init, NodeId, Parameters, Range, Tensor, View};

use super::expand::{self, assert_close};

/// Which weights are frozen.
#[derive(Clone, Copy, Debug)]
enum Frozen {
    Nothing,
    Weights,
    PartOfWeights,
    Bias,
    Inputs,
    Everything,
}

const ALL: [Frozen; 6] =
    [Frozen::Nothing, Frozen::Weights, Frozen::PartOfWeights, Frozen::Bias, Frozen::Inputs, Frozen::Everything];

struct Setting {
    params: Parameters<'static, f64>,
    rows: Tensor,
    w: Tensor,
    b: Tensor,
}

impl Setting {
    fn new(frozen: Frozen, n_out: usize) -> Self {
        let mut params = Parameters::new(3);
        let rows = params.tensor(&[4, 3], None, Init::Normal(0.0, 1.0), true).unwrap();
        let w = params.tensor(&[n_out, 8], None, Init::Glorot, true).unwrap();
        let b = params.tensor(&[n_out], None, Init::Normal(0.0, 1.0), true).unwrap();
        let mut freeze = |slice| params.freeze(slice).unwrap();
        match frozen {
            Frozen::Nothing => {}
            Frozen::Weights => freeze(w.slice()),
            Frozen::PartOfWeights => freeze(w.slice().slice(3, 7).unwrap()),
            Frozen::Bias => freeze(b.slice()),
            Frozen::Inputs => freeze(rows.slice()),
            Frozen::Everything => [rows, w, b].iter().for_each(|t| freeze(t.slice())),
        }
        Setting { params, rows, w, b }
    }

    /// Two rows of parameters around two nodes, one row repeated.
    fn views(&self, nodes: Range) -> [View; 3] {
        let row = |k| View::from(self.rows.row(k).unwrap());
        [row(2), nodes.into(), row(2)]
    }
}

/// The value of the node that `build` returns, and the gradients of parameters and leaves.
fn run(setting: &mut Setting, build: impl Fn(&mut Graph<'_, f64>, &Setting, Range) -> NodeId) -> (f64, Vec<f64>) {
    setting.params.zero_grad();
    let mut graph = Graph::new();
    let leaves = graph.vector(&[0.3, -1.2]).unwrap();
    let root = build(&mut graph, setting, leaves);
    let value = graph.value(root).unwrap();
    graph.backward_with(root, 0.7, &mut [setting.params.gradients()]).unwrap();
    let mut grads = setting.params.grads().to_vec();
    grads.extend(leaves.nodes().map(|n| graph.grad(n).unwrap()));
    (value, grads)
}

#[track_caller]
fn same(
    setting: &mut Setting,
    block: impl Fn(&mut Graph<'_, f64>, &Setting, Range) -> NodeId,
    expansion: impl Fn(&mut Graph<'_, f64>, &Setting, Range) -> NodeId,
) {
    let (value, grads) = run(setting, block);
    let (expected, expected_grads) = run(setting, expansion);
    assert_close(&[value], &[expected]);
    assert_close(&grads, &expected_grads);
}

/// A root that reads only the outputs in `used`, some of them twice.
fn weigh(graph: &mut Graph<'_, f64>, outputs: Range, used: &[usize]) -> NodeId {
    let mut total = graph.constant(0.0).unwrap();
    for (weight, &k) in used.iter().enumerate() {
        let term = graph.with_constant::<ops::MulByConstant>(outputs.get(k).unwrap(), weight as f64 - 1.5).unwrap();
        total = graph.binary::<ops::Add>(total, term).unwrap();
    }
    total
}

#[test]
fn affine_equals_its_expansion_frozen_or_not_with_any_outputs_used() {
    for frozen in ALL {
        for n_out in [1, 3, 5, 8] {
            let everything: Vec<usize> = (0..n_out).collect();
            for used in [&everything[..], &[0], &[n_out - 1], &[n_out / 2, n_out / 2]] {
                for with_bias in [true, false] {
                    let mut setting = Setting::new(frozen, n_out);
                    let bias = |s: &Setting| with_bias.then(|| s.b.slice());
                    same(
                        &mut setting,
                        |graph, s, x| {
                            let y = graph.affine(&[&s.params], &s.views(x), s.w.slice(), bias(s)).unwrap();
                            weigh(graph, y, used)
                        },
                        |graph, s, x| {
                            let y = expand::affine(graph, &s.params, &s.views(x), s.w.slice(), bias(s));
                            weigh(graph, y, used)
                        },
                    );
                }
            }
        }
    }
}

#[test]
fn infinite_weights_of_unread_outputs_have_no_effect() {
    let mut setting = Setting::new(Frozen::Nothing, 3);
    let at = setting.w.row(1).unwrap().range();
    setting.params.values_mut()[at].fill(f64::INFINITY);
    let (value, grads) = run(&mut setting, |graph, s, x| {
        let y = graph.affine(&[&s.params], &s.views(x), s.w.slice(), Some(s.b.slice())).unwrap();
        weigh(graph, y, &[0, 2])
    });
    assert!(value.is_finite());
    assert!(grads.iter().all(|g| g.is_finite()));
    let unread = setting.w.row(1).unwrap().range();
    assert!(setting.params.grads()[unread].iter().all(|&g| g == 0.0));
}

#[test]
fn map_equals_its_expansion_with_any_outputs_used() {
    for op in [Op::Tanh, Op::Relu, Op::Sigmoid, Op::Exp, Op::Sqr] {
        for used in [&[0, 1, 2, 3, 4, 5, 6, 7][..], &[0], &[7], &[3, 3, 5]] {
            let mut setting = Setting::new(Frozen::Nothing, 8);
            let pre = |graph: &mut Graph<'_, f64>, s: &Setting, x| {
                graph.affine(&[&s.params], &s.views(x), s.w.slice(), Some(s.b.slice())).unwrap()
            };
            same(
                &mut setting,
                |graph, s, x| {
                    let y = pre(graph, s, x);
                    let z = graph.map(op, y).unwrap();
                    weigh(graph, z, used)
                },
                |graph, s, x| {
                    let y = pre(graph, s, x);
                    let z = expand::map(graph, op, y);
                    weigh(graph, z, used)
                },
            );
        }
    }
}

/// Bit for bit: a range equals one node per number, including both tails and the largest magnitudes.
#[test]
fn map_has_the_bits_of_scalar_nodes() {
    let special = [0.0, -0.0, 1e-300, -0.75, 0.76, 0.7600001, 3.0, 20.0, -19.5, 400.0, f64::INFINITY];
    for op in [Op::Tanh, Op::Relu, Op::Sigmoid] {
        for n in [1, 2, 7, 16, 17, 40] {
            let xs: Vec<f64> = (0..n).map(|k| special[k % special.len()] + 0.01 * (k / special.len()) as f64).collect();
            let mut graph = Graph::<f64>::new();
            let x = graph.vector(&xs).unwrap();
            let (block, nodes) = (graph.map(op, x).unwrap(), expand::map(&mut graph, op, x));
            let seeds = graph.constants(&xs.iter().map(|x| 0.3 + x.sin().abs().min(1.0)).collect::<Vec<_>>()).unwrap();
            let mut grads = Vec::new();
            for y in [block, nodes] {
                let root = graph.inner_product(y.into(), seeds.into(), None, &[]).unwrap();
                graph.zero_grad();
                graph.backward(root).unwrap();
                grads.push(x.nodes().map(|x| graph.grad(x).unwrap().to_bits()).collect::<Vec<_>>());
                let values = y.nodes().map(|y| graph.value(y).unwrap().to_bits());
                grads.push(values.collect());
            }
            assert_eq!(grads[0], grads[2], "{op:?} gradients of {n}");
            assert_eq!(grads[1], grads[3], "{op:?} values of {n}");
        }
    }
}

#[test]
fn cross_entropy_equals_its_expansion_by_class_and_by_probabilities() {
    let by_class = |k: usize| (0..5).map(|c| f64::from(u8::from(c == k))).collect::<Vec<_>>();
    let mut cases: Vec<(Option<u32>, Vec<f64>)> = (0..5).map(|k| (Some(k as u32), by_class(k))).collect();
    cases.push((None, vec![0.1, 0.2, 0.3, 0.15, 0.25]));
    cases.push((None, vec![0.0, 1.0, 0.0, 0.0, 0.0]));
    cases.push((None, vec![0.5, 2.0, 0.0, 0.25, 1.0]));
    for (class, targets) in cases {
        let mut setting = Setting::new(Frozen::Nothing, 5);
        let logits = |graph: &mut Graph<'_, f64>, s: &Setting, x| {
            graph.affine(&[&s.params], &s.views(x), s.w.slice(), Some(s.b.slice())).unwrap()
        };
        same(
            &mut setting,
            |graph, s, x| {
                let z = logits(graph, s, x);
                match class {
                    Some(class) => graph.softmax_cross_entropy(z, CrossEntropyTarget::Classes(&[class])).unwrap(),
                    None => {
                        let t = graph.constants(&targets).unwrap();
                        graph.softmax_cross_entropy(z, CrossEntropyTarget::Probabilities(t)).unwrap()
                    }
                }
            },
            |graph, s, x| {
                let z = logits(graph, s, x);
                expand::cross_entropy(graph, z, &targets)
            },
        );
    }
}

#[test]
fn logits_far_apart_neither_overflow_nor_vanish() {
    for (logits, class, loss) in
        [([1000.0, 0.0, -1000.0], 0, 0.0), ([1000.0, 0.0, -1000.0], 2, 2000.0), ([-1e4, -1e4, -1e4], 1, 3f64.ln())]
    {
        let mut graph = Graph::<f64>::new();
        let z = graph.vector(&logits).unwrap();
        let found = graph.softmax_cross_entropy(z, CrossEntropyTarget::Classes(&[class])).unwrap();
        graph.backward(found).unwrap();
        assert_close(&[graph.value(found).unwrap()], &[loss]);
        assert!(z.nodes().all(|z| graph.grad(z).unwrap().is_finite()));
    }
}

#[test]
fn two_roots_over_one_block_each_get_all_of_it() {
    let mut setting = Setting::new(Frozen::Nothing, 3);
    let mut graph = Graph::new();
    let x = graph.vector(&[0.3, -1.2]).unwrap();
    let s = &setting;
    let y = graph.affine(&[&s.params], &s.views(x), s.w.slice(), Some(s.b.slice())).unwrap();
    let roots = [weigh(&mut graph, y, &[0, 1]), weigh(&mut graph, y, &[1, 2])];
    let mut grads = Vec::new();
    for root in [roots[0], roots[1], roots[0]] {
        setting.params.zero_grad();
        graph.backward_with(root, 1.0, &mut [setting.params.gradients()]).unwrap();
        grads.push(setting.params.grads().to_vec());
    }
    assert_eq!(grads[0], grads[2]);
    assert_ne!(grads[0], grads[1]);
}

#[test]
fn a_refused_block_leaves_the_graph_as_it_was() {
    let setting = Setting::new(Frozen::Nothing, 3);
    let mut graph = Graph::<f64>::new();
    let x = graph.vector(&[0.3, -1.2]).unwrap();
    let before = (graph.len(), graph.memory().operand_lists);
    let s = &setting;
    let five = [x.into(), s.rows.row(0).unwrap().into()];
    assert!(graph.affine(&[&s.params], &five, s.w.slice(), None).is_err());
    assert!(graph.affine(&[], &s.views(x), s.w.slice(), None).is_err());
    let wrong_bias = s.w.row(0);
    assert!(graph.affine(&[&s.params], &s.views(x), s.w.slice(), wrong_bias).is_err());
    assert!(graph.map(Op::Add, x).is_err());
    assert!(graph.softmax_cross_entropy(x, CrossEntropyTarget::Classes(&[2])).is_err());
    assert_eq!((graph.len(), graph.memory().operand_lists), before);
}
