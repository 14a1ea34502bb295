"""`rate()`: the methods whose proven rate the documentation lists have it, and only where their theorem holds."""

import re
import sys
from pathlib import Path

import pytest

from burtorch import compress, opt

np = pytest.importorskip("numpy")

RNG = np.random.default_rng(0)
FEATURES, TARGETS = RNG.normal(size=(20, 3)), RNG.normal(size=20)
RIDGE = opt.least_squares(FEATURES, TARGETS, l2=0.1)
TABLE = Path(__file__).parents[2] / "docs" / "optimisation.md"
TOP, RAND = compress.TopK(1), compress.RandK(1)
PL = {
    "PAGE": lambda f, **more: opt.PAGE(f, sampling=opt.Nice(4), **more),
    "MARINA": lambda f, **more: opt.MARINA(f, clients=4, compressor=RAND, **more),
    "MARINA with PermK": lambda f, **more: opt.MARINA(f, clients=4, compressor=compress.PermK(), **more),
    "VRMARINA": lambda f, **more: opt.VRMARINA(f, clients=4, compressor=RAND, **more),
    "PPMARINA": lambda f, **more: opt.PPMARINA(f, clients=4, compressor=RAND, cohort=opt.Nice(2), **more),
    "EF21": lambda f, **more: opt.EF21(f, clients=4, compressor=TOP, **more),
    "EF21PP": lambda f, **more: opt.EF21PP(f, clients=4, compressor=TOP, cohort=opt.Nice(2), **more),
    "EF21BC": lambda f, **more: opt.EF21BC(f, clients=4, compressor=TOP, downlink=TOP, **more),
}


def test_methods_with_a_rate_in_the_documentation_have_it():
    rows = re.findall(r"^\| `(\w+)`.*\| 0\.\d+ / 0\.\d+ \|$", TABLE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) > 10
    assert [name for name in rows if not hasattr(getattr(opt, name), "rate")] == []


def test_the_rate_of_gradient_descent():
    f, c = RIDGE, opt.smoothness(RIDGE)
    gd = opt.GD(f, np.full(3, 5.0), x_star=opt.solve(f))
    assert gd.rate() == 1.0 - c.mu / c.L
    before, after = gd.record().distance, gd.step().distance
    assert 0.0 < after <= gd.rate() * before
    assert opt.GD(f, step=0.25 / c.L, prox=opt.L1(0.1)).rate() == 1.0 - 0.25 / c.L * c.mu
    assert opt.GD(f, clients=4).rate() == pytest.approx(gd.rate())
    with pytest.raises(ValueError, match=r"the theory of GD covers steps up to .*, found"):
        opt.GD(f, step="theory*1.5").rate()
    with pytest.raises(ValueError, match="the theory of GD does not cover this problem: it needs convex f"):
        opt.GD(opt.robust_regression(FEATURES, TARGETS)).rate()


@pytest.mark.parametrize("name", PL)
def test_the_rate_of_the_polyak_lojasiewicz_case(name):
    make, word = PL[name], name.partition(" ")[0]
    method = make(RIDGE, pl=True)
    assert 0.0 < method.rate() == 1.0 - method.gamma * method.constants.mu < 1.0
    half = make(RIDGE, pl=True, step="theory*0.5")
    assert half.rate() == 1.0 - half.gamma * half.constants.mu
    assert make(RIDGE, pl=True, step=lambda k: method.gamma).rate() == method.rate()
    flat = make(opt.robust_regression(FEATURES, TARGETS), pl=True)
    assert flat.rate() == 1.0  # mu is unknown
    for more, why in (
        ({}, "has a rate only with pl=True"),
        ({"pl": True, "step": "theory*2"}, "covers steps up to .*, found"),
        ({"pl": True, "step": 1e-3, "prox": opt.L1(0.1)}, ".*does not cover the proximal term"),
    ):
        with pytest.raises(ValueError, match=f"the theory of {word}.* ?{why}"):
            make(RIDGE, **more).rate()


def test_a_progress_bar_without_tqdm_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    gd = opt.GD(RIDGE)
    with pytest.raises(ImportError, match=r"progress=True needs tqdm \(pip install tqdm\)"):
        gd.run(3, progress=True)
    assert gd.run(3)[-1].step == 3
