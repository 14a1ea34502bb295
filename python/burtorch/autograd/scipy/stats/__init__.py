"""Distributions of ``scipy.stats``: ``norm``, ``t`` and ``multivariate_normal``."""

from burtorch.autograd.scipy.stats import multivariate_normal, norm, t

__all__ = ["multivariate_normal", "norm", "t"]
