//! Files that earlier versions wrote, kept in `tests/data/files`: they load for ever, with these numbers.
//!
//! A format version is added by running this test with `BURTORCH_WRITE_GOLDEN` set, once; files are never changed.

use std::path::PathBuf;

use burtorch_core::io::{Contents, Loaded, VERSION, save};
use burtorch_core::text::WordContexts;
use burtorch_core::{Init, Parameters, Sgd};

use super::graph::rich;

fn params() -> Parameters<'static, f64> {
    let mut params = Parameters::new(0);
    for (dims, name) in [(&[3, 5][..], Some("w")), (&[3], Some("bias")), (&[2], None)] {
        params.tensor(dims, name, Init::Constant(0.0), name.is_some()).unwrap();
    }
    (0..20).for_each(|k| params.values_mut()[k] = k as f64 / 8.0 - 1.0);
    params
}

/// Name and content of one file of each kind.
fn files() -> Vec<(&'static str, Vec<u8>)> {
    let params = params();
    let mut source = Parameters::<f64>::new(0);
    let (mut graph, _) = rich::<f64>(&mut source);
    (0..graph.len()).for_each(|k| graph.values_mut()[k] = k as f64 / 4.0);
    let labels = [(0, "x"), (4, "∇")];
    let range = graph.nodes_between(2, 8).unwrap();
    let mut sgd = Sgd::<f64>::with_momentum(0.5, 0.25, true, 0.125).unwrap();
    sgd.step(&mut Parameters::from_bytes(&params.to_bytes(Contents::Values).unwrap()).unwrap()).unwrap();
    let words = WordContexts::new(["anna", "hanna"], 3, 0.2, 1).unwrap();
    vec![
        ("graph", graph.to_bytes(Contents::Both, labels.into_iter()).unwrap()),
        ("range", graph.range_to_bytes(range, Contents::Both).unwrap()),
        ("parameters", params.to_bytes(Contents::Both).unwrap()),
        ("optimiser", sgd.to_bytes().unwrap()),
        ("data", words.to_bytes().unwrap()),
    ]
}

fn path(version: u16, name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("../../tests/data/files/v{version}-{name}.burtorch"))
}

#[test]
fn files_of_every_version_load() {
    if std::env::var_os("BURTORCH_WRITE_GOLDEN").is_some() {
        for (name, bytes) in files() {
            let path = path(VERSION, name);
            assert!(!path.exists(), "{} is never changed", path.display());
            save(&path, &bytes, Default::default()).unwrap();
        }
    }
    for version in 1..=VERSION {
        let load = |name| std::fs::read(path(version, name)).unwrap();
        let source = params();
        let Loaded { mut graph, labels } = Loaded::<f64>::from_bytes(&load("graph"), &[&source]).unwrap();
        assert!((0..graph.len()).all(|k| graph.values()[k] == k as f64 / 4.0) && graph.len() == 29);
        assert_eq!(labels, [(0, "x".to_string()), (4, "∇".to_string())]);
        graph.values_mut().fill(0.0);
        graph.load_bytes(&load("range")).unwrap();
        assert_eq!(graph.values()[1..10], [0.0, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 0.0]);
        let loaded = Parameters::<f64>::from_bytes(&load("parameters")).unwrap();
        assert_eq!((loaded.values(), loaded.frozen()), (source.values(), source.frozen()));
        let mut sgd = Sgd::new(1.0).unwrap();
        sgd.load_bytes(&loaded, &load("optimiser")).unwrap();
        assert_eq!((sgd.lr(), sgd.momentum(), sgd.nesterov(), sgd.weight_decay()), (0.5, 0.25, true, 0.125));
        WordContexts::new(["anna", "hanna"], 3, 0.2, 1).unwrap().load_bytes(&load("data")).unwrap();
    }
    // What is written today is what this version has always written.
    for (name, bytes) in files() {
        assert_eq!(bytes, std::fs::read(path(VERSION, name)).unwrap(), "{name}");
    }
}
