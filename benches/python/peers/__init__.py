"""The rivals that burtorch is measured against, by name.

    cell = mlp_cell(hidden=64, batch=1)
    step = make("numpy", cell)          # None where the rival is not installed or has no such model
    check([step, ...])                  # same losses, gradients and, after a few steps, weights; else AssertionError
    step()                              # one timed step

Import this package before NumPy, torch or JAX: it holds their thread pools to one thread. Names: numpy, torch,
torch-compile, jax (and for scalar graphs those of scalar_peers). It knows nothing of burtorch; burtorch's own step
can be wrapped in a Peer and checked along.
"""

from __future__ import annotations

import os

for _variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import importlib  # noqa: E402

import numpy as np  # noqa: E402

from .cells import Cell, gpt_cell, mlp_cell  # noqa: E402
from .peer import Peer  # noqa: E402

NAMES = ("numpy", "torch", "torch-compile", "jax")
__all__ = ["NAMES", "Cell", "Peer", "check", "gpt_cell", "make", "mlp_cell"]


def make(name: str, cell: Cell) -> Peer | None:
    """A rival set up for a cell, compiled but not warmed; None where it is not installed or has no such model."""
    if name not in NAMES:
        raise ValueError(f"unknown rival {name!r}: one of {', '.join(NAMES)}")
    family = name.partition("-")[0]
    try:
        importlib.import_module(family)
    except ImportError:
        return None
    module = importlib.import_module(f".{family}_peers", __name__)
    peer = module.make(cell, compiled=name == "torch-compile") if family == "torch" else module.make(cell)
    assert peer is None or isinstance(peer, Peer)
    return peer


def check(peers: list[Peer], steps: int = 5, tolerance: float = 1e-5) -> None:
    """Asserts that all rivals, fresh from `make`, agree: loss and gradient before any step, weights after a few."""
    losses, grads = zip(*(peer.loss_and_grad() for peer in peers))
    for peer, loss, grad in zip(peers, losses, grads):
        assert abs(loss - losses[0]) <= tolerance * abs(losses[0]), (
            f"{peer.name}: loss {loss}, {peers[0].name}: {losses[0]}"
        )
        assert distance(grad, grads[0]) <= tolerance, f"{peer.name}: gradient off by {distance(grad, grads[0]):.1e}"
    for peer in peers:
        for _ in range(steps):
            peer.step()
    first = peers[0].weights()
    for peer in peers:
        assert distance(peer.weights(), first) <= tolerance, f"{peer.name}: weights drift apart"


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """Relative difference in the Euclidean norm."""
    return float(np.linalg.norm(a.astype(np.float64) - b) / np.linalg.norm(b))
