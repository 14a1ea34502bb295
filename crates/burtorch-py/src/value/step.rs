//! Operations in words: what an operator or op method appends, for graphs of the rarer scalar types.
//!
//! Promises: the same nodes as the code that is compiled for float64 and float32 appends. There is one body per scalar
//! type here, where there are some eighty operations times as many types otherwise.
#![allow(unsafe_code)]

use burtorch_core::ops::Arity;
use burtorch_core::{Graph, NodeId, Op, Result, Scalar};

use super::number::{Minus, Operator, Over, Plus, Power, Times};
use super::object::ValueObject;
use super::unevaluated::settle;
use crate::cell::{Cell, with_graph};
use crate::vector::Symbol;

/// What to append to the operands.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// A unary or binary op.
    Op(Op),
    /// An op of a value and a number.
    WithConstant(Op, f64),
    /// An op of a number and a value.
    ConstantWith(Op, f64),
    /// An operator with a number on its right.
    Right(Symbol, f64),
    /// An operator with a number on its left.
    Left(Symbol, f64),
    /// A copy without gradient.
    Detach,
}

/// Checks the operands and appends; constants only, if `no_grad`.
///
/// # Safety
/// The operands are living values of this cell's graph; the interpreter lock is held.
#[inline(never)]
pub unsafe fn append_step(
    cell: &mut Cell,
    operands: &[*mut ValueObject],
    step: Step,
    no_grad: bool,
) -> Result<(u32, u64)> {
    for &operand in operands {
        // SAFETY: by the contract of this function.
        settle(&mut cell.graph, unsafe { &mut (*operand).handle })?;
    }
    with_graph!(&mut cell.graph, g => {
        let mut nodes = [NodeId::from_index(0); 2];
        for (node, &operand) in nodes.iter_mut().zip(operands) {
            // SAFETY: by the contract of this function.
            let handle = unsafe { &mut (*operand).handle };
            *node = NodeId::from_index(handle.start);
            handle.epoch = g.check(*node, handle.epoch)?;
        }
        let before = no_grad.then(|| g.set_no_grad(true));
        let node = run(g, step, nodes);
        if let Some(before) = before {
            g.set_no_grad(before);
        }
        Ok((node?.index(), g.epoch()))
    })
}

fn run<S: Scalar>(graph: &mut Graph<'static, S>, step: Step, [x, y]: [NodeId; 2]) -> Result<NodeId> {
    match step {
        Step::Op(op) if op.info().arity == Arity::Unary => graph.unary_op(op, x),
        Step::Op(op) => graph.binary_op(op, x, y),
        Step::WithConstant(op, c) => graph.with_constant_op(op, x, S::lit(c)),
        Step::ConstantWith(op, c) => graph.constant_with_op(op, S::lit(c), x),
        Step::Right(symbol, c) => right(graph, symbol, x, S::lit(c)),
        Step::Left(symbol, c) => left(graph, symbol, S::lit(c), x),
        Step::Detach => graph.detach(x),
    }
}

/// `x symbol c`.
pub fn right<S: Scalar>(graph: &mut Graph<'static, S>, symbol: Symbol, x: NodeId, c: S) -> Result<NodeId> {
    match symbol {
        Symbol::Plus => Plus::right(graph, x, c),
        Symbol::Minus => Minus::right(graph, x, c),
        Symbol::Times => Times::right(graph, x, c),
        Symbol::Over => Over::right(graph, x, c),
        Symbol::Power => Power::right(graph, x, c),
    }
}

/// `c symbol x`.
pub fn left<S: Scalar>(graph: &mut Graph<'static, S>, symbol: Symbol, c: S, x: NodeId) -> Result<NodeId> {
    match symbol {
        Symbol::Plus => Plus::left(graph, c, x),
        Symbol::Minus => Minus::left(graph, c, x),
        Symbol::Times => Times::left(graph, c, x),
        Symbol::Over => Over::left(graph, c, x),
        Symbol::Power => Power::left(graph, c, x),
    }
}
