//! Linear algebra: solutions against residuals, derivatives to order three against differences and against the other mode,
//! batches, singular matrices, CPU levels.

use burtorch_core::array::{
    Argument, ArrayBuilder, ArrayOp, ArrayProgram, Element, Plan, Reduce, Shared, ValueId, Variable,
};
use burtorch_core::kernels::Triangle;
use burtorch_core::simd::{available_levels, force_level};
use burtorch_core::{DType, Op};
use std::sync::Arc;

use super::random::Dice;

fn program(shapes: &[&[usize]], build: impl FnOnce(&mut ArrayBuilder, &[ValueId]) -> Vec<ValueId>) -> ArrayProgram {
    let mut b = ArrayBuilder::new(DType::Float64).unwrap();
    let inputs: Vec<_> = shapes.iter().map(|shape| b.input(shape, Element::Float).unwrap()).collect();
    let outputs = build(&mut b, &inputs);
    b.finish(&outputs).unwrap()
}

fn run(program: &ArrayProgram, arguments: &[&[f64]]) -> Vec<Vec<f64>> {
    let mut plan = Plan::<f64>::new(program).unwrap();
    let arguments: Vec<_> = arguments.iter().map(|x| Argument::Float(x)).collect();
    plan.run(&arguments, &[]).unwrap();
    (0..plan.outputs().len()).map(|k| plan.floats(k).unwrap().to_vec()).collect()
}

fn numbers(n: usize, seed: u64) -> Vec<f64> {
    let mut dice = Dice(seed);
    (0..n).map(|_| dice.number() / 2.0).collect()
}

/// A matrix that needs pivoting, with a large diagonal in permuted order.
fn matrix(n: usize, seed: u64) -> Vec<f64> {
    let mut a = numbers(n * n, seed);
    (0..n).for_each(|i| a[i * n + (i + 1) % n.max(1)] += 2.0 + n as f64 / 4.0);
    a
}

fn times(a: &[f64], x: &[f64], n: usize, m: usize) -> Vec<f64> {
    (0..n * m).map(|at| (0..n).map(|k| a[at / m * n + k] * x[k * m + at % m]).sum()).collect()
}

fn far(x: &[f64], y: &[f64]) -> f64 {
    assert_eq!(x.len(), y.len());
    x.iter().zip(y).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max)
}

const SIZES: [usize; 7] = [0, 1, 2, 3, 64, 65, 100];

#[test]
fn solutions_solve_and_inverses_invert() {
    for n in SIZES {
        let (a, y) = (matrix(n, 5), numbers(n * 3, 7));
        let p = program(&[&[n, n], &[n, 3], &[n]], |b, v| {
            let (d, [sign, log]) = (b.det(v[0]).unwrap(), b.slogdet(v[0]).unwrap());
            vec![b.solve(v[0], v[1]).unwrap(), b.solve(v[0], v[2]).unwrap(), b.inv(v[0]).unwrap(), d, sign, log]
        });
        let found = run(&p, &[&a, &y, &y[..n]]);
        assert!(far(&times(&a, &found[0], n, 3), &y) < 1e-12);
        assert!(far(&times(&a, &found[1], n, 1), &y[..n]) < 1e-12);
        let eye: Vec<f64> = (0..n * n).map(|at| f64::from(u8::from(at / n == at % n))).collect();
        assert!(far(&times(&a, &found[2], n, n), &eye) < 1e-11);
        let (det, again) = (found[3][0], found[4][0] * found[5][0].exp());
        assert!((det - again).abs() <= 1e-12 * det.abs(), "{n}: {det} {again}");
        assert!(n > 0 || det == 1.0);
    }
}

#[test]
fn least_squares_have_normal_residuals() {
    for (m, n) in [(1, 1), (5, 3), (3, 5), (100, 70), (70, 100), (64, 64)] {
        let (a, y) = (numbers(m * n, 3), numbers(m, 4));
        let p = program(&[&[m, n], &[m]], |b, v| {
            let x = b.lstsq(v[0], v[1]).unwrap();
            let fit = b.matmul(v[0], x).unwrap();
            let rest = b.row(Op::Sub, &[v[1], fit]).unwrap();
            let turned = b.transpose(v[0], &[1, 0]).unwrap();
            let [q, r] = b.qr(v[0]).unwrap();
            let product = b.matmul(q, r).unwrap();
            vec![b.matmul(turned, rest).unwrap(), rest, product]
        });
        let found = run(&p, &[&a, &y]);
        assert!(far(&found[0], &vec![0.0; n]) < 1e-11, "{m} {n}");
        assert!(m > n || far(&found[1], &vec![0.0; m]) < 1e-11, "{m} {n}");
        assert!(far(&found[2], &a) < 1e-12, "{m} {n}");
    }
}

