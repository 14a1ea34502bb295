"""``convolve`` of HIPS autograd: convolutions along some axes, products along others."""

from __future__ import annotations

import functools
import itertools
import operator

import numpy

TYPE_CHECKING = False  # as in the package
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

__all__ = ["convolve"]


def convolve(
    A: Any,  # noqa: N803 (autograd's name)
    B: Any,  # noqa: N803
    axes: tuple[Sequence[int], Sequence[int]] | None = None,
    dot_axes: tuple[Sequence[int], Sequence[int]] = ((), ()),
    mode: str = "full",
) -> Any:
    """The convolution of two arrays.

    Args:
        A, B: arrays of numbers, or Arrays.
        axes: the axes of each along which they are convolved (default: all).
        dot_axes: the axes of each along which products are summed.
        mode: "full", or "valid" for the positions at which B lies within A.

    Returns:
        An array with the remaining axes of A, those of B, and the convolved axes.

    Costs a product of arrays for each entry of B along the convolved axes.

    Example:
        >>> import numpy as np
        >>> from burtorch.autograd.scipy.signal import convolve
        >>> convolve(np.array([1.0, 2.0, 3.0]), np.array([1.0, 1.0]), mode="valid")
        array([3., 5.])
    """
    along, of_b = axes if axes is not None else (range(A.ndim), range(B.ndim))
    along, of_b = [k % A.ndim for k in along], [k % B.ndim for k in of_b]
    dots, b_dots = [k % A.ndim for k in dot_axes[0]], [k % B.ndim for k in dot_axes[1]]
    extents = [B.shape[k] for k in of_b]
    if mode not in ("full", "valid"):
        raise ValueError(f'mode must be "full" or "valid", found {mode!r}')
    if mode == "full":
        pads = dict(zip(along, (n - 1 for n in extents), strict=True))
        A = numpy.pad(A, [(pads.get(k, 0),) * 2 for k in range(A.ndim)])  # noqa: N806
    counts = [A.shape[k] - n + 1 for k, n in zip(along, extents, strict=True)]
    if min(counts, default=1) < 1:
        raise ValueError(f"B, of shape {B.shape}, does not lie within A, of shape {A.shape}, along the axes {along}")
    parts: list[Any] = []
    for place in itertools.product(*map(range, extents)):
        starts = [n - 1 - k for k, n in zip(place, extents, strict=True)]
        part = A[_at(A.ndim, along, [slice(k, k + m) for k, m in zip(starts, counts, strict=True)])]
        entry = B[_at(B.ndim, of_b, [slice(k, k + 1) for k in place])]
        parts.append(numpy.tensordot(part, entry, (dots, b_dots)))
    total = functools.reduce(operator.add, parts)
    # The convolved axes of A go to the end; those of B have one entry.
    left = [k for k in range(A.ndim) if k not in dots]
    right = [k for k in range(B.ndim) if k not in b_dots]
    places = [left.index(k) for k in along]
    ones = [len(left) + right.index(k) for k in of_b]
    kept = [k for k in range(len(left) + len(right)) if k not in places and k not in ones]
    ordered = numpy.transpose(total, (*kept, *places, *ones))
    return ordered.reshape(ordered.shape[: len(kept) + len(places)])


def _at(rank: int, axes: Sequence[int], slices: list[slice]) -> tuple[slice, ...]:
    """An index with these slices along these axes."""
    by_axis = dict(zip(axes, slices, strict=True))
    return tuple(by_axis.get(k, slice(None)) for k in range(rank))
