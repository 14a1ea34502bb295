//! Compiles instructions to a chain: formulas expanded, operands located, blocks assigned.
//!
//! Promises: work keeps the order of the instructions, and no operation writes a block that it reads. Does not know how
//! blocks are computed.

use std::collections::{HashMap, HashSet};

use super::super::dims::Dims;
use super::super::expansion::{Expansion, MathOp, partial_of, value_of};
use super::super::instr::{ArrayInstr, ArrayOp, Comparison, Element, ValueId};
use super::chain::{BLOCK, Chain, Stream};
use super::chained::{Read, chained};
use super::columns_of_rows::Turned;
use super::draft::Drafts;
use super::math::{ArrayFloat, BlockOp};
use super::memory::room;
use super::numbers::Numbers;
use super::place::{Place, Source, Walk};
use super::reducer::Reducer;
use super::shared::{in_one_pass, side_by_side};
use super::work::{Arg, Work, fused, in_pairs, kept_in_place, live, with_few_blocks};
use crate::error::Result;
use crate::interrupt;
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
    /// Places in short arrays: of which indices, and how the array lies.
    places: Vec<Vec<u32>>,
    indices: HashMap<(ValueId, usize, isize), usize>,
    sums: Vec<(usize, usize)>,
    /// Numbers of a row that blocks hold as a whole.
    row: usize,
}

