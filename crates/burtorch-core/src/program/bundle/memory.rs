//! Bundles: instructions for as many units as a vector has lanes, and the memory that they use.
//!
//! In words: slots of operands are gathered into lanes; results and contributions are stored contiguously. Lanes after
//! the last unit of a bundle compute with existing slots, and store their results where no code reads, or where a later
//! bundle stores its own.
//!
//! Promises: only slots are accessed. Does not know ops.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use crate::ops::{Op, Properties};
use crate::scalar::{Float, Inlined, Scalar};
use crate::simd::gather::{Collect, Gather};
use crate::simd::{F64x4, F64x8, Level};

/// A float type with vectors for bundles.
pub(in crate::program) trait InLanes: Float {
    type Lanes: Lanes<Self>;
    /// A half vector: smaller bundles, frequent in a deep program, take fewer cycles in it.
    type Half: Lanes<Self>;
}

impl InLanes for f64 {
    type Lanes = Inlined<F64x8>;
    type Half = Inlined<F64x4>;
}

/// A vector type for bundles.
pub(in crate::program) trait Lanes<S>: Scalar<Elem = S> + Collect<Elem = S> {}
impl<S, L: Scalar<Elem = S> + Collect<Elem = S>> Lanes<S> for L {}

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
    unsafe fn collect(from: *const V::Elem, places: *const u32) -> Self {
        debug_assert!(!from.is_null() && !places.is_null());
        // SAFETY: the caller keeps the same contract.
        unsafe { Inlined(V::collect(from, places)) }
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

/// The memory of a bundle's code.
pub(super) struct Memory<S, L> {
    /// Slots of values.
    pub(super) v: *mut S,
    /// Gradients and contributions, or tangents in the slots of values.
    pub(super) d: *mut S,
    /// Lists of slots.
    pub(super) slots: *const u32,
    /// Room for twice the operands of any node.
    pub(super) scratch: *mut S,
    lanes: PhantomData<L>,
}

impl<S, L> Clone for Memory<S, L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S, L> Copy for Memory<S, L> {}

/// The code of a bundle and of its successors up to a stop: values, adjoints or tangents, slots, scratch. Arguments in
/// registers and a tail call to the next, as in `program/steps`.
pub(in crate::program) type Run<S> =
    unsafe extern "rust-preserve-none" fn(*const Bundle<S>, *mut S, *mut S, *const u32, *mut S);

/// The end of bundles.
unsafe extern "rust-preserve-none" fn stop<S>(_: *const Bundle<S>, _: *mut S, _: *mut S, _: *const u32, _: *mut S) {}

/// The contributions of a bundle do not share their first one.
pub(super) const NO_HEAD: u32 = u32::MAX;

/// One instruction for as many units as a vector has lanes.
#[derive(Debug)]
pub(in crate::program) struct Bundle<S> {
    pub(super) run: Run<S>,
    /// The list of operands: the first of each unit, the second of each, ...
    pub(super) operands: u32,
    /// For scaled units: the slot of their common constant, or the list of their constants.
    pub(super) constants: u32,
    /// The list of contributions to the adjoints: the first of each unit, the second of each, ...
    pub(super) adjoints: u32,
    /// The slot of the first contribution shared by all units, which is not listed; or [`NO_HEAD`].
    pub(super) head: u32,
    /// The first slot of the values.
    pub(super) values: u32,
    /// The first slot of the results of the second pass.
    pub(super) to: u32,
    /// Lanes in use: one per unit, or one per operand of a softmax.
    pub(super) m: u16,
    /// Operands per unit.
    pub(super) n: u16,
    /// Contributions listed per adjoint.
    pub(super) k: u16,
    /// A bit mask of the operands that depend on inputs.
    pub(super) moving: u16,
    pub(super) op: Op,
    pub(super) scaled: bool,
    /// Whether all scaled units have the same constant.
    pub(super) one_constant: bool,
}

impl<S> Clone for Bundle<S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Bundle<S> {}

impl<S> Bundle<S> {
    /// Runs the bundle and its successors up to a stop.
    ///
    /// # Safety
    /// The memory is that of the bundle's plan.
    #[inline(always)]
    pub(in crate::program) unsafe fn run(this: *const Self, v: *mut S, d: *mut S, slots: *const u32, scratch: *mut S) {
        debug_assert!(!this.is_null() && !v.is_null() && !slots.is_null());
        // SAFETY: by the contract of this function.
        unsafe { ((*this).run)(this, v, d, slots, scratch) }
    }

    /// The end of bundles.
    pub(super) fn stop() -> Self {
        Bundle {
            run: stop::<S>,
            operands: 0,
            constants: 0,
            adjoints: 0,
            head: NO_HEAD,
            values: 0,
            to: 0,
            m: 0,
            n: 0,
            k: 0,
            moving: 0,
            op: Op::Leaf,
            scaled: false,
            one_constant: false,
        }
    }

    /// Whether the bundle computes something.
    pub(in crate::program) fn computes(&self) -> bool {
        self.op != Op::Leaf
    }
}

/// The operation of a bundle; compiled for a level by [`compiled`].
pub(super) trait Body<S: InLanes, L: Lanes<S>> {
    /// The properties of its op's row; empty without a row.
    const IS: Properties = Properties::NONE;
    /// # Safety
    /// Every slot that the bundle lists, and a whole vector from every slot that it stores to, lie in `v` and `d`; each
    /// list is followed by at least a vector of slots; nothing else accesses the memory.
    unsafe fn run(b: &Bundle<S>, at: Memory<S, L>);
}

macro_rules! for_levels {
    ($($name:ident $features:literal)*) => { $(
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = $features)]
        unsafe extern "rust-preserve-none" fn $name<B: Body<S, L>, S: InLanes, L: Lanes<S>>(
            b: *const Bundle<S>,
            v: *mut S,
            d: *mut S,
            slots: *const u32,
            scratch: *mut S,
        ) {
            debug_assert!(!b.is_null());
            // SAFETY: the caller keeps the contract of the body, for this bundle and its successors up to a stop.
            unsafe {
                B::run(&*b, Memory { v, d, slots, scratch, lanes: PhantomData });
                let next = b.add(1);
                become ((*next).run)(next, v, d, slots, scratch)
            }
        }
    )* };
}
for_levels! { avx2 "avx2,fma" avx512 "avx512f,avx512dq,avx512bw,avx512vl,avx2,fma" }

