//! Steps that call primitives.
//!
//! The value step evaluates the primitive at each lane's numbers and stores its partials; the reverse pass and tangents
//! multiply by the partials. If a primitive fails, the value is NaN and the lane is marked.
//!
//! Promises: only lanes in use are evaluated. Knows slots, not programs.
#![allow(unsafe_code)]

use super::instr::{Body, Calls, Instr, Lists, SKIP, contribute};
use super::primitive::Failed;
use crate::scalar::{Float, Scalar};

/// The value, and in mode 1 the partials. The entry before the operands identifies the primitive.
///
/// # Safety
/// As for every step: slots of the instruction and of its list lie in `v`; nothing else accesses the memory.
unsafe fn value<S: Scalar, const W: usize>(v: *mut S, _d: *mut S, i: &Instr<S>, lists: *mut Lists<S>) {
    debug_assert!(i.a > 0);
    // SAFETY: nothing else accesses the lists.
    let Lists { operands, calls, .. } = unsafe { &mut *lists };
    let (a, n) = (i.a as usize, i.b as usize);
    let Calls { primitives, partials, numbers, failed, n_lanes } = calls;
    let called = &primitives[operands[a - 1] as usize].0;
    let (x, rest) = numbers.split_at_mut(n);
    for (at, failed) in failed.iter_mut().enumerate().take((W * S::LANES).min(*n_lanes)) {
        let (k, lane) = (at / S::LANES, at % S::LANES);
        for (x, operand) in x.iter_mut().zip(&operands[a..]) {
            // SAFETY: by the contract of this function.
            *x = unsafe { (*v.add((operand >> 2) as usize * W + k)).lane(lane).to_f64() };
        }
        let mut evaluate = || -> Result<f64, Failed> {
            let y = called.value(x)?;
            if i.modes & 1 != 0 {
                called.partials(x, y, &mut rest[..n])?;
                for (j, &p) in rest[..n].iter().enumerate() {
                    let partial = &mut partials[(a + j) * W + k];
                    *partial = partial.with_lane(lane, S::Elem::from_f64(p));
                }
            }
            Ok(y)
        };
        let y = evaluate().unwrap_or_else(|Failed| {
            *failed = true;
            f64::NAN
        });
        // SAFETY: by the contract of this function.
        unsafe {
            let slot = v.add(i.c as usize * W + k);
            *slot = (*slot).with_lane(lane, S::Elem::from_f64(y));
        }
    }
}

/// The contributions: the adjoint times partials. The entry before the operands refers to the list of the value step.
///
/// # Safety
/// As for `value`, with adjoints in `d`.
unsafe fn pull<S: Scalar, const W: usize>(_v: *mut S, d: *mut S, i: &Instr<S>, lists: *mut Lists<S>) {
    debug_assert!(i.a > 0);
    // SAFETY: as in `value`.
    let Lists { operands, calls, .. } = unsafe { &mut *lists };
    let a = i.a as usize;
    let listed = operands[a - 1] as usize;
    for (j, operand) in operands[a..a + i.b as usize].iter().enumerate() {
        for k in 0..W {
            // SAFETY: by the contract of this function.
            unsafe {
                let g = *d.add(i.c as usize * W + k);
                let to = d.add((operand >> 2) as usize * W + k);
                contribute((operand & 3) as u8, to, g * calls.partials[(listed + j) * W + k]);
            }
        }
    }
}

/// The tangent: computed by the primitive, or the sum of partials times tangents.
///
/// # Safety
/// As for `value`, with tangents in `d`.
unsafe fn push<S: Scalar, const W: usize>(v: *mut S, d: *mut S, i: &Instr<S>, lists: *mut Lists<S>) {
    debug_assert!(i.a > 0);
    // SAFETY: as in `value`.
    let Lists { operands, calls, .. } = unsafe { &mut *lists };
    let (a, n) = (i.a as usize, i.b as usize);
    let listed = operands[a - 1] as usize;
    let called = &calls.primitives[operands[listed - 1] as usize].0;
    let (x, rest) = calls.numbers.split_at_mut(n);
    for k in 0..W {
        // SAFETY: by the contract of this function.
        let (values, tangents) = unsafe { (v.add(k), d.add(k)) };
        let mut total = S::lit(0.0);
        for (j, operand) in operands[a..a + n].iter().enumerate().filter(|(_, operand)| **operand as u8 & 3 != SKIP) {
            // SAFETY: as above.
            let tangent = unsafe { *tangents.add((operand >> 2) as usize * W) };
            total = total + calls.partials[(listed + j) * W + k] * tangent;
        }
        for lane in 0..S::LANES {
            for (j, operand) in operands[a..a + n].iter().enumerate() {
                let at = (operand >> 2) as usize * W;
                // SAFETY: as above.
                unsafe {
                    x[j] = (*values.add(at)).lane(lane).to_f64();
                    let moves = *operand as u8 & 3 != SKIP;
                    rest[j] = if moves { (*tangents.add(at)).lane(lane).to_f64() } else { 0.0 };
                }
            }
            // SAFETY: as above.
            let y = unsafe { (*values.add(i.c as usize * W)).lane(lane).to_f64() };
            match called.tangent(x, y, &rest[..n]) {
                None => break,
                Some(tangent) => total = total.with_lane(lane, S::Elem::from_f64(tangent.unwrap_or(f64::NAN))),
            }
        }
        // SAFETY: as above.
        unsafe { *tangents.add(i.c as usize * W) = total }
    }
}

macro_rules! bodies {
    ($($(#[$doc:meta])* $name:ident = $f:ident;)*) => { $(
        $(#[$doc])*
        pub(super) struct $name<const W: usize>;
        impl<S: Scalar, const W: usize> Body<S> for $name<W> {
            #[inline(always)]
            unsafe fn run(v: *mut S, d: *mut S, i: &Instr<S>, lists: *mut Lists<S>) {
                // SAFETY: the contracts are the same.
                unsafe { $f::<S, W>(v, d, i, lists) }
            }
        }
    )* };
}
bodies! {
    /// See [`value`].
    CallValue = value;
    /// See [`pull`].
    PullCall = pull;
    /// See [`push`].
    PushCall = push;
}
