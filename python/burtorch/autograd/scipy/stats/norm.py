"""The normal distribution, as ``scipy.stats.norm``."""

from __future__ import annotations

import math

import numpy

import burtorch as bt

TYPE_CHECKING = False  # as in the package
if TYPE_CHECKING:
    from typing import Any

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]


def logpdf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """The logarithm of the density."""
    z = (x - loc) / scale
    return -0.5 * z * z - numpy.log(scale * math.sqrt(2 * math.pi))


def pdf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """The density."""
    return numpy.exp(logpdf(x, loc, scale))


def cdf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """The probability of a number not above x."""
    return bt.ndtr((x - loc) / scale)


def sf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """The probability of a number above x."""
    return bt.ndtr((loc - x) / scale)


def logcdf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """The logarithm of ``cdf``, which is 0 far below."""
    return numpy.log(cdf(x, loc, scale))


def logsf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """The logarithm of ``sf``, which is 0 far above."""
    return numpy.log(sf(x, loc, scale))
