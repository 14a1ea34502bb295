"""Runs of methods ended by a token: at any moment, the method is in the state after whole steps."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest

import burtorch as bt
from burtorch import compress, opt

RNG = np.random.default_rng(3)
N, D, CLIENTS = 4096, 256, 8
FEATURES = RNG.normal(size=(N, D))
LABELS = np.where(FEATURES[:, 0] > 0, 1.0, -1.0)
PARTS = np.array_split(np.arange(N), CLIENTS)
SMALL, TOP, RAND = opt.Nice(64), compress.TopK(9), compress.RandK(9)


def logistic():
    return opt.logistic_regression(FEATURES, LABELS, l2=1e-3)


def softmax():
    return opt.softmax_regression(FEATURES[:, :32], RNG.integers(0, 40, size=N), l2=1e-3)


def of_a_function():
    own = logistic()
    return opt.FiniteSum(lambda x, k: (own.loss(x, k), own.grad(x, k)), n=N, d=D)


METHODS = {
    "GD": lambda f, **more: opt.GD(f, **more),
    "AGD": lambda f, **more: opt.AGD(f, mu=1e-3, **more),
    "SGD": lambda f, **more: opt.SGD(f, sampling=SMALL, **more),
    "L-SVRG": lambda f, **more: opt.LSVRG(f, sampling=SMALL, p=0.5, **more),
    "PAGE": lambda f, **more: opt.PAGE(f, sampling=SMALL, p=0.5, **more),
    "SAGA": lambda f, **more: opt.SAGA(f, sampling=SMALL, **more),
    "DIANA": lambda f, **more: opt.DIANA(f, clients=PARTS, compressor=RAND, **more),
    "MARINA": lambda f, **more: opt.MARINA(f, clients=PARTS, compressor=RAND, p=0.5, **more),
    "EF21": lambda f, **more: opt.EF21(f, clients=PARTS, compressor=TOP, **more),
    "EF14": lambda f, **more: opt.EF14(f, clients=PARTS, compressor=TOP, **more),
    "Scaffnew": lambda f, **more: opt.Scaffnew(f, clients=PARTS, p=0.5, **more),
    "FedAvg": lambda f, **more: opt.FedAvg(f, clients=PARTS, local_steps=3, sampling=SMALL, **more),
}


CASES = [(logistic, 1), (logistic, 2), (softmax, 1), (softmax, 2), (of_a_function, 1)]


@pytest.mark.parametrize(("problem", "threads"), CASES)
@pytest.mark.parametrize("name", METHODS)
def test_a_stop_at_any_moment_leaves_whole_steps(name, problem, threads):
    f, chance = problem(), random.Random(f"{name}{threads}")
    make = lambda: METHODS[name](f, step=0.01, seed=4, threads=threads)  # noqa: E731
    stopped, whole, token = make(), make(), bt.Stop()
    for _ in range(4):
        token.clear()
        threading.Timer(chance.random() * 0.01, token.set).start()
        stopped.run(stop=token)
        taken = stopped.run(steps=0)[-1].step
        whole.run(steps=taken - whole.run(steps=0)[-1].step)
        np.testing.assert_array_equal(stopped.x, whole.x)
        kept, expected = stopped.state_dict(), whole.state_dict()
        assert kept.keys() == expected.keys()


def test_a_token_that_is_set_takes_no_step():
    method, token = opt.GD(logistic(), step=0.01), bt.Stop()
    token.set()
    assert [record.step for record in method.run(stop=token)] == [0]
    np.testing.assert_array_equal(method.x, np.zeros(D))


@pytest.mark.parametrize("name", METHODS)
def test_a_limit_of_bits_alone_is_for_methods_that_send_some(name):
    method = METHODS[name](logistic(), step=0.01)
    if method.clients is None:
        with pytest.raises(ValueError, match="sends no bits"):
            method.run(bits=5)
        assert method.run(bits=5, steps=2)[-1].step == 2
    else:
        assert method.run(bits=5)[-1].step >= 1
