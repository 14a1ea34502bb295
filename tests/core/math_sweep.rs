//! The long measurement behind docs/math-accuracy.md: every elementary function against MPFR at 300 bits.
//!
//! Not part of a normal test run: it needs libmpfr.so.6 at run time (loaded by name, nothing is linked). Run with
//! `SWEEP=1000000 cargo test --release -p burtorch-core --test levels -- --ignored --nocapture math_sweep::`, and
//! `ONLY=sin,cos` to choose functions.
#![allow(unsafe_code, non_camel_case_types)]

use burtorch_core::simd::Elementary;
use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int, c_long, c_void};

#[repr(C)]
struct mpfr {
    prec: c_long,
    sign: c_int,
    exp: c_long,
    limbs: *mut u64,
}

const BITS: usize = 320;
const NEAREST: c_int = 0;

unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

type One = unsafe extern "C" fn(*mut mpfr, *const mpfr, c_int) -> c_int;
type Two = unsafe extern "C" fn(*mut mpfr, *const mpfr, *const mpfr, c_int) -> c_int;
type SetD = unsafe extern "C" fn(*mut mpfr, f64, c_int) -> c_int;
type GetD = unsafe extern "C" fn(*const mpfr, c_int) -> f64;
type Shift = unsafe extern "C" fn(*mut mpfr, *const mpfr, c_long, c_int) -> c_int;
type Const = unsafe extern "C" fn(*mut mpfr, c_int) -> c_int;

/// A number of 320 bits.
struct Big {
    raw: mpfr,
    _limbs: Box<[u64; BITS / 64]>,
}

struct Library {
    handle: *mut c_void,
    symbols: HashMap<&'static str, *mut c_void>,
}

impl Library {
    fn open() -> Option<Library> {
        let name = CString::new("libmpfr.so.6").unwrap();
        // SAFETY: plain library loading; the name ends with 0.
        let handle = unsafe { dlopen(name.as_ptr(), 2) };
        (!handle.is_null()).then(|| Library { handle, symbols: HashMap::new() })
    }

    fn symbol(&mut self, name: &'static str) -> *mut c_void {
        let handle = self.handle;
        *self.symbols.entry(name).or_insert_with(|| {
            let c = CString::new(name).unwrap();
            // SAFETY: the handle is open, the name ends with 0.
            let found = unsafe { dlsym(handle, c.as_ptr()) };
            assert!(!found.is_null(), "{name}");
            found
        })
    }

    fn big(&mut self, x: f64) -> Big {
        let mut limbs = Box::new([0u64; BITS / 64]);
        let raw = mpfr { prec: BITS as c_long, sign: 1, exp: 0, limbs: limbs.as_mut_ptr() };
        let mut big = Big { raw, _limbs: limbs };
        // SAFETY: the signature is MPFR's, and the struct has the layout of MPFR's custom interface.
        unsafe {
            let set: SetD = std::mem::transmute(self.symbol("mpfr_set_d"));
            set(&mut big.raw, x, NEAREST);
        }
        big
    }

    fn one(&mut self, name: &'static str, x: &Big) -> Big {
        let mut y = self.big(0.0);
        // SAFETY: the signature is MPFR's.
        unsafe {
            let f: One = std::mem::transmute(self.symbol(name));
            f(&mut y.raw, &x.raw, NEAREST);
        }
        y
    }

    fn two(&mut self, name: &'static str, x: &Big, y: &Big) -> Big {
        let mut z = self.big(0.0);
        // SAFETY: the signature is MPFR's.
        unsafe {
            let f: Two = std::mem::transmute(self.symbol(name));
            f(&mut z.raw, &x.raw, &y.raw, NEAREST);
        }
        z
    }

    fn pi(&mut self) -> Big {
        let mut y = self.big(0.0);
        // SAFETY: the signature is MPFR's.
        unsafe {
            let f: Const = std::mem::transmute(self.symbol("mpfr_const_pi"));
            f(&mut y.raw, NEAREST);
        }
        y
    }

    fn get(&mut self, x: &Big) -> f64 {
        // SAFETY: the signature is MPFR's.
        unsafe {
            let f: GetD = std::mem::transmute(self.symbol("mpfr_get_d"));
            f(&x.raw, NEAREST)
        }
    }

