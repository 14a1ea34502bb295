//! After warm-up a step of the oracle and the optimiser makes no heap call.

use burtorch_core::compress::{Client, Compressor, Count, Message, Quantiser, Sparsifier};
use burtorch_core::draw::{Draw, Purpose};
use burtorch_core::kernels::{Finish, Matrix, MatrixMut, Start, product, product_workspace_len};
use burtorch_core::nn::{CharMlp, CharMlpShape, Gpt, GptShape, Input, Label};
use burtorch_core::text::WordContexts;
use burtorch_core::{Batch, Oracle, Parameters, Sgd};

use crate::heap::calls;

/// Counted steps. 1,000,000 were run by hand.
const STEPS: usize = 10_000;

#[test]
fn a_step_makes_no_heap_call_after_warm_up() {
    steps::<1>(STEPS);
    steps::<2>(STEPS);
    steps::<64>(STEPS / 10);
    steps::<75>(STEPS / 10);
}

fn steps<const BATCH: usize>(n_steps: usize) {
    let words = ["emma", "olivia", "ava", "isabella", "sophia", "charlotte", "mia", "amelia"];
    let mut contexts = WordContexts::new(words, 16, 0.1, 0).unwrap();
    let mut params = Parameters::<f32>::new(0);
    let shape = CharMlpShape { vocab: contexts.vocabulary().len(), hidden: 4, ..CharMlpShape::default() };
    let model = CharMlp::new(&mut params, shape, None).unwrap();
    let mut oracle = Oracle::new();
    let mut plain = Sgd::new(0.01).unwrap();
    let mut momentum = Sgd::with_momentum(0.01, 0.9, true, 1e-4).unwrap();
    let (mut x, mut y) = (vec![0; 16 * BATCH], [0; BATCH]);
    let mut go = |n: usize| {
        let mut loss = 0.0;
        for k in 0..n {
            contexts.batch(&mut x, &mut y).unwrap();
            let batch = Batch::new(Input::Tokens(&x), Label::Classes(&y), BATCH).unwrap();
            loss = oracle.gradient(&model, &mut params, batch, None).unwrap();
            if k % 2 == 0 {
                plain.step(&mut params).unwrap();
            } else {
                momentum.step(&mut params).unwrap();
            }
            loss += oracle.loss(&model, &params, batch, None).unwrap();
        }
        loss
    };
    go(10);
    let before = calls();
    let loss = go(n_steps);
    let calls = calls() - before;
    assert!(loss.is_finite());
    assert_eq!(calls, 0, "heap calls in {n_steps} steps of {BATCH} samples");
}

#[test]
fn a_step_of_the_gpt_makes_no_heap_call_after_warm_up() {
    let mut params = Parameters::<f32>::new(0);
    let model = Gpt::new(&mut params, GptShape::default(), None).unwrap();
    let mut oracle = Oracle::new();
    let mut momentum = Sgd::with_momentum(0.01, 0.9, true, 1e-4).unwrap();
    let symbols = |n: u32, by: u32| (0..8 * n).map(|k| k * by % 65).collect::<Vec<_>>();
    let (x, y) = (symbols(64, 31), symbols(64, 17));
    let mut go = |n: usize| {
        let (mut loss, n_tokens) = (0.0, 8 * n);
        for _ in 0..10 {
            let batch = Batch::new(Input::Tokens(&x[..n_tokens]), Label::Classes(&y[..n_tokens]), n).unwrap();
            loss = oracle.gradient(&model, &mut params, batch, None).unwrap();
            momentum.step(&mut params).unwrap();
            loss += oracle.loss(&model, &params, batch, None).unwrap();
        }
        loss
    };
    // Chunks of a larger batch have their own memory, allocated at the first such batch.
    go(1);
    go(64);
    let before = calls();
    let losses = [go(1), go(64)];
    let calls = calls() - before;
    assert!(losses.iter().all(|loss| loss.is_finite()));
    assert_eq!(calls, 0);
}

#[test]
fn a_product_makes_no_heap_call() {
    for [m, n, k] in [[3, 4, 5], [1, 300, 300], [200, 150, 170]] {
        let (a, b, mut c) = (vec![0.5_f32; m * k], vec![0.25; k * n], vec![0.0; m * n]);
        let mut workspace = vec![0.0; product_workspace_len::<f32>(m, n, k)];
        let before = calls();
        for _ in 0..10 {
            let (a, b) = (Matrix::by_rows(&a, m, k), Matrix::by_rows(&b, n, k).transposed());
            product(Start::Output, a, b, MatrixMut::by_rows(&mut c, m, n), Finish::AsIs, &mut workspace);
        }
        assert_eq!(calls(), before);
        assert_eq!(c[0], 10.0 * 0.125 * k as f32);
    }
}

