"""Reductions of long rows, which kernels compute as a whole: the bits of Vectors, of columns and of short rows."""

from __future__ import annotations

import numpy as np
import pytest

import burtorch as bt

LENGTHS = [15, 16, 63, 64, 65, 300]
REDUCTIONS = {"logsumexp": bt.logsumexp, "norm2": np.linalg.norm, "max": np.max, "min": np.min, "sum": np.sum}
OF_VECTORS = {
    "logsumexp": bt.logsumexp,
    "norm2": bt.norm2,
    "max": bt.reduce_max,
    "min": bt.reduce_min,
    "sum": bt.reduce_sum,
}


def tables(n, dtype):
    """Rows of n numbers: ordinary ones, ties, zeros of both signs, infinities, NaN, huge and tiny numbers."""
    rng = np.random.default_rng(n)
    x = rng.standard_normal((9, n)).astype(dtype)
    size = np.finfo(dtype)
    x[1, ::3] = x[1].max()
    x[2] = np.where(np.arange(n) % 2, 0.0, -0.0)
    x[3, n // 2] = np.inf
    x[4, [0, -1]] = -np.inf
    x[5, n // 3] = np.nan
    x[6] *= size.max / 4
    x[7] *= size.tiny / 4
    x[8] = -np.inf
    return x


def bits(x, dtype):
    """As integers; every NaN as one number, and -0.0 as 0.0: gradients are sums."""
    x = np.where(np.isnan(x), np.nan, x).astype(dtype) + 0.0
    return x.view(np.uint64 if x.dtype == np.float64 else np.uint32).tolist()


def of_vectors(name, x, dtype):
    values, gradients = [], []
    graph = bt.Graph(dtype=dtype)
    for row in x:
        given = graph.vector(row)
        value = OF_VECTORS[name](given)
        value.backward(1.5)
        values.append(value.data)
        gradients.append(np.array(given.grad))
    return np.array(values), np.array(gradients)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_all_forms_of_a_reduction_have_the_same_bits(name, dtype):
    reduce = REDUCTIONS[name]
    for n in LENGTHS:
        x = tables(n, dtype)
        weights = np.full(len(x), 1.5, dtype)
        expected = of_vectors(name, x, dtype)
        forms = {
            "rows": lambda x: reduce(x, axis=1),
            "columns": lambda x: reduce(x.T, axis=0),
            "halves": lambda x: reduce(np.stack([x, x]), axis=-1)[1],
            "mapped": lambda x: bt.vmap(lambda row: reduce(row, axis=0))(x),
        }
        for form, f in forms.items():
            found = bt.function(f, dtype=dtype).vjp(x, weights)
            alone = bt.function(f, dtype=dtype)(x)
            for what, one, other in zip(("value", "gradient"), found, expected, strict=True):
                assert bits(one, dtype) == bits(other, dtype), (form, n, what)
            assert bits(alone, dtype) == bits(expected[0], dtype), (form, n, "value alone")
        # Of a graph, whose reverse pass has no exponentials of the value.
        with bt.Graph(dtype=dtype) as graph:
            own = graph.array(x)
            result = reduce(own, axis=1)
            (result * weights).sum().backward()
        assert bits(result.data, dtype) == bits(expected[0], dtype), (n, "eager")
        finite = np.isfinite(expected[0])
        assert bits(np.array(own.grad)[finite], dtype) == bits(expected[1][finite], dtype), (n, "eager gradient")


def test_one_value_with_several_gradients():
    """The exponentials of one logarithm serve two contributions, and those of another program are computed again."""
    x = np.random.default_rng(0).standard_normal((3, 200))

    def twice(x):
        total = bt.logsumexp(x, axis=1)
        return (total * total).sum() + np.exp(total[0] * 0.1)

    total = np.log(np.exp(x).sum(1))
    g = 2 * total
    g[0] += 0.1 * np.exp(total[0] * 0.1)
    expected = g[:, None] * np.exp(x - total[:, None])
    np.testing.assert_allclose(bt.grad(twice)(x), expected, rtol=1e-12)
    v = np.cos(np.arange(600.0)).reshape(3, 200)
    _, along = bt.jvp(twice, (x,), (v,))
    np.testing.assert_allclose(along, (expected * v).sum(), rtol=1e-11)
    step = 1e-6
    numeric = (bt.grad(twice)(x + step * v) - bt.grad(twice)(x - step * v)) / (2 * step)
    np.testing.assert_allclose(bt.hvp(twice)(x, v), numeric, rtol=1e-6, atol=1e-8)
    looped = bt.grad(lambda x: bt.fori_loop(0, 3, lambda k, c: c + bt.logsumexp(x * 1.0 + c, axis=1).sum() * 0.1, 0.0))
    unrolled = bt.grad(lambda x: thrice(x))
    np.testing.assert_allclose(looped(x), unrolled(x), rtol=1e-12)


def thrice(x):
    c = 0.0
    for _ in range(3):
        c = c + bt.logsumexp(x * 1.0 + c, axis=1).sum() * 0.1
    return c
