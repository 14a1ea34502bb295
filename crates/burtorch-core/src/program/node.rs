//! The parts of a program: slots, nodes, guards.
//!
//! Slots are numbered: inputs first, then constants, then one per node in order. Every operand lies below its node.
//! Promises: every [`Program`] is valid, whatever the source of its parts; all other modules rely on it.

use super::primitive::Called;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::ops::{Arity, Op};
use crate::scalar::{DType, Float};

/// The slot of an operand.
pub type Operand = u32;

/// The largest number of slots: two bits of a slot's number carry the mode of a contribution.
const MOST_SLOTS: usize = 1 << 30;

/// One op of a program. Its result is in the slot of the same position.
///
/// Unary: `a`. Binary: `a`, `b`. With a constant: `a`, and the slot of the constant in `b`. Reduction: `b` operands
/// from `a` in the lists. Inner product: `b` operands `x` from `a` in the lists, then as many `w`, then a bias, if any.
/// A call of a primitive ([`Op::Linearised`]): `b` operands from `a` in the lists; the primitive is stored separately.
/// [`Op::Constant`] is a copy of `a` that blocks gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// The op.
    pub op: Op,
    /// First operand, or where the list begins.
    pub a: u32,
    /// Second operand, or how many are listed.
    pub b: u32,
}

/// How two numbers are compared; or whether one is not zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Comparison {
    /// `a < b`
    Less,
    /// `a <= b`
    LessEqual,
    /// `a == b`
    Equal,
    /// `a != b`
    NotEqual,
    /// `a > b`
    Greater,
    /// `a >= b`
    GreaterEqual,
}

impl Comparison {
    /// All of them, by number.
    pub const ALL: [Comparison; 6] = [
        Comparison::Less,
        Comparison::LessEqual,
        Comparison::Equal,
        Comparison::NotEqual,
        Comparison::Greater,
        Comparison::GreaterEqual,
    ];

    /// The answer.
    #[inline(always)]
    pub fn holds<E: Float>(self, a: E, b: E) -> bool {
        match self {
            Comparison::Less => a < b,
            Comparison::LessEqual => a <= b,
            Comparison::Equal => a == b,
            Comparison::NotEqual => a != b,
            Comparison::Greater => a > b,
            Comparison::GreaterEqual => a >= b,
        }
    }

    /// The same comparison with `floor`, the greatest number of a type that is at most the original operand; `None` if
    /// no number of the type equals it, so that only "not equal" holds.
    pub fn about_floor(self, is_exact: bool) -> Option<Comparison> {
        match self {
            _ if is_exact => Some(self),
            Comparison::Less | Comparison::LessEqual => Some(Comparison::LessEqual),
            Comparison::Greater | Comparison::GreaterEqual => Some(Comparison::Greater),
            Comparison::Equal | Comparison::NotEqual => None,
        }
    }

    /// As it is written.
    pub const fn symbol(self) -> &'static str {
        match self {
            Comparison::Less => "<",
            Comparison::LessEqual => "<=",
            Comparison::Equal => "==",
            Comparison::NotEqual => "!=",
            Comparison::Greater => ">",
            Comparison::GreaterEqual => ">=",
        }
    }
}

/// A question that was asked while the function was recorded. The program is right only where the answer is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Guard {
    /// Asked once this many nodes have been computed.
    pub after: u32,
    /// The comparison.
    pub comparison: Comparison,
    /// The slots compared.
    pub a: Operand,
    /// See `a`.
    pub b: Operand,
    /// The recorded outcome.
    pub answer: bool,
}

/// A traced function. See the module.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    pub(crate) dtype: DType,
    /// Differentiated inputs come first.
    pub(crate) n_inputs: u32,
    pub(crate) n_differentiated: u32,
    pub(crate) constants: Vec<f64>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) lists: Vec<Operand>,
    pub(crate) outputs: Vec<Operand>,
    pub(crate) guards: Vec<Guard>,
    /// For each call of a primitive its node and its primitive, in order.
    pub(crate) calls: Vec<(u32, Called)>,
}

