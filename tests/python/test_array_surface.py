"""All operations of an Array, against NumPy: operators, indices, methods, functions, random programs."""

from __future__ import annotations

import itertools
import operator
import random
import runpy
from pathlib import Path

import pytest

import burtorch as bt

np = pytest.importorskip("numpy")

CASES = runpy.run_path(str(Path(__file__).with_name("array_cases.py")))
run, same = CASES["run"], CASES["same"]

X = np.array([[0.3, -1.2, 2.0], [1.5, 0.7, -0.4]])
V = np.array([0.5, -2.0, 1.25])
I = np.array([[2, -1, 5], [0, 3, -4]])  # noqa: E741
SHAPES = [(), (1,), (3,), (2, 3), (2, 1), (1, 3), (0,), (0, 3), (4, 1, 3), (2, 0, 3)]
OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod]
COMPARISONS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]


def check(body, *arrays, tolerance=1e-12):
    """A body gives the same result on Arrays as on NumPy arrays."""
    with np.errstate(all="ignore"):
        expected = body(*arrays)
    found = run(body, *arrays)
    assert same(found, expected, tolerance), (found, expected)


def numbers(shape, seed=0):
    return np.random.default_rng(seed).uniform(-2, 2, shape)


@pytest.mark.parametrize(("a", "b"), list(itertools.product(SHAPES, SHAPES)))
def test_operators_broadcast_as_in_numpy(a, b):
    x, y = numbers(a, 1), numbers(b, 2)
    try:
        np.broadcast_shapes(a, b)
    except ValueError:
        with pytest.raises(ValueError, match=r"shapes"):
            run(operator.add, x, y)
        return
    for op in OPERATORS + COMPARISONS:
        check(op, x, y)
    check(np.maximum, x, y)
    check(np.arctan2, x, y)


@pytest.mark.parametrize("op", OPERATORS + COMPARISONS + [operator.pow])
@pytest.mark.parametrize("other", [2, 2.5, np.float64(1.5), np.float32(0.5), np.abs(X), np.array(3.0), True])
def test_numbers_and_arrays_on_either_side(op, other):
    x = np.abs(X) + 0.5
    check(lambda x: op(x, other), x)
    check(lambda x: op(other, x), x)


@pytest.mark.parametrize("op", OPERATORS[:3] + OPERATORS[4:] + COMPARISONS)
@pytest.mark.parametrize("other", [2, -3, I[::-1] * 2 + 1])
def test_integers_stay_integers(op, other):
    found = run(lambda x: [op(x, other), op(other, x * 2 + 1)], I)
    assert same(found, [op(I, other), op(other, I * 2 + 1)])
    if op not in COMPARISONS:
        assert all(one.dtype == np.int64 for one in found)
    check(lambda x: [x / 2, x * 1.5, x**2, x**3, -x, abs(x), x.sum(0), x.max(), x.prod(1), x.astype(float)], I)


def test_masks():
    check(
        lambda x: [(x > 0) & (x < 1), (x > 0) | (x < -1), (x > 0) ^ (x < 1), ~(x > 0), (x > 0).sum(), (x > 0).mean(0)],
        X,
    )
    check(lambda x: [(x > 0).any(1), (x > 0).all(), (x * 0).any(), x.any(), x.all(axis=0, keepdims=True)], X)
    check(
        lambda x: [(x > 0) & True, np.False_ | (x > 0), (x > 0) ^ np.ones(x.shape, bool), (x > 0) & np.array(True)], X
    )
    check(
        lambda x: [(x > 0) | 2, 1 & (x > 0), (x > 0) & np.ones(3, int), (x > 0) ^ x.astype(int), ~x.astype(int) << 2], X
    )
    for refused in (lambda x: x & x, lambda x: x | 1.5, lambda x: ~x, lambda x: x << 1, lambda x: 1 >> x):
        with pytest.raises(TypeError, match="masks"):
            run(refused, X)


