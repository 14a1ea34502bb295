"""Numbers out of range, and the caller's matrices."""

from __future__ import annotations

import re

import numpy as np
import pytest

import burtorch as bt
from burtorch import compress, opt

N, D = 24, 6
RNG = np.random.default_rng(8)
FEATURES, TARGETS = RNG.normal(size=(N, D)), RNG.normal(size=N)
PARTS = [np.arange(0, 3), np.arange(3, 10), np.arange(10, 12), np.arange(12, N)]
TOP = compress.TopK(2)


def problem():
    return opt.least_squares(FEATURES, TARGETS, l2=0.1)


def test_a_sparse_matrix_of_the_caller_stays_as_it_is():
    sparse = pytest.importorskip("scipy.sparse")
    rows = sparse.csr_matrix((np.array([1.0, 2.0, 3.0]), np.array([2, 0, 0]), np.array([0, 3])), shape=(1, 4))
    f = opt.least_squares(rows, [1.0])
    assert rows.indices.tolist() == [2, 0, 0]
    np.testing.assert_allclose(f.features(), [[5.0, 0.0, 1.0, 0.0]])


RANGES = {
    "rows of zeros": lambda: opt.GD(opt.least_squares(np.zeros((2, 3)), [1.0, 2.0])),
    "tiny features": lambda: opt.EF21(opt.least_squares(FEATURES * 1e-160, TARGETS), compressor=TOP),
    "huge features": lambda: opt.PAGE(opt.least_squares(FEATURES * 1e150, TARGETS)),
    "huge features of clients": lambda: opt.smoothness(opt.least_squares(FEATURES * 1e150, TARGETS), PARTS),
    "steps below 0": lambda: opt.GD(problem()).run(-1),
    "epochs below 0": lambda: opt.GD(problem()).run(epochs=-1.0),
    "epochs that are NaN": lambda: opt.GD(problem()).run(epochs=float("nan")),
    "bits below 0": lambda: opt.GD(problem()).run(bits=-1.0),
    "seconds that are NaN": lambda: opt.GD(problem()).run(seconds=float("nan")),
    "a state of nothing": lambda: opt.GD(problem()).load_state_dict({}),
    "one label name": lambda: opt.logistic_regression(FEATURES, np.ones(N), label_names=(1.0,)),
    "classes below 0": lambda: opt.softmax_regression(FEATURES, np.full(N, -1)),
    "classes between whole numbers": lambda: opt.softmax_regression(FEATURES, np.full(N, 0.5)),
}
RAND = compress.RandK(2)
ONE = opt.Delays([1.0])
MESSAGES = {
    "eps must be finite and above 0, found -1": lambda f: opt.SGD(f, eps=-1.0),
    "eps must be finite and above 0, found 0": lambda f: opt.SGD(f, eps=0),
    "eps must be finite and above 0, found nan": lambda f: opt.SGD(f, eps=np.nan),
    "server_step must be finite and above 0, found -1": lambda f: opt.Scaffold(f, clients=2, server_step=-1),
    "server_step must be finite and above 0, found 0": lambda f: opt.Scaffold(f, clients=2, server_step=0),
    "server_step must be finite and above 0, found inf": lambda f: opt.Scaffold(f, clients=2, server_step=np.inf),
    "local_steps must be at least 1, found 0": lambda f: opt.Scaffold(f, clients=2, local_steps=0),
    "local_steps must be at least 1, found -1": lambda f: opt.FedAvg(f, clients=2, local_steps=-1),
    "max_delay must be at least 1, found 0": lambda f: opt.Ringmaster(f, delays=ONE, max_delay=0),
    "gathered must be at least 1, found 0": lambda f: opt.Rennala(f, delays=ONE, gathered=0),
    "buffer must be at least 1, found 0": lambda f: opt.FedBuff(f, clients=1, delays=ONE, buffer=0, step=0.1),
    "theta must be above 0 and at most 0.5, found 0": lambda f: opt.LKatyusha(f, theta=0),
    "theta must be above 0 and at most 0.5, found nan": lambda f: opt.LKatyusha(f, theta=np.nan),
    "mu must be at most L": lambda f: opt.AGD(f, mu=100.0),
    "mu must be at most L, which": lambda f: opt.AGD(f, mu=100.0, step=0.1, constants=opt.smoothness(f)),
    "mu must be at most L, which is": lambda f: opt.LKatyusha(f, mu=100.0),
    "x_star must have the shape": lambda f: opt.GD(f, x_star=np.zeros((D, 1))),
    "x_star must have the shape (6,), found (1,)": lambda f: opt.PAGE(f, x_star=[0.0]),
    "x_star must be finite": lambda f: opt.DCGD(f, compressor=RAND, x_star=np.full(D, np.nan)),
    "f_star must be finite, found nan": lambda f: opt.GD(f, f_star=np.nan),
    "f_star must be finite, found -inf": lambda f: opt.GD(f, f_star=-np.inf),
    "constants have 4 L_i, expected 24, one for each of the samples": lambda f: opt.GD(
        f, constants=opt.smoothness(f, 4)
    ),
    "constants have 24 L_i, expected 4, one for each of the clients": lambda f: opt.DCGD(
        f, clients=4, compressor=RAND, constants=opt.smoothness(f)
    ),
    "constants have 3 L_i, expected 4, one for each of the clients": lambda f: opt.Scaffnew(
        f, clients=PARTS, constants=opt.smoothness(f, 3)
    ),
    "at least one worker": lambda f: opt.Delays([]),
    "latency must be finite and at least 0, found -1": lambda f: opt.Network(ONE, latency=-1),
    "latency must be finite and at least 0, found inf": lambda f: opt.Network(ONE, latency=np.inf),
    "bandwidth must be above 0, found 0": lambda f: opt.Network(ONE, bandwidth=0.0),
    "dropout must be at least 0 and at most 0.99, found 1": lambda f: opt.Network(ONE, dropout=1),
    "samples must be at least 1, found 0": lambda f: opt.split(0, 1),
    "samples must be at least 1, found -3": lambda f: opt.split(-3, 1),
    "samples must be at least 1, found 0 ": lambda f: opt.split([], 1),
    "MARINA starts at the gradient": lambda f: opt.MARINA(f, compressor=RAND, start="zero"),
    "VRMARINA starts at the gradient": lambda f: opt.VRMARINA(f, compressor=RAND, start="zero"),
    "PPMARINA starts at the gradient": lambda f: opt.PPMARINA(f, compressor=RAND, cohort=opt.Full(), start="zero"),
    "the state lacks arrays, round, cost, seconds": lambda f: opt.GD(f).load_state_dict({"method": "GD"}),
    "x of the state must be finite": lambda f: opt.GD(f).load_state_dict(changed(opt.GD(f), x=np.full(D, np.nan))),
    "x of the state must have the shape": lambda f: opt.GD(f).load_state_dict(changed(opt.GD(f), x=np.zeros(2))),
    "no state named": lambda f: opt.SAGA(f).load_state_dict({**opt.SAGA(f).state_dict(), "arrays": {"x": np.zeros(D)}}),
    "limit that can be reached": lambda f: opt.GD(f).run(epochs=np.inf),
    "limit that can be reached: steps": lambda f: opt.DCGD(f, compressor=RAND).run(bits=np.inf, seconds=np.inf),
}


