//! Adam and AdamW.

use super::{Selection, check_rate};
use crate::error::{Error, Result};
use crate::io::{OptimiserState, Stored};
use crate::kernels::{self, KernelFloat, adam_update};
use crate::params::Parameters;
use crate::scalar::Float;

/// The rates of an [`Adam`]. The default is PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamRates {
    /// Learning rate.
    pub lr: f64,
    /// Decay rates of the first and the second moment, below 1.
    pub betas: (f64, f64),
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Weight decay.
    pub weight_decay: f64,
    /// Whether the decay is subtracted from the numbers, times the learning rate (AdamW), and not added to gradients.
    pub decoupled: bool,
}

impl Default for AdamRates {
    fn default() -> Self {
        AdamRates { lr: 1e-3, betas: (0.9, 0.999), eps: 1e-8, weight_decay: 0.0, decoupled: false }
    }
}

/// `m = b1 m + (1 - b1) g`, `v = b2 v + (1 - b2) g^2`, then `x -= lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)` at
/// step t, as PyTorch has it. Costs two numbers per parameter, and one pass over all of them a step.
///
/// ```
/// use burtorch_core::optim::{Adam, AdamRates};
/// use burtorch_core::{Init, Parameters};
/// let mut params = Parameters::<f64>::new(0);
/// params.tensor(&[2], None, Init::Constant(1.0), true).unwrap();
/// params.grads_mut().copy_from_slice(&[0.5, -8.0]);
/// let mut adam = Adam::new(AdamRates { lr: 0.25, ..AdamRates::default() }).unwrap();
/// adam.step(&mut params).unwrap();
/// assert!((params.values()[0] - 0.75).abs() < 1e-7 && (params.values()[1] - 1.25).abs() < 1e-7);
/// ```
#[derive(Clone, Debug)]
pub struct Adam<E> {
    rates: AdamRates,
    n_steps: u64,
    first: Vec<E>,
    second: Vec<E>,
    /// The identity of the moments' parameters; 0 before the first step.
    store: u64,
}

impl<E: Float> Adam<E> {
    /// Bytes of both moments.
    pub fn state_bytes(&self) -> usize {
        (self.first.capacity() + self.second.capacity()) * size_of::<E>()
    }

    /// Rates are finite and not negative, betas below 1.
    pub fn new(rates: AdamRates) -> Result<Self> {
        check_rate("the learning rate", rates.lr)?;
        check_rate("eps", rates.eps)?;
        check_rate("the weight decay", rates.weight_decay)?;
        for beta in [rates.betas.0, rates.betas.1] {
            if !(0.0..1.0).contains(&beta) {
                let expected = "at least 0 and below 1".into();
                return Err(Error::BadArgument { what: "a beta", expected, found: format!("{beta}") });
            }
        }
        Ok(Adam { rates, n_steps: 0, first: Vec::new(), second: Vec::new(), store: 0 })
    }

    /// Its rates.
    pub fn rates(&self) -> AdamRates {
        self.rates
    }

    /// Changes the learning rate.
    pub fn set_lr(&mut self, lr: f64) -> Result<()> {
        check_rate("the learning rate", lr)?;
        self.rates.lr = lr;
        Ok(())
    }

    /// Steps taken.
    pub fn n_steps(&self) -> u64 {
        self.n_steps
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
        self.make_moments(params, numbers)?;
        self.n_steps += 1;
        let AdamRates { lr, betas: (beta1, beta2), eps, weight_decay, decoupled } = self.rates;
        let correction = |beta: f64| 1.0 - beta.powf(self.n_steps as f64);
        let shares = |beta: f64| [E::lit(beta), E::lit(1.0 - beta)];
        let (added, kept) = if decoupled { (0.0, 1.0 - lr * weight_decay) } else { (weight_decay, 1.0) };
        let rule = kernels::Adam {
            rate: E::lit(lr / correction(beta1)),
            first: shares(beta1),
            second: shares(beta2),
            correction: E::lit(correction(beta2)),
            eps: E::lit(eps),
            added: E::lit(added),
            kept: E::lit(kept),
        };
        params.for_each_selected_mut(numbers, |places, x, g| {
            adam_update(&rule, g, &mut self.first[places.clone()], &mut self.second[places], x);
        });
        Ok(())
    }

    /// Everything that determines the next steps, except the parameters and their gradients.
    pub fn state(&self) -> OptimiserState<E> {
        let AdamRates { lr, betas, eps, weight_decay, decoupled } = self.rates;
        OptimiserState {
            name: "adam".into(),
            settings: vec![lr, betas.0, betas.1, eps, weight_decay],
            counters: vec![self.n_steps, u64::from(decoupled)],
            columns: vec![self.first.clone(), self.second.clone()],
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

    /// As [`Adam::load_bytes`], for selected numbers, of the same count as then.
    pub fn load_bytes_of(&mut self, params: &Parameters<'_, E>, numbers: &Selection, bytes: &[u8]) -> Result<()>
    where
        E: Stored,
    {
        let mut state = OptimiserState::from_bytes(bytes, "adam", [5, 2, 2], numbers.len_of(params.len()))?;
        let [lr, beta1, beta2, eps, weight_decay] = [0, 1, 2, 3, 4].map(|k| state.settings[k]);
        let decoupled = state.counters[1] != 0;
        let new = Self::new(AdamRates { lr, betas: (beta1, beta2), eps, weight_decay, decoupled })?;
        let second = state.columns.swap_remove(1);
        let first = state.columns.swap_remove(0);
        *self = Adam { n_steps: state.counters[0], first, second, store: params.id(), ..new };
        Ok(())
    }

    /// Allocates the moments, which start at 0, also for tensors added later.
    fn make_moments(&mut self, params: &Parameters<'_, E>, numbers: &Selection) -> Result<()> {
        if self.store != params.id() {
            self.first.clear();
            self.second.clear();
            self.n_steps = 0;
            self.store = params.id();
        }
        // Reserves both before extending either.
        let n = numbers.len_of(params.len());
        super::make_room(&mut self.first, n)?;
        super::grow(&mut self.second, n)?;
        super::grow(&mut self.first, n)
    }
}
