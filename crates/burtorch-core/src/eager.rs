//! Eager values for Rust: copyable handles with operators on one graph.
//!
//! Promises: a handle is checked at every use (a stale or foreign one panics with the error's message; the methods of
//! [`Graph`] return an error instead); handles stay usable after a sweep. One thread at a time: [`Eager`] and [`Value`] are
//! neither `Send` nor `Sync`, [`Graph`] is both.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Add, AddAssign, Div, DivAssign, Mul, MulAssign, Neg, Sub, SubAssign};

use crate::error::{Error, Result};
use crate::graph::{Graph, Mark, NodeId, Operands, Range, View};
use crate::kernels::BlockMath;
use crate::ops::{self, BinaryOp, Op, UnaryOp};
use crate::params::{Parameters, Slice};
use crate::scalar::Scalar;

/// A graph, borrowed for building with operators, and the parameters of its ops.
pub struct Eager<'g, S: Scalar> {
    /// The graph; borrowed exclusively for 'g, and accessed only inside calls that return no reference into it.
    graph: &'g UnsafeCell<Graph<'g, S>>,
    params: Option<&'g UnsafeCell<Parameters<'g, S::Elem>>>,
}

/// One node of a graph that is being built: a copyable handle.
pub struct Value<'t, S: Scalar> {
    eager: &'t Eager<'t, S>,
    node: NodeId,
    epoch: u64,
}

impl<S: Scalar> Clone for Value<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: Scalar> Copy for Value<'_, S> {}

impl<'m, S: Scalar> Graph<'m, S> {
    /// Borrows the graph for operators.
    #[inline(always)]
    pub fn eager<'g>(&'g mut self) -> Eager<'g, S>
    where
        'm: 'g,
    {
        // SAFETY: an UnsafeCell has the layout of what it holds, and the exclusive borrow lasts for 'g. Shortening 'm
        // to 'g behind the cell is sound because an Eager never swaps the graph or lets a reference to it out.
        let graph = unsafe { &*std::ptr::from_mut(self).cast::<UnsafeCell<Graph<'g, S>>>() };
        Eager { graph, params: None }
    }

    /// Borrows the graph for operators that may also read `params` and add to their gradients.
    #[inline(always)]
    pub fn eager_with<'g, 'p: 'g>(&'g mut self, params: &'g mut Parameters<'p, S::Elem>) -> Eager<'g, S>
    where
        'm: 'g,
    {
        // SAFETY: as in `eager`.
        let params = unsafe { &*std::ptr::from_mut(params).cast::<UnsafeCell<Parameters<'g, S::Elem>>>() };
        Eager { params: Some(params), ..self.eager() }
    }
}

impl<'g, S: Scalar> Eager<'g, S> {
    /// Runs `f` on the graph.
    #[inline(always)]
    fn with<T>(&self, f: impl FnOnce(&mut Graph<'g, S>) -> T) -> T {
        // SAFETY: one thread at a time, as the cell makes this type !Sync; `f` is ours, calls no user code and returns
        // nothing that borrows the graph, so no second reference exists meanwhile.
        f(unsafe { &mut *self.graph.get() })
    }

    #[inline(always)]
    fn with_params<T>(&self, f: impl FnOnce(&mut Graph<'g, S>, &[&Parameters<'g, S::Elem>]) -> T) -> T {
        self.with(|graph| match self.params {
            // SAFETY: as in `with`; the parameters are only read here.
            Some(params) => f(graph, &[unsafe { &*params.get() }]),
            None => f(graph, &[]),
        })
    }

