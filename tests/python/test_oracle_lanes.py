"""Oracles in lanes, at other points and into other memory, and gradients of single samples."""

from __future__ import annotations

import math
from array import array

import numpy as np
import pytest

import burtorch as bt

WIDTHS = {"float32": [1, 4, 8, 16, "auto"], "float64": [1, 2, 4, 8, "auto"]}


@pytest.fixture(params=["float32", "float64"])
def model(request):
    return bt.nn.CharMLP(bt.Parameters(dtype=request.param, seed=2), vocab=7, context=3, embedding=5, hidden=6)


def batch(n):
    return [[(k * k + 3 * j) % 7 for j in range(3)] for k in range(n)], [(5 * k + 2) % 7 for k in range(n)]


@pytest.mark.parametrize("n", [1, 2, 5, 16, 23, 64, 70])
def test_every_width_gives_the_same_gradient(model, n):
    dtype = model.params.dtype
    tolerance = 1e-4 if dtype == "float32" else 1e-12
    loss, grad = bt.Oracle(model, lanes=1)(*batch(n))
    grad = list(grad)
    for lanes in WIDTHS[dtype]:
        oracle = bt.Oracle(model, lanes=lanes)
        assert oracle.lanes == lanes
        loss_too, grad_too = oracle(*batch(n))
        assert loss_too == pytest.approx(loss, rel=tolerance)
        assert list(grad_too) == pytest.approx(grad, rel=tolerance, abs=tolerance * max(map(abs, grad)))
        assert list(oracle.grad(*batch(n))) == list(grad_too)


def test_invalid_lanes_and_threads_are_refused(model):
    for lanes in [0, 3, 32, "many", 1.5]:
        with pytest.raises((ValueError, TypeError)):
            bt.Oracle(model, lanes=lanes)
    with pytest.raises(ValueError, match="threads"):
        bt.Oracle(model, threads=0)


def test_the_difference_of_gradients_at_two_points(model):
    """MARINA, EF21 and PAGE need grad f(x) - grad f(y) on one batch, without changing x."""
    params = model.params
    oracle = bt.Oracle(model)
    code = "f" if params.dtype == "float32" else "d"
    here = array(code, bytes(8 * params.n if code == "d" else 4 * params.n))
    there = array(code, here)
    point = [v + 0.25 for v in params.values]
    params.grads[:] = 3.0
    values = list(params.values)
    loss_here, out = oracle(*batch(9), out=here)
    assert out is here
    loss_there, _ = oracle(*batch(9), at=point, out=there)
    assert oracle(*batch(9), at=array(code, point), out=there)[0] == loss_there
    assert list(params.values) == values
    assert set(params.grads) == {3.0}
    difference = [a - b for a, b in zip(here, there)]
    params.values[:] = point
    loss, grad = oracle(*batch(9))
    assert loss == loss_there != loss_here
    assert list(grad) == list(there)
    params.values[:] = values
    oracle(*batch(9))
    assert [a - b for a, b in zip(oracle.grad(*batch(9)), there)] == difference
    assert any(difference)


def test_memory_that_does_not_fit_is_refused_and_nothing_changes(model):
    params = model.params
    oracle = bt.Oracle(model)
    before = list(oracle(*batch(3))[1])
    code, other = ("f", "d") if params.dtype == "float32" else ("d", "f")
    for keywords in [
        {"out": array(other, [0.0] * params.n)},
        {"out": array(code, [0.0] * (params.n - 1))},
        {"out": params.grads},
        {"out": params.values},
        {"at": params.grads},
        {"at": [0.0] * (params.n + 1)},
        {"at": [[0.0] * params.n]},
        {"out": memoryview(bytes(params.n * 8)).cast(code)},
    ]:
        with pytest.raises(ValueError):
            oracle(*batch(3), **keywords)
    for keywords in [{"out": [0.0] * params.n}, {"at": "text"}]:
        with pytest.raises(TypeError):
            oracle(*batch(3), **keywords)
    assert list(params.grads) == before


