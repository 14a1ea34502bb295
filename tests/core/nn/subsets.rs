//! Gradients of some parameters: the bits of the whole gradient, for every set, batch, lanes, and number of threads.

use std::ops::Range;

use burtorch_core::nn::{Activation, CharMlp, CharMlpShape, Gpt, GptShape, Input, Label, Mlp};
use burtorch_core::params::WantedSet;
use burtorch_core::{Batch, Error, LaneFloat, LaneModel, Oracle, Parameters};

struct Draws(u64);

impl Draws {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n
    }

    fn tokens(&mut self, n: usize, below: usize) -> Vec<u32> {
        (0..n).map(|_| self.below(below) as u32).collect()
    }

    /// A few ranges, or single numbers, or all but a few numbers, of `n`.
    fn ranges(&mut self, n: usize) -> Vec<Range<u32>> {
        match self.below(4) {
            0 => {
                let from = self.below(n);
                std::iter::once(from as u32..(from + 1 + self.below(n - from)) as u32).collect()
            }
            1 => (0..1 + n / 100).map(|_| self.below(n) as u32).map(|k| k..k + 1).collect(),
            2 => (0..n as u32).filter(|_| self.below(3) == 0).map(|k| k..k + 1).collect(),
            _ => {
                let longest = 1 + n / 4;
                (0..1 + self.below(8))
                    .map(|_| (self.below(n), self.below(longest)))
                    .map(|(from, len)| from as u32..(from + len).min(n) as u32)
                    .collect()
            }
        }
    }
}

fn bits<E: LaneFloat>(numbers: &[E]) -> Vec<u64> {
    numbers.iter().map(|x| x.to_f64().to_bits()).collect()
}

fn check<E: LaneFloat, M: LaneModel<E>>(
    draws: &mut Draws,
    model: &M,
    params: &mut Parameters<'static, E>,
    batch: Batch<'_, E>,
    rounds: usize,
) {
    let mut oracles = [1, 2, 8].map(|n| {
        let mut oracle = Oracle::<E>::new();
        oracle.set_threads(n).unwrap();
        oracle
    });
    let loss = oracles[0].gradient(model, params, batch, None).unwrap();
    let full = params.grads().to_vec();
    let before: Vec<E> = (0..params.len()).map(|k| E::lit(k as f64)).collect();
    for round in 0..rounds {
        params.grads_mut().copy_from_slice(&before);
        let wanted = WantedSet::of(params, draws.ranges(params.len())).unwrap();
        let mut expected = vec![E::lit(0.0); wanted.len()];
        wanted.pick(&full, &mut expected);
        let oracle = &mut oracles[round % 3];
        let mut some = vec![E::lit(9.0); wanted.len()];
        let found = oracle.gradient_of_some(model, params, batch, None, (&wanted, &mut some), None).unwrap();
        let set = &wanted.ranges()[..wanted.ranges().len().min(6)];
        assert_eq!(found.to_bits(), loss.to_bits());
        assert!(bits(&some) == bits(&expected), "{} numbers in {set:?} of {}", wanted.len(), params.len());
        let mut all = vec![E::lit(9.0); params.len()];
        oracle.gradient_of_some(model, params, batch, None, (&wanted, &mut all), None).unwrap();
        wanted.pick(&all, &mut some);
        assert!(bits(&some) == bits(&expected), "in place: {} numbers in {set:?}", wanted.len());
        let outside = all.iter().zip(&full).all(|(a, f)| a.to_f64() == 0.0 || a.to_f64() == f.to_f64());
        assert!(outside, "what is not asked for is 0 or the gradient");
        assert!(bits(params.grads()) == bits(&before));
        // The same by freezing the rest, and with some of the set frozen.
        let all_of = params.slice(0..params.len()).unwrap();
        params.grads_mut().fill(E::lit(0.0));
        params.freeze(all_of).unwrap();
        for range in wanted.ranges() {
            params.unfreeze(params.slice(range.start as usize..range.end as usize).unwrap()).unwrap();
        }
        assert!(wanted.check(params).is_err() || wanted.len() == params.len());
        oracle.gradient(model, params, batch, None).unwrap();
        let mut frozen = vec![E::lit(0.0); params.len()];
        for range in wanted.ranges() {
            let range = range.start as usize..range.end as usize;
            frozen[range.clone()].copy_from_slice(&full[range]);
        }
        assert!(bits(params.grads()) == bits(&frozen), "frozen: {} numbers in {set:?}", wanted.len());
        let other = WantedSet::of(params, draws.ranges(params.len())).unwrap();
        let mut some = vec![E::lit(9.0); other.len()];
        oracle.gradient_of_some(model, params, batch, None, (&other, &mut some), None).unwrap();
        let mut expected = vec![E::lit(0.0); other.len()];
        other.pick(&frozen, &mut expected);
        assert!(bits(&some) == bits(&expected), "with frozen numbers in the set");
        params.unfreeze(all_of).unwrap();
    }
}

