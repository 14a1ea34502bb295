//! A joined graph beside the same one built in a single piece: every node, list, value and gradient.

use burtorch_core::graph::OperandRun;
use burtorch_core::{Branch, CrossEntropyTarget, Graph, Init, NodeId, Op, Operands, Parameters, Range, View};
use proptest::prelude::*;

/// Everything that can be seen of a graph.
#[derive(Debug, PartialEq)]
pub struct Seen {
    nodes: Vec<(Op, u64, u64, Vec<OperandRun>)>,
    stores: Vec<u64>,
}

pub fn seen(graph: &Graph<'_, f64>) -> Seen {
    let nodes = (0..graph.len() as u32).map(NodeId::from_index).map(|node| {
        let mut operands = Vec::new();
        graph.for_each_operand(node, |run| operands.push(run));
        let bits = |x: f64| x.to_bits();
        (graph.op(node).unwrap(), bits(graph.value(node).unwrap()), bits(graph.grad(node).unwrap()), operands)
    });
    Seen { nodes: nodes.collect(), stores: graph.stores().to_vec() }
}

/// The source of a step's operands: the graph before the branches, or nodes that the branch has built.
#[derive(Clone, Copy, Debug)]
enum Pick {
    Frozen(usize),
    Own(usize),
}

#[derive(Clone, Debug)]
enum Step {
    Leaf(f64),
    Constant(f64),
    Unary(usize, Pick),
    Binary(usize, Pick, Pick),
    WithConstant(Pick, f64),
    Reduce(usize, Vec<Pick>),
    Inner(Vec<Pick>),
    FrozenRun(usize, usize),
    Map(usize, usize),
    Affine(usize, usize),
    CrossEntropy(usize),
    Weight(usize),
}

const UNARY: [Op; 4] = [Op::Tanh, Op::Sqr, Op::Sin, Op::Relu];
const BINARY: [Op; 4] = [Op::Add, Op::Mul, Op::Sub, Op::Max];
const REDUCE: [Op; 3] = [Op::ReduceSum, Op::ReduceMean, Op::ReduceMul];

/// The graph as one thread sees it: a branch, or the whole graph.
trait Site {
    fn graph(&mut self) -> &mut Graph<'static, f64>;
    fn frozen(&mut self, range: Range) -> Range;
}

impl Site for Graph<'static, f64> {
    fn graph(&mut self) -> &mut Graph<'static, f64> {
        self
    }

    fn frozen(&mut self, range: Range) -> Range {
        range
    }
}

impl Site for Branch<'_, 'static, f64> {
    fn graph(&mut self) -> &mut Graph<'static, f64> {
        self
    }

    fn frozen(&mut self, range: Range) -> Range {
        self.read_range(range).unwrap()
    }
}

struct Ground {
    graph: Graph<'static, f64>,
    params: Parameters<'static, f64>,
    more: Parameters<'static, f64>,
    weights: burtorch_core::Slice,
    others: burtorch_core::Slice,
    run: Range,
}

fn ground() -> Ground {
    let mut params = Parameters::new(1);
    let mut more = Parameters::new(2);
    let weights = params.tensor(&[4, 6], None, Init::from_name("normal").unwrap(), true).unwrap().slice();
    let others = more.tensor(&[6], None, Init::from_name("normal").unwrap(), true).unwrap().slice();
    let mut graph = Graph::new();
    let run = graph.vector(&[0.5, -1.25, 2.0, 0.125, -0.75, 1.5]).unwrap();
    graph.reduce(Op::ReduceSum, run.into(), &[]).unwrap();
    graph.parameter(&more, others, 2).unwrap();
    Ground { graph, params, more, weights, others, run }
}

