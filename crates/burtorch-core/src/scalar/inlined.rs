//! Lanes whose elementary functions are compiled at the place of use.
//!
//! Elsewhere `x.exp()` of lanes is a call that reads the CPU level and passes its argument through memory. Code that is
//! compiled for a level already, such as the bodies of `program/bundle`, needs neither: there a softplus in eight lanes
//! takes less than half the time. Rare functions remain calls.
//!
//! Promises: the bits of the wrapped type. Does not know levels: elsewhere it is correct, and slow.

use std::ops::{Add, Div, Mul, Neg, Sub};

use super::{RowMath, Scalar, sealed};
use crate::simd::{Elementary, Real, for_each_function, is_rare, math};

/// A vector (or a number) whose functions are inlined.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(transparent)]
pub(crate) struct Inlined<V>(pub(crate) V);

macro_rules! operators {
    ($($trait:ident $name:ident)*) => { $(
        impl<V: $trait<Output = V>> $trait for Inlined<V> {
            type Output = Self;
            #[inline(always)]
            fn $name(self, other: Self) -> Self {
                Inlined($trait::$name(self.0, other.0))
            }
        }
    )* };
}
operators!(Add add Sub sub Mul mul Div div);

impl<V: Neg<Output = V>> Neg for Inlined<V> {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        Inlined(-self.0)
    }
}

impl<V: Scalar> sealed::Sealed for Inlined<V> {}

macro_rules! in_place {
    (
        op { $($(#[$doc:meta])* $name:ident $formula:ident { $($body:tt)* })* }
        op2 { $($(#[$doc2:meta])* $name2:ident $formula2:ident { $($body2:tt)* })* }
        exact { $($(#[$edoc:meta])* $exact:ident $eformula:ident { $from:ident })* }
        helper { $($(#[$hdoc:meta])* $hname:ident $hformula:ident { $($hbody:tt)* })* }
        helper2 { $($(#[$hdoc2:meta])* $hname2:ident $hformula2:ident { $($hbody2:tt)* })* }
        slice { $($slice:tt)* }
    ) => {
        in_place! {
            $($name { $($body)* })* $($hname { $($hbody)* })* ; $($name2 { $($body2)* })* $($hname2 { $($hbody2)* })* ; $($exact)*
        }
    };
    ($($name:ident { $($body:tt)* })* ; $($name2:ident { $($body2:tt)* })* ; $($exact:ident)*) => {
        $(
            #[inline(always)]
            fn $name(self) -> Self {
                Inlined(if is_rare!($($body)*) { Elementary::$name(self.0) } else { math::$name(self.0) })
            }
        )*
        $(
            #[inline(always)]
            fn $name2(self, y: Self) -> Self {
                Inlined(if is_rare!($($body2)*) { Elementary::$name2(self.0, y.0) } else { math::$name2(self.0, y.0) })
            }
        )*
        $(
            #[inline(always)]
            fn $exact(self) -> Self {
                Inlined(RowMath::$exact(self.0))
            }
        )*
    };
}

impl<V: Scalar + Real> RowMath for Inlined<V> {
    type Mask = <V as RowMath>::Mask;

    #[inline(always)]
    fn lit(x: f64) -> Self {
        Inlined(V::lit(x))
    }
    #[inline(always)]
    fn less(self, other: Self) -> Self::Mask {
        self.0.less(other.0)
    }
    #[inline(always)]
    fn less_equal(self, other: Self) -> Self::Mask {
        self.0.less_equal(other.0)
    }
    #[inline(always)]
    fn equal(self, other: Self) -> Self::Mask {
        self.0.equal(other.0)
    }
    #[inline(always)]
    fn nan_mask(self) -> Self::Mask {
        self.0.nan_mask()
    }
    #[inline(always)]
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self {
        Inlined(<V as RowMath>::select(mask, yes.0, no.0))
    }

    #[inline(always)]
    fn all_zero(self) -> bool {
        self.0.all_zero()
    }

    for_each_function!(in_place);
}

impl<V: Scalar + Real> Scalar for Inlined<V> {
    type Elem = <V as Scalar>::Elem;
    type Compute = Self;

    const LANES: usize = <V as Scalar>::LANES;
    const UNREACHED: Self = Inlined(V::UNREACHED);

    #[inline(always)]
    fn widen(self) -> Self {
        self
    }
    #[inline(always)]
    fn narrow(computed: Self) -> Self {
        computed
    }
    of_one_number!(one part);

    #[inline(always)]
    fn splat(elem: Self::Elem) -> Self {
        Inlined(<V as Scalar>::splat(elem))
    }
    #[inline(always)]
    fn lane(self, k: usize) -> Self::Elem {
        Scalar::lane(self.0, k)
    }
    #[inline(always)]
    fn with_lane(self, k: usize, elem: Self::Elem) -> Self {
        Inlined(Scalar::with_lane(self.0, k, elem))
    }
    #[inline(always)]
    fn sum_lanes(self) -> Self::Elem {
        self.0.sum_lanes()
    }
    #[inline(always)]
    fn all_finite(self) -> bool {
        self.0.all_finite()
    }
    #[inline(always)]
    fn is_unreached(&self) -> bool {
        self.0.is_unreached()
    }
    #[inline(always)]
    fn has_exact_inverse(self) -> bool {
        self.0.has_exact_inverse()
    }
}
