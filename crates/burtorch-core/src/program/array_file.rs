//! Array programs as sections of a checkpoint file.
//!
//! A program and its nested programs are numbered, nested ones first. Sections: `APRG` the number of programs; then for each
//! program `ANAM` names of its operations, one per line; `AOPS` for each instruction the index of its name, the number of its
//! operands, and the operands; `ANUM` the float type and the numbers of instructions; `ACON` the numbers of each constant; `AOUT`
//! results. Promises: a loaded program has passed the type rules of the builder, or is refused with a reason; nesting is
//! limited as in traces; the total size is limited. Does not know whole files.

use std::collections::HashMap;
use std::sync::Arc;

use super::array_numbers::{Numbers, Read};
use super::primitive::not_saved;
use crate::array::{Apart, ArrayBuilder, ArrayInstr, ArrayOp, ArrayProgram, Data, Length, ValueId};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::io::{Reader, Section, Writer};
use crate::scalar::DType;

/// The largest nesting depth of programs.
const DEEPEST: usize = 128;
/// The largest number of instructions, counting those of inner programs at each use.
const MOST: usize = 1 << 28;

/// The inner programs of an instruction.
fn held(op: &ArrayOp) -> Vec<&Arc<ArrayProgram>> {
    match op {
        ArrayOp::Call(program) | ArrayOp::Apart(Apart { body: program, .. }) => vec![&program.0],
        ArrayOp::Rows(rows) => vec![&rows.body.0],
        ArrayOp::Cond { yes, no } => vec![&yes.0, &no.0],
        ArrayOp::Loop(of) => match &of.length {
            Length::While { condition, .. } => vec![&of.body.0, &condition.0],
            _ => vec![&of.body.0],
        },
        _ => Vec::new(),
    }
}

/// A program and its inner programs, inner ones first.
#[derive(Default)]
struct Programs<'a> {
    all: Vec<&'a ArrayProgram>,
    places: HashMap<*const ArrayProgram, usize>,
}

impl<'a> Programs<'a> {
    /// Adds a program after its inner programs; returns its index.
    fn add(&mut self, program: &'a ArrayProgram) -> usize {
        for instr in program.instrs() {
            for inner in held(&instr.op) {
                if !self.places.contains_key(&Arc::as_ptr(inner)) {
                    let place = self.add(inner);
                    self.places.insert(Arc::as_ptr(inner), place);
                }
            }
        }
        self.all.push(program);
        self.all.len() - 1
    }

    fn write_one(&self, writer: &mut Writer, program: &ArrayProgram) -> Result<()> {
        let mut names: Vec<String> = Vec::new();
        let mut places: HashMap<String, u32> = HashMap::new();
        let mut numbers = Numbers(vec![u64::from(program.dtype() == DType::Float64)]);
        let mut ops: Vec<u32> = Vec::new();
        for (k, instr) in program.instrs().iter().enumerate() {
            interrupt::ask_at(8 * k)?;
            let name =
                numbers.write(&instr.op, |of| self.places.get(&Arc::as_ptr(&of.0)).copied().unwrap_or(usize::MAX));
            let place = *places.entry(name).or_insert_with_key(|name| {
                names.push(name.clone());
                names.len() as u32 - 1
            });
            ops.extend([place, instr.operands.len() as u32]);
            ops.extend(instr.operands.iter().map(|v| v.index() as u32));
        }
        writer.text(*b"ANAM", &names.join("\n"))?;
        writer.section(*b"AOPS", &ops)?;
        writer.section(*b"ANUM", &numbers.0)?;
        for ArrayInstr { op, .. } in program.instrs() {
            if let ArrayOp::Const(_, data) = op {
                match &*data.0 {
                    Data::F64(x) => writer.section(*b"ACON", x)?,
                    Data::F32(x) => writer.section(*b"ACON", x)?,
                    Data::Int(x) => writer.section_of(*b"ACON", x.iter().map(|&x| x as u64))?,
                    Data::Mask(x) => writer.section_of(*b"ACON", x.iter().map(|&x| u8::from(x)))?,
                }
            }
        }
        writer.section_of(*b"AOUT", program.outputs().iter().map(|v| v.index() as u32))
    }
}

impl ArrayProgram {
    /// Appends the program's sections.
    pub fn write(&self, writer: &mut Writer) -> Result<()> {
        writer.needs_version(3);
        let mut programs = Programs::default();
        programs.add(self);
        for instr in programs.all.iter().flat_map(|program| program.instrs()) {
            if let ArrayOp::Apart(Apart { rules: Some(rules), .. }) = &instr.op {
                return Err(not_saved(rules.0.name()));
            }
        }
        writer.section(*b"APRG", &[programs.all.len() as u32])?;
        programs.all.iter().try_for_each(|program| programs.write_one(writer, program))
    }

