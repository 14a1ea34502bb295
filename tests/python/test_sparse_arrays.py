"""Sparse derivatives of functions of arrays: patterns, entries, and what they cost."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import burtorch as bt

sys.path.insert(0, str(Path(__file__).parent))
from array_programs import Program
from imaginary_steps import UnsuitableError

sparse = pytest.importorskip("scipy.sparse")

N = 24
MATRIX = np.diag(np.full(N, 2.0)) - np.diag(np.ones(N - 1), 1) - np.diag(np.ones(N - 1), -1)
INDEX = np.arange(N)[::-1].copy()
MASK = np.arange(N) % 3 == 0
TABLE = np.array([3, 3, 0, 5])


def by_step(u):
    return bt.fori_loop(1, N, lambda k, a: a + u[k] * u[k - 1], 0.0)


def pairs_by_step(u):
    return bt.scan(lambda c, k: (c, u[k] * u[k - 1]), 0.0, np.arange(1, N))[1]


def stencil(u):
    g = u.reshape(4, 6)
    inner = g[1:-1, 1:-1] - 0.25 * (g[:-2, 1:-1] + g[2:, 1:-1] + g[1:-1, :-2] + g[1:-1, 2:])
    return inner - bt.exp(g[1:-1, 1:-1])


def rowwise(u):
    return bt.vmap(lambda row: bt.sum(row**2) * row)(u.reshape(8, 3))


# Bodies, with the number of entries that can differ from 0.
JACOBIANS = {
    "elementwise": (lambda u: bt.sin(u) * u, N),
    "constant": (lambda u: u * 0 + np.round(u), N),
    "diff": (lambda u: np.diff(u) ** 2, 2 * N - 2),
    "roll": (lambda u: np.roll(u, 1) * u, 2 * N),
    "where": (lambda u: np.where(u > 0, u**2, -u), N),
    "where by a constant mask": (lambda u: np.where(MASK, u**2, np.roll(u, 1)), N),
    "flip": (lambda u: np.flip(u) * u, 2 * N),
    "index": (lambda u: u[INDEX] * u, 2 * N),
    "repeated index": (lambda u: u[TABLE] ** 2, 4),
    "two indices": (lambda u: u.reshape(4, 6)[np.arange(3), [5, 0, 2]] ** 2, 3),
    "mask as an index": (lambda u: u[MASK] ** 3, 8),
    "pad": (lambda u: np.pad(u, 1)[2:] * u, 2 * N - 1),
    "grid": (lambda u: u.reshape(4, 6)[1:] * u.reshape(4, 6)[:-1], 36),
    "five points": (stencil, 8 * 5),
    "stack": (lambda u: bt.stack([u, u**2]), 2 * N),
    "concatenate": (lambda u: np.concatenate([u[:3] * u[3:6], u]), 6 + N),
    "transposed": (lambda u: u.reshape(4, 6).T * 2, N),
    "matrix": (lambda u: MATRIX @ u, 3 * N - 2),
    "matrix on the right": (lambda u: u @ MATRIX, 3 * N - 2),
    "rows of a matrix": (lambda u: (u.reshape(4, 6) ** 2).sum(axis=1), N),
    "largest": (lambda u: u.reshape(4, 6).max(axis=0), N),
    "softmax": (lambda u: bt.softmax(u.reshape(4, 6), axis=1), 4 * 36),
    "norms": (lambda u: bt.norm(u.reshape(4, 6), axis=1), N),
    "products": (lambda u: u.reshape(8, 3).prod(axis=1), N),
    "running sums": (lambda u: np.cumsum(u.reshape(4, 6), axis=1), 4 * 21),
    "running products": (lambda u: np.cumprod(u.reshape(8, 3), axis=1), 8 * 6),
    "batched product": (lambda u: u.reshape(4, 2, 3) @ u.reshape(4, 3, 2), 4 * 18),
    "vmap": (lambda u: bt.vmap(lambda t: t**2)(u), N),
    "rows": (rowwise, 8 * 9),
    "scan": (lambda u: bt.scan(lambda c, t: (c, t * t), 0.0, u)[1], N),
    "scan with indices": (pairs_by_step, 2 * (N - 1)),
    "reversed scan": (lambda u: bt.scan(lambda c, t: (c + t, c * t), 0.0, u[:4], reverse=True)[1], 10),
    "cond": (lambda u: bt.cond(u[0] > 0, lambda v: v**2, lambda v: np.roll(v, 1), u), 2 * N),
    "checkpoint": (lambda u: bt.checkpoint(lambda v: v * bt.exp(v))(u), N),
    "einsum": (lambda u: np.einsum("ij,ij->i", u.reshape(4, 6), u.reshape(4, 6)), N),
    "one row": (lambda u: (u**2).sum(), N),
    "solve": (lambda u: np.linalg.solve(MATRIX, u.reshape(N, 1)), N * N),
    "sorted": (lambda u: np.sort(u.reshape(8, 3), axis=1), 8 * 9),
    "while": (lambda u: bt.while_loop(lambda c: bt.sum(c) < 1e3, lambda c: c * 2.0, u**2), N),
    "several results": (lambda u: (u[1:] * u[:-1], {"a": u[0], "b": u**2}), 2 * (N - 1) + 1 + N),
    "empty": (lambda u: u[:0], 0),
}
HESSIANS = {
    "Rosenbrock": (lambda u: (100.0 * (u[1:] - u[:-1] ** 2) ** 2 + (1 - u[:-1]) ** 2).sum(), 3 * N - 2),
    "roll": (lambda u: (np.roll(u, 1) * u**2).sum(), 3 * N),
    "squares": (lambda u: (u**2).sum(), N),
    "linear": (lambda u: (3.0 * u).sum() + u[0], 0),
    "differences": (lambda u: np.sum(np.diff(u) ** 4), 3 * N - 2),
    "grid": (lambda u: np.sum(np.diff(u.reshape(4, 6), axis=0) ** 4), N + 2 * 18),
    "by steps": (by_step, 2 * (N - 1)),
    "scan": (lambda u: bt.scan(lambda c, t: (c + t**3, None), 0.0, u)[0], N),
    "index": (lambda u: (u[INDEX] * u).sum(), N),
    "where": (lambda u: np.where(u > 0, u**2, u).sum(), N),
    "parts": (lambda u: bt.exp(u[:3].sum()) + (u[3:] ** 2).sum(), 9 + N - 3),
    "vmap": (lambda u: bt.vmap(lambda row: row[0] * row[1] ** 2)(u.reshape(12, 2)).sum(), 12 * 3),
    "all": (lambda u: (u**2).sum() ** 2, N * N),
}


def points():
    rng = np.random.default_rng(0)
    return [rng.normal(size=N) + 0.1, -rng.normal(size=N)]


def flat(f, u):
    """All entries of the Jacobian, results one after the other."""
    leaves = []

    def walk(x):
        if isinstance(x, dict):
            [walk(x[key]) for key in sorted(x)]
        elif isinstance(x, (tuple, list)):
            [walk(item) for item in x]
        else:
            leaves.append(np.reshape(x, (-1, N)))

    walk(bt.jacobian(f)(u))
    return np.concatenate(leaves)


@pytest.mark.parametrize("name", JACOBIANS)
def test_jacobian(name):
    body, entries = JACOBIANS[name]
    f = bt.function(body)
    for u in points():
        found = f.sparse_jacobian(u)
        assert isinstance(found, sparse.csr_matrix)
        assert found.has_sorted_indices
        np.testing.assert_array_equal(found.toarray(), flat(body, u))
        pattern = f.jacobian_sparsity(u)
        assert pattern.nnz == found.nnz
        assert set(pattern.data) <= {1.0}
        assert np.array_equal(pattern.indices, found.indices)
        assert np.array_equal(pattern.indptr, found.indptr)
    assert found.nnz == entries


@pytest.mark.parametrize("name", HESSIANS)
def test_hessian(name):
    body, entries = HESSIANS[name]
    f = bt.function(body)
    for u in points():
        found = f.sparse_hessian(u)
        dense = bt.hessian(body)(u)
        np.testing.assert_allclose(found.toarray(), dense, rtol=1e-13, atol=1e-13 * np.abs(dense).max())
        pattern = f.hessian_sparsity(u)
        assert np.array_equal(pattern.indices, found.indices)
        assert (pattern != pattern.T).nnz == 0
    assert found.nnz == entries


def test_a_known_index_is_used_and_an_integer_argument_may_be_any():
    u, k = points()[0], np.array([1, 2])
    body = bt.function(lambda u, k: u[k] ** 2)
    assert body.jacobian_sparsity(u, k, argnums=0).nnz == 2 * N
    found = body.sparse_jacobian(u, k, argnums=0).toarray()
    again = body.sparse_jacobian(u, np.array([5, -1]), argnums=0).toarray()
    assert found[0, 1] == 2 * u[1]
    assert again[0, 5] == 2 * u[5]
    assert again[1, N - 1] == 2 * u[-1]


def test_a_rule_of_a_primitive_may_read_all():
    @bt.primitive
    def rounded(x):
        return np.round(x)

    rounded.defvjp(lambda g, y, x: g)
    f = bt.function(lambda u: rounded(u)[:2])
    assert f.sparse_jacobian(np.linspace(0.0, 1.0, 3)).toarray().tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]


def test_several_arguments():
    u, v = points()
    f = bt.function(lambda u, v: np.roll(u, 1) * v)
    both = f.sparse_jacobian(u, v)
    assert both.shape == (N, 2 * N)
    assert both.nnz == 2 * N
    by_v = f.sparse_jacobian(u, v, argnums=1)
    assert by_v.shape == (N, N)
    np.testing.assert_array_equal(by_v.toarray(), np.diag(np.roll(u, 1)))
    np.testing.assert_array_equal(both.toarray()[:, N:], by_v.toarray())
    hessian = bt.function(lambda u, v: (u * v**2).sum()).sparse_hessian(u, v)
    assert hessian.shape == (2 * N, 2 * N)
    assert hessian.nnz == 3 * N
    matrix = bt.function(lambda w: (w @ w.T)[0]).sparse_jacobian(u.reshape(4, 6))
    assert matrix.shape == (4, N)
    assert matrix.nnz == 6 + 3 * 12


def test_infinite_derivatives_stay_in_their_entries():
    f = bt.function(lambda u: np.sqrt(np.where(MASK, u, np.roll(u, 1))) + 0 * u)
    u = np.arange(N) * 1.0
    found = f.sparse_jacobian(u).toarray()
    assert np.isinf(found[0, 0])
    assert np.isfinite(found[1:, 2:]).all()


def test_large_stencils_are_fast_and_small():
    n = 30_000
    f = bt.function(lambda u: np.roll(u, 1) - 2 * u + np.roll(u, -1) + bt.exp(u))
    u = np.linspace(0, 1, n)
    found = f.sparse_jacobian(u)
    assert found.nnz == 3 * n
    again = f.sparse_jacobian(2 * u, out=found)
    assert again is found
    np.testing.assert_allclose(found.diagonal(), np.exp(2 * u) - 2, rtol=0, atol=4e-15)
    with pytest.raises(ValueError, match="pattern"):
        f.sparse_jacobian(u[:-1], out=found)


def test_float32_and_constants_that_change():
    factor = [2.0]
    f = bt.function(lambda u: np.roll(u, 1) * factor[0], dtype="float32")
    u = np.arange(4, dtype=np.float32)
    assert f.sparse_jacobian(u).toarray()[1, 0] == 2
    factor[0] = 3.0
    assert f.sparse_jacobian(u).toarray()[1, 0] == 3


def test_results_must_be_floats():
    with pytest.raises(bt.TraceError, match="floats"):
        bt.function(lambda u: u > np.roll(u, 1)).sparse_jacobian(np.ones(3))
    with pytest.raises(bt.TraceError, match="one float of shape"):
        bt.function(lambda u: np.roll(u, 1)).sparse_hessian(np.ones(3))


def test_long_arguments_are_traced_with_arrays():
    def chain(u):
        return np.sum(100.0 * (u[1:] - u[:-1] ** 2) ** 2 + (1 - u[:-1]) ** 2)

    for n in (1000, 4095, 4096, 20_000):
        f = bt.function(chain)
        u = np.linspace(-1, 1, n)
        found = f.sparse_hessian(u)
        assert found.nnz == 3 * n - 2
        if n > 4000:
            continue
        np.testing.assert_allclose(found.toarray(), bt.hessian(chain)(u), rtol=1e-12, atol=1e-9)
    f(np.ones(1))
    assert f.sparse_hessian(np.linspace(-1, 1, 5000)).nnz == 3 * 5000 - 2


def test_a_body_of_single_numbers_stays_one_of_values():
    f = bt.function(lambda u: sum((u[i + 1] - u[i]) ** 2 for i in range(len(u) - 1)))
    assert f.sparse_hessian(np.zeros(5000)).nnz == 3 * 5000 - 2


def random_program(seed):
    """A program of arrays, its arguments, and the numbers of all its values."""
    with np.errstate(all="ignore"):
        program = Program(f"sparse {seed}")

    def joined(*arguments):
        values = list(arguments)
        for step, of in program.steps:
            values.append(program.applied(step, of, values, program.indices))
        return np.concatenate([np.ravel(value) for value in values])

    return joined, program.arguments


def whole(blocks, arguments, rows):
    return np.concatenate([np.reshape(b, (rows, a.size)) for b, a in zip(blocks, arguments, strict=True)], axis=1)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(25))
def test_random_programs(seed):
    try:
        joined, x = random_program(seed)
        with np.errstate(all="ignore"):
            by = tuple(range(len(x)))
            f = bt.function(joined)
            n = f(*x).size
            dense = whole(bt.jacobian(joined, argnums=by)(*x), x, n)
            found = f.sparse_jacobian(*x)
            np.testing.assert_allclose(found.toarray(), dense, rtol=1e-9, atol=1e-9 * max(1.0, np.abs(dense).max()))

            def total(*x):
                return np.sum(np.tanh(0.3 * joined(*x)) * np.cos(np.arange(n)))

            hessian = bt.hessian(total, argnums=by)(*x)
            dense = np.concatenate([whole(row, x, a.size) for row, a in zip(hessian, x, strict=True)])
            found = bt.function(total).sparse_hessian(*x)
            np.testing.assert_allclose(found.toarray(), dense, rtol=1e-9, atol=1e-9 * max(1.0, np.abs(dense).max()))
    except (UnsuitableError, bt.TraceError):
        # Bodies that need the numbers of Values.
        pytest.skip("not a program of arrays alone")


def arrow(u):
    """Numbers that share the first one."""
    return bt.sum((u[1:] - u[:-1]) ** 4) + bt.sum(bt.exp(u) * u[0])


def arrow_of_values(u):
    all_of_them = sum(bt.exp(x) * u[0] for x in u)
    return sum((u[i + 1] - u[i]) ** 4 for i in range(len(u) - 1)) + all_of_them


LONG_ROWS = {
    "row": lambda u: np.append(u**2, (u**2).sum()),
    "row and column": lambda u: np.append(u**2 * u[0], (u**2).sum()),
    "rows between": lambda u: np.concatenate([[(u**2).sum()], u**3, [(u**3).sum(), u[0]], np.roll(u, 2)]),
    "columns": lambda u: u**2 * u[0] * bt.exp(u[-1]),
    "a row of most": lambda u: np.append(np.roll(u, 1) * 2, (u[:90] ** 2).sum()),
    "rows of some, one of all": lambda u: np.append(np.cumsum(u.reshape(20, 5) ** 2, axis=1), u.sum()),
    "all": lambda u: u**2 * u.sum(),
    "few of all": lambda u: np.stack([u.sum(), (u**2).sum()]),
}
LONG_COLUMNS = {
    "shared factor": lambda u: (np.diff(u) ** 4).sum() + (bt.exp(u) * u[0]).sum(),
    "shared factor at the end": lambda u: (bt.exp(u[:-1]) * u[-1]).sum(),
    "two shared factors": lambda u: ((u**3) * u[3] * u[7]).sum(),
    "a multiplier": lambda u: (u[:-1] ** 4).sum() + u[-1] * ((u[:-1] ** 2).sum() - 1.0),
    "many": lambda u: (u[:30].sum() * u**2).sum(),
}


@pytest.mark.parametrize("name", [*LONG_ROWS, *LONG_COLUMNS])
def test_rows_that_need_all_columns(name):
    u = np.linspace(0.3, 1.7, 100)
    if name in LONG_ROWS:
        body = LONG_ROWS[name]
        found, dense = bt.function(body).sparse_jacobian(u), bt.jacobian(body)(u).reshape(-1, 100)
    else:
        body = LONG_COLUMNS[name]
        found, dense = bt.function(body).sparse_hessian(u), bt.hessian(body)(u)
    np.testing.assert_allclose(found.toarray(), dense, rtol=1e-12, atol=1e-13 * np.abs(dense).max())
    assert found.nnz == (dense != 0).sum()


@pytest.mark.parametrize("body", [arrow, arrow_of_values])
def test_one_shared_number_takes_few_directions(body):
    """Memory of n numbers, not of n^2."""
    f = bt.function(body)
    for n in (3, 40, 200):
        u = np.linspace(0.1, 1.0, n)
        for _ in range(2):
            found = f.sparse_hessian(u)
            dense = bt.hessian(arrow)(u)
            np.testing.assert_allclose(found.toarray(), dense, rtol=1e-12, atol=1e-12 * np.abs(dense).max())
    n = 20_000 if body is arrow else 3000
    u = np.linspace(0.1, 1.0, n)
    found = f.sparse_hessian(u)
    assert found.nnz == 3 * n - 2 + 2 * (n - 2)
    for k in (1, n // 2, n - 1):
        np.testing.assert_allclose(found[0, k], np.exp(u[k]) + (k == 1) * -12 * (u[1] - u[0]) ** 2, rtol=1e-12)
        assert found[0, k] == pytest.approx(found[k, 0], rel=1e-14)


def test_rows_of_values_that_need_all():
    body = bt.function(lambda u: [sum(x * x for x in u), *(x * u[0] for x in u), bt.exp(u[1])])
    for n in (2, 3, 50, 100):
        u = np.linspace(0.5, 2.0, n)
        expected = np.vstack([2 * u, np.diag(np.full(n, u[0])), np.zeros(n)])
        expected[1 : n + 1, 0] += u
        expected[n + 1, 1] = np.exp(u[1])
        for _ in range(3):
            np.testing.assert_allclose(body.sparse_jacobian(u).toarray(), expected, rtol=1e-14)
    infinite = bt.function(lambda u: [sum(bt.sqrt(x) for x in u), *(x * 1.0 for x in u)])
    for n in (6, 100):
        found = infinite.sparse_jacobian(np.array([0.0, 4.0] + [1.0] * (n - 2))).toarray()
        assert found[0].tolist() == [np.inf, 0.25] + [0.5] * (n - 2)
        assert found[1:].tolist() == np.eye(n).tolist()
