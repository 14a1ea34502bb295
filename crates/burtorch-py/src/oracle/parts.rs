//! Gradients of callables in parts: streamed, or of which the largest numbers are kept.
//!
//! Promises: parts have the bits of the whole gradient, and each parameter comes once. A program passes them on while it runs, in its
//! own order; otherwise the gradient is computed first. Does not know who receives them.

use std::ops::Range;

use burtorch_core::array::Floats;
use burtorch_core::erased::{AnyNumbersMut, ErasedGraph, GradientTarget, Seed};
use burtorch_core::memory::filled;
use burtorch_core::sync::Stop;
use burtorch_core::{DType, Float, NodeId, SweepOptions};
use pyo3::prelude::*;

use super::callable::{CallableEngine, Pass};
use super::engine::WantStream;
use crate::compress::AnyLargest;
use crate::convert::buffer::{CallerMemory, FlatArray};
use crate::convert::errors::IntoPython;
use crate::convert::stop::stopped;
use crate::convert::threads::detached;
use crate::params::{AnyParameters, PyParameters, mismatch, with_params, zeros};

/// Numbers whose gradients are 0, in ascending ranges.
struct Frozen(Vec<Range<u32>>);

impl Frozen {
    fn of(params: &PyParameters, py: Python<'_>) -> PyResult<Self> {
        params.with(py, |params| Frozen(with_params!(params, p => p.frozen().to_vec())))
    }

    /// Writes a part, which begins at this parameter, of a sum that began with zeros.
    fn write<E: Float>(&self, (start, part): (usize, &[E]), to: &mut [E]) {
        to.iter_mut().zip(part).for_each(|(to, &x)| *to = x + E::lit(0.0));
        let end = start + part.len();
        let first = self.0.partition_point(|range| range.end as usize <= start);
        for range in self.0[first..].iter().take_while(|range| (range.start as usize) < end) {
            let (from, until) = ((range.start as usize).max(start), (range.end as usize).min(end));
            to[from - start..until - start].fill(E::lit(0.0));
        }
    }

    /// The part as an array of its own.
    fn copied<E: Float>(&self, start: usize, part: &[E]) -> FlatArray {
        let mut copy = part.to_vec();
        self.write((start, part), &mut copy);
        FlatArray::copied(&copy)
    }
}

/// Numbers of a part that are looked at together.
const CHUNK: usize = 1 << 10;

fn look<E: Float>(
    frozen: &Frozen,
    (start, part): (usize, &[E]),
    take: &mut dyn FnMut(usize, &[E]) -> burtorch_core::Result<()>,
) -> burtorch_core::Result<()> {
    let mut room = [E::lit(0.0); CHUNK];
    part.chunks(CHUNK).enumerate().try_for_each(|(c, chunk)| {
        let room = &mut room[..chunk.len()];
        frozen.write((start + c * CHUNK, chunk), room);
        take(start + c * CHUNK, room)
    })
}

/// The ranges between and after ascending ones, up to `n`.
fn gaps(ranges: Vec<Range<usize>>, n: usize) -> impl Iterator<Item = Range<usize>> {
    let ends = ranges.into_iter().chain(std::iter::once(n..n));
    ends.scan(0, |at, range| Some(std::mem::replace(at, range.end)..range.start)).filter(|gap| !gap.is_empty())
}

impl CallableEngine {
    pub(super) fn n_parameters(&self, py: Python<'_>) -> PyResult<usize> {
        self.params.get().with(py, |params| with_params!(params, p => p.len()))
    }

    /// The loss, with the gradient emitted in parts.
    pub(super) fn streamed(&mut self, py: Python<'_>, want: WantStream<'_>) -> PyResult<f64> {
        let WantStream { at, out, keeps, take } = want;
        self.in_params(py, |params| params.check(at.as_ref(), out.as_ref()))?;
        let dtype = self.params.get().dtype_of();
        let mut memory = match (out, keeps) {
            (Some(out), _) => Some(out),
            (None, true) => {
                let own = Bound::new(py, PyParameters::grads_array(self.params.bind(py))?)?;
                Some(CallerMemory::of(own.as_any(), dtype, "the gradient")?)
            }
            (None, false) => None,
        };
        let done = self.at_point(py, at, |engine| engine.in_parts(py, &mut memory, take));
        if done.is_err() && keeps {
            self.zero(py, &mut Pass::Gradient(1.0, memory))?;
        }
        done
    }

