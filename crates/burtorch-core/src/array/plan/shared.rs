//! Two functions of the same numbers in one pass, where they share most of their work.
//!
//! Promises: the bits of each function alone. Does not know how they are computed.

use std::collections::HashMap;

use super::super::expansion::MathOp;
use super::math::BlockOp;
use super::work::{Arg, Work};
use crate::ops::Function;
use crate::simd::twins::Twins;

/// The two functions as ones that are computed together, and whether they are the other way round.
fn twins_of(first: Function, second: Function) -> Option<(Twins, bool)> {
    let names = [first.name(), second.name()];
    Twins::ALL.iter().find_map(|&twins| match twins.names() {
        of if of == names => Some((twins, false)),
        [second, first] if [first, second] == names => Some((twins, true)),
        _ => None,
    })
}

/// The function that work computes, of what, and where to.
fn function(work: &Work) -> Option<(Function, Arg, Arg)> {
    match *work {
        Work::Compute { op: BlockOp::Math(MathOp::Function(function)), of, to } => {
            Some((function, of[0], Arg::Block(to)))
        }
        Work::Keep { op: BlockOp::Math(MathOp::Function(function)), of, buffer } => {
            Some((function, of[0], Arg::Buffer(buffer)))
        }
        _ => None,
    }
}

fn are_twins(first: &Work, second: &Work) -> Option<Work> {
    let ((f, of, y), (g, of_second, z)) = (function(first)?, function(second)?);
    let (twins, is_swapped) = (of == of_second).then(|| twins_of(f, g)).flatten()?;
    let (functions, to) = if is_swapped { ([g, f], [z, y]) } else { ([f, g], [y, z]) };
    Some(Work::Twins { twins, functions, of, to })
}

/// The same work with the second of two such functions right behind the first. Each block is written once.
pub(super) fn side_by_side(work: Vec<Work>) -> Vec<Work> {
    // The functions of the same numbers, in order.
    let mut all: HashMap<Arg, Vec<usize>> = HashMap::new();
    for (at, work) in work.iter().enumerate() {
        if let Some((_, of, _)) = function(work) {
            all.entry(of).or_default().push(at);
        }
    }
    let mut is_moved = vec![false; work.len()];
    let mut result = Vec::with_capacity(work.len());
    for (at, first) in work.iter().enumerate() {
        if is_moved[at] {
            continue;
        }
        result.push(*first);
        let others = function(first).and_then(|(_, of, _)| all.get(&of));
        let is_second = |&&k: &&usize| k > at && !is_moved[k] && are_twins(first, &work[k]).is_some();
        if let Some(&k) = others.and_then(|others| others.iter().find(is_second)) {
            is_moved[k] = true;
            result.push(work[k]);
        }
    }
    result
}

/// The same work with such neighbours computed together.
pub(super) fn in_one_pass(work: Vec<Work>) -> Vec<Work> {
    let mut result: Vec<Work> = Vec::with_capacity(work.len());
    for work in work {
        match result.last().and_then(|last| are_twins(last, &work)) {
            Some(twins) => *result.last_mut().expect("there is a last one") = twins,
            None => result.push(work),
        }
    }
    result
}
