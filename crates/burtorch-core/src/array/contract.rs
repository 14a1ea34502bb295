//! Products of arrays: matrix products, sums over pairs of axes, and Einstein's notation, as methods of the builder.
//!
//! All of them become one product of matrices, with views before and after it; without a sum they become an elementwise
//! product. Promises: NumPy's rules for shapes. Does not know derivatives.

use super::build::ArrayBuilder;
use super::dims::{Axes, Dims, bad};
use super::instr::{ArrayOp, Dot, Element, Reduce, Slice, ValueId, View};
use crate::error::Result;
use crate::ops::Op;

impl ArrayBuilder {
    /// The matrix product, as NumPy's `@`: vectors, matrices and batches of them.
    pub fn matmul(&mut self, x: ValueId, y: ValueId) -> Result<ValueId> {
        self.whole(|b| {
            let is_sparse = |v| b.check(v).map(|()| b.type_of(v).element == Element::Sparse);
            if is_sparse(x)? || is_sparse(y)? {
                return b.sparse_product(x, y);
            }
            let [x, y] = b.factors([x, y])?;
            let (dx, dy) = (b.dims(x), b.dims(y));
            if dx.rank() == 0 || dy.rank() == 0 {
                return Err(bad("operands of a matrix product", "arrays with axes".into(), format!("{dx} and {dy}")));
            }
            // A vector is a row on the left and a column on the right; its axis goes again.
            let x = if dx.rank() == 1 { b.view(x, View::Reshape(Dims::new(&[1, dx[0]])?))? } else { x };
            let y = if dy.rank() == 1 { b.view(y, View::Reshape(Dims::new(&[dy[0], 1])?))? } else { y };
            let split =
                |dims: Dims| Ok((Dims::new(&dims[..dims.rank() - 2])?, [dims[dims.rank() - 2], dims[dims.rank() - 1]]));
            let ((batch_x, last_x), (batch_y, last_y)) = (split(b.dims(x))?, split(b.dims(y))?);
            if last_x[1] != last_y[0] {
                let expected = "shapes with equal inner extents".into();
                return Err(bad("operands of a matrix product", expected, format!("{dx} and {dy}")));
            }
            let batch = batch_x.broadcast(&batch_y)?;
            let x = b.broadcast_to(x, Dims::new(&[&batch, &last_x[..]].concat())?)?;
            let y = b.broadcast_to(y, Dims::new(&[&batch, &last_y[..]].concat())?)?;
            let z = b.matrix_product(x, y)?;
            let mut extents = batch.to_vec();
            extents.extend((dx.rank() > 1).then_some(last_x[0]));
            extents.extend((dy.rank() > 1).then_some(last_y[1]));
            b.view(z, View::Reshape(Dims::new(&extents)?))
        })
    }

    /// Both as integers, or as floats where one of them is.
    fn factors(&mut self, of: [ValueId; 2]) -> Result<[ValueId; 2]> {
        let is_float = of.iter().any(|&v| self.type_of(v).element == Element::Float);
        let mut found = of;
        for v in &mut found {
            *v = if is_float { self.convert(*v, Element::Float)? } else { self.countable(*v)? };
        }
        Ok(found)
    }

    /// The products of matrices with equal extents before them; of integers as sums of products, which are exact.
    fn matrix_product(&mut self, x: ValueId, y: ValueId) -> Result<ValueId> {
        if self.type_of(x).element == Element::Float {
            return self.push(ArrayOp::Dot(Dot::default()), &[x, y]);
        }
        let (dx, dy) = (self.dims(x), self.dims(y));
        let batch = dx.rank() - 2;
        let x = self.reshape(x, &[&dx[..], &[1]].concat())?;
        let y = self.reshape(y, &[&dy[..batch], &[1], &dy[batch..]].concat())?;
        let products = self.row(Op::Mul, &[x, y])?;
        self.reduce(Reduce::Sum, products, Some(&[-2]), false)
    }

    /// NumPy's `dot`: a product with a number, otherwise the sum over the last axis of `x` and the last but one of `y`.
    pub fn dot(&mut self, x: ValueId, y: ValueId) -> Result<ValueId> {
        self.check(x)?;
        self.check(y)?;
        match (self.dims(x).rank(), self.dims(y).rank()) {
            (0, _) | (_, 0) => self.row(Op::Mul, &[x, y]),
            (_, 1) | (1 | 2, 2) => self.matmul(x, y),
            (_, n) => self.tensordot(x, y, &[-1], &[n as isize - 2]),
        }
    }

