"""Times value and gradient of loops beside jax.lax.scan, on one core.

    python bench_loops.py [--rounds 15] [--record]

Values and gradients must agree to 1e-9 of their largest number before anything is timed. Both run the same source over
their own `numpy`, in float64 and in turns; minima in microseconds, and milliseconds of the first call. Searches,
which take derivatives themselves in `while` loops within `while` loops, are called as they are.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import loops_of_others  # noqa: E402
import numpy as np  # noqa: E402
from record import least, timed, write_record  # noqa: E402

import burtorch as bt  # noqa: E402

jax.config.update("jax_enable_x64", True)

OURS = SimpleNamespace(
    np=np,
    scan=bt.scan,
    while_loop=bt.while_loop,
    fori_loop=bt.fori_loop,
    cond=bt.cond,
    grad=bt.grad,
    jvp=bt.jvp,
    logsumexp=bt.logsumexp,
)
THEIRS = SimpleNamespace(
    np=jnp,
    scan=jax.lax.scan,
    while_loop=jax.lax.while_loop,
    fori_loop=jax.lax.fori_loop,
    cond=jax.lax.cond,
    grad=jax.grad,
    jvp=jax.jvp,
    logsumexp=jax.scipy.special.logsumexp,
)

Case = tuple[Callable[[Any], Any], Any]
CASES: dict[str, Callable[[Any, np.random.Generator], Case]] = {}
SEARCHES: dict[str, Callable[[Any], Case]] = {}


def case(title: str) -> Callable[[Any], Any]:
    def named(make: Any) -> Any:
        CASES[title] = make
        return make

    return named


def pendulum(steps: int) -> Callable[[Any, np.random.Generator], Case]:
    def make(m: Any, _: np.random.Generator) -> Case:
        def f(p: Any) -> Any:
            def step(state: Any, _: Any) -> Any:
                x, v = state
                return (x + 0.01 * v, v - 0.01 * (p[1] * v + m.np.sin(x))), None

            (x, v), _ = m.scan(step, (p[0], 0.0 * p[0]), None, length=steps)
            return x * x + v * v

        return f, np.array([1.0, 0.1])

    return make


for count in (1_000, 10_000, 100_000):
    CASES[f"pendulum by Euler's method, {count:,} steps"] = pendulum(count)


@case("Lorenz system by Runge and Kutta's method, a vector of 3, 2,000 steps")
def lorenz(m: Any, _: np.random.Generator) -> Case:
    def f(p: Any) -> Any:
        def slope(u: Any) -> Any:
            return m.np.stack([p[0] * (u[1] - u[0]), u[0] * (p[1] - u[2]) - u[1], u[0] * u[1] - p[2] * u[2]])

        def step(u: Any, _: Any) -> Any:
            h = 0.001
            k1 = slope(u)
            k2 = slope(u + h / 2 * k1)
            k3 = slope(u + h / 2 * k2)
            k4 = slope(u + h * k3)
            return u + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

        u, _ = m.scan(step, p[3:], None, length=2000)
        return (u * u).sum()

    return f, np.array([10.0, 28.0, 8 / 3, 1.0, 1.0, 1.0])


@case("oscillator by Runge and Kutta's method, two numbers, 2,000 steps")
def oscillator(m: Any, _: np.random.Generator) -> Case:
    def f(p: Any) -> Any:
        def slope(x: Any, v: Any) -> Any:
            return v, -p[0] * v - p[1] * m.np.sin(x)

        def step(state: Any, _: Any) -> Any:
            (x, v), h = state, 0.01
            k1 = slope(x, v)
            k2 = slope(x + h / 2 * k1[0], v + h / 2 * k1[1])
            k3 = slope(x + h / 2 * k2[0], v + h / 2 * k2[1])
            k4 = slope(x + h * k3[0], v + h * k3[1])
            new = [s + h / 6 * (a + 2 * b + 2 * c + d) for s, a, b, c, d in zip(state, k1, k2, k3, k4, strict=True)]
            return (new[0], new[1]), None

        (x, v), _ = m.scan(step, (p[2], p[3]), None, length=2000)
        return x * x + v * v

    return f, np.array([0.5, 1.3, 1.0, 0.0])


@case("GARCH(1, 1), 2,000 days")
def garch(m: Any, rng: np.random.Generator) -> Case:
    days = rng.standard_normal(2000)

    def f(p: Any) -> Any:
        def step(v: Any, x: Any) -> Any:
            v = p[0] + p[1] * x * x + p[2] * v
            return v, 0.5 * (m.np.log(v) + x * x / v)

        return m.scan(step, 1.0, days)[1].sum()

    return f, np.array([0.1, 0.1, 0.8])


def kalman(n: int) -> Callable[[Any, np.random.Generator], Case]:
    def make(m: Any, rng: np.random.Generator) -> Case:
        ys = rng.standard_normal(2000)
        F, H = np.eye(n) + 0.1 * np.eye(n, k=1), np.eye(1, n)

        def f(p: Any) -> Any:
            def step(state: Any, y: Any) -> Any:
                x, P = state
                x, P = F @ x, F @ P @ F.T + p[0] * np.eye(n)
                S = (H @ P @ H.T)[0, 0] + p[1]
                K, e = (P @ H.T)[:, 0] / S, y - x[0]
                return (x + K * e, P - m.np.outer(K, H @ P)), 0.5 * (m.np.log(S) + e * e / S)

            return m.scan(step, (np.zeros(n), np.eye(n)), ys)[1].sum()

        return f, np.array([0.1, 0.5])

    return make


CASES["Kalman filter of 2 states, 2,000 steps"] = kalman(2)
CASES["Kalman filter of 4 states, 2,000 steps"] = kalman(4)


@case("hidden Markov model of 8 states, 2,000 observations")
def markov(m: Any, rng: np.random.Generator) -> Case:
    states, kinds = 8, 12
    seen = rng.integers(0, kinds, 2000)

    def f(p: Any) -> Any:
        moves, shows = p[: states * states].reshape(states, states), p[states * states :].reshape(states, kinds)
        moves = moves - m.logsumexp(moves, axis=1)[:, None]
        shows = shows - m.logsumexp(shows, axis=1)[:, None]

        def step(a: Any, o: Any) -> Any:
            return m.logsumexp(a[:, None] + moves, axis=0) + shows[:, o], None

        return m.logsumexp(m.scan(step, np.full(states, -np.log(states)), seen)[0], axis=0)

    return f, 0.3 * rng.standard_normal(states * (states + kinds))


@case("recurrent network of 50 units, 500 steps")
def recurrent(m: Any, rng: np.random.Generator) -> Case:
    n = 50
    xs = rng.standard_normal((500, n))

    def f(p: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = m.np.tanh(p.reshape(n, n) @ h + x)
            return h, h.sum()

        return m.scan(step, np.zeros(n), xs)[1].mean()

    return f, 0.1 * rng.standard_normal(n * n)


@case("gated recurrent network of 16 units, 2,000 steps")
def gated(m: Any, rng: np.random.Generator) -> Case:
    n, d = 16, 8
    xs = rng.standard_normal((2000, d))

    def f(p: Any) -> Any:
        W, U = p[: 3 * n * d].reshape(3 * n, d), p[3 * n * d : 3 * n * (d + n)].reshape(3 * n, n)

        def step(h: Any, x: Any) -> Any:
            a, u = W @ x + p[3 * n * (d + n) :], U @ h
            z, r = 1 / (1 + m.np.exp(-(a[:n] + u[:n]))), 1 / (1 + m.np.exp(-(a[n : 2 * n] + u[n : 2 * n])))
            h = (1 - z) * h + z * m.np.tanh(a[2 * n :] + r * u[2 * n :])
            return h, (h * h).sum()

        return m.scan(step, np.zeros(n), xs)[1].sum()

    return f, 0.1 * rng.standard_normal(3 * n * (n + d + 1))


@case("heat in a rod of 64 cells, 2,000 steps")
def heat(m: Any, rng: np.random.Generator) -> Case:
    def f(p: Any) -> Any:
        def step(u: Any, _: Any) -> Any:
            inner = u[1:-1] + 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])
            return m.np.concatenate([u[:1], inner, u[-1:]]), None

        u, _ = m.scan(step, p, None, length=2000)
        return (u * u).sum()

    return f, rng.standard_normal(64)


@case("predators and prey, 32 pairs, 500 steps")
def predators(m: Any, rng: np.random.Generator) -> Case:
    start = rng.uniform(1, 10, (2, 32))

    def f(p: Any) -> Any:
        def step(u: Any, _: Any) -> Any:
            x, y = u[0], u[1]
            return m.np.stack([x + 0.01 * (p[0] * x - p[1] * x * y), y + 0.01 * (p[2] * x * y - p[3] * y)]), None

        return m.scan(step, start, None, length=500)[0].sum()

    return f, np.array([1.1, 0.4, 0.1, 0.4])


@case("averages of 64 paths of 250 days")
def paths(m: Any, rng: np.random.Generator) -> Case:
    noise = rng.standard_normal((250, 64))

    def f(p: Any) -> Any:
        def step(s: Any, z: Any) -> Any:
            s = s * m.np.exp((p[1] - 0.5 * p[2] ** 2) / 250 + p[2] * z / np.sqrt(250.0))
            return s, s

        prices = m.scan(step, p[0] * np.ones(64), noise)[1]
        return m.np.maximum(prices.mean(axis=0) - 100.0, 0.0).mean()

    return f, np.array([100.0, 0.05, 0.2])


@case("ridge regression by 300 steps of gradient descent, by its step and weight")
def descent(m: Any, rng: np.random.Generator) -> Case:
    X = rng.standard_normal((50, 5))
    y = X @ np.arange(5.0)

    def f(p: Any) -> Any:
        step, weight = m.np.exp(p[0]), m.np.exp(p[1])
        w, _ = m.scan(
            lambda w, _: (w - step * (X.T @ (X @ w - y) / 50 + weight * w), None), np.zeros(5), None, length=300
        )
        return ((X @ w - y) ** 2).mean()

    return f, np.array([-3.0, -2.0])


def argmin(m: Any, value: Any, gradient: Any, x: Any) -> Any:
    """A minimum, by steps that grow after ten successes and shrink after a failure, as in GradBench."""

    def length(v: Any) -> Any:
        return m.np.sqrt((v * v).sum())

    def step(state: Any) -> Any:
        def grow(x: Any, best: Any, slope: Any, rate: Any, successes: Any) -> Any:
            return x, best, slope, 2.0 * rate, 0.0, 1.0

        def move(x: Any, best: Any, slope: Any, rate: Any, successes: Any) -> Any:
            trial = x - rate * slope

            def go() -> Any:
                reached = value(trial)
                return m.cond(
                    reached < best,
                    lambda: (trial, reached, gradient(trial), rate, successes + 1.0, 1.0),
                    lambda: (x, best, slope, rate / 2.0, 0.0, 1.0),
                )

            return m.cond(length(x - trial) <= 1e-5, lambda: (x, best, slope, rate, successes, 0.0), go)

        return m.cond(state[4] == 10.0, grow, move, *state[:5])

    def goes_on(state: Any) -> Any:
        return m.np.logical_and(length(state[2]) > 1e-5, state[5] > 0.0)

    return m.while_loop(goes_on, step, (x, value(x), gradient(x), 1e-5, 0.0, 1.0))[0]


def particle(m: Any) -> Case:
    """The position of a charge for which a particle reaches the origin."""
    start = np.array([[0.0, 8.0], [0.75, 0.0]])

    def potential(x: Any, w: Any) -> Any:
        charges = [(x[0] - 10.0) ** 2 + (x[1] - (10.0 - w)) ** 2, (x[0] - 10.0) ** 2 + x[1] ** 2]
        return 1.0 / m.np.sqrt(charges[0]) + 1.0 / m.np.sqrt(charges[1])

    field = m.grad(potential)

    def step(state: Any, w: Any) -> Any:
        return m.np.stack([state[0] + 0.1 * state[1], state[1] - 0.1 * field(state[0], w)])

    def miss(w: Any) -> Any:
        pair = (m.np.asarray(start), step(start, w))
        last = m.while_loop(lambda pair: pair[1][0, 1] > 0.0, lambda pair: (pair[1], step(pair[1], w)), pair)[0]
        return (last[0, 0] - last[0, 1] / last[1, 1] * last[1, 0]) ** 2

    def f(w: Any) -> Any:
        return argmin(m, lambda w: miss(w[0]), lambda w: m.np.stack([m.jvp(miss, (w[0],), (1.0,))[1]]), w)

    return f, np.array([0.0])


def saddle(m: Any) -> Case:
    """The saddle point of a function by nested descents: the outer one differentiates through the inner one."""

    def height(y: Any, x: Any) -> Any:
        return x[0] ** 2 + x[1] ** 2 - y[0] ** 2 - y[1] ** 2

    def highest(x: Any, start: Any) -> Any:
        return argmin(m, lambda y: -height(y, x), lambda y: -m.grad(height)(y, x), start)

    def f(start: Any) -> Any:
        def value(x: Any) -> Any:
            return height(highest(x, start), x)

        def slope(x: Any) -> Any:
            return m.np.stack([m.jvp(value, (x,), (direction,))[1] for direction in np.eye(2)])

        x = argmin(m, value, slope, start)
        return m.np.concatenate([x, highest(x, start)])

    return f, np.array([1.0, 1.0])


SEARCHES["particle of GradBench, a loop in a loop in a loop"] = particle
SEARCHES["saddle of GradBench, a descent in a descent"] = saddle
CASES.update(loops_of_others.CASES)
SEARCHES.update(loops_of_others.SEARCHES)


def measured(make: Any, rounds: int) -> list[float]:
    """Minimum seconds of burtorch and JAX, and their first calls."""
    (ours, p), (theirs, _) = (make(m, np.random.default_rng(0)) for m in (OURS, THEIRS))
    function = bt.function(ours)
    compiled = jax.jit(jax.value_and_grad(theirs))
    return in_turns([lambda: function.value_and_grad(p), lambda: jax.block_until_ready(compiled(p))], rounds)


def searched(make: Any, rounds: int) -> list[float]:
    """The same for a search."""
    (ours, p), (theirs, _) = make(OURS), make(THEIRS)
    function, compiled = bt.function(ours), jax.jit(theirs)
    return in_turns([lambda: (function(p),), lambda: (jax.block_until_ready(compiled(p)),)], rounds)


def in_turns(calls: list[Callable[[], Any]], rounds: int) -> list[float]:
    first = [timed(call) for call in calls]
    for found, expected in zip(first[0][1], first[1][1], strict=True):
        found, expected = np.asarray(found), np.asarray(expected)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 * np.abs(expected).max())
    return [*least(calls, rounds), first[0][0], first[1][0]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    lines = ["| loop | burtorch, us | jax.lax.scan, us | ratio | first call, ms |", "|---|---|---|---|---|"]
    print("\n".join(lines))
    measures: list[tuple[str, Any, Any]] = [(title, measured, make) for title, make in CASES.items()]
    measures += [(title, searched, make) for title, make in SEARCHES.items()]
    for title, measure, make in measures:
        ours, theirs, first, first_of_rival = measure(make, options.rounds)
        figures = f"{ours * 1e6:,.0f} | {theirs * 1e6:,.0f} | {ours / theirs:.2f}"
        lines.append(f"| {title} | {figures} | {first * 1e3:.1f}; {first_of_rival * 1e3:.0f} |")
        print(lines[-1], flush=True)
    if options.record:
        table = "\n".join(lines)
        heading = f"# Loops: value and gradient, float64, one core\n\nburtorch {bt.__version__}, JAX {jax.__version__}"
        how = f"minima of {options.rounds} calls in turns, by `python bench_loops.py --record`"
        write_record("loops", f"{heading}; {how}.\n\n{table}\n")


if __name__ == "__main__":
    main()
