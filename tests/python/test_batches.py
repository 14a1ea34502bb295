"""Totals over rows: `vmap` with `reduce`, against NumPy and against rows one by one."""

from __future__ import annotations

import pytest

import burtorch as bt

np = pytest.importorskip("numpy")

SIZES = [0, 1, 2, 31, 256, 1025, 3000]


def logistic(w, x, y):
    return bt.softplus(-y * (x @ w))


def numpy_logistic(w, X, y):
    z = -y * (X @ w)
    return np.logaddexp(0, z).sum(), X.T @ (-y / (1 + np.exp(-z)))


def data(n, d=7, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal(d), rng.standard_normal((n, d)), np.sign(rng.standard_normal(n))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_totals_and_their_gradients_are_those_of_numpy(n, reduce):
    w, X, y = data(n)
    total = bt.vmap(logistic, in_axes=(None, 0, 0), reduce=reduce)
    inside = bt.vmap(bt.value_and_grad(logistic), in_axes=(None, 0, 0), reduce=reduce)
    if n == 0 and reduce == "mean":
        with pytest.raises(ValueError, match="rows"):
            total(w, X, y)
        return
    value, gradient = numpy_logistic(w, X, y)
    share = max(n, 1) if reduce == "mean" else 1
    for found in (bt.value_and_grad(total)(w, X, y), inside(w, X, y)):
        assert found[0] == pytest.approx(value / share, rel=1e-13)
        assert found[1] == pytest.approx(gradient / share, rel=1e-11, abs=1e-13)
    assert total(w, X, y) == pytest.approx(value / share, rel=1e-13)


@pytest.mark.parametrize("n", [1, 5, 700])
def test_gradients_by_rows_stay_with_their_rows(n):
    w, X, y = data(n)
    total = bt.vmap(logistic, in_axes=(None, 0, 0), reduce="sum")
    by_rows = bt.grad(total, argnums=1)(w, X, y)
    assert np.array_equal(by_rows, bt.vmap(bt.grad(logistic, argnums=1), in_axes=(None, 0, 0))(w, X, y))


def test_axes_of_rows_may_be_any():
    w, X, y = data(300)
    total = bt.value_and_grad(bt.vmap(logistic, in_axes=(None, 1, -1), reduce="mean"))
    value, gradient = total(w, np.asfortranarray(X.T), y)
    expected = bt.value_and_grad(bt.vmap(logistic, in_axes=(None, 0, 0), reduce="mean"))(w, X, y)
    assert value == expected[0] and np.array_equal(gradient, expected[1])


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
    f, p, X, Y = case(name, n)
    one = bt.value_and_grad(f)
    each = [one(p, x, y) for x, y in zip(X, Y)]
    for total in (
        bt.value_and_grad(bt.vmap(f, in_axes=(None, 0, 0), reduce="sum")),
        bt.vmap(one, in_axes=(None, 0, 0), reduce="sum"),
    ):
        value, gradient = total(p, X, Y)
        assert value == pytest.approx(sum(v for v, _ in each), rel=1e-12)
        for key, found in gradient.items():
            assert found == pytest.approx(sum(g[key] for _, g in each), rel=1e-10, abs=1e-10)


def test_totals_have_derivatives_of_any_order():
    w, X, y = data(90, d=3)
    total = bt.vmap(logistic, in_axes=(None, 0, 0), reduce="sum")
    s = 1 / (1 + np.exp(-X @ w))
    expected = (X.T * (s * (1 - s))) @ X
    assert bt.hessian(total)(w, X, y) == pytest.approx(expected, rel=1e-9)
    v = np.array([1.0, -2.0, 0.5])
    assert bt.hvp(lambda w: total(w, X, y))(w, v) == pytest.approx(expected @ v, rel=1e-9)
    assert bt.jacobian(bt.grad(total))(w, X, y) == pytest.approx(expected, rel=1e-9)
    value, change = bt.jvp(lambda w: total(w, X, y))(w, v)
    assert change == pytest.approx(numpy_logistic(w, X, y)[1] @ v, rel=1e-10)
    many = bt.vmap(lambda w: total(w, X, y))(np.stack([w, 2 * w]))
    assert many == pytest.approx([total(w, X, y), total(2 * w, X, y)], rel=1e-12)


def test_totals_in_loops_and_of_loops():
    _, X, _ = data(40, d=3)
    chain = bt.vmap(lambda w, x: bt.scan(lambda h, u: (bt.tanh(w * h + u), None), 0.0, x)[0], in_axes=(None, 0), reduce="sum")
    expected = sum(bt.grad(lambda w, x: bt.scan(lambda h, u: (bt.tanh(w * h + u), None), 0.0, x)[0])(0.7, x) for x in X)
    assert bt.grad(chain)(0.7, X) == pytest.approx(expected, rel=1e-11)

    def descend(w):
        return bt.fori_loop(0, 4, lambda i, w: w - 0.1 * bt.grad(chain)(w, X), w)

    w = 0.7
    for _ in range(4):
        w -= 0.1 * bt.grad(chain)(w, X)
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


def test_what_no_row_chooses_spreads_no_infinity():
    root = bt.vmap(lambda w, i: np.sqrt(w)[i], in_axes=(None, 0), reduce="sum")
    assert list(bt.grad(root)(np.array([0.0, 4.0, 9.0]), np.array([1, 1]))) == [0.0, 0.5, 0.0]


@pytest.mark.parametrize(
    ("make", "arguments", "error", "text"),
    [
        (dict(reduce="sums"), (), ValueError, "reduce must be"),
        (dict(reduce=3), (), TypeError, "reduce"),
        (dict(reduce="sum", out_axes=0), (), ValueError, "out_axes"),
        (dict(reduce="sum", in_axes=(None, 5)), (1.0, np.ones(3)), ValueError, "axis"),
        (dict(reduce="sum", in_axes=(None, None)), (1.0, np.ones(3)), ValueError, "in_axes"),
        (dict(reduce="sum", in_axes=(0, 0)), (np.ones(2), np.ones(3)), ValueError, "as long as"),
        (dict(reduce="sum", in_axes=(0,)), (np.ones(3), np.ones(3)), ValueError, "in_axes"),
    ],
)
def test_what_is_wrong_is_one_error(make, arguments, error, text):
    with pytest.raises(error, match=text):
        bt.vmap(lambda w, x: w * x, **make)(*arguments)


def oracle_of(f, dtype="float64", **options):
    params = bt.Parameters(dtype=dtype, seed=4)
    w = params.tensor(7, init="normal")
    calls = []

    def model(x, y):
        calls.append(1)
        return f(w, x, y)

    return bt.Oracle(model, params=params, **options), calls, np.array(params.values, dtype="float64")


@pytest.mark.parametrize("n", [1, 2, 31, 1025])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_oracle_of_a_callable_calls_it_once_for_each_shape(n, reduction, dtype):
    oracle, calls, w = oracle_of(logistic, dtype, reduction=reduction)
    _, X, y = data(n)
    value, gradient = numpy_logistic(w, X, y)
    share = n if reduction == "mean" else 1
    tolerance = 1e-4 if dtype == "float32" else 1e-11
    for k in range(3):
        loss, found = oracle(X * (k + 1), y)
        if k == 0:
            assert loss == pytest.approx(value / share, rel=tolerance)
            assert np.array(found) == pytest.approx(gradient / share, rel=tolerance, abs=tolerance * n)
            n_calls = len(calls)
    assert len(calls) == n_calls
    assert oracle.loss(X, y) == pytest.approx(value / share, rel=tolerance)
    assert sum(oracle.losses(X, y)) == pytest.approx(value, rel=tolerance)
    lanes = oracle_of(logistic, dtype, reduction=reduction, lanes=4)[0]
    assert list(oracle(X, y)[1]) == pytest.approx(list(lanes(X, y)[1]), rel=tolerance, abs=tolerance * n)


def test_an_oracle_sees_what_changes():
    factor = [1.0]
    oracle, _, _ = oracle_of(lambda w, x, y: (x @ w) * factor[0])
    _, X, y = data(40)
    before = oracle.loss(X, y)
    factor[0] = 2.0
    assert oracle.loss(X, y) == pytest.approx(2 * before, rel=1e-14)
    oracle.params.values[:] = [3.0 * v for v in oracle.params.values]
    assert oracle.loss(X, y) == pytest.approx(6 * before, rel=1e-14)


def test_what_cannot_be_traced_goes_sample_by_sample():
    def by_vectors(w, x, y):
        return sum(x.data) * y

    oracle, calls, _ = oracle_of(by_vectors)
    _, X, y = data(8)
    with pytest.raises(Exception) as found:
        oracle(X, y)
    assert found.type.__name__ in ("AttributeError", "TypeError")
    random = __import__("random")
    oracle, calls, _ = oracle_of(lambda w, x, y: (x @ w) * random.random())
    assert oracle.loss(X, y) != oracle.loss(X, y)
    n_calls = len(calls)
    oracle.loss(X, y)
    assert len(calls) > n_calls


@pytest.mark.parametrize("kind", ["lists", "fortran", "strided", "float32", "map", "integers"])
def test_batches_of_every_kind_are_read(kind, tmp_path):
    oracle, _, w = oracle_of(logistic)
    _, X, y = data(50)
    if kind == "integers":
        X = np.round(X * 3)
    given = {
        "lists": lambda: (X.tolist(), y.tolist()),
        "fortran": lambda: (np.asfortranarray(X), y),
        "strided": lambda: (np.repeat(X, 2, axis=0)[::2], np.repeat(y, 2)[::2]),
        "float32": lambda: (X.astype("float32"), y.astype("float32")),
        "integers": lambda: (X, y.astype("int64")),
    }
    if kind == "map":
        X.tofile(tmp_path / "x")
        batch = np.memmap(tmp_path / "x", dtype="float64", mode="r", shape=X.shape), y
    else:
        batch = given[kind]()
    value, gradient = numpy_logistic(w, X, y)
    loss, found = oracle(*batch)
    assert loss == pytest.approx(value / 50, rel=1e-6)
    assert np.array(found) == pytest.approx(gradient / 50, rel=1e-5, abs=1e-6)
    for bad in [(X[:0], y[:0]), (X, y[:-1]), (X[None], y), ([["a"]], [1.0])]:
        with pytest.raises((ValueError, TypeError)):
            oracle(*bad)
