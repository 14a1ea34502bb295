//! Graphs of fixed memory: of fixed capacity, and in buffers of the caller.
//!
//! Promises: after construction such a graph never allocates for building, sweeping or rewinding (in buffers: not even in
//! construction) and returns an error when it is full. Only `recompute` and `compact` allocate a bit per node elsewhere.
#![allow(unsafe_code)]

use std::alloc::Layout;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use super::Graph;
use super::columns::Columns;
use super::leaves::Leaves;
use super::mark::{Rewind, RewindLog};
use super::memory::{Column, Origin, Stack};
use crate::error::{Error, Result};
use crate::ops::Op;
use crate::scalar::Scalar;

/// The size of a fixed graph. `Capacity::nodes(n)` is enough for any `n` nodes of unary and binary ops, and for
/// reductions and inner products of runs; operand lists and blocks may need more space for their lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Nodes, counting every output of a block op.
    pub nodes: u32,
    /// Leaves among them.
    pub leaves: u32,
    /// Numbers in operand lists and block records.
    pub operand_lists: u32,
    /// Scalars of temporaries: the longest reduction or inner product, twice that unless its operands are runs; for an
    /// affine block, twice the inputs plus the outputs.
    pub temporaries: u32,
    /// Nested rewinds remembered for handles.
    pub rewinds: u32,
}

impl Capacity {
    /// Capacity for `n` scalar nodes, all of which may be leaves.
    pub const fn nodes(n: u32) -> Self {
        let rewinds = if n < 64 { n + 1 } else { 64 };
        Capacity {
            nodes: n,
            leaves: n,
            operand_lists: n.saturating_mul(2).saturating_add(16),
            temporaries: n.saturating_add(16),
            rewinds,
        }
    }
}

impl From<u32> for Capacity {
    fn from(n: u32) -> Self {
        Capacity::nodes(n)
    }
}

/// The layout of all columns in sequence, and the offset of each.
fn plan<S: Scalar>(c: Capacity) -> Result<(Layout, [usize; 9])> {
    let too_large = |_| Error::OutOfMemory { bytes: usize::MAX, what: "a graph in buffers" };
    let columns = [
        Layout::array::<S>(c.nodes as usize),
        Layout::array::<S>(c.nodes as usize),
        Layout::array::<S>(c.leaves as usize),
        Layout::array::<S>(c.temporaries as usize),
        Layout::array::<Rewind>(c.rewinds as usize),
        Layout::array::<[u32; 2]>(c.nodes as usize),
        Layout::array::<u32>(c.operand_lists as usize),
        Layout::array::<u32>(c.leaves as usize),
        Layout::array::<Op>(c.nodes as usize),
    ];
    let mut whole = Layout::from_size_align(0, 64).map_err(too_large)?;
    let mut offsets = [0; 9];
    for (offset, column) in offsets.iter_mut().zip(columns) {
        (whole, *offset) = whole.extend(column.map_err(too_large)?).map_err(too_large)?;
    }
    Ok((whole, offsets))
}

/// Bytes that [`Graph::in_buffers`] needs for this capacity, with space for aligning the buffer's start.
pub fn bytes_needed<S: Scalar>(capacity: impl Into<Capacity>) -> Result<usize> {
    let (layout, _) = plan::<S>(capacity.into())?;
    Ok(layout.size() + layout.align() - 1)
}