def test_foreign_operands_are_left_to_python():
    for other in ("a", [1.0, 2.0, 3.0], None, object(), 1j, bt.Value(1.0)):
        with pytest.raises(TypeError):
            run(lambda x, other=other: x + other, V)
        with pytest.raises(TypeError):
            run(lambda x, other=other: other * x, V)


INDICES = [
    0,
    -1,
    1,
    np.s_[:],
    np.s_[1:],
    np.s_[::-1],
    np.s_[::-2],
    np.s_[5:2],
    np.s_[-1:0:-1],
    np.s_[..., 0],
    np.s_[0, ...],
    np.s_[None],
    np.s_[:, None, 1],
    np.s_[..., None],
    (0, 1),
    (slice(None), 2),
    np.s_[1, ::2],
    np.s_[0:1, 1:],
    [0, 1, 1],
    [[0], [1]],
    np.array([1, -1, 0]),
    ([0, 1], [2, 0]),
    (slice(None), [0, 2, 2]),
    ([1, 0], slice(None)),
    (np.array([[0], [1]]), np.array([0, 2])),
    ([0, 1], 1),
    (1, [0, 2]),
    (None, [0, 1], 2),
    ([0, 1], None, [2, 1]),
    np.array([True, False]),
    (np.array([True, True]), 0),
    np.array([[True, False, True], [False, True, False]]),
    np.int64(1),
    [],
    (),
    (Ellipsis, [0, 1]),
    ([0], slice(None, None, -1)),
]


@pytest.mark.parametrize("index", INDICES, ids=repr)
def test_indices_are_numpys(index):
    check(lambda x: x[index], X)


@pytest.mark.parametrize(
    "index",
    [
        np.s_[[0, 1], :, [1, 0]],
        np.s_[:, [0, 2], [1, 1]],
        np.s_[1, :, [0, 3]],
        np.s_[:, 0, [1]],
        np.s_[[[0], [1]], :, [2, 3]],
        np.s_[..., [0, 1], 2],
        np.s_[[0, 1], None, 1:, [0, 2]],
    ],
)
def test_indices_of_three_axes_are_numpys(index):
    check(lambda x: x[index], numbers((2, 3, 4)))


@pytest.mark.parametrize(
    "index", [2, -3, (0, 3), (0, 0, 0), "a", 1.0, (Ellipsis, Ellipsis), [2], ([0], [-4]), np.array([0.5])]
)
def test_wrong_indices_are_numpys_errors(index):
    with pytest.raises(IndexError):
        X[index]
    with pytest.raises((IndexError, TypeError)):
        run(lambda x: x[index], X)


def test_integers_of_the_program_are_indices():
    rows, columns = np.array([1, -1, 0]), np.array([2, 0, -3])
    check(lambda x, i: x[i], X, rows)
    check(lambda x, i, j: [x[i, j], x[:, j], x[i][:, 1:], x[i + 0, 1]], X, rows, columns)
    check(lambda x, i: [x[i[0]], x[i[0], 1:], x[0, i[2]]], X, rows)
    check(lambda x, i: np.take(x, i, axis=1), X, columns)
    assert same(run(lambda i: [bt.take(X, i, axis=1), bt.take(X, i)], columns), [X[:, columns], X.take(columns)])
    for wrong in (np.array([2]), np.array([-3])):
        with pytest.raises(IndexError, match="index"):
            run(lambda x, i: x[i], X, wrong)
    with pytest.raises(IndexError, match="index"):
        run(lambda x, i, j: x[i, j], X, np.array([0]), np.array([3]))


def test_a_traced_mask_is_an_index_only_where_the_body_runs_once():
    assert same(run(lambda x: x[x > 0], X), X[X > 0])
    for f in (bt.function(lambda x: x[x > 0]), bt.grad(lambda x: x[x > 0].sum())):
        with pytest.raises(TypeError, match="mask"):
            f(X)


