//! A long random walk over graphs in every phase: building, frozen by branches, being a branch, joined, dropped. Values of any
//! graph that a branch grows from are read, nodes are marked and rewound, and a plain model knows every number and gradient.
//!
//! BURTORCH_STEPS sets the number of steps.

use burtorch_core::{Error, Graph, Imports, Mark, NodeId, Op, Operands, Range};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A graph, and its relations to others.
#[derive(Default)]
struct Site {
    graph: Graph<'static, f64>,
    imports: Imports,
    trunk: Option<usize>,
    open: Vec<usize>,
    is_lent: bool,
    mark: Option<Mark>,
}

/// A node as kept by a caller: its graph and index, its value, and its derivative with respect to the first leaf.
#[derive(Clone, Copy)]
struct Held {
    site: usize,
    node: NodeId,
    epoch: u64,
    value: f64,
    slope: f64,
}

struct Walk {
    sites: Vec<Option<Site>>,
    held: Vec<Held>,
    x: NodeId,
    rng: ChaCha8Rng,
    n_joined: usize,
}

const X: f64 = 0.75;

impl Walk {
    fn new(seed: u64) -> Self {
        let mut graph = Graph::new();
        let x = graph.leaf(X).unwrap();
        let held = vec![Held { site: 0, node: x, epoch: graph.epoch(), value: X, slope: 1.0 }];
        let rng = ChaCha8Rng::seed_from_u64(seed);
        Walk { sites: vec![Some(Site { graph, ..Site::default() })], held, x, rng, n_joined: 0 }
    }

    fn site(&mut self, k: usize) -> &mut Site {
        self.sites[k].as_mut().unwrap()
    }

    fn some_site(&mut self) -> usize {
        let living: Vec<usize> = (0..self.sites.len()).filter(|&k| self.sites[k].is_some()).collect();
        *living.choose(&mut self.rng).unwrap()
    }

    fn depth(&self, mut k: usize) -> usize {
        let mut n = 0;
        while let Some(trunk) = self.sites[k].as_ref().unwrap().trunk {
            (k, n) = (trunk, n + 1);
        }
        n
    }

    fn grows_from(&self, mut k: usize, from: usize) -> bool {
        while k != from {
            match self.sites[k].as_ref().unwrap().trunk {
                Some(trunk) => k = trunk,
                None => return false,
            }
        }
        true
    }

    /// The node that represents `range` of site `from` in site `at`.
    fn import(&mut self, at: usize, from: usize, range: Range) -> Range {
        if at == from {
            return range;
        }
        let trunk = self.site(at).trunk.unwrap();
        let range = self.import(trunk, from, range);
        let mut own = self.sites[at].take().unwrap();
        let made = own.imports.read(&mut own.graph, &self.sites[trunk].as_ref().unwrap().graph, range).unwrap();
        self.sites[at] = Some(own);
        made
    }

    fn operate(&mut self) {
        let at = self.some_site();
        if !self.site(at).open.is_empty() {
            return;
        }
        let readable: Vec<Held> = self.held.iter().filter(|held| self.grows_from(at, held.site)).copied().collect();
        let Some((&a, &b)) = readable.choose(&mut self.rng).zip(readable.choose(&mut self.rng)) else { return };
        let [x, y] = [a, b].map(|held| {
            let graph = &self.site(held.site).graph;
            graph.check(held.node, held.epoch).unwrap();
            assert_eq!(graph.value(held.node), Ok(held.value));
            self.import(at, held.site, Range::new(held.node, 1)).first()
        });
        let (how, graph) = (self.rng.random_range(0..5), &mut self.sites[at].as_mut().unwrap().graph);
        let (node, value, slope) = match how {
            0 => (graph.binary_op(Op::Add, x, y), a.value + b.value, a.slope + b.slope),
            1 => (graph.binary_op(Op::Mul, x, y), a.value * b.value, a.slope * b.value + b.slope * a.value),
            2 => (graph.with_constant_op(Op::MulByConstant, x, 0.5), a.value * 0.5, a.slope * 0.5),
            3 => (
                graph.reduce(Op::ReduceMean, Operands::List(&[x, y]), &[]),
                (a.value + b.value) / 2.0,
                (a.slope + b.slope) / 2.0,
            ),
            _ => (graph.detach(x), a.value, 0.0),
        };
        let node = node.unwrap();
        assert_eq!(graph.value(node), Ok(value));
        if value.abs() < 1e3 && slope.abs() < 1e3 {
            let epoch = graph.epoch();
            self.held.push(Held { site: at, node, epoch, value, slope });
        }
    }

