//! Every allocation of a scripted build is refused once: each time the call at hand says `OutOfMemory`, the graph is as
//! it was, and the script goes on to the same end.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burtorch_core::memory::{REFUSED, keep_reserve, unwind_refusals};
use burtorch_core::program::derive::Jacobian;
use burtorch_core::program::sparse::{Hessian, SparseJacobian};
use burtorch_core::program::sparsity::hessian_pattern;
use burtorch_core::program::{Build, Recording, Replay, Seeds};
use burtorch_core::text::Vocabulary;
use burtorch_core::{
    CrossEntropyTarget, Error, Graph, Init, Mark, NodeId, Op, Operands, Parameters, Range, Tensor, View,
};

use crate::heap::{refuse_after, refuse_no_more};

#[derive(Debug)]
struct Scene {
    graph: Graph<'static, f64>,
    params: Parameters<'static, f64>,
    w: Option<Tensor>,
    marks: [Mark; 1],
    last: NodeId,
}

/// All observable state of a graph and its parameters.
type Picture = (Vec<u64>, Vec<u64>, [usize; 5], Vec<u64>, Mark, Mark, usize, usize);

impl Scene {
    fn new() -> Self {
        let graph = Graph::new();
        let marks = [graph.mark()];
        let last = NodeId::from_index(0);
        Scene { graph, params: Parameters::new(9), w: None, marks, last }
    }

    /// All observable state of the scene.
    fn picture(&self) -> Picture {
        let bits = |xs: &[f64]| xs.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        let memory = self.graph.memory();
        let sizes = [memory.nodes, memory.operand_lists, memory.leaves, self.params.len(), self.params.n_trainable()];
        let (values, adjoints) = (bits(self.graph.values()), bits(self.graph.adjoints()));
        let stores = self.graph.stores().len();
        (
            values,
            adjoints,
            sizes,
            bits(self.params.values()),
            self.graph.mark(),
            self.marks[0],
            stores,
            self.params.names().count(),
        )
    }
}

type Call = fn(&mut Scene) -> Result<(), Error>;

/// Calls that together grow every column several times, in an order in which some need several columns at once.
const SCRIPT: &[Call] = &[
    |s| s.params.tensor(&[3, 2], Some("a rather long name for a tensor"), Init::Glorot, true).map(|w| s.w = Some(w)),
    |s| s.params.tensor(&[3], Some("frozen"), Init::Constant(1.0), false).map(drop),
    |s| s.graph.leaf(0.5).map(|x| s.last = x),
    |s| s.graph.unary_op(Op::Tanh, s.last).map(drop),
    |s| s.graph.parameter(&s.params, s.w.unwrap().slice(), 3).map(drop),
    |s| s.graph.vector(&[0.25; 300]).map(drop),
    |s| s.graph.reduce(Op::ReduceMul, Operands::List(&[s.last; 200]), &[]).map(drop),
    |s| {
        s.graph
            .inner_product(Range::new(s.last, 300).into(), Operands::List(&[s.last; 300]), Some(s.last), &[])
            .map(drop)
    },
    |s| {
        let views = [View::from(s.w.unwrap().slice()), s.last.into()];
        s.graph.reduce(Op::ReduceSum, Operands::Views(&views), &[&s.params]).map(drop)
    },
    |s| {
        let w = s.w.unwrap();
        let bias = s.params.named("frozen").unwrap().slice();
        let views = [View::from(s.last), w.slice().slice(0, 1).unwrap().into()];
        s.graph.affine(&[&s.params], &views, w.slice(), Some(bias)).map(drop)
    },
    |s| s.graph.map(Op::Exp, Range::new(s.last, 300)).map(drop),
    |s| s.graph.softmax_cross_entropy(Range::new(s.last, 600), CrossEntropyTarget::Classes(&[5])).map(drop),
    |s| s.graph.reduce_mean_and_mean_squares(Range::new(s.last, 600)).map(drop),
    |s| s.graph.constants(&[1.0; 3000]).map(drop),
    |s| s.graph.vector(&[1.0; 1000]).map(drop),
    |s| s.graph.with_constant::<burtorch_core::ops::Pow>(s.last, 2.5).map(|x| s.last = x),
    |s| s.params.tensor(&[2], Some("second"), Init::He, false).map(drop),
    |s| s.params.unfreeze(s.params.named("frozen").unwrap().slice()),
    |s| s.params.freeze(s.w.unwrap().row(1).unwrap()),
    |s| s.graph.backward_with(s.last, 1.0, &mut [s.params.gradients()]),
    |s| s.graph.recompute(s.last, &[&s.params]),
    |s| {
        let (last, mut marks) = (s.last, s.marks);
        let mut renamed = last;
        let alive = s.graph.compact(
            |live| live(Range::new(last, 1)),
            &mut marks,
            |new| renamed = NodeId::from_index(new.index(last.index())),
        );
        alive.map(|_| (s.last, s.marks) = (renamed, marks))
    },
    |s| s.graph.vector(&[1.0; 5000]).map(drop),
    |s| s.graph.rewind(s.marks[0]),
    |s| s.graph.leaf(1.0).map(|x| s.last = x),
];

