//! Graphs of blocks over tokens in the checkpoint format: what was saved comes back and goes on alike, and a record that
//! building would have refused is refused, whatever its checksum says.

use burtorch_core::io::{Contents, Header, Kind, Loaded, Stored, Writer};
use burtorch_core::kernels::BlockMath;
use burtorch_core::nn::{Gpt, GptShape};
use burtorch_core::simd::F32x8;
use burtorch_core::{Error, Graph, Init, NodeId, Parameters, Tokens};
use proptest::prelude::*;

use super::graph::{bits, comes_back, survives};
use super::{damage, forged};

const TOKENS: usize = 10;
const WIDTH: usize = 4;

/// A graph with each kind of block over tokens, over two groups of them, and its loss.
pub fn blocks<S: BlockMath>(params: &mut Parameters<'_, S::Elem>) -> (Graph<'static, S>, NodeId) {
    let mut tensor = |dims: &[usize]| params.tensor(dims, None, Init::Glorot, true).unwrap().slice();
    let (table, positions) = (tensor(&[5, WIDTH]), tensor(&[12, WIDTH]));
    let (gain, shift) = (tensor(&[WIDTH]), tensor(&[WIDTH]));
    let [q, k, v] = [(); 3].map(|()| tensor(&[WIDTH, WIDTH]));
    let (w, b) = (tensor(&[3, 2 * WIDTH]), tensor(&[3]));
    let params = &*params;
    let symbols: Vec<u32> = (0..(TOKENS * S::LANES) as u32).map(|k| k * 7 % 5).collect();
    let classes: Vec<u32> = symbols.iter().map(|symbol| symbol % 3).collect();
    let mut graph = Graph::<S>::new();
    let x = graph.token_embedding(&[params], table, Some(positions), WIDTH, &symbols).unwrap();
    let normal = graph.layer_norm(&[params], x, gain, shift, 1e-5).unwrap();
    let dense = |graph: &mut Graph<'static, S>, w| graph.token_affine(&[params], &[normal], w, None, false).unwrap();
    let (q, k, v) = (dense(&mut graph, q), dense(&mut graph, k), dense(&mut graph, v));
    let mixed = graph.causal_attention(q, k, v, 2).unwrap();
    let sum = graph.add_tokens(x, mixed).unwrap();
    let logits = graph.token_affine(&[params], &[sum, normal], w, Some(b), true).unwrap();
    let loss = graph.token_cross_entropy(logits, &classes).unwrap();
    (graph, loss)
}

#[test]
fn a_restored_graph_of_blocks_over_tokens_continues_equally() {
    comes_back::<f64>(blocks);
    comes_back::<f32>(blocks);
    comes_back::<F32x8>(blocks);
}

/// The loss of a GPT for one text.
fn gpt<S: BlockMath<Elem: Stored>>(params: &mut Parameters<'_, S::Elem>) -> (Graph<'static, S>, NodeId) {
    let (vocab, context, layers, heads, width, expansion) = (6, 9, 2, 2, 4, 2);
    let shape = GptShape { vocab, context, layers, heads, width, expansion, eps: 1e-5, final_norm: true };
    let model = Gpt::new(params, shape, None).unwrap();
    let mut graph = Graph::new();
    let logits: Tokens = model.logits(&mut graph, params, &[0, 5, 3, 3, 1, 2, 4, 0, 1]).unwrap();
    let loss = graph.token_cross_entropy(logits, &[5, 3, 3, 1, 2, 4, 0, 1, 2]).unwrap();
    (graph, loss)
}

#[test]
fn the_graph_of_a_gpt_is_restored() {
    comes_back::<f64>(gpt);
    comes_back::<f32>(gpt);
}

#[test]
fn only_files_unreadable_by_earlier_versions_have_a_new_version() {
    let version = |graph: &Graph<'_, f64>| graph.to_bytes(Contents::Both).unwrap()[8];
    let (with, _) = blocks::<f64>(&mut Parameters::new(1));
    let (without, _) = super::graph::rich::<f64>(&mut Parameters::new(1));
    assert_eq!((version(&with), version(&without)), (2, 1));
    assert_eq!(Writer::new(Header::new(Kind::PROGRAM)).unwrap().finish().unwrap()[8], 1);
}

#[test]
fn other_blocks_are_another_structure() {
    let file = |graph: &Graph<'_, f64>| graph.to_bytes(Contents::Values).unwrap();
    let mut params = Parameters::<f64>::new(1);
    let (mut graph, _) = blocks::<f64>(&mut params);
    let mut other = Graph::<f64>::new();
    let leaves = other.vector(&vec![0.5; graph.len()]).unwrap();
    let before = bits(&other);
    assert!(matches!(other.load_bytes(&file(&graph)), Err(Error::Format { .. })));
    assert!(matches!(graph.load_bytes(&file(&other)), Err(Error::Format { .. })));
    assert_eq!((bits(&other), leaves.len()), (before, graph.len()));
    let values = graph.values().to_vec();
    let saved = file(&graph);
    graph.values_mut().fill(0.0);
    graph.load_bytes(&saved).unwrap();
    assert_eq!(graph.values(), values);
}

