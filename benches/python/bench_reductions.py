"""Times reductions of arrays, values alone and with gradients, beside NumPy by hand and JAX, on one core.

    python bench_reductions.py [--rounds 30] [--only logsumexp] [--record]

10,000 numbers in cache: all of them, or 100 rows or columns of 100; in float64 and float32. The gradient is that of the
sum of the results. Answers must agree with each rival's to 1e-9 (1e-4 in float32) of their largest number before
anything is timed. Contenders take turns; minima in nanoseconds a number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench_arrays import Call, Cell, compared, installed, ready

import burtorch as bt

import numpy as np  # isort: skip

N = 10_000
SHAPES = {"all": ((N,), None), "rows": ((100, 100), 1), "columns": ((100, 100), 0)}


def logsumexp(x: Any, axis: int | None) -> Any:
    top = np.max(x, axis=axis, keepdims=True)
    return np.squeeze(top + np.log(np.sum(np.exp(x - top), axis=axis, keepdims=True)), axis)


def around_mean(x: Any, y: Any, axis: int | None) -> Any:
    return (x - np.mean(x, axis=axis, keepdims=True)) / (y * (x.size / np.size(y)))


def weights(x: Any) -> Any:
    return np.linspace(0.5, 1.5, x.size, dtype=x.dtype).reshape(x.shape)


def counted_down(x: Any, y: Any, axis: int | None) -> Any:
    return np.flip(np.cumsum(np.flip(weights(x), axis), axis), axis)


# By name: the function in NumPy, and what each number gets of the adjoint 1, from x, the value (with its axis)
# and the axis.
Rule = Callable[[Any, Any, int | None], Any]
REDUCTIONS: dict[str, tuple[Any, Rule | None]] = {
    "sum": (np.sum, lambda x, y, axis: np.ones_like(x)),
    "max": (np.max, lambda x, y, axis: (x == y).astype(x.dtype)),
    "min": (np.min, lambda x, y, axis: (x == y).astype(x.dtype)),
    "norm2": (lambda x, axis: np.linalg.norm(x, axis=axis), lambda x, y, axis: x / y),
    "logsumexp": (logsumexp, lambda x, y, axis: np.exp(x - y)),
    "prod": (np.prod, lambda x, y, axis: y / x),
    "std": (np.std, around_mean),
    "argmax": (np.argmax, None),
    "cumsum": (np.cumsum, counted_down),
}


def ours(name: str, axis: int | None) -> Callable[[Any], Any]:
    if name == "logsumexp":
        return lambda x: bt.logsumexp(x, axis=axis)
    reduce = REDUCTIONS[name][0]
    return lambda x: reduce(x, axis=axis)


def theirs(jax: Any, name: str, axis: int | None) -> Callable[[Any], Any]:
    names = {"norm2": jax.numpy.linalg.norm, "logsumexp": jax.nn.logsumexp}
    reduce = names.get(name) or getattr(jax.numpy, name)
    return lambda x: reduce(x, axis=axis)


def total(name: str, reduce: Callable[[Any], Any], own: Any) -> Callable[[Any], Any]:
    """The sum of the results; of running sums, with weights."""
    if name == "cumsum":
        return lambda x: (reduce(x) * own(x)).sum()
    return lambda x: reduce(x).sum()


def cell(name: str, shape: str, dtype: str, with_gradient: bool) -> Callable[[], Cell]:
    def make() -> Cell:
        extents, axis = SHAPES[shape]
        x = np.random.default_rng(0).standard_normal(extents).astype(dtype)
        if name == "prod":
            x = (np.sign(x) * np.exp(0.01 * x)).astype(dtype)
        by_name, rule = REDUCTIONS[name]
        w = weights(x)

        def by_hand() -> Any:
            y = by_name(x, axis=axis)
            if not with_gradient:
                return y
            kept = y if axis is None or name == "cumsum" else np.expand_dims(y, axis)
            assert rule is not None
            value = (y * w).sum() if name == "cumsum" else np.sum(y)
            return value, rule(x, kept, axis)

        mine = ours(name, axis)
        f = bt.value_and_grad(total(name, mine, lambda x: w)) if with_gradient else bt.function(mine)
        calls: dict[str, Call] = {"burtorch": lambda: f(x), "numpy": by_hand}
        if jax := installed("jax"):
            other = theirs(jax, name, axis)
            other = jax.value_and_grad(total(name, other, lambda x: w)) if with_gradient else other
            calls["jax"] = ready(jax.jit(other), x)
        return calls, 1e-9 if dtype == "float64" else 1e-4

    return make


def title(name: str, shape: str, dtype: str, with_gradient: bool) -> str:
    return f"{name}, {shape}, {dtype}, {'value and gradient' if with_gradient else 'value'}"


CELLS = {
    title(name, shape, dtype, with_gradient): cell(name, shape, dtype, with_gradient)
    for name in REDUCTIONS
    for with_gradient in (False, True)
    if not with_gradient or REDUCTIONS[name][1]
    for dtype in ("float64", "float32")
    for shape in SHAPES
}

if __name__ == "__main__":
    assert __doc__ is not None
    compared(__doc__, CELLS, ("reductions", "Reductions of 10,000 numbers, one core"), ("ns a number", 1e9 / N, 2))
