"""Gradients of arrays larger than any cache: cheap numbers are recomputed, with the same bits as eager arrays."""

from __future__ import annotations

import numpy as np
import pytest

import burtorch as bt

N = 150_000
X = np.random.default_rng(0).standard_normal(N)

BODIES = {
    "log-sum-exp by hand": lambda x: np.max(x) + np.log(np.sum(np.exp(x - np.max(x)))),
    "softmax by hand": lambda x: np.sum(np.exp(x) / np.sum(np.exp(x)) * x),
    "standardised": lambda x: np.sum(np.tanh((x - np.mean(x)) / np.sqrt(np.mean((x - np.mean(x)) ** 2) + 1e-3))),
    "products": lambda x: np.sum(x * np.exp(-x * x)) * np.sum(np.sin(x) * x),
    "quotients": lambda x: np.sum(x / (1.0 + x * x)) / np.sum(np.sqrt(1.0 + x * x)),
    "powers": lambda x: np.sum((x * x) ** 1.5) / np.max(np.abs(x)),
    "a sum that is divided": lambda x: np.sum(x * x / np.sum(x * x) * np.log(1.0 + x * x)),
    "a ramp": lambda x: np.sum(np.maximum(x - np.mean(x), 0.0) ** 2),
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_gradients_have_the_bits_of_eager_arrays(name, dtype):
    body = BODIES[name]
    with bt.Graph(dtype=dtype) as graph:
        x = graph.array(X)
        value = body(x)
        value.backward()
        expected, gradient = value.data, x.grad
    f = bt.value_and_grad(bt.function(body, dtype=dtype))
    for _ in range(2):
        found, slopes = f(X)
        assert found == expected
        np.testing.assert_array_equal(slopes, gradient)
