//! Programs as text: a listing, and a drawing in DOT.
//!
//! Promises: a listing has one line per input, constant, node, guard and output, in order. Does not know how programs run.

use std::fmt::{self, Write};

use super::node::{Node, Program};
use crate::error::Result;
use crate::interrupt;
use crate::ops::{Arity, Op};

/// Numbers written in the time of one line.
const LINE: usize = 64;

impl Program {
    /// The name of a slot: `x0` for an input, the number itself for a constant, `%0` for a node.
    fn name(&self, slot: u32) -> String {
        if slot < self.n_inputs {
            format!("x{slot}")
        } else if let Some(x) = self.constant(slot) {
            format!("{x:?}")
        } else {
            format!("%{}", slot - self.first_node())
        }
    }

    /// The name of a node's op in listings.
    fn op_name(&self, node: Node) -> &'static str {
        match node.op {
            Op::Constant => "detach",
            Op::Linearised => "primitive",
            op => op.name(),
        }
    }

    fn formula(&self, k: usize, node: Node) -> String {
        let called = self.called(k as u32).map(|called| called.0.name());
        let mut text = called.unwrap_or(self.op_name(node)).to_string();
        match node.op.info().arity {
            Arity::Nullary | Arity::Unary => {
                let _ = write!(text, " {}", self.name(node.a));
            }
            Arity::Binary | Arity::WithConstant => {
                let _ = write!(text, " {} {}", self.name(node.a), self.name(node.b));
            }
            _ => {
                for &x in self.list(node) {
                    let _ = write!(text, " {}", self.name(x));
                }
            }
        }
        text
    }

    /// How often each op occurs, in the order of the op table.
    pub fn op_counts(&self) -> Vec<(&'static str, usize)> {
        let mut counts = [0_usize; 256];
        for node in &self.nodes {
            counts[node.op as usize] += 1;
        }
        let named = |info: &crate::ops::OpInfo| {
            let node = Node { op: info.op, a: 0, b: 0 };
            (self.op_name(node), counts[info.op as usize])
        };
        crate::ops::OP_INFO.iter().map(named).filter(|(_, n)| *n > 0).collect()
    }

    /// The program as a graph for Graphviz. Interruptible.
    pub fn dot(&self) -> Result<String> {
        let mut is_output = vec![false; self.n_slots()];
        self.outputs.iter().for_each(|&x| is_output[x as usize] = true);
        let mut text = String::from("digraph program {\n  rankdir=LR;\n");
        for slot in 0..self.n_inputs {
            let _ = writeln!(text, "  s{slot} [label=\"x{slot}\", shape=box];");
        }
        for (k, x) in self.constants.iter().enumerate() {
            let _ = writeln!(text, "  s{} [label=\"{x:?}\", shape=plaintext];", self.n_inputs as usize + k);
        }
        for (k, &node) in self.nodes.iter().enumerate() {
            interrupt::ask_at(LINE * k)?;
            let slot = self.first_node() as usize + k;
            let shape = if is_output[slot] { ", peripheries=2" } else { "" };
            let _ = writeln!(text, "  s{slot} [label=\"{}\"{shape}];", self.op_name(node));
            self.for_each_operand(node, |x| {
                let _ = writeln!(text, "  s{x} -> s{slot};");
            });
        }
        text.push_str("}\n");
        Ok(text)
    }
}

/// One line each: the inputs, the nodes with the guards between them, the outputs.
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "program({}", if self.n_inputs > 0 { "x0" } else { "" })?;
        if self.n_inputs > 1 {
            write!(f, "..x{}", self.n_inputs - 1)?;
        }
        writeln!(f, ": {})", self.dtype.name())?;
        let mut guards = self.guards.iter().peekable();
        for k in 0..=self.nodes.len() {
            interrupt::ask_at(LINE * k).map_err(|_| fmt::Error)?;
            while let Some(guard) = guards.next_if(|guard| guard.after as usize == k) {
                let (a, b, symbol) = (self.name(guard.a), self.name(guard.b), guard.comparison.symbol());
                writeln!(f, "  guard {}({a} {symbol} {b})", if guard.answer { "" } else { "not " })?;
            }
            if let Some(&node) = self.nodes.get(k) {
                writeln!(f, "  %{k} = {}", self.formula(k, node))?;
            }
        }
        let outputs: Vec<String> = self.outputs.iter().map(|&x| self.name(x)).collect();
        write!(f, "  return {}", outputs.join(" "))
    }
}
