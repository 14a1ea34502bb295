"""Random calls of the whole interface with valid and invalid arguments of every kind: the outcome is a result or a
documented exception, and afterwards everything still works."""

from __future__ import annotations

import array
import contextlib
import gc
import math
import random
import sys

import pytest

import burtorch as bt
from burtorch import Value

ALLOWED = (TypeError, ValueError, IndexError, OverflowError, AttributeError, MemoryError, bt.BurtorchError)
TAKES_A_PATH = {"save", "load", "save_raw", "load_raw", "load_graph", "load_parameters", "load_function"}
"""Only these may be refused by the system: OSError."""
N_CALLS = 100_000


class Liar:
    """Looks like a NumPy scalar but is not one."""

    ndim = 0

    class dtype:  # noqa: N801
        kind = "f"

    def __array__(self):
        return None

    def __init__(self, answer):
        self.answer = answer

    def __float__(self):
        return self.answer()


class Broken:
    """Raises from every method."""

    def __getattr__(self, name):
        raise LookupError(name)

    def __iter__(self):
        raise ValueError

    def __len__(self):
        return -1

    def __index__(self):
        raise TypeError

    def __eq__(self, other):
        return NotImplemented

    __hash__ = None


class Sub(Value):
    pass


def members(thing, skip):
    names = {n for n in dir(thing) if n not in skip and (not n.startswith("__") or n in DUNDERS)}
    return sorted(names)


DUNDERS = {f"__{r}{op}__" for op in ("add", "sub", "mul", "truediv", "pow") for r in ("", "r")} | {
    *("__neg__", "__abs__", "__pos__", "__float__", "__int__", "__bool__", "__round__", "__format__", "__hash__"),
    *("__eq__", "__lt__", "__ge__", "__repr__", "__array_ufunc__", "__getitem__", "__len__", "__iter__", "__matmul__"),
    *("__setitem__", "__dlpack__", "__dlpack_device__", "__call__"),
    *("__rmatmul__", "__reduce__", "__init__", "__new__", "__sizeof__", "__enter__", "__exit__"),
}


@pytest.mark.parametrize("seed", range(4))
def test_random_calls(seed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some calls write files
    rng = random.Random(seed)
    functions = [getattr(bt, n) for n in bt.__all__ if n.islower() and callable(getattr(bt._core, n, None))]
    functions += [bt.where, Value, Sub, bt.Vector]
    home = bt.current_graph()

    def reset():
        graph = bt.Graph(rng.choice(["float64", "float64", "float16"]), reclaim=rng.random() < 0.8)
        other = bt.Graph("float32")
        params = bt.Parameters(dtype=rng.choice(["float64", "float32"]), seed=1)
        w = params.tensor((2, 3))
        held = bt.Graph(capacity=12, fixed=True)
        pool = [Value(rng.choice([0.0, -1.5, 2.0, math.inf, math.nan]), graph=graph) for _ in range(5)]
        pool += [graph.vector([1.0, 2.0, -3.0]), graph.vector([0.5]), graph.mark(), graph, Value(1.0, graph=other)]
        pool += [other, Sub(2.0, graph=graph), graph.scope(), bt.Graph(capacity=6, fixed=True), bt.no_grad(graph)]
        pool += [Liar(lambda: 2.5), Liar(graph.collect), Liar(graph.clear), Liar(lambda: 1 / 0), Liar(lambda: "a")]
        pool += [params, w, params.values, w.grads, graph.values, held.vector([1.0, 2.0]), held.values, held.values[:]]
        pool += [bt.nn.Linear(params, 3, 2), bt.optim.SGD(params, lr=0.1), bt.stack(pool[0], pool[1])]
        pool += [bt.nn.MLP(params, [3, 2]), bt.optim.SGD(pool[:3], lr=0.1), bt.optim.AdamW(pool[2:5])]
        return graph, other, pool

    graph, other, pool = reset()

    def junk():
        k = rng.randrange(24)
        simple = [
            0,
            1,
            -1,
            2,
            3,
            0.5,
            -0.0,
            1e308,
            math.inf,
            math.nan,
            True,
            None,
            "a",
            "",
            b"a",
            1j,
            10**400,
            -(2**63),
        ]
        if k < len(simple):
            return simple[k]
        return rng.choice(
            [
                lambda: [rng.choice(pool) for _ in range(rng.randrange(4))],
                lambda: (x for x in [rng.choice(pool), 1.0]),
                lambda: array.array(rng.choice("dfiB"), [1, 2, 3]),
                lambda: slice(rng.choice([None, -2, 0, 5]), rng.choice([None, -1, 3]), rng.choice([None, -1, 2])),
                lambda: {"data": 1.0},
                Broken,
                object,
                lambda: range(3),
                lambda: memoryview(array.array("d", [1.0, 2.0])),
            ]
        )()

    def argument():
        return rng.choice(pool) if rng.random() < 0.7 else junk()

    n_right = 0
    for k in range(N_CALLS // 4):
        if k % 500 == 499:
            graph, other, pool = reset()
        target = rng.choice(pool)
        arguments = [argument() for _ in range(rng.choice([0, 1, 1, 1, 2, 2, 3]))]
        keywords = {rng.choice(["seed", "label", "graph", "data", "x", "skip_zero_adjoints"]): argument()}
        keywords = keywords if rng.random() < 0.1 else {}
        action = rng.random()
        name = ""
        try:
            if action < 0.45:
                function = rng.choice(functions)
                name = function.__name__
                result = function(*arguments, **keywords)
            elif action < 0.9:
                name = rng.choice(members(target, {"__enter__"}))
                result = getattr(target, name)
                if callable(result):
                    result = result(*arguments, **keywords)
            else:
                result = setattr(target, rng.choice(["data", "grad", "label", "index", "op"]), argument())
            n_right += 1
        except ALLOWED:
            continue
        except (ZeroDivisionError, LookupError):
            continue  # raised by the arguments
        except BaseException as error:
            if isinstance(error, OSError) and name in TAKES_A_PATH:
                continue
            raise AssertionError(f"{target!r} {arguments!r} {keywords!r}") from error
        if isinstance(result, (Value, bt.Vector)) and rng.random() < 0.5 and len(pool) < 60:
            pool.append(result)
        if rng.random() < 0.02:
            del pool[rng.randrange(len(pool))]
            pool = pool or reset()[2]
    assert n_right > N_CALLS / 40
    while bt.current_graph() is not home:
        bt.current_graph().__exit__(None, None, None)
    del target, arguments, keywords, result
    pool.clear()
    for g in (graph, other):
        with contextlib.suppress(bt.BurtorchError, ValueError):
            g.join()  # a random call may have opened branches
        g.set_no_grad(False)
        g.clear()
        x = Value(3.0, graph=g)
        y = x * x
        y.backward()
        assert (y.data, x.grad, len(g)) == (9.0, 6.0, 2)
        del x, y
    gc.collect()
    assert sys.getrefcount(graph) == 2  # the variable, and the argument of this call
    assert graph.memory()["handles"] == 0
