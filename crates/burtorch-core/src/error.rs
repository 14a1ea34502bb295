//! All errors as one enum: misuse and exhaustion, never arithmetic.
//!
//! Every message names the expected value, the found value and the remedy. A call that returns an error has changed
//! nothing.

use thiserror::Error;

/// The result of a fallible call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Everything that can go wrong in the core.
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
    /// The mark lies beyond a rewind that came after it.
    #[error(
        "this mark at {len} nodes was undone by an earlier rewind to fewer nodes; take a new mark after the rewind"
    )]
    StaleMark {
        /// Length of the graph when the mark was taken.
        len: u32,
    },
    /// The handle, mark or tensor belongs to something else.
    #[error(
        "{what} belongs to another graph; use values of one graph in one expression, or copy it with `graph.leaf(other.data())`"
    )]
    GraphMismatch {
        /// What was given: "a value", "a mark" ...
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
    /// A fixed graph has no room left.
    #[error(
        "a fixed graph is full: {column} needs {need}, has {have}; give it a larger capacity, rewind, or use a growing graph"
    )]
    GraphFull {
        /// The column that is full.
        column: &'static str,
        /// Entries needed.
        need: usize,
        /// Entries there are.
        have: usize,
    },
    /// Node ids are exhausted.
    #[error("a graph holds at most {limit} nodes and this one is full; rewind or clear it, or use several graphs")]
    IndexExhausted {
        /// The largest number of nodes.
        limit: u32,
    },
    /// The allocator refused.
    #[error("out of memory: {bytes} bytes for {what} were refused; free memory or use a smaller graph")]
    OutOfMemory {
        /// Bytes asked for.
        bytes: usize,
        /// What they were for.
        what: &'static str,
    },
    /// A reduction over nothing.
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
    /// A buffer that the caller gave is too small.
    #[error("{what} needs {need} entries, the buffer has {have}; give a larger buffer")]
    BufferTooSmall {
        /// What the buffer is for.
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
        /// What it lacks.
        rule: &'static str,
    },
    /// An argument outside its range.
    #[error("{what} must be {expected}, found {found}")]
    BadArgument {
        /// The argument.
        what: &'static str,
        /// What is allowed.
        expected: String,
        /// What was given.
        found: String,
    },
    /// Shapes of which neither can be repeated to the other, nor both to a third.
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
        /// What the number is.
        what: &'static str,
        /// What was given.
        found: u64,
        /// The largest allowed.
        max: u64,
    },
    /// A symbol that the vocabulary lacks.
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
    /// Memory that is exported cannot move.
    #[error(
        "Parameters of capacity {capacity} are full and their memory is in use by an array, so it cannot move; give a larger `capacity` when creating them"
    )]
    ParametersFull {
        /// Scalars there is room for.
        capacity: usize,
    },
    /// Bytes that are not what they should be. Nothing was loaded and nothing has changed.
    #[error("{reason}, at byte {offset}; nothing was loaded: pass a complete, unchanged file saved by burtorch")]
    Format {
        /// Where in the file or in memory.
        offset: u64,
        /// What was found and what was expected.
        reason: String,
    },
    /// Data that cannot be read as they are. Nothing was loaded.
    #[error("line {line}: {reason}; nothing was loaded")]
    Data {
        /// The line, from 1 on.
        line: u64,
        /// What was found and what was expected.
        reason: String,
    },
    /// The operating system refused to read or write a file.
    #[error("cannot {doing} {}: {}", .path.display(), std::io::Error::from_raw_os_error(*.code))]
    System {
        /// Its error number.
        code: i32,
        /// What was to be done: "open", "write" ...
        doing: &'static str,
        /// Where.
        path: std::path::PathBuf,
    },
    /// A method of optimisation left the finite numbers. It stays at its last finite iterate.
    #[error("diverged: the result of step {round} is not finite; the last finite iterate is kept: use a smaller step")]
    Diverged {
        /// Which step.
        round: u64,
    },
    /// The work was interrupted from outside.
    #[error("interrupted; nothing was changed")]
    Interrupted,
}
