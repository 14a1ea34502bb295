"""Traced functions: calls, argument shapes, changed constants, guards, errors with line numbers."""

from __future__ import annotations

import array
import gc
import inspect
import math
import pickle
import random
import weakref
from pathlib import Path

import numpy as np
import pytest

import burtorch as bt


def tiny(a, b):
    c = a + b
    d = a * b + b**3
    e = c - d
    return e**2 / 2


def small(a, b):
    c = a + b
    d = a * b + b**3
    c += c + 1
    c += 1 + c + (-a)
    d += d * 2 + (b + a).relu()
    d += 3 * d + (b - a).relu()
    e = c - d
    f = e**2
    g = f / 2.0
    g += 10.0 / f
    return g


def eager(body, *numbers):
    values = [bt.Value(x) for x in numbers]
    result = body(*values)
    result.backward()
    return result.data, tuple(v.grad for v in values)


@pytest.mark.parametrize(("body", "numbers"), [(tiny, (-41.0, 2.0)), (small, (-4.0, 2.0))])
def test_calls_give_the_bits_of_the_eager_graph(body, numbers):
    f = bt.function(body)
    for scale in (1.0, 0.5, -3.0):
        x = tuple(scale * number for number in numbers)
        value, grads = eager(body, *x)
        assert f(*x) == value
        assert f.value_and_grad(*x) == (value, grads)
        assert f.grad(*x) == grads
    assert f.stats()["traced"] == 1


def test_argnums_selects_gradients():
    f = bt.function(tiny)
    value, (da, db) = f.value_and_grad(-41.0, 2.0)
    assert f.value_and_grad(-41.0, 2.0, argnums=1) == (value, db)
    assert f.value_and_grad(-41.0, 2.0, argnums=-2) == (value, da)
    assert f.grad(-41.0, 2.0, argnums=(1, 0)) == (db, da)
    with pytest.raises(IndexError, match="argnums 2"):
        f.grad(-41.0, 2.0, argnums=2)


def chained(p, x, n=3):
    """Scalars, a row, guards, and, for large n, enough nodes for bundles."""
    total = p["w"]
    for k in range(n):
        total = total + (x[k % 2] * p["l"][0]).tanh() * (x[k % 2] - p["b"]).sin()
    return total * p["w"] if total > 0.0 else total.exp()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("n", [3, 200])
@pytest.mark.parametrize("body", [chained, lambda p, x, n: chained(p, x, n).cos() * (x[0] * x[1]).exp()])
def test_gradients_by_some_arguments_have_the_bits_of_all(body, n, dtype):
    f = bt.function(body, dtype=dtype)
    scale = bt.parameter(1.5)
    g = bt.function(lambda p, x: body(p, x, n) * scale, dtype=dtype) if dtype == "float64" else None
    for shift in (0.0, -4.0, 2.0, 0.5):
        p, x = {"w": 0.5 + shift, "b": 3.0, "l": (4.0, 5.0)}, np.array([6.0, 7.0]) / 10
        for _ in range(3):
            value, (by_p, by_x) = f.value_and_grad(p, x, n=n)
            assert f.value_and_grad(p, x, argnums=0, n=n) == (value, by_p)
            assert f.grad(p, x, argnums=-1, n=n).tobytes() == by_x.tobytes()
            found, (first, second) = f.value_and_grad(p, x, argnums=[1, 0], n=n)
            assert (found, first.tobytes(), second) == (value, by_x.tobytes(), by_p)
            assert f.value_and_grad(p, x, argnums=(), n=n) == (value, ())
            if g is not None:
                scale.value = 1.0 + shift
                assert g.grad(p, x, argnums=1).tobytes() == g.grad(p, x)[1].tobytes()
    assert f.stats()["traced"] == f.stats()["paths"] <= 2


