//! Two functions of the same slice that share most of their work: a function and its derivative, sine and cosine.
//!
//! Promises: the bits of each function alone. Does not know which functions a program computes.
#![allow(unsafe_code)]

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use super::Level;
use super::slices::{self, Element};
use super::{Real, level, math};

/// Both functions of a vector.
trait Shared {
    fn at<V: Real>(x: V) -> (V, V);
}

#[inline(always)]
fn map<F: Shared, E: Element>(x: &[E], y: &mut [E], z: &mut [E]) {
    assert!(x.len() == y.len() && x.len() == z.len(), "x, y and z differ in length: pass slices of equal length");
    let lanes = E::Vector::LANES;
    let tail = x.len() / lanes * lanes;
    let results = y.chunks_exact_mut(lanes).zip(z.chunks_exact_mut(lanes));
    for (x, (y, z)) in x.chunks_exact(lanes).zip(results) {
        let both = F::at(E::Vector::load(x));
        both.0.store(y);
        both.1.store(z);
    }
    if tail < x.len() {
        let (mut first, mut second) = ([E::default(); 16], [E::default(); 16]);
        first[..x.len() - tail].copy_from_slice(&x[tail..]);
        let both = F::at(E::Vector::load(&first));
        both.0.store(&mut first);
        both.1.store(&mut second);
        y[tail..].copy_from_slice(&first[..x.len() - tail]);
        z[tail..].copy_from_slice(&second[..x.len() - tail]);
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")]
fn map_avx512<F: Shared, E: Element>(x: &[E], y: &mut [E], z: &mut [E]) {
    map::<F, E>(x, y, z);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn map_avx2<F: Shared, E: Element>(x: &[E], y: &mut [E], z: &mut [E]) {
    map::<F, E>(x, y, z);
}

macro_rules! twins {
    ($($(#[$doc:meta])* $twins:ident { $first:ident $second:ident $both:ident })*) => {
        /// Two functions that are computed together.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Twins {
            $($(#[$doc])* $twins,)*
        }

        $(
            struct $twins;
            impl Shared for $twins {
                #[inline(always)]
                fn at<V: Real>(x: V) -> (V, V) {
                    math::$both(x)
                }
            }
        )*

        impl Twins {
            /// All of them.
            pub(crate) const ALL: &[Twins] = &[$(Twins::$twins,)*];

            /// The names of both functions.
            pub(crate) fn names(self) -> [&'static str; 2] {
                match self {
                    $(Twins::$twins => [stringify!($first), stringify!($second)],)*
                }
            }

            /// The first function of each number of `x`, and the second; panics if lengths differ.
            pub(crate) fn map<E: Element>(self, x: &[E], y: &mut [E], z: &mut [E]) {
                match self {
                    $(Twins::$twins => match level() {
                        // SAFETY: level() returns only levels whose features this CPU has.
                        #[cfg(target_arch = "x86_64")]
                        Level::Avx512 => unsafe { map_avx512::<$twins, E>(x, y, z) },
                        // SAFETY: as above.
                        #[cfg(target_arch = "x86_64")]
                        Level::Avx2 => unsafe { map_avx2::<$twins, E>(x, y, z) },
                        #[cfg(target_arch = "aarch64")]
                        Level::Neon => map::<$twins, E>(x, y, z),
                        _ => {
                            slices::$first(x, y);
                            slices::$second(x, z);
                        }
                    },)*
                }
            }
        }
    };
}

twins! {
    /// log(1 + e^x) and its derivative: one exponential.
    Softplus { softplus sigmoid softplus_and_sigmoid }
    /// The sigmoid and its derivative: one exponential.
    Sigmoid { sigmoid sigmoid_grad sigmoid_and_grad }
    /// Sine and cosine: one reduced argument.
    SinCos { sin cos sin_and_cos }
    /// The tangent and its derivative, which is computed anyway.
    Tan { tan tan_grad tan_and_grad }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers() -> Vec<f64> {
        let edges =
            [0.0, 1e-300, 5e-324, 1e-9, 0.5, 0.76, 1.0, 36.0, 37.5, 86.0, 700.0, 709.8, 745.2, 1e5, 1e22, f64::MAX];
        let edges = edges.into_iter().chain([f64::INFINITY, f64::NAN]).flat_map(|x| [x, -x]);
        let spread = (0..20_000u64).map(|k| f64::from_bits(k.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        edges.chain(spread).chain((0..20_000).map(|k| f64::from(k - 10_000) * 0.0071)).collect()
    }

    fn check<E: Element>(x: &[E], bits: impl Fn(E) -> u64) {
        for &twins in Twins::ALL {
            // Lengths with and without whole vectors, and with lanes that need the slow way beside ones that do not.
            for x in x.chunks(61).chain([x]) {
                let mut found = [vec![E::default(); x.len()], vec![E::default(); x.len()]];
                let mut expected = found.clone();
                let [y, z] = &mut found;
                twins.map(x, y, z);
                let [y, z] = &mut expected;
                match twins {
                    Twins::Softplus => (slices::softplus(x, y), slices::sigmoid(x, z)),
                    Twins::Sigmoid => (slices::sigmoid(x, y), slices::sigmoid_grad(x, z)),
                    Twins::SinCos => (slices::sin(x, y), slices::cos(x, z)),
                    Twins::Tan => (slices::tan(x, y), slices::tan_grad(x, z)),
                };
                for (k, (found, expected)) in found.iter().zip(&expected).enumerate() {
                    let name = twins.names()[k];
                    let bits = |numbers: &[E]| numbers.iter().map(|&x| bits(x)).collect::<Vec<_>>();
                    assert_eq!(bits(found), bits(expected), "{name}");
                }
            }
        }
    }

    #[test]
    fn functions_computed_together_have_the_bits_of_each_alone() {
        let wide = numbers();
        let narrow: Vec<f32> = wide.iter().map(|&x| x as f32).collect();
        check(&wide, |x| if x.is_nan() { 1 } else { x.to_bits() });
        check(&narrow, |x| if x.is_nan() { 1 } else { x.to_bits().into() });
    }
}
