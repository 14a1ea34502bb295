//! The order of work: which instructions run together in one chain of blocks, and which alone.
//!
//! An elementwise instruction joins the chain that computes one of its operands, or the last chain over the same
//! shape, unless an operand is computed later; reductions over neighbouring axes end a chain. Every other instruction is a
//! step of its own. Promises: a step reads only results of earlier steps, or its own blocks. Knows only the lifetime of memory.

use std::collections::{HashMap, HashSet};

use super::super::columns::LONG;
use super::super::dims::{Axes, Dims, bad};
use super::super::instr::{
    ArrayInstr, ArrayOp, ArrayProgram, Data, Element, Length, Reduce, Shared, Type, ValueId, View,
};
use super::super::lower::ROW;
use super::chained::{Read, chained, is_elementwise, joins_columns};
use super::place::{Place, Source};
use crate::error::Result;
use crate::interrupt;

/// Numbers that a plan keeps beside its buffers.
#[derive(Clone, Debug)]
pub(super) enum Kept {
    Float(f64),
    Int(i64),
    Data(Shared<Data>),
}

/// Memory that some value needs for some time, in steps.
#[derive(Clone, Debug)]
pub(super) struct Need {
    pub(super) len: usize,
    pub(super) is_int: bool,
    pub(super) first: usize,
    pub(super) last: usize,
    /// The last step that reads it; `last` may be later.
    pub(super) last_read: usize,
    /// Whether anything but the chain that computes it reads it.
    pub(super) is_read: bool,
    /// The need whose memory this takes over, changed in place.
    pub(super) takes_over: Option<usize>,
}

/// Which arguments of a body its results become.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Carried {
    pub(super) captures: usize,
    pub(super) carries: usize,
}

/// A step.
#[derive(Clone, Debug)]
pub(super) enum Draft {
    /// Instructions over blocks of one shape, reductions among them.
    Chain { dims: Dims, instrs: Vec<usize> },
    /// One instruction, and where its operands lie.
    Alone { at: usize, of: Vec<Place> },
    /// A sum and the product of two vectors, instruction `at`, added to it.
    Onto { at: usize, to: ValueId, of: Box<[Place; 3]> },
    /// The mask of an argument, as numbers.
    Mask { input: usize, to: usize },
    /// Numbers in C order.
    Copy { from: Place, element: Element, to: usize },
}

pub(super) struct Drafts<'p> {
    pub(super) program: &'p ArrayProgram,
    pub(super) steps: Vec<Draft>,
    pub(super) places: Vec<Option<Place>>,
    pub(super) needs: Vec<Need>,
    pub(super) consts: Vec<Kept>,
    /// The step after which a value can be read from its place.
    ready: Vec<usize>,
    /// The chain that computes it.
    pub(super) member: Vec<Option<usize>>,
    /// The last chain over a shape.
    chains: HashMap<Dims, usize>,
    literals: HashMap<u64, usize>,
    /// Values that a chain computes again, rather than that the chain before it stores them.
    again: HashMap<usize, HashSet<ValueId>>,
    /// Values that were copied to lie in C order.
    copies: HashMap<ValueId, Place>,
    pub(super) outputs: Vec<usize>,
    /// Of a body, whose arguments are written into buffers.
    pub(super) body: Option<Carried>,
    /// Products of two vectors that one sum alone reads.
    outer: HashMap<ValueId, usize>,
    /// How many instructions read a value.
    uses: Vec<u32>,
    /// The last one that does.
    readers: Vec<usize>,
    /// Which stack a value stands for.
    pub(super) stacks: HashMap<ValueId, usize>,
}