/// Compiles a body for a level with wide vectors. Rare ops have one copy, for half a vector: their groups are never
/// larger.
pub(super) fn compiled<B: Body<S, L>, S: InLanes, L: Lanes<S>>(level: Level) -> Option<Run<S>> {
    if B::IS.rare && L::LANES > S::Half::LANES {
        return None;
    }
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 if B::IS.rare => Some(avx2::<B, S, L>),
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => Some(avx512::<B, S, L>),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => Some(avx2::<B, S, L>),
        _ => None,
    }
}

impl<S: InLanes, L: Lanes<S>> Memory<S, L> {
    /// The distance between the vectors that a bundle stores.
    pub(super) const STRIDE: u32 = L::LANES as u32;

    /// The numbers in the slots listed from `list`, which may have been stored just before.
    ///
    /// # Safety
    /// As for a body; the same for every method here.
    #[inline(always)]
    pub(super) unsafe fn collect(self, from: *const S, list: u32) -> L {
        // SAFETY: by the contract of this method.
        unsafe { L::collect(from, self.slots.add(list as usize)) }
    }

    /// The same for numbers stored some time ago.
    #[inline(always)]
    pub(super) unsafe fn gather(self, from: *const S, list: u32) -> L {
        // SAFETY: as above. Four loads are faster than a gather of four.
        unsafe {
            if L::LANES <= 4 {
                self.collect(from, list)
            } else {
                <L as Gather>::gather(from, self.slots.add(list as usize))
            }
        }
    }

