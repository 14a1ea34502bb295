//! Extremes, norms and logarithms of sums of exponentials of rows, beside plain loops: values and contributions, at ties, zeros,
//! infinities, NaN, huge and tiny numbers.

use crate::support::{Float, Numbers, on_every_level, wide};
use burtorch_core::kernels::{
    extreme_shares, larger_of_eight, log_sum_exp, log_sum_exp_shares, norm2, norm2_shares, smaller_of_eight,
};

const SIZES: [usize; 9] = [16, 17, 23, 31, 32, 64, 65, 100, 1037];
const CASES: usize = 13;

/// Ordinary numbers, or some of another kind among them.
fn row<E: Float>(n: usize, case: usize) -> Vec<E> {
    let mut numbers = Numbers::new((n * CASES + case) as u64);
    let mut x: Vec<E> = numbers.take(n);
    let least = if E::UNIT < 1e-10 { f64::from_bits(1) } else { f64::from(f32::from_bits(1)) };
    let (huge, tiny) = if E::UNIT < 1e-10 { (1e300, 1e-300) } else { (1e37, 1e-37) };
    let mut put = |numbers: &[f64]| numbers.iter().enumerate().for_each(|(k, &y)| x[(7 * k + n / 2) % n] = E::of(y));
    match case {
        1 => put(&[3.0, 3.0, -3.0, 3.0]),
        2 => put(&[f64::INFINITY]),
        3 => put(&[f64::INFINITY, f64::NEG_INFINITY, f64::INFINITY]),
        4 => put(&[f64::NEG_INFINITY; 2]),
        5 => put(&[f64::NAN]),
        6 => put(&[f64::NAN, f64::INFINITY]),
        7 => put(&[huge, -huge, 1.0]),
        8 => x.iter_mut().for_each(|x| *x = *x * E::of(tiny)),
        9 => x.iter_mut().enumerate().for_each(|(k, x)| *x = E::of(if k % 3 == 0 { 0.0 } else { -0.0 })),
        10 => x.fill(E::of(f64::NEG_INFINITY)),
        11 => x.iter_mut().enumerate().for_each(|(k, x)| *x = E::of(least * (k % 5) as f64)),
        12 => put(&[900.0, -900.0, 899.5]),
        _ => {}
    }
    x
}

/// Agreement of rounded numbers, of infinities and of NaN.
#[track_caller]
fn agrees<E: Float>(found: E, expected: f64, tolerance: f64, what: &str) {
    let wide: f64 = found.into();
    let rounded: f64 = E::of(expected).into();
    let is_near =
        (wide - expected).abs() <= tolerance * E::UNIT * expected.abs() + f64::from(f32::MIN_POSITIVE).min(1e-44);
    assert!(wide == rounded || wide.is_nan() && expected.is_nan() || is_near, "{what}: {wide}, expected {expected}");
}

/// NaN has no sign that is promised.
fn plain<E: Float>(numbers: Vec<E>) -> Vec<E> {
    numbers.into_iter().map(|x| if x.into().is_nan() { E::of(f64::NAN) } else { x }).collect()
}

