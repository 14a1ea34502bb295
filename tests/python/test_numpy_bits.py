"""NumPy's bit operations on Arrays of integers and masks: the integers of NumPy, at all signs and shifts."""

from __future__ import annotations

import numpy as np
import pytest

import burtorch as bt

RNG = np.random.default_rng(5)
ENDS = np.array([0, 1, -1, 2, 7, -8, 255, 2**31, -(2**31), 2**53 + 1, 2**62, 2**63 - 1, -(2**63), -(2**63) + 1])
WORDS = np.concatenate([ENDS, RNG.integers(-(2**63), 2**63 - 1, 50), RNG.integers(-99, 99, 20)])
X, Y = (x.ravel() for x in np.meshgrid(WORDS, WORDS[::3]))
SHIFTS = np.array([*range(66), 100, -1, -64, 2**40])
MASK = np.array([True, False, True])
TWO = ["bitwise_and", "bitwise_or", "bitwise_xor"]


def in_all_ways(f, *arrays):
    """Eagerly, traced, and traced beside numbers that are known."""
    expected = f(*arrays)
    found = [f(*map(bt.array, arrays)).data, bt.function(f)(*arrays)]
    if len(arrays) == 2:
        x, y = arrays
        found += [f(bt.array(x), y).data, f(x, bt.array(y)).data, bt.function(lambda x: f(x, y))(x)]
        found += [bt.vmap(f)(*np.broadcast_arrays(x, y))]
    for one in found:
        assert one.dtype == (bool if expected.dtype == bool else "int64")
        assert one.shape == expected.shape
        assert (one == expected).all()


@pytest.mark.parametrize("name", TWO)
def test_two_words(name):
    f = getattr(np, name)
    in_all_ways(f, X, Y)
    in_all_ways(f, X.reshape(2, -1)[:, :7], Y[:7])
    in_all_ways(f, np.array([[1], [-3]], dtype="int32"), np.arange(4, dtype="uint8"))
    for word in (0, 1, 2, 3, 4, 5, 6, 8, 255, 0xFF00, 2**62, 2**62 - 1, 2**62 + 1, 2**63 - 1, -1, -6, -(2**63), True):
        in_all_ways(lambda x, word=word: f(x, word), WORDS)
        in_all_ways(lambda x, word=word: f(np.int64(word), x), WORDS)


@pytest.mark.parametrize("f", [np.left_shift, np.right_shift, np.bitwise_left_shift, np.bitwise_right_shift])
def test_shifts(f):
    in_all_ways(f, *(x.ravel() for x in np.meshgrid(WORDS, SHIFTS)))
    in_all_ways(lambda x: f(x, 3), WORDS)
    in_all_ways(lambda x: f(1, x), SHIFTS)


@pytest.mark.parametrize("name", ["invert", "bitwise_not", "bitwise_count"])
def test_one_word(name):
    in_all_ways(lambda x: getattr(np, name)(x), WORDS)


@pytest.mark.parametrize("name", TWO)
def test_masks_stay_masks_and_beside_integers_are_0_and_1(name):
    f = getattr(np, name)
    in_all_ways(f, MASK, MASK[::-1].copy())
    in_all_ways(lambda x: f(x, True), MASK)
    in_all_ways(f, MASK, np.array([1, 2, 3]))
    in_all_ways(lambda x: f(x, 3), MASK)
    in_all_ways(lambda x: f(x, MASK), np.array([1, 2, 3]))
    in_all_ways(np.invert, MASK)
    # The operators of NumPy's integers are its ufuncs.
    in_all_ways(lambda x: np.int64(6) | x, MASK)
    in_all_ways(lambda x: np.array([5, 6, 7]) ^ x, MASK)
    in_all_ways(lambda x: np.int64(6) >> x, np.array([0, 1, 2]))


def test_bits_choose_what_is_differentiated():
    i, x = np.arange(6), np.linspace(0.5, 3.0, 6)
    assert bt.grad(lambda x, i: (np.where(np.bitwise_and(i, 1) == 1, x, 2.0) ** 2).sum())(x, i).tolist() == [
        0, 2.0, 0, 4.0, 0, 6.0]  # fmt: skip
    assert bt.grad(lambda x, i: (x[np.right_shift(i, 1)] ** 2).sum())(x, i).tolist() == [2.0, 4.0, 6.0, 0, 0, 0]


@pytest.mark.parametrize("name", [*TWO, "left_shift", "right_shift", "invert", "bitwise_count"])
def test_floats_have_no_bits(name):
    f = getattr(np, name)
    for x in (bt.array([1.0, 2.0]), bt.array(np.zeros((0, 2)))):
        with pytest.raises(TypeError, match="integers or masks"):
            f(*[x] * f.nin)
        with pytest.raises(TypeError, match="integers or masks"):
            f(*[x, 1][: f.nin])


@pytest.mark.parametrize(
    "f",
    [lambda x, y: x & y, lambda x, y: x | y, lambda x, y: x ^ y, lambda x, y: ~x ^ y, lambda x, y: (x & y) | (x ^ 1)],
)
def test_operators_of_integers(f):
    in_all_ways(f, X, Y)
    in_all_ways(lambda x: f(x, 5), WORDS)
    in_all_ways(f, MASK, MASK[::-1].copy())
    with pytest.raises(TypeError, match="masks, such as results of comparisons, or integers"):
        f(bt.array([1.0, 2.0]), bt.array([1.0, 2.0]))


def test_operators_of_shifts():
    in_all_ways(lambda x, y: x << y, *(x.ravel() for x in np.meshgrid(WORDS, SHIFTS[SHIFTS >= 0])))
    in_all_ways(lambda x: (x >> 3) + (x << 2), WORDS)
    in_all_ways(lambda x: (3 << x) + (10**6 >> x), np.arange(5))
