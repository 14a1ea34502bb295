//! Trainable numbers that outlive the tape: layout, names, initial values, freezing, sharing, memory.

use burtorch_core::{Error, Graph, Init, Op, Operands, Parameters, Slice, View};
use proptest::prelude::*;

#[test]
fn tensors_lie_one_after_another_by_rows() {
    let mut params = Parameters::<f32>::new(0);
    let a = params.tensor(&[2, 3], Some("a"), Init::Constant(1.0), true).unwrap();
    let b = params.tensor(&[4], None, Init::Constant(2.0), true).unwrap();
    let c = params.tensor(&[2, 2, 2], Some("c"), Init::Constant(3.0), true).unwrap();
    assert_eq!((params.len(), params.n_trainable()), (18, 18));
    let places = [a.slice(), b.slice(), c.slice()].map(Slice::range);
    assert_eq!(places, [0..6, 6..10, 10..18]);
    assert_eq!(a.row(1).unwrap().range(), 3..6);
    assert_eq!(c.row(1).unwrap().range(), 14..18);
    assert_eq!((a.row(2), a.shape().dims(), a.shape().n()), (None, &[2, 3][..], 6));
    assert_eq!(params.values(), [vec![1.0; 6], vec![2.0; 4], vec![3.0; 8]].concat());
    assert_eq!(
        (params.values_of(b.slice()).unwrap(), params.grads_of(b.slice()).unwrap()),
        (&[2.0; 4][..], &[0.0; 4][..])
    );
    assert_eq!(params.bytes(), (18 * 4, 18 * 4));
}

#[cfg(feature = "labels")]
#[test]
fn names_are_unique_and_a_refused_tensor_changes_nothing() {
    let mut params = Parameters::<f64>::new(0);
    let w = params.tensor(&[2], Some("w"), Init::He, true).unwrap();
    let before = params.values().to_vec();
    assert_eq!(params.tensor(&[2], Some("w"), Init::He, true), Err(Error::DuplicateName { name: "w".into() }));
    for dims in [&[][..], &[0], &[1, 2, 3, 4, 5], &[usize::MAX], &[1 << 20, 1 << 20]] {
        assert!(matches!(params.tensor(dims, Some("x"), Init::He, true), Err(Error::BadArgument { .. })), "{dims:?}");
    }
    for init in [
        Init::Constant(f64::NAN),
        Init::Uniform(1.0, 1.0),
        Init::Uniform(0.0, f64::INFINITY),
        Init::Normal(0.0, -1.0),
        Init::Normal(f64::NAN, 1.0),
    ] {
        assert!(matches!(params.tensor(&[2], Some("x"), init, true), Err(Error::BadArgument { .. })), "{init:?}");
    }
    assert_eq!((params.values(), params.named("w")), (&before[..], Ok(w)));
    assert_eq!(params.named("x"), Err(Error::NoSuchName { name: "x".into() }));
    params.tensor(&[2], Some("v"), Init::He, false).unwrap();
    assert_eq!(params.names().map(|(name, _)| name).collect::<Vec<_>>(), ["v", "w"]);
}

#[test]
fn a_seed_decides_all_initial_values() {
    let build = |seed| {
        let mut params = Parameters::<f64>::new(seed);
        for init in [Init::Glorot, Init::Normal(1.0, 2.0), Init::HeNormal, Init::Uniform(-3.0, 5.0), Init::FanIn] {
            params.tensor(&[5, 7], None, init, true).unwrap();
        }
        params.values().to_vec()
    };
    assert_eq!(build(7), build(7));
    assert_ne!(build(7), build(8));
    // These numbers are equal on every machine.
    let mut params = Parameters::<f64>::new(0);
    let t = params.tensor(&[2], None, Init::Uniform(0.0, 1.0), true).unwrap();
    let first = params.values_of(t.slice()).unwrap()[0];
    assert!((0.0..1.0).contains(&first));
}

