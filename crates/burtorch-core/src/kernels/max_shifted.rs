//! Reductions of a row that need its largest number first: the Euclidean norm, and the logarithm of the sum of exponentials.
//!
//! Promises: no overflow and no harmful underflow, whatever the sign and size of the numbers; the order of `ops::sums`: number i
//! is added to running sum i % 8, and the eight as one tree. Rows have [`slices::SHORT`](super::slices::SHORT) numbers or more.
//! Does not know ops or arrays.

use super::arithmetic::{extreme_shares, is_unreached, larger_of_eight, smaller_of_eight};
use super::float::{KernelFloat, Pack};
use super::levels::{Target, columns, leveled};
use super::slices::{SHORT, table_of_type};
use crate::scalar::Scalar;
use crate::simd::{Elementary, Real, math};

/// Numbers of a row from which on a kernel is interrupted too late.
const LONGEST: usize = 1 << 22;

/// The kernels of rows that a scalar type has.
#[derive(Debug)]
pub struct RowKernels<S> {
    /// As [`kernels::larger_of_eight`](super::larger_of_eight).
    pub larger_of_eight: fn(&[S], &mut [S]),
    /// As [`kernels::smaller_of_eight`](super::smaller_of_eight).
    pub smaller_of_eight: fn(&[S], &mut [S]),
    /// As [`kernels::extreme_shares`](super::extreme_shares).
    pub extreme_shares: fn(S, &[S], S, S, &mut [S]),
    /// As [`norm2`].
    pub norm2: fn(&[S]) -> S,
    /// As [`norm2_shares`].
    pub norm2_shares: fn(S, &[S], S, &mut [S]),
    /// As [`log_sum_exp`].
    pub log_sum_exp: fn(&[S], &mut [S]) -> [S; 2],
}

impl<E: KernelFloat> RowKernels<E> {
    const KERNELS: Self =
        RowKernels { larger_of_eight, smaller_of_eight, extreme_shares, norm2, norm2_shares, log_sum_exp };
}

/// The kernels of a scalar type for rows of `n` numbers, if it has any.
pub fn row_kernels<S: Scalar>(n: usize) -> Option<&'static RowKernels<S>> {
    if (SHORT..LONGEST).contains(&n) { table_of_type!(RowKernels, S: f32, f64) } else { None }
}

leveled! {
    /// `sqrt(sum x_i^2)`; infinite beside an infinity, unless there is a NaN.
    pub fn norm2<E>(x: &[E]) -> E = norm2_at;
    /// The contributions `g x_i / y` of the adjoint of the norm y: 0 at the origin, and unreached if the adjoint is. Beside
    /// infinities, each of these has a part.
    pub fn norm2_shares<E>(g: E, x: &[E], y: E, to: &mut [E]) = norm2_shares_at;
    /// `log(sum exp x_i)`; `shares`, unless it is empty, receives the exponentials of x shifted by the largest number, and the last
    /// number of the result is their sum.
    pub fn log_sum_exp<E>(x: &[E], shares: &mut [E]) -> [E; 2] = log_sum_exp_at;
    /// The contributions `g (e_i / s)` of the adjoint of that logarithm, from the exponentials and their sum; unreached if
    /// the adjoint is.
    pub fn log_sum_exp_shares<E>(g: E, e: &[E], s: E, to: &mut [E]) = log_sum_exp_shares_at;
}

/// Magnitudes above `large` have squares that may overflow; below `small`, squares lose bits.
struct Scale<E> {
    large: E,
    small: E,
    down: E,
    up: E,
    /// From here on to half of `large`, a norm is that of unscaled numbers, however many there are.
    plain: E,
}

impl<E: KernelFloat> Scale<E> {
    #[inline(always)]
    fn new() -> Self {
        let exponents =
            if <E::Vector as Real>::DOUBLE { [500, -450, -600, 600, -418] } else { [60, -45, -70, 100, -13] };
        let [large, small, down, up, plain] = exponents.map(|exponent| E::of(f64::powi(2.0, exponent)));
        Scale { large, small, down, up, plain }
    }

