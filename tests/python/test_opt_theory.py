"""Theorems as tests: at random states of small problems all outcomes of a step are listed, and the expectation
satisfies the theorem's inequality; with four times the step it does not."""

from __future__ import annotations

import itertools
import runpy
from pathlib import Path

import numpy as np
import pytest

from burtorch import compress, opt

SHARED = runpy.run_path(str(Path(__file__).with_name("enumerated.py")))
N, D, SLACK, THIRDS = (SHARED[name] for name in ("N", "D", "SLACK", "THIRDS"))
excesses, rand_k, ridge = (SHARED[name] for name in ("excesses", "rand_k", "ridge"))
subsets, with_coin = SHARED["subsets"], SHARED["with_coin"]

# Each returns a method, the state of a random generator, its outcomes, and a bound on the expectation: a function of
# (Phi, |grad f|^2).


def sgd(problem, rng, step, tau, prox):
    x_star = opt.solve(problem)
    if prox is not None:
        gd = opt.GD(problem, prox=prox)
        gd.run(steps=20_000)
        x_star = gd.x
    method = opt.SGD(problem, sampling=opt.Nice(tau), step=step, prox=prox, x_star=x_star)
    noise, gamma, mu = method.noise(), method.gamma, method.constants.mu
    h = problem.gradients(x_star)
    spread = ((h - h.mean(axis=0)) ** 2).sum(axis=1).mean()
    assert noise == pytest.approx((N - tau) / (tau * (N - 1)) * spread, abs=1e-12)

    def state():
        return {"x": x_star + rng.normal(size=D) * 10.0 ** rng.uniform(-3, 1)}

    outcomes = [(w, (batch,)) for w, batch in subsets(tau)]
    return method, state, outcomes, lambda phi, g: (1.0 - gamma * mu) * phi + 2.0 * gamma**2 * noise


def l_svrg(problem, rng, step, tau):
    x_star = opt.solve(problem)
    method = opt.LSVRG(problem, sampling=opt.Nice(tau), step=step, x_star=x_star)

    def state():
        x, w = x_star + rng.normal(size=(2, D)) * 10.0 ** rng.uniform(-3, 1, size=(2, 1))
        return {"x": x, "w": w, "grad_w": problem.grad(w)}

    rate = method.rate()
    return method, state, with_coin(subsets(tau), method.p), lambda phi, g: rate * phi


def l_svrg_by_importance(problem, rng, step, power):
    """Batches of one sample, drawn proportionally to a power of L_i."""
    x_star, weights = opt.solve(problem), opt.smoothness(problem).L_i ** power
    method = opt.LSVRG(problem, sampling=opt.Importance(1, weights), step=step, x_star=x_star)

    def state():
        x, w = x_star + rng.normal(size=(2, D)) * 10.0 ** rng.uniform(-3, 1, size=(2, 1))
        return {"x": x, "w": w, "grad_w": problem.grad(w)}

    rate, batches = method.rate(), [(w / weights.sum(), [i]) for i, w in enumerate(weights)]
    return method, state, with_coin(batches, method.p), lambda phi, g: rate * phi


def saga(problem, rng, step, tau):
    x_star = opt.solve(problem)
    method = opt.SAGA(problem, sampling=opt.Nice(tau), step=step, x_star=x_star)

    def state():
        points = x_star + rng.normal(size=(N + 1, D)) * 10.0 ** rng.uniform(-3, 1, size=(N + 1, 1))
        table = np.array([problem.grad(points[i], [i]) for i in range(N)])
        return {"x": points[N], "table": table.ravel(), "mean": table.mean(axis=0)}

    rate = method.rate()
    return method, state, [(w, (batch,)) for w, batch in subsets(tau)], lambda phi, g: rate * phi


