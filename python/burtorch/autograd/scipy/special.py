"""Differentiable functions of ``scipy.special``."""

from __future__ import annotations

import numpy

import burtorch as bt
from burtorch import _core
from burtorch._array_base import evaluated
from burtorch._core import Array

TYPE_CHECKING = False  # as in the package
if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "beta", "betaln", "digamma", "erf", "erfc", "expit", "gamma", "gammaln", "log_softmax", "logit", "logsumexp", "psi",
    "softmax", "xlogy",
]  # fmt: skip

digamma = psi = bt.digamma
erf = bt.erf
erfc = bt.erfc
expit = bt.sigmoid
gammaln = bt.lgamma
xlogy = bt.xlogy


def logsumexp(a: Any, axis: Any = None, b: Any = None, keepdims: bool = False) -> Any:
    """``log(sum(b exp(a)))``, without overflow."""
    if b is not None:
        a = a + numpy.log(b)
    if isinstance(a, Array):
        return a.logsumexp(axis, keepdims=keepdims)
    return _core.array_evaluated(lambda a: a.logsumexp(axis, keepdims=keepdims), numpy.asarray(a, float))


def softmax(x: Any, axis: Any = None) -> Any:
    """``exp(x)`` over its sum."""
    return numpy.exp(x - logsumexp(x, axis, keepdims=True))


def log_softmax(x: Any, axis: Any = None) -> Any:
    """The logarithm of softmax."""
    return x - logsumexp(x, axis, keepdims=True)


def logit(x: Any) -> Any:
    """``log(x / (1 - x))``."""
    return numpy.log(x) - numpy.log1p(-x)


def betaln(a: Any, b: Any) -> Any:
    """The logarithm of the beta function, for positive arguments."""
    return gammaln(a) + gammaln(b) - gammaln(a + b)


def beta(a: Any, b: Any) -> Any:
    """The beta function, for positive arguments."""
    return numpy.exp(betaln(a, b))


@evaluated(1)
def gamma(x: Any) -> Any:
    """The gamma function, for positive arguments."""
    return numpy.exp(gammaln(x))
