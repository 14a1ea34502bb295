//! Contributions of a dense layer to its inputs, weights and biases.
//!
//! Promises: as `affine`, whose record it reads; gradients of a part have the same bits as those of the whole.

use super::super::Range;
use super::super::deferred::{Application, DenseLayer, MAX_GROUPS};
use super::super::operands::Encoded;
use super::super::sampling::Application as Sampled;
use super::super::sweep::Sweep;
use super::affine::AffineRecord;
use super::gather::GatherRecord;
use crate::kernels::{BlockMath, PANEL, WeightParts, Working};
use crate::ops::Op;
use crate::params::{Gradients, Values, apart};

/// The largest number of columns computed one by one: each costs as much as several adjacent ones.
const FEW: usize = 64;

impl<S: BlockMath> Sweep<'_, '_, S> {
    pub(super) fn affine(&mut self, record: AffineRecord, top: u32) {
        let n_out = record.header.n_out as usize;
        let n_met = (top + 1 - record.header.first) as usize;
        let met = &self.adjoints[self.place(record.header.first, top)];
        let all_reached = n_met == n_out && S::all_reached(met);
        match record.x.contiguous() {
            Some(x) if all_reached && self.affine_in_place(record, x) => {}
            _ => self.affine_gathered(record, n_met, all_reached),
        }
    }

    /// The usual case: contiguous inputs and every output reached. Copies nothing. Returns `false`, having done
    /// nothing, in other cases.
    fn affine_in_place(&mut self, record: AffineRecord, x: Range) -> bool {
        let weights = record.weights();
        let store = &self.params[self.places[record.w_slot as usize] as usize];
        let along = self.bias_goes_along(&record);
        let bias = record.bias().filter(|_| along).map(|(_, at)| at);
        let grows = store.wants_any(weights.clone()) || bias.is_some_and(|at| store.wants_any(at));
        let stepped = matches!(store.values, Values::Stepped(..));
        if grows && !along || stepped && !self.is_whole(&record) {
            return false;
        }
        if stepped {
            return self.affine_stepped(record, x);
        }
        if self.wants_gradient(record.x) {
            let overwrites = self.is_fresh(&x.indices());
            let (below, outputs) = self.adjoints.split_at_mut((record.header.first - self.base) as usize);
            let dy = &outputs[..record.header.n_out as usize];
            let dx = &mut below[(x.start - self.base) as usize..][..x.len()];
            // Adding row by row to existing sums would round differently from adding the finished sum.
            let working = Working { memory: &mut *self.scratch, n_threads: self.n_threads };
            if overwrites {
                S::affine_input_grad_set(&store.values()[weights], dy, dx, working);
                self.overwritten = std::mem::take(&mut self.fresh);
            } else if S::none_reached(dx) {
                S::affine_input_grad_add(&store.values()[weights], dy, dx, working);
            } else {
                return false;
            }
            self.low = self.low.min(x.start);
        }
        if grows {
            self.weight_grad(&record);
        } else if let Some((slot, at)) = record.bias() {
            let scratch = std::mem::take(&mut self.scratch);
            let dy = &mut scratch[..at.len()];
            dy.copy_from_slice(&self.adjoints[(record.header.first - self.base) as usize..][..at.len()]);
            self.add_parameters(slot as u32, at.start, dy);
            self.scratch = scratch;
        }
        true
    }

