//! Which public types may cross threads: graphs, parameters and plain names may; handles with operators may not. Every
//! public type stands here.

use burtorch_core::array::{
    Apart, Argument, ArrayBuilder, ArrayInstr, ArrayOp, ArrayProgram, Axes, Checkpoint, Cone, Csr, Cumulate, Data,
    Dims, Dot, Element, Floats, Given, Handle, Index, Length, Loop, OfParameters, OverRows, PassingPlan, Places, Plan,
    Reduce, Row, Rows as ArrayRows, ScanOptions, Solve, SparseDot, SparseKind, Swept, Tape, Type, ValueId, Variable,
};
use burtorch_core::compress::{Client, Compressor, Count, Largest, Message, Quantiser, Sparsifier, Support, Values};
use burtorch_core::data::{Csr as SparseSamples, Dataset, Division, LibsvmOptions, SyntheticOptions, Target};
use burtorch_core::draw::{Draw, Purpose, Subset};
use burtorch_core::graph::{
    Branch, Branches, Imports, Joined, Memory, NonFinite, OperandRun, Renumbering, Spliced, Tokens, Unevaluated,
};
use burtorch_core::interrupt::{Pieces, Work};
use burtorch_core::io::{
    Contents, Durability, Header, Kind, Loaded, Nodes, OptimiserState, Overwrite, Reader, Section, TensorFile, Writer,
};
use burtorch_core::kernels::tokens::{AffinePull, AttentionPull, AttentionShape, LayerNormPull};
use burtorch_core::kernels::{
    CheckedRows, Finish, Matrix, MatrixMut, OneOfTwo, OneWeight, SparseRows, Start, Strip, StripOp, Strips, Triangle,
    Two, WeightParts,
};
use burtorch_core::nn::{self, Activation, CharMlp, CharMlpShape, Gpt, GptShape, Input, Label, Mlp, Neuron, sized};
use burtorch_core::ops::{Arity, Function, OpInfo, Properties, Reduction};
use burtorch_core::opt::{
    Accelerated, Asynchronous, Choices, Clients, Cost, Dasha, Delays, Diana, Ef14, Ef21, Env, FedAvg, FiniteSum,
    LKatyusha, LSvrg, Linear, LocalSteps, Loss, Marina, Network, Page, Prox, Regulariser, Rows, Rule, Runner, Saga,
    Sampler, Samples, Scaffnew, Scaffold, Sgd as SgdMethod, Softmax, Spread, Workspace,
};
use burtorch_core::optim::{self, AdamRates, Course, Schedule, Sgd, Shuffle};
use burtorch_core::oracle::{Finished, OracleMemory, Until};
use burtorch_core::params::{NonFiniteParameter, Selection, WantedSet};
use burtorch_core::program::derive::{Against, Along, HessianAlong, HessianColumns, Jacobian};
use burtorch_core::program::primitive::{Called, Failed};
use burtorch_core::program::sparse::{Hessian, SparseJacobian};
use burtorch_core::program::sparsity::Pattern;
use burtorch_core::program::{Build, Comparison, Guard, Node, Parts, Recording, Replay, Seeds, batch};
use burtorch_core::simd::{F32x8, F32x64, F64x4, Level};
use burtorch_core::sync::{
    EarlyResults, Flag, GuidedChunks, OrderedReduction, Pool, Raised, Shared, Stop, Turn, TurnHint,
};
use burtorch_core::text::{Sampling, TextWindows, Vocabulary, WordContexts};
use burtorch_core::viz::{Link, Options, Picture, PictureBox, Role};
use burtorch_core::{
    Adjoints, Batch, Capacity, CrossEntropyTarget, DType, Dual, Eager, Error, Gradients, Graph, Init, Lanes, Mark,
    NodeId, Op, Operands, Oracle, Overrides, Parameters, Program, Quick, Range, Shape, Slice, SweepOptions, Tensor,
    Total, Value, View, bf16, f16, kernels,
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
    Apart, ArrayBuilder,
    ArrayInstr,
    ArrayOp,
    ArrayProgram,
    Argument<'static, f64>,
    Plan<f64>,
    PassingPlan<f64>,
    Axes,
    Cone,
    Handle,
    Swept,
    OfParameters,
    Floats<'static>,
    Tape,
    Cumulate,
    Data,
    Given,
    Dims,
    Dot,
    Element,
    Index,
    Reduce,
    Row,
    Checkpoint,
    Length,
    Loop,
    OverRows,
    ArrayRows,
    Csr<'static, f64>,
    Places<'static>,
    SparseDot,
    SparseKind,
    ScanOptions,
    Solve,
    SparseRows<f64>,
    CheckedRows<'static, f64, u32>,
    Triangle,
    Type,
    ValueId,
    Variable,
    Finish<f64>,
    Matrix<'static, f64>,
    MatrixMut<'static, f64>,
    Start<'static, f64>,
    Function,
    Choices<'static>,
    Accelerated,
    Asynchronous,
    Clients,
    Dasha,
    Delays,
    Diana,
    Ef14,
    Ef21<f32>,
    FedAvg,
    LocalSteps,
    Marina,
    Network,
    Rule,
    Scaffnew,
    Scaffold<f64>,
    Spread,
    Cost,
    Env<'static>,
    FiniteSum,
    LKatyusha,
    LSvrg,
    Linear,
    Loss,
    Page,
    Prox,
    Regulariser,
    Rows,
    Runner,
    Saga,
    Sampler,
    burtorch_core::opt::Sampling,
    Samples<'static>,
    SgdMethod,
    Softmax,
    Workspace,
    SweepOptions,
    Selection,
    WantedSet,
    Finished,
    Until<'static>,
    Stop,
    OneOfTwo,
    OneWeight,
    Strip,
    StripOp,
    Strips,
    Two,
    WeightParts<'static>,
    Properties,
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
    CrossEntropyTarget<'static>,
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
    TurnHint,
    Flag,
    Pool,
    GuidedChunks,
    Pieces,
    Work,
    Raised<'static>,
    Shared<'static>,
    OrderedReduction<Vec<f64>, f32>,
    Turn<'static, Vec<f64>, f32>,
    EarlyResults<f32>,
    Graph<'static, f16>,
    Graph<'static, bf16>,
    Graph<'static, F32x64>,
    Graph<'static, Dual<f64>>,
    Quick<'static, 'static, f64>,
    Tokens,
    Unevaluated,
    Contents,
    Durability,
    Header,
    Kind,
    Loaded<'static, f64>,
    Nodes<'static>,
    OptimiserState<f32>,
    Overwrite,
    Reader<'static>,
    Section<'static, f64>,
    TensorFile<'static>,
    Writer,
    AffinePull<'static, f32>,
    AttentionPull<'static, f32>,
    LayerNormPull<'static, f32>,
    AttentionShape,
    kernels::Adam<f32>,
    kernels::Momentum<f32>,
    kernels::Mode,
    kernels::Working<'static, f32>,
    nn::Attention,
    nn::Block,
    nn::LayerNorm,
    nn::Linear,
    Activation,
    CharMlp,
    CharMlpShape,
    Gpt,
    GptShape,
    Input<'static, f32>,
    Label<'static, f32>,
    Mlp,
    Neuron,
    sized::Linear<f32, 2, 3>,
    sized::Run<2>,
    Arity,
    OpInfo,
    Reduction,
    optim::Adam<f32>,
    AdamRates,
    Course,
    Schedule,
    Sgd<f32>,
    Shuffle,
    Batch<'static, f32>,
    Overrides<'static, f32>,
    Lanes,
    Oracle<f32>,
    OracleMemory,
    Total,
    NonFiniteParameter<f32>,
    Against,
    Along,
    HessianAlong,
    Hessian,
    HessianColumns,
    SparseJacobian,
    Jacobian,
    Called,
    Failed,
    Pattern,
    Program,
    Build,
    Comparison,
    Guard,
    Node,
    Parts,
    Recording,
    Replay<f64, 1>,
    Seeds,
    batch::Batch<f64, 8>,
    batch::Rows<'static>,
    Level,
    Sampling<'static>,
    TextWindows,
    Vocabulary,
    WordContexts,
    Link,
    Options,
    PictureBox,
    Picture,
    Role,
    Dual<f64>,
    Draw<'static>,
    Purpose,
    Subset,
    SparseSamples,
    Division,
    LibsvmOptions,
    Dataset,
    SyntheticOptions,
    Target,
    Client,
    Compressor,
    Count,
    Largest<f32>,
    Message<f32>,
    Quantiser,
    Sparsifier,
    Support,
    Values,
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

/// Public types in a private module, which the crate's interface cannot name.
const UNNAMEABLE: [&str; 7] = ["StepOf", "BundlesOf", "SliceKernels", "RowKernels", "Fate", "Job", "Panel"];
/// Types of the feature `erased`, which is off in this test build.
const ERASED: [&str; 9] = [
    "ScalarType",
    "AnyNumber",
    "AnyNumbers",
    "Seed",
    "Found",
    "AnyParameters",
    "AnyNumbersMut",
    "GradientTarget",
    "Room",
];

#[test]
fn every_public_type_is_named_here() {
    let mut folders = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))];
    let (mut n_types, mut missing) = (0, Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            for line in std::fs::read_to_string(&path).unwrap().lines().map(str::trim_start) {
                let declared = ["pub struct ", "pub enum "].iter().find_map(|start| line.strip_prefix(start));
                let Some(name) = declared.and_then(|rest| rest.split(|c: char| !c.is_alphanumeric()).next()) else {
                    continue;
                };
                n_types += 1;
                let here = include_str!("traits.rs").split(|c: char| !c.is_alphanumeric());
                if !UNNAMEABLE.contains(&name)
                    && !ERASED.contains(&name)
                    && here.filter(|&word| word == name).count() == 0
                {
                    missing.push(format!("{name} of {}", path.display()));
                }
            }
        }
    }
    assert!(n_types > 80 && missing.is_empty(), "{n_types} types, not here: {missing:?}");
}
