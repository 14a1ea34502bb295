//! Arithmetic, comparisons and selection over slices: the steps of elementwise chains of arrays.
//!
//! Promises: one IEEE operation per number, so the same bits on every level; a mask is 1 and 0 in the type of the numbers.
//! Does not know ops or shapes: a slice is a slice.

use super::float::{KernelFloat, Pack};
use super::levels::{Target, leveled};
use crate::simd::{Real, Truth};

leveled! {
    /// `z = x + y`.
    pub fn add_slices<E>(x: &[E], y: &[E], z: &mut [E]) = add_at;
    /// `z = x - y`.
    pub fn subtract_slices<E>(x: &[E], y: &[E], z: &mut [E]) = subtract_at;
    /// `z = x y`.
    pub fn multiply_slices<E>(x: &[E], y: &[E], z: &mut [E]) = multiply_at;
    /// `z = x / y`.
    pub fn divide_slices<E>(x: &[E], y: &[E], z: &mut [E]) = divide_at;
    /// `z = -x`.
    pub fn negate_slice<E>(x: &[E], z: &mut [E]) = negate_at;
    /// `z = |x|`.
    pub fn magnitudes<E>(x: &[E], z: &mut [E]) = magnitudes_at;
    /// `z = floor(x)`.
    pub fn floors<E>(x: &[E], z: &mut [E]) = floors_at;
    /// `z = ceil(x)`.
    pub fn ceilings<E>(x: &[E], z: &mut [E]) = ceilings_at;
    /// `z = sqrt(x)`.
    pub fn square_roots<E>(x: &[E], z: &mut [E]) = square_roots_at;
    /// `z = x < y`.
    pub fn less_slices<E>(x: &[E], y: &[E], z: &mut [E]) = less_at;
    /// `z = x <= y`.
    pub fn less_equal_slices<E>(x: &[E], y: &[E], z: &mut [E]) = less_equal_at;
    /// `z = (x == y)`.
    pub fn equal_slices<E>(x: &[E], y: &[E], z: &mut [E]) = equal_at;
    /// Whether x is a NaN.
    pub fn nan_masks<E>(x: &[E], z: &mut [E]) = nan_masks_at;
    /// Whether x is -0.0, the adjoint of an unreached node.
    pub fn unreached_masks<E>(x: &[E], z: &mut [E]) = unreached_masks_at;
    /// `z = yes` where the mask is not 0, else `no`.
    pub fn select_slices<E>(mask: &[E], yes: &[E], no: &[E], z: &mut [E]) = select_at;
    /// The contribution `c` of an adjoint `g`: unreached where that is, elsewhere never -0.0.
    pub fn contributions<E>(g: &[E], c: &[E], z: &mut [E]) = contributions_at;
    /// The same of the contribution `g c`.
    pub fn contributed_products<E>(g: &[E], c: &[E], z: &mut [E]) = contributed_products_at;
    /// `z = x y + c`, rounded once where the CPU fuses.
    pub fn multiply_adds<E>(x: &[E], y: &[E], c: &[E], z: &mut [E]) = multiply_adds_at;
    /// The same of an adjoint `g` and a factor, never -0.0; c where g is unreached.
    pub fn reached_multiply_adds<E>(g: &[E], y: &[E], c: &[E], z: &mut [E]) = reached_multiply_adds_at;
    /// Adds the product of each number of `x` and each of `y` to `total`, row by row; products with unreached adjoints,
    /// which may be one of the two, are skipped.
    pub fn add_products<E>(x: &[E], y: &[E], adjoint: [bool; 2], total: &mut [E]) = add_products_at;
    /// `total += x`.
    pub fn add_to<E>(x: &[E], total: &mut [E]) = add_to_at;
    /// `total *= x`.
    pub fn multiply_to<E>(x: &[E], total: &mut [E]) = multiply_to_at;
    /// The larger of both, NaN if one is a NaN; the sum of two zeros.
    pub fn larger_to<E>(x: &[E], total: &mut [E]) = larger_to_at;
    /// The smaller of both, NaN if either is NaN; of two zeros the negative one, if any.
    pub fn smaller_to<E>(x: &[E], total: &mut [E]) = smaller_to_at;
    /// Adds number i of `x` to running sum i % 8 of eight.
    pub fn add_to_eight<E>(x: &[E], sums: &mut [E]) = add_to_eight_at;
    /// The sums of rows of `n` numbers, each as [`add_to_eight`] and the eight as one tree.
    pub fn sums_of_rows<E>(x: &[E], n: usize, sums: &mut [E]) = sums_of_rows_at;
    /// The contributions of an adjoint `g` of the extreme `y` of x: numbers equal to it share it, the others get `lost`; all are
    /// NaN if the extreme is, and `g` if that is unreached.
    pub fn extreme_shares<E>(g: E, x: &[E], y: E, lost: E, to: &mut [E]) = extreme_shares_at;
    /// The contributions to rows of an adjoint `g` of each row's extreme `y`: numbers equal to it share it, the others
    /// are unreached; all are NaN if the extreme is.
    pub fn shares_of_extremes<E>(g: &[E], x: &[E], y: &[E], z: &mut [E]) = shares_of_extremes_at;
    /// As [`larger_to`], number i to the largest i % 8.
    pub fn larger_of_eight<E>(x: &[E], tops: &mut [E]) = larger_of_eight_at;
    /// As [`smaller_to`], number i to the smallest i % 8.
    pub fn smaller_of_eight<E>(x: &[E], tops: &mut [E]) = smaller_of_eight_at;
}