fn check_all<E: LaneFloat>(seed: u64, rounds: usize) {
    let mut draws = Draws(seed);
    let mut params = Parameters::<E>::new(3);
    let shape = CharMlpShape { vocab: 27, context: 4, embedding: 8, hidden: 19 };
    let model = CharMlp::new(&mut params, shape, None).unwrap();
    for n in [1, 3, 7, 16, 64, 200] {
        let (x, y) = (draws.tokens(4 * n, 27), draws.tokens(n, 27));
        let batch = Batch::new(Input::Tokens(&x), Label::Classes(&y), n).unwrap();
        check(&mut draws, &model, &mut params, batch, rounds);
    }
    let mut params = Parameters::<E>::new(3);
    let shape = CharMlpShape { vocab: 9, context: 16, embedding: 16, hidden: 7 };
    let model = CharMlp::new(&mut params, shape, None).unwrap();
    let (x, y) = (draws.tokens(16, 9), draws.tokens(1, 9));
    let batch = Batch::new(Input::Tokens(&x), Label::Classes(&y), 1).unwrap();
    // So few numbers of embeddings that their columns are computed one by one.
    check(&mut draws, &model, &mut params, batch, 4 * rounds);
    let mut params = Parameters::<E>::new(3);
    let model = Mlp::new(&mut params, &[3, 9, 1, 5, 4], true, Activation::Tanh, None).unwrap();
    for n in [1, 2, 5, 33, 70] {
        let numbers: Vec<E> = (0..3 * n).map(|_| E::lit(draws.below(1000) as f64 / 500.0 - 1.0)).collect();
        let y = draws.tokens(n, 4);
        let batch = Batch::new(Input::Numbers(&numbers), Label::Classes(&y), n).unwrap();
        check(&mut draws, &model, &mut params, batch, rounds);
    }
    let mut params = Parameters::<E>::new(3);
    let shape = GptShape { vocab: 11, context: 9, layers: 2, heads: 2, width: 10, ..GptShape::default() };
    let model = Gpt::new(&mut params, shape, None).unwrap();
    for (n, len) in [(1, 9), (2, 8), (40, 3)] {
        let (x, y) = (draws.tokens(len * n, 11), draws.tokens(len * n, 11));
        let batch = Batch::new(Input::Tokens(&x), Label::Classes(&y), n).unwrap();
        check(&mut draws, &model, &mut params, batch, rounds);
    }
}

#[test]
fn some_gradients_have_the_bits_of_all() {
    check_all::<f32>(1, 12);
    check_all::<f64>(2, 12);
}

#[test]
fn sets_that_do_not_fit_are_refused_and_change_nothing() {
    let mut params = Parameters::<f32>::new(3);
    let model = Mlp::new(&mut params, &[2, 3, 1], true, Activation::Tanh, None).unwrap();
    let batch = Batch::new(Input::Numbers(&[0.5, 1.0]), Label::Numbers(&[1.0]), 1).unwrap();
    let n = params.len() as u32;
    assert!(matches!(WantedSet::of(&params, std::iter::once(3..n + 1).collect()), Err(Error::BadArgument { .. })));
    let wanted = WantedSet::of(&params, vec![0..2, 1..4]).unwrap();
    assert_eq!((wanted.len(), wanted.ranges().len(), wanted.is_empty()), (4, 1, false));
    assert_eq!(wanted.ranges()[0], 0..4);
    let mut out = [5.0; 3];
    let mut oracle = Oracle::new();
    let found = oracle.gradient_of_some(&model, &mut params, batch, None, (&wanted, &mut out), None);
    assert!(matches!(found, Err(Error::LengthMismatch { .. })));
    let other = Parameters::<f32>::new(3);
    let empty = WantedSet::of(&other, Vec::new()).unwrap();
    assert!(empty.is_empty());
    let found = oracle.gradient_of_some(&model, &mut params, batch, None, (&empty, &mut []), None);
    assert!(matches!(found, Err(Error::GraphMismatch { .. })));
    params.tensor(&[2], None, burtorch_core::Init::Constant(0.0), true).unwrap();
    let mut out = [5.0; 4];
    let found = oracle.gradient_of_some(&model, &mut params, batch, None, (&wanted, &mut out), None);
    assert!(matches!(found, Err(Error::BadArgument { .. })));
    assert_eq!(out, [5.0; 4]);
    let wanted = WantedSet::of(&params, vec![0..2, 1..4]).unwrap();
    let found = oracle.gradient_of_some(&model, &mut params, batch, None, (&wanted, &mut out), Some(&mut || true));
    assert_eq!((found, out), (Err(Error::Interrupted), [0.0; 4]));
    oracle.gradient_of_some(&model, &mut params, batch, None, (&wanted, &mut out), None).unwrap();
    assert!(out.iter().any(|&g| g != 0.0));
}