/// Runs the steps; returns the last node.
fn build(site: &mut impl Site, ground: &Ground, steps: &[Step]) -> NodeId {
    let mut own: Vec<NodeId> = Vec::new();
    let params = [&ground.params, &ground.more];
    let (run, n_frozen) = (ground.run, ground.run.len());
    own.push(site.graph().leaf(0.25).unwrap());
    for step in steps {
        let node = |site: &mut _, pick: &Pick| match *pick {
            Pick::Frozen(k) => Site::frozen(site, Range::new(run.get(k % n_frozen).unwrap(), 1)).first(),
            Pick::Own(k) => own[k % own.len()],
        };
        let made = match step {
            Step::Leaf(x) => site.graph().leaf(*x),
            Step::Constant(x) => site.graph().constant(*x),
            Step::Unary(op, x) => {
                let x = node(site, x);
                site.graph().unary_op(UNARY[op % 4], x)
            }
            Step::Binary(op, x, y) => {
                let (x, y) = (node(site, x), node(site, y));
                site.graph().binary_op(BINARY[op % 4], x, y)
            }
            Step::WithConstant(x, c) => {
                let x = node(site, x);
                site.graph().add_constant(x, *c)
            }
            Step::Reduce(op, picks) => {
                let nodes: Vec<_> = picks.iter().map(|pick| node(site, pick)).collect();
                // As views, so that the list does not depend on contiguity.
                let mut views: Vec<View> = nodes.into_iter().map(View::from).collect();
                views.push(View::Parameters(ground.others));
                site.graph().reduce(REDUCE[op % 3], Operands::Views(&views), &params)
            }
            Step::Inner(picks) => {
                let views: Vec<View> = picks.iter().take(6).map(|pick| View::from(node(site, pick))).collect();
                let w = [View::Parameters(ground.others.slice(0, views.len()).unwrap())];
                let bias = node(site, &picks[0]);
                site.graph().inner_product(Operands::Views(&views), Operands::Views(&w), Some(bias), &params)
            }
            Step::FrozenRun(from, to) => {
                let (from, to) = (from % n_frozen, to % n_frozen);
                let part = site.frozen(run.slice(from.min(to), from.max(to) + 1).unwrap());
                site.graph().reduce(Op::ReduceSumOfSquares, part.into(), &params)
            }
            Step::Map(op, from) => {
                let part = site.frozen(run.slice(from % n_frozen, n_frozen).unwrap());
                let outputs = site.graph().map(UNARY[op % 4], part).unwrap();
                site.graph().reduce(Op::ReduceSum, outputs.into(), &params)
            }
            Step::Affine(a, b) => {
                let part = site.frozen(run.slice(0, 5).unwrap());
                let last = node(site, &if a % 2 == 0 { Pick::Own(*b) } else { Pick::Frozen(*b) });
                let x = [View::Nodes(part), View::from(last)];
                let outputs = site.graph().affine(&params, &x, ground.weights, None).unwrap();
                site.graph().softmax_cross_entropy(outputs, CrossEntropyTarget::Classes(&[(a % 4) as u32]))
            }
            Step::CrossEntropy(class) => {
                let logits = site.frozen(run);
                site.graph().softmax_cross_entropy(logits, CrossEntropyTarget::Classes(&[(class % 6) as u32]))
            }
            Step::Weight(k) => site.graph().parameter(&ground.params, ground.weights, k % 24),
        };
        own.push(made.unwrap());
    }
    *own.last().unwrap()
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let pick = || prop_oneof![any::<usize>().prop_map(Pick::Frozen), any::<usize>().prop_map(Pick::Own)];
    let number = || -2.0..2.0;
    let step = prop_oneof![
        number().prop_map(Step::Leaf),
        number().prop_map(Step::Constant),
        (any::<usize>(), pick()).prop_map(|(op, x)| Step::Unary(op, x)),
        (any::<usize>(), pick(), pick()).prop_map(|(op, x, y)| Step::Binary(op, x, y)),
        (pick(), number()).prop_map(|(x, c)| Step::WithConstant(x, c)),
        (any::<usize>(), prop::collection::vec(pick(), 1..6)).prop_map(|(op, x)| Step::Reduce(op, x)),
        prop::collection::vec(pick(), 1..7).prop_map(Step::Inner),
        (any::<usize>(), any::<usize>()).prop_map(|(a, b)| Step::FrozenRun(a, b)),
        (any::<usize>(), any::<usize>()).prop_map(|(a, b)| Step::Map(a, b)),
        (any::<usize>(), any::<usize>()).prop_map(|(a, b)| Step::Affine(a, b)),
        any::<usize>().prop_map(Step::CrossEntropy),
        any::<usize>().prop_map(Step::Weight),
    ];
    prop::collection::vec(step, 0..24)
}

