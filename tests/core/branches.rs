//! Branches: what is built side by side is the graph that one thread builds in order, to the bit.

#[path = "branches/failures.rs"]
mod failures;
#[path = "branches/joining.rs"]
mod joining;
#[path = "branches/places.rs"]
mod places;
#[path = "branches/stress.rs"]
mod stress;
#[path = "branches/walk.rs"]
mod walk;
