//! What bundles are: instructions for up to a vector's lanes of units, and the memory that they run on.
//!
//! In words: slots of operands are gathered into lanes; results and contributions are stored side by side. Lanes behind
//! the last unit of a bundle compute something from slots that exist, and store it where a later bundle stores its own
//! results, or where nobody reads.
//!
//! Promises: nothing is read or written but slots. Knows nothing of ops.
#![allow(unsafe_code)]

use crate::ops::Op;
use crate::scalar::{Float, Inlined, Scalar};
use crate::simd::gather::{Collect, Gather};
use crate::simd::{F64x8, Level};

/// A float whose slots are taken in lanes.
pub(in crate::program) trait InLanes: Float {
    /// The vector.
    type Lanes: Scalar<Elem = Self> + Collect<Elem = Self>;
}

impl InLanes for f64 {
    type Lanes = Inlined<F64x8>;
}

impl<V: Gather> Gather for Inlined<V> {
    type Elem = V::Elem;
    #[inline(always)]
    unsafe fn gather(from: *const V::Elem, places: *const u32) -> Self {
        debug_assert!(!from.is_null() && !places.is_null());
        // SAFETY: the caller keeps the same contract.
        unsafe { Inlined(V::gather(from, places)) }
    }
}

impl<V: Collect> Collect for Inlined<V> {
    #[inline(always)]
    unsafe fn collect(from: *const V::Elem, places: *const u32, n: usize) -> Self {
        debug_assert!(!from.is_null() && !places.is_null());
        // SAFETY: the caller keeps the same contract.
        unsafe { Inlined(V::collect(from, places, n)) }
    }
    #[inline(always)]
    fn sums_of_groups(self, width: usize, n: usize) -> Self {
        Inlined(self.0.sums_of_groups(width, n))
    }
    #[inline(always)]
    fn sums_of_groups_backwards(self, width: usize, n: usize) -> Self {
        Inlined(self.0.sums_of_groups_backwards(width, n))
    }
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

/// The contributions of a bundle have no head in common.
pub(super) const NO_HEAD: u32 = u32::MAX;

/// One instruction for up to a vector's lanes of units.
#[derive(Debug)]
pub(in crate::program) struct Bundle<S> {
    pub(super) run: Run<S>,
    /// Where operands are listed: the first of each unit, the second of each ...; then the constants of scaled ones.
    pub(super) operands: u32,
    /// Where the contributions to the adjoints are listed: the first of each unit, the second of each ...
    pub(super) adjoints: u32,
    /// The slot of a contribution that comes first in all of them, and is not listed; or [`NO_HEAD`].
    pub(super) head: u32,
    /// The first slot of the values.
    pub(super) values: u32,
    /// The first slot of what is handed on.
    pub(super) to: u32,
    /// How many lanes are in use: one for each unit, or for each operand of a softmax.
    pub(super) m: u16,
    /// How many operands each has.
    pub(super) n: u16,
    /// How many contributions are listed for each adjoint.
    pub(super) k: u16,
    /// Which operands move.
    pub(super) moving: u16,
    pub(super) op: Op,
    pub(super) scaled: bool,
    /// Whether the constants of scaled units are all the same.
    pub(super) one_constant: bool,
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
    /// The numbers in the slots listed from `list`, which may have been stored a moment ago.
    ///
    /// # Safety
    /// As for a body, as for every method here.
    #[inline(always)]
    pub(super) unsafe fn collect(self, from: *const S, b: &Bundle<S>, list: u32) -> S::Lanes {
        // SAFETY: by the contract of this method.
        unsafe { Collect::collect(from, self.slots.add(list as usize), usize::from(b.m)) }
    }

    /// The same for what was stored some time ago.
    #[inline(always)]
    pub(super) unsafe fn gather(self, from: *const S, b: &Bundle<S>, list: u32) -> S::Lanes {
        // SAFETY: as above.
        unsafe {
            if b.m <= 4 { self.collect(from, b, list) } else { Gather::gather(from, self.slots.add(list as usize)) }
        }
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
            let (m, mut list, mut left) = (u32::from(b.m), list, b.k);
            let mut g;
            if b.head != NO_HEAD {
                g = <S::Lanes as Scalar>::splat(*self.d.add(b.head as usize));
            } else if left == 1 {
                return self.collect(self.d, b, list);
            } else {
                g = self.gather(self.d, b, list);
                (list, left) = (list + m, left - 1);
            }
            for _ in 1..left {
                g = g + self.gather(self.d, b, list);
                list += m;
            }
            // What comes last was handed back last.
            if left > 0 { g + self.collect(self.d, b, list) } else { g }
        }
    }

    /// The constants of scaled units.
    #[inline(always)]
    pub(super) unsafe fn constants(self, b: &Bundle<S>) -> S::Lanes {
        // SAFETY: as above.
        unsafe {
            let list = b.operands + u32::from(b.n) * u32::from(b.m);
            if b.one_constant {
                return <S::Lanes as Scalar>::splat(*self.v.add(*self.slots.add(list as usize) as usize));
            }
            self.gather(self.v, b, list)
        }
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
        unsafe { self.collect(from, b, b.operands + j * u32::from(b.m)) }
    }

    /// Operand `j` of each unit, once it has been read before.
    #[inline(always)]
    pub(super) unsafe fn old_operand(self, b: &Bundle<S>, j: u32) -> S::Lanes {
        // SAFETY: as above.
        unsafe { self.gather(self.v, b, b.operands + j * u32::from(b.m)) }
    }
}