#[inline(always)]
pub(super) fn mask<V: Pack>(truth: V::Mask) -> V {
    V::select(truth, V::of(1.0), V::of(0.0))
}

/// For equal numbers, zeros of either sign included, or a NaN.
#[inline(always)]
fn tie<V: Pack>(x: V, y: V) -> V {
    V::select(x.is_eq(V::of(0.0)), x + y, V::select(x.is_nan(), x, y))
}

#[inline(always)]
pub(super) fn larger<V: Pack>(x: V, y: V) -> V {
    V::select(y.is_lt(x), x, V::select(x.is_lt(y), y, tie(x, y)))
}

#[inline(always)]
pub(super) fn smaller<V: Pack>(x: V, y: V) -> V {
    V::select(x.is_lt(y), x, V::select(y.is_lt(x), y, -tie(-x, -y)))
}

#[inline(always)]
pub(super) fn unreached<V: Pack>(x: V) -> V::Mask {
    x.is_eq(V::of(0.0)) & V::of(1.0).copysign(x).is_lt(V::of(0.0))
}

/// `name(x, y) => z` defines the body of a kernel that writes `z`, an expression over vectors named like the input
/// slices. The last vector overlaps the previous one, or is padded, so every number takes the same path.
macro_rules! elementwise {
    ($($name:ident($($arg:ident),*) => $z:expr;)*) => {$(
        #[inline(always)]
        fn $name<E: KernelFloat, T: Target>($($arg: &[E],)* z: &mut [E]) {
            $(assert_eq!($arg.len(), z.len(), "kernel operands differ in length");)*
            let width = <T::Each<E>>::LANES;
            let whole = z.len() / width * width;
            let mut at = 0;
            while at < whole {
                // SAFETY: `at + width <= whole`, at most the length of every slice.
                unsafe {
                    $(let $arg = <T::Each<E>>::read($arg, at);)*
                    $z.write(z, at);
                }
                at += width;
            }
            if at < z.len() && whole > 0 {
                let at = z.len() - width;
                // SAFETY: as above. Overlapping numbers are computed twice.
                unsafe {
                    $(let $arg = <T::Each<E>>::read($arg, at);)*
                    $z.write(z, at);
                }
            } else if at < z.len() {
                $(let $arg = <T::Each<E>>::read_or(&$arg[at..], E::default());)*
                $z.write_some(&mut z[at..]);
            }
        }
    )*};
}

