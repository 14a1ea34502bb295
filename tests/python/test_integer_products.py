"""Products and running results of integers and masks stay integers, exact modulo 2**64."""

from __future__ import annotations

import pytest

import burtorch as bt

np = pytest.importorskip("numpy")

RNG = np.random.default_rng(0)
A, B = RNG.integers(-9, 9, (3, 4)), RNG.integers(-9, 9, (4, 2))
BIG = np.array([[2**31 + 1, 1, 7], [3, 2**62, -5], [1, 2**40, 11]])
STACK = RNG.integers(-9, 9, (2, 3, 3))
V = RNG.integers(-9, 9, 4)

CASES = {
    "matmul": (lambda a, b: a @ b, (A, B)),
    "matmul of big ones": (lambda a: a @ a, (BIG,)),
    "matmul of vectors": (lambda a: a @ a, (V,)),
    "matrix and vector": (lambda a, v: a @ v, (A, V)),
    "vector and matrix": (lambda v, b: v @ b, (V, B)),
    "stacks": (lambda s, a: s @ a, (STACK, BIG)),
    "dot": (np.dot, (A, B)),
    "dot of vectors": (np.dot, (V, V)),
    "dot of stacks": (np.dot, (STACK, STACK)),
    "inner": (np.inner, (A, A)),
    "vdot": (np.vdot, (A, A)),
    "tensordot": (lambda a, b: np.tensordot(a, b, 1), (A, B)),
    "tensordot of all": (lambda a, b: np.tensordot(a, b, 2), (A, A)),
    "einsum": (lambda a, b: np.einsum("ij,jk->ki", a, b), (A, B)),
    "einsum of one": (lambda a: np.einsum("ii", a), (BIG,)),
    "einsum of three": (lambda a, b, v: np.einsum("ij,jk,j->k", a, b, v), (A, B, V)),
    "einsum of rows": (lambda a: np.einsum("ij,ij->i", a, a), (A,)),
    "matrix_power": (lambda a: np.linalg.matrix_power(a, 3), (BIG,)),
    "matrix_power 0": (lambda a: np.linalg.matrix_power(a, 0), (BIG,)),
    "cumsum": (lambda a: np.cumsum(a, axis=1), (A,)),
    "cumsum of all": (np.cumsum, (BIG,)),
    "cumprod": (lambda a: np.cumprod(a, axis=0), (BIG,)),
    "cumsum of masks": (lambda a: np.cumsum(a > 0), (A,)),
    "empty": (lambda a: a[:, :0] @ a[:0], (A,)),
    "index": (lambda a: bt.take(np.arange(9), a @ a, axis=0), (np.eye(3, dtype=int),)),
}


@pytest.mark.parametrize("name", CASES)
def test_integers_have_the_results_of_numpy(name):
    f, arguments = CASES[name]
    with np.errstate(over="ignore"):
        expected = f(*arguments)
    for found in (bt.function(f)(*arguments), np.asarray(f(*map(bt.array, arguments)).data)):
        assert np.asarray(found).dtype == np.int64
        assert np.array_equal(found, expected)


def test_integers_of_rows_are_those_of_each():
    found = bt.vmap(lambda a, b: (a @ b, np.cumsum(a)))(STACK, STACK[::-1])
    assert np.array_equal(found[0], STACK @ STACK[::-1])
    assert np.array_equal(found[1], [np.cumsum(a) for a in STACK])


def test_an_integer_beside_a_float_is_a_float():
    x = np.array([0.5, 1.5, 2.5, 3.5])
    f = bt.function(lambda x, v: x @ v + np.einsum("i,i", v, x))
    assert f(x, V) == pytest.approx(2 * (x @ V))
    assert bt.grad(lambda x, v: x @ v)(x, V) == pytest.approx(V)
