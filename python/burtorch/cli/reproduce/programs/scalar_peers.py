"""Rivals on one scalar expression: value and both partials at one point, float64.

    micrograd     builds the graph and walks it backward, every time (as burtorch's eager tier)
    autograd      value_and_grad of a Python function, which builds a tape at every call
    python        floats and a gradient written by hand: what an interpreter costs without any engine
    numpy         the same lines on NumPy's float64
    numba         the same lines compiled
    casadi        a Function that gives value and gradient, called with two Python floats
    casadi-c      that Function as generated C, compiled by gcc -O3 -march=native, on buffers set beforehand

Tensor frameworks are in ``tensor_graphs``. Only the requested library is imported.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .graphs import ANSWERS, BY_HAND, EXPRESSIONS, POINTS, is_right
from .peer import Peer

Answer = tuple[float, float, float]
Made = tuple[Callable[[], Any], Callable[[], Answer]]
"""A step, and a function that returns its result as three floats."""
TOLERANCES = {"tflite": 1e-5}  # float32, the only floating-point type of its kernels
NAMES = ("micrograd", "python", "numba", "jax", "casadi", "casadi-c")
"""Those of ``bench_peers.py``."""


def program(name: str, graph: str) -> Made:
    """The rival on a graph, after one step. ImportError: it is not installed; AssertionError: its result is wrong."""
    makers = _makers()
    if name not in makers:
        raise ValueError(f"unknown rival {name!r}: one of {', '.join(makers)}")
    step, read = makers[name](graph)
    step()
    answer = read()
    if not is_right(answer, graph, TOLERANCES.get(name, 1e-13)):
        raise AssertionError(f"{name} on {graph}: expected {ANSWERS[graph]}, found {answer}")
    return step, read


def make(name: str, graph: str) -> Peer | None:
    """The rival on a graph as a peer; None if it is not installed."""
    import numpy as np

    started = time.perf_counter()
    try:
        step, read = program(name, graph)
    except (ImportError, FileNotFoundError):
        return None
    seconds = time.perf_counter() - started

    def loss_and_grad() -> tuple[float, Any]:
        value, *partials = read()
        return value, np.array(partials)

    return Peer(name, step, loss_and_grad, lambda: np.array(POINTS[graph]), seconds)


def _makers() -> dict[str, Callable[[str], Made]]:
    from .tensor_graphs import MAKERS

    return {
        "micrograd": _micrograd,
        "autograd": _autograd,
        "python": _python,
        "numpy": _numpy,
        "numba": _numba,
        "casadi": _casadi,
        "casadi-c": _casadi_c,
        **MAKERS,
    }


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


def _autograd(graph: str) -> Made:
    from autograd import numpy as anp
    from autograd import value_and_grad

    expression = EXPRESSIONS[graph]
    function = value_and_grad(lambda x: expression(x[0], x[1], lambda y: anp.maximum(y, 0.0)))
    x = anp.array(POINTS[graph])

    def read() -> Answer:
        value, grad = function(x)
        return float(value), float(grad[0]), float(grad[1])

    return lambda: function(x), read


def _by_hand(graph: str, number: Callable[[float], Any]) -> Made:
    function, (a, b) = BY_HAND[graph], map(number, POINTS[graph])

    def step() -> Any:
        return function(a, b)

    return step, step


def _python(graph: str) -> Made:
    return _by_hand(graph, float)


def _numpy(graph: str) -> Made:
    import numpy as np

    return _by_hand(graph, np.float64)


def _numba(graph: str) -> Made:
    import numba

    function, (a, b) = numba.njit("UniTuple(f8, 3)(f8, f8)")(BY_HAND[graph]), POINTS[graph]

    def step() -> Any:
        return function(a, b)

    return step, step


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
    cells = array("d", [*POINTS[graph], 0.0, 0.0, 0.0])
    for i in range(2):
        buffer.set_arg(i, memoryview(cells)[i : i + 1])
    for i in range(3):
        buffer.set_res(i, memoryview(cells)[2 + i : 3 + i])

    def read() -> Answer:
        trigger()
        return float(cells[2]), float(cells[3]), float(cells[4])

    read.kept = buffer, compiled  # type: ignore[attr-defined]  # the trigger holds neither
    return trigger, read
