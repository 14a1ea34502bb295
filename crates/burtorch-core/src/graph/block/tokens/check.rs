//! Checks of records of blocks over tokens from a file, with the same requirements as building.
//!
//! Promises: a record that passes has valid operands, parameters and nodes, and the nodes that it fills besides its
//! outputs are directly below them; each op checks the lengths that its kernels need. Does not know files; an error
//! completes "node k ...".

use super::TokenRecord;
use super::record::FIXED;
use crate::graph::check::{Check, Checked};
use crate::graph::operands::OperandRun;
use crate::kernels::tokens::padded;

/// The requirements of a record.
pub(crate) struct Expected<'r, 'c, 'a> {
    pub(crate) record: TokenRecord<'r>,
    pub(crate) n_out: u64,
    /// The number of tokens, including padding.
    pub(crate) padded: u64,
    pub(crate) check: &'c mut Check<'a>,
}

/// Checks that a complete record, of unknown length, lies at `at`.
pub(crate) fn is_whole(check: &Check<'_>, at: u32) -> Checked {
    check.numbers(at, FIXED)?;
    let (n_runs, n_numbers) = (check.extra[at as usize + 3] as usize, check.extra[at as usize + 4] as usize);
    check.numbers(at, FIXED + 3 * n_runs + n_numbers)
}

impl<'r, 'c, 'a> Expected<'r, 'c, 'a> {
    /// Reads a record and checks the range of its operands; `of_tokens` says whether it has a number of tokens.
    pub(crate) fn read(record: &'r [u32], of_tokens: bool, check: &'c mut Check<'a>) -> Checked<Self> {
        let record = TokenRecord::read(record, 0);
        let n = record.n_tokens;
        if (n > 0) != of_tokens {
            return Err(format!("is of {n} tokens"));
        }
        for run in record.runs() {
            match run.parameters() {
                None => check.run(run.start, run.len, record.header.first)?,
                Some(_) if run.len == 0 => return Err("reads no parameters".into()),
                Some((slot, start, len)) => check.parameters(slot as u32, start as u64, len as u64)?,
            }
        }
        Ok(Expected { record, n_out: u64::from(record.header.n_out), padded: padded(n) as u64, check })
    }

    /// All operands, in order.
    pub(crate) fn runs(&self) -> Vec<OperandRun> {
        self.record.runs().collect()
    }

    pub(crate) fn four(&self) -> Checked<[OperandRun; 4]> {
        let runs: Vec<OperandRun> = self.record.runs().collect();
        <[OperandRun; 4]>::try_from(runs).map_err(|runs| format!("has {} operands, expected 4", runs.len()))
    }

    /// Token ids or classes: one per token and lane, all less than `n`.
    pub(crate) fn classes(&self, n: u64) -> Checked {
        let (found, expected) = (self.record.numbers.len(), self.record.n_tokens * self.check.lanes);
        match self.record.numbers.iter().find(|&&number| u64::from(number) >= n) {
            _ if found != expected => Err(format!("has {found} symbols, expected {expected}")),
            Some(number) => Err(format!("has symbol {number} of {n}")),
            None => Ok(()),
        }
    }

    pub(crate) fn no_numbers(&self) -> Checked {
        match self.record.numbers.len() {
            0 => Ok(()),
            n => Err(format!("has {n} symbols, expected none")),
        }
    }

    /// Nodes filled besides the outputs: `n` constants directly below them; `operands` lie below these constants.
    pub(crate) fn aside(&self, aside: OperandRun, n: u64, operands: &[OperandRun]) -> Checked {
        let ends = aside.start + aside.len == self.record.header.first;
        if u64::from(aside.len) != n || !ends || aside.len > self.check.n_constants {
            return Err(format!("fills {} nodes from {}, expected {n} constants below it", aside.len, aside.start));
        }
        operands.iter().try_for_each(|run| self.check.run(run.start, run.len, aside.start))
    }
}

pub(crate) fn of_parameters(runs: &[OperandRun]) -> Checked {
    match runs.iter().all(|run| run.source > 0) {
        true => Ok(()),
        false => Err("reads nodes where parameters were expected".into()),
    }
}

pub(crate) fn of_nodes(runs: &[OperandRun]) -> Checked {
    match runs.iter().all(|run| run.source == 0) {
        true => Ok(()),
        false => Err("reads parameters where nodes were expected".into()),
    }
}