@pytest.mark.parametrize("n", [3, 200])
def test_some_numbers_of_a_gradient_have_the_bits_of_all(n):
    f = bt.function(chained)
    draw = random.Random(n)
    arguments = {"w": 0.5, "b": 3.0, "l": (4.0, 5.0)}, [0.6, 0.7, 0.8]
    value, (by_p, by_x) = f.value_and_grad(*arguments, n=n)
    full = np.array([by_p["w"], by_p["b"], *by_p["l"], *by_x])
    for _ in range(30):
        mask = np.array([draw.random() < 0.4 for _ in full])
        indices = np.flatnonzero(mask)
        for wanted in (mask, mask.tolist(), indices, indices.tolist() or mask):
            found, some = f.value_and_grad(*arguments, wanted=wanted, n=n)
            assert found == value
            assert some.tobytes() == full[mask].tobytes()
    assert f.grad(*arguments, wanted=range(2, 6), n=n).tobytes() == full[2:6].tobytes()
    assert f.grad(*arguments, wanted=range(7), n=n).tobytes() == full.tobytes()
    assert f.grad(*arguments, wanted=None, n=n) == (by_p, by_x)
    for wanted, error, text in (
        (range(5, 9), ValueError, "0 <= start <= stop <= 7"),
        ([2, 1], ValueError, "must ascend"),
        ([7], IndexError, "expected 0 to 6"),
        ([True], ValueError, "one bool for each of 7 numbers"),
        ("w", TypeError, "a range, sorted indices or a mask"),
    ):
        with pytest.raises(error, match=text):
            f.grad(*arguments, wanted=wanted, n=n)
    with pytest.raises(ValueError, match="pass only one"):
        f.grad(*arguments, wanted=[1], argnums=0, n=n)


def test_code_for_choices_of_arguments_is_bounded():
    n = 12
    f = bt.function(lambda *xs: sum(x * x for x in xs))
    xs = [float(k) for k in range(n)]
    f.grad(*xs, argnums=0)
    sizes = []
    for _ in range(3):
        for k in range(n):
            assert f.grad(*xs, argnums=k) == 2.0 * k
            sizes.append(f.stats()["bytes"])
    assert max(sizes[n:]) < 1.1 * sizes[8]


def test_a_gradient_by_some_arrays_leaves_out_the_rest():
    a, b = np.ones((3, 4)), np.ones((4, 5))
    f = bt.function(lambda a, b: ((a @ b).sum() + bt.sin(a).sum()) ** 2)
    both = bt.grad(lambda a, b: f(a, b), argnums=(0, 1))
    one = bt.grad(lambda a, b: f(a, b), argnums=1)
    assert one(a, b).tobytes() == both(a, b)[1].tobytes() == f.grad(a, b, argnums=1).tobytes()
    assert len(one.program) < len(both.program) - 2


def test_gradients_have_the_shape_of_the_arguments():
    @bt.function
    def f(p, x):
        return p["w"] * x[0] + p["b"] ** 2 + x[1] * p["l"][0] * p["l"][1]

    grad_p, grad_x = f.grad({"w": 2.0, "b": 3.0, "l": (4.0, 5.0)}, np.array([6.0, 7.0]))
    assert grad_p == {"w": 6.0, "b": 6.0, "l": (35.0, 28.0)}
    assert isinstance(grad_x, np.ndarray)
    assert grad_x.tolist() == [2.0, 20.0]
    assert bt.function(lambda x: x * x).grad(3) == 6.0
    assert bt.function(lambda x: x[0] * x[1]).grad([3.0, 4.0]) == [4.0, 3.0]
    matrix = bt.function(lambda m: m[0][1] * m[1][0]).grad(np.array([[1.0, 2.0], [3.0, 4.0]]))
    assert matrix.tolist() == [[0.0, 3.0], [2.0, 0.0]]
    single = bt.function(lambda x: (x * x).sum()).grad(np.array([1.0, 2.0], dtype=np.float32))
    assert single.dtype == np.float32
    assert single.tolist() == [2.0, 4.0]
    strided = bt.function(lambda x: (x * x).sum()).grad(np.arange(6.0)[::2])
    assert strided.tolist() == [0.0, 4.0, 8.0]
    plain = bt.function(lambda x: (x * x).sum()).grad(array.array("d", [1.0, 2.0]))
    assert isinstance(plain, array.array)
    assert list(plain) == [2.0, 4.0]


def test_every_gradient_is_a_new_array():
    f = bt.function(lambda x: (x * x).sum())
    first = f.grad(np.array([1.0, 2.0]))
    second = f.grad(np.array([5.0, 6.0]))
    assert first.tolist() == [2.0, 4.0]
    assert second.tolist() == [10.0, 12.0]


def test_several_results_keep_their_shape():
    f = bt.function(lambda x, y: {"p": x * y, "s": [x + y, 1.5]})
    assert f(2.0, 3.0) == {"p": 6.0, "s": [5.0, 1.5]}
    assert f.jacobian(2.0, 3.0).tolist() == [[3.0, 2.0], [1.0, 1.0], [0.0, 0.0]]
    g = bt.function(lambda x: x * x)
    assert g(np.array([1.0, 2.0])).tolist() == [1.0, 4.0]
    with pytest.raises(bt.TraceError, match="returns one Value"):
        g.grad(np.array([1.0, 2.0]))


