//! The builder of array programs.
//!
//! Promises: operands come before the instructions that read them; every instruction has been checked by its type rule, so
//! every program is valid; a refused call leaves the builder unchanged. Does not know how programs run.

use std::sync::Arc;

use super::dims::{Dims, bad};
use super::instr::{ArrayInstr, ArrayOp, ArrayProgram, Comparison, Data, Element, Known, Shared, Type, ValueId, View};
use crate::error::Result;
use crate::interrupt;
use crate::scalar::DType;

/// Values between two checks whether to end early: about a millisecond of any pass.
const QUESTIONS: usize = 1 << 11;

/// Makes an [`ArrayProgram`], instruction by instruction.
///
/// Methods with NumPy names follow NumPy's rules: operands broadcast, integers and masks become floats where a
/// float is needed, negative axes count from the end.
///
/// ```
/// use burtorch_core::array::{ArrayBuilder, Element};
/// use burtorch_core::{DType, Op};
/// let mut b = ArrayBuilder::new(DType::Float64).unwrap();
/// let x = b.input(&[3, 1], Element::Float).unwrap();
/// let y = b.input(&[4], Element::Float).unwrap();
/// let z = b.row(Op::Mul, &[x, y]).unwrap();
/// assert_eq!(&b.type_of(z).dims[..], [3, 4]);
/// assert!(b.reshape(z, &[5]).is_err());
/// ```
#[derive(Debug)]
pub struct ArrayBuilder {
    program: ArrayProgram,
}

impl ArrayBuilder {
    /// A builder of programs of this float type, float32 or float64.
    pub fn new(dtype: DType) -> Result<Self> {
        if !matches!(dtype, DType::Float32 | DType::Float64) {
            return Err(bad("dtype of an array program", "float32 or float64".into(), dtype.name().into()));
        }
        let (instrs, known, inputs, params, outputs) = Default::default();
        Ok(ArrayBuilder { program: ArrayProgram { dtype, instrs, known, inputs, params, outputs } })
    }

    /// A builder that continues a program.
    pub(super) fn from(program: ArrayProgram) -> Self {
        ArrayBuilder { program }
    }

    /// The type of a value.
    pub fn type_of(&self, value: ValueId) -> Type {
        self.program.type_of(value)
    }

    /// The shape of a value.
    pub(super) fn dims(&self, value: ValueId) -> Dims {
        self.program.type_of(value).dims
    }

    /// The instructions so far.
    pub(super) fn so_far(&self) -> &ArrayProgram {
        &self.program
    }

    /// The program with these results.
    pub fn finish(self, outputs: &[ValueId]) -> Result<ArrayProgram> {
        for &v in outputs {
            self.check(v)?;
            if self.type_of(v).element == Element::Sparse {
                return Err(bad("result", "an array of numbers".into(), "sparse rows".into()));
            }
        }
        Ok(self.program.with_outputs(outputs.to_vec()))
    }

    /// Several instructions, or none if one of them is refused.
    pub(super) fn whole<T>(&mut self, build: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let p = &self.program;
        let before = [p.instrs.len(), p.known.len(), p.inputs.len(), p.params.len()];
        let built = build(self);
        if built.is_err() {
            let p = &mut self.program;
            p.instrs.truncate(before[0]);
            p.known.truncate(before[1]);
            p.inputs.truncate(before[2]);
            p.params.truncate(before[3]);
        }
        built
    }

    /// Refuses values of other programs.
    pub(super) fn check(&self, value: ValueId) -> Result<()> {
        if value.at() < self.program.known.len() {
            return Ok(());
        }
        let expected = format!("one of this program's {}", self.program.known.len());
        Err(bad("a value", expected, format!("number {}", value.0)))
    }

    /// Appends an instruction with several results.
    pub fn push_all(&mut self, op: ArrayOp, operands: &[ValueId]) -> Result<Vec<ValueId>> {
        // Every pass over a program comes by here.
        if self.program.known.len().is_multiple_of(QUESTIONS) && interrupt::is_over() {
            return Err(crate::Error::Interrupted);
        }
        operands.iter().try_for_each(|&v| self.check(v))?;
        let types: Vec<_> = operands.iter().map(|&v| self.type_of(v)).collect();
        let results = op.infer(&types)?;
        let first = self.program.known.len();
        if u32::try_from(first + results.len()).is_err() {
            return Err(crate::Error::IndexExhausted { limit: u32::MAX });
        }
        if let (ArrayOp::Const(_, data), DType::Float32) = (&op, self.program.dtype)
            && matches!(*data.0, Data::F64(_))
        {
            return Err(bad("a constant", "an array of float32".into(), "one of float64".into()));
        }
        if let (ArrayOp::Const(_, data), DType::Float64) = (&op, self.program.dtype)
            && matches!(*data.0, Data::F32(_))
        {
            return Err(bad("a constant", "an array of float64".into(), "one of float32".into()));
        }
        for (k, ty) in results.iter().enumerate() {
            let may_be_unreached = self.program.propagates(&op, operands, k);
            self.program.known.push(Known { ty: *ty, may_be_unreached });
        }
        let result = ValueId(first as u32);
        match op {
            ArrayOp::Input(_) => self.program.inputs.push(result),
            ArrayOp::Param { .. } => self.program.params.push(result),
            _ => {}
        }
        self.program.instrs.push(ArrayInstr { op, operands: operands.into(), result });
        Ok((first..self.program.known.len()).map(|v| ValueId(v as u32)).collect())
    }

