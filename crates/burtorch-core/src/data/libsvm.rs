//! Files of the LIBSVM format: a label, then `index:value` pairs with ascending indices, one sample per line. The `qid:number`
//! after the label in files of SVMrank is skipped.
//!
//! Text, gzip or bzip2, recognised by the first bytes. The file passes through a buffer of a megabyte; its complete lines are
//! parsed in place. Numbers of up to 19 digits whose power of ten is exact need one multiplication or division (Clinger 1990,
//! "How to read floating point numbers accurately"), others the standard library.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::csr::Csr;
use crate::error::{Error, Result};
use crate::interrupt::is_over;
use crate::memory::{filled, reserve_in};

/// How a file is read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LibsvmOptions {
    /// Columns of the matrix; by default the largest index of the file.
    pub n_features: Option<usize>,
    /// The labels that are replaced by -1 and +1; by default labels are unchanged.
    pub labels: Option<(f64, f64)>,
    /// Whether the first feature has index 0, and not 1.
    pub zero_based: bool,
    /// Whether numbers must be finite as float32 too.
    pub is_single: bool,
}

/// Samples: features by rows and a label for each.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    /// The features.
    pub features: Csr,
    /// The labels.
    pub labels: Vec<f64>,
}

/// Bytes per read.
const PIECE: usize = 1 << 20;

/// The largest number of labels named in an error.
const MOST_LABELS: usize = 10;

const WHAT: &str = "a LIBSVM file";

fn malformed(line: u64, reason: impl Into<String>) -> Error {
    Error::Data { line, reason: reason.into() }
}

/// Reads a file of text, gzip or bzip2.
pub fn read_libsvm(path: &Path, options: LibsvmOptions) -> Result<Dataset> {
    // The second number is the Windows equivalent.
    const EIO: i32 = if cfg!(windows) { 1117 } else { 5 };
    let refused = |doing, error: io::Error| Error::System {
        code: error.raw_os_error().unwrap_or(EIO),
        doing,
        path: path.to_path_buf(),
    };
    let mut file = File::open(path).map_err(|error| refused("open", error))?;
    let mut start = Vec::new();
    (&mut file).take(4).read_to_end(&mut start).map_err(|error| refused("read", error))?;
    let is_gzip = start.starts_with(&[0x1F, 0x8B]);
    let is_bzip2 = start.starts_with(b"BZh") && start.len() == 4 && (b'1'..=b'9').contains(&start[3]);
    let whole = io::Cursor::new(start).chain(file);
    let mut reader: Box<dyn Read> = match (is_gzip, is_bzip2) {
        (true, _) => Box::new(flate2::read::MultiGzDecoder::new(whole)),
        (_, true) => Box::new(bzip2::read::MultiBzDecoder::new(whole)),
        _ => Box::new(whole),
    };
    let mut parser = Parser::new(options)?;
    parser.read(&mut reader, |error, line| match error.raw_os_error() {
        Some(_) => refused("read", error),
        None => malformed(line, format!("the compressed file is damaged behind this line: {error}")),
    })?;
    parser.finish()
}

struct Parser {
    options: LibsvmOptions,
    samples: Dataset,
    /// Columns required.
    n_columns: usize,
    line: u64,
    /// Distinct labels, up to the number that an error names.
    found: Vec<f64>,
    /// The first line whose label is neither of the two, or 0.
    strange: u64,
}

impl Parser {
    fn new(options: LibsvmOptions) -> Result<Self> {
        if let Some((negative, positive)) = options.labels
            && (negative == positive || !negative.is_finite() || !positive.is_finite())
        {
            return Err(Error::BadArgument {
                what: "labels",
                expected: "two different numbers".into(),
                found: format!("{negative} and {positive}"),
            });
        }
        let samples = Dataset { features: Csr::new(0)?, labels: Vec::new() };
        Ok(Parser { options, samples, n_columns: 0, line: 0, found: Vec::new(), strange: 0 })
    }