def test_refusals_of_arrays():
    def assign(x):
        x[0] = 1.0

    def out(x):
        np.exp(x, out=np.zeros(3))

    def in_place(x):
        y = x
        y += 1.0
        return [x, y]

    assert same(run(in_place, V), [V, V + 1])
    for wrong in (
        assign,
        out,
        lambda x: np.asarray(x),
        float,
        int,
        lambda x: x.item(),
        len_of_number,
    ):
        with pytest.raises(TypeError):
            run(wrong, V)
    with pytest.raises(bt.TraceError):
        run(lambda x: np.array([x[0], 1.0]), V)
    kept = []
    run(lambda x: kept.append(x) or x, V)
    with pytest.raises(bt.TraceError, match="over"):
        kept[0] + 1.0
    with pytest.raises(TypeError):
        hash(kept[0])


def len_of_number(x):
    return len(x.sum())


def test_attributes_and_iteration():
    seen = []

    def body(x):
        seen.append((x.shape, x.ndim, x.size, x.dtype, len(x), repr(x)))
        return [x.T, x.T.T, *x, sum(row[1] for row in x), x.real, x.copy()]

    assert same(run(body, X), [X.T, X, X[0], X[1], X[:, 1].sum(), X, X])
    assert seen == [((2, 3), 2, 6, np.dtype("float64"), 2, "Array(shape=(2, 3), dtype=float64)")]
    check(lambda x: [x.mT, x.reshape(3, -1).mT], X)
    assert run(lambda x: x.dtype.name, X.astype("float32")) == "float32"
    with pytest.raises(TypeError, match="0-d"):
        run(lambda x: list(x), 1.0)


AXES = [None, 0, 1, -1, (0, 1), (-1,), ()]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", ["sum", "prod", "mean", "max", "min", "var", "std", "any", "all"])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions(name, keepdims):
    for axis in AXES:
        check(lambda x: getattr(x, name)(axis=axis, keepdims=keepdims), X)
        check(lambda x: getattr(np, name)(x, axis, keepdims=keepdims), X)
    for shape in [(0,), (0, 3), (3, 0)]:
        for axis in (None, 0, -1):
            try:
                getattr(np.zeros(shape), name)(axis=axis)
            except ValueError:
                with pytest.raises(ValueError, match="no values"):
                    run(lambda x: getattr(x, name)(axis=axis), np.zeros(shape))
            else:
                check(lambda x: getattr(x, name)(axis=axis), np.zeros(shape))
    for wrong in (2, -3, (0, 0)):
        with pytest.raises(ValueError):
            run(lambda x: getattr(x, name)(axis=wrong), X)


def test_reductions_keep_nan():
    x = np.array([[1.0, np.nan, 3.0], [np.inf, -np.inf, 0.0]])
    for name in ("sum", "max", "min", "argmax", "argmin", "mean"):
        check(lambda x: getattr(x, name)(axis=1), x)