elementwise! {
    add_at(x, y) => (x + y);
    subtract_at(x, y) => (x - y);
    multiply_at(x, y) => (x * y);
    divide_at(x, y) => (x / y);
    negate_at(x) => (-x);
    magnitudes_at(x) => x.abs();
    floors_at(x) => x.whole_below();
    ceilings_at(x) => x.whole_above();
    square_roots_at(x) => x.sqrt();
    less_at(x, y) => mask::<T::Each<E>>(x.is_lt(y));
    less_equal_at(x, y) => mask::<T::Each<E>>(x.is_le(y));
    equal_at(x, y) => mask::<T::Each<E>>(x.is_eq(y));
    nan_masks_at(x) => mask::<T::Each<E>>(x.is_nan());
    unreached_masks_at(x) => mask::<T::Each<E>>(unreached(x));
    select_at(mask, yes, no) => <T::Each<E>>::select(mask.is_eq(<T::Each<E>>::of(0.0)), no, yes);
    contributions_at(g, c) => <T::Each<E>>::select(unreached(g), g, c + <T::Each<E>>::of(0.0));
    contributed_products_at(g, c) => <T::Each<E>>::select(unreached(g), g, g * c + <T::Each<E>>::of(0.0));
    multiply_adds_at(x, y, c) => T::mul_add(x, y, c);
    reached_multiply_adds_at(g, y, c) => reached_multiply_add::<_, T>(g, y, c);
}

#[inline(always)]
pub(super) fn reached_multiply_add<V: Pack, T: Target>(g: V, y: V, z: V) -> V {
    V::select(unreached(g), z, T::mul_add(g, y, z) + V::of(0.0))
}

#[inline(always)]
fn add_products_at<E: KernelFloat, T: Target>(x: &[E], y: &[E], adjoint: [bool; 2], total: &mut [E]) {
    assert_eq!(x.len() * y.len(), total.len(), "kernel operands differ in length");
    let (width, n) = (E::Vector::LANES, y.len());
    let whole = n / width * width;
    let added = |x: E::Vector, y: E::Vector, sum: E::Vector| {
        let product = sum + (x * y + E::Vector::of(0.0));
        if adjoint[1] { E::Vector::select(unreached(y), sum, product) } else { product }
    };
    for (&x, total) in x.iter().zip(total.chunks_exact_mut(n.max(1))) {
        if adjoint[0] && unreached(E::V::<1>::splat(x)).any() {
            continue;
        }
        let x = E::Vector::splat(x);
        let mut at = 0;
        while at < whole {
            // SAFETY: `at + width <= whole`, at most the length of both rows.
            unsafe { added(x, E::Vector::read(y, at), E::Vector::read(total, at)).write(total, at) };
            at += width;
        }
        if at < n {
            let (y, before) = (E::Vector::read_or(&y[at..], E::default()), &mut total[at..]);
            let sum = E::Vector::read_or(before, E::default());
            added(x, y, sum).write_some(before);
        }
    }
}

/// The same for kernels that update their output.
macro_rules! in_place {
    ($($name:ident |$x:ident, $total:ident| $z:expr;)*) => {$(
        #[inline(always)]
        fn $name<E: KernelFloat, T: Target>(x: &[E], total: &mut [E]) {
            assert_eq!(x.len(), total.len(), "kernel operands differ in length");
            let width = <T::Each<E>>::LANES;
            let whole = total.len() / width * width;
            let mut at = 0;
            while at < whole {
                // SAFETY: `at + width <= whole`, at most the length of both slices.
                unsafe {
                    let ($x, $total) = (<T::Each<E>>::read(x, at), <T::Each<E>>::read(total, at));
                    $z.write(total, at);
                }
                at += width;
            }
            if at < total.len() {
                let ($x, before) = (<T::Each<E>>::read_or(&x[at..], E::default()), &mut total[at..]);
                let $total = <T::Each<E>>::read_or(before, E::default());
                $z.write_some(before);
            }
        }
    )*};
}

