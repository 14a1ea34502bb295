"""`bt.checkpoint`: the same bits as its function in every transform, and the memory it saves."""

from __future__ import annotations

import numpy as np
import pytest

import burtorch as bt

RNG = np.random.default_rng(3)
N = 6
W = [RNG.normal(size=(N, N)) / 3 for _ in range(3)]
X = RNG.normal(size=(4, N))


def layer(w, x):
    h = bt.tanh(x @ w)
    return bt.softmax(h * h + x) * h + bt.where(h > 0.1, x, h * 0.5)


def chain(step):
    def f(ws, x):
        for w in ws:
            x = step(w, x)
        return bt.sum(x * x)

    return f


def loop(step):
    def f(ws, x):
        last, all_of_them = bt.scan(lambda x, w: (step(w, x), bt.sum(x)), x, ws)
        return bt.sum(last * last) + bt.sum(all_of_them)

    return f


def nested(step):
    inner = chain(step)
    return lambda ws, x: bt.checkpoint(inner)(ws, x) * bt.checkpoint(bt.checkpoint(inner))(ws, x)


STACK = np.stack(W)
RUNS = {
    "value": lambda f, ws: bt.function(f)(ws, X),
    "grad": lambda f, ws: bt.grad(f, argnums=(0, 1))(ws, X),
    "jvp": lambda f, ws: bt.jvp(f)(ws, X, ws, X),
    "vjp": lambda f, ws: bt.vjp(f)(ws, X, 2.0),
    "grad of grad": lambda f, ws: bt.grad(lambda x: bt.sum(bt.grad(f, argnums=1)(ws, x) ** 2))(X),
    "hvp": lambda f, ws: bt.hvp(lambda x: f(ws, x))(X, X),
    "rows": lambda f, ws: bt.vmap(bt.grad(f, argnums=1), in_axes=(None, 0))(ws, X[:, None]),
    "jacobian": lambda f, ws: bt.jacobian(lambda x: bt.grad(f, argnums=1)(ws, x))(X[:1]),
}


def flat(x):
    return [a for part in x for a in flat(part)] if isinstance(x, (list, tuple)) else [np.asarray(x)]


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("make", [chain, loop, nested])
def test_derivatives_are_those_without(name, make):
    ws = STACK if make is loop else W
    found = flat(RUNS[name](make(bt.checkpoint(layer)), ws))
    plain = make(layer)
    if make is nested:
        inner = chain(layer)
        plain = lambda ws, x: inner(ws, x) * inner(ws, x)  # noqa: E731
    expected = flat(RUNS[name](plain, ws))
    assert len(found) == len(expected) > 0
    is_first = name in ("value", "grad", "vjp", "jvp") and make is not nested
    for a, b in zip(found, expected):
        if is_first:
            np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)


def test_memory_is_that_of_one_layer():
    n, wide, depth = 32, 1024, 8

    def wide_layer(w, x):
        for _ in range(6):
            x = bt.tanh(bt.sin(x) @ w) + x
        return x

    def f(step):
        def f(ws, x):
            for w in ws:
                x = step(w, x)
            return bt.sum(x)

        return f

    ws = [np.eye(n) * 0.1 for _ in range(depth)]
    x = RNG.normal(size=(wide, n))
    bytes_of, results = [], []
    for step in (wide_layer, bt.checkpoint(wide_layer)):
        g = bt.value_and_grad(f(step), argnums=(0, 1))
        results.append(flat(g(ws, x)))
        bytes_of.append(g.stats()["bytes"])
    for a, b in zip(*results):
        np.testing.assert_array_equal(a, b)
    assert bytes_of[1] < 0.4 * bytes_of[0]


def test_arrays_of_a_graph_parameters_and_captured_values():
    params = bt.Parameters(dtype="float64")
    w = params.tensor((N, N), init=0.1)
    grads = []
    for step in (layer, bt.checkpoint(layer)):
        params.zero_grad()
        x = bt.array(X)
        bt.sum(step(w, x) * x).backward()
        grads.append((x.grad, np.array(params.grads)))
        f = bt.function(lambda x, step=step: bt.sum(step(w, x)))
        value, by_w = f.value_and_param_grad(X)
        grads[-1] += (value, np.array(by_w))
        # Captured numbers matter.
        of_body = (lambda x: layer(w, x)) if step is layer else bt.checkpoint(lambda x: layer(w, x))
        grads[-1] += (np.array(bt.function(lambda x, f=of_body: bt.sum(f(x))).value_and_param_grad(X)[1]),)

        def around(y, step=step):
            def body(z, y=y):
                return layer(W[0], z) * y

            return bt.sum((body if step is layer else bt.checkpoint(body))(X))

        grads[-1] += (bt.grad(around)(X),)
    for a, b in zip(*grads):
        np.testing.assert_array_equal(a, b)


def test_structures_statics_and_branches():
    f = bt.checkpoint(lambda p, k=1.0: {"y": p["x"] * p["x"] * k, "n": [p["x"].sum()]})
    found = f({"x": X}, k=3.0)
    np.testing.assert_array_equal(found["y"], X * X * 3.0)
    assert found["n"] == pytest.approx([X.sum()])
    g = bt.grad(bt.checkpoint(lambda x: bt.sum(x * x) if x.sum() > 0 else bt.sum(x)))
    for _ in range(2):
        np.testing.assert_array_equal(g(np.array([1.0, 2.0])), [2.0, 4.0])
        np.testing.assert_array_equal(g(np.array([-1.0, -2.0])), [1.0, 1.0])
    with pytest.raises(TypeError, match="takes a function, found int"):
        bt.checkpoint(3)


def test_files(tmp_path):
    f = bt.grad(lambda x: bt.sum(bt.checkpoint(layer)(W[0], x)))
    plain = bt.function(lambda x: bt.sum(bt.checkpoint(layer)(W[0], x)))
    for k, function in enumerate((f, plain)):
        before = function(X)
        function.save(tmp_path / f"{k}.bt")
        loaded = bt.load_function(tmp_path / f"{k}.bt")
        np.testing.assert_array_equal(loaded(X), before)
    np.testing.assert_array_equal(bt.grad(loaded)(X), f(X))