def test_static_arguments_and_shapes_are_traced_separately():
    @bt.function
    def power(x, n=2):
        result = x
        for _ in range(n - 1):
            result = result * x
        return result

    assert (power(3.0), power(3.0, n=3), power(3.0, n=4), power(3.0)) == (9.0, 27.0, 81.0, 9.0)
    assert power.stats()["traced"] == 3
    assert power.grad(3.0, n=3) == 27.0
    # 1 and True are equal, but different arguments.
    kind = bt.function(lambda x, n=0: x * 2.0 if isinstance(n, bool) else x)
    assert (kind(1.0, n=1), kind(1.0, n=True)) == (1.0, 2.0)


def test_more_variants_than_the_bound_warn_once():
    f = bt.function(lambda x, n=0: x * n, max_variants=3)
    for n in range(3):
        f(1.0, n=n)
    with pytest.warns(RuntimeWarning, match="more than 3 shapes"):
        f(1.0, n=3)
    assert f(1.0, n=4) == 4.0
    assert f.stats()["variants"] == 3
    assert f.stats()["dropped"] == 2


SCALE = 2.0
TABLE = [1.0, 2.0]


def scaled(x):
    return x * SCALE


def test_changed_closure_cells_and_globals_trace_again():
    global SCALE
    k = 3.0

    @bt.function
    def f(x):
        return k * scaled(x)

    assert f(5.0) == 30.0
    k = 4.0
    assert f(5.0) == 40.0
    SCALE = 10.0
    try:
        assert f(5.0) == 200.0
        assert f.grad(5.0) == 40.0
        assert f.stats()["traced"] == 3
        k = 2.0 * 2.0
        assert f(5.0) == 200.0
        assert f.stats()["traced"] == 3
        bound = f.bind(array.array("d", [5.0]))
        assert bound() == 200.0
    finally:
        SCALE = 2.0


def test_changed_contents_trace_again():
    weights = np.array([1.0, 2.0])
    settings = {"rate": 3.0}
    f = bt.function(lambda x: weights[0] * x[0] + weights[1] * x[1] * settings["rate"] + TABLE[0])
    x = [1.0, 1.0]
    assert f(x) == 8.0
    weights[1] = 5.0
    assert f(x) == 17.0
    settings["rate"] = 1.0
    assert f(x) == 7.0
    TABLE[0] = 2.0
    try:
        assert f(x) == 8.0
    finally:
        TABLE[0] = 1.0
    assert f.stats()["invalidated"] == 3


def test_a_parameter_changes_without_recording():
    rate, shift = bt.parameter(2.0), bt.parameter(1.0)
    f = bt.function(lambda x, y: rate * x * y + shift - bt.exp(0.0 * x) * rate)
    assert f(3.0, 4.0) == 23.0
    rate.value = 10.0
    assert f(3.0, 4.0) == 111.0
    assert f.value_and_grad(3.0, 4.0) == (111.0, (40.0, 30.0))
    grad = np.zeros(2)
    bound = f.bind(np.array([3.0, 4.0]), grad)
    assert bound() == 111.0
    shift.value = 0
    assert bound() == 110.0
    assert f.map(np.array([[3.0, 4.0], [1.0, 1.0]])).tolist() == [110.0, 0.0]
    assert f.stats()["traced"] == 1
    assert rate + 1.0 == 11.0
    with pytest.raises(TypeError):
        bt.parameter("x")


def test_bound_functions_read_and_write_buffers():
    x, grad = np.array([-41.0, 2.0]), np.zeros(2)
    f = bt.function(tiny)
    bound = f.bind(x, grad)
    assert bound() == 612.5
    assert grad.tolist() == [-35.0, 1050.0]
    x[:] = [1.0, 2.0]
    value, expected = eager(tiny, 1.0, 2.0)
    assert bound() == value
    assert tuple(grad) == expected
    assert f.bind(x)() == value
    for bad in ([1.0, 2.0], np.array([1, 2]), np.zeros(4)[::2], np.zeros((2, 1)), np.zeros(3)):
        with pytest.raises((TypeError, ValueError)):
            f.bind(bad, grad)
    with pytest.raises((TypeError, ValueError)):
        f.bind(x, np.frombuffer(bytes(16)))
    with pytest.raises(TypeError):
        bound(1.0)


