//! Programs over arrays: values, derivatives of any order, and plans, against references that are written out.

mod reference;

mod control;
mod derivatives;
mod eager;
mod functions;
mod linalg;
mod loops;
mod nests;
mod random;
mod results;
mod rows;
mod values;