def test_methods():
    check(lambda x: [x.var(ddof=1), x.std(0, ddof=1), x.argmax(), x.argmin(1), x.argmax(0, keepdims=True)], X)
    check(lambda x: [x.cumsum(), x.cumsum(1), x.cumprod(0), x.cumprod(), x.ravel(), x.flatten(), x.T.ravel()], X)
    check(
        lambda x: [x.reshape(3, 2), x.reshape((6,)), x.reshape(-1, 1), x.reshape(-1), x.transpose(1, 0), x.transpose()],
        X,
    )
    check(
        lambda x: [x.transpose(None), x.transpose((1, 0)), x.swapaxes(0, -1), x[None].squeeze(), x[None].squeeze(0)], X
    )
    check(
        lambda x: [
            x.clip(-0.5, 1),
            x.clip(max=0),
            x.clip(0.1),
            x.round(),
            x.astype(int),
            x.astype(bool),
            x.astype("i8"),
        ],
        X,
    )
    check(lambda x: [x.take([0, 2]), x.take([[1, 0]], axis=1), x.take(2), x.diagonal(), x.diagonal(1), x.trace(-1)], X)
    check(lambda x: [x.dot(V), x.dot(x.T), x.dot(2.0), V @ x.T, x @ V, x @ x.T], X)
    for wrong in (
        lambda x: x.reshape(4),
        lambda x: x.reshape(-1, -1),
        lambda x: x.reshape(4, -1),
        lambda x: x.squeeze(0),
        lambda x: x.transpose(0, 0),
        lambda x: x @ x,
        lambda x: x.swapaxes(0, 2),
    ):
        with pytest.raises(ValueError):
            wrong(X)
        with pytest.raises(ValueError):
            run(wrong, X)
    for wrong in (lambda x: x.sum(out=X), lambda x: x.mean(dtype="float32"), lambda x: x.astype("float32")):
        with pytest.raises(TypeError):
            run(wrong, X)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3,), (3,)),
        ((2, 3), (3,)),
        ((3,), (3, 4)),
        ((2, 3), (3, 4)),
        ((5, 2, 3), (3, 4)),
        ((5, 2, 3), (5, 3, 4)),
        ((2, 3), (5, 3, 4)),
        ((1, 2, 3), (4, 3, 2)),
        ((3,), (5, 3, 4)),
        ((0, 3), (3, 2)),
        ((2, 0), (0, 3)),
        ((4, 1, 2, 3), (5, 3, 2)),
    ],
)
def test_products_of_matrices(a, b):
    x, y = numbers(a, 3), numbers(b, 4)
    check(operator.matmul, x, y)
    check(np.matmul, x, y)
    check(lambda x: x @ y, x)
    check(lambda y: x @ y, y)
    try:
        np.dot(x, y)
    except ValueError:
        return
    check(np.dot, x, y)


def test_products():
    x, y = numbers((2, 3, 4)), numbers((4, 3, 5), 1)
    check(lambda x, y: [np.tensordot(x, y, 1), np.tensordot(x, y, ([1, 2], [1, 0])), np.tensordot(x, y, (2, 0))], x, y)
    check(lambda x, y: [np.einsum("ijk,kjl->il", x, y), np.einsum("ijk,kjl", x, y), np.einsum("ijk->", x)], x, y)
    check(
        lambda x, y: [np.einsum("...k,k...->...", x[0], y[..., 0]), np.einsum("ijk->kji", x), np.outer(x, y[0])], x, y
    )
    check(
        lambda x: [np.einsum("ii", x), np.einsum("ii->i", x), np.einsum("ij,j->i", x, V), np.kron(x, X)],
        numbers((3, 3)),
    )
    check(
        lambda x, y: [
            np.einsum(x, [0, 1, 2], y, [2, 1, 3], [3, 0]), np.einsum(x, [30, 1, 2], y, [2, 1, 3]),
            np.einsum(x[0], [..., 0], y[..., 0], [0, ...], [...]), np.einsum(x, (0, 1, 2), np.array([2])),
            np.einsum("ijk,kjl,il", x, y, x[:, 0, :1] * y[0, 0], optimize=True),
            np.einsum("ijk->", x, optimize="greedy"),
            bt.einsum(x[0], [0, 1], y[:, :, 0], [1, 2], optimize=["einsum_path", (0, 1)]),
        ],
        x, y,
    )  # fmt: skip
    check(lambda x: [np.inner(x, x), np.vdot(x, x), np.cross(x, V), np.outer(x, V), np.dot(V, x.T)], X)


def test_axes_of_products_are_lists_of_numbers():
    for error, text, operands in (
        (TypeError, "a list of axes after each operand", lambda x: (x, x)),
        (TypeError, "a list of axes after each operand", lambda x: (x,)),
        (ValueError, "axes of einsum are numbers from 0 to 51", lambda x: (x, [0, 52])),
        (TypeError, "integer", lambda x: (x, [0, 0.5])),
    ):
        with pytest.raises(error, match=text):
            bt.function(lambda x, operands=operands: np.einsum(*operands(x)))(np.ones((2, 2)))


