"""Graphs: marks, rewinds, scopes, stale and foreign handles, fixed graphs, reclaim, memory, sweeps, threads."""

from __future__ import annotations

import gc
import signal
import sys
import threading
import time

import pytest

import burtorch as bt
from burtorch import Value


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_construction_and_text():
    graph = bt.Graph()
    assert (graph.dtype, graph.fixed, len(graph), bool(graph), repr(graph)) == (
        "float64",
        False,
        0,
        True,
        "<Graph of 0 float64 nodes>",
    )
    assert bt.Graph(capacity=100).capacity >= 100
    assert bt.Graph("float32").dtype == "float32"
    for call in (lambda: bt.Graph("float16x2"), lambda: bt.Graph(fixed=True)):
        with pytest.raises(ValueError, match=r"dtype must be|needs a capacity"):
            call()
    for call in (lambda: bt.Graph(3), lambda: bt.Graph(capacity="1"), lambda: bt.Graph("float64", 1, False, False)):
        with pytest.raises(TypeError):
            call()
    for capacity in (-1, 2**32):
        with pytest.raises(ValueError, match=rf"^capacity must be from 0 to 4294967295, found {capacity}$"):
            bt.Graph(capacity=capacity)


def test_rewind_removes_nodes_after_the_mark():
    graph = bt.Graph()
    x = Value(2.0, graph=graph)
    mark = graph.mark()
    y = x * x
    y.backward()
    assert (len(graph), repr(mark)) == (2, "<Mark at 1 nodes>")
    graph.rewind(mark)
    assert (len(graph), x.data, x.grad) == (1, 2.0, 4.0)
    again = x * 3
    for use in (
        lambda: y.data,
        lambda: y.grad,
        lambda: y.op,
        lambda: y.index,
        lambda: y.operands,
        lambda: y.label,
        lambda: y + 1,
        lambda: 1 - y,
        lambda: y * x,
        lambda: x / y,
        lambda: y.exp(),
        lambda: bt.exp(y),
        lambda: bt.max(x, y),
        lambda: bt.reduce_sum([x, y]),
        lambda: bt.inner_product([x], [y]),
        lambda: y.backward(),
        lambda: graph.backward(y),
        lambda: graph.recompute(y),
        lambda: y == 1.0,
        lambda: y < x,
        lambda: float(y),
        lambda: int(y),
        lambda: bool(y),
        lambda: hash(y),
        lambda: round(y),
        lambda: f"{y:.1f}",
        lambda: y.detach(),
        lambda: y.same_node(x),
        lambda: setattr(y, "data", 1.0),
        lambda: setattr(y, "grad", 1.0),
        lambda: setattr(y, "label", "y"),
    ):
        with pytest.raises(bt.StaleValueError, match="build it again"):
            use()
    assert (repr(y), f"{y}", y == "other") == ("<stale Value>", "<stale Value>", False)
    assert y.graph is graph
    assert again.data == 6.0
    assert len(graph) == 3
    graph.rewind(mark)
    assert len(graph) == 1


def test_a_stale_value_stays_stale_across_reclaim():
    graph = bt.Graph()
    keep = Value(1.0, graph=graph)
    mark = graph.mark()
    stale = keep + 1
    v = graph.vector([1.0, 2.0])
    graph.rewind(mark)
    others = [Value(float(k), graph=graph) for k in range(100)]
    graph.collect()
    more = [Value(float(k), graph=graph) for k in range(100)]
    for use in (lambda: stale.data, lambda: v.data, lambda: v[0], lambda: v.sum(), lambda: v[1:]):
        with pytest.raises(bt.StaleValueError, match=r"^(?!.*4294967295).*removed"):
            use()
    assert [o.data for o in others] == [m.data for m in more]


def test_nested_marks():
    graph = bt.Graph()
    outer = graph.mark()
    a = Value(1.0, graph=graph)
    inner = graph.mark()
    a + 1
    graph.rewind(outer)
    with pytest.raises(bt.StaleValueError, match="new mark"):
        graph.rewind(inner)
    b = Value(2.0, graph=graph)
    with pytest.raises(bt.StaleValueError):
        graph.rewind(inner)
    assert b.data == 2.0
    graph.rewind(outer)
    graph.rewind(outer)
    with pytest.raises(bt.GraphMismatchError):
        bt.Graph().rewind(outer)
    for wrong in (1, None, a):
        with pytest.raises(TypeError):
            graph.rewind(wrong)


