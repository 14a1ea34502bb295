"""Optimisers: they update numbers from their gradients.

Each takes :class:`burtorch.Parameters`, a model, a layer, a Tensor, a list of these, or a list of Values, and updates
only those numbers.
"""

from burtorch._core import SGD, Adam, AdamW, Schedule, clip_grad_norm
from burtorch._pickling import reduce_ex as _reduce_ex

__all__ = ["SGD", "Adam", "AdamW", "Schedule", "clip_grad_norm"]

SGD.__reduce_ex__ = _reduce_ex  # type: ignore[method-assign]
Adam.__reduce_ex__ = _reduce_ex  # type: ignore[method-assign]
del _reduce_ex
