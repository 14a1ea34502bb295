//! A replay has the bits of the eager graph: one number at a time, and in lanes.

use std::cell::UnsafeCell;

use burtorch_core::program::batch::{Batch, Rows, Sink, Source};
use burtorch_core::program::{Build, Carrier, Comparison, Recording, Replay, Seeds};
use burtorch_core::simd::{F32x16, F64x8};
use burtorch_core::{Float, Graph, Program, Scalar};

use super::random::{Dice, Kind, eager, recorded, same};

fn replayed<S: Carrier + Float>(program: &Program, x: &[f64]) -> (f64, Vec<f64>) {
    let mut replay = Replay::<S, 1>::new(program, Build::Reverse(Seeds::One(0))).unwrap();
    // Twice, to show that no state is left from the first run.
    for scale in [0.5, 1.0] {
        for (slot, &x) in replay.inputs_mut().iter_mut().zip(x) {
            *slot = S::lit(scale * x);
        }
        replay.values();
        replay.reverse_one();
    }
    (replay.output(0, 0).to_f64(), (0..x.len()).map(|k| replay.gradient(k, 0).to_f64()).collect())
}

fn check<S: Carrier + Float>(seed: u64) {
    let mut dice = Dice::new(seed + 1_000_000);
    let n = 1 + dice.below(5);
    let n_ops = 1 + dice.below(60);
    let at: Vec<f64> = (0..n).map(|_| dice.between(-2.0, 2.0)).collect();
    let program = recorded::<S>(&at, seed, n_ops, Kind::Any);
    for round in 0..3 {
        let special = [0.0, -0.0, f64::INFINITY, f64::NAN, 1e-310, 1e200];
        let x: Vec<f64> = (0..n)
            .map(|_| if round == 2 && dice.below(3) == 0 { special[dice.below(6)] } else { dice.between(-3.0, 3.0) })
            .collect();
        let (value, grads) = eager::<S>(&x, seed, n_ops, Kind::Any);
        let (found, found_grads) = replayed::<S>(&program, &x);
        assert!(same(value, found), "seed {seed} at {x:?}: {value} became {found}\n{program}");
        for (k, (&a, &b)) in grads.iter().zip(&found_grads).enumerate() {
            assert!(same(a, b), "seed {seed} at {x:?}, input {k}: {a} became {b}\n{program}");
        }
    }
}

#[test]
fn replay_has_the_bits_of_the_eager_graph() {
    for seed in 0..1500 {
        check::<f64>(seed);
        check::<f32>(seed);
    }
}

/// Columns of numbers: inputs, then the values and gradients.
struct Table {
    x: Vec<Vec<f64>>,
    out: Vec<UnsafeCell<Vec<f64>>>,
}

// SAFETY: threads write different rows, and no thread reads meanwhile.
#[allow(unsafe_code)]
unsafe impl Sync for Table {}

impl<E: Float> Source<E> for Table {
    fn read(&self, input: usize, rows: Rows<'_>, to: &mut [E]) {
        for (k, to) in to.iter_mut().enumerate().take(rows.len()) {
            *to = E::from_f64(self.x[input][rows.get(k)]);
        }
    }
}

impl<E: Float> Sink<E> for Table {
    fn value(&self, output: usize, rows: Rows<'_>, from: &[E]) {
        assert_eq!(output, 0);
        write(&self.out[0], rows, from);
    }

    fn gradient(&self, input: usize, rows: Rows<'_>, from: &[E]) {
        write(&self.out[input + 1], rows, from);
    }
}

#[allow(unsafe_code)]
fn write<E: Float>(column: &UnsafeCell<Vec<f64>>, rows: Rows<'_>, from: &[E]) {
    for (k, &x) in from.iter().enumerate() {
        // SAFETY: each row is written by one thread; the column is long enough, because `get` is checked in tests.
        unsafe {
            let column = (*column.get()).as_mut_ptr();
            column.add(rows.get(k)).write(x.to_f64());
        }
    }
}