    /// As [`Sweep::affine_in_place`], but updates weights and biases against their gradients at once.
    fn affine_stepped(&mut self, record: AffineRecord, x: Range) -> bool {
        let wanted = self.wants_gradient(record.x);
        let overwrites = wanted && self.is_fresh(&x.indices());
        let (below, outputs) = self.adjoints.split_at_mut((record.header.first - self.base) as usize);
        let dy = &outputs[..record.header.n_out as usize];
        let dx = wanted.then(|| &mut below[(x.start - self.base) as usize..][..x.len()]);
        // Existing contributions would be overwritten.
        if !overwrites && dx.as_ref().is_some_and(|dx| !S::none_reached(dx)) {
            return false;
        }
        let bias = record.bias().map(|(_, at)| at);
        let store = &mut self.params[self.places[record.w_slot as usize] as usize];
        let bias = bias.filter(|at| store.wants_any(at.clone()));
        let Values::Stepped(values, lr) = &mut store.values else {
            return false;
        };
        let (w, bias) = match bias {
            Some(at) => {
                let (w, bias) = apart(values, record.weights(), at);
                (w, Some(bias))
            }
            None => (&mut values[record.weights()], None),
        };
        // The scratch holds the inputs of a group: it is as long as a panel, or longer than the transposed part.
        let working = Working { memory: &mut *self.scratch, n_threads: self.n_threads };
        S::affine_descend(*lr, dy, &self.recorded.values[x.indices()], w, bias, dx, working);
        if overwrites {
            self.overwritten = std::mem::take(&mut self.fresh);
        }
        if wanted {
            self.low = self.low.min(x.start);
        }
        true
    }

    /// Whether weights and biases lie in one `Parameters` without overlap.
    fn bias_goes_along(&self, record: &AffineRecord) -> bool {
        let (place, weights) = (self.places[record.w_slot as usize], record.weights());
        let is_apart = |at: std::ops::Range<usize>| at.start >= weights.end || at.end <= weights.start;
        record.bias().is_none_or(|(slot, at)| self.places[slot] == place && is_apart(at))
    }

    /// Whether the gradients of all weights, and of all biases or none, are requested.
    fn is_whole(&self, record: &AffineRecord) -> bool {
        let store = &self.params[self.places[record.w_slot as usize] as usize];
        let all_or_none =
            |(_, at): (usize, std::ops::Range<usize>)| store.wants_all(at.clone()) || !store.wants_any(at);
        store.wants_all(record.weights()) && record.bias().is_none_or(all_or_none)
    }

    /// The general case: inputs from several ranges, unreached outputs, frozen rows, or values that change during the
    /// backward pass.
    fn affine_gathered(&mut self, record: AffineRecord, n_met: usize, all_reached: bool) {
        self.mark_fresh();
        let (n_in, n_out) = (record.n_in as usize, record.header.n_out as usize);
        let scratch = std::mem::take(&mut self.scratch);
        let (gathered, rest) = scratch.split_at_mut(n_in);
        let (dx, rest) = rest.split_at_mut(n_in);
        let (dy, memory) = rest.split_at_mut(n_out);
        let working = Working { memory, n_threads: self.n_threads };
        let first = (record.header.first - self.base) as usize;
        dy[..n_met].copy_from_slice(&self.adjoints[first..first + n_met]);
        dy[n_met..].fill(S::UNREACHED);
        let x = match record.x.contiguous() {
            Some(run) => &self.recorded.values[run.indices()],
            None => self.gather(record.x, gathered),
        };
        let input_grad = self.affine_matrix(record, [dy, x], dx, all_reached, working);
        if let Some((slot, at)) = record.bias() {
            self.affine_bias(slot as u32, at, dy, all_reached);
        }
        if input_grad {
            self.scatter(record.x, dx);
        }
        self.scratch = scratch;
    }

