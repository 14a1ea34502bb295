"""Engines: the clients of a method in this process, or divided among several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]


class Engine(Protocol):
    """Processes that take the same steps, each with its own clients."""

    def here(self, n_clients: int) -> tuple[int, int]:
        """The first client of this process, and the one after its last."""

    def gather(self, own: Numbers) -> Numbers:
        """The concatenated contributions of all processes, in the order of their clients. An empty contribution means
        that the process has failed, which is an error in all of them."""

    def rows(self, own: Numbers) -> Numbers:
        """The same, but contributions may be empty."""


def agree(engine: Engine, told: object) -> None:
    """Raises ValueError if processes have made different methods, if the engine can tell."""
    same = getattr(engine, "same", None)
    if same is not None:
        same(repr(told))


def engine_of(engine: str | Engine) -> Engine | None:
    """The engine called ``engine``; None for "local", with all clients in this process."""
    if engine == "local":
        return None
    if engine == "mpi":
        from burtorch import mpi

        return mpi.Engine()
    if engine == "flower":
        raise ValueError("on Flower a method runs as apps: burtorch.flower.server_app and client_app give it an engine")
    if isinstance(engine, str):
        raise ValueError(f'engine must be "local", "mpi" or an engine, found {engine!r}')
    if not hasattr(engine, "gather"):
        raise TypeError(f'engine must be "local", "mpi" or an engine, found {type(engine).__name__}')
    return engine