    /// Appends an instruction, whose operands must have exactly the types that it requires.
    pub fn push(&mut self, op: ArrayOp, operands: &[ValueId]) -> Result<ValueId> {
        Ok(self.push_all(op, operands)?[0])
    }
}

/// The basic instructions.
impl ArrayBuilder {
    /// A new argument.
    pub fn input(&mut self, extents: &[usize], element: Element) -> Result<ValueId> {
        self.push(ArrayOp::Input(Type { dims: Dims::new(extents)?, element }), &[])
    }

    /// Numbers of parameters, read at every call.
    pub fn param(&mut self, set: u32, start: usize, extents: &[usize]) -> Result<ValueId> {
        self.push(ArrayOp::Param { set, start, dims: Dims::new(extents)? }, &[])
    }

    /// A float.
    pub fn literal(&mut self, x: f64) -> Result<ValueId> {
        self.push(ArrayOp::Literal(x.to_bits()), &[])
    }

    /// A mask.
    pub fn mask(&mut self, holds: bool) -> Result<ValueId> {
        self.push(ArrayOp::Const(Dims::SCALAR, Shared(Arc::new(Data::Mask(vec![holds])))), &[])
    }

    /// A view of a value; the value itself if the view is the identity.
    pub fn view(&mut self, x: ValueId, view: View) -> Result<ValueId> {
        self.check(x)?;
        let dims = self.dims(x);
        let is_same = match &view {
            View::Reshape(to) | View::Broadcast(to) => *to == dims,
            View::Permute(axes) => axes.len() == dims.rank() && axes.iter().enumerate().all(|(k, &axis)| k == axis),
            View::Slice(slices) => {
                slices.len() == dims.rank()
                    && slices
                        .iter()
                        .zip(dims.iter())
                        .all(|(s, &n)| s.count == n && s.start == 0 && (s.step == 1 || n < 2))
            }
        };
        if is_same { Ok(x) } else { self.push(ArrayOp::View(view), &[x]) }
    }

    /// The value repeated to a shape that it broadcasts to.
    pub fn broadcast_to(&mut self, x: ValueId, dims: Dims) -> Result<ValueId> {
        self.view(x, View::Broadcast(dims))
    }

    /// A comparison with broadcasting.
    pub fn compare(&mut self, comparison: Comparison, operands: &[ValueId]) -> Result<ValueId> {
        self.whole(|b| {
            let mut operands = b.together(operands)?;
            for v in &mut operands {
                *v = b.countable(*v)?;
            }
            b.push(ArrayOp::Compare(comparison), &operands)
        })
    }

    /// The value as another element.
    pub fn convert(&mut self, x: ValueId, element: Element) -> Result<ValueId> {
        self.check(x)?;
        if self.type_of(x).element == element { Ok(x) } else { self.push(ArrayOp::Convert(element), &[x]) }
    }

    /// The value as a constant of derivatives.
    pub fn detach(&mut self, x: ValueId) -> Result<ValueId> {
        self.check(x)?;
        let element = self.type_of(x).element;
        if element == Element::Float { self.push(ArrayOp::Convert(element), &[x]) } else { Ok(x) }
    }

    /// Operands of one shape and one element: float if one of them has floats, otherwise integer, otherwise mask.
    pub(super) fn together(&mut self, operands: &[ValueId]) -> Result<Vec<ValueId>> {
        let element = self.common_element(operands)?;
        let mut dims = Dims::SCALAR;
        for &v in operands {
            dims = dims.broadcast(&self.dims(v))?;
        }
        operands.iter().map(|&v| self.convert(v, element).and_then(|v| self.broadcast_to(v, dims))).collect()
    }

    /// The element to which all of these convert without loss.
    pub(super) fn common_element(&self, operands: &[ValueId]) -> Result<Element> {
        operands.iter().try_for_each(|&v| self.check(v))?;
        let has = |element| operands.iter().any(|&v| self.type_of(v).element == element);
        let order = [Element::Float, Element::Int, Element::Mask];
        Ok(order.into_iter().find(|&element| has(element)).unwrap_or(Element::Float))
    }
}
