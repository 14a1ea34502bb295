//! The committed table of exact results: every op and reduction, through a graph, in every lane of every width.

use burtorch_core::simd::{F32x4, F32x8, F32x16, F64x2, F64x4, F64x8};
use burtorch_core::{Float, Graph, Op, Scalar};

use super::ulp::error_of;

const TABLE: &str = include_str!("../../data/ops_reference.txt");

/// An expected number.
#[derive(Clone, Copy, Debug)]
enum Expected {
    /// This number, to 100 bits or more; not a zero unless the sign is as shown.
    Exactly(f64, f128),
    /// A zero of either sign.
    Zero,
    /// Unspecified.
    Any,
}

/// One line of the table.
struct Record {
    op: &'static str,
    inputs: Vec<f64>,
    expected: Vec<Expected>,
}

fn number(word: &str) -> f64 {
    match word {
        "nan" => f64::NAN,
        "inf" => f64::INFINITY,
        "-inf" => f64::NEG_INFINITY,
        _ => f64::from_bits(u64::from_str_radix(word, 16).unwrap()),
    }
}

fn records(type_name: &str) -> Vec<Record> {
    let lines = TABLE.lines().filter(|line| line.split(' ').next() == Some(type_name));
    let read = |line: &'static str| {
        let words: Vec<&str> = line.split(' ').collect();
        let n: usize = words[2].parse().unwrap();
        let expected = words[3 + n..].chunks(2).map(|pair| match pair[0] {
            "any" => Expected::Any,
            "zero" => Expected::Zero,
            word => {
                let high = number(word);
                let rest = if high.is_finite() { number(pair[1]) } else { 0.0 };
                Expected::Exactly(high, f128::from(high) + f128::from(rest))
            }
        });
        Record {
            op: words[1],
            inputs: words[3..3 + n].iter().map(|w| number(w)).collect(),
            expected: expected.collect(),
        }
    };
    lines.map(read).collect()
}

/// Value and gradients of an op on a graph.
fn run<S: Scalar>(op: &str, xs: &[S]) -> Vec<S> {
    let mut graph = Graph::<S>::new();
    let leaves = graph.vector(xs).unwrap();
    let (name, output) = op.split_once('.').unwrap_or((op, ""));
    let half = xs.len() / 2;
    let pair = || (leaves.slice(0, half).unwrap().into(), leaves.slice(half, 2 * half).unwrap().into());
    let root = match (name, Op::from_name(name).unwrap()) {
        ("reduce_mean_and_mean_squares", _) => {
            let (mean, squares) = graph.reduce_mean_and_mean_squares(leaves).unwrap();
            if output == "0" { mean } else { squares }
        }
        ("inner_product", _) => {
            let (x, w) = pair();
            graph.inner_product(x, w, None, &[]).unwrap()
        }
        ("inner_product_with_bias", _) => {
            let (x, w) = pair();
            graph.inner_product(x, w, leaves.get(2 * half), &[]).unwrap()
        }
        ("mul_by_constant", _) => {
            graph.with_constant::<burtorch_core::ops::MulByConstant>(leaves.first(), xs[1]).unwrap()
        }
        (_, op) => match op.info().arity {
            burtorch_core::ops::Arity::Unary => graph.unary_op(op, leaves.first()).unwrap(),
            burtorch_core::ops::Arity::Binary => graph.binary_op(op, leaves.first(), leaves.get(1).unwrap()).unwrap(),
            _ => graph.reduce(op, leaves.into(), &[]).unwrap(),
        },
    };
    graph.backward(root).unwrap();
    let grads = leaves.nodes().map(|leaf| graph.grad(leaf).unwrap());
    std::iter::once(graph.value(root).unwrap()).chain(grads).collect()
}

/// The allowed error in units in the last place; for sums, `(n - 1) u sum |terms|` in those units.
fn bound<E: Float>(record: &Record, which: usize, exact: f128) -> f64 {
    let name = record.op.split('.').next().unwrap();
    let info = Op::from_name(name).unwrap().info();
    let table_bound = if which == 0 { info.value_ulp } else { info.partial_ulp };
    if table_bound > 0.0 {
        return table_bound;
    }
    let n = record.inputs.len();
    let half = n / 2;
    let xs = &record.inputs;
    let terms: f128 = match name {
        "reduce_sum_of_squares" | "reduce_mean_squares" => xs.iter().map(|&x| f128::from(x) * f128::from(x)).sum(),
        "reduce_mul" => exact.abs(),
        "inner_product" | "inner_product_with_bias" => {
            (0..half).map(|k| (f128::from(xs[k]) * f128::from(xs[k + half])).abs()).sum::<f128>()
                + xs.get(2 * half).map_or(0.0, |&b| f128::from(b).abs())
        }
        "variance" | "variance_biased" if which == 0 => {
            let mean = xs.iter().map(|&x| f128::from(x)).sum::<f128>() / n as f128;
            let spread: f128 = xs.iter().map(|&x| (f128::from(x) - mean) * (f128::from(x) - mean)).sum();
            // The error of the mean, half a unit, counts squared and, times the sum of deviations, linearly.
            spread
        }
        _ => xs.iter().map(|&x| f128::from(x).abs()).sum(),
    };
    let scaled = match name {
        "reduce_mean" | "reduce_negative_mean" | "reduce_mean_squares" | "variance_biased" => terms / n as f128,
        "reduce_mean_and_mean_squares" if record.op.ends_with("1") => {
            xs.iter().map(|&x| f128::from(x) * f128::from(x)).sum::<f128>() / n as f128
        }
        "reduce_mean_and_mean_squares" => terms / n as f128,
        "variance" => terms / (n - 1).max(1) as f128,
        _ => terms,
    };
    if which > 0 && !matches!(name, "variance" | "variance_biased") {
        return 2.0;
    }
    // In units of the exact result: u is half a unit of 1. The division adds one rounding, squares add two.
    let epsilon = if size_of::<E>() == 4 { f64::from(f32::EPSILON) } else { f64::EPSILON };
    let roundings = n as f64 + 2.0;
    let absolute = roundings * epsilon / 2.0 * scaled as f64;
    let place = place_of::<E>(exact);
    absolute / place
}