def test_shapes():
    check(lambda x: [np.concatenate([x, X]), np.concatenate([x, x], 1), np.concatenate([x, V[None]], axis=0)], X)
    check(
        lambda x: [np.stack([x, X]), np.stack([x, x], -1), np.vstack([x, V]), np.hstack([x, x]), np.hstack([x[0], V])],
        X,
    )
    check(lambda x: [np.split(x, 3, 1), np.split(x, [1], 0), np.array_split(x, 2, axis=1), np.hsplit(x, 3)], X)
    check(
        lambda x: [
            np.flip(x),
            np.flip(x, 0),
            np.roll(x, 2),
            np.roll(x, -1, 1),
            np.roll(x, (1, 2), (0, 1)),
            np.flipud(x),
        ],
        X,
    )
    check(
        lambda x: [np.tile(x, 2), np.tile(x, (2, 1, 3)), np.repeat(x, 2), np.repeat(x, [1, 0, 2], axis=1), np.rot90(x)],
        X,
    )
    check(lambda x: [np.expand_dims(x, 0), np.expand_dims(x, (0, -1)), np.moveaxis(x, 0, -1), np.swapaxes(x, 0, 1)], X)
    check(lambda x: [np.tril(x), np.triu(x, 1), np.tril(x, -1), np.diag(x), np.diag(x[0]), np.diag(x[0], -1)], X)
    check(
        lambda x: [np.trace(x), np.diagonal(x, 1), np.broadcast_to(x, (4, 2, 3)), np.ravel(x), np.atleast_2d(x[0])], X
    )
    check(
        lambda x: [np.pad(x, 1), np.pad(x, ((0, 1), (2, 0)), constant_values=3.0), np.append(x, V), np.squeeze(x[:1])],
        X,
    )
    check(lambda x: [np.where(x > 0, x, 0.0), np.where(x > 0, 1.0, x), np.where(X > 0, x, -x), np.clip(x, -1, 1)], X)
    check(lambda x: [np.take_along_axis(x, np.argmax(x, 1, keepdims=True), 1), np.take(x, [0, -1], 1)], X)
    check(
        lambda x: [np.zeros_like(x), np.ones_like(x), np.full_like(x, 2.0), np.shape(x), np.ndim(x), np.size(x, 1)], X
    )


def test_norms():
    for ord in (None, 1, 2, 3.5, np.inf, -np.inf, 0):
        check(lambda x: [np.linalg.norm(x[0], ord), np.linalg.norm(x, ord, axis=1), np.linalg.norm(x, ord, 0, True)], X)
    for ord in (None, "fro", 1, -1, np.inf, -np.inf):
        check(lambda x: [np.linalg.norm(x, ord), np.linalg.norm(x, ord, (1, 0), True)], X)
    with pytest.raises(TypeError, match="norm"):
        run(lambda x: np.linalg.norm(x, 2), X)


@pytest.mark.parametrize("x", [np.array([3.0, 4.0, 0.0]), np.array([-2.0])], ids=len)
def test_norms_of_one_axis_however_their_order_is_given(x):
    for ord in (None, 0, 1, -1, 2, -2, 3.5, np.inf, -np.inf, 0.0, False, True):
        for call in (
            lambda v, ord=ord: np.linalg.norm(v, ord),
            lambda v, ord=ord: np.linalg.norm(v, ord=ord),
            lambda v, ord=ord: np.linalg.norm(v, ord, 0),
            lambda v, ord=ord: np.linalg.norm(v, ord, axis=-1),
        ):
            with np.errstate(divide="ignore"):
                expected = call(x)
            assert same(bt.function(call)(x), expected)
            assert same(bt.vmap(call)(x[None]), expected[None])
            assert same(call(bt.array(x)).data, expected)
            assert same(call(bt.Vector(x)).data, expected)