def changed(method, **arrays):
    state = method.state_dict()
    return {**state, "arrays": {**state["arrays"], **arrays}}


@pytest.mark.parametrize("text", MESSAGES)
def test_errors_name_the_mistake(text):
    with pytest.raises(ValueError, match=re.escape(text.strip())):
        MESSAGES[text](problem())


SEEDED = {
    "batch": lambda seed: opt.Nice(2).batch(4, seed=seed),
    "round": lambda seed: opt.Nice(2).batch(4, round=seed),
    "client": lambda seed: opt.Nice(2).batch(4, client=seed),
    "split": lambda seed: opt.split(5, 2, seed=seed),
    "make_logistic": lambda seed: opt.make_logistic(3, 2, seed=seed),
    "make_least_squares": lambda seed: opt.make_least_squares(3, 2, seed=seed),
    "a method": lambda seed: opt.GD(problem(), seed=seed),
}


@pytest.mark.parametrize("name", SEEDED)
def test_seeds_are_64_bits(name):
    SEEDED[name](2**64 - 1)
    with pytest.raises(ValueError, match="must be at least 0, found -1"):
        SEEDED[name](-1)
    with pytest.raises(ValueError, match=r"must be from 0 to 2\*\*64 - 1, found 18446744073709551616"):
        SEEDED[name](2**64)


@pytest.mark.parametrize("labels", [np.ones((N, 1)), np.ones((1, N)), [[1]] * N, np.ones(()), np.ones((N, 1, 1))])
def test_labels_have_one_dimension(labels):
    for make in (opt.logistic_regression, opt.least_squares, opt.robust_regression, opt.softmax_regression):
        with pytest.raises(ValueError, match="must have one dimension, found"):
            make(FEATURES, labels)


def test_limits_without_end_leave_others():
    method = opt.GD(problem())
    assert method.run(3, epochs=np.inf, bits=np.inf, seconds=np.inf)[-1].step == 3
    assert method.run(3, epochs=1e300)[-1].step == 6
    assert method.run(epochs=2, seconds=1e300)[-1].step == 8


