//! The number type of nodes: the `Scalar` trait, for plain floats and for lanes of them.
//!
//! Promises: lane k of every operation equals the operation on lane k, bit for bit; an op on half-precision numbers is
//! computed in f32 and rounded once. The half types are in `narrow`, f128 is in `wide`. Does not know graphs.

/// Comparison and lane access for scalars of one lane.
macro_rules! of_one_number {
    (compared) => {
        type Mask = bool;

        #[inline(always)]
        fn less(self, other: Self) -> bool {
            self < other
        }
        #[inline(always)]
        fn less_equal(self, other: Self) -> bool {
            self <= other
        }
        #[inline(always)]
        fn equal(self, other: Self) -> bool {
            self == other
        }
        #[inline(always)]
        fn nan_mask(self) -> bool {
            self.is_nan()
        }
        #[inline(always)]
        fn select(mask: bool, yes: Self, no: Self) -> Self {
            if mask { yes } else { no }
        }
        #[inline(always)]
        fn all_zero(self) -> bool {
            self.equal(Self::lit(0.0))
        }
    };
    (lane) => {
        of_one_number!(one part);

        #[inline(always)]
        fn splat(elem: Self) -> Self {
            elem
        }
        #[inline(always)]
        fn lane(self, _k: usize) -> Self {
            self
        }
        #[inline(always)]
        fn with_lane(self, _k: usize, elem: Self) -> Self {
            elem
        }
        #[inline(always)]
        fn sum_lanes(self) -> Self {
            self
        }
    };
    (one part) => {
        type Part = Self;

        #[inline(always)]
        fn part(self, _k: usize) -> Self {
            self
        }
        #[inline(always)]
        fn with_part(self, _k: usize, part: Self) -> Self {
            part
        }
    };
}

mod row_math;

mod decimal;
mod narrow;
mod wide;
mod wide_elementary;
mod wide_exact;
mod wide_functions;
mod wide_gamma;
mod wide_gelu;
mod wide_long;
mod wide_special;
mod wide_two_over_pi;

mod inlined;

use crate::simd::for_each_function;
use crate::simd::{Elementary, Mask, Select, Simd, SimdFloat, SimdPartialEq, SimdPartialOrd, StdFloat};

pub use decimal::{f128_from_decimal, f128_to_decimal};
pub use half::{bf16, f16};
pub(crate) use inlined::Inlined;
pub use row_math::RowMath;

/// The element types that burtorch names, with the names Python uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// IEEE 754 binary32, one per node.
    Float32,
    /// IEEE 754 binary64, one per node.
    Float64,
    /// IEEE 754 binary16, computed in binary32.
    Float16,
    /// The upper half of a binary32, computed in binary32.
    BFloat16,
    /// IEEE 754 binary128.
    Float128,
}

impl DType {
    /// All of them.
    pub const ALL: [DType; 5] = [DType::Float32, DType::Float64, DType::Float16, DType::BFloat16, DType::Float128];

    /// The greatest number of this type that is not above `x`, as a guard compares with it; types that a program cannot
    /// have are as `f64`.
    pub fn floor(self, x: f64) -> f64 {
        let nearest = x as f32;
        match self {
            DType::Float32 if f64::from(nearest) > x => f64::from(nearest.next_down()),
            DType::Float32 => f64::from(nearest),
            _ => x,
        }
    }

    /// The name as in `Graph(dtype=...)`.
    pub const fn name(self) -> &'static str {
        match self {
            DType::Float32 => "float32",
            DType::Float64 => "float64",
            DType::Float16 => "float16",
            DType::BFloat16 => "bfloat16",
            DType::Float128 => "float128",
        }
    }

    /// Bytes of one number.
    pub const fn bytes(self) -> usize {
        match self {
            DType::Float16 | DType::BFloat16 => 2,
            DType::Float32 => 4,
            DType::Float64 => 8,
            DType::Float128 => 16,
        }
    }
}

pub(crate) mod sealed {
    /// Implemented here only: a graph runs a scalar's code while it is borrowed, so that code must be known.
    pub trait Sealed {}
}