    /// Adds the contributions to the inputs to `dx`, and those to the weights to their gradients.
    fn affine_matrix(
        &mut self,
        record: AffineRecord,
        [dy, x]: [&[S]; 2],
        dx: &mut [S],
        all_reached: bool,
        working: Working<'_, S>,
    ) -> bool {
        let (weights, n_in) = (record.weights(), x.len());
        let wanted = self.wants_gradient(record.x);
        let mut columns = [0; FEW];
        let columns = if wanted { self.columns_wanted(record.x, &mut columns) } else { None };
        let store = &mut self.params[self.places[record.w_slot as usize] as usize];
        let whole = all_reached && store.wants_all(weights.clone());
        if let (true, Values::Stepped(values, lr)) = (whole, &mut store.values) {
            let mut panel = [S::UNREACHED; PANEL];
            let Working { memory, n_threads } = working;
            let memory = if memory.len() < PANEL { &mut panel } else { memory };
            let working = Working { memory, n_threads };
            S::affine_descend(*lr, dy, x, &mut values[weights], None, wanted.then_some(dx), working);
            return wanted;
        }
        if wanted {
            let weights = &store.values()[weights.clone()];
            dx.fill(S::UNREACHED);
            if let (true, Some(columns)) = (all_reached, columns) {
                S::affine_input_grad_columns(weights, dy, columns, dx, working);
            } else if all_reached {
                S::affine_input_grad_add(weights, dy, dx, working);
            } else {
                for (&dy, row) in dy.iter().zip(weights.chunks_exact(n_in)).filter(|(dy, _)| !dy.is_unreached()) {
                    for (dx, &w) in dx.iter_mut().zip(row) {
                        *dx = *dx + (S::splat(w) * dy + S::lit(0.0));
                    }
                }
            }
        }
        if store.wants_any(weights.clone()) {
            let (node, skipped) = (record.header.first, store.skipped);
            let mut sampler = self.sampler.take();
            let x = match &mut sampler {
                Some(sampler) => {
                    sampler.begin();
                    sampler.add(Sampled { node, along: 1, n_in, x, dy, cut: None, weights, skipped });
                    sampler.sampled()
                }
                None => x,
            };
            self.affine_weights(record, [dy, x], (whole, all_reached));
            self.sampler = sampler;
        }
        wanted
    }

    /// Adds the contributions to the weights, of which only some are requested.
    fn affine_weights(&mut self, record: AffineRecord, [dy, x]: [&[S]; 2], (whole, all_reached): (bool, bool)) {
        let (weights, n_in) = (record.weights(), x.len());
        let store = &mut self.params[self.places[record.w_slot as usize] as usize];
        let mut panel = [S::UNREACHED; PANEL];
        if whole {
            let (mode, dw) = store.whole(weights);
            return S::affine_weight_grad(&[dy], &[x], dw, None, mode, Working::alone(&mut panel));
        }
        if all_reached && matches!(store.values, Values::Kept(_)) {
            return weight_parts(store, weights, &[dy], &[x], &mut panel);
        }
        for (o, &dy) in dy.iter().enumerate().filter(|(_, dy)| !dy.is_unreached()) {
            self.affine_row(record.w_slot, weights.start + o * n_in, dy, x);
        }
    }

    /// Whether any operand can receive a gradient now.
    fn wants_gradient(&self, operands: Encoded) -> bool {
        let store = |slot: u32| &self.params[self.places[slot as usize] as usize];
        let mut wants = false;
        operands.for_each_run(self.extra, |run| {
            wants = wants
                || match run.source {
                    0 => self.nodes_want_gradient(run.range()),
                    source => store(source - 1).wants_any(run.range()),
                };
        });
        wants
    }