/// The parts of a program, unchecked.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// How many inputs.
    pub n_inputs: u32,
    /// The number of differentiable inputs, which come first.
    pub n_differentiated: u32,
    /// Numbers that never change.
    pub constants: Vec<f64>,
    /// The ops.
    pub nodes: Vec<Node>,
    /// Operands of ops with many.
    pub lists: Vec<Operand>,
    /// The slots of the results.
    pub outputs: Vec<Operand>,
    /// In the order they were asked.
    pub guards: Vec<Guard>,
    /// For each call of a primitive its node, by place, in order.
    pub calls: Vec<(u32, Called)>,
}

impl Program {
    /// A program of these parts, if they fit together.
    pub fn new(dtype: DType, parts: Parts) -> Result<Self> {
        let Parts { n_inputs, n_differentiated, constants, nodes, lists, outputs, guards, calls } = parts;
        let program = Program { dtype, n_inputs, n_differentiated, constants, nodes, lists, outputs, guards, calls };
        program.check()?;
        Ok(program)
    }

    /// The parts, to be rewritten.
    pub fn into_parts(self) -> (DType, Parts) {
        let Program { dtype, n_inputs, n_differentiated, constants, nodes, lists, outputs, guards, calls } = self;
        (dtype, Parts { n_inputs, n_differentiated, constants, nodes, lists, outputs, guards, calls })
    }

