//! Docstrings of the op functions, generated from the op table: formula, arguments, errors, cost, and an example whose
//! numbers are computed here, so that it is right for every op.

use std::ffi::{CStr, CString};
use std::fmt::Write;

use burtorch_core::Op;
use burtorch_core::ops::{self, Arity, OpInfo, Reduction};

/// The docstring of the function of an op, signature first, never freed, because the interpreter keeps a pointer.
pub fn function_doc(op: Op) -> &'static CStr {
    let info = op.info();
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = write_doc(&mut text, info);
    CString::new(text).map_or(c"", |text| &*Box::leak(text.into_boxed_c_str()))
}

/// The docstring of the method of an op with a constant, likewise.
pub fn constant_method_doc(op: Op) -> &'static CStr {
    let info = op.info();
    let constant = info.constant.map_or("c, /".into(), |(name, default)| format!("{name}={default:?}"));
    let text = format!("{}($self, {constant})\n--\n\nA new Value: {}.", info.name, info.doc);
    CString::new(text).map_or(c"", |text| &*Box::leak(text.into_boxed_c_str()))
}

fn write_doc(text: &mut String, info: &OpInfo) -> std::fmt::Result {
    let with_default = info.constant.map(|(name, default)| format!("(x, /, {name}={default:?})"));
    let signature = match info.arity {
        Arity::WithConstant if with_default.is_some() => with_default.as_deref().unwrap_or_default(),
        Arity::Unary => "(x, /, *, evaluate=True)",
        Arity::Reduction => "(x, /, *, evaluate=True, axis=None, keepdims=False)",
        Arity::WithConstant => "(x, c, /)",
        _ if info.folds.is_some() => "(x, y=None, /, *, evaluate=True, axis=None, keepdims=False)",
        _ => "(x, y, /, *, evaluate=True)",
    };
    writeln!(text, "{}{signature}\n--\n\n{}.\n\nArgs:", info.name, info.doc)?;
    let constant = info.constant.map_or("c", |(name, _)| name);
    let with_constant = format!(
        "    x: a Value, or a Vector for one output per element.\n    {constant}: a real number, c of the formula; it receives no \
         gradient.\n"
    );
    text.push_str(match info.arity {
        Arity::WithConstant => &with_constant,
        Arity::Unary => "    x: a Value, or a Vector for one output per element.\n",
        Arity::Reduction => "    x: a Vector, or a sequence of Values, Vectors and real numbers.\n",
        _ if info.folds.is_some() => {
            "    x: a Value or a real number; a Vector or a sequence of equal length for one output per element; or, if \
             it is\n        the only argument, a Vector or a sequence to be reduced to one Value.\n    y: likewise. At \
             least one operand is a Value or a Vector.\n"
        }
        _ => {
            "    x: a Value or a real number; a Vector or a sequence of equal length for one output per element.\n    y: \
             likewise. At least one operand is a Value or a Vector.\n"
        }
    });
    if matches!(info.arity, Arity::Unary | Arity::Binary | Arity::Reduction) {
        text.push_str(if info.reads_output {
            "    evaluate: only True, because the derivative reads the value.\n"
        } else {
            "    evaluate: False appends a node without a value, for its gradient only; the value is computed when it is read.\n"
        });
    }
    if info.arity == Arity::Reduction || info.folds.is_some() {
        text.push_str("    axis, keepdims: for an Array or an array of numbers, as in NumPy.\n");
    }
    text.push_str(
        "\nFor an Array the result is an Array, for plain numbers a number, for arrays of numbers an array.\n",
    );
    text.push_str("\nRaises:\n    TypeError: an operand is not a Value, Vector, real number or array.\n");
    match info.arity {
        Arity::Reduction => text.push_str("    ValueError: there are no operands.\n"),
        Arity::Binary => text.push_str("    ValueError: lengths differ.\n"),
        _ => {}
    }
    text.push_str("    StaleValueError: the node of an operand was removed.\n");
    if !matches!(info.arity, Arity::Unary | Arity::WithConstant) {
        text.push_str("    GraphMismatchError: operands belong to different graphs.\n");
    }
    text.push_str(match info.arity {
        Arity::Reduction => "\nOne node; linear in the number of operands.\n",
        _ => "\nOne node and constant time per output.\n",
    });
    text.push_str("\nExample:\n    >>> import burtorch as bt\n");
    write_example(text, info)
}

fn write_example(text: &mut String, info: &OpInfo) -> std::fmt::Result {
    let (name, op) = (info.name, info.op);
    if let Some(reduction) = Reduction::new(op) {
        let x = [1.0, 2.0, 4.0];
        let mut partials = [0.0; 3];
        reduction.pull(1.0, &x, &mut partials);
        let [a, b, c] = partials.map(rounded);
        writeln!(text, "    >>> x = bt.current_graph().vector([1.0, 2.0, 4.0])\n    >>> y = bt.{name}(x)")?;
        writeln!(text, "    >>> y.backward()\n    >>> round(y.data, 4), [round(g, 4) for g in x.grad]")?;
        return writeln!(text, "    ({}, [{a}, {b}, {c}])", rounded(reduction.forward(&x)));
    }
    if info.arity == Arity::Unary {
        let x = if (info.domain.0..=info.domain.1).contains(&0.5) { 0.5 } else { 2.0 };
        let y: f64 = ops::forward_unary(op, x).unwrap_or_default();
        let dx = ops::pull_unary(op, 1.0, x, y).unwrap_or_default();
        writeln!(text, "    >>> x = bt.Value({x:?})\n    >>> y = bt.{name}(x)\n    >>> y.backward()")?;
        writeln!(text, "    >>> round(y.data, 4), round(x.grad, 4)")?;
        return writeln!(text, "    ({}, {})", rounded(y), rounded(dx));
    }
    let (x, y) = (2.0, 3.0);
    let z: f64 = ops::forward_binary(op, x, y).unwrap_or_default();
    let (dx, dy) = ops::pull_binary(op, 1.0, x, y, z).unwrap_or_default();
    if info.arity == Arity::WithConstant {
        writeln!(text, "    >>> x = bt.Value({x:?})\n    >>> z = bt.{name}(x, {y:?})\n    >>> z.backward()")?;
        writeln!(text, "    >>> round(z.data, 4), round(x.grad, 4)")?;
        return writeln!(text, "    ({}, {})", rounded(z), rounded(dx));
    }
    writeln!(
        text,
        "    >>> x, y = bt.Value({x:?}), bt.Value({y:?})\n    >>> z = bt.{name}(x, y)\n    >>> z.backward()"
    )?;
    writeln!(text, "    >>> round(z.data, 4), round(x.grad, 4), round(y.grad, 4)")?;
    writeln!(text, "    ({}, {}, {})", rounded(z), rounded(dx), rounded(dy))
}

/// As Python prints `round(x, 4)`.
fn rounded(x: f64) -> String {
    // A gradient is a sum that starts from 0, so it is never a negative zero.
    let four_digits: f64 = format!("{x:.4}").parse().unwrap_or(x) + 0.0;
    format!("{four_digits:?}")
}
