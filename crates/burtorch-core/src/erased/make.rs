//! Construction of graphs by scalar type.

use std::mem::MaybeUninit;

use super::graph::ErasedGraph;
use super::growable::Growable;
use super::number::ScalarType;
use super::params::{AnyParameters, typed};
use crate::error::{Error, Result};
use crate::graph::{Graph, bytes_needed};
use crate::io::{Kind, Loaded, Reader};
use crate::scalar::{DType, bf16, f16};
use crate::simd::{F32x4, F32x8, F32x16, F32x64, F64x2, F64x4, F64x8};

/// Evaluates an expression with `S` set to the scalar type chosen at run time.
macro_rules! with_scalar {
    ($of:expr, $S:ident => $body:expr) => {{
        let of: ScalarType = $of;
        with_scalar! { of, $S => $body;
            Float64 1 f64, Float32 1 f32, Float16 1 f16, BFloat16 1 bf16, Float128 1 f128,
            Float32 4 F32x4, Float32 8 F32x8, Float32 16 F32x16, Float32 64 F32x64,
            Float64 2 F64x2, Float64 4 F64x4, Float64 8 F64x8
        }
    }};
    ($of:ident, $S:ident => $body:expr; $($elem:ident $lanes:literal $t:ty),*) => {
        match ($of.elem, $of.lanes) {
            $( (DType::$elem, $lanes) => {
                type $S = $t;
                $body
            } )*
            _ => Err(no_such_type($of)),
        }
    };
}

fn no_such_type(of: ScalarType) -> Error {
    Error::BadArgument {
        what: "the scalar type of a graph",
        expected: "one number, or 4, 8, 16 or 64 of float32, 2, 4 or 8 of float64".into(),
        found: format!("{} of {}", of.lanes, of.elem.name()),
    }
}

/// Where the nodes of a new graph go.
#[derive(Debug)]
pub enum Room {
    /// Memory that grows on demand.
    Growing,
    /// Memory that grows, with this initial capacity.
    AtLeast(u32),
    /// Memory of fixed size, which never moves.
    Fixed(u32),
    /// The caller's memory, for this many nodes, or for as many as fit.
    In(&'static mut [MaybeUninit<u8>], Option<u32>),
}

/// An empty graph of these scalars.
#[optimize(size)]
pub fn make_graph(of: ScalarType, room: Room) -> Result<Box<dyn ErasedGraph>> {
    with_scalar!(of, S => Ok(Box::new(graph_in::<S>(room)?)))
}

#[optimize(size)]
fn graph_in<S: Growable>(room: Room) -> Result<Graph<'static, S>> {
    match room {
        Room::Growing => Ok(Graph::new()),
        Room::AtLeast(n) => Graph::with_capacity(n),
        Room::Fixed(n) => Graph::fixed(n),
        Room::In(memory, n) => {
            let n = n.unwrap_or_else(|| most_nodes(memory.len(), |n| bytes_needed::<S>(n)));
            Graph::in_buffers(memory, n)
        }
    }
}

/// Bytes that [`Room::In`] needs for this many nodes, with room for aligning the start.
pub fn bytes_for(of: ScalarType, nodes: u32) -> Result<usize> {
    with_scalar!(of, S => bytes_needed::<S>(nodes))
}

/// A graph from the checkpoint format, in `room`. Where it read parameters, `params` are those it shall read, in the order in
/// which the first one read them.
#[optimize(size)]
pub fn load_graph(bytes: &[u8], room: Room, params: &[&AnyParameters]) -> Result<Box<dyn ErasedGraph>> {
    let of = scalar_type_of(bytes)?;
    with_scalar!(of, S => {
        let empty = graph_in::<S>(room)?;
        let graph = typed(params, |params| Ok(Loaded::into_empty(empty, bytes, params)?.graph))?;
        Ok(Box::new(graph))
    })
}

/// The scalars of the graph in a file, all of which is checked before its type is believed.
pub fn scalar_type_of(bytes: &[u8]) -> Result<ScalarType> {
    let header = Reader::open(bytes, Kind::GRAPH)?.header();
    let elem = header.dtype.ok_or_else(|| no_such_type(ScalarType { elem: DType::Float64, lanes: 0 }))?;
    Ok(ScalarType { elem, lanes: header.lanes.into() })
}

/// The largest number of nodes that a graph in this many bytes can hold.
fn most_nodes(bytes: usize, needed: fn(u32) -> Result<usize>) -> u32 {
    let fits = |n: u32| needed(n).is_ok_and(|need| need <= bytes);
    let (mut low, mut high) = (0, u32::try_from(bytes).unwrap_or(u32::MAX));
    while low < high {
        let middle = high - (high - low) / 2;
        if fits(middle) { low = middle } else { high = middle - 1 }
    }
    low
}