fn checked<E: Float>() {
    for (n, case) in SIZES.into_iter().flat_map(|n| (0..CASES).map(move |case| (n, case))) {
        let x = row::<E>(n, case);
        let xw = wide(&x);
        let has_nan = xw.iter().any(|x| x.is_nan());
        let (g, zero) = (E::of(-1.25), E::default());
        on_every_level(
            || {
                let (mut tops, mut lows) = ([E::of(f64::NEG_INFINITY); 8], [E::of(f64::INFINITY); 8]);
                larger_of_eight(&x, &mut tops);
                smaller_of_eight(&x, &mut lows);
                let (mut shares, mut e, mut c) = (vec![zero; n], vec![zero; n], vec![zero; n]);
                let length = norm2(&x);
                norm2_shares(g, &x, length, &mut shares);
                let [log, s] = log_sum_exp(&x, &mut e);
                let alone = log_sum_exp(&x, &mut [])[0];
                assert!(alone.bits() == log.bits() || alone.into().is_nan() && log.into().is_nan());
                log_sum_exp_shares(g, &e, s, &mut c);
                plain([&tops[..], &lows, &[length, log], &shares, &c].concat())
            },
            |out| {
                let what = |name: &str| format!("{name}, {n} numbers, case {case}");
                for k in 0..8 {
                    let own = xw.iter().skip(k).step_by(8).copied();
                    let nan = own.clone().any(f64::is_nan);
                    let (top, low) =
                        (own.clone().fold(f64::NEG_INFINITY, f64::max), own.clone().fold(f64::INFINITY, f64::min));
                    agrees(out[k], if nan { f64::NAN } else { top }, 0.0, &what("largest"));
                    agrees(out[8 + k], if nan { f64::NAN } else { low }, 0.0, &what("smallest"));
                    let has = |sign: bool| own.clone().any(|x| x == 0.0 && x.is_sign_negative() == sign);
                    if !nan && top == 0.0 {
                        assert_eq!(out[k].into().is_sign_negative(), !has(false), "{}", what("sign of the largest"));
                    }
                    if !nan && low == 0.0 {
                        assert_eq!(out[8 + k].into().is_sign_negative(), has(true), "{}", what("sign of the smallest"));
                    }
                }
                let roundings = n as f64 + 8.0;
                let top = xw.iter().fold(0.0, |top: f64, x| top.max(x.abs()));
                let parts: Vec<f64> = match () {
                    () if top.is_infinite() => {
                        xw.iter().map(|x| if x.is_infinite() { x.signum() } else { 0.0 }).collect()
                    }
                    () if top == 0.0 => xw.clone(),
                    () => xw.iter().map(|x| x / top).collect(),
                };
                let length = parts.iter().map(|x| x * x).sum::<f64>().sqrt();
                let expected = if has_nan {
                    f64::NAN
                } else if top.is_infinite() {
                    top
                } else {
                    top * length
                };
                agrees(out[16], expected, roundings, &what("norm"));
                for (k, part) in parts.iter().enumerate() {
                    let share = if has_nan {
                        f64::NAN
                    } else if top == 0.0 {
                        0.0
                    } else {
                        -1.25 * (part / length)
                    };
                    agrees(out[18 + k], share, roundings, &what("share of the norm"));
                }
                let top = xw.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let e: Vec<f64> = xw.iter().map(|&x| if x == top { 1.0 } else { (x - top).exp() }).collect();
                let total: f64 = e.iter().sum();
                let log = top + total.ln();
                let slack = top.abs().max(1.0) / if log == 0.0 { 1.0 } else { log.abs() };
                agrees(out[17], if has_nan { f64::NAN } else { log }, roundings * slack, &what("log sum exp"));
                for (k, e) in e.iter().enumerate() {
                    let share = if has_nan { f64::NAN } else { -1.25 * (e / total) };
                    agrees(out[18 + n + k], share, roundings, &what("share of the exponentials"));
                }
            },
        );
    }
}

#[test]
fn rows_of_f32() {
    checked::<f32>();
}

#[test]
fn rows_of_f64() {
    checked::<f64>();
}

#[test]
fn unreached_adjoints_stay_unreached() {
    let x = row::<f64>(40, 0);
    let is_unreached = |to: &[f64]| to.iter().all(|to| to.to_bits() == 1 << 63);
    on_every_level(
        || {
            let mut to = vec![7.0; 40];
            let mut all = Vec::new();
            norm2_shares(-0.0, &x, norm2(&x), &mut to);
            all.extend_from_slice(&to);
            log_sum_exp_shares(-0.0, &x, 0.5, &mut to);
            all.extend_from_slice(&to);
            extreme_shares(-0.0, &x, x[3], 0.0, &mut to);
            all.extend_from_slice(&to);
            all
        },
        |out| assert!(is_unreached(out)),
    );
    let mut to = [7.0; 40];
    extreme_shares(3.0, &[1.0; 40], 1.0, -0.0, &mut to);
    assert!(to.iter().all(|&to| to == 3.0 / 40.0));
    extreme_shares(-3.0, &x, x[3], -0.0, &mut to);
    assert!(to.iter().zip(&x).all(|(to, y)| to.to_bits() == if *y == x[3] { -3f64 } else { -0.0 }.to_bits()));
}
