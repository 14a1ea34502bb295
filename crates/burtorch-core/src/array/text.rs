//! A program as text, one instruction per line.

use std::fmt::{self, Write};

use super::instr::{Apart, ArrayOp, ArrayProgram, Element, Length, OverRows, Slice, Type, ValueId, View};
use super::kinds::{Comparison, Cumulate};
use crate::interrupt;
use crate::scalar::DType;

/// Numbers written in the time that a line takes.
const LINE: usize = 64;

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

    /// What it is called in a listing, and behind its operands what it does with them.
    fn in_words(&self) -> (String, String) {
        let plain = |name: &str| (name.to_string(), String::new());
        let flags = |all: &[(bool, &str)]| {
            let set: Vec<_> = all.iter().filter(|(is_set, _)| *is_set).map(|(_, name)| *name).collect();
            set.join(" ")
        };
        match self {
            ArrayOp::Param { set, start, dims } => plain(&format!("parameters {set}[{start}:{}]", start + dims.size())),
            ArrayOp::Literal(bits) => plain(&format!("{:?}", f64::from_bits(*bits))),
            ArrayOp::Integer(x) => plain(&x.to_string()),
            ArrayOp::Const(..) => plain("constant"),
            ArrayOp::Unreached(_) => plain("unreached"),
            ArrayOp::Pull(row, k) => (format!("{}_pull", row.name()), format!("to {k}")),
            ArrayOp::Compare(comparison) => plain(match comparison {
                Comparison::Less => "less",
                Comparison::LessEqual => "less_equal",
                Comparison::Equal => "equal",
                Comparison::IsNan => "isnan",
                Comparison::IsUnreached => "is_unreached",
            }),
            ArrayOp::Select => plain("where"),
            ArrayOp::Convert(Element::Float) => plain("detach"),
            ArrayOp::Convert(Element::Int) => plain("to_int64"),
            ArrayOp::Convert(_) => plain("to_bool"),
            ArrayOp::Reduce(kind, axes) => (kind.name().into(), format!("axis={}", listed(axes.iter()))),
            ArrayOp::ReducePull(kind, axes) => {
                (format!("{}_pull", kind.name()), format!("axis={}", listed(axes.iter())))
            }
            ArrayOp::ArgExtreme { axis, largest } => {
                (if *largest { "argmax" } else { "argmin" }.into(), format!("axis={axis}"))
            }
            ArrayOp::Search { right } => plain(if *right { "searchsorted_right" } else { "searchsorted" }),
            ArrayOp::Cumulate { kind, axis, reverse } => {
                let name = if *kind == Cumulate::Sum { "cumsum" } else { "recurrence" };
                (name.into(), format!("axis={axis}{}", if *reverse { " reverse" } else { "" }))
            }
            ArrayOp::Dot(dot) => {
                let [x, y] = dot.transposed;
                ("matmul".into(), flags(&[(x, "transpose_left"), (y, "transpose_right")]))
            }
            ArrayOp::Sparse(dot) => (format!("sparse_{}", format!("{:?}", dot.kind).to_lowercase()), String::new()),
            ArrayOp::View(View::Reshape(_)) => plain("reshape"),
            ArrayOp::View(View::Broadcast(_)) => plain("broadcast"),
            ArrayOp::View(View::Permute(axes)) => {
                ("transpose".into(), format!("axes={}", listed(axes.iter().copied())))
            }
            ArrayOp::View(View::Slice(slices)) => ("slice".into(), sliced(slices)),
            ArrayOp::Concat(axis) => ("concatenate".into(), format!("axis={axis}")),
            ArrayOp::Take { axis, batch: 0 } => ("take".into(), format!("axis={axis}")),
            ArrayOp::Take { axis, batch } => ("take".into(), format!("axis={axis} batch={batch}")),
            ArrayOp::ScatterAdd { axis, batch: 0 } => ("scatter_add".into(), format!("axis={axis}")),
            ArrayOp::ScatterAdd { axis, batch } => ("scatter_add".into(), format!("axis={axis} batch={batch}")),
            ArrayOp::ScatterSet { axis, batch: 0 } => ("scatter_set".into(), format!("axis={axis}")),
            ArrayOp::ScatterSet { axis, batch } => ("scatter_set".into(), format!("axis={axis} batch={batch}")),
            ArrayOp::AccumulateAt(slices) => ("accumulate".into(), format!("at {}", sliced(slices))),
            ArrayOp::TriSolve(solve) => {
                let t = solve.triangle;
                let all = [(t.upper, "upper"), (!t.upper, "lower"), (t.transposed, "transposed"), (t.unit, "unit")];
                ("triangular_solve".into(), flags(&all))
            }
            ArrayOp::LuSolve(solve) => ("lu_solve".into(), flags(&[(solve.triangle.transposed, "transposed")])),
            ArrayOp::Loop(of) => {
                let length = match &of.length {
                    Length::Fixed(n) => format!("steps={n}"),
                    Length::Counted => "counted".into(),
                    Length::While { most: Some(most), .. } => format!("while steps<={most}"),
                    Length::While { most: None, .. } => "while".into(),
                };
                let reverse = if of.reverse { " reverse" } else { "" };
                ("loop".into(), format!("{length} captures={} carries={}{reverse}", of.captures, of.carries))
            }
            ArrayOp::Rows(of) => {
                let named = |over: &OverRows| format!("{over:?}").to_lowercase();
                (
                    "rows".into(),
                    format!("{} results={}", of.rows, of.results.iter().map(named).collect::<Vec<_>>().join(",")),
                )
            }
            ArrayOp::Apart(Apart { rules: Some(rules), .. }) => ("primitive".into(), rules.0.name().into()),
            ArrayOp::Apart(_) => plain("checkpoint"),
            op => (op.name(), String::new()),
        }
    }

    /// The programs that it holds, by name.
    fn held(&self) -> Vec<(&'static str, &ArrayProgram)> {
        match self {
            ArrayOp::Call(program) | ArrayOp::Apart(Apart { body: program, .. }) => vec![("body", &program.0)],
            ArrayOp::Rows(of) => vec![("row", &of.body.0)],
            ArrayOp::Cond { yes, no } => vec![("then", &yes.0), ("else", &no.0)],
            ArrayOp::Loop(of) => match &of.length {
                Length::While { condition, .. } => vec![("while", &condition.0), ("step", &of.body.0)],
                _ => vec![("step", &of.body.0)],
            },
            _ => Vec::new(),
        }
    }
}

