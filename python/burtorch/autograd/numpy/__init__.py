"""NumPy for differentiated bodies: its functions dispatch to burtorch's if an argument is an Array.

Only functions that NumPy does not dispatch are redefined here: ``array`` and ``asarray`` of lists that contain Arrays,
and ``full`` with an Array. ``make_diagonal`` and ``concatenate_args`` are autograd's own.
"""

from __future__ import annotations

import numpy as _numpy

from burtorch import _core
from burtorch._array_base import is_array

TYPE_CHECKING = False  # as in the package
if TYPE_CHECKING:
    from typing import Any

__all__ = sorted({*_numpy.__all__, "array", "asarray", "concatenate_args", "full", "make_diagonal"})


def array(object: Any, *arguments: Any, **keywords: Any) -> Any:
    """``numpy.array``; for lists that contain Arrays, an Array."""
    if not is_array(object):
        return _numpy.array(object, *arguments, **keywords)
    if not isinstance(object, (list, tuple)):
        return object
    return _core.array_stack([array(one) for one in object], 0)


asarray = array


def full(shape: Any, fill_value: Any, *arguments: Any, **keywords: Any) -> Any:
    """``numpy.full``; with an Array as the number, an Array."""
    if is_array(fill_value):
        return _numpy.broadcast_to(fill_value, shape)
    return _numpy.full(shape, fill_value, *arguments, **keywords)


def make_diagonal(D: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:  # noqa: N803 (autograd's name)
    """The last axis as diagonals of matrices; as in autograd, ``offset=0, axis1=-1, axis2=-2`` must be given."""
    if (offset, axis1, axis2) != (0, -1, -2):
        raise NotImplementedError("make_diagonal() supports only offset=0, axis1=-1, axis2=-2")
    return _numpy.where(_numpy.eye(D.shape[-1], dtype=bool), D[..., None], 0.0)


def concatenate_args(axis: int, *args: Any) -> Any:
    """``numpy.concatenate`` of the arguments after the axis."""
    return _numpy.concatenate(args, axis)


def __getattr__(name: str) -> Any:
    if name in ("linalg", "random", "fft"):
        import importlib

        return importlib.import_module(f"burtorch.autograd.numpy.{name}")
    return getattr(_numpy, name)
