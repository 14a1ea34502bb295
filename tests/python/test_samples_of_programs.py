"""Gradients of single samples of callables that only programs can compute: they are those of batches of one."""

from __future__ import annotations

import time

import numpy as np
import pytest

import burtorch as bt

sparse = pytest.importorskip("scipy.sparse")

N, WIDTH = 6, 3


def bodies(w, m):
    """Losses of a sample, each with the number of its calls."""
    return {
        "scan": lambda x, y: bt.scan(lambda h, v: (bt.tanh(h * w[0] + v), None), 0.0, x)[0],
        "cond": lambda x, y: bt.cond(x[0] > 0.0, lambda: (x @ w) ** 2, lambda: x @ w),
        "while": lambda x, y: bt.while_loop(lambda c: c < 9.0, lambda c: c * 3.0, (x @ w) ** 2 + 1.0),
        "rows": lambda x, y: (bt.take(m, y, axis=0) * x).sum(),
        "reshape": lambda x, y: ((m @ x).reshape(2, 2) ** 2).sum(),
        "checkpoint": lambda x, y: bt.checkpoint(lambda a: bt.tanh(a @ w))(x),
        "sort": lambda x, y: np.sort(m @ x)[0],
        "outer": lambda x, y: (np.outer(x, w) ** 2).sum(),
        "axis": lambda x, y: (x[None] * w[:, None]).sum(),
        "einsum": lambda x, y: np.einsum("ij,j->i", m, x)[1],
        "gradient": lambda x, y: (bt.grad(lambda v: ((v @ w) ** 2).sum())(x) ** 2).sum(),
        "plain": lambda x, y: (x @ w - y) ** 2,
    }


def made(name, dtype="float64", reduction="mean"):
    params = bt.Parameters(dtype=dtype, seed=1)
    w, m = params.tensor(WIDTH, init=0.5), params.tensor((4, WIDTH), init=0.25)
    rng = np.random.default_rng(3)
    params.values[:] = rng.normal(size=params.n)
    calls: list[None] = []
    body = bodies(w, m)[name]

    def loss(x, y):
        calls.append(None)
        return body(x, y)

    oracle = bt.Oracle(loss, reduction, params=params)
    return oracle, params, (rng.normal(size=(N, WIDTH)).astype(dtype), rng.integers(0, 4, N)), calls


NAMES = list(bodies(None, None))


