"""Totals over rows: `vmap` with `reduce`, against NumPy and against separate rows."""

from __future__ import annotations

import random
import sys

import pytest

import burtorch as bt

np = pytest.importorskip("numpy")

SIZES = [0, 1, 2, 31, 256, 1025, 3000]


def logistic(w, x, y):
    return bt.softplus(-y * (x @ w))


def numpy_logistic(w, rows, y):
    z = -y * (rows @ w)
    return np.logaddexp(0, z).sum(), rows.T @ (-y / (1 + np.exp(-z)))


def data(n, d=7, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal(d), rng.standard_normal((n, d)), np.sign(rng.standard_normal(n))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_totals_and_their_gradients_are_those_of_numpy(n, reduce):
    w, rows, y = data(n)
    total = bt.vmap(logistic, in_axes=(None, 0, 0), reduce=reduce)
    inside = bt.vmap(bt.value_and_grad(logistic), in_axes=(None, 0, 0), reduce=reduce)
    if n == 0 and reduce == "mean":
        with pytest.raises(ValueError, match="rows"):
            total(w, rows, y)
        return
    value, gradient = numpy_logistic(w, rows, y)
    share = max(n, 1) if reduce == "mean" else 1
    for found in (bt.value_and_grad(total)(w, rows, y), inside(w, rows, y)):
        assert found[0] == pytest.approx(value / share, rel=1e-13)
        assert found[1] == pytest.approx(gradient / share, rel=1e-11, abs=1e-13)
    assert total(w, rows, y) == pytest.approx(value / share, rel=1e-13)


@pytest.mark.parametrize("n", [1, 5, 700])
def test_gradients_by_rows_stay_with_their_rows(n):
    w, rows, y = data(n)
    total = bt.vmap(logistic, in_axes=(None, 0, 0), reduce="sum")
    by_rows = bt.grad(total, argnums=1)(w, rows, y)
    assert np.array_equal(by_rows, bt.vmap(bt.grad(logistic, argnums=1), in_axes=(None, 0, 0))(w, rows, y))


def test_axes_of_rows_may_be_any():
    w, rows, y = data(300)
    total = bt.value_and_grad(bt.vmap(logistic, in_axes=(None, 1, -1), reduce="mean"))
    value, gradient = total(w, np.asfortranarray(rows.T), y)
    expected = bt.value_and_grad(bt.vmap(logistic, in_axes=(None, 0, 0), reduce="mean"))(w, rows, y)
    assert value == expected[0]
    assert np.array_equal(gradient, expected[1])


def network(p, x, y):
    h = np.tanh(p["a"] @ x + p["b"])
    return ((p["c"] @ h - y) ** 2).sum() + 0.01 * (p["a"] ** 2).sum()


def table_loss(p, i, y):
    return ((p["table"][i].sum(axis=0) - y) ** 2).sum() + bt.max(p["b"] * y)


def case(name, n):
    rng = np.random.default_rng(1)
    if name == "network":
        p = {k: rng.standard_normal(s) for k, s in (("a", (5, 4)), ("b", 5), ("c", (3, 5)))}
        return network, p, rng.standard_normal((n, 4)), rng.standard_normal((n, 3))
    p = {"table": rng.standard_normal((6, 3)), "b": rng.standard_normal(3)}
    return table_loss, p, rng.integers(0, 6, (n, 2)), rng.standard_normal((n, 3))


@pytest.mark.parametrize("name", ["network", "table"])
@pytest.mark.parametrize("n", [1, 3, 77, 600])
def test_totals_are_sums_over_rows_one_by_one(name, n):
    f, p, rows, targets = case(name, n)
    one = bt.value_and_grad(f)
    each = [one(p, x, y) for x, y in zip(rows, targets)]
    for total in (
        bt.value_and_grad(bt.vmap(f, in_axes=(None, 0, 0), reduce="sum")),
        bt.vmap(one, in_axes=(None, 0, 0), reduce="sum"),
    ):
        value, gradient = total(p, rows, targets)
        assert value == pytest.approx(sum(v for v, _ in each), rel=1e-12)
        for key, found in gradient.items():
            assert found == pytest.approx(sum(g[key] for _, g in each), rel=1e-10, abs=1e-10)


def test_totals_have_derivatives_of_any_order():
    w, rows, y = data(90, d=3)
    total = bt.vmap(logistic, in_axes=(None, 0, 0), reduce="sum")
    s = 1 / (1 + np.exp(-rows @ w))
    expected = (rows.T * (s * (1 - s))) @ rows
    assert bt.hessian(total)(w, rows, y) == pytest.approx(expected, rel=1e-9)
    v = np.array([1.0, -2.0, 0.5])
    assert bt.hvp(lambda w: total(w, rows, y))(w, v) == pytest.approx(expected @ v, rel=1e-9)
    assert bt.jacobian(bt.grad(total))(w, rows, y) == pytest.approx(expected, rel=1e-9)
    _value, change = bt.jvp(lambda w: total(w, rows, y))(w, v)
    assert change == pytest.approx(numpy_logistic(w, rows, y)[1] @ v, rel=1e-10)
    many = bt.vmap(lambda w: total(w, rows, y))(np.stack([w, 2 * w]))
    assert many == pytest.approx([total(w, rows, y), total(2 * w, rows, y)], rel=1e-12)


def test_totals_in_loops_and_of_loops():
    _, rows, _ = data(40, d=3)
    chain = bt.vmap(
        lambda w, x: bt.scan(lambda h, u: (bt.tanh(w * h + u), None), 0.0, x)[0], in_axes=(None, 0), reduce="sum"
    )
    expected = sum(
        bt.grad(lambda w, x: bt.scan(lambda h, u: (bt.tanh(w * h + u), None), 0.0, x)[0])(0.7, x) for x in rows
    )
    assert bt.grad(chain)(0.7, rows) == pytest.approx(expected, rel=1e-11)

    def descend(w):
        return bt.fori_loop(0, 4, lambda i, w: w - 0.1 * bt.grad(chain)(w, rows), w)

    w = 0.7
    for _ in range(4):
        w -= 0.1 * bt.grad(chain)(w, rows)
    assert bt.function(descend)(0.7) == pytest.approx(w, rel=1e-12)


def test_memory_does_not_grow_with_the_rows():
    n = 50_000
    f = bt.value_and_grad(bt.vmap(logistic, in_axes=(None, 0, 0), reduce="mean"))
    f(*data(n))
    assert f.stats()["bytes"] < 8 * n


def test_results_without_rows_integers_and_masks():
    x = np.arange(10.0)
    assert bt.vmap(lambda x, c: c * 2.0, in_axes=(0, None), reduce="sum")(x, 3.0) == 60.0
    assert bt.vmap(lambda x: x > 4.0, reduce="sum")(x) == 5.0
    assert bt.vmap(lambda i: i * 2, reduce="sum")(np.arange(4)) == 12
    assert bt.vmap(lambda i: i * 2, reduce="mean")(np.arange(4)) == 3.0
    assert bt.vmap(lambda x: {"a": x, "b": [x * x]}, reduce="mean")(x) == {"a": 4.5, "b": [28.5]}


def test_an_unselected_element_spreads_no_infinity():
    root = bt.vmap(lambda w, i: np.sqrt(w)[i], in_axes=(None, 0), reduce="sum")
    assert list(bt.grad(root)(np.array([0.0, 4.0, 9.0]), np.array([1, 1]))) == [0.0, 0.5, 0.0]


@pytest.mark.parametrize(
    ("make", "arguments", "error", "text"),
    [
        ({"reduce": "sums"}, (), ValueError, "reduce must be"),
        ({"reduce": 3}, (), TypeError, "reduce"),
        ({"reduce": "sum", "out_axes": 0}, (), ValueError, "out_axes"),
        ({"reduce": "sum", "in_axes": (None, 5)}, (1.0, np.ones(3)), ValueError, "axis"),
        ({"reduce": "sum", "in_axes": (None, None)}, (1.0, np.ones(3)), ValueError, "in_axes"),
        ({"reduce": "sum", "in_axes": (0, 0)}, (np.ones(2), np.ones(3)), ValueError, "as long as"),
        ({"reduce": "sum", "in_axes": (0,)}, (np.ones(3), np.ones(3)), ValueError, "in_axes"),
    ],
)
def test_a_mistake_is_one_error(make, arguments, error, text):
    with pytest.raises(error, match=text):
        bt.vmap(lambda w, x: w * x, **make)(*arguments)


def oracle_of(f, dtype="float64", **options):
    params = bt.Parameters(dtype=dtype, seed=4)
    w = params.tensor(7, init="normal")

    def model(x, y):
        return f(w, x, y)

    return bt.Oracle(model, params=params, **options), model, np.array(params.values, dtype="float64")


class Calls:
    """Counts calls to a function; the function must not see the counter."""

    def __init__(self, function):
        self.code, self.n = function.__code__, 0

    def __enter__(self):
        sys.setprofile(self.note)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)

    def note(self, frame, event, _):
        self.n += event == "call" and frame.f_code is self.code


