"""Copies and pickles of problems, methods and schedules."""

import copy
import dataclasses
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import burtorch as bt

opt = bt.opt
RNG = np.random.default_rng(3)
FEATURES, SIGNS = RNG.normal(size=(24, 5)), np.sign(RNG.normal(size=24))
COPIES = {
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "old pickle": lambda x: pickle.loads(pickle.dumps(x, protocol=2)),
    "deepcopy": copy.deepcopy,
}


def mean_square(x, samples):
    rows = FEATURES[samples]
    left = rows @ x - SIGNS[samples]
    return (left**2).mean() / 2, rows.T @ left / len(samples)


def sparse():
    csr = pytest.importorskip("scipy.sparse").csr_array(FEATURES * (FEATURES > 0.5))
    return opt.logistic_regression(csr, SIGNS, l2=0.1)


PROBLEMS = {
    "logistic": lambda: opt.logistic_regression(FEATURES, SIGNS, l2=0.1, nonconvex=0.2),
    "least squares": lambda: opt.least_squares(FEATURES, SIGNS),
    "robust": lambda: opt.robust_regression(FEATURES, SIGNS, l2=0.3),
    "softmax": lambda: opt.softmax_regression(FEATURES, np.arange(24) % 3, l2=0.1),
    "sparse": sparse,
    "function": lambda: opt.FiniteSum(mean_square, 24, 5, l2=0.1, nonconvex=0.3),
    "joined": lambda: opt.FiniteSum._joined([PROBLEMS["logistic"](), PROBLEMS["logistic"]()]),
}


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("kind", PROBLEMS)
def test_a_copied_problem_has_the_same_terms(kind, how):
    problem = PROBLEMS[kind]()
    again = COPIES[how](problem)
    about = ("n", "d", "kind", "classes", "l2", "nonconvex")
    assert [getattr(again, name) for name in about] == [getattr(problem, name) for name in about]
    x = RNG.normal(size=problem.d)
    for chosen in (None, [3, 3, 17], [0]):
        assert again.loss(x, chosen) == problem.loss(x, chosen)
        assert again.grad(x, chosen).tobytes() == problem.grad(x, chosen).tobytes()
    if kind != "function":
        assert again.features().tobytes() == problem.features().tobytes()


def test_a_pickle_of_sparse_rows_is_sparse():
    csr = pytest.importorskip("scipy.sparse").random_array((400, 1000), density=0.01, rng=1, format="csr")
    problem = opt.least_squares(csr, np.ones(400))
    assert len(pickle.dumps(problem)) < 16 * csr.nnz + 8 * 800 + 2000


def ridge():
    return opt.least_squares(FEATURES, SIGNS, l2=0.1)


RAND, TOP = bt.compress.RandK(2), bt.compress.TopK(2)
DELAYS = opt.Delays([1.0, 2.0, 3.0])
METHODS = {
    "GD": lambda: opt.GD(ridge(), x0=np.ones(5), prox=opt.L1(0.01)),
    "SGD": lambda: opt.SGD(ridge(), sampling=opt.Nice(4), seed=2, step=opt_step, threads=2),
    "SGD importance": lambda: opt.SGD(ridge(), sampling=opt.Importance(3, np.arange(1.0, 25.0)), step=0.01),
    "LSVRG": lambda: opt.LSVRG(ridge(), sampling=opt.Nice(2), seed=1),
    "SAGA": lambda: opt.SAGA(ridge(), seed=1),
    "PAGE": lambda: opt.PAGE(ridge(), sampling=opt.Nice(3), seed=5),
    "DCGD": lambda: opt.DCGD(ridge(), clients=4, compressor=RAND, step=0.01),
    "DIANA": lambda: opt.DIANA(ridge(), clients=4, compressor=RAND),
    "MARINA": lambda: opt.MARINA(ridge(), clients=4, compressor=RAND),
    "EF21": lambda: opt.EF21(ridge(), clients=4, compressor=TOP),
    "Scaffnew": lambda: opt.Scaffnew(ridge(), clients=4),
    "FedAvg": lambda: opt.FedAvg(ridge(), clients=4, step=0.01),
    "FedAvg of clients": lambda: opt.FedAvg([opt.Client(ridge()), opt.Client(ridge())], step=0.01),
    "Rennala": lambda: opt.Rennala(ridge(), delays=DELAYS, gathered=2),
    "FedBuff": lambda: opt.FedBuff(ridge(), clients=3, delays=DELAYS, buffer=2, step=0.01),
}


