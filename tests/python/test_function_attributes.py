"""Attributes read by a traced function: each call checks them."""

from __future__ import annotations

import dataclasses
import types

import numpy as np

import burtorch as bt


class Scale:
    shared = 2.0

    def __init__(self, k):
        self.k = k

    def times(self, x):
        return self.k * x

    @property
    def twice(self):
        return 2.0 * self.k

    def __call__(self, x):
        return self.k * self.shared * x


class Slotted:
    __slots__ = ("k",)

    def __init__(self, k):
        self.k = k


@dataclasses.dataclass
class Config:
    rate: float
    inner: object = None
    table: list = dataclasses.field(default_factory=list)


def traced(f):
    return f.stats()["traced"]


def test_an_attribute_of_a_closed_over_object():
    cfg = Config(2.0)
    f = bt.function(lambda x: cfg.rate * x)
    assert (f(3.0), f(4.0), traced(f)) == (6.0, 8.0, 1)
    cfg.rate = 5.0
    assert (f(3.0), f.grad(3.0), traced(f)) == (15.0, 5.0, 2)
    cfg.rate = 10.0 / 2.0
    assert (f(3.0), traced(f)) == (15.0, 2)
    # Attributes that the body does not use do not matter.
    cfg.other = 7.0
    assert (f(3.0), traced(f)) == (15.0, 2)


def test_objects_in_objects_and_numbers_in_lists_of_theirs():
    cfg = Config(1.0, inner=types.SimpleNamespace(k=3.0), table=[1.0, 2.0])
    f = bt.function(lambda x: cfg.inner.k * x + cfg.table[1])
    assert f(1.0) == 5.0
    cfg.inner.k = 4.0
    assert f(1.0) == 6.0
    cfg.inner = types.SimpleNamespace(k=5.0)
    assert f(1.0) == 7.0
    cfg.table[1] = 0.0
    assert f(1.0) == 5.0
    assert traced(f) == 4


def test_objects_in_lists_and_dicts():
    layers, named = [Scale(2.0), Scale(3.0)], {"last": Scale(5.0)}

    def body(x):
        for layer in layers:
            x = layer.times(x)
        return named["last"].k * x

    f = bt.function(body)
    assert f(1.0) == 30.0
    layers[1].k = 4.0
    assert f(1.0) == 40.0
    named["last"].k = 1.0
    assert f(1.0) == 8.0
    assert traced(f) == 3


def test_self_of_a_method_and_attributes_read_by_methods_and_properties():
    scale = Scale(3.0)
    f = bt.function(scale.times)
    assert f(2.0) == 6.0
    scale.k = 4.0
    assert f(2.0) == 8.0
    g = bt.function(lambda x: scale.times(x) + scale.twice)
    assert g(1.0) == 12.0
    scale.k = 5.0
    assert g(1.0) == 15.0
    assert traced(g) == 2


def test_attributes_of_classes_and_their_overrides():
    scale = Scale(3.0)
    f = bt.function(lambda x: scale.shared * x)
    g = bt.function(lambda x: Scale.shared * x)
    h = bt.function(lambda x: scale(x))
    assert (f(1.0), g(1.0), h(1.0)) == (2.0, 2.0, 6.0)
    try:
        Scale.shared = 7.0
        assert (f(1.0), g(1.0), h(1.0)) == (7.0, 7.0, 21.0)
        scale.shared = 1.0
        assert (f(1.0), g(1.0), h(1.0)) == (1.0, 7.0, 3.0)
        del scale.shared
        assert (f(1.0), g(1.0), h(1.0)) == (7.0, 7.0, 21.0)
    finally:
        Scale.shared = 2.0


def test_slots_and_arrays():
    slotted, holder = Slotted(2.0), types.SimpleNamespace(w=np.array([1.0, 2.0]))
    f = bt.function(lambda x: slotted.k * x * holder.w[1])
    assert f(1.0) == 4.0
    slotted.k = 3.0
    assert f(1.0) == 6.0
    holder.w[1] = 10.0
    assert f(1.0) == 30.0


GLOBAL = Config(2.0)


def test_globals_bound_buffers_and_rows():
    f = bt.function(lambda x: GLOBAL.rate * x)
    x, grad = np.array([3.0]), np.zeros(1)
    g = bt.function(lambda x: GLOBAL.rate * x[0])
    bound = g.bind(x, grad)
    try:
        assert (f(3.0), bound(), f.map([1.0, 2.0]).tolist()) == (6.0, 6.0, [2.0, 4.0])
        GLOBAL.rate = 5.0
        assert (bound(), grad[0], f.map([1.0, 2.0]).tolist()) == (15.0, 5.0, [5.0, 10.0])
    finally:
        GLOBAL.rate = 2.0


def test_no_property_runs_while_attributes_are_looked_up():
    runs = []

    class Counted:
        @property
        def k(self):
            runs.append("run")
            return 2.0

    counted = Counted()
    f = bt.function(lambda x: counted.k * x)
    assert [f(x) for x in (1.0, 2.0, 3.0)] == [2.0, 4.0, 6.0]
    assert (runs, traced(f)) == (["run"], 1)


def test_a_body_that_changes_attributes_it_reads_is_traced_at_every_call():
    state = Config(1.0)

    def body(x):
        state.rate = state.rate * 2.0
        return state.rate * x

    f = bt.function(body)
    assert [f(1.0) for _ in range(3)] == [2.0, 4.0, 8.0]
    assert traced(f) == f.stats()["invalidated"] + 1 == 3