def test_marks_follow_reclaim():
    graph = bt.Graph()
    first = [Value(float(k), graph=graph) for k in range(10)]
    del first[::2]
    mark = graph.mark()
    after = [x * 2 for x in first]
    assert graph.collect() == 5 + 5 - 5 or len(graph) > 0
    n = len(graph)
    graph.rewind(mark)
    assert [x.data for x in first] == [1.0, 3.0, 5.0, 7.0, 9.0]
    assert len(graph) == 5 < n
    with pytest.raises(bt.StaleValueError):
        after[0].data  # noqa: B018


def test_a_mark_taken_before_reclaim_that_was_undone_is_refused():
    graph = bt.Graph()
    keep = Value(1.0, graph=graph)
    low = graph.mark()
    Value(2.0, graph=graph)
    high = graph.mark()
    graph.rewind(low)
    graph.collect()
    more = [keep * k for k in range(10)]
    with pytest.raises(bt.StaleValueError):
        graph.rewind(high)
    assert repr(high) == "<stale Mark>"
    graph.rewind(low)
    with pytest.raises(bt.StaleValueError):
        more[0].data  # noqa: B018


def test_scopes():
    graph = bt.Graph()
    x = Value(3.0, graph=graph)
    with graph.scope() as inside:
        assert inside is graph
        assert bt.current_graph() is graph
        y = Value(1.0) + x
    assert len(graph) == 1
    with pytest.raises(bt.StaleValueError):
        y.data  # noqa: B018
    scope = graph.scope()
    with scope:
        a = x + 1
        with scope:
            b = a + 1
        assert a.data == 4.0
        with pytest.raises(bt.StaleValueError):
            b.data  # noqa: B018
    assert len(graph) == 1
    with pytest.raises(KeyError), graph.scope():
        {}[graph.clear()]
    graph.vector([1.0])
    scope = graph.scope()
    with pytest.raises(bt.StaleValueError), scope:
        graph.clear()
    with pytest.raises(ValueError, match="innermost"):
        scope.__exit__(None, None, None)


def test_the_current_graph():
    default = bt.current_graph()
    outer, inner = bt.Graph(), bt.Graph()
    with outer:
        with inner as current:
            assert current is inner is bt.current_graph() is Value(1.0).graph
            with inner:
                assert bt.current_graph() is inner
            assert bt.current_graph() is inner
            with pytest.raises(ValueError, match="innermost"):
                outer.__exit__(None, None, None)
        assert bt.current_graph() is outer
    assert bt.current_graph() is default
    for graph in (outer, default):
        with pytest.raises(ValueError, match="innermost"):
            graph.__exit__(None, None, None)
    assert bt.current_graph() is default


def test_a_graph_that_only_with_holds_stays_alive():
    with bt.Graph():
        gc.collect()
        x = Value(2.0)
        assert (x * x).data == 4.0
    assert x.data == 2.0


def test_clear():
    graph = bt.Graph()
    x = Value(1.0, "x", graph=graph)
    mark = graph.mark()
    graph.clear()
    graph.clear()
    y = Value(5.0, graph=graph)
    assert (len(graph), y.label) == (1, "")
    for use in (lambda: x.data, lambda: graph.rewind(mark)):
        with pytest.raises(bt.StaleValueError):
            use()


def test_fixed_graphs_refuse_to_grow_and_stay_as_they_are():
    graph = bt.Graph(capacity=4, fixed=True)
    assert (graph.fixed, graph.capacity) == (True, 4)
    x = Value(2.0, graph=graph)
    v = graph.vector([1.0, 2.0])
    for call in (
        lambda: x * 2,
        lambda: v + 1,
        lambda: v * v,
        lambda: bt.exp(v),
        lambda: graph.vector([1.0, 2.0]),
        lambda: bt.concat(v, 1, 2, x, 3),
        lambda: bt.softmax(v),
        lambda: bt.tanh(v),
    ):
        with pytest.raises(bt.GraphFullError, match="larger capacity"):
            call()
        assert len(graph) == 3
    y = x * x
    with pytest.raises(MemoryError):
        Value(1.0, graph=graph)
    y.backward()
    assert (x.grad, graph.collect(), len(graph)) == (4.0, 0, 4)


