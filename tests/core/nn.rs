//! Block ops against their expansion into scalar nodes, models, oracles, optimisers and text, through the public API.

#[path = "nn/blocks.rs"]
mod blocks;
#[path = "nn/expand.rs"]
mod expand;
#[path = "nn/optim.rs"]
mod optim;
#[path = "nn/oracle.rs"]
mod oracle;
#[path = "nn/text.rs"]
mod text;
#[path = "nn/tokens.rs"]
mod tokens;
