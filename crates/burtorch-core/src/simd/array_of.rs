//! Arrays from a function of the index.

/// `[f(0), f(1), ...]`, like `std::array::from_fn` and `map`, for `Copy` values. The standard functions compile to a
/// dozen functions per use, because they handle values with a `Drop` if `f` panics; they were a fifth of the code that
/// the compiler received from this crate.
#[inline(always)]
pub(crate) fn array_of<T: Copy, const N: usize>(mut f: impl FnMut(usize) -> T) -> [T; N] {
    const { assert!(N > 0) };
    let mut all = [f(0); N];
    let mut k = 1;
    while k < N {
        all[k] = f(k);
        k += 1;
    }
    all
}