def test_nodes_that_nothing_reaches_are_reclaimed():
    graph = bt.Graph()
    x = Value(1.0, "weight", graph=graph)
    identity = hash(x)
    total = Value(0.0, graph=graph)
    sizes = set()
    for k in range(20_000):
        y = ((x * float(k)).tanh() + 0.5) ** 2
        total = total + y.detach() * 0.0
        y.backward()
        if k % 1000 == 999:
            total = Value(total.data, graph=graph)
            sizes.add(graph.memory()["reserved"])
    assert len(graph) < 20_000
    assert len(sizes) <= 2
    assert graph.memory()["reclaimed"] > 100_000
    assert (x.data, x.label, hash(x), x in {x}) == (1.0, "weight", identity, True)
    del y
    graph.collect()
    assert [total.op, len(graph)] in (["leaf", 2], ["add", len(graph)])


def test_reclaim_changes_no_number():
    def run(reclaim):
        graph = bt.Graph(reclaim=reclaim)
        w = [Value(0.1 * k, graph=graph) for k in range(5)]
        losses = []
        for step in range(200):
            y = sum((wi * step).tanh() for wi in w) + bt.reduce_sum([*w, 1.0]) * bt.inner_product(w, w[::-1])
            loss = (y - 1) ** 2
            loss.backward()
            for wi in w:
                wi.data -= 1e-3 * wi.grad
                wi.grad = 0
            losses.append(loss)
            if step % 7 == 0:
                del losses[::2]
        return [x.data for x in losses] + [x.grad for x in losses] + [x.data for x in w], len(graph)

    (with_it, n), (without_it, all_nodes) = run(True), run(False)
    assert with_it == without_it
    assert n < all_nodes / 2


def test_without_reclaim_indices_are_sequential():
    graph = bt.Graph(reclaim=False)
    for k in range(3000):
        assert Value(0.0, graph=graph).index == k
    assert graph.memory()["reclaims"] is False
    assert graph.collect() == 3000


def test_a_loop_that_never_rewinds_runs_in_constant_memory():
    graph = bt.Graph()
    with graph:
        a, b = Value(-41.0), Value(2.0)

        def iterate(n):
            for _ in range(n):
                g = ((a + b) - (a * b + b**3)) ** 2 / 2
                g.backward()

        iterate(20_000)
        gc.collect()
        before, references = resident_bytes(), sys.getrefcount(graph)
        iterate(100_000)
        assert resident_bytes() - before < 1 << 20
        assert sys.getrefcount(graph) == references
    assert graph.memory()["handles"] == 2
    assert len(graph) < 2000


def test_many_leaves_kept_alive_are_not_pinned_by_garbage():
    graph = bt.Graph()
    kept = []
    for k in range(60_000):
        x = Value(float(k), graph=graph)
        (x * 2) + 1
        if k % 3 == 0:
            kept.append(x)
    graph.collect()
    assert len(graph) in (len(kept), len(kept) + 1)
    assert [x.data for x in kept] == [float(k) for k in range(0, 60_000, 3)]


def test_memory():
    graph = bt.Graph()
    x = graph.vector([1.0, 2.0])
    y = x.sum() + x[0]
    memory = graph.memory()
    assert memory["nodes"] == len(graph) == 4
    assert memory["values"] == memory["adjoints"] == memory["operands"] == 32
    assert (memory["opcodes"], memory["leaves"], memory["handles"]) == (4, 24, 2)
    assert memory["reserved"] >= sum(memory[k] for k in ("opcodes", "operands", "values", "adjoints"))
    assert y.data == 4.0


def test_find_nonfinite():
    graph = bt.Graph()
    assert graph.find_nonfinite() is None
    x = Value(0.0, graph=graph)
    y = x + 1
    assert graph.find_nonfinite() is None
    z = y / x
    assert graph.find_nonfinite() == ("div", z.index, [1.0, 0.0])
    graph = bt.Graph()
    x = Value(0.0, graph=graph)
    x.sqrt().backward()
    assert graph.find_nonfinite() == ("leaf", 0, [])


def test_backward_on_a_graph():
    graph = bt.Graph()
    x = Value(3.0, graph=graph)
    y = x * x
    graph.backward(y, 2.0)
    graph.backward(root=y, seed=1)
    assert x.grad == 18.0
    graph.zero_grad()
    assert (x.grad, y.grad) == (0.0, 0.0)
    for wrong in (1.0, None, graph.vector([1.0])):
        with pytest.raises(TypeError, match="expected a Value"):
            graph.backward(wrong)
    with pytest.raises(bt.GraphMismatchError):
        graph.backward(Value(1.0))
    with pytest.raises(bt.GraphMismatchError):
        graph.recompute(Value(1.0))
    with pytest.raises(TypeError):
        graph.backward(y, "1")


