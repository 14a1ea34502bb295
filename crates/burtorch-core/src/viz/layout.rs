//! Positions of boxes and links: layers from left to right, few crossings, few bends.
//!
//! A box lies one layer right of its rightmost operand; boxes without operands are drawn close to their readers. A link over
//! several layers gets a point in each, so that it does not run through boxes. Within the layers, boxes and points are ordered
//! by the mean place of their neighbours, in a few sweeps in both directions; then each is moved towards the mean height of its
//! neighbours as far as those above and below allow. A large picture has no points for its longest links, which may run through
//! boxes: there would be as many points as links times layers.
//!
//! Promises: n log n in boxes and links. Checks now and then whether to end early.

use super::picture::Picture;
use crate::error::Result;
use crate::interrupt::Work;

/// Distance between layers, and between boxes of a layer.
const GAP_X: f64 = 46.0;
const GAP_Y: f64 = 16.0;
/// The height that a link takes in a layer.
const POINT_HEIGHT: f64 = 8.0;
/// Rounds of ordering and moving.
const ROUNDS: usize = 12;
/// The number of points allowed for any picture; `POINTS_PER_LINK` is the number per link.
const FEWEST_POINTS: usize = 1 << 14;
const POINTS_PER_LINK: usize = 4;
/// Operations of [`Work`] per box, point or link and step.
const STEP: usize = 32;

/// A box: left, top, width and height.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rect {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// The positions of all boxes and lines.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    /// By part.
    pub(super) boxes: Vec<Rect>,
    /// By link: points from the operand's right side to the reader's left side.
    pub(super) lines: Vec<Vec<(f64, f64)>>,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// A box, or a point of a link.
#[derive(Clone, Debug)]
struct Item {
    layer: usize,
    /// The height of its centre.
    y: f64,
    width: f64,
    height: f64,
    left: Vec<usize>,
    right: Vec<usize>,
}

/// Places the parts, whose sizes are given.
pub(super) fn layout(picture: &Picture, sizes: &[(f64, f64)]) -> Result<Layout> {
    let mut work = Work::default();
    let layers = layers_of(picture, &mut work)?;
    let mut items: Vec<Item> = sizes
        .iter()
        .zip(&layers)
        .map(|(&(width, height), &layer)| Item { layer, y: 0.0, width, height, left: vec![], right: vec![] })
        .collect();
    let longest = longest_with_points(picture, &layers);
    let mut chains: Vec<Vec<usize>> = Vec::with_capacity(picture.links.len());
    for link in &picture.links {
        let chain = chain(&mut items, link.from, link.to, longest);
        work.add(STEP * chain.len())?;
        chains.push(chain);
    }
    let mut columns: Vec<Vec<usize>> = vec![Vec::new(); items.iter().map(|item| item.layer + 1).max().unwrap_or(0)];
    (0..items.len()).for_each(|k| columns[items[k].layer].push(k));
    order(&mut items, &mut columns, &mut work)?;
    straighten(&mut items, &columns, &mut work)?;
    placed(&items, &columns, &chains, sizes.len(), &mut work)
}

/// The layer of each box. Operands come before their readers, so one pass each way is enough.
fn layers_of(picture: &Picture, work: &mut Work) -> Result<Vec<usize>> {
    let n = picture.parts.len();
    let mut layers = vec![0; n];
    let mut by_reader = picture.links.clone();
    by_reader.sort_by_key(|link| (link.to, link.from));
    let mut has_operands = vec![false; n];
    for link in &by_reader {
        work.add(1)?;
        layers[link.to] = layers[link.to].max(layers[link.from] + 1);
        has_operands[link.to] = true;
    }
    let mut nearest = vec![usize::MAX; n];
    for link in &picture.links {
        work.add(1)?;
        nearest[link.from] = nearest[link.from].min(layers[link.to]);
    }
    for k in (0..n).filter(|&k| !has_operands[k]) {
        layers[k] = if nearest[k] == usize::MAX { 0 } else { nearest[k] - 1 };
    }
    Ok(layers)
}

