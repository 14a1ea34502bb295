"""Functions with user-defined derivatives: eager, traced, over rows, along directions; failures."""

from __future__ import annotations

import math

import numpy as np
import pytest

import burtorch as bt


@pytest.fixture
def wave():
    """x^2 y + sin(x), not defined for negative y."""

    @bt.primitive
    def wave(x, y):
        if y < 0:
            raise ValueError(f"y must not be negative, found {y}")
        return x * x * y + math.sin(x)

    @wave.defvjp
    def _(g, z, x, y):
        return g * (2 * x * y + math.cos(x)), g * x * x

    return wave


def same(x, y):
    return x * x * y + bt.sin(x)


POINTS = [(0.3, 0.7), (-1.1, 0.2), (0.9, 1.4), (0.0, 0.0)]


def test_numbers_go_through():
    double = bt.primitive(lambda x: 2 * x)
    assert double(3.0) == 6.0
    assert type(double(3)) is int
    assert "<lambda>" in repr(double)
    assert double.__wrapped__(4) == 8


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_eager_gradients_are_those_of_the_rule(wave, dtype):
    for x, y in POINTS:
        with bt.Graph(dtype=dtype):
            a, b, c, d = bt.Value(x), bt.Value(y), bt.Value(x), bt.Value(y)
            mine, plain = bt.tanh(wave(a, b)) * a, bt.tanh(same(c, d)) * c
            mine.backward()
            plain.backward()
            rel = 1e-13 if dtype == "float64" else 1e-6
            assert mine.data == pytest.approx(plain.data, rel=rel)
            assert (a.grad, b.grad) == pytest.approx((c.grad, d.grad), rel=rel, abs=1e-15)


def test_recorded_calls_have_the_bits_of_eager_ones(wave):
    f = bt.function(lambda x, y: bt.tanh(wave(x, y)) * x)
    for x, y in POINTS:
        a, b = bt.Value(x), bt.Value(y)
        z = bt.tanh(wave(a, b)) * a
        z.backward()
        assert f.value_and_grad(x, y) == (z.data, (a.grad, b.grad))
        assert f(x, y) == z.data
    assert f.stats()["traced"] == 1
    assert "wave x0 x1" in str(f.program)
    x, grad = np.array(POINTS[0]), np.zeros(2)
    assert (f.bind(x, grad)(), *grad) == (f(*POINTS[0]), *f.grad(*POINTS[0]))


def test_rows_call_back_once_each(wave):
    f = bt.function(lambda x, y: bt.tanh(wave(x, y)) * x)
    x = np.random.default_rng(0).uniform(0, 2, size=(300, 2))
    for threads in (1, 3):
        values, grads = f.map_value_and_grad(x, threads=threads)
        for k in (0, 1, 63, 64, 299):
            assert (values[k], tuple(grads[k])) == f.value_and_grad(*x[k].tolist())
    seen = []
    count = bt.primitive(lambda x: seen.append(x) or x * 2.0)
    count.defvjp(lambda g, y, x: g * 2.0)
    g = bt.function(lambda x: count(x) + 1.0)
    g(0.5)
    seen.clear()
    assert g.map(np.arange(100.0)).tolist() == [2.0 * k + 1.0 for k in range(100)]
    # Row 0 is evaluated alone first, to find its path.
    assert sorted(set(seen)) == list(map(float, range(100)))
    assert len(seen) <= 104


def test_sequences_come_as_lists():
    seen = []

    @bt.primitive
    def weighted(w, x, b):
        seen.append((type(w), type(x), type(b)))
        return sum(p * q for p, q in zip(w, x)) + b

    weighted.defvjp(lambda g, y, w, x, b: ([g * q for q in x], [g * p for p in w], g))
    bt.check_grads(lambda w, x: weighted(w, x, 1.0), ([1.0, 2.0], [3.0, -4.0]))
    v = [bt.Value(1.0), 2.0]
    y = weighted([3.0, 4.0], v, bt.Value(0.5))
    assert y.data == 11.5
    assert set(seen) == {(list, list, float)}
    f = bt.function(lambda w, x: weighted(w, x, 0.0))
    dw, dx = f.grad(np.array([1.0, 2.0]), [3.0, 4.0])
    assert (dw.tolist(), dx) == ([3.0, 4.0], [1.0, 2.0])
    single = bt.primitive(lambda x: x[0] * 2.0)
    single.defvjp(lambda g, y, x: ([2.0 * g],))
    assert bt.function(lambda x: single(x)).grad([1.5]) == [2.0]


def test_directions(wave):
    f = bt.function(lambda x, y: bt.tanh(wave(x, y)) * x)
    plain = bt.function(lambda x, y: bt.tanh(same(x, y)) * x)
    for point in POINTS:
        assert f.jvp(*point, 0.5, -2.0) == pytest.approx(plain.jvp(*point, 0.5, -2.0), rel=1e-12)
        np.testing.assert_allclose(f.jacobian(*point), plain.jacobian(*point), rtol=1e-12)
    asked = []
    wave.defjvp(lambda t, z, x, y: asked.append(t) or t[0] * (2 * x * y + math.cos(x)) + t[1] * x * x)
    assert f.jvp(0.3, 0.7, 0.5, -2.0) == pytest.approx(plain.jvp(0.3, 0.7, 0.5, -2.0), rel=1e-12)
    assert asked[-1] == (0.5, -2.0)


