"""Long arrays of one dimension: bodies that compute with them as a whole are traced with Arrays, others with Values."""

from __future__ import annotations

import math
import pickle
import sys
import warnings

import pytest

import burtorch as bt

np = pytest.importorskip("numpy")

N = 700
X = np.linspace(0.2, 1.7, N)
V = np.cos(np.arange(N))
W = np.sin(np.arange(N))

WHOLE = {
    "slices": lambda x: (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum(),
    "methods": lambda x: (x * W).sum() + x.mean() - x.max(),
    "operators": lambda x: ((2.0 - x) / (1.0 + x) - x**1.5 + (-x) ** 2).sum(),
    "functions": lambda x: bt.reduce_sum(bt.tanh(x) * bt.sin(x) + bt.exp(-x)),
    "inner products": lambda x: bt.inner_product(x, W) + bt.inner_product(x, x) + x @ W,
    "reductions": lambda x: bt.mean(x) * bt.variance(x) + bt.logsumexp(x) + bt.norm2(x),
    "softmax": lambda x: bt.inner_product(bt.softmax(x), W) + bt.log_softmax(x)[3],
    "numpy": lambda x: np.sum(np.log(x) * np.sqrt(x)) + np.dot(x, W),
    "two ends": lambda x: x[0] * x[-1] + x.sum(),
    "few steps": lambda x: sum(x[k] * x[k + 1] for k in range(20)) + (x * x).sum(),
    "a branch": lambda x: (x * x).sum() if x.sum() > 0 else (x * 3.0).sum(),
    "constants": lambda x: (x * W + np.arange(N)).sum(),
    "extremes": lambda x: bt.max(x) - bt.min(x) + x[W > 0.5].sum(),
    "padded": lambda x: np.concatenate([np.zeros(1), x]).sum() + np.clip(x, 0.5, 1.0).sum(),
}


def by_comparisons(x):
    total = 0.0
    for k in range(len(x)):
        total = total + (x[k] ** 2 if x[k] > 1.0 else 2.0 * x[k])
    return total


def by_a_list(x):
    items = list(x)
    items.sort(key=lambda v: -abs(float(np.cos(len(items)))))
    return sum(v * w for v, w in zip(items, W, strict=False))


def by_catching(x):
    total = 0.0
    for k in range(len(x)):
        try:
            total = total + x[k] * x[k]
        except bt.TraceError:
            total = total + 1e6
    return total


NUMBERS = {
    "iteration": lambda x: sum(v * v for v in x),
    "indices": lambda x: sum(100.0 * (x[i + 1] - x[i] ** 2) ** 2 + (1.0 - x[i]) ** 2 for i in range(len(x) - 1)),
    "comparisons": by_comparisons,
    "a list": by_a_list,
    "caught errors": by_catching,
    "a list of results": lambda x: bt.reduce_sum([v * v for v in x]),
}


def kinds_of_runs(body):
    kinds = []

    def counted(*arguments):
        kinds.append(type(arguments[0]).__name__)
        return body(*arguments)

    return counted, kinds


@pytest.mark.parametrize("name", WHOLE)
def test_computations_of_whole_arrays_are_traced_with_arrays(name):
    body, kinds = kinds_of_runs(WHOLE[name])
    f = bt.function(body)
    value, gradient = f.value_and_grad(X)
    assert kinds == ["Array"]
    expected = bt.value_and_grad(WHOLE[name])(X)
    assert value == expected[0]
    assert gradient.tolist() == expected[1].tolist()
    assert type(value) is float
    assert type(gradient) is np.ndarray
    assert f(X) == value
    assert f.grad(X).tolist() == gradient.tolist()
    assert set(kinds) == {"Array"}
    g = bt.function(WHOLE[name])
    for _ in range(3):
        g(X), g.value_and_grad(X)
        assert g.stats()["traced"] == 1
    # Values and Vectors give the same numbers.
    of_values = bt.function(WHOLE[name])
    wanted = np.arange(N)
    by_numbers = of_values.value_and_grad(X, wanted=wanted)
    assert by_numbers[0] == pytest.approx(value, rel=1e-13)
    np.testing.assert_allclose(by_numbers[1], gradient, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(f.hvp(X, V), of_values.hessian(X) @ V, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(f.jvp(X, V)[1], gradient @ V, rtol=1e-11)
    np.testing.assert_allclose(f.vjp(X, 2.0)[1], 2.0 * gradient, rtol=1e-13)


@pytest.mark.parametrize("name", NUMBERS)
def test_computations_of_single_numbers_are_traced_with_values(name):
    body, kinds = kinds_of_runs(NUMBERS[name])
    f = bt.function(body)
    value, gradient = f.value_and_grad(X)
    assert kinds == ["Array", "Vector"]
    graph = bt.Graph()
    with graph:
        vector = graph.vector(X)
        result = NUMBERS[name](vector)
        result.backward()
    assert value == result.data
    assert gradient.tolist() == list(vector.grad)
    # The function remembers it.
    f(np.append(X, 1.0)[:-1]), f.grad(X[:500]), f.hvp(X[:500], V[:500])
    assert kinds.count("Array") == 1


def test_short_arrays_are_traced_with_values():
    body, kinds = kinds_of_runs(WHOLE["slices"])
    f = bt.function(body)
    f.value_and_grad(X[:100])
    f.value_and_grad(X)
    f.value_and_grad(X[:101])
    assert kinds == ["Vector", "Array", "Vector"]


@pytest.mark.parametrize(
    ("arguments", "are_long"),
    [
        ((X, 2.0), True),
        ((X, 2), True),
        ((X, X[:3]), True),
        (({"a": X, "b": [1.0, X]}, (2.0,)), True),
        ((X.astype(np.float32), 2.0), True),
        ((X, np.float32(2.0)), False),
        ((X.tolist(), 2.0), False),
        ((X, X.tolist()), False),
    ],
)
def test_which_arguments_are_long(arguments, are_long):
    def leaves(x):
        if isinstance(x, dict):
            return [v for one in x.values() for v in leaves(one)]
        return [v for one in x for v in leaves(one)] if isinstance(x, (list, tuple)) else [x]

    kinds, sizes = [], leaves(arguments)

    def body(*arguments):
        kinds.append({type(x).__name__ for x in leaves(list(arguments))})
        pairs = zip(leaves(arguments), sizes, strict=True)
        return sum(bt.reduce_sum(x) if np.size(given) > 1 else x for x, given in pairs)

    f = bt.function(body)
    value, gradients = f.value_and_grad(*arguments)
    assert ("Array" in kinds[0]) == are_long
    assert len(kinds) == 1
    assert value == pytest.approx(sum(np.sum(x) for x in leaves(arguments)), rel=1e-5)
    for gradient, argument in zip(leaves(gradients), leaves(arguments), strict=True):
        assert np.all(gradient == 1.0)
        if isinstance(argument, np.ndarray):
            assert gradient.dtype == argument.dtype
        else:
            assert type(gradient) is float


def test_strides_and_other_layouts():
    f = bt.function(WHOLE["slices"])
    both = np.stack([X, V], axis=1)
    assert f.value_and_grad(both[:, 0])[0] == f.value_and_grad(X)[0]
    assert f.grad(X[::-1]).tolist() == f.grad(X[::-1].copy()).tolist()


def test_primitives_are_called_with_numbers():
    calls = []

    @bt.primitive
    def hypotenuse(x, y):
        calls.append(type(x))
        return math.hypot(x, y)

    hypotenuse.defvjp(lambda g, z, x, y: (g * x / z, g * y / z))
    f = bt.function(lambda x: (x * x).sum() + hypotenuse(x[0], x[1]))
    for scale in (1.0, 2.0):
        x = scale * X
        assert f(x) == pytest.approx((x * x).sum() + math.hypot(x[0], x[1]))
    assert set(calls) == {float}


def test_zero_directions_contribute_nothing():
    x, v = X.copy(), V.copy()
    x[5], v[5] = 0.0, 0.0
    f = bt.function(lambda x: np.sqrt(x).sum())
    expected = (V / (2.0 * np.sqrt(X)))[np.arange(N) != 5].sum()
    assert f.jvp(x, v)[1] == pytest.approx(expected)


def test_equality_of_arrays_is_elementwise():
    bodies = [
        lambda x: x.sum() * np.where(x == x[::-1], 2.0, 3.0)[0],
        lambda x: (np.where(x != x.max(), x, 0.0)).sum(),
        lambda x: np.mean(x == 1.0 * x) * x.sum(),
    ]
    for body in bodies:
        f = bt.function(body)
        for x in (X, X[:9]):
            assert f(x) == pytest.approx(float(body(x)), rel=1e-12)
            np.testing.assert_allclose(f.grad(x), bt.grad(body)(x), rtol=1e-12)
    for x in (X, X[:9]):
        with pytest.raises((bt.TraceError, ValueError), match=r"truth|ambiguous|one"):
            bt.function(lambda x: x.sum() * (2.0 if x == x else 3.0))(x)


def test_constants_in_results_are_floats():
    f = bt.function(lambda x: (x.sum(), len(x), np.arange(3), True))
    for x in (X, X[:9]):
        _, n, three, one = f(x)
        assert [type(n), type(one), three.dtype.name] == [float, float, "float64"]


def test_an_audit_agrees_with_the_trace():
    f = bt.function(lambda x: (x.sum() * (sys.getrecursionlimit() > 0), len(x)))
    with pytest.warns(bt.StaleRiskWarning):
        f(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert f.audit()
        assert f(X) == (pytest.approx(X.sum()), float(N))


def test_results_have_the_same_structure():
    f = bt.function(lambda x, a: {"x": x * a, "s": [x.sum(), a], "t": (x[0], 2.0)})
    long, brief = f(X, 2.0), f(X[:10], 2.0)
    assert type(long["x"]) is type(brief["x"]) is np.ndarray
    assert long["x"].dtype == brief["x"].dtype
    assert [type(v) for v in long["s"]] == [type(v) for v in brief["s"]] == [float, float]
    assert [type(v) for v in long["t"]] == [type(v) for v in brief["t"]] == [float, float]


def test_errors_are_those_of_the_body():
    def raises(x):
        raise KeyError("mine")

    body, kinds = kinds_of_runs(raises)
    with pytest.raises(KeyError, match="mine"):
        bt.function(body)(X)
    assert kinds == ["Array"]
    with pytest.raises(bt.TraceError, match="one Value"):
        bt.function(lambda x: [x.sum(), x.mean()]).grad(X)


def test_the_program_grows_with_operations():
    f = bt.function(WHOLE["slices"])
    f.value_and_grad(np.linspace(0.0, 1.0, 1_000_000))
    lines = str(f.program).count("\n")
    g = bt.function(WHOLE["slices"])
    g.value_and_grad(X)
    assert str(g.program).count("\n") == lines < 20


def test_output_arrays_and_some_arguments():
    f = bt.function(lambda x, y: (x * y).sum())
    out = np.empty(N)
    assert f.value_and_grad(X, V, argnums=1, out=out)[1] is out
    assert out.tolist() == X.tolist()
    pair = (np.empty(N), np.empty(N))
    f.grad(X, V, out=pair)
    assert pair[0].tolist() == V.tolist()
    assert f.grad(X, V, wanted=[0, N]).tolist() == [V[0], X[0]]


def test_bound_calls():
    f = bt.function(WHOLE["slices"])
    start = np.linspace(0.2, 1.7, 2000)
    x, gradient = start.copy(), np.empty(2000)
    bound = f.bind(x, gradient)
    for scale in (1.0, 2.0):
        x[:] = scale * start
        assert bound() == f(x) == f.bind(x)()
        assert gradient.tolist() == f.grad(x).tolist()
    assert str(f.program).count("\n") < 20
    brief = np.empty(N)
    assert f.bind(X, brief)() == pytest.approx(f(X), rel=1e-13)
    np.testing.assert_allclose(brief, f.grad(X), rtol=1e-11)
    g = bt.function(NUMBERS["indices"])
    assert g.bind(x, gradient)() == pytest.approx(f(x), rel=1e-13)
    np.testing.assert_allclose(gradient, f.grad(x), rtol=1e-11)
    with pytest.raises(bt.TraceError, match="one Value"):
        bt.function(lambda x: [x.sum(), x.mean()]).bind(x)()


def test_rows_and_sparse_derivatives():
    f = bt.function(WHOLE["slices"])
    value = f(X)
    rows = np.stack([X, X + 0.1])
    assert f.map(rows)[0] == pytest.approx(value, rel=1e-13)
    values, gradients = f.map_value_and_grad(rows)
    assert values[0] == pytest.approx(value, rel=1e-13)
    np.testing.assert_allclose(gradients[0], f.grad(X), rtol=1e-12)
    np.testing.assert_allclose(f.sparse_hessian(X) @ V, f.hvp(X, V), rtol=1e-10)


@pytest.mark.parametrize("x", [X[:6], X])
@pytest.mark.parametrize("call", ["value_and_grad", "__call__", "grad", "hessian"])
def test_loaded_functions_have_all_derivatives(x, call):
    f = bt.function(WHOLE["slices"])
    getattr(f, call)(x)
    again = pickle.loads(pickle.dumps(f))
    v = np.cos(np.arange(len(x)))
    assert again(x) == f(x)
    assert again.grad(x).tolist() == f.grad(x).tolist()
    np.testing.assert_allclose(again.hvp(x, v), f.hvp(x, v), rtol=1e-12)
    np.testing.assert_allclose(again.hessian(x), f.hessian(x), rtol=1e-12)
    np.testing.assert_allclose((again.sparse_hessian(x) != 0).toarray(), (f.sparse_hessian(x) != 0).toarray())
    rows = np.stack([x, x + 0.1])
    np.testing.assert_allclose(again.map(rows), f.map(rows), rtol=1e-13)
    np.testing.assert_allclose(again.map_value_and_grad(rows)[1], f.map_value_and_grad(rows)[1], rtol=1e-12)
    np.testing.assert_allclose(bt.grad(lambda x: again(2.0 * x))(x), 2.0 * f.grad(2.0 * x), rtol=1e-12)
    np.testing.assert_allclose(bt.vmap(again)(rows), f.map(rows), rtol=1e-13)
    twice = pickle.loads(pickle.dumps(again))
    np.testing.assert_allclose(bt.grad(twice)(x), f.grad(x), rtol=1e-13)


def test_loaded_functions_of_numbers_are_transformed():
    f = bt.function(lambda a, b: a * b**3)
    f(2.0, 3.0)
    again = pickle.loads(pickle.dumps(f))
    assert bt.grad(again, argnums=1)(2.0, 3.0) == 54.0
    assert bt.vmap(again)(np.array([1.0, 2.0]), np.array([1.0, 3.0])).tolist() == [1.0, 54.0]


def test_constants_are_watched():
    rate = 2.0
    f = bt.function(lambda x: (rate * x).sum())
    assert f(np.ones(N)) == 2.0 * N
    rate = 3.0
    assert f(np.ones(N)) == 3.0 * N
    assert f.grad(np.ones(N))[0] == 3.0
    rate = 4.0
    assert f.grad(np.ones(N))[0] == 4.0
    number = bt.parameter(2.0)
    g = bt.function(lambda x: (number * x).sum())
    assert g.value_and_grad(np.ones(N))[0] == 2.0 * N
    number.value = 5.0
    assert g.value_and_grad(np.ones(N))[0] == 5.0 * N
