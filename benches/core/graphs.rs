//! The small graphs of the paper, eagerly.

use burtorch_core::{Eager, Value};

/// Figure 1 of the paper: 10 nodes.
#[inline(always)]
pub fn tiny<'t>(t: &'t Eager<'_, f64>, a: f64, b: f64) -> [Value<'t, f64>; 3] {
    let (a, b) = (t.leaf(a), t.leaf(b));
    let c = a + b;
    let d = a * b + b.pow3();
    let e = c - d;
    let g = e.sqr() / 2.0;
    [g, a, b]
}

/// The expression of micrograd's README: 32 nodes.
#[inline(always)]
pub fn small<'t>(t: &'t Eager<'_, f64>, a: f64, b: f64) -> [Value<'t, f64>; 3] {
    let (a, b) = (t.leaf(a), t.leaf(b));
    let mut c = a + b;
    let mut d = a * b + b.pow3();
    c = c + (c + 1.0);
    c = c + ((c + 1.0) - a);
    d = d + (d * 2.0 + (b + a).relu());
    d = d + (d * 3.0 + (b - a).relu());
    let e = c - d;
    let f = e.sqr();
    let mut g = f / 2.0;
    g += 10.0 / f;
    [g, a, b]
}
