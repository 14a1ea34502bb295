//! Building one graph by several threads: nodes per second by number of threads, with branches, and beside them with
//! places handed out by one shared counter, which is what the paper suggests and is kept here for comparison only.
//!
//! Answers are checked before anything is timed. Joining is part of the time.

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use burtorch_core::nn::{CharMlp, CharMlpShape, Gpt, GptShape, Input, Label, Model};
use burtorch_core::ops::{Add, Mul};
use burtorch_core::{Batch, Graph, LaneModel, NodeId, Oracle, Parameters, SweepOptions};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

/// Nodes per job, for any number of threads.
const N: u32 = 1 << 20;

/// A chain of `len` nodes that starts at a shared node.
fn chain(graph: &mut Graph<'_, f64>, x: NodeId, len: u32) -> NodeId {
    let mut y = x;
    for k in 0..len {
        y = if k % 2 == 0 { graph.binary::<Mul>(y, x) } else { graph.binary::<Add>(y, x) }.expect("room");
    }
    y
}

/// Builds the graph in branches, one per thread.
fn by_branches(graph: &mut Graph<'static, f64>, n_threads: u32) -> Vec<NodeId> {
    graph.clear().expect("a growing graph");
    let x = graph.leaf(0.5).expect("room");
    let mut branches = graph.branches(n_threads as usize).expect("memory");
    let own: Vec<NodeId> = std::thread::scope(|scope| {
        let threads: Vec<_> = branches
            .iter_mut()
            .map(|mut branch| {
                scope.spawn(move || {
                    let x = branch.read(x).expect("a node of the parent");
                    chain(&mut branch, x, N / n_threads)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let joined = branches.join_on(n_threads as usize).expect("room");
    own.iter().enumerate().map(|(k, &node)| joined.node(k, node).expect("it was built")).collect()
}

/// Columns of fixed size with an atomic counter for the next index: every node of every thread accesses its cache line.
struct Counted {
    next: AtomicU32,
    operands: Vec<AtomicU64>,
    values: Vec<AtomicU64>,
}

impl Counted {
    fn new() -> Self {
        let column = || (0..=N).map(|_| AtomicU64::new(0)).collect();
        Counted { next: AtomicU32::new(0), operands: column(), values: column() }
    }

    fn push(&self, a: u32, b: u32, value: f64) -> u32 {
        let at = self.next.fetch_add(1, Ordering::Relaxed);
        self.operands[at as usize].store(u64::from(a) << 32 | u64::from(b), Ordering::Relaxed);
        self.values[at as usize].store(value.to_bits(), Ordering::Release);
        at
    }

    fn value(&self, at: u32) -> f64 {
        f64::from_bits(self.values[at as usize].load(Ordering::Acquire))
    }

    fn chain(&self, x: u32, len: u32) -> u32 {
        let mut y = x;
        for k in 0..len {
            let (a, b) = (self.value(y), self.value(x));
            y = self.push(y, x, if k % 2 == 0 { a * b } else { a + b });
        }
        y
    }

    fn build(&self, n_threads: u32) -> Vec<f64> {
        self.next.store(0, Ordering::Relaxed);
        let x = self.push(0, 0, 0.5);
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..n_threads).map(|_| scope.spawn(move || self.value(self.chain(x, N / n_threads)))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        })
    }
}

fn concurrent(c: &mut Criterion) {
    let mut graph = Graph::<f64>::with_capacity(N + 1).expect("memory");
    let counted = Counted::new();
    for n_threads in [1, 2, 4] {
        let mut plain = Graph::<f64>::new();
        let x = plain.leaf(0.5).expect("room");
        let root = chain(&mut plain, x, N / n_threads);
        let wanted = plain.value(root).expect("it was built");
        let roots = by_branches(&mut graph, n_threads);
        assert!(roots.iter().all(|&root| graph.value(root) == Ok(wanted)));
        assert!(counted.build(n_threads).iter().all(|&value| value == wanted));
        assert_eq!(graph.len(), N as usize + 1);
    }
    let mut group = c.benchmark_group("building 2^20 nodes");
    group.throughput(Throughput::Elements(u64::from(N))).sample_size(20);
    // Both grow, and so have the same memory layout.
    group.bench_function("a plain graph", |bench| {
        let mut graph = Graph::<f64>::new();
        bench.iter(|| {
            graph.clear().expect("a growing graph");
            let x = graph.leaf(black_box(0.5)).expect("room");
            chain(&mut graph, x, N)
        })
    });
    group.bench_function("one branch, without joining", |bench| {
        let mut parent = Graph::<f64>::new();
        let x = parent.leaf(black_box(0.5)).expect("room");
        let mut branches = parent.branches(1).expect("memory");
        let mut branch = branches.iter_mut().next().expect("one");
        bench.iter(|| {
            branch.clear().expect("a growing graph");
            let x = branch.read(x).expect("a node of the parent");
            chain(&mut branch, x, N)
        })
    });
    for n_threads in [1, 2, 4] {
        group.bench_with_input(BenchmarkId::new("branches, joined", n_threads), &n_threads, |bench, &n| {
            bench.iter(|| by_branches(&mut graph, n))
        });
        group.bench_with_input(BenchmarkId::new("a shared counter", n_threads), &n_threads, |bench, &n| {
            bench.iter(|| counted.build(n))
        });
    }
}

/// The time of an empty job from call to return: the price of a second thread for a step of some tens of microseconds.
fn waking(c: &mut Criterion) {
    let mut group = c.benchmark_group("an empty job");
    for n_threads in [1, 2, 4] {
        group.bench_with_input(BenchmarkId::from_parameter(n_threads), &n_threads, |bench, &n| {
            bench.iter(|| burtorch_core::sync::run(n, n, &|k| _ = black_box(k)))
        });
    }
    group.bench_function("2, after a rest of 1 ms", |bench| {
        bench.iter_custom(|n| {
            let mut total = std::time::Duration::ZERO;
            for _ in 0..n {
                std::thread::sleep(std::time::Duration::from_millis(1));
                let start = std::time::Instant::now();
                burtorch_core::sync::run(2, 2, &|k| _ = black_box(k));
                total += start.elapsed();
            }
            total
        })
    });
}

/// `n` random numbers below `below`.
fn draw(n: usize, below: u32, seed: u32) -> Vec<u32> {
    let next = |state: &mut u32| {
        *state = state.wrapping_mul(1664525).wrapping_add(1013904223);
        (*state >> 16) % below
    };
    let mut state = seed;
    (0..n).map(|_| next(&mut state)).collect()
}

/// The losses of 64 samples of the paper's GPT in one graph, each built in its own branch.
fn gpt_losses(graph: &mut Graph<'static, f32>, model: &Gpt, params: &Parameters<'_, f32>, n_threads: usize) -> u64 {
    let (x, y) = (draw(8 * 64, 65, 1), draw(8 * 64, 65, 2));
    graph.clear().expect("a growing graph");
    let mut branches = graph.branches(64).expect("memory");
    let branches_and_losses: Vec<_> =
        branches.iter_mut().map(|b| std::sync::Mutex::new((b, NodeId::from_index(0)))).collect();
    burtorch_core::sync::run(n_threads, 64, &|k| {
        let (branch, loss) = &mut *branches_and_losses[k].lock().expect("no panic");
        let (x, y) = (Input::Tokens(&x[8 * k..8 * k + 8]), Label::Classes(&y[8 * k..8 * k + 8]));
        *loss = model.loss(branch, params, x, y).expect("a sample of this model");
    });
    let own: Vec<NodeId> = branches_and_losses.into_iter().map(|b| b.into_inner().expect("no panic").1).collect();
    let joined = branches.join_on(n_threads).expect("room");
    let value =
        |(k, &node): (usize, &NodeId)| graph.value(joined.node(k, node).expect("it was built")).expect("a node");
    own.iter().enumerate().map(value).fold(0, |hash, x| (hash ^ u64::from(x.to_bits())).wrapping_mul(0x100000001b3))
}

/// The gradient of one batch of 64 by number of threads; the bits are checked first.
fn oracle<M: LaneModel<f32>>(
    c: &mut Criterion,
    name: &str,
    model: &M,
    params: &mut Parameters<'static, f32>,
    batch: Batch<'_, f32>,
) {
    let mut group = c.benchmark_group(name);
    group.sample_size(20);
    let mut wanted = None;
    for n_threads in [1, 2] {
        let mut oracle = Oracle::new();
        oracle.set_threads(n_threads).expect("at least one");
        oracle.gradient(model, params, batch, None).expect("a batch of this model");
        let bits: Vec<u32> = params.grads().iter().map(|g| g.to_bits()).collect();
        assert!(*wanted.get_or_insert_with(|| bits.clone()) == bits);
        group.bench_function(BenchmarkId::from_parameter(n_threads), |bench| {
            bench.iter(|| oracle.gradient(model, params, batch, None).expect("a batch of this model"))
        });
    }
}

fn models(c: &mut Criterion) {
    let mut params = Parameters::<f32>::new(0);
    let model = Gpt::new(&mut params, GptShape::default(), None).expect("memory");
    let mut graph = Graph::<f32>::new();
    let wanted = gpt_losses(&mut graph, &model, &params, 1);
    for n_threads in [1, 2, 8, 64] {
        assert_eq!(gpt_losses(&mut graph, &model, &params, n_threads), wanted);
    }
    let mut group = c.benchmark_group("64 losses of the GPT, one branch each, joined");
    group.sample_size(20);
    for n_threads in [1, 2] {
        group.bench_function(BenchmarkId::from_parameter(n_threads), |bench| {
            bench.iter(|| gpt_losses(&mut graph, &model, &params, n_threads))
        });
    }
    group.finish();
    let (x, y) = (draw(8 * 64, 65, 1), draw(8 * 64, 65, 2));
    let batch = Batch::new(Input::Tokens(&x), Label::Classes(&y), 64).expect("64 samples");
    oracle(c, "oracle of the GPT, b = 64", &model, &mut params, batch);
    let mut params = Parameters::<f32>::new(0);
    let shape = CharMlpShape { vocab: 27, context: 16, embedding: 64, hidden: 512 };
    let model = CharMlp::new(&mut params, shape, None).expect("memory");
    let (x, y) = (draw(16 * 256, 27, 1), draw(256, 27, 2));
    let batch = Batch::new(Input::Tokens(&x), Label::Classes(&y), 256).expect("256 samples");
    oracle(c, "oracle of the MLP, e = 512, b = 256", &model, &mut params, batch);
}

/// The cost of periodic checks for an early end in long work: each check reads the clock, like those of the binding.
fn asking(c: &mut Criterion) {
    let ends = Instant::now() + Duration::from_secs(1 << 20);
    let mut graph = Graph::<f64>::new();
    let x = graph.leaf(0.5).expect("room");
    let y = chain(&mut graph, x, N);
    let mut params = Parameters::<f32>::new(0);
    let model = Gpt::new(&mut params, GptShape::default(), None).expect("memory");
    let (tokens, targets) = (draw(8 * 64, 65, 1), draw(8 * 64, 65, 2));
    let batch = Batch::new(Input::Tokens(&tokens), Label::Classes(&targets), 64).expect("64 samples");
    let mut oracle = Oracle::new();
    for asks in [false, true] {
        let mut n_questions = 0;
        let mut question = || {
            n_questions += 1;
            Instant::now() >= ends
        };
        let mut group = c.benchmark_group(if asks { "asking whether to end" } else { "asking nobody" });
        group.bench_function("backward over 2^20 nodes", |bench| {
            bench.iter(|| {
                let asked: Option<&mut dyn FnMut() -> bool> = if asks { Some(&mut question) } else { None };
                graph.backward_polled(y, 1.0, &mut [], SweepOptions::default(), asked).expect("nobody ends it");
            })
        });
        group.bench_function("oracle of the GPT, b = 64", |bench| {
            bench.iter(|| {
                let asked: Option<&mut dyn FnMut() -> bool> = if asks { Some(&mut question) } else { None };
                oracle.gradient(&model, &mut params, batch, asked).expect("nobody ends it")
            })
        });
        assert!(!asks || n_questions > 0);
    }
}

criterion_group!(benches, models, waking, concurrent, asking);
criterion_main!(benches);
