//! Long and wide graphs: linear time, no recursion, work that follows the root and not the tape.

use std::time::Instant;

use burtorch_core::{Graph, NodeId, Op, Operands, Range, SweepOptions};

const MILLION: u32 = 1_000_000;

/// Runs `f` on a thread whose stack would overflow at once by a recursion over nodes.
fn on_a_small_stack<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(64 << 10).spawn_scoped(scope, f);
        thread.expect("a thread").join().expect("the chain fits")
    })
}

fn all_leaves_have(graph: &Graph<'_, f64>, leaves: Range, grad: f64) -> bool {
    (0..leaves.len()).all(|k| graph.grad(leaves.get(k).unwrap()) == Ok(grad))
}

/// Mistake of earlier engines: a sweep that is quadratic in the length of a chain, or recursive.
#[test]
fn a_chain_of_ten_million_on_a_stack_of_64_kib() {
    let [build, sweep, again, drop] = on_a_small_stack(|| {
        let start = Instant::now();
        let mut graph = Graph::<f64>::new();
        let x = graph.leaf(1.0).unwrap();
        let mut y = x;
        for _ in 0..10_000_000 {
            y = graph.unary_op(Op::Neg, y).unwrap();
        }
        let build = start.elapsed();
        graph.backward(y).unwrap();
        let sweep = start.elapsed() - build;
        assert_eq!((graph.value(y), graph.grad(x)), (Ok(1.0), Ok(1.0)));
        let second = Instant::now();
        graph.backward(y).unwrap();
        let again = second.elapsed();
        assert_eq!(graph.grad(x), Ok(2.0));
        graph.recompute(y, &[]).unwrap();
        let third = Instant::now();
        std::mem::drop(graph);
        [build, sweep, again, third.elapsed()]
    });
    println!("chain of 1e7: build {build:?}, sweep {sweep:?}, second sweep {again:?}, drop {drop:?}");
}

#[test]
fn time_per_node_is_printed_from_1e4_to_1e7() {
    for exponent in 4..=7 {
        let n = 10u32.pow(exponent);
        let mut graph = Graph::<f64>::with_capacity(n + 2).unwrap();
        let one = graph.leaf(1.0).unwrap();
        let repeats = 10_000_000 / n;
        let mark = graph.mark();
        let start = Instant::now();
        for _ in 0..repeats {
            graph.rewind(mark).unwrap();
            let last = (0..n).fold(one, |y, _| graph.binary_op(Op::Mul, y, one).unwrap());
            graph.backward(last).unwrap();
        }
        let per_node = start.elapsed().as_secs_f64() * 1e9 / f64::from(n * repeats);
        println!("chain of 1e{exponent}: {per_node:.2} ns a node, built and swept");
        assert_eq!(graph.grad(one), Ok(f64::from(n + 1) * f64::from(repeats)));
    }
}

#[test]
fn a_comb_of_a_million() {
    on_a_small_stack(|| {
        let mut graph = Graph::<f64>::new();
        let teeth = graph.vector(&vec![1.0; MILLION as usize]).unwrap();
        let mut spine = teeth.first();
        for k in 1..teeth.len() {
            spine = graph.binary_op(Op::Add, spine, teeth.get(k).unwrap()).unwrap();
        }
        graph.backward(spine).unwrap();
        assert_eq!(graph.value(spine), Ok(1e6));
        assert!(all_leaves_have(&graph, teeth, 1.0));
    });
}

#[test]
fn a_tree_of_a_million_leaves() {
    on_a_small_stack(|| {
        let mut graph = Graph::<f64>::new();
        let leaves = graph.vector(&vec![1.0; 1 << 20]).unwrap();
        let mut level = leaves;
        while level.len() > 1 {
            let start = graph.len() as u32;
            for k in (0..level.len()).step_by(2) {
                graph.binary_op(Op::Add, level.get(k).unwrap(), level.get(k + 1).unwrap()).unwrap();
            }
            level = Range::new(NodeId::from_index(start), level.len() as u32 / 2);
        }
        graph.backward(level.first()).unwrap();
        assert_eq!(graph.value(level.first()), Ok(f64::from(1 << 20)));
        assert!(all_leaves_have(&graph, leaves, 1.0));
    });
}

