"""The normal distribution of several dimensions, as ``scipy.stats.multivariate_normal``."""

from __future__ import annotations

import math

import numpy

from burtorch._array_base import array

TYPE_CHECKING = False  # as in the package
if TYPE_CHECKING:
    from typing import Any

__all__ = ["entropy", "logpdf", "pdf"]


def logpdf(x: Any, mean: Any = None, cov: Any = 1.0, allow_singular: bool = False) -> Any:
    """The logarithm of the density at the rows of ``x``, or at one point.

    Args:
        x: points, with their coordinates along the last axis.
        mean: the mean (default: 0).
        cov: the covariance, which must be positive definite: a matrix, its diagonal, or one variance for all.
        allow_singular: must be False.
    """
    x = array(x)
    n, cov = _covariance(mean, cov, allow_singular)
    if x.ndim < 2:
        x = x.reshape((-1, 1) if n == 1 else (1, -1))
    if x.shape[-1] != n:
        raise ValueError(f"points have {n} coordinates along the last axis of x, found {x.shape[-1]}")
    apart = (x if mean is None else x - array(mean).reshape(n)).reshape(-1, n)
    root = numpy.linalg.cholesky(cov)
    squares = (numpy.linalg.solve(root, apart.T) ** 2).sum(0)
    found = -0.5 * (n * math.log(2 * math.pi) + squares) - numpy.log(numpy.diagonal(root)).sum()
    found = found.reshape(x.shape[:-1]).squeeze()
    return found if found.ndim or not isinstance(found, numpy.ndarray) else found[()]


def pdf(x: Any, mean: Any = None, cov: Any = 1.0, allow_singular: bool = False) -> Any:
    """The density; arguments are those of ``logpdf``."""
    return numpy.exp(logpdf(x, mean, cov, allow_singular))


def entropy(mean: Any = None, cov: Any = 1.0) -> Any:
    """The entropy, which does not depend on the mean."""
    n, cov = _covariance(mean, cov, False)
    root = numpy.linalg.cholesky(cov)
    return 0.5 * n * (math.log(2 * math.pi) + 1.0) + numpy.log(numpy.diagonal(root)).sum()


def _covariance(mean: Any, cov: Any, allow_singular: bool) -> tuple[int, Any]:
    """The number of dimensions, and the covariance as a matrix."""
    if allow_singular:
        raise TypeError("the covariance must be positive definite: allow_singular=True is not supported")
    cov = array(cov)
    n = array(mean).size if mean is not None else cov.shape[0] if cov.ndim else 1
    if cov.ndim < 2 and cov.shape in ((), (n,)):
        cov = cov * numpy.eye(n)
    if cov.shape != (n, n):
        raise ValueError(f"the covariance of {n} dimensions has shape {(n, n)}, found {cov.shape}")
    return n, cov
