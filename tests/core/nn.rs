//! Block ops against their expansion into scalar nodes, models, oracles, optimisers and text, through the public API.

mod blocks;
mod expand;
mod optim;
mod oracle;
mod subsets;
mod text;
mod threads;
mod tokens;
