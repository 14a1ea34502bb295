"""Traced functions with array arguments: shapes and integers preserved, changed constants detected, Parameters by
reference."""

from __future__ import annotations

import gc
import threading
import time
import warnings

import numpy as np
import pytest

import burtorch as bt


def test_arrays_keep_their_shapes():
    seen = []

    @bt.function
    def f(a, i, flags, x, pair):
        seen.append([(part.shape, part.dtype) for part in (a, i, flags, x, pair[0], pair[1]["k"])])
        return {"sum": a.sum() + x, "same": (a, i, flags), "none": None}

    a, i = np.arange(6.0).reshape(2, 3), np.arange(4, dtype=np.int32)
    flags = np.array([True, False])
    out = f(a, i, flags, 2.0, [np.ones(2, np.float32), {"k": np.int64(7)}])
    assert seen == [
        [((2, 3), "float64"), ((4,), "int64"), ((2,), "bool"), ((), "float64"), ((2,), "float64"), ((), "int64")]
    ]
    assert out["sum"] == 17.0
    assert type(out["sum"]) is float
    assert out["none"] is None
    assert type(out["same"]) is tuple
    np.testing.assert_array_equal(out["same"][0], a)
    assert out["same"][1].dtype == np.int64
    assert out["same"][1].tolist() == [0, 1, 2, 3]
    assert out["same"][2].dtype == bool
    assert out["same"][2].tolist() == [True, False]
    assert f(a + 1.0, i, flags, 2.0, [np.ones(2, np.float32), {"k": np.int64(7)}])["sum"] == 23.0
    assert len(seen) == 1


def test_a_path_for_each_type_of_arguments():
    f = bt.function(lambda a: (a * a).sum())
    for n in (2, 3, 2, 3):
        assert f(np.ones((n, n))) == n * n
    assert f.stats()["traced"] == 2
    assert f(np.ones((2, 2), np.float32)) == 4.0
    assert f(np.ones((2, 2), int)) == 4
    assert type(f(np.ones((2, 2), int))) is int
    assert f.stats()["variants"] == 4
    # Numbers and one-dimensional arrays are still replayed as before.
    assert f(np.array([1.0, 2.0])) == 5.0
    assert f.stats()["variants"] == 5
    few = bt.function(lambda a: a.sum(), max_variants=2)
    few(np.ones((1, 1)))
    few(np.ones((2, 1)))
    with pytest.warns(RuntimeWarning, match="more than 2 shapes"):
        few(np.ones((3, 1)))
    assert few.stats()["variants"] == 2
    assert few.stats()["dropped"] == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a[::2, ::-1],
        lambda a: a.T,
        lambda a: a.astype(">f8"),
        lambda a: a.astype(np.float32),
        lambda a: a.astype(np.float16),
        lambda a: np.asfortranarray(a),
        lambda a: np.broadcast_to(a[:1], a.shape),
    ],
)
def test_strides_and_types_of_arguments(change):
    a = change(np.random.default_rng(0).normal(size=(4, 4)))
    f = bt.function(lambda a: (a * a + 1.0).sum(axis=0))
    np.testing.assert_allclose(f(a), (a.astype(float) ** 2 + 1.0).sum(0), rtol=1e-2 if a.dtype == np.float16 else 1e-6)
    assert f(a).dtype == (a.dtype if a.dtype.itemsize < 8 else np.float64)
    gradient = f.vjp(a, np.ones(4))[1]
    assert gradient.shape == a.shape
    np.testing.assert_allclose(gradient, 2 * a.astype(float), rtol=1e-2 if a.dtype == np.float16 else 1e-6)


def test_results_are_new_arrays():
    f = bt.function(lambda a: (a, a + 1.0))
    a = np.ones((2, 2))
    first, second = f(a), f(a * 2.0)
    assert first[0].tolist() == [[1.0, 1.0]] * 2
    assert second[1].tolist() == [[3.0, 3.0]] * 2
    first[0][:] = 5.0
    assert a.tolist() == [[1.0, 1.0]] * 2
    assert f(np.zeros((0, 3)))[1].shape == (0, 3)


def test_constants_are_noticed():
    scale, table = [2.0], np.arange(4.0).reshape(2, 2)
    f = bt.function(lambda a: (a * table).sum() * scale[0])
    g = bt.grad(lambda a: (a * table).sum() * scale[0])
    a = np.ones((2, 2))
    assert f(a) == 12.0
    np.testing.assert_array_equal(g(a), 2 * table)
    np.testing.assert_array_equal(f.grad(a), 2 * table)
    scale[0] = 3.0
    assert f(a) == 18.0
    table[0, 0] = 10.0
    assert f(a) == 48.0
    np.testing.assert_array_equal(g(a), 3 * table)
    np.testing.assert_array_equal(f.grad(a), 3 * table)
    assert f.stats()["invalidated"] == 2


