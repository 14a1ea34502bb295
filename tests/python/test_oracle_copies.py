"""Copies and pickles of oracles and of sets of parameters."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import burtorch as bt

COPIES = [
    copy.deepcopy,
    *(lambda x, protocol=protocol: pickle.loads(pickle.dumps(x, protocol)) for protocol in range(2, 6)),
]


class Net(bt.nn.Module):
    def __init__(self, params):
        self.a = bt.nn.Linear(params, 3, 4, activation="tanh")
        self.b = bt.nn.Linear(params, 4, 2)

    def __call__(self, x):
        return self.b(self.a(x))


class Loss(Net):
    def __call__(self, x, y):
        return bt.sum((super().__call__(x) - y) ** 2)


class Trainer:
    """What a user keeps together."""

    def __init__(self, oracle):
        self.oracle, self.params = oracle, oracle.params
        self.optimizer = bt.optim.SGD(self.params, lr=0.1)
        self.head = self.params.subset(range(3))


def oracles():
    def made(model, dtype="float64", **options):
        return bt.Oracle(model(bt.Parameters(dtype=dtype, seed=0)), **options)

    return {
        "MLP": made(lambda p: bt.nn.MLP(p, [3, 4, 2])),
        "float32": made(lambda p: bt.nn.MLP(p, [3, 4, 2]), "float32", reduction="sum", threads=2, lanes=4),
        "module": made(Net, loss="mse"),
        "own loss": made(Loss, reduction="sum"),
    }


@pytest.mark.parametrize("copied", COPIES)
@pytest.mark.parametrize("name", oracles())
def test_copies_compute_the_same_with_parameters_of_their_own(name, copied):
    oracle = oracles()[name]
    x, y = np.random.default_rng(0).normal(size=(6, 3)), np.random.default_rng(1).normal(size=(6, 2))
    loss, grad = oracle(x, y)
    grad = np.array(grad)
    trainer = copied(Trainer(oracle))
    other = trainer.oracle
    assert repr(other).split("reduction")[1] == repr(oracle).split("reduction")[1]
    assert other.params is trainer.params
    assert other.params is not oracle.params
    found = other(x, y)
    assert found[0] == loss
    assert np.array_equal(found[1], grad)
    assert np.array_equal(other.grad(x, y, wanted=trainer.head), grad[:3])
    trainer.optimizer.step()
    assert oracle.loss(x, y) == loss
    assert other.loss(x, y) != loss


def test_an_oracle_of_a_function_is_not_copied():
    params = bt.Parameters(dtype="float64")
    w = params.tensor(3, init=0.5)
    oracle = bt.Oracle(lambda x: x @ w, params=params)
    for copied in COPIES:
        with pytest.raises(TypeError, match="an Oracle of a function cannot be copied"):
            copied(oracle)


@pytest.mark.parametrize("copied", COPIES)
def test_sets_of_parameters(copied):
    params = bt.Parameters(dtype="float64")
    params.tensor((4, 2), init=1.0)
    for wanted in (range(1, 4), [0, 2, 7], [], np.arange(8) % 2 == 0):
        found = copied(params.subset(wanted))
        assert found.params is not params
        assert len(found.params) == 8
        assert np.array_equal(found.indices, params.subset(wanted).indices)