/// Runs the script and refuses allocation number `refused`. Returns whether it occurred, and the final scene.
fn run(refused: u64) -> (bool, Scene) {
    let mut scene = Scene::new();
    let (mut left, mut met) = (refused, false);
    for (number, call) in SCRIPT.iter().enumerate() {
        let before = scene.picture();
        refuse_after(left);
        let result = call(&mut scene);
        let now = refuse_no_more();
        if let Err(error) = result {
            assert!(matches!(error, Error::OutOfMemory { .. }), "call {number}, allocation {refused}: {error}");
            assert!(!met, "call {number} failed without a refusal");
            assert!(scene.picture() == before, "call {number}, allocation {refused} changed something");
            met = true;
            assert_eq!(call(&mut scene), Ok(()), "call {number} after allocation {refused} was refused");
        } else if left != u64::MAX && now == u64::MAX {
            panic!("call {number} swallowed the refusal of allocation {refused}");
        }
        left = if met { u64::MAX } else { now };
    }
    (met, scene)
}

#[test]
fn every_refused_allocation_is_an_error_that_changes_nothing() {
    let (met, whole) = run(u64::MAX);
    assert!(!met);
    let mut n_refused = 0;
    while let (true, scene) = run(n_refused) {
        let (mut found, wanted) = (scene.picture(), whole.picture());
        // Marks contain the identity of their graph.
        (found.4, found.5) = (wanted.4, wanted.5);
        assert!(found == wanted, "another end after allocation {n_refused} was refused");
        n_refused += 1;
    }
    println!("{n_refused} allocations, each refused once");
    assert!(n_refused > 30, "{n_refused}");
}

/// Grows three branches on `x` and joins them. A block of one of them reads a proxy and the node next to it, a range
/// that is split by joining: it then reads a copy.
fn grow(graph: &mut Graph<'static, f64>, x: NodeId) -> Result<[NodeId; 3], Error> {
    let mut branches = graph.branches(3)?;
    let mut roots = [x; 3];
    for (root, mut branch) in roots.iter_mut().zip(branches.iter_mut()) {
        let x = branch.read(x)?;
        let y = branch.unary_op(Op::Exp, x)?;
        let read = if branch.number() == 1 { Range::new(x, 2) } else { Range::new(y, 1) };
        let mapped = branch.map(Op::Tanh, read)?;
        let listed = branch.reduce(Op::ReduceMul, Operands::List(&[x, y]), &[])?;
        *root = branch.reduce(Op::ReduceSum, Operands::List(&[y, mapped.first(), listed]), &[])?;
        branch.set_label(*root, "the root of a branch")?;
    }
    let joined = branches.join_on(1)?;
    Ok([0, 1, 2].map(|k| joined.node(k, roots[k]).unwrap()))
}

#[test]
fn every_refused_allocation_of_branches_and_of_their_join_leaves_the_graph_whole() {
    let attempt = |refused: u64| {
        let mut graph = Graph::<f64>::new();
        let x = graph.leaf(0.5).unwrap();
        refuse_after(refused);
        let mut roots = grow(&mut graph, x);
        let is_refused = refuse_no_more() == u64::MAX && refused != u64::MAX;
        if let Err(error) = &roots {
            assert!(matches!(error, Error::OutOfMemory { .. }), "allocation {refused}: {error}");
            assert_eq!((graph.len(), graph.labels().count()), (1, 0), "allocation {refused}");
            roots = grow(&mut graph, x);
        }
        for root in roots.unwrap() {
            graph.backward(root).unwrap();
        }
        (is_refused, graph.values().to_vec(), graph.grad(x).unwrap())
    };
    let (_, values, grad) = attempt(u64::MAX);
    let mut n_refused = 0;
    while let (true, found, slope) = attempt(n_refused) {
        assert_eq!((found, slope), (values.clone(), grad), "another end after allocation {n_refused} was refused");
        n_refused += 1;
    }
    println!("{n_refused} allocations, each refused once");
    assert!(n_refused > 30, "{n_refused}");
}

/// Two rounds of branches of equal sizes: the second round has reserved regions in the graph's memory.
fn grow_twice(graph: &mut Graph<'static, f64>, until: u64) -> Result<[NodeId; 2], Error> {
    let mut roots = Ok([NodeId::from_index(0); 2]);
    for round in 0..2 {
        graph.clear()?;
        refuse_after(if round == 1 { until } else { u64::MAX });
        roots = grow_much(graph);
    }
    roots
}