    /// Reads a program's sections.
    pub fn read(reader: &mut Reader<'_>) -> Result<ArrayProgram> {
        let n = reader.section_of::<u32>(*b"APRG", 1)?.get(0).unwrap_or(0);
        let mut all: Vec<Arc<ArrayProgram>> = Vec::new();
        // The nesting depth of each, and its instructions including those of inner programs.
        let mut sizes: HashMap<*const ArrayProgram, (usize, usize)> = HashMap::new();
        // Each program takes bytes, so a false count ends with a missing section.
        for _ in 0..n {
            let program = Arc::new(read_one(reader, &all)?);
            let (mut depth, mut size) = (0, program.instrs().len());
            for inner in program.instrs().iter().flat_map(|instr| held(&instr.op)) {
                let (below, instrs) = sizes.get(&Arc::as_ptr(inner)).copied().unwrap_or((0, 0));
                (depth, size) = (depth.max(below + 1), size.saturating_add(instrs));
            }
            if depth > DEEPEST || size > MOST {
                return Err(reader.refuse(format!("programs of {size} instructions, nested {depth} deep")));
            }
            sizes.insert(Arc::as_ptr(&program), (depth, size));
            all.push(program);
        }
        let last = all.pop().ok_or_else(|| reader.refuse("a function without a program".into()))?;
        drop(all);
        Ok(Arc::unwrap_or_clone(last))
    }
}

/// The numbers of a constant, whose section has their type.
fn data_of(reader: &mut Reader<'_>, dtype: DType) -> Result<Data> {
    let next = reader.clone();
    let is = |done: Result<()>| done.is_ok();
    if is(next.clone().section::<u64>(*b"ACON").map(drop)) {
        let section: Section<'_, u64> = reader.section(*b"ACON")?;
        return Ok(Data::Int(section.to_vec()?.into_iter().map(|x| x as i64).collect()));
    }
    if is(next.clone().section::<u8>(*b"ACON").map(drop)) {
        let section: Section<'_, u8> = reader.section(*b"ACON")?;
        if let Some(k) = section.iter().position(|x| x > 1) {
            return Err(section.refuse(k, "is neither true nor false".into()));
        }
        return Ok(Data::Mask(section.iter().map(|x| x == 1).collect()));
    }
    Ok(match dtype {
        DType::Float32 => Data::F32(reader.section::<f32>(*b"ACON")?.to_vec()?),
        _ => Data::F64(reader.section::<f64>(*b"ACON")?.to_vec()?),
    })
}

fn read_one(reader: &mut Reader<'_>, programs: &[Arc<ArrayProgram>]) -> Result<ArrayProgram> {
    let names: Vec<&str> = reader.text(*b"ANAM")?.lines().collect();
    let section = reader.section::<u32>(*b"AOPS")?;
    let (ops, numbers) = (section.to_vec()?, reader.section::<u64>(*b"ANUM")?.to_vec()?);
    let refuse = |error: Error, reader: &Reader<'_>| match error {
        Error::Format { .. } | Error::OutOfMemory { .. } | Error::Interrupted => error,
        error => reader.refuse(error.to_string()),
    };
    let (dtype, numbers) = match numbers.split_first() {
        Some((0, rest)) => (DType::Float32, rest),
        Some((1, rest)) => (DType::Float64, rest),
        _ => return Err(reader.refuse("a program has an element type".into())),
    };
    let mut read = Read { numbers, programs };
    let mut b = ArrayBuilder::new(dtype)?;
    let mut values: Vec<ValueId> = Vec::new();
    let mut rest = &ops[..];
    while let [place, n, after @ ..] = rest {
        let at = ops.len() - rest.len();
        let Some((operands, after)) = after.split_at_checked(*n as usize) else {
            return Err(section.refuse(at + 1, format!("is {n}, and there are not so many operands")));
        };
        let Some(name) = names.get(*place as usize) else {
            return Err(section.refuse(at, format!("is {place}, and there are {} operations", names.len())));
        };
        let operands = operands.iter().map(|&v| values.get(v as usize).copied()).collect::<Option<Vec<_>>>();
        let operands = operands.ok_or_else(|| section.refuse(at, "takes a value that comes later".into()))?;
        let op = read.instr(name, || data_of(reader, dtype)).map_err(|error| refuse(error, reader))?;
        if held(&op).iter().any(|program| program.dtype() != dtype) {
            return Err(reader.refuse("programs of different element types".into()));
        }
        values.extend(b.push_all(op, &operands).map_err(|error| refuse(error, reader))?);
        rest = after;
    }
    if !rest.is_empty() || !read.numbers.is_empty() {
        return Err(section.refuse(ops.len(), "is missing: an instruction is cut short".into()));
    }
    let outputs = reader.section::<u32>(*b"AOUT")?;
    let results = outputs.iter().map(|v| values.get(v as usize).copied()).collect::<Option<Vec<_>>>();
    let results = results.ok_or_else(|| outputs.refuse(0, "is among results that no instruction gives".into()))?;
    b.finish(&results).map_err(|error| refuse(error, reader))
}