    /// The sum over pairs of axes: the k-th of `axes_x` with the k-th of `axes_y`.
    pub fn tensordot(&mut self, x: ValueId, y: ValueId, axes_x: &[isize], axes_y: &[isize]) -> Result<ValueId> {
        self.check(x)?;
        self.check(y)?;
        let named = |dims: Dims, axes: &[isize]| -> Result<Vec<usize>> {
            Axes::of(&dims, Some(axes))?; // each once
            axes.iter().map(|&axis| dims.axis(axis)).collect()
        };
        let (dx, dy) = (self.dims(x), self.dims(y));
        let (of_x, of_y) = (named(dx, axes_x)?, named(dy, axes_y)?);
        if of_x.len() != of_y.len() || of_x.iter().zip(&of_y).any(|(&i, &j)| dx[i] != dy[j]) {
            let found = format!("axes {axes_x:?} of {dx} and {axes_y:?} of {dy}");
            return Err(bad("axes to sum over", "pairs of equal extents".into(), found));
        }
        let labels_x: Vec<usize> = (0..dx.rank()).collect();
        let mut labels_y: Vec<usize> = (dx.rank()..dx.rank() + dy.rank()).collect();
        of_x.iter().zip(&of_y).for_each(|(&i, &j)| labels_y[j] = i);
        let free = |labels: &[usize], axes: &[usize]| {
            labels.iter().enumerate().filter(|(k, _)| !axes.contains(k)).map(|(_, &label)| label).collect::<Vec<_>>()
        };
        let out = [free(&labels_x, &of_x), free(&labels_y, &of_y)].concat();
        self.whole(|b| b.contracted(vec![(x, labels_x), (y, labels_y)], &out))
    }

    /// NumPy's `einsum`: `"ij,jk->ik"`, with `...` for axes that broadcast, and without `->` for the labels that occur once.
    /// More than two operands are multiplied from the left.
    ///
    /// ```
    /// use burtorch_core::DType;
    /// use burtorch_core::array::{ArrayBuilder, Element};
    /// let mut b = ArrayBuilder::new(DType::Float64)?;
    /// let x = b.input(&[5, 2, 3], Element::Float)?;
    /// let y = b.input(&[3, 4], Element::Float)?;
    /// let z = b.einsum("...ij,jk->k...i", &[x, y])?;
    /// assert_eq!(&b.type_of(z).dims[..], [4, 5, 2]);
    /// # Ok::<(), burtorch_core::Error>(())
    /// ```
    pub fn einsum(&mut self, subscripts: &str, operands: &[ValueId]) -> Result<ValueId> {
        operands.iter().try_for_each(|&v| self.check(v))?;
        let ranks: Vec<_> = operands.iter().map(|&v| self.dims(v).rank()).collect();
        let (labels, out) = subscripts_of(subscripts, &ranks)?;
        self.whole(|b| b.contracted(operands.iter().copied().zip(labels).collect(), &out))
    }

    /// The product of operands with labelled axes, summed over the labels that are not in `out`.
    fn contracted(&mut self, operands: Vec<(ValueId, Vec<usize>)>, out: &[usize]) -> Result<ValueId> {
        // Extents by label: 1 broadcasts.
        let mut extents: Vec<(usize, usize)> = Vec::new();
        for (v, labels) in &operands {
            for (&label, &n) in labels.iter().zip(self.dims(*v).iter()) {
                match extents.iter_mut().find(|(l, _)| *l == label) {
                    Some((_, m)) if *m == n || n == 1 => {}
                    Some((_, m)) if *m == 1 => *m = n,
                    Some((_, m)) => {
                        return Err(bad("extents of one label", "equal".into(), format!("{m} and {n}")));
                    }
                    None => extents.push((label, n)),
                }
            }
        }
        let extent = |label: usize| extents.iter().find(|(l, _)| *l == label).map_or(1, |(_, n)| *n);
        let is_float = operands.iter().any(|(v, _)| self.type_of(*v).element == Element::Float);
        let mut ready = Vec::with_capacity(operands.len());
        for (mut v, mut labels) in operands {
            v = if is_float { self.convert(v, Element::Float)? } else { self.countable(v)? };
            let full: Vec<_> = labels.iter().map(|&label| extent(label)).collect();
            v = self.broadcast_to(v, Dims::new(&full)?)?;
            while let Some((i, j)) = repeated(&labels) {
                v = self.diagonal(v, 0, i as isize, j as isize)?;
                let label = labels.remove(j);
                labels.remove(i);
                labels.push(label);
            }
            ready.push((v, labels));
        }
        let mut rest = ready.into_iter();
        let Some(mut product) = rest.next() else {
            return Err(bad("operands", "at least one".into(), "none".into()));
        };
        product = self.without_own(product, rest.as_slice(), out)?;
        while let Some(next) = rest.next() {
            let others: Vec<_> = rest.as_slice().iter().flat_map(|(_, labels)| labels).copied().collect();
            let next = self.without_own(next, &[(product.0, [&product.1[..], &others].concat())], out)?;
            let wanted = [out, &others].concat();
            product = self.pair(product, next, &wanted)?;
        }
        let (v, labels) = product;
        let axes: Vec<_> =
            out.iter().map(|label| labels.iter().position(|l| l == label).unwrap_or(labels.len())).collect();
        self.transpose(v, &axes)
    }