impl<'p> Drafts<'p> {
    pub(super) fn new(program: &'p ArrayProgram, body: Option<Carried>) -> Result<Self> {
        let n = program.n_values();
        let mut uses = vec![0; n];
        let read = program.instrs().iter().flat_map(|instr| &instr.operands[..]);
        read.chain(program.outputs()).for_each(|v| uses[v.at()] += 1);
        let mut readers = vec![0; n];
        for (at, instr) in program.instrs().iter().enumerate() {
            instr.operands.iter().for_each(|v| readers[v.at()] = at);
        }
        let needs = (0..n).map(|v| need_of(program.type_of(ValueId(v as u32)))).collect();
        let mut drafts = Drafts {
            program,
            steps: Vec::new(),
            places: vec![None; n],
            needs,
            consts: Vec::new(),
            ready: vec![0; n],
            member: vec![None; n],
            chains: HashMap::new(),
            literals: HashMap::new(),
            again: HashMap::new(),
            copies: HashMap::new(),
            outputs: Vec::new(),
            body,
            outer: HashMap::new(),
            uses,
            readers,
            stacks: HashMap::new(),
        };
        let mut inputs = 0;
        let mut params = 0;
        for at in 0..program.instrs().len() {
            interrupt::ask_at(at * 32)?;
            drafts.place(at, &mut inputs, &mut params)?;
        }
        drafts.finish();
        Ok(drafts)
    }

    fn place(&mut self, at: usize, inputs: &mut usize, params: &mut usize) -> Result<()> {
        let program = self.program;
        let instr = &program.instrs()[at];
        let v = instr.result;
        let ty = program.type_of(v);
        let mut free = |place| self.places[v.at()] = Some(place);
        match &instr.op {
            ArrayOp::Input(ty) if self.body.is_some() => {
                free(Place::whole(Source::Buffer(v.at()), 0, ty.dims));
                let need = &mut self.needs[v.at()];
                (need.is_read, need.last) = (true, usize::MAX);
            }
            ArrayOp::Input(ty) => {
                let k = *inputs;
                *inputs += 1;
                if ty.element == Element::Mask {
                    self.steps.push(Draft::Mask { input: k, to: v.at() });
                    self.written(v);
                } else {
                    free(Place::whole(Source::Input(k), 0, ty.dims));
                }
            }
            ArrayOp::Param { start, dims, .. } => {
                free(Place::whole(Source::Param(*params), *start, *dims));
                *params += 1;
            }
            ArrayOp::Literal(bits) => {
                let k = self.literal(f64::from_bits(*bits));
                self.places[v.at()] = Some(Place::repeated(Source::Const(k), ty.dims));
            }
            ArrayOp::Unreached(_) => {
                let k = self.literal(-0.0);
                self.places[v.at()] = Some(Place::repeated(Source::Const(k), ty.dims));
            }
            ArrayOp::Integer(x) => {
                self.consts.push(Kept::Int(*x));
                self.places[v.at()] = Some(Place::repeated(Source::Const(self.consts.len() - 1), ty.dims));
            }
            ArrayOp::Const(dims, data) => {
                self.consts.push(Kept::Data(data.clone()));
                self.places[v.at()] = Some(Place::whole(Source::Const(self.consts.len() - 1), 0, *dims));
            }
            ArrayOp::View(view) => self.view(v, instr.operands[0], view, ty.dims),
            ArrayOp::Adjoint => {
                self.places[v.at()] = self.places[instr.operands[0].at()];
                self.ready[v.at()] = self.ready[instr.operands[0].at()];
            }
            ArrayOp::After => {
                self.places[v.at()] = self.places[instr.operands[0].at()];
                self.ready[v.at()] = instr.operands.iter().map(|v| self.ready[v.at()]).max().unwrap_or(0);
            }
            ArrayOp::Call(_) | ArrayOp::Apart(_) => {
                return Err(bad("instruction", "one without a program".into(), "a call".into()));
            }
            ArrayOp::Loop(_) | ArrayOp::Cond { .. } | ArrayOp::Rows(_) => self.alone(at),
            ArrayOp::Dot(_) if self.uses[v.at()] == 1 && self.is_outer(at) => {
                self.outer.insert(v, at);
            }
            ArrayOp::Accumulate if self.outer.contains_key(&instr.operands[1]) => self.onto(at),
            _ if is_elementwise(program, at) => self.join(at, ty.dims, true),
            ArrayOp::Reduce(Reduce::LogSumExp | Reduce::Norm2, _) => self.alone(at),
            ArrayOp::Reduce(..) if ty.element == Element::Float => {
                self.join(at, program.type_of(instr.operands[0]).dims, false);
            }
            ArrayOp::ReducePull(Reduce::Max | Reduce::Min, axes) if is_in_block(ty.dims, *axes) => {
                self.join(at, ty.dims, true);
            }
            ArrayOp::Take { .. } if self.is_by_place(at) => self.join(at, ty.dims, true),
            ArrayOp::ScatterAdd { .. } if self.is_by_place(at) => {
                self.join(at, program.type_of(instr.operands[2]).dims, false);
            }
            ArrayOp::Concat(_) if joins_columns(program, at) => {
                self.join(at, Dims::new(&[ty.dims[0]])?, false);
            }
            _ => self.alone(at),
        }
        Ok(())
    }

