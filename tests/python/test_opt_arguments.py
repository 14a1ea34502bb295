"""Arguments of methods, rules and problems: shapes, kinds and ranges that errors name, and arrays that are copied."""

from __future__ import annotations

import copy
import pickle
import re
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

import burtorch as bt
from burtorch import compress, opt

RNG = np.random.default_rng(6)
N, D = 6, 3
FEATURES, TARGETS = RNG.normal(size=(N, D)), RNG.normal(size=N)
TOP, RAND, DELAYS = compress.TopK(1), compress.RandK(1), opt.Delays([1.0, 2.0])


def problem():
    return opt.least_squares(FEATURES, TARGETS, l2=0.1)


METHODS = {
    "GD": lambda f, **more: opt.GD(f, **more),
    "AGD": lambda f, **more: opt.AGD(f, **more),
    "SGD": lambda f, **more: opt.SGD(f, **more),
    "PAGE": lambda f, **more: opt.PAGE(f, **more),
    "DCGD": lambda f, **more: opt.DCGD(f, **{"compressor": RAND, **more}),
    "DIANA": lambda f, **more: opt.DIANA(f, **{"compressor": RAND, **more}),
    "MARINA": lambda f, **more: opt.MARINA(f, **{"compressor": RAND, **more}),
    "VRMARINA": lambda f, **more: opt.VRMARINA(f, clients=2, **{"compressor": RAND, **more}),
    "PPMARINA": lambda f, **more: opt.PPMARINA(f, **{"compressor": RAND, "cohort": opt.Nice(2), **more}),
    "DASHA": lambda f, **more: opt.DASHA(f, **{"compressor": RAND, **more}),
    "EF14": lambda f, **more: opt.EF14(f, **{"compressor": TOP, **more}),
    "EF21": lambda f, **more: opt.EF21(f, **{"compressor": TOP, **more}),
    "EF21PP": lambda f, **more: opt.EF21PP(f, **{"compressor": TOP, "cohort": opt.Nice(2), **more}),
    "EF21BC": lambda f, **more: opt.EF21BC(f, **{"compressor": TOP, "downlink": TOP, **more}),
    "EF21SGDM": lambda f, **more: opt.EF21SGDM(f, clients=2, **{"compressor": TOP, **more}),
    "Scaffnew": lambda f, **more: opt.Scaffnew(f, **more),
    "Scaffold": lambda f, **more: opt.Scaffold(f, **more),
    "FedAvg": lambda f, **more: opt.FedAvg(f, **more),
    "Rennala": lambda f, **more: opt.Rennala(f, **{"delays": DELAYS, "gathered": 2, **more}),
    "Ringmaster": lambda f, **more: opt.Ringmaster(f, **{"delays": DELAYS, "max_delay": 2, **more}),
    "MindFlayer": lambda f, **more: opt.MindFlayer(f, **{"delays": DELAYS, "trials": 1, "limits": 3.0, **more}),
    "FedBuff": lambda f, **more: opt.FedBuff(f, clients=2, step=0.1, **{"delays": DELAYS, "buffer": 1, **more}),
}
PROXES = {
    "Zero": opt.Zero(),
    "L1": opt.L1(0.5),
    "L2Squared": opt.L2Squared(0.5),
    "ElasticNet": opt.ElasticNet(0.5, 0.5),
    "Box": opt.Box(-0.5, 0.5),
    "Simplex": opt.Simplex(),
    "L1Ball": opt.L1Ball(),
    "L2Ball": opt.L2Ball(),
    "LinfBall": opt.LinfBall(0.5),
}