/// The longest link, in layers, that gets points: the largest length for which the points are not too many.
fn longest_with_points(picture: &Picture, layers: &[usize]) -> usize {
    let mut spans: Vec<usize> = picture.links.iter().map(|link| layers[link.to].abs_diff(layers[link.from])).collect();
    spans.sort_unstable();
    let most = FEWEST_POINTS.max(POINTS_PER_LINK * spans.len());
    let mut points = 0_usize;
    for span in spans {
        points += span;
        // Links of the same length are treated alike.
        if points > most {
            return span.saturating_sub(1);
        }
    }
    usize::MAX
}

/// Connects two boxes by points in the layers between them, unless the link is too long; returns all, including the
/// ends.
fn chain(items: &mut Vec<Item>, from: usize, to: usize, longest: usize) -> Vec<usize> {
    let mut chain = vec![from];
    let (first, last) = (items[from].layer, items[to].layer);
    let is_short = last.saturating_sub(first) <= longest;
    for layer in (first + 1..last).filter(|_| is_short) {
        chain.push(items.len());
        items.push(Item { layer, y: 0.0, width: 0.0, height: POINT_HEIGHT, left: vec![], right: vec![] });
    }
    chain.push(to);
    for pair in chain.windows(2) {
        items[pair[0]].right.push(pair[1]);
        items[pair[1]].left.push(pair[0]);
    }
    chain
}

/// Orders each layer by the mean position of neighbours.
fn order(items: &mut [Item], columns: &mut [Vec<usize>], work: &mut Work) -> Result<()> {
    for column in columns.iter() {
        column.iter().enumerate().for_each(|(place, &k)| items[k].y = place as f64);
    }
    for round in 0..ROUNDS {
        let rightwards = round % 2 == 0;
        let n = columns.len();
        for at in 0..n {
            let column = &mut columns[if rightwards { at } else { n - 1 - at }];
            work.add(neighbours(items, column))?;
            let mean = |k: usize| {
                let neighbours = if rightwards { &items[k].left } else { &items[k].right };
                mean_of(neighbours.iter().map(|&other| items[other].y)).unwrap_or(items[k].y)
            };
            let mut keyed: Vec<(f64, usize)> = column.iter().map(|&k| (mean(k), k)).collect();
            keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
            *column = keyed.into_iter().map(|(_, k)| k).collect();
            column.iter().enumerate().for_each(|(place, &k)| items[k].y = place as f64);
        }
    }
    Ok(())
}

/// The approximate number of operations to visit a column and its neighbours.
fn neighbours(items: &[Item], column: &[usize]) -> usize {
    column.iter().map(|&k| STEP + items[k].left.len() + items[k].right.len()).sum()
}

fn mean_of(numbers: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut sum, mut n) = (0.0, 0.0);
    numbers.for_each(|x| {
        sum += x;
        n += 1.0;
    });
    (n > 0.0).then(|| sum / n)
}

/// Assigns heights as near to the neighbours' mean as order and gaps allow.
fn straighten(items: &mut [Item], columns: &[Vec<usize>], work: &mut Work) -> Result<()> {
    for column in columns {
        let mut y = 0.0;
        for &k in column {
            items[k].y = y + items[k].height / 2.0;
            y += items[k].height + GAP_Y;
        }
    }
    for round in 0..2 * ROUNDS {
        let n = columns.len();
        for at in 0..n {
            let column = &columns[if round % 2 == 0 { at } else { n - 1 - at }];
            work.add(neighbours(items, column))?;
            let wanted: Vec<f64> = column
                .iter()
                .map(|&k| {
                    let neighbours = items[k].left.iter().chain(&items[k].right);
                    mean_of(neighbours.map(|&other| items[other].y)).unwrap_or(items[k].y)
                })
                .collect();
            let heights = fitted(&wanted, &column.iter().map(|&k| items[k].height).collect::<Vec<_>>());
            column.iter().zip(heights).for_each(|(&k, y)| items[k].y = y);
        }
    }
    Ok(())
}

