//! Traced functions in the checkpoint format: a program comes back equal, and every cut, flipped bit and forged number is
//! refused or makes a program that is valid.

use burtorch_core::io::{Header, Kind, Reader, Writer};
use burtorch_core::ops::{Add, MulByConstant};
use burtorch_core::program::{Build, Comparison, Recording, Replay, Seeds};
use burtorch_core::{DType, Error, Graph, NodeId, Op, Operands, Program, Result};
use proptest::prelude::*;

use super::{damage, forged};

/// A program with every kind of node and a guard.
pub fn recorded() -> Program {
    let mut graph = Graph::<f64>::new();
    let x: Vec<NodeId> = [0.5, -1.25, 2.0].iter().map(|&x| graph.leaf(x).unwrap()).collect();
    let scaled = graph.with_constant::<MulByConstant>(x[0], 3.0).unwrap();
    let sum = graph.binary::<Add>(scaled, x[1]).unwrap();
    let tanh = graph.unary_op(Op::Tanh, sum).unwrap();
    let list = [tanh, x[2], x[2], scaled];
    let product = graph.reduce(Op::ReduceMul, Operands::List(&list), &[]).unwrap();
    let pair = [x[1], sum];
    let inner = graph.inner_product(Operands::List(&pair), Operands::List(&[x[2], tanh]), Some(product), &[]).unwrap();
    let guards = vec![(graph.len(), Comparison::Less, sum, inner, false)];
    let recording =
        Recording { inputs: x, n_differentiated: 2, outputs: vec![inner, product], guards, ..Default::default() };
    recording.program(&graph).unwrap()
}

/// The file of a program alone.
pub fn file_of(program: &Program) -> Vec<u8> {
    let header = Header { dtype: Some(program.dtype()), lanes: 1, count: 1, ..Header::new(Kind::PROGRAM) };
    let mut writer = Writer::new(header).unwrap();
    program.write(&mut writer).unwrap();
    writer.finish().unwrap()
}

/// The program in a file that holds nothing else.
pub fn read(bytes: &[u8]) -> Result<Program> {
    let mut reader = Reader::open(bytes, Kind::PROGRAM)?;
    let program = Program::read(&mut reader)?;
    reader.finish()?;
    Ok(program)
}

/// Value and gradient of the first output.
fn run(program: &Program) -> (f64, Vec<f64>) {
    let mut replay = Replay::<f64, 1>::new(program, Build::Reverse(Seeds::One(0))).unwrap();
    replay.inputs_mut().iter_mut().zip([0.5, -1.25, 2.0]).for_each(|(to, x)| *to = x);
    replay.values();
    replay.reverse_one();
    let grads = (0..program.n_differentiated()).map(|k| replay.gradient(k, 0)).collect();
    (replay.output(0, 0), grads)
}

#[test]
fn a_program_is_restored() {
    let program = recorded();
    let again = read(&file_of(&program)).unwrap();
    assert_eq!((&again, run(&again)), (&program, run(&program)));
    assert_eq!(file_of(&again), file_of(&program));
    assert_eq!((again.dtype(), again.guards().len()), (DType::Float64, 1));
}

#[test]
fn every_flipped_bit_and_every_cut_is_refused() {
    let file = file_of(&recorded());
    let refused = |bytes: &[u8]| matches!(read(bytes), Err(Error::Format { .. }));
    assert!((0..file.len()).all(|n| refused(&file[..n])));
    let mut flipped = file.clone();
    for bit in 0..8 * file.len() {
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(refused(&flipped), "{bit}");
        flipped[bit / 8] ^= 1 << (bit % 8);
    }
    let refused = (0..100_000u64).filter(|&seed| {
        let damaged = damage(&file, seed);
        damaged == file || refused(&damaged)
    });
    assert_eq!(refused.count(), 100_000);
}

/// An accepted program can be run and written.
fn survives(bytes: &[u8]) -> bool {
    let Ok(program) = read(bytes) else { return false };
    if program.n_inputs() < 1 << 16 {
        run(&program);
    }
    assert_eq!(read(&file_of(&program)).unwrap().nodes(), program.nodes());
    true
}

#[test]
fn forged_programs_are_refused_or_harmless() {
    let file = file_of(&recorded());
    let mut accepted = 0;
    for at in 0..file.len() - burtorch_core::io::HEADER_BYTES {
        for byte in [0, 1, 2, 3, 5, 9, 64, 128, 255] {
            accepted += u32::from(survives(&forged(&file, |payload| payload[at] = byte)));
        }
    }
    assert!(accepted > 100, "{accepted}");
}

proptest! {
    #[test]
    fn forged_numbers_of_programs_are_refused_or_harmless(
        changes in prop::collection::vec((any::<u16>(), any::<u32>()), 1..4)
    ) {
        let file = file_of(&recorded());
        survives(&forged(&file, |payload| {
            for &(at, number) in &changes {
                let at = at as usize % (payload.len() / 4) * 4;
                payload[at..at + 4].copy_from_slice(&(number % 32).to_le_bytes());
            }
        }));
    }
}
