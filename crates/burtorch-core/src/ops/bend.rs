//! Curvature of ops: which of their second partials can differ from zero.
//!
//! Found by differentiating rows on dual numbers at points of their domain, not from a list of ops. Promises: an unnamed partial
//! is 0 at every point where the op has one. Does not know programs.

use super::{Arity, Dual, Op, Reduction, forward_binary, forward_unary, pull_binary, pull_unary};

/// Which second partial derivatives of an op may be nonzero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bend {
    pub(crate) xx: bool,
    pub(crate) xy: bool,
    pub(crate) yy: bool,
}

impl Bend {
    /// The second partial by operands `k` and `j`.
    pub(crate) fn of(self, k: usize, j: usize) -> bool {
        match k + j {
            0 => self.xx,
            1 => self.xy,
            _ => self.yy,
        }
    }
}

/// Determined from the op's row, at points of its domain.
pub(crate) fn bend(op: Op) -> Bend {
    if op.info().is.linear {
        return Bend { xx: false, xy: false, yy: false };
    }
    let (low, high) = op.info().domain;
    let point = |k: usize| low + (high - low) * [0.11, 0.37, 0.62, 0.93][k % 4];
    let moving = |x| Dual::new(x, 1.0);
    let resting = |x| Dual::new(x, 0.0);
    let mut found = Bend { xx: false, xy: false, yy: false };
    for k in 0..4 {
        let (x, y) = (point(k), point(k + 1 + k / 2));
        let g = resting(1.0);
        if op.info().arity == Arity::Unary {
            let slope = forward_unary(op, x).zip(pull_unary(op, 1.0, x, forward_unary(op, x).unwrap_or(x)));
            let value = slope.map_or(moving(x), |(v, d)| Dual::new(v, d));
            found.xx |= pull_unary(op, g, moving(x), value).is_none_or(|p| p.d != 0.0);
            continue;
        }
        let z = forward_binary(op, x, y).unwrap_or(x);
        let (zx, zy) = pull_binary(op, 1.0, x, y, z).unwrap_or((1.0, 1.0));
        let by_x = pull_binary(op, g, moving(x), resting(y), Dual::new(z, zx));
        let by_y = pull_binary(op, g, resting(x), moving(y), Dual::new(z, zy));
        found.xx |= by_x.is_none_or(|p| p.0.d != 0.0);
        found.xy |= by_x.is_none_or(|p| p.1.d != 0.0);
        found.yy |= by_y.is_none_or(|p| p.1.d != 0.0);
    }
    if op.info().arity == Arity::WithConstant {
        (found.xy, found.yy) = (false, false);
    }
    found
}

/// The same for a reduction, on three operands: each with itself, and with the others.
pub(crate) fn bend_of_many(op: Op) -> Bend {
    let Some(reduction) = Reduction::new(op) else {
        return Bend { xx: false, xy: true, yy: false };
    };
    if op.info().is.linear {
        return Bend { xx: false, xy: false, yy: false };
    }
    let xs: Vec<Dual<f64>> =
        [0.3, 1.7, 0.9].iter().enumerate().map(|(k, &x)| Dual::new(x, f64::from(k == 0))).collect();
    let mut out = vec![Dual::default(); 3];
    reduction.pull(Dual::new(1.0, 0.0), &xs, &mut out);
    Bend { xx: out[0].d != 0.0, xy: out[1].d != 0.0, yy: false }
}
