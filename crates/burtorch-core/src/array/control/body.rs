//! Bodies: programs composed of others, with related arguments side by side.
//!
//! Does not know the purpose of a body.

use super::super::build::ArrayBuilder;
use super::super::instr::{ArrayOp, ArrayProgram, Element, Length, Loop, Shared, Type, ValueId};
use crate::error::Result;
use std::sync::Arc;

/// A program that anything may hold.
pub(super) fn shared(program: ArrayProgram) -> Shared<ArrayProgram> {
    Shared(Arc::new(program))
}

impl ArrayBuilder {
    /// Arguments of these types.
    pub(in super::super) fn inputs_of<'t>(
        &mut self,
        types: impl IntoIterator<Item = &'t Type>,
    ) -> Result<Vec<ValueId>> {
        types.into_iter().map(|&ty| self.push(ArrayOp::Input(ty), &[])).collect()
    }

    /// The value as an adjoint that may be unreached.
    pub(in super::super) fn as_adjoint(&mut self, x: ValueId) -> Result<ValueId> {
        self.push(ArrayOp::Adjoint, &[x])
    }

    /// An adjoint of this type that nothing has reached.
    pub(super) fn unreached_like(&mut self, ty: Type) -> Result<ValueId> {
        self.push(ArrayOp::Unreached(ty.dims), &[])
    }

    /// The type of the numbers in a stack, which some loop gave.
    fn stacked_type(&self, stack: ValueId) -> Type {
        let so_far = self.so_far();
        let at = so_far.instrs().partition_point(|instr| instr.result <= stack) - 1;
        match &so_far.instrs()[at].op {
            ArrayOp::Loop(of) => {
                let body = &of.body.0;
                body.type_of(body.outputs()[stack.at() - so_far.instrs()[at].result.at()])
            }
            _ => so_far.type_of(stack),
        }
    }

    /// The sum of two stacks of adjoints.
    pub(in super::super) fn stacks_added(&mut self, x: ValueId, y: ValueId) -> Result<ValueId> {
        let ty = self.stacked_type(x);
        let mut b = ArrayBuilder::new(self.so_far().dtype())?;
        let mut terms = b.inputs_of([&ty, &ty])?;
        for (term, from) in terms.iter_mut().zip([x, y]) {
            *term = if self.so_far().may_be_unreached(from) { b.as_adjoint(*term)? } else { *term };
        }
        let sum = b.push(ArrayOp::Accumulate, &terms)?;
        let body = shared(b.finish(&[sum])?);
        let of = Loop { body, length: Length::Counted, reverse: false, captures: 0, carries: 0, checkpoint: None };
        self.push(ArrayOp::Loop(of), &[x, x, y])
    }

    /// A loop without the captures and slices that its body does not read. Operands are those of the whole loop.
    pub(super) fn push_loop(&mut self, mut of: Loop, operands: &[ValueId]) -> Result<Vec<ValueId>> {
        let body = of.body.0.cleaned()?;
        let mut is_read = vec![false; body.n_values()];
        let operands_of = body.instrs().iter().flat_map(|instr| &instr.operands[..]);
        operands_of.chain(body.outputs()).for_each(|v| is_read[v.at()] = true);
        let keeps_captures = matches!(of.length, Length::While { .. });
        let is_carry = |k: usize| (of.captures..of.captures + of.carries).contains(&k);
        let keep: Vec<_> =
            (0..body.inputs().len()).map(|k| is_read[body.inputs()[k].at()] || is_carry(k) || keeps_captures).collect();
        let mut b = ArrayBuilder::new(body.dtype())?;
        let mut arguments = Vec::with_capacity(keep.len());
        for (&v, &keep) in body.inputs().iter().zip(&keep) {
            // What is left out is not read.
            arguments.push(if keep { b.push(ArrayOp::Input(body.type_of(v)), &[])? } else { ValueId(0) });
        }
        let new = b.append(&body, &arguments)?;
        let outputs: Vec<_> = body.outputs().iter().map(|v| new[v.at()]).collect();
        let first = of.first();
        let kept = operands[first..].iter().zip(&keep).filter(|(_, keep)| **keep).map(|(v, _)| *v);
        let operands: Vec<_> = operands[..first].iter().copied().chain(kept).collect();
        of.captures = keep[..of.captures].iter().filter(|keep| **keep).count();
        of.body = shared(b.finish(&outputs)?);
        self.push_all(ArrayOp::Loop(of), &operands)
    }
}

/// Of a loop's operands or a body's arguments: captures, carries, slices.
pub(super) fn parts<T>(of: &Loop, all: &[T]) -> [std::ops::Range<usize>; 3] {
    let carries = of.captures + of.carries;
    [0..of.captures, of.captures..carries, carries..all.len()]
}

/// Whether a value of this type can have an adjoint.
pub(super) fn is_float(ty: Type) -> bool {
    ty.element == Element::Float
}
