"""``bt.memory``: the bytes of a training step by the paper's six kinds, and those of the process."""

from __future__ import annotations

from burtorch._core import Oracle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["MemoryUse", "memory"]

KINDS = ("trainable", "frozen", "activations", "inputs_and_outputs", "error_signal", "optimizer_state")


class MemoryUse:
    """Bytes by kind, as attributes.

    ``trainable``, ``frozen``, ``activations``, ``inputs_and_outputs``, ``error_signal`` (the gradient and adjoints),
    ``optimizer_state``; ``total`` is their sum, ``process`` the resident memory of the whole process when they
    were counted (None if the system does not report it).
    """

    __slots__ = (*KINDS, "process")

    def __init__(self, counts: dict[str, int], process: int | None) -> None:
        for kind in KINDS:
            setattr(self, kind, counts[kind])
        self.process = process

    trainable: int
    frozen: int
    activations: int
    inputs_and_outputs: int
    error_signal: int
    optimizer_state: int
    process: int | None

    @property
    def total(self) -> int:
        """The sum of the six kinds."""
        return sum(self.as_dict().values())

    def as_dict(self) -> dict[str, int]:
        """The six kinds by name."""
        return {kind: getattr(self, kind) for kind in KINDS}

    def __repr__(self) -> str:
        counts = ", ".join(f"{kind}={n}" for kind, n in self.as_dict().items())
        return f"MemoryUse({counts}, total={self.total}, process={self.process})"


def memory(model: Any, optimizer: Any = None, batch: tuple[Any, Any] | None = None) -> MemoryUse:
    """The memory of a training step.

    Args:
        model: an Oracle, or a model for an Oracle.
        optimizer: an optimiser, or None.
        batch: ``(contexts, targets)``: their gradient is computed first, in separate memory, so that values and
            gradients do not change. Without it an Oracle is counted in its present state.

    Costs a gradient of the batch, and its memory meanwhile. Counts reserved memory, in use or not;
    frozen numbers count once and trainable ones twice, also as part of the gradient.

    Raises the errors of the oracle for such a batch; TypeError for another model.

    Example:
        >>> import burtorch as bt
        >>> params = bt.Parameters()
        >>> model = bt.nn.CharMLP(params, hidden=4)
        >>> use = bt.memory(model, bt.optim.AdamW(params), ([[0] * 16] * 64, [1] * 64))
        >>> use.trainable, use.total == sum(use.as_dict().values())
        (23852, True)
    """
    oracle = model if isinstance(model, Oracle) else Oracle(model)
    params = oracle.params
    if batch is not None:
        from array import array

        oracle(*batch, out=array(_codes[params.dtype], bytes(_bytes[params.dtype] * len(params))))
    kept, size = oracle.memory(), _bytes[params.dtype]
    n_trainable = params.n_trainable
    counts = {
        "trainable": size * n_trainable,
        "frozen": size * (len(params) - n_trainable),
        "activations": kept["activations"],
        "inputs_and_outputs": kept["samples"],
        "error_signal": kept["adjoints"] + size * n_trainable,
        "optimizer_state": 0 if optimizer is None else optimizer.state_bytes,
    }
    return MemoryUse(counts, _resident())


_codes = {"float32": "f", "float64": "d"}
_bytes = {"float32": 4, "float64": 8}


def _resident() -> int | None:
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("VmRSS:"):
                    return 1024 * int(line.split()[1])
    except OSError:
        pass
    return None
