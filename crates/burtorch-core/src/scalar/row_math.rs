//! [`RowMath`]: the operations in formulas of the op table.
//!
//! Contains arithmetic, literals, functions, comparisons and selection. Promises: a formula over it runs on any type that
//! implements it: numbers, lanes, dual numbers, or a scalar that records its operations. It returns no bool, and does not know
//! lanes or element types.

use std::fmt::Debug;
use std::ops::{Add, Div, Mul, Neg, Sub};

use crate::simd::for_each_function;

macro_rules! declared {
    (
        op { $($(#[$doc:meta])* $name:ident $formula:ident { $($body:tt)* })* }
        op2 { $($(#[$doc2:meta])* $name2:ident $formula2:ident { $($body2:tt)* })* }
        exact { $($(#[$edoc:meta])* $exact:ident $eformula:ident { $from:ident })* }
        helper { $($(#[$hdoc:meta])* $hname:ident $hformula:ident { $($hbody:tt)* })* }
        helper2 { $($(#[$hdoc2:meta])* $hname2:ident $hformula2:ident { $($hbody2:tt)* })* }
        slice { $($slice:tt)* }
    ) => {
        /// Arithmetic, literals, functions, comparisons and selection: the operations in a row of the op table.
        ///
        /// Comparisons return a mask, and [`RowMath::select`] chooses by it: code without branches serves all lane
        /// counts, and can be recorded.
        pub trait RowMath:
            Copy
            + Debug
            + Add<Output = Self>
            + Sub<Output = Self>
            + Mul<Output = Self>
            + Div<Output = Self>
            + Neg<Output = Self>
        {
            /// The outcome of a comparison.
            type Mask: Copy;
            /// Whether operations are recorded: then only literals have known values, and unnecessary operations are
            /// better omitted.
            const RECORDS: bool = false;
            /// Whether results count only if all are finite: then zero tangents need no protection from non-finite
            /// partials.
            const IS_FINITE: bool = false;

            /// A literal.
            fn lit(x: f64) -> Self;
            /// Whether every lane is known to be zero of either sign.
            fn all_zero(self) -> bool;

            /// `self < other`.
            fn less(self, other: Self) -> Self::Mask;
            /// `self <= other`.
            fn less_equal(self, other: Self) -> Self::Mask;
            /// `self == other`.
            fn equal(self, other: Self) -> Self::Mask;
            /// Is it a NaN?
            fn nan_mask(self) -> Self::Mask;
            /// `yes` where the mask holds, else `no`.
            fn select(mask: Self::Mask, yes: Self, no: Self) -> Self;

            $( $(#[$doc])* fn $name(self) -> Self; )*
            $( $(#[$doc2])* fn $name2(self, y: Self) -> Self; )*
            $( $(#[$edoc])* fn $exact(self) -> Self; )*
            $( $(#[$hdoc])* fn $hname(self) -> Self; )*
            $( $(#[$hdoc2])* fn $hname2(self, y: Self) -> Self; )*
        }
    };
}

for_each_function!(declared);
