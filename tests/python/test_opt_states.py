"""States that are refused: counts below 0, iterates that are not finite, clocks that are NaN; nothing changes then."""

from __future__ import annotations

import copy
import pickle
import runpy
from pathlib import Path

import numpy as np
import pytest

from burtorch import opt

SHARED = runpy.run_path(str(Path(__file__).with_name("test_opt_arguments.py")))
METHODS = {**SHARED["METHODS"], "LSVRG": opt.LSVRG, "LKatyusha": opt.LKatyusha, "SAGA": opt.SAGA}
problem = SHARED["problem"]
COST = ("oracle_calls", "bits_up", "bits_down", "wire_bytes", "rounds", "time")
FINITE, NOT_NAN = ("x", "x_i", "points"), ("z", "w", "t", "time", "jobs")


def with_array(state, name, value):
    """The state with a value in the last place of an array; None without such an array, or an empty one."""
    found = np.array(state["arrays"].get(name, []), float)
    if not found.size:
        return None
    found[-1] = value
    return {**state, "arrays": {**state["arrays"], name: found}}


def with_cost(state, name, value):
    cost = tuple(value if at == name else old for at, old in zip(COST, state["cost"], strict=True))
    return {**state, "cost": cost}


def refused(method, state, text, kind=ValueError):
    before = pickle.dumps(method.state_dict())
    with pytest.raises(kind, match=text):
        method.load_state_dict(state)
    assert pickle.dumps(method.state_dict()) == before


@pytest.mark.parametrize("name", METHODS)
def test_iterates_are_finite_and_clocks_are_numbers(name):
    method = METHODS[name](problem())
    method.run(4)
    state = method.state_dict()
    assert set(state["arrays"]) & set(FINITE)
    for array in FINITE + NOT_NAN:
        for value in (np.nan, np.inf, -np.inf):
            wrong = with_array(state, array, value)
            if wrong is None:
                continue
            if array in FINITE or np.isnan(value):
                text = "must be finite" if array in FINITE else "must not be NaN"
                refused(METHODS[name](problem()), wrong, rf"^{array} of the state {text}")
    again = METHODS[name](problem())
    again.load_state_dict(state)
    for each in (method, again):
        each.run(3)
    assert again.x.tobytes() == method.x.tobytes()


@pytest.mark.parametrize("name", METHODS)
def test_costs_are_at_least_zero(name):
    method = METHODS[name](problem())
    method.run(4)
    state = method.state_dict()
    for at in COST:
        refused(method, with_cost(state, at, -1), f"the state's {at} must be .*at least 0, found -1")
        refused(method, with_cost(state, at, "1"), f"the state's {at} must be an? (number|integer)", TypeError)
        if at in ("bits_up", "bits_down", "time"):
            refused(method, with_cost(state, at, np.nan), f"the state's {at} must be at least 0, found nan")
        else:
            refused(method, with_cost(state, at, 2**64), rf"the state's {at} must be below 2\*\*64")
            refused(method, with_cost(state, at, 1.5), f"the state's {at} must be an integer", TypeError)
    for wrong in ((), (1, 2.0), (*state["cost"], 0), None, 3, {"rounds": 1}):
        refused(method, {**state, "cost": wrong}, "the state's cost must be oracle_calls, bits_up, .* found")
    refused(method, {**state, "seconds": np.nan}, "seconds must be finite")
    refused(method, {**state, "round": -1}, "the state's round must be at least 0")
    # As JSON has it.
    method.load_state_dict({**state, "cost": list(state["cost"])})


@pytest.mark.parametrize("name", METHODS.keys() - {"FedBuff"})
def test_a_method_that_diverges_can_be_copied_at_its_last_iterate(name):
    """Also where the estimate of the gradient has overflowed already."""
    for step in (50.0, 1e30, 1e200):
        method = METHODS[name](problem(), step=step)
        with pytest.raises(FloatingPointError):
            method.run(20_000)
        assert np.isfinite(method.x).all()
        for again in (copy.deepcopy(method), pickle.loads(pickle.dumps(method))):
            assert again.x.tobytes() == method.x.tobytes()
            with pytest.raises(FloatingPointError):
                again.run(20_000)


def test_a_run_may_take_infinite_virtual_time():
    network = opt.Network(opt.Delays([1.0] * 6), bandwidth=1e-320)
    method = SHARED["METHODS"]["EF21"](problem(), network=network)
    assert method.run(2)[-1].time == np.inf
    assert pickle.loads(pickle.dumps(method)).record().time == np.inf
