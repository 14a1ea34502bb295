//! The memory of a plan: buffers shared by values with disjoint lifetimes, and the stored numbers.
//!
//! Promises: memory is allocated when a plan is made, never later, and a failure is an error. Knows only the order of
//! steps.

use std::any::Any;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::super::instr::{Data, Shared};
use super::draft::{Kept, Need};
use super::place::Source;
use crate::error::Result;
use crate::memory::{ZeroBytes, list_for, zeros};

/// `len` times 0, or an error if there is no memory.
pub(super) fn room<T: ZeroBytes>(len: usize) -> Result<Vec<T>> {
    zeros(len, "an array program")
}

/// Numbers that a plan keeps.
#[derive(Clone, Debug)]
pub(super) enum Numbers<T> {
    Own(Vec<T>),
    Shared(Shared<Data>),
}

impl<T: 'static> Numbers<T> {
    fn get(&self) -> &[T] {
        let shared: &dyn Any = match self {
            Numbers::Own(numbers) => return numbers,
            Numbers::Shared(data) => match &*data.0 {
                Data::F64(x) => x,
                Data::F32(x) => x,
                Data::Int(x) => x,
                Data::Mask(x) => x,
            },
        };
        shared.downcast_ref::<Vec<T>>().map_or(&[], |x| x)
    }
}

/// Constants and buffers of one element type.
#[derive(Clone, Debug)]
pub(super) struct Bank<T> {
    consts: Vec<Numbers<T>>,
    pub(super) buffers: Vec<Vec<T>>,
    /// What loops stack whose number of steps is not fixed. They grow when such a loop takes more steps than ever before.
    pub(super) stacks: Vec<Vec<T>>,
}

impl<T: 'static> Bank<T> {
    pub(super) fn n_consts(&self) -> usize {
        self.consts.len()
    }

    /// Numbers of all constants and buffers.
    pub(super) fn total(&self) -> usize {
        let consts: usize = self.consts.iter().map(|numbers| numbers.get().len()).sum();
        consts + self.buffers.iter().map(Vec::len).sum::<usize>()
    }

    /// What a source holds; `given` finds arguments and parameters.
    pub(super) fn read<'s, 'a: 's>(&'s self, source: Source, given: &impl Fn(Source) -> &'a [T]) -> &'s [T] {
        match source {
            Source::Const(k) => self.consts[k].get(),
            Source::Buffer(k) => &self.buffers[k],
            other => given(other),
        }
    }
}

/// Constants of a type: those of others are empty, so that numbers stay.
pub(super) fn bank<T: Clone + ZeroBytes + 'static>(
    kept: &[Kept],
    (sizes, stacks): (&[usize], usize),
    own: impl Fn(&Kept) -> Option<Vec<T>>,
) -> Result<Bank<T>> {
    let consts = kept
        .iter()
        .map(|kept| match (kept, own(kept)) {
            (_, Some(numbers)) => Numbers::Own(numbers),
            (Kept::Data(data), None) => Numbers::Shared(data.clone()),
            (_, None) => Numbers::Own(Vec::new()),
        })
        .collect();
    let buffers = sizes.iter().map(|&len| room(len)).collect::<Result<_>>()?;
    let mut no_stacks = list_for(stacks, "an array program")?;
    no_stacks.resize_with(stacks, Vec::new);
    Ok(Bank { consts, buffers, stacks: no_stacks })
}

/// Free buffers: for each of their sizes, in ascending order, those of it. Programs have few sizes.
#[derive(Default)]
struct Free(Vec<(usize, Vec<usize>)>);

impl Free {
    fn give(&mut self, size: usize, buffer: usize) {
        match self.0.binary_search_by_key(&size, |of| of.0) {
            Ok(at) => self.0[at].1.push(buffer),
            Err(at) => self.0.insert(at, (size, vec![buffer])),
        }
    }

    /// The smallest one of at least this size, else the largest.
    fn take(&mut self, size: usize) -> Option<usize> {
        let at = self.0.partition_point(|of| of.0 < size).min(self.0.len().checked_sub(1)?);
        let taken = self.0[at].1.pop();
        if self.0[at].1.is_empty() {
            self.0.remove(at);
        }
        taken
    }
}

/// Buffers for needs: for each need that is read its buffer, and the sizes of the buffers of floats and of integers.
///
/// In words: needs in the order of their first step; buffers whose last step has passed are free; the smallest free one that
/// is large enough is taken, else the largest one grows.
pub(super) fn assigned(needs: &[Need]) -> (Vec<usize>, [Vec<usize>; 2]) {
    let mut order: Vec<_> = (0..needs.len()).filter(|&k| needs[k].is_read).collect();
    // An argument, whose place among the instructions says nothing, before what takes it over.
    order.sort_by_key(|&k| (needs[k].first, needs[k].takes_over.is_some()));
    let mut is_taken_over = vec![false; needs.len()];
    needs.iter().filter(|need| need.is_read).filter_map(|need| need.takes_over).for_each(|k| is_taken_over[k] = true);
    let mut buffers = vec![usize::MAX; needs.len()];
    let mut sizes = [Vec::new(), Vec::new()];
    let mut free: [Free; 2] = Default::default();
    // Those in use, as a heap with the one that ends first on top.
    let mut used: BinaryHeap<Reverse<(usize, usize, usize, usize)>> = BinaryHeap::new();
    for k in order {
        let need = &needs[k];
        let kind = usize::from(need.is_int);
        while let Some(&Reverse((last, kind, buffer, owner))) = used.peek() {
            if last >= need.first {
                break;
            }
            used.pop();
            if !is_taken_over[owner] {
                free[kind].give(sizes[kind][buffer], buffer);
            }
        }
        if let Some(before) = need.takes_over {
            buffers[k] = buffers[before];
            used.push(Reverse((need.last, kind, buffers[k], k)));
            continue;
        }
        let (sizes, free) = (&mut sizes[kind], &mut free[kind]);
        let buffer = free.take(need.len).unwrap_or_else(|| {
            sizes.push(0);
            sizes.len() - 1
        });
        sizes[buffer] = sizes[buffer].max(need.len);
        buffers[k] = buffer;
        used.push(Reverse((need.last, kind, buffer, k)));
    }
    (buffers, sizes)
}