def page(problem, rng, step, tau, pl):
    f_star = 0.0 if problem.nonconvex else problem.loss(opt.solve(problem))
    method = opt.PAGE(problem, sampling=opt.Nice(tau), step=step, f_star=f_star, pl=pl)
    gamma, mu = method.gamma, method.constants.mu

    def state():
        x = rng.normal(size=D) * 10.0 ** rng.uniform(-2, 1)
        return {"x": x, "g": problem.grad(x) + rng.normal(size=D) * 10.0 ** rng.uniform(-4, 1)}

    def bound(phi, g):
        return (1.0 - gamma * mu) * phi if pl else phi - 0.5 * gamma * g

    return method, state, with_coin(subsets(tau), method.p), bound


# Methods with clients that have one or two samples each, and RandK(1) of 3 numbers: 81 outcomes for 4 clients, 9 for 2.

PERM_K = [(1 / 24, (None, None, [[(k + 0.5) / 4, u, v]] * N)) for k in range(4) for u in THIRDS for v in (0.25, 0.75)]
"""The rotation of the clients, and a permutation of three coordinates, equal for all clients."""


def dcgd(problem, rng, step):
    x_star = opt.solve(problem)
    method = opt.DCGD(problem, compressor=compress.RandK(1), step=step, x_star=x_star)
    noise, gamma, mu = method.noise(), method.gamma, method.constants.mu
    assert noise == pytest.approx(2 / N * (problem.gradients(x_star) ** 2).sum() / N)

    def state():
        return {"x": x_star + rng.normal(size=D) * 10.0 ** rng.uniform(-3, 1)}

    return method, state, rand_k(N), lambda phi, g: (1.0 - gamma * mu) * phi + 2.0 * gamma**2 * noise


def diana(problem, rng, step, alpha=None):
    x_star = opt.solve(problem)
    method = opt.DIANA(problem, compressor=compress.RandK(1), alpha=alpha, step=step, x_star=x_star)

    def state():
        x = x_star + rng.normal(size=D) * 10.0 ** rng.uniform(-3, 1)
        shifts = problem.gradients(x_star) + rng.normal(size=(N, D)) * 10.0 ** rng.uniform(-3, 1)
        return {"x": x, "h_i": shifts.ravel(), "h": shifts.mean(axis=0)}

    rate = method.rate()
    return method, state, rand_k(N), lambda phi, g: rate * phi


def marina(problem, rng, step, clients, compressor, outcomes, pl):
    f_star = 0.0 if problem.nonconvex else problem.loss(opt.solve(problem))
    method = opt.MARINA(problem, clients=clients, compressor=compressor, step=step, f_star=f_star, pl=pl)
    gamma, mu, p = method.gamma, method.constants.mu, method.p

    def state():
        x = rng.normal(size=D) * 10.0 ** rng.uniform(-2, 1)
        return {"x": x, "g": problem.grad(x) + rng.normal(size=D) * 10.0 ** rng.uniform(-4, 1)}

    def bound(phi, g):
        return (1.0 - gamma * mu) * phi if pl else phi - 0.5 * gamma * g

    partial = [((1.0 - p) * w, (None, False, compression)) for w, (_, _, compression) in outcomes]
    return method, state, [(p, (None, True))] + partial, bound


def ef21(problem, rng, step, k, pl, cohort=None):
    f_star = 0.0 if problem.nonconvex else problem.loss(opt.solve(problem))
    common = {"compressor": compress.TopK(k), "step": step, "f_star": f_star, "pl": pl}
    method = opt.EF21(problem, **common) if cohort is None else opt.EF21PP(problem, **common, cohort=cohort[0])
    gamma, mu = method.gamma, method.constants.mu

    def state():
        x = rng.normal(size=D) * 10.0 ** rng.uniform(-2, 1)
        own = problem.gradients(x) + rng.normal(size=(N, D)) * 10.0 ** rng.uniform(-4, 1)
        return {"x": x, "g_i": own.ravel(), "g": own.mean(axis=0)}

    def bound(phi, g):
        return (1.0 - gamma * mu) * phi if pl else phi - 0.5 * gamma * g

    return method, state, [(1.0, ())] if cohort is None else cohort[1], bound


