//! Functions with NumPy's names: statistics, products by labels, indices, masks, against loops that are written out.

use burtorch_core::array::{ArrayBuilder, ArrayProgram, Data, Dims, Element, Index, Reduce, Type, ValueId, Variable};
use burtorch_core::ops::Reduction;
use burtorch_core::{DType, Op};

use super::random::{Dice, planned};
use super::reference::{Array, positions};

const X: &[Variable] = &[Variable::Input(0)];

fn numbers(extents: &[usize], dice: &mut Dice) -> Array {
    let dims = Dims::new(extents).unwrap();
    Array::new(dims, (0..dims.size()).map(|_| dice.number()).collect())
}

/// A program of arrays of floats.
fn of_arrays(arrays: &[&Array], build: impl FnOnce(&mut ArrayBuilder, &[ValueId]) -> ValueId) -> ArrayProgram {
    let mut b = ArrayBuilder::new(DType::Float64).unwrap();
    let inputs: Vec<_> = arrays.iter().map(|x| b.input(&x.dims, Element::Float).unwrap()).collect();
    let y = build(&mut b, &inputs);
    b.finish(&[y]).unwrap()
}

fn value(arrays: &[&Array], build: impl FnOnce(&mut ArrayBuilder, &[ValueId]) -> ValueId) -> Array {
    let arguments: Vec<_> = arrays.iter().map(|&x| x.clone()).collect();
    planned(&of_arrays(arrays, build), &arguments).remove(0)
}

fn near(found: &[f64], expected: &[f64]) {
    let is_near = |(x, y): (&f64, &f64)| (x - y).abs() <= 1e-13 * (1.0 + y.abs()) || x.is_nan() && y.is_nan();
    assert!(found.len() == expected.len() && found.iter().zip(expected).all(is_near), "{found:?}, {expected:?}");
}

#[test]
fn variances_are_those_of_the_eager_graph_and_exact_for_equal_numbers() {
    let mut dice = Dice(5);
    let x = Array::new(Dims::new(&[7]).unwrap(), (0..7).map(|_| 1e8 + dice.number()).collect());
    let expected = Reduction::new(Op::VarianceBiased).unwrap().forward(&x.data);
    near(&value(&[&x], |b, x| b.var(x[0], None, 0.0, false).unwrap()).data, &[expected]);
    let equal = Array::new(Dims::new(&[2, 3]).unwrap(), vec![0.1; 6]);
    let program = of_arrays(&[&equal], |b, x| {
        let var = b.var(x[0], Some(&[-1]), 1.0, false).unwrap();
        b.reduce(Reduce::Sum, var, None, false).unwrap()
    });
    assert_eq!(planned(&program, std::slice::from_ref(&equal))[0].data, [0.0]);
    assert_eq!(planned(&program.gradient(X).unwrap(), std::slice::from_ref(&equal))[0].data, [0.0; 6]);
    // With no degrees of freedom the divisor is 0.
    let one = Array::new(Dims::new(&[1]).unwrap(), vec![3.0]);
    assert!(value(&[&one], |b, x| b.std(x[0], None, 1.0, false).unwrap()).data[0].is_nan());
}

#[test]
fn norms_and_losses_follow_their_formulas() {
    let mut dice = Dice(7);
    let x = numbers(&[3, 4], &mut dice);
    let rows: Vec<_> = x.data.chunks(4).collect();
    let found = value(&[&x], |b, x| b.layer_norm(x[0], Some(&[-1]), 1e-5).unwrap());
    let expected = rows.iter().flat_map(|row| {
        let mean = row.iter().sum::<f64>() / 4.0;
        let var = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 4.0;
        row.iter().map(move |x| (x - mean) / (var + 1e-5).sqrt())
    });
    near(&found.data, &expected.collect::<Vec<_>>());
    let found = value(&[&x], |b, x| b.rms_norm(x[0], Some(&[-1]), 1e-5).unwrap());
    let expected = rows.iter().flat_map(|row| {
        let square = row.iter().map(|x| x * x).sum::<f64>() / 4.0;
        row.iter().map(move |x| x / (square + 1e-5).sqrt())
    });
    near(&found.data, &expected.collect::<Vec<_>>());
    let found = value(&[&x], |b, x| {
        let targets = b.constant(integers(&[3]), Data::Int(vec![2, 0, 3])).unwrap();
        b.softmax_cross_entropy(x[0], targets).unwrap()
    });
    let expected = rows.iter().zip([2, 0, 3]).map(|(row, at)| row.iter().map(|x| x.exp()).sum::<f64>().ln() - row[at]);
    near(&found.data, &expected.collect::<Vec<_>>());
}

