//! What a compaction must keep: values, gradients, structure, leaves, marks, blocks and operand lists of what is alive.

use burtorch_core::graph::OperandRun;
use burtorch_core::{CrossEntropyTarget, Graph, Init, Mark, NodeId, Op, Operands, Parameters, Range, Tensor, View};

/// Two sets of parameters, and a graph with every kind of node, interspersed with dead nodes.
struct Scene {
    graph: Graph<'static, f64>,
    params: [Parameters<'static, f64>; 2],
    live: Vec<Range>,
    marks: Vec<Mark>,
}

fn dead(graph: &mut Graph<'_, f64>, x: NodeId, n: usize) {
    for k in 0..n {
        let waste = graph.leaf(k as f64).unwrap();
        let list = graph.reduce(Op::ReduceMul, Operands::List(&[waste, x, waste]), &[]).unwrap();
        graph.reduce(Op::ReduceSum, Operands::Views(&[list.into(), x.into()]), &[]).unwrap();
        let block = graph.map(Op::Tanh, Range::new(waste, 3)).unwrap();
        graph.softmax_cross_entropy(block, CrossEntropyTarget::Classes(&[1])).unwrap();
    }
}

fn scene() -> Scene {
    let mut first = Parameters::<f64>::new(1);
    let mut second = Parameters::<f64>::new(2);
    let w: Tensor = first.tensor(&[3, 6], None, Init::Glorot, true).unwrap();
    let b = second.tensor(&[3], None, Init::Uniform(-1.0, 1.0), true).unwrap();
    let rows = second.tensor(&[4, 2], None, Init::Normal(0.0, 1.0), true).unwrap();
    let mut graph = Graph::new();
    let mut marks = vec![graph.mark()];
    let mut live = Vec::new();
    {
        let params = &[&first, &second];
        let start = graph.leaf(0.3).unwrap();
        dead(&mut graph, start, 40);
        let x = graph.vector(&[0.5, -1.5, 2.5, 0.25]).unwrap();
        marks.push(graph.mark());
        dead(&mut graph, x.first(), 3);
        let p = graph.parameter(&first, w.slice(), 4).unwrap();
        let views = [View::from(x.slice(1, 4).unwrap()), rows.row(2).unwrap().into(), p.into()];
        dead(&mut graph, p, 1);
        let hidden = graph.affine(params, &views, w.slice(), Some(b.slice())).unwrap();
        dead(&mut graph, hidden.get(1).unwrap(), 2);
        let active = graph.map(Op::Tanh, hidden).unwrap();
        marks.push(graph.mark());
        let loss = graph.softmax_cross_entropy(active, CrossEntropyTarget::Classes(&[2])).unwrap();
        let soft =
            graph.softmax_cross_entropy(hidden, CrossEntropyTarget::Probabilities(x.slice(0, 3).unwrap())).unwrap();
        let (mean, squares) = graph.reduce_mean_and_mean_squares(x).unwrap();
        dead(&mut graph, mean, 30);
        let list = [squares, x.first(), loss, soft, x.first()];
        let product = graph.reduce(Op::ReduceMul, Operands::List(&list), params).unwrap();
        let variance = graph.reduce(Op::Variance, x.into(), params).unwrap();
        let parts = [View::from(active.slice(0, 2).unwrap()), rows.row(1).unwrap().into(), product.into()];
        let dot = graph.inner_product(Operands::List(&list), Operands::Views(&parts), Some(variance), params).unwrap();
        let tail = graph.with_constant::<burtorch_core::ops::MulByConstant>(dot, 1.25).unwrap();
        dead(&mut graph, tail, 2);
        marks.push(graph.mark());
        live.extend([x, Range::new(tail, 1), Range::new(mean, 1), Range::new(active.get(1).unwrap(), 1)]);
    }
    Scene { graph, params: [first, second], live, marks }
}

impl Scene {
    fn sweep(&mut self, root: usize) {
        let [first, second] = &mut self.params;
        let root = self.live[root].first();
        self.graph.backward_with(root, 1.0, &mut [first.gradients(), second.gradients()]).unwrap();
    }

    fn compact(&mut self) -> usize {
        self.compact_above(self.graph.start())
    }