    fn branch(&mut self) {
        let at = self.some_site();
        if !self.site(at).open.is_empty() || self.depth(at) > 2 {
            return;
        }
        let n = self.rng.random_range(1..4);
        let graphs = self.site(at).graph.new_branches(n).unwrap();
        let first = self.sites.len();
        self.site(at).open = (first..first + n).collect();
        self.sites.extend(graphs.into_iter().map(|graph| Some(Site { graph, trunk: Some(at), ..Site::default() })));
    }

    /// Joins the branches of a graph, or drops them.
    fn end(&mut self) {
        let at = self.some_site();
        let open = self.site(at).open.clone();
        if open.is_empty() || open.iter().any(|&k| !self.site(k).open.is_empty()) {
            return;
        }
        let mut parts: Vec<Site> = open.iter().map(|&k| self.sites[k].take().unwrap()).collect();
        let trunk = self.sites[at].as_mut().unwrap();
        trunk.open.clear();
        for part in parts.iter_mut().filter(|part| part.is_lent) {
            trunk.graph.take_temporaries(&mut part.graph);
        }
        if self.rng.random_bool(0.2) {
            self.held.retain(|held| !open.contains(&held.site));
            return;
        }
        let n_threads = self.rng.random_range(1..3);
        let mut graphs: Vec<&mut Graph<'static, f64>> = parts.iter_mut().map(|part| &mut part.graph).collect();
        let joined = trunk.graph.splice(&mut graphs, n_threads).unwrap();
        let epoch = trunk.graph.epoch();
        for held in &mut self.held {
            if let Some(number) = open.iter().position(|&k| k == held.site) {
                held.node = joined.parts()[number].node(held.node).unwrap();
                (held.site, held.epoch) = (at, epoch);
            }
        }
        trunk.graph.recycle(parts.into_iter().map(|part| part.graph));
        self.n_joined += 1;
    }

    fn lend(&mut self) {
        let at = self.some_site();
        let Some(trunk) = self.site(at).trunk else { return };
        let mut own = self.sites[at].take().unwrap();
        let above = &mut self.site(trunk).graph;
        match own.is_lent {
            false => above.lend_temporaries(&mut own.graph),
            true => above.take_temporaries(&mut own.graph),
        }
        own.is_lent = !own.is_lent;
        self.sites[at] = Some(own);
    }

    fn rewind(&mut self) {
        let at = self.some_site();
        let Site { graph, open, mark, .. } = self.sites[at].as_mut().unwrap();
        if !open.is_empty() {
            return;
        }
        let Some(place) = mark.take() else {
            *mark = Some(graph.mark());
            return;
        };
        match graph.rewind(place) {
            Ok(()) => {
                let is_there = |held: &Held| held.site != at || graph.check(held.node, held.epoch).is_ok();
                self.held.retain(is_there);
            }
            Err(error) => assert!(matches!(error, Error::StaleMark { .. }), "{error}"),
        }
    }

    fn backward(&mut self) {
        let Some(&root) = self.held.choose(&mut self.rng).filter(|held| held.site == 0) else { return };
        let x = self.x;
        let site = self.site(0);
        if !site.open.is_empty() {
            return;
        }
        site.graph.zero_grad();
        site.graph.backward(root.node).unwrap();
        let found = site.graph.grad(x).unwrap();
        assert!((found - root.slope).abs() <= 1e-9 * root.slope.abs().max(1.0), "{found} is not {}", root.slope);
    }

    fn step(&mut self) {
        match self.rng.random_range(0..20) {
            0..10 => self.operate(),
            10..12 => self.branch(),
            12..15 => self.end(),
            15 => self.lend(),
            16..18 => self.rewind(),
            18 => self.backward(),
            _ if self.held.len() > 40 => {
                let kept = self.rng.random_range(1..40);
                self.held.drain(1..self.held.len() - kept);
            }
            _ => {}
        }
    }
}

#[test]
fn a_walk_over_phases_meets_its_model() {
    let n_steps: usize = std::env::var("BURTORCH_STEPS").ok().and_then(|n| n.parse().ok()).unwrap_or(20_000);
    for seed in 0..n_steps.div_ceil(2000) as u64 {
        let mut walk = Walk::new(seed);
        for _ in 0..n_steps.min(2000) {
            walk.step();
        }
        assert!(walk.n_joined > 5 || n_steps < 2000, "{}", walk.n_joined);
    }
}