/// The spacing of numbers at `exact`.
fn place_of<E: Float>(exact: f128) -> f64 {
    let x = E::from_f128(exact.abs());
    let up = |x: E| if size_of::<E>() == 4 { f64::from((x.to_f64() as f32).next_up()) } else { x.to_f64().next_up() };
    up(x) - x.to_f64()
}

fn check<S: Scalar>(type_name: &str) {
    let records = records(type_name);
    assert!(records.len() > 1500, "the table has {} records of {type_name}", records.len());
    let mut bad = Vec::new();
    let mut groups: Vec<&[Record]> = Vec::new();
    for of_one_kind in records.chunk_by(|a, b| a.op == b.op && a.inputs.len() == b.inputs.len()) {
        groups.extend(of_one_kind.chunks(S::LANES));
    }
    for group in groups {
        // An incomplete group repeats its records.
        let lane_record = |lane: usize| &group[lane % group.len()];
        let xs: Vec<S> = (0..group[0].inputs.len())
            .map(|k| {
                let each = (0..S::LANES).map(|lane| S::Elem::from_f64(lane_record(lane).inputs[k]));
                each.enumerate().fold(S::lit(0.0), |s, (lane, x)| s.with_lane(lane, x))
            })
            .collect();
        let found = run(group[0].op, &xs);
        for lane in 0..S::LANES {
            let record = lane_record(lane);
            for (which, (found, expected)) in found.iter().zip(&record.expected).enumerate() {
                let found = found.lane(lane);
                if let Some(complaint) = judge(record, which, found, *expected) {
                    bad.push(format!("{}{:?} lane {lane}: {complaint}", record.op, record.inputs));
                }
            }
        }
    }
    let n = bad.len();
    bad.truncate(40);
    assert!(bad.is_empty(), "{n} results are wrong:\n{}", bad.join("\n"));
}

fn judge<E: Float>(record: &Record, which: usize, found: E, expected: Expected) -> Option<String> {
    let plain = found.to_f64();
    match expected {
        Expected::Any => None,
        Expected::Zero if plain == 0.0 => None,
        Expected::Zero => Some(format!("result {which} is {plain:e}, expected a zero")),
        Expected::Exactly(high, _) if high == 0.0 => {
            let right = plain == 0.0 && (which > 0 || plain.is_sign_negative() == high.is_sign_negative());
            (!right).then(|| format!("result {which} is {plain:e}, expected {high:e}"))
        }
        Expected::Exactly(high, exact) => {
            let exact = if high.is_finite() { exact } else { high.into() };
            let of = Op::from_name(record.op.split('.').next().unwrap()).unwrap().info().ulp_of;
            let ulp = error_of(found, exact, of);
            let bound = bound::<E>(record, which, exact);
            (ulp > bound).then(|| format!("result {which} is {plain:e}, {ulp:.3} ULP from {high:e}, bound {bound:.2}"))
        }
    }
}

#[test]
fn numbers() {
    check::<f32>("f32");
    check::<f64>("f64");
}

#[test]
fn lanes() {
    check::<F32x4>("f32");
    check::<F32x8>("f32");
    check::<F32x16>("f32");
    check::<F64x2>("f64");
    check::<F64x4>("f64");
    check::<F64x8>("f64");
}

/// float128 meets the bounds of doubles at the same points: the table has too few digits for its own bounds.
#[test]
fn quadruple_numbers() {
    let mut bad = Vec::new();
    for record in records("f64") {
        let xs: Vec<f128> = record.inputs.iter().map(|&x| f128::from(x)).collect();
        for (which, (found, expected)) in run(record.op, &xs).iter().zip(&record.expected).enumerate() {
            // Where a double over- or underflows the table says so, and f128 does not.
            let Expected::Exactly(high, exact) = *expected else { continue };
            let is_inside = high.is_finite() && high.abs() > 1e-290;
            let off = ((*found - exact) / exact).abs();
            let is_sum = Op::from_name(record.op.split('.').next().unwrap()).unwrap().info().value_ulp == 0.0;
            if is_inside && (off.is_nan() || off >= 1e-30) && !is_sum {
                bad.push(format!("{}{:?} result {which}: off by {:e}", record.op, record.inputs, off as f64));
            }
        }
    }
    assert!(bad.is_empty(), "{bad:?}");
}
