//! Machine code of x86-64 with AVX for numbers in double precision: one method for each instruction that [`super::native`] uses.
//!
//! Promises: the bytes of the instruction that it names. Does not know what they are for.

/// A register of a vector unit: 0 to 15.
pub(super) type Register = u8;

/// The last operand of an instruction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Operand {
    In(Register),
    /// A number behind the address in RBX.
    Slot(usize),
    /// A constant: 16 bytes that the code begins with.
    Constant(Constant),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Constant {
    Zero,
    One,
    /// -0.0: the bit of the sign.
    Sign,
    /// All other bits.
    Magnitude,
}

/// The bits of [`Constant`]s, in their order.
const CONSTANTS: [u64; 4] = [0, 0x3ff0_0000_0000_0000, 1 << 63, !(1 << 63)];

/// Instructions of three operands: the number of the map, the prefix, W and the code.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Code(u8, u8, u8, u8);

pub(super) const ADD: Code = Code(1, 3, 0, 0x58);
pub(super) const MULTIPLY: Code = Code(1, 3, 0, 0x59);
pub(super) const SUBTRACT: Code = Code(1, 3, 0, 0x5c);
pub(super) const DIVIDE: Code = Code(1, 3, 0, 0x5e);
pub(super) const ROOT: Code = Code(1, 3, 0, 0x51);
pub(super) const AND: Code = Code(1, 1, 0, 0x54);
pub(super) const XOR: Code = Code(1, 1, 0, 0x57);
/// The first is the sum so far.
pub(super) const MULTIPLY_ADD: Code = Code(2, 1, 1, 0xb9);
/// All bits of the lower half, or none.
pub(super) const SAME_BITS: Code = Code(2, 1, 0, 0x29);
pub(super) const COMPARE: Code = Code(1, 3, 0, 0xc2);
pub(super) const ROUND: Code = Code(3, 1, 0, 0x0b);
/// The last where the sign of a mask is set, else the second.
pub(super) const BLEND: Code = Code(3, 1, 0, 0x4b);
const LOAD: Code = Code(1, 3, 0, 0x10);
const STORE: Code = Code(1, 3, 0, 0x11);
const COPY: Code = Code(1, 1, 0, 0x28);
const TEST: Code = Code(1, 1, 0, 0x2e);

/// Conditions of jumps, as a comparison by [`Assembler::test`] leaves them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum If {
    Always,
    /// Or unordered.
    Equal,
    Unordered,
    Greater,
}

#[derive(Debug)]
pub(super) struct Assembler {
    pub(super) bytes: Vec<u8>,
}

impl Assembler {
    pub(super) fn new() -> Self {
        let constant = |bits: &u64| [bits.to_le_bytes(), [0; 8]].concat();
        Assembler { bytes: CONSTANTS.iter().flat_map(constant).collect() }
    }

    /// Where the next instruction begins.
    pub(super) fn here(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    fn vex(&mut self, Code(map, prefix, w, code): Code, to: u8, second: u8, last: Operand, more: Option<u8>) {
        let (high, is_high) = (|register: u8| register >> 3, |bit: u8| (1 - bit) << 5);
        let rm = if let Operand::In(register) = last { high(register) } else { 0 };
        let head = (1 - high(to)) << 7 | 1 << 6 | is_high(rm) | map;
        self.raw(&[0xc4, head, w << 7 | (15 - second) << 3 | prefix, code]);
        let to = (to & 7) << 3;
        match last {
            Operand::In(register) => self.raw(&[0xc0 | to | register & 7]),
            Operand::Slot(slot) => {
                self.raw(&[0x80 | to | 3]);
                self.raw(&(slot as u32 * 8).to_le_bytes());
            }
            Operand::Constant(constant) => {
                self.raw(&[to | 5]);
                let end = self.here() + 4 + more.map_or(0, |_| 1);
                self.raw(&(constant as i32 * 16 - end as i32).to_le_bytes());
            }
        }
        more.iter().for_each(|&byte| self.raw(&[byte]));
    }

    pub(super) fn three(&mut self, code: Code, to: Register, second: Register, last: Operand) {
        self.vex(code, to, second, last, None);
    }

    /// With a choice: which comparison, how to round, the register of a mask.
    pub(super) fn four(&mut self, code: Code, to: Register, second: Register, last: Operand, which: u8) {
        self.vex(code, to, second, last, Some(which));
    }

    pub(super) fn load(&mut self, to: Register, from: Operand) {
        self.vex(if let Operand::In(_) = from { COPY } else { LOAD }, to, 0, from, None);
    }

    pub(super) fn store(&mut self, from: Register, slot: usize) {
        self.vex(STORE, from, 0, Operand::Slot(slot), None);
    }

    pub(super) fn test(&mut self, x: Register, y: Operand) {
        self.vex(TEST, x, 0, y, None);
    }

    /// A jump that [`Assembler::land`] sends somewhere; its place.
    pub(super) fn jump(&mut self, when: If) -> usize {
        match when {
            If::Always => self.raw(&[0xe9]),
            If::Equal => self.raw(&[0x0f, 0x84]),
            If::Unordered => self.raw(&[0x0f, 0x8a]),
            If::Greater => self.raw(&[0x0f, 0x87]),
        }
        self.raw(&[0; 4]);
        self.here()
    }

    /// Lets a jump end at a place.
    pub(super) fn land(&mut self, jump: usize, at: usize) {
        self.bytes[jump - 4..jump].copy_from_slice(&(at as i32 - jump as i32).to_le_bytes());
    }

    /// A jump to the next instruction unless the bits of a number are those of -0.0.
    pub(super) fn jump_unless_unreached(&mut self, x: Register) -> usize {
        // mov rax, x
        let head = (1 - (x >> 3)) << 7 | 0x61;
        self.raw(&[0xc4, head, 0xf9, 0x7e, 0xc0 | (x & 7) << 3]);
        // mov rcx, 1 << 63; cmp rax, rcx; jne
        self.raw(&[0x48, 0xb9]);
        self.raw(&(1u64 << 63).to_le_bytes());
        self.raw(&[0x48, 0x39, 0xc8, 0x0f, 0x85, 0, 0, 0, 0]);
        self.here()
    }

    /// Calls a function.
    pub(super) fn call(&mut self, function: usize) {
        self.raw(&[0x48, 0xb8]);
        self.raw(&function.to_le_bytes());
        self.raw(&[0xff, 0xd0]);
    }
}