    fn check(&self) -> Result<()> {
        let wrong = |what: &'static str, found: String| Error::BadArgument {
            what,
            expected: "as a traced function has it".into(),
            found,
        };
        let n_slots = self.n_inputs as usize + self.constants.len() + self.nodes.len();
        if n_slots >= MOST_SLOTS {
            return Err(Error::IndexExhausted { limit: MOST_SLOTS as u32 });
        }
        if self.n_differentiated > self.n_inputs {
            return Err(wrong("the number of differentiated inputs of a program", self.n_differentiated.to_string()));
        }
        #[allow(unreachable_patterns)]
        let has_steps = matches!(self.dtype, DType::Float32 | DType::Float64);
        if !has_steps {
            return Err(wrong("the dtype of a program", self.dtype.name().into()));
        }
        for (k, node) in self.nodes.iter().enumerate() {
            interrupt::ask_at(k)?;
            let slot = self.first_node() + k as u32;
            let fits = match node.op.info().arity {
                Arity::Nullary => node.op == Op::Constant && node.a < slot,
                Arity::Unary => node.a < slot,
                Arity::Binary => node.a < slot && node.b < slot,
                Arity::WithConstant => node.a < slot && self.constant(node.b).is_some(),
                Arity::Reduction | Arity::InnerProduct => {
                    node.b > 0 && self.try_list(*node).is_some_and(|list| list.iter().all(|&x| x < slot))
                }
                Arity::Block => false,
            };
            if !fits {
                return Err(wrong("a node of a program", format!("{} at slot {slot}", node.op.name())));
            }
        }
        let is_call = |(_, node): &(usize, &Node)| node.op == Op::Linearised;
        let called = self.nodes.iter().enumerate().filter(is_call).map(|(k, _)| k as u32);
        if !called.eq(self.calls.iter().map(|(k, _)| *k)) {
            return Err(wrong("the primitives of a program", format!("{} of them", self.calls.len())));
        }
        if self.outputs.is_empty() || self.outputs.iter().any(|&x| x as usize >= n_slots) {
            return Err(wrong("the outputs of a program", format!("{:?}", self.outputs.first())));
        }
        let mut asked = 0;
        for guard in &self.guards {
            let computed = self.first_node() as u64 + u64::from(guard.after);
            let is_computed = |x: u32| u64::from(x) < computed;
            if guard.after < asked
                || guard.after as usize > self.nodes.len()
                || !is_computed(guard.a)
                || !is_computed(guard.b)
            {
                return Err(wrong("a guard of a program", format!("{guard:?}")));
            }
            asked = guard.after;
        }
        Ok(())
    }

    fn try_list(&self, node: Node) -> Option<&[Operand]> {
        let n = list_len(node)?;
        self.lists.get(node.a as usize..(node.a as usize).checked_add(n)?)
    }

    /// The listed operands of a node; empty for a node without a list.
    pub fn list(&self, node: Node) -> &[Operand] {
        self.try_list(node).unwrap_or(&[])
    }

    /// Calls `f` with every operand of a node, in the order of its formula.
    pub fn for_each_operand(&self, node: Node, mut f: impl FnMut(Operand)) {
        match node.op.info().arity {
            Arity::Nullary | Arity::Unary => f(node.a),
            Arity::Binary | Arity::WithConstant => {
                f(node.a);
                f(node.b);
            }
            _ => self.list(node).iter().for_each(|&x| f(x)),
        }
    }

    /// The element type that it was recorded with.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The number of differentiated inputs, which come first.
    pub fn n_inputs(&self) -> usize {
        self.n_inputs as usize
    }

    /// The number of differentiable inputs.
    pub fn n_differentiated(&self) -> usize {
        self.n_differentiated as usize
    }

    /// The ops, in order.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The slot of the first node.
    #[inline(always)]
    pub fn first_node(&self) -> u32 {
        self.n_inputs + self.constants.len() as u32
    }

    /// Inputs, constants and nodes.
    pub fn n_slots(&self) -> usize {
        self.first_node() as usize + self.nodes.len()
    }

    /// The number in a slot that never changes.
    pub fn constant(&self, slot: Operand) -> Option<f64> {
        self.constants.get((slot.checked_sub(self.n_inputs)?) as usize).copied()
    }

    /// The node that computes a slot.
    pub fn node(&self, slot: Operand) -> Option<Node> {
        self.nodes.get(slot.checked_sub(self.first_node())? as usize).copied()
    }

    /// Whether some node calls a primitive.
    pub fn calls_primitives(&self) -> bool {
        !self.calls.is_empty()
    }

    /// The primitive that a node, by place, calls.
    pub fn called(&self, node: u32) -> Option<&Called> {
        let at = self.calls.binary_search_by_key(&node, |call| call.0).ok()?;
        Some(&self.calls[at].1)
    }

    /// The slots of the results.
    pub fn outputs(&self) -> &[Operand] {
        &self.outputs
    }

    /// The guards, in the order they were asked.
    pub fn guards(&self) -> &[Guard] {
        &self.guards
    }

    /// Memory of the program itself.
    pub fn bytes(&self) -> usize {
        self.nodes.len() * size_of::<Node>()
            + self.constants.len() * size_of::<f64>()
            + (self.lists.len() + self.outputs.len()) * size_of::<Operand>()
            + self.guards.len() * size_of::<Guard>()
    }

    /// For each slot, whether it depends on a differentiated input.
    pub(crate) fn moves(&self) -> Vec<bool> {
        let mut moves = vec![false; self.n_slots()];
        moves[..self.n_differentiated as usize].fill(true);
        for (k, &node) in self.nodes.iter().enumerate() {
            let mut any = false;
            if node.op != Op::Constant {
                self.for_each_operand(node, |x| any |= moves[x as usize]);
            }
            moves[self.first_node() as usize + k] = any;
        }
        moves
    }
}

/// The length of a node's operand list.
pub(crate) fn list_len(node: Node) -> Option<usize> {
    match node.op.info().arity {
        Arity::Reduction => Some(node.b as usize),
        Arity::InnerProduct if node.op == Op::Linearised => Some(node.b as usize),
        Arity::InnerProduct => Some(2 * node.b as usize + usize::from(node.op == Op::InnerProductWithBias)),
        _ => None,
    }
}
