//! All errors as one enum: misuse and exhaustion, never arithmetic.
//!
//! Every message names the expected value, the found value and the remedy. A call that returns an error has changed
//! nothing.

use thiserror::Error;

/// The result of a fallible call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// All errors of the core.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// The node was removed by a rewind or a clear.
    #[error("node {index} was removed from its graph by a rewind or a clear; build it again after the rewind")]
    Stale {
        /// Index the handle had.
        index: u32,
    },
    /// The node was appended without its value.
    #[error("node {index} has not been evaluated; evaluate it first")]
    NotEvaluated {
        /// Its index.
        index: u32,
    },
    /// The mark was undone by a later rewind.
    #[error(
        "this mark at {len} nodes was undone by an earlier rewind to fewer nodes; take a new mark after the rewind"
    )]
    StaleMark {
        /// Length of the graph when the mark was taken.
        len: u32,
    },
    /// The handle, mark or tensor belongs to another graph or parameters.
    #[error(
        "{what} belongs to another graph; use values of one graph in one expression, or copy it with `graph.leaf(other.data())`"
    )]
    GraphMismatch {
        /// The kind of the argument: "a value", "a mark" ...
        what: &'static str,
    },
    /// An id that the graph never had.
    #[error("node {index} does not exist in a graph of {len} nodes; use the ids that building returned")]
    NoSuchNode {
        /// The id given.
        index: u32,
        /// Nodes in the graph.
        len: u32,
    },
    /// A fixed graph is full.
    #[error(
        "a fixed graph is full: {column} needs {need}, has {have}; give it a larger capacity, rewind, or use a growing graph"
    )]
    GraphFull {
        /// The column that is full.
        column: &'static str,
        /// Entries needed.
        need: usize,
        /// Its capacity.
        have: usize,
    },
    /// Node ids are exhausted.
    #[error("a graph holds at most {limit} nodes and this one is full; rewind or clear it, or use several graphs")]
    IndexExhausted {
        /// The largest number of nodes.
        limit: u32,
    },
    /// The allocation failed.
    #[error("out of memory: {bytes} bytes for {what} were refused; free memory or use less of it")]
    OutOfMemory {
        /// Requested bytes.
        bytes: usize,
        /// Their purpose.
        what: &'static str,
    },
    /// A reduction over no operands.
    #[error("{op} of no values is undefined; give at least one")]
    EmptyReduction {
        /// The op's name.
        op: &'static str,
    },
    /// Operands of unequal length.
    #[error("{op} expects operands of equal length, found {left} and {right}")]
    LengthMismatch {
        /// The op's name.
        op: &'static str,
        /// Length of the first operand.
        left: usize,
        /// Length of the second operand.
        right: usize,
    },
    /// A buffer of the caller is too small.
    #[error("{what} needs {need} entries, the buffer has {have}; give a larger buffer")]
    BufferTooSmall {
        /// The purpose of the buffer.
        what: &'static str,
        /// Entries needed.
        need: usize,
        /// Entries given.
        have: usize,
    },
    /// An op has no rule of this kind.
    #[error("{op} has no {rule}; use ops that have one instead")]
    Unsupported {
        /// The op.
        op: &'static str,
        /// The missing rule.
        rule: &'static str,
    },
    /// An argument outside its range.
    #[error("{what} must be {expected}, found {found}")]
    BadArgument {
        /// The argument.
        what: &'static str,
        /// The allowed values.
        expected: String,
        /// The given value.
        found: String,
    },
    /// Shapes that cannot be broadcast together.
    #[error("shapes {left} and {right} do not broadcast")]
    Broadcast {
        /// One shape.
        left: String,
        /// The other.
        right: String,
    },
    /// A class index or token outside the vocabulary.
    #[error("{what} {found} is out of range: expected 0 to {max}")]
    OutOfRange {
        /// The meaning of the number.
        what: &'static str,
        /// The given number.
        found: u64,
        /// The largest allowed.
        max: u64,
    },
    /// A symbol that is not in the vocabulary.
    #[error("the vocabulary has no symbol {symbol:?}; use symbols of the words it was made from")]
    NoSuchSymbol {
        /// The symbol.
        symbol: char,
    },
    /// The sweep needs Parameters that were not given.
    #[error("the graph reads parameters that were not given to this call; pass the Parameters its tensors came from")]
    MissingParameters,
    /// A name that is already taken.
    #[error("the name {name:?} is already taken by another tensor of these Parameters; choose another")]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// A name that does not exist.
    #[error("no tensor of these Parameters is named {name:?}")]
    NoSuchName {
        /// The name.
        name: String,
    },
    /// Exported memory cannot move.
    #[error(
        "Parameters of capacity {capacity} are full and their memory is in use by an array, so it cannot move; give a larger `capacity` when creating them"
    )]
    ParametersFull {
        /// Its capacity in scalars.
        capacity: usize,
    },
    /// Bytes that are not valid. Nothing was loaded and nothing has changed.
    #[error("{reason}, at byte {offset}; nothing was loaded: pass a complete, unchanged file saved by burtorch")]
    Format {
        /// The place in the file or in memory.
        offset: u64,
        /// The found and the expected value.
        reason: String,
    },
    /// Invalid data. Nothing was loaded.
    #[error("line {line}: {reason}; nothing was loaded")]
    Data {
        /// The line, counted from 1.
        line: u64,
        /// The found and the expected value.
        reason: String,
    },
    /// The operating system could not read or write a file.
    #[error("cannot {doing} {}: {}", .path.display(), std::io::Error::from_raw_os_error(*.code))]
    System {
        /// Its error number.
        code: i32,
        /// The failed operation: "open", "write" ...
        doing: &'static str,
        /// The path.
        path: std::path::PathBuf,
    },
    /// A step of an optimisation method gave a number that is not finite. The method stays at its last finite iterate.
    #[error("diverged: the result of step {round} is not finite; the last finite iterate is kept: use a smaller step")]
    Diverged {
        /// The step.
        round: u64,
    },
    /// The work was interrupted from outside.
    #[error("interrupted; nothing was changed")]
    Interrupted,
}
