//! Everything atomic in the crate but the instruction level: identities.

use std::sync::atomic::{AtomicU64, Ordering};

/// The next identity to give out. Relaxed: only uniqueness matters, nothing else is published through it.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// An identity that no other graph or set of parameters of this process has.
pub(crate) fn unique_id() -> u64 {
    NEXT_ID.fetch_add(1, Ordering::Relaxed)
}
