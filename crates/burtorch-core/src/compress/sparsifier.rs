//! The choice of sent coordinates.

use super::message::{Message, Support, WHAT};
use super::number::Number;
use super::top::{Chosen, largest};
use crate::draw::Draw;
use crate::error::{Error, Result};
use crate::interrupt::ask_at;
use crate::memory::reserve_in;

/// How many coordinates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Count {
    /// An absolute number, at least 1 and at most the length.
    Of(usize),
    /// A fraction of the length, above 0 and at most 1, rounded to the nearest integer, at least 1.
    Fraction(f64),
}

/// Which coordinates are sent. Of d coordinates:
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sparsifier {
    /// Every coordinate.
    All,
    /// K random ones, times d/K: unbiased, omega = d/K - 1.
    RandK(Count),
    /// K neighbours from a random one on, times d/K: unbiased, omega = d/K - 1 (Burlachenko and Richtarik 2024).
    RandSeqK(Count),
    /// The client's part of a random partition among n clients, times n (Szlendak, Tyurin and Richtarik 2021):
    /// unbiased, omega = n - 1; the mean over all clients has the variance constants A = B = 1, even if n does not
    /// divide d.
    PermK,
    /// The K largest magnitudes; ties go to the lowest index: alpha = K/d.
    TopK(Count),
    /// The t or t - 1 largest magnitudes, for the smallest t with enough of |x|^2; a random draw decides, so that E
    /// |C(x) - x|^2 = (1 - K/d) |x|^2 exactly (Burlachenko and Richtarik 2024, "Unlocking FedNL").
    TopLeK(Count),
    /// All coordinates with this probability, divided by it; otherwise none: unbiased, omega = 1/p - 1.
    Bernoulli(f64),
}

fn refused(what: &'static str, expected: String, found: impl ToString) -> Error {
    Error::BadArgument { what, expected, found: found.to_string() }
}

impl Count {
    /// The number for `d` coordinates.
    pub fn of(self, d: usize) -> Result<usize> {
        match self {
            Count::Of(k) if (1..=d).contains(&k) => Ok(k),
            Count::Of(k) => {
                Err(refused("k, the number of coordinates to send,", format!("1 to {d}, the length of the vector"), k))
            }
            Count::Fraction(_) => {
                self.check()?;
                Ok(self.share(d))
            }
        }
    }

    fn share(self, d: usize) -> usize {
        if let Count::Fraction(share) = self { ((share * d as f64).round() as usize).clamp(1, d.max(1)) } else { d }
    }

    fn check(self) -> Result<()> {
        match self {
            Count::Of(0) => Err(refused("k, the number of coordinates to send,", "at least 1".into(), 0)),
            Count::Fraction(share) if !(share > 0.0 && share <= 1.0) => {
                Err(refused("the fraction of coordinates to send", "above 0 and at most 1".into(), share))
            }
            _ => Ok(()),
        }
    }
}

impl Sparsifier {
    /// Checks the constants that are invalid for every vector.
    pub(super) fn check(self) -> Result<()> {
        match self {
            Sparsifier::RandK(k) | Sparsifier::RandSeqK(k) | Sparsifier::TopK(k) | Sparsifier::TopLeK(k) => k.check(),
            Sparsifier::Bernoulli(p) if !(p > 0.0 && p <= 1.0) => {
                Err(refused("the probability of sending", "above 0 and at most 1".into(), p))
            }
            _ => Ok(()),
        }
    }

    /// If the coordinates do not depend on the vector: starts `out` with them and the scale, for length `d`. Returns
    /// their number.
    pub(super) fn choose<F: Number>(
        self,
        d: usize,
        draw: &mut Draw<'_>,
        (client, n_clients): (usize, usize),
        out: &mut Message<F>,
    ) -> Result<Option<usize>> {
        let (support, n, unit) = match self {
            Sparsifier::RandK(count) => {
                let k = count.of(d)?;
                out.work.subset.draw(draw, d, k)?;
                out.work.subset.swap(&mut out.indices);
                (Support::Drawn, k, d as f64 / k as f64)
            }
            Sparsifier::RandSeqK(count) => {
                let k = count.of(d)?;
                (Support::Block(draw.below(d as u64) as u32), k, d as f64 / k as f64)
            }
            Sparsifier::PermK => {
                part(d, draw, client, n_clients, out)?;
                (Support::Drawn, out.indices.len(), n_clients as f64)
            }
            _ => return Ok(None),
        };
        out.begin(d, support, n)?;
        out.unit = F::from_f64(unit);
        Ok(Some(n))
    }

