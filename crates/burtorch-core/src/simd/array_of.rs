//! Arrays made by place.

/// `[f(0), f(1), ...]`, as `std::array::from_fn` and `map` make it, of values that are copied. Those are a dozen functions to
/// compile for each use, as they look after values that have a `Drop` while `f` panics; they were a fifth of what the compiler
/// was given of this crate.
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
