//! The positions of a value's numbers: views as strides.
//!
//! Promises: a place stays inside its source, as long as the source has the length of the value it was made
//! for. Does not know the computation.

use std::ops::Range;

use super::super::dims::{Dims, Strides};
use super::super::instr::View;

/// What numbers are read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Source {
    Input(usize),
    /// Numbers of parameters, from the start.
    Param(usize),
    Const(usize),
    Buffer(usize),
}

/// Numbers of a source in a certain order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) source: Source,
    pub(super) offset: usize,
    pub(super) dims: Dims,
    pub(super) strides: Strides,
}

impl Place {
    /// Numbers side by side from `offset`.
    pub(super) fn whole(source: Source, offset: usize, dims: Dims) -> Self {
        Place { source, offset, dims, strides: dims.strides() }
    }

    /// One number, repeated.
    pub(super) fn repeated(source: Source, dims: Dims) -> Self {
        Place { source, offset: 0, dims, strides: Strides::default() }
    }

    /// Whether the numbers lie side by side in C order.
    pub(super) fn is_contiguous(&self) -> bool {
        let walk = Walk::new(self);
        walk.rank == 1 && (walk.strides[0] == 1 || walk.extents[0] < 2)
    }

    /// The place of a view; `None` for a reshape that strides cannot express.
    pub(super) fn viewed(&self, view: &View, dims: Dims) -> Option<Place> {
        let mut to = Place { dims, strides: Strides::default(), ..*self };
        match view {
            View::Permute(axes) => {
                for (k, &axis) in axes.iter().enumerate() {
                    to.strides[k] = self.strides[axis];
                }
            }
            View::Broadcast(_) => {
                let new = dims.rank() - self.dims.rank();
                for axis in new..dims.rank() {
                    if self.dims[axis - new] == dims[axis] {
                        to.strides[axis] = self.strides[axis - new];
                    }
                }
            }
            View::Slice(slices) => {
                for (axis, slice) in slices.iter().enumerate() {
                    to.strides[axis] = self.strides[axis] * slice.step;
                    if dims.size() > 0 {
                        to.offset = to.offset.wrapping_add_signed(self.strides[axis] * slice.start as isize);
                    }
                }
            }
            View::Reshape(_) => to.strides = self.reshaped(dims)?,
        }
        Some(to)
    }

    /// The strides of another shape: axes are matched in groups of equal size, within which numbers must be equally far apart.
    fn reshaped(&self, dims: Dims) -> Option<Strides> {
        let mut strides = dims.strides();
        if dims.size() == 0 {
            return Some(strides);
        }
        let (mut a, mut b) = (0, 0);
        while a < self.dims.rank() && b < dims.rank() {
            let (first_a, first_b) = (a, b);
            let (mut size_a, mut size_b) = (self.dims[a], dims[b]);
            (a, b) = (a + 1, b + 1);
            while size_a != size_b {
                if size_a < size_b {
                    size_a *= self.dims[a];
                    a += 1;
                } else {
                    size_b *= dims[b];
                    b += 1;
                }
            }
            // Axes of extent 1 have strides that nothing uses.
            let used = |axis: &usize| self.dims[*axis] > 1;
            let old: Vec<_> = (first_a..a).filter(used).collect();
            for pair in old.windows(2) {
                if self.strides[pair[0]] != self.strides[pair[1]] * self.dims[pair[1]] as isize {
                    return None;
                }
            }
            let mut step = old.last().map_or(0, |&axis| self.strides[axis]);
            for axis in (first_b..b).rev() {
                strides[axis] = step;
                step *= dims[axis] as isize;
            }
        }
        Some(strides)
    }
}

/// Numbers side by side that are copied without a call.
const FEW: usize = 24;

#[inline(always)]
fn copy_few<T: Copy>(from: &[T], to: &mut [T]) {
    let (fours, rest) = to.as_chunks_mut::<4>();
    let (from_fours, from_rest) = from.as_chunks::<4>();
    fours.iter_mut().zip(from_fours).for_each(|(to, from)| *to = *from);
    rest.iter_mut().zip(from_rest).for_each(|(to, from)| *to = *from);
}

/// A way through the numbers of a place in C order, with as few axes as possible.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walk {
    offset: usize,
    rank: usize,
    extents: [usize; Dims::MOST],
    strides: Strides,
}

