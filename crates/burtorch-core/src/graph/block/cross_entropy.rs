//! Softmax cross-entropy as a block: the probabilities, then the loss.
//!
//! Promises that each lane is compared with its own class. Does not know the source of the logits.

use super::super::check::{Check, Checked};
use super::super::operands::{OperandRun, StoreValues};
use super::super::sweep::Sweep;
use super::super::{Graph, NodeId, Range};
use super::append::Fill;
use super::op::{BlockOp, Loaded, Wanted};
use super::record::{BlockHeader, Field, Layout, nodes};
use crate::error::{Error, Result};
use crate::kernels::BlockMath;
use crate::ops::Op;

/// The target of a softmax cross-entropy.
#[derive(Clone, Copy, Debug)]
pub enum CrossEntropyTarget<'a> {
    /// One class for all lanes, or one per lane.
    Classes(&'a [u32]),
    /// Probabilities (or weights), one node per class; they receive no gradient.
    Probabilities(Range),
}

/// Softmax cross-entropy: outputs are the probabilities, then the loss.
#[derive(Clone, Copy, Debug)]
struct CrossEntropyRecord {
    header: BlockHeader,
    logits: Range,
    /// Whether the target is a range of probabilities (at `target`) or a list of classes (from `target` in the operand
    /// lists).
    by_probabilities: bool,
    target: u32,
}

impl CrossEntropyRecord {
    fn read(extra: &[u32], at: u32) -> Self {
        let r = &extra[at as usize..at as usize + 5];
        let header = BlockHeader::read(extra, at);
        let logits = Range { start: r[2], len: header.n_out - 1 };
        let by_probabilities = r[3] == 0;
        CrossEntropyRecord { header, logits, by_probabilities, target: if by_probabilities { r[4] } else { at + 4 } }
    }

    /// The class of each lane.
    fn classes<'a>(&self, extra: &'a [u32], lanes: usize) -> &'a [u32] {
        &extra[self.target as usize..self.target as usize + lanes]
    }
}

pub(super) struct CrossEntropy;

impl<S: BlockMath> BlockOp<S> for CrossEntropy {
    const OP: Op = Op::CrossEntropy;

    /// Operands: the logits, and the probabilities if any.
    fn shape(operands: &[usize], _own: &[usize]) -> Result<usize> {
        match *operands {
            [0, ..] | [] => Err(Error::EmptyReduction { op: Op::CrossEntropy.name() }),
            [left, right] if left != right => {
                Err(Error::LengthMismatch { op: "softmax_cross_entropy (logits and probabilities)", left, right })
            }
            [n, ..] => Ok(n + 1),
        }
    }

    fn layout(extra: &[u32], at: u32, lanes: usize) -> Layout {
        match extra[at as usize + 3] {
            0 => Layout { len: 5, fields: &[Field::Node(0), Field::Node(2), Field::Node(4)] },
            _ => Layout { len: 4 + lanes, fields: &[Field::Node(0), Field::Node(2)] },
        }
    }

    fn for_each_operand(extra: &[u32], at: u32, f: &mut dyn FnMut(OperandRun)) {
        let record = CrossEntropyRecord::read(extra, at);
        f(nodes(record.logits));
        if record.by_probabilities {
            f(nodes(Range { start: record.target, len: record.logits.len }));
        }
    }

    fn cost(extra: &[u32], at: u32) -> u64 {
        5 * u64::from(extra[at as usize + 1])
    }

    fn evaluate(graph: &mut Graph<'_, S>, at: u32, _stores: &StoreValues<'_, S::Elem>) {
        graph.evaluate_cross_entropy(CrossEntropyRecord::read(graph.extra.as_slice(), at));
    }

    fn pull(sweep: &mut Sweep<'_, '_, S>, at: u32, top: u32, wanted: Wanted) {
        if wanted.operand(0) {
            sweep.cross_entropy(CrossEntropyRecord::read(sweep.extra, at), top);
        }
    }

    fn check(loaded: Loaded<'_>, check: &mut Check<'_>) -> Checked {
        let record = loaded.record;
        let [first, n_out, logits, how, ..] = *record else {
            return Err("has too short a record".into());
        };
        let n = n_out - 1;
        check.run(logits, n, first)?;
        check.temporaries(n as usize);
        match how {
            0 => check.run(record[4], n, first),
            1 if record[4..].iter().all(|&class| class < n) => Ok(()),
            1 => Err(format!("has a class above {}", n - 1)),
            _ => Err(format!("has targets of kind {how}, expected 0 or 1")),
        }
    }
}

