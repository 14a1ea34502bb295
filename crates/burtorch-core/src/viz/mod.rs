//! Pictures of graphs: what is drawn (a [`Picture`]), as DOT, as SVG with a layout of its own, as a page to click in; and
//! scripts that draw numbers with Matplotlib.
//!
//! Promises: drawing changes no graph; labels are escaped in every form; a graph that is too large is cut with a count of
//! what is left out. Needs no program and no network. Knows values and structure; opens no window and writes no file.

mod dot;
mod layout;
mod page;
mod picture;
pub mod scripts;
mod svg;
mod texts;
mod timing;

pub use picture::{Link, Options, Picture, PictureBox, Role};
