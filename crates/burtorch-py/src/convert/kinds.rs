//! The types of numbers in arrays: reading and writing one number, or a row of them.
//!
//! Promises: a number of another type is rounded to nearest, once. Does not know arrays.
#![allow(unsafe_code)]

use burtorch_core::Float;
use pyo3::buffer::{ElementType, PyUntypedBuffer};

/// The type of the numbers in an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// IEEE binary16
    F16,
    /// float32
    F32,
    /// float64
    F64,
    /// Signed integers of this many bytes.
    Signed(u8),
    /// Unsigned integers, or bools, of this many bytes.
    Unsigned(u8),
}

impl Kind {
    /// That of a buffer; `None` for objects, complex numbers, text, and numbers of another byte order.
    pub fn of(buffer: &PyUntypedBuffer) -> Option<Kind> {
        let format = buffer.format().to_bytes();
        let foreign: &[u8] = if cfg!(target_endian = "little") { b">!" } else { b"<" };
        if format.first().is_some_and(|order| foreign.contains(order)) {
            return None;
        }
        Some(match ElementType::from_format(buffer.format()) {
            ElementType::Float { bytes: 2 } => Kind::F16,
            ElementType::Float { bytes: 4 } => Kind::F32,
            ElementType::Float { bytes: 8 } => Kind::F64,
            ElementType::SignedInteger { bytes: n @ (1 | 2 | 4 | 8) } => Kind::Signed(n as u8),
            ElementType::UnsignedInteger { bytes: n @ (1 | 2 | 4 | 8) } => Kind::Unsigned(n as u8),
            ElementType::Bool => Kind::Unsigned(1),
            _ if matches!(format, b"e" | b"=e" | b"@e" | b"<e") => Kind::F16,
            _ => return None,
        })
    }

    /// The type of results for arguments of this type, as a NumPy name.
    pub fn of_results(self) -> Kind {
        match self {
            Kind::F16 | Kind::F32 => self,
            _ => Kind::F64,
        }
    }

    /// The name in NumPy of a float type.
    pub fn numpy_name(self) -> &'static str {
        match self {
            Kind::F16 => "float16",
            Kind::F32 => "float32",
            _ => "float64",
        }
    }

    /// The number at a place.
    ///
    /// # Safety
    /// A number of this type may be read there.
    #[inline(always)]
    pub unsafe fn read(self, at: *const u8) -> f64 {
        // SAFETY: by the contract of this function; numbers need not be aligned.
        unsafe {
            match self {
                Kind::F64 => at.cast::<f64>().read_unaligned(),
                Kind::F32 => f64::from(at.cast::<f32>().read_unaligned()),
                Kind::F16 => half_to_f64(at.cast::<u16>().read_unaligned()),
                Kind::Signed(1) => f64::from(at.cast::<i8>().read()),
                Kind::Signed(2) => f64::from(at.cast::<i16>().read_unaligned()),
                Kind::Signed(4) => f64::from(at.cast::<i32>().read_unaligned()),
                Kind::Signed(_) => at.cast::<i64>().read_unaligned() as f64,
                Kind::Unsigned(1) => f64::from(at.read()),
                Kind::Unsigned(2) => f64::from(at.cast::<u16>().read_unaligned()),
                Kind::Unsigned(4) => f64::from(at.cast::<u32>().read_unaligned()),
                Kind::Unsigned(_) => at.cast::<u64>().read_unaligned() as f64,
            }
        }
    }

    /// Writes a number to a place, rounded to this type.
    ///
    /// # Safety
    /// A number of this type, which is a float, may be written there.
    #[inline(always)]
    pub unsafe fn write<E: Float>(self, at: *mut u8, x: E) {
        // SAFETY: by the contract of this function.
        unsafe {
            match self {
                Kind::F64 => at.cast::<f64>().write_unaligned(x.to_f64()),
                Kind::F32 => at.cast::<f32>().write_unaligned(x.to_f64() as f32),
                _ => at.cast::<u16>().write_unaligned(f64_to_half(x.to_f64())),
            }
        }
    }

    /// Appends the numbers of a row.
    ///
    /// # Safety
    /// `n` numbers of this type may be read, the first one there and each this many bytes from the one before.
    pub unsafe fn read_row(self, start: *const u8, stride: isize, n: usize, all: &mut Vec<f64>) {
        // SAFETY: by the contract of this function. A constant type and stride make a loop that uses vectors.
        unsafe {
            match (self, stride) {
                (Kind::F32, 4) => all.extend((0..n).map(|k| Kind::F32.read(start.wrapping_add(4 * k)))),
                (Kind::F64, 8) => all.extend((0..n).map(|k| Kind::F64.read(start.wrapping_add(8 * k)))),
                _ => all.extend((0..n).map(|k| self.read(start.wrapping_offset(stride * k as isize)))),
            }
        }
    }

    /// Writes a row of numbers, rounded to this type.
    ///
    /// # Safety
    /// As many numbers of this type, which is a float, may be written, the first one there and each this many bytes from
    /// the one before.
    pub unsafe fn write_row<E: Float>(self, start: *mut u8, stride: isize, row: &[E]) {
        let numbers = row.iter().enumerate();
        // SAFETY: by the contract of this function. A constant type and stride make a loop that uses vectors.
        unsafe {
            match (self, stride) {
                (Kind::F32, 4) => numbers.for_each(|(k, &x)| Kind::F32.write(start.wrapping_add(4 * k), x)),
                (Kind::F64, 8) => numbers.for_each(|(k, &x)| Kind::F64.write(start.wrapping_add(8 * k), x)),
                _ => numbers.for_each(|(k, &x)| self.write(start.wrapping_offset(stride * k as isize), x)),
            }
        }
    }
}

/// An IEEE binary16 number, exactly.
fn half_to_f64(bits: u16) -> f64 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    sign * match exponent {
        0 => fraction * 2.0_f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1.0 + fraction / 1024.0) * 2.0_f64.powi(exponent - 15),
    }
}

/// The nearest IEEE binary16 number, ties to even.
fn f64_to_half(x: f64) -> u16 {
    let sign = if x.is_sign_negative() { 1 << 15 } else { 0 };
    let size = x.abs();
    if x.is_nan() {
        return 0x7E00;
    }
    if size >= 65520.0 {
        return sign | 0x7C00;
    }
    // Below 2^-14 the spacing is 2^-24; above, the fraction has ten bits. Rounding up to the next power carries
    // correctly by itself.
    let exponent = if size < 2.0_f64.powi(-14) { -14 } else { (size.to_bits() >> 52) as i32 - 1023 };
    let steps = (size * 2.0_f64.powi(10 - exponent)).round_ties_even() as u16;
    sign | if size < 2.0_f64.powi(-14) { steps } else { (((exponent + 15) as u16) << 10) + (steps - 1024) }
}
