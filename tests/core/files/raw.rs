//! The raw form: exactly the bytes of the numbers, exactly the length, nothing changed otherwise.

use burtorch_core::io::{Contents, Durability, Nodes, Overwrite};
use burtorch_core::simd::F64x4;
use burtorch_core::{Error, Graph, NodeId, RowMath, Scalar};

use super::Folder;

fn lanes(numbers: [f64; 4]) -> F64x4 {
    numbers.iter().enumerate().fold(F64x4::lit(0.0), |lanes, (k, &x)| lanes.with_lane(k, x))
}

fn graph_of_32() -> Graph<'static, f64> {
    let mut graph = Graph::<f64>::new();
    let values: Vec<f64> = (0..32).map(|k| f64::from(k) * 1.25 - 3.0).collect();
    graph.vector(&values).unwrap();
    graph
}

#[test]
fn seven_doubles_are_56_bytes_and_are_restored() {
    let folder = Folder::new("raw");
    let path = folder.file("seven");
    let mut graph = graph_of_32();
    let seven = graph.nodes_between(0, 6).unwrap();
    graph.save_raw(&path, Nodes::Run(seven), Contents::Values, Overwrite::InPlace).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let expected: Vec<u8> = graph.values()[..7].iter().flat_map(|x| x.to_le_bytes()).collect();
    assert_eq!((bytes.len(), &bytes), (56, &expected));
    let before = graph.values().to_vec();
    graph.values_mut().fill(f64::NAN);
    graph.load_raw(&path, Nodes::Run(seven), Contents::Values).unwrap();
    assert_eq!(graph.values()[..7], before[..7]);
    assert!(graph.values()[7..].iter().all(|x| x.is_nan()));
    graph.values_mut().fill(0.0);
    graph.load_raw_mapped(&path, Nodes::Run(seven), Contents::Values).unwrap();
    assert_eq!(graph.values()[..7], before[..7]);
    // Another range of the same length accepts them too.
    let other = graph.nodes_between(25, 31).unwrap();
    graph.load_raw(&path, Nodes::Run(other), Contents::Values).unwrap();
    assert_eq!(graph.values()[25..], before[..7]);
}

#[test]
fn a_file_that_was_longer_or_shorter_has_exactly_the_numbers() {
    let folder = Folder::new("raw-again");
    let graph = graph_of_32();
    let seven = graph.nodes_between(0, 6).unwrap();
    let bytes = graph.to_raw(Nodes::Run(seven), Contents::Values).unwrap();
    for n in [0usize, 1, 56, 57, 8192] {
        let path = folder.file("again");
        std::fs::write(&path, vec![0xAA; n]).unwrap();
        graph.save_raw(&path, Nodes::Run(seven), Contents::Values, Overwrite::InPlace).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "{n}");
    }
    #[cfg(unix)]
    graph.save_raw("/dev/null".as_ref(), Nodes::Run(seven), Contents::Values, Overwrite::InPlace).unwrap();
}

#[test]
fn every_bit_of_a_number_is_kept() {
    let mut graph = Graph::<f64>::new();
    let bits = [f64::NAN.to_bits() | 0x1234, (-0.0f64).to_bits(), 1, f64::NEG_INFINITY.to_bits()];
    let run = graph.vector(&bits.map(f64::from_bits)).unwrap();
    let raw = graph.to_raw(Nodes::Run(run), Contents::Values).unwrap();
    graph.values_mut().fill(0.0);
    graph.read_raw(Nodes::Run(run), Contents::Values, &raw).unwrap();
    assert_eq!(graph.values().iter().map(|x| x.to_bits()).collect::<Vec<_>>(), bits);
}

#[test]
fn another_length_is_refused_and_changes_nothing() {
    let folder = Folder::new("raw-length");
    let mut graph = graph_of_32();
    let seven = graph.nodes_between(2, 8).unwrap();
    let before = graph.values().to_vec();
    for n in [0usize, 1, 48, 55, 57, 64, 112, 5000] {
        let path = folder.file("other");
        std::fs::write(&path, vec![1; n]).unwrap();
        for load in [Graph::load_raw, Graph::load_raw_mapped] {
            let refused = load(&mut graph, &path, Nodes::Run(seven), Contents::Values);
            assert!(
                matches!(refused, Err(Error::Format { offset, .. }) if offset == n.min(56) as u64),
                "{n} {refused:?}"
            );
        }
        assert_eq!(graph.values(), before);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), n as u64);
    }
    let missing = folder.file("missing");
    let refused = graph.load_raw(&missing, Nodes::Run(seven), Contents::Values).unwrap_err();
    assert!(matches!(&refused, Error::System { code: 2, doing: "open", path } if *path == missing), "{refused}");
    assert_eq!(folder.names(), ["other"]);
    assert!(matches!(graph.nodes_between(3, 32), Err(Error::BadArgument { .. })));
    assert!(matches!(graph.nodes_between(3, 2), Err(Error::BadArgument { .. })));
}

#[test]
fn lists_gradients_and_lanes() {
    let mut graph = Graph::<F64x4>::new();
    let x = graph.leaf(lanes([1.0, 2.0, 3.0, 4.0])).unwrap();
    let y = graph.binary_op(burtorch_core::Op::Mul, x, x).unwrap();
    graph.backward(y).unwrap();
    let list = [y, x];
    let raw = graph.to_raw(Nodes::List(&list), Contents::Both).unwrap();
    let numbers: Vec<f64> = raw.as_chunks::<8>().0.iter().map(|b| f64::from_le_bytes(*b)).collect();
    assert_eq!(numbers[..8], [1.0, 4.0, 9.0, 16.0, 1.0, 2.0, 3.0, 4.0]);
    assert_eq!(numbers[8..], [1.0, 1.0, 1.0, 1.0, 2.0, 4.0, 6.0, 8.0]);
    graph.set_value(x, F64x4::lit(0.0)).unwrap();
    graph.zero_grad();
    graph.read_raw(Nodes::List(&list), Contents::Both, &raw).unwrap();
    assert_eq!(graph.to_raw(Nodes::List(&list), Contents::Both).unwrap(), raw);
    let grads = graph.to_raw(Nodes::List(&list), Contents::Gradients).unwrap();
    assert_eq!(grads, raw[64..]);
    assert!(graph.to_raw(Nodes::List(&[NodeId::from_index(2)]), Contents::Values).is_err());
    // A backward pass after loading gradients resets adjoints, and leaves accumulate.
    graph.backward(y).unwrap();
    assert_eq!(graph.grad(y).unwrap(), F64x4::lit(1.0));
    assert_eq!(graph.grad(x).unwrap(), lanes([4.0, 8.0, 12.0, 16.0]));
}

#[test]
fn a_raw_save_may_be_whole_or_nothing() {
    let folder = Folder::new("raw-whole");
    let path = folder.file("x");
    let graph = graph_of_32();
    let all = graph.nodes_between(0, 31).unwrap();
    for durability in [Durability::Cached, Durability::Durable] {
        graph.save_raw(&path, Nodes::Run(all), Contents::Values, Overwrite::Whole(durability)).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 256);
    }
    assert_eq!(folder.names(), ["x"]);
}
