//! Arrays joined along an axis.
//!
//! Does not know where operands lie.

/// Numbers of operands of these widths in turn, for each position before the axis; `gather` writes those of an operand from one of
/// them on.
pub(super) fn concat<T: Copy + Default>(
    widths: impl Iterator<Item = usize> + Clone,
    outer: usize,
    to: &mut [T],
    gather: impl Fn(usize, usize, &mut [T]),
) {
    if outer > 1 && widths.clone().all(|width| width <= NARROW) {
        return concat_narrow(widths, outer, to, gather);
    }
    let mut rest = to;
    for o in 0..outer {
        for (k, width) in widths.clone().enumerate() {
            let (part, after) = std::mem::take(&mut rest).split_at_mut(width);
            gather(k, o * width, part);
            rest = after;
        }
    }
}

/// The longest parts of which many are gathered at once.
const NARROW: usize = 16;

/// The same of short parts: many of one operand at a time, each then put in its place.
fn concat_narrow<T: Copy + Default>(
    widths: impl Iterator<Item = usize> + Clone,
    outer: usize,
    to: &mut [T],
    gather: impl Fn(usize, usize, &mut [T]),
) {
    let total: usize = widths.clone().sum();
    let mut room = [T::default(); 16 * NARROW];
    let mut column = 0;
    for (k, width) in widths.enumerate().filter(|(_, width)| *width > 0) {
        let most = room.len() / width;
        for first in (0..outer).step_by(most) {
            let parts = &mut room[..most.min(outer - first) * width];
            gather(k, first * width, parts);
            let to = to[first * total..].chunks_exact_mut(total);
            match width {
                1 => to.zip(parts).for_each(|(to, part)| to[column] = *part),
                _ => to.zip(parts.chunks_exact(width)).for_each(|(to, part)| {
                    to[column..column + width].iter_mut().zip(part).for_each(|(to, part)| *to = *part);
                }),
            }
        }
        column += width;
    }
}
