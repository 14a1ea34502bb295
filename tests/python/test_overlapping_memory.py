"""Results written into the memory of arguments: as if the arguments had been copied first, like NumPy."""

from __future__ import annotations

import array

import numpy as np
import pytest

import burtorch as bt

BODIES = [
    lambda x, y: x * y + bt.sin(x),
    lambda x, y: x * 2.0 if x < y else y * 3.0,
]


def windows(memory, n):
    """Views of n numbers that overlap in every way: equal, shifted, reversed, interleaved, strided."""
    return {
        "same": memory[4 : 4 + n],
        "shifted up": memory[5 : 5 + n],
        "shifted down": memory[1 : 1 + n],
        "reversed": memory[4 : 4 + n][::-1],
        "even": memory[4 : 4 + 2 * n : 2],
        "odd": memory[5 : 5 + 2 * n : 2],
        "every third, backwards": memory[3 * n :: -3][:n],
        "apart": memory[-n:],
    }


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("n", [5, 70, 1000])
@pytest.mark.parametrize("threads", [1, 2])
def test_map_reads_all_before_it_writes(body, n, threads):
    f = bt.function(body)
    rng = np.random.default_rng(n)
    names = list(windows(np.zeros(6 * n), n))
    for a in names:
        for b in names:
            for to in names:
                memory = rng.normal(size=6 * n)
                before = windows(memory.copy(), n)
                expected = f.map(before[a], before[b])
                here = windows(memory, n)
                got = f.map(here[a], here[b], out=here[to], threads=threads)
                assert got is here[to]
                np.testing.assert_array_equal(got, expected, err_msg=f"{a}, {b} to {to}")


@pytest.mark.parametrize("body", BODIES)
def test_rows_and_gradients(body):
    f = bt.function(body)
    n = 300
    memory = np.random.default_rng(1).normal(size=10 * n)
    for shift in (0, 1, 2, -1, -2, 7):
        for order in (1, -1):

            def rows(memory, shift=shift, order=order):
                return memory[20 : 20 + 2 * n].reshape(n, 2), memory[20 + shift : 20 + shift + 2 * n].reshape(n, 2)[
                    ::order
                ]

            x, _ = rows(memory.copy())
            values, gradients = f.map_value_and_grad(x.copy())
            held = memory.copy()
            x, out = rows(held)
            elsewhere = np.zeros(n)
            f.map_value_and_grad(x, out=(elsewhere, out))
            np.testing.assert_array_equal(elsewhere, values)
            np.testing.assert_array_equal(out, gradients)
            held = memory.copy()
            x, out = rows(held)
            f.map_value_and_grad(x, out=(out[:, 0], np.zeros((n, 2))))
            np.testing.assert_array_equal(out[:, 0], values)


def test_narrow_results_in_the_memory_of_wide_arguments():
    f = bt.function(lambda x: x * 2.0 + 1.0)
    memory = np.linspace(0.0, 1.0, 500)
    expected = f.map(memory.copy()).astype(np.float32)
    out = memory.view(np.float32)[250:750]
    f.map(memory, out=out)
    np.testing.assert_array_equal(out, expected)
    held = array.array("d", [1.0, 2.0, 3.0, 4.0])
    view = memoryview(held)
    f.map(view[:3], out=view[1:])
    assert held.tolist() == [1.0, 3.0, 5.0, 7.0]


def test_results_that_overlap_each_other_are_refused():
    f = bt.function(lambda x, y: x * y)
    n = 40
    memory = np.zeros(4 * n)
    x = np.random.default_rng(3).normal(size=(n, 2))
    before = memory.copy()
    for values, gradients in [
        (memory[:n], memory[: 2 * n].reshape(n, 2)),
        (memory[:n], memory[n - 1 : 3 * n - 1].reshape(n, 2)),
        (memory[: 2 * n : 2], memory[: 2 * n].reshape(n, 2)[::-1]),
    ]:
        with pytest.raises(ValueError, match="overlap"):
            f.map_value_and_grad(x, out=(values, gradients))
        np.testing.assert_array_equal(memory, before)
    with pytest.raises(ValueError, match="overlap"):
        f.map_value_and_grad(x[:, 0], x[:, 1], out=(np.zeros(n), [memory[:n], memory[1 : n + 1]]))
    one = np.lib.stride_tricks.as_strided(memory, shape=(n,), strides=(0,))
    with pytest.raises(ValueError, match="share memory"):
        f.map(x, out=one)
    # Interleaved columns of one array do not overlap.
    table = np.zeros((n, 3))
    f.map_value_and_grad(x, out=(table[:, 0], table[:, 1:]))
    np.testing.assert_array_equal(table, np.column_stack([x[:, 0] * x[:, 1], x[:, 1], x[:, 0]]))


def test_bound_functions_read_all_before_they_write():
    f = bt.function(lambda x: x[0] * x[1] * x[2])
    for shift in (0, 1, 2):
        memory = np.array([2.0, 3.0, 5.0, 7.0, 11.0])
        x, grad = memory[:3], memory[shift : shift + 3]
        bound = f.bind(x, grad)
        assert bound() == 30.0
        np.testing.assert_array_equal(grad, [15.0, 10.0, 6.0])
        expected = f.value_and_grad(x.copy())
        assert bound() == expected[0]
        np.testing.assert_array_equal(grad, expected[1])


def test_oracle_gradients_in_the_memory_of_the_point():
    params = bt.Parameters(dtype="float64", seed=0)
    model = bt.nn.Linear(params, 3, 2)
    oracle = bt.Oracle(model)
    x, y = np.random.default_rng(0).normal(size=(6, 3)), np.array([0, 1, 0, 1, 1, 0])
    point = np.array(params.values)
    loss, grad = oracle(x, y, at=point)
    expected = np.array(grad)
    for start in (0, 1):
        memory = np.zeros(len(point) + 1)
        memory[: len(point)] = point
        out = memory[start : start + len(point)]
        try:
            assert oracle(x, y, at=memory[: len(point)], out=out)[0] == loss
        except ValueError:
            continue
        np.testing.assert_array_equal(out, expected)
