//! Gradients of many single samples of a callable: by one program for some of them at a time.
//!
//! Promises: the numbers of a batch of one each; only while the parameters do not change between samples. Memory is bounded.

use burtorch_core::Error;
use pyo3::prelude::*;

use super::callable::CallableEngine;
use super::kernel_parameters::in_params;
use super::parts::take_row;
use super::traced::{Block, need_only};
use crate::compress::AnyLargest;
use crate::convert::buffer::CallerMemory;
use crate::convert::errors::IntoPython;
use crate::params::zeros;
use crate::trace::batches::Of;

/// Numbers of the gradients of a block, at most.
const NUMBERS: usize = 1 << 17;
/// Samples of a block, at most.
const SAMPLES: usize = 256;

impl CallableEngine {
    /// The loss of sample `k`, with its gradient, if the callable has a program for several samples.
    pub(super) fn row(&mut self, py: Python<'_>, k: usize, out: Option<&mut CallerMemory>) -> PyResult<Option<f64>> {
        let params = self.params.clone_ref(py);
        let Some((block, at)) = self.block_with(py, k)? else { return Ok(None) };
        in_params(&params, py, |params| params.take_row(&block.gradients, at, out))?;
        Ok(Some(block.losses[at]))
    }

    /// The same with the largest numbers of its gradient.
    pub(super) fn largest_of_row(
        &mut self,
        py: Python<'_>,
        k: usize,
        largest: &mut AnyLargest,
    ) -> PyResult<Option<f64>> {
        let d = self.n_parameters(py)?;
        let Some((block, at)) = self.block_with(py, k)? else { return Ok(None) };
        take_row(largest, &block.gradients, at * d..(at + 1) * d).or_raise(py)?;
        Ok(Some(block.losses[at]))
    }

    /// The block with sample `k`, and its place there, if the callable has a program for several samples.
    fn block_with(&mut self, py: Python<'_>, k: usize) -> PyResult<Option<(&Block, usize)>> {
        let has = |block: &Block| (block.first..block.first + block.losses.len()).contains(&k);
        if !self.traced.block.as_ref().is_some_and(has) && !self.compute_block(py, k)? {
            return Ok(None);
        }
        Ok(self.traced.block.as_ref().map(|block| (block, k - block.first)))
    }

    /// Computes the gradients of samples from `k` on; returns whether that is possible.
    fn compute_block(&mut self, py: Python<'_>, k: usize) -> PyResult<bool> {
        let (n, d) = (self.traced.n_given(py).unwrap_or(0), self.n_parameters(py)?);
        let count = (NUMBERS / d.max(1)).min(SAMPLES).min(n.saturating_sub(k));
        if count < 2 || self.traced.has_no_blocks {
            return Ok(false);
        }
        let Some(all) = self.traced.replace_by(py, k..k + count)? else { return Ok(false) };
        let done = self.rows_of_block(py, k, count, d);
        self.traced.put_back(all);
        match done {
            Ok(Some(block)) => self.traced.block = Some(block),
            other => {
                self.traced.forget_failure();
                self.traced.has_no_blocks = true;
                other?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn rows_of_block(&mut self, py: Python<'_>, first: usize, count: usize, d: usize) -> PyResult<Option<Block>> {
        let memory = zeros(py, self.params.get().dtype_of(), count * d)?;
        let mut gradients = self.memory_of_gradient(&memory)?;
        let params = &self.params;
        let losses = self.traced.attempt(py, Of::Gradients, &mut |path| {
            need_only(params, path, py)?;
            in_params(params, py, |params| params.write_rows(path, &mut gradients))
        })?;
        let Some(losses) = losses else { return Ok(None) };
        if losses.len() != count {
            return Err(Error::LengthMismatch { op: "losses", left: count, right: losses.len() }).or_raise(py);
        }
        Ok(Some(Block { first, losses, gradients }))
    }
}
