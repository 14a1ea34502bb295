//! The division of samples among clients.

use crate::error::{Error, Result};
use crate::memory;

const WHAT: &str = "clients";

/// The error for an invalid division among clients.
pub(super) fn bad(found: String) -> Error {
    Error::BadArgument { what: "clients", expected: "lists that hold each sample once".into(), found }
}

/// Checks that each sample belongs to one client, and each client has some.
pub(super) fn check(parts: &[Vec<u32>], n_samples: usize) -> Result<()> {
    let mut is_taken = memory::filled(false, n_samples, WHAT)?;
    for (k, samples) in parts.iter().enumerate() {
        if samples.is_empty() {
            return Err(bad(format!("client {k} without samples")));
        }
        for &i in samples {
            match is_taken.get_mut(i as usize) {
                Some(taken) if !*taken => *taken = true,
                _ => return Err(bad(format!("sample {i} twice or out of range"))),
            }
        }
    }
    match is_taken.iter().position(|taken| !taken) {
        Some(i) => Err(bad(format!("none that holds sample {i}"))),
        None => Ok(()),
    }
}

/// The weight of each sample in f, unless all are equal.
pub(super) fn weights(parts: &[Vec<u32>], n_samples: usize) -> Result<Option<Vec<f64>>> {
    let first = parts.first().map_or(0, Vec::len);
    if parts.iter().all(|samples| samples.len() == first) {
        return Ok(None);
    }
    let mut weights = memory::filled(0.0, n_samples, WHAT)?;
    for samples in parts {
        samples.iter().for_each(|&i| weights[i as usize] = 1.0 / (parts.len() * samples.len()) as f64);
    }
    Ok(Some(weights))
}
