//! The content of a picture: boxes with texts, and the links between them.
//!
//! A box is a node, a whole block, a run of many leaves that are read together, or numbers of a `Parameters`. Boxes are
//! collected from the roots downwards up to the limit; the others become one box with their count.

use std::cell::RefCell;
use std::collections::{BinaryHeap, HashMap, HashSet};

use crate::error::Result;
use crate::graph::{Graph, NodeId, OperandRun};
use crate::interrupt::{self, Work};
use crate::ops::{Arity, Op};
use crate::params::Parameters;
use crate::scalar::{Float, Scalar};

/// Runs of leaves longer than this are one box.
const LONGEST_APART: u32 = 6;
/// Numbers that a box of many shows.
const SHOWN: usize = 3;
/// Operations of [`Work`] that writing a box takes.
pub(super) const BOX: usize = 256;

/// What a box stands for, which decides its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// A root of the picture.
    Root,
    /// A leaf of the graph.
    Leaf,
    /// A number without gradient.
    Constant,
    /// Numbers of a `Parameters`.
    Parameter,
    /// Computed from others.
    Inner,
    /// What is left out.
    Rest,
}

impl Role {
    /// One word, as in CSS classes.
    pub const fn name(self) -> &'static str {
        match self {
            Role::Root => "root",
            Role::Leaf => "leaf",
            Role::Constant => "constant",
            Role::Parameter => "parameter",
            Role::Inner => "inner",
            Role::Rest => "rest",
        }
    }
}

/// A box.
#[derive(Clone, Debug, PartialEq)]
pub struct PictureBox {
    /// The first node, where there are nodes.
    pub node: Option<u32>,
    /// How many nodes or numbers it stands for.
    pub n: usize,
    /// The user's name, empty if there is none.
    pub label: String,
    /// The op's name.
    pub op: &'static str,
    /// What the op computes, and its partials.
    pub formula: &'static str,
    /// The value, the first few where there are many.
    pub value: String,
    /// The gradient, likewise.
    pub grad: String,
    /// Nanoseconds of one evaluation, where they were measured.
    pub nanoseconds: Option<f64>,
    /// What it is.
    pub role: Role,
}

/// That box `to` reads box `from`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Link {
    /// The operand.
    pub from: usize,
    /// What is computed from it.
    pub to: usize,
}

/// What is to be drawn.
#[derive(Clone, Debug)]
pub struct Options {
    /// Boxes shown at most.
    pub max_parts: usize,
}

/// A graph as boxes and links.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    /// Operands before what reads them.
    pub parts: Vec<PictureBox>,
    /// Each pair once.
    pub links: Vec<Link>,
    /// Nodes that the roots were computed from, shown or not.
    pub n_reached: usize,
}

/// What makes one box: nodes, or parameters. The order is that of drawing: parameters first, then nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Unit {
    Parameters { slot: usize, start: usize, len: usize },
    Nodes { first: u32, len: u32 },
}

impl<S: Scalar> Graph<'_, S> {
    /// The nodes that no other node reads. Asks now and then whether to end early.
    pub fn sinks(&self) -> Result<Vec<NodeId>> {
        let mut is_read = vec![false; self.len()];
        for node in 0..self.len() as u32 {
            interrupt::ask_at(node as usize)?;
            if self.columns.op(node) == Op::Part {
                is_read[node as usize] = true;
                continue;
            }
            self.for_each_operand(NodeId(node), |run| {
                if let Some(range) = run.nodes() {
                    is_read[range.indices()].fill(true);
                }
            });
        }
        Ok((0..self.len() as u32).filter(|&node| !is_read[node as usize]).map(NodeId).collect())
    }

    /// What `roots` were computed from, as boxes. `params` are those whose names and numbers are shown. Asks now and then
    /// whether to end early.
    pub fn picture(&self, roots: &[NodeId], params: &[&Parameters<'_, S::Elem>], options: &Options) -> Result<Picture> {
        let mut sorted: Vec<u32> = roots.iter().map(|root| root.index()).collect();
        sorted.sort_unstable();
        let drawing = Drawing {
            graph: self,
            roots: sorted,
            params,
            labels: labels(self),
            names: params.iter().map(|params| Names::of(params)).collect(),
            blocks: RefCell::default(),
        };
        let mut work = Work::default();
        let (units, left_out) = drawing.units(options, &mut work)?;
        drawing.picture(units, left_out, &mut work)
    }
}

