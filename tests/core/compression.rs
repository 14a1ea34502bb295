//! Compressors by enumeration of all outcomes, and messages as bytes.

use burtorch_core::Error;
use burtorch_core::compress::{Client, Compressor, Count, Message, Number, Quantiser, Sparsifier};
use burtorch_core::draw::{Draw, Purpose};

const D: usize = 6;

fn compressor(sparsifier: Sparsifier, quantiser: Quantiser) -> Compressor {
    Compressor::new(sparsifier, quantiser).unwrap()
}

/// The mean of C(x) and of |C(x) - x|^2 over all equally likely outcomes; `outcomes` is the number per draw.
fn moments(c: Compressor, x: &[f64; D], outcomes: &[usize], client: Client) -> ([f64; D], f64) {
    let (mut mean, mut variance, mut message) = ([0.0; D], 0.0, Message::new());
    let n: usize = outcomes.iter().product();
    let mut uniforms = vec![0.0; outcomes.len()];
    for outcome in 0..n {
        let mut rest = outcome;
        for (u, &size) in uniforms.iter_mut().zip(outcomes) {
            *u = ((rest % size) as f64 + 0.5) / size as f64;
            rest /= size;
        }
        let mut dense = [0.0; D];
        c.compress(x, &mut Draw::of(&uniforms).unwrap(), client, &mut message).unwrap();
        message.write_to(&mut dense).unwrap();
        mean.iter_mut().zip(dense).for_each(|(mean, y)| *mean += y / n as f64);
        variance += dense.iter().zip(x).map(|(y, x)| (y - x).powi(2)).sum::<f64>() / n as f64;
    }
    (mean, variance)
}

fn square(x: &[f64]) -> f64 {
    x.iter().map(|x| x * x).sum()
}

fn is_near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-12 * (a.abs() + b.abs()) + 1e-14
}

/// Unbiased, with at most the theoretical variance; exactly that if `is_tight`.
fn check_unbiased(c: Compressor, x: &[f64; D], outcomes: &[usize], client: Client, is_tight: bool) {
    let (mean, variance) = moments(c, x, outcomes, client);
    assert!(mean.iter().zip(x).all(|(&mean, &x)| is_near(mean, x)), "{c:?}: {mean:?}");
    let bound = c.omega(D, client.n).unwrap() * square(x);
    assert!(variance <= bound * (1.0 + 1e-12), "{c:?}: {variance} above {bound}");
    assert!(!is_tight || is_near(variance, bound), "{c:?}: {variance} is not {bound}");
}

const X: [f64; D] = [2.0, -2.0, 2.0, 2.0, -3.0, 0.0];

#[test]
fn random_coordinates_are_unbiased_with_the_variance_of_theory() {
    for k in 1..=D {
        let outcomes: Vec<_> = (D - k + 1..=D).collect();
        check_unbiased(
            compressor(Sparsifier::RandK(Count::Of(k)), Quantiser::None),
            &X,
            &outcomes,
            Client::ALONE,
            true,
        );
        let block = compressor(Sparsifier::RandSeqK(Count::Of(k)), Quantiser::None);
        check_unbiased(block, &X, &[D], Client::ALONE, true);
    }
    let all = compressor(Sparsifier::Bernoulli(0.25), Quantiser::None);
    check_unbiased(all, &X, &[4], Client::ALONE, true);
}

