//! Op methods of `Value`, and the functions of the same names, one per row of the op table.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::marker::PhantomData;

use burtorch_core::ops::{self, BinaryOp, UnaryOp};
use burtorch_core::{NodeId, Op, Quick, Scalar};
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;

use super::append::{Build, append};
use super::docs::{constant_method_doc, function_doc};
use super::number::{append_both, build};
use super::object::{ValueObject, is_value};
use super::step::Step;
use super::unevaluated::{append_unevaluated, read_keywords};
use crate::convert::entry::{attached, raise_python};
use crate::convert::numbers::{Number, number};
use crate::convert::signals::text_of;
use crate::node::critical_section::{locked, slot, unchanging};
use crate::node::vector;

/// An op of one value.
pub struct Unary<O>(pub PhantomData<O>);
build!(Unary<O: UnaryOp>, 1, |graph, [x]| graph.unary::<O>(x), Step::Op(O::OP));

struct Binary<O>(PhantomData<O>);
build!(Binary<O: BinaryOp>, 2, |graph, [x, y]| graph.binary::<O>(x, y), Step::Op(O::OP));

/// A binary op whose second operand is a number, made a constant node.
struct BinaryConstant<O>(f64, PhantomData<O>);
build!(BinaryConstant<O: BinaryOp>(c), 1, |graph, [x]| graph.with_constant::<O>(x, c), Step::WithConstant(O::OP, c));

/// A binary op whose first operand is a number.
struct ConstantBinary<O>(f64, PhantomData<O>);
build!(ConstantBinary<O: BinaryOp>(c), 1, |graph, [y]| graph.constant_with::<O>(c, y), Step::ConstantWith(O::OP, c));

pub unsafe extern "C" fn unary_method<O: UnaryOp>(
    x: *mut ffi::PyObject,
    _no_arguments: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let run = || {
        // SAFETY: the interpreter passes a living Value under its lock.
        unsafe { append((*x.cast::<ValueObject>()).owner, [x.cast()], Unary::<O>(PhantomData)) }
    };
    // SAFETY: objects that the interpreter passes.
    unsafe { slot(&[x], run) }
}

unsafe extern "C" fn unary_function<O: UnaryOp>(
    _module: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    n: ffi::Py_ssize_t,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let run = || {
        // SAFETY: the interpreter passes `n` living objects, then one per keyword, under its lock.
        unsafe {
            if n == 1 && keywords.is_null() {
                let x = *arguments;
                if is_value(x) {
                    return append((*x.cast::<ValueObject>()).owner, [x.cast()], Unary::<O>(PhantomData));
                }
                return vector::unary_function(O::OP, x);
            }
            let arguments_slice = slice_of(arguments.cast_mut(), n);
            match (read_keywords(O::OP, arguments, arguments_slice.len(), keywords), arguments_slice) {
                (None, _) => std::ptr::null_mut(),
                (Some(false), _) => append_unevaluated(O::OP, arguments_slice),
                (Some(true), &[_]) => unary_function::<O>(_module, arguments, n, std::ptr::null_mut()),
                _ => raise_python(PyTypeError::new_err(format!("{}() takes one operand, found {n}", O::OP.name()))),
            }
        }
    };
    // SAFETY: objects that the interpreter passes.
    unsafe { slot(slice_of(arguments.cast_mut(), n), run) }
}

/// Shared by methods and functions of two operands.
unsafe fn binary_of<O: BinaryOp>(x: *mut ffi::PyObject, y: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: living objects under the GIL.
    unsafe {
        match (is_value(x), is_value(y)) {
            (true, true) => append_both(x.cast(), y.cast(), Binary::<O>(PhantomData)),
            (true, false) => match number(y) {
                Number::Is(c) => {
                    append((*x.cast::<ValueObject>()).owner, [x.cast()], BinaryConstant::<O>(c, PhantomData))
                }
                Number::IsNot => vector::binary_function(O::OP, &[x, y]),
                Number::Failed => std::ptr::null_mut(),
            },
            (false, true) => match number(x) {
                Number::Is(c) => {
                    append((*y.cast::<ValueObject>()).owner, [y.cast()], ConstantBinary::<O>(c, PhantomData))
                }
                Number::IsNot => vector::binary_function(O::OP, &[x, y]),
                Number::Failed => std::ptr::null_mut(),
            },
            (false, false) => vector::binary_function(O::OP, &[x, y]),
        }
    }
}

unsafe extern "C" fn binary_method<O: BinaryOp>(x: *mut ffi::PyObject, y: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let run = || {
        // SAFETY: the interpreter passes a living Value and a living object under its lock.
        unsafe { binary_of::<O>(x, y) }
    };
    // SAFETY: objects that the interpreter passes.
    unsafe { slot(&[x, y], run) }
}

