//! From a graph to a program: eagerly built nodes become slots and nodes.
//!
//! Promises: the program computes the same numbers as the graph, in the same order; leaves that are not inputs become constants.
//! Guards and detached copies are not visible in the columns; the caller passes them in.

use std::collections::HashMap;

use super::node::{Comparison, Guard, Node, Parts, Program};
use super::passes;
use super::primitive::Called;
use crate::error::{Error, Result};
use crate::graph::{Graph, MapRecord, NodeId};
use crate::interrupt;
use crate::ops::{Arity, Op};
use crate::scalar::Float;

/// The information of a trace besides the graph.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// The leaves that are inputs, in order.
    pub inputs: Vec<NodeId>,
    /// The number of differentiable inputs, which come first.
    pub n_differentiated: usize,
    /// The results.
    pub outputs: Vec<NodeId>,
    /// Guards in order: the number of nodes before, the comparison, and its outcome.
    pub guards: Vec<(usize, Comparison, NodeId, NodeId, bool)>,
    /// Constants that are copies of other nodes: the copy, then the node.
    pub detached: Vec<(NodeId, NodeId)>,
    /// Nodes that primitives computed, as [`append`](super::primitive::append) tells.
    pub calls: Vec<(NodeId, Called)>,
}

/// Assigns slots while a graph is read.
struct Reader {
    parts: Parts,
    /// For each node of the graph, its slot or kind.
    places: Vec<SlotKind>,
    constants: HashMap<u64, u32>,
    /// The last two constants looked up, by their bits: many constants repeat one of these.
    recent: [(u64, SlotKind); 2],
    /// The primitives of nodes.
    calls: HashMap<u32, Called>,
}

/// The result of reading a node of the graph. The slots of constants and nodes are known once all constants are.
#[derive(Clone, Copy, Debug)]
enum SlotKind {
    Input(u32),
    Constant(u32),
    Node(u32),
    Unknown,
}

impl Reader {
    fn constant(&mut self, x: f64) -> SlotKind {
        let bits = x.to_bits();
        for (recent, place) in self.recent {
            if recent == bits && !matches!(place, SlotKind::Unknown) {
                return place;
            }
        }
        let next = self.parts.constants.len() as u32;
        let at = *self.constants.entry(bits).or_insert(next);
        if at == next {
            self.parts.constants.push(x);
        }
        self.recent = [(bits, SlotKind::Constant(at)), self.recent[0]];
        SlotKind::Constant(at)
    }

    fn push(&mut self, op: Op, a: u32, b: u32) -> SlotKind {
        self.parts.nodes.push(Node { op, a, b });
        SlotKind::Node(self.parts.nodes.len() as u32 - 1)
    }

    /// Lists nodes of the graph; returns the start of the list.
    fn list(&mut self, nodes: impl Iterator<Item = u32>) -> u32 {
        let at = self.parts.lists.len() as u32;
        self.parts.lists.extend(nodes);
        at
    }
}

impl Recording {
    /// The program of `graph`, without nodes that no output or guard needs.
    ///
    /// Fails if an op reads parameters, because a replay would not notice their changes.
    pub fn program<S: Float>(&self, graph: &Graph<'_, S>) -> Result<Program> {
        let mut reader = Reader {
            parts: Parts {
                n_inputs: self.inputs.len() as u32,
                n_differentiated: self.n_differentiated as u32,
                ..Parts::default()
            },
            places: vec![SlotKind::Unknown; graph.len()],
            constants: HashMap::new(),
            recent: [(0, SlotKind::Unknown); 2],
            calls: self.calls.iter().map(|(node, called)| (node.0, called.clone())).collect(),
        };
        for (k, input) in self.inputs.iter().enumerate() {
            graph.check_exists(*input)?;
            reader.places[input.0 as usize] = SlotKind::Input(k as u32);
        }
        let detached: HashMap<u32, u32> = self.detached.iter().map(|(copy, of)| (copy.0, of.0)).collect();
        // Until all constants are known, operands are nodes of the graph.
        let mut computed = vec![0; graph.len() + 1];
        for node in 0..graph.len() as u32 {
            interrupt::ask_at(node as usize)?;
            if let SlotKind::Unknown = reader.places[node as usize] {
                let place = match detached.get(&node) {
                    Some(&of) => reader.push(Op::Constant, of, 0),
                    None => read_node(graph, node, &mut reader)?,
                };
                reader.places[node as usize] = place;
            }
            computed[node as usize + 1] = reader.parts.nodes.len() as u32;
        }
        self.finish(S::DTYPE, reader, &computed)
    }

