//! Programs: replays against the eager graph they were recorded from, derivatives against differences.

#[path = "program/random.rs"]
mod random;

#[path = "program/bundles.rs"]
mod bundles;
#[path = "program/derivatives.rs"]
mod derivatives;
#[path = "program/interrupts.rs"]
mod interrupts;
#[path = "program/passes.rs"]
mod passes;
#[path = "program/primitives.rs"]
mod primitives;
#[path = "program/replay.rs"]
mod replay;
