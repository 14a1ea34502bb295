//! Number slots of `Value`: operators with values, Python numbers and NumPy scalars on either side.
//!
//! Promises: no panic; wrong types return `NotImplemented`, so that Python tries the other operand and finally raises
//! TypeError. No op is named here: operators refer to rows of the op table.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use burtorch_core::ops::{self, BinaryOp};
use burtorch_core::{NodeId, Quick, Scalar};
use pyo3::ffi;

use super::append::{Build, append, append_at_once, append_in_branch};
use super::methods::Unary;
use super::object::{ValueObject, is_value, value_type};
use super::step::Step;
use crate::convert::entry::{caught, raise_python};
use crate::convert::numbers::{Number, number};
use crate::node::critical_section::slot;
use crate::node::vector;

/// An operator: a binary op, and its form with a constant on one side.
pub trait Operator {
    /// The op for two values.
    type Op: BinaryOp;
    /// The operator's symbol, for Vector and array operands.
    const SYMBOL: vector::Symbol;
    /// `x op c` on the fast path.
    ///
    /// # Safety
    /// `x` is a node of the graph.
    unsafe fn right_quick<S: Scalar>(graph: Quick<'_, 'static, S>, x: NodeId, c: S) -> NodeId;
    /// `c op x` on the fast path.
    ///
    /// # Safety
    /// `x` is a node of the graph.
    unsafe fn left_quick<S: Scalar>(graph: Quick<'_, 'static, S>, c: S, x: NodeId) -> NodeId;
}

macro_rules! operators {
    ($($Name:ident $Op:ident |$graph:ident, $x:ident, $c:ident| $right:expr, $left:expr;)*) => { $(
        /// The operator of the op with this name.
        pub struct $Name;
        impl Operator for $Name {
            type Op = ops::$Op;
            const SYMBOL: vector::Symbol = vector::Symbol::$Name;
            #[inline(always)]
            unsafe fn right_quick<S: Scalar>($graph: Quick<'_, 'static, S>, $x: NodeId, $c: S) -> NodeId {
                // SAFETY: by the contract of this function.
                unsafe { $right }
            }
            #[inline(always)]
            unsafe fn left_quick<S: Scalar>($graph: Quick<'_, 'static, S>, $c: S, $x: NodeId) -> NodeId {
                // SAFETY: by the contract of this function.
                unsafe { $left }
            }
        }
    )* };
}

// As `operator_right` and `operator_left` of the core's erased graphs.
operators! {
    Plus Add |graph, x, c| graph.with_constant::<ops::AddConstant>(x, c), graph.with_constant::<ops::AddConstant>(x, c);
    Minus Sub |graph, x, c| graph.with_constant::<ops::AddConstant>(x, -c), graph.constant_with::<ops::Sub>(c, x);
    Times Mul |graph, x, c| graph.with_constant::<ops::MulByConstant>(x, c), graph.with_constant::<ops::MulByConstant>(x, c);
    Over Div |graph, x, c| graph.div_constant(x, c), graph.constant_with::<ops::Div>(c, x);
    Power Pow |graph, x, c| graph.pow_constant(x, c), graph.constant_with::<ops::Pow>(c, x);
    FloorOver FloorDivide |graph, x, c| graph.with_constant::<ops::FloorDivide>(x, c), graph.constant_with::<ops::FloorDivide>(c, x);
    Modulo Remainder |graph, x, c| graph.with_constant::<ops::Remainder>(x, c), graph.constant_with::<ops::Remainder>(c, x);
}

/// The operation to append: on the fast path, and as data.
macro_rules! build {
    ($Name:ident <$O:ident: $Bound:path> $(($number:ident))?, $n:literal, |$graph:ident, $nodes:pat_param| $quick:expr,
        $step:expr) => {
        impl<$O: $Bound> Clone for $Name<$O> {
            fn clone(&self) -> Self {
                *self
            }
        }
        impl<$O: $Bound> Copy for $Name<$O> {}
        impl<$O: $Bound> Build<$n> for $Name<$O> {
            #[inline(always)]
            unsafe fn build_quick<S: Scalar>(self, $graph: Quick<'_, 'static, S>, $nodes: [NodeId; $n]) -> NodeId {
                $( let $number = S::lit(self.0); )?
                // SAFETY: by the contract of this function.
                unsafe { $quick }
            }

            fn step(&self) -> Step {
                $( let $number = self.0; )?
                $step
            }
        }
    };
}
pub(super) use build;

struct Both<O>(PhantomData<O>);
build!(Both<O: Operator>, 2, |graph, [x, y]| graph.binary::<O::Op>(x, y), Step::Op(O::Op::OP));

struct Right<O>(f64, PhantomData<O>);
build!(Right<O: Operator>(c), 1, |graph, [x]| O::right_quick(graph, x, c), Step::Right(O::SYMBOL, c));

struct Left<O>(f64, PhantomData<O>);
build!(Left<O: Operator>(c), 1, |graph, [x]| O::left_quick(graph, c, x), Step::Left(O::SYMBOL, c));

