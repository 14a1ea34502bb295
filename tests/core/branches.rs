//! Branches: what is built side by side is the graph that one thread builds in order, to the bit.

mod failures;
mod joining;
mod places;
mod stress;
mod walk;
