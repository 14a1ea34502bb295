//! Names of tensors. Without the feature `labels` there are none, and this module does nothing.
//!
//! Promises: a name belongs to one tensor; unused names cost nothing. Does not know numbers.

#[cfg(not(feature = "labels"))]
pub(super) use absent::Names;
#[cfg(feature = "labels")]
pub(super) use present::Names;

#[cfg(feature = "labels")]
mod present {
    use super::super::{Tensor, out_of_memory};
    use crate::error::{Error, Result};

    /// Names and their tensors, sorted by name.
    #[derive(Debug)]
    pub(in crate::params) struct Names(Vec<(String, Tensor)>);

    /// A new name, with its position; there is room for it.
    pub(in crate::params) struct Prepared(usize, String);

    impl Names {
        pub(in crate::params) fn none() -> Self {
            Names(Vec::new())
        }

        pub(in crate::params) fn sorted(names: impl Iterator<Item = (String, Tensor)>) -> Self {
            Names(names.collect())
        }

        fn place(&self, name: &str) -> std::result::Result<usize, usize> {
            self.0.binary_search_by(|(other, _)| other.as_str().cmp(name))
        }

        pub(in crate::params) fn prepare(&mut self, name: &str) -> Result<Prepared> {
            let Err(at) = self.place(name) else {
                return Err(Error::DuplicateName { name: name.to_string() });
            };
            let mut copy = String::new();
            copy.try_reserve_exact(name.len()).map_err(|_| out_of_memory::<u8>(name.len()))?;
            copy.push_str(name);
            self.0.try_reserve(1).map_err(|_| out_of_memory::<(String, Tensor)>(1))?;
            Ok(Prepared(at, copy))
        }

        pub(in crate::params) fn insert(&mut self, Prepared(at, name): Prepared, tensor: Tensor) {
            self.0.insert(at, (name, tensor));
        }

        pub(in crate::params) fn find(&self, name: &str) -> Option<Tensor> {
            self.place(name).ok().map(|at| self.0[at].1)
        }

        pub(in crate::params) fn iter(&self) -> impl Iterator<Item = (&str, Tensor)> {
            self.0.iter().map(|(name, tensor)| (name.as_str(), *tensor))
        }

        /// Removes tensors that end above `n`.
        pub(in crate::params) fn keep_below(&mut self, n: usize) {
            self.0.retain(|(_, tensor)| tensor.slice().range().end <= n);
        }
    }
}

#[cfg(not(feature = "labels"))]
mod absent {
    use super::super::Tensor;
    use crate::error::Result;

    /// Without the feature there are no names.
    #[derive(Debug)]
    pub(in crate::params) struct Names;

    impl Names {
        pub(in crate::params) fn none() -> Self {
            Names
        }

        pub(in crate::params) fn sorted(_: impl Iterator<Item = (String, Tensor)>) -> Self {
            Names
        }

        pub(in crate::params) fn prepare(&mut self, _: &str) -> Result<()> {
            Ok(())
        }

        pub(in crate::params) fn insert(&mut self, (): (), _: Tensor) {}

        pub(in crate::params) fn find(&self, _: &str) -> Option<Tensor> {
            None
        }

        pub(in crate::params) fn iter(&self) -> impl Iterator<Item = (&str, Tensor)> {
            std::iter::empty()
        }

        pub(in crate::params) fn keep_below(&mut self, _: usize) {}
    }
}
