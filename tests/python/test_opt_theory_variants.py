"""Theorems of L-Katyusha and of variants of MARINA and EF21 as tests, as in test_opt_theory.py."""

from __future__ import annotations

import itertools
import runpy
from pathlib import Path

import numpy as np
import pytest

from burtorch import compress, opt

SHARED = runpy.run_path(str(Path(__file__).with_name("enumerated.py")))
N, D, SLACK = SHARED["N"], SHARED["D"], SHARED["SLACK"]
aligned, excesses, rand_k = (SHARED[name] for name in ("aligned", "excesses", "rand_k"))
subsets, with_coin = SHARED["subsets"], SHARED["with_coin"]
CLOCK = runpy.run_path(str(Path(__file__).with_name("test_opt_asynchronous.py")))


def lower_bound(problem):
    return 0.0 if problem.nonconvex else problem.loss(opt.solve(problem))


def near(rng):
    """A point, and errors of all magnitudes."""
    return rng.normal(size=D) * 10.0 ** rng.uniform(
        -2, 1
    ), lambda *shape: rng.normal(size=shape) * 10.0 ** rng.uniform(-4, 1)


def descent(method):
    """The bound of methods without convexity, or their Polyak-Lojasiewicz case."""
    gamma, mu = method.gamma, method.constants.mu
    return lambda phi, g: (1.0 - gamma * mu) * phi if method.pl else phi - 0.5 * gamma * g


def l_katyusha(problem, rng, step, tau):
    x_star = opt.solve(problem)
    method = opt.LKatyusha(problem, sampling=opt.Nice(tau), step=step, x_star=x_star)

    def state():
        x, w, z = x_star + rng.normal(size=(3, D)) * 10.0 ** rng.uniform(-3, 1, size=(3, 1))
        return {"x": x, "w": w, "grad_w": problem.grad(w), "z": z}

    rate = method.rate()
    return method, state, with_coin(subsets(tau), method.p), lambda phi, g: rate * phi


def of_marina(method, problem, rng, outcomes):
    def state():
        x, errors = near(rng)
        return {"x": x, "g": problem.grad(x) + errors(D)}

    p = method.p
    partial = [((1.0 - p) * w, (batch, False, compression), *rest) for w, (batch, _, compression), *rest in outcomes]
    return method, state, [(p, (None, True)), *partial], descent(method)


def rounds_of_batches(n_clients, size, m, seed=0):
    """For every combination of the clients' batches, a round in which `Nice(size)` of m samples draws them."""
    found = {}
    wanted = len(list(itertools.combinations(range(m), size))) ** n_clients
    for round in itertools.count():
        drawn = [opt.Nice(size).batch(m, seed=seed, round=round, client=k + 1)[0] for k in range(n_clients)]
        found.setdefault(tuple(tuple(sorted(batch.tolist())) for batch in drawn), round)
        if len(found) == wanted:
            return list(found.values())


