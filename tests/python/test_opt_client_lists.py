"""Clients with their own problems: the results of a split, problems of all kinds, constants, errors."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import burtorch as bt
from burtorch import compress, opt

N, D = 24, 5
RNG = np.random.default_rng(4)
FEATURES, TARGETS = RNG.normal(size=(N, D)), RNG.normal(size=N)
SIGNS = np.sign(TARGETS)
UNEQUAL = [np.arange(0, 3), np.arange(3, 10), np.arange(10, 12), np.arange(12, N)]
KINDS = {
    "squares": lambda part: opt.least_squares(FEATURES[part], TARGETS[part], l2=0.1),
    "logistic": lambda part: opt.logistic_regression(FEATURES[part], SIGNS[part], l2=0.1),
    "robust": lambda part: opt.robust_regression(FEATURES[part], TARGETS[part], nonconvex=0.2),
    "softmax": lambda part: opt.softmax_regression(FEATURES[part], (SIGNS[part] > 0).astype(int), classes=2),
}


def clients(kind="squares", parts=UNEQUAL):
    return [opt.Client(KINDS[kind](part)) for part in parts]


@pytest.mark.parametrize("kind", KINDS)
def test_values_and_constants_are_those_of_a_split(kind):
    f, own = KINDS[kind](np.arange(N)), clients(kind)
    split, lists = (
        opt.EF21(given, clients=parts, compressor=compress.TopK(2), f_star=0.0, lyapunov=True)
        for given, parts in ((f, UNEQUAL), (own, None))
    )
    assert lists.problem.kind == kind
    assert [part.tolist() for part in lists.clients] == [part.tolist() for part in UNEQUAL]
    for field in ("L", "L_i", "L_pm", "mu", "mu_min"):
        np.testing.assert_array_equal(getattr(lists.constants, field), getattr(split.constants, field))
    assert lists.constants.bound == split.constants.bound
    for expected, found in zip(split.run(20, record_every=5), lists.run(20, record_every=5)):
        for field in ("loss", "grad_norm", "lyapunov", "gap", "bits_up", "oracle_calls"):
            np.testing.assert_allclose(getattr(found, field), getattr(expected, field), rtol=1e-13)
    assert lists.x.tobytes() == split.x.tobytes()
    if kind in ("squares", "logistic"):
        assert opt.solve(own).tobytes() == opt.solve(f, UNEQUAL).tobytes()


def test_sums_of_many_samples_have_the_bits_of_a_split():
    """Samples in several chunks, to which a regulariser is added once; and threads."""
    sparse, labels = opt.make_logistic(3000, 9, density=0.4, seed=2)
    features = sparse.toarray()
    parts = [np.arange(1300), np.arange(1300, 1310), np.arange(1310, 3000)]
    f = opt.logistic_regression(features, labels, l2=0.01)
    own = [opt.Client(opt.logistic_regression(features[part], labels[part], l2=0.01)) for part in parts]
    found = []
    for given, more in ((f, {"clients": parts}), (own, {}), (own, {"threads": 2})):
        method = opt.DIANA(given, compressor=compress.RandK(3), step=0.5, seed=7, **more)
        method.run(12)
        found.append(method.x.tobytes())
    assert len(set(found)) == 1


def mixed():
    rows = lambda part: opt.least_squares(FEATURES[part], TARGETS[part], l2=0.3)  # noqa: E731
    sparse = pytest.importorskip("scipy.sparse").csr_array(FEATURES[:4])
    return [
        opt.Client(rows(UNEQUAL[0])),
        opt.Client(opt.logistic_regression(sparse, SIGNS[:4], nonconvex=0.2)),
        opt.Client(opt.robust_regression(FEATURES[5:12], TARGETS[5:12])),
    ]


def test_clients_may_differ_in_kind_and_regulariser():
    own = mixed()
    c = opt.smoothness(own)
    each = [opt.smoothness(client.problem) for client in own]
    assert c.L_i.tolist() == [one.L for one in each]
    # The non-convex term and the robust loss bend downwards: at least as much as the l2 of one client bends upwards.
    assert (c.L, c.mu, c.mu_min) == (np.mean(c.L_i), 0.0, 0.0)
    assert each[0].mu > 0.0
    assert c.bound == {"L": "mean of L_i", "L_pm": "L_plus"}
    method = opt.FedAvg(own)
    assert (method.problem.kind, method.gamma) == ("clients", 1.0 / c.L)
    x = np.zeros(D)
    for _ in range(30):
        record = method.step()
        x = x - method.gamma * np.mean([client.problem.grad(x) for client in own], axis=0)
        np.testing.assert_allclose(method.x, x, rtol=1e-12)
        assert record.loss == pytest.approx(np.mean([client.problem.loss(x) for client in own]), rel=1e-13)
        gradients = np.mean([client.problem.grad(x) for client in own], axis=0)
        assert record.grad_norm == pytest.approx(np.linalg.norm(gradients), rel=1e-12)
    with pytest.raises(ValueError, match="only for the clients that have them"):
        opt.smoothness(method.problem, np.array_split(np.arange(method.problem.n), 2))
    # The problem of a method may be passed to another, which has the same clients.
    again = opt.FedAvg(method.problem)
    again.run(30)
    assert again.x.tobytes() == method.x.tobytes()


@pytest.mark.parametrize("l2", [0.0, 0.5, 3.0])
@pytest.mark.parametrize("kinds", [("squares", "robust"), ("logistic", "robust"), ("robust",), ("squares", "dented")])
def test_strong_convexity_is_never_overstated(kinds, l2):
    """f is no flatter than mu says, wherever its second difference is taken; with much l2 the bound is above 0."""
    make = {
        "squares": lambda a, b: opt.least_squares(a, b, l2=l2),
        "logistic": lambda a, b: opt.logistic_regression(a, np.sign(b), l2=l2),
        "robust": lambda a, b: opt.robust_regression(a, b, l2=l2),
        "dented": lambda a, b: opt.robust_regression(a, b, l2=l2, nonconvex=0.7),
    }
    rng = np.random.default_rng(3)
    data = [(2.0 * rng.normal(size=(4, 2)), rng.normal(size=4)) for _ in kinds]
    f = opt.FedAvg([opt.Client(make[kind](*given)) for kind, given in zip(kinds, data)], step=0.1).problem
    c = opt.smoothness(f)
    assert l2 < 3.0 or c.mu > 0.0
    assert c.mu_min <= c.mu <= c.L
    parts = [np.arange(4 * k, 4 * k + 4) for k in range(len(kinds))]
    grad = lambda x: np.mean([f.grad(x, part) for part in parts], axis=0)  # noqa: E731
    for _ in range(400):
        x, way = 4.0 * rng.normal(size=2), 1e-3 * rng.normal(size=2)
        bend = (grad(x + way) - grad(x)) @ way / (way @ way)
        assert c.mu == 0.0 or c.mu - 1e-6 <= bend
        assert bend <= c.L + 1e-6


def test_functions_and_oracles_are_problems_of_clients():
    """Against least squares: a function of a row, one of x only, and an oracle of a model."""
    params = bt.Parameters(dtype="float64")
    oracle = bt.Oracle(bt.nn.Linear(params, D - 1, 1), loss="mse", params=params)
    ones = np.c_[FEATURES[:, : D - 1], np.ones(N)]
    parts = UNEQUAL[:3]
    plain = [opt.least_squares(ones[part], TARGETS[part], l2=0.2) for part in parts]

    def square(x, row, target):
        return (row @ x - target) ** 2 / 2

    a, b = ones[parts[1]], TARGETS[parts[1]]
    own = [
        opt.Client(square, ones[parts[0]], TARGETS[parts[0]], d=D, l2=0.2),
        opt.Client(lambda x: ((a @ x - b) ** 2).sum() / (2 * len(b)), d=D, l2=0.2),
        opt.Client(oracle, FEATURES[parts[2], : D - 1], TARGETS[parts[2]], l2=0.2),
    ]
    # The oracle's loss is the mean of squares, without the half.
    plain[2] = opt.least_squares(ones[parts[2]] * 2**0.5, TARGETS[parts[2]] * 2**0.5, l2=0.2)
    found, expected = (
        opt.EF21(given, compressor=compress.TopK(2), step=0.05, start="zero")
        for given in (own, [opt.Client(f) for f in plain])
    )
    assert [client.problem.n for client in own] == [3, 1, 2]
    for _ in range(15):
        one, other = found.step(), expected.step()
        np.testing.assert_allclose(found.x, expected.x, rtol=1e-11)
        assert one.loss == pytest.approx(other.loss, rel=1e-12)
    with pytest.raises(ValueError, match="threads"):
        opt.EF21(own, compressor=compress.TopK(2), step=0.05, threads=2)
    with pytest.raises(ValueError, match="unknown"):
        opt.EF21(own, compressor=compress.TopK(2))


def test_an_error_of_a_client_is_raised_as_it_is():
    def fails(x):
        raise LookupError("no data")

    own = [clients()[0], opt.Client(opt.FiniteSum(lambda x, samples: fails(x), 1, D))]
    with pytest.raises(LookupError, match="no data"):
        opt.FedAvg(own, step=0.1).step()


BAD = {
    "at least one": (ValueError, lambda own: opt.FedAvg([], step=0.1)),
    "found FiniteSum": (TypeError, lambda own: opt.FedAvg([own[0].problem], step=0.1)),
    "same d": (ValueError, lambda own: opt.FedAvg([*own, opt.Client(opt.least_squares([[1.0]], [1.0]))], step=0.1)),
    "leave out clients": (TypeError, lambda own: opt.FedAvg(own, clients=2, step=0.1)),
    "problem must be a FiniteSum": (TypeError, lambda own: opt.PAGE(own)),
    "a problem of many clients": (ValueError, lambda own: opt.FedAvg([opt.Client(opt.FedAvg(own).problem)])),
    "found int": (TypeError, lambda own: opt.Client(3)),
    "needs d": (ValueError, lambda own: opt.Client(lambda x: x[0])),
    "nothing else": (TypeError, lambda own: opt.Client(own[0].problem, l2=0.1)),
    "one row per sample": (ValueError, lambda own: opt.Client(lambda x, a, b: a, [1.0], [1.0, 2.0], d=1)),
    "network of 1 clients": (ValueError, lambda own: opt.FedAvg(own, network=opt.Network(opt.Delays([1.0])), step=0.1)),
}


@pytest.mark.parametrize("text", BAD)
def test_bad_input_is_one_typed_error(text):
    kind, make = BAD[text]
    with pytest.raises(kind, match=text):
        make(clients())


def test_a_cycle_through_a_function_is_collected():
    class Holder:
        pass

    holder = Holder()
    holder.method = opt.FedAvg([opt.Client(lambda x, holder=holder: x[0] * x[0], d=1)], step=0.1)
    found = weakref.ref(holder)
    del holder
    gc.collect()
    assert found() is None


def test_points_and_gradients_of_a_function_are_read_from_any_memory():
    """Contiguous float64 is copied at once; also misaligned, non-finite, and other layouts."""
    numbers = np.random.default_rng(0).normal(size=1000)
    numbers[3:5] = np.nan, np.inf
    unaligned = np.frombuffer(b"-" + numbers.tobytes(), np.uint8)[1:].view(np.float64)
    strided = np.stack([numbers, -numbers], axis=1)[:, 0]
    for given in (numbers, unaligned, strided, numbers[::-1][::-1], numbers.tolist()):
        seen = []
        f = opt.FiniteSum(lambda x, samples, given=given, seen=seen: (seen.append(x.copy()) or 0.0, given), 1, 1000)
        np.testing.assert_array_equal(f.grad(given), numbers)
        np.testing.assert_array_equal(seen, [numbers])
    whole = opt.FiniteSum(lambda x, samples: (0.0, np.array([1, 2], np.int16)), 1, 2)
    assert whole.grad(np.array([1.5, 2.5], np.float32)).tolist() == [1.0, 2.0]


@pytest.mark.parametrize("name", ["GD", "AGD", "SGD", "LSVRG", "SAGA", "PAGE", "LKatyusha"])
def test_methods_of_samples_need_a_step_for_clients_with_different_problems(name):
    """Their f is the mean over samples, and the constants of such a problem are those of its clients."""
    f, make = opt.FedAvg(mixed(), step=0.1).problem, getattr(opt, name)
    more = {"mu": 1e-3} if name in ("AGD", "LKatyusha") else {}
    found = f"constants have 3 L_i, expected {f.n}, one for each of the samples"
    with pytest.raises(ValueError, match=f"constants of the samples of different problems are unknown|{found}"):
        make(f, **more)
    with pytest.raises(ValueError, match=found):
        make(f, constants=opt.smoothness(f), **more)
    more |= {"theta": 0.1} if name == "LKatyusha" else {}
    assert make(f, step=1e-3, **more).run(2)[-1].step == 2