    /// An operand summed over the labels that occur nowhere else.
    fn without_own(
        &mut self,
        (v, labels): (ValueId, Vec<usize>),
        others: &[(ValueId, Vec<usize>)],
        out: &[usize],
    ) -> Result<(ValueId, Vec<usize>)> {
        let stays = |label: &usize| out.contains(label) || others.iter().any(|(_, labels)| labels.contains(label));
        let own: Vec<isize> = (0..labels.len()).filter(|&k| !stays(&labels[k])).map(|k| k as isize).collect();
        if own.is_empty() {
            return Ok((v, labels));
        }
        let sum = self.reduce(Reduce::Sum, v, Some(&own), false)?;
        Ok((sum, labels.into_iter().filter(stays).collect()))
    }

    /// The product of two operands, summed over the labels that both have and `wanted` does not.
    fn pair(
        &mut self,
        (x, of_x): (ValueId, Vec<usize>),
        (y, of_y): (ValueId, Vec<usize>),
        wanted: &[usize],
    ) -> Result<(ValueId, Vec<usize>)> {
        let both: Vec<_> = of_x.iter().copied().filter(|label| of_y.contains(label)).collect();
        let (batch, summed): (Vec<_>, Vec<_>) = both.iter().partition(|label| wanted.contains(label));
        let left: Vec<_> = of_x.iter().copied().filter(|label| !both.contains(label)).collect();
        let right: Vec<_> = of_y.iter().copied().filter(|label| !both.contains(label)).collect();
        let extents = |dims: Dims, of: &[usize], labels: &[usize]| -> Vec<usize> {
            labels.iter().filter_map(|label| of.iter().position(|l| l == label)).map(|k| dims[k]).collect()
        };
        let (dx, dy) = (self.dims(x), self.dims(y));
        let of_batch = extents(dx, &of_x, &batch);
        let (m, n) = (extents(dx, &of_x, &left), extents(dy, &of_y, &right));
        let labels = [&batch[..], &left, &right].concat();
        let product = if summed.is_empty() {
            let x = self.arranged(x, &of_x, &[&batch, &left], &[&of_batch, &m, &vec![1; n.len()]])?;
            let y = self.arranged(y, &of_y, &[&batch, &right], &[&of_batch, &vec![1; m.len()], &n])?;
            return Ok((self.row(Op::Mul, &[x, y])?, labels));
        } else {
            let size = |extents: &[usize]| [extents.iter().product()];
            let k: [usize; 1] = size(&extents(dx, &of_x, &summed));
            let rows: Vec<usize> = if batch.is_empty() { vec![] } else { size(&of_batch).to_vec() };
            let x = self.arranged(x, &of_x, &[&batch, &left, &summed], &[&rows, &size(&m), &k])?;
            let y = self.arranged(y, &of_y, &[&batch, &summed, &right], &[&rows, &k, &size(&n)])?;
            self.matrix_product(x, y)?
        };
        Ok((self.reshape(product, &[&of_batch[..], &m, &n].concat())?, labels))
    }

    /// The axes in the order of `groups` of labels, with another shape.
    fn arranged(&mut self, x: ValueId, of: &[usize], groups: &[&[usize]], shape: &[&[usize]]) -> Result<ValueId> {
        let order: Vec<_> =
            groups.concat().iter().map(|label| of.iter().position(|l| l == label).unwrap_or(of.len())).collect();
        let x = self.transpose(x, &order)?;
        self.reshape(x, &shape.concat())
    }

