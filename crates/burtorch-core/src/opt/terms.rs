//! Sums of functions, one for each sample: the objectives of problems.
//!
//! A [`FiniteSum`] is f(x) = (1/n) sum f_i(x), with f_i a term of the data plus a regulariser. Promises: gradients of chosen
//! samples, or their differences at two points, in one pass over the data; the same bits for any number of threads, because
//! samples are cut into chunks by their number and d alone. Does not know methods.

use super::rows::Rows;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::kernels;
use crate::memory;
use crate::sync::{self, Mutex};

/// Chosen samples and their weights: sums take `scale * weights[k]` times the k-th.
#[derive(Clone, Copy, Debug)]
pub struct Samples<'a> {
    /// Which ones; one may come several times.
    pub indices: &'a [u32],
    /// A weight for each, or 1.
    pub weights: Option<&'a [f64]>,
    /// A factor of all.
    pub scale: f64,
}

impl<'a> Samples<'a> {
    /// The mean over `indices`.
    pub fn mean(indices: &'a [u32]) -> Self {
        Samples { indices, weights: None, scale: 1.0 / indices.len() as f64 }
    }

    /// Each index with its factor.
    pub fn weighted(&self) -> impl Iterator<Item = (usize, f64)> + use<'a> {
        let (weights, scale) = (self.weights, self.scale);
        self.indices.iter().enumerate().map(move |(k, &i)| (i as usize, weights.map_or(scale, |w| scale * w[k])))
    }

    /// The sum of all factors.
    pub fn total(&self) -> f64 {
        match self.weights {
            Some(weights) => self.scale * weights.iter().sum::<f64>(),
            None => self.scale * self.indices.len() as f64,
        }
    }

    /// The same samples, `size` at a time; with each group the indices from its first on.
    pub fn groups(self, size: usize) -> impl Iterator<Item = (Samples<'a>, &'a [u32])> {
        let n = self.indices.len();
        (0..n).step_by(size).map(move |k| (self.part(k..n.min(k + size)), &self.indices[k..]))
    }

    fn part(&self, at: std::ops::Range<usize>) -> Self {
        Samples { indices: &self.indices[at.clone()], weights: self.weights.map(|w| &w[at]), scale: self.scale }
    }
}

/// The terms of the data, without a regulariser. Calls may come from several threads at once.
pub trait Terms: Send + Sync {
    /// The number of samples.
    fn n(&self) -> usize;
    /// The dimension of a point.
    fn d(&self) -> usize;
    /// The feature rows of samples, if terms have them.
    fn rows(&self) -> Option<&Rows> {
        None
    }
    /// The labels of samples, or their classes, if terms have them.
    fn labels(&self) -> Option<Vec<f64>> {
        None
    }
    /// Prefetches the data of these samples, which are computed next.
    fn ask_for_next(&self, _samples: &[u32]) {}
    /// The weighted sum of the samples' values at `x`.
    fn loss(&self, x: &[f64], samples: Samples<'_>, scratch: &mut Vec<f64>) -> Result<f64>;
    /// Adds the weighted sum of the samples' gradients at `x`, minus those at `minus`, to `out`.
    fn grad(
        &self,
        x: &[f64],
        minus: Option<&[f64]>,
        samples: Samples<'_>,
        scratch: &mut Vec<f64>,
        out: &mut [f64],
    ) -> Result<()>;
}

/// The regulariser of each term: `l2/2 |x|^2 + nonconvex * sum x_j^2/(1 + x_j^2)`; the latter adds 2 * nonconvex to a
/// term's smoothness constant.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Regulariser {
    /// Factor of half the squared norm.
    pub l2: f64,
    /// Factor of the non-convex sum.
    pub nonconvex: f64,
}

impl Regulariser {
    pub(super) fn loss(&self, x: &[f64]) -> f64 {
        let squares = || x.iter().map(|x| x * x);
        // A square that overflows is infinite, and a factor of 0 times it would be NaN.
        let l2 = if self.l2 > 0.0 { 0.5 * self.l2 * squares().sum::<f64>() } else { 0.0 };
        let dent = |s: f64| if s == f64::INFINITY { 1.0 } else { s / (1.0 + s) };
        let nonconvex = if self.nonconvex > 0.0 { self.nonconvex * squares().map(dent).sum::<f64>() } else { 0.0 };
        l2 + nonconvex
    }

    #[inline]
    fn slope(&self, x: f64) -> f64 {
        let q = 1.0 + x * x;
        let square = q * q;
        let dent = 2.0 * self.nonconvex * x;
        self.l2 * x + if square != f64::INFINITY { dent / square } else { 2.0 * self.nonconvex * (x / q / q) }
    }

