//! Pictures as self-contained SVG: colours, arrows, and a tooltip for every box.

use super::dot::colour;
use super::layout::{Layout, Rect, layout};
use super::picture::{BOX, Picture, PictureBox, Role};
use crate::error::Result;
use crate::interrupt::Work;

/// The height of a line of text; `CHARACTER` is the mean width of a character, at 12 pixels.
const LINE: f64 = 16.0;
const CHARACTER: f64 = 7.3;
const PADDING: f64 = 8.0;
/// The margin around the picture.
const MARGIN: f64 = 12.0;
/// The largest number of characters per line; the tooltip has all of them.
const LONGEST: usize = 34;

impl Picture {
    /// The picture as an SVG image: operands are left of their readers. Interruptible.
    pub fn to_svg(&self) -> Result<String> {
        let mut work = Work::default();
        let lines = self.parts.iter().map(|part| work.add(BOX).map(|()| lines_of(part))).collect::<Result<Vec<_>>>()?;
        let size = |lines: &Vec<String>| {
            let longest = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
            (longest as f64 * CHARACTER + 2.0 * PADDING, lines.len() as f64 * LINE + PADDING)
        };
        let layout = layout(self, &lines.iter().map(size).collect::<Vec<_>>())?;
        let (width, height) = (layout.width + 2.0 * MARGIN, layout.height + 2.0 * MARGIN);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
             height=\"{height:.0}\" font-family=\"ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace\" \
             font-size=\"12\">\n<defs><marker id=\"arrow\" viewBox=\"0 0 8 8\" refX=\"7.5\" refY=\"4\" markerWidth=\"7\" \
             markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#667\"/></marker></defs>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fcfcfd\"/>\n\
             <g transform=\"translate({MARGIN} {MARGIN})\">\n"
        );
        svg += &links(&layout, &mut work)?;
        for (k, part) in self.parts.iter().enumerate() {
            work.add(BOX)?;
            svg += &node(k, part, &lines[k], layout.boxes[k]);
        }
        Ok(svg + "</g>\n</svg>\n")
    }
}

fn links(layout: &Layout, work: &mut Work) -> Result<String> {
    let mut svg = String::from("<g fill=\"none\" stroke=\"#99a\" stroke-width=\"1.2\">\n");
    for line in &layout.lines {
        work.add(BOX / 8 * line.len())?;
        let mut path = String::new();
        for (k, &(x, y)) in line.iter().enumerate() {
            match k.checked_sub(1).and_then(|k| line.get(k)) {
                None => path += &format!("M{x:.1} {y:.1}"),
                Some(&(x0, y0)) => {
                    let middle = (x0 + x) / 2.0;
                    path += &format!("C{middle:.1} {y0:.1} {middle:.1} {y:.1} {x:.1} {y:.1}");
                }
            }
        }
        svg += &format!("<path d=\"{path}\" marker-end=\"url(#arrow)\"/>\n");
    }
    Ok(svg + "</g>\n")
}

/// The lines of a box: its name and op, then numbers.
fn lines_of(part: &PictureBox) -> Vec<String> {
    let op = match part.n {
        _ if part.role == Role::Rest => String::new(),
        1 => part.op.to_string(),
        n => format!("{} × {n}", part.op),
    };
    let head = match (part.label.is_empty(), op.is_empty()) {
        (true, _) => op,
        (false, true) => part.label.clone(),
        (false, false) => format!("{}: {op}", part.label),
    };
    let mut lines = vec![head];
    if !part.value.is_empty() {
        lines.push(format!("data {}", part.value));
    }
    if !part.grad.is_empty() && part.role != Role::Constant {
        lines.push(format!("grad {}", part.grad));
    }
    lines.iter_mut().for_each(shorten);
    lines
}

fn shorten(line: &mut String) {
    if line.chars().count() > LONGEST {
        *line = line.chars().take(LONGEST - 1).collect::<String>() + "…";
    }
}

fn node(k: usize, part: &PictureBox, lines: &[String], place: Rect) -> String {
    let Rect { x, y, width, height } = place;
    let (role, fill) = (part.role.name(), colour(part.role));
    let stroke = if part.role == Role::Root { "#c60" } else { "#778" };
    let mut svg = format!(
        "<g class=\"part {role}\" id=\"p{k}\" data-part=\"{k}\"><title>{}</title><rect x=\"{x:.1}\" y=\"{y:.1}\" \
         width=\"{width:.1}\" height=\"{height:.1}\" rx=\"5\" fill=\"{fill}\" stroke=\"{stroke}\"/>",
        escaped(&tooltip(part))
    );
    for (row, line) in lines.iter().enumerate() {
        let (at_x, at_y) = (x + PADDING, y + PADDING / 2.0 + 12.0 + row as f64 * LINE);
        let weight = if row == 0 { " font-weight=\"bold\"" } else { "" };
        svg += &format!("<text x=\"{at_x:.1}\" y=\"{at_y:.1}\"{weight}>{}</text>", escaped(line));
    }
    svg + "</g>\n"
}

/// All information about a box, one item per line.
fn tooltip(part: &PictureBox) -> String {
    let mut lines = vec![format!("{} {}", part.label, part.op).trim().to_string()];
    lines.extend(part.node.map(|node| format!("node {node}")));
    if !part.value.is_empty() {
        lines.push(format!("data {}", part.value));
    }
    if !part.grad.is_empty() {
        lines.push(format!("grad {}", part.grad));
    }
    lines.push(part.formula.to_string());
    lines.join("\n")
}

/// Text in XML: markup is escaped, and characters not allowed in XML are removed.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(c),
            c if c < ' ' || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            _ => out.push(c),
        }
    }
    out
}