fn integers(extents: &[usize]) -> Type {
    Type { dims: Dims::new(extents).unwrap(), element: Element::Int }
}

#[test]
fn attention_is_a_mean_of_values_that_the_mask_lets_it_see() {
    let mut dice = Dice(11);
    let [q, k, v] = [[2, 3, 4], [2, 3, 4], [2, 3, 5]].map(|extents| numbers(&extents, &mut dice));
    let found = value(&[&q, &k, &v], |b, x| {
        let past = b.triangle(3, 3, 0).unwrap();
        b.attention(x[0], x[1], x[2], Some(past)).unwrap()
    });
    let mut expected = Vec::new();
    for (h, i) in (0..2).flat_map(|h| (0..3).map(move |i| (h, i))) {
        let row = |x: &Array, at: usize, n: usize| x.data[(h * 3 + at) * n..][..n].to_vec();
        let score = |j| row(&q, i, 4).iter().zip(row(&k, j, 4)).map(|(x, y)| x * y).sum::<f64>() / 2.0;
        let shares: Vec<f64> = (0..=i).map(|j| f64::exp(score(j))).collect();
        let total: f64 = shares.iter().sum();
        expected.extend((0..5).map(|d| (0..=i).map(|j| shares[j] / total * row(&v, j, 5)[d]).sum::<f64>()));
    }
    near(&found.data, &expected);
}

/// The sum of products over all labels, one position at a time.
fn einsum(inputs: &[&str], output: &str, arrays: &[&Array]) -> Array {
    let mut labels: Vec<(char, usize)> = Vec::new();
    for (term, x) in inputs.iter().zip(arrays) {
        for (label, &n) in term.chars().zip(x.dims.iter()) {
            if !labels.iter().any(|(l, _)| *l == label) {
                labels.push((label, n));
            }
        }
    }
    let at = |position: &[usize], label: char| position[labels.iter().position(|(l, _)| *l == label).unwrap()];
    let extents: Vec<_> = output.chars().map(|c| labels.iter().find(|(l, _)| *l == c).unwrap().1).collect();
    let dims = Dims::new(&extents).unwrap();
    let mut sums = vec![0.0; dims.size()];
    let place = |dims: &Dims, of: &[usize]| of.iter().zip(dims.iter()).fold(0, |k, (&i, &n)| k * n + i);
    for p in positions(&Dims::new(&labels.iter().map(|(_, n)| *n).collect::<Vec<_>>()).unwrap()) {
        let of = |term: &str| term.chars().map(|c| at(&p, c)).collect::<Vec<_>>();
        let product: f64 = inputs.iter().zip(arrays).map(|(term, x)| x.data[place(&x.dims, &of(term))]).product();
        sums[place(&dims, &of(output))] += product;
    }
    Array::new(dims, sums)
}

#[test]
fn einsum_is_a_sum_over_labels() {
    let cases = [
        "i->",
        "ii->",
        "ii->i",
        "ij->ji",
        "ij->j",
        "iji->j",
        "ij,jk->ik",
        "ij,ij->",
        "i,j->ij",
        "i,i->i",
        "bij,bjk->bik",
        "ij,kj->ik",
        "bij,bkj->bik",
        "abc,dba->cd",
        "ij,k->ij",
        "i,ij,j->",
        "ij,jk,kl->il",
        "ijj,jk->ik",
        "ab,cb,ab->c",
    ];
    let mut dice = Dice(13);
    let extent = |c: char| 2 + (c as usize + 1) % 3;
    for case in cases {
        let (inputs, output) = case.split_once("->").unwrap();
        let terms: Vec<_> = inputs.split(',').collect();
        let arrays: Vec<_> =
            terms.iter().map(|term| numbers(&term.chars().map(extent).collect::<Vec<_>>(), &mut dice)).collect();
        let arrays: Vec<_> = arrays.iter().collect();
        let found = value(&arrays, |b, x| b.einsum(case, x).unwrap());
        let expected = einsum(&terms, output, &arrays);
        assert_eq!(found.dims, expected.dims, "{case}");
        near(&found.data, &expected.data);
    }
}