    #[inline(always)]
    pub(super) unsafe fn load(self, from: *const S, slot: u32) -> L {
        // SAFETY: as above; the read may be unaligned.
        unsafe { from.add(slot as usize).cast::<L>().read_unaligned() }
    }

    #[inline(always)]
    pub(super) unsafe fn store(self, to: *mut S, slot: u32, x: L) {
        // SAFETY: as above.
        unsafe { to.add(slot as usize).cast::<L>().write_unaligned(x) }
    }

    /// The adjoints of a bundle's units, whose contributions are listed from `list`.
    #[inline(always)]
    pub(super) unsafe fn adjoint(self, b: &Bundle<S>, list: u32) -> L {
        // SAFETY: as above.
        unsafe {
            let (m, mut list, mut left) = (u32::from(b.m), list, b.k);
            let mut g;
            if b.head != NO_HEAD {
                g = L::splat(*self.d.add(b.head as usize));
            } else if left == 1 {
                return self.collect(self.d, list);
            } else {
                g = self.gather(self.d, list);
                (list, left) = (list + m, left - 1);
            }
            for _ in 1..left {
                g = g + self.gather(self.d, list);
                list += m;
            }
            // The last contribution comes last.
            if left > 0 { g + self.collect(self.d, list) } else { g }
        }
    }

    /// The constants of scaled units.
    #[inline(always)]
    pub(super) unsafe fn constants(self, b: &Bundle<S>) -> L {
        // SAFETY: as above.
        unsafe {
            if b.one_constant {
                return L::splat(*self.v.add(b.constants as usize));
            }
            self.gather(self.v, b.constants)
        }
    }

    /// Stores values, and their multiples if the units are scaled.
    #[inline(always)]
    pub(super) unsafe fn store_values(self, b: &Bundle<S>, y: L) {
        // SAFETY: as above.
        unsafe {
            self.store(self.v, b.values, y);
            if b.scaled {
                self.store(self.v, b.values + Self::STRIDE, y * self.constants(b));
            }
        }
    }

    /// The adjoints of units, multiplied by their constants if they are scaled.
    #[inline(always)]
    pub(super) unsafe fn inner_adjoint(self, b: &Bundle<S>) -> L {
        // SAFETY: as above.
        unsafe {
            let g = self.adjoint(b, b.adjoints);
            if b.scaled { g * self.constants(b) } else { g }
        }
    }

    /// Stores tangents, and their multiples if the units are scaled.
    #[inline(always)]
    pub(super) unsafe fn store_tangents(self, b: &Bundle<S>, t: L) {
        // SAFETY: as above.
        unsafe {
            self.store(self.d, b.values, t);
            if b.scaled {
                self.store(self.d, b.values + Self::STRIDE, t * self.constants(b));
            }
        }
    }

    /// Operand `j` of each unit.
    #[inline(always)]
    pub(super) unsafe fn operand(self, from: *const S, b: &Bundle<S>, j: u32) -> L {
        // SAFETY: as above.
        unsafe { self.collect(from, b.operands + j * u32::from(b.m)) }
    }

    /// Operand `j` of each unit, read before and so not stored just now.
    #[inline(always)]
    pub(super) unsafe fn old_operand(self, b: &Bundle<S>, j: u32) -> L {
        // SAFETY: as above.
        unsafe { self.gather(self.v, b.operands + j * u32::from(b.m)) }
    }
}

/// The place of stored partials: after the values and their multiples.
#[inline(always)]
pub(super) fn partials<S: InLanes, L: Lanes<S>>(b: &Bundle<S>) -> u32 {
    b.values + (1 + u32::from(b.scaled)) * Memory::<S, L>::STRIDE
}
