//! Pictures of graphs: their content (a [`Picture`]), as DOT, as SVG with its own layout, as an interactive page; and scripts
//! that draw numbers with Matplotlib.
//!
//! Promises: drawing changes no graph; labels are escaped in every form; a graph that is too large is truncated, with a count of
//! the omitted nodes. Needs no program and no network. Knows values and structure; opens no window and writes no file.

mod dot;
mod layout;
mod page;
mod picture;
pub mod scripts;
mod svg;
mod texts;
mod timing;

pub use picture::{Link, Options, Picture, PictureBox, Role};
