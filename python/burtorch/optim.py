"""Optimisers: they move the values of a :class:`burtorch.Parameters` along its gradients."""

from burtorch._core import SGD, Adam, AdamW, Schedule, clip_grad_norm

__all__ = ["SGD", "Adam", "AdamW", "Schedule", "clip_grad_norm"]
