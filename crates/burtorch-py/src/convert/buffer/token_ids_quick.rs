//! Fast reading of token ids: contiguous buffers of integers, and lists (of lists) of ints.
//!
//! Promises: the same result as the general path, to which all other input and every error is left. No Python code
//! runs. A buffer costs a fraction of a nanosecond per entry, instead of seven in the general path, a list three.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use pyo3::ffi;
use pyo3::prelude::*;

use super::masked::is_masked;
use super::read::Dims;
use crate::convert::critical_section::section;

/// Reads plain token ids into `out`, replacing its content; `None`, without an exception, for the general path.
pub fn quick_symbols(object: &Bound<'_, PyAny>, out: &mut Vec<u32>) -> Option<Dims> {
    out.clear();
    // SAFETY: a living object under the GIL.
    unsafe {
        if ffi::PyList_CheckExact(object.as_ptr()) != 0 {
            return section(object.as_ptr(), object.as_ptr(), || from_list(object.as_ptr(), out));
        }
        if ffi::PyObject_CheckBuffer(object.as_ptr()) != 1 || is_masked(object) {
            return None;
        }
        let mut view = MaybeUninit::<ffi::Py_buffer>::uninit();
        if ffi::PyObject_GetBuffer(object.as_ptr(), view.as_mut_ptr(), ffi::PyBUF_FULL_RO) != 0 {
            ffi::PyErr_Clear();
            return None;
        }
        let mut view = view.assume_init();
        let dims = from_view(&view, out);
        ffi::PyBuffer_Release(&raw mut view);
        dims
    }
}

/// # Safety
/// `view` was filled by its exporter with format, shape and strides, and not released.
unsafe fn from_view(view: &ffi::Py_buffer, out: &mut Vec<u32>) -> Option<Dims> {
    // SAFETY: by the contract of this function; a contiguous buffer holds its items consecutively.
    unsafe {
        let dims = match view.ndim {
            1 => Dims::one(usize::try_from(*view.shape).ok()?),
            2 => Dims::two(usize::try_from(*view.shape).ok()?, usize::try_from(*view.shape.add(1)).ok()?),
            _ => return None,
        };
        let is_plain =
            !view.format.is_null() && !view.buf.is_null() && ffi::PyBuffer_IsContiguous(view, b'C' as _) == 1;
        if !is_plain || view.itemsize <= 0 {
            return None;
        }
        let n = usize::try_from(view.len / view.itemsize).ok()?;
        out.try_reserve(n).ok()?;
        let at = view.buf;
        let taken = match (std::slice::from_raw_parts(view.format.cast::<u8>(), 1)[0], view.itemsize) {
            (b'b', 1) => take::<i8>(at.cast(), n, out),
            (b'B', 1) => take::<u8>(at.cast(), n, out),
            (b'h', 2) => take::<i16>(at.cast(), n, out),
            (b'H', 2) => take::<u16>(at.cast(), n, out),
            (b'i' | b'l', 4) => take::<i32>(at.cast(), n, out),
            (b'I' | b'L', 4) => take::<u32>(at.cast(), n, out),
            (b'l' | b'q' | b'n', 8) => take::<i64>(at.cast(), n, out),
            (b'L' | b'Q' | b'N', 8) => take::<u64>(at.cast(), n, out),
            _ => false,
        };
        taken.then_some(dims)
    }
}

/// An integer of a buffer: as a token id, and a number other than 0 if it is not a valid one.
trait Entry: Copy {
    fn split(self) -> (u32, u32);
}

macro_rules! entries {
    ($($t:ty: $x:ident => $over:expr),* $(,)?) => { $(
        impl Entry for $t {
            #[inline(always)]
            fn split(self) -> (u32, u32) {
                let $x = self;
                ($x as u32, $over)
            }
        }
    )* };
}

