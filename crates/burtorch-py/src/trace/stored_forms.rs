//! The two forms of a trace in a file: over single numbers, for rows and sparse derivatives, and over Arrays, for transforms.
//!
//! Promises: if there are traces of one form only, the last variant is traced in the other one, if the body permits it; a body
//! that reads unwatched sources is not run again. A failure changes nothing.

use burtorch_core::DType;
use burtorch_core::array::{Dims, Element, Type};
use pyo3::prelude::*;

use super::arguments::Arguments;
use super::array_calls::{self, Traceable};
use super::array_path::Signature;
use super::calls::with_path;
use super::containers::Nest;
use super::object::Call;
use super::pytree::Tree;
use super::state::Path;
use crate::convert::arrays::Kind;
use crate::convert::errors::is_final;
use crate::convert::refusals::needed_arrays;

/// The most numbers for which a body is traced with Values only to be saved.
const MOST_NUMBERS: usize = 10_000;

/// Traces the form of which there is no trace.
pub fn complete(call: &Call<'_>) -> PyResult<()> {
    let py = call.py();
    let (has_values, has_arrays, may_run) =
        call.with(|state| (!state.variants.is_empty(), !state.arrays.is_empty(), state.unwatched.is_empty()))?;
    let traced = match (has_values, has_arrays) {
        (true, false) if may_run => with_arrays(call),
        (false, true) if may_run => with_values(call),
        _ => return Ok(()),
    };
    needed_arrays();
    traced.or_else(|error| if is_final(py, &error) { Err(error) } else { Ok(()) })
}

/// Traces the last variant of Values with Arrays.
fn with_arrays(call: &Call<'_>) -> PyResult<()> {
    let py = call.py();
    let found = call.with(|state| {
        let variant = state.variants.first()?;
        let signature = signature_of(py, &variant.arguments)?;
        let answers = variant.paths.iter().rev().map(Path::answers).collect();
        let statics = variant.statics.as_ref().map(|statics| statics.clone_ref(py));
        Some(Traceable { signature, statics, dtype: state.options.dtype, is_trial: true, answers })
    })?;
    array_calls::trace(call, found)
}

/// Traces the last variant of Arrays with Values, if it has arrays of floats with one axis only, and no guards.
fn with_values(call: &Call<'_>) -> PyResult<()> {
    let py = call.py();
    let found = call.with(|state| {
        let variant = state.arrays.first()?;
        let Signature { nest, types, kinds } = &variant.signature;
        let is_simple = variant.paths.iter().all(|path| path.answers.is_empty() && path.sets().is_empty());
        let n: usize = types.iter().map(|ty| ty.dims.size()).sum();
        if state.uses_arrays || state.options.dtype != DType::Float64 || !is_simple || n > MOST_NUMBERS {
            return None;
        }
        let tree = tree_of(py, nest, &mut types.iter().zip(kinds))?;
        let statics = variant.statics.as_ref().map(|statics| statics.bind(py).clone());
        Some(Arguments { numbers: vec![1.0; tree.len()], tree, statics })
    })?;
    found.map_or(Ok(()), |arguments| with_path(call, &arguments, |_| ()))
}

/// The signature of arguments that Values are traced with.
fn signature_of(py: Python<'_>, tree: &Tree) -> Option<Signature> {
    let (mut types, mut kinds) = (Vec::new(), Vec::new());
    let nest = nest_of(py, tree, &mut types, &mut kinds)?;
    Some(Signature { nest, types, kinds })
}

fn nest_of(py: Python<'_>, tree: &Tree, types: &mut Vec<Type>, kinds: &mut Vec<Option<Kind>>) -> Option<Nest> {
    let mut all = |items: &[Tree]| items.iter().map(|item| nest_of(py, item, types, kinds)).collect::<Option<Vec<_>>>();
    Some(match tree {
        Tree::Sequence { is_tuple, items } => Nest::Sequence { is_tuple: *is_tuple, class: None, items: all(items)? },
        Tree::Dict { keys, items } => {
            Nest::Dict { keys: keys.iter().map(|key| key.clone_ref(py)).collect(), items: all(items)? }
        }
        Tree::Array { shape, kind, .. } => {
            kinds.push(Some(*kind));
            types.push(Type::float(Dims::new(shape).ok()?));
            Nest::Leaf
        }
        Tree::Number => {
            kinds.push(None);
            types.push(Type::float(Dims::SCALAR));
            Nest::Leaf
        }
    })
}

/// The arguments that have this signature, if Values can be traced with them.
fn tree_of<'a>(
    py: Python<'_>,
    nest: &Nest,
    leaves: &mut dyn Iterator<Item = (&'a Type, &'a Option<Kind>)>,
) -> Option<Tree> {
    let mut all = |items: &[Nest]| items.iter().map(|item| tree_of(py, item, leaves)).collect::<Option<Vec<_>>>();
    match nest {
        Nest::Sequence { is_tuple, class: None, items } => {
            Some(Tree::Sequence { is_tuple: *is_tuple, items: all(items)? })
        }
        Nest::Dict { keys, items } => {
            Some(Tree::Dict { keys: keys.iter().map(|key| key.clone_ref(py)).collect(), items: all(items)? })
        }
        Nest::Leaf => {
            let (ty, kind) = leaves.next().filter(|(ty, _)| ty.element == Element::Float)?;
            match ty.dims[..] {
                [] => Some(Tree::Number),
                [n] => Some(Tree::Array { shape: vec![n], kind: (*kind)?, is_numpy: true }),
                _ => None,
            }
        }
        _ => None,
    }
}
