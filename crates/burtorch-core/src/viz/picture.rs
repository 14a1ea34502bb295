//! The content of a picture: boxes with texts, and the links between them.
//!
//! A box is a node, a whole block, a run of many leaves that are read together, or numbers of a `Parameters`. Boxes are
//! collected from the roots downwards up to the limit; the others become one box with their count.

use std::cell::RefCell;
use std::collections::{BinaryHeap, HashMap, HashSet};

use super::texts::{LONGEST_APART, Numbers, Texts};
use crate::error::Result;
use crate::graph::{Graph, NodeId, OperandRun, Topology};
use crate::interrupt::{self, Work};
use crate::ops::{Arity, Op};
use crate::params::Parameters;
use crate::scalar::{Float, Scalar};

/// Operations of [`Work`] to write a box.
pub(super) const BOX: usize = 256;

/// The kind of a box, which determines its colour.
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
    /// Everything omitted.
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
    /// The first node, if the box has nodes.
    pub node: Option<u32>,
    /// The number of nodes or parameters in the box.
    pub n: usize,
    /// The user's name, or empty.
    pub label: String,
    /// The op's name.
    pub op: &'static str,
    /// The formula of the op, and its partials.
    pub formula: &'static str,
    /// The value, or the first few of many.
    pub value: String,
    /// The gradient, likewise.
    pub grad: String,
    /// Nanoseconds of one evaluation, where they were measured.
    pub nanoseconds: Option<f64>,
    /// The kind of the box.
    pub role: Role,
}

/// That box `to` reads box `from`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Link {
    /// The operand.
    pub from: usize,
    /// The box that reads it.
    pub to: usize,
}

/// The options of a drawing.
#[derive(Clone, Debug)]
pub struct Options {
    /// Boxes shown at most.
    pub max_parts: usize,
}

/// A graph as boxes and links.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    /// The boxes; operands come before their readers.
    pub parts: Vec<PictureBox>,
    /// Each pair once.
    pub links: Vec<Link>,
    /// Nodes that the roots were computed from, shown or not.
    pub n_reached: usize,
}

/// The content of a box: nodes, or parameters. Ordered as drawn: parameters first, then nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Unit {
    Parameters { slot: usize, start: usize, len: usize },
    Nodes { first: u32, len: u32 },
}

impl<S: Scalar> Graph<'_, S> {
    /// The nodes that no other node reads. Interruptible.
    pub fn sinks(&self) -> Result<Vec<NodeId>> {
        sinks(self.topology())
    }

    /// The dependencies of `roots`, as boxes. `params` are those whose names and numbers are shown. Interruptible.
    pub fn picture(&self, roots: &[NodeId], params: &[&Parameters<'_, S::Elem>], options: &Options) -> Result<Picture> {
        let mut sorted: Vec<u32> = roots.iter().map(|root| root.index()).collect();
        sorted.sort_unstable();
        let drawing = Drawing {
            topology: self.topology(),
            numbers: &Numbers { graph: self, params },
            roots: sorted,
            stores: self.stores(),
            labels: labels(self),
            names: params.iter().map(|params| Names::of(params)).collect(),
            blocks: RefCell::default(),
        };
        let mut work = Work::default();
        let (units, left_out) = drawing.units(options, &mut work)?;
        drawing.picture(units, left_out, &mut work)
    }
}

fn sinks(topology: Topology<'_>) -> Result<Vec<NodeId>> {
    let mut is_read = vec![false; topology.ops.len()];
    for (node, &op) in topology.ops.iter().enumerate() {
        interrupt::ask_at(node)?;
        if op == Op::Part {
            is_read[node] = true;
            continue;
        }
        topology.for_each_operand_of_any(node as u32, &mut |run| {
            if let Some(range) = run.nodes() {
                is_read[range.indices()].fill(true);
            }
        });
    }
    Ok((0..is_read.len()).filter(|&node| !is_read[node]).map(|node| NodeId(node as u32)).collect())
}

/// A graph of any scalar type to draw.
struct Drawing<'g> {
    topology: Topology<'g>,
    numbers: &'g dyn Texts,
    /// Ascending.
    roots: Vec<u32>,
    stores: &'g [u64],
    /// By ascending node.
    labels: Vec<(u32, &'g str)>,
    /// For each set of parameters shown.
    names: Vec<Names<'g>>,
    /// The first node and length of each block visited, latest first: visits are in about this order.
    blocks: RefCell<Vec<(u32, u32)>>,
}

/// The names of tensors, by start.
struct Names<'g> {
    store: u64,
    tensors: Vec<(std::ops::Range<usize>, &'g str)>,
}

