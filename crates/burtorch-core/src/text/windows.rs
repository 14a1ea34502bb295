//! Running text: windows of neighbouring symbols to train on, and text that a GPT goes on with.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{Sampler, Sampling};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::interrupt::{self, Work};
use crate::io::{Fingerprint, data_from_bytes, data_to_bytes};
use crate::kernels::BlockMath;
use crate::nn::Gpt;
use crate::params::Parameters;
use crate::scalar::Float;

/// A text as symbols, its first part to train on and its last part held out.
///
/// A sample is a window of `context` neighbouring symbols; its labels are the symbols one place further. The symbols of
/// the vocabulary are the text's characters, ascending.
///
/// ```
/// use burtorch_core::text::TextWindows;
/// let text = TextWindows::new("to be or not to be", 4, 0.0, 0).unwrap();
/// assert_eq!(text.symbols().iter().collect::<String>(), " benort");
/// let (mut x, mut y) = ([0; 4], [0; 4]);
/// text.train(0, &mut x, &mut y).unwrap();
/// assert_eq!(x[1..], y[..3]);
/// ```
#[derive(Clone, Debug)]
pub struct TextWindows {
    symbols: Vec<char>,
    context: usize,
    stream: Vec<u16>,
    /// Symbols to train on; the others are held out.
    n_train: usize,
    rng: ChaCha8Rng,
}

impl TextWindows {
    /// The windows of `text`, of which the last share of `holdout` is held out. `seed` decides all batches. Each part
    /// that is not empty must hold more than `context` symbols.
    pub fn new(text: &str, context: usize, holdout: f64, seed: u64) -> Result<Self> {
        if !(0.0..1.0).contains(&holdout) {
            let expected = "at least 0 and below 1".into();
            return Err(Error::BadArgument { what: "the share held out", expected, found: format!("{holdout}") });
        }
        let symbols = super::characters([text])?;
        if symbols.len() > usize::from(u16::MAX) {
            let expected = "at most 65535 different characters".into();
            return Err(Error::BadArgument { what: "a text", expected, found: symbols.len().to_string() });
        }
        let symbol = |c: char| symbols.binary_search(&c).map_or(0, |k| k as u16);
        let mut stream: Vec<u16> = Vec::new();
        let n = text.chars().count();
        let bytes = n * size_of::<u16>();
        stream.try_reserve_exact(n).map_err(|_| Error::OutOfMemory { bytes, what: "the symbols of a text" })?;
        for (k, c) in text.chars().enumerate() {
            interrupt::ask_at(k)?;
            stream.push(symbol(c));
        }
        let n_train = stream.len() - (stream.len() as f64 * holdout).round() as usize;
        let long_enough = |n: usize| context > 0 && n > context;
        if !long_enough(n_train) || !(holdout == 0.0 || long_enough(stream.len() - n_train)) {
            let expected = format!("more than {context} characters to train on, and as many held out if any are");
            return Err(Error::BadArgument { what: "a text", expected, found: format!("{}", stream.len()) });
        }
        Ok(TextWindows { symbols, context, stream, n_train, rng: ChaCha8Rng::seed_from_u64(seed) })
    }

    /// The characters, ascending: character k is symbol k.
    pub fn symbols(&self) -> &[char] {
        &self.symbols
    }

    /// Symbols of a window.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Windows to train on that do not overlap. Batches are drawn from every place.
    pub fn n_train(&self) -> usize {
        (self.n_train - 1) / self.context
    }

    /// Windows held out, which do not overlap.
    pub fn n_held_out(&self) -> usize {
        (self.stream.len() - self.n_train).saturating_sub(1) / self.context
    }

    /// Writes random training windows, with replacement: as many as `x` has room for.
    pub fn batch(&mut self, x: &mut [u32], y: &mut [u32]) -> Result<()> {
        self.check_room(x, y)?;
        let n = (self.n_train - self.context) as u32;
        let (before, mut work) = (self.rng.clone(), Work::default());
        for (x, y) in x.chunks_exact_mut(self.context).zip(y.chunks_exact_mut(self.context)) {
            if let Err(error) = work.add(8 + self.context) {
                self.rng = before;
                return Err(error);
            }
            let place = self.rng.random_range(0..n) as usize;
            read(&self.stream[place..], x, y);
        }
        Ok(())
    }

    /// Writes training windows `from..`.
    pub fn train(&self, from: usize, x: &mut [u32], y: &mut [u32]) -> Result<()> {
        self.check_room(x, y)?;
        super::check_places(from, x.len() / self.context, self.n_train())?;
        let mut work = Work::default();
        for (k, (x, y)) in x.chunks_exact_mut(self.context).zip(y.chunks_exact_mut(self.context)).enumerate() {
            work.add(8 + self.context)?;
            read(&self.stream[(from + k) * self.context..], x, y);
        }
        Ok(())
    }