impl Walk {
    pub(super) fn new(place: &Place) -> Self {
        let mut walk = Walk { offset: place.offset, rank: 0, extents: [1; Dims::MOST], strides: Strides::default() };
        for axis in 0..place.dims.rank() {
            let (extent, stride) = (place.dims[axis], place.strides[axis]);
            if extent == 1 {
                continue;
            }
            let last = walk.rank.wrapping_sub(1);
            if walk.rank > 0 && walk.strides[last] == stride * extent as isize {
                walk.extents[last] *= extent;
                walk.strides[last] = stride;
            } else {
                walk.extents[walk.rank] = extent;
                walk.strides[walk.rank] = stride;
                walk.rank += 1;
            }
        }
        walk.rank = walk.rank.max(1);
        walk
    }

    /// Whether it is the same number throughout.
    pub(super) fn is_constant(&self) -> bool {
        self.rank == 1 && (self.strides[0] == 0 || self.extents[0] == 1)
    }

    /// How many numbers.
    pub(super) fn len(&self) -> usize {
        self.extents[..self.rank].iter().product()
    }

    /// The first position.
    pub(super) fn offset(&self) -> usize {
        self.offset
    }

    /// Calls `run(position, stride, count)` for the runs that numbers `start..start + n` lie in.
    #[inline]
    pub(super) fn runs(&self, start: usize, n: usize, mut run: impl FnMut(usize, isize, usize)) {
        let last = self.rank - 1;
        let mut index = [0; Dims::MOST];
        let mut rest = start;
        let mut at = self.offset;
        for axis in (0..self.rank).rev() {
            index[axis] = rest % self.extents[axis].max(1);
            rest /= self.extents[axis].max(1);
            at = at.wrapping_add_signed(self.strides[axis] * index[axis] as isize);
        }
        let mut left = n;
        while left > 0 {
            let count = (self.extents[last] - index[last]).min(left);
            run(at, self.strides[last], count);
            left -= count;
            index[last] += count;
            at = at.wrapping_add_signed(self.strides[last] * count as isize);
            let mut axis = last;
            while axis > 0 && index[axis] == self.extents[axis] {
                index[axis] = 0;
                at = at.wrapping_add_signed(self.strides[axis - 1] - self.strides[axis] * self.extents[axis] as isize);
                axis -= 1;
                index[axis] += 1;
            }
        }
    }

    /// The walk along the first axes, if the last ones hold few numbers, and the positions of these from the first of them.
    fn tiled(&self, positions: &mut [isize; TILE]) -> Option<(Walk, usize)> {
        let (mut rank, mut n) = (self.rank, 1);
        while rank > 1 && n * self.extents[rank - 1] <= TILE {
            rank -= 1;
            for k in n..n * self.extents[rank] {
                positions[k] = positions[k - n] + self.strides[rank];
            }
            n *= self.extents[rank];
        }
        let last = self.rank - 1;
        let is_long = self.strides[last].unsigned_abs() < 2 && self.extents[last] >= 8;
        (n > 1 && !is_long).then_some((Walk { rank, ..*self }, n))
    }

    /// Calls `run(numbers, position, stride, tile)` for the parts that numbers `start..start + n` are visited in. Those of a part
    /// lie `stride` apart, or it is tiles that lie `stride` apart, each with numbers at these places from the first.
    #[inline(always)]
    pub(super) fn parts(
        &self,
        start: usize,
        n: usize,
        mut run: impl FnMut(Range<usize>, usize, isize, Option<&[isize]>),
    ) {
        let mut positions = [0; TILE];
        let one_by_one = |from: usize, to: usize, run: &mut dyn FnMut(Range<usize>, usize, isize)| {
            let mut k = from;
            if from < to {
                self.runs(start + from, to - from, |at, stride, count| {
                    run(k..k + count, at, stride);
                    k += count;
                });
            }
        };
        let Some((outer, tile)) = self.tiled(&mut positions) else {
            return one_by_one(0, n, &mut |numbers, at, stride| run(numbers, at, stride, None));
        };
        let head = (start.next_multiple_of(tile) - start).min(n);
        let tiles = (n - head) / tile;
        one_by_one(0, head, &mut |numbers, at, stride| run(numbers, at, stride, None));
        let mut k = head;
        if tiles > 0 {
            outer.runs((start + head) / tile, tiles, |at, stride, count| {
                run(k..k + count * tile, at, stride, Some(&positions[..tile]));
                k += count * tile;
            });
        }
        one_by_one(k, n, &mut |numbers, at, stride| run(numbers, at, stride, None));
    }

