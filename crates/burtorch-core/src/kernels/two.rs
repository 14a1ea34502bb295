//! Two operations on slices in one pass.
//!
//! Promises: the bits of the two kernels one after the other: the result between them stays in a register. Does not know ops.

use super::float::{KernelFloat, Pack};
use super::levels::{Target, leveled};

leveled! {
    /// `z`: the first operation on x and y, and the second on its result and c.
    pub fn two_steps<E>(two: Two, x: &[E], y: &[E], c: &[E], z: &mut [E]) = two_steps_at;
}

/// An operation that is done together with another one on the same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OneOfTwo {
    /// `x + y`
    Add,
    /// `x - y`
    Sub,
    /// `x y`
    Mul,
    /// As [`super::contributed_products`]; only as the first operation.
    Product,
    /// As [`super::contributions`]; only as the second operation.
    Contribution,
    /// `-x`; only as the first operation.
    Neg,
}

/// Two operations that are done in one pass: the second takes the result of the first and another number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Two {
    /// The operation on the first two operands; a negation reads one of them.
    pub first: OneOfTwo,
    /// The operation on its result and the third operand.
    pub second: OneOfTwo,
    /// Whether that result is the second's right operand.
    pub to_right: bool,
}

/// Passes `|x, y, c| z`, over vectors of `$v`, to the macro `$each`, for the operations of a [`Two`].
macro_rules! by_two {
    ($two:expr, $v:ty, $each:ident) => {{
        use $crate::kernels::{arithmetic::unreached, two::OneOfTwo::*};
        let zero = <$v>::of(0.0);
        match $two.first {
            Add => $crate::kernels::two::by_second!($two, $v, $each, |x, y| x + y),
            Sub => $crate::kernels::two::by_second!($two, $v, $each, |x, y| x - y),
            Mul => $crate::kernels::two::by_second!($two, $v, $each, |x, y| x * y),
            Product | Contribution => {
                $crate::kernels::two::by_second!($two, $v, $each, |x, y| <$v>::select(unreached(x), x, x * y + zero))
            }
            Neg => $crate::kernels::two::by_second!($two, $v, $each, |x, _y| -x),
        }
    }};
}

macro_rules! by_second {
    ($two:expr, $v:ty, $each:ident, |$x:ident, $y:ident| $t:expr) => {
        match ($two.second, $two.to_right) {
            (Add, false) => $each!(|$x, $y, c| $t + c),
            (Add, true) => $each!(|$x, $y, c| c + $t),
            (Sub, false) => $each!(|$x, $y, c| $t - c),
            (Sub, true) => $each!(|$x, $y, c| c - $t),
            (Mul, false) => $each!(|$x, $y, c| $t * c),
            (Mul, true) => $each!(|$x, $y, c| c * $t),
            (Contribution, false) => $each!(|$x, $y, c| {
                let t = $t;
                <$v>::select(unreached(t), t, c + <$v>::of(0.0))
            }),
            (Contribution, true) => $each!(|$x, $y, c| <$v>::select(unreached(c), c, $t + <$v>::of(0.0))),
            (Product | Neg, false) => $each!(|$x, $y, c| {
                let t = $t;
                <$v>::select(unreached(t), t, t * c + <$v>::of(0.0))
            }),
            (Product | Neg, true) => $each!(|$x, $y, c| <$v>::select(unreached(c), c, c * $t + <$v>::of(0.0))),
        }
    };
}

pub(super) use {by_second, by_two};

#[inline(always)]
fn two_steps_at<E: KernelFloat, T: Target>(two: Two, x: &[E], y: &[E], c: &[E], z: &mut [E]) {
    two_steps_by::<E, T::Each<E>>(two, x, y, c, z);
}

#[inline(always)]
fn two_steps_by<E: KernelFloat, V: Pack<Elem = E>>(two: Two, x: &[E], y: &[E], c: &[E], z: &mut [E]) {
    assert!([x.len(), y.len(), c.len()] == [z.len(); 3], "kernel operands differ in length");
    macro_rules! each {
        (|$x:ident, $y:ident, $c:ident| $z:expr) => {{
            let (width, mut at) = (V::LANES, 0);
            while at + width <= z.len() {
                // SAFETY: `at + width` is at most the length of every slice.
                unsafe {
                    let [$x, $y, $c] = [V::read(x, at), V::read(y, at), V::read(c, at)];
                    let result: V = $z;
                    result.write(z, at);
                }
                at += width;
            }
            if at < z.len() {
                let rest = |x: &[E]| V::read_or(&x[at..], E::default());
                let [$x, $y, $c] = [rest(x), rest(y), rest(c)];
                let result: V = $z;
                result.write_some(&mut z[at..]);
            }
        }};
    }
    by_two!(two, V, each);
}
