//! Words as token ids: vocabulary, training contexts, and words sampled from a model.
//!
//! Promises: all random numbers come from a seed; a set of contexts takes two bytes per token, for any length of the
//! context; a batch is written into the caller's memory. Knows parameters only for sampling.

mod windows;

pub use windows::{TextWindows, continue_text};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::interrupt::{self, Work, pieces};
use crate::io::{Fingerprint, data_from_bytes, data_to_bytes};
use crate::kernels::BlockMath;
use crate::memory::reserve_in;
use crate::nn::CharMlp;
use crate::params::Parameters;
use crate::scalar::Float;

/// The symbol that ends a word and fills the context before it.
pub const END: u32 = 0;

/// The symbols of some words: the end mark as symbol 0, then their characters in order.
///
/// ```
/// use burtorch_core::text::Vocabulary;
/// let vocabulary = Vocabulary::of_words(["bea", "ada"]).unwrap();
/// assert_eq!(vocabulary.symbols(), ['a', 'b', 'd', 'e']);
/// assert_eq!(vocabulary.len(), 5);
/// assert_eq!(vocabulary.encode("bad").unwrap(), [2, 1, 3]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vocabulary {
    symbols: Vec<char>,
}

/// The characters of texts, ascending, each once.
fn characters<'t>(texts: impl IntoIterator<Item = &'t str>) -> Result<Vec<char>> {
    let mut all = Vec::new();
    for (k, c) in texts.into_iter().flat_map(str::chars).enumerate() {
        interrupt::ask_at(8 * k)?;
        if let Err(place) = all.binary_search(&c) {
            reserve_in(&mut all, 1, "the symbols of a vocabulary")?;
            all.insert(place, c);
        }
    }
    Ok(all)
}

impl Vocabulary {
    /// The vocabulary of `words`, which hold at least one character in all.
    pub fn of_words<'w>(words: impl IntoIterator<Item = &'w str>) -> Result<Self> {
        Self::of_symbols(characters(words)?)
    }

    /// The vocabulary of these characters, ascending and distinct: the result of [`Vocabulary::symbols`].
    pub fn of_symbols(symbols: Vec<char>) -> Result<Self> {
        let fine = !symbols.is_empty()
            && symbols.len() <= usize::from(u16::MAX)
            && symbols.windows(2).all(|pair| pair[0] < pair[1]);
        if fine {
            Ok(Vocabulary { symbols })
        } else {
            Err(Error::BadArgument {
                what: "a vocabulary",
                expected: "1 to 65535 different characters, ascending".into(),
                found: format!("{}", symbols.len()),
            })
        }
    }

    /// How many symbols, with the end mark.
    pub fn len(&self) -> usize {
        self.symbols.len() + 1
    }

    /// Never.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The characters, ascending; character k is symbol k + 1.
    pub fn symbols(&self) -> &[char] {
        &self.symbols
    }

    /// The symbol of a character.
    pub fn symbol(&self, character: char) -> Result<u32> {
        match self.symbols.binary_search(&character) {
            Ok(k) => Ok(k as u32 + 1),
            Err(_) => Err(Error::NoSuchSymbol { symbol: character }),
        }
    }

    /// The symbols of a text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        text.chars().map(|character| self.symbol(character)).collect()
    }

    /// The character of a token id, unless it is the end mark or out of range.
    pub fn character(&self, symbol: u32) -> Option<char> {
        self.symbols.get((symbol as usize).checked_sub(1)?).copied()
    }
}

/// Every position in some words, as the token ids before it and its token id, some of them held out.
///
/// A word of n characters has n + 1 positions, the last of which is its end mark. A word is preceded by end marks.
#[derive(Clone, Debug)]
pub struct WordContexts {
    vocabulary: Vocabulary,
    context: usize,
    /// The concatenated words, each with its end mark, as token ids.
    stream: Vec<u16>,
    /// The held-out positions, ascending.
    held_out: Vec<u32>,
    rng: ChaCha8Rng,
}

