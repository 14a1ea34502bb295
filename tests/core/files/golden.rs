//! Files that earlier versions wrote, kept in `tests/data/files`: they load for ever, with these numbers.
//!
//! A file is added by running this test with `BURTORCH_WRITE_GOLDEN` set, once; files that are there are never changed.

use std::path::PathBuf;

#[cfg(feature = "labels")]
use burtorch_core::NodeId;
use burtorch_core::io::{Contents, Loaded, VERSION, save};
use burtorch_core::text::WordContexts;
use burtorch_core::{Init, Parameters, Sgd};

use super::graph::rich;
use super::program::{file_of, read as read_program, recorded};
use super::tokens::blocks;

fn params() -> Parameters<'static, f64> {
    let mut params = Parameters::new(0);
    for (dims, name) in [(&[3, 5][..], Some("w")), (&[3], Some("bias")), (&[2], None)] {
        params.tensor(dims, name, Init::Constant(0.0), name.is_some()).unwrap();
    }
    (0..20).for_each(|k| params.values_mut()[k] = k as f64 / 8.0 - 1.0);
    params
}

/// Version, name and content of one file per kind, and per version if it matters.
fn files() -> Vec<(u16, &'static str, Vec<u8>)> {
    let params = params();
    let mut source = Parameters::<f64>::new(0);
    let (mut graph, _) = rich::<f64>(&mut source);
    (0..graph.len()).for_each(|k| graph.values_mut()[k] = k as f64 / 4.0);
    let range = graph.nodes_between(2, 8).unwrap();
    let mut sgd = Sgd::<f64>::with_momentum(0.5, 0.25, true, 0.125).unwrap();
    sgd.step(&mut Parameters::from_bytes(&params.to_bytes(Contents::Values).unwrap()).unwrap()).unwrap();
    let words = WordContexts::new(["anna", "hanna"], 3, 0.2, 1).unwrap();
    let (mut tokens, _) = blocks::<f64>(&mut Parameters::new(0));
    (0..tokens.len()).for_each(|k| tokens.values_mut()[k] = k as f64 / 4.0);
    #[cfg(feature = "labels")]
    for graph in [&mut graph, &mut tokens] {
        for (node, label) in [(0, "x"), (4, "∇")] {
            graph.set_label(NodeId::from_index(node), label).unwrap();
        }
    }
    vec![
        (1, "graph", graph.to_bytes(Contents::Both).unwrap()),
        (1, "range", graph.range_to_bytes(range, Contents::Both).unwrap()),
        (1, "parameters", params.to_bytes(Contents::Both).unwrap()),
        (1, "optimiser", sgd.to_bytes().unwrap()),
        (1, "data", words.to_bytes().unwrap()),
        (1, "program", file_of(&recorded())),
        (2, "tokens", tokens.to_bytes(Contents::Both).unwrap()),
        (3, "arrays", super::arrays::file_of(&super::arrays::programs()[0])),
    ]
}

fn path(version: u16, name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("../../tests/data/files/v{version}-{name}.burtorch"))
}

fn load(version: u16, name: &str) -> Vec<u8> {
    std::fs::read(path(version, name)).unwrap()
}

/// This includes labels and names.
#[cfg(feature = "labels")]
#[test]
fn files_written_today_equal_the_stored_ones() {
    for (version, name, bytes) in files() {
        let path = path(version, name);
        if std::env::var_os("BURTORCH_WRITE_GOLDEN").is_some() && !path.exists() {
            save(&path, &bytes, Default::default()).unwrap();
        }
        assert_eq!(bytes, load(version, name), "{name}");
        assert_eq!(u16::from(bytes[8]), version, "{name}");
    }
    assert_eq!(files().iter().map(|(version, ..)| *version).max(), Some(VERSION));
}

#[test]
fn graphs_of_the_first_version_load() {
    let source = params();
    let mut graph = Loaded::<f64>::from_bytes(&load(1, "graph"), &[&source]).unwrap().graph;
    assert!((0..graph.len()).all(|k| graph.values()[k] == k as f64 / 4.0) && graph.len() == 29);
    #[cfg(feature = "labels")]
    assert_eq!(["x", "∇"].map(|label| graph.labelled(label).unwrap().index()), [0, 4]);
    graph.values_mut().fill(0.0);
    graph.load_bytes(&load(1, "range")).unwrap();
    assert_eq!(graph.values()[1..10], [0.0, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 0.0]);
}

#[test]
fn states_of_the_first_version_load() {
    let source = params();
    let loaded = Parameters::<f64>::from_bytes(&load(1, "parameters")).unwrap();
    assert_eq!((loaded.values(), loaded.frozen()), (source.values(), source.frozen()));
    let mut sgd = Sgd::new(1.0).unwrap();
    sgd.load_bytes(&loaded, &load(1, "optimiser")).unwrap();
    assert_eq!((sgd.lr(), sgd.momentum(), sgd.nesterov(), sgd.weight_decay()), (0.5, 0.25, true, 0.125));
    WordContexts::new(["anna", "hanna"], 3, 0.2, 1).unwrap().load_bytes(&load(1, "data")).unwrap();
    assert_eq!(read_program(&load(1, "program")).unwrap(), recorded());
}

#[test]
fn functions_of_arrays_of_the_third_version_load() {
    let loaded = super::arrays::read(&load(3, "arrays")).unwrap();
    assert!(loaded.is_same(&super::arrays::programs()[0]));
}

#[test]
fn graphs_of_the_second_version_load() {
    let mut source = Parameters::<f64>::new(0);
    let (built, root) = blocks::<f64>(&mut source);
    let mut graph = Loaded::<f64>::from_bytes(&load(2, "tokens"), &[&source]).unwrap().graph;
    assert!((0..graph.len()).all(|k| graph.values()[k] == k as f64 / 4.0) && graph.len() == built.len());
    #[cfg(feature = "labels")]
    assert_eq!(graph.labels().count(), 2);
    graph.recompute(root, &[&source]).unwrap();
    assert_eq!(graph.value(root), built.value(root));
}