    /// The columns of inputs that receive a gradient, if all inputs are parameters and few gradients are requested.
    fn columns_wanted<'c>(&self, operands: Encoded, columns: &'c mut [u32; FEW]) -> Option<&'c [u32]> {
        let (mut n, mut at, mut are_few) = (0, 0, self.params.iter().any(|store| !store.skipped.is_empty()));
        operands.for_each_run(self.extra, |run| {
            are_few = are_few && run.source > 0;
            if are_few {
                let store = &self.params[self.places[run.source as usize - 1] as usize];
                for index in store.skipped.pieces(run.range()).flat_map(|(_, piece)| piece) {
                    are_few = n < FEW;
                    if !are_few {
                        break;
                    }
                    columns[n] = at + (index as u32 - run.start);
                    n += 1;
                }
            }
            at += run.len;
        });
        (are_few && 16 * n <= at as usize).then(|| &columns[..n])
    }

    /// Whether any of the nodes can propagate a gradient now.
    fn nodes_want_gradient(&self, nodes: std::ops::Range<usize>) -> bool {
        let store = |slot: u32| &self.params[self.places[slot as usize] as usize];
        if nodes.end <= self.floor as usize {
            return false;
        }
        // The last output represents its block; only rows of a frozen table are outputs that propagate nothing.
        let hands_nothing_on = |op| matches!(op, Op::Part | Op::Constant | Op::Param | Op::FrozenParam | Op::Gather);
        let is_all_asked_for = || self.params.iter().all(|p| p.skipped.is_empty());
        let mut node = nodes.start;
        if node < nodes.end
            && (!hands_nothing_on(self.recorded.ops[nodes.end - 1])
                || self.recorded.ops[node] == Op::Part && is_all_asked_for())
        {
            return true;
        }
        while node < nodes.end {
            let tail = self.tail(node);
            let wants = match (self.recorded.ops[tail], self.recorded.operands[tail]) {
                (Op::Constant, _) => false,
                (Op::Param | Op::FrozenParam, [index, slot]) => store(slot).wants(index as usize),
                (Op::Gather, [record, _]) => {
                    let rows = GatherRecord::read(self.extra, record);
                    store(rows.slot).wants_any(rows.table())
                }
                _ => true,
            };
            if wants {
                return true;
            }
            node = tail + 1;
        }
        false
    }

    /// Adds the contribution to one row of weights.
    fn affine_row(&mut self, slot: u32, row: usize, dy: S, x: &[S]) {
        let range = row..row + x.len();
        let store = &mut self.params[self.places[slot as usize] as usize];
        let mut panel = [S::UNREACHED; PANEL];
        match &mut store.values {
            Values::Stepped(values, lr) => {
                for (_, piece) in store.skipped.pieces(range) {
                    let x = &x[piece.start - row..piece.end - row];
                    S::affine_descend(*lr, &[dy], x, &mut values[piece], None, None, Working::alone(&mut panel));
                }
            }
            Values::Kept(_) => weight_parts(store, range, &[&[dy]], &[x], &mut panel),
        }
    }

    /// Adds the contributions to biases.
    fn affine_bias(&mut self, slot: u32, at: std::ops::Range<usize>, dy: &[S], all_reached: bool) {
        let store = &mut self.params[self.places[slot as usize] as usize];
        if all_reached && matches!(store.values, Values::Kept(_)) {
            // The order of additions is that of a whole contiguous layer, so that the bits do not depend on which
            // gradients are requested.
            return bias_parts(store, at, &[dy], &mut [S::UNREACHED; PANEL]);
        }
        if all_reached {
            return self.add_parameters(slot, at.start, dy);
        }
        for (index, &dy) in at.zip(dy).filter(|(_, dy)| !dy.is_unreached()) {
            self.add_parameter(slot, index, dy);
        }
    }
}

impl<S: BlockMath> Sweep<'_, '_, S> {
    /// Adds the contributions to a layer's weights and biases, now or later.
    fn weight_grad(&mut self, record: &AffineRecord) {
        let at = (record.x.0, record.header.first);
        if let Some(deferred) = &mut self.deferred {
            return deferred.push(record.layer(), at);
        }
        let mut panel = [S::UNREACHED; PANEL];
        self.weight_grad_of(record.layer(), &[at], &mut panel);
    }

    /// Adds all deferred contributions.
    pub(crate) fn add_deferred(&mut self) {
        self.add_deferred_where(|_| true);
    }

    /// Adds the deferred contributions of layers with weights or biases in this range of a `Parameters`.
    pub(crate) fn add_deferred_in(&mut self, place: u32, range: &std::ops::Range<usize>) {
        let places = self.places;
        let overlaps = |slot: usize, at: std::ops::Range<usize>| {
            places[slot] == place && at.start < range.end && range.start < at.end
        };
        self.add_deferred_where(|layer| {
            overlaps(layer.w_slot as usize, layer.weights())
                || layer.bias().is_some_and(|(slot, at)| overlaps(slot, at))
        });
    }

