//! Text of nodes and numbers: in boxes of a picture, and a line about a node.

use crate::graph::{Graph, NodeId, Topology};
use crate::params::Parameters;
use crate::scalar::{Float, Scalar};

/// Longer ranges of leaves are one box, and one operand of a line.
pub(super) const LONGEST_APART: u32 = 6;
/// Numbers shown in a box of many.
const SHOWN: usize = 3;

/// The texts of numbers of any scalar type: values and gradients.
pub(super) trait Texts {
    /// For consecutive nodes.
    fn of_nodes(&self, first: u32, len: u32) -> [String; 2];
    /// For parameters of the store with this identity.
    fn of_parameters(&self, store: u64, start: usize, len: usize) -> [String; 2];
}

pub(super) struct Numbers<'g, 'm, S: Scalar> {
    pub(super) graph: &'g Graph<'m, S>,
    pub(super) params: &'g [&'g Parameters<'g, S::Elem>],
}

impl<S: Scalar> Texts for Numbers<'_, '_, S> {
    #[optimize(size)]
    fn of_nodes(&self, first: u32, len: u32) -> [String; 2] {
        let numbers = |get: &dyn Fn(u32) -> S| few(len as usize, &|k| scalar(get(first + k as u32)));
        [
            numbers(&|node| self.graph.columns.value(node)),
            numbers(&|node| self.graph.grad(NodeId(node)).unwrap_or(S::lit(0.0))),
        ]
    }

    #[optimize(size)]
    fn of_parameters(&self, store: u64, start: usize, len: usize) -> [String; 2] {
        let found = self.params.iter().find(|p| p.id() == store);
        let numbers = |column: Option<&[S::Elem]>| {
            column
                .and_then(|all| all.get(start..start + len))
                .map_or(String::new(), |all| few(len, &|k| number(all[k])))
        };
        [numbers(found.map(|p| p.values())), numbers(found.map(|p| p.grads()))]
    }
}

/// The label of a node, if it has one.
#[cfg(feature = "labels")]
fn label_of<S: Scalar>(graph: &Graph<'_, S>, node: u32) -> Option<String> {
    graph.label(NodeId(node)).map(str::to_string)
}

#[cfg(not(feature = "labels"))]
fn label_of<S: Scalar>(_: &Graph<'_, S>, _: u32) -> Option<String> {
    None
}

/// The first few of many texts.
fn few(n: usize, text: &dyn Fn(usize) -> String) -> String {
    let shown: Vec<String> = (0..n.min(SHOWN)).map(text).collect();
    let more = if n > SHOWN { ", ..." } else { "" };
    format!("{}{more}", shown.join(", "))
}

/// A short text of a scalar, lanes in brackets.
fn scalar<S: Scalar>(x: S) -> String {
    match S::LANES {
        1 => number(x.lane(0)),
        n => format!("[{}]", few(n, &|k| number(x.lane(k)))),
    }
}

/// A number with six digits.
fn number<E: Float>(x: E) -> String {
    six_digits(x.to_f64())
}

fn six_digits(x: f64) -> String {
    let size = x.abs();
    if x == 0.0 || !x.is_finite() {
        return format!("{x}");
    }
    if !(1e-4..1e7).contains(&size) {
        return format!("{x:.4e}");
    }
    let digits = (5 - size.log10().floor() as i32).max(0) as usize;
    let text = format!("{x:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
}

impl<S: Scalar> Graph<'_, S> {
    /// One line about a node: name, op and operands, value, gradient, index.
    #[optimize(size)]
    pub fn describe(&self, node: NodeId) -> crate::Result<String> {
        self.check_exists(node)?;
        let name = |node: u32| label_of(self, node).unwrap_or_else(|| format!("#{node}"));
        let made = made(self.topology(), node.index(), &name);
        let (value, grad) = (scalar(self.value(node)?), scalar(self.grad(node)?));
        Ok(described(&name(node.index()), &made, &value, &grad, node.index()))
    }
}

fn described(name: &str, made: &str, value: &str, grad: &str, node: u32) -> String {
    format!("{name} = {made}: data {value}, grad {grad}, node {node}")
}

/// The op and operands of a node, by name.
fn made(topology: Topology<'_>, node: u32, name: &dyn Fn(u32) -> String) -> String {
    let mut operands = Vec::new();
    topology.for_each_operand_of_any(node, &mut |run| match run.nodes() {
        Some(range) if range.len() as u32 > LONGEST_APART => {
            operands.push(format!("#{}..#{}", range.first().index(), range.first().index() + range.len() as u32 - 1));
        }
        Some(range) => operands.extend(range.nodes().map(|node| name(node.index()))),
        None => operands.push("parameters".to_string()),
    });
    let op = topology.op(node);
    if operands.is_empty() { op.name().into() } else { format!("{}({})", op.name(), operands.join(", ")) }
}
