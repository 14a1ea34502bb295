"""Second derivatives of every op, and all derivatives of random programs, against mpmath."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

import burtorch as bt

CASES = runpy.run_path(str(Path(__file__).with_name("derivative_cases.py")))
DATA = Path(__file__).resolve().parents[1] / "data"


def oracle():
    """By name: the inputs, then value, gradient and Hessian."""
    table = {}
    for line in (DATA / "derivatives_reference.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        inputs, results = line.split(" | ")
        kind, which, *x = inputs.split()
        numbers = [float(v) for v in results.split()]
        n = len(x)
        hessian = np.zeros((n, n))
        hessian[np.triu_indices(n)] = numbers[1 + n :]
        hessian = np.triu(hessian) + np.triu(hessian, 1).T
        table[f"{kind} {which}"] = ([float.fromhex(v) for v in x], numbers[0], np.array(numbers[1 : 1 + n]), hessian)
    return table


def test_every_op_of_the_table_is_among_the_cases():
    lines = (DATA / "ops_reference.txt").read_text().splitlines()
    names = {line.split()[1] for line in lines if not line.startswith("#")}
    assert len(names) > 40
    assert names <= set(CASES["OPS"])


def test_derivatives_against_mpmath():
    expected = oracle()
    n_cases = 0
    for name, body, x in CASES["cases"]():
        inputs, value, gradient, hessian = expected.pop(name)
        assert tuple(inputs) == tuple(x), name
        f = bt.function(lambda x, body=body: body(bt, *(x[k] for k in range(len(x)))))
        x, n = np.array(x), len(x)
        v = np.array([1.0, -0.5, 0.25, 2.0, -1.5][:n])
        # A single op is accurate to a few units in the last place, however small; a program, relative to its largest
        # entry.
        alone = not name.startswith("program")
        close = {"rtol": 2e-14 if alone else 1e-11, "atol": 0.0 if alone else 1e-12 * max(1.0, np.abs(hessian).max())}
        sums = {"rtol": close["rtol"], "atol": 1e-12 * max(1.0, np.abs(hessian).max(), np.abs(gradient).max())}
        message = {"err_msg": name}
        np.testing.assert_allclose(f(x), value, **close, **message)
        np.testing.assert_allclose(f.grad(x), gradient, **close, **message)
        np.testing.assert_allclose(f.hessian(x), hessian, **close, **message)
        np.testing.assert_allclose(f.sparse_hessian(x).toarray(), hessian, **close, **message)
        np.testing.assert_allclose(f.jacobian(x), gradient, **close, **message)
        np.testing.assert_allclose(f.hvp(x, v), hessian @ v, **sums, **message)
        np.testing.assert_allclose(f.jvp(x, v)[1], gradient @ v, **sums, **message)
        assert (hessian[f.hessian_sparsity(x).toarray() == 0] == 0).all(), name
        n_cases += 1
    assert n_cases > 130
    assert not expected


def test_the_comparison_notices_a_wrong_derivative():
    _, _, gradient, _ = oracle()["tanh 0"]
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(gradient * (1.0 + 1e-12), gradient, rtol=2e-14)