    /// The number of rows and their length, if rows are columns in memory.
    pub(super) fn turned(&self) -> Option<[usize; 2]> {
        let [row, column] = [self.rank.checked_sub(2)?, self.rank - 1];
        let is_turned = self.strides[row] == 1 && self.strides[column].unsigned_abs() >= TURNED;
        let extents = [self.extents[row], self.extents[column]];
        (is_turned && extents.iter().all(|&n| n >= TURNED)).then_some(extents)
    }

    /// Numbers from `start` on.
    pub(super) fn gather<T: Copy>(&self, from: &[T], start: usize, to: &mut [T]) {
        if self.rank == 0 {
            return to.fill(from[self.offset]);
        }
        let Some([rows, row]) = self.turned().filter(|[_, row]| to.len() >= TURNED * row) else {
            return self.gather_parts(from, start, to);
        };
        let stride = self.strides[self.rank - 1];
        let mut k = 0;
        while k < to.len() {
            let (at, within) = ((start + k) / row % rows, (start + k) % row);
            let n_rows = TURNED.min(rows - at).min((to.len() - k) / row);
            let n = if within == 0 && n_rows > 0 {
                let to = &mut to[k..k + n_rows * row];
                self.runs(start + k, 1, |at, _, _| turn(from, at, stride, row, to));
                to.len()
            } else {
                let n = (row - within).min(to.len() - k);
                self.gather_parts(from, start + k, &mut to[k..k + n]);
                n
            };
            k += n;
        }
    }

    fn gather_parts<T: Copy>(&self, from: &[T], start: usize, to: &mut [T]) {
        self.parts(start, to.len(), |numbers, at, stride, tile| {
            let run = &mut to[numbers];
            match (tile, stride) {
                (Some(tile), _) => match *tile {
                    [a, b] => tiles(from, at, stride, [a, b], run),
                    [a, b, c] => tiles(from, at, stride, [a, b, c], run),
                    [a, b, c, d] => tiles(from, at, stride, [a, b, c, d], run),
                    [a, b, c, d, e, f] => tiles(from, at, stride, [a, b, c, d, e, f], run),
                    _ => {
                        let mut at = at;
                        for to in run.chunks_exact_mut(tile.len()) {
                            to.iter_mut().zip(tile).for_each(|(to, &place)| *to = from[at.wrapping_add_signed(place)]);
                            at = at.wrapping_add_signed(stride);
                        }
                    }
                },
                (None, 1) if run.len() < FEW => copy_few(&from[at..at + run.len()], run),
                (None, 1) => run.copy_from_slice(&from[at..at + run.len()]),
                (None, 0) => run.fill(from[at]),
                (None, -1) => {
                    let from = from[..=at].iter().rev();
                    run.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
                }
                _ => {
                    for (k, to) in run.iter_mut().enumerate() {
                        *to = from[at.wrapping_add_signed(stride * k as isize)];
                    }
                }
            }
        });
    }
}

/// Columns that are read together where they become rows: of f64, those of a line of the cache.
pub(super) const TURNED: usize = 8;

/// Columns that lie side by side, from `at` on, as rows: at most [`TURNED`].
fn turn<T: Copy>(from: &[T], mut at: usize, stride: isize, row: usize, to: &mut [T]) {
    let n = to.len() / row;
    let mut rows = to.chunks_exact_mut(row);
    let mut rows: [&mut [T]; TURNED] = std::array::from_fn(|_| rows.next().unwrap_or_default());
    for k in 0..row {
        if n == TURNED {
            let columns = &from[at..at + TURNED];
            rows.iter_mut().zip(columns).for_each(|(row, &x)| row[k] = x);
        } else {
            rows.iter_mut().zip(&from[at..at + n]).for_each(|(row, &x)| row[k] = x);
        }
        at = at.wrapping_add_signed(stride);
    }
}

/// Numbers of the last axes that are visited together, where these are short.
const TILE: usize = 24;

