"""Optimisers over nests of arrays, and ``flatten``."""

from burtorch.autograd.misc.flatten import flatten

__all__ = ["flatten"]