def opt_step(k):
    return 0.01 / (k + 1)


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("kind", METHODS)
def test_a_copied_method_continues_bit_for_bit(kind, how):
    method = METHODS[kind]()
    method.run(7)
    again = COPIES[how](method)
    assert repr(again) == repr(method)
    ends = [(m.run(9)[-1], m.x.tobytes()) for m in (method, again)]
    assert ends[0][1] == ends[1][1]
    first, second = (dataclasses.replace(end[0], seconds=0.0) for end in ends)
    assert first == second


def test_a_copied_method_is_another_one():
    method = METHODS["PAGE"]()
    again = copy.deepcopy(method)
    again.run(3)
    assert (method.x == 0.0).all()
    assert "after 0 steps" in repr(method)
    assert "after 3 steps" in repr(again)


SCHEDULES = {
    "constant": {},
    "step": {"every": 3, "factor": 0.5, "warm_up": 2},
    "cosine": {"total": 9, "last": 0.001, "warm_up": 1},
}


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("kind", SCHEDULES)
def test_a_copied_schedule_sets_the_rates_of_its_own_optimiser(kind, how):
    optimiser = bt.optim.SGD(bt.Parameters(seed=0), lr=0.1)
    schedule = bt.optim.Schedule(optimiser, kind, **SCHEDULES[kind])
    for _ in range(4):
        schedule.step()
    other, again = COPIES[how]((optimiser, schedule))
    assert (other.lr, again.n_steps) == (optimiser.lr, 4)
    before = optimiser.lr
    rates = []
    for _ in range(8):
        again.step()
        rates.append(other.lr)
    assert optimiser.lr == before
    assert rates == [schedule.rate(5 + k) for k in range(8)]


def test_a_reshuffle_keeps_its_permutation_and_draws_what_a_new_one_draws():
    kept = opt.Reshuffle(64)
    state = pickle.dumps(kept)
    for n in (1000, 500, 1000):
        for seed, round, client in [(0, 0, 0), (0, 1, 0), (0, 20, 0), (1, 1, 0), (0, 1, 3), (0, 1, 0)]:
            found = kept.batch(n, seed=seed, round=round, client=client)
            expected = opt.Reshuffle(64).batch(n, seed=seed, round=round, client=client)
            np.testing.assert_array_equal(found[0], expected[0])
            np.testing.assert_array_equal(found[1], expected[1])
    # What is kept is no part of a copy.
    assert pickle.dumps(kept) == state
    for again in (copy.copy(kept), copy.deepcopy(kept), pickle.loads(state)):
        assert (repr(again), again.rule) == (repr(kept), kept.rule)
        np.testing.assert_array_equal(again.batch(1000, round=3)[0], kept.batch(1000, round=3)[0])
    with pytest.raises(ValueError, match="a batch's size"):
        kept.batch(10)
    np.testing.assert_array_equal(kept.batch(100)[0], opt.Reshuffle(64).batch(100)[0])


def test_threads_may_share_a_reshuffle():
    kept, n = opt.Reshuffle(100), 20_000
    expected = [opt.Reshuffle(100).batch(n, seed=k % 3, round=k)[0].tobytes() for k in range(40)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda k: kept.batch(n, seed=k % 3, round=k)[0].tobytes(), range(40)))
    assert found == expected
