"""Optimisers: they move the values of a :class:`burtorch.Parameters` along its gradients."""

from burtorch._core import SGD

__all__ = ["SGD"]
