"""Branches: several threads build one graph; the result is that of one thread."""

from __future__ import annotations

import gc
import hashlib
import os
import threading
import weakref

import pytest

import burtorch as bt


def bits(graph, values):
    """A digest of these values and of the gradients of all nodes on which they depend."""
    digest = hashlib.sha256()
    for value in values:
        digest.update(value.data.hex().encode())
        digest.update(value.grad.hex().encode())
    return digest.hexdigest()


def test_a_branch_builds_on_what_was_there_and_joins_by_number():
    with bt.Graph() as graph:
        x, y = bt.Value(2.0), bt.Value(5.0)
    first, second = graph.branches(2)
    with second:
        b = x * y
        assert b.data == 10.0
        assert b.graph is second
    with first:
        a = x + bt.Value(1.0)
    assert (x.data, len(graph)) == (2.0, 2)
    graph.join()
    assert (a.graph, b.graph) == (graph, graph)
    assert a.index < b.index
    (a * b).backward()
    assert (x.grad, y.grad) == (25.0, 6.0)


def test_every_kind_of_operand_crosses():
    with bt.Graph() as graph:
        x, v = bt.Value(2.0), graph.vector([1.0, 2.0, 3.0])
    (branch,) = graph.branches(1)
    with branch:
        own = branch.vector([4.0, 5.0, 6.0])
        made = [
            -x,
            x + 1,
            1 - x,
            x.exp(),
            bt.tanh(x),
            own[0] * x,
            x * own[0],
            (v * own).sum(),
            bt.inner_product(v, own),
            bt.inner_product_with_bias(own, v, x),
            bt.concat(v, own).sum(),
            bt.tanh(v).sum(),
            (v + x).sum(),
            bt.reduce_sum([x, own[1], v[2]]),
            bt.max(x, own[2]),
            v.mean(),
            x.detach(),
        ]
    found = [value.data for value in made]
    graph.join()
    with bt.Graph() as plain:
        x2, v2, own2 = bt.Value(2.0), plain.vector([1.0, 2.0, 3.0]), plain.vector([4.0, 5.0, 6.0])
        wanted = [
            -x2,
            x2 + 1,
            1 - x2,
            x2.exp(),
            bt.tanh(x2),
            own2[0] * x2,
            x2 * own2[0],
            (v2 * own2).sum(),
            bt.inner_product(v2, own2),
            bt.inner_product_with_bias(own2, v2, x2),
            bt.concat(v2, own2).sum(),
            bt.tanh(v2).sum(),
            (v2 + x2).sum(),
            bt.reduce_sum([x2, own2[1], v2[2]]),
            bt.max(x2, own2[2]),
            v2.mean(),
            x2.detach(),
        ]
    assert found == [value.data for value in wanted] == [value.data for value in made]
    for a, b in zip(made, wanted):
        a.backward()
        b.backward()
    assert x.grad == x2.grad
    assert list(v.grad) == list(v2.grad)
    assert list(own.grad) == list(own2.grad)


def test_a_frozen_graph_reads_and_nothing_else():
    with bt.Graph() as graph:
        x = bt.Value(2.0)
        y = x * x
        mark = graph.mark()
    y.backward()
    branches = graph.branches(2)
    assert (y.data, x.grad, len(graph), repr(x), x == 2.0, hash(x) == hash(x)) == (4.0, 4.0, 2, repr(x), True, True)
    refused = [
        lambda: x + 1,
        lambda: x + y,
        lambda: y.backward(),
        lambda: graph.backward(y),
        lambda: graph.rewind(mark),
        graph.clear,
        graph.collect,
        graph.zero_grad,
        lambda: graph.vector([1.0]),
        lambda: bt.Value(1.0, graph=graph),
        lambda: setattr(x, "data", 3.0),
        lambda: setattr(x, "grad", 3.0),
        lambda: graph.recompute(y),
        lambda: graph.branches(1),
    ]
    for call in refused:
        with pytest.raises(bt.BusyError, match="frozen while 2 branches"):
            call()
    graph.drop_branches()
    assert (x.data, x.grad, len(graph)) == (2.0, 4.0, 2)
    assert (x + 1).data == 3.0
    with pytest.raises(bt.BusyError), branches[0]:
        pass


def test_a_branch_only_builds():
    with bt.Graph() as graph:
        x = bt.Value(2.0)
    (branch,) = graph.branches(1)
    with branch:
        y = x * x
        with pytest.raises(bt.BusyError, match="only builds"):
            y.backward()
    graph.join()
    y.backward()
    assert x.grad == 4.0