/// # Safety
/// A living Value and a living object under the GIL.
unsafe fn with_constant<O: BinaryOp>(x: *mut ffi::PyObject, c: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: by the contract of this function.
    unsafe {
        match number(c) {
            Number::Is(c) => append((*x.cast::<ValueObject>()).owner, [x.cast()], BinaryConstant::<O>(c, PhantomData)),
            Number::IsNot => not_operands(O::OP, c),
            Number::Failed => std::ptr::null_mut(),
        }
    }
}

unsafe extern "C" fn constant_method<O: BinaryOp>(
    x: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    n: ffi::Py_ssize_t,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let run = || {
        // SAFETY: the interpreter passes a living Value and `n` living objects, then one per keyword, under its lock.
        unsafe {
            let c = constant_argument(O::OP, arguments, n as usize, 0, keywords);
            if c.is_null() {
                return c;
            }
            let made = with_constant::<O>(x, c);
            ffi::Py_DECREF(c);
            made
        }
    };
    // SAFETY: objects that the interpreter passes.
    unsafe { slot(&[x], run) }
}

/// The constant of an op, as a reference of the caller's: the argument after `n_before` others, the keyword named by the row,
/// or the row's default; null with an error set if there is none of these.
///
/// # Safety
/// The arguments of a call as the interpreter passes them, under its lock.
unsafe fn constant_argument(
    op: Op,
    arguments: *const *mut ffi::PyObject,
    n: usize,
    n_before: usize,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let wrong = || {
        let takes = if n_before == 1 { "takes a Value or a Vector, and a number" } else { "takes a number" };
        raise_python(PyTypeError::new_err(format!("{}() {takes}", op.name())))
    };
    let given = n.wrapping_sub(n_before);
    // SAFETY: by the contract of this function.
    unsafe {
        let n_keywords = if keywords.is_null() { 0 } else { ffi::PyTuple_GET_SIZE(keywords) };
        match (given, n_keywords, op.info().constant) {
            (1, 0, _) => {
                let c = *arguments.add(n_before);
                ffi::Py_INCREF(c);
                c
            }
            (0, 0, Some((_, default))) => ffi::PyFloat_FromDouble(default),
            (0, 1, Some((name, _))) => {
                let other = attached(|py| {
                    let keyword = Bound::from_borrowed_ptr(py, ffi::PyTuple_GET_ITEM(keywords, 0));
                    (!keyword.eq(name).unwrap_or(false)).then(|| text_of(&keyword))
                });
                if let Some(keyword) = other {
                    let message = format!("{}() got an unexpected keyword argument '{keyword}'", op.name());
                    return raise_python(PyTypeError::new_err(message));
                }
                let c = *arguments.add(n);
                ffi::Py_INCREF(c);
                c
            }
            _ => wrong(),
        }
    }
}

unsafe extern "C" fn constant_function<O: BinaryOp>(
    _module: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    n: ffi::Py_ssize_t,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let run = || {
        // SAFETY: the interpreter passes `n` living objects, then one per keyword, under its lock.
        unsafe {
            let operands = slice_of(arguments.cast_mut(), n);
            let [x, ..] = *operands else { return vector::constant_function(O::OP, operands) };
            let c = constant_argument(O::OP, arguments, operands.len(), 1, keywords);
            if c.is_null() {
                return c;
            }
            let made = if is_value(x) { with_constant::<O>(x, c) } else { vector::constant_function(O::OP, &[x, c]) };
            ffi::Py_DECREF(c);
            made
        }
    };
    // SAFETY: objects that the interpreter passes.
    unsafe { slot(slice_of(arguments.cast_mut(), n), run) }
}

unsafe extern "C" fn binary_function<O: BinaryOp>(
    _module: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    n: ffi::Py_ssize_t,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let run = || {
        // SAFETY: the interpreter passes `n` living objects, then one per keyword, under its lock.
        unsafe {
            let operands = slice_of(arguments.cast_mut(), n);
            if !keywords.is_null() {
                if let Some(made) = vector::with_axis(O::OP, arguments, operands.len(), keywords) {
                    return made;
                }
                match read_keywords(O::OP, arguments, operands.len(), keywords) {
                    None => return std::ptr::null_mut(),
                    Some(false) => return append_unevaluated(O::OP, operands),
                    Some(true) => {}
                }
            }
            match *operands {
                [x, y] => binary_of::<O>(x, y),
                _ => vector::binary_function(O::OP, operands),
            }
        }
    };
    // SAFETY: objects that the interpreter passes.
    unsafe { slot(slice_of(arguments.cast_mut(), n), run) }
}

unsafe extern "C" fn reduction_function<const OP: u8>(
    _module: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    n: ffi::Py_ssize_t,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let run = || {
        let op = ops::OP_INFO[OP as usize].op;
        // SAFETY: the interpreter passes `n` living objects, then one per keyword, under its lock.
        unsafe {
            let operands = slice_of(arguments.cast_mut(), n);
            if !keywords.is_null()
                && let Some(made) = vector::with_axis(op, arguments, operands.len(), keywords)
            {
                return made;
            }
            match (operands, read_keywords(op, arguments, operands.len(), keywords)) {
                (_, None) => std::ptr::null_mut(),
                (&[x], Some(evaluate)) => {
                    let x = unchanging(x);
                    locked(&[x.0], || vector::reduction_function(op, x.0, evaluate))
                }
                _ => raise_python(PyTypeError::new_err(format!("{}() takes one argument, found {n}", op.name()))),
            }
        }
    };
    // SAFETY: objects that the interpreter passes.
    unsafe { slot(slice_of(arguments.cast_mut(), n), run) }
}

