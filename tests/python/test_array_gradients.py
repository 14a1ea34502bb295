"""Derivatives through all operations of an Array: both modes, second order and rows, against differences and loops."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

import burtorch as bt

np = pytest.importorskip("numpy")

same = runpy.run_path(str(Path(__file__).with_name("array_cases.py")))["same"]

# Hypothesis has a hook in the garbage collector that reads the clock.
pytestmark = pytest.mark.filterwarnings("ignore::burtorch.StaleRiskWarning")
A = np.random.default_rng(1).uniform(0.4, 1.6, (3, 4))
W = np.random.default_rng(2).uniform(-1.0, 1.0, (4, 3))
T = np.random.default_rng(3).uniform(-1.0, 1.0, (2, 3, 4))
PLACES = np.array([2, 0, -1, 2])

BODIES = {
    "operators": lambda x: (x + 2) * (3 - x) / (1 + x**2) - x**-1.5 + 2.0**x + x**x,
    "remainders": lambda x: (x * 5) % 1.3 + (x * 5) // 1.3 * x,
    "functions": lambda x: np.sin(x) * np.exp(-x) + np.log1p(x) * np.tanh(x) + np.arctan2(x, x.T.reshape(3, 4)),
    "rows of ops": lambda x: bt.erf(x) + bt.softplus(x) * bt.gelu(x) + bt.digamma(x) + bt.leaky_relu(x - 1, 0.1),
    "broadcasting": lambda x: x * x[0] + x[:, :1] - x[1, 2] + W.T * x.sum(0),
    "products": lambda x: (x @ W) @ x + np.dot(x, W) @ x,
    "vectors": lambda x: x[0] @ W @ x[:, 1] * (x[1] @ x[2]),
    "batches": lambda x: (T @ x.T) @ x,
    "outer": lambda x: np.outer(x[0], x[:, 0]) + np.tensordot(x, x, ([0], [0]))[:, :3],
    "einsum": lambda x: np.einsum("ij,jk,kl->il", x, W, x) + np.einsum("ij,ij->i", x, x)[:, None],
    "einsum with diagonals": lambda x: np.einsum("ii->i", x[:, :3]) * np.einsum("ij->j", x)[:3],
    "slices": lambda x: x[::-1, 1::2] * x[1:2, ::-2] - x[..., None, 0] * x[-1, 1],
    "integers": lambda x: x[:, PLACES] * x[[0, 0, 1]] + x[PLACES[:3], PLACES[1:]][:, None],
    "places": lambda x: np.take_along_axis(x, np.argsort(A, 1), 1) * x + x.take([0, 5, 5]).sum(),
    "concatenate": lambda x: np.concatenate([x, x[:1] ** 2, A], 0)[1:4] * np.stack([x[0], x[1], x[1]]),
    "shapes": lambda x: x.T.reshape(2, 6)[:, ::2] * np.moveaxis(x[None], 0, 2).ravel()[:3] * np.roll(x, 3)[:2, :3],
    "repeats": lambda x: np.tile(x, (2, 1)) * np.repeat(x, 2, 0) + np.flip(np.tile(x, (2, 1))),
    "triangles": lambda x: np.tril(x) @ np.triu(x, 1).T + np.diag(np.diag(x, 1)),
    "where": lambda x: np.where(x > 1, x**2, np.sin(x)) + np.where(A > 1, x, 0.0),
    "extremes": lambda x: x.max(0) * x.min(1, keepdims=True) + np.maximum(x, 1.0) * np.clip(x, 0.7, 1.3),
    "sums": lambda x: x.sum(1, keepdims=True) * x.mean(0) + x.prod(1)[:, None],
    "variances": lambda x: x.var(1)[:, None] * x.std(0, ddof=1) + x.var(),
    "running": lambda x: np.cumsum(x, 1) * np.cumprod(x, 0) + np.cumsum(x).reshape(3, 4),
    "softmax": lambda x: bt.softmax(x, axis=0) * bt.log_softmax(x) + bt.logsumexp(x, axis=1, keepdims=True),
    "norms": lambda x: np.linalg.norm(x, axis=1)[:, None] * x + np.linalg.norm(x) + np.linalg.norm(x, 3, axis=0),
    "layer norm": lambda x: bt.layer_norm(x) * W.T + bt.layer_norm(x, axis=(0, 1)),
    "attention": lambda x: bt.attention(x, x * 2, x**2, np.tri(3, dtype=bool)),
    "solve": lambda x: np.linalg.solve(x[:, :3] + 3 * np.eye(3), x),
    "determinant": lambda x: np.linalg.det(x[:, 1:] + 2 * np.eye(3)) * np.linalg.inv(x[:, :3] + 2 * np.eye(3)),
    "diff": lambda x: np.diff(x, axis=1) * np.diff(x, 2, 0)[:, 1:] + np.trapezoid(x, axis=0)[:3],
    "kron": lambda x: np.kron(x[:2, :2], x[1:, 1:3]) + np.pad(x, ((0, 1), (0, 0))),
    "cross": lambda x: np.cross(x[:, :3], W.T[:, :3]) * np.average(x, 0, weights=A[:, 0])[:3],
}  # fmt: skip


def total(body):
    """A scalar that depends differently on each number of a result."""

    def loss(x):
        y = body(x)
        weights = np.cos(np.arange(1.0, y.size + 1)).reshape(y.shape)
        return (y * weights).sum()

    return loss


def differences(f, x, h=1e-6):
    """The gradient of ``f`` by central differences."""
    gradient = np.zeros(x.shape)
    for place in np.ndindex(x.shape):
        ends = []
        for step in (h, -h):
            moved = x.copy()
            moved[place] += step
            ends.append(f(moved))
        gradient[place] = (ends[0] - ends[1]) / (2 * h)
    return gradient


@pytest.mark.parametrize("name", BODIES)
def test_gradients_are_those_of_differences(name):
    f = total(BODIES[name])
    value, gradient = bt.value_and_grad(f)(A)
    assert same(value, bt.function(f)(A))
    assert gradient.shape == A.shape
    assert same(gradient, differences(bt.function(f), A), 2e-7 * max(1.0, np.abs(gradient).max()))


@pytest.mark.parametrize("name", BODIES)
def test_modes_and_orders_agree(name):
    f = total(BODIES[name])
    direction = np.sin(np.arange(1.0, 13.0)).reshape(3, 4)
    _, change = bt.jvp(f, (A,), (direction,))
    gradient = bt.grad(f)
    assert same(change, (gradient(A) * direction).sum(), 1e-10 * max(1.0, abs(change)))
    h = 1e-5
    expected = (gradient(A + h * direction) - gradient(A - h * direction)) / (2 * h)
    product = bt.grad(lambda x: (gradient(x) * direction).sum())(A)
    assert same(product, expected, 3e-6 * max(1.0, np.abs(expected).max()))


@pytest.mark.parametrize("name", BODIES)
def test_rows_of_a_batch_are_those_of_a_loop(name):
    body = BODIES[name]
    rows = np.stack([A, A[::-1], A * 0.9 + 0.05])
    found = bt.vmap(body)(rows)
    expected = np.stack([bt.function(body)(row) for row in rows])
    assert same(found, expected, 1e-11)
    f = total(body)
    assert same(bt.vmap(bt.grad(f))(rows), np.stack([bt.grad(f)(row) for row in rows]), 1e-9)


def test_integer_arguments_choose_and_receive_no_gradient():
    def f(table, rows, columns):
        return (table[rows, columns] ** 2).sum() + table[rows[0]].sum()

    rows, columns = np.array([1, -1, 1]), np.array([0, 3, 0])
    expected = np.zeros((3, 4))
    np.add.at(expected, (rows, columns), 2 * A[rows, columns])
    expected[1] += 1
    assert same(bt.grad(f)(A, rows, columns), expected)
    with pytest.raises(TypeError):
        bt.grad(f, argnums=1)(A, rows, columns)


def test_unselected_elements_receive_nothing_from_an_infinite_slope():
    x = np.array([[0.0, 4.0], [9.0, 0.0]])
    for chosen in (
        lambda y: y[0, 1] + y[1, 0],
        lambda y: y[[0, 1], [1, 0]].sum(),
        lambda y: np.where(x > 0, y, 0.0).sum(),
    ):
        assert same(bt.grad(lambda x: chosen(np.sqrt(x)))(x), np.array([[0, 0.25], [1 / 6, 0]]))  # noqa: B023


@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("n", [1, 15, 16, 17, 255, 256, 257, 1000])
def test_winners_of_rows_of_any_length_share(kind, dtype, n):
    rng = np.random.default_rng(n)
    x = rng.integers(-9, 10, (5, n)).astype(dtype)
    x[1] = 2.5
    x[2] = -0.0
    x[2, ::2] = 0.0
    x[3, n // 2] = np.nan
    x[4, n // 3] = np.inf if kind == "max" else -np.inf
    weights = np.array([1.5, 3.0, 0.5, 2.0, -1.0], dtype)
    top = getattr(np, kind)(x, axis=1, keepdims=True)
    wins = (x == top) | np.isnan(top)
    shares = np.where(
        np.isnan(top), np.nan, np.where(wins, weights[:, None] / np.maximum(wins.sum(1, keepdims=True), 1), 0.0)
    )
    cases = {
        "rows": (x, lambda x: getattr(np, kind)(x, axis=1), shares),
        "columns": (x.T.copy(), lambda x: getattr(np, kind)(x, axis=0), shares.T),
        "rows of a view": (x.T.copy(), lambda x: getattr(np, kind)(x.T, axis=1), shares.T),
        "computed rows": (x, lambda x: getattr(np, kind)(2.0 * x, axis=1) * 0.5, shares),
        "two axes": (x.reshape(5, n, 1), lambda x: getattr(np, kind)(x, axis=(1, 2)), shares.reshape(5, n, 1)),
    }
    for name, (given, reduced, expected) in cases.items():
        f = bt.function(lambda x, reduced=reduced: np.sum(reduced(x) * weights), dtype=dtype)
        np.testing.assert_array_equal(bt.grad(f)(given), expected.astype(dtype), err_msg=name)
        graph = bt.Graph(dtype=dtype)
        own = graph.array(given)
        np.sum(reduced(own) * weights).backward()
        np.testing.assert_array_equal(own.grad, expected.astype(dtype), err_msg=f"eager {name}")
    # Rows without an adjoint pass none on, not even of infinite numbers.
    chosen = bt.grad(bt.function(lambda x: np.sum(np.sqrt(getattr(np, kind)(x, axis=1)[:1])), dtype=dtype))
    assert not np.asarray(chosen(np.abs(x[:3]) + 1))[1:].any()


@pytest.mark.parametrize(
    "use",
    [
        lambda y, e: np.where(e > 0, e, y),
        lambda y, e: e * y,
        lambda y, e: e - y[None] + y * e,
        lambda y, e: np.concatenate([e, e + y])[:, :2] @ np.ones((2, 3)),
        lambda y, e: e @ np.outer(y, y),
        lambda y, e: np.maximum(e, y),
        lambda y, e: np.broadcast_to(y, (0, 3)),
        lambda y, e: y[np.array([], int)],
        lambda y, e: np.stack([y, y])[2:],
        lambda y, e: bt.vmap(lambda row: row * y)(e),
        lambda y, e: bt.scan(lambda c, row: (c + row.sum(), row * y), 0.0, e)[1],
        lambda y, e: np.repeat(y, 0),
        lambda y, e: np.linalg.solve(np.eye(3) + np.outer(y, y), e.T).T,
    ],
)
def test_results_without_elements_pass_nothing_on(use):
    # The derivative of the logarithm is not a number there, and 0 times it would not be either.
    y, e = np.array([-1.0, 2.0, -3.0]), np.ones((0, 3))

    def f(y, e):
        return np.sum(use(np.log(y), e)) + np.sum(y)

    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(bt.grad(f)(y, e), np.ones(3))
        assert bt.jvp(f, (y, e), (np.ones(3), e))[1] == 3.0
        np.testing.assert_array_equal(bt.jvp(bt.grad(f), (y, e), (np.ones(3), e))[1], np.zeros(3))
        graph = bt.Graph()
        own = graph.array(y)
        f(own, graph.array(e)).backward()
        np.testing.assert_array_equal(own.grad, np.ones(3))
