"""The parts of a model: the objects in its attributes that may contain Tensors.

Promises each object once, also in cycles, without recursion. Does not know names of files or states.
"""

from __future__ import annotations

from collections import deque
from types import MemberDescriptorType, ModuleType
from weakref import ProxyTypes

from burtorch._core import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


def walk(model: object) -> Iterator[tuple[str, object]]:
    """A model and the objects in its attributes, depth first, without recursion; each object once, except Tensors."""
    todo: list[tuple[str, object]] = [("", model)]
    seen: set[int] = set()
    while todo:
        name, found = todo.pop()
        if isinstance(found, Tensor):
            yield name, found
            continue
        if id(found) in seen:
            continue
        seen.add(id(found))
        yield name, found
        prefix = f"{name}." if name else ""
        todo.extend((prefix + key, part) for key, part in reversed(parts_of(found)))


def parts_of(found: object) -> list[tuple[str, object]]:
    """The parts that may contain Tensors: attributes of an object, items of a list or a dict."""
    named = getattr(found, "named_tensors", None)
    if named is not None:
        return list(named())
    if isinstance(found, (list, tuple, deque)):
        return [(str(k), part) for k, part in enumerate(found) if _may_hold(part)]
    if isinstance(found, dict):
        return [(str(key), part) for key, part in found.items() if _may_hold(part)]
    own = getattr(type(found), "_not_parts", ())
    return [(key, part) for key, part in _attributes(found).items() if key not in own and _may_hold(part)]


def _attributes(found: object) -> dict[str, object]:
    """The attributes of an object, those of ``__slots__`` first, without Python's own, such as ``__wrapped__``."""
    if isinstance(found, (type, ModuleType)):
        return {}
    attributes = {
        name: getattr(found, name)
        for kind in reversed(type(found).__mro__)
        if "__slots__" in vars(kind)
        for name, slot in vars(kind).items()
        if isinstance(slot, MemberDescriptorType) and hasattr(found, name)
    }
    others = getattr(found, "__dict__", {})
    if isinstance(others, dict):
        attributes |= {name: part for name, part in others.items() if not (name[:2] == name[-2:] == "__")}
    return attributes


# Quick answers for long lists of data; a proxy, such as that of a parent, is no part of the object that has it.
WITHOUT_TENSORS = frozenset({int, float, str, bytes, bool, type(None), *ProxyTypes})


def _may_hold(part: object) -> bool:
    return type(part) not in WITHOUT_TENSORS and (
        isinstance(part, (Tensor, list, tuple, dict, deque))
        or hasattr(part, "__dict__")
        or hasattr(part, "named_tensors")
        or hasattr(type(part), "__slots__")
    )