/// A number or a fixed group of numbers (lanes) that one node carries. The types of this crate only.
pub trait Scalar: RowMath + Default + PartialEq + Send + Sync + 'static + sealed::Sealed {
    /// The type of one lane.
    type Elem: Float;
    /// The type in which ops are computed: f32 for the half types, otherwise this type itself.
    type Compute: Scalar<Compute = Self::Compute>;
    /// The lanes for which rows are compiled: a scalar of more than 64 bytes is computed in parts, because its code
    /// would be several times as long.
    type Part: Scalar<Elem = Self::Elem>;

    /// Lanes per scalar; 1 for plain floats.
    const LANES: usize;
    /// The adjoint of a node that no path has reached: -0.0 in every lane.
    const UNREACHED: Self;

    /// The number in the type in which ops are computed; exact.
    fn widen(self) -> Self::Compute;
    /// A computed number, rounded to this type.
    fn narrow(computed: Self::Compute) -> Self;

    /// The same number in every lane.
    fn splat(elem: Self::Elem) -> Self;
    /// Lane `k`.
    fn lane(self, k: usize) -> Self::Elem;
    /// A copy in which lane `k` is replaced.
    fn with_lane(self, k: usize, elem: Self::Elem) -> Self;
    /// Lanes from `k * Part::LANES` on.
    fn part(self, k: usize) -> Self::Part;
    /// A copy in which that part is replaced.
    fn with_part(self, k: usize, part: Self::Part) -> Self;
    /// The sum over lanes, in one fixed order.
    fn sum_lanes(self) -> Self::Elem;
    /// Whether every lane is finite.
    fn all_finite(self) -> bool;
    /// Whether the adjoint is "not reached". All lanes of a node are reached at once, so one lane decides.
    fn is_unreached(&self) -> bool;
    /// Whether `1/self` is exact and normal in every lane, so that dividing by `self` is multiplying by `1/self`.
    fn has_exact_inverse(self) -> bool;
}

/// A plain float: one lane, which is itself.
pub trait Float: Scalar<Elem = Self, Mask = bool> + PartialOrd {
    /// The name of the type.
    const DTYPE: DType;
    /// Rounds to this type.
    fn from_f64(x: f64) -> Self;
    /// Widens or rounds to `f64`.
    fn to_f64(self) -> f64;
    /// Rounds to this type.
    fn from_f128(x: f128) -> Self;
    /// Widens; exact.
    fn to_f128(self) -> f128;
}

