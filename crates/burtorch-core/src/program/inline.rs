//! A program appended to a graph: the nodes that the traced function would have appended, without running it.
//!
//! Promises: values and gradients have the recorded bits; an error leaves the graph unchanged. Guards are not checked: the
//! caller has chosen the program for these inputs.

use super::node::{Node, Program};
use super::primitive;
use crate::error::{Error, Result};
use crate::graph::{Graph, NodeId, Operands};
use crate::interrupt;
use crate::ops::{Arity, Op};
use crate::scalar::Float;

/// Appends the program of `inputs`; returns its outputs.
pub fn append<S: Float>(program: &Program, graph: &mut Graph<'_, S>, inputs: &[NodeId]) -> Result<Vec<NodeId>> {
    if inputs.len() != program.n_inputs() {
        return Err(Error::BadArgument {
            what: "the inputs of a program",
            expected: format!("{} nodes", program.n_inputs()),
            found: inputs.len().to_string(),
        });
    }
    let mark = graph.mark();
    let result = try_append(program, graph, inputs);
    if result.is_err() {
        graph.rewind(mark)?;
    }
    result
}

fn try_append<S: Float>(program: &Program, graph: &mut Graph<'_, S>, inputs: &[NodeId]) -> Result<Vec<NodeId>> {
    let mut places: Vec<Option<NodeId>> = inputs.iter().copied().map(Some).collect();
    places.resize(program.n_slots(), None);
    let mut many = Vec::new();
    for (k, &node) in program.nodes().iter().enumerate() {
        interrupt::ask_at(k)?;
        let added = match node.op.info().arity {
            Arity::Nullary => {
                let of = place(program, graph, &mut places, node.a)?;
                graph.constant(graph.value(of)?)?
            }
            Arity::Unary => {
                let x = place(program, graph, &mut places, node.a)?;
                graph.unary_op(node.op, x)?
            }
            Arity::Binary => {
                let x = place(program, graph, &mut places, node.a)?;
                let y = place(program, graph, &mut places, node.b)?;
                graph.binary_op(node.op, x, y)?
            }
            Arity::WithConstant => {
                let c = S::lit(program.constant(node.b).unwrap_or(f64::NAN));
                let x = place(program, graph, &mut places, node.a)?;
                graph.with_constant_op(node.op, x, c)?
            }
            _ => {
                many.clear();
                for &x in program.list(node) {
                    many.push(place(program, graph, &mut places, x)?);
                }
                of_many(program, graph, k as u32, node, &many)?
            }
        };
        places[program.first_node() as usize + k] = Some(added);
    }
    program.outputs().iter().map(|&x| place(program, graph, &mut places, x)).collect()
}

/// The node of a slot; constants are appended on first use.
fn place<S: Float>(
    program: &Program,
    graph: &mut Graph<'_, S>,
    places: &mut [Option<NodeId>],
    slot: u32,
) -> Result<NodeId> {
    if let Some(node) = places[slot as usize] {
        return Ok(node);
    }
    let node = graph.constant(S::lit(program.constant(slot).unwrap_or(f64::NAN)))?;
    places[slot as usize] = Some(node);
    Ok(node)
}

fn of_many<S: Float>(
    program: &Program,
    graph: &mut Graph<'_, S>,
    k: u32,
    node: Node,
    many: &[NodeId],
) -> Result<NodeId> {
    let n = node.b as usize;
    match (node.op, program.called(k)) {
        (_, Some(called)) => primitive::append(&called.0, graph, many, None),
        (Op::InnerProduct | Op::InnerProductWithBias, None) => {
            let (x, w) = (Operands::List(&many[..n]), Operands::List(&many[n..2 * n]));
            graph.inner_product(x, w, many.get(2 * n).copied(), &[])
        }
        (op, None) => graph.reduce(op, Operands::List(many), &[]),
    }
}