#[test]
fn initial_values_have_the_promised_bounds_and_moments() {
    let (fan_out, fan_in) = (300usize, 200usize);
    let sum = (fan_in + fan_out) as f64;
    let fan_in_ = fan_in as f64;
    let cases = [
        (Init::Glorot, (6.0 / sum).sqrt(), 0.0, 2.0 / sum),
        (Init::GlorotNormal, f64::INFINITY, 0.0, 2.0 / sum),
        (Init::He, (6.0 / fan_in_).sqrt(), 0.0, 2.0 / fan_in_),
        (Init::HeNormal, f64::INFINITY, 0.0, 2.0 / fan_in_),
        (Init::FanIn, 1.0 / fan_in_.sqrt(), 0.0, 1.0 / (3.0 * fan_in_)),
        (Init::Uniform(-1.0, 3.0), 3.0, 1.0, 16.0 / 12.0),
        (Init::Normal(-2.0, 0.5), f64::INFINITY, -2.0, 0.25),
    ];
    for (init, bound, mean, variance) in cases {
        let mut params = Parameters::<f64>::new(11);
        params.tensor(&[fan_out, fan_in], None, init, true).unwrap();
        let (xs, n) = (params.values(), (fan_in * fan_out) as f64);
        let found_mean = xs.iter().sum::<f64>() / n;
        let found_variance = xs.iter().map(|x| (x - found_mean).powi(2)).sum::<f64>() / n;
        // Five standard errors of the mean; 5 % of the variance is more than ten standard errors.
        assert!((found_mean - mean).abs() < 5.0 * (variance / n).sqrt(), "{init:?}: mean {found_mean}");
        assert!((found_variance / variance - 1.0).abs() < 0.05, "{init:?}: variance {found_variance}");
        let largest = xs.iter().fold(0.0f64, |m, x| m.max(x.abs()));
        assert!(largest <= bound, "{init:?}: {largest} is beyond {bound}");
        assert!(bound.is_infinite() || largest > 0.99 * bound, "{init:?}: {largest} is far from {bound}");
    }
    assert_eq!(Init::from_name("glorot"), Some(Init::Glorot));
    assert_eq!(Init::from_name("xavier"), None);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn freezing_agrees_with_a_plain_model(steps in prop::collection::vec((any::<bool>(), 0usize..40, 0usize..41), 0..40)) {
        let mut params = Parameters::<f32>::new(0);
        let all = params.tensor(&[40], None, Init::He, true).unwrap().slice();
        let mut model = [true; 40];
        for (freeze, from, to) in steps {
            let Some(slice) = all.slice(from, to) else { continue };
            params.grads_mut()[from..to].fill(1.0);
            if freeze {
                params.freeze(slice).unwrap();
                prop_assert!(params.grads()[from..to].iter().all(|&g| g == 0.0), "a frozen gradient is 0");
            } else {
                params.unfreeze(slice).unwrap();
            }
            model[from..to].fill(!freeze);
            prop_assert!((0..40).all(|k| params.is_trainable(k) == model[k]));
            prop_assert_eq!(params.n_trainable(), model.iter().filter(|&&t| t).count());
            let mut seen = [false; 40];
            params.for_each_trainable(|range| seen[range].fill(true));
            prop_assert_eq!(seen, model);
            for (from, to) in [(0, 40), (from, to), (from / 2, from), (to, 40)] {
                if from < to {
                    prop_assert_eq!(params.all_trainable(from..to), model[from..to].iter().all(|&t| t));
                    prop_assert_eq!(params.any_trainable(from..to), model[from..to].iter().any(|&t| t));
                }
            }
            // Ascending, disjoint, and nonempty.
            prop_assert!(params.frozen().iter().all(|r| !r.is_empty()));
            prop_assert!(params.frozen().windows(2).all(|w| w[0].end < w[1].start));
        }
    }
}

/// `y = W x + b` twice (block and inner products), and a parameter node, with some numbers frozen.
fn gradients_with(frozen: &[std::ops::Range<usize>], when: When) -> (Vec<f64>, Vec<f64>) {
    let mut params = Parameters::<f64>::new(5);
    let all = params.tensor(&[9], None, Init::Normal(0.0, 1.0), true).unwrap().slice();
    let (w, b) = (all.slice(0, 6).unwrap(), all.slice(6, 9).unwrap());
    let freeze = |params: &mut Parameters<'_, f64>, on: bool| {
        for range in frozen {
            let slice = all.slice(range.start, range.end).unwrap();
            if on { params.freeze(slice) } else { params.unfreeze(slice) }.unwrap();
        }
    };
    freeze(&mut params, when != When::After);
    let mut graph = Graph::<f64>::new();
    let x = graph.vector(&[0.5, -2.0]).unwrap();
    let y = graph.affine(&[&params], &[View::from(x)], w, Some(b)).unwrap();
    let p = graph.parameter(&params, w, 3).unwrap();
    // The block's input consists only of parameters.
    let z = graph.affine(&[&params], &[View::from(b.slice(0, 1).unwrap()), p.into()], w, None).unwrap();
    let views = [View::from(w.slice(2, 4).unwrap()), b.into()];
    let list = [x.first(), p, y.first(), z.get(2).unwrap(), x.first()];
    let dot = graph.inner_product(Operands::Views(&views), Operands::List(&list), Some(p), &[&params]).unwrap();
    let sum =
        graph.reduce(Op::ReduceSumOfSquares, Operands::Views(&[y.into(), z.into(), views[0]]), &[&params]).unwrap();
    let root = graph.binary_op(Op::Mul, dot, sum).unwrap();
    match when {
        When::Before => {}
        When::After => freeze(&mut params, true),
        When::Thawed => freeze(&mut params, false),
    }
    graph.backward_with(root, 1.0, &mut [params.gradients()]).unwrap();
    (params.grads().to_vec(), (0..2).map(|k| graph.grad(x.get(k).unwrap()).unwrap()).collect())
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum When {
    Before,
    After,
    Thawed,
}

