//! Makes a chain of instructions: formulas written out, operands found, blocks assigned.
//!
//! Promises that work comes in the order of the instructions, and that no operation writes a block that it reads. Knows nothing
//! of how blocks are computed.

use std::collections::HashMap;

use super::super::dims::Dims;
use super::super::expansion::{Expansion, MathOp, partial_of, value_of};
use super::super::instr::{ArrayOp, ArrayProgram, Comparison, Element, ValueId};
use super::chain::{Arg, BLOCK, Chain, Stream, Work};
use super::draft::{Drafts, Read};
use super::math::{ArrayFloat, BlockOp, arity};
use super::memory::room;
use super::numbers::Numbers;
use super::place::{Place, Source, Walk};
use super::reducer::Reducer;
use crate::error::Result;
use crate::ops::Function;

/// Where values lie while a chain is compiled: blocks are numbered once for each result.
struct Compiler<'a, 'p> {
    drafts: &'a Drafts<'p>,
    buffers: &'a [usize],
    step: usize,
    streams: HashMap<Place, Arg>,
    walks: Vec<Stream>,
    repeated: Vec<(usize, usize)>,
    work: Vec<Work>,
    blocks: usize,
    values: HashMap<ValueId, Arg>,
    kept: HashMap<u64, Arg>,
    /// Functions that are computed already, with their arguments.
    functions: HashMap<(Function, Arg, Option<Arg>), Arg>,
}

/// A chain ready to run: over blocks, or over single numbers.
pub(super) enum Compiled<E> {
    Chain(Chain<E>),
    Numbers(Numbers<E>),
}

impl<E: ArrayFloat> Compiled<E> {
    /// Compiles the instructions of a chain. `buffers` is the buffer of each need.
    pub(super) fn new(
        drafts: &mut Drafts<'_>,
        buffers: &[usize],
        step: usize,
        size: usize,
        instrs: &[usize],
    ) -> Result<Self> {
        let program = drafts.program;
        let literals = literals_of(program, instrs);
        let literals: Vec<_> = literals.into_iter().map(|bits| (bits, drafts.literal(f64::from_bits(bits)))).collect();
        let mut c = Compiler {
            drafts,
            buffers,
            step,
            streams: HashMap::new(),
            walks: Vec::new(),
            repeated: Vec::new(),
            work: Vec::new(),
            blocks: 0,
            values: HashMap::new(),
            kept: HashMap::new(),
            functions: HashMap::new(),
        };
        let mut reducers = Vec::new();
        for (bits, k) in literals {
            let dims = Dims::new(&[size])?;
            let arg = c.stream(Place::repeated(Source::Const(k), dims));
            c.kept.insert(bits, arg);
        }
        for &at in instrs {
            let instr = &program.instrs()[at];
            let v = instr.result;
            let of: Vec<_> = instr.operands.iter().map(|&v| c.operand(v)).collect();
            if let ArrayOp::Reduce(kind, axes) = instr.op {
                let dims = program.type_of(instr.operands[0]).dims;
                let last = axes.iter().last().map_or(dims.rank(), |axis| axis + 1);
                let (n, inner) = (axes.iter().map(|axis| dims[axis]).product(), dims[last..].iter().product());
                reducers.push(Reducer::new(kind, n, inner));
                let (reducer, buffer) = (reducers.len() - 1, buffers[v.at()]);
                c.work.push(Work::Reduce { of: of[0], reducer, buffer });
                continue;
            }
            let value = c.value(&instr.op, &of, program.type_of(instr.operands[0]).element);
            c.values.insert(v, value);
            if c.drafts.needs[v.at()].is_read {
                c.work.push(Work::Store { of: value, buffer: buffers[v.at()] });
            }
        }
        let Compiler { walks, repeated, work, blocks, .. } = c;
        if size == 1 && reducers.is_empty() {
            return Ok(Compiled::Numbers(Numbers::new(live(work, blocks).0, &walks, blocks)?));
        }
        let (work, repeated, blocks) = with_few_blocks(work, repeated, blocks);
        let row = reducers.iter().map(Reducer::row_len).find(|&len| (1..=BLOCK).contains(&len)).unwrap_or(1);
        for reducer in &mut reducers {
            reducer.give(room(reducer.state_len(), E::default())?);
        }
        let chain = Chain { size, block: BLOCK / row * row, streams: walks, repeated, work, reducers, blocks };
        Ok(Compiled::Chain(chain))
    }
}