def dasha(problem, rng, step, a=None):
    f_star = 0.0 if problem.nonconvex else problem.loss(opt.solve(problem))
    method = opt.DASHA(problem, compressor=compress.RandK(1), a=a, step=step, f_star=f_star)
    gamma = method.gamma

    def state():
        x = rng.normal(size=D) * 10.0 ** rng.uniform(-2, 1)
        own = problem.gradients(x)
        sent = own + rng.normal(size=(N, D)) * 10.0 ** rng.uniform(-4, 1)
        return {"x": x, "g_i": sent.ravel(), "h_i": own.ravel(), "g": sent.mean(axis=0)}

    return method, state, rand_k(N), lambda phi, g: phi - 0.5 * gamma * g


def agd(problem, rng, step, mu, prox):
    x_star = opt.solve(problem)
    if prox is not None:
        gd = opt.GD(problem, prox=prox)
        gd.run(steps=20_000)
        x_star = gd.x
    method = opt.AGD(problem, step=step, mu=mu, prox=prox, x_star=x_star)
    rate = method.rate()

    def state():
        x, z = x_star + rng.normal(size=(2, D)) * 10.0 ** rng.uniform(-3, 1, size=(2, 1))
        t = np.array([rng.choice([0.0, 1.0, 7.5])])
        return {"x": x if prox is None else prox(x), "z": z, "t": t}

    return method, state, [(1.0, ())], lambda phi, g: rate * phi


INDEPENDENT = [
    (0.25**k * 0.75 ** (N - k), (list(part),)) for k in range(N + 1) for part in itertools.combinations(range(N), k)
]
"""Every cohort of clients that take part with probability 1/4 each."""


def scaffnew(problem, rng, step):
    x_star = opt.solve(problem)
    method = opt.Scaffnew(problem, step=step, x_star=x_star)

    def state():
        own = x_star + rng.normal(size=(N, D)) * 10.0 ** rng.uniform(-3, 1)
        shifts = problem.gradients(x_star) + rng.normal(size=(N, D)) * 10.0 ** rng.uniform(-3, 1)
        shifts -= shifts.mean(axis=0)
        return {"x": own.mean(axis=0), "x_i": own.ravel(), "h_i": shifts.ravel()}

    rate, p = method.rate(), method.p
    return method, state, [(p, (None, True)), (1.0 - p, (None, False))], lambda phi, g: rate * phi


