//! Block ops over tokens against their expansion into scalar nodes: values and gradients, in both precisions, whatever is
//! frozen and whichever outputs are read.

use burtorch_core::kernels::BlockMath;
use burtorch_core::ops::{self, Op};
use burtorch_core::simd::F64x4;
use burtorch_core::{Float, Graph, Init, NodeId, Operands, Parameters, Range, Scalar, Slice, Tokens};

const WIDTH: usize = 6;
const HIDDEN: usize = 10;

/// Token counts: below a group, one group, one and a part, two, more.
const COUNTS: [usize; 5] = [3, 8, 11, 16, 21];

/// Tensors that the blocks read, in the order of `Parameters`.
struct Setting<E: Float> {
    params: Parameters<'static, E>,
    table: Slice,
    positions: Slice,
    w: Slice,
    b: Slice,
    gain: Slice,
    bias: Slice,
}

impl<E: Float> Setting<E> {
    fn new() -> Self {
        let mut params = Parameters::new(5);
        let mut tensor = |dims: &[usize]| params.tensor(dims, None, Init::Normal(0.0, 1.0), true).unwrap().slice();
        let (table, positions) = (tensor(&[7, WIDTH]), tensor(&[24, WIDTH]));
        let (w, b) = (tensor(&[HIDDEN, WIDTH]), tensor(&[HIDDEN]));
        let (gain, bias) = (tensor(&[WIDTH]), tensor(&[WIDTH]));
        Setting { params, table, positions, w, b, gain, bias }
    }

    /// Calls `f` with nothing frozen, each tensor frozen, parts of tensors, and everything.
    fn each_freezing(mut f: impl FnMut(&mut Self)) {
        f(&mut Self::new());
        for k in 0..12 {
            let mut s = Self::new();
            let tensor = [s.table, s.positions, s.w, s.b, s.gain, s.bias][k % 6];
            s.params.freeze(if k < 6 { tensor } else { tensor.slice(1, 4).unwrap() }).unwrap();
            f(&mut s);
        }
        let mut setting = Self::new();
        let all = setting.params.slice(0..setting.params.len()).unwrap();
        setting.params.freeze(all).unwrap();
        f(&mut setting);
    }
}

/// The outputs that a root reads, by token and feature.
const READ: [fn(usize, usize) -> bool; 5] =
    [|_, _| true, |t, _| t == 1, |_, f| f == 2, |t, f| (t + f) % 3 == 0, |t, f| (t, f) == (2, 5)];

/// Outputs by token and feature.
type Nodes = Vec<Vec<NodeId>>;

fn nodes_of(x: Tokens) -> Nodes {
    (0..x.n()).map(|t| (0..x.width()).map(|f| x.node(t, f).unwrap()).collect()).collect()
}

