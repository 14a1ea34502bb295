//! Machine code of operations on numbers in registers.
//!
//! Promises: the bits of the steps in `actions`. Does not know where numbers lie.

use super::super::super::expansion::MathOp;
use super::super::actions::function_of;
use super::super::math::BlockOp;
use super::assembler::{
    ADD, AND, Assembler, BLEND, COMPARE, Code, Constant, DIVIDE, If, MULTIPLY, MULTIPLY_ADD, Operand, ROOT, ROUND,
    Register, SAME_BITS, SUBTRACT, XOR,
};
use crate::ops::Function;

/// What is done where a jump is taken that hardly ever is.
struct Rare {
    jump: usize,
    back: usize,
    /// The register of the result, and the case.
    to: Register,
    case: Case,
}

#[derive(Clone, Copy)]
enum Case {
    /// Unreached, if the number in the register is, which is 0 or NaN.
    Unreached(Register),
    /// What is in this place, if a number in another one is.
    UnreachedElse(Register, Register),
    /// What is in this register.
    Other(Register),
    /// At rest, if a rate is 0: the number of the other register where that of the result is NaN, or 0.
    Rest(Option<Register>),
}

/// See the module.
pub(super) struct Writer {
    pub(super) to: Assembler,
    rare: Vec<Rare>,
}

impl Writer {
    pub(super) fn new() -> Self {
        Writer { to: Assembler::new(), rare: Vec::new() }
    }

    /// A function of one or two numbers, which leaves no register as it was; its result is in the first.
    pub(super) fn call(&mut self, function: Function, [x, y]: [Register; 2]) {
        // In an order in which neither is lost.
        let moves: &[(Register, Register)] = match (x, y) {
            (1, 0) => &[(2, 1), (1, 0), (0, 2)],
            (1, _) => &[(0, 1), (1, y)],
            _ => &[(1, y), (0, x)],
        };
        moves.iter().filter(|(to, from)| to != from).for_each(|&(to, from)| self.to.load(to, Operand::In(from)));
        self.to.call(function_of(function) as usize);
    }

    /// The operation, or a move, on numbers in registers to another one; `None` if there is no code for it.
    pub(super) fn operation(&mut self, op: Option<BlockOp>, [x, y, z]: [Register; 3], to: Register) -> Option<()> {
        use Operand::{Constant as Of, In};
        let zero = Of(Constant::Zero);
        let Some(op) = op else {
            self.to.load(to, In(x));
            return Some(());
        };
        let simple = |code: Code, writer: &mut Self| writer.to.three(code, to, x, In(y));
        match op {
            BlockOp::IsUnreached => {
                self.to.three(SAME_BITS, to, x, Of(Constant::Sign));
                self.to.three(AND, to, to, Of(Constant::One));
            }
            BlockOp::Contribution => {
                self.to.three(ADD, to, y, zero);
                self.rarely_unreached(x, to);
            }
            BlockOp::Product => {
                simple(MULTIPLY, self);
                self.to.three(ADD, to, to, zero);
                self.rarely_unreached(x, to);
            }
            BlockOp::Hidden => {
                self.to.load(to, In(y));
                self.rarely_unreached(x, to);
            }
            BlockOp::MulAdd | BlockOp::ReachedMulAdd => {
                self.to.load(to, In(z));
                self.to.three(MULTIPLY_ADD, to, x, In(y));
                if op == BlockOp::ReachedMulAdd {
                    self.to.three(ADD, to, to, zero);
                    self.rarely(If::Equal, (x, zero), to, Case::UnreachedElse(x, z));
                }
            }
            BlockOp::NanOr => {
                self.to.load(to, In(y));
                self.rarely(If::Unordered, (x, In(x)), to, Case::Other(x));
            }
            BlockOp::ContributionNanOr => {
                self.to.load(to, In(z));
                self.rarely(If::Unordered, (y, In(y)), to, Case::Other(y));
                self.to.three(ADD, to, to, zero);
                self.rarely_unreached(x, to);
            }
            BlockOp::Resting | BlockOp::RestingProduct | BlockOp::RestingQuotient => {
                match op {
                    BlockOp::Resting => self.to.load(to, In(y)),
                    BlockOp::RestingProduct => simple(MULTIPLY, self),
                    _ => simple(DIVIDE, self),
                }
                let rest = (op == BlockOp::RestingQuotient).then_some(x);
                self.rarely(If::Equal, (x, zero), to, Case::Rest(rest));
            }
            BlockOp::Two(_) => return None,
            BlockOp::Math(op) => match op {
                MathOp::Add => simple(ADD, self),
                MathOp::Sub => simple(SUBTRACT, self),
                MathOp::Mul => simple(MULTIPLY, self),
                MathOp::Div => simple(DIVIDE, self),
                MathOp::Neg => self.to.three(XOR, to, x, Of(Constant::Sign)),
                MathOp::Less => self.mask(x, y, to, 0x11),
                MathOp::LessEqual => self.mask(x, y, to, 0x12),
                MathOp::Equal => self.mask(x, y, to, 0),
                MathOp::IsNan => self.mask(x, x, to, 3),
                MathOp::Select => {
                    self.to.four(COMPARE, to, x, zero, 0);
                    self.to.four(BLEND, to, y, In(z), to << 4);
                }
                MathOp::Function(Function::Sqrt) => self.to.three(ROOT, to, x, In(x)),
                MathOp::Function(Function::Abs) => self.to.three(AND, to, x, Of(Constant::Magnitude)),
                MathOp::Function(Function::Floor) => self.to.four(ROUND, to, x, In(x), 9),
                MathOp::Function(Function::Ceil) => self.to.four(ROUND, to, x, In(x), 10),
                MathOp::Function(_) | MathOp::Operand(_) | MathOp::Literal(_) => return None,
            },
        }
        Some(())
    }

