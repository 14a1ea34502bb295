"""More loops for bench_loops.py: recursions and searches from textbooks. Each is a function of one array, made for a
module `m` with the names of JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Case = tuple[Callable[[Any], Any], Any]


def newton(m: Any, _: np.random.Generator) -> Case:
    def f(p: Any) -> Any:
        def g(x: Any) -> Any:
            return m.np.log(1.0 + m.np.exp(p[0] * x)) + p[1] * (x - 1.0) ** 2

        slope, bend = m.grad(g), m.grad(m.grad(g))
        return m.scan(lambda x, _: (x - 0.5 * slope(x) / bend(x), None), p[2], None, length=200)[0] ** 2

    return f, np.array([1.5, 0.3, 2.0])


def tokens(m: Any, rng: np.random.Generator) -> Case:
    n, symbols = 16, 30
    seen, targets = rng.integers(0, symbols, (2, 2000))

    def f(p: Any) -> Any:
        table, rest = p[: symbols * n].reshape(symbols, n), p[symbols * n :]
        W, head = rest[: n * n].reshape(n, n), rest[n * n :].reshape(symbols, n)

        def step(h: Any, pair: Any) -> Any:
            h = m.np.tanh(W @ h + table[pair[0]])
            scores = head @ h
            return h, m.logsumexp(scores, axis=0) - scores[pair[1]]

        return m.scan(step, np.zeros(n), (seen, targets))[1].mean()

    return f, 0.2 * rng.standard_normal(2 * symbols * n + n * n)


def power(m: Any, rng: np.random.Generator) -> Case:
    def f(p: Any) -> Any:
        A = p.reshape(6, 6)
        return m.fori_loop(0, 500, lambda _, B: A @ B / 1.01, np.eye(6)).sum()

    return f, np.linalg.qr(rng.standard_normal((6, 6)))[0].ravel()


def riccati(m: Any, rng: np.random.Generator) -> Case:
    start, inputs = np.eye(4) + 0.1 * rng.standard_normal((4, 4)), rng.standard_normal((4, 2))

    def f(p: Any) -> Any:
        A, B = start + p[0] * np.eye(4), inputs * p[1]

        def step(P: Any, _: Any) -> Any:
            K = m.np.linalg.solve(p[2] * np.eye(2) + B.T @ P @ B, B.T @ P @ A)
            return p[3] * np.eye(4) + A.T @ P @ (A - B @ K), None

        return m.np.trace(m.scan(step, np.eye(4), None, length=300)[0])

    return f, np.array([0.01, 1.0, 0.5, 1.0])


def logistic(m: Any, _: np.random.Generator) -> Case:
    def f(p: Any) -> Any:
        return m.scan(lambda x, _: (p[0] * x * (1.0 - x), x), p[1], None, length=5000)[1].sum()

    return f, np.array([2.7, 0.3])


def wave(m: Any, rng: np.random.Generator) -> Case:
    def f(p: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            u, v = state
            v = v + 0.1 * (m.np.roll(u, 1) - 2 * u + m.np.roll(u, -1))
            return (u + 0.1 * v, v), None

        u, v = m.scan(step, (p, 0.0 * p), None, length=1000)[0]
        return (u * u).sum() + (v * v).sum()

    return f, rng.standard_normal(100)


def ball(m: Any) -> Case:
    """The state after five bounces, and its derivative along a direction: a while loop of unknown length."""

    def state(p: Any) -> Any:
        def step(s: Any) -> Any:
            y, v, t, n = s
            y, v = y + 0.001 * v, v - 0.001 * 9.81
            hits = y < 0.0
            where = m.np.where
            return where(hits, -y, y), where(hits, -p[1] * v, v), t + 0.001, where(hits, n + 1.0, n)

        y, v, t, _ = m.while_loop(lambda s: s[3] < 5.0, step, (p[0], 0.0 * p[0], 0.0 * p[0], 0.0 * p[0]))
        return y + v * v + t

    return lambda p: m.np.stack(m.jvp(state, (p,), (np.array([1.0, 0.5]),))), np.array([1.0, 0.8])


CASES: dict[str, Callable[[Any, np.random.Generator], Case]] = {
    "Newton's method with nested gradients, 200 steps": newton,
    "network of 16 units over 2,000 tokens of 30 kinds": tokens,
    "power 500 of a matrix of 6 x 6, by fori_loop": power,
    "Riccati's recursion of 4 states and 2 inputs, 300 steps": riccati,
    "logistic map, 5,000 steps": logistic,
    "wave on a ring of 100 cells, 1,000 steps": wave,
}
SEARCHES: dict[str, Callable[[Any], Case]] = {"bouncing ball, a while loop of 2,000 steps, forwards": ball}
