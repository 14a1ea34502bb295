//! Programs of blocks of rows, lowered once for each content and length of a block.
//!
//! Batches of many sizes are divided into blocks of the same few lengths, and their programs differ in the number of rows
//! alone. Promises: the program that lowering would give; a limited number of programs is kept, none with long constants.
//! Does not know who runs them.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex};

use super::super::instr::{ArrayInstr, ArrayOp, ArrayProgram, Data, Length, Rows, Shared};
use super::super::words::Words;
use crate::error::Result;

/// Programs that are kept, instructions of one, and numbers of a constant, at most.
const PROGRAMS: usize = 96;
const INSTRS: usize = 512;
const NUMBERS: usize = 1024;

/// The lowered program of a block, and of what.
struct Block {
    hash: u64,
    of: Rows,
    length: usize,
    lowered: Arc<ArrayProgram>,
}

/// From the least to the most recently used.
type Kept = Mutex<Vec<Block>>;

static KEPT: Kept = Mutex::new(Vec::new());

/// The lowered program of a block of `length` of these rows, which `lower` makes.
pub(super) fn lowered_once(
    of: &Rows,
    length: usize,
    lower: impl FnOnce(ArrayProgram) -> Result<ArrayProgram>,
) -> Result<Arc<ArrayProgram>> {
    kept_or(&KEPT, of, length, lower)
}

fn kept_or(
    kept: &Kept,
    of: &Rows,
    length: usize,
    lower: impl FnOnce(ArrayProgram) -> Result<ArrayProgram>,
) -> Result<Arc<ArrayProgram>> {
    let make = || lower(of.of(length)?).map(Arc::new);
    if !is_short(&of.body.0) {
        return make();
    }
    let mut words = Words::default();
    (length, fingerprint(&of.body.0)).hash(&mut words);
    let hash = words.finish();
    // Whoever finds it taken does the work: nobody waits.
    if let Ok(mut kept) = kept.try_lock()
        && let Some(at) = kept.iter().rposition(|block| block.is(hash, of, length))
    {
        kept[at..].rotate_left(1);
        return Ok(kept[kept.len() - 1].lowered.clone());
    }
    let lowered = make()?;
    if let Ok(mut kept) = kept.try_lock()
        && kept.try_reserve(1).is_ok()
    {
        if kept.len() >= PROGRAMS {
            kept.remove(0);
        }
        kept.push(Block { hash, of: of.clone(), length, lowered: lowered.clone() });
    }
    Ok(lowered)
}

impl Block {
    fn is(&self, hash: u64, of: &Rows, length: usize) -> bool {
        (self.hash, self.length) == (hash, length)
            && self.of.mapped == of.mapped
            && self.of.results == of.results
            && is_same(&self.of.body.0, &of.body.0)
    }
}

/// Programs within an instruction.
fn within(op: &ArrayOp) -> [Option<&Shared<ArrayProgram>>; 2] {
    match op {
        ArrayOp::Call(of) => [Some(of), None],
        ArrayOp::Rows(of) => [Some(&of.body), None],
        ArrayOp::Cond { yes, no } => [Some(yes), Some(no)],
        ArrayOp::Loop(of) => match &of.length {
            Length::While { condition, .. } => [Some(&of.body), Some(condition)],
            _ => [Some(&of.body), None],
        },
        _ => [None, None],
    }
}

/// Whether a program is worth a comparison and little memory. User-defined derivatives hold objects that are not kept.
fn is_short(program: &ArrayProgram) -> bool {
    let is_short_instr = |instr: &ArrayInstr| match &instr.op {
        ArrayOp::Const(_, data) => data.0.len() <= NUMBERS,
        ArrayOp::Apart(_) => false,
        op => within(op).into_iter().flatten().all(|of| is_short(&of.0)),
    };
    program.instrs().len() <= INSTRS && program.instrs().iter().all(is_short_instr)
}

/// A hash of its shapes and operands.
fn fingerprint(program: &ArrayProgram) -> u64 {
    let mut words = Words::default();
    program.outputs().hash(&mut words);
    for instr in program.instrs() {
        std::mem::discriminant(&instr.op).hash(&mut words);
        (&instr.operands, program.type_of(instr.result)).hash(&mut words);
    }
    words.finish()
}

/// Whether two programs have the same content.
fn is_same(a: &ArrayProgram, b: &ArrayProgram) -> bool {
    let same = |(a, b): (&ArrayInstr, &ArrayInstr)| {
        a.operands == b.operands && a.result == b.result && is_same_op(&a.op, &b.op)
    };
    std::ptr::eq(a, b)
        || a.dtype() == b.dtype()
            && a.n_values() == b.n_values()
            && a.outputs() == b.outputs()
            && a.instrs().len() == b.instrs().len()
            && a.instrs().iter().zip(b.instrs()).all(same)
}

