//! Numbers as bytes: little-endian, with every bit kept, including those of a NaN.

use crate::scalar::{bf16, f16};

mod sealed {
    /// Implemented here only: the numbers in files name these types.
    pub trait Sealed {}
}

/// A number that files hold.
pub trait Stored: Copy + sealed::Sealed + 'static {
    /// The type's number in section headers.
    const CODE: u8;
    /// The type's name in messages.
    const NAME: &'static str;
    /// Bytes per number.
    const BYTES: usize;
    /// Writes one into exactly [`Stored::BYTES`] bytes.
    fn put(self, out: &mut [u8]);
    /// Reads one from exactly [`Stored::BYTES`] bytes.
    fn get(bytes: &[u8]) -> Self;
}

macro_rules! stored {
    ($($t:ty, $code:literal;)*) => { $(
        impl sealed::Sealed for $t {}
        impl Stored for $t {
            const CODE: u8 = $code;
            const NAME: &'static str = stringify!($t);
            const BYTES: usize = size_of::<$t>();
            #[inline(always)]
            fn put(self, out: &mut [u8]) {
                out.copy_from_slice(&self.to_le_bytes());
            }
            #[inline(always)]
            fn get(bytes: &[u8]) -> Self {
                let mut own = [0; size_of::<$t>()];
                own.copy_from_slice(bytes);
                <$t>::from_le_bytes(own)
            }
        }
    )* };
}

stored! {
    u8, 1;
    u32, 2;
    u64, 3;
    f32, 4;
    f64, 5;
    f16, 6;
    bf16, 7;
    f128, 8;
}

/// The name of the type with this number.
pub(super) fn type_name(code: u8) -> &'static str {
    match code {
        1 => u8::NAME,
        2 => u32::NAME,
        3 => u64::NAME,
        4 => f32::NAME,
        5 => f64::NAME,
        6 => f16::NAME,
        7 => bf16::NAME,
        8 => f128::NAME,
        _ => "an unknown type",
    }
}

/// Writes consecutive numbers; `out` has exactly the right length.
#[inline]
pub(crate) fn put_all<T: Stored>(numbers: impl Iterator<Item = T>, out: &mut [u8]) {
    for (bytes, number) in out.chunks_exact_mut(T::BYTES).zip(numbers) {
        number.put(bytes);
    }
}

/// The numbers in bytes, whose length is a multiple of their size.
#[inline]
pub(crate) fn get_all<T: Stored>(bytes: &[u8]) -> impl ExactSizeIterator<Item = T> + '_ {
    bytes.chunks_exact(T::BYTES).map(T::get)
}