    #[inline(always)]
    fn value<'t>(&'t self, node: Result<NodeId>) -> Value<'t, S> {
        // SAFETY: only the lifetime behind the cells is shortened, as in `Graph::eager`, and for the same reason.
        let eager = unsafe { &*std::ptr::from_ref(self).cast::<Eager<'t, S>>() };
        match node {
            Ok(node) => Value { eager, node, epoch: self.with(|graph| graph.epoch()) },
            Err(error) => fail(error),
        }
    }

    /// A leaf.
    #[inline(always)]
    pub fn leaf(&self, value: S) -> Value<'_, S> {
        self.value(self.with(|graph| graph.leaf(value)))
    }

    /// A number that receives no gradient.
    #[inline(always)]
    pub fn constant(&self, value: S) -> Value<'_, S> {
        self.value(self.with(|graph| graph.constant(value)))
    }

    /// Number `index` of a tensor of the borrowed parameters.
    pub fn parameter(&self, slice: Slice, index: usize) -> Value<'_, S> {
        self.value(self.with_params(|graph, params| {
            let params = params.first().ok_or(Error::MissingParameters)?;
            graph.parameter(params, slice, index)
        }))
    }

    /// Contiguous leaves.
    pub fn vector(&self, values: &[S]) -> Range {
        self.with(|graph| graph.vector(values)).unwrap_or_else(|error| fail(error))
    }

    /// The value with this id, if the graph has the node.
    pub fn at(&self, node: NodeId) -> Value<'_, S> {
        self.value(self.with(|graph| graph.value(node).map(|_| node)))
    }

    /// Appends a reduction.
    pub fn reduce(&self, op: Op, operands: Operands<'_>) -> Value<'_, S> {
        self.value(self.with_params(|graph, params| graph.reduce(op, operands, params)))
    }

    /// Appends the mean and the mean of squares of a run, as one block.
    pub fn reduce_mean_and_mean_squares(&self, x: Range) -> (Value<'_, S>, Value<'_, S>) {
        match self.with(|graph| graph.reduce_mean_and_mean_squares(x)) {
            Ok((mean, squares)) => (self.value(Ok(mean)), self.value(Ok(squares))),
            Err(error) => fail(error),
        }
    }

    /// Appends an inner product, with an optional bias.
    pub fn inner_product(&self, x: Operands<'_>, w: Operands<'_>, bias: Option<Value<'_, S>>) -> Value<'_, S> {
        let bias = bias.map(|b| self.own(&b).unwrap_or_else(|error| fail(error)));
        self.value(self.with_params(|graph, params| graph.inner_product(x, w, bias, params)))
    }

    /// A mark at the present length.
    #[inline(always)]
    pub fn mark(&self) -> Mark {
        self.with(|graph| graph.mark())
    }

    /// Removes the nodes appended after the mark.
    #[inline(always)]
    pub fn rewind(&self, mark: Mark) -> Result<()> {
        self.with(|graph| graph.rewind(mark))
    }

    /// Sets all gradients of leaves to zero.
    pub fn zero_grad(&self) {
        self.with(|graph| graph.zero_grad());
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.with(|graph| graph.len())
    }

    /// Whether the graph is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The node of a handle, if it belongs to this graph and still exists. The returned node exists: only this module makes
    /// handles, and only of existing nodes.
    #[inline(always)]
    fn own(&self, value: &Value<'_, S>) -> Result<NodeId> {
        if !std::ptr::addr_eq(self.graph, value.eager.graph) {
            return Err(Error::GraphMismatch { what: "a value" });
        }
        self.with(|graph| graph.check(value.node, value.epoch)).map(|_| value.node)
    }
}

impl<'g, S: BlockMath> Eager<'g, S> {
    /// Appends `W x + b` as one block.
    pub fn affine(&self, x: &[View], w: Slice, bias: Option<Slice>) -> Range {
        self.with_params(|graph, params| graph.affine(params, x, w, bias)).unwrap_or_else(|error| fail(error))
    }
}

#[cold]
#[inline(never)]
fn fail(error: Error) -> ! {
    panic!("{error}")
}

impl<'t, S: Scalar> Value<'t, S> {
    /// The node's plain id.
    #[inline(always)]
    pub fn id(self) -> NodeId {
        self.node
    }

    /// The value.
    #[inline(always)]
    pub fn data(self) -> S {
        self.read(Graph::value)
    }

    /// The gradient: accumulated for a leaf, of the last sweep for any other node.
    #[inline(always)]
    pub fn grad(self) -> S {
        self.read(Graph::grad)
    }

    #[inline(always)]
    fn read(self, f: impl FnOnce(&Graph<'t, S>, NodeId) -> Result<S>) -> S {
        let read = self.eager.own(&self).and_then(|node| self.eager.with(|graph| f(graph, node)));
        read.unwrap_or_else(|error| fail(error))
    }

    /// Overwrites the value of this node only.
    pub fn set_data(self, value: S) {
        let written = self.eager.own(&self).and_then(|node| self.eager.with(|graph| graph.set_value(node, value)));
        written.unwrap_or_else(|error| fail(error));
    }

    /// A sweep from this node, with seed 1.
    #[inline(always)]
    pub fn backward(self) {
        self.backward_with(S::lit(1.0));
    }

    /// A sweep from this node.
    #[inline(always)]
    pub fn backward_with(self, seed: S) {
        let swept = self.eager.own(&self).and_then(|node| {
            self.eager.with(|graph| match self.eager.params {
                // SAFETY: as in `Eager::with`; the graph holds no reference into the parameters.
                Some(params) => graph.backward_with(node, seed, &mut [unsafe { &mut *params.get() }.gradients()]),
                None => graph.backward_with(node, seed, &mut []),
            })
        });
        swept.unwrap_or_else(|error| fail(error));
    }

    #[inline(always)]
    fn unary<O: UnaryOp>(self) -> Self {
        let node = self.eager.own(&self);
        // SAFETY: `own` has found the node there.
        self.eager.value(node.and_then(|x| self.eager.with(|graph| unsafe { graph.unary_unchecked::<O>(x) })))
    }

    #[inline(always)]
    fn binary<O: BinaryOp>(self, other: Self) -> Self {
        let nodes = self.eager.own(&self).and_then(|x| self.eager.own(&other).map(|y| (x, y)));
        // SAFETY: `own` has found both nodes there.
        let append = |(x, y)| self.eager.with(|graph| unsafe { graph.binary_unchecked::<O>(x, y) });
        self.eager.value(nodes.and_then(append))
    }

    /// `self` raised to a constant.
    pub fn powc(self, exponent: S) -> Self {
        let node = self.eager.own(&self);
        self.eager.value(node.and_then(|x| self.eager.with(|graph| graph.pow_constant(x, exponent))))
    }

    /// `min(max(self, low), high)`; `low` is at most `high`.
    pub fn clamp(self, low: S, high: S) -> Self {
        let node = self.eager.own(&self);
        self.eager.value(node.and_then(|x| self.eager.with(|graph| graph.clamp(x, low, high))))
    }

    /// A copy through which no gradient flows.
    pub fn detach(self) -> Self {
        let node = self.eager.own(&self);
        self.eager.value(node.and_then(|x| self.eager.with(|graph| graph.detach(x))))
    }
}

impl<S: Scalar> fmt::Debug for Value<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Value(#{})", self.node.index())
    }
}

impl<S: Scalar> fmt::Debug for Eager<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Eager({} nodes)", self.len())
    }
}

