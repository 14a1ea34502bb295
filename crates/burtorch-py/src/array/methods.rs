//! Methods of `Array` with NumPy's names: reductions, shapes, cumulative sums.
//!
//! Promises NumPy's arguments in NumPy's order, including `axis` and `keepdims`; `out=` is a TypeError, because Arrays are immutable.

use burtorch_core::Op;
use burtorch_core::array::{ArrayBuilder, Element, Reduce, ValueId};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyTuple};

use super::append::{append, append_of};
use super::array::PyArray;
use super::index;
use super::of_graph::without_rows;
use super::operands::refuse_values;
use super::operators::unary;
use crate::convert::buffer::type_name;
use crate::convert::errors::{IntoPython, if_any, numpy};

/// The axes given by an argument: one, several, or all for None.
pub struct Over(Option<Vec<isize>>);

impl<'py> FromPyObject<'_, 'py> for Over {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if object.is_none() {
            return Ok(Over(None));
        }
        match object.cast::<PyTuple>() {
            Ok(axes) => Ok(Over(Some(axes.extract()?))),
            Err(_) => Ok(Over(Some(vec![object.extract()?]))),
        }
    }
}

impl Over {
    /// All axes.
    pub const ALL: Over = Over(None);

    /// The axes.
    pub fn axes(&self) -> Option<&[isize]> {
        self.0.as_deref()
    }
}

const ALL: Over = Over::ALL;

/// An operation of one Array.
pub fn of<'py>(
    x: &Bound<'py, PyAny>,
    build: impl FnOnce(&mut ArrayBuilder, ValueId) -> burtorch_core::Result<ValueId>,
) -> PyResult<Bound<'py, PyArray>> {
    let x = &without_rows(x)?;
    need(append_of(x.py(), [x], |b, [x]| build(b, x))?, std::slice::from_ref(x))
}

/// An operation of two Arrays, numbers or arrays; other operands are a TypeError.
pub fn of_two<'py>(
    x: &Bound<'py, PyAny>,
    y: &Bound<'py, PyAny>,
    build: impl FnOnce(&mut ArrayBuilder, ValueId, ValueId) -> burtorch_core::Result<ValueId>,
) -> PyResult<Bound<'py, PyArray>> {
    let (x, y) = (&without_rows(x)?, &without_rows(y)?);
    need(append_of(x.py(), [x, y], |b, [x, y]| build(b, x, y))?, &[x.clone(), y.clone()])
}

/// An operation of several Arrays, numbers and arrays; other operands are a TypeError.
pub fn all_of<'py>(
    operands: &[Bound<'py, PyAny>],
    build: impl FnOnce(&mut ArrayBuilder, &[ValueId]) -> burtorch_core::Result<ValueId>,
) -> PyResult<Bound<'py, PyArray>> {
    let operands = &operands.iter().map(without_rows).collect::<PyResult<Vec<_>>>()?[..];
    let Some(first) = operands.first() else { return Err(PyValueError::new_err("need at least one array")) };
    need(append(first.py(), operands, build)?, operands)
}

fn need<'py>(made: Option<Bound<'py, PyArray>>, operands: &[Bound<'py, PyAny>]) -> PyResult<Bound<'py, PyArray>> {
    if made.is_none() {
        refuse_values(operands)?;
    }
    made.ok_or_else(|| {
        let names: Vec<String> = operands.iter().map(type_name).collect();
        PyTypeError::new_err(format!("expected Arrays, real numbers or arrays of numbers, found {}", names.join(", ")))
    })
}

/// Refuses NumPy arguments that change an array or its type.
fn refuse(name: &str, dtype: Option<&Bound<'_, PyAny>>, out: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    let given = if out.is_some() { "out" } else { "dtype" };
    if out.is_none() && dtype.is_none() {
        return Ok(());
    }
    Err(PyTypeError::new_err(format!("{name}() of an Array takes no {given}=; Arrays are immutable, use astype()")))
}

pub(super) fn flat(b: &mut ArrayBuilder, x: ValueId) -> burtorch_core::Result<ValueId> {
    let n = b.type_of(x).dims.size();
    b.reshape(x, &[n])
}

macro_rules! reductions {
    ($($name:ident |$b:ident, $x:ident, $axes:ident, $keep:ident| $build:expr, $doc:literal;)*) => {
        #[pymethods]
        impl PyArray { $(
            #[doc = $doc]
            #[pyo3(signature = (axis=ALL, dtype=None, out=None, keepdims=false), text_signature = "($self, axis=None, dtype=None, out=None, keepdims=False)")]
            fn $name<'py>(
                slf: &Bound<'py, Self>,
                axis: Over,
                dtype: Option<&Bound<'py, PyAny>>,
                out: Option<&Bound<'py, PyAny>>,
                keepdims: bool,
            ) -> PyResult<Bound<'py, PyArray>> {
                refuse(stringify!($name), dtype, out)?;
                of(slf.as_any(), |$b, $x| {
                    let ($axes, $keep) = (axis.axes(), keepdims);
                    $build
                })
            }
        )* }
    };
}

