//! Optimisation: finite sums, sampling, proximal operators, and methods with proven rates.
//!
//! Layers: [`Rows`] and [`Terms`] make a [`FiniteSum`]; a [`Sampler`] draws batches; [`Clients`] divide the samples and send
//! results; a [`Method`] computes the next iterate; a [`Runner`] takes its steps. Promises: all draws are functions of (seed,
//! round, client, purpose); the same bits for any number of threads; a step is complete or undone. The caller chooses step sizes.
//!
//! ```
//! use std::sync::Arc;
//! use burtorch_core::opt::{Choices, FiniteSum, Linear, Loss, Page, Prox, Regulariser, Rows, Runner, Sampler, Sampling};
//!
//! let rows = Rows::dense(vec![1.0, 0.0, 0.0, 1.0, 1.0, 1.0], 2)?;
//! let terms = Linear::new(rows, vec![1.0, 2.0, 3.0], Loss::Squares)?;
//! let problem = Arc::new(FiniteSum::new(Box::new(terms), Regulariser::default())?);
//! let page = Page::new(Sampler::new(Sampling::Nice(1), 3)?, 0.25)?;
//! let mut runner = Runner::new(problem, Box::new(page), &[0.0, 0.0], Prox::Zero, 7, 1)?;
//! for _ in 0..500 {
//!     runner.step(0.25, Choices::default())?;
//! }
//! assert!((runner.x()[0] - 1.0).abs() < 1e-9 && (runner.x()[1] - 2.0).abs() < 1e-9);
//! # Ok::<(), burtorch_core::Error>(())
//! ```

mod rows;
mod terms;

mod joined;
mod linear;
mod softmax;

mod prox;
mod sampling;

mod method;

mod reduced;
mod stochastic;

mod accelerated;

mod delays;
mod parts;
mod tree;

mod exchange;

mod clients;

mod batches;

mod compressed;
mod kept;
mod local;
mod worker;

mod asynchronous;
mod feedback;

pub use accelerated::{Accelerated, LKatyusha};
pub use asynchronous::{Asynchronous, Rule};
pub use batches::LocalSteps;
pub use clients::Clients;
pub use compressed::{Dasha, Diana, Marina};
pub use delays::{Delays, Network, Spread};
pub use exchange::Exchange;
pub use feedback::{Ef14, Ef21};
pub use kept::Vectors;
pub use linear::{Linear, Loss};
pub use local::{FedAvg, Scaffnew, Scaffold};
pub use method::{Choices, Cost, Env, Method, Part, Runner};
pub use prox::Prox;
pub use reduced::{LSvrg, Page, Saga};
pub use rows::Rows;
pub use sampling::{Sampler, Sampling};
pub use softmax::Softmax;
pub use stochastic::Sgd;
pub use terms::{FiniteSum, Regulariser, Samples, Terms, Workspace};
