"""Times logistic regression on dense and sparse rows beside NumPy and SciPy by hand, on one core.

    python bench_batches.py [--rows 32561] [--rounds 15]

Losses and gradients must agree to 1e-10 before anything is timed. Contenders take turns; minima and medians in
microseconds, and the ratio of the minima.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np  # noqa: E402

import burtorch as bt  # noqa: E402

COLUMNS, NONZEROS = 123, 14


def rows(n: int) -> tuple[Any, Any]:
    """Rows with the dimensions of the data set a9a, and labels -1 and 1."""
    rng = np.random.default_rng(0)
    X = np.zeros((n, COLUMNS))
    places = np.argsort(rng.random((n, COLUMNS)), axis=1)[:, :NONZEROS]
    np.put_along_axis(X, places, 1.0, axis=1)
    return X, np.where(rng.random(n) < 0.25, 1.0, -1.0)


def by_hand(w: Any, X: Any, y: Any, transposed: Any = None) -> tuple[float, Any]:
    """Mean loss and gradient, hand-written with NumPy or SciPy."""
    margin = y * (X @ w)
    shrunk = np.exp(-np.abs(margin))
    loss = np.mean(np.maximum(-margin, 0.0) + np.log1p(shrunk))
    slope = -y * np.where(margin > 0, shrunk, 1.0) / (1.0 + shrunk)
    return loss, (X.T if transposed is None else transposed) @ slope / len(y)


def loss(w: Any, x: Any, y: Any) -> Any:
    """The loss of one row."""
    return bt.softplus(-y * (x @ w))


def contenders(X: Any, y: Any, w: Any, rival: str) -> dict[str, Callable[[], tuple[float, Any]]]:
    """The timed calls, by name."""
    total = bt.value_and_grad(bt.vmap(loss, in_axes=(None, 0, 0), reduce="mean"))
    params = bt.Parameters(dtype="float64")
    weights = params.tensor(COLUMNS, init=0.0)
    weights.values[:] = w
    oracle = bt.Oracle(lambda x, y: loss(weights, x, y), params=params)
    return {
        rival: lambda: by_hand(w, X, y),
        "vmap": lambda: total(w, X, y),
        "Oracle": lambda: oracle(X, y),
    }


def timed(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Microseconds per call of each, in turns."""
    first = {}
    for name, call in calls.items():
        start = time.perf_counter()
        call()
        first[name] = max(1, int(0.01 / (time.perf_counter() - start + 1e-9)))
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            n = first[name]
            start = time.perf_counter()
            for _ in range(n):
                call()
            found[name].append((time.perf_counter() - start) / n * 1e6)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=32561)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    dense, labels = rows(options.rows)
    w = np.random.default_rng(1).standard_normal(COLUMNS) / 10
    try:
        from scipy.sparse import csr_array
    except ImportError:
        csr_array = None
        print("SciPy is not installed: sparse rows are left out")
    print("| rows | of | contender | minimum us | median us | of the first |")
    print("|---|---|---|---|---|---|")
    for n in (options.rows, 512, 64, 1):
        kinds = [("NumPy", "dense", dense[:n])]
        if csr_array is not None:
            kinds.append(("SciPy", "sparse", csr_array(dense[:n])))
        for rival, kind, X in kinds:
            y = labels[:n]
            calls = contenders(X, y, w, rival)
            expected = by_hand(w, X, y)
            for name, call in calls.items():
                value, gradient = call()
                assert abs(value - expected[0]) < 1e-10, name
                assert np.allclose(gradient, expected[1], atol=1e-10), name
            found = timed(calls, options.rounds)
            base = min(found[rival])
            for name, times in found.items():
                low, middle = min(times), statistics.median(times)
                print(f"| {n} | {kind} | {name} | {low:.2f} | {middle:.2f} | {low / base:.2f} |", flush=True)


if __name__ == "__main__":
    main()
