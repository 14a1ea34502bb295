//! Extents of arrays, and NumPy's rules for them: broadcasting and negative axes.
//!
//! Promises: a shape has at most [`Dims::MOST`] axes and a size that fits an `isize`; any other is an error that names
//! the found shape. Does not know values.

use std::fmt;
use std::ops::Deref;

use crate::error::{Error, Result};

/// The extents of an array along its axes; none for a number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Dims {
    extents: [usize; Dims::MOST],
    rank: u8,
}

impl Dims {
    /// The largest number of axes.
    pub const MOST: usize = 12;

    /// The shape of a number.
    pub const SCALAR: Dims = Dims { extents: [0; Dims::MOST], rank: 0 };

    /// A shape with these extents.
    pub fn new(extents: &[usize]) -> Result<Self> {
        if extents.len() > Self::MOST {
            return Err(bad("axes of an array", format!("at most {}", Self::MOST), extents.len().to_string()));
        }
        // As in NumPy, extents of 0 do not excuse a product of the others that is too large.
        let bytes = extents.iter().filter(|&&n| n > 0).try_fold(8usize, |bytes, &n| bytes.checked_mul(n));
        if bytes.is_none_or(|bytes| bytes > isize::MAX as usize) {
            return Err(bad("size of an array", "less than the address space".into(), format!("{extents:?}")));
        }
        let mut dims = Self::SCALAR;
        dims.extents[..extents.len()].copy_from_slice(extents);
        dims.rank = extents.len() as u8;
        Ok(dims)
    }

    /// The number of axes.
    pub fn rank(&self) -> usize {
        usize::from(self.rank)
    }

    /// The number of elements.
    pub fn size(&self) -> usize {
        self.iter().product()
    }

    /// The strides of elements in C order.
    pub fn strides(&self) -> Strides {
        let mut strides = Strides::default();
        let mut step = 1;
        for axis in (0..self.rank()).rev() {
            strides[axis] = step;
            step *= self[axis] as isize;
        }
        strides
    }

    /// The shape that both broadcast to.
    pub fn broadcast(&self, other: &Dims) -> Result<Dims> {
        let rank = self.rank().max(other.rank());
        let at = |dims: &Dims, axis: usize| (axis + dims.rank()).checked_sub(rank).map_or(1, |axis| dims[axis]);
        let mut extents = [0; Self::MOST];
        for (axis, extent) in extents[..rank].iter_mut().enumerate() {
            *extent = match (at(self, axis), at(other, axis)) {
                (a, b) if a == b => a,
                (1, b) => b,
                (a, 1) => a,
                _ => {
                    return Err(Error::Broadcast { left: self.to_string(), right: other.to_string() });
                }
            };
        }
        Dims::new(&extents[..rank])
    }

    /// The axis with number `axis`, counted from the end if negative.
    pub fn axis(&self, axis: isize) -> Result<usize> {
        let rank = self.rank() as isize;
        if (-rank..rank).contains(&axis) {
            return Ok(if axis < 0 { axis + rank } else { axis } as usize);
        }
        let expected = match rank {
            0 => "an axis of an array, because a number has none".to_string(),
            _ => format!("from -{rank} to {}", rank - 1),
        };
        Err(bad("axis", expected, axis.to_string()))
    }

    /// The shape without the axes of `axes`, or with 1 in their places.
    pub fn reduced(&self, axes: Axes, keep: bool) -> Dims {
        let mut extents = [0; Self::MOST];
        let mut rank = 0;
        for (axis, &extent) in self.iter().enumerate() {
            if !axes.has(axis) || keep {
                extents[rank] = if axes.has(axis) { 1 } else { extent };
                rank += 1;
            }
        }
        Dims { extents, rank: rank as u8 }
    }

    /// This with another extent along one axis.
    pub fn with(mut self, axis: usize, extent: usize) -> Result<Dims> {
        self.extents[axis] = extent;
        Dims::new(&self)
    }
}

impl Deref for Dims {
    type Target = [usize];
    fn deref(&self) -> &[usize] {
        &self.extents[..self.rank()]
    }
}

impl fmt::Display for Dims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match **self {
            [only] => write!(f, "({only},)"),
            _ => {
                let extents: Vec<_> = self.iter().map(usize::to_string).collect();
                write!(f, "({})", extents.join(", "))
            }
        }
    }
}

impl fmt::Debug for Dims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Steps between elements along each axis.
pub type Strides = [isize; Dims::MOST];

/// A set of axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Axes(u16);

impl Axes {
    /// The axes in `axes` of an array of shape `dims`, each once; all of them for `None`.
    pub fn of(dims: &Dims, axes: Option<&[isize]>) -> Result<Self> {
        let Some(axes) = axes else { return Ok(Axes((1 << dims.rank()) - 1)) };
        let mut set = 0;
        for &axis in axes {
            let bit = 1 << dims.axis(axis)?;
            if set & bit != 0 {
                return Err(bad("axes", "different axes".into(), format!("{axes:?}")));
            }
            set |= bit;
        }
        Ok(Axes(set))
    }

    /// The axes from `start` up to `end`.
    pub fn range(start: usize, end: usize) -> Self {
        Axes(((1u32 << end) - (1u32 << start)) as u16)
    }

    /// Whether it contains `axis`.
    pub fn has(self, axis: usize) -> bool {
        self.0 >> axis & 1 != 0
    }

    /// The number of axes.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether it is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The axes in ascending order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..Dims::MOST).filter(move |&axis| self.has(axis))
    }

    /// Every axis moved up by one.
    pub fn shifted(self) -> Self {
        Axes(self.0 << 1)
    }
}

/// An argument outside its range.
pub(super) fn bad(what: &'static str, expected: String, found: String) -> Error {
    Error::BadArgument { what, expected, found }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dims(extents: &[usize]) -> Dims {
        Dims::new(extents).unwrap()
    }

    #[test]
    fn shapes_broadcast_as_in_numpy() {
        assert_eq!(dims(&[3, 1]).broadcast(&dims(&[4])).unwrap(), dims(&[3, 4]));
        assert_eq!(dims(&[0]).broadcast(&dims(&[1])).unwrap(), dims(&[0]));
        assert!(dims(&[3]).broadcast(&dims(&[0])).is_err());
        let error = dims(&[3]).broadcast(&dims(&[4])).unwrap_err().to_string();
        assert_eq!(error, "shapes (3,) and (4,) do not broadcast");
        assert!(Dims::new(&[1 << 40, 1 << 40]).is_err() && Dims::new(&[1; 13]).is_err());
    }

    #[test]
    fn axes_are_named_once() {
        let shape = dims(&[2, 3, 4]);
        assert_eq!(Axes::of(&shape, Some(&[-1, 0])).unwrap().iter().collect::<Vec<_>>(), [0, 2]);
        assert!(Axes::of(&shape, Some(&[2, -1])).is_err() && shape.axis(3).is_err() && shape.axis(-4).is_err());
        assert_eq!(shape.reduced(Axes::range(1, 3), true), dims(&[2, 1, 1]));
    }
}