struct Drawing<'g, 'm, S: Scalar> {
    graph: &'g Graph<'m, S>,
    /// Ascending.
    roots: Vec<u32>,
    params: &'g [&'g Parameters<'g, S::Elem>],
    /// By ascending node.
    labels: Vec<(u32, &'g str)>,
    /// Of each of `params`.
    names: Vec<Names<'g>>,
    /// First nodes and lengths of the blocks that have been met, the last first: they are met in about this order.
    blocks: RefCell<Vec<(u32, u32)>>,
}

/// The names of tensors, by where they begin.
struct Names<'g>(Vec<(std::ops::Range<usize>, &'g str)>);

impl<'g> Names<'g> {
    fn of<E: Float>(params: &'g Parameters<'_, E>) -> Self {
        let mut names: Vec<_> = params.names().map(|(name, tensor)| (tensor.slice().range(), name)).collect();
        names.sort_unstable_by_key(|(range, _)| range.start);
        Names(names)
    }

    /// The name of the tensor that holds a number.
    fn at(&self, place: usize) -> Option<&'g str> {
        let after = self.0.partition_point(|(range, _)| range.start <= place);
        self.0[..after].last().filter(|(range, _)| range.contains(&place)).map(|(_, name)| *name)
    }
}

/// Units that are shown, ascending, each with what it reads.
type Units = Vec<(Unit, Vec<Unit>)>;

impl<S: Scalar> Drawing<'_, '_, S> {
    /// The unit that a node belongs to, unless it was read as part of a longer run.
    fn unit_of(&self, node: u32) -> Unit {
        let at = self.blocks.borrow().partition_point(|&(first, _)| first > node);
        let known = self.blocks.borrow().get(at).copied();
        if let Some((first, len)) = known.filter(|&(first, len)| node - first < len) {
            return Unit::Nodes { first, len };
        }
        let tail = self.graph.block_tail(node).unwrap_or(node);
        if self.graph.columns.op(tail).info().arity != Arity::Block {
            return Unit::Nodes { first: node, len: 1 };
        }
        let record = self.graph.columns.operands(tail)[0];
        let header = crate::graph::BlockHeader::read(self.graph.extra.as_slice(), record);
        self.blocks.borrow_mut().insert(at, (header.first, header.n_out));
        Unit::Nodes { first: header.first, len: header.n_out }
    }

    /// The units of a run of operands.
    fn units_of(&self, run: OperandRun, out: &mut Vec<Unit>) {
        if let Some((slot, start, len)) = run.parameters() {
            out.push(Unit::Parameters { slot, start, len });
        } else if let Some(range) = run.nodes() {
            let (first, len) = (range.first().index(), range.len() as u32);
            let leaves = |node| matches!(self.graph.columns.op(node), Op::Leaf | Op::Constant);
            if len > LONGEST_APART && (first..first + len).all(leaves) {
                out.push(Unit::Nodes { first, len });
            } else {
                out.extend(range.nodes().map(|node| self.unit_of(node.index())));
            }
        }
    }

