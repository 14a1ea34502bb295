"""Memory used by a Graph or Parameters belongs to them as long as they exist: a second claim is refused."""

from __future__ import annotations

import array
import ctypes
import gc
import mmap
import random

import numpy as np
import pytest

import burtorch as bt

N = 100
BYTES = bt.bytes_needed(N)


def memories():
    """Memory of each kind, and another view of it."""
    plain = bytearray(2 * BYTES)
    yield "bytearray", plain, plain
    yield "memoryview", plain, memoryview(plain)
    numbers = np.zeros(BYTES)
    yield "array", numbers, numbers
    yield "a view of an array", numbers, numbers[1:]
    yield "another type", numbers, numbers.view(np.uint8)
    yield "two overlapping parts", memoryview(plain)[:-64], memoryview(plain)[64:]
    yield "reshaped", numbers, numbers.reshape(1, -1)
    of_python = array.array("d", bytes(8 * BYTES))
    yield "array.array", of_python, np.frombuffer(of_python)
    own = (ctypes.c_uint8 * (2 * BYTES))()
    yield "ctypes", memoryview(own).cast("B"), np.frombuffer(own, np.uint8)
    mapped = mmap.mmap(-1, 2 * BYTES)
    yield "mmap", mapped, np.frombuffer(mapped, np.uint8)


KINDS = {name: (first, second) for name, first, second in memories()}


def makers():
    def parameters(memory):
        numbers = np.frombuffer(memory, np.float64, count=len(memoryview(memory).cast("B")) // 8)
        return bt.Parameters(dtype="float64", values=numbers, grads=np.zeros(len(numbers)))

    def gradients(memory):
        numbers = np.frombuffer(memory, np.float64, count=len(memoryview(memory).cast("B")) // 8)
        return bt.Parameters(dtype="float64", values=np.zeros(len(numbers)), grads=numbers)

    return {
        "graph": lambda memory: bt.Graph(buffer=memory),
        "float32 graph": lambda memory: bt.Graph(buffer=memory, dtype="float32", capacity=N),
        "values": parameters,
        "gradients": gradients,
    }


@pytest.mark.parametrize("second", makers())
@pytest.mark.parametrize("first", makers())
@pytest.mark.parametrize("kind", KINDS)
def test_the_second_is_refused_as_long_as_the_first_lives(kind, first, second):
    one, two = KINDS[kind]
    gc.collect()
    owner = makers()[first](one)
    for _ in range(2):
        with pytest.raises(bt.BusyError, match=r"use the memory of (buffer|values|grads)"):
            makers()[second](two)
    if isinstance(owner, bt.Graph):
        values = [owner.value(float(k)) for k in range(10)]
        (values[0] * values[1]).backward()
        assert [v.data for v in values] == list(map(float, range(10)))
        del values
    del owner
    gc.collect()
    makers()[second](two)
    gc.collect()


def test_adjacent_parts_are_two_memories():
    memory = memoryview(bytearray(2 * BYTES))
    a, b = bt.Graph(buffer=memory[:BYTES]), bt.Graph(buffer=memory[BYTES:])
    x, y = a.value(2.0), b.value(3.0)
    (x * x).backward()
    (y * y).backward()
    assert (x.grad, y.grad) == (4.0, 6.0)


def test_memory_kept_alive_by_a_value_or_an_array_is_in_use():
    memory = bytearray(BYTES)
    x = bt.Graph(buffer=memory).value(1.0)
    with pytest.raises(bt.BusyError):
        bt.Graph(buffer=memory)
    part = x.graph.values[0:1]
    del x
    with pytest.raises(bt.BusyError):
        bt.Graph(buffer=memory)
    assert list(part) == [1.0]
    del part
    bt.Graph(buffer=memory)


def test_a_refusal_claims_nothing():
    memory = bytearray(16 * BYTES)
    for wrong in ({"dtype": "int"}, {"capacity": 10**6}, {"capacity": -1}):
        with pytest.raises((ValueError, TypeError, OverflowError, MemoryError)):
            bt.Graph(buffer=memory, **wrong)
    numbers = np.frombuffer(memory, np.float64)
    with pytest.raises(ValueError, match="apart"):
        bt.Parameters(dtype="float64", values=numbers[:8], grads=numbers[4:12])
    taken = bt.Graph(buffer=memoryview(memory)[len(memory) // 2 :])
    with pytest.raises(bt.BusyError):
        bt.Parameters(dtype="float64", values=numbers[:8], grads=numbers[-8:])
    del taken
    bt.Parameters(dtype="float64", values=numbers[:8], grads=numbers[-8:])
    gc.collect()
    bt.Graph(buffer=memory)


@pytest.mark.parametrize("of_grads", [False, True])
def test_memory_of_our_own_that_arrays_share_is_not_claimed(of_grads):
    params = bt.Parameters(dtype="float64")
    params.tensor(BYTES)
    mine = params.grads if of_grads else params.values
    fixed = bt.Graph(capacity=BYTES, fixed=True)
    v = fixed.vector(np.zeros(BYTES))
    theirs = v.grad if of_grads else v.data
    for shared in (mine, np.asarray(mine), np.asarray(mine)[8:], theirs, np.asarray(theirs), np.asarray(theirs)[8:-8]):
        with pytest.raises(bt.BusyError):
            bt.Graph(buffer=shared)
        with pytest.raises(bt.BusyError):
            bt.Parameters(dtype="float64", values=np.zeros(len(shared)), grads=shared)
    v.data = 1.0
    assert set(v.data) == {1.0}


def test_memory_that_parameters_have_left_is_free():
    for _ in range(20):
        params = bt.Parameters(dtype="float64")
        params.tensor(1000)
        np.asarray(params.values)[:] = 1.0
        params.tensor(100_000)
        memory = np.zeros(BYTES)
        assert bt.Graph(buffer=memory).capacity > N
        del params


def test_any_parts_of_one_memory():
    rng = random.Random(1)
    memory = memoryview(bytearray(1 << 16))
    living = []
    for _ in range(2000):
        start, n = rng.randrange(60_000), rng.randrange(1, 4000)
        free = all(start + n <= a or b <= start for a, b, _ in living)
        try:
            made = bt.Graph(buffer=memory[start : start + n])
        except bt.BusyError:
            assert not free
        except ValueError:
            assert free  # too small, or not aligned
        else:
            assert free
            living.append((start, start + n, made))
        if len(living) > rng.randrange(12):
            del living[rng.randrange(len(living))]
        made = None