def test_values_append_to_their_graph_and_functions_inline():
    f = bt.function(tiny)
    a, b = bt.Value(-41.0), bt.Value(2.0)
    g = f(a, b) * 2.0
    g.backward()
    assert (g.data, a.grad, b.grad) == (1225.0, -70.0, 2100.0)
    outer = bt.function(lambda a, b: f(a, b) * 2.0)
    assert outer.value_and_grad(-41.0, 2.0) == (1225.0, (-70.0, 2100.0))
    with pytest.raises(TypeError, match="call the function itself"):
        f.grad(a, 2.0)


def test_a_function_may_call_itself():
    @bt.function
    def factorial(x, n=1):
        return x if n == 1 else x * factorial(x - 1.0, n=n - 1)

    assert factorial(5.0, n=5) == 120.0


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda x: math.exp(x), "bt.exp"),
        (lambda x: float(x) * x, "compute with the Value"),
        (lambda x: int(x) * x, "compute with the Value"),
        (lambda x: x * x.data, "compute with the Value"),
        (lambda x: x.backward(), "backward"),
        (lambda x: x.graph.rewind(x.graph.mark()), "rewind"),
        (lambda x: "text", "found str"),
        (lambda x: [], "no numbers"),
        (lambda x: bt.total(x), "total"),
    ],
)
def test_untraceable_operations_are_refused_by_name(body, message):
    error = AttributeError if message == "total" else bt.TraceError
    with pytest.raises(error, match=message) as raised:
        bt.function(body)(1.0)
    if raised.type is bt.TraceError and message not in ("no numbers",):
        assert f"{__file__}:" in str(raised.value)
    # The previous current graph is current again.
    assert bt.Value(1.0).data == 1.0


def test_numpy_functions_are_ops_or_are_named():
    assert bt.function(lambda x: np.exp(x))(0.0) == 1.0
    assert bt.function(lambda x: np.sum(np.tanh(x)))(np.array([0.0, 0.0])) == 0.0
    line = inspect.currentframe().f_lineno + 2
    with pytest.raises(bt.TraceError, match=rf"numpy\.spacing.*test_function\.py:{line}\)"):
        bt.function(lambda x: np.spacing(x))(1.0)


def test_escaped_values_are_refused_with_the_line():
    kept = []

    @bt.function
    def f(x):
        kept.append(x)
        return x * x

    f(2.0)
    line = inspect.currentframe().f_lineno + 2
    with pytest.raises(bt.TraceError, match=rf"kept from the trace of .*f .*:{line}\)"):
        kept[0] * 2.0
    with pytest.raises(bt.TraceError, match="kept"):
        float(kept[0].data)


def test_no_grad_and_other_graphs_are_refused():
    def silent(x):
        with bt.no_grad():
            y = x * x
        return y + x

    with pytest.raises(bt.TraceError, match="detach"):
        bt.function(silent)(1.0)
    other = bt.Value(3.0)
    with pytest.raises(bt.GraphMismatchError):
        bt.function(lambda x: x * other)(1.0)
    with pytest.raises(bt.TraceError, match="another graph"):
        bt.function(lambda x: x if x > other else -x)(1.0)


def test_detach_stops_gradients_and_follows_the_value():
    f = bt.function(lambda x: x * x.detach())
    assert [f.value_and_grad(x) for x in (2.0, 3.0)] == [(4.0, 2.0), (9.0, 3.0)]
    assert f.hvp(2.0, 1.0) == 0.0


def test_parameters_are_read_at_every_call():
    tensor = bt.Parameters(dtype="float64", seed=0).tensor((2,), init="glorot")
    f = bt.function(lambda x: bt.inner_product(x, tensor))
    x = np.array([1.0, 2.0])
    for values in ([3.0, 4.0], [-1.0, 0.5]):
        tensor.values[:] = values
        assert f(x) == np.dot(values, x)
        assert f.grad(x).tolist() == values
    g = bt.function(lambda a: tensor[0] * a + tensor[1])
    for values in ([3.0, 4.0], [-1.0, 0.5]):
        tensor.values[:] = values
        assert (g(2.0), g.grad(2.0), bt.grad(g)(2.0)) == (2.0 * values[0] + values[1], values[0], values[0])
        assert g.map(np.array([1.0, 2.0])).tolist() == [values[0] + values[1], 2.0 * values[0] + values[1]]


def test_a_program_that_is_too_large_names_the_line():
    def long(x):
        for _ in range(1000):
            x = x * 1.5
        return x

    with pytest.raises(bt.TraceError, match=r"more than 100 operations.*test_function\.py:\d+"):
        bt.function(long, max_nodes=100)(1.0)


