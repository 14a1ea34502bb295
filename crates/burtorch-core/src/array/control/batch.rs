//! Batches of loops and choices: all rows run through a loop together.
//!
//! Promises: carries that do not depend on a row are computed once. A `while` whose predicate depends on the row runs until all
//! rows are finished, and a finished row keeps its carries; a choice with such a predicate computes both branches.

use super::super::batch::Batch;
use super::super::expand::inlined;
use super::super::instr::{ArrayOp, ArrayProgram, Comparison, Element, Length, Loop, Reduce, Type, ValueId};
use super::body::{parts, shared};
use super::types::COUNT;
use crate::error::Result;
use crate::ops::Op;

/// A value and whether it has rows.
pub(super) type Rowed = (ValueId, bool);

impl Batch {
    /// A builder for a body, with its arguments: with rows first where a flag says so.
    fn body(&self, body: &ArrayProgram, has_rows: &[bool]) -> Result<(Batch, Vec<Rowed>)> {
        let mut inner = Batch::new(body.dtype(), self.rows)?;
        let inputs = inner.inputs(&body.input_types(), has_rows)?;
        Ok((inner, inputs))
    }

    /// Arguments of these types, with rows first where a flag says so.
    fn inputs(&mut self, types: &[Type], has_rows: &[bool]) -> Result<Vec<Rowed>> {
        let mut inputs = Vec::with_capacity(types.len());
        for (&ty, &has_rows) in types.iter().zip(has_rows) {
            let dims = if has_rows { self.led(&ty.dims)? } else { ty.dims };
            inputs.push((self.b.push(ArrayOp::Input(Type { dims, ..ty }), &[])?, has_rows));
        }
        Ok(inputs)
    }

    /// The body for all rows, its results with rows where `forced` says so, and whether they have.
    pub(super) fn body_of_rows(
        &self,
        body: &ArrayProgram,
        has_rows: &[bool],
        forced: &[bool],
    ) -> Result<(ArrayProgram, Vec<bool>)> {
        let body = inlined(body)?;
        let (mut inner, inputs) = self.body(&body, has_rows)?;
        let new = inner.run(&body, &inputs)?;
        self.ends_apart.set(self.ends_apart.get() || inner.ends_apart.get());
        let (mut outputs, mut flags) = (Vec::new(), Vec::new());
        for (k, v) in body.outputs().iter().enumerate() {
            let result = new[v.at()];
            let forced = forced.get(k).is_some_and(|forced| *forced);
            outputs.push(if forced { inner.with_rows(result)? } else { result.0 });
            flags.push(forced || result.1);
        }
        Ok((inner.b.finish(&outputs)?, flags))
    }

    /// The loop for all rows.
    pub(in super::super) fn loop_of_rows(&mut self, of: &Loop, operands: &[Rowed]) -> Result<Vec<Rowed>> {
        let first = of.first();
        let [_, carries, slices] = parts(of, &operands[first..]);
        let mut has_rows: Vec<_> = operands[first..].iter().map(|v| v.1).collect();
        // A carry has rows if it has some in any step.
        let (body, flags) = loop {
            let (body, found) = self.body_of_rows(&of.body.0, &has_rows, &has_rows[carries.clone()])?;
            let before = has_rows[carries.clone()].to_vec();
            if before == found[..of.carries] {
                break (body, found);
            }
            has_rows[carries.clone()].copy_from_slice(&found[..of.carries]);
        };
        let length = match &of.length {
            Length::While { condition, most } => {
                let (alone, differs) = self.body_of_rows(&condition.0, &has_rows[..carries.end], &[])?;
                if differs[0] {
                    return self.loop_until_done(of, operands);
                }
                Length::While { condition: shared(alone), most: *most }
            }
            // Rows that were done after different numbers of steps.
            Length::Counted if self.b.type_of(operands[0].0).dims.rank() > 0 => {
                return self.loop_until_done(of, operands);
            }
            other => other.clone(),
        };
        let mut given: Vec<_> = operands[..first].iter().map(|v| v.0).collect();
        for (k, &v) in operands[first..].iter().enumerate() {
            given.push(match (has_rows[k], slices.contains(&k)) {
                (true, true) if matches!(of.length, Length::Fixed(_)) => self.rows_first(v.0, 1)?,
                (true, false) => self.with_rows(v)?,
                _ => v.0,
            });
        }
        let found = self.b.push_all(ArrayOp::Loop(Loop { body: shared(body), length, ..of.clone() }), &given)?;
        let is_stacked = |k: usize| k >= of.carries && matches!(of.length, Length::Fixed(_));
        let mut all = Vec::with_capacity(found.len());
        for (k, v) in found.into_iter().enumerate() {
            // The number of steps is that of all rows together.
            let has_rows = flags.get(k).copied().unwrap_or(false);
            all.push((if has_rows && is_stacked(k) { self.rows_first(v, 1)? } else { v }, has_rows));
        }
        Ok(all)
    }