impl WordContexts {
    /// The places of `words`, with `context` symbols each, a share of `holdout` of them held out. Empty words are left
    /// out. `seed` decides which are held out, and all batches.
    pub fn new<'w>(
        words: impl IntoIterator<Item = &'w str> + Clone,
        context: usize,
        holdout: f64,
        seed: u64,
    ) -> Result<Self> {
        if context == 0 {
            return Err(Error::BadArgument {
                what: "the context",
                expected: "at least 1 symbol".into(),
                found: "0".into(),
            });
        }
        if !(0.0..1.0).contains(&holdout) {
            return Err(Error::BadArgument {
                what: "the share held out",
                expected: "at least 0 and below 1".into(),
                found: format!("{holdout}"),
            });
        }
        let vocabulary = Vocabulary::of_words(words.clone())?;
        let mut stream = Vec::new();
        let mut work = Work::default();
        for word in words.into_iter().filter(|word| !word.is_empty()) {
            work.add(8 * word.len())?;
            for character in word.chars() {
                stream.push(vocabulary.symbol(character)? as u16);
            }
            stream.push(END as u16);
        }
        stream.shrink_to_fit();
        if u32::try_from(stream.len()).is_err() {
            return Err(Error::IndexExhausted { limit: u32::MAX });
        }
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let n = stream.len() as u32;
        let n_held_out = ((f64::from(n) * holdout).round() as u32).min(n - 1);
        let held_out = choose(n, n_held_out, &mut rng);
        Ok(WordContexts { vocabulary, context, stream, held_out, rng })
    }

    /// The symbols.
    pub fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    /// Symbols before each place.
    pub fn context(&self) -> usize {
        self.context
    }

    /// The words, without empty ones.
    pub fn words(&self) -> Result<Vec<String>> {
        let (mut words, mut word) = (Vec::new(), String::new());
        for (k, &symbol) in self.stream.iter().enumerate() {
            interrupt::ask_at(k)?;
            match self.vocabulary.character(u32::from(symbol)) {
                Some(character) => word.push(character),
                None => words.push(std::mem::take(&mut word)),
            }
        }
        Ok(words)
    }

    /// Places to train on.
    pub fn n_train(&self) -> usize {
        self.stream.len() - self.held_out.len()
    }

    /// Places held out.
    pub fn n_held_out(&self) -> usize {
        self.held_out.len()
    }

    /// Writes the next random training places, with replacement: their symbols to `y`, the context of each to `x`.
    pub fn batch(&mut self, x: &mut [u32], y: &mut [u32]) -> Result<()> {
        self.check_room(x, y)?;
        let n = self.n_train() as u32;
        let (before, mut work) = (self.rng.clone(), Work::default());
        for (x, y) in x.chunks_exact_mut(self.context).zip(y) {
            if let Err(error) = work.add(8 + self.context) {
                self.rng = before;
                return Err(error);
            }
            let k = self.rng.random_range(0..n);
            *y = self.read(self.train_place(k), x);
        }
        Ok(())
    }

    /// Where the batches are, and a fingerprint of the data, in the checkpoint format.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        data_to_bytes(&self.rng, self.fingerprint())
    }

    /// Goes on with the batches that came after [`WordContexts::to_bytes`], of the same words, context and hold-out.
    pub fn load_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.rng = data_from_bytes(bytes, self.fingerprint())?;
        Ok(())
    }

    fn fingerprint(&self) -> u64 {
        Fingerprint::new()
            .list(self.vocabulary.symbols().iter().map(|&symbol| u32::from(symbol)))
            .list([self.context as u32].into_iter())
            .list(self.held_out.iter().copied())
            .list(self.stream.iter().map(|&symbol| u32::from(symbol)))
            .finish()
    }

    /// Writes training positions `from..`, as many as `y` holds.
    pub fn train(&self, from: usize, x: &mut [u32], y: &mut [u32]) -> Result<()> {
        self.check_room(x, y)?;
        check_places(from, y.len(), self.n_train())?;
        let mut work = Work::default();
        for (k, (x, y)) in x.chunks_exact_mut(self.context).zip(y).enumerate() {
            work.add(8 + self.context)?;
            *y = self.read(self.train_place((from + k) as u32), x);
        }
        Ok(())
    }

    /// Writes held-out positions `from..`, as many as `y` holds.
    pub fn held_out(&self, from: usize, x: &mut [u32], y: &mut [u32]) -> Result<()> {
        self.check_room(x, y)?;
        check_places(from, y.len(), self.n_held_out())?;
        let places = &self.held_out[from..];
        let mut work = Work::default();
        for ((x, y), &place) in x.chunks_exact_mut(self.context).zip(y).zip(places) {
            work.add(8 + self.context)?;
            *y = self.read(place as usize, x);
        }
        Ok(())
    }

    fn check_room(&self, x: &[u32], y: &[u32]) -> Result<()> {
        if x.len() == y.len() * self.context {
            return Ok(());
        }
        Err(Error::LengthMismatch {
            op: "a batch (room for contexts and context times room for symbols)",
            left: x.len(),
            right: y.len() * self.context,
        })
    }

    /// The `k`-th position that is not held out: skips the held-out positions before it.
    fn train_place(&self, k: u32) -> usize {
        let (mut low, mut high) = (0, self.held_out.len());
        while low < high {
            let middle = (low + high) / 2;
            if self.held_out[middle] - middle as u32 <= k {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        k as usize + low
    }

    /// The token id at a position; the preceding ones are written to `x`, the latest last.
    fn read(&self, place: usize, x: &mut [u32]) -> u32 {
        let before = self.stream[..place].iter().rev();
        let mut in_word = before.take_while(|&&symbol| u32::from(symbol) != END);
        for x in x.iter_mut().rev() {
            *x = in_word.next().map_or(END, |&symbol| u32::from(symbol));
        }
        u32::from(self.stream[place])
    }
}

fn check_places(from: usize, n: usize, have: usize) -> Result<()> {
    match from.checked_add(n) {
        Some(end) if end <= have => Ok(()),
        _ => Err(Error::BadArgument {
            what: "the places",
            expected: format!("within 0..{have}"),
            found: format!("{from}..{}", from.saturating_add(n)),
        }),
    }
}

/// A uniformly random choice of `k` of the numbers `0..n`, ascending: each number is taken with probability (still to
/// take) / (still to come).
fn choose(n: u32, k: u32, rng: &mut ChaCha8Rng) -> Vec<u32> {
    let mut chosen = Vec::with_capacity(k as usize);
    for number in pieces(n as usize).flatten().map(|number| number as u32) {
        let to_take = k - chosen.len() as u32;
        if rng.random_range(0..n - number) < to_take {
            chosen.push(number);
        }
    }
    chosen
}

/// How words are sampled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling<'a> {
    /// Decides every word.
    pub seed: u64,
    /// Logits are divided by it: below 1 prefers the likely, towards 0 only the likeliest, 0 exactly that.
    pub temperature: f64,
    /// How every word begins.
    pub prompt: &'a str,
    /// The longest word, in characters.
    pub max_len: usize,
}

