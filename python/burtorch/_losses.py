"""Losses of the outputs of a model, as callables for an Oracle."""

from __future__ import annotations

from burtorch._core import Array, TokenIds, Value, Vector, mean, softmax_cross_entropy
from burtorch._module import check_callable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["of_outputs"]


def of_outputs(model: Callable[[Any], Any], loss: str) -> Callable[[Any, Any], Any]:
    """The loss "cross_entropy" or "mse" of a sample, computed from the outputs of the model for it."""
    check_callable(model)

    def cross_entropy(x: Any, y: Any) -> Any:
        if isinstance(y, Value) or (isinstance(y, Array) and y.ndim == 0 and y.dtype.kind == "f"):
            raise TypeError(
                'labels of loss="cross_entropy" must be integers of at least 0, found floats, masks or a negative '
                "label: pass y.astype(int), or choose what a negative label means with a callable"
            )
        return softmax_cross_entropy(model(x), y)

    def mse(x: Any, y: Any) -> Any:
        outputs = model(x)
        if isinstance(y, TokenIds):
            raise TypeError('targets of loss="mse" must be floats, found integers')
        expected, found = _size(outputs), _size(y)
        if expected != found:
            raise ValueError(f"targets must have as many numbers as the outputs of a sample, {expected}, found {found}")
        apart = outputs - y
        return mean(apart * apart)

    return cross_entropy if loss == "cross_entropy" else mse


def _size(x: Any) -> int:
    """How many numbers."""
    if isinstance(x, Array):
        return int(x.size)
    return len(x) if isinstance(x, Vector) else 1