fn is_same_op(a: &ArrayOp, b: &ArrayOp) -> bool {
    let same = |a: &Shared<ArrayProgram>, b: &Shared<ArrayProgram>| is_same(&a.0, &b.0);
    match (a, b) {
        (ArrayOp::Const(dims, x), ArrayOp::Const(other, y)) => dims == other && is_same_data(&x.0, &y.0),
        (ArrayOp::Call(x), ArrayOp::Call(y)) => same(x, y),
        (ArrayOp::Rows(x), ArrayOp::Rows(y)) => {
            (x.rows, &x.mapped, &x.results) == (y.rows, &y.mapped, &y.results) && same(&x.body, &y.body)
        }
        (ArrayOp::Cond { yes, no }, ArrayOp::Cond { yes: yes_too, no: no_too }) => {
            same(yes, yes_too) && same(no, no_too)
        }
        (ArrayOp::Loop(x), ArrayOp::Loop(y)) => {
            let lengths = match (&x.length, &y.length) {
                (Length::While { condition, most }, Length::While { condition: other, most: most_too }) => {
                    most == most_too && same(condition, other)
                }
                (x, y) => x == y,
            };
            lengths
                && (x.reverse, x.captures, x.carries, x.checkpoint) == (y.reverse, y.captures, y.carries, y.checkpoint)
                && same(&x.body, &y.body)
        }
        (a, b) => a == b,
    }
}

/// Whether two constants have the same bits.
fn is_same_data(a: &Data, b: &Data) -> bool {
    match (a, b) {
        (Data::F64(x), Data::F64(y)) => x.iter().map(|x| x.to_bits()).eq(y.iter().map(|y| y.to_bits())),
        (Data::F32(x), Data::F32(y)) => x.iter().map(|x| x.to_bits()).eq(y.iter().map(|y| y.to_bits())),
        (a, b) => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::build::ArrayBuilder;
    use super::super::super::instr::{Element, OverRows};
    use super::*;
    use crate::scalar::DType;

    /// Rows of three numbers, a constant of which one number is `x`, and a literal, summed.
    fn rows(x: f64, literal: f64, rows: usize) -> Rows {
        let mut b = ArrayBuilder::new(DType::Float64).unwrap();
        let of = b.input(&[3], Element::Float).unwrap();
        let dims = b.dims(of);
        let data = Shared(Arc::new(Data::F64(vec![1.0, x, 3.0])));
        let constant = b.push(ArrayOp::Const(dims, data), &[]).unwrap();
        let literal = b.literal(literal).unwrap();
        let literal = b.broadcast_to(literal, dims).unwrap();
        let all = b.concatenate(&[of, constant, literal], 0).unwrap();
        let body = Shared(Arc::new(b.finish(&[all]).unwrap()));
        Rows { body, rows, mapped: [true].into(), results: [OverRows::Sum].into() }
    }

    #[test]
    fn blocks_of_equal_rows_are_lowered_once() {
        let kept = Kept::default();
        let lowered = |of: &Rows, length| kept_or(&kept, of, length, Ok).unwrap();
        let first = lowered(&rows(2.0, 5.0, 100), 64);
        assert!(Arc::ptr_eq(&first, &lowered(&rows(2.0, 5.0, 90), 64)));
        for (other, length) in [
            (rows(2.0, 5.0, 100), 32),
            (rows(2.5, 5.0, 100), 64),
            (rows(2.0, 5.5, 100), 64),
            (Rows { results: [OverRows::Each].into(), ..rows(2.0, 5.0, 100) }, 64),
            (Rows { mapped: [false].into(), ..rows(2.0, 5.0, 100) }, 64),
        ] {
            assert!(!Arc::ptr_eq(&first, &lowered(&other, length)), "{other:?}");
        }
        assert!(!Arc::ptr_eq(&lowered(&rows(0.0, 1.0, 9), 8), &lowered(&rows(-0.0, 1.0, 9), 8)));
    }

    #[test]
    fn a_limited_number_is_kept() {
        let kept = Kept::default();
        for k in 0..2 * PROGRAMS {
            kept_or(&kept, &rows(k as f64, 0.0, 100), 16, Ok).unwrap();
        }
        assert_eq!(kept.lock().unwrap().len(), PROGRAMS);
    }
}
