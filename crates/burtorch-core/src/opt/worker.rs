//! The computation of a client: its samples and message, and the workspace of its thread.
//!
//! Does not know other clients.

use super::method::Env;
use super::terms::{Samples, Workspace};
use crate::compress::Message;
use crate::error::Result;
use crate::memory;

/// A client.
#[derive(Debug, Default)]
pub(super) struct Worker {
    pub(super) samples: Vec<u32>,
    pub(super) message: Message<f64>,
    /// Whether the client takes part in the round.
    pub(super) is_here: bool,
}

/// Workspace of the client being processed.
#[derive(Debug, Default)]
pub(super) struct Room {
    pub(super) g: Vec<f64>,
    pub(super) x: Vec<f64>,
    pub(super) indices: Vec<u32>,
    workspace: Workspace,
    /// Holds the workspace for choosing coordinates.
    pub(super) chooser: Message<f64>,
}

/// A client's index among all clients, and among those of this process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Who {
    pub(super) k: usize,
    pub(super) here: usize,
}

/// The message of a client in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sends {
    /// Nothing: the sum is needed only for the iterate that is shown.
    Unsent,
    /// `Room::g`, uncompressed.
    Numbers,
    /// This many vectors, of which `Room::g` is the first.
    Vectors(u32),
    /// Its message.
    Message,
}

impl Room {
    /// Sets `g` to the gradient of samples at `x`, minus that at `minus`; returns the number of oracle calls.
    pub(super) fn grad(
        &mut self,
        env: &Env<'_>,
        x: &[f64],
        minus: Option<&[f64]>,
        samples: Samples<'_>,
    ) -> Result<u64> {
        self.g.clear();
        memory::reserve_in(&mut self.g, x.len(), "clients")?;
        self.g.resize(x.len(), 0.0);
        env.problem.grad(x, minus, samples, 1, &mut self.workspace, &mut self.g)?;
        Ok(samples.indices.len() as u64 * if minus.is_some() { 2 } else { 1 })
    }
}
