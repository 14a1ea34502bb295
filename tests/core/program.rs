//! Programs: replays against the eager graph they were recorded from, derivatives against differences.

#[path = "program/random.rs"]
mod random;

#[path = "program/derivatives.rs"]
mod derivatives;
#[path = "program/passes.rs"]
mod passes;
#[path = "program/replay.rs"]
mod replay;
