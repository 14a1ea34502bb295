//! Many threads, the same graph: 64 of them, with branches, and one digest over 1, 2, 8 and 64.

use std::hash::{DefaultHasher, Hash, Hasher};

use burtorch_core::{Branch, Graph, Joined, NodeId, Op, Range};

const N_BRANCHES: usize = 64;

/// A chain whose length and operands depend on the branch. Every fourth branch reads nothing of its graph, so that all
/// its nodes move by the same distance when it is joined.
fn build(branch: &mut Branch<'_, '_, f64>, shared: Range) -> NodeId {
    let number = branch.number();
    let shared = match number % 4 {
        0 => branch.vector(&[0.25, -0.5, 0.75]).unwrap(),
        _ => branch.read_range(shared).unwrap(),
    };
    let mut y = branch.leaf(0.01 * number as f64).unwrap();
    for k in 0..150 + 7 * (number % 5) {
        let x = shared.get((k * 31 + number) % shared.len()).unwrap();
        y = branch.binary_op([Op::Add, Op::Mul, Op::Sub][k % 3], y, x).unwrap();
        y = branch.unary_op([Op::Tanh, Op::Sin][k % 2], y).unwrap();
        if k % 10 == 0 {
            y = branch.reduce(Op::ReduceSum, (&[y, x, y][..]).into(), &[]).unwrap();
            y = branch
                .softmax(Op::Softmax, shared.into(), &[])
                .unwrap()
                .get(k % 3)
                .map(|s| branch.binary_op(Op::Mul, y, s).unwrap())
                .unwrap();
        }
    }
    y
}

fn roots(joined: &Joined, own: &[NodeId]) -> Vec<NodeId> {
    own.iter().enumerate().map(|(k, &node)| joined.node(k, node).unwrap()).collect()
}

/// A digest of all values and gradients of a graph built and joined with this many threads.
fn digest(graph: &mut Graph<'static, f64>, n_threads: usize) -> u64 {
    graph.clear().unwrap();
    let shared = graph.vector(&(0..20).map(|k| 0.1 * f64::from(k) - 1.0).collect::<Vec<_>>()).unwrap();
    let mut branches = graph.branches(N_BRANCHES).unwrap();
    let mut own = vec![NodeId::from_index(0); N_BRANCHES];
    let mut work: Vec<_> = branches.iter_mut().zip(own.iter_mut()).collect();
    std::thread::scope(|scope| {
        for part in work.chunks_mut(N_BRANCHES.div_ceil(n_threads)) {
            scope.spawn(move || part.iter_mut().for_each(|(branch, root)| **root = build(branch, shared)));
        }
    });
    drop(work);
    let joined = branches.join_on(n_threads).unwrap();
    assert!(graph.len() > 20_000, "enough for several threads");
    let roots = roots(&joined, &own);
    let sum = graph.reduce(Op::ReduceSum, roots.as_slice().into(), &[]).unwrap();
    graph.backward(sum).unwrap();
    let mut hasher = DefaultHasher::new();
    for k in 0..graph.len() as u32 {
        let node = NodeId::from_index(k);
        (graph.value(node).unwrap().to_bits(), graph.grad(node).unwrap().to_bits()).hash(&mut hasher);
    }
    hasher.finish()
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let wanted = digest(&mut Graph::new(), 1);
    // Branches reuse the memory of earlier ones.
    let mut graph = Graph::new();
    for run in 0..40 {
        let n_threads = [1, 2, 8, 64][run % 4];
        assert_eq!(digest(&mut graph, n_threads), wanted, "run {run} with {n_threads} threads");
    }
}

#[test]
fn independent_graphs_in_64_threads_do_not_meet() {
    let build = || {
        let mut graph = Graph::<f64>::new();
        let x = graph.leaf(0.5).unwrap();
        let mut y = x;
        for _ in 0..2_000 {
            y = graph.binary_op(Op::Add, y, x).unwrap();
            y = graph.unary_op(Op::Sin, y).unwrap();
        }
        graph.backward(y).unwrap();
        (graph.id(), graph.value(y).unwrap().to_bits(), graph.grad(x).unwrap().to_bits())
    };
    let mut found: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..64).map(|_| scope.spawn(build)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(found.iter().all(|f| (f.1, f.2) == (found[0].1, found[0].2)));
    found.sort_unstable();
    found.dedup();
    assert_eq!(found.len(), 64, "identities are given out once");
}