def test_each_sample_by_itself(model):
    params = model.params
    oracle = bt.Oracle(model)
    x, y = batch(6)
    mean, grad = oracle(x, y)
    grad = list(grad)
    seen = []
    oracle.per_sample(x, y, lambda k, loss, g: seen.append((k, loss, list(g))))
    assert [k for k, _, _ in seen] == list(range(6))
    assert sum(loss for _, loss, _ in seen) / 6 == pytest.approx(mean, rel=1e-6)
    assert [sum(g[i] for _, _, g in seen) / 6 for i in range(params.n)] == pytest.approx(grad, rel=1e-3, abs=1e-6)
    rows = oracle.per_sample_grads(x, y)
    assert rows.shape == (6, params.n)
    assert rows.tolist() == [g for _, _, g in seen]
    norms = [math.sqrt(sum(v * v for v in g)) for _, _, g in seen]
    assert oracle.per_sample_grad_norms(x, y) == pytest.approx(norms, rel=1e-5)


def test_a_visit_may_fail_and_may_not_use_the_oracle(model):
    oracle = bt.Oracle(model)
    with pytest.raises(bt.BusyError):
        oracle.per_sample(*batch(3), lambda k, loss, grad: oracle.loss(*batch(1)))
    seen = []

    def visit(k, loss, grad):
        seen.append(k)
        raise KeyError(k)

    with pytest.raises(KeyError):
        oracle.per_sample(*batch(3), visit)
    assert seen == [0]
    assert oracle.loss(*batch(3)) > 0


@pytest.mark.parametrize("n", [1, 5, 64, 70])
def test_weights_that_are_not_finite_are_results(model, n):
    params = model.params
    params.values[params.n - 1] = float("nan")
    loss, grad = bt.Oracle(model)(*batch(n))
    assert math.isnan(loss)
    assert any(math.isnan(g) for g in grad)
    params.values[params.n - 1] = 0.0
    assert math.isfinite(bt.Oracle(model)(*batch(n))[0])


def of_axes(params, body, **options):
    oracle = bt.Oracle(body, params=params, **options)
    x, y = np.random.default_rng(4).normal(size=(11, 3)), np.arange(11.0)
    out = np.empty(params.n, params.dtype)
    loss = oracle(x, y, out=out)[0]
    assert oracle.loss(x, y) == pytest.approx(loss, rel=1e-6)
    inside = np.array(oracle(x, y)[1])
    np.testing.assert_allclose(inside, out, rtol=1e-6, atol=1e-6)
    return loss, out, oracle.losses(x, y), np.asarray(oracle.per_sample_grads(x, y))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["penalty", "softmax", "rows"])
def test_tensors_with_axes_are_arrays_sample_by_sample(name, dtype):
    params = bt.Parameters(dtype=dtype, seed=1)
    w = params.tensor((2, 3), init="normal")
    body = {
        "penalty": lambda x, y: ((w @ x) ** 2).sum() * y + 0.1 * (w * w).sum(),
        "softmax": lambda x, y: (bt.softmax(w / 2) @ x).sum() * y,
        "rows": lambda x, y: ((w * 2)[0] @ x) * y,
    }[name]

    def untraceable(x, y):
        if isinstance(x, bt.Array):
            raise NotImplementedError("not with Arrays")
        return body(x, y)

    expected = of_axes(params, body)
    close = {"rtol": 2e-5, "atol": 2e-5} if dtype == "float32" else {"rtol": 1e-12, "atol": 1e-12}
    for found in (of_axes(params, body, lanes=1), of_axes(params, untraceable)):
        for x, y in zip(found, expected, strict=True):
            np.testing.assert_allclose(x, y, **close)
    with pytest.raises(TypeError, match="give Arrays, which have no lanes"):
        of_axes(params, body, lanes=4)
