//! Values, refusals, memory: what a plan computes, what is refused, and that nothing changes then.

use burtorch_core::array::{
    Argument, ArrayBuilder, ArrayOp, Comparison, Data, Dims, Element, Plan, Reduce, Shared, Slice, ValueId, Variable,
    View,
};
use burtorch_core::simd::{available_levels, force_level};
use burtorch_core::{DType, Error, Op};
use std::sync::Arc;

fn builder() -> ArrayBuilder {
    ArrayBuilder::new(DType::Float64).unwrap()
}

#[test]
fn a_refused_instruction_changes_nothing() {
    let mut b = builder();
    let x = b.input(&[2, 3], Element::Float).unwrap();
    let y = b.input(&[4], Element::Float).unwrap();
    let i = b.input(&[2], Element::Int).unwrap();
    let before = b.row(Op::Neg, &[x]).unwrap().index();
    let slice = |start, step, count| Slice { start, step, count };
    let refusals: Vec<Error> = vec![
        b.row(Op::Add, &[x, y]).unwrap_err(),
        b.row(Op::Add, &[x]).unwrap_err(),
        b.row(Op::ReduceSum, &[x]).unwrap_err(),
        b.matmul(x, y).unwrap_err(),
        b.reduce(Reduce::Sum, x, Some(&[2]), false).unwrap_err(),
        b.reduce(Reduce::Sum, x, Some(&[0, -2]), false).unwrap_err(),
        b.reshape(x, &[4]).unwrap_err(),
        b.transpose(x, &[0, 0]).unwrap_err(),
        b.slice(x, &[slice(0, 1, 3)]).unwrap_err(),
        b.slice(x, &[slice(1, -1, 3)]).unwrap_err(),
        b.slice(x, &[slice(2, 1, 1)]).unwrap_err(),
        b.concatenate(&[x, y], 0).unwrap_err(),
        b.concatenate(&[], 0).unwrap_err(),
        b.take(x, y, 0).unwrap_err(),
        b.take(x, i, 5).unwrap_err(),
        b.index(x, 2).unwrap_err(),
        b.stack(&[x, y], 0).unwrap_err(),
        b.softmax(x, 7).unwrap_err(),
        b.broadcast_to(x, Dims::new(&[3, 2]).unwrap()).unwrap_err(),
        b.push(ArrayOp::Select, &[x, x, x]).unwrap_err(),
        b.push(ArrayOp::Row(burtorch_core::array::Row::new(Op::Exp).unwrap()), &[i]).unwrap_err(),
        b.input(&[usize::MAX, 2], Element::Float).unwrap_err(),
    ];
    for refusal in refusals {
        let is_told = matches!(refusal, Error::Unsupported { .. } | Error::Broadcast { .. });
        assert!(is_told || refusal.to_string().contains("found"), "{refusal}");
    }
    let after = b.row(Op::Neg, &[x]).unwrap().index();
    assert_eq!(after, before + 1);
    assert!(ArrayBuilder::new(DType::Float16).is_err());
    let mut other = builder();
    for _ in 0..100 {
        other.literal(1.0).unwrap();
    }
    let foreign = other.literal(2.0).unwrap();
    assert!(b.row(Op::Neg, &[foreign]).is_err() && b.convert(foreign, Element::Int).is_err());
    assert!(b.finish(&[foreign]).is_err());
}

#[test]
fn empty_arrays_reduce_as_in_numpy() {
    let mut b = builder();
    let x = b.input(&[0, 3], Element::Float).unwrap();
    let sum = b.reduce(Reduce::Sum, x, Some(&[0]), false).unwrap();
    let prod = b.reduce(Reduce::Prod, x, None, false).unwrap();
    let none = b.reduce(Reduce::Max, x, Some(&[1]), false).unwrap();
    let refused = b.reduce(Reduce::Max, x, Some(&[0]), false).unwrap_err();
    assert_eq!(refused, Error::EmptyReduction { op: "max" });
    let mut plan = Plan::<f64>::new(&b.finish(&[sum, prod, none]).unwrap()).unwrap();
    plan.run(&[Argument::Float(&[])], &[]).unwrap();
    assert_eq!(plan.floats(0).unwrap(), [0.0; 3]);
    assert_eq!((plan.floats(1).unwrap(), plan.floats(2).unwrap()), (&[1.0][..], &[][..]));
}

