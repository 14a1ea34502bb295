//! The program that computes the entries of a sparse Jacobian: from one direction for each colour, and for each long row.
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
}

/// No direction of a side computes it.
const NONE: u32 = u32::MAX;

/// Directions that compute all entries: one for each colour of columns, and one, the other way, for each long row. A row with
/// entries in most columns alone would need as many colours.
struct Directions {
    /// For each column its colour, for each row its place among the long ones, and how many of both there are.
    colours: Vec<u32>,
    long: Vec<u32>,
    counts: [usize; 2],
}

impl Directions {
    /// For the entries of `n` columns.
    fn of(pattern: &Pattern, n: usize) -> Result<Self> {
        let long_rows = pattern.long_rows();
        let mut long = vec![NONE; pattern.n_rows()];
        long_rows.iter().zip(0..).for_each(|(&row, k)| long[row] = k);
        let left = if long_rows.is_empty() { None } else { Some(pattern.filtered(|row, _| long[row] == NONE)?) };
        let left = left.as_ref().unwrap_or(pattern);
        let (colours, count) = match (0..left.n_rows()).map(|row| left.row(row).len()).max() {
            None | Some(0) => (vec![NONE; n], 0),
            // Each column its own, if a row needs all of them.
            Some(longest) if longest == n => ((0..n as u32).collect(), n),
            _ => left.colours(n)?,
        };
        Ok(Directions { colours, long, counts: [count, long_rows.len()] })
    }

    fn count(&self) -> usize {
        self.counts.iter().sum()
    }
}

/// The derivatives along so many directions, one after the other. `one` returns `n_results` results, then the derivatives along
/// the tangents or adjoints of `seeded`, which follow its arguments; `seeds` has for each number of these the direction in
/// which it is 1.
fn along(
    b: &mut ArrayBuilder,
    (one, n_results): (&ArrayProgram, usize),
    mut arguments: Vec<ValueId>,
    (seeded, mut seeds): (&[Dims], &[u32]),
    count: usize,
) -> Result<ValueId> {
    let axes: Vec<_> = (0..one.inputs().len()).map(|k| (k >= arguments.len()).then_some(0)).collect();
    let all = one.batched(&axes, count)?;
    let directions = integers(b, 0..count)?;
    let directions = b.reshape(directions, &[count, 1])?;
    for dims in seeded {
        let (these, rest) = seeds.split_at(dims.size());
        seeds = rest;
        let these = integers(b, these.iter().map(|&direction| direction as usize))?;
        let seed = b.compare(Comparison::Equal, &[directions, these])?;
        let seed = b.convert(seed, Element::Float)?;
        arguments.push(b.reshape(seed, &[&[count], &dims[..]].concat())?);
    }
    let found = b.push_all(ArrayOp::Call(Shared(Arc::new(all))), &arguments)?.split_off(n_results);
    let found = found.into_iter().map(|part| {
        let size = b.dims(part).size() / count;
        b.reshape(part, &[count, size])
    });
    let found = found.collect::<Result<Vec<_>>>()?;
    let found = b.concatenate(&found, 1)?;
    let size = b.dims(found).size();
    b.reshape(found, &[size])
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
        let arguments = b.inputs_of(&self.input_types())?;
        if pattern.columns.is_empty() {
            let zero = b.literal(0.0)?;
            let none = b.broadcast_to(zero, Dims::new(&[0])?)?;
            return b.finish(&[none]);
        }
        let (by_columns, by_rows) = (Directions::of(pattern, n)?, Directions::of(&pattern.transposed(n), m)?);
        let is_forward = by_columns.count() <= by_rows.count();
        let Directions { colours, long, counts } = if is_forward { by_columns } else { by_rows };
        let mut parts = Vec::with_capacity(2);
        for (seeds, count, is_forward) in [(&colours, counts[0], is_forward), (&long, counts[1], !is_forward)] {
            if count > 0 {
                let (one, seeded) =
                    if is_forward { (self.jvp(by)?, &variables) } else { (self.vjp_of_some(by)?, &results) };
                parts.push(along(&mut b, (&one, results.len()), arguments.clone(), (seeded, seeds), count)?);
            }
        }
        let found = b.concatenate(&parts, 0)?;
        let widths = if is_forward { [m, n] } else { [n, m] };
        let place = |row: usize, column: usize| {
            let (line, across) = if is_forward { (row, column) } else { (column, row) };
            match long[line] {
                NONE => colours[across] as usize * widths[0] + line,
                k => counts[0] * widths[0] + k as usize * widths[1] + across,
            }
        };
        let entries = (0..m).flat_map(|row| pattern.row(row).iter().map(move |&column| (row, column as usize)));
        let places = integers(&mut b, entries.map(|(row, column)| place(row, column)))?;
        let entries = b.take(found, places, 0)?;
        b.finish(&[entries])
    }
}