/// Two values of one graph, or null with `GraphMismatchError` set.
///
/// # Safety
/// Both are living values; the GIL is held.
#[inline(always)]
pub unsafe fn append_both(a: *mut ValueObject, b: *mut ValueObject, build: impl Build<2>) -> *mut ffi::PyObject {
    // SAFETY: by the contract of this function.
    unsafe {
        if (*a).owner != (*b).owner {
            return append_in_branch([a, b], build);
        }
        append((*a).owner, [a, b], build)
    }
}

/// A binary number slot. Values and floats of the exact types are tried first; other operands take the general path.
pub unsafe extern "C" fn binary<O: Operator>(a: *mut ffi::PyObject, b: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let run = || {
        // SAFETY: the interpreter passes living objects, at least one of them a Value, under its lock.
        unsafe {
            let made = if ffi::PyFloat_CheckExact(a) != 0 {
                let x = b.cast::<ValueObject>();
                append_at_once((*x).owner, [x], Left::<O>(ffi::PyFloat_AS_DOUBLE(a), PhantomData))
            } else if ffi::Py_TYPE(a) == value_type() {
                let x = a.cast::<ValueObject>();
                if ffi::Py_TYPE(b) == value_type() && (*x).owner == (*b.cast::<ValueObject>()).owner {
                    append_at_once((*x).owner, [x, b.cast()], Both::<O>(PhantomData))
                } else if ffi::PyFloat_CheckExact(b) != 0 {
                    append_at_once((*x).owner, [x], Right::<O>(ffi::PyFloat_AS_DOUBLE(b), PhantomData))
                } else {
                    std::ptr::null_mut()
                }
            } else {
                std::ptr::null_mut()
            };
            if made.is_null() { binary_of_any::<O>(a, b) } else { made }
        }
    };
    // SAFETY: objects that the interpreter passes.
    unsafe { slot(&[a, b], run) }
}

/// A binary number slot for operands of any type.
///
/// # Safety
/// As for `binary`.
#[inline(never)]
unsafe fn binary_of_any<O: Operator>(a: *mut ffi::PyObject, b: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: by the contract of this function.
    unsafe {
        if is_value(a) {
            let x = a.cast::<ValueObject>();
            if is_value(b) {
                return append_both(x, b.cast(), Both::<O>(PhantomData));
            }
            match number(b) {
                Number::Is(c) => append((*x).owner, [x], Right::<O>(c, PhantomData)),
                Number::IsNot => vector::binary_with_arrays(O::SYMBOL, a, b),
                Number::Failed => std::ptr::null_mut(),
            }
        } else {
            let x = b.cast::<ValueObject>();
            match number(a) {
                Number::Is(c) => append((*x).owner, [x], Left::<O>(c, PhantomData)),
                Number::IsNot => vector::binary_with_arrays(O::SYMBOL, a, b),
                Number::Failed => std::ptr::null_mut(),
            }
        }
    }
}

/// `nb_power`; there is no modulus.
pub unsafe extern "C" fn power(
    a: *mut ffi::PyObject,
    b: *mut ffi::PyObject,
    modulus: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: as in `binary`.
    caught(|| unsafe {
        if modulus != ffi::Py_None() {
            let message = "pow() of a Value takes no modulus; use pow(x, y)";
            return raise_python(pyo3::exceptions::PyTypeError::new_err(message));
        }
        binary::<Power>(a, b)
    })
}

/// `divmod(a, b)`: the pair of `a // b` and `a % b`.
pub unsafe extern "C" fn divmod(a: *mut ffi::PyObject, b: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let run = || {
        // SAFETY: as in `binary`; both results are new references, which the tuple takes over.
        unsafe {
            let quotient = binary::<FloorOver>(a, b);
            if quotient.is_null() || quotient == ffi::Py_NotImplemented() {
                return quotient;
            }
            let rest = binary::<Modulo>(a, b);
            if rest.is_null() || rest == ffi::Py_NotImplemented() {
                ffi::Py_DECREF(quotient);
                return rest;
            }
            let pair = ffi::PyTuple_New(2);
            if pair.is_null() {
                ffi::Py_DECREF(quotient);
                ffi::Py_DECREF(rest);
                return pair;
            }
            ffi::PyTuple_SetItem(pair, 0, quotient);
            ffi::PyTuple_SetItem(pair, 1, rest);
            pair
        }
    };
    caught(run)
}

/// `-v`
pub unsafe extern "C" fn negative(a: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let run = || {
        // SAFETY: the interpreter passes a living Value under its lock.
        unsafe { append((*a.cast::<ValueObject>()).owner, [a.cast()], Unary::<ops::Neg>(PhantomData)) }
    };
    // SAFETY: objects that the interpreter passes.
    unsafe { slot(&[a], run) }
}

/// `abs(v)`
pub unsafe extern "C" fn absolute(a: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let run = || {
        // SAFETY: the interpreter passes a living Value under its lock.
        unsafe { append((*a.cast::<ValueObject>()).owner, [a.cast()], Unary::<ops::Abs>(PhantomData)) }
    };
    // SAFETY: objects that the interpreter passes.
    unsafe { slot(&[a], run) }
}

/// `+v` is `v`.
pub unsafe extern "C" fn positive(a: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a living object; the caller gets a reference of its own.
    caught(|| unsafe {
        ffi::Py_INCREF(a);
        a
    })
}
