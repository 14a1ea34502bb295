//! Messages between processes that share the clients: sums of complete subtrees.

use super::tree::TreeSum;
use crate::error::{Error, Result};

/// How processes that have the same clients' numbers, and different clients, learn of each other's sums.
pub trait Exchange: Send + Sync {
    /// Sends `own` to all processes, and sets `all` to what they sent, in the order of their clients. A process that
    /// cannot continue sends nothing; the others then get an error.
    fn gather(&self, own: &[f64], all: &mut Vec<f64>) -> Result<()>;
}

/// Adds up the data of all processes; returns the longest of their times.
pub(super) fn read(received: &[f64], width: usize, total: &mut TreeSum) -> Result<f64> {
    let wrong = || Error::BadArgument {
        what: "what processes sent",
        expected: "sums of clients, in their order".into(),
        found: "numbers of another length".into(),
    };
    total.begin(0..usize::MAX);
    let (mut rest, mut time) = (received, 0.0f64);
    while let [n, longest, more @ ..] = rest {
        time = time.max(*longest);
        let roots = (*n as usize).checked_mul(width + 1).and_then(|len| more.split_at_checked(len));
        let (roots, after) = roots.ok_or_else(wrong)?;
        for root in roots.chunks_exact(width + 1) {
            total.push(root[0] as usize, width)?.copy_from_slice(&root[1..]);
        }
        rest = after;
    }
    total.end();
    if rest.is_empty() && total.roots().len() <= 1 { Ok(time) } else { Err(wrong()) }
}
