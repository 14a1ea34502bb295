"""Loops, branches and checkpoints of numbers whose bodies read Parameters: a backward pass reaches these."""

from __future__ import annotations

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
    with bt.Graph(dtype="float32"):
        assert body(1.0) == 20.0