/// Builds the outputs from the tokens.
type Build<'a, E> = &'a dyn Fn(&mut Graph<'_, E>, &Setting<E>, Tokens) -> Nodes;

/// The results of a root over some of the outputs: its value, and the gradients of parameters and leaves.
fn run<E: Float>(setting: &mut Setting<E>, n: usize, read: fn(usize, usize) -> bool, build: Build<'_, E>) -> Vec<f64> {
    setting.params.zero_grad();
    let mut graph = Graph::<E>::new();
    let places = n.div_ceil(8) * 8 * WIDTH;
    let numbers: Vec<E> = (0..places).map(|k| E::from_f64((k as f64 * 0.7 + 0.3).sin() * 1.5)).collect();
    let leaves = graph.vector(&numbers).unwrap();
    let x = Tokens::new(leaves, n).unwrap();
    let outputs = build(&mut graph, setting, x);
    let mut total = graph.constant(E::lit(0.0)).unwrap();
    for (t, row) in outputs.iter().enumerate() {
        for (f, &y) in row.iter().enumerate().filter(|&(f, _)| read(t, f)) {
            let weight = E::from_f64((t as f64 * 0.9 + f as f64 * 1.7).cos());
            let term = graph.with_constant::<ops::MulByConstant>(y, weight).unwrap();
            total = graph.binary::<ops::Add>(total, term).unwrap();
        }
    }
    graph.backward_with(total, E::from_f64(0.7), &mut [setting.params.gradients()]).unwrap();
    let mut found = vec![graph.value(total).unwrap().to_f64()];
    found.extend(setting.params.grads().iter().map(|g| g.to_f64()));
    // Padding has no gradient.
    for t in 0..n {
        found.extend((0..WIDTH).map(|f| graph.grad(x.node(t, f).unwrap()).unwrap().to_f64()));
    }
    let total: f64 = leaves.nodes().map(|leaf| graph.grad(leaf).unwrap().to_f64().abs()).sum();
    let real: f64 = found[1 + setting.params.len()..].iter().map(|g| g.abs()).sum();
    assert!((total - real).abs() <= 1e-5 * real.max(1e-3), "padding received {}", total - real);
    found
}

#[track_caller]
fn same<E: Float>(block: Build<'_, E>, expansion: Build<'_, E>) {
    let tolerance = if size_of::<E>() == 4 { 4e-5 } else { 1e-12 };
    for n in COUNTS {
        for read in READ {
            Setting::<E>::each_freezing(|setting| {
                let found = run(setting, n, read, block);
                let expected = run(setting, n, read, expansion);
                let size = expected.iter().fold(1.0, |size: f64, x| size.max(x.abs()));
                for (k, (found, expected)) in found.iter().zip(&expected).enumerate() {
                    let close = (found - expected).abs() <= tolerance * size;
                    assert!(close, "{n} tokens, entry {k}: {found} instead of {expected}");
                }
            });
        }
    }
}

macro_rules! in_both {
    ($($name:ident => $test:ident;)*) => {$(
        #[test]
        fn $name() {
            $test::<f32>();
            $test::<f64>();
        }
    )*};
}

in_both! {
    embeddings_equal_their_expansion => embedding;
    dense_layers_equal_their_expansion => affine;
    layer_norms_equal_their_expansion => layer_norm;
    attention_equals_its_expansion => attention;
    cross_entropy_equals_its_expansion => cross_entropy;
    sums_equal_their_expansion => sums;
}

fn tokens_of(n: usize) -> Vec<u32> {
    (0..n).map(|t| (t * t + 2 * t) as u32 % 7).collect()
}

fn parameter<E: Float>(graph: &mut Graph<'_, E>, setting: &Setting<E>, slice: Slice, k: usize) -> NodeId {
    graph.parameter(&setting.params, slice, k).unwrap()
}

fn sum<E: Float>(graph: &mut Graph<'_, E>, nodes: &[NodeId]) -> NodeId {
    graph.reduce(Op::ReduceSum, Operands::List(nodes), &[]).unwrap()
}

fn embedding<E: Float + BlockMath>() {
    for with_positions in [true, false] {
        let block: Build<'_, E> = &|graph, s, x| {
            let positions = with_positions.then_some(s.positions);
            nodes_of(graph.token_embedding(&[&s.params], s.table, positions, WIDTH, &tokens_of(x.n())).unwrap())
        };
        let expansion: Build<'_, E> = &|graph, s, x| {
            let row = |graph: &mut Graph<'_, E>, t: usize, token: u32| {
                let feature = |f: usize| {
                    let symbol = parameter(graph, s, s.table, token as usize * WIDTH + f);
                    if !with_positions {
                        return symbol;
                    }
                    let position = parameter(graph, s, s.positions, t * WIDTH + f);
                    graph.binary::<ops::Add>(symbol, position).unwrap()
                };
                (0..WIDTH).map(feature).collect()
            };
            tokens_of(x.n()).into_iter().enumerate().map(|(t, token)| row(graph, t, token)).collect()
        };
        same(block, expansion);
    }
}

fn affine<E: Float + BlockMath>() {
    for (with_bias, relu) in [(true, false), (false, false), (true, true)] {
        // Features in two parts in reverse order: a concatenation without a copy.
        for parts in [1, 2] {
            let bias = move |s: &Setting<E>| with_bias.then_some(s.b);
            let block: Build<'_, E> = &|graph, s, x| {
                let halves = if parts == 1 { vec![x] } else { halves(graph, x).to_vec() };
                nodes_of(graph.token_affine(&[&s.params], &halves, s.w, bias(s), relu).unwrap())
            };
            let expansion: Build<'_, E> = &|graph, s, x| {
                let x = if parts == 1 {
                    nodes_of(x)
                } else {
                    let [a, b] = halves(graph, x).map(nodes_of);
                    a.into_iter().zip(b).map(|(a, b)| [a, b].concat()).collect()
                };
                let output = |graph: &mut Graph<'_, E>, x: &[NodeId], o: usize| {
                    let terms: Vec<NodeId> = (0..WIDTH)
                        .map(|i| {
                            let w = parameter(graph, s, s.w, o * WIDTH + i);
                            graph.binary::<ops::Mul>(w, x[i]).unwrap()
                        })
                        .collect();
                    let mut y = sum(graph, &terms);
                    if let Some(bias) = bias(s) {
                        let b = parameter(graph, s, bias, o);
                        y = graph.binary::<ops::Add>(y, b).unwrap();
                    }
                    if relu { graph.unary::<ops::Relu>(y).unwrap() } else { y }
                };
                x.iter().map(|x| (0..HIDDEN).map(|o| output(graph, x, o)).collect()).collect()
            };
            same(block, expansion);
        }
    }
}