macro_rules! operators {
    ($($Trait:ident $method:ident $Assign:ident $assign:ident $Op:ident, $x:ident $c:ident $with_constant:expr, $constant_with:expr;)*) => { $(
        impl<'t, S: Scalar> $Trait for Value<'t, S> {
            type Output = Value<'t, S>;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                self.binary::<ops::$Op>(other)
            }
        }
        impl<'t, S: Scalar> $Trait<S> for Value<'t, S> {
            type Output = Value<'t, S>;
            #[inline(always)]
            fn $method(self, $c: S) -> Self {
                let node = self.eager.own(&self);
                self.eager.value(node.and_then(|$x| self.eager.with($with_constant)))
            }
        }
        /// Binds the handle to a new node; other handles of the old one keep it.
        impl<S: Scalar> $Assign for Value<'_, S> {
            #[inline(always)]
            fn $assign(&mut self, other: Self) {
                *self = $Trait::$method(*self, other);
            }
        }
        /// Binds the handle to a new node; other handles of the old one keep it.
        impl<S: Scalar> $Assign<S> for Value<'_, S> {
            #[inline(always)]
            fn $assign(&mut self, c: S) {
                *self = $Trait::$method(*self, c);
            }
        }
        operators!(@left $Trait $method $x $c $constant_with; f32 f64);
    )* };
    (@left $Trait:ident $method:ident $x:ident $c:ident $constant_with:expr; $($t:ty)*) => { $(
        impl<'t> $Trait<Value<'t, $t>> for $t {
            type Output = Value<'t, $t>;
            #[inline(always)]
            fn $method(self, value: Value<'t, $t>) -> Value<'t, $t> {
                let $c = self;
                let node = value.eager.own(&value);
                value.eager.value(node.and_then(|$x| value.eager.with($constant_with)))
            }
        }
    )* };
}

operators! {
    Add add AddAssign add_assign Add, x c |graph| graph.with_constant::<ops::AddConstant>(x, c), |graph| graph.with_constant::<ops::AddConstant>(x, c);
    Sub sub SubAssign sub_assign Sub, x c |graph| graph.with_constant::<ops::AddConstant>(x, -c), |graph| graph.constant_with::<ops::Sub>(c, x);
    Mul mul MulAssign mul_assign Mul, x c |graph| graph.with_constant::<ops::MulByConstant>(x, c), |graph| graph.with_constant::<ops::MulByConstant>(x, c);
    Div div DivAssign div_assign Div, x c |graph| graph.div_constant(x, c), |graph| graph.constant_with::<ops::Div>(c, x);
}

impl<S: Scalar> Neg for Value<'_, S> {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        self.unary::<ops::Neg>()
    }
}

macro_rules! define_methods {
    (
        nullary { $($nullary:tt)* }
        unary { $( #[doc = $udoc:literal] $U:ident $uname:ident $upaper:literal { $($ubody:tt)* } )* }
        binary { $( #[doc = $bdoc:literal] $B:ident $bname:ident $bpaper:literal { $($bbody:tt)* } )* }
        with_constant { $($with_constant:tt)* }
        reduction { $( #[doc = $rdoc:literal] $R:ident $rname:ident $rpaper:literal { $($rbody:tt)* } )* }
        $($rest:tt)*
    ) => {
        /// One method per reduction of the table, over a run, a list of views or a list of ids.
        impl<S: Scalar> Eager<'_, S> {
            $( #[doc = $rdoc] pub fn $rname<'o>(&self, operands: impl Into<Operands<'o>>) -> Value<'_, S> {
                self.reduce(Op::$R, operands.into())
            } )*
        }

        /// One method per op of the table.
        #[allow(clippy::should_implement_trait)]
        impl<S: Scalar> Value<'_, S> {
            $( #[doc = $udoc] #[inline(always)] pub fn $uname(self) -> Self { self.unary::<ops::$U>() } )*
            $( #[doc = $bdoc] #[inline(always)] pub fn $bname(self, other: Self) -> Self { self.binary::<ops::$B>(other) } )*
        }
    };
}

for_each_op!(define_methods);
