//! The entries of a sparse Hessian or Jacobian as one list of operations.
//!
//! The reverse pass on dual numbers, or the tangents, are recorded for each colour of the columns as operations of
//! formulas, in which zero tangents are known and equal operations are shared (`formulas`, `record`). Only the operations that
//! entries need are kept; equal operations that do not depend on each other run over slices (`groups`). An entry that costs a few
//! operations then needs no sweep over the whole program.
//!
//! Promises: if all computed numbers are finite, they are those of a run on dual numbers, bit for bit; a run reports numbers that
//! are not finite, because a zero tangent may have met an infinite partial there. Knows only the colour of each column.

mod formulas;
mod groups;
mod record;

use super::node::Program;
use super::sparsity::Pattern;
use crate::error::Result;
use crate::interrupt::Work;
use groups::Groups;
use record::Recorder;

/// See the module header.
#[derive(Clone, Debug)]
pub(super) struct Entries {
    groups: Groups,
    /// The approximate time, in nanoseconds, of a run over all nodes instead.
    otherwise: usize,
}

/// The largest number of slots times colours: recording takes some hundred bytes for each.
const MOST: usize = 1 << 22;

/// Nanoseconds per node and eight colours of a run on dual numbers: eight lanes forwards and backwards.
const SWEEP: usize = 12;

impl Entries {
    /// The entries of the Hessian of the first output. `None` if an op has no formula here.
    pub fn of_hessian(program: &Program, pattern: &Pattern, colours: &[u32], n_colours: usize) -> Result<Option<Self>> {
        Self::of(program, pattern, colours, n_colours, true)
    }

    /// The same for a Jacobian.
    pub fn of_jacobian(
        program: &Program,
        pattern: &Pattern,
        colours: &[u32],
        n_colours: usize,
    ) -> Result<Option<Self>> {
        Self::of(program, pattern, colours, n_colours, false)
    }

    fn of(
        program: &Program,
        pattern: &Pattern,
        colours: &[u32],
        n_colours: usize,
        is_hessian: bool,
    ) -> Result<Option<Self>> {
        if program.n_slots().saturating_mul(n_colours) > MOST || program.calls_primitives() {
            return Ok(None);
        }
        let mut recorder = Recorder::new(program)?;
        let adjoints = if is_hessian { recorder.adjoints()? } else { Vec::new() };
        let mut entries = vec![None; pattern.columns.len()];
        let mut work = Work::default();
        for colour in 0..n_colours as u32 {
            let rates = recorder.tangents(|column| colours[column] == colour)?;
            let rates = if is_hessian { recorder.adjoint_rates(&adjoints, &rates)? } else { rates };
            for row in 0..pattern.n_rows() {
                let span = pattern.starts[row]..pattern.starts[row + 1];
                work.add(1 + span.len())?;
                let slot = if is_hessian { row } else { program.outputs()[row] as usize };
                for at in span.filter(|&at| colours[pattern.columns[at] as usize] == colour) {
                    entries[at] = rates[slot];
                }
            }
        }
        // A NaN gradient has no derivative.
        let rows = (0..pattern.n_rows()).filter(|&row| is_hessian && !pattern.row(row).is_empty());
        let checked: Vec<_> = rows.filter_map(|row| adjoints[row]).collect();
        let Some(groups) = Groups::new(recorder.finish(), program.n_inputs(), &entries, &checked)? else {
            return Ok(None);
        };
        let otherwise = SWEEP * program.nodes().len() * n_colours.div_ceil(super::derive::LANES);
        Ok(Some(Entries { groups, otherwise }))
    }

    /// Whether they take less time than runs over all nodes.
    pub fn pay(&self) -> bool {
        self.groups.time() < self.otherwise
    }

    /// Computes all entries at `x`, all inputs; returns whether all numbers are finite. If not, entries are invalid. Checks now
    /// and then whether to end early.
    pub fn run(&mut self, x: &[f64], to: &mut [f64]) -> Result<bool> {
        self.groups.run(x, to)
    }

    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        self.groups.bytes()
    }
}