#[test]
fn every_flipped_bit_and_every_cut_is_refused() {
    let mut params = Parameters::<f64>::new(1);
    let (graph, _) = blocks::<f64>(&mut params);
    let file = graph.to_bytes(Contents::Values).unwrap();
    let refused = |bytes: &[u8]| matches!(Loaded::<f64>::from_bytes(bytes, &[&params]), Err(Error::Format { .. }));
    assert!((0..file.len()).all(|n| refused(&file[..n])));
    let mut flipped = file.clone();
    for bit in 0..8 * file.len() {
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(refused(&flipped), "{bit}");
        flipped[bit / 8] ^= 1 << (bit % 8);
    }
    let refused = (0..20_000u64).filter(|&seed| {
        let damaged = damage(&file, seed);
        damaged == file || refused(&damaged)
    });
    assert_eq!(refused.count(), 20_000);
}

/// The range of a section's content in the payload.
fn section(payload: &[u8], tag: &[u8; 4]) -> std::ops::Range<usize> {
    let mut at = 0;
    loop {
        let n = u64::from_le_bytes(payload[at + 8..at + 16].try_into().unwrap()) as usize;
        // The types are u8, u32, u64, f32, f64 in the order of their numbers.
        let size = n * [0, 1, 4, 8, 4, 8][payload[at + 4] as usize];
        if &payload[at..at + 4] == tag {
            return at + 16..at + 16 + size;
        }
        at += 16 + size.next_multiple_of(8);
    }
}

/// The range of the operand lists' numbers in the payload.
fn lists(payload: &[u8]) -> std::ops::Range<usize> {
    section(payload, b"LIST")
}

#[test]
fn forged_nodes_are_refused_or_harmless() {
    let mut params = Parameters::<f64>::new(1);
    let (graph, _) = blocks::<f64>(&mut params);
    let file = graph.to_bytes(Contents::Values).unwrap();
    let payload = &file[burtorch_core::io::HEADER_BYTES..];
    let (ops, operands) = (section(payload, b"OPS "), section(payload, b"OPND"));
    assert_eq!((ops.len(), operands.len()), (graph.len(), 8 * graph.len()));
    let mut accepted = 0;
    for (at, byte) in ops.flat_map(|at| (0..9).map(move |byte| (at, byte))) {
        accepted += u32::from(survives(&forged(&file, |payload| payload[at] = byte), &mut params));
    }
    for (at, byte) in operands.step_by(4).flat_map(|at| [0, 1, 9].map(|byte| (at, byte))) {
        accepted += u32::from(survives(&forged(&file, |payload| payload[at] = byte), &mut params));
    }
    assert!(accepted > 100, "{accepted}");
}

#[test]
fn forged_records_are_refused_or_harmless() {
    let mut params = Parameters::<f64>::new(1);
    let (graph, _) = blocks::<f64>(&mut params);
    let file = graph.to_bytes(Contents::Both).unwrap();
    assert!(survives(&file, &mut params));
    let payload = &file[burtorch_core::io::HEADER_BYTES..];
    let (mut accepted, mut tried) = (0, 0);
    for at in lists(payload).step_by(4) {
        let number = u32::from_le_bytes(payload[at..at + 4].try_into().unwrap());
        let near = [0, 1, 2, 3, 8, 16, 255, u32::MAX, number ^ 1, number.wrapping_add(8), number.wrapping_sub(1)];
        for other in near.into_iter().filter(|&other| other != number) {
            let forged = forged(&file, |payload| payload[at..at + 4].copy_from_slice(&other.to_le_bytes()));
            accepted += u32::from(survives(&forged, &mut params));
            tried += 1;
        }
    }
    // Other token ids, parameters and operands of the same length are valid.
    assert!(accepted > 20 && accepted < tried / 2, "{accepted} of {tried}");
}

proptest! {
    #[test]
    fn forged_numbers_are_refused_or_harmless(changes in prop::collection::vec((any::<u16>(), any::<u32>()), 1..4)) {
        let mut params = Parameters::<f64>::new(1);
        let (graph, _) = blocks::<f64>(&mut params);
        let file = graph.to_bytes(Contents::Both).unwrap();
        survives(&forged(&file, |payload| {
            let places = lists(payload);
            for &(at, number) in &changes {
                let at = places.start + at as usize % (places.len() / 4) * 4;
                payload[at..at + 4].copy_from_slice(&(number % 128).to_le_bytes());
            }
        }), &mut params);
    }
}