    /// Whether an instruction is the product of a column and a row that a sum reads.
    fn is_outer(&self, at: usize) -> bool {
        let program = self.program;
        let instr = &program.instrs()[at];
        let ArrayOp::Dot(dot) = instr.op else { return false };
        let [x, y] = [instr.operands[0], instr.operands[1]].map(|v| program.type_of(v).dims);
        let reader = &program.instrs()[self.readers[instr.result.at()]];
        let [first, second] = [0, 1].map(|k| reader.operands.get(k) == Some(&instr.result));
        dot.adjoint != [true; 2]
            && dot.extents(&x, &y).is_ok_and(|(batch, [m, k, n])| batch.size() == 1 && k == 1 && m > 1 && n > 1)
            && (&reader.op, first, second) == (&ArrayOp::Accumulate, false, true)
    }

    /// A sum and a product that is added to it.
    fn onto(&mut self, sum: usize) {
        let instr = &self.program.instrs()[sum];
        let at = self.outer[&instr.operands[1]];
        let factors = &self.program.instrs()[at].operands;
        let of = [instr.operands[0], factors[0], factors[1]].map(|v| self.place_of(v));
        let step = self.steps.len();
        of.iter().for_each(|&place| self.read(place, step));
        self.steps.push(Draft::Onto { at, to: instr.result, of: Box::new(of) });
        self.written(instr.result);
        self.needs[instr.result.at()].is_read = true;
    }

    /// Whether elements of an array with one axis are taken or added to by known indices.
    fn is_by_place(&self, at: usize) -> bool {
        let instr = &self.program.instrs()[at];
        let ty = |k: usize| self.program.type_of(instr.operands[k]);
        let is_first =
            matches!(instr.op, ArrayOp::Take { axis: 0, batch: 0 } | ArrayOp::ScatterAdd { axis: 0, batch: 0 });
        let (table, indices) = (ty(0), ty(1).dims);
        if !is_first || table.dims.rank() != 1 || indices == table.dims || indices.size() < LONG {
            return false;
        }
        let Place { offset, strides, .. } = self.place_of(instr.operands[0]);
        let end = offset as u128 + table.dims[0] as u128 * strides[0].unsigned_abs() as u128;
        table.element == Element::Float
            && end < u128::from(u32::MAX)
            && self.program.known_indices(instr.operands[1], table.dims[0]).is_some()
    }

    /// The kept number `x`.
    pub(super) fn literal(&mut self, x: f64) -> usize {
        let consts = &mut self.consts;
        *self.literals.entry(x.to_bits()).or_insert_with(|| {
            consts.push(Kept::Float(x));
            consts.len() - 1
        })
    }

