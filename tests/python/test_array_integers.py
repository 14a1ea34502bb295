"""Integers of Arrays are signed 64-bit numbers: overflow is refused, and never wraps."""

from __future__ import annotations

import pytest

import burtorch as bt

np = pytest.importorskip("numpy")


LARGE = 2**63 + 5
BEYOND = np.array([LARGE, 1], np.uint64)
X = np.arange(4.0)
WITH_LARGE = {
    "argument of a function": lambda: bt.function(lambda i, x: bt.sum(i * 1.0) + bt.sum(x))(BEYOND, np.ones((2, 2))),
    "rows": lambda: bt.vmap(lambda i: i * 2)(BEYOND),
    "of another byte order": lambda: bt.vmap(lambda i: i * 2)(BEYOND.astype(">u8")),
    "strided": lambda: bt.vmap(lambda i: i * 2)(np.repeat(BEYOND, 2)[::2]),
    "beside what is differentiated": lambda: bt.grad(lambda x, i: bt.sum(x * i))(np.ones(2), BEYOND),
    "constant": lambda: bt.vmap(lambda x: bt.sum(x * BEYOND))(np.ones((2, 2))),
    "gather": lambda: bt.grad(lambda x, i: bt.sum(np.take(x, i)))(X, BEYOND),
    "index": lambda: bt.grad(lambda x, i: bt.sum(x[i]))(X, BEYOND),
    "slices of a loop": lambda: bt.scan(lambda c, i: (c + i, i), 0.0, BEYOND),
    "number": lambda: bt.grad(lambda x, i: x * i)(1.0, np.uint64(LARGE)),
    "carry": lambda: bt.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1]), (np.uint64(LARGE), 1.0)),
}


@pytest.mark.parametrize("name", WITH_LARGE)
def test_integers_beyond_64_bits_with_a_sign_are_refused(name):
    with pytest.raises(OverflowError):
        WITH_LARGE[name]()


@pytest.mark.parametrize("index", [LARGE, np.uint64(LARGE), -LARGE, BEYOND, [LARGE, 1]])
def test_indices_beyond_64_bits_are_refused(index):
    with pytest.raises((IndexError, OverflowError)):
        bt.vmap(lambda x: bt.sum(x[index]))(X[None])


def test_unsigned_integers_within_the_range_are_integers():
    for dtype in ("uint8", "uint16", "uint32", "uint64", ">u8", ">i4", "int64"):
        numbers = np.array([3, 1], dtype)
        assert bt.vmap(lambda i: i * 2)(numbers).tolist() == [6, 2]
        assert bt.grad(lambda x, i: bt.sum(x[i] * i))(X, numbers).tolist() == [0, 1, 0, 3]
    largest = np.array([2**63 - 1, 0], np.uint64)
    assert bt.vmap(lambda i: i * 1)(largest).tolist() == [2**63 - 1, 0]
