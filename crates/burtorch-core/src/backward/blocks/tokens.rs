//! The sweep through block ops over tokens.
//!
//! Where all numbers of a tensor are trainable, kernels write its gradient in place; a tensor frozen in part, or one
//! stepped during the sweep, takes its contributions one by one. Adjoints of inputs are added to in place where an
//! input is one range.

use std::ops::Range;

use super::super::Values;
use super::super::sweep::Sweep;
use crate::graph::{AffineParts, OperandRun, TokenRecord, attention_shape, gathered};
use crate::kernels::tokens::{AffinePull, AttentionPull, LayerNormPull, TOKEN_LANES, Target, padded};
use crate::ops::Op;
use crate::scalar::{Float, Scalar};

const L: usize = TOKEN_LANES;

/// A tensor's values, and where gradients of it and of a second tensor may be written as a whole.
struct Targets<'a, E: Float> {
    values: &'a [E],
    first: Target<'a, E>,
    second: Target<'a, E>,
}

impl<S: Scalar> Sweep<'_, '_, S> {
    /// Hands on the adjoints of the outputs of a block, of which `top` is the last that was reached.
    pub(super) fn token_block(&mut self, op: Op, at: u32, top: u32) {
        let record = TokenRecord::read(self.extra, at);
        let all_scratch = std::mem::take(&mut self.scratch);
        let all_adjoints = std::mem::take(&mut self.adjoints);
        let (below, outputs) = all_adjoints.split_at_mut((record.header.first - self.base) as usize);
        let (n_met, n_out) = ((top + 1 - record.header.first) as usize, record.header.n_out as usize);
        let (copy, scratch) = all_scratch.split_at_mut(if n_met < n_out { n_out } else { 0 });
        let dy = if n_met < n_out {
            copy[..n_met].copy_from_slice(&outputs[..n_met]);
            copy[n_met..].fill(S::UNREACHED);
            copy
        } else {
            &outputs[..n_out]
        };
        match op {
            Op::TokenEmbedding => self.pull_embedding(record, dy, scratch),
            Op::TokenAffine => self.pull_affine(record, dy, below, scratch),
            Op::LayerNorm => self.pull_layer_norm(record, dy, below, scratch),
            Op::CausalAttention => self.pull_attention(record, dy, below, scratch),
            Op::TokenCrossEntropy => self.pull_cross_entropy(record, dy[0], below),
            _ => (0..2).for_each(|k| self.pass_to(record.run(k), dy, below)),
        }
        self.scratch = all_scratch;
        self.adjoints = all_adjoints;
    }

