//! Results in their own memory, and in-place changes: sums that nothing else reads, and the state of a loop.
//!
//! Promises: a step that overwrites an argument or a sum is the last to read it. Does not know how steps run.

use super::super::instr::{ArrayOp, ValueId};
use super::draft::{Carried, Draft, Drafts, need_of};
use super::place::{Place, Source};

impl Drafts<'_> {
    /// Whether a buffer holds an argument of a body, which the next step overwrites.
    fn is_argument(&self, buffer: usize) -> bool {
        self.body.is_some() && self.program.inputs().iter().any(|v| v.at() == buffer)
    }

    /// Puts outputs into memory of their own, and finds what can be changed in place.
    pub(super) fn finish(&mut self) {
        for &v in self.program.outputs() {
            let (place, ty) = (self.place_of(v), self.program.type_of(v));
            let whole = match place.source {
                Source::Buffer(b) if place.is_contiguous() && place.offset == 0 && !self.is_argument(b) => {
                    (self.needs[b].len == ty.dims.size()).then_some(b)
                }
                _ => None,
            };
            let b = whole.unwrap_or_else(|| {
                self.needs.push(need_of(ty));
                let to = self.needs.len() - 1;
                self.copy(place, ty.element, to);
                self.needs[to].first = self.steps.len() - 1;
                to
            });
            self.needs[b].is_read = true;
            self.needs[b].last = usize::MAX;
            self.outputs.push(b);
        }
        for (step, draft) in self.steps.iter().enumerate() {
            let (sum, result, others) = match draft {
                Draft::Alone { at, of } => {
                    let instr = &self.program.instrs()[*at];
                    match instr.op {
                        ArrayOp::AccumulateAt(_) | ArrayOp::ScatterAdd { .. } | ArrayOp::ScatterSet { .. } => {
                            (of[0], instr.result, &of[of.len() - 1..])
                        }
                        _ => continue,
                    }
                }
                Draft::Onto { to, of, .. } => (of[0], *to, &of[1..]),
                Draft::Chain { dims, instrs } => {
                    for &at in instrs {
                        let v = self.program.instrs()[at].result;
                        if let Some(b) =
                            self.carry_of(v).filter(|&b| self.is_read_in_place(b, step, dims.size(), instrs))
                        {
                            self.needs[v.at()].takes_over = Some(b);
                        }
                    }
                    continue;
                }
                _ => continue,
            };
            if let Source::Buffer(b) = sum.source
                && (self.needs[b].last == step && self.needs[b].first < step
                    || self.carry_of(result) == Some(b) && self.needs[b].last_read == step)
                && sum.is_contiguous()
                && sum.offset == 0
                && self.needs[b].len == sum.dims.size()
                && others.iter().all(|other| other.source != sum.source)
            {
                self.needs[result.at()].takes_over = Some(b);
            }
        }
    }

    /// The argument of a body that a value becomes in the next step, if the value has memory of its own.
    fn carry_of(&self, v: ValueId) -> Option<usize> {
        let Carried { captures, carries } = self.body?;
        let k = self.outputs[..carries].iter().position(|&b| b == v.at())?;
        Some(self.program.inputs()[captures + k].at())
    }

    /// Whether a chain is the last to read an argument, and number by number, so that it may write it.
    fn is_read_in_place(&self, b: usize, step: usize, size: usize, instrs: &[usize]) -> bool {
        let dims = self.program.type_of(ValueId(b as u32)).dims;
        let whole = Place::whole(Source::Buffer(b), 0, dims);
        let is_apart = |&at: &usize| {
            let instr = &self.program.instrs()[at];
            let in_order = instr.op.is_elementwise() || matches!(instr.op, ArrayOp::Reduce(..));
            let mut places = instr.operands.iter().filter_map(|v| self.places[v.at()]);
            places.all(|place| place.source != whole.source || in_order && place == whole)
        };
        self.needs[b].last_read <= step
            && dims.size() == size
            && self.again_in(step).next().is_none()
            && instrs.iter().all(is_apart)
    }
}