impl Default for Sampling<'_> {
    fn default() -> Self {
        Sampling { seed: 0, temperature: 1.0, prompt: "", max_len: 100 }
    }
}

/// `n` words sampled from `model`, token by token until the end mark.
pub fn sample<E: Float + BlockMath>(
    model: &CharMlp,
    params: &Parameters<'_, E>,
    vocabulary: &Vocabulary,
    n: usize,
    sampling: Sampling<'_>,
    interrupted: crate::oracle::Interrupted<'_>,
) -> Result<Vec<String>> {
    params.check_slice(model.embedding().slice())?;
    if vocabulary.len() != model.shape().vocab {
        return Err(Error::LengthMismatch {
            op: "sample (symbols of the model and of the vocabulary)",
            left: model.shape().vocab,
            right: vocabulary.len(),
        });
    }
    let mut sampler = Sampler::new(vocabulary.len(), sampling)?;
    let prompt = vocabulary.encode(sampling.prompt)?;
    let mut interrupted = interrupted;
    let mut words = Vec::new();
    for _ in 0..n {
        if let Some(interrupted) = &mut interrupted
            && interrupted()
        {
            return Err(Error::Interrupted);
        }
        let mut word = sampling.prompt.to_string();
        let mut context = vec![END; model.shape().context];
        prompt.iter().for_each(|&symbol| shift_in(&mut context, symbol));
        for _ in prompt.len()..sampling.max_len {
            if let Some(interrupted) = &mut interrupted
                && interrupted()
            {
                return Err(Error::Interrupted);
            }
            let symbol = sampler.next(model, params, &context)?;
            let Some(character) = vocabulary.character(symbol) else {
                break;
            };
            word.push(character);
            shift_in(&mut context, symbol);
        }
        words.push(word);
    }
    Ok(words)
}

fn shift_in(context: &mut [u32], symbol: u32) {
    context.rotate_left(1);
    if let Some(last) = context.last_mut() {
        *last = symbol;
    }
}

struct Sampler<E: Float + BlockMath> {
    graph: Graph<'static, E>,
    rng: ChaCha8Rng,
    weights: Vec<f64>,
    temperature: f64,
}

impl<E: Float + BlockMath> Sampler<E> {
    /// A token drawn with probability proportional to `exp(logit / temperature)`.
    fn next(&mut self, model: &CharMlp, params: &Parameters<'_, E>, context: &[u32]) -> Result<u32> {
        self.graph.clear()?;
        let logits = model.logits(&mut self.graph, params, context)?;
        for (weight, node) in self.weights.iter_mut().zip(logits.nodes()) {
            *weight = self.graph.value(node)?.to_f64();
        }
        Ok(self.draw())
    }

    /// A token drawn by the weights `exp(logit)`.
    fn draw(&mut self) -> u32 {
        let top = self.weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let likeliest = self.weights.iter().position(|&z| z == top).unwrap_or(0);
        if self.temperature == 0.0 {
            return likeliest as u32;
        }
        let mut total = 0.0;
        for weight in &mut self.weights {
            *weight = ((*weight - top) / self.temperature).exp();
            total += *weight;
        }
        let mut left = self.rng.random::<f64>() * total;
        for (symbol, weight) in self.weights.iter().enumerate() {
            left -= weight;
            if left < 0.0 {
                return symbol as u32;
            }
        }
        // After rounding errors, or with NaN logits.
        likeliest as u32
    }
}