    pub(super) fn add_grad(&self, x: &[f64], minus: Option<&[f64]>, scale: f64, out: &mut [f64]) {
        if self.nonconvex == 0.0 {
            if self.l2 > 0.0 {
                kernels::axpy(scale * self.l2, x, out);
                minus.iter().for_each(|y| kernels::axpy(-scale * self.l2, y, out));
            }
            return;
        }
        match minus {
            None => out.iter_mut().zip(x).for_each(|(g, &x)| *g += scale * self.slope(x)),
            Some(y) => {
                out.iter_mut().zip(x).zip(y).for_each(|((g, &x), &y)| *g += scale * (self.slope(x) - self.slope(y)))
            }
        }
    }
}

/// Memory of gradients, reused by the next.
#[derive(Debug, Default)]
pub struct Workspace {
    parts: Vec<Mutex<Part>>,
}

#[derive(Debug, Default)]
struct Part {
    grad: Vec<f64>,
    loss: f64,
    scratch: Vec<f64>,
    failed: Option<Error>,
}

/// The smallest number of samples per chunk.
const CHUNK: usize = 512;
/// The largest number of chunks of a sum, and of entries of all their results.
const CHUNKS: usize = 64;
const RESULTS: usize = 1 << 22;

const WHAT: &str = "a gradient's chunks";

/// f(x) = (1/n) sum f_i(x).
pub struct FiniteSum {
    pub(super) terms: Box<dyn Terms>,
    regulariser: Regulariser,
    all: Vec<u32>,
    /// Whether this is a joined sum.
    pub(super) is_joined: bool,
}

impl std::fmt::Debug for FiniteSum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FiniteSum(n={}, d={}, {:?})", self.n(), self.d(), self.regulariser)
    }
}

impl FiniteSum {
    /// Terms, each with the regulariser, whose factors are finite and nonnegative.
    pub fn new(terms: Box<dyn Terms>, regulariser: Regulariser) -> Result<Self> {
        for (what, factor) in [("l2", regulariser.l2), ("nonconvex", regulariser.nonconvex)] {
            if !(factor >= 0.0 && factor.is_finite()) {
                let expected = "finite and at least 0".into();
                return Err(Error::BadArgument { what, expected, found: factor.to_string() });
            }
        }
        let n =
            u32::try_from(terms.n()).ok().filter(|&n| n > 0 && terms.d() > 0).ok_or_else(|| Error::BadArgument {
                what: "a finite sum",
                expected: "of at least one sample and one variable, and fewer than 2^32 samples".into(),
                found: format!("{} samples of {} variables", terms.n(), terms.d()),
            })?;
        let mut all = memory::list_for(n as usize, "a list of all samples")?;
        all.extend(0..n);
        Ok(FiniteSum { terms, regulariser, all, is_joined: false })
    }

    /// Samples.
    pub fn n(&self) -> usize {
        self.terms.n()
    }

    /// Numbers of a point.
    pub fn d(&self) -> usize {
        self.terms.d()
    }

    /// The feature rows of samples, if terms have them.
    pub fn rows(&self) -> Option<&Rows> {
        self.terms.rows()
    }

    /// The labels of samples, or their classes, if terms have them.
    pub fn labels(&self) -> Option<Vec<f64>> {
        self.terms.labels()
    }

    /// Every sample once.
    pub fn all(&self) -> &[u32] {
        &self.all
    }

    /// The regulariser of each term.
    pub fn regulariser(&self) -> Regulariser {
        self.regulariser
    }

    /// An error unless every index is a sample's.
    pub fn check(&self, indices: &[u32]) -> Result<()> {
        let max = self.n() as u64 - 1;
        match indices.iter().find(|&&i| u64::from(i) > max) {
            Some(&i) => Err(Error::OutOfRange { what: "sample", found: i.into(), max }),
            None => Ok(()),
        }
    }

    fn chunks(&self, n_samples: usize) -> usize {
        n_samples.div_ceil(CHUNK).clamp(1, CHUNKS.min((RESULTS / self.d()).max(1)))
    }