def test_wrong_structures_are_type_errors():
    f = bt.function(lambda x: x)
    for bad in ("text", None, 1j, {1, 2}, object(), {1: 2.0}, np.array(["a"])):
        with pytest.raises(TypeError):
            f(bad)
    with pytest.raises(TypeError):
        bt.function(tiny)(1.0)
    with pytest.raises(TypeError, match="hashable"):
        bt.function(lambda x, n=None: x)(1.0, n=[1])


def test_options_are_checked():
    for options in ({"dtype": "float8"}, {"optimize": "most"}, {"max_paths": 0}):
        with pytest.raises(ValueError, match=next(iter(options))):
            bt.function(tiny, **options)
    with pytest.raises(TypeError, match="speed"):
        bt.function(tiny, speed=9)
    with pytest.raises(TypeError):
        bt.Function(3.0)


def test_fast_programs_are_shorter_and_as_right():
    def f(x):
        return sum(x[k] * x[k + 1] for k in range(len(x) - 1)) + x[0] * x[1]

    exact, fast = bt.function(f), bt.function(f, optimize="fast")
    x = np.linspace(0.3, 1.7, 12)
    assert fast(x) == pytest.approx(exact(x), rel=1e-14)
    np.testing.assert_allclose(fast.grad(x), exact.grad(x), rtol=1e-13)
    assert len(fast.program) < len(exact.program)


def test_single_precision_functions_have_the_bits_of_their_graphs():
    f = bt.function(small, dtype="float32")
    with bt.Graph(dtype="float32"):
        value, grads = eager(small, -4.0, 2.0)
    assert f.value_and_grad(-4.0, 2.0) == (value, grads)


def test_programs_can_be_read():
    f = bt.trace(small, -4.0, 2.0)
    assert f.program.n_inputs == 2
    assert f.program.op_counts["relu"] == 2
    assert str(f.program).startswith("program(x0..x1: float64)\n  %0 = add x0 x1")
    assert f.program.dot().startswith("digraph program {")
    assert repr(f) == f"<Function small ({__file__}:{small.__code__.co_firstlineno})>"
    assert inspect.signature(f) == inspect.signature(small)
    with pytest.raises(bt.TraceError, match="nothing has been traced"):
        _ = bt.function(small).program


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_compile_traces_and_plans(dtype):
    def body(x):
        y = list(x)
        for _ in range(8):
            y = [bt.sin(a * b) + 0.5 * a for a, b in zip(y, y[1:] + y[:1], strict=True)]
        return bt.sum(y)

    x = np.linspace(0.1, 0.9, 8).astype(dtype)
    called = bt.function(body, dtype=dtype)
    first = called.value_and_grad(x)
    before = called.stats()["bytes"]
    found = called.value_and_grad(x)
    planned = called.stats()["bytes"]
    # Where vectors of this type are too short, no program is planned.
    assert dtype == "float32" or planned != before
    compiled = bt.function(body, dtype=dtype)
    assert compiled.compile(x) is compiled
    assert compiled.stats()["bytes"] == planned
    assert compiled.stats()["traced"] == 1
    for value, grad in (first, found, compiled.value_and_grad(x)):
        assert (value, grad.tobytes()) == (found[0], found[1].tobytes())
    assert compiled.stats()["traced"] == 1


def test_compile_takes_arrays_keywords_and_branches():
    f = bt.function(lambda x, power: (x**power).sum() if x.sum() > 0.0 else -x.sum())
    for x in (np.ones((2, 3)), -np.ones((2, 3)), np.ones(3), np.ones(1)):
        n = f.compile(x, power=2).stats()["traced"]
        assert f(x, power=2) == abs(x.sum())
        assert f.stats()["traced"] == n
    with pytest.raises(TypeError, match="real number"):
        f.compile("a", power=2)
    with pytest.raises(TypeError):
        f.compile(np.ones(3), strength=2)


