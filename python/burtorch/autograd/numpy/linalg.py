"""``numpy.linalg`` for differentiated bodies."""

from __future__ import annotations

import numpy.linalg as _numpy

TYPE_CHECKING = False  # as in the package
if TYPE_CHECKING:
    from typing import Any

__all__ = list(_numpy.__all__)


def __getattr__(name: str) -> Any:
    return getattr(_numpy, name)