fn listed(all: impl Iterator<Item = usize>) -> String {
    let all: Vec<_> = all.map(|k| k.to_string()).collect();
    if let [one] = &all[..] { one.clone() } else { format!("({})", all.join(", ")) }
}

/// As Python writes slices.
fn sliced(slices: &[Slice]) -> String {
    let one = |slice: &Slice| {
        let Slice { start, step, count } = *slice;
        let end = start as i128 + step as i128 * count as i128;
        match step {
            1 => format!("{start}:{end}"),
            _ if end < 0 => format!("{start}::{step}"),
            _ => format!("{start}:{end}:{step}"),
        }
    };
    format!("[{}]", slices.iter().map(one).collect::<Vec<_>>().join(", "))
}

impl ArrayProgram {
    fn text_of(&self, ty: Type) -> String {
        let element = match ty.element {
            Element::Float if self.dtype == DType::Float32 => "float32",
            Element::Float => "float64",
            Element::Int => "int64",
            Element::Mask => "bool",
            Element::Sparse => "csr",
        };
        format!("{element}{}", ty.dims)
    }

    /// The names of values: `x0` for an argument, `%0` for others.
    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = (0..self.n_values()).map(|_| String::new()).collect();
        for (k, v) in self.inputs.iter().enumerate() {
            names[v.at()] = format!("x{k}");
        }
        for (k, name) in names.iter_mut().filter(|name| name.is_empty()).enumerate() {
            *name = format!("%{k}");
        }
        names
    }

    /// Writes the lines, `indent` deep; the last results are so many guards.
    fn write_lines(&self, f: &mut impl Write, name: &str, indent: usize, n_guards: usize) -> fmt::Result {
        let names = self.names();
        let space = " ".repeat(indent);
        let listed = |of: &[ValueId]| of.iter().map(|v| names[v.at()].as_str()).collect::<Vec<_>>();
        let inputs: Vec<_> =
            self.inputs.iter().map(|&v| format!("{}: {}", names[v.at()], self.text_of(self.type_of(v)))).collect();
        writeln!(f, "{space}{name}({})", inputs.join(", "))?;
        for (at, instr) in self.instrs.iter().enumerate() {
            interrupt::ask_at(LINE * at).map_err(|_| fmt::Error)?;
            if matches!(instr.op, ArrayOp::Input(_)) {
                continue;
            }
            let results: Vec<_> =
                self.results(at).map(|v| format!("{}: {}", names[v.at()], self.text_of(self.type_of(v)))).collect();
            let (op, how) = instr.op.in_words();
            let words: Vec<_> =
                [op.as_str()].into_iter().chain(listed(&instr.operands)).chain([how.as_str()]).collect();
            writeln!(f, "{space}  {} = {}", results.join(", "), words.join(" ").trim_end())?;
            for (name, program) in instr.op.held() {
                program.write_lines(f, name, indent + 4, 0)?;
            }
        }
        let outputs = listed(&self.outputs);
        let (results, guards) = outputs.split_at(outputs.len().saturating_sub(n_guards));
        for guard in guards {
            writeln!(f, "{space}  guard {guard}")?;
        }
        write!(f, "{space}  return {}", results.join(" "))?;
        if indent > 0 { writeln!(f) } else { Ok(()) }
    }

    /// A listing, of which the last results are so many guards. Asks now and then whether to end early.
    pub fn listing(&self, n_guards: usize) -> crate::Result<String> {
        let mut text = String::new();
        self.write_lines(&mut text, "program", 0, n_guards).map_err(|_| crate::Error::Interrupted)?;
        Ok(text)
    }
}

/// One instruction a line, with the types of what it gives.
impl fmt::Display for ArrayProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_lines(f, "program", 0, 0)
    }
}