#[test]
fn subscripts_that_do_not_fit_are_refused() {
    let mut b = ArrayBuilder::new(DType::Float64).unwrap();
    let x = b.input(&[2, 3], Element::Float).unwrap();
    for wrong in ["ij->ik", "ij->ii", "i->i", "ijk->k", "ij,jk->ik", "i1->i", "...ij->ij.", "ij->...ij...", ""] {
        let refusal = b.einsum(wrong, &[x]).map(|_| wrong);
        assert!(refusal.is_err(), "{wrong}");
    }
    assert!(b.einsum("...,...->", &[x, x]).is_err() && b.einsum("ij,ij->", &[x]).is_err());
    assert!(b.einsum("ii->i", &[x]).is_err() && b.tensordot(x, x, &[0], &[1]).is_err());
    assert!(b.tensordot(x, x, &[0, 0], &[0, 0]).is_err() && b.diagonal(x, 0, 1, -1).is_err());
    assert_eq!(b.row(Op::Neg, &[x]).unwrap().index(), 1);
}

#[test]
fn indices_that_name_an_element_outside_are_refused_before_a_run_or_in_it() {
    let mut b = ArrayBuilder::new(DType::Float64).unwrap();
    let x = b.input(&[2, 3], Element::Float).unwrap();
    let (i, j) = (b.input(&[2], Element::Int).unwrap(), b.input(&[2], Element::Int).unwrap());
    assert!(b.indexed(x, &[Index::At(2)]).is_err() && b.indexed(x, &[Index::At(-3)]).is_err());
    assert!(b.indexed(x, &[Index::At(0), Index::At(0), Index::New, Index::At(0)]).is_err());
    let y = b.indexed(x, &[Index::Array(i), Index::Array(j)]).unwrap();
    let program = b.finish(&[y]).unwrap();
    let mut plan = burtorch_core::array::Plan::<f64>::new(&program).unwrap();
    let mut run = |i: &[i64], j: &[i64]| {
        use burtorch_core::array::Argument::{Float, Int};
        let x = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0];
        plan.run(&[Float(&x), Int(i), Int(j)], &[])?;
        Ok::<_, burtorch_core::Error>(plan.floats(0)?.to_vec())
    };
    assert_eq!(run(&[1, -2], &[-1, 1]).unwrap(), [5.0, 1.0]);
    // The indices together denote a position inside the array.
    assert!(run(&[0, 0], &[3, 0]).is_err() && run(&[1, 0], &[0, -4]).is_err() && run(&[-3, 0], &[0, 0]).is_err());
}

#[test]
fn an_infinite_partial_of_an_unselected_element_has_no_effect() {
    let x = Array::new(Dims::new(&[2, 2]).unwrap(), vec![0.0, 4.0, 9.0, 0.0]);
    for build in [
        |b: &mut ArrayBuilder, y: ValueId| b.indexed(y, &[Index::Rest, Index::At(0)]).unwrap(),
        |b: &mut ArrayBuilder, y: ValueId| {
            let at = b.constant(integers(&[1]), Data::Int(vec![1])).unwrap();
            b.indexed(y, &[Index::Array(at), Index::At(0)]).unwrap()
        },
        |b: &mut ArrayBuilder, y: ValueId| b.diagonal(y, 1, 0, 1).unwrap(),
    ] {
        let program = of_arrays(&[&x], |b, x| {
            let root = b.row(Op::Sqrt, &[x[0]]).unwrap();
            let y = build(b, root);
            b.reduce(Reduce::Sum, y, None, false).unwrap()
        });
        let gradient = planned(&program.gradient(X).unwrap(), std::slice::from_ref(&x)).remove(0).data;
        assert!(gradient.iter().all(|g| [0.0, 0.25, 1.0 / 6.0, f64::INFINITY].contains(g)), "{gradient:?}");
        assert!(gradient[3] == 0.0);
    }
}
