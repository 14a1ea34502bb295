//! Lane groups: their shape, and turning them so that a vector holds neighbours of one sample.
//!
//! Promises to move numbers, never to change them. Knows nothing of what they mean.

use super::float::{KernelFloat, Pack};

/// The number of elements in lane-major activations of `len` numbers.
#[inline(always)]
pub(super) fn features<const L: usize>(len: usize) -> usize {
    const { assert!(L == 2 || L == 4 || L == 8 || L == 16, "lane groups hold 2, 4, 8 or 16") };
    assert!(len.is_multiple_of(L), "activations in lanes must hold L numbers per element");
    len / L
}

/// Row r lane c becomes row c lane r: log2 L rounds of interleaving, each of which rotates the bits of (row, lane).
#[inline(always)]
pub(super) fn transposed<V: Pack, const L: usize>(mut rows: [V; L]) -> [V; L] {
    const { assert!(V::LANES == L) };
    for _ in 0..L.ilog2() {
        let before = rows;
        for r in 0..L / 2 {
            (rows[2 * r], rows[2 * r + 1]) = before[r].interleaved(before[r + L / 2]);
        }
    }
    rows
}

/// Elements `i..i + L` of lane-major `from`, as one vector of elements for each lane.
///
/// # Safety
/// `from` holds `(i + L) * L` numbers or more.
#[inline(always)]
pub(super) unsafe fn lanes_of<E: KernelFloat, const L: usize>(from: &[E], i: usize) -> [E::V<L>; L] {
    // SAFETY: `r < L`, as the caller promises.
    transposed(std::array::from_fn(|r| unsafe { E::V::read(from, (i + r) * L) }))
}

/// `to[l][i] = from[i][l]` for all elements i of `L` lanes.
#[inline(always)]
pub(super) fn transpose<E: KernelFloat, const L: usize>(from: &[E], to: &mut [E]) {
    let n = features::<L>(from.len());
    assert_eq!(to.len(), n * L);
    let mut i = 0;
    while n - i >= L {
        // SAFETY: `i + L <= n` and `l < L`, within the lengths checked above.
        unsafe {
            for (l, row) in lanes_of::<E, L>(from, i).into_iter().enumerate() {
                row.write(to, l * n + i);
            }
        }
        i += L;
    }
    for i in i..n {
        for l in 0..L {
            to[l * n + i] = from[i * L + l];
        }
    }
}