impl<S: Scalar> Graph<'static, S> {
    /// A graph of this capacity in newly allocated memory, which never grows: [`Error::GraphFull`] instead.
    pub fn fixed(capacity: impl Into<Capacity>) -> Result<Self> {
        let c = capacity.into();
        let mut columns = Columns::new(Origin::Fixed, u32::MAX);
        columns.preallocate(c.nodes)?;
        let mut graph = Self::assemble(
            columns,
            Stack::new("operand lists", Origin::Fixed),
            Leaves::new(Origin::Fixed),
            Stack::new("temporaries", Origin::Fixed),
            RewindLog::new(allocated("rewinds", c.rewinds)?),
        );
        graph.extra.preallocate(c.operand_lists as usize)?;
        graph.leaves.preallocate(c.leaves)?;
        graph.scratch.preallocate(c.temporaries as usize)?;
        Ok(graph)
    }

    /// As [`Graph::in_buffers`], for memory whose lifetime the compiler does not know.
    ///
    /// # Safety
    /// `start` is valid for reads and writes of `bytes` bytes, with no other access, until the graph is dropped.
    #[optimize(size)]
    pub unsafe fn in_memory(start: NonNull<u8>, bytes: usize, capacity: impl Into<Capacity>) -> Result<Self> {
        // SAFETY: by the contract of this function no other code accesses the bytes while the graph lives.
        unsafe { over(start, bytes, capacity.into()) }
    }
}

impl<'m, S: Scalar> Graph<'m, S> {
    /// A graph of this capacity in the caller's memory. Building, sweeping and rewinding allocate nothing;
    /// [`bytes_needed`] gives the size of the memory.
    ///
    /// ```
    /// use burtorch_core::{Graph, bytes_needed};
    /// let mut buffer = vec![std::mem::MaybeUninit::uninit(); bytes_needed::<f32>(100).unwrap()];
    /// let mut graph = Graph::<f32>::in_buffers(&mut buffer, 100).unwrap();
    /// let t = graph.eager();
    /// let x = t.leaf(3.0);
    /// (x * x).backward();
    /// assert_eq!(x.grad(), 6.0);
    /// ```
    #[optimize(size)]
    pub fn in_buffers(buffer: &'m mut [MaybeUninit<u8>], capacity: impl Into<Capacity>) -> Result<Self> {
        let bytes = buffer.len();
        let start = NonNull::from(buffer).cast::<u8>();
        // SAFETY: the buffer is borrowed exclusively for 'm, which the graph's type carries.
        unsafe { over(start, bytes, capacity.into()) }
    }
}

/// # Safety
/// `start` is valid for reads and writes of `bytes` bytes, with no other access, while the graph lives.
#[optimize(size)]
unsafe fn over<'m, S: Scalar>(start: NonNull<u8>, bytes: usize, c: Capacity) -> Result<Graph<'m, S>> {
    let (layout, at) = plan::<S>(c)?;
    let skip = start.as_ptr().align_offset(layout.align());
    let need = layout.size().saturating_add(skip);
    if need > bytes {
        let need = layout.size() + layout.align() - 1;
        return Err(Error::BufferTooSmall { what: "a graph in buffers (in bytes)", need, have: bytes });
    }
    // SAFETY: `plan` keeps every column inside `layout`, aligned relative to its start, which is aligned; the columns
    // do not overlap, and by the contract of this function nothing else accesses the memory.
    unsafe {
        let base = start.add(skip);
        Ok(Graph::assemble(
            Columns::over(
                Column::foreign(base.add(at[8]).cast(), c.nodes as usize),
                Column::foreign(base.add(at[5]).cast(), c.nodes as usize),
                Column::foreign(base.add(at[0]).cast(), c.nodes as usize),
                Column::foreign(base.add(at[1]).cast(), c.nodes as usize),
            ),
            Stack::over(Column::foreign(base.add(at[6]).cast(), c.operand_lists as usize), "operand lists"),
            Leaves::over(
                Column::foreign(base.add(at[7]).cast(), c.leaves as usize),
                Column::foreign(base.add(at[2]).cast(), c.leaves as usize),
            ),
            Stack::over(Column::foreign(base.add(at[3]).cast(), c.temporaries as usize), "temporaries"),
            RewindLog::new(Stack::over(Column::foreign(base.add(at[4]).cast(), c.rewinds as usize), "rewinds")),
        ))
    }
}

fn allocated<T: Copy>(name: &'static str, cap: u32) -> Result<Stack<T>> {
    let mut stack = Stack::new(name, Origin::Fixed);
    stack.preallocate(cap as usize)?;
    Ok(stack)
}