#[test]
fn parts_of_a_permutation_are_unbiased_and_have_the_constants_one_and_one() {
    let c = compressor(Sparsifier::PermK, Quantiser::None);
    for n in [1, 2, 3, 4, 6, 8] {
        let outcomes = [n, 6, 5, 4, 3, 2];
        let vectors: Vec<[f64; D]> = (0..n).map(|i| X.map(|x| x * (i as f64 - 1.5) + i as f64)).collect();
        for (index, x) in vectors.iter().enumerate() {
            check_unbiased(c, x, &outcomes, Client { index, n }, true);
        }
        // E |mean C_i(x_i) - mean x_i|^2 = A mean |x_i|^2 - B |mean x_i|^2.
        let average: [f64; D] = std::array::from_fn(|j| vectors.iter().map(|x| x[j]).sum::<f64>() / n as f64);
        let n_outcomes: usize = outcomes.iter().product();
        let (mut variance, mut message) = (0.0, Message::new());
        for outcome in 0..n_outcomes {
            let mut rest = outcome;
            let uniforms = outcomes.map(|size| {
                let u = ((rest % size) as f64 + 0.5) / size as f64;
                rest /= size;
                u
            });
            let mut sum = [0.0; D];
            for (index, x) in vectors.iter().enumerate() {
                c.compress(x, &mut Draw::of(&uniforms).unwrap(), Client { index, n }, &mut message).unwrap();
                message.add_to(&mut sum, 1.0 / n as f64).unwrap();
            }
            variance += sum.iter().zip(average).map(|(s, a)| (s - a).powi(2)).sum::<f64>() / n_outcomes as f64;
        }
        let mean_square = vectors.iter().map(|x| square(x)).sum::<f64>() / n as f64;
        assert!(is_near(variance, mean_square - square(&average)), "{n} clients");
    }
}

#[test]
fn clients_share_the_partition_whatever_their_draws() {
    let (c, d, n) = (compressor(Sparsifier::PermK, Quantiser::None), 100, 7);
    let (mut message, mut sum) = (Message::new(), vec![0.0; d]);
    for index in 0..n {
        let mut draw = Draw::new(3, 5, index as u64, Purpose::Compression);
        c.compress(&vec![1.0; d], &mut draw, Client { index, n }, &mut message).unwrap();
        message.add_to(&mut sum, 1.0).unwrap();
    }
    assert_eq!(sum, vec![n as f64; d]);
}

#[test]
fn quantisers_are_unbiased_within_the_variance_of_theory() {
    let quarters = [1.25, -3.0, 0.5, 0.0, -0.4375, 1.75];
    let thirds = [4.0 / 3.0, -8.0 / 3.0, 1.0 / 3.0, -4.0 / 3.0, 2.0 / 3.0, 4.0 / 3.0];
    let all = |quantiser| compressor(Sparsifier::All, quantiser);
    check_unbiased(all(Quantiser::Natural), &quarters, &[4; D], Client::ALONE, false);
    check_unbiased(all(Quantiser::Natural), &thirds, &[3; D], Client::ALONE, true);
    // |x| = 5.
    check_unbiased(all(Quantiser::Dithering(4)), &X, &[5; D], Client::ALONE, false);
    check_unbiased(all(Quantiser::Dithering(1)), &X, &[5; D], Client::ALONE, false);
    check_unbiased(all(Quantiser::NaturalDithering(3)), &X, &[5; D], Client::ALONE, false);
    check_unbiased(all(Quantiser::NaturalDithering(1)), &X, &[5; D], Client::ALONE, false);
    check_unbiased(all(Quantiser::Ternary), &X, &[3; D], Client::ALONE, false);
    // A composition: each outcome rounds two of three numbers.
    let both = compressor(Sparsifier::RandK(Count::Of(2)), Quantiser::Natural);
    check_unbiased(both, &quarters, &[5, 6, 4, 4], Client::ALONE, false);
    check_unbiased(both, &thirds, &[5, 6, 3, 3], Client::ALONE, true);
}

