"""Random nests of loops and choices over a few numbers, with delayed and exchanged states, beside those of Python."""

from __future__ import annotations

import random
import time
from types import SimpleNamespace

import numpy as np
import pytest

import burtorch as bt

KEPT = SimpleNamespace(
    while_loop=bt.while_loop,
    fori_loop=bt.fori_loop,
    cond=bt.cond,
    scan=lambda step, state, xs: bt.scan(step, state, np.array(xs)),
)


def python_while(condition, body, state):
    while condition(state):
        state = body(state)
    return state


def python_fori(first, end, body, state):
    for k in range(first, end):
        state = body(float(k), state)
    return state


def python_scan(step, state, xs):
    total = []
    for x in xs:
        state, y = step(state, x)
        total.append(y)
    return state, total


UNROLLED = SimpleNamespace(
    while_loop=python_while,
    fori_loop=python_fori,
    scan=python_scan,
    cond=lambda predicate, yes, no, *state: yes(*state) if predicate else no(*state),
)

NUMBERS = [
    lambda a, b, p: a + b * p[0],
    lambda a, b, p: a - 0.5 * b,
    lambda a, b, p: a * b,
    lambda a, b, p: bt.sin(a + p[1]),
    lambda a, b, p: a / (1.0 + bt.abs(b)),
    lambda a, b, p: bt.where(a > b, a, 0.5 * b),
    lambda a, b, p: bt.tanh(a - b),
    lambda a, b, p: bt.sqrt(a * a + b * b),
    lambda a, b, p: bt.max(a, b) - p[2],
    lambda a, b, p: p[3] * bt.softplus(a),
    lambda a, b, p: bt.grad(lambda z: bt.sin(z) * b + z * z * p[2])(a),
    lambda a, b, p: bt.jvp(lambda z: bt.tanh(z * b), (a,), (1.0,))[1],
]


def new_state(rng, state, p):
    """Another state: a third of it is what other numbers were, as in a delay or an exchange."""
    new = []
    for _ in state:
        if rng.random() < 0.35:
            new.append(rng.choice(state))
            continue
        x = rng.choice(state)
        for _ in range(rng.randint(1, 3)):
            x = rng.choice(NUMBERS)(x, rng.choice(state), p)
        new.append(bt.tanh(x))
    return tuple(new)


def nest(m, seed, state, p, depth):
    """Work on a state of numbers, the same for a seed."""
    rng = random.Random(seed)
    for _ in range(rng.randint(1, 2)):
        inner = rng.randrange(1 << 30)

        def body(state, inner=inner):
            return nest(m, inner, state, p, depth - 1)

        kind = rng.choice(["while", "fori", "scan", "cond", "new"]) if depth else "new"
        if kind == "new":
            state = new_state(rng, state, p)
        elif kind == "while":
            most, limit = float(rng.randint(0, 4)), rng.uniform(-1.0, 0.9)

            def goes_on(s, most=most, limit=limit):
                return bt.where(s[0] < most, s[1][-1], -9.0) > limit

            state = m.while_loop(goes_on, lambda s, body=body: (s[0] + 1.0, body(s[1])), (0.0 * p[0], state))[1]
        elif kind == "fori":
            state = m.fori_loop(0, rng.randint(0, 3), lambda k, s, body=body: body(s), state)
        elif kind == "scan":
            xs = [rng.uniform(-1.0, 1.0) for _ in range(rng.randint(1, 4))]

            def step(s, x, body=body):
                new = body(s)
                return (new[0] + 0.1 * x, *new[1:]), s[-1]

            state, seen = m.scan(step, state, xs)
            for k in range(len(xs)):
                state = (state[0] + 0.01 * seen[k], *state[1:])
        else:

            def other(*s, inner=inner):
                return nest(m, inner + 1, s, p, depth - 1)

            state = m.cond(state[0] > 0.1, lambda *s, body=body: body(s), other, *state)
    return state


def function(m, seed):
    rng = random.Random(seed)
    n, depth, inner = rng.randint(1, 4), rng.randint(1, 3), rng.randrange(1 << 30)

    def f(p):
        state = nest(m, inner, tuple(p[k % 4] * (0.5 + k) for k in range(n)), p, depth)
        total = 0.0 * p[0]
        for k, x in enumerate(state):
            total = total + (k + 1.0) * x
        return total

    return f


def bits(x):
    return np.asarray(x, np.float64).tobytes()


# The draws of a seed are the same in each call.
@pytest.mark.filterwarnings("ignore::burtorch.StaleRiskWarning")
@pytest.mark.parametrize("seed", range(150))
def test_nests_are_those_of_python(seed):
    kept, unrolled = function(KEPT, seed), function(UNROLLED, seed)
    p, d = np.random.default_rng(seed).uniform(-1.0, 1.0, (2, 4))
    d[seed % 4] = 0.0
    assert bits(bt.function(kept)(p)) == bits(bt.function(unrolled)(p))
    assert bits(bt.jvp(kept, (p,), (d,))[1]) == bits(bt.jvp(unrolled, (p,), (d,))[1])
    found, expected = (bt.grad(f)(p) for f in (kept, unrolled))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
    # Of derivatives in turn, whose terms are hidden where no path reaches.
    found, expected = (bt.jvp(bt.grad(f), (p,), (d,))[1] for f in (kept, unrolled))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def nested(depth, x):
    """The sine of x within loops of one step."""

    def body(c, _):
        return (nested(depth - 1, c) if depth else np.sin(c)), None

    return bt.scan(body, x, None, length=1)[0]


def test_deep_nests_are_planned_in_linear_time():
    began = time.monotonic()
    for depth in (0, 5, 6, 7, 14, 24):
        assert nested(depth, 0.5) == np.sin(0.5)
        assert bt.grad(lambda x, depth=depth: nested(depth, x))(0.5) == pytest.approx(np.cos(0.5), rel=1e-15)
    rows = np.linspace(0.0, 1.0, 9)
    assert np.array_equal(bt.vmap(lambda x: nested(12, x))(rows), bt.vmap(lambda x: nested(0, x))(rows))
    # It was minutes: each level doubled the time.
    assert time.monotonic() - began < 20.0
