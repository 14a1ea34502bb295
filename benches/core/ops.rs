//! Every op on every scalar type: building one node, and one node's share of a sweep.
//!
//! `cargo bench -p burtorch-core --bench ops`, or `-- forward/float64` for some; `-- vector` for exp, log and tanh of vectors
//! beside the C library's, lane by lane. A benchmark appends (or sweeps) 256 nodes of one op over leaves of the op's interval, those
//! of many operands over runs of 16 (inner products: pairs of runs); throughput is nodes, so a time of 256 ns is 1 ns a node. A
//! sweep's share holds the sum over the nodes and the commit of their leaves. Values are checked to be finite before anything is
//! timed.

#![feature(f128, portable_simd)]

use std::hint::black_box;
use std::time::Duration;

use burtorch_core::ops::{Arity, OP_INFO, OpInfo};
use burtorch_core::simd::{Elementary, F32x4, F32x8, F32x16, F64x2, F64x4, F64x8};
use burtorch_core::{Graph, Op, Range, RowMath, Scalar, bf16, f16};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

const N: usize = 256;

/// Leaves in the op's interval, with the same values for every type.
fn leaves<S: Scalar>(graph: &mut Graph<'static, S>, info: &OpInfo) -> (Range, Range) {
    // e^30 overflows float16.
    let most = if size_of::<S>() == 2 { 10.0 } else { f64::INFINITY };
    let (low, high) = (info.domain.0.max(-most), info.domain.1.min(most));
    let at = |k: usize| S::lit(low + (high - low) * (((k * 97 + 13) % 1009) as f64 / 1009.0));
    let xs: Vec<S> = (0..2 * N).map(at).collect();
    let all = graph.vector(&xs).unwrap();
    (all.slice(0, N).unwrap(), all.slice(N, 2 * N).unwrap())
}

/// Operands of an op with many operands.
const MANY: usize = 16;

fn append<S: Scalar>(graph: &mut Graph<'static, S>, info: &OpInfo, (x, y): (Range, Range)) {
    let run = |all: Range, k: usize| all.slice(k % (N - MANY), k % (N - MANY) + MANY).unwrap();
    let pairs = x.nodes().zip(y.nodes());
    let starts = 0..N;
    match info.arity {
        Arity::Unary => pairs.for_each(|(x, _)| drop(black_box(graph.unary_op(info.op, x)))),
        Arity::Reduction => {
            starts.for_each(|k| drop(black_box(graph.reduce(info.op, run(x, k).into(), &[]))));
        }
        Arity::InnerProduct => starts.zip(pairs).for_each(|(k, (_, bias))| {
            let bias = (info.op == Op::InnerProductWithBias).then_some(bias);
            drop(black_box(graph.inner_product(run(x, k).into(), run(y, k).into(), bias, &[])));
        }),
        _ => pairs.for_each(|(x, y)| drop(black_box(graph.binary_op(info.op, x, y)))),
    }
}

/// The measured ops: all that append one node, except primitives.
fn single_nodes() -> impl Iterator<Item = &'static OpInfo> {
    let other = |info: &&OpInfo| !matches!(info.arity, Arity::Nullary | Arity::Block) && info.op != Op::Linearised;
    OP_INFO.iter().filter(other)
}

fn ops_of<S: Scalar>(criterion: &mut Criterion, dtype: &str) {
    for info in single_nodes() {
        let mut graph = Graph::<S>::new();
        let operands = leaves(&mut graph, info);
        let start = graph.mark();
        append(&mut graph, info, operands);
        let first = operands.1.first().index() + N as u32;
        let nodes = Range::new(burtorch_core::NodeId::from_index(first), N as u32);
        assert!(nodes.nodes().all(|node| graph.value(node).unwrap().all_finite()), "{} {dtype}", info.name);
        let root = graph.reduce(Op::ReduceSum, nodes.into(), &[]).unwrap();
        let mut group = criterion.benchmark_group("backward");
        group.throughput(Throughput::Elements(N as u64));
        group.bench_function(BenchmarkId::new(dtype, info.name), |b| {
            b.iter(|| graph.backward(black_box(root)).unwrap())
        });
        group.finish();
        let mut group = criterion.benchmark_group("forward");
        group.throughput(Throughput::Elements(N as u64));
        group.bench_function(BenchmarkId::new(dtype, info.name), |b| {
            b.iter(|| {
                graph.rewind(start).unwrap();
                append(&mut graph, info, operands);
            });
        });
        group.finish();
    }
}

/// exp, log and tanh of 256 vectors, and of the same numbers one by one with the standard library, i.e. the C library.
/// The results are compared first.
macro_rules! beside_libm {
    ($criterion:ident, $V:ty, $E:ty, $dtype:literal, $($name:ident $standard:ident $low:literal $high:literal;)*) => {$({
        let at = |k: usize| $low + ($high - $low) * ((k * 97 + 13) % 4099) as $E / 4099.0;
        let lanes = <$V as Scalar>::LANES;
        let vector = |n: usize| (0..lanes).fold(<$V as RowMath>::lit(0.0), |v, k| Scalar::with_lane(v, k, at(n * lanes + k)));
        let xs: Vec<$V> = (0..N).map(vector).collect();
        for &x in &xs {
            let y = Elementary::$name(x);
            for k in 0..lanes {
                let (found, wanted) = (Scalar::lane(y, k), <$E>::$standard(Scalar::lane(x, k)));
                assert!((found - wanted).abs() <= 1e-6 * wanted.abs().max(1e-3), "{} {found} {wanted}", stringify!($name));
            }
        }
        let mut ys = xs.clone();
        let mut group = $criterion.benchmark_group("vector");
        group.throughput(Throughput::Elements((N * lanes) as u64));
        group.bench_function(BenchmarkId::new($dtype, stringify!($name)), |b| {
            b.iter(|| black_box(&xs).iter().zip(black_box(&mut ys)).for_each(|(&x, y)| *y = Elementary::$name(x)))
        });
        group.bench_function(BenchmarkId::new(concat!($dtype, "-libm"), stringify!($name)), |b| {
            b.iter(|| {
                for (x, y) in black_box(&xs).iter().zip(black_box(&mut ys)) {
                    for k in 0..lanes {
                        y[k] = <$E>::$standard(x[k]);
                    }
                }
            })
        });
        group.finish();
    })*};
}

fn ops(criterion: &mut Criterion) {
    beside_libm!(criterion, F32x16, f32, "float32x16", exp exp -30.0 30.0; log ln 0.001 50.0; tanh tanh -20.0 20.0;);
    beside_libm!(criterion, F64x8, f64, "float64x8", exp exp -30.0 30.0; log ln 0.001 50.0; tanh tanh -20.0 20.0;);
    ops_of::<f64>(criterion, "float64");
    ops_of::<f32>(criterion, "float32");
    ops_of::<F64x8>(criterion, "float64x8");
    ops_of::<F32x16>(criterion, "float32x16");
    ops_of::<F64x4>(criterion, "float64x4");
    ops_of::<F32x8>(criterion, "float32x8");
    ops_of::<F64x2>(criterion, "float64x2");
    ops_of::<F32x4>(criterion, "float32x4");
    ops_of::<f16>(criterion, "float16");
    ops_of::<bf16>(criterion, "bfloat16");
    ops_of::<f128>(criterion, "float128");
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(15))
        .measurement_time(Duration::from_millis(60))
        .without_plots();
    targets = ops
}
criterion_main!(benches);
