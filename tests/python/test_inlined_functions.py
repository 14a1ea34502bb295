"""Traced functions called with Values: the program is inlined in their graph, with the gradients of the body."""

from __future__ import annotations

import numpy as np
import pytest

import burtorch as bt


def scalar(x, y):
    z = (x * y).tanh() + bt.reduce_mul([x, y, x + 1.0]) * 0.5
    return z * 2.0 if z > 0.3 else z - y.detach() * x


CALLS = [
    (scalar, (0.7, -0.4)),
    (scalar, (1.7, 0.9)),
    (lambda a, b: {"sum": a + b, "both": (a * b, a)}, (2.0, 3.0)),
    (lambda x: bt.inner_product(x, x) + x[0], ([1.0, 2.0, 3.0],)),
]


def leaves(arguments):
    return [bt.current_graph().vector(x) if isinstance(x, list) else bt.Value(x) for x in arguments]


@pytest.fixture(autouse=True)
def own_graph():
    """Not the common graph of all tests, which may contain unevaluated nodes: then the body runs."""
    with bt.Graph():
        yield


def flat(result):
    if isinstance(result, dict):
        return [v for part in result.values() for v in flat(part)]
    return [v for part in result for v in flat(part)] if isinstance(result, tuple) else [result]


@pytest.mark.parametrize(("body", "arguments"), CALLS)
def test_values_and_gradients_are_those_of_the_body(body, arguments):
    ran = []

    def counted(*x):
        ran.append("ran")
        return body(*x)

    f = bt.function(counted)
    f(*arguments)
    before = len(ran)
    for _ in range(2):
        mine, plain = leaves(arguments), leaves(arguments)
        found, expected = flat(f(*mine)), flat(body(*plain))
        assert [v.data for v in found] == [v.data for v in expected]
        for a, b in zip(found, expected):
            (a * 1.5).backward()
            (b * 1.5).backward()
        assert [np.ravel(x.grad).tolist() for x in mine] == [np.ravel(x.grad).tolist() for x in plain]
    assert type(f(*mine)) is type(body(*plain))
    # Vectors and lists are different arguments, so it is traced once more.
    assert len(ran) - before <= 1


def test_numbers_among_values_are_constants():
    f = bt.function(lambda x, p: p["scale"] * x * x + p["shift"])
    x = bt.Value(3.0)
    y = f(x, {"scale": 2.0, "shift": 1.0})
    y.backward()
    assert (y.data, x.grad) == (19.0, 12.0)
    w = bt.Value(2.0)
    f(x, {"scale": w, "shift": 1.0}).backward()
    assert w.grad == 9.0


def test_inside_a_recording_and_under_no_grad_the_body_runs():
    inner = bt.function(lambda x: x * x if x > 0.0 else -x)
    outer = bt.function(lambda x: inner(x) + 1.0)
    assert [outer.value_and_grad(x) for x in (2.0, -3.0)] == [(5.0, 4.0), (4.0, -1.0)]
    x = bt.Value(2.0)
    with bt.no_grad():
        y = inner(x)
    assert y.data == 4.0


def test_other_types_of_graphs_and_lists_run_the_body():
    f = bt.function(lambda x: [x * 2.0, x + 1.0])
    x = bt.Value(1.5)
    assert [v.data for v in f(x)] == [3.0, 2.5]
    g = bt.function(lambda x: x / 3.0)
    with bt.Graph(dtype="float32"):
        y = g(bt.Value(1.0))
        assert y.data == float(np.float32(1.0) / np.float32(3.0))


def test_changed_constants_are_seen():
    rate = 2.0
    f = bt.function(lambda x: rate * x)
    assert f(1.0) == 2.0
    rate = 5.0
    assert f(bt.Value(1.0)).data == 5.0


def test_untraceable_functions_still_accept_values():
    f = bt.function(lambda x: x * float(x))
    with pytest.raises(bt.TraceError):
        f(2.0)
    x = bt.Value(3.0)
    y = f(x)
    y.backward()
    assert (y.data, x.grad) == (9.0, 3.0)