/// The arguments of a call. For none the interpreter may pass a null pointer.
///
/// # Safety
/// `arguments` points to `n` objects that live while the result is used.
unsafe fn slice_of<'a>(arguments: *mut *mut ffi::PyObject, n: ffi::Py_ssize_t) -> &'a [*mut ffi::PyObject] {
    if n <= 0 {
        return &[];
    }
    // SAFETY: by the contract of this function.
    unsafe { std::slice::from_raw_parts(arguments, n as usize) }
}

#[cold]
fn not_operands(op: Op, found: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: `found` is a living object under the GIL, as all callers have it.
    let type_name = unsafe { CStr::from_ptr((*ffi::Py_TYPE(found)).tp_name) }.to_string_lossy();
    let message = format!("{}() expects a Value or a real number, found {type_name}", op.name());
    raise_python(PyTypeError::new_err(message))
}

/// The description of a method or function for the interpreter.
pub fn method(name: &'static CStr, doc: &'static CStr, flags: i32, call: ffi::PyMethodDefPointer) -> ffi::PyMethodDef {
    ffi::PyMethodDef { ml_name: name.as_ptr(), ml_meth: call, ml_flags: flags, ml_doc: doc.as_ptr() }
}

/// Text for the interpreter.
macro_rules! c_str {
    ($($text:expr),*) => {
        // SAFETY-free: the concatenation ends with its only NUL.
        match std::ffi::CStr::from_bytes_with_nul(concat!($($text,)* "\0").as_bytes()) {
            Ok(text) => text,
            Err(_) => c"",
        }
    };
}

macro_rules! define_methods {
    (
        nullary { $($nullary:tt)* }
        unary { $( #[doc = $udoc:literal] $U:ident $uname:ident $upaper:literal { $($ubody:tt)* } )* }
        binary { $( #[doc = $bdoc:literal] $B:ident $bname:ident $bpaper:literal { $($bbody:tt)* } )* }
        with_constant { $( #[doc = $kdoc:literal] $K:ident $kname:ident $kpaper:literal { $($kbody:tt)* } )* }
        reduction { $( #[doc = $rdoc:literal] $R:ident $rname:ident $rpaper:literal { $($rbody:tt)* } )* }
        $($rest:tt)*
    ) => {
        /// The op methods of `Value`.
        pub fn op_methods() -> Vec<ffi::PyMethodDef> {
            vec![
                $( method(c_str!(stringify!($uname)),
                    c_str!(stringify!($uname), "($self, /)\n--\n\nA new Value: ", $udoc, "."),
                    ffi::METH_NOARGS, ffi::PyMethodDefPointer { PyCFunction: unary_method::<ops::$U> }), )*
                $( method(c_str!(stringify!($bname)),
                    c_str!(stringify!($bname), "($self, y, /)\n--\n\nA new Value: ", $bdoc, ". y is a Value or a number."),
                    ffi::METH_O, ffi::PyMethodDefPointer { PyCFunction: binary_method::<ops::$B> }), )*
                $( method(c_str!(stringify!($kname)),
                    constant_method_doc(Op::$K), ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
                    ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: constant_method::<ops::$K> }), )*
                method(c"__floor__", c"__floor__($self, /)\n--\n\nmath.floor(v): a new Value.",
                    ffi::METH_NOARGS, ffi::PyMethodDefPointer { PyCFunction: unary_method::<ops::Floor> }),
                method(c"__ceil__", c"__ceil__($self, /)\n--\n\nmath.ceil(v): a new Value.",
                    ffi::METH_NOARGS, ffi::PyMethodDefPointer { PyCFunction: unary_method::<ops::Ceil> }),
            ]
        }

        /// The op functions of the module.
        pub fn op_functions() -> Vec<ffi::PyMethodDef> {
            vec![
                $( method(c_str!(stringify!($uname)), function_doc(Op::$U),
                    ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
                    ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: unary_function::<ops::$U> }), )*
                $( method(c_str!(stringify!($bname)), function_doc(Op::$B),
                    ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
                    ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: binary_function::<ops::$B> }), )*
                $( method(c_str!(stringify!($kname)), function_doc(Op::$K),
                    ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
                    ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: constant_function::<ops::$K> }), )*
                $( method(c_str!(stringify!($rname)), function_doc(Op::$R),
                    ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
                    ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: reduction_function::<{ Op::$R as u8 }> }), )*
            ]
        }
    };
}

burtorch_core::for_each_op!(define_methods);
