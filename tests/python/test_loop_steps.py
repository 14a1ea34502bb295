"""Loops without steps, with steps that read no carry, and with random steps, against Python loops."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import burtorch as bt

XS = np.array([0.5, -1.0, 2.0, 0.25])


def kept(c, x):
    """A step whose next carry is independent of the carry."""
    return x * 2.0, c


def numbers(x):
    return np.hstack([np.ravel(a) for a in x]) if isinstance(x, tuple) else np.ravel(x)


@pytest.mark.parametrize("checkpoint", [None, "sqrt", 2])
@pytest.mark.parametrize("n", [0, 1, 3])
def test_a_carry_that_no_step_reads_moves_where_there_is_no_step(n, checkpoint):
    def f(c, w):
        return bt.scan(lambda c, x: kept(c, x * w), c, XS[:n], checkpoint=checkpoint)[0]

    def unrolled(c, w):
        for x in XS[:n]:
            c = x * w * 2.0
        return c * 1.0 + w * 0.0

    for run in (
        lambda f: bt.grad(f, argnums=(0, 1))(3.0, 0.5),
        lambda f: bt.jvp(f)(3.0, 0.5, 1.0, 10.0),
        lambda f: bt.jacobian(f, argnums=(0, 1))(3.0, 0.5),
        lambda f: bt.vmap(bt.grad(f, argnums=(0, 1)), in_axes=(0, None))(np.array([3.0, 4.0]), 0.5),
        lambda f: bt.grad(lambda c: bt.fori_loop(0, n, lambda i, b: f(c, 2.0), c))(1.0),
    ):
        np.testing.assert_array_equal(numbers(run(f)), numbers(run(unrolled)))


def test_a_while_without_a_step_passes_its_carry_on():
    def f(x, w):
        return bt.while_loop(lambda c: c < 2.0, lambda c: w * 5.0, x)

    assert bt.grad(f, argnums=(0, 1))(3.0, 1.0) == (1.0, 0.0)
    assert bt.grad(f, argnums=(0, 1))(1.0, 1.0) == (0.0, 5.0)
    assert bt.jvp(f)(3.0, 1.0, 1.0, 10.0) == (3.0, 1.0)
    assert bt.jvp(f)(1.0, 1.0, 1.0, 10.0) == (5.0, 50.0)
    x = np.array([3.0, 1.0])
    np.testing.assert_array_equal(bt.vmap(bt.grad(f, argnums=(0, 1)), in_axes=(0, None))(x, 1.0), [[1, 0], [0, 5]])
    assert bt.grad(f)(3.0, 1.0) == 1.0
    assert bt.grad(bt.function(f))(1.0, 1.0) == 0.0


def test_conditions_of_numpy():
    assert bt.while_loop(lambda c: np.False_, lambda c: c * 2.0, 1.0) == 1.0
    assert bt.while_loop(lambda c: np.True_, lambda c: c * 2.0, 1.0, max_steps=3) == 8.0


def test_bodies_assign_nothing():
    v = bt.Graph().value(2.0)
    w = bt.Graph().vector([1.0, 2.0])

    def assigning(name, x):
        def body(c, _):
            setattr(x, name, 5.0)
            return c, None

        return body

    for name in ("data", "grad"):
        for x in (v, w):
            body = assigning(name, x)
            with pytest.raises(bt.TraceError, match=f"{name} of a (Value|Vector) would be assigned once"):
                bt.scan(body, 1.0, XS)
            with pytest.raises(bt.TraceError, match="return a carry"):
                bt.grad(lambda c, body=body: bt.fori_loop(0, 2, lambda i, c: body(c, i)[0], c))(1.0)
    assert (v.data, v.grad, w.data.tolist(), w.grad.tolist()) == (2.0, 0.0, [1.0, 2.0], [0.0, 0.0])
    v.data = 3.0
    assert v.data == 3.0


def random_step(rng, depth, n):
    """Random operations on carries, a slice and w; the choice of the next carries, and of the stacked value."""
    ops, k = [], n + 2
    for _ in range(rng.integers(1, 5)):
        kind = rng.integers(0, 8 if depth < 2 else 6)
        more = (int(rng.integers(0, 4)), bool(rng.integers(0, 2)), random_step(rng, depth + 1, 1)) if kind > 5 else ()
        ops.append((int(kind), *rng.integers(0, k, 2), *more))
        k += 1
    return ops, [int(c) for c in rng.choice(k, n, replace=False)], int(rng.integers(0, k))


def stepped(step, carries, x, w, rolled):
    ops, carries_after, stacked = step
    v = [*carries, x, w]
    for kind, i, j, *more in ops:
        a, b = v[i], v[j]
        if kind < 6:
            plain = (a + b, a * b, a - b * 0.5, bt.sin(a), bt.tanh(a * b), bt.where(a > b, a, b * 0.5))
            v.append(plain[kind])
            continue
        n, reverse, inner = more
        if kind == 6:

            def one(i, c, inner=inner, b=b):
                return stepped(inner, [c], b, w, rolled)[0][0]

            v.append(bt.fori_loop(0, n, one, a) if rolled else last_of(one, range(n), a))
        else:
            xs = STEPS[:n]

            def one(x, c, inner=inner, b=b):
                return stepped(inner, [c], x * b, w, rolled)[0][0]

            if rolled:
                v.append(bt.scan(lambda c, x, one=one: (one(x, c), None), a, xs, reverse=reverse)[0])
            else:
                v.append(last_of(one, xs[::-1] if reverse else xs, a))
    return [v[k] for k in carries_after], v[stacked]


def last_of(step, xs, c):
    for x in xs:
        c = step(x, c)
    return c


STEPS = np.random.default_rng(0).normal(size=(5, 3))


def looped(step, n_carries, rng):
    """A loop over random steps, rolled or not."""
    t, reverse = int(rng.integers(0, 5)), bool(rng.integers(0, 2))
    checkpoint = [None, None, "sqrt", 2][rng.integers(0, 4)]

    def f(rolled):
        def f(w, *carries):
            if rolled:
                options = {"reverse": reverse, "checkpoint": checkpoint}
                carries = bt.scan(lambda c, x: stepped(step, c, x, w, True), list(carries), STEPS[:t], **options)[0]
            else:
                xs = STEPS[:t][::-1] if reverse else STEPS[:t]
                carries = last_of(lambda x, c: stepped(step, c, x, w, False)[0], xs, carries)
            return sum(bt.sum(c * c) for c in carries)

        return bt.value_and_grad(f, argnums=tuple(range(n_carries + 1)))

    return f


def test_nested_loops_have_the_gradients_of_unrolled_ones():
    only_close = 0
    for seed in range(120):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(1, 3))
        f = looped(random_step(rng, 0, n), n, rng)
        arguments = rng.normal(size=(n + 1, 3))
        found, expected = (
            np.vstack([np.full(3, v), *d]) for v, d in (f(rolled)(*arguments) for rolled in (True, False))
        )
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-290, err_msg=str(seed))
        only_close += not np.array_equal(found, expected)
    # Carries passed on unchanged, or starting with the same value, are added in another order.
    assert only_close < 24


WITHOUT_CODE = """
import ctypes, sys
import burtorch as bt

def results():
    def step(i, c):
        return [bt.sin(c[0]) * c[1] + i, bt.where(c[0] > 0.5, c[1] * 0.9, c[1] + 0.1)]

    f = bt.value_and_grad(lambda x, y: bt.sum(bt.stack(bt.fori_loop(0, 40, step, [x, y]))), argnums=(0, 1))
    return [f(x, 0.3) for x in (0.5, -1.0, 0.0, float("inf"))]

before = repr(results())
REFUSE_EXECUTABLE_MEMORY = 65, 1, 0, 0, 0
if ctypes.CDLL(None).prctl(*REFUSE_EXECUTABLE_MEMORY):
    sys.exit(3)
sys.exit(before != repr(results()))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the request is one of Linux")
def test_loops_run_where_memory_may_not_become_executable():
    ended = subprocess.run([sys.executable, "-c", WITHOUT_CODE], timeout=120).returncode
    if ended == 3:
        pytest.skip("Linux before 6.3 cannot refuse it")
    assert ended == 0
