//! Compressors: a sparsifier, which chooses coordinates, and a quantiser, which rounds the sent numbers.

use super::message::Message;
use super::number::Number;
use super::quantiser::Quantiser;
use super::running::Largest;
use super::sparsifier::Sparsifier;
use crate::draw::Draw;
use crate::error::{Error, Result};

/// Which of several clients compresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// Its number.
    pub index: usize,
    /// The number of clients.
    pub n: usize,
}

impl Client {
    /// The only one.
    pub const ALONE: Client = Client { index: 0, n: 1 };
}

/// A compressor: the coordinates it sends, then how it rounds them.
///
/// An unbiased one, E C(x) = x, has a constant `omega` with E |C(x) - x|^2 <= omega |x|^2; a contractive one a constant `alpha`
/// with E |C(x) - x|^2 <= (1 - alpha) |x|^2.
///
/// ```
/// use burtorch_core::compress::{Client, Compressor, Count, Message, Quantiser, Sparsifier};
/// use burtorch_core::draw::{Draw, Purpose};
/// let top = Compressor::new(Sparsifier::TopK(Count::Of(2)), Quantiser::None)?;
/// let mut message = Message::new();
/// let mut draw = Draw::new(0, 0, 0, Purpose::Compression);
/// top.compress(&[1.0, -3.0, 2.0, 0.5], &mut draw, Client::ALONE, &mut message)?;
/// let mut dense = [0.0; 4];
/// message.write_to(&mut dense)?;
/// assert_eq!(dense, [0.0, -3.0, 2.0, 0.0]);
/// assert_eq!(top.alpha(4, 1)?, 0.5);
/// # Ok::<(), burtorch_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compressor {
    sparsifier: Sparsifier,
    quantiser: Quantiser,
}

impl Compressor {
    /// One that chooses and then rounds. An error for constants that no vector has a meaning for.
    pub fn new(sparsifier: Sparsifier, quantiser: Quantiser) -> Result<Self> {
        sparsifier.check()?;
        quantiser.check()?;
        Ok(Compressor { sparsifier, quantiser })
    }

    /// The choice of coordinates.
    pub fn sparsifier(&self) -> Sparsifier {
        self.sparsifier
    }

    /// How it rounds.
    pub fn quantiser(&self) -> Quantiser {
        self.quantiser
    }

    /// Whether the message depends on the draws.
    pub fn is_random(&self) -> bool {
        !matches!(self.sparsifier, Sparsifier::All | Sparsifier::TopK(_))
            || !matches!(self.quantiser, Quantiser::None | Quantiser::Sign)
    }

    /// Whether it sends some numbers of a vector as they are.
    pub fn sends_numbers(&self) -> bool {
        matches!(self.sparsifier, Sparsifier::All | Sparsifier::TopK(_) | Sparsifier::TopLeK(_))
            && self.quantiser == Quantiser::None
    }

    /// Compresses `x`. All clients of [`Sparsifier::PermK`] share a partition: it is drawn for the seed, round and
    /// purpose of `draw`, not for its client. After an error the message represents an empty vector.
    pub fn compress<F: Number>(
        &self,
        x: &[F],
        draw: &mut Draw<'_>,
        client: Client,
        out: &mut Message<F>,
    ) -> Result<()> {
        let done = self.try_compress(x, draw, client, out);
        if done.is_err() {
            out.clear();
            out.indices.clear();
        }
        done
    }

    fn try_compress<F: Number>(
        &self,
        x: &[F],
        draw: &mut Draw<'_>,
        client: Client,
        out: &mut Message<F>,
    ) -> Result<()> {
        check(x.len(), client)?;
        self.sparsifier.select(x, draw, (client.index, client.n), out)?;
        self.quantiser.round(draw, out)?;
        draw.check()
    }

    /// Chooses the coordinates of a vector of `d` numbers, if they do not depend on the vector (RandK, RandSeqK,
    /// PermK): calls `numbers` with the message that holds them (see [`Message::index`]) and their count; it must
    /// append the numbers at these coordinates, in order. Then rounds them: the result is the message of
    /// [`Compressor::compress`]. Returns `false`, with nothing done, for other compressors. After an error the message
    /// represents an empty vector.
    pub fn compress_chosen<F: Number>(
        &self,
        d: usize,
        draw: &mut Draw<'_>,
        client: Client,
        out: &mut Message<F>,
        numbers: impl FnOnce(&Message<F>, usize, &mut Vec<F>) -> Result<()>,
    ) -> Result<bool> {
        let chosen = || {
            check(d, client)?;
            let Some(n) = self.sparsifier.choose(d, draw, (client.index, client.n), out)? else {
                return Ok(false);
            };
            let mut list = std::mem::take(&mut out.numbers);
            numbers(out, n, &mut list)?;
            if list.len() != n {
                let op = "a compressor (coordinates and their numbers)";
                return Err(Error::LengthMismatch { op, left: n, right: list.len() });
            }
            out.numbers = list;
            self.quantiser.round(draw, out)?;
            draw.check().map(|()| true)
        };
        let done = chosen();
        if done.is_err() {
            out.clear();
            out.indices.clear();
        }
        done
    }

    /// Selects the largest numbers of a vector of `d` numbers that arrives in parts, if these are sent (TopK): pass it
    /// all parts, and then to [`Compressor::compress_largest`].
    pub fn largest<F: Number>(&self, d: usize) -> Result<Option<Largest<F>>> {
        check(d, Client::ALONE)?;
        match self.sparsifier {
            Sparsifier::TopK(count) => Largest::new(count.of(d)?, d).map(Some),
            _ => Ok(None),
        }
    }

