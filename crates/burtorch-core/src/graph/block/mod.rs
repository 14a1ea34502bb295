//! Block ops: one record that produces a range of nodes. The last node of the range is the op, the others are parts.
//!
//! Promises: a block's values equal those of its expansion into scalar nodes within the bound of its sums; a record is
//! plain numbers in the operand lists, so rewinding past it costs nothing. Parameters are read in place.
//!
//! Each block op is a file that implements [`op::BlockOp`]: its record, appending, evaluation, backward pass, operands,
//! and the check on loading. This file is their registry and dispatches to them.

mod append;
mod op;
mod record;

mod affine;
mod affine_pull;
mod cross_entropy;
mod gather;
mod map;
mod means;
mod softmax;

mod tokens;

mod add_ranges;
mod attention;
mod layer_norm;
mod rms_norm;
mod token_affine;
mod token_cross_entropy;
mod token_embedding;

pub use cross_entropy::CrossEntropyTarget;
pub use tokens::Tokens;

pub(crate) use affine::AffineRecord;
pub(crate) use map::MapRecord;
pub(crate) use record::{BlockHeader, Field, Layout};
pub(crate) use tokens::TokenRecord;

use super::check::{Check, Checked};
use super::operands::{OperandRun, StoreValues};
use super::sweep::Sweep;
use super::{Graph, Range, View};
use crate::error::Result;
use crate::kernels::BlockMath;
use crate::kernels::slices::table_of_type;
use crate::ops::{Arity, Op};
use crate::params::Parameters;
use crate::scalar::Scalar;
use crate::sync::stop;
use op::{BlockOp, Wanted};

/// The registry: passes every block op to the macro `$consume`, after its other arguments.
macro_rules! for_each_block {
    ($consume:ident $given:tt) => {
        $consume! { $given
            // For all scalar types.
            all {
                Map map::Map
                Softmax softmax::Softmax
                LogSoftmax softmax::LogSoftmax
                MeanAndMeanSquares means::Means
                AddRanges add_ranges::AddRanges
            }
            // For scalar types with kernels.
            kernels {
                Affine affine::Affine
                Gather gather::Gather
                CrossEntropy cross_entropy::CrossEntropy
                TokenEmbedding token_embedding::TokenEmbedding
                TokenAffine token_affine::TokenAffine
                LayerNorm layer_norm::LayerNorm
                RmsNorm rms_norm::RmsNorm
                CausalAttention attention::CausalAttention
                TokenCrossEntropy token_cross_entropy::TokenCrossEntropy
            }
        }
    };
}

/// Reports the positions of a record that hold ids, which a file translates.
type Save = fn(&[u32], u32, usize, &mut dyn FnMut(usize));

/// The properties that do not depend on the scalar type of the graph.
struct Row {
    needs_kernels: bool,
    layout: fn(&[u32], u32, usize) -> Layout,
    for_each_operand: fn(&[u32], u32, &mut dyn FnMut(OperandRun)),
    cost: fn(&[u32], u32) -> u64,
    save: Save,
    load: fn(u32, u32, &mut Check<'_>) -> Checked,
}

impl Row {
    const fn of<B: BlockOp<f64>>(needs_kernels: bool) -> Self {
        Row {
            needs_kernels,
            layout: B::layout,
            for_each_operand: B::for_each_operand,
            cost: B::cost,
            save: B::save,
            load: B::load,
        }
    }
}

macro_rules! row_of {
    (($op:ident) all { $($A:ident $a:path)* } kernels { $($K:ident $k:path)* }) => {
        match $op {
            $( Op::$A => const { &Row::of::<$a>(false) }, )*
            $( Op::$K => const { &Row::of::<$k>(true) }, )*
            // No other op is a block.
            _ => const { &Row::of::<means::Means>(false) },
        }
    };
}

#[inline(never)]
fn row(op: Op) -> &'static Row {
    for_each_block!(row_of(op))
}