reductions! {
    sum |b, x, axes, keep| b.reduce(Reduce::Sum, x, axes, keep), "The sum over axes; for a mask, the number of true elements.";
    prod |b, x, axes, keep| b.reduce(Reduce::Prod, x, axes, keep), "The product over axes.";
    mean |b, x, axes, keep| b.mean(x, axes, keep), "The mean over axes.";
}

macro_rules! extremes {
    ($($name:ident |$b:ident, $x:ident, $axes:ident, $keep:ident| $build:expr, $doc:literal;)*) => {
        #[pymethods]
        impl PyArray { $(
            #[doc = $doc]
            #[pyo3(signature = (axis=ALL, out=None, keepdims=false), text_signature = "($self, axis=None, out=None, keepdims=False)")]
            fn $name<'py>(
                slf: &Bound<'py, Self>,
                axis: Over,
                out: Option<&Bound<'py, PyAny>>,
                keepdims: bool,
            ) -> PyResult<Bound<'py, PyArray>> {
                refuse(stringify!($name), None, out)?;
                of(slf.as_any(), |$b, $x| {
                    let ($axes, $keep) = (axis.axes(), keepdims);
                    $build
                })
            }
        )* }
    };
}

extremes! {
    max |b, x, axes, keep| b.reduce(Reduce::Max, x, axes, keep), "The maximum over axes; ties share the gradient.";
    min |b, x, axes, keep| b.reduce(Reduce::Min, x, axes, keep), "The minimum over axes; ties share the gradient.";
    any |b, x, axes, keep| of_mask(b, x, Reduce::Sum, axes, keep), "Whether any element over axes is not 0.";
    all |b, x, axes, keep| of_mask(b, x, Reduce::Prod, axes, keep), "Whether all elements over axes are not 0.";
    logsumexp |b, x, axes, keep| b.reduce(Reduce::LogSumExp, x, axes, keep), "The logarithm of the sum of exp over axes, shifted by the maximum.";
    norm2 |b, x, axes, keep| b.reduce(Reduce::Norm2, x, axes, keep), "The square root of the sum of squares over axes.";
}

fn of_mask(
    b: &mut ArrayBuilder,
    x: ValueId,
    kind: Reduce,
    axes: Option<&[isize]>,
    keep: bool,
) -> burtorch_core::Result<ValueId> {
    let mask = b.convert(x, Element::Mask)?;
    let total = b.reduce(kind, mask, axes, keep)?;
    b.convert(total, Element::Mask)
}

fn arg_extreme<'py>(
    x: &Bound<'py, PyArray>,
    axis: Option<isize>,
    keepdims: bool,
    largest: bool,
) -> PyResult<Bound<'py, PyArray>> {
    of(x.as_any(), |b, x| {
        let dims = b.type_of(x).dims;
        let best = match axis {
            Some(axis) => b.arg_extreme(x, axis, largest)?,
            None => {
                let flat = flat(b, x)?;
                b.arg_extreme(flat, 0, largest)?
            }
        };
        if !keepdims {
            return Ok(best);
        }
        let axis = axis.map(|axis| dims.axis(axis)).transpose()?;
        let kept: Vec<_> =
            dims.iter().enumerate().map(|(k, &n)| if axis.is_none_or(|axis| axis == k) { 1 } else { n }).collect();
        b.reshape(best, &kept)
    })
}

