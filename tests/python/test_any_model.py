"""Oracles of user-defined models: every width gives the gradient of the same sum written with scalars."""

from __future__ import annotations

import math
from array import array

import numpy as np
import pytest

import burtorch as bt

WIDTHS = {"float32": [1, 4, 8, 16, None], "float64": [1, 2, 4, 8, None]}
SIZES = [1, 3, 16, 21, 70]


def close(found, expected, dtype):
    tolerance = 2e-5 if dtype == "float32" else 1e-12
    scale = max(map(abs, expected))
    assert list(found) == pytest.approx(list(expected), rel=tolerance, abs=tolerance * scale)


def points(n, width):
    return [[math.sin(1 + 3 * k + 7 * j) for j in range(width)] for k in range(n)]


@pytest.fixture(params=["float32", "float64"])
def params(request):
    return bt.Parameters(dtype=request.param, seed=5)


def check(model, params, x, y, expanded):
    """Loss and gradient in every width against `expanded(k)`, a Value of sample k built from scalars in float64."""
    values = list(params.values)
    graph = bt.Graph()
    with graph:
        weights = [bt.Value(v) for v in values]
        losses = [expanded(weights, a, b) for a, b in zip(x, y)]
        mean = sum(losses[1:], losses[0]) / len(losses)
        mean.backward()
        expected = [w.grad for w in weights]
    for lanes in WIDTHS[params.dtype]:
        oracle = bt.Oracle(model, params=params, lanes=lanes)
        loss, grad = oracle(x, y)
        assert loss == pytest.approx(mean.data, rel=1e-5 if params.dtype == "float32" else 1e-12)
        close(grad, expected, params.dtype)
        close(oracle.losses(x, y), [v.data for v in losses], params.dtype)
        assert oracle(x, y)[0] == loss
        assert list(oracle.grad(x, y)) == list(grad)


@pytest.mark.parametrize("n", SIZES)
def test_logistic_regression(params, n):
    w, b = params.tensor(3, init="normal"), params.tensor(1, init=0.25)
    x, y = points(n, 3), [float(k % 2) for k in range(n)]

    def model(features, label):
        z = bt.inner_product(features, w) + b[0]
        return bt.softplus(z) - label * z

    def expanded(weights, features, label):
        z = weights[0] * features[0] + weights[1] * features[1] + weights[2] * features[2] + weights[3]
        return bt.softplus(z) - label * z

    check(model, params, x, y, expanded)


def dense(weights, at, x, n_out, activation=None):
    """A dense layer written with scalars: weights by rows from `at`, then biases."""
    rows = [
        sum((weights[at + o * len(x) + i] * x[i] for i in range(1, len(x))), weights[at + o * len(x)] * x[0])
        for o in range(n_out)
    ]
    rows = [r + weights[at + n_out * len(x) + o] for o, r in enumerate(rows)]
    return [activation(r) for r in rows] if activation else rows


def cross_entropy(logits, target):
    total = bt.log(sum((bt.exp(z) for z in logits[1:]), bt.exp(logits[0])))
    return total - logits[target]


@pytest.mark.parametrize("n", SIZES)
def test_a_tied_embedding_mlp_with_two_hidden_layers(params, n):
    table = params.tensor((5, 4), init="normal")
    w1, b1 = params.tensor((6, 8)), params.tensor(6, init=0.1)
    w2, b2 = params.tensor((4, 6)), params.tensor(4, init=-0.1)
    x, y = [[k % 5, (3 * k + 1) % 5] for k in range(n)], [(2 * k) % 5 for k in range(n)]

    def model(symbols, label):
        h = bt.tanh(bt.affine(w1, bt.gather(table, symbols), b1))
        h = bt.tanh(bt.affine(w2, h, b2))
        return bt.softmax_cross_entropy(table @ h, label)

    def expanded(weights, symbols, label):
        rows = [weights[4 * s + i] for s in symbols for i in range(4)]
        h = dense(weights, 20, rows, 6, bt.tanh)
        h = dense(weights, 20 + 48 + 6, h, 4, bt.tanh)
        logits = [sum((weights[4 * o + i] * h[i] for i in range(1, 4)), weights[4 * o] * h[0]) for o in range(5)]
        return cross_entropy(logits, label)

    check(model, params, x, y, expanded)


class Residual:
    """Two residual blocks around a dense layer, as a user would write them."""

    def __init__(self, params):
        self.params = params
        self.blocks = [(params.tensor((3, 3)), params.tensor(3, init=0.05)) for _ in range(2)]
        self.head, self.shift = params.tensor((2, 3)), params.tensor(2, init=0.0)

    def __call__(self, x, y):
        for w, b in self.blocks:
            x = x + bt.relu(bt.affine(w, x, b))
        difference = bt.affine(self.head, x, self.shift) - y
        return (difference * difference).sum()


