use super::*;

fn numbers(n: usize, seed: usize) -> Vec<f64> {
    (0..n).map(|i| ((i * 7919 + seed * 104729) % 10007) as f64 / 5003.0 - 1.0).collect()
}

fn times(x: &[f64], y: &[f64], m: usize, k: usize, n: usize) -> Vec<f64> {
    (0..m * n).map(|at| (0..k).map(|p| x[at / n * k + p] * y[p * n + at % n]).sum()).collect()
}

fn far(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max)
}

fn transposed(x: &[f64], m: usize, n: usize) -> Vec<f64> {
    (0..m * n).map(|at| x[at % m * n + at / m]).collect()
}

const SIZES: [usize; 9] = [0, 1, 2, 3, 17, 64, 65, 100, 150];

#[test]
fn factors_multiply_to_the_matrix() {
    for n in SIZES {
        let a = numbers(n * n, n);
        let mut room = vec![0.0; factor_workspace_len::<f64>(n, n)];
        let (mut packed, mut permutation) = (a.clone(), vec![0; n]);
        lu(n, &mut packed, &mut permutation, &mut room);
        let part = |of: &dyn Fn(usize, usize) -> f64| (0..n * n).map(|at| of(at / n, at % n)).collect::<Vec<f64>>();
        let l = part(&|i, j| if i == j { 1.0 } else { f64::from(u8::from(i > j)) * packed[i * n + j] });
        let u = part(&|i, j| f64::from(u8::from(i <= j)) * packed[i * n + j]);
        let rows: Vec<f64> = permutation.iter().flat_map(|&i| a[i as usize * n..][..n].to_vec()).collect();
        assert!(far(&times(&l, &u, n, n, n), &rows) <= 1e-13 * n as f64 && l.iter().all(|x| x.abs() <= 1.0), "{n}");

        let mut square = times(&a, &transposed(&a, n, n), n, n, n);
        (0..n).for_each(|i| square[i * n + i] += 1.0);
        let mut root = square.clone();
        assert!(cholesky(n, &mut root, &mut room));
        assert!(far(&times(&root, &transposed(&root, n, n), n, n, n), &square) <= 1e-13 * (n * n) as f64, "{n}");
    }
}

#[test]
fn columns_of_q_are_orthonormal() {
    for n in SIZES {
        for m in [n, n + 1, n + 70] {
            let a = numbers(m * n, n);
            let mut room = vec![0.0; factor_workspace_len::<f64>(m, n)];
            let (mut q, mut r) = (vec![0.5; m * n], vec![0.5; n * n]);
            qr(m, n, &mut a.clone(), &mut q, &mut r, &mut room);
            assert!(far(&times(&q, &r, m, n, n), &a) <= 1e-13 * (1 + n) as f64, "{m} {n}");
            let mut product = times(&transposed(&q, m, n), &q, n, m, n);
            (0..n).for_each(|i| product[i * n + i] -= 1.0);
            assert!(far(&product, &vec![0.0; n * n]) <= 1e-13 * (1 + n) as f64, "{m} {n}");
            assert!((0..n).all(|i| r[i * n..i * n + i].iter().all(|&x| x == 0.0)));
        }
    }
}

#[test]
fn solutions_solve_and_have_the_bits_of_single_right_sides() {
    for n in SIZES {
        let mut a = numbers(n * n, n);
        (0..n).for_each(|i| a[i * n + i] += 2.0 * n as f64);
        for case in 0..8 {
            let triangle = Triangle { upper: case & 1 > 0, transposed: case & 2 > 0, unit: case & 4 > 0 };
            let kept = |i: usize, j: usize| if triangle.upper { i < j } else { i > j };
            // Scaled so that a unit diagonal is as well conditioned.
            let scale = if triangle.unit { 0.5 / n as f64 } else { 1.0 };
            let of: Vec<f64> = a.iter().map(|x| x * scale).collect();
            let full: Vec<f64> = (0..n * n)
                .map(|at| match (at / n, at % n) {
                    (i, j) if i == j => {
                        if triangle.unit {
                            1.0
                        } else {
                            of[at]
                        }
                    }
                    (i, j) => f64::from(u8::from(kept(i, j))) * of[at],
                })
                .collect();
            let full = if triangle.transposed { transposed(&full, n, n) } else { full };
            let b = numbers(n * 5, 3);
            let mut room = vec![0.0; factor_workspace_len::<f64>(n, 5)];
            let mut x = b.clone();
            solve_triangular(triangle, n, 5, &of, &mut x, &mut room);
            assert!(far(&times(&full, &x, n, n, 5), &b) < 1e-12, "{n} {triangle:?}");
            for column in 0..5 {
                let mut one: Vec<f64> = (0..n).map(|i| b[i * 5 + column]).collect();
                solve_triangular(triangle, n, 1, &of, &mut one, &mut room);
                assert!((0..n).all(|i| one[i].to_bits() == x[i * 5 + column].to_bits()), "{n} {triangle:?}");
            }
        }
    }
}

#[test]
fn singular_matrices_are_reported() {
    let mut room = vec![0.0; factor_workspace_len::<f64>(3, 3)];
    let mut a = vec![1.0, 2.0, 3.0, 2.0, 4.0, 6.0, 1.0, 0.0, 1.0];
    let mut permutation = [0; 3];
    assert_eq!(lu(3, &mut a, &mut permutation, &mut room), 1.0);
    assert_eq!((permutation, a[8]), ([1, 2, 0], 0.0));
    assert!(!cholesky(2, &mut [1.0, 2.0, 2.0, 1.0], &mut room));
    assert!(!cholesky(1, &mut [f64::NAN], &mut room));
}
