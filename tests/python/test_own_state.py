"""Numbers of burtorch's own state read by traced bodies: all attributes of objects that hold any."""

from __future__ import annotations

import copy
import hashlib
import pickle
import warnings

import pytest

import burtorch as bt

np = pytest.importorskip("numpy")

# Special methods that return numbers; dir() gives the other attributes.
SPECIAL = [
    *("__repr__", "__str__", "__reduce__", "__len__", "__float__", "__int__", "__bool__", "__hash__"),
    *(
        "__array__",
        "__iter__",
        "__copy__",
        "__deepcopy__",
        "__getstate__",
        "__index__",
        "__round__",
        "__neg__",
        "__abs__",
    ),
]
# Further ways to read an object.
WAYS = {
    "pickle": pickle.dumps,
    "copy": copy.copy,
    "format": "{:}".format,
    "asarray": np.asarray,
    "list": list,
    "sum": lambda x: x + 1.0,
    "first": lambda x: x[0],
    "comparison": lambda x: bool(x > 3.0),
    "memoryview": lambda x: bytes(memoryview(x)),
}


class World:
    """Objects that hold numbers, and a change of all of them."""

    def __init__(self):
        self.p = p = bt.Parameters(dtype="float64", seed=0)
        self.w = p.tensor((3,), name="w", init="normal")
        self.graph = graph = bt.Graph()
        self.fixed = bt.Graph(capacity=16, fixed=True)
        with self.fixed:
            self.kept = bt.Value(1.5)
        with graph:
            self.value, self.vector = bt.Value(2.0, label="v"), graph.vector([1.0, 2.0, 3.0])
            self.root = (self.value * self.vector).sum()
        self.array_graph = bt.Graph()
        self.array = self.array_graph.array([1.0, 2.0, 3.0])
        self.net = bt.nn.CharMLP(bt.Parameters(seed=0), embedding=2, hidden=4)
        self.sgd, self.adam = bt.optim.SGD(p, lr=0.5, momentum=0.9), bt.optim.Adam(p)
        self.parameter = bt.parameter(2.0)
        self.oracle = bt.Oracle(self.net)
        self.method = bt.opt.GD(bt.opt.least_squares(np.eye(3), np.arange(3.0)), step=0.5)
        self.objects = {
            name: held
            for name, held in vars(self).items()
            if held is not None and name not in ("objects", "array_graph", "root")
        }

    def change(self):
        for params in (self.p, self.net.params if hasattr(self.net, "params") else self.p):
            params.values[:] = np.asarray(params.values) * 2.0 + 1.0
            params.grads[:] = np.full(params.n, 3.0)
        self.value.data, self.vector.data, self.kept.data = 5.0, [4.0, 5.0, 6.0], 7.0
        self.graph.recompute(self.root)
        self.root.backward()
        self.kept.backward()
        self.array.data = np.array([4.0, 5.0, 6.0])
        self.sgd.lr, self.adam.lr = 0.25, 0.125
        self.sgd.step()
        self.adam.step()
        self.parameter.value = 9.0
        self.method.step()


def number(x, depth=0):
    """A number computed from everything that was read."""
    if isinstance(x, str):
        x = x.encode()
    if isinstance(x, bytes):
        return float(int(hashlib.sha256(x).hexdigest()[:8], 16))
    if isinstance(x, (bool, int, float, np.generic)):
        return float(x)
    if isinstance(x, np.ndarray):
        return float(x.sum())
    if isinstance(x, (list, tuple)) and depth < 3:
        return sum((k + 1.0) * number(item, depth + 1) for k, item in enumerate(x))
    if isinstance(x, (bt.Value, bt.Vector, bt.Array)):
        return number(np.asarray(x.data))
    raise TypeError(type(x))


def read(held, way):
    if way in WAYS:
        return number(WAYS[way](held))
    found = getattr(held, way)
    return number(found() if callable(found) else found)


def ways():
    """Each way to read a number that the change affects."""
    world = World()
    for name, held in world.objects.items():
        public = [a for a in dir(held) if not a.startswith("__") and a not in ("collect", "clear", "to_html")]
        for way in [*public, *(a for a in SPECIAL if hasattr(held, a)), *WAYS]:
            fresh = World()
            try:
                before = read(fresh.objects[name], way)
                again = read(World().objects[name], way)
                fresh = World()
                fresh.change()
                after = read(fresh.objects[name], way)
            except Exception:
                continue
            # Addresses differ between worlds.
            if before == again and before != after:
                yield name, way


def outcome(name, way, argument):
    world = World()
    held = world.objects[name]
    f = bt.function(lambda x: x * read(held, way))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            f(argument)
        except Exception as error:
            return type(error).__name__
    if any(issubclass(w.category, bt.StaleRiskWarning) for w in caught):
        return "warned"
    # Texts of traced objects contain no numbers.
    world.change()
    now = np.ravel(f(argument))[0]
    return "right" if now == read(held, way) else "hidden" if "traced" in seen(name, way) else f"silent: {now}"


def seen(name, way):
    """The result seen by a traced body, as text."""
    held, texts = World().objects[name], []
    bt.function(lambda x: texts.append(WAYS[way](held) if way in WAYS else getattr(held, way)()) or x)(1.0)
    return str(texts)


@pytest.mark.parametrize("argument", [1.0, np.ones(2)], ids=["Values", "Arrays"])
def test_no_number_of_burtorchs_state_is_silently_fixed(argument):
    outcomes = {pair: outcome(*pair, argument) for pair in ways()}
    assert len(outcomes) > 80
    wrong = {
        pair: found for pair, found in outcomes.items() if found not in ("TraceError", "right", "warned", "hidden")
    }
    assert wrong == {}