/// Two and four of the features of `x`, as sums of tokens with themselves, the last ones first.
fn halves<E: Float>(graph: &mut Graph<'_, E>, x: Tokens) -> [Tokens; 2] {
    let part = |graph: &mut Graph<'_, E>, from: usize, to: usize| {
        let groups = x.n().div_ceil(8);
        let nodes: Vec<NodeId> = (0..groups)
            .flat_map(|g| (from * 8..to * 8).map(move |k| g * WIDTH * 8 + k))
            .map(|k| x.range().get(k).unwrap())
            .collect();
        let first = NodeId::from_index(graph.len() as u32);
        nodes.iter().for_each(|&node| {
            graph.unary::<ops::Neg>(node).unwrap();
        });
        Tokens::new(Range::new(first, nodes.len() as u32), x.n()).unwrap()
    };
    [part(graph, 4, 6), part(graph, 0, 4)]
}

fn layer_norm<E: Float + BlockMath>() {
    let block: Build<'_, E> = &|graph, s, x| nodes_of(graph.layer_norm(&[&s.params], x, s.gain, s.bias, 1e-5).unwrap());
    let expansion: Build<'_, E> = &|graph, s, x| {
        let normal = |graph: &mut Graph<'_, E>, x: &[NodeId]| -> Vec<NodeId> {
            let list = Operands::List(x);
            let mean = graph.reduce(Op::ReduceMean, list, &[]).unwrap();
            let variance = graph.reduce(Op::VarianceBiased, list, &[]).unwrap();
            let variance = graph.with_constant::<ops::AddConstant>(variance, E::lit(1e-5)).unwrap();
            let scale = graph.unary::<ops::InvSqrt>(variance).unwrap();
            let feature = |f: usize| {
                let off = graph.binary::<ops::Sub>(x[f], mean).unwrap();
                let unit = graph.binary::<ops::Mul>(off, scale).unwrap();
                let gain = parameter(graph, s, s.gain, f);
                let scaled = graph.binary::<ops::Mul>(unit, gain).unwrap();
                let bias = parameter(graph, s, s.bias, f);
                graph.binary::<ops::Add>(scaled, bias).unwrap()
            };
            (0..WIDTH).map(feature).collect()
        };
        nodes_of(x).iter().map(|x| normal(graph, x)).collect()
    };
    same(block, expansion);
}

/// Queries, keys and values that depend on the tokens in three ways.
fn three<E: Float>(graph: &mut Graph<'_, E>, x: Tokens) -> [Tokens; 3] {
    let sines = graph.map(Op::Sin, x.range()).unwrap();
    let cosines = graph.map(Op::Cos, x.range()).unwrap();
    [sines, cosines, x.range()].map(|range| Tokens::new(range, x.n()).unwrap())
}

fn attention<E: Float + BlockMath>() {
    for heads in [1, 3] {
        let block: Build<'_, E> = &|graph, _, x| {
            let [q, k, v] = three(graph, x);
            nodes_of(graph.causal_attention(q, k, v, heads).unwrap())
        };
        let expansion: Build<'_, E> = &|graph, _, x| {
            let [q, k, v] = three(graph, x).map(nodes_of);
            let d = WIDTH / heads;
            let token = |graph: &mut Graph<'_, E>, t: usize| -> Vec<NodeId> {
                let head = |h: usize| {
                    let features = h * d..(h + 1) * d;
                    let weights: Vec<NodeId> = (0..=t)
                        .map(|s| {
                            let (q, k) =
                                (Operands::List(&q[t][features.clone()]), Operands::List(&k[s][features.clone()]));
                            let score = graph.inner_product(q, k, None, &[]).unwrap();
                            let scale = E::from_f64(1.0 / (d as f64).sqrt());
                            let scaled = graph.with_constant::<ops::MulByConstant>(score, scale).unwrap();
                            graph.unary::<ops::Exp>(scaled).unwrap()
                        })
                        .collect();
                    let total = sum(graph, &weights);
                    features
                        .map(|f| {
                            let values: Vec<NodeId> = (0..=t).map(|s| v[s][f]).collect();
                            let (w, v) = (Operands::List(&weights), Operands::List(&values));
                            let mixed = graph.inner_product(w, v, None, &[]).unwrap();
                            graph.binary::<ops::Div>(mixed, total).unwrap()
                        })
                        .collect::<Vec<_>>()
                };
                (0..heads).flat_map(head).collect()
            };
            (0..x.n()).map(|t| token(graph, t)).collect()
        };
        same(block, expansion);
    }
}