def test_functions_of_burtorch_take_arrays():
    check(lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True), X)
    soft = np.exp(X) / np.exp(X).sum(-1, keepdims=True)
    assert same(
        run(lambda x: [bt.softmax(x), bt.log_softmax(x), bt.softmax(x.T, axis=0).T], X), [soft, np.log(soft), soft]
    )
    assert same(bt.softmax(X), soft)
    total = np.log(np.exp(X).sum(1))
    found = run(
        lambda x: [bt.logsumexp(x, axis=1), bt.max(x, axis=0), bt.max(x), bt.max(x, 0.0), bt.mean(x, axis=-1)], X
    )
    assert same(found, [total, X.max(0), X.max(), np.maximum(X, 0), X.mean(-1)])
    assert same([bt.logsumexp(X, axis=1), bt.min(X, axis=0, keepdims=True)], [total, X.min(0, keepdims=True)])
    found = run(
        lambda x: [bt.sin(x), bt.mul(x, 2.0), bt.leaky_relu(x, 0.1), bt.variance(x), bt.norm2(x), bt.relu(x)], X
    )
    leaky = np.where(X > 0, X, 0.1 * X)
    assert same(found, [np.sin(X), X * 2, leaky, X.var(ddof=1), np.linalg.norm(X), np.maximum(X, 0)])
    assert same(
        run(lambda x: [bt.where(x > 0, x, 0), bt.clamp(x, -1, 1), bt.concat(x, x), bt.stack(x, x)], V),
        [np.where(V > 0, V, 0), V.clip(-1, 1), np.r_[V, V], np.stack([V, V])],
    )
    assert same(run(lambda x: [bt.inner_product(x, V), bt.inner_product_with_bias(x, x, 2.0)], V), [V @ V, V @ V + 2])
    assert same(
        run(lambda x: [bt.layer_norm(x), bt.reduce_mean_and_mean_squares(x)], V),
        [(V - V.mean()) / np.sqrt(V.var() + 1e-5), [V.mean(), (V * V).mean()]],
    )
    with pytest.raises(TypeError):
        run(lambda x: bt.add(x, bt.Value(1.0)), V)
    with pytest.raises(TypeError, match="keyword"):
        run(lambda x: bt.max(x, axes=0), V)


def test_functions_of_burtorch_are_numpys_for_plain_arrays():
    assert same(
        [bt.sum(X, axis=0), bt.concatenate([X, X]), bt.einsum("ij,ij->j", X, X)],
        [X.sum(0), np.r_[X, X], (X * X).sum(0)],
    )
    assert type(bt.sum(X, axis=0)) is np.ndarray
    assert same(
        [bt.norm(X), bt.layer_norm(X)[0]], [np.linalg.norm(X), (X[0] - X[0].mean()) / np.sqrt(X[0].var() + 1e-5)]
    )
    q, k, v = (numbers((3, 4), seed) for seed in range(3))
    scores = np.where(np.tri(3, dtype=bool), q @ k.T / 2, -np.inf)
    shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    assert same(bt.attention(q, k, v, np.tri(3, dtype=bool)), shares @ v)


def test_equal_numbers_have_a_variance_of_exactly_0():
    assert run(lambda x: x.var(), np.full(3, 0.1)) == 0.0
    assert same(run(lambda x: x.var(), np.array([1e8, 1e8 + 1, 1e8 + 2])), 2 / 3)


UNARY = [
    np.exp,
    np.tanh,
    np.sin,
    np.abs,
    np.square,
    np.negative,
    np.sqrt,
    np.log1p,
    np.floor,
    np.sign,
    lambda x: x**3,
    lambda x: x.T,
    lambda x: x.ravel(),
    lambda x: np.cumsum(x, -1) if x.ndim else x,
    lambda x: np.flip(x),
]
BINARY = [
    np.add,
    np.multiply,
    np.subtract,
    np.maximum,
    np.minimum,
    np.hypot,
    np.true_divide,
    lambda x, y: np.where(x > y, x, y),
]