    fn mask(&mut self, x: Register, y: Register, to: Register, which: u8) {
        self.to.four(COMPARE, to, x, Operand::In(y), which);
        self.to.three(AND, to, to, Operand::Constant(Constant::One));
    }

    fn rarely_unreached(&mut self, x: Register, to: Register) {
        self.rarely(If::Equal, (x, Operand::Constant(Constant::Zero)), to, Case::Unreached(x));
    }

    fn rarely(&mut self, when: If, (x, y): (Register, Operand), to: Register, case: Case) {
        self.to.test(x, y);
        let jump = self.to.jump(when);
        self.rare.push(Rare { jump, back: self.to.here(), to, case });
    }

    /// Appends what jumps that are rarely taken lead to.
    pub(super) fn put_rare(&mut self) {
        for Rare { jump, back, to, case } in std::mem::take(&mut self.rare) {
            self.to.land(jump, self.to.here());
            let sign = Operand::Constant(Constant::Sign);
            let back_if = |writer: &mut Self, when: If| {
                let jump = writer.to.jump(when);
                writer.to.land(jump, back);
            };
            match case {
                Case::Unreached(x) | Case::UnreachedElse(x, _) => {
                    let differs = self.to.jump_unless_unreached(x);
                    self.to.land(differs, back);
                    self.to.load(to, if let Case::UnreachedElse(_, other) = case { Operand::In(other) } else { sign });
                }
                Case::Other(x) => self.to.load(to, Operand::In(x)),
                Case::Rest(rest) => {
                    // The rate is NaN.
                    back_if(self, If::Unordered);
                    self.to.test(to, Operand::In(to));
                    let is_nan = self.to.jump(If::Unordered);
                    self.to.three(ADD, to, to, Operand::Constant(Constant::Zero));
                    back_if(self, If::Always);
                    self.to.land(is_nan, self.to.here());
                    self.to.load(to, rest.map_or(Operand::Constant(Constant::Zero), Operand::In));
                }
            }
            back_if(self, If::Always);
        }
    }
}

/// The function that is an operation, if it is called.
pub(super) fn function(op: BlockOp) -> Option<Function> {
    match op {
        BlockOp::Math(MathOp::Function(Function::Sqrt | Function::Abs | Function::Floor | Function::Ceil)) => None,
        BlockOp::Math(MathOp::Function(function)) => Some(function),
        _ => None,
    }
}