    /// The value lies in memory of its own from the last step on.
    fn written(&mut self, v: ValueId) {
        let step = self.steps.len() - 1;
        self.places[v.at()] = Some(Place::whole(Source::Buffer(v.at()), 0, self.program.type_of(v).dims));
        self.ready[v.at()] = step + 1;
        (self.needs[v.at()].first, self.needs[v.at()].last) = (step, step);
    }

    /// Notes that a step reads a place.
    pub(super) fn read(&mut self, place: Place, step: usize) {
        if let Source::Buffer(b) = place.source {
            self.needs[b].is_read = true;
            self.needs[b].last = self.needs[b].last.max(step);
            self.needs[b].last_read = self.needs[b].last_read.max(step);
        }
    }

    pub(super) fn place_of(&self, v: ValueId) -> Place {
        self.places[v.at()].expect("operands come before the instructions that take them")
    }

    fn view(&mut self, v: ValueId, of: ValueId, view: &View, dims: Dims) {
        let place = self.place_of(of);
        if let Some(place) = place.viewed(view, dims) {
            self.places[v.at()] = Some(place);
            self.ready[v.at()] = self.ready[of.at()];
            return;
        }
        self.copy(place, self.program.type_of(v).element, v.at());
        self.written(v);
    }

    pub(super) fn copy(&mut self, from: Place, element: Element, to: usize) {
        self.steps.push(Draft::Copy { from, element, to });
        self.read(from, self.steps.len() - 1);
    }

    /// Adds an instruction to a chain over `dims`.
    fn join(&mut self, at: usize, dims: Dims, is_elementwise: bool) {
        let program = self.program;
        let instr = &program.instrs()[at];
        let operands = chained(program, at);
        let mut lowest = 0;
        for v in &operands {
            let inside = self.member[v.at()].filter(|_| program.type_of(*v).dims == dims);
            lowest = lowest.max(inside.unwrap_or(self.ready[v.at()]));
        }
        let joins = |step: usize| matches!(&self.steps.get(step), Some(Draft::Chain { dims: d, .. }) if *d == dims);
        let last = self.chains.get(&dims).copied().filter(|&step| step >= lowest);
        let step = if joins(lowest) { lowest } else { last.unwrap_or(self.steps.len()) };
        if step == self.steps.len() {
            self.steps.push(Draft::Chain { dims, instrs: Vec::new() });
            self.chains.insert(dims, step);
        }
        if let Draft::Chain { instrs, .. } = &mut self.steps[step] {
            instrs.push(at);
        }
        for &v in &operands {
            let is_placed = self.read_of(v, step) == Read::Place;
            let is_again = is_placed && program.type_of(v).dims == dims && self.computes_again(v, step);
            if is_placed && !is_again {
                self.read(self.place_of(v), step);
            }
        }
        let v = instr.result;
        self.places[v.at()] = Some(Place::whole(Source::Buffer(v.at()), 0, program.type_of(v).dims));
        self.ready[v.at()] = step + 1;
        self.member[v.at()] = is_elementwise.then_some(step);
        (self.needs[v.at()].first, self.needs[v.at()].last) = (step, step);
        self.needs[v.at()].is_read |= !is_elementwise;
    }

    /// The values that a chain computes again.
    pub(super) fn again_in(&self, step: usize) -> impl Iterator<Item = ValueId> {
        self.again.get(&step).into_iter().flatten().copied()
    }

    pub(super) fn compute_again(&mut self, v: ValueId, step: usize) {
        self.again.entry(step).or_default().insert(v);
    }

    /// How an instruction of a chain finds an operand.
    pub(super) fn read_of(&self, v: ValueId, step: usize) -> Read {
        if self.member[v.at()] == Some(step) {
            Read::Block(v)
        } else if self.again.get(&step).is_some_and(|again| again.contains(&v)) {
            Read::Again(v)
        } else {
            Read::Place
        }
    }