/// Each function as a scalar, of a matrix (n, n) and a vector.
fn functions(n: usize) -> Vec<(&'static str, ArrayProgram)> {
    let upper = Triangle { upper: true, ..Triangle::default() };
    let lower = Triangle { transposed: true, unit: true, ..Triangle::default() };
    type Build = fn(&mut ArrayBuilder, ValueId, ValueId, [Triangle; 2]) -> Vec<ValueId>;
    let all: [(&'static str, Build); 9] = [
        ("solve", |b, a, y, _| vec![b.solve(a, y).unwrap()]),
        ("inv", |b, a, _, _| vec![b.inv(a).unwrap()]),
        ("det", |b, a, _, _| vec![b.det(a).unwrap()]),
        ("slogdet", |b, a, _, _| vec![b.slogdet(a).unwrap()[1]]),
        ("cholesky", |b, a, _, _| {
            let t = b.transpose(a, &[1, 0]).unwrap();
            let square = b.matmul(a, t).unwrap();
            vec![b.cholesky(square).unwrap()]
        }),
        ("lower triangle", |b, a, _, _| {
            let t = b.transpose(a, &[1, 0]).unwrap();
            let square = b.matmul(a, t).unwrap();
            vec![b.push(ArrayOp::Cholesky, &[square]).unwrap()]
        }),
        ("qr", |b, a, _, _| b.qr(a).unwrap().to_vec()),
        ("triangles", |b, a, y, [u, l]| {
            let x = b.triangular_solve(u, a, y).unwrap();
            let scaled = b.row_with(Op::MulByConstant, a, 0.1).unwrap();
            vec![b.triangular_solve(l, scaled, x).unwrap()]
        }),
        ("factors", |b, a, _, _| vec![b.push_all(ArrayOp::Lu, &[a]).unwrap()[0]]),
    ];
    all.into_iter()
        .map(|(name, build)| {
            let f = program(&[&[n, n], &[n]], |b, v| {
                let mut total = b.literal(0.0).unwrap();
                for (k, r) in build(b, v[0], v[1], [upper, lower]).into_iter().enumerate() {
                    // Each element has its own weight.
                    let size = b.type_of(r).dims.size();
                    let flat = b.reshape(r, &[size]).unwrap();
                    let one = b.literal(1.0 + k as f64).unwrap();
                    let ones = b.broadcast_to(one, b.type_of(flat).dims).unwrap();
                    let weights = b.cumsum(ones, 0).unwrap();
                    let weights = b.row(Op::Sin, &[weights]).unwrap();
                    let part = b.row(Op::Mul, &[flat, weights]).unwrap();
                    let part = b.reduce(Reduce::Sum, part, None, false).unwrap();
                    total = b.row(Op::Add, &[total, part]).unwrap();
                }
                vec![total]
            });
            (name, f)
        })
        .collect()
}

const BOTH: &[Variable] = &[Variable::Input(0), Variable::Input(1)];

/// A scalar made from a gradient.
fn summed(program: &ArrayProgram) -> ArrayProgram {
    let mut b = ArrayBuilder::new(DType::Float64).unwrap();
    let inputs: Vec<_> = program.input_types().iter().map(|ty| b.input(&ty.dims, ty.element).unwrap()).collect();
    let all = b.push_all(ArrayOp::Call(Shared(Arc::new(program.clone()))), &inputs).unwrap();
    let mut total = b.literal(0.0).unwrap();
    for v in all {
        let part = b.row(Op::Sqr, &[v]).unwrap();
        let part = b.reduce(Reduce::Sum, part, None, false).unwrap();
        total = b.row(Op::Add, &[total, part]).unwrap();
    }
    b.finish(&[total]).unwrap()
}

#[test]
fn derivatives_to_order_three_agree_with_differences_and_forward_mode() {
    for n in [1, 2, 3, 5] {
        let (a, y) = (matrix(n, 11), numbers(n, 12));
        let (da, dy) = (numbers(n * n, 13), numbers(n, 14));
        for (name, f) in functions(n) {
            let mut f = f;
            for order in 1..=3 {
                let gradient = f.gradient(BOTH).unwrap();
                let found = run(&gradient, &[&a, &y]);
                let along: f64 = found[0].iter().zip(&da).chain(found[1].iter().zip(&dy)).map(|(g, d)| g * d).sum();
                let forward = run(&f.jvp(BOTH).unwrap(), &[&a, &y, &da, &dy])[1][0];
                let scale: f64 =
                    found[0].iter().zip(&da).chain(found[1].iter().zip(&dy)).map(|(g, d)| (g * d).abs()).sum();
                assert!((along - forward).abs() <= 1e-9 * (1.0 + scale), "{name} {n} order {order}: {along} {forward}");
                let h = 1e-5;
                let at = |h: f64| {
                    let moved = |x: &[f64], d: &[f64]| x.iter().zip(d).map(|(x, d)| x + h * d).collect::<Vec<f64>>();
                    run(&f, &[&moved(&a, &da), &moved(&y, &dy)])[0][0]
                };
                let difference = (8.0 * (at(h) - at(-h)) - (at(2.0 * h) - at(-2.0 * h))) / (12.0 * h);
                let far = (along - difference).abs();
                assert!(far <= 1e-6 * (1.0 + scale), "{name} {n} order {order}: {along} {difference}");
                f = summed(&gradient);
            }
        }
    }
}

#[test]
fn gradients_above_a_block_agree_with_forward_mode() {
    for n in [64, 65, 100] {
        let (a, y) = (matrix(n, 21), numbers(n, 22));
        let (da, dy) = (numbers(n * n, 23), numbers(n, 24));
        // A determinant of this size is not informative.
        for (name, f) in functions(n).into_iter().filter(|(name, _)| !["det", "triangles"].contains(name)) {
            let found = run(&f.gradient(BOTH).unwrap(), &[&a, &y]);
            let pairs = || found[0].iter().zip(&da).chain(found[1].iter().zip(&dy));
            let (along, scale): (f64, f64) =
                (pairs().map(|(g, d)| g * d).sum(), pairs().map(|(g, d)| (g * d).abs()).sum());
            let forward = run(&f.jvp(BOTH).unwrap(), &[&a, &y, &da, &dy])[1][0];
            assert!((along - forward).abs() <= 1e-9 * (1.0 + scale), "{name} {n}: {along} {forward}");
        }
    }
}

#[test]
fn batches_have_the_bits_of_single_matrices_and_shared_matrices_are_factored_once() {
    let n = 5;
    for (name, f) in functions(n) {
        let gradient = f.value_and_gradient(BOTH).unwrap();
        let many = gradient.batched(&[Some(0), Some(0)], 3).unwrap();
        let (a, y): (Vec<_>, Vec<_>) = ((0..3).flat_map(|k| matrix(n, 31 + k)).collect(), numbers(3 * n, 40));
        let found = run(&many, &[&a, &y]);
        for row in 0..3 {
            let alone = run(&gradient, &[&a[row * n * n..][..n * n], &y[row * n..][..n]]);
            for (all, alone) in found.iter().zip(&alone) {
                let part = &all[row * alone.len()..][..alone.len()];
                assert!(
                    part.iter().zip(alone).all(|(x, y)| x.to_bits() == y.to_bits() || far(part, alone) < 1e-12),
                    "{name}"
                );
            }
        }
    }
    let solve = program(&[&[n, n], &[n]], |b, v| vec![b.solve(v[0], v[1]).unwrap()]);
    let shared = solve.batched(&[None, Some(0)], 3).unwrap();
    let (a, y) = (matrix(n, 50), numbers(3 * n, 51));
    let found = run(&shared, &[&a, &y]);
    for row in 0..3 {
        let alone = run(&solve, &[&a, &y[row * n..][..n]]);
        assert!(found[0][row * n..][..n].iter().zip(&alone[0]).all(|(x, y)| x.to_bits() == y.to_bits()));
    }
}

#[test]
fn singular_matrices_follow_ieee_and_are_named() {
    let p = program(&[&[2, 2, 2], &[2]], |b, v| {
        let [sign, log] = b.slogdet(v[0]).unwrap();
        vec![b.det(v[0]).unwrap(), sign, log, b.solve(v[0], v[1]).unwrap()]
    });
    let mut plan = Plan::<f64>::new(&p).unwrap();
    let arguments = [&[1.0, 2.0, 2.0, 4.0, 2.0, 0.0, 0.0, 3.0][..], &[1.0, 1.0]];
    plan.run(&arguments.map(Argument::Float), &[]).unwrap();
    assert_eq!(plan.singular(), Some("solve"));
    assert_eq!(plan.floats(0).unwrap(), [0.0, 6.0]);
    assert_eq!(plan.floats(1).unwrap(), [0.0, 1.0]);
    assert_eq!(plan.floats(2).unwrap()[0], f64::NEG_INFINITY);
    // The other matrix of the batch is unaffected.
    assert!(!plan.floats(3).unwrap()[0].is_finite());
    assert_eq!(plan.floats(3).unwrap()[2..], [0.5, 1.0 / 3.0]);
    // So is its gradient, if the singular matrix is not selected.
    let chosen = program(&[&[2, 2, 2], &[2]], |b, v| {
        let x = b.solve(v[0], v[1]).unwrap();
        let x = b.index(x, 1).unwrap();
        vec![b.reduce(Reduce::Sum, x, None, false).unwrap()]
    });
    let found = run(&chosen.gradient(BOTH).unwrap(), &arguments);
    assert_eq!(found[0][..4], [0.0; 4]);
    assert!(found.iter().flatten().all(|x| x.is_finite()));
    let definite = program(&[&[2, 2]], |b, v| vec![b.cholesky(v[0]).unwrap()]);
    let mut plan = Plan::<f64>::new(&definite).unwrap();
    plan.run(&[Argument::Float(&[1.0, 2.0, 2.0, 1.0])], &[]).unwrap();
    assert_eq!(plan.singular(), Some("cholesky"));
    plan.run(&[Argument::Float(&[4.0, 2.0, 2.0, 5.0])], &[]).unwrap();
    assert_eq!((plan.singular(), plan.floats(0).unwrap()), (None, &[2.0, 0.0, 1.0, 2.0][..]));
}

#[test]
fn an_ill_conditioned_system_has_a_small_residual() {
    // Hilbert's matrix with 10 rows, of condition number 1.6e13.
    let n = 10;
    let a: Vec<f64> = (0..n * n).map(|at| 1.0 / (1.0 + (at / n + at % n) as f64)).collect();
    let y = vec![1.0; n];
    let p = program(&[&[n, n], &[n]], |b, v| vec![b.solve(v[0], v[1]).unwrap(), b.lstsq(v[0], v[1]).unwrap()]);
    for x in run(&p, &[&a, &y]) {
        let size = x.iter().map(|x| x.abs()).fold(0.0, f64::max);
        assert!(far(&times(&a, &x, n, 1), &y) <= 1e-15 * n as f64 * size, "{x:?}");
    }
}

#[test]
fn wrong_shapes_are_refused() {
    let mut b = ArrayBuilder::new(DType::Float64).unwrap();
    let (a, y) = (b.input(&[2, 3], Element::Float).unwrap(), b.input(&[4], Element::Float).unwrap());
    let square = b.input(&[2, 2], Element::Float).unwrap();
    for refused in [b.solve(a, y), b.inv(a), b.det(y), b.cholesky(a), b.solve(square, y), b.lstsq(a, y), b.inv(y)] {
        let refusal = refused.unwrap_err().to_string();
        assert!(refusal.contains("found") || refusal.contains("do not broadcast"), "{refusal}");
    }
    assert!(b.qr(y).is_err() && b.push_all(ArrayOp::Qr, &[a]).is_err());
}

#[test]
fn factors_have_the_same_bits_on_every_level() {
    let n = 100;
    let (a, y) = (matrix(n, 61), numbers(n, 62));
    let mut bits: Vec<Vec<u64>> = Vec::new();
    for level in available_levels().iter().filter(|level| level.has_fma()) {
        assert!(force_level(Some(*level)));
        let mut all = Vec::new();
        for (_, f) in functions(n) {
            all.extend(run(&f.gradient(BOTH).unwrap(), &[&a, &y]).iter().flatten().map(|x| x.to_bits()));
        }
        bits.push(all);
    }
    force_level(None);
    assert!(bits.windows(2).all(|pair| pair[0] == pair[1]));
}
