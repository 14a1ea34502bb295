//! What bundles are: instructions for up to a vector's lanes of units, and the memory that they run on.
//!
//! In words: slots of operands are gathered into lanes; results and contributions are stored side by side. Lanes behind
//! the last unit of a bundle compute something from slots that exist, and store it where a later bundle stores its own
//! results, or where nobody reads.
//!
//! Promises: nothing is read or written but slots. Knows nothing of ops.
#![allow(unsafe_code)]

use crate::ops::Op;
use crate::scalar::{Float, Scalar};
use crate::simd::{Level, gather};

/// A float whose slots are taken in lanes.
pub(in crate::program) trait InLanes: Float {
    /// The vector.
    type Lanes: Scalar<Elem = Self> + gather::Gather<Elem = Self>;
}

impl InLanes for f64 {
    type Lanes = crate::simd::F64x8;
}

/// What a bundle's code is given.
#[derive(Clone, Copy)]
pub(in crate::program) struct Memory<S> {
    /// Slots of values.
    pub(in crate::program) v: *mut S,
    /// Gradients and contributions, or tangents in the places of values.
    pub(in crate::program) d: *mut S,
    /// Slots, as bundles list them.
    pub(in crate::program) slots: *const u32,
    /// Room for twice the operands of any node.
    pub(in crate::program) scratch: *mut S,
}

/// The code of a bundle.
pub(in crate::program) type Run<S> = unsafe fn(&Bundle<S>, Memory<S>);

/// One instruction for up to a vector's lanes of units.
#[derive(Debug)]
pub(in crate::program) struct Bundle<S> {
    pub(super) run: Run<S>,
    /// Where operands are listed: the first of each unit, the second of each ...; then the constants of scaled ones.
    pub(super) operands: u32,
    /// Where the contributions to the adjoints are listed: the first of each unit, the second of each ...
    pub(super) adjoints: u32,
    /// The first slot of the values.
    pub(super) values: u32,
    /// The first slot of what is handed on.
    pub(super) to: u32,
    /// How many units.
    pub(super) m: u16,
    /// How many operands each has.
    pub(super) n: u16,
    /// How many contributions are added for each adjoint.
    pub(super) k: u16,
    /// Which operands move.
    pub(super) moving: u16,
    pub(super) op: Op,
    pub(super) scaled: bool,
}

impl<S> Clone for Bundle<S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Bundle<S> {}

impl<S> Bundle<S> {
    /// Runs it.
    ///
    /// # Safety
    /// The memory is that of the plan which the bundle is part of.
    #[inline(always)]
    pub(in crate::program) unsafe fn run(&self, at: Memory<S>) {
        // SAFETY: by the contract of this function.
        unsafe { (self.run)(self, at) }
    }
}

/// What a bundle does; compiled for a level by [`compiled`].
pub(super) trait Body<S: InLanes> {
    /// # Safety
    /// Every slot that the bundle lists, and a vector's lanes from every slot it stores to, lie in `v` and `d`; lists end
    /// a vector's lanes before `slots` does; nothing else uses the memory.
    unsafe fn run(b: &Bundle<S>, at: Memory<S>);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2<B: Body<S>, S: InLanes>(b: &Bundle<S>, at: Memory<S>) {
    // SAFETY: the caller keeps the contract of the body.
    unsafe { B::run(b, at) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")]
unsafe fn avx512<B: Body<S>, S: InLanes>(b: &Bundle<S>, at: Memory<S>) {
    // SAFETY: the caller keeps the contract of the body.
    unsafe { B::run(b, at) }
}

/// A body as code for a level that has wide vectors.
pub(super) fn compiled<B: Body<S>, S: InLanes>(level: Level) -> Option<Run<S>> {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => Some(avx512::<B, S>),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => Some(avx2::<B, S>),
        _ => None,
    }
}

impl<S: InLanes> Memory<S> {
    /// The numbers in the slots listed from `list`.
    ///
    /// # Safety
    /// As for a body, as for every method here.
    #[inline(always)]
    pub(super) unsafe fn gather(self, from: *const S, list: u32) -> S::Lanes {
        // SAFETY: by the contract of this method.
        unsafe { gather::Gather::gather(from, self.slots.add(list as usize)) }
    }

    #[inline(always)]
    pub(super) unsafe fn load(self, from: *const S, slot: u32) -> S::Lanes {
        // SAFETY: as above; a vector of floats may be read from anywhere.
        unsafe { from.add(slot as usize).cast::<S::Lanes>().read_unaligned() }
    }

    #[inline(always)]
    pub(super) unsafe fn store(self, to: *mut S, slot: u32, x: S::Lanes) {
        // SAFETY: as above.
        unsafe { to.add(slot as usize).cast::<S::Lanes>().write_unaligned(x) }
    }

    /// The adjoints of a bundle's units, whose contributions are listed from `list`.
    #[inline(always)]
    pub(super) unsafe fn adjoint(self, b: &Bundle<S>, list: u32) -> S::Lanes {
        // SAFETY: as above.
        unsafe {
            let mut g = self.gather(self.d, list);
            for j in 1..u32::from(b.k) {
                g = g + self.gather(self.d, list + j * u32::from(b.m));
            }
            g
        }
    }

    /// The constants of scaled units.
    #[inline(always)]
    pub(super) unsafe fn constants(self, b: &Bundle<S>) -> S::Lanes {
        // SAFETY: as above.
        unsafe { self.gather(self.v, b.operands + u32::from(b.n) * u32::from(b.m)) }
    }

    /// Stores values, and their multiples if the units are scaled.
    #[inline(always)]
    pub(super) unsafe fn store_values(self, b: &Bundle<S>, y: S::Lanes) {
        // SAFETY: as above.
        unsafe {
            self.store(self.v, b.values, y);
            if b.scaled {
                self.store(self.v, b.values + u32::from(b.m), y * self.constants(b));
            }
        }
    }

    /// The adjoints of units, taken through their constants if they are scaled.
    #[inline(always)]
    pub(super) unsafe fn inner_adjoint(self, b: &Bundle<S>) -> S::Lanes {
        // SAFETY: as above.
        unsafe {
            let g = self.adjoint(b, b.adjoints);
            if b.scaled { g * self.constants(b) } else { g }
        }
    }

    /// Stores tangents, and their multiples if the units are scaled.
    #[inline(always)]
    pub(super) unsafe fn store_tangents(self, b: &Bundle<S>, t: S::Lanes) {
        // SAFETY: as above.
        unsafe {
            self.store(self.d, b.values, t);
            if b.scaled {
                self.store(self.d, b.values + u32::from(b.m), t * self.constants(b));
            }
        }
    }

    /// Operand `j` of each unit.
    #[inline(always)]
    pub(super) unsafe fn operand(self, from: *const S, b: &Bundle<S>, j: u32) -> S::Lanes {
        // SAFETY: as above.
        unsafe { self.gather(from, b.operands + j * u32::from(b.m)) }
    }
}
