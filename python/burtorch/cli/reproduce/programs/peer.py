"""What every rival looks like to the bench."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from .cells import Floats


@dataclass
class Peer:
    """A rival, warmed and ready to be timed: calling it runs one step to its end.

    `loss_and_grad()` gives the mean loss and flat gradient at the present weights on the first batch, by the code that
    is timed or the closest to it; `weights()` the present flat weights (for mlp they move with every step).
    """

    name: str
    step: Callable[[], object]
    loss_and_grad: Callable[[], tuple[float, Floats]]
    weights: Callable[[], Floats]
    compile_seconds: float = 0.0

    def __call__(self) -> object:
        return self.step()