#[test]
fn integers_and_masks_keep_their_type() {
    let mut b = builder();
    let i = b.input(&[4], Element::Int).unwrap();
    let m = b.input(&[4], Element::Mask).unwrap();
    let two = b.push(ArrayOp::Integer(2), &[]).unwrap();
    let (quotient, rest) = (b.row(Op::FloorDivide, &[i, two]).unwrap(), b.row(Op::Remainder, &[i, two]).unwrap());
    let total = b.reduce(Reduce::Sum, i, None, false).unwrap();
    let real = b.row(Op::Div, &[i, two]).unwrap();
    let best = b.arg_extreme(i, 0, true).unwrap();
    let chosen = b.where_(m, i, rest).unwrap();
    let small = b.compare(Comparison::Less, &[i, two]).unwrap();
    let outputs = [quotient, rest, total, real, best, chosen, small];
    assert_eq!(b.type_of(real).element, Element::Float);
    let program = b.finish(&outputs).unwrap();
    assert!(program.vjp(&[Variable::Input(0)]).is_err());
    let mut plan = Plan::<f64>::new(&program).unwrap();
    plan.run(&[Argument::Int(&[-3, 5, 5, 2]), Argument::Mask(&[true, false, true, false])], &[]).unwrap();
    assert_eq!(plan.ints(0).unwrap(), [-2, 2, 2, 1]);
    assert_eq!(plan.ints(1).unwrap(), [1, 1, 1, 0]);
    assert_eq!(plan.ints(2).unwrap(), [9]);
    assert_eq!(plan.floats(3).unwrap(), [-1.5, 2.5, 2.5, 1.0]);
    assert_eq!(plan.ints(4).unwrap(), [1]);
    assert_eq!(plan.ints(5).unwrap(), [-3, 1, 5, 0]);
    assert_eq!(plan.floats(6).unwrap(), [1.0, 0.0, 0.0, 0.0]);
    assert!(plan.ints(6).is_err() && plan.floats(0).is_err() && plan.floats(7).is_err());
}

#[test]
fn a_refused_run_has_no_results() {
    let mut b = builder();
    let x = b.input(&[3], Element::Float).unwrap();
    let i = b.input(&[2], Element::Int).unwrap();
    let y = b.take(x, i, 0).unwrap();
    let mut plan = Plan::<f64>::new(&b.finish(&[y]).unwrap()).unwrap();
    assert!(plan.floats(0).is_err());
    let x = [1.0, 2.0, 3.0];
    plan.run(&[Argument::Float(&x), Argument::Int(&[-1, 0])], &[]).unwrap();
    assert_eq!(plan.floats(0).unwrap(), [3.0, 1.0]);
    assert!(plan.run(&[Argument::Float(&x)], &[]).is_err());
    assert!(plan.run(&[Argument::Float(&x[..2]), Argument::Int(&[0, 0])], &[]).is_err());
    assert!(plan.run(&[Argument::Int(&[1, 2, 3]), Argument::Int(&[0, 0])], &[]).is_err());
    // A call refused before its start keeps the results.
    assert_eq!(plan.floats(0).unwrap(), [3.0, 1.0]);
    let error = plan.run(&[Argument::Float(&x), Argument::Int(&[0, 3])], &[]).unwrap_err();
    assert_eq!(error.to_string(), "index must be inside of an axis of 3, found 3");
    assert!(plan.floats(0).is_err());
    assert!(Plan::<f32>::new(&builder().finish(&[]).unwrap()).is_err());
}

/// A program with all kinds of ops, of 40 x 70 numbers.
fn everything(dtype: DType) -> burtorch_core::array::ArrayProgram {
    let mut b = ArrayBuilder::new(dtype).unwrap();
    let x = b.input(&[40, 70], Element::Float).unwrap();
    let t = b.transpose(x, &[1, 0]).unwrap();
    let exp = b.row(Op::Exp, &[t]).unwrap();
    let product = b.matmul(x, exp).unwrap();
    let soft = b.softmax(product, 1).unwrap();
    let norm = b.reduce(Reduce::Norm2, x, Some(&[0]), true).unwrap();
    let share = b.row(Op::Div, &[x, norm]).unwrap();
    let top = b.reduce(Reduce::Max, share, Some(&[1]), false).unwrap();
    let sums = b.cumsum(x, 0).unwrap();
    let power = b.row_with(Op::PowConstant, exp, 1.3).unwrap();
    let mut total = b.literal(0.0).unwrap();
    for v in [soft, top, sums, power, share] {
        let v = b.row(Op::Sin, &[v]).unwrap();
        let v = b.reduce(Reduce::Sum, v, None, false).unwrap();
        total = b.row(Op::Add, &[total, v]).unwrap();
    }
    b.finish(&[total]).unwrap()
}

