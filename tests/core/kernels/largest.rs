//! The largest numbers of vectors, beside a sort.

use burtorch_core::compress::{Client, Compressor, Count, Message, Number, Quantiser, Sparsifier};
use burtorch_core::draw::{Draw, Purpose};

use crate::support::{Float, on_every_level};

/// Many ties; many zeros; one large block; distinct numbers; infinities.
fn number(case: usize, i: usize, d: usize, draw: &mut Draw<'_>) -> f64 {
    match case {
        0 => draw.below(5) as f64 - 2.0,
        1 if draw.happens(0.99) => 0.0,
        2 if i * 20 < d => 1e3,
        4 if draw.happens(0.01) => f64::NEG_INFINITY,
        _ => draw.normal(),
    }
}

fn of<E: Number + Float>() {
    let mut draw = Draw::new(0, 0, 0, Purpose::Data);
    for (d, case) in
        [1, 2, 31, 33, 1000, 8192, 16_384, 20_001, 70_001].into_iter().flat_map(|d| (0..5).map(move |c| (d, c)))
    {
        let x: Vec<E> = (0..d).map(|i| E::of(number(case, i, d, &mut draw))).collect();
        let mut order: Vec<_> = (0..d).collect();
        order.sort_by_key(|&i| std::cmp::Reverse(x[i].magnitude()));
        for k in [1, d.div_ceil(100), d.div_ceil(10), d.div_ceil(2), d] {
            let c = Compressor::new(Sparsifier::TopK(Count::Of(k)), Quantiser::None).unwrap();
            let mut expected = order[..k].to_vec();
            expected.sort_unstable();
            on_every_level::<E>(
                || {
                    let mut message = Message::new();
                    c.compress(&x, &mut Draw::new(0, 0, 0, Purpose::Data), Client::ALONE, &mut message).unwrap();
                    assert!(
                        message.entries().map(|(i, _)| i).eq(expected.iter().copied()),
                        "{d}, case {case}, k = {k}"
                    );
                    message.entries().map(|(_, value)| value).collect()
                },
                |values| assert!(values.iter().zip(&expected).all(|(v, &i)| v.magnitude() == x[i].magnitude())),
            );
        }
    }
}

#[test]
fn the_largest_numbers_are_those_of_a_sort() {
    of::<f32>();
    of::<f64>();
}

#[test]
fn a_nan_is_an_error_wherever_it_is() {
    for d in [3usize, 1000, 20_001] {
        for at in [0, d / 2, d - 1] {
            for k in [1, d.div_ceil(3), d] {
                let mut x = vec![1.0f32; d];
                x[at] = f32::NAN;
                let c = Compressor::new(Sparsifier::TopK(Count::Of(k)), Quantiser::None).unwrap();
                let mut draw = Draw::new(0, 0, 0, Purpose::Data);
                assert!(c.compress(&x, &mut draw, Client::ALONE, &mut Message::new()).is_err());
            }
        }
    }
}