@pytest.mark.parametrize("n", SIZES)
def test_a_residual_net(params, n):
    model = Residual(params)
    x, y = points(n, 3), points(n, 2)

    def expanded(weights, features, target):
        h = list(features)
        for at in (0, 12):
            h = [a + b for a, b in zip(h, dense(weights, at, h, 3, bt.relu))]
        out = dense(weights, 24, h, 2)
        return (out[0] - target[0]) ** 2 + (out[1] - target[1]) ** 2

    check(model, params, x, y, expanded)
    assert bt.Oracle(model).params is params


def test_char_mlp_rebuilt_from_blocks_has_the_gradient_of_the_built_in(params):
    built = bt.nn.CharMLP(params, vocab=7, context=3, embedding=5, hidden=6)
    x, y = [[(k * k + 3 * j) % 7 for j in range(3)] for k in range(37)], [(5 * k + 2) % 7 for k in range(37)]
    loss, grad = bt.Oracle(built)(x, y)
    grad = list(grad)

    def model(symbols, label):
        h = bt.affine(built.hidden.weight, bt.gather(built.embedding, symbols), built.hidden.bias)
        return bt.softmax_cross_entropy(bt.affine(built.output.weight, bt.tanh(h), built.output.bias), label)

    oracle = bt.Oracle(model, params=params)
    loss_too, grad_too = oracle(x, y)
    assert loss_too == pytest.approx(loss, rel=1e-6)
    close(grad_too, grad, params.dtype)
    first = oracle.step(x, y, 0.1)
    assert oracle.loss(x, y) < first


def test_a_mistake_of_a_model_is_one_error_and_the_gradient_is_zero(params):
    w = params.tensor((2, 2), init=1.0)
    x, y = [[0.5, 1.0]] * 5, [0, 1, 0, 1, 1]

    def fails(features, label):
        raise KeyError("mine")

    other = bt.Graph().vector([1.0])[0]
    for model, error in [
        (fails, KeyError),
        (lambda features, label: 3.0, TypeError),
        (lambda features, label: other, bt.GraphMismatchError),
        (lambda features, label: bt.gather(w, label).sum() + bt.gather(w, [2]).sum(), IndexError),
        (lambda features, label: bt.softmax_cross_entropy(w @ features, 2), IndexError),
    ]:
        params.grads[:] = 1.0
        with pytest.raises(error):
            bt.Oracle(model, params=params)(x, y)
        assert not any(params.grads)
    oracle = bt.Oracle(lambda features, label: (w @ features).sum(), params=params)
    params.grads[:] = 1.0
    for bad in [([], []), (x, y[:-1]), ([["a"]], [0]), ([[[1.0]]], [0])]:
        with pytest.raises((ValueError, TypeError)):
            oracle(*bad)
    assert set(params.grads) == {1.0}
    with pytest.raises(TypeError):
        bt.Oracle(lambda features, label: features)
    with pytest.raises(TypeError):
        bt.Oracle(3, params=params)
    assert bt.current_graph().dtype == "float64"


def squares(params):
    """A model of one weight matrix, its parameters in `params`, and a batch."""
    w = params.tensor((2, 3), init="normal")
    x, y = points(70, 3), points(70, 2)

    def model(features, target):
        difference = bt.affine(w, features) - target
        return (difference * difference).sum()

    return model, x, y


def test_another_point_and_other_memory_leave_the_parameters_alone(params):
    from array import array

    model, x, y = squares(params)
    oracle = bt.Oracle(model, params=params)
    here, grad = oracle(x, y)
    values, grads = list(params.values), list(grad)
    code = "f" if params.dtype == "float32" else "d"
    point, out = array(code, [v + 0.25 for v in values]), array(code, [7.0] * len(params))
    there, returned = oracle(x, y, at=point, out=out)
    assert returned is out
    assert there != here
    assert (list(params.values), list(params.grads)) == (values, grads)
    params.values[:] = point
    again, grad = oracle(x, y)
    assert (again, list(grad)) == (there, list(out))
    params.values[:] = values
    difference = [a - b for a, b in zip(oracle.grad(x, y), oracle.grad(x, y, at=point, out=out))]
    assert any(difference)
    assert list(params.values) == values
    assert oracle.grad(x, y, at=list(point), out=out) is out
    before = (list(params.values), list(params.grads))
    for at, memory in [(point[1:], None), (None, out[1:]), (params.grads, None), (None, params.values), (point, point)]:
        with pytest.raises(ValueError):
            oracle(x, y, at=at, out=memory)
    fails = bt.Oracle(lambda features, target: 1 / 0, params=params)
    with pytest.raises(ZeroDivisionError):
        fails(x, y, at=point, out=out)
    assert (list(params.values), list(params.grads)) == before
    assert not any(out)


