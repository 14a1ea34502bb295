//! docs/ops.md: written from the op table and from what is measured here; a test fails when it is stale.
//!
//! To write it again: `BURTORCH_WRITE_DOCS=1 cargo test -p burtorch-core --test levels document`.

use std::fmt::Write;

use burtorch_core::ops::{Arity, OP_INFO, OpInfo};
use burtorch_core::simd::level;
use burtorch_core::{Float, Op, bf16, f16};

use super::reductions;
use super::sweep::{all_points, at, worst};

const PLACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/ops.md");
const QUADRUPLE: &str = include_str!("../../data/f128_reference.txt");
const N_RANDOM: usize = 20_000;

const HEAD: &str = "\
# Ops

A test generates this page from the op table, `crates/burtorch-core/src/ops/table.rs`, and from measurements: see
`tests/core/accuracy/document.rs`. An op has the same name in Rust and in Python; the paper's name is given if there is one.

Bounds and measurements are in units in the last place (ULP) of the exact result: value / partials. float32 and float64 are
measured against float128 at 64 special values per argument and 20,000 random points (the tests take 100,000), float128
against 300-bit results at random points, float16 and bfloat16 at every fifth argument (binary ops at 118,000 pairs): these are the
float32 result, rounded once, and partials read the rounded value. Lanes have the bits of plain numbers. No point of float32 and
float64 is exempt from the bounds, including subnormal inputs and results. (An adjoint other than 1 multiplies a partial and rounds
once more.) A bound \"of 0.5\" measures results below 1/2, which lie near a zero, in units in the last place of 1/2.

## Elementwise

| op | paper | value and partials | tests sample | bounds | float32 | float64 | float16 | bfloat16 | float128 |
|---|---|---|---|---|---|---|---|---|---|
";

const REDUCTIONS: &str = "
## Ops of many operands

The bound of a value is a number of roundings times `u sum |terms|`, where u is half a unit in the last place of 1 (2^-24, 2^-53) and
the terms are those that the op adds (for a product the product, for a norm the norm, for logsumexp the largest operand and the
logarithm); n counts operands, or pairs for inner products. The columns of float32 and float64 give the largest error found as a share of
that bound / the partials' in ULP, those of the half types both in ULP: 800 sets of 2 to 41 operands each. Half types are added in float32
and the result is rounded once. Partials of a product are rounded once per factor. Those of a variance lose digits if an operand is close
to the mean, and those of logsumexp lose as many bits as the distance from the largest operand has.

| op | paper | value and partials | roundings | float32 | float64 | float16 | bfloat16 |
|---|---|---|---|---|---|---|---|
";

const OTHERS: &str = "
## Blocks

A block op is one record that represents a range of nodes.

| op | outputs |
|---|---|
";

const DERIVED: &str = "
## Derived ops

`a += b`, `a -= b`, `a *= b` and `a /= b` bind the name to a new node; the previous node of `a` keeps its value and its gradient.
`clamp(x, low, high)` is `min(max(x, low), high)`: 1/2 of the gradient passes at a bound. `x**2` is `sqr`, `x**3` is `pow3`, other
constant exponents are `pow_constant`; `x / c` is `mul_by_constant` if 1/c is exact.
";

/// Followed by the list of omitted ops.
const UNEVALUATED: &str = "
## Gradients without values

`bt.sqr(x, evaluate=False)` appends a node without computing its value: `backward()` computes its gradient but not its value;
reading its data, or using it as an operand, computes the value. In Rust: `Graph::unary_unevaluated`, `binary_unevaluated`,
`reduce_unevaluated`, `inner_product_unevaluated`. Ops whose derivative needs the value do not support this, with a ValueError in
Python and a compile error in Rust:";

/// Two digits, rounded up, so that the printed number is a bound.
fn shown(ulp: f64) -> String {
    format!("{:.2}", (ulp * 100.0 - 1e-9).ceil().max(0.0) / 100.0)
}

fn measured<E: Float>(op: Op) -> String {
    let mut beyond = Vec::new();
    let [value, partial] = worst::<E>(op, &all_points(op, N_RANDOM), &mut beyond);
    format!("{} / {}", shown(value), shown(partial))
}

/// The same for half numbers: all of them for a unary op, some pairs for a binary op.
fn measured_half<H: Float>(op: Op, from_bits: fn(u16) -> H) -> String {
    let all = (0..=u16::MAX).step_by(5).map(from_bits);
    let points: Vec<[H; 2]> = match op.info().arity {
        Arity::Unary => all.map(|x| [x, H::lit(0.0)]).collect(),
        _ => {
            let partners = [0.0, 1.0, -2.5, 0.1, 7.0, 3e4, -6e-5, f64::INFINITY, f64::NAN].map(H::from_f64);
            all.flat_map(|x| partners.map(|y| [x, y])).collect()
        }
    };
    let [value, partial] = worst(op, &points, &mut Vec::new());
    format!("{} / {}", shown(value), shown(partial))
}

