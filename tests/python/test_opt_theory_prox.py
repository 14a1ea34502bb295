"""Theorems without convexity, with a proximal term: Phi of f + R does not grow, and the Polyak-Lojasiewicz case and
theorems about many steps are refused. States and outcomes are those of test_opt_theory.py and its variants."""

from __future__ import annotations

import functools
import itertools
import runpy
from pathlib import Path

import pytest

from burtorch import compress, opt

HERE = Path(__file__)
SHARED = runpy.run_path(str(HERE.with_name("enumerated.py")))
THEORY, VARIANTS = (runpy.run_path(str(HERE.with_name(f"test_opt_theory{end}.py"))) for end in ("", "_variants"))
excesses, ridge, SLACK = SHARED["excesses"], SHARED["ridge"], SHARED["SLACK"]

NAMES = (
    *("PAGE tau=1", "PAGE tau=2", "PAGE non-convex", "MARINA", "MARINA PermK", "MARINA non-convex", "EF21 TopK(1)"),
    *("EF21 non-convex", "EF21-PP Nice", "DASHA", "DASHA non-convex", "VR-MARINA", "VR-MARINA non-convex"),
    *("PP-MARINA Nice(1)", "PP-MARINA non-convex", "EF21-BC", "EF21-BC non-convex", "EF21-SGDM full batches"),
)
CASES = {name: case for name, case in {**THEORY["CASES"], **VARIANTS["CASES"]}.items() if name in NAMES}
STATES = 25
PROXES = {"l1": opt.L1(0.1), "elastic net": opt.ElasticNet(0.3, 0.2), "ball": opt.L2Ball(1.0)}


class WithProx:
    """`burtorch.opt` whose methods have a proximal term."""

    def __init__(self, prox):
        self.prox = prox

    def __getattr__(self, name):
        found = getattr(opt, name)
        is_method = isinstance(found, type) and issubclass(found, opt.Method)
        return functools.partial(found, prox=self.prox) if is_method else found


def states(name, prox, step, monkeypatch):
    """The excesses of a case over a bound without the gradient, at points that R allows."""
    make, nonconvex, arguments = CASES[name]
    monkeypatch.setitem(make.__globals__, "opt", WithProx(prox))

    def made(problem, rng, step, *arguments):
        method, state, outcomes, bound = make(problem, rng, step, *arguments)

        def allowed():
            arrays = state()
            if isinstance(prox, opt.L2Ball):
                arrays["x"] = prox(arrays["x"])
                if "h_i" in arrays:
                    arrays["h_i"] = problem.gradients(arrays["x"]).ravel()
            return arrays

        return method, allowed, outcomes, lambda phi, g: bound(phi, 0.0)

    for seed in range(2):
        case = made, nonconvex, arguments
        yield from itertools.islice(excesses(case, step, [ridge(seed, nonconvex)]), STATES)


@pytest.mark.parametrize("term", PROXES)
@pytest.mark.parametrize("name", CASES)
def test_phi_does_not_grow(name, term, monkeypatch):
    assert max(states(name, PROXES[term], "theory", monkeypatch)) <= SLACK
    assert max(states(name, PROXES[term], "theory*16", monkeypatch)) > 1.0


TOP, RAND, DELAYS = compress.TopK(1), compress.RandK(1), opt.Delays([1.0, 2.0])
UNCOVERED = {
    "PAGE with pl": lambda f, **more: opt.PAGE(f, pl=True, **more),
    "MARINA with pl": lambda f, **more: opt.MARINA(f, compressor=RAND, pl=True, **more),
    "VRMARINA with pl": lambda f, **more: opt.VRMARINA(f, clients=2, compressor=RAND, pl=True, **more),
    "PPMARINA with pl": lambda f, **more: opt.PPMARINA(f, compressor=RAND, cohort=opt.Nice(2), pl=True, **more),
    "EF21 with pl": lambda f, **more: opt.EF21(f, compressor=TOP, pl=True, **more),
    "EF21PP with pl": lambda f, **more: opt.EF21PP(f, compressor=TOP, cohort=opt.Nice(2), pl=True, **more),
    "EF21BC with pl": lambda f, **more: opt.EF21BC(f, compressor=TOP, downlink=TOP, pl=True, **more),
    "Rennala": lambda f, **more: opt.Rennala(f, delays=DELAYS, gathered=2, **more),
    "Ringmaster": lambda f, **more: opt.Ringmaster(f, delays=DELAYS, max_delay=2, **more),
    "MindFlayer": lambda f, **more: opt.MindFlayer(f, delays=DELAYS, trials=1, limits=3.0, **more),
}


@pytest.mark.parametrize("name", UNCOVERED)
def test_theorems_without_a_proximal_term_refuse_one(name):
    make, (problem, _) = UNCOVERED[name], ridge(0)
    for prox in PROXES.values():
        for step in ("theory", "theory*0.1"):
            with pytest.raises(
                ValueError, match=f"the theory of {name} does not cover the proximal term .*; give a number as step"
            ):
                make(problem, prox=prox, step=step)
        make(problem, prox=prox, step=1e-3).run(3)
    assert make(problem, prox=opt.Zero()).gamma == make(problem).gamma
