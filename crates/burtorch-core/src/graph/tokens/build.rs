//! Appending blocks over tokens: what is refused, and the record that is kept.

use super::Tokens;
use super::record::float_parts;
use crate::error::{Error, Result};
use crate::graph::{Graph, NodeId, Range, View};
use crate::kernels::tokens::{AffinePull, AttentionShape, LayerNormPull, TOKEN_LANES, padded};
use crate::ops::Op;
use crate::params::{Parameters, Slice};
use crate::scalar::Scalar;

/// What a block over tokens is to be: everything but where its outputs will stand.
struct Plan<'p, I> {
    op: Op,
    n_out: usize,
    n_tokens: usize,
    own: [u32; 2],
    /// Nodes that the block fills beside its outputs, to be read but not differentiated: its last operand.
    n_aside: usize,
    runs: I,
    numbers: &'p [u32],
    scratch: usize,
}

impl<S: Scalar> Graph<'_, S> {
    /// Appends one row of `table` per token, plus the row of `positions` at its place where given. `table` is symbols x
    /// `width` by rows; `positions` has at least as many rows as there are tokens. With lanes, `tokens` are those of lane
    /// 0, then of lane 1, ...
    pub fn token_embedding(
        &mut self,
        params: &[&Parameters<'_, S::Elem>],
        table: Slice,
        positions: Option<Slice>,
        width: usize,
        tokens: &[u32],
    ) -> Result<Tokens> {
        let op = Op::TokenEmbedding;
        let n = per_lane::<S>("token_embedding (lanes and tokens)", tokens)?;
        if width == 0 || !table.len().is_multiple_of(width) {
            let what = "token_embedding (numbers of the table and of a row)";
            return Err(Error::LengthMismatch { op: what, left: table.len(), right: width });
        }
        below("token", tokens, table.len() / width)?;
        let positions = match positions {
            Some(rows) => match rows.slice(0, n * width) {
                Some(used) => Some(used),
                None => return Err(too_many_tokens(n, rows.len() / width)),
            },
            None => None,
        };
        let runs = std::iter::once(table).chain(positions).map(View::from);
        let n_out = places(n, width)?;
        let plan = Plan {
            op,
            n_out,
            n_tokens: n,
            own: [width as u32, 0],
            n_aside: 0,
            runs,
            numbers: tokens,
            scratch: 2 * n_out,
        };
        self.push_tokens(params, plan)
    }

    /// Appends `W x + b` for each token, cut off at 0 with `relu`. `x` are activations of the same tokens whose features
    /// are taken together, without copying; `w` is `n_out x n_in` by rows.
    pub fn token_affine(
        &mut self,
        params: &[&Parameters<'_, S::Elem>],
        x: &[Tokens],
        w: Slice,
        bias: Option<Slice>,
        relu: bool,
    ) -> Result<Tokens> {
        let op = Op::TokenAffine;
        let n_in: usize = x.iter().map(Tokens::width).sum();
        if n_in == 0 || w.is_empty() {
            return Err(Error::EmptyReduction { op: op.name() });
        }
        let n = same_tokens("token_affine (tokens)", x)?;
        if !w.len().is_multiple_of(n_in) {
            let what = "token_affine (inputs and columns of the weights)";
            return Err(Error::LengthMismatch { op: what, left: n_in, right: w.len() });
        }
        let n_out = w.len() / n_in;
        if let Some(bias) = bias {
            equal("token_affine (outputs and biases)", n_out, bias.len())?;
        }
        let own = [u32::from(relu) | u32::from(bias.is_some()) << 1, n_in as u32];
        let parameters = std::iter::once(w).chain(bias).map(View::from);
        let runs = parameters.chain(x.iter().map(|x| View::from(x.range)));
        let places = places(n, n_in.max(n_out))?;
        // What a sweep needs: copies of inputs, their adjoints and outputs' adjoints, and what the kernel needs.
        let scratch = 3 * places + AffinePull::<S>::scratch_len(n_in, n_out);
        let n_out = padded(n) * n_out;
        self.push_tokens(params, Plan { op, n_out, n_tokens: n, own, n_aside: 0, runs, numbers: &[], scratch })
    }

    /// Appends `gain (x - mean)/sqrt(variance + eps) + bias` for each token, with mean and biased variance over its
    /// features.
    pub fn layer_norm(
        &mut self,
        params: &[&Parameters<'_, S::Elem>],
        x: Tokens,
        gain: Slice,
        bias: Slice,
        eps: f64,
    ) -> Result<Tokens> {
        equal("layer_norm (features and gains)", x.width(), gain.len())?;
        equal("layer_norm (features and biases)", x.width(), bias.len())?;
        if !(eps.is_finite() && eps >= 0.0) {
            let expected = "finite and at least 0".into();
            return Err(Error::BadArgument { what: "eps", expected, found: format!("{eps}") });
        }
        let n_out = x.range.len();
        let plan = Plan {
            op: Op::LayerNorm,
            n_out,
            n_tokens: x.n(),
            own: float_parts(eps),
            n_aside: 2 * padded(x.n()),
            runs: [View::from(gain), View::from(bias), View::from(x.range)].into_iter(),
            numbers: &[],
            scratch: n_out + LayerNormPull::<S>::scratch_len(x.width()),
        };
        self.push_tokens(params, plan)
    }

    /// Appends causal attention: each head, of `width / heads` features, mixes the values of the tokens up to its own by
    /// the softmax of `q k / sqrt(width / heads)`. The probabilities are nodes too, through which no gradient flows.
    pub fn causal_attention(&mut self, q: Tokens, k: Tokens, v: Tokens, heads: usize) -> Result<Tokens> {
        let n = same_tokens("causal_attention (tokens)", &[q, k, v])?;
        equal("causal_attention (features of queries and keys)", q.width(), k.width())?;
        equal("causal_attention (features of queries and values)", q.width(), v.width())?;
        let shape = AttentionShape { heads, width: q.width() };
        if heads == 0 || !shape.width.is_multiple_of(heads) {
            let expected = format!("a divisor of the {} features", shape.width);
            return Err(Error::BadArgument { what: "the number of heads", expected, found: heads.to_string() });
        }
        let n_out = q.range.len();
        let plan = Plan {
            op: Op::CausalAttention,
            n_out,
            n_tokens: n,
            own: [heads as u32, shape.width as u32],
            n_aside: shape.probs_len(padded(n) / TOKEN_LANES),
            runs: [q, k, v].map(|part| View::from(part.range)).into_iter(),
            numbers: &[],
            scratch: 5 * n_out,
        };
        self.push_tokens(&[], plan)
    }

    /// Appends the mean over tokens of `log(sum exp z) - z[class]`. With lanes, `classes` are those of lane 0, then of
    /// lane 1, ... The probabilities are nodes before the loss, through which no gradient flows.
    pub fn token_cross_entropy(&mut self, logits: Tokens, classes: &[u32]) -> Result<NodeId> {
        let op = Op::TokenCrossEntropy;
        let n = per_lane::<S>("token_cross_entropy (lanes and classes)", classes)?;
        equal("token_cross_entropy (tokens and classes)", logits.n(), n)?;
        below("class", classes, logits.width())?;
        let n_aside = logits.range.len();
        let runs = std::iter::once(View::from(logits.range));
        let plan = Plan { op, n_out: 1, n_tokens: n, own: [0; 2], n_aside, runs, numbers: classes, scratch: 0 };
        Ok(self.push_block_of(&[], plan)?.first())
    }

    /// Appends `x_i + y_i` for two ranges of equal length, as one block.
    pub fn add_ranges(&mut self, x: Range, y: Range) -> Result<Range> {
        equal("add_ranges", x.len(), y.len())?;
        if x.is_empty() {
            return Err(Error::EmptyReduction { op: Op::AddRanges.name() });
        }
        let runs = [View::from(x), View::from(y)].into_iter();
        let (op, n_out) = (Op::AddRanges, x.len());
        let plan = Plan { op, n_out, n_tokens: 0, own: [0; 2], n_aside: 0, runs, numbers: &[], scratch: n_out };
        self.push_block_of(&[], plan)
    }

    /// Appends `x + y` for activations of the same tokens.
    pub fn add_tokens(&mut self, x: Tokens, y: Tokens) -> Result<Tokens> {
        same_tokens("add_tokens (tokens)", &[x, y])?;
        Ok(Tokens { range: self.add_ranges(x.range, y.range)?, n: x.n })
    }

    fn push_tokens<I: Iterator<Item = View> + Clone>(
        &mut self,
        params: &[&Parameters<'_, S::Elem>],
        plan: Plan<'_, I>,
    ) -> Result<Tokens> {
        let n = plan.n_tokens as u32;
        Ok(Tokens { range: self.push_block_of(params, plan)?, n })
    }

    /// Checks the operands, appends nodes and record, and computes the values.
    fn push_block_of<I: Iterator<Item = View> + Clone>(
        &mut self,
        params: &[&Parameters<'_, S::Elem>],
        plan: Plan<'_, I>,
    ) -> Result<Range> {
        for view in plan.runs.clone() {
            self.check_view(view, params)?;
        }
        self.atomically(|graph| {
            let n_out = graph.room_for(plan.n_aside + plan.n_out)? - plan.n_aside as u32;
            graph.reserve_scratch(plan.scratch)?;
            let n_runs = plan.runs.clone().count() + usize::from(plan.n_aside > 0);
            graph.extra.reserve(7 + 3 * n_runs + plan.numbers.len())?;
            // Evaluation writes everything but the probabilities of padding.
            let zeroed = plan.op == Op::TokenCrossEntropy;
            let aside = graph.columns.push_many_reserved(Op::Constant, plan.n_aside as u32, zeroed, true);
            let (at, first) = (graph.extra.len() as u32, graph.columns.len());
            let fixed = [first, n_out, plan.n_tokens as u32, n_runs as u32, plan.numbers.len() as u32];
            graph.list(fixed.into_iter().chain(plan.own));
            for view in plan.runs {
                let run = match view {
                    View::Nodes(range) => [0, range.start, range.len],
                    View::Parameters(slice) => [graph.slot_of(slice.store)? + 1, slice.start, slice.len],
                };
                graph.list(run);
            }
            if plan.n_aside > 0 {
                graph.list([0, aside, plan.n_aside as u32]);
            }
            graph.list(plan.numbers.iter().copied());
            let start = graph.columns.push_many_reserved(Op::Part, n_out, false, true);
            graph.columns.set_node(start + n_out - 1, plan.op, at, 0);
            let stores = graph.store_values(params);
            graph.evaluate_tokens(plan.op, at, &stores);
            Ok(graph.finish_block(Range { start, len: n_out }))
        })
    }

    /// Appends to the operand lists, where there is room.
    fn list(&mut self, numbers: impl IntoIterator<Item = u32>) {
        for number in numbers {
            self.extra.push_reserved(number);
        }
    }
}

fn equal(op: &'static str, left: usize, right: usize) -> Result<()> {
    if left == right { Ok(()) } else { Err(Error::LengthMismatch { op, left, right }) }
}

/// How many tokens all of them have.
fn same_tokens(op: &'static str, x: &[Tokens]) -> Result<usize> {
    let n = x.first().map_or(0, Tokens::n);
    for x in x {
        equal(op, n, x.n())?;
    }
    Ok(n)
}

/// How many numbers each lane has.
fn per_lane<S: Scalar>(op: &'static str, numbers: &[u32]) -> Result<usize> {
    if numbers.is_empty() {
        return Err(Error::EmptyReduction { op: "a block over tokens" });
    }
    if numbers.len().is_multiple_of(S::LANES) {
        return Ok(numbers.len() / S::LANES);
    }
    Err(Error::LengthMismatch { op, left: S::LANES, right: numbers.len() })
}

fn below(what: &'static str, found: &[u32], n: usize) -> Result<()> {
    match found.iter().find(|&&x| x as usize >= n) {
        Some(&x) => Err(Error::OutOfRange { what, found: u64::from(x), max: (n as u64).saturating_sub(1) }),
        None => Ok(()),
    }
}

fn too_many_tokens(n: usize, max: usize) -> Error {
    let expected = format!("at most {max} tokens, one per position");
    Error::BadArgument { what: "the number of tokens", expected, found: n.to_string() }
}

/// Numbers of `width` features of `n` tokens, padding included.
fn places(n: usize, width: usize) -> Result<usize> {
    padded(n).checked_mul(width).filter(|&n| n <= u32::MAX as usize).ok_or(Error::IndexExhausted { limit: u32::MAX })
}
