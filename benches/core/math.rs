//! Elementary functions per element: slices in lanes and single numbers, against the standard library's.
//!
//! `cargo bench -p burtorch-core --bench math`. Every answer is checked before it is timed; rivals run interleaved; the
//! figures are the median over rounds and the distance between its quartiles, in nanoseconds an element.

use burtorch_core::simd::{Elementary, level, slices};
use std::hint::black_box;
use std::time::Instant;

const LENGTH: usize = 2048;
const ROUNDS: usize = 41;

/// Nanoseconds an element of one pass, repeated to last about 100 microseconds.
fn time(passes: usize, mut pass: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..passes {
        pass();
    }
    start.elapsed().as_nanos() as f64 / (passes * LENGTH) as f64
}

/// Median and distance of the quartiles.
fn spread(mut times: Vec<f64>) -> (f64, f64) {
    times.sort_by(f64::total_cmp);
    let n = times.len();
    (times[n / 2], times[3 * n / 4] - times[n / 4])
}

/// Runs the candidates in turn, `ROUNDS` times.
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
    ($type:ty, $($name:ident $standard:expr, $low:expr, $high:expr;)*) => {$(
        let x: Vec<$type> = (0..LENGTH)
            .map(|i| $low + ($high - $low) * ((i * 997 % LENGTH) as $type / LENGTH as $type))
            .collect();
        let (mut y, mut z, mut w) = (vec![0.0; LENGTH], vec![0.0; LENGTH], vec![0.0; LENGTH]);
        let standard: fn($type) -> $type = $standard;
        slices::$name(&x, &mut y);
        for (x, y) in x.iter().zip(&y) {
            let (y, expected) = (*y as f64, standard(*x) as f64);
            assert!((y - expected).abs() <= 1e-5 * expected.abs().max(1e-2), "{} {x}", stringify!($name));
        }
        let [lanes, single, library] = rivals([
            Box::new(|| slices::$name(black_box(&x), black_box(&mut y))),
            Box::new(|| for (x, z) in black_box(&x).iter().zip(black_box(&mut z)) { *z = Elementary::$name(*x) }),
            Box::new(|| for (x, w) in black_box(&x).iter().zip(black_box(&mut w)) { *w = standard(*x) }),
        ]);
        println!(
            "| {} {} | {:.2} ±{:.2} | {:.2} ±{:.2} | {:.2} ±{:.2} | {:.1} |",
            stringify!($name), stringify!($type),
            lanes.0, lanes.1, single.0, single.1, library.0, library.1, library.0 / lanes.0
        );
    )*};
}

fn main() {
    println!("level {}", level().name());
    println!("| function | lanes ns | number ns | std ns | std / lanes |\n|---|---|---|---|---|");
    unary! { f32,
        exp f32::exp, -10.0, 10.0;
        log f32::ln, 0.01, 10.0;
        tanh f32::tanh, -4.0, 4.0;
        sigmoid |x| 1.0 / (1.0 + (-x).exp()), -10.0, 10.0;
        expm1 f32::exp_m1, -4.0, 4.0;
        log1p f32::ln_1p, -0.9, 10.0;
        sin f32::sin, -10.0, 10.0;
        cos f32::cos, -10.0, 10.0;
        tan f32::tan, -10.0, 10.0;
        softplus |x| x.max(0.0) + (-x.abs()).exp().ln_1p(), -10.0, 10.0;
    }
    unary! { f64,
        exp f64::exp, -10.0, 10.0;
        log f64::ln, 0.01, 10.0;
        tanh f64::tanh, -4.0, 4.0;
        sigmoid |x| 1.0 / (1.0 + (-x).exp()), -10.0, 10.0;
        expm1 f64::exp_m1, -4.0, 4.0;
        log1p f64::ln_1p, -0.9, 10.0;
        sin f64::sin, -10.0, 10.0;
        cos f64::cos, -10.0, 10.0;
        tan f64::tan, -10.0, 10.0;
        softplus |x| x.max(0.0) + (-x.abs()).exp().ln_1p(), -10.0, 10.0;
    }
}