    fn add_deferred_where(&mut self, is_asked_for: impl Fn(&DenseLayer) -> bool) {
        let Some(deferred) = self.deferred.take() else {
            return;
        };
        let mut places = [(0, 0); MAX_GROUPS];
        while let Some((layer, n)) = deferred.take(&mut places, &is_asked_for) {
            self.weight_grad_of(layer, &places[..n], &mut deferred.panel);
        }
        self.deferred = Some(deferred);
    }

    /// Adds the contributions of all `places` to weights and biases.
    fn weight_grad_of(&mut self, layer: DenseLayer, places: &[Application], panel: &mut [S]) {
        match places.len() {
            1 => self.weight_grad_of_up_to::<1>(layer, places, panel),
            _ => self.weight_grad_of_up_to::<MAX_GROUPS>(layer, places, panel),
        }
    }

    fn weight_grad_of_up_to<const N: usize>(&mut self, layer: DenseLayer, places: &[Application], panel: &mut [S]) {
        let (n_in, n_out) = (layer.n_in as usize, layer.n_out as usize);
        let mut x: [&[S]; N] = [&[]; N];
        let mut dy: [&[S]; N] = [&[]; N];
        for (k, &(input, output)) in places.iter().enumerate() {
            x[k] = &self.recorded.values[input as usize..][..n_in];
            dy[k] = &self.adjoints[(output - self.base) as usize..][..n_out];
        }
        let (x, dy) = (&mut x[..places.len()], &dy[..places.len()]);
        let store = &mut self.params[self.places[layer.w_slot as usize] as usize];
        let (weights, bias) = (layer.weights(), layer.bias().map(|(_, at)| at));
        if let Some(sampler) = self.sampler.as_mut().filter(|_| store.wants_any(weights.clone())) {
            sampler.begin();
            for ((&(_, node), &x), &dy) in places.iter().zip(&*x).zip(dy) {
                let (weights, skipped) = (weights.clone(), store.skipped);
                sampler.add(Sampled { node, along: 1, n_in, x, dy, cut: None, weights, skipped });
            }
            x.iter_mut().zip(sampler.sampled().chunks_exact(n_in)).for_each(|(x, sampled)| *x = sampled);
        }
        let all_or_none = |at: &std::ops::Range<usize>| store.wants_all(at.clone()) || !store.wants_any(at.clone());
        if store.wants_all(weights.clone()) && bias.as_ref().is_none_or(all_or_none) {
            let bias = bias.filter(|at| store.wants_any(at.clone()));
            let (mode, dw, db) = store.grads_of_layer(weights, bias);
            // A block needs more memory than a panel.
            let memory = if self.scratch.len() > panel.len() { &mut *self.scratch } else { panel };
            S::affine_weight_grad(dy, x, dw, db, mode, Working { memory, n_threads: self.n_threads });
            return;
        }
        if store.wants_any(weights.clone()) {
            weight_parts(store, weights, dy, x, panel);
        }
        if let Some(at) = bias {
            bias_parts(store, at, dy, panel);
        }
    }
}

/// Adds the requested gradients of biases.
fn bias_parts<S: BlockMath>(
    store: &mut Gradients<'_, S::Elem>,
    at: std::ops::Range<usize>,
    dy: &[&[S]],
    panel: &mut [S],
) {
    store.prepare(at.clone());
    for (place, piece) in store.skipped.pieces(at.clone()) {
        let (outputs, out) = (piece.start - at.start..piece.end - at.start, place..place + piece.len());
        S::affine_bias_grad_part(dy, outputs, &mut store.grads[out], panel);
    }
}

/// Adds the requested gradients of weights.
fn weight_parts<S: BlockMath>(
    store: &mut Gradients<'_, S::Elem>,
    weights: std::ops::Range<usize>,
    dy: &[&[S]],
    x: &[&[S]],
    panel: &mut [S],
) {
    let (mode, out, skipped) = store.pieces(weights.clone());
    S::affine_weight_grad_parts(dy, x, &WeightParts { weights, skipped }, out, mode, panel);
}