def test_gradients_of_single_samples(params):
    model, x, y = squares(params)
    x, y = x[:5], y[:5]
    oracle = bt.Oracle(model, params=params, reduction="sum")
    loss, grad = oracle(x, y)
    total, n = list(grad), len(params)
    seen = []
    oracle.per_sample(x, y, lambda k, loss, grad: seen.append((k, loss, list(grad))))
    assert [k for k, _, _ in seen] == list(range(5))
    assert sum(found for _, found, _ in seen) == pytest.approx(loss, rel=1e-5)
    close([sum(g[i] for _, _, g in seen) for i in range(n)], total, params.dtype)
    rows = oracle.per_sample_grads(x, y)
    assert rows.shape == (5, n)
    for row, (_, _, g) in zip(rows.tolist(), seen, strict=True):
        close(row, g, params.dtype)
    norms = oracle.per_sample_grad_norms(x, y)
    close(norms, [math.sqrt(sum(v * v for v in g)) for _, _, g in seen], params.dtype)

    def stop(k, loss, grad):
        raise KeyError(k)

    with pytest.raises(KeyError):
        oracle.per_sample(x, y, stop)
    with pytest.raises(bt.BusyError):
        oracle.per_sample(x, y, lambda k, loss, grad: oracle.loss(x, y))


def test_an_unsupported_operation_of_a_callable_is_one_error(params):
    model, x, y = squares(params)
    with pytest.raises(ValueError, match="threads"):
        bt.Oracle(model, params=params, threads=2)
    with pytest.raises(ValueError, match="loss"):
        bt.Oracle(model, params=params, loss="huber")
    oracle = bt.Oracle(model, params=params)
    for rate in (float("nan"), -1.0):
        with pytest.raises(ValueError):
            oracle.step(x, y, rate)


def test_existing_gradients_are_overwritten(params):
    # The first group of samples overwrites, the others add; gradients that no sample reaches, and frozen ones, are 0.
    table = params.tensor((5, 2), init="normal")
    w, unused = params.tensor((3, 2), init="normal"), params.tensor(4, init=1.0)
    other = bt.Parameters(dtype=params.dtype)
    scale = other.tensor(1, init=2.0)

    def model(symbols, label):
        return bt.softmax_cross_entropy(bt.affine(w, bt.gather(table, symbols), None, "tanh") * scale[0], label)

    oracle = bt.Oracle(model, params=params)
    for n in (1, 3, 40):
        x, y = [[k % 3] for k in range(n)], [k % 3 for k in range(n)]
        params.grads[:] = [0.0] * len(params)
        expected = list(oracle(x, y)[1])
        params.grads[:] = [float("nan")] * len(params)
        other.grads[0] = 1.0
        assert list(oracle(x, y)[1]) == expected
        assert other.grads[0] != 1.0  # Parameters other than the oracle's accumulate.
        assert expected[6:10] == [0.0] * 4
        assert list(unused.grads) == [0.0] * 4
        out = array("f" if params.dtype == "float32" else "d", [float("nan")] * len(params))
        w.freeze()
        oracle(x, y, out=out)
        assert list(out)[:10] == expected[:10]
        assert list(out)[10:] == [0.0] * 10
        w.unfreeze()


def test_a_model_that_reads_no_parameters_has_no_gradient(params):
    params.tensor(3)
    params.grads[:] = [1.0] * 3
    oracle = bt.Oracle(lambda x, y: x * y, params=params)
    assert oracle([2.0], [3.0])[0] == 6.0
    assert list(params.grads) == [0.0] * 3


def test_parameters_in_the_place_of_a_reduction_get_a_hint(params):
    with pytest.raises(TypeError, match=r"found Parameters; pass them as params="):
        bt.Oracle(lambda x: x, params)
    with pytest.raises(TypeError, match=r'reduction must be "mean" or "sum", found int'):
        bt.Oracle(lambda x: x, 3, params=params)


def test_the_error_of_values_has_that_of_arrays_as_its_cause(params):
    x, y = np.ones((3, 2)), np.ones(3)
    with pytest.raises(AttributeError, match="Vector' object has no attribute 'undefined'") as caught:
        bt.Oracle(lambda x, y: (x * 2).undefined, params=params)(x, y)
    assert "Array" in str(caught.value.__cause__)
    with pytest.raises(NameError) as caught:
        bt.Oracle(lambda x, y: (x @ x - y) ** 2 + unknown, params=params)(x, y)  # noqa: F821
    assert caught.value.__cause__ is None