    fn read(&mut self, reader: &mut dyn Read, refused: impl Fn(io::Error, u64) -> Error) -> Result<()> {
        let mut buffer = filled(0, PIECE, WHAT)?;
        let mut kept = 0;
        loop {
            if kept == buffer.len() {
                // The line is longer than the buffer.
                reserve_in(&mut buffer, kept, WHAT)?;
                buffer.resize(2 * kept, 0);
            }
            let n = match reader.read(&mut buffer[kept..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read.map_err(|error| refused(error, self.line))?,
            };
            if is_over() {
                return Err(Error::Interrupted);
            }
            let end = kept + n;
            let complete = match buffer[kept..end].iter().rposition(|&byte| byte == b'\n') {
                Some(newline) => kept + newline + 1,
                None if n == 0 => end,
                None => 0,
            };
            self.lines(&buffer[..complete])?;
            buffer.copy_within(complete..end, 0);
            kept = end - complete;
            if n == 0 {
                return Ok(());
            }
        }
    }

    /// Parses whole lines; the last may lack a line end.
    fn lines(&mut self, mut text: &[u8]) -> Result<()> {
        while !text.is_empty() {
            self.line += 1;
            text = self.sample(text)?;
            match text.first() {
                None => {}
                Some(b'\n') => text = &text[1..],
                Some(b'#') => {
                    let end = text.iter().position(|&byte| byte == b'\n').map_or(text.len(), |newline| newline + 1);
                    text = &text[end..];
                }
                Some(_) => return Err(self.wrong(text, "expected index:value")),
            }
        }
        Ok(())
    }

    /// Parses one line up to its end or a comment, and returns the rest.
    fn sample<'t>(&mut self, text: &'t [u8]) -> Result<&'t [u8]> {
        let text = spaces(text);
        if matches!(text.first(), None | Some(b'\n' | b'#')) {
            return Ok(text);
        }
        let (label, mut text) = number(text).ok_or_else(|| self.wrong(text, "expected a label, a number"))?;
        self.label(label)?;
        if let Some(query) = spaces(text).strip_prefix(b"qid:") {
            let expected = "expected an integer after qid:";
            let (_, after) =
                integer(query).filter(|(_, after)| ends(after.first())).ok_or_else(|| self.wrong(query, expected))?;
            text = after;
        }
        // Indices must ascend: none is below `next`.
        let mut next = u64::from(!self.options.zero_based);
        loop {
            let rest = spaces(text);
            let Some((index, after)) = integer(rest) else {
                text = rest;
                break;
            };
            let Some((b':', after)) = after.split_first() else {
                return Err(self.wrong(rest, "expected index:value"));
            };
            let Some((value, after)) = number(after) else {
                return Err(self.wrong(rest, "expected a number after the colon"));
            };
            if index < next || !self.is_finite(value) {
                return Err(self.bad_entry(index, next, value));
            }
            next = index + 1;
            let column = index - u64::from(!self.options.zero_based);
            if column >= self.options.n_features.map_or(u64::from(u32::MAX), |n| n as u64) {
                let least = u64::from(!self.options.zero_based);
                let most =
                    self.options.n_features.map_or(u64::from(u32::MAX), |n| (n as u64 + least).saturating_sub(1));
                return Err(malformed(self.line, format!("feature {index} is out of range: the largest is {most}")));
            }
            self.n_columns = self.n_columns.max(column as usize + 1);
            self.samples.features.push(column as u32, value)?;
            text = after;
        }
        self.samples.features.end_row()?;
        Ok(text)
    }

    #[inline]
    fn is_finite(&self, value: f64) -> bool {
        value.is_finite() && (!self.options.is_single || (value as f32).is_finite())
    }

    #[cold]
    fn bad_entry(&self, index: u64, next: u64, value: f64) -> Error {
        if !self.is_finite(value) {
            let single = if value.is_finite() { " in float32" } else { "" };
            return malformed(self.line, format!("feature {index} is {value:?}; features must be finite{single}"));
        }
        if index == 0 {
            return malformed(self.line, "feature 0 in a file whose first feature is 1; pass zero_based=True");
        }
        malformed(self.line, format!("feature {index} comes after feature {}; indices must ascend", next - 1))
    }

    fn label(&mut self, label: f64) -> Result<()> {
        if !label.is_finite() {
            return Err(malformed(self.line, format!("the label is {label}; labels must be finite")));
        }
        let mapped = match self.options.labels {
            None => label,
            Some((negative, _)) if label == negative => -1.0,
            Some((_, positive)) if label == positive => 1.0,
            Some(_) => {
                if self.strange == 0 {
                    self.strange = self.line;
                }
                label
            }
        };
        if self.options.labels.is_some() && self.found.len() <= MOST_LABELS && !self.found.contains(&label) {
            reserve_in(&mut self.found, 1, WHAT)?;
            self.found.push(label);
        }
        if !self.is_finite(mapped) {
            return Err(malformed(self.line, format!("the label is {mapped:?}; labels must be finite in float32")));
        }
        reserve_in(&mut self.samples.labels, 1, WHAT)?;
        self.samples.labels.push(mapped);
        Ok(())
    }

    /// The error for unexpected characters at the start of `text`.
    #[cold]
    fn wrong(&self, text: &[u8], expected: &str) -> Error {
        let token = text.split(|byte| byte.is_ascii_whitespace()).next().unwrap_or_default();
        let token = String::from_utf8_lossy(&token[..token.len().min(40)]);
        malformed(self.line, format!("{expected}, found {token:?}"))
    }

    fn finish(mut self) -> Result<Dataset> {
        if let (true, Some((negative, positive))) = (self.strange > 0, self.options.labels) {
            self.found.sort_by(f64::total_cmp);
            let dots = if self.found.len() > MOST_LABELS { ", ..." } else { "" };
            let found: Vec<_> = self.found.iter().take(MOST_LABELS).map(f64::to_string).collect();
            let reason =
                format!("a label is neither {negative} nor {positive}; the file has {}{dots}", found.join(", "));
            return Err(malformed(self.strange, reason));
        }
        if self.samples.labels.is_empty() {
            return Err(malformed(self.line.max(1), "the file ends here and has no samples"));
        }
        self.samples.features.n_columns = self.options.n_features.unwrap_or(self.n_columns);
        Ok(self.samples)
    }
}