/// Tiles of `N` numbers that lie `stride` apart.
fn tiles<T: Copy, const N: usize>(from: &[T], mut at: usize, stride: isize, places: [isize; N], to: &mut [T]) {
    for to in to.as_chunks_mut::<N>().0 {
        for (to, &place) in to.iter_mut().zip(&places) {
            *to = from[at.wrapping_add_signed(place)];
        }
        at = at.wrapping_add_signed(stride);
    }
}

/// Extents before, along and after an axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Along {
    pub(super) outer: usize,
    pub(super) n: usize,
    pub(super) inner: usize,
}

impl Along {
    pub(super) fn new(dims: &Dims, from: usize, to: usize) -> Self {
        let product = |extents: &[usize]| extents.iter().product();
        Along { outer: product(&dims[..from]), n: product(&dims[from..to]), inner: product(&dims[to..]) }
    }

    /// For each row along the axis the position of its first number.
    pub(super) fn rows(self) -> impl Iterator<Item = usize> {
        (0..self.outer).flat_map(move |o| (0..self.inner).map(move |i| o * self.n * self.inner + i))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::instr::Slice;
    use super::*;

    fn dims(extents: &[usize]) -> Dims {
        Dims::new(extents).unwrap()
    }

    fn numbers(place: &Place) -> Vec<i64> {
        let from: Vec<i64> = (0..24).collect();
        let mut to = vec![-1; place.dims.size()];
        let walk = Walk::new(place);
        for start in (0..to.len()).step_by(5) {
            let end = (start + 5).min(to.len());
            walk.gather(&from, start, &mut to[start..end]);
        }
        to
    }

    #[test]
    fn short_axes_are_walked_as_long_ones() {
        for extents in [&[4, 3, 2][..], &[2, 3, 4], &[12, 2], &[3, 8], &[2, 2, 2, 3], &[1, 24]] {
            let x = Place::whole(Source::Input(0), 0, dims(extents));
            for axis in 0..extents.len() {
                let mut axes: Vec<_> = (0..extents.len()).collect();
                axes.swap(axis, 0);
                let turned: Vec<_> = axes.iter().map(|&axis| extents[axis]).collect();
                let x = x.viewed(&View::Permute(axes.into()), dims(&turned)).unwrap();
                for repeated in [0, axis] {
                    let mut x = x;
                    x.strides[repeated] = 0;
                    let expected: Vec<i64> = (0..24)
                        .map(|mut k| {
                            let mut at = 0;
                            for axis in (0..turned.len()).rev() {
                                at += x.strides[axis] * (k % turned[axis]) as isize;
                                k /= turned[axis];
                            }
                            at as i64
                        })
                        .collect();
                    assert_eq!(numbers(&x), expected, "{turned:?} repeated along {repeated}");
                }
            }
        }
    }

    #[test]
    fn views_give_the_numbers_that_numpy_gives() {
        let x = Place::whole(Source::Input(0), 0, dims(&[2, 3, 4]));
        let t = x.viewed(&View::Permute([2, 0, 1].into()), dims(&[4, 2, 3])).unwrap();
        assert_eq!(numbers(&t)[..8], [0, 4, 8, 12, 16, 20, 1, 5]);
        let slices = [Slice { start: 1, step: -1, count: 2 }, Slice::all(3), Slice { start: 3, step: -2, count: 2 }];
        let s = x.viewed(&View::Slice(slices.into()), dims(&[2, 3, 2])).unwrap();
        assert_eq!(numbers(&s), [15, 13, 19, 17, 23, 21, 3, 1, 7, 5, 11, 9]);
        let row = Place::whole(Source::Input(0), 4, dims(&[3, 1]));
        let wide = row.viewed(&View::Broadcast(dims(&[2, 3, 2])), dims(&[2, 3, 2])).unwrap();
        assert_eq!(numbers(&wide), [4, 4, 5, 5, 6, 6, 4, 4, 5, 5, 6, 6]);
        let flat = x.viewed(&View::Reshape(dims(&[6, 4])), dims(&[6, 4])).unwrap();
        assert!(flat.is_contiguous() && !t.is_contiguous());
        assert!(t.viewed(&View::Reshape(dims(&[24])), dims(&[24])).is_none());
        let split = t.viewed(&View::Reshape(dims(&[2, 2, 6])), dims(&[2, 2, 6])).unwrap();
        assert_eq!(numbers(&split), numbers(&t));
    }
}