/// Heights in the given order with gaps between them, nearest to the wanted ones in least squares: overlapping
/// neighbours are joined to groups, each placed at its mean.
fn fitted(wanted: &[f64], heights: &[f64]) -> Vec<f64> {
    let mut offset = 0.0;
    let mut offsets = Vec::with_capacity(wanted.len());
    for (k, height) in heights.iter().enumerate() {
        offset += if k == 0 { 0.0 } else { (heights[k - 1] + height) / 2.0 + GAP_Y };
        offsets.push(offset);
    }
    // Groups of (sum, count): without their offsets, heights must not decrease.
    let mut groups: Vec<(f64, f64)> = Vec::new();
    for (want, offset) in wanted.iter().zip(&offsets) {
        let mut group = (want - offset, 1.0);
        while let Some(last) = groups.last().copied().filter(|last| last.0 / last.1 > group.0 / group.1) {
            groups.pop();
            group = (group.0 + last.0, group.1 + last.1);
        }
        groups.push(group);
    }
    let each = groups.iter().flat_map(|&(sum, n)| std::iter::repeat_n(sum / n, n as usize));
    each.zip(offsets).map(|(y, offset)| y + offset).collect()
}

/// Converts layers and heights to coordinates from 0 upwards.
fn placed(
    items: &[Item],
    columns: &[Vec<usize>],
    chains: &[Vec<usize>],
    n_boxes: usize,
    work: &mut Work,
) -> Result<Layout> {
    let top = items.iter().map(|item| item.y - item.height / 2.0).fold(f64::INFINITY, f64::min);
    let mut lefts = Vec::new();
    let mut widths = Vec::new();
    let mut x = 0.0;
    for column in columns {
        let width = column.iter().map(|&k| items[k].width).fold(0.0, f64::max);
        lefts.push(x);
        widths.push(width);
        x += width + GAP_X;
    }
    let place = |k: usize| {
        let item = &items[k];
        let x = lefts[item.layer] + (widths[item.layer] - item.width) / 2.0;
        Rect { x, y: item.y - item.height / 2.0 - top, width: item.width, height: item.height }
    };
    let boxes: Vec<Rect> = (0..n_boxes).map(place).collect();
    let line = |chain: &Vec<usize>| {
        let mut points: Vec<(f64, f64)> = Vec::new();
        for (at, &k) in chain.iter().enumerate() {
            let y = items[k].y - top;
            let (left, right) = (lefts[items[k].layer], lefts[items[k].layer] + widths[items[k].layer]);
            // Straight across the layer's full width, because a wider box may lie above or below.
            points.extend(match at {
                0 => [(boxes[k].x + boxes[k].width, y), (right, y)],
                _ if at + 1 == chain.len() => [(left, y), (boxes[k].x, y)],
                _ => [(left, y), (right, y)],
            });
        }
        // An arrow takes its direction from its last segment, which must have a length.
        points.dedup_by(|next, last| (next.0 - last.0).abs() < 0.5);
        points
    };
    let lines = chains.iter().map(|chain| work.add(STEP * chain.len()).map(|()| line(chain))).collect::<Result<_>>()?;
    let height = boxes.iter().map(|place| place.y + place.height).fold(0.0, f64::max);
    Ok(Layout { boxes, lines, width: (x - GAP_X).max(0.0), height })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heights_keep_order_and_gaps_and_stay_near() {
        let heights = [10.0, 20.0, 10.0, 30.0];
        for wanted in [[0.0, 0.0, 0.0, 0.0], [5.0, 100.0, 90.0, 300.0], [50.0, 40.0, 30.0, 20.0]] {
            let found = fitted(&wanted, &heights);
            for k in 1..4 {
                assert!(found[k] - found[k - 1] >= (heights[k] + heights[k - 1]) / 2.0 + GAP_Y - 1e-9, "{found:?}");
            }
        }
        assert_eq!(fitted(&[0.0, 100.0, 200.0, 300.0], &heights), [0.0, 100.0, 200.0, 300.0]);
    }
}