fn gradients(ground: &mut Ground, roots: &[NodeId]) -> (Seen, Vec<u64>) {
    let Ground { graph, params, more, .. } = ground;
    for &root in roots {
        graph.backward_with(root, 1.0, &mut [params.gradients(), more.gradients()]).unwrap();
    }
    let grads = params.grads().iter().chain(more.grads()).map(|g| g.to_bits()).collect();
    (seen(graph), grads)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(std::env::var("PROPTEST_CASES").map_or(200, |n| n.parse().unwrap())))]

    #[test]
    fn branches_give_the_graph_of_one_thread(programs in prop::collection::vec(steps(), 1..5), threaded: bool) {
        let mut whole = ground();
        let roots: Vec<_> = {
            let mut graph = std::mem::take(&mut whole.graph);
            let roots = programs.iter().map(|steps| build(&mut graph, &whole, steps)).collect();
            whole.graph = graph;
            roots
        };
        let mut joined = ground();
        let mut graph = std::mem::take(&mut joined.graph);
        let mut branches = graph.branches(programs.len()).unwrap();
        let own: Vec<NodeId> = if threaded {
            std::thread::scope(|scope| {
                let threads = branches.iter_mut().zip(&programs).map(|(mut branch, steps)| {
                    let ground = &joined;
                    scope.spawn(move || build(&mut branch, ground, steps))
                });
                let threads: Vec<_> = threads.collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            })
        } else {
            // In reverse, because the order of building does not matter.
            let built = branches.iter_mut().zip(&programs).rev().map(|(mut b, steps)| build(&mut b, &joined, steps));
            let mut own: Vec<_> = built.collect();
            own.reverse();
            own
        };
        let numbers = branches.join().unwrap();
        joined.graph = graph;
        let found: Vec<_> = own.iter().enumerate().map(|(k, &node)| numbers.node(k, node).unwrap()).collect();
        prop_assert_eq!(&found, &roots);
        // Identities of parameters differ between processes, so they are compared by position.
        let places = |ground: &Ground| -> Vec<bool> {
            ground.graph.stores().iter().map(|&store| store == ground.params.id()).collect()
        };
        prop_assert_eq!(places(&joined), places(&whole));
        let (mut found, mut wanted) = (gradients(&mut joined, &roots), gradients(&mut whole, &roots));
        found.0.stores.clear();
        wanted.0.stores.clear();
        prop_assert_eq!(found, wanted);
    }
}

#[test]
fn a_list_that_mixes_proxies_with_own_nodes_stays_in_order() {
    let mut graph = Graph::<f64>::new();
    let (x, y) = (graph.leaf(2.0).unwrap(), graph.leaf(3.0).unwrap());
    graph.leaf(0.0).unwrap();
    let mut branches = graph.branches(1).unwrap();
    let mut branch = branches.iter_mut().next().unwrap();
    // Contiguous in the branch, not in the parent: 5, y, 7, x.
    let a = branch.leaf(5.0).unwrap();
    let b = branch.read(y).unwrap();
    let c = branch.leaf(7.0).unwrap();
    let d = branch.read(x).unwrap();
    let listed = Range::new(a, 4);
    assert_eq!(listed.nodes().collect::<Vec<_>>(), [a, b, c, d]);
    let w = branch.constants(&[1.0, 10.0, 100.0, 1000.0]).unwrap();
    let product = branch.reduce(Op::ReduceMul, listed.into(), &[]).unwrap();
    let dot = branch.inner_product(listed.into(), w.into(), None, &[]).unwrap();
    let squares = branch.map(Op::Sqr, listed).unwrap();
    let loss = branch.softmax_cross_entropy(listed, CrossEntropyTarget::Classes(&[1])).unwrap();
    let joined = branches.join().unwrap();
    let at = |node| joined.node(0, node).unwrap();
    assert_eq!((at(b), at(d)), (y, x));
    assert_eq!(joined.range(0, listed), None);
    let squares = joined.range(0, squares).unwrap();
    assert_eq!(squares.nodes().map(|n| graph.value(n).unwrap()).collect::<Vec<_>>(), [25.0, 9.0, 49.0, 4.0]);
    assert_eq!((graph.value(at(product)), graph.value(at(dot))), (Ok(210.0), Ok(2735.0)));
    graph.backward(at(product)).unwrap();
    assert_eq!([a, b, c, d].map(|n| graph.grad(at(n)).unwrap()), [42.0, 70.0, 30.0, 105.0]);
    graph.zero_grad();
    graph.backward(at(dot)).unwrap();
    assert_eq!([a, b, c, d].map(|n| graph.grad(at(n)).unwrap()), [1.0, 10.0, 100.0, 1000.0]);
    graph.zero_grad();
    for node in squares.nodes() {
        graph.backward(node).unwrap();
    }
    assert_eq!([a, b, c, d].map(|n| graph.grad(at(n)).unwrap()), [10.0, 6.0, 14.0, 4.0]);
    graph.zero_grad();
    graph.backward(at(loss)).unwrap();
    let total: f64 = [5.0f64, 3.0, 7.0, 2.0].iter().map(|x| x.exp()).sum();
    let wanted = [5.0f64.exp() / total, 3f64.exp() / total - 1.0, 7f64.exp() / total, 2f64.exp() / total];
    for (node, wanted) in [a, b, c, d].into_iter().zip(wanted) {
        assert!((graph.grad(at(node)).unwrap() - wanted).abs() < 1e-14);
    }
}

