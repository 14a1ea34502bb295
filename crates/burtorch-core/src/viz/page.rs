//! Pictures as an interactive page: one HTML file without external links.

use super::picture::{BOX, Picture, PictureBox};
use super::svg::escaped;
use crate::error::Result;
use crate::interrupt::Work;

impl Picture {
    /// The picture as a page: a click on a box shows value, gradient, formula, time, operands and readers.
    /// Interruptible.
    pub fn to_html(&self, title: &str) -> Result<String> {
        let title = escaped(title);
        let mut work = Work::default();
        let n = self.parts.len();
        let (mut reads, mut read_by) = (vec![Vec::new(); n], vec![Vec::new(); n]);
        for link in &self.links {
            work.add(1)?;
            reads[link.to].push(link.from);
            read_by[link.from].push(link.to);
        }
        let data = self.parts.iter().zip(reads.iter().zip(&read_by)).map(|(part, (reads, read_by))| {
            work.add(BOX + BOX / 8 * (reads.len() + read_by.len()))?;
            Ok(json(part, reads, read_by))
        });
        let data = data.collect::<Result<Vec<_>>>()?.join(",\n");
        let svg = self.to_svg()?;
        Ok(format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n<style>\n{STYLE}\
             </style>\n</head>\n<body>\n<main>\n{svg}</main>\n<aside id=\"details\" aria-live=\"polite\">\n<h1>{title}</h1>\n\
             <p>Click a box.</p>\n</aside>\n<script type=\"application/json\" id=\"parts\">[\n{data}\n]</script>\n<script>\n\
             {SCRIPT}</script>\n</body>\n</html>\n"
        ))
    }
}

fn json(part: &PictureBox, reads: &[usize], read_by: &[usize]) -> String {
    let listed = |all: &[usize]| all.iter().map(|k| k.to_string()).collect::<Vec<_>>().join(",");
    let node = part.node.map_or("null".into(), |node| node.to_string());
    let time = part.nanoseconds.map_or("null".into(), |ns| format!("{ns:.1}"));
    format!(
        "{{\"label\":{},\"op\":{},\"n\":{},\"node\":{node},\"data\":{},\"grad\":{},\"formula\":{},\"ns\":{time},\
         \"reads\":[{}],\"readBy\":[{}]}}",
        quoted(&part.label),
        quoted(part.op),
        part.n,
        quoted(&part.value),
        quoted(&part.grad),
        quoted(part.formula),
        listed(reads),
        listed(read_by),
    )
}

/// A JSON string that is safe inside a script element.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c < ' ' || matches!(c, '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\u{7f}') => {
                out += &format!("\\u{:04x}", c as u32);
            }
            _ => out.push(c),
        }
    }
    out + "\""
}

const STYLE: &str = "\
body { margin: 0; display: flex; height: 100vh; font: 14px/1.45 system-ui, sans-serif; color: #223; }
main { flex: 1; overflow: auto; background: #fcfcfd; }
aside { width: 22rem; overflow: auto; padding: 1rem 1.25rem; border-left: 1px solid #ccd; background: #f4f5f8; }
h1 { font-size: 1.1rem; overflow-wrap: anywhere; }
dt { color: #667; margin-top: .6rem; }
dd { margin: 0; font-family: ui-monospace, monospace; overflow-wrap: anywhere; }
button { font: inherit; border: 1px solid #99a; border-radius: 4px; background: #fff; margin: 0 .3rem .3rem 0; cursor: pointer; }
.part { cursor: pointer; }
.part:focus { outline: none; }
.part:focus rect, .part:hover rect { stroke: #06c; stroke-width: 2; }
.part.chosen rect { stroke: #06c; stroke-width: 3; }
";

const SCRIPT: &str = "\
const parts = JSON.parse(document.getElementById('parts').textContent);
const details = document.getElementById('details');
const boxes = [...document.querySelectorAll('.part')];
const name = k => parts[k].label || (parts[k].op + (parts[k].node === null ? '' : ' #' + parts[k].node));
function row(list, term, value) {
  if (value === '' || value === null) return;
  list.append(Object.assign(document.createElement('dt'), {textContent: term}));
  const dd = document.createElement('dd');
  dd.append(value);
  dd.dataset.field = term;
  list.append(dd);
}
function buttons(keys) {
  if (!keys.length) return '';
  const all = document.createElement('span');
  for (const k of keys) {
    const button = Object.assign(document.createElement('button'), {textContent: name(k)});
    button.onclick = () => choose(k);
    all.append(button);
  }
  return all;
}
function choose(k) {
  const part = parts[k];
  boxes.forEach(box => box.classList.toggle('chosen', +box.dataset.part === k));
  boxes[k].scrollIntoView({block: 'nearest', inline: 'nearest'});
  const list = document.createElement('dl');
  row(list, 'op', part.op + (part.n > 1 ? ' \\u00d7 ' + part.n : ''));
  row(list, 'node', part.node === null ? null : String(part.node));
  row(list, 'value', part.data);
  row(list, 'gradient', part.grad);
  row(list, 'formula', part.formula);
  row(list, 'time', part.ns === null ? null : part.ns + ' ns per evaluation, measured when this page was made');
  row(list, 'reads', buttons(part.reads));
  row(list, 'read by', buttons(part.readBy));
  details.replaceChildren(Object.assign(document.createElement('h1'), {textContent: name(k)}), list);
}
for (const box of boxes) {
  const k = +box.dataset.part;
  box.tabIndex = 0;
  box.onclick = () => choose(k);
  box.onkeydown = event => { if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); choose(k); } };
}
";
