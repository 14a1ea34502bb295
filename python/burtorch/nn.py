"""Models: layers and networks whose parameters live in a :class:`burtorch.Parameters`."""

from burtorch._core import MLP, CharMLP, Linear

__all__ = ["MLP", "CharMLP", "Linear"]
