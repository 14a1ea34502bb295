//! Rows whose adjoints a sweep overwrites without readying them: the same adjoints and gradients, bit for bit, as a sweep
//! that readies all of them, whatever else reads the rows.

use burtorch_core::graph::CrossEntropyTarget;
use burtorch_core::kernels::BlockMath;
use burtorch_core::ops::{self, Op};
use burtorch_core::simd::{F32x16, F32x64, F64x4};
use burtorch_core::{Float, Graph, Init, NodeId, Operands, Parameters, Range, RowMath, SweepOptions, Tensor, View};

use crate::support::{Numbers, level_stays};

const ROWS: usize = 5;
const WIDTH: usize = 3;
const POSITIONS: usize = 2;
const INPUTS: usize = WIDTH * POSITIONS;
const OUTPUTS: usize = 4;

struct Layer {
    table: Tensor,
    weights: Tensor,
    bias: Tensor,
}

fn layer<S: BlockMath>(
    frozen: impl Fn(&Layer) -> Option<std::ops::Range<usize>>,
) -> (Parameters<'static, S::Elem>, Layer) {
    let mut params = Parameters::new(7);
    let normal = Init::Normal(0.0, 1.0);
    let layer = Layer {
        table: params.tensor(&[ROWS, WIDTH], None, normal, true).unwrap(),
        weights: params.tensor(&[OUTPUTS, INPUTS], None, normal, true).unwrap(),
        bias: params.tensor(&[OUTPUTS], None, normal, true).unwrap(),
    };
    if let Some(range) = frozen(&layer) {
        params.freeze(params.slice(range).unwrap()).unwrap();
    }
    (params, layer)
}

/// A graph under construction: the last node is the root.
struct Building<'a, 'p, S: BlockMath> {
    graph: Graph<'static, S>,
    params: &'a Parameters<'p, S::Elem>,
    layer: &'a Layer,
}

impl<S: BlockMath> Building<'_, '_, S> {
    fn rows(&mut self) -> Range {
        let mut numbers = Numbers::new(3);
        let indices: Vec<u32> = (0..POSITIONS * S::LANES).map(|_| (numbers.next_bits() % ROWS as u64) as u32).collect();
        self.graph.gather(self.params, self.layer.table, &indices).unwrap()
    }

    fn dense(&mut self, x: View) -> Range {
        let (w, b) = (self.layer.weights.slice(), self.layer.bias.slice());
        self.graph.affine(&[self.params], &[x], w, Some(b)).unwrap()
    }

    fn cross_entropy(&mut self, z: Range) -> NodeId {
        let classes: Vec<u32> = (0..S::LANES as u32).map(|lane| lane % OUTPUTS as u32).collect();
        self.graph.softmax_cross_entropy(z, CrossEntropyTarget::Classes(&classes)).unwrap()
    }

    fn sum(&mut self, x: Range) -> NodeId {
        self.graph.reduce(Op::ReduceSum, Operands::Run(x), &[]).unwrap()
    }
}

/// Runs two backward passes, the second on the state left by the first, and returns all adjoints and the gradients as
/// bits.
fn swept<S: BlockMath>(
    mut graph: Graph<'static, S>,
    root: NodeId,
    params: &mut Parameters<'_, S::Elem>,
    ready: bool,
) -> Vec<u64> {
    for _ in 0..2 {
        params.grads_mut().fill(S::Elem::lit(0.0));
        let mut never = || false;
        let never: Option<&mut dyn FnMut() -> bool> = if ready { Some(&mut never) } else { None };
        graph.backward_polled(root, S::lit(0.5), &mut [params.gradients()], SweepOptions::default(), never).unwrap();
    }
    let bits = |x: f64| x.to_bits();
    let adjoints = graph.adjoints().iter().flat_map(|a| (0..S::LANES).map(|lane| bits(a.lane(lane).to_f64())));
    adjoints.chain(params.grads().iter().map(|g| bits(g.to_f64()))).collect()
}

fn check<S: BlockMath>(
    frozen: impl Fn(&Layer) -> Option<std::ops::Range<usize>>,
    build: impl Fn(&mut Building<'_, '_, S>) -> NodeId,
) {
    let _turn = level_stays();
    let (mut params, layer) = layer::<S>(frozen);
    let found = [false, true].map(|ready| {
        let mut building = Building { graph: Graph::<S>::new(), params: &params, layer: &layer };
        let root = build(&mut building);
        let graph = building.graph;
        swept(graph, root, &mut params, ready)
    });
    assert!(found[0].iter().any(|&x| x != 0 && x != (-0.0_f64).to_bits()), "nothing is reached");
    assert_eq!(found[0], found[1]);
}

