"""Containers of arguments and results of traced functions: named tuples, None, ordered and default dicts."""

from __future__ import annotations

import collections

import pytest

import burtorch as bt

np = pytest.importorskip("numpy")

Pair = collections.namedtuple("Pair", "a b")
ARRAY = np.array([[1.0, 2.0]])


@pytest.mark.parametrize("leaf", [2.0, np.float64(2.0), np.array([2.0, 3.0]), ARRAY, 2])
def test_named_tuples_have_their_names(leaf):
    f = bt.function(lambda p: p.a * 2.0 + p[1])
    assert np.array_equal(f(Pair(leaf, leaf)), np.asarray(leaf) * 3.0)
    again = bt.function(lambda p: Pair(p.b * 1.0, p.a * 2.0))(Pair(leaf, leaf))
    assert type(again) is Pair
    assert np.array_equal(again.b, np.asarray(leaf) * 2.0)
    made = bt.function(lambda x: Pair(x * 2.0, {"c": (x, None)}))(leaf)
    assert type(made) is Pair
    assert made.b["c"][1] is None
    assert np.array_equal(made.a, np.asarray(leaf) * 2.0)


def test_derivatives_of_named_tuples():
    f = bt.function(lambda p: p.a**2 * p.b)
    assert f.grad(Pair(2.0, 3.0)) == Pair(12.0, 4.0)
    assert f.value_and_grad(Pair(2.0, 3.0)) == (12.0, Pair(12.0, 4.0))
    assert bt.grad(f)(Pair(2.0, 3.0)) == Pair(12.0, 4.0)
    nested = bt.function(lambda q: q["p"].a * q["x"][0].b)
    gradient = nested.grad({"p": Pair(2.0, 3.0), "x": [Pair(4.0, 5.0)]})
    assert gradient == {"p": Pair(5.0, 0.0), "x": [Pair(0.0, 2.0)]}


@pytest.mark.parametrize("x", [1.5, np.array([1.5, 2.5]), ARRAY])
def test_none_is_an_empty_container(x):
    f = bt.function(lambda x, y: x * 2.0 if y is None else x * y)
    assert np.array_equal(f(x, None), np.asarray(x) * 2.0)
    assert np.array_equal(f(x, 3.0), np.asarray(x) * 3.0)
    assert np.array_equal(f(x, None), np.asarray(x) * 2.0)
    result, nothing = bt.function(lambda x: (x * 1.0, None))(x)
    assert nothing is None
    assert np.array_equal(result, x)
    g = bt.function(lambda p: p["w"] * 2.0 if p["b"] is None else p["w"] + p["b"])
    assert np.array_equal(g({"w": x, "b": None}), np.asarray(x) * 2.0)


@pytest.mark.parametrize("x", [1.5, ARRAY])
def test_dicts_of_collections_are_dicts(x):
    ordered = collections.OrderedDict(a=x, b=x)
    ordered.move_to_end("a")
    f = bt.function(lambda p: p["a"] * 2.0 + p["b"])
    assert np.array_equal(f(ordered), np.asarray(x) * 3.0)
    default = collections.defaultdict(float, a=x, b=x)
    assert np.array_equal(f(default), np.asarray(x) * 3.0)
    gradient = bt.grad(lambda p: (p["a"] * 2.0 + p["b"] * 3.0).sum() if np.ndim(x) else p["a"] * 2.0 + p["b"] * 3.0)(
        ordered
    )
    assert np.array_equal(gradient["a"], np.full(np.shape(x), 2.0))
    assert np.array_equal(gradient["b"], np.full(np.shape(x), 3.0))
    made = bt.function(lambda x: collections.OrderedDict(u=x * 1.0, v=x * 2.0))(x)
    assert list(made) == ["u", "v"]


def test_other_classes_are_refused():
    class Own(dict):
        pass

    for wrong in (Own(a=1.0), {1.0}, object(), collections.deque([1.0]), "text"):
        with pytest.raises(bt.TraceError):
            bt.function(lambda p: 1.0)(wrong)
