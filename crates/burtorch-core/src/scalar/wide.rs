//! `f128`, IEEE binary128, as a scalar: 34 digits, for references and ill-conditioned problems, not for speed.
//!
//! Sums, products and quotients are the compiler's; the value of each function is in its row of the list, compiled once.

use super::{DType, Float, RowMath, Scalar, sealed, wide_exact, wide_functions as wide};
use crate::simd::for_each_function;

// On this target libgcc returns sums differently from what the compiler expects, which crashes at run time.
#[cfg(all(windows, target_arch = "x86_64", target_env = "gnu", not(target_abi = "llvm")))]
compile_error!("float128 crashes on x86_64-pc-windows-gnu: build for x86_64-pc-windows-msvc or -gnullvm");

impl sealed::Sealed for f128 {}

macro_rules! of_f128 {
    (
        op { $($(#[$doc:meta])* $name:ident $formula:ident { $(rare)? |$x:ident| $wide:expr })* }
        op2 { $($(#[$doc2:meta])* $name2:ident $formula2:ident { $(rare)? |$x2:ident, $y2:ident| $wide2:expr })* }
        exact { $($(#[$edoc:meta])* $exact:ident $eformula:ident { $from:ident })* }
        helper { $($(#[$hdoc:meta])* $hname:ident $hformula:ident { $(rare)? |$hx:ident| $hwide:expr; $($hrule:tt)* })* }
        helper2 { $($(#[$hdoc2:meta])* $hname2:ident $hformula2:ident { $(rare)? |$hx2:ident, $hy2:ident| $hwide2:expr; $($hrule2:tt)* })* }
        slice { $($slice:tt)* }
    ) => {
        of_f128! { $($name |$x| $wide;)* $($hname |$hx| $hwide;)* ; $($name2 |$x2, $y2| $wide2;)* $($hname2 |$hx2, $hy2| $hwide2;)* }
        $(
            #[inline(never)]
            fn $exact(self) -> Self {
                wide_exact::$exact(self)
            }
        )*
    };
    ($($name:ident |$x:ident| $wide:expr;)* ; $($name2:ident |$x2:ident, $y2:ident| $wide2:expr;)*) => {
        $(
            #[inline(never)]
            fn $name(self) -> Self {
                let $x = self;
                $wide
            }
        )*
        $(
            #[inline(never)]
            fn $name2(self, y: Self) -> Self {
                let ($x2, $y2) = (self, y);
                $wide2
            }
        )*
    };
}

impl RowMath for f128 {
    #[inline(always)]
    fn lit(x: f64) -> Self {
        x.into()
    }
    of_one_number!(compared);

    for_each_function!(of_f128);
}

impl Scalar for f128 {
    type Elem = f128;
    type Compute = f128;
    const LANES: usize = 1;
    const UNREACHED: Self = -0.0;

    #[inline(always)]
    fn widen(self) -> f128 {
        self
    }
    #[inline(always)]
    fn narrow(computed: f128) -> f128 {
        computed
    }
    of_one_number!(lane);
    #[inline(always)]
    fn all_finite(self) -> bool {
        self.is_finite()
    }
    #[inline(always)]
    fn is_unreached(&self) -> bool {
        self.to_bits() == (-0.0_f128).to_bits()
    }
    fn has_exact_inverse(self) -> bool {
        let fraction = self.to_bits() & ((1 << 112) - 1);
        fraction == 0 && self.is_normal() && (1.0 / self).is_normal()
    }
}

impl Float for f128 {
    const DTYPE: DType = DType::Float128;
    fn from_f64(x: f64) -> Self {
        x.into()
    }
    fn to_f64(self) -> f64 {
        self as f64
    }
    fn from_f128(x: f128) -> Self {
        x
    }
    fn to_f128(self) -> f128 {
        self
    }
}
