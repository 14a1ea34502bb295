//! Ops: the table (`table.rs`) and its expansions: the `Op` enum, one marker type per op with its
//! forward formula and its vector-Jacobian product, and [`OP_INFO`] for docs, tests and bindings.
//!
//! Promises: a row defines everything about its op. Knows scalars, not graphs.

#[macro_use]
mod table;
mod formulas;

mod bend;
mod dual;
mod map;
mod max_shifted;
mod reduce;
mod rows;
mod sums;

pub(crate) use bend::{Bend, bend, bend_of_many};
pub use dual::Dual;
pub(crate) use dual::{moved, sum_of_moved};
pub(crate) use map::{map_forward, map_pull};
pub(crate) use max_shifted::{softmax_forward, softmax_pull};
pub(crate) use reduce::products_of_others;
pub use reduce::{Reduction, variance_of};
pub use rows::{Function, row_partial, row_value};

use crate::scalar::{RowMath, Scalar};
use crate::simd::array_of;
use formulas::*;

/// The number and kind of an op's operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arity {
    /// No operands: leaves, constants, parameters.
    Nullary,
    /// One value.
    Unary,
    /// Two values.
    Binary,
    /// One value and a number without a gradient.
    WithConstant,
    /// Any number of values, at least one.
    Reduction,
    /// Two ranges of equal length (and a bias).
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
    /// Results below this may be as far off as this; 0 where each is held to its own place.
    pub ulp_of: f64,
    /// Whether the derivative reads the op's own output, so that the value must be computed.
    pub reads_output: bool,
    /// The keyword and the default of the constant of an op that has them.
    pub constant: Option<(&'static str, f64)>,
    /// For an op with a constant: the op of two values that it is.
    pub like: Option<Op>,
    /// For an op of two: the reduction that the function of its name is for one sequence.
    pub folds: Option<Op>,
    /// For a reduction: the method of vectors; empty if there is none.
    pub method: &'static str,
    /// The properties for rewriting passes and planners.
    pub is: Properties,
}

/// The properties of an op besides its formulas; see the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    /// Exchanging the operands changes no bit.
    pub commutative: bool,
    /// Second derivatives are 0.
    pub linear: bool,
    /// Every operand receives the adjoint as it is.
    pub through: bool,
    /// It takes a few arithmetic instructions.
    pub quick: bool,
    /// The partial is expensive and multiplies the adjoint: programs store it with the value.
    pub keeps: bool,
    /// Its code is kept small: sweeps and programs take a few instructions more for it.
    pub rare: bool,
    /// A partial is 0 where an operand is not chosen, which an infinite partial of a later op must not turn into NaN.
    pub masks: bool,
}

/// The defaults of a row.
const PLAIN: OpInfo = OpInfo {
    op: Op::Leaf,
    name: "",
    paper_name: "",
    arity: Arity::Nullary,
    doc: "",
    domain: (0.0, 0.0),
    value_ulp: 0.0,
    partial_ulp: 0.0,
    ulp_of: 0.0,
    reads_output: false,
    constant: None,
    like: None,
    folds: None,
    method: "",
    is: Properties::NONE,
};

impl Properties {
    /// A row that says nothing.
    pub const NONE: Self = Properties {
        commutative: false,
        linear: false,
        through: false,
        quick: false,
        keeps: false,
        rare: false,
        masks: false,
    };
}

macro_rules! properties {
    ($($name:ident)+) => {
        Properties { $($name: true,)+ ..Properties::NONE }
    };
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
    /// The other properties of its row.
    const IS: Properties = OP_INFO[Self::OP as usize].is;
    /// The row's value.
    fn y<S: RowMath>(x: S) -> S;
    /// The row's partial: the contribution of the adjoint `g` of the output to the operand; `y` is the output.
    fn dx<S: RowMath>(g: S, x: S, y: S) -> S;
    /// The value, rounded once.
    #[inline(always)]
    fn forward<S: Scalar>(x: S) -> S {
        S::narrow(Self::y(x.widen()))
    }
    /// The contribution, rounded once.
    #[inline(always)]
    fn pull<S: Scalar>(g: S, x: S, y: S) -> S {
        S::narrow(Self::dx(g.widen(), x.widen(), y.widen()))
    }
}

