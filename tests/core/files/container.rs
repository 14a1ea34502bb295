//! The checked container: what was written comes back; every prefix, flipped bit, and lie about a length is refused.

use burtorch_core::io::{Contents, Header, Kind, Reader, VERSION, Writer};
use burtorch_core::{DType, Error};
use proptest::prelude::*;

use super::forged;

/// A file with every type of section, at least `n` bytes long.
fn sample(n: usize) -> Vec<u8> {
    let header = Header { dtype: Some(DType::Float64), lanes: 1, first: 3, count: 7, ..Header::new(Kind::PROGRAM) };
    let mut writer = Writer::new(Header { contents: Contents::Both, ..header }).unwrap();
    writer.section(*b"BYTE", &[1u8, 2, 3]).unwrap();
    writer.section(*b"IDS ", &[u32::MAX, 0, 5]).unwrap();
    writer.section(*b"BIG ", &[u64::MAX, 1 << 40]).unwrap();
    writer.section(*b"F32 ", &[f32::NAN, -0.0, 1.5]).unwrap();
    writer.text(*b"TEXT", "∇f").unwrap();
    writer.section(*b"NONE", &[0u32; 0]).unwrap();
    let wave: Vec<f64> = (0..n / 8).map(|k| (k as f64).sin()).collect();
    writer.section(*b"F64 ", &wave).unwrap();
    writer.finish().unwrap()
}

fn read(bytes: &[u8]) -> Result<(), Error> {
    let mut reader = Reader::open(bytes, Kind::PROGRAM)?;
    reader.section::<u8>(*b"BYTE")?;
    reader.section::<u32>(*b"IDS ")?;
    reader.section::<u64>(*b"BIG ")?;
    reader.section::<f32>(*b"F32 ")?;
    reader.text(*b"TEXT")?;
    reader.section_of::<u32>(*b"NONE", 0)?;
    reader.section::<f64>(*b"F64 ")?;
    reader.finish()
}

fn is_format(result: Result<(), Error>) -> bool {
    matches!(result, Err(Error::Format { .. }))
}

#[test]
fn written_sections_are_read_back() {
    let bytes = sample(80);
    let mut reader = Reader::open(&bytes, Kind::PROGRAM).unwrap();
    let header = reader.header();
    assert_eq!((header.dtype, header.lanes, header.first, header.count), (Some(DType::Float64), 1, 3, 7));
    assert_eq!(header.contents, Contents::Both);
    assert_eq!(reader.section::<u8>(*b"BYTE").unwrap().to_vec().unwrap(), [1, 2, 3]);
    let ids = reader.section::<u32>(*b"IDS ").unwrap();
    assert_eq!((ids.len(), ids.get(0), ids.get(2), ids.get(3)), (3, Some(u32::MAX), Some(5), None));
    assert_eq!(reader.section::<u64>(*b"BIG ").unwrap().to_vec().unwrap(), [u64::MAX, 1 << 40]);
    let floats: Vec<u32> = reader.section::<f32>(*b"F32 ").unwrap().iter().map(f32::to_bits).collect();
    assert_eq!(floats, [f32::NAN.to_bits(), (-0.0f32).to_bits(), 1.5f32.to_bits()]);
    assert_eq!(reader.text(*b"TEXT").unwrap(), "∇f");
    assert!(reader.next_is(*b"NONE") && reader.section::<u32>(*b"NONE").unwrap().is_empty());
    assert_eq!(reader.section::<f64>(*b"F64 ").unwrap().len(), 10);
    reader.finish().unwrap();
    assert_eq!(bytes.len() % 8, 0);
}

#[test]
fn every_prefix_of_64_kib_is_refused() {
    let bytes = sample(65_200);
    assert!((65_300..65_600).contains(&bytes.len()), "{}", bytes.len());
    read(&bytes).unwrap();
    let refused = (0..bytes.len()).filter(|&n| is_format(read(&bytes[..n]))).count();
    assert_eq!(refused, bytes.len());
    let mut longer = bytes.clone();
    longer.push(0);
    assert!(is_format(read(&longer)));
}

#[test]
fn every_flipped_bit_of_4_kib_is_refused() {
    let mut bytes = sample(3_900);
    assert!(bytes.len() >= 4096, "{}", bytes.len());
    for bit in 0..8 * bytes.len() {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(is_format(read(&bytes)), "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    read(&bytes).unwrap();
}

#[test]
fn the_reason_names_the_fault_and_its_place() {
    let bytes = sample(80);
    let reason = |bytes: &[u8], kind| match Reader::open(bytes, kind) {
        Err(Error::Format { offset, reason }) => (offset, reason),
        other => panic!("{other:?}"),
    };
    assert_eq!(reason(b"", Kind::GRAPH).0, 0);
    assert!(reason(b"\x93NUMPY", Kind::GRAPH).1.contains("not a file in burtorch"));
    assert_eq!(reason(&bytes[..20], Kind::GRAPH).0, 20);
    assert_eq!(reason(&bytes[..70], Kind::GRAPH).0, 70);
    let (at, why) = reason(&bytes, Kind::PARAMETERS);
    assert_eq!((at, why.as_str()), (10, "the file contains a traced function, expected parameters"));
    let newer = [&bytes[..8], &(VERSION + 1).to_le_bytes(), &bytes[10..]].concat();
    assert!(reason(&newer, Kind::PROGRAM).1.contains(&format!("version {}", VERSION + 1)));
    let mut reader = Reader::open(&bytes, Kind::PROGRAM).unwrap();
    let wrong = reader.section::<u32>(*b"OPND").unwrap_err().to_string();
    assert!(wrong.contains("section BYTE where OPND was expected, at byte 64"), "{wrong}");
    let wrong = reader.section::<u32>(*b"BYTE").unwrap_err().to_string();
    assert!(wrong.contains("section BYTE of u8, expected u32, at byte 68"), "{wrong}");
    assert!(reader.clone().finish().is_err());
}

#[test]
fn lengths_are_not_believed_before_they_are_compared() {
    let bytes = sample(80);
    read(&forged(&bytes, |_| {})).unwrap();
    for lie in [2, 9, 1 << 20, 1 << 40, u64::MAX / 2, u64::MAX] {
        let file = forged(&bytes, |payload| payload[8..16].copy_from_slice(&lie.to_le_bytes()));
        assert!(is_format(read(&file)), "{lie}");
    }
    // The padding of a section, and the rest of its header, is zero.
    assert!(is_format(read(&forged(&bytes, |payload| payload[20] = 1))));
    assert!(is_format(read(&forged(&bytes, |payload| payload[5] = 1))));
    assert!(is_format(read(&forged(&bytes, |payload| payload[4] = 9))));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Checksums detect any change of bytes; with matching checksums the file is refused or read as other numbers,
    /// without a panic.
    #[test]
    fn mutations_are_refused(changes in prop::collection::vec((0usize..400, any::<u8>()), 1..8), cut in 0usize..500) {
        let bytes = sample(80);
        let mut mutated = bytes.clone();
        for &(at, byte) in &changes {
            let n = mutated.len();
            mutated[at % n] = byte;
        }
        mutated.truncate(cut.max(1));
        prop_assert!(mutated == bytes || is_format(read(&mutated)));
        let _ = read(&forged(&bytes, |payload| {
            for &(at, byte) in &changes {
                let n = payload.len();
                payload[at % n] = byte;
            }
        }));
    }
}
