"""The rivals of ``--peers``: the package that each needs, and its programs of both families."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec


@dataclass
class Rival:
    package: str
    graph: tuple[str, ...] = ()
    """Its programs of the small graphs."""
    model: tuple[str, ...] = ()
    """Its programs of the models."""


RIVALS = {
    "torch": Rival("torch", ("torch",), ("torch",)),
    "torch-compile": Rival("torch", ("torch-compile",), ("torch-compile",)),
    "torchscript": Rival("torch", ("torchscript",), ("torchscript",)),
    "jax": Rival("jax", ("jax", "jax-eager"), ("jax",)),
    "numpy": Rival("numpy", ("numpy",), ("numpy",)),
    "micrograd": Rival("micrograd", ("micrograd",)),
    "autograd": Rival("autograd", ("autograd",)),
    "casadi": Rival("casadi", ("casadi", "casadi-c")),
    "numba": Rival("numba", ("numba",)),
    "tensorflow": Rival("tensorflow", ("tensorflow", "tensorflow-graph")),
    "tflite": Rival("tensorflow", ("tflite",)),
    "mlx": Rival("mlx", ("mlx",)),
}
OURS = ("burtorch", "burtorch-function", "burtorch-buffers")
RUST = "burtorch-rust"
"""The Rust programs of the small graphs and of the models, if they are built (``rust.py``)."""
SLOW_TO_COMPILE = ("torch-compile",)
"""Skipped with ``--quick``: they compile for half a minute before each cell."""

LABELS = {
    "burtorch": "burtorch, eager from Python",
    "burtorch-function": "burtorch, traced function",
    "burtorch-buffers": "burtorch, traced function on buffers",
    "burtorch-rust": "burtorch, Rust core without Python",
    "python": "Python floats, gradient by hand",
    "numpy": "NumPy, gradient by hand",
    "numba": "numba, gradient by hand",
    "torch": "PyTorch, eager",
    "torchscript": "PyTorch, TorchScript",
    "torch-compile": "PyTorch, torch.compile",
    "jax": "JAX, jit",
    "jax-eager": "JAX, eager",
    "tensorflow": "TensorFlow, eager",
    "tensorflow-graph": "TensorFlow, tf.function",
    "tflite": "TensorFlow Lite, float32",
    "casadi": "CasADi",
    "casadi-c": "CasADi, generated C",
    "micrograd": "micrograd",
    "autograd": "Autograd",
    "mlx": "MLX",
}


def versions(names: tuple[str, ...]) -> dict[str, str | None]:
    """The version of each rival's package; ``None`` if it is not installed."""
    return {name: _version(RIVALS[name].package) for name in names}


def _version(package: str) -> str | None:
    if find_spec(package) is None:
        return None
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # such as tensorflow, which tensorflow-cpu installs
        distributions = metadata.packages_distributions().get(package)
        return metadata.version(distributions[0]) if distributions else "unknown version"
