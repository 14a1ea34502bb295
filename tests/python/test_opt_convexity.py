"""Theorems that need convex f_i refuse problems whose f_i need not be convex; all others take them."""

from __future__ import annotations

import numpy as np
import pytest

from burtorch import compress, opt

RNG = np.random.default_rng(4)
N, D = 12, 4
FEATURES, TARGETS = RNG.normal(size=(N, D)), RNG.normal(size=N)
SIGNS = np.sign(TARGETS)
PARTS = np.array_split(np.arange(N), 3)
TOP, RAND, DELAYS = compress.TopK(2), compress.RandK(2), opt.Delays([1.0, 2.0])

OF_SAMPLES = {
    "SGD": lambda f, **more: opt.SGD(f, **more),
    "SGD of all samples": lambda f, **more: opt.SGD(f, sampling=opt.Full(), **more),
    "LSVRG": lambda f, **more: opt.LSVRG(f, **more),
    "SAGA": lambda f, **more: opt.SAGA(f, **more),
    "LKatyusha": lambda f, **more: opt.LKatyusha(f, mu=1e-3, **more),
}
OF_CLIENTS = {
    "DCGD": lambda f, **more: opt.DCGD(f, compressor=RAND, **more),
    "DIANA": lambda f, **more: opt.DIANA(f, compressor=RAND, **more),
    "EF14": lambda f, **more: opt.EF14(f, compressor=TOP, **more),
    "Scaffnew": lambda f, **more: opt.Scaffnew(f, p=0.5, **more),
    "Scaffold": lambda f, **more: opt.Scaffold(f, local_steps=2, **more),
}
CONVEX = {**OF_SAMPLES, **OF_CLIENTS, "AGD": lambda f, **more: opt.AGD(f, **more)}
ANY = {
    "GD": lambda f, **more: opt.GD(f, **more),
    "PAGE": lambda f, **more: opt.PAGE(f, **more),
    "PAGE PL": lambda f, **more: opt.PAGE(f, pl=True, **more),
    "Rennala": lambda f, **more: opt.Rennala(f, delays=DELAYS, gathered=2, **more),
    "Ringmaster": lambda f, **more: opt.Ringmaster(f, delays=DELAYS, max_delay=2, **more),
    "MindFlayer": lambda f, **more: opt.MindFlayer(f, delays=DELAYS, trials=1, limits=2.0, **more),
}
ANY_OF_CLIENTS = {
    "MARINA": lambda f, **more: opt.MARINA(f, compressor=RAND, **more),
    "VRMARINA": lambda f, **more: opt.VRMARINA(f, compressor=RAND, **more),
    "PPMARINA": lambda f, **more: opt.PPMARINA(f, compressor=RAND, cohort=opt.Nice(2), **more),
    "EF21": lambda f, **more: opt.EF21(f, compressor=TOP, **more),
    "EF21PP": lambda f, **more: opt.EF21PP(f, compressor=TOP, cohort=opt.Nice(2), **more),
    "EF21BC": lambda f, **more: opt.EF21BC(f, compressor=TOP, downlink=TOP, **more),
    "EF21SGDM": lambda f, **more: opt.EF21SGDM(f, compressor=TOP, **more),
    "DASHA": lambda f, **more: opt.DASHA(f, compressor=RAND, **more),
    "FedAvg": lambda f, **more: opt.FedAvg(f, **more),
}
BENT = {
    "robust": lambda rows, b, **more: opt.robust_regression(rows, b, **more),
    "robust with little l2": lambda rows, b, **more: opt.robust_regression(rows, b, l2=0.1, **more),
    "nonconvex squares": lambda rows, b, **more: opt.least_squares(rows, b, l2=0.2, nonconvex=0.5, **more),
    "nonconvex logistic": lambda rows, b, **more: opt.logistic_regression(rows, np.sign(b), nonconvex=0.5, **more),
    "nonconvex softmax": lambda rows, b, **more: opt.softmax_regression(rows, (b > 0).astype(int), nonconvex=0.5),
    "nonconvex robust": lambda rows, b, **more: opt.robust_regression(rows, b, l2=0.1, nonconvex=0.5, **more),
}


def wide(rows):
    """Rows with more numbers than samples, so that no Hessian of data is positive definite."""
    return np.hstack([rows, RNG.normal(size=(len(rows), 2 * N))])


def refused(method):
    return pytest.raises(
        ValueError, match=f"the theory of {method} does not cover this problem: it needs convex .* number as step"
    )