    /// Converts nodes of the graph to slots.
    fn finish(&self, dtype: crate::scalar::DType, reader: Reader, computed: &[u32]) -> Result<Program> {
        let Reader { mut parts, places, .. } = reader;
        let (n_inputs, n_constants) = (parts.n_inputs, parts.constants.len() as u32);
        let slot = |node: u32| match places[node as usize] {
            SlotKind::Input(k) => k,
            SlotKind::Constant(k) => n_inputs + k,
            SlotKind::Node(k) => n_inputs + n_constants + k,
            SlotKind::Unknown => u32::MAX,
        };
        for (k, node) in parts.nodes.iter_mut().enumerate() {
            interrupt::ask_at(k)?;
            match node.op.info().arity {
                Arity::Nullary | Arity::Unary => node.a = slot(node.a),
                Arity::Binary | Arity::WithConstant => (node.a, node.b) = (slot(node.a), slot(node.b)),
                _ => {}
            }
        }
        parts.lists.iter_mut().for_each(|x| *x = slot(*x));
        parts.outputs = self.outputs.iter().map(|node| slot(node.0)).collect();
        let guard = |&(len, comparison, a, b, answer): &(usize, Comparison, NodeId, NodeId, bool)| {
            let after = computed[len.min(computed.len() - 1)];
            Guard { after, comparison, a: slot(a.0), b: slot(b.0), answer }
        };
        parts.guards = self.guards.iter().map(guard).collect();
        passes::without_dead_code(Program::new(dtype, parts)?)
    }
}

/// Reads one node of the graph.
fn read_node<S: Float>(graph: &Graph<'_, S>, node: u32, reader: &mut Reader) -> Result<SlotKind> {
    let op = graph.columns.op(node);
    let [a, b] = graph.columns.operands(node);
    Ok(match op.info().arity {
        Arity::Nullary => match op {
            Op::Leaf | Op::Constant => reader.constant(graph.columns.value(node).to_f64()),
            // The last output of its block, which comes next, determines it.
            Op::Part => SlotKind::Unknown,
            _ => return Err(refused(op)),
        },
        Arity::Unary => reader.push(op, a, 0),
        Arity::Binary | Arity::WithConstant => reader.push(op, a, b),
        Arity::Reduction | Arity::InnerProduct => {
            let lists = &mut reader.parts.lists;
            let at = lists.len();
            let mut reads_parameters = false;
            graph.for_each_operand(NodeId(node), |run| match run.nodes() {
                Some(range) => lists.extend(range.nodes().map(|x| x.0)),
                None => reads_parameters = true,
            });
            if reads_parameters {
                return Err(refused(Op::Param));
            }
            let len = lists.len() - at;
            let n = if op.info().arity == Arity::InnerProduct { len / 2 } else { len };
            if op == Op::Linearised {
                // A replay recomputes value and partials.
                lists.truncate(at + n);
                let called = reader.calls.get(&node).cloned().ok_or_else(|| refused(op))?;
                reader.parts.calls.push((reader.parts.nodes.len() as u32, called));
            }
            reader.push(op, at as u32, n as u32)
        }
        Arity::Block => return read_block(graph, op, a, node, reader),
    })
}

/// Converts blocks to one node per output.
fn read_block<S: Float>(graph: &Graph<'_, S>, op: Op, record: u32, node: u32, reader: &mut Reader) -> Result<SlotKind> {
    let extra = graph.extra.as_slice();
    match op {
        Op::Map => {
            let record = MapRecord::read(extra, record);
            let mut last = SlotKind::Unknown;
            for (output, x) in (record.header.first..=node).zip(record.x.nodes()) {
                last = reader.push(record.op, x.0, 0);
                reader.places[output as usize] = last;
            }
            Ok(last)
        }
        Op::MeanAndMeanSquares => {
            let mut operands = Vec::new();
            graph.for_each_operand(NodeId(node), |run| {
                operands.extend(run.nodes().into_iter().flat_map(|range| range.nodes()).map(|x| x.0));
            });
            let n = operands.len() as u32;
            let at = reader.list(operands.into_iter());
            // The backward pass adds the contribution of the mean first, so the mean is the later node.
            let squares = reader.push(Op::MEAN_SQUARE, at, n);
            reader.places[node as usize - 1] = reader.push(Op::AVERAGE, at, n);
            Ok(squares)
        }
        _ => Err(refused(op)),
    }
}

/// The error for an op that a program cannot contain.
fn refused(op: Op) -> Error {
    let expected = match op {
        Op::Param | Op::FrozenParam => "without Parameters; pass their numbers as an argument",
        Op::Softmax | Op::LogSoftmax => "one that works on single numbers; write it with exp, log and a sum",
        _ => "one that works on single numbers; write it with those, or call it outside the function",
    };
    Error::BadArgument { what: "an op of a traced function", expected: expected.into(), found: op.name().into() }
}
