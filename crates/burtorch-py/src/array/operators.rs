//! Operators of `Array`: elementwise with broadcasting, comparisons, `@`, and `&`, `|`, `^`, `~` of masks.
//!
//! Promises: the other operand may be an Array, a number, an array of numbers or a tensor of Parameters on either side; for
//! other operands the result is `NotImplemented`, so that Python raises TypeError. Operators refer to rows of the op table.

use burtorch_core::Op;
use burtorch_core::array::{ArrayBuilder, Comparison, Element, ValueId};
use pyo3::basic::CompareOp;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyList, PyTuple};

use super::append::append_of;
use super::array::PyArray;
use super::of_graph::{of_lists, stacked};
use super::operands::{is_bool, listed, refuse_values};
use crate::convert::errors::{if_any, numpy};
use crate::convert::numbers::number_of;

type Any<'py> = Bound<'py, PyAny>;

/// The result of an operator, or `NotImplemented`.
fn operator<'py>(
    x: &Any<'py>,
    y: &Any<'py>,
    build: impl FnOnce(&mut ArrayBuilder, ValueId, ValueId) -> burtorch_core::Result<ValueId>,
) -> PyResult<Any<'py>> {
    let py = x.py();
    let made = append_of(py, [x, y], |b, [x, y]| build(b, x, y))?;
    if made.is_none() {
        refuse_values(&[x.clone(), y.clone()])?;
    }
    Ok(made.map_or_else(|| py.NotImplemented().into_bound(py), Bound::into_any))
}

/// An op of the table.
pub fn row<'py>(op: Op, x: &Any<'py>, y: &Any<'py>) -> PyResult<Any<'py>> {
    operator(x, y, |b, x, y| b.row(op, &[x, y]))
}

/// The right operand of a comparison, where lists are arrays, as in NumPy; a list that is none is a TypeError.
pub fn comparable<'py>(y: &Any<'py>) -> PyResult<Any<'py>> {
    let read = if of_lists(y)? { return stacked(y) } else { listed(y)? };
    if !(read.is(y) && (y.is_instance_of::<PyList>() || y.is_instance_of::<PyTuple>())) {
        return Ok(read);
    }
    let py = y.py();
    match if_any(py, numpy(py)?.call_method1("asarray", (y,)))? {
        Some(empty) if empty.getattr("size")?.eq(0)? => Ok(empty),
        _ => Err(PyTypeError::new_err(
            "a comparison takes numbers, arrays of numbers, or lists of numbers with rows of one length, found a list of \
             something else",
        )),
    }
}

/// `x op y`, as a mask.
pub fn compared<'py>(x: &Any<'py>, y: &Any<'py>, how: CompareOp) -> PyResult<Any<'py>> {
    let y = comparable(y)?;
    operator(x, &y, |b, x, y| match how {
        CompareOp::Lt => b.compare(Comparison::Less, &[x, y]),
        CompareOp::Le => b.compare(Comparison::LessEqual, &[x, y]),
        CompareOp::Gt => b.compare(Comparison::Less, &[y, x]),
        CompareOp::Ge => b.compare(Comparison::LessEqual, &[y, x]),
        CompareOp::Eq => b.compare(Comparison::Equal, &[x, y]),
        CompareOp::Ne => {
            let equal = b.compare(Comparison::Equal, &[x, y])?;
            b.not(equal)
        }
    })
}

