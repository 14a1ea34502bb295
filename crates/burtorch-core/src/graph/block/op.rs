//! The definition of a block op: [`BlockOp`], implemented once in the file of each op, for its scalar types.
//!
//! Promises: code that walks, renumbers, saves, evaluates or differentiates blocks uses this trait and knows no op.
//! Rules needed only by array programs return [`Error::Unsupported`] until an op implements them.

use super::super::check::{Check, Checked};
use super::super::operands::{Encoded, OperandRun, StoreValues};
use super::super::sweep::Sweep;
use super::super::{Graph, Range, View};
use super::record::Layout;
use crate::error::{Error, Result};
use crate::ops::Op;
use crate::params::Parameters;
use crate::scalar::Scalar;

/// A block op for scalars of type `S`: elementwise ops and reductions exist for all types, the others for types with
/// kernels.
pub(crate) trait BlockOp<S: Scalar> {
    /// Its row of the op table, with name and formula.
    const OP: Op;
    /// Whether its operands are activations of tokens, whose records have their own layout and section in files.
    const OVER_TOKENS: bool = false;

    /// The shape rule: the number of outputs for operands of these lengths and the op's own parameters.
    fn shape(_operands: &[usize], _own: &[usize]) -> Result<usize> {
        unsupported(Self::OP, "shape rule")
    }

    /// The layout of the record at `at`.
    fn layout(extra: &[u32], at: u32, lanes: usize) -> Layout;

    /// Calls `f` with every range of operands.
    fn for_each_operand(extra: &[u32], at: u32, f: &mut dyn FnMut(OperandRun));

    /// Operations to evaluate the record at `at`, per lane; a backward pass takes about twice as many.
    fn cost(extra: &[u32], at: u32) -> u64;

    /// Appends the block on operands in order, with the op's own parameters. Ops whose operands or parameters have a
    /// different form are appended by methods of `Graph` instead.
    fn append(
        _graph: &mut Graph<'_, S>,
        _params: &[&Parameters<'_, S::Elem>],
        _operands: &[View],
        _own: &[f64],
    ) -> Result<Range> {
        unsupported(Self::OP, "form that takes plain operands")
    }

    /// Computes the outputs from the operands.
    fn evaluate(graph: &mut Graph<'_, S>, at: u32, stores: &StoreValues<'_, S::Elem>);

    /// Propagates the adjoints of the outputs up to node `top` to the operands. Outputs above it, and outputs with the
    /// adjoint "not reached", contribute nothing. Operands that are not `wanted` may be skipped.
    fn pull(sweep: &mut Sweep<'_, '_, S>, at: u32, top: u32, wanted: Wanted);

    /// The derivative as instructions: for each wanted operand, the value that holds the contribution of `adjoint`, the
    /// adjoint of the outputs.
    #[allow(dead_code, reason = "asked for by programs over arrays only")]
    fn derivative(
        _emit: &mut dyn Emit,
        _operands: &[ValueId],
        _output: ValueId,
        _adjoint: ValueId,
        _wanted: Wanted,
    ) -> Result<Vec<Option<ValueId>>> {
        unsupported(Self::OP, "derivative as instructions")
    }

    /// The batch rule: the outputs of many applications at once; `mapped` tells which operands differ between them.
    #[allow(dead_code, reason = "asked for by programs over arrays only")]
    fn batch(_emit: &mut dyn Emit, _operands: &[ValueId], _mapped: &[bool]) -> Result<ValueId> {
        unsupported(Self::OP, "batch rule")
    }

    /// Calls `f` with each position of the operand lists that a file stores as an op; other numbers are stored
    /// unchanged.
    fn save(extra: &[u32], at: u32, lanes: usize, f: &mut dyn FnMut(usize)) {
        Self::layout(extra, at, lanes).ops().for_each(|k| f(at as usize + k));
    }

    /// Checks that the record at `at` is long enough for [`BlockOp::layout`] to read.
    fn is_whole(check: &Check<'_>, at: u32) -> Checked {
        // The shortest record has four numbers.
        check.numbers(at, 4)
    }

    /// Checks a loaded record, with the same requirements as building.
    fn check(loaded: Loaded<'_>, check: &mut Check<'_>) -> Checked;

    /// Checks the record of a block whose last node is `node`; the record lies at `at`, after its lists.
    fn load(node: u32, at: u32, check: &mut Check<'_>) -> Checked {
        Self::is_whole(check, at)?;
        let layout = Self::layout(check.extra, at, check.lanes);
        check.numbers(at, layout.len)?;
        let first = check.extra[at as usize];
        let (mut n_in, mut inner) = (0, Self::OP);
        for k in layout.lists() {
            let [a, b] = [check.extra[at as usize + k], check.extra[at as usize + k + 1]];
            n_in += check.operands(Encoded(a, b), first)?;
        }
        for k in layout.ops() {
            inner = check.translate(at as usize + k)?;
        }
        let place = check.record(at, layout.len)?;
        let record = &check.extra[place].to_vec()[..];
        if record[0] != node - check.n_parts || record[1] != check.n_parts + 1 {
            return Err(format!("is the end of a block of {} outputs from {}", record[1], record[0]));
        }
        Self::check(Loaded { record, n_in, inner }, check)
    }
}

/// A loaded record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loaded<'r> {
    /// The numbers of the record.
    pub(crate) record: &'r [u32],
    /// The number of operands in its lists.
    pub(crate) n_in: u64,
    /// The op stored in the record, if any.
    pub(crate) inner: Op,
}

/// The operands, and the rows of them, that need gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// One bit per operand, in the order of [`BlockOp::for_each_operand`].
    operands: u32,
    /// Rows of tables and matrices: the first, and one past the last.
    pub(crate) rows: (u32, u32),
}

impl Wanted {
    /// All rows of all operands.
    pub(crate) const ALL: Wanted = Wanted { operands: u32::MAX, rows: (0, u32::MAX) };

    /// Whether operand `k` needs a gradient.
    pub(crate) const fn operand(self, k: usize) -> bool {
        self.operands >> (if k < 31 { k } else { 31 }) & 1 > 0
    }
}

/// A value of a program, by its number.
#[allow(dead_code, reason = "asked for by programs over arrays only")]
pub(crate) type ValueId = u32;

/// Receives the instructions of derivatives and batch rules.
#[allow(dead_code, reason = "asked for by programs over arrays only")]
pub(crate) trait Emit {
    /// An op of the table, element by element.
    fn row(&mut self, op: Op, operands: &[ValueId]) -> Result<ValueId>;
    /// The contribution of the adjoint `g` of a table op to its operand `k`.
    fn pull(&mut self, op: Op, k: usize, g: ValueId, operands: &[ValueId]) -> Result<ValueId>;
    /// A block op with its own parameters.
    fn block(&mut self, op: Op, operands: &[ValueId], own: &[usize]) -> Result<ValueId>;
}

/// The result of a rule that an op does not implement.
pub(super) fn unsupported<T>(op: Op, rule: &'static str) -> Result<T> {
    Err(Error::Unsupported { op: op.name(), rule })
}