def program(seed):
    """A random body of two arrays, and its arguments."""
    dice = random.Random(seed)
    shapes = [dice.choice(SHAPES), dice.choice(SHAPES)]

    def body(*values):
        again = random.Random(seed)
        values = list(values)
        for _ in range(again.randrange(1, 9)):
            x, y, kind = again.choice(values), again.choice(values), again.randrange(8)
            axis = again.choice([None, *range(-x.ndim, x.ndim)])
            f = again.choice(UNARY)
            g = again.choice(BINARY)
            h = again.choice([np.sum, np.prod, np.mean, np.max, np.min, np.var])
            keep, at, step = again.random() < 0.5, again.randrange(-3, 3), again.choice([1, 2, -1, -2])
            try:
                np.broadcast_shapes(x.shape, y.shape)
                is_pair = True
            except ValueError:
                is_pair = False
            if kind < 2:
                values.append(f(x))
            elif kind < 4 and is_pair:
                values.append(g(x, y))
            elif kind == 4 and x.size:
                values.append(h(x, axis=axis, keepdims=keep))
            elif kind == 5 and x.ndim:
                values.append(x[at::step])
            elif kind == 6 and x.ndim and x.shape[0]:
                values.append(x[np.array([0, -1, 0])] if keep else x[at % x.shape[0]])
            elif kind == 7 and x.ndim and y.ndim and x.shape[1:] == y.shape[1:]:
                values.append(np.concatenate([x, y]))
            values[-1] = values[-1] * 0.5
        return values[2:] or values

    return body, [numbers(shape, seed + k) for k, shape in enumerate(shapes)]


@pytest.mark.parametrize("block", range(20))
def test_random_programs_are_numpys(block):
    for seed in range(block * 25, block * 25 + 25):
        body, arguments = program(seed)
        with np.errstate(all="ignore"):
            expected = body(*arguments)
        found = run(body, *arguments)
        assert same(found, expected, 1e-9), (seed, found, expected)


def test_arrays_of_float32_stay_so():
    x = X.astype("float32")
    found = run(lambda x: np.exp(x) @ x.T + 1.0, x)
    assert found.dtype == np.float32
    assert same(found, np.exp(x) @ x.T + 1, 1e-5)


def test_the_class_is_public():
    assert bt.Array is bt._core.Array
    with pytest.raises(TypeError):
        bt.Array()


def test_sums_and_products_of_values_stay_values():
    x = bt.Value(3.0)
    y = bt.sum([x, 2.0, x * x]) * bt.prod([x, x])
    y.backward()
    assert (y.data, x.grad) == (126.0, 6 * 14 + 9 * 7)


def test_cross_entropy_takes_known_logits_and_plain_arrays():
    rows, classes = numbers((3, 4), 3), np.array([2, 0, 3])
    expected = -(rows - np.log(np.exp(rows).sum(1, keepdims=True)))[[0, 1, 2], classes]
    np.testing.assert_allclose(bt.softmax_cross_entropy(rows, classes), expected, rtol=1e-12)
    np.testing.assert_allclose(bt.softmax_cross_entropy(rows[0], 2), expected[0], rtol=1e-12)
    traced = bt.function(lambda k: bt.softmax_cross_entropy(rows, k))
    np.testing.assert_allclose(traced(classes), expected, rtol=1e-12)
    alone = bt.function(lambda k, x: bt.softmax_cross_entropy(rows[0], k) * x)
    np.testing.assert_allclose(alone(np.int64(2), np.ones(2)), [expected[0]] * 2, rtol=1e-12)
    with pytest.raises(TypeError, match="takes a Vector, an Array or a NumPy array as logits, found str"):
        bt.softmax_cross_entropy("logits", 1)


