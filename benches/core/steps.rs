//! Steps of L-SVRG and PAGE beside their gradients alone, of the same draws: what drawing, moving and counting add. One turn takes
//! some steps and then their gradients, so that a busy machine slows both alike; the least time of many turns counts.

use std::sync::Arc;
use std::time::Instant;

use burtorch_core::draw::{Draw, Purpose};
use burtorch_core::opt::{
    Choices, FiniteSum, LSvrg, Linear, Loss, Method, Page, Prox, Regulariser, Rows, Runner, Sampler, Samples, Sampling,
    Workspace,
};

const STEPS: usize = 200;
const TURNS: usize = 60;

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

/// Microseconds of a step, and of its gradients; steps with a full gradient, which are rare and long, are left out.
fn times(problem: &Arc<FiniteSum>, make: &dyn Fn() -> Box<dyn Method>) -> [f64; 2] {
    let (d, x, w) = (problem.d(), vec![0.01; problem.d()], vec![0.02; problem.d()]);
    let new = || Runner::new(problem.clone(), make(), &vec![0.0; d], Prox::Zero, 7, 1).unwrap();
    // The second one says what the first will draw.
    let (mut runner, mut scout) = (new(), new());
    let (mut workspace, mut g) = (Workspace::default(), vec![0.0; d]);
    let mut least = [f64::INFINITY; 2];
    for _ in 0..TURNS {
        let mut is_full = false;
        let mut batches = Vec::new();
        for _ in 0..STEPS {
            scout.step(0.05, Choices::default()).unwrap();
            let (batch, coin) = scout.drawn();
            is_full |= coin == Some(true);
            batches.push(batch.to_vec());
        }
        let began = Instant::now();
        (0..STEPS).for_each(|_| runner.step(0.05, Choices::default()).unwrap());
        let steps = began.elapsed().as_secs_f64();
        let began = Instant::now();
        for batch in &batches {
            g.fill(0.0);
            problem.grad(&x, Some(&w), Samples::mean(batch), 1, &mut workspace, &mut g).unwrap();
        }
        let gradients = began.elapsed().as_secs_f64();
        if !is_full {
            least = [least[0].min(steps), least[1].min(gradients)];
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
        for (batch, rule) in [1, 8, 64]
            .into_iter()
            .flat_map(|b| [(b, Sampling::Nice(b)), (b, Sampling::Reshuffle(b))])
            .chain([(512, Sampling::Nice(512))])
        {
            for kind in ["L-SVRG", "PAGE"] {
                let [step, gradients] = times(&problem, &|| {
                    let sampler = Sampler::new(rule.clone(), n).unwrap();
                    match kind {
                        "PAGE" => Box::new(Page::new(sampler, batch as f64 / (n + batch) as f64).unwrap()),
                        _ => Box::new(LSvrg::new(sampler, 1.0 / n as f64).unwrap()),
                    }
                });
                println!("| {name} | {kind} | {rule:?} | {step:.3} | {gradients:.3} | {:.3} |", step / gradients);
            }
        }
    }
}
