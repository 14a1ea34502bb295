//! Files of samples, synthetic ones, and divisions among clients.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use burtorch_core::Error;
use burtorch_core::data::{Dataset, Division, LibsvmOptions, SyntheticOptions, Target, divide, read_libsvm, synthetic};
use burtorch_core::draw::{Draw, Purpose};

/// A file that is removed on drop.
struct Written(PathBuf);

impl Drop for Written {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn read_with(text: &str, options: LibsvmOptions) -> Result<Dataset, Error> {
    static N_FILES: AtomicUsize = AtomicUsize::new(0);
    let id = N_FILES.fetch_add(1, Ordering::Relaxed);
    let file = Written(std::env::temp_dir().join(format!("burtorch-data-{}-{id}", std::process::id())));
    std::fs::write(&file.0, text).unwrap();
    read_libsvm(&file.0, options)
}

fn read(text: &str) -> Result<Dataset, Error> {
    read_with(text, LibsvmOptions::default())
}

#[test]
fn samples_are_read_unchanged() {
    let samples = read("+1 1:0.5 3:-2e3 # a comment\r\n\n# another\n-1\n 2.5\t2:1   4:.25\n-1 1:1").unwrap();
    assert_eq!(samples.labels, [1.0, -1.0, 2.5, -1.0]);
    let features = samples.features;
    assert_eq!(features.starts, [0, 2, 2, 4, 5]);
    assert_eq!(features.columns, [0, 2, 1, 3, 0]);
    assert_eq!(features.values, [0.5, -2000.0, 1.0, 0.25, 1.0]);
    assert_eq!(features.n_columns, 4);
    assert_eq!(features.dense().unwrap()[..4], [0.5, 0.0, -2000.0, 0.0]);
    let zero_based = LibsvmOptions { zero_based: true, n_features: Some(9), ..Default::default() };
    let samples = read_with("0 0:1 8:2", zero_based).unwrap();
    assert_eq!((samples.features.columns, samples.features.n_columns), (vec![0, 8], 9));
}

#[test]
fn every_number_is_the_nearest_one() {
    let mut draw = Draw::new(0, 0, 0, Purpose::Data);
    let mut numbers = vec!["0".to_string(), "-0".into(), "1e-320".into(), "123456789012345678901234567890".into()];
    numbers
        .extend(["9007199254740993", "0.000000000000000000000000000001", "5e22", "1.", ".5", "+2"].map(String::from));
    for _ in 0..20_000 {
        let x = draw.normal() * 10f64.powi(draw.below(40) as i32 - 20);
        numbers.push(match draw.below(4) {
            0 => format!("{x}"),
            1 => format!("{x:.5}"),
            2 => format!("{x:e}"),
            _ => format!("{:.15}", draw.uniform()),
        });
    }
    let text: Vec<_> = numbers.iter().map(|number| format!("{number} 1:{number}\n")).collect();
    let samples = read(&text.concat()).unwrap();
    for ((number, label), value) in numbers.iter().zip(&samples.labels).zip(&samples.features.values) {
        let expected: f64 = number.parse().unwrap();
        assert_eq!((label.to_bits(), value.to_bits()), (expected.to_bits(), expected.to_bits()), "{number}");
    }
}

#[test]
fn a_line_may_be_longer_than_the_buffer() {
    let n = 200_000;
    let line: Vec<_> = (1..=n).map(|k| format!(" {k}:{k}.5")).collect();
    let samples = read(&format!("1{0}\n2{0}\n", line.concat())).unwrap();
    assert_eq!(samples.labels, [1.0, 2.0]);
    assert!(samples.features.values[n..].iter().enumerate().all(|(k, &value)| value == k as f64 + 1.5));
}

#[test]
fn malformed_lines_are_refused_by_number() {
    let reason = |text: &str, options| match read_with(text, options) {
        Err(Error::Data { line, reason }) => format!("{line}: {reason}"),
        other => panic!("{text:?}: {other:?}"),
    };
    let plain = LibsvmOptions::default();
    for (text, expected) in [
        ("", "1: the file ends here and has no samples"),
        ("# nothing\n\n", "2: the file ends here and has no samples"),
        ("1 1:1\nx 1:1", "2: expected a label, a number, found \"x\""),
        ("1 1:1\n1,2 1:1", "2: expected a label, a number, found \"1,2\""),
        ("1 1:1\n\n1 2:1 2:3\n", "3: feature 2 comes after feature 2; indices must ascend"),
        ("1 5:1 2:3\n", "1: feature 2 comes after feature 5; indices must ascend"),
        ("1 0:1", "1: feature 0 in a file whose first feature is 1; pass zero_based=True"),
        ("1 1:nan", "1: feature 1 is NaN; features must be finite"),
        ("1 1:1 2:-inf", "1: feature 2 is -inf; features must be finite"),
        ("nan 1:1", "1: the label is NaN; labels must be finite"),
        ("1 1:", "1: expected a number after the colon, found \"1:\""),
        ("1 1:2:3", "1: expected a number after the colon, found \"1:2:3\""),
        ("1 1 2:3", "1: expected index:value, found \"1\""),
        ("1 -1:2", "1: expected index:value, found \"-1:2\""),
        ("1 qid:x 1:2", "1: expected an integer after qid:, found \"x\""),
        ("1 qid:3:4", "1: expected an integer after qid:, found \"3:4\""),
        ("1 1:2 qid:3", "1: expected index:value, found \"qid:3\""),
        ("1 4294967296:1", "1: feature 4294967296 is out of range: the largest is 4294967295"),
        ("1 12345678901234567890:1", "1: expected index:value, found \"12345678901234567890:1\""),
        ("\0\0", "1: expected a label, a number, found \"\\0\\0\""),
    ] {
        assert_eq!(reason(text, plain), expected, "{text:?}");
    }
    let narrow = LibsvmOptions { n_features: Some(2), ..plain };
    assert_eq!(reason("1 2:1\n1 3:1", narrow), "2: feature 3 is out of range: the largest is 2");
    let single = LibsvmOptions { is_single: true, ..plain };
    assert_eq!(reason("1 1:1e38\n1 1:1e39", single), "2: feature 1 is 1e39; features must be finite in float32");
    assert_eq!(reason("-1e39 1:1", single), "1: the label is -1e39; labels must be finite in float32");
    let two = LibsvmOptions { labels: Some((0.0, 1.0)), ..plain };
    let found = "2: a label is neither 0 nor 1; the file has -1, 1, 2.5";
    assert_eq!(reason("1\n-1\n1\n2.5\n", two), found);
    // Windows has a different number for a missing folder.
    let absent = if cfg!(windows) { 3 } else { 2 };
    let refused = read_libsvm("/nowhere/at/all".as_ref(), plain);
    assert!(matches!(refused, Err(Error::System { code, .. }) if code == absent), "{refused:?}");
}

#[test]
fn query_numbers_are_skipped() {
    let plain = read("2 1:0.5 4:1\n1\n").unwrap();
    assert_eq!(read("2 qid:7 1:0.5 4:1\n1  qid:8").unwrap(), plain);
    assert_eq!(read("2 qid:7 1:0.5 4:1\n1 qid:8# a query").unwrap(), plain);
}

#[test]
fn two_labels_become_minus_one_and_one() {
    let options = |labels| LibsvmOptions { labels: Some(labels), ..Default::default() };
    assert_eq!(read_with("4\n2\n4", options((2.0, 4.0))).unwrap().labels, [1.0, -1.0, 1.0]);
    assert_eq!(read_with("4\n2\n4", options((4.0, 2.0))).unwrap().labels, [-1.0, 1.0, -1.0]);
    assert!(matches!(read_with("1", options((1.0, 1.0))), Err(Error::BadArgument { .. })));
}

#[test]
fn divisions_cover_each_sample_once() {
    let labels: Vec<f64> = (0..103).map(|k| f64::from(k * 7 % 5)).collect();
    let divisions = [Division::Random, Division::Sorted, Division::Dirichlet(0.01), Division::Dirichlet(100.0)];
    for division in divisions {
        for n_clients in [1, 2, 10, 103] {
            let parts = divide(&labels, n_clients, division, 3).unwrap();
            assert_eq!(parts, divide(&labels, n_clients, division, 3).unwrap());
            assert!(parts.iter().all(|part| !part.is_empty() && part.is_sorted()));
            let mut all = parts.concat();
            all.sort_unstable();
            assert!(all.iter().copied().eq(0..103), "{division:?} {n_clients}");
            let sizes = parts.iter().map(Vec::len);
            let is_even = sizes.clone().max().unwrap() - sizes.min().unwrap() <= 1;
            assert!(is_even || matches!(division, Division::Dirichlet(_)));
        }
    }
    // Sorted: a client's labels are below those of the next client.
    let parts = divide(&labels, 5, Division::Sorted, 0).unwrap();
    assert!(parts.windows(2).all(|pair| labels[pair[0][0] as usize] <= labels[pair[1][0] as usize]));
    for (n_clients, division) in [(0, Division::Random), (104, Division::Sorted), (2, Division::Dirichlet(0.0))] {
        assert!(matches!(divide(&labels, n_clients, division, 0), Err(Error::BadArgument { .. })));
    }
    assert!(divide(&[1.0, f64::NAN], 1, Division::Sorted, 0).is_err());
}

#[test]
fn dirichlet_shares_have_the_moments_of_theory() {
    // One label: the share of client 0 has mean 1/4 and variance (3/16)/(4a + 1). 4,000 draws, 5 standard errors.
    let labels = vec![0.0; 1000];
    for concentration in [0.3, 2.0] {
        let shares: Vec<f64> = (0..4000)
            .map(|seed| divide(&labels, 4, Division::Dirichlet(concentration), seed).unwrap()[0].len() as f64 / 1000.0)
            .collect();
        let variance = 3.0 / 16.0 / (4.0 * concentration + 1.0);
        let mean = shares.iter().sum::<f64>() / 4000.0;
        assert!((mean - 0.25).abs() < 5.0 * (variance / 4000.0).sqrt() + 1e-3, "{mean}");
        let found = shares.iter().map(|share| (share - mean).powi(2)).sum::<f64>() / 4000.0;
        assert!((found / variance - 1.0).abs() < 0.15, "{found} {variance}");
    }
}

#[test]
fn synthetic_samples_have_the_requested_covariance() {
    let options =
        SyntheticOptions { n_samples: 20_000, n_features: 5, condition: 100.0, density: 0.5, noise: 0.1, seed: 1 };
    let samples = synthetic(Target::Linear, options).unwrap();
    assert_eq!(samples, synthetic(Target::Linear, options).unwrap());
    let x = samples.features.dense().unwrap();
    let share = samples.features.values.len() as f64 / 1e5;
    assert!((share - 0.5).abs() < 0.01, "{share}");
    for j in 0..5 {
        let variance = x.iter().skip(j).step_by(5).map(|x| x * x).sum::<f64>() / 2e4;
        let expected = 100f64.powf(-(j as f64) / 4.0);
        assert!((variance / expected - 1.0).abs() < 0.1, "{j}: {variance} {expected}");
    }
    let signal = samples.labels.iter().map(|y| y * y).sum::<f64>() / 2e4;
    assert!((signal - 1.01).abs() < 0.1, "{signal}");
    let labels = synthetic(Target::Logistic, SyntheticOptions { density: 1.0, ..options }).unwrap().labels;
    assert!(labels.iter().all(|y| y.abs() == 1.0) && (labels.iter().sum::<f64>() / 2e4).abs() < 0.05);
    // A longer problem starts with the shorter one.
    let longer = synthetic(Target::Linear, SyntheticOptions { n_samples: 20_001, ..options }).unwrap();
    assert_eq!(longer.labels[..20_000], samples.labels);
    for wrong in [
        SyntheticOptions { n_samples: 0, ..options },
        SyntheticOptions { n_features: 0, ..options },
        SyntheticOptions { condition: 0.5, ..options },
        SyntheticOptions { density: 0.0, ..options },
        SyntheticOptions { noise: f64::NAN, ..options },
    ] {
        assert!(matches!(synthetic(Target::Linear, wrong), Err(Error::BadArgument { .. })));
    }
}