/// Appends a block: op, Parameters, operands, and the op's own parameters.
type Append<S> = fn(&mut Graph<'_, S>, Op, &[&Parameters<'_, <S as Scalar>::Elem>], &[View], &[f64]) -> Result<Range>;

/// Evaluation and backward pass of blocks, for scalar types with kernels.
struct Kernels<S: Scalar> {
    evaluate: fn(&mut Graph<'_, S>, Op, u32, &StoreValues<'_, S::Elem>),
    pull: fn(&mut Sweep<'_, '_, S>, Op, u32, u32),
    append: Append<S>,
}

macro_rules! append_one {
    (($graph:ident $op:ident $params:ident $operands:ident $own:ident) all $all:tt kernels { $($K:ident $k:path)* }) => {
        match $op {
            $( Op::$K => <$k as BlockOp<S>>::append($graph, $params, $operands, $own), )*
            _ => op::unsupported($op, "form that takes plain operands"),
        }
    };
}

macro_rules! evaluate_one {
    (($graph:ident $op:ident $at:ident $stores:ident $kind:ident) all { $($A:ident $a:path)* } kernels { $($K:ident $k:path)* }) => {
        evaluate_one!(@$kind $graph $op $at $stores { $($A $a)* } { $($K $k)* })
    };
    (@all $graph:ident $op:ident $at:ident $stores:ident { $($A:ident $a:path)* } $rest:tt) => {
        match $op {
            $( Op::$A => <$a as BlockOp<S>>::evaluate($graph, $at, $stores), )*
            _ => if let Some(kernels) = table_of_type!(Kernels, S) {
                (kernels.evaluate)($graph, $op, $at, $stores);
            }
        }
    };
    (@kernels $graph:ident $op:ident $at:ident $stores:ident $rest:tt { $($K:ident $k:path)* }) => {
        match $op {
            $( Op::$K => <$k as BlockOp<S>>::evaluate($graph, $at, $stores), )*
            _ => {}
        }
    };
}

macro_rules! pull_one {
    (($sweep:ident $op:ident $at:ident $top:ident $kind:ident) all { $($A:ident $a:path)* } kernels { $($K:ident $k:path)* }) => {
        pull_one!(@$kind $sweep $op $at $top { $($A $a)* } { $($K $k)* })
    };
    (@all $sweep:ident $op:ident $at:ident $top:ident { $($A:ident $a:path)* } $rest:tt) => {
        match $op {
            $( Op::$A => <$a as BlockOp<S>>::pull($sweep, $at, $top, Wanted::ALL), )*
            _ => if let Some(kernels) = table_of_type!(Kernels, S) {
                (kernels.pull)($sweep, $op, $at, $top);
            }
        }
    };
    (@kernels $sweep:ident $op:ident $at:ident $top:ident $rest:tt { $($K:ident $k:path)* }) => {
        match $op {
            $( Op::$K => <$k as BlockOp<S>>::pull($sweep, $at, $top, Wanted::ALL), )*
            _ => {}
        }
    };
}

/// Calls `f` with every range of operands of a block.
pub(crate) fn for_each_block_operand(extra: &[u32], op: Op, at: u32, f: &mut dyn FnMut(OperandRun)) {
    (row(op).for_each_operand)(extra, at, f);
}

/// The layout of a block's record, in a graph with this many lanes.
pub(crate) fn block_layout(extra: &[u32], op: Op, at: u32, lanes: usize) -> Layout {
    (row(op).layout)(extra, at, lanes)
}

/// Calls `f` with each position of the operand lists that a file stores as an op.
pub(crate) fn for_each_inner_op(extra: &[u32], op: Op, at: u32, lanes: usize, f: &mut dyn FnMut(usize)) {
    (row(op).save)(extra, at, lanes, f);
}

