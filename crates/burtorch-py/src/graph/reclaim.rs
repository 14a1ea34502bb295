//! Reclaim: when nodes that no handle can reach are removed, and how handles, marks and names follow.
//!
//! Promises: amortised constant time per node built, however many handles are held: nodes and handles that have survived two
//! reclaims are old, and later ones examine only younger nodes. (Two, because temporaries of an unfinished operation
//! survive one.) An operand is older than its node, so no young node is missed; a dead old node stays until all nodes
//! are examined, which happens when the old have doubled. Called at the entry of an operation, before it reads operands.

use burtorch_core::erased::ErasedGraph;
use burtorch_core::graph::UNEVALUATED;
use burtorch_core::{Mark, NodeId, Result};

use crate::graph::by_node::ByNode;
use crate::graph::cell::{Cell, Marks};
use crate::graph::handle::{Handle, LiveHandles};
use crate::graph::objects::Objects;

/// The smallest number of nodes built between two reclaims: they fit in the first-level cache.
const NURSERY: u32 = 1024;
/// Below this number of old nodes, the old are not examined.
const FEW_OLD: u32 = 1024;
/// Below this number of Parameters, those read only by dead nodes stay.
const FEW_PARAMETERS: usize = 8;

/// The generations of a graph.
#[derive(Debug)]
pub struct Generations {
    /// Nodes below are old, and so are their handles, except new ones. `None` before the first reclaim.
    old: Option<Mark>,
    /// Nodes below have survived a reclaim.
    survived: Option<Mark>,
    /// Examine all nodes if more than this are old.
    full_above: u32,
    /// Examine all nodes if they read more Parameters than this.
    parameters_above: usize,
    /// Whether reclaim is automatic.
    by_itself: bool,
    /// Nodes reclaimed so far.
    n_reclaimed: u64,
}

impl Generations {
    /// The generations of a new graph.
    pub fn new(by_itself: bool) -> Self {
        Generations {
            old: None,
            survived: None,
            full_above: FEW_OLD,
            parameters_above: FEW_PARAMETERS,
            by_itself,
            n_reclaimed: 0,
        }
    }

    /// The number of nodes above which a new graph reclaims.
    pub fn first_limit(&self) -> u32 {
        if self.by_itself { NURSERY } else { u32::MAX }
    }

    /// Whether reclaim is automatic.
    pub fn by_itself(&self) -> bool {
        self.by_itself
    }

    /// Nodes reclaimed so far.
    pub fn n_reclaimed(&self) -> u64 {
        self.n_reclaimed
    }
}

impl Cell {
    /// Removes nodes that no handle reaches, examining all nodes. Returns the number of removed nodes.
    pub fn collect(&mut self) -> Result<usize> {
        self.generations.old = None;
        self.reclaim()
    }

    /// Removes nodes that no handle reaches, if there are enough nodes to examine.
    #[inline]
    pub fn collect_if_due(&mut self) -> Result<()> {
        if self.graph.len() as u32 > self.limit() {
            self.reclaim()?;
        }
        Ok(())
    }

    /// Makes the next operation examine all nodes if the number of Parameters that they read has doubled: dead models are
    /// large, and few nodes may have read them.
    pub fn collect_soon_if_many_parameters(&mut self) {
        let (n, above) = (self.parameters.len(), &mut self.generations.parameters_above);
        if !self.generations.by_itself {
            return;
        }
        let is_due = n > *above;
        *above = if is_due { 2 * n } else { (*above).min(FEW_PARAMETERS.max(2 * n)) };
        if is_due {
            self.generations.old = None;
            self.set_limit(0);
        }
    }