def test_functions_are_saved_and_pickled_as_their_recordings(tmp_path):
    k = bt.parameter(3.0)

    @bt.function
    def f(p, x):
        return k * p["a"] * x.sum() if p["a"] > 0.0 else x[0] * x[1]

    x = np.array([1.0, 2.0])
    for a in (2.0, -1.0):
        f({"a": a}, x)
    path = tmp_path / "f.bt"
    f.save(path)
    for loaded in (bt.load_function(path), pickle.loads(pickle.dumps(f))):
        for a in (2.0, -1.0, 5.0):
            value, (dp, dx) = f.value_and_grad({"a": a}, x)
            again, (dq, dy) = loaded.value_and_grad({"a": a}, x)
            assert (value, dp, dx.tolist()) == (again, dq, dy.tolist())
        assert str(loaded.program) == str(f.program)
        with pytest.raises(bt.TraceError, match="loaded from a file"):
            loaded(1.0)
    data = path.read_bytes()
    make, _ = f.__reduce__()
    make(data)
    for k in range(len(data)):
        with pytest.raises(bt.FormatError):
            make(data[:k])
    broken = bytearray(data)
    for bit in range(8 * len(data)):
        broken[bit // 8] ^= 1 << bit % 8
        with pytest.raises(bt.FormatError):
            make(bytes(broken))
        broken[bit // 8] ^= 1 << bit % 8
    for damaged in (data[:-8], data + b"\0", b""):
        path.write_bytes(damaged)
        with pytest.raises(bt.FormatError):
            bt.load_function(path)
    with pytest.raises(FileNotFoundError):
        bt.load_function(tmp_path / "none")
    with pytest.raises(bt.TraceError, match="nothing has been traced"):
        bt.function(tiny).save(path)


def test_functions_of_earlier_versions_load():
    f = bt.load_function(Path(__file__).parents[1] / "data" / "files" / "v1-function.burtorch")
    value, (by_name, by_place) = f.value_and_grad({"a": 2.0}, [1.0, 2.0])
    assert value == pytest.approx(6.0 * math.tanh(1.0), rel=1e-14)
    assert by_name == {"a": pytest.approx(value / 2.0, rel=1e-14)}
    assert by_place == pytest.approx([6.0 / math.cosh(1.0) ** 2, 0.0], rel=1e-13)
    assert f.value_and_grad({"a": -1.0}, [1.0, 2.0]) == (2.0, ({"a": 0.0}, [2.0, 1.0]))


def test_functions_do_not_leak():
    class Marker:
        pass

    def make():
        marker = Marker()

        @bt.function
        def f(x):
            return x * 2.0 if marker else f(x)

        f(1.0)
        return weakref.ref(marker), weakref.ref(f)

    references = make()
    gc.collect()
    assert all(reference() is None for reference in references)


def test_errors_in_the_body_leave_nothing_behind():
    calls = []

    @bt.function
    def f(x):
        calls.append("call")
        if len(calls) == 1:
            raise KeyError("first")
        return x * x

    before = bt.current_graph()
    with pytest.raises(KeyError):
        f(2.0)
    assert bt.current_graph() is before
    assert f(2.0) == 4.0
    assert f(3.0) == 9.0
    assert f.stats()["traced"] == 1


CALLS = {
    "call": lambda f, x: f(x),
    "grad": lambda f, x: f.grad(x),
    "value_and_grad": lambda f, x: f.value_and_grad(x),
    "jvp": lambda f, x: f.jvp(x, 1.0),
    "hvp": lambda f, x: f.hvp(x, 1.0),
    "hessian": lambda f, x: f.hessian(x),
    "jacobian": lambda f, x: f.jacobian(x),
    "map": lambda f, x: list(f.map([x, x])),
}


def stepped(x):
    return x * x if x > 0.0 else -(x**3)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_under_no_grad_a_function_is_traced_and_replayed_as_usual(call):
    wanted = [call(bt.function(stepped), x) for x in (2.0, -2.0)]
    before, between = bt.function(stepped), bt.function(stepped)
    call(between, 2.0)
    with bt.no_grad():
        for f in (before, between):
            assert [call(f, x) for x in (2.0, -2.0)] == wanted
            assert [call(f, x) for x in (2.0, -2.0)] == wanted
        # And the surrounding block continues.
        assert (bt.Value(1.0) * 2.0).op == "constant"
    assert [call(before, x) for x in (2.0, -2.0)] == wanted
    assert (bt.Value(1.0) * 2.0).op == "mul_by_constant"


def test_a_block_that_a_body_enters_is_still_refused_and_ends_with_it():
    def body(x):
        bt.no_grad().__enter__()
        return x * x

    f = bt.function(body)
    for _ in range(3):
        with bt.no_grad(), pytest.raises(bt.TraceError, match="no_grad"):
            f(2.0)
        with pytest.raises(bt.TraceError, match="no_grad"):
            f(2.0)
        assert (bt.Value(1.0) * 2.0).op == "mul_by_constant"
