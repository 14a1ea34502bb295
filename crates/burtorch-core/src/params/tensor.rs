//! Places and shapes of parameters.

use std::ops::Range;

use crate::error::{Error, Result};

/// Contiguous numbers of a `Parameters`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slice {
    pub(crate) store: u64,
    pub(crate) start: u32,
    pub(crate) len: u32,
}

impl Slice {
    /// Identity of the parameters.
    pub const fn store(self) -> u64 {
        self.store
    }

    /// How many numbers.
    pub const fn len(self) -> usize {
        self.len as usize
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Where they are in the flat arrays.
    pub fn range(self) -> Range<usize> {
        self.start as usize..self.start as usize + self.len as usize
    }

    /// Numbers `from..to` of this slice, if it has them.
    pub fn slice(self, from: usize, to: usize) -> Option<Slice> {
        (from <= to && to <= self.len()).then(|| Slice {
            start: self.start + from as u32,
            len: (to - from) as u32,
            ..self
        })
    }
}

/// A shape of up to four dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    dims: [u32; 4],
    n_dims: u8,
}

impl Shape {
    /// A shape from its dimensions, at most four.
    pub fn new(dims: &[usize]) -> Result<Self> {
        let found = || format!("{dims:?}");
        let bad = |expected: &str| Error::BadArgument { what: "a shape", expected: expected.into(), found: found() };
        if dims.is_empty() || dims.len() > 4 {
            return Err(bad("one to four dimensions"));
        }
        let mut shape = Shape { dims: [1; 4], n_dims: dims.len() as u8 };
        for (to, &from) in shape.dims.iter_mut().zip(dims) {
            *to = u32::try_from(from).map_err(|_| bad("dimensions below 2^32"))?;
        }
        match dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d)) {
            Some(0) => Err(bad("dimensions of at least 1")),
            Some(n) if n <= u32::MAX as usize => Ok(shape),
            _ => Err(bad("fewer than 2^32 numbers in all")),
        }
    }

    /// The dimensions.
    pub fn dims(&self) -> &[u32] {
        &self.dims[..self.n_dims as usize]
    }

    /// How many numbers in all.
    pub fn n(&self) -> usize {
        self.dims().iter().map(|&d| d as usize).product()
    }
}

/// A shaped slice of a `Parameters`, by rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tensor {
    pub(super) slice: Slice,
    pub(super) shape: Shape,
}

impl Tensor {
    /// All its numbers.
    pub fn slice(&self) -> Slice {
        self.slice
    }

    /// Its shape.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Index `k` of the first dimension, if it exists: a tensor of one dimension less, or of shape (1,). No copy.
    pub fn index(&self, k: usize) -> Option<Tensor> {
        let slice = self.row(k)?;
        let rest = &self.shape.dims()[1..];
        let mut shape = Shape { dims: [1; 4], n_dims: rest.len().max(1) as u8 };
        shape.dims[..rest.len()].copy_from_slice(rest);
        Some(Tensor { slice, shape })
    }

    /// Indices `from..to` of the first dimension, if they exist and the range is not empty. No copy.
    pub fn rows(&self, from: usize, to: usize) -> Option<Tensor> {
        let width = self.slice.len() / self.shape.dims[0] as usize;
        let slice = self.slice.slice(from * width, to * width).filter(|part| !part.is_empty())?;
        let mut shape = self.shape;
        shape.dims[0] = (to - from) as u32;
        Some(Tensor { slice, shape })
    }

    /// Row `k` along the first dimension, if it has one. No copy.
    pub fn row(&self, k: usize) -> Option<Slice> {
        let rows = self.shape.dims()[0] as usize;
        let width = self.slice.len() / rows;
        if k < rows { self.slice.slice(k * width, (k + 1) * width) } else { None }
    }
}