#[test]
fn contractive_compressors_reach_their_constants() {
    let vectors = [X, [1.0; D], [3.0, 2.0, 2.0, 1.0, 1.0, 1.0], [0.0; D], [5.0, 1e-3, 0.0, 0.0, 0.0, 0.0]];
    for x in &vectors {
        for k in 1..=D {
            let top = compressor(Sparsifier::TopK(Count::Of(k)), Quantiser::None);
            let (_, error) = moments(top, x, &[], Client::ALONE);
            let bound = (1.0 - top.alpha(D, 1).unwrap()) * square(x);
            assert!(error <= bound * (1.0 + 1e-12) + 1e-15, "{x:?} {k}");
            assert!(*x != [1.0; D] || is_near(error, bound));
            let sign = compressor(Sparsifier::TopK(Count::Of(k)), Quantiser::Sign);
            let (_, error) = moments(sign, x, &[], Client::ALONE);
            assert!(error <= (1.0 - sign.alpha(D, 1).unwrap()) * square(x) * (1.0 + 1e-12), "{x:?} {k}");
        }
    }
    // alpha |x|^2 lies 20/27 of the way to the first square, a quarter of the way to the second, and at the end of one.
    for (x, k, outcomes) in [(vectors[2], 2, 27), (vectors[2], 3, 4), (vectors[1], 4, 1), (vectors[2], 6, 1)] {
        let c = compressor(Sparsifier::TopLeK(Count::Of(k)), Quantiser::None);
        let (_, error) = moments(c, &x, &[outcomes], Client::ALONE);
        assert!(is_near(error, (1.0 - c.alpha(D, 1).unwrap()) * square(&x)), "{x:?} {k}: {error}");
    }
}

fn all_compressors(k: usize) -> Vec<Compressor> {
    let sparsifiers = [
        Sparsifier::All,
        Sparsifier::RandK(Count::Of(k)),
        Sparsifier::RandSeqK(Count::Of(k)),
        Sparsifier::PermK,
        Sparsifier::TopK(Count::Of(k)),
        Sparsifier::TopLeK(Count::Of(k)),
        Sparsifier::Bernoulli(0.5),
    ];
    let quantisers = [
        Quantiser::None,
        Quantiser::Natural,
        Quantiser::Dithering(7),
        Quantiser::Dithering(1000),
        Quantiser::NaturalDithering(5),
        Quantiser::Ternary,
        Quantiser::Sign,
    ];
    sparsifiers.iter().flat_map(|&s| quantisers.map(|q| compressor(s, q))).collect()
}

/// Sends random vectors through bytes; damaged bytes must be refused, or be those of another message.
fn round_trip<F: Number>(n_rounds: u64) {
    let (mut message, mut read, mut bytes, mut again) = (Message::new(), Message::<F>::new(), Vec::new(), Vec::new());
    let mut draw = Draw::new(1, 0, 0, Purpose::Data);
    for round in 0..n_rounds {
        let d = 1 + draw.below(if round % 8 == 0 { 300 } else { 20 }) as usize;
        let x: Vec<F> = (0..d)
            .map(|_| {
                F::from_f64(if draw.happens(0.2) { 0.0 } else { draw.normal() * 10f64.powi(draw.below(9) as i32) })
            })
            .collect();
        for c in all_compressors(1 + draw.below(d as u64) as usize) {
            let client = Client { index: draw.below(4) as usize, n: 4 };
            c.compress(&x, &mut Draw::new(2, round, 0, Purpose::Compression), client, &mut message).unwrap();
            bytes.clear();
            message.append_bytes(&mut bytes).unwrap();
            assert_eq!(bytes.len(), message.n_bytes());
            read.read_bytes(&bytes).unwrap();
            assert_eq!(read, message, "{c:?}");
            assert!(message.bits() <= 8.0 * bytes.len() as f64);
            let mut refuses = |bytes: &[u8]| {
                let refused = read.read_bytes(bytes).is_err();
                again.clear();
                read.append_bytes(&mut again).unwrap();
                assert!(if refused { read == Message::new() } else { again == bytes });
                refused
            };
            assert!(refuses(&bytes[..draw.below(bytes.len() as u64) as usize]));
            bytes.push(0);
            assert!(refuses(&bytes));
            bytes.pop();
            let place = draw.below(bytes.len() as u64) as usize;
            bytes[place] ^= 1 << draw.below(8);
            refuses(&bytes);
        }
    }
}

