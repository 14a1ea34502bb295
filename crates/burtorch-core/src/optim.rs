//! Optimisers over flat parameters, and the seeded order of samples.
//!
//! Promises: a step reads and writes each trainable number once, leaves frozen ones alone, and allocates nothing after the
//! first. Does not know models or losses.

mod adam;
mod clip;
mod schedule;

pub use adam::{Adam, AdamRates};
pub use clip::{clip_grad_norm, clip_grad_norm_of};
pub use schedule::{Course, Schedule};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::error::{Error, Result};
use crate::io::{OptimiserState, Stored};
use crate::kernels::{KernelFloat, Momentum, sgd_decay_update, sgd_momentum_update, sgd_update};
use crate::params::Parameters;
pub use crate::params::Selection;
use crate::scalar::Float;

/// Stochastic gradient descent: `x -= lr g`.
///
/// With momentum or weight decay as PyTorch has them: `g' = g + decay x`, `v = momentum v + g'`, and `x -= lr v`, or
/// `x -= lr (g' + momentum v)` with Nesterov's.
#[derive(Clone, Debug)]
pub struct Sgd<E> {
    lr: f64,
    momentum: f64,
    nesterov: bool,
    weight_decay: f64,
    /// One entry per updated number with momentum, otherwise empty.
    velocity: Vec<E>,
    /// The identity of the velocity's parameters; 0 before the first step.
    store: u64,
}

impl<E: Float> Sgd<E> {
    /// Plain descent with this learning rate.
    pub fn new(lr: f64) -> Result<Self> {
        Self::with_momentum(lr, 0.0, false, 0.0)
    }

    /// Descent with momentum and weight decay. All numbers are finite and not negative, momentum is below 1.
    pub fn with_momentum(lr: f64, momentum: f64, nesterov: bool, weight_decay: f64) -> Result<Self> {
        check_rate("the learning rate", lr)?;
        check_rate("the weight decay", weight_decay)?;
        if !(0.0..1.0).contains(&momentum) || (nesterov && momentum == 0.0) {
            return Err(Error::BadArgument {
                what: "the momentum",
                expected: "at least 0 and below 1, and not 0 with nesterov".into(),
                found: format!("{momentum}"),
            });
        }
        Ok(Sgd { lr, momentum, nesterov, weight_decay, velocity: Vec::new(), store: 0 })
    }

    /// The learning rate.
    pub fn lr(&self) -> f64 {
        self.lr
    }

    /// Changes the learning rate.
    pub fn set_lr(&mut self, lr: f64) -> Result<()> {
        check_rate("the learning rate", lr)?;
        self.lr = lr;
        Ok(())
    }

    /// The momentum.
    pub fn momentum(&self) -> f64 {
        self.momentum
    }

    /// The weight decay.
    pub fn weight_decay(&self) -> f64 {
        self.weight_decay
    }

    /// Whether the momentum is Nesterov's.
    pub fn nesterov(&self) -> bool {
        self.nesterov
    }

