"""The determinant by expansion along rows, every minor computed where it occurs, and its gradient.

All minors of one size stand in one array: row i multiplies the n! / (n - i - 1)! minors below it.
"""

from functools import cache

import numpy as np

import burtorch as bt


@cache
def expansion(n):
    """For each row, the column of every factor: one line per choice of columns in the rows above."""
    left = np.arange(n)[None]
    rows = []
    while True:
        rows.append(left)
        size = left.shape[1]
        if size == 1:
            return rows
        others = np.array([[j for j in range(size) if j != i] for i in range(size)])
        left = left[:, others].reshape(-1, size - 1)


def determinant(a):
    n = a.shape[0]
    minors = 1.0
    for i, columns in reversed(list(enumerate(expansion(n)))):
        signs = 1.0 - 2.0 * (np.arange(columns.shape[1]) % 2)
        minors = np.sum(signs * a[i][columns] * np.reshape(minors, columns.shape if i < n - 1 else ()), axis=1)
    return minors[0]


FUNCTIONS = {"primal": bt.function(determinant), "gradient": bt.grad(determinant)}


def prepare(given):
    n = given["ell"]
    return (np.array(given["A"]).reshape(n, n),)


def answer(result):
    return np.ravel(result).tolist() if np.ndim(result) else float(result)
