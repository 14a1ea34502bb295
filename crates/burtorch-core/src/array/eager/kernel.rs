//! Compiled programs of operations in both directions, and their cache.
//!
//! Promises: a known program costs one table lookup; a thread caches a bounded number of them and of their bytes. A
//! running plan is not in the cache, so code that runs meanwhile, such as signal handlers, makes its own. Does not know
//! nodes.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::super::instr::{ArrayProgram, Data, Type};
use super::super::plan::{Floats, Plan, Run};
use super::super::reverse::Variable;
use super::super::words::Words;
use super::split::{Begun, Kept, Reverse, Split};
use crate::error::Result;
use crate::scalar::DType;

/// A thread keeps at most so many kernels, and so many bytes of their plans, about.
const MOST: usize = 1 << 10;
const MOST_BYTES: usize = 1 << 26;

/// A program and the plans that are ready for it.
pub(super) struct Ready {
    program: ArrayProgram,
    plans: Mutex<Vec<Box<dyn Run>>>,
}

/// A list or a number under a lock that no code of others holds.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ready {
    fn new(program: ArrayProgram) -> Self {
        Ready { program, plans: Mutex::new(Vec::new()) }
    }

    /// Runs it; what `look` makes of the results.
    pub(super) fn run<T>(
        &self,
        arguments: &[&Data],
        parameters: &[Floats<'_>],
        look: impl FnOnce(&mut dyn Run) -> Result<T>,
    ) -> Result<T> {
        let spare = lock(&self.plans).pop();
        let mut plan = match spare {
            Some(plan) => plan,
            None => self.planned()?,
        };
        let found = plan.run(arguments, parameters).and_then(|()| look(&mut *plan));
        if plan.bytes() < MOST_BYTES / 4 {
            lock(&self.plans).push(plan);
        }
        found
    }

    fn planned(&self) -> Result<Box<dyn Run>> {
        Ok(match self.program.dtype() {
            DType::Float32 => Box::new(Plan::<f32>::new(&self.program)?),
            _ => Box::new(Plan::<f64>::new(&self.program)?),
        })
    }

    fn bytes(&self) -> usize {
        lock(&self.plans).iter().map(|plan| plan.bytes()).sum()
    }
}

/// The reverse pass for adjoints that are there.
pub(super) struct Back {
    begun: Begun,
    pub(super) ready: Ready,
    pub(super) reads: Vec<usize>,
    pub(super) gives: Vec<Option<bool>>,
}

/// What an operation does.
pub(super) struct Kernel {
    program: ArrayProgram,
    /// Which operands move; nothing where none is asked for a gradient.
    moving: Option<Vec<bool>>,
    pub(super) types: Vec<Type>,
    pub(super) forward: Ready,
    split: Option<Split>,
    pub(super) kept: Vec<Kept>,
    backs: Mutex<Vec<Arc<Back>>>,
}

impl Kernel {
    fn new(program: ArrayProgram, moving: Option<&[bool]>) -> Result<Kernel> {
        let split = moving.map(|moving| Split::new(&program, moving)).transpose()?.flatten();
        let forward = split.as_ref().map_or_else(|| program.clone(), Split::forward);
        Ok(Kernel {
            types: program.output_types(),
            program,
            moving: moving.map(<[bool]>::to_vec),
            forward: Ready::new(forward),
            kept: split.as_ref().map_or_else(Vec::new, Split::kept),
            split,
            backs: Mutex::new(Vec::new()),
        })
    }

    /// Whether a result moves with operands or parameters.
    pub(super) fn has_reverse(&self) -> bool {
        self.split.is_some()
    }

    /// By what its reverse pass is.
    pub(super) fn by(&self) -> &[Variable] {
        self.split.as_ref().map_or(&[], |split| &split.by)
    }

    /// The place of the numbers of its parameter `k`.
    pub(super) fn parameter(&self, k: usize) -> Option<(u32, usize, Type)> {
        let program = &self.forward.program;
        let v = *program.params().get(k)?;
        let at = program.instrs().partition_point(|instr| instr.result < v);
        match program.instrs().get(at)?.op {
            super::super::instr::ArrayOp::Param { set, start, dims } => Some((set, start, Type::float(dims))),
            _ => None,
        }
    }

    /// The reverse pass that begins with these adjoints.
    pub(super) fn back(&self, begun: Begun) -> Result<Option<Arc<Back>>> {
        if let Some(known) = lock(&self.backs).iter().find(|back| back.begun == begun) {
            return Ok(Some(known.clone()));
        }
        let Some(split) = &self.split else { return Ok(None) };
        let Reverse { program, reads, gives } = split.reverse(&begun)?;
        let back = Arc::new(Back { begun, ready: Ready::new(program), reads, gives });
        lock(&self.backs).push(back.clone());
        Ok(Some(back))
    }

    fn bytes(&self) -> usize {
        self.forward.bytes() + lock(&self.backs).iter().map(|back| back.ready.bytes()).sum::<usize>()
    }
}

#[derive(Default)]
struct Kernels {
    all: HashMap<u64, Vec<Arc<Kernel>>, BuildHasherDefault<Words>>,
    n: usize,
}

thread_local! {
    static KERNELS: RefCell<Kernels> = RefCell::default();
}

fn hash_of(program: &ArrayProgram, moving: Option<&[bool]>) -> u64 {
    let mut hasher = Words(program.dtype() as u64);
    for instr in program.instrs() {
        instr.op.hash(&mut hasher);
        instr.operands.hash(&mut hasher);
    }
    program.outputs().hash(&mut hasher);
    moving.hash(&mut hasher);
    hasher.finish()
}

fn is_same(a: &ArrayProgram, b: &ArrayProgram) -> bool {
    a.dtype() == b.dtype()
        && a.outputs() == b.outputs()
        && a.instrs().len() == b.instrs().len()
        && a.instrs().iter().zip(b.instrs()).all(|(a, b)| a.op == b.op && a.operands == b.operands)
}

/// The kernel of a program.
pub(super) fn kernel_of(program: ArrayProgram, moving: Option<&[bool]>) -> Result<Arc<Kernel>> {
    let hash = hash_of(&program, moving);
    let known = KERNELS.with_borrow(|kernels| {
        let mut alike = kernels.all.get(&hash)?.iter();
        alike.find(|k| k.moving.as_deref() == moving && is_same(&k.program, &program)).cloned()
    });
    if let Some(known) = known {
        return Ok(known);
    }
    let kernel = Arc::new(Kernel::new(program, moving)?);
    let dropped = KERNELS.with_borrow_mut(|kernels| {
        let bytes = || kernels.all.values().flatten().map(|kernel| kernel.bytes()).sum::<usize>();
        let is_full = kernels.n >= MOST || kernels.n.is_power_of_two() && bytes() > MOST_BYTES;
        let dropped = if is_full { std::mem::take(kernels) } else { Kernels::default() };
        kernels.all.entry(hash).or_default().push(kernel.clone());
        kernels.n += 1;
        dropped
    });
    drop(dropped);
    Ok(kernel)
}
