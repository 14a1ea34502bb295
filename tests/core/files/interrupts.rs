//! Work that is to end early, at each of its questions in turn: an error, and nothing changed.

use std::cell::Cell;
use std::fs;

use burtorch_core::interrupt::asking;
use burtorch_core::io::{Contents, Durability, Loaded, Nodes, Overwrite, save};
use burtorch_core::{Error, Graph, Init, Op, Parameters};

use super::Folder;

thread_local! {
    /// Checks until the answer is yes.
    static LEFT: Cell<usize> = const { Cell::new(0) };
}

fn counts_down() -> bool {
    let left = LEFT.get();
    LEFT.set(left.saturating_sub(1));
    left == 0
}

/// Interrupts `work` at its first check, at its second, and so on until it ends by itself; `is_whole` is told whether
/// it did. Returns the number of checks.
fn at_each_question<C, T>(
    content: &mut C,
    mut work: impl FnMut(&mut C) -> burtorch_core::Result<T>,
    mut check: impl FnMut(&mut C, Option<T>),
) -> usize {
    for n in 0.. {
        LEFT.set(n);
        match asking(counts_down, || work(content)) {
            Err(Error::Interrupted) => check(content, None),
            Ok(done) => {
                check(content, Some(done));
                return n;
            }
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("work ends")
}

fn graph_of(n: usize) -> Graph<'static, f64> {
    let mut graph = Graph::new();
    let values: Vec<f64> = (0..n).map(|k| (k % 1000) as f64 * 0.01).collect();
    let x = graph.vector(&values).unwrap();
    let y = graph.map(Op::Tanh, x).unwrap();
    let total = graph.reduce(Op::ReduceSum, y.into(), &[]).unwrap();
    graph.backward(total).unwrap();
    graph
}

#[test]
fn a_save_that_ends_early_leaves_the_old_file_and_no_other() {
    let folder = Folder::new("early-save");
    let path = folder.file("graph");
    let mut graph = graph_of(200_000);
    fs::write(&path, b"old").unwrap();
    let n = at_each_question(
        &mut graph,
        |graph| graph.save(&path, Contents::Both),
        |_, done| {
            let found = fs::read(&path).unwrap();
            assert_eq!(found == b"old", done.is_none());
            assert_eq!(folder.names(), ["graph"]);
        },
    );
    assert!(n > 20, "asked {n} times");
    let n = at_each_question(
        &mut graph,
        |graph| {
            let all = graph.nodes_between(0, graph.len() as u32 - 1)?;
            graph.save_raw(&path, Nodes::Run(all), Contents::Values, Overwrite::Whole(Durability::Cached))
        },
        |_, _| (),
    );
    assert!(n > 5, "asked {n} times");
    fs::write(&path, b"old").unwrap();
    let bytes = vec![7; 40 << 20];
    let n = at_each_question(&mut (), |()| save(&path, &bytes, Durability::Durable), |(), _| ());
    assert_eq!((n, fs::read(&path).unwrap() == bytes), (39, true));
}

#[test]
fn a_load_that_ends_early_changes_nothing() {
    let folder = Folder::new("early-load");
    let path = folder.file("graph");
    let saved = graph_of(200_000);
    saved.save(&path, Contents::Both).unwrap();
    let mut graph = graph_of(200_000);
    graph.values_mut().fill(0.5);
    let n = at_each_question(
        &mut graph,
        |graph| graph.load(&path),
        |graph, done| {
            assert_eq!(graph.values().iter().all(|&x| x == 0.5), done.is_none());
        },
    );
    assert!(n > 10, "asked {n} times");
    assert_eq!(graph.values(), saved.values());
    let n = at_each_question(
        &mut (),
        |()| Loaded::<f64>::from_file(&path, &[]),
        |(), done| assert!(done.is_none_or(|loaded| loaded.graph.values() == saved.values())),
    );
    assert!(n > 10, "asked {n} times");

    let mut params = Parameters::<f64>::new(0);
    params.tensor(&[400_000], None, Init::Constant(1.5), true).unwrap();
    params.save(&path, Contents::Values).unwrap();
    let wanted = params.values().to_vec();
    params.values_mut().fill(0.5);
    let n = at_each_question(
        &mut params,
        |params| params.load(&path),
        |params, done| assert_eq!(params.values() == wanted, done.is_some()),
    );
    assert!(n > 5, "asked {n} times");
}

#[test]
fn an_interrupted_op_appends_nothing_and_a_complete_one_has_the_same_bits() {
    let mut graph = graph_of(150_001);
    let len = graph.len();
    let x = graph.nodes_between(0, 150_000).unwrap();
    for op in [Op::Softmax, Op::LogSoftmax] {
        let start = graph.mark();
        let alone = graph.softmax(op, x.into(), &[]).unwrap();
        let wanted = graph.values()[alone.indices()].to_vec();
        let n = at_each_question(
            &mut graph,
            |graph| {
                let mark = graph.mark();
                let done = graph.softmax(op, x.into(), &[]);
                if done.is_err() {
                    assert_eq!(graph.len(), len + wanted.len());
                }
                let made = done.map(|range| graph.values()[range.indices()] == wanted);
                graph.rewind(mark)?;
                made
            },
            |_, same| assert!(same.unwrap_or(true)),
        );
        assert!(n >= 6, "asked {n} times");
        graph.rewind(start).unwrap();
        assert_eq!(graph.len(), len);
    }
}
