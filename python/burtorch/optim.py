"""Optimisers: they move numbers along their gradients.

Each takes :class:`burtorch.Parameters`, a model, a layer, a Tensor, or a list of them, and acts on those numbers and no
others; or a list of Values.
"""

from burtorch._core import SGD, Adam, AdamW, Schedule, clip_grad_norm

__all__ = ["SGD", "Adam", "AdamW", "Schedule", "clip_grad_norm"]
