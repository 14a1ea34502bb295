//! What plans do, compiled for both types of float in this crate.
//!
//! Promises: a crate that makes and runs plans by [`PlanEntries`] compiles no part of them. Generic methods are compiled again in
//! every crate that calls them, and a library of both would hold them twice.

use super::super::instr::ArrayProgram;
use super::gradients_in_parts::TakePart;
use super::{Argument, PassingPlan, Plan};
use crate::error::Result;

/// The entries of plans of a type of float.
pub trait PlanEntries: Sized {
    /// [`Plan::new`].
    fn plan(program: &ArrayProgram) -> Result<Plan<Self>>;

    /// [`Plan::run`].
    fn run(plan: &mut Plan<Self>, arguments: &[Argument<'_, Self>], parameters: &[&[Self]]) -> Result<()>;

    /// [`Plan::take`].
    fn take(plan: &mut Plan<Self>, k: usize) -> Result<Option<Vec<Self>>>;

    /// [`Plan::give`].
    fn give(plan: &mut Plan<Self>, memory: &mut dyn FnMut(usize) -> Option<Vec<Self>>) -> Result<()>;

    /// [`PassingPlan::new`].
    fn passing_plan(program: &ArrayProgram) -> Result<Option<PassingPlan<Self>>>;

    /// [`PassingPlan::run`].
    fn run_passing(
        plan: &mut PassingPlan<Self>,
        arguments: &[Argument<'_, Self>],
        parameters: &[&[Self]],
        take: &mut TakePart<'_, Self>,
    ) -> Result<Self>;
}

macro_rules! plan_entries {
    ($($float:ident),*) => {$(
        impl PlanEntries for $float {
            fn plan(program: &ArrayProgram) -> Result<Plan<Self>> {
                Plan::new(program)
            }

            fn run(plan: &mut Plan<Self>, arguments: &[Argument<'_, Self>], parameters: &[&[Self]]) -> Result<()> {
                plan.run(arguments, parameters)
            }

            fn take(plan: &mut Plan<Self>, k: usize) -> Result<Option<Vec<Self>>> {
                plan.take(k)
            }

            fn give(plan: &mut Plan<Self>, memory: &mut dyn FnMut(usize) -> Option<Vec<Self>>) -> Result<()> {
                plan.give(memory)
            }

            fn passing_plan(program: &ArrayProgram) -> Result<Option<PassingPlan<Self>>> {
                PassingPlan::new(program)
            }

            fn run_passing(
                plan: &mut PassingPlan<Self>,
                arguments: &[Argument<'_, Self>],
                parameters: &[&[Self]],
                take: &mut TakePart<'_, Self>,
            ) -> Result<Self> {
                plan.run(arguments, parameters, take)
            }
        }
    )*};
}
plan_entries!(f32, f64);
