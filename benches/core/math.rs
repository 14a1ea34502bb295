//! Elementary functions per element: slices in lanes and single numbers, against the standard library's.
//!
//! `cargo bench -p burtorch-core --bench math`. Every answer is checked before it is timed; rivals run interleaved; the
//! figures are the median over rounds and the distance between its quartiles, in nanoseconds an element.

#![allow(clippy::unnecessary_cast, reason = "one macro serves f32 and f64")]

use burtorch_core::simd::{Elementary, F32x16, F64x8, Real, available_levels, force_level, slices};
use std::hint::black_box;
use std::time::Instant;

const LENGTH: usize = 2048;
const ROUNDS: usize = 41;

/// Nanoseconds per element of a pass, repeated for about 100 microseconds.
fn time(passes: usize, mut pass: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..passes {
        pass();
    }
    start.elapsed().as_nanos() as f64 / (passes * LENGTH) as f64
}

/// Median and interquartile range.
fn spread(mut times: Vec<f64>) -> (f64, f64) {
    times.sort_by(f64::total_cmp);
    let n = times.len();
    (times[n / 2], times[3 * n / 4] - times[n / 4])
}

/// Runs the candidates alternately, `ROUNDS` times.
fn rivals<const N: usize>(mut candidates: [Box<dyn FnMut() + '_>; N]) -> [(f64, f64); N] {
    let mut times: [Vec<f64>; N] = std::array::from_fn(|_| Vec::new());
    for _ in 0..ROUNDS {
        for (candidate, times) in candidates.iter_mut().zip(&mut times) {
            times.push(time(20, candidate));
        }
    }
    times.map(spread)
}

macro_rules! unary {
    ($type:ty, $($name:ident $standard:expr, $low:expr, $high:expr;)*) => {$({
        let x: Vec<$type> = (0..LENGTH)
            .map(|i| $low + ($high - $low) * ((i * 997 % LENGTH) as $type / LENGTH as $type))
            .collect();
        let (mut y, mut z, mut w) = (vec![0.0; LENGTH], vec![0.0; LENGTH], vec![0.0; LENGTH]);
        let standard: fn($type) -> $type = $standard;
        slices::$name(&x, &mut y);
        for (x, y) in x.iter().zip(&y) {
            let (y, expected) = (*y as f64, standard(*x) as f64);
            assert!((y - expected).abs() <= 1e-5 * expected.abs().max(0.1), "{} {x}", stringify!($name));
        }
        let [lanes, single, library] = rivals([
            Box::new(|| slices::$name(black_box(&x), black_box(&mut y))),
            Box::new(|| for (x, z) in black_box(&x).iter().zip(black_box(&mut z)) { *z = Elementary::$name(*x) }),
            Box::new(|| for (x, w) in black_box(&x).iter().zip(black_box(&mut w)) { *w = standard(*x) }),
        ]);
        row(concat!(stringify!($name), " ", stringify!($type)), lanes, single, library);
    })*};
}

macro_rules! binary {
    ($type:ty, $vector:ty, $($name:ident $standard:expr;)*) => {$({
        let x: Vec<$type> = (0..LENGTH).map(|i| 0.01 + (i * 997 % LENGTH) as $type / 512.0).collect();
        let p: Vec<$type> = (0..LENGTH).map(|i| -2.0 + (i * 331 % LENGTH) as $type / 512.0).collect();
        let (mut y, mut z, mut w) = (vec![0.0; LENGTH], vec![0.0; LENGTH], vec![0.0; LENGTH]);
        let standard: fn($type, $type) -> $type = $standard;
        for (x, p) in x.iter().zip(&p) {
            let (got, expected) = (Elementary::$name(*x, *p) as f64, standard(*x, *p) as f64);
            assert!((got - expected).abs() <= 1e-5 * expected.abs().max(0.1), "{} {x} {p}", stringify!($name));
        }
        let lanes = <$vector as Real>::LANES;
        let [vectors, single, library] = rivals([
            Box::new(|| {
                let inputs = black_box(&x).chunks_exact(lanes).zip(black_box(&p).chunks_exact(lanes));
                for ((x, p), y) in inputs.zip(black_box(&mut y).chunks_exact_mut(lanes)) {
                    Elementary::$name(<$vector>::load(x), <$vector>::load(p)).store(y);
                }
            }),
            Box::new(|| for (i, z) in black_box(&mut z).iter_mut().enumerate() { *z = Elementary::$name(x[i], p[i]) }),
            Box::new(|| for (i, w) in black_box(&mut w).iter_mut().enumerate() { *w = standard(x[i], p[i]) }),
        ]);
        row(concat!(stringify!($name), " ", stringify!($type)), vectors, single, library);
    })*};
}

fn row(name: &str, lanes: (f64, f64), single: (f64, f64), library: (f64, f64)) {
    println!(
        "| {name} | {:.2} ±{:.2} | {:.2} ±{:.2} | {:.2} ±{:.2} | {:.1} |",
        lanes.0,
        lanes.1,
        single.0,
        single.1,
        library.0,
        library.1,
        library.0 / lanes.0
    );
}

/// Abramowitz and Stegun 7.1.26: only accurate to 1e-7, so the check is loose.
fn rough_erf(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.3275911 * x.abs());
    let c = [0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429];
    let p = c.iter().rev().fold(0.0, |p, c| p * t + c) * t;
    (1.0 - p * (-x * x).exp()).copysign(x)
}

fn main() {
    for &level in available_levels() {
        assert!(force_level(Some(level)));
        println!("\nlevel {}\n", level.name());
        all();
    }
}

fn all() {
    println!("| function | lanes ns | number ns | std ns | std / lanes |\n|---|---|---|---|---|");
    unary! { f32,
        exp f32::exp, -10.0, 10.0;
        log f32::ln, 0.01, 10.0;
        tanh f32::tanh, -4.0, 4.0;
        sigmoid |x| 1.0 / (1.0 + (-x).exp()), -10.0, 10.0;
        expm1 f32::exp_m1, -4.0, 4.0;
        log1p f32::ln_1p, -0.9, 10.0;
        softplus |x| x.max(0.0) + (-x.abs()).exp().ln_1p(), -10.0, 10.0;
        sin f32::sin, -10.0, 10.0;
        cos f32::cos, -10.0, 10.0;
        tan f32::tan, -10.0, 10.0;
        erf |x| rough_erf(x as f64) as f32, -3.0, 3.0;
        gelu |x| x * (0.5 + 0.5 * rough_erf(x as f64 / 2f64.sqrt())) as f32, -5.0, 5.0;
    }
    binary! { f32, F32x16,
        pow f32::powf;
        atan2 f32::atan2;
    }
    unary! { f64,
        exp f64::exp, -10.0, 10.0;
        log f64::ln, 0.01, 10.0;
        tanh f64::tanh, -4.0, 4.0;
        sigmoid |x| 1.0 / (1.0 + (-x).exp()), -10.0, 10.0;
        expm1 f64::exp_m1, -4.0, 4.0;
        log1p f64::ln_1p, -0.9, 10.0;
        softplus |x| x.max(0.0) + (-x.abs()).exp().ln_1p(), -10.0, 10.0;
        sin f64::sin, -10.0, 10.0;
        cos f64::cos, -10.0, 10.0;
        tan f64::tan, -10.0, 10.0;
        erf rough_erf, -3.0, 3.0;
        gelu |x| x * (0.5 + 0.5 * rough_erf(x / 2f64.sqrt())), -5.0, 5.0;
    }
    binary! { f64, F64x8,
        pow f64::powf;
        atan2 f64::atan2;
    }
}
