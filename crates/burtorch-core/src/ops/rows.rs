//! Rows and elementary functions chosen at run time, over any [`RowMath`]: numbers, or a scalar that records.
//!
//! Promises: the formulas of the table and of the list of functions, nothing else. Does not know programs.

use super::formulas::{faded, over_squares_bend, pow_dx_dx, pow_dx_dy, pow_dy_dy};
use super::{self as table, BinaryOp, Op, UnaryOp};
use crate::scalar::RowMath;
use crate::simd::for_each_function;

macro_rules! by_opcode {
    (
        nullary { $($nullary:tt)* }
        unary { $( #[doc = $udoc:literal] $U:ident $uname:ident $upaper:literal { $($ubody:tt)* } )* }
        binary { $( #[doc = $bdoc:literal] $B:ident $bname:ident $bpaper:literal { $($bbody:tt)* } )* }
        with_constant { $( #[doc = $kdoc:literal] $K:ident $kname:ident $kpaper:literal { $($kbody:tt)* } )* }
        $($rest:tt)*
    ) => {
        /// The value of an elementwise op; `y` is ignored if it is unary. `None` for ops that are not elementwise.
        pub fn row_value<S: RowMath>(op: Op, x: S, y: S) -> Option<S> {
            Some(match op {
                $( Op::$U => table::$U::y(x), )*
                $( Op::$B => table::$B::z(x, y), )*
                $( Op::$K => table::$K::z(x, y), )*
                _ => return None,
            })
        }

        /// The contribution of the adjoint `g` of an elementwise op with the value `z` to operand `k`. `None` for other
        /// ops.
        pub fn row_partial<S: RowMath>(op: Op, k: usize, g: S, x: S, y: S, z: S) -> Option<S> {
            Some(match (op, k) {
                $( (Op::$U, 0) => table::$U::dx(g, x, z), )*
                $( (Op::$B, 0) => table::$B::dx(g, x, y, z), (Op::$B, 1) => table::$B::dy(g, x, y, z), )*
                $( (Op::$K, 0) => table::$K::dx(g, x, y, z), )*
                _ => return None,
            })
        }
    };
}

for_each_op!(by_opcode);

macro_rules! by_function {
    (
        op { $($(#[$doc:meta])* $name:ident $row:ident { $($body:tt)* })* }
        op2 { $($(#[$doc2:meta])* $name2:ident $row2:ident { $($body2:tt)* })* }
        exact { $($(#[$edoc:meta])* $exact:ident $erow:ident { $from:ident })* }
        helper { $($(#[$hdoc:meta])* $hname:ident $hrow:ident {
            $(rare)? |$hx:ident| $hwide:expr;
            dx = |$hg:ident, $hx1:ident, $hy1:ident| $hdx:expr;
        })* }
        helper2 { $($(#[$hdoc2:meta])* $hname2:ident $hrow2:ident {
            $(rare)? |$hx2:ident, $hy2:ident| $hwide2:expr;
            dx = |$gx:ident, $xx:ident, $yx:ident, $zx:ident| $hdx2:expr;
            dy = |$gy:ident, $xy:ident, $yy:ident, $zy:ident| $hdy2:expr;
        })* }
        slice { $($slice:tt)* }
    ) => {
        /// An elementary function: the functions called by formulas of rows.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Function {
            $( $(#[$doc])* $row, )*
            $( $(#[$doc2])* $row2, )*
            $( $(#[$edoc])* $erow, )*
            $( $(#[$hdoc])* $hrow, )*
            $( $(#[$hdoc2])* $hrow2, )*
        }

        impl Function {
            /// All of them.
            pub const ALL: &[Function] = &[
                $( Function::$row, )* $( Function::$row2, )* $( Function::$erow, )*
                $( Function::$hrow, )* $( Function::$hrow2, )*
            ];

            /// The name.
            pub fn name(self) -> &'static str {
                match self {
                    $( Function::$row => stringify!($name), )*
                    $( Function::$row2 => stringify!($name2), )*
                    $( Function::$erow => stringify!($exact), )*
                    $( Function::$hrow => stringify!($hname), )*
                    $( Function::$hrow2 => stringify!($hname2), )*
                }
            }

            /// Arguments: one or two.
            pub fn arity(self) -> usize {
                match self {
                    $( Function::$row2 => 2, )*
                    $( Function::$hrow2 => 2, )*
                    _ => 1,
                }
            }

            /// The op of the table with this function; `None` for helpers, which are partials of ops.
            pub fn op(self) -> Option<Op> {
                Some(match self {
                    $( Function::$row => Op::$row, )*
                    $( Function::$row2 => Op::$row2, )*
                    $( Function::$erow => Op::$erow, )*
                    _ => return None,
                })
            }

            /// Its value; `y` is not looked at if it takes one argument.
            pub fn value<S: RowMath>(self, x: S, y: S) -> S {
                match self {
                    $( Function::$row => x.$name(), )*
                    $( Function::$row2 => x.$name2(y), )*
                    $( Function::$erow => x.$exact(), )*
                    $( Function::$hrow => x.$hname(), )*
                    $( Function::$hrow2 => x.$hname2(y), )*
                }
            }

            /// The contribution of the adjoint `g` of the value `z` to argument `k`; `None` if that argument has no
            /// gradient.
            #[allow(unused_variables, unreachable_patterns)]
            pub fn partial<S: RowMath>(self, k: usize, g: S, x: S, y: S, z: S) -> Option<S> {
                if let Some(op) = self.op() {
                    return row_partial(op, k, g, x, y, z);
                }
                Some(match (self, k) {
                    // The derivative by the first argument includes the second, which depends on it or is an order.
                    (Function::TanhGrad | Function::Polygamma, 1) => return None,
                    $( (Function::$hrow, 0) => { let ($hg, $hx1, $hy1) = (g, x, z); $hdx } )*
                    $( (Function::$hrow2, 0) => { let ($gx, $xx, $yx, $zx) = (g, x, y, z); $hdx2 } )*
                    $( (Function::$hrow2, 1) => { let ($gy, $xy, $yy, $zy) = (g, x, y, z); $hdy2 } )*
                    _ => return None,
                })
            }
        }
    };
}

for_each_function!(by_function);