    /// The loop for rows that are done after different numbers of steps. One more carry counts: the steps of each row, or, where
    /// these are known, those of the loop.
    fn loop_until_done(&mut self, of: &Loop, operands: &[Rowed]) -> Result<Vec<Rowed>> {
        self.ends_apart.set(true);
        let first = of.first();
        let of_operands = &operands[first..];
        let [captures, carries, slices] = parts(of, of_operands);
        let mut has_rows: Vec<_> = of_operands.iter().map(|v| v.1).collect();
        has_rows[carries.clone()].fill(true);
        let rows = self.led(&[])?;
        let zero = self.b.push(ArrayOp::Integer(0), &[])?;
        let (total, counts, start) = match of.length {
            Length::Counted if self.rows == 0 => (Some(zero), Some(operands[0].0), zero),
            Length::Counted => {
                let total = self.b.reduce(Reduce::Max, operands[0].0, None, false)?;
                let one = self.b.push(ArrayOp::Integer(1), &[])?;
                let last = self.b.row(Op::Sub, &[total, one])?;
                (Some(total), Some(operands[0].0), if of.reverse { last } else { zero })
            }
            _ => (None, None, self.b.broadcast_to(zero, rows)?),
        };
        let body = self.body_until_done(of, &has_rows)?;
        let length = match &of.length {
            Length::While { condition, most } => {
                let condition = self.any_row(&condition.0, &has_rows[..carries.end])?;
                Length::While { condition: shared(condition), most: *most }
            }
            other => other.clone(),
        };
        let mut given: Vec<_> = total.into_iter().collect();
        for &v in &of_operands[captures.clone()] {
            given.push(if v.1 { self.with_rows(v)? } else { v.0 });
        }
        given.extend(counts);
        for &v in &of_operands[carries] {
            given.push(self.with_rows(v)?);
        }
        given.push(start);
        given.extend(of_operands[slices].iter().map(|v| v.0));
        let captures = of.captures + usize::from(counts.is_some());
        let of_all = Loop { body: shared(body), length, captures, carries: of.carries + 1, ..of.clone() };
        let mut found = self.b.push_all(ArrayOp::Loop(of_all), &given)?;
        let counts = found.remove(of.carries);
        if let Length::While { .. } = of.length {
            found.pop();
            found.push(counts);
        }
        Ok(found.into_iter().map(|v| (v, true)).collect())
    }

