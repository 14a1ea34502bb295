//! Embedding rows: gathered, and gradients scattered back.

use crate::support::{Float, Numbers, on_every_level};
use burtorch_core::kernels::{gather_rows, gather_rows_lanes, scatter_add_rows, scatter_add_rows_lanes};

const ROWS: usize = 7;

fn rows<E: Float, const L: usize>() {
    for (positions, width) in [(1, 24), (3, 5), (16, 64), (2, 1), (1, 16)] {
        let mut numbers = Numbers::new((positions * 100 + width) as u64);
        let (n, table) = (positions * width, numbers.take::<E>(ROWS * width));
        let indices: Vec<u32> = (0..positions * L).map(|_| (numbers.next_bits() % ROWS as u64) as u32).collect();
        let grad = numbers.take::<E>(n * L);
        let gathered = || {
            let mut out = vec![E::of(9.0); n * L];
            gather_rows_lanes::<E, L>(&table, &indices, &mut out);
            out
        };
        on_every_level(gathered, |out| {
            for (l, indices) in indices.chunks(positions).enumerate() {
                let mut one = vec![E::of(9.0); n];
                gather_rows(&table, indices, &mut one);
                for k in 0..n {
                    let row = indices[k / width] as usize;
                    assert_eq!(one[k].bits(), table[row * width + k % width].bits());
                    assert_eq!(one[k].bits(), out[k * L + l].bits());
                }
            }
        });
        let scattered = || {
            let mut total = table.clone();
            scatter_add_rows_lanes::<E, L>(E::of(1.0), &grad, &indices, &mut total);
            total
        };
        on_every_level(scattered, |total| {
            let mut plain = table.clone();
            for p in 0..positions {
                for l in 0..L {
                    for k in p * width..(p + 1) * width {
                        let at = indices[l * positions + p] as usize * width + k % width;
                        plain[at] = plain[at] + grad[k * L + l];
                    }
                }
            }
            for k in 0..ROWS * width {
                assert_eq!(plain[k].bits(), total[k].bits());
            }
        });
        // One sample at a time.
        let indices = &indices[..positions];
        let one: Vec<E> = grad.iter().step_by(L).copied().collect();
        let scattered = || {
            let mut total = table.clone();
            scatter_add_rows(E::of(1.0), &one, indices, &mut total);
            total
        };
        on_every_level(scattered, |total| {
            let mut plain = table.clone();
            for k in 0..n {
                let at = indices[k / width] as usize * width + k % width;
                plain[at] = plain[at] + one[k];
            }
            for k in 0..ROWS * width {
                assert_eq!(plain[k].bits(), total[k].bits());
            }
        });
    }
}

#[test]
fn rows_are_gathered_and_scattered() {
    rows::<f32, 4>();
    rows::<f32, 8>();
    rows::<f32, 16>();
    rows::<f32, 64>();
    rows::<f64, 8>();
}

#[test]
#[should_panic = "range"]
fn an_index_past_the_table_is_refused() {
    gather_rows(&[1.0_f32; 4], &[2], &mut [0.0; 2]);
}