@pytest.mark.parametrize("kind", BENT)
@pytest.mark.parametrize("name", CONVEX)
def test_a_theorem_that_needs_convexity_refuses_terms_without_it(name, kind):
    f, make = BENT[kind](wide(FEATURES), TARGETS), CONVEX[name]
    word = name.partition(" ")[0]
    for step in ("theory", "theory*0.1"):
        with refused(word):
            make(f, step=step)
        if name in OF_CLIENTS:
            with refused(word):
                make(f, clients=PARTS, step=step)
    method = make(f, step=1e-3)
    method.run(3)
    with refused(word):
        method.theory_step()
    if hasattr(method, "rate"):
        with refused(word):
            method.rate()


@pytest.mark.parametrize("kind", BENT)
@pytest.mark.parametrize("name", OF_CLIENTS)
def test_one_client_without_convexity_is_enough(name, kind):
    rows = wide(FEATURES)
    if kind == "nonconvex softmax":
        make_rest = lambda part: opt.softmax_regression(rows[part], [0, 1, 0, 1], l2=1.0)  # noqa: E731
    else:
        make_rest = lambda part: opt.least_squares(rows[part], TARGETS[part], l2=1.0)  # noqa: E731
    bent = opt.Client(BENT[kind](rows[PARTS[0]], np.array([1.0, -1.0, 1.0, -1.0])))
    clients = [bent, *(opt.Client(make_rest(part)) for part in PARTS[1:])]
    with refused(name):
        CONVEX[name](clients)
    CONVEX[name](clients, step=1e-3).run(3)
    CONVEX[name](clients[1:]).run(3)


@pytest.mark.parametrize("kind", BENT)
@pytest.mark.parametrize("name", [*ANY, *ANY_OF_CLIENTS])
def test_theorems_without_convexity_take_all_terms(name, kind):
    f, make = BENT[kind](FEATURES, TARGETS), {**ANY, **ANY_OF_CLIENTS}[name]
    make(f).run(3)
    if name in ANY_OF_CLIENTS:
        make(f, clients=PARTS).run(3)
        make([opt.Client(BENT[kind](FEATURES[part], TARGETS[part])) for part in PARTS]).run(3)


@pytest.mark.parametrize("name", CONVEX)
def test_l2_makes_all_terms_convex(name):
    """l2 >= nonconvex/2, and for the robust loss l2 >= |a_i|^2/8, with equality too; a little less is refused."""
    largest = float((FEATURES**2).sum(axis=1).max())
    ones = np.full((N, D), 0.5)  # all |a_i|^2 are 1
    makers = [
        lambda s: opt.least_squares(wide(FEATURES), TARGETS, l2=0.15 * s, nonconvex=0.3),
        lambda s: opt.logistic_regression(FEATURES, SIGNS, l2=0.15 * s, nonconvex=0.3),
        lambda s: opt.softmax_regression(FEATURES, (TARGETS > 0).astype(int), l2=0.15 * s, nonconvex=0.3),
        lambda s: opt.robust_regression(ones, TARGETS, l2=0.125 * s),
        lambda s: opt.robust_regression(ones, TARGETS, l2=(0.125 + 0.2) * s, nonconvex=0.4),
    ]
    if name in OF_SAMPLES:  # the largest curvature of clients is less than that of samples
        makers.append(lambda s: opt.robust_regression(FEATURES, TARGETS, l2=0.125 * largest * s))
    for make in makers:
        assert CONVEX[name](make(1.0)).gamma > 0.0
        assert CONVEX[name](make(1.5)).gamma > 0.0
        with refused(name.partition(" ")[0]):
            CONVEX[name](make(0.99))
    if name in OF_CLIENTS:
        own = [opt.Client(make(1.0)) for make in (makers[1], makers[3], makers[4])]
        assert CONVEX[name](own).gamma > 0.0