#[test]
fn a_plan_makes_no_heap_call_after_its_first_run() {
    use burtorch_core::array::{Argument, ArrayBuilder, Element, Plan, Reduce, Slice, Variable};
    use burtorch_core::{DType, Op};

    let mut b = ArrayBuilder::new(DType::Float64).unwrap();
    let x = b.input(&[30, 40], Element::Float).unwrap();
    let indices = b.input(&[5], Element::Int).unwrap();
    let t = b.transpose(x, &[1, 0]).unwrap();
    let product = b.matmul(x, t).unwrap();
    let column = b.matmul(product, product).unwrap();
    let soft = b.softmax(column, 0).unwrap();
    let taken = b.take(x, indices, 1).unwrap();
    let part = b.slice(x, &[Slice { start: 3, step: 2, count: 9 }]).unwrap();
    let (sums, products) = (b.cumsum(part, 0).unwrap(), b.reduce(Reduce::Prod, taken, Some(&[0]), false).unwrap());
    let top = b.reduce(Reduce::Max, x, Some(&[0]), true).unwrap();
    let mut total = b.literal(0.0).unwrap();
    for v in [soft, sums, products, top] {
        let v = b.row(Op::Tanh, &[v]).unwrap();
        let v = b.reduce(Reduce::Sum, v, None, false).unwrap();
        total = b.row(Op::Add, &[total, v]).unwrap();
    }
    let gradient = b.finish(&[total]).unwrap().value_and_gradient(&[Variable::Input(0)]).unwrap();
    let mut plan = Plan::<f64>::new(&gradient).unwrap();
    let numbers: Vec<f64> = (0..1200).map(|k| f64::from(k % 17) / 20.0).collect();
    let arguments = [Argument::Float(&numbers), Argument::Int(&[0, 3, -1, 7, 3])];
    plan.run(&arguments, &[]).unwrap();
    let before = calls();
    for _ in 0..20 {
        plan.run(&arguments, &[]).unwrap();
    }
    assert_eq!(calls() - before, 0);
    assert!(plan.floats(1).unwrap().iter().all(|g| g.is_finite()));
}

#[test]
fn loops_make_no_heap_call_after_their_longest_run() {
    use burtorch_core::array::{Argument, ArrayBuilder, Element, Plan, Reduce, ScanOptions, Variable};
    use burtorch_core::{DType, Op};

    // The step of a scan, with one number and with several: halves a number while it is above x.
    for extents in [&[][..], &[5]] {
        let mut body = ArrayBuilder::new(DType::Float64).unwrap();
        let inputs: Vec<_> = (0..2).map(|_| body.input(extents, Element::Float).unwrap()).collect();
        let product = body.row(Op::Mul, &inputs).unwrap();
        let next = body.row(Op::Sin, &[product]).unwrap();
        let step = body.finish(&[next, product]).unwrap();
        let mut body = ArrayBuilder::new(DType::Float64).unwrap();
        let h = [(); 2].map(|()| body.input(extents, Element::Float).unwrap())[1];
        let half = body.row_with(Op::MulByConstant, h, 0.5).unwrap();
        let halve = body.finish(&[half]).unwrap();
        let mut condition = ArrayBuilder::new(DType::Float64).unwrap();
        let [x, h] = [(); 2].map(|()| condition.input(extents, Element::Float).unwrap());
        let [x, h] = [x, h].map(|v| condition.reduce(Reduce::Max, v, None, false).unwrap());
        let above = condition.less(x, h).unwrap();
        let condition = condition.finish(&[above]).unwrap();

        let mut b = ArrayBuilder::new(DType::Float64).unwrap();
        let (x, h) = (b.input(extents, Element::Float).unwrap(), b.input(extents, Element::Float).unwrap());
        let options = ScanOptions { length: Some(20), ..ScanOptions::default() };
        let scanned = b.scan(step, &[x], &[h], &[], options).unwrap();
        let halved = b.while_loop(condition, halve, &[x], &[h], None).unwrap();
        let mut total = b.literal(0.0).unwrap();
        for v in [scanned[0], scanned[1], halved[0]] {
            let v = b.reduce(Reduce::Sum, v, None, false).unwrap();
            total = b.row(Op::Add, &[total, v]).unwrap();
        }
        let by = [Variable::Input(0), Variable::Input(1)];
        let gradient = b.finish(&[total]).unwrap().value_and_gradient(&by).unwrap();
        let mut plan = Plan::<f64>::new(&gradient).unwrap();
        let n: usize = extents.iter().product();
        let (x, start, short) = (vec![0.01; n], vec![3.0; n], vec![0.2; n]);
        plan.run(&[Argument::Float(&x), Argument::Float(&start)], &[]).unwrap();
        let before = calls();
        for h in [&start, &short, &start] {
            plan.run(&[Argument::Float(&x), Argument::Float(h)], &[]).unwrap();
        }
        assert_eq!(calls() - before, 0);
        assert!(plan.floats(2).unwrap().iter().all(|g| g.is_finite() && *g != 0.0));
    }
}

