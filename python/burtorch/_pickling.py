"""Pickles of objects of Rust in protocols 0 and 1, which by themselves do not call ``__new__`` with its arguments."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, SupportsIndex

__all__ = ["reduce_ex"]


def reduce_ex(self: object, protocol: SupportsIndex) -> Any:
    """What protocol 2 saves, also in the protocols before it."""
    return object.__reduce_ex__(self, max(int(protocol), 2))