def test_changes_of_nested_bodies_are_noticed():
    class Model:
        rate = 2.0

        def loss(self, x):
            return (self.scaled(x) ** 2).sum()

        def scaled(self, x):
            return x * self.rate

    model = Model()
    g = bt.vmap(bt.grad(bt.function(model.loss)))
    x = np.ones((2, 3))
    np.testing.assert_array_equal(g(x), 8.0 * x)
    model.rate = 3.0
    np.testing.assert_array_equal(g(x), 18.0 * x)


@pytest.mark.alone  # audits end when they would exceed their share of the time
def test_unwatchable_reads_warn_and_are_audited():
    import sys

    least = sys.getrecursionlimit()
    f = bt.grad(lambda x: x * x * (sys.getrecursionlimit() - least + 1))
    with pytest.warns(bt.StaleRiskWarning, match="getrecursionlimit"):
        assert f(1.0) == 2.0
    sys.setrecursionlimit(least + 3)
    try:
        with pytest.warns(bt.StaleFunctionWarning, match="traced again"):
            assert [f(1.0) for _ in range(9)][-1] == 8.0
        assert f.audit()
    finally:
        sys.setrecursionlimit(least)
    with pytest.warns(bt.StaleFunctionWarning):
        assert not f.audit()


def test_static_arguments():
    f = bt.function(lambda a, *, power=1, name="x": (a**power).sum())
    a = 2.0 * np.ones((2, 2))
    for _ in range(2):
        assert f(a, power=3) == 32.0
        assert f(a, power=2) == 16.0
        assert f.grad(a, power=2).tolist() == [[4.0, 4.0]] * 2
    assert f.stats()["traced"] == 2
    with pytest.raises(TypeError, match="did you mean 'power'"):
        f(a, powr=2)
    with pytest.raises(TypeError, match="must be hashable"):
        f(a, name=[])


def test_guards_choose_paths():
    @bt.function
    def f(a):
        if a.sum() > 0.0:
            return a[0] * 2.0
        return -a[1]

    a = np.array([[1.0], [2.0]])
    for _ in range(3):
        assert f(a).tolist() == [2.0]
        assert f(-a).tolist() == [2.0]
    assert f.stats()["traced"] == 2
    assert f.stats()["paths"] == 2
    assert f.program.n_guards == 1
    with pytest.raises(ValueError, match="ambiguous"):
        bt.function(lambda a: a if a else -a)(a)


def test_a_branch_that_is_not_taken_does_not_fail():
    table = np.arange(3.0)

    @bt.function
    def f(a, i):
        if i < 3:
            return bt.gather(table, i) if False else a[i]
        return a.sum()

    a = np.arange(3.0).reshape(3, 1)
    assert f(a, np.int64(1)).tolist() == [1.0]
    assert f(a, np.int64(7)) == 3.0
    with pytest.raises(IndexError):
        bt.function(lambda a, i: a[i])(a, np.int64(7))


def test_errors_leave_nothing_behind():
    state = {"fails": True}
    kept = []

    @bt.function
    def f(a):
        kept.append(a)
        if state["fails"]:
            raise KeyError("mine")
        return (a * a).sum()

    a = np.ones((2, 2))
    for _ in range(2):
        with pytest.raises(KeyError, match="mine"):
            f(a)
    state["fails"] = False
    assert f(a) == 4.0
    for array in kept:
        with pytest.raises(bt.TraceError, match="kept from the trace of"):
            array + 1.0
        with pytest.raises(bt.TraceError, match="kept from the trace of"):
            bt.function(lambda b, array=array: (b * array).sum())(a)
    assert bt.Value(2.0) * 3.0 == 6.0
    for bad, words in (
        (None, "returned no numbers"),
        ("text", "returned str"),
        ([object()], r"returned object at \[0\]"),
    ):
        with pytest.raises(bt.TraceError, match=words):
            bt.function(lambda a, bad=bad: bad)(a)
    with pytest.raises(bt.TraceError, match=r"argument a\[0\]\['k'\]: expected a real number, an array.*found str"):
        f([{"k": "text"}, a])
    with pytest.raises(TypeError):
        f(np.ones((2, 2), complex))
    with pytest.raises(ValueError, match="broadcast"):
        bt.function(lambda a: a + np.ones(3))(a)


def test_functions_inside_functions_are_part_of_them():
    inner = bt.function(lambda a, x: (a * x).sum())

    @bt.function
    def outer(a):
        return inner(a, 2.0) + inner.grad(a, 3.0)[0].sum()

    a = np.ones((2, 2))
    assert outer(a) == 8.0 + 12.0
    assert outer.stats()["traced"] == 1
    assert inner.stats()["traced"] == 0