#[test]
fn a_step_of_a_method_makes_no_heap_call_after_warm_up() {
    use burtorch_core::opt::{
        Choices, FiniteSum, LSvrg, Linear, Loss, Method, Page, Prox, Regulariser, Rows, Runner, Saga, Sampler,
        Sampling, Sgd,
    };
    use std::sync::Arc;

    let number = |k: usize| (k as f64 * 0.61).sin();
    let rows = Rows::dense((0..3000 * 4).map(number).collect(), 4).unwrap();
    let labels = (0..3000).map(number).collect();
    let terms = Linear::new(rows, labels, Loss::Robust).unwrap();
    let regulariser = Regulariser { l2: 0.1, nonconvex: 0.1 };
    let problem = Arc::new(FiniteSum::new(Box::new(terms), regulariser).unwrap());
    let sampler = |rule| Sampler::new(rule, 3000).unwrap();
    let methods: [(Box<dyn Method>, Prox); 5] = [
        (Box::new(Sgd::new(sampler(Sampling::Full))), Prox::L1(0.1)),
        (Box::new(Sgd::new(sampler(Sampling::Reshuffle(1000)))), Prox::Simplex(1.0)),
        (Box::new(LSvrg::new(sampler(Sampling::WithReplacement(64)), 0.3).unwrap()), Prox::Zero),
        (Box::new(Saga::new(sampler(Sampling::Nice(2)))), Prox::Box(-1.0, 1.0)),
        (Box::new(Page::new(sampler(Sampling::Independent(0.4)), 0.5).unwrap()), Prox::L1Ball(0.5)),
    ];
    for (method, prox) in methods {
        let mut runner = Runner::new(problem.clone(), method, &[0.0; 4], prox, 7, 1).unwrap();
        let mut steps = |n| (0..n).for_each(|_| runner.step(0.01, Choices::default()).unwrap());
        steps(100);
        let before = calls();
        steps(100);
        assert_eq!(calls(), before);
    }
}