@pytest.mark.parametrize("n", [1, 2, 31, 1025])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_oracle_of_a_callable_calls_it_once_for_each_shape(n, reduction, dtype):
    oracle, model, w = oracle_of(logistic, dtype, reduction=reduction)
    _, rows, y = data(n)
    value, gradient = numpy_logistic(w, rows, y)
    share = n if reduction == "mean" else 1
    tolerance = 1e-4 if dtype == "float32" else 1e-11
    loss, found = oracle(rows, y)
    assert loss == pytest.approx(value / share, rel=tolerance)
    assert np.array(found) == pytest.approx(gradient / share, rel=tolerance, abs=tolerance * n)
    with Calls(model) as calls:
        for factor in (2, 3):
            oracle(rows * factor, y)
    assert calls.n == 0
    assert oracle.loss(rows, y) == pytest.approx(value / share, rel=tolerance)
    assert sum(oracle.losses(rows, y)) == pytest.approx(value, rel=tolerance)
    lanes = oracle_of(logistic, dtype, reduction=reduction, lanes=4)[0]
    assert list(oracle(rows, y)[1]) == pytest.approx(list(lanes(rows, y)[1]), rel=tolerance, abs=tolerance * n)


@pytest.mark.parametrize("lanes", ["auto", 4])
def test_targets_are_optional(lanes):
    params = bt.Parameters(dtype="float64", seed=4)
    w = params.tensor(7, init="normal")
    oracle = bt.Oracle(lambda x: bt.softplus(bt.inner_product(x, w)), params=params, lanes=lanes)
    _, rows, _ = data(21)
    value, gradient = numpy_logistic(np.array(params.values), rows, -np.ones(21))
    loss, found = oracle(rows)
    assert loss == pytest.approx(value / 21, rel=1e-12)
    assert np.array(found) == pytest.approx(gradient / 21, rel=1e-10)
    assert list(oracle.grad(rows.tolist())) == pytest.approx(list(found), rel=1e-12)
    assert oracle.loss(rows) == pytest.approx(loss, rel=1e-12)
    assert sum(oracle.losses(rows)) == pytest.approx(value, rel=1e-12)
    assert np.array(oracle.per_sample_grads(rows)).sum(axis=0) == pytest.approx(gradient, rel=1e-10)
    with pytest.raises(TypeError):
        oracle(rows, np.ones(21))
    with pytest.raises(TypeError):
        bt.Oracle(bt.nn.Linear(params, 7, 1))(rows)