    /// The body of such a loop, which leaves the carries of rows that are done as they are.
    fn body_until_done(&self, of: &Loop, has_rows: &[bool]) -> Result<ArrayProgram> {
        let body = inlined(&of.body.0)?;
        let types = body.input_types();
        let [captures, carries, slices] = parts(of, &types);
        let mut inner = Batch::new(body.dtype(), self.rows)?;
        let rows = Type { dims: self.led(&[])?, element: Element::Int };
        let mut inputs = inner.inputs(&types[captures.clone()], &has_rows[captures])?;
        let is_while = matches!(of.length, Length::While { .. });
        let counts = if is_while { None } else { Some(inner.b.push(ArrayOp::Input(rows), &[])?) };
        inputs.extend(inner.inputs(&types[carries.clone()], &has_rows[carries])?);
        let number = inner.b.push(ArrayOp::Input(if is_while { rows } else { COUNT }), &[])?;
        inputs.extend(inner.inputs(&types[slices.clone()], &has_rows[slices])?);
        let goes_on = match (&of.length, counts) {
            (Length::While { condition, .. }, _) => {
                let condition = inlined(&condition.0)?;
                let result = inner.run(&condition, &inputs)?[condition.outputs()[0].at()];
                inner.with_rows(result)?
            }
            (_, Some(counts)) => inner.b.compare(Comparison::Less, &[number, counts])?,
            _ => number,
        };
        inner.taking = Some(goes_on);
        let new = inner.run(&body, &inputs)?;
        let mut outputs = Vec::new();
        for (k, v) in body.outputs().iter().enumerate() {
            let now = inner.with_rows(new[v.at()])?;
            outputs.push(if k < of.carries {
                let before = inputs[of.captures + k].0;
                let mask = inner.wide(goes_on, inner.b.type_of(now).dims)?;
                inner.b.push(ArrayOp::Select, &[mask, now, before])?
            } else {
                now
            });
        }
        let number = if is_while {
            let more = inner.b.convert(goes_on, Element::Float)?;
            let more = inner.b.convert(more, Element::Int)?;
            inner.b.row(Op::Add, &[number, more])?
        } else {
            let step = inner.b.push(ArrayOp::Integer(if of.reverse { -1 } else { 1 }), &[])?;
            inner.b.row(Op::Add, &[number, step])?
        };
        outputs.insert(of.carries, number);
        inner.b.finish(&outputs)
    }

    /// Whether a condition holds for some row.
    fn any_row(&self, condition: &ArrayProgram, has_rows: &[bool]) -> Result<ArrayProgram> {
        let condition = inlined(condition)?;
        let (mut inner, inputs) = self.body(&condition, has_rows)?;
        let result = inner.run(&condition, &inputs)?[condition.outputs()[0].at()];
        // The number of steps of each row is not looked at.
        inner.b.push(ArrayOp::Input(Type { dims: self.led(&[])?, element: Element::Int }), &[])?;
        let result = inner.with_rows(result)?;
        let numbers = inner.b.convert(result, Element::Float)?;
        let count = inner.b.reduce(Reduce::Sum, numbers, None, false)?;
        let any = inner.b.convert(count, Element::Mask)?;
        inner.b.finish(&[any])
    }

    /// The choice for all rows.
    pub(in super::super) fn cond_of_rows(&mut self, branches: [&ArrayProgram; 2], of: &[Rowed]) -> Result<Vec<Rowed>> {
        let (predicate, operands) = (of[0], &of[1..]);
        if !predicate.1 {
            let has_rows: Vec<_> = operands.iter().map(|v| v.1).collect();
            let yes = self.body_of_rows(branches[0], &has_rows, &[])?.1;
            let no = self.body_of_rows(branches[1], &has_rows, &[])?.1;
            let flags: Vec<_> = yes.iter().zip(&no).map(|(a, b)| *a || *b).collect();
            let [yes, no] = branches.map(|branch| self.body_of_rows(branch, &has_rows, &flags));
            let op = ArrayOp::Cond { yes: shared(yes?.0), no: shared(no?.0) };
            let given: Vec<_> = of.iter().map(|v| v.0).collect();
            return Ok(self.b.push_all(op, &given)?.into_iter().zip(flags).collect());
        }
        let around = self.taking;
        let no = self.b.not(predicate.0)?;
        let mut both = Vec::new();
        for (branch, taken) in branches.into_iter().zip([predicate.0, no]) {
            let branch = inlined(branch)?;
            self.taking = Some(around.map_or(Ok(taken), |around| self.b.both(around, taken))?);
            let new = self.run(&branch, operands)?;
            both.push(branch.outputs().iter().map(|v| self.with_rows(new[v.at()])).collect::<Result<Vec<_>>>()?);
        }
        self.taking = around;
        let mut results = Vec::new();
        for (&yes, &no) in both[0].iter().zip(&both[1]) {
            let mask = self.wide(predicate.0, self.b.type_of(yes).dims)?;
            results.push((self.b.push(ArrayOp::Select, &[mask, yes, no])?, true));
        }
        Ok(results)
    }
}
