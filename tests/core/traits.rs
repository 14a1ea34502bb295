//! Which public types may cross threads: graphs, parameters and plain names may; handles with operators may not.

use burtorch_core::graph::{Branch, Branches, Imports, Joined, Memory, NonFinite, OperandRun, Renumbering, Spliced};
use burtorch_core::simd::{F32x8, F64x4};
use burtorch_core::sync::{Flag, Pool, Raised};
use burtorch_core::{
    Adjoints, Capacity, DType, Eager, Error, Gradients, Graph, Init, Mark, NodeId, Op, Operands, Parameters, Range,
    Shape, Slice, SweepOptions, Target, Tensor, Value, View,
};

macro_rules! are_send_and_sync {
    ($($t:ty),* $(,)?) => { const _: () = { const fn both<T: Send + Sync>() {} $( both::<$t>(); )* }; };
}

/// Fails to compile if the type implements the trait: the call would then fit two implementations.
macro_rules! are_not {
    ($trait:ident: $($t:ty),* $(,)?) => { $( const _: fn() = || {
        trait Ambiguous<A> { fn call() {} }
        impl<T: ?Sized> Ambiguous<()> for T {}
        struct Implements;
        impl<T: ?Sized + $trait> Ambiguous<Implements> for T {}
        let _ = <$t as Ambiguous<_>>::call;
    }; )* };
}

are_send_and_sync!(
    Graph<'static, f32>,
    Graph<'static, f64>,
    Graph<'static, F32x8>,
    Graph<'static, F64x4>,
    Parameters<'static, f32>,
    Parameters<'static, f64>,
    Gradients<'static, f64>,
    Adjoints<'static, f64>,
    SweepOptions,
    Error,
    Capacity,
    DType,
    Init,
    Mark,
    NodeId,
    Op,
    Operands<'static>,
    Range,
    Shape,
    Slice,
    Target<'static>,
    Tensor,
    View,
    Memory,
    NonFinite<f64>,
    OperandRun,
    Renumbering<'static>,
    Branch<'static, 'static, f64>,
    Branches<'static, 'static, f64>,
    Imports,
    Joined,
    Spliced,
    Flag,
    Pool,
    Raised<'static>,
);

are_not!(Send: Eager<'static, f64>, Value<'static, f64>, Eager<'static, F32x8>);
are_not!(Sync: Eager<'static, f64>, Value<'static, f64>, Eager<'static, F32x8>);
are_not!(Clone: Graph<'static, f64>, Parameters<'static, f64>, Gradients<'static, f64>);

#[test]
fn handles_are_small_and_copyable() {
    const fn copy<T: Copy>() {}
    copy::<Value<'static, f64>>();
    copy::<Mark>();
    assert_eq!((size_of::<NodeId>(), size_of::<Op>(), size_of::<Option<Op>>()), (4, 1, 1));
    assert!(size_of::<Value<'static, f64>>() <= 24);
}

#[test]
fn a_graph_can_be_built_on_one_thread_and_swept_on_another() {
    let mut graph = Graph::<f64>::new();
    let x = graph.leaf(3.0).unwrap();
    let y = graph.unary_op(Op::Sqr, x).unwrap();
    let graph = std::thread::spawn(move || {
        graph.backward(y).unwrap();
        graph
    });
    assert_eq!(graph.join().unwrap().grad(x), Ok(6.0));
}
