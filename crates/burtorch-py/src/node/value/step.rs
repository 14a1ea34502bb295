//! Operations as data: the effect of an operator or op method, for graphs of the rarer scalar types.
//!
//! Promises: the same nodes as from the code that is compiled for float64 and float32. One body serves all
//! operations and types here.
#![allow(unsafe_code)]

use burtorch_core::erased::{AnyNumber, ErasedGraph};
use burtorch_core::ops::Arity;
use burtorch_core::{NodeId, Op, Result};

use super::object::ValueObject;
use crate::graph::cell::{Cell, settle};
use crate::node::vector::Symbol;

/// The operation on the operands.
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

/// Checks the operands and appends; only constants, if `no_grad`.
///
/// # Safety
/// The operands are living values of this cell's graph; the GIL is held.
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
    let graph = &mut *cell.graph;
    let mut nodes = [NodeId::from_index(0); 2];
    for (node, &operand) in nodes.iter_mut().zip(operands) {
        // SAFETY: by the contract of this function.
        let handle = unsafe { &mut (*operand).handle };
        *node = NodeId::from_index(handle.start);
        handle.epoch = graph.check(*node, handle.epoch)?;
    }
    let before = no_grad.then(|| graph.set_no_grad(true));
    let node = run(graph, step, nodes);
    if let Some(before) = before {
        graph.set_no_grad(before);
    }
    Ok((node?.index(), graph.epoch()))
}

fn run(graph: &mut dyn ErasedGraph, step: Step, [x, y]: [NodeId; 2]) -> Result<NodeId> {
    match step {
        Step::Op(op) if op.info().arity == Arity::Unary => graph.unary_op(op, x),
        Step::Op(op) => graph.binary_op(op, x, y),
        Step::WithConstant(op, c) => graph.with_constant_op(op, x, &AnyNumber::One(c)),
        Step::ConstantWith(op, c) => graph.constant_with_op(op, &AnyNumber::One(c), x),
        Step::Right(symbol, c) => graph.operator_right(symbol.op(), x, &AnyNumber::One(c)),
        Step::Left(symbol, c) => graph.operator_left(symbol.op(), &AnyNumber::One(c), x),
        Step::Detach => graph.detach(x),
    }
}