fn in_every_width(
    frozen: impl Fn(&Layer) -> Option<std::ops::Range<usize>>,
    build: (impl Fn(&mut Building<'_, '_, f32>) -> NodeId, impl Fn(&mut Building<'_, '_, F32x64>) -> NodeId),
    others: (impl Fn(&mut Building<'_, '_, F32x16>) -> NodeId, impl Fn(&mut Building<'_, '_, F64x4>) -> NodeId),
) {
    check(&frozen, build.0);
    check(&frozen, build.1);
    check(&frozen, others.0);
    check(&frozen, others.1);
}

/// The same construction in four widths.
macro_rules! widths {
    ($frozen:expr, $build:expr) => {
        in_every_width($frozen, ($build, $build), ($build, $build))
    };
}

#[test]
fn rows_that_one_layer_reads() {
    widths!(|_| None, |b| {
        let rows = b.rows();
        let y = b.dense(View::Nodes(rows));
        let h = b.graph.map(Op::Tanh, y).unwrap();
        b.cross_entropy(h)
    });
    widths!(|_| None, |b| {
        let rows = b.rows();
        let y = b.dense(View::Nodes(rows));
        b.cross_entropy(y)
    });
}

#[test]
fn frozen_tables_rows_weights_and_biases() {
    type Frozen = fn(&Layer) -> Option<std::ops::Range<usize>>;
    let ranges: [Frozen; 5] = [
        |l| Some(l.table.slice().range()),
        |l| Some(l.table.slice().range().start + WIDTH..l.table.slice().range().start + 2 * WIDTH),
        |l| Some(l.weights.slice().range()),
        |l| Some(l.weights.slice().range().start + 1..l.weights.slice().range().start + 3),
        |l| Some(l.bias.slice().range()),
    ];
    for frozen in ranges {
        widths!(frozen, |b| {
            let rows = b.rows();
            let y = b.dense(View::Nodes(rows));
            b.cross_entropy(y)
        });
    }
}

#[test]
fn rows_that_others_read_too() {
    // A second layer, below and above the first layer's outputs.
    widths!(|_| None, |b| {
        let rows = b.rows();
        let (y, z) = (b.dense(View::Nodes(rows)), b.dense(View::Nodes(rows)));
        let both = b.graph.add_ranges(y, z).map_or(y, |both| both);
        b.cross_entropy(both)
    });
    // A block of some of the rows.
    widths!(|_| None, |b| {
        let rows = b.rows();
        let part = b.graph.map(Op::Tanh, rows.slice(1, 1 + OUTPUTS).unwrap()).unwrap();
        let _ = b.dense(View::Nodes(rows));
        b.cross_entropy(part)
    });
    // A scalar op in between.
    widths!(|_| None, |b| {
        let rows = b.rows();
        let y = b.dense(View::Nodes(rows));
        let loss = b.cross_entropy(y);
        let also = b.graph.unary::<ops::Sqr>(rows.get(2).unwrap()).unwrap();
        b.graph.binary::<ops::Add>(loss, also).unwrap()
    });
    // A root that is not a block.
    widths!(|_| None, |b| {
        let rows = b.rows();
        let y = b.dense(View::Nodes(rows));
        b.sum(y)
    });
}

#[test]
fn layers_that_are_reached_in_part_or_not_at_all() {
    // A single output of the layer.
    widths!(|_| None, |b| {
        let rows = b.rows();
        let y = b.dense(View::Nodes(rows));
        let h = b.graph.map(Op::Tanh, y).unwrap();
        let part = b.graph.map(Op::Tanh, h.slice(1, 3).unwrap()).unwrap();
        b.cross_entropy_of_two(part)
    });
    // The layer is not part of the backward pass.
    widths!(|_| None, |b| {
        let rows = b.rows();
        let _ = b.dense(View::Nodes(rows));
        let other = b.rows();
        let y = b.dense(View::Nodes(other));
        b.cross_entropy(y)
    });
}

impl<S: BlockMath> Building<'_, '_, S> {
    fn cross_entropy_of_two(&mut self, z: Range) -> NodeId {
        let classes: Vec<u32> = (0..S::LANES as u32).map(|lane| lane % 2).collect();
        self.graph.softmax_cross_entropy(z, CrossEntropyTarget::Classes(&classes)).unwrap()
    }
}
