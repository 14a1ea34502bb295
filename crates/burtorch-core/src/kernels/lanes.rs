//! Lane groups: their shape, and their transposition, so that a vector contains neighbours of one sample.
//!
//! Promises: moves numbers and never changes them. Does not know their meaning.

use super::float::{KernelFloat, Pack};
use crate::simd::array_of;

/// The number of elements in lane-major activations of `len` numbers.
#[inline(always)]
pub(super) fn features<const L: usize>(len: usize) -> usize {
    const { assert!(L == 2 || L == 4 || L == 8 || L == 16 || L == 64, "lane groups hold 2, 4, 8, 16 or 64") };
    assert!(len.is_multiple_of(L), "activations in lanes must hold L numbers per element");
    len / L
}

/// Transposes: row r lane c becomes row c lane r, in log2 L rounds of interleaving, each of which rotates the bits of
/// (row, lane).
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

/// Lanes transposed together in groups of 64.
pub(super) const PART: usize = 16;

/// Calls `part::<E, L, P>(..)` with the number P of lanes to transpose together: a whole group, or a part of 64.
macro_rules! in_parts {
    ($part:ident::<$e:ident $(, $t:ident)? ; $l:ident>($($arg:expr),*)) => {
        if $l > $crate::kernels::lanes::PART {
            $part::<$e, $($t,)? $l, { $crate::kernels::lanes::PART }>($($arg),*)
        } else {
            $part::<$e, $($t,)? $l, $l>($($arg),*)
        }
    };
}
pub(super) use in_parts;

/// Elements `i..i + P` of `L` lanes, as one vector of elements for each of the `P` lanes from `lane` on.
///
/// # Safety
/// `from` holds at least `(i + P) * L` numbers, and `lane + P` is at most `L`.
#[inline(always)]
pub(super) unsafe fn lanes_of<E: KernelFloat, const L: usize, const P: usize>(
    from: &[E],
    i: usize,
    lane: usize,
) -> [E::V<P>; P] {
    debug_assert!((i + P) * L <= from.len() && lane + P <= L);
    // SAFETY: `r < P`, as the caller promises.
    transposed(array_of(|r| unsafe { E::V::read(from, (i + r) * L + lane) }))
}

/// `to[l][i] = from[i][l]` for all elements i of `L` lanes.
#[inline(always)]
pub(super) fn transpose<E: KernelFloat, const L: usize>(from: &[E], to: &mut [E]) {
    in_parts!(transpose_parts::<E; L>(from, to));
}

#[inline(always)]
fn transpose_parts<E: KernelFloat, const L: usize, const P: usize>(from: &[E], to: &mut [E]) {
    let n = features::<L>(from.len());
    assert_eq!(to.len(), n * L);
    let mut i = 0;
    while n - i >= P {
        for lane in (0..L).step_by(P) {
            // SAFETY: `i + P <= n` and `lane + l < L`, within the lengths checked above.
            unsafe {
                for (l, row) in lanes_of::<E, L, P>(from, i, lane).into_iter().enumerate() {
                    row.write(to, (lane + l) * n + i);
                }
            }
        }
        i += P;
    }
    for i in i..n {
        for l in 0..L {
            to[l * n + i] = from[i * L + l];
        }
    }
}
