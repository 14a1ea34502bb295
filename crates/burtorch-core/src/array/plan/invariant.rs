//! Work moved before loops, and work that nothing reads.
//!
//! Promises: the same numbers in the slots that are read. Does not know what operations do.

use super::fused::Item;

/// Calls for each slot that work writes.
pub(super) fn written(work: &[Item], each: &mut impl FnMut(usize)) {
    for item in work {
        match item {
            Item::Operation(operation) => each(operation.to),
            Item::Move { to, .. } => each(*to),
            Item::Choice { yes, no, .. } => [yes, no].into_iter().for_each(|work| written(work, each)),
            Item::Loop { condition, body, .. } => [condition, body].into_iter().for_each(|work| written(work, each)),
        }
    }
}

/// Moves operations that only read what a loop does not write before it, where slots are written so often in all; the results of
/// an operation that moves are written once.
pub(super) fn lift(work: &mut Vec<Item>, writes: &[usize]) {
    let mut at = 0;
    while at < work.len() {
        let mut before = Vec::new();
        match &mut work[at] {
            Item::Operation(_) | Item::Move { .. } => {}
            Item::Choice { yes, no, .. } => [yes, no].into_iter().for_each(|work| lift(work, writes)),
            Item::Loop { condition, body, .. } => {
                let mut changes = vec![false; writes.len()];
                for work in [&mut *condition, &mut *body] {
                    lift(work, writes);
                    written(work, &mut |slot| changes[slot] = true);
                }
                for work in [condition, body] {
                    work.retain(|item| {
                        let Item::Operation(operation) = item else { return true };
                        let of = &operation.of[..operation.arity()];
                        let moves = writes[operation.to] == 1 && of.iter().all(|&slot| !changes[slot]);
                        if moves {
                            changes[operation.to] = false;
                            before.push(item.clone());
                        }
                        !moves
                    });
                }
            }
        }
        let more = before.len();
        work.splice(at..at, before);
        at += more + 1;
    }
}

/// Removes what nothing reads, of so many slots; those `kept` are read afterwards.
pub(super) fn remove_unread(work: &mut Vec<Item>, slots: usize, kept: &[usize]) {
    loop {
        let mut is_read = vec![false; slots];
        kept.iter().for_each(|&slot| is_read[slot] = true);
        while read(work, &mut is_read) {}
        if !remove(work, &is_read) {
            return;
        }
    }
}

/// Notes what work reads whose results are read; whether that was news.
fn read(work: &[Item], is_read: &mut [bool]) -> bool {
    let mut any = false;
    // Readers mostly come later.
    for item in work.iter().rev() {
        let reads: &[usize] = match item {
            Item::Operation(operation) if is_read[operation.to] => &operation.of[..operation.arity()],
            Item::Move { from, to } if is_read[*to] => std::slice::from_ref(from),
            Item::Operation(_) | Item::Move { .. } => &[],
            Item::Choice { of, yes, no } => {
                any |= read(yes, is_read) | read(no, is_read);
                std::slice::from_ref(of)
            }
            Item::Loop { condition, of, body } => {
                any |= read(body, is_read) | read(condition, is_read);
                std::slice::from_ref(of)
            }
        };
        for &slot in reads {
            any |= !std::mem::replace(&mut is_read[slot], true);
        }
    }
    any
}

/// Whether a choice went, so that its mask may be unread.
fn remove(work: &mut Vec<Item>, is_read: &[bool]) -> bool {
    let mut any = false;
    work.retain_mut(|item| match item {
        Item::Operation(operation) => is_read[operation.to],
        Item::Move { from, to } => is_read[*to] && from != to,
        Item::Choice { yes, no, .. } => {
            any |= remove(yes, is_read) | remove(no, is_read);
            let stays = !yes.is_empty() || !no.is_empty();
            any |= !stays;
            stays
        }
        Item::Loop { condition, body, .. } => {
            any |= remove(condition, is_read) | remove(body, is_read);
            true
        }
    });
    any
}
