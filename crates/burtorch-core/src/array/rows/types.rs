//! The type rule of rows, and their programs from the program of one row.

use std::sync::Arc;

use super::super::build::ArrayBuilder;
use super::super::dims::{Dims, bad};
use super::super::instr::{ArrayOp, ArrayProgram, Element, OverRows, Rows, Shared, Type, ValueId, View};
use crate::error::Result;

/// The type of something that there is one of for each row.
pub(super) fn led(rows: usize, ty: Type) -> Result<Type> {
    Ok(Type { dims: Dims::new(&[&[rows], &ty.dims[..]].concat())?, ..ty })
}

impl Rows {
    /// The types of the results, given those of the operands.
    pub(in super::super) fn infer(&self, of: &[Type]) -> Result<Vec<Type>> {
        let body = &self.body.0;
        let (inputs, outputs) = (body.input_types(), body.output_types());
        if self.mapped.len() != inputs.len() || self.results.len() != outputs.len() || !body.params().is_empty() {
            let expected = format!("{} arguments, {} results, no parameters", self.mapped.len(), self.results.len());
            let found = format!("{}, {}, {}", inputs.len(), outputs.len(), body.params().len());
            return Err(bad("body", expected, found));
        }
        for ((ty, &is_mapped), found) in inputs.iter().zip(&self.mapped).zip(of) {
            let expected = if is_mapped { led(self.rows, *ty)? } else { *ty };
            if *found != expected {
                return Err(bad("operand of rows", format!("{expected:?}"), format!("{found:?}")));
            }
        }
        let of_result = |(&ty, over): (&Type, &OverRows)| match over {
            OverRows::Each => led(self.rows, ty),
            OverRows::Sum if ty.element != Element::Mask => Ok(ty),
            OverRows::Mean if ty.element == Element::Float => Ok(ty),
            _ => Err(bad("result to total", "an array of floats".into(), format!("one of {:?}", ty.element))),
        };
        outputs.iter().zip(&self.results).map(of_result).collect()
    }
}

impl ArrayProgram {
    /// The program for `rows` rows at once, with results that are totals over the rows. `in_axes` says for each argument which
    /// axis of the new argument runs along the rows, or that it is shared.
    ///
    /// ```
    /// use burtorch_core::array::{Argument, ArrayBuilder, Element, OverRows, Plan, Variable};
    /// use burtorch_core::DType;
    /// let mut b = ArrayBuilder::new(DType::Float64)?;
    /// let (x, w) = (b.input(&[2], Element::Float)?, b.input(&[2], Element::Float)?);
    /// let y = b.matmul(x, w)?;
    /// let total = b.finish(&[y])?.over_rows(&[Some(0), None], &[OverRows::Sum], 3)?;
    /// let mut plan = Plan::<f64>::new(&total.gradient(&[Variable::Input(1)])?)?;
    /// plan.run(&[Argument::Float(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), Argument::Float(&[1.0, 10.0])], &[])?;
    /// assert_eq!(plan.floats(0)?, [9.0, 12.0]);
    /// # Ok::<(), burtorch_core::Error>(())
    /// ```
    pub fn over_rows(&self, in_axes: &[Option<usize>], results: &[OverRows], rows: usize) -> Result<ArrayProgram> {
        if in_axes.len() != self.inputs().len() {
            return Err(bad("axes of arguments", self.inputs().len().to_string(), in_axes.len().to_string()));
        }
        let (body, params) = self.with_parameters_as_inputs()?;
        let mut b = ArrayBuilder::new(self.dtype())?;
        let mut operands = Vec::with_capacity(in_axes.len() + params.len());
        for (ty, axis) in self.input_types().into_iter().zip(in_axes) {
            let Some(axis) = *axis else {
                operands.push(b.push(ArrayOp::Input(ty), &[])?);
                continue;
            };
            if axis > ty.dims.rank() {
                return Err(bad("axis of rows", format!("at most {}", ty.dims.rank()), axis.to_string()));
            }
            let mut extents = ty.dims.to_vec();
            extents.insert(axis, rows);
            let x = b.push(ArrayOp::Input(Type { dims: Dims::new(&extents)?, ..ty }), &[])?;
            let first = [axis].into_iter().chain((0..extents.len()).filter(|&k| k != axis)).collect();
            operands.push(if axis == 0 { x } else { b.view(x, View::Permute(first))? });
        }
        for param in params {
            operands.push(b.push(param, &[])?);
        }
        let mapped = (0..operands.len()).map(|k| in_axes.get(k).is_some_and(Option::is_some)).collect();
        let of = Rows { body: Shared(Arc::new(body)), rows, mapped, results: results.into() };
        let outputs = b.push_all(ArrayOp::Rows(of), &operands)?;
        b.finish(&outputs)
    }

    /// The program, without calls, with inputs after all others for what it reads from parameters, and these.
    pub fn with_parameters_as_inputs(&self) -> Result<(ArrayProgram, Vec<ArrayOp>)> {
        let whole = &self.without_calls()?;
        let mut b = ArrayBuilder::new(self.dtype())?;
        let mut new = vec![ValueId(0); whole.n_values()];
        let params = whole.instrs().iter().filter(|instr| matches!(instr.op, ArrayOp::Param { .. }));
        let params: Vec<_> = params.map(|instr| (instr.op.clone(), instr.result)).collect();
        for &v in whole.inputs().iter().chain(params.iter().map(|(_, v)| v)) {
            new[v.at()] = b.push(ArrayOp::Input(whole.type_of(v)), &[])?;
        }
        for (at, instr) in whole.instrs().iter().enumerate() {
            if matches!(instr.op, ArrayOp::Input(_) | ArrayOp::Param { .. }) {
                continue;
            }
            let operands: Vec<_> = instr.operands.iter().map(|v| new[v.at()]).collect();
            for (v, now) in whole.results(at).zip(b.push_all(instr.op.clone(), &operands)?) {
                new[v.at()] = now;
            }
        }
        let outputs: Vec<_> = whole.outputs().iter().map(|v| new[v.at()]).collect();
        Ok((b.finish(&outputs)?, params.into_iter().map(|(op, _)| op).collect()))
    }
}