fn cross_entropy<E: Float + BlockMath>() {
    let class = |t: usize| ((t * 5 + 1) % WIDTH) as u32;
    let block: Build<'_, E> = &|graph, _, x| {
        let classes: Vec<u32> = (0..x.n()).map(class).collect();
        let loss = graph.token_cross_entropy(x, &classes).unwrap();
        vec![vec![loss; 6]; 3]
    };
    let expansion: Build<'_, E> = &|graph, _, x| {
        let losses: Vec<NodeId> = nodes_of(x)
            .iter()
            .enumerate()
            .map(|(t, z)| {
                let exps: Vec<NodeId> = z.iter().map(|&z| graph.unary::<ops::Exp>(z).unwrap()).collect();
                let total = sum(graph, &exps);
                let log = graph.unary::<ops::Log>(total).unwrap();
                graph.binary::<ops::Sub>(log, z[class(t) as usize]).unwrap()
            })
            .collect();
        let loss = graph.reduce(Op::ReduceMean, Operands::List(&losses), &[]).unwrap();
        vec![vec![loss; 6]; 3]
    };
    same(block, expansion);
}

fn sums<E: Float>() {
    let block: Build<'_, E> = &|graph, _, x| {
        let [a, _, b] = three(graph, x);
        let once = graph.add_tokens(a, b).unwrap();
        nodes_of(graph.add_tokens(once, once).unwrap())
    };
    let expansion: Build<'_, E> = &|graph, _, x| {
        let [a, _, b] = three(graph, x).map(nodes_of);
        let twice = |graph: &mut Graph<'_, E>, a: NodeId, b: NodeId| {
            let once = graph.binary::<ops::Add>(a, b).unwrap();
            graph.binary::<ops::Add>(once, once).unwrap()
        };
        let row = |(a, b): (&Vec<NodeId>, &Vec<NodeId>)| a.iter().zip(b).map(|(&a, &b)| twice(graph, a, b)).collect();
        a.iter().zip(&b).map(row).collect()
    };
    same(block, expansion);
}

/// A stack of all blocks in `S`, and the gradients of its parameters.
fn stack<S: BlockMath<Elem = f64>>(n: usize, tokens: &[u32], classes: &[u32]) -> (S, Vec<f64>) {
    let mut s = Setting::<f64>::new();
    let down = s.params.tensor(&[WIDTH, HIDDEN], None, Init::Glorot, true).unwrap().slice();
    let mut graph = Graph::<S>::new();
    let stores = [&s.params];
    let x = graph.token_embedding(&stores, s.table, Some(s.positions), WIDTH, tokens).unwrap();
    let y = graph.layer_norm(&stores, x, s.gain, s.bias, 1e-5).unwrap();
    let a = graph.causal_attention(y, x, y, 2).unwrap();
    let h = graph.token_affine(&stores, &[a], s.w, Some(s.b), true).unwrap();
    let h = graph.token_affine(&stores, &[h], down, None, false).unwrap();
    let x = graph.add_tokens(x, h).unwrap();
    let loss = graph.token_cross_entropy(x, classes).unwrap();
    assert_eq!(x.n(), n);
    graph.backward_with(loss, S::lit(1.0), &mut [s.params.gradients()]).unwrap();
    let value = graph.value(loss).unwrap();
    graph.recompute(loss, &[&s.params]).unwrap();
    assert_eq!(graph.value(loss).unwrap(), value);
    (value, s.params.grads().to_vec())
}

#[test]
fn samples_in_lanes_equal_samples_one_by_one() {
    for n in [5, 8, 13] {
        let tokens: Vec<u32> = (0..4 * n).map(|k| (k * k + 3 * k) as u32 % 7).collect();
        let classes: Vec<u32> = (0..4 * n).map(|k| (k * 3 + 1) as u32 % 6).collect();
        let (losses, grads) = stack::<F64x4>(n, &tokens, &classes);
        let mut expected = vec![0.0; grads.len()];
        for lane in 0..4 {
            let part = lane * n..(lane + 1) * n;
            let (loss, grads) = stack::<f64>(n, &tokens[part.clone()], &classes[part]);
            assert!((loss - losses.lane(lane)).abs() < 1e-12);
            expected.iter_mut().zip(grads).for_each(|(sum, g)| *sum += g);
        }
        let close = |(found, expected): (&f64, &f64)| (found - expected).abs() < 1e-11;
        assert!(grads.iter().zip(&expected).all(close));
    }
}