impl<'g> Names<'g> {
    fn of<E: Float>(params: &'g Parameters<'_, E>) -> Self {
        let mut tensors: Vec<_> = params.names().map(|(name, tensor)| (tensor.slice().range(), name)).collect();
        tensors.sort_unstable_by_key(|(range, _)| range.start);
        Names { store: params.id(), tensors }
    }

    /// The name of the tensor that contains a number.
    fn at(&self, place: usize) -> Option<&'g str> {
        let after = self.tensors.partition_point(|(range, _)| range.start <= place);
        self.tensors[..after].last().filter(|(range, _)| range.contains(&place)).map(|(_, name)| *name)
    }
}

/// The units shown, ascending, each with its operands.
type Units = Vec<(Unit, Vec<Unit>)>;

impl Drawing<'_> {
    /// The unit of a node, unless it was read as part of a longer range.
    fn unit_of(&self, node: u32) -> Unit {
        let at = self.blocks.borrow().partition_point(|&(first, _)| first > node);
        let known = self.blocks.borrow().get(at).copied();
        if let Some((first, len)) = known.filter(|&(first, len)| node - first < len) {
            return Unit::Nodes { first, len };
        }
        let tail = self.topology.block_tail(node).unwrap_or(node);
        if self.topology.op(tail).info().arity != Arity::Block {
            return Unit::Nodes { first: node, len: 1 };
        }
        let record = self.topology.operands[tail as usize][0];
        let header = crate::graph::BlockHeader::read(self.topology.extra, record);
        self.blocks.borrow_mut().insert(at, (header.first, header.n_out));
        Unit::Nodes { first: header.first, len: header.n_out }
    }

    /// The units of a range of operands.
    fn units_of(&self, run: OperandRun, out: &mut Vec<Unit>) {
        if let Some((slot, start, len)) = run.parameters() {
            out.push(Unit::Parameters { slot, start, len });
        } else if let Some(range) = run.nodes() {
            let (first, len) = (range.first().index(), range.len() as u32);
            let leaves = |node| matches!(self.topology.op(node), Op::Leaf | Op::Constant);
            if len > LONGEST_APART && (first..first + len).all(leaves) {
                out.push(Unit::Nodes { first, len });
            } else {
                out.extend(range.nodes().map(|node| self.unit_of(node.index())));
            }
        }
    }

    /// Walks down from the roots, highest node first, so that units near the roots are shown.
    fn units(&self, options: &Options, work: &mut Work) -> Result<(Units, Vec<Unit>)> {
        let mut shown = Units::new();
        let mut seen: HashSet<Unit> = self.roots.iter().map(|&root| self.unit_of(root)).collect();
        let mut waiting: BinaryHeap<Unit> = seen.iter().copied().collect();
        while shown.len() < options.max_parts.max(1)
            && let Some(unit) = waiting.pop()
        {
            let mut read = Vec::new();
            if let Unit::Nodes { first, len } = unit {
                let tail = first + len - 1;
                let op = self.topology.op(tail);
                // A node that reads one parameter shows it itself.
                if (len == 1 || op.info().arity == Arity::Block) && !matches!(op, Op::Param | Op::FrozenParam) {
                    self.topology.for_each_operand_of_any(tail, &mut |run| self.units_of(run, &mut read));
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
        set.reset(self.topology.ops.len())?;
        self.roots.iter().for_each(|&root| set.insert(root));
        self.topology.mark_reachable(&mut set)?;
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
        let op = self.topology.op(tail);
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
            let [place, slot] = self.topology.operands[tail as usize];
            (role == Role::Parameter).then(|| self.parameter_name(slot as usize, place as usize)).flatten()
        });
        let [value, grad] = self.numbers.of_nodes(first, len);
        PictureBox {
            node: Some(first),
            n: len as usize,
            label: label.unwrap_or_default(),
            op: op.name(),
            formula: op.info().doc.trim(),
            value,
            grad,
            nanoseconds: None,
            role,
        }
    }

    /// The first label among these nodes, if there are labels.
    fn label_within(&self, first: u32, last: u32) -> Option<String> {
        let (node, label) = self.labels.get(self.labels.partition_point(|&(node, _)| node < first))?;
        (*node <= last).then(|| label.to_string())
    }

    /// The name of the tensor that contains a parameter.
    fn parameter_name(&self, slot: usize, place: usize) -> Option<String> {
        let store = *self.stores.get(slot)?;
        self.names.iter().find(|names| names.store == store)?.at(place).map(str::to_string)
    }

    fn parameters(&self, slot: usize, start: usize, len: usize) -> PictureBox {
        let name = self.parameter_name(slot, start);
        let [value, grad] = self.numbers.of_parameters(self.stores[slot], start, len);
        PictureBox {
            node: None,
            n: len,
            label: name.unwrap_or_else(|| format!("parameters {start}..{}", start + len)),
            op: "parameters",
            formula: "trainable numbers; their gradients accumulate there",
            value,
            grad,
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