CASES = {
    "SGD tau=1": (sgd, 0.0, (1, None)),
    "SGD tau=2": (sgd, 0.0, (2, None)),
    "SGD tau=4": (sgd, 0.0, (4, None)),
    "Prox-SGD l1": (sgd, 0.0, (2, opt.L1(0.1))),
    "Prox-SGD ball": (sgd, 0.0, (1, opt.L2Ball(1.0))),
    "L-SVRG": (l_svrg, 0.0, (1,)),
    "L-SVRG by L_i": (l_svrg_by_importance, 0.0, (1.0,)),
    "L-SVRG by the inverse of L_i": (l_svrg_by_importance, 0.0, (-0.5,)),
    "SAGA": (saga, 0.0, (1,)),
    "PAGE tau=1": (page, 0.0, (1, False)),
    "PAGE tau=2": (page, 0.0, (2, False)),
    "PAGE PL": (page, 0.0, (1, True)),
    "PAGE non-convex": (page, 0.5, (2, False)),
    "DCGD": (dcgd, 0.0, ()),
    "DIANA": (diana, 0.0, ()),
    "DIANA of a smaller alpha": (diana, 0.0, (0.1,)),
    "MARINA": (marina, 0.0, (4, compress.RandK(1), rand_k(4), False)),
    "MARINA PL": (marina, 0.0, (2, compress.RandK(1), rand_k(2), True)),
    "MARINA PermK": (marina, 0.0, (4, compress.PermK(), PERM_K, False)),
    "MARINA non-convex": (marina, 0.5, (2, compress.RandK(1), rand_k(2), False)),
    "EF21 TopK(1)": (ef21, 0.0, (1, False)),
    "EF21 TopK(2)": (ef21, 0.0, (2, False)),
    "EF21 PL": (ef21, 0.0, (1, True)),
    "EF21 non-convex": (ef21, 0.5, (1, False)),
    "EF21-PP Nice": (ef21, 0.0, (1, False, (opt.Nice(2), [(w, (batch,)) for w, batch in subsets(2)]))),
    "EF21-PP Independent": (ef21, 0.0, (2, True, (opt.Independent(0.25), INDEPENDENT))),
    "EF21-PP non-convex": (ef21, 0.5, (1, False, (opt.Nice(1), [(w, (batch,)) for w, batch in subsets(1)]))),
    "DASHA": (dasha, 0.0, ()),
    "DASHA non-convex": (dasha, 0.5, ()),
    "DASHA of a smaller a": (dasha, 0.0, (0.02,)),
    "AGD": (agd, 0.0, (None, None)),
    "AGD l1": (agd, 0.0, (None, opt.L1(0.1))),
    "FISTA": (agd, 0.0, (0.0, None)),
    "FISTA ball": (agd, 0.0, (0.0, opt.L2Ball(1.0))),
    "Scaffnew": (scaffnew, 0.0, ()),
}


@pytest.mark.parametrize("name", CASES)
def test_the_theorem_holds_at_a_thousand_states(name):
    assert max(excesses(CASES[name], "theory")) <= SLACK


@pytest.mark.parametrize("name", sorted(CASES.keys() - {"DIANA of a smaller alpha"}))
def test_four_times_the_step_violates_it_somewhere(name):
    assert any(excess > 1e-6 for excess in excesses(CASES[name], "theory*4"))


def test_settings_that_a_theorem_does_not_cover_need_a_number_as_step():
    problem, _ = ridge(0)
    rand = compress.RandK(1)  # omega = 2
    parts = {"compressor": rand, "clients": N}
    settings = [
        *((opt.LSVRG, {"sampling": s}) for s in (opt.Independent(0.5), opt.Reshuffle(1), opt.Partition(2))),
        *((opt.DIANA, {"alpha": alpha, **parts}) for alpha in (0.34, 1.0)),
        *((opt.DASHA, {"a": a, **parts}) for a in (0.21, 1.0)),
    ]
    for make, setting in settings:
        for step in ("theory", "theory*0.1"):
            with pytest.raises(
                ValueError, match=f"the theory of {make.__name__} does not cover .*; give a number as step"
            ):
                make(problem, step=step, **setting)
        make(problem, step=1e-3, **setting).run(3)
    with pytest.raises(ValueError, match="does not cover alpha"):
        opt.DIANA(problem, step=1e-3, alpha=0.5, **parts).rate()
    assert opt.DIANA(problem, alpha=1 / 3, **parts).gamma == opt.DIANA(problem, **parts).gamma
    assert opt.DASHA(problem, a=1 / 5, **parts).gamma == opt.DASHA(problem, **parts).gamma
    assert opt.DASHA(problem, a=1 / 10, **parts).gamma < opt.DASHA(problem, **parts).gamma
    largest = opt.smoothness(problem).L_max
    for sampling in (opt.Nice(2), opt.WithReplacement(2), opt.Full(), opt.Importance(1, np.ones(N))):
        assert opt.LSVRG(problem, sampling=sampling).gamma == 1.0 / (6.0 * largest)