    /// Removes young nodes that no handle reaches; or dead nodes of any age, if no mark separates them or many nodes
    /// are old. Sets the time of the next reclaim.
    #[cold]
    #[inline(never)]
    fn reclaim(&mut self) -> Result<usize> {
        if self.graph.is_fixed() {
            return Ok(0);
        }
        let Generations { old, survived, full_above, by_itself, .. } = self.generations;
        let n_before = self.graph.len();
        let graph = &mut *self.graph;
        // Invalid marks do not separate nodes.
        let holds = |mark: &Mark| graph.check_mark(*mark).is_ok();
        let lines = old.filter(|old| old.len() as u32 <= full_above && holds(old)).zip(survived.filter(holds));
        let (line, survived) = lines.unwrap_or_else(|| (graph.start(), graph.start()));
        let (n_left, survived) =
            compact(graph, line, survived, &self.handles, &mut self.marks, &mut self.serials, &mut self.objects)?;
        let (end, n_old) = (graph.mark(), line.len());
        self.generations.old = Some(if line.is_empty() { end } else { survived });
        self.generations.survived = Some(end);
        self.generations.n_reclaimed += (n_before - n_left) as u64;
        if n_old == 0 {
            self.handles.grow_old();
            self.generations.full_above = FEW_OLD.max(u32::try_from(2 * n_left).unwrap_or(u32::MAX));
        } else {
            self.handles.grow_older();
        }
        if by_itself {
            // If many nodes survive, later ones will too, so reclaims become rarer, within the limits of memory.
            let n_more = (2 * (n_left - n_old)).min(n_left / 2).max(self.marks.len()).max(NURSERY as usize);
            self.set_limit(u32::try_from(n_left + n_more).unwrap_or(u32::MAX));
        }
        Ok(n_before - n_left)
    }

    /// Removes identities of nodes removed by a rewind. Costs nothing for the remaining ones.
    pub fn after_rewind(&mut self) {
        let len = self.graph.len() as u32;
        self.serials.truncate(len);
        self.objects.cut(len);
        let Generations { old, survived, .. } = &mut self.generations;
        for line in [old, survived] {
            if line.is_some_and(|line| line.len() as u32 > len) {
                *line = Some(self.graph.mark());
            }
        }
    }
}

/// Compacts the graph above a mark, which may be its start, and renumbers everything that refers to nodes there.
/// Returns the number of remaining nodes, and the new position of `survived`.
fn compact(
    graph: &mut dyn ErasedGraph,
    line: Mark,
    survived: Mark,
    handles: &LiveHandles,
    marks: &mut Marks,
    serials: &mut ByNode<u64>,
    objects: &mut Objects,
) -> Result<(usize, Mark)> {
    let each = |f: &mut dyn FnMut(&mut Handle)| match line.is_empty() {
        true => handles.for_each(f),
        false => handles.for_each_not_old(f),
    };
    each(&mut |handle| {
        if graph.check(NodeId::from_index(handle.last()), handle.epoch & !UNEVALUATED).is_err() {
            handle.kill();
        }
    });
    marks.retain(|_, mark| graph.check_mark(*mark).is_ok());
    let (numbers, mut places): (Vec<u64>, Vec<Mark>) =
        marks.iter().filter(|(_, mark)| mark.len() > line.len()).map(|(&number, &mark)| (number, mark)).unzip();
    places.push(survived);
    let mut young = Some((serials.young(line.len() as u32)?, objects.by_node().young(line.len() as u32)?));
    let n_left = graph.compact_above(
        line,
        &|is_live| {
            each(&mut |handle| {
                if handle.start != u32::MAX {
                    is_live(handle.range());
                }
            });
        },
        &mut places,
        &mut |new| {
            each(&mut |handle| {
                if handle.start != u32::MAX {
                    handle.start = new.index(handle.start);
                    handle.epoch = new.epoch() | handle.epoch & UNEVALUATED;
                }
            });
            if let Some((serials_young, objects_young)) = young.take() {
                serials.rename(serials_young, |node| new.kept(node));
                objects.by_node().rename(objects_young, |node| new.kept(node));
            }
        },
    )?;
    let survived = places.pop().unwrap_or(line);
    // All of them exist, so this needs no memory.
    for (number, place) in numbers.iter().zip(places) {
        marks.insert(*number, place);
    }
    Ok((n_left, survived))
}
