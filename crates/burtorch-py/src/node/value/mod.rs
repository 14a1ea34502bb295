//! `Value`, the Python scalar: a raw heap type, because a wrapped class would cost more than the arithmetic.
//!
//! Promises: `a + b` costs about as much as on Python floats; every use of a value checks that its node still exists.
//! This folder is the audited unsafe part of the binding: `object` (memory and identity), `free_list`, `check` (does the node
//! still exist?), `append` (operations become nodes), `number` (operators), `step` (operations as data), `methods` (ops by name), `operands` (one object per node, and micrograd's names), `construct`, `convert` (to a number), `samples` (the same for several samples at once) and `attributes`.
#![allow(unsafe_code)]

mod append;
mod attributes;
mod check;
mod construct;
mod convert;
mod docs;
pub mod free_list;
mod guards;
mod methods;
mod number;
mod object;
mod operands;
pub mod samples;
mod step;
mod unevaluated;

use std::ffi::c_void;
use std::mem::offset_of;
use std::ptr;

use pyo3::ffi;
use pyo3::prelude::*;

pub use check::{checked, checked_for_sweep};
pub use methods::method;
pub use object::{ValueObject, cell_of, graph_of, is_value, new_object, object_of, value_type};

const DOC: &std::ffi::CStr = c"Value(data, label=None, *, graph=None)
--

A differentiable number: one node of a graph.

Operators and op methods append nodes and compute their values at once; backward() fills in gradients.
Costs about 30 bytes in the graph and one small Python object.

Args:
    data: a real number (Python or NumPy). On a graph of lanes one number for all, or one per lane; on a float128 graph
        also a Decimal or a str of decimal digits.
    label: a name for drawings.
    graph: the Graph to append to; the current one by default.

Raises:
    TypeError: data is not a real number.
    GraphFullError: the graph is fixed and full.

Example:
    >>> import burtorch as bt
    >>> a, b = bt.Value(-41.0), bt.Value(2.0)
    >>> g = ((a + b) - (a * b + b**3)) ** 2 / 2
    >>> g.backward()
    >>> g.data, a.grad, b.grad
    (612.5, -35.0, 1050.0)
";

/// Makes the type and adds it and the op functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = m.py();
    // SAFETY: called once, while the module is loaded, under the GIL. The definitions are leaked, as the
    // interpreter keeps pointers to them for ever.
    unsafe {
        if object::value_type().is_null() {
            object::set_value_type(make_type(py)?);
        }
        // An interpreter that imports the module a second time gets the same type: values are still values.
        let type_ = object::value_type();
        let value = Bound::from_borrowed_ptr(py, type_.cast());
        m.add("Value", value)?;
        for definition in Vec::leak(methods::op_functions()) {
            let function = ffi::PyCFunction_NewEx(definition, ptr::null_mut(), pyo3::intern!(py, "burtorch").as_ptr());
            let function = Bound::from_owned_ptr_or_err(py, function)?;
            m.add(function.getattr("__name__")?.extract::<String>()?.as_str(), function)?;
        }
    }
    Ok(())
}

/// # Safety
/// The GIL is held.
unsafe fn make_type(py: Python<'_>) -> PyResult<*mut ffi::PyTypeObject> {
    let mut all_methods = attributes::methods();
    all_methods.extend(methods::op_methods());
    all_methods.push(ffi::PyMethodDef::zeroed());
    let mut all_attributes = attributes::attributes();
    all_attributes.push(ffi::PyGetSetDef::default());
    let members = vec![
        ffi::PyMemberDef {
            name: c"__weaklistoffset__".as_ptr(),
            type_code: ffi::Py_T_PYSSIZET,
            offset: offset_of!(ValueObject, weak_references) as ffi::Py_ssize_t,
            flags: ffi::Py_READONLY,
            doc: ptr::null(),
        },
        ffi::PyMemberDef { name: ptr::null(), type_code: 0, offset: 0, flags: 0, doc: ptr::null() },
    ];
    let slot = |slot: i32, function: *mut c_void| ffi::PyType_Slot { slot, pfunc: function };
    let mut slots = [
        slot(ffi::Py_tp_doc, DOC.as_ptr() as *mut c_void),
        slot(ffi::Py_tp_new, construct::new as *mut c_void),
        slot(ffi::Py_tp_init, construct::init as *mut c_void),
        slot(ffi::Py_tp_dealloc, object::dealloc as *mut c_void),
        slot(ffi::Py_tp_repr, convert::repr as *mut c_void),
        slot(ffi::Py_tp_hash, convert::hash as *mut c_void),
        slot(ffi::Py_tp_richcompare, convert::compare as *mut c_void),
        slot(ffi::Py_tp_methods, Vec::leak(all_methods).as_mut_ptr().cast()),
        slot(ffi::Py_tp_getset, Vec::leak(all_attributes).as_mut_ptr().cast()),
        slot(ffi::Py_tp_members, Vec::leak(members).as_mut_ptr().cast()),
        slot(ffi::Py_nb_add, number::binary::<number::Plus> as *mut c_void),
        slot(ffi::Py_nb_subtract, number::binary::<number::Minus> as *mut c_void),
        slot(ffi::Py_nb_multiply, number::binary::<number::Times> as *mut c_void),
        slot(ffi::Py_nb_true_divide, number::binary::<number::Over> as *mut c_void),
        slot(ffi::Py_nb_power, number::power as *mut c_void),
        slot(ffi::Py_nb_floor_divide, number::binary::<number::FloorOver> as *mut c_void),
        slot(ffi::Py_nb_remainder, number::binary::<number::Modulo> as *mut c_void),
        slot(ffi::Py_nb_divmod, number::divmod as *mut c_void),
        slot(ffi::Py_nb_negative, number::negative as *mut c_void),
        slot(ffi::Py_nb_positive, number::positive as *mut c_void),
        slot(ffi::Py_nb_absolute, number::absolute as *mut c_void),
        slot(ffi::Py_nb_bool, convert::truth as *mut c_void),
        slot(ffi::Py_nb_float, convert::float as *mut c_void),
        slot(ffi::Py_nb_int, convert::int as *mut c_void),
        slot(0, ptr::null_mut()),
    ];
    let mut spec = ffi::PyType_Spec {
        name: c"burtorch.Value".as_ptr(),
        basicsize: size_of::<ValueObject>() as i32,
        itemsize: 0,
        flags: (ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_BASETYPE) as u32,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: every slot has the signature its name asks for, and what the slots point to is never freed.
    unsafe {
        let type_ = ffi::PyType_FromSpec(&raw mut spec).cast::<ffi::PyTypeObject>();
        if type_.is_null() {
            return Err(PyErr::fetch(py));
        }
        // The fast constructor; before CPython 3.14 it cannot be a slot.
        (*type_).tp_vectorcall = Some(construct::vectorcall);
        Ok(type_)
    }
}