def test_a_rule_for_directions_alone_gives_gradients():
    product = bt.primitive(lambda x, y: x * y)
    product.defjvp(lambda t, z, x, y: t[0] * y + x * t[1])
    bt.check_grads(product, (1.5, -2.0))
    assert bt.function(product).value_and_grad(3.0, 4.0) == (12.0, (4.0, 3.0))


def test_check_grads_finds_a_wrong_rule():
    wrong = bt.primitive(lambda x: x * x)
    wrong.defvjp(lambda g, y, x: g * x)
    with pytest.raises(AssertionError, match="argument 0"):
        bt.check_grads(wrong, 3.0)


def test_errors_of_the_function_come_through(wave):
    f = bt.function(lambda x, y: wave(x, y) * 2.0)
    assert f(1.0, 1.0) == 2.0 * (1.0 + math.sin(1.0))
    for call in (f, f.grad, f.value_and_grad):
        with pytest.raises(ValueError, match=r"must not be negative, found -1\.0"):
            call(1.0, -1.0)
    with pytest.raises(ValueError, match=r"found -3\.0"):
        f.map(np.array([[1.0, 1.0], [2.0, -3.0]]))
    assert f(1.0, 1.0) == 2.0 * (1.0 + math.sin(1.0))
    x = bt.Value(1.0)
    graph = bt.current_graph()
    before = len(graph)
    with pytest.raises(ValueError, match="must not be negative"):
        wave(x, -1.0)
    assert len(graph) == before


def test_errors_of_the_rule_come_through():
    bare = bt.primitive(lambda x: x)
    with pytest.raises(TypeError, match="no derivative; give it one with defvjp"):
        bare(bt.Value(1.0))
    many = bt.primitive(lambda x, y: x)
    many.defvjp(lambda g, z, x, y: (g, g, g))
    with pytest.raises(ValueError, match="returned 2 numbers for 2 arguments"):
        many(bt.Value(1.0), 2.0)
    text = bt.primitive(lambda x: "no")
    text.defvjp(lambda g, z, x: g)
    with pytest.raises(TypeError, match="must return a real number, found str"):
        text(bt.Value(1.0))
    for bad in (lambda: bt.primitive(3), lambda: bare.defvjp(3), lambda: bare.defjvp(None)):
        with pytest.raises(TypeError, match="takes a Python function"):
            bad()


def test_a_derivative_that_raises_later_is_not_lost():
    fails = []
    picky = bt.primitive(lambda x: x * x)

    @picky.defvjp
    def _(g, y, x):
        if fails:
            raise ArithmeticError("no derivative today")
        return 2.0 * g * x

    f = bt.function(lambda x: [picky(x), x])
    assert f(3.0) == [9.0, 3.0]
    fails.append(True)
    assert f(3.0) == [9.0, 3.0]
    for call in (lambda: f.jacobian(3.0), lambda: f.jvp(3.0, 1.0), lambda: f.vjp(3.0, [1.0, 0.0])):
        with pytest.raises(ArithmeticError, match="no derivative today"):
            call()
    fails.clear()
    np.testing.assert_array_equal(np.ravel(f.jacobian(3.0)), [6.0, 1.0])


def test_guards_after_a_primitive(wave):
    def body(x, y):
        z = wave(x, y)
        return z * 2.0 if z > 1.0 else z + x

    f = bt.function(body)
    for x in np.linspace(-2, 2, 41).tolist():
        a, b = bt.Value(x), bt.Value(0.8)
        z = body(a, b)
        z.backward()
        assert f.value_and_grad(x, 0.8) == (z.data, (a.grad, b.grad))
    assert f.stats()["paths"] == 2


def test_a_primitive_may_call_the_function_it_is_part_of():
    depth = []

    @bt.primitive
    def again(x):
        if len(depth) < 3:
            depth.append(None)
            f(x + 1.0)
            depth.pop()
        return x * 2.0

    again.defvjp(lambda g, y, x: g * 2.0)
    f = bt.function(lambda x: again(x) + x)
    for x in (1.0, 2.0, 3.0):
        assert f.value_and_grad(x) == (3.0 * x, 3.0)


def test_no_second_derivatives_and_no_files(wave, tmp_path):
    f = bt.function(lambda x, y: wave(x, y) * x)
    f(1.0, 1.0)
    for call in (lambda: f.hessian(1.0, 1.0), lambda: f.hvp(1.0, 1.0, 1.0, 0.0)):
        with pytest.raises(ValueError, match="only first derivatives"):
            call()
    with pytest.raises(ValueError, match="primitives"):
        f.save(tmp_path / "f.bt")


def test_ctrl_c_inside_a_primitive():
    stop = []

    @bt.primitive
    def slow(x):
        if stop:
            raise KeyboardInterrupt
        return x

    slow.defvjp(lambda g, y, x: g)
    f = bt.function(lambda x: slow(x) * 3.0)
    assert f(1.0) == 3.0
    stop.append(True)
    with pytest.raises(KeyboardInterrupt):
        f(1.0)
    stop.clear()
    assert f(2.0) == 6.0