#[test]
#[allow(clippy::single_range_in_vec_init)]
fn a_frozen_number_gets_nothing_and_changes_nothing_for_the_others() {
    let (free, free_x) = gradients_with(&[], When::Before);
    assert!(free.iter().all(|&g| g != 0.0));
    for frozen in [&[0..1][..], &[3..4], &[1..5], &[0..6], &[6..9], &[0..9], &[7..8, 2..3], &[5..7]] {
        for when in [When::Before, When::After, When::Thawed] {
            let (found, found_x) = gradients_with(frozen, when);
            assert_eq!(found_x, free_x, "inputs, with {frozen:?} {when:?}");
            for (k, (&found, &free)) in found.iter().zip(&free).enumerate() {
                let is_frozen = when != When::Thawed && frozen.iter().any(|r| r.contains(&k));
                let wanted = if is_frozen { 0.0 } else { free };
                assert!((found - wanted).abs() <= 1e-12 * free.abs(), "{k}: {found}, {wanted}, {frozen:?} {when:?}");
            }
        }
    }
}

#[test]
fn graphs_share_parameters_and_a_graph_reads_several() {
    let mut one = Parameters::<f64>::new(1);
    let mut two = Parameters::<f64>::new(2);
    let u = one.tensor(&[2], None, Init::Constant(3.0), true).unwrap();
    let v = two.tensor(&[2], None, Init::Constant(5.0), true).unwrap();
    let mut graphs = [Graph::<f64>::new(), Graph::<f64>::new()];
    for (k, graph) in graphs.iter_mut().enumerate() {
        let (x, y) = (View::from(u.slice()), View::from(v.slice()));
        let (x, y) = if k == 0 { (x, y) } else { (y, x) };
        let dot = graph.inner_product(Operands::Views(&[x]), Operands::Views(&[y]), None, &[&one, &two]).unwrap();
        assert_eq!(graph.value(dot), Ok(30.0));
        // In any order, but all of them are needed.
        assert_eq!(graph.backward_with(dot, 1.0, &mut [one.gradients()]), Err(Error::MissingParameters));
        assert_eq!(graph.backward(dot), Err(Error::MissingParameters));
        graph.backward_with(dot, 1.0, &mut [two.gradients(), one.gradients()]).unwrap();
        graph.clear().unwrap();
        assert!(graph.stores().is_empty());
        let p = graph.parameter(&two, v.slice(), 1).unwrap();
        graph.backward_with(p, 0.5, &mut [two.gradients()]).unwrap();
    }
    assert_eq!((one.grads(), two.grads()), (&[10.0, 10.0][..], &[6.0, 7.0][..]));
    one.zero_grad();
    assert_eq!((one.grads(), one.values()), (&[0.0, 0.0][..], &[3.0, 3.0][..]));
}

