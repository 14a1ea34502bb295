"""``burtorch.autograd``: solutions of differential equations, arrays of numbers read at computed places, and functions
whose intermediate results are computed again."""

from __future__ import annotations

import pytest

np_plain = pytest.importorskip("numpy")

import burtorch as bt  # noqa: E402
import burtorch.autograd.numpy as np  # noqa: E402
from burtorch.autograd import checkpoint, elementwise_grad, grad, hessian, jacobian, value_and_grad  # noqa: E402
from burtorch.autograd.scipy.integrate import odeint  # noqa: E402

TIMES = np.array([0.0, 0.3, 1.0, 1.0, 2.5])


def close(found, expected, tolerance=1e-6):
    np_plain.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def test_solutions_and_their_derivatives():
    k, y0 = 0.7, np.array([1.0, -2.0])

    def f(y, t, k):
        return k * y

    found = odeint(f, y0, TIMES, (k,))
    assert type(found) is np_plain.ndarray
    close(found, y0 * np.exp(k * TIMES)[:, None])
    close(jacobian(lambda k: odeint(f, y0, TIMES, (k,)))(k), TIMES[:, None] * y0 * np.exp(k * TIMES)[:, None], 1e-5)
    close(jacobian(lambda y0: odeint(f, y0, TIMES, (k,))[-1])(y0), np.exp(k * TIMES[-1]) * np.eye(2), 1e-5)
    by_times = jacobian(lambda t: odeint(f, y0, t, (k,))[:, 0])(TIMES)
    expected = np.diag(k * np.exp(k * TIMES))
    # A later start means a shorter time for all others.
    expected[:, 0] -= k * np.exp(k * TIMES)
    close(by_times, expected, 1e-5)
    close(hessian(lambda k: odeint(f, y0, TIMES, (k,))[-1, 0])(k), TIMES[-1] ** 2 * np.exp(k * TIMES[-1]), 1e-4)


def test_solutions_backwards_at_one_time_and_of_weights_in_containers():
    def f(y, t, layers):
        for w, b in layers:
            y = np.tanh(y @ w + b) + np.sin(t)
        return y

    rs = np_plain.random.RandomState(1)
    layers = [(rs.randn(2, 3), rs.randn(3)), (rs.randn(3, 2), rs.randn(2))]
    there = odeint(f, np.array([0.5, 1.0]), np.array([0.0, 1.5]), (layers,))
    back = odeint(f, there[-1], np.array([1.5, 0.0]), (layers,))
    close(back[-1], [0.5, 1.0], 1e-5)
    assert odeint(f, there[-1], np.array([1.5]), (layers,)).tolist() == [there[-1].tolist()]

    def loss(layers):
        return np.sum(odeint(f, np.array([0.5, 1.0]), TIMES, (layers,), rtol=1e-10, atol=1e-10) ** 2)

    value, slope = value_and_grad(loss)(layers)
    close(value, loss(layers))
    for at, part in np_plain.ndindex(2, 2):
        h, moved = 1e-5, []
        for step in (h, -h):
            copies = [list(pair) for pair in layers]
            copies[at][part] = copies[at][part] + step
            moved.append(loss(copies))
        close(np.sum(slope[at][part]), (moved[0] - moved[1]) / (2 * h), 1e-5)


def test_solutions_need_one_axis():
    for y0, t in ((np.ones((2, 2)), TIMES), (np.ones(2), np.ones((2, 2))), (np.ones(2), np.ones(0))):
        with pytest.raises(ValueError, match="one axis"):
            odeint(lambda y, t: y, y0, t)


def test_known_arrays_are_read_at_computed_places():
    table = np.arange(12.0).reshape(3, 4)

    def f(x):
        """The bilinear interpolation of the table, as published programs write it."""
        left, top = np.floor(x[0]).astype(int), np.floor(x[1]).astype(int)
        a, b = x[0] - left, x[1] - top
        left, top = np.mod(left, 3), np.mod(top, 4)
        right, bottom = np.mod(left + 1, 3), np.mod(top + 1, 4)
        near = (1 - b) * table[left, top] + b * table[left, bottom]
        far = (1 - b) * table[right, top] + b * table[right, bottom]
        return np.sum((1 - a) * near + a * far)

    x = np.array([[0.25, 1.5, -0.5, 2.75], [3.25, 0.5, 1.75, -1.5]])
    value, slope = value_and_grad(f)(x)
    assert value == f(x)
    for at in np_plain.ndindex(x.shape):
        h = np.zeros(x.shape)
        h[at] = 1e-6
        close(slope[at], (f(x + h) - f(x - h)) / 2e-6)
    close(
        elementwise_grad(elementwise_grad(lambda x: x**3 * table.ravel()[np.round(x).astype(int)]))(
            np.array([1.0, 2.2])
        ),
        [6.0, 26.4],
    )
    assert grad(lambda x: np.sum(x * np_plain.array([1.0, 5.0])[(x > 0) * 1]))(np.array([-1.0, 1.0])).tolist() == [1, 5]


