//! The program that computes the entries of a sparse Jacobian, from one direction for each colour.
//!
//! Promises: an entry has the number that the whole Jacobian has there. Does not know how patterns are found.

use std::sync::Arc;

use super::super::build::ArrayBuilder;
use super::super::dims::Dims;
use super::super::instr::{ArrayOp, ArrayProgram, Comparison, Data, Element, Shared, ValueId};
use super::super::reverse::{Variable, values_of};
use super::pattern::Pattern;
use crate::error::Result;

/// Integers as a constant.
fn integers(b: &mut ArrayBuilder, all: impl Iterator<Item = usize>) -> Result<ValueId> {
    let all: Vec<_> = all.map(|k| k as i64).collect();
    b.push(ArrayOp::Const(Dims::new(&[all.len()])?, Shared(Arc::new(Data::Int(all)))), &[])
}

impl Pattern {
    /// All entries of so many rows and columns.
    fn full(rows: usize, columns: usize) -> Self {
        let starts = (0..=rows).map(|row| row * columns).collect();
        Pattern { starts, columns: (0..rows).flat_map(|_| 0..columns as u32).collect() }
    }

    /// This with rows and columns exchanged.
    fn transposed(&self, n: usize) -> Self {
        let mut starts = vec![0; n + 1];
        self.columns.iter().for_each(|&c| starts[c as usize + 1] += 1);
        (0..n).for_each(|c| starts[c + 1] += starts[c]);
        let mut columns = vec![0; self.columns.len()];
        let mut next = starts.clone();
        for row in 0..self.n_rows() {
            for &c in self.row(row) {
                columns[next[c as usize]] = row as u32;
                next[c as usize] += 1;
            }
        }
        Pattern { starts, columns }
    }

    /// Colours of the columns, each its own if a row needs all of them.
    fn colours_at_most(&self, n: usize) -> Result<(Vec<u32>, usize)> {
        let is_full = (0..self.n_rows()).any(|row| self.row(row).len() == n);
        if is_full { Ok(((0..n as u32).collect(), n)) } else { self.colours(n) }
    }
}

impl ArrayProgram {
    /// The entries of the Jacobian of all results, arrays of floats, that may differ from 0: results are rows and variables
    /// are columns, in order.
    pub fn sparsity(&self, by: &[Variable]) -> Result<Pattern> {
        let size = |values: &[ValueId]| values.iter().map(|&v| self.type_of(v).dims.size()).sum();
        let columns = size(&values_of(self, by)?);
        Ok(self.jacobian_pattern(by)?.unwrap_or_else(|| Pattern::full(size(self.outputs()), columns)))
    }

    /// The program that computes these entries, in one array by rows.
    ///
    /// ```
    /// use burtorch_core::array::{Argument, ArrayBuilder, Element, Plan, Slice, Variable};
    /// use burtorch_core::{DType, Op};
    ///
    /// let mut b = ArrayBuilder::new(DType::Float64)?;
    /// let x = b.input(&[4], Element::Float)?;
    /// let parts = [1, 0].map(|start| b.slice(x, &[Slice { start, step: 1, count: 3 }]));
    /// let [after, before] = parts;
    /// let y = b.row(Op::Mul, &[after?, before?])?;
    /// let program = b.finish(&[y])?;
    ///
    /// let by = [Variable::Input(0)];
    /// let pattern = program.sparsity(&by)?;
    /// assert_eq!(pattern.columns, [0, 1, 1, 2, 2, 3]);
    /// let mut plan = Plan::<f64>::new(&program.entries(&by, &pattern)?)?;
    /// plan.run(&[Argument::Float(&[1.0, 2.0, 3.0, 4.0])], &[])?;
    /// assert_eq!(plan.floats(0)?, [2.0, 1.0, 3.0, 2.0, 4.0, 3.0]);
    /// # Ok::<(), burtorch_core::Error>(())
    /// ```
    pub fn entries(&self, by: &[Variable], pattern: &Pattern) -> Result<ArrayProgram> {
        let variables: Vec<Dims> = values_of(self, by)?.iter().map(|&v| self.type_of(v).dims).collect();
        let results: Vec<Dims> = self.output_types().iter().map(|ty| ty.dims).collect();
        let total = |all: &[Dims]| all.iter().map(Dims::size).sum::<usize>();
        let (m, n) = (total(&results), total(&variables));
        let mut b = ArrayBuilder::new(self.dtype())?;
        let mut arguments = b.inputs_of(&self.input_types())?;
        if pattern.columns.is_empty() {
            let zero = b.literal(0.0)?;
            let none = b.broadcast_to(zero, Dims::new(&[0])?)?;
            return b.finish(&[none]);
        }
        let (columns, rows) = (pattern.colours_at_most(n)?, pattern.transposed(n).colours_at_most(m)?);
        let is_forward = columns.1 <= rows.1;
        let (one, (colours, count), seeded, width) = match is_forward {
            true => (self.jvp(by)?, columns, &variables, m),
            false => (self.vjp_of_some(by)?, rows, &results, n),
        };
        let axes: Vec<_> = (0..one.inputs().len()).map(|k| (k >= arguments.len()).then_some(0)).collect();
        let all = one.batched(&axes, count)?;
        let directions = integers(&mut b, 0..count)?;
        let directions = b.reshape(directions, &[count, 1])?;
        let mut colours_left = &colours[..];
        for dims in seeded {
            let (these, rest) = colours_left.split_at(dims.size());
            colours_left = rest;
            let these = integers(&mut b, these.iter().map(|&colour| colour as usize))?;
            let seed = b.compare(Comparison::Equal, &[directions, these])?;
            let seed = b.convert(seed, Element::Float)?;
            arguments.push(b.reshape(seed, &[&[count], &dims[..]].concat())?);
        }
        let found = b.push_all(ArrayOp::Call(Shared(Arc::new(all))), &arguments)?.split_off(results.len());
        let found = found.into_iter().map(|part| {
            let size = b.dims(part).size() / count;
            b.reshape(part, &[count, size])
        });
        let found = found.collect::<Result<Vec<_>>>()?;
        let found = b.concatenate(&found, 1)?;
        let found = b.reshape(found, &[count * width])?;
        let entries = (0..m).flat_map(|row| pattern.row(row).iter().map(move |&column| (row, column as usize)));
        let places = integers(
            &mut b,
            entries.map(|(row, column)| match is_forward {
                true => colours[column] as usize * width + row,
                false => colours[row] as usize * width + column,
            }),
        )?;
        let entries = b.take(found, places, 0)?;
        b.finish(&[entries])
    }
}
