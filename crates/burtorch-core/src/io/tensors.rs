//! Tensors in the safetensors format, which other libraries read: names, shapes, numbers, and one text about them.
//!
//! Promises: a file is loaded into exactly the requested tensors, all of them or none; an error of the format's own library
//! becomes a format error. The format has no checksum: damaged numbers are not detected. Does not know models.

use std::collections::HashMap;

use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize};

use super::format::malformed;
use super::numbers::{Stored, get_all, put_all};
use crate::error::{Error, Result};
use crate::params::{Parameters, Slice, Tensor};
use crate::scalar::{DType, Float};

/// The metadata key of the text that describes the tensors.
const ABOUT: &str = "burtorch";

fn dtype_of(dtype: DType) -> Result<Dtype> {
    Ok(match dtype {
        DType::Float32 => Dtype::F32,
        DType::Float64 => Dtype::F64,
        DType::Float16 => Dtype::F16,
        DType::BFloat16 => Dtype::BF16,
        DType::Float128 => {
            let (expected, found) = ("that safetensors has".into(), dtype.name().into());
            return Err(Error::BadArgument { what: "the dtype", expected, found });
        }
    })
}

fn shape_of(tensor: Tensor) -> Vec<usize> {
    tensor.shape().dims().iter().map(|&dim| dim as usize).collect()
}

/// The file of these tensors, with a text about them.
pub fn tensors_to_bytes<E: Float + Stored>(
    params: &Parameters<'_, E>,
    tensors: &[(String, Tensor)],
    about: &str,
) -> Result<Vec<u8>> {
    let dtype = dtype_of(E::DTYPE)?;
    let mut parts = Vec::new();
    for (name, tensor) in tensors {
        let values = params.values_of(tensor.slice())?;
        let n = values.len() * E::BYTES;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(n).map_err(|_| Error::OutOfMemory { bytes: n, what: "a tensor in memory" })?;
        bytes.resize(n, 0);
        put_all(values.iter().copied(), &mut bytes);
        parts.push((name, shape_of(*tensor), bytes));
    }
    let bad = |error: safetensors::SafeTensorError| {
        let (expected, found) = ("such that safetensors takes them".into(), error.to_string());
        Error::BadArgument { what: "the tensors", expected, found }
    };
    let views = parts
        .iter()
        .map(|(name, shape, bytes)| Ok((name.as_str(), TensorView::new(dtype, shape.clone(), bytes).map_err(bad)?)))
        .collect::<Result<Vec<_>>>()?;
    let metadata = HashMap::from([(ABOUT.to_string(), about.to_string())]);
    serialize(views, Some(metadata)).map_err(bad)
}

/// A file of tensors in memory.
#[derive(Debug)]
pub struct TensorFile<'a> {
    tensors: SafeTensors<'a>,
    about: Option<String>,
}

impl<'a> TensorFile<'a> {
    /// Checks the structure of a file.
    pub fn open(bytes: &'a [u8]) -> Result<Self> {
        let bad = |error: safetensors::SafeTensorError| malformed(0, format!("not a safetensors file: {error}"));
        let tensors = SafeTensors::deserialize(bytes).map_err(bad)?;
        let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(bad)?;
        let about = metadata.metadata().as_ref().and_then(|texts| texts.get(ABOUT)).cloned();
        Ok(TensorFile { tensors, about })
    }

    /// The text about the tensors, if burtorch wrote one.
    pub fn about(&self) -> Option<&str> {
        self.about.as_deref()
    }

    /// Overwrites tensors with those of the same names, shapes and dtype. The file must have these and no others.
    pub fn load<E: Float + Stored>(&self, params: &mut Parameters<'_, E>, tensors: &[(String, Tensor)]) -> Result<()> {
        for (slice, bytes) in self.find(params, tensors)? {
            let own = &mut params.values_mut()[slice.range()];
            own.iter_mut().zip(get_all::<E>(&bytes)).for_each(|(to, value)| *to = value);
        }
        Ok(())
    }

    /// Whether [`TensorFile::load`] would load it.
    pub fn check<E: Float + Stored>(&self, params: &Parameters<'_, E>, tensors: &[(String, Tensor)]) -> Result<()> {
        self.find(params, tensors).map(|_| ())
    }

    /// The bytes of each tensor.
    fn find<E: Float + Stored>(
        &self,
        params: &Parameters<'_, E>,
        tensors: &[(String, Tensor)],
    ) -> Result<Vec<(Slice, Vec<u8>)>> {
        let dtype = dtype_of(E::DTYPE)?;
        if self.tensors.len() != tensors.len() {
            let found = self.tensors.len();
            return Err(malformed(0, format!("the file has {found} tensors, expected {}", tensors.len())));
        }
        let mut found = Vec::new();
        for (name, tensor) in tensors {
            let view = self.tensors.tensor(name);
            let view = view.map_err(|error| malformed(0, format!("tensor {name:?}: {error}")))?;
            let shape = shape_of(*tensor);
            if view.dtype() != dtype || view.shape() != shape {
                let (kind, has) = (view.dtype(), view.shape());
                return Err(malformed(0, format!("tensor {name:?} is {kind:?} {has:?}, expected {dtype:?} {shape:?}")));
            }
            params.check_slice(tensor.slice())?;
            found.push((tensor.slice(), view.data().to_vec()));
        }
        Ok(found)
    }
}