    fn exact(&mut self, name: &str, x: f64, y: f64) -> Big {
        let bx = self.big(x);
        let one = self.big(1.0);
        match name {
            "exp" => self.one("mpfr_exp", &bx),
            "expm1" => self.one("mpfr_expm1", &bx),
            "log" => self.one("mpfr_log", &bx),
            "log1p" => self.one("mpfr_log1p", &bx),
            "sin" => self.one("mpfr_sin", &bx),
            "cos" => self.one("mpfr_cos", &bx),
            "tan" => self.one("mpfr_tan", &bx),
            "tan_grad" => {
                let c = self.one("mpfr_sec", &bx);
                self.two("mpfr_mul", &c, &c)
            }
            "tanh" => self.one("mpfr_tanh", &bx),
            "tanh_grad" => {
                let c = self.one("mpfr_sech", &bx);
                self.two("mpfr_mul", &c, &c)
            }
            "sigmoid" | "softplus_grad" => {
                let m = self.big(-x);
                let e = self.one("mpfr_exp", &m);
                let s = self.two("mpfr_add", &one, &e);
                self.two("mpfr_div", &one, &s)
            }
            "sigmoid_grad" => {
                let m = self.big(-x.abs());
                let e = self.one("mpfr_exp", &m);
                let s = self.two("mpfr_add", &one, &e);
                let s = self.two("mpfr_mul", &s, &s);
                self.two("mpfr_div", &e, &s)
            }
            "softplus" => {
                let m = self.big(-x.abs());
                let e = self.one("mpfr_exp", &m);
                let l = self.one("mpfr_log1p", &e);
                let p = self.big(x.max(0.0));
                self.two("mpfr_add", &p, &l)
            }
            "erf" => self.one("mpfr_erf", &bx),
            "erf_grad" => {
                let s = self.two("mpfr_mul", &bx, &bx);
                let s = self.one("mpfr_neg", &s);
                let e = self.one("mpfr_exp", &s);
                let pi = self.pi();
                let r = self.one("mpfr_rec_sqrt", &pi);
                let r = self.two("mpfr_add", &r, &r);
                self.two("mpfr_mul", &e, &r)
            }
            "normal_cdf" | "gelu" | "gelu_grad" | "normal_pdf" => {
                let two = self.big(2.0);
                let half = self.big(0.5);
                let root = self.one("mpfr_sqrt", &two);
                let z = self.two("mpfr_div", &bx, &root);
                let z = self.one("mpfr_neg", &z);
                // erfc of large numbers is practically 0 or 2, of tiny ones 1, and takes MPFR minutes.
                if x.abs() > 45.0 {
                    return match name {
                        "gelu" if x > 0.0 => bx,
                        "gelu_grad" | "normal_cdf" if x > 0.0 => one,
                        _ => self.big(0.0),
                    };
                }
                let c = if x.abs() < 1e-40 || name == "normal_pdf" { self.big(1.0) } else { self.one("mpfr_erfc", &z) };
                let cdf = self.two("mpfr_mul", &c, &half);
                let s = self.two("mpfr_mul", &z, &z);
                let s = self.one("mpfr_neg", &s);
                let e = self.one("mpfr_exp", &s);
                let pi = self.pi();
                let pi = self.two("mpfr_mul", &two, &pi);
                let r = self.one("mpfr_rec_sqrt", &pi);
                let pdf = self.two("mpfr_mul", &e, &r);
                match name {
                    "normal_cdf" => cdf,
                    "normal_pdf" => pdf,
                    "gelu" => self.two("mpfr_mul", &cdf, &bx),
                    _ => {
                        let t = self.two("mpfr_mul", &pdf, &bx);
                        self.two("mpfr_add", &cdf, &t)
                    }
                }
            }
            "atan2" => {
                let by = self.big(y);
                self.two("mpfr_atan2", &bx, &by)
            }
            "pow" => {
                let by = self.big(y);
                self.two("mpfr_pow", &bx, &by)
            }
            _ => panic!("no reference for {name}"),
        }
    }

    /// x 2^n, exactly.
    fn shift(&mut self, x: &Big, n: i64) -> Big {
        let mut y = self.big(0.0);
        // SAFETY: the signature is MPFR's.
        unsafe {
            let f: Shift = std::mem::transmute(self.symbol("mpfr_mul_2si"));
            f(&mut y.raw, &x.raw, n as c_long, NEAREST);
        }
        y
    }

