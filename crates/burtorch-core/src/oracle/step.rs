//! Steps of gradient descent by an oracle, which may store no gradient.
//!
//! Promises: a step updates all values or none. Does not know other optimisers.

use super::batch::Batch;
use super::lanes::{LaneFloat, LaneModel, Pass};
use super::{Interrupted, Oracle, check};
use crate::error::Result;
use crate::kernels::sgd_update;
use crate::nn::Model;
use crate::params::Parameters;
use crate::sync::Stop;
use crate::sync::stop::{self, Watch};

impl<E: LaneFloat> Oracle<E> {
    /// One step of plain gradient descent on the batch, `x -= lr g`; returns the loss before it.
    ///
    /// If all samples are computed at once (one, up to a group of lanes, or a block of 64), and one node reads each parameter of
    /// the model, values change during the sweep and no gradient is stored: a third of the memory traffic,
    /// and the numbers of [`Oracle::gradient`] and [`Sgd::step`](crate::Sgd::step) within rounding (embeddings that are
    /// named twice, biases and the sums of input gradients are added up in another order).
    /// The gradients are unspecified afterwards.
    pub fn step<M: LaneModel<E> + ?Sized>(
        &mut self,
        model: &M,
        params: &mut Parameters<'_, E>,
        batch: Batch<'_, E>,
        lr: f64,
        interrupted: Interrupted<'_>,
    ) -> Result<f64> {
        self.step_watching(model, params, batch, lr, interrupted, None)
    }

    /// As [`Oracle::step`], unless a token is set before values move: then an [`Error::Interrupted`](crate::Error::Interrupted), and
    /// values are unchanged. A step that has begun to update values completes.
    ///
    /// ```
    /// use burtorch_core::nn::{Activation, Input, Label, Mlp};
    /// use burtorch_core::sync::Stop;
    /// use burtorch_core::{Batch, Error, Oracle, Parameters};
    /// let mut params = Parameters::<f64>::new(0);
    /// let model = Mlp::new(&mut params, &[2, 8, 1], true, Activation::Tanh, None).unwrap();
    /// let batch = Batch::new(Input::Numbers(&[0.5, 1.0]), Label::Numbers(&[1.0]), 1).unwrap();
    /// let (mut oracle, stop, before) = (Oracle::new(), Stop::new(), params.values().to_vec());
    /// stop.set();
    /// let stopped = oracle.step_until(&model, &mut params, batch, 0.1, &stop, None);
    /// assert_eq!((stopped, params.values()), (Err(Error::Interrupted), &before[..]));
    /// ```
    pub fn step_until<M: LaneModel<E> + ?Sized>(
        &mut self,
        model: &M,
        params: &mut Parameters<'_, E>,
        batch: Batch<'_, E>,
        lr: f64,
        stop: &Stop,
        interrupted: Interrupted<'_>,
    ) -> Result<f64> {
        self.step_watching(model, params, batch, lr, interrupted, Some(stop))
    }

    fn step_watching<M: LaneModel<E> + ?Sized>(
        &mut self,
        model: &M,
        params: &mut Parameters<'_, E>,
        batch: Batch<'_, E>,
        lr: f64,
        interrupted: Interrupted<'_>,
        stop: Option<&Stop>,
    ) -> Result<f64> {
        crate::optim::check_rate("the learning rate", lr)?;
        let lr = E::lit(lr);
        let n = batch.len();
        let (width, at_once) = self.lanes.next::<E>(n, <M as Model<E>>::fills_lanes_itself(model));
        let mut sum = 0.0;
        let each = &mut |_, loss: E| sum += loss.to_f64();
        let at_once = n <= width && n <= at_once && <M as Model<E>>::reads_once(model);
        let watch = stop.map(|stop| Watch { stop: stop.clone(), ends_sweeps: !at_once, ends_all: false, leaves: true });
        if at_once {
            check(model, params, batch)?;
            let watch = watch.as_ref();
            let mut pass = Pass { watch, ..Pass::new(model, batch, interrupted, each, self.team.n_threads) };
            let rates = (self.seed(n), lr);
            stop::watching(watch, || self.workspace.step(&mut pass, params, (width, n), rates))?;
        } else {
            self.gradient_watching(model, params, batch, interrupted, (each, watch.as_ref()))?;
            params.for_each_trainable_mut(|_, x, g| sgd_update(lr, g, x));
        }
        Ok(self.reduce(sum, n))
    }
}
