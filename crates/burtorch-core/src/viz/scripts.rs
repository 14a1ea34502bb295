//! Python scripts that draw numbers with Matplotlib: text with its data, to be run anywhere.
//!
//! Promises: numbers are exact, labels are escaped, and a script writes to the file in its first argument, or shows a window
//! without one. Source: F.6 of the paper.

use std::fmt::Write;

/// A script that draws a matrix as coloured squares with a number in each. `item` gives the number in a row and column;
/// `labels`, if given, name the columns, and the first rows.
///
/// ```
/// use burtorch_core::viz::scripts::heat_map_script;
/// let script = heat_map_script(2, 2, |i, j| (i * 2 + j) as f64, &["a", "it's"]);
/// assert!(script.contains("[2.0, 3.0]") && script.contains(r#"labels = ["a", "it's"]"#));
/// ```
pub fn heat_map_script(rows: usize, columns: usize, item: impl Fn(usize, usize) -> f64, labels: &[&str]) -> String {
    let mut matrix = String::from("[\n");
    for i in 0..rows {
        let row: Vec<String> = (0..columns).map(|j| number(item(i, j))).collect();
        let _ = writeln!(matrix, "    [{}],", row.join(", "));
    }
    matrix.push(']');
    let labels: Vec<String> = labels.iter().map(|label| quoted(label)).collect();
    format!("{HEAD}matrix = {matrix}\nlabels = [{}]\n{HEAT_MAP}{TAIL}", labels.join(", "))
}

/// A script that draws `f` at `n` points from `x_start` to `x_end`, both included.
///
/// ```
/// use burtorch_core::viz::scripts::plot_script;
/// let script = plot_script(|x| x * x, -1.0, 1.0, 3);
/// assert!(script.contains("xs = [-1.0, 0.0, 1.0]\nys = [1.0, 0.0, 1.0]"));
/// ```
pub fn plot_script(f: impl Fn(f64) -> f64, x_start: f64, x_end: f64, n: usize) -> String {
    let xs = points(x_start, x_end, n);
    let ys: Vec<f64> = xs.iter().map(|&x| f(x)).collect();
    plot_points_script(&xs, &ys)
}

/// A script that draws a line through points.
pub fn plot_points_script(xs: &[f64], ys: &[f64]) -> String {
    let list = |numbers: &[f64]| numbers.iter().map(|&x| number(x)).collect::<Vec<_>>().join(", ");
    format!("{HEAD}xs = [{}]\nys = [{}]\n{PLOT}{TAIL}", list(xs), list(ys))
}

/// `n` points from `start` to `end`, both included.
pub fn points(start: f64, end: f64, n: usize) -> Vec<f64> {
    let last = n.saturating_sub(1);
    let at = |k: usize| if k == last && n > 1 { end } else { start + (end - start) * k as f64 / last.max(1) as f64 };
    (0..n).map(at).collect()
}

/// A number as a Python literal.
fn number(x: f64) -> String {
    match x {
        x if x.is_nan() => "nan".into(),
        x if x.is_infinite() => if x > 0.0 { "inf" } else { "-inf" }.into(),
        x => format!("{x:?}"),
    }
}

/// Text as a Python literal.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            c if c < ' ' || c == '\u{7f}' => out += &format!("\\x{:02x}", c as u32),
            _ => out.push(c),
        }
    }
    out + "\""
}

const HEAD: &str = "\
# Draws with Matplotlib: to the file named by the first argument, or in a window without one.
import sys

if len(sys.argv) > 1:
    import matplotlib

    matplotlib.use(\"Agg\")
import matplotlib.pyplot as plt

nan, inf = float(\"nan\"), float(\"inf\")

";

const HEAT_MAP: &str = "
n_rows, n_columns = len(matrix), max(map(len, matrix), default=0)
figure, axes = plt.subplots(figsize=(max(3.0, 0.55 * n_columns + 1.5), max(2.5, 0.5 * n_rows + 1.0)))
image = axes.imshow(matrix, cmap=\"Blues\", aspect=\"auto\")
figure.colorbar(image)
if labels:
    axes.set_xticks(range(min(n_columns, len(labels))), labels[:n_columns])
    if n_rows == len(labels):
        axes.set_yticks(range(n_rows), labels)
if n_rows * n_columns <= 1024:
    for i, row in enumerate(matrix):
        for j, x in enumerate(row):
            dark = image.norm(x) > 0.6
            axes.text(j, i, f\"{x:.3g}\", ha=\"center\", va=\"center\", fontsize=7, color=\"white\" if dark else \"black\")
";

const PLOT: &str = "
figure, axes = plt.subplots()
axes.plot(xs, ys)
axes.grid(alpha=0.3)
";

const TAIL: &str = "
figure.tight_layout()
if len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=120)
else:
    plt.show()
";