def test_an_oracle_notices_changes():
    factor = [1.0]
    oracle, _, _ = oracle_of(lambda w, x, y: (x @ w) * factor[0])
    _, rows, y = data(40)
    before = oracle.loss(rows, y)
    factor[0] = 2.0
    assert oracle.loss(rows, y) == pytest.approx(2 * before, rel=1e-14)
    oracle.params.values[:] = [3.0 * v for v in oracle.params.values]
    assert oracle.loss(rows, y) == pytest.approx(6 * before, rel=1e-14)


def test_an_untraceable_model_runs_sample_by_sample():
    def by_vectors(w, x, y):
        return sum(x.data) * y

    oracle, _calls, _ = oracle_of(by_vectors)
    _, rows, y = data(8)
    with pytest.raises(Exception) as found:
        oracle(rows, y)
    assert found.type.__name__ in ("AttributeError", "TypeError", "ValueError")
    oracle, model, _ = oracle_of(lambda w, x, y: (x @ w) * random.random())
    assert oracle.loss(rows, y) != oracle.loss(rows, y)
    with Calls(model) as called:
        oracle.loss(rows, y)
    assert called.n > 0


@pytest.mark.parametrize("kind", ["lists", "fortran", "strided", "float32", "map", "integers"])
def test_batches_of_every_kind_are_read(kind, tmp_path):
    oracle, _, w = oracle_of(logistic)
    _, rows, y = data(50)
    if kind == "integers":
        y = (y > 0).astype("float64")
    given = {
        "lists": lambda: (rows.tolist(), y.tolist()),
        "fortran": lambda: (np.asfortranarray(rows), y),
        "strided": lambda: (np.repeat(rows, 2, axis=0)[::2], np.repeat(y, 2)[::2]),
        "float32": lambda: (rows.astype("float32"), y.astype("float32")),
        "integers": lambda: (rows, y.astype("int64")),
    }
    if kind == "map":
        rows.tofile(tmp_path / "x")
        batch = np.memmap(tmp_path / "x", dtype="float64", mode="r", shape=rows.shape), y
    else:
        batch = given[kind]()
    value, gradient = numpy_logistic(w, rows, y)
    loss, found = oracle(*batch)
    assert loss == pytest.approx(value / 50, rel=1e-6)
    assert np.array(found) == pytest.approx(gradient / 50, rel=1e-5, abs=1e-6)
    for bad in [(rows[:0], y[:0]), (rows, y[:-1]), (rows[None], y), ([["a"]], [1.0])]:
        with pytest.raises((ValueError, TypeError)):
            oracle(*bad)


