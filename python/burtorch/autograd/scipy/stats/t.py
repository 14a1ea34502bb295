"""Student's t distribution, as ``scipy.stats.t``."""

from __future__ import annotations

import math

import numpy

import burtorch as bt

TYPE_CHECKING = False  # as in the package
if TYPE_CHECKING:
    from typing import Any

__all__ = ["logpdf", "pdf"]


def logpdf(x: Any, df: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """The logarithm of the density with ``df`` degrees of freedom."""
    z = (x - loc) / scale
    constant = bt.lgamma((df + 1.0) / 2.0) - bt.lgamma(df / 2.0) - 0.5 * numpy.log(df * math.pi) - numpy.log(scale)
    return constant - (df + 1.0) / 2.0 * numpy.log1p(z * z / df)


def pdf(x: Any, df: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """The density."""
    return numpy.exp(logpdf(x, df, loc, scale))
