"""Optimisers: they update numbers from their gradients.

Each takes :class:`burtorch.Parameters`, a model, a layer, a Tensor, a list of these, or a list of Values, and updates
only those numbers.
"""

from burtorch._core import SGD, Adam, AdamW, Schedule, clip_grad_norm

__all__ = ["SGD", "Adam", "AdamW", "Schedule", "clip_grad_norm"]