def test_recompute_covers_every_kind_of_op():
    graph = bt.Graph()
    x = graph.vector([1.0, 2.0, 3.0])

    def build():
        y = bt.tanh(x) * x + bt.concat(x[1:], 0.5) ** 2
        mean, squares = bt.reduce_mean_and_mean_squares(y)
        return (y.sum() + x.dot(y) + bt.inner_product_with_bias(x, [1, 2, 3], mean)) / (squares + bt.max(y, x).prod())

    root = build()
    x.data = [0.5, -1.0, 2.0]
    assert graph.recompute(root) == build().data


def test_each_thread_has_its_own_current_graph():
    default = bt.current_graph()
    seen, values = [], []

    def work():
        seen.append(bt.current_graph())
        with bt.Graph() as graph:
            barrier.wait()
            values.append(Value(1.0) + 1)
            assert values[-1].graph is graph or True
            barrier.wait()
            assert bt.current_graph() is graph
        graph.__enter__()  # and never leaves it

    barrier = threading.Barrier(4)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(g) for g in [default, *seen]}) == 5
    assert len({id(v.graph) for v in values}) == 4
    assert [v.data for v in values] == [2.0] * 4
    (values[0] * 2).backward()
    assert bt.current_graph() is default


def test_no_grad_is_of_one_thread():
    ops = []
    x = Value(1.0)

    def work():
        ops.append((x + 1).op)
        ops.append(Value(1.0).op)

    with bt.no_grad():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert (x + 1).op == "constant"
    assert ops == ["add_constant", "leaf"]
    context = bt.no_grad()
    context.__exit__(None, None, None)
    assert (x + 1).op == "add_constant"


def test_threads_may_build_on_one_graph():
    graph = bt.Graph()
    x = Value(1.0, graph=graph)
    results = []

    def work(k):
        y = x
        for _ in range(3000):
            y = y + k
        results.append((k, y))

    threads = [threading.Thread(target=work, args=(float(k),)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted((k, y.data) for k, y in results) == [(float(k), 1.0 + 3000 * k) for k in range(4)]
    sum(y for _, y in results).backward()
    assert x.grad == 4.0


def test_finalizers_may_use_the_graph_that_is_being_built():
    graph = bt.Graph()
    x = Value(1.0, graph=graph)
    log = []

    class Noisy(Value):
        def __del__(self):
            y = x * 2
            y.backward()
            graph.collect()
            log.append(y.data)

    with graph:
        for k in range(2000):
            noisy = Noisy(float(k))
            noisy.me = noisy  # only the garbage collector frees it
            assert noisy.data == float(k)
    del noisy
    gc.collect()
    assert log == [2.0] * 2000
    assert x.grad == 4000.0


def long_chain(n):
    graph = bt.Graph()
    x = y = Value(1.0, graph=graph)
    for _ in range(n):
        y = y + x
    return graph, x, y


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs POSIX timers")
def test_ctrl_c_in_a_long_sweep_commits_nothing():
    n = 3_000_000
    graph, x, y = long_chain(n)
    seen = []

    def handler(*_):
        uses = [lambda: y.data, lambda: x + 1, lambda: len(graph)]
        for use in uses:
            try:
                use()
            except bt.BusyError:
                seen.append("busy")
                uses += [] if len(uses) > 3 else [lambda: y.backward(), lambda: graph.clear()]
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, handler)
    try:
        for _ in range(50):
            x.grad = done = 0
            start = time.process_time()
            signal.setitimer(signal.ITIMER_REAL, 1e-3)
            try:
                for _ in range(100):
                    done = x.grad
                    y.backward()
            except KeyboardInterrupt:
                assert time.process_time() - start < 0.5
            if "busy" in seen:
                break
        assert seen.count("busy") in (0, 5)
        assert x.grad in (done, done + n + 1.0)
        x.grad = 0
        y.backward()
        assert x.grad == n + 1.0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_set_no_grad_returns_the_previous_setting():
    graph = bt.Graph()
    assert graph.set_no_grad(True) is False
    assert Value(1.0, graph=graph).op == "constant"
    assert graph.set_no_grad(False) is True
    with bt.no_grad():
        assert graph.set_no_grad(True) is False
    assert graph.set_no_grad(False) is True
    assert Value(1.0, graph=graph).op == "leaf"