    fn in_parts(
        &mut self,
        py: Python<'_>,
        memory: &mut Option<CallerMemory>,
        take: &mut super::engine::Take<'_>,
    ) -> PyResult<f64> {
        if Stop::ends_work() {
            return Err(stopped(py));
        }
        let (dtype, n) = (self.params.get().dtype_of(), self.n_parameters(py)?);
        let frozen = Frozen::of(self.params.get(), py)?;
        let found = self.traced_parts(py, &mut |range, part| match (&mut *memory, part) {
            (Some(to), Floats::F32(part)) => {
                frozen.write((range.start, part), &mut to.slice_mut()[range.clone()]);
                take(range, None)
            }
            (Some(to), Floats::F64(part)) => {
                frozen.write((range.start, part), &mut to.slice_mut()[range.clone()]);
                take(range, None)
            }
            (None, Floats::F32(part)) => take(range.clone(), Some(frozen.copied(range.start, part))),
            (None, Floats::F64(part)) => take(range.clone(), Some(frozen.copied(range.start, part))),
        })?;
        // A receiver of a part on another thread needs the GIL.
        let mut pass_on = |range, copy| detached(py, || take(range, copy));
        if let Some((loss, ranges)) = found {
            gaps(ranges, n).all(|gap| match (&mut *memory, dtype) {
                (Some(to), DType::Float32) => {
                    to.slice_mut::<f32>()[gap.clone()].fill(0.0);
                    pass_on(gap, None)
                }
                (Some(to), _) => {
                    to.slice_mut::<f64>()[gap.clone()].fill(0.0);
                    pass_on(gap, None)
                }
                (None, DType::Float32) => pass_on(gap.clone(), Some(FlatArray::copied(&vec![0.0_f32; gap.len()]))),
                (None, _) => pass_on(gap.clone(), Some(FlatArray::copied(&vec![0.0_f64; gap.len()]))),
            });
            return Ok(loss);
        }
        let tensors = |any: &mut AnyParameters| with_params!(any, p => p.tensors_downwards().collect::<Vec<_>>());
        let ranges = self.params.get().with(py, tensors)?;
        let all = zeros(py, dtype, n)?;
        let whole = || CallerMemory::of(&all, dtype, "the gradient");
        let loss = self.gradient(py, Some(whole()?))?;
        let whole = whole()?;
        if let Some(to) = memory {
            match dtype {
                DType::Float32 => to.slice_mut::<f32>().copy_from_slice(whole.slice()),
                _ => to.slice_mut::<f64>().copy_from_slice(whole.slice()),
            }
        }
        let copy = |range: Range<usize>| match dtype {
            DType::Float32 => FlatArray::copied::<f32>(&whole.slice()[range]),
            _ => FlatArray::copied::<f64>(&whole.slice()[range]),
        };
        ranges.into_iter().all(|range| pass_on(range.clone(), memory.is_none().then(|| copy(range))));
        Ok(loss)
    }

    /// The loss, and the largest numbers of the gradient.
    pub(super) fn largest(
        &mut self,
        py: Python<'_>,
        at: Option<CallerMemory>,
        largest: &mut AnyLargest,
    ) -> PyResult<f64> {
        self.in_params(py, |params| params.check(at.as_ref(), None))?;
        self.at_point(py, at, |engine| match engine.traced_largest(py, largest)? {
            Some(loss) => Ok(loss),
            None => {
                let all = zeros(py, engine.params.get().dtype_of(), engine.n_parameters(py)?)?;
                let memory = engine.memory_of_gradient(&all)?;
                let loss = engine.gradient(py, Some(memory))?;
                take_whole(largest, &engine.memory_of_gradient(&all)?).or_raise(py)?;
                Ok(loss)
            }
        })
    }

    pub(super) fn memory_of_gradient(&self, all: &Bound<'_, PyAny>) -> PyResult<CallerMemory> {
        CallerMemory::of(all, self.params.get().dtype_of(), "the gradient")
    }

    /// The same by a program that passes its gradient on, if the callable has one.
    fn traced_largest(&mut self, py: Python<'_>, largest: &mut AnyLargest) -> PyResult<Option<f64>> {
        let (n, frozen) = (self.n_parameters(py)?, Frozen::of(self.params.get(), py)?);
        let mut failed = None;
        let found = self.traced_parts(py, &mut |range, part| {
            failed = match (&mut *largest, part) {
                (AnyLargest::F32(largest), Floats::F32(part)) => {
                    look(&frozen, (range.start, part), &mut |start, part| largest.take(start, part)).err()
                }
                (AnyLargest::F64(largest), Floats::F64(part)) => {
                    look(&frozen, (range.start, part), &mut |start, part| largest.take(start, part)).err()
                }
                _ => Some(mismatch()),
            };
            failed.is_none()
        });
        if let Some(error) = failed {
            return Err(error).or_raise(py);
        }
        let Some((loss, ranges)) = found? else { return Ok(None) };
        for gap in gaps(ranges, n) {
            for start in gap.clone().step_by(CHUNK) {
                let len = CHUNK.min(gap.end - start);
                match &mut *largest {
                    AnyLargest::F32(largest) => largest.take(start, &[0.0; CHUNK][..len]),
                    AnyLargest::F64(largest) => largest.take(start, &[0.0; CHUNK][..len]),
                }
                .or_raise(py)?;
            }
        }
        Ok(Some(loss))
    }