    /// Starts `out` with the chosen coordinates, their numbers and the scale.
    pub(super) fn select<F: Number>(
        self,
        x: &[F],
        draw: &mut Draw<'_>,
        client: (usize, usize),
        out: &mut Message<F>,
    ) -> Result<()> {
        let d = x.len();
        if let Some(n) = self.choose(d, draw, client, out)? {
            for k in 0..n {
                out.numbers.push(x[out.index(k)]);
            }
            return Ok(());
        }
        match self {
            Sparsifier::RandK(_) | Sparsifier::RandSeqK(_) | Sparsifier::PermK => {}
            Sparsifier::All => whole(x, out)?,
            Sparsifier::TopK(count) => {
                out.begin(d, Support::Chosen, 0)?;
                largest_of(x, count.of(d)?, out)?;
            }
            Sparsifier::TopLeK(count) => {
                let k = count.of(d)?;
                largest_of(x, k, out)?;
                at_most(x, k, draw, out)?;
                gather(x, Support::Chosen, out)?;
            }
            Sparsifier::Bernoulli(p) => {
                if draw.happens(p) {
                    whole(x, out)?;
                    out.unit = F::from_f64(1.0 / p);
                } else {
                    out.begin(d, Support::None, 0)?;
                }
            }
        }
        Ok(())
    }
}

fn whole<F: Number>(x: &[F], out: &mut Message<F>) -> Result<()> {
    out.begin(x.len(), Support::All, x.len())?;
    out.numbers.extend_from_slice(x);
    Ok(())
}

/// The k largest numbers, without a message.
fn largest_of<F: Number>(x: &[F], k: usize, out: &mut Message<F>) -> Result<()> {
    let Message { indices, numbers, work, .. } = out;
    largest(x, k, &mut work.candidates, Chosen { indices, numbers })
}

/// Copies the numbers at the indices.
fn gather<F: Number>(x: &[F], support: Support, out: &mut Message<F>) -> Result<()> {
    out.begin(x.len(), support, out.indices.len())?;
    out.numbers.extend(out.indices.iter().map(|&i| x[i as usize]));
    Ok(())
}

/// The client's part of a random partition into parts of nearly equal size. The assignment of parts to clients is
/// random too, so that every client receives every coordinate with the same probability.
fn part<F: Number>(d: usize, draw: &mut Draw<'_>, client: usize, n_clients: usize, out: &mut Message<F>) -> Result<()> {
    let mut shared = draw.shared();
    let shared = shared.as_mut().unwrap_or(draw);
    let place = (client + shared.below(n_clients as u64) as usize) % n_clients;
    let bound = |place: usize| (place as u128 * d as u128 / n_clients as u128) as usize;
    let (start, end) = (bound(place), bound(place + 1));
    let order = &mut out.work.order;
    order.clear();
    reserve_in(order, d, WHAT)?;
    order.extend(0..d as u32);
    shared.permute(order, end)?;
    out.indices.clear();
    reserve_in(&mut out.indices, end - start, WHAT)?;
    out.indices.extend_from_slice(&order[start..end]);
    out.indices.sort_unstable();
    Ok(())
}

/// Keeps those indices of the k largest numbers that TopLeK sends.
fn at_most<F: Number>(x: &[F], k: usize, draw: &mut Draw<'_>, out: &mut Message<F>) -> Result<()> {
    let order = &mut out.indices;
    order.sort_unstable_by_key(|&i| (!x[i as usize].magnitude(), i));
    let largest = x[order[0] as usize].to_f64().abs();
    if !largest.is_finite() {
        return Err(refused("a vector to compress by TopLEK", "of finite numbers".into(), largest));
    }
    // Relative to the largest magnitude, so that no square overflows or underflows.
    let square = |x: F| if largest > 0.0 { (x.to_f64() / largest).powi(2) } else { 0.0 };
    let mut total = 0.0;
    for (n, &x) in x.iter().enumerate() {
        ask_at(n)?;
        total += square(x);
    }
    let mut missing = total * (k as f64 / x.len() as f64);
    let mut n_sent = 0;
    for &i in order.iter() {
        let next = square(x[i as usize]);
        if missing < next {
            break;
        }
        missing -= next;
        n_sent += 1;
    }
    let next = order.get(n_sent).map_or(0.0, |&i| square(x[i as usize]));
    // The missing fraction of the next square is its probability.
    if draw.uniform() * next < missing {
        n_sent += usize::from(n_sent < order.len());
    }
    order.truncate(n_sent);
    order.sort_unstable();
    Ok(())
}
