"""Large arrays that programs return: each keeps its numbers, whatever the program does next."""

from __future__ import annotations

import copy
import gc
import pickle
import threading

import pytest

import burtorch as bt

np = pytest.importorskip("numpy")

SHAPE = (300, 400)


def numbers(seed, dtype="float64"):
    return np.random.default_rng(seed).normal(size=SHAPE).astype(dtype)


CALLS = {
    "function": bt.function(lambda x: np.exp(x) * 2.0),
    "two results": bt.function(lambda x: (np.exp(x) * 2.0, {"sum": x + 1.0, "same": x + 1.0})),
    "gradient": bt.grad(lambda x: (np.exp(x) * x).sum()),
    "vmap": bt.vmap(lambda x: np.cos(x)),
    "argument": bt.function(lambda x: (x, x.T)),
    "loop": bt.function(lambda x: bt.fori_loop(0, 3, lambda k, c: c * 0.5 + x, x)),
    "rows": bt.function(lambda x: bt.scan(lambda c, row: (c + row, c * row), x[0], x)[1]),
}


def leaves(result):
    if isinstance(result, dict):
        return [leaf for part in result.values() for leaf in leaves(part)]
    return [leaf for part in result for leaf in leaves(part)] if isinstance(result, tuple) else [result]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CALLS)
def test_results_keep_their_numbers(name, dtype):
    call = CALLS[name]
    inputs = [numbers(seed, dtype) for seed in range(5)]
    expected = [[leaf.copy() for leaf in leaves(call(x))] for x in inputs]
    kept = [leaves(call(x)) for x in inputs]
    for found, right in zip(kept, expected):
        for leaf, theirs in zip(found, right):
            assert leaf.dtype == dtype
            assert all(leaf.flags[flag] for flag in ("C", "W", "A"))
            assert np.array_equal(leaf, theirs)
    # What the user writes to one result reaches no other.
    for leaf in kept[0]:
        leaf[...] = np.nan
    for _ in range(3):
        again = leaves(call(inputs[1]))
        assert all(np.array_equal(leaf, theirs) for leaf, theirs in zip(again, expected[1]))
    for found, right in zip(kept[1:], expected[1:]):
        assert all(np.array_equal(leaf, theirs) for leaf, theirs in zip(found, right))


def test_results_are_arguments_of_the_next_call():
    f = bt.function(lambda x: np.cos(x) + x)
    x = y = numbers(0)
    for _ in range(10):
        x, y = f(x), np.cos(y) + y
        assert x == pytest.approx(y, rel=1e-12)
    z = f(f(f(x)))
    assert z == pytest.approx(np.array(f(np.array(f(np.array(f(x)))))), rel=0)


def test_results_survive_their_function():
    def made():
        f = bt.function(lambda x: x * 3.0)
        return f(numbers(0)), f(numbers(1))

    first, second = made()
    gc.collect()
    more = bt.function(lambda x: x * 5.0)(numbers(2))
    assert np.array_equal(first, numbers(0) * 3.0)
    assert np.array_equal(second, numbers(1) * 3.0)
    assert np.array_equal(more, numbers(2) * 5.0)


def test_results_are_ordinary_arrays():
    y = CALLS["function"](numbers(0))
    for again in (copy.copy(y), copy.deepcopy(y), pickle.loads(pickle.dumps(y)), y.view(), y[:], np.asarray(y)):
        assert type(again) is np.ndarray
        assert np.array_equal(again, y)
    part = y[10:20, ::3]
    right = part.copy()
    del y
    CALLS["function"](numbers(1))
    assert np.array_equal(part, right)


def test_memory_does_not_grow_with_calls():
    f = bt.function(lambda x: (x * 2.0, x + 1.0))
    x = numbers(0)
    starts = set()
    for _ in range(20):
        a, b = f(x)
        starts.update(y.__array_interface__["data"][0] for y in (a, b))
    assert len(starts) <= 4


def test_threads_have_results_of_their_own():
    f = bt.function(lambda x: np.exp(x) - x)
    inputs = [numbers(seed) for seed in range(4)]
    expected = [f(x).copy() for x in inputs]
    wrong = []

    def run(k):
        for _ in range(30):
            try:
                y = f(inputs[k])
            except bt.BusyError:
                continue
            if not np.array_equal(y, expected[k]):
                wrong.append(k)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def turned(shape, order):
    x = np.random.default_rng(1).normal(size=shape)
    expected = np.transpose(x, order)
    found = bt.function(lambda x: (np.transpose(x, order) * 2.0, np.transpose(x, order)))(x)
    assert np.array_equal(found[0], expected * 2.0)
    assert np.array_equal(found[1], expected)
    weights = np.arange(x.size, dtype=float).reshape(expected.shape)
    back = bt.grad(lambda x: (np.transpose(x, order) * weights).sum())(x)
    assert np.array_equal(back, np.transpose(weights, np.argsort(order)))


@pytest.mark.parametrize(
    "shape", [(200, 300), (1000, 97), (8, 20000), (20000, 8), (129, 7, 65), (7, 1000), (64, 64, 64)]
)
def test_columns_become_rows_of_any_size(shape):
    axes = tuple(range(len(shape)))
    for order in {axes[::-1], axes[1:] + axes[:1], axes[-1:] + axes[:-1]}:
        turned(shape, order)
    x = np.random.default_rng(1).normal(size=shape)
    flipped = bt.function(lambda x: (np.flip(x) * 2.0, np.flip(x, 0), x[..., ::-1]))(x)
    assert all(map(np.array_equal, flipped, (np.flip(x) * 2.0, np.flip(x, 0), x[..., ::-1])))