@pytest.mark.parametrize("name", PROXES)
@pytest.mark.parametrize("shape", [(6,), (2, 3), (3, 2), (1, 6), (6, 1)])
def test_a_proximal_step_has_the_shape_of_its_argument(name, shape):
    prox, flat = PROXES[name], np.linspace(-2.0, 3.0, 6)
    x = flat.reshape(shape)
    expected = prox(flat, 0.5).reshape(shape)
    for given in (x, x.tolist(), x.copy(order="F"), np.repeat(x, 2, axis=-1)[..., ::2]):
        found = prox(given, 0.5)
        assert found.shape == shape
        np.testing.assert_array_equal(found, expected)
    out = np.empty(shape)
    assert prox(x, 0.5, out) is out
    np.testing.assert_array_equal(out, expected)
    if shape != (6,):
        with pytest.raises(ValueError, match=r"out must have the shape"):
            prox(x, 0.5, np.empty(6))
    own = x.copy()
    np.testing.assert_array_equal(prox(own, 0.5, own), expected)
    assert prox.value(x) == prox.value(flat)
    with pytest.raises(ValueError, match="x must have one or two dimensions, found 3"):
        prox(flat.reshape(1, 2, 3))


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("what", ["x0", "x_star"])
def test_points_have_one_dimension(name, what):
    make, x = METHODS[name], np.arange(1.0, D + 1)
    for wrong in (x[:, None], x[None, :], x[None, :, None], x[:-1], 0.0, [], [x.tolist()]):
        with pytest.raises(ValueError, match=rf"{what} must have the shape \({D},\), found \("):
            make(problem(), **{what: wrong})
    with pytest.raises(ValueError, match="the first point must be finite" if what == "x0" else "x_star must be finite"):
        make(problem(), **{what: np.array([0.0, np.nan, 0.0])})
    for wrong in (["a", "b", "c"], [1.0, None, 2.0], x + 1j, [b"1", b"2", b"3"]):
        with pytest.raises(TypeError, match=f"{what} must be numbers"):
            make(problem(), **{what: wrong})
    with pytest.raises(ValueError, match=f"{what} must be an array, found rows of unequal length"):
        make(problem(), **{what: [1.0, [2.0], 3.0]})
    for right in (x, x.tolist(), x.astype(np.float32), x.astype(int), tuple(x), [Fraction(k) for k in (1, 2, 3)]):
        method = make(problem(), **{what: right})
        np.testing.assert_array_equal(method.x if what == "x0" else method.x_star, x)


REQUIRED = {"problem": "FiniteSum", "compressor": "Compressor", "downlink": "Compressor", "delays": "Delays"}
REQUIRED_COHORTS = ("EF21PP", "PPMARINA")


@pytest.mark.parametrize("name", METHODS)
def test_none_in_place_of_a_required_object_is_a_type_error(name):
    make = METHODS[name]
    with pytest.raises(TypeError, match=r"problem must be a FiniteSum.* found NoneType"):
        make(None)
    with pytest.raises(TypeError, match=r"problem must be a FiniteSum.* found NoneType"):
        getattr(opt, name)(problem=None)
    for what, kind in REQUIRED.items():
        if f"{what} must be" in str(_error(make, **{what: 3})):
            with pytest.raises(TypeError, match=rf"{what} must be a {kind}, such as bt\..*, found NoneType"):
                make(problem(), **{what: None})
    if name in REQUIRED_COHORTS:
        with pytest.raises(TypeError, match=r"cohort must be a Sampling, such as bt.opt.Nice\(8\), found NoneType"):
            make(problem(), cohort=None)
    optional = ["prox", "constants", "x0", "x_star", "f_star"]
    for what in optional if name in REQUIRED_COHORTS else [*optional, "sampling"]:
        make(problem(), **{what: None})


def _error(make, **more):
    try:
        make(problem(), **more)
    except Exception as error:
        return error


def test_required_objects_are_found():
    """Of the methods of the table above, each with a compressor, a downlink or delays refuses another object."""
    found = {(name, what) for name in METHODS for what in REQUIRED if what in str(_error(METHODS[name], **{what: 3}))}
    with_compressors = {name for name in METHODS if issubclass(getattr(opt, name), opt.Distributed)}
    with_compressors -= {"Scaffnew", "Scaffold", "FedAvg"}
    expected = {(name, "compressor") for name in with_compressors} | {("EF21BC", "downlink")}
    expected |= {(name, "delays") for name in ("Rennala", "Ringmaster", "MindFlayer", "FedBuff")}
    assert found >= expected