    /// The error of `got` in units in the last place of a format with `digits` significand bits; an infinite result
    /// stands for the power of two after the largest number.
    fn ulps(&mut self, exact: &Big, got: f64, digits: i64) -> f64 {
        let (least, top) = if digits == 53 { (-1022, 1024) } else { (-126, 128) };
        let value = self.get(exact);
        if got.is_nan() || value.is_nan() {
            return if got.is_nan() && value.is_nan() { 0.0 } else { f64::INFINITY };
        }
        if got.is_infinite() && got.signum() == value.signum() && (value.is_infinite() || exact.raw.exp > top) {
            return 0.0;
        }
        // MPFR's exponent e means 2^(e-1) <= |x| < 2^e; 0 has an exponent below all others.
        let unit = (exact.raw.exp.max(-1 << 30) - 1).clamp(least, top - 1) - digits + 1;
        let big = if got.is_infinite() {
            let one = self.big(got.signum());
            self.shift(&one, top)
        } else {
            self.big(got)
        };
        let d = self.two("mpfr_sub", exact, &big);
        let d = self.shift(&d, -unit);
        self.get(&d).abs()
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e3779b97f4a7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d049bb133111eb);
        z ^ (z >> 31)
    }
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 * 2f64.powi(-53)
    }
    fn sign(&mut self) -> f64 {
        if self.next() & 1 == 0 { 1.0 } else { -1.0 }
    }
}

/// One function: its implementation in both types, and the points to test.
struct Case {
    name: &'static str,
    double: fn(f64, f64) -> f64,
    single: fn(f32, f32) -> f32,
    /// The interval in which the function varies most.
    span: (f64, f64),
    /// Points with a dense neighbourhood of test points, besides 0.
    near: fn(u64) -> f64,
}

/// Multiples of pi/2, small and large.
fn quadrants(n: u64) -> f64 {
    (n >> (n % 57)) as f64 * std::f64::consts::FRAC_PI_2
}

fn point(r: &mut Random, i: usize, case: &Case, single: bool) -> f64 {
    let x = match i % 5 {
        0 if single => f32::from_bits(r.next() as u32) as f64,
        0 => f64::from_bits(r.next()),
        1 | 2 => case.span.0 + (case.span.1 - case.span.0) * r.unit(),
        3 => r.sign() * (80.0 * r.unit() - 70.0).exp2(),
        _ => {
            let spread = (-50.0 * r.unit()).exp2() * r.sign();
            let n = r.next();
            (case.near)(n) * (1.0 + spread)
        }
    };
    if single { x as f32 as f64 } else { x }
}

macro_rules! case {
    ($name:ident(x), $span:expr, $near:expr) => {
        Case {
            name: stringify!($name),
            double: |x, _| Elementary::$name(x),
            single: |x, _| Elementary::$name(x),
            span: $span,
            near: $near,
        }
    };
    ($name:ident(x, y), $span:expr, $near:expr) => {
        Case {
            name: stringify!($name),
            double: |x, y| Elementary::$name(x, y),
            single: |x, y| Elementary::$name(x, y),
            span: $span,
            near: $near,
        }
    };
    ($name:ident of $inner:ident, $span:expr, $near:expr) => {
        Case {
            name: stringify!($name),
            double: |x, _| Elementary::$name(x, Elementary::$inner(x)),
            single: |x, _| Elementary::$name(x, Elementary::$inner(x)),
            span: $span,
            near: $near,
        }
    };
}

fn cases() -> Vec<Case> {
    let half_ln2 = |n| ((n % 2100) as f64 - 1050.0) * 0.5 * std::f64::consts::LN_2;
    vec![
        case!(exp(x), (-746.0, 710.0), half_ln2),
        case!(expm1(x), (-3.0, 3.0), half_ln2),
        case!(log(x), (0.0, 4.0), |_| 1.0),
        case!(tanh(x), (-1.0, 1.0), |n| (n % 40) as f64 * 0.5),
        case!(sigmoid(x), (-40.0, 40.0), half_ln2),
        case!(sigmoid_grad(x), (-40.0, 40.0), half_ln2),
        case!(log1p(x), (-1.0, 4.0), |_| -1.0),
        case!(softplus(x), (-40.0, 40.0), half_ln2),
        case!(sin(x), (-10.0, 10.0), quadrants),
        case!(cos(x), (-10.0, 10.0), quadrants),
        case!(tan(x), (-10.0, 10.0), quadrants),
        case!(tan_grad(x), (-10.0, 10.0), quadrants),
        case!(erf(x), (-6.0, 6.0), |_| 1.0),
        case!(erf_grad(x), (-28.0, 28.0), |_| 1.0),
        case!(normal_pdf(x), (-39.0, 39.0), |_| 1.0),
        case!(gelu(x), (-39.0, 10.0), |n| (n % 10) as f64 * -0.25),
        case!(gelu_grad(x), (-39.0, 10.0), |_| -0.7517915246935645),
        case!(atan2(x, y), (-4.0, 4.0), |n| (n % 10) as f64),
        case!(pow(x, y), (0.0, 40.0), |n| (n % 10) as f64),
        case!(tanh_grad of tanh, (-20.0, 20.0), |n| (n % 40) as f64 * 0.5),
    ]
}