impl<S: BlockMath> Graph<'_, S> {
    /// Appends the softmax cross-entropy of `logits`: `log(sum exp z) - z[class]`, or
    /// `sum_k t_k (log(sum exp z) - z_k)` for probabilities. Returns the loss; the probabilities are the nodes before it.
    pub fn softmax_cross_entropy(&mut self, logits: Range, target: CrossEntropyTarget<'_>) -> Result<NodeId> {
        self.check_range(logits)?;
        <CrossEntropy as BlockOp<S>>::shape(&[logits.len()], &[])?;
        match target {
            CrossEntropyTarget::Classes(classes) => {
                if classes.len() != 1 && classes.len() != S::LANES {
                    return Err(Error::LengthMismatch {
                        op: "softmax_cross_entropy (lanes and classes)",
                        left: S::LANES,
                        right: classes.len(),
                    });
                }
                for &class in classes {
                    if class >= logits.len {
                        return Err(Error::OutOfRange {
                            what: "class",
                            found: u64::from(class),
                            max: u64::from(logits.len) - 1,
                        });
                    }
                }
            }
            CrossEntropyTarget::Probabilities(range) => {
                self.check_range(range)?;
                <CrossEntropy as BlockOp<S>>::shape(&[logits.len(), range.len()], &[])?;
            }
        }
        let loss = self.atomically(|graph| graph.push_cross_entropy(logits, target))?;
        Ok(NodeId(loss.start + loss.len - 1))
    }

    fn push_cross_entropy(&mut self, logits: Range, target: CrossEntropyTarget<'_>) -> Result<Range> {
        let n = self.room_for(logits.len() + 1)?;
        self.reserve_scratch(logits.len())?;
        let first = self.columns.len();
        let at = self.extra.len() as u32;
        let outputs = match target {
            CrossEntropyTarget::Probabilities(range) => {
                self.push_block(Op::CrossEntropy, n, &[first, n, logits.start, 0, range.start], Fill::ZEROED)?
            }
            CrossEntropyTarget::Classes(classes) => {
                self.extra.reserve(4 + S::LANES)?;
                let outputs = self.push_block(Op::CrossEntropy, n, &[first, n, logits.start, 1], Fill::ZEROED)?;
                for lane in 0..S::LANES {
                    self.extra.push_reserved(classes[lane % classes.len()]);
                }
                outputs
            }
        };
        self.evaluate_cross_entropy(CrossEntropyRecord::read(self.extra.as_slice(), at));
        Ok(self.finish_block(outputs))
    }

    fn evaluate_cross_entropy(&mut self, record: CrossEntropyRecord) {
        let (nodes, outputs) = self.columns.values_mut().split_at_mut(record.header.first as usize);
        let n = record.logits.len();
        let logits = &nodes[record.logits.indices()];
        let (probabilities, loss) = outputs[..n + 1].split_at_mut(n);
        loss[0] = if self.skips_losses {
            S::probabilities(logits, probabilities);
            S::lit(f64::NAN)
        } else if record.by_probabilities {
            let targets = &nodes[record.target as usize..record.target as usize + n];
            S::soft_cross_entropy(logits, targets, probabilities)
        } else {
            S::cross_entropy(logits, record.classes(self.extra.as_slice(), S::LANES), probabilities)
        };
    }
}

impl<S: BlockMath> Sweep<'_, '_, S> {
    fn cross_entropy(&mut self, record: CrossEntropyRecord, top: u32) {
        let n = record.logits.len();
        let first = record.header.first;
        let probabilities = &self.recorded.values[first as usize..first as usize + n];
        let (below, outputs) = self.adjoints.split_at_mut((first - self.base) as usize);
        let logits = &mut below[(record.logits.start - self.base) as usize..][..n];
        self.low = self.low.min(record.logits.start);
        if top == first + n as u32 {
            let g = outputs[n];
            if record.by_probabilities {
                let targets = &self.recorded.values[record.target as usize..record.target as usize + n];
                S::soft_cross_entropy_pull(g, probabilities, targets, logits);
            } else {
                S::cross_entropy_pull(g, probabilities, record.classes(self.extra, S::LANES), logits);
            }
        }
        let on_probabilities = &outputs[..n.min((top + 1 - first) as usize)];
        if on_probabilities.iter().any(|a| !a.is_unreached()) {
            let reached = || on_probabilities.iter().zip(probabilities).filter(|(a, _)| !a.is_unreached());
            let weighted = reached().fold(S::lit(0.0), |sum, (&a, &p)| sum + a * p);
            for (k, (logit, &p)) in logits.iter_mut().zip(probabilities).enumerate() {
                let own = on_probabilities.get(k).filter(|a| !a.is_unreached()).copied().unwrap_or(S::lit(0.0));
                *logit = *logit + (p * (own - weighted) + S::lit(0.0));
            }
        }
    }
}
