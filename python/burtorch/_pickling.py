"""Pickles of objects of Rust: how they are made again, also in protocols 0 and 1, which call ``__new__`` alone."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, SupportsIndex

__all__ = ["oracle", "reduce_ex"]


def reduce_ex(self: object, protocol: SupportsIndex) -> Any:
    """What protocol 2 saves, also in the protocols before it."""
    return object.__reduce_ex__(self, max(int(protocol), 2))


def oracle(model: Any, params: Any, settings: dict[str, Any]) -> Any:
    """The oracle of a copied model."""
    from burtorch._core import Oracle

    return Oracle(model, params=params, **settings)
