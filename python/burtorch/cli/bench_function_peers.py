"""The rivals of ``burtorch bench function``: jax, casadi, numba and autograd on its two functions.

Each contender is a loop that returns the last answer. numba has no gradients: its contender is a handwritten
gradient. Rivals are imported only when they are requested.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from burtorch.cli.reproduce.programs.graphs import BY_HAND, POINTS, small, tiny

Loop = Callable[[int], Any]


def _jax_body(graph: str) -> Callable[..., Any]:
    import importlib

    relu = importlib.import_module("jax.numpy")
    return tiny if graph == "tiny" else lambda a, b: small(a, b, lambda x: relu.maximum(x, 0.0))


def _jax_calls(graph: str) -> dict[str, Loop]:
    import importlib

    jax = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", True)
    f = jax.jit(jax.value_and_grad(_jax_body(graph), argnums=(0, 1)))

    def loop(n: int) -> Any:
        for _ in range(n):
            value, grads = f(*POINTS[graph])
            value.block_until_ready()
        return float(value), float(grads[0]), float(grads[1])

    return {"jax.jit": loop}


def _jax_rows(graph: str, x: Any) -> dict[str, tuple[int, Loop]]:
    import importlib

    jax = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", True)
    f = jax.jit(jax.vmap(jax.value_and_grad(_jax_body(graph), argnums=(0, 1))))
    a, b = jax.numpy.asarray(x[:, 0]), jax.numpy.asarray(x[:, 1])

    def loop(n: int) -> Any:
        for _ in range(n):
            value, grads = f(a, b)
            value.block_until_ready()
        return float(value[0]), float(grads[0][0]), float(grads[1][0])

    return {"jax.jit of vmap": (len(x), loop)}


def _casadi_function(graph: str) -> Any:
    import importlib

    ca = importlib.import_module("casadi")
    a, b = ca.SX.sym("a"), ca.SX.sym("b")
    value = tiny(a, b) if graph == "tiny" else small(a, b, lambda x: ca.fmax(x, 0.0))
    return ca.Function("f", [a, b], [value, ca.gradient(value, a), ca.gradient(value, b)])


def _casadi_calls(graph: str) -> dict[str, Loop]:
    f = _casadi_function(graph)

    def loop(n: int) -> Any:
        for _ in range(n):
            value, da, db = f(*POINTS[graph])
        return float(value), float(da), float(db)

    return {"casadi": loop}


def _casadi_rows(graph: str, x: Any) -> dict[str, tuple[int, Loop]]:
    f = _casadi_function(graph).map(len(x))
    a, b = x[:, 0].reshape(1, -1), x[:, 1].reshape(1, -1)

    def loop(n: int) -> Any:
        for _ in range(n):
            value, da, db = f(a, b)
        return float(value[0]), float(da[0]), float(db[0])

    return {"casadi map": (len(x), loop)}


def _numba_gradient(graph: str) -> Any:
    import importlib

    numba = importlib.import_module("numba")
    return numba, numba.njit(BY_HAND[graph])


def _numba_calls(graph: str) -> dict[str, Loop]:
    _, f = _numba_gradient(graph)

    def loop(n: int) -> Any:
        for _ in range(n):
            answer = f(*POINTS[graph])
        return answer

    return {"numba, gradient by hand": loop}


def _numba_rows(graph: str, x: Any) -> dict[str, tuple[int, Loop]]:
    import numpy as np

    numba, f = _numba_gradient(graph)

    @numba.njit  # type: ignore[untyped-decorator, unused-ignore]
    def over(x: Any, values: Any, grads: Any) -> None:
        for k in range(x.shape[0]):
            values[k], grads[k, 0], grads[k, 1] = f(x[k, 0], x[k, 1])

    values, grads = np.zeros(len(x)), np.zeros_like(x)

    def loop(n: int) -> Any:
        for _ in range(n):
            over(x, values, grads)
        return float(values[0]), float(grads[0, 0]), float(grads[0, 1])

    return {"numba, loop by hand": (len(x), loop)}


def _autograd_calls(graph: str) -> dict[str, Loop]:
    import importlib

    autograd = importlib.import_module("autograd")
    numpy = importlib.import_module("autograd.numpy")
    body = tiny if graph == "tiny" else lambda a, b: small(a, b, lambda x: numpy.maximum(x, 0.0))
    f = autograd.value_and_grad(lambda x: body(x[0], x[1]))
    x = numpy.array(POINTS[graph])

    def loop(n: int) -> Any:
        for _ in range(n):
            value, grad = f(x)
        return float(value), float(grad[0]), float(grad[1])

    return {"autograd": loop}


CALLS: dict[str, Callable[[str], dict[str, Loop]]] = {
    "jax": _jax_calls,
    "casadi": _casadi_calls,
    "numba": _numba_calls,
    "autograd": _autograd_calls,
}
ROWS: dict[str, Callable[[str, Any], dict[str, tuple[int, Loop]]]] = {
    "jax": _jax_rows,
    "casadi": _casadi_rows,
    "numba": _numba_rows,
}
PEERS = list(CALLS)