    /// The adjoints of a run of nodes among those `below`.
    fn adjoints_of<'b>(&mut self, run: OperandRun, below: &'b mut [S]) -> &'b mut [S] {
        self.low = self.low.min(run.start);
        &mut below[(run.start - self.base) as usize..][..run.len as usize]
    }

    fn pass_to(&mut self, run: OperandRun, g: &[S], below: &mut [S]) {
        if self.wants(run) {
            S::pass_on(g, self.adjoints_of(run, below));
        }
    }

    /// Whether some node of the run can receive a gradient. The last node of a range speaks for it.
    fn wants(&self, run: OperandRun) -> bool {
        let last = (run.start + run.len - 1) as usize;
        match self.recorded.ops[last] {
            Op::Constant => run.range().any(|node| self.recorded.ops[node] != Op::Constant),
            Op::TokenEmbedding => {
                let record = TokenRecord::read(self.extra, self.recorded.operands[last][0]);
                record.header.first != run.start || record.runs().any(|tensor| self.is_any_trainable(tensor))
            }
            _ => true,
        }
    }

    fn place_of(&self, run: OperandRun) -> usize {
        self.places[run.source as usize - 1] as usize
    }

    fn is_any_trainable(&self, run: OperandRun) -> bool {
        self.params[self.place_of(run)].any_trainable(run.range())
    }

    /// Whether kernels may write the gradient of all of a tensor.
    fn is_whole(&self, run: OperandRun) -> bool {
        let store = &self.params[self.place_of(run)];
        matches!(store.values, Values::Kept(_)) && store.all_trainable(run.range())
    }

    /// Values of `first`, and targets for the gradients of `first` and `second`, those that [`Sweep::is_whole`].
    fn targets(&mut self, first: OperandRun, second: Option<OperandRun>) -> (Targets<'_, S::Elem>, [bool; 2]) {
        let beside = |second: &OperandRun| {
            let (a, b) = (first.range(), second.range());
            second.source == first.source && (a.end <= b.start || b.end <= a.start)
        };
        let second_whole = second.filter(|second| beside(second) && self.is_whole(*second));
        let first_whole = self.is_whole(first);
        let pieces = [
            !first_whole && self.is_any_trainable(first),
            second_whole.is_none() && second.is_some_and(|second| self.is_any_trainable(second)),
        ];
        let place = self.place_of(first);
        let store = &mut self.params[place];
        let modes =
            (first_whole.then(|| store.mode(first.range())), second_whole.map(|second| store.mode(second.range())));
        let values: &[S::Elem] = match &store.values {
            Values::Kept(values) => values,
            Values::Stepped(values, _) => values,
        };
        // Tensors that overlap are not both whole, so the ranges are apart.
        let none = 0..0;
        let ranges = [first.range(), second_whole.map_or(none, OperandRun::range)];
        let (a, b) = match store.grads.get_disjoint_mut(ranges) {
            Ok([a, b]) if first_whole => (Some(a), Some(b)),
            Ok([_, b]) => (None, Some(b)),
            Err(_) => (None, None),
        };
        let values = &values[first.range()];
        let (a, b) = (a.zip(modes.0), b.zip(modes.1));
        (Targets { values, first: a, second: b }, pieces)
    }

    fn pull_affine(&mut self, record: TokenRecord<'_>, dy: &[S], below: &mut [S], scratch: &mut [S]) {
        let (layer, n_in) = (AffineParts::of(record), record.own[1] as usize);
        let values = self.recorded.values;
        let y = &values[record.outputs(0)];
        let inputs = || record.runs().skip(layer.n_parameters);
        let len = padded(record.n_tokens) * n_in;
        let in_place = record.run(layer.n_parameters).len as usize == len;
        let (copies, scratch) = scratch.split_at_mut(if in_place { 0 } else { 2 * len });
        let (x_copy, dx_copy) = copies.split_at_mut(copies.len() / 2);
        let x = gathered(record, layer.n_parameters, values, n_in, x_copy);
        let wanted = inputs().any(|run| self.wants(run));
        let dx = match (wanted, in_place) {
            (false, _) => None,
            (true, true) => Some(self.adjoints_of(record.run(layer.n_parameters), below)),
            (true, false) => {
                dx_copy.fill(S::UNREACHED);
                Some(&mut *dx_copy)
            }
        };
        let (targets, [pieces_w, pieces_b]) = self.targets(layer.w, layer.bias);
        let Targets { values: w, first: dw, second: db } = targets;
        S::token_affine_pull(AffinePull { n_in, w, relu: layer.relu, dy, y, x, dx, dw, db, scratch });
        if pieces_w || pieces_b {
            self.affine_pieces(layer, n_in, dy, y, x, [pieces_w, pieces_b]);
        }
        if wanted && !in_place {
            self.scatter_features(inputs(), padded(record.n_tokens) / L, dx_copy, below);
        }
    }

    /// Adds the parts of `dx`, group by group, to the runs whose features it takes together.
    fn scatter_features(
        &mut self,
        runs: impl Iterator<Item = OperandRun> + Clone,
        groups: usize,
        dx: &[S],
        below: &mut [S],
    ) {
        let mut at = 0;
        for group in 0..groups {
            for run in runs.clone() {
                let len = run.len / groups as u32;
                let part = OperandRun { start: run.start + group as u32 * len, len, ..run };
                S::pass_on(&dx[at..at + len as usize], self.adjoints_of(part, below));
                at += len as usize;
            }
        }
    }

    /// Contributions to weights and biases, one by one.
    fn affine_pieces(&mut self, layer: AffineParts, n_in: usize, dy: &[S], y: &[S], x: &[S], pieces: [bool; 2]) {
        let n_out = layer.w.len as usize / n_in;
        for (k, &d) in dy.iter().enumerate().filter(|(_, d)| !d.is_unreached()) {
            let (g, o, t) = (k / (n_out * L), k / L % n_out, k % L);
            let kept = S::select(S::lit(0.0).less(y[k]), d, S::select(y[k].nan_mask(), y[k], S::lit(0.0)));
            let d = if layer.relu { kept } else { d };
            for i in (0..n_in).filter(|_| pieces[0]) {
                let index = layer.w.start as usize + o * n_in + i;
                self.add_parameter(layer.w.source - 1, index, d * x[(g * n_in + i) * L + t]);
            }
            if let (Some(bias), true) = (layer.bias, pieces[1]) {
                self.add_parameter(bias.source - 1, bias.start as usize + o, d);
            }
        }
    }

    fn pull_layer_norm(&mut self, record: TokenRecord<'_>, dy: &[S], below: &mut [S], scratch: &mut [S]) {
        let values = self.recorded.values;
        let [gain, bias, input, aside] = [0, 1, 2, 3].map(|k| record.run(k));
        let (x, stats) = (&values[input.range()], &values[aside.range()]);
        let dx = if self.wants(input) { Some(self.adjoints_of(input, below)) } else { None };
        let (targets, pieces) = self.targets(gain, Some(bias));
        let Targets { values, first: dgain, second: dbias } = targets;
        S::token_layer_norm_pull(LayerNormPull { gain: values, dy, x, stats, dx, dgain, dbias, scratch });
        if pieces == [false, false] {
            return;
        }
        let n = gain.len as usize;
        for (k, &d) in dy.iter().enumerate().filter(|(_, d)| !d.is_unreached()) {
            let (g, i, t) = (k / (n * L), k / L % n, k % L);
            let unit = (x[k] - stats[g * 2 * L + t]) * stats[(g * 2 + 1) * L + t];
            for (run, c) in [(gain, d * unit), (bias, d)].into_iter().zip(pieces).filter(|(_, p)| *p).map(|(r, _)| r) {
                self.add_parameter(run.source - 1, run.start as usize + i, c);
            }
        }
    }

    fn pull_attention(&mut self, record: TokenRecord<'_>, dout: &[S], below: &mut [S], scratch: &mut [S]) {
        let values = self.recorded.values;
        let len = dout.len();
        let (grads, scratch) = scratch.split_at_mut(3 * len);
        S::token_attention_pull(AttentionPull {
            shape: attention_shape(record),
            qkv: [0, 1, 2].map(|k| &values[record.run(k).range()]),
            probs: &values[record.run(3).range()],
            out: &values[record.outputs(0)],
            dout,
            grads,
            scratch: &mut scratch[..len],
        });
        for (k, grads) in grads.chunks_exact(len).enumerate() {
            self.pass_to(record.run(k), grads, below);
        }
    }

    fn pull_cross_entropy(&mut self, record: TokenRecord<'_>, g: S, below: &mut [S]) {
        let probs = &self.recorded.values[record.run(1).range()];
        if self.wants(record.run(0)) {
            let g = g / S::lit(record.n_tokens as f64);
            let dlogits = self.adjoints_of(record.run(0), below);
            S::token_cross_entropy_pull(g, record.n_tokens, record.numbers, probs, dlogits);
        }
    }

    fn pull_embedding(&mut self, record: TokenRecord<'_>, dy: &[S], scratch: &mut [S]) {
        let (n, width) = (record.n_tokens, record.own[0] as usize);
        let table = record.run(0);
        let table = self.is_any_trainable(table).then_some(table);
        let positions = record.runs().nth(1).filter(|&run| self.is_any_trainable(run));
        if table.is_none() && positions.is_none() {
            return;
        }
        let at = |t: usize, f: usize| (t / L * width + f) * L + t % L;
        let rows = &mut scratch[..n * width];
        for t in 0..n {
            (0..width).for_each(|f| rows[t * width + f] = dy[at(t, f)]);
        }
        let all_reached = S::all_reached(rows);
        if let Some(run) = positions {
            self.add_reached(run, 0..n * width, rows, all_reached);
        }
        for (t, row) in rows.chunks_exact(width).enumerate().filter(|_| table.is_some()) {
            for (lane, tokens) in record.numbers.chunks_exact(n).enumerate() {
                let first = tokens[t] as usize * width;
                let Some(run) = table else { break };
                if S::LANES == 1 {
                    self.add_reached(run, first..first + width, row, all_reached);
                    continue;
                }
                for (f, g) in row.iter().enumerate().filter(|(_, g)| !g.is_unreached()) {
                    let own = S::lit(0.0).with_lane(lane, g.lane(lane));
                    self.add_parameter(run.source - 1, run.start as usize + first + f, own);
                }
            }
        }
    }

    /// Adds the reached ones of `g` to the gradients of numbers `part` of a tensor.
    fn add_reached(&mut self, run: OperandRun, part: Range<usize>, g: &[S], all_reached: bool) {
        let start = run.start as usize + part.start;
        if all_reached {
            return self.add_parameters(run.source - 1, start, g);
        }
        for (k, &g) in g.iter().enumerate().filter(|(_, g)| !g.is_unreached()) {
            self.add_parameter(run.source - 1, start + k, g);
        }
    }
}
