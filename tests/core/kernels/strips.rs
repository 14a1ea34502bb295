//! Operations on strips of a room, and two operations in one pass, against those on slices.

use crate::support::{Float, Numbers, on_every_level};
use burtorch_core::kernels::{
    OneOfTwo, Strip, StripOp, Strips, Two, add_slices, contributed_products, contributions, divide_slices,
    equal_slices, larger_to, less_equal_slices, less_slices, magnitudes, multiply_adds, multiply_slices, nan_masks,
    negate_slice, reached_multiply_adds, run_strips, select_slices, smaller_to, square_roots, subtract_slices,
    two_steps, unreached_masks,
};

const ONES: [OneOfTwo; 6] =
    [OneOfTwo::Add, OneOfTwo::Sub, OneOfTwo::Mul, OneOfTwo::Product, OneOfTwo::Contribution, OneOfTwo::Neg];

fn ops() -> Vec<StripOp> {
    use StripOp::*;
    let mut ops = vec![Copy, Fill, Neg, Abs, Sqrt, Add, Sub, Mul, Div, Contribution, Product, MulAdd, ReachedMulAdd];
    ops.extend([Select, Less, LessEqual, Equal, IsNan, IsUnreached, Larger, Smaller]);
    for first in ONES.into_iter().filter(|first| *first != OneOfTwo::Contribution) {
        for second in ONES.into_iter().filter(|second| *second != OneOfTwo::Neg) {
            ops.extend([false, true].map(|to_right| Two(burtorch_core::kernels::Two { first, second, to_right })));
        }
    }
    ops
}

fn one_of_two<E: Float>(op: OneOfTwo, x: &[E], y: &[E]) -> Vec<E> {
    let mut z = vec![E::default(); x.len()];
    match op {
        OneOfTwo::Add => add_slices(x, y, &mut z),
        OneOfTwo::Sub => subtract_slices(x, y, &mut z),
        OneOfTwo::Mul => multiply_slices(x, y, &mut z),
        OneOfTwo::Product => contributed_products(x, y, &mut z),
        OneOfTwo::Contribution => contributions(x, y, &mut z),
        OneOfTwo::Neg => negate_slice(x, &mut z),
    }
    z
}

fn of_slices<E: Float>(op: StripOp, x: &[E], y: &[E], c: &[E]) -> Vec<E> {
    let mut z = vec![E::default(); x.len()];
    match op {
        StripOp::Copy => z.copy_from_slice(x),
        StripOp::Fill => z.fill(x[0]),
        StripOp::Neg => negate_slice(x, &mut z),
        StripOp::Abs => magnitudes(x, &mut z),
        StripOp::Sqrt => square_roots(x, &mut z),
        StripOp::Add => add_slices(x, y, &mut z),
        StripOp::Sub => subtract_slices(x, y, &mut z),
        StripOp::Mul => multiply_slices(x, y, &mut z),
        StripOp::Div => divide_slices(x, y, &mut z),
        StripOp::Contribution => contributions(x, y, &mut z),
        StripOp::Product => contributed_products(x, y, &mut z),
        StripOp::MulAdd => multiply_adds(x, y, c, &mut z),
        StripOp::ReachedMulAdd => reached_multiply_adds(x, y, c, &mut z),
        StripOp::Select => select_slices(x, y, c, &mut z),
        StripOp::Less => less_slices(x, y, &mut z),
        StripOp::LessEqual => less_equal_slices(x, y, &mut z),
        StripOp::Equal => equal_slices(x, y, &mut z),
        StripOp::IsNan => nan_masks(x, &mut z),
        StripOp::IsUnreached => unreached_masks(x, &mut z),
        StripOp::Larger => {
            z.copy_from_slice(x);
            larger_to(y, &mut z);
        }
        StripOp::Smaller => {
            z.copy_from_slice(x);
            smaller_to(y, &mut z);
        }
        StripOp::Two(Two { first, second, to_right }) => {
            let between = one_of_two(first, x, y);
            z = if to_right { one_of_two(second, c, &between) } else { one_of_two(second, &between, c) };
            let mut once = vec![E::default(); x.len()];
            two_steps(Two { first, second, to_right }, x, y, c, &mut once);
            // The sign of a NaN depends on the compiler, which may subtract instead of adding a negated number.
            let bits = |z: &[E]| z.iter().map(|&z| if is_nan(z) { None } else { Some(z.bits()) }).collect::<Vec<_>>();
            assert_eq!(bits(&z), bits(&once), "{first:?} {second:?} {to_right}");
        }
        StripOp::Gather | StripOp::AddAt => {}
    }
    z
}

fn is_nan<E: Float>(x: E) -> bool {
    let x: f64 = x.into();
    x.is_nan()
}

fn strips_are_slices<E: Float>() {
    for n in (0..=35).chain([62, 63, 64, 65, 100, 127, 128, 129, 130]) {
        let mut numbers = Numbers::new(n as u64);
        let mut room: Vec<E> = numbers.take(700);
        for (k, x) in room.iter_mut().enumerate() {
            let special = [0.0, -0.0, f64::INFINITY, f64::NAN, 1e-310];
            *x = if k % 5 == 0 { E::of(special[k / 5 % 5]) } else { *x };
        }
        let places = [3, 150, 297];
        let [x, y, c] = places.map(|at| room[at..at + n].to_vec());
        // Over the first operand, and to separate memory.
        for (op, to) in ops().into_iter().flat_map(|op| [(op, 3), (op, 445)]) {
            if op == StripOp::Fill && to == 3 || n == 0 {
                continue;
            }
            on_every_level(
                || {
                    let mut strips = Strips::default();
                    strips.push(Strip { op, n: n as u32, to: to as u32, of: places.map(|at| at as u32) });
                    let (mut room, mut expected) = (room.clone(), room.clone());
                    run_strips(&strips, &mut room);
                    expected[to..to + n].copy_from_slice(&of_slices(op, &x, &y, &c));
                    for (x, y) in room.iter().zip(&expected) {
                        assert!(x.bits() == y.bits() || is_nan(*x) && is_nan(*y), "{op:?} of {n} at {to}");
                    }
                    room[to..to + n].iter().map(|&x| if is_nan(x) { E::of(7.0) } else { x }).collect()
                },
                |_| {},
            );
        }
    }
}

#[test]
fn strips_have_the_bits_of_slices() {
    strips_are_slices::<f64>();
    strips_are_slices::<f32>();
}
