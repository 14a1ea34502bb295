"""Runs functions of Arrays on numbers, for tests: the results of a body as numbers."""

from __future__ import annotations

import numpy as np

from burtorch import _core
from burtorch._core import Array


class Hole:
    """The position of an Array in a result."""

    def __init__(self, k):
        self.k = k


def mapped(f, tree):
    """Applies ``f`` to the leaves of a nest of lists, tuples and dicts."""
    if isinstance(tree, (list, tuple)):
        return [mapped(f, one) for one in tree]
    if isinstance(tree, dict):
        return {key: mapped(f, one) for key, one in tree.items()}
    return f(tree)


def run(body, *arrays):
    """The results of ``body(*arrays)`` on Arrays, as numbers."""
    kept = []

    def recording(*xs):
        leaves = []

        def leaf(x):
            if not isinstance(x, Array):
                return x
            leaves.append(x)
            return Hole(len(leaves) - 1)

        kept.append(mapped(leaf, body(*xs)))
        return leaves or [xs[0]]

    numbers = _core.array_evaluated(recording, *arrays)
    return mapped(lambda x: numbers[x.k] if isinstance(x, Hole) else x, kept[0])


def same(found, expected, tolerance=1e-12):
    """Whether two results have equal shapes and approximately equal numbers."""
    if isinstance(expected, (list, tuple)):
        return isinstance(found, (list, tuple)) and len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(expected, (type, str, type(None), np.dtype)):
        return found == expected
    found, expected = np.asarray(found), np.asarray(expected)
    if found.shape != expected.shape:
        return False
    if expected.dtype.kind == "b":
        return bool((found.astype(bool) == expected).all())
    return bool(np.allclose(found, expected, rtol=tolerance, atol=tolerance, equal_nan=True))