    /// Runs `work` on every chunk of the samples; the results stay in the parts.
    fn for_chunks(
        &self,
        samples: Samples<'_>,
        threads: usize,
        workspace: &mut Workspace,
        work: &(dyn Fn(Samples<'_>, &mut Part) -> Result<()> + Sync),
    ) -> Result<usize> {
        let n_chunks = self.chunks(samples.indices.len());
        while workspace.parts.len() < n_chunks {
            memory::reserve_in(&mut workspace.parts, 1, WHAT)?;
            workspace.parts.push(Mutex::new(Part::default()));
        }
        let len = samples.indices.len();
        let parts = &workspace.parts;
        let cut = |k: usize| k * len / n_chunks;
        sync::run(threads.min(n_chunks), n_chunks, &|k| {
            let mut part = parts[k].lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            let ended = if interrupt::is_over() { Err(Error::Interrupted) } else { Ok(()) };
            let done = ended.and_then(|()| work(samples.part(cut(k)..cut(k + 1)), &mut part));
            part.failed = done.err();
        });
        let failed = |part: &mut Mutex<Part>| part_of(part).failed.take();
        workspace.parts[..n_chunks].iter_mut().find_map(failed).map_or(Ok(n_chunks), Err)
    }

    /// The weighted sum of the values of samples at `x`.
    pub fn loss(&self, x: &[f64], samples: Samples<'_>, threads: usize, workspace: &mut Workspace) -> Result<f64> {
        let n_chunks = self.for_chunks(samples, threads, workspace, &|samples, part| {
            part.loss = self.terms.loss(x, samples, &mut part.scratch)?;
            Ok(())
        })?;
        let sum: f64 = workspace.parts[..n_chunks].iter_mut().map(|part| part_of(part).loss).sum();
        let scale = samples.total();
        Ok(if self.regulariser == Regulariser::default() { sum } else { sum + scale * self.regulariser.loss(x) })
    }

    /// Adds the weighted sum of the gradients of samples at `x` to `out`, minus those at `minus`, in the same pass over
    /// the data. On an error, `out` may hold a part of it.
    pub fn grad(
        &self,
        x: &[f64],
        minus: Option<&[f64]>,
        samples: Samples<'_>,
        threads: usize,
        workspace: &mut Workspace,
        out: &mut [f64],
    ) -> Result<()> {
        self.terms_grad(x, minus, samples, threads, workspace, out)?;
        self.regulariser.add_grad(x, minus, samples.total(), out);
        Ok(())
    }

    /// Sets `out` to the difference of the weighted sums of gradients of samples at `x` and `y`, plus `base`, as
    /// variance-reduced estimates need. Takes fewer passes over `out` than [`FiniteSum::grad`] and a sum, with the same
    /// bits.
    #[allow(clippy::too_many_arguments, reason = "as many as a gradient's, and what it is added to")]
    pub fn grad_from(
        &self,
        [x, y]: [&[f64]; 2],
        base: &[f64],
        samples: Samples<'_>,
        threads: usize,
        workspace: &mut Workspace,
        out: &mut [f64],
    ) -> Result<()> {
        out.fill(0.0);
        self.terms_grad(x, Some(y), samples, threads, workspace, out)?;
        let Regulariser { l2, nonconvex } = self.regulariser;
        if l2 > 0.0 && nonconvex == 0.0 {
            kernels::add_difference(samples.total() * l2, x, y, base, out);
        } else {
            self.regulariser.add_grad(x, Some(y), samples.total(), out);
            kernels::add_to(base, out);
        }
        Ok(())
    }

    /// [`FiniteSum::grad`] without the regulariser.
    fn terms_grad(
        &self,
        x: &[f64],
        minus: Option<&[f64]>,
        samples: Samples<'_>,
        threads: usize,
        workspace: &mut Workspace,
        out: &mut [f64],
    ) -> Result<()> {
        if self.chunks(samples.indices.len()) == 1 {
            if workspace.parts.is_empty() {
                memory::reserve_in(&mut workspace.parts, 1, WHAT)?;
                workspace.parts.push(Mutex::new(Part::default()));
            }
            self.terms.grad(x, minus, samples, &mut part_of(&mut workspace.parts[0]).scratch, out)?;
        } else {
            let n_chunks = self.for_chunks(samples, threads, workspace, &|samples, part| {
                part.grad.clear();
                memory::reserve_in(&mut part.grad, x.len(), WHAT)?;
                part.grad.resize(x.len(), 0.0);
                self.terms.grad(x, minus, samples, &mut part.scratch, &mut part.grad)
            })?;
            for part in &mut workspace.parts[..n_chunks] {
                kernels::add_to(&part_of(part).grad, out);
            }
        }
        Ok(())
    }
}

fn part_of(part: &mut Mutex<Part>) -> &mut Part {
    part.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner())
}