def test_data_may_make_f_convex_but_not_its_terms():
    """2 N samples of D numbers: the mean of their squares bends upwards everywhere, a single one does not."""
    f = opt.least_squares(3.0 * FEATURES, TARGETS, nonconvex=0.1)
    assert opt.smoothness(f).mu > 0.0
    agd = opt.AGD(f)
    assert 0.0 < agd.rate() < 1.0
    for name, make in {**OF_SAMPLES, **OF_CLIENTS}.items():
        with refused(name.partition(" ")[0]):
            make(f)
    # Clients with enough samples have convex functions.
    halves = np.array_split(np.arange(N), 2)
    assert opt.smoothness(f, halves).mu_min > 0.0
    for name, make in OF_CLIENTS.items():
        assert make(f, clients=halves).gamma > 0.0, name
        own = [opt.Client(opt.least_squares(3.0 * FEATURES[h], TARGETS[h], nonconvex=0.1)) for h in halves]
        flat = opt.Client(opt.least_squares(FEATURES[:2], TARGETS[:2]))
        assert make([*own, flat]).gamma > 0.0, name


def test_terms_of_one_number_have_curvatures_of_their_own():
    f = opt.least_squares([[1.0], [2.0]], [1.0, 1.0], nonconvex=1.0)
    assert opt.smoothness(f).mu_min == 0.5
    assert opt.SAGA(f).gamma == 1.0 / (6.0 * 6.0)
    with refused("SAGA"):
        opt.SAGA(opt.least_squares([[0.5], [2.0]], [1.0, 1.0], nonconvex=1.0))


@pytest.mark.parametrize("name", CONVEX)
def test_functions_with_given_constants_are_taken(name):
    """Nothing is known of a function, and the caller states its constants."""
    own = opt.least_squares(FEATURES, TARGETS, l2=0.1)
    f = opt.FiniteSum(lambda x, k: (own.loss(x, k), own.grad(x, k)), N, D, l2=0.1, nonconvex=0.5)
    c = opt.smoothness(own, N if name in OF_CLIENTS else None)
    assert CONVEX[name](f, constants=c).gamma == CONVEX[name](own, constants=c).gamma


def second_differences(f, samples, rng):
    """The least second difference of the mean over some samples, along random ways through random points."""
    found = []
    for _ in range(2000):
        x, way = 4.0 * rng.normal(size=f.d), rng.normal(size=f.d)
        way *= 1e-3 / np.linalg.norm(way)
        found.append((f.grad(x + way, samples) - f.grad(x, samples)) @ way / (way @ way))
    return min(found)


@pytest.mark.parametrize("kind", BENT)
def test_what_is_refused_bends_downwards_somewhere(kind):
    """Along the steepest bend of the regulariser or of the loss."""
    f = BENT[kind](wide(FEATURES), TARGETS)
    x, way = np.ones(f.d), np.random.default_rng(0).normal(size=f.d)
    rows = f.features()
    if f.nonconvex:
        way[: rows.shape[1]] -= np.linalg.lstsq(rows, rows @ way[: rows.shape[1]], rcond=None)[0]
        way[rows.shape[1] :] = 0.0
    else:
        # The slope of log(1 + z^2/2) falls most where z^2 = 6.
        way = rows[0] / np.linalg.norm(rows[0])
        x = way * (TARGETS[0] + 6.0**0.5) / np.linalg.norm(rows[0])
    way *= 1e-4 / np.linalg.norm(way)
    samples = [0]
    assert (f.grad(x + way, samples) - f.grad(x - way, samples)) @ way < 0.0


def test_what_l2_makes_convex_bends_upwards_everywhere():
    rng, ones = np.random.default_rng(1), np.full((3, D), 0.5)
    for f in (
        opt.robust_regression(ones, TARGETS[:3], l2=0.125),
        opt.robust_regression(ones, TARGETS[:3], l2=0.325, nonconvex=0.4),
        opt.least_squares(ones, TARGETS[:3], l2=0.2, nonconvex=0.4),
    ):
        assert second_differences(f, [0], rng) >= -1e-6
        assert opt.SAGA(f).gamma > 0.0


@pytest.mark.parametrize("kind", ["robust", "nonconvex squares", "nonconvex logistic"])
@pytest.mark.parametrize("prox", [opt.Zero(), opt.L1(0.1), opt.L2Ball(0.5)])
def test_gradient_descent_needs_no_convexity(kind, prox):
    """f + R falls by at least (step/2) |(x - x+)/step|^2."""
    f, rng = BENT[kind](FEATURES, TARGETS), np.random.default_rng(2)
    for _ in range(50):
        gd = opt.GD(f, prox(rng.normal(size=D) * 10.0 ** rng.uniform(-2, 1)), prox=prox)
        x, before = gd.x, gd.record().loss
        after = gd.step().loss
        assert after <= before - 0.5 / gd.gamma * ((x - gd.x) ** 2).sum() + 1e-12 * abs(before)
