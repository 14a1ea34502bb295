//! Separate programs for the forward and the reverse pass.
//!
//! Both are built as one, as for a traced function; forward values that the reverse pass reads are stored, except for
//! views and constants, which are made again, and for values inside programs with loops, which are recomputed. Promises: the
//! instructions of the whole program. Does not know numbers.

use super::super::activity::active_values;
use super::super::build::ArrayBuilder;
use super::super::dims::bad;
use super::super::expand::inlined;
use super::super::instr::{ArrayOp, ArrayProgram, Element, Type, ValueId};
use super::super::reverse::{Sweep, Variable, values_of, with_carries_kept};
use super::super::zero_tangents::without_rest;
use crate::error::Result;

/// Adjoints that a reverse pass begins with: whether elements of each may be unreached; nothing where there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Begun {
    /// Those of results.
    pub(super) results: Vec<Option<bool>>,
    /// Those of variables, to which more is added.
    pub(super) variables: Vec<Option<bool>>,
}

/// Where a value is that a reverse pass reads.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kept {
    /// An operand.
    Operand(usize),
    /// A result.
    Result(usize),
    /// Saved beside the results.
    Saved(usize),
}

/// A program and what its reverse pass reads of it.
#[derive(Debug)]
pub(super) struct Split {
    /// Calls written out.
    program: ArrayProgram,
    /// By what: first operands, then parameters.
    pub(super) by: Vec<Variable>,
    active: Vec<bool>,
    kept: Vec<ValueId>,
}

/// A reverse pass.
#[derive(Debug)]
pub(super) struct Reverse {
    /// Of values that are kept, adjoints of results, and adjoints of variables.
    pub(super) program: ArrayProgram,
    /// Which of those that are kept.
    pub(super) reads: Vec<usize>,
    /// For each variable whether elements of its new adjoint may be unreached; nothing where it has none.
    pub(super) gives: Vec<Option<bool>>,
}

/// Both passes in one program.
struct Joint {
    program: ArrayProgram,
    /// Inputs for adjoints of results, then of variables.
    adjoints: Vec<ValueId>,
    gives: Vec<Option<ValueId>>,
}

impl Split {
    /// Of a program whose operands move or not; nothing where no result moves with one of them or with parameters.
    pub(super) fn new(program: &ArrayProgram, moving: &[bool]) -> Result<Option<Split>> {
        let program = inlined(program)?.pruned()?;
        let is_float = |v: ValueId| program.type_of(v).element == Element::Float;
        let operands = (0..moving.len()).filter(|&k| moving[k] && is_float(program.inputs()[k]));
        let mut by: Vec<_> = operands.map(Variable::Input).collect();
        by.extend((0..program.params().len()).map(Variable::Param));
        let variables = values_of(&program, &by)?;
        let program = without_rest(program, &variables)?;
        let active = active_values(&program, &values_of(&program, &by)?);
        let is_float = |v: ValueId| program.type_of(v).element == Element::Float;
        if !program.outputs().iter().any(|v| active[v.at()] && is_float(*v)) {
            return Ok(None);
        }
        let program = with_carries_kept(&program, &by)?;
        let active = active_values(&program, &values_of(&program, &by)?);
        let mut split = Split { program, by, active, kept: Vec::new() };
        let mut kept = Vec::new();
        for may_be_unreached in [false, true] {
            let joint = split.joint(&split.begun(may_be_unreached))?;
            kept.extend(joint.cut(split.program.n_values(), |v| split.is_kept_if_read(v)).1);
        }
        split.kept = ordered(kept);
        Ok(Some(split))
    }

    /// Adjoints for everything.
    fn begun(&self, may_be_unreached: bool) -> Begun {
        let results = self.program.outputs().iter();
        let is_float = |v: &ValueId| self.program.type_of(*v).element == Element::Float;
        Begun {
            results: results.map(|v| is_float(v).then_some(may_be_unreached)).collect(),
            variables: vec![may_be_unreached.then_some(true); self.by.len()],
        }
    }

    fn has_control(&self) -> bool {
        let is_control = |op: &ArrayOp| matches!(op, ArrayOp::Loop(_) | ArrayOp::Cond { .. } | ArrayOp::Rows(_));
        self.program.instrs().iter().any(|instr| is_control(&instr.op))
    }

    fn is_kept_if_read(&self, v: ValueId) -> bool {
        if self.program.inputs().contains(&v) || self.program.outputs().contains(&v) {
            return true;
        }
        let at = self.program.instrs().partition_point(|instr| instr.result <= v) - 1;
        let is_made_again = matches!(
            self.program.instrs()[at].op,
            ArrayOp::View(_)
                | ArrayOp::Literal(_)
                | ArrayOp::Integer(_)
                | ArrayOp::Const(..)
                | ArrayOp::Unreached(_)
                | ArrayOp::Param { .. }
        );
        !is_made_again && !self.has_control()
    }

