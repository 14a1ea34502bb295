//! Building and differentiating the paper's tiny graph and micrograd's small one, again and again, in FP64.
//!
//! Answers are checked before anything is timed.

#[path = "graphs.rs"]
mod graphs;

use std::hint::black_box;

use burtorch_core::ops::{Add, Mul};
use burtorch_core::{Eager, Graph, Value};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use graphs::{small, tiny};

type Expression = for<'t, 'g> fn(&'t Eager<'g, f64>, f64, f64) -> [Value<'t, f64>; 3];

fn check(name: &str, expression: Expression, at: (f64, f64), expected: [f64; 3]) {
    let mut graph = Graph::new();
    let t = graph.eager();
    let [g, a, b] = expression(&t, at.0, at.1);
    g.backward();
    for (found, wanted) in [g.data(), a.grad(), b.grad()].into_iter().zip(expected) {
        assert!((found - wanted).abs() <= 1e-12 * wanted.abs(), "{name}: {found} instead of {wanted}");
    }
}

macro_rules! time {
    ($c:expr, $name:literal, $expression:ident, $a:expr, $b:expr) => {
        let mut graph = Graph::<f64>::with_capacity(1024).expect("memory for 1024 nodes");
        let t = graph.eager();
        let start = t.mark();
        $c.bench_function($name, |bench| {
            bench.iter(|| {
                let [g, a, b] = $expression(&t, black_box($a), black_box($b));
                g.backward();
                let found = (g.data(), a.grad(), b.grad());
                t.rewind(start).expect("a mark of this graph");
                found
            })
        });
    };
}

fn eager(c: &mut Criterion) {
    check("tiny", tiny, (-41.0, 2.0), [612.5, -35.0, 1050.0]);
    check("small", small, (-4.0, 2.0), [24.70408163265306, 138.83381924198252, 645.5772594752186]);
    time!(c, "tiny: build and backward", tiny, -41.0, 2.0);
    time!(c, "small: build and backward", small, -4.0, 2.0);
}

/// A backward pass from each of 10^4 small roots on one live tape of 10^6 nodes: the cost must be that of the roots.
fn small_roots_on_a_long_tape(c: &mut Criterion) {
    let mut graph = Graph::<f64>::with_capacity(1_000_000).expect("memory for 10^6 nodes");
    let x = graph.leaf(1.0).expect("room");
    let mut roots = Vec::new();
    while graph.len() < 1_000_000 {
        let y = graph.leaf(2.0).expect("room");
        let mut z = y;
        for _ in 0..99 {
            z = graph.binary::<Mul>(z, y).expect("room");
        }
        roots.push(z);
    }
    let z = graph.binary::<Mul>(x, x).expect("room");
    graph.backward(z).expect("a node of this graph");
    assert_eq!(graph.grad(x), Ok(2.0));
    assert_eq!(roots.len(), 10_000);
    c.bench_function("10^4 roots of 100 nodes on a tape of 10^6: one backward each", |bench| {
        bench.iter(|| {
            for &root in &roots {
                graph.backward(root).expect("a node of this graph");
            }
        })
    });
}

/// Building and backward passes of chains, on a graph that keeps its memory between passes.
fn chains(c: &mut Criterion) {
    let mut group = c.benchmark_group("chain: build and backward");
    group.sample_size(10);
    for n in [10_000u32, 100_000, 1_000_000, 10_000_000] {
        let mut graph = Graph::<f64>::with_capacity(n + 1).expect("memory for the chain");
        group.throughput(Throughput::Elements(u64::from(n)));
        group.bench_function(BenchmarkId::from_parameter(n), |bench| {
            bench.iter(|| {
                graph.clear().expect("a growing graph");
                let x = graph.leaf(0.5).expect("room");
                let mut y = x;
                for _ in 0..n {
                    y = graph.binary::<Add>(y, x).expect("room");
                }
                graph.backward(y).expect("a node of this graph");
                assert_eq!(graph.grad(x), Ok(f64::from(n) + 1.0));
            })
        });
    }
}

criterion_group!(benches, eager, small_roots_on_a_long_tape, chains);
criterion_main!(benches);
