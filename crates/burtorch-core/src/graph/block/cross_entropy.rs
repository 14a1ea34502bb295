//! Softmax cross-entropy as a block: the probabilities, then the loss.
//!
//! Promises that each lane is compared with its own class. Knows nothing of where logits come from.

use super::super::structure::{Check, Checked};
use super::super::{Graph, NodeId, OperandRun, Range};
use super::{BlockHeader, Field, Layout, nodes};
use crate::error::{Error, Result};
use crate::ops::Op;
use crate::scalar::Scalar;

/// What a softmax cross-entropy compares with.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// One class for all lanes, or one per lane.
    Classes(&'a [u32]),
    /// Probabilities (or weights), one node per class; they receive no gradient.
    Probabilities(Range),
}

/// Softmax cross-entropy: outputs are the probabilities, then the loss.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CrossEntropyRecord {
    pub(crate) header: BlockHeader,
    pub(crate) logits: Range,
    /// Whether the target is a range of probabilities (at `target`) or classes (from `target` in the operand lists).
    pub(crate) by_probabilities: bool,
    pub(crate) target: u32,
}

impl CrossEntropyRecord {
    pub(crate) fn read(extra: &[u32], at: u32) -> Self {
        let r = &extra[at as usize..at as usize + 5];
        let header = BlockHeader::read(extra, at);
        let logits = Range { start: r[2], len: header.n_out - 1 };
        let by_probabilities = r[3] == 0;
        CrossEntropyRecord { header, logits, by_probabilities, target: if by_probabilities { r[4] } else { at + 4 } }
    }

    pub(super) fn for_each_operand(&self, mut f: impl FnMut(OperandRun)) {
        f(nodes(self.logits));
        if self.by_probabilities {
            f(nodes(Range { start: self.target, len: self.logits.len }));
        }
    }

    /// See [`Check::block`].
    pub(super) fn check(record: &[u32], check: &mut Check<'_>) -> Checked {
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

    pub(super) fn layout(extra: &[u32], at: u32, lanes: usize) -> Layout {
        match extra[at as usize + 3] {
            0 => Layout { len: 5, fields: &[Field::Node(0), Field::Node(2), Field::Node(4)] },
            _ => Layout { len: 4 + lanes, fields: &[Field::Node(0), Field::Node(2)] },
        }
    }

    /// The class of each lane.
    pub(crate) fn classes<'a>(&self, extra: &'a [u32], lanes: usize) -> &'a [u32] {
        &extra[self.target as usize..self.target as usize + lanes]
    }
}

impl<S: Scalar> Graph<'_, S> {
    /// Appends the softmax cross-entropy of `logits`: `log(sum exp z) - z[class]`, or
    /// `sum_k t_k (log(sum exp z) - z_k)` for probabilities. Returns the loss; the probabilities are the nodes before it.
    pub fn softmax_cross_entropy(&mut self, logits: Range, target: Target<'_>) -> Result<NodeId> {
        self.check_range(logits)?;
        if logits.is_empty() {
            return Err(Error::EmptyReduction { op: Op::CrossEntropy.name() });
        }
        match target {
            Target::Classes(classes) => {
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
            Target::Probabilities(range) => {
                self.check_range(range)?;
                if range.len != logits.len {
                    return Err(Error::LengthMismatch {
                        op: "softmax_cross_entropy (logits and probabilities)",
                        left: logits.len(),
                        right: range.len(),
                    });
                }
            }
        }
        let loss = self.atomically(|graph| graph.push_cross_entropy(logits, target))?;
        Ok(NodeId(loss.start + loss.len - 1))
    }

    fn push_cross_entropy(&mut self, logits: Range, target: Target<'_>) -> Result<Range> {
        let n = self.room_for(logits.len() + 1)?;
        self.reserve_scratch(logits.len())?;
        let first = self.columns.len();
        let at = self.extra.len() as u32;
        let outputs = match target {
            Target::Probabilities(range) => {
                self.push_block(Op::CrossEntropy, n, &[first, n, logits.start, 0, range.start])?
            }
            Target::Classes(classes) => {
                self.extra.reserve(4 + S::LANES)?;
                let outputs = self.push_block(Op::CrossEntropy, n, &[first, n, logits.start, 1])?;
                for lane in 0..S::LANES {
                    self.extra.push_reserved(classes[lane % classes.len()]);
                }
                outputs
            }
        };
        self.evaluate_cross_entropy(CrossEntropyRecord::read(self.extra.as_slice(), at));
        Ok(self.finish_block(outputs))
    }

    pub(crate) fn evaluate_cross_entropy(&mut self, record: CrossEntropyRecord) {
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
