//! Every op at 64 special values per argument and 100,000 random points, in f32 and f64, each lane width and CPU level.
//!
//! The reference is the op's own row in f128, whose elementary functions share nothing with those under test.

use burtorch_core::ops::{Arity, forward_binary, forward_unary, pull_binary, pull_unary};
use burtorch_core::simd::{
    F32x4, F32x8, F32x16, F32x64, F64x2, F64x4, F64x8, F64x64, Level, available_levels, force_level,
};
use burtorch_core::{Float, Op, Scalar};

use super::points::{Random, special};
use super::ulp::error_of;

const N_RANDOM: usize = 100_000;

/// Value and partials of an op at a point: three numbers, of which some may not apply.
pub type Results<S> = [S; 3];

/// The op at a point with adjoint 1.
pub fn at<S: Scalar>(op: Op, x: S, y: S) -> Results<S> {
    let one = S::lit(1.0);
    if op.info().arity == Arity::Unary {
        let value = forward_unary(op, x).unwrap();
        return [value, pull_unary(op, one, x, value).unwrap(), S::lit(0.0)];
    }
    let value = forward_binary(op, x, y).unwrap();
    let (dx, dy) = pull_binary(op, one, x, y, value).unwrap();
    [value, dx, if op.info().arity == Arity::Binary { dy } else { S::lit(0.0) }]
}

/// Ops of one or two operands.
pub fn elementwise_ops() -> impl Iterator<Item = Op> {
    let is_elementwise = |a: Arity| matches!(a, Arity::Unary | Arity::Binary | Arity::WithConstant);
    burtorch_core::ops::OP_INFO.iter().filter(move |row| is_elementwise(row.arity)).map(|row| row.op)
}

/// All points of an op as pairs; a unary op passes over the second of each.
pub fn all_points<E: Float>(op: Op, n_random: usize) -> Vec<[E; 2]> {
    let special = special::<E>();
    let mut points: Vec<[E; 2]> = if op.info().arity == Arity::Unary {
        special.iter().map(|&x| [x, E::lit(0.0)]).collect()
    } else {
        special.iter().flat_map(|&x| special.iter().map(move |&y| [x, y])).collect()
    };
    points.extend(Random::new(op).points::<E, 2>(n_random));
    points
}

/// The worst errors of value and partials of an op, and a complaint about each point beyond the bounds.
pub fn worst<E: Float>(op: Op, points: &[[E; 2]], complaints: &mut Vec<String>) -> [f64; 2] {
    let info = op.info();
    let mut worst = [0.0_f64; 2];
    for &[x, y] in points {
        let found = at(op, x, y);
        let exact = at(op, x.to_f128(), y.to_f128());
        for which in 0..3 {
            let ulp = error_of(found[which], exact[which], info.ulp_of);
            let bound = if which == 0 { info.value_ulp } else { info.partial_ulp };
            if ulp <= bound {
                worst[which.min(1)] = worst[which.min(1)].max(ulp);
            } else {
                worst[which.min(1)] = worst[which.min(1)].max(ulp);
                let name = ["value", "dx", "dy"][which];
                complaints.push(format!(
                    "{} {name} at ({:e}, {:e}): {:e} is {ulp:.3} ULP off, bound {bound}",
                    op.name(),
                    x.to_f64(),
                    y.to_f64(),
                    found[which].to_f64(),
                ));
            }
        }
    }
    worst
}

fn within_bounds<E: Float>() {
    let mut complaints = Vec::new();
    let mut n = 0;
    for op in elementwise_ops() {
        let before = complaints.len();
        worst::<E>(op, &all_points(op, N_RANDOM), &mut complaints);
        n += complaints.len() - before;
        complaints.truncate(before + 6);
    }
    assert!(complaints.is_empty(), "{n} points beyond the bounds:\n{}", complaints.join("\n"));
}

#[test]
fn f32_is_within_its_bounds() {
    within_bounds::<f32>();
}

#[test]
fn f64_is_within_its_bounds() {
    within_bounds::<f64>();
}

/// Lane k has the same bits as a scalar, for value and partials.
fn lanes_equal_numbers<S: Scalar>(n_random: usize) {
    for op in elementwise_ops() {
        let points = all_points::<S::Elem>(op, n_random);
        for chunk in points.chunks(S::LANES) {
            let gather = |which: usize| {
                let lanes = (0..S::LANES).map(|k| chunk[k % chunk.len()][which]);
                lanes.enumerate().fold(S::lit(0.0), |s, (k, x)| s.with_lane(k, x))
            };
            let together = at(op, gather(0), gather(1));
            for (k, &[x, y]) in chunk.iter().enumerate() {
                let alone = at(op, x, y);
                for which in 0..3 {
                    let (found, wanted) = (together[which].lane(k).to_f64(), alone[which].to_f64());
                    let same = found.to_bits() == wanted.to_bits() || found.is_nan() && wanted.is_nan();
                    assert!(
                        same,
                        "{} at ({x:?}, {y:?}), result {which}, lane {k}: {found:e} and {wanted:e}",
                        op.name()
                    );
                }
            }
        }
    }
}

#[test]
fn lanes_of_f32_equal_numbers() {
    lanes_equal_numbers::<F32x4>(20_000);
    lanes_equal_numbers::<F32x8>(20_000);
    lanes_equal_numbers::<F32x16>(N_RANDOM);
    lanes_equal_numbers::<F32x64>(20_000);
}

#[test]
fn lanes_of_f64_equal_numbers() {
    lanes_equal_numbers::<F64x2>(20_000);
    lanes_equal_numbers::<F64x4>(20_000);
    lanes_equal_numbers::<F64x8>(N_RANDOM);
    lanes_equal_numbers::<F64x64>(20_000);
}

/// The results of a level at some points, as bits.
fn bits<E: Float>(level: Level) -> Vec<u64> {
    assert!(force_level(Some(level)));
    let results = elementwise_ops().flat_map(|op| {
        let points = all_points::<E>(op, 500).into_iter();
        points.flat_map(move |[x, y]| at(op, x, y)).map(|x| if x.nan_mask() { 0 } else { x.to_f64().to_bits() })
    });
    results.collect()
}

/// Levels with fused multiply-add agree bit for bit. Without it the bounds hold: the test above runs at that level.
#[test]
fn levels_agree() {
    let _turn = crate::support::level_stays();
    let all = available_levels();
    let with_fma: Vec<Level> = all.iter().copied().filter(|level| level.has_fma()).collect();
    for pair in with_fma.windows(2) {
        assert!(bits::<f32>(pair[0]) == bits::<f32>(pair[1]), "f32 differs between {pair:?}");
        assert!(bits::<f64>(pair[0]) == bits::<f64>(pair[1]), "f64 differs between {pair:?}");
    }
    for &level in all.iter().filter(|level| !level.has_fma()) {
        force_level(Some(level));
        let mut complaints = Vec::new();
        for op in elementwise_ops() {
            let n = if op.info().arity == Arity::Unary { 64 + 500 } else { 64 };
            let points: Vec<[f64; 2]> = all_points(op, 500).into_iter().rev().take(n).collect();
            worst::<f64>(op, &points, &mut complaints);
            let points: Vec<[f32; 2]> = all_points(op, 500).into_iter().rev().take(n).collect();
            worst::<f32>(op, &points, &mut complaints);
        }
        assert!(complaints.is_empty(), "{complaints:?}");
    }
    force_level(None);
}
