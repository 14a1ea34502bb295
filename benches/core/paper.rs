//! The paper's programs in Rust, without Python: what a process of `burtorch reproduce` runs.
//!
//! Takes words `key=value`, checks its answer before it times anything, and prints one line of JSON, as
//! `python/burtorch/cli/reproduce/programs/launch.py` does. A wrong answer is a panic.

#[path = "graphs.rs"]
mod graphs;

use std::collections::HashMap;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use burtorch_core::io::{Contents, Nodes, Overwrite};
use burtorch_core::nn::{CharMlp, CharMlpShape, Gpt, GptShape, Input, Label};
use burtorch_core::{Batch, Eager, Graph, LaneModel, Oracle, Parameters, Value};
use graphs::{small, tiny};

const SLICES: usize = 20;
const TOLERANCE: f64 = 1e-5;

/// Private bytes after initialisation.
static PRIVATE: AtomicU64 = AtomicU64::new(0);

struct Job(HashMap<String, String>);

impl Job {
    fn text(&self, key: &str) -> &str {
        self.0.get(key).unwrap_or_else(|| panic!("expected {key}=..."))
    }

    fn number<T: FromStr>(&self, key: &str) -> T {
        self.text(key).parse().unwrap_or_else(|_| panic!("expected a number, found {key}={}", self.text(key)))
    }
}

fn main() {
    let words = std::env::args().skip(1);
    let pairs = words.filter_map(|word| word.split_once('=').map(|(key, value)| (key.into(), value.into())));
    let job = Job(pairs.collect());
    let result = match job.text("family") {
        "bare" => r#""init": 0.0"#.to_string(),
        "graph" => graph(&job),
        "model" => model(&job),
        "files" => files(&job),
        other => panic!("unknown family {other}"),
    };
    println!("{{{result}, \"memory\": {}}}", memory());
}

/// A small graph, built and differentiated repeatedly on one tape.
fn graph(job: &Job) -> String {
    match job.text("graph") {
        "tiny" => repeated(job, tiny, (-41.0, 2.0), [612.5, -35.0, 1050.0]),
        _ => repeated(job, small, (-4.0, 2.0), [24.70408163265306, 138.83381924198252, 645.5772594752186]),
    }
}

