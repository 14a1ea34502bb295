//! Oracles and block ops in lanes: against one sample at a time, on every CPU level, for every batch size.

#[allow(dead_code, reason = "shared with the kernel tests, which use more of it")]
#[path = "kernels/support.rs"]
mod support;

#[path = "lanes/gather.rs"]
mod gather;
#[path = "lanes/oracle.rs"]
mod oracle;
#[path = "lanes/overwritten.rs"]
mod overwritten;
#[path = "lanes/sized.rs"]
mod sized;