    /// The power of two that keeps squares in range.
    #[inline(always)]
    fn factor(&self, top: E) -> E {
        if self.large < top {
            self.down
        } else if top < self.small {
            self.up
        } else {
            E::of(1.0)
        }
    }
}

/// Calls `f` with eight numbers at a time; the last ones are padded with 0.
#[inline(always)]
fn by_eight<E: KernelFloat>(x: &[E], mut f: impl FnMut(E::V<8>)) {
    let whole = x.len() / 8 * 8;
    let mut at = 0;
    while at < whole {
        // SAFETY: `at + 8 <= whole`, at most the length of the row.
        f(unsafe { E::V::<8>::read(x, at) });
        at += 8;
    }
    if at < x.len() {
        f(E::V::<8>::read_or(&x[at..], E::default()));
    }
}

/// Simply: the largest magnitude, then the sum of squares of numbers multiplied by the factor that it asks for. Departure: one pass, as
/// if the factor were 1, and another one if it is not.
#[inline(always)]
fn norm2_at<E: KernelFloat, T: Target>(x: &[E]) -> E {
    let mut tops = E::V::<8>::of(0.0);
    let mut sums = E::V::<8>::of(-0.0);
    by_eight::<E>(x, |x| {
        tops = tops.greater_of(x.abs());
        sums = sums + x * x;
    });
    let (top, sum, scale) = (tops.tree_max(), sums.tree_sum(), Scale::new());
    let factor = scale.factor(top);
    if sum.partial_cmp(&sum).is_none() || factor == <E as Real>::of(1.0) {
        return root(sum);
    }
    if top == <E as Real>::of(f64::INFINITY) { top } else { root(scaled_squares::<E>(x, factor)) / factor }
}

#[inline(always)]
fn root<E: KernelFloat>(x: E) -> E {
    E::V::<1>::splat(x).sqrt().lane(0)
}

#[inline(always)]
fn scaled_squares<E: KernelFloat>(x: &[E], factor: E) -> E {
    let (mut sums, factor) = (E::V::<8>::of(-0.0), E::V::<8>::splat(factor));
    by_eight::<E>(x, |x| sums = sums + (x * factor) * (x * factor));
    sums.tree_sum()
}

/// Departure from looking for the largest magnitude: an ordinary norm says that the factor is 1.
#[inline(always)]
fn norm2_shares_at<E: KernelFloat, T: Target>(g: E, x: &[E], y: E, to: &mut [E]) {
    let (zero, one, infinity) = (<E as Real>::of(0.0), <E as Real>::of(1.0), <E as Real>::of(f64::INFINITY));
    let scale = Scale::new();
    if is_unreached(g) || y == zero {
        return to.fill(if y == zero && !is_unreached(g) { zero } else { g });
    }
    if scale.plain < y && y + y < scale.large {
        return shares_at::<E, T>(g, x, y, to);
    }
    if y.partial_cmp(&y).is_none() {
        return to.fill(y);
    }
    let mut tops = E::V::<8>::of(0.0);
    by_eight::<E>(x, |x| tops = tops.greater_of(x.abs()));
    let top = tops.tree_max();
    if top == infinity {
        let part = |x: E| {
            if x == infinity {
                one
            } else if x == -infinity {
                -one
            } else {
                zero
            }
        };
        let count = x.iter().fold(zero, |count, &x| count + part(x) * part(x));
        let length = root(count);
        return to.iter_mut().zip(x).for_each(|(to, &x)| *to = g * (part(x) / length) + zero);
    }
    let factor = scale.factor(top);
    let length = root(scaled_squares::<E>(x, factor));
    to.iter_mut().zip(x).for_each(|(to, &x)| *to = g * ((x * factor) / length) + zero);
}

/// `g (x / s)`, never -0.0.
#[inline(always)]
fn shares_at<E: KernelFloat, T: Target>(g: E, x: &[E], s: E, to: &mut [E]) {
    assert_eq!(x.len(), to.len(), "kernel operands differ in length");
    columns!(E, to.len(), shares_step[](g, x, s, to));
}