NUMBERS = {
    "f_star": lambda v: opt.GD(problem(), f_star=v),
    "eps": lambda v: opt.SGD(problem(), eps=v),
    "p": lambda v: opt.LSVRG(problem(), p=v),
    "p of PAGE": lambda v: opt.PAGE(problem(), p=v),
    "p of MARINA": lambda v: opt.MARINA(problem(), compressor=RAND, p=v),
    "p of Scaffnew": lambda v: opt.Scaffnew(problem(), p=v),
    "mu": lambda v: opt.AGD(problem(), mu=v),
    "mu of L-Katyusha": lambda v: opt.LKatyusha(problem(), mu=v),
    "theta": lambda v: opt.LKatyusha(problem(), theta=v),
    "alpha": lambda v: opt.DIANA(problem(), compressor=RAND, alpha=v),
    "a": lambda v: opt.DASHA(problem(), compressor=RAND, a=v),
    "momentum": lambda v: opt.EF21SGDM(problem(), clients=2, compressor=TOP, momentum=v),
    "server_step": lambda v: opt.Scaffold(problem(), server_step=v),
    "latency": lambda v: opt.Network(DELAYS, latency=v),
    "bandwidth": lambda v: opt.Network(DELAYS, bandwidth=v),
    "dropout": lambda v: opt.Network(DELAYS, dropout=v),
    "the constant of a distribution": lambda v: opt.Delays([1.0], "pareto", v),
    "step": lambda v: opt.L1(1.0)([1.0], v),
    "a step": lambda v: opt.GD(problem(), step=lambda round: v).run(1),
    "p of Independent": opt.Independent,
    "epochs": lambda v: opt.GD(problem()).run(epochs=v),
    "bits": lambda v: opt.DCGD(problem(), compressor=RAND).run(3, bits=v),
    "seconds": lambda v: opt.GD(problem()).run(seconds=v),
    "l2": lambda v: opt.least_squares(FEATURES, TARGETS, l2=v),
    "nonconvex": lambda v: opt.robust_regression(FEATURES, TARGETS, nonconvex=v),
    "l2 of softmax": lambda v: opt.softmax_regression(FEATURES, [0, 1] * 3, l2=v),
    "L": lambda v: opt.page_step(v, 1.0, 1.0),
    "spread": lambda v: opt.page_step(1.0, v, 1.0),
    "K": lambda v: opt.page_step(1.0, 1.0, v),
    "L_max": lambda v: opt.optimal_batch(10, 1.0, v, 1.0, 1.0, 1.0),
    "tolerance": lambda v: opt.solve(problem(), tolerance=v),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_another_kind_are_named(name):
    what = name.partition(" of ")[0] if not name.startswith("the") else name
    for wrong in ("a", "1", b"1", [0.5], np.array([0.5]), {}, 1j):
        with pytest.raises(TypeError, match=f"^{what} must be a number, found {type(wrong).__name__}"):
            NUMBERS[name](wrong)
    for wrong in (float("nan"),) if what == "f_star" else (float("nan"), -1.0):
        with pytest.raises(ValueError, match=what):
            NUMBERS[name](wrong)
    with pytest.raises(ValueError, match=f"{what} is too large for a float"):
        NUMBERS[name](10**400)


@pytest.mark.parametrize("make", [opt.L1, opt.L2Squared, opt.Simplex, opt.L1Ball, opt.L2Ball, opt.LinfBall])
def test_parameters_of_proximal_terms_are_numbers(make):
    for wrong in ("1", None, [1.0]):
        with pytest.raises(TypeError, match="a parameter of a proximal term must be a number, found"):
            make(wrong)
    for both in ((wrong, 1.0), (0.0, wrong)):
        for pair in (opt.Box, opt.ElasticNet):
            with pytest.raises(TypeError, match="a parameter of a proximal term must be a number, found list"):
                pair(*both)


TEXTS = {
    r"alpha must be above 0 and at most 1, found 2": lambda: opt.DIANA(problem(), compressor=RAND, alpha=2),
    r"trials must be one number or 2, one for each worker of delays, found \(3,\)": lambda: opt.MindFlayer(
        problem(), delays=DELAYS, trials=[1, 2, 3], limits=1.0
    ),
    r"limits must be one number or 2, one for each worker of delays, found \(3,\)": lambda: opt.MindFlayer(
        problem(), delays=DELAYS, trials=1, limits=[1.0, 2.0, 3.0]
    ),
    r"limits must be one number or 2, .* found \(2, 1\)": lambda: opt.MindFlayer(
        problem(), delays=DELAYS, trials=1, limits=[[1.0], [2.0]]
    ),
    r"classes must be at most 4294967295, found 1099511627777": lambda: opt.softmax_regression(np.eye(2), [0, 2**40]),
    r"classes must be at most 4294967295, found 4294967296;": lambda: opt.softmax_regression(np.eye(2), [0, 2**32 - 1]),
    r"classes must be at most 4294967295, found": lambda: opt.softmax_regression(np.eye(2), [0.0, 1e30]),
    r"labels must be below the number of classes, 3, found 5": lambda: opt.softmax_regression(
        np.eye(2), [0, 5], classes=3
    ),
    r"labels must be integers of at least 0, found -1": lambda: opt.softmax_regression(np.eye(2), [-1.0, 1.0]),
    r"n must be at least 1, found 0": lambda: opt.optimal_batch(0, 1.0, 1.0, 1.0, 1.0, 1.0),
    r"mu must be finite and above 0, found 0": lambda: opt.optimal_batch(10, 1.0, 10.0, 0.0, 1.0, 1.0),
    r"eps must be finite and above 0, found 0": lambda: opt.optimal_batch(10, 1.0, 10.0, 1.0, 1.0, 0),
    r"spread must be finite and at least 0, found -1": lambda: opt.optimal_batch(10, 1.0, 10.0, 1.0, -1, 1.0),
    r"L must be finite and above 0, found 0": lambda: opt.page_step(0, 1.0, 1.0),
    r"K must be finite and at least 0, found -1": lambda: opt.page_step(1.0, 1.0, -1),
    r"at least one row and one column": lambda: opt.least_squares(([0, 0, 0], [], [], 0), [1.0, 2.0]),
    r"row and one column, found no column": lambda: opt.logistic_regression(
        opt.Rows(np.zeros(3, int), np.zeros(0, int), np.zeros(0), (2, 0)), [1, -1]
    ),
    r"the sum of weights must be finite, found inf; scale them": lambda: opt.Importance(2, [1e308, 1e308]),
    r"mu must be at most 1/step, which is 1, found 10": lambda: opt.AGD(problem(), mu=10.0, step=1.0),
    r"the seconds of workers must be finite and above 0": lambda: opt.Delays([1.0, np.nan]),
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_value_error_names_what_is_wrong(text):
    with pytest.raises(ValueError, match=text):
        TEXTS[text]()


def test_a_file_without_features_makes_no_problem(tmp_path):
    path = tmp_path / "labels"
    path.write_text("1\n-1\n")
    features, labels = opt.load_libsvm(path)
    assert features.shape == (2, 0)
    for make in (opt.logistic_regression, opt.least_squares, opt.robust_regression):
        with pytest.raises(ValueError, match="at least one row and one column, found no column"):
            make(features, labels)
    with pytest.raises(ValueError, match="at least one row and one column, found no column"):
        opt.softmax_regression(features, [0, 1])


def copied(make, *arrays):
    """The figures of a method whose arrays stay, and of those whose arrays the caller has overwritten."""

    def run(method):
        method.run(5)
        return method.x.tobytes(), method.record().distance, method.record().lyapunov, method.gamma

    kept, changed = make(*(array.copy() for array in arrays)), make(*arrays)
    for array in arrays:
        array[...] = 0 if array.dtype.kind == "i" else 77.0
    pickled, twin = pickle.loads(pickle.dumps(changed)), copy.copy(changed)
    return [run(method) for method in (kept, changed, pickled, twin)]


def halves():
    return np.arange(3), np.arange(3, 6)


def of_data(rows, targets):
    """A client whose function and oracle read the caller's arrays."""
    function = opt.Client(lambda x, row, target: (row @ x - target) ** 2, rows, targets, d=D)
    return opt.FedAvg([function, opt.Client(opt.least_squares(rows, targets))], step=0.01)


KEPT = {
    "weights": (lambda w: opt.SGD(problem(), sampling=opt.Importance(2, w), seed=1), lambda: (np.arange(1.0, N + 1),)),
    "weights of L-SVRG": (
        lambda w: opt.LSVRG(problem(), sampling=opt.Importance(1, w), x_star=np.ones(D), lyapunov=True),
        lambda: (np.arange(1.0, N + 1),),
    ),
    "x_star": (lambda x: opt.SGD(problem(), x_star=x, lyapunov=True), lambda: (np.ones(D),)),
    "x0": (lambda x: opt.SGD(problem(), x, seed=3), lambda: (np.ones(D),)),
    "clients": (
        lambda *parts: opt.EF21(problem(), clients=list(parts), compressor=TOP, f_star=0.0, lyapunov=True),
        halves,
    ),
    "clients of GD": (lambda *parts: opt.GD(problem(), clients=list(parts)), halves),
    "seconds": (
        lambda s: opt.Rennala(problem(), delays=opt.Delays(s, "exponential"), gathered=2),
        lambda: (np.array([1.0, 2.0, 5.0]),),
    ),
    "trials and limits": (
        lambda t, m: opt.MindFlayer(problem(), delays=opt.Delays([1.0, 2.0], "exponential"), trials=t, limits=m),
        lambda: (np.array([1, 2]), np.array([1.5, 2.5])),
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_methods_keep_their_own_arrays(name):
    make, arrays = KEPT[name]
    kept, *others = copied(make, *arrays())
    assert others == [kept] * 3


def test_functions_and_oracles_keep_their_own_data():
    def found(is_overwritten):
        rows, targets = FEATURES.copy(), TARGETS.copy()
        method = of_data(rows, targets)
        params = bt.Parameters(dtype="float64")
        oracle = bt.Oracle(bt.nn.Linear(params, D, 1), loss="mse", params=params)
        f = opt.from_oracle(oracle, rows, targets)
        if is_overwritten:
            rows[...], targets[...] = 5.0, 9.0
        method.run(3)
        return method.x.tobytes(), f.loss(np.ones(D + 1)), f.grad(np.ones(D + 1)).tobytes()

    assert found(False) == found(True)


def test_rules_keep_their_own_weights():
    weights = np.arange(1.0, N + 1)
    rule = opt.Importance(3, weights)
    batches = [rule.batch(N, round=k)[0].tolist() for k in range(5)]
    text = repr(rule)
    weights[0] = 1e9
    assert [rule.batch(N, round=k)[0].tolist() for k in range(5)] == batches
    assert repr(rule) == text


RARE = {"LSVRG", "LKatyusha", "PAGE", "MARINA", "VRMARINA", "PPMARINA", "Scaffnew"}


@pytest.mark.parametrize("name", [*METHODS, "LSVRG", "LKatyusha", "SAGA"])
def test_choices_that_a_step_does_not_make_are_refused(name):
    method = METHODS.get(name, getattr(opt, name))(problem())
    if name in RARE:
        method.step(coin=True)
        assert method.drawn()[1] is True
    else:
        with pytest.raises(ValueError, match=f"{name} has no rare event: leave out coin="):
            method.step(coin=False)
    n = len(method.clients or ()) or 1
    if hasattr(method, "compressor"):
        method.step(compression=[[0.5] * D] * n)
    else:
        with pytest.raises(ValueError, match=f"{name} has no compressor: leave out compression="):
            method.step(compression=[[0.5] * D] * n)


def test_agd_takes_the_largest_mu_and_the_step_of_theory():
    f = problem()
    smooth = opt.smoothness(f).L
    assert opt.AGD(f, mu=smooth, step=1.0 / smooth).run(3)[-1].step == opt.AGD(f, mu=smooth).run(3)[-1].step == 3
    assert opt.AGD(f, step="theory*4").gamma == 4.0 / smooth


SHAPES = {
    "a column": lambda v: np.asarray(v)[:, None],
    "a row": lambda v: np.asarray(v)[None, :],
    "a cube": lambda v: np.asarray(v)[None, :, None],
    "lists": lambda v: [list(v)],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_points_and_samples_of_another_shape_are_refused(shape):
    f, of, x, samples = problem(), SHAPES[shape], np.ones(D), [0, 1, 2]
    calls = {
        "x": (f"({D},)", [lambda: f.loss(of(x)), lambda: f.grad(of(x)), lambda: f.gradients(of(x))]),
        "minus": (f"({D},)", [lambda: f.grad(x, minus=of(x))]),
        "x0": (f"({D},)", [lambda: opt.GD(f, of(x))]),
        "x_star": (f"({D},)", [lambda: opt.GD(f, x_star=of(x))]),
        "samples": ("(n,)", [partial(call, x, of(samples)) for call in (f.loss, f.grad, f.gradients)]),
        "weights": ("(3,)", [partial(call, x, samples, weights=of(np.ones(3))) for call in (f.loss, f.grad)]),
        "batch": ("(n,)", [lambda: opt.SGD(f, sampling=opt.Nice(3), step=0.1).step(batch=of(samples))]),
    }
    if shape != "lists":
        calls["out"] = (f"({D},)", [lambda: f.grad(x, out=of(np.zeros(D)))])
    for name, (expected, all_of_it) in calls.items():
        for call in all_of_it:
            with pytest.raises(ValueError, match=f"^{name} must have the shape {re.escape(expected)}, found"):
                call()
    for name, call in (("x", lambda: f.loss(np.ones(D + 1))), ("out", lambda: f.grad(x, out=np.zeros(D + 1)))):
        with pytest.raises(ValueError, match=re.escape(f"{name} must have the shape ({D},), found ({D + 1},)")):
            call()
