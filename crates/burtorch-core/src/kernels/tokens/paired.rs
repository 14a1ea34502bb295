//! A dense layer on `L` tokens that fill half a vector, as 8 tokens of f32 do: two neighbouring inputs side by side.
//!
//! Promises: an output is the sum over even inputs plus the sum over odd ones plus the bias, each sum in the order of
//! inputs; input gradients sum outputs in the order 0, 1, 2, ... on top of the earlier value, the bits of
//! `affine_input_grad_add_lanes`. Both the same on every level with fused multiply-add. Does not know weight gradients.

use crate::kernels::float::{KernelFloat, Pack};
use crate::kernels::lanes::features;
use crate::kernels::levels::{Target, leveled};
use crate::simd::{Real, array_of};
use crate::sync::stop::Pace;

leveled! {
    /// `y = W x + b` for each token: `x` is `n_in x L`, `y` is `n_out x L`, `w` is `n_out x n_in`.
    pub fn token_forward<E, const L>(w: &[E], bias: Option<&[E]>, x: &[E], y: &mut [E]) = forward_at;

    /// `dx += W^T dy` for each token.
    pub fn token_input_grad_add<E, const L>(w: &[E], dy: &[E], dx: &mut [E]) = input_grad_at;
}

/// Simply: for each output o, `y[o] = b[o] + sum over i of w[o][i] * x[i]`, vectors of tokens. Departures:
/// 1. A vector holds two inputs of each token in turn, so that it is full; the two weights come as one pair from where
///    they lie side by side. Half as many products where registers are twice as wide as the tokens: 1.8 times as fast.
/// 2. 12 outputs at once (4 where registers are few) share the loads of x.
#[inline(always)]
fn forward_at<E: KernelFloat, T: Target, const L: usize>(w: &[E], bias: Option<&[E]>, x: &[E], y: &mut [E]) {
    assert_eq!(<E::Vector as Real>::LANES, 2 * L, "tokens must fill half a vector");
    let (n_in, n_out) = (features::<L>(x.len()), features::<L>(y.len()));
    assert_eq!(w.len(), n_out * n_in, "a weight matrix must hold n_out x n_in numbers");
    if let Some(bias) = bias {
        assert_eq!(bias.len(), n_out, "a bias must hold one number per output");
    }
    let (mut o, mut pace) = (0, Pace::new());
    // SAFETY: the lengths were checked above.
    unsafe {
        if T::fits::<E::Vector>(12) {
            o = forward_tiles::<E, T, L, 12>(o, w, bias, x, y, &mut pace);
        }
        o = forward_tiles::<E, T, L, 4>(o, w, bias, x, y, &mut pace);
        o = forward_tiles::<E, T, L, 2>(o, w, bias, x, y, &mut pace);
        forward_last::<E, T, L>(o, w, bias, x, y);
    }
}

/// Outputs `R` (an even number) at a time from `o` on; returns the first output left over.
///
/// # Safety
/// `w` holds `n_out x n_in` numbers and `bias` `n_out`, where x holds `n_in * L` and y `n_out * L`.
#[inline(always)]
unsafe fn forward_tiles<E: KernelFloat, T: Target, const L: usize, const R: usize>(
    mut o: usize,
    w: &[E],
    bias: Option<&[E]>,
    x: &[E],
    y: &mut [E],
    pace: &mut Pace,
) -> usize {
    let (n_in, n_out) = (x.len() / L, y.len() / L);
    debug_assert_eq!(w.len(), n_out * n_in);
    while n_out - o >= R && pace.goes_on(R * n_in * L) {
        // SAFETY: `o + R <= n_out`, and the caller vouches for the lengths.
        unsafe {
            let sums = sums_of::<E, T, L, R>(w.get_unchecked(o * n_in..(o + R) * n_in), x);
            for r in (0..R).step_by(2) {
                let mut both = sums[r].pair_sums(sums[r + 1]);
                if let Some(bias) = bias {
                    both = both + E::Vector::read_pair(bias, o + r).unzipped();
                }
                both.write(y, (o + r) * L);
            }
        }
        o += R;
    }
    o
}

/// Computes the last output, if one is left over.
///
/// # Safety
/// As [`forward_tiles`].
#[inline(always)]
unsafe fn forward_last<E: KernelFloat, T: Target, const L: usize>(
    o: usize,
    w: &[E],
    bias: Option<&[E]>,
    x: &[E],
    y: &mut [E],
) {
    debug_assert_eq!(w.len() * L * L, x.len() * y.len());
    if o < y.len() / L {
        // SAFETY: as the caller promises, the weights from this row on belong to this output.
        let [sum] = unsafe { sums_of::<E, T, L, 1>(&w[o * (x.len() / L)..], x) };
        let bias = bias.map_or(-E::default(), |bias| bias[o]);
        (sum.pair_sums(sum) + E::Vector::splat(bias)).write_some(&mut y[o * L..]);
    }
}

