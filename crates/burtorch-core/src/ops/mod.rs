//! Ops: the table (`table.rs`) and what unfolds from it: the `Op` enum, one marker type per op with its
//! forward formula and its vector-Jacobian product, and [`OP_INFO`] for docs, tests and bindings.
//!
//! Promises: everything about an op is its row. Knows scalars, knows nothing of graphs.

#[macro_use]
mod table;
mod peak;
mod reduce;

pub(crate) use peak::{softmax_forward, softmax_pull};
pub(crate) use reduce::products_of_others;
pub use reduce::{Reduction, variance_of};

use crate::scalar::Scalar;

/// How many operands an op takes, and of what kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arity {
    /// No operand: leaves, constants, parameters.
    Nullary,
    /// One value.
    Unary,
    /// Two values.
    Binary,
    /// One value and a number that receives no gradient.
    WithConstant,
    /// Any number of values, at least one.
    Reduction,
    /// Two runs of equal length (and a bias).
    InnerProduct,
    /// A range of outputs, of which this node is the last.
    Block,
}

/// Everything the op table says about one op.
#[derive(Clone, Copy, Debug)]
pub struct OpInfo {
    /// The op.
    pub op: Op,
    /// Name in Rust and Python.
    pub name: &'static str,
    /// Name in the paper, empty for ops the paper lacks.
    pub paper_name: &'static str,
    /// Operands.
    pub arity: Arity,
    /// The formula of value and partials, as documentation.
    pub doc: &'static str,
    /// Interval from which tests may draw each operand.
    pub domain: (f64, f64),
    /// Largest error of the value, in units in the last place; 0 where the bound is `(n-1) u sum |terms|`.
    pub value_ulp: f64,
    /// Largest error of a partial, likewise.
    pub partial_ulp: f64,
    /// Whether the derivative reads the op's own output, so that the value must be computed.
    pub reads_output: bool,
}

mod sealed {
    /// Implemented here only: the sweep trusts that opcode and operands agree.
    pub trait Sealed {}
}

/// An op of one operand. Rows of the table only.
pub trait UnaryOp: sealed::Sealed {
    /// Its opcode.
    const OP: Op;
    /// Whether its derivative reads its value.
    const READS_OUTPUT: bool;
    /// The value.
    fn forward<S: Scalar>(x: S) -> S;
    /// What the adjoint `g` of the output contributes to the operand; `y` is the output.
    fn pull<S: Scalar>(g: S, x: S, y: S) -> S;
}

/// An op of two operands. Rows of the table only. For ops with a constant, `y` is the constant and [`BinaryOp::pull_y`] is never called.
pub trait BinaryOp: sealed::Sealed {
    /// Its opcode.
    const OP: Op;
    /// Whether its derivative reads its value.
    const READS_OUTPUT: bool;
    /// The value.
    fn forward<S: Scalar>(x: S, y: S) -> S;
    /// What the adjoint `g` of the output `z` contributes to the first operand.
    fn pull_x<S: Scalar>(g: S, x: S, y: S, z: S) -> S;
    /// What it contributes to the second operand.
    fn pull_y<S: Scalar>(g: S, x: S, y: S, z: S) -> S;
}

