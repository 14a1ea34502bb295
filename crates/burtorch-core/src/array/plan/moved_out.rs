//! Results of a run that are moved out with their memory.
//!
//! Promises: a moved result is not copied if it has its own memory; the next run has new memory. Does not know the receiver.

use super::super::instr::{Data, Element};
use super::memory::room;
use super::{Argument, ArrayFloat, Plan};
use crate::error::Result;

/// Numbers of parameters of either float type.
#[derive(Clone, Copy, Debug)]
pub enum Floats<'a> {
    /// Of float64.
    F64(&'a [f64]),
    /// Of float32.
    F32(&'a [f32]),
}

/// A float type, as arrays of unknown type hold it.
pub trait Held: ArrayFloat {
    /// The numbers of parameters of this type; none of others.
    fn of_floats(floats: Floats<'_>) -> &[Self];
    /// An argument, if its floats are of this type.
    fn argument(data: &Data) -> Option<Argument<'_, Self>>;
    /// An array.
    fn data(numbers: Vec<Self>) -> Data;
}

macro_rules! held {
    ($($type:ident $name:ident;)*) => { $(
        impl Held for $type {
            fn of_floats(floats: Floats<'_>) -> &[Self] {
                if let Floats::$name(numbers) = floats { numbers } else { &[] }
            }
            fn argument(data: &Data) -> Option<Argument<'_, Self>> {
                match data {
                    Data::$name(x) => Some(Argument::Float(x)),
                    Data::Int(x) => Some(Argument::Int(x)),
                    Data::Mask(x) => Some(Argument::Mask(x)),
                    _ => None,
                }
            }
            fn data(numbers: Vec<Self>) -> Data {
                Data::$name(numbers)
            }
        }
    )* };
}

held! {
    f64 F64;
    f32 F32;
}

/// A plan of either float type.
pub trait Run: Send {
    /// Runs it. Nothing that was taken is missing.
    fn run(&mut self, arguments: &[&Data], parameters: &[Floats<'_>]) -> Result<()>;
    /// Result `k` of the last run, once.
    fn take(&mut self, k: usize) -> Result<Data>;
    /// Bytes of its memory.
    fn bytes(&self) -> usize;
}

impl<E: Held> Run for Plan<E> {
    fn run(&mut self, arguments: &[&Data], parameters: &[Floats<'_>]) -> Result<()> {
        for (buffer, ty) in &self.outputs {
            let n = ty.dims.size();
            match ty.element {
                Element::Int if self.ints.buffers[*buffer].len() < n => self.ints.buffers[*buffer] = room(n)?,
                Element::Float if self.floats.buffers[*buffer].len() < n => {
                    self.floats.buffers[*buffer] = room(n)?;
                }
                _ => {}
            }
        }
        let arguments: Vec<_> =
            arguments.iter().map(|data| E::argument(data).unwrap_or(Argument::Float(&[]))).collect();
        let parameters: Vec<_> = parameters.iter().map(|&floats| E::of_floats(floats)).collect();
        Plan::run(self, &arguments, &parameters)
    }

    fn take(&mut self, k: usize) -> Result<Data> {
        let Some(&(buffer, ty)) = self.outputs.get(k) else { return self.data(k) };
        let is_last = self.outputs[k + 1..].iter().all(|(other, _)| *other != buffer);
        let n = ty.dims.size();
        match ty.element {
            Element::Int if is_last && self.ints.buffers[buffer].len() == n => {
                Ok(Data::Int(std::mem::take(&mut self.ints.buffers[buffer])))
            }
            Element::Float if is_last && self.floats.buffers[buffer].len() == n => {
                Ok(E::data(std::mem::take(&mut self.floats.buffers[buffer])))
            }
            _ => self.data(k),
        }
    }

    fn bytes(&self) -> usize {
        Plan::bytes(self)
    }
}