impl<S: BlockMath> Kernels<S> {
    const KERNELS: Self = Kernels {
        evaluate: |graph, op, at, stores| for_each_block!(evaluate_one(graph op at stores kernels)),
        pull: |sweep, op, at, top| for_each_block!(pull_one(sweep op at top kernels)),
        append: |graph, op, params, operands, own| for_each_block!(append_one(graph op params operands own)),
    };
}

impl<S: Scalar> Graph<'_, S> {
    /// Appends a block op on operands in order, with its own numbers: for [`Op::RmsNorm`] gains and inputs, then eps and the
    /// number of tokens that the inputs are activations of, 0 for a range that is normalised as a whole.
    pub fn append_block(
        &mut self,
        op: Op,
        params: &[&Parameters<'_, S::Elem>],
        operands: &[View],
        own: &[f64],
    ) -> Result<Range> {
        match table_of_type!(Kernels, S) {
            Some(kernels) => (kernels.append)(self, op, params, operands, own),
            None => op::unsupported(op, "form for this dtype"),
        }
    }

    /// Recomputes a block from its operands.
    pub(crate) fn evaluate_block(&mut self, op: Op, at: u32, stores: &StoreValues<'_, S::Elem>) {
        let graph = self;
        for_each_block!(evaluate_one(graph op at stores all))
    }

    /// Operations that evaluating the block of which `node` is an output takes, for one lane; 1 for other nodes.
    pub fn operations(&self, node: super::NodeId) -> Result<u64> {
        self.check_exists(node)?;
        match self.block_tail(node.0) {
            Some(tail) if self.columns.op(tail).info().arity == Arity::Block => {
                Ok((row(self.columns.op(tail)).cost)(self.extra.as_slice(), self.columns.operands(tail)[0]))
            }
            _ => Ok(1),
        }
    }
}

impl<S: Scalar> Sweep<'_, '_, S> {
    /// Processes the block of which `node` is an output; returns its first output.
    ///
    /// A block is processed once, at the first reached output from above; by then every contribution to its outputs has
    /// been made, because users of a block come after all of it. Unreached outputs contribute nothing, not even zero
    /// times infinity. If the backward pass ends early, returns 0, so that nothing is left below.
    #[inline(never)]
    pub(crate) fn block(&mut self, node: u32) -> u32 {
        let tail = self.tail(node as usize);
        let (op, at) = (self.recorded.ops[tail], self.recorded.operands[tail][0]);
        // Outputs above `node` are unreached, otherwise this block would have been processed there.
        let header = BlockHeader::read(self.extra, at);
        if self.skip_zero_adjoints {
            let outputs = self.place(header.first, node);
            for adjoint in self.adjoints[outputs].iter_mut().filter(|a| a.all_zero()) {
                *adjoint = S::UNREACHED;
            }
        }
        if stop::is_over() {
            self.is_over = true;
            return 0;
        }
        let sweep = self;
        for_each_block!(pull_one(sweep op at node all));
        header.first
    }
}

macro_rules! over_tokens {
    (($op:ident) all { $($A:ident $a:path)* } kernels { $($K:ident $k:path)* }) => {
        match $op {
            $( Op::$A => const { <$a as BlockOp<f64>>::OVER_TOKENS }, )*
            $( Op::$K => const { <$k as BlockOp<f64>>::OVER_TOKENS }, )*
            _ => false,
        }
    };
}

/// Whether this op is a block that works on tokens; such records share one layout.
#[inline]
pub(crate) fn is_over_tokens(op: Op) -> bool {
    for_each_block!(over_tokens(op))
}

impl Check<'_> {
    /// Checks the record of a block of `n_out` outputs whose last node is `node`; the record lies at `at`, after its
    /// lists.
    pub(super) fn block(&mut self, node: u32, op: Op, at: u32) -> Checked {
        let row = row(op);
        if row.needs_kernels {
            self.kernels(op)?;
        }
        (row.load)(node, at, self)
    }
}
