"""Logistic regression on sparse rows, in four ways that agree: an oracle and a total, with dense and sparse rows.

The model is written for one row. `bt.Oracle` and `bt.vmap(..., reduce="mean")` trace it to a program that processes a
batch in blocks, and returns loss and gradient in one pass over the data. Sparse rows are SciPy matrices, or any object
with the same attributes.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np

import burtorch as bt


class SparseRows:
    """Rows with the attributes of SciPy's `csr_array`, for use without SciPy."""

    format = "csr"

    def __init__(self, dense: Any) -> None:
        rows, self.indices = np.nonzero(dense)
        self.data = dense[rows, self.indices]
        self.indptr = np.searchsorted(rows, np.arange(len(dense) + 1))
        self.shape, self.dtype = dense.shape, dense.dtype


def made_up(n: int, d: int, nonzeros: int) -> tuple[Any, Any]:
    """Rows of ones and zeros, and labels -1 and 1 that are almost linearly separable."""
    rng = np.random.default_rng(0)
    rows = np.zeros((n, d))
    for row in rows:
        row[rng.choice(d, nonzeros, replace=False)] = 1.0
    labels = np.sign(rows @ rng.standard_normal(d) + 0.5 * rng.standard_normal(n))
    return rows, labels


def loss(w: Any, x: Any, y: Any) -> Any:
    """The loss of one row."""
    return bt.softplus(-y * (x @ w))


def main(argv: Sequence[str] | None = None) -> float:
    """Trains in each way, prints the losses, and returns their largest difference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--columns", type=int, default=123)
    parser.add_argument("--descents", type=int, default=100)
    options = parser.parse_args(argv)
    dense, labels = made_up(options.rows, options.columns, 14)
    total = bt.value_and_grad(bt.vmap(loss, in_axes=(None, 0, 0), reduce="mean"))
    ends = []
    for name, rows in (("dense", dense), ("sparse", SparseRows(dense))):
        params = bt.Parameters(dtype="float64")
        weights = params.tensor(options.columns, init=0.0)
        oracle = bt.Oracle(lambda x, y, w=weights: loss(w, x, y), params=params)
        sgd = bt.optim.SGD(params, lr=2.0)
        first = oracle.loss(rows, labels)
        for _ in range(options.descents):
            oracle(rows, labels)
            sgd.step()
        ends.append(oracle.loss(rows, labels))
        print(f"{name}, an oracle: {first:.4f} to {ends[-1]:.4f}")
        w = np.zeros(options.columns)
        for _ in range(options.descents):
            w -= 2.0 * total(w, rows, labels)[1]
        ends.append(total(w, rows, labels)[0])
        print(f"{name}, a total:   {first:.4f} to {ends[-1]:.4f}")
    apart = max(ends) - min(ends)
    assert apart < 1e-9, "all four are the same sums within rounding"
    assert ends[0] < first / 2, "it learns"
    return apart


if __name__ == "__main__":
    main()
