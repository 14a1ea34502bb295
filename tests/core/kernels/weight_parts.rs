//! Parts of the weight gradient of a dense layer, beside the same numbers of the whole.

use std::ops::Range;

use burtorch_core::draw::{Draw, Purpose};
use burtorch_core::kernels::{Mode, WeightParts, affine_weight_grad, affine_weight_grad_parts};

use crate::support::{Float, on_every_level};

/// The gaps between the requested weights, as indices from `first` on.
fn gaps(asked: &[bool], first: u32) -> Vec<Range<u32>> {
    let mut gaps: Vec<Range<u32>> = Vec::new();
    for at in (0..asked.len() as u32).filter(|&at| !asked[at as usize]) {
        match gaps.last_mut().filter(|gap| gap.end == first + at) {
            Some(gap) => gap.end += 1,
            None => gaps.push(first + at..first + at + 1),
        }
    }
    gaps
}

fn of<E: Float>() {
    let mut draw = Draw::new(7, 0, 0, Purpose::Data);
    for (n_out, n_in, first) in [(1, 1, 0), (3, 5, 7), (9, 17, 1), (64, 33, 0), (5, 300, 100), (40, 64, 1_000_003)] {
        let mut numbers = |n: usize| (0..n).map(|_| E::of(draw.normal())).collect::<Vec<E>>();
        let (dy, x, before) = (numbers(n_out), numbers(n_in), numbers(n_out * n_in));
        // A few single weights; neighbours; all but a few; every other.
        for case in 0..5 {
            let share = [0.03, 0.2, 0.9, 0.5, 1.0][case];
            let asked: Vec<bool> =
                (0..n_out * n_in).map(|k| if case == 3 { k % 2 == 0 } else { draw.happens(share) }).collect();
            let skipped = gaps(&asked, first as u32);
            let parts = WeightParts { weights: first..first + n_out * n_in, skipped: &skipped };
            let of_asked = |all: &[E]| all.iter().zip(&asked).filter(|(_, a)| **a).map(|(g, _)| *g).collect::<Vec<E>>();
            for mode in [Mode::Set, Mode::Add] {
                let whole = || {
                    let mut all = before.clone();
                    affine_weight_grad(&dy, &x, &mut all, None, mode);
                    of_asked(&all)
                };
                let some = || {
                    let mut found = of_asked(&before);
                    affine_weight_grad_parts(&dy, &x, &parts, &mut found, mode);
                    found
                };
                let both = || whole().into_iter().chain(some()).collect();
                on_every_level::<E>(both, |both| {
                    let (whole, some) = both.split_at(both.len() / 2);
                    assert!(
                        whole.iter().map(|g| g.bits()).eq(some.iter().map(|g| g.bits())),
                        "{n_out} x {n_in}, {case}"
                    );
                });
            }
        }
    }
}

#[test]
fn contiguous_parts_have_the_bits_of_the_whole() {
    of::<f32>();
    of::<f64>();
}