    /// Rounds the selected numbers: the message of [`Compressor::compress`] for the vector of all parts. After an error
    /// the message represents an empty vector.
    ///
    /// ```
    /// use burtorch_core::compress::{Client, Compressor, Count, Message, Quantiser, Sparsifier};
    /// use burtorch_core::draw::{Draw, Purpose};
    /// let top = Compressor::new(Sparsifier::TopK(Count::Of(2)), Quantiser::None)?;
    /// let mut draw = Draw::new(0, 0, 0, Purpose::Compression);
    /// let mut largest = top.largest(4)?.unwrap();
    /// largest.take(2, &[2.0, 0.5])?;
    /// largest.take(0, &[1.0, -3.0])?;
    /// let (mut parts, mut whole) = (Message::new(), Message::new());
    /// top.compress_largest(largest, &mut draw, &mut parts)?;
    /// top.compress(&[1.0, -3.0, 2.0, 0.5], &mut draw, Client::ALONE, &mut whole)?;
    /// assert_eq!(parts, whole);
    /// # Ok::<(), burtorch_core::Error>(())
    /// ```
    pub fn compress_largest<F: Number>(
        &self,
        largest: Largest<F>,
        draw: &mut Draw<'_>,
        out: &mut Message<F>,
    ) -> Result<()> {
        let done = largest.write_to(out).and_then(|()| self.quantiser.round(draw, out)).and_then(|()| draw.check());
        if done.is_err() {
            out.clear();
            out.indices.clear();
        }
        done
    }

    /// The constant of an unbiased compressor for vectors of `d` numbers, among `n_clients`; an error for a biased one.
    pub fn omega(&self, d: usize, n_clients: usize) -> Result<f64> {
        let (selected, n_sent) = match self.sparsifier {
            Sparsifier::All => (0.0, d),
            Sparsifier::RandK(count) | Sparsifier::RandSeqK(count) => {
                let k = count.of(d)?;
                (d as f64 / k as f64 - 1.0, k)
            }
            Sparsifier::PermK => (n_clients as f64 - 1.0, d.div_ceil(n_clients.max(1))),
            Sparsifier::Bernoulli(p) => (1.0 / p - 1.0, d),
            Sparsifier::TopK(_) | Sparsifier::TopLeK(_) => return Err(not_unbiased()),
        };
        let rounded = self.quantiser.omega(n_sent).ok_or_else(not_unbiased)?;
        // The variance of both, plus the variance that the quantiser adds to the sparsifier's.
        Ok(selected + rounded + selected * rounded)
    }

    /// The constant of a contractive compressor for vectors of `d` numbers, among `n_clients`: K/d for TopK; 1 - omega
    /// for an unbiased one with omega below 1; an error for others.
    pub fn alpha(&self, d: usize, n_clients: usize) -> Result<f64> {
        // Both are orthogonal projections, so the error of rounding adds to the error of dropping coordinates.
        let projection = match self.sparsifier {
            Sparsifier::All => Some((1.0, d)),
            Sparsifier::TopK(count) | Sparsifier::TopLeK(count) => {
                let k = count.of(d)?;
                Some((k as f64 / d as f64, k))
            }
            _ => None,
        };
        let alpha = match (projection, self.quantiser) {
            (Some((alpha, k)), Quantiser::Sign) => alpha / k as f64,
            (Some((alpha, k)), quantiser) => quantiser.omega(k).map_or(0.0, |omega| alpha * (1.0 - omega)),
            (None, _) => 1.0 - self.omega(d, n_clients)?,
        };
        if alpha > 0.0 { Ok(alpha) } else { Err(not_contractive()) }
    }

    /// The share of numbers that is sent in expectation, for vectors of `d` numbers among `n_clients`; of
    /// [`Sparsifier::TopLeK`] the largest.
    pub fn density(&self, d: usize, n_clients: usize) -> Result<f64> {
        match self.sparsifier {
            Sparsifier::All => Ok(1.0),
            Sparsifier::PermK => Ok(1.0 / n_clients.max(1) as f64),
            Sparsifier::Bernoulli(p) => Ok(p),
            Sparsifier::RandK(count)
            | Sparsifier::RandSeqK(count)
            | Sparsifier::TopK(count)
            | Sparsifier::TopLeK(count) => Ok(count.of(d)? as f64 / d as f64),
        }
    }
}

/// Checks the vector length and the client's number.
fn check(d: usize, client: Client) -> Result<()> {
    if d == 0 || u32::try_from(d).is_err() {
        return Err(Error::BadArgument {
            what: "the length of a vector to compress",
            expected: "1 to 2^32 - 1".into(),
            found: d.to_string(),
        });
    }
    if client.index >= client.n {
        return Err(Error::BadArgument {
            what: "the number of a client",
            expected: format!("below {}, the number of clients", client.n),
            found: client.index.to_string(),
        });
    }
    Ok(())
}

fn not_unbiased() -> Error {
    wrong_kind("unbiased (have omega)", "RandK", "contractive")
}

fn not_contractive() -> Error {
    wrong_kind("contractive (have alpha)", "TopK", "unbiased")
}

fn wrong_kind(kind: &str, example: &str, found: &str) -> Error {
    Error::BadArgument {
        what: "the compressor",
        expected: format!("{kind} for vectors of this length, such as {example}"),
        found: format!("one that is only {found}"),
    }
}
