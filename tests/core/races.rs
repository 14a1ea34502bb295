//! Everything that threads of the core share, once more: for ThreadSanitizer, which `make safety` runs this under.
//!
//! Threads here are those of the pool, or started by `beside`, which hands results over by an atomic of its own: what the
//! standard library orders where it was not compiled with the sanitizer would be reported as a race. So whatever is
//! reported is one, and the program then ends with an error.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicUsize, Ordering};

use burtorch_core::nn::{CharMlp, CharMlpShape, Gpt, GptShape, Input, Label};
use burtorch_core::program::Recording;
use burtorch_core::program::batch::{Batch as RowBatch, Rows, Sink, Source};
use burtorch_core::sync::{EarlyResults, OrderedReduction, run};
use burtorch_core::{Batch, Branch, Graph, LaneModel, NodeId, Op, Oracle, Parameters, Range, Total};

/// Runs `work` with each number below `n` on its own thread, and returns when all are done. Shared data are leaked: the
/// sanitizer does not see the fence that frees an `Arc`, including the one of a thread's handle.
fn beside(n: usize, work: fn(usize)) {
    let done: &'static AtomicUsize = Box::leak(Box::default());
    for k in 0..n {
        let handle = std::thread::spawn(move || {
            work(k);
            done.fetch_add(1, Ordering::Release);
        });
        std::mem::forget(handle);
    }
    while done.load(Ordering::Acquire) < n {
        std::thread::yield_now();
    }
}

/// Places, one per task: the sanitizer reports if two tasks access the same one.
struct Places<T>(Vec<UnsafeCell<T>>);

// SAFETY: every task accesses the place with its own number, and the caller reads them after all tasks.
#[allow(unsafe_code)]
unsafe impl<T: Send> Sync for Places<T> {}

impl<T> Places<T> {
    fn new(all: impl Iterator<Item = T>) -> Self {
        Places(all.map(UnsafeCell::new).collect())
    }

    fn with(&self, k: usize, f: impl FnOnce(&mut T)) {
        // SAFETY: as above.
        #[allow(unsafe_code)]
        f(unsafe { &mut *self.0[k].get() });
    }
}

fn jobs_of_the_pool() {
    for round in 0..300 {
        let places = Places::new(0..7);
        run(1 + round % 4, 7, &|k| places.with(k, |n| *n += round));
        (0..7).for_each(|k| places.with(k, |n| assert_eq!(*n, k + round)));
    }
    beside(8, |caller| {
        for _ in 0..50 {
            let places = Places::new(0..5);
            run(3, 5, &|k| places.with(k, |n| *n += caller));
            (0..5).for_each(|k| places.with(k, |n| assert_eq!(*n, k + caller)));
        }
    });
}

fn turns() {
    for _ in 0..100 {
        for n_spares in [0, 2] {
            let room = EarlyResults { spares: vec![0; n_spares], early: Vec::with_capacity(n_spares) };
            let turns = OrderedReduction::new(Vec::new(), 0, true, room, |order, k, &mut result| {
                order.push((k, result));
                true
            });
            run(4, 8, &|k| turns.claim(k).hand_over(&mut (10 * k)));
            let (order, room) = turns.into_parts();
            assert_eq!(order.unwrap(), (0..8).map(|k| (k, 10 * k)).collect::<Vec<_>>());
            assert_eq!((room.spares.len(), room.early.len()), (n_spares, 0));
        }
    }
}

const N_BRANCHES: usize = 16;

/// Enough nodes for joining with several threads; some branches read the frozen graph, some do not.
fn grow(branch: &mut Branch<'_, '_, f64>, shared: Range) -> NodeId {
    let x = if branch.number() % 2 == 0 {
        branch.read_range(shared).unwrap()
    } else {
        branch.vector(&[0.5, 0.25, 0.125]).unwrap()
    };
    let mut y = x.first();
    for k in 0..600 {
        y = branch.binary_op(Op::Mul, y, x.get(k % 3).unwrap()).unwrap();
        y = branch.unary_op(Op::Cos, y).unwrap();
    }
    let mapped = branch.map(Op::Tanh, Range::new(x.first(), 3)).unwrap();
    branch.reduce(Op::ReduceSum, (&[y, mapped.first()][..]).into(), &[]).unwrap()
}

fn branches() {
    let mut graph = Graph::<f64>::new();
    let mut sums = Vec::new();
    for n_threads in [1, 2, 4] {
        graph.clear().unwrap();
        let shared = graph.vector(&[0.75, 0.5, 0.25]).unwrap();
        let mut branches = graph.branches(N_BRANCHES).unwrap();
        let roots = {
            let places = Places::new(branches.iter_mut().map(|branch| (branch, shared.first())));
            run(n_threads, N_BRANCHES, &|k| places.with(k, |(branch, root)| *root = grow(branch, shared)));
            places.0.into_iter().map(|place| place.into_inner().1).collect::<Vec<_>>()
        };
        let joined = branches.join_on(n_threads).unwrap();
        let roots: Vec<_> = roots.iter().enumerate().map(|(k, &root)| joined.node(k, root).unwrap()).collect();
        let sum = graph.reduce(Op::ReduceSum, roots.as_slice().into(), &[]).unwrap();
        graph.backward(sum).unwrap();
        sums.push((graph.value(sum).unwrap().to_bits(), graph.grad(shared.first()).unwrap().to_bits()));
    }
    assert!(sums.iter().all(|sum| *sum == sums[0]), "{sums:?}");
    branches_in_places();
    beside(8, |k| {
        let mut graph = Graph::<f32>::new();
        let x = graph.leaf(k as f32).unwrap();
        let y = graph.unary_op(Op::Sqr, x).unwrap();
        graph.backward(y).unwrap();
        assert_eq!(graph.grad(x), Ok(2.0 * k as f32));
    });
}