def test_another_open_branch_is_not_read():
    with bt.Graph() as graph:
        x = bt.Value(2.0)
    first, second = graph.branches(2)
    with first:
        a = x + 1
    with second:
        with pytest.raises(bt.GraphMismatchError, match="two open branches"):
            a + bt.Value(1.0)
        with pytest.raises(bt.GraphMismatchError, match="two open branches"):
            bt.reduce_sum([x, a, bt.Value(1.0)])
        b = x * 3
    other = bt.Value(1.0, graph=bt.Graph())
    with pytest.raises(bt.GraphMismatchError):
        a + other
    graph.join()
    assert (a + b).data == 9.0


def test_values_of_a_branch_are_not_built_on_but_in_it():
    with bt.Graph() as graph:
        x = bt.Value(2.0)
    first, second = graph.branches(2)
    with first:
        a = x + 1
        v = bt.Vector([1.0, 2.0])
        built = len(first)
    operations = [
        lambda: a * 2.0,
        lambda: 2.0 - a,
        lambda: -a,
        lambda: a * a,
        lambda: a + x,
        lambda: bt.tanh(a),
        lambda: a.tanh(),
        lambda: bt.reduce_sum([a, a]),
        lambda: v * 2.0,
        lambda: v.sum(),
        lambda: bt.softmax(v),
        lambda: a.backward(),
        lambda: setattr(a, "data", 1.0),
    ]
    refused = r"two open branches|no thread has entered this branch"
    with second:
        for operation in operations:
            with pytest.raises((bt.GraphMismatchError, bt.BusyError), match=refused):
                operation()
        b = x * 3
    for operation in operations:
        with pytest.raises(bt.BusyError, match=r"no thread has entered this branch"):
            operation()
    with first:
        assert (len(first), a.data, list(v.data)) == (built, 3.0, [1.0, 2.0])
        c = a * 2.0
        with first:
            c = c + 1
        c = c + 1
    with pytest.raises(bt.BusyError):
        c + 1
    graph.join()
    assert ((a + b) * c).data == 72.0
    n = len(graph)
    with pytest.raises(bt.GraphMismatchError, match="two open branches"):
        leaked(graph)
    assert len(graph) == n


def leaked(graph):
    """Calls that each use the result of the previous one."""
    last = []

    def leak(k):
        y = last[-1] * float(k) if last else bt.Value(1.0)
        last.append(y)
        return y

    return bt.parallel(leak, range(5), graph=graph, threads=1)


def test_an_exception_drops_the_nodes_of_its_branch():
    with bt.Graph() as graph:
        x = bt.Value(2.0)
    first, second = graph.branches(2)
    with first:
        a = x + 1
    with pytest.raises(ZeroDivisionError), second:
        b = x + 2
        b + 1 / 0
    with pytest.raises(bt.StaleValueError):
        b.data  # noqa: B018
    graph.join()
    assert (a.data, len(graph)) == (3.0, 3)
    with pytest.raises(bt.StaleValueError):
        b.data  # noqa: B018


def test_dropped_branches_leave_no_trace():
    with bt.Graph() as graph:
        x = bt.Value(2.0)
    (branch,) = graph.branches(1)
    with branch:
        y, v = x + 1, branch.vector([1.0, 2.0])
    graph.drop_branches()
    assert len(graph) == 1
    with pytest.raises(bt.StaleValueError):
        y.data  # noqa: B018
    with pytest.raises(bt.StaleValueError):
        v.data  # noqa: B018
    with pytest.raises(bt.StaleValueError):
        y + 1
    del y, v, branch
    gc.collect()
    assert (x * 2).data == 4.0


def test_branches_nest():
    with bt.Graph() as graph:
        x = bt.Value(3.0)
    (outer,) = graph.branches(1)
    with outer:
        y = x + 1
        inner = outer.branches(2)
        found = []
        for twig in inner:
            with twig:
                found.append(x * y)
        with pytest.raises(bt.BusyError, match="branch 0"):
            graph.join()
        outer.join()
        z = found[0] + found[1]
    graph.join()
    z.backward()
    assert (z.data, x.grad) == (24.0, 14.0)
    assert all(value.graph is graph for value in (y, z, *found))


def test_one_thread_at_a_time_is_in_a_branch():
    graph = bt.Graph()
    (branch,) = graph.branches(1)
    entered, leave, seen = threading.Event(), threading.Event(), []

    def hold():
        with branch:
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    entered.wait(10)
    try:
        with branch:
            pass
    except bt.BusyError as error:
        seen.append(error)
    with pytest.raises(bt.BusyError, match="still in use"):
        graph.join()
    leave.set()
    thread.join()
    assert len(seen) == 1
    graph.join()


