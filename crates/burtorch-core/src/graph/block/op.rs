//! What a block op is: [`BlockOp`], which the file of each op implements once, for the scalar types that it is for.
//!
//! Promises: whoever walks, renumbers, saves, evaluates or sweeps blocks asks this trait and knows no op. Rules that only
//! programs over arrays ask for answer [`Error::Unsupported`] until an op has one.

use super::super::check::{Check, Checked};
use super::super::operands::{Encoded, OperandRun, StoreValues};
use super::super::sweep::Sweep;
use super::super::{Graph, Range, View};
use super::record::Layout;
use crate::error::{Error, Result};
use crate::ops::Op;
use crate::params::Parameters;
use crate::scalar::Scalar;

/// A block op for scalars of type `S`: elementwise ops and reductions for all of them, the others for those with kernels.
pub(crate) trait BlockOp<S: Scalar> {
    /// Its row of the op table, which has its name and formula.
    const OP: Op;
    /// Whether its operands are activations of tokens, whose records have a form and a place in files of their own.
    const OVER_TOKENS: bool = false;

    /// The shape rule: how many outputs operands of these lengths give, given the op's own numbers.
    fn shape(_operands: &[usize], _own: &[usize]) -> Result<usize> {
        unsupported(Self::OP, "shape rule")
    }

    /// How the record at `at` is laid out.
    fn layout(extra: &[u32], at: u32, lanes: usize) -> Layout;

    /// Calls `f` with every run of operands.
    fn for_each_operand(extra: &[u32], at: u32, f: &mut dyn FnMut(OperandRun));

    /// Operations that evaluating the record at `at` takes, for one lane; a sweep takes about twice as many.
    fn cost(extra: &[u32], at: u32) -> u64;

    /// Appends the block on operands in order, with the op's own numbers. Ops whose operands or numbers are of a form of
    /// their own are appended by methods of `Graph` instead.
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

    /// Hands the adjoints of the outputs up to node `top` on to the operands. Outputs above it, and those whose adjoint is
    /// "not reached", contribute nothing. What is not `wanted` may be left out.
    fn pull(sweep: &mut Sweep<'_, '_, S>, at: u32, top: u32, wanted: Wanted);

    /// The derivative as instructions: for each wanted operand the value that holds what `adjoint`, that of the outputs,
    /// contributes to it.
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

    /// The batch rule: the outputs of many applications at once, of which `mapped` says which operands differ.
    #[allow(dead_code, reason = "asked for by programs over arrays only")]
    fn batch(_emit: &mut dyn Emit, _operands: &[ValueId], _mapped: &[bool]) -> Result<ValueId> {
        unsupported(Self::OP, "batch rule")
    }

    /// Calls `f` with each place of the operand lists that a file stores as an op; everything else is stored as it is.
    fn save(extra: &[u32], at: u32, lanes: usize, f: &mut dyn FnMut(usize)) {
        Self::layout(extra, at, lanes).ops().for_each(|k| f(at as usize + k));
    }

    /// Checks that the record at `at` may be read as far as [`BlockOp::layout`] does.
    fn is_whole(check: &Check<'_>, at: u32) -> Checked {
        // The shortest record has four numbers.
        check.numbers(at, 4)
    }

    /// Checks a record that is loaded: what building would have refused is refused here.
    fn check(loaded: Loaded<'_>, check: &mut Check<'_>) -> Checked;

    /// Checks the record of a block whose tail is `node`, at `at`, behind its lists.
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

/// A record that is loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loaded<'r> {
    /// Its numbers.
    pub(crate) record: &'r [u32],
    /// How many operands its lists name.
    pub(crate) n_in: u64,
    /// The op that it holds, if any.
    pub(crate) inner: Op,
}

/// Which operands, and which rows of them, are to receive gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// One bit for each operand, by its number in [`BlockOp::for_each_operand`].
    operands: u32,
    /// Rows of tables and matrices, from the first to one after the last.
    pub(crate) rows: (u32, u32),
}

impl Wanted {
    /// All rows of all operands.
    pub(crate) const ALL: Wanted = Wanted { operands: u32::MAX, rows: (0, u32::MAX) };

    /// Whether operand `k` is.
    pub(crate) const fn operand(self, k: usize) -> bool {
        self.operands >> (if k < 31 { k } else { 31 }) & 1 > 0
    }
}

/// A value of a program, by its number.
#[allow(dead_code, reason = "asked for by programs over arrays only")]
pub(crate) type ValueId = u32;

/// Where derivatives and batch rules put instructions.
#[allow(dead_code, reason = "asked for by programs over arrays only")]
pub(crate) trait Emit {
    /// An op of the table, element by element.
    fn row(&mut self, op: Op, operands: &[ValueId]) -> Result<ValueId>;
    /// What the adjoint `g` of an op of the table contributes to its operand `k`.
    fn pull(&mut self, op: Op, k: usize, g: ValueId, operands: &[ValueId]) -> Result<ValueId>;
    /// A block op with its own numbers.
    fn block(&mut self, op: Op, operands: &[ValueId], own: &[usize]) -> Result<ValueId>;
}

/// The answer of a rule that an op does not have.
pub(super) fn unsupported<T>(op: Op, rule: &'static str) -> Result<T> {
    Err(Error::Unsupported { op: op.name(), rule })
}