#[inline(always)]
fn repeated<F>(job: &Job, expression: F, (a, b): (f64, f64), expected: [f64; 3]) -> String
where
    F: for<'t, 'g> Fn(&'t Eager<'g, f64>, f64, f64) -> [Value<'t, f64>; 3],
{
    let start = Instant::now();
    let mut graph = Graph::<f64>::with_capacity(64).expect("memory for a small graph");
    let t = graph.eager();
    let empty = t.mark();
    let once = || {
        let [g, a, b] = expression(&t, black_box(a), black_box(b));
        g.backward();
        let found = [g.data(), a.grad(), b.grad()];
        t.rewind(empty).expect("a mark of this graph");
        found
    };
    for (found, wanted) in once().into_iter().zip(expected) {
        assert!((found - wanted).abs() <= 1e-13 * wanted.abs(), "found {found}, expected {wanted}");
    }
    let init = start.elapsed().as_secs_f64();
    PRIVATE.store(private().unwrap_or(0), Ordering::Relaxed);
    let times = loop_time(job, |n| (0..n).for_each(|_| _ = black_box(once())));
    format!("\"init\": {init:e}, {times}")
}

/// As `loop_time` of `programs/measure.py`: if all iterations would exceed the budget, runs fewer and scales the time.
fn loop_time(job: &Job, mut run: impl FnMut(usize)) -> String {
    let (iterations, budget): (usize, f64) = (job.number("iterations"), job.number("budget"));
    let n = (iterations / (20 * SLICES)).max(1);
    let mut projected = f64::INFINITY;
    for _ in 0..2 {
        let start = Instant::now();
        run(n);
        projected = projected.min(start.elapsed().as_secs_f64() / n as f64 * iterations as f64);
    }
    let done =
        if projected <= budget { iterations } else { ((iterations as f64 * budget / projected) as usize).max(1) };
    let (mut left, mut total, mut least) = (done, 0.0, f64::INFINITY);
    for k in (1..=SLICES).rev() {
        let n = left / k;
        left -= n;
        if n > 0 {
            let start = Instant::now();
            run(n);
            let seconds = start.elapsed().as_secs_f64();
            total += seconds;
            least = least.min(seconds / n as f64);
        }
    }
    let scale = iterations as f64;
    let seconds = total * scale / done as f64;
    format!("\"seconds\": {seconds:e}, \"minimum\": {:e}, \"iterations\": {done}", least * scale)
}

/// Steps of the character model, or gradients of the GPT.
fn model(job: &Job) -> String {
    let start = Instant::now();
    let mut params = Parameters::<f32>::new(0);
    if job.text("model") == "mlp" {
        let (vocab, hidden) = (job.number("symbols"), job.number("hidden"));
        let shape = CharMlpShape { vocab, hidden, ..CharMlpShape::default() };
        let model = CharMlp::new(&mut params, shape, None).expect("room for a model");
        stepped(job, &model, &mut params, Some(job.number("lr")), start)
    } else {
        let model = Gpt::new(&mut params, GptShape::default(), None).expect("room for a model");
        stepped(job, &model, &mut params, None, start)
    }
}

fn stepped<M: LaneModel<f32>>(
    job: &Job,
    model: &M,
    params: &mut Parameters<'_, f32>,
    rate: Option<f64>,
    start: Instant,
) -> String {
    let sizes = ["n_batches", "batch", "inputs", "targets"];
    let [n_batches, n, inputs, targets]: [usize; 4] = sizes.map(|key| job.number(key));
    let bytes = fs::read(job.text("file")).expect("the problem");
    let (weights, symbols) = bytes.split_at(4 * params.len());
    let weights = weights.as_chunks::<4>().0.iter().map(|&four| f32::from_le_bytes(four));
    params.values_mut().iter_mut().zip(weights).for_each(|(to, weight)| *to = weight);
    let symbols: Vec<u32> = symbols.as_chunks::<4>().0.iter().map(|&four| u32::from_le_bytes(four)).collect();
    let (x, y) = symbols.split_at(n_batches * n * inputs);
    let batch = |k: usize| {
        let (x, y) = (&x[k * n * inputs..][..n * inputs], &y[k * n * targets..][..n * targets]);
        Batch::new(Input::Tokens(x), Label::Classes(y), n).expect("a batch")
    };
    let mut oracle = Oracle::new();
    let mut built = start.elapsed().as_secs_f64();
    let loss = oracle.gradient(model, params, batch(0), None).expect("a gradient");
    agree(job.text("answers"), loss, params.grads());
    let mut at = 0;
    let mut step = || {
        at = (at + 1) % n_batches;
        match rate {
            Some(rate) => oracle.step(model, params, batch(at), rate, None).expect("a step"),
            None => oracle.gradient(model, params, batch(at), None).expect("a gradient"),
        }
    };
    let start = Instant::now();
    black_box(step());
    built += start.elapsed().as_secs_f64();
    PRIVATE.store(private().unwrap_or(0), Ordering::Relaxed);
    format!("\"init\": {built:e}, {}", step_times(job, step))
}

/// Compares loss and gradient with float64.
fn agree(answers: &str, loss: f64, grad: &[f32]) {
    let bytes = fs::read(answers).expect("the answers");
    let expected: Vec<f64> = bytes.as_chunks::<8>().0.iter().map(|&eight| f64::from_le_bytes(eight)).collect();
    assert_eq!(grad.len() + 1, expected.len());
    let off = (loss - expected[0]).abs() / expected[0].abs();
    let norm = |numbers: &mut dyn Iterator<Item = f64>| numbers.map(|x| x * x).sum::<f64>().sqrt();
    let difference = norm(&mut grad.iter().zip(&expected[1..]).map(|(&x, y)| f64::from(x) - y));
    let far = difference / norm(&mut expected[1..].iter().copied());
    assert!(off <= TOLERANCE && far <= TOLERANCE, "loss off by {off:.1e}, gradient by {far:.1e}");
}

/// As `step_times` of `programs/measure.py`.
fn step_times(job: &Job, mut step: impl FnMut() -> f64) -> String {
    let (iterations, budget): (usize, f64) = (job.number("iterations"), job.number("budget"));
    let (began, mut times) = (Instant::now(), Vec::with_capacity(iterations));
    while times.len() < iterations {
        let start = Instant::now();
        black_box(step());
        times.push(start.elapsed().as_secs_f64());
        if began.elapsed().as_secs_f64() > budget {
            break;
        }
    }
    let n = times.len();
    let mean = times.iter().sum::<f64>() / n as f64;
    let variance = times.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n.saturating_sub(1).max(1) as f64;
    times.sort_by(f64::total_cmp);
    let (deviation, median, least) = (variance.sqrt(), times[n / 2], times[0]);
    format!(
        "\"mean\": {mean:e}, \"deviation\": {deviation:e}, \"median\": {median:e}, \"minimum\": {least:e}, \
         \"iterations\": {n}"
    )
}

/// Time in microseconds to save and load the first seven numbers of the small graph as a raw file.
fn files(job: &Job) -> String {
    let mut graph = Graph::<f64>::new();
    {
        let t = graph.eager();
        small(&t, -4.0, 2.0);
    }
    let path = Path::new(job.text("folder")).join(format!("rust-{}", std::process::id()));
    let seven = Nodes::Run(graph.nodes_between(0, 6).expect("seven nodes"));
    let before = graph.values()[..7].to_vec();
    graph.save_raw(&path, seven, Contents::Values, Overwrite::InPlace).expect("a file");
    let size = fs::metadata(&path).expect("a file").len();
    graph.values_mut()[..7].fill(0.0);
    graph.load_raw(&path, seven, Contents::Values).expect("what was saved");
    assert_eq!(graph.values()[..7], before);
    let n = (job.number::<usize>("calls") / SLICES).max(1);
    let mut totals = [0.0; 2];
    for _ in 0..SLICES {
        let start = Instant::now();
        (0..n).for_each(|_| graph.save_raw(&path, seven, Contents::Values, Overwrite::InPlace).expect("a file"));
        totals[0] += start.elapsed().as_secs_f64();
        let start = Instant::now();
        (0..n).for_each(|_| graph.load_raw(&path, seven, Contents::Values).expect("what was saved"));
        totals[1] += start.elapsed().as_secs_f64();
    }
    fs::remove_file(&path).expect("a file");
    let [save, load] = totals.map(|seconds| 1e6 * seconds / (SLICES * n) as f64);
    format!("\"save\": {save:e}, \"load\": {load:e}, \"bytes\": {size}")
}

/// The memory of this process in bytes, as `memory` of `programs/measure.py`; `null` without /proc.
fn memory() -> String {
    let show = |bytes: Option<u64>| bytes.map_or("null".to_string(), |bytes| bytes.to_string());
    let [size, resident] = ["VmPeak", "VmHWM"].map(|name| show(field("/proc/self/status", name)));
    let private = show(private().map(|bytes| bytes.max(PRIVATE.load(Ordering::Relaxed))));
    format!("{{\"virtual\": {size}, \"resident\": {resident}, \"private\": {private}}}")
}

fn private() -> Option<u64> {
    let [clean, dirty] = ["Private_Clean", "Private_Dirty"].map(|name| field("/proc/self/smaps_rollup", name));
    Some(clean? + dirty?)
}

/// The line `name: number kB` of a file of /proc, in bytes.
fn field(file: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim_start_matches(':').trim().split(' ').next()?.parse::<u64>().ok().map(|kilobytes| 1024 * kilobytes)
}
