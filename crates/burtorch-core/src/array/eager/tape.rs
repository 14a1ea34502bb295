//! A tape: evaluates operations, takes nodes backwards, rewinds.
//!
//! Promises: a refused operation changes nothing; a refused or interrupted sweep adds to no gradient; handles
//! of removed nodes are known as stale. Knows neither Python nor where parameters are stored.

use std::collections::{BinaryHeap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::super::dims::{Dims, bad};
use super::super::instr::{ArrayProgram, Data, Element, Type};
use super::super::plan::Floats;
use super::kernel::{kernel_of, lock};
use super::node::{Adjoint, GONE, Handle, Keep, Node, Operand};
use super::split::Kept;
use super::walk::{Left, Walk};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::memory::list_for;
use crate::scalar::DType;

static TAPES: AtomicUsize = AtomicUsize::new(0);

/// What an operation takes.
pub enum Given {
    /// An array of the tape.
    Array(Handle),
    /// Numbers.
    Data(Data),
}

/// What a sweep adds to numbers of parameters: those of `set` from `start`.
#[derive(Debug)]
pub struct OfParameters {
    /// Which parameters.
    pub set: u32,
    /// The first number.
    pub start: usize,
    /// One for each number.
    pub gradient: Data,
}

/// A sweep that went well, before it adds to gradients.
pub struct Swept {
    number: u64,
    leaves: Vec<Arc<Node>>,
    /// What parameters get.
    pub parameters: Vec<OfParameters>,
}

impl Swept {
    /// Calls `take` with each object that [`Tape::lifted`] was given and that was reached, and its gradient, in which -0.0 stands for
    /// unreached.
    pub fn for_each_lifted(&self, take: &mut dyn FnMut(&Keep, &Data)) {
        for node in &self.leaves {
            if let (Some(source), Some(Some(Adjoint { data, .. }))) = (&node.source, node.state().adjoints.first()) {
                take(source, data);
            }
        }
    }
}

/// Arrays of a graph. See the module's documentation.
pub struct Tape {
    number: usize,
    dtype: DType,
    next: AtomicU64,
    sweeps: AtomicU64,
    /// The sweep that gradients of results are of.
    last: AtomicU64,
    /// Orders of nodes that are gone, apart from each other and ascending.
    gone: Mutex<Vec<(u64, u64)>>,
    leaves: Mutex<Vec<Weak<Node>>>,
    /// Whether operations record nothing.
    no_grad: AtomicBool,
}

impl Tape {
    /// A tape of float32 or float64.
    pub fn new(dtype: DType) -> Self {
        Tape {
            number: TAPES.fetch_add(1, Ordering::Relaxed),
            dtype,
            next: AtomicU64::new(0),
            sweeps: AtomicU64::new(0),
            last: AtomicU64::new(0),
            gone: Mutex::default(),
            leaves: Mutex::default(),
            no_grad: AtomicBool::new(false),
        }
    }

    /// The float type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Starts or stops recording what gradients need.
    pub fn set_no_grad(&self, on: bool) {
        self.no_grad.store(on, Ordering::Relaxed);
    }

    /// Whether it records.
    pub fn records(&self) -> bool {
        !self.no_grad.load(Ordering::Relaxed)
    }

    fn order(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// How many nodes were made so far: a place to rewind to.
    pub fn position(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Makes arrays stale that came after a place.
    pub fn rewind(&self, to: u64) {
        let end = self.position();
        if end <= to {
            return;
        }
        let mut gone = lock(&self.gone);
        gone.retain(|&(start, _)| start < to);
        match gone.last_mut() {
            Some(last) if last.1 >= to => last.1 = end,
            _ => gone.push((to, end)),
        }
    }

    /// Refuses an array of another tape.
    pub fn has(&self, array: &Handle) -> bool {
        array.node.tape == self.number
    }

    /// Whether a rewind has removed an array.
    pub fn is_stale(&self, array: &Handle) -> bool {
        let gone = lock(&self.gone);
        let order = array.node.order;
        let at = gone.partition_point(|&(_, end)| end <= order);
        gone.get(at).is_some_and(|&(start, _)| start <= order)
    }

    /// A node of given numbers.
    fn given(&self, dims: Dims, data: Data) -> Result<Node> {
        let element = match data {
            Data::F64(_) | Data::F32(_) => Element::Float,
            Data::Int(_) => Element::Int,
            Data::Mask(_) => Element::Mask,
        };
        if data.len() != dims.size() {
            return Err(bad("numbers of an array", dims.size().to_string(), data.len().to_string()));
        }
        Ok(Node::new(self.number, self.order(), vec![Type { dims, element }], vec![data], false))
    }

    /// Numbers as an array, which has a gradient if it is asked for and they are floats.
    pub fn leaf(&self, dims: Dims, data: Data, moves: bool) -> Result<Handle> {
        let mut node = self.given(dims, data)?;
        let moves = moves && node.types[0].element == Element::Float;
        node.moves = moves;
        let node = Arc::new(node);
        if moves {
            let mut leaves = lock(&self.leaves);
            if leaves.len() == leaves.capacity() {
                leaves.retain(|leaf| leaf.strong_count() > 0);
            }
            crate::memory::reserve_in(&mut leaves, 1, "arrays")?;
            leaves.push(Arc::downgrade(&node));
        }
        Ok(Handle::new(&node, 0))
    }

    /// The floats of the caller's object, to which sweeps hand on their gradient.
    pub fn lifted(&self, dims: Dims, data: Data, source: Keep) -> Result<Handle> {
        let mut node = self.given(dims, data)?;
        node.moves = true;
        node.source = Some(source);
        Ok(Handle::new(&Arc::new(node), 0))
    }

    /// Evaluates a program of these operands and of parameters, which `keeps` keep alive. `records` where gradients may be asked
    /// for.
    pub fn append(
        &self,
        program: ArrayProgram,
        given: Vec<Given>,
        (parameters, keeps): (&[Floats<'_>], Vec<Keep>),
        records: bool,
    ) -> Result<Vec<Handle>> {
        let moving: Vec<_> = given.iter().map(|given| matches!(given, Given::Array(array) if array.moves())).collect();
        let records = records && (moving.contains(&true) || !keeps.is_empty());
        let kernel = kernel_of(program, records.then_some(&moving))?;
        let held: Vec<_> = given
            .iter()
            .map(|given| match given {
                Given::Array(array) => Some(array.data()),
                Given::Data(_) => None,
            })
            .collect();
        let arguments: Vec<&Data> = given
            .iter()
            .zip(&held)
            .map(|(given, held)| match (given, held) {
                (Given::Data(data), _) => data,
                (_, Some(held)) => held,
                (Given::Array(_), None) => &GONE,
            })
            .collect();
        let n = kernel.types.len();
        let n_saved = kernel.kept.iter().filter(|kept| matches!(kept, Kept::Saved(_))).count();
        let mut values = kernel
            .forward
            .run(&arguments, parameters, |run| (0..n + n_saved).map(|k| run.take(k)).collect::<Result<Vec<_>>>())?;
        interrupt::check()?;
        let saved = values.split_off(n);
        let mut node = Node::new(self.number, self.order(), kernel.types.clone(), values, kernel.has_reverse());
        if kernel.has_reverse() {
            for kept in &kernel.kept {
                let readers = match kept {
                    Kept::Operand(k) => match given.get(*k) {
                        Some(Given::Array(array)) => &array.node.readers,
                        _ => continue,
                    },
                    Kept::Result(_) => &node.readers,
                    Kept::Saved(_) => continue,
                };
                readers.fetch_add(1, Ordering::Relaxed);
            }
            node.operands = given
                .into_iter()
                .map(|given| match given {
                    Given::Array(array) => Operand::Node(array.node.clone(), array.result),
                    Given::Data(data) => Operand::Data(data),
                })
                .collect();
            node.keeps = keeps;
            node.saved = saved;
            node.kernel = Some(kernel);
        }
        let node = Arc::new(node);
        Ok((0..n).map(|k| Handle::new(&node, k)).collect())
    }

    /// What an array with these adjoints contributes to leaves and parameters. Adds to none yet.
    pub fn backward(&self, root: &Handle, seed: Data, parameters: &[Floats<'_>]) -> Result<Swept> {
        let number = self.sweeps.fetch_add(1, Ordering::Relaxed) + 1;
        // Until it ends well no result has a gradient.
        self.last.store(u64::MAX, Ordering::Relaxed);
        let mut walk = Walk { number, left: BinaryHeap::new(), of_parameters: HashMap::new(), order: Vec::new() };
        walk.reach(&root.node);
        root.node.state().adjoints[root.result] = Some(Adjoint { data: seed, may_be_unreached: false });
        let mut leaves = Vec::new();
        while let Some(Left(node)) = walk.left.pop() {
            if interrupt::is_over() {
                return Err(Error::Interrupted);
            }
            match &node.kernel {
                Some(kernel) => walk.pull(&node, kernel, parameters)?,
                None => leaves.push(node),
            }
        }
        let Walk { mut of_parameters, order, .. } = walk;
        let found = order.into_iter().filter_map(|key| Some((key, of_parameters.remove(&key)??)));
        let parameters =
            found.map(|((set, start, _), adjoint)| OfParameters { set, start, gradient: adjoint.data }).collect();
        Ok(Swept { number, leaves, parameters })
    }

    /// Adds what a sweep has found to the gradients of leaves.
    pub fn add(&self, swept: &Swept) -> Result<()> {
        let mut sums = list_for(swept.leaves.len(), "gradients")?;
        for leaf in swept.leaves.iter().filter(|leaf| leaf.is_leaf()) {
            let state = leaf.state();
            let Some(Some(Adjoint { data, .. })) = state.adjoints.first() else { continue };
            sums.push((leaf, sum(state.grad.as_ref(), data)?));
        }
        for (leaf, sum) in sums {
            leaf.state().grad = Some(sum);
        }
        self.last.store(swept.number, Ordering::Relaxed);
        Ok(())
    }

    /// The gradient of an array: of a leaf what sweeps have added up, of a result that of the last sweep, 0 if it was not reached.
    pub fn grad(&self, array: &Handle) -> Result<Data> {
        let state = array.node.state();
        let found = match array.node.is_leaf() {
            true => state.grad.as_ref(),
            false if state.sweep == self.last.load(Ordering::Relaxed) => {
                state.adjoints.get(array.result).and_then(Option::as_ref).map(|adjoint| &adjoint.data)
            }
            false => None,
        };
        let n = array.type_of().dims.size();
        match found {
            Some(data) => sum(None, data),
            None if self.dtype == DType::Float32 => Ok(Data::F32(crate::memory::zeros(n, "a gradient")?)),
            None => Ok(Data::F64(crate::memory::zeros(n, "a gradient")?)),
        }
    }

    /// Replaces the gradient of a leaf, with 0 for nothing.
    pub fn set_grad(&self, leaf: &Handle, grad: Option<Data>) {
        let before = std::mem::replace(&mut leaf.node.state().grad, grad);
        drop(before);
    }

    /// Replaces the numbers of an array; those computed from it before stay.
    pub fn set_data(&self, array: &Handle, data: Data) {
        let data = Arc::new(data);
        let before = array.node.state().values.get_mut(array.result).map(|value| std::mem::replace(value, data));
        drop(before);
    }

    /// Sets all gradients to 0.
    pub fn zero_grad(&self) {
        self.last.store(u64::MAX, Ordering::Relaxed);
        for leaf in lock(&self.leaves).iter().filter_map(Weak::upgrade) {
            let before = leaf.state().grad.take();
            drop(before);
        }
    }
}

/// The sum, or `0 + y`, in which nothing is -0.0 that was not reached.
fn sum(x: Option<&Data>, y: &Data) -> Result<Data> {
    fn added<T: Copy + Default + std::ops::Add<Output = T>>(x: Option<&[T]>, y: &[T]) -> Result<Vec<T>> {
        let mut sum = list_for(y.len(), "a gradient")?;
        match x {
            Some(x) => sum.extend(x.iter().zip(y).map(|(&x, &y)| x + y)),
            None => sum.extend(y.iter().map(|&y| T::default() + y)),
        }
        Ok(sum)
    }
    match (x, y) {
        (None, Data::F64(y)) => Ok(Data::F64(added(None, y)?)),
        (None, Data::F32(y)) => Ok(Data::F32(added(None, y)?)),
        (Some(Data::F64(x)), Data::F64(y)) => Ok(Data::F64(added(Some(x), y)?)),
        (Some(Data::F32(x)), Data::F32(y)) => Ok(Data::F32(added(Some(x), y)?)),
        _ => Err(bad("gradient", "floats of one type".into(), "others".into())),
    }
}