/// The functions of plain floats, from the module with a common implementation for numbers and lanes.
macro_rules! of_numbers {
    (
        op { $($(#[$doc:meta])* $name:ident $formula:ident { $($body:tt)* })* }
        op2 { $($(#[$doc2:meta])* $name2:ident $formula2:ident { $($body2:tt)* })* }
        exact { $($(#[$edoc:meta])* $exact:ident $eformula:ident { $from:ident })* }
        helper { $($(#[$hdoc:meta])* $hname:ident $hformula:ident { $($hbody:tt)* })* }
        helper2 { $($(#[$hdoc2:meta])* $hname2:ident $hformula2:ident { $($hbody2:tt)* })* }
        slice { $($slice:tt)* }
    ) => {
        elementary! { $($name)* $($hname)* ; $($name2)* $($hname2)* }
        $(
            #[inline(always)]
            fn $exact(self) -> Self {
                Self::$exact(self)
            }
        )*
    };
}

/// The same for vectors.
macro_rules! of_lanes {
    (
        op { $($(#[$doc:meta])* $name:ident $formula:ident { $($body:tt)* })* }
        op2 { $($(#[$doc2:meta])* $name2:ident $formula2:ident { $($body2:tt)* })* }
        exact { $($(#[$edoc:meta])* $exact:ident $eformula:ident { $from:ident })* }
        helper { $($(#[$hdoc:meta])* $hname:ident $hformula:ident { $($hbody:tt)* })* }
        helper2 { $($(#[$hdoc2:meta])* $hname2:ident $hformula2:ident { $($hbody2:tt)* })* }
        slice { $($slice:tt)* }
    ) => {
        elementary! { $($name)* $($hname)* ; $($name2)* $($hname2)* }
        $(
            #[inline(always)]
            fn $exact(self) -> Self {
                $from::$exact(self)
            }
        )*
    };
}

macro_rules! elementary {
    ($($name:ident)* ; $($name2:ident)*) => {
        $(
            #[inline(always)]
            fn $name(self) -> Self {
                Elementary::$name(self)
            }
        )*
        $(
            #[inline(always)]
            fn $name2(self, y: Self) -> Self {
                Elementary::$name2(self, y)
            }
        )*
    };
}

macro_rules! plain_float {
    ($t:ty, $dtype:ident) => {
        impl sealed::Sealed for $t {}

        impl RowMath for $t {
            #[inline(always)]
            fn lit(x: f64) -> Self {
                x as $t
            }
            of_one_number!(compared);

            for_each_function!(of_numbers);
        }

        impl Scalar for $t {
            type Elem = $t;
            type Compute = $t;
            const LANES: usize = 1;
            const UNREACHED: Self = -0.0;

            #[inline(always)]
            fn widen(self) -> $t {
                self
            }
            #[inline(always)]
            fn narrow(computed: $t) -> $t {
                computed
            }

            of_one_number!(lane);
            #[inline(always)]
            fn all_finite(self) -> bool {
                self.is_finite()
            }
            #[inline(always)]
            fn is_unreached(&self) -> bool {
                self.to_bits() == (-0.0 as $t).to_bits()
            }
            #[inline(always)]
            fn has_exact_inverse(self) -> bool {
                // A power of two (no fraction bits) that is normal, as is its inverse.
                const FRACTION: u32 = <$t>::MANTISSA_DIGITS - 1;
                let bits = self.to_bits();
                bits & ((1 << FRACTION) - 1) == 0 && self.is_normal() && (1.0 / self).is_normal()
            }
        }

        impl Float for $t {
            const DTYPE: DType = DType::$dtype;
            #[inline(always)]
            fn from_f64(x: f64) -> Self {
                x as $t
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }
            #[inline]
            fn from_f128(x: f128) -> Self {
                x as $t
            }
            #[inline]
            fn to_f128(self) -> f128 {
                self as f128
            }
        }
    };
}

plain_float!(f32, Float32);
plain_float!(f64, Float64);

macro_rules! lanes {
    ($t:ty, $int:ty, $n:literal, $part:literal) => {
        impl sealed::Sealed for Simd<$t, $n> {}

        impl RowMath for Simd<$t, $n> {
            type Mask = Mask<$int, $n>;

            #[inline(always)]
            fn lit(x: f64) -> Self {
                Simd::splat(x as $t)
            }
            #[inline(always)]
            fn less(self, other: Self) -> Self::Mask {
                self.simd_lt(other)
            }
            #[inline(always)]
            fn less_equal(self, other: Self) -> Self::Mask {
                self.simd_le(other)
            }
            #[inline(always)]
            fn equal(self, other: Self) -> Self::Mask {
                self.simd_eq(other)
            }
            #[inline(always)]
            fn nan_mask(self) -> Self::Mask {
                self.is_nan()
            }
            #[inline(always)]
            fn select(mask: Self::Mask, yes: Self, no: Self) -> Self {
                mask.select(yes, no)
            }

            #[inline(always)]
            fn all_zero(self) -> bool {
                self.simd_eq(Simd::splat(0.0)).all()
            }

            for_each_function!(of_lanes);
        }

        impl Scalar for Simd<$t, $n> {
            type Elem = $t;
            type Compute = Self;
            type Part = Simd<$t, $part>;
            const LANES: usize = $n;
            const UNREACHED: Self = Simd::from_array([-0.0; $n]);

            #[inline(always)]
            fn widen(self) -> Self {
                self
            }
            #[inline(always)]
            fn narrow(computed: Self) -> Self {
                computed
            }

            #[inline(always)]
            fn splat(elem: $t) -> Self {
                Simd::splat(elem)
            }
            #[inline(always)]
            fn lane(self, k: usize) -> $t {
                self[k]
            }
            #[inline(always)]
            fn with_lane(mut self, k: usize, elem: $t) -> Self {
                self[k] = elem;
                self
            }
            #[inline(always)]
            fn part(self, k: usize) -> Self::Part {
                Simd::from_slice(&self.as_array()[k * $part..][..$part])
            }
            #[inline(always)]
            fn with_part(mut self, k: usize, part: Self::Part) -> Self {
                part.copy_to_slice(&mut self.as_mut_array()[k * $part..][..$part]);
                self
            }
            #[inline(always)]
            fn sum_lanes(self) -> $t {
                // The halves are added until one lane is left: the same tree at every instruction level.
                let mut lanes = self.to_array();
                let mut width = $n;
                while width > 1 {
                    width /= 2;
                    for k in 0..width {
                        lanes[k] += lanes[k + width];
                    }
                }
                lanes[0]
            }
            #[inline(always)]
            fn all_finite(self) -> bool {
                self.is_finite().all()
            }
            #[inline(always)]
            fn is_unreached(&self) -> bool {
                self[0].to_bits() == (-0.0 as $t).to_bits()
            }
            #[inline(always)]
            fn has_exact_inverse(self) -> bool {
                self.to_array().iter().all(|x| x.has_exact_inverse())
            }
        }
    };
}

lanes!(f32, i32, 4, 4);
lanes!(f32, i32, 8, 8);
lanes!(f32, i32, 16, 16);
lanes!(f32, i32, 64, 16);
lanes!(f64, i64, 2, 2);
lanes!(f64, i64, 4, 4);
lanes!(f64, i64, 8, 8);
lanes!(f64, i64, 64, 8);
