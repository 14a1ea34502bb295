"""Oracles and batches of another size in every call: blocks of equal programs are planned once for all of them."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import burtorch as bt

RNG = np.random.default_rng(0)
SIZES = [1, 7, 64, 65, 300, 2, 129, 1000, 64, 31, 513, 3]
W = RNG.normal(size=(5, 3))


def bodies(w, b):
    return {
        "linear": lambda x, y: (bt.inner_product(x[:3], w[0]) - y) ** 2,
        "layer": lambda x, y: bt.sum(bt.tanh(x @ w + b) ** 2) * y,
        "softmax": lambda x, y: bt.logsumexp(x @ w) - (x @ w)[0] * y,
        "norm": lambda x, y: bt.norm(x) * bt.sum(b) + y,
        "loop": lambda x, y: bt.fori_loop(0, 3, lambda i, c: bt.sin(c) * b[1] + x[i], y),
        "branch": lambda x, y: bt.where(y > 0, bt.sum(x * x) * b[0], bt.exp(x[1]) * b[2]),
    }


def made(name, dtype, factor=1.0):
    params = bt.Parameters(dtype=dtype)
    w, b = params.tensor((5, 3)), params.tensor(3)
    params.values[:] = np.concatenate([W.ravel() * factor, [0.5, -0.25, 2.0]])
    return bt.Oracle(bodies(w, b)[name], params=params)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", bodies(W, W[0]))
def test_a_new_size_has_the_bits_of_a_new_oracle(name, dtype):
    oracle = made(name, dtype)
    for n in SIZES:
        x, y = RNG.normal(size=(n, 5)).astype(dtype), RNG.normal(size=n).astype(dtype)
        value, gradient = oracle(x, y)
        gradient = bytes(memoryview(gradient))
        fresh = made(name, dtype)
        expected, of_fresh = fresh(x, y)
        assert (value, gradient) == (expected, bytes(memoryview(of_fresh)))
        one = np.mean([float(fresh.loss(x[k : k + 1], y[k : k + 1])) for k in range(min(n, 20))])
        if n <= 20:
            np.testing.assert_allclose(value, one, rtol=1e-5 if dtype == "float32" else 1e-13)


def test_programs_that_differ_in_a_constant_are_not_mixed_up():
    """Of equal shapes and operations, one after the other and from several threads."""
    x = RNG.normal(size=(200, 5))

    def check(factors, failures):
        for factor in factors:
            for n in (3, 64, 200):
                f = bt.vmap(lambda r, factor=factor: bt.sum(bt.exp(r) * factor) + factor, reduce="sum")
                expected = (np.exp(x[:n]) * factor).sum() + n * factor
                if not np.isclose(f(x[:n]), expected, rtol=1e-12):
                    failures.append((factor, n))

    failures = []
    threads = [threading.Thread(target=check, args=(np.arange(k, 40, 4) * 0.5 - 7.0, failures)) for k in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    check([0.0, -0.0, np.inf, 1.0, 2.0], failures)
    assert failures == []