def test_a_failed_load_changes_nothing():
    method = opt.SAGA(problem(), seed=1)
    method.run(5)
    before = method.state_dict()
    good = before["arrays"]
    for wrong in (
        {"method": "SAGA"},
        {**before, "arrays": {**good, "x": good["x"] * np.inf}},
        {**before, "arrays": {**good, "table": good["table"][1:]}},
        {**before, "round": -1},
        {**before, "seconds": np.nan},
    ):
        with pytest.raises(ValueError):
            method.load_state_dict(wrong)
        after = method.state_dict()
        assert (after["round"], after["cost"], after["seconds"]) == (5, before["cost"], before["seconds"])
        assert all(after["arrays"][name].tobytes() == good[name].tobytes() for name in good)


SINGLE = {
    "SAGA": {},
    "SGD": {},
    "LSVRG": {},
    "PAGE": {},
    "AGD": {},
    "LKatyusha": {},
    "Rennala": {"delays": ONE, "gathered": 1},
    "Ringmaster": {"delays": ONE, "max_delay": 1},
    "MindFlayer": {"delays": ONE, "trials": 1, "limits": 2.0},
}


@pytest.mark.parametrize("name", SINGLE)
def test_methods_without_clients_refuse_them(name):
    for clients in (2, PARTS):
        with pytest.raises(ValueError, match=f"{name} has no clients"):
            getattr(opt, name)(problem(), clients=clients, **SINGLE[name])


def test_gradient_descent_takes_clients():
    gd, same = opt.GD(problem(), clients=PARTS), opt.FedAvg(problem(), clients=PARTS)
    gd.run(20)
    same.run(20)
    assert gd.gamma == same.gamma
    np.testing.assert_allclose(gd.x, same.x, rtol=1e-12)
    assert [part.tolist() for part in opt.GD(problem(), clients=3).clients] == [
        part.tolist() for part in np.array_split(np.arange(N), 3)
    ]


LISTS = {
    "a sample is missing": (ValueError, [np.arange(0, 3), np.arange(4, N)]),
    "a sample comes twice": (ValueError, [np.arange(0, 4), np.arange(3, N)]),
    "a negative sample": (ValueError, [[-1], np.arange(0, N - 1)]),
    "a sample out of range": (ValueError, [np.arange(0, N), [N]]),
    "a large sample": (ValueError, [np.arange(0, N), np.array([2**63], np.uint64)]),
    "an empty client": (ValueError, [np.arange(0, N), []]),
    "no clients": (ValueError, []),
    "samples without lists": (ValueError, list(range(N))),
    "none": (ValueError, 0),
    "too many": (ValueError, N + 1),
    "fractions": (TypeError, [np.arange(0.0, N)]),
    "a mask": (TypeError, [np.ones(N, bool)]),
    "a division's name": (TypeError, "iid"),
    "a fraction": (TypeError, 2.5),
}
TAKERS = {
    "smoothness": opt.smoothness,
    "solve": opt.solve,
    "GD": lambda f, clients: opt.GD(f, clients=clients),
    "DIANA": lambda f, clients: opt.DIANA(f, clients=clients, compressor=RAND),
    "FedAvg": lambda f, clients: opt.FedAvg(f, clients=clients, step=0.1),
    "FedBuff": lambda f, clients: opt.FedBuff(f, clients=clients, delays=ONE, buffer=1, step=0.1),
}


@pytest.mark.parametrize("taker", TAKERS)
@pytest.mark.parametrize("name", LISTS)
def test_clients_hold_each_sample_once(name, taker):
    error, clients = LISTS[name]
    with pytest.raises(error, match="clients"):
        TAKERS[taker](problem(), clients)


def test_a_number_of_clients_is_that_of_methods():
    f = problem()
    for clients in (3, np.int64(3), np.uint8(3)):
        assert (
            opt.smoothness(f, clients).L_i.tolist() == opt.smoothness(f, np.array_split(np.arange(N), 3)).L_i.tolist()
        )
        assert opt.solve(f, clients).tolist() == opt.solve(f, np.array_split(np.arange(N), 3)).tolist()
        assert opt.DCGD(f, clients=clients, compressor=RAND).n_clients == 3


def test_lengths_of_data_are_checked_at_once():
    params = bt.Parameters(dtype="float64")
    oracle = bt.Oracle(bt.nn.Linear(params, D, 1), loss="mse", params=params)
    for make in (lambda *data: opt.from_oracle(oracle, *data), lambda *data: opt.Client(oracle, *data)):
        for data in ((FEATURES[:5], TARGETS), (FEATURES, TARGETS[:5]), (FEATURES, 1.0), ()):
            with pytest.raises(ValueError, match="one row per sample"):
                make(*data)


@pytest.mark.parametrize("name", RANGES)
def test_numbers_out_of_range_are_one_value_error(name):
    with pytest.raises(ValueError):
        RANGES[name]()