    fn compact_above(&mut self, line: Mark) -> usize {
        let before = self.live.clone();
        let live = &mut self.live;
        self.graph
            .compact_above(
                line,
                |is_live| before.iter().for_each(|&range| is_live(range)),
                &mut self.marks,
                |new| {
                    for range in live.iter_mut() {
                        *range = Range::new(NodeId::from_index(new.index(range.first().index())), range.len() as u32);
                    }
                },
            )
            .unwrap()
    }

    /// All properties of the live nodes, in a form that does not depend on node numbers.
    fn portrait(&self) -> Vec<(Op, f64, f64, Vec<OperandRun>)> {
        let mut seen = Vec::new();
        let mut todo: Vec<u32> =
            self.live.iter().flat_map(|r| (0..r.len()).map(|k| r.get(k).unwrap().index())).collect();
        while let Some(node) = todo.pop() {
            let id = NodeId::from_index(node);
            let mut runs = Vec::new();
            self.graph.for_each_operand(id, |run| match run.nodes() {
                Some(range) => todo.extend((0..range.len()).map(|k| range.get(k).unwrap().index())),
                None => runs.push(run),
            });
            seen.push((self.graph.op(id).unwrap(), self.graph.value(id).unwrap(), self.graph.grad(id).unwrap(), runs));
        }
        seen
    }
}

#[test]
fn values_gradients_and_structure_stay() {
    let mut scene = scene();
    scene.sweep(1);
    let (before, n) = (scene.portrait(), scene.graph.len());
    let left = scene.compact();
    assert!(left < n / 4, "{left} of {n} nodes are left");
    assert_eq!(scene.graph.len(), left);
    assert_eq!(scene.portrait(), before);
    assert_eq!(scene.compact(), left, "a second compaction finds nothing");
    assert_eq!(scene.portrait(), before);
}

/// Regardless of earlier compactions above marks, a final full compaction finds exactly the live nodes.
#[test]
fn compactions_above_a_line_touch_nothing_below_and_add_up_to_a_whole_one() {
    let mut whole = scene();
    whole.sweep(1);
    let (left, wanted) = (whole.compact(), whole.portrait());
    let lists = |scene: &Scene| (scene.graph.memory().operand_lists, scene.graph.stores().len());
    for lines in [vec![3], vec![2], vec![1], vec![0], vec![3, 2], vec![2, 3], vec![3, 2, 1], vec![1, 2, 2, 3, 1]] {
        let mut scene = scene();
        scene.sweep(1);
        for &k in &lines {
            let line = scene.marks[k];
            let below = |scene: &Scene| {
                let nodes = (0..line.len() as u32).map(NodeId::from_index);
                nodes.map(|n| (scene.graph.op(n), scene.graph.value(n), scene.graph.grad(n))).collect::<Vec<_>>()
            };
            let (before, n) = (below(&scene), scene.graph.len());
            let n_left = scene.compact_above(line);
            assert_eq!((n_left, below(&scene)), (scene.graph.len(), before));
            assert!(n_left >= left && n_left <= n);
            assert_eq!(scene.portrait(), wanted, "{lines:?}");
            assert_eq!(scene.compact_above(line), n_left, "the same again finds nothing");
        }
        assert_eq!(scene.compact(), left, "{lines:?}");
        assert_eq!((scene.portrait(), lists(&scene)), (wanted.clone(), lists(&whole)));
        let mut twin = self::scene();
        twin.sweep(1);
        for scene in [&mut scene, &mut twin] {
            scene.sweep(2);
        }
        assert_eq!(scene.portrait(), twin.portrait());
    }
}

#[test]
fn sweeps_and_recomputing_go_on_as_before() {
    let (mut whole, mut compacted) = (scene(), scene());
    for scene in [&mut whole, &mut compacted] {
        scene.sweep(2);
    }
    compacted.compact();
    for root in [1, 3, 2, 1] {
        whole.sweep(root);
        compacted.sweep(root);
        assert_eq!(whole.portrait(), compacted.portrait());
    }
    for scene in [&mut whole, &mut compacted] {
        for k in 0..4 {
            scene.graph.set_value(scene.live[0].get(k).unwrap(), k as f64 - 1.5).unwrap();
        }
        scene.params[0].values_mut()[4] = 0.75;
        let [first, second] = &scene.params;
        scene.graph.recompute(scene.live[1].first(), &[first, second]).unwrap();
        scene.sweep(1);
    }
    assert_eq!(whole.portrait(), compacted.portrait());
    for (a, b) in whole.params.iter().zip(&compacted.params) {
        assert_eq!(a.grads(), b.grads());
        assert!(a.grads().iter().any(|&g| g != 0.0));
    }
}

#[test]
fn marks_keep_their_place_between_nodes() {
    let mut scene = scene();
    scene.sweep(1);
    scene.compact();
    let lens: Vec<usize> = scene.marks.iter().map(Mark::len).collect();
    assert_eq!(lens[0], 0);
    // x is alive directly below the second mark; tanh of the hidden layer directly below the third.
    assert_eq!(lens[1], scene.live[0].first().index() as usize + 4);
    assert_eq!(scene.graph.op(NodeId::from_index(lens[2] as u32 - 1)), Ok(Op::Map));
    assert_eq!(lens[3], scene.graph.len());
    let x_grad = scene.graph.grad(scene.live[0].first());
    scene.graph.rewind(scene.marks[3]).unwrap();
    scene.graph.rewind(scene.marks[1]).unwrap();
    assert_eq!(scene.graph.grad(scene.live[0].first()), x_grad);
    // Nodes above were removed with their operand lists and slots: building continues as in a new graph.
    assert_eq!((scene.graph.memory().operand_lists, scene.graph.stores().len()), (0, 0));
    let x = scene.live[0];
    let sum = scene.graph.reduce(Op::ReduceSum, Operands::List(&[x.get(2).unwrap(), x.first()]), &[]).unwrap();
    scene.graph.zero_grad();
    scene.graph.backward(sum).unwrap();
    assert_eq!(scene.graph.value(sum), Ok(3.0));
    assert_eq!([0, 1, 2].map(|k| scene.graph.grad(x.get(k).unwrap()).unwrap()), [1.0, 0.0, 1.0]);
    scene.graph.rewind(scene.marks[0]).unwrap();
    assert!(scene.graph.is_empty());
}

#[test]
fn parameters_that_nothing_reads_any_more_are_forgotten() {
    let mut graph = Graph::<f64>::new();
    for round in 0..100 {
        let mut others = Parameters::<f64>::new(round);
        let mut params = Parameters::<f64>::new(round);
        let (u, w) =
            (others.tensor(&[2], None, Init::Constant(1.0), true), params.tensor(&[2, 2], None, Init::He, true));
        let (u, w) = (u.unwrap(), w.unwrap());
        graph.parameter(&others, u.slice(), 0).unwrap();
        let p = graph.parameter(&params, w.slice(), 3).unwrap();
        let views = [View::from(w.row(1).unwrap())];
        let sum = graph.reduce(Op::ReduceSum, Operands::Views(&views), &[&params]).unwrap();
        let out = graph.affine(&[&params], &[p.into(), sum.into()], w.slice(), Some(w.row(0).unwrap())).unwrap();
        let mut kept = out;
        graph
            .compact(
                |live| live(out),
                &mut [],
                |new| kept = Range::new(NodeId::from_index(new.index(out.first().index())), 2),
            )
            .unwrap();
        assert_eq!(graph.stores(), &[params.id()]);
        // The backward pass does not need the removed parameters, and finds the others under their new slot.
        graph.backward_with(kept.get(1).unwrap(), 1.0, &mut [params.gradients()]).unwrap();
        let (x0, x1) = (params.values()[3], params.values()[2] + params.values()[3]);
        let v = params.values().to_vec();
        let wanted = [0.0, 1.0, x0 + v[3], x1 + v[2] + v[3], v[0] * x0 + v[1] * x1 + v[0]];
        let found = params.grads().iter().copied().chain(graph.value(kept.first()));
        assert!(found.zip(wanted).all(|(found, wanted)| (found - wanted).abs() < 1e-12));
    }
}

#[test]
fn a_block_of_half_a_million_outputs_is_compacted_in_linear_time() {
    let mut graph = Graph::<f64>::new();
    graph.vector(&[0.0; 100]).unwrap();
    let x = graph.vector(&vec![0.5; 500_000]).unwrap();
    let y = graph.map(Op::Tanh, x).unwrap();
    // Held by its first output only, the block is kept whole.
    let left = graph.compact(|keep| keep(y.slice(0, 1).unwrap()), &mut [], |_| ()).unwrap();
    assert_eq!(left, 1_000_000);
}