/// An op of two operands. Rows of the table only. For ops with a constant, `y` is the constant, which receives nothing.
pub trait BinaryOp: sealed::Sealed {
    /// Its opcode.
    const OP: Op;
    /// Whether its derivative reads its value.
    const READS_OUTPUT: bool;
    /// The other properties of its row.
    const IS: Properties = OP_INFO[Self::OP as usize].is;
    /// The row's value.
    fn z<S: RowMath>(x: S, y: S) -> S;
    /// The row's first partial: the contribution of the adjoint `g` of the output `z` to the first operand.
    fn dx<S: RowMath>(g: S, x: S, y: S, z: S) -> S;
    /// The row's second partial.
    fn dy<S: RowMath>(g: S, x: S, y: S, z: S) -> S;
    /// The value, rounded once.
    #[inline(always)]
    fn forward<S: Scalar>(x: S, y: S) -> S {
        S::narrow(Self::z(x.widen(), y.widen()))
    }
    /// The first contribution, rounded once.
    #[inline(always)]
    fn pull_x<S: Scalar>(g: S, x: S, y: S, z: S) -> S {
        S::narrow(Self::dx(g.widen(), x.widen(), y.widen(), z.widen()))
    }
    /// The second contribution, rounded once.
    #[inline(always)]
    fn pull_y<S: Scalar>(g: S, x: S, y: S, z: S) -> S {
        S::narrow(Self::dy(g.widen(), x.widen(), y.widen(), z.widen()))
    }
}

/// The sum of the operands that exist, 0 without any.
#[inline(always)]
pub(crate) fn sum_of_some<S: RowMath>(x: Option<S>, y: Option<S>) -> S {
    match (x, y) {
        (Some(x), Some(y)) => x + y,
        (Some(x), None) | (None, Some(x)) => x,
        (None, None) => S::lit(0.0),
    }
}