/// From the second round on, branches use reserved regions of the graph's memory.
fn branches_in_places() {
    let mut graph = Graph::<f64>::new();
    let mut sums = Vec::new();
    for n_threads in [1, 2, 4, 4, 2] {
        graph.clear().unwrap();
        let mut branches = graph.branches(N_BRANCHES).unwrap();
        let have_places = branches.iter_mut().all(|branch| branch.capacity() > 0);
        assert_eq!(have_places, !sums.is_empty());
        let roots = {
            let places = Places::new(branches.iter_mut().map(|branch| (branch, NodeId::from_index(0))));
            run(n_threads, N_BRANCHES, &|k| {
                places.with(k, |(branch, root)| {
                    let start = [0.5 + k as f64, 0.25, 0.125];
                    let x = branch.vector(&start).unwrap();
                    let mut y = x.first();
                    for k in 0..600 {
                        y = branch.binary_op(Op::Mul, y, x.get(k % 3).unwrap()).unwrap();
                        y = branch.unary_op(Op::Cos, y).unwrap();
                    }
                    *root = branch.reduce(Op::ReduceSum, (&[y, x.first()][..]).into(), &[]).unwrap();
                });
            });
            places.0.into_iter().map(|place| place.into_inner().1).collect::<Vec<_>>()
        };
        let joined = branches.join_on(n_threads).unwrap();
        let roots: Vec<_> = roots.iter().enumerate().map(|(k, &root)| joined.node(k, root).unwrap()).collect();
        let sum = graph.reduce(Op::ReduceSum, roots.as_slice().into(), &[]).unwrap();
        graph.backward(sum).unwrap();
        sums.push((graph.value(sum).unwrap().to_bits(), graph.grad(NodeId::from_index(0)).unwrap().to_bits()));
    }
    assert!(sums.iter().all(|sum| *sum == sums[0]), "{sums:?}");
}

/// `each` token ids and labels per sample.
fn oracle_of<M: LaneModel<f32>>(model: &M, params: &mut Parameters<'static, f32>, each: (usize, usize), n: usize) {
    let symbols = |len: usize| (0..len as u32).map(|k| (k * k + 3 * k) % 27).collect::<Vec<_>>();
    let (x, y) = (symbols(n * each.0), symbols(n * each.1));
    let batch = Batch::new(Input::Tokens(&x), Label::Classes(&y), n).unwrap();
    let mut found = Vec::new();
    for n_threads in [1, 2, 4] {
        let mut oracle = Oracle::with_total(Total::Mean);
        oracle.set_threads(n_threads).unwrap();
        for _ in 0..2 {
            let loss = oracle.gradient(model, params, batch, None).unwrap();
            found.push((loss.to_bits(), params.grads().iter().map(|g| u64::from(g.to_bits())).sum::<u64>()));
        }
    }
    assert!(found.iter().all(|each| *each == found[0]), "{found:?}");
}

fn oracles() {
    let mut params = Parameters::<f32>::new(3);
    let shape = CharMlpShape { vocab: 27, context: 4, embedding: 8, hidden: 16 };
    let model = CharMlp::new(&mut params, shape, None).unwrap();
    oracle_of(&model, &mut params, (4, 1), 300);
    let mut params = Parameters::<f32>::new(3);
    let shape = GptShape { layers: 1, ..GptShape::default() };
    let model = Gpt::new(&mut params, shape, None).unwrap();
    oracle_of(&model, &mut params, (8, 8), 50);
}

/// Rows of one input, with the value and the derivative of each.
struct Table(Places<[f64; 3]>);

impl Source<f64> for Table {
    fn read(&self, _: usize, rows: Rows<'_>, to: &mut [f64]) {
        for (k, to) in to.iter_mut().enumerate().take(rows.len()) {
            self.0.with(rows.get(k), |row| *to = row[0]);
        }
    }
}

impl Sink<f64> for Table {
    fn value(&self, _: usize, rows: Rows<'_>, from: &[f64]) {
        from.iter().enumerate().for_each(|(k, x)| self.0.with(rows.get(k), |row| row[1] = *x));
    }

    fn gradient(&self, _: usize, rows: Rows<'_>, from: &[f64]) {
        from.iter().enumerate().for_each(|(k, x)| self.0.with(rows.get(k), |row| row[2] = *x));
    }
}

fn rows() {
    const N: usize = 20_000;
    let mut graph = Graph::<f64>::new();
    let x = graph.leaf(0.5).unwrap();
    let y = graph.unary_op(Op::Sqr, x).unwrap();
    let recording = Recording { inputs: vec![x], n_differentiated: 1, outputs: vec![y], ..Recording::default() };
    let program = recording.program(&graph).unwrap();
    for n_threads in [1, 2, 4] {
        let table = Table(Places::new((0..N).map(|k| [k as f64, 0.0, 0.0])));
        let mut left = Vec::new();
        let mut batch = RowBatch::<f64, 64>::new(&program, true).unwrap();
        assert!(batch.run_on(n_threads, Rows::Run { first: 0, len: N }, &table, &table, &mut left, &|| false));
        for k in 0..N {
            let x = k as f64;
            table.0.with(k, |row| assert_eq!(*row, [x, x * x, 2.0 * x]));
        }
    }
}

fn main() {
    let parts: [(&str, fn()); 5] = [
        ("jobs of the pool", jobs_of_the_pool),
        ("turns", turns),
        ("branches", branches),
        ("oracles", oracles),
        ("rows", rows),
    ];
    for (name, part) in parts {
        part();
        println!("races: {name} ok");
    }
}
