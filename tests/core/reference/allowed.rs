//! What IEEE arithmetic may make of a gradient: intervals with infinities and NaN, in f128.
//!
//! A partial is known up to the error that its op may have, and a sum up to its order. So a gradient is a set: the
//! numbers of an interval, whose ends may lie beyond what an f64 holds, each of the two infinities, and NaN. Sums and
//! products of sets hold whatever sums and products of their members are in f64, where overflow may strike at any step or,
//! where a multiply-add is fused or another order taken, at none. A set of one member stays one, up to rounding.

const MOST: f128 = f64::MAX as f128;
/// Half a place of an f64 near 1.
pub const UNIT: f128 = (f64::EPSILON / 2.0) as f128;
/// The least f64 above 0.
pub const LEAST: f128 = f64::from_bits(1) as f128;

#[derive(Clone, Copy, Debug)]
pub struct Allowed {
    /// The interval; empty if `low > high`.
    low: f128,
    high: f128,
    up: bool,
    down: bool,
    nan: bool,
}

impl Allowed {
    const EMPTY: Allowed = Allowed { low: 1.0, high: -1.0, up: false, down: false, nan: false };
    pub const ZERO: Allowed = Allowed { low: 0.0, high: 0.0, ..Allowed::EMPTY };

    /// A number known up to `error`.
    pub fn about(x: f128, error: f128) -> Self {
        if x.is_nan() {
            return Allowed { nan: true, ..Allowed::EMPTY };
        }
        if x.is_infinite() {
            return Allowed { up: x > 0.0, down: x < 0.0, ..Allowed::EMPTY };
        }
        Allowed { low: x - error, high: x + error, ..Allowed::EMPTY }.rounded()
    }

    fn has_numbers(self) -> bool {
        self.low <= self.high
    }

    fn positive(self) -> bool {
        self.up || self.has_numbers() && self.high > 0.0
    }

    fn negative(self) -> bool {
        self.down || self.has_numbers() && self.low < 0.0
    }

    fn zero(self) -> bool {
        self.has_numbers() && self.low <= 0.0 && self.high >= 0.0
    }

    fn infinite(self) -> bool {
        self.up || self.down
    }

    /// Values beyond the largest f64 may be infinite.
    fn rounded(mut self) -> Self {
        if self.has_numbers() {
            self.up |= self.high > MOST;
            self.down |= self.low < -MOST;
        }
        self
    }

    pub fn plus(self, other: Self) -> Self {
        let mut sum = Allowed {
            up: self.up && (other.up || other.has_numbers()) || other.up && self.has_numbers(),
            down: self.down && (other.down || other.has_numbers()) || other.down && self.has_numbers(),
            nan: self.nan || other.nan || self.up && other.down || self.down && other.up,
            ..Allowed::EMPTY
        };
        if self.has_numbers() && other.has_numbers() {
            let (low, high) = (self.low + other.low, self.high + other.high);
            // Sums of two subnormal numbers are exact.
            (sum.low, sum.high) = (low - low.abs() * UNIT, high + high.abs() * UNIT);
        }
        sum.rounded()
    }

    pub fn times(self, other: Self) -> Self {
        let (a, b) = (self, other);
        let up = a.up && b.positive() || a.down && b.negative() || b.up && a.positive() || b.down && a.negative();
        let down = a.up && b.negative() || a.down && b.positive() || b.up && a.negative() || b.down && a.positive();
        let nan = a.nan || b.nan || a.infinite() && b.zero() || b.infinite() && a.zero();
        let mut product = Allowed { up, down, nan, ..Allowed::EMPTY };
        if a.has_numbers() && b.has_numbers() {
            let all = [a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high];
            let low = all.into_iter().fold(f128::INFINITY, f128::min);
            let high = all.into_iter().fold(-f128::INFINITY, f128::max);
            let exact = |x: f128| if f128::from(x as f64) == x { 0.0 } else { x.abs() * UNIT + LEAST };
            (product.low, product.high) = (low - exact(low), high + exact(high));
        }
        product.rounded()
    }

    pub fn minus(self, other: Self) -> Self {
        let (low, high) = if other.has_numbers() { (-other.high, -other.low) } else { (other.low, other.high) };
        self.plus(Allowed { low, high, up: other.down, down: other.up, nan: other.nan })
    }

    /// The same numbers, and those as near; nothing where `error` is no number.
    pub fn widened(self, error: f128) -> Self {
        if error.is_finite() {
            Allowed { low: self.low - error, high: self.high + error, ..self }.rounded()
        } else {
            self
        }
    }

    /// The largest magnitude of its numbers.
    pub fn magnitude(self) -> f128 {
        if self.has_numbers() { self.low.abs().max(self.high.abs()) } else { 0.0 }
    }

    pub fn contains(self, found: f64) -> bool {
        match found {
            _ if found.is_nan() => self.nan,
            f64::INFINITY => self.up,
            f64::NEG_INFINITY => self.down,
            _ => self.low <= f128::from(found) && f128::from(found) <= self.high,
        }
    }
}

#[test]
fn sets_follow_ieee() {
    let exactly = |x: f64| Allowed::about(x.into(), 0.0);
    let only = |set: Allowed, x: f64| {
        let others = [0.5, 0.0, -2.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
        let same = |y: f64| y == x || y.is_nan() && x.is_nan();
        set.contains(x) && others.into_iter().all(|y| same(y) || !set.contains(y))
    };
    let infinity = f64::INFINITY;
    assert!(only(exactly(2.0).times(exactly(infinity)), infinity));
    assert!(only(exactly(0.0).times(exactly(infinity)), f64::NAN));
    assert!(only(exactly(infinity).minus(exactly(infinity)), f64::NAN));
    assert!(only(exactly(3.0).minus(exactly(infinity)), -infinity));
    assert!(only(exactly(0.25).plus(exactly(0.25)), 0.5));
    // A partial that may or may not be 0, times infinity.
    let unsure = Allowed::about(0.0, 1e-20).times(exactly(infinity));
    assert!([infinity, -infinity, f64::NAN].into_iter().all(|x| unsure.contains(x)) && !unsure.contains(0.0));
    // A product that overflows, plus an infinity of the other sign, fused or not.
    let fused = exactly(1e200).times(exactly(1e200)).plus(exactly(-infinity));
    assert!(fused.contains(-infinity) && fused.contains(f64::NAN) && !fused.contains(infinity));
}