    /// One step along the gradients of `params`.
    pub fn step(&mut self, params: &mut Parameters<'_, E>) -> Result<()>
    where
        E: KernelFloat,
    {
        self.step_of(params, &Selection::ALL)
    }

    /// One step of the selected numbers, which must be the same in all steps: the state belongs to them.
    pub fn step_of(&mut self, params: &mut Parameters<'_, E>, numbers: &Selection) -> Result<()>
    where
        E: KernelFloat,
    {
        let lr = E::lit(self.lr);
        if self.momentum == 0.0 {
            let decay = E::lit(self.weight_decay);
            match self.weight_decay == 0.0 {
                true => params.for_each_selected_mut(numbers, |_, x, g| sgd_update(lr, g, x)),
                false => params.for_each_selected_mut(numbers, |_, x, g| sgd_decay_update(lr, decay, g, x)),
            }
            return Ok(());
        }
        self.make_velocity(params, numbers)?;
        let rule = Momentum {
            lr,
            momentum: E::lit(self.momentum),
            nesterov: self.nesterov,
            weight_decay: E::lit(self.weight_decay),
        };
        params.for_each_selected_mut(numbers, |places, x, g| {
            sgd_momentum_update(&rule, g, &mut self.velocity[places], x);
        });
        Ok(())
    }

    /// Everything that determines the next steps, except the parameters and their gradients.
    pub fn state(&self) -> OptimiserState<E> {
        OptimiserState {
            name: "sgd".into(),
            settings: vec![self.lr, self.momentum, self.weight_decay],
            counters: vec![u64::from(self.nesterov)],
            columns: vec![self.velocity.clone()],
        }
    }

    /// The checkpoint format of the state.
    pub fn to_bytes(&self) -> Result<Vec<u8>>
    where
        E: Stored,
    {
        self.state().to_bytes()
    }

    /// Restores the saved optimiser for `params`, which must have the same length as then.
    pub fn load_bytes(&mut self, params: &Parameters<'_, E>, bytes: &[u8]) -> Result<()>
    where
        E: Stored,
    {
        self.load_bytes_of(params, &Selection::ALL, bytes)
    }

    /// As [`Sgd::load_bytes`], for selected numbers, of the same count as then.
    pub fn load_bytes_of(&mut self, params: &Parameters<'_, E>, numbers: &Selection, bytes: &[u8]) -> Result<()>
    where
        E: Stored,
    {
        let mut state = OptimiserState::from_bytes(bytes, "sgd", [3, 1, 1], numbers.len_of(params.len()))?;
        let new = Self::with_momentum(state.settings[0], state.settings[1], state.counters[0] != 0, state.settings[2])?;
        *self = Sgd { velocity: state.columns.swap_remove(0), store: params.id(), ..new };
        Ok(())
    }

    /// Bytes of the velocity.
    pub fn state_bytes(&self) -> usize {
        self.velocity.capacity() * size_of::<E>()
    }

    /// Allocates the velocity, which starts at 0, also for tensors added later.
    fn make_velocity(&mut self, params: &Parameters<'_, E>, numbers: &Selection) -> Result<()> {
        if self.store != params.id() {
            self.velocity.clear();
            self.store = params.id();
        }
        grow(&mut self.velocity, numbers.len_of(params.len()))
    }
}

/// Reserves `n` numbers in total.
fn make_room<E: Float>(column: &mut Vec<E>, n: usize) -> Result<()> {
    let more = n.saturating_sub(column.len());
    column.try_reserve_exact(more).map_err(|_| crate::memory::refused::<E>(more, "the state of an optimiser"))
}

/// Appends zeros up to length `n`.
fn grow<E: Float>(column: &mut Vec<E>, n: usize) -> Result<()> {
    make_room(column, n)?;
    column.resize(n, E::lit(0.0));
    Ok(())
}

pub(crate) fn check_rate(what: &'static str, rate: f64) -> Result<()> {
    if rate.is_finite() && rate >= 0.0 {
        return Ok(());
    }
    Err(Error::BadArgument { what, expected: "finite and at least 0".into(), found: format!("{rate}") })
}

/// The numbers `0..n` in a seeded random order, another one for each pass.
///
/// ```
/// use burtorch_core::optim::Shuffle;
/// let mut shuffle = Shuffle::new(5, 0);
/// let mut seen = shuffle.next_pass().to_vec();
/// seen.sort();
/// assert_eq!(seen, [0, 1, 2, 3, 4]);
/// ```
#[derive(Clone, Debug)]
pub struct Shuffle {
    order: Vec<u32>,
    rng: ChaCha8Rng,
}

impl Shuffle {
    /// An order of `n` samples with this seed.
    pub fn new(n: u32, seed: u64) -> Self {
        Shuffle { order: (0..n).collect(), rng: ChaCha8Rng::seed_from_u64(seed) }
    }

    /// The order of the next pass (Fisher and Yates).
    pub fn next_pass(&mut self) -> &[u32] {
        for k in (1..self.order.len()).rev() {
            self.order.swap(k, self.rng.random_range(0..=k as u32) as usize);
        }
        &self.order
    }
}
