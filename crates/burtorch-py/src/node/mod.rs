//! Nodes as objects of Python: `Value` (one), `Vector` (several), and the block ops on them.

pub mod blocks;
pub mod dense;
pub mod parameter;
pub mod value;
pub mod vector;