/// The text after spaces; carriage returns count as spaces.
#[inline]
fn spaces(text: &[u8]) -> &[u8] {
    let n = text.iter().take_while(|&&byte| matches!(byte, b' ' | b'\t' | b'\r')).count();
    &text[n..]
}

/// An integer and the text after it; `None` without an integer or with more than 18 digits.
#[inline]
fn integer(text: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    let mut n = 0;
    while let Some(digit) = text.get(n).map(|byte| byte.wrapping_sub(b'0')).filter(|&digit| digit < 10) {
        value = 10 * value + u64::from(digit);
        n += 1;
        if n > 18 {
            return None;
        }
    }
    (n > 0).then(|| (value, &text[n..]))
}

/// Powers of ten that float64 represents exactly.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];

/// The float64 nearest to a decimal number, and the text after it.
#[inline]
fn number(text: &[u8]) -> Option<(f64, &[u8])> {
    let is_negative = text.first() == Some(&b'-');
    let start = usize::from(matches!(text.first(), Some(b'-' | b'+')));
    let (mut at, mut mantissa, mut n_digits, mut n_decimals) = (start, 0u64, 0, 0);
    let mut is_behind_point = false;
    while let Some(&byte) = text.get(at) {
        let digit = byte.wrapping_sub(b'0');
        if digit < 10 {
            mantissa = mantissa.wrapping_mul(10).wrapping_add(u64::from(digit));
            n_digits += 1;
            n_decimals += usize::from(is_behind_point);
        } else if byte == b'.' && !is_behind_point {
            is_behind_point = true;
        } else {
            break;
        }
        at += 1;
    }
    // At most 15 digits are below 2^53, and the quotient of two exact numbers is correctly rounded.
    if n_digits > 0 && n_digits <= 15 && ends(text.get(at)) {
        let value = mantissa as f64 / POWERS[n_decimals];
        return Some((if is_negative { -value } else { value }, &text[at..]));
    }
    let end = text.iter().position(|byte| ends(Some(byte))).unwrap_or(text.len());
    let value = std::str::from_utf8(&text[..end]).ok()?.parse().ok()?;
    Some((value, &text[end..]))
}

/// Whether a number ends here.
#[inline]
fn ends(byte: Option<&u8>) -> bool {
    matches!(byte, None | Some(b' ' | b'\n' | b'\t' | b'\r' | b'#'))
}