/// Blocks of a chain from which on these hold half as many numbers each, to stay in cache.
const MANY: usize = 24;

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
        let own = instrs.iter().map(|&at| &program.instrs()[at].op);
        let again = drafts.again_in(step).map(|v| &program.instr_of(v).op);
        let literals = literals_of(own.chain(again));
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
            places: Vec::new(),
            indices: HashMap::new(),
            sums: Vec::new(),
            row: 1,
        };
        let mut reducers = Vec::new();
        for (bits, k) in literals {
            let dims = Dims::new(&[size])?;
            let arg = c.stream(Place::repeated(Source::Const(k), dims));
            c.kept.insert(bits, arg);
        }
        for (k, &at) in instrs.iter().enumerate() {
            interrupt::ask_at(k * 32)?;
            let instr = &program.instrs()[at];
            let v = instr.result;
            if let ArrayOp::Concat(_) = instr.op {
                let of: Vec<_> = chained(program, at).iter().map(|&v| c.operand(v)).collect();
                let (buffer, step) = (buffers[v.at()], of.len());
                c.work.extend(of.iter().enumerate().map(|(first, &of)| Work::Spread { of, buffer, first, step }));
                continue;
            }
            if let ArrayOp::ScatterAdd { .. } = instr.op {
                let (of, buffer) = (c.operand(instr.operands[2]), buffers[v.at()]);
                let sum = c.place_of(instr.operands[0]);
                c.sums.push((c.walks.len(), buffer));
                c.walks.push(Stream { source: sum.source, walk: Walk::new(&sum) });
                let places = c.places_of(instr.operands[1], Place::whole(sum.source, 0, sum.dims));
                c.work.push(Work::Scatter { of, places, buffer });
                continue;
            }
            if let ArrayOp::Reduce(kind, axes) = instr.op {
                let of = c.operand(instr.operands[0]);
                let dims = program.type_of(instr.operands[0]).dims;
                let last = axes.iter().last().map_or(dims.rank(), |axis| axis + 1);
                let (n, inner) = (axes.iter().map(|axis| dims[axis]).product(), dims[last..].iter().product());
                reducers.push(Reducer::new(kind, n, inner));
                let (reducer, buffer) = (reducers.len() - 1, buffers[v.at()]);
                c.work.push(Work::Reduce { of, reducer, buffer });
                continue;
            }
            let value = c.made(v);
            c.values.insert(v, value);
            if c.drafts.needs[v.at()].is_read {
                c.work.push(Work::Store { of: value, buffer: buffers[v.at()] });
            }
        }
        let Compiler { walks, repeated, mut work, blocks, places, sums, row, .. } = c;
        // What takes over an argument is written when all has been read; what the argument is already stays.
        let of_sums = |&at: &usize| {
            let need = &drafts.needs[program.instrs()[at].result.at()];
            need.takes_over.map(|_| buffers[program.instrs()[at].result.at()])
        };
        let taken: HashSet<_> = instrs.iter().filter_map(of_sums).collect();
        let is_late = |work: &Work| matches!(work, Work::Store { buffer, .. } if taken.contains(buffer));
        let (late, early): (Vec<_>, Vec<_>) = work.into_iter().partition(is_late);
        let stays = |work: &Work| matches!(work, Work::Store { of: Arg::Stream(k), buffer } if walks[*k].source == Source::Buffer(*buffer));
        work = early.into_iter().chain(late.into_iter().filter(|work| !stays(work))).collect();
        if size == 1 && reducers.is_empty() {
            return Ok(Compiled::Numbers(Numbers::new(live(work, blocks).0, &walks, blocks)?));
        }
        let sources: HashSet<_> = walks.iter().map(|stream| stream.source).collect();
        let is_read = |buffer| sources.contains(&Source::Buffer(buffer));
        let work = side_by_side(live(work, blocks).0.into_iter().map(|(_, work)| work).collect());
        let work = kept_in_place(in_pairs(fused(work, blocks), blocks), is_read);
        let (work, repeated, blocks) = with_few_blocks(work, repeated, blocks);
        let work = in_one_pass(work);
        let most = if blocks > MANY { BLOCK / 2 } else { BLOCK };
        // Rows lie in one another.
        let rows = reducers.iter().map(Reducer::row_len).filter(|len| (1..=BLOCK).contains(len));
        let row = rows.chain([row]).max().unwrap_or(1);
        for reducer in &mut reducers {
            reducer.give(room(reducer.state_len())?);
        }
        let mut turned = Vec::new();
        for work in &work {
            if let Work::Gather { stream, .. } = *work {
                turned.extend(Turned::new(stream, &walks[stream].walk, size)?);
            }
        }
        let chain = Chain {
            turned,
            size,
            block: (most / row).max(1) * row,
            streams: walks,
            repeated,
            work,
            reducers,
            places,
            sums,
            blocks,
        };
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
fn literals_of<'p>(ops: impl Iterator<Item = &'p ArrayOp>) -> Vec<u64> {
    let mut literals = Vec::new();
    for op in ops {
        match op {
            ArrayOp::Convert(Element::Mask) => literals.extend([0f64, 1.0].map(f64::to_bits)),
            ArrayOp::Pull(..) => literals.push((-0f64).to_bits()),
            _ => {}
        }
        for step in formula(op).iter().flat_map(|formula| &formula.steps) {
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
        let read = self.drafts.read_of(v, self.step);
        if read != Read::Place
            && let Some(&arg) = self.values.get(&v)
        {
            return arg;
        }
        if read == Read::Again(v) {
            let value = self.made(v);
            self.values.insert(v, value);
            return value;
        }
        self.placed(v)
    }

    fn place_of(&self, v: ValueId) -> Place {
        let mut place = self.drafts.place_of(v);
        if let Source::Buffer(need) = place.source {
            place.source = Source::Buffer(self.buffers[need]);
        }
        place
    }

    /// The numbers of a value where they lie.
    fn placed(&mut self, v: ValueId) -> Arg {
        self.stream(self.place_of(v))
    }

    /// The numbers that an elementwise instruction makes.
    fn made(&mut self, v: ValueId) -> Arg {
        let program = self.drafts.program;
        let ArrayInstr { op, operands, .. } = program.instr_of(v);
        match op {
            ArrayOp::Take { .. } => {
                let table = self.place_of(operands[0]);
                let (stream, to, places) = (self.walks.len(), self.block(), self.places_of(operands[1], table));
                self.walks.push(Stream { source: table.source, walk: Walk::new(&table) });
                self.work.push(Work::Lookup { stream, places, to });
                Arg::Block(to)
            }
            ArrayOp::ReducePull(..) => {
                let dims = program.type_of(v).dims;
                let row = dims.size() / program.type_of(operands[0]).dims.size().max(1);
                self.row = self.row.max(row);
                let of = [self.of_rows(operands[0], row), self.operand(operands[1]), self.of_rows(operands[2], row)];
                let to = self.block();
                self.work.push(Work::Shares { of, row, to });
                Arg::Block(to)
            }
            op => {
                let of: Vec<_> = operands.iter().map(|&v| self.operand(v)).collect();
                self.value(op, &of, program.type_of(operands[0]).element)
            }
        }
    }

    /// A number for each row.
    fn of_rows(&mut self, v: ValueId, row: usize) -> Arg {
        let place = self.place_of(v);
        let stream = self.walks.len();
        self.walks.push(Stream { source: place.source, walk: Walk::new(&place) });
        if place.is_contiguous() {
            return Arg::Stream(stream);
        }
        let to = self.block();
        self.work.push(Work::GatherRows { stream, row, to });
        Arg::Block(to)
    }

    /// The places that indices name in an array with one axis.
    fn places_of(&mut self, indices: ValueId, table: Place) -> usize {
        let (offset, step) = (table.offset, table.strides[0]);
        let (program, all) = (self.drafts.program, &mut self.places);
        *self.indices.entry((indices, offset, step)).or_insert_with(|| {
            let known = program.known_indices(indices, table.dims[0]).unwrap_or_default();
            all.push(known.iter().map(|&i| offset.wrapping_add_signed(step * i as isize) as u32).collect());
            all.len() - 1
        })
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
            ArrayOp::MulAdd { of_adjoint: false } => self.push(BlockOp::MulAdd, three),
            ArrayOp::MulAdd { of_adjoint: true } => self.push(BlockOp::ReachedMulAdd, three),
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
