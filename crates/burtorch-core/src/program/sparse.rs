//! Hessians and Jacobians whose entries are mostly 0 for all inputs.
//!
//! Columns without a common row share one colour and one direction; eight directions are one run. A row with entries in most
//! columns would need as many colours: a Jacobian computes it in reverse, a Hessian by the direction of its column. After some
//! runs the entries are recorded as separate operations, if these take less time than runs over all nodes.
//!
//! Promises: an entry has the bits of a run along its column alone, or in such a row along the row, even next to non-finite entries;
//! pattern, colours and operations are computed once. Knows only the pattern, not matrix formats.

use std::sync::Arc;

use super::build::Build;
use super::derive::{HessianColumns, LANES, columns, reverse_of, row_alone, run_reverse};
use super::entries::Entries;
use super::node::Program;
use super::replay::Replay;
use super::sparsity::{Pattern, hessian_pattern, hessian_pattern_within, jacobian_pattern};
use crate::error::Result;
use crate::interrupt::Work;
use crate::simd::F64x8;

/// Elementary operations in the time of one entry lookup.
const ENTRY: usize = 16;

/// Runs before entries are recorded, which costs as much as some tens of runs.
const RUNS_BEFORE_ENTRIES: u32 = 80;

/// A pattern, and the direction of each of its entries.
#[derive(Clone, Debug)]
struct Colouring {
    pattern: Arc<Pattern>,
    colours: Vec<u32>,
    n_colours: usize,
    /// The entries of each row by ascending colour.
    order: Vec<usize>,
    /// The rows that the colours leave out.
    long: Vec<usize>,
    /// For each entry of the columns of these, of a symmetric matrix, that of the row.
    mirror: Vec<usize>,
}

impl Colouring {
    /// For a symmetric matrix. The columns of long rows have colours of their own, the first ones.
    fn symmetric(pattern: Pattern) -> Result<Self> {
        let n = pattern.n_rows();
        let long = pattern.long_rows();
        if long.is_empty() {
            return Self::of(pattern, n);
        }
        let is_long = |k: usize| long.binary_search(&k).is_ok();
        let (mut colours, n_colours) = pattern.filtered(|row, column| !is_long(row) && !is_long(column))?.colours(n)?;
        colours.iter_mut().for_each(|colour| *colour += long.len() as u32);
        long.iter().zip(0..).for_each(|(&column, own)| colours[column] = own);
        let mut mirror = vec![usize::MAX; pattern.columns.len()];
        let mut work = Work::default();
        for &row in &long {
            for at in pattern.starts[row]..pattern.starts[row + 1] {
                work.add(ENTRY)?;
                let across = pattern.columns[at] as usize;
                if let Ok(place) = pattern.row(across).binary_search(&(row as u32)) {
                    mirror[pattern.starts[across] + place] = at;
                }
            }
        }
        let n_colours = n_colours + long.len();
        Ok(Colouring { mirror, ..Self::coloured(pattern, (colours, n_colours), long)? })
    }

    /// For a matrix of `n` columns.
    fn of(pattern: Pattern, n: usize) -> Result<Self> {
        let colours = pattern.colours(n)?;
        Self::coloured(pattern, colours, Vec::new())
    }

    /// For a matrix of `n` columns, of which long rows are computed alone.
    fn without_long_rows(pattern: Pattern, n: usize) -> Result<Self> {
        let long = pattern.long_rows();
        let colours = pattern.filtered(|row, _| long.binary_search(&row).is_err())?.colours(n)?;
        Self::coloured(pattern, colours, long)
    }

    fn coloured(pattern: Pattern, (colours, n_colours): (Vec<u32>, usize), long: Vec<usize>) -> Result<Self> {
        let mut order: Vec<_> = (0..pattern.columns.len()).collect();
        let mut work = Work::default();
        for row in pattern.starts.windows(2) {
            work.add(ENTRY * (row[1] - row[0]))?;
            order[row[0]..row[1]].sort_unstable_by_key(|&at| colours[pattern.columns[at] as usize]);
        }
        Ok(Colouring { pattern: Arc::new(pattern), colours, n_colours, order, long, mirror: Vec::new() })
    }

    fn direction(&self, colour: usize, column: usize) -> f64 {
        f64::from(u8::from(self.colours[column] as usize == colour))
    }

    /// A function that stores an entry, given row and colour. The entries of a row come by ascending colour.
    fn put(&self) -> impl FnMut(&mut [f64], usize, usize, f64) + '_ {
        let mut next = self.pattern.starts.clone();
        let own = if self.mirror.is_empty() { 0 } else { self.long.len() };
        move |data, row, colour, entry| {
            // Others than those of its own colours are mirrored.
            if colour >= own && self.long.binary_search(&row).is_ok() {
                return;
            }
            let Some(&at) = self.order[..self.pattern.starts[row + 1]].get(next[row]) else { return };
            if self.colours[self.pattern.columns[at] as usize] as usize == colour {
                data[at] = entry;
                if let Some(across) = data.get_mut(self.mirror.get(at).copied().unwrap_or(usize::MAX)) {
                    *across = entry;
                }
                next[row] += 1;
            }
        }
    }
}

