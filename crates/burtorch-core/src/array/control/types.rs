//! The type rules of loops and choices.

use super::super::dims::{Dims, bad};
use super::super::instr::{ArrayProgram, Element, Length, Loop, Type};
use crate::error::Result;

/// The type of a value that stands for a stack, and of a number of steps.
pub(super) const COUNT: Type = Type { dims: Dims::SCALAR, element: Element::Int };

fn equal(what: &'static str, found: &[Type], expected: &[Type]) -> Result<()> {
    if found.len() != expected.len() {
        return Err(bad(what, expected.len().to_string(), found.len().to_string()));
    }
    for (found, expected) in found.iter().zip(expected) {
        if found != expected {
            return Err(bad(what, format!("{expected:?}"), format!("{found:?}")));
        }
    }
    Ok(())
}

fn closed(program: &ArrayProgram) -> Result<()> {
    if program.input_types().iter().any(|ty| ty.element == Element::Sparse) {
        let expected = "one that takes arrays of numbers; multiply sparse rows outside the loop or branch";
        return Err(bad("body", expected.into(), "one that takes sparse rows".into()));
    }
    if program.params().is_empty() {
        return Ok(());
    }
    Err(bad("body", "a program that reads no parameters: they are captures".into(), program.params().len().to_string()))
}

fn mask(program: &ArrayProgram) -> Result<()> {
    equal("result of a condition", &program.output_types(), &[Type { dims: Dims::SCALAR, element: Element::Mask }])
}

impl Loop {
    /// The types of the results, given those of the operands.
    pub(in super::super) fn infer(&self, of: &[Type]) -> Result<Vec<Type>> {
        let body = &self.body.0;
        closed(body)?;
        let (inputs, outputs) = (body.input_types(), body.output_types());
        if self.captures + self.carries > inputs.len() || self.carries > outputs.len() {
            let expected = format!("{} captures and {} carries", self.captures, self.carries);
            return Err(bad("arguments of a body", expected, inputs.len().to_string()));
        }
        let before = self.captures + self.carries;
        equal("carry that a body returns", &outputs[..self.carries], &inputs[self.captures..before])?;
        let of = match self.length {
            Length::Counted => {
                equal("number of steps", &of[..1], &[COUNT])?;
                &of[1..]
            }
            _ => of,
        };
        equal("operand of a loop", &of[..before], &inputs[..before])?;
        let stacked = |ty: &Type| match self.length {
            Length::Fixed(n) => Ok(Type { dims: Dims::new(&[&[n], &ty.dims[..]].concat())?, ..*ty }),
            _ => Ok(COUNT),
        };
        let slices = inputs[before..].iter().map(stacked).collect::<Result<Vec<_>>>()?;
        equal("slices of a loop", &of[before..], &slices)?;
        let mut results = outputs[..self.carries].to_vec();
        for ty in &outputs[self.carries..] {
            results.push(stacked(ty)?);
        }
        if let Length::While { condition, .. } = &self.length {
            closed(&condition.0)?;
            mask(&condition.0)?;
            equal("argument of a condition", &condition.0.input_types(), &inputs[..before])?;
            if before < inputs.len() {
                return Err(bad("slices of a loop", "none without a fixed length".into(), "some".into()));
            }
            results.push(COUNT);
        }
        Ok(results)
    }
}

/// The types of the results of a choice.
pub(in super::super) fn infer_cond(yes: &ArrayProgram, no: &ArrayProgram, of: &[Type]) -> Result<Vec<Type>> {
    closed(yes)?;
    closed(no)?;
    equal("predicate", &of[..1], &[Type { dims: Dims::SCALAR, element: Element::Mask }])?;
    for branch in [yes, no] {
        equal("operand of a branch", &of[1..], &branch.input_types())?;
    }
    equal("result of a branch", &no.output_types(), &yes.output_types())?;
    Ok(yes.output_types())
}
