//! Programs that transforms derive from the program of a body: Jacobians, batches with any axes, gradients of Parameters.
//!
//! Promises: the new program takes the arguments of the old one, followed by others if documented. Knows no Python.

use std::sync::Arc;

use burtorch_core::array::{
    ArrayBuilder, ArrayOp, ArrayProgram, Data, Dims, Element, OverRows, Shared, Slice, Type, ValueId, Variable, View,
};
use burtorch_core::{Error, Result};

/// Appends a call.
fn call(b: &mut ArrayBuilder, program: ArrayProgram, arguments: &[ValueId]) -> Result<Vec<ValueId>> {
    b.push_all(ArrayOp::Call(Shared(Arc::new(program))), arguments)
}

fn inputs(b: &mut ArrayBuilder, program: &ArrayProgram) -> Result<Vec<ValueId>> {
    program.input_types().iter().map(|ty| b.input(&ty.dims, ty.element)).collect()
}

/// Rows `start ..` of an identity matrix of `rows` rows from column `start` on, in columns of this shape: 1 in row
/// `start + k` of column k.
fn basis(b: &mut ArrayBuilder, rows: usize, start: usize, dims: Dims) -> Result<ValueId> {
    let count = |from: usize, n: usize| (from..from + n).map(|k| k as i64).collect::<Vec<_>>();
    let size = dims.size();
    let mut numbers =
        |from, n| b.push(ArrayOp::Const(Dims::new(&[n])?, Shared(Arc::new(Data::Int(count(from, n))))), &[]);
    let (row, column) = (numbers(0, rows)?, numbers(start, size)?);
    let row = b.reshape(row, &[rows, 1])?;
    let is_one = b.compare(burtorch_core::array::Comparison::Equal, &[row, column])?;
    let ones = b.convert(is_one, Element::Float)?;
    b.reshape(ones, &[&[rows], &dims[..]].concat())
}

/// Both shapes, concatenated.
fn beside(x: Dims, y: Dims) -> Result<Dims> {
    Dims::new(&[&x[..], &y[..]].concat())
}

/// The Jacobian of each result, an array of floats, by each variable, with the shapes of both. Uses forward mode if the
/// variables contain no more numbers than the results, else reverse mode; all columns, or rows, at once.
pub fn jacobian(program: &ArrayProgram, by: &[Variable]) -> Result<ArrayProgram> {
    let input_types = program.input_types();
    let variables: Vec<Dims> = by
        .iter()
        .map(|variable| match variable {
            Variable::Input(k) => Ok(input_types[*k].dims),
            Variable::Param(k) => Ok(program.type_of(program.params()[*k]).dims),
        })
        .collect::<Result<_>>()?;
    let results: Vec<Dims> = program.output_types().iter().map(|ty| ty.dims).collect();
    let total = |all: &[Dims]| all.iter().map(Dims::size).sum::<usize>();
    let (n, m) = (total(&variables), total(&results));
    let is_forward = n <= m;
    let (rows, sides) = if is_forward { (n, &variables) } else { (m, &results) };
    let mut b = ArrayBuilder::new(program.dtype())?;
    let mut arguments = inputs(&mut b, program)?;
    if n == 0 || m == 0 {
        let zero = b.literal(0.0)?;
        let shapes = results.iter().flat_map(|x| variables.iter().map(|y| beside(*x, *y)));
        let empty = shapes.map(|dims| dims.and_then(|dims| b.broadcast_to(zero, dims))).collect::<Result<Vec<_>>>()?;
        return b.finish(&empty);
    }
    let one = if is_forward { program.jvp(by)? } else { program.vjp_of_some(by)? };
    let axes: Vec<_> = (0..one.inputs().len()).map(|k| (k >= arguments.len()).then_some(0)).collect();
    let all = one.batched(&axes, rows)?;
    let mut start = 0;
    for dims in sides {
        arguments.push(basis(&mut b, rows, start, *dims)?);
        start += dims.size();
    }
    let parts = call(&mut b, all, &arguments)?[results.len()..].to_vec();
    let mut blocks = Vec::with_capacity(results.len() * variables.len());
    let starts = |all: &[Dims], k: usize| all[..k].iter().map(Dims::size).sum::<usize>();
    for (i, result) in results.iter().enumerate() {
        for (j, variable) in variables.iter().enumerate() {
            let (part, k, size) =
                if is_forward { (parts[i], j, variable.size()) } else { (parts[j], i, result.size()) };
            let rows = b.slice(part, &[Slice { start: starts(sides, k), step: 1, count: size }])?;
            let rows = if is_forward {
                let rank = b.type_of(rows).dims.rank();
                let axes: Vec<_> = (1..rank).chain([0]).collect();
                b.transpose(rows, &axes)?
            } else {
                rows
            };
            blocks.push(b.view(rows, View::Reshape(beside(*result, *variable)?))?);
        }
    }
    b.finish(&blocks)
}