@pytest.mark.parametrize("total", ["mean", "sum"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", NAMES)
def test_each_sample_has_the_gradient_of_a_batch_of_one(name, dtype, total):
    oracle, params, (x, y), calls = made(name, dtype, total)
    alone = [np.array(oracle.grad(x[k : k + 1], y[k : k + 1])) for k in range(N)]
    losses = [oracle.loss(x[k : k + 1], y[k : k + 1]) for k in range(N)]
    n_calls = len(calls)
    params.grads[:] = np.arange(params.n)
    found = np.asarray(oracle.per_sample_grads(x, y))
    assert found.dtype == dtype
    # Inner products of several samples are one product of matrices, summed in another order.
    np.testing.assert_allclose(
        found, alone, rtol=(2e-6 if dtype == "float32" else 4e-15) if name in ("plain", "reshape") else 0
    )
    assert np.array_equal(params.grads, np.arange(params.n))
    norms = oracle.per_sample_grad_norms(x, y)
    assert np.allclose(norms, np.linalg.norm(np.array(alone, float), axis=1), rtol=1e-6)
    seen = []
    oracle.per_sample(x, y, lambda k, loss, grad: seen.append((k, loss, np.array(grad).tobytes())))
    assert seen == [(k, losses[k], alone[k].tobytes()) for k in range(N)]
    for compressor in (bt.compress.TopK(2), bt.compress.RandK(2), bt.compress.Identity()):
        messages = oracle.per_sample_grads(x, y, compress=compressor, draw=bt.compress.Draw(5))
        for k, message in enumerate(messages):
            draw = bt.compress.Draw(5, client=k)
            expected = [compressor.compress(row, draw).decompress().tobytes() for row in (found[k], alone[k])]
            assert message.decompress().tobytes() in expected
    # Nothing was traced but the batch of one and all samples together; an audit may call the body again.
    assert len(calls) <= n_calls + 6


@pytest.mark.parametrize("name", NAMES)
def test_frozen_numbers_and_batches_afterwards(name):
    oracle, params, (x, y), _ = made(name)
    whole = np.array(oracle.grad(x, y))
    params.freeze(range(1, 3))
    found = np.asarray(oracle.per_sample_grads(x, y))
    assert not found[:, 1:3].any()
    assert np.allclose(found.mean(0), np.where(np.isin(np.arange(params.n), [1, 2]), 0.0, whole))
    assert np.array_equal(oracle.grad(x, y), found.mean(0)) or np.allclose(oracle.grad(x, y), found.mean(0))


def test_samples_of_sparse_rows_lists_and_without_targets():
    params = bt.Parameters(dtype="float64", seed=1)
    w = params.tensor(WIDTH, init=0.5)

    def loss(x):
        y = x @ w
        return bt.cond(y > 0.0, lambda: y, lambda: -2.0 * y)

    oracle = bt.Oracle(loss, params=params)
    x = np.array([[1.0, 0.0, 2.0], [0.0, -3.0, 0.0], [0.0, 0.0, 0.0]])
    expected = [[1.0, 0.0, 2.0], [0.0, 6.0, 0.0], [0.0, 0.0, 0.0]]
    for batch in (x, x.tolist(), sparse.csr_matrix(x), sparse.csr_array(x), np.asfortranarray(x), x.astype("float32")):
        assert np.asarray(oracle.per_sample_grads(batch)).tolist() == expected


def test_a_callable_that_cannot_be_traced_is_called_for_each_sample():
    params = bt.Parameters(dtype="float64")
    w = params.tensor(WIDTH, init=0.5)
    seen = []

    def loss(x, y):
        seen.append(float(x.data[0]))  # the number of one sample
        return bt.inner_product(x, w) * y

    oracle = bt.Oracle(loss, params=params)
    x, y = np.arange(6.0).reshape(2, 3), np.array([1.0, 2.0])
    for _ in range(2):
        assert np.asarray(oracle.per_sample_grads(x, y)).tolist() == [[0.0, 1.0, 2.0], [6.0, 8.0, 10.0]]
    assert seen[-2:] == [0.0, 3.0]


def test_errors_name_the_cause_and_change_nothing():
    oracle, params, (x, y), _ = made("rows")
    params.grads[:] = 7.0
    with pytest.raises(IndexError):
        oracle.per_sample_grads(x, y + 3)
    assert oracle.per_sample_grad_norms(x, y) == oracle.per_sample_grad_norms(x, y)


@pytest.mark.parametrize("n", [2, 255, 256, 257, 700])
def test_blocks_of_samples(n):
    """Samples are computed for some at a time; those of one call are not those of another."""
    params = bt.Parameters(dtype="float64", seed=2)
    c, w, frozen = params.tensor((3, 2), init="normal"), params.tensor(3, init=0.3), params.tensor(2, init=0.1)
    frozen.freeze()
    rng = np.random.default_rng(n)
    x, y = rng.normal(size=(n, 2)), rng.normal(size=n)
    oracle = bt.Oracle(lambda x, y: (np.exp(-((x + frozen - c) ** 2).sum(axis=1)) @ w - y) ** 2, params=params)
    for _ in range(2):
        found = np.asarray(oracle.per_sample_grads(x, y))
        for k in {0, n // 2, n - 1}:
            alone = oracle.grad(x[k : k + 1], y[k : k + 1])
            np.testing.assert_allclose(found[k], alone, rtol=1e-13, atol=1e-16)
        assert not found[:, -2:].any()
        np.testing.assert_allclose(oracle.per_sample_grad_norms(x, y), np.linalg.norm(found, axis=1), rtol=1e-13)
        params.values[:-2] = 1.5 * np.asarray(params.values[:-2])
        x = x * 0.5

    def descend(k, loss, grad):
        params.values[:] = np.asarray(params.values) - 0.1 * np.asarray(grad)

    values = np.array(params.values)
    oracle.per_sample(x[:3], y[:3], descend)
    one_by_one = np.array(params.values)
    params.values[:] = values
    for k in range(min(3, n)):
        params.values[:] = np.asarray(params.values) - 0.1 * np.asarray(oracle.grad(x[k : k + 1], y[k : k + 1]))
    np.testing.assert_array_equal(one_by_one, params.values)


@pytest.mark.parametrize("method", ["per_sample_grads", "per_sample_grad_norms", "per_sample"])
def test_samples_of_callables_end_on_request(method):
    params = bt.Parameters(dtype="float64")
    c, w = params.tensor((60, 20), init="normal"), params.tensor(60, init=0.1)
    oracle = bt.Oracle(lambda x, y: (np.tanh(c @ x) @ w - y) ** 2, params=params)
    x = np.random.default_rng(0).normal(size=(60_000, 20))
    arguments = (x, x[:, 0].copy()) + ((lambda *_: None,) if method == "per_sample" else ())
    start = time.perf_counter()
    with pytest.raises(bt.StoppedError):
        getattr(oracle, method)(*arguments, deadline=0.01)
    assert time.perf_counter() - start < 0.3


def test_norms_of_samples_with_any_contexts():
    params = bt.Parameters(dtype="float64")
    w = params.tensor(3, init=0.5)
    x, y = np.random.default_rng(0).normal(size=(4, 6, 3)), np.arange(4.0)
    oracle = bt.Oracle(
        lambda x, t: (bt.scan(lambda h, v: (np.tanh(h + w @ v), None), 0.0, x)[0] - t) ** 2, params=params
    )
    expected = np.linalg.norm(np.asarray(oracle.per_sample_grads(x, y)), axis=1)
    np.testing.assert_allclose(oracle.per_sample_grad_norms(x, y), expected, rtol=1e-12)
    linear = bt.Oracle(lambda x: x @ w, params=params)
    found = sparse.random(5, 3, 0.5, format="csr", random_state=0)
    expected = np.linalg.norm(found.toarray(), axis=1)
    for rows in (sparse.csr_matrix(found), sparse.csr_array(found)):
        np.testing.assert_allclose(linear.per_sample_grad_norms(rows), expected, rtol=1e-12)


def test_contexts_that_only_a_program_takes_are_refused_by_its_error():
    params = bt.Parameters(dtype="float64")
    w = params.tensor(3, init=0.5)
    oracle = bt.Oracle(lambda x: x @ w, params=params)
    wrong = [
        (sparse.csr_matrix((5, 2)), "agree|2 and 3"),
        (sparse.csr_array((5, 2)), "agree|2 and 3"),
        (sparse.csc_matrix((5, 3)), "CSR"),
        (sparse.coo_matrix((5, 3)), "CSR"),
        (np.ones((5, 2, 2)), "2 and 3|shape"),
    ]
    for contexts, text in wrong:
        for call in (oracle, oracle.loss, oracle.losses, oracle.per_sample_grad_norms, oracle.per_sample_grads):
            with pytest.raises((ValueError, TypeError), match=text):
                call(contexts)