/// Bound and measured errors of an op with many operands.
fn many_operands(op: Op) -> String {
    let bound = match reductions::roundings(op) {
        None => "0".to_string(),
        Some(0) => "n".to_string(),
        Some(more) => format!("n {} {}", if more < 0 { '-' } else { '+' }, more.abs()),
    };
    let both = |m: reductions::Measured| format!("{} / {}", shown(m.share), shown(m.partial));
    let halves = |m: reductions::Measured| format!("{} / {}", shown(m.value), shown(m.partial));
    format!(
        "{bound} | {} | {} | {} | {} |",
        both(reductions::measured::<f32>(op, f64::from(f32::EPSILON) / 2.0)),
        both(reductions::measured::<f64>(op, f64::EPSILON / 2.0)),
        halves(reductions::measured::<f16>(op, 1.0)),
        halves(reductions::measured::<bf16>(op, 1.0)),
    )
}

/// Errors of float128 at the points of its table.
fn quadruple(op: Op) -> [f64; 2] {
    let read = |word: &str| f128::from_bits(u128::from_str_radix(word, 16).unwrap());
    let mut worst = [0.0_f64; 2];
    for line in QUADRUPLE.lines().filter(|line| line.split(' ').next() == Some(op.name())) {
        let (point, results) = line.split_once(" | ").unwrap();
        let operands: Vec<f128> = point.split(' ').skip(1).map(read).collect();
        let found = at(op, operands[0], operands.get(1).copied().unwrap_or(0.0));
        for (which, expected) in results.split(' ').collect::<Vec<_>>().chunks(2).enumerate() {
            let (nearest, rest) = (read(expected[0]), expected[1].parse::<f64>().unwrap());
            // Near a power of two the unit is that of the smaller numbers; half of it is exact.
            let own = nearest.next_up() - nearest;
            // Near a zero of the function, errors count in the units that the row states.
            let of = f128::from(op.info().ulp_of);
            let place = if nearest.abs() < of { of.next_up() - of } else { own };
            let rest = rest * (own / place) as f64;
            let off = ((found[which] - nearest) / place) as f64 - rest;
            worst[which.min(1)] = worst[which.min(1)].max(if nearest == found[which] { rest.abs() } else { off.abs() });
        }
    }
    worst
}

fn row(info: &OpInfo) -> String {
    let paper = if info.paper_name.is_empty() { String::new() } else { format!("`{}`", info.paper_name) };
    // A vertical bar would end the cell.
    let formula = info.doc.replace('|', "\\|");
    format!("| `{}` | {paper} | {formula} |", info.name)
}

fn page() -> String {
    let mut page = HEAD.to_string();
    for info in OP_INFO {
        if !matches!(info.arity, Arity::Unary | Arity::Binary | Arity::WithConstant) {
            continue;
        }
        let wide = if info.arity == Arity::WithConstant {
            String::new()
        } else {
            let [value, partial] = quadruple(info.op);
            format!("{} / {}", shown(value), shown(partial))
        };
        let (low, high) = info.domain;
        writeln!(
            page,
            "{} {low} to {high} | {:.1} / {:.1}{} | {} | {} | {} | {} | {wide} |",
            row(info),
            info.value_ulp,
            info.partial_ulp,
            if info.ulp_of > 0.0 { format!(" of {}", info.ulp_of) } else { String::new() },
            measured::<f32>(info.op),
            measured::<f64>(info.op),
            measured_half(info.op, f16::from_bits),
            measured_half(info.op, bf16::from_bits),
        )
        .unwrap();
    }
    page.push_str(REDUCTIONS);
    for op in reductions::ops() {
        writeln!(page, "{} {}", row(op.info()), many_operands(op)).unwrap();
    }
    page.push_str(OTHERS);
    for info in OP_INFO.iter().filter(|info| info.arity == Arity::Block) {
        writeln!(page, "| `{}` | {} |", info.name, info.doc.replace('|', "\\|")).unwrap();
    }
    page.push_str(DERIVED);
    page.push_str(UNEVALUATED);
    let needs = OP_INFO.iter().filter(|info| info.reads_output && matches!(info.arity, Arity::Unary | Arity::Binary));
    let names: Vec<String> = needs.map(|info| format!("`{}`", info.name)).collect();
    writeln!(page, " {}.", names.join(", ")).unwrap();
    page
}

/// Without fused multiply-add, different bits and errors are correct too.
fn without_measurements(page: &str) -> String {
    let cut = |line: &str| line.split(" | ").take(5).collect::<Vec<_>>().join(" | ");
    page.lines().map(cut).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_page_of_ops_is_up_to_date() {
    let page = page();
    if std::env::var_os("BURTORCH_WRITE_DOCS").is_some() {
        std::fs::write(PLACE, &page).unwrap();
    }
    let found = std::fs::read_to_string(PLACE).unwrap_or_default();
    let same =
        if level().has_fma() { found == page } else { without_measurements(&found) == without_measurements(&page) };
    assert!(same, "docs/ops.md is stale; write it with BURTORCH_WRITE_DOCS=1 and look at what has changed");
}

#[test]
fn f128_is_within_its_bounds() {
    let mut beyond = Vec::new();
    for info in OP_INFO.iter().filter(|info| matches!(info.arity, Arity::Unary | Arity::Binary)) {
        let [value, partial] = quadruple(info.op);
        if value > info.value_ulp + 1e-3 || partial > info.partial_ulp + 1e-3 {
            beyond.push(format!("{}: {value:.3} / {partial:.3}", info.name));
        }
    }
    assert!(beyond.is_empty(), "{beyond:#?}");
}
