"""Functions with branches, data-dependent loops and early returns, against the eager graph bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

import burtorch as bt


def branches(x, y):
    if x < y:
        z = x * y
    elif x > 2.0 * y:
        z = (x - y).tanh()
    else:
        z = y / (1.0 + x * x)
    return max(z, 0.1 * x) + abs(y)


def newton(x, y):
    guess = 1.0 + 0.0 * x
    while abs(guess * guess - abs(x) - 1.0) > 1e-6:
        guess = 0.5 * (guess + (abs(x) + 1.0) / guess)
    return guess * y


def early(x, y):
    total = 0.0 * x
    for k in range(12):
        total = total + x / (k + 1.0)
        if total > y:
            return total * y
        if not total:
            return y
    return total - y


def nested(x, y):
    if branches(x, y) >= y:
        return newton(y, x)
    return early(x, y) if x != y else x


BODIES = [branches, newton, early, nested]


def eager(body, x, y):
    with bt.Graph().scope():
        a, b = bt.Value(x), bt.Value(y)
        result = body(a, b)
        result.backward()
        return result.data, a.grad, b.grad


def points(n, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2)) * 3.0
    x[rng.random((n, 2)) < 0.05] = 0.0
    same = rng.random(n) < 0.05
    x[same, 1] = x[same, 0]
    return x


@pytest.mark.parametrize("body", BODIES)
def test_equal_to_eager_bit_for_bit(body):
    f = bt.function(body, max_paths=32)
    for x, y in points(25_000, 1).tolist():
        value, (dx, dy) = f.value_and_grad(x, y)
        assert (value, dx, dy) == eager(body, x, y), (x, y)
    stats = f.stats()
    assert stats["paths"] <= 32
    assert stats["traced"] == stats["paths"] + stats["dropped"]


@pytest.mark.parametrize("body", BODIES)
def test_rows_take_their_own_paths(body):
    f = bt.function(body)
    rows = points(3000, 2)
    values, grads = f.map_value_and_grad(rows, threads=2)
    expected = [f.value_and_grad(*row) for row in rows.tolist()]
    assert values.tolist() == [value for value, _ in expected]
    assert grads.tolist() == [list(grad) for _, grad in expected]
    assert f.map(rows).tolist() == values.tolist()


def test_paths_are_bounded_and_the_oldest_go_first():
    f = bt.function(lambda x, y: early(x, y), max_paths=3)
    for x in np.linspace(0.1, 5.0, 50):
        f(float(x), 4.0)
    stats = f.stats()
    assert stats["paths"] == 3
    assert stats["dropped"] == stats["traced"] - 3 > 0


def test_nan_answers_no_comparison():
    f = bt.function(lambda x: x if x < 1.0 else x * 2.0)
    assert f(0.5) == 0.5
    assert np.isnan(f(float("nan")))
    assert f.stats()["paths"] == 2


def test_comparisons_of_integers_are_exact():
    f = bt.function(lambda x: x if x < 2**53 else -x)
    assert f(2.0**53 - 1) == 2.0**53 - 1
    assert f(2.0**53) == -(2.0**53)
    assert f(3) == 3.0


def test_bound_functions_change_paths():
    x, grad = np.array([1.0, 2.0]), np.zeros(2)
    bound = bt.function(branches).bind(x, grad)
    for row in points(500, 3).tolist():
        x[:] = row
        assert (bound(), *grad.tolist()) == eager(branches, *row)


def test_a_body_that_flips_coins_is_refused():
    flips = iter([True, False] * 100)
    f = bt.function(lambda x: x if (x > 0.0) == next(flips) else -x)
    with pytest.warns(bt.StaleRiskWarning, match="list_iterator, which every run of the body advances"):
        f(1.0)
    # The second call replays: side effects of the body happen only while it is traced.
    assert f(2.0) == 2.0
