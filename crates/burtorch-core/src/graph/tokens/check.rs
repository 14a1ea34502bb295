//! Records of blocks over tokens that come from a file: what building would have refused is refused here.
//!
//! Promises: a record that passes has the operands, lengths and numbers that its op's kernels ask for, parameters and nodes
//! where they belong, and the nodes that it fills beside its outputs right below them.
//! Knows nothing of files; what is wrong completes "node k ...".

use super::TokenRecord;
use super::record::FIXED;
use crate::graph::operands::OperandRun;
use crate::graph::structure::{Check, Checked};
use crate::kernels::tokens::{AffinePull, AttentionShape, LayerNormPull, TOKEN_LANES, padded};
use crate::ops::Op;

/// What a record must agree with.
struct Expected<'r, 'c, 'a> {
    record: TokenRecord<'r>,
    n_out: u64,
    /// Tokens, padding included.
    padded: u64,
    check: &'c mut Check<'a>,
}

/// Checks that a record of an unknown length lies at `at`, so that it can be read.
pub(crate) fn check_is_whole(check: &Check<'_>, at: u32) -> Checked {
    check.numbers(at, FIXED)?;
    let (n_runs, n_numbers) = (check.extra[at as usize + 3] as usize, check.extra[at as usize + 4] as usize);
    check.numbers(at, FIXED + 3 * n_runs + n_numbers)
}

/// See [`Check::block`].
pub(crate) fn check(op: Op, record: &[u32], check: &mut Check<'_>) -> Checked {
    let record = TokenRecord::read(record, 0);
    let n_out = u64::from(record.header.n_out);
    let n = record.n_tokens;
    if (n == 0) != (op == Op::AddRanges) {
        return Err(format!("is of {n} tokens"));
    }
    for run in record.runs() {
        match run.parameters() {
            None => check.run(run.start, run.len, record.header.first)?,
            Some(_) if run.len == 0 => return Err("reads none of the parameters".into()),
            Some((slot, start, len)) => check.parameters(slot as u32, start as u64, len as u64)?,
        }
    }
    let mut expected = Expected { record, n_out, padded: padded(n) as u64, check };
    match op {
        Op::TokenEmbedding => expected.embedding(),
        Op::TokenAffine => expected.affine(),
        Op::LayerNorm => expected.layer_norm(),
        Op::CausalAttention => expected.attention(),
        Op::TokenCrossEntropy => expected.cross_entropy(),
        _ => expected.add_ranges(),
    }
}