#[test]
fn branches_nest() {
    let mut graph = Graph::<f64>::new();
    let x = graph.leaf(2.0).unwrap();
    let mut branches = graph.branches(2).unwrap();
    let mut roots = Vec::new();
    for mut branch in branches.iter_mut() {
        let own = branch.read(x).unwrap();
        let c = 1.0 + branch.number() as f64;
        let y = branch.add_constant(own, c).unwrap();
        let mut inner = branch.branches(3).unwrap();
        let mut found = Vec::new();
        for mut twig in inner.iter_mut() {
            let (x, y) = (twig.read(own).unwrap(), twig.read(y).unwrap());
            let z = twig.binary_op(Op::Mul, x, y).unwrap();
            found.push(twig.add_constant(z, 0.5).unwrap());
        }
        let joined = inner.join().unwrap();
        let sum: Vec<_> = found.iter().enumerate().map(|(k, &z)| joined.node(k, z).unwrap()).collect();
        roots.push(branch.reduce(Op::ReduceSum, sum.as_slice().into(), &[]).unwrap());
    }
    let joined = branches.join().unwrap();
    // 3 (x (x + c) + 1/2) and its derivative 3 (2 x + c).
    for (k, root) in roots.into_iter().enumerate() {
        let root = joined.node(k, root).unwrap();
        let c = 1.0 + k as f64;
        graph.zero_grad();
        graph.backward(root).unwrap();
        assert_eq!(graph.value(root), Ok(3.0 * (2.0 * (2.0 + c) + 0.5)));
        assert_eq!(graph.grad(x), Ok(3.0 * (4.0 + c)));
    }
    assert!((0..graph.len() as u32).all(|k| graph.op(NodeId::from_index(k)) != Ok(Op::Imported)));
}

#[test]
fn a_branch_reads_a_node_once_and_again_after_a_rewind() {
    let mut graph = Graph::<f64>::new();
    let run = graph.vector(&[1.0, 2.0, 3.0]).unwrap();
    let mut branches = graph.branches(1).unwrap();
    let mut branch = branches.iter_mut().next().unwrap();
    let start = branch.mark();
    let first = branch.read_range(run).unwrap();
    assert_eq!(branch.read_range(run), Ok(first));
    assert_eq!(branch.len(), 3);
    branch.rewind(start).unwrap();
    branch.leaf(9.0).unwrap();
    let again = branch.read_range(run).unwrap();
    assert_eq!((again.first().index(), branch.len()), (1, 4));
    branch.set_no_grad(true);
    let sum = branch.reduce(Op::ReduceSum, again.into(), &[]).unwrap();
    branch.compact(|live| live(Range::new(sum, 1)), &mut [], |_| {}).unwrap();
    assert_eq!(branch.len(), 1);
    assert_eq!(branch.read_range(run).unwrap().first().index(), 1);
    assert!(branch.read(NodeId::from_index(3)).is_err());
    let joined = branches.join().unwrap();
    assert_eq!((graph.len(), graph.value(joined.node(0, NodeId::from_index(0)).unwrap())), (4, Ok(6.0)));
}

#[test]
fn a_sweep_in_a_branch_stops_at_proxies_and_keeps_the_gradients_of_leaves() {
    let mut graph = Graph::<f64>::new();
    let x = graph.leaf(3.0).unwrap();
    let mut branches = graph.branches(1).unwrap();
    let mut branch = branches.iter_mut().next().unwrap();
    let (w, x_here) = (branch.leaf(4.0).unwrap(), branch.read(x).unwrap());
    let y = branch.binary_op(Op::Mul, w, x_here).unwrap();
    branch.backward(y).unwrap();
    assert_eq!((branch.grad(w), branch.grad(x_here)), (Ok(3.0), Ok(4.0)));
    let joined = branches.join().unwrap();
    assert_eq!((graph.grad(joined.node(0, w).unwrap()), graph.grad(x)), (Ok(3.0), Ok(0.0)));
    assert_eq!(graph.grad(joined.node(0, y).unwrap()), Ok(0.0));
}