macro_rules! define_ops {
    (
        nullary { $( #[doc = $ndoc:literal] $N:ident $nname:ident $npaper:literal )* }
        unary { $( #[doc = $udoc:literal] $U:ident $uname:ident $upaper:literal {
            y = |$ux:ident| $uy:expr; dx = |$ug:ident, $ux2:ident, $uo:ident| $udx:expr; reads $ureads:ident;
            on $ulo:literal, $uhi:literal; ulp $uvb:literal, $upb:literal; } )* }
        binary { $( #[doc = $bdoc:literal] $B:ident $bname:ident $bpaper:literal {
            z = |$bx:ident, $by:ident| $bz:expr;
            dx = |$bg:ident, $bx2:ident, $by2:ident, $bo:ident| $bdx:expr;
            dy = |$cg:ident, $cx2:ident, $cy2:ident, $co:ident| $bdy:expr; reads $breads:ident;
            on $blo:literal, $bhi:literal; ulp $bvb:literal, $bpb:literal; } )* }
        with_constant { $( #[doc = $kdoc:literal] $K:ident $kname:ident $kpaper:literal {
            z = |$kx:ident, $ky:ident| $kz:expr;
            dx = |$kg:ident, $kx2:ident, $ky2:ident, $ko:ident| $kdx:expr; reads $kreads:ident;
            on $klo:literal, $khi:literal; ulp $kvb:literal, $kpb:literal; } )* }
        reduction { $( #[doc = $rdoc:literal] $R:ident $rname:ident $rpaper:literal {
            reads $rreads:ident; on $rlo:literal, $rhi:literal; } )* }
        inner_product { $( #[doc = $idoc:literal] $I:ident $iname:ident $ipaper:literal { on $ilo:literal, $ihi:literal; } )* }
        block { $( #[doc = $odoc:literal] $O:ident $oname:ident )* }
    ) => {
        /// The operation of a node: one byte.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Op {
            $( #[doc = $ndoc] $N, )* $( #[doc = $udoc] $U, )* $( #[doc = $bdoc] $B, )*
            $( #[doc = $kdoc] $K, )* $( #[doc = $rdoc] $R, )* $( #[doc = $idoc] $I, )* $( #[doc = $odoc] $O, )*
        }

        /// The op table as data, in opcode order.
        pub const OP_INFO: &[OpInfo] = &[
            $( OpInfo { op: Op::$N, name: stringify!($nname), paper_name: $npaper, arity: Arity::Nullary, doc: $ndoc,
                domain: (0.0, 0.0), value_ulp: 0.0, partial_ulp: 0.0, reads_output: false }, )*
            $( OpInfo { op: Op::$U, name: stringify!($uname), paper_name: $upaper, arity: Arity::Unary, doc: $udoc,
                domain: ($ulo, $uhi), value_ulp: $uvb, partial_ulp: $upb, reads_output: reads_output!($ureads) }, )*
            $( OpInfo { op: Op::$B, name: stringify!($bname), paper_name: $bpaper, arity: Arity::Binary, doc: $bdoc,
                domain: ($blo, $bhi), value_ulp: $bvb, partial_ulp: $bpb, reads_output: reads_output!($breads) }, )*
            $( OpInfo { op: Op::$K, name: stringify!($kname), paper_name: $kpaper, arity: Arity::WithConstant, doc: $kdoc,
                domain: ($klo, $khi), value_ulp: $kvb, partial_ulp: $kpb, reads_output: reads_output!($kreads) }, )*
            $( OpInfo { op: Op::$R, name: stringify!($rname), paper_name: $rpaper, arity: Arity::Reduction, doc: $rdoc,
                domain: ($rlo, $rhi), value_ulp: 0.0, partial_ulp: 0.0, reads_output: reads_output!($rreads) }, )*
            $( OpInfo { op: Op::$I, name: stringify!($iname), paper_name: $ipaper, arity: Arity::InnerProduct, doc: $idoc,
                domain: ($ilo, $ihi), value_ulp: 0.0, partial_ulp: 0.0, reads_output: false }, )*
            $( OpInfo { op: Op::$O, name: stringify!($oname), paper_name: "", arity: Arity::Block, doc: $odoc,
                domain: (0.0, 0.0), value_ulp: 0.0, partial_ulp: 0.0, reads_output: true }, )*
        ];

        $( #[doc = $udoc] #[derive(Clone, Copy, Debug)] pub struct $U;
        impl sealed::Sealed for $U {}
        impl UnaryOp for $U {
            const OP: Op = Op::$U;
            const READS_OUTPUT: bool = reads_output!($ureads);
            #[inline(always)]
            fn forward<T: Scalar>(x: T) -> T {
                #[inline(always)]
                fn formula<S: Scalar>($ux: S) -> S { $uy }
                T::narrow(formula(x.widen()))
            }
            #[inline(always)]
            fn pull<T: Scalar>(g: T, x: T, y: T) -> T {
                #[inline(always)]
                #[allow(unused_variables)]
                fn formula<S: Scalar>($ug: S, $ux2: S, $uo: S) -> S { $udx }
                T::narrow(formula(g.widen(), x.widen(), y.widen()))
            }
        } )*
        $( #[doc = $bdoc] #[derive(Clone, Copy, Debug)] pub struct $B;
        impl sealed::Sealed for $B {}
        impl BinaryOp for $B {
            const OP: Op = Op::$B;
            const READS_OUTPUT: bool = reads_output!($breads);
            #[inline(always)]
            fn forward<T: Scalar>(x: T, y: T) -> T {
                #[inline(always)]
                fn formula<S: Scalar>($bx: S, $by: S) -> S { $bz }
                T::narrow(formula(x.widen(), y.widen()))
            }
            #[inline(always)]
            fn pull_x<T: Scalar>(g: T, x: T, y: T, z: T) -> T {
                #[inline(always)]
                #[allow(unused_variables)]
                fn formula<S: Scalar>($bg: S, $bx2: S, $by2: S, $bo: S) -> S { $bdx }
                T::narrow(formula(g.widen(), x.widen(), y.widen(), z.widen()))
            }
            #[inline(always)]
            fn pull_y<T: Scalar>(g: T, x: T, y: T, z: T) -> T {
                #[inline(always)]
                #[allow(unused_variables)]
                fn formula<S: Scalar>($cg: S, $cx2: S, $cy2: S, $co: S) -> S { $bdy }
                T::narrow(formula(g.widen(), x.widen(), y.widen(), z.widen()))
            }
        } )*
        $( #[doc = $kdoc] #[derive(Clone, Copy, Debug)] pub struct $K;
        impl sealed::Sealed for $K {}
        impl BinaryOp for $K {
            const OP: Op = Op::$K;
            const READS_OUTPUT: bool = reads_output!($kreads);
            #[inline(always)]
            fn forward<T: Scalar>(x: T, y: T) -> T {
                #[inline(always)]
                fn formula<S: Scalar>($kx: S, $ky: S) -> S { $kz }
                T::narrow(formula(x.widen(), y.widen()))
            }
            #[inline(always)]
            fn pull_x<T: Scalar>(g: T, x: T, y: T, z: T) -> T {
                #[inline(always)]
                #[allow(unused_variables)]
                fn formula<S: Scalar>($kg: S, $kx2: S, $ky2: S, $ko: S) -> S { $kdx }
                T::narrow(formula(g.widen(), x.widen(), y.widen(), z.widen()))
            }
            #[inline(always)]
            fn pull_y<S: Scalar>(_g: S, _x: S, _y: S, _z: S) -> S { S::UNREACHED }
        } )*
    };
}

macro_rules! reads_output {
    (inputs) => {
        false
    };
    (output) => {
        true
    };
}

for_each_op!(define_ops);

impl Op {
    /// The op's row.
    #[inline]
    pub fn info(self) -> &'static OpInfo {
        &OP_INFO[self as usize]
    }

    /// The op's name in Rust and Python.
    #[inline]
    pub fn name(self) -> &'static str {
        self.info().name
    }

    /// The op called `name`, if there is one.
    pub fn from_name(name: &str) -> Option<Op> {
        OP_INFO.iter().find(|row| row.name == name).map(|row| row.op)
    }
}

macro_rules! define_forward {
    (
        nullary { $($nullary:tt)* }
        unary { $( #[doc = $udoc:literal] $U:ident $uname:ident $upaper:literal { $($ubody:tt)* } )* }
        binary { $( #[doc = $bdoc:literal] $B:ident $bname:ident $bpaper:literal { $($bbody:tt)* } )* }
        with_constant { $( #[doc = $kdoc:literal] $K:ident $kname:ident $kpaper:literal { $($kbody:tt)* } )* }
        $($rest:tt)*
    ) => {
        /// The value of a unary op chosen at run time; `None` if `op` is not unary.
        #[inline]
        pub fn forward_unary<S: Scalar>(op: Op, x: S) -> Option<S> {
            Some(match op { $( Op::$U => $U::forward(x), )* _ => return None })
        }
        /// The contribution of a unary op chosen at run time; `None` if `op` is not unary.
        #[inline]
        pub fn pull_unary<S: Scalar>(op: Op, g: S, x: S, y: S) -> Option<S> {
            Some(match op { $( Op::$U => $U::pull(g, x, y), )* _ => return None })
        }
        /// The value of a binary op, or of an op with a constant, chosen at run time; `None` if `op` is neither.
        #[inline]
        pub fn forward_binary<S: Scalar>(op: Op, x: S, y: S) -> Option<S> {
            Some(match op { $( Op::$B => $B::forward(x, y), )* $( Op::$K => $K::forward(x, y), )* _ => return None })
        }
        /// The contributions of a binary op chosen at run time to its operands; `None` if `op` is not binary.
        #[inline]
        pub fn pull_binary<S: Scalar>(op: Op, g: S, x: S, y: S, z: S) -> Option<(S, S)> {
            Some(match op {
                $( Op::$B => ($B::pull_x(g, x, y, z), $B::pull_y(g, x, y, z)), )*
                $( Op::$K => ($K::pull_x(g, x, y, z), $K::pull_y(g, x, y, z)), )*
                _ => return None,
            })
        }
    };
}

for_each_op!(define_forward);

/// `d(x^y)/dx = y x^(y-1)`; 0 where the exponent is 0, as the power is then constant.
#[inline(always)]
fn pow_dx<S: Scalar>(x: S, y: S) -> S {
    let partial = x.pow_dx(y);
    let nan = S::select(x.nan_mask(), x, S::lit(0.0));
    S::select(y.equal(S::lit(0.0)), nan, partial)
}

/// `d(x^y)/dy = x^y log(x)`; 0 at x = 0 where the power is flat to the right of y (chosen at 0^0), NaN for x < 0.
#[inline(always)]
fn pow_dy<S: Scalar>(x: S, y: S) -> S {
    let zero = S::lit(0.0);
    let at_zero = S::select(y.less(zero), S::lit(f64::NEG_INFINITY), S::select(y.nan_mask(), y, zero));
    S::select(x.equal(zero), at_zero, x.pow_dy(y))
}

/// The larger of two numbers neither of which is less: they are equal, zeros of any sign, or one is a NaN.
#[inline(always)]
fn tie<S: Scalar>(x: S, y: S) -> S {
    S::select(x.equal(S::lit(0.0)), x + y, S::select(x.nan_mask(), x, y))
}

/// The share of `g` that a `max` gives to `x` against `y`: all, half on a tie, none.
#[inline(always)]
fn larger_share<S: Scalar>(g: S, x: S, y: S) -> S {
    let half = S::lit(0.5) * g;
    let none = S::select(x.nan_mask(), x, S::select(y.nan_mask(), y, S::lit(0.0)));
    S::select(y.less(x), g, S::select(x.equal(y), half, none))
}

/// `(x + y)/2`, also where the sum leaves the range.
#[inline(always)]
fn half_sum<S: Scalar>(x: S, y: S) -> S {
    let (half, sum) = (S::lit(0.5), x + y);
    S::select(sum.abs().less(S::lit(f64::INFINITY)), half * sum, half * x + half * y)
}

/// `(x^2 + y^2)/2`, also where the sum leaves the range.
#[inline(always)]
fn half_sum_of_squares<S: Scalar>(x: S, y: S) -> S {
    let (half, sum) = (S::lit(0.5), x * x + y * y);
    S::select(sum.abs().less(S::lit(f64::INFINITY)), half * sum, half * x * x + half * y * y)
}
