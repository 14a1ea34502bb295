"""Branches in reserved regions of their graph's memory: the numbers of a single thread, and no remains."""

from __future__ import annotations

import math
from functools import partial

import pytest

import burtorch as bt

USUAL = [5000] * 4
ROUNDS = [USUAL] * 3 + [[5000, 9000, 5000, 5000]] * 2 + [[5000, 100, 5000, 5000], [5000] * 3] + [USUAL] * 2


def loss(lengths: list[int], x: bt.Value | None, k: int) -> bt.Value:
    """Builds the nodes of item k; item 1 reads x, if there is one."""
    n = lengths[k]
    run = bt.tanh(bt.Vector([0.001 * ((k + j) % 1000) for j in range(n)]))
    return (run * run).sum() + run[n // 2] if x is None or k != 1 else (run * x).sum()


def one_round(graph: bt.Graph, lengths: list[int], threads: int, *, reads: bool, drops: bool) -> tuple[object, ...]:
    """The observable state of a graph built by this many threads; 0 for this thread only, without branches."""
    graph.clear()
    with graph:
        x = bt.Value(0.5)
        if drops and threads:
            for branch in graph.branches(4):
                with branch:
                    loss(USUAL, None, 1)
            graph.drop_branches()
        one = partial(loss, lengths, x if reads else None)
        items = range(len(lengths))
        losses = bt.parallel(one, items, threads=threads) if threads else [one(k) for k in items]
        total = bt.reduce_sum(losses)
        total.backward()
    return [float(y) for y in losses], total.data, x.grad, len(graph)


def test_a_loop_over_batches_gives_the_numbers_of_one_thread_whatever_its_branches_look_like() -> None:
    """From the second round on, branches use the graph's own memory; in some rounds the expected sizes are wrong."""
    graph = bt.Graph()
    for number, lengths in enumerate(ROUNDS * 2):
        reads, drops = number == 11, number % 5 == 4
        found = [one_round(graph, lengths, threads, reads=reads, drops=drops) for threads in (0, 1, 2)]
        assert found[0] == found[1] == found[2], number


def test_branches_in_the_memory_of_their_graph_outlive_it() -> None:
    graph = bt.Graph()
    for _ in range(2):
        graph.clear()
        bt.parallel(lambda k: bt.tanh(bt.Vector([0.25] * 9000)).sum(), range(2), graph=graph)
    graph.clear()
    branches = graph.branches(2)
    with branches[0]:
        y = bt.tanh(bt.Vector([0.25] * 9000))
    graph.drop_branches()
    with graph:
        z = bt.tanh(bt.Vector([0.5] * 90_000))
    with pytest.raises(bt.StaleValueError):
        y.sum()
    assert z[-1].data == math.tanh(0.5)
    del graph, z, y
    with pytest.raises(bt.BusyError, match="dropped"), branches[0]:
        pass