fn grow_much(graph: &mut Graph<'static, f64>) -> Result<[NodeId; 2], Error> {
    let mut branches = graph.branches(2)?;
    let mut roots = [NodeId::from_index(0); 2];
    for (root, mut branch) in roots.iter_mut().zip(branches.iter_mut()) {
        let mut run = branch.vector(&[0.25; 1000])?;
        for _ in 0..9 {
            run = branch.map(Op::Tanh, run)?;
        }
        let ends = [run.first(), run.get(999).unwrap(), run.first()];
        *root = branch.reduce(Op::ReduceSum, Operands::List(&ends), &[])?;
        branch.set_label(*root, "the root of a branch")?;
    }
    let joined = branches.join_on(1)?;
    Ok([0, 1].map(|k| joined.node(k, roots[k]).unwrap()))
}

#[test]
fn every_refused_allocation_of_branches_with_places_leaves_the_graph_whole() {
    let attempt = |refused: u64| {
        let mut graph = Graph::<f64>::new();
        let mut roots = grow_twice(&mut graph, refused);
        let is_refused = refuse_no_more() == u64::MAX && refused != u64::MAX;
        if let Err(error) = &roots {
            assert!(matches!(error, Error::OutOfMemory { .. }), "allocation {refused}: {error}");
            assert_eq!((graph.len(), graph.labels().count()), (0, 0), "allocation {refused}");
            roots = grow_much(&mut graph);
        }
        for root in roots.unwrap() {
            graph.backward(root).unwrap();
        }
        (is_refused, graph.values().to_vec(), graph.labels().count())
    };
    let (_, values, n_labels) = attempt(u64::MAX);
    let mut n_refused = 0;
    while let (true, found, labels) = attempt(n_refused) {
        assert!(found == values && labels == n_labels, "another end after allocation {n_refused} was refused");
        n_refused += 1;
    }
    println!("{n_refused} allocations, each refused once");
    assert!(n_refused > 15, "{n_refused}");
}

/// Records, plans, replays and differentiates a function of eight numbers, and draws its graph.
fn record(graph: &mut Graph<'static, f64>) -> Result<(Vec<f64>, String), Error> {
    graph.clear()?;
    let x = graph.vector(&[0.25; 8])?;
    let mut run = x;
    for _ in 0..3 {
        run = graph.map(Op::Tanh, run)?;
    }
    let ends: Vec<NodeId> = run.nodes().chain(x.nodes()).collect();
    let root = graph.reduce(Op::ReduceMul, Operands::List(&ends), &[])?;
    let inputs: Vec<NodeId> = x.nodes().collect();
    let recording = Recording { n_differentiated: 8, inputs, outputs: vec![root], ..Recording::default() };
    let program = recording.program(graph)?;
    let mut replay = Replay::<f64, 1>::new(&program, Build::Reverse(Seeds::One(0)))?;
    replay.inputs_mut().fill(0.5);
    replay.values();
    replay.reverse_one();
    let mut found = vec![replay.gradient(0, 0)];
    let mut entries = vec![0.0; 64];
    let mut hessian = Hessian::new(&program)?;
    hessian.dense(&program, &[0.5; 8], &mut entries)?;
    found.append(&mut entries);
    hessian.record(&program)?;
    found.extend(hessian.sparse(&program, &[0.5; 8])?.1);
    let mut jacobian = SparseJacobian::new(&program)?;
    jacobian.record(&program)?;
    found.extend(jacobian.entries(&program, &[0.5; 8])?.1);
    let mut slopes = [0.0; 8];
    Jacobian::new(&program)?.run(&[0.5; 8], &mut slopes)?;
    found.extend(slopes);
    found.push(hessian_pattern(&program)?.n_rows() as f64);
    found.push(Vocabulary::of_words(["anna", "otto"])?.len() as f64);
    Ok((found, program.to_string()))
}

/// A refused allocation of a standard library list unwinds, and leaves a usable graph.
#[test]
fn every_refused_allocation_of_a_program_is_an_error_or_unwinds() {
    unwind_refusals();
    let whole = record(&mut Graph::new()).unwrap();
    let mut graph = Graph::new();
    let (mut n_unwound, mut n_errors) = (0, 0);
    for refused in 0.. {
        refuse_after(refused);
        let result = catch_unwind(AssertUnwindSafe(|| record(&mut graph)));
        let is_refused = refuse_no_more() == u64::MAX;
        match result {
            Ok(Ok(found)) => assert_eq!(found, whole),
            Ok(Err(error)) => {
                assert!(matches!(error, Error::OutOfMemory { .. }), "allocation {refused}: {error}");
                n_errors += 1;
            }
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map_or("", String::as_str);
                assert!(text.starts_with(REFUSED), "allocation {refused}: {text}");
                keep_reserve();
                n_unwound += 1;
            }
        }
        if !is_refused {
            break;
        }
    }
    assert_eq!(record(&mut graph).unwrap(), whole);
    println!("{n_unwound} allocations unwound, {n_errors} were errors");
    assert!(n_unwound > 30 && n_errors > 10, "{n_unwound} {n_errors}");
}