class SparseRows:
    """Rows with the attributes of SciPy's sparse arrays."""

    format = "csr"

    def __init__(self, dense, places="int32"):
        rows, columns = np.nonzero(dense)
        self.data, self.indices = dense[rows, columns], columns.astype(places)
        self.indptr = np.searchsorted(rows, np.arange(len(dense) + 1)).astype(places)
        self.shape, self.dtype = dense.shape, dense.dtype


def sparse(n, d=9, seed=3):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.4)
    return rng.standard_normal(d), rows, np.sign(rng.standard_normal(n))


@pytest.mark.parametrize("n", [0, 1, 40, 3000])
@pytest.mark.parametrize("places", ["int32", "int64", "int16"])
def test_sparse_rows_are_the_dense_ones(n, places):
    w, dense, y = sparse(n)
    rows = SparseRows(dense, places if n < 1000 else "int32")
    total = bt.vmap(logistic, in_axes=(None, 0, 0), reduce="sum")
    inside = bt.vmap(bt.value_and_grad(logistic), in_axes=(None, 0, 0), reduce="sum")
    expected = bt.value_and_grad(total)(w, dense, y)
    for found in (bt.value_and_grad(total)(w, rows, y), inside(w, rows, y)):
        assert found[0] == pytest.approx(expected[0], rel=1e-13)
        assert found[1] == pytest.approx(expected[1], rel=1e-11, abs=1e-12)
    assert bt.hessian(total)(w, rows, y) == pytest.approx(bt.hessian(total)(w, dense, y), rel=1e-10, abs=1e-12)
    if n:
        assert bt.vmap(logistic, in_axes=(None, 0, 0))(w, rows, y) == pytest.approx(
            np.logaddexp(0, -y * (dense @ w)), rel=1e-13
        )
        params = bt.Parameters(dtype="float64")
        v = params.tensor(9)
        v.values[:] = w
        oracle = bt.Oracle(lambda x, label: bt.softplus(-label * (x @ v)), params=params)
        loss, gradient = oracle(rows, y)
        assert loss == pytest.approx(expected[0] / n, rel=1e-13)
        assert np.array(gradient) == pytest.approx(expected[1] / n, rel=1e-11, abs=1e-12)
        assert oracle.losses(rows, y) == pytest.approx(np.logaddexp(0, -y * (dense @ w)), rel=1e-13)


