//! Loops over single numbers as machine code, on x86-64 with AVX2.
//!
//! The simple algorithm: the steps of `scalars`, which jump to each other: some ten instructions for each operation. Departure:
//! the instructions of the operations themselves, whose numbers stay in registers while they are read next, and reach memory only if
//! other parts of the work read them. Branches that derivatives hardly ever take, where an adjoint is 0 or a number NaN, lie apart.
//! Promises: the bits of the steps, and memory that is never writable and executable at once. Without such memory, or another CPU,
//! there is no code, and the steps run. Does not know loops of programs.
#![allow(unsafe_code)]

mod assembler;
mod operations;

use std::collections::HashMap;
use std::sync::Arc;

use memmap2::{Mmap, MmapMut};

use self::assembler::{Constant, If, Operand, Register, SUBTRACT};
use self::operations::{Writer, function};
use super::fused::{Item, Operation};
use super::math::{BlockOp, arity};
use crate::simd::{Level, level};

/// Of the slots and a place in the code: the place where it pauses, or null at its end.
type Entry = unsafe extern "sysv64" fn(*mut f64, *const u8) -> *const u8;

/// No next reading.
const NEVER: usize = usize::MAX;

/// The most slots and the longest code that its addresses reach.
const MOST: usize = 1 << 24;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Native {
    code: Arc<Mmap>,
    /// Where it is entered, and where it begins.
    entry: usize,
    first: usize,
}

impl Native {
    /// Of work on so many slots, each of which is read so often in all, with the slot that holds how many steps of loops come
    /// before the next pause.
    pub(super) fn new(work: &[Item], slots: usize, reads: &[usize], left: Option<usize>) -> Option<Self> {
        if level() < Level::Avx2 || cfg!(miri) || slots > MOST {
            return None;
        }
        let mut maker = Maker { writer: Writer::new(), reads, left, cached: [None; 16], pinned: 0 };
        let entry = maker.writer.to.here();
        // push rbx; mov rbx, rdi; jmp rsi
        maker.writer.to.raw(&[0x53, 0x48, 0x89, 0xfb, 0xff, 0xe6]);
        let first = maker.writer.to.here();
        maker.append(work)?;
        // xor eax, eax; pop rbx; ret
        maker.writer.to.raw(&[0x31, 0xc0, 0x5b, 0xc3]);
        maker.writer.put_rare();
        let bytes = maker.writer.to.bytes;
        let mut memory = MmapMut::map_anon(bytes.len()).ok().filter(|_| bytes.len() < MOST)?;
        memory.copy_from_slice(&bytes);
        Some(Native { code: Arc::new(memory.make_exec().ok()?), entry, first })
    }

    pub(super) fn first(&self) -> *const u8 {
        // SAFETY: it is inside of the code.
        unsafe { self.code.as_ptr().add(self.first) }
    }

    /// Runs from a place on to the next pause or, then null, to the end.
    ///
    /// # Safety
    /// Behind `slots` lie as many as the work names, and the place is the first one or that of a pause.
    pub(super) unsafe fn run(&self, slots: *mut f64, at: *const u8) -> *const u8 {
        // SAFETY: the code at this place is that of a function of this type.
        unsafe {
            let entry = std::mem::transmute::<*const u8, Entry>(self.code.as_ptr().add(self.entry));
            entry(slots, at)
        }
    }
}

/// A number in a register.
#[derive(Clone, Copy, Debug)]
struct Cached {
    slot: usize,
    /// Where it is read next, in the same straight work.
    next: usize,
    /// Whether memory has it, too.
    is_stored: bool,
}

/// Work without jumps: an operation, or a move.
#[derive(Clone, Copy)]
struct Straight {
    op: Option<BlockOp>,
    of: [usize; 3],
    to: usize,
    /// Where each operand, and the result, is read next.
    next: [usize; 4],
    /// Whether anything else reads the result.
    is_stored: bool,
}

impl Straight {
    fn arity(&self) -> usize {
        self.op.map_or(1, arity)
    }

    fn operands(&self) -> &[usize] {
        &self.of[..self.arity()]
    }
}

struct Maker<'a> {
    writer: Writer,
    reads: &'a [usize],
    left: Option<usize>,
    cached: [Option<Cached>; 16],
    /// Registers that must not change now, as bits.
    pinned: u16,
}