#[test]
fn messages_are_the_same_after_a_journey_as_bytes() {
    round_trip::<f32>(300);
    round_trip::<f64>(300);
    let mut message = Message::<f32>::new();
    message
        .read_bytes(&{
            let mut bytes = Vec::new();
            message.append_bytes(&mut bytes).unwrap();
            bytes
        })
        .unwrap();
    let mut bytes = Vec::new();
    message.append_bytes(&mut bytes).unwrap();
    let other = Message::<f64>::new().read_bytes(&[&bytes[..], &[0; 4]].concat());
    assert!(matches!(other, Err(Error::Format { .. })));
}

#[test]
fn bad_vectors_and_constants_are_refused() {
    let mut message = Message::new();
    let mut draw = Draw::new(0, 0, 0, Purpose::Compression);
    let mut refused = |c: Compressor, x: &[f64]| {
        let done = c.compress(x, &mut draw, Client::ALONE, &mut message);
        matches!(done, Err(Error::BadArgument { .. })) && message == Message::new()
    };
    for c in all_compressors(2) {
        assert!(refused(c, &[]), "{c:?}");
    }
    for k in [3, 100] {
        for sparsifier in [Sparsifier::RandK, Sparsifier::RandSeqK, Sparsifier::TopK, Sparsifier::TopLeK] {
            assert!(refused(compressor(sparsifier(Count::Of(k)), Quantiser::None), &[1.0, 2.0]));
        }
    }
    let quantisers = [
        Quantiser::Natural,
        Quantiser::Dithering(3),
        Quantiser::NaturalDithering(3),
        Quantiser::Ternary,
        Quantiser::Sign,
    ];
    for quantiser in quantisers {
        for bad in [f64::NAN, f64::INFINITY] {
            assert!(refused(compressor(Sparsifier::All, quantiser), &[1.0, bad]), "{quantiser:?}");
        }
    }
    assert!(refused(compressor(Sparsifier::All, Quantiser::Natural), &[f64::MAX]));
    assert!(refused(compressor(Sparsifier::TopK(Count::Of(1)), Quantiser::None), &[1.0, f64::NAN]));
    assert!(refused(compressor(Sparsifier::TopLeK(Count::Of(1)), Quantiser::None), &[1.0, f64::INFINITY]));
    for sparsifier in [
        Sparsifier::RandK(Count::Of(0)),
        Sparsifier::TopK(Count::Fraction(0.0)),
        Sparsifier::TopK(Count::Fraction(f64::NAN)),
        Sparsifier::Bernoulli(0.0),
        Sparsifier::Bernoulli(1.5),
    ] {
        assert!(Compressor::new(sparsifier, Quantiser::None).is_err());
    }
    assert!(Compressor::new(Sparsifier::All, Quantiser::Dithering(0)).is_err());
    assert!(Compressor::new(Sparsifier::All, Quantiser::NaturalDithering(101)).is_err());
}

#[test]
fn missing_constants_are_errors() {
    let top = compressor(Sparsifier::TopK(Count::Fraction(0.5)), Quantiser::Natural);
    assert!(top.omega(6, 1).is_err());
    assert_eq!(top.alpha(6, 1), Ok(0.4375));
    let rand = compressor(Sparsifier::RandK(Count::Fraction(0.5)), Quantiser::None);
    assert_eq!(rand.omega(6, 1), Ok(1.0));
    assert!(rand.alpha(6, 1).is_err());
    assert!(compressor(Sparsifier::RandK(Count::Of(2)), Quantiser::Sign).alpha(6, 1).is_err());
    assert_eq!(compressor(Sparsifier::All, Quantiser::Sign).alpha(8, 1), Ok(0.125));
    assert_eq!(compressor(Sparsifier::PermK, Quantiser::None).density(8, 4), Ok(0.25));
}