    /// The loss of sample `k` and what is asked of its gradient, by the program of a batch of one, if the callable has one.
    pub(super) fn traced_sample(&mut self, py: Python<'_>, k: usize, pass: &mut Pass<'_>) -> PyResult<Option<f64>> {
        let Some(all) = self.traced.replace_by(py, k..k + 1)? else { return Ok(None) };
        let done = match pass {
            Pass::Losses => Ok(None),
            Pass::Gradient(_, out) => self.traced_gradient(py, out.as_mut()),
            Pass::Largest(largest) => self.traced_largest(py, largest).and_then(|loss| {
                if loss.is_some() {
                    return Ok(loss);
                }
                let all = zeros(py, self.params.get().dtype_of(), self.n_parameters(py)?)?;
                let mut memory = self.memory_of_gradient(&all)?;
                let loss = self.traced_gradient(py, Some(&mut memory))?;
                if loss.is_some() {
                    take_whole(largest, &memory).or_raise(py)?;
                }
                Ok(loss)
            }),
        };
        self.traced.put_back(all);
        if done.is_err() {
            self.zero(py, pass)?;
        }
        done
    }
}

/// Takes the largest numbers of a whole gradient.
pub(super) fn take_whole(largest: &mut AnyLargest, all: &CallerMemory) -> burtorch_core::Result<()> {
    match largest {
        AnyLargest::F32(largest) => largest.take(0, all.slice()),
        AnyLargest::F64(largest) => largest.take(0, all.slice()),
    }
}

/// Takes the largest numbers of one of several gradients.
pub(super) fn take_row(largest: &mut AnyLargest, all: &CallerMemory, row: Range<usize>) -> burtorch_core::Result<()> {
    match largest {
        AnyLargest::F32(largest) => largest.take(0, &all.slice()[row]),
        AnyLargest::F64(largest) => largest.take(0, &all.slice()[row]),
    }
}

/// Takes the largest numbers of a gradient by the Parameters at `place`: from the parts in flight if the graph reads no others and
/// nothing is frozen, else from the whole gradient.
pub(super) fn largest_of(
    graph: &mut dyn ErasedGraph,
    loss: NodeId,
    (all, place): (&mut [&mut AnyParameters], usize),
    largest: &mut AnyLargest,
) -> burtorch_core::Result<()> {
    let seed = Seed { adjoint: 1.0, lanes: Some(1) };
    let mut failed = None;
    let mut take = |range: Range<usize>, numbers: AnyNumbersMut<'_>| {
        failed = match (&mut *largest, numbers) {
            (AnyLargest::F32(largest), AnyNumbersMut::F32(numbers)) => largest.take(range.start, numbers).err(),
            (AnyLargest::F64(largest), AnyNumbersMut::F64(numbers)) => largest.take(range.start, numbers).err(),
            _ => Some(mismatch()),
        };
        failed.is_none()
    };
    let swept = match all {
        [only] if with_params!(&**only, p => p.frozen().is_empty()) => {
            graph.sweep_passing_on(loss, seed, only, &mut take)
        }
        _ => {
            let n = with_params!(&*all[place], p => p.len());
            // One of them stays empty.
            let is_single = graph.scalar_type().elem == DType::Float32;
            let mut single = filled(0.0_f32, if is_single { n } else { 0 }, "a gradient")?;
            let mut double = filled(0.0_f64, if is_single { 0 } else { n }, "a gradient")?;
            let memory = if is_single { AnyNumbersMut::F32(&mut single) } else { AnyNumbersMut::F64(&mut double) };
            let target = GradientTarget::Overwritten(place, Some(memory));
            let swept = graph.sweep(loss, seed, all, target, SweepOptions::default(), None);
            let memory = if is_single { AnyNumbersMut::F32(&mut single) } else { AnyNumbersMut::F64(&mut double) };
            swept.map(|()| {
                take(0..n, memory);
            })
        }
    };
    failed.map_or(swept, Err)
}
