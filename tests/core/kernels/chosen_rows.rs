//! Products with rows that a list names, and sums of such rows, dense and sparse; and what looks at whole vectors.

use crate::support::{Float, LENGTHS, Numbers, Sum, on_every_level, wide};
use burtorch_core::kernels::{
    SparseRows, add_difference, add_rows, add_sparse_rows, all_finite, ask_for_rows, axpy, count_reaching, descend,
    dot, dots_of_rows, dots_of_rows_at_two, dots_of_sparse_rows, dots_of_sparse_rows_at_two,
};

const ROWS: usize = 40;

/// A list of rows, one of them repeated.
fn list() -> Vec<u32> {
    (0..23).map(|k| k * 17 % 31).chain([0]).collect()
}

fn dense<E: Float>() {
    for width in LENGTHS.into_iter().filter(|&width| width > 0).chain([300]) {
        let mut numbers = Numbers::new(width as u64);
        let (table, list) = (numbers.take::<E>(ROWS * width), list());
        let (x, y) = (numbers.take::<E>(width), numbers.take::<E>(width));
        let row = |k: usize| &table[list[k] as usize * width..][..width];
        for n in [0, 1, 2, 5, 8, 17, list.len()] {
            let products = || {
                ask_for_rows(&table, &list[..n], width);
                let [mut a, mut b, mut c] = [0; 3].map(|_| vec![E::of(9.0); n]);
                dots_of_rows(&table, &list, &x, &mut a);
                dots_of_rows_at_two(&table, &list, &x, &y, &mut b, &mut c);
                let mut sum = y.clone();
                add_rows(&table, &list[..n], &a, &mut sum);
                let mut alone = y.clone();
                for k in 0..n {
                    let alone = [dot(row(k), &x), dot(row(k), &x), dot(row(k), &y)];
                    assert_eq!([a[k], b[k], c[k]].map(E::bits), alone.map(E::bits));
                }
                (0..n).for_each(|k| axpy(a[k], row(k), &mut alone));
                assert!(sum.iter().zip(&alone).all(|(a, b)| a.bits() == b.bits()));
                a.extend(sum);
                a
            };
            on_every_level(products, |_| {});
        }
    }
}

fn sparse<E: Float>() {
    let d = 40;
    let mut numbers = Numbers::new(7);
    // Rows of 0, 1, ... numbers, in different columns.
    let columns = |i: usize| (0..d as u32).filter(move |&c| (c as usize * (2 * i + 3)) % d < i);
    let ends = (0..ROWS).scan(0, |end, i| {
        *end += columns(i).count();
        Some(*end)
    });
    let starts: Vec<usize> = std::iter::once(0).chain(ends).collect();
    let all: Vec<u32> = (0..ROWS).flat_map(columns).collect();
    let values = numbers.take::<E>(all.len());
    let rows = SparseRows::new(starts, all, values, d).unwrap();
    let (x, y, list) = (numbers.take::<E>(d), numbers.take::<E>(d), list());
    let (xw, yw) = (wide(&x), wide(&y));
    for n in [0, 1, 7, list.len()] {
        let found = || {
            let [mut a, mut b, mut c] = [0; 3].map(|_| vec![E::of(9.0); n]);
            dots_of_sparse_rows(&rows, &list, &x, &mut a);
            dots_of_sparse_rows_at_two(&rows, &list, &x, &y, &mut b, &mut c);
            let mut sum = y.clone();
            add_sparse_rows(&rows, &list[..n], &x[..n], &mut sum);
            [a, b, c, sum].concat()
        };
        on_every_level(found, |out| {
            let terms = |k: usize, x: &[f64]| {
                let (columns, values) = rows.row(list[k] as usize);
                columns.iter().zip(values).map(|(&c, &v)| v.into() * x[c as usize]).collect::<Vec<_>>()
            };
            for k in 0..n {
                Sum::of(terms(k, &xw)).check(out[k], "a product");
                assert_eq!(out[k].bits(), out[n + k].bits());
                Sum::of(terms(k, &yw)).check(out[2 * n + k], "a product with the second point");
            }
            for j in 0..d {
                let of = |k: usize| {
                    let (columns, values) = rows.row(list[k] as usize);
                    columns.binary_search(&(j as u32)).map_or(0.0, |at| values[at].into() * xw[k])
                };
                Sum::of(std::iter::once(yw[j]).chain((0..n).map(of))).check(out[3 * n + j], "a sum of rows");
            }
        });
    }
    let new = |starts: &[usize], column| SparseRows::new(starts.to_vec(), vec![column], vec![E::of(1.0)], 3);
    assert!(new(&[0, 1], 2).is_some() && new(&[0, 1], 3).is_none() && new(&[0, 2], 0).is_none());
    assert!(new(&[1, 0, 1], 0).is_none());
}

fn whole<E: Float>() {
    for n in LENGTHS {
        let x = Numbers::new(n as u64).take::<E>(n);
        for least in [1e-30, 0.5, 1.0, 3.0].map(E::of) {
            let expected = wide(&x).iter().filter(|x| x.abs() >= least.into()).count();
            on_every_level(|| vec![count_reaching(&x, least)], |out| assert_eq!(out[0].into(), expected as f64));
        }
        let finite = |x: &[E]| E::of(f64::from(u8::from(all_finite(x))));
        let most = vec![E::of(f64::from(f32::MAX)); n];
        on_every_level(|| vec![finite(&x), finite(&most)], |out| assert!(out.iter().all(|&x| x.into() == 1.0)));
        for k in 0..n {
            for wrong in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                let mut x = x.clone();
                x[k] = E::of(wrong);
                assert!(!all_finite(&x));
                assert_eq!(count_reaching(&x, E::of(5.0)).into(), 1.0);
            }
        }
    }
}

#[test]
fn listed_rows_have_the_bits_of_single_ones() {
    dense::<f32>();
    dense::<f64>();
}

#[test]
fn sparse_rows_are_multiplied_and_added() {
    sparse::<f32>();
    sparse::<f64>();
}

#[test]
fn whole_vectors_are_looked_at() {
    whole::<f32>();
    whole::<f64>();
}

fn ends_of_steps<E: Float>() {
    for n in LENGTHS.into_iter().chain([300, 1000]) {
        let mut numbers = Numbers::new(n as u64);
        let [x, y, base, g] = [0; 4].map(|_| numbers.take::<E>(n));
        let a = E::of(0.37);
        let once = || {
            let mut found = g.clone();
            add_difference(a, &x, &y, &base, &mut found);
            let mut next = vec![E::of(9.0); n];
            assert!(descend(a, &found, &x, &mut next));
            found.extend(next);
            found
        };
        let check = |found: &[E]| {
            let mut expected = g.clone();
            axpy(a, &x, &mut expected);
            axpy(-a, &y, &mut expected);
            axpy(E::of(1.0), &base, &mut expected);
            let next: Vec<E> = expected.iter().zip(&x).map(|(&g, &x)| x - a * g).collect();
            assert!(found.iter().zip(expected.iter().chain(&next)).all(|(a, b)| a.bits() == b.bits()), "n = {n}");
        };
        on_every_level(once, check);
        for wrong in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            for at in (0..n).step_by(n.div_ceil(40).max(1)) {
                let mut g = g.clone();
                g[at] = E::of(wrong);
                assert!(!descend(a, &g, &x, &mut vec![a; n]), "{wrong} at {at} of {n}");
            }
        }
    }
}

#[test]
fn ends_of_steps_have_the_bits_of_their_parts() {
    ends_of_steps::<f32>();
    ends_of_steps::<f64>();
}
