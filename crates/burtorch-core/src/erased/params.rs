//! Parameters of any element type, and access to the typed ones inside.

use crate::error::{Error, Result};
use crate::io::Stored;
use crate::params::Gradients;
use crate::params::{Parameters, WantedSet};
use crate::scalar::{DType, Float, bf16, f16};

/// Parameters of one of the element types.
#[derive(Debug)]
pub enum AnyParameters {
    /// float32
    F32(Parameters<'static, f32>),
    /// float64
    F64(Parameters<'static, f64>),
    /// float16
    F16(Parameters<'static, f16>),
    /// bfloat16
    BF16(Parameters<'static, bf16>),
    /// float128
    F128(Parameters<'static, f128>),
}

impl AnyParameters {
    /// The element type.
    pub fn dtype(&self) -> DType {
        match self {
            AnyParameters::F32(_) => DType::Float32,
            AnyParameters::F64(_) => DType::Float64,
            AnyParameters::F16(_) => DType::Float16,
            AnyParameters::BF16(_) => DType::BFloat16,
            AnyParameters::F128(_) => DType::Float128,
        }
    }
}

/// Numbers in memory of the caller, of a type that oracles compute in.
#[derive(Debug)]
pub enum AnyNumbersMut<'a> {
    /// float32
    F32(&'a mut [f32]),
    /// float64
    F64(&'a mut [f64]),
}

/// An element type that parameters and graphs are made of.
pub trait Erasable: Float + Stored {
    /// The parameters, if they are of this type.
    fn params(any: &AnyParameters) -> Option<&Parameters<'static, Self>>;
    /// The parameters, mutably, if they are of this type.
    fn params_mut(any: &mut AnyParameters) -> Option<&mut Parameters<'static, Self>>;
    /// The numbers, if they are of this type.
    fn numbers(any: AnyNumbersMut<'_>) -> Option<&mut [Self]>;
    /// Numbers of a type that oracles support.
    fn erased(numbers: &mut [Self]) -> Option<AnyNumbersMut<'_>>;
}

macro_rules! erasable {
    ($($t:ty, $Variant:ident, $any:ident => $numbers:expr, $own:ident => $erased:expr;)*) => { $(
        impl Erasable for $t {
            fn params(any: &AnyParameters) -> Option<&Parameters<'static, $t>> {
                match any {
                    AnyParameters::$Variant(params) => Some(params),
                    _ => None,
                }
            }

            fn params_mut(any: &mut AnyParameters) -> Option<&mut Parameters<'static, $t>> {
                match any {
                    AnyParameters::$Variant(params) => Some(params),
                    _ => None,
                }
            }

            fn numbers($any: AnyNumbersMut<'_>) -> Option<&mut [$t]> {
                $numbers
            }

            fn erased($own: &mut [$t]) -> Option<AnyNumbersMut<'_>> {
                $erased
            }
        }
    )* };
}
erasable! {
    f32, F32, any => match any { AnyNumbersMut::F32(numbers) => Some(numbers), AnyNumbersMut::F64(_) => None },
        own => Some(AnyNumbersMut::F32(own));
    f64, F64, any => match any { AnyNumbersMut::F64(numbers) => Some(numbers), AnyNumbersMut::F32(_) => None },
        own => Some(AnyNumbersMut::F64(own));
    f16, F16, _any => None, _own => None;
    bf16, BF16, _any => None, _own => None;
    f128, F128, _any => None, _own => None;
}

/// Where a sweep writes the gradients of parameters; the `usize` is an index into the given list of Parameters.
#[derive(Debug, Default)]
pub enum GradientTarget<'a> {
    /// Added to the existing gradients.
    #[default]
    Added,
    /// As `Added`, but the gradients of one `Parameters` are added to this memory instead.
    AddedIn(usize, AnyNumbersMut<'a>),
    /// As `Added`, but the gradients of one `Parameters`, or of this memory instead, are overwritten.
    Overwritten(usize, Option<AnyNumbersMut<'a>>),
    /// Only the selected gradients of one `Parameters` are added to.
    Some(usize, &'a WantedSet),
}

/// Runs `f` with the inner parameters, all of one type. A single one, the usual case, allocates nothing.
pub(super) fn typed<E: Erasable, R>(
    any: &[&AnyParameters],
    f: impl FnOnce(&[&Parameters<'static, E>]) -> Result<R>,
) -> Result<R> {
    let (one, many);
    let all: &[_] = match any {
        [] => &[],
        [only] => {
            one = [inside(only)?];
            &one
        }
        _ => {
            many = all_inside(any)?;
            &many
        }
    };
    f(all)
}

fn inside<E: Erasable>(any: &AnyParameters) -> Result<&Parameters<'static, E>> {
    E::params(any).ok_or(Error::MissingParameters)
}

fn all_inside<'a, E: Erasable>(any: &[&'a AnyParameters]) -> Result<Vec<&'a Parameters<'static, E>>> {
    any.iter().map(|any| inside(any)).collect()
}

/// Runs `f`, once, with the inner parameters' gradients, all of one type.
pub(super) fn with_gradients<E: Erasable>(
    any: &mut [&mut AnyParameters],
    target: GradientTarget<'_>,
    f: &mut dyn FnMut(&mut [Gradients<'_, E>]) -> Result<()>,
) -> Result<()> {
    fn inside<'a, E: Erasable>(any: &'a mut &mut AnyParameters) -> Result<&'a mut Parameters<'static, E>> {
        E::params_mut(any).ok_or(Error::MissingParameters)
    }
    let memory_of = |memory| E::numbers(memory).ok_or(Error::MissingParameters);
    match target {
        GradientTarget::Added => match any {
            [] => f(&mut []),
            [only] => f(&mut [inside(only)?.gradients()]),
            _ => {
                let all = any.iter_mut().map(|any| Ok(inside(any)?.gradients()));
                f(&mut all.collect::<Result<Vec<_>>>()?)
            }
        },
        GradientTarget::Some(place, wanted) => {
            let mut gradients = Vec::with_capacity(any.len());
            for (k, any) in any.iter_mut().enumerate() {
                gradients.push(inside::<E>(any)?.gradients_in(wanted, k == place)?);
            }
            f(&mut gradients)
        }
        GradientTarget::AddedIn(place, memory) => {
            let mut memory = Some(memory_of(memory)?);
            let mut gradients = Vec::with_capacity(any.len());
            for (k, any) in any.iter_mut().enumerate() {
                let params = inside::<E>(any)?;
                gradients.push(match memory.take_if(|_| k == place) {
                    Some(memory) => (*params).gradients_into(memory)?,
                    None => params.gradients(),
                });
            }
            f(&mut gradients)
        }
        GradientTarget::Overwritten(place, memory) => {
            let memory = memory.map(memory_of).transpose()?;
            let (before, rest) = any.split_at_mut(place.min(any.len()));
            let (target, after) = rest.split_first_mut().ok_or(Error::MissingParameters)?;
            let others = before.iter_mut().chain(after).map(|any| Ok(inside::<E>(any)?.gradients()));
            let others = others.collect::<Result<Vec<_>>>()?;
            let target = inside::<E>(target)?;
            // A graph finds gradients by the identity of their parameters, in any order.
            let together = |gradients: Gradients<'_, E>| match others.is_empty() {
                true => f(&mut [gradients]),
                false => f(&mut std::iter::once(gradients).chain(others).collect::<Vec<_>>()),
            };
            match memory {
                None => target.overwrite_gradients(together),
                Some(memory) => target.overwrite_gradients_in(memory, together)?,
            }
        }
    }
}
