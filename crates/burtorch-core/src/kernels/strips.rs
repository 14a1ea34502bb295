//! Operations on short arrays in one allocation, one after the other in one call.
//!
//! The simple algorithm: for each strip, for each number, compute. A strip is a run of contiguous numbers. Departures: the
//! level is chosen once for a whole list, and places are checked when the list is made, because a call and its checks take
//! longer than some tens of numbers. Promises: the bits of the kernels over slices. Does not know the meaning of the numbers.

use super::arithmetic::{larger, mask, reached_multiply_add, smaller, unreached};
use super::float::{KernelFloat, Pack};
use super::levels::{Target, leveled};
use super::two::{Two, by_two};

/// An operation on strips.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StripOp {
    /// The numbers of another strip.
    Copy,
    /// One number throughout.
    Fill,
    /// `-x`
    Neg,
    /// `|x|`
    Abs,
    /// The square root.
    Sqrt,
    /// `x + y`
    Add,
    /// `x - y`
    Sub,
    /// `x y`
    Mul,
    /// `x / y`
    Div,
    /// As [`super::contributions`].
    Contribution,
    /// As [`super::contributed_products`].
    Product,
    /// As [`super::multiply_adds`].
    MulAdd,
    /// As [`super::reached_multiply_adds`].
    ReachedMulAdd,
    /// As [`super::select_slices`].
    Select,
    /// `x < y` as 1 and 0.
    Less,
    /// `x <= y` as 1 and 0.
    LessEqual,
    /// `x == y` as 1 and 0.
    Equal,
    /// Whether x is a NaN.
    IsNan,
    /// Whether x is -0.0.
    IsUnreached,
    /// The larger of both; as [`super::larger_to`] with x as the existing value.
    Larger,
    /// The smaller of both.
    Smaller,
    /// As [`super::two_steps`].
    Two(Two),
    /// Numbers at listed indices.
    Gather,
    /// Adds numbers to those at listed indices.
    AddAt,
}

impl StripOp {
    /// How many strips it reads.
    pub fn arity(self) -> usize {
        match self {
            StripOp::Copy | StripOp::Fill | StripOp::Neg | StripOp::Abs | StripOp::Sqrt => 1,
            StripOp::IsNan | StripOp::IsUnreached | StripOp::Gather | StripOp::AddAt => 1,
            StripOp::MulAdd | StripOp::ReachedMulAdd | StripOp::Select | StripOp::Two(_) => 3,
            _ => 2,
        }
    }
}

/// An operation: `n` numbers from `to` on, of strips that begin at `of`.
#[derive(Clone, Copy, Debug)]
pub struct Strip {
    /// The operation.
    pub op: StripOp,
    /// How many numbers; of a gather, the numbers of its list.
    pub n: u32,
    /// Where the first result goes.
    pub to: u32,
    /// The starts of the operands; for a gather or a scattered addition also the first index in the list.
    pub of: [u32; 3],
}

/// A list of operations, in order. Each reads and writes below [`Strips::room`].
#[derive(Clone, Debug, Default)]
pub struct Strips {
    list: Vec<Strip>,
    places: Vec<u32>,
    room: usize,
}

impl Strips {
    /// The least numbers of a room.
    pub fn room(&self) -> usize {
        self.room
    }