/// A cumulative reduction along an axis, or over all elements.
fn cumulated<'py>(
    x: &Bound<'py, PyArray>,
    axis: Option<isize>,
    build: impl FnOnce(&mut ArrayBuilder, ValueId, isize) -> burtorch_core::Result<ValueId>,
) -> PyResult<Bound<'py, PyArray>> {
    of(x.as_any(), |b, x| match axis {
        Some(axis) => build(b, x, axis),
        None => {
            let flat = flat(b, x)?;
            build(b, flat, 0)
        }
    })
}

#[pymethods]
impl PyArray {
    /// The variance over axes, with n - ddof degrees of freedom, in two passes.
    #[pyo3(signature = (axis=ALL, dtype=None, out=None, ddof=0.0, keepdims=false), text_signature = "($self, axis=None, dtype=None, out=None, ddof=0.0, keepdims=False)")]
    fn var<'py>(
        slf: &Bound<'py, Self>,
        axis: Over,
        dtype: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
        ddof: f64,
        keepdims: bool,
    ) -> PyResult<Bound<'py, PyArray>> {
        refuse("var", dtype, out)?;
        of(slf.as_any(), |b, x| b.var(x, axis.axes(), ddof, keepdims))
    }

    /// The standard deviation over axes: the square root of var().
    #[pyo3(signature = (axis=ALL, dtype=None, out=None, ddof=0.0, keepdims=false), text_signature = "($self, axis=None, dtype=None, out=None, ddof=0.0, keepdims=False)")]
    fn std<'py>(
        slf: &Bound<'py, Self>,
        axis: Over,
        dtype: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
        ddof: f64,
        keepdims: bool,
    ) -> PyResult<Bound<'py, PyArray>> {
        refuse("std", dtype, out)?;
        of(slf.as_any(), |b, x| b.std(x, axis.axes(), ddof, keepdims))
    }

    /// The index of the first largest element along an axis, or of all.
    #[pyo3(signature = (axis=None, out=None, *, keepdims=false))]
    fn argmax<'py>(
        slf: &Bound<'py, Self>,
        axis: Option<isize>,
        out: Option<&Bound<'py, PyAny>>,
        keepdims: bool,
    ) -> PyResult<Bound<'py, PyArray>> {
        refuse("argmax", None, out)?;
        arg_extreme(slf, axis, keepdims, true)
    }

    /// The index of the first smallest element along an axis, or of all.
    #[pyo3(signature = (axis=None, out=None, *, keepdims=false))]
    fn argmin<'py>(
        slf: &Bound<'py, Self>,
        axis: Option<isize>,
        out: Option<&Bound<'py, PyAny>>,
        keepdims: bool,
    ) -> PyResult<Bound<'py, PyArray>> {
        refuse("argmin", None, out)?;
        arg_extreme(slf, axis, keepdims, false)
    }

    /// Cumulative sums along an axis, or over all elements; those of integers are floats.
    #[pyo3(signature = (axis=None, dtype=None, out=None))]
    fn cumsum<'py>(
        slf: &Bound<'py, Self>,
        axis: Option<isize>,
        dtype: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyArray>> {
        refuse("cumsum", dtype, out)?;
        cumulated(slf, axis, ArrayBuilder::cumsum)
    }

    /// Cumulative products along an axis, or over all elements; those of integers are floats.
    #[pyo3(signature = (axis=None, dtype=None, out=None))]
    fn cumprod<'py>(
        slf: &Bound<'py, Self>,
        axis: Option<isize>,
        dtype: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyArray>> {
        refuse("cumprod", dtype, out)?;
        cumulated(slf, axis, ArrayBuilder::cumprod)
    }

    /// exp(x) over its sum along an axis, shifted by the largest.
    #[pyo3(signature = (axis=-1), text_signature = "($self, axis=-1)")]
    fn softmax<'py>(slf: &Bound<'py, Self>, axis: isize) -> PyResult<Bound<'py, PyArray>> {
        of(slf.as_any(), |b, x| b.softmax(x, axis))
    }

    /// log(softmax(x)) along an axis.
    #[pyo3(signature = (axis=-1), text_signature = "($self, axis=-1)")]
    fn log_softmax<'py>(slf: &Bound<'py, Self>, axis: isize) -> PyResult<Bound<'py, PyArray>> {
        of(slf.as_any(), |b, x| b.log_softmax(x, axis))
    }

    /// The array itself, because Arrays are immutable.
    fn copy<'py>(slf: &Bound<'py, Self>) -> Bound<'py, PyArray> {
        slf.clone()
    }

    /// The axes in another order, by default reversed.
    #[pyo3(signature = (*axes))]
    fn transpose<'py>(slf: &Bound<'py, Self>, axes: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyArray>> {
        let is_reversed = axes.is_empty() || axes.len() == 1 && axes.get_item(0)?.is_none();
        let named = if is_reversed { Vec::new() } else { many(axes)? };
        of(slf.as_any(), |b, x| {
            let dims = b.type_of(x).dims;
            let order = if is_reversed {
                (0..dims.rank()).rev().collect()
            } else {
                named.iter().map(|&axis| dims.axis(axis)).collect::<burtorch_core::Result<Vec<_>>>()?
            };
            b.transpose(x, &order)
        })
    }

    /// The array with two axes exchanged.
    fn swapaxes<'py>(slf: &Bound<'py, Self>, axis1: isize, axis2: isize) -> PyResult<Bound<'py, PyArray>> {
        of(slf.as_any(), |b, x| {
            let dims = b.type_of(x).dims;
            let mut order: Vec<_> = (0..dims.rank()).collect();
            order.swap(dims.axis(axis1)?, dims.axis(axis2)?);
            b.transpose(x, &order)
        })
    }

    /// The array without axes of extent 1: the given ones, or all.
    #[pyo3(signature = (axis=ALL), text_signature = "($self, axis=None)")]
    fn squeeze<'py>(slf: &Bound<'py, Self>, axis: Over) -> PyResult<Bound<'py, PyArray>> {
        let dims = slf.get().type_of().dims;
        let named = match axis.axes() {
            Some(axes) => axes.iter().map(|&axis| dims.axis(axis)).collect::<burtorch_core::Result<Vec<_>>>(),
            None => Ok((0..dims.rank()).filter(|&k| dims.get(k) == Some(&1)).collect()),
        };
        let named = named.or_raise(slf.py())?;
        if named.iter().any(|&k| dims.get(k) != Some(&1)) {
            return Err(PyValueError::new_err("cannot select an axis to squeeze out which has size not equal to one"));
        }
        if (1..named.len()).any(|k| named[..k].contains(&named[k])) {
            return Err(PyValueError::new_err("squeeze() takes each axis once"));
        }
        let kept: Vec<_> = dims.iter().enumerate().filter(|(k, _)| !named.contains(k)).map(|(_, &n)| n).collect();
        of(slf.as_any(), |b, x| b.reshape(x, &kept))
    }

    /// NumPy's dot: the sum over the last axis of this array and the second last of the other.
    fn dot<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArray>> {
        of_two(slf.as_any(), other, ArrayBuilder::dot)
    }

    /// min(max(x, low), high); None means no bound.
    #[pyo3(signature = (min=None, max=None, out=None))]
    fn clip<'py>(
        slf: &Bound<'py, Self>,
        min: Option<&Bound<'py, PyAny>>,
        max: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        refuse("clip", None, out)?;
        let mut x = slf.clone().into_any();
        for (op, bound) in [(Op::Max, min), (Op::Min, max)] {
            if let Some(bound) = bound {
                x = of_two(&x, bound, |b, x, y| b.row(op, &[x, y]))?.into_any();
            }
        }
        Ok(x)
    }

    /// The nearest integers, halves to even, as floats; or the nearest numbers with some decimals.
    #[pyo3(signature = (decimals=0, out=None))]
    fn round<'py>(
        slf: &Bound<'py, Self>,
        decimals: isize,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        refuse("round", None, out)?;
        if decimals != 0 {
            let rounding = slf.py().import("burtorch._numpy_more")?.getattr("round")?;
            return rounding.call1((slf, decimals));
        }
        if slf.get().type_of().element == Element::Int {
            Ok(slf.clone().into_any())
        } else {
            unary(Op::Round, slf.as_any())
        }
    }

    /// round(x), round(x, n)
    #[pyo3(signature = (ndigits=0, /))]
    fn __round__<'py>(slf: &Bound<'py, Self>, ndigits: isize) -> PyResult<Bound<'py, PyAny>> {
        Self::round(slf, ndigits, None)
    }

    /// The numbers as floats, 64-bit integers (rounded toward zero) or a mask (whether they differ from 0).
    fn astype<'py>(slf: &Bound<'py, Self>, dtype: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArray>> {
        let py = slf.py();
        let dtype_of = numpy(py)?.call_method1("dtype", (dtype,))?;
        let (name, kind): (String, String) =
            (dtype_of.getattr("name")?.extract()?, dtype_of.getattr("kind")?.extract()?);
        let float = slf.get().trace(py).get().dtype().name();
        // Python's float means the float type of the program.
        let is_python_float = dtype.is(py.get_type::<pyo3::types::PyFloat>());
        let element = match name.as_str() {
            _ if kind == "i" || kind == "u" => Element::Int,
            "bool" => Element::Mask,
            name if name == float || is_python_float => Element::Float,
            _ => {
                let message = format!("an Array of this program holds {float}, integers or bool, found {name}");
                return Err(PyTypeError::new_err(message));
            }
        };
        of(slf.as_any(), |b, x| b.convert(x, element))
    }

    /// The same numbers, as constants of derivatives.
    fn detach<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyArray>> {
        of(slf.as_any(), ArrayBuilder::detach)
    }

    /// The elements at the given indices, along an axis or of the flattened array.
    #[pyo3(signature = (indices, axis=None))]
    fn take<'py>(
        slf: &Bound<'py, Self>,
        indices: &Bound<'py, PyAny>,
        axis: Option<isize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        // A tuple would mean several axes.
        let listed = indices.cast::<PyTuple>().map(|indices| indices.to_list().into_any());
        let indices = listed.as_ref().unwrap_or(indices);
        let Some(axis) = axis else { return index::item(&of(slf.as_any(), flat)?, indices) };
        let dims = slf.get().type_of().dims;
        let axis = dims.axis(axis).or_raise(py)?;
        let whole = || pyo3::types::PySlice::full(py).into_any();
        let mut parts: Vec<_> = (0..axis).map(|_| whole()).collect();
        parts.push(indices.clone());
        index::item(slf, PyTuple::new(py, parts)?.as_any())
    }

    /// The elements on a diagonal of two axes, as a last axis.
    #[pyo3(signature = (offset=0, axis1=0, axis2=1))]
    fn diagonal<'py>(
        slf: &Bound<'py, Self>,
        offset: isize,
        axis1: isize,
        axis2: isize,
    ) -> PyResult<Bound<'py, PyArray>> {
        of(slf.as_any(), |b, x| b.diagonal(x, offset, axis1, axis2))
    }

    /// The sum of the elements on a diagonal of two axes.
    #[pyo3(name = "trace", signature = (offset=0, axis1=0, axis2=1))]
    fn sum_of_diagonal<'py>(
        slf: &Bound<'py, Self>,
        offset: isize,
        axis1: isize,
        axis2: isize,
    ) -> PyResult<Bound<'py, PyArray>> {
        of(slf.as_any(), |b, x| {
            let diagonal = b.diagonal(x, offset, axis1, axis2)?;
            b.reduce(Reduce::Sum, diagonal, Some(&[-1]), false)
        })
    }
}

/// Integers given one by one or as one sequence.
pub(super) fn many(given: &Bound<'_, PyTuple>) -> PyResult<Vec<isize>> {
    match given.len() {
        1 => {
            let only = given.get_item(0)?;
            match if_any(given.py(), only.extract::<isize>())? {
                Some(n) => Ok(vec![n]),
                None => only.extract(),
            }
        }
        _ => given.extract(),
    }
}