fn check_batch<L, S: Carrier + Float, const W: usize>(seed: u64, threads: usize)
where
    L: Carrier + Scalar<Elem = S>,
{
    let mut dice = Dice::new(seed + 2_000_000);
    let n = 1 + dice.below(4);
    let n_rows = 1 + dice.below(300);
    let x: Vec<Vec<f64>> =
        (0..n).map(|_| (0..n_rows).map(|_| dice.between(-2.0, 2.0) as f32 as f64).collect()).collect();
    let at: Vec<f64> = x.iter().map(|column| column[0]).collect();
    let program = recorded::<S>(&at, seed, 12, Kind::Any);
    let table = Table { x, out: (0..=n).map(|_| UnsafeCell::new(vec![0.0; n_rows])).collect() };
    let mut left = Vec::new();
    let mut batch = Batch::<L, W>::new(&program, true).unwrap();
    batch.run_on(threads, Rows::Run { first: 0, len: n_rows }, &table, &table, &mut left, &|| false);
    assert!(left.is_empty());
    let out: Vec<Vec<f64>> = table.out.into_iter().map(UnsafeCell::into_inner).collect();
    // Inner products of 16 or more numbers are added in a different order in lanes; everything else has the same bits.
    let is_long = |node: &burtorch_core::program::Node| {
        node.op.info().arity == burtorch_core::ops::Arity::InnerProduct && node.b >= 16
    };
    if program.nodes().iter().any(is_long) {
        return;
    }
    for row in 0..n_rows {
        let x: Vec<f64> = table.x.iter().map(|column| column[row]).collect();
        let (value, grads) = replayed::<S>(&program, &x);
        assert!(same(value, out[0][row]), "seed {seed}, row {row}: {value} became {}\n{program}", out[0][row]);
        for (k, &g) in grads.iter().enumerate() {
            let found = out[k + 1][row];
            assert!(same(g, found), "seed {seed}, row {row}, input {k}: {g} became {found}\n{program}");
        }
    }
}

#[test]
fn lanes_have_the_bits_of_one_number() {
    for seed in 0..150 {
        check_batch::<F64x8, f64, 8>(seed, 1 + (seed % 3) as usize);
        check_batch::<F32x16, f32, 4>(seed, 1);
        check_batch::<F64x8, f64, 1>(seed, 2);
    }
}

/// `x if x < y else y * y`, recorded at a point.
fn branching(x: f64, y: f64) -> Program {
    let mut graph = Graph::<f64>::new();
    let (a, b) = (graph.leaf(x).unwrap(), graph.leaf(y).unwrap());
    let asked = (graph.len(), Comparison::Less, a, b, x < y);
    let root = if x < y { a } else { graph.binary::<burtorch_core::ops::Mul>(b, b).unwrap() };
    let recording = Recording {
        inputs: vec![a, b],
        n_differentiated: 2,
        outputs: vec![root],
        guards: vec![asked],
        ..Recording::default()
    };
    recording.program(&graph).unwrap()
}

#[test]
fn a_guard_stops_a_replay_that_would_be_wrong() {
    let program = branching(1.0, 2.0);
    assert_eq!(program.guards().len(), 1);
    let mut replay = Replay::<f64, 1>::new(&program, Build::Values).unwrap();
    replay.inputs_mut().copy_from_slice(&[3.0, 5.0]);
    assert_eq!(replay.checked_values(), Ok(()));
    assert_eq!(replay.output(0, 0), 3.0);
    replay.inputs_mut().copy_from_slice(&[5.0, 3.0]);
    assert_eq!(replay.checked_values(), Err(0));
    replay.inputs_mut().copy_from_slice(&[f64::NAN, 3.0]);
    assert_eq!(replay.checked_values(), Err(0));
}

#[test]
fn rows_with_a_failed_guard_are_reported() {
    let n_rows = 200;
    let x: Vec<Vec<f64>> = vec![(0..n_rows).map(f64::from).collect(), vec![100.0; n_rows as usize]];
    let table = Table { x, out: (0..3).map(|_| UnsafeCell::new(vec![0.0; n_rows as usize])).collect() };
    let mut batch = Batch::<F64x8, 8>::new(&branching(1.0, 2.0), true).unwrap();
    let mut left = Vec::new();
    batch.run_on(2, Rows::Run { first: 0, len: n_rows as usize }, &table, &table, &mut left, &|| false);
    assert_eq!(left, (100..200).collect::<Vec<_>>());
    let mut other = Batch::<F64x8, 8>::new(&branching(2.0, 1.0), true).unwrap();
    let mut none = Vec::new();
    other.run(Rows::List(&left), &table, &table, &mut none);
    assert!(none.is_empty());
    let value = &table.out[0];
    let column = value.get();
    #[allow(unsafe_code)]
    // SAFETY: no other reference to the column exists any more.
    let column = unsafe { &*column };
    assert_eq!((column[7], column[99], column[150]), (7.0, 99.0, 10_000.0));
}