def test_rounding_is_no_strong_convexity():
    """Rank-deficient data, in several ways and scales; full rank with a large condition number is recognised."""
    rng = np.random.default_rng(0)
    for n, d, scale in ((30, 4, 1.0), (300, 40, 1e-3), (3, 5, 1e6), (2000, 10, 1.0)):
        rows = rng.normal(size=(n, d)) * scale
        rows[:, -1] = rows[:, 0] - 3.0 * rows[:, 1]
        f = opt.least_squares(rows, rng.normal(size=n))
        parts = np.array_split(rng.permutation(n), 3)
        assert (opt.smoothness(f).mu, opt.smoothness(f, parts).mu, opt.smoothness(f, parts).mu_min) == (0.0, 0.0, 0.0)
        with pytest.raises(ValueError, match=r"strong convexity of .* is unknown"):
            opt.LKatyusha(f)
        with pytest.raises(ValueError, match=r"strong convexity of .* is unknown"):
            opt.Scaffnew(f, clients=parts)
        assert opt.AGD(f).mu == 0.0
    with pytest.raises(ValueError, match=r"strong convexity of .* is unknown"):
        opt.SGD(f, eps=1e-3, x_star=np.zeros(10))
    thin = np.linalg.qr(rng.normal(size=(50, 5)))[0] * np.geomspace(1.0, 1e-6, 5)
    assert opt.smoothness(opt.least_squares(thin, np.ones(50))).mu == pytest.approx(1e-12 / 50, rel=1e-2)


def test_sampling_constants_are_the_variance():
    """Over every batch of a small problem; importance sampling with other probabilities."""
    rng = np.random.default_rng(0)
    v = rng.normal(size=(N, D))
    mean, square = v.mean(axis=0), (v**2).sum(axis=1)

    def check(sampling, outcomes, shares):
        a, b = sampling.constants(N)
        got = sum(q * ((g - mean) ** 2).sum() for q, g in outcomes)
        assert got == pytest.approx(a * (square / shares).mean() - b * mean @ mean, rel=1e-12)
        assert sum(q * g for q, g in outcomes) == pytest.approx(mean, rel=1e-12)

    ones = np.ones(N)
    for tau in range(1, N + 1):
        check(opt.Nice(tau), [(w, v[batch].mean(axis=0)) for w, batch in subsets(tau)], ones)
    pairs = list(itertools.product(range(N), repeat=2))
    check(opt.WithReplacement(2), [(1 / 16, v[list(pair)].mean(axis=0)) for pair in pairs], ones)
    q = np.array([0.1, 0.2, 0.3, 0.4])
    share = N * q
    found = [(q[i] * q[j], (v[i] / share[i] + v[j] / share[j]) / 2) for i, j in pairs]
    check(opt.Importance(2, q), found, share)
    p = 0.3
    sets = itertools.product([False, True], repeat=N)
    found = [(np.prod([p if s else 1 - p for s in chosen]), v[list(chosen)].sum(axis=0) / (N * p)) for chosen in sets]
    check(opt.Independent(p), found, ones)


def test_the_smoothness_of_quadratics_is_that_of_their_hessians():
    problem, _ = ridge(3, nonconvex=0.25)
    rows = problem.features()
    hessians = rows[:, :, None] * rows[:, None, :]
    mean = hessians.mean(axis=0)
    spread = (hessians @ hessians).mean(axis=0) - mean @ mean
    c = opt.smoothness(problem)
    assert pytest.approx(np.linalg.eigvalsh(mean)[-1] + 0.1 + 0.5, rel=1e-12) == c.L
    assert c.L_i == pytest.approx(np.linalg.eigvalsh(hessians)[:, -1] + 0.6, rel=1e-12)
    assert c.L_pm == pytest.approx(np.linalg.eigvalsh(spread)[-1] ** 0.5, rel=1e-12)
    assert c.mu == pytest.approx(max(np.linalg.eigvalsh(mean)[0] + 0.1 - 0.125, 0.0), rel=1e-9)
    assert c.L_pm <= c.L_plus