/// The formulas of an instruction that are numbers of a row.
fn formula(op: &ArrayOp) -> Option<Expansion> {
    match *op {
        ArrayOp::Row(row) => value_of(row),
        ArrayOp::Pull(row, k) => partial_of(row, k.into()),
        _ => None,
    }
}

/// The literals that instructions need, as bits.
fn literals_of(program: &ArrayProgram, instrs: &[usize]) -> Vec<u64> {
    let mut literals = Vec::new();
    for &at in instrs {
        match program.instrs()[at].op {
            ArrayOp::Convert(Element::Mask) => literals.extend([0f64, 1.0].map(f64::to_bits)),
            ArrayOp::Pull(..) => literals.push((-0f64).to_bits()),
            _ => {}
        }
        for step in formula(&program.instrs()[at].op).iter().flat_map(|formula| &formula.steps) {
            if let MathOp::Literal(x) = step.op {
                literals.push(x.to_bits());
            }
        }
    }
    literals.sort_unstable();
    literals.dedup();
    literals
}

impl Compiler<'_, '_> {
    fn block(&mut self) -> usize {
        self.blocks += 1;
        self.blocks - 1
    }

    fn push(&mut self, op: BlockOp, of: [Arg; 3]) -> Arg {
        let BlockOp::Math(MathOp::Function(function)) = op else { return self.computed(op, of) };
        // A partial and its derivative call the same functions, which take long.
        let call = (function, of[0], (function.arity() > 1).then_some(of[1]));
        match self.functions.get(&call) {
            Some(&arg) => arg,
            None => {
                let arg = self.computed(op, of);
                self.functions.insert(call, arg);
                arg
            }
        }
    }

    fn computed(&mut self, op: BlockOp, of: [Arg; 3]) -> Arg {
        let to = self.block();
        self.work.push(Work::Compute { op, to, of });
        Arg::Block(to)
    }

    fn literal(&self, x: f64) -> Arg {
        self.kept[&x.to_bits()]
    }

    fn operand(&mut self, v: ValueId) -> Arg {
        if self.drafts.read_of(v, self.step) == Read::Block(v)
            && let Some(&arg) = self.values.get(&v)
        {
            return arg;
        }
        let mut place = self.drafts.place_of(v);
        if let Source::Buffer(need) = place.source {
            place.source = Source::Buffer(self.buffers[need]);
        }
        self.stream(place)
    }

    /// A stream of the numbers of a place, whose source is a buffer already.
    fn stream(&mut self, place: Place) -> Arg {
        if let Some(&arg) = self.streams.get(&place) {
            return arg;
        }
        let walk = Walk::new(&place);
        let stream = self.walks.len();
        self.walks.push(Stream { source: place.source, walk });
        let arg = if walk.is_constant() && place.dims.size() != 1 {
            let to = self.block();
            self.repeated.push((stream, to));
            Arg::Block(to)
        } else if place.is_contiguous() {
            Arg::Stream(stream)
        } else {
            let to = self.block();
            self.work.push(Work::Gather { stream, to });
            Arg::Block(to)
        };
        self.streams.insert(place, arg);
        arg
    }

    /// The work of one instruction.
    fn value(&mut self, op: &ArrayOp, of: &[Arg], element: Element) -> Arg {
        let at = |k: usize| of.get(k).copied().unwrap_or(of[0]);
        let three = [at(0), at(1), at(2)];
        match op {
            ArrayOp::Row(row) => match value_of(*row) {
                Some(formula) => self.formula(&formula, [at(0), at(0), at(1), at(0)]),
                None => at(0),
            },
            ArrayOp::Pull(row, k) => match partial_of(*row, (*k).into()) {
                Some(formula) => {
                    let c = self.formula(&formula, [at(0), at(1), at(2), of[of.len() - 1]]);
                    self.push(BlockOp::Contribution, [at(0), c, at(0)])
                }
                None => self.literal(-0.0),
            },
            ArrayOp::Compare(comparison) => {
                let op = match comparison {
                    Comparison::Less => BlockOp::Math(MathOp::Less),
                    Comparison::LessEqual => BlockOp::Math(MathOp::LessEqual),
                    Comparison::Equal => BlockOp::Math(MathOp::Equal),
                    Comparison::IsNan => BlockOp::Math(MathOp::IsNan),
                    Comparison::IsUnreached => BlockOp::IsUnreached,
                };
                self.push(op, three)
            }
            ArrayOp::Select => self.push(BlockOp::Math(MathOp::Select), three),
            // A mask is 1 and 0 already.
            ArrayOp::Convert(Element::Mask) if element == Element::Float => {
                let (one, zero) = (self.literal(1.0), self.literal(0.0));
                self.push(BlockOp::Math(MathOp::Select), [at(0), one, zero])
            }
            ArrayOp::Accumulate => self.push(BlockOp::Math(MathOp::Add), three),
            _ => at(0),
        }
    }