in_place! {
    add_to_at |x, total| total + x;
    multiply_to_at |x, total| (total * x);
    larger_to_at |x, total| larger(total, x);
    smaller_to_at |x, total| smaller(total, x);
}

#[inline(always)]
fn add_to_eight_at<E: KernelFloat, T: Target>(x: &[E], sums: &mut [E]) {
    assert_eq!(sums.len(), 8, "eight running results are expected");
    let (eights, rest) = x.as_chunks::<8>();
    // SAFETY: all have eight numbers.
    unsafe {
        let add = |sum: E::V<8>, x: &[E; 8]| sum + E::V::<8>::read(x, 0);
        eights.iter().fold(E::V::<8>::read(sums, 0), add).write(sums, 0);
    }
    rest.iter().zip(sums).for_each(|(&x, sum)| *sum = *sum + x);
}

/// The extremes of eights, from `first` and otherwise from `start`. The order cannot affect the bits, so four vectors are used,
/// because each operation waits for the previous one: the maximum of numbers in cache takes a third of the time.
#[inline(always)]
fn folded<E: KernelFloat>(
    eights: &[[E; 8]],
    first: E::V<8>,
    start: f64,
    mut next: impl FnMut(E::V<8>, E::V<8>) -> E::V<8>,
    join: impl Fn(E::V<8>, E::V<8>) -> E::V<8>,
) -> E::V<8> {
    let start = E::V::<8>::of(start);
    let mut all = [first, start, start, start];
    let (fours, rest) = eights.as_chunks::<4>();
    for four in fours {
        for (total, x) in all.iter_mut().zip(four) {
            // SAFETY: `x` has eight numbers.
            *total = next(*total, unsafe { E::V::<8>::read(x, 0) });
        }
    }
    for x in rest {
        // SAFETY: as above.
        all[0] = next(all[0], unsafe { E::V::<8>::read(x, 0) });
    }
    let [first, rest @ ..] = all;
    rest.into_iter().fold(first, join)
}

/// Departure from the exact comparison of each number: one instruction of the CPU, which passes over NaN and the signs of zeros;
/// if there is a NaN, or an extreme is 0, all is done again.
macro_rules! extremes_of_eight {
    ($($name:ident from $start:expr, $beats:ident, $exact:ident;)*) => {$(
        #[inline(always)]
        fn $name<E: KernelFloat, T: Target>(x: &[E], tops: &mut [E]) {
            assert_eq!(tops.len(), 8, "eight running results are expected");
            let (eights, rest) = x.as_chunks::<8>();
            // SAFETY: `tops` has eight numbers.
            let first = unsafe { E::V::<8>::read(tops, 0) };
            let mut is_nan = first.is_nan();
            let quick = |top: E::V<8>, x: E::V<8>| {
                is_nan = is_nan | x.is_nan();
                E::V::<8>::select(x.$beats(top), x, top)
            };
            let mut found = folded::<E>(eights, first, $start, quick, $exact::<E::V<8>>);
            if (is_nan | found.is_eq(E::V::<8>::of(0.0))).any() {
                found = folded::<E>(eights, first, $start, $exact::<E::V<8>>, $exact::<E::V<8>>);
            }
            // SAFETY: as above.
            unsafe { found.write(tops, 0) };
            for (&x, top) in rest.iter().zip(tops) {
                *top = $exact(E::V::<1>::splat(*top), E::V::<1>::splat(x)).lane(0);
            }
        }
    )*};
}

extremes_of_eight! {
    larger_of_eight_at from f64::NEG_INFINITY, is_gt, larger;
    smaller_of_eight_at from f64::INFINITY, is_lt, smaller;
}