def test_numbers_of_a_program_that_runs_again_stay_unknown():
    table = np.arange(4.0)
    for of in (bt.grad, bt.value_and_grad, lambda f: bt.function(lambda x: f(x[0]))):
        with pytest.raises(bt.TraceError, match="no numbers"):
            of(lambda x: np.sum(x * table[x.astype(int)]))(np.ones((1, 2)) if of.__name__ == "<lambda>" else np.ones(2))
    # Floats have derivatives, which their numbers would not have.
    with pytest.raises(bt.TraceError, match="no numbers"):
        grad(lambda x: np.sum(x) + np_plain.asarray(x).sum())(np.ones(2))
    with pytest.raises(bt.TraceError):
        grad(lambda x: bt.vmap(lambda r: r * table[r.astype(int)])(x).sum())(np.ones(2))
    with pytest.raises(bt.TraceError):
        grad(lambda x: bt.scan(lambda c, r: (c + table[r.astype(int)], c), 0.0, x)[0])(np.ones(2))


def layer(x, weights, power=2, *, shift=0.0, name="tanh"):
    return getattr(np, name)(x @ weights["w"] + weights["b"][0]) ** power + shift


def test_checkpoints_have_the_values_and_derivatives_of_the_function():
    rs = np_plain.random.RandomState(3)
    x, weights = rs.randn(4, 3), {"w": rs.randn(3, 3), "b": [rs.randn(3)]}
    again = checkpoint(layer)
    assert again.__name__ == "layer"
    close(again(x, weights, 3, shift=x), layer(x, weights, 3, shift=x))

    def loss(f):
        def of(x, weights, shift):
            y = f(f(x, weights), weights, 3, shift=shift, name="sin")
            return np.sum(f(y, weights=weights))

        return of

    for argnum, at in enumerate((x, weights, 0.25)):
        given = [x, weights, 0.25]
        given[argnum] = at
        found, expected = (value_and_grad(loss(f), argnum)(*given) for f in (again, layer))
        if argnum == 1:
            found, expected = ((v, slope["w"], slope["b"][0]) for v, slope in (found, expected))
        for one, other in zip(found, expected):
            close(one, other, 1e-12)
    close(hessian(lambda b: loss(again)(x, {**weights, "b": [b]}, 0.5))(weights["b"][0]),
          hessian(lambda b: loss(layer)(x, {**weights, "b": [b]}, 0.5))(weights["b"][0]), 1e-11)  # fmt: skip
    close(jacobian(lambda s: again(x, weights, shift=s))(0.5), np.ones((4, 3)))


def test_bodies_of_checkpoints_run_at_every_call():
    runs = []

    @checkpoint
    def scaled(x):
        runs.append(len(runs) + 1.0)
        return np.sum(x * runs[-1])

    slopes = grad(scaled)
    for _ in range(3):
        n = len(runs)
        assert slopes(np.ones(2)).tolist() == [n + 1.0] * 2
    assert scaled(np.ones(2)) == 2.0 * runs[-1]


def test_masks_that_a_body_computes_are_indices():
    x = np_plain.array([0.3, 0.7, 1.2])
    for f, expected in [
        (lambda z: np.sum(z[z > 0.5] ** 2), [0.0, 1.4, 2.4]),
        (lambda z: np.sum(z[(z > 0.5) & (z < 1.0)]), [0.0, 1.0, 0.0]),
        (lambda z: np.sum(z[~(z > 0.5)] * 3.0), [3.0, 0.0, 0.0]),
        (lambda z: np.sum(np.outer(z, z)[np.outer(z, z) > 1.0]), [0.0, 0.0, 2.4]),
        (lambda z: np.sum(z[z > 9.0]), [0.0, 0.0, 0.0]),
    ]:
        close(grad(f)(x), np_plain.array(expected), 1e-12)
        close(grad(f)(x[::-1].copy()), np_plain.array(expected[::-1]), 1e-12)