def test_a_function_of_numbers_that_uses_transforms_is_traced_with_arrays():
    @bt.function
    def f(x, y):
        return bt.grad(lambda z: z**3 * y)(x) + x

    assert f(2.0, 1.0) == 14.0
    assert f.grad(2.0, 1.0) == (13.0, 12.0)
    assert f.hessian(2.0, 1.0)[0][0] == 6.0
    assert f.map(np.array([1.0, 2.0]), np.array([1.0, 1.0])).tolist() == [4.0, 14.0]
    x = bt.Value(2.0)
    f(x, 1.0).backward()
    assert x.grad == 13.0
    assert bt.function(lambda v: f(v[0], v[1]) * 2.0)([2.0, 1.0]) == 28.0


def test_rows_of_arrays():
    f = bt.function(lambda a: (a @ a).sum(axis=0))
    rows = np.random.default_rng(0).normal(size=(5, 3, 3))
    np.testing.assert_allclose(f.map(rows), np.array([f(a) for a in rows]), rtol=1e-13)


def test_programs_can_be_read():
    f = bt.function(lambda a: bt.sin(a).sum())
    f(np.ones((1000, 1000)))
    assert len(f.program) == 2
    assert f.program.op_counts == {"input": 1, "sin": 1, "sum": 1}
    assert "sin" in str(f.program)
    assert f.program.dtype == "float64"
    assert (f.program.n_inputs, f.program.n_outputs, f.program.n_guards) == (1, 1, 0)


def test_recording_takes_time_and_memory_of_operations_and_not_of_numbers():
    f = bt.function(lambda a, b: bt.exp(-((a[:, None, :] - b[None, :, :]) ** 2).sum(axis=2)).max(axis=1).sum())
    a, b = np.zeros((1000, 16)), np.zeros((10, 16))
    f(a, b)
    assert len(f.program) < 20
    assert f.program.nbytes < 20_000


def test_paths_are_collected():
    import weakref

    class Numbers(np.ndarray):
        pass

    table = np.ones((2, 2)).view(Numbers)
    gone = weakref.ref(table)
    f = bt.function(lambda a, *, table: (a * table.array).sum())

    class Static:
        array = table

    f(np.ones((2, 2)), table=Static())
    del f, table, Static
    gc.collect()
    assert gone() is None


def test_threads_take_turns():
    f = bt.function(lambda a: (a @ a).sum())
    arrays = [np.full((20, 20), float(k)) for k in range(8)]
    wrong = []

    def work(a):
        for _ in range(50):
            if f(a) != 8000.0 * a[0, 0] ** 2:
                wrong.append(a)

    threads = [threading.Thread(target=work, args=(a,)) for a in arrays]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_planning_can_be_interrupted():
    """For a program with many operations; the function is unchanged."""
    import _thread

    def f(x):
        for _ in range(3000):
            x = bt.sin(x) * 1.01
        return x

    g = bt.grad(bt.grad(f))
    timer = threading.Timer(0.3, _thread.interrupt_main)
    timer.start()
    started = time.perf_counter()
    try:
        with pytest.raises(KeyboardInterrupt):
            for _ in range(1000):
                g.forget()
                g(0.5)
    finally:
        timer.join()
    assert time.perf_counter() - started < 30.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert bt.grad(lambda x: x * x)(3.0) == 6.0


def test_plain_arrays_are_stacked_as_by_numpy():
    x, y = np.arange(6.0).reshape(2, 3), np.ones((2, 3))
    for axis in (0, 1, -1):
        np.testing.assert_array_equal(bt.stack([x, y], axis=axis), np.stack([x, y], axis))
        np.testing.assert_array_equal(bt.stack(x, y, axis=axis), np.stack([x, y], axis))
    with pytest.raises(ValueError, match="same shape"):
        bt.stack([x, y[0]])


@pytest.mark.parametrize(
    ("shape", "axis"), [((0,), None), ((0, 2), None), ((2, 0), 1), ((0, 3), 0), ((2, 0, 3), (1, 2)), ((0, 0), (0, 1))]
)
@pytest.mark.parametrize("keepdims", [False, True])
def test_norms_of_nothing_are_0_as_in_numpy(shape, axis, keepdims):
    x = np.ones(shape)
    is_vector = len(shape) == 1 or isinstance(axis, int)
    for order in (None, 1, 2, 3.0, np.inf) if is_vector else (None, "fro", 1, np.inf):
        expected = np.linalg.norm(x, order, axis, keepdims)
        found = bt.function(lambda x: np.linalg.norm(x, order, axis, keepdims))(x)  # noqa: B023
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(np.linalg.norm(bt.array(x), order, axis, keepdims).data, expected)
        assert bt.grad(lambda x: np.sum(np.linalg.norm(x, order, axis, keepdims)))(x).shape == shape  # noqa: B023
