"""Labels in a callable's batch: negative integers are numbers, other integers are indices."""

from __future__ import annotations

import numpy as np
import pytest

import burtorch as bt

X = np.random.default_rng(3).normal(size=(9, 3))
Y = np.array([-1, 1, 1, -1, 1, -1, -1, 1, 1])


def logistic(dtype="float64", **options):
    params = bt.Parameters(dtype=dtype)
    w = params.tensor(3, init=0.3)
    return bt.Oracle(lambda x, y: bt.softplus(-y * (w @ x)), params=params, **options)


def expected():
    margin = Y * (X @ np.full(3, 0.3))
    return np.log1p(np.exp(-margin)).mean(), (-Y / (1 + np.exp(margin))) @ X / 9


@pytest.mark.parametrize("options", [{}, {"lanes": 4}, {"lanes": 1}], ids=str)
@pytest.mark.parametrize(
    "labels",
    [Y, Y.astype("int32"), Y.astype("int8"), Y[::-1][::-1], list(map(int, Y)), tuple(map(int, Y)), Y.astype(float)],
    ids=["int64", "int32", "int8", "strided", "list", "tuple", "float"],
)
def test_labels_of_both_signs_are_numbers(labels, options):
    oracle = logistic(**options)
    for _ in range(2):
        loss, grad = oracle(X, labels)
        np.testing.assert_allclose(loss, expected()[0], rtol=1e-14)
        np.testing.assert_allclose(grad, expected()[1], rtol=1e-13)


def test_features_below_zero_may_be_whole():
    whole = np.array([[-2, 1, 0], [3, -1, 4]])
    loss, grad = logistic()(whole, [1, -1])
    other, other_grad = logistic()(whole.astype(float), np.array([1.0, -1.0]))
    assert loss == other
    np.testing.assert_array_equal(grad, other_grad)


def test_labels_from_zero_stay_indices():
    params = bt.Parameters(dtype="float64")
    table = params.tensor(4, init=0.5)
    oracle = bt.Oracle(lambda x, y: bt.gather(table, y) * x, params=params)
    assert oracle(np.ones(3), np.array([0, 3, 3]))[1].tolist() == [1 / 3, 0, 0, 2 / 3]


@pytest.mark.parametrize("options", [{}, {"lanes": 1}, {"lanes": 4}], ids=str)
@pytest.mark.parametrize("labels", [Y, (Y > 0).astype(float), Y > 0], ids=["negative", "float", "mask"])
def test_labels_that_are_no_indices_are_named(labels, options):
    class Net(bt.nn.Module):
        def __init__(self, params):
            self.layer = bt.nn.Linear(params, 3, 2)

        def __call__(self, x):
            return self.layer(x)

    oracle = bt.Oracle(Net(bt.Parameters(dtype="float64")), loss="cross_entropy", **options)
    for call in (oracle, oracle.losses, oracle.per_sample_grads):
        with pytest.raises(TypeError, match=r'labels of loss="cross_entropy" must be integers.*pass y\.astype\(int\)'):
            call(X, labels)
    assert oracle.loss(X, (Y > 0).astype(int)) == oracle.loss(X, np.eye(2)[(Y > 0).astype(int)])


@pytest.mark.parametrize("y", [Y[:, None].astype(float), Y[:, None]], ids=["float", "int"])
def test_a_loss_that_is_no_number_is_named(y):
    with pytest.raises(
        bt.TraceError, match=r"returns one float of shape \(\), found an array of float of shape \(1,\)"
    ):
        logistic()(X, y)
    with pytest.raises(TypeError, match="the loss of one sample must be one number that depends on it, found Vector"):
        logistic(lanes=4)(X, y)