    /// Writes held-out windows `from..`.
    pub fn held_out(&self, from: usize, x: &mut [u32], y: &mut [u32]) -> Result<()> {
        self.check_room(x, y)?;
        super::check_places(from, x.len() / self.context, self.n_held_out())?;
        let mut work = Work::default();
        for (k, (x, y)) in x.chunks_exact_mut(self.context).zip(y.chunks_exact_mut(self.context)).enumerate() {
            work.add(8 + self.context)?;
            read(&self.stream[self.n_train + (from + k) * self.context..], x, y);
        }
        Ok(())
    }

    fn check_room(&self, x: &[u32], y: &[u32]) -> Result<()> {
        if x.len() == y.len() && x.len().is_multiple_of(self.context) {
            return Ok(());
        }
        Err(Error::LengthMismatch { op: "a batch (room for windows and for labels)", left: x.len(), right: y.len() })
    }

    /// Where the batches are, and a fingerprint of the data, in the checkpoint format.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        data_to_bytes(&self.rng, self.fingerprint())
    }

    /// Goes on with the batches that came after [`TextWindows::to_bytes`], of the same text, context and hold-out.
    pub fn load_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.rng = data_from_bytes(bytes, self.fingerprint())?;
        Ok(())
    }

    fn fingerprint(&self) -> u64 {
        Fingerprint::new()
            .list(self.symbols.iter().map(|&symbol| u32::from(symbol)))
            .list([self.context as u32, self.n_train as u32].into_iter())
            .list(self.stream.iter().map(|&symbol| u32::from(symbol)))
            .finish()
    }
}

/// A window and its labels from the start of a stream.
fn read(stream: &[u16], x: &mut [u32], y: &mut [u32]) {
    for (k, (x, y)) in x.iter_mut().zip(y).enumerate() {
        (*x, *y) = (u32::from(stream[k]), u32::from(stream[k + 1]));
    }
}

/// `prompt` and `n` characters more that `model` goes on with. `symbols` are the characters of its vocabulary, ascending;
/// a prompt has at least one of them.
pub fn continue_text<E: Float + BlockMath>(
    model: &Gpt,
    params: &Parameters<'_, E>,
    symbols: &[char],
    n: usize,
    sampling: Sampling<'_>,
    mut interrupted: crate::oracle::Interrupted<'_>,
) -> Result<String> {
    params.check_slice(model.tokens().slice())?;
    let vocab = model.shape().vocab;
    if symbols.len() != vocab {
        let op = "continue_text (symbols of the model and of the vocabulary)";
        return Err(Error::LengthMismatch { op, left: vocab, right: symbols.len() });
    }
    let mut sampler = Sampler::new(vocab, sampling)?;
    let symbol = |c| symbols.iter().position(|&known| known == c).ok_or(Error::NoSuchSymbol { symbol: c });
    let mut stream = sampling.prompt.chars().map(|c| symbol(c).map(|k| k as u32)).collect::<Result<Vec<u32>>>()?;
    if stream.is_empty() {
        let expected = "at least one character".into();
        return Err(Error::BadArgument { what: "a prompt", expected, found: "none".into() });
    }
    let mut text = sampling.prompt.to_string();
    for _ in 0..n {
        if let Some(interrupted) = &mut interrupted
            && interrupted()
        {
            return Err(Error::Interrupted);
        }
        let from = stream.len().saturating_sub(model.shape().context);
        let next = sampler.next_of_text(model, params, &stream[from..])?;
        text.push(symbols[next as usize]);
        stream.push(next);
    }
    Ok(text)
}

impl<E: Float + BlockMath> Sampler<E> {
    pub(super) fn new(vocab: usize, sampling: Sampling<'_>) -> Result<Self> {
        if !(sampling.temperature.is_finite() && sampling.temperature >= 0.0) {
            let (expected, found) = ("finite and at least 0".into(), format!("{}", sampling.temperature));
            return Err(Error::BadArgument { what: "the temperature", expected, found });
        }
        let mut graph = Graph::new();
        graph.set_no_grad(true);
        let rng = ChaCha8Rng::seed_from_u64(sampling.seed);
        Ok(Sampler { graph, rng, weights: vec![0.0; vocab], temperature: sampling.temperature })
    }

    /// A symbol drawn by the logits after the last of `tokens`.
    fn next_of_text(&mut self, model: &Gpt, params: &Parameters<'_, E>, tokens: &[u32]) -> Result<u32> {
        self.graph.clear()?;
        let logits = model.logits(&mut self.graph, params, tokens)?;
        for (f, weight) in self.weights.iter_mut().enumerate() {
            let node = logits.node(tokens.len() - 1, f).ok_or(Error::EmptyReduction { op: "a sample" })?;
            *weight = self.graph.value(node)?.to_f64();
        }
        Ok(self.draw())
    }
}