    /// Where those values are that are kept.
    pub(super) fn kept(&self) -> Vec<Kept> {
        let mut n_saved = 0;
        let place = |v: &ValueId| {
            if let Some(k) = self.program.inputs().iter().position(|w| w == v) {
                return Kept::Operand(k);
            }
            if let Some(k) = self.program.outputs().iter().position(|w| w == v) {
                return Kept::Result(k);
            }
            n_saved += 1;
            Kept::Saved(n_saved - 1)
        };
        self.kept.iter().map(place).collect()
    }

    /// The program, with what is saved after its results.
    pub(super) fn forward(&self) -> ArrayProgram {
        let saved = self.kept.iter().zip(self.kept()).filter(|(_, kept)| matches!(kept, Kept::Saved(_)));
        let outputs = self.program.outputs().iter().chain(saved.map(|(v, _)| v)).copied().collect();
        self.program.clone().with_outputs(outputs)
    }

    fn joint(&self, begun: &Begun) -> Result<Joint> {
        let variables = values_of(&self.program, &self.by)?;
        let mut b = ArrayBuilder::from(self.program.clone());
        let mut inputs = Vec::new();
        let mut input = |b: &mut ArrayBuilder, ty: Type, may_be_unreached: bool| {
            let v = b.push(ArrayOp::Input(ty), &[])?;
            inputs.push(v);
            if may_be_unreached { b.push(ArrayOp::Adjoint, &[v]) } else { Ok(v) }
        };
        let mut seeds = Vec::new();
        for (&v, may_be_unreached) in self.program.outputs().iter().zip(&begun.results) {
            if let Some(may_be_unreached) = may_be_unreached {
                seeds.push((v, input(&mut b, self.program.type_of(v), *may_be_unreached)?));
            }
        }
        let mut adjoints = vec![None; self.program.n_values()];
        for (&v, may_be_unreached) in variables.iter().zip(&begun.variables) {
            if let Some(may_be_unreached) = may_be_unreached {
                adjoints[v.at()] = Some(input(&mut b, self.program.type_of(v), *may_be_unreached)?);
            }
        }
        let mut sweep = Sweep { b: &mut b, adjoints };
        for (v, seed) in seeds {
            sweep.add(v, seed)?;
        }
        sweep.run(&self.program, &self.active)?;
        let gives: Vec<_> = variables.iter().map(|v| sweep.adjoints[v.at()]).collect();
        let outputs: Vec<_> = gives.iter().copied().flatten().collect();
        Ok(Joint { program: b.finish(&outputs)?, adjoints: inputs, gives })
    }

    /// The reverse pass that begins with these adjoints.
    pub(super) fn reverse(&self, begun: &Begun) -> Result<Reverse> {
        let joint = self.joint(begun)?;
        let (wanted, reads) = joint.cut(self.program.n_values(), |v| self.kept.binary_search(&v).is_ok());
        let mut b = ArrayBuilder::new(self.program.dtype())?;
        let mut new = vec![None; joint.program.n_values()];
        for &v in reads.iter().chain(&joint.adjoints) {
            let ty = joint.program.type_of(v);
            new[v.at()] = Some(b.input(&ty.dims, ty.element)?);
        }
        for (at, instr) in joint.program.instrs().iter().enumerate().filter(|(at, _)| wanted[*at]) {
            if joint.adjoints.contains(&instr.result) {
                continue;
            }
            if matches!(instr.op, ArrayOp::Input(_)) {
                return Err(bad("operand of a reverse pass", "one that was kept".into(), instr.result.0.to_string()));
            }
            let operands: Vec<_> = instr.operands.iter().filter_map(|v| new[v.at()]).collect();
            for (v, now) in joint.program.results(at).zip(b.push_all(instr.op.clone(), &operands)?) {
                new[v.at()].get_or_insert(now);
            }
        }
        let outputs: Vec<_> = joint.program.outputs().iter().filter_map(|v| new[v.at()]).collect();
        let gives = joint.gives.iter().map(|v| v.map(|v| joint.program.may_be_unreached(v))).collect();
        let reads = reads.iter().filter_map(|v| self.kept.binary_search(v).ok()).collect();
        Ok(Reverse { program: b.finish(&outputs)?, reads, gives })
    }
}

impl Joint {
    /// The instructions that results need, down to those values of the first `n` at which `stop` says so; and these.
    fn cut(&self, n: usize, stop: impl Fn(ValueId) -> bool) -> (Vec<bool>, Vec<ValueId>) {
        let mut reads = Vec::new();
        let mut values = vec![false; self.program.n_values()];
        let mut want = |values: &mut Vec<bool>, v: ValueId| {
            if v.at() < n && stop(v) {
                reads.push(v);
            } else {
                values[v.at()] = true;
            }
        };
        self.program.outputs().iter().for_each(|&v| want(&mut values, v));
        let mut wanted = vec![false; self.program.instrs().len()];
        for (at, instr) in self.program.instrs().iter().enumerate().rev() {
            wanted[at] = self.program.results(at).any(|v| values[v.at()]);
            if wanted[at] {
                instr.operands.iter().for_each(|&v| want(&mut values, v));
            }
        }
        (wanted, ordered(reads))
    }
}

/// Each once, ascending.
fn ordered(mut values: Vec<ValueId>) -> Vec<ValueId> {
    values.sort_unstable();
    values.dedup();
    values
}
