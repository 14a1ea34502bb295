//! Loops and choices as methods of the builder, with JAX's names and meanings.

use super::super::build::ArrayBuilder;
use super::super::dims::bad;
use super::super::instr::{ArrayOp, ArrayProgram, Element, Length, Loop, ValueId};
use super::body::shared;
use crate::error::Result;

/// What a scan is like, besides its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ScanOptions {
    /// The number of steps; needed where there are no slices.
    pub length: Option<usize>,
    /// From the last slice to the first.
    pub reverse: bool,
    /// What reverse mode keeps.
    pub checkpoint: Checkpoint,
}

/// Which carries of a scan reverse mode keeps; the others are computed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Checkpoint {
    /// All.
    #[default]
    None,
    /// As many as there are steps between them.
    Sqrt,
    /// Every so many steps.
    Every(usize),
}

impl ArrayBuilder {
    /// Runs `body` for each slice along the first axis of `slices`. The body takes captures, carries and slices, in this order, and
    /// gives carries and what is stacked. Returns the last carries and the stacked arrays.
    ///
    /// Costs the body's time for each step; reverse mode keeps the carries of each step, or those that `checkpoint` names.
    ///
    /// ```
    /// use burtorch_core::array::{Argument, ArrayBuilder, Element, Plan, ScanOptions, Variable};
    /// use burtorch_core::{DType, Op};
    /// let mut body = ArrayBuilder::new(DType::Float64)?;
    /// let [w, h, x] = [(); 3].map(|()| body.input(&[], Element::Float).unwrap());
    /// let product = body.row(Op::Mul, &[w, h])?;
    /// let next = body.row(Op::Add, &[product, x])?;
    /// let body = body.finish(&[next, next])?;
    ///
    /// let mut b = ArrayBuilder::new(DType::Float64)?;
    /// let (w, h, x) = (b.input(&[], Element::Float)?, b.literal(1.0)?, b.input(&[3], Element::Float)?);
    /// let results = b.scan(body, &[w], &[h], &[x], ScanOptions::default())?;
    /// let program = b.finish(&results)?;
    /// let mut plan = Plan::<f64>::new(&program)?;
    /// plan.run(&[Argument::Float(&[2.0]), Argument::Float(&[1.0, 0.0, -1.0])], &[])?;
    /// assert_eq!((plan.floats(0)?, plan.floats(1)?), (&[11.0][..], &[3.0, 6.0, 11.0][..]));
    /// let gradient = program.selecting([0].into_iter()).gradient(&[Variable::Input(0)])?;
    /// let mut plan = Plan::<f64>::new(&gradient)?;
    /// plan.run(&[Argument::Float(&[2.0]), Argument::Float(&[1.0, 0.0, -1.0])], &[])?;
    /// assert_eq!(plan.floats(0)?, [16.0]);
    /// # Ok::<(), burtorch_core::Error>(())
    /// ```
    pub fn scan(
        &mut self,
        body: ArrayProgram,
        captures: &[ValueId],
        carries: &[ValueId],
        slices: &[ValueId],
        options: ScanOptions,
    ) -> Result<Vec<ValueId>> {
        slices.iter().try_for_each(|&v| self.check(v))?;
        let mut length = options.length;
        for &v in slices {
            let dims = self.dims(v);
            let found = dims.first().copied();
            if found.is_none() || length.is_some_and(|n| found != Some(n)) {
                let expected = length.map_or("an array with axes".into(), |n| format!("{n} along the first axis"));
                return Err(bad("slices of a scan", expected, dims.to_string()));
            }
            length = found;
        }
        let Some(length) = length else {
            return Err(bad("length of a scan", "given where there are no slices".into(), "none".into()));
        };
        let checkpoint = match options.checkpoint {
            Checkpoint::None => None,
            Checkpoint::Sqrt => Some(length.isqrt().max(1)),
            Checkpoint::Every(0) => return Err(bad("steps between checkpoints", "at least 1".into(), "0".into())),
            Checkpoint::Every(k) => Some(k),
        };
        let of = Loop {
            body: shared(body),
            length: Length::Fixed(length),
            reverse: options.reverse,
            captures: captures.len(),
            carries: carries.len(),
            checkpoint,
        };
        let operands = [captures, carries, slices].concat();
        operands.iter().try_for_each(|&v| self.check(v))?;
        self.whole(|b| b.push_scan(of, &operands))
    }

    /// Runs `body` as long as `condition` gives true, at most `most` times. Both take captures and carries. Returns the last
    /// carries and the number of steps.
    pub fn while_loop(
        &mut self,
        condition: ArrayProgram,
        body: ArrayProgram,
        captures: &[ValueId],
        carries: &[ValueId],
        most: Option<usize>,
    ) -> Result<Vec<ValueId>> {
        if body.outputs().len() != carries.len() {
            return Err(bad(
                "carries that a body returns",
                carries.len().to_string(),
                body.outputs().len().to_string(),
            ));
        }
        let of = Loop {
            body: shared(body),
            length: Length::While { condition: shared(condition), most },
            reverse: false,
            captures: captures.len(),
            carries: carries.len(),
            checkpoint: None,
        };
        self.push_all(ArrayOp::Loop(of), &[captures, carries].concat())
    }

    /// Runs `body` for the integers from `first` up to `end`. It takes captures, the integer and carries, and gives carries.
    pub fn fori_loop(
        &mut self,
        (first, end): (i64, i64),
        body: ArrayProgram,
        captures: &[ValueId],
        carries: &[ValueId],
    ) -> Result<Vec<ValueId>> {
        self.whole(|b| {
            let length = usize::try_from(end.saturating_sub(first)).unwrap_or(0);
            let start = b.push(ArrayOp::Integer(first), &[])?;
            // The integer is a carry too.
            let mut step = ArrayBuilder::new(body.dtype())?;
            let types = body.input_types();
            let arguments = step.inputs_of(&types)?;
            let new = step.append(&body, &arguments)?;
            let Some(&at) = arguments.get(captures.len()) else {
                return Err(bad(
                    "arguments of a body",
                    "captures, an integer, carries".into(),
                    types.len().to_string(),
                ));
            };
            let one = step.push(ArrayOp::Integer(1), &[])?;
            let next = step.row(crate::ops::Op::Add, &[at, one])?;
            let outputs = body.outputs().iter().map(|v| new[v.at()]);
            let outputs: Vec<_> = [next].into_iter().chain(outputs).collect();
            let step = step.finish(&outputs)?;
            let options = ScanOptions { length: Some(length), ..ScanOptions::default() };
            let mut results = b.scan(step, captures, &[&[start], carries].concat(), &[], options)?;
            results.remove(0);
            Ok(results)
        })
    }

    /// The results of `yes` where the predicate holds, else those of `no`; only one is computed.
    pub fn cond(
        &mut self,
        predicate: ValueId,
        yes: ArrayProgram,
        no: ArrayProgram,
        operands: &[ValueId],
    ) -> Result<Vec<ValueId>> {
        self.whole(|b| {
            let predicate = b.convert(predicate, Element::Mask)?;
            let op = ArrayOp::Cond { yes: shared(yes), no: shared(no) };
            b.push_all(op, &[&[predicate], operands].concat())
        })
    }
}
