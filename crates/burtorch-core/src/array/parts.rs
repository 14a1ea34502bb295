//! Analysis of programs: parts of one, the inputs of a result, equality of two.
//!
//! Promises: one pass over the instructions, no recursion except into nested programs. Does not know derivatives.

use super::expand::inlined;
use super::instr::{Apart, ArrayInstr, ArrayOp, ArrayProgram, Data, Length, Loop, Rows};
use crate::error::Result;

impl Data {
    fn bytes(&self) -> usize {
        match self {
            Data::F64(x) => size_of_val(&**x),
            Data::F32(x) => size_of_val(&**x),
            Data::Int(x) => size_of_val(&**x),
            Data::Mask(x) => size_of_val(&**x),
        }
    }

    /// Whether both have the same bits.
    fn is_same(&self, other: &Data) -> bool {
        match (self, other) {
            (Data::F64(x), Data::F64(y)) => {
                x.len() == y.len() && x.iter().zip(y).all(|(x, y)| x.to_bits() == y.to_bits())
            }
            (Data::F32(x), Data::F32(y)) => {
                x.len() == y.len() && x.iter().zip(y).all(|(x, y)| x.to_bits() == y.to_bits())
            }
            (x, y) => x == y,
        }
    }
}

impl Loop {
    /// Whether both take the same steps.
    fn is_same(&self, other: &Loop) -> bool {
        let length = match (&self.length, &other.length) {
            (Length::While { condition: a, most: m }, Length::While { condition: b, most: n }) => {
                m == n && a.0.is_same(&b.0)
            }
            (a, b) => a == b,
        };
        let others = Loop { body: other.body.clone(), length: other.length.clone(), ..self.clone() };
        length && others == *other && self.body.0.is_same(&other.body.0)
    }
}

impl ArrayProgram {
    /// The same program with calls written out, without what no result needs, and with each parameter read once.
    pub fn without_calls(&self) -> Result<ArrayProgram> {
        inlined(self)?.pruned()
    }

    /// Memory of the program in bytes, with its constants.
    pub fn bytes(&self) -> usize {
        let of_instr = |instr: &ArrayInstr| match &instr.op {
            ArrayOp::Const(_, data) => data.0.bytes(),
            ArrayOp::Call(program) | ArrayOp::Apart(Apart { body: program, .. }) => program.0.bytes(),
            ArrayOp::Rows(rows) => rows.body.0.bytes(),
            _ => 0,
        };
        let operands = |instr: &ArrayInstr| size_of_val(&*instr.operands);
        let held: usize = self.instrs.iter().map(|instr| of_instr(instr) + operands(instr)).sum();
        held + size_of_val(&*self.instrs) + size_of_val(&*self.known)
    }

    /// Which parameters it reads, also in programs that it calls.
    pub fn sets(&self) -> Vec<u32> {
        let mut sets = Vec::new();
        for instr in self.instrs() {
            match &instr.op {
                ArrayOp::Param { set, .. } => sets.push(*set),
                ArrayOp::Call(program) => sets.extend(program.0.sets()),
                _ => {}
            }
        }
        sets.sort_unstable();
        sets.dedup();
        sets
    }

    /// This with some of its results only, by number; others are left out.
    pub fn selecting(&self, which: impl Iterator<Item = usize>) -> ArrayProgram {
        let outputs = which.filter_map(|k| self.outputs.get(k).copied()).collect();
        self.clone().with_outputs(outputs)
    }

    /// For each result, whether it is computed from one of these arguments.
    pub fn outputs_that_read(&self, arguments: &[usize]) -> Vec<bool> {
        let mut reads = vec![false; self.known.len()];
        for v in arguments.iter().filter_map(|&k| self.inputs.get(k)) {
            reads[v.at()] = true;
        }
        for (at, instr) in self.instrs.iter().enumerate() {
            if instr.operands.iter().any(|v| reads[v.at()]) {
                self.results(at).for_each(|v| reads[v.at()] = true);
            }
        }
        self.outputs.iter().map(|v| reads[v.at()]).collect()
    }

    /// Whether both compute the same by the same instructions, on equal constants.
    pub fn is_same(&self, other: &ArrayProgram) -> bool {
        let is_same = |a: &ArrayOp, b: &ArrayOp| match (a, b) {
            (ArrayOp::Const(x, a), ArrayOp::Const(y, b)) => x == y && a.0.is_same(&b.0),
            (ArrayOp::Call(a), ArrayOp::Call(b)) => a.0.is_same(&b.0),
            (ArrayOp::Cond { yes: a, no: b }, ArrayOp::Cond { yes: c, no: d }) => {
                a.0.is_same(&c.0) && b.0.is_same(&d.0)
            }
            (ArrayOp::Apart(a), ArrayOp::Apart(b)) => {
                let key = |apart: &Apart| apart.rules.as_ref().map(|rules| rules.0.key());
                key(a) == key(b) && a.body.0.is_same(&b.body.0)
            }
            (ArrayOp::Loop(a), ArrayOp::Loop(b)) => a.is_same(b),
            (ArrayOp::Rows(a), ArrayOp::Rows(b)) => {
                let others = Rows { body: b.body.clone(), ..a.clone() };
                others == *b && a.body.0.is_same(&b.body.0)
            }
            (a, b) => a == b,
        };
        self.outputs == other.outputs
            && self.instrs.len() == other.instrs.len()
            && self.instrs.iter().zip(&other.instrs).all(|(a, b)| is_same(&a.op, &b.op) && a.operands == b.operands)
    }
}
