//! The evaluation time of each box on this machine, for interactive pages.

use std::time::Instant;

use super::picture::Picture;
use crate::error::Result;
use crate::graph::Graph;
use crate::interrupt::Work;
use crate::ops::{Arity, Op};
use crate::params::Parameters;
use crate::scalar::Scalar;

/// A box is evaluated for at least this time; `MOST` is the largest number of evaluations.
const NANOSECONDS: u128 = 20_000;
const MOST: u32 = 4096;

impl<S: Scalar> Graph<'_, S> {
    /// Measures the evaluation time of each box by repeated evaluation for 20 microseconds; values are restored. Boxes
    /// without a computation, and boxes whose parameters are not given, have no time. Interruptible.
    pub fn time_parts(&mut self, picture: &mut Picture, params: &[&Parameters<'_, S::Elem>]) -> Result<()> {
        if self.stores().iter().any(|store| !params.iter().any(|p| p.id() == *store)) {
            return Ok(());
        }
        let mut work = Work::default();
        for part in &mut picture.parts {
            work.add(NANOSECONDS as usize)?;
            let Some(first) = part.node.filter(|&node| (node as usize) < self.len()) else { continue };
            let nodes = first as usize..first as usize + part.n;
            let tail = (nodes.end - 1) as u32;
            let arity = self.columns.op(tail).info().arity;
            if matches!(self.columns.op(tail), Op::Part) || arity == Arity::Nullary {
                continue;
            }
            let kept = self.values()[nodes.clone()].to_vec();
            part.nanoseconds = Some(self.time_node(tail, params));
            self.values_mut()[nodes].copy_from_slice(&kept);
        }
        Ok(())
    }

    fn time_node(&mut self, node: u32, params: &[&Parameters<'_, S::Elem>]) -> f64 {
        let mut repeats = 1;
        loop {
            let start = Instant::now();
            self.evaluate_often(node, repeats, params);
            let elapsed = start.elapsed().as_nanos();
            if elapsed >= NANOSECONDS || repeats >= MOST {
                return elapsed as f64 / f64::from(repeats);
            }
            repeats *= 4;
        }
    }
}