    /// Walks from the roots down, the highest node first, so that what is near the roots is shown.
    fn units(&self, options: &Options, work: &mut Work) -> Result<(Units, Vec<Unit>)> {
        let mut shown = Units::new();
        let mut seen: HashSet<Unit> = self.roots.iter().map(|&root| self.unit_of(root)).collect();
        let mut waiting: BinaryHeap<Unit> = seen.iter().copied().collect();
        while shown.len() < options.max_parts.max(1)
            && let Some(unit) = waiting.pop()
        {
            let mut read = Vec::new();
            if let Unit::Nodes { first, len } = unit {
                let tail = NodeId(first + len - 1);
                let op = self.graph.columns.op(tail.index());
                // A node that reads one parameter shows it itself.
                if (len == 1 || op.info().arity == Arity::Block) && !matches!(op, Op::Param | Op::FrozenParam) {
                    self.graph.for_each_operand(tail, |run| self.units_of(run, &mut read));
                }
            }
            work.add(BOX / 4 * (1 + read.len()))?;
            waiting.extend(read.iter().filter(|unit| seen.insert(**unit)));
            shown.push((unit, read));
        }
        shown.sort_unstable_by_key(|(unit, _)| *unit);
        Ok((shown, waiting.into_vec()))
    }

    fn picture(&self, units: Units, left_out: Vec<Unit>, work: &mut Work) -> Result<Picture> {
        let mut parts = Vec::new();
        let n_reached = self.n_reached()?;
        if !left_out.is_empty() {
            let shown: usize =
                units.iter().map(|(unit, _)| if let Unit::Nodes { len, .. } = unit { *len as usize } else { 0 }).sum();
            let n = n_reached.saturating_sub(shown).max(1);
            let label = format!("and {n} more nodes");
            let (value, grad) = (String::new(), String::new());
            let formula = "the picture is cut here: ask for more boxes, or for a root further down";
            parts.push(PictureBox {
                node: None,
                n,
                label,
                op: "...",
                formula,
                value,
                grad,
                nanoseconds: None,
                role: Role::Rest,
            });
        }
        let mut places: HashMap<Unit, usize> = left_out.iter().map(|&unit| (unit, 0)).collect();
        for &(unit, _) in &units {
            work.add(BOX)?;
            places.insert(unit, parts.len());
            parts.push(self.part(unit));
        }
        let mut links = Vec::new();
        for (unit, read) in &units {
            let to = places[unit];
            work.add(BOX / 4 * (1 + read.len()))?;
            links.extend(read.iter().filter_map(|unit| places.get(unit)).map(|&from| Link { from, to }));
        }
        links.retain(|link| link.from != link.to);
        links.sort_unstable();
        links.dedup();
        Ok(Picture { parts, links, n_reached })
    }

    fn n_reached(&self) -> Result<usize> {
        let mut set = crate::graph::NodeSet::default();
        set.reset(self.graph.len())?;
        self.roots.iter().for_each(|&root| set.insert(root));
        self.graph.mark_reachable(&mut set)?;
        Ok(set.count() as usize)
    }

    fn part(&self, unit: Unit) -> PictureBox {
        match unit {
            Unit::Parameters { slot, start, len } => self.parameters(slot, start, len),
            Unit::Nodes { first, len } => self.nodes(first, len),
        }
    }

    fn nodes(&self, first: u32, len: u32) -> PictureBox {
        let tail = first + len - 1;
        let op = self.graph.columns.op(tail);
        let is_root =
            self.roots.get(self.roots.partition_point(|&root| root < first)).is_some_and(|&root| root <= tail);
        let role = match op {
            _ if is_root => Role::Root,
            Op::Leaf => Role::Leaf,
            Op::Constant => Role::Constant,
            Op::Param | Op::FrozenParam => Role::Parameter,
            _ => Role::Inner,
        };
        let label = self.label_within(first, tail).or_else(|| {
            let [place, slot] = self.graph.columns.operands(tail);
            (role == Role::Parameter).then(|| self.parameter_name(slot as usize, place as usize)).flatten()
        });
        let numbers = |get: &dyn Fn(u32) -> S| few(len as usize, |k| scalar(get(first + k as u32)));
        PictureBox {
            node: Some(first),
            n: len as usize,
            label: label.unwrap_or_default(),
            op: op.name(),
            formula: op.info().doc.trim(),
            value: numbers(&|node| self.graph.columns.value(node)),
            grad: numbers(&|node| self.graph.grad(NodeId(node)).unwrap_or(S::lit(0.0))),
            nanoseconds: None,
            role,
        }
    }

