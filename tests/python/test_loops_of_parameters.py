"""Loops, branches and checkpoints of numbers whose bodies read Parameters: a backward pass reaches these."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest

import burtorch as bt

XS = np.array([1.0, 2.0, 4.0])


def stepped(step, carry, xs):
    for x in xs:
        carry = step(carry, x)
    return carry


# Each with the same computation by a Python loop.
CASES = {
    "scan": (
        lambda w: bt.scan(lambda c, x: (c * w[0] + x, None), 1.0, XS)[0] * w[1],
        lambda w: stepped(lambda c, x: c * w[0] + x, 1.0, XS) * w[1],
    ),
    "stacked": (
        lambda w: bt.scan(lambda c, x: (c + x, c * w[2]), 1.0, XS)[1].sum() * w[1],
        lambda w: (1.0 * w[2] + 2.0 * w[2] + 4.0 * w[2]) * w[1],
    ),
    "reversed": (
        lambda w: bt.scan(lambda c, x: (c * w[0] + x, None), 1.0, XS, reverse=True)[0],
        lambda w: stepped(lambda c, x: c * w[0] + x, 1.0, XS[::-1]),
    ),
    "checkpoints": (
        lambda w: bt.scan(lambda c, x: (c * w[0] + x, None), 1.0, XS, checkpoint="sqrt")[0] * w[1],
        lambda w: stepped(lambda c, x: c * w[0] + x, 1.0, XS) * w[1],
    ),
    "tensor as xs": (
        lambda w: bt.scan(lambda c, x: (c * x, None), 1.0, w)[0] * w[1],
        lambda w: w[0] * w[1] * w[2] * w[1],
    ),
    "fori": (
        lambda w: bt.fori_loop(0, 3, lambda i, c: c * w[0] + i, 1.0) * w[1],
        lambda w: stepped(lambda c, i: c * w[0] + i, 1.0, [0, 1, 2]) * w[1],
    ),
    "while": (
        lambda w: bt.while_loop(lambda c: c < 20.0, lambda c: c * w[0] + 1.0, 1.0) * w[1],
        lambda w: stepped(lambda c, _: c * w[0] + 1.0, 1.0, range(4)) * w[1],
    ),
    "cond": (
        lambda w: bt.cond(True, lambda x: x * w[0], lambda x: x, 3.0) * w[1],
        lambda w: 3.0 * w[0] * w[1],
    ),
    "cond without arguments": (
        lambda w: bt.cond(False, lambda: w[1] * 1.0, lambda: w[0] * w[2]) * w[1],
        lambda w: w[0] * w[2] * w[1],
    ),
    "checkpoint": (lambda w: bt.checkpoint(lambda x: x * w[0])(3.0) * w[1], lambda w: 3.0 * w[0] * w[1]),
    "tensor as a carry": (
        lambda w: bt.fori_loop(0, 3, lambda i, c: c * 2.0 + i, w)[1] * w[1],
        lambda w: stepped(lambda c, i: c * 2.0 + i, w[1], [0, 1, 2]) * w[1],
    ),
    "tensor as a carry of while": (
        lambda w: bt.while_loop(lambda c: bt.sum(c) < 20.0, lambda c: c * 2.0, w)[0] * w[1],
        lambda w: w[0] * 2.0 * 2.0 * w[1],
    ),
    "tensor as an argument of cond": (
        lambda w: bt.cond(True, lambda x: bt.sum(x**2) + w[0], lambda x: bt.sum(x), w) * w[1],
        lambda w: (w[0] * w[0] + w[1] * w[1] + w[2] * w[2] + w[0]) * w[1],
    ),
    "element as an argument of cond": (
        lambda w: bt.cond(False, lambda x: x, lambda x: x * x * w[2], w[0]) * w[1],
        lambda w: w[0] * w[0] * w[2] * w[1],
    ),
    "tensor as an argument of a checkpoint": (
        lambda w: bt.checkpoint(lambda x, k: bt.sum(x * x) * k * w[0])(w, 2) * w[1],
        lambda w: (w[0] * w[0] + w[1] * w[1] + w[2] * w[2]) * 2.0 * w[0] * w[1],
    ),
    "tensor in a container": (
        lambda w: bt.fori_loop(0, 2, lambda i, c: {"a": c["a"] * c["b"][0], "b": c["b"]}, {"a": 1.0, "b": w})["a"],
        lambda w: w[0] * w[0],
    ),
    "integers as arguments": (lambda w: bt.cond(True, lambda k: w[0] * k, lambda k: w[1], 3), lambda w: w[0] * 3.0),
    "nested": (
        lambda w: bt.scan(lambda c, x: (bt.fori_loop(0, 2, lambda i, d: d * w[0], c) + x, None), 1.0, XS)[0],
        lambda w: stepped(lambda c, x: c * w[0] * w[0] + x, 1.0, XS),
    ),
    "carries in containers": (
        lambda w: bt.scan(lambda c, x: ({"a": c["a"] * w[0], "n": c["n"] + 1}, None), {"a": 1.0, "n": 0}, XS)[0]["a"],
        lambda w: w[0] * w[0] * w[0],
    ),
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", CASES)
def test_gradients(name, dtype):
    looped, unrolled = CASES[name]
    found = []
    for body in (looped, unrolled):
        params = bt.Parameters(dtype=dtype)
        w = params.tensor(3, init=2.0)
        with bt.Graph(dtype=dtype):
            loss = body(w)
            loss.backward()
            found.append((float(loss.data), list(params.grads)))
    assert found[0][0] == found[1][0]
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-6 if dtype == "float32" else 1e-14)
    assert any(found[0][1])


def test_a_recurrent_network_from_zeros():
    params = bt.Parameters(dtype="float64", seed=1)
    matrix, head = params.tensor((3, 3), init="normal"), params.tensor(3, init=1.0)

    def loss(h):
        return bt.sum(bt.scan(lambda h, x: (bt.tanh(matrix @ h + x), None), h, np.ones((4, 3)))[0] * head) ** 2

    gradients = []
    for first in (bt.array(np.zeros(3)), np.zeros(3)):
        params.zero_grad()
        loss(first).backward()
        gradients.append(list(params.grads))
    assert gradients[0] == gradients[1]
    assert all(gradients[0])


def test_values_of_transforms_are_numbers():
    params = bt.Parameters(dtype="float64")
    w = params.tensor(3, init=2.0)

    def body(x):
        return (w * x).sum()

    x = np.ones(3)
    value, pull = bt.vjp(body, x)
    assert isinstance(value, float)
    assert pull(1.0)[0].tolist() == [2.0, 2.0, 2.0]
    assert isinstance(bt.jvp(body, (x,), (x,))[0], float)
    assert isinstance(bt.value_and_grad(body)(x)[0], float)
    assert isinstance(bt.vjp(lambda x: (body(x), x), x, has_aux=True)[2], np.ndarray)


def test_numbers_where_nothing_is_recorded():
    params = bt.Parameters(dtype="float64")
    w = params.tensor(3, init=2.0)

    def body(first):
        return bt.scan(lambda c, x: (c * w[0] + x, None), first, XS)[0]

    with bt.no_grad():
        assert body(1.0) == 20.0
        assert isinstance(body(1.0), float)
    assert bt.function(body)(1.0) == 20.0
    assert isinstance(bt.function(body)(1.0), float)
    assert bt.grad(body)(1.0) == 8.0
    assert isinstance(bt.scan(lambda c, x: (c + x, None), 1.0, XS)[0], float)
    with bt.Graph(dtype="float32"), pytest.raises(TypeError, match="float32 graph cannot read float64 Parameters"):
        body(1.0)


LOOPS = {
    "fori": lambda step, begin: bt.fori_loop(0, 3, lambda i, c: step(c, 1.0), begin),
    "scan": lambda step, begin: bt.scan(lambda c, x: (step(c, x), None), begin, np.ones(3))[0],
    "while": lambda step, begin: bt.while_loop(
        lambda c: c[-1] < 3, lambda c: (*step(c[:-1], 1.0), c[-1] + 1), (*begin, 0), max_steps=5
    )[:-1],
}
UNREAD = {
    "read": lambda c, w, x: (c[0] * w[1], c[1] + x),
    "of a parameter": lambda c, w, x: (c[0] * w[1], c[1] * w[2]),
    "of another carry": lambda c, w, x: (c[0] * w[1], c[0] * c[1] * w[2] + x),
    "a sum": lambda c, w, x: (c[0] * w[1], c[1] + c[0] * w[2]),
}


@pytest.mark.parametrize("reduce", ["mean", "sum"])
@pytest.mark.parametrize("unread", UNREAD)
@pytest.mark.parametrize("loop", LOOPS)
def test_carries_that_no_row_changes(loop, unread, reduce):
    """Of each carry alone, in a batch whose rows share the loop."""

    def body(w, x, k):
        return LOOPS[loop](lambda c, x: UNREAD[unread](c, w, x), (w[0], 1.0))[k] * x

    w = np.array([0.5, 1.5, 2.0])
    params = bt.Parameters(dtype="float64")
    tensor = params.tensor(3)
    tensor.values[:] = w
    for n, k in itertools.product((1, 3, 4), (0, 1)):
        rows = np.arange(1.0, n + 1)
        one = functools.partial(body, k=k)
        expected = sum(bt.grad(one)(w, x) for x in rows) / (1 if reduce == "sum" else n)
        found = bt.grad(bt.vmap(one, in_axes=(None, 0), reduce=reduce))(w, rows)
        np.testing.assert_allclose(found, expected, rtol=1e-14, atol=1e-14)
        if reduce == "mean":
            bt.Oracle(lambda x, y, one=one: one(tensor, x), params=params)(rows, rows)
            np.testing.assert_allclose(params.grads, expected, rtol=1e-14, atol=1e-14)


def test_parameters_of_another_dtype_are_refused():
    v = bt.Parameters(dtype="float32").tensor(3, init=0.5)
    calls = (
        lambda: bt.scan(lambda c, x: (c * v[0], None), 1.0, XS),
        lambda: bt.fori_loop(0, 2, lambda i, c: c * v[0], 1.0),
        lambda: bt.while_loop(lambda c: c < 2.0, lambda c: c / v[0], 1.0),
        lambda: bt.cond(True, lambda: v[0] * 2, lambda: v[1]),
        lambda: bt.cond(True, lambda x: x * v[0], lambda x: x, 1.0),
        lambda: bt.checkpoint(lambda x: x * v[0])(1.0),
        lambda: bt.fori_loop(0, 2, lambda i, c: c * 2, v),
    )
    for call in calls:
        with pytest.raises(TypeError, match="float64 graph cannot read float32 Parameters; make both of one dtype"):
            call()
