"""Problems, sampling, proximal operators, and behaviour common to all methods: counts, records, state, errors."""

from __future__ import annotations

import copy
import hashlib
import pickle
from fractions import Fraction

import numpy as np
import pytest

import burtorch as bt
from burtorch import opt

RNG = np.random.default_rng(5)
DENSE = RNG.normal(size=(40, 7)) * (RNG.random(size=(40, 7)) < 0.4)
POINTS = RNG.normal(size=(2, 7))
TARGETS = RNG.normal(size=40)
LABELS = np.where(TARGETS > 0, 1.0, -1.0)
CLASSES = RNG.integers(0, 3, size=40)


def sparse(dense):
    """Rows as (starts, columns, values, d)."""
    starts = np.concatenate([[0], np.cumsum((dense != 0).sum(axis=1))])
    return starts, np.nonzero(dense)[1], dense[dense != 0], dense.shape[1]


def logistic(z, b):
    return np.logaddexp(0.0, -b * z), -b / (1.0 + np.exp(b * z))


def squares(z, b):
    return (z - b) ** 2 / 2, z - b


def robust(z, b):
    return np.log1p((z - b) ** 2 / 2), (z - b) / (1 + (z - b) ** 2 / 2)


LINEAR = {
    "logistic": (opt.logistic_regression, LABELS, logistic),
    "squares": (opt.least_squares, TARGETS, squares),
    "robust": (opt.robust_regression, TARGETS, robust),
}


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("kind", LINEAR)
def test_linear_terms_are_those_of_their_formulas(kind, layout):
    make, labels, formula = LINEAR[kind]
    f = make(DENSE if layout == "dense" else sparse(DENSE), labels, l2=0.3, nonconvex=0.2)
    x, y = POINTS
    chosen, weights = [3, 3, 17, 0], [0.5, -1.0, 2.0, 3.0]

    def of(x):
        value, slope = formula(DENSE @ x, labels)
        more = 0.15 * x @ x + 0.2 * (x**2 / (1 + x**2)).sum()
        return value + more, slope[:, None] * DENSE + 0.3 * x + 0.4 * x / (1 + x**2) ** 2

    values, gradients = of(x)
    assert f.loss(x) == pytest.approx(values.mean(), rel=1e-13)
    assert f.loss(x, chosen, weights=weights) == pytest.approx(values[chosen] @ weights, rel=1e-12)
    near = {"rtol": 1e-12, "atol": 1e-13}
    np.testing.assert_allclose(f.grad(x), gradients.mean(axis=0), **near)
    np.testing.assert_allclose(f.gradients(x), gradients, **near)
    np.testing.assert_allclose(f.grad(x, chosen), gradients[chosen].mean(axis=0), **near)
    other = of(y)[1]
    np.testing.assert_allclose(f.grad(x, chosen, minus=y), (gradients - other)[chosen].mean(axis=0), **near)
    out = np.ones(7)
    assert f.grad(x, chosen, weights=weights, scale=2.0, out=out, accumulate=True) is out
    np.testing.assert_allclose(out, 1.0 + 2.0 * np.array(weights) @ gradients[chosen], **near)
    np.testing.assert_array_equal(f.features(), DENSE)


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_softmax_terms_are_those_of_their_formula(layout):
    f = opt.softmax_regression(DENSE if layout == "dense" else sparse(DENSE), CLASSES, l2=0.1)
    x, y = RNG.normal(size=(2, 21))

    def of(x):
        scores = DENSE @ x.reshape(3, 7).T
        p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        slopes = p - np.eye(3)[CLASSES]
        return -np.log(p[np.arange(40), CLASSES]) + 0.05 * x @ x, np.einsum("nc,nd->ncd", slopes, DENSE).reshape(
            40, 21
        ) + 0.1 * x

    np.testing.assert_allclose(f.loss(x), of(x)[0].mean(), rtol=1e-13)
    np.testing.assert_allclose(f.gradients(x), of(x)[1], rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(f.grad(x, minus=y), (of(x)[1] - of(y)[1]).mean(axis=0), rtol=1e-11, atol=1e-13)


def test_any_number_of_threads_gives_the_same_bits():
    """More samples than fit in a chunk, so that several threads have work."""
    rng = np.random.default_rng(0)
    f = opt.logistic_regression(rng.normal(size=(5000, 9)), np.where(rng.random(5000) < 0.5, 1.0, -1.0), l2=0.1)
    x, y = rng.normal(size=(2, 9))
    found = {(f.grad(x, minus=y, threads=k).tobytes(), f.loss(x, threads=k)) for k in (1, 2, 3, 8)}
    assert len(found) == 1
    hashes = set()
    for threads in (1, 2, 8):
        page = opt.PAGE(f, sampling=opt.Nice(700), threads=threads)
        page.run(30)
        hashes.add(hashlib.sha256(page.x).hexdigest())
    assert len(hashes) == 1


def test_a_function_of_python_is_a_finite_sum():
    own = opt.least_squares(DENSE, TARGETS)
    f = opt.FiniteSum(lambda x, k: (own.loss(x, k), own.grad(x, k)), n=40, d=7)
    for sampling in (opt.Nice(3), opt.Importance(3, np.arange(1.0, 41.0)), opt.Independent(0.01)):
        a, b = (opt.PAGE(problem, sampling=sampling, step=0.01, seed=3) for problem in (f, own))
        a.run(60)
        b.run(60)
        np.testing.assert_allclose(a.x, b.x, rtol=1e-10)

    def fails(x, k):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        opt.FiniteSum(fails, 4, 2).loss([0.0, 0.0])
    for wrong, error in ((1.0, TypeError), ((1.0, [1.0]), ValueError)):
        with pytest.raises(error):
            opt.FiniteSum(lambda x, k, wrong=wrong: wrong, 4, 2).grad([0.0, 0.0])


def test_an_oracle_of_any_model_is_a_finite_sum():
    params = bt.Parameters(dtype="float64")
    oracle = bt.Oracle(bt.nn.Linear(params, 7, 1), loss="mse", params=params)
    f = opt.from_oracle(oracle, DENSE, TARGETS)
    x = np.append(POINTS[0], 0.5)
    found = f.grad(x, [3, 8])
    z = (DENSE @ POINTS[0] + 0.5 - TARGETS)[[3, 8]]
    expected = 2 * (z[:, None] * np.hstack([DENSE, np.ones((40, 1))])[[3, 8]]).mean(axis=0)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


# Sampling


def test_batches_are_functions_of_seed_and_round():
    for sampling in (opt.Nice(5), opt.WithReplacement(5), opt.Independent(0.3), opt.Reshuffle(7), opt.Partition(4)):
        first = [sampling.batch(20, seed=1, round=r)[0].tolist() for r in range(30)]
        again = [sampling.batch(20, seed=1, round=r)[0].tolist() for r in reversed(range(30))]
        assert first == again[::-1]
        assert first != [sampling.batch(20, seed=2, round=r)[0].tolist() for r in range(30)]
    epoch = np.concatenate([opt.Reshuffle(7).batch(20, round=r)[0] for r in range(3, 6)])
    assert sorted(epoch) == list(range(20))


def test_subsets_are_equally_probable():
    counts = {}
    for r in range(6000):
        batch = tuple(opt.Nice(2).batch(4, round=r)[0].tolist())
        counts[batch] = counts.get(batch, 0) + 1
    assert len(counts) == 6
    assert sum((c - 1000) ** 2 / 1000 for c in counts.values()) < 25.7  # chi square, 5 degrees, 1e-4
    picks = np.concatenate([opt.Importance(3, [1.0, 2.0, 3.0, 4.0]).batch(4, round=r)[0] for r in range(4000)])
    shares = np.bincount(picks) / len(picks)
    np.testing.assert_allclose(shares, [0.1, 0.2, 0.3, 0.4], atol=0.02)


# Proximal operators


@pytest.mark.parametrize(
    ("prox", "is_inside"),
    [
        (opt.Zero(), None),
        (opt.L1(0.7), None),
        (opt.L2Squared(0.7), None),
        (opt.ElasticNet(0.3, 0.8), None),
        (opt.Box(-0.5, 0.25), lambda u: (u >= -0.5).all() and (u <= 0.25).all()),
        (opt.Simplex(1.5), lambda u: (u >= 0).all() and abs(u.sum() - 1.5) < 1e-12),
        (opt.L1Ball(1.5), lambda u: abs(u).sum() <= 1.5 + 1e-12),
        (opt.L2Ball(0.5), lambda u: np.linalg.norm(u) <= 0.5 + 1e-12),
        (opt.LinfBall(0.5), lambda u: abs(u).max() <= 0.5),
    ],
    ids=lambda part: repr(part) if isinstance(part, opt.Prox) else "",
)
def test_prox_is_the_minimiser(prox, is_inside):
    """Its subgradient inequality at many points: <x - p, u - p> <= step (R(u) - R(p)) for all u where R is finite."""
    rng = np.random.default_rng(1)
    for _ in range(50):
        x, step = rng.normal(size=5) * 2, rng.uniform(0.1, 2)
        p = prox(x, step)
        assert is_inside is None or is_inside(p)
        np.testing.assert_allclose(prox(x.copy(), step, out=x.copy()), p)
        for u in (prox(v, 1.0) if is_inside else v for v in rng.normal(size=(40, 5)) * 2):
            assert (x - p) @ (u - p) <= step * (prox.value(u) - prox.value(p)) + 1e-9


PROXES = [
    *(opt.Zero(), opt.L1(0.7), opt.L2Squared(0.7), opt.ElasticNet(0.3, 0.8), opt.Box(-0.5, 0.25), opt.Simplex(1.5)),
    *(opt.L1Ball(1.5), opt.L2Ball(0.5), opt.LinfBall(0.5)),
]


@pytest.mark.parametrize("prox", PROXES, ids=repr)
def test_nan_goes_through_every_prox(prox):
    rng = np.random.default_rng(2)
    for place in range(5):
        for scale in (1e-300, 1.0, 1e300):
            x = rng.normal(size=5) * scale
            x[place] = np.nan
            found = prox(x, 0.5)
            assert np.isnan(found[place])
            if not isinstance(prox, (opt.Simplex, opt.L1Ball)):
                assert np.isnan(found).sum() == (5 if isinstance(prox, opt.L2Ball) else 1)
            assert np.isnan(prox(np.full(5, np.nan))).all()


@pytest.mark.parametrize("ball", [opt.L1Ball(1.0), opt.L2Ball(1.0)], ids=repr)
@pytest.mark.parametrize("x", [[np.inf, 1.0], [1.0, -np.inf], [np.inf, np.inf], [np.inf], [np.nan, 5.0]])
def test_what_is_not_finite_has_no_projection_onto_a_ball(ball, x):
    assert np.isnan(ball(x)).all()


def test_the_loss_of_no_samples_is_refused():
    f = opt.least_squares(np.eye(2), np.ones(2), l2=0.1)
    with pytest.raises(ValueError, match="the loss"):
        f.loss(np.ones(2), [])
    assert f.grad(np.ones(2), []).tolist() == [0.0, 0.0]


def test_divergence_is_named_behind_a_prox():
    f = opt.least_squares([[1.0, 2.0], [3.0, -1.0], [-1.0, 1.0]], [1.0, 2.0, 3.0])
    for prox in (opt.L1(0.1), opt.L2Squared(0.1), opt.ElasticNet(0.1, 0.1)):
        for make in (lambda **more: opt.AGD(f, mu=0.0, **more), lambda **more: opt.GD(f, **more)):
            method = make(step=50.0, prox=prox)
            with pytest.raises(FloatingPointError, match="diverged"):
                method.run(5000)
            assert np.isfinite(method.x).all()


def projected(x, total, signed):
    """Onto the simplex or the l1 ball, in fractions."""
    exact = [Fraction(value) for value in x]
    sizes = [abs(value) for value in exact] if signed else exact
    total = Fraction(total)
    if signed and sum(sizes) <= total:
        return exact
    ordered = sorted(sizes, reverse=True)
    ends = [(sum(ordered[: k + 1]) - total) / (k + 1) for k in range(len(ordered))]
    t = [end for size, end in zip(ordered, ends) if size > end][-1]
    left = [max(size - t, Fraction(0)) for size in sizes]
    return [-value if signed and own < 0 else value for own, value in zip(exact, left)]


SCALES = [1e-300, 1e-200, 1e-30, 1e-8, 1.0, 1e8, 1e17, 1e155, 1e300]


@pytest.mark.parametrize("radius", [1e-290, 1e-8, 1.0, 1e10, 1e250, 1e307])
def test_projections_are_right_at_any_scale(radius):
    """Against exact arithmetic, within a few units in the last place of the radius or of the remaining numbers."""
    rng = np.random.default_rng(3)
    given = [rng.normal(size=4) * scale for scale in SCALES]
    given += [np.full(3, scale) for scale in SCALES] + [
        np.array([scale, scale * (1 + 2**-40), 0.0]) for scale in SCALES
    ]
    given += [np.array([1e17, 1e17 + 32, 0.0]), np.array([1e300, -1e300, 1.0]), np.full(4, 1.7e308)]
    for x in given:
        for prox, signed in ((opt.Simplex(radius), False), (opt.L1Ball(radius), True)):
            expected, found = projected(x, radius, signed), prox(x)
            for one, other in zip(expected, found):
                assert abs(one - Fraction(other)) <= Fraction(8e-16) * Fraction(radius), (prox, x)
            sizes = [Fraction(abs(value)) for value in found]
            assert sum(sizes) <= Fraction(radius) * (1 + Fraction(2e-15))
            assert signed or (found >= 0.0).all()
        found, square = opt.L2Ball(radius)(x), sum(Fraction(value) ** 2 for value in x)
        inside = square <= Fraction(radius) ** 2
        assert not inside or found.tolist() == x.tolist()
        if not inside:
            largest = np.abs(x).max()
            direction = x / largest
            expected = direction / np.linalg.norm(direction) * radius
            np.testing.assert_allclose(found, expected, rtol=2e-15, atol=1e-15 * radius)


def test_projections_of_moderate_numbers_keep_their_bits():
    """The same as by the plain formulas."""
    rng = np.random.default_rng(4)
    for _ in range(200):
        x, radius = rng.normal(size=6), rng.uniform(0.3, 3.0)
        ordered = np.sort(abs(x))[::-1]
        ends = (np.cumsum(ordered) - radius) / np.arange(1.0, 7.0)
        if abs(x).sum() > radius and ordered[0] <= 4.0 * radius:
            t = ends[ordered > ends][-1]
            assert opt.L1Ball(radius)(x).tolist() == (np.sign(x) * np.maximum(abs(x) - t, 0.0)).tolist()


def test_arguments_of_a_prox_are_checked():
    for prox in PROXES:
        for step in (-1.0, np.nan, np.inf, -np.inf):
            with pytest.raises(ValueError, match="step must be finite and at least 0"):
                prox([1.0, 2.0], step)
        for out, error in (
            (np.zeros(2, int), TypeError),
            (np.zeros(2, np.float32), TypeError),
            ([0.0, 0.0], TypeError),
        ):
            with pytest.raises(error, match="out must be an array of float64"):
                prox([1.0, 2.0], 1.0, out=out)
        for shape in ((1,), (3, 2), (2, 1), ()):
            with pytest.raises(ValueError, match=r"out must have the shape \(2,\)"):
                prox([1.0, 2.0], 1.0, out=np.zeros(shape))
    assert opt.L1(1.0)([3.0, -2.0], 0.0).tolist() == [3.0, -2.0]


# Methods against plain references


def problem():
    return opt.logistic_regression(DENSE, LABELS, l2=0.05)


def reference(method, draws, gamma, p_weights):
    """The same steps in NumPy from the recorded draws."""
    f, n = problem(), 40
    x, prox = np.zeros(7), method.prox
    w, grad_w, g = x, f.grad(x), f.grad(x)
    table = f.gradients(x)
    for batch, coin in draws:
        weights = p_weights[batch] / len(batch) if len(batch) else []
        if isinstance(method, (opt.GD, opt.SGD)):
            x = prox(x - gamma * f.grad(x, batch, weights=weights), gamma)
        elif isinstance(method, opt.LSVRG):
            old = x
            x = prox(x - gamma * (f.grad(x, batch) - f.grad(w, batch) + grad_w), gamma)
            if coin:
                w, grad_w = old, f.grad(old)
        elif isinstance(method, opt.SAGA):
            new = f.gradients(x, batch)
            g = (new - table[batch]).mean(axis=0) + table.mean(axis=0)
            table[batch] = new
            x = prox(x - gamma * g, gamma)
        else:
            old, x = x, prox(x - gamma * g, gamma)
            g = f.grad(x) if coin else g + f.grad(x, batch) - f.grad(old, batch)
    assert n == f.n
    return x


METHODS = {
    "GD": lambda f, **more: opt.GD(f, **more),
    "SGD nice": lambda f, **more: opt.SGD(f, sampling=opt.Nice(4), **more),
    "SGD replacement": lambda f, **more: opt.SGD(f, sampling=opt.WithReplacement(4), **more),
    "SGD importance": lambda f, **more: opt.SGD(f, sampling=opt.Importance(4, np.arange(1.0, 41.0)), **more),
    "LSVRG": lambda f, **more: opt.LSVRG(f, sampling=opt.Nice(2), p=0.2, **more),
    "SAGA": lambda f, **more: opt.SAGA(f, sampling=opt.Nice(3), **more),
    "PAGE": lambda f, **more: opt.PAGE(f, sampling=opt.Nice(3), p=0.3, **more),
}


@pytest.mark.parametrize("prox", [opt.Zero(), opt.L1(0.02)], ids=repr)
@pytest.mark.parametrize("name", METHODS)
def test_a_hundred_steps_are_those_of_a_plain_reference(name, prox):
    method = METHODS[name](problem(), prox=prox, seed=7)
    draws = []
    for _ in range(100):
        method.step()
        batch, coin = method.drawn()
        draws.append((batch.copy(), coin))
    shares = np.arange(1.0, 41.0) / 20.5 if "importance" in name else np.ones(40)
    expected = reference(method, draws, method.gamma, 1.0 / shares)
    assert np.linalg.norm(method.x - expected) <= 1e-12 * np.linalg.norm(expected)


def test_reductions_to_gradient_descent():
    f, near = problem(), {"rtol": 1e-13, "atol": 1e-15}
    gd = opt.GD(f, step=0.5)
    gd.run(100)
    for same in (opt.SGD(f, sampling=opt.Nice(40), step=0.5), opt.PAGE(f, sampling=opt.Nice(4), p=1.0, step=0.5)):
        same.run(100)
        assert same.x.tobytes() == gd.x.tobytes(), same
    for sampling in (opt.Nice(40), opt.Full()):
        for like in (opt.PAGE(f, sampling=sampling, p=0.3, step=0.5), opt.LSVRG(f, sampling=sampling, p=0.3, step=0.5)):
            like.run(100)
            np.testing.assert_allclose(like.x, gd.x, **near)
    single = opt.SAGA(f, sampling=opt.Nice(1), step=0.5)
    single.run(100)
    assert abs(single.x - gd.x).max() > 1e-6


# State, limits, errors


@pytest.mark.parametrize("name", [*METHODS, "AGD", "FISTA"])
def test_a_method_resumes_bit_for_bit(name, resumed):
    accelerated = {"AGD": opt.AGD, "FISTA": lambda f, **more: opt.AGD(f, mu=0.0, prox=opt.L1(0.01), **more)}
    make = {**METHODS, **accelerated}[name]
    kept, of, state = resumed(lambda: make(problem(), seed=3, step="theory*0.5"))
    assert (kept.step, kept.oracle_calls, kept.loss) == (of.step, of.oracle_calls, of.loss)
    wrong = opt.GD(opt.least_squares([[1.0]], [1.0])) if name == "GD" else opt.GD(problem())
    with pytest.raises(ValueError):
        wrong.load_state_dict(state)
    assert wrong.record().step == 0


@pytest.mark.parametrize("n", [1, 3, 7, 100, 1000])
def test_epochs_end_where_records_say(n):
    """At the first step at which the records show as many epochs: no product of floats decides."""
    rng = np.random.default_rng(0)
    f = opt.least_squares(rng.normal(size=(n, 2)), rng.normal(size=n))
    for calls in sorted({0, 1, n // 3, n // 2, 29 * n // 100, n - 1, n, n + 1, 2 * n, 5 * n // 3}):
        sgd = opt.SGD(f, sampling=opt.Nice(1), step=1e-3)
        sgd.run(3)
        assert sgd.run(epochs=calls / n)[-1].oracle_calls == 3 + calls
    assert opt.SGD(f, sampling=opt.Nice(1), step=1e-3).run(epochs=0.29)[-1].epochs >= 0.29


def test_a_callback_receives_each_record():
    f = problem()
    for limits in ({"steps": 0}, {"steps": 1}, {"steps": 7}, {"epochs": 3}, {"epochs": 0}, {"steps": 5, "epochs": 2}):
        for every in (None, 1, 2, 7, 1000):
            seen = []
            records = opt.GD(f).run(**limits, record_every=every, callback=seen.append)
            assert seen == records
            assert [record.step for record in records] == sorted({record.step for record in records})
    method = opt.GD(f)
    with pytest.raises(ZeroDivisionError):
        method.run(9, record_every=2, callback=lambda record: 1 // (4 - record.step))
    assert method.record().step == 4
    assert [record.step for record in method.run(9, record_every=2, callback=lambda record: record.step > 7)] == [
        4,
        6,
        8,
    ]
    for name in ("steps", "record_every"):
        with pytest.raises(TypeError, match=name):
            method.run(**{"steps": 3, name: 1.5})


def test_limits_of_a_run():
    f = problem()
    assert opt.GD(f).run(epochs=10)[-1].step == 10
    assert opt.SGD(f, sampling=opt.Nice(4)).run(epochs=2)[-1].step == 20
    records = opt.GD(f).run(10, record_every=4)
    assert [record.step for record in records] == [0, 4, 8, 10]
    assert [record.epochs for record in records] == [0, 4, 8, 10]
    assert opt.GD(f).run(1000, record_every=1, callback=lambda record: record.step == 7)[-1].step == 7
    assert opt.GD(f).run(1000, record_every=1, callback=lambda record: np.float64(record.step) > 6)[-1].step == 7
    assert opt.GD(f).run(seconds=0.02)[-1].seconds < 1.0
    with pytest.raises(ValueError, match="limit"):
        opt.GD(f).run()
    for limits in ({"steps": 0}, {"epochs": 0}, {"seconds": 0}, {"steps": 5, "epochs": 0}):
        seen = []
        assert [record.step for record in opt.GD(f).run(**limits, callback=seen.append)] == [0]
        assert len(seen) == 1


def test_steps_by_a_schedule_and_by_theory():
    f = problem()
    gd = opt.GD(f, step=lambda round: 1.0 / (round + 1.0))
    gd.run(300)
    x = np.zeros(7)
    for r in range(300):
        x = x - 1.0 / (r + 1.0) * f.grad(x)
    np.testing.assert_allclose(gd.x, x, rtol=1e-12)
    c = opt.smoothness(f)
    assert opt.GD(f, step="theory*4").gamma == 4.0 * opt.GD(f).gamma == 4.0 / c.L
    assert opt.PAGE(f, p=1.0).gamma == pytest.approx(1.0 / c.L)
    q = 40 * np.arange(1.0, 41.0) / 820.0
    importance = opt.SGD(f, sampling=opt.Importance(4, np.arange(1.0, 41.0)))
    expected = ((c.L_i / q).max() / 4 + 0.75 * c.L) * 2
    assert importance.gamma == pytest.approx(1.0 / expected)


def test_records_have_the_known_quantities():
    f = problem()
    x_star = opt.solve(f)
    assert np.linalg.norm(f.grad(x_star)) <= 1e-13
    gd = opt.GD(f, x_star=x_star, lyapunov=True)
    record = gd.step()
    assert record.gap == pytest.approx(f.loss(gd.x) - f.loss(x_star))
    assert record.distance == record.lyapunov == pytest.approx(((gd.x - x_star) ** 2).sum())
    assert record.grad_norm == pytest.approx(np.linalg.norm(f.grad(gd.x)))
    assert opt.GD(f).record().gap is None


def test_divergence_is_named_and_the_last_iterate_kept():
    method = opt.GD(opt.least_squares(DENSE, TARGETS), step=1e200)
    with pytest.raises(FloatingPointError, match=r"diverged: .* step \d+ .* smaller step"):
        method.run(1000)
    assert np.isfinite(method.x).all()
    assert method.record().step > 0


BAD = {
    "batch above n": lambda f: opt.SGD(f, sampling=opt.Nice(41)),
    "empty batch": lambda f: opt.Nice(0),
    "empty batch with replacement": lambda f: opt.WithReplacement(0),
    "empty weighted batch": lambda f: opt.Importance(0, [1.0]),
    "empty batch of a permutation": lambda f: opt.Reshuffle(-1),
    "no parts": lambda f: opt.Partition(0),
    "no chance": lambda f: opt.Independent(0.0),
    "a negative weight": lambda f: opt.Importance(1, [1.0, -1.0]),
    "a weight that is infinite": lambda f: opt.Importance(1, [1.0, np.inf]),
    "a negative factor of a norm": lambda f: opt.L1(-1.0),
    "a factor that is NaN": lambda f: opt.ElasticNet(1.0, float("nan")),
    "no simplex": lambda f: opt.Simplex(0.0),
    "negative step": lambda f: opt.GD(f, step=-1.0),
    "zero step": lambda f: opt.GD(f, step=0.0),
    "NaN step": lambda f: opt.GD(f, step=float("nan")),
    "unknown step": lambda f: opt.GD(f, step="best"),
    "negative factor": lambda f: opt.GD(f, step="theory*-1"),
    "x0 of another length": lambda f: opt.GD(f, [0.0]),
    "x0 not finite": lambda f: opt.GD(f, np.full(7, np.inf)),
    "probability": lambda f: opt.PAGE(f, p=0.0),
    "weights": lambda f: opt.SGD(f, sampling=opt.Importance(1, np.zeros(40))),
    "theory of a biased sampling": lambda f: opt.SGD(f, sampling=opt.Reshuffle(4)),
    "sampling of SAGA": lambda f: opt.SAGA(f, sampling=opt.WithReplacement(1)),
    "NaN features": lambda f: opt.least_squares([[np.nan]], [1.0]),
    "no samples": lambda f: opt.least_squares(np.zeros((0, 3)), []),
    "no columns": lambda f: opt.least_squares(np.zeros((3, 0)), np.zeros(3)),
    "features of one dimension": lambda f: opt.least_squares([1.0], [1.0]),
    "lengths": lambda f: opt.least_squares([[1.0]], [1.0, 2.0]),
    "labels": lambda f: opt.logistic_regression([[1.0], [2.0]], [3.0, 4.0]),
    "columns that do not ascend": lambda f: opt.least_squares(([0, 2], [1, 0], [1.0, 1.0], 2), [1.0]),
    "a column above d": lambda f: opt.least_squares(([0, 1], [2], [1.0], 2), [1.0]),
    "negative starts": lambda f: opt.least_squares(([0, -1], [0], [1.0], 2), [1.0]),
    "negative l2": lambda f: opt.least_squares([[1.0]], [1.0], l2=-1.0),
    "negative radius": lambda f: opt.L2Ball(-1.0),
    "empty box": lambda f: opt.Box(1.0, 0.0),
    "threads of a function": lambda f: opt.FiniteSum(lambda x, k: (0.0, x), 1, 1).grad([0.0], threads=2),
    "theory of a function": lambda f: opt.GD(opt.FiniteSum(lambda x, k: (0.0, x), 1, 1)),
    "one class": lambda f: opt.softmax_regression([[1.0]], [0]),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_value_error(name):
    with pytest.raises(ValueError):
        BAD[name](problem())


@pytest.mark.parametrize("method", ["SGD", "PAGE", "SAGA", "EF21", "DIANA", "MARINA", "Scaffnew"])
def test_arguments_of_another_kind_are_named(method):
    make = getattr(opt, method)
    problem = opt.least_squares(np.eye(3), np.ones(3))
    with pytest.raises(TypeError, match=r"problem must be a FiniteSum, such as .*, found function"):
        make(lambda x: x)
    with pytest.raises(TypeError, match=r"sampling must be a Sampling, such as bt.opt.Nice\(8\), found str"):
        make(problem, sampling="nice")
    with pytest.raises(TypeError, match=r"prox must be a Prox, such as bt.opt.L1\(0.1\), found float"):
        make(problem, prox=0.1)
    with pytest.raises(TypeError, match=r"compressor must be a Compressor, such as .*, found str"):
        make(problem, compressor="topk")


NAMED = {
    "constants must be a Smoothness": lambda f: opt.GD(f, constants=0),
    "constants must be a Smoothness, such as": lambda f: opt.EF21(f, compressor=bt.compress.TopK(1), constants=[1.0]),
    "delays must be a Delays": lambda f: opt.Rennala(f, delays=[1, 2], gathered=2),
    "delays must be a Delays, such as": lambda f: opt.FedBuff(f, delays=1.0, buffer=1, step=0.1),
    "network must be a Network": lambda f: opt.DCGD(f, compressor=bt.compress.Identity(), network=3),
    "compute must be a Delays": lambda f: opt.Network([1.0]),
    "oracle must be an Oracle": lambda f: opt.from_oracle(3, [1.0]),
    "problem must be a FiniteSum": lambda f: opt.smoothness(3),
    "problem must be a FiniteSum, such as": lambda f: opt.solve(f.features()),
    "a state must be a dict": lambda f: opt.GD(f).load_state_dict([]),
    "local_steps must be an integer": lambda f: opt.Scaffold(f, local_steps=1.5),
}


@pytest.mark.parametrize("text", NAMED)
def test_objects_of_another_class_are_named(text):
    with pytest.raises(TypeError, match=text):
        NAMED[text](problem())


def test_labels_that_are_not_named_are_shown():
    with pytest.raises(ValueError, match="found 3, 4; pass label_names="):
        opt.logistic_regression([[1.0], [2.0]], [3.0, 4.0])
    named = opt.logistic_regression([[1.0], [2.0]], [3.0, 4.0], label_names=(3, 4))
    np.testing.assert_allclose(named.grad([0.0]), [0.25 - 0.5])


def test_a_given_batch_is_checked():
    sgd = opt.SGD(problem(), sampling=opt.Nice(2))
    with pytest.raises(ValueError, match="2 samples"):
        sgd.step(batch=[1])
    with pytest.raises(IndexError):
        sgd.step(batch=[1, 40])
    assert sgd.record().step == 0
    sgd.step(batch=[5, 9])
    np.testing.assert_allclose(sgd.x, -sgd.gamma * problem().grad(np.zeros(7), [5, 9]), rtol=1e-13)


@pytest.mark.parametrize(
    ("features", "labels"),
    [
        ([[1.0], [-1.0]], [1, -1]),
        ([[1.0, 2.0], [1.5, 1.0]], [1, 1]),
        # The second sample alone is separable.
        ([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], [1, -1, 1]),
    ],
)
def test_separable_samples_have_no_minimiser(features: list[list[float]], labels: list[int]):
    with pytest.raises(ValueError, match="no minimiser was found"):
        opt.solve(opt.logistic_regression(features, labels))
    x_star = opt.solve(opt.logistic_regression(features, labels, l2=1e-6))
    assert np.isfinite(x_star).all()


@pytest.mark.parametrize(
    "method",
    [name for name in dir(opt) if isinstance(kind := getattr(opt, name), type) and issubclass(kind, opt.Method)],
)
def test_misspelt_options_of_methods_are_named(method: str):
    with pytest.raises(
        TypeError, match=rf"{method}\(\) got an unexpected keyword argument 'sampeling'; did you mean 'sampling'"
    ):
        getattr(opt, method)(problem(), sampeling=opt.Nice(1))


@pytest.mark.parametrize("rule", [opt.Nice, opt.WithReplacement, opt.Reshuffle, opt.Partition])
@pytest.mark.parametrize("size", [2.5, "3", None])
def test_sizes_of_rules_are_integers(rule, size):
    with pytest.raises(TypeError, match=f"must be an int, found {type(size).__name__}"):
        rule(size)


def test_labels_that_are_no_numbers_are_refused():
    with pytest.raises(TypeError, match=r"labels must be integers of at least 0, found <U1; np\.unique"):
        opt.softmax_regression(np.eye(3), ["a", "b", "c"])


def test_long_weights_are_shortened():
    assert repr(opt.Importance(3, np.arange(1.0, 1000.0))) == "Importance(3, [  1.,   2., ..., 998., 999.])"
    assert repr(opt.Importance(3, [1, 2])) == "Importance(3, [1, 2])"


def test_constants_and_sparse_rows_are_compared_and_hashed_by_their_numbers():
    problem = opt.least_squares(np.eye(3), np.ones(3))
    sparse, other = (opt.make_least_squares(5, 4, density=0.5, seed=seed)[0] for seed in (0, 1))
    pairs = [(opt.smoothness(problem), opt.smoothness(opt.least_squares(2.0 * np.eye(3), np.ones(3)))), (sparse, other)]
    for x, y in pairs:
        for same in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
            assert x == same
            assert (x != same) is False
            assert x in [y, same]
            assert hash(x) == hash(same)
        assert x != y
        assert (x == y) is False
        assert x not in [y, 0, None, "x"]
        assert len({x, y, copy.copy(x)}) == 2