#[test]
#[ignore = "long measurement, by hand"]
fn sweep() {
    let Some(mut lib) = Library::open() else {
        println!("libmpfr.so.6 is not here: nothing measured");
        return;
    };
    let points: usize = std::env::var("SWEEP").ok().and_then(|v| v.parse().ok()).unwrap_or(100_000);
    let only = std::env::var("ONLY").ok();
    println!("| function | f64 | at | f32 | at |\n|---|---|---|---|---|");
    for case in cases() {
        if only.as_ref().is_some_and(|o| !o.split(',').any(|n| n == case.name)) {
            continue;
        }
        let mut row = format!("| {} ", case.name);
        for single in [false, true] {
            let mut r = Random(if single { 7 } else { 3 });
            let (mut worst, mut at) = (0.0, (0.0, 0.0));
            for i in 0..points {
                let x = point(&mut r, i, &case, single);
                let y = point(&mut r, i / 5, &case, single);
                let got = if single { (case.single)(x as f32, y as f32) as f64 } else { (case.double)(x, y) };
                let exact = lib.exact(case.name, x, y);
                let e = lib.ulps(&exact, got, if single { 24 } else { 53 });
                if e > worst {
                    (worst, at) = (e, (x, y));
                }
            }
            row += &format!("| {worst:.3} | {:e}, {:e} ", at.0, at.1);
        }
        println!("{row}|");
    }
}

/// Every f32 (or every STRIDE-th) for functions of one argument, against the f64 function, whose own error is below a
/// millionth of these units.
#[test]
#[ignore = "long measurement, by hand"]
fn exhaustive_f32() {
    use burtorch_core::simd::slices;
    let stride: usize = std::env::var("STRIDE").ok().and_then(|v| v.parse().ok()).unwrap_or(1);
    let only = std::env::var("ONLY").ok();
    println!("| function | f32, all arguments | at |\n|---|---|---|");
    macro_rules! each {
        ($($name:ident)*) => {$(
            if only.as_ref().is_none_or(|o| o.split(',').any(|n| n == stringify!($name))) {
                let (worst, at) = worst_f32(stride, slices::$name::<f32>, slices::$name::<f64>);
                println!("| {} | {worst:.4} | {at:e} |", stringify!($name));
            }
        )*};
    }
    each!(exp expm1 log log1p tanh sigmoid sigmoid_grad softplus sin cos tan tan_grad erf erf_grad normal_pdf gelu gelu_grad);
}

fn worst_f32(stride: usize, single: fn(&[f32], &mut [f32]), double: fn(&[f64], &mut [f64])) -> (f64, f32) {
    const CHUNK: u64 = 1 << 14;
    let (mut worst, mut at) = (0.0, 0.0);
    let (mut y, mut exact) = (vec![0.0; CHUNK as usize], vec![0.0; CHUNK as usize]);
    for start in (0..1u64 << 32).step_by(CHUNK as usize * stride) {
        // Spread over the chunk, so that every stride covers every regime.
        let x: Vec<f32> = (0..CHUNK).map(|i| f32::from_bits((start + i * stride as u64) as u32)).collect();
        let wide: Vec<f64> = x.iter().map(|&x| x as f64).collect();
        single(&x, &mut y);
        double(&wide, &mut exact);
        for i in 0..CHUNK as usize {
            let e = ulps_f32(exact[i], y[i]);
            if e > worst {
                (worst, at) = (e, x[i]);
            }
        }
    }
    (worst, at)
}

fn ulps_f32(exact: f64, got: f32) -> f64 {
    if exact.is_nan() || got.is_nan() {
        return if exact.is_nan() && got.is_nan() { 0.0 } else { f64::INFINITY };
    }
    let top = 2f64.powi(128);
    if got.is_infinite() && exact.abs() >= top {
        return if exact.signum() == got.signum() as f64 { 0.0 } else { f64::INFINITY };
    }
    let exponent = (((exact.to_bits() >> 52) & 0x7ff) as i64 - 1023).clamp(-126, 127);
    let got = if got.is_infinite() { top.copysign(got as f64) } else { got as f64 };
    (exact - got).abs() * f64::from_bits(((1023 + 23 - exponent) as u64) << 52)
}
