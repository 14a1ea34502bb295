"""Generational reclaim: a graph with reclaim and a twin without run the same random program. All numbers, gradients,
hashes, labels and errors must be equal, and the graph must stay small."""

from __future__ import annotations

import random
from typing import Any

import pytest

import burtorch as bt
from burtorch import Value


class Twins:
    """The same program on two graphs; ``pairs`` has the live objects of both."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.graphs = bt.Graph(), bt.Graph(reclaim=False)
        self.params = bt.Parameters(dtype="float64", seed=seed)
        self.layer = bt.nn.Linear(self.params, 2, 3, activation="tanh")
        self.pairs: list[tuple[Any, Any]] = []
        self.marks: list[tuple[Any, Any]] = []
        self.n_labels = 0

    def values(self, n: int) -> list[tuple[Value, Value]]:
        found = [pair for pair in self.pairs if isinstance(pair[0], Value)]
        return self.rng.choices(found, k=n) if found else [self.leaf() for _ in range(n)]

    def keep(self, pair: tuple[Any, Any]) -> None:
        self.pairs.append(pair)

    def leaf(self) -> tuple[Value, Value]:
        x = self.rng.uniform(-1.0, 1.0)
        pair = Value(x, graph=self.graphs[0]), Value(x, graph=self.graphs[1])
        self.keep(pair)
        return pair

    def op(self) -> None:
        (a, b), (c, d) = self.values(2)
        kind = self.rng.randrange(7)
        if kind == 0:
            self.keep(((a * 0.5).tanh(), (b * 0.5).tanh()))
        elif kind == 1:
            self.keep((a * c + 0.25, b * d + 0.25))
        elif kind == 2:
            self.keep((bt.reduce_mean([a, c, a * 2.0]), bt.reduce_mean([b, d, b * 2.0])))
        elif kind == 3:
            self.keep((self.layer([a, c]), self.layer([b, d])))
        elif kind == 4:
            self.keep((bt.concat([a, c]) * 0.5, bt.concat([b, d]) * 0.5))
        elif kind == 5:
            vectors = [pair for pair in self.pairs if isinstance(pair[0], bt.Vector)]
            if vectors:
                x, y = self.rng.choice(vectors)
                self.keep((x[0:2].mean(), y[0:2].mean()))
        else:
            for _ in range(self.rng.randrange(300)):
                a, b = (a * 0.5 + c).tanh(), (b * 0.5 + d).tanh()
            self.keep((a, b))

    def drop(self) -> None:
        self.rng.shuffle(self.pairs)
        del self.pairs[self.rng.randrange(5, 60) :]

    def rewind(self) -> None:
        if self.marks:
            # Later marks are undone, except those with no remaining nodes in between.
            del self.marks[self.rng.randrange(len(self.marks)) + 1 :]
            for graph, mark in zip(self.graphs, self.marks[-1]):
                graph.rewind(mark)
            self.forget_the_gone()

    def forget_the_gone(self) -> None:
        left = []
        for pair in self.pairs:
            states = [alive(one) for one in pair]
            assert states[0] == states[1]
            if states[0]:
                left.append(pair)
        self.pairs = left

    def sweep(self) -> None:
        for root in self.values(1)[0]:
            self.params.zero_grad()
            root.backward()
        self.compare()

    def compare(self) -> None:
        for a, b in self.pairs:
            if isinstance(a, Value):
                assert (a.data, a.grad, a.op, a.label) == (b.data, b.grad, b.op, b.label)
                assert [x.data for x in a.operands] == [x.data for x in b.operands]
            else:
                assert list(a.data) == list(b.data)

    def step(self) -> None:
        at = self.rng.random()
        if at < 0.2:
            self.leaf()
        elif at < 0.75:
            self.op()
        elif at < 0.8:
            self.marks.append((self.graphs[0].mark(), self.graphs[1].mark()))
            del self.marks[:-8]
        elif at < 0.82:
            self.rewind()
        elif at < 0.9:
            self.sweep()
        elif at < 0.93:
            a, b = self.values(1)[0]
            a.data = b.data = self.rng.uniform(-1.0, 1.0)
        elif at < 0.96:
            a, b = self.values(1)[0]
            self.n_labels += 1
            a.label = b.label = f"node {self.n_labels}"
            assert hash(a) == hash(a.graph.node(a.index)), "two handles of one node"
        elif at < 0.99:
            self.drop()
        elif at < 0.992:
            self.graphs[0].collect()
        elif at < 0.993:
            for graph in self.graphs:
                graph.clear()
            self.marks.clear()
            self.forget_the_gone()


def alive(one: Any) -> bool:
    try:
        return one.data is not None
    except bt.StaleValueError:
        return False


@pytest.mark.parametrize("seed", range(4))
def test_a_graph_that_reclaims_is_one_that_does_not(seed: int) -> None:
    twins = Twins(seed)
    for _ in range(3000):
        twins.step()
    twins.compare()
    memory = twins.graphs[0].memory()
    assert memory["reclaimed"] > 10_000, "much was reclaimed"
    before = [pair[0].data if isinstance(pair[0], Value) else list(pair[0].data) for pair in twins.pairs]
    twins.graphs[0].collect()
    twins.compare()
    assert before == [pair[0].data if isinstance(pair[0], Value) else list(pair[0].data) for pair in twins.pairs]


def test_hashes_stay_with_their_nodes() -> None:
    graph = bt.Graph()
    kept = [Value(float(k), graph=graph) for k in range(100)]
    names = {value: value.data for value in kept}
    for k in range(20_000):
        x = Value(1.0, graph=graph) * 2.0
        if k % 1000 == 0:
            names[x] = x.data
            kept.append(x)
    assert graph.memory()["reclaimed"] > 30_000
    assert [names[value] for value in kept] == [value.data for value in kept]


def test_dead_old_nodes_are_reclaimed_too() -> None:
    """A large graph, held and then dropped, repeatedly: dead old nodes do not accumulate."""
    graph, largest = bt.Graph(), 0
    with graph:
        for _ in range(40):
            total = Value(0.0)
            for k in range(3000):
                total = total + Value(float(k)) * 0.5
            largest = max(largest, len(graph))
            assert total.data == 0.5 * 2999 * 3000 / 2
    alive_at_once = 1 + 3000 * 4
    assert largest < 4 * alive_at_once, "a bounded multiple of what was alive at once"


def test_old_handles_are_refused_after_a_rewind_and_a_reclaim() -> None:
    graph = bt.Graph()
    with graph:
        x = Value(1.0)
        mark = graph.mark()
        y = x * 2.0
        for _ in range(3000):
            x * 3.0
        assert graph.memory()["reclaimed"] > 1000, "y is old by now"
        graph.rewind(mark)
        fresh = [x * float(k) for k in range(2000)]
        for stale in (lambda: y.data, lambda: y + 1.0, lambda: y.backward(), lambda: y.operands):
            with pytest.raises(bt.StaleValueError):
                stale()
        assert [v.data for v in fresh] == [float(k) for k in range(2000)]
        assert x.data == 1.0


def test_branches_join_a_graph_that_reclaims() -> None:
    graph = bt.Graph()
    with graph:
        x = Value(2.0, label="x")
        kept = [x * float(k) for k in range(700)]
        for _ in range(2000):
            x * 3.0
    first, second = graph.branches(2)
    with first:
        a = kept[3] * kept[5]
    with second:
        b = kept[4] + x
    graph.join()
    with graph:
        for _ in range(3000):
            x * 3.0
        (a * b).backward()
    assert (a.data, b.data, x.label, x.grad) == (60.0, 10.0, "x", 900.0)
