"""The keyword arguments of methods: the classes of objects, and names that no constructor takes."""

from __future__ import annotations

import inspect
import math
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from burtorch import _core
from burtorch.compress import Compressor
from burtorch.opt._arguments import of_kind
from burtorch.opt._clock import Delays, Network
from burtorch.opt._rules import Prox, Sampling
from burtorch.opt._smoothness import Smoothness

_KINDS: dict[str, tuple[type, str]] = {
    "problem": (_core.FiniteSum, "bt.opt.least_squares(features, targets)"),
    "sampling": (Sampling, "bt.opt.Nice(8)"),
    "cohort": (Sampling, "bt.opt.Nice(8)"),
    "prox": (Prox, "bt.opt.L1(0.1)"),
    "compressor": (Compressor, "bt.compress.TopK(8)"),
    "downlink": (Compressor, "bt.compress.TopK(8)"),
    "constants": (Smoothness, "bt.opt.smoothness(problem)"),
    "delays": (Delays, "bt.opt.Delays([1.0, 2.0])"),
    "network": (Network, "bt.opt.Network(bt.opt.Delays([1.0, 2.0]))"),
}


@lru_cache
def _parameters(method: type) -> tuple[frozenset[str], frozenset[str]]:
    """The names that the constructors of a method take, and those that may be None."""
    taken, optional = {"engine"}, set[str]()
    for base in method.__mro__[:-1]:
        init = base.__dict__.get("__init__")
        if inspect.isfunction(init):
            own = list(inspect.signature(init).parameters.values())[1:]
            named = [part for part in own if part.kind not in (part.VAR_POSITIONAL, part.VAR_KEYWORD)]
            taken |= {part.name for part in named}
            optional |= {part.name for part in named if part.default is None}
    return frozenset(taken), frozenset(optional)


@lru_cache
def _required(method: type) -> list[tuple[str, float]]:
    """The arguments without a default, with their positions; infinity for those given by keyword only."""
    parts = enumerate(inspect.signature(method).parameters.values())
    places = [(part, k if part.kind < part.VAR_POSITIONAL else math.inf) for k, part in parts]
    return [(part.name, k) for part, k in places if part.default is part.empty]


def check_required(method: type, n_positional: int, named: dict[str, Any]) -> None:
    """Raises TypeError for a missing argument, with an example of one."""
    for name, k in _required(method):
        if name not in named and k >= n_positional:
            example = f", such as {_KINDS[name][1]}" if name in _KINDS else ""
            raise TypeError(f"{method.__name__}() needs {name}={example}")


class Signature:
    """The signature of a method's class: the arguments of all of its constructors, those of the class itself first."""

    def __get__(self, method: object, kind: type) -> inspect.Signature:
        found: dict[str, inspect.Parameter] = {}
        for base in kind.__mro__[:-1]:
            init = base.__dict__.get("__init__")
            if inspect.isfunction(init):
                own = list(inspect.signature(init).parameters.values())[1:]
                named = [part for part in own if part.kind not in (part.VAR_POSITIONAL, part.VAR_KEYWORD)]
                found |= {part.name: part for part in named if part.name not in found}
        parts = sorted(found.values(), key=lambda part: (part.kind, part.default is not part.empty))
        return inspect.Signature(parts)


def check_kinds(method: type, given: dict[str, Any], *, with_clients: bool) -> None:
    """Raises TypeError for objects of another class, and for None where an object is required."""
    optional = _parameters(method)[1]
    for name, (kind, example) in _KINDS.items():
        if name not in given or (given[name] is None and name in optional):
            continue
        if name == "problem" and with_clients and isinstance(given[name], (list, tuple)):
            continue
        of_kind(given[name], kind, name, example)


def check_names(method: type, named: dict[str, Any]) -> None:
    """Raises TypeError for an argument that no constructor of the method takes, with the nearest name that one does."""
    taken = _parameters(method)[0]
    for name in named:
        if name not in taken:
            near = get_close_matches(name, taken, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(sorted(taken))}"
            raise TypeError(f"{method.__name__}() got an unexpected keyword argument {name!r}; {hint}")