#[test]
fn infinite_weights_of_unread_token_outputs_have_no_effect() {
    let mut s = Setting::<f64>::new();
    let row = s.w.slice(3 * WIDTH, 4 * WIDTH).unwrap().range();
    s.params.values_mut()[row.clone()].fill(f64::INFINITY);
    s.params.values_mut()[s.gain.range()][1] = f64::INFINITY;
    for n in COUNTS {
        for read in READ[1..].iter().filter(|read| !read(0, 3) && !read(1, 3) && !read(2, 3)) {
            let found = run(&mut s, n, *read, &|graph, s, x| {
                nodes_of(graph.token_affine(&[&s.params], &[x], s.w, Some(s.b), false).unwrap())
            });
            assert!(found.iter().all(|x| x.is_finite()), "{n} tokens");
        }
        let found = run(&mut s, n, |t, f| t == 1 && f != 1, &|graph, s, x| {
            nodes_of(graph.layer_norm(&[&s.params], x, s.gain, s.bias, 1e-5).unwrap())
        });
        assert!(found.iter().all(|x| x.is_finite()), "{n} tokens");
    }
}

#[test]
fn a_token_that_is_not_finite_reaches_only_those_after_it() {
    for n in COUNTS {
        let mut graph = Graph::<f64>::new();
        let numbers: Vec<f64> = (0..n.div_ceil(8) * 8 * WIDTH).map(|k| (k as f64).sin()).collect();
        let leaves = graph.vector(&numbers).unwrap();
        let x = Tokens::new(leaves, n).unwrap();
        graph.set_value(x.node(2, 4).unwrap(), f64::INFINITY).unwrap();
        let y = graph.causal_attention(x, x, x, 2).unwrap();
        graph.backward(y.node(1, 4).unwrap()).unwrap();
        for f in 0..WIDTH {
            assert!((0..2).all(|t| graph.value(y.node(t, f).unwrap()).unwrap().is_finite()));
            assert!((0..n).all(|t| graph.grad(x.node(t, f).unwrap()).unwrap().is_finite()), "{n} tokens");
        }
    }
}

#[test]
fn mismatches_are_refused_and_change_nothing() {
    let s = Setting::<f32>::new();
    let mut graph = Graph::<f32>::new();
    let leaves = graph.vector(&[0.5; 8 * WIDTH]).unwrap();
    let x = Tokens::new(leaves, 5).unwrap();
    let other = Tokens::new(leaves, 6).unwrap();
    let before = (graph.len(), graph.memory().operand_lists);
    let stores = [&s.params];
    let part = s.gain.slice(0, 5).unwrap();
    assert!(graph.token_embedding(&stores, s.table, None, WIDTH, &[7]).is_err());
    assert!(graph.token_embedding(&stores, s.table, None, WIDTH, &[]).is_err());
    assert!(graph.token_embedding(&stores, s.table, None, 4, &[1]).is_err());
    assert!(graph.token_embedding(&stores, s.table, Some(s.positions), WIDTH, &[1; 25]).is_err());
    assert!(graph.token_embedding(&[], s.table, None, WIDTH, &[1]).is_err());
    assert!(graph.token_affine(&stores, &[], s.w, None, false).is_err());
    assert!(graph.token_affine(&stores, &[x, other], s.w, None, false).is_err());
    assert!(graph.token_affine(&stores, &[x], s.w.slice(0, 13).unwrap(), None, false).is_err());
    assert!(graph.token_affine(&stores, &[x], s.w, Some(s.gain), false).is_err());
    assert!(graph.layer_norm(&stores, x, part, s.bias, 1e-5).is_err());
    assert!(graph.layer_norm(&stores, x, s.gain, part, 1e-5).is_err());
    assert!(graph.layer_norm(&stores, x, s.gain, s.bias, -1.0).is_err());
    assert!(graph.causal_attention(x, x, other, 2).is_err());
    assert!(graph.causal_attention(x, x, x, 0).is_err());
    assert!(graph.causal_attention(x, x, x, 4).is_err());
    assert!(graph.token_cross_entropy(x, &[0; 4]).is_err());
    assert!(graph.token_cross_entropy(x, &[6; 5]).is_err());
    assert!(graph.add_tokens(x, other).is_err());
    assert!(Tokens::new(leaves, 30).is_none() && Tokens::new(leaves, 0).is_none());
    assert_eq!((graph.len(), graph.memory().operand_lists), before);
}
