//! The product of matrices against the plain chain of multiply-adds: the same bits, for any shapes, strides, stacks and
//! starts, on every level.

use crate::support::{Float, Numbers, level_stays};
use burtorch_core::kernels::{
    DESCEND_TERMS, Finish, Matrix, MatrixMut, Start, product, product_on_threads, product_workspace_len,
};
use burtorch_core::simd::{available_levels, force_level, level};

/// Row step, column step, and step to the next matrix.
type Steps = [isize; 3];

/// A memory layout of `count` matrices of `rows x columns`, and the number of elements it spans.
fn laid_out(numbers: &mut Numbers, rows: usize, columns: usize, count: usize) -> (Steps, usize) {
    let (r, c) = (rows as isize, columns as isize);
    let steps = match numbers.next_bits() % 6 {
        0 | 1 => [c, 1, r * c],
        2 | 3 => [1, r, r * c],
        4 => [c + 3, 1, (c + 3) * r + 1],
        _ => [2 * c * count as isize, 2 * count as isize, 1],
    };
    let far = |n: usize, step: isize| n.saturating_sub(1) * step as usize;
    (steps, 1 + far(rows, steps[0]) + far(columns, steps[1]) + far(count, steps[2]))
}

struct Case<E> {
    count: usize,
    shape: [usize; 3],
    a: (Vec<E>, Steps),
    b: (Vec<E>, Steps),
    c: (Vec<E>, Steps),
    bias: Vec<E>,
    start: u64,
    finish: Finish<E>,
}

impl<E: Float> Case<E> {
    fn new(numbers: &mut Numbers, shape: [usize; 3], count: usize) -> Self {
        let [m, n, k] = shape;
        let mut of = |rows, columns| {
            let (steps, len) = laid_out(numbers, rows, columns, count);
            (numbers.take(len), steps)
        };
        let (a, b, c) = (of(m, k), of(k, n), of(m, n));
        let finish = match numbers.next_bits() % 4 {
            0 => Finish::Reached,
            1 if k <= DESCEND_TERMS => Finish::Descend(E::of(0.125) * numbers.take(1)[0]),
            _ => Finish::AsIs,
        };
        Self { count, shape, a, b, c, bias: numbers.take(m.max(n)), start: numbers.next_bits() % 5, finish }
    }

    fn start(&self) -> Start<'_, E> {
        match self.start {
            0 => Start::Number(E::default()),
            1 => Start::Number(-E::default()),
            2 => Start::Output,
            3 => Start::Rows(&self.bias[..self.shape[0]]),
            _ => Start::Columns(&self.bias[..self.shape[1]]),
        }
    }

    fn run(&self, n_threads: usize) -> Vec<E> {
        let [m, n, k] = self.shape;
        let mut c = self.c.0.clone();
        // The content of the workspace must not matter.
        let mut workspace = vec![E::of(f64::NAN); n_threads * product_workspace_len::<E>(m, n, k)];
        let a = Matrix::strided(&self.a.0, 0, m, k, self.a.1[0], self.a.1[1]).stacked(self.a.1[2]);
        let b = Matrix::strided(&self.b.0, 0, k, n, self.b.1[0], self.b.1[1]).stacked(self.b.1[2]);
        let to = MatrixMut::strided(&mut c, 0, m, n, self.c.1[0], self.c.1[1]).stacked(self.count, self.c.1[2]);
        product_on_threads(n_threads, self.start(), a, b, to, self.finish, &mut workspace);
        c
    }

    /// The product by definition.
    fn chains(&self) -> Vec<E> {
        let [m, n, k] = self.shape;
        let at = |steps: Steps, q: usize, i: usize, j: usize| {
            (q as isize * steps[2] + i as isize * steps[0] + j as isize * steps[1]) as usize
        };
        let mut c = self.c.0.clone();
        for q in 0..self.count {
            for i in 0..m {
                for j in 0..n {
                    let to = &mut c[at(self.c.1, q, i, j)];
                    let mut sum = match self.start() {
                        Start::Number(number) => number,
                        Start::Output => *to,
                        Start::Rows(bias) => bias[i],
                        Start::Columns(bias) => bias[j],
                    };
                    for p in 0..k {
                        let (x, y) = (self.a.0[at(self.a.1, q, i, p)], self.b.0[at(self.b.1, q, p, j)]);
                        sum = if level().has_fma() { x.mul_add(y, sum) } else { x * y + sum };
                    }
                    *to = match self.finish {
                        Finish::AsIs => sum,
                        Finish::Reached => sum + E::default(),
                        Finish::Descend(lr) if level().has_fma() => (-lr).mul_add(sum, *to),
                        Finish::Descend(lr) => -lr * sum + *to,
                    };
                }
            }
        }
        c
    }

    fn check(&self) {
        let _turn = level_stays();
        for &level in available_levels() {
            assert!(force_level(Some(level)));
            let is_nan = |x: &E| x.partial_cmp(x).is_none();
            let same = |x: &E, y: &E| x.bits() == y.bits() || (is_nan(x) && is_nan(y));
            let (got, want) = (self.run(1), self.chains());
            let differs = got.iter().zip(&want).position(|(x, y)| !same(x, y));
            let Self { shape, count, start, a, b, c, .. } = self;
            assert_eq!(
                differs,
                None,
                "{shape:?} x {count} of {} bytes at {}, start {start}, steps {:?} {:?} {:?}",
                size_of::<E>(),
                level.name(),
                a.1,
                b.1,
                c.1
            );
        }
        force_level(None);
    }
}