def test_sparse_rows_multiply_vectors_and_matrices_from_both_sides():
    w, dense, y = sparse(30)
    rows, m, left = SparseRows(dense), np.outer(w, [1.0, -2.0]), np.stack([y, 2 * y])
    f = bt.function(lambda rows, w, m, y, left: (rows @ w, rows @ m, y @ rows, left @ rows))
    for found, expected in zip(f(rows, w, m, y, left), (dense @ w, dense @ m, y @ dense, left @ dense)):
        assert found == pytest.approx(expected, rel=1e-12)
    both = bt.jacobian(lambda w, rows: rows @ w)(w, rows)
    assert both == pytest.approx(dense)
    assert bt.grad(lambda m, rows: ((rows @ m) ** 2).sum())(m, rows) == pytest.approx(2 * dense.T @ (dense @ m))
    assert bt.vmap(lambda w, rows: rows @ w, in_axes=(1, None))(m, rows) == pytest.approx((dense @ m).T)
    singles = SparseRows(dense.astype("float32"))
    assert bt.function(lambda rows, w: rows @ w, dtype="float32")(singles, w) == pytest.approx(dense @ w, rel=1e-5)


def test_a_mistake_in_sparse_rows_is_one_error():
    w, dense, _y = sparse(10)
    product = bt.function(lambda rows, w: rows @ w)

    def broken(**parts):
        rows = SparseRows(dense)
        for name, part in parts.items():
            setattr(rows, name, part)
        return rows

    good = SparseRows(dense)
    ends = np.array(good.indptr)
    ends[-1] += 5
    for parts in (
        {"indices": good.indices + 9},
        {"indices": good.indices - 9},
        {"indptr": ends},
        {"indptr": good.indptr[:-1]},
        {"indptr": good.indptr[::-1].copy()},
        {"data": good.data[:-1]},
    ):
        with pytest.raises(ValueError, match="sparse row"):
            product(broken(**parts), w)
    for parts in ({"indices": good.indices.astype("float64")}, {"data": list(good.data)}):
        with pytest.raises(TypeError, match="sparse rows"):
            product(broken(**parts), w)
    for f in (lambda rows, w: rows * 2.0, lambda rows, w: rows, lambda rows, w: rows @ w[1:], lambda rows, w: rows[0]):
        with pytest.raises((ValueError, TypeError)):
            bt.function(f)(good, w)
    with pytest.raises(TypeError, match="argument"):
        bt.grad(lambda rows, w: (rows @ w).sum())(good, w)
    assert product(good, w) == pytest.approx(dense @ w)


@pytest.mark.parametrize(
    "dtype", ["f8", "f4", "f2", "g", ">f8", ">f4", "i1", "i2", "i4", "i8", ">i4", "u1", "u2", "u4", "?"]
)
@pytest.mark.parametrize("shape", [(4,), (4, 3), (4, 2, 3), (4, 2, 1, 3)])
def test_contexts_of_any_rank_and_dtype(dtype, shape):
    """The loss and gradient are those of the numbers as float64, sample by sample."""
    params = bt.Parameters(dtype="float64")
    w = params.tensor((3,), name="w", init="ones")
    oracle = bt.Oracle(lambda x, y: bt.sum(x * w) ** 2 + y, params=params)
    x = (3.0 * np.random.default_rng(0).normal(size=shape)).astype(dtype)
    y = np.arange(4).astype(dtype)
    loss, gradient = oracle(x, y)
    numbers = x.astype("f8").reshape(4, -1, shape[-1] if len(shape) > 1 else 1) * np.ones(3)
    sums, parts = numbers.sum(axis=(1, 2)), numbers.sum(axis=1)
    assert loss == pytest.approx(np.mean(sums**2 + y.astype("f8")), rel=1e-12)
    np.testing.assert_allclose(np.asarray(gradient), (2.0 * sums[:, None] * parts).mean(axis=0), rtol=1e-12)