    /// The first label among these nodes, if there are labels.
    fn label_within(&self, first: u32, last: u32) -> Option<String> {
        let (node, label) = self.labels.get(self.labels.partition_point(|&(node, _)| node < first))?;
        (*node <= last).then(|| label.to_string())
    }

    /// The name of the tensor that holds a parameter.
    fn parameter_name(&self, slot: usize, place: usize) -> Option<String> {
        let store = self.graph.stores().get(slot)?;
        let names = self.params.iter().zip(&self.names).find(|(params, _)| params.id() == *store)?.1;
        names.at(place).map(str::to_string)
    }

    fn parameters(&self, slot: usize, start: usize, len: usize) -> PictureBox {
        let store = self.graph.stores()[slot];
        let found = self.params.iter().find(|p| p.id() == store);
        let name = self.parameter_name(slot, start);
        let numbers = |column: Option<&[S::Elem]>| {
            column.and_then(|all| all.get(start..start + len)).map_or(String::new(), |all| few(len, |k| number(all[k])))
        };
        PictureBox {
            node: None,
            n: len,
            label: name.unwrap_or_else(|| format!("parameters {start}..{}", start + len)),
            op: "parameters",
            formula: "trainable numbers; their gradients accumulate there",
            value: numbers(found.map(|p| p.values())),
            grad: numbers(found.map(|p| p.grads())),
            nanoseconds: None,
            role: Role::Parameter,
        }
    }
}

/// The labels of a graph, by ascending node.
#[cfg(feature = "labels")]
fn labels<'g, S: Scalar>(graph: &'g Graph<'_, S>) -> Vec<(u32, &'g str)> {
    graph.labels().map(|(node, label)| (node.index(), label)).collect()
}

#[cfg(not(feature = "labels"))]
fn labels<'g, S: Scalar>(_: &'g Graph<'_, S>) -> Vec<(u32, &'g str)> {
    Vec::new()
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
fn few(n: usize, text: impl Fn(usize) -> String) -> String {
    let shown: Vec<String> = (0..n.min(SHOWN)).map(text).collect();
    let more = if n > SHOWN { ", ..." } else { "" };
    format!("{}{more}", shown.join(", "))
}

/// A scalar in few characters, lanes in brackets.
pub(super) fn scalar<S: Scalar>(x: S) -> String {
    match S::LANES {
        1 => number(x.lane(0)),
        n => format!("[{}]", few(n, |k| number(x.lane(k)))),
    }
}

/// A number in six digits.
pub(super) fn number<E: Float>(x: E) -> String {
    let x = x.to_f64();
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
    pub fn describe(&self, node: NodeId) -> crate::Result<String> {
        self.check_exists(node)?;
        let name = |node: u32| label_of(self, node).unwrap_or_else(|| format!("#{node}"));
        let mut operands = Vec::new();
        self.for_each_operand(node, |run| match run.nodes() {
            Some(range) if range.len() as u32 > LONGEST_APART => {
                operands.push(format!(
                    "#{}..#{}",
                    range.first().index(),
                    range.first().index() + range.len() as u32 - 1
                ));
            }
            Some(range) => operands.extend(range.nodes().map(|node| name(node.index()))),
            None => operands.push("parameters".to_string()),
        });
        let op = self.op(node)?;
        let (value, grad) = (scalar(self.value(node)?), scalar(self.grad(node)?));
        let made =
            if operands.is_empty() { op.name().into() } else { format!("{}({})", op.name(), operands.join(", ")) };
        Ok(format!("{} = {made}: data {value}, grad {grad}, node {}", name(node.index()), node.index()))
    }
}