#[test]
fn tensors_of_other_parameters_are_refused_without_effect() {
    let mut graph = Graph::<f64>::new();
    let mut own = Parameters::<f64>::new(0);
    let w = own.tensor(&[2, 2], None, Init::He, true).unwrap();
    let x = graph.vector(&[1.0, 2.0]).unwrap();
    let other = Parameters::<f64>::new(0);
    assert!(graph.parameter(&other, w.slice(), 0).is_err());
    assert!(matches!(graph.parameter(&own, w.slice(), 4), Err(Error::OutOfRange { found: 4, max: 3, .. })));
    assert_eq!(graph.affine(&[&other], &[x.into()], w.slice(), None), Err(Error::MissingParameters));
    let views = [View::from(x), View::from(w.slice())];
    assert_eq!(graph.reduce(Op::ReduceSum, Operands::Views(&views), &[&other]), Err(Error::MissingParameters));
    // The first operand registers its parameters, the second fails: the graph must remove them again.
    let bad = [View::from(burtorch_core::NodeId::from_index(99)), views[0], x.slice(0, 1).unwrap().into()];
    let rows = [View::from(w.slice())];
    assert!(graph.inner_product(Operands::Views(&rows), Operands::Views(&bad), None, &[&own]).is_err());
    assert_eq!((graph.len(), graph.stores().len(), graph.memory().operand_lists), (2, 0, 0));
    graph.backward(x.first()).unwrap();
    let many: Vec<_> = (0..20)
        .map(|k| {
            let mut p = Parameters::<f64>::new(k);
            let t = p.tensor(&[1], None, Init::Constant(k as f64), true).unwrap();
            (p, t)
        })
        .collect();
    let nodes: Vec<_> = many.iter().map(|(p, t)| graph.parameter(p, t.slice(), 0).unwrap()).collect();
    let given: Vec<_> = many.iter().map(|(p, _)| p).collect();
    let views: Vec<_> = many.iter().map(|(_, t)| View::from(t.slice())).collect();
    let of_nodes = graph.reduce(Op::ReduceMul, Operands::List(&nodes[1..]), &[]).unwrap();
    let of_views = graph.reduce(Op::ReduceMul, Operands::Views(&views[1..]), &given).unwrap();
    let root = graph.binary_op(Op::Add, of_nodes, of_views).unwrap();
    let product: f64 = (1..20).map(f64::from).product();
    assert_eq!((graph.value(root), graph.stores().len()), (Ok(2.0 * product), 20));
    graph.recompute(root, &given).unwrap();
    assert_eq!(graph.value(root), Ok(2.0 * product));
    let mut many = many;
    let mut gradients: Vec<_> = many.iter_mut().map(|(p, _)| p.gradients()).collect();
    graph.backward_with(root, 1.0, &mut gradients).unwrap();
    for (k, (p, _)) in many.iter().enumerate().skip(1) {
        assert_eq!(p.grads(), &[2.0 * (product / k as f64)], "parameters number {k}");
    }
    // Half of them are dead.
    let kept = nodes[10];
    let mut place = None;
    graph
        .compact(|live| live(burtorch_core::Range::new(kept, 10)), &mut [], |new| place = Some(new.index(kept.index())))
        .unwrap();
    let given: Vec<_> = many[10..].iter().map(|(p, _)| p).collect();
    assert_eq!(graph.stores(), given.iter().map(|p| p.id()).collect::<Vec<_>>());
    let kept = burtorch_core::NodeId::from_index(place.unwrap());
    let root = graph.reduce(Op::ReduceSum, Operands::Run(burtorch_core::Range::new(kept, 10)), &[]).unwrap();
    assert_eq!(graph.value(root), Ok((10..20).map(f64::from).sum()));
}

#[test]
fn parameters_live_in_memory_of_the_caller() {
    let (mut values, mut grads) = ([7.0f32; 6], [f32::NAN; 8]);
    let mut params = Parameters::in_buffers(&mut values, &mut grads, 0);
    let w = params.tensor(&[2, 2], Some("w"), Init::Constant(2.0), true).unwrap();
    params.tensor(&[1], None, Init::Constant(3.0), false).unwrap();
    assert_eq!(params.grads(), &[0.0; 5], "what the memory held is no gradient");
    let full = params.tensor(&[2], None, Init::He, true);
    assert_eq!(full, Err(Error::BufferTooSmall { what: "parameters in buffers", need: 7, have: 6 }));
    let mut graph = Graph::<f32>::new();
    let x = graph.vector(&[1.0, 10.0]).unwrap();
    let y = graph.affine(&[&params], &[x.into()], w.slice(), None).unwrap();
    graph.backward_with(y.get(1).unwrap(), 1.0, &mut [params.gradients()]).unwrap();
    drop(params);
    assert_eq!(values, [2.0, 2.0, 2.0, 2.0, 3.0, 7.0]);
    assert_eq!(grads[..5], [0.0, 0.0, 1.0, 10.0, 0.0]);
    assert!(grads[5..].iter().all(|g| g.is_nan()), "beyond the tensors nothing is touched");
}

