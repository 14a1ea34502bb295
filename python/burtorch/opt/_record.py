"""Records of a method's state, and its progress bar."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Record:
    """The state of a method. Fields that need x* or f* are None if these were not given."""

    step: int
    """Steps taken."""
    loss: float
    """f(x), with the proximal term."""
    gap: float | None
    """loss - f*."""
    distance: float | None
    """|x - x*|^2."""
    grad_norm: float
    """|grad f(x)|, without the proximal term."""
    lyapunov: float | None
    """The quantity that the method's theorem bounds, with `lyapunov=True`."""
    oracle_calls: int
    """Gradients of single samples; a difference of two counts as two."""
    epochs: float
    """Oracle calls divided by samples."""
    bits_up: float
    """Bits sent by clients, counted as in the theory."""
    bits_down: float
    """Bits received by clients."""
    wire_bytes: int
    """Bytes of the clients' encoded messages."""
    rounds: int
    """Exchanges between clients and server."""
    time: float
    """Seconds of the virtual clock, if the method has one."""
    seconds: float
    """Time of steps, without recording."""


class _NoBar:
    """A progress bar that is not shown."""

    def __enter__(self) -> _NoBar:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def update(self, n: int) -> None:
        pass


def bar_of(progress: bool, steps: int | None) -> Any:
    """A progress bar, or one that shows nothing."""
    if not progress:
        return _NoBar()
    try:
        from tqdm import tqdm
    except ImportError as error:
        raise ImportError(f"progress=True needs tqdm (pip install tqdm): {error}", name=error.name) from error
    return tqdm(total=steps, unit="step")