def test_nested_lists_are_contexts():
    params = bt.Parameters(dtype="float64")
    w = params.tensor((2,), name="w", init="ones")
    oracle = bt.Oracle(lambda x, y: bt.sum(x * w) + y, params=params)
    x = np.random.default_rng(0).normal(size=(3, 2, 2))
    assert oracle(x.tolist(), [0.0, 1.0, 2.0])[0] == pytest.approx(oracle(x, np.arange(3.0))[0], rel=1e-15)
    with pytest.raises(ValueError, match=r"rows of unequal length|dimensions"):
        oracle([[[1.0], [2.0, 3.0]]], [0.0])


def test_a_callable_that_fails_both_ways_shows_both_causes():
    """Traced with Arrays, and called with Values."""
    params = bt.Parameters(dtype="float64")
    w = params.tensor((3,), name="w")

    def fails(x, y):
        raise ValueError("with Arrays" if isinstance(x, bt.Array) else "with Values")

    oracle = bt.Oracle(fails, params=params)
    with pytest.raises(ValueError, match="with Values") as caught:
        oracle(np.ones((2, 3)), np.ones(2))
    assert str(caught.value.__cause__) == "with Arrays"
    # More dimensions than sample by sample: only the program may take them.
    with pytest.raises(ValueError, match="with Arrays"):
        oracle(np.ones((2, 3, 3)), np.ones(2))
    assert w.shape == (3,)


def test_a_function_that_fails_both_ways_shows_both_causes():
    def fails(x):
        raise ValueError("with Arrays" if isinstance(x, bt.Array) else "with Values")

    for call in (lambda f, x: f(x), lambda f, x: f.grad(x), lambda f, x: f.value_and_grad(x)):
        with pytest.raises(ValueError, match="with Values") as caught:
            call(bt.function(fails), np.ones(1000))
        assert str(caught.value.__cause__) == "with Arrays"


@pytest.mark.parametrize("make", [list, tuple, iter, lambda x: (k for k in x), lambda x: map(int, x)])
def test_iterators_of_labels_lose_none(make):
    params = bt.Parameters(dtype="float64", seed=0)
    x, y = np.arange(8.0).reshape(4, 2), [0, 1, 2, 3]
    model = bt.nn.Linear(params, 2, 5)
    for oracle in (
        bt.Oracle(model),
        bt.Oracle(lambda x, y: bt.softmax_cross_entropy(model(x), y), params=params),
        bt.Oracle(lambda x, y: bt.softmax_cross_entropy(model(x), y), params=params, lanes=1),
    ):
        expected = list(oracle.losses(x, y))
        assert list(oracle.losses(x, make(y))) == expected
        with pytest.raises(ValueError, match="4"):
            oracle.losses(x, make([0, 1, 2, 3, 4]))
    mse = bt.Oracle(model, loss="mse")
    rows = [[float(k + j) for j in range(5)] for k in range(4)]
    assert mse.loss(x, (iter(row) for row in rows)) == mse.loss(x, [iter(row) for row in rows]) == mse.loss(x, rows)


REDUCTIONS = {
    "var": lambda x: bt.var(x) * 1.5,
    "std": lambda x: bt.std(x) * x,
    "mean": lambda x: bt.mean(x) * 1.5,
    "norm": lambda x: np.linalg.norm(x) * 1.5,
    "logsumexp": bt.logsumexp,
    "softmax": lambda x: bt.softmax(x) * x,
    "squares": lambda x: bt.sum(x * x) / 8 * 1.5,
    "distances": lambda x: bt.sum((x - bt.mean(x)) ** 2),
    "prod": lambda x: bt.prod(x) + 1,
    "cumsum": lambda x: np.cumsum(x) * x,
}


@pytest.mark.parametrize("n", [1, 3, 8, 17])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_rows_have_the_bits_of_the_function_of_an_array(name, n):
    f, x = REDUCTIONS[name], np.random.default_rng(n).normal(size=(40, n))
    np.testing.assert_array_equal(bt.vmap(f)(x), [f(bt.array(row)).data for row in x])
