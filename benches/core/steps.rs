//! Steps of L-SVRG and PAGE compared with gradients alone: the cost of drawing, updating and counting. A turn takes some steps, and
//! as many gradients of batches drawn by the same rule with another seed, so that neither finds its rows in the cache because
//! the other has read them. The smallest time of many turns counts. Full gradients are excluded.

use std::sync::Arc;
use std::time::Instant;

use burtorch_core::draw::{Draw, Purpose};
use burtorch_core::opt::{
    Choices, FiniteSum, LSvrg, Linear, Loss, Method, Page, Prox, Regulariser, Rows, Runner, Sampler, Samples, Sampling,
    Workspace,
};

/// In this many steps, dense batches of 64 touch 61 MB of rows.
const STEPS: usize = 400;
const TURNS: usize = 40;
/// A probability so small that there are no full gradients.
const NEVER: f64 = 1e-12;

fn rows(n: usize, d: usize, density: f64) -> Rows {
    let mut draw = Draw::new(1, 0, 0, Purpose::Data);
    if density == 1.0 {
        return Rows::dense((0..n * d).map(|_| draw.uniform() - 0.5).collect(), d).unwrap();
    }
    let (mut starts, mut columns, mut values) = (vec![0], Vec::new(), Vec::new());
    for _ in 0..n {
        for column in (0..d as u32).filter(|_| draw.happens(density)).collect::<Vec<_>>() {
            columns.push(column);
            values.push(draw.uniform() - 0.5);
        }
        starts.push(columns.len());
    }
    Rows::sparse(starts, columns, values, d).unwrap()
}

/// Microseconds of a step, and of a gradient.
fn times(problem: &Arc<FiniteSum>, rule: &Sampling, make: &dyn Fn(Sampler) -> Box<dyn Method>) -> [f64; 2] {
    let (d, x, w) = (problem.d(), vec![0.01; problem.d()], vec![0.02; problem.d()]);
    let sampler = || Sampler::new(rule.clone(), problem.n()).unwrap();
    let mut runner = Runner::new(problem.clone(), make(sampler()), &vec![0.0; d], Prox::Zero, 7, 1).unwrap();
    let (mut other, mut workspace, mut g) = (sampler(), Workspace::default(), vec![0.0; d]);
    let mut least = [f64::INFINITY; 2];
    for turn in 0..TURNS {
        let mut batches = Vec::new();
        for step in 0..STEPS {
            other.draw(8, (turn * STEPS + step) as u64, 0).unwrap();
            batches.push(other.samples().indices.to_vec());
        }
        for which in [turn % 2, 1 - turn % 2] {
            let began = Instant::now();
            for batch in &batches {
                if which == 0 {
                    runner.step(0.05, Choices::default()).unwrap();
                } else {
                    g.fill(0.0);
                    problem.grad(&x, Some(&w), Samples::mean(batch), 1, &mut workspace, &mut g).unwrap();
                }
            }
            least[which] = least[which].min(began.elapsed().as_secs_f64());
        }
    }
    least.map(|seconds| seconds * 1e6 / STEPS as f64)
}

fn main() {
    println!("| data | method | batch | step, us | gradients, us | step / gradients |\n|---|---|---|---|---|---|");
    for (name, n, d, density) in
        [("sparse 32,561 x 123", 32_561, 123, 14.0 / 123.0), ("dense 49,749 x 300", 49_749, 300, 1.0)]
    {
        let labels = (0..n).map(|k| if k % 3 == 0 { 1.0 } else { -1.0 }).collect();
        let terms = Linear::new(rows(n, d, density), labels, Loss::Logistic).unwrap();
        let regulariser = Regulariser { l2: 1e-4, nonconvex: 0.0 };
        let problem = Arc::new(FiniteSum::new(Box::new(terms), regulariser).unwrap());
        for rule in [1, 8, 64].into_iter().flat_map(|b| [Sampling::Nice(b), Sampling::Reshuffle(b)]) {
            for kind in ["L-SVRG", "PAGE"] {
                let [step, gradients] = times(&problem, &rule, &|sampler| match kind {
                    "PAGE" => Box::new(Page::new(sampler, NEVER).unwrap()),
                    _ => Box::new(LSvrg::new(sampler, NEVER).unwrap()),
                });
                println!("| {name} | {kind} | {rule:?} | {step:.3} | {gradients:.3} | {:.3} |", step / gradients);
            }
        }
    }
}