def test_joined_vectors_values_and_labels_are_those_of_the_graph():
    with bt.Graph() as graph:
        bt.Value(1.0)
    (branch,) = graph.branches(1)
    with branch:
        v = branch.vector([1.0, 2.0, 3.0])
        part = v[1:]
        named = bt.Value(7.0, label="seven")
        dead = weakref.ref(branch.vector([1.0]))
    graph.join()
    assert dead() is None
    assert (v.graph, part.graph, named.label) == (graph, graph, "seven")
    assert list(part.data) == [2.0, 3.0]
    total = part.sum() + named
    total.backward()
    assert list(v.grad) == [0.0, 1.0, 1.0]
    del v, part
    gc.collect()
    graph.collect()
    assert total.data == 12.0


def test_joined_branches_may_read_different_parameters():
    params = [bt.Parameters(dtype="float64", seed=k) for k in range(3)]
    models = [bt.nn.Linear(p, 2, 1, bias=False) for p in params]
    graph = bt.Graph()
    losses = bt.parallel(lambda k: bt.nn.sample_loss(models[k], [1.0, -2.0], [3.0]), [0, 1, 0, 2], graph=graph)
    with graph:
        bt.reduce_sum(losses).backward()
    for p, times in zip(params, [2.0, 1.0, 1.0]):
        a, b = p.values
        slope = 2.0 * (a - 2.0 * b - 3.0) * times
        assert list(p.grads) == pytest.approx([slope, -2.0 * slope], rel=1e-14)


def test_old_branches_stay_joined_while_new_ones_are_built():
    graph = bt.Graph()
    kept, watched = [], []
    for turn in range(6):
        graph.clear()
        branches = graph.branches(3)
        assert not any(branch is old for branch in branches for old in kept)
        assert not any(old() is branch for branch in branches for old in watched)
        made = []
        for k, branch in enumerate(branches):
            with branch:
                made.append(bt.Value(turn) * k)
        kept.append(branches[0])
        watched.append(weakref.ref(branches[1]))
        del branch, branches
        graph.join()
        assert [y.data for y in made] == [0.0, turn, 2.0 * turn]
        assert all(y.graph is graph for y in made)
        for old in kept:
            with pytest.raises(bt.BusyError, match="joined"), old:
                pass
            with pytest.raises(bt.BusyError, match="joined"):
                len(old)
    assert len(graph) == 9
    reserved = graph.memory()["reserved"]
    for _ in range(10):
        graph.clear()
        bt.parallel(bt.Value, [1.0, 2.0, 3.0], graph=graph)
    assert graph.memory()["reserved"] <= 2 * reserved


def test_what_nested_branches_leave_behind_may_use_the_graph_when_it_goes():
    graph = bt.Graph()
    seen, lengths, references = [], [], []

    def watch(reference):
        with graph:
            seen.append(bt.Value(7.0).data)
            (branch,) = graph.branches(1)
            references.append(weakref.ref(branch, lambda _: lengths.append(len(graph))))
            del branch
            graph.join()

    for turn in range(4):
        with graph:
            bt.Value(turn)
        (outer,) = graph.branches(1)
        with outer:
            inner = outer.branches(2)
            for branch in inner:
                with branch:
                    bt.Value(1.0)
            outer.join()
        references.append(weakref.ref(inner[0], watch))
        del branch, inner, outer
        graph.join()
    assert seen == [7.0] * 3
    assert lengths == [7, 11, 15]
    assert len(graph) == 4 * 3 + 3


def test_parameters_do_not_outlive_their_readers_in_joined_branches():
    def build(graph):
        params = bt.Parameters(dtype="float64")
        model = bt.nn.Linear(params, 1, 1)
        bt.parallel(lambda x: bt.nn.sample_loss(model, [x], [0.0]), [1.0, 2.0], graph=graph)
        return weakref.ref(params)

    graph = bt.Graph()
    first, second = build(graph), build(graph)
    assert first() is not None
    assert second() is not None
    del graph
    gc.collect()
    assert first() is None
    assert second() is None


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "float128", "float32x8"])
def test_every_dtype_has_branches(dtype):
    with bt.Graph(dtype=dtype) as graph:
        x = bt.Value(2.0)
    made = []
    for branch in graph.branches(2):
        with branch:
            made.append(x * x)
    graph.join()
    assert len(graph) == 3
    assert made[0] == made[1]


