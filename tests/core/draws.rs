//! Random numbers by counter, against NumPy's generator and by enumeration of all outcomes.

use std::collections::HashMap;

use burtorch_core::draw::{Draw, Purpose, Subset};
use burtorch_core::{Error, interrupt};

/// All ways to draw integers below `sizes`, as the uniform numbers that produce them.
fn outcomes(sizes: &[usize]) -> Vec<Vec<f64>> {
    sizes.iter().fold(vec![vec![]], |so_far, &n| {
        let longer =
            |u: &Vec<f64>| (0..n).map(|i| [&u[..], &[(i as f64 + 0.5) / n as f64]].concat()).collect::<Vec<_>>();
        so_far.iter().flat_map(longer).collect()
    })
}

/// The number of occurrences of each value.
fn counts<T: std::hash::Hash + Eq>(values: impl Iterator<Item = T>) -> HashMap<T, usize> {
    let mut counts = HashMap::new();
    values.for_each(|value| *counts.entry(value).or_insert(0) += 1);
    counts
}

#[test]
fn words_are_those_of_philox() {
    // numpy.random.Philox(key=7, counter=numpy.array([2**64 - 1, 0, 2, 2], "u8")).random_raw(5), which increments
    // first.
    let mut draw = Draw::new(7, 1, 2, Purpose::Sampling);
    let words = [0; 5].map(|_| draw.word());
    let expected = [
        0x1b37_27d0_4fcd_388c,
        0xf7f2_21c7_b6fb_c5b5,
        0x15cc_ec9a_deaa_7b6e,
        0x118d_33a9_6fcb_eee6,
        0x02de_55e6_ceb3_1e85,
    ];
    assert_eq!(words, expected);
    assert_eq!(Draw::new(7, 1, 2, Purpose::Sampling).uniform().to_string(), "0.10631035648093679");
    assert_ne!(Draw::new(7, 1, 2, Purpose::Compression).word(), expected[0]);
}

#[test]
fn every_subset_has_the_same_probability() {
    let mut subset = Subset::default();
    for (n, k, each) in [(6, 3, 6), (6, 6, 720), (5, 0, 1), (96, 2, 2), (64, 1, 1)] {
        let sizes: Vec<_> = (n - k + 1..=n).collect();
        let all = outcomes(&sizes);
        let found = counts(all.iter().map(|uniforms| {
            let mut draw = Draw::of(uniforms).unwrap();
            let chosen = subset.draw(&mut draw, n, k).unwrap().to_vec();
            draw.check().unwrap();
            assert!(chosen.is_sorted() && chosen.len() == k);
            chosen
        }));
        assert!(found.values().all(|&count| count == each), "{n} {k}");
        assert_eq!(found.len() * each, all.len(), "{n} {k}");
    }
}

/// Short, dense and sparse subsets take different code paths.
#[test]
fn subsets_are_those_of_floyds_algorithm() {
    let mut subset = Subset::default();
    for (n, k) in
        [(1, 1), (9, 8), (16, 16), (17, 17), (40, 15), (70, 64), (200, 17), (9000, 16), (9000, 64), (50_000, 20)]
    {
        for round in 0..50 {
            let mut draw = Draw::new(5, round, 0, Purpose::Sampling);
            let mut expected = Vec::new();
            for j in n - k..n {
                let at = draw.below(j as u64 + 1) as u32;
                expected.push(if expected.contains(&at) { j as u32 } else { at });
            }
            let chosen = subset.draw(&mut Draw::new(5, round, 0, Purpose::Sampling), n, k).unwrap();
            expected.sort_unstable();
            assert_eq!(chosen, expected, "{n} {k}");
        }
    }
}

#[test]
fn a_subset_after_one_that_ended_early_is_that_of_a_new_one() {
    let draw = || Draw::new(1, 2, 3, Purpose::Sampling);
    for (n, k) in [(1_000_000, 300_000), (1 << 30, 200_000)] {
        let mut subset = Subset::default();
        let early = interrupt::asking(|| true, || subset.draw(&mut draw(), n, k).map(<[u32]>::len));
        assert_eq!(early, Err(Error::Interrupted));
        let expected = Subset::default().draw(&mut draw(), n, k).unwrap().to_vec();
        assert_eq!(subset.draw(&mut draw(), n, k).unwrap(), expected);
    }
}

#[test]
fn every_permutation_has_the_same_probability() {
    let found = counts(outcomes(&[4, 3, 2]).iter().map(|uniforms| {
        let mut entries = [0, 1, 2, 3];
        Draw::of(uniforms).unwrap().permute(&mut entries, 4).unwrap();
        entries
    }));
    assert_eq!(found.len(), 24);
}

#[test]
fn large_subsets_are_distinct_indices_below_n() {
    let mut subset = Subset::default();
    for (n, k) in [(1_000_000, 1000), (1_000_000, 900_000), (u32::MAX as usize, 5), (0, 0)] {
        let chosen = subset.draw(&mut Draw::new(1, 2, 3, Purpose::Data), n, k).unwrap();
        assert!(chosen.len() == k && chosen.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(chosen.last().is_none_or(|&last| (last as usize) < n));
    }
    assert!(matches!(subset.draw(&mut Draw::new(0, 0, 0, Purpose::Data), 3, 4), Err(Error::BadArgument { .. })));
}

#[test]
fn moments_are_those_of_the_distributions() {
    // Within 5 standard errors of 10^5 draws: one seed in a million would fail, and this seed is fixed.
    let n = 100_000;
    let mut draw = Draw::new(3, 0, 0, Purpose::Data);
    let uniform = (0..n).map(|_| draw.uniform()).sum::<f64>() / n as f64;
    assert!((uniform - 0.5).abs() < 5.0 * (1.0 / 12.0 / n as f64).sqrt());
    let normals: Vec<_> = (0..n).map(|_| draw.normal()).collect();
    let mean = normals.iter().sum::<f64>() / n as f64;
    let square = normals.iter().map(|z| z * z).sum::<f64>() / n as f64;
    assert!(mean.abs() < 5.0 / (n as f64).sqrt() && (square - 1.0).abs() < 5.0 * (2.0 / n as f64).sqrt());
    let happened = (0..n).filter(|_| draw.happens(0.25)).count() as f64 / n as f64;
    assert!((happened - 0.25).abs() < 5.0 * (0.1875 / n as f64).sqrt());
}

#[test]
fn given_draws_are_checked() {
    for wrong in [1.0, -0.1, f64::NAN] {
        assert!(matches!(Draw::of(&[0.5, wrong]), Err(Error::BadArgument { .. })));
    }
    for n_given in [0, 1, 3, 4, 5] {
        let uniforms = vec![0.0; n_given];
        let mut draw = Draw::of(&uniforms).unwrap();
        assert!((0..n_given).all(|_| draw.below(3) == 0 && draw.check().is_ok()));
        draw.below(3);
        assert!(draw.check().is_err());
        draw.below(3);
        assert!(draw.check().is_err());
    }
}
