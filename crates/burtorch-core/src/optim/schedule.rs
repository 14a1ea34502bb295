//! Schedules of the learning rate.

use super::check_rate;
use crate::error::{Error, Result};

/// The learning rate after the warm-up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Course {
    /// Constant rate.
    Constant,
    /// Multiplied by a factor after every `every` steps.
    Steps {
        /// The number of steps, at least 1.
        every: u64,
        /// The factor.
        factor: f64,
    },
    /// Half a period of a cosine down to `last`, which is kept from step `total` on.
    Cosine {
        /// Steps until the lowest rate, at least 1.
        total: u64,
        /// The lowest rate.
        last: f64,
    },
}

/// A learning rate for each step, from a base rate: first `warm_up` steps in a straight line from `base / warm_up` up to
/// it, then the course.
///
/// ```
/// use burtorch_core::optim::{Course, Schedule};
/// let schedule = Schedule::new(0.1, 2, Course::Steps { every: 3, factor: 0.5 }).unwrap();
/// let rates: Vec<f64> = (0..9).map(|step| schedule.rate(step)).collect();
/// assert_eq!(rates, [0.05, 0.1, 0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.025]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    base: f64,
    warm_up: u64,
    course: Course,
}

impl Schedule {
    /// Rates and factors are finite and not negative.
    pub fn new(base: f64, warm_up: u64, course: Course) -> Result<Self> {
        check_rate("the learning rate", base)?;
        let n = match course {
            Course::Constant => 1,
            Course::Steps { every, factor } => {
                check_rate("the factor of a schedule", factor)?;
                every
            }
            Course::Cosine { total, last } => {
                check_rate("the last learning rate", last)?;
                total
            }
        };
        if n == 0 {
            let expected = "at least 1".into();
            return Err(Error::BadArgument { what: "the steps of a schedule", expected, found: "0".into() });
        }
        Ok(Schedule { base, warm_up, course })
    }

    /// The rate after the warm-up, the steps of the warm-up, and the course of the rate after it.
    pub fn parts(&self) -> (f64, u64, Course) {
        (self.base, self.warm_up, self.course)
    }

    /// The rate of step `step`, the first of which is 0.
    pub fn rate(&self, step: u64) -> f64 {
        let Some(step) = step.checked_sub(self.warm_up) else {
            return self.base * ((step + 1) as f64 / self.warm_up as f64);
        };
        match self.course {
            Course::Constant => self.base,
            Course::Steps { every, factor } => self.base * factor.powf((step / every) as f64),
            Course::Cosine { total, last } => {
                let share = step.min(total) as f64 / total as f64;
                last + (self.base - last) * (1.0 + (std::f64::consts::PI * share).cos()) / 2.0
            }
        }
    }
}
