"""Long bodies without loops: planning takes time by their length, and Ctrl-C ends it."""

from __future__ import annotations

import signal
import time

import numpy as np
import pytest

import burtorch as bt


def unrolled(kind: str, n: int):
    """A body of so many lines, whose functions, products and outer products a planner might compare with each other."""
    lines = [
        "a = bt.sin(a) * x + {k}.5",
        "a = a * a * 0.25 + bt.cos(x)",
        "a = bt.exp(-a * a) + a * {k}.25",
        "a = a + bt.sum(a) * {k}.125" if kind != "scalar" else "a = a - x * 0.125",
        "a = a + (a @ w)[:, None] * w" if kind == "matrix" else "a = a * 0.5 + a / (1.0 + x * x)",
    ]
    body = "\n".join("    " + lines[k % len(lines)].format(k=k % 7) for k in range(n))
    end = "a" if kind == "scalar" else "bt.sum(a)"
    space = {"bt": bt, "w": np.linspace(0.1, 0.2, 5)}
    exec(f"def f(x):\n    a = x\n{body}\n    return {end}\n", space)
    return space["f"]


ARGUMENTS = {"scalar": 0.3, "row": np.linspace(0.1, 0.9, 7), "matrix": np.linspace(0.1, 0.9, 35).reshape(7, 5)}


def seconds(kind: str, n: int) -> float:
    f, x = unrolled(kind, n), ARGUMENTS[kind]
    start = time.process_time()
    bt.grad(f)(x)
    return time.process_time() - start


@pytest.mark.parametrize("kind", ["row", "matrix"])
def test_planning_is_linear_in_the_length_of_a_body(kind):
    """Four times the lines take about four times as long; eight to sixteen times if one pass compares all with all."""
    seconds(kind, 100)
    ratios = []
    for _ in range(3):
        ratios.append(seconds(kind, 8000) / seconds(kind, 2000))
        if ratios[-1] < 6.0:
            break
    assert min(ratios) < 6.0, ratios


@pytest.mark.parametrize("kind", ARGUMENTS)
def test_gradients_of_long_bodies_are_rates(kind):
    f, x = bt.function(unrolled(kind, 10)), ARGUMENTS[kind]
    step = 1e-6 * np.cos(np.arange(np.size(x)) + 1.0).reshape(np.shape(x))
    by_differences = (f(x + step) - f(x - step)) / 2
    assert float(np.sum(bt.grad(f)(x) * step)) == pytest.approx(float(by_differences), rel=1e-4)


@pytest.mark.parametrize("kind", ARGUMENTS)
def test_ctrl_c_ends_the_planning_of_a_long_body(kind):
    """By a timer of the process: a thread would wait for the interpreter until planning is over."""
    f, x, ended = unrolled(kind, 6000), ARGUMENTS[kind], []

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    start = time.perf_counter()
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(KeyboardInterrupt):
            bt.grad(f)(x)
            ended.append(True)
            time.sleep(10.0)
        # 100 ms, and what a busy machine adds.
        assert time.perf_counter() - start < 0.1 + 0.3
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    assert not ended, "the body is too short to be interrupted"
