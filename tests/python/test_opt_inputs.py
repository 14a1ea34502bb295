"""What burtorch.opt refuses, and that what it takes is right at any scale."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import numpy as np
import pytest

import burtorch as bt

o, C = bt.opt, bt.compress
RNG = np.random.default_rng(5)
A, B = RNG.normal(size=(8, 3)), RNG.normal(size=8)
F = o.least_squares(A, B)
PROX = [
    o.L1(0.1),
    o.ElasticNet(0.1, 0.2),
    o.Box(-1.0, 1.0),
    o.Simplex(),
    o.LinfBall(),
    o.L2Squared(0.3),
    o.L1Ball(),
    o.L2Ball(),
    o.Zero(),
]


@pytest.mark.parametrize("prox", PROX, ids=repr)
def test_no_prox_hides_nan(prox):
    for x in ([np.nan, 1.0], [1.0, np.nan], [np.nan, np.nan]):
        assert np.isnan(prox(np.array(x), 0.5)).any()
    diverging = o.FiniteSum(lambda x, samples: (1.0, np.array([np.nan, 1.0])), n=3, d=2)
    with pytest.raises(FloatingPointError):
        o.GD(diverging, step=0.1, prox=prox).run(3)


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e-8, 1.0, 1e8, 1e15, 1e17, 1e155, 1e300])
def test_projections_lie_in_their_sets_at_any_scale(scale):
    for k in range(20):
        x = RNG.normal(size=1 + k % 5) * scale
        for radius in (1.0, 1e-200, 1e200):
            inside = 1.0 + 1e-12
            y = o.Simplex(radius)(x)
            assert (y >= 0).all()
            assert abs((y / radius).sum() - 1.0) < 1e-12
            y = o.L1Ball(radius)(x)
            assert np.abs(y / radius).sum() <= inside
            assert (y * np.sign(x) >= 0).all()
            y = o.L2Ball(radius)(x)
            assert math.hypot(*(y / radius)) <= inside
    assert o.Simplex()([1e17, 1e17 + 32, 0.0]).tolist() == [0.0, 1.0, 0.0]
    np.testing.assert_allclose(o.L2Ball()([1e155, 1e155]), [0.5**0.5] * 2, rtol=1e-15)
    np.testing.assert_allclose(o.L2Ball(1e-200)([3e-200, 4e-200]), [0.6e-200, 0.8e-200], rtol=1e-14)
    np.testing.assert_allclose(o.Simplex()([1e300, 1e300]), [0.5, 0.5], rtol=1e-15)


@pytest.mark.parametrize("step", [-1.0, math.nan, math.inf])
def test_a_step_of_a_prox_is_a_number_at_least_0(step):
    with pytest.raises(ValueError, match="step"):
        o.L1(1.0)([1.0], step)


@pytest.mark.parametrize("out", [np.zeros(2, int), np.zeros((2, 1)), np.zeros(3), np.zeros(2, "float32")], ids=str)
def test_out_of_a_prox_is_an_array_of_its_shape(out):
    with pytest.raises((TypeError, ValueError)):
        o.L1(1.0)(np.ones(2), 1.0, out=out)


LISTS = {
    "missing": [[0, 1], [2, 3]],
    "twice": [[0, 1, 2, 3], [3, 4, 5, 6, 7]],
    "negative": [[-1, 1, 2, 3], [0, 4, 5, 6]],
    "too large": [[0, 1, 2, 3], [4, 5, 6, 8]],
    "empty": [[0, 1, 2, 3, 4, 5, 6, 7], []],
    "numbers": [0, 1, 2, 3, 4, 5, 6, 7],
    "floats": [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]],
    "a word": "iid",
    "a float": 2.5,
    "zero": 0,
    "too many": 9,
}


@pytest.mark.parametrize("name", LISTS)
def test_clients_hold_each_sample_once(name):
    for use in (
        lambda: o.smoothness(F, LISTS[name]),
        lambda: o.solve(F, LISTS[name]),
        lambda: o.EF21(F, clients=LISTS[name], compressor=C.TopK(1)),
        lambda: o.DCGD(F, clients=LISTS[name], compressor=C.Identity(), step=0.1),
        lambda: o.GD(F, clients=LISTS[name], step=0.1),
    ):
        with pytest.raises((ValueError, TypeError), match="client"):
            use()


def test_clients_are_a_number_too():
    for n in (2, np.int64(2)):
        halves = [list(range(4)), list(range(4, 8))]
        assert o.smoothness(F, n).L == o.smoothness(F, halves).L
        np.testing.assert_array_equal(o.solve(F, n), o.solve(F, halves))
        assert o.EF21(F, clients=n, compressor=C.TopK(1)).gamma == o.EF21(F, clients=halves, compressor=C.TopK(1)).gamma


@pytest.mark.parametrize("method", [o.SGD, o.LSVRG, o.SAGA, o.PAGE, o.AGD, o.LKatyusha])
def test_methods_without_clients_refuse_them(method):
    with pytest.raises(ValueError, match="has no clients"):
        method(F, clients=2, step=0.01)


WRONG = {
    "eps -1": (lambda: o.SGD(F, eps=-1.0, x_star=o.solve(F)), ValueError, "eps"),
    "eps 0": (lambda: o.SGD(F, eps=0.0, x_star=o.solve(F)), ValueError, "eps"),
    "eps nan": (lambda: o.SGD(F, eps=math.nan, x_star=o.solve(F)), ValueError, "eps"),
    "theta": (lambda: o.LKatyusha(F, theta=0.0), ValueError, "theta"),
    "mu": (lambda: o.AGD(F, mu=1e6), ValueError, "mu must be at most L"),
    "server_step": (lambda: o.Scaffold(F, clients=2, server_step=0.0), ValueError, "server_step"),
    "local_steps": (lambda: o.Scaffold(F, clients=2, local_steps=0), ValueError, "local_steps"),
    "max_delay": (lambda: o.Ringmaster(F, delays=o.Delays([1.0]), max_delay=0), ValueError, "max_delay"),
    "delays": (lambda: o.Ringmaster(F, delays=[1.0, 2.0], max_delay=1), TypeError, "delays must be a Delays"),
    "no delays": (lambda: o.Delays([]), ValueError, "at least one worker"),
    "latency": (lambda: o.Network(o.Delays([1.0]), latency=-1.0), ValueError, "latency"),
    "network": (lambda: o.DIANA(F, clients=2, compressor=C.RandK(1), network=3), TypeError, "network must be"),
    "constants": (lambda: o.AGD(F, constants=0), TypeError, "constants must be a Smoothness"),
    "constants of samples": (
        lambda: o.EF21(F, clients=2, compressor=C.TopK(1), constants=o.smoothness(F)), ValueError, "constants",
    ),
    "constants of clients": (lambda: o.SGD(F, constants=o.smoothness(F, 2)), ValueError, "constants"),
    "x_star": (lambda: o.GD(F, x_star=np.zeros((3, 1))), ValueError, "x_star"),
    "x_star of one": (lambda: o.GD(F, x_star=0.0), ValueError, "x_star"),
    "x_star nan": (lambda: o.GD(F, x_star=np.array([0.0, math.nan, 0.0])), ValueError, "x_star"),
    "f_star": (lambda: o.GD(F, f_star=math.nan), ValueError, "f_star"),
    "start": (lambda: o.MARINA(F, clients=2, compressor=C.RandK(1), start="zero"), ValueError, "start"),
    "alpha": (lambda: o.DIANA(F, clients=2, compressor=C.RandK(1), alpha=1.0), ValueError, "knows no alpha"),
    "a": (lambda: o.DASHA(F, clients=2, compressor=C.RandK(1), a=1.0), ValueError, "knows no a "),
    "L-SVRG": (lambda: o.LSVRG(F, sampling=o.Independent(0.5)), ValueError, "knows no"),
    "L-SVRG reshuffled": (lambda: o.LSVRG(F, sampling=o.Reshuffle(2)), ValueError, "knows no"),
    "targets": (lambda: o.least_squares(A, B[:, None]), ValueError, "one dimension"),
    "labels": (lambda: o.logistic_regression(A, np.sign(B)[None]), ValueError, "one dimension"),
    "split": (lambda: o.split(0, 1), ValueError, "samples"),
    "seed": (lambda: o.split(8, 2, seed=-1), ValueError, "seed"),
    "seed of data": (lambda: o.make_logistic(4, 2, seed=-1), ValueError, "seed"),
    "from_oracle": (lambda: o.from_oracle(3, A, B), TypeError, "oracle"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named_before_anything_runs(name):
    call, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        call()


def test_data_of_an_oracle_have_one_length():
    params = bt.Parameters(dtype="float64")
    w = params.tensor(3, init=0.1)
    oracle = bt.Oracle(lambda x, y: (bt.dot(w, x) - y) ** 2, params=params)
    for make in (o.from_oracle, o.Client):
        with pytest.raises(ValueError, match="length"):
            make(oracle, A[:5], B)
        with pytest.raises(ValueError, match="length"):
            make(oracle, A, B[:5])


def test_rank_deficient_data_have_no_strong_convexity():
    for seed in range(40):
        a = np.random.default_rng(seed).normal(size=(12, 4))
        found = o.smoothness(o.least_squares(np.c_[a, a @ np.ones(4)], a[:, 0]))
        assert found.mu == 0.0
    a = np.random.default_rng(0).normal(size=(12, 4))
    assert o.smoothness(o.least_squares(a, a[:, 0])).mu > 1e-4


def test_mindflayer_converges_where_few_gradients_arrive():
    f = o.least_squares(np.ones((4, 1)), np.ones(4))
    delays = o.Delays([1.0], "exponential")
    limit = -math.log(0.9)
    method = o.MindFlayer(f, [5.0], delays=delays, trials=1, limits=limit, sampling=o.Full())
    method.run(6000)
    assert abs(method.x[0] - 1.0) < 1e-3
    many = o.MindFlayer(f, [5.0], delays=delays, trials=30, limits=limit, sampling=o.Full())
    assert many.gamma == 0.5 / o.smoothness(f).L


def test_dasha_starts_at_zero():
    method = o.DASHA(F, np.ones(3), clients=2, compressor=C.Identity(), start="zero", step=0.01)
    method.run(1)
    np.testing.assert_array_equal(method.x, np.ones(3))
    other = o.DASHA(F, np.ones(3), clients=2, compressor=C.Identity(), start="gradient", step=0.01)
    other.run(1)
    assert (other.x != 1.0).all()


def test_libsvm_files_hold_what_float32_holds(tmp_path):
    path = tmp_path / "x.svm"
    for text, line in (("1 1:1\n1 1:1e39\n", 2), ("1e39 1:1\n", 1)):
        path.write_text(text)
        with pytest.raises(ValueError, match=f"line {line}.*float32"):
            o.load_libsvm(path, dtype="float32")
        o.load_libsvm(path, dtype="float64")
    path.write_text("1 qid:3 1:2 3:4\n-1 qid:4 2:1\n")
    features, labels = o.load_libsvm(path, dense=True)
    assert labels.tolist() == [1.0, -1.0]
    assert features.tolist() == [[2.0, 0.0, 4.0], [0.0, 1.0, 0.0]]
    path.write_text("1 qid:x 1:2\n")
    with pytest.raises(ValueError, match="qid"):
        o.load_libsvm(path)


def run(*arguments, cwd):
    command = [sys.executable, "-m", "burtorch", "optimise", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True)


def test_the_command_line_names_what_is_wrong(tmp_path):
    data = tmp_path / "d.svm"
    data.write_text("".join(f"{1 if k % 3 else -1} 1:{k / 7} 2:{(k * k) % 5}\n" for k in range(30)))
    common = ("--data", str(data), "--epochs", "2", "--l2", "0.1")
    done = run(*common, "--method", "gd", "--step", "1e30", "--epochs", "400", "--json", cwd=tmp_path)
    assert json.loads(done.stdout, parse_constant=lambda name: pytest.fail(name))
    for wrong, message in (
        (("--data", "nowhere.svm"), "nowhere.svm"),
        ((*common, "--compressor", "nosuch"), "nosuch"),
        ((*common, "--compressor", "natural:3"), "natural"),
        ((*common, "--epochs", "1e300"), "epochs"),
    ):
        done = run(*wrong, "--method", "gd", "--out", "made", cwd=tmp_path)
        assert done.returncode == 2, (wrong, done.stderr)
        assert message in done.stderr
        assert "Traceback" not in done.stderr
        assert not (tmp_path / "made").exists()
    (tmp_path / "bad.svm").write_text("1 1:x\n")
    done = run("--data", "bad.svm", "--method", "gd", cwd=tmp_path)
    assert "bad.svm" in done.stderr
    for compressor in ("qsgd:4", "toplek:2", "terngrad", "scaledsign:0.5", "naturaldithering:4"):
        done = run(*common, "--method", "ef21", "--compressor", compressor, "--clients", "3", cwd=tmp_path)
        assert "unknown" not in done.stderr