def test_rows_of_zeros_are_taken_with_a_number_as_step():
    f = opt.least_squares(np.zeros((2, 3)), [1.0, 2.0])
    assert opt.GD(f, step=0.5).run(3)[-1].loss == 1.25
    assert opt.softmax_regression(FEATURES, np.arange(N) % 3 * 1.0).d == 3 * D
    with pytest.raises(TypeError, match="step must be"):
        opt.GD(f, step=None)


def test_a_state_of_another_seed_is_said():
    first, second = opt.SGD(problem(), sampling=opt.Nice(2), step=0.01, seed=1), opt.SGD(problem(), step=0.01, seed=2)
    first.run(3)
    with pytest.warns(RuntimeWarning, match="the state is of seed 1, this method draws with seed 2"):
        second.load_state_dict(first.state_dict())
    assert second.x.tobytes() == first.x.tobytes()


@pytest.mark.parametrize("x", [1e10, 1e77, 1e100, 1e154, 1e155, 1e200, 1e300, 1.7e308])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_bounded_terms_are_finite_where_squares_overflow(x, sign):
    """The non-convex term tends to 1 and the robust loss to a logarithm; a factor of 0 adds nothing."""
    at = np.array([sign * x])
    with np.errstate(over="ignore"):
        slope = 2.0 / x / x / x
    flat = opt.logistic_regression([[0.0]], [1.0], nonconvex=0.5)
    assert flat.loss(at) == pytest.approx(np.log(2.0) + 0.5)
    assert flat.grad(at)[0] == pytest.approx(sign * 0.5 * slope, rel=1e-12, abs=5e-324)
    assert opt.logistic_regression([[0.0]], [1.0]).loss(at) == pytest.approx(np.log(2.0))
    assert opt.logistic_regression([[0.0]], [1.0], l2=1e-320).loss(at) >= np.log(2.0)
    # robust: log(1 + x^2/2) = 2 log x - log 2, and its slope 2/x.
    robust = opt.robust_regression([[1.0]], [0.0])
    assert robust.loss(at) == pytest.approx(2.0 * np.log(x) - np.log(2.0), rel=1e-13)
    assert robust.grad(at)[0] == pytest.approx(sign * 2.0 / x, rel=1e-13)
    both = opt.robust_regression([[1.0]], [0.0], l2=0.0, nonconvex=0.5)
    assert np.isfinite(both.loss(at))
    assert np.isfinite(both.grad(at)).all()
    assert both.grad(at, minus=at).tolist() == [0.0]


def test_proximal_terms_with_a_factor_of_0_are_0():
    for prox in (opt.L1(0.0), opt.L2Squared(0.0), opt.ElasticNet(0.0, 0.0)):
        assert prox.value(np.array([1e300, -1e300])) == 0.0
    assert opt.ElasticNet(1.0, 0.0).value(np.array([1e300])) == 1e300


WORDS, TEXT = bt.text.WordContexts(["anna", "bob"], context=2), bt.text.TextWindows("to be or not to be" * 3, context=3)
SGD = bt.optim.SGD(bt.Parameters())
INTEGERS = {
    "seed": [
        bt.compress.Draw,
        *(lambda n, data=data: data.batch(opt.Nice(1), seed=n) for data in (WORDS, TEXT)),
    ],
    "round": [
        lambda n: bt.compress.Draw(0, n),
        *(lambda n, data=data: data.batch(opt.Nice(1), round=n) for data in (WORDS, TEXT)),
    ],
    "client": [lambda n: bt.compress.Draw(0, 0, n)],
    "warm_up": [lambda n: bt.optim.Schedule(SGD, warm_up=n)],
    "every": [lambda n: bt.optim.Schedule(SGD, "step", every=n)],
    "total": [lambda n: bt.optim.Schedule(SGD, "cosine", total=n)],
    "step": [lambda n: bt.optim.Schedule(SGD).rate(n)],
    "n": [
        lambda n: bt.text.continue_text(
            bt.nn.GPT(bt.Parameters(), vocab=2, context=2, layers=1, heads=1, width=4), "ab", n, prompt="a"
        )
    ],
}


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("n", [-1, -(2**70), 2**64, 2**70])
def test_integers_out_of_range_are_value_errors_with_the_name(name, n):
    for call in INTEGERS[name]:
        with pytest.raises(ValueError, match=f"^{name} must be .*, found {n}(\\n|$)"):
            call(n)


def test_zero_is_in_range_where_it_means_something():
    assert bt.optim.Schedule(SGD, warm_up=0).rate(0) == SGD.lr
    assert bt.compress.Draw(2**64 - 1, 0, 0) == bt.compress.Draw(2**64 - 1)
    for name in ("every", "total"):
        with pytest.raises(ValueError, match=f"{name} must be at least 1, found 0"):
            INTEGERS[name][0](0)