impl Maker<'_> {
    fn append(&mut self, work: &[Item]) -> Option<()> {
        let mut at = 0;
        while at < work.len() {
            let is_straight = |item: &&Item| matches!(item, Item::Operation(_) | Item::Move { .. });
            let n = work[at..].iter().take_while(is_straight).count();
            if n > 0 {
                self.straight(&work[at..][..n])?;
                at += n;
                continue;
            }
            match &work[at] {
                Item::Operation(_) | Item::Move { .. } => {}
                Item::Choice { of, yes, no } => {
                    let test = self.unless(*of);
                    self.append(yes)?;
                    let end = self.writer.to.jump(If::Always);
                    self.writer.to.land(test, self.writer.to.here());
                    self.append(no)?;
                    self.writer.to.land(end, self.writer.to.here());
                }
                Item::Loop { condition, of, body } => {
                    let start = self.writer.to.here();
                    self.append(condition)?;
                    let test = self.unless(*of);
                    self.append(body)?;
                    self.again(start, self.left?);
                    self.writer.to.land(test, self.writer.to.here());
                }
            }
            at += 1;
        }
        Some(())
    }

    /// A jump where a slot holds 0.
    fn unless(&mut self, of: usize) -> usize {
        self.writer.to.load(0, Operand::Slot(of));
        self.writer.to.test(0, Operand::Constant(Constant::Zero));
        let is_nan = self.writer.to.jump(If::Unordered);
        let jump = self.writer.to.jump(If::Equal);
        self.writer.to.land(is_nan, self.writer.to.here());
        jump
    }

    /// A jump back, or a pause where no more steps are left.
    fn again(&mut self, start: usize, left: usize) {
        self.writer.to.load(0, Operand::Slot(left));
        self.writer.to.three(SUBTRACT, 0, 0, Operand::Constant(Constant::One));
        self.writer.to.store(0, left);
        self.writer.to.test(0, Operand::Constant(Constant::Zero));
        let back = self.writer.to.jump(If::Greater);
        self.writer.to.land(back, start);
        // lea rax, [start]; pop rbx; ret
        self.writer.to.raw(&[0x48, 0x8d, 0x05]);
        self.writer.to.raw(&(start as i32 - self.writer.to.here() as i32 - 4).to_le_bytes());
        self.writer.to.raw(&[0x5b, 0xc3]);
    }

    /// Appends work without jumps.
    fn straight(&mut self, work: &[Item]) -> Option<()> {
        let part = |item: &Item| match *item {
            Item::Operation(Operation { op, of, to }) => Some((Some(op), of, to)),
            Item::Move { from, to } => Some((None, [from; 3], to)),
            Item::Choice { .. } | Item::Loop { .. } => None,
        };
        let plain = |(op, of, to)| Straight { op, of, to, next: [NEVER; 4], is_stored: true };
        let mut all: Vec<_> = work.iter().filter_map(part).map(plain).collect();
        // Of each slot where it is read next, and how often before it is written again.
        let mut later: HashMap<usize, (usize, usize)> = HashMap::new();
        for (at, part) in all.iter_mut().enumerate().rev() {
            let (next, n) = later.remove(&part.to).unwrap_or((NEVER, 0));
            part.next[3] = next;
            part.is_stored = n == 0 || self.reads.get(part.to) != Some(&n);
            for k in 0..part.arity() {
                part.next[k] = later.get(&part.of[k]).map_or(NEVER, |later| later.0);
            }
            for of in part.operands() {
                let n = later.get(of).map_or(0, |later| later.1);
                later.insert(*of, (at, n + 1));
            }
        }
        self.cached = [None; 16];
        all.iter().try_for_each(|part| self.part(part))
    }

    fn part(&mut self, part: &Straight) -> Option<()> {
        self.pinned = 0;
        let mut registers = [0; 3];
        for (k, &of) in part.operands().iter().enumerate() {
            registers[k] = self.found(of).unwrap_or_else(|| self.loaded(of));
        }
        for (&register, &next) in registers.iter().zip(&part.next).take(part.arity()) {
            self.cached[usize::from(register)].iter_mut().for_each(|cached| cached.next = next);
        }
        let to = match part.op.and_then(function) {
            Some(function) => {
                (0..16).for_each(|k| self.leave(k));
                self.writer.call(function, [registers[0], registers[part.arity() - 1]]);
                0
            }
            None => {
                let to = self.free();
                self.writer.operation(part.op, registers, to)?;
                to
            }
        };
        for cached in &mut self.cached {
            cached.take_if(|cached| cached.next == NEVER);
        }
        if part.is_stored {
            self.writer.to.store(to, part.to);
        }
        if part.next[3] != NEVER {
            self.cached[usize::from(to)] =
                Some(Cached { slot: part.to, next: part.next[3], is_stored: part.is_stored });
        }
        Some(())
    }

    /// The register that has the number of a slot.
    fn found(&mut self, slot: usize) -> Option<Register> {
        let k = self.cached.iter().position(|cached| cached.is_some_and(|cached| cached.slot == slot))?;
        self.pinned |= 1 << k;
        Some(k as Register)
    }

    fn loaded(&mut self, slot: usize) -> Register {
        let register = self.free();
        self.writer.to.load(register, Operand::Slot(slot));
        self.cached[usize::from(register)] = Some(Cached { slot, next: NEVER, is_stored: true });
        register
    }

    /// A register whose number is read last, now free and pinned.
    fn free(&mut self) -> Register {
        let next = |&k: &usize| self.cached[k].map_or((true, NEVER), |cached| (false, cached.next));
        let k = (0..16).filter(|k| self.pinned >> k & 1 == 0).max_by_key(next).unwrap_or(15);
        self.pinned |= 1 << k;
        self.leave(k);
        k as Register
    }

    /// Frees a register, whose number goes to memory if it is read again.
    fn leave(&mut self, k: usize) {
        if let Some(Cached { slot, next, is_stored: false }) = self.cached[k].take()
            && next != NEVER
        {
            self.writer.to.store(k as Register, slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::expansion::MathOp;
    use super::super::fused::tests::all_operations;
    use super::super::scalars::Code;
    use super::*;

    const SPECIAL: [f64; 12] =
        [0.3, -1.2, 0.0, -0.0, 1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 5e-324, -1e300, 2.5, 1e-3];

    /// More than registers.
    const SLOTS: usize = 40;
    const LEFT: usize = SLOTS;
    const ONE: usize = SLOTS + 1;
    const TIMES: usize = SLOTS + 2;

    struct Random(u64);

    impl Random {
        fn below(&mut self, n: usize) -> usize {
            self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (self.0 >> 33) as usize % n
        }

        /// Operations and moves on slots that are written again and again.
        fn straight(&mut self, ops: &[BlockOp]) -> Vec<Item> {
            let n = 1 + self.below(120);
            let mut item = |_| {
                let [of, more, third, to] = [(); 4].map(|()| self.below(SLOTS));
                match self.below(8) {
                    0 => Item::Move { from: of, to },
                    _ => Item::Operation(Operation { op: ops[self.below(ops.len())], of: [of, more, third], to }),
                }
            };
            (0..n).map(&mut item).collect()
        }

        /// The same with branches, and a loop that pauses several times.
        fn work(&mut self, ops: &[BlockOp]) -> Vec<Item> {
            let mut work = self.straight(ops);
            let (yes, no) = (self.straight(ops), if self.below(2) > 0 { self.straight(ops) } else { vec![] });
            work.push(Item::Choice { of: self.below(SLOTS), yes, no });
            let mut body = self.straight(&ops[..20]);
            let less = Operation { op: BlockOp::Math(MathOp::Sub), of: [TIMES, ONE, 0], to: TIMES };
            body.push(Item::Operation(less));
            work.push(Item::Loop { condition: vec![], of: TIMES, body });
            work.extend(self.straight(ops));
            work
        }
    }

    #[test]
    fn machine_code_has_the_bits_of_steps() {
        let ops = all_operations();
        for seed in 0..2000 {
            let mut random = Random(seed * 2 + 1);
            let work = random.work(&ops);
            let kept: Vec<_> = (0..4).map(|_| random.below(SLOTS)).collect();
            let [steps, native] = [Code::new, Code::repeated].map(|new| new(&work, &kept, Some(LEFT)));
            assert!(native.is_native(), "seed {seed}");
            for special in [false, true, true] {
                let number = |random: &mut Random| match special {
                    true => SPECIAL[random.below(SPECIAL.len())],
                    false => random.below(1000) as f64 / 300.0 - 1.0,
                };
                let mut slots: Vec<f64> = (0..SLOTS).map(|_| number(&mut random)).collect();
                slots.extend([0.0, 1.0, [0.0, 1.0, 700.0][random.below(3)]]);
                let mut found = slots.clone();
                steps.run(&mut slots).unwrap();
                native.run(&mut found).unwrap();
                for &k in &kept {
                    let [x, y] = [&found, &slots].map(|slots| if slots[k].is_nan() { 1 } else { slots[k].to_bits() });
                    assert_eq!(x, y, "seed {seed}, slot {k}: {} and {}", found[k], slots[k]);
                }
            }
        }
    }
}