def vr_marina(problem, rng, step, pl):
    f_star, rand = lower_bound(problem), compress.RandK(1)
    method = opt.VRMARINA(problem, clients=2, compressor=rand, step=step, f_star=f_star, pl=pl)
    rounds = rounds_of_batches(2, 1, N // 2)
    outcomes = [(w / len(rounds), choices, r) for w, choices in rand_k(2) for r in rounds]
    return of_marina(method, problem, rng, outcomes)


def pp_marina(problem, rng, step, cohort, cohorts, pl):
    f_star, rand = lower_bound(problem), compress.RandK(1)
    method = opt.PPMARINA(problem, compressor=rand, cohort=cohort, step=step, f_star=f_star, pl=pl)
    thirds = [1 / 6, 3 / 6, 5 / 6]

    def compressions(chosen):
        for draws in itertools.product(thirds, repeat=len(chosen)):
            of = dict(zip(chosen, draws, strict=True))
            yield [[of.get(k, 0.5)] for k in range(N)]

    outcomes = [
        (w / 3 ** len(chosen), (chosen, False, given)) for w, chosen in cohorts for given in compressions(chosen)
    ]
    return of_marina(method, problem, rng, outcomes)


def ef21_bc(problem, rng, step, up, down, pl):
    common = {"compressor": compress.TopK(up), "downlink": compress.TopK(down), "step": step, "pl": pl}
    method = opt.EF21BC(problem, **common, f_star=lower_bound(problem))

    def state():
        x, errors = near(rng)
        own = problem.gradients(x) + (errors(N, D) if up < D else 0.0)
        g = own.mean(axis=0) + (errors(D) if down < D else 0.0)
        return {"x": x, "g_i": own.ravel(), "g": g, "mean": own.mean(axis=0), "bits": [0.0]}

    return method, state, [(1.0, ())], descent(method)


def ef14(problem, rng, step, k):
    x_star = opt.solve(problem)
    method = opt.EF14(problem, compressor=compress.TopK(k), step=step, x_star=x_star)
    rate, noise = method.rate(), method.noise()

    def state():
        x = x_star + rng.normal(size=D) * 10.0 ** rng.uniform(-3, 1)
        return {"x": x, "e_i": (rng.normal(size=(N, D)) * 10.0 ** rng.uniform(-3, 1)).ravel()}

    return method, state, [(1.0, ())], lambda phi, g: rate * phi + noise


def ef21_sgdm(problem, rng, step, momentum, k, size):
    options = {"clients": 2, "compressor": compress.TopK(k), "momentum": momentum, "sampling": opt.Nice(size)}
    method = opt.EF21SGDM(problem, **options, step=step, f_star=lower_bound(problem))
    parts, gamma, noise = method.clients, method.gamma, method.noise()
    variance = 0.0

    def state():
        nonlocal variance
        x, errors = near(rng)
        averages = np.array([problem.grad(x, part) for part in parts]) + errors(2, D)
        sent = averages + rng.normal(size=(2, D)) * 10.0 ** rng.uniform(-4, 1)
        x_new = x - gamma * sent.mean(axis=0)
        of = [
            ((problem.grad(x_new, list(batch)) - problem.grad(x_new, part)) ** 2).sum()
            for part in parts
            for batch in itertools.combinations(part, size)
        ]
        variance = np.mean(of)
        return {"x": x, "g_i": sent.ravel(), "v_i": averages.ravel(), "g": sent.mean(axis=0)}

    rounds = rounds_of_batches(2, size, N // 2)
    outcomes = [(1.0 / len(rounds), (), round) for round in rounds]
    return method, state, outcomes, lambda phi, g: phi - 0.5 * gamma * g + noise * variance


def scaffold(problem, rng, step, local_steps, server_step, cohort):
    x_star = opt.solve(problem)
    options = {"local_steps": local_steps, "server_step": server_step, "cohort": opt.Nice(cohort)}
    method = opt.Scaffold(problem, **options, step=step, x_star=x_star)

    def state():
        x = x_star + rng.normal(size=problem.d) * 10.0 ** rng.uniform(-3, 1)
        shifts = problem.gradients(x_star) + rng.normal(size=(N, problem.d)) * 10.0 ** rng.uniform(-3, 1)
        return {"x": x, "c_i": shifts.ravel(), "c": shifts.mean(axis=0)}

    rate = method.rate()
    return method, state, [(w, (part,)) for w, part in subsets(cohort)], lambda phi, g: rate * phi


class Gap:
    """A method whose theorem bounds f - f*."""

    def __init__(self, method):
        self._runner, self.gamma = method._runner, method.gamma
        self.lyapunov = lambda loss, grad: loss - method.f_star


def mind_flayer(problem, rng, step):
    """Two workers with one trial each, which finishes in time with a probability per worker."""
    delays, limits = opt.Delays([1.0, 3.0], "exponential"), [1.5, 2.0]
    options = {"delays": delays, "trials": 1, "limits": limits, "seed": 5}
    method = opt.MindFlayer(problem, **options, step=step, f_star=lower_bound(problem))
    in_time = [1.0 - np.exp(-limit / seconds) for limit, seconds in zip(limits, delays.seconds, strict=True)]
    probabilities = [{None: 1.0 - p, **dict.fromkeys(range(N), p / N)} for p in in_time]
    found = {}
    for round in itertools.count():
        drawn = [opt.Nice(1).batch(N, seed=5, round=round, client=worker + 1)[0][0] for worker in (0, 1)]
        times = [CLOCK["factor"](delays, CLOCK["philox"](round, worker)) * delays.seconds[worker] for worker in (0, 1)]
        came = [k if time <= limit else None for k, time, limit in zip(drawn, times, limits, strict=True)]
        found.setdefault(tuple(came), round)
        if len(found) == (N + 1) ** 2:
            break
    outcomes = [(probabilities[0][a] * probabilities[1][b], (), round) for (a, b), round in found.items()]
    gamma, expected = method.gamma, method.expected
    assert expected == pytest.approx(sum(in_time))
    noise = 0.5 * method.constants.L * gamma**2 / expected
    x, start = np.zeros(D), method._state()

    def state():
        x[:] = near(rng)[0]
        return {**start, "x": x}

    def bound(phi, g):
        variance = (problem.gradients(x) ** 2).sum(axis=1).mean() - g
        return phi - 0.5 * gamma * g + noise * variance

    return Gap(method), state, outcomes, bound


CASES = {
    "L-Katyusha": (l_katyusha, 0.0, (1,)),
    "L-Katyusha tau=2": (l_katyusha, 0.0, (2,)),
    "VR-MARINA": (vr_marina, 0.0, (False,)),
    "VR-MARINA PL": (vr_marina, 0.0, (True,)),
    "VR-MARINA non-convex": (vr_marina, 0.5, (False,)),
    "PP-MARINA Nice(1)": (pp_marina, 0.0, (opt.Nice(1), subsets(1), False)),
    "PP-MARINA Nice(2) PL": (pp_marina, 0.0, (opt.Nice(2), subsets(2), True)),
    "PP-MARINA non-convex": (pp_marina, 0.5, (opt.Nice(2), subsets(2), False)),
    "EF21-BC": (ef21_bc, 0.0, (1, 1, False)),
    "EF21-BC TopK(2), TopK(1)": (ef21_bc, 0.0, (2, 1, False)),
    "EF21-BC PL": (ef21_bc, 0.0, (1, 2, True)),
    "EF21-BC non-convex": (ef21_bc, 0.5, (2, 2, False)),
    "EF21-BC up alone": (ef21_bc, 0.0, (1, 3, False)),
    "EF21-BC down alone": (ef21_bc, 0.0, (3, 1, False)),
    "EF14 TopK(1)": (ef14, 0.0, (1,)),
    "EF14 TopK(2)": (ef14, 0.0, (2,)),
    "EF21-SGDM": (ef21_sgdm, 0.0, (0.3, 1, 1)),
    "EF21-SGDM little momentum": (ef21_sgdm, 0.0, (0.05, 2, 1)),
    "EF21-SGDM full batches": (ef21_sgdm, 0.0, (0.5, 1, 2)),
    "EF21-SGDM non-convex": (ef21_sgdm, 0.5, (0.9, 2, 1)),
    "SCAFFOLD": (scaffold, 0.0, (3, 1.0, 4)),
    "SCAFFOLD server step": (scaffold, 0.0, (2, 2.0, 4)),
    "SCAFFOLD cohort": (scaffold, 0.0, (3, 1.0, 2)),
    "MindFlayer": (mind_flayer, 0.0, ()),
    "MindFlayer non-convex": (mind_flayer, 0.5, ()),
}
SMALL, ONE = [1e-6] * N, [1.0, 1e-4, 1e-4, 1e-4]
TIGHT = {
    "L-Katyusha tau=2": ([1.0, 0.97, 0.92, 0.96], 1e-4),
    "EF21-BC PL": (SMALL, 1.0),
    "EF14 TopK(1)": (SMALL, 1.0),
    "EF14 TopK(2)": (SMALL, 1.0),
    "SCAFFOLD": (ONE, 0.0, 1),
    "SCAFFOLD server step": (ONE, 0.0, 1),
    "SCAFFOLD cohort": (ONE, 0.0, 1),
}
"""Theorems whose bound random problems do not approach: parameters of the problem that a longer step violates."""


@pytest.mark.parametrize("name", CASES)
def test_the_theorem_holds_at_a_thousand_states(name):
    assert max(excesses(CASES[name], "theory")) <= SLACK


@pytest.mark.parametrize("name", TIGHT)
def test_the_theorem_holds_where_it_is_tight(name):
    assert max(excesses(CASES[name], "theory", [aligned(*TIGHT[name])])) <= SLACK


@pytest.mark.parametrize("name", CASES)
def test_four_times_the_step_violates_it_somewhere(name):
    """With SCAFFOLD 16 times. Its constants leave more room: a round on quadratics is linear, so the worst state is
    an eigenvector, and at 13 times the step no curvatures, clients, cohorts and local steps were found that violate
    it."""
    times = 16 if name.startswith("SCAFFOLD") else 4
    problems = [aligned(*TIGHT[name])] if name in TIGHT else None
    assert any(excess > 1e-6 for excess in excesses(CASES[name], f"theory*{times}", problems))
