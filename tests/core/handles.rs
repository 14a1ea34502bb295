//! Is a handle ever silently wrong? A long random walk over create, op, mark, rewind, sweep and compact against a plain
//! model, and the single cases by name.

use burtorch_core::{Error, Graph, Mark, NodeId, Op, Operands, Range, View};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A node of the model: its content and identity, independent of its number.
#[derive(Clone, Debug, PartialEq)]
struct Node {
    name: u64,
    value: f64,
    op: Op,
    operands: Vec<u64>,
    grad: f64,
}

/// A handle as kept by a caller.
#[derive(Clone, Copy, Debug)]
struct Handle {
    name: u64,
    node: NodeId,
    epoch: u64,
}

struct Walk {
    graph: Graph<'static, f64>,
    /// The live nodes in building order.
    nodes: Vec<Node>,
    handles: Vec<Handle>,
    /// Marks, with the names of the nodes below each; `None` after a compaction that did not renumber it.
    marks: Vec<(Mark, Option<Vec<u64>>)>,
    next_name: u64,
    rng: ChaCha8Rng,
}

impl Walk {
    fn new(seed: u64) -> Self {
        Walk {
            graph: Graph::new(),
            nodes: Vec::new(),
            handles: Vec::new(),
            marks: Vec::new(),
            next_name: 0,
            rng: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    fn names(&self) -> Vec<u64> {
        self.nodes.iter().map(|n| n.name).collect()
    }

    fn place(&self, name: u64) -> Option<usize> {
        self.nodes.iter().position(|n| n.name == name)
    }

    fn remember(&mut self, id: NodeId, op: Op, operands: Vec<u64>) {
        assert_eq!(id.index() as usize, self.nodes.len());
        let name = self.next_name;
        self.next_name += 1;
        let value = self.graph.value(id).unwrap();
        self.nodes.push(Node { name, value, op, operands, grad: 0.0 });
        self.handles.push(Handle { name, node: id, epoch: self.graph.epoch() });
    }

    fn any_node(&mut self) -> (NodeId, u64) {
        let at = self.rng.random_range(0..self.nodes.len());
        (NodeId::from_index(at as u32), self.nodes[at].name)
    }

    fn create(&mut self) {
        let x = self.rng.random_range(-2.0..2.0);
        if self.rng.random_bool(0.2) {
            let id = self.graph.constant(x).unwrap();
            self.remember(id, Op::Constant, vec![]);
        } else {
            let id = self.graph.leaf(x).unwrap();
            self.remember(id, Op::Leaf, vec![]);
        }
    }

    fn op(&mut self) {
        if self.nodes.is_empty() {
            return self.create();
        }
        let ((x, nx), (y, ny), (z, nz)) = (self.any_node(), self.any_node(), self.any_node());
        let run = |node: NodeId| Range::new(node, 1);
        match self.rng.random_range(0..6) {
            0 => {
                let id = self.graph.unary_op(Op::Tanh, x).unwrap();
                self.remember(id, Op::Tanh, vec![nx]);
            }
            1 | 2 => {
                let id = self.graph.binary_op(Op::Mean, x, y).unwrap();
                self.remember(id, Op::Mean, vec![nx, ny]);
            }
            3 => {
                let id = self.graph.reduce(Op::ReduceMean, Operands::List(&[x, y, z]), &[]).unwrap();
                self.remember(id, Op::ReduceMean, vec![nx, ny, nz]);
            }
            4 => {
                let views = [View::from(x), View::from(run(y))];
                let id = self.graph.reduce(Op::ReduceMean, Operands::Views(&views), &[]).unwrap();
                self.remember(id, Op::ReduceMean, vec![nx, ny]);
            }
            _ => {
                let x = Operands::List(&[x, y]);
                let id = self.graph.inner_product(x, Operands::Run(run(z)), None, &[]);
                assert!(matches!(id, Err(Error::LengthMismatch { .. })));
                let w = [View::from(z), View::from(z)];
                let id = self.graph.inner_product(x, Operands::Views(&w), Some(z), &[]).unwrap();
                self.remember(id, Op::InnerProductWithBias, vec![nx, ny, nz, nz, nz]);
            }
        }
    }

    fn rewind(&mut self) {
        let Some((mark, below)) = self.marks.choose(&mut self.rng).cloned() else {
            return;
        };
        let names = self.names();
        let valid = below.is_some_and(|below| names.starts_with(&below)) || mark.is_empty();
        assert_eq!(self.graph.check_mark(mark).is_ok(), valid, "{mark:?} on {} nodes", names.len());
        match self.graph.rewind(mark) {
            Ok(()) => {
                assert!(valid);
                self.nodes.truncate(mark.len());
            }
            Err(error) => {
                assert!(!valid);
                assert!(matches!(error, Error::StaleMark { .. }));
            }
        }
    }

    /// A backward pass, and the same in the model: means, tanh and inner products by definition.
    fn backward(&mut self) {
        if self.nodes.is_empty() {
            return;
        }
        let root = self.any_node().0;
        self.graph.backward(root).unwrap();
        let mut adjoints = vec![0.0; self.nodes.len()];
        adjoints[root.index() as usize] = 1.0;
        for at in (0..=root.index() as usize).rev() {
            let (node, g) = (self.nodes[at].clone(), adjoints[at]);
            let places: Vec<usize> = node.operands.iter().map(|&name| self.place(name).unwrap()).collect();
            let values: Vec<f64> = places.iter().map(|&k| self.nodes[k].value).collect();
            let partials = match node.op {
                Op::Tanh => vec![1.0 - node.value * node.value],
                Op::Mean | Op::ReduceMean => vec![1.0 / places.len() as f64; places.len()],
                Op::InnerProductWithBias => vec![values[2], values[3], values[0], values[1], 1.0],
                _ => vec![],
            };
            for (k, partial) in places.into_iter().zip(partials) {
                adjoints[k] += g * partial;
            }
        }
        for (node, adjoint) in self.nodes.iter_mut().zip(adjoints) {
            node.grad = if node.op == Op::Leaf { node.grad + adjoint } else { adjoint };
        }
    }

    /// Keeps the nodes that some handles reach, and all nodes below a mark; the other handles are dropped, or kept to
    /// check that they are refused. Nothing below the mark is renamed.
    fn compact(&mut self) {
        let keep = self.rng.random_range(0.0..1.0);
        let names = self.names();
        let whole = |m: &(Mark, Option<Vec<u64>>)| m.1.as_ref().is_some_and(|below| names.starts_with(below));
        let lines: Vec<Mark> = self.marks.iter().filter(|m| whole(m)).map(|m| m.0).collect();
        let line = match lines.choose(&mut self.rng) {
            Some(&line) if self.rng.random_bool(0.7) => line,
            _ => self.graph.start(),
        };
        let (graph, rng) = (&self.graph, &mut self.rng);
        let is_below = |h: &Handle| (h.node.index() as usize) < line.len();
        let (below, above): (Vec<Handle>, Vec<Handle>) =
            std::mem::take(&mut self.handles).into_iter().partition(|h| is_below(h));
        let (mut live, dropped): (Vec<Handle>, Vec<Handle>) =
            above.into_iter().partition(|h| graph.check(h.node, h.epoch).is_ok() && rng.random_bool(keep));
        let mut alive: Vec<u64> = live.iter().map(|h| h.name).chain(names[..line.len()].iter().copied()).collect();
        for at in (0..self.nodes.len()).rev() {
            if alive.contains(&self.nodes[at].name) {
                alive.extend(&self.nodes[at].operands);
            }
        }
        let (mut renamed, mut others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.marks).into_iter().partition(|_| rng.random_bool(0.7));
        let mut numbers: Vec<Mark> = renamed.iter().map(|m| m.0).collect();
        for below in renamed.iter_mut().map(|m| &mut m.1) {
            *below = below.take().filter(|b| names.starts_with(b));
            if let Some(below) = below {
                below.retain(|name| alive.contains(name));
            }
        }
        others.iter_mut().filter(|m| m.0.len() > line.len()).for_each(|m| m.1 = None);
        self.nodes.retain(|n| alive.contains(&n.name));
        let roots: Vec<NodeId> = live.iter().chain(&below).map(|h| h.node).collect();
        let left = self.graph.compact_above(
            line,
            |is_live| roots.iter().for_each(|&node| is_live(Range::new(node, 1))),
            &mut numbers,
            |new| {
                for handle in &mut live {
                    assert_eq!(new.kept(handle.node.index()), Some(new.index(handle.node.index())));
                    handle.node = NodeId::from_index(new.index(handle.node.index()));
                    handle.epoch = new.epoch();
                }
                assert!(below.iter().all(|h| new.kept(h.node.index()) == Some(h.node.index())));
            },
        );
        assert_eq!(left, Ok(self.nodes.len()));
        renamed.iter_mut().zip(numbers).for_each(|(m, number)| m.0 = number);
        self.marks = renamed;
        self.marks.extend(others);
        self.handles = live;
        self.handles.extend(below);
        // The dropped handles are kept: they must be refused from now on.
        let refused = dropped.into_iter().take(20).map(|h| Handle { name: u64::MAX, ..h });
        self.handles.extend(refused);
    }

    fn check(&mut self) {
        assert_eq!(self.graph.len(), self.nodes.len());
        for (at, node) in self.nodes.iter().enumerate() {
            let id = NodeId::from_index(at as u32);
            assert_eq!((self.graph.op(id), self.graph.value(id)), (Ok(node.op), Ok(node.value)));
            let grad = self.graph.grad(id).unwrap();
            assert!((grad - node.grad).abs() <= 1e-9 * (1.0 + node.grad.abs()), "{grad} for {node:?}");
            let mut operands = Vec::new();
            self.graph.for_each_operand(id, |run| {
                let range = run.nodes().unwrap();
                operands.extend((0..range.len()).map(|k| self.nodes[range.get(k).unwrap().index() as usize].name));
            });
            assert_eq!(operands, node.operands);
        }
        for handle in &mut self.handles {
            let at = self.nodes.iter().position(|n| n.name == handle.name);
            match self.graph.check(handle.node, handle.epoch) {
                Ok(epoch) => {
                    assert_eq!(at, Some(handle.node.index() as usize), "false accept of {handle:?}");
                    if self.rng.random_bool(0.5) {
                        handle.epoch = epoch;
                    }
                }
                Err(error) => {
                    assert_eq!(at, None, "false reject of {handle:?}");
                    assert_eq!(error, Error::Stale { index: handle.node.index() });
                }
            }
        }
    }

    fn step(&mut self) {
        match self.rng.random_range(0..100) {
            0..15 => self.create(),
            15..70 => self.op(),
            70..80 => self.marks.push((self.graph.mark(), Some(self.names()))),
            80..88 => self.rewind(),
            88..97 => self.backward(),
            97..99 => self.compact(),
            _ if self.rng.random_bool(0.1) => {
                self.graph.clear().unwrap();
                self.nodes.clear();
            }
            _ => {
                self.graph.zero_grad();
                self.nodes.iter_mut().for_each(|n| n.grad = 0.0);
            }
        }
        if self.handles.len() > 150 {
            let rng = &mut self.rng;
            self.handles.retain(|_| rng.random_bool(0.5));
        }
        if self.marks.len() > 20 {
            let rng = &mut self.rng;
            self.marks.retain(|_| rng.random_bool(0.5));
        }
    }
}

#[test]
fn a_walk_of_ten_thousand_steps_agrees_with_a_plain_model() {
    for seed in 0..10 {
        let mut walk = Walk::new(seed);
        let mut largest = 0;
        for _ in 0..1000 {
            walk.step();
            walk.check();
            largest = largest.max(walk.nodes.len());
        }
        assert!(largest > 50, "a walk that stays small shows little");
    }
}

/// Mistake of earlier engines: a handle that aliases a new node after a rewind.
#[test]
fn a_handle_never_aliases_a_new_node_after_a_rewind() {
    let mut graph = Graph::<f32>::new();
    let kept = graph.leaf(1.0).unwrap();
    let made = graph.epoch();
    let mark = graph.mark();
    let gone = graph.leaf(2.0).unwrap();
    graph.rewind(mark).unwrap();
    let fresh = graph.leaf(3.0).unwrap();
    assert_eq!(gone, fresh);
    assert_eq!(graph.check(gone, made), Err(Error::Stale { index: 1 }));
    assert_eq!(graph.check(kept, made), Ok(graph.epoch()));
    assert_eq!(graph.check(fresh, graph.epoch()), Ok(graph.epoch()));
}

#[test]
fn nested_rewinds_remember_the_lowest() {
    let mut graph = Graph::<f64>::new();
    let x = graph.leaf(0.0).unwrap();
    let outer = graph.mark();
    let y = graph.leaf(1.0).unwrap();
    let inner = graph.mark();
    graph.leaf(2.0).unwrap();
    let first = graph.epoch();
    graph.rewind(inner).unwrap();
    graph.leaf(2.0).unwrap();
    graph.rewind(outer).unwrap();
    assert_eq!(graph.rewind(inner), Err(Error::StaleMark { len: 2 }));
    graph.leaf(1.0).unwrap();
    graph.leaf(2.0).unwrap();
    graph.leaf(3.0).unwrap();
    let later = graph.mark();
    graph.leaf(4.0).unwrap();
    graph.rewind(later).unwrap();
    // The rewind to 4 nodes must not hide the one to 1 node.
    assert!(graph.check(y, first).is_err());
    assert!(graph.check(x, first).is_ok());
    assert_eq!(graph.rewind(inner), Err(Error::StaleMark { len: 2 }));
    graph.rewind(outer).unwrap();
    assert_eq!(graph.len(), 1);
}

/// Nodes below the mark keep their handles, handles of rewound nodes stay refused, and an invalid mark is ignored.
#[test]
fn a_compaction_above_a_mark_is_a_rewind_to_it_for_handles_not_renamed() {
    let mut graph = Graph::<f64>::new();
    let x = graph.leaf(1.0).unwrap();
    let first = graph.epoch();
    let start = graph.mark();
    let gone = graph.leaf(2.0).unwrap();
    graph.rewind(start).unwrap();
    let y = graph.unary_op(Op::Tanh, x).unwrap();
    let line = graph.mark();
    let waste = graph.leaf(3.0).unwrap();
    let z = graph.unary_op(Op::Exp, y).unwrap();
    let before = graph.epoch();
    let mut new_z = None;
    let left = graph.compact_above(line, |live| live(Range::new(z, 1)), &mut [], |new| new_z = new.kept(z.index()));
    assert_eq!((left, new_z), (Ok(3), Some(2)));
    assert_eq!((graph.check(x, first), graph.check(y, before)), (Ok(graph.epoch()), Ok(graph.epoch())));
    assert_eq!(graph.check(gone, first), Err(Error::Stale { index: 1 }));
    assert_eq!(graph.check(waste, before), Err(Error::Stale { index: 2 }));
    assert_eq!(graph.check(z, before), Err(Error::Stale { index: 3 }));
    let later = graph.mark();
    graph.rewind(line).unwrap();
    graph.leaf(1.0).unwrap();
    graph.leaf(1.0).unwrap();
    let before = format!("{graph:?}");
    let refused = graph.compact_above(later, |_| {}, &mut [], |_| panic!("nothing is renamed"));
    assert_eq!(refused, Err(Error::StaleMark { len: 3 }));
    assert_eq!(format!("{graph:?}"), before);
}

#[test]
fn a_foreign_mark_is_refused() {
    let (mut one, two) = (Graph::<f64>::new(), Graph::<f64>::new());
    one.leaf(1.0).unwrap();
    assert_eq!(one.rewind(two.mark()), Err(Error::GraphMismatch { what: "the mark" }));
    let mut marks = [two.mark()];
    one.compact(|_| {}, &mut marks, |_| {}).unwrap();
    assert_eq!(marks, [two.mark()], "a compaction leaves marks of other graphs alone");
}

#[test]
fn handles_not_renamed_by_a_compaction_are_refused() {
    let mut graph = Graph::<f64>::new();
    let nodes: Vec<NodeId> = (0..10).map(|k| graph.leaf(f64::from(k)).unwrap()).collect();
    let (epoch, mark) = (graph.epoch(), graph.mark());
    let start = Graph::<f64>::new().mark();
    assert!(start.is_empty());
    graph.compact(|live| live(Range::new(nodes[7], 2)), &mut [], |_| {}).unwrap();
    assert_eq!(graph.values(), &[7.0, 8.0]);
    for node in &nodes {
        assert!(graph.check(*node, epoch).is_err(), "{node:?} was not renamed");
    }
    assert!(graph.rewind(mark).is_err());
    assert_eq!(graph.len(), 2);
}

#[test]
fn a_stale_mark_stays_stale_through_a_compaction() {
    let mut graph = Graph::<f64>::new();
    let below = graph.mark();
    graph.leaf(1.0).unwrap();
    let mut marks = [graph.mark()];
    graph.rewind(below).unwrap();
    let x = graph.leaf(2.0).unwrap();
    graph.compact(|live| live(Range::new(x, 1)), &mut marks, |_| {}).unwrap();
    assert!(graph.rewind(marks[0]).is_err());
    assert_eq!(graph.values(), &[2.0]);
}

#[test]
fn ids_that_never_were_are_refused() {
    let mut graph = Graph::<f64>::new();
    let x = graph.leaf(1.0).unwrap();
    let wrong = NodeId::from_index(u32::MAX);
    let far = Range::new(wrong, u32::MAX);
    assert_eq!(graph.value(wrong), Err(Error::NoSuchNode { index: u32::MAX, len: 1 }));
    assert!(graph.grad(wrong).is_err() && graph.op(wrong).is_err() && graph.scratch_len(wrong).is_err());
    assert!(graph.set_value(wrong, 0.0).is_err() && graph.set_grad(wrong, 0.0).is_err());
    assert!(graph.unary_op(Op::Exp, wrong).is_err() && graph.binary_op(Op::Add, x, wrong).is_err());
    assert!(graph.reduce(Op::ReduceSum, far.into(), &[]).is_err() && graph.map(Op::Exp, far).is_err());
    assert!(graph.reduce(Op::ReduceSum, Operands::List(&[x, wrong]), &[]).is_err());
    assert!(graph.reduce(Op::ReduceSum, Operands::Views(&[x.into(), far.into()]), &[]).is_err());
    assert!(graph.inner_product(Operands::List(&[x]), Operands::List(&[x]), Some(wrong), &[]).is_err());
    assert!(graph.backward(wrong).is_err() && graph.recompute(wrong, &[]).is_err() && graph.detach(wrong).is_err());
    assert!(graph.unary_op(Op::Add, x).is_err() && graph.binary_op(Op::Affine, x, x).is_err());
    assert_eq!((graph.len(), graph.memory().operand_lists), (1, 0));
}
