"""Selected numbers of array gradients: the bits of the full gradient, at the cost of the selection."""

from __future__ import annotations

import random

import numpy as np
import pytest

import burtorch as bt


def loss(weights, x, scale=2.0):
    hidden = bt.tanh(weights["a"] @ x)
    return ((weights["b"] @ hidden) ** 2).sum() * scale


def arguments(dtype):
    rng = np.random.default_rng(3)
    made = [rng.normal(size=shape).astype(dtype) for shape in ((4, 3), (2, 4), (3, 2))]
    return {"a": made[0], "b": made[1]}, made[2]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_some_numbers_have_the_bits_of_all(dtype):
    f = bt.function(loss)
    weights, x = arguments(dtype)
    value, (by_weights, by_x) = f.value_and_grad(weights, x)
    full = np.concatenate([by_weights["a"].ravel(), by_weights["b"].ravel(), by_x.ravel()])
    assert len(full) == 26
    draw = random.Random(1)
    for share in (0.05, 0.3, 0.9, 1.0):
        for _ in range(5):
            mask = np.array([draw.random() < share for _ in full])
            indices = np.flatnonzero(mask)
            for wanted in (mask, mask.tolist(), indices, indices.tolist() or mask):
                found, some = f.value_and_grad(weights, x, wanted=wanted)
                assert found == value
                assert some.dtype == (full.dtype if mask.any() else some.dtype)
                assert some.tobytes() == full[mask].astype(some.dtype).tobytes()
                assert f.grad(weights, x, wanted=wanted).tobytes() == some.tobytes()
    for start, stop in ((0, 12), (5, 21), (20, 26), (0, 26), (4, 4)):
        some = f.grad(weights, x, wanted=range(start, stop))
        assert some.tolist() == full[start:stop].tolist()
    out = np.zeros(3, dtype)
    assert f.grad(weights, x, wanted=[1, 13, 25], out=out) is out
    assert out.tobytes() == full[[1, 13, 25]].tobytes()


def test_numbers_count_among_arrays():
    f = bt.function(lambda a, x: (x * a).sum() * a)
    x = np.ones((2, 2))
    by_a, by_x = f.grad(3.0, x)
    assert f.grad(3.0, x, wanted=[0, 2]).tolist() == [by_a, by_x[0, 1]]
    assert f.grad(3.0, x, wanted=[0]).tolist() == [by_a]
    value, some = f.value_and_grad(3.0, x, wanted=range(1, 3))
    assert (value, some.tolist()) == (f(3.0, x), by_x.ravel()[:2].tolist())


def test_arguments_without_a_wanted_number_are_left_out():
    """Measured by the size of the program: that of the gradient with respect to one argument, not two."""
    f = bt.function(lambda a, b: (bt.tanh(a @ b) ** 2).sum())
    a, b = np.ones((3, 3)), np.ones((3, 3))
    by_b = f.grad(a, b, argnums=1)
    assert f.grad(a, b, wanted=range(9, 11)).tolist() == by_b.ravel()[:2].tolist()
    by_some = bt.grad(f, argnums=(1,))
    assert by_some(a, b)[0].tobytes() == by_b.tobytes()

    def refuses(a, b):
        return (a * 2.0).sum() + b.sum()

    g = bt.function(refuses)
    # Integers have no gradient, so they cannot be selected.
    k = np.arange(3)
    assert g.grad(k, b, wanted=range(3, 5)).tolist() == [1.0, 1.0]
    with pytest.raises(TypeError):
        g.grad(k, b, wanted=range(2))


@pytest.mark.parametrize(
    ("wanted", "error", "text"),
    [
        (range(20, 30), ValueError, "0 <= start <= stop <= 26"),
        ([2, 1], ValueError, "must ascend"),
        ([26], IndexError, "expected 0 to 25"),
        ([True], ValueError, "one bool for each of 26 numbers"),
        ("a", TypeError, "a range, sorted indices or a mask"),
    ],
)
def test_invalid_sets_are_refused(wanted, error, text):
    f = bt.function(loss)
    with pytest.raises(error, match=text):
        f.grad(*arguments("float64"), wanted=wanted)
    with pytest.raises(ValueError, match="pass only one"):
        f.grad(*arguments("float64"), wanted=[1], argnums=0)


def test_arrays_and_sparse_rows_are_refused():
    weights, x = arguments("float64")
    f = bt.function(loss)
    outer = bt.function(lambda w, x: f.grad(w, x, wanted=[1]).sum())
    with pytest.raises(TypeError, match="use argnums"):
        outer(weights, x)
    scipy = pytest.importorskip("scipy.sparse")
    g = bt.function(lambda w, rows: (rows @ w).sum())
    with pytest.raises(TypeError, match="by argnums"):
        g.grad(np.ones(3), scipy.csr_matrix(np.eye(3)), wanted=[1])


def test_out_that_does_not_fit_is_refused():
    f = bt.function(loss)
    out = np.full(2, 7.0)
    with pytest.raises(ValueError, match="out must have the shape"):
        f.grad(*arguments("float64"), wanted=[1, 2, 3], out=out)
    assert out.tolist() == [7.0, 7.0]
