//! The instructions that a value depends on, as a program: it gives numbers while a larger program is being built.
//!
//! Promises: each new instruction is visited once, whatever the length of the program. Does not know where numbers
//! come from.

use std::collections::{HashMap, HashSet};

use super::build::ArrayBuilder;
use super::instr::{ArrayOp, ArrayProgram, Data, Shared, ValueId};
use crate::error::Result;

/// The source of a value that a cone need not compute.
#[derive(Clone, Debug)]
pub enum Given {
    /// In a further argument.
    Argument,
    /// Here.
    Numbers(Shared<Data>),
}

/// The instructions that a value needs.
#[derive(Debug)]
pub struct Cone {
    /// Arguments: those of the program under construction, then the values in `arguments`; the value is the first
    /// result, then those in `computed`.
    pub program: ArrayProgram,
    /// Values that are further arguments.
    pub arguments: Vec<ValueId>,
    /// Intermediate values.
    pub computed: Vec<ValueId>,
}

impl ArrayBuilder {
    /// The instructions for a value, except those that `given` provides. Values of more than `most` numbers are not in
    /// `computed`.
    pub fn cone_of(&self, value: ValueId, most: usize, given: impl Fn(ValueId) -> Option<Given>) -> Result<Cone> {
        self.check(value)?;
        let program = self.so_far();
        let at_of = |v: ValueId| program.instrs().partition_point(|instr| instr.result <= v) - 1;
        let is_input = |at: usize| matches!(program.instrs()[at].op, ArrayOp::Input(_));
        let (mut wanted, mut known, mut left) = (HashSet::new(), HashMap::new(), vec![value]);
        while let Some(v) = left.pop() {
            let at = at_of(v);
            if is_input(at) || known.contains_key(&v) || wanted.contains(&at) {
                continue;
            }
            if let Some(given) = given(v) {
                known.insert(v, given);
                continue;
            }
            wanted.insert(at);
            left.extend(program.instrs()[at].operands.iter().copied());
        }
        let mut b = ArrayBuilder::new(program.dtype())?;
        let mut new = HashMap::new();
        let mut arguments: Vec<_> = known.keys().copied().collect();
        arguments.sort_unstable();
        arguments.retain(|v| matches!(known[v], Given::Argument));
        for &v in program.inputs().iter().chain(&arguments) {
            let ty = self.type_of(v);
            new.insert(v, b.input(&ty.dims, ty.element)?);
        }
        for (v, given) in known {
            if let Given::Numbers(data) = given {
                new.insert(v, b.push(ArrayOp::Const(self.type_of(v).dims, data), &[])?);
            }
        }
        let mut wanted: Vec<_> = wanted.into_iter().collect();
        wanted.sort_unstable();
        let mut computed = Vec::new();
        for at in wanted {
            let instr = &program.instrs()[at];
            let operands: Vec<_> = instr.operands.iter().map(|v| new[v]).collect();
            let is_work = !operands.is_empty() && !matches!(instr.op, ArrayOp::View(_));
            for (v, now) in program.results(at).zip(b.push_all(instr.op.clone(), &operands)?) {
                new.insert(v, now);
                if is_work && v != value && self.type_of(v).dims.size() <= most {
                    computed.push(v);
                }
            }
        }
        let outputs: Vec<_> = std::iter::once(&value).chain(&computed).map(|v| new[v]).collect();
        Ok(Cone { program: b.finish(&outputs)?, arguments, computed })
    }
}
