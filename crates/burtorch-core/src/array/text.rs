//! A program as text, one instruction a line.

use std::fmt;

use super::instr::{ArrayOp, ArrayProgram, Length, Type};

impl ArrayOp {
    /// The name: that of the op of the table where there is one.
    pub fn name(&self) -> String {
        match self {
            ArrayOp::Row(row) => row.name().into(),
            ArrayOp::Pull(row, _) => format!("{} pull", row.name()),
            ArrayOp::Reduce(kind, _) => kind.name().into(),
            ArrayOp::ReducePull(kind, _) => format!("{} pull", kind.name()),
            // The name of the variant.
            op => {
                let text = format!("{op:?}");
                text[..text.find(['(', ' ']).unwrap_or(text.len())].to_lowercase()
            }
        }
    }
}

impl fmt::Display for ArrayProgram {
    /// One instruction a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for instr in &self.instrs {
            let Type { dims, element } = self.type_of(instr.result);
            let operands: Vec<_> = instr.operands.iter().map(|v| format!("%{}", v.0)).collect();
            let op = match &instr.op {
                ArrayOp::Const(..) => "Const".into(),
                ArrayOp::Literal(bits) => format!("Literal({})", f64::from_bits(*bits)),
                ArrayOp::Row(row) => row.name().into(),
                ArrayOp::Call(_) => "Call".into(),
                ArrayOp::Cond { .. } => "Cond".into(),
                ArrayOp::Loop(of) => {
                    let length = match of.length {
                        Length::Fixed(n) => n.to_string(),
                        Length::Counted => "counted".into(),
                        Length::While { .. } => "while".into(),
                    };
                    let body = of.body.0.to_string().replace('\n', "\n    ");
                    format!("Loop({length}, {} captures, {} carries) [\n    {body}]", of.captures, of.carries)
                }
                ArrayOp::Rows(of) => {
                    let body = of.body.0.to_string().replace('\n', "\n    ");
                    format!("Rows({}, mapped {:?}, {:?}) [\n    {body}]", of.rows, of.mapped, of.results)
                }
                op => format!("{op:?}"),
            };
            writeln!(f, "%{}: {element:?}{dims} = {op} {}", instr.result.0, operands.join(" "))?;
        }
        let outputs: Vec<_> = self.outputs.iter().map(|v| format!("%{}", v.0)).collect();
        writeln!(f, "return {}", outputs.join(" "))
    }
}
