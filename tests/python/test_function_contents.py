"""Contents of lists, dicts and sets are checked before every replay; contents that cannot be checked cause one
warning."""

from __future__ import annotations

import warnings
from collections import OrderedDict, defaultdict

import numpy as np
import pytest

import burtorch as bt


class Scale:
    def __init__(self, k):
        self.k = k


def changes(f, change, before, after):
    """Calls with floats and on rows notice this change, and only this one."""
    rows = np.array([[1.0]])
    assert (f(1.0), f.map(rows)[0]) == (before, before)
    traced = f.stats()["traced"]
    assert f(1.0) == before
    assert f.stats()["traced"] == traced
    change()
    assert (f(1.0), f.map(rows)[0]) == (after, after)


def test_objects_that_are_replaced_in_lists_and_dicts():
    layers = [Scale(2.0), Scale(3.0)]
    changes(bt.function(lambda x: layers[1].k * x), lambda: layers.__setitem__(1, Scale(5.0)), 3.0, 5.0)
    named = {"first": Scale(2.0)}
    changes(bt.function(lambda x: named["first"].k * x), lambda: named.update(first=Scale(7.0)), 2.0, 7.0)


def test_lists_in_lists():
    weights = [[1.0, 2.0], [3.0, 4.0]]
    changes(bt.function(lambda x: weights[1][0] * x), lambda: weights[1].__setitem__(0, 9.0), 3.0, 9.0)
    changes(bt.function(lambda x: weights[0][1] * x), lambda: weights.__setitem__(0, [0.0, 6.0]), 2.0, 6.0)
    inside = ({"w": [[1.0]]},)
    changes(bt.function(lambda x: inside[0]["w"][0][0] * x), lambda: inside[0]["w"][0].__setitem__(0, 4.0), 1.0, 4.0)


def test_bound_buffers():
    weights = [[1.0, 2.0], [3.0, 4.0]]
    x, gradient = np.array([1.0]), np.array([0.0])
    bound = bt.function(lambda x: weights[1][0] * x[0]).bind(x, gradient)
    assert (bound(), gradient[0]) == (3.0, 3.0)
    weights[1][0] = 7.0
    assert (bound(), gradient[0]) == (7.0, 7.0)


def test_lengths_keys_order_and_text():
    numbers = [1.0, 2.0]
    changes(bt.function(lambda x: sum(numbers) * x), lambda: numbers.append(4.0), 3.0, 7.0)
    table = {"a": 2.0}
    changes(bt.function(lambda x: len(table) * x), lambda: table.update(b=1.0), 1.0, 2.0)
    modes = ["twice", None, True]
    changes(
        bt.function(lambda x: x * 2.0 if modes[0] == "twice" else x), lambda: modes.__setitem__(0, "once"), 2.0, 1.0
    )


@pytest.mark.parametrize("make", [OrderedDict, lambda d: defaultdict(float, d)])
def test_subclasses_of_dict(make):
    table = make({"k": 2.0})
    changes(bt.function(lambda x: table["k"] * x), lambda: table.update(k=3.0), 2.0, 3.0)


def test_sets_and_arrays_in_lists():
    chosen = {1, 2}
    changes(bt.function(lambda x: len(chosen) * x), lambda: chosen.add(3), 2.0, 3.0)
    arrays = [np.array([2.0, 3.0])]
    changes(bt.function(lambda x: float(arrays[0][1]) * x), lambda: arrays[0].__setitem__(1, 5.0), 3.0, 5.0)


def test_functions_and_objects_deep_inside():
    scale = Scale(2.0)
    plan = {"steps": [(lambda x: scale.k * x,)]}
    changes(bt.function(lambda x: plan["steps"][0][0](x)), lambda: setattr(scale, "k", 8.0), 2.0, 8.0)


def test_the_same_numbers_again_record_nothing():
    numbers = [1.5, 2.5]
    f = bt.function(lambda x: numbers[0] * x + numbers[1])
    assert f(1.0) == 4.0
    numbers[0] = float("1.5")
    numbers[:] = [float("1.5"), float("2.5")]
    assert f(1.0) == 4.0
    assert f.stats()["traced"] == 1
    numbers[0] = 1
    assert f(1.0) == 3.5
    assert f.stats()["traced"] == 2


def test_a_log_that_the_body_fills_is_no_change_and_a_counter_is():
    log, counted = [], []
    f = bt.function(lambda x: log.append("called") or x * 2.0)
    g = bt.function(lambda x: counted.append(1.0) or x * len(counted))
    assert [f(1.0), f(2.0), f(3.0)] == [2.0, 4.0, 6.0]
    assert f.stats()["traced"] == len(log) == 1
    log.append("changed")
    assert f(4.0) == 8.0
    assert len(log) == 3
    assert [g(1.0), g(1.0), g(1.0)] == [1.0, 2.0, 3.0]


def test_a_list_that_holds_itself():
    ring = [2.0]
    ring.append(ring)
    changes(bt.function(lambda x: ring[1][0] * x), lambda: ring.__setitem__(0, 3.0), 2.0, 3.0)


class MadeUp:
    def __init__(self, rate):
        self.rates = {"rate": rate}

    def __getattr__(self, name):
        try:
            return self.__dict__["rates"][name]
        except KeyError:
            raise AttributeError(name) from None


def test_computed_attributes_are_watched_through_their_sources():
    made_up = MadeUp(2.0)
    f = bt.function(lambda x: made_up.rate * x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        changes(f, lambda: made_up.rates.update(rate=3.0), 2.0, 3.0)
        made_up.rates["rate"] = 2.0
        f.forget()
        assert f(1.0) == 2.0
        # Real attributes of such a class are watched, without a warning.
        plain = bt.function(lambda x: made_up.rates["rate"] * x.exp() + len([x]))
        assert plain(0.0) == 3.0
        made_up.rates["rate"] = 5.0
        assert plain(0.0) == 6.0
