//! Oracles and block ops in lanes: against one sample at a time, on every CPU level, for every batch size.

mod gather;
mod oracle;
mod overwritten;
mod sized;