/// Entries as separate operations, planned after some runs.
#[derive(Clone, Debug, Default)]
struct Planned {
    n_runs: u32,
    entries: Option<Entries>,
}

impl Planned {
    /// Computes the entries, unless they have no operations or a number is not finite.
    fn run(&mut self, x: &[f64], data: &mut [f64], plan: impl FnOnce() -> Result<Option<Entries>>) -> Result<bool> {
        if self.n_runs == RUNS_BEFORE_ENTRIES {
            self.entries = plan()?.filter(Entries::pay);
        }
        self.n_runs = self.n_runs.saturating_add(1);
        self.entries.as_mut().map_or(Ok(false), |entries| entries.run(x, data))
    }

    /// Uses these operations regardless of their time; returns whether there are any.
    fn take(&mut self, entries: Option<Entries>) -> bool {
        *self = Planned { n_runs: RUNS_BEFORE_ENTRIES + 1, entries };
        self.entries.is_some()
    }

    fn bytes(&self) -> usize {
        self.entries.as_ref().map_or(0, Entries::bytes)
    }
}

/// The Hessian of the first output of a program.
#[derive(Debug)]
pub struct Hessian {
    columns: HessianColumns,
    colouring: Option<Colouring>,
    /// Whether colours save runs for a dense Hessian; `None` before the first one.
    saves: Option<bool>,
    planned: Planned,
    data: Vec<f64>,
}

impl Hessian {
    /// Prepares a program.
    pub fn new(program: &Program) -> Result<Self> {
        let columns = HessianColumns::new(program)?;
        Ok(Hessian { columns, colouring: None, saves: None, planned: Planned::default(), data: Vec::new() })
    }

    /// The Hessian at `x`, all inputs, by rows; `n` is the number of differentiated inputs. Entries that are zero for all
    /// inputs are exactly 0. Checks now and then whether to end early.
    pub fn dense(&mut self, program: &Program, x: &[f64], to: &mut [f64]) -> Result<()> {
        let n = program.n_differentiated();
        if self.saves_runs(program)? {
            let (pattern, data) = self.sparse(program, x)?;
            return spread(pattern, data, n, to);
        }
        self.columns.run(x, n, |c, j| f64::from(u8::from(c == j)), |c, j, entry| to[j * n + c] = entry)?;
        if super::derive::are_finite(to)? {
            return Ok(());
        }
        // NaN has no derivative: it needs a run over all nodes.
        let pattern = hessian_pattern(program)?;
        let mut data = Vec::with_capacity(pattern.columns.len());
        for (j, row) in to.chunks_exact(n).enumerate() {
            data.extend(pattern.row(j).iter().map(|&c| row[c as usize]));
        }
        spread(&pattern, &data, n, to)
    }

    /// Whether the number of colours is so small that a dense Hessian takes fewer runs with them.
    fn saves_runs(&mut self, program: &Program) -> Result<bool> {
        if let Some(saves) = self.saves {
            return Ok(saves);
        }
        let n = program.n_differentiated();
        let runs = n.div_ceil(LANES);
        // The search must not cost more than the runs that it may save.
        let most = program.nodes().len().saturating_mul(n);
        if self.colouring.is_none()
            && runs > 1
            && let Some(pattern) = hessian_pattern_within(program, most)?
        {
            let longest = (0..n).map(|row| pattern.row(row).len()).max().unwrap_or(0);
            if longest.div_ceil(LANES) < runs && pattern.columns.len().saturating_mul(longest) <= most {
                self.colouring = Some(Colouring::symmetric(pattern)?);
            }
        }
        let saves = self.colouring.as_ref().is_some_and(|colouring| colouring.n_colours.div_ceil(LANES) < runs);
        self.saves = Some(saves);
        Ok(saves)
    }

    fn colour(&mut self, program: &Program) -> Result<()> {
        if self.colouring.is_none() {
            self.colouring = Some(Colouring::symmetric(hessian_pattern(program)?)?);
        }
        Ok(())
    }

    /// Records the entries as separate operations now, whatever their time; returns whether that is possible.
    pub fn record(&mut self, program: &Program) -> Result<bool> {
        self.colour(program)?;
        let Some(Colouring { pattern, colours, n_colours, long, .. }) = &self.colouring else { return Ok(false) };
        Ok(long.is_empty() && self.planned.take(Entries::of_hessian(program, pattern, colours, *n_colours)?))
    }