/// `x ** y`: squares and cubes are separate ops, and integers stay integers if the exponent is an integer.
pub fn power<'py>(x: &Any<'py>, y: &Any<'py>) -> PyResult<Any<'py>> {
    let Some(exponent) = number_of(y)? else { return row(Op::Pow, x, y) };
    let is_whole = if_any(y.py(), y.extract::<i64>())?.is_some();
    let of_floats = x.cast::<PyArray>().is_ok_and(|x| x.get().type_of().element == Element::Float);
    if !of_floats && is_whole {
        if exponent < 0.0 {
            return Err(PyValueError::new_err("Integers to negative integer powers are not allowed."));
        }
        return operator(x, y, |b, x, y| {
            if exponent > 64.0 { b.row(Op::Pow, &[x, y]) } else { integer_power(b, x, exponent as u32) }
        });
    }
    operator(x, y, |b, x, y| match exponent {
        2.0 => b.row(Op::SQUARE, &[x]),
        3.0 => b.row(Op::CUBE, &[x]),
        _ => b.row(Op::PowConstant, &[x, y]),
    })
}

fn integer_power(b: &mut ArrayBuilder, x: ValueId, exponent: u32) -> burtorch_core::Result<ValueId> {
    let one = b.push(burtorch_core::array::ArrayOp::Integer(1), &[])?;
    let dims = b.type_of(x).dims;
    let mut power = b.broadcast_to(one, dims)?;
    for _ in 0..exponent {
        power = b.row(Op::Mul, &[power, x])?;
    }
    Ok(power)
}

/// An operator of masks, or of the bits of integers.
pub fn logical<'py>(
    symbol: &str,
    x: &Any<'py>,
    y: &Any<'py>,
    build: impl FnOnce(&mut ArrayBuilder, ValueId, ValueId) -> burtorch_core::Result<ValueId>,
) -> PyResult<Any<'py>> {
    let mut refused = None;
    let made = append_of(x.py(), [x, y], |b, [x, y]| {
        if [x, y].iter().any(|&v| b.type_of(v).element == Element::Float) {
            refused = Some(());
            return Ok(x);
        }
        build(b, x, y)
    })?;
    let Some(made) = made else { return Ok(x.py().NotImplemented().into_bound(x.py())) };
    // Integers beside masks are bits in NumPy.
    let is_mask = |x: &Any<'py>| -> PyResult<bool> {
        match x.cast::<PyArray>() {
            Ok(x) => Ok(x.get().type_of().element == Element::Mask),
            Err(_) => Ok(x.is_instance_of::<PyBool>() || is_bool(x)?),
        }
    };
    if refused.is_some() {
        return Err(PyTypeError::new_err(format!(
            "{symbol} of Arrays takes masks, such as results of comparisons, or integers"
        )));
    }
    match (is_mask(x)? && is_mask(y)?, symbol) {
        (true, _) => Ok(made.into_any()),
        (_, "&") => bits("both", &[x, y]),
        (_, "|") => bits("either", &[x, y]),
        (_, "^") => bits("exclusive", &[x, y]),
        _ => bits("inverted", &[x]),
    }
}

/// A function of the bits of integers.
fn bits<'py>(name: &str, operands: &[&Any<'py>]) -> PyResult<Any<'py>> {
    let py = operands[0].py();
    py.import("burtorch._numpy_bits")?.getattr(name)?.call1(PyTuple::new(py, operands)?)
}

/// `x ^ y` of masks.
pub fn exclusive(b: &mut ArrayBuilder, x: ValueId, y: ValueId) -> burtorch_core::Result<ValueId> {
    let (either, both) = (b.either(x, y)?, b.both(x, y)?);
    let not_both = b.not(both)?;
    b.both(either, not_both)
}

/// An elementwise op of one Array.
pub fn unary<'py>(op: Op, x: &Any<'py>) -> PyResult<Any<'py>> {
    let made = append_of(x.py(), [x], |b, of| b.row(op, &of))?;
    Ok(made.map_or_else(|| x.py().NotImplemented().into_bound(x.py()), Bound::into_any))
}

