//! Block ops against their expansion into scalar nodes, models, oracles, optimisers and text, through the public API.

#[path = "nn/blocks.rs"]
mod blocks;
#[path = "nn/expand.rs"]
mod expand;
#[path = "nn/gpt.rs"]
mod gpt;
#[path = "nn/optim.rs"]
mod optim;
#[path = "nn/oracle.rs"]
mod oracle;
#[allow(dead_code, reason = "the kernel tests use more of it")]
mod support;
#[path = "nn/text.rs"]
mod text;
#[path = "nn/threads.rs"]
mod threads;
#[path = "nn/tokens.rs"]
mod tokens;
