"""A hypothesis state machine: random programs that create, combine, mark, rewind, differentiate and drop Values,
compared after each step with a plain model without handles, epochs or reclaim."""

from __future__ import annotations

import gc

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import burtorch as bt

NUMBERS = st.integers(-8, 8).map(float)


class Node:
    """A number, its dependence on other nodes, and its gradient, in a list in building order."""

    def __init__(self, value, parents=(), leaf=False):
        self.value, self.parents, self.leaf = value, parents, leaf
        self.grad = 0.0
        self.label = ""
        self.alive = True


class Values(RuleBasedStateMachine):
    @initialize(reclaim=st.booleans())
    def start(self, reclaim):
        self.graph = bt.Graph(reclaim=reclaim)
        self.nodes = []  # everything built and not rewound, in order
        self.held = []  # (value, node, hash or None)
        self.vectors = []  # (vector, nodes)
        self.marks = []  # (mark, number of nodes or None if undone, whether that is sure), in order of time

    def add(self, value, node):
        self.nodes.append(node)
        self.held.append([value, node, None])

    def pick(self, k):
        return self.held[k % len(self.held)]

    @rule(x=NUMBERS, label=st.sampled_from(["", "a", "b"]))
    def create(self, x, label):
        self.add(bt.Value(x, label, graph=self.graph), Node(x, leaf=True))
        self.nodes[-1].label = label

    @precondition(lambda self: self.held)
    @rule(i=st.integers(0), j=st.integers(0), op=st.sampled_from(["add", "sub", "mul", "relu", "mulc", "neg", "max"]))
    def combine(self, i, j, op):
        (v, a, _), (w, b, _) = self.pick(i), self.pick(j)
        build = {
            "add": lambda: v + w,
            "sub": lambda: v - w,
            "mul": lambda: v * w,
            "relu": lambda: v.relu(),
            "mulc": lambda: v * 0.5,
            "neg": lambda: -v,
            "max": lambda: bt.max(v, w),
        }[op]
        used = [a] if op in ("relu", "mulc", "neg") else [a, b]
        if not all(node.alive for node in used):
            with pytest.raises(bt.StaleValueError):
                build()
            return
        x, y = a.value, b.value
        value, parents = {
            "add": lambda: (x + y, [(a, 1.0), (b, 1.0)]),
            "sub": lambda: (x - y, [(a, 1.0), (b, -1.0)]),
            "mul": lambda: (x * y, [(a, y), (b, x)]),
            "relu": lambda: (max(x, 0.0), [(a, float(x > 0))]),
            "mulc": lambda: (0.5 * x, [(a, 0.5)]),
            "neg": lambda: (-x, [(a, -1.0)]),
            "max": lambda: (max(x, y), [(a, (x > y) + 0.5 * (x == y)), (b, (y > x) + 0.5 * (x == y))]),
        }[op]()
        if abs(value) < 1e100:
            self.add(build(), Node(value, parents))

    @rule(xs=st.lists(NUMBERS, min_size=1, max_size=4))
    def vector(self, xs):
        nodes = [Node(x, leaf=True) for x in xs]
        self.nodes += nodes
        self.vectors.append((self.graph.vector(xs), nodes))

    @precondition(lambda self: self.vectors)
    @rule(i=st.integers(0), j=st.integers(0), how=st.sampled_from(["relu", "slice", "concat", "sum", "index"]))
    def use_vector(self, i, j, how):
        vector, nodes = self.vectors[i % len(self.vectors)]
        other, others = self.vectors[j % len(self.vectors)]
        use = {
            "relu": lambda: bt.relu(vector),
            "slice": lambda: vector[1:],
            "concat": lambda: bt.concat(vector, other),
            "sum": lambda: vector.sum(),
            "index": lambda: vector[-1],
        }[how]
        if not nodes and how in ("sum", "index"):
            return
        if not all(node.alive for node in nodes + (others if how == "concat" else [])):
            with pytest.raises(bt.StaleValueError):
                use().data  # noqa: B018
            return
        if how == "relu":
            made = [Node(max(n.value, 0.0), [(n, float(n.value > 0))]) for n in nodes]
            self.nodes += made
            self.vectors.append((use(), made))
        elif how in ("slice", "concat"):
            self.vectors.append((use(), nodes[1:] if how == "slice" else nodes + others))
        elif how == "sum":
            self.add(use(), Node(sum(n.value for n in nodes), [(n, 1.0) for n in nodes]))
        else:
            self.held.append([use(), nodes[-1], None])

    @rule()
    def mark(self):
        self.marks.append((self.graph.mark(), len(self.nodes), True))

    @precondition(lambda self: self.marks)
    @rule(i=st.integers(0))
    def rewind(self, i):
        k = i % len(self.marks)
        mark, n, is_sure = self.marks[k]
        if n is not None and is_sure:
            self.graph.rewind(mark)
        elif n is None:
            with pytest.raises(bt.StaleValueError):
                self.graph.rewind(mark)
            return
        else:
            try:
                self.graph.rewind(mark)
            except bt.StaleValueError:
                return
        self.forget_above(n, k)

    def forget_above(self, n, k):
        """Removes the nodes from the n-th on; some of the marks from the k-th on were undone."""
        held = {id(node) for _, node, _ in self.held} | {id(node) for _, nodes in self.vectors for node in nodes}
        places = [k for k, node in enumerate(self.nodes) if id(node) in held]
        for j, (mark, m, is_sure) in enumerate(self.marks):
            if j == k or m is None or (j < k and is_sure and m <= n):
                continue
            # Held nodes below the mark are certainly gone; others may have been reclaimed before.
            is_undone = any(n <= place < m for place in places)
            self.marks[j] = (mark, None if is_undone else min(m, n), False)
        for node in self.nodes[n:]:
            node.alive = False
        del self.nodes[n:]

    @rule(sure=st.integers(0, 20))
    def clear(self, sure):
        if sure == 0:
            self.graph.clear()
            self.forget_above(0, -1)

    @precondition(lambda self: self.held)
    @rule(i=st.integers(0), seed=st.sampled_from([1.0, -2.0]))
    def backward(self, i, seed):
        value, root, _ = self.pick(i)
        if not root.alive:
            with pytest.raises(bt.StaleValueError):
                value.backward(seed)
            return
        value.backward(seed)
        adjoints = {id(root): seed}
        for node in reversed(self.nodes):
            g = adjoints.get(id(node))
            if not node.leaf:
                node.grad = g or 0.0
            elif g is not None:
                node.grad += g
            for parent, partial in node.parents if g is not None else ():
                adjoints[id(parent)] = adjoints.get(id(parent), 0.0) + g * partial

    @precondition(lambda self: self.held)
    @rule(i=st.integers(0), x=NUMBERS)
    def write(self, i, x):
        value, node, _ = self.pick(i)
        if node.alive and node.leaf:
            value.grad = node.grad = x

    @rule()
    def zero_grad(self):
        self.graph.zero_grad()
        for node in self.nodes:
            node.grad = 0.0

    @precondition(lambda self: self.held)
    @rule(i=st.integers(0))
    def hash(self, i):
        held = self.pick(i)
        if held[1].alive:
            number = hash(held[0])
            assert held[2] in (None, number)
            held[2] = number
            assert all((h == number) == (n is held[1]) for _, n, h in self.held if h is not None and n.alive)

    @precondition(lambda self: self.held)
    @rule(i=st.integers(0), n=st.integers(1, 5))
    def drop(self, i, n):
        k = i % len(self.held)
        del self.held[k : k + n]

    @precondition(lambda self: self.vectors)
    @rule(i=st.integers(0))
    def drop_vector(self, i):
        del self.vectors[i % len(self.vectors)]

    @precondition(lambda self: self.marks)
    @rule(i=st.integers(0))
    def drop_mark(self, i):
        del self.marks[i % len(self.marks)]

    @rule()
    def collect(self):
        before = len(self.graph)
        gone = self.graph.collect()
        assert len(self.graph) == before - gone

    @rule(n=st.sampled_from([50, 700]))
    def garbage(self, n):
        for _ in range(n):
            bt.Value(1.0, graph=self.graph)
        # Nodes without holders are not in the model; the length at a mark does not depend on them.

    @invariant()
    def everything_held_is_right(self):
        for value, node, _ in getattr(self, "held", ()):
            if node.alive:
                assert (value.data, value.grad, value.label) == (node.value, node.grad, node.label)
            else:
                with pytest.raises(bt.StaleValueError):
                    value.data  # noqa: B018
        for vector, nodes in getattr(self, "vectors", ()):
            if all(node.alive for node in nodes):
                assert list(vector.data) == [node.value for node in nodes]
                assert list(vector.grad) == [node.grad for node in nodes]
            else:
                with pytest.raises(bt.StaleValueError):
                    vector.data  # noqa: B018

    def teardown(self):
        if hasattr(self, "graph"):
            self.held, self.vectors = [], []
            gc.collect()
            assert self.graph.memory()["handles"] == 0
            self.marks = []
            self.graph.collect()
            assert len(self.graph) == 0


TestValues = Values.TestCase
TestValues.settings = settings(max_examples=150, stateful_step_count=80)
