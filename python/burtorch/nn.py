"""Models: layers and networks whose parameters live in a :class:`burtorch.Parameters`."""

from burtorch._core import CharMLP

__all__ = ["CharMLP"]