    /// The operations.
    pub fn list(&self) -> &[Strip] {
        &self.list
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Appends an operation on strips. An operand that meets the result must begin where that does.
    pub fn push(&mut self, strip: Strip) {
        let Strip { op, n, to, of } = strip;
        assert!(!matches!(op, StripOp::Gather | StripOp::AddAt), "an operation with a list of places");
        let meets = |from: u32, n: u32| from != to && from < to + strip.n && to < from + n;
        for &from in &of[..op.arity()] {
            let n = if op == StripOp::Fill { 1 } else { n };
            assert!(op == StripOp::Fill || !meets(from, n), "an operand that meets the result");
            self.room = self.room.max((from + n) as usize);
        }
        self.room = self.room.max((to + n) as usize);
        self.list.push(strip);
    }

    /// Makes an operation write to another strip that no other operation reads afterwards; returns false if this is
    /// impossible: it accumulates, or a later operation, or its own operands, overlap the new strip.
    pub fn write_to(&mut self, at: usize, n: usize, to: usize) -> bool {
        let meets = |from: u32, len: u32| (from as usize) < to + n && to < (from + len) as usize;
        let touches = |strip: &Strip| match strip.op {
            StripOp::Gather | StripOp::AddAt => true,
            StripOp::Fill => meets(strip.to, strip.n) || meets(strip.of[0], 1),
            op => meets(strip.to, strip.n) || strip.of[..op.arity()].iter().any(|&from| meets(from, strip.n)),
        };
        let strip = self.list[at];
        if strip.n as usize != n || touches(&strip) || self.list[at + 1..].iter().any(touches) {
            return false;
        }
        self.list[at].to = to as u32;
        self.room = self.room.max(to + n);
        true
    }

    /// Appends one that collects numbers from these places.
    pub fn gather(&mut self, from: impl Iterator<Item = u32>, to: u32) {
        let first = self.places.len();
        for place in from {
            self.room = self.room.max(place as usize + 1);
            self.places.push(place);
        }
        let n = (self.places.len() - first) as u32;
        self.room = self.room.max((to + n) as usize);
        self.list.push(Strip { op: StripOp::Gather, n, to, of: [first as u32, 0, 0] });
    }

    /// Appends one that adds numbers at places to those at others: pairs of from and to.
    pub fn add_at(&mut self, pairs: impl Iterator<Item = [u32; 2]>) {
        let first = self.places.len();
        for pair in pairs {
            self.room = self.room.max(pair[0].max(pair[1]) as usize + 1);
            self.places.extend(pair);
        }
        let n = (self.places.len() - first) as u32;
        self.list.push(Strip { op: StripOp::AddAt, n, to: 0, of: [first as u32, 0, 0] });
    }
}

leveled! {
    /// Runs a list of operations on a room.
    pub fn run_strips<E>(strips: &Strips, room: &mut [E]) = run_strips_at;
}

/// Computes a strip from its operands, a vector at a time. The numbers after the last whole vector come first, as a vector that ends with
/// them: stores of parts are slow, and the strip may be one of its operands.
macro_rules! each {
    ($room:ident, $strip:ident, $v:ty, [$($x:ident = $k:literal),*] $z:expr) => {{
        let (width, n) = (<$v>::LANES, $strip.n as usize);
        let mut to = $room.add($strip.to as usize);
        $( let mut $x = $room.add($strip.of[$k] as usize).cast_const(); )*
        let (end, rest) = (to.add(n / width * width), n % width);
        let last: $v = if rest > 0 {
            $( let $x = if n > width {
                $x.add(n - width).cast::<$v>().read_unaligned()
            } else {
                <$v>::read_masked($x, <$v>::first(rest))
            }; )*
            $z
        } else {
            <$v>::of(0.0)
        };
        while to != end {
            let z: $v = {
                $( let $x = $x.cast::<$v>().read_unaligned(); )*
                $z
            };
            to.cast::<$v>().write_unaligned(z);
            to = to.add(width);
            $( $x = $x.add(width); )*
        }
        if rest > 0 {
            if n > width {
                to.add(rest).sub(width).cast::<$v>().write_unaligned(last);
            } else {
                last.write_masked(to, <$v>::first(rest));
            }
        }
    }};
}

#[inline(always)]
fn run_strips_at<E: KernelFloat, T: Target>(strips: &Strips, room: &mut [E]) {
    run_strips_by::<E, T, T::Each<E>>(strips, room);
}

#[inline(always)]
fn run_strips_by<E: KernelFloat, T: Target, V: Pack<Elem = E>>(strips: &Strips, room: &mut [E]) {
    assert!(room.len() >= strips.room, "a room smaller than its strips");
    let (room, zero) = (room.as_mut_ptr(), V::of(0.0));
    for strip in &strips.list {
        // SAFETY: `push`, `gather` and `add_at` have checked that all indices are below `strips.room`.
        unsafe {
            match strip.op {
                StripOp::Copy => each!(room, strip, V, [x = 0] x),
                StripOp::Fill => {
                    let number = V::splat(*room.add(strip.of[0] as usize));
                    each!(room, strip, V, [] number);
                }
                StripOp::Neg => each!(room, strip, V, [x = 0] - x),
                StripOp::Abs => each!(room, strip, V, [x = 0] x.abs()),
                StripOp::Sqrt => each!(room, strip, V, [x = 0] x.sqrt()),
                StripOp::Add => each!(room, strip, V, [x = 0, y = 1] x + y),
                StripOp::Sub => each!(room, strip, V, [x = 0, y = 1] x - y),
                StripOp::Mul => each!(room, strip, V, [x = 0, y = 1] x * y),
                StripOp::Div => each!(room, strip, V, [x = 0, y = 1] x / y),
                StripOp::Contribution => {
                    each!(room, strip, V, [g = 0, c = 1] V::select(unreached(g), g, c + zero));
                }
                StripOp::Product => {
                    each!(room, strip, V, [g = 0, c = 1] V::select(unreached(g), g, g * c + zero));
                }
                StripOp::MulAdd => each!(room, strip, V, [x = 0, y = 1, c = 2] T::mul_add(x, y, c)),
                StripOp::ReachedMulAdd => {
                    each!(room, strip, V, [g = 0, y = 1, c = 2] reached_multiply_add::<_, T>(g, y, c));
                }
                StripOp::Select => {
                    each!(room, strip, V, [m = 0, yes = 1, no = 2] V::select(m.is_eq(zero), no, yes));
                }
                StripOp::Less => each!(room, strip, V, [x = 0, y = 1] mask::<V>(x.is_lt(y))),
                StripOp::LessEqual => each!(room, strip, V, [x = 0, y = 1] mask::<V>(x.is_le(y))),
                StripOp::Equal => each!(room, strip, V, [x = 0, y = 1] mask::<V>(x.is_eq(y))),
                StripOp::IsNan => each!(room, strip, V, [x = 0] mask::<V>(x.is_nan())),
                StripOp::IsUnreached => each!(room, strip, V, [x = 0] mask::<V>(unreached(x))),
                StripOp::Larger => each!(room, strip, V, [x = 0, y = 1] larger(x, y)),
                StripOp::Smaller => each!(room, strip, V, [x = 0, y = 1] smaller(x, y)),
                StripOp::Two(two) => {
                    macro_rules! both {
                        (|$x:ident, $y:ident, $c:ident| $z:expr) => {
                            each!(room, strip, V, [$x = 0, $y = 1, $c = 2] $z)
                        };
                    }
                    by_two!(two, V, both);
                }
                StripOp::Gather => {
                    let places = strips.places.get_unchecked(strip.of[0] as usize..).get_unchecked(..strip.n as usize);
                    for (k, &place) in places.iter().enumerate() {
                        *room.add(strip.to as usize + k) = *room.add(place as usize);
                    }
                }
                StripOp::AddAt => {
                    let places = strips.places.get_unchecked(strip.of[0] as usize..).get_unchecked(..strip.n as usize);
                    for &[from, to] in places.as_chunks().0 {
                        let (from, to) = (room.add(from as usize), room.add(to as usize));
                        *to = *to + *from;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: usize = 600;

    fn numbers() -> Vec<f64> {
        let number = |k: usize| [-0.0, 0.0, 1.5, -2.25, f64::NAN, f64::INFINITY][k % 6] * (k % 7) as f64;
        (0..ROOM).map(number).collect()
    }

    fn bits(x: &[f64]) -> Vec<u64> {
        x.iter().map(|x| if x.is_nan() { 1 } else { x.to_bits() }).collect()
    }

    #[test]
    fn lists_of_places_are_followed_in_order() {
        let mut room = numbers();
        let mut strips = Strips::default();
        strips.gather([9, 8, 9, 2].into_iter(), 100);
        strips.add_at([[15, 300], [16, 300]].into_iter());
        strips.push(Strip { op: StripOp::Fill, n: 3, to: 200, of: [9, 0, 0] });
        run_strips(&strips, &mut room);
        let x = numbers();
        assert_eq!(bits(&room[100..104]), bits(&[x[9], x[8], x[9], x[2]]));
        assert_eq!(bits(&room[300..301]), bits(&[(x[300] + x[15]) + x[16]]));
        assert_eq!(bits(&room[199..204]), bits(&[x[199], x[9], x[9], x[9], x[203]]));
    }

    #[test]
    fn results_move_only_where_nothing_meets_them() {
        let mut strips = Strips::default();
        strips.push(Strip { op: StripOp::Add, n: 8, to: 40, of: [0, 10, 0] });
        assert!(!strips.clone().write_to(0, 8, 12), "its own operand");
        assert!(!strips.clone().write_to(0, 7, 100), "another length");
        strips.push(Strip { op: StripOp::Copy, n: 4, to: 200, of: [90, 0, 0] });
        assert!(!strips.clone().write_to(0, 8, 86), "what is read later");
        assert!(!strips.clone().write_to(0, 8, 203), "what is written later");
        assert!(strips.write_to(0, 8, 94));
        assert_eq!((strips.list()[0].to, strips.room()), (94, 204));
    }

    #[test]
    #[should_panic(expected = "meets the result")]
    fn an_operand_that_meets_the_result_is_refused() {
        Strips::default().push(Strip { op: StripOp::Copy, n: 8, to: 4, of: [0, 0, 0] });
    }
}