impl Expected<'_, '_, '_> {
    fn embedding(&mut self) -> Checked {
        let [width, rest] = self.record.own;
        let (n, width) = (self.record.n_tokens as u64, u64::from(width));
        let runs: Vec<OperandRun> = self.record.runs().collect();
        let (table, positions) = match runs[..] {
            [table] => (table, None),
            [table, positions] => (table, Some(positions)),
            _ => return Err(format!("has {} operands, expected 1 or 2", runs.len())),
        };
        of_parameters(&runs)?;
        if width == 0 || rest != 0 || self.padded * width != self.n_out || !u64::from(table.len).is_multiple_of(width) {
            return Err(format!("has {} outputs and a table of {} in rows of {width}", self.n_out, table.len));
        }
        if let Some(positions) = positions.filter(|positions| u64::from(positions.len) != n * width) {
            return Err(format!("has {} numbers of positions, expected {}", positions.len, n * width));
        }
        self.classes(u64::from(table.len) / width)?;
        self.check.temporaries(2 * self.n_out as usize);
        Ok(())
    }

    fn affine(&mut self) -> Checked {
        let [how, n_in] = self.record.own;
        let (has_bias, n_in) = (how & 2 > 0, u64::from(n_in));
        let runs: Vec<OperandRun> = self.record.runs().collect();
        let n_parameters = 1 + usize::from(has_bias);
        let Some((parameters, inputs)) = runs.split_at_checked(n_parameters).filter(|(_, x)| !x.is_empty()) else {
            return Err(format!("has {} operands", runs.len()));
        };
        of_parameters(parameters)?;
        of_nodes(inputs)?;
        self.no_numbers()?;
        let n_features = self.n_out / self.padded;
        let total: u64 = inputs.iter().map(|run| u64::from(run.len)).sum();
        let whole = inputs.iter().all(|run| u64::from(run.len).is_multiple_of(self.padded));
        if how > 3 || !whole || n_in == 0 || total != n_in * self.padded || n_features * self.padded != self.n_out {
            return Err(format!("has {total} inputs and {} outputs of {n_in} features", self.n_out));
        }
        let bias = parameters.get(1).map_or(n_features, |bias| u64::from(bias.len));
        if u64::from(parameters[0].len) != n_in * n_features || bias != n_features {
            return Err(format!("has {} weights and {bias} biases for {n_in} x {n_features}", parameters[0].len));
        }
        let [n_in, n_features, padded] = [n_in, n_features, self.padded].map(|n| n as usize);
        let scratch = AffinePull::<f64>::scratch_len(n_in, n_features);
        self.check.temporaries(3 * padded * n_in.max(n_features) + scratch);
        Ok(())
    }

    fn layer_norm(&mut self) -> Checked {
        let [gain, bias, x, aside] = self.four()?;
        of_parameters(&[gain, bias])?;
        of_nodes(&[x, aside])?;
        self.no_numbers()?;
        let width = self.n_out / self.padded;
        let eps = self.record.own_float();
        if width * self.padded != self.n_out
            || [x.len, gain.len, bias.len] != [self.n_out, width, width].map(|n| n as u32)
        {
            return Err(format!(
                "has {} outputs, {} inputs, {} gains and {} biases",
                self.n_out, x.len, gain.len, bias.len
            ));
        }
        if !(eps.is_finite() && eps >= 0.0) {
            return Err(format!("has eps {eps}, expected finite and at least 0"));
        }
        self.aside(aside, 2 * self.padded, &[x])?;
        self.check.temporaries(self.n_out as usize + LayerNormPull::<f64>::scratch_len(width as usize));
        Ok(())
    }

    fn attention(&mut self) -> Checked {
        let [q, k, v, aside] = self.four()?;
        of_nodes(&[q, k, v, aside])?;
        self.no_numbers()?;
        let [heads, width] = self.record.own;
        let lengths = [q.len, k.len, v.len].map(u64::from);
        if heads == 0 || !width.is_multiple_of(heads) || self.padded * u64::from(width) != self.n_out {
            return Err(format!("has {heads} heads, {width} features and {} outputs", self.n_out));
        }
        if lengths != [self.n_out; 3] {
            return Err(format!("has operands of {lengths:?}, expected {}", self.n_out));
        }
        let shape = AttentionShape { heads: heads as usize, width: width as usize };
        let probs = shape.probs_len(self.padded as usize / TOKEN_LANES);
        self.aside(aside, probs as u64, &[q, k, v])?;
        self.check.temporaries(5 * self.n_out as usize);
        Ok(())
    }

    fn cross_entropy(&mut self) -> Checked {
        let runs: Vec<OperandRun> = self.record.runs().collect();
        let [logits, aside] = runs[..] else {
            return Err(format!("has {} operands, expected 2", runs.len()));
        };
        of_nodes(&runs)?;
        let width = u64::from(logits.len) / self.padded;
        if self.n_out != 1 || width * self.padded != u64::from(logits.len) || self.record.own != [0, 0] {
            return Err(format!(
                "has {} logits of {} tokens, {} outputs",
                logits.len, self.record.n_tokens, self.n_out
            ));
        }
        self.aside(aside, u64::from(logits.len), &[logits])?;
        self.classes(width)
    }

    fn add_ranges(&mut self) -> Checked {
        let runs: Vec<OperandRun> = self.record.runs().collect();
        of_nodes(&runs)?;
        self.no_numbers()?;
        if runs.len() != 2 || runs.iter().any(|run| u64::from(run.len) != self.n_out) || self.record.own != [0, 0] {
            return Err(format!("adds {} ranges, expected two of {}", runs.len(), self.n_out));
        }
        self.check.temporaries(self.n_out as usize);
        Ok(())
    }

    fn four(&self) -> Checked<[OperandRun; 4]> {
        let runs: Vec<OperandRun> = self.record.runs().collect();
        <[OperandRun; 4]>::try_from(runs).map_err(|runs| format!("has {} operands, expected 4", runs.len()))
    }

    /// Symbols or classes: one for each token and lane, all below `n`.
    fn classes(&self, n: u64) -> Checked {
        let (found, expected) = (self.record.numbers.len(), self.record.n_tokens * self.check.lanes);
        match self.record.numbers.iter().find(|&&number| u64::from(number) >= n) {
            _ if found != expected => Err(format!("has {found} symbols, expected {expected}")),
            Some(number) => Err(format!("has symbol {number} of {n}")),
            None => Ok(()),
        }
    }

    fn no_numbers(&self) -> Checked {
        match self.record.numbers.len() {
            0 => Ok(()),
            n => Err(format!("has {n} symbols, expected none")),
        }
    }

    /// Nodes that are filled beside the outputs: `n` constants right below them, which `operands` lie below.
    fn aside(&self, aside: OperandRun, n: u64, operands: &[OperandRun]) -> Checked {
        let ends = aside.start + aside.len == self.record.header.first;
        if u64::from(aside.len) != n || !ends || aside.len > self.check.n_constants {
            return Err(format!("fills {} nodes from {}, expected {n} constants below it", aside.len, aside.start));
        }
        operands.iter().try_for_each(|run| self.check.run(run.start, run.len, aside.start))
    }
}

fn of_parameters(runs: &[OperandRun]) -> Checked {
    match runs.iter().all(|run| run.source > 0) {
        true => Ok(()),
        false => Err("reads nodes where parameters were expected".into()),
    }
}

fn of_nodes(runs: &[OperandRun]) -> Checked {
    match runs.iter().all(|run| run.source == 0) {
        true => Ok(()),
        false => Err("reads parameters where nodes were expected".into()),
    }
}