#[test]
fn exported_memory_does_not_move() {
    let mut params = Parameters::<f64>::with_capacity(0, 4).unwrap();
    params.tensor(&[3], None, Init::Constant(1.5), true).unwrap();
    let address = params.values().as_ptr();
    params.export();
    assert_eq!(params.tensor(&[2], None, Init::He, true), Err(Error::ParametersFull { capacity: 4 }));
    params.tensor(&[1], None, Init::Constant(2.5), true).unwrap();
    assert_eq!(params.values().as_ptr(), address);
    params.release();
    params.tensor(&[2000], None, Init::Constant(0.5), true).unwrap();
    assert_eq!(params.values()[..5], [1.5, 1.5, 1.5, 2.5, 0.5]);
    assert_eq!(params.len(), 2004);
}

/// The initial reservation holds 8 Mi numbers of 4 bytes; growing beyond it keeps all bits.
#[test]
fn parameters_grow_beyond_what_was_reserved() {
    let mut params = Parameters::<f32>::new(0);
    params.tensor(&[3], None, Init::Constant(-0.0), true).unwrap();
    params.tensor(&[5 << 20], None, Init::Constant(0.0), true).unwrap();
    params.values_mut()[4 << 20] = 2.5;
    params.values_mut()[5 << 20] = f32::NAN;
    params.grads_mut()[1] = -3.0;
    let bits = |params: &Parameters<'_, f32>| -> Vec<u32> { params.values().iter().map(|x| x.to_bits()).collect() };
    let before = bits(&params);
    params.tensor(&[20 << 20], None, Init::Constant(0.0), true).unwrap();
    params.tensor(&[2], None, Init::Constant(1.5), true).unwrap();
    assert!(bits(&params).starts_with(&before));
    assert_eq!(params.values()[params.len() - 2..], [1.5, 1.5]);
    assert_eq!((params.grads()[1], params.grads()[0]), (-3.0, 0.0));
}

/// Freezing many pages releases them; adjacent numbers keep their gradients.
#[test]
fn freezing_pages_keeps_adjacent_gradients() {
    let mut params = Parameters::<f32>::new(0);
    let w = params.tensor(&[100_000], None, Init::Constant(1.0), true).unwrap().slice();
    params.grads_mut().fill(2.0);
    params.freeze(w.slice(1_500, 90_001).unwrap()).unwrap();
    let grads = params.grads();
    assert!(grads[..1_500].iter().chain(&grads[90_001..]).all(|&g| g == 2.0));
    assert!(grads[1_500..90_001].iter().all(|&g| g == 0.0));
    params.unfreeze(w).unwrap();
    assert_eq!(params.n_trainable(), 100_000);
    assert!(params.grads()[1_500..90_001].iter().all(|&g| g == 0.0));
}

/// Overwriting equals zeroing and adding, in the parameters' own memory and in other memory, also for frozen numbers.
#[test]
fn overwritten_gradients_are_those_of_zeroing_and_adding() {
    let mut params = Parameters::<f64>::new(1);
    let w = params.tensor(&[4, 3], None, Init::Normal(0.0, 1.0), true).unwrap();
    let unused = params.tensor(&[5], None, Init::Constant(1.0), true).unwrap();
    let frozen = params.tensor(&[2], None, Init::Constant(3.0), false).unwrap();
    let mut graph = Graph::<f64>::new();
    let x = graph.vector(&[0.5, -2.0, 3.0]).unwrap();
    let y = graph.affine(&[&params], &[x.into()], w.slice(), None).unwrap();
    let first = graph.parameter(&params, frozen.slice(), 1).unwrap();
    let second = graph.parameter(&params, w.slice(), 4).unwrap();
    let sum = graph.reduce(Op::ReduceSum, y.into(), &[]).unwrap();
    let root = graph.reduce(Op::ReduceMul, Operands::List(&[sum, first, second]), &[]).unwrap();
    params.zero_grad();
    graph.backward_with(root, 1.5, &mut [params.gradients()]).unwrap();
    let expected = params.grads().to_vec();
    assert!(expected[w.slice().range()].iter().all(|&g| g != 0.0));
    assert!(expected[unused.slice().range().start..].iter().all(|&g| g == 0.0));
    params.grads_mut()[..17].fill(7.0);
    params.overwrite_gradients(|gradients| graph.backward_with(root, 1.5, &mut [gradients])).unwrap();
    assert_eq!(params.grads(), expected);
    let mut elsewhere = vec![7.0; params.len()];
    let swept =
        params.overwrite_gradients_in(&mut elsewhere, |gradients| graph.backward_with(root, 1.5, &mut [gradients]));
    swept.unwrap().unwrap();
    assert_eq!(elsewhere, expected);
    let short = params.overwrite_gradients_in(&mut elsewhere[1..], |_| ());
    assert!(matches!(short, Err(Error::BufferTooSmall { .. })));
}
