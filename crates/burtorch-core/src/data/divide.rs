//! The division of samples among clients.

use crate::draw::{Draw, Purpose};
use crate::error::{Error, Result};
use crate::interrupt::Work;
use crate::memory::{filled, list_for, reserve_in};

/// How samples are divided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Division {
    /// At random, in parts of nearly equal size.
    Random,
    /// Sorted by label, in parts of nearly equal size.
    Sorted,
    /// For each label, the clients' shares are drawn from a Dirichlet distribution with this concentration (Hsu, Qi and
    /// Brown 2019): the smaller it is, the fewer labels a client has.
    Dirichlet(f64),
}

const WHAT: &str = "a division of samples";

/// Sorts samples by label, then by number. Interruptible between pieces.
fn sort_by_label(order: &mut [u32], labels: &[f64], work: &mut Work) -> Result<()> {
    const PIECE: usize = 1 << 14;
    let compare = |&a: &u32, &b: &u32| labels[a as usize].total_cmp(&labels[b as usize]).then(a.cmp(&b));
    // A stack for repeated halving: its depth is at most the number of bits of a length.
    let mut left = list_for(usize::BITS as usize, WHAT)?;
    left.push(order);
    while let Some(part) = left.pop() {
        work.add(16 * part.len())?;
        if part.len() <= PIECE {
            part.sort_unstable_by(compare);
        } else {
            let half = part.len() / 2;
            part.select_nth_unstable_by(half, compare);
            let (low, high) = part.split_at_mut(half);
            left.extend([high, low]);
        }
    }
    Ok(())
}

/// The samples of each client, ascending; each sample goes to one client, and each client has one at least. An error for
/// fewer samples than clients.
pub fn divide(labels: &[f64], n_clients: usize, division: Division, seed: u64) -> Result<Vec<Vec<u32>>> {
    let n = labels.len();
    if n == 0 {
        return Err(Error::BadArgument { what: "samples", expected: "at least 1".into(), found: "0".into() });
    }
    if n_clients == 0 || n_clients > n || u32::try_from(n).is_err() {
        return Err(Error::BadArgument {
            what: "the number of clients",
            expected: format!("1 to {n}, the number of samples"),
            found: n_clients.to_string(),
        });
    }
    if let Some(wrong) = labels.iter().find(|label| label.is_nan()) {
        return Err(Error::BadArgument { what: "a label", expected: "a number".into(), found: wrong.to_string() });
    }
    let mut draw = Draw::new(seed, 0, 0, Purpose::Division);
    let mut order = list_for(n, WHAT)?;
    order.extend(0..n as u32);
    let mut work = Work::default();
    let mut parts = list_for(n_clients, WHAT)?;
    match division {
        Division::Random => draw.permute(&mut order, n)?,
        Division::Sorted | Division::Dirichlet(_) => {
            sort_by_label(&mut order, labels, &mut work)?;
        }
    }
    if let Division::Dirichlet(concentration) = division {
        if !(concentration > 0.0 && concentration.is_finite()) {
            return Err(Error::BadArgument {
                what: "the concentration of a Dirichlet distribution",
                expected: "above 0 and finite".into(),
                found: concentration.to_string(),
            });
        }
        parts.resize_with(n_clients, Vec::new);
        let mut shares = filled(0.0, n_clients, WHAT)?;
        for class in order.chunk_by_mut(|&a, &b| labels[a as usize] == labels[b as usize]) {
            work.add(class.len() + n_clients)?;
            draw.permute(class, usize::MAX)?;
            dirichlet(&mut draw, concentration, &mut shares);
            let (mut start, mut sum) = (0, 0.0);
            for (client, (part, share)) in parts.iter_mut().zip(&shares).enumerate() {
                sum += share;
                let is_last = client + 1 == n_clients;
                let end = if is_last { class.len() } else { ((sum * class.len() as f64).round() as usize).max(start) };
                let end = end.min(class.len());
                reserve_in(part, end - start, WHAT)?;
                part.extend_from_slice(&class[start..end]);
                start = end;
            }
        }
        fill_empty(&mut parts)?;
    } else {
        for client in 0..n_clients {
            let bound = |client: usize| (client as u128 * n as u128 / n_clients as u128) as usize;
            let samples = &order[bound(client)..bound(client + 1)];
            parts.push(crate::memory::copied(samples, WHAT)?);
        }
    }
    parts.iter_mut().for_each(|part: &mut Vec<u32>| part.sort_unstable());
    Ok(parts)
}

/// Gives every client without samples one sample of the client with the most.
fn fill_empty(parts: &mut [Vec<u32>]) -> Result<()> {
    for client in 0..parts.len() {
        if parts[client].is_empty() {
            let most = (0..parts.len()).max_by_key(|&k| parts[k].len()).unwrap_or(client);
            reserve_in(&mut parts[client], 1, WHAT)?;
            let moved = parts[most].pop();
            parts[client].extend(moved);
        }
    }
    Ok(())
}

/// Shares that sum to 1: normalised gamma variables, as logarithms so that a small concentration does not underflow to
/// zeros only.
fn dirichlet(draw: &mut Draw<'_>, concentration: f64, shares: &mut [f64]) {
    shares.iter_mut().for_each(|share| *share = log_gamma_number(draw, concentration));
    let most = shares.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    shares.iter_mut().for_each(|share| *share = (*share - most).exp());
    let sum: f64 = shares.iter().sum();
    shares.iter_mut().for_each(|share| *share /= sum);
}

/// The logarithm of a gamma variable (Marsaglia and Tsang 2000, "A simple method for generating gamma variables").
fn log_gamma_number(draw: &mut Draw<'_>, shape: f64) -> f64 {
    // A gamma variable of shape + 1 times a power of a uniform one has the given shape.
    let smaller = (1.0 - draw.uniform()).ln() / shape;
    let d = shape + 1.0 - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = draw.normal();
        let v = (1.0 + c * x).powi(3);
        if v > 0.0 && (1.0 - draw.uniform()).ln() < 0.5 * x * x + d - d * v + d * v.ln() {
            return (d * v).ln() + smaller;
        }
    }
}
