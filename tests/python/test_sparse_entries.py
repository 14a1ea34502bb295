"""Hessians and Jacobians after many calls: the same numbers as column by column, also at kinks and infinities."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

import burtorch as bt

N = 20
# Enough calls that entries are computed by separate operations.
CALLS = 100


def columns(f, x):
    """The Hessian column by column, with exact zeros where the pattern has none."""
    found = np.column_stack([f.hvp(x, unit) for unit in np.eye(len(x))])
    return np.where(f.hessian_sparsity(x).toarray() == 1, found, 0.0)


def same(found, expected):
    """Equal bits; all NaNs count as equal."""
    found, expected = np.asarray(found), np.asarray(expected)
    is_nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(found), is_nan)
    np.testing.assert_array_equal(found[~is_nan].view(np.int64), expected[~is_nan].view(np.int64))


def windows(term):
    return lambda x: sum(term(x[i], x[i + 1]) for i in range(len(x) - 1))


BODIES = {
    "rosenbrock": windows(lambda a, b: 100.0 * (b - a**2) ** 2 + (1.0 - a) ** 2),
    "tanh": windows(lambda a, b: bt.tanh(a * b) * bt.sigmoid(b - a)),
    "kinks": windows(lambda a, b: bt.relu(a) * b + abs(a - b) * a + bt.max(a, b) ** 2 + bt.min(a * a, b)),
    "roots and logs": windows(lambda a, b: bt.sqrt(a) * b + bt.log(a + b) * b),
    "powers": windows(lambda a, b: (a * a + 0.5) ** b + b**2.5),
    "quotients": windows(lambda a, b: a / b + bt.atan2(a, b) + bt.hypot(a, b)),
    "where": windows(lambda a, b: bt.where(True, a * a * b, b / a)),
    "inner products": lambda x: bt.inner_product(x[:5], x[3:8]) + bt.reduce_sum_of_squares(x) * x[0],
    "detached": windows(lambda a, b: a.detach() * b * b + a * a * 0.5),
    "one meets all": lambda x: x[0] * bt.sin(sum(x[i] * x[i] for i in range(len(x)))),
    "linear": lambda x: sum(x[i] * (1.0 + i) for i in range(len(x))),
}
POINTS = {
    "ordinary": np.linspace(0.2, 1.9, N),
    "with signs": np.cos(np.arange(N) * 1.7),
    "zeros": np.where(np.arange(N) % 3 == 0, 0.0, 0.7),
    "negative zeros": np.where(np.arange(N) % 4 == 0, -0.0, -0.3),
    "ties": np.ones(N),
    "an infinity": np.where(np.arange(N) == 7, math.inf, 0.5),
    "a NaN": np.where(np.arange(N) == 3, math.nan, 0.5),
    "huge and tiny": np.where(np.arange(N) % 5 == 0, 1e200, 1e-200),
}


@pytest.mark.parametrize("name", BODIES)
def test_hessians_after_many_calls_have_the_bits_of_columns(name):
    f = bt.function(BODIES[name])
    for point in POINTS.values():
        same(f.sparse_hessian(point).toarray(), columns(f, point))
        same(f.hessian(point), columns(f, point))
    out = f.sparse_hessian(POINTS["ordinary"])
    for _ in range(CALLS):
        f.sparse_hessian(POINTS["ordinary"], out=out)
    for title, point in POINTS.items():
        expected = columns(f, point)
        same(f.sparse_hessian(point, out=out).toarray(), expected)
        same(f.hessian(point), expected)
        # A non-finite result leaves no remains.
        same(f.sparse_hessian(POINTS["ordinary"]).toarray(), columns(f, POINTS["ordinary"]))
        assert title


def test_a_row_that_is_not_finite_leaves_others_as_they_are():
    f = bt.function(windows(lambda a, b: bt.sqrt(a) * b**3))
    x = np.linspace(1.0, 2.0, N)
    for _ in range(CALLS):
        f.sparse_hessian(x)
    clean = f.sparse_hessian(x).toarray()
    for k in range(N - 1):
        for bad in (0.0, -1.0, math.inf, math.nan):
            y = x.copy()
            y[k] = bad
            found = f.sparse_hessian(y).toarray()
            far = [i for i in range(N) if abs(i - k) > 1]
            same(found[np.ix_(far, far)], clean[np.ix_(far, far)])


def test_jacobians_after_many_calls_have_the_bits_of_rows():
    def body(x):
        return [bt.sqrt(x[i]) * x[i + 1] + bt.tanh(x[i + 1]) + abs(x[i]) for i in range(len(x) - 1)]

    f = bt.function(body)
    first = {title: f.sparse_jacobian(point).toarray() for title, point in POINTS.items()}
    for _ in range(CALLS):
        f.sparse_jacobian(POINTS["ordinary"])
    for title, point in POINTS.items():
        found = f.sparse_jacobian(point).toarray()
        same(found, first[title])
        same(found, np.where(f.jacobian_sparsity(point).toarray() == 1, f.jacobian(point), 0.0))


def test_each_path_has_entries_of_its_own():
    def body(x):
        total = x[0] * 0.0
        for i in range(len(x) - 1):
            total = total + (x[i] ** 2 * x[i + 1] if x[i] > 0.5 else x[i] ** 3)
        return total

    f = bt.function(body)
    rng = np.random.default_rng(0)
    points = [np.where(rng.random(N) < 0.5, 0.25, 0.75) for _ in range(3)]
    for _ in range(CALLS):
        for point in points:
            same(f.sparse_hessian(point).toarray(), columns(f, point))


def test_parameters_are_read_at_every_call():
    weight = bt.parameter(2.0)
    f = bt.function(lambda x: sum(weight * x[i] ** 2 * x[i + 1] for i in range(len(x) - 1)))
    x = np.linspace(0.1, 1.0, N)
    for call in range(CALLS):
        weight.value = 1.0 + call
        same(f.sparse_hessian(x).toarray(), columns(f, x))
        np.testing.assert_allclose(f.sparse_hessian(x)[0, 0], 2 * (1.0 + call) * x[1], rtol=1e-14)


def test_functions_of_float32_are_differentiated_in_float64():
    f = bt.function(BODIES["rosenbrock"], dtype="float32")
    x = np.linspace(0.1, 1.0, N)
    for _ in range(CALLS):
        same(f.sparse_hessian(x).toarray(), columns(f, x))


def test_running_sums_take_memory_by_the_number_of_inputs():
    """A pattern of 20,000 rows: sets of all inputs that a running sum depends on would take gigabytes."""
    n = 20_000
    f = bt.function(windows(lambda a, b: a * b))
    pattern = f.hessian_sparsity(np.ones(n))
    assert pattern.nnz == 2 * (n - 1)


def test_the_pattern_of_a_recurrence_takes_time_by_its_entries():
    def chain(x):
        a = x[0]
        for i in range(1, len(x)):
            a = bt.sin(a) * 0.5 + x[i] * x[i - 1]
        return a

    f = bt.function(chain)
    for n in (2, 30, 600):
        x = np.linspace(0.0, 1.0, n)
        f(x)
        start = time.process_time()
        pattern = f.hessian_sparsity(x)
        assert time.process_time() - start < 0.5
        dense = f.hessian(x)
        assert not dense[pattern.toarray() == 0].any()
    assert pattern.nnz == 599 * 599 + 2