def test_layers_take_arrays():
    w, b = numbers((4, 3), 7), numbers((4,), 8)
    table, rows = numbers((5, 3), 9), np.array([4, 0, 1])

    def body(x, w, b, table, rows):
        y = bt.affine(w, x, b, "tanh")
        loss = bt.softmax_cross_entropy(y, np.array([3, 0]))
        norm = bt.rms_norm(x, table[0])
        return [
            y,
            bt.affine(w, x[0]),
            loss,
            bt.softmax_cross_entropy(y[0], 2),
            norm,
            bt.gather(table, rows),
            bt.gather(table, 1),
        ]

    y = np.tanh(X @ w.T + b)
    log_shares = y - np.log(np.exp(y).sum(1, keepdims=True))
    share = X / np.sqrt((X * X).mean(1, keepdims=True) + 1e-5)
    expected = [y, w @ X[0], -log_shares[[0, 1], [3, 0]], -log_shares[0, 2], share * table[0], table[rows], table[1]]
    assert same(run(body, X, w, b, table, rows), expected)


def test_parameters_are_read_in_bodies():
    params = bt.Parameters(dtype="float64", seed=0)
    w, b = params.tensor((4, 3), name="w", init="glorot"), params.tensor((4,), name="b", init=0.5)
    flat = np.array(params.values)
    matrix, bias = flat[:12].reshape(4, 3), flat[12:]
    f = bt.function(lambda x: np.sum(np.tanh(x @ bt.transpose(w) + b) * bt.reshape(w, (4, 3)).sum()))
    assert same(f(X), np.sum(np.tanh(X @ matrix.T + bias)) * matrix.sum())
    params.values[0] = 3.0
    matrix[0, 0] = 3.0
    assert same(f(X), np.sum(np.tanh(X @ matrix.T + bias)) * matrix.sum())
    x = np.arange(12.0).reshape(4, 3)

    def body(x):
        total = w[1:] * w[0] + np.tanh(b)[:3, None] - bt.exp(w)[::2].sum() + w[:, 0].sum() ** 2
        return [bt.concatenate([w, x * w]), np.exp(b * x[0, 0]), w @ x.T, w - x, bt.outer(b, b), total, w**2]

    total = matrix[1:] * matrix[0] + np.tanh(bias)[:3, None] - np.exp(matrix)[::2].sum() + matrix[:, 0].sum() ** 2
    g = bt.function(body)
    products = [np.r_[matrix, x * matrix], np.exp(bias * x[0, 0]), matrix @ x.T, matrix - x, np.outer(bias, bias)]
    products += [total, matrix**2]
    assert same(g(x), products)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_layers_of_plain_arrays_have_the_numbers_of_traced_ones(dtype):
    table, rows = numbers((5, 3)).astype(dtype), np.array([[4, 0], [1, 1]])
    w, b, x = numbers((2, 3), 1).astype(dtype), numbers(2, 2).astype(dtype), numbers((4, 3), 3).astype(dtype)
    cases = [
        (bt.gather, (table, rows)),
        (bt.affine, (w, x)),
        (bt.affine, (w, x[0], b)),
        (lambda w, x, b: bt.affine(w, x, b, "tanh"), (w, x, b)),
        (bt.rms_norm, (x, table[0])),
    ]
    for f, arguments in cases:
        found, expected = f(*arguments), bt.function(f, dtype=dtype)(*arguments)
        assert found.dtype == dtype
        assert np.array_equal(found, expected)
    for wrong, error in (
        (lambda: bt.gather(table, np.array([5])), IndexError),
        (lambda: bt.affine(w, np.ones(4)), ValueError),
        (lambda: bt.rms_norm(x, np.ones(2)), ValueError),
    ):
        with pytest.raises(error):
            wrong()
