"""The interface of every rival in the bench."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from .cells import Floats


@dataclass
class Peer:
    """A rival, warmed up and ready for timing: calling it runs one complete step.

    `loss_and_grad()` returns the mean loss and flat gradient at the current weights on the first batch, by the timed
    code or the closest to it; `weights()` the current flat weights (for mlp they change with every step).
    """

    name: str
    step: Callable[[], object]
    loss_and_grad: Callable[[], tuple[float, Floats]]
    weights: Callable[[], Floats]
    compile_seconds: float = 0.0

    def __call__(self) -> object:
        return self.step()
