//! Gradients of some parameters beside those of all: one round takes a call of each in turn, and medians and ratios are over
//! rounds, so that a busy machine slows all alike. Checks the bits of every set before it times anything.

use std::hint::black_box;
use std::ops::Range;
use std::time::Instant;

use burtorch_core::draw::{Draw, Purpose, Subset};
use burtorch_core::nn::{CharMlp, CharMlpShape, Gpt, GptShape, Input, Label};
use burtorch_core::params::WantedSet;
use burtorch_core::{Batch, LaneModel, Oracle, Parameters};

const ROUNDS: usize = 301;

fn tokens(n: usize, below: u32) -> Vec<u32> {
    (0..n as u32).map(|k| (k.wrapping_mul(2_654_435_761) >> 8) % below).collect()
}

/// Names, sets, and whether gradients are written to memory for all parameters.
type Sets = Vec<(&'static str, WantedSet, bool)>;

fn sets(params: &Parameters<'_, f32>, last: Range<u32>) -> Sets {
    let d = params.len();
    let of = |ranges: Vec<Range<u32>>| WantedSet::of(params, ranges).unwrap();
    let random = |k: usize| {
        let mut subset = Subset::default();
        let chosen = subset.draw(&mut Draw::new(1, 2, 3, Purpose::Sampling), d, k).unwrap();
        of(chosen.iter().map(|&k| k..k + 1).collect())
    };
    let block = (d / 3) as u32..(d / 3 + d / 100) as u32;
    vec![
        ("last layer", of(std::iter::once(last.clone()).collect()), false),
        ("last layer, in place", of(std::iter::once(last).collect()), true),
        ("RandSeqK 1 %", of(std::iter::once(block.clone()).collect()), false),
        ("RandSeqK 1 %, in place", of(std::iter::once(block).collect()), true),
        ("RandK 1 %", random(d / 100), false),
        ("RandK 1 %, in place", random(d / 100), true),
        ("RandK 10 %", random(d / 10), false),
        ("RandK 10 %, in place", random(d / 10), true),
        ("half", random(d / 2), false),
        ("half, in place", random(d / 2), true),
        ("all, in place", of(std::iter::once(0..d as u32).collect()), true),
    ]
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn time(mut f: impl FnMut()) -> f64 {
    let began = Instant::now();
    f();
    began.elapsed().as_secs_f64() * 1e6
}

fn run<M: LaneModel<f32>>(
    name: &str,
    model: &M,
    params: &mut Parameters<'static, f32>,
    batch: Batch<'_, f32>,
    sets: &Sets,
) {
    let mut oracle = Oracle::new();
    oracle.gradient(model, params, batch, None).unwrap();
    let full = params.grads().to_vec();
    let mut rooms: Vec<Vec<f32>> =
        sets.iter().map(|(_, wanted, whole)| vec![0.0; if *whole { params.len() } else { wanted.len() }]).collect();
    for ((name, wanted, whole), room) in sets.iter().zip(&mut rooms) {
        oracle.gradient_of_some(model, params, batch, None, (wanted, room), None).unwrap();
        let (mut found, mut expected) = (vec![0.0; wanted.len()], vec![0.0; wanted.len()]);
        wanted.pick(&full, &mut expected);
        if *whole {
            wanted.pick(room, &mut found)
        } else {
            found.copy_from_slice(room)
        }
        assert!(found.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits()), "{name}");
    }
    let mut times = vec![Vec::new(); sets.len() + 2];
    for _ in 0..ROUNDS {
        times[0].push(time(|| drop(black_box(oracle.gradient(model, params, batch, None)))));
        times[1].push(time(|| drop(black_box(oracle.loss(model, params, batch, None)))));
        for (k, ((_, wanted, _), room)) in sets.iter().zip(&mut rooms).enumerate() {
            times[k + 2].push(time(|| {
                drop(black_box(oracle.gradient_of_some(model, params, batch, None, (wanted, room), None)))
            }));
        }
    }
    // The median of ratios per round, which ignores a temporarily slow machine.
    let ratio = |k: usize, to: usize| median(times[k].iter().zip(&times[to]).map(|(a, b)| a / b).collect());
    println!(
        "{name}: {} parameters; gradient {:.2} us, loss {:.2} us",
        full.len(),
        median(times[0].clone()),
        median(times[1].clone())
    );
    for (k, (name, wanted, _)) in sets.iter().enumerate() {
        let us = median(times[k + 2].clone());
        let (to_full, to_loss) = (ratio(k + 2, 0), ratio(k + 2, 1));
        println!(
            "  {name:24} {:8} numbers {us:10.2} us {to_full:7.3} of the gradient {to_loss:7.3} of the loss",
            wanted.len()
        );
    }
}

fn main() {
    for (hidden, n) in [(64, 1), (64, 64), (1024, 1)] {
        let mut params = Parameters::<f32>::new(1);
        let model = CharMlp::new(&mut params, CharMlpShape { hidden, ..CharMlpShape::default() }, Some("m")).unwrap();
        let n_in = CharMlpShape::default().context;
        let (x, y) = (tokens(n_in * n, 27), tokens(n, 27));
        let batch = Batch::new(Input::Tokens(&x), Label::Classes(&y), n).unwrap();
        let last = params.named("m.output.weight").unwrap().slice().range().start as u32..params.len() as u32;
        let sets = sets(&params, last);
        run(&format!("CharMLP e={hidden} b={n}"), &model, &mut params, batch, &sets);
    }
    let mut params = Parameters::<f32>::new(1);
    let model = Gpt::new(&mut params, GptShape::default(), Some("g")).unwrap();
    let (x, y) = (tokens(8, 65), tokens(8, 65));
    let batch = Batch::new(Input::Tokens(&x), Label::Classes(&y), 1).unwrap();
    let last = params.names().map(|(_, t)| t.slice().range()).filter(|r| r.len() == 24 * 65).map(|r| r.start).max();
    let sets = sets(&params, last.unwrap() as u32..params.len() as u32);
    run("GPT b=1", &model, &mut params, batch, &sets);
}
