"""Rivals on one scalar expression: value and both partials at one point, float64.

    tiny    a = -41, b = 2: c = a + b; d = a b + b^3; g = (c - d)^2 / 2      (10 nodes: Figure 1 of the paper)
    small   a = -4, b = 2: the expression of micrograd's README              (32 nodes)

    micrograd     builds the graph and walks it backward, every time (as burtorch's eager tier)
    python        floats and a gradient written by hand: what an interpreter costs without any engine
    numba         the same lines compiled
    jax           jit of value_and_grad, called with two Python floats
    casadi        a Function that gives value and gradient, called with two Python floats
    casadi-c      that Function as generated C, compiled by gcc -O3 -march=native, on buffers set beforehand

The jax rival switches float64 on for the whole process: measure other models in another one.
"""

from __future__ import annotations

import math
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .peer import Peer

Answer = tuple[float, float, float]
NAMES = ("micrograd", "python", "numba", "jax", "casadi", "casadi-c")
POINTS = {"tiny": (-41.0, 2.0), "small": (-4.0, 2.0)}
ANSWERS: dict[str, Answer] = {
    "tiny": (612.5, -35.0, 1050.0),
    "small": (24.70408163265306, 138.83381924198252, 645.5772594752186),
}


def tiny(a: Any, b: Any, relu: Callable[[Any], Any]) -> Any:
    """Figure 1 of the paper, on numbers of any kind."""
    c = a + b
    d = a * b + b**3
    e = c - d
    f = e**2
    return f / 2.0


def small(a: Any, b: Any, relu: Callable[[Any], Any]) -> Any:
    """The expression of micrograd's README, on numbers of any kind."""
    c = a + b
    d = a * b + b**3
    c = c + (c + 1)
    c = c + (1 + c + (-a))
    d = d + (d * 2 + relu(b + a))
    d = d + (3 * d + relu(b - a))
    e = c - d
    f = e**2
    g = f / 2.0
    return g + 10.0 / f


def tiny_by_hand(a: float, b: float) -> Answer:
    """Value and partials of tiny."""
    e = a + b - (a * b + b * b * b)
    return e * e / 2.0, e * (1.0 - b), e * (1.0 - a - 3.0 * b * b)


def small_by_hand(a: float, b: float) -> Answer:
    """Value and partials of small, where c = 3a + 4b + 2 and d = 12 (a b + b^3) + 4 relu(b + a) + relu(b - a)."""
    c = a + b
    c = c + (c + 1.0)
    c = c + (1.0 + c - a)
    d = a * b + b * b * b
    left, right = b + a, b - a
    d = d + (d * 2.0 + (left if left > 0.0 else 0.0))
    d = d + (3.0 * d + (right if right > 0.0 else 0.0))
    e = c - d
    f = e * e
    de = e - 20.0 / (f * e)
    on_left = 4.0 if left > 0.0 else 0.0
    on_right = 1.0 if right > 0.0 else 0.0
    da = de * (3.0 - (12.0 * b + on_left - on_right))
    db = de * (4.0 - (12.0 * (a + 3.0 * b * b) + on_left + on_right))
    return f / 2.0 + 10.0 / f, da, db


EXPRESSIONS = {"tiny": tiny, "small": small}
BY_HAND = {"tiny": tiny_by_hand, "small": small_by_hand}


def make(name: str, graph: str) -> Peer | None:
    """The rival on a graph, its answers checked; None where it is not installed."""
    makers = {
        "micrograd": _micrograd,
        "python": _python,
        "numba": _numba,
        "jax": _jax,
        "casadi": _casadi,
        "casadi-c": _casadi_c,
    }
    if name not in makers:
        raise ValueError(f"unknown rival {name!r}: one of {', '.join(makers)}")
    started = time.perf_counter()
    try:
        step, read = makers[name](graph)
    except (ImportError, FileNotFoundError):
        return None
    step()
    seconds = time.perf_counter() - started
    answer = read()
    if not all(math.isclose(x, y, rel_tol=1e-13) for x, y in zip(answer, ANSWERS[graph])):
        raise AssertionError(f"{name} on {graph}: expected {ANSWERS[graph]}, found {answer}")

    def loss_and_grad() -> tuple[float, Any]:
        value, *partials = read()
        return value, np.array(partials)

    return Peer(name, step, loss_and_grad, lambda: np.array(POINTS[graph]), seconds)


Made = tuple[Callable[[], Any], Callable[[], Answer]]


def _micrograd(graph: str) -> Made:
    from micrograd.engine import Value

    expression, (a0, b0) = EXPRESSIONS[graph], POINTS[graph]
    relu = Value.relu

    def step() -> Answer:
        a, b = Value(a0), Value(b0)
        g = expression(a, b, relu)
        g.backward()
        return g.data, a.grad, b.grad

    return step, step


def _python(graph: str) -> Made:
    function, (a, b) = BY_HAND[graph], POINTS[graph]

    def step() -> Answer:
        return function(a, b)

    return step, step


def _numba(graph: str) -> Made:
    import numba

    function, (a, b) = numba.njit("UniTuple(f8, 3)(f8, f8)")(BY_HAND[graph]), POINTS[graph]

    def step() -> Any:
        return function(a, b)

    return step, step


def _jax(graph: str) -> Made:
    import jax

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    jax.config.update("jax_enable_x64", True)
    expression, (a, b) = EXPRESSIONS[graph], POINTS[graph]
    function = jax.jit(jax.value_and_grad(lambda a, b: expression(a, b, jax.nn.relu), argnums=(0, 1)))

    def read() -> Answer:
        value, (da, db) = function(a, b)
        return float(value), float(da), float(db)

    return lambda: function(a, b), read


def _casadi_function(graph: str) -> Any:
    import casadi

    a, b = casadi.SX.sym("a"), casadi.SX.sym("b")
    value = EXPRESSIONS[graph](a, b, lambda x: casadi.if_else(x > 0, x, 0))
    return casadi.Function(graph, [a, b], [value, casadi.gradient(value, a), casadi.gradient(value, b)])


def _casadi(graph: str) -> Made:
    function, (a, b) = _casadi_function(graph), POINTS[graph]

    def read() -> Answer:
        value, da, db = function(a, b)
        return float(value), float(da), float(db)

    return lambda: function(a, b), read


def _casadi_c(graph: str) -> Made:
    import casadi

    function = _casadi_function(graph)
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, f"{graph}.so")
        source = Path(function.generate(f"{graph}.c")).resolve()
        subprocess.run(["gcc", "-O3", "-march=native", "-shared", "-fPIC", "-o", library, source], check=True)
        source.unlink()
        compiled = casadi.external(graph, str(library))
    buffer, trigger = compiled.buffer()
    cells = np.zeros(5)
    cells[:2] = POINTS[graph]
    for i in range(2):
        buffer.set_arg(i, memoryview(cells[i : i + 1]))
    for i in range(3):
        buffer.set_res(i, memoryview(cells[2 + i : 3 + i]))

    def read() -> Answer:
        trigger()
        return float(cells[2]), float(cells[3]), float(cells[4])

    read.kept = buffer, compiled  # type: ignore[attr-defined]  # the trigger holds neither
    return trigger, read
