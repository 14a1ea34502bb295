//! Scalar types and their numbers by value.

use crate::scalar::{DType, Float, Scalar, f16};

/// The type of a graph's scalars: the type of a lane, and the number of lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScalarType {
    /// The type of one lane.
    pub elem: DType,
    /// Lanes per node.
    pub lanes: usize,
}

impl ScalarType {
    /// One number per node.
    pub const fn plain(elem: DType) -> Self {
        ScalarType { elem, lanes: 1 }
    }

    /// The type of the scalars `S`.
    pub const fn of<S: Scalar>() -> Self {
        ScalarType { elem: S::Elem::DTYPE, lanes: S::LANES }
    }

    /// As in `Graph(dtype=...)`.
    pub const fn name(self) -> &'static str {
        match (self.elem, self.lanes) {
            (DType::Float32, 4) => "float32x4",
            (DType::Float32, 8) => "float32x8",
            (DType::Float32, 16) => "float32x16",
            (DType::Float32, 64) => "float32x64",
            (DType::Float64, 2) => "float64x2",
            (DType::Float64, 4) => "float64x4",
            (DType::Float64, 8) => "float64x8",
            (elem, _) => elem.name(),
        }
    }

    /// The scalar type with this name, if Python has a name for it.
    pub fn named(name: &str) -> Option<Self> {
        let plain = DType::ALL.map(ScalarType::plain);
        let f32s = [4, 8, 16].map(|lanes| ScalarType { elem: DType::Float32, lanes });
        let f64s = [2, 4, 8].map(|lanes| ScalarType { elem: DType::Float64, lanes });
        plain.into_iter().chain(f32s).chain(f64s).find(|t| t.name() == name)
    }

    /// Whether an `f64` holds a number of this type.
    pub const fn fits_float(self) -> bool {
        self.lanes == 1 && !matches!(self.elem, DType::Float128)
    }

    /// Bytes of one scalar.
    pub const fn bytes(self) -> usize {
        self.lanes * self.elem.bytes()
    }
}

/// The number, or numbers, of one node.
#[derive(Clone, Debug, PartialEq)]
pub enum AnyNumber {
    /// One number, for all lanes.
    One(f64),
    /// One number per lane.
    Lanes(Vec<f64>),
    /// A float128 with all its digits.
    Wide(f128),
}

impl AnyNumber {
    /// The numbers of a scalar; exact.
    pub fn of<S: Scalar>(x: S) -> Self {
        if S::LANES > 1 {
            AnyNumber::Lanes((0..S::LANES).map(|k| x.lane(k).to_f64()).collect())
        } else if S::Elem::DTYPE == DType::Float128 {
            AnyNumber::Wide(x.lane(0).to_f128())
        } else {
            AnyNumber::One(x.lane(0).to_f64())
        }
    }

    /// As a scalar, rounded to its type.
    pub fn scalar<S: Scalar>(&self) -> S {
        match self {
            AnyNumber::One(x) => S::lit(*x),
            AnyNumber::Wide(x) => S::splat(S::Elem::from_f128(*x)),
            AnyNumber::Lanes(lanes) => {
                let each = lanes.iter().take(S::LANES).enumerate();
                each.fold(S::lit(0.0), |scalar, (k, &x)| scalar.with_lane(k, S::Elem::from_f64(x)))
            }
        }
    }
}

/// Numbers of one of the types that an array has a format for.
#[derive(Clone, Debug, PartialEq)]
pub enum AnyNumbers {
    /// float16
    F16(Vec<f16>),
    /// float32
    F32(Vec<f32>),
    /// float64; also for numbers of bfloat16, which has no array format.
    F64(Vec<f64>),
}
