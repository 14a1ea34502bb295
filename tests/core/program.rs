//! Programs: replays against the eager graph they were recorded from, derivatives against differences.

mod random;

mod bundles;
mod derivatives;
mod interrupts;
mod passes;
mod primitives;
mod replay;
mod sparse;