/// Many short rows in one call: 16 numbers cost as much as one call for a single row.
#[inline(always)]
fn sums_of_rows_at<E: KernelFloat, T: Target>(x: &[E], n: usize, sums: &mut [E]) {
    assert_eq!(x.len(), n * sums.len(), "kernel operands differ in length");
    for (row, sum) in x.chunks_exact(n).zip(sums) {
        let mut total = E::V::<8>::of(-0.0);
        let whole = n / 8 * 8;
        let mut at = 0;
        while at < whole {
            // SAFETY: `at + 8 <= whole`, at most the length of the row.
            total = total + unsafe { E::V::<8>::read(row, at) };
            at += 8;
        }
        // The padding is -0.0, which does not change a sum.
        *sum = (total + E::V::<8>::read_or(&row[whole..], -E::default())).tree_sum();
    }
}

#[inline(always)]
pub(super) fn is_unreached<E: KernelFloat>(g: E) -> bool {
    unreached(E::V::<1>::splat(g)).any()
}

/// Departure from one loop: numbers are counted before they are written, so most are compared with nothing else in between.
#[inline(always)]
fn extreme_shares_at<E: KernelFloat, T: Target>(g: E, x: &[E], y: E, lost: E, to: &mut [E]) {
    assert_eq!(x.len(), to.len(), "kernel operands differ in length");
    if is_unreached(g) || y.partial_cmp(&y).is_none() {
        return to.fill(if is_unreached(g) { g } else { y });
    }
    let count: usize = x.iter().map(|&x| usize::from(x == y)).sum();
    let share = g / <E as Real>::of(count as f64) + <E as Real>::of(0.0);
    for (to, &x) in to.iter_mut().zip(x) {
        *to = if x == y { share } else { lost };
    }
}

#[inline(always)]
fn shares_of_extremes_at<E: KernelFloat, T: Target>(g: &[E], x: &[E], y: &[E], z: &mut [E]) {
    assert_eq!((x.len(), g.len()), (z.len(), y.len()), "kernel operands differ in length");
    let n = (z.len() / g.len().max(1)).max(1);
    for ((x, z), (&g, &y)) in x.chunks_exact(n).zip(z.chunks_exact_mut(n)).zip(g.iter().zip(y)) {
        extreme_shares_at::<E, T>(g, x, y, -E::default(), z);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_zeros_and_tails() {
        let x: Vec<f32> = (0..37).map(|k| [-0.0, 0.0, f32::NAN, 1.0, -2.0][k % 5]).collect();
        let mut z = vec![7.0; 37];
        unreached_masks(&x, &mut z);
        assert!(z.iter().enumerate().all(|(k, &z)| z == f32::from(u8::from(k % 5 == 0))));
        contributions(&x, &[-0.0f32; 37].map(|c| c), &mut z);
        assert!(z.iter().zip(&x).all(|(z, x)| z.to_bits() == if x.to_bits() == 1 << 31 { 1 << 31 } else { 0 }));
        let mut tops = [f64::NEG_INFINITY; 8];
        larger_of_eight(&[-0.0; 19], &mut tops);
        assert!(tops.iter().all(|t| t.to_bits() == 1 << 63));
        larger_of_eight(&[1.0, 0.0, f64::NAN], &mut tops);
        assert!(tops[0] == 1.0 && tops[1].to_bits() == 0 && tops[2].is_nan());
        for n in [1, 7, 8, 16, 21, 100] {
            let x: Vec<f64> = (0..3 * n).map(|k| ((k * 7919 % 1009) as f64 - 500.0) / 311.0).collect();
            let mut sums = [0.0; 3];
            sums_of_rows(&x, n, &mut sums);
            for (row, sum) in x.chunks(n).zip(sums) {
                let mut s = [-0.0; 8];
                add_to_eight(row, &mut s);
                let expected = ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
                assert_eq!(sum.to_bits(), f64::to_bits(expected), "{n}");
            }
        }
        for at in [0, 37, 64, 90] {
            let mut x = vec![-0.0; 99];
            x[at] = f64::NAN;
            let mut tops = [f64::NEG_INFINITY; 8];
            larger_of_eight(&x, &mut tops);
            let is_right = |k: usize| if k == at % 8 { tops[k].is_nan() } else { tops[k].to_bits() == 1 << 63 };
            assert!((0..8).all(is_right), "{at}");
        }
    }
}