macro_rules! define_ops {
    (
        nullary { $( #[doc = $ndoc:literal] $N:ident $nname:ident $npaper:literal )* }
        unary { $( #[doc = $udoc:literal] $U:ident $uname:ident $upaper:literal {
            y = |$ux:ident| $uy:expr; dx = |$ug:ident, $ux2:ident, $uo:ident| $udx:expr; reads $ureads:ident;
            on $ulo:literal, $uhi:literal; ulp $uvb:literal, $upb:literal $(of $uof:literal)?;
            $(is $($uis:ident)+;)? $(as $uas:ident;)? } )* }
        binary { $( #[doc = $bdoc:literal] $B:ident $bname:ident $bpaper:literal {
            z = |$bx:ident, $by:ident| $bz:expr;
            dx = |$bg:ident, $bx2:ident, $by2:ident, $bo:ident| $bdx:expr;
            dy = |$cg:ident, $cx2:ident, $cy2:ident, $co:ident| $bdy:expr; reads $breads:ident;
            on $blo:literal, $bhi:literal; ulp $bvb:literal, $bpb:literal $(of $bof:literal)?;
            $(folds $bfolds:ident;)? $(is $($bis:ident)+;)? $(as $bas:ident;)? } )* }
        with_constant { $( #[doc = $kdoc:literal] $K:ident $kname:ident $kpaper:literal {
            z = |$kx:ident, $ky:ident| $kz:expr;
            dx = |$kg:ident, $kx2:ident, $ky2:ident, $ko:ident| $kdx:expr; reads $kreads:ident;
            on $klo:literal, $khi:literal; ulp $kvb:literal, $kpb:literal;
            $(constant $kkey:ident = $kdefault:literal;)? $(like $klike:ident;)? $(is $($kis:ident)+;)?
            $(as $kas:ident;)? } )* }
        reduction { $( #[doc = $rdoc:literal] $R:ident $rname:ident $rpaper:literal {
            reads $rreads:ident; on $rlo:literal, $rhi:literal;
            $(method $rmethod:ident;)? $(is $($ris:ident)+;)? $(as $ras:ident;)? } )* }
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
                ..PLAIN }, )*
            $( OpInfo { op: Op::$U, name: stringify!($uname), paper_name: $upaper, arity: Arity::Unary, doc: $udoc,
                domain: ($ulo, $uhi), value_ulp: $uvb, partial_ulp: $upb, $(ulp_of: $uof,)?
                reads_output: reads_output!($ureads), $(is: properties!($($uis)+),)? ..PLAIN }, )*
            $( OpInfo { op: Op::$B, name: stringify!($bname), paper_name: $bpaper, arity: Arity::Binary, doc: $bdoc,
                domain: ($blo, $bhi), value_ulp: $bvb, partial_ulp: $bpb, $(ulp_of: $bof,)?
                reads_output: reads_output!($breads), $(folds: Some(Op::$bfolds),)? $(is: properties!($($bis)+),)?
                ..PLAIN }, )*
            $( OpInfo { op: Op::$K, name: stringify!($kname), paper_name: $kpaper, arity: Arity::WithConstant, doc: $kdoc,
                domain: ($klo, $khi), value_ulp: $kvb, partial_ulp: $kpb, reads_output: reads_output!($kreads),
                $(constant: Some((stringify!($kkey), $kdefault)),)? $(like: Some(Op::$klike),)?
                $(is: properties!($($kis)+),)? ..PLAIN }, )*
            $( OpInfo { op: Op::$R, name: stringify!($rname), paper_name: $rpaper, arity: Arity::Reduction, doc: $rdoc,
                domain: ($rlo, $rhi), reads_output: reads_output!($rreads), $(method: stringify!($rmethod),)?
                $(is: properties!($($ris)+),)? ..PLAIN }, )*
            $( OpInfo { op: Op::$I, name: stringify!($iname), paper_name: $ipaper, arity: Arity::InnerProduct, doc: $idoc,
                domain: ($ilo, $ihi), ..PLAIN }, )*
            $( OpInfo { op: Op::$O, name: stringify!($oname), arity: Arity::Block, doc: $odoc, reads_output: true,
                ..PLAIN }, )*
        ];

        /// Ops by their role in rewriting and as operators, from their rows.
        impl Op {
            $( $( #[doc = $udoc] pub const $uas: Op = Op::$U; )? )*
            $( $( #[doc = $bdoc] pub const $bas: Op = Op::$B; )? )*
            $( $( #[doc = $kdoc] pub const $kas: Op = Op::$K; )? )*
            $( $( #[doc = $rdoc] pub const $ras: Op = Op::$R; )? )*
        }

        $( #[doc = $udoc] #[derive(Clone, Copy, Debug)] pub struct $U;
        impl sealed::Sealed for $U {}
        #[allow(unused_variables)]
        impl UnaryOp for $U {
            const OP: Op = Op::$U;
            const READS_OUTPUT: bool = reads_output!($ureads);
            #[inline(always)]
            fn y<S: RowMath>($ux: S) -> S { $uy }
            #[inline(always)]
            fn dx<S: RowMath>($ug: S, $ux2: S, $uo: S) -> S { $udx }
        } )*
        $( #[doc = $bdoc] #[derive(Clone, Copy, Debug)] pub struct $B;
        impl sealed::Sealed for $B {}
        #[allow(unused_variables)]
        impl BinaryOp for $B {
            const OP: Op = Op::$B;
            const READS_OUTPUT: bool = reads_output!($breads);
            #[inline(always)]
            fn z<S: RowMath>($bx: S, $by: S) -> S { $bz }
            #[inline(always)]
            fn dx<S: RowMath>($bg: S, $bx2: S, $by2: S, $bo: S) -> S { $bdx }
            #[inline(always)]
            fn dy<S: RowMath>($cg: S, $cx2: S, $cy2: S, $co: S) -> S { $bdy }
        } )*
        $( #[doc = $kdoc] #[derive(Clone, Copy, Debug)] pub struct $K;
        impl sealed::Sealed for $K {}
        #[allow(unused_variables)]
        impl BinaryOp for $K {
            const OP: Op = Op::$K;
            const READS_OUTPUT: bool = reads_output!($kreads);
            #[inline(always)]
            fn z<S: RowMath>($kx: S, $ky: S) -> S { $kz }
            #[inline(always)]
            fn dx<S: RowMath>($kg: S, $kx2: S, $ky2: S, $ko: S) -> S { $kdx }
            #[inline(always)]
            fn dy<S: RowMath>(g: S, x: S, y: S, z: S) -> S { S::lit(-0.0) }
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

/// Whether rows are compiled for a different scalar: half-precision numbers are computed in a wider type, and many
/// lanes in parts.
const fn is_elsewhere<S: Scalar>() -> bool {
    size_of::<S>() != size_of::<S::Compute>() || S::LANES > S::Part::LANES
}

/// Computes a row of such a scalar.
#[inline]
fn elsewhere<S: Scalar, const N: usize, const M: usize>(
    x: [S; N],
    computed: impl Fn([S::Compute; N]) -> Option<[S::Compute; M]>,
    of_part: impl Fn([S::Part; N]) -> Option<[S::Part; M]>,
) -> Option<[S; M]> {
    if S::LANES == S::Part::LANES {
        let y = computed(array_of(|i| x[i].widen()))?;
        return Some(array_of(|i| S::narrow(y[i])));
    }
    let mut all = [S::lit(0.0); M];
    for k in 0..S::LANES / S::Part::LANES {
        let y = of_part(array_of(|i| x[i].part(k)))?;
        for (all, y) in all.iter_mut().zip(y) {
            *all = all.with_part(k, y);
        }
    }
    Some(all)
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
            if is_elsewhere::<S>() {
                let [y] = elsewhere([x], |[x]| Some([forward_unary(op, x)?]), |[x]| Some([forward_unary(op, x)?]))?;
                return Some(y);
            }
            Some(match op { $( Op::$U => $U::forward(x), )* _ => return None })
        }
        /// The contribution of a unary op chosen at run time; `None` if `op` is not unary. One copy for each type.
        #[inline(never)]
        pub fn pull_unary<S: Scalar>(op: Op, g: S, x: S, y: S) -> Option<S> {
            if is_elsewhere::<S>() {
                let computed = |[g, x, y]: [_; 3]| Some([pull_unary(op, g, x, y)?]);
                let [to_x] = elsewhere([g, x, y], computed, |[g, x, y]| Some([pull_unary(op, g, x, y)?]))?;
                return Some(to_x);
            }
            Some(match op { $( Op::$U => $U::pull(g, x, y), )* _ => return None })
        }
        /// The value of a binary op, or of an op with a constant, chosen at run time; `None` if `op` is neither.
        #[inline]
        pub fn forward_binary<S: Scalar>(op: Op, x: S, y: S) -> Option<S> {
            if is_elsewhere::<S>() {
                let computed = |[x, y]: [_; 2]| Some([forward_binary(op, x, y)?]);
                let [z] = elsewhere([x, y], computed, |[x, y]| Some([forward_binary(op, x, y)?]))?;
                return Some(z);
            }
            Some(match op { $( Op::$B => $B::forward(x, y), )* $( Op::$K => $K::forward(x, y), )* _ => return None })
        }
        /// The contributions of a binary op chosen at run time to its operands; `None` if `op` is not binary. One copy for
        /// each type.
        #[inline(never)]
        pub fn pull_binary<S: Scalar>(op: Op, g: S, x: S, y: S, z: S) -> Option<(S, S)> {
            if is_elsewhere::<S>() {
                let computed = |[g, x, y, z]: [_; 4]| pull_binary(op, g, x, y, z).map(<[_; 2]>::from);
                let of_part = |[g, x, y, z]: [_; 4]| pull_binary(op, g, x, y, z).map(<[_; 2]>::from);
                return elsewhere([g, x, y, z], computed, of_part).map(<(S, S)>::from);
            }
            Some(match op {
                $( Op::$B => ($B::pull_x(g, x, y, z), $B::pull_y(g, x, y, z)), )*
                $( Op::$K => ($K::pull_x(g, x, y, z), $K::pull_y(g, x, y, z)), )*
                _ => return None,
            })
        }
    };
}

for_each_op!(define_forward);
