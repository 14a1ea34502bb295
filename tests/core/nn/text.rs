//! Contexts of words, and words from a model.

use burtorch_core::nn::{CharMlp, CharMlpShape};
use burtorch_core::text::{self, Sampling, Vocabulary, WordContexts};
use burtorch_core::{Error, Parameters};

fn all(contexts: &WordContexts) -> Vec<(Vec<u32>, u32)> {
    let c = contexts.context();
    let (n, m) = (contexts.n_train(), contexts.n_held_out());
    let (mut x, mut y) = (vec![0; (n + m) * c], vec![0; n + m]);
    contexts.train(0, &mut x[..n * c], &mut y[..n]).unwrap();
    contexts.held_out(0, &mut x[n * c..], &mut y[n..]).unwrap();
    x.chunks(c).map(<[u32]>::to_vec).zip(y).collect()
}

#[test]
fn every_place_of_every_word_is_there_once() {
    for holdout in [0.0, 0.3, 0.99] {
        let contexts = WordContexts::new(["ab", "", "cab", "a"], 3, holdout, 9).unwrap();
        let mut places = all(&contexts);
        places.sort();
        let mut expected = vec![
            (vec![0, 0, 0], 1),
            (vec![0, 0, 1], 2),
            (vec![0, 1, 2], 0),
            (vec![0, 0, 0], 3),
            (vec![0, 0, 3], 1),
            (vec![0, 3, 1], 2),
            (vec![3, 1, 2], 0),
            (vec![0, 0, 0], 1),
            (vec![0, 0, 1], 0),
        ];
        expected.sort();
        assert_eq!(places, expected);
        assert_eq!(contexts.n_held_out(), ((9.0 * holdout).round() as usize).min(8));
    }
}

#[test]
fn names_give_the_pairs_of_the_paper() {
    let Ok(names) = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/names.txt"))
    else {
        return;
    };
    let contexts = WordContexts::new(names.lines(), 16, 0.1, 0).unwrap();
    assert_eq!(contexts.vocabulary().len(), 27);
    assert_eq!(contexts.n_train() + contexts.n_held_out(), 228_146);
    assert_eq!(contexts.n_held_out(), 22_815);
}

#[test]
fn batches_come_from_the_seed_and_from_training_places() {
    let words = ["anna", "bob", "eve", "otto"];
    let mut a = WordContexts::new(words, 4, 0.25, 3).unwrap();
    let mut b = a.clone();
    let training = {
        let (mut x, mut y) = (vec![0; a.n_train() * 4], vec![0; a.n_train()]);
        a.train(0, &mut x, &mut y).unwrap();
        x.chunks(4).map(<[u32]>::to_vec).zip(y).collect::<Vec<_>>()
    };
    let (mut x, mut y) = ([0; 40], [0; 10]);
    let (mut x2, mut y2) = ([0; 40], [0; 10]);
    for _ in 0..20 {
        a.batch(&mut x, &mut y).unwrap();
        b.batch(&mut x2, &mut y2).unwrap();
        assert_eq!((x, y), (x2, y2));
        assert!(x.chunks(4).zip(y).all(|(x, y)| training.contains(&(x.to_vec(), y))));
    }
}

#[test]
fn invalid_arguments_are_refused() {
    let words = ["ab"];
    assert!(WordContexts::new(words, 0, 0.1, 0).is_err());
    assert!(WordContexts::new(words, 2, 1.0, 0).is_err());
    assert!(WordContexts::new(words, 2, f64::NAN, 0).is_err());
    assert!(WordContexts::new([""], 2, 0.1, 0).is_err());
    let mut contexts = WordContexts::new(words, 2, 0.0, 0).unwrap();
    let (mut x, mut y) = ([0; 6], [0; 3]);
    assert!(contexts.train(1, &mut x, &mut y).is_err());
    assert!(contexts.train(usize::MAX, &mut x, &mut y).is_err());
    assert!(contexts.held_out(0, &mut x, &mut y).is_err());
    assert!(contexts.batch(&mut x[..5], &mut y).is_err());
    let vocabulary = contexts.vocabulary();
    assert_eq!(vocabulary.encode("abc"), Err(Error::NoSuchSymbol { symbol: 'c' }));
    assert_eq!(vocabulary.character(0), None);
    assert_eq!(vocabulary.character(3), None);
    assert!(Vocabulary::of_symbols(vec!['b', 'a']).is_err());
}

#[test]
fn sampled_words_come_from_the_seed_and_end() {
    let vocabulary = Vocabulary::of_words(["abc"]).unwrap();
    let mut params = Parameters::<f32>::new(0);
    let shape = CharMlpShape { vocab: 4, context: 3, embedding: 2, hidden: 4 };
    let model = CharMlp::new(&mut params, shape, None).unwrap();
    let words = |sampling: Sampling<'_>| text::sample(&model, &params, &vocabulary, 20, sampling, None);
    let base = Sampling { max_len: 9, prompt: "ca", ..Sampling::default() };
    let first = words(base).unwrap();
    assert_eq!(first, words(base).unwrap());
    assert_ne!(first, words(Sampling { seed: 1, ..base }).unwrap());
    assert!(first.iter().all(|w| w.starts_with("ca") && w.len() <= 9 && w.chars().all(|c| "abc".contains(c))));
    let greedy = words(Sampling { temperature: 0.0, ..base }).unwrap();
    assert!(greedy.iter().all(|w| *w == greedy[0]));
    assert!(words(Sampling { temperature: -1.0, ..base }).is_err());
    assert!(words(Sampling { prompt: "x", ..base }).is_err());
    let other = Vocabulary::of_words(["ab"]).unwrap();
    assert!(text::sample(&model, &params, &other, 1, base, None).is_err());
}
