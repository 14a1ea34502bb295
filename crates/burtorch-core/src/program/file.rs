//! Programs as sections of a checkpoint file.
//!
//! Sections: `PROG` inputs, differentiated inputs; `OPNM` names of the used ops, one per line; `OPS ` the index of each node's
//! op among them; `OPND` two operands per node; `LIST` listed operands; `CNST` constants; `OUTS` outputs; `GRDS` four numbers
//! per guard. Promises: a loaded program is valid, or is refused with a reason; ops are stored by name, so that the order of
//! the op table may change. Does not know whole files.

use super::node::{Comparison, Guard, Node, Parts, Program};
use super::primitive::{self, Called};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::io::{Reader, Writer};
use crate::ops::Op;

impl Program {
    /// Appends the program's sections; its dtype is for the header.
    pub fn write(&self, writer: &mut Writer) -> Result<()> {
        let mut names: Vec<Op> = Vec::new();
        let mut places = Vec::with_capacity(self.nodes.len());
        for (k, node) in self.nodes.iter().enumerate() {
            interrupt::ask_at(k)?;
            let place = names.iter().position(|&op| op == node.op).unwrap_or(names.len());
            if place == names.len() {
                names.push(node.op);
            }
            places.push(place as u8);
        }
        writer.section(*b"PROG", &[self.n_inputs, self.n_differentiated])?;
        writer.text(*b"OPNM", &names.iter().map(|op| op.name()).collect::<Vec<_>>().join("\n"))?;
        writer.section(*b"OPS ", &places)?;
        writer.section_of(
            *b"OPND",
            (0..2 * self.nodes.len()).map(|k| [self.nodes[k / 2].a, self.nodes[k / 2].b][k % 2]),
        )?;
        if !self.calls.is_empty() {
            writer.text(*b"PRIM", &self.names_of_primitives()?)?;
        }
        writer.section(*b"LIST", &self.lists)?;
        writer.section(*b"CNST", &self.constants)?;
        writer.section(*b"OUTS", &self.outputs)?;
        let guard = |k: usize| {
            let guard = &self.guards[k / 4];
            let question = guard.comparison as u32 * 2 + u32::from(guard.answer);
            [guard.after, question, guard.a, guard.b][k % 4]
        };
        writer.section_of(*b"GRDS", (0..4 * self.guards.len()).map(guard))
    }

    /// The primitives that nodes call, one per line. Only registered primitives can be found again.
    fn names_of_primitives(&self) -> Result<String> {
        let mut names = Vec::new();
        for (_, called) in &self.calls {
            let name = called.0.name();
            if name.contains('\n') || primitive::registered(name).is_none_or(|known| Called(known) != *called) {
                return Err(primitive::not_saved(name));
            }
            names.push(name);
        }
        Ok(names.join("\n"))
    }

    /// Reads a program's sections.
    pub fn read(reader: &mut Reader<'_>) -> Result<Program> {
        let dtype = reader.header().dtype.ok_or_else(|| reader.refuse("a program has an element type".into()))?;
        let head = reader.section_of::<u32>(*b"PROG", 2)?;
        let (n_inputs, n_differentiated) = (head.get(0).unwrap_or(0), head.get(1).unwrap_or(0));
        let names = reader.text(*b"OPNM")?;
        let ops: Vec<Op> = names
            .lines()
            .map(|name| Op::from_name(name).ok_or_else(|| reader.refuse(format!("{name:?} is no op of this version"))))
            .collect::<Result<_>>()?;
        let places = reader.section::<u8>(*b"OPS ")?;
        let operands = reader.section_of::<u32>(*b"OPND", 2 * places.len())?;
        let mut nodes = Vec::new();
        nodes
            .try_reserve_exact(places.len())
            .map_err(|_| Error::OutOfMemory { bytes: places.len(), what: "a program" })?;
        for (k, place) in places.iter().enumerate() {
            interrupt::ask_at(k)?;
            let op = ops.get(usize::from(place)).copied();
            let op = op.ok_or_else(|| places.refuse(k, format!("is {place}, and there are {} ops", ops.len())))?;
            let operand = |k: usize| operands.get(k).unwrap_or(u32::MAX);
            nodes.push(Node { op, a: operand(2 * k), b: operand(2 * k + 1) });
        }
        let mut calls = Vec::new();
        if reader.next_is(*b"PRIM") {
            let called = nodes.iter().enumerate().filter(|(_, node)| node.op == Op::Linearised);
            for ((k, _), name) in called.zip(reader.text(*b"PRIM")?.lines()) {
                let primitive = primitive::registered(name);
                let primitive =
                    primitive.ok_or_else(|| reader.refuse(format!("the primitive {name:?} is not registered")))?;
                calls.push((k as u32, Called(primitive)));
            }
        }
        let lists = reader.section::<u32>(*b"LIST")?.to_vec()?;
        let constants = reader.section::<f64>(*b"CNST")?.to_vec()?;
        let outputs = reader.section::<u32>(*b"OUTS")?.to_vec()?;
        let numbers = reader.section::<u32>(*b"GRDS")?;
        let mut guards = Vec::new();
        for (k, guard) in numbers.to_vec()?.chunks(4).enumerate() {
            let &[after, question, a, b] = guard else {
                return Err(numbers.refuse(4 * k, "begins a guard of fewer than four numbers".into()));
            };
            let comparison = Comparison::ALL.get(question as usize / 2).copied();
            let comparison = comparison
                .ok_or_else(|| numbers.refuse(4 * k + 1, format!("is {question}, which is no comparison")))?;
            guards.push(Guard { after, comparison, a, b, answer: question % 2 == 1 });
        }
        let parts = Parts { n_inputs, n_differentiated, constants, nodes, lists, outputs, guards, calls };
        Program::new(dtype, parts).map_err(|error| reader.refuse(error.to_string()))
    }
}