#[test]
fn a_step_of_clients_makes_no_heap_call_after_warm_up() {
    use burtorch_core::opt::{
        Accelerated, Asynchronous, Choices, Clients, Dasha, Delays, Diana, Ef14, Ef21, FedAvg, FiniteSum, LKatyusha,
        LSvrg, Linear, LocalSteps, Loss, Marina, Method, Network, Prox, Regulariser, Rows, Rule, Runner, Sampler,
        Sampling, Scaffnew, Scaffold, Spread,
    };
    use std::sync::Arc;

    let number = |k: usize| (k as f64 * 0.61).sin();
    let half = |l2| {
        let rows = Rows::dense((0..200 * 4).map(number).collect(), 4).unwrap();
        let terms = Linear::new(rows, (0..200).map(number).collect(), Loss::Squares).unwrap();
        Arc::new(FiniteSum::new(Box::new(terms), Regulariser { l2, nonconvex: 0.0 }).unwrap())
    };
    let problem = Arc::new(FiniteSum::joined(vec![half(0.1), half(0.2)]).unwrap());
    let clients = |sparsifier| {
        let parts = (0..20).map(|k| (k * 20..(k + 1) * 20).collect()).collect();
        let compressor = Compressor::new(sparsifier, Quantiser::None).unwrap();
        let mut clients = Clients::new(parts, 400, 4, compressor).unwrap();
        let compute = Delays::new(&[1.0; 20], Spread::LogNormal(0.5)).unwrap();
        clients.set_network(Network::new(compute, 0.1, 1e6, 0.2).unwrap());
        clients
    };
    let (top, random) = (Sparsifier::TopK(Count::Of(2)), Sparsifier::RandK(Count::Of(2)));
    let local = |clients: &mut Clients, steps| {
        let cohort = Sampler::new(Sampling::Nice(7), 20).unwrap();
        LocalSteps::new(clients, cohort, steps, &Sampling::Nice(3)).unwrap()
    };
    let with_local = |make: &dyn Fn(Clients, LocalSteps) -> Box<dyn Method>| {
        let mut clients = clients(top);
        let local = local(&mut clients, 2);
        make(clients, local)
    };
    let asynchronous = |rule| {
        let delays = Delays::new(&[1.0, 2.0, 5.0], Spread::Exponential).unwrap();
        let sampler = Sampler::new(Sampling::Nice(4), 400).unwrap();
        Box::new(Asynchronous::new(rule, sampler, delays).unwrap()) as Box<dyn Method>
    };
    let flayer = Rule::MindFlayer { trials: vec![2; 3], limits: vec![3.0; 3], expected: 4.0 };
    let methods: Vec<Box<dyn Method>> = vec![
        Box::new(Accelerated::new(0.1).unwrap()),
        Box::new(Diana::new(clients(random), 0.3, true).unwrap()),
        with_local(&|clients, local| Box::new(Marina::new(clients, local, 0.5).unwrap())),
        with_local(&|clients, local| {
            let mut method = Ef21::<f64>::new(clients, local, 1.0, true).unwrap();
            method.set_downlink(Compressor::new(random, Quantiser::None).unwrap());
            Box::new(method)
        }),
        {
            let sampler = Sampler::new(Sampling::Nice(4), 400).unwrap();
            Box::new(LKatyusha::new(LSvrg::new(sampler, 0.3).unwrap(), 0.1, 0.2).unwrap())
        },
        Box::new(Dasha::new(clients(random), 0.3, true).unwrap()),
        Box::new(Ef14::new(clients(top))),
        Box::new(Scaffnew::new(clients(top), 0.5, true).unwrap()),
        with_local(&|clients, local| Box::new(Ef21::<f32>::new(clients, local, 0.3, true).unwrap())),
        with_local(&|clients, local| Box::new(FedAvg::new(clients, local))),
        with_local(&|clients, local| Box::new(Scaffold::<f64>::new(clients, local, 1.0, true).unwrap())),
        asynchronous(Rule::Rennala(3)),
        asynchronous(Rule::Ringmaster(4)),
        asynchronous(flayer),
        {
            let parts = (0..3).map(|k| (k..400).step_by(3).collect()).collect();
            let delays = Delays::new(&[1.0, 2.0, 5.0], Spread::Exponential).unwrap();
            Box::new(Asynchronous::of_clients((2, 1.0), parts, (2, &Sampling::Nice(4)), delays, 400).unwrap().0)
        },
    ];
    for (k, method) in methods.into_iter().enumerate() {
        let mut runner = Runner::new(problem.clone(), method, &[0.0; 4], Prox::Zero, 7, 1).unwrap();
        let mut steps = |n| (0..n).for_each(|_| runner.step(0.01, Choices::default()).unwrap());
        steps(100);
        let before = calls();
        steps(100);
        assert_eq!(calls(), before, "method {k}");
    }
}

#[test]
fn compressing_makes_no_heap_call_after_warm_up() {
    let k = Count::Of(200);
    let sparsifiers = [
        Sparsifier::All,
        Sparsifier::RandK(k),
        Sparsifier::RandSeqK(k),
        Sparsifier::PermK,
        Sparsifier::TopK(k),
        Sparsifier::TopLeK(k),
        Sparsifier::Bernoulli(0.5),
    ];
    let quantisers = [Quantiser::None, Quantiser::Natural, Quantiser::Dithering(9), Quantiser::Sign];
    let (mut message, mut read, mut bytes) = (Message::new(), Message::<f32>::new(), Vec::new());
    let mut x = vec![0.0_f32; 20_000];
    let mut sum = x.clone();
    let mut go = |round: u64| {
        let mut data = Draw::new(0, round, 0, Purpose::Data);
        x.iter_mut().for_each(|x| *x = data.normal() as f32);
        for sparsifier in sparsifiers {
            for quantiser in quantisers {
                let c = Compressor::new(sparsifier, quantiser).unwrap();
                let mut draw = Draw::new(1, round, 0, Purpose::Compression);
                c.compress(&x, &mut draw, Client { index: 0, n: 100 }, &mut message).unwrap();
                message.add_to(&mut sum, 0.5).unwrap();
                bytes.clear();
                message.append_bytes(&mut bytes).unwrap();
                read.read_bytes(&bytes).unwrap();
            }
        }
    };
    (0..5).for_each(&mut go);
    let before = calls();
    (5..50).for_each(&mut go);
    assert_eq!(calls() - before, 0);
}
