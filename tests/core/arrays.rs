//! Programs over arrays: values, derivatives of any order, and plans, against references that are written out.

#[path = "arrays/reference.rs"]
mod reference;

#[path = "arrays/derivatives.rs"]
mod derivatives;
#[path = "arrays/eager.rs"]
mod eager;
#[path = "arrays/random.rs"]
mod random;
#[path = "arrays/values.rs"]
mod values;