    fn formula(&mut self, formula: &Expansion, operands: [Arg; 4]) -> Arg {
        let mut done: Vec<Arg> = Vec::with_capacity(formula.steps.len());
        for step in &formula.steps {
            let arg = match step.op {
                MathOp::Operand(k) => operands[k],
                MathOp::Literal(x) => self.literal(x),
                op => {
                    let of = step.args.map(|k| done.get(k).copied().unwrap_or(operands[1]));
                    self.push(BlockOp::Math(op), of)
                }
            };
            done.push(arg);
        }
        done[formula.result]
    }
}

/// Blocks that an operation reads.
fn reads(work: &Work) -> Vec<Arg> {
    match *work {
        Work::Compute { op, of, .. } => of[..arity(op)].to_vec(),
        Work::Gather { .. } => Vec::new(),
        Work::Store { of, .. } | Work::Reduce { of, .. } => vec![of],
    }
}

/// The work, with its numbers, without operations whose blocks nothing reads; and which of it reads a block last.
fn live(work: Vec<Work>, blocks: usize) -> (Vec<(usize, Work)>, Vec<Option<usize>>) {
    let mut last = vec![None; blocks];
    let mut kept = Vec::with_capacity(work.len());
    for (at, work) in work.into_iter().enumerate().rev() {
        if let Work::Compute { to, .. } | Work::Gather { to, .. } = work
            && last[to].is_none()
        {
            continue;
        }
        for arg in reads(&work) {
            if let Arg::Block(k) = arg {
                last[k].get_or_insert(at);
            }
        }
        kept.push((at, work));
    }
    kept.reverse();
    (kept, last)
}

/// The same work without operations whose blocks nothing reads, in as few blocks as their lifetimes allow.
fn with_few_blocks(
    work: Vec<Work>,
    mut repeated: Vec<(usize, usize)>,
    blocks: usize,
) -> (Vec<Work>, Vec<(usize, usize)>, usize) {
    let (kept, last) = live(work, blocks);
    repeated.retain(|(_, to)| last[*to].is_some());
    // Those that are filled once a run stay.
    let mut new = vec![usize::MAX; blocks];
    for (k, (_, to)) in repeated.iter_mut().enumerate() {
        new[*to] = k;
        *to = k;
    }
    let fixed = repeated.len();
    let mut count = fixed;
    let mut free: Vec<usize> = Vec::new();
    let mut result = Vec::with_capacity(kept.len());
    for (at, mut work) in kept {
        let read = reads(&work);
        let renamed = |arg: &mut Arg, new: &[usize]| {
            if let Arg::Block(k) = arg {
                *k = new[*k];
            }
        };
        match &mut work {
            Work::Compute { op, of, .. } => of[..arity(*op)].iter_mut().for_each(|arg| renamed(arg, &new)),
            Work::Store { of, .. } | Work::Reduce { of, .. } => renamed(of, &new),
            Work::Gather { .. } => {}
        }
        if let Work::Compute { to, .. } | Work::Gather { to, .. } = &mut work {
            // Taken before operands are given back: no operation writes what it reads.
            let block = free.pop().unwrap_or_else(|| {
                count += 1;
                count - 1
            });
            new[*to] = block;
            *to = block;
        }
        for arg in read {
            if let Arg::Block(k) = arg
                && last[k] == Some(at)
                && new[k] >= fixed
                && !free.contains(&new[k])
            {
                free.push(new[k]);
            }
        }
        result.push(work);
    }
    (result, repeated, count)
}