/// Sums over even and over odd inputs, alternating, for `R` rows of weights.
///
/// # Safety
/// `rows` holds `R` times as many numbers as x has inputs.
#[inline(always)]
unsafe fn sums_of<E: KernelFloat, T: Target, const L: usize, const R: usize>(rows: &[E], x: &[E]) -> [E::Vector; R] {
    let n_in = x.len() / L;
    debug_assert_eq!(rows.len(), R * n_in);
    let mut sums = [E::Vector::splat(-E::default()); R];
    for i in (0..n_in / 2 * 2).step_by(2) {
        // SAFETY: `i + 2 <= n_in`, and the caller vouches for the lengths.
        unsafe {
            let xs = E::Vector::read(x, i * L).zipped();
            for r in 0..R {
                sums[r] = T::mul_add(E::Vector::read_pair(rows, r * n_in + i), xs, sums[r]);
            }
        }
    }
    if !n_in.is_multiple_of(2) {
        // The missing odd input counts as 0 times 0.
        let xs = E::Vector::read_or(&x[(n_in - 1) * L..], E::default()).zipped();
        for r in 0..R {
            let pair = [rows[(r + 1) * n_in - 1], E::default()];
            // SAFETY: `pair` has two elements.
            sums[r] = T::mul_add(unsafe { E::Vector::read_pair(&pair, 0) }, xs, sums[r]);
        }
    }
    sums
}

/// Simply: for each input i, `dx[i] += sum over o of w[o][i] * dy[o]`, vectors of tokens. Departures: two inputs of
/// each token alternate in a vector, as in [`forward_at`]; 24 inputs at once (8 with few registers).
#[inline(always)]
fn input_grad_at<E: KernelFloat, T: Target, const L: usize>(w: &[E], dy: &[E], dx: &mut [E]) {
    assert_eq!(<E::Vector as Real>::LANES, 2 * L, "tokens must fill half a vector");
    let (n_in, n_out) = (features::<L>(dx.len()), features::<L>(dy.len()));
    assert_eq!(w.len(), n_out * n_in, "a weight matrix must hold n_out x n_in numbers");
    let (mut i, mut pace) = (0, Pace::new());
    // SAFETY: the lengths were checked above.
    unsafe {
        if T::fits::<E::Vector>(12) {
            i = input_grad_tiles::<E, T, L, 12>(i, w, dy, dx, &mut pace);
        }
        i = input_grad_tiles::<E, T, L, 4>(i, w, dy, dx, &mut pace);
        i = input_grad_tiles::<E, T, L, 1>(i, w, dy, dx, &mut pace);
    }
    if i < n_in {
        let mut sum = E::V::<L>::read_or(&dx[i * L..], E::default());
        for (o, dy) in dy.chunks_exact(L).enumerate() {
            sum = T::mul_add(E::V::splat(w[o * n_in + i]), E::V::read_or(dy, E::default()), sum);
        }
        (sum + E::V::splat(E::default())).write_some(&mut dx[i * L..]);
    }
}

/// Inputs `2 R` at a time from `i` on; returns the first input left over.
///
/// # Safety
/// `w` holds `n_out x n_in` numbers, where dy holds `n_out * L` and dx `n_in * L`.
#[inline(always)]
unsafe fn input_grad_tiles<E: KernelFloat, T: Target, const L: usize, const R: usize>(
    mut i: usize,
    w: &[E],
    dy: &[E],
    dx: &mut [E],
    pace: &mut Pace,
) -> usize {
    let (n_in, n_out) = (dx.len() / L, dy.len() / L);
    debug_assert_eq!(w.len(), n_out * n_in);
    let zero = E::Vector::splat(E::default());
    while n_in - i >= 2 * R && pace.goes_on(2 * R * n_out * L) {
        // SAFETY: `i + 2 r + 2 <= n_in` and `o < n_out`, and the caller vouches for the lengths. Every output but the
        // last is followed by another, which the vector reads as well.
        unsafe {
            let mut sums: [E::Vector; R] = array_of(|r| E::Vector::read(dx, (i + 2 * r) * L).zipped());
            for o in 0..n_out {
                let dys = if o + 1 < n_out {
                    E::Vector::read(dy, o * L)
                } else {
                    E::Vector::read_or(dy.get_unchecked(o * L..), E::default())
                };
                let dys = dys.twice();
                for r in 0..R {
                    sums[r] = T::mul_add(E::Vector::read_pair(w, o * n_in + i + 2 * r), dys, sums[r]);
                }
            }
            for r in 0..R {
                // Adding +0.0 turns a sum that is -0.0, the mark of "not reached", into +0.0.
                (sums[r].unzipped() + zero).write(dx, (i + 2 * r) * L);
            }
        }
        i += 2 * R;
    }
    i
}
