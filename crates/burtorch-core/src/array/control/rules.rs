//! Rules of derivatives: each mode from the other one, checked, and for many rows.
//!
//! Promises: a rule has the types that its program requires. A rule is linear, so the other mode is its transpose. Does not
//! know where rules are stored.

use std::cell::Cell;

use super::super::batch::Batch;
use super::super::build::ArrayBuilder;
use super::super::dims::{Axes, bad};
use super::super::instr::{Apart, ArrayOp, ArrayProgram, Reduce, Rules, Shared, Type};
use super::super::reverse::Variable;
use super::body::is_float;
use crate::error::Result;

fn floats(types: &[Type]) -> Vec<Type> {
    types.iter().copied().filter(|ty| is_float(*ty)).collect()
}

/// A rule that takes and gives these, then results and operands.
fn checked(of: &Apart, rule: ArrayProgram, takes: &[Type], gives: &[Type]) -> Result<ArrayProgram> {
    let body = &of.body.0;
    let expected = [takes, &body.output_types(), &body.input_types()].concat();
    for (what, expected, found) in
        [("arguments of a rule", &expected[..], rule.input_types()), ("results of a rule", gives, rule.output_types())]
    {
        if found != expected {
            return Err(bad(what, format!("{expected:?}"), format!("{found:?}")));
        }
    }
    if rule.params().is_empty() { Ok(rule) } else { Err(bad("rule", "one without parameters".into(), "some".into())) }
}

/// What takes what a rule gives, and gives what its first `n` arguments receive.
fn transposed(rule: &ArrayProgram, n: usize) -> Result<ArrayProgram> {
    let by: Vec<_> = (0..n).map(Variable::Input).collect();
    let back = rule.vjp(&by)?;
    let (types, given) = (rule.input_types(), rule.output_types());
    let mut b = ArrayBuilder::new(rule.dtype())?;
    let seeds = b.inputs_of(&given)?;
    let rest = b.inputs_of(&types[n..])?;
    let mut arguments = Vec::with_capacity(types.len() + given.len());
    // A linear rule has the same transpose everywhere.
    for ty in &types[..n] {
        let zero = b.literal(0.0)?;
        arguments.push(b.broadcast_to(zero, ty.dims)?);
    }
    arguments.extend(rest.into_iter().chain(seeds));
    let new = b.append(&back, &arguments)?;
    let outputs: Vec<_> = back.outputs()[given.len()..].iter().map(|v| new[v.at()]).collect();
    b.finish(&outputs)?.cleaned()
}

fn missing(rules: &dyn Rules) -> crate::Error {
    bad("derivative", format!("a rule for {}", rules.name()), "none".into())
}

/// The largest depth of nested transposes.
const DEEPEST: usize = 32;

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// One level, until it is dropped.
struct Transpose;

impl Transpose {
    /// Refuses too many nested levels: a rule that calls its own primitive would need its own transpose.
    fn begin(rules: &dyn Rules) -> Result<Transpose> {
        if DEPTH.get() == DEEPEST {
            let name = rules.name();
            let expected = format!("of both directions for {name}: one that calls {name} itself has no transpose");
            return Err(bad("rules", expected, "one direction".into()));
        }
        DEPTH.set(DEPTH.get() + 1);
        Ok(Transpose)
    }
}

impl Drop for Transpose {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// The rule of one direction, which takes and gives these, or the transpose of that of the other one.
fn directed(
    (of, rules): (&Apart, &dyn Rules),
    rule: Option<ArrayProgram>,
    other: impl FnOnce() -> Result<ArrayProgram>,
    [takes, gives]: [Vec<Type>; 2],
) -> Result<ArrayProgram> {
    let [takes, gives] = [floats(&takes), floats(&gives)];
    match rule {
        Some(rule) => checked(of, rule, &takes, &gives),
        None => {
            let _one = Transpose::begin(rules)?;
            transposed(&checked(of, other()?, &gives, &takes)?, gives.len())
        }
    }
}

/// The rule for adjoints.
pub(super) fn reverse_of(of: &Apart, rules: &dyn Rules) -> Result<ArrayProgram> {
    let other = || rules.forward()?.ok_or_else(|| missing(rules));
    directed((of, rules), rules.reverse()?, other, [of.body.0.output_types(), of.body.0.input_types()])
}

/// The rule for tangents.
pub(super) fn forward_of(of: &Apart, rules: &dyn Rules) -> Result<ArrayProgram> {
    let other = || rules.reverse()?.ok_or_else(|| missing(rules));
    directed((of, rules), rules.forward()?, other, [of.body.0.input_types(), of.body.0.output_types()])
}

/// The rules of a program for many rows.
#[derive(Debug)]
pub(super) struct RulesOfRows {
    /// One row.
    pub(super) of: Apart,
    pub(super) rules: Shared<Box<dyn Rules>>,
    /// Which operands have rows.
    pub(super) has_rows: Vec<bool>,
    pub(super) rows: usize,
}

impl RulesOfRows {
    /// Of a rule whose first arguments, and whose results, have rows as these say.
    fn for_rows(&self, rule: &ArrayProgram, first: &[bool], gives: &[bool]) -> Result<ArrayProgram> {
        let n_results = self.of.body.0.outputs().len();
        let has_rows = [first, &vec![true; n_results], &self.has_rows].concat();
        let batch = Batch::new(rule.dtype(), self.rows)?;
        let (rule, _) = batch.body_of_rows(rule, &has_rows, &vec![true; gives.len()])?;
        // What all rows share receives the sum.
        let mut b = ArrayBuilder::from(rule.clone());
        let mut outputs = rule.outputs().to_vec();
        for (v, _) in outputs.iter_mut().zip(gives).filter(|(_, has_rows)| !**has_rows) {
            *v = b.push(ArrayOp::Reduce(Reduce::Sum, Axes::range(0, 1)), &[*v])?;
        }
        b.finish(&outputs)
    }

    fn of_floats(&self) -> Vec<bool> {
        let types = self.of.body.0.input_types();
        types.into_iter().zip(&self.has_rows).filter(|(ty, _)| is_float(*ty)).map(|(_, has_rows)| *has_rows).collect()
    }

    fn all(&self) -> Vec<bool> {
        vec![true; floats(&self.of.body.0.output_types()).len()]
    }
}

impl Rules for RulesOfRows {
    fn name(&self) -> &str {
        self.rules.0.name()
    }

    fn key(&self) -> usize {
        self.rules.0.key()
    }

    fn reverse(&self) -> Result<Option<ArrayProgram>> {
        let rule = reverse_of(&self.of, &**self.rules.0)?;
        self.for_rows(&rule, &self.all(), &self.of_floats()).map(Some)
    }

    fn forward(&self) -> Result<Option<ArrayProgram>> {
        let rule = forward_of(&self.of, &**self.rules.0)?;
        self.for_rows(&rule, &self.of_floats(), &self.all()).map(Some)
    }
}