fn random<E: Float>(seed: u64, rounds: usize, top: u64) {
    let mut numbers = Numbers::new(seed);
    for _ in 0..rounds {
        let mut next = |top: u64| (numbers.next_bits() % top) as usize;
        let (shape, count) = ([next(top), next(top), next(top)], next(4));
        Case::<E>::new(&mut numbers, shape, count).check();
    }
}

#[test]
fn every_element_is_one_chain() {
    random::<f32>(1, 300, 70);
    random::<f64>(2, 300, 70);
    random::<f32>(3, 300, 20);
    random::<f64>(4, 300, 20);
}

/// Each dimension at the limits of tiles and blocks, with small or odd other dimensions.
fn edges<E: Float>() {
    let mut numbers = Numbers::new(5);
    for long in [97, 127, 129, 193, 257, 300, 513, 1030] {
        for shape in [[long, 9, 5], [9, long, 5], [5, 9, long], [1, long, 130], [long, 1, 130], [3, long, 131]] {
            Case::<E>::new(&mut numbers, shape, 1).check();
        }
    }
    for shape in [[100, 270, 140], [30, 1100, 70], [200, 130, 530], [2, 700, 600], [700, 2, 600], [430, 33, 330]] {
        for _ in 0..4 {
            Case::<E>::new(&mut numbers, shape, 1).check();
        }
    }
}

#[test]
fn blocks_do_not_show() {
    edges::<f32>();
    edges::<f64>();
}

/// Stacks of every small shape, which have loops of their own, and shapes just beyond.
fn small_stacks<E: Float>() {
    let mut numbers = Numbers::new(9);
    for m in 1..=9 {
        for n in 1..=9 {
            for k in [0, 1, 2, 3, 5, 8, 32, 33] {
                Case::<E>::new(&mut numbers, [m, n, k], 3).check();
            }
        }
    }
}

#[test]
fn small_stacks_do_not_show() {
    small_stacks::<f32>();
    small_stacks::<f64>();
}

/// Pieces of batches, of rows and of columns.
fn threads<E: Float>() {
    let mut numbers = Numbers::new(8);
    for shape in [[150, 100, 80], [70, 210, 90], [1, 3000, 300], [3000, 1, 300]] {
        for count in [1, 3] {
            let case = Case::<E>::new(&mut numbers, shape, count);
            let _turn = level_stays();
            let bits = |c: Vec<E>| c.into_iter().map(E::bits).collect::<Vec<_>>();
            let alone = bits(case.run(1));
            for n_threads in [2, 3, 8] {
                assert_eq!(alone, bits(case.run(n_threads)), "{shape:?} x {count} on {n_threads} threads");
            }
        }
    }
}

#[test]
fn threads_do_not_show() {
    threads::<f32>();
    threads::<f64>();
}

fn special<E: Float>() {
    let special = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -0.0, 0.0, 1e-30, 1e-320, 1e30, -1e30];
    let mut numbers = Numbers::new(6);
    for _ in 0..200 {
        let mut next = |top: u64| 1 + (numbers.next_bits() % top) as usize;
        let shape = [next(40), next(40), next(40)];
        let mut case = Case::<E>::new(&mut numbers, shape, 1);
        for data in [&mut case.a.0, &mut case.b.0, &mut case.c.0] {
            for _ in 0..2 {
                let (at, which) = (numbers.next_bits() as usize % data.len(), numbers.next_bits() % 9);
                data[at] = E::of(special[which as usize]);
            }
        }
        case.check();
    }
}

#[test]
fn infinities_nans_and_zeros_go_where_they_belong() {
    special::<f32>();
    special::<f64>();
}

#[test]
fn repeated_and_reversed_operands() {
    let data: Vec<f64> = Numbers::new(7).take(600);
    let mut workspace = vec![0.0; product_workspace_len::<f64>(20, 20, 20)];
    let (mut got, mut want) = (vec![0.0; 400], vec![0.0; 400]);
    // All rows of A are equal, and B is reversed.
    let a = Matrix::strided(&data, 3, 20, 20, 0, 1);
    let b = Matrix::strided(&data, 599, 20, 20, -20, -1);
    product(Start::Number(0.0), a, b, MatrixMut::by_rows(&mut got, 20, 20), Finish::AsIs, &mut workspace);
    let a: Vec<f64> = (0..400).map(|k| data[3 + k % 20]).collect();
    let b: Vec<f64> = (0..400).map(|k| data[599 - k]).collect();
    let (a, b) = (Matrix::by_rows(&a, 20, 20), Matrix::by_rows(&b, 20, 20));
    product(Start::Number(0.0), a, b, MatrixMut::by_rows(&mut want, 20, 20), Finish::AsIs, &mut workspace);
    assert_eq!(got, want);
}

#[test]
#[should_panic(expected = "a matrix must lie in its data")]
fn a_matrix_beyond_its_data_is_refused() {
    let (data, mut c) = ([0.0_f32; 11], [0.0; 9]);
    let mut workspace = vec![0.0; product_workspace_len::<f32>(3, 3, 4)];
    let (a, b) = (Matrix::by_rows(&data, 3, 4), Matrix::strided(&data, 0, 4, 3, 0, 0));
    product(Start::Number(0.0), a, b, MatrixMut::by_rows(&mut c, 3, 3), Finish::AsIs, &mut workspace);
}