    /// The elements on a diagonal of two axes, `offset` to the right of the main one, as a last axis.
    pub fn diagonal(&mut self, x: ValueId, offset: isize, axis1: isize, axis2: isize) -> Result<ValueId> {
        self.whole(|b| {
            b.check(x)?;
            let dims = b.dims(x);
            let (i, j) = (dims.axis(axis1)?, dims.axis(axis2)?);
            if i == j {
                return Err(bad("axes of a diagonal", "two different ones".into(), format!("{axis1} and {axis2}")));
            }
            let mut axes: Vec<_> = (0..dims.rank()).filter(|&axis| axis != i && axis != j).collect();
            let batch: Vec<_> = axes.iter().map(|&axis| dims[axis]).collect();
            axes.extend([i, j]);
            let x = b.transpose(x, &axes)?;
            let (rows, columns) = (dims[i] as isize, dims[j] as isize);
            let (row, column) = ((-offset).max(0), offset.max(0));
            let count = (rows - row).min(columns - column).max(0) as usize;
            let flat = b.reshape(x, &[&batch[..], &[dims[i] * dims[j]]].concat())?;
            let start = if count == 0 { 0 } else { (row * columns + column) as usize };
            let mut slices: Vec<_> = batch.iter().map(|&n| Slice::all(n)).collect();
            slices.push(Slice { start, step: columns + 1, count });
            b.slice(flat, &slices)
        })
    }
}

fn repeated(labels: &[usize]) -> Option<(usize, usize)> {
    (0..labels.len()).find_map(|i| (i + 1..labels.len()).find(|&j| labels[i] == labels[j]).map(|j| (i, j)))
}

/// The labels of the axes under `...` begin here, above all letters, and count from the last axis.
const ELLIPSIS: usize = 0x11_0000;

/// The labels of the axes of operands of these ranks, and of the result.
fn subscripts_of(subscripts: &str, ranks: &[usize]) -> Result<(Vec<Vec<usize>>, Vec<usize>)> {
    let wrong = |expected: &str| bad("subscripts of einsum", expected.to_string(), format!("{subscripts:?}"));
    let text: String = subscripts.chars().filter(|c| !c.is_whitespace()).collect();
    let (inputs, output) = match text.split_once("->") {
        Some((inputs, output)) => (inputs, Some(output)),
        None => (&text[..], None),
    };
    let terms: Vec<_> = inputs.split(',').collect();
    if terms.len() != ranks.len() {
        return Err(wrong(&format!("{} terms, one for each operand", ranks.len())));
    }
    // The labels of a term of `rank` axes, or of as many as it names.
    let labels_of = |term: &str, hidden: Option<usize>| -> Result<Vec<usize>> {
        let letters = |part: &str| -> Result<Vec<usize>> {
            if part.chars().all(|c| c.is_ascii_alphabetic()) {
                Ok(part.chars().map(|c| c as usize).collect())
            } else {
                Err(wrong("letters, commas, -> and ..."))
            }
        };
        match term.split_once("...") {
            Some((before, after)) => {
                let hidden = hidden.unwrap_or(0);
                let middle: Vec<_> = (0..hidden).rev().map(|k| ELLIPSIS + k).collect();
                Ok([letters(before)?, middle, letters(after)?].concat())
            }
            None => letters(term),
        }
    };
    let mut labels = Vec::with_capacity(terms.len());
    let mut most_hidden = 0;
    for (term, &rank) in terms.iter().zip(ranks) {
        let named = labels_of(term, None)?.len();
        let hidden = rank.checked_sub(named).filter(|&n| n == 0 || term.contains("..."));
        let hidden = hidden.ok_or_else(|| wrong(&format!("a term for each axis of an array of {rank} axes")))?;
        most_hidden = most_hidden.max(hidden);
        labels.push(labels_of(term, Some(hidden))?);
    }
    let out = match output {
        Some(output) => labels_of(output, Some(most_hidden))?,
        None => {
            let all: Vec<_> = labels.concat();
            let mut once: Vec<_> =
                all.iter().copied().filter(|l| all.iter().filter(|o| *o == l).count() == 1).collect();
            once.retain(|&label| label < ELLIPSIS);
            once.sort_unstable();
            (0..most_hidden).rev().map(|k| ELLIPSIS + k).chain(once).collect()
        }
    };
    let all = labels.concat();
    if repeated(&out).is_some() || out.iter().any(|label| !all.contains(label)) {
        return Err(wrong("each label of the result once, and in an operand"));
    }
    if all.iter().any(|label| *label >= ELLIPSIS && !out.contains(label)) {
        return Err(wrong("... in the result where operands have it"));
    }
    Ok((labels, out))
}