    /// The entries of the pattern at `x`, all inputs. Checks now and then whether to end early.
    pub fn sparse(&mut self, program: &Program, x: &[f64]) -> Result<(&Arc<Pattern>, &[f64])> {
        self.colour(program)?;
        let Hessian { columns, colouring: Some(colouring), planned, data, .. } = self else {
            unreachable!("the colours were made above");
        };
        let colouring = &*colouring;
        let Colouring { pattern, colours, n_colours, long, .. } = colouring;
        data.resize(pattern.columns.len(), 0.0);
        let plan = || match long.is_empty() {
            true => Entries::of_hessian(program, pattern, colours, *n_colours),
            false => Ok(None),
        };
        if !planned.run(x, data, plan)? {
            let mut put = colouring.put();
            columns.run(
                x,
                *n_colours,
                |colour, column| colouring.direction(colour, column),
                |colour, row, entry| put(data, row, colour, entry),
            )?;
        }
        Ok((pattern, data))
    }

    /// Memory of patterns and operations, in bytes.
    pub fn bytes(&self) -> usize {
        8 * self.data.len() + self.planned.bytes()
    }
}

/// Writes the entries of a pattern into `n` columns, with zeros in between.
fn spread(pattern: &Pattern, data: &[f64], n: usize, to: &mut [f64]) -> Result<()> {
    let mut work = Work::default();
    for (j, row) in to.chunks_exact_mut(n).enumerate() {
        work.add(n)?;
        row.fill(0.0);
        for (&c, &entry) in pattern.row(j).iter().zip(&data[pattern.starts[j]..]) {
            row[c as usize] = entry;
        }
    }
    Ok(())
}

/// The Jacobian of a program by the colours of its columns.
#[derive(Debug)]
pub struct SparseJacobian {
    replay: Replay<F64x8, 1>,
    colouring: Colouring,
    /// The long rows of the colouring, in reverse.
    long: Vec<Replay<f64, 1>>,
    planned: Planned,
    data: Vec<f64>,
}

impl SparseJacobian {
    /// Prepares a program. Checks now and then whether to end early.
    pub fn new(program: &Program) -> Result<Self> {
        let colouring = Colouring::without_long_rows(jacobian_pattern(program)?, program.n_differentiated())?;
        let data = vec![0.0; colouring.pattern.columns.len()];
        let replay = Replay::new(program, Build::Tangent)?;
        let long = colouring.long.iter().map(|&row| reverse_of(program, row)).collect::<Result<_>>()?;
        Ok(SparseJacobian { replay, colouring, long, planned: Planned::default(), data })
    }

    /// Records the entries as separate operations now, whatever their time; returns whether that is possible.
    pub fn record(&mut self, program: &Program) -> Result<bool> {
        let Colouring { pattern, colours, n_colours, long, .. } = &self.colouring;
        Ok(long.is_empty() && self.planned.take(Entries::of_jacobian(program, pattern, colours, *n_colours)?))
    }

    /// The entries of the pattern at `x`, all inputs. Checks now and then whether to end early.
    pub fn entries(&mut self, program: &Program, x: &[f64]) -> Result<(&Arc<Pattern>, &[f64])> {
        let SparseJacobian { replay, colouring, long, planned, data } = self;
        let colouring = &*colouring;
        let Colouring { pattern, colours, n_colours, .. } = colouring;
        let plan = || match long.is_empty() {
            true => Entries::of_jacobian(program, pattern, colours, *n_colours),
            false => Ok(None),
        };
        if planned.run(x, data, plan)? {
            return Ok((pattern, data));
        }
        let mut work = Work::default();
        let mut goes_on = Ok(());
        let mut put = colouring.put();
        columns(
            replay,
            x,
            *n_colours,
            |colour, column| colouring.direction(colour, column),
            |row, colour, entry| {
                if goes_on.is_ok() {
                    goes_on = work.add(ENTRY);
                    put(data, row, colour, entry);
                }
            },
        )?;
        goes_on?;
        for (&row, reverse) in colouring.long.iter().zip(long) {
            work.add(reverse.n_instructions())?;
            run_reverse(reverse, x);
            let span = pattern.starts[row]..pattern.starts[row + 1];
            let entries = data[span.clone()].iter_mut().zip(&pattern.columns[span]);
            entries.for_each(|(entry, &column)| *entry = reverse.gradient(column as usize, 0));
        }
        // A zero seed may have been multiplied by an infinite partial: a separate run for each row, on its own nodes,
        // decides.
        let mut alone = vec![0.0; program.n_differentiated()];
        for row in 0..pattern.n_rows() {
            work.add(ENTRY)?;
            let span = pattern.starts[row]..pattern.starts[row + 1];
            if data[span.clone()].iter().any(|x| !x.is_finite()) {
                row_alone(program, row, x, &mut alone)?;
                for at in span {
                    data[at] = alone[pattern.columns[at] as usize];
                }
            }
        }
        Ok((pattern, data))
    }

    /// Memory of patterns and operations, in bytes.
    pub fn bytes(&self) -> usize {
        8 * self.data.len() + self.planned.bytes()
    }
}