def test_no_branches_are_refused():
    graph = bt.Graph()
    with pytest.raises(ValueError, match="at least 1"):
        graph.branches(0)
    with pytest.raises(ValueError, match="no open branches"):
        graph.join()
    with pytest.raises(ValueError, match="no open branches"):
        graph.drop_branches()


def chain(x, k):
    y = bt.Value(0.01 * k)
    for i in range(20 + k % 7):
        y = (y + x[i % len(x)] * 0.5).tanh() if i % 2 else y * x[(i + k) % len(x)] + 1.0
    return y


def built(threads):
    with bt.Graph() as graph:
        x = graph.vector([0.1 * k - 1.0 for k in range(16)])
        roots = bt.parallel(lambda k: chain(x, k), range(64), threads=threads)
        bt.reduce_sum(roots).backward()
        return bits(graph, [*roots, *x])


def test_any_number_of_threads_gives_the_same_bits():
    with bt.Graph() as graph:
        x = graph.vector([0.1 * k - 1.0 for k in range(16)])
        roots = [chain(x, k) for k in range(64)]
        bt.reduce_sum(roots).backward()
        wanted = bits(graph, [*roots, *x])
    assert {built(threads) for threads in (1, 2, 8, 64) for _ in range(3)} == {wanted}


def test_parallel_raises_the_first_error_and_appends_nothing():
    with bt.Graph() as graph:
        x = bt.Value(1.0)

        def fails(k):
            y = x + k
            if k == 5:
                raise RuntimeError("five")
            return y

        for threads in (1, 4):
            with pytest.raises(RuntimeError, match="five"):
                bt.parallel(fails, range(16), threads=threads)
            assert len(graph) == 1
        assert bt.parallel(fails, []) == []
        with pytest.raises(ValueError, match="threads must be at least 1"):
            bt.parallel(fails, [1], threads=0)
        with pytest.raises(TypeError, match="graph must be a Graph, found int"):
            bt.parallel(fails, [1], graph=2)


def test_independent_graphs_in_64_threads():
    found = []

    def work(k):
        with bt.Graph():
            x = bt.Value(1.0 + k % 2)
            y = x
            for _ in range(200):
                y = (y * x).sin()
            y.backward()
            found.append((k % 2, y.data, x.grad))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(64)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(found) == 64
    assert len(set(found)) == 2


def test_plain_operators_of_many_threads_on_one_graph():
    with bt.Graph() as graph:
        x = bt.Value(0.5)
    roots = []

    def work():
        y = x
        for _ in range(300):
            y = y * 0.5 + x
        roots.append(y)

    threads = [threading.Thread(target=work) for _ in range(64)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len({root.data for root in roots}) == 1
    for root in roots:
        root.backward()
    assert x.grad == pytest.approx(64 * 2.0)
    assert graph is x.graph


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_works_on_its_copy():
    wanted = built(4)
    with bt.Graph() as graph:
        x = bt.Value(2.0)
    branches = graph.branches(2)
    child = os.fork()
    if child == 0:
        try:
            with branches[0]:
                y = x * 3
            graph.join()
            fine = y.data == 6.0 and built(4) == wanted
        except BaseException:
            fine = False
        os._exit(0 if fine else 1)
    assert os.waitpid(child, 0)[1] == 0
    graph.drop_branches()


def test_calls_that_would_disturb_a_building_thread_are_refused():
    graph = bt.Graph()
    v = graph.vector([0.001 * k for k in range(200_000)])
    mark, first = graph.mark(), v[0] * 2.0
    done, refused, raced = threading.Event(), set(), []
    calls = {
        "rewind": lambda: graph.rewind(mark),
        "backward": first.backward,
        "clear": graph.clear,
        "operator": lambda: first + 1.0,
        "branches": lambda: graph.branches(2),
    }

    def work():
        try:
            for _ in range(30):
                bt.tanh(v).sum()
        except bt.BurtorchError as error:
            raced.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=work)
    thread.start()
    # Only refused calls are repeated: repeating another one would really rewind.
    while not done.is_set() and len(refused) < len(calls):
        for name, call in calls.items():
            if graph_is_busy(graph):
                try:
                    call()
                except bt.BusyError:
                    refused.add(name)
                except bt.BurtorchError as error:
                    raced.append(error)
    thread.join()
    assert refused, "the graph was busy at least once"


def graph_is_busy(graph):
    try:
        len(graph)
    except bt.BusyError:
        return True
    return False
