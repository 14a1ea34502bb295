"""The programs of the paper's experiments, by name: burtorch's own and those of the rivals that are installed.

    cell = mlp_cell(hidden=64, batch=1)
    step = make("numpy", cell)          # None if the rival is not installed or has no such model
    check([step, ...])                  # same losses, gradients and, after a few steps, weights; else AssertionError
    step()                              # one timed step

Models: numpy, torch, torchscript, torch-compile, jax. One scalar expression: the names of ``scalar_peers`` and of
``tensor_graphs``. A program imports only its library, so this folder also runs as a separate package without burtorch:
such a process executes ``launch.py``. Call ``hold_to_one_thread`` before NumPy, torch or JAX are
imported.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .cells import Cell
    from .peer import Peer

NAMES = ("numpy", "torch", "torchscript", "torch-compile", "jax")
FAMILIES = {"torchscript": "torch", "torch-compile": "torch"}


def hold_to_one_thread() -> None:
    """Must be called before these libraries are imported: they read the variables then."""
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"):
        os.environ.setdefault(variable, "1")
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


def make(name: str, cell: Cell) -> Peer | None:
    """A rival prepared for a cell, compiled but without warm-up; None if it is not installed or has no such model."""
    if name not in NAMES:
        raise ValueError(f"unknown rival {name!r}: one of {', '.join(NAMES)}")
    family = FAMILIES.get(name, name)
    try:
        importlib.import_module(family)
    except ImportError:
        return None
    module = importlib.import_module(f".{family}_peers", __name__)
    peer: Peer | None = module.make(cell, name) if family == "torch" else module.make(cell)
    return peer


def check(peers: list[Peer], steps: int = 5, tolerance: float = 1e-5) -> None:
    """Asserts that all rivals, newly made, agree: loss and gradient before any step, weights after a few."""
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


def distance(a: Any, b: Any) -> float:
    """Relative difference in the Euclidean norm."""
    norm = importlib.import_module("numpy").linalg.norm
    return float(norm(a.astype("float64") - b) / norm(b))
