//! Pictures in the language of Graphviz.

use super::picture::{BOX, Picture, PictureBox, Role};
use crate::error::Result;
use crate::interrupt::Work;

impl Picture {
    /// The picture in DOT, drawn from left to right: a record of label, op, value, gradient and index per box.
    /// Interruptible.
    pub fn to_dot(&self) -> Result<String> {
        let mut work = Work::default();
        let mut text =
            String::from("digraph burtorch {\n  rankdir=LR;\n  node [shape=record, style=\"filled,rounded\"];\n");
        for (k, part) in self.parts.iter().enumerate() {
            work.add(BOX)?;
            let (label, colour) = (record(part), colour(part.role));
            text += &format!("  p{k} [label=\"{label}\", fillcolor=\"{colour}\", class=\"{}\"];\n", part.role.name());
        }
        for link in &self.links {
            work.add(BOX / 8)?;
            text += &format!("  p{} -> p{};\n", link.from, link.to);
        }
        Ok(text + "}\n")
    }
}

/// The fields of a box, each escaped.
fn record(part: &PictureBox) -> String {
    let mut fields = Vec::new();
    if !part.label.is_empty() {
        fields.push(escaped(&part.label));
    }
    fields.push(escaped(&match part.n {
        1 => part.op.to_string(),
        n => format!("{} × {n}", part.op),
    }));
    for (name, text) in [("data", &part.value), ("grad", &part.grad)] {
        if !text.is_empty() {
            fields.push(escaped(&format!("{name} {text}")));
        }
    }
    fields.extend(part.node.map(|node| format!("node {node}")));
    format!("{{ {} }}", fields.join(" | "))
}

/// Text inside a quoted record label, with Graphviz's structural characters escaped.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '\\' | '"' | '{' | '}' | '|' | '<' | '>' => out.extend(['\\', c]),
            '\n' | '\r' => out.push_str("\\n"),
            _ => out.push(c),
        }
    }
    out
}

/// The colour of a box.
pub(super) const fn colour(role: Role) -> &'static str {
    match role {
        Role::Root => "#ffe0b3",
        Role::Leaf => "#d6e8ff",
        Role::Constant => "#ececec",
        Role::Parameter => "#d8f0d8",
        Role::Inner => "#ffffff",
        Role::Rest => "#f7dcdc",
    }
}
