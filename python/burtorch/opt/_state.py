"""The state of a method, as `state_dict` returns it: checks before anything is loaded."""

from __future__ import annotations

from typing import Any

import numpy as np

from burtorch.opt._arguments import finite, not_negative, of_kind, point, whole

COUNTED = ("oracle_calls", "bits_up", "bits_down", "wire_bytes", "rounds", "time")
"""The numbers of `cost`, in this order."""
FRACTIONS = {"bits_up", "bits_down", "time"}
"""Those that are no integers."""
FINITE = {"x", "x_i", "points"}
"""The iterate, those of clients, and the points of workers."""
ORDERED = {"z", "w", "t", "time", "jobs"}
"""Other points, which a step may make infinite before x, and clocks: no NaN. Estimates of gradients may be anything, as
those of a method that diverges at its next step."""


def _cost(given: Any) -> tuple[Any, ...]:
    """The counts of a state, at least 0; a virtual time may be infinite."""
    if not isinstance(given, (tuple, list)) or len(given) != len(COUNTED):
        raise ValueError(f"the state's cost must be {', '.join(COUNTED)}, found {given!r}")
    return tuple(
        not_negative(value, f"the state's {name}", is_finite=False)
        if name in FRACTIONS
        else whole(value, f"the state's {name}", 0)
        for name, value in zip(COUNTED, given, strict=True)
    )


def _check_numbers(part: Any, name: str) -> None:
    if part.dtype.kind != "f":
        return  # integers are finite, and Rust refuses others
    if np.isnan(part).any() or (name in FINITE and not np.isfinite(part).all()):
        raise ValueError(f"{name} of the state must {'be finite' if name in FINITE else 'not be NaN'}")


def checked_state(state: dict[str, Any], method: str, d: int) -> tuple[dict[str, Any], int, tuple[Any, ...], float]:
    """The arrays, round, cost and seconds of a state of this method with points of size d.

    Raises ValueError for a state of another method, missing parts, counts below 0, iterates that are not finite,
    and clocks that are NaN.
    """
    of_kind(state, dict, "a state", "that of state_dict()")
    if (found := state.get("method")) != method:
        raise ValueError(f"the state belongs to {found}, expected {method}")
    missing = [name for name in ("arrays", "round", "cost", "seconds") if name not in state]
    if missing:
        raise ValueError(f"the state lacks {', '.join(missing)}")
    arrays, seconds = state["arrays"], finite(state["seconds"], "seconds")
    of_kind(arrays, dict, "the state's arrays", "those of state_dict()")
    if "x" in arrays:
        point(arrays["x"], d, "x of the state")
    for name, part in arrays.items():
        if name in FINITE or name in ORDERED:
            _check_numbers(np.asarray(part), name)
    return arrays, whole(state["round"], "the state's round", 0), _cost(state["cost"]), seconds