entries! {
    i8: x => (x < 0) as u32,
    u8: _x => 0,
    i16: x => (x < 0) as u32,
    u16: _x => 0,
    i32: x => (x < 0) as u32,
    u32: _x => 0,
    i64: x => (x >> 32) as u32,
    u64: x => (x >> 32) as u32,
}

/// Appends `n` entries, unless one of them is not a valid token id.
///
/// # Safety
/// `at` may be read for `n` entries, aligned or not; `out` has room for them.
unsafe fn take<T: Entry>(at: *const T, n: usize, out: &mut Vec<u32>) -> bool {
    debug_assert!(!at.is_null() && out.is_empty() && out.capacity() >= n);
    let room = out.spare_capacity_mut();
    let mut over = 0;
    for (k, place) in room[..n].iter_mut().enumerate() {
        // SAFETY: by the contract of this function.
        let (symbol, above) = unsafe { at.add(k).read_unaligned() }.split();
        place.write(symbol);
        over |= above;
    }
    if over == 0 {
        // SAFETY: `n` entries have been written.
        unsafe { out.set_len(n) }
    }
    over == 0
}

/// # Safety
/// `list` is a living list, whose lock is held.
unsafe fn from_list(list: *mut ffi::PyObject, out: &mut Vec<u32>) -> Option<Dims> {
    debug_assert!(!list.is_null());
    // SAFETY: items of a list are living objects, and no code that could change it runs here; the locks of the inner lists are
    // taken one by one.
    unsafe {
        let n = ffi::PyList_GET_SIZE(list) as usize;
        if n == 0 || ffi::PyList_CheckExact(ffi::PyList_GET_ITEM(list, 0)) == 0 {
            append_ints(list, out)?;
            return (n > 0).then(|| Dims::one(n));
        }
        let width = ffi::PyList_GET_SIZE(ffi::PyList_GET_ITEM(list, 0)) as usize;
        for k in 0..n {
            row_of(list, k, width, out)?;
        }
        Some(Dims::two(n, width))
    }
}

/// Appends a row of a list of lists.
///
/// # Safety
/// As for [`from_list`].
#[inline]
unsafe fn row_of(list: *mut ffi::PyObject, k: usize, width: usize, out: &mut Vec<u32>) -> Option<()> {
    debug_assert!(!list.is_null());
    let k = k as ffi::Py_ssize_t;
    // SAFETY: as above. While the lock of the row is awaited the list may change, so the row is kept alive.
    unsafe {
        #[cfg(Py_GIL_DISABLED)]
        let kept = Bound::from_owned_ptr_or_opt(Python::assume_attached(), ffi::PyList_GetItemRef(list, k));
        #[cfg(Py_GIL_DISABLED)]
        let Some(row) = kept.as_ref().map(Bound::as_ptr) else {
            ffi::PyErr_Clear();
            return None;
        };
        #[cfg(not(Py_GIL_DISABLED))]
        let row = ffi::PyList_GET_ITEM(list, k);
        if ffi::PyList_CheckExact(row) == 0 {
            return None;
        }
        section(row, row, || if ffi::PyList_GET_SIZE(row) as usize == width { append_ints(row, out) } else { None })
    }
}

/// # Safety
/// As for [`from_list`].
unsafe fn append_ints(list: *mut ffi::PyObject, out: &mut Vec<u32>) -> Option<()> {
    debug_assert!(!list.is_null());
    // SAFETY: as above; an exact int is converted without running code.
    unsafe {
        let n = ffi::PyList_GET_SIZE(list);
        out.try_reserve(n as usize).ok()?;
        for k in 0..n {
            let item = ffi::PyList_GET_ITEM(list, k);
            if ffi::PyLong_CheckExact(item) == 0 {
                return None;
            }
            let mut overflow = 0;
            let number = ffi::PyLong_AsLongAndOverflow(item, &raw mut overflow);
            if overflow != 0 {
                return None;
            }
            out.push(u32::try_from(number).ok()?);
        }
        Some(())
    }
}