#[test]
fn a_fan_out_of_a_million() {
    on_a_small_stack(|| {
        let mut graph = Graph::<f64>::new();
        let x = graph.leaf(3.0).unwrap();
        let first = graph.unary_op(Op::Neg, x).unwrap();
        for _ in 1..MILLION {
            graph.unary_op(Op::Neg, x).unwrap();
        }
        let sum = graph.reduce(Op::ReduceSum, Range::new(first, MILLION).into(), &[]).unwrap();
        graph.backward(sum).unwrap();
        assert_eq!((graph.value(sum), graph.grad(x)), (Ok(-3e6), Ok(-1e6)));
        // The same million nodes as a list in reverse order.
        let list: Vec<NodeId> = (0..MILLION).rev().map(|k| NodeId::from_index(first.index() + k)).collect();
        let product = graph.reduce(Op::ReduceMeanSquares, Operands::List(&list), &[]).unwrap();
        graph.zero_grad();
        graph.backward(product).unwrap();
        assert!((graph.grad(x).unwrap() - 6.0).abs() < 1e-9);
    });
}

/// The backward pass checks for a stop once every 8192 nodes it visits: one check per root shows that the million nodes
/// below were not visited. Their adjoints are written by hand first, and must be reset once only.
#[test]
fn ten_thousand_small_roots_on_a_tape_of_a_million() {
    let mut graph = Graph::<f64>::new();
    let x = graph.leaf(0.5).unwrap();
    let mut y = x;
    while graph.len() < MILLION as usize {
        y = graph.unary_op(Op::Tanh, y).unwrap();
    }
    graph.backward(y).unwrap();
    let (mut asked, mut deepest) = (0, 0);
    let start = Instant::now();
    for k in 0..10_000 {
        let leaf = graph.leaf(f64::from(k)).unwrap();
        let square = graph.unary_op(Op::Sqr, leaf).unwrap();
        let root = graph.binary_op(Op::Mul, square, leaf).unwrap();
        let mut count = || {
            asked += 1;
            false
        };
        graph.backward_polled(root, 1.0, &mut [], SweepOptions::default(), Some(&mut count)).unwrap();
        deepest = deepest.max(graph.scratch_len(root).unwrap());
        assert_eq!(graph.grad(leaf), Ok(3.0 * f64::from(k * k)));
    }
    println!("10^4 roots of 3 nodes on 10^6 nodes: {:?}", start.elapsed());
    assert_eq!((asked, deepest), (10_000, 3));
    assert!(graph.adjoints()[..graph.len() - 3].iter().all(|a| a.to_bits() == (-0.0f64).to_bits()));
}

/// Unreached nodes between the root and its operands are skipped eight at a time and not changed.
#[test]
fn a_root_with_distant_operands_leaves_nodes_between_unchanged() {
    let mut graph = Graph::<f64>::new();
    let x = graph.leaf(2.0).unwrap();
    for between in [0usize, 1, 7, 8, 9, 15, 16, 17, 1000] {
        let far = graph.unary_op(Op::Log, x).unwrap();
        for _ in 0..between {
            graph.unary_op(Op::Exp, x).unwrap();
        }
        let root = graph.unary_op(Op::Sqr, far).unwrap();
        graph.zero_grad();
        graph.backward(root).unwrap();
        let wanted = 2.0 * 2.0f64.ln() * 0.5;
        assert!((graph.grad(x).unwrap() - wanted).abs() < 1e-15, "{between} nodes between");
        let reached = graph.adjoints().iter().filter(|a| a.to_bits() != (-0.0f64).to_bits()).count();
        assert_eq!(reached, 3);
    }
}