#[test]
fn every_level_has_the_same_bits() {
    let program = everything(DType::Float64).value_and_gradient(&[Variable::Input(0)]).unwrap();
    let narrow = everything(DType::Float32).value_and_gradient(&[Variable::Input(0)]).unwrap();
    let x: Vec<f64> = (0..2800).map(|k| ((k * 7919 % 1009) as f64 - 500.0) / 311.0).collect();
    let y: Vec<f32> = x.iter().map(|&x| x as f32).collect();
    let mut bits = Vec::new();
    for level in available_levels().iter().filter(|level| level.has_fma()) {
        assert!(force_level(Some(*level)));
        let mut plan = Plan::<f64>::new(&program).unwrap();
        plan.run(&[Argument::Float(&x)], &[]).unwrap();
        let mut narrow = Plan::<f32>::new(&narrow).unwrap();
        narrow.run(&[Argument::Float(&y)], &[]).unwrap();
        let wide: Vec<u64> = plan.floats(1).unwrap().iter().map(|x| x.to_bits()).collect();
        let narrow: Vec<u32> = narrow.floats(1).unwrap().iter().map(|x| x.to_bits()).collect();
        bits.push((wide, narrow));
    }
    force_level(None);
    assert!(bits.windows(2).all(|pair| pair[0] == pair[1]));
    // Both types must agree.
    for (wide, narrow) in bits.iter().flat_map(|(wide, narrow)| wide.iter().zip(narrow)) {
        let (wide, narrow) = (f64::from_bits(*wide), f64::from(f32::from_bits(*narrow)));
        assert!((wide - narrow).abs() <= 2e-3 * (1.0 + wide.abs()), "{wide} and {narrow}");
    }
}

#[test]
fn values_with_disjoint_lifetimes_share_memory() {
    let chain = |n: usize, use_views: bool| {
        let mut b = builder();
        let mut x = b.input(&[50, 50], Element::Float).unwrap();
        for _ in 0..n {
            x = b.row(Op::Tanh, &[x]).unwrap();
            x = if use_views { b.transpose(x, &[1, 0]).unwrap() } else { x };
            x = b.cumsum(x, 0).unwrap();
        }
        Plan::<f64>::new(&b.finish(&[x]).unwrap()).unwrap().bytes()
    };
    assert_eq!(chain(3, false), chain(30, false));
    assert_eq!(chain(4, true), chain(30, true));
}

#[test]
fn elements_taken_one_by_one_cost_no_copies() {
    // The reverse pass adds to one array in place: 400 slices of an array of 400 take 400 steps and one buffer.
    let mut b = builder();
    let n = 400;
    let x = b.input(&[n], Element::Float).unwrap();
    let mut total = b.literal(0.0).unwrap();
    for k in 0..n {
        let part: ValueId = b.index(x, k).unwrap();
        let part = b.row_with(Op::MulByConstant, part, k as f64).unwrap();
        total = b.row(Op::Add, &[total, part]).unwrap();
    }
    let program = b.finish(&[total]).unwrap().gradient(&[Variable::Input(0)]).unwrap();
    let mut plan = Plan::<f64>::new(&program).unwrap();
    assert!(plan.bytes() < 200_000, "{} bytes", plan.bytes());
    plan.run(&[Argument::Float(&vec![1.0; n])], &[]).unwrap();
    assert!(plan.floats(0).unwrap().iter().enumerate().all(|(k, g)| *g == k as f64));
}

#[test]
fn constants_are_shared_and_masks_are_constants_too() {
    let mut b = builder();
    let dims = Dims::new(&[2, 2]).unwrap();
    let constant = |data| ArrayOp::Const(dims, Shared(Arc::new(data)));
    let x = b.push(constant(Data::F64(vec![1.0, 2.0, 3.0, 4.0])), &[]).unwrap();
    let m = b.push(constant(Data::Mask(vec![true, false, false, true])), &[]).unwrap();
    assert!(b.push(constant(Data::F64(vec![1.0])), &[]).is_err());
    assert!(b.push(constant(Data::F32(vec![1.0; 4])), &[]).is_err());
    let negative = b.row(Op::Neg, &[x]).unwrap();
    let y = b.where_(m, x, negative).unwrap();
    let y = b.view(y, View::Permute([1, 0].into())).unwrap();
    let mut plan = Plan::<f64>::new(&b.finish(&[y, m]).unwrap()).unwrap();
    plan.run(&[], &[]).unwrap();
    assert_eq!(plan.floats(0).unwrap(), [1.0, -3.0, -2.0, 4.0]);
    assert_eq!(plan.floats(1).unwrap(), [1.0, 0.0, 0.0, 1.0]);
}
