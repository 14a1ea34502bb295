//! Latency of a stop that another thread sets, and the cost of a token that is never set.
//!
//! Each round starts a pass over a batch that takes some milliseconds; another thread sets the token after a random time and says
//! when. The gradient of a pass that ends early is left as it is. Percentiles of the time from then to the return, over rounds in which the pass had not finished.

use std::hint::black_box;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use burtorch_core::draw::{Draw, Purpose};
use burtorch_core::nn::{CharMlp, CharMlpShape, Gpt, GptShape, Input, Label};
use burtorch_core::oracle::Until;
use burtorch_core::sync::Stop;
use burtorch_core::{Batch, Error, LaneModel, Oracle, Overrides, Parameters};

const ROUNDS: usize = 1000;

fn tokens(n: usize, below: u32) -> Vec<u32> {
    (0..n as u32).map(|k| (k.wrapping_mul(2_654_435_761) >> 8) % below).collect()
}

fn percentile(sorted: &[f64], share: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

fn time(f: impl FnOnce()) -> f64 {
    let began = Instant::now();
    f();
    began.elapsed().as_secs_f64() * 1e6
}

fn run<M: LaneModel<f32>>(
    name: &str,
    model: &M,
    params: &mut Parameters<'static, f32>,
    batch: Batch<'_, f32>,
) -> Result<(), Error> {
    let mut oracle = Oracle::new();
    oracle.gradient(model, params, batch, None)?;
    let took = time(|| drop(black_box(oracle.gradient(model, params, batch, None))));
    let full = params.grads().to_vec();
    let stop = Stop::new();
    let until = Until { stop: &stop, keeps: false, probability: None, leaves: true };
    let mut pass =
        |params: &mut _| oracle.gradient_until(model, params, batch, None, Overrides::default(), until, None).map(drop);
    let mut draw = Draw::new(1, 0, 0, Purpose::Delay);
    let mut latencies = Vec::new();
    let (delays, to_wait) = channel::<Duration>();
    let (says, was_set) = channel::<Instant>();
    let token = stop.clone();
    let setter = std::thread::spawn(move || {
        for delay in to_wait {
            let began = Instant::now();
            while began.elapsed() < delay {
                std::hint::spin_loop();
            }
            let now = Instant::now();
            token.set();
            if says.send(now).is_err() {
                return;
            }
        }
    });
    for _ in 0..ROUNDS {
        delays.send(Duration::from_secs_f64(draw.uniform() * took * 1e-6)).expect("the other thread waits");
        let ended = pass(params);
        let returned = Instant::now();
        // Waits, so that a scheduler quota per second does not run out within a round.
        std::thread::sleep(Duration::from_secs_f64(0.2 * took * 1e-6));
        let set = was_set.recv().expect("the other thread says when");
        stop.clear();
        if ended == Err(Error::Interrupted) {
            latencies.push(returned.duration_since(set).as_secs_f64() * 1e6);
        }
    }
    drop(delays);
    setter.join().expect("the other thread ends");
    pass(params)?;
    assert!(params.grads().iter().zip(&full).all(|(a, b)| a.to_bits() == b.to_bits()), "{name}");
    let mut ratios = Vec::new();
    let mut plain = Oracle::new();
    plain.gradient(model, params, batch, None)?;
    for _ in 0..301 {
        let without = time(|| drop(black_box(plain.gradient(model, params, batch, None))));
        ratios.push(time(|| drop(black_box(pass(params)))) / without);
    }
    ratios.sort_by(f64::total_cmp);
    latencies.sort_by(f64::total_cmp);
    println!(
        "{name}: a pass takes {took:.0} us; {} of {ROUNDS} ended early, median {:.1} us, 99th percentile {:.1} us, most {:.1} us; \
         watching takes {:.4} of the time",
        latencies.len(),
        percentile(&latencies, 0.5),
        percentile(&latencies, 0.99),
        percentile(&latencies, 1.0),
        percentile(&ratios, 0.5)
    );
    Ok(())
}

fn main() -> Result<(), Error> {
    for (hidden, n) in [(64, 256), (1024, 256), (1024, 16), (1024, 1)] {
        let mut params = Parameters::<f32>::new(1);
        let model = CharMlp::new(&mut params, CharMlpShape { hidden, ..CharMlpShape::default() }, None)?;
        let n_in = CharMlpShape::default().context;
        let (x, y) = (tokens(n_in * n, 27), tokens(n, 27));
        let batch = Batch::new(Input::Tokens(&x), Label::Classes(&y), n)?;
        run(&format!("CharMLP e={hidden} b={n}"), &model, &mut params, batch)?;
    }
    let mut params = Parameters::<f32>::new(1);
    let model = Gpt::new(&mut params, GptShape::default(), None)?;
    let (x, y) = (tokens(8 * 64, 65), tokens(8 * 64, 65));
    let batch = Batch::new(Input::Tokens(&x), Label::Classes(&y), 64)?;
    run("GPT b=64", &model, &mut params, batch)
}
