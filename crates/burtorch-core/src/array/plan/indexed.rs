//! Elements by index, and contributions to them.
//!
//! Promises: the order of the indices; an index outside its axis is refused. Does not know plans.

use super::super::dims::Dims;
use super::super::index::BELOW_ZERO;
use super::math::ArrayFloat;
use super::place::Along;
use crate::error::{Error, Result};

/// A number of an array; integers wrap, as in NumPy.
pub(super) trait Number: Copy {
    fn plus(self, other: Self) -> Self;
}

impl<E: ArrayFloat> Number for E {
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self + other
    }
}

impl Number for i64 {
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
}

/// The position that an index names, counted from the end if negative.
#[inline(always)]
fn index(i: i64, n: usize) -> Result<usize> {
    let at = if i < 0 { i + n as i64 } else { i };
    if (0..n as i64).contains(&at) {
        return Ok(at as usize);
    }
    Err(outside(i, n))
}

/// Refuses indices outside of an axis of `n`.
pub(super) fn check(indices: &[i64], n: usize) -> Result<()> {
    indices.iter().try_for_each(|&i| index(i, n).map(drop))
}

/// The positions that `N` indices name.
fn positions<const N: usize>(indices: &[i64], n: usize) -> Result<[usize; N]> {
    let mut found = [0; N];
    for (at, &i) in found.iter_mut().zip(indices) {
        *at = index(i, n)?;
    }
    Ok(found)
}

/// The same `N` elements of each of many short rows of `n`.
fn take_few<T: Copy, const N: usize>(table: &[T], n: usize, indices: &[i64], to: &mut [T]) -> Result<()> {
    let at = positions::<N>(indices, n)?;
    for (row, to) in table.chunks_exact(n).zip(to.as_chunks_mut::<N>().0) {
        for (to, &k) in to.iter_mut().zip(&at) {
            *to = row[k];
        }
    }
    Ok(())
}

fn add_few<T: Number, const N: usize>(c: &[T], n: usize, indices: &[i64], to: &mut [T]) -> Result<()> {
    let at = positions::<N>(indices, n)?;
    for (row, c) in to.chunks_exact_mut(n).zip(c.as_chunks::<N>().0) {
        for (&k, &c) in at.iter().zip(c) {
            row[k] = row[k].plus(c);
        }
    }
    Ok(())
}

#[cold]
fn outside(i: i64, n: usize) -> Error {
    if i < -BELOW_ZERO / 2 {
        let (expected, found) = (format!("from 0 to {}", n as i64 - 1), i + BELOW_ZERO);
        return Error::BadArgument { what: "index", expected, found: found.to_string() };
    }
    let expected = format!("inside of an axis of {n}");
    Error::BadArgument { what: "index", expected, found: i.to_string() }
}

/// How a table and its indices lie: batches, extents of the table in each, indices in each.
fn layout([table, indices]: [&Dims; 2], axis: usize, batch: usize) -> (usize, Along, usize) {
    if table.rank() == 1 {
        return (1, Along { outer: 1, n: table[0], inner: 1 }, indices.size());
    }
    let batches: usize = table[..batch].iter().product();
    let mut along = Along::new(table, axis, axis + 1);
    along.outer = table[batch..axis].iter().product();
    (batches, along, indices[batch..].iter().product())
}

/// Elements of a table by index, along an axis behind `batch` axes that both have. `dims` are those of the table and the indices.
pub(super) fn take<T: Copy>(
    dims: [&Dims; 2],
    (axis, batch): (usize, usize),
    table: &[T],
    indices: &[i64],
    to: &mut [T],
) -> Result<()> {
    let (batches, Along { outer, n, inner }, m) = layout(dims, axis, batch);
    if inner == 1 && batches == 1 && n > 0 {
        match m {
            2 => return take_few::<T, 2>(table, n, indices, to),
            3 => return take_few::<T, 3>(table, n, indices, to),
            4 => return take_few::<T, 4>(table, n, indices, to),
            _ => {}
        }
    }
    let mut rest = to;
    for b in 0..batches {
        for o in 0..outer {
            let table = &table[(b * outer + o) * n * inner..][..n * inner];
            if inner == 1 {
                let (part, after) = std::mem::take(&mut rest).split_at_mut(m);
                for (to, &i) in part.iter_mut().zip(&indices[b * m..]) {
                    *to = table[index(i, n)?];
                }
                rest = after;
                continue;
            }
            for &i in &indices[b * m..(b + 1) * m] {
                let (part, after) = std::mem::take(&mut rest).split_at_mut(inner);
                part.copy_from_slice(&table[index(i, n)? * inner..][..inner]);
                rest = after;
            }
        }
    }
    Ok(())
}

/// Adds contributions where [`take`] would have found them, in order.
pub(super) fn scatter_add<T: Number>(
    dims: [&Dims; 2],
    (axis, batch): (usize, usize),
    indices: &[i64],
    c: &[T],
    to: &mut [T],
) -> Result<()> {
    let (batches, Along { outer, n, inner }, m) = layout(dims, axis, batch);
    if inner == 1 && batches == 1 && n > 0 {
        match m {
            2 => return add_few::<T, 2>(c, n, indices, to),
            3 => return add_few::<T, 3>(c, n, indices, to),
            4 => return add_few::<T, 4>(c, n, indices, to),
            _ => {}
        }
    }
    let mut rest = c;
    for b in 0..batches {
        for o in 0..outer {
            let table = &mut to[(b * outer + o) * n * inner..][..n * inner];
            if inner == 1 {
                let (part, after) = rest.split_at(m);
                for (&c, &i) in part.iter().zip(&indices[b * m..]) {
                    let sum = &mut table[index(i, n)?];
                    *sum = sum.plus(c);
                }
                rest = after;
                continue;
            }
            for &i in &indices[b * m..(b + 1) * m] {
                let (part, after) = rest.split_at(inner);
                let sums = &mut table[index(i, n)? * inner..][..inner];
                sums.iter_mut().zip(part).for_each(|(sum, &c)| *sum = sum.plus(c));
                rest = after;
            }
        }
    }
    Ok(())
}

/// Puts elements where [`take`] would have found them, in order. All indices have been checked.
pub(super) fn scatter_set<T: Copy>(
    dims: [&Dims; 2],
    (axis, batch): (usize, usize),
    indices: &[i64],
    from: &[T],
    to: &mut [T],
) -> Result<()> {
    let (batches, Along { outer, n, inner }, m) = layout(dims, axis, batch);
    let mut rest = from;
    for b in 0..batches {
        for o in 0..outer {
            let table = &mut to[(b * outer + o) * n * inner..][..n * inner];
            for &i in &indices[b * m..(b + 1) * m] {
                let (part, after) = rest.split_at(inner);
                let at = index(i, n)? * inner;
                match part {
                    &[x] => table[at] = x,
                    _ => table[at..][..inner].copy_from_slice(part),
                }
                rest = after;
            }
        }
    }
    Ok(())
}