    /// Gives an instruction a step of its own, with its operands in C order where it wants that.
    fn alone(&mut self, at: usize) {
        let program = self.program;
        let instr = &program.instrs()[at];
        let walks = matches!(
            instr.op,
            ArrayOp::Dot(_) | ArrayOp::Copy | ArrayOp::Concat(_) | ArrayOp::AccumulateAt(_) | ArrayOp::Convert(_)
        ) || matches!(instr.op, ArrayOp::Row(_) | ArrayOp::Compare(_) | ArrayOp::Select | ArrayOp::Rows(_));
        let mut of = Vec::with_capacity(instr.operands.len());
        for &v in &instr.operands {
            let place = self.place_of(v);
            of.push(if walks || place.is_contiguous() { place } else { self.contiguous(v, place) });
        }
        of.extend(self.shares_of(at));
        let step = self.steps.len();
        of.iter().for_each(|&place| self.read(place, step));
        self.steps.push(Draft::Alone { at, of });
        for (k, v) in program.results(at).enumerate() {
            self.written(v);
            self.needs[v.at()].is_read = true;
            if self.is_pulled(at) {
                self.needs[v.at()].len +=
                    program.type_of(v).dims.size() + program.type_of(instr.operands[0]).dims.size();
            }
            if let ArrayOp::Loop(of) = &instr.op
                && (of.carries..of.body.0.outputs().len()).contains(&k)
                && !matches!(of.length, Length::Fixed(_))
            {
                self.stacks.insert(v, self.stacks.len());
            }
        }
    }

    /// Whether the logarithm of a sum of exponentials leaves those, behind its value, for its contributions.
    fn is_pulled(&self, at: usize) -> bool {
        let ArrayInstr { op: ArrayOp::Reduce(Reduce::LogSumExp, axes), operands, result, .. } =
            &self.program.instrs()[at]
        else {
            return false;
        };
        let pull = ArrayOp::ReducePull(Reduce::LogSumExp, *axes);
        self.program.instrs()[at..].iter().any(|i| i.op == pull && i.operands[1..] == [operands[0], *result])
    }

    /// Where those lie that contributions are made of, behind their sums.
    fn shares_of(&self, at: usize) -> Option<Place> {
        let program = self.program;
        let instr = &program.instrs()[at];
        let ArrayOp::ReducePull(Reduce::LogSumExp, axes) = instr.op else { return None };
        let z = program.instr_of(instr.operands[2]);
        let is_its = z.op == ArrayOp::Reduce(Reduce::LogSumExp, axes) && z.operands[0] == instr.operands[1];
        let (rows, n) = (program.type_of(z.result).dims.size(), program.type_of(instr.operands[1]).dims.size());
        let dims = Dims::new(&[rows + n]).ok()?;
        is_its.then_some(Place::whole(Source::Buffer(z.result.at()), rows, dims))
    }

    /// A copy of a value in C order, which later instructions take too.
    fn contiguous(&mut self, v: ValueId, place: Place) -> Place {
        if let Some(&copy) = self.copies.get(&v) {
            return copy;
        }
        let ty = self.program.type_of(v);
        self.needs.push(need_of(ty));
        let to = self.needs.len() - 1;
        self.copy(place, ty.element, to);
        let step = self.steps.len() - 1;
        (self.needs[to].first, self.needs[to].last) = (step, step);
        let copy = Place::whole(Source::Buffer(to), 0, ty.dims);
        self.copies.insert(v, copy);
        copy
    }
}

pub(super) fn need_of(ty: Type) -> Need {
    let (len, is_int) = (ty.dims.size(), ty.element == Element::Int);
    Need { len, is_int, first: 0, last: 0, last_read: 0, is_read: false, takes_over: None }
}

/// Whether rows along these axes, the last ones, fit a block.
fn is_in_block(dims: Dims, axes: Axes) -> bool {
    dims[dims.rank() - axes.len()..].iter().product::<usize>() <= ROW
}
