//! Removal of integer step counters from loops.
//!
//! An integer carry that begins with a constant and grows by one is known in every step, so its uses come in slices: the integer
//! itself, the integer as a float, and the element of a captured array at that index. A body of floats then has floats
//! only. Promises: the same values and derivatives bit for bit.

use super::super::build::ArrayBuilder;
use super::super::dims::Dims;
use super::super::instr::{ArrayOp, ArrayProgram, Data, Element, Length, Loop, Slice, Type, ValueId};
use super::super::row::Row;
use super::body::shared;
use crate::error::Result;
use crate::ops::Op;
use crate::scalar::DType;

/// Steps of a loop whose integers are worth being kept, at most.
const MOST: usize = 1 << 20;

/// A carry that counts: which, from where, and by how much.
#[derive(Clone, Copy)]
struct Counter {
    carry: usize,
    first: i64,
    step: i64,
}

impl Counter {
    /// In step `k`; nothing if it does not fit.
    fn at(self, k: usize) -> Option<i64> {
        self.step.checked_mul(k.try_into().ok()?)?.checked_add(self.first)
    }
}

impl ArrayBuilder {
    /// The carries of a loop that count, if what they are in every step can be kept.
    fn counters(&self, of: &Loop, n: usize, operands: &[ValueId]) -> Vec<Counter> {
        let body = &of.body.0;
        let integer = |program: &ArrayProgram, v: ValueId| match program.instr_of(v).op {
            ArrayOp::Integer(x) => Some(x),
            _ => None,
        };
        let counter = |carry: usize| {
            let k = of.captures + carry;
            let (before, after) = (body.inputs()[k], body.instr_of(body.outputs()[carry]));
            let [x, y] = after.operands[..] else { return None };
            let other = if x == before { y } else { x };
            let is_sum = after.op == ArrayOp::Row(Row::Op(Op::Add)) && (x == before) != (y == before);
            let first = integer(self.so_far(), operands[k]).filter(|_| is_sum)?;
            let counter = Counter { carry, first, step: integer(body, other)? };
            counter.at(n).map(|_| counter)
        };
        (0..of.carries).filter_map(counter).collect()
    }

    /// The loop without such carries, and what each is after it.
    pub(super) fn without_counters(&mut self, of: &mut Loop, operands: &mut Vec<ValueId>) -> Result<Vec<(usize, i64)>> {
        let Length::Fixed(n) = of.length else { return Ok(Vec::new()) };
        // Slices of a loop that runs backwards come from the last on.
        let counters = if n <= MOST && !of.reverse { self.counters(of, n, operands) } else { Vec::new() };
        if counters.is_empty() {
            return Ok(Vec::new());
        }
        let counts = |k: usize| counters.iter().copied().find(|counter| counter.carry == k);
        let outputs = of.body.0.outputs().iter().enumerate().filter(|(k, _)| counts(*k).is_none());
        let outputs = outputs.map(|(_, &v)| v).collect();
        let body = (*of.body.0).clone().with_outputs(outputs).pruned()?;
        let counter_of = |v: ValueId| {
            let k = body.inputs().iter().position(|&input| input == v)?;
            counts(k.checked_sub(of.captures)?)
        };
        let mut uses = vec![0; body.n_values()];
        let read = body.instrs().iter().flat_map(|instr| &instr.operands[..]);
        read.chain(body.outputs()).for_each(|v| uses[v.at()] += 1);

        let mut b = ArrayBuilder::new(body.dtype())?;
        let mut new: Vec<Option<ValueId>> = vec![None; body.n_values()];
        for &v in body.inputs().iter().filter(|v| counter_of(**v).is_none()) {
            new[v.at()] = Some(b.push(ArrayOp::Input(body.type_of(v)), &[])?);
        }
        let mut slices = Vec::new();
        for (at, instr) in body.instrs().iter().enumerate() {
            if matches!(instr.op, ArrayOp::Input(_)) {
                continue;
            }
            let counter = instr.operands.last().and_then(|&v| counter_of(v));
            let known = match (&instr.op, counter) {
                (ArrayOp::Convert(Element::Float), Some(counter)) => Some(self.counted(counter, n, Element::Float)?),
                (ArrayOp::Take { axis: 0, batch: 0 }, Some(counter)) => {
                    let k = body.inputs()[..of.captures].iter().position(|&v| v == instr.operands[0]);
                    let operand = k.filter(|_| uses[instr.operands[0].at()] == 1).map(|k| operands[k]);
                    operand.map_or(Ok(None), |x| self.taken(x, counter, n))?
                }
                _ => None,
            };
            if let Some(known) = known {
                slices.push(known);
                new[instr.result.at()] = Some(b.push(ArrayOp::Input(body.type_of(instr.result)), &[])?);
                continue;
            }
            let mut of_new = Vec::with_capacity(instr.operands.len());
            for &v in &instr.operands {
                if let (None, Some(counter)) = (new[v.at()], counter_of(v)) {
                    slices.push(self.counted(counter, n, Element::Int)?);
                    new[v.at()] = Some(b.push(ArrayOp::Input(body.type_of(v)), &[])?);
                }
                of_new.extend(new[v.at()]);
            }
            for (v, now) in body.results(at).zip(b.push_all(instr.op.clone(), &of_new)?) {
                new[v.at()] = Some(now);
            }
        }
        for &v in body.outputs() {
            if let (None, Some(counter)) = (new[v.at()], counter_of(v)) {
                slices.push(self.counted(counter, n, Element::Int)?);
                new[v.at()] = Some(b.push(ArrayOp::Input(body.type_of(v)), &[])?);
            }
        }
        let outputs: Vec<_> = body.outputs().iter().filter_map(|v| new[v.at()]).collect();
        let kept = operands.iter().enumerate().filter(|(k, _)| k.checked_sub(of.captures).and_then(counts).is_none());
        *operands = kept.map(|(_, &v)| v).chain(slices).collect();
        of.carries -= counters.len();
        of.body = shared(b.finish(&outputs)?);
        Ok(counters.iter().filter_map(|counter| Some((counter.carry, counter.at(n)?))).collect())
    }

    /// What a counter is in every step, in the order of the slices.
    fn counted(&mut self, counter: Counter, n: usize, element: Element) -> Result<ValueId> {
        let all = (0..n).filter_map(|k| counter.at(k));
        let data = match (element, self.so_far().dtype()) {
            (Element::Int, _) => Data::Int(all.collect()),
            (_, DType::Float32) => Data::F32(all.map(|x| x as f32).collect()),
            _ => Data::F64(all.map(|x| x as f64).collect()),
        };
        self.constant(Type { dims: Dims::new(&[n])?, element }, data)
    }

    /// The elements that a counter names, as slices; nothing unless all of them are inside, counted from the start.
    fn taken(&mut self, x: ValueId, counter: Counter, n: usize) -> Result<Option<ValueId>> {
        let dims = self.dims(x);
        let is_inside = |k: usize| counter.at(k).is_some_and(|i| (0..dims[0] as i64).contains(&i));
        if n == 0 || !is_inside(0) || !is_inside(n - 1) {
            return Ok(None);
        }
        let first = Slice { start: counter.first as usize, step: counter.step as isize, count: n };
        let slices: Vec<_> = [first].into_iter().chain(dims[1..].iter().map(|&n| Slice::all(n))).collect();
        self.slice(x, &slices).map(Some)
    }
}