#[pymethods]
impl PyArray {
    fn __add__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        row(Op::SUM, slf.as_any(), other)
    }

    fn __radd__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        row(Op::SUM, other, slf.as_any())
    }

    fn __sub__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        row(Op::DIFFERENCE, slf.as_any(), other)
    }

    fn __rsub__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        row(Op::DIFFERENCE, other, slf.as_any())
    }

    fn __mul__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        row(Op::PRODUCT, slf.as_any(), other)
    }

    fn __rmul__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        row(Op::PRODUCT, other, slf.as_any())
    }

    fn __truediv__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        row(Op::QUOTIENT, slf.as_any(), other)
    }

    fn __rtruediv__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        row(Op::QUOTIENT, other, slf.as_any())
    }

    fn __floordiv__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        row(Op::FLOOR_QUOTIENT, slf.as_any(), other)
    }

    fn __rfloordiv__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        row(Op::FLOOR_QUOTIENT, other, slf.as_any())
    }

    fn __mod__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        row(Op::REMAINDER, slf.as_any(), other)
    }

    fn __rmod__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        row(Op::REMAINDER, other, slf.as_any())
    }

    fn __pow__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>, modulus: &Any<'py>) -> PyResult<Any<'py>> {
        without_modulus(modulus)?;
        power(slf.as_any(), other)
    }

    fn __rpow__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>, modulus: &Any<'py>) -> PyResult<Any<'py>> {
        without_modulus(modulus)?;
        row(Op::POWER, other, slf.as_any())
    }

    fn __divmod__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        pair(row(Op::FLOOR_QUOTIENT, slf.as_any(), other)?, row(Op::REMAINDER, slf.as_any(), other)?)
    }

    fn __rdivmod__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        pair(row(Op::FLOOR_QUOTIENT, other, slf.as_any())?, row(Op::REMAINDER, other, slf.as_any())?)
    }

    fn __matmul__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        operator(slf.as_any(), other, ArrayBuilder::matmul)
    }

    fn __rmatmul__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        operator(other, slf.as_any(), ArrayBuilder::matmul)
    }

    fn __and__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        logical("&", slf.as_any(), other, ArrayBuilder::both)
    }

    fn __rand__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        logical("&", slf.as_any(), other, ArrayBuilder::both)
    }

    fn __or__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        logical("|", slf.as_any(), other, ArrayBuilder::either)
    }

    fn __ror__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        logical("|", slf.as_any(), other, ArrayBuilder::either)
    }

    fn __xor__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        logical("^", slf.as_any(), other, exclusive)
    }

    fn __rxor__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        logical("^", slf.as_any(), other, exclusive)
    }

    fn __lshift__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        bits("left", &[slf.as_any(), other])
    }

    fn __rlshift__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        bits("left", &[other, slf.as_any()])
    }

    fn __rshift__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        bits("right", &[slf.as_any(), other])
    }

    fn __rrshift__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        bits("right", &[other, slf.as_any()])
    }

    fn __invert__<'py>(slf: &Bound<'py, Self>) -> PyResult<Any<'py>> {
        logical("~", slf.as_any(), slf.as_any(), |b, x, _| b.not(x))
    }

    fn __neg__<'py>(slf: &Bound<'py, Self>) -> PyResult<Any<'py>> {
        unary(Op::Neg, slf.as_any())
    }

    fn __pos__<'py>(slf: &Bound<'py, Self>) -> Bound<'py, Self> {
        slf.clone()
    }

    fn __abs__<'py>(slf: &Bound<'py, Self>) -> PyResult<Any<'py>> {
        unary(Op::Abs, slf.as_any())
    }

    fn __richcmp__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>, how: CompareOp) -> PyResult<Any<'py>> {
        compared(slf.as_any(), other, how)
    }
}

fn pair<'py>(x: Any<'py>, y: Any<'py>) -> PyResult<Any<'py>> {
    let py = x.py();
    if x.is(py.NotImplemented()) { Ok(x) } else { Ok(PyTuple::new(py, [x, y])?.into_any()) }
}

fn without_modulus(modulus: &Any<'_>) -> PyResult<()> {
    if modulus.is_none() {
        return Ok(());
    }
    Err(PyTypeError::new_err("pow() of an Array takes no modulus; use pow(x, y)"))
}