/// The entries of the Jacobian that may differ from 0, by rows, or ones in their place; where each row begins and the last one
/// ends, the columns of the entries, and the number of columns.
pub fn sparse_entries(program: &ArrayProgram, by: &[Variable], is_pattern: bool) -> Result<ArrayProgram> {
    let pattern = program.sparsity(by)?;
    let input_types = program.input_types();
    let n: usize = by.iter().map(|v| if let Variable::Input(k) = v { input_types[*k].dims.size() } else { 0 }).sum();
    let mut b = ArrayBuilder::new(program.dtype())?;
    let arguments = inputs(&mut b, program)?;
    let entries = if is_pattern {
        let one = b.literal(1.0)?;
        b.broadcast_to(one, Dims::new(&[pattern.columns.len()])?)?
    } else {
        call(&mut b, program.entries(by, &pattern)?, &arguments)?[0]
    };
    let mut integers =
        |all: Vec<i64>| b.push(ArrayOp::Const(Dims::new(&[all.len()])?, Shared(Arc::new(Data::Int(all)))), &[]);
    let starts = integers(pattern.starts.iter().map(|&start| start as i64).collect())?;
    let columns = integers(pattern.columns.iter().map(|&column| column.into()).collect())?;
    let n = integers(vec![n as i64])?;
    b.finish(&[entries, starts, columns, n])
}

/// The program for `rows` rows at once: the axis of each argument along the rows, and the axis of each result;
/// `None` for a result that is the same for all rows.
pub fn batched(
    program: &ArrayProgram,
    in_axes: &[Option<usize>],
    out_axes: &[Option<usize>],
    rows: usize,
) -> Result<ArrayProgram> {
    let all = program.batched(in_axes, rows)?;
    let mut b = ArrayBuilder::new(program.dtype())?;
    let arguments = inputs(&mut b, &all)?;
    let results = call(&mut b, all, &arguments)?;
    let mut moved = Vec::with_capacity(results.len());
    for (&result, axis) in results.iter().zip(out_axes) {
        moved.push(match axis {
            Some(axis) => {
                let rank = b.type_of(result).dims.rank();
                let mut axes: Vec<usize> = (1..rank).collect();
                axes.insert(*axis, 0);
                b.transpose(result, &axes)?
            }
            None => b.index(result, 0)?,
        });
    }
    b.finish(&moved)
}

/// The program for `rows` rows with all results totalled over them; masks count, and means are floats.
pub fn totalled(
    program: &ArrayProgram,
    in_axes: &[Option<usize>],
    over: OverRows,
    rows: usize,
) -> Result<ArrayProgram> {
    if over == OverRows::Mean && rows == 0 {
        return Err(Error::EmptyReduction { op: "the mean over rows" });
    }
    let mut b = ArrayBuilder::new(program.dtype())?;
    let arguments = inputs(&mut b, program)?;
    let mut results = call(&mut b, program.clone(), &arguments)?;
    for result in &mut results {
        if over == OverRows::Mean || b.type_of(*result).element == Element::Mask {
            *result = b.convert(*result, Element::Float)?;
        }
    }
    let n = results.len();
    b.finish(&results)?.over_rows(in_axes, &vec![over; n], rows)
}

/// The value, a single number, and its gradient by all Parameters that the program reads: a flat gradient for each of these
/// sets, with their lengths.
pub fn parameter_gradient(program: &ArrayProgram, sets: &[(u32, usize)]) -> Result<ArrayProgram> {
    let program = program.without_calls()?;
    let by: Vec<_> = (0..program.params().len()).map(Variable::Param).collect();
    let places = program.instrs().iter().filter_map(|instr| match instr.op {
        ArrayOp::Param { set, start, dims } => Some((set, start, dims)),
        _ => None,
    });
    let places: Vec<_> = places.collect();
    let both = program.value_and_gradient(&by)?;
    let mut b = ArrayBuilder::new(program.dtype())?;
    let arguments = inputs(&mut b, &program)?;
    let results = call(&mut b, both, &arguments)?;
    let mut outputs = vec![results[0]];
    for &(set, n) in sets {
        let zero = b.literal(0.0)?;
        let mut total = b.broadcast_to(zero, Dims::new(&[n])?)?;
        for ((_, start, dims), &gradient) in places.iter().zip(&results[1..]).filter(|(place, _)| place.0 == set) {
            let flat = b.reshape(gradient, &[dims.size()])?;
            let slice = Slice { start: *start, step: 1, count: dims.size() };
            total = b.push(ArrayOp::AccumulateAt([slice].into()), &[total, flat])?;
        }
        outputs.push(total);
    }
    b.finish(&outputs)
}

/// The types of arguments of one row; an error names an argument without the axis, or with another extent.
pub fn row_types(types: &[Type], axes: &[Option<isize>]) -> Result<(Vec<Type>, Vec<Option<usize>>, usize)> {
    let mut rows = None;
    let (mut of_row, mut found) = (Vec::new(), Vec::new());
    for (k, (ty, axis)) in types.iter().zip(axes).enumerate() {
        let Some(axis) = axis else {
            of_row.push(*ty);
            found.push(None);
            continue;
        };
        let axis = ty.dims.axis(*axis)?;
        let extent = ty.dims[axis];
        if *rows.get_or_insert(extent) != extent {
            let expected = format!("as long as that of the others, {}", rows.unwrap_or(0));
            let found = format!("{extent} for array {k} of the arguments");
            return Err(Error::BadArgument { what: "an axis that vmap maps over", expected, found });
        }
        let mut extents = ty.dims.to_vec();
        extents.remove(axis);
        of_row.push(Type { dims: Dims::new(&extents)?, ..*ty });
        found.push(Some(axis));
    }
    match rows {
        Some(rows) => Ok((of_row, found, rows)),
        None => Err(Error::BadArgument {
            what: "in_axes",
            expected: "an axis of at least one argument".into(),
            found: "none".into(),
        }),
    }
}