/// # Safety
/// `j + V::LANES` is at most the length of both slices.
#[inline(always)]
unsafe fn shares_step<V: Pack>(j: usize, g: V::Elem, x: &[V::Elem], s: V::Elem, to: &mut [V::Elem]) {
    // SAFETY: as the caller promises.
    unsafe { (V::splat(g) * (V::read(x, j) / V::splat(s)) + V::of(0.0)).write(to, j) }
}

#[inline(always)]
fn log_sum_exp_shares_at<E: KernelFloat, T: Target>(g: E, e: &[E], s: E, to: &mut [E]) {
    if is_unreached(g) { to.fill(g) } else { shares_at::<E, T>(g, e, s, to) }
}

/// Running sums of exponentials.
struct Sums<E: KernelFloat> {
    /// Of all, of those below the largest, and how many equal it.
    all: E::V<8>,
    others: E::V<8>,
    ties: E::V<8>,
}

impl<E: KernelFloat> Sums<E> {
    /// Adds the exponentials of a vector whose first `count` lanes are numbers; returns them.
    #[inline(always)]
    fn add<T: Target>(&mut self, x: E::Vector, top: E::Vector, count: usize) -> E::Vector {
        let (zero, one) = (E::Vector::of(0.0), E::Vector::of(1.0));
        let is_top = x.is_eq(top);
        // The gap of two equal infinities is no number.
        let below = E::Vector::select(is_top, zero, x - top);
        let e = T::formula(|| math::exp(below), || Elementary::exp(below));
        let is_there = E::Vector::first(count);
        let e = E::Vector::select(is_there, e, zero);
        let ties = E::Vector::select(is_top & is_there, one, zero);
        for (sum, numbers) in
            [(&mut self.all, e), (&mut self.others, E::Vector::select(is_top, zero, e)), (&mut self.ties, ties)]
        {
            let mut lanes = [E::default(); 16];
            numbers.store(&mut lanes);
            for half in 0..E::Vector::LANES / 8 {
                // SAFETY: `lanes` has as many numbers as any vector.
                *sum = *sum + unsafe { E::V::<8>::read(&lanes, 8 * half) };
            }
        }
        e
    }
}

/// Simply: the largest number, and then `log(1 + sum of exp(x_i - top) of the others)`: a sum far below 1 is not lost. All that the
/// contributions need is computed on the way.
#[inline(always)]
fn log_sum_exp_at<E: KernelFloat, T: Target>(x: &[E], shares: &mut [E]) -> [E; 2] {
    let (width, lowest) = (E::Vector::LANES, <E as Real>::of(f64::NEG_INFINITY));
    let (whole, is_kept) = (x.len() / width * width, !shares.is_empty());
    assert!(!is_kept || shares.len() == x.len(), "kernel operands differ in length");
    // A NaN is passed over here; its exponential is NaN.
    let mut tops = [E::Vector::splat(lowest); 4];
    for (k, block) in x[..whole].chunks_exact(width).enumerate() {
        tops[k % 4] = tops[k % 4].greater_of(E::Vector::load(block));
    }
    let last = E::Vector::read_or(&x[whole..], lowest);
    let top = tops[0].greater_of(tops[1]).greater_of(tops[2].greater_of(tops[3])).greater_of(last).tree_max();
    let empty = E::V::<8>::of(-0.0);
    let mut sums: Sums<E> = Sums { all: empty, others: empty, ties: empty };
    let wide = E::Vector::splat(top);
    let mut at = 0;
    while at < whole {
        // SAFETY: `at + width <= whole`, at most the length of the row and of its shares.
        unsafe {
            let e = sums.add::<T>(E::Vector::read(x, at), wide, width);
            if is_kept {
                e.write(shares, at);
            }
        }
        at += width;
    }
    if at < x.len() {
        let e = sums.add::<T>(E::Vector::read_or(&x[at..], top), wide, x.len() - at);
        if is_kept {
            e.write_some(&mut shares[at..]);
        }
    }
    let one = <E as Real>::of(1.0);
    let rest = sums.others.tree_sum() + (sums.ties.tree_sum() - one);
    let log = E::V::<1>::splat(rest);
    let log = T::formula(|| math::log1p(log), || Elementary::log1p(log)).lane(0);
    [top + log, sums.all.tree_sum()]
}
