//! Memory of an oracle between calls, in bytes.
//!
//! Promises: counts all reserved memory, in use or not, without touching it. Does not know parameters.

use std::ops::Add;

use super::Oracle;
use super::lanes::{LaneFloat, LaneGraph};
use super::workspace::Workspace;
use crate::graph::Graph;
use crate::kernels::BlockMath;
use crate::scalar::Scalar;

/// Bytes that an oracle keeps between calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OracleMemory {
    /// Nodes without their adjoints, and the working memory of block ops.
    pub activations: usize,
    /// Adjoints of nodes, gradients of chunks of samples that several threads share, and those that are kept apart from the
    /// parameters'.
    pub adjoints: usize,
    /// Samples that fill up groups.
    pub samples: usize,
}

impl Add for OracleMemory {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        OracleMemory {
            activations: self.activations + other.activations,
            adjoints: self.adjoints + other.adjoints,
            samples: self.samples + other.samples,
        }
    }
}

impl<S: Scalar> Graph<'_, S> {
    /// What the graph is to an oracle.
    pub fn oracle_memory(&self) -> OracleMemory {
        let memory = self.memory();
        let activations = memory.reserved - memory.reserved_adjoints;
        OracleMemory { activations, adjoints: memory.reserved_adjoints, samples: 0 }
    }
}

impl<S: BlockMath> LaneGraph<S> {
    fn memory(&self) -> OracleMemory {
        let working = OracleMemory { activations: self.working_bytes(), ..OracleMemory::default() };
        self.graph.oracle_memory() + working
    }
}

impl<E: LaneFloat> Workspace<E> {
    pub(super) fn memory(&self) -> OracleMemory {
        let Workspace { single, narrow, middle, wide, block, padding, sampled, .. } = self;
        let activations = sampled.capacity() * size_of::<E>();
        let samples = OracleMemory { samples: padding.bytes(), activations, ..OracleMemory::default() };
        single.oracle_memory() + narrow.memory() + middle.memory() + wide.memory() + block.memory() + samples
    }
}

impl<E: LaneFloat> Oracle<E> {
    /// What it keeps between calls; grows with the first calls of each batch size, then stays.
    pub fn memory(&self) -> OracleMemory {
        let adjoints = self.all.capacity() * size_of::<E>() + self.in_flight.bytes();
        self.workspace.memory() + self.team.memory() + OracleMemory { adjoints, ..OracleMemory::default() }
    }
}
